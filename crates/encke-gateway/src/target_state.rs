//! Whether a target gets new requests, and why not: one rule for all reasons, shared by all workers.
//!
//! ```text
//!  mark       set by                       cleared by                    new requests
//!  DRAINED    an operator                  the operator                  none
//!  FAILING    `fall` bad checks in a row   `rise` good checks in a row   only if no other target is left
//!  EJECTED    3 failed requests in a row   a response; it ends by itself only if no other target is left
//!  SLOW       the end of the three above   the end of `slow_start`       fewer, from 10 % to 100 % of its share
//! ```
//! A target without a mark is as good as any other, and one load finds that out. A further reason is one more mark, with its rule
//! in [`TargetState::usage`].

use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Failures in a row after which a target is ejected.
const FAILURES_MAX: u32 = 3;
/// Time for which a target is ejected first, and at most, in ns.
pub(crate) const EJECTED_NS: u64 = 1_000_000_000;
pub(crate) const EJECTED_NS_MAX: u64 = 30 * EJECTED_NS;

/// The whole share of a target, in thousandths.
pub(crate) const WHOLE_SHARE: u64 = 1_000;
/// The share at the beginning of a slow start.
const FIRST_SHARE: u64 = 100;

const DRAINED: u8 = 1;
const FAILING: u8 = 2;
const EJECTED: u8 = 4;
const SLOW: u8 = 8;

/// The state of a target.
#[derive(Default)]
pub(crate) struct TargetState {
    marks: AtomicU8,
    /// Failures since the last response.
    failures: AtomicU32,
    /// The time until which the target is ejected, in ns of the monotonic clock.
    ejected_until_ns: AtomicU64,
    /// The time at which a slow start begins, in ns of the monotonic clock.
    slow_from_ns: AtomicU64,
    /// Length of a slow start in ns; 0: there is none.
    slow_start_ns: u64,
    /// Good checks in a row, or bad ones as a negative number; 0 before the first check.
    streak: AtomicI32,
}

/// The use of a target for new requests, in order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TargetUsage {
    Normal,
    /// Only if no other target is left.
    Last,
    None,
}

/// The state of a target for an operator: the first reason that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetPhase {
    Drained,
    /// A supervised application without a process that responds.
    NotReady,
    Failing,
    Ejected,
    SlowStart,
    Up,
}

impl TargetPhase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::NotReady => "not ready",
            Self::Failing => "failing check",
            Self::Ejected => "ejected",
            Self::SlowStart => "slow start",
            Self::Up => "up",
        }
    }
}

impl TargetState {
    /// A state without a mark. `slow_start_ns`: see [`TargetState::share`].
    pub(crate) fn new(slow_start_ns: u64) -> Self {
        Self { slow_start_ns, ..Self::default() }
    }

