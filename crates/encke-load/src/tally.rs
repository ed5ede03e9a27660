//! What is counted: every request in exactly one place, and how long things took.
//!
//! ```text
//!   begun ──┬─► finished   a whole answer came (`wrong` among them: status or body was not expected)
//!           ├─► failed     it ended without one: by phase and cause, with a sample
//!           ├─► aborted    it was under way when the run ended
//!           └─► warm_up    it began before counting did, however it ended
//!   begun = finished + failed + aborted + warm_up + what is under way
//! ```
//! A thread writes its own tally; anybody may read it at any time, as with all cells of `encke-stats`.

use std::fmt;
use std::io;

use encke_io::Fault;
use encke_session::http2;
use encke_stats::{Counter, Distribution, Histogram};
use encke_wire::http1::Refusal;

use crate::push::Wrong;

/// What one thread counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests that were begun: a connection was taken, or opened, for each.
    pub begun: Counter,
    /// Requests whose answer came whole.
    pub finished: Counter,
    /// Those of them whose status was not among those expected, or whose body was another.
    pub wrong: Counter,
    /// Those of these whose status was expected, and the body was another.
    pub differing: Counter,
    /// Those whose answer had gathered with others, and may have been read so much late.
    pub gathered: Counter,
    /// Requests that ended without a whole answer.
    pub failed: Counter,
    /// Requests that were under way when the run ended.
    pub aborted: Counter,
    /// Requests that began while nothing was counted yet.
    pub warm_up: Counter,
    /// Open loop: requests that were due before anybody was free to send them.
    pub queued: Counter,
    /// Finished requests by the first digit of their status.
    pub statuses: [Counter; 10],
    /// Bytes received, heads and framing included.
    pub received_bytes: Counter,
    /// Bytes of bodies received, without their framing.
    pub body_bytes: Counter,
    /// Bytes handed to the kernel.
    pub sent_bytes: Counter,
    /// Connections that were established.
    pub connected: Counter,
    /// TLS handshakes that were completed.
    pub handshakes: Counter,
    /// Those of them that went on with a session of before.
    pub resumed: Counter,
    /// Attempts to connect, TLS included, that failed.
    pub unconnected: Counter,
    /// Connections that the server ended while no request was under way on them.
    pub ended_idle: Counter,
    /// From connect(2) to established.
    pub connect: Histogram,
    /// From there to the end of TLS' handshake.
    pub handshake: Histogram,
    /// From the send of a request (of its connection's dial, if it had to wait for that) to its whole answer.
    pub service: Histogram,
    /// From the send of a request to the first byte of its answer.
    pub first_byte: Histogram,
    /// Open loop: from when a request was due to its whole answer.
    pub response: Histogram,
    /// Open loop: from when a request was due to its send.
    pub lag: Histogram,
}

impl Tally {
    /// Nothing counted.
    pub fn new() -> Self {
        Self::default()
    }
}

/// A tally at a moment, or several together.
#[derive(Clone, PartialEq, Debug, Default)]
#[expect(missing_docs, reason = "each is the cell of the same name in Tally")]
pub struct Totals {
    pub begun: u64,
    pub finished: u64,
    pub wrong: u64,
    pub differing: u64,
    pub gathered: u64,
    pub failed: u64,
    pub aborted: u64,
    pub warm_up: u64,
    pub queued: u64,
    pub statuses: [u64; 10],
    pub received_bytes: u64,
    pub body_bytes: u64,
    pub sent_bytes: u64,
    pub connected: u64,
    pub handshakes: u64,
    pub resumed: u64,
    pub unconnected: u64,
    pub ended_idle: u64,
    pub connect: Distribution,
    pub handshake: Distribution,
    pub service: Distribution,
    pub first_byte: Distribution,
    pub response: Distribution,
    pub lag: Distribution,
}

