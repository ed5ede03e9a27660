//! The nodes of a cluster as one of them sees the others: which are alive, and which subscribers and members they have.
//!
//! ```text
//!                         ┌──────── a heartbeat was missed ─────────┐
//!                         ▼                                         │
//!  first heartbeat ─► out of step ── asks ─► one with `whole` ─► in step ── silent for SILENCE, or its last heartbeat ─► gone
//! ```
//! Each node publishes a heartbeat per second on a subject of its own, outside the stream. Heartbeats are numbered and contain
//! the changes of the node's subscribers. A node that has received all of them knows the full state. A node that has missed one
//! requests the full state in its next heartbeat.
//!
//! **Heartbeats are not stored**, because they describe the present. A key-value bucket with expiry would need a write by a
//! majority of the NATS servers each second for each node. After a node's death it would still be wrong for as long as the
//! timeout here.
//!
//! **Heartbeat timeouts run only while this node is connected.** A node also receives its own heartbeats. If they stop, the
//! node is cut off itself and expires no other node.
//!
//! This module has no connection and no clock: heartbeats in, heartbeats and events out, with the time as an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use encke_hub::{AudienceChange, ClusterEvent, Name, NodeId};
use serde::{Deserialize, Serialize};

use crate::source_board::SourceAnnouncement;

/// Interval of heartbeats of a node without changes.
const BEAT: Duration = Duration::from_secs(1);
/// A node expires after this time without a heartbeat. This allows for several lost heartbeats in a row, and for the time that
/// NATS needs to notice the failure of one of its servers.
const SILENCE: Duration = Duration::from_secs(5);
/// How long a node may take to send its full state before a repeated request.
const ANSWER: Duration = Duration::from_secs(3);
/// Approximate limit of the changes in one heartbeat, in bytes: a quarter of NATS's default maximum payload.
const BEAT_BYTES: usize = 256 * 1024;

/// A heartbeat.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heartbeat {
    /// Heartbeats of a node are numbered consecutively.
    number: u64,
    pub(super) about: About,
    /// All sources of live streams on the node. Heartbeats without them change nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) sources: Option<SourceAnnouncement>,
    /// The full state begins here, and may continue in the next heartbeats.
    #[serde(default, skip_serializing_if = "is_default")]
    whole: bool,
    /// The node's last heartbeat: it leaves.
    #[serde(default, skip_serializing_if = "is_default")]
    last: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    changes: Vec<CompactChange>,
    /// Ids of nodes whose full state is requested.
    #[serde(default, skip_serializing_if = "is_default")]
    asks: Vec<u64>,
}

/// A change in compact form: channel, subscribers, members that joined, members that left.
type CompactChange = (Box<str>, u32, Vec<Arc<str>>, Vec<Arc<str>>);

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A node's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The name of the node, for operators.
    pub name: Box<str>,
    /// The version of Encke.
    pub version: Box<str>,
    /// When the node was started, in seconds since 1970.
    pub started_s: u64,
    /// Offset up to which the node has followed the stream.
    pub offset: u64,
    /// Channels with at least one subscriber or member on the node.
    pub channels: u64,
    /// Subscriptions on the node: a subscriber counts once per channel.
    pub subscriptions: u64,
}

/// A node of the cluster, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Identifies this run of the node.
    pub id: NodeId,
    /// The node's description of itself.
    pub about: About,
    /// Time since its last heartbeat.
    pub silent: Duration,
    /// Whether this is the local node.
    pub here: bool,
}

/// The other nodes, and the changes to be sent to them.
#[derive(Debug)]
pub(super) struct Peers {
    here: NodeId,
    number: u64,
    /// The local subscribers and members by channel; no entry is empty.
    ours: HashMap<Name, LocalAudience>,
    /// Changes for the next heartbeat.
    changes: Vec<AudienceChange>,
    /// Whether a node has requested the full state.
    asked: bool,
    beaten: Option<Duration>,
    /// When this node's own heartbeat was last received.
    heard: Duration,
    others: BTreeMap<NodeId, PeerNode>,
}

