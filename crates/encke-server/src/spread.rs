//! Moments that are spread, so that clients do not all return at once.

use encke_io::{Now, Token};

/// When each connection ends during a drain: spread over its time, so that clients do not all return at once.
#[derive(Clone, Copy, Debug)]
pub struct Farewells {
    start_ns: u64,
    spread_ns: u64,
}

impl Farewells {
    /// For a drain that begins at `now` and takes `time_ns`; the last quarter is left for what is slow.
    pub fn new(now: Now, time_ns: u64) -> Self {
        Self { start_ns: now.mono_ns, spread_ns: time_ns / 4 * 3 }
    }

    /// When a connection ends, on the monotonic clock. Neighbours end at distant times: clients that came together do not
    /// return together.
    pub fn at_ns(&self, token: Token) -> u64 {
        let after_ns = u64::from(token.index).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.spread_ns.max(1);
        self.start_ns + after_ns
    }
}

/// `retry_ms`, half of it more or less, so that clients do not all return at once.
pub fn spread_retry_ms(retry_ms: u64, token: Token, now: Now) -> u64 {
    // A multiplicative hash of what differs between connections: no need for a better one.
    let seed = u64::from(token.index) << 32 ^ u64::from(token.generation) ^ now.mono_ns;
    let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    retry_ms / 2 + spread % retry_ms.max(1)
}
