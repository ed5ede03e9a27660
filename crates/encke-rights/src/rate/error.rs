//! Errors of rates. All of them are permanent until the settings change, except the system's.

use std::error::Error;
use std::fmt;
use std::io;

use encke_wire::host::HostPatternError;
use encke_wire::path_pattern::PathPatternError;

/// Why settings give no rates. The number of a rule begins at 1.
#[derive(Debug)]
#[non_exhaustive]
pub enum RateError {
    /// Settings: a host of a rule is invalid.
    Host(usize, HostPatternError),
    /// Settings: the pattern of a rule is invalid.
    Pattern(usize, PathPatternError),
    /// System: there are no random bytes for the hashes of keys.
    Random(io::Error),
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(number, error) => write!(f, "rate, number {number}: host: {error}"),
            Self::Pattern(number, error) => write!(f, "rate, number {number}: pattern: {error}"),
            Self::Random(error) => write!(f, "no random bytes: {error}"),
        }
    }
}

impl Error for RateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Host(_, error) => Some(error),
            Self::Pattern(_, error) => Some(error),
            Self::Random(error) => Some(error),
        }
    }
}
