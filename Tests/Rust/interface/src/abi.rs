//! The types of `pawl_transports.h`, and how bytes cross it.

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The version of the interface.
pub const VERSION: u32 = 1;

pub const OK: i32 = 0;
pub const PANIC: i32 = 1;
pub const CANCELLED: i32 = 2;
pub const CLOSED: i32 = 3;
pub const UNAVAILABLE: i32 = 4;
pub const TOO_LARGE: i32 = 5;
pub const BUSY: i32 = 6;
pub const INCOMPATIBLE: i32 = 9;
pub const WEIRD: i32 = 11;
pub const CUSTOM: i32 = 1000;

/// Borrowed bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *const u8,
    pub count: usize,
}

impl Bytes {
    /// Lends bytes for a call.
    pub fn lend(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr(), count: bytes.len() }
    }

    /// A copy. A pointer may be NULL if the count is 0.
    ///
    /// # Safety
    /// The pointer has to be valid for `count` bytes.
    pub unsafe fn to_vec(self) -> Vec<u8> {
        if self.count == 0 || self.data.is_null() {
            return Vec::new();
        }
        std::slice::from_raw_parts(self.data, self.count).to_vec()
    }

    /// A copy as text; what is no UTF-8 is replaced.
    ///
    /// # Safety
    /// As `to_vec`.
    pub unsafe fn to_text(self) -> String {
        String::from_utf8_lossy(&self.to_vec()).into_owned()
    }
}

/// Owned bytes that free themselves.
#[repr(C)]
pub struct Buffer {
    pub data: *const u8,
    pub count: usize,
    pub owner: *mut c_void,
    pub free: Option<unsafe extern "C" fn(*mut c_void, *const u8, usize)>,
}

/// How many buffers of this crate are not freed yet, for tests.
pub static LIVE_BUFFERS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn free_vec(owner: *mut c_void, _data: *const u8, _count: usize) {
    LIVE_BUFFERS.fetch_sub(1, Ordering::SeqCst);
    drop(Box::from_raw(owner as *mut Vec<u8>));
}

impl Buffer {
    pub fn empty() -> Buffer {
        Buffer { data: std::ptr::null(), count: 0, owner: std::ptr::null_mut(), free: None }
    }

    /// Gives the bytes away.
    pub fn new(bytes: Vec<u8>) -> Buffer {
        if bytes.is_empty() {
            return Buffer::empty();
        }
        LIVE_BUFFERS.fetch_add(1, Ordering::SeqCst);
        let bytes = Box::new(bytes);
        let (data, count) = (bytes.as_ptr(), bytes.len());
        Buffer { data, count, owner: Box::into_raw(bytes) as *mut c_void, free: Some(free_vec) }
    }

    /// Copies the bytes and frees the buffer.
    pub fn take(self) -> Vec<u8> {
        unsafe { Bytes { data: self.data, count: self.count }.to_vec() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            unsafe { free(self.owner, self.data, self.count) }
        }
    }
}

/// Code and reason.
#[repr(C)]
pub struct CError {
    pub code: i32,
    pub reason: Buffer,
}

/// The end of an operation. The receiver takes the buffers, so it is not dropped by the sender.
#[repr(C)]
pub struct Outcome {
    pub code: i32,
    pub payload: Buffer,
    pub reason: Buffer,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    pub context: *mut c_void,
    pub done: unsafe extern "C" fn(*mut c_void, *mut Outcome),
}

// Completions may be called on every thread.
unsafe impl Send for Completion {}
unsafe impl Sync for Completion {}

#[repr(C)]
pub struct Operation {
    pub object: *mut c_void,
    pub cancel: Option<unsafe extern "C" fn(*mut c_void)>,
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
}

// The functions of an operation may be called on every thread.
unsafe impl Send for Operation {}

/// The head of every table.
#[repr(C)]
pub struct Table {
    pub abi: u32,
    pub size: u32,
    pub retain: Option<unsafe extern "C" fn(*mut c_void)>,
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
}

unsafe extern "C" fn retain<T>(object: *mut c_void) {
    Arc::increment_strong_count(object as *const T);
}

unsafe extern "C" fn release<T>(object: *mut c_void) {
    // A panic in a destructor must not leave Rust.
    let _ = catch_unwind(AssertUnwindSafe(|| Arc::decrement_strong_count(object as *const T)));
}

impl Table {
    /// The head for a table of type `Whole` around objects of type `Object`.
    pub const fn head<Whole, Object>() -> Table {
        Table {
            abi: VERSION,
            size: std::mem::size_of::<Whole>() as u32,
            retain: Some(retain::<Object>),
            release: Some(release::<Object>),
        }
    }
}

/// Gives one reference to an object away.
pub(crate) fn into_object<T>(object: Arc<T>) -> *mut c_void {
    Arc::into_raw(object) as *mut c_void
}

/// Borrows an object that `into_object` gave away, with a reference of its own.
pub(crate) unsafe fn borrow<T>(object: *mut c_void) -> Arc<T> {
    Arc::increment_strong_count(object as *const T);
    Arc::from_raw(object as *const T)
}
