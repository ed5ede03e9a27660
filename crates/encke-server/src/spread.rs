//! Spread moments, so that clients do not all reconnect at once.

use encke_io::{Now, Token};

/// The schedule of connection ends in a drain, spread over its time so that clients do not all reconnect at once.
#[derive(Clone, Copy, Debug)]
pub struct Farewells {
    start_ns: u64,
    spread_ns: u64,
}

impl Farewells {
    /// Creates the schedule of a drain that begins at `now` and takes `time_ns`. The last quarter is left for slow connections.
    pub fn new(now: Now, time_ns: u64) -> Self {
        Self { start_ns: now.mono_ns, spread_ns: time_ns / 4 * 3 }
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
