//! A subscriber: a position in the stream, and its nodes in channels.
//!
//! ```text
//!  Starting ── its channels are open ──► Busy (after Started) ── sent ──► Ready ── new messages ──► Busy …
//!     └── once, nothing to read ──► Ready (after Waiting) ── new messages ──► removed (after Last)
//!  Ready ── the rings lack the next messages ──► Reading ── a run arrives ──► Busy ── sent ──► Reading … ──► Ready
//! ```
//! Almost all subscribers have one channel, no name and no special state. They take the 40 bytes of [`Subscriber`] and 8 bytes
//! of a node in the channel. All other subscribers have a [`SubscriberExtra`].

use std::sync::Arc;

use crate::encoding::{Form, Gap};
use crate::position::Since;

/// Identifies a subscriber of one hub. Ids are reused after a subscriber is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId(pub u32);

/// Whether a subscriber stays after a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Once {
    /// The subscriber stays: a stream.
    #[default]
    Never,
    /// The subscriber leaves with the oldest message after its position: a raw poll.
    Oldest,
    /// The subscriber leaves with all messages after its position that fit into one run: a batch poll.
    All,
}

#[derive(Debug)]
pub(crate) struct Subscriber {
    /// The server's identifier of the subscriber.
    pub(crate) key: u64,
    /// The subscriber has received, or does not want, all messages up to this offset.
    pub(crate) position: u64,
    /// Fields that most subscribers do not need.
    pub(crate) rest: Option<Box<SubscriberExtra>>,
    /// The only channel, and the index of its node ([`ChannelEntry`]) there. Meaningless with a rest.
    pub(crate) channel: u32,
    pub(crate) place: u32,
    pub(crate) form: Form,
    pub(crate) once: Once,
    pub(crate) state: SubscriberState,
    pub(crate) entry: SubscriberEntry,
    /// Whether the subscriber is in the ready queue.
    pub(crate) in_ready_queue: bool,
    /// Whether a ring had passed the subscriber before it became writable: the subscriber was too slow, not the hub.
    pub(crate) late: bool,
    /// Whether this is a part of a subscriber of several streams.
    pub(crate) part: bool,
    /// Number of times that the subscriber was too slow and skipped messages. At 255 it stays.
    pub(crate) skips: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriberState {
    /// Nothing was delivered yet.
    Starting,
    /// The connection is writable.
    Ready,
    /// The connection is still sending the last delivery.
    Busy,
    /// The connection is writable, and the subscriber is at a position before the rings: it backfills.
    Reading,
}

/// The relation of a subscriber to the key frames of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriberEntry {
    /// Receives all messages, regardless of key frames.
    Plain,
    /// Starts at a key frame and has received nothing yet. The preamble comes first.
    Joins,
    /// As `Joins`, and has skipped all messages up to its position.
    AwaitsHead,
    /// Has received the preamble or earlier messages, and continues at the next key frame.
    AwaitsKey,
    /// Receives each message after the position. The last message ended a unit.
    Flowing,
    /// Receives each message after the position. The last message has [`CONTINUES`](crate::Flags::CONTINUES).
    InsideUnit,
}

impl SubscriberEntry {
    /// Returns whether the subscriber waits for a preamble or a key frame.
    pub(crate) const fn waits(self) -> bool {
        matches!(self, Self::Joins | Self::AwaitsHead | Self::AwaitsKey)
    }
}

/// A named subscriber in presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name.
    pub name: Arc<str>,
    /// The client whose joins share one rate ([`Rules::join_rate`](crate::Rules::join_rate)); `None` for no limit.
    pub client: Option<u64>,
}

/// The fields of a subscriber with more than one channel, or with special state.
#[derive(Debug)]
pub(crate) struct SubscriberExtra {
    /// All its channels.
    pub(crate) links: Vec<ChannelLink>,
    /// The name for presence.
    pub(crate) member: Option<Member>,
    /// The requested start, until it is resolved to a position.
    pub(crate) since: Option<Since>,
    /// The time of the subscribe, in milliseconds since 1970.
    pub(crate) asked_ms: u64,
    /// The gap to deliver with the start.
    pub(crate) gap: Option<Gap>,
}

/// One channel of a subscriber with a [`SubscriberExtra`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelLink {
    pub(crate) channel: u32,
    /// The index of the node in the channel.
    pub(crate) place: u32,
    /// Whether the member was announced in the channel.
    pub(crate) announced: bool,
    /// Messages of this channel up to here are neither delivered nor missed: their loss was reported, or the subscriber joined
    /// later. [`ChannelLink::PENDING`]: the subscriber joined before the channel was open, and starts at the opening.
    pub(crate) floor: u64,
}

/// Bytes that a subscriber of one channel takes in a hub: its entry, and its node in the channel.
pub const SUBSCRIBER_BYTES: usize = size_of::<Subscriber>() + size_of::<ChannelEntry>();

impl ChannelLink {
    pub(crate) const PENDING: u64 = u64::MAX;
}

/// A node of a channel: the entry of one subscriber in the list that a pass walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelEntry {
    pub(crate) subscriber: u32,
    /// The index of the subscriber's link to this channel; 0 without a rest.
    pub(crate) link: u32,
}

impl Subscriber {
    /// Records the new index of a node.
    pub(crate) fn moved(&mut self, link: u32, place: u32) {
        match &mut self.rest {
            None => self.place = place,
            Some(rest) => rest.links[link as usize].place = place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::HubSlabEntry;

    #[test]
    fn a_subscriber_of_one_channel_takes_48_bytes() {
        // 8 (key) + 8 (position) + 8 (rest) + 4 (channel) + 4 (place), and 8 (form, once, state, entry, in_ready_queue, late,
        // part, skips).
        assert_eq!(size_of::<Subscriber>(), 40);
        // A slab entry takes no more: the enums leave a niche for the free state.
        assert_eq!(size_of::<HubSlabEntry<Subscriber>>(), 40);
        assert_eq!(size_of::<ChannelEntry>(), 8);
        assert_eq!(SUBSCRIBER_BYTES, 48);
    }
}
