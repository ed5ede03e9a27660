//! Who is at a place before what the rings keep, where that can be read elsewhere.
//!
//! ```text
//!                 ┌───────────────────────────────────────────────────────────────────┐
//!                 ▼                                                                   │
//!  lost ──► Ask ──► Asked (Request::Recall) ──► Came (Feed::Recalled) ──► a run, Busy ─┴─ sent: the rings have the rest ──► Ready
//! ```
//! **A subscriber that reads holds one run**, and asks for the next one when its connection has taken that: it reads as fast
//! as it can, and no memory grows with what it has missed. A ring that goes on meanwhile is caught up with later. Of those who
//! read, so many at a time have asked for a run or hold one ([`READERS_MAX`]); the others wait in turn.
//!
//! It is asked for all channels of a subscriber at once, since it has one position: what is told to it is in the order of
//! offsets, as everywhere. What it is no longer kept anywhere is told as a gap.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Delivery, Hub};
use crate::channel::Collector;
use crate::encoding::{Encoder, Gap, GapReason, Run};
use crate::limits::READERS_MAX;
use crate::message::Message;
use crate::position::Beside;
use crate::rules::Overrun;
use crate::subscriber::{Once, State, SubscriberId};
use crate::values::{Recalled, Request};

/// Those who read.
#[derive(Debug, Default)]
pub(super) struct Readings {
    by_subscriber: HashMap<u32, Reading>,
    /// The number of what was asked last.
    asked: u64,
    /// How many have asked, or hold what came.
    busy: usize,
    /// Who may ask next; some may have gone, or asked already.
    waiting: VecDeque<u32>,
}

#[derive(Debug)]
struct Reading {
    step: Step,
    /// Why it has missed what is gone.
    reason: GapReason,
    /// Up to where it was told what is gone.
    told_to: u64,
}

#[derive(Debug)]
enum Step {
    Ask,
    /// By this number.
    Asked(u64),
    Came(Recalled),
}

impl Readings {
    pub(super) fn has(&self, id: u32) -> bool {
        !self.by_subscriber.is_empty() && self.by_subscriber.contains_key(&id)
    }

    pub(super) fn begin(&mut self, id: u32, reason: GapReason) {
        self.by_subscriber.entry(id).or_insert(Reading { step: Step::Ask, reason, told_to: 0 });
    }

    pub(super) fn end(&mut self, id: u32) {
        if !self.by_subscriber.is_empty() {
            self.take(id);
            self.by_subscriber.remove(&id);
        }
    }

    /// Something came; whether anybody waits for it.
    pub(super) fn comes(&mut self, id: u32, number: u64, run: Recalled) -> bool {
        let Some(reading) = self.by_subscriber.get_mut(&id) else { return false };
        let asked = matches!(reading.step, Step::Asked(asked) if asked == number);
        if asked {
            reading.step = Step::Came(run);
        }
        asked
    }

    /// What somebody has, which then has to ask again.
    fn take(&mut self, id: u32) -> Option<Step> {
        let reading = self.by_subscriber.get_mut(&id)?;
        let step = std::mem::replace(&mut reading.step, Step::Ask);
        if !matches!(step, Step::Ask) {
            self.busy -= 1;
        }
        Some(step)
    }

    fn put(&mut self, id: u32, step: Step) {
        if let Some(reading) = self.by_subscriber.get_mut(&id) {
            reading.step = step;
            self.busy += 1;
        }
    }
}

impl Hub {
    /// Whether a subscriber that a ring has passed can read elsewhere what it has missed. Where only the latest counts, that
    /// is not done: there it goes on with the latest.
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

    /// The channels of one who reads are others: what it has asked for does not fit any more.
    pub(super) fn asks_anew(&mut self, id: u32) {
        if self.readings.take(id).is_some() && self.subscribers[id].state == State::Reading {
            self.stand_in_line(id);
        }
    }

