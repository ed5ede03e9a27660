//! Tests of the server from outside, over real sockets, on stands: a back end with a number of workers.
//!
//! A case is a function over a [`rig::Stand`]; each file's tables list its cases and choose their stands:
//!
//! | table | stands | for cases about |
//! |---|---|---|
//! | `on_every_stand!` | four back ends × one and four workers | I/O, drain, limits, fairness |
//! | `on_every_back_end!` | four back ends × one worker | the same, where the case itself sets the number of workers |
//! | `on_two_stands!` | `epoll-edge` × one worker, `uring` × four | everything else: protocols, TLS |
//!
//! What a case of the last table tests does not depend on how a worker waits for events. These two stands cover both
//! kinds of reactor, one worker, and several workers. `ENCKE_MATRIX=full` runs those cases on the six other stands as
//! well, in one test per file (`on_the_other_stands`), and `make soak` sets it. The test `the_matrix` prints the number
//! of cases per stand. A back end that this machine lacks fails its cases.

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
mod figures;
mod framing;
mod guards;
mod h2;
mod http1;
mod limits;
mod listeners;
mod peers;
mod relays;
mod reloads;
mod residents;
#[cfg(feature = "tls")]
mod tls;
mod tunnels;
