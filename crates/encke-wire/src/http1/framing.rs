//! What Content-Length and Transfer-Encoding may say (RFC 9112 §6): the same for requests and responses. What a
//! message makes of both is the affair of its head.

use crate::field;
use crate::http1::Refusal;

/// The number in a Content-Length: digits, and nothing but digits.
pub(super) fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::InvalidLength);
    }
    value
        .iter()
        .try_fold(0u64, |length, digit| length.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(Refusal::LengthOverflow)
}

/// Accepts a Transfer-Encoding that is exactly `chunked`. What else may be said in that field is told apart
/// only for the sake of an honest status.
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
