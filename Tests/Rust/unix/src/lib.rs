//! Transports over a Unix socket in Rust, as a library that Swift loads or links.

mod client;
mod frame;
mod outbox;
mod service;
mod trouble;

use pawl_transports::abi::{self, Bytes};
use pawl_transports::{CError, ClientTransport, Error, ServiceTransport, TesseractSwiftError};
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

/// Where a socket is and what may pass it: the configuration of the transports.
#[derive(Clone)]
pub struct Place {
    path: String,
    message_limit: usize,
}

impl Place {
    /// The path, and perhaps a second line with the largest message in bytes.
    fn new(configuration: &str) -> Place {
        let mut lines = configuration.split('\n');
        let path = lines.next().unwrap_or_default().to_owned();
        let message_limit = lines.next().and_then(|line| line.parse().ok()).unwrap_or(frame::MESSAGE_LIMIT);
        Place { path, message_limit: message_limit.min(frame::MESSAGE_LIMIT) }
    }
}

/// The version of the interface.
#[no_mangle]
pub extern "C" fn pawl_transports_abi() -> u32 {
    abi::VERSION
}

fn client(configuration: &str) -> Result<ClientTransport, Error> {
    match configuration {
        "" => Err(Error::custom(1, "the configuration is the path of a socket")),
        "panic" => panic!("the constructor panics"),
        "trouble" => Ok(ClientTransport::new(trouble::Trouble { panics_for_id: false })),
        "trouble-id" => Ok(ClientTransport::new(trouble::Trouble { panics_for_id: true })),
        path => Ok(ClientTransport::new(client::UnixTransport { place: Place::new(path) })),
    }
}

fn service(configuration: &str) -> Result<ServiceTransport, Error> {
    match configuration {
        "" => Err(Error::custom(1, "the configuration is the path of a socket")),
        "panic" => panic!("the constructor panics"),
        path => Ok(ServiceTransport::new(service::UnixTransport { place: Place::new(path) })),
    }
}

/// The constructor for libraries that are loaded.
///
/// # Safety
/// The pointers are those of `pawl_transports.h`.
#[no_mangle]
pub unsafe extern "C" fn pawl_client_transport_open(
    configuration: Bytes,
    value: &mut ManuallyDrop<ClientTransport>,
    error: &mut ManuallyDrop<CError>,
) -> bool {
    let configuration = configuration.to_text();
    TesseractSwiftError::context(|| client(&configuration)).response(value, error)
}

/// The constructor for libraries that are loaded.
///
/// # Safety
/// The pointers are those of `pawl_transports.h`.
#[no_mangle]
pub unsafe extern "C" fn pawl_service_transport_open(
    configuration: Bytes,
    value: &mut ManuallyDrop<ServiceTransport>,
    error: &mut ManuallyDrop<CError>,
) -> bool {
    let configuration = configuration.to_text();
    TesseractSwiftError::context(|| service(&configuration)).response(value, error)
}

// The constructors of the document, for libraries that are linked. The parameter is the configuration.

#[no_mangle]
pub unsafe extern "C" fn tesseract_client_my_transport_new(
    path: Bytes,
    value: &mut ManuallyDrop<ClientTransport>,
    error: &mut ManuallyDrop<CError>,
) -> bool {
    let path = path.to_text();
    TesseractSwiftError::context(|| {
        let transport = client::UnixTransport { place: Place::new(&path) };
        Ok(ClientTransport::new(transport))
    })
    .response(value, error)
}

#[no_mangle]
pub unsafe extern "C" fn tesseract_service_my_transport_new(
    path: Bytes,
    value: &mut ManuallyDrop<ServiceTransport>,
    error: &mut ManuallyDrop<CError>,
) -> bool {
    let path = path.to_text();
    TesseractSwiftError::context(|| {
        let transport = service::UnixTransport { place: Place::new(&path) };
        Ok(ServiceTransport::new(transport))
    })
    .response(value, error)
}

/// Buffers of this library that are not freed yet, and futures that wait for ever, for tests.
#[no_mangle]
pub extern "C" fn pawl_test_live(kind: u32) -> usize {
    match kind {
        0 => abi::LIVE_BUFFERS.load(Ordering::SeqCst),
        _ => trouble::WAITING.load(Ordering::SeqCst),
    }
}
