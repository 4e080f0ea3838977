//! A client's transport that panics, wakes itself and ends at odd moments, for tests of the interface.

use pawl_transports::client::{Connection, Status, Transport};
use pawl_transports::{BoxFuture, Error};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Futures of `forever` that were not dropped yet.
pub static WAITING: AtomicUsize = AtomicUsize::new(0);

pub struct Trouble {
    pub panics_for_id: bool,
}

impl Transport for Trouble {
    fn id(&self) -> String {
        if self.panics_for_id {
            panic!("no id");
        }
        "trouble".to_owned()
    }

    fn status(self: Arc<Self>, proto: String) -> BoxFuture<Status> {
        match proto.as_str() {
            "panic" => panic!("no status"),
            "panic-later" => Box::pin(async { panic!("no status later") }),
            "unavailable" => Box::pin(async { Status::Unavailable("not here\0 ~~~ :: 🐢".to_owned()) }),
            "error" => Box::pin(async { Status::Error(Error::custom(5, "failed")) }),
            "forever" => Box::pin(async {
                Forever::new().await;
                Status::Ready
            }),
            _ => Box::pin(async { Status::Ready }),
        }
    }

    fn connect(self: Arc<Self>, proto: String) -> Arc<dyn Connection> {
        if proto == "panic" {
            panic!("no connection");
        }
        Arc::new(TroubleConnection { words: Mutex::new(Vec::new()) })
    }
}

struct TroubleConnection {
    words: Mutex<Vec<String>>,
}

impl Connection for TroubleConnection {
    fn send(self: Arc<Self>, request: Vec<u8>) -> BoxFuture<Result<(), Error>> {
        let word = String::from_utf8_lossy(&request).into_owned();
        if word == "panic-in-send" {
            panic!("no send");
        }
        self.words.lock().unwrap().insert(0, word);
        Box::pin(async { Ok(()) })
    }

    fn receive(self: Arc<Self>) -> BoxFuture<Result<Vec<u8>, Error>> {
        let word = self.words.lock().unwrap().pop().unwrap_or_default();
        match word.as_str() {
            "panic" => panic!("no receive"),
            "panic-later" => Box::pin(async { panic!("{} later", "no receive") }),
            "yield" => Box::pin(async {
                Yield(1000).await;
                Ok(b"yielded".to_vec())
            }),
            "wake-later" => Box::pin(WakeLater),
            "forever" => Box::pin(async {
                Forever::new().await;
                Ok(Vec::new())
            }),
            "from-a-thread" => Box::pin(FromThread { result: Arc::new(Mutex::new(None)), is_started: false }),
            "nothing" => Box::pin(async { Ok(Vec::new()) }),
            other => {
                let reply = other.as_bytes().to_vec();
                Box::pin(async { Ok(reply) })
            }
        }
    }
}

/// Wakes itself inside `poll`.
struct Yield(usize);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Is ready at once, and is woken afterwards.
struct WakeLater;

impl Future for WakeLater {
    type Output = Result<Vec<u8>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        std::thread::spawn(move || {
            for _ in 0..100 {
                waker.wake_by_ref();
                std::thread::yield_now();
            }
        });
        Poll::Ready(Ok(b"woken".to_vec()))
    }
}

struct Forever;

impl Forever {
    fn new() -> Forever {
        WAITING.fetch_add(1, Ordering::SeqCst);
        Forever
    }
}

impl Future for Forever {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for Forever {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Is completed by a thread of its own. The waker of the last poll is woken.
struct FromThread {
    result: Arc<Mutex<Option<Option<Waker>>>>,
    is_started: bool,
}

impl Future for FromThread {
    type Output = Result<Vec<u8>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.result.clone();
        let mut result = shared.lock().unwrap();
        if self.is_started && matches!(*result, Some(None)) {
            return Poll::Ready(Ok(b"from a thread".to_vec()));
        }
        *result = Some(Some(context.waker().clone()));
        if !self.is_started {
            self.is_started = true;
            let shared = self.result.clone();
            std::thread::spawn(move || {
                let waker = shared.lock().unwrap().replace(None);
                if let Some(Some(waker)) = waker {
                    waker.wake();
                }
            });
        }
        Poll::Pending
    }
}
