//! A number per second, for gauges that show a current rate or peak.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;

/// The number of the present second and of the second before. Threads may write and read it at any time.
///
/// Each of the two numbers is one word, with the second in the upper half and the number in the lower half. A reader therefore
/// sees the second of each number, and a number expires without a writer.
#[derive(Default, Debug)]
pub struct LastSecond {
    present: AtomicU64,
    before: AtomicU64,
}

impl LastSecond {
    /// Adds one. `now_ns` is a moment of any clock that all callers share.
    pub fn add(&self, now_ns: u64) {
        self.change(now_ns, |number| number.saturating_add(1));
    }

    /// Raises the number of the present second to at least `number`, saturating at 32 bits.
    pub fn raise(&self, now_ns: u64, number: u64) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.change(now_ns, |before| before.max(number));
    }

    /// The number of the last whole second.
    pub fn whole(&self, now_ns: u64) -> u64 {
        let second = (now_ns / SECOND_NS).wrapping_sub(1);
        self.words().into_iter().find(|word| word >> 32 == second).map_or(0, number_of)
    }

    /// The higher number of the last whole second and of the present second so far.
    pub fn recent(&self, now_ns: u64) -> u64 {
        let second = now_ns / SECOND_NS;
        let recent = self.words().into_iter().filter(|word| second.wrapping_sub(word >> 32) <= 1);
        recent.map(number_of).max().unwrap_or(0)
    }

    fn change(&self, now_ns: u64, change: impl Fn(u32) -> u32) {
        let second = now_ns / SECOND_NS;
        let next = |word: u64| {
            let number = if word >> 32 == second { word as u32 } else { 0 };
            Some(second << 32 | u64::from(change(number)))
        };
        if let Ok(word) = self.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            && word >> 32 != second
        {
            self.before.store(word, Ordering::Relaxed);
        }
    }

    fn words(&self) -> [u64; 2] {
        [&self.present, &self.before].map(|word| word.load(Ordering::Relaxed))
    }
}

fn number_of(word: u64) -> u64 {
    word & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_in_which_nothing_happened_counts_nothing() {
        let count = LastSecond::default();
        for moment in [5 * SECOND_NS, 5 * SECOND_NS + 7] {
            count.add(moment);
        }
        assert_eq!((count.whole(5 * SECOND_NS), count.recent(5 * SECOND_NS)), (0, 2), "it is not over");
        assert_eq!((count.whole(6 * SECOND_NS), count.recent(6 * SECOND_NS)), (2, 2));
        count.add(6 * SECOND_NS);
        assert_eq!((count.whole(6 * SECOND_NS), count.recent(6 * SECOND_NS)), (2, 2));
        assert_eq!((count.whole(7 * SECOND_NS), count.recent(7 * SECOND_NS)), (1, 1));
        assert_eq!((count.whole(8 * SECOND_NS), count.recent(8 * SECOND_NS)), (0, 0));
    }

    #[test]
    fn the_highest_number_of_a_second_stays() {
        let age = LastSecond::default();
        for number in [3, 9, 4] {
            age.raise(SECOND_NS, number);
        }
        assert_eq!(age.recent(2 * SECOND_NS), 9);
        age.raise(2 * SECOND_NS, u64::MAX);
        assert_eq!(age.recent(2 * SECOND_NS), u64::from(u32::MAX));
    }
}
