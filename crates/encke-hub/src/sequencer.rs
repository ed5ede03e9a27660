//! The sequencer assigns offsets, keeps channel histories within the memory limit, and tracks the offset up to which each
//! worker has been fed.
//!
//! ```text
//!  publish ─► offset ─► ring of the channel ─► each worker that wants it: one mark, at the offset of its next message
//!                         │                              │
//!                         ├ too many, too large          └─► take_feed: the marks in offset order
//!                         ├ too old (expire)
//!                         └ memory limit: the least recently used channel
//! ```
//! **No queue grows with messages.** For each worker and channel the sequencer keeps the last message fed, and one mark. A
//! worker that takes no feed for a while later receives the messages still in the rings, and a loss for the others.
//!
//! **A feed is in offset order** over all channels of the worker: a heap sorts the marks by the offset of the next message.
//! Rings advance in the meantime, so a mark may be early but never late. If the message of a mark is lost, the loss is fed at
//! that point. If a mark stands for a loss only and the next message has a higher offset, the mark moves there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::HubNow;
use crate::keys::{Keys, Repeat};
use crate::limits::{HEAD_NS, JOIN_BURST_S, JOIN_WAIT_NS, KEY_BYTES_MAX, LABEL_BYTES_MAX};
use crate::message::{Draft, Flags, IdempotencyKey, Message};
use crate::name::Name;
use crate::position::{Epoch, Position};
use crate::preamble::ChannelPreamble;
use crate::ring::Ring;
use crate::roster::{self, Roster};
use crate::rules::{Ack, ChannelRules, Rules};
use crate::slab::HubSlab;
use crate::subscriber::Member;
use crate::token_bucket::{TokenBucket, TokenBuckets};
use crate::values::{Feed, FeedRequest};

mod age;
mod durable;
mod figures;
mod flow;
mod listing;
mod preamble;
mod shared;

pub use durable::{Commit, Stored};
pub use figures::{ChannelFigures, MemberPresence};
pub use listing::{ChannelCursor, ChannelPage, ChannelRow, ChannelWalk};
pub use shared::{
    Announcement, AudienceChange, Backlog, ClusterCommand, ClusterEvent, NodeId, PublishAck, Queueing, Recall,
};

use age::AgeClock;
use durable::Durable;
use flow::ChannelFlow;
use shared::SharedStream;

/// The order of all messages, and the histories of all channels.
#[derive(Debug)]
pub struct Sequencer {
    epoch: Epoch,
    rules: Arc<Rules>,
    /// The last assigned offset.
    newest: u64,
    /// The highest `lost_to` of removed channels. A new channel starts with this, since its earlier losses are unknown.
    forgotten_to: u64,
    /// Bytes of all histories, and of preambles that their rings have dropped.
    memory: u64,
    /// Bytes of its limit that are lent to the local stream.
    lent: u64,
    names: HashMap<Name, u32>,
    channels: HubSlab<SequencedChannel>,
    /// Number of channels that are [`SequencedChannel::idle`].
    idle: usize,
    cores: Vec<WorkerFeed>,
    /// Channels with a history, in order of use.
    uses: Uses,
    /// The expiry time of each channel's oldest message, in ms since 1970, with the number of its timer.
    ages: BinaryHeap<Reverse<(u64, u32, u64)>>,
    timers: u64,
    age_clock: AgeClock,
    /// When to send the head to workers that received nothing else, on the monotonic clock.
    heads_ns: u64,
    keys: Keys,
    joins: Joins,
    /// The state of the store, if messages are stored.
    durable: Option<Durable>,
    /// The state of the shared stream, if its order is made elsewhere.
    shared: Option<SharedStream>,
}

#[derive(Debug)]
struct SequencedChannel {
    name: Name,
    rules: ChannelRules,
    ring: Ring,
    /// The preamble, and the newest break; only of a channel that had one.
    preamble: Option<Box<ChannelPreamble>>,
    /// Number of messages before the first one in the ring. Joins and leaves removed from between messages do not count.
    gone: u64,
    bytes: u64,
    /// The offset of the last lost message. A new channel starts with the `forgotten_to` of the sequencer or the store.
    lost_to: u64,
    /// The offset up to which a tombstone of the shared stream has deleted messages, as far as known here.
    forgotten_to: u64,
    feeds: Box<[ChannelFeed]>,
    /// Subscribers on all workers.
    subscribers: u32,
    roster: Roster,
    /// The neighbours in [`Uses`], if the channel has a history.
    newer: u32,
    older: u32,
    /// The number of the channel's entry in `ages`; 0 for none.
    timer: u64,
    /// The ticket of the history being read from the shared stream. The channel does not open before it is loaded.
    reading: Option<PublishTicket>,
    /// The channel has no message and no subscriber, and exists only because a worker still wants it.
    idle: bool,
    /// Counts for operators.
    flow: ChannelFlow,
}

/// The state of a channel's feed to one worker.
#[derive(Clone, Copy, Debug, Default)]
struct ChannelFeed {
    wanted: bool,
    opened: bool,
    /// The valid mark in the worker's heap; 0 for none.
    mark: u64,
    /// Number of messages of the channel that were fed or reported lost.
    fed_count: u64,
    /// The offset of the last loss fed.
    lost_to: u64,
    subscribers: u32,
}

#[derive(Debug, Default)]
struct WorkerFeed {
    /// Channels with something to feed: offset of the next message, channel, number of the mark.
    marks: BinaryHeap<Reverse<(u64, u32, u64)>>,
    marked: u64,
    /// Wanted channels that are not opened yet.
    opening: VecDeque<u32>,
    /// Results of requests: at most one per subscriber.
    recalled: VecDeque<Feed>,
    /// All wanted messages up to this offset were fed.
    fed_to: u64,
    /// Number of wanted channels.
    wants: u32,
    /// The worker is due to receive the head offset.
    head_due: bool,
}

