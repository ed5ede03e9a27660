//! A stream whose order is made elsewhere, for several sequencers: what this one asks for, and what it hears.
//!
//! ```text
//!  publish ─► Errand::Publish ─► the stream ─┬─► News::Placed ─► whoever waits for the ticket
//!                                            └─► News::Messages, to every node ─► rings, cores
//!  want ────► Errand::Read ────► its past ─────► News::Past ───► ring, before the channel is opened
//!  recall ──► Errand::Recall ──► its past ─────► News::Recalled ► whoever is farther behind than a ring reaches
//!  unwant ──► Errand::Release ─► no more of it
//! ```
//! **Nothing has a place before the stream has given it one.** A message enters a ring when it comes back in the order
//! of the stream, also on the node where it was published. So offsets are the stream's sequences, and a position of one
//! node means the same on every other.
//!
//! **Only what is wanted is kept, and comes.** A channel exists here while a core wants it; of others the stream need tell
//! nothing. It is opened when its past was read up to an offset from which on all of it comes; what has come behind that is
//! in its ring already. Hence a resume compares one number with what the channel has lost, as everywhere.
//!
//! **An outage is told to publishers, and to nobody else**; or their messages wait ([`Queueing`]). Whoever listens stays, is served from the rings, and gets
//! what came meanwhile when it comes. If the stream has dropped messages before they came here, that is a loss.

use std::collections::HashMap;
use std::sync::Arc;

mod audience;
mod history;
mod presence;
mod queue;

pub use audience::{Change, NodeId};
pub use history::Recall;
pub use presence::Announcement;
pub use queue::{Backlog, Queueing};

use audience::Audiences;
use presence::Presence;
use queue::Queue;

use super::{Now, Published, Publishing, Refusal, Sequencer, Ticket};
use crate::message::{Draft, Flags, Message};
use crate::name::Name;
use crate::position::Epoch;
use crate::rules::{Ack, ChannelRules, Rules};
use crate::values::Recalled;

/// Messages of this node on their way to the stream. More than one request may publish (10,000); at 1 ms a round trip that
/// is 16 million a second, and at 100 bytes each two megabytes.
const FLIGHTS_MAX: usize = 16_384;

/// Bytes of payload on their way. 64 MiB: 64 of the largest messages by default; a single larger one goes alone.
const FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a sequencer wants of the stream.
#[derive(Debug)]
pub enum Errand {
    /// Publish: [`News::Placed`] answers the ticket, once and in any order.
    Publish {
        /// Names it.
        ticket: Ticket,
        /// What.
        draft: Draft,
        /// It waited in the queue and may be asked for again, then under the same number. No other of this sequencer has it:
        /// by that the stream knows a message that it has already.
        number: Option<u64>,
    },
    /// Tell of a channel from now on, and read what it keeps: [`News::Past`] answers the ticket, as soon as it can be read.
    Read {
        /// Names it.
        ticket: Ticket,
        /// Which one.
        channel: Name,
        /// Up to this offset, or a later one.
        to: u64,
        /// At most so many, the newest of them.
        most: usize,
    },
    /// Nothing more of a channel need be told.
    Release {
        /// Which one.
        channel: Name,
    },
    /// Tell the other nodes what has changed with those who listen here.
    Tell(Change),
    /// Publish that somebody came or went: [`News::Announced`] answers.
    Announce(Announcement),
    /// Read what is before the rings: [`News::Recalled`] answers, with as much as a run takes, or with nothing if it cannot be
    /// read now; then it is asked for again.
    Recall {
        /// For whom.
        recall: Recall,
        /// Which channels.
        channels: Vec<Name>,
        /// Behind which offset.
        after: u64,
        /// Up to which offset.
        to: u64,
    },
    /// Publish a [`Draft::tombstone`] up to what is the newest message of a channel, and remove what is forgotten:
    /// [`News::Placed`] answers the ticket as soon as the tombstone has its place.
    Forget {
        /// Names it.
        ticket: Ticket,
        /// Which channel.
        channel: Name,
    },
}

