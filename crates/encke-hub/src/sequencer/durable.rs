//! The store's side of the sequencer: publishes that wait for a commit, and changes that the store does not have yet.
//!
//! ```text
//!  publish ─► waiting ── take_commit ─► Commit, one in flight ── committed ─┬─► ring, workers, response
//!                        assigns offsets                                    └─► rejected, offsets void
//! ```
//! **Only publishers to durable channels wait for the disk.** The messages of a commit get offsets [`AHEAD`] of the newest one.
//! Messages published elsewhere while the disk works come before them in the stream, and are delivered immediately. Offsets
//! need not be contiguous.
//!
//! **No offset is assigned twice.** Every commit raises the ceiling for offsets until the next commit. After a crash the stream
//! continues at the ceiling, and messages that were only in memory count as lost.
//!
//! **Every message of a durable channel is stored**, except joins and leaves. A message with early acknowledgement is delivered
//! immediately and is part of the next commit. While commits fail it waits, for as long as its ring keeps it. The store knows
//! before the first early acknowledgement that a crash may lose messages, and learns when this is over.
//!
//! **A delete frees space, so it never shares a commit with messages.** It keeps its place among the waiting publishes, and its
//! commit only removes. The store accepts such a commit even on a full disk ([`Commit::only_removes`]). Rings drop the messages
//! once the commit is stored. If the disk is full, nothing has changed. After any other error the store may have removed them.
//! So every further commit repeats the delete until one is stored, and then the rings follow.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{PublishError, PublishTicket, Published, Publishing, Sequencer};
use crate::HubNow;
use crate::keys::Repeat;
use crate::limits::CEILING;
use crate::message::{Draft, Flags, IdempotencyKey, Message};
use crate::name::Name;
use crate::position::Epoch;
use crate::rules::Rules;

/// The distance of a commit's offsets from the newest one. 16 million: enough for the rest of the stream while a commit hangs
/// for ten seconds or more. 2^64 offsets last for 34 years of 1,000 commits per second.
const AHEAD: u64 = 1 << 24;

/// Time for which losses wait for a commit to join, in ns: 1 s. In a channel with publishes they are not worth a commit of
/// their own, and nothing waits for them.
const LOSSES_NS: u64 = 1_000_000_000;

/// Time after the last early acknowledgement for which a crash may still begin a new epoch, in ns: 1 s.
const EARLY_NS: u64 = 1_000_000_000;

/// Time after a failed commit until the next one, if no publisher waits, in ns: 1 s.
const RETRY_NS: u64 = 1_000_000_000;

/// An atomic change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// Offsets up to this one may have been assigned before a crash.
    pub ceiling: u64,
    /// Messages are acknowledged before they are stored: a crash ends the epoch.
    pub early: bool,
    /// The set of durable channels. If it changes, more messages may be lost.
    pub durability: Box<str>,
    /// The offset up to which messages of durable channels that are no longer stored are lost.
    pub forgotten_to: u64,
    /// Messages of an earlier commit with an unknown outcome, to be removed.
    pub void: Vec<(Name, u64)>,
    /// Channels that have lost their messages up to an offset.
    pub lost: Vec<(Name, u64)>,
    /// Channels whose messages this commit deletes up to an offset, on request.
    pub deleted: Vec<(Name, u64)>,
    /// Channels to be removed entirely, because they no longer exist or are no longer durable.
    pub forgotten: Vec<Name>,
    /// Messages to add, in offset order within each channel.
    pub messages: Vec<Stored>,
}

impl Commit {
    /// Returns whether the commit adds no message, so that the store does not grow.
    pub fn only_removes(&self) -> bool {
        self.messages.is_empty()
    }
}

/// A message as stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The message.
    pub message: Arc<Message>,
    /// The idempotency key of its publish.
    pub key: Option<IdempotencyKey>,
}

impl PartialEq for Stored {
    /// An offset identifies a message.
    fn eq(&self, other: &Self) -> bool {
        self.message.offset == other.message.offset && self.key == other.key
    }
}

impl Eq for Stored {}

