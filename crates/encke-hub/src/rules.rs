//! The settings of the hub: how much history is kept, for how long, and what happens to lagging subscribers.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::limits::{LOCAL_CHANNELS_SHARE, LOCAL_MEMORY_SHARE};
use crate::name::Name;
use crate::pattern::Pattern;
use crate::streams::Streams;

/// The settings of a hub. The sequencer and every hub hold the same ones, and a reload replaces them in each.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Bytes of history of all channels together, as [`charge`](crate::Message::charge) counts them. Above the limit the least
    /// recently used channel loses its oldest messages first. The newest message of the channel just published to stays. 256
    /// MiB: a million messages of 100 bytes, or 2,500 channels full of them.
    pub memory_bytes: u64,
    /// Bytes of one payload. 1 MiB: a picture; with 256 MiB of history at most 1/256 of it.
    pub message_bytes: usize,
    /// Channels that exist because of a message, and channels wanted by one worker. 100,000: at some 300 bytes each (name,
    /// tables, empty ring) 30 MB if all of them exist and are empty.
    pub channels: usize,
    /// Channels of one subscriber. 128: with names of 200 bytes a request target of 32 KiB. Each delivery to a subscriber of
    /// several channels checks all of them.
    pub channels_per_stream: usize,
    /// Lag of the fan-out to writable subscribers above which publishers wait, in ns. 10 ms: about 1,500 sends, so that a burst
    /// to a small channel never waits.
    pub publish_lag_ns: u64,
    /// Time for which an idempotency key is remembered, in ms. 2 min: longer than any client retries without asking its user.
    pub key_window_ms: u64,
    /// Joins of one client that are announced per second, with a burst of twice the number. Further joins are delayed. 20: 40
    /// members from one address are announced immediately, and a client with many names cannot flood a channel.
    pub join_rate: Option<NonZeroU32>,
    /// Whether messages before the rings can be read from a stream that several nodes share. A subscriber that resumes from an
    /// older id then backfills from there.
    pub recalls: bool,
    /// The rules of channels that no pattern matches.
    pub default: ChannelRules,
    /// Most specific first.
    patterns: Vec<(Pattern, ChannelRules)>,
}

/// The rules of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRules {
    /// Messages kept. 0 counts as 1, because the ring must hold a message during delivery. 100: the lines of a chat on arrival.
    pub messages: usize,
    /// Bytes kept, as [`charge`](crate::Message::charge) counts them; the newest message is always kept. 1 MiB.
    pub bytes: u64,
    /// Time for which a message is kept, in ms. 10 min: a train in a tunnel, a laptop carried to another room.
    pub age_ms: u64,
    /// The treatment of a subscriber that the ring has passed.
    pub policy: Overrun,
    /// For subscribers that start at a key frame ([`Since::Key`](crate::Since::Key)): the minimum age of that key frame, in ms,
    /// if so old a one is kept. 0 is the newest key frame: the least delay. A client fills its buffer faster with an older one.
    pub burst_ms: u64,
    /// Whether joins and leaves are announced in the channel, and members are listed.
    pub presence: bool,
    /// Members of a channel that are announced and listed; further subscribers receive without being members. 1,000: each join
    /// is delivered to all members, a million deliveries if all join.
    pub members: usize,
    /// Whether messages are stored, and survive a restart.
    pub durable: bool,
    /// When a message of a durable channel is acknowledged and delivered.
    pub ack: Ack,
    /// The class of the channel, for metrics. The hub only passes it on.
    pub class: u16,
}

/// When a message of a durable channel is acknowledged and delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// After it is stored.
    #[default]
    Stored,
    /// Immediately, and stored soon after. A crash may lose the last messages, and begins a new epoch.
    Memory,
    /// On a node of a cluster, immediately and before it has an id; the node forwards it to the stream afterwards. Without a
    /// cluster like [`Ack::Stored`].
    Local,
}

/// The treatment of a subscriber that was so slow that the ring of its channel has passed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// The connection ends, and the client receives the gap when it reconnects. This reports the overrun soonest.
    #[default]
    Disconnect,
    /// The subscriber receives the gap and continues with the oldest kept message.
    Skip,
    /// The subscriber continues with the newest message and receives no gap: for values of which only the last one counts.
    Latest,
    /// A subscriber that started at a key frame continues at the newest one, without a gap. If it has received a part of a
    /// unit, it is disconnected. Other subscribers are treated as with [`Overrun::Skip`].
    Key,
}

impl Rules {
    /// Sets the rules of channels that a pattern matches, unless a more specific pattern matches, too. Replaces earlier rules
    /// of the same pattern.
    pub fn set(&mut self, pattern: Pattern, rules: ChannelRules) {
        match self.patterns.binary_search_by(|(other, _)| pattern.cmp(other)) {
            Ok(at) => self.patterns[at].1 = rules,
            Err(at) => self.patterns.insert(at, (pattern, rules)),
        }
    }

