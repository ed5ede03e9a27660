//! The vocabulary between a worker and its reactor: operations go in, events come out.
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
//! **Ownership.** An operation owns its buffers and its descriptor until its completion hands them back
//! ([`Event::Sent`], [`Event::Closed`]). A token's slot is used again, with a new generation, only after
//! `Closed` was delivered; an event of an older generation is never delivered.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::fault::Fault;
use crate::files::OpenFile;

/// Names one source of a reactor: its slot and which use of that slot is meant.
///
/// `index` is dense and small, so that what belongs to a source lies at `table[index]`: the way from an event
/// to its connection is never a search. `generation` tells a late event of a former user of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// Place in every table that runs parallel to the reactor's sources.
    pub index: u32,
    /// Which use of the place: grows by one each time a source leaves it.
    pub generation: u32,
}

impl Token {
    /// Names no source: the token to submit an [`Op::Offload`] with.
    pub const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// Both halves in one word, as the kernel carries it (`epoll_event.data`, `user_data`).
    pub const fn word(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`Token::word`].
    pub const fn from_word(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// What a worker asks of its reactor. New kinds (datagrams, adopting a connection of another process) add
/// variants, never a second way in.
pub enum Op {
    /// Listener: accept until told otherwise; an [`Event::Accepted`] each.
    Accept,
    /// Stream: receive until told otherwise; [`Event::Received`] or [`Event::PeerClosed`] each.
    Recv,
    /// Watched descriptor: an [`Event::Watched`] whenever it is readable.
    Watch,
    /// Disarm `Accept`, `Recv` or `Watch`. What comes in is kept, and told once it is armed again; of a stream
    /// only its end ([`Event::PeerClosed`] with `behind_data`) or a reset is told meanwhile.
    Pause,
    /// Listener, before it is closed: new attempts to connect find silence, those under way complete and are
    /// accepted. Where the system cannot do this nothing happens.
    Retire,
    /// Stream: how much may wait in the kernel, and how long for an acknowledgement. No event; where the system
    /// cannot do it nothing happens.
    Tune(Tuning),
    /// Stream made by [`crate::socket::unconnected`]: connect it.
    Connect(SocketAddr),
    /// Stream: send the segments in order. At most one is in flight per token.
    Send(Send),
    /// Stream: no more will be sent; the peer sees the end after what was sent, a send in flight included.
    Shutdown,
    /// Give up a `Send` or `Connect` in flight: it ends as [`Event::Failed`] with [`Fault::Canceled`], unless it
    /// has ended by itself, which its own event tells. After a connect that was given up, only close.
    Cancel,
    /// Close in order: what the kernel has taken is still delivered to the peer. But if bytes of the peer lie
    /// unread, or come later, systems reset the connection, and the reset may destroy what the peer has not read
    /// (RFC 2525 §2.17): who wants its last words heard shuts down, reads to the end, and then closes.
    Close,
    /// Stream made by [`crate::socket::unconnected`]: close it as `Close` does. But if its peer's end was told, and this
    /// side's is known to the peer at once, as over loopback, its socket is kept for [`crate::Reactor::spare`], where the
    /// back end can do that: a new one costs more than to use it again. The peer sees no difference.
    Recycle,
    /// Close with a reset: nothing queued in the kernel is delivered, its memory is free at once.
    Abort,
    /// Run a blocking job on the pool; an [`Event::Offloaded`] with its key.
    Offload(Job),
}

/// How a source is closed: by the operation of that name.
#[cfg(unix)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    Close,
    Recycle,
    Abort,
}

/// Bounds of what the kernel holds for one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// A stream with so many bytes not yet sent takes no more, so that what is late waits where its owner sees it
    /// (TCP_NOTSENT_LOWAT, tcp(7)).
    pub unsent_bytes: u32,
    /// A stream whose bytes are not acknowledged for so long is dead, in ms (TCP_USER_TIMEOUT, tcp(7)).
    pub dead_after_ms: u32,
}

/// Which operation an [`Event::Failed`] speaks of.
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

/// Bytes and pieces of files to be sent in order.
pub struct Send {
    /// What to send; may not be empty. Returned with the completion, so that its buffers are used again.
    pub segments: Vec<Segment>,
    /// More will follow at once: the kernel may hold back a partly filled packet (MSG_MORE, tcp(7)).
    pub more: bool,
}

