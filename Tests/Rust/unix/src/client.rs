//! A client's transport over a Unix socket, for services in Swift and in Rust.
//!
//! One thread a connection reads; requests are written by the threads that poll, many at once if many are under way.

use crate::frame::{self, Frame};
use crate::outbox::Outbox;
use crate::Place;
use pawl_transports::abi;
use pawl_transports::client::{Connection, Status, Transport};
use pawl_transports::{BoxFuture, Error};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Requests that wait for replies.
const IN_FLIGHT: usize = 1024;
/// Time to connect and agree on version and protocol, and for the peer to take a frame.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct UnixTransport {
    pub place: Place,
}

impl Transport for UnixTransport {
    fn id(&self) -> String {
        "unix-rust".to_owned()
    }

    fn status(self: Arc<Self>, proto: String) -> BoxFuture<Status> {
        let connection = UnixConnection { inner: Inner::new(self.place.clone(), proto) };
        Box::pin(async move {
            match connection.inner.open().await {
                Ok(_) => Status::Ready,
                Err(error) if error.code == abi::UNAVAILABLE => Status::Unavailable(error.reason),
                Err(error) => Status::Error(error),
            }
        })
    }

    fn connect(self: Arc<Self>, proto: String) -> Arc<dyn Connection> {
        Arc::new(UnixConnection { inner: Inner::new(self.place.clone(), proto) })
    }
}

enum Slot {
    Sent,
    Waiting(Option<Waker>),
    Arrived(Result<Vec<u8>, Error>),
}

enum Link {
    Fresh,
    Opening(Vec<Waker>),
    Open(Arc<Outbox>),
    Closed(Error),
}

struct State {
    link: Link,
    is_draining: bool,
    last: u64,
    slots: HashMap<u64, Slot>,
    unclaimed: VecDeque<u64>,
}

struct Inner {
    place: Place,
    proto: String,
    state: Mutex<State>,
}

struct UnixConnection {
    inner: Arc<Inner>,
}

impl Drop for UnixConnection {
    fn drop(&mut self) {
        self.inner.end(Error::closed("the connection is closed"));
    }
}

