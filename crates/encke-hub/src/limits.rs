//! The limits that are no settings, each with its arithmetic. Those that are settings stand in [`Rules`](crate::Rules).

/// Bytes of a channel's name: with the prefix and a query it stays far below the 8 KiB of a request line, and 128
/// of them still fit into a request target of 32 KiB.
pub const NAME_BYTES_MAX: usize = 200;

/// Segments of a name: the depth that a [`Pattern`](crate::Pattern) packs into 16 bits.
pub const NAME_SEGMENTS_MAX: usize = 8;

/// Messages in one run. 64 messages of 64 bytes are about one segment of TCP with offload; more in one write save
/// nothing that can be measured, and make the first of them wait for the last.
pub const RUN_MESSAGES_MAX: usize = 64;

/// Bytes of payload in one run; a single larger message goes alone. Four times what a socket is asked to keep
/// unsent (16 KiB), so that a reader which keeps up is never short of bytes, and one which stalls holds at most this.
pub const RUN_BYTES_MAX: usize = 64 * 1024;

/// Encoded runs that a channel keeps for others at the same place. Positions cluster: those who kept up, those one
/// run behind, and the same in a second form.
pub const ENCODINGS_MAX: usize = 4;

/// Which part of [`Rules::memory_bytes`](crate::Rules::memory_bytes) encoded runs may take on a core before runs become
/// single messages: a quarter. Readers who stall each at another place hold a run each: 1,000 of them with 64 KiB are
/// 64 MiB. Single messages are what their connections must hold anyway.
pub const ENCODED_SHARE: u64 = 4;

/// How long a core keeps a channel that nobody there subscribes to: longer than a poll needs to come back, also
/// after a reload of the page on a slow line. In ns: 30 s.
pub const UNWANTED_NS: u64 = 30 * 1_000_000_000;

/// How long the sequencer has to tell a core of a channel that it knows, in ms, before the core says that the channel is not
/// known: it needs some µs, and on a machine that is busy elsewhere some slices of its scheduler.
pub const TELLING_MS: u64 = 100;

/// How long a member who polls stays after its last answer, in ns: 10 s. Shorter than [`UNWANTED_NS`], so that the
/// channel is still there when the member goes.
pub const LINGER_NS: u64 = 10 * 1_000_000_000;

/// Joins of a client that are announced at once, as seconds of [`Rules::join_rate`](crate::Rules::join_rate).
pub const JOIN_BURST_S: u64 = 2;

/// How long a join waits for its client's turn at most, in ns: 10 min. With 20 a second, 12,000 members behind one address are
/// announced; a join with a longer delay is dropped.
pub const JOIN_WAIT_NS: u64 = 600 * 1_000_000_000;

/// Subscribers of a core that read what is not kept here at a time; the others wait for their turn. With a run of 64 KiB each
/// 16 MiB, and at a millisecond or two a run more than what a core sends.
pub const READERS_MAX: usize = 256;

/// Bytes of an event's name or a media type: RFC 6838, section 4.2 allows 127 + 1 + 127 for a media type.
pub const LABEL_BYTES_MAX: usize = 255;

/// Bytes of an idempotency key. The IETF draft suggests a UUID, 36 bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// Idempotency keys that are remembered for all publishers together: 546 publishes a second with a key for the whole window of
/// two minutes. With a key of 36 bytes, one takes about 200 bytes; a publisher or channel with a single key about 400. So all of
/// them take 13 to 40 MB. Above the limit the publisher with the most keys loses its oldest one.
pub const KEYS_MAX: usize = 65_536;

/// How often a core where nothing happens is told how far the stream is, in ns: 1 s. It costs such a core a wake; a
/// position of a second ago lasts as long as the history of any channel.
pub const HEAD_NS: u64 = 1_000_000_000;

/// Offsets that may be given between two commits of a store. 4 billion: a month at 1,000 a second with a store that
/// fails.
pub const CEILING: u64 = 1 << 32;

/// Streams, each with an order of its own. An id has a position for each that its channels are of: 8 of at most 34 bytes are
/// within the line of a protocol, and every core looks at all of them in each turn.
pub const STREAMS_MAX: usize = 8;
