//! A channel on one core: a replica of its ring, the nodes of its subscribers, and the pass over them.
//!
//! ```text
//!              visited        to be visited
//!  nodes  [ a b c d e f g | h i j k l m n o ]        a pass walks the nodes in sequence, a slice at a time
//!                         ▲ cursor                   the head moved meanwhile: once more, from the first
//! ```
//! **Joins and leaves during a pass skip nobody.** A new node goes to the end. When a visited node goes, the last of
//! the visited takes its place and the last of all takes that one's, which is now the first to be visited.

use std::sync::Arc;

use crate::encoding::{Encoded, Form};
use crate::limits::{ENCODINGS_MAX, RUN_BYTES_MAX, RUN_MESSAGES_MAX};
use crate::message::Message;
use crate::name::Name;
use crate::ring::Ring;
use crate::rules::{ChannelRules, Overrun};
use crate::subscriber::{Link, Node};

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: Name,
    pub(crate) rules: ChannelRules,
    /// Whether the sequencer has told what there is.
    pub(crate) open: bool,
    /// Up to where everything was told when it opened: where those begin who came before and want the news.
    pub(crate) opened_at: u64,
    ring: Ring,
    /// Up to which offset messages are lost.
    pub(crate) lost_to: u64,
    /// Something happened up to here: the offset of the newest message, or `lost_to`. Whoever is there knows all.
    pub(crate) edge: u64,
    pub(crate) nodes: Vec<Node>,
    /// The first node that the pass has still to visit; 0 if there is none.
    cursor: u32,
    /// Whether a pass has begun and not ended.
    pub(crate) dirty: bool,
    /// Whether the head has moved since the pass began.
    again: bool,
    /// When and where the pass began.
    begun: Mark,
    /// The same for the next one, if there is to be one.
    next: Mark,
    /// Messages and bytes that ever came, from some beginning on.
    came: u64,
    came_bytes: u64,
    /// Whether the pass is half a ring behind.
    pub(crate) pressed: bool,
    encoded: Vec<Encoded>,
    /// Which request of which batch counts its subscribers.
    pub(crate) counted: (u64, usize),
    /// Whether it stands in the list of those that perhaps nobody wants any more.
    pub(crate) idle: bool,
    /// When its last subscriber went.
    pub(crate) left_ns: u64,
    /// Polling members whose leave is pending.
    pub(crate) lingering: u32,
}

/// A moment in the life of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    mono_ns: u64,
    came: u64,
    came_bytes: u64,
}

impl Channel {
    pub(crate) fn new(name: Name, rules: ChannelRules) -> Self {
        Self {
            name,
            rules,
            open: false,
            opened_at: 0,
            ring: Ring::default(),
            lost_to: 0,
            edge: 0,
            nodes: Vec::new(),
            cursor: 0,
            dirty: false,
            again: false,
            begun: Mark::default(),
            next: Mark::default(),
            came: 0,
            came_bytes: 0,
            pressed: false,
            encoded: Vec::new(),
            counted: (0, 0),
            idle: false,
            left_ns: 0,
            lingering: 0,
        }
    }

    /// Whether a channel without subscribers may be released: only once it has opened, so that each `Opened` answers one `Want`,
    /// and only once polling members have left, whose leave would otherwise reach a new channel of this name.
    pub(crate) fn may_go(&self) -> bool {
        self.open && !self.dirty && self.lingering == 0
    }

    /// Takes over what the sequencer says there is.
    pub(crate) fn opens(&mut self, lost_to: u64, head: u64, messages: Vec<Arc<Message>>) {
        self.open = true;
        self.opened_at = head.max(lost_to);
        self.lost_to = lost_to;
        self.ring = messages.into_iter().collect();
        self.edge = self.ring.back().map_or(lost_to, |last| last.offset.max(lost_to));
    }

    /// Takes the next message, and lets go of those that the sequencer has let go of.
    pub(crate) fn comes(&mut self, message: Arc<Message>, lost_to: u64) {
        // Joins and leaves evict no message: they put no pass under pressure.
        if !message.is_event() {
            self.came += 1;
            self.came_bytes += message.charge();
        }
        self.edge = message.offset;
        self.ring.push_back(message);
        self.loses(lost_to);
        // The sequencer has removed the same ones, or will when it gives this one to a core.
        while self.ring.events() > self.rules.events_max() {
            self.ring.remove_oldest_event();
        }
    }

    /// Lets go of messages.
    pub(crate) fn loses(&mut self, to: u64) {
        while self.ring.front().is_some_and(|first| first.offset <= to) {
            self.ring.pop_front();
        }
        self.lost_to = self.lost_to.max(to);
        self.edge = self.edge.max(to);
    }

    /// From where on it counts for a subscriber with this floor.
    pub(crate) fn floor(&self, floor: u64) -> u64 {
        match floor {
            Link::PENDING if self.open => self.opened_at,
            _ => floor,
        }
    }

    /// Whether messages that count for somebody at `position` are gone.
    pub(crate) fn has_lost(&self, position: u64, floor: u64) -> bool {
        self.lost_to > position.max(self.floor(floor))
    }

