//! The reactor: one worker's view of the operating system. Operations in, completions out.
//!
//! ```text
//!             submit(token, Op)                     submit(token, Op)
//!                   │                                      │
//!   ┌───────────────▼───────────────┐      ┌───────────────▼───────────────┐
//!   │ Readiness<P>                  │      │ Uring                         │      Sim: no system at all, a
//!   │  tries at once; what blocks   │      │  the kernel does it; next()   │      virtual clock, a link model,
//!   │  waits for the poller P:      │      │  lends its ring buffer        │      faults, a seed
//!   │  Poll · EpollLevel · EpollEdge│      └───────────────┬───────────────┘
//!   └───────────────┬───────────────┘                      │
//!                   ▼                                      ▼
//!         next() -> Option<Event<'_>>            next() -> Option<Event<'_>>
//! ```
//!
//! # What every back end promises
//! - A **turn** is `wait`, then `next` until it says `None` or the caller has had enough; what was not fetched
//!   comes first in the next turn, and `wait` does not wait then.
//! - Sources with work are served in turn: a busy connection never starves the others. Between two turns of a
//!   source another has one event; under `uring` up to 32, as many receives as the kernel does in a row.
//! - Events of one token come in the order in which they happened; nothing of a token follows its `Closed`.
//! - A lease is at most [`LEASE_BYTES_MAX`] long.
//! - [`Op::Recv`] on a stream whose peer has ended says `PeerClosed` once and disarms itself.
//! - Submitting to a token that has been closed is answered by nothing: its `Closed` says it all. Submitting
//!   an operation that the kind of source cannot do is a programming error and panics.
//!
//! # What differs
//! - `uring` tells of a `Send` at the earliest in the turn after, and of a `Close` when the kernel has let go of
//!   everything, mostly a turn later; the others tell of both within the turn.
//! - A process that is killed under `uring` leaves its ports taken for some 50 ms more: the kernel ends its ring
//!   after it. One that closes its listeners, or drops its reactor, leaves nothing.
//! - `poll` costs O(sources) a turn: that is its nature (report 002 of the lab), and it is plain POSIX.
//! - `sim` does not wait in `wait`: [`crate::sim::World::step`] brings the time.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Now;
use crate::fault::Fault;
use crate::op::{Event, Op, Token};
use crate::socket::{Listener, Stream, Watched};
use crate::wake::Waker;

/// No lease is longer. Of this size is the one buffer into which readiness back ends receive.
pub const LEASE_BYTES_MAX: usize = 64 * 1024;

/// Bytes a single send may hand to the kernel before the other connections have their turn.
pub const SEND_QUANTUM: u64 = 4 << 20;

/// Sockets that are kept for [`Reactor::spare`].
#[cfg(unix)]
pub(crate) const SPARES_MAX: usize = 64;

/// One worker's operating system; see the module's text for what all of them promise.
pub trait Reactor {
    /// Which one it is.
    fn backend(&self) -> Backend;

    /// Takes over a source. Nothing is armed on it yet.
    ///
    /// # Errors
    /// The back end has no room for it (epoll's limit of watches, memory).
    fn adopt(&mut self, source: Source) -> Result<Token, Fault>;

    /// Gives an operation. What can be done at once may be done within the call; its event still comes from
    /// [`Reactor::next`].
    fn submit(&mut self, token: Token, op: Op);

    /// Waits until something has happened, at most until the monotonic moment `until`, and reads the clock.
    ///
    /// # Errors
    /// The system refuses to wait: a fault of this program or of the machine; the worker cannot go on.
    fn wait(&mut self, until: Option<u64>) -> Result<Now, Fault>;

    /// From now on a `wait` that has nothing to tell when it begins lasts at least so long, in whole microseconds, and
    /// what comes meanwhile gathers, if the back end can have the kernel do that (io_uring's, since Linux 6.12). Whether
    /// it can, and there is a time; else waits are as before. Only `until` and hundreds of events end such a wait sooner:
    /// a waker does not.
    ///
    /// Who is told of much at once is woken less often, and on one machine it is the sender who pays for the waking.
    fn gather(&mut self, _time: Duration) -> bool {
        false
    }

    /// A socket that [`Op::Recycle`] has kept, as [`crate::socket::unconnected`] has made it.
    fn spare(&mut self) -> Option<Stream> {
        None
    }

    /// The next thing that happened since the last `wait`. It ends the lease of the one before.
    fn next(&mut self) -> Option<Event<'_>>;

    /// Reads the clock.
    fn now(&mut self) -> Now;

    /// A handle with which other threads end its wait.
    fn waker(&self) -> Waker;

    /// Bytes of the token's send in flight that the kernel has not taken; 0 if none is in flight.
    fn unsent(&self, token: Token) -> u64;

