//! Counters of subscribers and publishers during a run.
//!
//! Each thread writes its own tally. Any thread may read it at any time, as with all cells of `encke-stats`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use encke_io::lock;
use encke_stats::{Counter, Distribution, Histogram};

/// Counters of one thread.
#[derive(Debug, Default)]
pub struct PushTally {
    /// Messages handed to a publisher's connection.
    pub published: Counter,
    /// Messages that the server refused, or that had no response in time.
    pub refused: Counter,
    /// On a schedule: messages that were due before a publisher was free to send them.
    pub queued: Counter,
    /// Receipts: first arrivals of a message at a subscriber.
    pub received: Counter,
    /// Receipts that arrived after a later message.
    pub late: Counter,
    /// Messages that arrived again at a subscriber.
    pub repeated: Counter,
    /// Messages sent before their receiver had subscribed; they count in no other figure.
    pub early: Counter,
    /// Gaps reported by the server.
    pub gaps: Counter,
    /// Subscriptions accepted by the server.
    pub answered: Counter,
    /// Subscriptions ended by the server or by an error.
    pub closed: Counter,
    /// Subscriptions rejected with a retry time.
    pub turned_away: Counter,
    /// Subscriptions left by churn or a storm.
    pub left: Counter,
    /// Connections established.
    pub connected: Counter,
    /// Failed attempts to connect.
    pub unconnected: Counter,
    /// TLS handshakes completed.
    pub handshakes: Counter,
    /// TLS handshakes that resumed an earlier session.
    pub resumed: Counter,
    /// Bytes received by subscribers and publishers, including all framing except that of TLS.
    pub received_bytes: Counter,
    /// Bytes handed to the kernel.
    pub sent_bytes: Counter,
    /// Per receipt: time from the publisher's send to the receive.
    pub latency: Histogram,
    /// Per message: time from the publisher's send to the first receipt on this thread.
    pub first: Histogram,
    /// Per message: time from the send to the last receipt, once a later message of its lane has a receipt.
    pub last: Histogram,
    /// Time from connect(2) to established, including the TLS handshake.
    pub connect: Histogram,
    /// The TLS handshake alone.
    pub handshake: Histogram,
    /// Initial subscribers: time from connect(2) to the server's response.
    pub answer: Histogram,
    /// Reconnects: time from connect(2) to the server's response.
    pub back: Histogram,
    /// Time from a publisher's send to the server's response.
    pub taken: Histogram,
    /// On a schedule: time from when a message was due to its send.
    pub lag: Histogram,
}

/// Values of a tally at one moment, or the sum of several.
#[derive(Clone, PartialEq, Debug, Default)]
#[expect(missing_docs, reason = "each is the cell of the same name in Tally")]
pub struct PushTotals {
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

impl PushTotals {
    /// The sum of all tallies, approximately as of now.
    pub fn of<'a>(tallies: impl IntoIterator<Item = &'a PushTally>) -> Self {
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

/// State shared by all threads of a run.
#[derive(Debug)]
pub(crate) struct RunShared {
    /// Messages begun in each lane. The count grows before the send: messages with higher numbers are sent after the count is
    /// read.
    sent: Vec<AtomicU32>,
    /// Whether publishing has ended and each message has a response.
    said: AtomicBool,
    /// Messages that the server refused or did not acknowledge: no receipts are expected for them.
    refused: Mutex<Vec<(u16, u32)>>,
}

impl RunShared {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            sent: (0..lanes).map(|_| AtomicU32::new(0)).collect(),
            said: AtomicBool::new(false),
            refused: Mutex::new(Vec::new()),
        }
    }

    /// Takes the number of a lane's next message, just before its send.
    pub(crate) fn begin(&self, lane: usize) -> u32 {
        self.sent[lane].fetch_add(1, Ordering::AcqRel)
    }

    pub(crate) fn sent(&self, lane: usize) -> u32 {
        self.sent[lane].load(Ordering::Acquire)
    }

    /// Marks publishing as ended.
    pub(crate) fn end(&self) {
        self.said.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.said.load(Ordering::Acquire)
    }

    pub(crate) fn refuse(&self, lane: u16, number: u32) {
        lock(&self.refused).push((lane, number));
    }

    /// Refused messages, in order.
    pub(crate) fn refused(&self) -> Vec<(u16, u32)> {
        let mut refused = lock(&self.refused).clone();
        refused.sort_unstable();
        refused
    }
}
