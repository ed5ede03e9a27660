//! Backfill: a subscriber whose position is before the rings reads the missing messages from the cluster stream.
//!
//! ```text
//!                 ┌────────────────────────────────────────────────────────────────────┐
//!                 ▼                                                                    │
//!  lost ──► Ask ──► Asked (Request::Recall) ──► Came (Feed::Recalled) ──► a run, Busy ─┴─ sent: rings suffice ──► Ready
//! ```
//! **A backfilling subscriber holds one run** and requests the next one when its connection has sent it. So it reads at its own
//! pace, and memory does not grow with the number of missed messages. If the rings advance meanwhile, the backfill continues.
//! At most [`READERS_MAX`] subscribers have requested or hold a run; the others queue.
//!
//! A request covers all channels of a subscriber, since it has one position. Messages are delivered in offset order, as always.
//! Messages that the stream has lost as well are reported as a gap.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Delivery, Hub};
use crate::channel::Collector;
use crate::encoding::{Encoder, Gap, GapReason, Run};
use crate::limits::READERS_MAX;
use crate::message::Message;
use crate::position::Beside;
use crate::rules::Overrun;
use crate::subscriber::{Once, SubscriberId, SubscriberState};
use crate::values::{FeedRequest, Recalled};

/// The backfilling subscribers.
#[derive(Debug, Default)]
pub(super) struct Backfills {
    by_subscriber: HashMap<u32, Backfill>,
    /// The number of the last request.
    asked: u64,
    /// Number of subscribers that have requested or hold a run.
    busy: usize,
    /// Subscribers that may request next. Some may have left, or requested already.
    waiting: VecDeque<u32>,
}

#[derive(Debug)]
struct Backfill {
    step: BackfillStep,
    /// The cause to report in a gap.
    reason: GapReason,
    /// The end of the last reported gap.
    reported_to: u64,
}

#[derive(Debug)]
enum BackfillStep {
    Ask,
    /// With the number of the request.
    Asked(u64),
    Came(Recalled),
}

impl Backfills {
    pub(super) fn has(&self, id: u32) -> bool {
        !self.by_subscriber.is_empty() && self.by_subscriber.contains_key(&id)
    }

    pub(super) fn begin(&mut self, id: u32, reason: GapReason) {
        self.by_subscriber.entry(id).or_insert(Backfill { step: BackfillStep::Ask, reason, reported_to: 0 });
    }

    pub(super) fn end(&mut self, id: u32) {
        if !self.by_subscriber.is_empty() {
            self.take(id);
            self.by_subscriber.remove(&id);
        }
    }

    /// Stores a run. Returns whether a subscriber waits for it.
    pub(super) fn store_run(&mut self, id: u32, number: u64, run: Recalled) -> bool {
        let Some(reading) = self.by_subscriber.get_mut(&id) else { return false };
        let asked = matches!(reading.step, BackfillStep::Asked(asked) if asked == number);
        if asked {
            reading.step = BackfillStep::Came(run);
        }
        asked
    }

    /// Takes the current step of a subscriber, which has to request again afterwards.
    fn take(&mut self, id: u32) -> Option<BackfillStep> {
        let reading = self.by_subscriber.get_mut(&id)?;
        let step = std::mem::replace(&mut reading.step, BackfillStep::Ask);
        if !matches!(step, BackfillStep::Ask) {
            self.busy -= 1;
        }
        Some(step)
    }

    fn put(&mut self, id: u32, step: BackfillStep) {
        if let Some(reading) = self.by_subscriber.get_mut(&id) {
            reading.step = step;
            self.busy += 1;
        }
    }
}

impl Hub {
    /// Returns whether a subscriber that a ring has passed can backfill. In channels with [`Overrun::Latest`] the subscriber
    /// skips to the latest message instead.
    pub(super) fn may_recall(&mut self, id: u32) -> bool {
        if !self.rules.recalls || !self.is_lost(id) {
            return false;
        }
        let channels = &self.channels;
        let subscriber = &mut self.subscribers[id];
        let position = subscriber.position;
        match &mut subscriber.rest {
            None => {
                let channel = &channels[subscriber.channel];
                if channel.rules.policy == Overrun::Latest {
                    subscriber.position = channel.before_newest();
                }
            }
            Some(rest) => {
                for link in &mut rest.links {
                    let channel = &channels[link.channel];
                    if channel.rules.policy == Overrun::Latest && channel.has_lost(position, link.floor) {
                        link.floor = channel.before_newest();
                    }
                }
            }
        }
        self.is_lost(id)
    }

    /// Discards the pending run of a backfilling subscriber whose channels have changed.
    pub(super) fn discard_run(&mut self, id: u32) {
        if self.backfills.take(id).is_some() && self.subscribers[id].state == SubscriberState::Reading {
            self.enqueue(id);
        }
    }

    /// Continues the backfill of a writable subscriber.
    pub(super) fn read(&mut self, id: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        match self.backfills.take(id) {
            None => return,
            Some(BackfillStep::Asked(number)) => return self.backfills.put(id, BackfillStep::Asked(number)),
            Some(BackfillStep::Ask) => {}
            Some(BackfillStep::Came(run)) => {
                if self.deliver_recalled(id, run, encoder, out) {
                    return;
                }
            }
        }
        if self.may_recall(id) {
            return self.request_more(id);
        }
        self.backfills.end(id);
        let subscriber = &mut self.subscribers[id];
        subscriber.state = SubscriberState::Ready;
        if subscriber.once == Once::Never {
            self.deliver(id, None, encoder, out);
        } else {
            self.answer(id, None, encoder, out);
        }
    }

