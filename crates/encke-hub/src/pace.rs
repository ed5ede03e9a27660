//! Paces: how often something may happen, and when it may again.
//!
//! ```text
//! tokens    full ──take──► less ──time──► full                 what is kept is one number: when it is full again
//!                            └─ take ─► none left ─► Err(how long until there are enough)
//! ```
//! [`Pace`] is the arithmetic (the "generic cell rate algorithm" of ATM Forum TM 4.0): it has no clock and keeps
//! nothing. [`Paces`] keeps one such number for each client, in a table that cannot grow.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;

/// A number of tokens that comes back evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Between two tokens.
    interval_ns: u64,
    /// In which all of them come back.
    burst_ns: u64,
}

impl Pace {
    /// `rate` tokens a second, and at most `burst` of them at once.
    pub fn new(rate: NonZeroU32, burst: u64) -> Self {
        let interval_ns = 1_000_000_000 / u64::from(rate.get());
        Self { interval_ns, burst_ns: interval_ns.saturating_mul(burst) }
    }

    /// Between two tokens, in ns.
    pub const fn interval_ns(self) -> u64 {
        self.interval_ns
    }

    /// Takes `count` tokens from a bucket that is full at `full_ns`. Returns when it is full again. All times are of one clock,
    /// in ns.
    ///
    /// # Errors
    /// There are not so many: how long until there are. For more than there ever are that moment never comes.
    pub fn take(self, full_ns: u64, now_ns: u64, count: u64) -> Result<u64, u64> {
        match self.reserve(full_ns, now_ns, count) {
            (full_ns, 0) => Ok(full_ns),
            (_, wait_ns) => Err(wait_ns),
        }
    }

    /// Takes `count` tokens, also such as have yet to come back: the moment at which all of them are back again, and how long
    /// until there are as many as were taken.
    fn reserve(self, full_ns: u64, now_ns: u64, count: u64) -> (u64, u64) {
        let cost_ns = self.interval_ns.saturating_mul(count);
        let full_ns = full_ns.max(now_ns).saturating_add(cost_ns);
        let latest_ns = now_ns.saturating_add(self.burst_ns);
        (full_ns, full_ns.saturating_sub(latest_ns))
    }
}

/// The paces of clients, which are numbers here.
///
/// Each client has two cells of the table, by a keyed hash that no client can compute, and is admitted while either cell has a
/// token left. So other clients delay it only if two of them share both of its cells: with 1,000 clients at their limit, this
/// affects four in a thousand. The table needs no sweep and cannot fill up.
#[derive(Debug)]
pub struct Paces {
    pace: Pace,
    seed: RandomState,
    /// When a cell's tokens are all back, on the monotonic clock in ns.
    cells: Box<[u64]>,
}

/// Cells of a table: 256 KiB.
const CELLS: usize = 32 * 1024;

impl Paces {
    /// Paces of clients that have all of their tokens.
    pub fn new(pace: Pace) -> Self {
        Self { pace, seed: RandomState::new(), cells: vec![0; CELLS].into() }
    }

    /// Takes tokens of a client.
    ///
    /// # Errors
    /// There are not so many: how long until there are, in ns.
    pub fn take(&mut self, client: u64, now_ns: u64, count: u64) -> Result<(), u64> {
        self.reserve(client, now_ns, count, 0).map(drop)
    }

    /// Takes tokens of a client, also such as come back within `wait_max_ns`. Returns how long until they do, in ns.
    ///
    /// # Errors
    /// It is longer than that.
    pub fn reserve(&mut self, client: u64, now_ns: u64, count: u64, wait_max_ns: u64) -> Result<u64, u64> {
        let hash = self.seed.hash_one(client);
        let places = [hash, hash >> 32].map(|part| part as usize % CELLS);
        let used_ns = places.map(|place| self.cells[place]).into_iter().min().unwrap_or_default();
        let (full_ns, wait_ns) = self.pace.reserve(used_ns, now_ns, count);
        if wait_ns > wait_max_ns {
            return Err(wait_ns);
        }
        for place in places {
            self.cells[place] = self.cells[place].max(full_ns);
        }
        Ok(wait_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn rate(rate: u32) -> NonZeroU32 {
        NonZeroU32::new(rate).expect("above 0")
    }

    #[test]
    fn tokens_are_spent_and_come_back_one_by_one() {
        let pace = Pace::new(rate(10), 3);
        let mut full_ns = 0;
        for _ in 0..3 {
            full_ns = pace.take(full_ns, SECOND_NS, 1).expect("three at once");
        }
        assert_eq!(pace.take(full_ns, SECOND_NS, 1), Err(SECOND_NS / 10));
        assert_eq!(pace.take(full_ns, SECOND_NS, 3), Err(3 * SECOND_NS / 10));
        let later_ns = SECOND_NS + SECOND_NS / 10;
        full_ns = pace.take(full_ns, later_ns, 1).expect("one has come back");
        assert_eq!(pace.take(full_ns, later_ns, 1), Err(SECOND_NS / 10));
        // However long nothing is taken, there are never more than at first.
        assert!(pace.take(full_ns, 1_000 * SECOND_NS, 4).is_err());
        assert!(pace.take(full_ns, 1_000 * SECOND_NS, 3).is_ok());
    }

    #[test]
    fn neither_the_end_of_time_nor_any_count_overflows() {
        let pace = Pace::new(rate(1), u64::MAX);
        assert_eq!(pace.take(u64::MAX, u64::MAX, u64::MAX), Ok(u64::MAX));
        assert!(Pace::new(rate(1), 1).take(0, 0, u64::MAX).is_err());
    }

    #[test]
    fn reserved_tokens_come_in_turn_and_none_after_the_longest_wait() {
        let mut paces = Paces::new(Pace::new(rate(10), 2));
        let tenth_ns = SECOND_NS / 10;
        let waits = [(); 6].map(|()| paces.reserve(7, SECOND_NS, 1, 3 * tenth_ns).ok());
        let [none, one, two, three] = [0, 1, 2, 3].map(|tenths| Some(tenths * tenth_ns));
        assert_eq!(waits, [none, none, one, two, three, None]);
        assert_eq!(paces.reserve(7, SECOND_NS + tenth_ns, 1, 3 * tenth_ns), Ok(3 * tenth_ns));
        assert_eq!(paces.take(8, SECOND_NS, 2), Ok(()));
    }
}
