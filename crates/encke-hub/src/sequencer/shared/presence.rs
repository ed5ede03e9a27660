//! Who comes and goes, told in the stream, where all nodes read it.
//!
//! ```text
//!  comes here, and nobody elsewhere has the name ─► encke.join
//!  goes here, and nobody elsewhere has it ────────► encke.leave
//!  encke.leave of somebody who is here ───────────► encke.join
//!  anything else in which what was told and what is so may differ ─► a doubt, looked at some seconds later:
//!                      is here, and was not told ───► encke.join
//!                      is nowhere, and was told ────► encke.leave, under one name by whoever finds that
//! ```
//! Nodes know of each other what was so a moment ago, the stream may be out of reach, and nodes die. So what is told at
//! once is a guess, mostly a good one; what makes it true in the end is that each node compares the stream with those who are
//! there, in the channels that it keeps, and corrects it. Now and then something is told twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Sequencer;
use super::{Errand, Place, Refusal};
use crate::message::{Draft, Flags, Message};
use crate::name::Name;
use crate::roster;

const JOIN: &str = "encke.join";
const LEAVE: &str = "encke.leave";

/// How long a doubt may solve itself: several times what it takes until all nodes know of a change. In ns: 2 s.
const DOUBT_NS: u64 = 2 * 1_000_000_000;
/// How long an announcement may be on its way before it is made again: longer than any publish waits by default. In ns: 10 s.
const WAY_NS: u64 = 10 * 1_000_000_000;

/// Somebody came to a channel, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Where.
    pub channel: Name,
    /// Who.
    pub member: Arc<str>,
    /// It came.
    pub comes: bool,
    /// It went, as was found after it had been told at this offset that it came: several nodes may find that, and it is told
    /// once.
    pub after: Option<u64>,
}

impl Announcement {
    /// What is told in the channel.
    pub fn draft(&self) -> Draft {
        Draft {
            channel: self.channel.clone(),
            data: roster::told(&self.member),
            content_type: Some("application/json".into()),
            event: Some(if self.comes { JOIN } else { LEAVE }.into()),
            flags: Flags::CONTROL,
            key: None,
        }
    }
}

/// What was told in channels that are kept here, and where that may not be so.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Who was told to have come, and where, and has not been told to have gone.
    told: BTreeMap<Name, BTreeMap<Arc<str>, u64>>,
    /// What may differ.
    doubts: BTreeMap<(Name, Arc<str>), Doubt>,
    now_ns: u64,
}

#[derive(Debug)]
struct Doubt {
    /// When it is looked at.
    due_ns: u64,
    /// An announcement is on its way.
    said: bool,
}

impl Presence {
    /// Takes down what is told in a channel, if that is who came or went.
    fn reads(&mut self, message: &Message) -> Option<(Arc<str>, bool)> {
        let came = match message.event.as_deref().filter(|_| message.flags.contains(Flags::CONTROL))? {
            JOIN => true,
            LEAVE => false,
            _ => return None,
        };
        let member: Arc<str> = roster::named(&message.data)?.into();
        if came {
            let members = self.told.entry(message.channel.clone()).or_default();
            members.insert(Arc::clone(&member), message.offset);
        } else if let Some(members) = self.told.get_mut(&message.channel) {
            members.remove(&member);
            if members.is_empty() {
                self.told.remove(&message.channel);
            }
        }
        Some((member, came))
    }

    fn doubt(&mut self, channel: &Name, member: &Arc<str>, after_ns: u64, said: bool) {
        let due_ns = self.now_ns.saturating_add(after_ns);
        self.doubts.insert((channel.clone(), Arc::clone(member)), Doubt { due_ns, said });
    }

    fn told(&self, channel: &Name, member: &Arc<str>) -> Option<u64> {
        self.told.get(channel)?.get(member).copied()
    }

    fn is_said(&self, key: &(Name, Arc<str>)) -> bool {
        self.doubts.get(key).is_some_and(|doubt| doubt.said)
    }

    /// A channel is no longer kept. What is still in doubt there is settled.
    pub(super) fn forget(&mut self, channel: &Name) {
        let Some(told) = self.told.get_mut(channel) else { return };
        told.retain(|member, _| self.doubts.contains_key(&(channel.clone(), Arc::clone(member))));
        if told.is_empty() {
            self.told.remove(channel);
        }
    }
}