impl Totals {
    /// All threads together, as of about now.
    pub fn of<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Self {
        let mut totals = Self::default();
        for tally in tallies {
            for (sum, cell) in [
                // What a request ends as is read before its beginning, so that no sum is ever above `begun`.
                (&mut totals.finished, &tally.finished),
                (&mut totals.wrong, &tally.wrong),
                (&mut totals.differing, &tally.differing),
                (&mut totals.gathered, &tally.gathered),
                (&mut totals.failed, &tally.failed),
                (&mut totals.aborted, &tally.aborted),
                (&mut totals.warm_up, &tally.warm_up),
                (&mut totals.begun, &tally.begun),
                (&mut totals.queued, &tally.queued),
                (&mut totals.received_bytes, &tally.received_bytes),
                (&mut totals.body_bytes, &tally.body_bytes),
                (&mut totals.sent_bytes, &tally.sent_bytes),
                (&mut totals.connected, &tally.connected),
                (&mut totals.handshakes, &tally.handshakes),
                (&mut totals.resumed, &tally.resumed),
                (&mut totals.unconnected, &tally.unconnected),
                (&mut totals.ended_idle, &tally.ended_idle),
            ] {
                *sum += cell.value();
            }
            for (sum, cell) in totals.statuses.iter_mut().zip(&tally.statuses) {
                *sum += cell.value();
            }
            tally.connect.add_to(&mut totals.connect);
            tally.handshake.add_to(&mut totals.handshake);
            tally.service.add_to(&mut totals.service);
            tally.first_byte.add_to(&mut totals.first_byte);
            tally.response.add_to(&mut totals.response);
            tally.lag.add_to(&mut totals.lag);
        }
        totals
    }

    /// What a user waits: in an open loop from when a request was due, in a closed one from its send.
    pub fn latency(&self) -> &Distribution {
        if self.response.max_ns() > 0 { &self.response } else { &self.service }
    }

    /// The share of counted requests that failed or were answered wrongly; 0 if none has ended.
    pub fn error_share(&self) -> f64 {
        let ended = self.finished + self.failed;
        if ended == 0 { 0.0 } else { (self.failed + self.wrong) as f64 / ended as f64 }
    }
}

/// In which phase of a request something went wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Establishing a connection.
    Connect,
    /// The handshake of TLS.
    Tls,
    /// Waiting for the server to say that it speaks HTTP/2.
    Greeting,
    /// Sending the request.
    Write,
    /// Waiting for the answer.
    FirstByte,
    /// Reading the answer: its head was not whole, or its body.
    Body,
    /// Publishing a message.
    Publish,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It took longer than the plan allows.
    Timeout,
    /// The server ended the connection.
    Ended,
    /// No local port is left for this server.
    Ports,
    /// A Unix socket whose listener has as many connections waiting as it allows.
    Backlog,
    /// The bytes are no answer.
    Malformed(Refusal),
    /// Bytes came that answer nothing.
    Unasked,
    /// The connection ended without TLS' farewell: somebody else may have cut it.
    Cut,
    /// TLS cannot go on, for this reason.
    Tls(String),
    /// HTTP/2 was said, and something else was answered.
    Strange,
    /// HTTP/2 cannot carry the request.
    Unfit,
    /// By HTTP/2 the stream or the connection is over.
    Http2(http2::Cause),
    /// The server has answered by this status.
    Status(u16),
    /// A subscription cannot be understood.
    NotUnderstood(Wrong),
    /// The system, or the server by way of it.
    Fault(Fault),
}

impl Cause {
    /// Whether this side ran out of something, so that the server is not to blame.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ports | Self::Fault(Fault::Descriptors | Fault::Memory))
    }
}

impl From<Fault> for Cause {
    fn from(fault: Fault) -> Self {
        let Fault::System(number) = fault else { return Self::Fault(fault) };
        match io::Error::from_raw_os_error(number).kind() {
            io::ErrorKind::AddrNotAvailable => Self::Ports,
            io::ErrorKind::WouldBlock => Self::Backlog,
            _ => Self::Fault(fault),
        }
    }
}

/// What went wrong, how often, and how it looked the first time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Errors(Vec<Error>);

/// A kind of failure.
#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    /// When in a request.
    pub phase: Phase,
    /// Why.
    pub cause: Cause,
    /// How often.
    pub count: u64,
    /// When it first happened, in ns after the beginning of the run.
    pub first_ns: u64,
    /// The first bytes of what had come of the answer then.
    pub sample: Vec<u8>,
}

