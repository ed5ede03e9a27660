//! The interface between a worker and its reactor: operations go in, events come out.
//!
//! ```text
//! submit(token, Op) ──►  Reactor  ──► next() = Event
//!
//! Accept, Recv, Watch   stay armed: many events, until Pause or Close
//! Connect, Send         end once:   one event, Connected | Sent | Failed
//! Shutdown              no event unless it fails
//! Close, Abort          end everything of the token: one event, Closed
//! ```
//!
//! **Ownership.** An operation owns its buffers and its descriptor until its completion returns them ([`Event::Sent`],
//! [`Event::Closed`]). A token's slot is reused, with a new generation, only after `Closed` was delivered. An event of an older
//! generation is never delivered.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::files::OpenFile;
use crate::op_error::OpError;

/// Identifies one source of a reactor: its slot, and one use of that slot.
///
/// `index` is dense and small, so a worker finds the state of a source at `table[index]` and never searches for it.
/// `generation` detects a late event of a previous use of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// Index into every table that runs parallel to the reactor's sources.
    pub index: u32,
    /// The use of the slot: incremented each time a source leaves the slot.
    pub generation: u32,
}

impl Token {
    /// Refers to no source. [`Op::Offload`] is submitted with this token.
    pub const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// Packs both halves into one word, as the kernel carries them (`epoll_event.data`, `user_data`).
    pub const fn word(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`Token::word`].
    pub const fn from_word(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// An operation that a worker submits to its reactor. New kinds of sources (datagrams, connections adopted from another
/// process) add variants here, never a second interface.
pub enum Op {
    /// Listener: accept connections until paused or closed. Each one is an [`Event::Accepted`].
    Accept,
    /// Stream: receive until paused or closed. Yields [`Event::Received`], and [`Event::PeerClosed`] at the end.
    Recv,
    /// Watched descriptor: an [`Event::Watched`] whenever the descriptor is readable.
    Watch,
    /// Disarm `Accept`, `Recv` or `Watch`. Data and connections that arrive meanwhile are kept, and reported once the operation
    /// is armed again. A paused stream reports only its end ([`Event::PeerClosed`] with `behind_data`) and a reset.
    Pause,
    /// Listener, before it is closed: ignore new connection attempts, complete and accept those in progress. No effect where
    /// the system does not support this.
    Retire,
    /// Stream: limit the bytes waiting in the kernel, and the time to wait for an acknowledgement. Listener: limit them for the
    /// streams that it accepts from now on. No event. No effect where the system does not support this.
    Tune(Tuning),
    /// Stream: lend at most this many bytes at a time from now on, instead of [`LEASE_BYTES_MAX`](crate::LEASE_BYTES_MAX). For owners
    /// that must keep the bytes for a slow receiver.
    Lend(LendLimit),
    /// Stream created by [`crate::socket::unconnected`]: connect to the address.
    Connect(SocketAddr),
    /// Stream: send the segments in order. At most one send is in flight per token.
    Send(Send),
    /// Stream: end the sending direction. The peer sees the end of stream after all data, including a send in flight.
    Shutdown,
    /// Cancel a `Send` or `Connect` in flight. It ends as [`Event::Failed`] with [`OpError::Canceled`], unless it has already
    /// completed, which its own event reports. After a cancelled connect the stream can only be closed.
    Cancel,
    /// Close gracefully: the kernel still delivers the data it has accepted. But if the peer's bytes are unread, or more
    /// arrive, systems reset the connection, and the reset may destroy data that the peer has not read (RFC 2525 §2.17). To be
    /// sure that the peer receives the last bytes, shut down, read to end of stream, then close.
    Close,
    /// Stream created by [`crate::socket::unconnected`]: close as `Close` does, but keep the socket for
    /// [`crate::Reactor::spare`] if the back end supports this. A socket is kept only if `PeerClosed` was reported and the peer
    /// learns of this side's end at once, as over loopback. Reusing a socket costs less than creating one. The peer sees no
    /// difference.
    Recycle,
    /// Close with a reset: discards all data queued in the kernel and frees its memory at once.
    Abort,
    /// Run a blocking job on the thread pool. Its result is an [`Event::Offloaded`] with the job's key.
    Offload(Job),
}

/// The most bytes that one [`Event::Received`] of a stream lends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LendLimit {
    /// [`NARROW_LEASE_BYTES`](crate::NARROW_LEASE_BYTES).
    Narrow,
    /// [`LEASE_BYTES_MAX`](crate::LEASE_BYTES_MAX), or the size of a buffer of io_uring.
    Wide,
}

/// The operation that closes a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CloseOp {
    Close,
    Recycle,
    Abort,
}

