//! Transports of services.

use crate::abi::{self, Bytes, CError, Completion, Operation, Outcome, Table};
use crate::error::Error;
use crate::operation::{self, BoxFuture};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

/// A way on which clients reach a service.
pub trait Transport: Send + Sync + 'static {
    /// Starts listening.
    fn bind(self: Arc<Self>, processor: Processor) -> Result<Arc<dyn BoundTransport>, Error>;
}

/// A transport that listens. Dropping it stops it: when `drop` returns it does not call the processor any more.
pub trait BoundTransport: Send + Sync + 'static {
    fn ready(self: Arc<Self>) -> BoxFuture<Result<(), Error>>;
    /// Takes no more requests, answers those under way and stops.
    fn close(self: Arc<Self>) -> BoxFuture<()>;
}

#[repr(C)]
struct ProcessorTable {
    table: Table,
    supports: Option<unsafe extern "C" fn(*mut c_void, Bytes) -> bool>,
    process: Option<unsafe extern "C" fn(*mut c_void, Bytes, Completion) -> Operation>,
}

#[repr(C)]
struct CProcessor {
    object: *mut c_void,
    table: *const ProcessorTable,
}

/// The service's processor.
pub struct Processor(CProcessor);

// The interface allows calls on every thread.
unsafe impl Send for Processor {}
unsafe impl Sync for Processor {}

impl Drop for Processor {
    fn drop(&mut self) {
        unsafe {
            if let Some(release) = (*self.0.table).table.release {
                release(self.0.object)
            }
        }
    }
}

type Reply = Box<dyn FnOnce(Result<Vec<u8>, Error>) + Send>;

/// A request that is processed. Dropping it does not cancel it.
pub struct Processing {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    operation: Option<Operation>,
    reply: Option<Reply>,
    is_done: bool,
    /// Threads inside `cancel`: the handle is not released while there are some.
    cancelling: usize,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    fn release_if_possible(&self) {
        let mut state = self.lock();
        if !state.is_done || state.cancelling > 0 {
            return;
        }
        let operation = state.operation.take();
        drop(state);
        if let Some(operation) = operation {
            if let Some(release) = operation.release {
                unsafe { release(operation.object) }
            }
        }
    }
}

unsafe extern "C" fn processed(context: *mut c_void, outcome: *mut Outcome) {
    let shared = Arc::from_raw(context as *const Shared);
    let outcome = std::ptr::read(outcome);
    let result = if outcome.code == abi::OK {
        Ok(outcome.payload.take())
    } else {
        Err(Error::new(outcome.code, String::from_utf8_lossy(&outcome.reason.take()).into_owned()))
    };
    let reply = {
        let mut state = shared.lock();
        state.is_done = true;
        state.reply.take()
    };
    shared.release_if_possible();
    if let Some(reply) = reply {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || reply(result)));
    }
}

impl Processing {
    /// The client does not wait any more. The reply is still given once.
    pub fn cancel(&self) {
        let call = {
            let mut state = self.shared.lock();
            match (&state.operation, state.is_done) {
                (Some(operation), false) => {
                    let call = operation.cancel.map(|cancel| (cancel, operation.object));
                    state.cancelling += 1;
                    call
                }
                _ => return,
            }
        };
        if let Some((cancel, object)) = call {
            unsafe { cancel(object) }
        }
        self.shared.lock().cancelling -= 1;
        self.shared.release_if_possible();
    }
}

impl Processor {
    /// Takes over the caller's reference. It is given back if the table lacks a function; the functions of a table of
    /// another version, or of one that is too short, are not known.
    unsafe fn taking(processor: CProcessor) -> Result<Processor, Error> {
        let incompatible = |reason: &str| Err(Error::new(abi::INCOMPATIBLE, reason));
        if processor.table.is_null() {
            return incompatible("the processor has no table of functions");
        }
        // Only the two numbers: the table may end behind them.
        let head = processor.table as *const u32;
        if *head != abi::VERSION {
            return incompatible("the processor is for another version of the interface");
        }
        if (*head.add(1) as usize) < std::mem::size_of::<ProcessorTable>() {
            return incompatible("the processor's table is too short");
        }
        let processor = Processor(processor);
        let table = &*processor.0.table;
        if table.table.release.is_none() || table.supports.is_none() || table.process.is_none() {
            return incompatible("a function is missing in the processor's table");
        }
        Ok(processor)
    }

