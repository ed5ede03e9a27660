//! The facts of an attempt at an application, for the JSON log.

use encke_server::LogNotes;

use crate::upstream::NamedUpstream;

/// The facts of the last attempt of a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct AttemptFacts {
    pub(crate) target: Option<usize>,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// Time for which the request has waited for connections, in ns.
    pub(crate) waited_ns: u64,
    /// Time to establish the connection, in ns; `None` if it was kept, or failed.
    pub(crate) connect_ns: Option<u64>,
    /// Time from the beginning of the attempt, the connect included, to the head of the response, in ns.
    pub(crate) first_byte_ns: Option<u64>,
}

impl AttemptFacts {
    pub(crate) fn notes(&self, upstream: &NamedUpstream) -> LogNotes {
        let micros = |ns: u64| ns / 1_000;
        let target = self.target.and_then(|target| upstream.targets.get(target));
        let target = target.map(|target| target.url().to_string());
        LogNotes::default()
            .text("upstream", Some(&upstream.settings.name))
            .text("upstream_target", target.as_deref())
            .number("upstream_attempts", Some(u64::from(self.attempts)))
            .number("upstream_queue_us", Some(micros(self.waited_ns)))
            .number("upstream_connect_us", self.connect_ns.map(micros))
            .number("upstream_first_byte_us", self.first_byte_ns.map(micros))
    }
}