/// Bytes kept of an answer that failed: a status line and some fields.
const SAMPLE_BYTES_MAX: usize = 256;

impl Errors {
    /// Counts a failure; `seen` is what had come of the answer.
    pub(crate) fn add(&mut self, phase: Phase, cause: Cause, at_ns: u64, seen: &[u8]) {
        // A handful of kinds: a search costs less than a table would.
        match self.0.iter_mut().find(|error| error.phase == phase && error.cause == cause) {
            Some(error) => error.count += 1,
            None => {
                let sample = seen[..seen.len().min(SAMPLE_BYTES_MAX)].to_vec();
                self.0.push(Error { phase, cause, count: 1, first_ns: at_ns, sample });
            }
        }
    }

    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: Self) {
        for theirs in other.0 {
            let same = |mine: &&mut Error| mine.phase == theirs.phase && mine.cause == theirs.cause;
            match self.0.iter_mut().find(same) {
                Some(mine) => {
                    mine.count += theirs.count;
                    if theirs.first_ns < mine.first_ns {
                        (mine.first_ns, mine.sample) = (theirs.first_ns, theirs.sample);
                    }
                }
                None => self.0.push(theirs),
            }
        }
        self.0.sort_by_key(|error| std::cmp::Reverse(error.count));
    }

    /// Each kind, the most frequent first.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        self.0.iter()
    }

    /// Whether nothing went wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Tls => "TLS",
            Self::Greeting => "greeting",
            Self::Write => "write",
            Self::FirstByte => "first byte",
            Self::Body => "answer",
            Self::Publish => "publish",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("timed out"),
            Self::Ended => f.write_str("the server ended the connection"),
            Self::Ports => f.write_str("no local port is left for this server"),
            Self::Backlog => f.write_str("the queue of the server's listener is full"),
            Self::Malformed(refusal) => write!(f, "no valid answer: {}", refusal.reason()),
            Self::Unasked => f.write_str("bytes came that answer nothing"),
            Self::Cut => f.write_str("the connection was cut: it ended without TLS' farewell"),
            Self::Tls(reason) => f.write_str(reason),
            Self::Strange => f.write_str("the server does not speak HTTP/2"),
            Self::Unfit => f.write_str("HTTP/2 cannot carry this request"),
            Self::Http2(cause) => cause.fmt(f),
            Self::Status(status) => write!(f, "status {status}"),
            Self::NotUnderstood(wrong) => wrong.fmt(f),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_kind_with_the_first_one_shown() {
        let (mut one, mut two) = (Errors::default(), Errors::default());
        one.add(Phase::Body, Cause::Ended, 50, b"HTTP/1.1 2");
        one.add(Phase::Body, Cause::Ended, 60, b"other");
        two.add(Phase::Connect, Cause::Timeout, 10, b"");
        two.add(Phase::Body, Cause::Ended, 20, &[b'x'; 1_000]);
        two.add(Phase::Body, Cause::Fault(Fault::Reset), 30, b"");
        let mut all = Errors::default();
        all.merge(one);
        all.merge(two);
        let told: Vec<_> = all.iter().map(|error| (error.phase, error.cause.clone(), error.count)).collect();
        assert_eq!(
            told,
            [
                (Phase::Body, Cause::Ended, 3),
                (Phase::Connect, Cause::Timeout, 1),
                (Phase::Body, Cause::Fault(Fault::Reset), 1)
            ]
        );
        let first = all.iter().next().expect("three kinds");
        assert_eq!((first.first_ns, first.sample.len()), (20, SAMPLE_BYTES_MAX));
    }

    #[test]
    fn totals_are_the_sum_of_all_threads() {
        let (one, two) = (Tally::new(), Tally::new());
        for tally in [&one, &two] {
            tally.begun.add(10);
            tally.finished.add(6);
            tally.wrong.add(1);
            tally.failed.add(2);
            tally.statuses[2].add(6);
            tally.service.record(1_000);
        }
        let totals = Totals::of([&one, &two]);
        assert_eq!((totals.begun, totals.finished, totals.failed, totals.statuses[2]), (20, 12, 4, 12));
        assert_eq!((totals.service.count(), totals.error_share()), (2, 6.0 / 16.0));
    }
}
