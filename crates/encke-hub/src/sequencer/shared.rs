//! A stream shared by several sequencers, which is ordered elsewhere: commands to the stream, and events from it.
//!
//! ```text
//!  sequencer   ClusterCommand                 ClusterEvent
//!  publish ──► Publish ─► the stream ─┬─► Placed, to the owner of the ticket
//!                                     └─► Messages, to every node ─► rings, workers
//!  want ─────► Read ────► history ──────► Past ───► ring, before the channel opens
//!  recall ───► Recall ──► history ──────► Recalled ─► subscribers at positions before the ring
//!  unwant ───► Release ─► no more messages of the channel
//! ```
//! **The stream assigns every offset.** A message enters a ring when it arrives in stream order, even on the node that
//! published it. So offsets are the stream's sequence numbers, and a position of one node means the same on every other.
//!
//! **Only subscribed channels are kept.** A channel exists here while a worker wants it; the stream need not send others. A
//! channel opens once its history is loaded up to an offset after which live messages are complete. Later messages are already
//! in its ring. So a resume compares one number with the loss of the channel, as without a cluster.
//!
//! **An outage affects only publishers**, whose publishes are rejected or queued ([`Queueing`]). Subscribers stay connected,
//! receive messages from the rings, and receive the others when the stream is back. Messages that the stream dropped meanwhile
//! are lost.

use std::collections::HashMap;
use std::sync::Arc;

mod audience;
mod history;
mod presence;
mod queue;

pub use audience::{AudienceChange, NodeId};
pub use history::Recall;
pub use presence::Announcement;
pub use queue::{Backlog, Queueing};

use audience::Audiences;
use presence::Presence;
use queue::PublishQueue;

use super::{HubNow, PublishError, PublishTicket, Published, Publishing, Sequencer};
use crate::message::{Draft, Flags, Message};
use crate::name::Name;
use crate::position::Epoch;
use crate::rules::{Ack, ChannelRules, Rules};
use crate::values::Recalled;

/// Messages of this node in flight to the stream. This exceeds the messages of one publish request (10,000). At a round trip of
/// 1 ms it allows 16 million per second, and at 100 bytes each it takes two megabytes.
const FLIGHTS_MAX: usize = 16_384;

/// Bytes of payload in flight. 64 MiB: 64 of the largest messages by default. A single larger message is sent alone.
const FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A command from a sequencer to the stream.
#[derive(Debug)]
pub enum ClusterCommand {
    /// Publish a message. [`ClusterEvent::Placed`] returns the result with the ticket, once; results may arrive in any order.
    Publish {
        /// The ticket of the result.
        ticket: PublishTicket,
        /// The message.
        draft: Draft,
        /// Number of a message from the queue, which is unique to this sequencer and stays the same if the message is sent
        /// again. By this number the stream detects a message that it already has.
        number: Option<u64>,
    },
    /// Deliver a channel from now on, and read its history. [`ClusterEvent::Past`] returns the history with the ticket, as soon as it
    /// can be read.
    Read {
        /// The ticket of the result.
        ticket: PublishTicket,
        /// The channel.
        channel: Name,
        /// Read up to this offset or a later one.
        to: u64,
        /// Maximum number of messages; the newest ones are read.
        most: usize,
    },
    /// Stop delivering a channel.
    Release {
        /// The channel.
        channel: Name,
    },
    /// Announce a change of this node's subscribers to the other nodes.
    Tell(AudienceChange),
    /// Publish a join or a leave. [`ClusterEvent::Announced`] returns the result.
    Announce(Announcement),
    /// Read messages before the rings. [`ClusterEvent::Recalled`] returns about one run of them, or none if the stream cannot be read
    /// now. The hub then requests them again.
    Recall {
        /// The request that the result is for.
        recall: Recall,
        /// The channels to read.
        channels: Vec<Name>,
        /// Read messages after this offset.
        after: u64,
        /// Read messages up to this offset.
        to: u64,
    },
    /// Publish a [`Draft::tombstone`] up to the newest message of a channel, and purge the messages that it deletes.
    /// [`ClusterEvent::Placed`] returns the result with the ticket, once the tombstone has an offset.
    Forget {
        /// The ticket of the result.
        ticket: PublishTicket,
        /// The channel.
        channel: Name,
    },
}