/// What a sequencer hears of the stream.
#[derive(Debug)]
pub enum News {
    /// The stream can be reached.
    Up,
    /// It cannot.
    Down,
    /// What came next. Those of a channel may be left out before its past is told, and when it is released.
    Messages {
        /// In their order.
        messages: Vec<Arc<Message>>,
        /// Everything up to here is told.
        to: u64,
    },
    /// Messages up to here, behind what was told last, were dropped before they could be told.
    Lost {
        /// Up to which offset.
        to: u64,
    },
    /// What a channel keeps.
    Past {
        /// For whom it was read.
        ticket: Ticket,
        /// Which one.
        channel: Name,
        /// Up to which offset was read. Everything up to there was told before; and what the channel has behind it was told,
        /// or will be.
        to: u64,
        /// Up to which offset messages were lost, or are not among these.
        lost_to: u64,
        /// In their order.
        messages: Vec<Arc<Message>>,
    },
    /// What became of a publish.
    Placed {
        /// Of which one.
        ticket: Ticket,
        /// Its place, or why it has none.
        fate: Result<Place, Refusal>,
    },
    /// Another node has told what has changed with those who listen there.
    Told {
        /// Which one.
        node: NodeId,
        /// What it told before is void.
        anew: bool,
        /// What has changed.
        changes: Vec<Change>,
    },
    /// Another node has ended.
    Gone {
        /// Which one.
        node: NodeId,
    },
    /// What is before the rings.
    Recalled {
        /// For whom.
        recall: Recall,
        /// What there is.
        run: Recalled,
    },
    /// What became of an announcement.
    Announced {
        /// Which one.
        announcement: Announcement,
        /// Its place, or why it has none.
        fate: Result<Place, Refusal>,
    },
}

/// The place of a message in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its offset.
    pub offset: u64,
    /// It was there already, by its idempotency key.
    pub repeated: bool,
}

/// The stream's side of a sequencer.
#[derive(Debug)]
pub(super) struct Shared {
    up: bool,
    tickets: u64,
    /// What is on its way, and of how many bytes.
    flights: HashMap<Ticket, (Name, usize)>,
    bytes: usize,
    errands: Vec<Errand>,
    audiences: Audiences,
    presence: Presence,
    queue: Queue,
}

impl Sequencer {
    /// One of several that follow a stream, which has come to the offset `newest`. It is told by [`Self::hear`], and
    /// asks by [`Self::take_errands`]. Nothing of its rules is stored here: that is the stream's to do.
    pub fn follow(epoch: Epoch, newest: u64, rules: Arc<Rules>, cores: usize) -> Self {
        let mut sequencer = Self::new(epoch, rules, cores);
        sequencer.newest = newest;
        sequencer.shared = Some(Shared {
            up: true,
            tickets: 0,
            flights: HashMap::new(),
            bytes: 0,
            errands: Vec::new(),
            audiences: Audiences::default(),
            presence: Presence::default(),
            queue: Queue::default(),
        });
        sequencer
    }

