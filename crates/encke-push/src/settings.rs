//! `[push]`: channels, what they keep, and what subscribers may cost.

use std::num::NonZeroU32;

use encke_hub::{ChannelRules, Overrun, Pattern, Rules};
use encke_settings::{ByteSize, Contradiction, OrAuto, OrOff, Period, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) mod cluster;

/// `[push]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PushSettings {
    /// Whether there are channels at all. *start*
    pub enabled: bool,
    /// Where they are: paths that begin with it are push's, not files. *start*
    pub prefix: String,
    /// What all messages that are kept, and the frames made of them, may take. `auto` is 256 MiB, or a quarter of the
    /// cgroup's limit if that is less. Over it the channels that were used least lose their oldest messages, and their
    /// readers are told.
    pub memory: OrAuto<ByteSize>,
    /// The largest message. More is a 413.
    pub message_bytes: ByteSize,
    /// What messages on their way in, not whole yet, may take in each worker. A further one is a 503; a single one is
    /// always taken.
    pub incoming: ByteSize,
    /// Channels that may exist at a time, in each worker and altogether. One more takes the place of the channel that has been
    /// without message and subscriber for longest; if there is none, it is a 503.
    pub channels: u32,
    /// Channels that one stream may have.
    pub channels_per_stream: u16,
    /// Silence after which a stream says that it is alive. Proxies cut what is silent for 60 s.
    pub heartbeat: Period,
    /// When a client that is sent away comes back: half more or less, so that not all come at once.
    pub retry: Period,
    /// Origins whose pages may subscribe and publish beside the page's own; `*` is all.
    pub origins: Vec<String>,
    /// Whether messages are compressed for WebSockets that offer it (permessage-deflate): once for all of a channel.
    pub compress: bool,
    /// What may lie in the kernel unsent for one subscriber (TCP_NOTSENT_LOWAT): what is later waits in the ring, where
    /// `policy` sees it.
    pub unsent: ByteSize,
    /// A subscriber that has not acknowledged anything for so long is dead (TCP_USER_TIMEOUT).
    pub dead_after: Period,
    /// While the fan-out is later than this, publishers wait for their answers.
    pub publish_lag: Period,
    /// Subscribers that may begin to listen a second, and twice as many at once; or `off`. More are turned away, and told
    /// when to come back: each at its own moment, as many a second. One costs some 15 µs, so that 20,000 are a third of
    /// a core; a poll that goes on with its connection does not count.
    pub admission: OrOff<NonZeroU32>,
    /// Messages a second that one address may publish by `auth.anonymous`, without a token; twice as many at once.
    /// More is a 429. An IPv6 address counts with its /64; behind a proxy name that in `server.trusted_proxies`, or all
    /// its clients are one. Where a server without a settings file is open to its own machine there is no such limit.
    pub anonymous_rate: OrOff<NonZeroU32>,
    /// Channels a second that one address may open by subscribing; twice as many at once. Only channels count that the worker
    /// does not have yet. More is a 429. An IPv6 address counts with its /64; behind a proxy name that in
    /// `server.trusted_proxies`, or all its clients are one. Where a server without a settings file is open to its own machine
    /// there is no such limit.
    pub channel_rate: OrOff<NonZeroU32>,
    /// Joins of one address that are announced in a second in channels with `presence`; twice as many at once. Further ones wait
    /// for their turn, and are dropped if it would come after ten minutes or the member has left. Addresses count as for
    /// `channel_rate`.
    pub join_rate: OrOff<NonZeroU32>,
    /// Rules by pattern; the most specific pattern wins.
    pub channel: Vec<ChannelSettings>,
}

impl Default for PushSettings {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            enabled: true,
            prefix: "/push/".into(),
            memory: OrAuto::Auto,
            message_bytes: ByteSize::of(rules.message_bytes as u64),
            incoming: ByteSize::of(64 << 20),
            channels: rules.channels as u32,
            channels_per_stream: rules.channels_per_stream as u16,
            heartbeat: Period::seconds(25),
            retry: Period::seconds(2),
            origins: Vec::new(),
            compress: true,
            unsent: ByteSize::of(16 * 1024),
            dead_after: Period::seconds(60),
            publish_lag: "10ms".parse().expect("a duration"),
            admission: OrOff::On(ADMISSION),
            anonymous_rate: OrOff::On(ANONYMOUS_RATE),
            channel_rate: OrOff::On(CHANNEL_RATE),
            join_rate: rules.join_rate.map_or(OrOff::Off, OrOff::On),
            channel: Vec::new(),
        }
    }
}

impl Section for PushSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if let Err((place, message)) = self.rules() {
            found.push(Contradiction::at(&["channel", &place.to_string(), "pattern"], message));
        }
        for (place, channel) in self.channel.iter().enumerate() {
            if !channel.durable && channel.ack == Ack::Memory {
                let message = "ack is for durable channels: add durable = true, or leave it out";
                found.push(Contradiction::at(&["channel", &place.to_string(), "ack"], message));
            }
        }
        let prefix = &self.prefix;
        if !(prefix.len() > 2 && prefix.starts_with('/') && prefix.ends_with('/')) {
            let message = format!("push.prefix {prefix:?} must begin and end with a slash, as /push/ does");
            found.push(Contradiction::at(&["prefix"], message));
        }
        found
    }

    fn start_only(&self, new: &Self) -> Vec<&'static str> {
        let keys = [("enabled", self.enabled != new.enabled), ("prefix", self.prefix != new.prefix)];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }
}

