//! The policy of a worker: the settings section of limits, and values that the assembly adds.

use std::num::NonZeroU32;

use encke_io::Tuning;
use encke_settings::Network;
use encke_wire::forwarded::ForwardingField;

use crate::https;
use crate::limits::LimitSettings;

/// Limits of connections and requests, and rules for identifying clients.
#[derive(Clone, Debug)]
pub struct ConnLimits {
    /// The `[limits]` section of the settings file.
    pub limits: LimitSettings,
    /// The window over which `body_rate` and `write_rate` are measured, in ns.
    pub rate_window_ns: u64,
    /// Maximum number of connections of the process, computed from its limit of descriptors.
    pub connections: usize,
    /// Streams that a drain ends per second. A drain whose time would not suffice ends them faster.
    pub drain_rate: NonZeroU32,
    /// The `https` port that redirects name.
    pub https_port: u16,
    /// Networks of proxies that are trusted to report the client's address.
    pub trusted_proxies: Vec<Network>,
    /// The field in which those proxies report it.
    pub dialect: ForwardingField,
    /// Whether responses have the request's id, in `X-Request-Id`.
    pub request_id_header: bool,
}

impl ConnLimits {
    /// Returns the bytes that `rate`, in bytes per second, requires in one window.
    pub(crate) fn window_bytes(&self, rate: u64) -> u64 {
        let bytes = u128::from(rate) * u128::from(self.rate_window_ns) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the limits of the data that the kernel holds for a connection. Connections inherit them from their listener, where the
    /// system can do that.
    pub(crate) fn tuning(&self) -> Tuning {
        let Self { limits: LimitSettings { kernel_unsent, dead_after, .. }, .. } = self;
        Tuning {
            unsent_bytes: u32::try_from(kernel_unsent.bytes()).unwrap_or(u32::MAX),
            dead_after_ms: u32::try_from(dead_after.nanoseconds() / 1_000_000).unwrap_or(u32::MAX),
        }
    }
}

impl Default for ConnLimits {
    fn default() -> Self {
        Self {
            limits: LimitSettings::default(),
            // Long enough for a phone that changes cells, and short enough that 300 slow clients are closed before a person
            // gives up.
            rate_window_ns: 10_000_000_000,
            connections: 1_000,
            drain_rate: DRAIN_RATE,
            https_port: https::PORT,
            trusted_proxies: Vec::new(),
            dialect: ForwardingField::XForwardedFor,
            request_id_header: false,
        }
    }
}

/// Default of [`ConnLimits::drain_rate`]. At this rate 1,000 clients get their farewell in half a second, and a new process
/// needs 3 % of a core to admit them again (15 µs each).
pub const DRAIN_RATE: NonZeroU32 = NonZeroU32::new(2_000).expect("above 0");

/// Maximum size of an unread request body that is read and dropped to keep the connection. With a longer one the connection
/// closes after the response. Reading 64 KiB costs about as much as a new connection.
pub(crate) const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// Bytes to read and drop while lingering after a request that was malformed, or on a stream. A client that sends more than this after
/// the final response does not read it. While the body of a valid request arrives, `linger_bytes` is the limit.
pub(crate) const LINGER_BYTES_MAX: u64 = 1024 * 1024;
/// Further periods of `linger_time` for a client that is still sending the body of a valid request: 32 s by default, as in nginx.
pub(crate) const LINGER_WINDOWS_MAX: u8 = 15;

/// Output size of one batch of pipelined requests, in bytes. Beyond it the other requests wait for the send to end.
pub(crate) const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Output segments of one batch of pipelined requests. A response with a file is two.
pub(crate) const BATCH_SEGMENTS_MAX: usize = 64;

/// Maximum size of a pulled piece of a stream's body, in bytes: the chunk's size has four hexadecimal digits.
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
            let policy = ConnLimits { rate_window_ns: window_ns, ..ConnLimits::default() };
            assert_eq!(policy.window_bytes(rate), bytes, "{rate} bytes a second over {window_ns} ns");
        }
    }
}
