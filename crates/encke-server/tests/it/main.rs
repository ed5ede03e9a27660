//! Tests of the server from outside, over real sockets, on stands: a back end with a number of workers.
//!
//! A case is a function over a [`rig::Stand`]. The tables in each file list its cases and select their stands:
//!
//! | table | stands | for cases about |
//! |---|---|---|
//! | `on_every_stand!` | four back ends × one and four workers | I/O, drain, limits, fairness |
//! | `on_every_back_end!` | four back ends × one worker | the same, where the case itself sets the number of workers |
//! | `on_two_stands!` | `epoll-edge` × one worker, `uring` × four | everything else: protocols, TLS |
//!
//! Cases of the last table do not depend on how a worker waits for events. Their two stands cover both kinds of reactor, one
//! worker, and several workers. `ENCKE_MATRIX=full` runs these cases on the six other stands as well, in one test per file
//! (`on_the_other_stands`); `make soak` sets it. The test `the_matrix` prints the number of cases per stand. On a machine
//! without a back end, that back end's cases fail.

#![cfg(unix)]

mod matrix;
#[path = "../rig/mod.rs"]
mod rig;
#[macro_use]
#[path = "../rig/stands.rs"]
mod stands;

mod answers;
mod bodies;
mod delays;
mod dials;
#[cfg(feature = "tls")]
mod dials_by_tls;
mod drain;
mod examples;
mod figures;
mod framing;
mod guard_tokens;
mod guards;
mod h2;
mod http1;
mod inspect;
#[cfg(feature = "tls")]
mod inspect_tls;
mod limits;
mod listeners;
mod log;
mod peers;
mod relays;
mod reloads;
mod residents;
#[cfg(feature = "tls")]
mod tls;
mod tunnels;
