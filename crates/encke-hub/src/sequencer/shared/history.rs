//! Messages of the stream before the rings: reading them for backfills, and deleting them on request.
//!
//! ```text
//!  FeedRequest::Recall ─► ClusterCommand::Recall ─► the stream ─► ClusterEvent::Recalled ─► Feed::Recalled, to the worker
//!  forget ──────────────► ClusterCommand::Forget ─► a tombstone in the stream, which purges the messages before it
//!                                                     └─► ClusterEvent::Messages, to every node ─► rings are emptied
//! ```
//! **A tombstone is a message of the channel** with the offset up to which the channel is deleted. This is the newest message
//! at the time of the request. Subscribers never receive a tombstone. It applies even before the stream has purged those
//! messages: a reader of the history that finds a tombstone skips them. It also marks the loss for a node that is slower than
//! the purge.

use std::sync::Arc;

use super::super::{PublishError, PublishTicket, Publishing, Sequencer};
use super::{ClusterCommand, FLIGHTS_MAX};
use crate::message::{Draft, Flags, Message};
use crate::name::Name;
use crate::subscriber::SubscriberId;
use crate::values::{Feed, Recalled};

const FORGET: &str = "encke.forget";

/// Identifies a backfill request of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recall {
    pub(crate) core: usize,
    pub(crate) reader: SubscriberId,
    pub(crate) number: u64,
    /// The offset up to which requested messages are deleted by tombstones, as known at the request.
    gone_to: u64,
}

impl Draft {
    /// Creates a tombstone, which deletes a channel up to an offset. Only nodes may publish it.
    pub fn tombstone(channel: Name, to: u64) -> Self {
        Self {
            channel,
            data: to.to_string().into_bytes().into(),
            content_type: None,
            event: Some(FORGET.into()),
            flags: Flags::CONTROL,
            key: None,
        }
    }
}

impl Message {
    /// Returns the offset up to which a tombstone deletes its channel; `None` for other messages.
    pub fn forgets_to(&self) -> Option<u64> {
        let says = self.flags.contains(Flags::CONTROL) && self.event.as_deref() == Some(FORGET);
        let to = std::str::from_utf8(&self.data).ok().filter(|_| says)?.parse().ok();
        // Never beyond its own offset.
        Some(to.unwrap_or(0).min(self.offset))
    }
}

impl Sequencer {
    /// Deletes the messages of a channel on all nodes that share the stream. [`Self::on_event`] returns the result with the ticket.
    ///
    /// # Errors
    /// [`PublishError::NotTaken`] without a shared stream, [`PublishError::Away`] while it is unreachable, and [`PublishError::Crowded`] if
    /// too many messages are in flight.
    pub fn forget(&mut self, channel: &Name) -> Result<Publishing, PublishError> {
        let Some(shared) = &mut self.shared else { return Err(PublishError::NotTaken) };
        if !shared.up {
            return Err(PublishError::Away);
        }
        if shared.flights.len() >= FLIGHTS_MAX {
            return Err(PublishError::Crowded);
        }
        shared.tickets += 1;
        let ticket = PublishTicket(shared.tickets);
        shared.flights.insert(ticket, (channel.clone(), 0));
        shared.commands.push(ClusterCommand::Forget { ticket, channel: channel.clone() });
        Ok(Publishing::Waits(ticket))
    }

    /// Requests a backfill for a subscriber at a position before the rings.
    pub(in super::super) fn recall(
        &mut self,
        core: usize,
        (reader, number): (SubscriberId, u64),
        channels: Vec<Name>,
        after: u64,
        to: u64,
    ) {
        let forgotten_to =
            channels.iter().filter_map(|name| self.find(name)).map(|channel| channel.forgotten_to);
        let gone_to = forgotten_to.filter(|forgotten_to| *forgotten_to > after).max().unwrap_or(0);
        let recall = Recall { core, reader, number, gone_to };
        match &mut self.shared {
            Some(shared) => shared.commands.push(ClusterCommand::Recall { recall, channels, after, to }),
            // Without a shared stream, no other copy exists.
            None => self.recalled(recall, Recalled { lost_to: to, to, ..Recalled::default() }),
        }
    }

    /// Returns the result of a backfill to its worker.
    pub(super) fn recalled(&mut self, recall: Recall, mut run: Recalled) {
        let forgotten_to = |name: &Name| self.find(name).map_or(0, |channel| channel.forgotten_to);
        let Recall { core, reader, number, mut gone_to } = recall;
        run.messages.retain(|message| {
            let hidden = message.offset <= forgotten_to(&message.channel);
            gone_to = if hidden { gone_to.max(message.offset) } else { gone_to };
            !hidden
        });
        run.gone_to = gone_to;
        if let Some(core) = self.cores.get_mut(core) {
            core.recalled.push_back(Feed::Recalled { reader, number, run });
        }
    }

    /// Applies a tombstone that arrives in the stream.
    pub(super) fn buries(&mut self, at: u32, offset: u64, to: u64) {
        self.newest = offset;
        while self.channels[at].ring.front().is_some_and(|first| first.offset <= to) {
            self.drop_oldest(at);
        }
        let channel = &mut self.channels[at];
        channel.forgotten_to = channel.forgotten_to.max(to);
        // Messages purged before they arrived here count as well. If the history of the channel is being read, the loss is
        // after it.
        channel.lost_to = channel.lost_to.max(to);
        self.mark_lost(at);
    }
}

/// Removes tombstones and deleted messages from the history of a channel. Returns the offset up to which it is deleted.
pub(crate) fn apply_tombstones(messages: &mut Vec<Arc<Message>>) -> u64 {
    let forgotten_to = messages.iter().filter_map(|message| message.forgets_to()).max();
    let Some(forgotten_to) = forgotten_to else { return 0 };
    messages.retain(|message| message.offset > forgotten_to && message.forgets_to().is_none());
    forgotten_to
}
