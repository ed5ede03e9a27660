//! Outgoing connections: a feature connects to another server and exchanges bytes with it.
//!
//! ```text
//!  callback of a feature ─► HandlerContext::dial, send, … ─► HandlerRequests: actions, in order
//!                                                     │ the callback has returned
//!  Worker::serve_actions ◄────────────────────────────┘
//!     │ dial: socket ─► reactor        others: operations of the connection
//!     ▼
//!  Connected ─► Received, Sent, Ended, Overdue … ─► Handler::upstream or Resident::upstream
//!                    │
//!                    └─ Failed: closed by the engine        HandlerContext::close: closed by the feature
//! ```
//! **The engine owns sockets, time and back-pressure, the feature owns the protocol.** An outgoing connection lives on the
//! worker that dialed it. Its events go only to the handler or resident that dialed.
//!
//! **Two records.** The socket has a slot among all connections (`ConnPhase::Upstream`), so timers, receiving and the transport
//! work as for any other connection. The slot's `duty` is the index of an [`Upstream`] here: the owner, the bytes to send, and
//! the generation of the id. `dial` returns the id inside the callback, before the socket exists. Therefore the table of ids is
//! in the [`HandlerRequests`](crate::handler::HandlerRequests).
//!
//! **Order.** A callback only records actions. The worker executes them after the callback has returned, in the order of the
//! calls, so callbacks never nest. Sends of one callback leave in one operation. A dial that fails at once is reported in a
//! later step of the turn ([`WorkerMessage::Undialed`](crate::inbox::WorkerMessage)). So a feature that redials after every
//! failure does not block its worker.
//!
//! **The end of an id.** `HandlerContext::close` ends the id at once, and no event of it follows. The socket is closed after
//! the callback has returned. [`UpstreamEvent::Failed`] is the last event of an id that the engine ends. An index is reused
//! with another generation, and an action on an ended id has no effect. [`UpstreamEvent::Ended`] ends no id: the peer sends no
//! more, but may still receive.
//!
//! **Back-pressure.** Received bytes are lent for the event and not kept. A feature that cannot use more calls `pause`, and the
//! kernel's window closes. Bytes to send belong to the one send in flight, or to `waiting` until it completes.
//! [`UpstreamEvent::Sent`] reports each send, so that a feature can bound the waiting bytes. An idle connection is its slot and
//! its [`Upstream`], without a buffer.
//!
//! **Limits.** `limits.upstreams` in [`ConnLimits`](crate::ConnLimits) bounds the outgoing connections of the process. During
//! a drain the worker ends when its last client has left. Outgoing connections that are open then, or at the drain's deadline,
//! fail with [`UpstreamFault::Draining`].
//!
//! **TLS.** A dial with a session has an [`UpstreamSession`](crate::upstream_session::UpstreamSession) here. It is no further
//! kind of `Transport`, because a slot's word for its transport can hold only one kind of box. This file shows where the paths
//! of plaintext and TLS separate; `upstream_session.rs` has the path of TLS.

use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_io::{Address, Op, OpError, Peer, Segment, Send, Token};

use crate::conn::{Conn, ConnPhase, Duty, HELD, LAST, PAUSED, PEER_ENDED, SENDING};
use crate::core::Core;
use crate::handler::{Action, JobId};
use crate::inbox::WorkerMessage;
use crate::outgoing::{
    Upstream, UpstreamDial, UpstreamEnd, UpstreamEvent, UpstreamFault, UpstreamId, UpstreamState,
};
use crate::upstream_session::{FAREWELL_NS, UpstreamSession};

impl Core {
    /// Records the connection of a dial. Returns false at the limit of outgoing connections; its owner is then notified.
    pub(crate) fn begin_dial(&mut self, dial: &mut UpstreamDial) -> bool {
        self.metrics.dials.add(1);
        let place = dial.id.slot as usize;
        if self.upstreams.table.len() <= place {
            self.upstreams.table.resize_with(place + 1, || Upstream::VACANT);
        }
        self.upstreams.table[place] = Upstream {
            generation: dial.id.generation,
            owner: dial.owner,
            state: UpstreamState::Undialed,
            session: dial.session.take().map(UpstreamSession::new),
            ..Upstream::VACANT
        };
        let has_room = self.census.enter_upstream(self.policy.limits.upstreams.get() as usize);
        if !has_room {
            self.fail_dial(dial.id, UpstreamFault::Limit);
        }
        has_room
    }