/// Limits on the data that the kernel holds for one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Maximum bytes queued but not yet sent, above which the kernel accepts no more. Late data then waits where its owner sees
    /// it (TCP_NOTSENT_LOWAT, tcp(7)).
    pub unsent_bytes: u32,
    /// Time in ms after which a stream with unacknowledged bytes is dead (TCP_USER_TIMEOUT, tcp(7)).
    pub dead_after_ms: u32,
}

/// The operation that an [`Event::Failed`] refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// [`Op::Accept`].
    Accept,
    /// [`Op::Recv`].
    Recv,
    /// [`Op::Watch`].
    Watch,
    /// [`Op::Connect`].
    Connect,
    /// [`Op::Send`].
    Send,
    /// [`Op::Shutdown`].
    Shutdown,
}

/// Bytes and file ranges to send in order.
pub struct Send {
    /// The data to send; may not be empty. The completion returns the segments so that their buffers can be reused.
    pub segments: Vec<Segment>,
    /// More data follows at once: the kernel may hold back a partly filled packet (MSG_MORE, tcp(7)).
    pub more: bool,
}

/// A run of bytes to send, from memory or directly from a file.
pub enum Segment {
    /// A buffer of the worker's pool, sent whole.
    Bytes(Vec<u8>),
    /// Bytes shared by several connections, sent from the given index to the end.
    Shared(Arc<[u8]>, usize),
    /// A range of a file, copied within the kernel where possible (sendfile(2)).
    File {
        /// The open file; kept open until the operation ends.
        file: Arc<OpenFile>,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes. If the file ends earlier, the operation fails with [`OpError::FileShrunk`].
        len: u64,
    },
}

impl Segment {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Shared(bytes, start) => (bytes.len() - start) as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// The bytes of an in-memory segment; `None` for a file range.
    pub fn memory(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(bytes, start) => Some(&bytes[*start..]),
            Self::File { .. } => None,
        }
    }

    /// Whether the segment has no bytes to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rest of the segment after its first `bytes` bytes; `None` if nothing remains.
    ///
    /// ```
    /// use encke_io::Segment;
    ///
    /// let rest = Segment::Bytes(b"hello".to_vec()).after(2).expect("three bytes remain");
    /// assert_eq!(rest.memory(), Some(&b"llo"[..]));
    /// assert!(rest.after(3).is_none());
    /// ```
    pub fn after(self, bytes: u64) -> Option<Self> {
        let left = self.len().checked_sub(bytes).filter(|left| *left > 0)?;
        Some(match self {
            Self::Bytes(held) => Self::Shared(held.into(), bytes as usize),
            Self::Shared(held, start) => Self::Shared(held, start + bytes as usize),
            Self::File { file, offset, .. } => Self::File { file, offset: offset + bytes, len: left },
        })
    }
}

/// The threads of the pool on which a job runs. The jobs of a lane never delay another lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobLane {
    /// For disks and computation on this machine: files, listings, compression, commits.
    Local,
    /// For hashes of passwords, which strangers can request.
    Hash,
    /// For responses of another program, which may take seconds or never arrive.
    Remote,
}

