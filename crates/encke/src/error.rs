//! The errors of the program, and its exit status.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use encke_assembly::settings::SettingsError;
use encke_load::{InputError, RunError};
use encke_settings::ValueError;

/// Exit status after ^C, by the convention of shells: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// The result of a sub-command: its exit status.
pub(crate) type CommandResult = Result<ExitCode, CommandError>;

/// The reason why a sub-command failed. The variant states the origin.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The user's input: an argument is invalid, is missing, or contradicts another.
    Usage(CommandFailure),
    /// The settings file is invalid or cannot be read.
    Settings(SettingsError),
    /// This machine: its operating system, or a file, key or thread that the command needs.
    System(CommandFailure),
    /// The server that a client command uses, or the connection to it.
    Server(CommandFailure),
    /// The reader of standard output has closed it.
    ReaderGone,
}

/// What failed. The text names it and, where possible, the remedy.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    /// What failed because of the cause.
    context: Option<String>,
    cause: Box<dyn Error + Send + Sync>,
}

impl CommandError {
    /// The user's input is invalid: the cause, or a description.
    pub(crate) fn usage(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Usage(CommandFailure::new(cause))
    }

    /// This machine failed: the cause, or a description.
    pub(crate) fn system(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::System(CommandFailure::new(cause))
    }

    /// A server failed: the cause, or a description.
    pub(crate) fn server(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Server(CommandFailure::new(cause))
    }

    /// Prefixes the text with what failed.
    pub(crate) fn context(mut self, what: impl fmt::Display) -> Self {
        if let Self::Usage(failure) | Self::System(failure) | Self::Server(failure) = &mut self {
            failure.context = Some(match &failure.context {
                Some(inner) => format!("{what}: {inner}"),
                None => what.to_string(),
            });
        }
        self
    }

    /// Returns the exit status.
    pub(crate) const fn status(&self) -> u8 {
        match self {
            Self::System(_) | Self::Server(_) | Self::Settings(_) => 1,
            Self::Usage(_) => 2,
            Self::ReaderGone => 0,
        }
    }

    /// Returns the message for the terminal, without a line end.
    pub(crate) fn message(&self) -> String {
        match self {
            // A settings error quotes the lines of the file, so it formats itself.
            Self::Settings(error) => error.to_string().trim_end().to_owned(),
            error => format!("error: {error}").trim_end().to_owned(),
        }
    }
}

impl CommandFailure {
    fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { context: None, cause: cause.into() }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(failure) | Self::System(failure) | Self::Server(failure) => failure.fmt(f),
            Self::Settings(error) => error.fmt(f),
            Self::ReaderGone => f.write_str("the reader of the output has closed it"),
        }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.context {
            write!(f, "{context}: ")?;
        }
        self.cause.fmt(f)
    }
}

impl Error for CommandError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Usage(failure) | Self::System(failure) | Self::Server(failure) => Some(&*failure.cause),
            Self::Settings(error) => Some(error),
            Self::ReaderGone => None,
        }
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

impl From<InputError> for CommandError {
    fn from(error: InputError) -> Self {
        Self::usage(error)
    }
}

impl From<RunError> for CommandError {
    fn from(error: RunError) -> Self {
        Self::system(error)
    }
}

/// Why an argument is invalid. The origin is the user, so a retry does not help. Clap adds the name of the argument.
#[derive(Debug)]
pub(crate) enum ArgumentError {
    /// The text is no positive number.
    Count,
    /// The number is larger than the flag allows.
    CountTooLarge,
    /// The number of threads is not positive.
    Threads,
    /// A duration instead of a number of threads: the text.
    ThreadsTime(String),
    /// Not a duration.
    Duration(ValueError),
    /// Invalid statuses: the text.
    Statuses(String),
    /// Neither a number nor a duration.
    WarmUp(ValueError),
    /// Neither a process nor a page of metrics: the text.
    Watch(String),
    /// An invalid publish rate: the text.
    Rate(String),
    /// An invalid start position: the text.
    Since(String),
    /// An invalid share of the subscribers: the text.
    Share(String),
    /// A command without a program.
    NoCommand,
    /// A quote without its end.
    Quote(char),
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCommand => f.write_str("expected a program and its arguments: --run 'node server.js'"),
            Self::Quote(quote) => write!(f, "the quote {quote} has no end"),
            Self::Count => f.write_str("expected a whole number, 1 or more, such as 500, 10k or 2M"),
            Self::CountTooLarge => f.write_str("the number is too large"),
            Self::Threads => f.write_str("expected a number, 1 or more"),
            Self::ThreadsTime(text) => {
                write!(
                    f,
                    "-t is the number of threads; use -d {text} for a time, --timeout {text} for a timeout"
                )
            }
            Self::Duration(error @ ValueError::Invalid { .. }) => {
                write!(f, "{error}; a request body is --body TEXT")
            }
            Self::Duration(error) => error.fmt(f),
            Self::Statuses(text) => {
                write!(f, "invalid statuses `{text}`: expected 200, 2xx or 200-399, joined by commas")
            }
            Self::WarmUp(error) => error.fmt(f),
            Self::Watch(text) => {
                write!(f, "invalid target `{text}`: expected a process id, or http://HOST:8081/metrics")
            }
            Self::Rate(text) => write!(
                f,
                "invalid rate `{text}`: expected messages per second or minute, such as 50/s or 30/m"
            ),
            Self::Since(text) => write!(
                f,
                "invalid start `{text}`: expected now, all, key, last:N, an age such as 10m, or a message id"
            ),
            Self::Share(text) => write!(f, "invalid share `{text}`: expected 1% or 0.01"),
        }
    }
}

impl Error for ArgumentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::WarmUp(error) | Self::Duration(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn contexts_are_added_in_front_and_keep_the_cause() {
        let error = CommandError::system(io::Error::from(io::ErrorKind::NotFound));
        let error = error.context("cannot read a").context("line 3");
        assert!(error.to_string().starts_with("line 3: cannot read a: "), "{error}");
        let cause = error.source().expect("the cause");
        assert!(cause.is::<io::Error>(), "{cause}");
        assert!(error.message().starts_with("error: line 3"));
    }

    #[test]
    fn the_exit_status_tells_usage_from_failures() {
        let status = |error: CommandError| error.status();
        assert_eq!(status(CommandError::usage("a channel is required")), 2);
        assert_eq!(status(CommandError::system("the terminal disappeared")), 1);
        assert_eq!(status(CommandError::server("unexpected status 500")), 1);
        assert_eq!(status(CommandError::ReaderGone), 0);
    }
}
