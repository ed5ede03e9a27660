//! Accounts for receipts: each subscriber's progress in each lane, and each message's first and last receipt.
//!
//! ```text
//!    from            missing        next           sent
//!     │ ██████████████░░░░██████████│· · · · · · · ·│       one subscriber, one lane
//!     └ joined here     └ skipped, may still arrive: then it is late
//! ```
//! The message `next` is expected. A higher number skips some. A lower one is late if it was skipped, and otherwise repeated.
//! Messages before `from` were sent before the subscription. They may or may not arrive, and count in no figure.

use std::collections::BTreeMap;
use std::ops::Range;

use super::mark::Mark;

/// Progress of a thread's subscribers.
#[derive(Debug)]
pub(crate) struct Receipts {
    channels: usize,
    lanes: usize,
    lanes_each: usize,
    /// `lanes_each` entries per subscriber.
    places: Vec<LaneProgress>,
    /// Skipped messages that have not arrived, by place and in order; empty if there are none.
    missing: BTreeMap<u32, Vec<Range<u32>>>,
    /// Accounts of subscriptions that ended and were not resumed.
    closed: Vec<LaneAccount>,
}

/// 8 bytes per lane of a subscriber.
#[derive(Clone, Copy, Debug)]
struct LaneProgress {
    from: u32,
    next: u32,
}

/// Classification of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receipt {
    /// The expected message, or a later message that skips `passed` messages.
    New { passed: u32 },
    /// A message skipped earlier that arrives late.
    Late,
    /// A message that was received before.
    Repeated,
    /// A message sent before the subscription.
    Early,
    /// A message of a lane that is not subscribed to.
    Foreign,
}

/// The result of a subscription in one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LaneAccount {
    pub(crate) lane: u16,
    pub(crate) from: u32,
    pub(crate) next: u32,
    /// End of the expected messages; `None`: the last message.
    pub(crate) until: Option<u32>,
    pub(crate) missing: Vec<Range<u32>>,
}

/// Marks a lane without a subscription.
const ABSENT: LaneProgress = LaneProgress { from: u32::MAX, next: u32::MAX };
/// Maximum skipped ranges kept per subscriber and lane. Beyond that the oldest is dropped: if its messages still arrive, they
/// count as repeated.
const MISSING_MAX: usize = 1_024;

impl Receipts {
    pub(crate) fn new(subscribers: usize, channels: usize, lanes: usize) -> Self {
        let lanes_each = lanes.div_ceil(channels);
        let places = vec![ABSENT; subscribers * lanes_each];
        Self { channels, lanes, lanes_each, places, missing: BTreeMap::new(), closed: Vec::new() }
    }

    /// Subscribes to a channel from now on. `sent` returns the number of messages sent in a lane.
    pub(crate) fn join(&mut self, subscriber: usize, channel: usize, sent: impl Fn(usize) -> u32) {
        self.leave(subscriber, channel);
        for nth in 0..self.lanes_each {
            let lane = channel + nth * self.channels;
            if lane < self.lanes {
                let from = sent(lane);
                self.places[subscriber * self.lanes_each + nth] = LaneProgress { from, next: from };
            }
        }
    }

    /// Ends a subscription that is not resumed. Skipped messages count as lost, later ones do not.
    pub(crate) fn leave(&mut self, subscriber: usize, channel: usize) {
        for nth in 0..self.lanes_each {
            let place = subscriber * self.lanes_each + nth;
            let account = self.account(place, channel + nth * self.channels);
            self.closed.extend(account.map(|account| LaneAccount { until: Some(account.next), ..account }));
            self.places[place] = ABSENT;
            self.missing.remove(&(place as u32));
        }
    }

    /// Records a message received by a subscriber of a channel.
    pub(crate) fn receive(&mut self, subscriber: usize, channel: usize, mark: Mark) -> Receipt {
        let lane = usize::from(mark.lane);
        if lane % self.channels != channel || lane >= self.lanes {
            return Receipt::Foreign;
        }
        let index = subscriber * self.lanes_each + lane / self.channels;
        let place = &mut self.places[index];
        if mark.number < place.from {
            return Receipt::Early;
        }
        if let Some(passed) = mark.number.checked_sub(place.next) {
            if passed > 0 {
                let missing = self.missing.entry(index as u32).or_default();
                missing.push(place.next..mark.number);
                if missing.len() > MISSING_MAX {
                    missing.remove(0);
                }
            }
            place.next = mark.number + 1;
            return Receipt::New { passed };
        }
        if self.fill(index as u32, mark.number) { Receipt::Late } else { Receipt::Repeated }
    }

