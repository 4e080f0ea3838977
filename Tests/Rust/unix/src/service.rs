//! A service's transport over a Unix socket, for clients in Swift and in Rust.
//!
//! One thread accepts, one a connection reads. The reply of the only request under way is written by the thread that
//! reports it; replies of many leave together.

use crate::frame::{self, Frame};
use crate::outbox::Outbox;
use crate::Place;
use pawl_transports::abi;
use pawl_transports::service::{BoundTransport, Processing, Processor, Transport};
use pawl_transports::{BoxFuture, Error};
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::future::Future;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 256;
const IN_FLIGHT: usize = 1024;
/// Time for a client to greet, and to take a frame.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for requests under way when the transport is closed.
const DRAIN: Duration = Duration::from_secs(10);

extern "C" {
    /// Of the C library: the standard library cannot wake a thread that accepts.
    fn shutdown(descriptor: i32, how: i32) -> i32;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

pub struct UnixTransport {
    pub place: Place,
}

impl Transport for UnixTransport {
    fn bind(self: Arc<Self>, processor: Processor) -> Result<Arc<dyn BoundTransport>, Error> {
        let cannot = |error: std::io::Error| Error::unavailable(format!("cannot listen: {}", error));
        let path = &self.place.path;
        if fs::metadata(path).is_ok() {
            if UnixStream::connect(path).is_ok() {
                return Err(Error::unavailable(format!("another process listens on {}", path)));
            }
            fs::remove_file(path).map_err(cannot)?;
        }
        let listener = UnixListener::bind(path).map_err(cannot)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let shared = Arc::new(Shared {
            place: self.place.clone(),
            listener,
            processor: RwLock::new(Some(processor)),
            is_draining: AtomicBool::new(false),
            is_listening: AtomicBool::new(true),
            connections: Mutex::new(HashMap::new()),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || accepting.accept());
        Ok(Arc::new(Bound { shared }))
    }
}

struct Shared {
    place: Place,
    listener: UnixListener,
    processor: RwLock<Option<Processor>>,
    is_draining: AtomicBool,
    is_listening: AtomicBool,
    connections: Mutex<HashMap<u64, Arc<Client>>>,
    changed: Condvar,
}

impl Shared {
    fn accept(self: Arc<Self>) {
        let mut last = 0;
        while let Ok((stream, _)) = self.listener.accept() {
            if !self.is_listening.load(Ordering::SeqCst) {
                return;
            }
            last += 1;
            let number = last;
            let writer = match stream.try_clone() {
                Ok(writer) => writer,
                Err(_) => continue,
            };
            let client = Arc::new(Client {
                shared: self.clone(),
                outbox: Outbox::new(writer),
                running: Mutex::new(HashMap::new()),
                has_greeted: AtomicBool::new(false),
            });
            {
                let mut connections = lock(&self.connections);
                if connections.len() >= CONNECTIONS {
                    continue;
                }
                connections.insert(number, client.clone());
            }
            let shared = self.clone();
            std::thread::spawn(move || {
                client.read(stream);
                client.end();
                lock(&shared.connections).remove(&number);
                shared.changed.notify_all();
            });
        }
    }

    fn stop_listening(&self) {
        if self.is_listening.swap(false, Ordering::SeqCst) {
            unsafe { shutdown(self.listener.as_raw_fd(), 2) };
            let _ = fs::remove_file(&self.place.path);
        }
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.connections).values().cloned().collect()
    }

    fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
        self.stop_listening();
        for client in self.clients() {
            client.drain();
        }
        let end = Instant::now() + DRAIN;
        let mut connections = lock(&self.connections);
        while !connections.is_empty() {
            let now = Instant::now();
            if now >= end {
                return;
            }
            connections = match self.changed.wait_timeout(connections, end - now) {
                Ok((connections, _)) => connections,
                Err(error) => error.into_inner().0,
            };
        }
    }

    /// After this returned the processor is not called any more.
    fn stop(&self) {
        self.stop_listening();
        drop(self.processor.write().unwrap_or_else(|error| error.into_inner()).take());
        for client in self.clients() {
            client.end();
        }
    }
}

struct Client {
    shared: Arc<Shared>,
    outbox: Arc<Outbox>,
    /// None between the start of a request and the return of `process`.
    running: Mutex<HashMap<u64, Option<Processing>>>,
    has_greeted: AtomicBool,
}

impl Client {
    fn read(self: &Arc<Self>, stream: UnixStream) {
        if stream.set_read_timeout(Some(PATIENCE)).is_err() || stream.set_write_timeout(Some(PATIENCE)).is_err() {
            return;
        }
        let mut reader = BufReader::with_capacity(frame::READ_SIZE, stream);
        match Frame::read(&mut reader, frame::HELLO_LIMIT) {
            Ok(Frame::Hello { version, proto }) if self.greet(version, &proto) => {}
            _ => return,
        }
        if reader.get_ref().set_read_timeout(None).is_err() {
            return;
        }
        while let Ok(frame) = Frame::read(&mut reader, frame::length_limit(self.shared.place.message_limit)) {
            let is_allowed = match frame {
                Frame::Request(id, payload) => self.start(id, &payload),
                Frame::Cancel(id) => {
                    self.cancel(id);
                    true
                }
                _ => false,
            };
            if !is_allowed {
                return;
            }
        }
    }

