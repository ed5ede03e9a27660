//! What a worker obeys: the section of limits, and what the assembly knows besides.

use encke_settings::Network;
use encke_wire::forwarded::Dialect;

use crate::https;
use crate::limits::LimitSettings;

/// Limits of connections and requests, and how the server sees its clients.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The section of the settings file.
    pub limits: LimitSettings,
    /// The window over which `body_rate` and `write_rate` are measured.
    pub rate_window_ns: u64,
    /// Connections of the whole process, once it is known how many descriptors it has.
    pub connections: usize,
    /// The port of `https`, for redirects to it.
    pub https_port: u16,
    /// Peers that are trusted to name the client's address.
    pub trusted_proxies: Vec<Network>,
    /// The field in which those peers name it.
    pub dialect: Dialect,
}

impl Policy {
    /// Bytes that `rate`, in bytes a second, makes of one window.
    pub(crate) fn window_bytes(&self, rate: u64) -> u64 {
        let bytes = u128::from(rate) * u128::from(self.rate_window_ns) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: LimitSettings::default(),
            // Long enough for a phone that changes cells, short enough that 300 slow clients are gone before a
            // person gives up.
            rate_window_ns: 10_000_000_000,
            connections: 1_000,
            https_port: https::PORT,
            trusted_proxies: Vec::new(),
            dialect: Dialect::XForwardedFor,
        }
    }
}

/// Bytes of a request's body that are read and dropped so that the connection can go on; more, and it is
/// closed after the answer. Reading 64 KiB costs about as much as a new connection.
pub(crate) const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// Bytes read and dropped while lingering. A client that sends more than this after the final answer does not
/// read it.
pub(crate) const LINGER_BYTES_MAX: u64 = 1024 * 1024;

/// Output of one batch of pipelined requests: past it the rest waits for the send to end.
pub(crate) const BATCH_BYTES_MAX: usize = 256 * 1024;
/// The same in segments (an answer with a file is two).
pub(crate) const BATCH_SEGMENTS_MAX: usize = 64;

/// A stream's body is pulled in pieces of at most this size: the chunk's size then has four digits.
pub(crate) const STREAM_PIECE_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_judged_over_a_window_of_any_length() {
        for (window_ns, rate, bytes) in [
            (10_000_000_000, 240, 2_400),
            (100_000_000, 240, 24),
            (1, 240, 0),
            (u64::MAX, u64::MAX, u64::MAX),
        ] {
            let policy = Policy { rate_window_ns: window_ns, ..Policy::default() };
            assert_eq!(policy.window_bytes(rate), bytes, "{rate} bytes a second over {window_ns} ns");
        }
    }
}
