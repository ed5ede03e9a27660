//! The back end of Windows.

use crate::ReactorTask;
use crate::offload::Pool;
use crate::reactor::{Backend, Unavailable};
use crate::readiness::Readiness;
use crate::sys::windows::afd::Afd;
use crate::sys::windows::transmit::TransmitRule;

/// The reactor over polls of the socket driver.
pub type AfdReactor = Readiness<Afd>;

/// The reactor that needs the least of the system.
pub type PlainReactor = AfdReactor;

impl AfdReactor {
    /// Creates a reactor that sends files by TransmitFile, or by reading them, whatever the edition of Windows, and whether or not it
    /// reports the progress of calls.
    ///
    /// # Errors
    /// As [`Readiness::new`].
    pub fn transmitting(pool: Pool, transmits: bool) -> Result<Self, Unavailable> {
        let rule = if transmits { TransmitRule::Always } else { TransmitRule::Never };
        let poller = Afd::transmitting(rule);
        Self::with_poller(poller.map_err(|error| Unavailable::new(Backend::Afd, error.into(), ""))?, pool)
    }
}

/// The back ends of this system, preferred ones first.
pub(crate) const BACKENDS: [Backend; 1] = [Backend::Afd];

/// Why a back end is missing that is not among [`BACKENDS`].
pub(crate) const OTHERS: &str = "this system has only afd";

/// The back end for `auto`, with the reason.
pub(crate) const AUTO: (Backend, &str) = (Backend::Afd, "the only back end for this system");

/// The back end for `auto` in a client with many busy connections, with the reason.
pub(crate) fn auto_client(_gathers: bool) -> (Backend, &'static str) {
    AUTO
}

/// Creates the reactor of `backend` on this thread and passes it to `run`. Returns `run` and the pool if this system lacks the
/// back end.
pub(crate) fn run_on<T: ReactorTask>(backend: Backend, pool: Pool, run: T) -> Option<(Pool, T)> {
    match backend {
        Backend::Afd => run.run(AfdReactor::new(pool)),
        _ => return Some((pool, run)),
    }
    None
}
