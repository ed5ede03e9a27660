//! The operating system interface of Encke: operations in, completions out. No other crate makes system calls.
//!
//! The entry point is [`Reactor`]: a worker submits an [`Op`] for a [`Token`] and takes [`Event`]s, one at a time.
//!
//! ```text
//!            Op: Accept Recv Send Close …                 Event: Accepted Received Sent Closed …
//!  worker ───────────────────────────────►  Reactor  ───────────────────────────────────────►  worker
//!                                          │  │  │  │
//!                                   poll epoll uring afd sim         chosen at run time, see [`Backend`]
//! ```
//!
//! In scope: reactors, sockets, files beneath a root, change notifications, timers, tables with stable indices, the thread pool
//! for blocking work, and facts about the host. Out of scope: any protocol and any policy.
//!
//! `unsafe` is allowed here, and each block states its reason. Only `sys` uses `cfg` for operating systems.
#![allow(unsafe_code)]

pub mod changes;
pub mod clock;
pub mod counters;
pub mod drain_mark;
pub mod figures;
pub mod files;
pub mod host;
pub mod offload;
pub mod op;
pub mod op_error;
pub mod process;
pub mod reactor;
pub mod service;
pub mod sim;
pub mod slab;
pub mod socket;
pub mod testing;
pub mod wake;
pub mod wheel;

mod lock;
mod stream_facts;
mod sync;
mod table;
#[cfg(all(test, unix))]
mod wake_tests;

mod places;
mod poller;
mod readiness;
mod sending;
mod sys;

pub use clock::Now;
pub use lock::lock;
pub use op::{Done, Event, Job, JobLane, LendLimit, Op, OpKind, Peer, Segment, Send, Token, Tuning};
pub use op_error::OpError;
pub use reactor::{
    Backend, LEASE_BYTES_MAX, NARROW_LEASE_BYTES, Occupancy, Reactor, ReactorSource, Unavailable,
    UnknownBackend,
};
pub use sim::SimReactor;
pub use socket::{Address, Listener};
pub use stream_facts::{StreamFacts, TcpFacts};
pub use sys::backends::*;
pub use table::connection_table;
pub use wake::Waker;

/// Code that is generic over the reactor it runs on.
pub trait ReactorTask {
    /// Runs on `reactor`, or handles the error if the back end is unavailable.
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>);
}

/// Creates the reactor of `backend` on this thread and passes it to `run`. Only this function maps a back end's value to its
/// type.
pub fn run_on(backend: Backend, pool: offload::Pool, run: impl ReactorTask) {
    if let Some((pool, run)) = sys::backends::run_on(backend, pool, run) {
        drop(pool);
        run.run::<SimReactor>(Err(Unavailable::not_built(backend, sys::backends::OTHERS)));
    }
}