impl WorkerFeed {
    /// Marks are never late: everything before the first of them was fed.
    fn fed_to(&self, newest: u64) -> u64 {
        self.marks.peek().map_or(newest, |Reverse((offset, ..))| offset - 1)
    }
}

/// The result of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The id of the message.
    pub position: Position,
    /// Number of subscribers of the channel, as counted by the workers.
    pub subscribers: u32,
    /// The message was published earlier under the same key.
    pub repeated: bool,
    /// The message is not stored yet: a crash may lose it.
    pub early: bool,
    /// On a node of a cluster: a worker here wants the channel, and will be fed the message. Otherwise always true.
    pub wanted: bool,
}

/// Identifies a pending result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublishTicket(u64);

/// The progress of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// Published.
    Done(Published),
    /// Pending until the message is stored, or has its offset in a shared stream. [`Sequencer::committed`] or
    /// [`Sequencer::on_event`] returns the result with the ticket.
    Waits(PublishTicket),
    /// Queued for the shared stream, and acknowledged without an offset. No other result follows.
    Queued {
        /// Number of subscribers of the channel, as counted by the workers.
        subscribers: u32,
    },
}

impl Publishing {
    /// Returns the result, if it is known.
    pub const fn done(self) -> Option<Published> {
        match self {
            Self::Done(published) => Some(published),
            Self::Waits(_) | Self::Queued { .. } => None,
        }
    }
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The channel does not exist.
    Absent,
    /// The messages are deleted.
    Done,
    /// The messages are deleted once the store has removed them: [`Sequencer::committed`] returns the result with the ticket.
    Waits(PublishTicket),
}

/// The reason why a publish is rejected. The publisher is at fault, except for [`PublishError::TooManyChannels`] and errors of the
/// store or the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// The payload is too large.
    TooLarge {
        /// The size of the payload in bytes.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// The channel is new, and the number of channels is at its limit.
    TooManyChannels {
        /// The limit.
        most: usize,
    },
    /// The channel belongs to a feature of the server, which alone publishes to it.
    ReservedChannel,
    /// A different message was published under this idempotency key.
    KeyMismatch,
    /// The idempotency key is longer than [`KEY_BYTES_MAX`].
    KeyTooLong,
    /// The event name begins with `encke.`, which is reserved to the server.
    ReservedEvent,
    /// The event name is empty, too long or has control characters.
    BadEvent,
    /// The media type is empty, too long or has control characters.
    BadType,
    /// The disk is full.
    NoSpace,
    /// The store failed.
    NotStored,
    /// The store has not responded for so long that no offsets are left.
    Stalled,
    /// The shared stream cannot be reached.
    Away,
    /// The shared stream has not responded in time. It may have the message.
    Unanswered,
    /// Too many messages are in flight to the shared stream, or queued for it.
    Crowded,
    /// The shared stream rejects the message. Its limits are not known here.
    NotTaken,
}

/// The state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The history is available here: on a node of a cluster only while the channel has local subscribers.
    pub kept: bool,
    /// Number of kept messages, without joins and leaves.
    pub messages: usize,
    /// Bytes of the kept messages.
    pub bytes: u64,
    /// The position of the oldest kept message, join or leave.
    pub first: Option<Position>,
    /// The position of the newest kept message, join or leave.
    pub last: Option<Position>,
    /// Number of subscribers, as counted by the workers.
    pub subscribers: u32,
    /// Number of members, if the channel has presence.
    pub members: usize,
}

/// All histories, to be saved and passed to [`Sequencer::restore`]. Members are not saved, nor are the idempotency keys of
/// channels that are not durable: these start empty after a restart.
#[derive(Clone, Debug)]
pub struct SavedHistories {
    /// The epoch of the stream, which continues.
    pub epoch: Epoch,
    /// The last assigned offset.
    pub newest: u64,
    /// The offset up to which messages of absent channels are lost.
    pub forgotten_to: u64,
    /// The offset up to which messages of absent durable channels are lost.
    pub durable_forgotten_to: u64,
    /// The set of durable channels ([`Commit::durability`]).
    pub durability: Box<str>,
    /// Channels with messages, least recently used first.
    pub channels: Vec<SavedChannel>,
}

/// A channel with its history.
#[derive(Clone, Debug)]
pub struct SavedChannel {
    /// The name of the channel.
    pub name: Name,
    /// Messages up to this offset are lost.
    pub lost_to: u64,
    /// The channel is durable, so its messages are stored already.
    pub durable: bool,
    /// The kept messages, oldest first. The first one may be a preamble from before the history, with an offset up to `lost_to`.
    pub messages: Vec<Stored>,
}

impl Sequencer {
    /// Creates a new stream for a number of workers.
    pub fn new(epoch: Epoch, rules: Arc<Rules>, cores: usize) -> Self {
        Self {
            epoch,
            rules,
            newest: 0,
            forgotten_to: 0,
            memory: 0,
            lent: 0,
            names: HashMap::new(),
            channels: HubSlab::new(),
            idle: 0,
            cores: (0..cores).map(|_| WorkerFeed::default()).collect(),
            uses: Uses::default(),
            age_clock: AgeClock::default(),
            ages: BinaryHeap::new(),
            timers: 0,
            heads_ns: 0,
            keys: Keys::default(),
            joins: Joins::default(),
            durable: None,
            shared: None,
        }
    }

