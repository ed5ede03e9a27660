//! The view that an operator has of a sequencer: figures of channels, members, and kept messages.

use std::sync::Arc;

use super::listing::ChannelCursor;
use super::{SequencedChannel, Sequencer};
use crate::message::Message;
use crate::name::Name;
use crate::rules::ChannelRules;

/// The figures of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelFigures {
    /// The history is available here: on a node of a cluster only while the channel has local subscribers.
    pub kept: bool,
    /// Number of subscribers, as counted by the workers, and on other nodes.
    pub subscribers: u32,
    /// Messages since the start of the server, or since the channel exists here; those restored at the start count as well.
    pub messages: u64,
    /// Messages per second, over the last 8 seconds.
    pub rate: f64,
    /// When the newest kept message was published, in milliseconds since 1970.
    pub last_unix_ms: Option<u64>,
    /// Number of kept messages, without joins and leaves.
    pub retained: usize,
    /// Bytes of the kept messages.
    pub retained_bytes: u64,
    /// Subscribers that were disconnected because their next messages were no longer kept.
    pub slow_ended: u32,
    /// Number of times that a subscriber has skipped messages for that reason.
    pub slow_skipped: u32,
    /// The messages are stored on the disk of this server.
    pub durable: bool,
    /// The rules of the channel.
    pub rules: ChannelRules,
}

/// A member of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPresence {
    /// The name.
    pub name: Arc<str>,
    /// Number of its subscribers here; one for each other node with the member.
    pub count: u32,
}

impl Sequencer {
    /// Returns the figures of a channel at a time, in milliseconds since 1970; `None` if it does not exist.
    pub fn figures(&self, name: &Name, unix_ms: u64) -> Option<ChannelFigures> {
        let channel = self.find(name);
        let figures = self.figures_of(name, channel, unix_ms);
        (channel.is_some() || figures.subscribers > 0).then_some(figures)
    }

    /// Visits the next `most` channels after a cursor. Returns whether all channels of this sequencer were visited; the cursor
    /// then begins with the next sequencer. Channels that begin or end during a walk may be visited or not.
    pub fn each_channel(
        &self,
        cursor: &mut ChannelCursor,
        most: u32,
        unix_ms: u64,
        mut visit: impl FnMut(&Name, ChannelFigures),
    ) -> bool {
        self.visit(cursor, most, |name, channel| visit(name, self.figures_of(name, channel, unix_ms)))
    }

    fn figures_of(&self, name: &Name, channel: Option<&SequencedChannel>, unix_ms: u64) -> ChannelFigures {
        // Most servers are no node of a cluster.
        let elsewhere = if self.shared.is_some() { self.subscribers_elsewhere(name) } else { 0 };
        let Some(channel) = channel else {
            return ChannelFigures {
                kept: false,
                subscribers: elsewhere,
                messages: 0,
                rate: 0.0,
                last_unix_ms: None,
                retained: 0,
                retained_bytes: 0,
                slow_ended: 0,
                slow_skipped: 0,
                durable: false,
                rules: *self.rules.of(name),
            };
        };
        ChannelFigures {
            kept: channel.reading.is_none(),
            subscribers: channel.subscribers.saturating_add(elsewhere),
            messages: channel.flow.messages,
            rate: channel.flow.rate(unix_ms),
            last_unix_ms: channel.ring.newest_message().map(|message| message.unix_ms),
            retained: channel.ring.messages(),
            retained_bytes: channel.bytes - channel.ring.event_bytes(),
            slow_ended: channel.flow.ended,
            slow_skipped: channel.flow.skipped,
            durable: channel.rules.durable && self.durable.is_some(),
            rules: channel.rules,
        }
    }

    /// Returns the members of a channel, on all nodes, by name.
    pub fn member_counts(&self, name: &Name) -> Vec<MemberPresence> {
        let mut members = self.find(name).map_or_else(Vec::new, |channel| channel.roster.counts());
        for other in self.members_elsewhere(name) {
            match members.binary_search_by(|member| member.name.cmp(other)) {
                Ok(at) => members[at].count += 1,
                Err(at) => members.insert(at, MemberPresence { name: Arc::clone(other), count: 1 }),
            }
        }
        members
    }

