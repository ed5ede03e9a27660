//! Detects pseudo-header fields in the trailers of a request, which make it malformed (RFC 9113 §8.1). The `h2` crate drops
//! them silently, so its input is examined first.
//!
//! ```text
//!  field block: size updates ─► the first representation (RFC 7541 §6) ─► static name 1 to 14, or a literal name with `:`
//! ```
//! The first representation suffices, because `h2` rejects pseudo-header fields that follow a regular one. A name in the
//! dynamic table cannot be found without a decoder and passes.

/// Entries 1 to 14 of the static table are pseudo-header fields (RFC 7541, appendix A).
const STATIC_PSEUDO_MAX: u8 = 14;

/// The first bits of a Huffman-coded `:` are 1011100 (RFC 7541, appendix B).
const HUFFMAN_COLON: u8 = 0b1011_1000;

/// The meaning of the next byte of a field block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirstField {
    /// The first byte of a representation.
    Representation,
    /// A further byte of a size update's number.
    SizeUpdate,
    /// The first byte of a name's length.
    NameLength,
    /// A further byte of the length.
    NameLengthRest { huffman: bool },
    /// The first byte of a name.
    Name { huffman: bool },
    /// The first field was recognised: whether it is a pseudo-header field.
    Known(bool),
}

impl FirstField {
    /// Reads the next bytes of a field block.
    pub(super) fn feed(&mut self, block: &[u8]) {
        for &byte in block {
            if matches!(self, Self::Known(_)) {
                return;
            }
            *self = self.after(byte);
        }
    }

    fn after(self, byte: u8) -> Self {
        let literal = |index: u8| match index {
            0 => Self::NameLength,
            index => Self::Known(index <= STATIC_PSEUDO_MAX),
        };
        match self {
            Self::Representation => match byte {
                0x80.. => Self::Known((1..=STATIC_PSEUDO_MAX).contains(&(byte & 0x7f))),
                0x40..=0x7f => literal(byte & 0x3f),
                0x3f => Self::SizeUpdate,
                0x20..=0x3e => Self::Representation,
                ..=0x1f => literal(byte & 0x0f),
            },
            Self::SizeUpdate if byte < 0x80 => Self::Representation,
            Self::SizeUpdate => self,
            Self::NameLength if byte & 0x7f == 0x7f => Self::NameLengthRest { huffman: byte >= 0x80 },
            Self::NameLength => Self::Name { huffman: byte >= 0x80 },
            Self::NameLengthRest { huffman } if byte < 0x80 => Self::Name { huffman },
            Self::NameLengthRest { .. } => self,
            Self::Name { huffman: true } => Self::Known(byte & 0b1111_1110 == HUFFMAN_COLON),
            Self::Name { huffman: false } => Self::Known(byte == b':'),
            Self::Known(_) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudo_fields_are_found_in_every_representation() {
        for (block, expected) in [
            (&[0x84][..], true),
            (&[0x8e], true),
            (&[0x80 | 15], false),
            (&[0xbe], false),
            (&[0xff, 0x00], false),
            (&[0x44, 1, b'/'], true),
            (&[0x50, 1, b'x'], false),
            (&[0x04, 1, b'/'], true),
            (&[0x14, 1, b'/'], true),
            (&[0x0f, 0x00, 1, b'x'], false),
            (b"\x00\x05:path\x01/", true),
            (b"\x40\x05:path\x01/", true),
            (b"\x10\x05:path\x01/", true),
            (b"\x00\x05xpath\x01/", false),
            (&[0x20, 0x3f, 0xe1, 0x1f, 0x84], true),
            (&[0x3e, 0x50, 1, b'x'], false),
            // `:path` and `x` in Huffman code.
            (&[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f], true),
            (&[0x00, 0x81, 0xf3], false),
            (&[0x00, 0x7f, 0x81, 0x01, b':'], true),
        ] {
            let mut whole = FirstField::Representation;
            whole.feed(block);
            assert_eq!(whole, FirstField::Known(expected), "{block:x?}");
            let mut bytewise = FirstField::Representation;
            block.chunks(1).for_each(|byte| bytewise.feed(byte));
            assert_eq!(bytewise, whole, "{block:x?}");
        }
    }
}