/// The state of a sequencer with a store.
#[derive(Debug)]
pub(super) struct Durable {
    /// Offsets up to this one may be assigned.
    ceiling: u64,
    /// The last offset assigned by any commit.
    reserved_to: u64,
    /// The highest `lost_to` of durable channels that no longer exist.
    pub(super) forgotten_to: u64,
    /// The store knows that messages may be acknowledged early.
    early: bool,
    /// A channel with early acknowledgement was published to since the last commit.
    wants_early: bool,
    /// The set of durable channels, as the store knows it.
    durability: Box<str>,
    /// The store does not know the current rules: they differ from `durability`.
    unknown: bool,
    waiting: VecDeque<(PublishTicket, PendingWrite)>,
    tickets: u64,
    /// Delivered messages that are not stored yet.
    behind: Vec<Stored>,
    void: Vec<(Name, u64)>,
    lost: HashMap<Name, u64>,
    forgotten: HashSet<Name>,
    /// When losses get a commit of their own.
    losses_ns: u64,
    /// When the store may learn that early acknowledgement is over.
    early_ns: u64,
    /// When a failed commit is retried without a waiting publisher.
    retry_ns: u64,
    /// The last commit of messages found the disk full. Before the next one the store removes messages that rings have evicted.
    full: bool,
    /// Rings have evicted messages that the store still has.
    evicted: bool,
    /// Channels deleted up to an offset by commits with an unknown outcome.
    unsure: Vec<(Name, u64)>,
    flight: Option<CommitFlight>,
}

#[derive(Debug)]
enum PendingWrite {
    Publish(Draft),
    Delete(Name),
}

/// A commit in flight.
#[derive(Debug)]
struct CommitFlight {
    commit: Arc<Commit>,
    /// Number of its messages that were delivered already; they come first.
    delivered: usize,
    /// The first offset of the other messages.
    base: u64,
    /// The commit removes messages that rings have evicted.
    evicted: bool,
    answers: Vec<(PublishTicket, CommitReply)>,
}

#[derive(Debug)]
enum CommitReply {
    Published { offset: u64, repeated: bool, channel: Name },
    Refused(PublishError),
    Deleted,
}

impl Durable {
    pub(super) fn new(ceiling: u64, forgotten_to: u64, durability: Box<str>) -> Self {
        Self {
            ceiling,
            reserved_to: 0,
            forgotten_to,
            early: false,
            wants_early: false,
            durability,
            unknown: true,
            waiting: VecDeque::new(),
            tickets: 0,
            behind: Vec::new(),
            void: Vec::new(),
            lost: HashMap::new(),
            forgotten: HashSet::new(),
            losses_ns: 0,
            early_ns: 0,
            retry_ns: 0,
            full: false,
            evicted: false,
            unsure: Vec::new(),
            flight: None,
        }
    }

    /// Returns whether a message may be acknowledged early. If the store does not know of this yet, a later commit tells it.
    pub(super) fn may_be_early(&mut self) -> bool {
        self.wants_early = true;
        self.early && self.flight.as_ref().is_none_or(|flight| flight.commit.early)
    }

    /// Returns the highest offset that may be assigned now. Offsets of a commit in flight come later.
    pub(super) fn most(&self) -> u64 {
        self.flight.as_ref().map_or(self.ceiling, |flight| self.ceiling.min(flight.base - 1))
    }

    /// Returns the last offset assigned by any commit.
    pub(super) const fn reserved_to(&self) -> u64 {
        self.reserved_to
    }

    fn wait(&mut self, waiting: PendingWrite) -> PublishTicket {
        self.tickets += 1;
        self.waiting.push_back((PublishTicket(self.tickets), waiting));
        PublishTicket(self.tickets)
    }

    /// Adds a delivered message to the next commit.
    pub(super) fn add_to_commit(&mut self, message: Arc<Message>, key: Option<IdempotencyKey>) {
        self.behind.push(Stored { message, key });
    }

    /// Records that a channel has lost messages.
    pub(super) fn lose(&mut self, channel: &Name, to: u64) {
        self.forgotten.remove(channel);
        match self.lost.get_mut(channel) {
            Some(known) => *known = to.max(*known),
            None => drop(self.lost.insert(channel.clone(), to)),
        }
    }