    /// Creates a sequencer with a store, which continues a saved stream under possibly different rules. Offsets up to `ceiling`
    /// may be assigned before the next commit.
    pub fn restore(
        now: HubNow,
        saved: SavedHistories,
        ceiling: u64,
        rules: Arc<Rules>,
        cores: usize,
    ) -> Self {
        let mut sequencer = Self::new(saved.epoch, rules, cores);
        sequencer.newest = saved.newest;
        sequencer.forgotten_to = saved.forgotten_to;
        sequencer.durable = Some(Durable::new(ceiling, saved.durable_forgotten_to, saved.durability));
        let mut keys: Vec<Stored> = Vec::new();
        let mut durability = Vec::new();
        for SavedChannel { name, lost_to, durable, mut messages } in saved.channels {
            let at = sequencer.found_or_made(&name);
            let channel = &mut sequencer.channels[at];
            channel.lost_to = lost_to;
            sequencer.memory += channel.restore_preamble(&mut messages);
            channel.bytes = messages.iter().map(|stored| stored.message.charge()).sum();
            channel.ring = messages.iter().map(|stored| Arc::clone(&stored.message)).collect();
            channel.flow.restore(channel.ring.messages());
            sequencer.memory += channel.bytes;
            if !messages.is_empty() {
                sequencer.uses.begin(&mut sequencer.channels, at);
            }
            keys.extend(messages.into_iter().filter(|stored| stored.key.is_some()));
            durability.push((name, durable));
        }
        sequencer.apply_durability(&durability);
        for (name, _) in durability {
            let Some(&at) = sequencer.names.get(&name) else { continue };
            sequencer.trim(at);
            sequencer.arm(at);
            sequencer.forget_if_unused(at);
        }
        keys.sort_by_key(|stored| stored.message.offset);
        for Stored { message, key } in keys {
            let age_ns = now.unix_ms.saturating_sub(message.unix_ms).saturating_mul(1_000_000);
            if let Some(key) = key
                && age_ns < sequencer.key_window_ns()
            {
                let moment_ns = now.mono_ns.saturating_sub(age_ns);
                sequencer.keys.recall(moment_ns, &message, &key);
            }
        }
        sequencer.trim_memory(None);
        sequencer
    }

    /// Publishes a message. In a durable channel without early acknowledgement it waits for its commit, and in a shared stream
    /// for its offset.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use encke_hub::{Draft, Epoch, HubNow, Name, Rules, Sequencer};
    ///
    /// let mut sequencer = Sequencer::new(Epoch(1), Arc::new(Rules::default()), 1);
    /// let draft = Draft::new(Name::parse(b"news")?, *b"hello");
    /// let published = sequencer.publish(HubNow::default(), draft)?.done().expect("the channel is not durable");
    /// assert_eq!(published.position, sequencer.newest());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`PublishError`]; then nothing has changed.
    pub fn publish(&mut self, now: HubNow, draft: Draft) -> Result<Publishing, PublishError> {
        self.check(&draft)?;
        if self.shared.is_some() {
            return self.send_or_queue(now, draft);
        }
        let found = self.names.get(&draft.channel).copied();
        let rules = found.map_or_else(|| *self.rules.of(&draft.channel), |at| self.channels[at].rules);
        let most = self.rules.channels;
        let counts = found.is_some_and(|at| !self.channels[at].idle);
        let room = counts || self.channels.len() - self.idle < most;
        let mut early = false;
        if rules.durable
            && let Some(durable) = &mut self.durable
        {
            early = rules.ack == Ack::Memory && durable.may_be_early();
            if !early {
                return if room {
                    Ok(self.stage(draft))
                } else {
                    Err(PublishError::TooManyChannels { most })
                };
            }
        }
        self.keys.expire(now.mono_ns, self.key_window_ns());
        match self.keys.look(&draft) {
            Repeat::No => {}
            Repeat::Other => return Err(PublishError::KeyMismatch),
            Repeat::Of(offset) => {
                let subscribers = self.subscribers(&draft.channel);
                let position = self.at(offset);
                return Ok(Publishing::Done(Published {
                    position,
                    subscribers,
                    repeated: true,
                    early,
                    wanted: true,
                }));
            }
        }
        if !room {
            return Err(PublishError::TooManyChannels { most });
        }
        let offset = self.next_offset().ok_or(PublishError::Stalled)?;
        let at = self.found_or_made(&draft.channel);
        self.keys.remember(now.mono_ns, &draft, offset);
        let key = draft.key.clone();
        self.add_message(at, draft.place(offset, now.unix_ms), key);
        let subscribers = self.channels[at].subscribers;
        let position = self.at(offset);
        Ok(Publishing::Done(Published { position, subscribers, repeated: false, early, wanted: true }))
    }

    /// Returns the next free offset, if there is one.
    fn next_offset(&self) -> Option<u64> {
        if self.shared.is_some() {
            return None;
        }
        let next = self.newest + 1;
        let free = self.durable.as_ref().is_none_or(|durable| next <= durable.most());
        free.then_some(next)
    }

    /// Appends a message with its offset. A message of a durable channel is stored later.
    fn add_message(&mut self, at: u32, message: Message, key: Option<IdempotencyKey>) {
        let message = Arc::new(message);
        if self.channels[at].rules.durable
            && let Some(durable) = &mut self.durable
        {
            if self.channels[at].ring.messages() == 0 {
                durable.lose(&self.channels[at].name, self.channels[at].lost_to);
            }
            durable.add_to_commit(Arc::clone(&message), key);
        }
        self.append(at, message);
    }

    /// Deletes the messages of a channel. Offsets continue, and subscribers that have not received all of the messages get a
    /// gap. A durable channel keeps its messages until the store has removed them.
    pub fn delete(&mut self, name: &Name) -> Deletion {
        let Some(&at) = self.names.get(name) else { return Deletion::Absent };
        if self.channels[at].rules.durable
            && let Some(ticket) = self.stage_delete(name)
        {
            return Deletion::Waits(ticket);
        }
        while self.drop_oldest(at) {}
        self.mark_lost(at);
        self.forget_if_unused(at);
        Deletion::Done
    }

