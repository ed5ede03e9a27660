//! Small choices: `auto` or a value, and the target of the access log.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::str::FromStr;

use encke_io::Backend;

use crate::problem::meant;
use crate::quantity::{ByteSize, Period};
use crate::written::Written;
use crate::{ValueError, written};

/// A value, or `auto` to determine it at start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OrAuto<T> {
    /// `auto`: determined at start.
    #[default]
    Auto,
    /// A configured value.
    Set(T),
}

/// A value that `auto` may replace.
pub trait Choice: FromStr + fmt::Display {
    /// The name in the schema.
    const NAME: &'static str;
    /// The end of every error: "expected …".
    const EXPECTED: &'static str;
    /// Valid texts.
    const EXAMPLES: &'static [&'static str];
    /// Whether a whole number may replace the text.
    const NUMBERS: bool;
}

impl Choice for NonZeroU16 {
    const NAME: &'static str = "Workers";
    const EXPECTED: &'static str = "expected auto or a number from 1 to 65535";
    const EXAMPLES: &'static [&'static str] = &["auto", "4"];
    const NUMBERS: bool = true;
}

impl Choice for NonZeroU32 {
    const NAME: &'static str = "Connections";
    const EXPECTED: &'static str = "expected auto or a number from 1 to 4294967295";
    const EXAMPLES: &'static [&'static str] = &["auto", "10000"];
    const NUMBERS: bool = true;
}

impl Choice for ByteSize {
    const NAME: &'static str = "Memory";
    const EXPECTED: &'static str = "expected auto or a size such as 256MiB";
    const EXAMPLES: &'static [&'static str] = &["auto", "256MiB"];
    const NUMBERS: bool = true;
}

impl Choice for Period {
    const NAME: &'static str = "AutoPeriod";
    const EXPECTED: &'static str = "expected auto or a duration such as 100ms";
    const EXAMPLES: &'static [&'static str] = &["auto", "100ms"];
    const NUMBERS: bool = false;
}

impl Choice for Backend {
    const NAME: &'static str = "Backend";
    const EXPECTED: &'static str = "expected auto, uring, epoll-edge, epoll-level or poll";
    const EXAMPLES: &'static [&'static str] = &["auto", "uring", "epoll-edge", "epoll-level", "poll"];
    const NUMBERS: bool = false;
}

impl<T: Choice> FromStr for OrAuto<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Set).map_err(|_| ValueError::UnknownChoice {
                text: text.into(),
                expected: T::EXPECTED,
                meant: meant(text, T::EXAMPLES.iter().copied()),
            }),
        }
    }
}

impl<T: Choice> fmt::Display for OrAuto<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Set(value) => value.fmt(f),
        }
    }
}

impl<T: Choice> Written for OrAuto<T> {
    const NAME: &'static str = T::NAME;
    const EXPECTED: &'static str = T::EXPECTED;
    const EXAMPLES: &'static [&'static str] = T::EXAMPLES;
    const NUMBERS: bool = T::NUMBERS;
}

/// The target of the access log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum LogTarget {
    /// Standard output.
    #[default]
    Stdout,
    /// `off`: no access log.
    Off,
    /// A file, to which entries are appended.
    File(PathBuf),
}

impl FromStr for LogTarget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "" => Err(ValueError::invalid("log target", text, Self::EXPECTED)),
            "stdout" => Ok(Self::Stdout),
            "off" => Ok(Self::Off),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Off => f.write_str("off"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Written for LogTarget {
    const NAME: &'static str = "LogTarget";
    const EXPECTED: &'static str = "expected stdout, off or the path of a file";
    const EXAMPLES: &'static [&'static str] = &["stdout", "off", "/var/log/encke/access.log"];
}

written! { OrAuto<NonZeroU16>, OrAuto<NonZeroU32>, OrAuto<ByteSize>, OrAuto<Period>, OrAuto<Backend>, LogTarget }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_and_values_are_read_and_shown() {
        assert_eq!("auto".parse(), Ok(OrAuto::<NonZeroU16>::Auto));
        assert_eq!("4".parse::<OrAuto<NonZeroU16>>().expect("4").to_string(), "4");
        assert_eq!("epoll-edge".parse(), Ok(OrAuto::Set(Backend::EpollEdge)));
    }

    #[test]
    fn what_is_neither_is_refused_with_what_was_meant() {
        for (text, reason) in [("0", "1 to 65535"), ("-1", "auto or a number"), ("many", "auto or a number")]
        {
            let error = text.parse::<OrAuto<NonZeroU16>>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = "epol-edge".parse::<OrAuto<Backend>>().expect_err("misspelt").to_string();
        assert!(error.contains("did you mean epoll-edge?"), "{error}");
        let error = "sim".parse::<OrAuto<Backend>>().expect_err("never by name").to_string();
        assert!(error.contains("uring, epoll-edge, epoll-level or poll"), "{error}");
    }

    #[test]
    fn a_log_goes_to_stdout_nowhere_or_to_a_file() {
        for text in ["stdout", "off", "/var/log/encke/access.log"] {
            assert_eq!(text.parse::<LogTarget>().expect(text).to_string(), text);
        }
        assert!("".parse::<LogTarget>().is_err());
    }
}
