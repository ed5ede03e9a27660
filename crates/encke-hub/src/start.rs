//! The start of a subscription: the position, the floor in each channel, and the gap.
//!
//! | since | position | floor of a channel | gap |
//! |---|---|---|---|
//! | `now` | the worker's head at the subscribe | the same, or the opening of the channel | none |
//! | an id | its offset in this stream | the same; after lost messages | messages lost after it, unless backfilled |
//! | an id of another epoch or stream, or ahead of all | before the first message | before the oldest kept message | always |
//! | `all`, `last:N`, an age | before the first message | before the first requested message | none |
//! | `key` | before the oldest kept message, until a key frame is found ([`Hub`](crate::Hub)) | the same | none |
//!
//! A channel may have lost messages after the position. Its *floor* is the offset up to which this was reported, or up to which
//! the subscriber wants no messages. With one channel the floor equals the position. With several, the position stays where all
//! of them are complete, so that it is valid for a resume.

use std::collections::BinaryHeap;

use crate::HubNow;
use crate::channel::Channel;
use crate::encoding::{Gap, GapReason};
use crate::position::{Epoch, Position, Since};
use crate::rules::Overrun;
use crate::slab::HubSlab;
use crate::subscriber::ChannelLink;

/// The state of a worker that a start depends on.
pub(crate) struct StartState<'a> {
    pub(crate) epoch: Epoch,
    /// All messages of the worker's channels up to this offset were fed.
    pub(crate) head: u64,
    pub(crate) now: HubNow,
    pub(crate) channels: &'a HubSlab<Channel>,
    /// Lost messages can be backfilled, so they are not a gap.
    pub(crate) recalls: bool,
    /// The newest offset of the stream, if the subscriber was ahead of `head` and the sequencer has reported it since.
    pub(crate) newest: Option<u64>,
}

impl StartState<'_> {
    /// Sets the floors of all links, whose channels must be open. Returns the position and the gap. `asked_at` is the worker's
    /// head at the time of the subscribe, `asked_ms` since 1970.
    pub(crate) fn start(
        &self,
        since: Since,
        asked_at: u64,
        asked_ms: u64,
        links: &mut [ChannelLink],
    ) -> (u64, Option<Gap>) {
        let mut gap = None;
        let position = match since {
            Since::Now => self.now(asked_at, asked_ms, links),
            Since::After(from) => match from.of(self.epoch).filter(|offset| self.has_been(*offset)) {
                Some(offset) => {
                    gap = self.resume(offset, links).map(|to| (from, Some(to), GapReason::Away));
                    offset
                }
                None => {
                    gap = Some((from, None, GapReason::Epoch));
                    self.from(links, |channel| channel.lost_to)
                }
            },
            Since::All | Since::Key => self.from(links, |channel| channel.lost_to),
            Since::Last(count) => {
                let cut = self.before_last(links, count as usize);
                self.from(links, |channel| channel.lost_to.max(cut))
            }
            Since::Age { ms } => {
                let oldest_ms = self.now.unix_ms.saturating_sub(ms);
                self.from(links, |channel| {
                    let too_old = channel.index_since(oldest_ms).checked_sub(1);
                    let last = too_old.and_then(|index| channel.message(index));
                    last.map_or(channel.lost_to, |message| message.offset)
                })
            }
        };
        let only = if let [link] = links { link.floor } else { 0 };
        let position = position.max(only);
        let at = |offset| Position { epoch: self.epoch, offset };
        let gap = gap.map(|(from, to, reason)| Gap { from, to: at(to.unwrap_or(position)).into(), reason });
        (position, gap)
    }

    /// Returns whether a message may have this offset already. An id ahead of all messages would hide the messages up to it.
    fn has_been(&self, offset: u64) -> bool {
        self.newest.is_none_or(|newest| offset <= newest.max(self.head))
    }

    /// Starts with messages published after the subscribe. If a channel was not open then, this includes those published during
    /// its opening; a polling client would miss them silently. Lost messages move the position forward, because it must not
    /// promise messages that no ring has.
    fn now(&self, asked_at: u64, asked_ms: u64, links: &mut [ChannelLink]) -> u64 {
        let mut first: Option<u64> = None;
        let mut lost_to = 0;
        for link in links {
            let channel = &self.channels[link.channel];
            let begins = if link.floor == ChannelLink::PENDING {
                let new = channel.message(channel.index_since(asked_ms));
                new.map_or(channel.opened_at, |new| channel.opened_at.min(new.offset - 1))
            } else {
                asked_at
            };
            first = Some(first.map_or(begins, |first| first.min(begins)));
            link.floor = channel.lost_to;
            lost_to = lost_to.max(channel.lost_to);
        }
        first.unwrap_or(asked_at).max(lost_to)
    }

    /// Resumes after `from`. Returns the offset up to which unseen messages are lost, if any.
    fn resume(&self, from: u64, links: &mut [ChannelLink]) -> Option<u64> {
        let mut gone_to = None;
        for link in links {
            let channel = &self.channels[link.channel];
            link.floor = 0;
            if channel.lost_to > from {
                link.floor = match channel.rules.policy {
                    Overrun::Latest => channel.before_newest(),
                    Overrun::Disconnect | Overrun::Skip | Overrun::Key if self.recalls => 0,
                    Overrun::Disconnect | Overrun::Skip | Overrun::Key => {
                        gone_to = gone_to.max(Some(channel.lost_to));
                        channel.lost_to
                    }
                };
            }
        }
        gone_to
    }

    /// Sets the floors. Returns the offset just before the first message above them, or the head if there is no such message.
    /// (The sequencer may report a loss ahead of its offset. Messages of other channels up to that offset are still to come.)
    fn from(&self, links: &mut [ChannelLink], floor: impl Fn(&Channel) -> u64) -> u64 {
        let mut first = None;
        for link in links {
            let channel = &self.channels[link.channel];
            link.floor = floor(channel);
            if let Some(message) = channel.message(channel.index_after(link.floor)) {
                first = Some(first.map_or(message.offset, |first: u64| first.min(message.offset)));
            }
        }
        first.map_or(self.head, |first| first - 1)
    }

    /// Returns the offset just before the last `count` messages of all channels together.
    fn before_last(&self, links: &[ChannelLink], count: usize) -> u64 {
        // The newest message of each channel that is not counted yet: offset, link, index in its ring.
        let newest = |at: usize, kept: usize| {
            let index = kept.checked_sub(1)?;
            let message = self.channels[links.get(at)?.channel].message(index)?;
            Some((message.offset, at, index))
        };
        let kept = |link: &ChannelLink| self.channels[link.channel].kept();
        let mut heads: BinaryHeap<(u64, usize, usize)> =
            links.iter().enumerate().filter_map(|(at, link)| newest(at, kept(link))).collect();
        let mut left = count;
        while left > 0 {
            let Some((_, at, index)) = heads.pop() else { return 0 };
            let message = links.get(at).and_then(|link| self.channels[link.channel].message(index));
            // Joins and leaves are delivered, but not counted.
            left -= usize::from(message.is_some_and(|message| !message.is_event()));
            heads.extend(newest(at, index));
        }
        heads.peek().map_or(0, |(offset, ..)| *offset)
    }
}
