//! Parts: a subscriber of several streams has one part per stream. A part is an ordinary subscriber, but receives messages
//! instead of bytes. [`Hubs`](crate::Hubs) encodes them, since the ids need the positions of all parts.

use std::sync::Arc;

use super::{Hub, Subscribe, SubscribeError, encode};
use crate::HubNow;
use crate::encoding::{Encoder, Form, Gap, Run};
use crate::message::Message;
use crate::name::Name;
use crate::position::Epoch;
use crate::subscriber::{Member, Once, SubscriberId, SubscriberState};

/// A delivery to a part.
#[derive(Debug)]
pub(crate) struct PartDelivery {
    pub(crate) id: SubscriberId,
    /// The subscriber that the part belongs to.
    pub(crate) key: u64,
    pub(crate) part: PartEvent,
}

/// The content of a delivery to a part. After `Started` and `Run`, a part that stays is busy until [`Hub::sent`].
#[derive(Debug)]
pub(crate) enum PartEvent {
    /// All channels are open.
    Started(Option<Gap>),
    /// The next messages, or a gap. A polling part is removed with it.
    Run(PartRun),
    /// A poll found no messages yet.
    Waiting,
    /// The part was too slow and was removed.
    Overrun,
}

/// A run before encoding.
#[derive(Debug)]
pub(crate) struct PartRun {
    pub(crate) messages: Vec<Arc<Message>>,
    /// The position of the part before the run, and after it.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) gap: Option<Gap>,
    pub(crate) more: usize,
}

/// The properties of a subscriber that becomes a part.
pub(crate) struct PartSettings {
    pub(crate) key: u64,
    pub(crate) form: Form,
    pub(crate) member: Option<Member>,
    /// Whether the subscriber has started.
    pub(crate) begun: bool,
    /// Whether its connection is still sending the last delivery.
    pub(crate) busy: bool,
}

impl Hub {
    /// Adds a part of a subscriber.
    pub(crate) fn subscribe_part(
        &mut self,
        now: HubNow,
        subscribe: Subscribe,
    ) -> Result<SubscriberId, SubscribeError> {
        self.take(now, subscribe, true)
    }

    /// Turns a streaming subscriber into a part. Returns its former properties.
    pub(crate) fn becomes_part(&mut self, SubscriberId(id): SubscriberId, key: u64) -> Option<PartSettings> {
        self.subscribers.get(id).filter(|subscriber| subscriber.once == Once::Never)?;
        self.becomes_plain(id);
        let subscriber = &mut self.subscribers[id];
        subscriber.part = true;
        self.parts_count += 1;
        Some(PartSettings {
            key: std::mem::replace(&mut subscriber.key, key),
            form: subscriber.form,
            member: subscriber.rest.as_ref().and_then(|rest| rest.member.clone()),
            begun: subscriber.state != SubscriberState::Starting,
            busy: subscriber.state == SubscriberState::Busy,
        })
    }

    /// Takes the deliveries to parts since the last call.
    pub(crate) fn take_parts(&mut self) -> Vec<PartDelivery> {
        std::mem::take(&mut self.parts)
    }

    /// Returns the position of a subscriber, even if a channel is not open yet or a gap is still to be delivered.
    pub(crate) fn stands(&mut self, id: SubscriberId) -> Option<u64> {
        self.offset_of(id).or_else(|| self.subscribers.get(id.0).map(|subscriber| subscriber.position))
    }

    /// Returns the channels of a subscriber.
    pub(crate) fn names_of(&self, SubscriberId(id): SubscriberId) -> Vec<Name> {
        if self.subscribers.get(id).is_none() {
            return Vec::new();
        }
        self.channels_of(id).map(|(channel, _)| self.channels[channel].name.clone()).collect()
    }

    /// Checks that this worker has room for more channels.
    pub(crate) fn has_room(&mut self, added: &[Name]) -> Result<(), SubscribeError> {
        self.make_room(added, 0)
    }

    /// Returns whether a subscriber exists and stays after a delivery.
    pub(crate) fn stays(&self, SubscriberId(id): SubscriberId) -> bool {
        self.subscribers.get(id).is_some_and(|subscriber| subscriber.once == Once::Never)
    }

    /// Returns the number of subscribers that are parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts_count
    }

    /// Returns the epoch of the stream.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Encodes a run, and charges the bytes to this hub.
    pub(crate) fn encodes(&mut self, encoder: &mut impl Encoder, form: Form, run: &Run<'_>) -> Arc<[u8]> {
        encode(encoder, form, run, &mut self.scratch.bytes, &mut self.encodings)
    }

    /// Delivers the collected messages to a part.
    pub(super) fn deliver_part(&mut self, id: u32, from: u64, gap: Option<Gap>, more: usize) {
        let subscriber = &mut self.subscribers[id];
        let (key, to, once) = (subscriber.key, subscriber.position, subscriber.once);
        let messages = self.scratch.messages.drain(..).collect();
        // A streaming subscriber keeps its position before the gap until the gap is delivered. A poll receives the gap as part
        // of its response.
        let missed_from =
            gap.as_ref().filter(|_| once == Once::Never).and_then(|gap| gap.from.of(self.epoch));
        let from = missed_from.unwrap_or(from);
        self.parts.push(PartDelivery {
            id: SubscriberId(id),
            key,
            part: PartEvent::Run(PartRun { messages, from, to, gap, more }),
        });
        if once == Once::Never {
            self.subscribers[id].state = SubscriberState::Busy;
        } else {
            self.remove(id);
        }
    }
}
