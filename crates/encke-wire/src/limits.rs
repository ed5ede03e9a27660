//! What a peer may make us hold, look at or wait for, with the arithmetic.
//!
//! Every value here is a default: the settings file may lower or raise it, up to the `_MAX` beside it, which
//! follows from how the recognisers store what they found.

/// Most bytes of one request or response head: positions in it are kept as `u16`.
pub const HEAD_BYTES_MAX: u32 = u16::MAX as u32;

/// Most field lines of one head. One is kept as 8 bytes, so the table is 1 KiB, which each worker owns once.
pub const FIELDS_MAX: u16 = 128;

/// Most bytes of a field name, kept as `u8`. The longest registered one has 42.
pub const NAME_BYTES_MAX: usize = u8::MAX as usize;

/// Most bytes of a method. The longest registered one, `UPDATEREDIRECTREF`, has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Empty lines skipped before a request line (RFC 9112 §2.2 asks for at least one).
pub const LEADING_EMPTY_LINES_MAX: u8 = 2;

/// Bytes of one chunk's size line (size, extensions, CRLF). A size has at most 16 digits; extensions are rare,
/// and nobody reads them.
pub const CHUNK_LINE_BYTES: u16 = 512;

/// Bytes of size lines beyond what a body's data justifies (see [`crate::http1::ChunkedDecoder`]): without it
/// a body of 1-byte chunks with 500-byte extensions would cost us 500 times what it carries.
pub const CHUNK_EXCESS_BYTES: u16 = 16 * 1024;

/// Bytes of all trailer lines of one chunked body. They are checked and dropped.
pub const TRAILER_BYTES: u16 = 8 * 1024;

/// Limits of one request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the whole head, from the first byte to the end of the blank line; at most [`HEAD_BYTES_MAX`].
    pub head_bytes: u32,
    /// Bytes of the request target.
    pub uri_bytes: u32,
    /// Field lines; at most [`FIELDS_MAX`].
    pub fields: u16,
}

impl Default for HeadLimits {
    /// 32 KiB holds 100 fields of 300 bytes and more cookies than browsers send (4 KiB each, a handful used);
    /// a target of 16 KiB is twice what every browser and proxy is known to pass on.
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, uri_bytes: 16 * 1024, fields: 100 }
    }
}
