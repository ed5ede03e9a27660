//! The one who gives every message its place: histories, memory, what each core was told.
//!
//! ```text
//!  publish ─► offset ─► ring of the channel ─► each core that wants it: marked once, by the offset of what is next
//!                         │                              │
//!                         ├ too many, too large          └─► take_feed: the marks in the order of their offsets
//!                         ├ too old (expire)
//!                         └ too much of all: the least recently used channel
//! ```
//! **No queue grows with messages.** For each core and channel there is what was told last and one mark. A core that
//! does not come for its feed finds later what the rings still hold, and is told what they have lost.
//!
//! **The order of a feed** is that of offsets over all channels of the core: a heap holds the marks by the offset of
//! what comes next. Rings go on meanwhile, so a mark may be early, never late: when it comes up, and the message at
//! its place is gone, the loss is told at that place; if it stood for a loss only, and the next message is farther
//! on, it goes back there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::Now;
use crate::keys::{Keys, Repeat};
use crate::limits::{HEAD_NS, JOIN_BURST_S, JOIN_WAIT_NS, KEY_BYTES_MAX, LABEL_BYTES_MAX};
use crate::message::{Draft, Flags, IdempotencyKey, Message};
use crate::name::Name;
use crate::pace::{Pace, Paces};
use crate::position::{Epoch, Position};
use crate::ring::Ring;
use crate::roster::{self, Roster};
use crate::rules::{Ack, ChannelRules, Rules};
use crate::slab::Slab;
use crate::subscriber::Member;
use crate::values::{Feed, Request};

mod durable;
mod shared;

pub use durable::{Commit, Stored};
pub use shared::{Announcement, Backlog, Change, Errand, News, NodeId, Place, Queueing, Recall};

use durable::Durable;
use shared::Shared;

/// The order of all messages, and the histories of all channels.
#[derive(Debug)]
pub struct Sequencer {
    epoch: Epoch,
    rules: Arc<Rules>,
    /// The offset given last.
    newest: u64,
    /// The highest `lost_to` of channels that no longer exist: nobody can say what an older position has missed of a
    /// channel that is not here.
    forgotten_to: u64,
    /// Bytes of all histories.
    memory: u64,
    names: HashMap<Name, u32>,
    channels: Slab<Channel>,
    /// How many channels are [`Channel::idle`].
    idle: usize,
    cores: Vec<Core>,
    /// Channels with a history, by their last use.
    uses: Uses,
    /// When the oldest message of each channel is too old, in ms since 1970, with the number of its timer.
    ages: BinaryHeap<Reverse<(u64, u32, u64)>>,
    timers: u64,
    /// When cores to which nothing else was told are told of the head.
    heads_ns: u64,
    keys: Keys,
    joins: Joins,
    /// Where messages are stored, if they are.
    durable: Option<Durable>,
    /// Where their order is made, if not here.
    shared: Option<Shared>,
}

#[derive(Debug)]
struct Channel {
    name: Name,
    rules: ChannelRules,
    ring: Ring,
    /// How many messages the channel had before the first one in the ring. Joins and leaves that left the ring from between
    /// messages are not counted.
    gone: u64,
    bytes: u64,
    /// The offset of the last message that was lost; a channel that is new knows nothing before `forgotten_to`.
    lost_to: u64,
    /// Up to where it was forgotten by all who share the stream, as far as that is known here.
    forgotten_to: u64,
    readers: Box<[Reader]>,
    /// Subscribers on all cores.
    subscribers: u32,
    roster: Roster,
    /// Its neighbours in [`Uses`], if it has a history.
    newer: u32,
    older: u32,
    /// The number of its entry in `ages`; 0: none.
    timer: u64,
    /// Its past is being read: it is not opened before.
    reading: Option<Ticket>,
    /// Neither message nor subscriber: the channel exists only because a worker still wants it.
    idle: bool,
}

/// What a core was told of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    wanted: bool,
    opened: bool,
    /// The mark in the core's heap that counts; 0: none.
    mark: u64,
    /// How many messages of the channel it was told or has missed.
    told: u64,
    /// Up to which offset it knows what is lost.
    lost_to: u64,
    subscribers: u32,
}