    /// Returns the result of a delete. A worker that was fed up to its position has dropped the messages.
    pub fn deleted(&self) -> Published {
        Published { position: self.newest(), subscribers: 0, repeated: false, early: false, wanted: true }
    }

    /// Returns the state of a channel; `None` if it does not exist, neither here nor on another node.
    pub fn info(&self, name: &Name) -> Option<Info> {
        let subscribers = self.subscribers(name);
        let Some(channel) = self.find(name) else {
            let members = self.members(name).len();
            let elsewhere =
                Info { kept: false, messages: 0, bytes: 0, first: None, last: None, subscribers, members };
            return (subscribers > 0).then_some(elsewhere);
        };
        Some(Info {
            kept: channel.reading.is_none(),
            messages: channel.ring.messages(),
            bytes: channel.bytes - channel.ring.event_bytes(),
            first: channel.ring.front().map(|message| self.at(message.offset)),
            last: channel.ring.back().map(|message| self.at(message.offset)),
            subscribers,
            members: self.members(name).len(),
        })
    }

    /// Returns the names of the members of a channel, on all nodes.
    pub fn members(&self, name: &Name) -> Vec<Arc<str>> {
        let mut members = self.find(name).map_or_else(Vec::new, |channel| channel.roster.names());
        members.extend(self.members_elsewhere(name).cloned());
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Returns the number of subscribers of a channel, on all nodes.
    fn subscribers(&self, name: &Name) -> u32 {
        let here = self.find(name).map_or(0, |channel| channel.subscribers);
        here.saturating_add(self.subscribers_elsewhere(name))
    }

    /// Returns the newest position.
    pub fn newest(&self) -> Position {
        self.at(self.newest)
    }

    /// Returns the offset up to which messages of removed channels are lost, durable channels excluded.
    pub fn forgotten_to(&self) -> u64 {
        self.forgotten_to
    }

    /// Returns the bytes of all histories.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Drops expired messages, keys and queued publishes, and lists members whose delay has passed. Returns when the next of
    /// these is due, on the monotonic clock in ns. Call it at that time, and in each turn with a publish.
    pub fn expire(&mut self, now: HubNow) -> Option<u64> {
        if now.mono_ns >= self.heads_ns {
            self.heads_ns = now.mono_ns.saturating_add(HEAD_NS);
            self.cores.iter_mut().for_each(|core| core.head_due = true);
            self.settles_doubts(now.mono_ns);
        }
        let ages = self.expire_messages(now);
        let keys = self.keys.expire(now.mono_ns, self.key_window_ns());
        let queue = self.expire_queue(now.mono_ns);
        let joins = self.list_waiting(now);
        ages.into_iter().chain(keys).chain(queue).chain(joins).min()
    }

    /// Applies new rules, which hold immediately for existing channels.
    pub fn reload(&mut self, rules: Arc<Rules>) {
        let durable = |(_, channel): (u32, &SequencedChannel)| (channel.name.clone(), channel.rules.durable);
        let durability: Vec<(Name, bool)> = match &self.durable {
            Some(_) => self.channels.iter().map(durable).collect(),
            None => Vec::new(),
        };
        self.rules = rules;
        self.ages.clear();
        for at in 0..self.channels.places() {
            let Some(channel) = self.channels.get_mut(at) else { continue };
            channel.rules = *self.rules.of(&channel.name);
            channel.timer = 0;
        }
        self.apply_durability(&durability);
        for at in 0..self.channels.places() {
            if self.channels.get(at).is_some() {
                self.trim(at);
                self.arm(at);
                self.mark_lost(at);
            }
        }
        self.trim_memory(None);
    }

    /// Returns all histories, to be saved.
    pub fn save(&self) -> SavedHistories {
        let mut channels = Vec::new();
        let (mut newest, mut forgotten_to, mut durable_forgotten_to) = (self.newest, self.forgotten_to, 0);
        if let Some(durable) = &self.durable {
            newest = newest.max(durable.reserved_to());
            durable_forgotten_to = durable.forgotten_to;
        }
        for (_, channel) in self.channels.iter().filter(|(_, channel)| channel.ring.is_empty()) {
            let forgotten = if channel.rules.durable { &mut durable_forgotten_to } else { &mut forgotten_to };
            *forgotten = channel.lost_to.max(*forgotten);
        }
        let mut next = self.uses.oldest;
        while next != NONE {
            let channel = &self.channels[next];
            let stored = |message: &Arc<Message>| Stored { message: Arc::clone(message), key: None };
            let durable = channel.rules.durable && self.durable.is_some();
            let preamble = channel.dropped_preamble().filter(|_| !durable);
            channels.push(SavedChannel {
                name: channel.name.clone(),
                lost_to: channel.lost_to,
                durable,
                messages: preamble.into_iter().chain(channel.ring.iter()).map(stored).collect(),
            });
            next = channel.newer;
        }
        let durability = self.rules.durability();
        SavedHistories { epoch: self.epoch, newest, forgotten_to, durable_forgotten_to, durability, channels }
    }

    // ── Requests of workers ─────────────────────────────────────────────────────────────────────────────────────

    /// Applies a request of a worker. The requests of one worker must arrive in order.
    pub fn apply(&mut self, now: HubNow, core: usize, request: FeedRequest) {
        match request {
            FeedRequest::Want { channel } => self.want(core, &channel),
            FeedRequest::Unwant { channel } => self.unwant(core, &channel),
            FeedRequest::Count { channel, joined, left } => self.count(core, &channel, joined, left),
            FeedRequest::Slow { channel, ended, skipped } => {
                if let Some(&at) = self.names.get(&channel) {
                    self.channels[at].flow.count_slow(ended, skipped);
                }
            }
            FeedRequest::Joined { channel, member } => self.member_joins(now, &channel, &member),
            FeedRequest::Left { channel, member } => self.member_leaves(now, &channel, &member),
            FeedRequest::Newest { reader, number } => {
                // In a cluster this node may lag behind the stream, so an id ahead of it may be valid.
                let to = if self.shared.is_some() { u64::MAX } else { self.newest };
                self.cores[core].recalled.push_back(Feed::Newest { reader, number, to });
            }
            FeedRequest::Recall { reader, number, channels, after, to } => {
                self.recall(core, (reader, number), channels, after, to);
            }
        }
    }

    /// Records that a worker wants a channel; creates the channel if needed.
    pub fn want(&mut self, core: usize, name: &Name) {
        let found = self.names.get(name).copied();
        let at = found.unwrap_or_else(|| self.found_or_made(name));
        if found.is_none() {
            self.request_history(at);
        }
        let channel = &mut self.channels[at];
        let reader = &mut channel.feeds[core];
        if !reader.wanted {
            *reader = ChannelFeed { wanted: true, ..ChannelFeed::default() };
            self.cores[core].wants += 1;
            if channel.reading.is_none() {
                self.cores[core].opening.push_back(at);
            }
        }
        self.weigh(at);
        self.uses.renew(&mut self.channels, at);
    }

    /// Records that a worker no longer wants a channel.
    pub fn unwant(&mut self, core: usize, name: &Name) {
        let Some(&at) = self.names.get(name) else { return };
        let channel = &mut self.channels[at];
        let reader = std::mem::take(&mut channel.feeds[core]);
        channel.subscribers -= reader.subscribers;
        self.cores[core].wants -= u32::from(reader.wanted);
        if reader.subscribers > 0 {
            self.touch(at, None);
        }
        self.weigh(at);
        self.forget_if_unused(at);
    }

    /// Counts subscribers of a worker that joined and left a channel.
    pub fn count(&mut self, core: usize, name: &Name, joined: u32, left: u32) {
        let Some(&at) = self.names.get(name) else { return };
        let channel = &mut self.channels[at];
        let reader = &mut channel.feeds[core];
        if reader.wanted {
            let others = channel.subscribers - reader.subscribers;
            reader.subscribers = reader.subscribers.saturating_add(joined).saturating_sub(left);
            channel.subscribers = others.saturating_add(reader.subscribers);
            self.weigh(at);
            self.touch(at, None);
        }
    }

    /// Adds a member to a channel. The first subscriber of a name is announced, at the rate of its client.
    pub fn member_joins(&mut self, now: HubNow, name: &Name, member: &Member) {
        let Some(&at) = self.names.get(name) else { return };
        let Member { name: member, client } = member;
        if self.channels[at].roster.joins(member) {
            match self.joins.reserve(self.rules.join_rate, *client, now.mono_ns) {
                Ok(0) => self.list(now, at, member),
                Ok(wait_ns) => {
                    let due_ns = now.mono_ns.saturating_add(wait_ns);
                    self.joins.waiting.push(Reverse((due_ns, name.clone(), Arc::clone(member))));
                }
                // Too many joins of this client are waiting: the member is not announced.
                Err(_) => {}
            }
        }
    }

    /// Lists and announces a member, if it is still present and the channel has room for it.
    fn list(&mut self, now: HubNow, at: u32, member: &Arc<str>) {
        let channel = &mut self.channels[at];
        let ChannelRules { members, presence, .. } = channel.rules;
        if !channel.roster.list(member, members) {
            return;
        }
        if self.shared.is_some() {
            self.touch(at, Some(member));
            self.join(at, member);
        } else if presence {
            self.append_presence(now, at, "encke.join", member);
        }
    }

    /// Lists members whose delay has passed. Returns when the next delay ends.
    fn list_waiting(&mut self, now: HubNow) -> Option<u64> {
        while let Some(Reverse((due_ns, ..))) = self.joins.waiting.peek() {
            if *due_ns > now.mono_ns {
                return Some(*due_ns);
            }
            let Some(Reverse((_, name, member))) = self.joins.waiting.pop() else { break };
            if let Some(&at) = self.names.get(&name) {
                self.list(now, at, &member);
            }
        }
        None
    }

    /// Removes a member from a channel. The last subscriber of a listed name is announced as a leave.
    pub fn member_leaves(&mut self, now: HubNow, name: &Name, member: &Arc<str>) {
        let Some(&at) = self.names.get(name) else { return };
        let channel = &mut self.channels[at];
        let (last, told) = (channel.roster.leaves(member), channel.rules.presence);
        if last && self.shared.is_some() {
            self.touch(at, Some(member));
            self.leave(at, member);
        } else if last && told {
            self.append_presence(now, at, "encke.leave", member);
        }
    }

    // ── Feeds of workers ────────────────────────────────────────────────────────────────────────────────────────

    /// Returns whether there is something to feed to a worker.
    pub fn has_feed(&self, core: usize) -> bool {
        let core = &self.cores[core];
        let due = !core.marks.is_empty() || !core.opening.is_empty() || !core.recalled.is_empty();
        due || self.owes_head(core)
    }

    fn owes_head(&self, core: &WorkerFeed) -> bool {
        core.head_due && core.wants > 0 && core.fed_to < self.newest
    }

    /// Returns the offset up to which a worker was fed everything that it wants.
    pub fn fed_to(&self, core: usize) -> u64 {
        self.cores[core].fed_to(self.newest)
    }

    /// Appends the next values for a worker, at most `most`. Returns whether more are left.
    pub fn take_feed(&mut self, core: usize, most: usize, into: &mut Vec<Feed>) -> bool {
        let end = into.len() + most;
        // Backfills get a quarter while other values wait, so that many of them do not delay live messages.
        let live = !self.cores[core].marks.is_empty() || !self.cores[core].opening.is_empty();
        let recalled_end = if live { into.len() + most.div_ceil(4) } else { end };
        while into.len() < recalled_end {
            let Some(recalled) = self.cores[core].recalled.pop_front() else { break };
            into.push(recalled);
        }
        while into.len() < end {
            let Some(at) = self.cores[core].opening.pop_front() else { break };
            into.extend(self.open(core, at));
        }
        while into.len() < end {
            let Some(Reverse((offset, at, mark))) = self.cores[core].marks.pop() else { break };
            into.extend(self.next_of(core, offset, at, mark));
        }
        let told = &self.cores[core];
        if into.len() < end && told.marks.is_empty() && told.opening.is_empty() && self.owes_head(told) {
            into.push(Feed::Head { to: self.newest });
            self.cores[core].fed_to = self.newest;
        }
        self.cores[core].head_due &= into.len() == end;
        self.has_feed(core)
    }

    /// Returns the state of a channel for a worker, unless the worker no longer wants it.
    fn open(&mut self, number: usize, at: u32) -> Option<Feed> {
        let core = &mut self.cores[number];
        core.fed_to = core.fed_to.max(core.fed_to(self.newest));
        let head = core.fed_to;
        let channel = self.channels.get_mut(at)?;
        let reader = &mut channel.feeds[number];
        // The index may belong to another channel by now, whose history is still being read.
        if !reader.wanted || reader.opened || channel.reading.is_some() {
            return None;
        }
        let known = channel.ring.partition_point(|message| message.offset <= head);
        reader.opened = true;
        reader.fed_count = channel.gone + known as u64;
        reader.lost_to = channel.lost_to;
        let feed = Feed::Opened {
            channel: channel.name.clone(),
            lost_to: channel.lost_to,
            head,
            messages: channel.ring.iter().take(known).cloned().collect(),
            preamble: channel.preamble.clone(),
        };
        self.mark(number, at);
        Some(feed)
    }

    /// Returns the value that a mark stands for. An outdated mark is dropped, an early one moves to its offset.
    fn next_of(&mut self, number: usize, offset: u64, at: u32, mark: u64) -> Option<Feed> {
        let channel = self.channels.get_mut(at)?;
        if channel.feeds[number].mark != mark {
            return None;
        }
        channel.feeds[number].mark = 0;
        let next = channel.next_for(number)?;
        let lost_to = channel.lost_to;
        let reader = &mut channel.feeds[number];
        let feed = if let NextFeed::Message(message) = next {
            if message.offset > offset {
                self.mark(number, at);
                return None;
            }
            reader.fed_count += 1;
            let core = &mut self.cores[number];
            core.fed_to = core.fed_to.max(offset);
            Feed::Message { message, lost_to }
        } else {
            // Immediately: the channel's next message may come much later than other messages after the loss. A worker that
            // receives any of those must know of the loss.
            reader.fed_count = reader.fed_count.max(channel.gone);
            Feed::Lost { channel: channel.name.clone(), to: lost_to, preamble: channel.preamble.clone() }
        };
        channel.feeds[number].lost_to = lost_to;
        self.mark(number, at);
        Some(feed)
    }

    /// Marks a channel for a worker if something of it was not fed.
    fn mark(&mut self, number: usize, at: u32) {
        let channel = &mut self.channels[at];
        if channel.feeds[number].mark == 0
            && let Some(next) = channel.next_for(number)
        {
            let core = &mut self.cores[number];
            let offset = match next {
                NextFeed::Message(message) => message.offset,
                // The loss begins at an unknown offset after the fed ones. The worker stops there until it receives the loss.
                NextFeed::Lost => channel.lost_to.min(core.fed_to + 1),
            };
            core.marked += 1;
            channel.feeds[number].mark = core.marked;
            core.marks.push(Reverse((offset, at, core.marked)));
        }
    }

    // ── Histories ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Appends a message with its offset to its channel.
    fn append(&mut self, at: u32, message: Arc<Message>) {
        self.newest = message.offset;
        let charge = message.charge();
        let channel = &mut self.channels[at];
        let first = channel.ring.is_empty();
        if message.flags.has_any(Flags::PREAMBLE.with(Flags::BREAK)) {
            self.memory -= channel.take_preamble(&message);
        }
        if !message.is_event() {
            channel.flow.count_message(message.unix_ms);
        }
        channel.ring.push_back(message);
        channel.bytes += charge;
        self.memory += charge;
        if first {
            self.weigh(at);
            self.uses.begin(&mut self.channels, at);
            self.arm(at);
        } else {
            self.uses.renew(&mut self.channels, at);
        }
        self.trim(at);
        self.trim_memory(Some(at));
        for core in 0..self.cores.len() {
            self.mark(core, at);
        }
    }

    /// Announces a join or a leave in a channel. It is not stored: members do not survive a restart.
    fn append_presence(&mut self, now: HubNow, at: u32, event: &str, member: &str) {
        // Without a free offset the event is dropped.
        let Some(offset) = self.next_offset() else { return };
        let message = Message {
            offset,
            channel: self.channels[at].name.clone(),
            data: roster::presence_payload(member),
            text: true,
            content_type: Some("application/json".into()),
            event: Some(event.into()),
            unix_ms: now.unix_ms,
            flags: Flags::CONTROL,
        };
        self.append(at, Arc::new(message));
    }

    /// Drops messages above the limits of their channel. The newest message stays.
    fn trim(&mut self, at: u32) {
        let rules = self.channels[at].rules;
        loop {
            let SequencedChannel { ring, bytes, .. } = &self.channels[at];
            let over = ring.messages() > rules.messages || *bytes - ring.event_bytes() > rules.bytes;
            if ring.messages() <= 1 || !over {
                break;
            }
            self.drop_oldest(at);
        }
        while self.channels[at].ring.events() > rules.events_max() {
            self.drop_oldest_event(at);
        }
    }

    /// Drops the oldest join or leave of a channel. This is no loss: subscribers get no gap for it.
    fn drop_oldest_event(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        let Some((index, event)) = channel.ring.remove_oldest_event() else { return };
        let charge = event.charge();
        channel.bytes -= charge;
        self.memory -= charge;
        let number = channel.gone + index as u64;
        for reader in channel.feeds.iter_mut().filter(|reader| reader.fed_count > number) {
            reader.fed_count -= 1;
        }
        if channel.ring.is_empty() {
            self.memory -= channel.lose_preamble();
            self.uses.end(&mut self.channels, at);
            self.weigh(at);
        }
    }

    /// Evicts messages of the least recently used channel until memory is within its limit. The newest message of channel
    /// `spared` stays, since it was not fed yet.
    fn trim_memory(&mut self, spared: Option<u32>) {
        let most = self.rules.memory_bytes.saturating_sub(self.lent);
        while self.memory > most && self.uses.oldest != NONE {
            let at = self.uses.oldest;
            if spared == Some(at) && self.channels[at].ring.len() == 1 {
                return;
            }
            self.drop_oldest(at);
            self.mark_lost(at);
            self.forget_if_unused(at);
        }
    }

    /// Drops the oldest message of a channel. Returns whether there was one.
    fn drop_oldest(&mut self, at: u32) -> bool {
        let channel = &mut self.channels[at];
        let Some(message) = channel.ring.pop_front() else { return false };
        let charge = message.charge();
        channel.bytes -= charge;
        channel.gone += 1;
        channel.lost_to = message.offset;
        if !channel.is_preamble(&message) {
            self.memory -= charge;
        }
        if channel.rules.durable
            && let Some(durable) = &mut self.durable
        {
            durable.evict(&channel.name, message.offset);
        }
        if channel.ring.is_empty() {
            self.memory -= channel.lose_preamble();
            self.uses.end(&mut self.channels, at);
            self.weigh(at);
        }
        true
    }

    /// Marks a channel for all workers that do not know of its loss.
    fn mark_lost(&mut self, at: u32) {
        for core in 0..self.cores.len() {
            self.mark(core, at);
        }
    }

    // ── Channels ────────────────────────────────────────────────────────────────────────────────────────────────

    fn at(&self, offset: u64) -> Position {
        Position { epoch: self.epoch, offset }
    }

    fn key_window_ns(&self) -> u64 {
        self.rules.key_window_ms.saturating_mul(1_000_000)
    }

    fn find(&self, name: &Name) -> Option<&SequencedChannel> {
        self.names.get(name).map(|at| &self.channels[*at])
    }

    fn found_or_made(&mut self, name: &Name) -> u32 {
        if let Some(&at) = self.names.get(name) {
            return at;
        }
        let rules = *self.rules.of(name);
        let forgotten_to = match &self.durable {
            Some(durable) if rules.durable => durable.forgotten_to,
            _ => self.forgotten_to,
        };
        let at = self.channels.insert(SequencedChannel {
            name: name.clone(),
            rules,
            ring: Ring::default(),
            preamble: None,
            gone: 0,
            bytes: 0,
            lost_to: forgotten_to,
            forgotten_to: 0,
            feeds: vec![ChannelFeed::default(); self.cores.len()].into(),
            subscribers: 0,
            roster: Roster::default(),
            newer: NONE,
            older: NONE,
            timer: 0,
            reading: None,
            idle: false,
            flow: ChannelFlow::default(),
        });
        self.names.insert(name.clone(), at);
        at
    }

    /// Updates [`SequencedChannel::idle`], after a change of the channel's messages or subscribers.
    fn weigh(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        let empty = channel.ring.is_empty() && channel.subscribers == 0;
        let idle = empty && channel.feeds.iter().any(|reader| reader.wanted);
        let before = std::mem::replace(&mut channel.idle, idle);
        self.idle = self.idle - usize::from(before) + usize::from(idle);
    }

    /// Removes a channel that has no message and that no worker wants. With a shared stream an unwanted channel drops its
    /// messages first, since the stream keeps them.
    fn forget_if_unused(&mut self, at: u32) {
        let unwanted = !self.channels[at].feeds.iter().any(|reader| reader.wanted);
        while unwanted && self.shared.is_some() && self.drop_oldest(at) {}
        let channel = &self.channels[at];
        if channel.ring.is_empty() && unwanted {
            match &mut self.durable {
                Some(durable) if channel.rules.durable => durable.forget(&channel.name, channel.lost_to),
                _ if self.shared.is_some() => {}
                _ => self.forgotten_to = self.forgotten_to.max(channel.lost_to),
            }
            let name = channel.name.clone();
            self.names.remove(&name);
            self.channels.remove(at);
            self.drop_announced(&name);
            self.release(name);
        }
    }

    fn check(&self, draft: &Draft) -> Result<(), PublishError> {
        let (bytes, most) = (draft.data.len(), self.rules.message_bytes);
        if bytes > most {
            return Err(PublishError::TooLarge { bytes, most });
        }
        if draft.key.as_ref().is_some_and(|key| key.key.len() > KEY_BYTES_MAX) {
            return Err(PublishError::KeyTooLong);
        }
        if let Some(event) = &draft.event {
            if event.starts_with("encke.") {
                return Err(PublishError::ReservedEvent);
            }
            if !is_label(event) {
                return Err(PublishError::BadEvent);
            }
        }
        if draft.content_type.as_ref().is_some_and(|media| !is_label(media)) {
            return Err(PublishError::BadType);
        }
        Ok(())
    }
}

impl SequencedChannel {
    /// Returns the next value for a worker.
    fn next_for(&self, core: usize) -> Option<NextFeed> {
        let reader = &self.feeds[core];
        if !reader.opened {
            return None;
        }
        // Messages were dropped before they were fed.
        let Some(index) = reader.fed_count.checked_sub(self.gone) else { return Some(NextFeed::Lost) };
        match self.ring.get(index as usize) {
            Some(message) => Some(NextFeed::Message(Arc::clone(message))),
            None if self.lost_to > reader.lost_to => Some(NextFeed::Lost),
            None => None,
        }
    }