    /// Returns the kept messages of a channel after an offset, oldest first: at most `most`, with joins and leaves.
    pub fn kept_messages(&self, name: &Name, after: u64, most: usize) -> impl Iterator<Item = &Arc<Message>> {
        let ring = self.find(name).map(|channel| &channel.ring);
        let start = ring.map_or(0, |ring| ring.partition_point(|message| message.offset <= after));
        ring.into_iter().flat_map(move |ring| ring.iter().skip(start).take(most))
    }

    /// Returns the offset after which the newest `most` kept messages of a channel begin, and the number of earlier ones.
    pub fn before_newest(&self, name: &Name, most: usize) -> (u64, usize) {
        let Some(ring) = self.find(name).map(|channel| &channel.ring) else { return (0, 0) };
        let earlier = ring.len().saturating_sub(most);
        let last = earlier.checked_sub(1).and_then(|index| ring.get(index));
        (last.map_or(0, |message| message.offset), earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HubNow;
    use crate::message::Draft;
    use crate::position::Epoch;
    use crate::rules::Rules;
    use crate::subscriber::Member;
    use crate::values::FeedRequest;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).expect("a name")
    }

    fn publish(sequencer: &mut Sequencer, channel: &str, unix_ms: u64, data: &str) {
        let draft = Draft::new(name(channel), data.as_bytes().to_vec());
        sequencer.publish(HubNow { mono_ns: 0, unix_ms }, draft).expect("within limits");
    }

    #[test]
    fn figures_count_messages_beyond_the_history_and_slow_subscribers() {
        let mut rules = Rules::default();
        rules.default.messages = 3;
        let mut sequencer = Sequencer::new(Epoch(1), Arc::new(rules), 1);
        for number in 0..10 {
            publish(&mut sequencer, "news", 5_000 + number, "four");
        }
        let slow = FeedRequest::Slow { channel: name("news"), ended: 2, skipped: 5 };
        sequencer.apply(HubNow::default(), 0, slow);
        let figures = sequencer.figures(&name("news"), 6_000).expect("it exists");
        assert_eq!((figures.messages, figures.retained, figures.last_unix_ms), (10, 3, Some(5_009)));
        assert_eq!((figures.slow_ended, figures.slow_skipped, figures.kept), (2, 5, true));
        assert!((1.0..2.0).contains(&figures.rate), "{}", figures.rate);
        assert_eq!(sequencer.figures(&name("absent"), 6_000), None);
        let texts = |after| -> Vec<u64> {
            sequencer.kept_messages(&name("news"), after, 2).map(|message| message.offset).collect()
        };
        assert_eq!((texts(0), texts(9), texts(10)), (vec![8, 9], vec![10], vec![]));
        let newest = |most| sequencer.before_newest(&name("news"), most);
        assert_eq!((newest(1), newest(2), newest(3), newest(9)), ((9, 2), (8, 1), (0, 0), (0, 0)));
    }

    #[test]
    fn each_channel_is_visited_once_with_its_figures_in_slices_of_any_length() {
        let mut sequencer = Sequencer::new(Epoch(1), Arc::new(Rules::default()), 1);
        for number in 0..20 {
            publish(&mut sequencer, &format!("c/{number:02}"), 5_000, "x");
        }
        sequencer.want(0, &name("idle"));
        for most in [1, 3, 20, 100] {
            let (mut cursor, mut found) = (ChannelCursor::default(), Vec::new());
            while !sequencer.each_channel(&mut cursor, most, 5_000, |name, figures| {
                found.push((name.as_str().to_owned(), figures.messages));
            }) {
                assert!(found.len() <= 20, "the walk does not end");
            }
            found.sort();
            let expected: Vec<_> = (0..20).map(|number| (format!("c/{number:02}"), 1)).collect();
            assert_eq!(found, expected, "slices of {most}");
        }
    }

    #[test]
    fn members_are_counted_by_name() {
        let mut rules = Rules::default();
        rules.default.presence = true;
        let mut sequencer = Sequencer::new(Epoch(1), Arc::new(rules), 1);
        sequencer.want(0, &name("room"));
        for member in ["bob", "ada", "bob"] {
            let member = Member { name: member.into(), client: None };
            sequencer.member_joins(HubNow::default(), &name("room"), &member);
        }
        let count = |name: &str, count| MemberPresence { name: name.into(), count };
        assert_eq!(sequencer.member_counts(&name("room")), [count("ada", 1), count("bob", 2)]);
    }
}
