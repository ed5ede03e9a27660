//! The errors of entries that contradict others, or are invalid as a whole. Each names the index of the entry in its list.

use std::error::Error;
use std::fmt;

use encke_hub::PatternError;
use encke_hub::limits::SHARED_STREAMS_MAX;

use super::cluster::STREAM_BYTES_MAX;

/// An entry of `push.channel` with an invalid pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelRuleError {
    index: usize,
    pattern: String,
    cause: PatternError,
}

/// An invalid entry of `cluster.streams`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamSettingsError {
    pub(super) index: usize,
    pub(super) cause: StreamMistake,
}

/// Why an entry of `cluster.streams` is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StreamMistake {
    /// There are too many entries: their number.
    Count(usize),
    /// NATS does not accept the name.
    Name(StreamNameError),
    /// Another stream has the same name.
    Duplicate(String),
    /// The stream of this name has no channels.
    Empty(String),
    /// A text in `channels` is not a pattern.
    Pattern { stream: String, text: String, cause: PatternError },
    /// A pattern never matches, because one of an earlier stream covers it.
    Covered { stream: String, text: String, earlier: String, owner: String },
}

/// A name that NATS does not accept for a stream and its subjects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StreamNameError {
    /// The setting, as messages name it.
    pub(super) key: &'static str,
    pub(super) name: String,
}

impl ChannelRuleError {
    pub(super) fn new(index: usize, pattern: &str, cause: PatternError) -> Self {
        Self { index, pattern: pattern.to_owned(), cause }
    }

    /// Returns the index of the entry in `push.channel`.
    pub const fn index(&self) -> usize {
        self.index
    }
}

impl StreamSettingsError {
    /// Returns the index of the entry in `cluster.streams`.
    pub const fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for ChannelRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pattern {:?}: {}", self.pattern, self.cause)
    }
}

impl fmt::Display for StreamSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            StreamMistake::Count(count) => {
                let most = SHARED_STREAMS_MAX - 1;
                write!(f, "there are {count} cluster.streams; at most {most} are allowed: join some")
            }
            StreamMistake::Name(error) => error.fmt(f),
            StreamMistake::Duplicate(name) => {
                write!(f, "there are two streams {name:?}: name one of them otherwise, or join them")
            }
            StreamMistake::Empty(name) => {
                write!(f, "the stream {name:?} has no channels: add channels = [\"{name}/**\"]")
            }
            StreamMistake::Pattern { stream, text, cause } => {
                write!(f, "channels {text:?} of the stream {stream:?}: {cause}")
            }
            StreamMistake::Covered { stream, text, earlier, owner } => write!(
                f,
                "{text:?} of the stream {stream:?} never matches, because {earlier} of {owner:?} comes first: leave it out, \
                 or put its stream before that one"
            ),
        }
    }
}

impl fmt::Display for StreamNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, name } = self;
        write!(f, "{key} {name:?} must have 1 to {STREAM_BYTES_MAX} letters, digits, - and _")
    }
}

impl Error for ChannelRuleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl Error for StreamSettingsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            StreamMistake::Pattern { cause, .. } => Some(cause),
            StreamMistake::Name(error) => Some(error),
            _ => None,
        }
    }
}

impl Error for StreamNameError {}
