//! The frames of stream transports; see `Sources/TransportCodec/Frame.swift` for the format.

use pawl_transports::Error;
use std::io::{self, Read};
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

/// `MSG_NOSIGNAL` of Linux.
const NO_SIGNAL: i32 = 0x4000;

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
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let (kind, id): (u8, u64) = match self {
            Frame::Hello { version, proto } => {
                body.push(*version);
                body.extend_from_slice(proto);
                (1, 0)
            }
            Frame::Welcome { version } => {
                body.push(*version);
                (2, 0)
            }
            Frame::Unavailable(reason) => {
                body.extend_from_slice(reason);
                (3, 0)
            }
            Frame::Request(id, payload) => {
                body.extend_from_slice(payload);
                (4, *id)
            }
            Frame::Reply(id, payload) => {
                body.extend_from_slice(payload);
                (5, *id)
            }
            Frame::Failure(id, error) => {
                body.extend_from_slice(&error.code.to_be_bytes());
                body.extend_from_slice(error.reason.as_bytes());
                (6, *id)
            }
            Frame::Cancel(id) => (7, *id),
            Frame::Drain => (8, 0),
        };
        let mut frame = Vec::with_capacity(13 + body.len());
        frame.extend_from_slice(&((9 + body.len()) as u32).to_be_bytes());
        frame.push(kind);
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(&body);
        frame
    }

    /// Writes the frame. A peer that has closed the connection is an error and no signal: the standard library's `write`
    /// raises SIGPIPE in a process whose `main` is not Rust's, and that would end it.
    pub fn write(&self, to: &UnixStream) -> io::Result<()> {
        let bytes = self.bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match unsafe { send(to.as_raw_fd(), rest.as_ptr(), rest.len(), NO_SIGNAL) } {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count if count > 0 => rest = &rest[count as usize..],
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
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

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no frame")
}
