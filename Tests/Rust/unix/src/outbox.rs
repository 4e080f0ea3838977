//! Frames on their way to a socket.
//!
//! One thread at a time writes. What other threads append meanwhile, and what they append before a thread of the interface
//! has the time to write, leaves with one write.

use crate::frame::{self, Frame};
use pawl_transports::later;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;

/// Bytes that wait to be written. With more, a sender writes or waits itself.
const HIGH_WATER: usize = 1 << 20;
/// Bytes of an empty buffer that is kept.
const SPARE: usize = 1 << 16;

struct State {
    frames: Vec<u8>,
    /// The buffer of the write before.
    spare: Vec<u8>,
    is_writing: bool,
    /// A thread of the interface will write.
    is_scheduled: bool,
    is_closing: bool,
    is_broken: bool,
}

pub struct Outbox {
    stream: UnixStream,
    state: Mutex<State>,
    written: Condvar,
}

impl Outbox {
    pub fn new(stream: UnixStream) -> Arc<Outbox> {
        let state = State {
            frames: Vec::new(),
            spare: Vec::new(),
            is_writing: false,
            is_scheduled: false,
            is_closing: false,
            is_broken: false,
        };
        Arc::new(Outbox { stream, state: Mutex::new(state), written: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Appends a frame. This thread writes it if no other frame can be expected soon; an error of a later write ends the
    /// connection, which its reader finds.
    pub fn append(self: &Arc<Self>, frame: &Frame, is_alone: bool) -> io::Result<()> {
        let mut state = self.lock();
        while state.is_writing && state.frames.len() >= HIGH_WATER {
            state = self.written.wait(state).unwrap_or_else(|error| error.into_inner());
        }
        if state.is_broken || state.is_closing {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        frame.append_to(&mut state.frames);
        if state.is_writing {
            return Ok(());
        }
        if is_alone || state.frames.len() >= HIGH_WATER {
            return self.write(state);
        }
        self.schedule(&mut state);
        Ok(())
    }

    /// Ends the connection when everything before is written.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closing = true;
        if !state.is_writing && state.frames.is_empty() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    fn schedule(self: &Arc<Self>, state: &mut State) {
        if std::mem::replace(&mut state.is_scheduled, true) {
            return;
        }
        let outbox = self.clone();
        later(move || {
            let mut state = outbox.lock();
            state.is_scheduled = false;
            if !state.is_writing && !state.frames.is_empty() {
                outbox.write_without_waiting(state);
            }
        });
    }

    fn take(&self, mut state: MutexGuard<'_, State>) -> Vec<u8> {
        let spare = std::mem::take(&mut state.spare);
        state.is_writing = true;
        std::mem::replace(&mut state.frames, spare)
    }

    /// Writes what is there.
    fn write(self: &Arc<Self>, state: MutexGuard<'_, State>) -> io::Result<()> {
        let frames = self.take(state);
        let result = frame::write_all(&self.stream, &frames);
        self.finish(frames, result.is_ok());
        result
    }

    /// Writes what the peer takes now. The rest is written by a thread of its own: other connections need those of the
    /// interface. A failure is found by the reader.
    fn write_without_waiting(self: &Arc<Self>, state: MutexGuard<'_, State>) {
        let frames = self.take(state);
        match frame::write_some(&self.stream, &frames) {
            Ok(count) if count < frames.len() => {
                let outbox = self.clone();
                let waiting = Builder::new().spawn(move || {
                    let is_written = frame::write_all(&outbox.stream, &frames[count..]).is_ok();
                    outbox.finish(frames, is_written);
                });
                if waiting.is_err() {
                    self.finish(Vec::new(), false);
                }
            }
            result => self.finish(frames, result.is_ok()),
        }
    }

    /// What has come meanwhile is left to a thread of the interface: no thread writes for others without end.
    fn finish(self: &Arc<Self>, mut frames: Vec<u8>, is_written: bool) {
        frames.clear();
        frames.shrink_to(SPARE);
        let mut state = self.lock();
        state.spare = frames;
        state.is_writing = false;
        if !is_written {
            // A frame that was written in part ends the connection.
            state.is_broken = true;
            state.frames = Vec::new();
        }
        if !state.frames.is_empty() {
            self.schedule(&mut state);
        } else if state.is_broken || state.is_closing {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.written.notify_all();
    }
}
