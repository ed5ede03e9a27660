//! The server seen from outside: real sockets, every back end, one worker and four.
//!
//! A case is a function over a [`rig::Stand`]; each file's table says which cases there are. A back end that this
//! machine lacks fails its cases: a suite that skips proves nothing.

#![cfg(unix)]

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
mod storm;
#[cfg(feature = "tls")]
mod tls;