/// An event from the stream to a sequencer.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The stream is reachable.
    Up,
    /// The stream is unreachable.
    Down,
    /// The next messages. Those of a channel may be missing before its history is sent, and after its release.
    Messages {
        /// The messages in offset order.
        messages: Vec<Arc<Message>>,
        /// Everything up to this offset is delivered.
        to: u64,
    },
    /// Messages up to this offset, after the last delivered one, were dropped before delivery.
    Lost {
        /// Messages up to this offset are lost.
        to: u64,
    },
    /// The history of a channel.
    Past {
        /// The ticket of the request.
        ticket: PublishTicket,
        /// The channel.
        channel: Name,
        /// The offset up to which the history was read. Everything up to it was delivered before. Messages of the channel after
        /// it were delivered, or will be.
        to: u64,
        /// Messages up to this offset are lost, or not included.
        lost_to: u64,
        /// The messages in offset order.
        messages: Vec<Arc<Message>>,
    },
    /// The result of a publish.
    Placed {
        /// The ticket of the publish.
        ticket: PublishTicket,
        /// The offset of the message, or the reason of a rejection.
        fate: Result<PublishAck, PublishError>,
    },
    /// Another node announced a change of its subscribers.
    Told {
        /// The node.
        node: NodeId,
        /// Earlier announcements of this node are void.
        anew: bool,
        /// The changes.
        changes: Vec<AudienceChange>,
    },
    /// Another node has ended.
    Gone {
        /// The node.
        node: NodeId,
    },
    /// Messages before the rings.
    Recalled {
        /// The request that the result is for.
        recall: Recall,
        /// The messages and the losses.
        run: Recalled,
    },
    /// The result of an announcement.
    Announced {
        /// The announcement.
        announcement: Announcement,
        /// The offset of the event, or the reason of a rejection.
        fate: Result<PublishAck, PublishError>,
    },
}

/// The acknowledgement of a message by the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishAck {
    /// The offset of the message.
    pub offset: u64,
    /// The stream already had the message, by its idempotency key.
    pub repeated: bool,
}

/// The state of a sequencer that follows a shared stream.
#[derive(Debug)]
pub(super) struct SharedStream {
    up: bool,
    tickets: u64,
    /// Publishes in flight, with their channels and payload bytes.
    flights: HashMap<PublishTicket, (Name, usize)>,
    bytes: usize,
    commands: Vec<ClusterCommand>,
    audiences: Audiences,
    presence: Presence,
    queue: PublishQueue,
}

impl Sequencer {
    /// Creates a sequencer that follows a shared stream, which is at offset `newest`. [`Self::on_event`] takes the events of the
    /// stream, [`Self::take_commands`] returns the commands to it. Durability is up to the stream: nothing is stored here.
    pub fn follow(epoch: Epoch, newest: u64, rules: Arc<Rules>, cores: usize) -> Self {
        let mut sequencer = Self::new(epoch, rules, cores);
        sequencer.newest = newest;
        sequencer.shared = Some(SharedStream {
            up: true,
            tickets: 0,
            flights: HashMap::new(),
            bytes: 0,
            commands: Vec::new(),
            audiences: Audiences::default(),
            presence: Presence::default(),
            queue: PublishQueue::default(),
        });
        sequencer
    }