    fn has(&self, mark: u8) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }

    /// Whether the target may get a new request now.
    pub(crate) fn usage(&self, now_ns: u64) -> TargetUsage {
        let marks = self.marks.load(Ordering::Relaxed);
        if marks == 0 {
            TargetUsage::Normal
        } else if marks & DRAINED != 0 {
            TargetUsage::None
        } else if marks & FAILING != 0 || self.ejected_ns(now_ns) > 0 {
            TargetUsage::Last
        } else {
            TargetUsage::Normal
        }
    }

    pub(crate) fn phase(&self, now_ns: u64) -> TargetPhase {
        if self.is_drained() {
            TargetPhase::Drained
        } else if self.has(FAILING) {
            TargetPhase::Failing
        } else if self.ejected_ns(now_ns) > 0 {
            TargetPhase::Ejected
        } else if self.share(now_ns) < WHOLE_SHARE {
            TargetPhase::SlowStart
        } else {
            TargetPhase::Up
        }
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.has(FAILING)
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.has(DRAINED)
    }

    /// Time until the end of the ejection in ns; 0 if the target is not ejected.
    pub(crate) fn ejected_ns(&self, now_ns: u64) -> u64 {
        if !self.has(EJECTED) {
            return 0;
        }
        self.ejected_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns)
    }

    /// When the target gets requests again, if nothing else withholds them: a slow start begins then, not within the ejection.
    fn returns_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.ejected_ns(now_ns))
    }

    /// The part of its share of the load that the target gets now, in thousandths: after a recovery it rises from 10 % to 100 %.
    pub(crate) fn share(&self, now_ns: u64) -> u64 {
        if !self.has(SLOW) {
            return WHOLE_SHARE;
        }
        let from_ns = self.slow_from_ns.load(Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(from_ns);
        if since_ns < self.slow_start_ns {
            let rise = u128::from(WHOLE_SHARE - FIRST_SHARE) * u128::from(since_ns);
            return FIRST_SHARE + (rise / u128::from(self.slow_start_ns)) as u64;
        }
        self.marks.fetch_and(!SLOW, Ordering::Relaxed);
        if self.slow_from_ns.load(Ordering::Relaxed) != from_ns {
            // The target has failed meanwhile on another worker.
            self.marks.fetch_or(SLOW, Ordering::Relaxed);
        }
        WHOLE_SHARE
    }

    /// Lets a slow start begin at `from_ns`.
    fn slow_from(&self, from_ns: u64) {
        if self.slow_start_ns > 0 {
            self.slow_from_ns.store(from_ns, Ordering::Relaxed);
            self.marks.fetch_or(SLOW, Ordering::Relaxed);
        }
    }

    /// The target has responded. Returns whether it had been ejected.
    pub(crate) fn succeeded(&self, now_ns: u64) -> bool {
        // A load is cheaper than a store to a line that other workers read.
        let failures = self.failures.load(Ordering::Relaxed);
        if failures == 0 {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        if self.ejected_ns(now_ns) > 0 {
            self.slow_from(now_ns);
        }
        self.ejected_until_ns.store(0, Ordering::Relaxed);
        self.marks.fetch_and(!EJECTED, Ordering::Relaxed);
        failures >= FAILURES_MAX
    }

    /// A request has failed without a response. Returns whether this ejects the target.
    pub(crate) fn failed(&self, now_ns: u64) -> bool {
        if self.ejected_ns(now_ns) > 0 {
            // Requests that were in progress when it failed say nothing new.
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let Some(over) = failures.checked_sub(FAILURES_MAX) else { return false };
        // Five doublings reach the maximum.
        let time_ns = (EJECTED_NS << over.min(5)).min(EJECTED_NS_MAX);
        let until_ns = now_ns.saturating_add(time_ns);
        self.ejected_until_ns.store(until_ns, Ordering::Relaxed);
        self.slow_from(until_ns);
        self.marks.fetch_or(EJECTED, Ordering::Relaxed);
        true
    }

    /// A check has ended: `rise` or `fall` equal results in a row decide. Returns whether the target is good now, if that has changed.
    /// Only one worker checks a target.
    pub(crate) fn checked(&self, is_good: bool, (rise, fall): (u16, u16), now_ns: u64) -> Option<bool> {
        let before = self.streak.load(Ordering::Relaxed);
        let streak = match (is_good, before) {
            (true, 1..) => before.saturating_add(1),
            (true, _) => 1,
            (false, ..=-1) => before.saturating_sub(1),
            (false, _) => -1,
        };
        self.streak.store(streak, Ordering::Relaxed);
        let is_failing = self.has(FAILING);
        let needed = i32::from(if is_good { rise } else { fall });
        if is_good != is_failing || streak.saturating_abs() < needed {
            return None;
        }
        if is_good {
            self.slow_from(self.returns_ns(now_ns));
            self.marks.fetch_and(!FAILING, Ordering::Relaxed);
        } else {
            self.marks.fetch_or(FAILING, Ordering::Relaxed);
        }
        Some(is_good)
    }

    /// Withholds new requests. Returns false if they were withheld before.
    pub(crate) fn drain(&self) -> bool {
        self.marks.fetch_or(DRAINED, Ordering::SeqCst) & DRAINED == 0
    }

    /// Ends [`TargetState::drain`]. Returns false if the target was not drained.
    pub(crate) fn resume(&self, now_ns: u64) -> bool {
        if !self.is_drained() {
            return false;
        }
        self.slow_from(self.returns_ns(now_ns));
        self.marks.fetch_and(!DRAINED, Ordering::SeqCst) & DRAINED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_reason_withholds_requests_in_its_own_way() {
        let state = TargetState::new(0);
        assert_eq!((state.usage(0), state.phase(0)), (TargetUsage::Normal, TargetPhase::Up));
        assert!((0..3).any(|_| state.failed(0)));
        assert_eq!((state.usage(0), state.phase(0)), (TargetUsage::Last, TargetPhase::Ejected));
        assert_eq!(state.usage(SECOND), TargetUsage::Normal, "the ejection is over");
        assert_eq!(state.checked(false, (2, 1), 0), Some(false));
        assert_eq!((state.usage(SECOND), state.phase(0)), (TargetUsage::Last, TargetPhase::Failing));
        assert!(state.drain() && !state.drain());
        assert_eq!((state.usage(0), state.phase(0)), (TargetUsage::None, TargetPhase::Drained));
        assert!(state.resume(0) && !state.resume(0));
        assert_eq!(state.usage(SECOND), TargetUsage::Last, "its checks still fail");
    }

    #[test]
    fn checks_count_in_rows_of_equal_results() {
        let state = TargetState::new(0);
        let checks = [
            (true, None),
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(false)),
            (false, None),
            (true, None),
            (false, None),
            (true, None),
            (true, Some(true)),
            (true, None),
        ];
        for (number, (is_good, changed)) in checks.into_iter().enumerate() {
            assert_eq!(state.checked(is_good, (2, 3), 0), changed, "check {number}");
        }
        let state = TargetState::new(0);
        assert_eq!(state.checked(true, (2, 3), 0), None, "a new target was used before its first check");
    }

    #[test]
    fn a_share_rises_after_each_kind_of_recovery() {
        let shares = |state: &TargetState, from_ns: u64| {
            [0, 5, 10, 20].map(|seconds| state.share(from_ns + seconds * SECOND))
        };
        let ramp = [100, 550, 1_000, 1_000];
        let state = TargetState::new(10 * SECOND);
        assert_eq!(state.share(0), WHOLE_SHARE, "a new target");
        assert!((0..3).any(|_| state.failed(0)));
        assert_eq!(shares(&state, SECOND), ramp, "after an ejection");
        assert!(state.failed(100 * SECOND));
        assert!(state.succeeded(100 * SECOND), "a response before its end");
        assert_eq!(shares(&state, 100 * SECOND), ramp);
        assert_eq!(state.checked(false, (1, 1), 0), Some(false));
        assert_eq!(state.checked(true, (1, 1), 200 * SECOND), Some(true));
        assert_eq!(state.phase(200 * SECOND), TargetPhase::SlowStart);
        assert_eq!(shares(&state, 200 * SECOND), ramp, "after checks");
        assert!(state.drain() && state.resume(300 * SECOND));
        assert_eq!(shares(&state, 300 * SECOND), ramp, "after a drain");
        assert!((0..3).any(|_| state.failed(400 * SECOND)));
        assert_eq!(state.checked(false, (1, 1), 400 * SECOND), Some(false));
        assert_eq!(state.checked(true, (1, 1), 400 * SECOND), Some(true));
        assert_eq!(shares(&state, 401 * SECOND), ramp, "after an ejection that good checks do not end");
        assert!(state.failed(500 * SECOND) && state.drain() && state.resume(500 * SECOND));
        assert_eq!(shares(&state, 502 * SECOND), ramp, "after an ejection that a drain does not end");
        let state = TargetState::new(0);
        assert!((0..3).any(|_| state.failed(0)));
        assert_eq!(shares(&state, SECOND), [WHOLE_SHARE; 4], "without a slow start");
    }
}