#[derive(Debug, Default)]
struct Core {
    /// Channels for which there is something: offset of what is next, channel, number of the mark.
    marks: BinaryHeap<Reverse<(u64, u32, u64)>>,
    marked: u64,
    /// Channels it wants and has not been told of.
    opening: VecDeque<u32>,
    /// What its subscribers have asked of the past: at most one answer for each.
    recalled: VecDeque<Feed>,
    /// It was told everything that it wants up to here.
    fed_to: u64,
    /// Channels it wants.
    wants: u32,
    /// It is time to tell it how far the stream is, if nothing else does.
    head_due: bool,
}

impl Core {
    /// Marks are never late: everything before the first of them was told.
    fn told_to(&self, newest: u64) -> u64 {
        self.marks.peek().map_or(newest, |Reverse((offset, ..))| offset - 1)
    }
}

/// What became of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its id.
    pub position: Position,
    /// Subscribers of the channel, as the cores have counted them.
    pub subscribers: u32,
    /// It had been published before, under the same key.
    pub repeated: bool,
    /// It has yet to be stored: an end without warning may lose it.
    pub early: bool,
    /// A core here wants its channel, and will be told: not always so on a node of a cluster.
    pub wanted: bool,
}

/// Names something that is answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// How far a publish is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// Published.
    Done(Published),
    /// It is when it is stored, or has its place in a stream that others share: [`Sequencer::committed`] or
    /// [`Sequencer::hear`] answers the ticket.
    Waits(Ticket),
    /// It is promised, and goes to the stream that others share as soon as it can. Nobody is told more of it.
    Queued {
        /// Subscribers of the channel, as the cores have counted them.
        subscribers: u32,
    },
}

impl Publishing {
    /// What became of it, if that is known.
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
    /// There is no such channel.
    Absent,
    /// The messages are deleted.
    Done,
    /// The messages are deleted once the store has removed them: [`Sequencer::committed`] answers the ticket.
    Waits(Ticket),
}

/// Why something is not published. The fault is the publisher's, but for [`Refusal::TooManyChannels`] and what the
/// store or the cluster is to blame for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The payload is larger than allowed.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// What is allowed.
        most: usize,
    },
    /// There are as many channels as there may be, and this is a new one.
    TooManyChannels {
        /// How many there may be.
        most: usize,
    },
    /// Something else was published under this idempotency key.
    KeyMismatch,
    /// The idempotency key is longer than [`KEY_BYTES_MAX`].
    KeyTooLong,
    /// Events that begin with `encke.` are the server's own.
    ReservedEvent,
    /// The event's name is empty, too long or has control characters.
    BadEvent,
    /// The media type is empty, too long or has control characters.
    BadType,
    /// The disk is full.
    NoSpace,
    /// The store failed.
    NotStored,
    /// The store has not answered for so long that there are no offsets left to give.
    Stalled,
    /// The stream that several nodes share cannot be reached.
    Away,
    /// That stream has not answered in time: nobody here knows whether it has the message.
    Unanswered,
    /// As many messages as may be are on their way to that stream.
    Crowded,
    /// That stream does not take it: what its own limits are is not known here.
    NotTaken,
}

/// What there is of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its history is known here: on a node of a cluster only while somebody listens there.
    pub kept: bool,
    /// Messages that are kept, without joins and leaves.
    pub messages: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// The oldest message, join or leave that is kept.
    pub first: Option<Position>,
    /// The newest one.
    pub last: Option<Position>,
    /// Subscribers, as the cores have counted them.
    pub subscribers: u32,
    /// Members with a name, where presence is told.
    pub members: usize,
}

/// All histories, to be written down and taken up again by [`Sequencer::restore`]. Members are not among them, nor the
/// keys of publishes to channels that are not durable: those of the next life begin anew.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The life of the stream, which goes on.
    pub epoch: Epoch,
    /// The offset given last.
    pub newest: u64,
    /// Up to where messages of channels that are not here were lost.
    pub forgotten_to: u64,
    /// The same of durable channels.
    pub durable_forgotten_to: u64,
    /// Which channels were durable ([`Commit::durability`]).
    pub durability: Box<str>,
    /// Channels with messages, least recently used first.
    pub channels: Vec<SavedChannel>,
}