    /// Returns the rules of one of several streams. Shared streams get equal shares of memory and channels. The memory of a
    /// local stream is lent by the shared ones ([`Sequencer::lend`](crate::Sequencer::lend)), and it reads no history elsewhere.
    #[must_use]
    pub fn share(self: &Arc<Self>, streams: &Streams, stream: usize) -> Arc<Self> {
        if streams.count() == 1 {
            return Arc::clone(self);
        }
        let mut share = Self::clone(self);
        if streams.is_local(stream) {
            share.memory_bytes /= LOCAL_MEMORY_SHARE;
            share.channels = (share.channels / LOCAL_CHANNELS_SHARE).max(1);
            share.recalls = false;
        } else {
            share.memory_bytes /= streams.shared() as u64;
            share.channels = (share.channels / streams.shared()).max(1);
        }
        Arc::new(share)
    }

    /// Returns the rules of the most specific pattern that matches a channel.
    pub fn of(&self, name: &Name) -> &ChannelRules {
        let found = self.patterns.iter().find(|(pattern, _)| pattern.matches(name));
        found.map_or(&self.default, |(_, rules)| rules)
    }
}

impl Rules {
    /// Returns a text that identifies the durable channels: equal texts mean equal channels.
    pub(crate) fn durability(&self) -> Box<str> {
        let mut text = String::new();
        for (pattern, rules) in &self.patterns {
            let _infallible = writeln!(text, "{pattern} {}", rules.durable);
        }
        let _infallible = write!(text, "** {}", self.default.durable);
        text.into()
    }
}

impl ChannelRules {
    /// Returns the number of joins and leaves that are kept in addition to messages: one of each per member. 2,000 of some 170
    /// bytes take 340 kB.
    pub(crate) fn events_max(&self) -> usize {
        self.members.saturating_mul(2)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            memory_bytes: 256 * 1024 * 1024,
            message_bytes: 1024 * 1024,
            channels: 100_000,
            channels_per_stream: 128,
            publish_lag_ns: 10 * 1_000_000,
            key_window_ms: 2 * 60 * 1000,
            join_rate: NonZeroU32::new(20),
            recalls: false,
            default: ChannelRules::default(),
            patterns: Vec::new(),
        }
    }
}

impl Default for ChannelRules {
    fn default() -> Self {
        Self {
            messages: 100,
            bytes: 1024 * 1024,
            age_ms: 10 * 60 * 1000,
            policy: Overrun::Disconnect,
            burst_ms: 0,
            presence: false,
            members: 1_000,
            durable: false,
            ack: Ack::Stored,
            class: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_equally_what_is_limited_for_all_channels_together() {
        let rules = Arc::new(Rules::default());
        assert!(Arc::ptr_eq(&rules.share(&Streams::default(), 0), &rules));
        let four = Streams::new([Vec::new(), Vec::new(), Vec::new()]);
        let share = rules.share(&four, 1);
        assert_eq!((share.memory_bytes, share.channels), (rules.memory_bytes / 4, rules.channels / 4));
        assert_eq!(share.message_bytes, rules.message_bytes);
    }

    #[test]
    fn a_local_stream_takes_memory_on_loan_and_recalls_nothing() {
        let rules = Arc::new(Rules { recalls: true, ..Rules::default() });
        let streams = Streams::new([Vec::new()]).with_local([]);
        let [shared, local] = [1, 2].map(|stream| rules.share(&streams, stream));
        assert_eq!((shared.memory_bytes, shared.channels), (rules.memory_bytes / 2, rules.channels / 2));
        assert_eq!((local.memory_bytes, local.channels), (rules.memory_bytes / 2, rules.channels / 8));
        assert_eq!((shared.recalls, local.recalls), (true, false));
    }

    #[test]
    fn the_most_specific_pattern_wins_in_whatever_order_they_are_set() {
        let texts = ["**", "news/*", "news/today", "news/**", "*/today"];
        for turned in 0..texts.len() {
            let mut rules = Rules::default();
            for index in 0..texts.len() {
                let place = (index + turned) % texts.len();
                let one = ChannelRules { messages: place, ..ChannelRules::default() };
                rules.set(texts[place].parse().expect("a pattern"), one);
            }
            let of = |name: &str| rules.of(&Name::parse(name.as_bytes()).expect("a name")).messages;
            assert_eq!(of("news/today"), 2);
            assert_eq!(of("news/later"), 1);
            assert_eq!(of("news/a/b"), 3);
            assert_eq!(of("old/today"), 4);
            assert_eq!(of("old"), 0);
        }
        let mut rules = Rules::default();
        rules.set("a".parse().expect("a pattern"), ChannelRules { messages: 1, ..ChannelRules::default() });
        rules.set("a".parse().expect("a pattern"), ChannelRules { messages: 2, ..ChannelRules::default() });
        assert_eq!(rules.of(&Name::parse(b"a").expect("a name")).messages, 2);
        assert_eq!(rules.of(&Name::parse(b"b").expect("a name")).messages, 100);
    }
}
