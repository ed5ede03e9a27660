//! Presence: joins and leaves are published in the stream, where all nodes read them.
//!
//! ```text
//!  joins here, and is on no other node ────► encke.join
//!  leaves here, and is on no other node ───► encke.leave
//!  encke.leave of a member present here ───► encke.join
//!  any other possible difference between announced and present ─► a doubt, checked some seconds later:
//!            present here, not announced ──► encke.join
//!            announced, present nowhere ───► encke.leave, with a key shared by all nodes that find this
//! ```
//! A node knows the members of other nodes with a delay, the stream may be unreachable, and nodes may crash. So an immediate
//! announcement is a guess, though usually right. To converge, each node compares the announced with the present members of its
//! channels, and corrects the stream. An event may therefore be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Sequencer;
use super::{ClusterCommand, PublishAck, PublishError};
use crate::message::{Draft, Flags, Message};
use crate::name::Name;
use crate::roster;

const JOIN: &str = "encke.join";
const LEAVE: &str = "encke.leave";

/// Time after which a doubt is checked: several times the delay until all nodes know of a change. In ns: 2 s.
const DOUBT_NS: u64 = 2 * 1_000_000_000;
/// Time after which an announcement in flight is repeated: longer than the default timeout of any publish. In ns: 10 s.
const WAY_NS: u64 = 10 * 1_000_000_000;

/// A join or a leave of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The channel.
    pub channel: Name,
    /// The name of the member.
    pub member: Arc<str>,
    /// Whether this is a join.
    pub joins: bool,
    /// For a leave found by a check: the offset of the member's join. Several nodes may find this leave; it is published once.
    pub after: Option<u64>,
}

impl Announcement {
    /// Returns the event to publish in the channel.
    pub fn draft(&self) -> Draft {
        Draft {
            channel: self.channel.clone(),
            data: roster::presence_payload(&self.member),
            content_type: Some("application/json".into()),
            event: Some(if self.joins { JOIN } else { LEAVE }.into()),
            flags: Flags::CONTROL,
            key: None,
        }
    }
}

/// The members announced in channels that are kept here, and possible differences.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Announced members of each channel, with the offsets of their joins.
    announced: BTreeMap<Name, BTreeMap<Arc<str>, u64>>,
    /// Possible differences between announced and present members.
    doubts: BTreeMap<(Name, Arc<str>), Doubt>,
    now_ns: u64,
}

#[derive(Debug)]
struct Doubt {
    /// When to check.
    due_ns: u64,
    /// An announcement is in flight.
    said: bool,
}

impl Presence {
    /// Records a join or a leave from the stream. Returns the member, and whether it joined.
    fn reads(&mut self, message: &Message) -> Option<(Arc<str>, bool)> {
        let came = match message.event.as_deref().filter(|_| message.flags.contains(Flags::CONTROL))? {
            JOIN => true,
            LEAVE => false,
            _ => return None,
        };
        let member: Arc<str> = roster::named(&message.data)?.into();
        if came {
            let members = self.announced.entry(message.channel.clone()).or_default();
            members.insert(Arc::clone(&member), message.offset);
        } else if let Some(members) = self.announced.get_mut(&message.channel) {
            members.remove(&member);
            if members.is_empty() {
                self.announced.remove(&message.channel);
            }
        }
        Some((member, came))
    }

    fn doubt(&mut self, channel: &Name, member: &Arc<str>, after_ns: u64, said: bool) {
        let due_ns = self.now_ns.saturating_add(after_ns);
        self.doubts.insert((channel.clone(), Arc::clone(member)), Doubt { due_ns, said });
    }

    fn announced_at(&self, channel: &Name, member: &Arc<str>) -> Option<u64> {
        self.announced.get(channel)?.get(member).copied()
    }

    fn is_announced(&self, key: &(Name, Arc<str>)) -> bool {
        self.doubts.get(key).is_some_and(|doubt| doubt.said)
    }

    /// Drops the announced members of a removed channel, except those in doubt.
    pub(super) fn forget(&mut self, channel: &Name) {
        let Some(told) = self.announced.get_mut(channel) else { return };
        told.retain(|member, _| self.doubts.contains_key(&(channel.clone(), Arc::clone(member))));
        if told.is_empty() {
            self.announced.remove(channel);
        }
    }
}

impl Sequencer {
    /// Handles the first local join of a name.
    pub(in super::super) fn join(&mut self, at: u32, member: &Arc<str>) {
        let name = self.channels[at].name.clone();
        // Announced already: the stream is faster than the announcements of nodes. But a leave of this node may be in flight.
        let told = self.shared.as_ref().is_some_and(|shared| {
            let key = (name.clone(), Arc::clone(member));
            shared.presence.announced_at(&name, member).is_some() && !shared.presence.is_announced(&key)
        });
        if told || self.is_elsewhere(&name, member) {
            self.doubts(&name, member);
        } else {
            self.announce(&name, member, true, None);
        }
    }

