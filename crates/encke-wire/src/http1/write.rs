//! Writing heads and chunks (RFC 9112 §4–7): appends to the caller's buffer, without formatting machinery.
//!
//! No value can escape from its line. A name that is not a token, or a value with CR, LF, NUL or another control character, is
//! an error and writes nothing. This rules out response splitting in every handler.

use crate::field;
use crate::status;

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The reason why a field was not written: it would corrupt the message. The handler that created it is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The name is not a token.
    Name,
    /// The value holds a control character.
    Value,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Name => "the field name to send is not a token",
            Self::Value => "the field value to send has a control character",
        })
    }
}

impl std::error::Error for FieldError {}

/// The whole status line of a registered status, including CRLF. Empty for any other status (see [`put_status_line`]).
#[inline]
#[must_use]
pub fn status_line(status: u16) -> &'static [u8] {
    let Some(index) = usize::from(status).checked_sub(FIRST_STATUS) else { return &[] };
    STATUS_LINES.get(index).map_or(&[], |line| line.as_bytes())
}

/// Appends the status line of `status`, which must be between 100 and 999.
pub fn put_status_line(out: &mut Vec<u8>, status: u16) {
    debug_assert!((100..=999).contains(&status), "a status has three digits");
    let line = status_line(status);
    if line.is_empty() {
        out.extend_from_slice(b"HTTP/1.1 ");
        put_number(out, u64::from(status));
        out.extend_from_slice(b" \r\n");
    } else {
        out.extend_from_slice(line);
    }
}

/// Appends `name: value CRLF`.
///
/// # Errors
/// [`FieldError`] if the result would not be one field line. Nothing is then written.
pub fn put_field(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), FieldError> {
    if !field::is_token(name.as_bytes()) {
        return Err(FieldError::Name);
    }
    if !field::is_field_value(value) {
        return Err(FieldError::Value);
    }
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends `name: number CRLF`. The name must be a token.
pub fn put_field_number(out: &mut Vec<u8>, name: &'static str, number: u64) {
    debug_assert!(field::is_token(name.as_bytes()), "{name}");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    put_number(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends `number` in decimal.
#[inline]
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(decimal(number, &mut [0; 20]));
}

/// Returns `number` in decimal, at the end of `digits`: `u64::MAX` has 20 digits.
#[inline]
pub fn decimal(number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let (mut left, mut start) = (number, digits.len());
    loop {
        start -= 1;
        // Below 10, so the cast holds.
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    &digits[start..]
}

/// Appends the size line of a chunk of `bytes` bytes, which must be more than 0, because an empty chunk would end the body. The
/// data and a CRLF must follow.
pub fn put_chunk_head(out: &mut Vec<u8>, bytes: u64) {
    debug_assert!(bytes > 0, "a chunk of size 0 ends the body: send LAST_CHUNK");
    let digits = (bytes.max(1).ilog2() / 4) as usize;
    for digit in (0..=digits).rev() {
        // Masked to one digit, so the index is valid.
        out.push(b"0123456789abcdef"[(bytes >> (4 * digit)) as usize & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

const FIRST_STATUS: usize = 100;
const STATUS_COUNT: usize = 500;

/// A status line of at most 60 bytes, created at compile time.
#[derive(Clone, Copy)]
struct StatusLine {
    text: [u8; 60],
    bytes: u8,
}

impl StatusLine {
    const fn of(code: u16) -> Self {
        let mut line = Self { text: [0; 60], bytes: 0 };
        let reason = status::reason(code);
        if reason.is_empty() {
            return line;
        }
        let digits = [b'0' + (code / 100) as u8, b'0' + (code / 10 % 10) as u8, b'0' + (code % 10) as u8];
        line = line.with(b"HTTP/1.1 ").with(&digits).with(b" ").with(reason.as_bytes()).with(b"\r\n");
        line
    }

    const fn with(mut self, text: &[u8]) -> Self {
        let mut index = 0;
        while index < text.len() {
            self.text[self.bytes as usize] = text[index];
            self.bytes += 1;
            index += 1;
        }
        self
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.bytes)]
    }
}

static STATUS_LINES: [StatusLine; STATUS_COUNT] = {
    let mut lines = [StatusLine { text: [0; 60], bytes: 0 }; STATUS_COUNT];
    let mut index = 0;
    while index < STATUS_COUNT {
        lines[index] = StatusLine::of((FIRST_STATUS + index) as u16);
        index += 1;
    }
    lines
};

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).expect("what we write here is ASCII")
    }

    #[test]
    fn status_lines_are_ready_made_for_registered_codes() {
        assert_eq!(status_line(200), b"HTTP/1.1 200 OK\r\n");
        assert_eq!(status_line(511), b"HTTP/1.1 511 Network Authentication Required\r\n");
        for status in [0, 99, 299, 599, 600, 999, u16::MAX] {
            assert_eq!(status_line(status), b"", "{status}");
        }
        for status in 100..600 {
            let reason = status::reason(status);
            let expected = format!("HTTP/1.1 {status} {reason}\r\n");
            assert_eq!(written(|out| put_status_line(out, status)), expected);
        }
        assert_eq!(written(|out| put_status_line(out, 799)), "HTTP/1.1 799 \r\n");
    }

    #[test]
    fn fields_are_one_line_each() {
        assert_eq!(written(|out| put_field(out, "ETag", b"\"a\"").expect("valid")), "ETag: \"a\"\r\n");
        assert_eq!(written(|out| put_field_number(out, "Content-Length", 0)), "Content-Length: 0\r\n");
    }

    #[test]
    fn a_value_that_would_split_the_response_is_an_error_and_writes_nothing() {
        for value in [&b"a\r\nSet-Cookie: x"[..], b"\n", b"\r", b"a\0b", b"\x7f", b"\x1b"] {
            let mut out = Vec::new();
            assert_eq!(put_field(&mut out, "Location", value), Err(FieldError::Value));
            assert!(out.is_empty());
        }
        for name in ["", "a b", "a:", "a\r\n", "é"] {
            let mut out = Vec::new();
            assert_eq!(put_field(&mut out, name, b"v"), Err(FieldError::Name));
            assert!(out.is_empty());
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for number in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX, 10, 99, 100]) {
            assert_eq!(written(|out| put_number(out, number)), number.to_string());
        }
    }

    #[test]
    fn chunk_sizes_are_hexadecimal_without_leading_zeros() {
        for number in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) + 1]).chain([u64::MAX, 255]) {
            assert_eq!(written(|out| put_chunk_head(out, number)), format!("{number:x}\r\n"));
        }
    }
}
