//! The targets of an upstream: their addresses, load and health, shared by all workers.
//!
//! ```text
//!  choose: not ejected, not tried yet ─► least requests in flight, then round robin      all ejected ─► the first to return
//!          none of these has a free permit ─► the request waits: neither a backup nor an ejected target replaces a busy one
//!  failed ×3 ─► ejected for 1 s, 2 s, 4 s … 30 s          a response ─► healthy
//! ```

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use encke_io::{Address, Done, lock};
use encke_session::tls::{Session, SessionError, Sessions};

use encke_settings::TargetUrl;

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
    targets: Vec<UpstreamTarget>,
    /// The target at which the next search begins.
    next: AtomicU32,
}

pub(crate) struct UpstreamTarget {
    url: TargetUrl,
    /// Share of the requests.
    weight: u32,
    /// Whether it gets requests only while all others fail.
    is_backup: bool,
    /// TLS to the application.
    sessions: Option<Arc<dyn Sessions>>,
    /// The addresses of the target, in order of preference.
    addresses: Mutex<Vec<Address>>,
    /// The time at which the name was last resolved, in ns of the monotonic clock; 0 at the start.
    resolved_ns: AtomicU64,
    /// Requests in flight, of all workers.
    busy: AtomicU32,
    /// Connections that are open or being established, of all workers.
    open: AtomicU32,
    /// Failures since the last response.
    failures: AtomicU32,
    /// The time until which the target is ejected, in ns of the monotonic clock.
    ejected_until_ns: AtomicU64,
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
}

impl TargetSet {
    pub(crate) fn new(targets: Vec<NewTarget>) -> Self {
        let targets = targets.into_iter().map(|NewTarget { url, addresses, weight, is_backup, sessions }| {
            UpstreamTarget {
                url,
                weight,
                is_backup,
                sessions,
                addresses: Mutex::new(addresses),
                resolved_ns: AtomicU64::new(0),
                busy: AtomicU32::new(0),
                open: AtomicU32::new(0),
                failures: AtomicU32::new(0),
                ejected_until_ns: AtomicU64::new(0),
                tally: TargetTally::default(),
            }
        });
        Self { targets: targets.collect(), next: AtomicU32::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&UpstreamTarget> {
        self.targets.get(index)
    }

    /// Whether there is a target that a request has not tried.
    pub(crate) fn has_other(&self, tried: u64) -> bool {
        (0..self.targets.len()).any(|index| tried & (1 << index) == 0)
    }

    /// Chooses the target of a request: the one with the fewest requests in progress for its weight, among `free` targets that
    /// `tried` does not contain. Equal targets take turns by their weights. A backup is used only if all other targets are ejected
    /// or tried, and an ejected target only if no other one is left.
    pub(crate) fn choose(&self, tried: u64, now_ns: u64, free: impl Fn(usize) -> bool) -> TargetChoice {
        let count = self.targets.len();
        let Some(rank) = self.best_rank(tried, now_ns) else { return TargetChoice::None };
        if count == 1 {
            return if free(0) { TargetChoice::Free(0) } else { TargetChoice::Busy };
        }
        // A backup has no turns of its own.
        let share = |target: &UpstreamTarget| if target.is_backup { 0 } else { target.weight };
        let total: u32 = self.targets.iter().map(share).sum();
        let mut turn = self.next.fetch_add(1, Ordering::Relaxed) % total.max(1);
        let first = self.targets.iter().position(|target| {
            let is_first = turn < share(target);
            turn = turn.saturating_sub(share(target));
            is_first
        });
        let first = first.unwrap_or(0);
        let order = (0..count).map(|offset| (first + offset) % count);
        let chosen = order
            .filter(|index| tried & (1 << index) == 0)
            .filter(|index| self.targets[*index].rank(now_ns) == rank && free(*index))
            .min_by_key(|index| {
                let target = &self.targets[*index];
                let ejected_ns = target.ejected_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
                let busy = u64::from(target.busy.load(Ordering::Relaxed));
                (ejected_ns, target.is_backup, (busy << 16) / u64::from(target.weight.max(1)))
            });
        chosen.map_or(TargetChoice::Busy, TargetChoice::Free)
    }

    /// Whether [`TargetSet::choose`] may choose a target, if it is free.
    pub(crate) fn is_choice(&self, tried: u64, index: usize, now_ns: u64) -> bool {
        let rank = self.get(index).map(|target| target.rank(now_ns));
        tried & (1 << index) == 0 && rank.is_some() && rank == self.best_rank(tried, now_ns)
    }

    /// The lowest rank of the targets that `tried` does not contain.
    fn best_rank(&self, tried: u64, now_ns: u64) -> Option<u8> {
        let targets = self.targets.iter().enumerate().filter(|(index, _)| tried & (1 << index) == 0);
        targets.map(|(_, target)| target.rank(now_ns)).min()
    }
}

/// The target for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetChoice {
    Free(usize),
    /// All targets that the request may go to are busy.
    Busy,
    /// The request has tried all targets.
    None,
}

impl TargetChoice {
    /// The target, if there is one.
    pub(crate) fn free(self) -> Option<usize> {
        if let Self::Free(target) = self { Some(target) } else { None }
    }
}

impl UpstreamTarget {
    pub(crate) const fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Begins TLS to the application, if its URL says so.
    ///
    /// # Errors
    /// No certificate can have the target's name.
    pub(crate) fn session(&self) -> Result<Option<Box<dyn Session>>, SessionError> {
        self.sessions.as_ref().map(|sessions| sessions.begin()).transpose()
    }

