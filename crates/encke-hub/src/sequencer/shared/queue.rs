//! The publish queue: messages acknowledged to publishers that are not in the stream yet. Messages are queued while the stream
//! is unreachable, and in channels with [`Ack::Local`](crate::Ack::Local).
//!
//! ```text
//!  push ─► queue of its channel ─► one at a time in flight ─┬─► placed: the next one
//!                  │                                        ├─► no response, unreachable: again, with the same number
//!                  └─► older than the limit: dropped        └─► rejected for good: dropped
//! ```
//! **A channel sends one message at a time**, each after the previous one has its offset. Several in flight would be faster,
//! but out of order whenever one fails and the next does not. Channels do not wait for each other.
//!
//! **Publishes in flight before an outage** go first: the queue of their channel waits for their results.
//!
//! **Every dropped message is counted.**

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{ClusterCommand, PublishError, PublishTicket};
use crate::message::Draft;
use crate::name::Name;

/// Channels with a message in flight: the number that shares one round trip.
const FLYING_MAX: usize = 1_024;

/// Time for which a channel backs off after the stream did not take its message, in ns: 250 ms, the pause between retries of
/// the engine.
const REST_NS: u64 = 250 * 1_000_000;

/// Bytes of an entry without its heap data: the entry, and its keys in the tables.
const ENTRY_BYTES: usize = size_of::<QueuedMessage>() + 3 * size_of::<PublishTicket>();

/// The limits of the publish queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    /// Bytes of memory of all queued messages. With 0 nothing is queued, and publishes during an outage are rejected.
    pub bytes: u64,
    /// Time for which a message may be queued, in ms; then it is dropped.
    pub age_ms: u64,
}

/// The state of the publish queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of queued messages.
    pub messages: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// Number of messages dropped since the start.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct PublishQueue {
    limits: Queueing,
    now_ns: u64,
    /// In order of arrival.
    entries: BTreeMap<PublishTicket, QueuedMessage>,
    lines: HashMap<Name, ChannelQueue>,
    /// Channels that may have a message to send. Some may have none by now, or one in flight already.
    ready: VecDeque<Name>,
    /// Channels that back off, each with its end time.
    resting: VecDeque<(u64, Name)>,
    flying: usize,
    /// Number of publishes, by channel, that were in flight when the stream became unreachable.
    before: HashMap<Name, usize>,
    bytes: u64,
    dropped: u64,
}

#[derive(Debug)]
struct QueuedMessage {
    draft: Draft,
    due_ns: u64,
}

/// The queue of a channel, oldest first.
#[derive(Debug, Default)]
struct ChannelQueue {
    tickets: VecDeque<PublishTicket>,
    /// The first message is in flight.
    in_flight: bool,
}

impl QueuedMessage {
    fn charge(draft: &Draft) -> u64 {
        let Draft { channel, data, content_type, event, flags: _, key } = draft;
        let labels = [content_type, event].into_iter().flatten().map(|label| label.len()).sum::<usize>();
        let key = key.as_ref().map_or(0, |key| key.key.len());
        (ENTRY_BYTES + channel.as_str().len() + data.len() + labels + key) as u64
    }
}

impl PublishQueue {
    pub(super) fn limit(&mut self, limits: Queueing) {
        self.limits = limits;
    }

    pub(super) fn is_on(&self) -> bool {
        self.limits.bytes > 0
    }

    /// Returns whether a channel has queued messages, which new ones must follow.
    pub(super) fn has_line(&self, channel: &Name) -> bool {
        self.lines.contains_key(channel)
    }

    pub(super) fn backlog(&self) -> Backlog {
        Backlog { messages: self.entries.len(), bytes: self.bytes, dropped: self.dropped }
    }

    /// Queues a draft. Returns whether there was room for it.
    pub(super) fn push(&mut self, now_ns: u64, ticket: PublishTicket, draft: Draft) -> bool {
        let charge = QueuedMessage::charge(&draft);
        if self.bytes + charge > self.limits.bytes {
            return false;
        }
        self.bytes += charge;
        let line = self.lines.entry(draft.channel.clone()).or_default();
        if line.tickets.is_empty() {
            self.ready.push_back(draft.channel.clone());
        }
        line.tickets.push_back(ticket);
        let due_ns = now_ns.saturating_add(self.limits.age_ms.saturating_mul(1_000_000));
        self.entries.insert(ticket, QueuedMessage { draft, due_ns });
        true
    }

