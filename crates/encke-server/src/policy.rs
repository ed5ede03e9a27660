//! What a worker obeys: the settings of limits, checked and in the units of the hot path.

use encke_settings::Network;
use encke_wire::forwarded::Dialect;
use encke_wire::http1::HeadLimits;

use crate::https;

/// Limits of connections and requests. Times are nanoseconds, rates bytes a second.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Of a request's head.
    pub head: HeadLimits,
    /// From the first moment of a connection, or the first byte of a later request, to the end of its head.
    pub head_time_ns: u64,
    /// From the first moment of a connection by TLS, or the end of its PROXY header, to the end of its handshake.
    pub handshake_time_ns: u64,
    /// TLS handshakes that a worker has open at a time, each counted from its complete ClientHello.
    pub handshakes: usize,
    /// Between two requests.
    pub idle_time_ns: u64,
    /// Largest body of a request; `None`: any.
    pub body_bytes: Option<u64>,
    /// A body must arrive at least this fast while we read it.
    pub body_rate: u64,
    /// An answer must be taken at least this fast.
    pub write_rate: u64,
    /// Over what time the two rates are judged.
    pub rate_window_ns: u64,
    /// How long a connection is read on after a final answer that the client may not have read.
    pub linger_time_ns: u64,
    /// Streams that an HTTP/2 connection may have open at a time.
    pub streams: u32,
    /// Open HTTP/2 streams of the whole process.
    pub open_streams: u32,
    /// Bytes of HTTP/2 responses that the whole process has read but not sent.
    pub unsent_bytes: usize,
    /// After so many requests a connection is closed; `None`: never.
    pub requests_per_connection: Option<u32>,
    /// Connections of the whole process.
    pub connections: usize,
    /// Outgoing connections of the whole process.
    pub upstreams: usize,
    /// Connections of one client address; `None`: any.
    pub connections_per_address: Option<u32>,
    /// Where `https` is, for requests that are sent on to it.
    pub https_port: u16,
    /// Peers whose word about the client's address is taken.
    pub trusted_proxies: Vec<Network>,
    /// Which field those peers write.
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
            head: HeadLimits::default(),
            head_time_ns: 10_000_000_000,
            handshake_time_ns: 10_000_000_000,
            handshakes: 1_024,
            idle_time_ns: 60_000_000_000,
            // 1 GiB: bodies are streamed, so the limit protects handlers' disks, not this server's memory.
            body_bytes: Some(1 << 30),
            // 240 bytes a second is slower than any modem; what is slower holds a connection on purpose.
            body_rate: 240,
            write_rate: 240,
            // Long enough for a phone that changes cells, short enough that 300 slow clients are gone before a
            // person gives up.
            rate_window_ns: 10_000_000_000,
            linger_time_ns: 2_000_000_000,
            // What RFC 9113 §6.5.2 recommends at least is 100. A page with 20 EventSources in each of five tabs fits.
            streams: 128,
            // An open stream takes some 7 KiB: 220 MiB if clients open all of them.
            open_streams: 32_768,
            unsent_bytes: 64 * 1024 * 1024,
            requests_per_connection: None,
            connections: 1_000,
            upstreams: 1_000,
            connections_per_address: None,
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
