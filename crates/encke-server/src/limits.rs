//! `[limits]`: the resources that clients may use.

use std::num::NonZeroU32;

use encke_settings::{ByteRate, ByteSize, Contradiction, OrAuto, OrOff, Period, Section, quantity};
use encke_wire::limits::{FIELDS_MAX, HEAD_BYTES_MAX, HeadLimits};
use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

/// Guards that a server may have.
pub(crate) const GUARDS_MAX: usize = 256;

/// `[limits]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// Time until a request's head is complete: from the start of a connection, or from the first byte of a later request. Then
    /// the connection closes, after a 408 if the head has begun.
    pub head_time: Period,
    /// Time until a TLS handshake is complete. Then the connection closes.
    pub handshake_time: Period,
    /// Concurrent TLS handshakes per worker, each counted from its complete ClientHello; 1,024 of them occupy a core for a
    /// quarter of a second. At the limit a new handshake replaces the oldest one if that is at least a second old; otherwise
    /// the new connection closes.
    pub handshakes: NonZeroU32,
    /// Size of a request's head, 256 to 65535 bytes. A larger head is a 431.
    #[serde(deserialize_with = "head_bytes")]
    pub head_bytes: ByteSize,
    /// Size of the request target, at most `head_bytes`. A longer target is a 414.
    #[serde(deserialize_with = "head_bytes")]
    pub uri_bytes: ByteSize,
    /// Field lines of a request, 1 to 128. More are a 431.
    #[serde(deserialize_with = "fields")]
    pub fields: u16,
    /// Size of a request's body. A larger body is a 413; `off` sets no limit. Encke streams bodies and never holds them in
    /// memory, so this limit protects the handlers.
    pub body_bytes: OrOff<ByteSize>,
    /// Minimum rate at which a body must arrive while a handler reads it, measured over ten seconds. A slower body is a 408,
    /// and the connection closes.
    pub body_rate: ByteRate,
    /// Minimum rate at which a client must receive a response, measured over ten seconds. The connection of a slower client
    /// closes.
    pub write_rate: ByteRate,
    /// Time between two requests of a connection. Then the connection closes.
    pub idle_time: Period,
    /// Time for which Encke keeps reading from a connection after a final response, so that the client receives it instead of a
    /// reset. A client that is still sending the body of a valid request gets up to 16 times as long.
    pub linger_time: Period,
    /// Bytes of such a body that Encke reads and drops after the response. Then the connection is reset, and the client may not receive
    /// the response.
    pub linger_bytes: ByteSize,
    /// Concurrent requests of an HTTP/2 connection, including subscriptions. Further streams are rejected.
    pub streams: NonZeroU32,
    /// Requests of an HTTP/2 connection that its client may cancel in a burst; each second permits a tenth of them again. A
    /// connection with more takes no further requests, and ends when those in progress are complete.
    pub stream_resets: NonZeroU32,
    /// Open HTTP/2 requests of all connections. A connection may have an eighth of the remaining number, and always one. Encke
    /// rejects further requests with REFUSED_STREAM, and clients retry them.
    pub open_streams: NonZeroU32,
    /// Bytes of HTTP/2 responses that were read but not sent, of all connections. A connection may hold an eighth of the
    /// remaining bytes. At the limit Encke reads no more for it until its client has received some.
    pub unsent: ByteSize,
    /// Bytes of one connection that the kernel holds and has not sent. It holds the bytes that are on their way besides. Encke
    /// adds more when the client has received some, so a client that reads nothing costs no more than that.
    #[serde(deserialize_with = "kernel_bytes")]
    pub kernel_unsent: ByteSize,
    /// Time without an acknowledgement, or without room at a client that reads nothing, after which the kernel closes a
    /// connection. Subscribers have `push.dead_after`.
    pub dead_after: Period,
    /// Requests after which a connection closes; `off` sets no limit.
    pub requests_per_connection: OrOff<NonZeroU32>,
    /// Open connections. `auto` is the limit of open descriptors, less the descriptors of listeners and the file cache and a
    /// reserve of 64; a number can only lower this. Above 97 % a new connection closes an idle one; at the limit accepting
    /// pauses.
    pub connections: OrAuto<NonZeroU32>,
    /// Open connections of one client address; further ones close at once. `off` sets no limit, because whole offices share an
    /// address.
    pub connections_per_address: OrOff<NonZeroU32>,
    /// Outgoing connections of all handlers, such as connections to applications. At the limit further ones fail.
    pub upstreams: NonZeroU32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let count = |count| NonZeroU32::new(count).expect("above 0");
        let head = HeadLimits::default();
        Self {
            head_time: Period::seconds(10),
            handshake_time: Period::seconds(10),
            handshakes: count(1_024),
            head_bytes: ByteSize::of(head.head_bytes.into()),
            uri_bytes: ByteSize::of(head.uri_bytes.into()),
            fields: head.fields,
            // 1 GiB: bodies are streamed, so the limit protects the disks of handlers, not the memory of this server.
            body_bytes: OrOff::On(ByteSize::of(1 << 30)),
            // 240 bytes per second is slower than any modem: a slower client delays on purpose.
            body_rate: ByteRate::of(240),
            write_rate: ByteRate::of(240),
            idle_time: Period::seconds(60),
            linger_time: Period::seconds(2),
            // Programs that send a whole file before they read. Dropping it takes some 20 ms of a core.
            linger_bytes: ByteSize::of(64 * 1024 * 1024),
            // RFC 9113 §6.5.2 recommends at least 100. A page with 20 EventSources in each of five tabs fits.
            streams: count(128),
            // A map that zooms cancels dozens of pictures; rapid reset (CVE-2023-44487) needs thousands of resets a second.
            stream_resets: count(500),
            // An open stream takes some 7 KiB: 220 MiB if clients open all of them.
            open_streams: count(32_768),
            unsent: ByteSize::of(64 * 1024 * 1024),
            // Of a client with a window of 64 KiB that reads nothing, the kernel then holds 47 KiB.
            kernel_unsent: ByteSize::of(32 * 1024),
            dead_after: Period::seconds(60),
            requests_per_connection: OrOff::Off,
            connections: OrAuto::Auto,
            connections_per_address: OrOff::Off,
            upstreams: count(10_000),
        }
    }
}

