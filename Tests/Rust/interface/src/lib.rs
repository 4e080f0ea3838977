//! Transports in Rust for Swift: the C interface of `pawl_transports.h`, version 1.
//!
//! A transport implements [`client::Transport`] or [`service::Transport`]. [`ClientTransport::new`] and
//! [`ServiceTransport::new`] make the object that a constructor gives to Swift:
//!
//! ```ignore
//! #[no_mangle]
//! pub unsafe extern "C" fn tesseract_client_my_transport_new(
//!     value: &mut ManuallyDrop<ClientTransport>, error: &mut ManuallyDrop<CError>,
//! ) -> bool {
//!     TesseractSwiftError::context(|| {
//!         let transport = MyTransport::new();
//!         Ok(ClientTransport::new(transport))
//!     }).response(value, error)
//! }
//! ```
//!
//! Futures run on threads of this crate, never on the thread that called from Swift or that woke them. A panic in any
//! function becomes the code `PANIC`. There are no dependencies; Rust 1.63 is enough.

pub mod abi;
pub mod client;
mod error;
mod operation;
pub mod service;

pub use abi::CError;
pub use client::ClientTransport;
pub use error::{Error, TesseractSwiftError};
pub use operation::{later, BoxFuture};
pub use service::ServiceTransport;
