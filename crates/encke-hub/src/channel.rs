//! A channel on one worker: a replica of its ring, the nodes of its subscribers, and the pass over them.
//!
//! ```text
//!               visited        to be visited
//!  nodes  [ a b c d e f g | h i j k l m n o ]        a pass walks the nodes in order, one slice at a time
//!                         ▲ cursor                   the head moved during the pass: walk again, from the first
//! ```
//! **Joins and leaves during a pass skip no subscriber.** A new node is appended. When a visited node leaves, the last visited
//! node takes its index. The last node of all takes the freed index at the cursor, so it is visited next.

use std::sync::Arc;

use crate::encoding::{Encoded, Form};
use crate::limits::{ENCODINGS_MAX, RUN_BYTES_MAX, RUN_MESSAGES_MAX};
use crate::message::{Flags, Message};
use crate::name::Name;
use crate::preamble::{ChannelPreamble, ReplicaPreamble};
use crate::ring::Ring;
use crate::rules::{ChannelRules, Overrun};
use crate::subscriber::{ChannelEntry, ChannelLink};

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: Name,
    pub(crate) rules: ChannelRules,
    /// Whether the sequencer has fed the state of the channel.
    pub(crate) open: bool,
    /// The head at the opening. Subscribers that joined earlier and want new messages only start here.
    pub(crate) opened_at: u64,
    ring: Ring,
    /// The preamble, and the newest break; only of channels that had one.
    pub(crate) preamble: Option<Box<ReplicaPreamble>>,
    /// Messages up to this offset are lost.
    pub(crate) lost_to: u64,
    /// The offset of the latest change: the newest message or `lost_to`. A subscriber at this position is up to date.
    pub(crate) edge: u64,
    pub(crate) nodes: Vec<ChannelEntry>,
    /// The first node that the pass has not visited; 0 without a pass.
    cursor: u32,
    /// Whether a pass is in progress.
    pub(crate) dirty: bool,
    /// Whether the head has moved since the pass began.
    again: bool,
    /// The start of the current pass.
    begun: RateMark,
    /// The start of the next pass, if `again`.
    next: RateMark,
    /// Messages and bytes received so far, counted from an arbitrary start.
    received: u64,
    received_bytes: u64,
    /// Whether the pass lags by more than half of the ring.
    pub(crate) pressed: bool,
    encoded: Vec<Encoded>,
    /// The batch and index of the pending request that counts its subscribers.
    pub(crate) counted: (u64, usize),
    /// Whether the channel is in the hub's list of channels without subscribers.
    pub(crate) idle: bool,
    /// When the last subscriber left, on the monotonic clock in ns.
    pub(crate) left_ns: u64,
    /// Polling members whose leave is pending.
    pub(crate) lingering: u32,
    /// Subscribers that lost messages since the last request for operators: removed ones, and skips of others.
    pub(crate) slow: (u32, u32),
}

/// A point in time, with the counts of received messages and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct RateMark {
    mono_ns: u64,
    received: u64,
    received_bytes: u64,
}

/// Messages at the end of a ring at which a search for a position looks first.
const NEAR: usize = 4;

impl Channel {
    pub(crate) fn new(name: Name, rules: ChannelRules) -> Self {
        Self {
            name,
            rules,
            open: false,
            opened_at: 0,
            ring: Ring::default(),
            preamble: None,
            lost_to: 0,
            edge: 0,
            nodes: Vec::new(),
            cursor: 0,
            dirty: false,
            again: false,
            begun: RateMark::default(),
            next: RateMark::default(),
            received: 0,
            received_bytes: 0,
            pressed: false,
            encoded: Vec::new(),
            counted: (0, 0),
            idle: false,
            left_ns: 0,
            lingering: 0,
            slow: (0, 0),
        }
    }

    /// Returns whether a channel without subscribers may be released. It must be open, so that each `Opened` answers one
    /// `Want`. Its polling members must have left, since a pending leave would otherwise reach a new channel of this name.
    pub(crate) fn may_go(&self) -> bool {
        self.open && !self.dirty && self.lingering == 0
    }