impl LimitSettings {
    /// Returns the limits of a request's head, in the units of its parser.
    pub fn head(&self) -> HeadLimits {
        let bytes = |size: ByteSize| u32::try_from(size.bytes()).unwrap_or(HEAD_BYTES_MAX);
        HeadLimits {
            head_bytes: bytes(self.head_bytes),
            uri_bytes: bytes(self.uri_bytes),
            fields: self.fields,
        }
    }

    /// Returns `unsent` in bytes: response bytes of HTTP/2 that were read but not sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        usize::try_from(self.unsent.bytes()).unwrap_or(usize::MAX)
    }
}

impl Section for LimitSettings {
    fn check(&self) -> Vec<Contradiction> {
        let (uri, head) = (self.uri_bytes, self.head_bytes);
        let is_wrong = uri > head;
        let message = || {
            format!("limits.uri_bytes ({uri}) is more than limits.head_bytes ({head}), of which it is a part")
        };
        is_wrong.then(|| Contradiction::at(&["uri_bytes"], message())).into_iter().collect()
    }
}

fn kernel_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    quantity::within(deserializer, ByteSize::of(4 * 1024), ByteSize::of(1024 * 1024 * 1024))
}

fn head_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    // Below 256 bytes no browser's request line and Host would fit.
    quantity::within(deserializer, ByteSize::of(256), ByteSize::of(HEAD_BYTES_MAX.into()))
}

fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    quantity::within(deserializer, 1, FIELDS_MAX)
}