/// A channel with its history.
#[derive(Clone, Debug)]
pub struct SavedChannel {
    /// Which channel.
    pub name: Name,
    /// Up to which offset messages were lost.
    pub lost_to: u64,
    /// It is durable: its messages were stored as they came.
    pub durable: bool,
    /// What is kept, oldest first.
    pub messages: Vec<Stored>,
}

impl Sequencer {
    /// A stream that begins, for so many cores.
    pub fn new(epoch: Epoch, rules: Arc<Rules>, cores: usize) -> Self {
        Self {
            epoch,
            rules,
            newest: 0,
            forgotten_to: 0,
            memory: 0,
            names: HashMap::new(),
            channels: Slab::new(),
            idle: 0,
            cores: (0..cores).map(|_| Core::default()).collect(),
            uses: Uses::default(),
            ages: BinaryHeap::new(),
            timers: 0,
            heads_ns: 0,
            keys: Keys::default(),
            joins: Joins::default(),
            durable: None,
            shared: None,
        }
    }

    /// A stream with a store, which goes on where it was saved, under rules that may be others. Offsets up to
    /// `ceiling` may be given before the next commit.
    pub fn restore(now: Now, saved: Saved, ceiling: u64, rules: Arc<Rules>, cores: usize) -> Self {
        let mut sequencer = Self::new(saved.epoch, rules, cores);
        sequencer.newest = saved.newest;
        sequencer.forgotten_to = saved.forgotten_to;
        sequencer.durable = Some(Durable::new(ceiling, saved.durable_forgotten_to, saved.durability));
        let mut keys: Vec<Stored> = Vec::new();
        let mut durability = Vec::new();
        for SavedChannel { name, lost_to, durable, messages } in saved.channels {
            let at = sequencer.found_or_made(&name);
            let channel = &mut sequencer.channels[at];
            channel.lost_to = lost_to;
            channel.bytes = messages.iter().map(|stored| stored.message.charge()).sum();
            channel.ring = messages.iter().map(|stored| Arc::clone(&stored.message)).collect();
            sequencer.memory += channel.bytes;
            if !messages.is_empty() {
                sequencer.uses.begin(&mut sequencer.channels, at);
            }
            keys.extend(messages.into_iter().filter(|stored| stored.key.is_some()));
            durability.push((name, durable));
        }
        sequencer.obey_durability(&durability);
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

    /// Publishes. To a durable channel that is not acknowledged early it waits for its commit, and to a stream that
    /// others share for its place there.
    ///
    /// # Errors
    /// See [`Refusal`]; then nothing has changed.
    pub fn publish(&mut self, now: Now, draft: Draft) -> Result<Publishing, Refusal> {
        self.check(&draft)?;
        if self.shared.is_some() {
            return self.hand_over(now, draft);
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
                return if room { Ok(self.stage(draft)) } else { Err(Refusal::TooManyChannels { most }) };
            }
        }
        self.keys.expire(now.mono_ns, self.key_window_ns());
        match self.keys.look(&draft) {
            Repeat::No => {}
            Repeat::Other => return Err(Refusal::KeyMismatch),
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
            return Err(Refusal::TooManyChannels { most });
        }
        let offset = self.next_offset().ok_or(Refusal::Stalled)?;
        let at = self.found_or_made(&draft.channel);
        self.keys.remember(now.mono_ns, &draft, offset);
        let key = draft.key.clone();
        self.say(at, draft.place(offset, now.unix_ms), key);
        let subscribers = self.channels[at].subscribers;
        let position = self.at(offset);
        Ok(Publishing::Done(Published { position, subscribers, repeated: false, early, wanted: true }))
    }

    /// The offset of what is published now, if there is one to give.
    fn next_offset(&self) -> Option<u64> {
        if self.shared.is_some() {
            return None;
        }
        let next = self.newest + 1;
        let free = self.durable.as_ref().is_none_or(|durable| next <= durable.most());
        free.then_some(next)
    }