    /// Adopts the socket of a dial, which is now in the reactor. A Unix socket is already connected.
    pub(crate) fn dialed(&mut self, dial: &UpstreamDial, token: Token) {
        self.upstreams.open += 1;
        let (peer, connect) = match &dial.address {
            Address::Inet(address) => (Peer::Inet(*address), Some(Op::Connect(*address))),
            Address::Unix(_) => (Peer::Local, None),
        };
        let mut conn = Conn::new(token.generation, peer, ConnPhase::Upstream);
        conn.flags |= PAUSED;
        conn.duty = Duty::upstream(dial.id.slot);
        self.conns.put(token.index, conn);
        let upstream = &mut self.upstreams.table[dial.id.slot as usize];
        upstream.token = token;
        upstream.state = UpstreamState::Connecting;
        match connect {
            Some(connect) => self.ops.push((token, connect)),
            None => self.upstream_connected(token),
        }
    }

    /// Reports a dial without a socket to its owner, in a later step of the turn.
    pub(crate) fn fail_dial(&mut self, id: UpstreamId, fault: UpstreamFault) {
        self.link.send(WorkerMessage::Undialed(id, fault));
    }

    /// Handles a dial for which the system created no socket.
    pub(crate) fn dial_failed(&mut self, id: UpstreamId, fault: OpError) {
        self.census.leave_upstream();
        self.fail_dial(id, UpstreamFault::Failed(fault));
    }

    /// Reports a dial that has no socket.
    pub(crate) fn undialed(&mut self, id: UpstreamId, fault: UpstreamFault) {
        if self.upstreams.get_mut(id).is_some() {
            self.fail_upstream(id.slot, fault);
        }
    }