impl Sequencer {
    /// The first of a name came to a channel here.
    pub(in super::super) fn comes(&mut self, at: u32, member: &Arc<str>) {
        let name = self.channels[at].name.clone();
        // The stream is quicker than what nodes tell each other; but a leave of ours may be on its way.
        let told = self.shared.as_ref().is_some_and(|shared| {
            let key = (name.clone(), Arc::clone(member));
            shared.presence.told(&name, member).is_some() && !shared.presence.is_said(&key)
        });
        if told || self.is_elsewhere(&name, member) {
            self.doubts(&name, member);
        } else {
            self.announce(&name, member, true, None);
        }
    }

    /// The last of a name went from a channel here.
    pub(in super::super) fn goes(&mut self, at: u32, member: &Arc<str>) {
        let name = self.channels[at].name.clone();
        if self.is_elsewhere(&name, member) {
            self.doubts(&name, member);
        } else {
            self.announce(&name, member, false, None);
        }
    }

    /// Names went from channels of another node.
    pub(super) fn went_elsewhere(&mut self, members: impl IntoIterator<Item = (Name, Arc<str>)>) {
        for (channel, member) in members {
            self.doubts(&channel, &member);
        }
    }

    /// The stream says that somebody came or went.
    pub(super) fn hears_of_member(&mut self, message: &Message) {
        let Some(shared) = &mut self.shared else { return };
        let Some((member, came)) = shared.presence.reads(message) else { return };
        let channel = &message.channel;
        let here = self.is_here(channel, &member);
        let there = here || self.is_elsewhere(channel, &member);
        let Some(shared) = &mut self.shared else { return };
        let key = (channel.clone(), member);
        if came == there {
            shared.presence.doubts.remove(&key);
        } else if here && !shared.presence.is_said(&key) {
            self.announce(&key.0, &key.1, true, None);
        } else {
            self.doubts(&key.0, &key.1);
        }
    }

    /// The past of a channel is here, before what has come since.
    pub(super) fn recalls(&mut self, at: u32) {
        let channel = &self.channels[at];
        let Some(shared) = &mut self.shared else { return };
        let told: Vec<Arc<str>> =
            channel.ring.iter().filter_map(|message| Some(shared.presence.reads(message)?.0)).collect();
        let name = channel.name.clone();
        told.iter().for_each(|member| self.doubts(&name, member));
    }

    /// It is known what became of an announcement.
    pub(super) fn announced(&mut self, announcement: &Announcement, fate: Result<Place, Refusal>) {
        if let (Some(shared), Err(_)) = (&mut self.shared, fate) {
            shared.presence.doubt(&announcement.channel, &announcement.member, DOUBT_NS, false);
        }
    }

    /// Looks at what was in doubt, and corrects what was told.
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
            match shared.presence.told(&channel, &member) {
                None if here => self.announce(&channel, &member, true, None),
                Some(offset) if !here && !elsewhere => self.announce(&channel, &member, false, Some(offset)),
                _ => {}
            }
            self.forget_told(&channel);
        }
    }

    /// A channel that does not exist here is not one of which anything is known.
    pub(in super::super) fn forget_told(&mut self, channel: &Name) {
        let kept = self.names.contains_key(channel);
        if let Some(shared) = self.shared.as_mut().filter(|_| !kept) {
            shared.presence.forget(channel);
        }
    }

    fn doubts(&mut self, channel: &Name, member: &Arc<str>) {
        if self.rules.of(channel).presence
            && let Some(shared) = &mut self.shared
            && !shared.presence.is_said(&(channel.clone(), Arc::clone(member)))
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
        shared.errands.push(Errand::Announce(Announcement { channel, member, comes, after }));
    }

    fn is_here(&self, channel: &Name, member: &Arc<str>) -> bool {
        self.find(channel).is_some_and(|channel| channel.roster.has(member))
    }

    fn is_elsewhere(&self, channel: &Name, member: &Arc<str>) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.audiences.have(channel, member))
    }
}