    /// Queues waiting subscribers that may request now.
    pub(super) fn lets_read(&mut self) {
        let room = READERS_MAX.saturating_sub(self.backfills.busy);
        for _ in 0..room {
            let Some(id) = self.backfills.waiting.pop_front() else { return };
            if self.subscribers.get(id).is_some_and(|one| one.state == SubscriberState::Reading) {
                self.enqueue(id);
            }
        }
    }

    fn request_more(&mut self, id: u32) {
        if self.backfills.busy >= READERS_MAX {
            return self.backfills.waiting.push_back(id);
        }
        self.backfills.asked += 1;
        let number = self.backfills.asked;
        self.backfills.put(id, BackfillStep::Asked(number));
        let position = self.subscribers[id].position;
        let lost = self.channels_of(id).filter(|(at, floor)| self.channels[*at].has_lost(position, *floor));
        let to = lost.map(|(at, _)| self.channels[at].lost_to).max().unwrap_or(position);
        let counts = |(at, floor)| {
            let channel = &self.channels[at];
            let after = position.max(channel.floor(floor));
            (after < to).then(|| (channel.name.clone(), after))
        };
        let (channels, after): (Vec<_>, Vec<u64>) = self.channels_of(id).filter_map(counts).unzip();
        let after = after.into_iter().min().unwrap_or(position);
        self.requests.push(FeedRequest::Recall { reader: SubscriberId(id), number, channels, after, to });
    }

    /// Delivers a run to a subscriber. Returns whether there was anything to deliver.
    fn deliver_recalled(
        &mut self,
        id: u32,
        run: Recalled,
        encoder: &mut impl Encoder,
        out: &mut Vec<Delivery>,
    ) -> bool {
        let Recalled { lost_to, gone_to, to, messages } = run;
        let subscriber = &self.subscribers[id];
        let (from, form, once) = (subscriber.position, subscriber.form, subscriber.once);
        if to <= from {
            return false;
        }
        let (mut messages, buried_to) = self.wanted_of(id, messages);
        let gone_to = gone_to.max(buried_to).max(lost_to);
        let Some(reading) = self.backfills.by_subscriber.get_mut(&id) else { return false };
        let (reason, untold) = (reading.reason, gone_to > from.max(reading.reported_to));
        reading.reported_to = reading.reported_to.max(gone_to);
        let gap = untold.then(|| Gap { from: self.at(from).into(), to: self.at(gone_to).into(), reason });
        if messages.is_empty() && gap.is_none() {
            self.subscribers[id].position = to;
            return false;
        }
        let only_one = once == Once::Oldest || self.is_crowded();
        // A streaming subscriber receives a gap alone.
        let alone = gap.is_some() && once == Once::Never;
        let mut taken = std::mem::take(&mut self.scratch.messages);
        let mut collector = Collector::new(&mut taken, only_one);
        let count = messages.iter().take_while(|message| !alone && collector.take(message)).count();
        let rest = messages.split_off(count);
        // The messages after a gap are delivered next. Those beyond one run are requested again, instead of being held.
        let keeps = alone && !rest.is_empty();
        let position = match (rest.is_empty(), taken.last()) {
            (true, _) => to,
            (_, Some(last)) => last.offset,
            _ => from.max(lost_to),
        };
        let more = rest.len() + self.kept_behind(id, to);
        if keeps {
            self.backfills
                .put(id, BackfillStep::Came(Recalled { to, messages: rest, ..Recalled::default() }));
        }
        self.subscribers[id].position = position;
        if self.subscribers[id].part {
            self.scratch.messages = taken;
            self.deliver_part(id, from, gap, more);
            return true;
        }
        let position = self.at(position);
        let run = Run { messages: &taken, position, beside: Beside::default(), gap: gap.as_ref(), more };
        let bytes = super::encode(encoder, form, &run, &mut self.scratch.bytes, &mut self.encodings);
        self.scratch.messages = taken;
        self.deliver_bytes(id, bytes, out);
        true
    }

    /// Returns the messages that the subscriber wants, and the offset up to which tombstones delete messages.
    fn wanted_of(&self, id: u32, mut messages: Vec<Arc<Message>>) -> (Vec<Arc<Message>>, u64) {
        let position = self.subscribers[id].position;
        let counts = |message: &Message| {
            let at = self.names.get(&message.channel);
            let mut its = self.channels_of(id).filter(|(channel, _)| Some(channel) == at);
            its.any(|(at, floor)| message.offset > position.max(self.channels[at].floor(floor)))
        };
        messages.retain(|message| counts(message));
        let mut gone_to = 0;
        while let Some((at, to)) = tombstone(&messages) {
            let channel = messages.remove(at).channel.clone();
            messages.retain(|one| one.channel != channel || one.offset > to);
            gone_to = gone_to.max(to);
        }
        (messages, gone_to)
    }

    /// Returns the number of messages that the rings keep for a subscriber after an offset.
    fn kept_behind(&self, id: u32, offset: u64) -> usize {
        let kept = |(at, floor)| {
            let channel = &self.channels[at];
            channel.kept() - channel.index_after(offset.max(channel.floor(floor)))
        };
        self.channels_of(id).map(kept).sum()
    }
}

/// Returns the index of the first tombstone, and the offset up to which it deletes its channel.
fn tombstone(messages: &[Arc<Message>]) -> Option<(usize, u64)> {
    messages.iter().enumerate().find_map(|(at, message)| Some((at, message.forgets_to()?)))
}