    /// Executes an action of a feature, except a dial.
    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Send(id, segment) => {
                if self.upstreams.get_mut(id).is_none() {
                    return self.recycle_segment(segment);
                }
                let spare = &mut self.spare_segments;
                let upstream = &mut self.upstreams.table[id.slot as usize];
                if upstream.waiting.capacity() == 0 {
                    upstream.waiting = spare.pop().unwrap_or_default();
                }
                upstream.waiting.push(segment);
                self.touch_upstream(id.slot);
            }
            Action::Shutdown(id) => {
                if let Some(upstream) = self.upstreams.get_mut(id) {
                    upstream.ending = true;
                    self.touch_upstream(id.slot);
                }
            }
            Action::Receive(id, on) => {
                let Some(upstream) = self.upstreams.get_mut(id) else { return };
                let (token, open) =
                    (upstream.token, matches!(upstream.state, UpstreamState::Open | UpstreamState::Deaf));
                let Some(conn) = self.conn(token) else { return };
                conn.flags = if on { conn.flags & !HELD } else { conn.flags | HELD };
                if open {
                    self.receive_upstream(token);
                }
            }
            Action::Lend(id, limit) => {
                let Some(token) = self.upstreams.get_mut(id).map(|upstream| upstream.token) else { return };
                if self.conn(token).is_some() {
                    self.ops.push((token, Op::Lend(limit)));
                }
            }
            Action::Deadline(id, after_ns) => {
                let Some(token) = self.upstreams.get_mut(id).map(|upstream| upstream.token) else { return };
                if self.conn(token).is_some() {
                    self.set_deadline(token, after_ns);
                } else {
                    self.redials.set_deadline(id, self.now.mono_ns.saturating_add(after_ns));
                }
            }
            Action::Close(id) => {
                if self.upstreams.get_mut(id).is_some() {
                    self.close_upstream(id.slot, UpstreamEnd::Closed);
                }
            }
            Action::Respond => {
                if let Some((key, reply)) = self.handler_requests.next_reply() {
                    self.answer(key, reply);
                }
            }
            Action::ReadMore(key) => self.read_more(key),
            Action::AwaitRoom(key) => self.await_room(key),
            Action::Reroute(reroute) => self.reroute(*reroute),
            Action::Note(key, notes) => self.note(key, &notes),
            Action::Dial(_) => debug_assert!(false, "the worker dials"),
        }
    }

    fn touch_upstream(&mut self, place: u32) {
        if self.upstreams.touched.last() != Some(&place) {
            self.upstreams.touched.push(place);
        }
    }

    /// Sends the output of a callback's actions, all of which are executed.
    pub(crate) fn actions_done(&mut self) {
        while let Some(place) = self.upstreams.touched.pop() {
            self.flush_upstream(place);
        }
        self.serve_open();
        self.handler_requests.refill(|| self.buffers.take_spare());
    }

    /// Sends waiting bytes unless a send is in flight, and then shuts down this side if that was requested.
    pub(crate) fn flush_upstream(&mut self, place: u32) {
        let upstream = &mut self.upstreams.table[place as usize];
        if upstream.session.is_some() {
            return self.flush_sealed(place);
        }
        if upstream.state == UpstreamState::Deaf {
            let waiting = std::mem::take(&mut upstream.waiting);
            return self.recycle_segments(waiting);
        }
        if upstream.state != UpstreamState::Open {
            return;
        }
        let token = upstream.token;
        let conn = &mut self.conns[token.index as usize];
        if conn.has(SENDING) {
            return;
        }
        let mut segments = std::mem::take(&mut upstream.waiting);
        segments.retain(|segment| !segment.is_empty());
        if !segments.is_empty() {
            upstream.in_flight = segments.iter().map(Segment::len).sum();
            conn.flags |= SENDING;
            self.ops.push((token, Op::Send(Send { segments, more: false })));
        } else {
            self.recycle_segments(segments);
        }
        if std::mem::take(&mut self.upstreams.table[place as usize].ending) {
            self.ops.push((token, Op::Shutdown));
        }
    }

    /// Receives from an outgoing connection or pauses receiving, as its owner requested. During a handshake it always receives.
    pub(crate) fn receive_upstream(&mut self, token: Token) {
        let conn = &self.conns[token.index as usize];
        let state = conn.duty.as_upstream().map(|place| self.upstreams.table[place as usize].state);
        let held = conn.has(HELD) && matches!(state, Some(UpstreamState::Open | UpstreamState::Deaf));
        let hungry = !held && !conn.has(PEER_ENDED);
        self.set_receiving(token, hungry);
    }

    /// Returns the index of an outgoing connection that is not closed.
    fn upstream_place(&mut self, token: Token) -> Option<u32> {
        self.conn(token)?.duty.as_upstream()
    }

    pub(crate) fn upstream_connected(&mut self, token: Token) {
        let Some(place) = self.upstream_place(token) else { return };
        let upstream = &mut self.upstreams.table[place as usize];
        if upstream.session.is_some() {
            upstream.state = UpstreamState::Handshaking;
            self.receive_upstream(token);
            return self.records_opened(place);
        }
        upstream.state = UpstreamState::Open;
        self.receive_upstream(token);
        self.report_upstream(place, UpstreamEvent::Connected);
        self.flush_upstream(place);
    }

    pub(crate) fn upstream_received(&mut self, token: Token, bytes: &mut [u8]) {
        let Some(place) = self.upstream_place(token) else { return };
        if self.upstreams.table[place as usize].session.is_some() {
            return self.records_arrived(place, bytes);
        }
        self.metrics.upstream_received_bytes.add(bytes.len() as u64);
        self.report_upstream(place, UpstreamEvent::Received(bytes));
    }

    pub(crate) fn upstream_sent(&mut self, token: Token) {
        let Some(place) = self.upstream_place(token) else { return self.close_ended(token, Op::Close) };
        let upstream = &mut self.upstreams.table[place as usize];
        if upstream.session.as_mut().is_some_and(|session| session.went_out(upstream.in_flight)) {
            return self.flush_sealed(place);
        }
        let sent = std::mem::take(&mut upstream.in_flight);
        if sent > 0 {
            self.metrics.upstream_sent_bytes.add(sent);
            self.report_upstream(place, UpstreamEvent::Sent(sent));
        }
        self.flush_upstream(place);
    }

    /// Handles the peer's end of stream; all bytes before it were received.
    pub(crate) fn upstream_ended(&mut self, token: Token) {
        let Some(place) = self.upstream_place(token) else { return };
        let upstream = &self.upstreams.table[place as usize];
        match &upstream.session {
            // The peer has reset the connection, so its last bytes may be missing.
            None if upstream.state == UpstreamState::Deaf => {
                self.fail_upstream(place, UpstreamFault::Failed(OpError::Reset));
            }
            None => self.report_upstream(place, UpstreamEvent::Ended),
            Some(session) if session.has_ended() => {}
            Some(_) => self.fail_upstream(place, UpstreamFault::Truncated),
        }
    }

    pub(crate) fn upstream_overdue(&mut self, token: Token) {
        self.conns[token.index as usize].deadline_ns = u64::MAX;
        match self.upstream_place(token) {
            Some(place) => self.report_upstream(place, UpstreamEvent::Overdue),
            // The peer reads slowly. It still receives all bytes, and an end without a close_notify.
            None => self.close_ended(token, Op::Close),
        }
    }

    /// Whether this is an established outgoing connection.
    pub(crate) fn is_open_upstream(&mut self, token: Token) -> bool {
        let Some(place) = self.upstream_place(token) else { return false };
        self.upstreams.table[place as usize].state == UpstreamState::Open
    }

    /// The peer of an outgoing connection takes no more bytes: a send failed after `sent` bytes. A server that responds before it has
    /// read the whole request, and closes, resets the connection. Its response may still be in the receive buffer, so the connection
    /// still receives. The connection fails once that is over.
    pub(crate) fn upstream_deaf(&mut self, token: Token, sent: u64, segments: Vec<Segment>) {
        self.recycle_segments(segments);
        self.metrics.sent_bytes.add(sent);
        let Some(place) = self.upstream_place(token) else { return };
        let conn = &mut self.conns[token.index as usize];
        conn.flags &= !SENDING;
        if conn.has(PEER_ENDED) {
            // There is nothing left to receive.
            return self.fail_upstream(place, UpstreamFault::Failed(OpError::Reset));
        }
        let upstream = &mut self.upstreams.table[place as usize];
        upstream.state = UpstreamState::Deaf;
        let in_flight = std::mem::take(&mut upstream.in_flight);
        let waiting = std::mem::take(&mut upstream.waiting);
        let sent = match &mut upstream.session {
            None => sent,
            Some(session) => session.drop_queue(in_flight, sent > 0),
        };
        self.recycle_segments(waiting);
        self.receive_upstream(token);
        if sent > 0 {
            self.metrics.upstream_sent_bytes.add(sent);
            self.report_upstream(place, UpstreamEvent::Sent(sent));
        }
    }

    /// Handles a failed operation of an outgoing connection; a send failed after `sent` bytes.
    pub(crate) fn upstream_broken(&mut self, token: Token, fault: OpError, sent: u64) {
        let Some(place) = self.upstream_place(token) else { return self.close_ended(token, Op::Close) };
        let upstream = &self.upstreams.table[place as usize];
        let sent = match &upstream.session {
            None => sent,
            Some(session) => session.sent_of(upstream.in_flight, sent > 0),
        };
        if sent > 0 {
            self.metrics.upstream_sent_bytes.add(sent);
            self.report_upstream(place, UpstreamEvent::Sent(sent));
        }
        self.fail_upstream(place, UpstreamFault::Failed(fault));
    }

    /// Closes an outgoing connection and reports it to its owner.
    pub(crate) fn fail_upstream(&mut self, place: u32, fault: UpstreamFault) {
        self.residents.report_gone();
        // A panic of the owner, in an earlier event of this step, has closed it.
        if self.upstreams.table[place as usize].state == UpstreamState::Vacant {
            return;
        }
        let (id, owner) = (self.upstreams.id(place), self.upstreams.table[place as usize].owner);
        let current = self.handler_requests.is_current(id);
        self.close_upstream(place, UpstreamEnd::of(&fault));
        if current && self.tell(owner, id, UpstreamEvent::Failed(fault)).is_err() {
            self.metrics.handler_panics.add(1);
        }
    }

    /// Closes an outgoing connection in a drain, if it is open.
    pub(crate) fn drain_upstream(&mut self, token: Token) {
        match self.upstream_place(token) {
            Some(place) => self.fail_upstream(place, UpstreamFault::Draining),
            None => self.close_ended(token, Op::Abort),
        }
    }

    /// Closes all outgoing connections in a drain, once no client is left.
    pub(crate) fn drain_upstreams(&mut self) {
        for place in 0..self.upstreams.table.len() as u32 {
            if self.upstreams.table[place as usize].state != UpstreamState::Vacant {
                self.fail_upstream(place, UpstreamFault::Draining);
            }
        }
    }

    /// Closes the outgoing connections of a handler that a reload has replaced.
    pub(crate) fn retire_upstreams(&mut self, owner: u16) {
        for place in 0..self.upstreams.table.len() as u32 {
            let upstream = &self.upstreams.table[place as usize];
            if upstream.state != UpstreamState::Vacant && upstream.owner == owner {
                self.close_upstream(place, UpstreamEnd::Retired);
            }
        }
    }

    /// Closes an outgoing connection and ends its id. With unsent bytes the connection is reset, so that the peer does not
    /// mistake the received part for everything. With TLS a close_notify or an alert is sent first, unless a send is in flight. If
    /// that send is the close_notify itself, the connection is closed after it: a reset would discard what the peer has not read.
    fn close_upstream(&mut self, place: u32, end: UpstreamEnd) {
        let id = self.upstreams.id(place);
        let upstream = std::mem::replace(&mut self.upstreams.table[place as usize], Upstream::VACANT);
        self.handler_requests.release(id);
        self.metrics.upstream_ended(end);
        let token = upstream.token;
        let mut unsent = upstream.waiting.iter().any(|segment| !segment.is_empty());
        self.recycle_segments(upstream.waiting);
        let mut farewell = Vec::new();
        let mut is_parting = false;
        if let Some(session) = upstream.session {
            is_parting = session.has_finished() && upstream.in_flight == 0;
            unsent = (unsent || session.has_queue()) && !end.sends_alert();
            if !unsent
                && end.sends_records()
                && matches!(upstream.state, UpstreamState::Handshaking | UpstreamState::Open)
            {
                farewell = session.last_records();
            }
        }
        let Some(conn) = self.conn(token) else { return };
        conn.duty = Duty::Rest;
        conn.deadline_ns = u64::MAX;
        if conn.has(SENDING)
            && is_parting
            && !unsent
            && end.sends_records()
            && upstream.state == UpstreamState::Open
        {
            conn.flags |= LAST;
            return self.set_deadline(token, FAREWELL_NS);
        }
        let abort = unsent || conn.has(SENDING);
        if !abort && !farewell.is_empty() {
            conn.flags |= SENDING | LAST;
            self.set_deadline(token, FAREWELL_NS);
            let segments = vec![Segment::Bytes(farewell)];
            return self.ops.push((token, Op::Send(Send { segments, more: false })));
        }
        self.ops.push((token, if abort { Op::Abort } else { Op::Close }));
    }

    /// Closes the socket of an ended connection, once its last records are sent or have failed.
    fn close_ended(&mut self, token: Token, op: Op) {
        let Some(conn) = self.conn(token) else { return };
        if conn.has(LAST) {
            conn.flags &= !LAST;
            conn.deadline_ns = u64::MAX;
            self.ops.push((token, op));
        }
    }

    /// Frees the slot of an outgoing connection whose socket is closed.
    pub(crate) fn upstream_closed(&mut self, token: Token) {
        self.conns[token.index as usize] = Conn::vacant();
        self.wheel.cancel(token.index);
        self.upstreams.open -= 1;
        self.census.leave_upstream();
    }

    /// Reports an event to the owner of an outgoing connection, unless the owner has closed it.
    pub(crate) fn report_upstream(&mut self, place: u32, event: UpstreamEvent<'_>) {
        // A resident first learns which of its connections have closed, and may then close this one with them.
        self.residents.report_gone();
        let id = self.upstreams.id(place);
        if !self.handler_requests.is_current(id) {
            return;
        }
        let owner = self.upstreams.table[place as usize].owner;
        if self.tell(owner, id, event).is_err() {
            self.metrics.handler_panics.add(1);
            self.close_upstream(place, UpstreamEnd::Panic);
        }
    }

    /// Reports an event to a handler, guard or resident. An error is a panic of the handler or guard.
    fn tell(&mut self, owner: u16, id: UpstreamId, event: UpstreamEvent<'_>) -> std::thread::Result<()> {
        if let Some(seat) = JobId::seat_of(owner) {
            self.call_engine(seat, |resident, engine| resident.upstream(engine, id, event));
            return Ok(());
        }
        if let Some(guard) = JobId::guard_of(owner) {
            return self.guard_upstream(guard, id, event);
        }
        let Some(Some(mounted)) = self.handlers.get_mut(usize::from(owner)) else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| mounted.handler.upstream(id, event)))
    }
}