    /// One who reads can take something.
    pub(super) fn read(&mut self, id: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        match self.readings.take(id) {
            None => return,
            Some(Step::Asked(number)) => return self.readings.put(id, Step::Asked(number)),
            Some(Step::Ask) => {}
            Some(Step::Came(run)) => {
                if self.tell_recalled(id, run, encoder, out) {
                    return;
                }
            }
        }
        if self.may_recall(id) {
            return self.ask_for_more(id);
        }
        self.readings.end(id);
        let subscriber = &mut self.subscribers[id];
        subscriber.state = State::Ready;
        if subscriber.once == Once::Never {
            self.deliver(id, None, encoder, out);
        } else {
            self.answer(id, None, encoder, out);
        }
    }

    /// Whoever has waited for it may ask.
    pub(super) fn lets_read(&mut self) {
        let room = READERS_MAX.saturating_sub(self.readings.busy);
        for _ in 0..room {
            let Some(id) = self.readings.waiting.pop_front() else { return };
            if self.subscribers.get(id).is_some_and(|one| one.state == State::Reading) {
                self.stand_in_line(id);
            }
        }
    }

    fn ask_for_more(&mut self, id: u32) {
        if self.readings.busy >= READERS_MAX {
            return self.readings.waiting.push_back(id);
        }
        self.readings.asked += 1;
        let number = self.readings.asked;
        self.readings.put(id, Step::Asked(number));
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
        self.requests.push(Request::Recall { reader: SubscriberId(id), number, channels, after, to });
    }

    /// Tells a subscriber what came for it; says whether that was anything.
    fn tell_recalled(
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
        let Some(reading) = self.readings.by_subscriber.get_mut(&id) else { return false };
        let (reason, untold) = (reading.reason, gone_to > from.max(reading.told_to));
        reading.told_to = reading.told_to.max(gone_to);
        let gap = untold.then(|| Gap { from: self.at(from).into(), to: self.at(gone_to).into(), reason });
        if messages.is_empty() && gap.is_none() {
            self.subscribers[id].position = to;
            return false;
        }
        let only_one = once == Once::Oldest || self.is_crowded();
        // A stream is told a gap alone.
        let alone = gap.is_some() && once == Once::Never;
        let mut taken = std::mem::take(&mut self.scratch.messages);
        let mut collector = Collector::new(&mut taken, only_one);
        let count = messages.iter().take_while(|message| !alone && collector.take(message)).count();
        let rest = messages.split_off(count);
        // Behind a gap the rest comes next. What is too much for one run is asked for again: nobody holds it meanwhile.
        let keeps = alone && !rest.is_empty();
        let position = match (rest.is_empty(), taken.last()) {
            (true, _) => to,
            (_, Some(last)) => last.offset,
            _ => from.max(lost_to),
        };
        let more = rest.len() + self.kept_behind(id, to);
        if keeps {
            self.readings.put(id, Step::Came(Recalled { to, messages: rest, ..Recalled::default() }));
        }
        self.subscribers[id].position = position;
        if self.subscribers[id].part {
            self.scratch.messages = taken;
            self.hand_part(id, from, gap, more);
            return true;
        }
        let position = self.at(position);
        let run = Run { messages: &taken, position, beside: Beside::default(), gap: gap.as_ref(), more };
        let bytes = super::encode(encoder, form, &run, &mut self.scratch.bytes, &mut self.encodings);
        self.scratch.messages = taken;
        self.hand(id, bytes, out);
        true
    }

    /// The messages that count for a subscriber, and up to where a channel of its was forgotten.
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

    /// How many messages the rings keep for a subscriber behind an offset.
    fn kept_behind(&self, id: u32, offset: u64) -> usize {
        let kept = |(at, floor)| {
            let channel = &self.channels[at];
            channel.kept() - channel.index_after(offset.max(channel.floor(floor)))
        };
        self.channels_of(id).map(kept).sum()
    }
}

/// The first tombstone among messages: its place, and up to where it says that its channel is forgotten.
fn tombstone(messages: &[Arc<Message>]) -> Option<(usize, u64)> {
    messages.iter().enumerate().find_map(|(at, message)| Some((at, message.forgets_to()?)))
}
