//! `[push]`: channels, their histories, and the limits of subscribers.

use std::num::NonZeroU32;

use encke_hub::{ChannelRules, Overrun, Pattern, Rules};
use encke_settings::{ByteSize, Contradiction, OrAuto, OrOff, Period, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) mod cluster;
mod error;

pub use error::{ChannelRuleError, StreamSettingsError};

/// `[push]`
///
/// ```
/// use encke_push::PushSettings;
/// use encke_settings::Section as _;
///
/// let settings = PushSettings { prefix: "/events/".into(), ..PushSettings::default() };
/// assert!(settings.check().is_empty());
/// let settings = PushSettings { prefix: "events".into(), ..settings };
/// assert!(!settings.check().is_empty(), "the prefix has no slashes");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PushSettings {
    /// Whether the server has channels. *start*
    pub enabled: bool,
    /// Path prefix of the channels. Paths below it never name files. *start*
    pub prefix: String,
    /// Memory for all histories and the frames made of their messages, in bytes. `auto` is 256 MiB, or a quarter of the
    /// cgroup's memory limit if that is less. Above it Encke evicts the oldest messages of the least recently used channels,
    /// and subscribers that miss them receive a gap.
    pub memory: OrAuto<ByteSize>,
    /// Size of a message. A larger one is a 413.
    pub message_bytes: ByteSize,
    /// Memory for incomplete messages, in bytes per worker. Above it a publish is a 503; a single message is always accepted.
    pub incoming: ByteSize,
    /// Number of channels, per worker and in total. At the limit a new channel replaces the one that has been without message
    /// and subscriber for longest; if there is none, it is a 503.
    pub channels: u32,
    /// Channels of one subscriber. A subscription to more is rejected.
    pub channels_per_stream: u16,
    /// Idle time after which a stream sends a heartbeat. Many proxies close a connection after 60 s of silence.
    pub heartbeat: Period,
    /// Retry time of rejected and disconnected clients, ± 50 %, so that they do not all reconnect at the same moment.
    pub retry: Period,
    /// Other origins whose pages may subscribe and publish; `*` allows all.
    pub origins: Vec<String>,
    /// Whether Encke compresses messages for WebSockets that offer it (permessage-deflate), once for all subscribers of a
    /// channel.
    pub compress: bool,
    /// Unsent bytes in the kernel for one subscriber (TCP_NOTSENT_LOWAT). Later messages wait in the history, where `policy`
    /// applies.
    pub unsent: ByteSize,
    /// Time without an acknowledgement after which the kernel closes a subscriber's connection (TCP_USER_TIMEOUT).
    pub dead_after: Period,
    /// Lag of the fan-out above which publishers wait for their responses.
    pub publish_lag: Period,
    /// New subscribers per second; a burst may be twice as large. Further ones are rejected, each with a different retry time,
    /// so that as many retry per second as can be admitted. `off` sets no limit. One subscriber costs some 15 µs, so 20,000
    /// take a third of a core. A further poll on the same connection does not count.
    pub admission: OrOff<NonZeroU32>,
    /// Messages per second that one client address may publish by `auth.anonymous`, without a token; a burst may be twice as
    /// large. More are a 429; `off` sets no limit. An IPv6 address counts with its /64. List proxies in
    /// `server.trusted_proxies`; otherwise all clients of a proxy share its address. A server without a settings file that is
    /// open to its own machine has no such limit.
    pub anonymous_rate: OrOff<NonZeroU32>,
    /// Channels per second that one client address may open by subscribing; a burst may be twice as large. Only channels that
    /// the worker does not have yet count. More are a 429; `off` sets no limit. An IPv6 address counts with its /64. List
    /// proxies in `server.trusted_proxies`; otherwise all clients of a proxy share its address. A server without a settings
    /// file that is open to its own machine has no such limit.
    pub channel_rate: OrOff<NonZeroU32>,
    /// Joins per second that Encke announces for one client address, in channels with `presence`; a burst may be twice as
    /// large. Further joins wait, and are dropped if they would wait for more than ten minutes or the member has left. `off`
    /// sets no limit. Addresses count as for `channel_rate`.
    pub join_rate: OrOff<NonZeroU32>,
    /// Rules for channels by pattern; the most specific pattern applies.
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
        if let Err(error) = self.rules() {
            found.push(Contradiction::at(
                &["channel", &error.index().to_string(), "pattern"],
                error.to_string(),
            ));
        }
        for (place, channel) in self.channel.iter().enumerate() {
            if !channel.durable && channel.ack == AckMode::Memory {
                let message = "ack is for durable channels: add durable = true, or leave it out";
                found.push(Contradiction::at(&["channel", &place.to_string(), "ack"], message));
            }
        }
        for (place, origin) in self.origins.iter().enumerate() {
            if let Err(error) = encke_rights::check_origin(origin) {
                found.push(Contradiction::at(&["origins", &place.to_string()], error.to_string()));
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
    /// Pattern of the channels: `*` is one segment, `**` the rest, at least one segment.
    pub pattern: String,
    /// Number of messages that the channel keeps for new subscribers and for clients that resume. Above it the oldest ones are
    /// evicted.
    pub messages: u32,
    /// Size of the messages that the channel keeps. Above it the oldest ones are evicted.
    pub bytes: ByteSize,
    /// Time for which messages are kept.
    pub age: Period,
    /// Treatment of a subscriber that is so slow that its next messages are no longer kept.
    pub policy: OverrunPolicy,
    /// Whether Encke announces and lists members. Joins and leaves evict no message: the channel keeps the newest of them
    /// separately, twice as many as `members`.
    pub presence: bool,
    /// Members that Encke announces and lists with `presence`, per node of a cluster. Further subscribers read without being
    /// members.
    pub members: u32,
    /// Whether messages are stored in `server.state_dir`, so that they survive the process, even a kill. The limits of the
    /// history stay the same: `messages`, `bytes`, `age`, and `push.memory` of all channels.
    pub durable: bool,
    /// Time of the acknowledgement and delivery of a message: of a durable channel, or in a cluster of any channel.
    pub ack: AckMode,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        let rules = ChannelRules::default();
        Self {
            pattern: "**".into(),
            messages: rules.messages as u32,
            bytes: ByteSize::of(rules.bytes),
            age: Period::seconds(rules.age_ms / 1_000),
            policy: OverrunPolicy::Disconnect,
            presence: rules.presence,
            members: rules.members as u32,
            durable: rules.durable,
            ack: AckMode::Stored,
        }
    }
}