    /// Gives a message its place; it is stored later if its channel is durable.
    fn say(&mut self, at: u32, message: Message, key: Option<IdempotencyKey>) {
        let message = Arc::new(message);
        if self.channels[at].rules.durable
            && let Some(durable) = &mut self.durable
        {
            if self.channels[at].ring.messages() == 0 {
                durable.lose(&self.channels[at].name, self.channels[at].lost_to);
            }
            durable.owe(Arc::clone(&message), key);
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
        self.tell_of_loss(at);
        self.forget_if_unused(at);
        Deletion::Done
    }

    /// The answer to a delete: a core that was told everything up to its position has dropped the messages.
    pub fn deleted(&self) -> Published {
        Published { position: self.newest(), subscribers: 0, repeated: false, early: false, wanted: true }
    }

    /// What there is of a channel; `None`: it does not exist, here or on another node.
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

    /// Who is in a channel, by name, where presence is told.
    pub fn members(&self, name: &Name) -> Vec<Arc<str>> {
        let mut members = self.find(name).map_or_else(Vec::new, |channel| channel.roster.names());
        members.extend(self.members_elsewhere(name).cloned());
        members.sort_unstable();
        members.dedup();
        members
    }

    /// How many listen to a channel, on all nodes.
    fn subscribers(&self, name: &Name) -> u32 {
        let here = self.find(name).map_or(0, |channel| channel.subscribers);
        here.saturating_add(self.subscribers_elsewhere(name))
    }

    /// The newest position of all.
    pub fn newest(&self) -> Position {
        self.at(self.newest)
    }

    /// Up to which offset messages of channels that no longer exist, and were not durable, were lost.
    pub fn forgotten_to(&self) -> u64 {
        self.forgotten_to
    }

    /// Bytes of all histories.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Drops what is too old, and says when something will be next, on the monotonic clock in ns. To be called then,
    /// and in each turn in which something was published.
    pub fn expire(&mut self, now: Now) -> Option<u64> {
        if now.mono_ns >= self.heads_ns {
            self.heads_ns = now.mono_ns.saturating_add(HEAD_NS);
            self.cores.iter_mut().for_each(|core| core.head_due = true);
            self.settles_doubts(now.mono_ns);
        }
        let mut next_ms = None;
        while let Some(&Reverse((at_ms, at, timer))) = self.ages.peek() {
            let current = self.channels.get(at).is_some_and(|channel| channel.timer == timer);
            if current && at_ms > now.unix_ms {
                next_ms = Some(at_ms);
                break;
            }
            self.ages.pop();
            if current {
                self.drop_expired(at, now.unix_ms);
            }
        }
        let ages = next_ms.map(|at_ms| {
            let wait_ms = at_ms - now.unix_ms;
            now.mono_ns.saturating_add(wait_ms.saturating_mul(1_000_000))
        });
        let keys = self.keys.expire(now.mono_ns, self.key_window_ns());
        let queue = self.expire_queue(now.mono_ns);
        let joins = self.list_waiting(now);
        ages.into_iter().chain(keys).chain(queue).chain(joins).min()
    }

    /// Takes new rules; they hold at once for what is kept.
    pub fn reload(&mut self, rules: Arc<Rules>) {
        let durable = |(_, channel): (u32, &Channel)| (channel.name.clone(), channel.rules.durable);
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
        self.obey_durability(&durability);
        for at in 0..self.channels.places() {
            if self.channels.get(at).is_some() {
                self.trim(at);
                self.arm(at);
                self.tell_of_loss(at);
            }
        }
        self.trim_memory(None);
    }

    /// All histories as they are.
    pub fn save(&self) -> Saved {
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
            channels.push(SavedChannel {
                name: channel.name.clone(),
                lost_to: channel.lost_to,
                durable: channel.rules.durable && self.durable.is_some(),
                messages: channel.ring.iter().map(stored).collect(),
            });
            next = channel.newer;
        }
        let durability = self.rules.durability();
        Saved { epoch: self.epoch, newest, forgotten_to, durable_forgotten_to, durability, channels }
    }

    // ── What cores ask ──────────────────────────────────────────────────────────────────────────────────────────

    /// Does what a core asks. Requests of a core must come in their order.
    pub fn apply(&mut self, now: Now, core: usize, request: Request) {
        match request {
            Request::Want { channel } => self.want(core, &channel),
            Request::Unwant { channel } => self.unwant(core, &channel),
            Request::Count { channel, joined, left } => self.count(core, &channel, joined, left),
            Request::Joined { channel, member } => self.member_joins(now, &channel, &member),
            Request::Left { channel, member } => self.member_leaves(now, &channel, &member),
            Request::Newest { reader, number } => {
                // In a cluster this node may lag behind the stream: an id ahead of it may be valid.
                let to = if self.shared.is_some() { u64::MAX } else { self.newest };
                self.cores[core].recalled.push_back(Feed::Newest { reader, number, to });
            }
            Request::Recall { reader, number, channels, after, to } => {
                self.recall(core, (reader, number), channels, after, to);
            }
        }
    }