    /// Bytes of a stream that the kernel has taken and its peer has not acknowledged, as far as the system tells
    /// (SIOCOUTQ, tcp(7)); else 0. A send buffer may hold more than a slow client reads in minutes.
    fn unacknowledged(&self, _token: Token) -> u64 {
        0
    }

    /// Bytes that the kernel holds for what lies in a stream's buffers (SO_MEMINFO), as far as the system tells.
    fn buffered(&self, _token: Token) -> Option<u64> {
        None
    }

    /// Connections that the kernel has dropped because the listener's queue was full (SO_MEMINFO), as far as
    /// the system counts them.
    fn listen_drops(&self, listener: Token) -> Option<u32>;

    /// What it holds at this moment.
    fn occupancy(&self) -> Occupancy;
}

/// What can be given to a reactor.
pub enum Source {
    /// Accepts connections ([`Op::Accept`]).
    Listener(Listener),
    /// Sends and receives; for a client, see [`crate::socket::unconnected`].
    Stream(Stream),
    /// Is told when readable ([`Op::Watch`]).
    Watched(Watched),
}

/// What a reactor holds: after all connections are gone, each is back where it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Sources: connections, listeners, watched descriptors.
    pub sources: usize,
    /// Sends in flight.
    pub sends: usize,
    /// Jobs that have not come back.
    pub jobs: usize,
    /// Receive buffers that are with events or paused connections instead of with the kernel (io_uring).
    pub leases: usize,
}

/// The ways to wait for events, chosen when the program starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backend {
    /// poll(2): everywhere, and linear in the number of connections.
    Poll,
    /// epoll(7), level-triggered.
    EpollLevel,
    /// epoll(7), edge-triggered.
    EpollEdge,
    /// io_uring(7) with multishot accept and receive and a ring of provided buffers.
    Uring,
    /// The simulator; never chosen by name.
    Sim,
}

impl Backend {
    /// Those that can be asked for, best known first.
    pub const NAMED: [Self; 4] = [Self::Uring, Self::EpollEdge, Self::EpollLevel, Self::Poll];

    /// Its name on the command line, in settings, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::EpollLevel => "epoll-level",
            Self::EpollEdge => "epoll-edge",
            Self::Uring => "uring",
            Self::Sim => "sim",
        }
    }

    /// Whether this program was built with it.
    pub const fn compiled(self) -> bool {
        match self {
            Self::Poll => cfg!(unix),
            Self::EpollLevel | Self::EpollEdge | Self::Uring => cfg!(target_os = "linux"),
            Self::Sim => true,
        }
    }

    /// Chooses for `auto`: epoll-edge where there is epoll, else poll. Says why.
    ///
    /// # Errors
    /// This system has no back end yet.
    pub fn auto() -> Result<(Self, &'static str), Unavailable> {
        if Self::EpollEdge.compiled() {
            Ok((Self::EpollEdge, "least CPU per request of those measured here; see bench/RESULTS.md"))
        } else if Self::Poll.compiled() {
            Ok((Self::Poll, "the only back end for this system"))
        } else {
            Err(Unavailable { backend: None, reason: "no event back end for this system yet".into() })
        }
    }

    /// Chooses for `auto` where a program is the client of many busy connections: io_uring, which saves it most of its
    /// system calls, if this system allows it, else as [`Backend::auto`]. Says why. One that has answers
    /// gather takes io_uring only if that can ([`Reactor::gather`]).
    ///
    /// # Errors
    /// This system has no back end yet.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has a choice"))]
    pub fn auto_client(gathers: bool) -> Result<(Self, &'static str), Unavailable> {
        #[cfg(target_os = "linux")]
        if crate::uring::probe().is_ok_and(|can_gather| can_gather || !gathers) {
            return Ok((
                Self::Uring,
                "least CPU per request of those measured here; see bench/RESULTS-load.md",
            ));
        }
        Self::auto()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::NAMED.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
            format!("no back end is called '{name}'; there are uring, epoll-edge, epoll-level and poll")
        })
    }
}

/// A back end that was asked for and is not to be had: an error, never a silent substitute.
#[derive(Debug)]
pub struct Unavailable {
    /// Which, if one was named.
    pub backend: Option<Backend>,
    /// The system's reason, and what helps.
    pub reason: String,
}

impl Unavailable {
    #[cfg(unix)]
    pub(crate) fn new(backend: Backend, error: &io::Error, help: &str) -> Self {
        Self { backend: Some(backend), reason: format!("{error}{help}") }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backend {
            Some(backend) => write!(f, "back end {backend} is not available: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Unavailable {}

impl From<Unavailable> for io::Error {
    fn from(error: Unavailable) -> Self {
        Self::new(io::ErrorKind::Unsupported, error)
    }
}
