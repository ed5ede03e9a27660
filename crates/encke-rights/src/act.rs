//! What somebody may do with a channel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What somebody may do with a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Send messages.
    Publish,
    /// Read messages, also earlier ones, and counts.
    Subscribe,
    /// See who is there.
    Presence,
    /// Forget the channel's messages.
    Manage,
}

impl Act {
    /// Every act, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Publish, Self::Subscribe, Self::Presence, Self::Manage];

    /// The word for it: in settings, in tokens, and in what an application is asked.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Presence => "presence",
            Self::Manage => "manage",
        }
    }
}
