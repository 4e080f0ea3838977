//! Transports of clients.

use crate::abi::{self, Buffer, Bytes, CError, Completion, Operation, Table};
use crate::error::Error;
use crate::operation::{self, BoxFuture};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Whether a transport can be used now.
pub enum Status {
    Ready,
    /// Not now; the reason is for people.
    Unavailable(String),
    Error(Error),
}

/// A way to reach services.
pub trait Transport: Send + Sync + 'static {
    fn id(&self) -> String;
    fn status(self: Arc<Self>, proto: String) -> BoxFuture<Status>;
    fn connect(self: Arc<Self>, proto: String) -> Arc<dyn Connection>;
}

/// A connection to a service.
pub trait Connection: Send + Sync + 'static {
    fn send(self: Arc<Self>, request: Vec<u8>) -> BoxFuture<Result<(), Error>>;
    /// The reply to the oldest request without a receiver. A future that is dropped drops that reply.
    fn receive(self: Arc<Self>) -> BoxFuture<Result<Vec<u8>, Error>>;
}

#[repr(C)]
struct ConnectionTable {
    table: Table,
    send: unsafe extern "C" fn(*mut c_void, Bytes, Completion) -> Operation,
    receive: unsafe extern "C" fn(*mut c_void, Completion) -> Operation,
}

#[repr(C)]
pub struct ClientConnection {
    object: *mut c_void,
    table: *const ConnectionTable,
}

#[repr(C)]
struct TransportTable {
    table: Table,
    id: unsafe extern "C" fn(*mut c_void, *mut ManuallyDrop<Buffer>, *mut ManuallyDrop<CError>) -> bool,
    status: unsafe extern "C" fn(*mut c_void, Bytes, Completion) -> Operation,
    connect: unsafe extern "C" fn(
        *mut c_void,
        Bytes,
        *mut ManuallyDrop<ClientConnection>,
        *mut ManuallyDrop<CError>,
    ) -> bool,
}

/// A transport for Swift. It owns one reference; a constructor gives it away without dropping it.
#[repr(C)]
pub struct ClientTransport {
    object: *mut c_void,
    table: *const TransportTable,
}

// Objects are behind one type, so that every table is checked by the compiler and nothing is downcast.
struct TransportBox(Arc<dyn ErasedTransport>);
struct ConnectionBox(Arc<dyn Connection>);

trait ErasedTransport: Send + Sync {
    fn id(&self) -> String;
    fn status(&self, proto: String) -> BoxFuture<Status>;
    fn connect(&self, proto: String) -> Arc<dyn Connection>;
}

struct Erased<T>(Arc<T>);

impl<T: Transport> ErasedTransport for Erased<T> {
    fn id(&self) -> String {
        self.0.id()
    }

    fn status(&self, proto: String) -> BoxFuture<Status> {
        self.0.clone().status(proto)
    }

    fn connect(&self, proto: String) -> Arc<dyn Connection> {
        self.0.clone().connect(proto)
    }
}

impl ClientTransport {
    pub fn new(transport: impl Transport) -> ClientTransport {
        let erased: Arc<dyn ErasedTransport> = Arc::new(Erased(Arc::new(transport)));
        ClientTransport { object: abi::into_object(Arc::new(TransportBox(erased))), table: &TRANSPORT }
    }
}

impl Drop for ClientTransport {
    fn drop(&mut self) {
        unsafe { drop(Arc::from_raw(self.object as *const TransportBox)) }
    }
}

static TRANSPORT: TransportTable = TransportTable {
    table: Table::head::<TransportTable, TransportBox>(),
    id: transport_id,
    status: transport_status,
    connect: transport_connect,
};

static CONNECTION: ConnectionTable = ConnectionTable {
    table: Table::head::<ConnectionTable, ConnectionBox>(),
    send: connection_send,
    receive: connection_receive,
};

unsafe extern "C" fn transport_id(
    object: *mut c_void,
    value: *mut ManuallyDrop<Buffer>,
    error: *mut ManuallyDrop<CError>,
) -> bool {
    Error::context(|| Ok(Buffer::new(abi::borrow::<TransportBox>(object).0.id().into_bytes())))
        .response(&mut *value, &mut *error)
}

unsafe extern "C" fn transport_status(object: *mut c_void, proto: Bytes, completion: Completion) -> Operation {
    let transport = abi::borrow::<TransportBox>(object);
    let proto = proto.to_text();
    operation::start(completion, move || {
        let status = transport.0.status(proto);
        Box::pin(async move {
            match status.await {
                Status::Ready => Ok(Vec::new()),
                Status::Unavailable(reason) => Err(Error::unavailable(reason)),
                Status::Error(error) => Err(error),
            }
        })
    })
}

unsafe extern "C" fn transport_connect(
    object: *mut c_void,
    proto: Bytes,
    value: *mut ManuallyDrop<ClientConnection>,
    error: *mut ManuallyDrop<CError>,
) -> bool {
    let proto = proto.to_text();
    Error::context(|| {
        let connection = abi::borrow::<TransportBox>(object).0.connect(proto);
        Ok(ClientConnection { object: abi::into_object(Arc::new(ConnectionBox(connection))), table: &CONNECTION })
    })
    .response(&mut *value, &mut *error)
}

unsafe extern "C" fn connection_send(object: *mut c_void, request: Bytes, completion: Completion) -> Operation {
    let connection = abi::borrow::<ConnectionBox>(object).0.clone();
    let request = request.to_vec();
    operation::start(completion, move || {
        let sending = connection.send(request);
        Box::pin(async move { sending.await.map(|_| Vec::new()) })
    })
}

unsafe extern "C" fn connection_receive(object: *mut c_void, completion: Completion) -> Operation {
    let connection = abi::borrow::<ConnectionBox>(object).0.clone();
    operation::start(completion, move || connection.receive())
}

// Tables hold functions and numbers only.
unsafe impl Sync for TransportTable {}
unsafe impl Sync for ConnectionTable {}
