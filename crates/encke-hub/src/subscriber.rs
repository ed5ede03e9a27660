//! A subscriber: a position in the stream, and where its channels have it.
//!
//! ```text
//!  Starting ── its channels are open ──► Busy (told Started) ── sent ──► Ready ── something new ──► Busy …
//!     └── once, nothing to read ──► Ready (told Waiting) ── something new ──► gone (told Last)
//!  Ready ── the rings no longer have what comes next ──► Reading ── it came ──► Busy ── sent ──► Reading … ──► Ready
//! ```
//! Almost all subscribers have one channel, no name and nothing special: they take the 40 bytes of [`Subscriber`] and
//! the 8 of their node in the channel. Whoever has more has a [`Rest`].

use std::sync::Arc;

use crate::encoding::{Form, Gap};
use crate::position::Since;

/// Names a subscriber of one hub. It is given to another one after the first has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId(pub u32);

/// Whether a subscriber stays after it was told something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Once {
    /// It stays: a stream.
    #[default]
    Never,
    /// It goes with the oldest message behind its position: a raw poll.
    Oldest,
    /// It goes with all messages behind its position, as many as one run holds: a batch.
    All,
}

#[derive(Debug)]
pub(crate) struct Subscriber {
    /// The server's name for it.
    pub(crate) key: u64,
    /// It has seen, or does not want, everything up to this offset.
    pub(crate) position: u64,
    /// What most do not have.
    pub(crate) rest: Option<Box<Rest>>,
    /// Its only channel, and its place among the nodes there. Without meaning if there is a rest.
    pub(crate) channel: u32,
    pub(crate) place: u32,
    pub(crate) form: Form,
    pub(crate) once: Once,
    pub(crate) state: State,
    /// Whether it stands in the line of those who are served next.
    pub(crate) in_line: bool,
    /// Whether a ring had passed it when it became writable: it was too slow, not we.
    pub(crate) late: bool,
    /// Whether it is a part of one over several streams.
    pub(crate) part: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was not told anything yet.
    Starting,
    /// Its connection takes what comes.
    Ready,
    /// Its connection still has what came last.
    Busy,
    /// Its connection takes what comes, and it is at a place before what the rings keep: it reads elsewhere.
    Reading,
}

/// A subscriber with a name, for presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name.
    pub name: Arc<str>,
    /// The client whose joins are limited together ([`Rules::join_rate`](crate::Rules::join_rate)); `None`: no limit.
    pub client: Option<u64>,
}

/// What a subscriber has beyond one channel.
#[derive(Debug)]
pub(crate) struct Rest {
    /// All its channels.
    pub(crate) links: Vec<Link>,
    /// The name it is known by.
    pub(crate) member: Option<Member>,
    /// Where it wants to begin, until that is known as a position.
    pub(crate) since: Option<Since>,
    /// When it came, in milliseconds since 1970.
    pub(crate) asked_ms: u64,
    /// What it is told with the start.
    pub(crate) gap: Option<Gap>,
}

/// One of several channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) channel: u32,
    /// The place among the nodes there.
    pub(crate) place: u32,
    /// Whether its name was announced there.
    pub(crate) announced: bool,
    /// Messages of this channel up to here are neither delivered nor missed: they were gone before, and that was
    /// told, or the subscriber came later. [`Link::PENDING`]: it came before the channel was open, and begins where
    /// it opened.
    pub(crate) floor: u64,
}

/// Bytes that a subscriber of one channel takes in a hub: its own, and its node in the channel.
pub const SUBSCRIBER_BYTES: usize = size_of::<Subscriber>() + size_of::<Node>();

impl Link {
    pub(crate) const PENDING: u64 = u64::MAX;
}

/// Where a channel has a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) subscriber: u32,
    /// Which of its links leads here; 0 if it has no rest.
    pub(crate) link: u32,
}

impl Subscriber {
    /// Tells it that its node has moved.
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
    use crate::slab::Place;

    #[test]
    fn a_subscriber_of_one_channel_takes_48_bytes() {
        // 8 (key) + 8 (position) + 8 (rest) + 4 (channel) + 4 (place) + 6 (form, once, state, in line, late, part), rounded.
        assert_eq!(size_of::<Subscriber>(), 40);
        // A place that may be free takes no more: the states leave room for that.
        assert_eq!(size_of::<Place<Subscriber>>(), 40);
        assert_eq!(size_of::<Node>(), 8);
        assert_eq!(SUBSCRIBER_BYTES, 48);
    }
}
