//! Subscribers that start at a key frame, and continue at one after an overrun.
//!
//! ```text
//!  Started ─► Joins ── preamble ──► AwaitsKey ── key frame ──► Flowing ◄─┬─► InsideUnit
//!               ├──── key frame, without a preamble ─────────────▲   │     │      │
//!               │                   AwaitsKey ◄── the ring passed ───┘   Ended  Overrun: the ring passed
//!               └─ nothing yet ─► AwaitsHead, which continues as Joins does ── the end of the stream ─► Ended
//! ```
//! **The key frame** is the newest one that is at least [`ChannelRules::burst_ms`](crate::ChannelRules::burst_ms) old, or else
//! the oldest kept key frame. It belongs to the newest preamble. While none is kept, the subscriber skips messages, which is no
//! lag and no overrun.
//!
//! **A break ends the stream** of a subscriber that has received anything, even only the preamble: its decoder has no use for
//! the messages after the break. A preamble in the middle of a unit counts as a break. The end of a stream ([`Flags::END`]) also
//! ends subscribers that have received nothing; one that comes later waits for the next preamble.

use std::sync::Arc;

use super::{Delivery, DeliveryContent, Hub, encode};
use crate::channel::{Channel, Collector};
use crate::encoding::{Encoder, Form, Run};
use crate::message::{Flags, Message};
use crate::position::{Beside, Position, Since};
use crate::preamble::BreakFinder;
use crate::rules::Overrun;
use crate::subscriber::{Once, Subscriber, SubscriberEntry, SubscriberId};

/// Returns the start and the entry of a subscriber with a number of channels. Only a stream of one channel starts at a key
/// frame.
pub(super) fn entry(since: Since, channels: usize, once: Once, part: bool) -> (Since, SubscriberEntry) {
    match since {
        Since::Key if once != Once::Never => (Since::Last(1), SubscriberEntry::Plain),
        Since::Key if channels != 1 || part => (Since::Now, SubscriberEntry::Plain),
        Since::Key => (Since::Key, SubscriberEntry::Joins),
        since => (since, SubscriberEntry::Plain),
    }
}

/// Collects the messages of a channel after an offset, up to a break. Returns the number of messages left.
pub(super) fn collect(channel: &Channel, after: u64, only_one: bool, into: &mut Vec<Arc<Message>>) -> usize {
    let mut run = Collector::new(into, only_one);
    let mut breaks = BreakFinder::default();
    let first = channel.index_after(after);
    let mut index = first;
    // The caller has checked the first message.
    while let Some(message) = channel.message(index)
        && !(breaks.breaks_before(message) && index > first)
        && run.take(message)
    {
        index += 1;
    }
    channel.kept() - index
}

impl Hub {
    /// Turns a subscriber that started at a key frame into an ordinary subscriber, before the channels change.
    pub(super) fn becomes_plain(&mut self, id: u32) {
        let subscriber = &mut self.subscribers[id];
        let before = std::mem::replace(&mut subscriber.entry, SubscriberEntry::Plain);
        if !before.waits() {
            return;
        }
        subscriber.position = self.head;
        if let Some(since) = subscriber.rest.as_mut().and_then(|rest| rest.since.as_mut()) {
            *since = Since::Now;
        }
    }

    /// Queues a writable subscriber that may have something to receive.
    pub(super) fn sent_keyed(&mut self, id: u32) {
        let Some(at) = self.only_channel(id) else { return };
        let channel = &self.channels[at];
        let subscriber = &mut self.subscribers[id];
        if subscriber.entry.waits() || channel.edge > subscriber.position {
            subscriber.late = channel.lost_to > subscriber.position;
            self.enqueue(id);
        }
    }

    /// Serves a writable subscriber.
    pub(super) fn serve_keyed(&mut self, id: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let Some(at) = self.only_channel(id) else { return };
        let Subscriber { entry, position, .. } = self.subscribers[id];
        let inside = match entry {
            SubscriberEntry::Plain
            | SubscriberEntry::Joins
            | SubscriberEntry::AwaitsHead
            | SubscriberEntry::AwaitsKey => {
                return self.enter(id, at, encoder, out);
            }
            SubscriberEntry::Flowing => false,
            SubscriberEntry::InsideUnit => true,
        };
        if self.channels[at].lost_to > position {
            if self.skip_to_key(id, at, inside, out) {
                self.enter(id, at, encoder, out);
            }
            return;
        }
        let channel = &self.channels[at];
        let Some(next) = channel.message(channel.index_after(position)) else { return };
        if BreakFinder::new(inside).breaks_before(next) {
            return self.end(id, DeliveryContent::Ended, out);
        }
        self.deliver_keyed(id, at, inside, encoder, out);
    }

