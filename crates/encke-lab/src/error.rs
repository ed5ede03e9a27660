//! The error of a measurement. A failed cell shows its text in the tables and reports, as [`Absent`].

use std::borrow::Cow;
use std::fmt;
use std::io;

use encke_assembly::ServiceError;
use encke_io::counters::CounterError;
use encke_io::files::OpenError;
use encke_io::{OpError, Unavailable};
use encke_load::RunError;

use crate::experiment::Absent;

/// Why a measurement failed. The variant states the origin. The lab never retries: a failed cell is absent from the results.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// The operating system failed an operation.
    System(io::Error),
    /// A reactor failed an operation: an error of the system or of the peer, see [`OpError`].
    Reactor(OpError),
    /// The back end is unavailable.
    Backend(Unavailable),
    /// The file to send could not be opened.
    File(OpenError),
    /// The processor's counters are unavailable.
    Counters(CounterError),
    /// The load generator failed.
    Load(RunError),
    /// The server under test could not be started.
    Server(ServiceError),
    /// A thread of the experiment ended early: the description.
    Ended(&'static str),
    /// The server, a client or the system did not behave as expected: the description.
    Unexpected(Cow<'static, str>),
    /// Another error, and what failed because of it.
    Context(&'static str, Box<Self>),
}

impl LabError {
    /// Prefixes the text with what failed.
    pub(crate) fn context(self, what: &'static str) -> Self {
        Self::Context(what, Box::new(self))
    }

    pub(crate) fn unexpected(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Unexpected(what.into())
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::Reactor(fault) => fault.fmt(f),
            Self::Backend(unavailable) => unavailable.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Counters(error) => error.fmt(f),
            Self::Load(trouble) => trouble.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Ended(what) => f.write_str(what),
            Self::Unexpected(what) => f.write_str(what),
            Self::Context(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::Reactor(fault) => Some(fault),
            Self::Backend(unavailable) => Some(unavailable),
            Self::File(error) => Some(error),
            Self::Counters(error) => Some(error),
            Self::Load(trouble) => Some(trouble),
            Self::Server(error) => Some(error),
            Self::Context(_, error) => Some(error),
            Self::Ended(_) | Self::Unexpected(_) => None,
        }
    }
}

macro_rules! from {
    ($($cause:ty => $variant:ident),* $(,)?) => {
        $(impl From<$cause> for LabError {
            fn from(cause: $cause) -> Self {
                Self::$variant(cause)
            }
        })*
    };
}

from! {
    io::Error => System,
    OpError => Reactor,
    Unavailable => Backend,
    OpenError => File,
    CounterError => Counters,
    RunError => Load,
    ServiceError => Server,
}

impl From<LabError> for Absent {
    fn from(error: LabError) -> Self {
        Self(error.to_string())
    }
}