/// `[[push.channel]]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelSettings {
    /// Which channels: `*` is one segment, `**` the rest.
    pub pattern: String,
    /// Messages that are kept for those who come later or back.
    pub messages: u32,
    /// Bytes of messages that are kept.
    pub bytes: ByteSize,
    /// How long messages are kept.
    pub age: Period,
    /// What becomes of a subscriber that is so slow that what it has not taken is no longer kept.
    pub policy: Policy,
    /// Whether members are announced and listed. Joins and leaves evict no message: the channel keeps the newest of
    /// them apart, twice as many as `members`.
    pub presence: bool,
    /// Members that are announced and listed with `presence`, on each node of a cluster. Further subscribers read without being
    /// members.
    pub members: u32,
    /// Whether messages are stored in `server.state_dir` and outlive the process, also one that is killed. What is kept
    /// is the same: `messages`, `bytes`, `age`, and `push.memory` of all channels.
    pub durable: bool,
    /// When a message of a durable channel, or in a cluster of any, is acknowledged and delivered.
    pub ack: Ack,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        let rules = ChannelRules::default();
        Self {
            pattern: "**".into(),
            messages: rules.messages as u32,
            bytes: ByteSize::of(rules.bytes),
            age: Period::seconds(rules.age_ms / 1_000),
            policy: Policy::Disconnect,
            presence: rules.presence,
            members: rules.members as u32,
            durable: rules.durable,
            ack: Ack::Stored,
        }
    }
}

/// `ack`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// Once it is stored: 201 means that it survives a kill and the loss of power.
    #[default]
    Stored,
    /// At once, with a 202; it is stored soon afterwards. An end without warning may lose the last ones: the ids of all
    /// channels begin anew then, and every subscriber that comes back is told of a gap.
    Memory,
    /// At once, with a 202 and no id: on a node of a cluster with a `queue`, where the stream gets it behind that.
    Local,
}

/// `policy`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// It is disconnected: it comes back, and is told what it has missed.
    #[default]
    Disconnect,
    /// It is told of the gap, and goes on with the oldest message that is kept.
    Skip,
    /// It gets the newest message only: for values, not for events.
    Latest,
}

/// 18,000 who come back at once are let in at once, also if they have only just come. At 15 µs of CPU each, 20,000 take
/// 0.3 s of a core a second, which leaves the rest to messages; and a storm of a million is back within a minute.
pub(crate) const ADMISSION: NonZeroU32 = NonZeroU32::new(20_000).expect("above 0");

/// A person writes less than one message a second; a program that writes more than ten can have a token.
const ANONYMOUS_RATE: NonZeroU32 = NonZeroU32::new(10).expect("above 0");

/// The burst admits 18,000 clients of one address with their own channel; 1,000 clients with 128 channels need 11 s. One client needs 8 s to open 100,000 channels.
const CHANNEL_RATE: NonZeroU32 = NonZeroU32::new(10_000).expect("above 0");

/// What `memory = "auto"` is at most.
const MEMORY_AUTO_MAX: u64 = 256 * 1024 * 1024;

impl PushSettings {
    /// Names of the classes of channels: that of channels for which there are no rules of their own, then the patterns.
    pub(crate) fn classes(&self) -> Vec<String> {
        let patterns = self.channel.iter().map(|channel| channel.pattern.clone());
        std::iter::once("other".to_owned()).chain(patterns).collect()
    }

    /// What a hub obeys.
    ///
    /// # Errors
    /// A pattern is none: its place in the list, and what is wrong.
    pub fn rules(&self) -> Result<Rules, (usize, String)> {
        let memory = match self.memory {
            OrAuto::Set(size) => size.bytes(),
            OrAuto::Auto => {
                encke_io::host::memory_limit().map_or(MEMORY_AUTO_MAX, |limit| MEMORY_AUTO_MAX.min(limit / 4))
            }
        };
        let mut rules = Rules::default();
        rules.memory_bytes = memory;
        rules.message_bytes = usize::try_from(self.message_bytes.bytes()).unwrap_or(usize::MAX);
        rules.channels = self.channels as usize;
        rules.channels_per_stream = self.channels_per_stream.into();
        rules.publish_lag_ns = self.publish_lag.nanoseconds();
        rules.join_rate = self.join_rate.on();
        for (place, channel) in self.channel.iter().enumerate() {
            let pattern: Pattern = channel
                .pattern
                .parse()
                .map_err(|error| (place, format!("pattern {:?}: {error}", channel.pattern)))?;
            rules.set(
                pattern,
                ChannelRules {
                    messages: channel.messages as usize,
                    bytes: channel.bytes.bytes(),
                    age_ms: channel.age.nanoseconds() / 1_000_000,
                    policy: match channel.policy {
                        Policy::Disconnect => Overrun::Disconnect,
                        Policy::Skip => Overrun::Skip,
                        Policy::Latest => Overrun::Latest,
                    },
                    presence: channel.presence,
                    members: channel.members as usize,
                    durable: channel.durable,
                    class: u16::try_from(place + 1).unwrap_or(0),
                    ack: match channel.ack {
                        Ack::Stored => encke_hub::Ack::Stored,
                        Ack::Memory => encke_hub::Ack::Memory,
                        Ack::Local => encke_hub::Ack::Local,
                    },
                },
            );
        }
        Ok(rules)
    }
}