    /// Records that a ring has evicted a message.
    pub(super) fn evict(&mut self, channel: &Name, offset: u64) {
        self.evicted = true;
        self.lose(channel, offset);
    }

    /// Records that the store has removed the messages of a channel up to an offset.
    fn knows_lost(&mut self, channel: &Name, to: u64) {
        if self.lost.get(channel).is_some_and(|lost| *lost <= to) {
            self.lost.remove(channel);
        }
    }

    /// Decides whether the next commit only removes. After a full disk, a single such commit precedes the next try of messages.
    /// If it fails as well, publishers still get their results from that try.
    fn removes_next(&mut self) -> bool {
        let full = std::mem::take(&mut self.full);
        let deletes = matches!(self.waiting.front(), Some((_, PendingWrite::Delete(_))));
        deletes || full && self.evicted && !self.waiting.is_empty()
    }

    /// Returns the next waiting publish or delete, if it belongs in this kind of commit.
    fn next_waiting(&mut self, removes: bool) -> Option<(PublishTicket, PendingWrite)> {
        let deletes = matches!(self.waiting.front()?.1, PendingWrite::Delete(_));
        if deletes == removes { self.waiting.pop_front() } else { None }
    }

    /// Records that a channel no longer exists.
    pub(super) fn forget(&mut self, channel: &Name, lost_to: u64) {
        self.forgotten_to = self.forgotten_to.max(lost_to);
        self.forgotten.insert(channel.clone());
    }

    /// Updates whether the store knows the current rules.
    fn compare(&mut self, rules: &Rules) {
        self.unknown = rules.durability() != self.durability;
    }

    /// Returns when a commit is due; `None` if one is in flight or nothing has changed.
    fn due_ns(&self, newest: u64) -> Option<u64> {
        if self.flight.is_some() {
            return None;
        }
        if !self.waiting.is_empty() {
            return Some(0);
        }
        let low = self.ceiling < newest.saturating_add(CEILING / 2);
        let owes = !self.behind.is_empty()
            || !self.void.is_empty()
            || !self.unsure.is_empty()
            || self.unknown
            || low;
        let lost = !self.lost.is_empty() || !self.forgotten.is_empty();
        if owes {
            return Some(self.retry_ns);
        }
        let losses_ns = lost.then_some(self.losses_ns);
        let early_ns = self.early.then_some(self.early_ns);
        losses_ns.into_iter().chain(early_ns).min().map(|at| at.max(self.retry_ns))
    }
}