/// The local subscribers and members of a channel.
#[derive(Debug, Default)]
struct LocalAudience {
    subscribers: u32,
    members: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct PeerNode {
    about: About,
    heard: Duration,
    /// The number of its next heartbeat; `None` if it is out of step.
    next: Option<u64>,
    /// When its full state was last requested.
    asked: Option<Duration>,
}

impl Peers {
    /// Creates the state of a node that knows no other. Times are measured from an arbitrary moment.
    pub(super) fn new(here: NodeId, now: Duration) -> Self {
        Self {
            here,
            number: 0,
            ours: HashMap::new(),
            changes: Vec::new(),
            // The first heartbeat contains the full state, so that running nodes need not request it.
            asked: true,
            beaten: None,
            heard: now,
            others: BTreeMap::new(),
        }
    }

    /// Records a change of the local subscribers.
    pub(super) fn record_change(&mut self, change: AudienceChange) {
        let ours = self.ours.entry(change.channel.clone()).or_default();
        let AudienceChange { channel, subscribers, joined: came, left: went } = change;
        let came: Vec<_> =
            came.into_iter().filter(|member| ours.members.insert(Arc::clone(member))).collect();
        let went: Vec<_> = went.into_iter().filter(|member| ours.members.remove(member)).collect();
        let before = std::mem::replace(&mut ours.subscribers, subscribers);
        if ours.subscribers == 0 && ours.members.is_empty() {
            self.ours.remove(&channel);
        }
        if before != subscribers || !came.is_empty() || !went.is_empty() {
            self.changes.push(AudienceChange { channel, subscribers, joined: came, left: went });
        }
    }

    /// Processes a heartbeat of any node, this one included.
    pub(super) fn hears(&mut self, now: Duration, node: NodeId, beat: Heartbeat) -> Option<ClusterEvent> {
        if node == self.here {
            self.hears_us(now);
            return None;
        }
        let Heartbeat { number, about, whole, last, changes, asks, sources: _ } = beat;
        if last {
            return self.others.remove(&node).map(|_| ClusterEvent::Gone { node });
        }
        self.asked |= asks.contains(&self.here.0);
        let peer = self.others.entry(node).or_default();
        (peer.about, peer.heard) = (about, now);
        let in_step = peer.next == Some(number);
        if !in_step && !whole {
            peer.next = None;
            return None;
        }
        (peer.next, peer.asked) = (Some(number + 1), None);
        let changes: Vec<AudienceChange> = changes.into_iter().filter_map(change).collect();
        let anew = !in_step;
        (anew || !changes.is_empty()).then_some(ClusterEvent::Told { node, anew, changes })
    }

    /// Processes the node's own heartbeat. The time it was cut off does not count as silence of other nodes.
    fn hears_us(&mut self, now: Duration) {
        let since = now.saturating_sub(std::mem::replace(&mut self.heard, now));
        if since > 2 * BEAT {
            self.others.values_mut().for_each(|peer| peer.heard = (peer.heard + since).min(now));
        }
    }

    /// Expires nodes that were silent for too long, up to this node's own last heartbeat.
    pub(super) fn buries(&mut self) -> Vec<ClusterEvent> {
        let heard = self.heard;
        let dead = |peer: &PeerNode| heard.saturating_sub(peer.heard) > SILENCE;
        let gone: Vec<NodeId> =
            self.others.iter().filter(|(_, peer)| dead(peer)).map(|(node, _)| *node).collect();
        for node in &gone {
            self.others.remove(node);
        }
        gone.into_iter().map(|node| ClusterEvent::Gone { node }).collect()
    }

    /// Makes a heartbeat due at once.
    pub(super) fn hasten(&mut self) {
        self.beaten = None;
    }

