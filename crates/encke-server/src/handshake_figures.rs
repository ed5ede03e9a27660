//! Figures of TLS: each worker counts its handshakes, and [`TlsFigures`] adds them up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_stats::{Counter, Family, Source};

use encke_session::tls::TlsIdentity;

/// The TLS figures of one worker. A lock is cheap compared with a handshake.
#[derive(Default)]
pub(crate) struct TlsCounters {
    /// Complete handshakes, by version and by whether a session was resumed.
    complete: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// Failed handshakes, by reason.
    failed: Mutex<BTreeMap<&'static str, u64>>,
    /// Connections that were closed because too many handshakes were open.
    pub(crate) refused: Counter,
}

impl TlsCounters {
    /// Counts a complete handshake.
    pub(crate) fn complete(&self, version: &'static str, session: &'static str) {
        *lock(&self.complete).entry((version, session)).or_default() += 1;
    }

    /// Counts a failed handshake.
    pub(crate) fn failed(&self, reason: &'static str) {
        *lock(&self.failed).entry(reason).or_default() += 1;
    }
}

/// The figures of all workers, and the certificates of all listeners.
pub(crate) struct TlsFigures<F> {
    pub(crate) workers: Vec<Arc<TlsCounters>>,
    /// Returns the present identities of the listeners.
    pub(crate) identities: F,
}

impl<F: Fn() -> Vec<Arc<TlsIdentity>> + Send + Sync> TlsFigures<F> {
    /// The expiry time of each certificate, if there are any.
    fn expiry(&self) -> Option<Family> {
        let ends: BTreeMap<_, _> = (self.identities)().iter().flat_map(|identity| identity.ends()).collect();
        let family = Family::gauge(
            "encke_tls_certificate_expiry_seconds",
            "Expiry time of a certificate, in seconds since 1970, by file.",
        );
        (!ends.is_empty()).then(|| {
            ends.into_iter().fold(family, |family, (file, ends_s)| {
                family.labelled("file", file.display().to_string(), ends_s)
            })
        })
    }
}

impl<F: Fn() -> Vec<Arc<TlsIdentity>> + Send + Sync> Source for TlsFigures<F> {
    fn name(&self) -> &'static str {
        "tls"
    }

    fn families(&self) -> Vec<Family> {
        let mut handshakes = Family::counter(
            "encke_tls_handshakes_total",
            "Completed TLS handshakes, by version and by whether a session was resumed.",
        );
        let mut failures =
            Family::counter("encke_tls_handshake_failures_total", "Failed TLS handshakes, by reason.");
        let mut complete: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
        let mut failed: BTreeMap<&'static str, u64> = BTreeMap::new();
        for worker in &self.workers {
            for (kind, count) in lock(&worker.complete).iter() {
                *complete.entry(*kind).or_default() += count;
            }
            for (reason, count) in lock(&worker.failed).iter() {
                *failed.entry(reason).or_default() += count;
            }
        }
        failed.insert("busy", self.workers.iter().map(|worker| worker.refused.value()).sum());
        for ((version, session), count) in complete {
            handshakes = handshakes.with(&[("version", version), ("session", session)], count);
        }
        for (reason, count) in failed {
            failures = failures.with(&[("reason", reason)], count);
        }
        [handshakes, failures].into_iter().chain(self.expiry()).collect()
    }
}