    /// Serves a subscriber that does not receive each message yet: with the preamble, or from a key frame on.
    fn enter(&mut self, id: u32, at: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let Subscriber { entry, position, form, .. } = self.subscribers[id];
        let joins = matches!(entry, SubscriberEntry::Joins | SubscriberEntry::AwaitsHead);
        let channel = &self.channels[at];
        let broken_at = channel.preamble.as_ref().map_or(0, |preamble| preamble.broken_at());
        if !joins && broken_at > position {
            return self.end(id, DeliveryContent::Ended, out);
        }
        let preamble = channel.preamble.as_ref().and_then(|preamble| preamble.message());
        let has_ended =
            preamble.is_some_and(|last| last.offset > position && last.flags.contains(Flags::END));
        if entry == SubscriberEntry::AwaitsHead && has_ended {
            return self.end(id, DeliveryContent::Ended, out);
        }
        let mut after = position.max(broken_at.saturating_sub(1));
        if let Some(preamble) = preamble.filter(|preamble| joins || preamble.offset > position) {
            after = after.max(preamble.offset);
            if !preamble.data.is_empty() {
                let preamble = Arc::clone(preamble);
                let bytes = self.preamble_bytes(at, &preamble, form, encoder);
                let subscriber = &mut self.subscribers[id];
                (subscriber.position, subscriber.entry) = (after, SubscriberEntry::AwaitsKey);
                return self.deliver_bytes(id, bytes, out);
            }
        }
        // Without a burst the newest one counts, even if its publisher's clock is ahead.
        let oldest_ms = match channel.rules.burst_ms {
            0 => u64::MAX,
            burst_ms => self.now.unix_ms.saturating_sub(burst_ms),
        };
        match key_frame(channel, after, oldest_ms) {
            Some(offset) => {
                self.subscribers[id].position = offset - 1;
                self.deliver_keyed(id, at, false, encoder, out);
            }
            // Skips everything so far.
            None => {
                let subscriber = &mut self.subscribers[id];
                subscriber.position = after.max(channel.edge);
                if entry == SubscriberEntry::Joins {
                    subscriber.entry = SubscriberEntry::AwaitsHead;
                }
            }
        }
    }

    /// Delivers the messages of one run. The next message is no break.
    fn deliver_keyed(
        &mut self,
        id: u32,
        at: u32,
        inside: bool,
        encoder: &mut impl Encoder,
        out: &mut Vec<Delivery>,
    ) {
        let Subscriber { position, form, .. } = self.subscribers[id];
        let (to, bytes) = self.shared::<true>(at, position, form, false, encoder);
        let inside = ends_inside(&self.channels[at], position, to).unwrap_or(inside);
        let subscriber = &mut self.subscribers[id];
        subscriber.position = to;
        subscriber.entry = if inside { SubscriberEntry::InsideUnit } else { SubscriberEntry::Flowing };
        self.deliver_bytes(id, bytes, out);
    }

    /// Handles a subscriber that the ring has passed: `inside` a unit or not. Returns whether it continues at a key frame.
    fn skip_to_key(&mut self, id: u32, at: u32, inside: bool, out: &mut Vec<Delivery>) -> bool {
        let channel = &self.channels[at];
        let subscriber = &mut self.subscribers[id];
        let late = std::mem::take(&mut subscriber.late);
        // Only a subscriber that was itself too slow is disconnected by the policy.
        let overrun = inside || late && channel.rules.policy == Overrun::Disconnect;
        let broken_at = channel.preamble.as_ref().map_or(0, |preamble| preamble.broken_at());
        let ends = overrun || broken_at > subscriber.position;
        subscriber.entry = SubscriberEntry::AwaitsKey;
        self.count_slow(id, &[at], ends);
        if ends {
            let what = if overrun { DeliveryContent::Overrun } else { DeliveryContent::Ended };
            self.end(id, what, out);
        }
        !ends
    }

    /// Removes a subscriber, with its last delivery.
    fn end(&mut self, id: u32, what: DeliveryContent, out: &mut Vec<Delivery>) {
        let key = self.subscribers[id].key;
        out.push(Delivery { subscriber: SubscriberId(id), key, what });
        self.remove(id);
    }

    /// Returns the encoding of the preamble, which all subscribers with this form share.
    fn preamble_bytes(
        &mut self,
        at: u32,
        preamble: &Arc<Message>,
        form: Form,
        encoder: &mut impl Encoder,
    ) -> Arc<[u8]> {
        let kept = &mut self.channels[at].preamble;
        if let Some(bytes) = kept.as_ref().and_then(|kept| kept.encoded(form)) {
            return Arc::clone(bytes);
        }
        let run = Run {
            messages: std::slice::from_ref(preamble),
            position: Position { epoch: self.epoch, offset: preamble.offset },
            beside: Beside::default(),
            gap: None,
            more: 0,
        };
        let bytes = encode(encoder, form, &run, &mut self.scratch.bytes, &mut self.encodings);
        if let Some(kept) = kept {
            kept.keep(form, &bytes);
        }
        bytes
    }

    /// Returns the channel of a subscriber that has only one.
    fn only_channel(&self, id: u32) -> Option<u32> {
        let subscriber = &self.subscribers[id];
        match &subscriber.rest {
            None => Some(subscriber.channel),
            Some(rest) => match rest.links[..] {
                [link] => Some(link.channel),
                _ => None,
            },
        }
    }
}

/// Returns the offset of the newest key frame after an offset that is at least as old as a time, in ms since 1970, or else of
/// the oldest one there.
fn key_frame(channel: &Channel, after: u64, oldest_ms: u64) -> Option<u64> {
    let first = channel.index_after(after);
    let newest_first = (first..channel.kept()).rev().filter_map(|index| channel.message(index));
    let mut found = None;
    for message in newest_first.filter(|message| message.flags.contains(Flags::KEY_FRAME)) {
        found = Some(message.offset);
        if message.unix_ms <= oldest_ms {
            break;
        }
    }
    found
}

/// Returns whether the last message of a run ends inside a unit; `None` if the run has only joins and leaves.
fn ends_inside(channel: &Channel, after: u64, to: u64) -> Option<bool> {
    let newest_first = (0..channel.index_after(to)).rev().map_while(|index| channel.message(index));
    let mut run = newest_first.take_while(|message| message.offset > after);
    run.find(|message| !message.is_event()).map(|message| message.flags.contains(Flags::CONTINUES))
}