    /// A core wants a channel, which exists from now on if it did not.
    pub fn want(&mut self, core: usize, name: &Name) {
        let found = self.names.get(name).copied();
        let at = found.unwrap_or_else(|| self.found_or_made(name));
        if found.is_none() {
            self.ask_for_past(at);
        }
        let channel = &mut self.channels[at];
        let reader = &mut channel.readers[core];
        if !reader.wanted {
            *reader = Reader { wanted: true, ..Reader::default() };
            self.cores[core].wants += 1;
            if channel.reading.is_none() {
                self.cores[core].opening.push_back(at);
            }
        }
        self.weigh(at);
        self.uses.renew(&mut self.channels, at);
    }

    /// A core has no use for a channel any more.
    pub fn unwant(&mut self, core: usize, name: &Name) {
        let Some(&at) = self.names.get(name) else { return };
        let channel = &mut self.channels[at];
        let reader = std::mem::take(&mut channel.readers[core]);
        channel.subscribers -= reader.subscribers;
        self.cores[core].wants -= u32::from(reader.wanted);
        if reader.subscribers > 0 {
            self.touch(at, None);
        }
        self.weigh(at);
        self.forget_if_unused(at);
    }

    /// Subscribers of a core came to a channel and went.
    pub fn count(&mut self, core: usize, name: &Name, joined: u32, left: u32) {
        let Some(&at) = self.names.get(name) else { return };
        let channel = &mut self.channels[at];
        let reader = &mut channel.readers[core];
        if reader.wanted {
            let others = channel.subscribers - reader.subscribers;
            reader.subscribers = reader.subscribers.saturating_add(joined).saturating_sub(left);
            channel.subscribers = others.saturating_add(reader.subscribers);
            self.weigh(at);
            self.touch(at, None);
        }
    }