    /// Applies the state fed by the sequencer.
    pub(crate) fn opens(
        &mut self,
        lost_to: u64,
        head: u64,
        messages: Vec<Arc<Message>>,
        preamble: Option<Box<ChannelPreamble>>,
    ) {
        self.set_preamble(preamble);
        self.open = true;
        self.opened_at = head.max(lost_to);
        self.lost_to = lost_to;
        self.ring = messages.into_iter().collect();
        self.edge = self.ring.back().map_or(lost_to, |last| last.offset.max(lost_to));
    }

    /// Appends the next message, and drops the messages that the sequencer has dropped.
    pub(crate) fn append(&mut self, message: Arc<Message>, lost_to: u64) {
        // Joins and leaves evict no message, so they put no pressure on a pass.
        if !message.is_event() {
            self.received += 1;
            self.received_bytes += message.charge();
        }
        if message.flags.has_any(Flags::PREAMBLE.with(Flags::BREAK)) {
            self.preamble.get_or_insert_default().take(&message);
        }
        self.edge = message.offset;
        self.ring.push_back(message);
        self.loses(lost_to);
        // The sequencer has removed the same events, or removes them when it feeds this one to a worker.
        while self.ring.events() > self.rules.events_max() {
            self.ring.remove_oldest_event();
        }
    }

    /// Drops messages up to an offset.
    pub(crate) fn loses(&mut self, to: u64) {
        while self.ring.front().is_some_and(|first| first.offset <= to) {
            self.ring.pop_front();
        }
        self.lost_to = self.lost_to.max(to);
        self.edge = self.edge.max(to);
    }

    /// Replaces the preamble by the one that the sequencer has.
    pub(crate) fn set_preamble(&mut self, preamble: Option<Box<ChannelPreamble>>) {
        match (&mut self.preamble, preamble) {
            (Some(kept), Some(known)) => kept.set(*known),
            (kept, known) => *kept = known.map(|known| Box::new(ReplicaPreamble::new(*known))),
        }
    }

    /// Returns the offset after which the channel counts for a subscriber with this floor.
    pub(crate) fn floor(&self, floor: u64) -> u64 {
        match floor {
            ChannelLink::PENDING if self.open => self.opened_at,
            _ => floor,
        }
    }

    /// Returns whether messages that count for a subscriber at `position` are lost.
    pub(crate) fn has_lost(&self, position: u64, floor: u64) -> bool {
        self.lost_to > position.max(self.floor(floor))
    }

    /// Returns the number of kept messages.
    pub(crate) fn kept(&self) -> usize {
        self.ring.len()
    }

    /// Returns the `index`-th oldest kept message.
    pub(crate) fn message(&self, index: usize) -> Option<&Arc<Message>> {
        self.ring.get(index)
    }

    /// Returns the number of kept messages up to an offset, which is the index of the first message after it.
    pub(crate) fn index_after(&self, offset: u64) -> usize {
        // Most subscribers lack the newest message alone: a search through the ring reads ten messages instead of two.
        let mut index = self.ring.len();
        for _ in 0..NEAR {
            match index.checked_sub(1).and_then(|before| self.ring.get(before)) {
                Some(message) if message.offset > offset => index -= 1,
                _ => return index,
            }
        }
        self.ring.partition_point(|message| message.offset <= offset)
    }

    /// Returns the number of kept messages older than a time.
    pub(crate) fn index_since(&self, unix_ms: u64) -> usize {
        self.ring.partition_point(|message| message.unix_ms < unix_ms)
    }

    /// Returns whether a message after an offset is kept.
    pub(crate) fn has_after(&self, offset: u64) -> bool {
        self.ring.back().is_some_and(|newest| newest.offset > offset)
    }

    /// Returns the offset just before the newest message.
    pub(crate) fn before_newest(&self) -> u64 {
        let newest = self.ring.newest_message().or_else(|| self.ring.back());
        newest.map_or(self.lost_to, |newest| newest.offset - 1)
    }

    /// Returns the cached encoding for a position, and the offset of its last message.
    pub(crate) fn encoded(&self, form: Form, oldest: bool, position: u64) -> Option<(u64, &Arc<[u8]>)> {
        let found = self.encoded.iter().find(|one| one.fits(form, oldest, position, self.edge))?;
        Some((found.to, &found.bytes))
    }

    /// Like [`encoded`](Self::encoded), but only a run that no break divides.
    pub(crate) fn encoded_unbroken(&self, form: Form, position: u64) -> Option<(u64, &Arc<[u8]>)> {
        let mut fitting = self.encoded.iter().filter(|one| one.fits(form, false, position, self.edge));
        let found = fitting.find(|one| !one.breaks)?;
        Some((found.to, &found.bytes))
    }

