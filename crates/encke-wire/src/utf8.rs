//! Incremental UTF-8 validation (RFC 3629): checks whether all pieces so far are the start of a valid text.
//!
//! ```text
//!            ┌─ whole characters: the standard library's check, words at a time ─┐
//!            ▼                                                                   │
//!   new ──► whole ── lead byte of 2 to 4 ──► within a character ── its last byte ┘
//!               any byte that no valid text has there: Invalid
//! ```
//!
//! The check fails at the first invalid byte, not at the end of a character or of a text. So garbage in an endless message is
//! detected at once. Surrogates, overlong forms and characters above U+10FFFF are detected at their second byte, for which the
//! bounds are kept.
//!
//! The standard library is fast for ASCII, and checks other scripts byte by byte (`cargo run --release -p encke-wire --example
//! frame_speed`). The cost arises once per published message, not once per subscriber.

use std::fmt;

/// The state of the check of one text: three bytes, without any of the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utf8 {
    /// Missing bytes of the last character, at most 3.
    missing: u8,
    /// Smallest allowed value of the next byte. `highest` is the largest.
    lowest: u8,
    highest: u8,
}

/// A byte that cannot occur at its position in any valid text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Position in the piece passed to `feed`.
    pub at: usize,
}

impl Utf8 {
    /// Creates a check at the start of a text.
    #[must_use]
    pub const fn new() -> Self {
        Self { missing: 0, lowest: CONTINUATION.0, highest: CONTINUATION.1 }
    }

    /// Checks the next piece of the text.
    ///
    /// # Errors
    /// [`Invalid`] at the first invalid byte. The check must not be used afterwards.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Invalid> {
        let mut at = 0;
        loop {
            while self.missing > 0 {
                let Some(&byte) = piece.get(at) else { return Ok(()) };
                self.continuation(byte, at)?;
                at += 1;
            }
            match std::str::from_utf8(&piece[at..]) {
                Ok(_) => return Ok(()),
                // The rest begins with an incomplete or invalid character. At most a few more bytes decide which.
                Err(stop) => {
                    at += stop.valid_up_to();
                    self.lead(piece[at], at)?;
                    at += 1;
                }
            }
        }
    }

    /// Whether the text may end here: the last character is complete.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Handles the first byte of a character of two to four bytes.
    const fn lead(&mut self, byte: u8, at: usize) -> Result<(), Invalid> {
        // Unicode, table 3-7.
        let (missing, (lowest, highest)) = match byte {
            0xc2..=0xdf => (1, CONTINUATION),
            0xe0 => (2, (0xa0, 0xbf)),
            0xed => (2, (0x80, 0x9f)),
            0xe1..=0xef => (2, CONTINUATION),
            0xf0 => (3, (0x90, 0xbf)),
            0xf1..=0xf3 => (3, CONTINUATION),
            0xf4 => (3, (0x80, 0x8f)),
            _ => return Err(Invalid { at }),
        };
        *self = Self { missing, lowest, highest };
        Ok(())
    }

    /// Handles a byte within a character.
    const fn continuation(&mut self, byte: u8, at: usize) -> Result<(), Invalid> {
        if byte < self.lowest || byte > self.highest {
            return Err(Invalid { at });
        }
        *self = Self { missing: self.missing - 1, lowest: CONTINUATION.0, highest: CONTINUATION.1 };
        Ok(())
    }
}

impl Default for Utf8 {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "byte {} of this piece cannot be UTF-8", self.at)
    }
}

impl std::error::Error for Invalid {}

/// The bytes that continue a character.
const CONTINUATION: (u8, u8) = (0x80, 0xbf);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::{Random, splits};

    /// `Ok` with whether the text is whole, or the position of the first invalid byte. Checks that every split gives the same
    /// result.
    fn check(text: &[u8]) -> Result<bool, usize> {
        let whole = check_pieces(&[text]);
        for pieces in splits(text) {
            assert_eq!(check_pieces(&pieces), whole, "{} in {pieces:?}", text.escape_ascii());
        }
        whole
    }

    fn check_pieces(pieces: &[&[u8]]) -> Result<bool, usize> {
        let (mut utf8, mut before) = (Utf8::new(), 0);
        for piece in pieces {
            utf8.feed(piece).map_err(|invalid| before + invalid.at)?;
            before += piece.len();
        }
        Ok(utf8.is_whole())
    }

    /// The slow form: the shortest prefix that cannot begin a valid text ends at the invalid byte.
    fn reference(text: &[u8]) -> Result<bool, usize> {
        for end in 1..=text.len() {
            if std::str::from_utf8(&text[..end]).is_err_and(|error| error.error_len().is_some()) {
                return Err(end - 1);
            }
        }
        Ok(std::str::from_utf8(text).is_ok())
    }

    #[test]
    fn texts_of_all_lengths_of_characters_are_valid() {
        for text in [
            "",
            "a",
            "häß",
            "κόσμε",
            "日本語",
            "🦀 a 🦀",
            "\u{0}\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10ffff}",
        ] {
            assert_eq!(check(text.as_bytes()), Ok(true), "{text}");
        }
    }

    #[test]
    fn a_cut_character_is_not_whole_but_no_fault_either() {
        for text in ["ä", "日", "🦀"] {
            for end in 1..text.len() {
                assert_eq!(check(&text.as_bytes()[..end]), Ok(false), "{text} {end}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_found_at_its_first_byte() {
        for (text, at) in [
            (&b"abc\xff"[..], 3),
            (b"\x80", 0),
            (b"\xc0\x80", 0),         // overlong NUL
            (b"\xc1\xbf", 0),         // overlong DEL
            (b"\xe0\x9f\xbf", 1),     // overlong in three
            (b"\xed\xa0\x80", 1),     // a surrogate
            (b"\xf0\x8f\xbf\xbf", 1), // overlong in four
            (b"\xf4\x90\x80\x80", 1), // above U+10FFFF
            (b"\xf5\x80\x80\x80", 0),
            (b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90", 12),
            (b"a\xc3b", 2),
            (b"\xe6\x97a", 2),
            (b"\xf0\x9f\xa6\xf0", 3),
        ] {
            assert_eq!(check(text), Err(at), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn two_and_three_bytes_of_every_value_agree_with_the_standard_library() {
        for first in 0..=255 {
            for second in 0..=255 {
                let pair = [first, second];
                assert_eq!(check_pieces(&[&pair]), reference(&pair), "{pair:02x?}");
                assert_eq!(check_pieces(&[&pair[..1], &pair[1..]]), reference(&pair), "{pair:02x?}");
            }
            for rest in [[0x80, 0x80], [0x9f, 0xbf], [0xa0, 0x7f], [0x8f, 0xc0], [0x90, 0xbf], [0xbf, 0xff]] {
                let three = [first, rest[0], rest[1]];
                assert_eq!(check(&three), reference(&three), "{three:02x?}");
            }
        }
    }

    #[test]
    fn random_texts_with_and_without_a_fault_agree_with_the_standard_library() {
        const SEED: u64 = 0x7574_6638;
        let mut random = Random::new(SEED);
        for round in 0..2_000 {
            let mut text = String::new();
            for _ in 0..random.below(24) {
                let bits = [7, 11, 16, 21][random.below(4)];
                text.extend(char::from_u32((random.next() & ((1 << bits) - 1)) as u32));
            }
            let mut bytes = text.into_bytes();
            if !bytes.is_empty() && random.below(2) == 0 {
                let at = random.below(bytes.len());
                bytes[at] = random.byte();
            }
            assert_eq!(check(&bytes), reference(&bytes), "seed {SEED:#x}, round {round}");
        }
    }
}