    /// Returns the heartbeats that are due now.
    pub(super) fn beats(&mut self, now: Duration, about: &About) -> Vec<Heartbeat> {
        let due = self.beaten.is_none_or(|beaten| now.saturating_sub(beaten) >= BEAT);
        let asks: Vec<u64> = self.asks(now);
        if !due && self.changes.is_empty() && asks.is_empty() {
            return Vec::new();
        }
        // Changes come first, so that nodes in step learn nothing new from the full state.
        let mut beats = parts(std::mem::take(&mut self.changes));
        // The full state is sent at most once per interval, however many nodes request it.
        if due && std::mem::take(&mut self.asked) {
            let all = self.ours.iter().map(|(channel, audience)| AudienceChange {
                channel: channel.clone(),
                subscribers: audience.subscribers,
                joined: audience.members.iter().cloned().collect(),
                left: Vec::new(),
            });
            let mut whole = parts(all.collect());
            if whole.is_empty() {
                whole.push(Heartbeat::default());
            }
            whole[0].whole = true;
            beats.append(&mut whole);
        }
        if beats.is_empty() {
            beats.push(Heartbeat::default());
        }
        beats[0].asks = asks;
        let about = self.about(about);
        for beat in &mut beats {
            self.number += 1;
            (beat.number, beat.about) = (self.number, about.clone());
        }
        if due {
            self.beaten = Some(now);
        }
        beats
    }

    /// Nodes whose full state is needed, and was not requested recently.
    fn asks(&mut self, now: Duration) -> Vec<u64> {
        let mut asks = Vec::new();
        for (node, peer) in &mut self.others {
            let recently = peer.asked.is_some_and(|asked| now.saturating_sub(asked) < ANSWER);
            if peer.next.is_none() && !recently {
                peer.asked = Some(now);
                asks.push(node.0);
            }
        }
        asks
    }

    /// Creates the last heartbeat, which announces that this node leaves.
    pub(super) fn last_heartbeat(&mut self, about: &About) -> Heartbeat {
        self.number += 1;
        Heartbeat { number: self.number, about: self.about(about), last: true, ..Heartbeat::default() }
    }

    fn about(&self, about: &About) -> About {
        let subscriptions = self.ours.values().map(|audience| u64::from(audience.subscribers)).sum();
        About { channels: self.ours.len() as u64, subscriptions, ..about.clone() }
    }