    /// Whether publishers can be served: the stream can be reached, or is this sequencer's own.
    pub fn is_up(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.up)
    }

    /// Lets messages wait for the stream, so many and so long. By default none do.
    pub fn limit_queue(&mut self, limits: Queueing) {
        if let Some(shared) = &mut self.shared {
            shared.queue.limit(limits);
        }
    }

    /// What waits for the stream.
    pub fn backlog(&self) -> Backlog {
        self.shared.as_ref().map_or_else(Backlog::default, |shared| shared.queue.backlog())
    }

    /// Drops what has waited for the stream for too long, and says when something will have next.
    pub(super) fn expire_queue(&mut self, now_ns: u64) -> Option<u64> {
        self.shared.as_mut().and_then(|shared| shared.queue.expire(now_ns))
    }

    /// Appends what the stream is asked, in this order.
    pub fn take_errands(&mut self, into: &mut Vec<Errand>) {
        if let Some(shared) = &mut self.shared {
            if shared.up {
                shared.queue.send(&mut shared.errands);
            }
            into.append(&mut shared.errands);
            self.take_changes(into);
        }
    }

    /// Hears of the stream; says what became of a publish, if it is about one.
    pub fn hear(&mut self, news: News) -> Option<(Ticket, Result<Published, Refusal>)> {
        let shared = self.shared.as_mut()?;
        match news {
            News::Up => shared.up = true,
            News::Down => {
                if std::mem::replace(&mut shared.up, false) {
                    shared.queue.waits_for(shared.flights.values().map(|(channel, _)| channel));
                }
            }
            News::Messages { messages, to } => {
                for message in messages {
                    self.arrives(message);
                }
                self.newest = self.newest.max(to);
            }
            News::Lost { to } => self.lose_all(to),
            News::Past { ticket, channel, to, lost_to, messages } => {
                self.learn(ticket, &channel, to, lost_to, messages);
            }
            News::Placed { ticket, fate } => {
                if shared.queue.lands(ticket, fate.err()) {
                    return None;
                }
                let (channel, bytes) = shared.flights.remove(&ticket)?;
                shared.bytes -= bytes;
                shared.queue.is_answered(&channel);
                let subscribers = self.subscribers(&channel);
                let wanted = self.names.contains_key(&channel);
                let published = |Place { offset, repeated }| Published {
                    position: self.at(offset),
                    subscribers,
                    repeated,
                    early: false,
                    wanted,
                };
                return Some((ticket, fate.map(published)));
            }
            News::Told { node, anew, changes } => self.hears_of_node(node, anew, changes),
            News::Gone { node } => self.hears_of_end(node),
            News::Recalled { recall, run } => self.recalled(recall, run),
            News::Announced { announcement, fate } => self.announced(&announcement, fate),
        }
        None
    }

    /// Sends a draft on its way to the stream, or lets it wait.
    pub(super) fn hand_over(&mut self, now: Now, mut draft: Draft) -> Result<Publishing, Refusal> {
        let shared = self.shared.as_mut().expect("only one that follows a stream hands over");
        // Only the server speaks for itself.
        draft.flags = draft.flags.without(Flags::CONTROL);
        if shared.queue.is_on() {
            let behind = !shared.up || shared.queue.has_line(&draft.channel);
            if behind || self.rules.of(&draft.channel).ack == Ack::Local {
                shared.tickets += 1;
                let channel = draft.channel.clone();
                return if shared.queue.push(now.mono_ns, Ticket(shared.tickets), draft) {
                    Ok(Publishing::Queued { subscribers: self.subscribers(&channel) })
                } else {
                    Err(if shared.up { Refusal::Crowded } else { Refusal::Away })
                };
            }
        }
        if !shared.up {
            return Err(Refusal::Away);
        }
        let bytes = draft.data.len();
        let full = shared.bytes + bytes > FLIGHT_BYTES_MAX && !shared.flights.is_empty();
        if full || shared.flights.len() >= FLIGHTS_MAX {
            return Err(Refusal::Crowded);
        }
        let ticket = shared.next_ticket();
        shared.flights.insert(ticket, (draft.channel.clone(), bytes));
        shared.bytes += bytes;
        shared.errands.push(Errand::Publish { ticket, draft, number: None });
        Ok(Publishing::Waits(ticket))
    }

    /// A channel begins to exist: what it keeps is read.
    pub(super) fn ask_for_past(&mut self, at: u32) {
        let Some(shared) = &mut self.shared else { return };
        let ticket = shared.next_ticket();
        let channel = &mut self.channels[at];
        channel.reading = Some(ticket);
        let ChannelRules { messages, .. } = channel.rules;
        let (channel, to, most) = (channel.name.clone(), self.newest, messages.max(1));
        shared.errands.push(Errand::Read { ticket, channel, to, most });
    }

    /// A channel no longer exists.
    pub(super) fn let_go(&mut self, channel: Name) {
        if let Some(shared) = &mut self.shared {
            shared.errands.push(Errand::Release { channel });
        }
    }

    /// The next message of the stream.
    fn arrives(&mut self, message: Arc<Message>) {
        // Told again after an outage.
        if message.offset <= self.newest {
            return;
        }
        match self.names.get(&message.channel) {
            Some(&at) => {
                if let Some(to) = message.forgets_to() {
                    return self.buries(at, message.offset, to);
                }
                if message.flags.contains(Flags::CONTROL) {
                    self.hears_of_member(&message);
                }
                self.append(at, message);
            }
            None => self.newest = message.offset,
        }
    }

    /// What a channel kept before all of it came here. If its ring has lost messages behind that, the past is behind a
    /// hole, and belongs to what is lost.
    fn learn(&mut self, ticket: Ticket, name: &Name, to: u64, lost_to: u64, mut messages: Vec<Arc<Message>>) {
        let Some(&at) = self.names.get(name) else { return };
        // An answer to somebody who had let go of the channel and wants it again.
        if self.channels[at].reading != Some(ticket) {
            return;
        }
        let forgotten_to = history::bury(&mut messages).max(self.channels[at].forgotten_to);
        (self.channels[at].reading, self.channels[at].forgotten_to) = (None, forgotten_to);
        if self.channels[at].lost_to <= to {
            // What came before is part of the past, which has all of it.
            while self.channels[at].ring.front().is_some_and(|message| message.offset <= to) {
                self.drop_oldest(at);
            }
            let channel = &mut self.channels[at];
            let lost_to = lost_to.max(forgotten_to);
            channel.lost_to = lost_to;
            let first = channel.ring.is_empty();
            for message in messages.into_iter().rev().filter(|message| message.offset > lost_to) {
                let charge = message.charge();
                channel.bytes += charge;
                self.memory += charge;
                channel.ring.push_front(message);
            }
            // The oldest message is another one.
            channel.timer = 0;
            if first && !channel.ring.is_empty() {
                self.weigh(at);
                self.uses.begin(&mut self.channels, at);
            }
            self.recalls(at);
            self.trim(at);
            self.arm(at);
        }
        for core in 0..self.cores.len() {
            if self.channels[at].readers[core].wanted {
                self.cores[core].opening.push_back(at);
            }
        }
        self.trim_memory(Some(at));
    }

    /// Nobody can say whose messages were lost.
    fn lose_all(&mut self, to: u64) {
        if to <= self.newest {
            return;
        }
        self.newest = to;
        for at in 0..self.channels.places() {
            if self.channels.get(at).is_none() {
                continue;
            }
            while self.drop_oldest(at) {}
            // As if one more had gone of which no core was told: they hear of it before anything behind it.
            self.channels[at].gone += 1;
            self.channels[at].lost_to = to;
            self.tell_of_loss(at);
        }
    }
}

impl Shared {
    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}

impl Message {
    /// A message at its place in a stream that others write to as well. Labels that no line of a protocol could carry are
    /// left out; and so is, unless a node says it (`official`), what only the server may say.
    pub fn placed(offset: u64, unix_ms: u64, draft: Draft, official: bool) -> Self {
        let Draft { channel, data, content_type, event, flags, key: _ } = draft;
        let text = std::str::from_utf8(&data).is_ok();
        Self {
            offset,
            channel,
            data,
            text,
            content_type: content_type.filter(|label| super::is_label(label)),
            event: event.filter(|label| super::is_label(label) && (official || !label.starts_with("encke."))),
            unix_ms,
            flags: if official { flags } else { flags.without(Flags::CONTROL) },
        }
    }
}

#[cfg(test)]
mod tests;
