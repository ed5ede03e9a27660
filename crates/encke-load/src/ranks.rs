//! Rank statistics: the candidates for a change, and how many of them to cut off for an interval.
//!
//! ```text
//!   pairs   walsh_averages of the changes    their number below the true one: signed_ranks (Wilcoxon)
//!   runs    all differences                  their number below the true one: rank_sums (Mann, Whitney)
//! ```
//! The distributions are exact, so they hold for few values.

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let sorted = sorted(values.collect());
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// The means of all pairs of values, including each value with itself, sorted.
pub(crate) fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let pairs =
        values.iter().enumerate().flat_map(|(at, one)| values[at..].iter().map(move |other| (one, other)));
    sorted(pairs.map(|(one, other)| f64::midpoint(*one, *other)).collect())
}

/// The probability of each number of Walsh averages of `count` values below the true median. This is the distribution of the
/// signed-rank sum: each rank from 1 to `count` counts or not (Wilcoxon 1945).
pub(crate) fn signed_ranks(count: usize) -> Vec<f64> {
    let mut chances = vec![0.0; count * (count + 1) / 2 + 1];
    chances[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..chances.len()).rev() {
            let with = if sum >= rank { chances[sum - rank] } else { 0.0 };
            chances[sum] = f64::midpoint(chances[sum], with);
        }
    }
    chances
}

/// The probability of each number of differences between `a` and `b` values below the true one. These are the ways to order `a`
/// values among `a + b` (Mann, Whitney 1947).
pub(crate) fn rank_sums(a: usize, b: usize) -> Vec<f64> {
    // ways[k][u]: k of the places so far are taken, and in u pairs the other value comes first.
    let mut ways = vec![vec![0.0; a * b + 1]; a + 1];
    ways[0][0] = 1.0;
    for place in 0..a + b {
        for taken in (1..=a.min(place + 1)).rev() {
            let others = place + 1 - taken;
            for above in (others..=a * b).rev() {
                ways[taken][above] += ways[taken - 1][above - others];
            }
        }
    }
    let chances = ways.swap_remove(a);
    let all: f64 = chances.iter().sum();
    chances.into_iter().map(|ways| ways / all).collect()
}

/// The number of candidates to cut off at each end, so that the interval misses the true value with at most this probability.
pub(crate) fn outside(chances: &[f64], missed: f64) -> Option<usize> {
    let mut below = 0.0;
    let cut = chances.iter().position(|chance| {
        below += chance;
        below > missed / 2.0
    })?;
    cut.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_those_of_the_tables() {
        // Wilcoxon signed ranks and Mann-Whitney, two-sided 5 % and 1 %: critical values of the usual tables.
        for (count, five, one) in
            [(6, Some(0), None), (8, Some(3), Some(0)), (10, Some(8), Some(3)), (20, Some(52), Some(37))]
        {
            let chances = signed_ranks(count);
            assert_eq!((outside(&chances, 0.05), outside(&chances, 0.01)), (five, one), "{count}");
        }
        for (a, b, five) in
            [(3, 3, None), (4, 4, Some(0)), (5, 8, Some(6)), (8, 5, Some(6)), (10, 10, Some(23))]
        {
            assert_eq!(outside(&rank_sums(a, b), 0.05), five, "{a} and {b}");
        }
    }
}
