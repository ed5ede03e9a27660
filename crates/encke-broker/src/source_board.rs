//! The sources of live streams in a cluster: which node has the source of which stream.
//!
//! ```text
//! claim ─► own claims ─► this node's heartbeats ─► heard, on every other node ─┬─► holder: the node to fetch a stream from
//!                                                                             └─► outranked: another node has taken over
//! ```
//! Media never passes through NATS. A node with a source claims the stream, and its heartbeats announce all of its claims with the
//! address at which other nodes fetch them. A claim ends with its source or with its node.
//!
//! **The highest rank holds a stream.** A rank is the time of the claim, or one more than the highest rank known for the
//! stream. So a takeover outranks the present holder even if the clocks differ, and of two sources that began before their nodes
//! knew of each other the later one stays. Of equal ranks the node with the higher id holds the stream.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use encke_hub::NodeId;

/// Claims of one node. With names of 200 bytes an announcement has at most 220 KiB, a quarter of NATS's default maximum payload.
pub const CLAIMS_MAX: usize = 1_000;

/// The claims of all nodes, as this node knows them.
#[derive(Default)]
pub struct SourceBoard {
    state: Mutex<BoardState>,
}

#[derive(Default)]
struct BoardState {
    here: Option<NodeId>,
    /// The address of this node's streams; `None` as long as the node has none.
    address: Option<Box<str>>,
    /// The rank of each own claim.
    own: BTreeMap<Box<str>, u64>,
    /// Whether the own claims have changed since the last heartbeat with them.
    has_changed: bool,
    others: BTreeMap<NodeId, PeerClaims>,
    /// The highest claim of other nodes for each stream, from `others`.
    best: BTreeMap<Box<str>, SourceHolder>,
    watcher: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct PeerClaims {
    name: Box<str>,
    announcement: SourceAnnouncement,
}

/// All claims of a node, as a heartbeat contains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "nats", derive(serde::Serialize, serde::Deserialize))]
pub struct SourceAnnouncement {
    /// URL under which other nodes find the streams, with a slash at its end; empty if they cannot reach the node.
    pub address: Box<str>,
    /// The streams, each with its rank.
    pub claims: Vec<(Box<str>, u64)>,
}

/// Another node that has the source of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceHolder {
    /// The name of the node, for people.
    pub node: Box<str>,
    /// [`SourceAnnouncement::address`].
    pub address: Box<str>,
    rank: u64,
    id: NodeId,
}

/// Why a stream cannot be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// Another node has its source.
    Held(SourceHolder),
    /// This node has [`CLAIMS_MAX`] claims.
    Full,
}

impl SourceBoard {
    /// Announces this node's claims from now on. `address` is [`SourceAnnouncement::address`]; `watcher` is called, from any
    /// thread, when the claims of other nodes have changed.
    pub fn open(&self, address: &str, watcher: impl Fn() + Send + Sync + 'static) {
        let mut state = self.state();
        state.address = Some(address.into());
        state.find_best();
        state.watcher = Some(Arc::new(watcher));
        state.has_changed = true;
    }

    /// Claims a stream for a source of this node. Returns the rank. `now_ms` is in ms since 1970.
    ///
    /// # Errors
    /// Another node has its source and `takeover` is false, or this node has too many claims.
    pub fn claim(&self, stream: &str, takeover: bool, now_ms: u64) -> Result<u64, ClaimError> {
        let mut state = self.state();
        let holder = state.best.get(stream).cloned();
        let above = holder.as_ref().map_or(0, |holder| holder.rank).max(state.rank(stream));
        match holder {
            Some(holder) if !takeover => return Err(ClaimError::Held(holder)),
            _ if state.own.len() >= CLAIMS_MAX && !state.own.contains_key(stream) => {
                return Err(ClaimError::Full);
            }
            _ => {}
        }
        let rank = now_ms.max(above.saturating_add(1));
        state.own.insert(stream.into(), rank);
        state.has_changed = true;
        Ok(rank)
    }

    /// Ends the claim with this rank. A newer claim of the stream stays.
    pub fn release(&self, stream: &str, rank: u64) {
        let mut state = self.state();
        if state.own.get(stream) == Some(&rank) {
            state.own.remove(stream);
            state.has_changed = true;
        }
    }

    /// Returns the other node that has the source of a stream.
    pub fn holder(&self, stream: &str) -> Option<SourceHolder> {
        let state = self.state();
        state.best.get(stream).filter(|holder| state.is_above(stream, holder)).cloned()
    }

    /// Returns the streams whose source is on another node, by name, with the node.
    pub fn held_elsewhere(&self) -> BTreeMap<Box<str>, SourceHolder> {
        let state = self.state();
        let held = state.best.iter().filter(|(stream, holder)| state.is_above(stream, holder));
        held.map(|(stream, holder)| (stream.clone(), holder.clone())).collect()
    }

