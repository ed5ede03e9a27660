//! Estimates the latency of open-loop users from the measurements of a closed loop.
//!
//! A closed loop sends only as many requests to a stalled server as it has connections, and then waits. A stall of a second
//! yields one bad response per connection, not one per request that would have been sent (coordinated omission). But the loop
//! knows how long it waited. A user that arrives at a random moment falls into a stall of length *s* with probability
//! proportional to *s*. The user arrives at a random point of the stall, and waits for the rest:
//!
//! ```text
//!   P(longer than x) = Σ over stalls s > x of (their share of all time) · (s − x)/s
//!                    + (the share of time without stalls) · P(an ordinary response is longer than x)
//! ```
//! A stall is a response that took at least ten times the median. If a stall affects only some connections, an open-loop user
//! may use another one. The estimate therefore describes the *measured connection*, and says nothing about load that was never
//! generated. Only an open loop measures that.

use encke_stats::Distribution;

/// A response of at least this multiple of the median counts as a stall.
const STALL: u64 = 10;

/// An estimated latency distribution.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Ordinary responses: the upper bound of a bucket, and the share of users that meet it.
    ordinary: Vec<(f64, f64)>,
    /// Stalls: length, and the share of users that arrive during a stall of this length.
    stalls: Vec<(f64, f64)>,
    max_ns: u64,
}

impl Estimate {
    /// Estimates from the service times of a closed loop.
    pub fn of(service: &Distribution) -> Self {
        let stall_ns = service.quantile_ns(0.5).unwrap_or(0).saturating_mul(STALL).max(1);
        // The midpoint of a bucket represents its values.
        let buckets: Vec<(f64, f64, f64)> = service
            .buckets()
            .map(|(first, last, count)| {
                let last = last.min(service.max_ns());
                (first.midpoint(last) as f64, last as f64, count as f64)
            })
            .collect();
        let is_stall = |middle: f64| middle >= stall_ns as f64;
        let time: f64 = buckets.iter().map(|(middle, _, count)| middle * count).sum();
        let stalled: f64 = buckets.iter().filter(|bucket| is_stall(bucket.0)).map(|(ns, _, n)| ns * n).sum();
        let answers: f64 = buckets.iter().filter(|bucket| !is_stall(bucket.0)).map(|bucket| bucket.2).sum();
        let calm = if time > 0.0 { 1.0 - stalled / time } else { 1.0 };
        let (stalls, ordinary): (Vec<_>, Vec<_>) = buckets.into_iter().partition(|bucket| is_stall(bucket.0));
        Self {
            ordinary: ordinary.into_iter().map(|(_, last, count)| (last, calm * count / answers)).collect(),
            stalls: stalls.into_iter().map(|(middle, _, count)| (middle, middle * count / time)).collect(),
            max_ns: service.max_ns(),
        }
    }

    /// Whether there was a stall. Without one, the estimate equals the measurement.
    pub fn differs(&self) -> bool {
        !self.stalls.is_empty()
    }

    /// The latency in ns that a share `quantile` (0 to 1) of users does not exceed; `None` if nothing was measured.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        if self.ordinary.is_empty() && self.stalls.is_empty() {
            return None;
        }
        let share = 1.0 - quantile.clamp(0.0, 1.0);
        let (mut low, mut high) = (0, self.max_ns);
        while low < high {
            let middle = low.midpoint(high);
            if self.above(middle as f64) <= share { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }

    /// The share of users that wait longer than `ns`.
    fn above(&self, ns: f64) -> f64 {
        let ordinary: f64 = self.ordinary.iter().filter(|(last, _)| *last > ns).map(|(_, share)| share).sum();
        let stalled: f64 = self
            .stalls
            .iter()
            .filter(|(length, _)| *length > ns)
            .map(|(length, share)| share * (length - ns) / length)
            .sum();
        ordinary + stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(u64, usize)]) -> Estimate {
        let mut distribution = Distribution::new();
        for &(ns, count) in values {
            (0..count).for_each(|_| distribution.record(ns));
        }
        Estimate::of(&distribution)
    }

    #[track_caller]
    fn assert_near(found: Option<u64>, expected: u64) {
        let found = found.expect("something was measured");
        assert!(found.abs_diff(expected) <= expected / 50, "{found} instead of {expected}");
    }

    #[test]
    fn without_a_stall_it_repeats_what_was_measured() {
        let calm = of(&[(100_000, 90), (300_000, 10)]);
        assert!(!calm.differs());
        assert_near(calm.quantile_ns(0.5), 100_000);
        assert_near(calm.quantile_ns(0.95), 300_000);
    }

    #[test]
    fn a_stall_weighs_as_much_as_it_lasted() {
        // Each second has 800 ms of responses of 0.1 ms, and one response of 200 ms.
        let frozen = of(&[(100_000, 8_000), (200_000_000, 1)]);
        assert!(frozen.differs());
        assert_near(frozen.quantile_ns(0.5), 100_000);
        assert_near(frozen.quantile_ns(0.9), 100_000_000);
        assert_near(frozen.quantile_ns(0.99), 190_000_000);
        assert_near(frozen.quantile_ns(1.0), 200_000_000);
    }

    #[test]
    fn nothing_measured_is_nothing_estimated() {
        assert_eq!(of(&[]).quantile_ns(0.5), None);
        assert_near(of(&[(5_000, 1)]).quantile_ns(0.99), 5_000);
    }
}