    /// The number of messages a subscriber still lacks. `sent` returns the number of messages sent in a lane.
    pub(crate) fn owed(&self, subscriber: usize, channel: usize, sent: impl Fn(usize) -> u32) -> u64 {
        let places = &self.places[subscriber * self.lanes_each..][..self.lanes_each];
        let each = places.iter().enumerate().map(|(nth, place)| {
            let lane = channel + nth * self.channels;
            if place.from == ABSENT.from || lane >= self.lanes {
                return 0;
            }
            let index = (subscriber * self.lanes_each + nth) as u32;
            let missing = self.missing.get(&index).map_or(0, |missing| missing.iter().map(len).sum());
            u64::from(sent(lane).saturating_sub(place.next)) + missing
        });
        each.sum()
    }

    /// Whether a subscriber lacks a message.
    pub(crate) fn lacks(&self, subscriber: usize, channel: usize, lane: u16, number: u32) -> bool {
        let lane = usize::from(lane);
        if lane % self.channels != channel {
            return false;
        }
        let index = subscriber * self.lanes_each + lane / self.channels;
        let LaneProgress { from, next } = self.places[index];
        let missing = self.missing.get(&(index as u32));
        from != ABSENT.from
            && number >= from
            && (number >= next
                || missing.is_some_and(|missing| missing.iter().any(|range| range.contains(&number))))
    }

    /// The accounts of all subscriptions. Subscriber n is subscribed to the channel `channel(n)`.
    pub(crate) fn into_accounts(mut self, channel: impl Fn(usize) -> usize) -> Vec<LaneAccount> {
        let mut accounts = std::mem::take(&mut self.closed);
        for place in 0..self.places.len() {
            let (subscriber, nth) = (place / self.lanes_each, place % self.lanes_each);
            accounts.extend(self.account(place, channel(subscriber) + nth * self.channels));
        }
        accounts
    }

    fn account(&self, place: usize, lane: usize) -> Option<LaneAccount> {
        let LaneProgress { from, next } = self.places[place];
        let missing = self.missing.get(&(place as u32)).cloned().unwrap_or_default();
        // There are at most 65,536 lanes, so the cast holds.
        (from != ABSENT.from).then_some(LaneAccount { lane: lane as u16, from, next, until: None, missing })
    }

    /// Removes a number from the skipped messages; returns whether it was among them.
    fn fill(&mut self, index: u32, number: u32) -> bool {
        let Some(missing) = self.missing.get_mut(&index) else { return false };
        let Some(at) = missing.iter().position(|range| range.contains(&number)) else { return false };
        let range = missing[at].clone();
        let pieces = [range.start..number, number + 1..range.end];
        missing.splice(at..=at, pieces.into_iter().filter(|piece| !piece.is_empty()));
        if missing.is_empty() {
            self.missing.remove(&index);
        }
        true
    }
}

fn len(range: &Range<u32>) -> u64 {
    u64::from(range.end - range.start)
}

/// The receipts of each message, by lane and number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Vec<Vec<MessageReceipts>>);

/// Receipts of a message, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MessageReceipts {
    pub(crate) sent_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Number of receipts. If it is 0, the other fields are unset.
    pub(crate) received: u32,
}

impl Ledger {
    pub(crate) fn new(lanes: usize) -> Self {
        Self(vec![Vec::new(); lanes])
    }

    /// Records a receipt. For the first receipt of a message, returns the record of the preceding message.
    pub(crate) fn note(&mut self, mark: Mark, now_ns: u64) -> Option<MessageReceipts> {
        let lane = self.0.get_mut(usize::from(mark.lane))?;
        let number = mark.number as usize;
        if lane.len() <= number {
            lane.resize(number + 1, MessageReceipts::default());
        }
        lane[number].add(MessageReceipts {
            sent_ns: mark.sent_ns,
            first_ns: now_ns,
            last_ns: now_ns,
            received: 1,
        });
        let before = if number > 0 { lane[number - 1] } else { MessageReceipts::default() };
        (lane[number].received == 1).then_some(before)
    }