    fn greet(&self, version: u8, proto: &[u8]) -> bool {
        let proto = match std::str::from_utf8(proto) {
            Ok(proto) if !proto.is_empty() => proto,
            _ => return false,
        };
        let supports = match &*self.shared.processor.read().unwrap_or_else(|error| error.into_inner()) {
            Some(processor) => processor.supports(proto),
            None => false,
        };
        let reason = if version != frame::VERSION {
            format!("the service speaks version {} and not {}", frame::VERSION, version)
        } else if self.shared.is_draining.load(Ordering::SeqCst) {
            "the service is closing".to_owned()
        } else if !supports {
            format!("the service does not have the protocol {}", proto)
        } else {
            self.has_greeted.store(true, Ordering::SeqCst);
            return self.write(&Frame::Welcome { version: frame::VERSION }, true);
        };
        self.write(&Frame::Unavailable(reason.into_bytes()), true);
        false
    }

    /// Returns false if the connection is closed.
    fn write(&self, frame: &Frame, is_alone: bool) -> bool {
        self.outbox.append(frame, is_alone).is_ok()
    }

    /// Returns false if the client may not send this request.
    fn start(self: &Arc<Self>, id: u64, payload: &[u8]) -> bool {
        {
            let mut running = lock(&self.running);
            if running.contains_key(&id) {
                return false;
            }
            if self.shared.is_draining.load(Ordering::SeqCst) {
                drop(running);
                return self.write(&Frame::Failure(id, Error::closed("the service is closing")), false);
            }
            if running.len() >= IN_FLIGHT {
                drop(running);
                return self.write(&Frame::Failure(id, Error::new(abi::BUSY, "")), false);
            }
            running.insert(id, None);
        }
        let client = self.clone();
        // Held while `process` starts the request: `stop` waits for it.
        let processor = self.shared.processor.read().unwrap_or_else(|error| error.into_inner());
        let processing = match &*processor {
            Some(processor) => processor.process(payload, move |reply| client.finish(id, reply)),
            None => return false,
        };
        drop(processor);
        if let Some(slot) = lock(&self.running).get_mut(&id) {
            *slot = Some(processing);
        }
        true
    }

    fn finish(&self, id: u64, reply: Result<Vec<u8>, Error>) {
        let is_last = {
            let mut running = lock(&self.running);
            if running.remove(&id).is_none() {
                return;
            }
            running.is_empty()
        };
        let frame = match reply {
            Ok(payload) if payload.len() > self.shared.place.message_limit => {
                Frame::Failure(id, Error::new(abi::TOO_LARGE, "the reply is too large"))
            }
            Ok(payload) => Frame::Reply(id, payload),
            Err(error) => Frame::Failure(id, error),
        };
        self.write(&frame, is_last);
        if is_last && self.shared.is_draining.load(Ordering::SeqCst) {
            self.end();
        }
    }

    fn cancel(&self, id: u64) {
        let processing = lock(&self.running).remove(&id);
        if let Some(Some(processing)) = processing {
            processing.cancel();
        }
        if self.shared.is_draining.load(Ordering::SeqCst) && lock(&self.running).is_empty() {
            self.end();
        }
    }

    fn drain(&self) {
        if !self.has_greeted.load(Ordering::SeqCst) {
            return self.end();
        }
        self.write(&Frame::Drain, true);
        if lock(&self.running).is_empty() {
            self.end();
        }
    }

    fn end(&self) {
        let running: Vec<_> = lock(&self.running).drain().collect();
        for (_, processing) in running {
            if let Some(processing) = processing {
                processing.cancel();
            }
        }
        self.outbox.close();
    }
}

struct Bound {
    shared: Arc<Shared>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl BoundTransport for Bound {
    fn ready(self: Arc<Self>) -> BoxFuture<Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn close(self: Arc<Self>) -> BoxFuture<()> {
        let end = Arc::new(Mutex::new(End { is_done: false, waker: None }));
        let (shared, thread_end) = (self.shared.clone(), end.clone());
        // Waiting for clients blocks, so it is not done on a thread that polls.
        std::thread::spawn(move || {
            shared.drain();
            shared.stop();
            let mut end = lock(&thread_end);
            end.is_done = true;
            if let Some(waker) = end.waker.take() {
                waker.wake();
            }
        });
        Box::pin(Closing { end })
    }
}

struct End {
    is_done: bool,
    waker: Option<Waker>,
}

struct Closing {
    end: Arc<Mutex<End>>,
}

impl Future for Closing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut end = lock(&self.end);
        if end.is_done {
            return Poll::Ready(());
        }
        end.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