impl Inner {
    fn new(place: Place, proto: String) -> Arc<Inner> {
        let state = State {
            link: Link::Fresh,
            is_draining: false,
            last: 0,
            slots: HashMap::new(),
            unclaimed: VecDeque::new(),
        };
        Arc::new(Inner { place, proto, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    fn open(self: &Arc<Self>) -> Opening {
        Opening { inner: self.clone() }
    }

    /// Connects, then reads until the connection ends.
    fn run(self: Arc<Self>) {
        let error = match self.greet() {
            Ok(mut reader) => loop {
                let is_known = match Frame::read(&mut reader, frame::length_limit(self.place.message_limit)) {
                    Ok(Frame::Reply(id, payload)) => self.arrived(id, Ok(payload)),
                    Ok(Frame::Failure(id, error)) => self.arrived(id, Err(error)),
                    Ok(Frame::Drain) => {
                        self.lock().is_draining = true;
                        true
                    }
                    Ok(_) => false,
                    Err(_) => break Error::closed("the service closed the connection"),
                };
                if !is_known {
                    break Error::new(abi::WEIRD, "the service sent a frame that it may not send now");
                }
            },
            Err(error) => error,
        };
        self.end(error);
    }

    fn greet(&self) -> Result<BufReader<UnixStream>, Error> {
        let cannot = |error: std::io::Error| Error::unavailable(format!("cannot connect: {}", error));
        let stream = UnixStream::connect(&self.place.path).map_err(cannot)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let outbox = Outbox::new(stream.try_clone()?);
        outbox.append(&Frame::Hello { version: frame::VERSION, proto: self.proto.clone().into_bytes() }, true)?;
        let mut reader = BufReader::with_capacity(frame::READ_SIZE, stream);
        match Frame::read(&mut reader, frame::length_limit(self.place.message_limit))? {
            Frame::Welcome { version: frame::VERSION } => {}
            Frame::Unavailable(reason) => {
                return Err(Error::unavailable(String::from_utf8_lossy(&reason).into_owned()));
            }
            _ => return Err(Error::new(abi::WEIRD, "the service did not answer the greeting")),
        }
        reader.get_ref().set_read_timeout(None)?;
        let mut state = self.lock();
        let wakers = match std::mem::replace(&mut state.link, Link::Open(outbox)) {
            Link::Opening(wakers) => wakers,
            Link::Closed(error) => {
                state.link = Link::Closed(error.clone());
                return Err(error);
            }
            _ => Vec::new(),
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(reader)
    }

    /// Returns false if no request ever had the id.
    fn arrived(&self, id: u64, reply: Result<Vec<u8>, Error>) -> bool {
        let mut state = self.lock();
        if id > state.last {
            return false;
        }
        let waker = match state.slots.get_mut(&id) {
            Some(slot) => match std::mem::replace(slot, Slot::Arrived(reply)) {
                Slot::Waiting(waker) => waker,
                _ => None,
            },
            None => None,
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn end(&self, error: Error) {
        let mut state = self.lock();
        let mut wakers = Vec::new();
        match std::mem::replace(&mut state.link, Link::Closed(error.clone())) {
            Link::Opening(waiting) => wakers = waiting,
            Link::Open(outbox) => outbox.close(),
            Link::Closed(first) => state.link = Link::Closed(first),
            Link::Fresh => {}
        }
        for slot in state.slots.values_mut() {
            if let Slot::Arrived(_) = slot {
                continue;
            }
            if let Slot::Waiting(Some(waker)) = std::mem::replace(slot, Slot::Arrived(Err(error.clone()))) {
                wakers.push(waker);
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn send(&self, request: Vec<u8>) -> Result<(), Error> {
        if request.len() > self.place.message_limit {
            return Err(Error::new(abi::TOO_LARGE, "the request is too large"));
        }
        let (id, outbox, is_alone) = {
            let mut state = self.lock();
            let outbox = match &state.link {
                Link::Open(outbox) => outbox.clone(),
                Link::Closed(error) => return Err(error.clone()),
                _ => return Err(Error::closed("the connection is not open")),
            };
            if state.is_draining {
                return Err(Error::closed("the service is closing"));
            }
            if state.slots.len() >= IN_FLIGHT {
                return Err(Error::new(abi::BUSY, ""));
            }
            state.last += 1;
            let id = state.last;
            state.slots.insert(id, Slot::Sent);
            state.unclaimed.push_back(id);
            (id, outbox, state.slots.len() == 1)
        };
        outbox.append(&Frame::Request(id, request), is_alone).map_err(Error::from)
    }

    fn cancel(&self, id: u64) {
        let mut state = self.lock();
        let was_under_way = !matches!(state.slots.remove(&id), None | Some(Slot::Arrived(_)));
        let outbox = match &state.link {
            Link::Open(outbox) if was_under_way => outbox.clone(),
            _ => return,
        };
        let is_alone = state.slots.is_empty();
        drop(state);
        let _ = outbox.append(&Frame::Cancel(id), is_alone);
    }
}

struct Opening {
    inner: Arc<Inner>,
}

impl Future for Opening {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.inner.lock();
        match &mut state.link {
            Link::Open(_) => Poll::Ready(Ok(())),
            Link::Closed(error) => Poll::Ready(Err(error.clone())),
            Link::Opening(wakers) => {
                wakers.push(context.waker().clone());
                Poll::Pending
            }
            Link::Fresh => {
                state.link = Link::Opening(vec![context.waker().clone()]);
                drop(state);
                let inner = self.inner.clone();
                std::thread::spawn(move || inner.run());
                Poll::Pending
            }
        }
    }
}

impl Connection for UnixConnection {
    fn send(self: Arc<Self>, request: Vec<u8>) -> BoxFuture<Result<(), Error>> {
        Box::pin(async move {
            self.inner.open().await?;
            self.inner.send(request)
        })
    }

    fn receive(self: Arc<Self>) -> BoxFuture<Result<Vec<u8>, Error>> {
        // Claimed now, so that receivers get replies in the order in which they asked.
        let id = {
            let mut state = self.inner.lock();
            let id = state.unclaimed.pop_front();
            if let Some(id) = id {
                if let Some(slot) = state.slots.get_mut(&id) {
                    if let Slot::Sent = slot {
                        *slot = Slot::Waiting(None);
                    }
                }
            }
            id
        };
        match id {
            Some(id) => Box::pin(Receiving { connection: self, id, is_done: false }),
            None => Box::pin(async { Err(Error::new(abi::WEIRD, "no request waits for a reply")) }),
        }
    }
}

struct Receiving {
    connection: Arc<UnixConnection>,
    id: u64,
    is_done: bool,
}

impl Future for Receiving {
    type Output = Result<Vec<u8>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id;
        let connection = self.connection.clone();
        let mut state = connection.inner.lock();
        match state.slots.get_mut(&id) {
            Some(Slot::Arrived(_)) => {
                self.is_done = true;
                match state.slots.remove(&id) {
                    Some(Slot::Arrived(reply)) => Poll::Ready(reply),
                    _ => Poll::Ready(Err(Error::cancelled())),
                }
            }
            Some(slot) => {
                // The latest waker: the future may have moved to another task.
                *slot = Slot::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            None => Poll::Ready(Err(Error::cancelled())),
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.is_done {
            self.connection.inner.cancel(self.id);
        }
    }
}