    /// How many messages are kept.
    pub(crate) fn kept(&self) -> usize {
        self.ring.len()
    }

    /// The `index`-th oldest message that is kept.
    pub(crate) fn message(&self, index: usize) -> Option<&Arc<Message>> {
        self.ring.get(index)
    }

    /// How many kept messages lie at or before an offset: the index of the first one behind it.
    pub(crate) fn index_after(&self, offset: u64) -> usize {
        self.ring.partition_point(|message| message.offset <= offset)
    }

    /// How many kept messages are older than a moment.
    pub(crate) fn index_since(&self, unix_ms: u64) -> usize {
        self.ring.partition_point(|message| message.unix_ms < unix_ms)
    }

    /// Whether a message behind an offset is kept.
    pub(crate) fn has_after(&self, offset: u64) -> bool {
        self.ring.back().is_some_and(|newest| newest.offset > offset)
    }

    /// The offset right before the newest message.
    pub(crate) fn before_newest(&self) -> u64 {
        let newest = self.ring.newest_message().or_else(|| self.ring.back());
        newest.map_or(self.lost_to, |newest| newest.offset - 1)
    }

    /// What was encoded before for whoever stands where this one does: the offset behind it, and the bytes.
    pub(crate) fn encoded(&self, form: Form, oldest: bool, position: u64) -> Option<(u64, &Arc<[u8]>)> {
        let found = self.encoded.iter().find(|one| one.fits(form, oldest, position, self.edge))?;
        Some((found.to, &found.bytes))
    }

    /// Keeps an encoding for others; says whether it is the first.
    pub(crate) fn keep(&mut self, encoded: Encoded) -> bool {
        if self.encoded.len() == ENCODINGS_MAX {
            // Those who are far behind come one by one; those near the head in crowds.
            let oldest = (0..ENCODINGS_MAX).min_by_key(|at| self.encoded[*at].to);
            self.encoded.swap_remove(oldest.unwrap_or(0));
        }
        self.encoded.push(encoded);
        self.encoded.len() == 1
    }

    pub(crate) fn drop_encoded(&mut self) {
        self.encoded.clear();
    }

    /// Says that something is to be told to its subscribers. Returns whether a pass begins now, and whether a moment
    /// begins from which on somebody waits.
    pub(crate) fn touch(&mut self, mono_ns: u64, before: (u64, u64)) -> (bool, bool) {
        let mark = Mark { mono_ns, came: before.0, came_bytes: before.1 };
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

    /// What came so far, for [`touch`](Self::touch).
    pub(crate) fn came(&self) -> (u64, u64) {
        (self.came, self.came_bytes)
    }

    /// Whether the pass is behind by more than half of what the ring holds. Who wants only the latest is never
    /// behind in that sense.
    pub(crate) fn is_pressed(&self) -> bool {
        let messages = self.came - self.begun.came;
        let bytes = self.came_bytes - self.begun.came_bytes;
        let half = messages * 2 > self.rules.messages as u64 || bytes.saturating_mul(2) > self.rules.bytes;
        self.dirty && half && self.rules.policy != Overrun::Latest
    }

    /// Whether somebody has waited since this moment.
    pub(crate) fn waits_since(&self, mono_ns: u64) -> bool {
        self.dirty && (self.begun.mono_ns == mono_ns || (self.again && self.next.mono_ns == mono_ns))
    }

    /// The next node of the pass; `None`: it has come to its end.
    pub(crate) fn visit(&mut self) -> Option<Node> {
        let node = self.nodes.get(self.cursor as usize).copied()?;
        self.cursor += 1;
        Some(node)
    }

    /// When the pass began, on the monotonic clock in ns.
    pub(crate) fn begun_ns(&self) -> u64 {
        self.begun.mono_ns
    }

    /// Ends a pass that has visited all; says whether another begins at once.
    pub(crate) fn pass_ends(&mut self) -> bool {
        self.cursor = 0;
        self.dirty = self.again;
        self.again = false;
        self.begun = self.next;
        self.dirty
    }

    /// Gives a subscriber a node.
    pub(crate) fn joins(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("subscribers are numbered by 32 bits")
    }

    /// Takes a node away, and tells of each that has moved for it.
    pub(crate) fn leaves(&mut self, place: u32, mut moved: impl FnMut(Node, u32)) {
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

/// Collects messages until a run is full: 64 of them, or 64 KiB; the first always.
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

    /// Takes a message if there is room.
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
            channel.joins(Node { subscriber, link: 0 });
        }
        channel
    }

    /// Whoever is there from the beginning to the end of a pass is visited once; whoever joins or leaves, at most once.
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
                        places.push(Some(channel.joins(Node { subscriber, link: 0 })));
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
            assert!(!channel.pass_ends());
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
        assert!(channel.pass_ends());
        assert!(channel.waits_since(6) && !channel.waits_since(5));
        assert_eq!(channel.visit().map(|node| node.subscriber), Some(0));
        while channel.visit().is_some() {}
        assert!(!channel.pass_ends());
        assert!(!channel.waits_since(6));
    }
}
