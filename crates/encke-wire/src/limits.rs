//! Limits on the data that a peer can make Encke hold, process or wait for, with the arithmetic.
//!
//! The values are defaults. The settings file may lower or raise them, up to the corresponding `_MAX`, which follows from the
//! integer types in which the parsers store positions.

/// Maximum size of a request or response head in bytes: positions in it are stored as `u16`.
pub const HEAD_BYTES_MAX: u32 = u16::MAX as u32;

/// Maximum number of field lines of a head. Each takes 8 bytes, so the table is 1 KiB, which each worker owns once.
pub const FIELDS_MAX: u16 = 128;

/// Maximum length of a field name in bytes, stored as `u8`. The longest registered name has 42.
pub const NAME_BYTES_MAX: usize = u8::MAX as usize;

/// Maximum length of a method in bytes. The longest registered method, `UPDATEREDIRECTREF`, has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Maximum number of empty lines skipped before a request line (RFC 9112 §2.2 asks for at least one).
pub const LEADING_EMPTY_LINES_MAX: u8 = 2;

/// Maximum length in bytes of a chunk's size line (size, extensions, CRLF). A size has at most 16 digits. Extensions are rare
/// and ignored.
pub const CHUNK_LINE_BYTES: u16 = 512;

/// Maximum excess in bytes of size lines over the data of their body (see [`crate::http1::ChunkedDecoder`]). Without this limit
/// a body of 1-byte chunks with 500-byte extensions would cost 500 times its data.
pub const CHUNK_EXCESS_BYTES: u16 = 16 * 1024;

/// Maximum size in bytes of all trailer lines of a chunked body. They are checked and dropped.
pub const TRAILER_BYTES: u16 = 8 * 1024;

/// Limits for one request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Maximum size of the head in bytes, from the first byte to the end of the blank line. At most [`HEAD_BYTES_MAX`].
    pub head_bytes: u32,
    /// Maximum length of the request target in bytes.
    pub uri_bytes: u32,
    /// Maximum number of field lines. At most [`FIELDS_MAX`].
    pub fields: u16,
}

impl Default for HeadLimits {
    /// 32 KiB hold 100 fields of 300 bytes, and more cookies than browsers send (4 KiB each, usually a handful). A target of 16
    /// KiB is twice the length that all browsers and proxies are known to forward.
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, uri_bytes: 16 * 1024, fields: 100 }
    }
}
