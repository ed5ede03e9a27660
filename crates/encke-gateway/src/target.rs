//! The targets of an upstream: their addresses, connections and figures, shared by all workers. `balance.rs` chooses among them by
//! their `target_state.rs`.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::{Address, Done, lock};
use encke_session::tls::{Session, SessionError, Sessions};

use encke_settings::TargetUrl;

use crate::affinity::{TargetWish, stable_hash};
use crate::app_place::AppPlace;
use crate::balance_settings::Balance;
use crate::failure::{FailureReason, LastFailure};
use crate::fault::GatewayFault;
use crate::target_addresses::TargetAddresses;
use crate::target_state::{TargetPhase, TargetState, TargetUsage};

/// Time after which the name of a target is resolved again, in ns.
const RESOLVED_NS: u64 = 30 * 1_000_000_000;
/// The same while connections to it fail.
const FAILING_RESOLVED_NS: u64 = 1_000_000_000;

/// A set of targets that serve the same requests.
pub(crate) struct TargetSet {
    pub(crate) targets: Vec<UpstreamTarget>,
    pub(crate) balance: Balance,
    /// Number of the next choice.
    pub(crate) next: AtomicU32,
    /// The progress of the last target that was chosen in turn.
    pub(crate) progress: AtomicU64,
}

pub(crate) struct UpstreamTarget {
    url: TargetUrl,
    /// The name of the target in cookies, and its part in hashes.
    digest: u64,
    /// Share of the requests.
    pub(crate) weight: u32,
    /// Whether it gets requests only while all others fail.
    pub(crate) is_backup: bool,
    /// TLS to the application.
    sessions: Option<Arc<dyn Sessions>>,
    /// The process of a supervised application, in place of addresses.
    place: Option<Arc<AppPlace>>,
    addresses: Mutex<TargetAddresses>,
    /// The time at which the name was last resolved, in ns of the monotonic clock; 0 at the start.
    resolved_ns: AtomicU64,
    /// Requests in flight, of all workers.
    busy: AtomicU32,
    /// Connections that are open or being established, of all workers.
    open: AtomicU32,
    /// Shared with the targets before and after a reload, if they differ only in their authorities.
    pub(crate) state: Arc<TargetState>,
    /// Progress in turns.
    pub(crate) progress: AtomicU64,
    pub(crate) tally: TargetTally,
}

/// Figures of a target, of all workers.
#[derive(Default)]
pub(crate) struct TargetTally {
    /// Final responses by class, 2xx to 5xx.
    responses: [AtomicU64; 4],
    failures: AtomicU64,
    connects: AtomicU64,
    connect_ns: AtomicU64,
    /// From the request to the head of the final response.
    wait_ns: AtomicU64,
    /// Good and bad checks.
    checks: [AtomicU64; 2],
    ejections: AtomicU64,
    /// The last failure, and its time in ns of the monotonic clock. Responses never lock it.
    last_failure: Mutex<Option<(FailureReason, u64)>>,
}