    /// Returns the own claims, with their ranks, whose streams another node has taken over.
    pub fn outranked(&self) -> Vec<(Box<str>, u64)> {
        let state = self.state();
        let is_outranked =
            |stream| state.best.get(stream).is_some_and(|holder| state.is_above(stream, holder));
        let own = state.own.iter().filter(|(stream, _)| is_outranked(*stream));
        own.map(|(stream, rank)| (stream.clone(), *rank)).collect()
    }

    /// Names this node.
    #[cfg_attr(not(any(feature = "nats", test)), expect(dead_code, reason = "only a cluster calls it"))]
    pub(crate) fn set_here(&self, here: NodeId) {
        self.state().here = Some(here);
    }

    /// Returns whether the own claims have changed since the last call.
    #[cfg_attr(not(any(feature = "nats", test)), expect(dead_code, reason = "only a cluster calls it"))]
    pub(crate) fn take_change(&self) -> bool {
        std::mem::take(&mut self.state().has_changed)
    }

    /// Returns the own claims for a heartbeat; `None` if the node has no live streams.
    #[cfg_attr(not(any(feature = "nats", test)), expect(dead_code, reason = "only a cluster calls it"))]
    pub(crate) fn announcement(&self) -> Option<SourceAnnouncement> {
        let state = self.state();
        let claims = state.own.iter().map(|(stream, rank)| (stream.clone(), *rank)).collect();
        state.address.as_ref().map(|address| SourceAnnouncement { address: address.clone(), claims })
    }

    /// Takes the claims of another node, which replace its earlier ones.
    #[cfg_attr(not(any(feature = "nats", test)), expect(dead_code, reason = "only a cluster calls it"))]
    pub(crate) fn hears(&self, node: NodeId, name: &str, mut announcement: SourceAnnouncement) {
        announcement.claims.truncate(CLAIMS_MAX);
        let mut state = self.state();
        if state.here == Some(node) {
            return;
        }
        let peer = state.others.entry(node).or_default();
        peer.name = name.into();
        if peer.announcement != announcement {
            peer.announcement = announcement;
            state.find_best();
            Self::tell(state);
        }
    }

    /// Forgets the claims of a node that has ended.
    #[cfg_attr(not(any(feature = "nats", test)), expect(dead_code, reason = "only a cluster calls it"))]
    pub(crate) fn forget(&self, node: NodeId) {
        let mut state = self.state();
        if state.others.remove(&node).is_some_and(|peer| !peer.announcement.claims.is_empty()) {
            state.find_best();
            Self::tell(state);
        }
    }

