//! What is counted of subscribers and publishers while they run.
//!
//! A thread writes its own tally; anybody may read it at any time, as with all cells of `encke-stats`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use encke_io::lock;
use encke_stats::{Counter, Distribution, Histogram};

/// What one thread counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Messages handed to a publisher's connection.
    pub published: Counter,
    /// Those that the server refused, or whose publisher had no answer in time.
    pub refused: Counter,
    /// On a schedule: messages that were due before anybody was free to send them.
    pub queued: Counter,
    /// Receipts: a message at one subscriber, the first time it came there.
    pub received: Counter,
    /// Those that came behind a later one.
    pub late: Counter,
    /// What came to somebody again.
    pub repeated: Counter,
    /// What came to somebody who was not there yet when it was sent: in no figure.
    pub early: Counter,
    /// Gaps of which the server said so itself.
    pub gaps: Counter,
    /// Subscriptions that the server answered.
    pub answered: Counter,
    /// Subscriptions that it ended.
    pub closed: Counter,
    /// Subscriptions that it put off.
    pub turned_away: Counter,
    /// Subscriptions that were left, by `churn` or a storm.
    pub left: Counter,
    /// Connections that were established, and attempts that failed.
    pub connected: Counter,
    /// See above.
    pub unconnected: Counter,
    /// TLS handshakes that were completed.
    pub handshakes: Counter,
    /// Those of them that went on with a session of before.
    pub resumed: Counter,
    /// Bytes received by subscribers and publishers, all framing included but TLS'.
    pub received_bytes: Counter,
    /// Bytes handed to the kernel.
    pub sent_bytes: Counter,
    /// From a publisher's send to a subscriber's receive, of each receipt.
    pub latency: Histogram,
    /// From a publisher's send to the first of this thread's subscribers that had the message.
    pub first: Histogram,
    /// The same to the last of them, once one of them has a later message of its sequence.
    pub last: Histogram,
    /// From connect(2) to established, a handshake included.
    pub connect: Histogram,
    /// TLS' handshake alone.
    pub handshake: Histogram,
    /// From connect(2) to the server's answer, of subscribers at the beginning.
    pub answer: Histogram,
    /// The same of those who came back.
    pub back: Histogram,
    /// From a publisher's send to the server's answer.
    pub taken: Histogram,
    /// On a schedule: from when a message was due to its send.
    pub lag: Histogram,
}

/// A tally at a moment, or several together.
#[derive(Clone, PartialEq, Debug, Default)]
#[expect(missing_docs, reason = "each is the cell of the same name in Tally")]
pub struct Totals {
    pub published: u64,
    pub refused: u64,
    pub queued: u64,
    pub received: u64,
    pub late: u64,
    pub repeated: u64,
    pub early: u64,
    pub gaps: u64,
    pub answered: u64,
    pub closed: u64,
    pub turned_away: u64,
    pub left: u64,
    pub connected: u64,
    pub unconnected: u64,
    pub handshakes: u64,
    pub resumed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub latency: Distribution,
    pub first: Distribution,
    pub last: Distribution,
    pub connect: Distribution,
    pub handshake: Distribution,
    pub answer: Distribution,
    pub back: Distribution,
    pub taken: Distribution,
    pub lag: Distribution,
}

impl Totals {
    /// All threads together, as of about now.
    pub fn of<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Self {
        let mut totals = Self::default();
        for tally in tallies {
            for (sum, cell) in [
                (&mut totals.published, &tally.published),
                (&mut totals.refused, &tally.refused),
                (&mut totals.queued, &tally.queued),
                (&mut totals.received, &tally.received),
                (&mut totals.late, &tally.late),
                (&mut totals.repeated, &tally.repeated),
                (&mut totals.early, &tally.early),
                (&mut totals.gaps, &tally.gaps),
                (&mut totals.answered, &tally.answered),
                (&mut totals.closed, &tally.closed),
                (&mut totals.turned_away, &tally.turned_away),
                (&mut totals.left, &tally.left),
                (&mut totals.connected, &tally.connected),
                (&mut totals.unconnected, &tally.unconnected),
                (&mut totals.handshakes, &tally.handshakes),
                (&mut totals.resumed, &tally.resumed),
                (&mut totals.received_bytes, &tally.received_bytes),
                (&mut totals.sent_bytes, &tally.sent_bytes),
            ] {
                *sum += cell.value();
            }
            for (sum, cell) in [
                (&mut totals.latency, &tally.latency),
                (&mut totals.first, &tally.first),
                (&mut totals.last, &tally.last),
                (&mut totals.connect, &tally.connect),
                (&mut totals.handshake, &tally.handshake),
                (&mut totals.answer, &tally.answer),
                (&mut totals.back, &tally.back),
                (&mut totals.taken, &tally.taken),
                (&mut totals.lag, &tally.lag),
            ] {
                cell.add_to(sum);
            }
        }
        totals
    }
}

/// What all threads of a run look at.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Of each lane how many messages were begun. It grows before a message is sent: who reads it knows that all
    /// with higher numbers are sent later.
    sent: Vec<AtomicU32>,
    /// No message will be begun any more, and each has its answer.
    said: AtomicBool,
    /// Messages that the server did not take, or about which it did not say so: nobody has to receive them.
    refused: Mutex<Vec<(u16, u32)>>,
}

impl Shared {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            sent: (0..lanes).map(|_| AtomicU32::new(0)).collect(),
            said: AtomicBool::new(false),
            refused: Mutex::new(Vec::new()),
        }
    }

    /// The number of a lane's next message, which is about to be sent.
    pub(crate) fn begin(&self, lane: usize) -> u32 {
        self.sent[lane].fetch_add(1, Ordering::AcqRel)
    }

    pub(crate) fn sent(&self, lane: usize) -> u32 {
        self.sent[lane].load(Ordering::Acquire)
    }

    /// All has been said.
    pub(crate) fn end(&self) {
        self.said.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.said.load(Ordering::Acquire)
    }

    pub(crate) fn refuse(&self, lane: u16, number: u32) {
        lock(&self.refused).push((lane, number));
    }

    /// What was refused, in order.
    pub(crate) fn refused(&self) -> Vec<(u16, u32)> {
        let mut refused = lock(&self.refused).clone();
        refused.sort_unstable();
        refused
    }
}