    /// Returns the address for the `attempt`th attempt to connect.
    pub(crate) fn address(&self, attempt: usize) -> Option<Address> {
        let addresses = lock(&self.addresses);
        let count = addresses.len().max(1);
        addresses.get(attempt % count).cloned()
    }

    /// Takes the result of a job that has resolved the name again. If it could not be resolved, its last addresses stay in use.
    pub(crate) fn resolved(&self, done: Option<Done>) {
        let found = done.and_then(|done| done.downcast::<io::Result<Vec<Address>>>().ok());
        if let Some(Ok(addresses)) = found.map(|result| *result) {
            *lock(&self.addresses) = addresses;
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

    /// The order of preference: 0, backups 1, ejected targets 2.
    fn rank(&self, now_ns: u64) -> u8 {
        if self.is_ejected(now_ns) { 2 } else { u8::from(self.is_backup) }
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

    /// Whether the target is left out.
    pub(crate) fn is_ejected(&self, now_ns: u64) -> bool {
        self.ejected_until_ns.load(Ordering::Relaxed) > now_ns
    }

    /// The target has responded. Returns whether it had been left out.
    pub(crate) fn succeeded(&self) -> bool {
        // A load is cheaper than a store to a line that other workers read.
        let failures = self.failures.load(Ordering::Relaxed);
        if failures != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.ejected_until_ns.store(0, Ordering::Relaxed);
        }
        failures >= FAILURES_MAX
    }

    /// A request has failed without a response. Returns whether this ejects the target.
    pub(crate) fn failed(&self, now_ns: u64) -> bool {
        self.tally.failures.fetch_add(1, Ordering::Relaxed);
        if self.is_ejected(now_ns) {
            // Requests that were in progress when it failed say nothing new.
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let Some(over) = failures.checked_sub(FAILURES_MAX) else { return false };
        // Five doublings reach the maximum.
        let time_ns = (EJECTED_NS << over.min(5)).min(EJECTED_NS_MAX);
        self.ejected_until_ns.store(now_ns.saturating_add(time_ns), Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(backup: &[bool]) -> TargetSet {
        let target = |is_backup: &bool| NewTarget {
            url: "3000".parse().expect("a URL"),
            addresses: Vec::new(),
            weight: 1,
            is_backup: *is_backup,
            sessions: None,
        };
        TargetSet::new(backup.iter().map(target).collect())
    }

    /// Chooses among targets of which all are free.
    fn choose(targets: &TargetSet, tried: u64, now_ns: u64) -> Option<usize> {
        targets.choose(tried, now_ns, |_| true).free()
    }

    #[test]
    fn requests_go_where_the_fewest_are_and_take_turns() {
        let targets = targets(&[false, false, false]);
        let turns: Vec<_> = (0..6).filter_map(|_| choose(&targets, 0, 0)).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        targets.get(1).expect("a target").begin();
        assert!((0..6).all(|_| choose(&targets, 0, 0) != Some(1)));
        assert_eq!(choose(&targets, 0b101, 0), Some(1), "the others have failed");
        assert_eq!(choose(&targets, 0b111, 0), None);
    }

    #[test]
    fn a_weight_is_a_share_of_turns_and_of_load() {
        let mut targets = targets(&[false, false, true]);
        targets.targets[0].weight = 3;
        let turns: Vec<_> = (0..8).filter_map(|_| choose(&targets, 0, 0)).collect();
        assert_eq!(turns, [0, 0, 0, 1, 0, 0, 0, 1]);
        (0..2).for_each(|_| targets.targets[0].begin());
        targets.targets[1].begin();
        assert!((0..8).all(|_| choose(&targets, 0, 0) == Some(0)), "2 of 3 are less than 1 of 1");
    }

    #[test]
    fn a_target_that_fails_is_ejected_for_longer_each_time_and_returns() {
        const SECOND: u64 = EJECTED_NS;
        let targets = targets(&[false, true]);
        assert_eq!(choose(&targets, 0, 0), Some(0), "the other one is a backup");
        let target = targets.get(0).expect("a target");
        assert_eq!((0..4).map(|_| target.failed(0)).collect::<Vec<_>>(), [false, false, true, false]);
        for (now_ns, chosen) in [(0, 1), (SECOND - 1, 1), (SECOND, 0)] {
            assert_eq!(choose(&targets, 0, now_ns), Some(chosen), "at {now_ns} ns");
        }
        assert!(target.failed(SECOND), "each failure after its return ejects it again");
        for (now_ns, chosen) in [(3 * SECOND - 1, 1), (3 * SECOND, 0)] {
            assert_eq!(choose(&targets, 0, now_ns), Some(chosen), "at {now_ns} ns");
        }
        let mut now_ns = 3 * SECOND;
        for _ in 0..60 {
            assert!(target.failed(now_ns));
            now_ns += EJECTED_NS_MAX;
        }
        assert_eq!(choose(&targets, 0, now_ns - 1), Some(1));
        assert_eq!(choose(&targets, 0, now_ns), Some(0));
        assert!(target.succeeded(), "it had been left out");
        assert!(!target.succeeded());
        assert_eq!(choose(&targets, 0, 0), Some(0));
    }

    #[test]
    fn no_backup_or_ejected_target_replaces_a_busy_one() {
        let targets = targets(&[false, false, true]);
        let only = |free: usize| targets.choose(0, 0, move |target| target == free);
        assert_eq!(only(1), TargetChoice::Free(1));
        assert_eq!(only(2), TargetChoice::Busy, "the backup is free");
        assert!((0..3).any(|_| targets.get(1).expect("a target").failed(0)));
        assert_eq!(only(1), TargetChoice::Busy, "the ejected target is free");
        assert!(targets.is_choice(0, 0, 0) && !targets.is_choice(0, 1, 0) && !targets.is_choice(0, 2, 0));
        assert!((0..3).any(|_| targets.get(0).expect("a target").failed(0)));
        assert_eq!(only(2), TargetChoice::Free(2), "all others are ejected");
        assert_eq!(targets.choose(0b111, 0, |_| true), TargetChoice::None);
    }
}
