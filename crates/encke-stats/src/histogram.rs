//! Histograms of durations in nanoseconds: logarithmic octaves, each divided into 64 equal buckets.
//!
//! ```text
//! value   0 1 2 … 63 │ 64 65 … 127 │ 128 130 132 … 254 │ 256 260 … 508 │ …          2⁶⁴
//! width        1     │      1      │         2         │       4       │ …
//! ```
//! The error of a value is at most 1/64 of it (1.6 %) over all of `u64`. The 59 × 64 buckets of 8 bytes take 30 KiB.
//!
//! A thread records into a [`Histogram`]. A [`Distribution`] is a copy of it, to merge and to query.

use std::fmt;

use crate::cell::Counter;

/// Buckets in an octave, as a power of two.
const PRECISION_BITS: u32 = 6;
const BUCKETS_PER_OCTAVE: usize = 1 << PRECISION_BITS;
/// The first 64 values have a bucket each; each of the 58 octaves from 2⁶ has 64 more.
const BUCKETS: usize = (64 - PRECISION_BITS as usize + 1) * BUCKETS_PER_OCTAVE;

/// A histogram that one thread writes and any thread reads.
pub struct Histogram {
    buckets: Box<[Counter]>,
    sum_ns: Counter,
    max_ns: Counter,
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Counter::new()).collect(),
            sum_ns: Counter::new(),
            max_ns: Counter::new(),
        }
    }

    /// Records a duration.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.buckets[bucket(ns)].increment();
        self.sum_ns.add(ns);
        if ns > self.max_ns.value() {
            self.max_ns.set(ns);
        }
    }

    /// Records `count` equal durations.
    #[inline]
    pub fn record_many(&self, ns: u64, count: u64) {
        self.buckets[bucket(ns)].add(count);
        self.sum_ns.add(ns.saturating_mul(count));
        if count > 0 && ns > self.max_ns.value() {
            self.max_ns.set(ns);
        }
    }

    /// Returns a copy of the durations recorded so far.
    pub fn distribution(&self) -> Distribution {
        let mut distribution = Distribution::new();
        self.add_to(&mut distribution);
        distribution
    }

    /// Adds the durations recorded so far to `sum`, which may collect the histograms of several workers.
    pub fn add_to(&self, sum: &mut Distribution) {
        for (total, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *total += bucket.value();
        }
        sum.sum_ns += u128::from(self.sum_ns.value());
        sum.max_ns = sum.max_ns.max(self.max_ns.value());
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.distribution().fmt(f)
    }
}

/// The contents of a histogram at a moment, or of several histograms together.
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution {
    buckets: Box<[u64]>,
    sum_ns: u128,
    max_ns: u64,
}

impl Distribution {
    /// Creates an empty distribution.
    pub fn new() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), sum_ns: 0, max_ns: 0 }
    }

    /// Records a duration.
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Records `count` equal durations.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if count > 0 {
            self.buckets[bucket(ns)] += count;
            self.sum_ns += u128::from(ns) * u128::from(count);
            self.max_ns = self.max_ns.max(ns);
        }
    }

    /// Restores a distribution from its [`Distribution::buckets`] (a value and the count of each), with the exact sum and
    /// maximum, which buckets do not contain.
    pub fn restored(held: impl IntoIterator<Item = (u64, u64)>, sum_ns: u128, max_ns: u64) -> Self {
        let mut restored = Self::new();
        held.into_iter().for_each(|(ns, count)| restored.record_many(ns, count));
        Self { sum_ns, max_ns, ..restored }
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The exact sum of the durations, in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The longest duration in nanoseconds, exact; 0 if there is none.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean in nanoseconds; `None` for an empty distribution.
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }

    /// The quantile in nanoseconds: the smallest value such that at least the share `quantile` (0 to 1) of all durations is at
    /// most that value. It is rounded up to the end of its bucket (at most 1/64 more), but never above the maximum. `None` for
    /// an empty distribution.
    ///
    /// ```
    /// use encke_stats::Histogram;
    ///
    /// let histogram = Histogram::new();
    /// (1..=100).for_each(|ms| histogram.record(ms * 1_000_000));
    /// let median_ns = histogram.distribution().quantile_ns(0.5).expect("it is not empty");
    /// assert!((50_000_000..=51_000_000).contains(&median_ns));
    /// ```
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        quantile_ns(self.buckets.iter().copied(), quantile, || self.max_ns)
    }

    /// The buckets that are not empty, in order: first value, last value, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let first = |index: usize| if index == 0 { 0 } else { last_of(index - 1) + 1 };
        let held = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(move |(index, count)| (first(index), last_of(index), *count))
    }

    /// The durations recorded after `earlier`, a former copy of the same histogram. The maximum is exact if it is a new one;
    /// otherwise it is the end of the highest bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let interval = DistributionInterval::new(Some(earlier), self);
        Self {
            buckets: interval.counts().collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            max_ns: interval.max_ns(),
        }
    }

    /// The number of durations of at most `ns`. If `ns` is within a bucket, the durations of that bucket count as longer.
    pub fn count_up_to(&self, ns: u64) -> u64 {
        let index = bucket(ns);
        let whole = if last_of(index) == ns { index + 1 } else { index };
        self.buckets[..whole].iter().sum()
    }
}