    /// Returns when the oldest message expires.
    fn expires_ms(&self) -> Option<u64> {
        self.ring.front().map(|oldest| oldest.unix_ms.saturating_add(self.rules.age_ms))
    }
}

/// The next value of a channel for a worker.
enum NextFeed {
    /// A message, together with the loss before it.
    Message(Arc<Message>),
    /// A loss only.
    Lost,
}

/// Returns whether a text fits into a line protocol: not empty, not long, without line ends or other control characters.
fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control)
}

/// Joins of clients, at a limited rate.
#[derive(Debug, Default)]
struct Joins {
    /// Created at the first join under a rate.
    paces: Option<(NonZeroU32, TokenBuckets)>,
    /// Members to be listed later: the time, the channel and the name. At most `join_rate` times [`JOIN_WAIT_NS`] per client.
    waiting: BinaryHeap<Reverse<(u64, Name, Arc<str>)>>,
}

impl Joins {
    /// Reserves the next join of a client. Returns its delay in ns.
    ///
    /// # Errors
    /// The delay is above [`JOIN_WAIT_NS`]: the delay, in ns.
    fn reserve(&mut self, rate: Option<NonZeroU32>, client: Option<u64>, now_ns: u64) -> Result<u64, u64> {
        let (Some(rate), Some(client)) = (rate, client) else { return Ok(0) };
        if self.paces.as_ref().is_none_or(|(known, _)| *known != rate) {
            let burst = u64::from(rate.get()) * JOIN_BURST_S;
            self.paces = Some((rate, TokenBuckets::new(TokenBucket::new(rate, burst))));
        }
        let paces = self.paces.as_mut().map(|(_, paces)| paces);
        paces.map_or(Ok(0), |paces| paces.reserve(client, now_ns, 1, JOIN_WAIT_NS))
    }
}

