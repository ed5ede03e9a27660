//! What push obeys: made from settings, replaced whole at a reload.

use std::io;
use std::sync::Arc;

use encke_hub::{Epoch, Rules};

use super::archive::{self, Archive};
use super::rights::{Openness, Rights};
use crate::settings::{AuthSettings, PushSettings};

/// Settings of push, as workers use them.
pub(crate) struct PushPlan {
    /// Where channels are, with a slash at both ends.
    pub(crate) prefix: String,
    pub(crate) rules: Arc<Rules>,
    pub(crate) rights: Rights,
    /// Names this run's stream of messages; stays the same over reloads.
    pub(crate) epoch: Epoch,
    /// Where messages are stored, if they are.
    pub(crate) archive: Option<Arc<Archive>>,
    /// Silence after which a stream says that it is alive.
    pub(crate) heartbeat_ns: u64,
    /// When a client that was sent away comes back: half of this more or less.
    pub(crate) retry_ms: u64,
    /// Messages to WebSockets that offer it are compressed.
    pub(crate) compress: bool,
    /// What may lie in the kernel unsent of a subscriber's stream, in bytes (TCP_NOTSENT_LOWAT).
    pub(crate) unsent_bytes: u32,
    /// After so long without an acknowledgement a subscriber is taken for dead (TCP_USER_TIMEOUT), in ms.
    pub(crate) dead_after_ms: u32,
}

impl PushPlan {
    /// A plan of settings; `openness`: to whom it is open without a token.
    ///
    /// # Errors
    /// The settings contradict themselves, or the system gives no randomness.
    pub(crate) fn new(push: &PushSettings, auth: &AuthSettings, openness: Openness) -> io::Result<Self> {
        let rules = push.rules().map_err(|(_, message)| io::Error::other(message))?;
        Ok(Self {
            prefix: push.prefix.clone(),
            rules: Arc::new(rules),
            rights: Rights::new(auth, &push.origins, openness).map_err(io::Error::other)?,
            epoch: archive::new_epoch()?,
            archive: None,
            heartbeat_ns: push.heartbeat.nanoseconds(),
            retry_ms: push.retry.nanoseconds() / 1_000_000,
            compress: push.compress,
            unsent_bytes: u32::try_from(push.unsent.bytes()).unwrap_or(u32::MAX),
            dead_after_ms: u32::try_from(push.dead_after.nanoseconds() / 1_000_000).unwrap_or(u32::MAX),
        })
    }

    /// The same stream under other settings.
    pub(crate) fn with_epoch_of(self, other: &Self) -> Self {
        Self { epoch: other.epoch, archive: other.archive.clone(), prefix: other.prefix.clone(), ..self }
    }

    /// The stream that goes on in a store.
    pub(crate) fn stored_in(self, archive: Archive) -> Self {
        Self { epoch: archive.epoch().unwrap_or(self.epoch), archive: Some(Arc::new(archive)), ..self }
    }
}
