//! The error for texts of the user that cannot be parsed: URLs, rates, conditions, sources, lists of requests.
//!
//! The origin is always the user's input, so a retry does not help. Errors of a run are [`crate::Trouble`].

use std::fmt;

/// Why a text cannot be parsed. Most variants contain the text.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InputError {
    /// The text is not a URL.
    Url(String),
    /// The URL contains a user name.
    UserInUrl(String),
    /// The text is not a rate.
    Rate(String),
    /// The text is not a condition for a run.
    Condition(String),
    /// The text is neither an address nor a range of addresses.
    Source(String),
    /// The text after `sha256:` is not a digest.
    Digest(String),
    /// The text in the place of a method is not a token.
    Method(String),
    /// The path contains characters that are invalid in a URL.
    Path(String),
    /// The weight is 0.
    Weight(String),
    /// A file of URLs without any.
    NoUrls,
    /// A log without requests that can be repeated: its number of lines.
    NoRequests(u64),
    /// A log of more than 400 days: its days.
    LongLog(u64),
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(text) => {
                write!(
                    f,
                    "invalid URL `{text}`: expected http://HOST:PORT/PATH{}",
                    encke_wire::punycode::remark(text)
                )
            }
            Self::UserInUrl(text) => {
                write!(f, "`{text}` contains a user name: send credentials with -H 'Authorization: …'")
            }
            Self::Rate(text) => {
                write!(f, "invalid rate `{text}`: expected 500, 20k, 1k..50k/60s or 1k,2k,5k@10s")
            }
            Self::Condition(text) => write!(
                f,
                "invalid condition `{text}`: expected p99<10ms, errors<0.1%, rate>=20k or reach=100% (p50 to \
                 p99.999, max, mean)"
            ),
            Self::Source(text) => {
                write!(f, "invalid source `{text}`: expected an address, or a range such as 127.0.0.2-9")
            }
            Self::Digest(text) => {
                write!(f, "invalid digest `{text}`: expected 64 hexadecimal digits after sha256:")
            }
            Self::Method(text) => write!(f, "invalid method `{text}`: expected [WEIGHT@][METHOD ]URL"),
            Self::Path(text) => write!(f, "invalid path `{text}`"),
            Self::Weight(text) => write!(f, "invalid weight in `{text}`: expected 1 or more"),
            Self::NoUrls => f.write_str("no URL in the file"),
            Self::NoRequests(lines) => {
                write!(f, "no GET or HEAD that can be repeated in {lines} lines")
            }
            Self::LongLog(days) => write!(f, "the log spans {days} days: at most 400 are supported"),
        }
    }
}

impl std::error::Error for InputError {}