impl Sequencer {
    /// Returns the next commit, if there is one to make and none is in flight. [`Sequencer::committed`] takes its outcome.
    pub fn take_commit(&mut self, now: HubNow) -> Option<Arc<Commit>> {
        if self.commit_due_ns()? > now.mono_ns {
            return None;
        }
        self.keys.expire(now.mono_ns, self.key_window_ns());
        let durable = self.durable.as_mut()?;
        let removes = durable.removes_next();
        // A commit that only removes stores none of the messages that were acknowledged early.
        let early = if removes { durable.early } else { std::mem::take(&mut durable.wants_early) };
        let channels = (&self.names, &self.channels);
        let mut deleted = std::mem::take(&mut durable.unsure);
        let mut messages = Vec::new();
        if !removes {
            // A message that its ring has evicted since is no longer stored.
            messages = std::mem::take(&mut durable.behind);
            messages.retain(|stored: &Stored| {
                let Message { channel, offset, .. } = &*stored.message;
                let at = channels.0.get(channel);
                at.is_some_and(|at| *offset > channels.1[*at].lost_to)
                    && !deleted.iter().any(|(name, to)| name == channel && offset <= to)
            });
        }
        let delivered = messages.len();

        let base = durable.reserved_to.max(self.newest.saturating_add(AHEAD)) + 1;
        let mut offset = base;
        let mut answers = Vec::new();
        let mut lost = std::mem::take(&mut durable.lost);
        while let Some((ticket, waiting)) = durable.next_waiting(removes) {
            let draft = match waiting {
                PendingWrite::Publish(draft) => draft,
                PendingWrite::Delete(name) => {
                    let last = channels.0.get(&name).and_then(|at| channels.1[*at].ring.back());
                    deleted.extend(last.map(|message| (name, message.offset)));
                    answers.push((ticket, CommitReply::Deleted));
                    continue;
                }
            };
            let channel = draft.channel.clone();
            let answer = match self.keys.look(&draft) {
                Repeat::Other => CommitReply::Refused(PublishError::KeyMismatch),
                Repeat::Of(offset) => CommitReply::Published { offset, repeated: true, channel },
                Repeat::No => {
                    // The first message of a channel brings its `lost_to` to the store, even if the channel was removed while
                    // the publish waited.
                    let kept = channels.0.get(&channel).map(|at| &channels.1[*at]);
                    if kept.is_none_or(|kept| kept.ring.messages() == 0) {
                        let to = kept.map_or(durable.forgotten_to, |kept| kept.lost_to);
                        let known = lost.entry(channel.clone()).or_default();
                        *known = to.max(*known);
                        durable.forgotten.remove(&channel);
                    }
                    self.keys.remember(now.mono_ns, &draft, offset);
                    let key = draft.key.clone();
                    messages.push(Stored { message: Arc::new(draft.place(offset, now.unix_ms)), key });
                    offset += 1;
                    CommitReply::Published { offset: offset - 1, repeated: false, channel }
                }
            };
            answers.push((ticket, answer));
        }
        durable.reserved_to = offset - 1;
        durable.losses_ns = now.mono_ns.saturating_add(LOSSES_NS);
        durable.early_ns = now.mono_ns.saturating_add(EARLY_NS);
        let commit = Arc::new(Commit {
            epoch: self.epoch,
            ceiling: offset + CEILING,
            early,
            durability: self.rules.durability(),
            forgotten_to: durable.forgotten_to,
            void: std::mem::take(&mut durable.void),
            lost: lost.into_iter().collect(),
            deleted,
            forgotten: durable.forgotten.drain().collect(),
            messages,
        });
        let evicted = std::mem::take(&mut durable.evicted);
        durable.flight =
            Some(CommitFlight { commit: Arc::clone(&commit), delivered, base, evicted, answers });
        Some(commit)
    }

    /// Applies the outcome of the last commit. Returns the results of the publishes and deletes that waited for it.
    pub fn committed(
        &mut self,
        now: HubNow,
        outcome: Result<(), PublishError>,
    ) -> Vec<(PublishTicket, Result<Published, PublishError>)> {
        let Some(durable) = &mut self.durable else { return Vec::new() };
        let Some(CommitFlight { commit, delivered, evicted, answers, .. }) = durable.flight.take() else {
            return Vec::new();
        };
        let (behind, new) = commit.messages.split_at(delivered);
        match outcome {
            Ok(()) => {
                durable.ceiling = commit.ceiling;
                durable.early = commit.early;
                durable.durability.clone_from(&commit.durability);
                durable.compare(&self.rules);
                for (name, to) in &commit.deleted {
                    self.drop_to(name, *to);
                }
                for stored in new {
                    let at = self.found_or_made(&stored.message.channel);
                    self.append(at, Arc::clone(&stored.message));
                }
            }
            Err(refusal) => {
                durable.full = refusal == PublishError::NoSpace && !commit.only_removes();
                durable.evicted |= evicted;
                if refusal != PublishError::NoSpace {
                    durable.unsure.extend(commit.deleted.iter().cloned());
                }
                // Early acknowledgement may be the reason for some messages in `behind`.
                durable.wants_early |= commit.early;
                // The commit may have reached the disk nevertheless. Then the store no longer expects early acknowledgements.
                durable.early &= commit.early;
                durable.retry_ns = now.mono_ns.saturating_add(RETRY_NS);
                durable.behind.splice(0..0, behind.iter().cloned());
                durable.void.extend(commit.void.iter().cloned());
                // The messages may have reached the disk nevertheless.
                let void = new.iter().map(|stored| (stored.message.channel.clone(), stored.message.offset));
                durable.void.extend(void);
                let again = |name: &&Name| !durable.lost.contains_key(*name);
                let forgotten: Vec<Name> = commit.forgotten.iter().filter(again).cloned().collect();
                for (channel, to) in &commit.lost {
                    durable.lose(channel, *to);
                }
                durable.forgotten.extend(forgotten);
                for Stored { message, key } in new {
                    if let Some(key) = key {
                        self.keys.forget(&message.channel, key);
                    }
                    if let Some(&at) = self.names.get(&message.channel) {
                        self.forget_if_unused(at);
                    }
                }
            }
        }
        let answer = |(ticket, answer)| {
            let result = match (answer, outcome) {
                (CommitReply::Refused(refusal), _) | (_, Err(refusal)) => Err(refusal),
                (CommitReply::Published { offset, repeated, channel }, Ok(())) => {
                    let subscribers = self.find(&channel).map_or(0, |channel| channel.subscribers);
                    Ok(Published {
                        position: self.at(offset),
                        subscribers,
                        repeated,
                        early: false,
                        wanted: true,
                    })
                }
                (CommitReply::Deleted, Ok(())) => Ok(self.deleted()),
            };
            (ticket, result)
        };
        answers.into_iter().map(answer).collect()
    }