/// A run of bytes to send, from memory or straight from a file.
pub enum Segment {
    /// A buffer of the worker's pool, sent whole.
    Bytes(Vec<u8>),
    /// Bytes that several connections send, from `start` to the end.
    Shared(Arc<[u8]>, usize),
    /// A range of a file, copied by the kernel where it can be (sendfile(2)).
    File {
        /// The open file; kept open until the operation ends.
        file: Arc<OpenFile>,
        /// First byte.
        offset: u64,
        /// Number of bytes; the file ending earlier fails the operation with [`Fault::FileShrunk`].
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

    /// Its bytes, unless they lie in a file.
    pub fn memory(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(bytes, start) => Some(&bytes[*start..]),
            Self::File { .. } => None,
        }
    }

    /// Whether it holds nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is left of it behind its first `bytes`, if anything is.
    pub fn after(self, bytes: u64) -> Option<Self> {
        let left = self.len().checked_sub(bytes).filter(|left| *left > 0)?;
        Some(match self {
            Self::Bytes(held) => Self::Shared(held.into(), bytes as usize),
            Self::Shared(held, start) => Self::Shared(held, start + bytes as usize),
            Self::File { file, offset, .. } => Self::File { file, offset: offset + bytes, len: left },
        })
    }
}

/// The threads of the pool on which a job runs. The jobs of a lane never delay the other lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobLane {
    /// For disks and computation on this machine: files, listings, compression, commits.
    Local,
    /// For responses of another program, which may take seconds or never arrive.
    Remote,
}

/// Work that may block, and the key by which its result is known.
pub struct Job {
    /// Comes back with the result.
    pub key: u64,
    /// Where it runs.
    pub lane: JobLane,
    /// Runs on a thread of the pool (in the simulator: at once).
    pub run: Box<dyn FnOnce() -> Done + std::marker::Send>,
}

/// What a job returned.
pub type Done = Box<dyn Any + std::marker::Send>;

/// Who connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// By TCP.
    Inet(SocketAddr),
    /// Through a Unix domain socket: same machine, no address.
    Local,
}

/// What happened. It borrows the reactor: a lease ends at the following [`crate::Reactor::next`].
pub enum Event<'a> {
    /// A connection was taken off a listener's queue; `token` is its new name. Nothing is armed on it yet.
    Accepted {
        /// The listener.
        listener: Token,
        /// The connection.
        token: Token,
        /// The other end.
        peer: Peer,
    },
    /// A [`Op::Connect`] succeeded.
    Connected {
        /// The connection.
        token: Token,
    },
    /// Bytes arrived. They may be changed in place; what must outlive the event is copied out.
    Received {
        /// The connection.
        token: Token,
        /// At least one byte.
        lease: &'a mut [u8],
    },
    /// The peer sends no more. `behind_data` means that the end was seen while nothing was received, so that
    /// bytes may lie before it; it is then told again, without, once they are read.
    PeerClosed {
        /// The connection.
        token: Token,
        /// Unread bytes may lie before the end.
        behind_data: bool,
    },
    /// A [`Op::Send`] has handed everything to the kernel.
    Sent {
        /// The connection.
        token: Token,
        /// Bytes sent.
        bytes: u64,
        /// What the operation owned.
        segments: Vec<Segment>,
    },
    /// A watched descriptor is readable, or was: its owner reads until nothing is left, and takes nothing to
    /// read for an answer.
    Watched {
        /// The source.
        token: Token,
    },
    /// A job ended. `None`: it was refused, because the pool's queue is full, or it panicked.
    Offloaded {
        /// The job's key.
        key: u64,
        /// Its result.
        done: Option<Done>,
    },
    /// Somebody called [`crate::Waker::wake`], or jobs came back.
    Woken,
    /// Everything of the token has ended and its slot is free.
    Closed {
        /// The former connection.
        token: Token,
        /// What an unfinished send owned.
        segments: Vec<Segment>,
    },
    /// An operation ended without success; an armed one is disarmed. A reset is told as a failed `Recv` also
    /// while receiving is paused; nothing more is then received.
    Failed {
        /// The source.
        token: Token,
        /// Which operation.
        op: OpKind,
        /// Why.
        fault: Fault,
        /// What a send owned; bytes taken by the kernel before the failure.
        sent: u64,
        /// Its segments.
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