    /// Handles the last local leave of a name.
    pub(in super::super) fn leave(&mut self, at: u32, member: &Arc<str>) {
        let name = self.channels[at].name.clone();
        if self.is_elsewhere(&name, member) {
            self.doubts(&name, member);
        } else {
            self.announce(&name, member, false, None);
        }
    }

    /// Handles leaves on another node.
    pub(super) fn leave_elsewhere(&mut self, members: impl IntoIterator<Item = (Name, Arc<str>)>) {
        for (channel, member) in members {
            self.doubts(&channel, &member);
        }
    }

    /// Handles a join or a leave that arrives in the stream.
    pub(super) fn on_presence_message(&mut self, message: &Message) {
        let Some(shared) = &mut self.shared else { return };
        let Some((member, came)) = shared.presence.reads(message) else { return };
        let channel = &message.channel;
        let here = self.is_here(channel, &member);
        let there = here || self.is_elsewhere(channel, &member);
        let Some(shared) = &mut self.shared else { return };
        let key = (channel.clone(), member);
        if came == there {
            shared.presence.doubts.remove(&key);
        } else if here && !shared.presence.is_announced(&key) {
            self.announce(&key.0, &key.1, true, None);
        } else {
            self.doubts(&key.0, &key.1);
        }
    }

    /// Reads the joins and leaves in the loaded history of a channel, which come before the live ones.
    pub(super) fn recalls(&mut self, at: u32) {
        let channel = &self.channels[at];
        let Some(shared) = &mut self.shared else { return };
        let told: Vec<Arc<str>> =
            channel.ring.iter().filter_map(|message| Some(shared.presence.reads(message)?.0)).collect();
        let name = channel.name.clone();
        told.iter().for_each(|member| self.doubts(&name, member));
    }

    /// Applies the result of an announcement.
    pub(super) fn announced(&mut self, announcement: &Announcement, fate: Result<PublishAck, PublishError>) {
        if let (Some(shared), Err(_)) = (&mut self.shared, fate) {
            shared.presence.doubt(&announcement.channel, &announcement.member, DOUBT_NS, false);
        }
    }

    /// Checks the doubts that are due, and publishes corrections.
    pub(in super::super) fn settles_doubts(&mut self, now_ns: u64) {
        let Some(shared) = &mut self.shared else { return };
        shared.presence.now_ns = now_ns;
        if !shared.up {
            return;
        }
        let due = shared.presence.doubts.iter().filter(|(_, doubt)| doubt.due_ns <= now_ns);
        let due: Vec<(Name, Arc<str>)> = due.map(|(key, _)| key.clone()).collect();
        for (channel, member) in due {
            let (here, elsewhere) = (self.is_here(&channel, &member), self.is_elsewhere(&channel, &member));
            let Some(shared) = &mut self.shared else { return };
            shared.presence.doubts.remove(&(channel.clone(), Arc::clone(&member)));
            match shared.presence.announced_at(&channel, &member) {
                None if here => self.announce(&channel, &member, true, None),
                Some(offset) if !here && !elsewhere => self.announce(&channel, &member, false, Some(offset)),
                _ => {}
            }
            self.drop_announced(&channel);
        }
    }

    /// Drops the announced members of a channel that does not exist here.
    pub(in super::super) fn drop_announced(&mut self, channel: &Name) {
        let kept = self.names.contains_key(channel);
        if let Some(shared) = self.shared.as_mut().filter(|_| !kept) {
            shared.presence.forget(channel);
        }
    }

    fn doubts(&mut self, channel: &Name, member: &Arc<str>) {
        if self.rules.of(channel).presence
            && let Some(shared) = &mut self.shared
            && !shared.presence.is_announced(&(channel.clone(), Arc::clone(member)))
        {
            shared.presence.doubt(channel, member, DOUBT_NS, false);
        }
    }

    fn announce(&mut self, channel: &Name, member: &Arc<str>, comes: bool, after: Option<u64>) {
        if !self.rules.of(channel).presence {
            return;
        }
        let Some(shared) = &mut self.shared else { return };
        if !shared.up {
            return shared.presence.doubt(channel, member, DOUBT_NS, false);
        }
        shared.presence.doubt(channel, member, WAY_NS, true);
        let (channel, member) = (channel.clone(), Arc::clone(member));
        shared.commands.push(ClusterCommand::Announce(Announcement { channel, member, joins: comes, after }));
    }

    fn is_here(&self, channel: &Name, member: &Arc<str>) -> bool {
        self.find(channel).is_some_and(|channel| channel.roster.has(member))
    }

    fn is_elsewhere(&self, channel: &Name, member: &Arc<str>) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.audiences.have(channel, member))
    }
}
