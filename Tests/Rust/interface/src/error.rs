use crate::abi::{self, Buffer, CError};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Why something failed: a code of the interface and a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub code: i32,
    pub reason: String,
}

/// The name that the document uses.
pub type TesseractSwiftError = Error;

impl Error {
    pub fn new(code: i32, reason: impl Into<String>) -> Error {
        Error { code, reason: reason.into() }
    }

    /// An error of a transport's own; codes from 0.
    pub fn custom(code: i32, reason: impl Into<String>) -> Error {
        Error::new(abi::CUSTOM + code.max(0), reason)
    }

    pub fn closed(reason: impl Into<String>) -> Error {
        Error::new(abi::CLOSED, reason)
    }

    pub fn unavailable(reason: impl Into<String>) -> Error {
        Error::new(abi::UNAVAILABLE, reason)
    }

    pub fn cancelled() -> Error {
        Error::new(abi::CANCELLED, "")
    }

    pub(crate) fn panic(payload: Box<dyn Any + Send>) -> Error {
        let reason = match payload.downcast_ref::<&str>() {
            Some(text) => (*text).to_owned(),
            None => match payload.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => "a panic without text".to_owned(),
            },
        };
        // The destructor of a payload may panic as well.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        Error::new(abi::PANIC, reason)
    }

    pub(crate) fn into_c(self) -> CError {
        CError { code: self.code, reason: Buffer::new(self.reason.into_bytes()) }
    }

    /// Runs a constructor. A panic becomes an error.
    pub fn context<T>(body: impl FnOnce() -> Result<T, Error>) -> Context<T> {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => Context(result),
            Err(payload) => Context(Err(Error::panic(payload))),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::closed(error.to_string())
    }
}

/// The result of a constructor.
pub struct Context<T>(Result<T, Error>);

impl<T> Context<T> {
    /// Fills the value and returns true, or the error and returns false.
    pub fn response(self, value: &mut ManuallyDrop<T>, error: &mut ManuallyDrop<CError>) -> bool {
        match self.0 {
            Ok(result) => {
                *value = ManuallyDrop::new(result);
                true
            }
            Err(failure) => {
                *error = ManuallyDrop::new(failure.into_c());
                false
            }
        }
    }
}
