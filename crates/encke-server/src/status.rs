//! The status of a running server: its counts and its present state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::{Address, Backend, lock};
use encke_stats::{Family, Gathered, ListTicket, Query, Source, Ticket};

use crate::command::WorkerQueues;

use crate::listener::ListenerIdentity;
use crate::log::{AccessLog, LogTail, TailFilter};
use crate::metrics::WorkerMetrics;
use crate::operate::{ActionResult, ActionValue, FeatureVerbs, OperatorCommand, RuleStep, merge_results};
use crate::plan::MountPoint;
use crate::request::Kept;

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
    pub(crate) log: AccessLog,
    pub(crate) queues: Arc<WorkerQueues>,
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

    /// Whether connections to a listener's address use TLS.
    pub fn is_secure(&self, address: &Address) -> bool {
        lock(&self.identities).iter().any(|named| named.bound == *address)
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

    /// Returns the names of the lists, in the order of [`ServerStatus::sources`].
    pub fn list_names(&self) -> Vec<&'static str> {
        let sources = self.sources();
        let listing = sources.iter().filter(|source| !source.columns().is_empty());
        listing.map(|source| source.name()).collect()
    }

    /// Returns the columns of the list with this name.
    pub fn columns(&self, name: &str) -> Option<&'static [&'static str]> {
        let sources = self.sources();
        let columns = sources.iter().find(|source| source.name() == name)?.columns();
        (!columns.is_empty()).then_some(columns)
    }

    /// Requests the rows of a list. Returns false if no list has this name.
    pub fn list(&self, name: &str, query: &Query, ticket: ListTicket) -> bool {
        let sources = self.sources();
        let source = sources.iter().find(|source| source.name() == name && !source.columns().is_empty());
        source.map(|source| source.list(query, ticket)).is_some()
    }

    /// Begins a live view of the access log, even if the log is off. A worker calls `wake` when an entry arrives after
    /// [`LogTail::try_next`] found none; `wake` must not block. Returns `None` at the limit of tails.
    pub fn tail(&self, filter: TailFilter, wake: impl Fn() + Send + Sync + 'static) -> Option<LogTail> {
        self.log.tail(filter, wake)
    }

    /// Requests the verbs of all features.
    pub fn verbs(&self, ticket: Ticket<Vec<FeatureVerbs>>) {
        self.queues.order(0, OperatorCommand::Verbs(ticket));
    }

    /// Performs an operator's action on all workers and merges their results.
    pub fn act(&self, feature: &str, verb: &str, value: ActionValue, ticket: Ticket<ActionResult>) {
        let (feature, verb, value) = (Arc::from(feature), Arc::from(verb), Arc::new(value));
        let parts = Gathered::new(ticket, merge_results);
        self.queues.order_all(|| OperatorCommand::Act {
            feature: Arc::clone(&feature),
            verb: Arc::clone(&verb),
            value: Arc::clone(&value),
            parts: parts.clone(),
        });
    }

    /// Requests the rules that apply to a request, in order.
    pub fn explain(&self, request: Kept, ticket: Ticket<Vec<RuleStep>>) {
        self.queues.order(0, OperatorCommand::Explain(Box::new(request), ticket));
    }

    /// Replaces the sources of the mounts.
    pub(crate) fn show(&self, points: &[MountPoint]) {
        *lock(&self.mounted) = points.iter().flat_map(|point| point.mount.sources()).collect();
    }
}
