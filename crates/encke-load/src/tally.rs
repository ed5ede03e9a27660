//! Counters of a run: every request ends in exactly one counter, and histograms take its times.
//!
//! ```text
//!   begun ──┬─► finished   with a complete response (`wrong` if its status or body was not expected)
//!           ├─► failed     without one: counted by phase and cause, with a sample
//!           ├─► aborted    open when the run ended
//!           └─► warm_up    begun during the warm-up, however it ended
//!   begun = finished + failed + aborted + warm_up + open requests
//! ```
//! Each thread writes its own tally. Any thread may read it at any time, as with all cells of `encke-stats`.

use std::fmt;
use std::io;

use encke_io::OpError;
use encke_session::http2;
use encke_stats::{Counter, Distribution, Histogram};
use encke_wire::http1::Refusal;

use crate::push::StreamError;
use crate::statuses::{StatusCounters, StatusCounts};

/// Counters of one thread.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests begun: each took or opened a connection.
    pub begun: Counter,
    /// Requests with a complete response.
    pub finished: Counter,
    /// Finished requests whose status or body was not expected.
    pub wrong: Counter,
    /// Wrong responses whose status was expected but whose body was not.
    pub differing: Counter,
    /// Finished requests whose response was gathered with others, so that it may have been read late.
    pub gathered: Counter,
    /// Requests that ended without a complete response.
    pub failed: Counter,
    /// Requests that were open when the run ended.
    pub aborted: Counter,
    /// Requests that began during the warm-up.
    pub warm_up: Counter,
    /// Open loop: requests that were due before a user was free to send them.
    pub queued: Counter,
    /// Finished requests by status.
    pub statuses: StatusCounters,
    /// Bytes received, including heads and framing.
    pub received_bytes: Counter,
    /// Bytes of bodies received, without their framing and those of the warm-up.
    pub body_bytes: Counter,
    /// Bytes handed to the kernel.
    pub sent_bytes: Counter,
    /// Connections established.
    pub connected: Counter,
    /// TLS handshakes completed.
    pub handshakes: Counter,
    /// TLS handshakes that resumed an earlier session.
    pub resumed: Counter,
    /// Failed attempts to connect, TLS included.
    pub unconnected: Counter,
    /// Connections that the server ended while no request was open on them.
    pub ended_idle: Counter,
    /// Time from connect(2) to established.
    pub connect: Histogram,
    /// Time from established to the end of the TLS handshake.
    pub handshake: Histogram,
    /// Time from the send of a request to its complete response. If the request waits for its connection, from the dial.
    pub service: Histogram,
    /// Time from the send of a request to the first byte of its response.
    pub first_byte: Histogram,
    /// Open loop: time from when a request was due to its complete response.
    pub response: Histogram,
    /// Open loop: time from when a request was due to its send.
    pub lag: Histogram,
}

impl Tally {
    /// A tally with all counters at 0.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Values of a tally at one moment, or the sum of several.
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
    pub statuses: StatusCounts,
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
    /// The sum of all tallies, approximately as of now.
    pub fn of<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Self {
        let mut totals = Self::default();
        for tally in tallies {
            for (sum, cell) in [
                // Ends are read before beginnings, so that no sum exceeds `begun`.
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
            totals.statuses.add_counters(&tally.statuses);
            tally.connect.add_to(&mut totals.connect);
            tally.handshake.add_to(&mut totals.handshake);
            tally.service.add_to(&mut totals.service);
            tally.first_byte.add_to(&mut totals.first_byte);
            tally.response.add_to(&mut totals.response);
            tally.lag.add_to(&mut totals.lag);
        }
        totals
    }

    /// The latency of users: in an open loop from when a request was due, in a closed loop from its send.
    pub fn latency(&self) -> &Distribution {
        if self.response.max_ns() > 0 { &self.response } else { &self.service }
    }

    /// Counted requests without a complete response: failed ones, and requests that were open when the run ended.
    pub const fn unanswered(&self) -> u64 {
        self.failed + self.aborted
    }

    /// The share of counted requests that had no complete response, or a wrong one; 0 if none has ended.
    pub fn error_share(&self) -> f64 {
        let ended = self.finished + self.unanswered();
        if ended == 0 { 0.0 } else { (self.unanswered() + self.wrong) as f64 / ended as f64 }
    }
}

/// The phase of a request in which an error occurred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RequestPhase {
    /// Establishing a connection.
    Connect,
    /// The handshake of TLS.
    Tls,
    /// Waiting for the server's HTTP/2 settings.
    Greeting,
    /// Sending the request.
    Write,
    /// Waiting for the response.
    FirstByte,
    /// Reading the response: an incomplete head, or the body.
    Body,
    /// Publishing a message.
    Publish,
}

