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
            Self::Thread(error) => write!(f, "the thread for NATS cannot be started: {error}"),
            Self::Ended => f.write_str("the thread for NATS cannot be started: it has ended"),
            Self::Credentials(file, error) => {
                write!(f, "the credentials in {} cannot be used: {error}", file.display())
            }
            Self::Unreachable(servers, error) => {
                write!(f, "no NATS server is reached at {servers}: {}", causes(error))
            }
            Self::Refused(servers) => write!(
                f,
                "NATS at {servers} refuses the login: look at cluster.token, cluster.user and cluster.credentials"
            ),
            Self::Time(servers) => write!(
                f,
                "NATS at {servers} has not found or made the stream within {} s; is JetStream enabled there, has it a leader, \
                 and are there as many servers as cluster.replicas?",
                JOIN_TIME.as_secs()
            ),
            Self::Stream(name, error) => {
                write!(f, "the stream {name} can be neither found nor made: {}", causes(error))
            }
            Self::Unfit(name, why) => write!(f, "the stream {name} is there and cannot be followed: {why}"),
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
            Self::Subjects(wanted) => write!(f, "it does not take {wanted}; add that to its subjects"),
            Self::Retention => {
                f.write_str("its retention has to be limits, so that every node can read all of it")
            }
            Self::SubjectLimit => {
                f.write_str("it has a limit a subject, which drops messages from its middle; remove that")
            }
            Self::Window { stream, window, required } => write!(
                f,
                "it knows a message that is sent again for {} s, and for what waits up to cluster.queue_age that has to be {} s: \
                 `nats stream edit {stream} --dupe-window={}s`, or a shorter cluster.queue_age",
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
            Self::Reconnected => "the connection is another one",
            Self::ConsumerEnded => "the consumer has ended",
            Self::Skipped => "messages were lost on their way",
            Self::ReadEnded => "a read has ended early",
            Self::Lag => "a server is behind the others",
            Self::DropsUnknown(failure) => return write!(f, "what was dropped is not known: {failure}"),
            Self::Closed => "nobody wants anything any more",
            Self::Replaced(stream) => {
                return write!(
                    f,
                    "the cluster's stream is another one: {stream} was made anew or has lost its end; publishing is refused \
                     until the nodes are started again"
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
        assert!(replaced.to_string().contains("orders was made anew"), "{replaced}");
        let unknown =
            NatsFailure::DropsUnknown(Box::new(NatsFailure::from(io::Error::from(io::ErrorKind::TimedOut))));
        assert!(!unknown.is_permanent());
        assert_eq!(unknown.to_string(), "what was dropped is not known: timed out");
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
