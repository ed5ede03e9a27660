//! The back ends of Linux.

use crate::ReactorTask;
use crate::offload::Pool;
use crate::reactor::Backend;
use crate::readiness::Readiness;
use crate::sys::linux::epoll::{EpollEdge, EpollLevel};
use crate::sys::linux::uring;
use crate::sys::unix::poll::Poll;

pub use crate::sys::linux::uring::{UringReactor, UringSettings};

/// The reactor over poll(2).
pub type PollReactor = Readiness<Poll>;

/// The reactor that needs the least of the system.
pub type PlainReactor = PollReactor;
/// The reactor over level-triggered epoll(7).
pub type EpollLevelReactor = Readiness<EpollLevel>;
/// The reactor over edge-triggered epoll(7).
pub type EpollEdgeReactor = Readiness<EpollEdge>;

/// The back ends of this system, preferred ones first.
pub(crate) const BACKENDS: [Backend; 4] =
    [Backend::Uring, Backend::EpollEdge, Backend::EpollLevel, Backend::Poll];

/// Why a back end is missing that is not among [`BACKENDS`].
pub(crate) const OTHERS: &str = "this program was built without it";

/// The back end for `auto`, with the reason.
pub(crate) const AUTO: (Backend, &str) = (
    Backend::EpollEdge,
    "works on every Linux and in every container; uring saves system calls where it is allowed",
);

/// The back end for `auto` in a client with many busy connections, with the reason.
pub(crate) fn auto_client(gathers: bool) -> (Backend, &'static str) {
    if uring::probe().is_ok_and(|can_gather| can_gather || !gathers) {
        return (Backend::Uring, "least CPU per request of those measured here; see bench/RESULTS-load.md");
    }
    AUTO
}

/// Creates the reactor of `backend` on this thread and passes it to `run`. Returns `run` and the pool if this system lacks the
/// back end.
pub(crate) fn run_on<T: ReactorTask>(backend: Backend, pool: Pool, run: T) -> Option<(Pool, T)> {
    match backend {
        Backend::Poll => run.run(PollReactor::new(pool)),
        Backend::EpollLevel => run.run(EpollLevelReactor::new(pool)),
        Backend::EpollEdge => run.run(EpollEdgeReactor::new(pool)),
        Backend::Uring => run.run(UringReactor::new(pool)),
        Backend::Afd | Backend::Sim => return Some((pool, run)),
    }
    None
}