    /// All nodes, including this one.
    pub(super) fn nodes(&self, now: Duration, about: &About) -> Vec<Node> {
        let here = Node { id: self.here, about: self.about(about), silent: Duration::ZERO, here: true };
        let others = self.others.iter().map(|(id, peer)| Node {
            id: *id,
            about: peer.about.clone(),
            silent: now.saturating_sub(peer.heard),
            here: false,
        });
        let mut nodes: Vec<Node> = others.chain([here]).collect();
        nodes.sort_by(|one, other| (&one.about.name, one.id).cmp(&(&other.about.name, other.id)));
        nodes
    }
}

/// Splits changes into heartbeats of a size that NATS accepts.
fn parts(changes: Vec<AudienceChange>) -> Vec<Heartbeat> {
    let mut beats: Vec<Heartbeat> = Vec::new();
    let mut bytes = 0;
    for AudienceChange { channel, subscribers, joined: came, left: went } in changes {
        // A channel with very many names takes several entries.
        let names: Vec<(bool, Arc<str>)> = came
            .into_iter()
            .map(|name| (true, name))
            .chain(went.into_iter().map(|name| (false, name)))
            .collect();
        let mut names = names.into_iter().peekable();
        loop {
            if beats.is_empty() || bytes > BEAT_BYTES {
                beats.push(Heartbeat::default());
                bytes = 0;
            }
            let (mut came, mut went) = (Vec::new(), Vec::new());
            bytes += channel.as_str().len() + 16;
            while bytes <= BEAT_BYTES
                && let Some((here, name)) = names.next()
            {
                // JSON may escape a character as six.
                bytes += 6 * name.len() + 3;
                let list = if here { &mut came } else { &mut went };
                list.push(name);
            }
            let beat = beats.last_mut().expect("there is one");
            beat.changes.push((channel.as_str().into(), subscribers, came, went));
            if names.peek().is_none() {
                break;
            }
        }
    }
    beats
}

/// Decodes a change; `None` if its channel has an invalid name.
fn change((channel, subscribers, came, went): CompactChange) -> Option<AudienceChange> {
    Some(AudienceChange {
        channel: Name::parse(channel.as_bytes()).ok()?,
        subscribers,
        joined: came,
        left: went,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).expect("a name")
    }

    fn members(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn now_there(channel: &str, subscribers: u32, came: &[&str], went: &[&str]) -> AudienceChange {
        AudienceChange { channel: name(channel), subscribers, joined: members(came), left: members(went) }
    }

    /// The other node's channels, as one node knows them.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Known(BTreeMap<Name, (u32, BTreeSet<Arc<str>>)>);

    impl Known {
        fn take(&mut self, news: ClusterEvent) {
            match news {
                ClusterEvent::Gone { .. } => self.0.clear(),
                ClusterEvent::Told { anew, changes, .. } => {
                    if anew {
                        self.0.clear();
                    }
                    for AudienceChange { channel, subscribers, joined: came, left: went } in changes {
                        let known = self.0.entry(channel.clone()).or_default();
                        known.0 = subscribers;
                        known.1.extend(came);
                        for member in &went {
                            known.1.remove(member);
                        }
                        if (known.0, known.1.len()) == (0, 0) {
                            self.0.remove(&channel);
                        }
                    }
                }
                other => panic!("{other:?}"),
            }
        }

        fn of(&self, channel: &str) -> (u32, Vec<&str>) {
            let known = self.0.get(&name(channel));
            known.map_or((0, Vec::new()), |(count, members)| {
                (*count, members.iter().map(|one| &**one).collect())
            })
        }
    }

    /// Sends heartbeats of `from` to `to` and back to itself, as text. `loses` decides which are lost on the way to `to`.
    fn carry(
        (from, id): (&mut Peers, NodeId),
        to: &mut Peers,
        now: Duration,
        known: &mut Known,
        mut loses: impl FnMut() -> bool,
    ) {
        for beat in from.beats(now, &About::default()) {
            let text = serde_json::to_vec(&beat).expect("text");
            let read = || serde_json::from_slice(&text).expect("a beat");
            assert!(from.hears(now, id, read()).is_none());
            if !loses() {
                to.hears(now, id, read()).into_iter().for_each(|news| known.take(news));
            }
        }
    }

    #[test]
    fn what_changes_on_a_node_is_known_to_the_others_after_its_next_beat() {
        let (mut one, mut two) = (Peers::new(ONE, SECOND), Peers::new(TWO, SECOND));
        let mut known = Known::default();
        one.record_change(now_there("a", 3, &["ann"], &[]));
        carry((&mut one, ONE), &mut two, SECOND, &mut known, || false);
        assert_eq!(known.of("a"), (3, vec!["ann"]));
        one.record_change(now_there("a", 2, &["bob"], &["ann"]));
        carry((&mut one, ONE), &mut two, SECOND, &mut known, || false);
        assert_eq!(known.of("a"), (2, vec!["bob"]));
        // An unchanged state is not sent again.
        one.record_change(now_there("a", 2, &["bob"], &["ann"]));
        assert_eq!(one.beats(SECOND, &About::default()), []);
        one.record_change(now_there("a", 0, &[], &["bob"]));
        carry((&mut one, ONE), &mut two, SECOND, &mut known, || false);
        assert_eq!(known, Known::default());
    }

    #[test]
    fn who_comes_later_or_has_missed_a_beat_asks_and_is_told_everything() {
        for seed in 1..50_u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut below = move |most: u64| {
                random ^= random >> 12;
                random ^= random << 25;
                random ^= random >> 27;
                (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
            };
            let (mut one, mut two) = (Peers::new(ONE, SECOND), Peers::new(TWO, SECOND));
            let (mut known, mut truth) = (Known::default(), Known::default());
            let mut now = SECOND;
            for step in 0..200 {
                now += Duration::from_millis(250);
                let lossy = step < 150;
                if lossy {
                    let channel = ["a", "b", "c"][below(3) as usize];
                    let came: &[&str] = [&[], &["ann"][..], &["ann", "bob"]][below(3) as usize];
                    let went: &[&str] = if came.is_empty() { &["bob"] } else { &[] };
                    let change = now_there(channel, below(3) as u32, came, went);
                    truth.take(ClusterEvent::Told { node: ONE, anew: false, changes: vec![change.clone()] });
                    one.record_change(change);
                }
                carry((&mut one, ONE), &mut two, now, &mut known, || lossy && below(5) == 0);
                carry((&mut two, TWO), &mut one, now, &mut Known::default(), || lossy && below(5) == 0);
                one.buries();
                two.buries().into_iter().for_each(|news| known.take(news));
            }
            assert_eq!(known, truth, "seed {seed}");
        }
    }

    #[test]
    fn everything_is_told_in_parts_that_nats_takes() {
        let (mut one, mut two) = (Peers::new(ONE, SECOND), Peers::new(TWO, SECOND));
        let many: Vec<String> = (0..30_000).map(|number| format!("member {number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        one.record_change(now_there("large", 30_000, &many, &[]));
        for number in 0..10_000 {
            one.record_change(now_there(&format!("some/channel/{number}"), 1, &[], &[]));
        }
        for beat in one.beats(SECOND, &About::default()) {
            let bytes = serde_json::to_vec(&beat).expect("text").len();
            assert!(bytes < 1_000_000, "{bytes} bytes");
        }
        let mut known = Known::default();
        carry((&mut two, TWO), &mut one, 2 * SECOND, &mut Known::default(), || false);
        carry((&mut one, ONE), &mut two, 2 * SECOND, &mut known, || false);
        carry((&mut two, TWO), &mut one, 3 * SECOND, &mut Known::default(), || false);
        carry((&mut one, ONE), &mut two, 4 * SECOND, &mut known, || false);
        assert_eq!((known.0.len(), known.of("large").1.len()), (10_001, 30_000));
    }

    #[test]
    fn a_node_that_is_silent_is_gone_but_not_while_nobody_can_be_heard() {
        let (mut one, mut two) = (Peers::new(ONE, SECOND), Peers::new(TWO, SECOND));
        let mut known = Known::default();
        one.record_change(now_there("a", 1, &[], &[]));
        for second in 1..4 {
            carry((&mut one, ONE), &mut two, second * SECOND, &mut known, || false);
            carry((&mut two, TWO), &mut one, second * SECOND, &mut Known::default(), || false);
        }
        // Both nodes are cut off for a minute.
        assert!(two.buries().is_empty());
        for second in 64..66 {
            carry((&mut two, TWO), &mut one, second * SECOND, &mut Known::default(), || false);
            assert!(two.buries().is_empty());
            carry((&mut one, ONE), &mut two, second * SECOND, &mut known, || false);
        }
        assert_eq!(known.of("a"), (1, vec![]));
        // Then one node ends for good.
        for second in 66..71 {
            carry((&mut two, TWO), &mut one, second * SECOND, &mut Known::default(), || false);
            assert!(two.buries().is_empty(), "{second}");
        }
        carry((&mut two, TWO), &mut one, 71 * SECOND, &mut Known::default(), || false);
        assert!(matches!(two.buries()[..], [ClusterEvent::Gone { node: ONE }]));
        // A last heartbeat takes effect at once.
        carry((&mut one, ONE), &mut two, 72 * SECOND, &mut known, || false);
        let last = one.last_heartbeat(&About::default());
        assert!(matches!(two.hears(72 * SECOND, ONE, last), Some(ClusterEvent::Gone { node: ONE })));
        assert_eq!(two.nodes(72 * SECOND, &About::default()).len(), 1);
    }
}
