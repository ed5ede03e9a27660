//! Requests over HTTP/2: a flight is a stream of its user's connection. Streams end in any order and fail independently.
//!
//! ```text
//!   ring: waits ── a stream is available ──► RequestStream ──┬─► finished, failed
//!     ▲                                                       │
//!     └──────── GOAWAY, and the request was not processed ────┘
//! ```
//! Users, tickets and connections work as in [`super`]; this file contains the differences. An idle user has room for another
//! stream. In an open loop a user may therefore be idle and have open streams.

use super::{OpenRequest, Requests, UserState};
use crate::check::BodyComparison;
use crate::crowd::{Outbox, TurnTime};
use crate::tally::{Cause, RequestPhase};
use encke_io::{Op, Segment, Send, Token};
use encke_session::http2::{self, Multiplex, StreamEvent};

/// The HTTP/2 state of a user's connection.
pub(super) struct Carrier {
    wire: Multiplex<RequestStream>,
    /// When data last arrived from the server.
    heard_ns: u64,
    /// Whether the server has processed a request.
    has_looked: bool,
}

/// A flight on a stream.
struct RequestStream {
    flight: OpenRequest,
    /// Whether the head of the response has arrived.
    answering: bool,
    compared: BodyComparison,
}

impl Carrier {
    /// Whether it has open streams.
    pub(super) fn is_busy(&self) -> bool {
        !self.wire.is_empty()
    }
}

impl Requests {
    /// Starts HTTP/2 on a connection, after the TLS handshake if there is one.
    pub(super) fn greet(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        (user.state, user.since_ns) = (UserState::Greeting, at.now_ns);
        let carrier = Carrier { wire: Multiplex::new(), heard_ns: at.woken_ns, has_looked: false };
        self.carriers[index as usize] = Some(Box::new(carrier));
        self.flush(index, out);
    }

    /// Lets a user begin as many requests as it may, and sends them in one send.
    pub(super) fn refill_streams(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let Some(carrier) = self.carriers.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        let user = &mut self.users[index as usize];
        let left =
            self.plan.requests_per_connection.map_or(u64::MAX, |limit| limit.saturating_sub(user.served));
        if !carrier.is_busy() && (left == 0 || carrier.wire.is_leaving()) {
            if user.served > 0 && user.count > 0 && !carrier.has_looked {
                // Without this, a server that accepts connections only to send GOAWAY would be dialed forever.
                let cause = Cause::Http2(http2::StreamFailure::Leave(http2::Code(0)));
                return self.unconnected(index, RequestPhase::Greeting, &cause, at, out);
            }
            self.hang_up(index, out);
            return self.revive(index, at, out);
        }
        let own = usize::from(self.plan.pipeline).saturating_sub(carrier.wire.len());
        let room = carrier.wire.room().min(own).min(usize::try_from(left).unwrap_or(usize::MAX));
        // An idle user has waited for its ticket.
        let rested = user.rested || user.queued;
        while usize::from(self.users[index as usize].count) < room
            && let Some(ticket) = self.tickets.take(at.now_ns)
        {
            self.users[index as usize].rested = rested;
            self.depart(index, ticket, at);
        }
        self.users[index as usize].rested = false;
        let mut begun = 0;
        while begun < room && self.users[index as usize].count > 0 {
            let flight = self.land(index);
            if !self.launch(index, flight, at) {
                break;
            }
            begun += 1;
        }
        self.flush(index, out);
        if begun < room {
            self.rest_idle(index);
        }
    }

    /// Starts a stream for a flight; returns false if the server accepts no more at present.
    fn launch(&mut self, index: u32, flight: OpenRequest, at: TurnTime) -> bool {
        let Some(letter) = self.load.letter(&self.plan, flight.message) else {
            self.lose(flight, RequestPhase::Write, &Cause::Unfit, &[], at);
            return true;
        };
        let Some(carrier) = self.carriers[index as usize].as_deref_mut() else { return false };
        let errand = RequestStream { flight, answering: false, compared: BodyComparison::default() };
        match carrier.wire.send(errand, letter) {
            Ok(()) => {
                self.users[index as usize].served += 1;
                self.arm(index, flight.begun_ns.max(at.now_ns).saturating_add(self.timeout_ns));
                true
            }
            Err(errand) => {
                self.line_up(index, errand.flight);
                false
            }
        }
    }

    /// Sends pending HTTP/2 output, unless a send is in flight.
    pub(super) fn flush(&mut self, index: u32, out: &mut Outbox) {
        let Some(carrier) = self.carriers.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        let user = &mut self.users[index as usize];
        if user.sending || user.token == Token::NONE {
            return;
        }
        let mut bytes = self.load.buffer();
        carrier.wire.output(&mut bytes);
        if bytes.is_empty() {
            return self.load.keep(bytes);
        }
        let mut segments = self.load.spare.pop().unwrap_or_default();
        segments.push(Segment::Bytes(bytes));
        user.sending = true;
        out.put(user.token, Op::Send(Send { segments, more: false }));
    }

