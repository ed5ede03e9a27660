//! The median of a few measurements, and its confidence interval.
//!
//! Times on a shared machine are not normally distributed: most are near the minimum, and some far above. The interval
//! therefore uses only the order of values. Each of n independent values is below the true median with probability one half. So
//! the k-th smallest and the k-th largest value enclose the median unless fewer than k values are on one side:
//!
//! ```text
//! P(enclosed) = 1 − 2 · Σ_{i<k} C(n, i) / 2^n        the largest k with P ≥ 95 %:  n = 6 … 8: 1,  9: 2,  15: 4,  25: 8
//! ```

/// A median with its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// The middle value, or the mean of both middle values.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Minimum number of values for an interval of 95 %.
pub(crate) const VALUES_MIN: usize = 6;

impl Interval {
    /// Computes the interval of values in any order; `None` for fewer than [`VALUES_MIN`].
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let outside = outside(values.len())?;
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len() - 1;
        Some(Self { median: median_of_sorted(&sorted), low: sorted[outside], high: sorted[last - outside] })
    }

    /// Half the interval's width, as a share of the median.
    pub(crate) fn spread(self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median }
    }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// How many of `count` values are outside the interval at each end.
fn outside(count: usize) -> Option<usize> {
    if count < VALUES_MIN {
        return None;
    }
    // C(n, i) / 2^n, from one i to the next; below 1,000 values nothing underflows.
    let mut chance = 0.5_f64.powi(count.min(1_000) as i32);
    let mut below = 0.0;
    for index in 0..count {
        below += chance;
        if below > (1.0 - TRUST) / 2.0 {
            return index.checked_sub(1);
        }
        chance *= (count - index) as f64 / (index + 1) as f64;
    }
    None
}

const TRUST: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_values_are_too_few_and_six_are_enough() {
        assert_eq!(Interval::of(&[1.0; 5]), None);
        let six = Interval::of(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0]);
        assert_eq!(six, Some(Interval { median: 3.5, low: 1.0, high: 6.0 }));
    }

    #[test]
    fn the_ends_are_those_of_the_tables_of_the_sign_test() {
        for (count, expected) in [(6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5), (25, 7), (50, 17)] {
            assert_eq!(outside(count), Some(expected), "{count} values");
        }
    }

    #[test]
    fn one_wild_value_of_nine_moves_nothing() {
        let mut values = vec![1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8];
        let calm = Interval::of(&values);
        values[8] = 1e9;
        assert_eq!(Interval::of(&values), calm);
    }
}