    /// Records an outage of the stream. `channels` has one item for each publish in flight.
    pub(super) fn waits_for<'a>(&mut self, channels: impl Iterator<Item = &'a Name>) {
        if !self.is_on() {
            return;
        }
        self.before.clear();
        for channel in channels {
            *self.before.entry(channel.clone()).or_default() += 1;
        }
    }

    /// Records the result of a publish that was not queued.
    pub(super) fn is_answered(&mut self, channel: &Name) {
        let Some(count) = self.before.get_mut(channel) else { return };
        *count -= 1;
        if *count == 0 {
            self.before.remove(channel);
            self.ready.push_back(channel.clone());
        }
    }

    /// Sends the messages that may be sent now.
    pub(super) fn send(&mut self, errands: &mut Vec<ClusterCommand>) {
        while self.flying < FLYING_MAX
            && let Some(channel) = self.ready.pop_front()
        {
            if self.before.contains_key(&channel) {
                continue;
            }
            let Some(line) = self.lines.get_mut(&channel).filter(|line| !line.in_flight) else { continue };
            let Some((ticket, entry)) =
                line.tickets.front().and_then(|ticket| self.entries.get_key_value(ticket))
            else {
                continue;
            };
            line.in_flight = true;
            self.flying += 1;
            errands.push(ClusterCommand::Publish {
                ticket: *ticket,
                draft: entry.draft.clone(),
                number: Some(ticket.0),
            });
        }
    }

    /// Records the result of a publish. Returns whether it was a queued one.
    pub(super) fn lands(&mut self, ticket: PublishTicket, refusal: Option<PublishError>) -> bool {
        let Some(channel) = self.entries.get(&ticket).map(|entry| entry.draft.channel.clone()) else {
            return false;
        };
        let Some(line) = self.lines.get_mut(&channel).filter(|line| line.in_flight) else { return false };
        if line.tickets.front() != Some(&ticket) {
            return false;
        }
        line.in_flight = false;
        self.flying -= 1;
        match refusal {
            None => self.remove(ticket),
            // The stream may take it later.
            Some(
                PublishError::Away | PublishError::Unanswered | PublishError::Crowded | PublishError::NoSpace,
            ) => {
                self.resting.push_back((self.now_ns.saturating_add(REST_NS), channel));
                return true;
            }
            Some(_) => {
                self.dropped += 1;
                self.remove(ticket);
            }
        }
        if self.lines.contains_key(&channel) {
            self.ready.push_back(channel);
        }
        true
    }

    /// Drops expired messages, except those in flight. Returns when the queue needs another call.
    pub(super) fn expire(&mut self, now_ns: u64) -> Option<u64> {
        self.now_ns = now_ns;
        while self.resting.front().is_some_and(|(until_ns, _)| *until_ns <= now_ns) {
            self.ready.extend(self.resting.pop_front().map(|(_, channel)| channel));
        }
        let mut old = Vec::new();
        let mut next = None;
        for (ticket, entry) in &self.entries {
            if entry.due_ns > now_ns {
                next = Some(entry.due_ns);
                break;
            }
            let line = self.lines.get(&entry.draft.channel);
            if !line.is_some_and(|line| line.in_flight && line.tickets.front() == Some(ticket)) {
                old.push(*ticket);
            }
        }
        self.dropped += old.len() as u64;
        old.into_iter().for_each(|ticket| self.remove(ticket));
        next.into_iter().chain(self.resting.front().map(|(until_ns, _)| *until_ns)).min()
    }

    /// Removes a message, one of the first two of its channel.
    fn remove(&mut self, ticket: PublishTicket) {
        let Some(QueuedMessage { draft, .. }) = self.entries.remove(&ticket) else { return };
        self.bytes -= QueuedMessage::charge(&draft);
        let Some(line) = self.lines.get_mut(&draft.channel) else { return };
        // An expired message is first, or follows the one in flight.
        if let Some(at) = line.tickets.iter().position(|one| *one == ticket) {
            line.tickets.remove(at);
        }
        if line.tickets.is_empty() {
            self.lines.remove(&draft.channel);
        }
    }
}
