//! Macros for the tables of cases: they select the stands that each case runs on.

/// Declares a test module that runs each case on one stand.
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

/// Runs each case on every back end with one worker.
macro_rules! on_every_back_end {
    ($($case:ident),* $(,)?) => {
        play! { poll, Poll, 1, $($case)* }
        play! { epoll_level, EpollLevel, 1, $($case)* }
        play! { epoll_edge, EpollEdge, 1, $($case)* }
        play! { uring, Uring, 1, $($case)* }
    };
}

/// Runs each case on every back end, with one worker and with four.
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

/// Runs each case on two stands, and on the six others with `ENCKE_MATRIX=full`. One table per file.
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