    /// Returns when the next commit is due, on the monotonic clock in ns; `None` without changes, or with a commit in flight.
    pub fn commit_due_ns(&self) -> Option<u64> {
        self.durable.as_ref()?.due_ns(self.newest)
    }

    /// Returns whether a commit is in flight.
    pub fn is_committing(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.flight.is_some())
    }

    /// Queues a publish for the next commit.
    pub(super) fn stage(&mut self, draft: Draft) -> Publishing {
        // The channel counts against the limit from now on.
        self.found_or_made(&draft.channel);
        let durable = self.durable.as_mut().expect("only a sequencer with a store stages");
        Publishing::Waits(durable.wait(PendingWrite::Publish(draft)))
    }

    /// Queues a delete for the next commit.
    pub(super) fn stage_delete(&mut self, name: &Name) -> Option<PublishTicket> {
        let durable = self.durable.as_mut()?;
        Some(durable.wait(PendingWrite::Delete(name.clone())))
    }

    /// Drops the messages of a channel up to an offset, after the store has removed them.
    fn drop_to(&mut self, name: &Name, to: u64) {
        let Some(&at) = self.names.get(name) else { return };
        while self.channels[at].ring.front().is_some_and(|message| message.offset <= to) {
            self.drop_oldest(at);
        }
        if let Some(durable) = &mut self.durable {
            durable.knows_lost(name, to);
        }
        self.mark_lost(at);
        self.forget_if_unused(at);
    }

    /// Applies a change of the set of durable channels. The messages of a changed channel are stored or removed. For channels
    /// that do not exist, only the highest loss of all is known.
    pub(super) fn apply_durability(&mut self, before: &[(Name, bool)]) {
        let Some(durable) = &mut self.durable else { return };
        durable.compare(&self.rules);
        if durable.durability == self.rules.durability() {
            return;
        }
        durable.forgotten_to = durable.forgotten_to.max(self.forgotten_to);
        self.forgotten_to = durable.forgotten_to;
        for (name, was) in before {
            let Some(&at) = self.names.get(name) else { continue };
            let channel = &self.channels[at];
            match (was, channel.rules.durable) {
                (false, true) => {
                    let messages = channel.ring.iter().filter(|message| !message.is_event());
                    messages.for_each(|message| durable.add_to_commit(Arc::clone(message), None));
                    durable.lose(name, channel.lost_to);
                }
                (true, false) => {
                    durable.behind.retain(|stored| stored.message.channel != *name);
                    let last = channel.ring.back().map_or(channel.lost_to, |message| message.offset);
                    durable.lose(name, last);
                    durable.forgotten.insert(name.clone());
                }
                _ => {}
            }
        }
    }
}

impl Draft {
    /// Creates the message with its offset.
    pub(super) fn place(self, offset: u64, unix_ms: u64) -> Message {
        let Self { channel, data, content_type, event, flags, key: _ } = self;
        let text = !flags.contains(Flags::BINARY) && std::str::from_utf8(&data).is_ok();
        let flags = flags.without(Flags::CONTROL);
        Message { offset, channel, data, text, content_type, event, unix_ms, flags }
    }
}

#[cfg(test)]
mod tests;
