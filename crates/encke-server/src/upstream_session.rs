//! Outgoing connections with TLS: received records become plaintext, a feature's sends become records.
//!
//! ```text
//!  socket ─► records_arrived ─► Session::open ─► records_opened ─┬─► Connected, once the handshake is over
//!                                                                ├─► Received: plaintext
//!                                                                ├─► Ended: a close_notify
//!                                                                └─► Failed: the session's error
//!  socket ◄─ flush_sealed: one send ◄─ Session::output, seal, finish ◄─ `queue` ◄─ `waiting`, once the send before is out
//! ```
//! A feature's send is sealed in pieces of at most 64 KiB plus a record, each after the previous one has left. It is reported
//! as sent once all of it has left. Received plaintext is in the worker's scratch buffer during the event. So an idle
//! connection has the session and no buffer of its own.
//!
//! Only a close_notify ends the peer's side in order. The socket's end without it is [`UpstreamFault::Truncated`].

use std::collections::VecDeque;

use encke_io::{OpError, Segment};
use encke_session::tls::{Scratch, Session, SessionError, fill};

/// Time for the last records of a closed connection to leave, in ns: they fit into any socket buffer that is not full.
pub(crate) const FAREWELL_NS: u64 = 1_000_000_000;

/// The session of an outgoing connection, and the plaintext that is not sealed yet.
pub(crate) struct UpstreamSession {
    pub(crate) session: Box<dyn Session>,
    /// The rest of the feature's send in flight.
    pub(crate) queue: VecDeque<Segment>,
    /// Plaintext bytes of the feature's send in flight that have left.
    pub(crate) sent: u64,
    /// Whether a close_notify was sent.
    pub(crate) finished: bool,
    /// Whether the peer's close_notify was reported.
    pub(crate) ended: bool,
    /// The failure of the session, until it is reported.
    pub(crate) error: Option<SessionError>,
}

impl UpstreamSession {
    pub(crate) fn new(session: Box<dyn Session>) -> Box<Self> {
        Box::new(Self {
            session,
            queue: VecDeque::new(),
            sent: 0,
            finished: false,
            ended: false,
            error: None,
        })
    }

    /// Whether the peer's close_notify was reported.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether a close_notify was sent.
    pub(crate) const fn has_finished(&self) -> bool {
        self.finished
    }

    /// Whether plaintext waits to be sealed.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Handles a completed send. Returns whether more of the feature's send follows, which has `in_flight` bytes.
    pub(crate) fn went_out(&mut self, in_flight: u64) -> bool {
        let more = self.has_queue();
        self.sent = if more { self.sealed_of(in_flight) } else { 0 };
        more
    }

    /// The most plaintext bytes of a failed send that may have left: its last piece counts if a part of its records has left.
    pub(crate) fn sent_of(&self, in_flight: u64, in_part: bool) -> u64 {
        if in_part { self.sealed_of(in_flight) } else { self.sent }
    }

    /// Drops the plaintext that is not sealed, because the peer takes no more. Returns the bytes that may have left, as
    /// [`UpstreamSession::sent_of`] does.
    pub(crate) fn drop_queue(&mut self, in_flight: u64, in_part: bool) -> u64 {
        let sent = self.sent_of(in_flight, in_part);
        self.queue = VecDeque::new();
        self.sent = 0;
        sent
    }

    pub(crate) fn sealed_of(&self, in_flight: u64) -> u64 {
        in_flight - self.queue.iter().map(Segment::len).sum::<u64>()
    }

    /// Seals one send. If it is the `last`, a close_notify follows the queue.
    pub(crate) fn seal(&mut self, last: bool, scratch: &mut Scratch) -> Result<Vec<u8>, OpError> {
        let mut out = Vec::new();
        self.session.output(&mut out);
        if !self.session.is_established() {
            return Ok(out);
        }
        let session = &mut self.session;
        fill(&mut self.queue, &mut scratch.gathered, &mut out, |plain, out| {
            session.seal(plain, out).map_err(|_| OpError::Reset)
        })?;
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
            if last && !self.finished {
                self.finished = true;
                self.session.finish(&mut out);
            }
        }
        Ok(out)
    }

    /// The last records: an alert after an error, or a close_notify.
    pub(crate) fn last_records(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.output(&mut out);
        if self.session.is_established() && !self.finished {
            self.session.finish(&mut out);
        }
        out
    }
}