    /// Returns whether publishes are possible: the stream is reachable, or is the sequencer's own.
    pub fn is_up(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.up)
    }

    /// Returns whether the sequencer follows a shared stream.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Sets the limits of the publish queue. By default no messages are queued.
    pub fn limit_queue(&mut self, limits: Queueing) {
        if let Some(shared) = &mut self.shared {
            shared.queue.limit(limits);
        }
    }

    /// Lends a part of the memory limit to the local stream, in bytes ([`Rules::share`]).
    pub fn lend(&mut self, bytes: u64) {
        if std::mem::replace(&mut self.lent, bytes) < bytes {
            self.trim_memory(None);
        }
    }

    /// Returns the state of the publish queue.
    pub fn backlog(&self) -> Backlog {
        self.shared.as_ref().map_or_else(Backlog::default, |shared| shared.queue.backlog())
    }

    /// Drops messages that were queued for too long. Returns when the queue needs another call.
    pub(super) fn expire_queue(&mut self, now_ns: u64) -> Option<u64> {
        self.shared.as_mut().and_then(|shared| shared.queue.expire(now_ns))
    }

    /// Appends the commands to the stream, in order.
    pub fn take_commands(&mut self, into: &mut Vec<ClusterCommand>) {
        if let Some(shared) = &mut self.shared {
            if shared.up {
                shared.queue.send(&mut shared.commands);
            }
            into.append(&mut shared.commands);
            self.take_changes(into);
        }
    }

    /// Applies an event from the stream. Returns the result of a publish, if the event is one.
    pub fn on_event(
        &mut self,
        news: ClusterEvent,
    ) -> Option<(PublishTicket, Result<Published, PublishError>)> {
        let shared = self.shared.as_mut()?;
        match news {
            ClusterEvent::Up => shared.up = true,
            ClusterEvent::Down => {
                if std::mem::replace(&mut shared.up, false) {
                    shared.queue.waits_for(shared.flights.values().map(|(channel, _)| channel));
                }
            }
            ClusterEvent::Messages { messages, to } => {
                for message in messages {
                    self.arrives(message);
                }
                self.newest = self.newest.max(to);
            }
            ClusterEvent::Lost { to } => self.lose_all(to),
            ClusterEvent::Past { ticket, channel, to, lost_to, messages } => {
                self.learn(ticket, &channel, to, lost_to, messages);
            }
            ClusterEvent::Placed { ticket, fate } => {
                if shared.queue.lands(ticket, fate.err()) {
                    return None;
                }
                let (channel, bytes) = shared.flights.remove(&ticket)?;
                shared.bytes -= bytes;
                shared.queue.is_answered(&channel);
                let subscribers = self.subscribers(&channel);
                let wanted = self.names.contains_key(&channel);
                let published = |PublishAck { offset, repeated }| Published {
                    position: self.at(offset),
                    subscribers,
                    repeated,
                    early: false,
                    wanted,
                };
                return Some((ticket, fate.map(published)));
            }
            ClusterEvent::Told { node, anew, changes } => self.hears_of_node(node, anew, changes),
            ClusterEvent::Gone { node } => self.hears_of_end(node),
            ClusterEvent::Recalled { recall, run } => self.recalled(recall, run),
            ClusterEvent::Announced { announcement, fate } => self.announced(&announcement, fate),
        }
        None
    }

    /// Sends a draft to the stream, or queues it.
    pub(super) fn send_or_queue(
        &mut self,
        now: HubNow,
        mut draft: Draft,
    ) -> Result<Publishing, PublishError> {
        let shared = self.shared.as_mut().expect("only one that follows a stream hands over");
        // Only the server may set these flags, and the stream carries no media.
        draft.flags = draft.flags.without(Flags::RESERVED);
        if shared.queue.is_on() {
            let behind = !shared.up || shared.queue.has_line(&draft.channel);
            if behind || self.rules.of(&draft.channel).ack == Ack::Local {
                shared.tickets += 1;
                let channel = draft.channel.clone();
                return if shared.queue.push(now.mono_ns, PublishTicket(shared.tickets), draft) {
                    Ok(Publishing::Queued { subscribers: self.subscribers(&channel) })
                } else {
                    Err(if shared.up { PublishError::Crowded } else { PublishError::Away })
                };
            }
        }
        if !shared.up {
            return Err(PublishError::Away);
        }
        let bytes = draft.data.len();
        let full = shared.bytes + bytes > FLIGHT_BYTES_MAX && !shared.flights.is_empty();
        if full || shared.flights.len() >= FLIGHTS_MAX {
            return Err(PublishError::Crowded);
        }
        let ticket = shared.next_ticket();
        shared.flights.insert(ticket, (draft.channel.clone(), bytes));
        shared.bytes += bytes;
        shared.commands.push(ClusterCommand::Publish { ticket, draft, number: None });
        Ok(Publishing::Waits(ticket))
    }

    /// Requests the history of a new channel.
    pub(super) fn request_history(&mut self, at: u32) {
        let Some(shared) = &mut self.shared else { return };
        let ticket = shared.next_ticket();
        let channel = &mut self.channels[at];
        channel.reading = Some(ticket);
        let ChannelRules { messages, .. } = channel.rules;
        let (channel, to, most) = (channel.name.clone(), self.newest, messages.max(1));
        shared.commands.push(ClusterCommand::Read { ticket, channel, to, most });
    }

    /// Releases a removed channel.
    pub(super) fn release(&mut self, channel: Name) {
        if let Some(shared) = &mut self.shared {
            shared.commands.push(ClusterCommand::Release { channel });
        }
    }

    /// Applies the next message of the stream.
    fn arrives(&mut self, message: Arc<Message>) {
        // Delivered again after an outage.
        if message.offset <= self.newest {
            return;
        }
        match self.names.get(&message.channel) {
            Some(&at) => {
                if let Some(to) = message.forgets_to() {
                    return self.buries(at, message.offset, to);
                }
                if message.flags.contains(Flags::CONTROL) {
                    self.on_presence_message(&message);
                }
                self.append(at, message);
            }
            None => self.newest = message.offset,
        }
    }

    /// Applies the history of a channel, from before its live messages. If the ring has lost messages after that history, the
    /// history is before a gap and counts as lost.
    fn learn(
        &mut self,
        ticket: PublishTicket,
        name: &Name,
        to: u64,
        lost_to: u64,
        mut messages: Vec<Arc<Message>>,
    ) {
        let Some(&at) = self.names.get(name) else { return };
        // The response to an earlier want of a channel that was released and is wanted again.
        if self.channels[at].reading != Some(ticket) {
            return;
        }
        let forgotten_to = history::apply_tombstones(&mut messages).max(self.channels[at].forgotten_to);
        (self.channels[at].reading, self.channels[at].forgotten_to) = (None, forgotten_to);
        if self.channels[at].lost_to <= to {
            // The history contains all messages up to this offset.
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
            // The oldest message has changed.
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
            if self.channels[at].feeds[core].wanted {
                self.cores[core].opening.push_back(at);
            }
        }
        self.trim_memory(Some(at));
    }

    /// Applies a loss of unknown messages, which counts for every channel.
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
            // Counts one more message that no worker was fed: so every worker receives the loss before any later message.
            self.channels[at].gone += 1;
            self.channels[at].lost_to = to;
            self.mark_lost(at);
        }
    }
}

impl SharedStream {
    fn next_ticket(&mut self) -> PublishTicket {
        self.tickets += 1;
        PublishTicket(self.tickets)
    }
}

impl Message {
    /// Creates a message with its offset in a stream that others write to as well. Omits labels that no line protocol can
    /// carry. Removes properties reserved to the server, unless the writer is a node (`official`).
    pub fn placed(offset: u64, unix_ms: u64, draft: Draft, official: bool) -> Self {
        let Draft { channel, data, content_type, event, flags, key: _ } = draft;
        let text = !flags.contains(Flags::BINARY) && std::str::from_utf8(&data).is_ok();
        Self {
            offset,
            channel,
            data,
            text,
            content_type: content_type.filter(|label| super::is_label(label)),
            event: event.filter(|label| super::is_label(label) && (official || !label.starts_with("encke."))),
            unix_ms,
            flags: if official { flags } else { flags.without(Flags::RESERVED) },
        }
    }
}

#[cfg(test)]
mod tests;