    /// Caches an encoding. Returns whether it is the first.
    pub(crate) fn keep(&mut self, encoded: Encoded) -> bool {
        if self.encoded.len() == ENCODINGS_MAX {
            // Lagging subscribers arrive one by one, those near the head in crowds: evict the encoding that ends first.
            let oldest = (0..ENCODINGS_MAX).min_by_key(|at| self.encoded[*at].to);
            self.encoded.swap_remove(oldest.unwrap_or(0));
        }
        self.encoded.push(encoded);
        self.encoded.len() == 1
    }

    pub(crate) fn drop_encoded(&mut self) {
        self.encoded.clear();
    }

    /// Records a change for the subscribers. Returns whether a pass begins now, and whether subscribers wait from this moment.
    pub(crate) fn touch(&mut self, mono_ns: u64, before: (u64, u64)) -> (bool, bool) {
        let mark = RateMark { mono_ns, received: before.0, received_bytes: before.1 };
        let begins = !self.dirty;
        let waits = begins || !self.again;
        if begins {
            self.dirty = true;
            self.begun = mark;
        } else if !self.again {
            self.again = true;
            self.next = mark;
        }
        (begins, waits)
    }

    /// Returns the messages and bytes received so far, for [`touch`](Self::touch).
    pub(crate) fn came(&self) -> (u64, u64) {
        (self.received, self.received_bytes)
    }

    /// Returns whether the pass lags by more than half of the ring. With [`Overrun::Latest`] a pass never lags.
    pub(crate) fn is_pressed(&self) -> bool {
        let messages = self.received - self.begun.received;
        let bytes = self.received_bytes - self.begun.received_bytes;
        let half = messages * 2 > self.rules.messages as u64 || bytes.saturating_mul(2) > self.rules.bytes;
        self.dirty && half && self.rules.policy != Overrun::Latest
    }

    /// Returns whether subscribers wait since this moment.
    pub(crate) fn waits_since(&self, mono_ns: u64) -> bool {
        self.dirty && (self.begun.mono_ns == mono_ns || (self.again && self.next.mono_ns == mono_ns))
    }

    /// Returns the next node of the pass; `None` at its end.
    pub(crate) fn visit(&mut self) -> Option<ChannelEntry> {
        let node = self.nodes.get(self.cursor as usize).copied()?;
        self.cursor += 1;
        Some(node)
    }

    /// Returns when the pass began, on the monotonic clock in ns.
    pub(crate) fn begun_ns(&self) -> u64 {
        self.begun.mono_ns
    }

    /// Ends a pass that has visited all nodes. Returns whether another pass begins.
    pub(crate) fn end_pass(&mut self) -> bool {
        self.cursor = 0;
        self.dirty = self.again;
        self.again = false;
        self.begun = self.next;
        self.dirty
    }

    /// Adds a node for a subscriber. Returns its index.
    pub(crate) fn joins(&mut self, node: ChannelEntry) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("subscribers are numbered by 32 bits")
    }

    /// Removes a node. Calls `moved` for each node that gets another index.
    pub(crate) fn leaves(&mut self, place: u32, mut moved: impl FnMut(ChannelEntry, u32)) {
        let mut hole = place;
        if hole < self.cursor {
            self.cursor -= 1;
            if hole < self.cursor {
                let last_visited = self.nodes[self.cursor as usize];
                self.nodes[hole as usize] = last_visited;
                moved(last_visited, hole);
            }
            hole = self.cursor;
        }
        self.nodes.swap_remove(hole as usize);
        if let Some(node) = self.nodes.get(hole as usize) {
            moved(*node, hole);
        }
    }
}

