//! The error for a text that is not a value of a setting.

use std::error::Error;
use std::fmt;

use encke_wire::punycode;

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
        Self::Invalid { kind, text: without_user(text.into()), expected }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { kind, text, expected } => {
                write!(f, "invalid {kind} `{text}`: {expected}")?;
                if text.contains("…@") {
                    return f.write_str("; a URL has no user name and password here");
                }
                f.write_str(&punycode::remark(text))
            }
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

/// Replaces the user name and the password of a URL: terminals and logs keep errors.
fn without_user(text: String) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(start);
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) if start > 0 || authority.contains(':') => format!("{scheme}…@{host}{path}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: &'static str, text: &str) -> String {
        ValueError::invalid(kind, text, "expected a value").to_string()
    }

    #[test]
    fn the_password_of_a_url_is_in_no_error() {
        for (text, expected) in [
            ("http://user:s3cret@127.0.0.1:3000", "`http://…@127.0.0.1:3000`"),
            ("user:s3cret@host", "`…@host`"),
            ("https://user:s3@cret@a.test/path", "`https://…@a.test/path`"),
            ("http://s3cret@a.test", "`http://…@a.test`"),
        ] {
            let error = shown("URL", text);
            assert!(error.contains(expected) && !error.contains("s3"), "{error}");
            assert!(error.ends_with("has no user name and password here"), "{error}");
        }
        for text in ["http://a.test/@user:b", "10/s@x", "a@b"] {
            assert!(shown("URL", text).contains(&format!("`{text}`")), "{text}");
        }
    }

    #[test]
    fn a_name_with_other_letters_is_shown_in_its_ascii_form() {
        for text in ["bücher.test", "http://bücher.test:80/path", "bücher.test:80"] {
            assert!(shown("address", text).ends_with("is written xn--bcher-kva.test"), "{text}");
        }
        for text in ["10 µs", "ü", "a b.ü", "a.test/ü"] {
            assert!(shown("duration", text).ends_with("expected a value"), "{text}");
        }
    }
}