const NONE: u32 = u32::MAX;

/// Channels with a history in order of use: a linked list through the channels.
#[derive(Debug)]
struct Uses {
    newest: u32,
    oldest: u32,
}

impl Default for Uses {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE }
    }
}

impl Uses {
    /// Adds a channel that has a history now.
    fn begin(&mut self, channels: &mut HubSlab<SequencedChannel>, at: u32) {
        channels[at].newer = NONE;
        channels[at].older = self.newest;
        match self.newest {
            NONE => self.oldest = at,
            newest => channels[newest].newer = at,
        }
        self.newest = at;
    }

    /// Removes a channel that has no history now.
    fn end(&mut self, channels: &mut HubSlab<SequencedChannel>, at: u32) {
        let SequencedChannel { newer, older, .. } = channels[at];
        match newer {
            NONE => self.newest = older,
            newer => channels[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => channels[older].newer = newer,
        }
    }

    /// Moves a channel to the newest end, if it has a history.
    fn renew(&mut self, channels: &mut HubSlab<SequencedChannel>, at: u32) {
        if !channels[at].ring.is_empty() && self.newest != at {
            self.end(channels, at);
            self.begin(channels, at);
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, most } => {
                write!(f, "the message has {bytes} bytes: at most {most} are allowed")
            }
            Self::TooManyChannels { most } => {
                write!(
                    f,
                    "the server has reached its limit of {most} channels: publish to one of them, or retry later"
                )
            }
            Self::ReservedChannel => {
                f.write_str("the channel is for live streams only: send a source to its own address")
            }
            Self::KeyMismatch => f.write_str("another message was published with this idempotency key"),
            Self::KeyTooLong => write!(f, "the idempotency key is longer than {KEY_BYTES_MAX} bytes"),
            Self::ReservedEvent => f.write_str("event names that begin with encke. are reserved for the server"),
            Self::BadEvent => {
                write!(f, "invalid event name: expected 1 to {LABEL_BYTES_MAX} bytes without control characters")
            }
            Self::BadType => {
                write!(f, "invalid media type: expected 1 to {LABEL_BYTES_MAX} bytes without control characters")
            }
            Self::NoSpace => {
                f.write_str("no space left to store the message; channels that are not durable still work")
            }
            Self::NotStored => f.write_str("the message could not be stored: see the server's log"),
            Self::Stalled => {
                f.write_str("the store did not respond for so long that ids ran out: retry later")
            }
            Self::Away => f.write_str("the cluster is unreachable: nothing was published; retry"),
            Self::Unanswered => f.write_str(
                "the cluster did not respond in time, and may have the message: retry with an Idempotency-Key",
            ),
            Self::Crowded => f.write_str("too many messages are queued for the cluster: retry"),
            Self::NotTaken => f.write_str("the cluster rejected the message: see the server's log"),
        }
    }
}

impl std::error::Error for PublishError {}

#[cfg(test)]
mod tests;
