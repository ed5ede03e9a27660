//! Frame encoding (RFC 6455 §5): heads for payloads sent separately, whole frames for small payloads.
//!
//! ```text
//!   FIN RSV1 0 0 opcode │ MASK length(7) │ length(16 or 64), if it needs it │ key(32), if masked │ payload
//! ```
//!
//! A server's frames are unmasked, so that one encoding serves all subscribers: [`frame_head`] precedes shared bytes. A client
//! must mask, with a new random key for every frame: [`put_masked`].

use super::{
    COMPRESSED, CONTROL_BYTES_MAX, LAST, LENGTH_IN_2, LENGTH_IN_8, MASKED, Opcode, is_close_code, mask,
};

/// The head of an unmasked frame: 2, 4 or 10 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    bytes: [u8; 10],
    count: u8,
}

/// The payload of a Close: nothing, or a code and a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosePayload {
    bytes: [u8; CONTROL_BYTES_MAX],
    count: u8,
}

/// The head of a frame that is a whole uncompressed message with a payload of `payload_bytes`, at most 2^63 - 1. A control
/// frame has at most [`CONTROL_BYTES_MAX`].
#[must_use]
pub const fn frame_head(opcode: Opcode, payload_bytes: u64) -> FrameHead {
    debug_assert!(payload_bytes <= i64::MAX as u64, "a length has 63 bits");
    debug_assert!(
        !opcode.is_control() || payload_bytes <= CONTROL_BYTES_MAX as u64,
        "control frames are small"
    );
    let [.., high, low] = payload_bytes.to_be_bytes();
    let first = LAST | opcode as u8;
    match payload_bytes {
        0..=125 => FrameHead { bytes: [first, low, 0, 0, 0, 0, 0, 0, 0, 0], count: 2 },
        126..=0xffff => FrameHead { bytes: [first, LENGTH_IN_2, high, low, 0, 0, 0, 0, 0, 0], count: 4 },
        _ => {
            let [a, b, c, d, e, f, g, h] = payload_bytes.to_be_bytes();
            FrameHead { bytes: [first, LENGTH_IN_8, a, b, c, d, e, f, g, h], count: 10 }
        }
    }
}

impl FrameHead {
    /// Returns this head for a frame whose message continues in the next one.
    #[must_use]
    pub const fn unfinished(mut self) -> Self {
        self.bytes[0] &= !LAST;
        self
    }

    /// Returns this head for the first frame of a compressed message, if compression was agreed.
    #[must_use]
    pub const fn compressed(mut self) -> Self {
        self.bytes[0] |= COMPRESSED;
        self
    }

    /// The bytes to send before the payload.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// Appends a whole unmasked frame.
pub fn put_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    let head = frame_head(opcode, payload.len() as u64);
    out.reserve(head.as_bytes().len() + payload.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(payload);
}

/// Appends a whole masked frame, as clients send it. `key` must be four unpredictable bytes (RFC 6455 §5.3).
pub fn put_masked(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], key: [u8; 4]) {
    let mut head = frame_head(opcode, payload.len() as u64);
    head.bytes[1] |= MASKED;
    out.reserve(head.as_bytes().len() + key.len() + payload.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(&key);
    let start = out.len();
    out.extend_from_slice(payload);
    mask::apply(&mut out[start..], key);
}

/// Appends a server's Close with `code`, and as much of `reason` as fits.
pub fn put_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    put_frame(out, Opcode::Close, close_payload(code, reason).as_bytes());
}

/// The payload of a Close with `code`, which must be allowed ([`is_close_code`]), and the characters of `reason` that fit in
/// 123 bytes.
#[must_use]
pub fn close_payload(code: u16, reason: &str) -> ClosePayload {
    debug_assert!(is_close_code(code), "{code} must not be sent");
    let mut bytes = [0; CONTROL_BYTES_MAX];
    let (number, text) = bytes.split_at_mut(size_of_val(&code));
    number.copy_from_slice(&code.to_be_bytes());
    let reason = &reason[..reason.floor_char_boundary(text.len())];
    text[..reason.len()].copy_from_slice(reason.as_bytes());
    // At most CONTROL_BYTES_MAX, so the cast holds.
    ClosePayload { bytes, count: (size_of_val(&code) + reason.len()) as u8 }
}

impl ClosePayload {
    /// The bytes of the payload.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_in_as_few_bytes_as_they_need() {
        for (bytes, head) in [
            (0, &[0x82, 0][..]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (65_535, &[0x82, 126, 0xff, 0xff]),
            (65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
            (i64::MAX as u64, &[0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(frame_head(Opcode::Binary, bytes).as_bytes(), head, "{bytes}");
        }
    }

    #[test]
    fn the_examples_of_the_rfc_come_out() {
        let mut out = Vec::new();
        put_frame(&mut out, Opcode::Text, b"Hello");
        assert_eq!(out, b"\x81\x05Hello");
        out.clear();
        put_masked(&mut out, Opcode::Text, b"Hello", [0x37, 0xfa, 0x21, 0x3d]);
        assert_eq!(out, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
        assert_eq!(frame_head(Opcode::Text, 3).unfinished().as_bytes(), b"\x01\x03");
        assert_eq!(frame_head(Opcode::Text, 7).compressed().as_bytes(), b"\xc1\x07");
        assert_eq!(frame_head(Opcode::Ping, 5).as_bytes(), b"\x89\x05");
    }

    #[test]
    fn a_close_has_its_code_first_and_as_many_characters_as_fit() {
        let mut out = Vec::new();
        put_close(&mut out, 1000, "");
        put_close(&mut out, 4410, "gap");
        assert_eq!(out, b"\x88\x02\x03\xe8\x88\x05\x11\x3agap");
        let long = "ä".repeat(100);
        let payload = close_payload(1002, &long);
        assert_eq!(payload.as_bytes().len(), 2 + 122, "123 bytes would cut a character");
        assert_eq!(&payload.as_bytes()[2..], "ä".repeat(61).as_bytes());
    }
}
