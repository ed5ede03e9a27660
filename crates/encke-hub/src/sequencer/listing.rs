//! The list of channels: a walk over all channels in slices, which keeps the first names after a given one.
//!
//! ```text
//! Sequencer::walk ─► a slice of its channels, then of those that only other nodes have ─► names, at most limit + 1
//!       ▲                                     │ more
//!       └───────── in a later turn ───────────┘        ChannelWalk::finish ─► sorted names, and whether there are more
//! ```
//! A walk over 100,000 channels takes about ten milliseconds, so no turn does all of it. A channel that exists during the whole
//! walk is listed once. A channel that begins or ends meanwhile may be listed or not.

use std::collections::BinaryHeap;

use super::{SequencedChannel, Sequencer};
use crate::name::Name;
use crate::position::Position;

/// A walk over the channels of one sequencer, or of several in turn.
#[derive(Debug)]
pub struct ChannelWalk {
    after: Option<Name>,
    limit: usize,
    /// The first names after `after`, at most one more than the limit. The last one is on top.
    names: BinaryHeap<Name>,
    total: u64,
    cursor: ChannelCursor,
}

/// The next place of a walk over the channels of one sequencer, or of several in turn.
#[derive(Debug)]
pub struct ChannelCursor(WalkStage);

/// The next place of a walk in the present sequencer.
#[derive(Debug)]
enum WalkStage {
    /// The channel at this index.
    Own(u32),
    /// The first channel after this name that only other nodes have.
    Elsewhere(Option<Name>),
}

impl Default for ChannelCursor {
    /// The first channel.
    fn default() -> Self {
        Self(WalkStage::Own(0))
    }
}

/// A page of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelPage {
    /// The names in order, at most the limit.
    pub names: Vec<Name>,
    /// Whether more names follow.
    pub more: bool,
    /// Number of admitted channels, also those before the page and after it.
    pub total: u64,
}

/// A channel in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelRow {
    /// The history is available here: on a node of a cluster only while the channel has local subscribers.
    pub kept: bool,
    /// Number of kept messages, without joins and leaves.
    pub messages: usize,
    /// Bytes of the kept messages.
    pub bytes: u64,
    /// The position of the oldest kept message, join or leave.
    pub first: Option<Position>,
    /// The position of the newest kept message, join or leave.
    pub last: Option<Position>,
    /// When that one was published, in milliseconds since 1970.
    pub last_unix_ms: Option<u64>,
    /// Number of subscribers, as counted by the workers.
    pub subscribers: u32,
    /// The messages are stored on the disk of this server.
    pub durable: bool,
}

impl ChannelWalk {
    /// Begins a walk that collects the first `limit` names after `after`.
    pub fn new(after: Option<Name>, limit: usize) -> Self {
        Self { after, limit, names: BinaryHeap::new(), total: 0, cursor: ChannelCursor::default() }
    }

    /// Returns the names that were found.
    pub fn finish(self) -> ChannelPage {
        let mut names = self.names.into_sorted_vec();
        // A channel may have moved between the stages during the walk.
        names.dedup();
        let more = names.len() > self.limit;
        names.truncate(self.limit);
        ChannelPage { names, more, total: self.total }
    }

    fn add(&mut self, name: &Name) {
        self.total += 1;
        let full = self.names.len() > self.limit;
        let late = full && self.names.peek().is_some_and(|last| last <= name);
        if late || self.after.as_ref().is_some_and(|after| name <= after) {
            return;
        }
        self.names.push(name.clone());
        if full {
            self.names.pop();
        }
    }
}

impl Sequencer {
    /// Visits the next `most` channels of a walk. Returns whether it has visited all of this sequencer; the next call then
    /// begins with another one. `admits` selects channels.
    pub fn walk(&self, walk: &mut ChannelWalk, most: u32, admits: impl Fn(&Name) -> bool) -> bool {
        let mut cursor = std::mem::take(&mut walk.cursor);
        let is_over = self.visit(&mut cursor, most, |name, _| {
            if admits(name) {
                walk.add(name);
            }
        });
        walk.cursor = cursor;
        is_over
    }

