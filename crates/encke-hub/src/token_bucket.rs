//! Token buckets: how often an action is allowed, and when it is allowed again.
//!
//! ```text
//! tokens    full ──take──► less ──time──► full                 the only state is one number: when it is full again
//!                            └─ take ─► none left ─► Err(how long until there are enough)
//! ```
//! [`TokenBucket`] is the arithmetic (the "generic cell rate algorithm" of ATM Forum TM 4.0). It has no clock and no state. [`TokenBuckets`]
//! keeps the state of many clients in a table of fixed size.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;

/// The rate and the burst of token buckets. Holds no tokens: the state of a bucket is the time when it is full again, which the
/// caller keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// Time between two tokens.
    interval_ns: u64,
    /// Time in which an empty bucket refills.
    burst_ns: u64,
}

impl TokenBucket {
    /// Creates a bucket with `rate` tokens per second and at most `burst` tokens.
    pub fn new(rate: NonZeroU32, burst: u64) -> Self {
        let interval_ns = 1_000_000_000 / u64::from(rate.get());
        Self { interval_ns, burst_ns: interval_ns.saturating_mul(burst) }
    }

    /// Returns the time between two tokens, in ns.
    pub const fn interval_ns(self) -> u64 {
        self.interval_ns
    }

    /// Takes `count` tokens from a bucket that is full at `full_ns`. Returns when the bucket is full again. All times are of
    /// one clock, in ns.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use encke_hub::TokenBucket;
    ///
    /// let bucket = TokenBucket::new(NonZeroU32::new(10).expect("not 0"), 2);
    /// let full_ns = bucket.take(0, 0, 2).expect("two tokens in the bucket");
    /// assert_eq!(bucket.take(full_ns, 0, 1), Err(100_000_000));
    /// assert!(bucket.take(full_ns, 100_000_000, 1).is_ok());
    /// ```
    ///
    /// # Errors
    /// The bucket has fewer tokens: the time until it has enough, in ns. A count above the burst never succeeds.
    pub fn take(self, full_ns: u64, now_ns: u64, count: u64) -> Result<u64, u64> {
        match self.reserve(full_ns, now_ns, count) {
            (full_ns, 0) => Ok(full_ns),
            (_, wait_ns) => Err(wait_ns),
        }
    }

    /// Takes `count` tokens, even before they are available. Returns when the bucket is full again, and the time until the
    /// tokens are available.
    fn reserve(self, full_ns: u64, now_ns: u64, count: u64) -> (u64, u64) {
        let cost_ns = self.interval_ns.saturating_mul(count);
        let full_ns = full_ns.max(now_ns).saturating_add(cost_ns);
        let latest_ns = now_ns.saturating_add(self.burst_ns);
        (full_ns, full_ns.saturating_sub(latest_ns))
    }
}

/// Token buckets of clients, which are identified by numbers.
///
/// Each client hashes to two cells of the table, by a keyed hash that clients cannot compute. A client is admitted while either
/// cell has a token left. So other clients delay it only if two of them share both of its cells. With 1,000 clients at their
/// limit, this affects four in a thousand. The table needs no sweep and cannot fill up.
#[derive(Debug)]
pub struct TokenBuckets {
    bucket: TokenBucket,
    seed: RandomState,
    /// When each cell is full again, on the monotonic clock in ns.
    cells: Box<[u64]>,
}

/// Cells of a table: 256 KiB.
const CELLS: usize = 32 * 1024;

impl TokenBuckets {
    /// Creates the table, with all buckets full.
    pub fn new(bucket: TokenBucket) -> Self {
        Self { bucket, seed: RandomState::new(), cells: vec![0; CELLS].into() }
    }

    /// Takes tokens of a client.
    ///
    /// # Errors
    /// The client has fewer tokens: the time until it has enough, in ns.
    pub fn take(&mut self, client: u64, now_ns: u64, count: u64) -> Result<(), u64> {
        self.reserve(client, now_ns, count, 0).map(drop)
    }

    /// Takes tokens of a client, including tokens that become available within `wait_max_ns`. Returns the time until they are,
    /// in ns.
    ///
    /// # Errors
    /// The time is above `wait_max_ns`: the time, in ns.
    pub fn reserve(&mut self, client: u64, now_ns: u64, count: u64, wait_max_ns: u64) -> Result<u64, u64> {
        let hash = self.seed.hash_one(client);
        let places = [hash, hash >> 32].map(|part| part as usize % CELLS);
        let used_ns = places.map(|place| self.cells[place]).into_iter().min().unwrap_or_default();
        let (full_ns, wait_ns) = self.bucket.reserve(used_ns, now_ns, count);
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
        let pace = TokenBucket::new(rate(10), 3);
        let mut full_ns = 0;
        for _ in 0..3 {
            full_ns = pace.take(full_ns, SECOND_NS, 1).expect("three at once");
        }
        assert_eq!(pace.take(full_ns, SECOND_NS, 1), Err(SECOND_NS / 10));
        assert_eq!(pace.take(full_ns, SECOND_NS, 3), Err(3 * SECOND_NS / 10));
        let later_ns = SECOND_NS + SECOND_NS / 10;
        full_ns = pace.take(full_ns, later_ns, 1).expect("one has come back");
        assert_eq!(pace.take(full_ns, later_ns, 1), Err(SECOND_NS / 10));
        // The bucket never holds more than the burst, however long it rests.
        assert!(pace.take(full_ns, 1_000 * SECOND_NS, 4).is_err());
        assert!(pace.take(full_ns, 1_000 * SECOND_NS, 3).is_ok());
    }

    #[test]
    fn neither_the_end_of_time_nor_any_count_overflows() {
        let pace = TokenBucket::new(rate(1), u64::MAX);
        assert_eq!(pace.take(u64::MAX, u64::MAX, u64::MAX), Ok(u64::MAX));
        assert!(TokenBucket::new(rate(1), 1).take(0, 0, u64::MAX).is_err());
    }

    #[test]
    fn reserved_tokens_come_in_turn_and_none_after_the_longest_wait() {
        let mut paces = TokenBuckets::new(TokenBucket::new(rate(10), 2));
        let tenth_ns = SECOND_NS / 10;
        let waits = [(); 6].map(|()| paces.reserve(7, SECOND_NS, 1, 3 * tenth_ns).ok());
        let [none, one, two, three] = [0, 1, 2, 3].map(|tenths| Some(tenths * tenth_ns));
        assert_eq!(waits, [none, none, one, two, three, None]);
        assert_eq!(paces.reserve(7, SECOND_NS + tenth_ns, 1, 3 * tenth_ns), Ok(3 * tenth_ns));
        assert_eq!(paces.take(8, SECOND_NS, 2), Ok(()));
    }
}
