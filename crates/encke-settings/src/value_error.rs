//! The error for a text that is not a value of a setting.

use std::error::Error;
use std::fmt;

use crate::Network;

/// Why a text is not a value. The origin is always the settings file or a flag, so a retry does not help.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ValueError {
    /// The text does not have the syntax of its kind.
    Invalid {
        /// The kind of the value, such as "duration".
        kind: &'static str,
        /// The rejected text, or the rejected part of it.
        text: String,
        /// The end of the message: "expected …".
        expected: &'static str,
    },
    /// A choice has no such value.
    UnknownChoice {
        /// The rejected text.
        text: String,
        /// The end of the message: "expected …".
        expected: &'static str,
        /// The value that was probably meant.
        meant: Option<&'static str>,
    },
    /// A duration without a unit: the text.
    NoUnit(String),
    /// A duration beyond the maximum: the text.
    TooLong(String),
    /// A size whose unit could be 1000 or 1024: the text.
    AmbiguousUnit(String),
    /// A size that no file can have: the text.
    TooLarge(String),
    /// The prefix of a network is too long, or not a number.
    Prefix {
        /// The rejected text.
        text: String,
        /// The maximum length of the prefix.
        bits_max: u8,
    },
    /// The address of a network has bits after the prefix.
    HostBits {
        /// The rejected text.
        text: String,
        /// The network with this prefix that contains the address.
        network: Network,
    },
    /// An address without a port.
    NoPort {
        /// The rejected text.
        text: String,
        /// The end of the message: "expected …".
        expected: &'static str,
    },
    /// A value that this version does not support.
    Unsupported {
        /// The rejected text.
        text: String,
        /// The reason, and the remedy.
        reason: &'static str,
    },
}

impl ValueError {
    /// Creates the error for a text without the syntax of its kind. `expected` is the end of the message: "expected …".
    pub fn invalid(kind: &'static str, text: impl Into<String>, expected: &'static str) -> Self {
        Self::Invalid { kind, text: text.into(), expected }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { kind, text, expected } => write!(f, "invalid {kind} `{text}`: {expected}"),
            Self::UnknownChoice { text, expected, meant } => {
                write!(f, "`{text}` is none of these: {}", expected.trim_start_matches("expected "))?;
                meant.map_or(Ok(()), |meant| write!(f, "; did you mean {meant}?"))
            }
            Self::NoUnit(text) => {
                let number = text.trim();
                write!(f, "`{text}` has no unit; write {number}s for seconds, {number}ms for milliseconds")
            }
            Self::TooLong(text) => write!(f, "`{text}` is longer than ten years"),
            Self::AmbiguousUnit(text) => {
                let text_upper = text.trim().to_ascii_uppercase();
                let number = text_upper.trim_end_matches(|letter: char| !letter.is_ascii_digit());
                let prefix = text_upper.chars().last().unwrap_or('K');
                let decimal = if prefix == 'K' { 'k' } else { prefix };
                write!(
                    f,
                    "`{text}` is ambiguous: write {number}{prefix}iB (units of 1024) or {number}{decimal}B (units of 1000)"
                )
            }
            Self::TooLarge(text) => write!(f, "`{text}` is more than any file can have"),
            Self::Prefix { text, bits_max } => {
                write!(f, "`{text}`: the prefix is a number from 0 to {bits_max}")
            }
            Self::HostBits { text, network } => {
                write!(f, "`{text}` has bits after its prefix; write {network}")
            }
            Self::NoPort { text, expected } => write!(f, "`{text}` has no port: {expected}"),
            Self::Unsupported { text, reason } => write!(f, "`{text}`: {reason}"),
        }
    }
}

impl Error for ValueError {}
