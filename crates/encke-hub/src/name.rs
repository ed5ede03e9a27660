//! Validated channel names.

use std::fmt;
use std::sync::Arc;

use crate::limits::{NAME_BYTES_MAX, NAME_SEGMENTS_MAX};

/// The name of a channel: 1 to 8 segments joined by `/`, at most 200 bytes in total. A segment is
/// `[A-Za-z0-9_~-][A-Za-z0-9._~-]*`: characters that a URL contains unescaped (RFC 3986, section 2.3), and never `.` or `..`.
///
/// A clone increments a reference count.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// The reason why bytes are not a [`Name`]. `at` is the index of the offending byte, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// There are no bytes.
    Empty,
    /// There are more than [`NAME_BYTES_MAX`] bytes.
    TooLong {
        /// The number of bytes.
        bytes: usize,
    },
    /// There are more than [`NAME_SEGMENTS_MAX`] segments.
    TooManySegments {
        /// The start of the first excess segment.
        at: usize,
    },
    /// A segment is empty, or a slash is first or last.
    EmptySegment {
        /// The start of the empty segment.
        at: usize,
    },
    /// A segment begins with a dot.
    LeadingDot {
        /// The index of the dot.
        at: usize,
    },
    /// A byte is not allowed in names.
    BadByte {
        /// The index of the byte.
        at: usize,
        /// The byte.
        byte: u8,
    },
}

impl Name {
    /// Parses a name.
    ///
    /// ```
    /// use encke_hub::{Name, NameError};
    ///
    /// let name = Name::parse(b"rooms/7")?;
    /// assert_eq!(name.segments().collect::<Vec<_>>(), ["rooms", "7"]);
    /// assert_eq!(Name::parse(b"rooms//7"), Err(NameError::EmptySegment { at: 6 }));
    /// # Ok::<(), NameError>(())
    /// ```
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: bytes.len() });
        }
        let mut at = 0;
        for (index, segment) in bytes.split(|byte| *byte == b'/').enumerate() {
            if index == NAME_SEGMENTS_MAX {
                return Err(NameError::TooManySegments { at });
            }
            check_segment(segment, at)?;
            at += segment.len() + 1;
        }
        let text = std::str::from_utf8(bytes).expect("the bytes of a name are ASCII");
        Ok(Self(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the segments, at least one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

/// Checks that bytes are one segment of a name. The segment begins at index `at` of the name.
pub(crate) fn check_segment(segment: &[u8], at: usize) -> Result<(), NameError> {
    match segment.first() {
        None => return Err(NameError::EmptySegment { at }),
        Some(b'.') => return Err(NameError::LeadingDot { at }),
        Some(_) => {}
    }
    match segment.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"._~-".contains(byte))) {
        None => Ok(()),
        Some(bad) => Err(NameError::BadByte { at: at + bad, byte: segment[bad] }),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("the name is empty: expected one such as news"),
            Self::TooLong { bytes } => {
                write!(f, "the name has {bytes} bytes: at most {NAME_BYTES_MAX} are allowed")
            }
            Self::TooManySegments { at } => {
                write!(f, "too many segments at byte {at}: at most {NAME_SEGMENTS_MAX} are allowed")
            }
            Self::EmptySegment { at } => write!(f, "empty segment at byte {at}: remove a slash"),
            Self::LeadingDot { at } => write!(f, "the segment at byte {at} begins with a dot"),
            Self::BadByte { at, byte } => write!(
                f,
                "invalid character '{}' at byte {at}: expected letters, digits, . _ ~ - and /",
                byte.escape_ascii()
            ),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_grammar_are_taken_as_they_are() {
        for text in ["a", "news", "news/today", "~-_", "a.b~c-d_e", "1/2/3/4/5/6/7/8", "-", "a.."] {
            assert_eq!(Name::parse(text.as_bytes()).expect(text).as_str(), text);
        }
        assert!(Name::parse(&[b'x'; NAME_BYTES_MAX]).is_ok());
    }

    #[test]
    fn what_is_no_name_is_told_with_its_place() {
        let cases: [(&[u8], NameError); 13] = [
            (b"", NameError::Empty),
            (&[b'x'; 201], NameError::TooLong { bytes: 201 }),
            (b"1/2/3/4/5/6/7/8/9", NameError::TooManySegments { at: 16 }),
            (b"/a", NameError::EmptySegment { at: 0 }),
            (b"a/", NameError::EmptySegment { at: 2 }),
            (b"a//b", NameError::EmptySegment { at: 2 }),
            (b"/", NameError::EmptySegment { at: 0 }),
            (b".a", NameError::LeadingDot { at: 0 }),
            (b"a/..", NameError::LeadingDot { at: 2 }),
            (b"a/b,c", NameError::BadByte { at: 3, byte: b',' }),
            (b"a*", NameError::BadByte { at: 1, byte: b'*' }),
            (b"a\0", NameError::BadByte { at: 1, byte: 0 }),
            (b"\xC3\xA4", NameError::BadByte { at: 0, byte: 0xC3 }),
        ];
        for (bytes, error) in cases {
            assert_eq!(Name::parse(bytes), Err(error), "{}", bytes.escape_ascii());
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn each_byte_alone_is_a_name_or_not() {
        let taken: Vec<u8> = (0..=255).filter(|byte| Name::parse(&[*byte]).is_ok()).collect();
        assert_eq!(taken, b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~");
        let after: Vec<u8> = (0..=255).filter(|byte| Name::parse(&[b'a', *byte]).is_ok()).collect();
        assert_eq!(after, b"-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~");
    }
}
