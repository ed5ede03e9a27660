//! `[limits]`: what clients may cost.

use std::num::NonZeroU32;

use encke_settings::{ByteSize, Contradiction, OrAuto, OrOff, Period, Rate, Section, quantity};
use encke_wire::limits::{FIELDS_MAX, HEAD_BYTES_MAX, HeadLimits};
use schemars::JsonSchema;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

/// `[limits]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// From the first moment of a connection, or the first byte of a later request, to the end of its head.
    pub head_time: Period,
    /// How long a TLS handshake may take.
    pub handshake_time: Period,
    /// TLS handshakes that a worker has open at a time, each counted from its complete ClientHello: 1,024 of them keep a
    /// core busy for a quarter of a second. One more takes the place of the oldest if that is a second old, and is
    /// closed if not.
    pub handshakes: NonZeroU32,
    /// A request's head in all; at most 65535. More is a 431.
    #[serde(deserialize_with = "head_bytes")]
    pub head_bytes: ByteSize,
    /// The request target. More is a 414.
    #[serde(deserialize_with = "head_bytes")]
    pub uri_bytes: ByteSize,
    /// Field lines of a request; at most 128. More is a 431.
    #[serde(deserialize_with = "fields")]
    pub fields: u16,
    /// The body of a request, or `off`. More is a 413. Bodies are streamed and never held in memory, so this
    /// protects what a handler does with them.
    pub body_bytes: OrOff<ByteSize>,
    /// A body must arrive at least this fast while it is read; judged over ten seconds.
    pub body_rate: Rate,
    /// A client must take an answer at least this fast; judged over ten seconds.
    pub write_rate: Rate,
    /// Between two requests of a connection.
    pub idle_time: Period,
    /// How long a connection is still read after a final error, so that the client sees the answer instead of a
    /// reset.
    pub linger_time: Period,
    /// Requests that an HTTP/2 connection may have open at a time, subscriptions included.
    pub streams: NonZeroU32,
    /// Open HTTP/2 requests of all connections. A connection may have an eighth of the number that is left, and always
    /// one. Encke rejects a request beyond that with REFUSED_STREAM, and clients retry it.
    pub open_streams: NonZeroU32,
    /// Bytes of HTTP/2 responses that were read but not sent, in all. A connection may hold an eighth of the rest. Then
    /// Encke reads no more for it until its client has received some.
    pub unsent: ByteSize,
    /// After so many requests a connection is closed; or `off`.
    pub requests_per_connection: OrOff<NonZeroU32>,
    /// Connections in all. `auto` is the limit of open descriptors less what listeners, the file cache and a
    /// reserve of 64 need.
    pub connections: OrAuto<NonZeroU32>,
    /// Connections of one client address; or `off`, because whole offices share one.
    pub connections_per_address: OrOff<NonZeroU32>,
    /// Outgoing connections of handlers in all, such as those to applications.
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
            // 1 GiB: bodies are streamed, so the limit protects handlers' disks, not this server's memory.
            body_bytes: OrOff::On(ByteSize::of(1 << 30)),
            // 240 bytes a second is slower than any modem; what is slower holds a connection on purpose.
            body_rate: Rate::of(240),
            write_rate: Rate::of(240),
            idle_time: Period::seconds(60),
            linger_time: Period::seconds(2),
            // What RFC 9113 §6.5.2 recommends at least is 100. A page with 20 EventSources in each of five tabs fits.
            streams: count(128),
            // An open stream takes some 7 KiB: 220 MiB if clients open all of them.
            open_streams: count(32_768),
            unsent: ByteSize::of(64 * 1024 * 1024),
            requests_per_connection: OrOff::Off,
            connections: OrAuto::Auto,
            connections_per_address: OrOff::Off,
            upstreams: count(1_000),
        }
    }
}

impl LimitSettings {
    /// Limits of a request's head, in the units of its parser.
    pub fn head(&self) -> HeadLimits {
        let bytes = |size: ByteSize| u32::try_from(size.bytes()).unwrap_or(HEAD_BYTES_MAX);
        HeadLimits {
            head_bytes: bytes(self.head_bytes),
            uri_bytes: bytes(self.uri_bytes),
            fields: self.fields,
        }
    }

    /// Bytes of HTTP/2 responses that were read but not sent.
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

fn head_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    // Below 256 bytes no browser's request line and Host would fit.
    quantity::within(deserializer, ByteSize::of(256), ByteSize::of(HEAD_BYTES_MAX.into()))
}

fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    quantity::within(deserializer, 1, FIELDS_MAX)
}
