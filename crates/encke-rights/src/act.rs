//! The rights on a channel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A right on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Send messages.
    Publish,
    /// Read messages, including earlier ones, and counts.
    Subscribe,
    /// List the members.
    Presence,
    /// List the channel, delete its messages, and end the subscriptions of a user.
    Manage,
}

impl Act {
    /// Every right, in numeric order.
    pub const ALL: [Self; 4] = [Self::Publish, Self::Subscribe, Self::Presence, Self::Manage];

    /// Returns the name of the right in settings, in tokens and in requests to `auth.ask`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Presence => "presence",
            Self::Manage => "manage",
        }
    }
}