    /// Processes input of the server.
    pub(super) fn on_input(&mut self, index: u32, bytes: &[u8], at: TurnTime, out: &mut Outbox) {
        let Some(mut carrier) = self.carriers[index as usize].take() else { return };
        carrier.heard_ns = at.woken_ns;
        carrier.wire.feed(bytes);
        while let Some(told) = carrier.wire.tidings() {
            self.note(index, &mut carrier, told, at);
        }
        let (over, greeted, busy) = (carrier.wire.over(), carrier.wire.is_greeted(), carrier.is_busy());
        self.carriers[index as usize] = Some(carrier);
        match (self.users[index as usize].state, over) {
            (UserState::Greeting, Some(_)) => {
                self.unconnected(index, RequestPhase::Greeting, &Cause::Strange, at, out);
            }
            (UserState::Greeting, None) if greeted => {
                self.has_greeted = true;
                self.opened(index, at, out);
            }
            (_, Some(cause)) if busy => {
                self.broken(index, RequestPhase::FirstByte, &Cause::Http2(cause), &[], at, out);
            }
            _ => self.refill(index, at, out),
        }
        self.flush(index, out);
    }

    /// Handles an event of a stream.
    fn note(&mut self, index: u32, carrier: &mut Carrier, told: StreamEvent<RequestStream>, at: TurnTime) {
        match told {
            StreamEvent::Head(place) => {
                let Some(errand) = carrier.wire.key(place) else { return };
                errand.answering = true;
                carrier.has_looked = true;
                if !errand.flight.warm {
                    self.tally.first_byte.record(at.woken_ns.saturating_sub(errand.flight.begun_ns));
                }
            }
            StreamEvent::Piece(place, piece) => {
                let Some(errand) = carrier.wire.key(place) else { return };
                if !errand.flight.warm {
                    self.tally.body_bytes.add(piece.len() as u64);
                }
                if let Some(expected) = &self.plan.body {
                    errand.compared.take(expected, &piece);
                }
            }
            StreamEvent::Whole(mut errand, status) => {
                let same = self.plan.body.as_ref().is_none_or(|expected| errand.compared.end(expected));
                self.finish(errand.flight, status, same, at);
            }
            StreamEvent::Returned(errand) => self.line_up(index, errand.flight),
            StreamEvent::Failed(errand, cause) => {
                carrier.has_looked = true;
                self.lose(
                    errand.flight,
                    errand.phase(RequestPhase::FirstByte),
                    &Cause::Http2(cause),
                    &[],
                    at,
                );
            }
        }
    }

    /// Cancels streams that exceed the timeout. If nothing was received for that long, fails the whole connection.
    pub(super) fn expire_streams(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let Some(carrier) = self.carriers[index as usize].as_deref_mut() else { return };
        let timeout_ns = self.timeout_ns;
        let is_late = |errand: &RequestStream| errand.flight.begun_ns.saturating_add(timeout_ns) <= at.now_ns;
        let silent = carrier.heard_ns.saturating_add(timeout_ns) <= at.now_ns;
        if silent && carrier.wire.keys().any(is_late) {
            return self.broken(index, RequestPhase::FirstByte, &Cause::Timeout, &[], at, out);
        }
        let mut late = Vec::new();
        while let Some(errand) = carrier.wire.cancel(is_late) {
            late.push(errand);
        }
        let oldest_ns = carrier.wire.keys().map(|errand| errand.flight.begun_ns).min();
        for errand in late {
            self.lose(errand.flight, errand.phase(RequestPhase::FirstByte), &Cause::Timeout, &[], at);
        }
        if let Some(oldest_ns) = oldest_ns {
            self.arm(index, oldest_ns.saturating_add(timeout_ns));
        }
        self.refill(index, at, out);
        self.flush(index, out);
    }

    /// Fails all streams of a connection that is given up.
    pub(super) fn lose_streams(&mut self, index: u32, phase: RequestPhase, cause: &Cause, at: TurnTime) {
        for errand in self.take_streams(index) {
            self.lose(errand.flight, errand.phase(phase), cause, &[], at);
        }
    }

    /// Aborts all streams because the run is over.
    pub(super) fn abort_streams(&mut self, index: u32) {
        for errand in self.take_streams(index) {
            self.abort(errand.flight);
        }
    }

    fn take_streams(&mut self, index: u32) -> Vec<RequestStream> {
        let Some(carrier) = self.carriers.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return Vec::new();
        };
        std::iter::from_fn(|| carrier.wire.cancel(|_| true)).collect()
    }
}

impl RequestStream {
    /// The current phase; `before` is the phase before the response begins.
    fn phase(&self, before: RequestPhase) -> RequestPhase {
        if self.answering { RequestPhase::Body } else { before }
    }
}
