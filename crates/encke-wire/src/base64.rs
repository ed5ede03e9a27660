//! Base64 (RFC 4648 §4, with padding), for binary data in text: bytes in envelopes.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;

/// Appends `bytes` as base64.
pub fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written =
        STANDARD.encode_slice(bytes, &mut out[start..]).expect("every three bytes have four places");
    debug_assert_eq!(start + written, out.len());
}

/// Decodes `text`; `None` if it is not Base64 with padding.
///
/// ```
/// use encke_wire::base64;
///
/// let mut text = Vec::new();
/// base64::put(&mut text, b"hello");
/// assert_eq!(text, b"aGVsbG8=");
/// assert_eq!(base64::decode(&text).as_deref(), Some(&b"hello"[..]));
/// assert_eq!(base64::decode(b"aGVsbG8"), None);
/// ```
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len().div_ceil(4) * 3];
    let len = STANDARD.decode_slice(text, &mut bytes).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..=bytes.len() {
            let mut text = b"before ".to_vec();
            put(&mut text, &bytes[..len]);
            let text = text.strip_prefix(b"before ").expect("it was there");
            assert_eq!(decode(text).as_deref(), Some(&bytes[..len]));
        }
    }

    #[test]
    fn what_is_no_base64_is_nothing() {
        for text in [&b"a"[..], b"ab", b"ab=", b"ab==c", b"a b=", b"ab-_", b"=AAA", b"\xff"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