/// `ack`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AckMode {
    /// Once the message is stored: 201 means that it survives a kill and a power failure.
    #[default]
    Stored,
    /// At once, with a 202; the message is stored soon afterwards. A kill or a power failure may lose the last messages: then a
    /// new epoch begins for all channels, and every subscriber that reconnects receives a gap.
    Memory,
    /// At once, with a 202 and no id: on a node of a cluster with a `queue`, from which the message goes to the stream.
    Local,
}

/// `policy`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverrunPolicy {
    /// The subscriber is disconnected, reconnects, and receives the gap.
    #[default]
    Disconnect,
    /// The subscriber receives the gap, then continues with the oldest message that is kept.
    Skip,
    /// The subscriber receives the newest message only, without a gap: for values, not for events.
    Latest,
    /// The subscriber continues at the newest key frame, without a gap, if it started at one: for live streams. Otherwise like
    /// `skip`.
    Key,
}

/// Admits 18,000 clients that reconnect at once, even right after they have connected. At 15 µs of CPU each, 20,000 take 0.3 s
/// of a core per second, which leaves the rest to messages; and a storm of a million ends within a minute.
pub(crate) const ADMISSION: NonZeroU32 = NonZeroU32::new(20_000).expect("above 0");

/// A person writes less than one message per second; a program that publishes more than ten can have a token.
const ANONYMOUS_RATE: NonZeroU32 = NonZeroU32::new(10).expect("above 0");

/// The burst admits 18,000 clients of one address with their own channel; 1,000 clients with 128 channels need 11 s. One client
/// needs 8 s to open 100,000 channels.
const CHANNEL_RATE: NonZeroU32 = NonZeroU32::new(10_000).expect("above 0");

/// Maximum of `memory = "auto"`.
const MEMORY_AUTO_MAX: u64 = 256 * 1024 * 1024;

impl PushSettings {
    /// Returns the names of the channel classes: `other` for channels without rules of their own, then the patterns.
    pub(crate) fn classes(&self) -> Vec<String> {
        let patterns = self.channel.iter().map(|channel| channel.pattern.clone());
        std::iter::once("other".to_owned()).chain(patterns).collect()
    }

    /// Returns the rules for a hub.
    ///
    /// # Errors
    /// A pattern in `channel` is invalid.
    pub fn rules(&self) -> Result<Rules, ChannelRuleError> {
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
                .map_err(|cause| ChannelRuleError::new(place, &channel.pattern, cause))?;
            rules.set(
                pattern,
                ChannelRules {
                    messages: channel.messages as usize,
                    bytes: channel.bytes.bytes(),
                    age_ms: channel.age.nanoseconds() / 1_000_000,
                    policy: match channel.policy {
                        OverrunPolicy::Disconnect => Overrun::Disconnect,
                        OverrunPolicy::Skip => Overrun::Skip,
                        OverrunPolicy::Latest => Overrun::Latest,
                        OverrunPolicy::Key => Overrun::Key,
                    },
                    burst_ms: ChannelRules::default().burst_ms,
                    presence: channel.presence,
                    members: channel.members as usize,
                    durable: channel.durable,
                    class: u16::try_from(place + 1).unwrap_or(0),
                    ack: match channel.ack {
                        AckMode::Stored => encke_hub::Ack::Stored,
                        AckMode::Memory => encke_hub::Ack::Memory,
                        AckMode::Local => encke_hub::Ack::Local,
                    },
                },
            );
        }
        Ok(rules)
    }
}