/// Collects messages until a run is full: 64 messages or 64 KiB. The first message always fits.
pub(crate) struct Collector<'a> {
    messages: &'a mut Vec<Arc<Message>>,
    most: usize,
    bytes: usize,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(messages: &'a mut Vec<Arc<Message>>, only_one: bool) -> Self {
        messages.clear();
        Self { messages, most: if only_one { 1 } else { RUN_MESSAGES_MAX }, bytes: 0 }
    }

    /// Adds a message if the run has room. Returns whether it had.
    pub(crate) fn take(&mut self, message: &Arc<Message>) -> bool {
        let bytes = self.bytes + message.data.len();
        let room = self.messages.is_empty() || (self.messages.len() < self.most && bytes <= RUN_BYTES_MAX);
        if room {
            self.bytes = bytes;
            self.messages.push(Arc::clone(message));
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(subscribers: u32) -> Channel {
        let mut channel = Channel::new(Name::parse(b"news").expect("a name"), ChannelRules::default());
        for subscriber in 0..subscribers {
            channel.joins(ChannelEntry { subscriber, link: 0 });
        }
        channel
    }

    #[test]
    fn a_position_is_found_near_the_end_of_a_ring_and_far_from_it() {
        for kept in [0, 1, NEAR as u64, NEAR as u64 + 1, 40] {
            let mut channel = channel(0);
            // Other channels have the offsets in between.
            for offset in (1..=kept).map(|number| 3 * number) {
                let message = Message {
                    offset,
                    channel: Name::parse(b"news").expect("a name"),
                    data: Vec::new().into(),
                    text: true,
                    content_type: None,
                    event: None,
                    unix_ms: 0,
                    flags: crate::Flags::default(),
                };
                channel.ring.push_back(Arc::new(message));
            }
            for offset in 0..=3 * kept + 1 {
                let before = channel.ring.iter().filter(|message| message.offset <= offset).count();
                assert_eq!(channel.index_after(offset), before, "{offset} of {kept}");
            }
        }
    }

    /// A subscriber that stays for a whole pass is visited once. One that joins or leaves is visited at most once.
    #[test]
    fn a_pass_visits_each_once_whoever_joins_and_leaves_meanwhile() {
        let mut seed = 7_u64;
        println!("seed {seed}");
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..2_000 {
            let size = random(12) as u32;
            let mut channel = channel(size);
            let mut places: Vec<Option<u32>> = (0..size).map(Some).collect();
            let mut stayed: Vec<bool> = vec![true; size as usize];
            let mut visits = vec![0; size as usize];
            channel.touch(0, (0, 0));
            loop {
                match random(4) {
                    0 => {
                        let subscriber = places.len() as u32;
                        places.push(Some(channel.joins(ChannelEntry { subscriber, link: 0 })));
                        stayed.push(false);
                        visits.push(0);
                    }
                    1 => {
                        let present: Vec<usize> =
                            (0..places.len()).filter(|at| places[*at].is_some()).collect();
                        if !present.is_empty() {
                            let one = present[random(present.len() as u64) as usize];
                            let place = places[one].take().expect("it is present");
                            stayed[one] = false;
                            channel.leaves(place, |node, to| places[node.subscriber as usize] = Some(to));
                        }
                    }
                    _ => match channel.visit() {
                        Some(node) => {
                            assert!(places[node.subscriber as usize].is_some());
                            visits[node.subscriber as usize] += 1;
                        }
                        None => break,
                    },
                }
                for (subscriber, place) in places.iter().enumerate() {
                    if let Some(place) = place {
                        assert_eq!(channel.nodes[*place as usize].subscriber as usize, subscriber);
                    }
                }
            }
            assert!(!channel.end_pass());
            assert!(visits.iter().all(|visits| *visits <= 1));
            assert!(stayed.iter().zip(&visits).all(|(stayed, visits)| !stayed || *visits == 1));
        }
    }

    #[test]
    fn a_pass_repeats_when_the_head_moved_meanwhile() {
        let mut channel = channel(3);
        assert_eq!(channel.touch(5, (0, 0)), (true, true));
        assert!(channel.visit().is_some());
        assert_eq!(channel.touch(6, (1, 10)), (false, true));
        assert_eq!(channel.touch(7, (2, 20)), (false, false));
        assert!(channel.waits_since(5) && channel.waits_since(6) && !channel.waits_since(7));
        assert!(channel.visit().is_some() && channel.visit().is_some() && channel.visit().is_none());
        assert!(channel.end_pass());
        assert!(channel.waits_since(6) && !channel.waits_since(5));
        assert_eq!(channel.visit().map(|node| node.subscriber), Some(0));
        while channel.visit().is_some() {}
        assert!(!channel.end_pass());
        assert!(!channel.waits_since(6));
    }
}
