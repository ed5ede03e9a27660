//! Who has received what: of each subscriber how far it has come in each lane, of each message when it came to the
//! first and to the last.
//!
//! ```text
//!    from            missing        next           sent
//!     │ ██████████████░░░░██████████│· · · · · · · ·│       one subscriber, one lane
//!     └ joined here     └ passed over, may still come: then it is late
//! ```
//! A number at `next` is what must come. One beyond it passes some over. One before it is late if it was passed
//! over, else it has come before: repeated. Before `from` the subscriber was not there yet: what was on its way
//! at that moment may come or not, and is no figure.

use std::collections::BTreeMap;
use std::ops::Range;

use super::mark::Mark;

/// How far the subscribers of a thread have come.
#[derive(Debug)]
pub(crate) struct Receipts {
    channels: usize,
    lanes: usize,
    lanes_each: usize,
    /// `lanes_each` for each subscriber.
    places: Vec<Place>,
    /// What was passed over and has not come, by place, in order; empty at rest.
    missing: BTreeMap<u32, Vec<Range<u32>>>,
    /// Those of subscriptions that have ended and were not gone on with.
    closed: Vec<Account>,
}

/// 8 bytes a lane of a subscriber.
#[derive(Clone, Copy, Debug)]
struct Place {
    from: u32,
    next: u32,
}

/// What a message is to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receipt {
    /// It comes for the first time, and so many before it have been passed over.
    New { passed: u32 },
    /// It was passed over, and comes now.
    Late,
    /// It has come before.
    Repeated,
    /// It was sent before the subscriber was there.
    Early,
    /// Of a lane that it does not listen to.
    Foreign,
}

/// What a subscription came to in one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Account {
    pub(crate) lane: u16,
    pub(crate) from: u32,
    pub(crate) next: u32,
    /// Up to where messages were due; `None`: up to the last.
    pub(crate) until: Option<u32>,
    pub(crate) missing: Vec<Range<u32>>,
}

/// Nobody is there.
const ABSENT: Place = Place { from: u32::MAX, next: u32::MAX };
/// Stretches that are remembered as passed over, of one subscriber and lane. Of more the oldest is given up: should it
/// come all the same, it is called repeated.
const MISSING_MAX: usize = 1_024;

impl Receipts {
    pub(crate) fn new(subscribers: usize, channels: usize, lanes: usize) -> Self {
        let lanes_each = lanes.div_ceil(channels);
        let places = vec![ABSENT; subscribers * lanes_each];
        Self { channels, lanes, lanes_each, places, missing: BTreeMap::new(), closed: Vec::new() }
    }

    /// A subscriber of a channel is there, and gets what is sent from now on; `sent` tells how many of a lane were.
    pub(crate) fn join(&mut self, subscriber: usize, channel: usize, sent: impl Fn(usize) -> u32) {
        self.leave(subscriber, channel);
        for nth in 0..self.lanes_each {
            let lane = channel + nth * self.channels;
            if lane < self.lanes {
                let from = sent(lane);
                self.places[subscriber * self.lanes_each + nth] = Place { from, next: from };
            }
        }
    }

    /// It is gone, and will not go on where it was: it has missed what was passed over, not what was to come.
    pub(crate) fn leave(&mut self, subscriber: usize, channel: usize) {
        for nth in 0..self.lanes_each {
            let place = subscriber * self.lanes_each + nth;
            let account = self.account(place, channel + nth * self.channels);
            self.closed.extend(account.map(|account| Account { until: Some(account.next), ..account }));
            self.places[place] = ABSENT;
            self.missing.remove(&(place as u32));
        }
    }

    /// A message has come to a subscriber of a channel.
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

    /// What a subscriber has still to get, if so many of each lane were sent.
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

    /// Whether a subscriber has still to get a message.
    pub(crate) fn lacks(&self, subscriber: usize, channel: usize, lane: u16, number: u32) -> bool {
        let lane = usize::from(lane);
        if lane % self.channels != channel {
            return false;
        }
        let index = subscriber * self.lanes_each + lane / self.channels;
        let Place { from, next } = self.places[index];
        let missing = self.missing.get(&(index as u32));
        from != ABSENT.from
            && number >= from
            && (number >= next
                || missing.is_some_and(|missing| missing.iter().any(|range| range.contains(&number))))
    }

    /// What they all came to; subscriber n listens to the channel `channel(n)`.
    pub(crate) fn into_accounts(mut self, channel: impl Fn(usize) -> usize) -> Vec<Account> {
        let mut accounts = std::mem::take(&mut self.closed);
        for place in 0..self.places.len() {
            let (subscriber, nth) = (place / self.lanes_each, place % self.lanes_each);
            accounts.extend(self.account(place, channel(subscriber) + nth * self.channels));
        }
        accounts
    }

    fn account(&self, place: usize, lane: usize) -> Option<Account> {
        let Place { from, next } = self.places[place];
        let missing = self.missing.get(&(place as u32)).cloned().unwrap_or_default();
        // There are at most 65,536 lanes, so the cast holds.
        (from != ABSENT.from).then_some(Account { lane: lane as u16, from, next, until: None, missing })
    }

    /// Takes a number out of what was passed over; whether it was there.
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

/// When each message came, by lane and number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Vec<Vec<Record>>);

/// 32 bytes a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Record {
    pub(crate) sent_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// By so many it was received; 0: by nobody, and the others mean nothing.
    pub(crate) received: u32,
}

impl Ledger {
    pub(crate) fn new(lanes: usize) -> Self {
        Self(vec![Vec::new(); lanes])
    }

    /// A message has come to one more. If that is the first one: how it went with the message before, so far.
    pub(crate) fn note(&mut self, mark: Mark, now_ns: u64) -> Option<Record> {
        let lane = self.0.get_mut(usize::from(mark.lane))?;
        let number = mark.number as usize;
        if lane.len() <= number {
            lane.resize(number + 1, Record::default());
        }
        lane[number].add(Record { sent_ns: mark.sent_ns, first_ns: now_ns, last_ns: now_ns, received: 1 });
        let before = if number > 0 { lane[number - 1] } else { Record::default() };
        (lane[number].received == 1).then_some(before)
    }

    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            if mine.len() < theirs.len() {
                mine.resize(theirs.len(), Record::default());
            }
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.add(theirs);
            }
        }
    }

    /// Of each message that somebody received.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.0.iter().flatten().filter(|record| record.received > 0)
    }
}

impl Record {
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

    /// What a subscriber of one lane that joined at 2 says to these numbers, and its account.
    fn told(numbers: &[u32]) -> (Vec<Receipt>, Account) {
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
        assert_eq!(account, Account { lane: 0, from: 2, next: 5, until: None, missing: vec![] });
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
                Account { lane: 1, from: 10, next: 13, until: Some(13), missing: missed },
                Account { lane: 1, from: 20, next: 20, until: None, missing: vec![] },
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
                Record { sent_ns: SENT_NS, first_ns: 20, last_ns: 40, received: 3 },
                Record { sent_ns: SENT_NS, first_ns: 60, last_ns: 60, received: 1 },
            ]
        );
    }
}