    /// Adds the ledger of another thread.
    pub(crate) fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            if mine.len() < theirs.len() {
                mine.resize(theirs.len(), MessageReceipts::default());
            }
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.add(theirs);
            }
        }
    }

    /// The records of all messages with receipts.
    pub(crate) fn records(&self) -> impl Iterator<Item = &MessageReceipts> {
        self.0.iter().flatten().filter(|record| record.received > 0)
    }
}

impl MessageReceipts {
    fn add(&mut self, other: Self) {
        if other.received == 0 {
            return;
        }
        if self.received == 0 {
            *self = other;
            return;
        }
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.received += other.received;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT_NS: u64 = 5;

    fn mark(lane: u16, number: u32) -> Mark {
        Mark { lane, number, sent_ns: SENT_NS }
    }

    /// The classification of these numbers by a subscriber of one lane that joined at 2, and its account.
    fn told(numbers: &[u32]) -> (Vec<Receipt>, LaneAccount) {
        let mut receipts = Receipts::new(1, 1, 1);
        receipts.join(0, 0, |_| 2);
        let told = numbers.iter().map(|number| receipts.receive(0, 0, mark(0, *number))).collect();
        let account = receipts.into_accounts(|_| 0).remove(0);
        (told, account)
    }

    #[test]
    fn in_order_each_is_new() {
        let (receipts, account) = told(&[2, 3, 4]);
        assert_eq!(receipts, [Receipt::New { passed: 0 }; 3]);
        assert_eq!(account, LaneAccount { lane: 0, from: 2, next: 5, until: None, missing: vec![] });
    }

    #[test]
    fn what_is_passed_over_is_missing_until_it_comes_late() {
        let (receipts, account) = told(&[2, 9, 5, 5, 3, 8, 12]);
        use Receipt::{Late, New, Repeated};
        let expected = [New { passed: 0 }, New { passed: 6 }, Late, Repeated, Late, Late, New { passed: 2 }];
        assert_eq!(receipts, expected);
        assert_eq!(account.missing, [4..5, 6..8, 10..12]);
    }

    #[test]
    fn what_comes_again_is_repeated_and_what_was_before_is_early() {
        let (receipts, _) = told(&[1, 2, 2]);
        assert_eq!(receipts, [Receipt::Early, Receipt::New { passed: 0 }, Receipt::Repeated]);
    }

    #[test]
    fn who_joins_anew_has_two_accounts() {
        let mut receipts = Receipts::new(2, 2, 3);
        receipts.join(1, 1, |lane| lane as u32 * 10);
        assert_eq!(receipts.receive(1, 1, mark(0, 0)), Receipt::Foreign, "another channel's lane");
        assert_eq!(receipts.receive(1, 1, mark(1, 12)), Receipt::New { passed: 2 });
        assert_eq!(receipts.owed(1, 1, |_| 15), 2 + 2);
        assert_eq!(receipts.owed(0, 0, |_| 15), 0, "it never was there");
        receipts.join(1, 1, |_| 20);
        let accounts = receipts.into_accounts(|subscriber| subscriber);
        let missed = Vec::from([(10, 12)].map(|(start, end)| start..end));
        assert_eq!(
            accounts,
            [
                LaneAccount { lane: 1, from: 10, next: 13, until: Some(13), missing: missed },
                LaneAccount { lane: 1, from: 20, next: 20, until: None, missing: vec![] },
            ]
        );
    }

    #[test]
    fn a_ledger_knows_the_first_and_the_last_of_all_threads() {
        let (mut one, mut other) = (Ledger::new(1), Ledger::new(1));
        one.note(mark(0, 1), 40);
        one.note(mark(0, 1), 30);
        other.note(mark(0, 1), 20);
        other.note(mark(0, 3), 60);
        one.merge(other);
        let records: Vec<_> = one.records().copied().collect();
        assert_eq!(
            records,
            [
                MessageReceipts { sent_ns: SENT_NS, first_ns: 20, last_ns: 40, received: 3 },
                MessageReceipts { sent_ns: SENT_NS, first_ns: 60, last_ns: 60, received: 1 },
            ]
        );
    }
}
