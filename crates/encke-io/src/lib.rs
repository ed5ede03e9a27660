//! Operations in, completions out: everything Encke asks of an operating system, and the only crate that does.
//!
//! The entry is [`Reactor`]: a worker submits an [`Op`] on a [`Token`] and takes [`Event`]s, one at a time.
//!
//! ```text
//!            Op: Accept Recv Send Close …                 Event: Accepted Received Sent Closed …
//!  worker ───────────────────────────────►  Reactor  ───────────────────────────────────────►  worker
//!                                          │  │  │  │
//!                                     poll epoll uring sim           chosen at run time, see [`Backend`]
//! ```
//!
//! In scope: reactors, sockets, files beneath a root, change notices, timers, tables with stable places, the
//! pool for blocking work, facts about the host. Out of scope: any protocol, any policy.
//!
//! `unsafe` is allowed here, block by block with its reason; `cfg(target_os)` is nowhere else.
#![allow(unsafe_code)]

pub mod changes;
pub mod clock;
pub mod counters;
pub mod fault;
pub mod files;
pub mod host;
#[cfg_attr(not(unix), allow(dead_code, reason = "no back end of this system submits to it yet"))]
pub mod offload;
pub mod op;
pub mod reactor;
pub mod sim;
pub mod slab;
pub mod socket;
pub mod wake;
pub mod wheel;

mod lock;

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "io_uring alone uses all of it"))]
mod places;
#[cfg(unix)]
mod poller;
#[cfg(unix)]
mod readiness;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "io_uring alone uses all of it"))]
mod sending;
#[cfg(target_os = "linux")]
mod uring;

pub use clock::Now;
pub use fault::Fault;
pub use lock::lock;
pub use op::{Done, Event, Job, JobLane, Op, OpKind, Peer, Segment, Send, Token, Tuning};
pub use reactor::{Backend, LEASE_BYTES_MAX, Occupancy, Reactor, Source, Unavailable};
pub use sim::SimReactor;
pub use socket::{Address, Listener};
pub use wake::Waker;

/// The reactor over poll(2).
#[cfg(unix)]
pub type PollReactor = readiness::Readiness<poller::poll::Poll>;
/// The reactor over level-triggered epoll(7).
#[cfg(target_os = "linux")]
pub type EpollLevelReactor = readiness::Readiness<poller::epoll::EpollLevel>;
/// The reactor over edge-triggered epoll(7).
#[cfg(target_os = "linux")]
pub type EpollEdgeReactor = readiness::Readiness<poller::epoll::EpollEdge>;
/// The reactor over io_uring(7).
#[cfg(target_os = "linux")]
pub use uring::{UringReactor, UringSettings};

/// Something that runs on a reactor, of whichever kind it turns out to be.
pub trait Run {
    /// Runs on it, or hears why it is not to be had.
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>);
}

/// Makes the reactor of a back end, on this thread, and runs something on it: the one place where a value chooses
/// the code.
pub fn run_on(backend: Backend, pool: offload::Pool, run: impl Run) {
    match backend {
        #[cfg(unix)]
        Backend::Poll => run.run(PollReactor::new(pool)),
        #[cfg(target_os = "linux")]
        Backend::EpollLevel => run.run(EpollLevelReactor::new(pool)),
        #[cfg(target_os = "linux")]
        Backend::EpollEdge => run.run(EpollEdgeReactor::new(pool)),
        #[cfg(target_os = "linux")]
        Backend::Uring => run.run(UringReactor::new(pool)),
        other => {
            drop(pool);
            let reason = "this program was built without it".into();
            run.run::<SimReactor>(Err(Unavailable { backend: Some(other), reason }));
        }
    }
}
