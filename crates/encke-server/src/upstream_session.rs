//! Outgoing connections by TLS: what arrives becomes plaintext, what a feature sends becomes records.
//!
//! ```text
//!  socket ─► records_arrived ─► Session::open ─► records_opened ─┬─► Connected, once the handshake is over
//!                                                                ├─► Received: plaintext
//!                                                                ├─► Ended: a close_notify
//!                                                                └─► Failed: the session's error
//!  socket ◄─ flush_sealed: one send ◄─ Session::output, seal, finish ◄─ `queue` ◄─ `waiting`, once the send before is out
//! ```
//! A send of a feature is sealed in pieces of at most 64 KiB and a record, each when the one before has left, and is reported
//! as sent once all of it has. Plaintext that has arrived is in the worker's scratch for the event. So at rest a connection
//! has the session and no buffer of its own.
//!
//! Only a close_notify ends the peer's side in order. The end of the socket without it is [`UpstreamFault::Truncated`].

use std::collections::VecDeque;

use encke_io::{Fault, Segment};
use encke_session::tls::{Scratch, Session, SessionError, fill};

/// The time for the last records of a closed connection to leave: they fit into any socket that is not full.
pub(crate) const FAREWELL_NS: u64 = 1_000_000_000;

/// The session of an outgoing connection, and the plaintext that it has not sealed.
pub(crate) struct UpstreamSession {
    pub(crate) session: Box<dyn Session>,
    /// The rest of the feature's send in flight.
    pub(crate) queue: VecDeque<Segment>,
    /// Plaintext that has left, of the feature's send in flight.
    pub(crate) sent: u64,
    /// A close_notify was sent.
    pub(crate) finished: bool,
    /// The peer's close_notify was reported.
    pub(crate) ended: bool,
    /// Why the session cannot go on, until that is reported.
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

    /// Whether plaintext waits to be sealed.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A send has ended well. Returns whether more of the feature's send follows, which has `in_flight` bytes.
    pub(crate) fn went_out(&mut self, in_flight: u64) -> bool {
        let more = self.has_queue();
        self.sent = if more { self.sealed_of(in_flight) } else { 0 };
        more
    }

    /// The plaintext of a failed send that has left, at most: its last piece counts if a part of its records has.
    pub(crate) fn sent_of(&self, in_flight: u64, in_part: bool) -> u64 {
        if in_part { self.sealed_of(in_flight) } else { self.sent }
    }

    pub(crate) fn sealed_of(&self, in_flight: u64) -> u64 {
        in_flight - self.queue.iter().map(Segment::len).sum::<u64>()
    }

    /// Seals one send, with a close_notify behind the queue if this is the `last`.
    pub(crate) fn seal(&mut self, last: bool, scratch: &mut Scratch) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        self.session.output(&mut out);
        if !self.session.is_established() {
            return Ok(out);
        }
        let session = &mut self.session;
        fill(&mut self.queue, &mut scratch.gathered, &mut out, |plain, out| {
            session.seal(plain, out).map_err(|_| Fault::Reset)
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
    pub(crate) fn farewell(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.output(&mut out);
        if self.session.is_established() && !self.finished {
            self.session.finish(&mut out);
        }
        out
    }
}
