//! The frames of stream transports; see `Sources/TransportCodec/Frame.swift` for the format.

use pawl_transports::Error;
use std::io::{self, Read};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

/// `MSG_NOSIGNAL` and `MSG_DONTWAIT` of Linux.
const NO_SIGNAL: i32 = 0x4000;
const DO_NOT_WAIT: i32 = 0x40;

extern "C" {
    fn send(descriptor: i32, data: *const u8, count: usize, flags: i32) -> isize;
}

pub const VERSION: u8 = 1;
/// Largest message, 16 MiB, as on the Swift side.
pub const MESSAGE_LIMIT: usize = 16 << 20;
/// Largest first frame of a client: kind, id, version and a protocol of 128 bytes.
pub const HELLO_LIMIT: usize = 9 + 1 + 128;
/// Kind, id and the code of a failure.
const HEAD: usize = 9 + 4;

/// Bytes that are read at once, some dozen small frames.
pub const READ_SIZE: usize = 1 << 16;

pub enum Frame {
    Hello { version: u8, proto: Vec<u8> },
    Welcome { version: u8 },
    Unavailable(Vec<u8>),
    Request(u64, Vec<u8>),
    Reply(u64, Vec<u8>),
    Failure(u64, Error),
    Cancel(u64),
    Drain,
}

impl Frame {
    /// Appends the frame as it is sent.
    pub fn append_to(&self, output: &mut Vec<u8>) {
        let start = output.len();
        let mut head = |kind: u8, id: u64| {
            output.extend_from_slice(&[0; 4]);
            output.push(kind);
            output.extend_from_slice(&id.to_be_bytes());
        };
        match self {
            Frame::Hello { version, proto } => {
                head(1, 0);
                output.push(*version);
                output.extend_from_slice(proto);
            }
            Frame::Welcome { version } => {
                head(2, 0);
                output.push(*version);
            }
            Frame::Unavailable(reason) => {
                head(3, 0);
                output.extend_from_slice(reason);
            }
            Frame::Request(id, payload) => {
                head(4, *id);
                output.extend_from_slice(payload);
            }
            Frame::Reply(id, payload) => {
                head(5, *id);
                output.extend_from_slice(payload);
            }
            Frame::Failure(id, error) => {
                head(6, *id);
                output.extend_from_slice(&error.code.to_be_bytes());
                output.extend_from_slice(error.reason.as_bytes());
            }
            Frame::Cancel(id) => head(7, *id),
            Frame::Drain => head(8, 0),
        }
        let length = (output.len() - start - 4) as u32;
        output[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Reads one frame. `limit` bounds the length before anything is allocated.
    pub fn read(from: &mut impl Read, limit: usize) -> io::Result<Frame> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length < 9 || length > limit {
            return Err(invalid());
        }
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let mut id = [0; 8];
        id.copy_from_slice(&head[1..]);
        let id = u64::from_be_bytes(id);
        let mut body = vec![0; length - 9];
        from.read_exact(&mut body)?;
        let has_id = matches!(head[0], 4..=7);
        if has_id != (id != 0) {
            return Err(invalid());
        }
        match head[0] {
            1 | 2 if body.is_empty() => Err(invalid()),
            1 => Ok(Frame::Hello { version: body[0], proto: body.split_off(1) }),
            2 => Ok(Frame::Welcome { version: body[0] }),
            3 => Ok(Frame::Unavailable(body)),
            4 => Ok(Frame::Request(id, body)),
            5 => Ok(Frame::Reply(id, body)),
            6 if body.len() < 4 => Err(invalid()),
            6 => {
                let code = i32::from_be_bytes([body[0], body[1], body[2], body[3]]);
                Ok(Frame::Failure(id, Error::new(code, String::from_utf8_lossy(&body[4..]).into_owned())))
            }
            7 => Ok(Frame::Cancel(id)),
            8 => Ok(Frame::Drain),
            _ => Err(invalid()),
        }
    }
}

/// The bound of a frame's length that carries a message of at most `message` bytes.
pub const fn length_limit(message: usize) -> usize {
    HEAD + message
}

/// Writes all bytes.
pub fn write_all(to: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        written += write(to, &bytes[written..], 0)?;
    }
    Ok(())
}

/// Writes what the peer takes without waiting, and returns how much that is.
pub fn write_some(to: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    match write(to, bytes, DO_NOT_WAIT) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// A peer that has closed the connection is an error and no signal: the standard library's `write` raises SIGPIPE in a
/// process whose `main` is not Rust's, and that would end it.
fn write(to: &UnixStream, bytes: &[u8], flags: i32) -> io::Result<usize> {
    loop {
        let count = unsafe { send(to.as_raw_fd(), bytes.as_ptr(), bytes.len(), flags | NO_SIGNAL) };
        if count > 0 {
            return Ok(count as usize);
        }
        let error = if count == 0 { io::ErrorKind::WriteZero.into() } else { io::Error::last_os_error() };
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no frame")
}