/// The durations between two copies of a histogram, as a view: a third copy would take 30 KiB. It has the figures of
/// [`Distribution::since`].
///
/// ```
/// use encke_stats::{Distribution, DistributionInterval};
///
/// let mut earlier = Distribution::new();
/// earlier.record(9_000_000);
/// let mut now = earlier.clone();
/// now.record(5);
/// let interval = DistributionInterval::new(Some(&earlier), &now);
/// assert_eq!((interval.count(), interval.quantile_ns(0.5)), (1, Some(5)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DistributionInterval<'a> {
    earlier: Option<&'a Distribution>,
    now: &'a Distribution,
}

impl<'a> DistributionInterval<'a> {
    /// Creates the view. `earlier` is a former copy of the same histogram; without one, the view has all durations.
    pub fn new(earlier: Option<&'a Distribution>, now: &'a Distribution) -> Self {
        Self { earlier, now }
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts().sum()
    }

    /// The longest duration in nanoseconds; 0 if there is none. Exact if it is longer than all earlier ones; otherwise the end of
    /// the highest bucket.
    pub fn max_ns(&self) -> u64 {
        let Some(earlier) = self.earlier else { return self.now.max_ns };
        if self.now.max_ns > earlier.max_ns {
            return self.now.max_ns;
        }
        self.counts().rposition(|count| count > 0).map_or(0, last_of).min(self.now.max_ns)
    }

    /// The quantile in nanoseconds, as [`Distribution::quantile_ns`] defines it.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        quantile_ns(self.counts(), quantile, || self.max_ns())
    }

    /// The number of durations in each bucket.
    fn counts(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        // Without an earlier copy nothing is subtracted.
        let (earlier, weight) = self.earlier.map_or((self.now, 0), |earlier| (earlier, 1));
        let pairs = self.now.buckets.iter().zip(&earlier.buckets);
        pairs.map(move |(now, then)| now.saturating_sub(*then * weight))
    }
}

/// The quantile of durations with these numbers in the buckets.
fn quantile_ns(
    mut counts: impl Iterator<Item = u64> + Clone,
    quantile: f64,
    max_ns: impl FnOnce() -> u64,
) -> Option<u64> {
    let count: u64 = counts.clone().sum();
    if count == 0 {
        return None;
    }
    let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
    let mut below = 0;
    let index = counts.position(|count| {
        below += count;
        below >= rank
    })?;
    Some(last_of(index).min(max_ns()))
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distribution")
            .field("count", &self.count())
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("p99_ns", &self.quantile_ns(0.99))
            .field("max_ns", &self.max_ns)
            .finish_non_exhaustive()
    }
}

/// The bucket of a value: below 64 the value itself, otherwise the octave and the six bits after the leading one.
#[inline]
fn bucket(ns: u64) -> usize {
    let octave = ns.max(1).ilog2().saturating_sub(PRECISION_BITS);
    octave as usize * BUCKETS_PER_OCTAVE + (ns >> octave) as usize
}

