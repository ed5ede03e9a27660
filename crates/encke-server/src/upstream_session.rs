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

use encke_io::{Fault, Op, Segment, Send};
use encke_session::tls::{Scratch, Session, SessionError, fill};

use crate::conn::{PEER_ENDED, SENDING};
use crate::core::Core;
use crate::outgoing::{State, UpstreamEvent, UpstreamFault};

/// The time for the last records of a closed connection to leave: they fit into any socket that is not full.
pub(crate) const FAREWELL_NS: u64 = 1_000_000_000;

/// The session of an outgoing connection, and the plaintext that it has not sealed.
pub(crate) struct UpstreamSession {
    session: Box<dyn Session>,
    /// The rest of the feature's send in flight.
    queue: VecDeque<Segment>,
    /// Plaintext that has left, of the feature's send in flight.
    sent: u64,
    /// A close_notify was sent.
    finished: bool,
    /// The peer's close_notify was reported.
    ended: bool,
    /// Why the session cannot go on, until that is reported.
    error: Option<SessionError>,
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

    fn sealed_of(&self, in_flight: u64) -> u64 {
        in_flight - self.queue.iter().map(Segment::len).sum::<u64>()
    }

    /// Seals one send, with a close_notify behind the queue if this is the `last`.
    fn seal(&mut self, last: bool, scratch: &mut Scratch) -> Result<Vec<u8>, Fault> {
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

impl Core {
    /// Bytes of records have arrived.
    pub(crate) fn records_arrived(&mut self, place: u32, bytes: &mut [u8]) {
        let upstream = &mut self.upstreams.table[place as usize];
        let Some(session) = &mut upstream.session else { return };
        if session.ended {
            return;
        }
        let mut plain = std::mem::take(&mut self.scratch.plain);
        plain.clear();
        session.error = session.session.open(bytes, &mut plain).err();
        self.report_established(place);
        if !plain.is_empty() && self.upstreams.table[place as usize].state == State::Open {
            self.metrics.upstream_received_bytes.add(plain.len() as u64);
            self.tell_upstream(place, UpstreamEvent::Received(&mut plain));
        }
        self.scratch.plain = plain;
        self.records_opened(place);
    }

    /// Reports the end of the handshake, if it is over.
    fn report_established(&mut self, place: u32) {
        let upstream = &mut self.upstreams.table[place as usize];
        if upstream.state == State::Handshaking
            && upstream.session.as_ref().is_some_and(|session| session.session.is_established())
        {
            upstream.state = State::Open;
            let token = upstream.token;
            self.receive_upstream(token);
            self.tell_upstream(place, UpstreamEvent::Connected);
        }
    }

    /// Reports what a session has come to besides plaintext, and sends its records.
    pub(crate) fn records_opened(&mut self, place: u32) {
        self.report_established(place);
        let upstream = &mut self.upstreams.table[place as usize];
        let Some(session) = &mut upstream.session else { return };
        if let Some(error) = session.error.take() {
            return self.fail_upstream(place, UpstreamFault::Session(error));
        }
        if session.session.is_ended() && !session.ended {
            if upstream.state != State::Open {
                return self.fail_upstream(place, UpstreamFault::Truncated);
            }
            session.ended = true;
            let token = upstream.token;
            self.set_receiving(token, false);
            self.conns[token.index as usize].flags |= PEER_ENDED;
            self.tell_upstream(place, UpstreamEvent::Ended);
        }
        self.flush_upstream(place);
    }

    /// Sends records, unless a send is in flight: those of TLS itself, then what waits.
    pub(crate) fn flush_sealed(&mut self, place: u32) {
        let upstream = &mut self.upstreams.table[place as usize];
        let Some(session) = &mut upstream.session else { return };
        let token = upstream.token;
        if !matches!(upstream.state, State::Handshaking | State::Open)
            || self.conns[token.index as usize].has(SENDING)
        {
            return;
        }
        let mut spent = Vec::new();
        if upstream.state == State::Open && session.queue.is_empty() {
            spent = std::mem::take(&mut upstream.waiting);
            session.queue.extend(spent.drain(..).filter(|segment| !segment.is_empty()));
            upstream.in_flight = session.queue.iter().map(Segment::len).sum();
        }
        let last = upstream.ending && upstream.waiting.is_empty();
        let sealed = session.seal(last, &mut self.scratch);
        self.recycle_segments(spent);
        match sealed {
            Ok(records) if records.is_empty() => {}
            Ok(records) => {
                self.conns[token.index as usize].flags |= SENDING;
                let mut segments = self.spare_segments.pop().unwrap_or_default();
                segments.push(Segment::Bytes(records));
                self.ops.push((token, Op::Send(Send { segments, more: false })));
            }
            Err(fault) => self.fail_upstream(place, UpstreamFault::Failed(fault)),
        }
    }
}
