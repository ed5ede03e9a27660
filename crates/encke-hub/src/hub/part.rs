//! A part: what a subscriber over several streams has of one of them. It is a subscriber like any other, but for what it
//! is told: messages, which [`Hubs`](crate::Hubs) encodes, because only that knows where the other parts stand.

use std::sync::Arc;

use super::{Hub, Refused, Subscribe, encode};
use crate::Now;
use crate::encoding::{Encoder, Form, Gap, Run};
use crate::message::Message;
use crate::name::Name;
use crate::position::Epoch;
use crate::subscriber::{Member, Once, State, SubscriberId};

/// What a part is told, and which one.
#[derive(Debug)]
pub(crate) struct Tidings {
    pub(crate) id: SubscriberId,
    /// Of the subscriber that it is a part of.
    pub(crate) key: u64,
    pub(crate) part: Part,
}

/// What a part is told. After the first two it is busy until [`Hub::sent`], if it stays.
#[derive(Debug)]
pub(crate) enum Part {
    /// All its channels are known.
    Started(Option<Gap>),
    /// The next messages, or what it has missed; one that asked once is gone with them.
    Run(PartRun),
    /// It asked once, and there is nothing yet.
    Waiting,
    /// It was too slow, and is gone.
    Overrun,
}

/// A run before it is encoded.
#[derive(Debug)]
pub(crate) struct PartRun {
    pub(crate) messages: Vec<Arc<Message>>,
    /// Where the part stood before it, and behind it.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) gap: Option<Gap>,
    pub(crate) more: usize,
}

/// What a subscriber is, for one that becomes a part.
pub(crate) struct Whole {
    pub(crate) key: u64,
    pub(crate) form: Form,
    pub(crate) member: Option<Member>,
    /// It was told that it has begun.
    pub(crate) begun: bool,
    /// Its connection still has what came last.
    pub(crate) busy: bool,
}

impl Hub {
    /// Takes a part of a subscriber.
    pub(crate) fn subscribe_part(&mut self, now: Now, subscribe: Subscribe) -> Result<SubscriberId, Refused> {
        self.take(now, subscribe, true)
    }

    /// Makes a subscriber that stays the part of another one; says what it was.
    pub(crate) fn becomes_part(&mut self, SubscriberId(id): SubscriberId, key: u64) -> Option<Whole> {
        let subscriber = self.subscribers.get_mut(id).filter(|subscriber| subscriber.once == Once::Never)?;
        subscriber.part = true;
        self.parts_count += 1;
        Some(Whole {
            key: std::mem::replace(&mut subscriber.key, key),
            form: subscriber.form,
            member: subscriber.rest.as_ref().and_then(|rest| rest.member.clone()),
            begun: subscriber.state != State::Starting,
            busy: subscriber.state == State::Busy,
        })
    }

    /// What parts were told since this was asked last.
    pub(crate) fn take_parts(&mut self) -> Vec<Tidings> {
        std::mem::take(&mut self.parts)
    }

    /// Where a subscriber stands that has begun; some of its channels may not be known yet.
    pub(crate) fn stands(&mut self, id: SubscriberId) -> Option<u64> {
        self.offset_of(id).or_else(|| self.subscribers.get(id.0).map(|subscriber| subscriber.position))
    }

    /// The channels of a subscriber.
    pub(crate) fn names_of(&self, SubscriberId(id): SubscriberId) -> Vec<Name> {
        if self.subscribers.get(id).is_none() {
            return Vec::new();
        }
        self.channels_of(id).map(|(channel, _)| self.channels[channel].name.clone()).collect()
    }

    /// Checks that this core can take these channels more.
    pub(crate) fn has_room(&mut self, added: &[Name]) -> Result<(), Refused> {
        self.make_room(added, 0)
    }

    /// Whether a subscriber is there that stays.
    pub(crate) fn stays(&self, SubscriberId(id): SubscriberId) -> bool {
        self.subscribers.get(id).is_some_and(|subscriber| subscriber.once == Once::Never)
    }

    /// How many of its subscribers are parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts_count
    }

    /// The life of its stream.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Makes bytes of a run, which are charged to this hub.
    pub(crate) fn encodes(&mut self, encoder: &mut impl Encoder, form: Form, run: &Run<'_>) -> Arc<[u8]> {
        encode(encoder, form, run, &mut self.scratch.bytes, &mut self.encodings)
    }

    /// Gives a part the messages that were collected for it.
    pub(super) fn hand_part(&mut self, id: u32, from: u64, gap: Option<Gap>, more: usize) {
        let subscriber = &mut self.subscribers[id];
        let (key, to, once) = (subscriber.key, subscriber.position, subscriber.once);
        let messages = self.scratch.messages.drain(..).collect();
        // Who stays stands before what it has missed until that is told. Who asked once is told with the answer.
        let missed_from =
            gap.as_ref().filter(|_| once == Once::Never).and_then(|gap| gap.from.of(self.epoch));
        let from = missed_from.unwrap_or(from);
        self.parts.push(Tidings {
            id: SubscriberId(id),
            key,
            part: Part::Run(PartRun { messages, from, to, gap, more }),
        });
        if once == Once::Never {
            self.subscribers[id].state = State::Busy;
        } else {
            self.remove(id);
        }
    }
}