impl TargetTally {
    /// A connection was established after `ns`.
    pub(crate) fn connected(&self, ns: u64) {
        self.connects.fetch_add(1, Ordering::Relaxed);
        self.connect_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The head of a final response has arrived `ns` after the request was sent.
    pub(crate) fn responded(&self, status: u16, ns: u64) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(2)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        self.wait_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn responses(&self) -> [u64; 4] {
        self.responses.each_ref().map(|class| class.load(Ordering::Relaxed))
    }

    /// A request, or a check if `reason` says so, has failed.
    pub(crate) fn failed(&self, now_ns: u64, reason: FailureReason) {
        if matches!(reason, FailureReason::Request(_)) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        *lock(&self.last_failure) = Some((reason, now_ns));
    }

    /// The last failure, if there was one.
    pub(crate) fn last_failure(&self, now_ns: u64) -> Option<LastFailure> {
        let (reason, at_ns) = (*lock(&self.last_failure))?;
        Some(LastFailure { reason, ago_ns: now_ns.saturating_sub(at_ns) })
    }

    /// Number of ejections.
    pub(crate) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// Mean times in seconds to establish a connection, and from a request to the head of its response; `None` without any.
    pub(crate) fn mean_seconds(&self) -> (Option<f64>, Option<f64>) {
        let (connect_s, wait_s) = self.seconds();
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        (mean(connect_s, self.connects()), mean(wait_s, self.responses().iter().sum()))
    }

    /// A check has ended.
    pub(crate) fn checked(&self, is_good: bool) {
        let [good, bad] = &self.checks;
        if is_good { good } else { bad }.fetch_add(1, Ordering::Relaxed);
    }

    /// Good and bad checks.
    pub(crate) fn checks(&self) -> [u64; 2] {
        self.checks.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Seconds spent on establishing connections, and on waiting for heads of responses.
    pub(crate) fn seconds(&self) -> (f64, f64) {
        let seconds = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e9;
        (seconds(&self.connect_ns), seconds(&self.wait_ns))
    }
}

/// A target before its first use.
pub(crate) struct NewTarget {
    pub(crate) url: TargetUrl,
    pub(crate) addresses: Vec<Address>,
    pub(crate) weight: u32,
    pub(crate) is_backup: bool,
    pub(crate) sessions: Option<Arc<dyn Sessions>>,
    pub(crate) place: Option<Arc<AppPlace>>,
}

impl TargetSet {
    /// Creates a set. `slow_start_ns`: time in which the share of a target rises after a recovery; 0: at once.
    pub(crate) fn new(targets: Vec<NewTarget>, balance: Balance, slow_start_ns: u64) -> Self {
        let targets =
            targets.into_iter().map(|NewTarget { url, addresses, weight, is_backup, sessions, place }| {
                UpstreamTarget {
                    digest: stable_hash(url.to_string().as_bytes()),
                    url,
                    weight,
                    is_backup,
                    sessions,
                    place,
                    addresses: Mutex::new(TargetAddresses::new(addresses)),
                    resolved_ns: AtomicU64::new(0),
                    busy: AtomicU32::new(0),
                    open: AtomicU32::new(0),
                    state: Arc::new(TargetState::new(slow_start_ns)),
                    progress: AtomicU64::new(0),
                    tally: TargetTally::default(),
                }
            });
        Self { targets: targets.collect(), balance, next: AtomicU32::new(0), progress: AtomicU64::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&UpstreamTarget> {
        self.targets.get(index)
    }

    /// Further addresses of a single target: a request that finds no connection tries each of them.
    pub(crate) fn spare_addresses(&self) -> u32 {
        match &self.targets[..] {
            [target] => u32::try_from(target.addresses().saturating_sub(1)).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    /// Whether there is a target that a request has not tried, and may try.
    pub(crate) fn has_other(&self, wish: &TargetWish) -> bool {
        let mut targets = self.targets.iter().enumerate();
        targets.any(|(index, target)| !wish.has_tried(index) && !target.state.is_drained())
    }

    /// The target with this digest.
    pub(crate) fn find_digest(&self, digest: u64) -> Option<u8> {
        self.targets.iter().position(|target| target.digest == digest).map(|index| index as u8)
    }
}

impl UpstreamTarget {
    pub(crate) const fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// The name of the target in cookies: it depends on its URL only, and does not show it.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Begins TLS to the application, if its URL says so.
    ///
    /// # Errors
    /// No certificate can have the target's name.
    pub(crate) fn session(&self) -> Result<Option<Box<dyn Session>>, SessionError> {
        self.sessions.as_ref().map(|sessions| sessions.begin()).transpose()
    }

    /// Returns the address for the `attempt`th attempt of a check to connect.
    pub(crate) fn address(&self, attempt: usize) -> Option<Address> {
        if let Some(place) = &self.place {
            return place.use_now().map(|used| used.address());
        }
        let addresses = lock(&self.addresses);
        let count = addresses.len().max(1);
        addresses.get(attempt % count).cloned()
    }

    /// The address for the next connection, and the most time to establish it: see [`TargetAddresses::next`].
    pub(crate) fn next_address(&self, now_ns: u64, connect_ns: u64) -> Option<(Address, u64)> {
        lock(&self.addresses).next(now_ns, connect_ns)
    }

    /// No connection to an address was established. Returns whether no other address is left.
    pub(crate) fn address_failed(&self, address: &Address, now_ns: u64) -> bool {
        lock(&self.addresses).failed(address, now_ns)
    }

    /// A connection to an address was established.
    pub(crate) fn address_works(&self, address: &Address) {
        lock(&self.addresses).works(address);
    }

    /// The process of a supervised application; `None` for a target with addresses.
    pub(crate) const fn place(&self) -> Option<&Arc<AppPlace>> {
        self.place.as_ref()
    }

    /// Whether the target may get a new request now.
    pub(crate) fn usage(&self, now_ns: u64) -> TargetUsage {
        match &self.place {
            // A process may be ready at any moment.
            Some(place) if !place.is_ready() => self.state.usage(now_ns).max(TargetUsage::Last),
            _ => self.state.usage(now_ns),
        }
    }

    /// The state for an operator.
    pub(crate) fn phase(&self, now_ns: u64) -> TargetPhase {
        match (&self.place, self.state.phase(now_ns)) {
            (Some(place), phase) if phase != TargetPhase::Drained && !place.is_ready() => {
                TargetPhase::NotReady
            }
            (_, phase) => phase,
        }
    }

    /// Number of addresses.
    pub(crate) fn addresses(&self) -> usize {
        lock(&self.addresses).len()
    }

    /// Takes the result of a job that has resolved the name again. If it could not be resolved, its last addresses stay in use.
    pub(crate) fn resolved(&self, done: Option<Done>) {
        let found = done.and_then(|done| done.downcast::<io::Result<Vec<Address>>>().ok());
        if let Some(Ok(addresses)) = found.map(|result| *result) {
            lock(&self.addresses).replace(addresses);
        }
    }

    /// Whether the name is to be resolved again now. If so, the caller does it, and no other worker.
    pub(crate) fn must_resolve(&self, now_ns: u64, is_failing: bool) -> bool {
        if !self.url.is_name() {
            return false;
        }
        let before_ns = self.resolved_ns.load(Ordering::Relaxed);
        if before_ns == 0 && !is_failing {
            // The name was resolved at the start.
            let _ = self.resolved_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        let after_ns = if is_failing { FAILING_RESOLVED_NS } else { RESOLVED_NS };
        now_ns.saturating_sub(before_ns) >= after_ns
            && self
                .resolved_ns
                .compare_exchange(before_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Connections that are open or being established, of all workers.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::SeqCst)
    }

    /// Counts a connection, unless there are `most` already; 0: without a limit.
    pub(crate) fn open_one(&self, most: u32) -> bool {
        let add = |open: u32| (most == 0 || open < most).then(|| open.saturating_add(1));
        self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
    }

    /// A connection is closed.
    pub(crate) fn close_one(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Requests in progress, of all workers.
    pub(crate) fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// The target has responded. Returns whether it had been left out.
    pub(crate) fn succeeded(&self, now_ns: u64) -> bool {
        self.state.succeeded(now_ns)
    }

    /// A request has failed without a response. Returns whether this ejects the target.
    pub(crate) fn failed(&self, now_ns: u64, fault: GatewayFault) -> bool {
        self.tally.failed(now_ns, FailureReason::Request(fault));
        let ejects = self.state.failed(now_ns);
        if ejects {
            self.tally.ejections.fetch_add(1, Ordering::Relaxed);
        }
        ejects
    }
}
