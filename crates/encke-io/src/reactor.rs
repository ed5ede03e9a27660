//! The reactor: one worker's interface to the operating system. Operations in, completions out.
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
//! # Guarantees of every back end
//! - A **turn** is one `wait`, then `next` until it returns `None` or the caller stops. Events not taken come first in the next
//!   turn, and that turn's `wait` does not block.
//! - Sources with work are served in rotation: a busy connection never starves the others. Between two rotations of a source
//!   every other source gets one event. Under `uring` it gets up to 32, as many receives as the kernel completes in a row.
//! - Events of one token arrive in the order in which they happened. `Closed` is the last event of a token.
//! - A lease is at most [`LEASE_BYTES_MAX`] long.
//! - [`Op::Recv`] on a stream whose peer has ended yields `PeerClosed` once and disarms itself.
//! - An operation submitted to a closed token yields no event of its own; `Closed` stands for it. Submitting an operation that
//!   a kind of source does not support is a programming error and panics.
//!
//! # Differences
//! - `uring` reports a `Send` in the next turn at the earliest. It reports a `Close` when the kernel has released all
//!   resources, usually one turn later. The others report both within the turn.
//! - A process killed under `uring` keeps its ports in use for another 50 ms or so, because the kernel tears down the ring
//!   after the process. A process that closes its listeners, or drops its reactor, leaves none in use.
//! - `poll` costs O(sources) per turn, inherent in poll(2) (report 002 of the lab). It is plain POSIX.
//! - `sim` does not block in `wait`: [`crate::sim::World::step`] advances the time.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Now;
use crate::op::{Event, Op, Token};
use crate::op_error::OpError;
use crate::socket::{Listener, Stream, Watched};
use crate::stream_facts::StreamFacts;
use crate::sys::backends;
use crate::wake::Waker;

/// Maximum length of a lease, and the size of the one buffer into which readiness back ends receive.
pub const LEASE_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a lease of a stream with [`LendLimit::Narrow`](crate::LendLimit::Narrow). The buffers of io_uring have this
/// length unless a setting changes it.
pub const NARROW_LEASE_BYTES: usize = 16 * 1024;

/// Maximum bytes that a single send hands to the kernel before other connections are served.
pub const SEND_QUANTUM: u64 = 4 << 20;

/// Maximum number of sockets kept for [`Reactor::spare`].
pub(crate) const SPARES_MAX: usize = 64;

/// The operating system interface of one worker. The module documentation lists the guarantees of every back end.
pub trait Reactor {
    /// The back end of this reactor.
    fn backend(&self) -> Backend;

    /// Adds a source. No operation is armed on it yet.
    ///
    /// # Errors
    /// The back end has no room for the source (epoll's limit of watches, memory).
    fn adopt(&mut self, source: ReactorSource) -> Result<Token, OpError>;

    /// Submits an operation. The reactor may perform it within the call; its event still comes from [`Reactor::next`].
    fn submit(&mut self, token: Token, op: Op);

    /// Waits for events, at most until the monotonic time `until` in ns, then reads the clock.
    ///
    /// # Errors
    /// The system refuses to wait, which is a fault of this program or of the machine. The worker cannot continue.
    fn wait(&mut self, until: Option<u64>) -> Result<Now, OpError>;

    /// Makes every later `wait` that starts without pending events last at least `time`, in whole microseconds, to batch
    /// events. Returns whether batching is active: the back end supports it (io_uring since Linux 6.12) and `time` is not zero.
    /// Otherwise waits are unchanged. Only `until` and hundreds of events end such a wait early; a waker does not.
    ///
    /// Batching reduces wake-ups. On one machine the sender pays for each of them.
    fn gather(&mut self, _time: Duration) -> bool {
        false
    }

    /// Returns a socket kept by [`Op::Recycle`], in the state in which [`crate::socket::unconnected`] creates one.
    fn spare(&mut self) -> Option<Stream> {
        None
    }

    /// The next event since the last `wait`. This call ends the lease of the previous event.
    fn next(&mut self) -> Option<Event<'_>>;

    /// Reads the clock.
    fn now(&mut self) -> Now;

    /// A handle with which other threads interrupt this reactor's `wait`.
    fn waker(&self) -> Waker;

    /// Bytes of the token's send in flight that the kernel has not accepted; 0 if none is in flight.
    fn unsent(&self, token: Token) -> u64;

    /// Bytes of a stream that the kernel has accepted and the peer has not acknowledged (SIOCOUTQ, tcp(7)); 0 if the system
    /// does not report them. A send buffer may hold more than a slow client reads in minutes.
    fn unacknowledged(&self, _token: Token) -> u64 {
        0
    }

    /// Kernel memory in bytes used by a stream's buffers (SO_MEMINFO); `None` if the system does not report it.
    fn buffered(&self, _token: Token) -> Option<u64> {
        None
    }

    /// Facts of the kernel about a connected stream, by system calls; `None` if the system does not report them.
    fn facts(&self, _token: Token) -> Option<StreamFacts> {
        None
    }

    /// Connections that the kernel dropped because the listener's queue was full (SO_MEMINFO); `None` if the system does not
    /// count them.
    fn listen_drops(&self, listener: Token) -> Option<u32>;

    /// The resources that the reactor holds at this moment.
    fn occupancy(&self) -> Occupancy;
}

