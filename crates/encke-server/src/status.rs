//! The status of a running server: what it counts, and what is true of it at present.

use std::sync::{Arc, Mutex};

use encke_io::{Address, Backend, lock};
use encke_stats::{Family, Source};

use crate::admin::Pulse;
use crate::listener::Named;
use crate::metrics::Metrics;
use crate::plan::MountPoint;

/// What is known of a running server, for whoever asks: admin handlers, the program.
pub struct Board {
    pub(crate) metrics: Vec<Arc<Metrics>>,
    /// Those of the engine itself.
    pub(crate) engine: Vec<Arc<dyn Source>>,
    /// Those of the mounts that are served at present.
    pub(crate) mounted: Mutex<Vec<Arc<dyn Source>>>,
    /// Those that belong to no mount.
    pub(crate) others: Vec<Arc<dyn Source>>,
    pub(crate) stopping: std::sync::atomic::AtomicBool,
    /// For those who look on.
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) backend: Backend,
    pub(crate) backend_reason: &'static str,
    pub(crate) addresses: Mutex<Vec<Address>>,
    /// Who its listeners say they are.
    pub(crate) identities: Arc<Mutex<Vec<Named>>>,
    pub(crate) admin_addresses: Vec<Address>,
    pub(crate) connections: usize,
    /// Start, in seconds since 1970.
    pub(crate) started_s: u64,
}

impl Board {
    /// What the workers have counted so far, and what is true of all of them.
    pub(crate) fn families(&self) -> Vec<Family> {
        self.sources().iter().flat_map(|source| source.families()).collect()
    }

    /// The part of the status that a source of this name has.
    pub(crate) fn part(&self, name: &str) -> Option<serde_json::Value> {
        self.sources().iter().find(|source| source.name() == name)?.status()
    }

    /// The sources in the order in which they are shown. Of those with the same name only the first one is.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn Source>> {
        let mounted = lock(&self.mounted).clone();
        let mut sources = self.engine.clone();
        for source in mounted.iter().chain(&self.others) {
            if sources.iter().all(|known| known.name() != source.name()) {
                sources.push(Arc::clone(source));
            }
        }
        sources
    }

    /// Shows the sources of these mounts from now on.
    pub(crate) fn show(&self, points: &[MountPoint]) {
        *lock(&self.mounted) = points.iter().flat_map(|point| point.mount.sources()).collect();
    }
}
