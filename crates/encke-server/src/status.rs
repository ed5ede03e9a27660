//! The status of a running server: what it counts, and what is true of it at present.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::{Address, Backend, lock};
use encke_stats::{Family, Source};

use crate::listener::Named;
use crate::metrics::Metrics;
use crate::plan::MountPoint;

/// The state of a running server, for the handlers of its admin listener and for the program.
pub struct Board {
    pub(crate) metrics: Vec<Arc<Metrics>>,
    /// Those of the engine itself.
    pub(crate) engine: Vec<Arc<dyn Source>>,
    /// Those of the mounts that are served at present.
    pub(crate) mounted: Mutex<Vec<Arc<dyn Source>>>,
    /// Those that belong to no mount.
    pub(crate) others: Vec<Arc<dyn Source>>,
    pub(crate) stopping: AtomicBool,
    /// Called when the server is told to stop.
    pub(crate) on_drain: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
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
    /// Whether the server was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Has `call` called when the server is told to stop. It must not wait.
    pub fn on_drain(&self, call: impl Fn() + Send + Sync + 'static) {
        lock(&self.on_drain).push(Box::new(call));
    }

    pub(crate) fn begin_drain(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        lock(&self.on_drain).iter().for_each(|call| call());
    }

    /// How its workers wait for events, and why so.
    pub fn backend(&self) -> (Backend, &'static str) {
        (self.backend, self.backend_reason)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.metrics.len()
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Address> {
        lock(&self.addresses).clone()
    }

    /// Where its admin listener is.
    pub fn admin_addresses(&self) -> Vec<Address> {
        self.admin_addresses.clone()
    }

    /// Number of connections that it may have.
    pub fn connections_limit(&self) -> usize {
        self.connections
    }

    /// Open connections of all workers.
    pub fn connections(&self) -> i64 {
        self.metrics.iter().map(|worker| worker.open.value()).sum()
    }

    /// Requests of all workers since the start.
    pub fn requests(&self) -> u64 {
        self.metrics.iter().map(|worker| worker.requests.value()).sum()
    }

    /// The start, in seconds since 1970.
    pub fn started_unix_s(&self) -> u64 {
        self.started_s
    }

    /// What the workers have counted so far, and what is true of all of them.
    pub fn families(&self) -> Vec<Family> {
        self.sources().iter().flat_map(|source| source.families()).collect()
    }

    /// The part of the status that a source of this name has.
    pub fn part(&self, name: &str) -> Option<serde_json::Value> {
        self.sources().iter().find(|source| source.name() == name)?.status()
    }

    /// The sources in the order in which they are shown. Of those with the same name only the first one is.
    pub fn sources(&self) -> Vec<Arc<dyn Source>> {
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
