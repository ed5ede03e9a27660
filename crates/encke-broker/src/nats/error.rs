//! The errors of the engine: of a node that joins, and of the steps that the engine retries.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ConnectError;
use async_nats::jetstream::context::CreateStreamError;

use super::JOIN_TIME;
use crate::ErrorOrigin;
use crate::error::causes;

/// Why a node could not join.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// The engine's thread could not be started.
    Thread(io::Error),
    /// The engine's thread ended early, by a panic.
    Ended,
    /// The credentials file cannot be used.
    Credentials(PathBuf, io::Error),
    /// No server was reached: the servers, and the cause.
    Unreachable(String, ConnectError),
    /// The server rejected the login: the servers.
    Refused(String),
    /// NATS did not provide the stream in time: the servers.
    Time(String),
    /// The stream could be neither found nor created: its name, and the cause.
    Stream(String, CreateStreamError),
    /// A stream of that name exists, but does not fit: its name, and the reason.
    Unfit(String, Misfit),
}

/// Why a node cannot follow a stream.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Misfit {
    /// The stream does not take these subjects.
    Subjects(String),
    /// The retention is not by limits.
    Retention,
    /// The stream limits the messages of each subject.
    SubjectLimit,
    /// The duplicate window is shorter than required.
    Window {
        /// The stream's name.
        stream: String,
        /// The configured window.
        window: Duration,
        /// The required window.
        required: Duration,
    },
}

impl JoinError {
    /// The origin of the error.
    pub const fn origin(&self) -> ErrorOrigin {
        match self {
            Self::Thread(_) | Self::Ended => ErrorOrigin::System,
            Self::Credentials(..) | Self::Refused(_) => ErrorOrigin::Settings,
            Self::Unreachable(..) | Self::Time(_) | Self::Stream(..) | Self::Unfit(..) => {
                ErrorOrigin::Upstream
            }
        }
    }

    /// Whether the node may join later without a change by an administrator.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Thread(_) | Self::Unreachable(..) | Self::Time(_))
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "cannot start the thread for NATS: {error}"),
            Self::Ended => f.write_str("cannot start the thread for NATS: it ended at its start"),
            Self::Credentials(file, error) => {
                write!(f, "cannot use the credentials in {}: {error}", file.display())
            }
            Self::Unreachable(servers, error) => {
                write!(f, "cannot reach NATS at {servers}: {}", causes(error))
            }
            Self::Refused(servers) => write!(
                f,
                "NATS at {servers} rejects the login: check cluster.token, cluster.user and cluster.credentials"
            ),
            Self::Time(servers) => write!(
                f,
                "NATS at {servers} did not find or create the stream within {} s: check that JetStream is enabled, has a leader, and has cluster.replicas servers",
                JOIN_TIME.as_secs()
            ),
            Self::Stream(name, error) => {
                write!(f, "cannot find or create the stream {name}: {}", causes(error))
            }
            Self::Unfit(name, why) => write!(f, "cannot use the existing stream {name}: {why}"),
        }
    }
}

impl Error for JoinError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Thread(error) | Self::Credentials(_, error) => Some(error),
            Self::Unreachable(_, error) => Some(error),
            Self::Stream(_, error) => Some(error),
            Self::Unfit(_, misfit) => Some(misfit),
            Self::Ended | Self::Refused(_) | Self::Time(_) => None,
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subjects(wanted) => write!(f, "it does not accept {wanted}: add that to its subjects"),
            Self::Retention => {
                f.write_str("its retention must be limits, so that every node can read all messages")
            }
            Self::SubjectLimit => {
                f.write_str("its limit per subject drops messages from its middle: remove that limit")
            }
            Self::Window { stream, window, required } => write!(
                f,
                "it detects duplicates for {} s, but cluster.queue_age requires {} s: run `nats stream edit {stream} --dupe-window={}s`, or shorten cluster.queue_age",
                window.as_secs_f64(),
                required.as_secs_f64(),
                required.as_secs_f64().ceil()
            ),
        }
    }
}

impl Error for Misfit {}

/// Why a step of the engine failed. A retry may help, except with [`NatsFailure::Replaced`].
#[derive(Debug)]
pub(super) enum NatsFailure {
    /// NATS or its client reported an error.
    Nats(Box<dyn Error + Send + Sync>),
    /// The connection was replaced: requests before that may be lost.
    Reconnected,
    /// The consumer ended.
    ConsumerEnded,
    /// The consumer skipped messages.
    Skipped,
    /// The consumer delivered nothing for long, although the stream is ahead.
    Stalled,
    /// A read ended before all of its messages were received.
    ReadEnded,
    /// The server of a consumer lags behind the stream's leader.
    Lag,
    /// The offset up to which the stream dropped messages could not be read.
    DropsUnknown(Box<Self>),
    /// The engine ends: no more commands follow.
    Closed,
    /// The stream of this name was recreated, or has lost its end.
    Replaced(String),
}

impl NatsFailure {
    /// Whether no retry can help until the nodes are restarted.
    pub(super) const fn is_permanent(&self) -> bool {
        matches!(self, Self::Replaced(_))
    }
}

impl fmt::Display for NatsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nats(error) => return f.write_str(&causes(&**error)),
            Self::Reconnected => "the connection was replaced",
            Self::ConsumerEnded => "the consumer has ended",
            Self::Skipped => "the consumer skipped messages",
            Self::Stalled => "the consumer delivers nothing although the stream is ahead",
            Self::ReadEnded => "a read ended early",
            Self::Lag => "a server lags behind the stream's leader",
            Self::DropsUnknown(failure) => return write!(f, "cannot determine the dropped messages: {failure}"),
            Self::Closed => "the engine was closed",
            Self::Replaced(stream) => {
                return write!(
                    f,
                    "the cluster's stream {stream} was recreated or has lost its end: publishing is rejected until the nodes are restarted"
                );
            }
        })
    }
}

/// [`NatsFailure`] does not implement `Error`, which would conflict with `From<T> for T`.
impl<E: Error + Send + Sync + 'static> From<E> for NatsFailure {
    fn from(error: E) -> Self {
        Self::Nats(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_replaced_stream_is_permanent() {
        let replaced = NatsFailure::Replaced("orders".into());
        assert!(replaced.is_permanent());
        assert!(replaced.to_string().contains("orders was recreated"), "{replaced}");
        let unknown =
            NatsFailure::DropsUnknown(Box::new(NatsFailure::from(io::Error::from(io::ErrorKind::TimedOut))));
        assert!(!unknown.is_permanent());
        assert_eq!(unknown.to_string(), "cannot determine the dropped messages: timed out");
    }

    #[test]
    fn errors_of_joining_name_their_origin_and_whether_to_retry() {
        let file = io::Error::from(io::ErrorKind::NotFound);
        for (error, origin, is_transient) in [
            (JoinError::Ended, ErrorOrigin::System, false),
            (JoinError::Credentials("absent".into(), file), ErrorOrigin::Settings, false),
            (JoinError::Time("nats://a:1".into()), ErrorOrigin::Upstream, true),
            (JoinError::Unfit("encke".into(), Misfit::Retention), ErrorOrigin::Upstream, false),
        ] {
            assert_eq!((error.origin(), error.is_transient()), (origin, is_transient), "{error}");
        }
    }
}
