//! The operating system interface of Encke: operations in, completions out. No other crate makes system calls.
//!
//! The entry point is [`Reactor`]: a worker submits an [`Op`] for a [`Token`] and takes [`Event`]s, one at a time.
//!
//! ```text
//!            Op: Accept Recv Send Close …                 Event: Accepted Received Sent Closed …
//!  worker ───────────────────────────────►  Reactor  ───────────────────────────────────────►  worker
//!                                          │  │  │  │
//!                                     poll epoll uring sim           chosen at run time, see [`Backend`]
//! ```
//!
//! In scope: reactors, sockets, files beneath a root, change notifications, timers, tables with stable indices, the thread pool
//! for blocking work, and facts about the host. Out of scope: any protocol and any policy.
//!
//! `unsafe` is allowed here, and each block states its reason. Only this crate uses `cfg(target_os)`.
#![allow(unsafe_code)]

pub mod changes;
pub mod clock;
pub mod counters;
pub mod drain_mark;
pub mod figures;
pub mod files;
pub mod host;
#[cfg_attr(not(unix), allow(dead_code, reason = "no back end of this system submits to it yet"))]
pub mod offload;
pub mod op;
pub mod op_error;
pub mod process;
pub mod reactor;
pub mod sim;
pub mod slab;
pub mod socket;
pub mod wake;
pub mod wheel;

mod lock;
mod stream_facts;

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "io_uring alone uses all of it"))]
mod places;
#[cfg(unix)]
mod poller;
#[cfg(unix)]
mod readiness;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "io_uring alone uses all of it"))]
mod sending;
mod sys;

pub use clock::Now;
pub use lock::lock;
pub use op::{Done, Event, Job, JobLane, Op, OpKind, Peer, Segment, Send, Token, Tuning};
pub use op_error::OpError;
pub use reactor::{Backend, LEASE_BYTES_MAX, Occupancy, Reactor, ReactorSource, Unavailable, UnknownBackend};
pub use sim::SimReactor;
pub use socket::{Address, Listener};
pub use stream_facts::{StreamFacts, TcpFacts};
pub use wake::Waker;

/// The reactor over poll(2).
#[cfg(unix)]
pub type PollReactor = readiness::Readiness<sys::unix::poll::Poll>;
/// The reactor over level-triggered epoll(7).
#[cfg(target_os = "linux")]
pub type EpollLevelReactor = readiness::Readiness<sys::linux::epoll::EpollLevel>;
/// The reactor over edge-triggered epoll(7).
#[cfg(target_os = "linux")]
pub type EpollEdgeReactor = readiness::Readiness<sys::linux::epoll::EpollEdge>;
/// The reactor over io_uring(7).
#[cfg(target_os = "linux")]
pub use sys::linux::uring::{UringReactor, UringSettings};

/// Code that is generic over the reactor it runs on.
pub trait ReactorTask {
    /// Runs on `reactor`, or handles the error if the back end is unavailable.
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>);
}

/// Creates the reactor of `backend` on this thread and passes it to `run`. Only this function maps a back end's value to its
/// type.
pub fn run_on(backend: Backend, pool: offload::Pool, run: impl ReactorTask) {
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
            let reason = "this program was built without it";
            run.run::<SimReactor>(Err(Unavailable::not_built(Some(other), reason)));
        }
    }
}
