//! What was promised to publishers and is not in the stream yet: while that cannot be reached, and for channels whose
//! publishers do not wait (`Ack::Local`).
//!
//! ```text
//!  push ─► line of its channel ─► one at a time on its way ─┬─► placed: the next one
//!                  │                                        ├─► no answer, no way: again, under the same name
//!                  └─► older than the limit: dropped        └─► refused for good: dropped
//! ```
//! **A channel's messages go one after the other**, each when the one before has its place. More at a time would be
//! faster, and out of order whenever one of them fails and the next does not. Channels do not wait for each other.
//!
//! **What was on its way before** goes first: a line whose channel has publishes of before the outage waits until it is
//! known what became of them.
//!
//! **Nothing is lost in silence**: what is dropped is counted.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Errand, Refusal, Ticket};
use crate::message::Draft;
use crate::name::Name;

/// Lines that have a message on its way: as many as share one round trip.
const FLYING_MAX: usize = 1_024;

/// How long a line rests when the stream did not take its message. In ns: 250 ms, as long as the engine
/// pauses between its own tries.
const REST_NS: u64 = 250 * 1_000_000;

/// What an entry takes beside what it owns: itself, and its places in the tables.
const ENTRY_BYTES: usize = size_of::<Entry>() + 3 * size_of::<Ticket>();

/// How much may wait for the stream, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    /// Bytes of memory of all that waits; 0: nothing does, and publishers are told that the stream is away.
    pub bytes: u64,
    /// How long a message may wait, in ms; then it is dropped.
    pub age_ms: u64,
}

/// What waits for the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Messages.
    pub messages: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// Messages that were dropped since the beginning.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    limits: Queueing,
    now_ns: u64,
    /// In the order in which they came.
    entries: BTreeMap<Ticket, Entry>,
    lines: HashMap<Name, Line>,
    /// Lines that may have something to send; some may be gone by now, or on their way already.
    ready: VecDeque<Name>,
    /// Lines that rest, and until when.
    resting: VecDeque<(u64, Name)>,
    flying: usize,
    /// Publishes that were on their way when the stream was lost, by channel.
    before: HashMap<Name, usize>,
    bytes: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Entry {
    draft: Draft,
    due_ns: u64,
}

/// What waits of a channel, oldest first.
#[derive(Debug, Default)]
struct Line {
    tickets: VecDeque<Ticket>,
    /// The first of them is on its way.
    flies: bool,
}

impl Entry {
    fn charge(draft: &Draft) -> u64 {
        let Draft { channel, data, content_type, event, flags: _, key } = draft;
        let labels = [content_type, event].into_iter().flatten().map(|label| label.len()).sum::<usize>();
        let key = key.as_ref().map_or(0, |key| key.key.len());
        (ENTRY_BYTES + channel.as_str().len() + data.len() + labels + key) as u64
    }
}

impl Queue {
    pub(super) fn limit(&mut self, limits: Queueing) {
        self.limits = limits;
    }

    pub(super) fn is_on(&self) -> bool {
        self.limits.bytes > 0
    }

    /// Whether something of a channel waits: what comes now has to stand behind it.
    pub(super) fn has_line(&self, channel: &Name) -> bool {
        self.lines.contains_key(channel)
    }

    pub(super) fn backlog(&self) -> Backlog {
        Backlog { messages: self.entries.len(), bytes: self.bytes, dropped: self.dropped }
    }

    /// Takes a draft; says whether there was room for it.
    pub(super) fn push(&mut self, now_ns: u64, ticket: Ticket, draft: Draft) -> bool {
        let charge = Entry::charge(&draft);
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
        self.entries.insert(ticket, Entry { draft, due_ns });
        true
    }

    /// The stream is lost, while these channels have publishes on their way: one for each.
    pub(super) fn waits_for<'a>(&mut self, channels: impl Iterator<Item = &'a Name>) {
        if !self.is_on() {
            return;
        }
        self.before.clear();
        for channel in channels {
            *self.before.entry(channel.clone()).or_default() += 1;
        }
    }

    /// It is known what became of a publish that did not wait here.
    pub(super) fn is_answered(&mut self, channel: &Name) {
        let Some(count) = self.before.get_mut(channel) else { return };
        *count -= 1;
        if *count == 0 {
            self.before.remove(channel);
            self.ready.push_back(channel.clone());
        }
    }

    /// Sends what may be sent now.
    pub(super) fn send(&mut self, errands: &mut Vec<Errand>) {
        while self.flying < FLYING_MAX
            && let Some(channel) = self.ready.pop_front()
        {
            if self.before.contains_key(&channel) {
                continue;
            }
            let Some(line) = self.lines.get_mut(&channel).filter(|line| !line.flies) else { continue };
            let Some((ticket, entry)) =
                line.tickets.front().and_then(|ticket| self.entries.get_key_value(ticket))
            else {
                continue;
            };
            line.flies = true;
            self.flying += 1;
            errands.push(Errand::Publish {
                ticket: *ticket,
                draft: entry.draft.clone(),
                number: Some(ticket.0),
            });
        }
    }

    /// It is known what became of a message; says whether it was one of these.
    pub(super) fn lands(&mut self, ticket: Ticket, refusal: Option<Refusal>) -> bool {
        let Some(channel) = self.entries.get(&ticket).map(|entry| entry.draft.channel.clone()) else {
            return false;
        };
        let Some(line) = self.lines.get_mut(&channel).filter(|line| line.flies) else { return false };
        if line.tickets.front() != Some(&ticket) {
            return false;
        }
        line.flies = false;
        self.flying -= 1;
        match refusal {
            None => self.remove(ticket),
            // It may be taken later.
            Some(Refusal::Away | Refusal::Unanswered | Refusal::Crowded | Refusal::NoSpace) => {
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

    /// Drops what is too old, but for what is on its way, and says when something will be due next.
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
            if !line.is_some_and(|line| line.flies && line.tickets.front() == Some(ticket)) {
                old.push(*ticket);
            }
        }
        self.dropped += old.len() as u64;
        old.into_iter().for_each(|ticket| self.remove(ticket));
        next.into_iter().chain(self.resting.front().map(|(until_ns, _)| *until_ns)).min()
    }

    /// One of the first two of its line.
    fn remove(&mut self, ticket: Ticket) {
        let Some(Entry { draft, .. }) = self.entries.remove(&ticket) else { return };
        self.bytes -= Entry::charge(&draft);
        let Some(line) = self.lines.get_mut(&draft.channel) else { return };
        // What is old is at the front, or right behind what is on its way.
        if let Some(at) = line.tickets.iter().position(|one| *one == ticket) {
            line.tickets.remove(at);
        }
        if line.tickets.is_empty() {
            self.lines.remove(&draft.channel);
        }
    }
}