    /// Calls the watcher, without the lock.
    fn tell(state: MutexGuard<'_, BoardState>) {
        let watcher = state.watcher.clone();
        drop(state);
        if let Some(watcher) = watcher {
            watcher();
        }
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoardState {
    fn rank(&self, stream: &str) -> u64 {
        self.own.get(stream).copied().unwrap_or(0)
    }

    /// Returns the place of the own claim in the order of claims.
    fn own_place(&self, stream: &str) -> Option<(u64, NodeId)> {
        Some((*self.own.get(stream)?, self.here.unwrap_or(NodeId(0))))
    }

    /// Returns the other nodes. One with the address of this node is an earlier run of it, which has not expired yet.
    fn reachable(&self) -> impl Iterator<Item = (&NodeId, &PeerClaims)> {
        let is_own = |address: &str| !address.is_empty() && self.address.as_deref() == Some(address);
        self.others.iter().filter(move |(_, peer)| !is_own(&peer.announcement.address))
    }

    /// Returns whether a claim of another node outranks this node's.
    fn is_above(&self, stream: &str, holder: &SourceHolder) -> bool {
        Some((holder.rank, holder.id)) > self.own_place(stream)
    }

    /// Finds the highest claim of other nodes for each stream.
    fn find_best(&mut self) {
        let mut best: BTreeMap<Box<str>, SourceHolder> = BTreeMap::new();
        for (id, peer) in self.reachable() {
            let (node, address) = (&peer.name, &peer.announcement.address);
            for (stream, rank) in &peer.announcement.claims {
                if best.get(stream).is_none_or(|other| (other.rank, other.id) < (*rank, *id)) {
                    let (node, address) = (node.clone(), address.clone());
                    best.insert(stream.clone(), SourceHolder { node, address, rank: *rank, id: *id });
                }
            }
        }
        self.best = best;
    }
}

impl fmt::Debug for SourceBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SourceBoard")
            .field("own", &state.own)
            .field("others", &state.others)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MOMENT: u64 = 1_000_000;

    fn node(id: u64) -> SourceBoard {
        let board = SourceBoard::default();
        board.set_here(NodeId(id));
        board.open(&format!("http://node-{id}/live/"), || {});
        board
    }

    /// Carries the heartbeat of a node to others.
    fn carry(from: &SourceBoard, id: u64, to: &[&SourceBoard]) {
        for other in to {
            let announcement = from.announcement().expect("it has live streams");
            other.hears(NodeId(id), &format!("node {id}"), announcement);
        }
    }

    fn holder(board: &SourceBoard, stream: &str) -> Option<String> {
        board.holder(stream).map(|holder| holder.address.into())
    }

    #[test]
    fn a_claim_is_known_elsewhere_until_its_end_or_that_of_its_node() {
        let (one, two) = (node(1), node(2));
        let rank = one.claim("film", false, MOMENT).expect("it is free");
        assert!(one.take_change() && !one.take_change());
        carry(&one, 1, &[&two]);
        assert_eq!(holder(&two, "film"), Some("http://node-1/live/".into()));
        assert!(
            matches!(two.claim("film", false, MOMENT), Err(ClaimError::Held(held)) if *held.node == *"node 1")
        );
        one.release("film", rank + 1);
        assert!(!one.take_change(), "another claim has ended");
        one.release("film", rank);
        assert!(one.take_change());
        carry(&one, 1, &[&two]);
        assert_eq!(holder(&two, "film"), None);
        one.claim("film", false, MOMENT).expect("it is free");
        carry(&one, 1, &[&two]);
        assert_eq!(two.held_elsewhere().into_keys().collect::<Vec<_>>(), ["film".into()]);
        two.forget(NodeId(1));
        assert_eq!((holder(&two, "film"), two.held_elsewhere().len()), (None, 0));
    }

    #[test]
    fn a_takeover_outranks_the_holder_whatever_its_clock() {
        let (one, two, three) = (node(1), node(2), node(3));
        one.claim("film", false, MOMENT).expect("it is free");
        carry(&one, 1, &[&two, &three]);
        // The clock of the second node is behind.
        two.claim("film", true, MOMENT - 500).expect("a takeover");
        assert_eq!(two.outranked(), []);
        carry(&two, 2, &[&one, &three]);
        assert_eq!(one.outranked(), [("film".into(), MOMENT)]);
        assert_eq!(holder(&one, "film"), Some("http://node-2/live/".into()));
        assert_eq!(holder(&two, "film"), None, "it is the holder itself");
        assert_eq!(holder(&three, "film"), Some("http://node-2/live/".into()));
        one.release("film", MOMENT);
        carry(&one, 1, &[&two, &three]);
        assert_eq!(one.outranked(), []);
        // And back.
        one.claim("film", true, MOMENT - 900).expect("a takeover");
        carry(&one, 1, &[&two]);
        assert_eq!(two.outranked(), [("film".into(), MOMENT + 1)]);
    }

    #[test]
    fn the_next_highest_claim_holds_a_stream_after_the_end_of_the_highest() {
        let (one, two, three) = (node(1), node(2), node(3));
        one.claim("film", false, MOMENT).expect("it is free");
        carry(&one, 1, &[&two, &three]);
        two.claim("film", true, MOMENT).expect("a takeover");
        carry(&two, 2, &[&three]);
        assert_eq!(holder(&three, "film"), Some("http://node-2/live/".into()));
        three.forget(NodeId(2));
        assert_eq!(holder(&three, "film"), Some("http://node-1/live/".into()));
        one.release("film", MOMENT);
        carry(&one, 1, &[&three]);
        assert_eq!(holder(&three, "film"), None);
    }

    #[test]
    fn of_two_sources_that_began_at_once_every_node_keeps_the_same() {
        for (first_ms, second_ms, keeps) in [(5, 6, 2), (6, 5, 1), (5, 5, 2)] {
            let (one, two, three) = (node(1), node(2), node(3));
            one.claim("film", false, first_ms).expect("it is free here");
            two.claim("film", false, second_ms).expect("it is free here");
            carry(&one, 1, &[&two, &three]);
            carry(&two, 2, &[&one, &three]);
            let ended = [!one.outranked().is_empty(), !two.outranked().is_empty()];
            assert_eq!(ended, [keeps == 2, keeps == 1], "{first_ms} {second_ms}");
            assert_eq!(holder(&three, "film"), Some(format!("http://node-{keeps}/live/")));
        }
    }

    #[test]
    fn an_earlier_run_of_the_same_node_holds_nothing() {
        let (before, now) = (node(1), node(1));
        before.claim("film", false, MOMENT).expect("it is free");
        now.set_here(NodeId(7));
        carry(&before, 1, &[&now]);
        assert_eq!(holder(&now, "film"), None);
        now.claim("film", false, MOMENT).expect("its own source returns");
    }

    #[test]
    fn changes_of_other_nodes_are_reported_and_claims_are_limited() {
        let (one, calls) = (node(1), Arc::new(AtomicUsize::new(0)));
        let two = SourceBoard::default();
        let counted = Arc::clone(&calls);
        two.open("", move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        one.claim("film", false, MOMENT).expect("it is free");
        carry(&one, 1, &[&two, &two]);
        assert_eq!(calls.load(Ordering::Relaxed), 1, "a repetition is no change");
        two.forget(NodeId(1));
        two.forget(NodeId(1));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        for number in 1..CLAIMS_MAX {
            one.claim(&format!("film/{number}"), false, MOMENT).expect("there is room");
        }
        assert_eq!(one.claim("another", false, MOMENT), Err(ClaimError::Full));
        assert!(one.claim("film", true, MOMENT).is_ok(), "a takeover needs no room");
        assert_eq!(SourceBoard::default().announcement(), None);
    }
}
