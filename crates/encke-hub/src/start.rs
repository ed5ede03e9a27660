//! Where a subscriber begins: its position, from where on each of its channels counts, and what it has missed.
//!
//! | since | position | a channel counts from | gap |
//! |---|---|---|---|
//! | `now` | where the core was when it asked | there, or where the channel opened for it | none |
//! | an id | what it says of this stream | there; behind what is lost | what is lost behind it, unless it can be read elsewhere |
//! | an id of another life, of other streams, or ahead of all offsets | right before the first message | its oldest kept message | always |
//! | `all`, `last:N`, an age | right before the first message | what is kept and asked for | none |
//!
//! A channel may have lost messages behind the position: its *floor* says up to where that is known or was never
//! wanted. With one channel the floor is simply the position. With several, the position stays where all of them are
//! whole, so that it is valid for a resume.

use std::collections::BinaryHeap;

use crate::Now;
use crate::channel::Channel;
use crate::encoding::{Gap, GapReason};
use crate::position::{Epoch, Position, Since};
use crate::rules::Overrun;
use crate::slab::Slab;
use crate::subscriber::Link;

/// What is to be known of a core for it.
pub(crate) struct Core<'a> {
    pub(crate) epoch: Epoch,
    /// Everything of its channels up to here was fed.
    pub(crate) head: u64,
    pub(crate) now: Now,
    pub(crate) channels: &'a Slab<Channel>,
    /// What is lost here is read elsewhere, and no gap.
    pub(crate) recalls: bool,
    /// The newest offset of the stream, if the subscriber was ahead of `head` and the sequencer has reported it since.
    pub(crate) newest: Option<u64>,
}

impl Core<'_> {
    /// Sets the floors of all links, whose channels are open, and returns the position and the gap. `asked_at` is the
    /// core's head when the subscriber came, at `asked_ms` since 1970.
    pub(crate) fn start(
        &self,
        since: Since,
        asked_at: u64,
        asked_ms: u64,
        links: &mut [Link],
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
            Since::All => self.from(links, |channel| channel.lost_to),
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

    /// Whether a message may have had this offset already. An id ahead of all messages would hide those up to it.
    fn has_been(&self, offset: u64) -> bool {
        self.newest.is_none_or(|newest| offset <= newest.max(self.head))
    }

    /// Now is when it asked. Of a channel that was not known here then, what was published since that moment is told:
    /// who polls would otherwise miss what came while its channel was opened, and never know. What is lost already
    /// moves the beginning: the position must not promise what nobody has.
    fn now(&self, asked_at: u64, asked_ms: u64, links: &mut [Link]) -> u64 {
        let mut first: Option<u64> = None;
        let mut lost_to = 0;
        for link in links {
            let channel = &self.channels[link.channel];
            let begins = if link.floor == Link::PENDING {
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

    /// Goes on behind what was seen; returns up to where messages are gone that were not.
    fn resume(&self, from: u64, links: &mut [Link]) -> Option<u64> {
        let mut gone_to = None;
        for link in links {
            let channel = &self.channels[link.channel];
            link.floor = 0;
            if channel.lost_to > from {
                link.floor = match channel.rules.policy {
                    Overrun::Latest => channel.before_newest(),
                    Overrun::Disconnect | Overrun::Skip if self.recalls => 0,
                    Overrun::Disconnect | Overrun::Skip => {
                        gone_to = gone_to.max(Some(channel.lost_to));
                        channel.lost_to
                    }
                };
            }
        }
        gone_to
    }

    /// Sets the floors; returns the offset right before the first message above them. If there is none, that is where
    /// the core is. (A loss that is told ahead of its place may lie beyond: up to there, messages of other channels
    /// are still to come.)
    fn from(&self, links: &mut [Link], floor: impl Fn(&Channel) -> u64) -> u64 {
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

    /// The offset behind which the last `count` messages of all channels together lie.
    fn before_last(&self, links: &[Link], count: usize) -> u64 {
        // The newest message of each channel that was not counted yet: offset, link, index in its ring.
        let newest = |at: usize, kept: usize| {
            let index = kept.checked_sub(1)?;
            let message = self.channels[links.get(at)?.channel].message(index)?;
            Some((message.offset, at, index))
        };
        let kept = |link: &Link| self.channels[link.channel].kept();
        let mut heads: BinaryHeap<(u64, usize, usize)> =
            links.iter().enumerate().filter_map(|(at, link)| newest(at, kept(link))).collect();
        let mut left = count;
        while left > 0 {
            let Some((_, at, index)) = heads.pop() else { return 0 };
            let message = links.get(at).and_then(|link| self.channels[link.channel].message(index));
            // Joins and leaves are delivered, and do not count.
            left -= usize::from(message.is_some_and(|message| !message.is_event()));
            heads.extend(newest(at, index));
        }
        heads.peek().map_or(0, |(offset, ..)| *offset)
    }
}