    /// Adds a member to a channel. The first of a name is announced, at the rate of its client.
    pub fn member_joins(&mut self, now: Now, name: &Name, member: &Member) {
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
    fn list(&mut self, now: Now, at: u32, member: &Arc<str>) {
        let channel = &mut self.channels[at];
        let ChannelRules { members, presence, .. } = channel.rules;
        if !channel.roster.list(member, members) {
            return;
        }
        if self.shared.is_some() {
            self.touch(at, Some(member));
            self.comes(at, member);
        } else if presence {
            self.tell(now, at, "encke.join", member);
        }
    }

    /// Lists members whose delay has passed. Returns when the next delay ends.
    fn list_waiting(&mut self, now: Now) -> Option<u64> {
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

    /// Somebody with a name went. The last of that name is told in the channel.
    pub fn member_leaves(&mut self, now: Now, name: &Name, member: &Arc<str>) {
        let Some(&at) = self.names.get(name) else { return };
        let channel = &mut self.channels[at];
        let (last, told) = (channel.roster.leaves(member), channel.rules.presence);
        if last && self.shared.is_some() {
            self.touch(at, Some(member));
            self.goes(at, member);
        } else if last && told {
            self.tell(now, at, "encke.leave", member);
        }
    }

    // ── What cores are told ─────────────────────────────────────────────────────────────────────────────────────

    /// Whether there is something for a core.
    pub fn has_feed(&self, core: usize) -> bool {
        let core = &self.cores[core];
        let due = !core.marks.is_empty() || !core.opening.is_empty() || !core.recalled.is_empty();
        due || self.owes_head(core)
    }

    fn owes_head(&self, core: &Core) -> bool {
        core.head_due && core.wants > 0 && core.fed_to < self.newest
    }

    /// Up to which offset a core was told everything that it wants.
    pub fn told_to(&self, core: usize) -> u64 {
        self.cores[core].told_to(self.newest)
    }

    /// Appends what a core is told next, at most `most` items; says whether more is left.
    pub fn take_feed(&mut self, core: usize, most: usize, into: &mut Vec<Feed>) -> bool {
        let end = into.len() + most;
        // A quarter is for what was asked of the past, so that crowds who read it do not keep all others waiting.
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

    /// What there is of a channel, for a core that wants it. It may have changed its mind.
    fn open(&mut self, number: usize, at: u32) -> Option<Feed> {
        let core = &mut self.cores[number];
        core.fed_to = core.fed_to.max(core.told_to(self.newest));
        let head = core.fed_to;
        let channel = self.channels.get_mut(at)?;
        let reader = &mut channel.readers[number];
        // It may also be another channel at that place by now, whose past is still being read.
        if !reader.wanted || reader.opened || channel.reading.is_some() {
            return None;
        }
        let known = channel.ring.partition_point(|message| message.offset <= head);
        reader.opened = true;
        reader.told = channel.gone + known as u64;
        reader.lost_to = channel.lost_to;
        let feed = Feed::Opened {
            channel: channel.name.clone(),
            lost_to: channel.lost_to,
            head,
            messages: channel.ring.iter().take(known).cloned().collect(),
        };
        self.mark(number, at);
        Some(feed)
    }

    /// What a mark stands for. It may be outdated, or early: then it goes back to its place.
    fn next_of(&mut self, number: usize, offset: u64, at: u32, mark: u64) -> Option<Feed> {
        let channel = self.channels.get_mut(at)?;
        if channel.readers[number].mark != mark {
            return None;
        }
        channel.readers[number].mark = 0;
        let next = channel.next_for(number)?;
        let lost_to = channel.lost_to;
        let reader = &mut channel.readers[number];
        let feed = if let Next::Message(message) = next {
            if message.offset > offset {
                self.mark(number, at);
                return None;
            }
            reader.told += 1;
            let core = &mut self.cores[number];
            core.fed_to = core.fed_to.max(offset);
            Feed::Message { message, lost_to }
        } else {
            // Right away: what comes next of the channel may be far behind the messages that it has lost, and whoever
            // is told anything behind those must know of the loss.
            reader.told = reader.told.max(channel.gone);
            Feed::Lost { channel: channel.name.clone(), to: lost_to }
        };
        channel.readers[number].lost_to = lost_to;
        self.mark(number, at);
        Some(feed)
    }

    /// Marks a channel for a core if there is something of it that the core was not told.
    fn mark(&mut self, number: usize, at: u32) {
        let channel = &mut self.channels[at];
        if channel.readers[number].mark == 0
            && let Some(next) = channel.next_for(number)
        {
            let core = &mut self.cores[number];
            let offset = match next {
                Next::Message(message) => message.offset,
                // What was lost begins somewhere behind what the core was told of: until it hears of that, it is no farther.
                Next::Lost => channel.lost_to.min(core.fed_to + 1),
            };
            core.marked += 1;
            channel.readers[number].mark = core.marked;
            core.marks.push(Reverse((offset, at, core.marked)));
        }
    }

    // ── Histories ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Gives a message its place.
    fn append(&mut self, at: u32, message: Arc<Message>) {
        self.newest = message.offset;
        let charge = message.charge();
        let channel = &mut self.channels[at];
        let first = channel.ring.is_empty();
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
    fn tell(&mut self, now: Now, at: u32, event: &str, member: &str) {
        // Without a free offset the event is dropped.
        let Some(offset) = self.next_offset() else { return };
        let message = Message {
            offset,
            channel: self.channels[at].name.clone(),
            data: roster::told(member),
            text: true,
            content_type: Some("application/json".into()),
            event: Some(event.into()),
            unix_ms: now.unix_ms,
            flags: Flags::CONTROL,
        };
        self.append(at, Arc::new(message));
    }

    /// Drops what a channel may not keep by its own rules. The newest message stays.
    fn trim(&mut self, at: u32) {
        let rules = self.channels[at].rules;
        loop {
            let Channel { ring, bytes, .. } = &self.channels[at];
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
        for reader in channel.readers.iter_mut().filter(|reader| reader.told > number) {
            reader.told -= 1;
        }
        if channel.ring.is_empty() {
            self.uses.end(&mut self.channels, at);
            self.weigh(at);
        }
    }

    /// Drops the history that was used least recently until all of it is within its limit. The newest message of one
    /// channel is spared: it has yet to be told.
    fn trim_memory(&mut self, spared: Option<u32>) {
        while self.memory > self.rules.memory_bytes && self.uses.oldest != NONE {
            let at = self.uses.oldest;
            if spared == Some(at) && self.channels[at].ring.len() == 1 {
                return;
            }
            self.drop_oldest(at);
            self.tell_of_loss(at);
            self.forget_if_unused(at);
        }
    }

    fn drop_expired(&mut self, at: u32, unix_ms: u64) {
        self.channels[at].timer = 0;
        while self.channels[at].expires_ms().is_some_and(|expires| expires <= unix_ms) {
            self.drop_oldest(at);
        }
        self.arm(at);
        self.tell_of_loss(at);
        self.forget_if_unused(at);
    }

    /// Sees to it that a channel is looked at when its oldest message is too old.
    fn arm(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        if channel.timer == 0
            && let Some(expires) = channel.expires_ms()
        {
            self.timers += 1;
            channel.timer = self.timers;
            self.ages.push(Reverse((expires, at, self.timers)));
        }
    }

    /// Drops the oldest message of a channel; says whether there was one.
    fn drop_oldest(&mut self, at: u32) -> bool {
        let channel = &mut self.channels[at];
        let Some(message) = channel.ring.pop_front() else { return false };
        let charge = message.charge();
        channel.bytes -= charge;
        channel.gone += 1;
        channel.lost_to = message.offset;
        self.memory -= charge;
        if channel.rules.durable
            && let Some(durable) = &mut self.durable
        {
            durable.evict(&channel.name, message.offset);
        }
        if channel.ring.is_empty() {
            self.uses.end(&mut self.channels, at);
            self.weigh(at);
        }
        true
    }

    /// Marks a channel for the cores that do not know what it has lost.
    fn tell_of_loss(&mut self, at: u32) {
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

    fn find(&self, name: &Name) -> Option<&Channel> {
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
        let at = self.channels.insert(Channel {
            name: name.clone(),
            rules,
            ring: Ring::default(),
            gone: 0,
            bytes: 0,
            lost_to: forgotten_to,
            forgotten_to: 0,
            readers: vec![Reader::default(); self.cores.len()].into(),
            subscribers: 0,
            roster: Roster::default(),
            newer: NONE,
            older: NONE,
            timer: 0,
            reading: None,
            idle: false,
        });
        self.names.insert(name.clone(), at);
        at
    }

    /// Brings [`Channel::idle`] up to date, once a channel may have got or lost its first message or subscriber.
    fn weigh(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        let empty = channel.ring.is_empty() && channel.subscribers == 0;
        let idle = empty && channel.readers.iter().any(|reader| reader.wanted);
        let before = std::mem::replace(&mut channel.idle, idle);
        self.idle = self.idle - usize::from(before) + usize::from(idle);
    }

    /// A channel without a message that nobody wants does not exist. Of a stream that others share nothing is kept
    /// that nobody wants: it can be read there again.
    fn forget_if_unused(&mut self, at: u32) {
        let unwanted = !self.channels[at].readers.iter().any(|reader| reader.wanted);
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
            self.forget_told(&name);
            self.let_go(name);
        }
    }

    fn check(&self, draft: &Draft) -> Result<(), Refusal> {
        let (bytes, most) = (draft.data.len(), self.rules.message_bytes);
        if bytes > most {
            return Err(Refusal::TooLarge { bytes, most });
        }
        if draft.key.as_ref().is_some_and(|key| key.key.len() > KEY_BYTES_MAX) {
            return Err(Refusal::KeyTooLong);
        }
        if let Some(event) = &draft.event {
            if event.starts_with("encke.") {
                return Err(Refusal::ReservedEvent);
            }
            if !is_label(event) {
                return Err(Refusal::BadEvent);
            }
        }
        if draft.content_type.as_ref().is_some_and(|media| !is_label(media)) {
            return Err(Refusal::BadType);
        }
        Ok(())
    }
}

impl Channel {
    /// What a core is to be told next.
    fn next_for(&self, core: usize) -> Option<Next> {
        let reader = &self.readers[core];
        if !reader.opened {
            return None;
        }
        // Messages went before it was told of them.
        let Some(index) = reader.told.checked_sub(self.gone) else { return Some(Next::Lost) };
        match self.ring.get(index as usize) {
            Some(message) => Some(Next::Message(Arc::clone(message))),
            None if self.lost_to > reader.lost_to => Some(Next::Lost),
            None => None,
        }
    }

    /// When the oldest message is too old.
    fn expires_ms(&self) -> Option<u64> {
        self.ring.front().map(|oldest| oldest.unix_ms.saturating_add(self.rules.age_ms))
    }
}

/// What a core is told of a channel.
enum Next {
    /// A message, and with it what was lost.
    Message(Arc<Message>),
    /// Only what was lost.
    Lost,
}

/// Whether a text may stand in a line of a protocol: not empty, not long, no line ends or other control characters.
fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control)
}

/// Joins of clients, at a limited rate.
#[derive(Debug, Default)]
struct Joins {
    /// Made at the first join under a rate.
    paces: Option<(NonZeroU32, Paces)>,
    /// Members that are listed later: when, where, and their names. At most `join_rate` times [`JOIN_WAIT_NS`] of each client.
    waiting: BinaryHeap<Reverse<(u64, Name, Arc<str>)>>,
}

impl Joins {
    /// Takes a client's next turn to join. Returns how long until it comes, in ns.
    ///
    /// # Errors
    /// It is more than [`JOIN_WAIT_NS`].
    fn reserve(&mut self, rate: Option<NonZeroU32>, client: Option<u64>, now_ns: u64) -> Result<u64, u64> {
        let (Some(rate), Some(client)) = (rate, client) else { return Ok(0) };
        if self.paces.as_ref().is_none_or(|(known, _)| *known != rate) {
            let burst = u64::from(rate.get()) * JOIN_BURST_S;
            self.paces = Some((rate, Paces::new(Pace::new(rate, burst))));
        }
        let paces = self.paces.as_mut().map(|(_, paces)| paces);
        paces.map_or(Ok(0), |paces| paces.reserve(client, now_ns, 1, JOIN_WAIT_NS))
    }
}

const NONE: u32 = u32::MAX;

/// Channels with a history in the order of their last use: a list through the channels themselves.
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
    /// A channel has a history.
    fn begin(&mut self, channels: &mut Slab<Channel>, at: u32) {
        channels[at].newer = NONE;
        channels[at].older = self.newest;
        match self.newest {
            NONE => self.oldest = at,
            newest => channels[newest].newer = at,
        }
        self.newest = at;
    }

    /// A channel has none any more.
    fn end(&mut self, channels: &mut Slab<Channel>, at: u32) {
        let Channel { newer, older, .. } = channels[at];
        match newer {
            NONE => self.newest = older,
            newer => channels[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => channels[older].newer = newer,
        }
    }

    /// A channel was used; nothing happens if it has no history.
    fn renew(&mut self, channels: &mut Slab<Channel>, at: u32) {
        if !channels[at].ring.is_empty() && self.newest != at {
            self.end(channels, at);
            self.begin(channels, at);
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, most } => {
                write!(f, "the message has {bytes} bytes; at most {most} are taken")
            }
            Self::TooManyChannels { most } => {
                write!(
                    f,
                    "there are {most} channels, as many as there may be: publish to one of them, or later"
                )
            }
            Self::KeyMismatch => f.write_str("something else was published under this idempotency key"),
            Self::KeyTooLong => write!(f, "an idempotency key has at most {KEY_BYTES_MAX} bytes"),
            Self::ReservedEvent => f.write_str("events that begin with encke. are the server's own"),
            Self::BadEvent => {
                write!(f, "an event's name has 1 to {LABEL_BYTES_MAX} bytes and no control characters")
            }
            Self::BadType => {
                write!(f, "a media type has 1 to {LABEL_BYTES_MAX} bytes and no control characters")
            }
            Self::NoSpace => {
                f.write_str("there is no space left to store it; channels that are not durable go on")
            }
            Self::NotStored => f.write_str("it could not be stored; the server's log says why"),
            Self::Stalled => {
                f.write_str("the store has not answered for so long that ids have run out; try later")
            }
            Self::Away => f.write_str("the cluster cannot be reached; nothing was published, try again"),
            Self::Unanswered => f.write_str(
                "the cluster has not answered in time, and may have the message: with an Idempotency-Key it can be \
                 sent again",
            ),
            Self::Crowded => f.write_str("too many messages wait for the cluster; try again"),
            Self::NotTaken => f.write_str("the cluster does not take it; the server's log says why"),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests;
