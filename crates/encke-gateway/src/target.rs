//! The targets of an upstream: their addresses, load and health, shared by all workers.
//!
//! ```text
//!  choose: not ejected, not tried yet ─► least requests in flight, then round robin      all ejected ─► the first to return
//!  failed ×3 ─► ejected for 1 s, 2 s, 4 s … 30 s          a response ─► healthy
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use encke_io::{Address, lock};

use crate::target_url::TargetUrl;

/// Failures in a row after which a target is ejected.
const FAILURES_MAX: u32 = 3;
/// Time after which the name of a target is resolved again, in ns.
const RESOLVED_NS: u64 = 30 * 1_000_000_000;
/// The same while connections to it fail.
const FAILING_RESOLVED_NS: u64 = 1_000_000_000;
/// Time for which a target is ejected first, and at most, in ns.
const EJECTED_NS: u64 = 1_000_000_000;
const EJECTED_NS_MAX: u64 = 30 * EJECTED_NS;

/// A set of targets that serve the same requests.
pub(crate) struct TargetSet {
    targets: Vec<Target>,
    /// The target at which the next search begins.
    next: AtomicU32,
}

pub(crate) struct Target {
    url: TargetUrl,
    /// The addresses of the target, in order of preference.
    addresses: Mutex<Vec<Address>>,
    /// The time at which the name was last resolved, in ns of the monotonic clock; 0 at the start.
    resolved_ns: AtomicU64,
    /// Requests in flight, of all workers.
    busy: AtomicU32,
    /// Failures since the last response.
    failures: AtomicU32,
    /// The time until which the target is ejected, in ns of the monotonic clock.
    ejected_until_ns: AtomicU64,
}

impl TargetSet {
    pub(crate) fn new(targets: Vec<(TargetUrl, Vec<Address>)>) -> Self {
        let targets = targets.into_iter().map(|(url, addresses)| Target {
            url,
            addresses: Mutex::new(addresses),
            resolved_ns: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejected_until_ns: AtomicU64::new(0),
        });
        Self { targets: targets.collect(), next: AtomicU32::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Target> {
        self.targets.get(index)
    }

    /// Chooses the target of a request: of those that `tried` does not contain, the one with the fewest requests in flight.
    /// Ejected targets are only used if there is no other one.
    pub(crate) fn choose(&self, tried: u64, now_ns: u64) -> Option<usize> {
        let count = self.targets.len();
        if count == 1 {
            return (tried == 0).then_some(0);
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let order = (0..count).map(|offset| (first + offset) % count);
        order.filter(|index| tried & (1 << index) == 0).min_by_key(|index| {
            let target = &self.targets[*index];
            let ejected_ns = target.ejected_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
            (ejected_ns, target.busy.load(Ordering::Relaxed))
        })
    }
}

impl Target {
    pub(crate) const fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Returns the address for the `attempt`th attempt to connect.
    pub(crate) fn address(&self, attempt: usize) -> Option<Address> {
        let addresses = lock(&self.addresses);
        let count = addresses.len().max(1);
        addresses.get(attempt % count).cloned()
    }

    /// Replaces the addresses, after a name was resolved again.
    pub(crate) fn set_addresses(&self, addresses: Vec<Address>) {
        *lock(&self.addresses) = addresses;
    }

    /// Whether the name is to be resolved again now. If so, the caller does it, and no other worker.
    pub(crate) fn must_resolve(&self, now_ns: u64, is_failing: bool) -> bool {
        if !self.url.is_name() {
            return false;
        }
        let before_ns = self.resolved_ns.load(Ordering::Relaxed);
        if before_ns == 0 && !is_failing {
            // It was resolved at the start.
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

    pub(crate) fn begin(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// The target has responded.
    pub(crate) fn succeeded(&self) {
        // A load is cheaper than a store to a line that other workers read.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.ejected_until_ns.store(0, Ordering::Relaxed);
        }
    }

    /// A request has failed without a response. Returns whether this ejects the target.
    pub(crate) fn failed(&self, now_ns: u64) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let Some(over) = failures.checked_sub(FAILURES_MAX) else { return false };
        let time_ns = EJECTED_NS.checked_shl(over).unwrap_or(EJECTED_NS_MAX).min(EJECTED_NS_MAX);
        self.ejected_until_ns.store(now_ns.saturating_add(time_ns), Ordering::Relaxed);
        true
    }
}
