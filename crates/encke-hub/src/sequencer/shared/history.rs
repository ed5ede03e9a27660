//! What the stream has beyond the rings: it is read for those who are that far behind, and forgotten when somebody says so.
//!
//! ```text
//!  Request::Recall ─► Errand::Recall ─► the stream ─► News::Recalled ─► Feed::Recalled, to the core that has asked
//!  forget ──────────► Errand::Forget ─► a tombstone in the stream, and what is before it is removed there
//!                                        └─► News::Messages, to every node ─► rings are emptied
//! ```
//! **A tombstone is a message of the channel** that says up to where it is forgotten: what was its newest message when somebody
//! asked for that. It is shown to nobody. It holds also where the stream has not removed those messages yet: whoever reads the
//! past and finds a tombstone passes over them. And it says what a node has missed that is slower than the removal.

use std::sync::Arc;

use super::super::{Publishing, Refusal, Sequencer, Ticket};
use super::{Errand, FLIGHTS_MAX};
use crate::message::{Draft, Flags, Message};
use crate::name::Name;
use crate::subscriber::SubscriberId;
use crate::values::{Feed, Recalled};

const FORGET: &str = "encke.forget";

/// Names what somebody on a core has asked of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recall {
    pub(crate) core: usize,
    pub(crate) reader: SubscriberId,
    pub(crate) number: u64,
    /// Up to where messages were forgotten that it may want.
    gone_to: u64,
}

impl Draft {
    /// Says that a channel is forgotten up to an offset. A node says that, not a publisher.
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
    /// Up to where its channel is forgotten, if it says that.
    pub fn forgets_to(&self) -> Option<u64> {
        let says = self.flags.contains(Flags::CONTROL) && self.event.as_deref() == Some(FORGET);
        let to = std::str::from_utf8(&self.data).ok().filter(|_| says)?.parse().ok();
        // Nothing behind itself.
        Some(to.unwrap_or(0).min(self.offset))
    }
}

impl Sequencer {
    /// Has the messages of a channel forgotten, on all nodes that share the stream; [`Self::hear`] answers the ticket.
    ///
    /// # Errors
    /// The stream is away, or too much is on its way to it.
    pub fn forget(&mut self, channel: &Name) -> Result<Publishing, Refusal> {
        let Some(shared) = &mut self.shared else { return Err(Refusal::NotTaken) };
        if !shared.up {
            return Err(Refusal::Away);
        }
        if shared.flights.len() >= FLIGHTS_MAX {
            return Err(Refusal::Crowded);
        }
        shared.tickets += 1;
        let ticket = Ticket(shared.tickets);
        shared.flights.insert(ticket, (channel.clone(), 0));
        shared.errands.push(Errand::Forget { ticket, channel: channel.clone() });
        Ok(Publishing::Waits(ticket))
    }

    /// Somebody on a core is at a place before what is kept here.
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
            Some(shared) => shared.errands.push(Errand::Recall { recall, channels, after, to }),
            // What is not kept here is kept nowhere.
            None => self.recalled(recall, Recalled { lost_to: to, to, ..Recalled::default() }),
        }
    }

    /// What somebody has asked for is here.
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

    /// A tombstone comes by the stream.
    pub(super) fn buries(&mut self, at: u32, offset: u64, to: u64) {
        self.newest = offset;
        while self.channels[at].ring.front().is_some_and(|first| first.offset <= to) {
            self.drop_oldest(at);
        }
        let channel = &mut self.channels[at];
        channel.forgotten_to = channel.forgotten_to.max(to);
        // Also what was removed before it came here. Of a channel whose past is being read, that is behind it.
        channel.lost_to = channel.lost_to.max(to);
        self.tell_of_loss(at);
    }
}

/// Takes tombstones, and what they hide, out of the past of a channel; up to where it was forgotten.
pub(crate) fn bury(messages: &mut Vec<Arc<Message>>) -> u64 {
    let forgotten_to = messages.iter().filter_map(|message| message.forgets_to()).max();
    let Some(forgotten_to) = forgotten_to else { return 0 };
    messages.retain(|message| message.offset > forgotten_to && message.forgets_to().is_none());
    forgotten_to
}
