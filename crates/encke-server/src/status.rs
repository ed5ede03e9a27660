//! The status of a running server: its counts and its present state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::{Address, Backend, lock};
use encke_stats::{Family, Source};

use crate::listener::ListenerIdentity;
use crate::metrics::WorkerMetrics;
use crate::plan::MountPoint;

/// The state of a running server, for the handlers of its admin listener and for the program.
pub struct ServerStatus {
    pub(crate) metrics: Vec<Arc<WorkerMetrics>>,
    /// Sources of the engine itself.
    pub(crate) engine: Vec<Arc<dyn Source>>,
    /// Sources of the current mounts.
    pub(crate) mounted: Mutex<Vec<Arc<dyn Source>>>,
    /// Sources that belong to no mount.
    pub(crate) others: Vec<Arc<dyn Source>>,
    pub(crate) stopping: AtomicBool,
    /// Called when a drain begins.
    pub(crate) on_drain: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    pub(crate) backend: Backend,
    pub(crate) backend_reason: &'static str,
    pub(crate) addresses: Mutex<Vec<Address>>,
    /// The addresses whose listeners redirect to https.
    pub(crate) redirects: Mutex<Vec<Address>>,
    /// The identities of the TLS listeners.
    pub(crate) identities: Arc<Mutex<Vec<ListenerIdentity>>>,
    pub(crate) admin_addresses: Vec<Address>,
    pub(crate) connections: usize,
    /// Start time, in seconds since 1970.
    pub(crate) started_s: u64,
}

impl ServerStatus {
    /// Whether a drain has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Adds a callback for the beginning of a drain. It must not block.
    pub fn on_drain(&self, call: impl Fn() + Send + Sync + 'static) {
        lock(&self.on_drain).push(Box::new(call));
    }

    pub(crate) fn begin_drain(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        lock(&self.on_drain).iter().for_each(|call| call());
    }

    /// Returns the reactor's back end and the reason for its selection.
    pub fn backend(&self) -> (Backend, &'static str) {
        (self.backend, self.backend_reason)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.metrics.len()
    }

    /// Returns the addresses of the listeners, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Address> {
        lock(&self.addresses).clone()
    }

    /// Returns the addresses of the admin listener.
    pub fn admin_addresses(&self) -> Vec<Address> {
        self.admin_addresses.clone()
    }

    /// Maximum number of connections.
    pub fn connections_limit(&self) -> usize {
        self.connections
    }

    /// Number of open connections, of all workers.
    pub fn connections(&self) -> i64 {
        self.metrics.iter().map(|worker| worker.open.value()).sum()
    }

    /// Number of requests since the start, of all workers.
    pub fn requests(&self) -> u64 {
        self.metrics.iter().map(|worker| worker.requests.value()).sum()
    }

    /// Start time, in seconds since 1970.
    pub fn started_unix_s(&self) -> u64 {
        self.started_s
    }

    /// Returns all figures of the engine and of the features.
    pub fn families(&self) -> Vec<Family> {
        self.sources().iter().flat_map(|source| source.families()).collect()
    }

    /// Returns the status of the source with this name.
    pub fn part(&self, name: &str) -> Option<serde_json::Value> {
        self.sources().iter().find(|source| source.name() == name)?.status()
    }

    /// Returns the sources in the order in which they are shown. If several sources have the same name, only the first is
    /// shown.
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

    /// Replaces the sources of the mounts.
    pub(crate) fn show(&self, points: &[MountPoint]) {
        *lock(&self.mounted) = points.iter().flat_map(|point| point.mount.sources()).collect();
    }
}