/// The reason for a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A timeout of the plan.
    Timeout,
    /// The server ended the connection.
    Ended,
    /// No local port is left for this server.
    Ports,
    /// The listener of a Unix socket has as many waiting connections as it allows.
    Backlog,
    /// The received bytes are not a valid response.
    Malformed(Refusal),
    /// The server sent bytes without a request.
    Unasked,
    /// The connection ended without the close_notify of TLS: it may have been truncated by a third party.
    Cut,
    /// TLS failed for this reason.
    Tls(String),
    /// The client spoke HTTP/2 and the server did not.
    Strange,
    /// HTTP/2 cannot represent the request.
    Unfit,
    /// HTTP/2 ended the stream or the connection.
    Http2(http2::StreamFailure),
    /// The server responded with this status.
    Status(u16),
    /// A subscription's response is invalid.
    NotUnderstood(StreamError),
    /// Error reported by the operating system, on this side or caused by the server.
    Fault(OpError),
}

impl Cause {
    /// Whether this side ran out of a resource, so that the server is not at fault.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ports | Self::Fault(OpError::Descriptors | OpError::Memory))
    }
}

impl From<OpError> for Cause {
    fn from(fault: OpError) -> Self {
        let OpError::System(number) = fault else { return Self::Fault(fault) };
        match io::Error::from_raw_os_error(number).kind() {
            io::ErrorKind::AddrNotAvailable => Self::Ports,
            io::ErrorKind::WouldBlock => Self::Backlog,
            _ => Self::Fault(fault),
        }
    }
}

/// Errors of a run: each kind with its count and its first occurrence.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Errors(Vec<Error>);

/// One kind of failure.
#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    /// Phase of the request.
    pub phase: RequestPhase,
    /// Reason.
    pub cause: Cause,
    /// Number of occurrences.
    pub count: u64,
    /// Time of the first occurrence, in ns after the beginning of the run.
    pub first_ns: u64,
    /// First bytes of the response that were received at the first occurrence; of a rejected message, of the response's body.
    pub sample: Vec<u8>,
}

/// Bytes kept of a failed response: a status line and some fields.
pub(crate) const SAMPLE_BYTES_MAX: usize = 256;

impl Errors {
    /// Counts a failure. `seen` is the received part of the response.
    pub(crate) fn add(&mut self, phase: RequestPhase, cause: Cause, at_ns: u64, seen: &[u8]) {
        // There are only a few kinds, so a search costs less than a table.
        match self.0.iter_mut().find(|error| error.phase == phase && error.cause == cause) {
            Some(error) => error.count += 1,
            None => {
                let sample = seen[..seen.len().min(SAMPLE_BYTES_MAX)].to_vec();
                self.0.push(Error { phase, cause, count: 1, first_ns: at_ns, sample });
            }
        }
    }

    /// Adds the errors of another thread.
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

    /// Whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for RequestPhase {
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
            Self::Malformed(refusal) => write!(f, "invalid response: {}", refusal.reason()),
            Self::Unasked => f.write_str("bytes without a request arrived"),
            Self::Cut => f.write_str("the connection was cut: it ended without a TLS close_notify"),
            Self::Tls(reason) => f.write_str(reason),
            Self::Strange => f.write_str("the server does not support HTTP/2"),
            Self::Unfit => f.write_str("HTTP/2 does not support this request"),
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
        one.add(RequestPhase::Body, Cause::Ended, 50, b"HTTP/1.1 2");
        one.add(RequestPhase::Body, Cause::Ended, 60, b"other");
        two.add(RequestPhase::Connect, Cause::Timeout, 10, b"");
        two.add(RequestPhase::Body, Cause::Ended, 20, &[b'x'; 1_000]);
        two.add(RequestPhase::Body, Cause::Fault(OpError::Reset), 30, b"");
        let mut all = Errors::default();
        all.merge(one);
        all.merge(two);
        let told: Vec<_> = all.iter().map(|error| (error.phase, error.cause.clone(), error.count)).collect();
        assert_eq!(
            told,
            [
                (RequestPhase::Body, Cause::Ended, 3),
                (RequestPhase::Connect, Cause::Timeout, 1),
                (RequestPhase::Body, Cause::Fault(OpError::Reset), 1)
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
            tally.aborted.add(2);
            tally.statuses.add(200, 6);
            tally.service.record(1_000);
        }
        let totals = Totals::of([&one, &two]);
        assert_eq!((totals.begun, totals.finished, totals.failed, totals.statuses.class(2)), (20, 12, 4, 12));
        assert_eq!((totals.service.count(), totals.error_share()), (2, 10.0 / 20.0));
    }
}
