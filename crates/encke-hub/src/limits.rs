//! Fixed limits, each with its arithmetic. Configurable limits are in [`Rules`](crate::Rules).

/// Bytes of a channel name. With prefix and query a name stays far below the 8 KiB of a request line. A request target of 32
/// KiB has room for 128 names.
pub const NAME_BYTES_MAX: usize = 200;

/// Segments of a channel name: the depth that a [`Pattern`](crate::Pattern) packs into 16 bits.
pub const NAME_SEGMENTS_MAX: usize = 8;

/// Messages in one run. 64 messages of 64 bytes are about one TCP segment with offload. A larger write saves nothing measurable
/// and delays its first message until its last one is encoded.
pub const RUN_MESSAGES_MAX: usize = 64;

/// Bytes of payload in one run; a single larger message is sent alone. This is four times the unsent bytes that a socket may
/// keep (16 KiB). So a subscriber that keeps up never runs out of bytes, and a stalled one holds at most this.
pub const RUN_BYTES_MAX: usize = 64 * 1024;

/// Encoded runs that a channel keeps for other subscribers at the same position. Positions cluster: up to date, one run behind,
/// and both again in a second form.
pub const ENCODINGS_MAX: usize = 4;

/// The share of [`Rules::memory_bytes`](crate::Rules::memory_bytes) that encoded runs may take on a worker: a quarter. Above
/// it, runs shrink to single messages. Subscribers that stall at different positions hold one run each: 1,000 of them with 64
/// KiB are 64 MiB. A connection must hold a single message in any case.
pub const ENCODED_SHARE: u64 = 4;

/// Time for which a worker keeps a channel without local subscribers, in ns: 30 s. A polling client returns sooner, even after
/// a page reload on a slow connection.
pub const UNWANTED_NS: u64 = 30 * 1_000_000_000;

/// Time the sequencer has to open a known channel on a worker before the worker reports the channel as unknown, in ms. Opening
/// takes some µs, or some scheduler slices on a busy machine.
pub const TELLING_MS: u64 = 100;

/// Time for which a polling member stays present after its last response, in ns: 10 s. This is shorter than [`UNWANTED_NS`], so
/// the channel still exists when the member leaves.
pub const LINGER_NS: u64 = 10 * 1_000_000_000;

/// Burst of joins that one client may announce, in seconds of [`Rules::join_rate`](crate::Rules::join_rate).
pub const JOIN_BURST_S: u64 = 2;

/// Longest delay of a join by the rate of its client, in ns: 10 min. At 20 per second, 12,000 members from one address are
/// announced; a join with a longer delay is dropped.
pub const JOIN_WAIT_NS: u64 = 600 * 1_000_000_000;

/// Subscribers of a worker that backfill concurrently; others queue. With a run of 64 KiB each they hold 16 MiB. At one or two
/// milliseconds per run they read more than a worker can send.
pub const READERS_MAX: usize = 256;

/// Bytes of an event name or a media type. RFC 6838, section 4.2 allows 127 + 1 + 127 for a media type.
pub const LABEL_BYTES_MAX: usize = 255;

/// Bytes of an idempotency key. The IETF draft suggests a UUID, 36 bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// Idempotency keys remembered for all publishers together: 546 keyed publishes per second over the whole window of two
/// minutes. A key of 36 bytes takes about 200 bytes, and about 400 if its publisher or channel has no other. So all keys take
/// 13 to 40 MB. Above the limit the publisher with the most keys loses its oldest one.
pub const KEYS_MAX: usize = 65_536;

/// Interval at which an idle worker receives the head offset, in ns: 1 s. This costs one wake-up per idle worker. A position of
/// a second ago is valid for as long as the history of any channel.
pub const HEAD_NS: u64 = 1_000_000_000;

/// Offsets that may be assigned between two commits of a store: 4 billion. At 1,000 per second, a failing store has a month.
pub const CEILING: u64 = 1 << 32;

/// Streams that several servers share, each with its own order.
pub const SHARED_STREAMS_MAX: usize = 8;

/// All streams: the shared ones, and one of this server alone. An id has one position per stream that the subscriber has
/// channels of. Nine positions of at most 34 bytes fit into a protocol line. Every worker checks all streams in each turn.
pub const STREAMS_MAX: usize = SHARED_STREAMS_MAX + 1;

/// The share of memory and channels that the stream of this server alone may take, if it has shared streams, too: half of the
/// memory, and an eighth of the channels. Memory that it does not use belongs to the shared streams.
pub const LOCAL_MEMORY_SHARE: u64 = 2;
/// See [`LOCAL_MEMORY_SHARE`].
pub const LOCAL_CHANNELS_SHARE: usize = 8;