/// A source that a reactor can adopt.
pub enum ReactorSource {
    /// Accepts connections ([`Op::Accept`]).
    Listener(Listener),
    /// Sends and receives. A client creates one with [`crate::socket::unconnected`].
    Stream(Stream),
    /// Reports that a descriptor is readable ([`Op::Watch`]).
    Watched(Watched),
}

/// The resources that a reactor holds. After all connections are closed, each count is back at its initial value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Sources: connections, listeners, watched descriptors.
    pub sources: usize,
    /// Sends in flight.
    pub sends: usize,
    /// Jobs that have not completed.
    pub jobs: usize,
    /// Receive buffers held by events or paused connections instead of the kernel (io_uring).
    pub leases: usize,
}

/// A mechanism to wait for events, selected when the program starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backend {
    /// poll(2): available on all Unix systems, linear in the number of connections.
    Poll,
    /// epoll(7), level-triggered.
    EpollLevel,
    /// epoll(7), edge-triggered.
    EpollEdge,
    /// io_uring(7) with multishot accept and receive and a ring of provided buffers.
    Uring,
    /// Windows: polls of the socket driver (`\\Device\\Afd`), whose results come through a completion port.
    Afd,
    /// The simulator, which cannot be selected by name.
    Sim,
}

impl Backend {
    /// The back ends of this system, which can be selected by name, preferred ones first.
    pub const NAMED: [Self; backends::BACKENDS.len()] = backends::BACKENDS;
    /// The back ends of all systems.
    const KNOWN: [Self; 5] = [Self::Uring, Self::EpollEdge, Self::EpollLevel, Self::Poll, Self::Afd];

    /// The name on the command line, in settings, logs and metrics.
    ///
    /// ```
    /// use encke_io::Backend;
    ///
    /// assert_eq!("epoll-edge".parse(), Ok(Backend::EpollEdge));
    /// assert_eq!(Backend::Uring.name(), "uring");
    /// assert!("kqueue".parse::<Backend>().is_err());
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::EpollLevel => "epoll-level",
            Self::EpollEdge => "epoll-edge",
            Self::Uring => "uring",
            Self::Afd => "afd",
            Self::Sim => "sim",
        }
    }

    /// Whether this program was built with the back end.
    pub fn compiled(self) -> bool {
        self == Self::Sim || Self::NAMED.contains(&self)
    }

    /// Selects the back end for `auto`: epoll-edge on Linux, afd on Windows, else poll. Also returns the reason.
    pub const fn auto() -> (Self, &'static str) {
        backends::AUTO
    }

    /// Selects the back end for `auto` in a client with many busy connections, and returns the reason. The choice is io_uring,
    /// which saves most of the client's system calls, if this system allows it; otherwise that of [`Backend::auto`]. With
    /// `gathers`, io_uring must also support [`Reactor::gather`].
    pub fn auto_client(gathers: bool) -> (Self, &'static str) {
        backends::auto_client(gathers)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let found = Self::KNOWN.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

/// A text that names no back end; an error of the user's input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownBackend(String);

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        let names = Backend::NAMED.map(Backend::name);
        let (last, others) = names.split_last().expect("every system has a back end");
        write!(f, "invalid back end `{name}`: expected ")?;
        if !others.is_empty() {
            write!(f, "{} or ", others.join(", "))?;
        }
        f.write_str(last)
    }
}

impl std::error::Error for UnknownBackend {}

/// The requested back end is not available: an error, never a silent substitution.
///
/// A retry does not help: the system, or the choice of the back end, has to change.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unavailable {
    /// The requested back end.
    pub backend: Backend,
    /// The system's error; `None` if this program was built without the back end.
    error: Option<io::Error>,
    /// Advice after the system's error; the whole reason without one.
    advice: Cow<'static, str>,
}

impl Unavailable {
    /// The system lacks the back end, or denies it.
    pub(crate) fn new(backend: Backend, error: io::Error, advice: impl Into<Cow<'static, str>>) -> Self {
        Self { backend, error: Some(error), advice: advice.into() }
    }

    /// This program was built without the back end.
    pub(crate) const fn not_built(backend: Backend, reason: &'static str) -> Self {
        Self { backend, error: None, advice: Cow::Borrowed(reason) }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "back end {} is not available: ", self.backend)?;
        if let Some(error) = &self.error {
            error.fmt(f)?;
        }
        f.write_str(&self.advice)
    }
}

impl std::error::Error for Unavailable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.as_ref()?)
    }
}

impl From<Unavailable> for io::Error {
    fn from(error: Unavailable) -> Self {
        Self::new(io::ErrorKind::Unsupported, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_is_parsed_from_its_name_only() {
        for backend in Backend::NAMED {
            assert_eq!(backend.name().parse(), Ok(backend));
        }
        let error = "sim".parse::<Backend>().expect_err("the simulator cannot be selected");
        assert!(error.to_string().starts_with("invalid back end `sim`: expected "), "{error}");
    }

    #[test]
    fn an_unavailable_back_end_is_reported_with_its_cause() {
        let not_built = Unavailable::not_built(Backend::Uring, "this program was built without it");
        assert_eq!(
            not_built.to_string(),
            "back end uring is not available: this program was built without it"
        );
    }
}
