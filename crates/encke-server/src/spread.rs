//! Spread moments, so that clients do not all reconnect at once.

use std::num::NonZeroU32;

use encke_io::{Now, Token};

/// The schedule of connection ends in a drain, spread over time so that clients do not all reconnect at once. A resident gets it
/// by [`Engine::farewells`](crate::Engine::farewells).
#[derive(Clone, Copy, Debug)]
pub struct Farewells {
    start_ns: u64,
    spread_ns: u64,
}

impl Farewells {
    /// Creates the schedule of a drain that begins at `now` and takes at most `time_ns`. The server ends `count` connections at
    /// `rate` per second, or as fast as the time requires. The last quarter of the time is left for slow connections.
    pub(crate) fn new(now: Now, count: usize, rate: NonZeroU32, time_ns: u64) -> Self {
        let spread_ns = (count as u64).saturating_mul(1_000_000_000) / u64::from(rate.get());
        Self { start_ns: now.mono_ns, spread_ns: spread_ns.min(time_ns / 4 * 3) }
    }

    /// Returns the end of a connection on the monotonic clock, in ns. Consecutive indices have distant ends, so clients that
    /// arrived together do not reconnect together.
    pub fn at_ns(&self, token: Token) -> u64 {
        let after_ns = u64::from(token.index).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.spread_ns.max(1);
        self.start_ns + after_ns
    }
}

/// Returns a random retry time from one half to three halves of `retry_ms`, so that clients do not all reconnect at once.
pub fn spread_retry_ms(retry_ms: u64, token: Token, now: Now) -> u64 {
    // A multiplicative hash of values that differ between connections is good enough.
    let seed = u64::from(token.index) << 32 ^ u64::from(token.generation) ^ now.mono_ns;
    let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    retry_ms / 2 + spread % retry_ms.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Returns the number of ends in each tenth of a second, of `count` connections in a drain of 8 s.
    fn ends(count: u32) -> Vec<u32> {
        let now = Now { mono_ns: 5 * SECOND_NS, ..Now::default() };
        let rate = NonZeroU32::new(2_000).expect("not 0");
        let farewells = Farewells::new(now, count as usize, rate, 8 * SECOND_NS);
        let mut tenths = Vec::new();
        for index in 0..count {
            let after_ns = farewells.at_ns(Token { index, generation: 1 }) - now.mono_ns;
            let tenth = (after_ns / (SECOND_NS / 10)) as usize;
            tenths.resize(tenths.len().max(tenth + 1), 0);
            tenths[tenth] += 1;
        }
        tenths
    }

    #[test]
    fn few_connections_end_at_once_and_many_take_the_time_of_the_drain() {
        for (count, tenths) in [(1, 1), (5, 1), (1_000, 5), (4_000, 20), (20_000, 60), (100_000, 60)] {
            let ends = ends(count);
            assert_eq!(ends.len(), tenths, "{count} connections: {ends:?}");
            let even = count / tenths as u32;
            assert!(ends.iter().all(|&ends| ends <= even + even / 4 + 5), "{count} connections: {ends:?}");
        }
    }

    #[test]
    fn a_drain_without_time_ends_all_connections_at_once() {
        let farewells = Farewells::new(Now::default(), 100_000, NonZeroU32::MIN, 0);
        assert!((0..100).all(|index| farewells.at_ns(Token { index, generation: 1 }) == 0));
    }
}
