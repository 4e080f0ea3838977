//! Futures as operations of the interface.
//!
//! A future is polled only on the threads of this module. A wake puts it into a queue and returns, so a future that wakes
//! itself inside `poll` is polled again and deadlocks nothing. A wake after the end does nothing. `done` is called
//! exactly once, on one of these threads; the future is dropped before.

use crate::abi::{self, Buffer, Completion, Operation, Outcome};
use crate::error::Error;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::task::{Context, Poll, Wake, Waker};

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Threads that poll. Two, so that one future that blocks shortly does not stop the others.
const THREADS: usize = 2;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Woken while it was polled: poll again.
const NOTIFIED: u8 = 3;
const DONE: u8 = 4;

struct Task {
    future: Mutex<Option<BoxFuture<Result<Vec<u8>, Error>>>>,
    state: AtomicU8,
    is_cancelled: AtomicBool,
    completion: Completion,
}

enum Job {
    Poll(Arc<Task>),
    Call(Box<dyn FnOnce() + Send>),
}

struct Jobs {
    /// None until the first job: 1.63 has no constant constructor for it.
    waiting: Option<VecDeque<Job>>,
    /// Threads that wait for a job. Only then one is woken, which is a system call.
    idle: usize,
}

struct Queue {
    jobs: Mutex<Jobs>,
    ready: Condvar,
}

static START: Once = Once::new();
static QUEUE: Queue = Queue { jobs: Mutex::new(Jobs { waiting: None, idle: 0 }), ready: Condvar::new() };

/// Calls a function on a thread of this module, after all that waits for these threads now.
pub fn later(call: impl FnOnce() + Send + 'static) {
    enqueue(Job::Call(Box::new(call)));
}

fn enqueue(job: Job) {
    START.call_once(|| {
        for _ in 0..THREADS {
            std::thread::spawn(work);
        }
    });
    let mut jobs = QUEUE.jobs.lock().unwrap_or_else(|error| error.into_inner());
    jobs.waiting.get_or_insert_with(VecDeque::new).push_back(job);
    let is_awaited = jobs.idle > 0;
    drop(jobs);
    if is_awaited {
        QUEUE.ready.notify_one();
    }
}

fn work() {
    loop {
        let mut jobs = QUEUE.jobs.lock().unwrap_or_else(|error| error.into_inner());
        let job = loop {
            if let Some(job) = jobs.waiting.as_mut().and_then(VecDeque::pop_front) {
                break job;
            }
            jobs.idle += 1;
            jobs = QUEUE.ready.wait(jobs).unwrap_or_else(|error| error.into_inner());
            jobs.idle -= 1;
        };
        drop(jobs);
        match job {
            Job::Poll(task) => task.run(),
            Job::Call(call) => {
                let _ = catch_unwind(AssertUnwindSafe(call));
            }
        }
    }
}

impl Task {
    fn schedule(self: &Arc<Self>) {
        loop {
            let (from, to) = match self.state.load(Ordering::SeqCst) {
                IDLE => (IDLE, QUEUED),
                RUNNING => (RUNNING, NOTIFIED),
                _ => return,
            };
            if self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                if from == IDLE {
                    enqueue(Job::Poll(self.clone()));
                }
                return;
            }
        }
    }

    fn run(self: Arc<Self>) {
        self.state.store(RUNNING, Ordering::SeqCst);
        let mut slot = self.future.lock().unwrap_or_else(|error| error.into_inner());
        let mut result = None;
        if self.is_cancelled.load(Ordering::SeqCst) {
            result = Some(Err(Error::cancelled()));
        } else if let Some(future) = slot.as_mut() {
            let waker = Waker::from(self.clone());
            let mut context = Context::from_waker(&waker);
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context))) {
                Ok(Poll::Ready(value)) => result = Some(value),
                Ok(Poll::Pending) => {}
                Err(payload) => result = Some(Err(Error::panic(payload))),
            }
        }
        if let Some(result) = result {
            self.state.store(DONE, Ordering::SeqCst);
            let future = slot.take();
            drop(slot);
            let _ = catch_unwind(AssertUnwindSafe(move || drop(future)));
            finish(self.completion, result);
            return;
        }
        drop(slot);
        if self.state.compare_exchange(RUNNING, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.state.store(QUEUED, Ordering::SeqCst);
            enqueue(Job::Poll(self));
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.schedule();
    }
}

/// Reports the end of an operation.
pub(crate) fn finish(completion: Completion, result: Result<Vec<u8>, Error>) {
    let mut outcome = std::mem::ManuallyDrop::new(match result {
        Ok(payload) => Outcome { code: abi::OK, payload: Buffer::new(payload), reason: Buffer::empty() },
        Err(error) => Outcome {
            code: error.code,
            payload: Buffer::empty(),
            reason: Buffer::new(error.reason.into_bytes()),
        },
    });
    unsafe { (completion.done)(completion.context, &mut *outcome) }
}

unsafe extern "C" fn cancel(object: *mut c_void) {
    let task = abi::borrow::<Task>(object);
    task.is_cancelled.store(true, Ordering::SeqCst);
    task.schedule();
}

unsafe extern "C" fn release(object: *mut c_void) {
    drop(Arc::from_raw(object as *const Task));
}

/// Starts a future. `make` runs now, and a panic in it is reported as the operation's end.
pub(crate) fn start(
    completion: Completion,
    make: impl FnOnce() -> BoxFuture<Result<Vec<u8>, Error>>,
) -> Operation {
    let future = match catch_unwind(AssertUnwindSafe(make)) {
        Ok(future) => future,
        Err(payload) => {
            let error = Error::panic(payload);
            Box::pin(async move { Err(error) })
        }
    };
    let task = Arc::new(Task {
        future: Mutex::new(Some(future)),
        state: AtomicU8::new(QUEUED),
        is_cancelled: AtomicBool::new(false),
        completion,
    });
    let object = abi::into_object(task.clone());
    enqueue(Job::Poll(task));
    Operation { object, cancel: Some(cancel), release: Some(release) }
}
