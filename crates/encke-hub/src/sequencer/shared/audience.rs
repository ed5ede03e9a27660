//! Who listens on other nodes: what this node tells of its own listeners, and what it was told of others'.
//!
//! ```text
//!  a core ── Count, Joined, Left ─► touched ─► Errand::Tell ─► every other node
//!  the other nodes ── News::Told ─► elsewhere ─► counts and members of all nodes together
//!                  ── News::Gone ─►   a node has ended, and with it who listened there
//! ```
//! It is no part of the order of messages, and needs none: each node says what is so on it, and nobody else does. What is
//! told twice is the same, and what was missed is told whole again; that is for whoever carries it to see to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::Sequencer;
use super::Errand;
use crate::name::Name;

/// Names a node for as long as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// What has changed with those who listen to a channel on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which channel.
    pub channel: Name,
    /// How many listen there now.
    pub subscribers: u32,
    /// Names that are there now.
    pub came: Vec<Arc<str>>,
    /// Names that are no longer there.
    pub went: Vec<Arc<str>>,
}

/// Who listens on other nodes, and what they have yet to be told.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    /// Channels of which something is to be told, and the names that came or went.
    touched: BTreeMap<Name, BTreeSet<Arc<str>>>,
    /// By channel and node; never empty.
    elsewhere: BTreeMap<Name, BTreeMap<NodeId, Audience>>,
}

/// Those who listen to a channel on a node.
#[derive(Debug, Default)]
struct Audience {
    subscribers: u32,
    members: BTreeSet<Arc<str>>,
}

impl Audiences {
    /// A node has told what has changed there.
    fn told(&mut self, node: NodeId, change: &Change) {
        let Change { channel, subscribers, came, went } = change;
        let audience = self.elsewhere.entry(channel.clone()).or_default().entry(node).or_default();
        audience.subscribers = *subscribers;
        audience.members.extend(came.iter().cloned());
        for member in went {
            audience.members.remove(member);
        }
        if audience.subscribers == 0 && audience.members.is_empty() {
            self.empty(channel, node);
        }
    }

    /// A node has ended; who was there.
    fn gone(&mut self, node: NodeId) -> Vec<(Name, Arc<str>)> {
        let mut left = Vec::new();
        self.elsewhere.retain(|channel, nodes| {
            let audience = nodes.remove(&node);
            let members = audience.into_iter().flat_map(|audience| audience.members);
            left.extend(members.map(|member| (channel.clone(), member)));
            !nodes.is_empty()
        });
        left
    }

    /// Whether somebody of that name is in a channel on another node.
    pub(super) fn have(&self, channel: &Name, member: &Arc<str>) -> bool {
        self.of(channel).any(|audience| audience.members.contains(member))
    }

    fn empty(&mut self, channel: &Name, node: NodeId) {
        if let Some(nodes) = self.elsewhere.get_mut(channel) {
            nodes.remove(&node);
            if nodes.is_empty() {
                self.elsewhere.remove(channel);
            }
        }
    }

    /// The audiences of a channel on other nodes.
    fn of(&self, channel: &Name) -> impl Iterator<Item = &Audience> {
        self.elsewhere.get(channel).into_iter().flat_map(BTreeMap::values)
    }
}

impl Sequencer {
    /// Another node has told what has changed there; `anew`: what it told before is void.
    pub(super) fn hears_of_node(&mut self, node: NodeId, anew: bool, changes: Vec<Change>) {
        let Some(shared) = &mut self.shared else { return };
        let mut went = if anew { shared.audiences.gone(node) } else { Vec::new() };
        for change in changes {
            shared.audiences.told(node, &change);
            went.extend(change.went.into_iter().map(|member| (change.channel.clone(), member)));
        }
        self.went_elsewhere(went);
    }

    /// Another node has ended.
    pub(super) fn hears_of_end(&mut self, node: NodeId) {
        if let Some(shared) = &mut self.shared {
            let went = shared.audiences.gone(node);
            self.went_elsewhere(went);
        }
    }

    /// How many listen to a channel on other nodes.
    pub(in super::super) fn subscribers_elsewhere(&self, channel: &Name) -> u32 {
        let audiences = self.shared.iter().flat_map(|shared| shared.audiences.of(channel));
        audiences.fold(0, |sum, audience| sum.saturating_add(audience.subscribers))
    }

    /// Who is in a channel on other nodes.
    pub(in super::super) fn members_elsewhere(&self, channel: &Name) -> impl Iterator<Item = &Arc<str>> {
        let audiences = self.shared.iter().flat_map(|shared| shared.audiences.of(channel));
        audiences.flat_map(|audience| &audience.members)
    }

    /// Something has changed with those who listen to a channel here; perhaps somebody with a name.
    pub(in super::super) fn touch(&mut self, at: u32, member: Option<&Arc<str>>) {
        if let Some(shared) = &mut self.shared {
            let touched = shared.audiences.touched.entry(self.channels[at].name.clone()).or_default();
            touched.extend(member.cloned());
        }
    }

    /// Appends what other nodes are to be told.
    pub(super) fn take_changes(&mut self, into: &mut Vec<Errand>) {
        let Some(shared) = &mut self.shared else { return };
        for (channel, touched) in std::mem::take(&mut shared.audiences.touched) {
            let found = self.find(&channel);
            let subscribers = found.map_or(0, |channel| channel.subscribers);
            let (came, went) = touched
                .into_iter()
                .partition(|member| found.is_some_and(|channel| channel.roster.has(member)));
            into.push(Errand::Tell(Change { channel, subscribers, came, went }));
        }
    }
}