/// The last value of a bucket.
fn last_of(index: usize) -> u64 {
    let octave = (index / BUCKETS_PER_OCTAVE).saturating_sub(1);
    let place = (index - octave * BUCKETS_PER_OCTAVE) as u64;
    (place << octave) | ((1 << octave) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap_up_to_the_end() {
        let mut next = 0u64;
        for index in 0..BUCKETS {
            assert_eq!(bucket(next), index, "{next}");
            let last = last_of(index);
            assert_eq!(bucket(last), index, "{last}");
            if index + 1 == BUCKETS {
                assert_eq!(last, u64::MAX);
            } else {
                next = last + 1;
            }
        }
    }

    #[test]
    fn a_bucket_is_at_most_one_64th_of_its_values_wide() {
        for index in 1..BUCKETS {
            let first = last_of(index - 1) + 1;
            assert!(last_of(index) - first <= first / 64, "bucket {index}");
        }
    }

    #[test]
    fn nothing_recorded_is_told_as_nothing() {
        let empty = Distribution::new();
        assert_eq!((empty.count(), empty.max_ns(), empty.sum_ns()), (0, 0, 0));
        assert_eq!((empty.quantile_ns(0.5), empty.mean_ns()), (None, None));
        assert_eq!(empty.count_up_to(u64::MAX), 0);
    }

    #[test]
    fn extremes_are_counted() {
        let histogram = Histogram::new();
        for ns in [0, 1, 63, 64, 65, u64::MAX] {
            histogram.record(ns);
        }
        let all = histogram.distribution();
        assert_eq!((all.count(), all.max_ns()), (6, u64::MAX));
        assert_eq!(all.quantile_ns(0.0), Some(0));
        assert_eq!(all.quantile_ns(0.5), Some(63));
        assert_eq!(all.quantile_ns(1.0), Some(u64::MAX));
        assert_eq!((all.count_up_to(0), all.count_up_to(64), all.count_up_to(u64::MAX)), (1, 4, 6));
    }

    #[test]
    fn equal_durations_are_recorded_at_once() {
        let (histogram, one_by_one) = (Histogram::new(), Histogram::new());
        for (ns, count) in [(5, 3), (700, 2), (60, 4), (9_000, 0)] {
            histogram.record_many(ns, count);
            (0..count).for_each(|_| one_by_one.record(ns));
        }
        let (all, expected) = (histogram.distribution(), one_by_one.distribution());
        assert_eq!((all.count(), all.max_ns(), all.sum_ns()), (9, 700, 5 * 3 + 700 * 2 + 60 * 4));
        assert_eq!(
            (all.count(), all.max_ns(), all.sum_ns()),
            (expected.count(), expected.max_ns(), expected.sum_ns())
        );
        assert_eq!(all.quantile_ns(0.5), expected.quantile_ns(0.5));
    }

    /// Numbers that look like latencies: most near 2^12, a long tail up to 2^36. Seeded, so a failure repeats.
    fn latencies(seed: u64, count: usize) -> impl Iterator<Item = u64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = state >> 16;
            word >> (12 + (word % 7) * 5)
        })
        .take(count)
    }

    #[test]
    fn quantiles_agree_with_hdrhistogram() {
        for seed in 1..=20 {
            let mut oracle = hdrhistogram::Histogram::<u64>::new(4).expect("4 digits are allowed");
            let mut ours = Distribution::new();
            for ns in latencies(seed, 5_000) {
                oracle.record(ns).expect("it resizes itself");
                ours.record(ns);
            }
            assert_eq!(ours.count(), oracle.len());
            for quantile in [0.0, 0.001, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
                let (ours, theirs) =
                    (ours.quantile_ns(quantile).expect("filled"), oracle.value_at_quantile(quantile));
                // The reference is exact to 4 digits, this histogram rounds up by at most 1/64.
                let slack = theirs / 1_000 + 1;
                assert!(
                    ours + slack >= theirs && ours <= theirs + theirs / 64 + slack,
                    "seed {seed}, quantile {quantile}: {ours} against {theirs}"
                );
            }
        }
    }

    #[test]
    fn a_merge_of_parts_is_the_whole() {
        for seed in 1..=20 {
            let (mut left, mut right, mut whole) =
                (Distribution::new(), Distribution::new(), Distribution::new());
            for (place, ns) in latencies(seed, 2_000).enumerate() {
                if place % 3 == 0 {
                    left.record(ns);
                } else {
                    right.record(ns);
                }
                whole.record(ns);
            }
            left.merge(&right);
            assert!(left == whole, "seed {seed}");
        }
    }

    #[test]
    fn buckets_tell_what_is_held_and_where() {
        let mut distribution = Distribution::new();
        for ns in [0, 5, 5, 1_000] {
            distribution.record(ns);
        }
        assert_eq!(distribution.buckets().collect::<Vec<_>>(), [(0, 0, 1), (5, 5, 2), (1_000, 1_007, 1)]);
    }

    #[test]
    fn what_came_since_a_copy_is_the_difference() {
        let histogram = Histogram::new();
        for seed in 1..=5 {
            let before = histogram.distribution();
            let mut fresh = Distribution::new();
            for ns in latencies(seed, 500) {
                histogram.record(ns);
                fresh.record(ns);
            }
            let since = histogram.distribution().since(&before);
            assert_eq!((since.count(), since.sum_ns()), (500, fresh.sum_ns()), "seed {seed}");
            assert!(since.buckets().eq(fresh.buckets()), "seed {seed}");
            assert!(since.max_ns() >= fresh.max_ns() && since.max_ns() <= fresh.max_ns() / 63 * 64 + 64);
        }
    }

    #[test]
    fn the_sum_does_not_wrap() {
        let mut distribution = Distribution::new();
        distribution.record(u64::MAX);
        distribution.record(u64::MAX);
        assert_eq!(distribution.sum_ns(), u128::from(u64::MAX) * 2);
    }
}