/// Work that may block, and the key that identifies its result.
pub struct Job {
    /// Returned with the result.
    pub key: u64,
    /// The lane that runs the job.
    pub lane: JobLane,
    /// The work itself, called on a thread of the pool. The simulator calls it at once.
    pub run: Box<dyn FnOnce() -> Done + std::marker::Send>,
}

/// The result of a job.
pub type Done = Box<dyn Any + std::marker::Send>;

/// The peer of an accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Connected by TCP.
    Inet(SocketAddr),
    /// Connected through a Unix domain socket: on the same machine, without an address.
    Local,
}

/// A completion or notification from the reactor. Borrows the reactor: a lease ends at the following [`crate::Reactor::next`].
pub enum Event<'a> {
    /// A connection was accepted from a listener's queue. No operation is armed on `token` yet.
    Accepted {
        /// The listener.
        listener: Token,
        /// The connection.
        token: Token,
        /// The address of the other end.
        peer: Peer,
    },
    /// An [`Op::Connect`] succeeded.
    Connected {
        /// The connection.
        token: Token,
    },
    /// Bytes arrived. The receiver may change them in place, and must copy bytes that outlive the event.
    Received {
        /// The connection.
        token: Token,
        /// The received bytes, at least one.
        lease: &'a mut [u8],
    },
    /// The peer has ended its sending direction. With `behind_data`, the end was seen while receiving was paused, so unread
    /// bytes may precede it. A second event without `behind_data` follows once they are read.
    PeerClosed {
        /// The connection.
        token: Token,
        /// Whether unread bytes may precede the end.
        behind_data: bool,
    },
    /// The kernel accepted all bytes of an [`Op::Send`].
    Sent {
        /// The connection.
        token: Token,
        /// Bytes sent.
        bytes: u64,
        /// The segments that the operation owned.
        segments: Vec<Segment>,
    },
    /// A watched descriptor is or was readable. The owner reads until nothing is left, and must accept that there is nothing to
    /// read.
    Watched {
        /// The source.
        token: Token,
    },
    /// A job ended. `done` is `None` if the job panicked, or was rejected because the pool's queue is full.
    Offloaded {
        /// The job's key.
        key: u64,
        /// The job's result.
        done: Option<Done>,
    },
    /// [`crate::Waker::wake`] was called, or jobs completed.
    Woken,
    /// All operations of the token have ended and its slot is free.
    Closed {
        /// The former connection, listener or watched descriptor.
        token: Token,
        /// The segments of an unfinished send.
        segments: Vec<Segment>,
    },
    /// An operation failed; an armed one is disarmed. A reset is reported as a failed `Recv` even while receiving is paused,
    /// and nothing more is received afterwards.
    Failed {
        /// The source.
        token: Token,
        /// The operation that failed.
        op: OpKind,
        /// The reason of the failure.
        fault: OpError,
        /// For a send: bytes that the kernel accepted before the failure.
        sent: u64,
        /// The segments of a send.
        segments: Vec<Segment>,
    },
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { token, .. } => write!(f, "Accepted({})", token.index),
            Self::Connected { token } => write!(f, "Connected({})", token.index),
            Self::Received { token, lease } => write!(f, "Received({}, {} bytes)", token.index, lease.len()),
            Self::PeerClosed { token, behind_data } => {
                write!(f, "PeerClosed({}, behind_data: {behind_data})", token.index)
            }
            Self::Sent { token, bytes, .. } => write!(f, "Sent({}, {bytes} bytes)", token.index),
            Self::Watched { token } => write!(f, "Watched({})", token.index),
            Self::Offloaded { key, done } => write!(f, "Offloaded({key}, {})", done.is_some()),
            Self::Woken => write!(f, "Woken"),
            Self::Closed { token, .. } => write!(f, "Closed({})", token.index),
            Self::Failed { token, op, fault, sent, .. } => {
                write!(f, "Failed({}, {op:?} after {sent} bytes: {fault})", token.index)
            }
        }
    }
}