    /// Whether the service has a protocol.
    pub fn supports(&self, proto: &str) -> bool {
        unsafe {
            match (*self.0.table).supports {
                Some(supports) => supports(self.0.object, Bytes::lend(proto.as_bytes())),
                None => false,
            }
        }
    }

    /// Processes a request. `reply` is called once, on any thread, never before this returns on this thread.
    pub fn process(&self, request: &[u8], reply: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static) -> Processing {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                operation: None,
                reply: Some(Box::new(reply)),
                is_done: false,
                cancelling: 0,
            }),
        });
        unsafe {
            if let Some(process) = (*self.0.table).process {
                let context = abi::into_object(shared.clone());
                let completion = Completion { context, done: processed };
                let operation = process(self.0.object, Bytes::lend(request), completion);
                shared.lock().operation = Some(operation);
                shared.release_if_possible();
            }
        }
        Processing { shared }
    }
}

#[repr(C)]
struct BoundTable {
    table: Table,
    ready: unsafe extern "C" fn(*mut c_void, Completion) -> Operation,
    close: unsafe extern "C" fn(*mut c_void, Completion) -> Operation,
}

#[repr(C)]
struct ServiceBound {
    object: *mut c_void,
    table: *const BoundTable,
}

#[repr(C)]
struct TransportTable {
    table: Table,
    bind: unsafe extern "C" fn(
        *mut c_void,
        CProcessor,
        *mut ManuallyDrop<ServiceBound>,
        *mut ManuallyDrop<CError>,
    ) -> bool,
}

/// A transport for Swift. It owns one reference; a constructor gives it away without dropping it.
#[repr(C)]
pub struct ServiceTransport {
    object: *mut c_void,
    table: *const TransportTable,
}

type Bind = Box<dyn Fn(Processor) -> Result<Arc<dyn BoundTransport>, Error> + Send + Sync>;

struct TransportBox(Bind);
struct BoundBox(Arc<dyn BoundTransport>);

impl ServiceTransport {
    pub fn new(transport: impl Transport) -> ServiceTransport {
        let transport = Arc::new(transport);
        let bind: Bind = Box::new(move |processor| transport.clone().bind(processor));
        ServiceTransport { object: abi::into_object(Arc::new(TransportBox(bind))), table: &TRANSPORT }
    }
}

impl Drop for ServiceTransport {
    fn drop(&mut self) {
        unsafe { drop(Arc::from_raw(self.object as *const TransportBox)) }
    }
}

static TRANSPORT: TransportTable =
    TransportTable { table: Table::head::<TransportTable, TransportBox>(), bind: transport_bind };

static BOUND: BoundTable = BoundTable {
    table: Table::head::<BoundTable, BoundBox>(),
    ready: bound_ready,
    close: bound_close,
};

unsafe extern "C" fn transport_bind(
    object: *mut c_void,
    processor: CProcessor,
    value: *mut ManuallyDrop<ServiceBound>,
    error: *mut ManuallyDrop<CError>,
) -> bool {
    Error::context(|| {
        let processor = Processor::taking(processor)?;
        let bound = (abi::borrow::<TransportBox>(object).0)(processor)?;
        Ok(ServiceBound { object: abi::into_object(Arc::new(BoundBox(bound))), table: &BOUND })
    })
    .response(&mut *value, &mut *error)
}

unsafe extern "C" fn bound_ready(object: *mut c_void, completion: Completion) -> Operation {
    let bound = abi::borrow::<BoundBox>(object).0.clone();
    operation::start(completion, move || {
        let ready = bound.ready();
        Box::pin(async move { ready.await.map(|_| Vec::new()) })
    })
}

unsafe extern "C" fn bound_close(object: *mut c_void, completion: Completion) -> Operation {
    let bound = abi::borrow::<BoundBox>(object).0.clone();
    operation::start(completion, move || {
        let closing = bound.close();
        Box::pin(async move {
            closing.await;
            Ok(Vec::new())
        })
    })
}

// Tables hold functions and numbers only.
unsafe impl Sync for TransportTable {}
unsafe impl Sync for BoundTable {}
