//! The error of channels that cannot be mounted, which the program that runs the server receives.
//!
//! [`EnvelopeError`](crate::command::EnvelopeError) becomes a response. [`PublishFailure`](crate::PublishFailure) rejects a message of the
//! program.

use std::error::Error;
use std::fmt;
use std::io;

use encke_broker::StoreError;
#[cfg(feature = "nats")]
use encke_broker::nats::JoinError;
use encke_rights::RightsError;
use encke_settings::SecretError;

use crate::settings::{ChannelRuleError, StreamSettingsError};

/// Why channels cannot be mounted.
#[derive(Debug)]
#[non_exhaustive]
pub enum PushError {
    /// A pattern in `push.channel` is invalid.
    Channel(ChannelRuleError),
    /// An entry of `cluster.streams` is invalid.
    Stream(StreamSettingsError),
    /// The settings of rights are invalid, or a key cannot be loaded.
    Rights(RightsError),
    /// A secret of `cluster` cannot be read.
    Secret(SecretError),
    /// The store of durable channels cannot be opened.
    Store(StoreError),
    /// The cluster cannot be joined.
    #[cfg(feature = "nats")]
    Join(JoinError),
    /// The settings name NATS servers, but this build lacks NATS.
    NoNats,
    /// The operating system failed, for example to provide random bytes.
    System(io::Error),
}

/// The origin of a [`PushError`], which has to change before the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PushErrorOrigin {
    /// The settings, or a file or secret that they name.
    Settings,
    /// The NATS servers of the cluster.
    Upstream,
    /// This machine: its operating system, or the store on its disk.
    System,
}

impl PushError {
    /// The origin of the error.
    pub const fn origin(&self) -> PushErrorOrigin {
        match self {
            Self::Channel(_) | Self::Stream(_) | Self::Rights(_) | Self::Secret(_) | Self::NoNats => {
                PushErrorOrigin::Settings
            }
            #[cfg(feature = "nats")]
            Self::Join(error) => match error.origin() {
                encke_broker::ErrorOrigin::Settings => PushErrorOrigin::Settings,
                encke_broker::ErrorOrigin::Upstream => PushErrorOrigin::Upstream,
                _ => PushErrorOrigin::System,
            },
            Self::Store(_) | Self::System(_) => PushErrorOrigin::System,
        }
    }

    /// Whether a later start may succeed without a change by an administrator.
    pub const fn is_transient(&self) -> bool {
        match self {
            #[cfg(feature = "nats")]
            Self::Join(error) => error.is_transient(),
            Self::System(_) => true,
            _ => false,
        }
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::Rights(error) => error.fmt(f),
            Self::Secret(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            #[cfg(feature = "nats")]
            Self::Join(error) => write!(f, "the cluster cannot be joined: {error}"),
            Self::NoNats => f.write_str("cluster.nats is set, and this Encke was built without NATS: remove it, or build with the feature nats"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl Error for PushError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Channel(error) => Some(error),
            Self::Stream(error) => Some(error),
            Self::Rights(error) => Some(error),
            Self::Secret(error) => Some(error),
            Self::Store(error) => Some(error),
            #[cfg(feature = "nats")]
            Self::Join(error) => Some(error),
            Self::NoNats => None,
            Self::System(error) => Some(error),
        }
    }
}

macro_rules! from {
    ($($cause:ty => $variant:ident),* $(,)?) => {
        $(impl From<$cause> for PushError {
            fn from(cause: $cause) -> Self {
                Self::$variant(cause)
            }
        })*
    };
}

from! {
    ChannelRuleError => Channel,
    StreamSettingsError => Stream,
    RightsError => Rights,
    SecretError => Secret,
    StoreError => Store,
    io::Error => System,
}

#[cfg(feature = "nats")]
from! { JoinError => Join }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_origin_and_whether_a_retry_helps() {
        for (error, origin, is_transient) in [
            (PushError::NoNats, PushErrorOrigin::Settings, false),
            (RightsError::AllOrigins.into(), PushErrorOrigin::Settings, false),
            (io::Error::from(io::ErrorKind::OutOfMemory).into(), PushErrorOrigin::System, true),
            #[cfg(feature = "nats")]
            (JoinError::Time("nats://a:1".into()).into(), PushErrorOrigin::Upstream, true),
            #[cfg(feature = "nats")]
            (JoinError::Refused("nats://a:1".into()).into(), PushErrorOrigin::Settings, false),
        ] {
            let error: PushError = error;
            assert_eq!((error.origin(), error.is_transient()), (origin, is_transient), "{error}");
        }
    }
}
