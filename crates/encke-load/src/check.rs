//! Checks response bodies against the expected body, piece by piece and without keeping them.
//!
//! ```text
//!   Expected ── a response begins ─► BodyComparison ── pieces of the body ─► … ── end of body ─► equal or not
//! ```
//! A text is compared byte by byte; a digest is computed. Heads, framing and status are checked elsewhere.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::input::InputError;

/// The expected body of every response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Exactly these bytes.
    Text(Vec<u8>),
    /// Bytes with this SHA-256 digest (FIPS 180-4).
    Sha256([u8; DIGEST_BYTES]),
}

const DIGEST_BYTES: usize = 32;

/// State of a body's comparison.
#[derive(Clone, Default)]
pub(crate) struct BodyComparison {
    /// Bytes compared so far; for text only.
    same: usize,
    /// Whether a piece differed; for text only.
    differs: bool,
    /// For digests only.
    digest: Sha256,
}

impl BodyComparison {
    /// Compares the next piece of the body.
    pub(crate) fn take(&mut self, expected: &Expected, piece: &[u8]) {
        match expected {
            Expected::Sha256(_) => self.digest.update(piece),
            Expected::Text(text) => {
                let rest = text.get(self.same..).unwrap_or_default();
                self.differs |= !rest.starts_with(piece);
                self.same += piece.len();
            }
        }
    }

    /// Ends a body; returns whether it was the expected one. The next body may begin.
    pub(crate) fn end(&mut self, expected: &Expected) -> bool {
        let Self { same, differs, digest } = std::mem::take(self);
        match expected {
            Expected::Sha256(expected) => digest.finalize()[..] == expected[..],
            Expected::Text(text) => !differs && same == text.len(),
        }
    }
}

impl FromStr for Expected {
    type Err = InputError;

    /// Parses `sha256:` and 64 hexadecimal digits, or the text itself.
    fn from_str(text: &str) -> Result<Self, InputError> {
        let Some(hex) = text.strip_prefix("sha256:") else { return Ok(Self::Text(text.into())) };
        let wrong = || InputError::Digest(text.to_owned());
        let mut digest = [0; DIGEST_BYTES];
        if hex.len() != 2 * DIGEST_BYTES || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (byte, digits) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self::Sha256(digest))
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "a text of {} bytes", text.len()),
            Self::Sha256(digest) => {
                f.write_str("sha256:")?;
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of "abc", from the examples of FIPS 180-4.
    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_body_is_compared_whole_byte_by_byte_and_split_everywhere() {
        for (expected, body, same) in [
            ("abc", "abc", true),
            ("abc", "abd", false),
            ("abc", "ab", false),
            ("abc", "abcd", false),
            ("abc", "", false),
            ("", "", true),
            ("", "a", false),
            (ABC, "abc", true),
            (ABC, "abd", false),
            (ABC, "", false),
        ] {
            let expected: Expected = expected.parse().expect("an expectation");
            let mut comparison = BodyComparison::default();
            let mut ends = |pieces: &[&str]| {
                pieces.iter().for_each(|piece| comparison.take(&expected, piece.as_bytes()));
                comparison.end(&expected)
            };
            assert_eq!(ends(&[body]), same, "{expected}: {body}");
            for at in 0..=body.len() {
                let (first, second) = body.split_at(at);
                assert_eq!(ends(&[first, second]), same, "{expected}: {body}, split at {at}");
            }
            let bytes: Vec<&str> = body.split("").collect();
            assert_eq!(ends(&bytes), same, "{expected}: {body}, byte by byte");
        }
    }

    #[test]
    fn a_digest_is_64_digits() {
        assert_eq!(ABC.parse::<Expected>().expect("a digest").to_string(), ABC);
        for text in
            ["sha256:", "sha256:ba78", &format!("sha256:{}", "g".repeat(64)), &format!("{ABC}0"), "sha256:é"]
        {
            let error = text.parse::<Expected>().expect_err(text).to_string();
            assert!(error.contains("64 hexadecimal digits"), "{text}: {error}");
        }
    }
}
