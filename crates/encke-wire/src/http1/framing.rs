//! Parsing of Content-Length and Transfer-Encoding (RFC 9112 §6), shared by requests and responses. Each head decides how to
//! combine the two.

use crate::field;
use crate::http1::Refusal;

/// Parses a Content-Length, which must consist of digits only.
pub(super) fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::InvalidLength);
    }
    value
        .iter()
        .try_fold(0u64, |length, digit| length.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(Refusal::LengthOverflow)
}

/// Accepts a Transfer-Encoding that is exactly `chunked`. Other values are distinguished only to respond with an accurate
/// status.
pub(super) fn chunked_only(value: &[u8]) -> Result<(), Refusal> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = field::list(value).peekable();
    let mut count = 0;
    while let Some(coding) = codings.next() {
        count += 1;
        let name = field::parameters(coding).next().unwrap_or_default();
        let is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        let is_last = codings.peek().is_none();
        if !field::is_token(name) || is_chunked != is_last {
            return Err(Refusal::InvalidCoding);
        }
    }
    Err(if count > 1 { Refusal::UnsupportedCoding } else { Refusal::InvalidCoding })
}
