//! Tests of the server from outside, over real sockets, on stands: a back end with a number of workers.
//!
//! A case is a function over a [`rig::Stand`]; each file's tables list its cases and choose their stands:
//!
//! | table | stands | for cases about |
//! |---|---|---|
//! | `on_every_stand!` | four back ends × one and four workers | I/O, drain, limits, fairness |
//! | `on_every_back_end!` | four back ends × one worker | the same, where the case itself sets the number of workers |
//! | `on_two_stands!` | `epoll-edge` × one worker, `uring` × four | everything else: protocols, files, push, TLS |
//!
//! What a case of the last table tests does not depend on how a worker waits for events. These two stands cover both
//! kinds of reactor, one worker, and several workers. `ENCKE_MATRIX=full` runs those cases on the six other stands as
//! well, in one test per file (`on_the_other_stands`), and `make soak` sets it. The test `the_matrix` prints the number
//! of cases per stand. A back end that this machine lacks fails its cases.

#![cfg(unix)]

mod matrix;
#[path = "../rig/mod.rs"]
mod rig;

/// Makes a module of tests: each of the cases on one stand.
macro_rules! play {
    ($room:ident, $backend:ident, $workers:literal, $($case:ident)*) => {
        mod $room {
            $(
                #[test]
                fn $case() {
                    super::$case(crate::rig::Stand {
                        backend: encke_io::Backend::$backend,
                        workers: $workers,
                    });
                }
            )*
        }
    };
}

/// Plays each case on every back end with one worker.
macro_rules! on_every_back_end {
    ($($case:ident),* $(,)?) => {
        play! { poll, Poll, 1, $($case)* }
        play! { epoll_level, EpollLevel, 1, $($case)* }
        play! { epoll_edge, EpollEdge, 1, $($case)* }
        play! { uring, Uring, 1, $($case)* }
    };
}

/// Plays each case on every back end, with one worker and with four.
macro_rules! on_every_stand {
    ($($case:ident),* $(,)?) => {
        play! { poll_by_one, Poll, 1, $($case)* }
        play! { poll_by_four, Poll, 4, $($case)* }
        play! { epoll_level_by_one, EpollLevel, 1, $($case)* }
        play! { epoll_level_by_four, EpollLevel, 4, $($case)* }
        play! { epoll_edge_by_one, EpollEdge, 1, $($case)* }
        play! { epoll_edge_by_four, EpollEdge, 4, $($case)* }
        play! { uring_by_one, Uring, 1, $($case)* }
        play! { uring_by_four, Uring, 4, $($case)* }
    };
}

/// Plays each case on two stands, and on the six others with `ENCKE_MATRIX=full`. One table per file.
macro_rules! on_two_stands {
    ($($case:ident),* $(,)?) => {
        play! { only_epoll_edge_by_one, EpollEdge, 1, $($case)* }
        play! { only_uring_by_four, Uring, 4, $($case)* }

        #[test]
        fn on_the_other_stands() {
            crate::matrix::play_on_the_others(&[$((stringify!($case), $case as crate::matrix::Case)),*]);
        }
    };
}

mod answers;
mod asking;
mod bodies;
mod cuts;
mod defects;
mod deflate;
mod delays;
mod drain;
mod expiry;
mod files;
mod h2;
mod http1;
mod https;
mod limits;
mod listeners;
mod peers;
mod push;
mod reload;
mod residents;
mod storm;
#[cfg(feature = "tls")]
mod tls;
