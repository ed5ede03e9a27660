//! Subscribers as an operator sees them: their channels and how far they are behind. Reports of slow ones to the sequencer.

use crate::channel::Channel;
use crate::hub::Hub;
use crate::name::Name;
use crate::subscriber::SubscriberId;
use crate::values::FeedRequest;

/// One channel of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderState {
    /// The channel.
    pub channel: Name,
    /// Kept messages of the channel that the subscriber has not received.
    pub behind: usize,
    /// Bytes of their payloads.
    pub behind_bytes: u64,
    /// When the oldest of them was published, in milliseconds since 1970.
    pub behind_since_ms: Option<u64>,
    /// Number of times that the subscriber was too slow and skipped messages, of any of its channels; 255 or more count as 255.
    pub skips: u8,
}

/// Messages whose bytes are added up for one subscriber, so that a subscriber of a long history costs no more than a few µs.
const SUMMED_MAX: usize = 1_000;

impl Hub {
    /// Returns the channels of a subscriber, at most `most`, or only the one with this name.
    pub fn reader_states(&self, id: SubscriberId, only: Option<&Name>, most: usize) -> Vec<ReaderState> {
        let SubscriberId(id) = id;
        let Some(subscriber) = self.subscribers.get(id) else { return Vec::new() };
        let (position, skips) = (subscriber.position, subscriber.skips);
        let all = self.channels_of(id).map(|(at, floor)| (&self.channels[at], floor));
        let selected = all.filter(|(channel, _)| only.is_none_or(|only| channel.name == *only)).take(most);
        selected
            .map(|(channel, floor)| reader_state(channel, position.max(channel.floor(floor)), skips))
            .collect()
    }

    /// Returns the number of subscribers of a channel on this worker.
    pub fn readers(&self, name: &Name) -> usize {
        self.names.get(name).map_or(0, |at| self.channels[*at].nodes.len())
    }

    /// Returns the server's identifiers of the subscribers of a channel on this worker, and whether each is a part of a
    /// subscriber of several streams.
    pub(crate) fn reader_keys(&self, name: &Name) -> impl Iterator<Item = (u64, bool)> {
        let nodes = self.names.get(name).into_iter().flat_map(|at| &self.channels[*at].nodes);
        nodes.map(|node| {
            let subscriber = &self.subscribers[node.subscriber];
            (subscriber.key, subscriber.part)
        })
    }

    /// Counts a subscriber that has lost messages of these channels; `ends`: it is removed.
    pub(super) fn count_slow(&mut self, id: u32, lost: &[u32], ends: bool) {
        let subscriber = &mut self.subscribers[id];
        subscriber.skips = subscriber.skips.saturating_add(u8::from(!ends));
        for &at in lost {
            let (ended, skipped) = &mut self.channels[at].slow;
            if (*ended, *skipped) == (0, 0) {
                self.slow.push(at);
            }
            if ends { *ended += 1 } else { *skipped += 1 }
        }
    }

    /// Makes the requests that report slow subscribers.
    pub(super) fn report_slow(&mut self) {
        for at in self.slow.drain(..) {
            let Some(channel) = self.channels.get_mut(at) else { continue };
            let (ended, skipped) = std::mem::take(&mut channel.slow);
            if (ended, skipped) != (0, 0) {
                self.requests.push(FeedRequest::Slow { channel: channel.name.clone(), ended, skipped });
            }
        }
    }
}

fn reader_state(channel: &Channel, position: u64, skips: u8) -> ReaderState {
    let first = channel.index_after(position);
    let behind = channel.kept() - first;
    let unread = (first..channel.kept()).take(SUMMED_MAX).filter_map(|index| channel.message(index));
    ReaderState {
        channel: channel.name.clone(),
        behind,
        behind_bytes: unread.map(|message| message.data.len() as u64).sum(),
        behind_since_ms: channel.message(first).map(|message| message.unix_ms),
        skips,
    }
}