    /// Visits the next `most` channels after a cursor, without channels that exist only because a worker still wants them. A
    /// channel that only other nodes have is passed without its state. Returns whether the walk is over; the cursor then begins
    /// again.
    pub(super) fn visit<'a>(
        &'a self,
        cursor: &mut ChannelCursor,
        most: u32,
        mut visit: impl FnMut(&'a Name, Option<&'a SequencedChannel>),
    ) -> bool {
        let mut left = most;
        if let WalkStage::Own(start) = cursor.0 {
            let end = self.channels.places().min(start.saturating_add(most));
            for at in start..end {
                if let Some(channel) = self.channels.get(at).filter(|channel| !channel.idle) {
                    visit(&channel.name, Some(channel));
                }
            }
            cursor.0 = WalkStage::Own(end);
            if end < self.channels.places() {
                return false;
            }
            left -= end.saturating_sub(start);
            cursor.0 = WalkStage::Elsewhere(None);
        }
        let WalkStage::Elsewhere(after) = &cursor.0 else { return false };
        let names: Vec<&Name> = self.names_elsewhere(after.as_ref()).take(left as usize).collect();
        let ends = names.len() < left as usize;
        let last = names.last().copied().cloned();
        for name in names {
            let known = self.find(name).is_some_and(|channel| !channel.idle);
            if !known && self.subscribers_elsewhere(name) > 0 {
                visit(name, None);
            }
        }
        match last {
            Some(last) if !ends => cursor.0 = WalkStage::Elsewhere(Some(last)),
            _ if ends => cursor.0 = WalkStage::Own(0),
            _ => return false,
        }
        ends
    }

    /// Returns the row of a channel; `None` if it does not exist.
    pub fn row(&self, name: &Name) -> Option<ChannelRow> {
        let subscribers = self.subscribers(name);
        let Some(channel) = self.find(name) else {
            let elsewhere = ChannelRow {
                kept: false,
                messages: 0,
                bytes: 0,
                first: None,
                last: None,
                last_unix_ms: None,
                subscribers,
                durable: false,
            };
            return (subscribers > 0).then_some(elsewhere);
        };
        let last = channel.ring.back();
        Some(ChannelRow {
            kept: channel.reading.is_none(),
            messages: channel.ring.messages(),
            bytes: channel.bytes - channel.ring.event_bytes(),
            first: channel.ring.front().map(|message| self.at(message.offset)),
            last: last.map(|message| self.at(message.offset)),
            last_unix_ms: last.map(|message| message.unix_ms),
            subscribers,
            durable: channel.rules.durable && self.durable.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::shared::{AudienceChange, ClusterEvent, NodeId};
    use super::*;
    use crate::HubNow;
    use crate::message::Draft;
    use crate::position::Epoch;
    use crate::rules::Rules;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).expect("a name")
    }

    /// Walks over all channels in slices of `most`. Returns the page, and the number of slices.
    fn page(
        sequencers: &[&Sequencer],
        after: &str,
        limit: usize,
        most: u32,
        prefix: &str,
    ) -> (ChannelPage, usize) {
        let after = (!after.is_empty()).then(|| name(after));
        let mut walk = ChannelWalk::new(after, limit);
        let mut slices = 0;
        for sequencer in sequencers {
            loop {
                slices += 1;
                if sequencer.walk(&mut walk, most, |name| name.as_str().starts_with(prefix)) {
                    break;
                }
                assert!(slices < 10_000, "the walk does not end");
            }
        }
        (walk.finish(), slices)
    }

    fn with_channels(count: usize) -> Sequencer {
        let mut sequencer = Sequencer::new(Epoch(7), Arc::new(Rules::default()), 1);
        for number in 0..count {
            // Not in the order of names.
            let draft = Draft::new(name(&format!("c/{:03}", number * 7 % count)), *b"x");
            sequencer
                .publish(HubNow { mono_ns: 0, unix_ms: 5_000 + number as u64 }, draft)
                .expect("within limits");
        }
        sequencer
    }

    #[test]
    fn pages_in_any_slices_have_every_channel_once_and_in_order() {
        let sequencer = with_channels(100);
        let all: Vec<Name> = (0..100).map(|number| name(&format!("c/{number:03}"))).collect();
        for most in [1, 7, 100, 101, 10_000] {
            for limit in [1, 9, 50, 100, 101] {
                let (mut found, mut after) = (Vec::new(), String::new());
                loop {
                    let (page, _) = page(&[&sequencer], &after, limit, most, "c/");
                    assert_eq!(page.total, 100);
                    assert!(page.names.len() <= limit);
                    found.extend(page.names);
                    if !page.more {
                        break;
                    }
                    after = found.last().map(ToString::to_string).expect("a page with more is not empty");
                }
                assert_eq!(found, all, "slices of {most}, pages of {limit}");
            }
        }
        assert!(page(&[&sequencer], "", 10, 10, "").1 >= 10, "a slice visits at most ten channels");
        let (page, _) = page(&[&sequencer], "c/097", 10, 10, "c/09");
        assert_eq!((page.names, page.more, page.total), (all[98..].to_vec(), false, 10));
    }

    #[test]
    fn several_sequencers_have_one_list() {
        let (one, mut other) = (with_channels(3), with_channels(0));
        other.publish(HubNow::default(), Draft::new(name("b"), *b"x")).expect("within limits");
        other.publish(HubNow::default(), Draft::new(name("d"), *b"x")).expect("within limits");
        let (page, _) = page(&[&one, &other], "", 4, 2, "");
        assert_eq!(page.names, [name("b"), name("c/000"), name("c/001"), name("c/002")]);
        assert!(page.more);
    }

    #[test]
    fn a_channel_without_message_and_subscriber_is_not_listed() {
        let mut sequencer = with_channels(1);
        sequencer.want(0, &name("idle"));
        sequencer.want(0, &name("read"));
        sequencer.count(0, &name("read"), 2, 0);
        assert_eq!(page(&[&sequencer], "", 9, 9, "").0.names, [name("c/000"), name("read")]);
        let row = sequencer.row(&name("read")).expect("it exists");
        assert_eq!((row.subscribers, row.messages, row.last_unix_ms, row.kept), (2, 0, None, true));
        let row = sequencer.row(&name("c/000")).expect("it exists");
        assert_eq!(
            (row.messages, row.last_unix_ms, row.first, row.durable),
            (1, Some(5_000), row.last, false)
        );
        assert_eq!(sequencer.row(&name("absent")), None);
    }

    #[test]
    fn a_node_lists_channels_of_other_nodes() {
        let mut sequencer = Sequencer::follow(Epoch(7), 0, Arc::new(Rules::default()), 1);
        let change = |channel: &str, subscribers| AudienceChange {
            channel: name(channel),
            subscribers,
            joined: Vec::new(),
            left: Vec::new(),
        };
        let changes = ["x", "a", "m", "here"].map(|channel| change(channel, 3)).to_vec();
        sequencer.on_event(ClusterEvent::Told { node: NodeId(2), anew: false, changes });
        sequencer.want(0, &name("here"));
        sequencer.count(0, &name("here"), 1, 0);
        for most in [1, 2, 3, 9] {
            let (page, _) = page(&[&sequencer], "", 9, most, "");
            assert_eq!(page.names, [name("a"), name("here"), name("m"), name("x")], "slices of {most}");
            assert_eq!(page.total, 4);
        }
        let row = sequencer.row(&name("m")).expect("another node has it");
        assert_eq!((row.kept, row.subscribers), (false, 3));
        assert_eq!(sequencer.row(&name("here")).map(|row| row.subscribers), Some(4));
    }
}
