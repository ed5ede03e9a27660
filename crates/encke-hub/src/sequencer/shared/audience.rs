//! Subscribers on other nodes: announcements of this node's subscribers, and of those on others.
//!
//! ```text
//!  a worker ── Count, Joined, Left ─► touched ─► ClusterCommand::Tell ─► every other node
//!  other nodes ── ClusterEvent::Told ─► elsewhere ─► counts and members of all nodes together
//!              ── ClusterEvent::Gone ─► a node has ended, together with its subscribers
//! ```
//! Announcements are independent of the order of messages: each node reports its own state, and no other does. Repeating one is
//! harmless. The transport must detect a missed announcement and repeat the whole state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::super::Sequencer;
use super::ClusterCommand;
use crate::name::Name;

/// Identifies a node for as long as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A change of one node's subscribers of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudienceChange {
    /// The channel.
    pub channel: Name,
    /// The current number of subscribers.
    pub subscribers: u32,
    /// Names that are present now.
    pub joined: Vec<Arc<str>>,
    /// Names that are absent now.
    pub left: Vec<Arc<str>>,
}

/// The subscribers on other nodes, and the changes to announce to them.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    /// Channels with changes to announce, and the names that joined or left.
    touched: BTreeMap<Name, BTreeSet<Arc<str>>>,
    /// By channel and node; never empty.
    elsewhere: BTreeMap<Name, BTreeMap<NodeId, NodeAudience>>,
}

/// The subscribers of a channel on one node.
#[derive(Debug, Default)]
struct NodeAudience {
    subscribers: u32,
    members: BTreeSet<Arc<str>>,
}

impl Audiences {
    /// Applies an announced change of a node.
    fn apply(&mut self, node: NodeId, change: &AudienceChange) {
        let AudienceChange { channel, subscribers, joined: came, left: went } = change;
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

    /// Removes a node that has ended. Returns its members.
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

    /// Returns whether a name is present in a channel on another node.
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

    /// Returns the subscribers of a channel on other nodes.
    fn of(&self, channel: &Name) -> impl Iterator<Item = &NodeAudience> {
        self.elsewhere.get(channel).into_iter().flat_map(BTreeMap::values)
    }
}

impl Sequencer {
    /// Applies announced changes of another node. With `anew`, its earlier announcements are void.
    pub(super) fn hears_of_node(&mut self, node: NodeId, anew: bool, changes: Vec<AudienceChange>) {
        let Some(shared) = &mut self.shared else { return };
        let mut went = if anew { shared.audiences.gone(node) } else { Vec::new() };
        for change in changes {
            shared.audiences.apply(node, &change);
            went.extend(change.left.into_iter().map(|member| (change.channel.clone(), member)));
        }
        self.leave_elsewhere(went);
    }

    /// Applies the end of another node.
    pub(super) fn hears_of_end(&mut self, node: NodeId) {
        if let Some(shared) = &mut self.shared {
            let went = shared.audiences.gone(node);
            self.leave_elsewhere(went);
        }
    }

    /// Returns the number of subscribers of a channel on other nodes.
    pub(in super::super) fn subscribers_elsewhere(&self, channel: &Name) -> u32 {
        let audiences = self.shared.iter().flat_map(|shared| shared.audiences.of(channel));
        audiences.fold(0, |sum, audience| sum.saturating_add(audience.subscribers))
    }

    /// Returns the names of channels after `after` that other nodes have announced, in order.
    pub(in super::super) fn names_elsewhere(&self, after: Option<&Name>) -> impl Iterator<Item = &Name> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let audiences = self.shared.iter().map(|shared| &shared.audiences);
        audiences.flat_map(move |audiences| {
            audiences.elsewhere.range::<Name, _>((start, Bound::Unbounded)).map(|(name, _)| name)
        })
    }

    /// Returns the members of a channel on other nodes.
    pub(in super::super) fn members_elsewhere(&self, channel: &Name) -> impl Iterator<Item = &Arc<str>> {
        let audiences = self.shared.iter().flat_map(|shared| shared.audiences.of(channel));
        audiences.flat_map(|audience| &audience.members)
    }

    /// Records a change of a channel's local subscribers, and of a member if given.
    pub(in super::super) fn touch(&mut self, at: u32, member: Option<&Arc<str>>) {
        if let Some(shared) = &mut self.shared {
            let touched = shared.audiences.touched.entry(self.channels[at].name.clone()).or_default();
            touched.extend(member.cloned());
        }
    }

    /// Appends the announcements to other nodes.
    pub(super) fn take_changes(&mut self, into: &mut Vec<ClusterCommand>) {
        let Some(shared) = &mut self.shared else { return };
        for (channel, touched) in std::mem::take(&mut shared.audiences.touched) {
            let found = self.find(&channel);
            let subscribers = found.map_or(0, |channel| channel.subscribers);
            let (came, went) = touched
                .into_iter()
                .partition(|member| found.is_some_and(|channel| channel.roster.has(member)));
            into.push(ClusterCommand::Tell(AudienceChange {
                channel,
                subscribers,
                joined: came,
                left: went,
            }));
        }
    }
}
