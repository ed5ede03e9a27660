//! HTTP/1 on a connection: bytes in, requests to handlers, responses out. `conn` has the state diagram.
//!
//! ```text
//! received(lease) ─► consume ─┬─ head.feed ─► request ─► handler ─┬─ Now ──► put_reply ─► out ─┐
//!                             │                                   └─ Later ► Record            │ settle:
//!                             └─ intake ─► Handler::body                                       ▼ one Send
//! sent ─► stream? pull ─► out ─► settle · more input? consume · else idle: everything given back
//! ```
//! The responses to all requests of one read are collected in `out` and leave in one send. Nothing here waits or makes a system
//! call: operations are pushed to `ops`, which the worker submits.

use encke_settings::ByteSize;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use encke_io::{Op, OpError, Peer, Segment, Token};
use encke_wire::http1::{BodyState, Head, Progress, Refusal, Version};
use encke_wire::method::Method;
use encke_wire::proxy::{self, ProxyHeader};

use crate::close::CloseReason;
use crate::conn::{
    ADMIN, Conn, ConnPhase, Duty, ENDING, ENDLESS_BODY, Input, LAST, LINGER, NONE, PAUSED, PEER_ENDED,
    RateWindow, SECURE, SENDING, TO_HTTPS, UPLOADING,
};
use crate::conns::is_stream;
use crate::core::Core;
use crate::exchange::{Exchange, ExchangeKey};
use crate::framing::{ContentLength, FramingKind};
use crate::guard::ChainPass;
use crate::h2::Preface;
use crate::handler::{Outcome, Piece};
use crate::log::LogEntry;
use crate::peer::PackedPeer;
use crate::policy::{BATCH_BYTES_MAX, BATCH_SEGMENTS_MAX, DISCARD_BYTES_MAX, STREAM_PIECE_BYTES};
use crate::record::{Asked, BodyDecoder, Intake, PulledRest, Record, ResponseRest, WrittenRest};
use crate::refusals::{has_body, refusal_reply};
use crate::reply::{Body, Fields, Pulled, Reply};
use crate::request::{Asker, Request};
use crate::residents::WEBSOCKETS;
use crate::takeover::{By, Takeover};
use crate::transport::MaybeTls;

/// Spare heads that a worker keeps.
const HEADS_MAX: usize = 16;

/// Time without a byte of a response after the client has ended its side. Then the handler is notified, or a response without a
/// length ends. A client that still reads, such as `nc -N`, gets a quick response, and all of a response in progress; without this
/// limit a client that has left a quiet event stream would be noticed only at the next event.
const HALF_CLOSED_NS: u64 = 1_000_000_000;

impl Core {
    /// Handles received bytes: plaintext, or TLS records.
    #[inline]
    pub(crate) fn received(&mut self, token: Token, lease: &mut [u8]) {
        match self.conn(token).map(|conn| &conn.transport) {
            Some(MaybeTls::Plain) => self.plaintext(token, lease),
            Some(MaybeTls::Tls(_)) => self.records(token, lease),
            None => {}
        }
    }

    #[inline]
    pub(crate) fn plaintext(&mut self, token: Token, bytes: &mut [u8]) {
        let Some(conn) = self.conn(token) else { return };
        match conn.phase {
            ConnPhase::Vacant | ConnPhase::Closing => return,
            ConnPhase::Http2 => return self.http2_received(token, bytes),
            ConnPhase::Upstream => return self.upstream_received(token, bytes),
            ConnPhase::Lingering => return self.lingering_received(token, bytes.len()),
            ConnPhase::Resident if conn.input.is_none() => {
                let (sending, seat) = (conn.has(SENDING), conn.duty.seat());
                let receives = !sending || seat.is_some_and(|seat| self.residents.is_duplex(seat));
                let used = if receives { self.resident_received(token, bytes) } else { 0 };
                if used < bytes.len() {
                    let head = self.spare_head();
                    self.keep_rest(token, &bytes[used..], head, false);
                }
                self.settle(token);
                return;
            }
            ConnPhase::Handshake
            | ConnPhase::Proxy
            | ConnPhase::Idle
            | ConnPhase::Head
            | ConnPhase::Open
            | ConnPhase::Resident => {}
        }
        match conn.input.take() {
            None if !conn.has(SENDING) => {
                let mut head = self.spare_head();
                let (used, parsing) = self.consume(token, bytes, &mut head, false);
                self.keep_rest(token, &bytes[used..], head, parsing);
            }
            None => {
                let head = self.spare_head();
                self.keep_rest(token, bytes, head, false);
            }
            Some(mut input) => {
                input.bytes.extend_from_slice(bytes);
                let busy = conn.has(SENDING);
                conn.input = Some(input);
                if !busy {
                    self.resume_input(token);
                }
            }
        }
        self.settle(token);
    }

    /// Processes input that was kept while the connection was busy.
    pub(crate) fn resume_input(&mut self, token: Token) {
        let Some(conn) = self.conn(token) else { return };
        let Some(mut input) = conn.input.take() else { return };
        let (used, parsing) = match conn.phase {
            ConnPhase::Resident => (self.resident_received(token, &mut input.bytes), false),
            _ => self.consume(token, &input.bytes, &mut input.head, input.parsing),
        };
        if used == input.bytes.len() && !parsing {
            self.recycle_input(input);
            return;
        }
        input.bytes.drain(..used);
        input.parsing = parsing;
        match self.conn(token) {
            Some(conn)
                if !matches!(conn.phase, ConnPhase::Closing | ConnPhase::Lingering | ConnPhase::Vacant) =>
            {
                conn.input = Some(input);
            }
            _ => self.recycle_input(input),
        }
    }

    /// Keeps the bytes of a lease that `consume` did not use. Most requests arrive whole, and leave none.
    #[inline]
    fn keep_rest(&mut self, token: Token, rest: &[u8], head: Box<Head>, parsing: bool) {
        if rest.is_empty() && !parsing {
            self.heads.push(head);
        } else {
            self.keep_bytes(token, rest, head, parsing);
        }
    }

    #[inline(never)]
    fn keep_bytes(&mut self, token: Token, rest: &[u8], head: Box<Head>, parsing: bool) {
        let is_live = |conn: &mut Conn| {
            !matches!(conn.phase, ConnPhase::Closing | ConnPhase::Lingering | ConnPhase::Vacant)
        };
        if !self.conn(token).is_some_and(is_live) {
            self.heads.push(head);
            return;
        }
        let mut bytes = self.buffers.take();
        bytes.extend_from_slice(rest);
        let input = Box::new(Input { bytes, head, parsing });
        self.conn(token).expect("looked up above").input = Some(input);
    }

    /// Keeps bytes that a resident received and did not use.
    pub(crate) fn keep_input(&mut self, token: Token, bytes: Vec<u8>) {
        let head = self.spare_head();
        self.conns[token.index as usize].input = Some(Box::new(Input { bytes, head, parsing: false }));
    }

    /// Returns a head to the spare ones.
    pub(crate) fn give_head(&mut self, head: Box<Head>) {
        if self.heads.len() < HEADS_MAX {
            self.heads.push(head);
        }
    }

    /// Parses `bytes`, which begin at a head (`parsing`: a prefix of it was fed before) or in a body. Returns the number of
    /// bytes used, and whether the rest is a head that was fed in part.
    fn consume(&mut self, token: Token, bytes: &[u8], head: &mut Head, mut parsing: bool) -> (usize, bool) {
        let mut at = 0;
        loop {
            let full = self.out.len() >= BATCH_BYTES_MAX || self.segments.len() >= BATCH_SEGMENTS_MAX;
            let Some(conn) = self.conns.get_mut(token.index as usize) else { break };
            let rest = &bytes[at..];
            match conn.phase {
                ConnPhase::Idle | ConnPhase::Head => {
                    if conn.has(LAST) {
                        // Input after the last request is ignored. Closing with it unread would reset the response, so linger.
                        if !rest.is_empty() {
                            conn.flags |= LINGER;
                        }
                        return (bytes.len(), false);
                    }
                    if rest.is_empty() || full {
                        break;
                    }
                    if !parsing {
                        head.reset();
                        parsing = true;
                    }
                    let preface =
                        if conn.requests == 0 && rest[0] == b'P' { Preface::of(rest) } else { Preface::No };
                    if preface == Preface::Whole {
                        self.begin_http2(token, rest);
                        return (bytes.len(), false);
                    }
                    if preface == Preface::Partial {
                        conn.phase = ConnPhase::Head;
                        break;
                    }
                    match head.feed(rest, &self.head_limits) {
                        Progress::Partial => {
                            if conn.phase == ConnPhase::Idle {
                                conn.phase = ConnPhase::Head;
                                if conn.requests > 0 {
                                    self.set_deadline(token, self.policy.limits.head_time.nanoseconds());
                                }
                            }
                            break;
                        }
                        Progress::Done { head_bytes } => {
                            parsing = false;
                            at += head_bytes;
                            if is_stream(token) {
                                head.carry(Version::Http2);
                            }
                            self.request(token, rest, head);
                        }
                        // Another protocol, perhaps misdirected frames: an HTTP response would be meaningless to the peer.
                        Progress::Refused(Refusal::NotHttp) if conn.requests == 0 => {
                            self.metrics.refused(Refusal::NotHttp.reason());
                            self.close(token, CloseReason::Refused, false);
                            return (bytes.len(), false);
                        }
                        Progress::Refused(refusal) => {
                            self.refuse(token, refusal);
                            return (bytes.len(), false);
                        }
                    }
                }
                ConnPhase::Open => {
                    let used = self.intake(token, rest);
                    at += used;
                    let open = self.conns[token.index as usize].phase == ConnPhase::Open;
                    if open && (used == 0 || at == bytes.len()) {
                        break;
                    }
                }
                ConnPhase::Proxy => match proxy::read(rest) {
                    ProxyHeader::NeedMore => break,
                    ProxyHeader::Done { bytes: header, source, .. } => {
                        at += header;
                        conn.phase = ConnPhase::Idle;
                        if let Some(source) = source {
                            conn.peer = PackedPeer::new(Peer::Inet(source));
                        }
                        if !self.admit_proxied(token) {
                            return (bytes.len(), false);
                        }
                    }
                    ProxyHeader::Bad(_) => {
                        self.close(token, CloseReason::ProxyHeader, false);
                        return (bytes.len(), false);
                    }
                },
                // Bytes after a request that was taken over belong to the resident.
                ConnPhase::Resident => break,
                ConnPhase::Vacant
                | ConnPhase::Handshake
                | ConnPhase::Http2
                | ConnPhase::Upstream
                | ConnPhase::Lingering
                | ConnPhase::Closing => {
                    return (bytes.len(), false);
                }
            }
        }
        (at, parsing)
    }

    /// Handles a request whose head is complete. `bytes` begin with the head; this function ignores the bytes after it.
    #[inline]
    fn request(&mut self, token: Token, bytes: &[u8], head: &Head) {
        let draining = self.draining();
        let conn = &mut self.conns[token.index as usize];
        conn.requests = conn.requests.wrapping_add(1);
        let within = self
            .policy
            .limits
            .requests_per_connection
            .on()
            .map(NonZeroU32::get)
            .is_none_or(|most| conn.requests < most);
        let asked = Asked {
            framing: FramingKind::of(head.version()),
            head_only: head.method() == Method::Head,
            keep: head.keep_alive() && within && !draining,
            awaits_continue: head.expects_continue(),
        };
        conn.phase = ConnPhase::Open;
        let (peer, secure, sent_on) = (conn.peer, conn.has(SECURE), conn.has(TO_HTTPS));
        let policy = Rc::clone(&self.policy);
        let known = if secure { self.tls_known(token) } else { None };
        let asker = Asker::Peer(peer, secure, known.as_ref(), &policy);
        let request = Request { head, bytes, asker, now: self.now, user: None, passed: None };
        let intake = Intake::new(head.framing());
        self.metrics.requests.increment();
        if policy.request_id_header {
            self.open_id(token, &request);
        }
        if let Some(reply) = self.preliminary(&request, sent_on) {
            return self.refuse_in_call(token, &request, asked, intake, reply);
        }

        let admin = self.conns[token.index as usize].has(ADMIN);
        let handler = self.route(admin, request.path());
        if self.guards.are_posted() {
            match self.guards.pass(admin, handler, &request) {
                ChainPass::Passed => {}
                ChainPass::Stopped(next) => {
                    return self.guarded(token, request, asked, intake, handler, next);
                }
                ChainPass::Panicked => {
                    self.conns[token.index as usize].reason = CloseReason::HandlerPanic;
                    self.metrics.guard_panics.add(1);
                    let reply = Reply::error(500).and_close();
                    return self.refuse_in_call(token, &request, asked, intake, reply);
                }
            }
        }
        let Some(handler) = handler else {
            return self.refuse_in_call(token, &request, asked, intake, Self::no_handler());
        };
        self.generation = self.generation.wrapping_add(1);
        let stream = self.http2.stream_id(token);
        let key = ExchangeKey { slot: self.records.next_index(), generation: self.generation, stream };
        let exchange = Exchange::new(std::sync::Arc::clone(&self.link), key);
        self.link.call.enter(key.word());
        let called = self.handlers[handler as usize]
            .as_mut()
            .map(|mounted| catch_unwind(AssertUnwindSafe(|| mounted.handler.call(&request, exchange))));
        let dropped = self.link.call.leave();
        match called {
            Some(Ok(Outcome::Now(reply))) => {
                self.answer_in_call(token, &request, asked, intake, reply, handler);
            }
            Some(Ok(Outcome::Later)) if !dropped => {
                let record = self.remember(token, &request, asked, intake, handler);
                debug_assert_eq!(record, key.slot);
                self.conns[token.index as usize].deadline_ns = u64::MAX;
            }
            Some(Ok(Outcome::Takeover(takeover))) => match self.seat_of(takeover.by, handler) {
                Ok(seat) if intake.is_done() => {
                    let entry = self.begin_entry(token, &request);
                    self.keep_of_takeover(token, takeover.fields, takeover.until_end);
                    self.take_over(token, asked, seat, takeover.start, entry);
                }
                Ok(_) => self.refuse_in_call(token, &request, asked, intake, has_body()),
                Err(reply) => self.refuse_in_call(token, &request, asked, intake, reply),
            },
            Some(Ok(Outcome::Later)) | None => {
                self.refuse_in_call(token, &request, asked, intake, Reply::error(500));
            }
            Some(Err(_panic)) => {
                // The panic hook printed the message and location. The connection may be in any state.
                self.conns[token.index as usize].reason = CloseReason::HandlerPanic;
                self.metrics.handler_panics.add(1);
                self.refuse_in_call(token, &request, asked, intake, Reply::error(500).and_close());
            }
        }
    }

    /// Writes a response that the engine gives in place of a handler, and counts its reason. A separate function, so that
    /// [`Core::answer_in_call`] is inlined once for all of these responses, and once in the warm path.
    #[cold]
    #[inline(never)]
    fn refuse_in_call(
        &mut self,
        token: Token,
        request: &Request<'_>,
        asked: Asked,
        intake: Intake,
        reply: Reply,
    ) {
        self.count_refusal(&reply);
        self.answer_in_call(token, request, asked, intake, reply, u16::MAX);
    }

    /// Writes a response that the handler returned from its call. Ends the exchange unless request or response is incomplete.
    #[inline(always)]
    fn answer_in_call(
        &mut self,
        token: Token,
        request: &Request<'_>,
        asked: Asked,
        intake: Intake,
        reply: Reply,
        handler: u16,
    ) {
        if intake.is_done() && !matches!(reply.body, Body::Stream(_) | Body::Open(_)) {
            if self.log.is_on() {
                self.put_logged(token, request, asked, reply);
            } else {
                self.put_reply(token, asked, true, reply);
            }
            self.turn_answers += 1;
            self.next_request(token);
            return;
        }
        let record = self.remember(token, request, asked, intake, handler);
        self.answer_record(token, record, reply);
    }

    /// Opens a record for a request that outlives its handler's call. Returns the record's index.
    fn remember(
        &mut self,
        token: Token,
        request: &Request<'_>,
        asked: Asked,
        intake: Intake,
        handler: u16,
    ) -> u32 {
        let entry = self.begin_entry(token, request);
        self.open_record(token, asked, intake, handler, entry)
    }

    /// Opens the exchange of a request. Returns the record's index.
    pub(crate) fn open_record(
        &mut self,
        token: Token,
        asked: Asked,
        intake: Intake,
        handler: u16,
        entry: Option<Box<LogEntry>>,
    ) -> u32 {
        let place = self.records.insert(Record {
            token,
            generation: self.generation,
            stream_id: self.http2.stream_id(token),
            handler,
            asked,
            intake,
            end_told: false,
            is_endless: false,
            body_seen: 0,
            rate_left_ns: self.policy.rate_window_ns,
            rate_seen: 0,
            answered: false,
            half_closed: false,
            reply: None,
            takeover: None,
            until_end: None,
            held: None,
            stream: None,
            entry,
            reason: None,
            sent_bytes: 0,
            started_ns: self.now.mono_ns,
        });
        self.conns[token.index as usize].duty = Duty::exchange(place);
        place
    }

    /// Writes the response of an open exchange.
    pub(crate) fn answer_record(&mut self, token: Token, place: u32, reply: Reply) {
        let draining = self.draining();
        let record = self.records.get_mut(place).expect("the caller has looked it up");
        record.answered = true;
        let mut asked = record.asked;
        // An open response may begin before the body of its request is complete.
        let goes_on = matches!(reply.body, Body::Open(_)) && !record.asked.awaits_continue;
        let amid_endless_body = reply.amid_endless_body && !record.intake.is_done();
        let unsafe_to_go_on = !goes_on && (record.discard_body() || amid_endless_body);
        asked.keep &= !unsafe_to_go_on && !draining;
        record.asked = asked;
        let body_done = record.intake.is_done();
        let (status, reason) = (reply.status, reply.reason);
        let (stream, content) = self.put_reply(token, asked, body_done, reply);
        let cause = self.cause(token);
        let record = self.records.get_mut(place).expect("looked up above");
        record.sent_bytes = content;
        record.stream = stream;
        record.reason = reason.copied().or(cause);
        if let Some(entry) = &mut record.entry {
            entry.set_status(status);
        }
        if unsafe_to_go_on {
            record.intake = Intake::Done;
            self.conns[token.index as usize].flags |= LINGER | UPLOADING;
        } else if !body_done && !goes_on {
            self.begin_rate_window(token, place);
        }
        match self.records.get(place).and_then(|record| record.stream.as_ref()) {
            Some(ResponseRest::Pull(_)) => self.pull(token, place),
            Some(ResponseRest::Open(_)) => self.begin_open(token, place),
            None => self.close_open(place),
        }
        self.end_exchange_if_over(token, place);
    }

    /// Writes the head and content of a response to the output. Returns the part that is still to be produced, and the
    /// content's length in bytes where it is known (0 otherwise).
    pub(crate) fn put_reply(
        &mut self,
        token: Token,
        asked: Asked,
        body_done: bool,
        mut reply: Reply,
    ) -> (Option<ResponseRest>, u64) {
        self.metrics.responses(reply.status);
        if !self.open_ids.is_empty() {
            self.put_id(token, &mut reply.fields);
        }
        let conn = &mut self.conns[token.index as usize];
        conn.set(ENDLESS_BODY, reply.amid_endless_body);
        let Reply { status, fields, body, prepared, close, .. } = reply;
        let framing = asked.framing;
        let endless = matches!(body, Body::Stream(_) | Body::Open(None))
            && framing != FramingKind::Chunked
            && !asked.head_only;
        let last = !asked.keep || close || endless;
        if last {
            conn.flags |= LAST;
            if !body_done {
                conn.flags |= LINGER | UPLOADING;
            }
            if conn.reason == CloseReason::PeerDone {
                conn.reason = CloseReason::Answered;
            }
        }
        if let Some(prepared) = prepared {
            if matches!(body, Body::Empty) {
                // Nothing to drop: without this, each prepared response costs a call that finds this out.
                std::mem::forget(body);
            }
            let how = (framing, asked.head_only, last);
            return (None, self.put_prepared(token, how, &prepared, &fields));
        }
        self.put_unprepared(token, asked, last, status, &fields, body)
    }

    /// Writes a response that was not prepared. A separate function keeps the warm path short.
    #[inline(never)]
    fn put_unprepared(
        &mut self,
        token: Token,
        asked: Asked,
        last: bool,
        status: u16,
        fields: &Fields,
        body: Body,
    ) -> (Option<ResponseRest>, u64) {
        let len = body.len();
        let content = match len {
            _ if status == 204 || status == 304 => ContentLength::Absent,
            Some(len) => ContentLength::Known(len),
            None => ContentLength::Open,
        };
        self.put_head(token, (asked.framing, last), status, fields, content);
        let mute = content == ContentLength::Absent || asked.head_only;
        if let Body::Open(left) = body {
            return (Some(ResponseRest::Open(WrittenRest { left, mute })), 0);
        }
        if mute {
            return (None, 0);
        }
        if let Body::Stream(pull) = body {
            if let Some(tuning) = pull.tuning() {
                self.ops.push((token, Op::Tune(tuning)));
            }
            return (Some(ResponseRest::Pull(PulledRest { pull, pending: false })), 0);
        }
        self.put_body(body);
        (None, len.unwrap_or(0))
    }

    /// Responds to a head that is no valid request. No handler is called.
    fn refuse(&mut self, token: Token, refusal: Refusal) {
        self.metrics.refused(refusal.reason());
        let conn = &mut self.conns[token.index as usize];
        conn.phase = ConnPhase::Open;
        conn.reason = CloseReason::Refused;
        conn.flags |= LINGER;
        let reply = refusal_reply(refusal);
        let status = reply.status;
        if status == 413 {
            conn.flags |= UPLOADING;
        }
        let (_, content) = self.put_reply(token, Asked::unread(token), true, reply);
        let entry = self.begin_refused_entry(token);
        self.end_entry(entry, status, content, self.now.mono_ns, Some(refusal.reason()));
        self.next_request(token);
    }

    /// Ends the open exchange: the connection is between requests.
    #[inline]
    pub(crate) fn next_request(&mut self, token: Token) {
        let idle = self.now.mono_ns.saturating_add(self.rest_ns);
        let conn = &mut self.conns[token.index as usize];
        conn.phase = ConnPhase::Idle;
        conn.deadline_ns = idle;
    }

    /// Ends an exchange whose response is written and whose body is complete.
    pub(crate) fn end_exchange_if_over(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get(place) else { return };
        if !record.answered || record.stream.is_some() || !record.intake.is_done() {
            return;
        }
        let Some(mut record) = self.records.remove(place) else { return };
        self.conns[token.index as usize].duty = Duty::Rest;
        if let Some(tokens) = record.until_end.take() {
            self.keep_tokens(token, tokens);
        }
        self.metrics.latency.record(self.now.mono_ns.saturating_sub(record.started_ns));
        self.end_record_entry(record);
        self.next_request(token);
    }

    /// Feeds bytes to the body of the open request. Returns the number of bytes used.
    fn intake(&mut self, token: Token, bytes: &[u8]) -> usize {
        let Some(place) = self.conns[token.index as usize].duty.as_exchange() else { return 0 };
        let Some(record) = self.records.get_mut(place) else { return 0 };
        let (mut decoder, wanted) = match record.intake {
            Intake::Wanted(decoder) => (decoder, true),
            Intake::Discard(decoder) => (decoder, false),
            Intake::Done | Intake::Unread(_) => return 0,
        };
        if bytes.is_empty() {
            return 0;
        }
        // A body with a length was checked against the limit with its head.
        let (data, used, done, announced) = match &mut decoder {
            BodyDecoder::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= take as u64;
                (&bytes[..take], take, *left == 0, 0)
            }
            BodyDecoder::Chunked(chunked) => match chunked.feed(bytes) {
                Ok(chunk) => {
                    let done = chunk.state == BodyState::Done;
                    (chunk.data, chunk.consumed, done, chunked.announced())
                }
                Err(refusal) => {
                    self.metrics.refused(refusal.reason());
                    let reply = refusal_reply(refusal);
                    self.break_body(token, CloseReason::Refused, Some(reply));
                    return bytes.len();
                }
            },
        };
        record.body_seen += data.len() as u64;
        let body_bytes = record.body_seen.saturating_add(announced);
        let limit = if wanted {
            self.policy.limits.body_bytes.on().map(ByteSize::bytes).filter(|_| !record.is_endless)
        } else {
            Some(DISCARD_BYTES_MAX)
        };
        let over = limit.is_some_and(|limit| body_bytes > limit);
        if over {
            if wanted {
                record.intake = Intake::Unread(decoder);
            }
            self.metrics.refused("body_too_large");
            self.conns[token.index as usize].flags |= UPLOADING;
            self.break_body(token, CloseReason::Refused, Some(Reply::error(413).because(&"body_too_large")));
            return bytes.len();
        }
        if !wanted {
            record.intake = if done { Intake::Done } else { Intake::Discard(decoder) };
            self.end_exchange_if_over(token, place);
            return used;
        }
        // Framing without data: the handler still waits for a piece.
        record.intake = if done {
            Intake::Done
        } else if data.is_empty() {
            Intake::Wanted(decoder)
        } else {
            Intake::Unread(decoder)
        };
        let key = record.key(place);
        let handler = record.handler;
        record.end_told = done;
        if done || !data.is_empty() {
            let conn = &mut self.conns[token.index as usize];
            // The rate window continues when the handler requests the next piece. If each request began a new window, one byte
            // now and then would hold the connection forever.
            record.rate_left_ns = conn.deadline_ns.saturating_sub(self.now.mono_ns).min(record.rate_left_ns);
            conn.deadline_ns = u64::MAX;
        }
        if !data.is_empty() {
            self.call_body(handler, key, Piece::Data(data));
        }
        if done {
            self.call_body(handler, key, Piece::End);
        }
        used
    }

    pub(crate) fn call_body(&mut self, handler: u16, key: ExchangeKey, piece: Piece<'_>) {
        let Some(Some(mounted)) = self.handlers.get_mut(handler as usize) else { return };
        let called = catch_unwind(AssertUnwindSafe(|| mounted.handler.body(key, piece)));
        if called.is_err() {
            self.metrics.handler_panics.add(1);
            self.answer(key, Reply::error(500).and_close());
        }
    }

    /// Ends a body that cannot be read completely: notifies the handler, sends the client a response if possible, and closes
    /// the connection.
    pub(crate) fn break_body(&mut self, token: Token, reason: CloseReason, reply: Option<Reply>) {
        let Some(place) = self.conns[token.index as usize].duty.as_exchange() else { return };
        let Some(record) = self.records.get_mut(place) else { return };
        let reading = record.is_read() && record.held.is_none();
        let key = record.key(place);
        let (handler, answered) = (record.handler, record.answered || record.reply.is_some());
        record.intake = Intake::Done;
        record.asked.keep = false;
        let conn = &mut self.conns[token.index as usize];
        conn.flags |= LAST | LINGER;
        conn.reason = reason;
        if reading {
            self.call_body(handler, key, Piece::Broken);
        }
        if let Some(reply) = reply
            && !answered
            && self.records.get(place).is_some_and(|record| !record.answered)
        {
            self.answer_record(token, place, reply.and_close());
        }
        self.end_exchange_if_over(token, place);
    }

    /// Pulls from the stream of a response until the output is full or the stream has no data.
    pub(crate) fn pull(&mut self, token: Token, place: u32) {
        if is_stream(token) {
            self.http2.add_source(token);
            if self.http2.is_held(token) {
                return;
            }
        }
        let Some(record) = self.records.get_mut(place) else { return };
        let Some(ResponseRest::Pull(stream)) = &mut record.stream else { return };
        stream.pending = false;
        let framing = record.asked.framing;
        // The head of an HTTP/2 stream is an empty segment.
        while self.segments.iter().all(Segment::is_empty) && self.out.len() < 2 * STREAM_PIECE_BYTES {
            let out = self.out.tail(&mut self.buffers);
            let piece = framing.open_piece(out);
            let pulled = catch_unwind(AssertUnwindSafe(|| {
                let pulled = stream.pull.pull(STREAM_PIECE_BYTES, out);
                let ended = pulled == Pulled::End;
                (pulled, if ended { stream.pull.trailers() } else { Fields::new() })
            }));
            let (pulled, trailers) = pulled.unwrap_or((Pulled::Failed, Fields::new()));
            record.sent_bytes += piece.close(out) as u64;
            match pulled {
                Pulled::More => {}
                Pulled::Pending => {
                    stream.pending = true;
                    break;
                }
                Pulled::End => {
                    record.stream = None;
                    self.finish(token, framing, &trailers);
                    self.end_exchange_if_over(token, place);
                    break;
                }
                Pulled::Failed => {
                    self.close(token, CloseReason::StreamFailed, true);
                    break;
                }
            }
        }
    }

    /// Sends a handler's response, after its call or from another thread.
    pub(crate) fn answer(&mut self, key: ExchangeKey, reply: Reply) {
        let Some(record) = self.records.get_mut(key.slot) else { return };
        if record.generation != key.generation || record.answered || record.reply.is_some() {
            return;
        }
        let token = record.token;
        if self.conns[token.index as usize].has(SENDING) {
            record.reply = Some(Box::new(reply));
            return;
        }
        self.answer_record(token, key.slot, reply);
        self.go_on(token);
    }

    /// Passes the response of a handler to the one that has delegated the request to it.
    pub(crate) fn delegated(&mut self, key: ExchangeKey, reply: Reply) {
        let Some(record) = self.records.get(key.slot) else { return };
        if record.generation == key.generation && !record.answered {
            self.call_handler(record.handler, key, |handler| handler.delegated(key, reply));
        }
    }

    /// Passes the connection of a request to a resident, after the call of its handler.
    pub(crate) fn late_takeover(&mut self, key: ExchangeKey, takeover: Takeover) {
        let Some(record) = self.records.get_mut(key.slot) else { return };
        if record.generation != key.generation || record.answered || record.reply.is_some() {
            return;
        }
        let token = record.token;
        if self.conns[token.index as usize].has(SENDING) {
            record.takeover = Some(Box::new(takeover));
            return;
        }
        self.take_over_record(token, key.slot, takeover);
        self.go_on(token);
    }

    /// Ends an open exchange by passing its connection to a resident.
    pub(crate) fn take_over_record(&mut self, token: Token, place: u32, takeover: Takeover) {
        let Some(record) = self.records.get_mut(place) else { return };
        let (asked, handler, whole) = (record.asked, record.handler, record.intake.is_done());
        match self.seat_of(takeover.by, handler) {
            Ok(seat) if whole => {
                let record = self.records.remove(place);
                let (entry, tokens) = record.map_or((None, None), |record| (record.entry, record.until_end));
                self.close_open(place);
                self.conns[token.index as usize].duty = Duty::Rest;
                if let Some(tokens) = tokens {
                    self.keep_resident_tokens(token, tokens);
                }
                self.keep_of_takeover(token, takeover.fields, takeover.until_end);
                self.take_over(token, asked, seat, takeover.start, entry);
            }
            Ok(_) => {
                let mut reply = has_body();
                self.count_refusal(&reply);
                reply.add_guard_fields(&takeover.fields);
                self.answer_record(token, place, reply);
            }
            Err(mut reply) => {
                reply.add_guard_fields(&takeover.fields);
                self.answer_record(token, place, reply);
            }
        }
    }

    /// Returns the seat of the resident that a handler's takeover is for.
    ///
    /// # Errors
    /// The handler's mount has opened no resident: a response for the client.
    fn seat_of(&self, by: By, handler: u16) -> Result<u8, Reply> {
        let mounted = self.handlers.get(usize::from(handler)).and_then(Option::as_ref);
        let seat = match by {
            By::WebSockets => Some(WEBSOCKETS),
            By::Mount => mounted.and_then(|mounted| mounted.seat),
        };
        debug_assert!(seat.is_some(), "a handler without a resident returns no takeover");
        seat.ok_or_else(|| Reply::error(500))
    }

    /// Sends an interim response (1xx) of a handler.
    pub(crate) fn interim(&mut self, key: ExchangeKey, status: u16, fields: &Fields) {
        let Some(record) = self.records.get(key.slot) else { return };
        let token = record.token;
        let framing = record.asked.framing;
        let listens = framing != FramingKind::Close;
        let open = record.generation == key.generation && !record.answered && listens;
        // Interim responses are hints, so they are dropped while a send is in flight.
        if !open || self.conns[token.index as usize].has(SENDING) {
            return;
        }
        self.put_interim(token, framing, status, fields);
        self.settle(token);
    }

    /// Lifts the limit on the length of a request's body.
    pub(crate) fn allow_endless(&mut self, key: ExchangeKey) {
        if let Some(record) = self.records.get_mut(key.slot)
            && record.generation == key.generation
        {
            record.is_endless = true;
        }
    }

    /// Resumes a request's body: its handler requests the next piece.
    pub(crate) fn read_more(&mut self, key: ExchangeKey) {
        let Some(record) = self.records.get_mut(key.slot) else { return };
        if record.generation != key.generation {
            return;
        }
        let decoder = match record.intake {
            Intake::Unread(decoder) => decoder,
            Intake::Done if !record.end_told => {
                record.end_told = true;
                let handler = record.handler;
                self.call_body(handler, key, Piece::End);
                return;
            }
            _ => return,
        };
        record.intake = Intake::Wanted(decoder);
        let (token, left_ns) = (record.token, record.rate_left_ns);
        self.set_deadline(token, left_ns);
        self.invite(token, key.slot);
        self.go_on(token);
    }

    /// Sends `100 Continue` to a client that waits for it, once a handler reads the body and no response to an earlier request
    /// is in flight.
    fn invite(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get_mut(place) else { return };
        let conn = &self.conns[token.index as usize];
        if !record.asked.awaits_continue || !matches!(record.intake, Intake::Wanted(_)) || conn.has(SENDING) {
            return;
        }
        record.asked.awaits_continue = false;
        if record.body_seen == 0 && conn.input.is_none() {
            let framing = record.asked.framing;
            self.put_interim(token, framing, 100, &Fields::new());
        }
    }

    /// Resumes a handler's stream that was pending.
    pub(crate) fn wake_stream(&mut self, key: ExchangeKey) {
        let Some(record) = self.records.get(key.slot) else { return };
        let token = record.token;
        let pending = matches!(&record.stream, Some(ResponseRest::Pull(stream)) if stream.pending);
        if record.generation == key.generation && pending && !self.conns[token.index as usize].has(SENDING) {
            self.pull(token, key.slot);
            self.settle(token);
        }
    }

    /// Responds with 500 to an exchange that its handler dropped.
    pub(crate) fn dropped(&mut self, key: ExchangeKey) {
        self.answer(key, Reply::error(500));
    }

    /// Handles a completed send: work that waited for it continues.
    #[inline]
    pub(crate) fn sent(&mut self, token: Token, bytes: u64, segments: Vec<Segment>) {
        self.recycle_segments(segments);
        self.metrics.sent_bytes.add(bytes);
        let idle = self.now.mono_ns.saturating_add(self.rest_ns);
        let Some(conn) = self.conns.get_mut(token.index as usize) else { return };
        if conn.generation != token.generation || conn.phase == ConnPhase::Vacant {
            return;
        }
        if !conn.transport.is_plain()
            && let Some(more) = conn.transport.more(&mut self.scratch)
        {
            return self.send_on(token, more);
        }
        conn.flags &= !SENDING;
        if !self.end_tokens.is_empty() {
            self.drop_sent_tokens(token);
        }
        let conn = &mut self.conns[token.index as usize];
        if conn.is_at_rest() {
            // By far the most common case: the response is sent, and the connection is idle.
            conn.deadline_ns = idle;
            return;
        }
        self.on_sent(token, idle);
    }

    /// Handles a completed send on a connection that is not idle.
    #[inline(never)]
    fn on_sent(&mut self, token: Token, idle: u64) {
        let conn = &mut self.conns[token.index as usize];
        if conn.phase == ConnPhase::Resident {
            return self.resident_sent(token);
        }
        if conn.phase == ConnPhase::Http2 {
            return self.http2_settle(token);
        }
        if conn.phase == ConnPhase::Upstream {
            return self.upstream_sent(token);
        }
        let (exchange, phase) = (conn.duty.as_exchange(), conn.phase);
        conn.deadline_ns = match (phase, &conn.transport) {
            (ConnPhase::Open, _) => u64::MAX,
            (ConnPhase::Handshake, MaybeTls::Tls(tls)) => tls.handshake_ends_ns,
            _ => idle,
        };
        if phase == ConnPhase::Head {
            // This head began after a request whose response is now sent.
            self.set_deadline(token, self.policy.limits.head_time.nanoseconds());
        }
        let flight = std::mem::replace(&mut self.conns[token.index as usize].flight, NONE);
        self.end_flight(flight, None, None);
        if let Some(place) = exchange
            && let Some(record) = self.records.get_mut(place)
        {
            if let Some(reply) = record.reply.take() {
                self.answer_record(token, place, *reply);
            } else if let Some(takeover) = record.takeover.take() {
                self.take_over_record(token, place, *takeover);
            } else if record.held.is_some() {
                self.resume_held(token, place);
            } else if let Some(ResponseRest::Open(_)) = record.stream {
                self.open_sent(token, place);
            } else if record.stream.is_some() {
                self.pull(token, place);
            } else if let Intake::Wanted(_) | Intake::Discard(_) = record.intake {
                let left_ns = record.rate_left_ns;
                self.set_deadline(token, left_ns);
                self.invite(token, place);
            }
        }
        self.go_on(token);
    }

    /// Sends the next part of a response that did not fit into one send.
    fn send_on(&mut self, token: Token, sealed: Result<Vec<Segment>, OpError>) {
        match sealed {
            Ok(segments) => {
                let conn = &mut self.conns[token.index as usize];
                conn.flags |= SENDING;
                conn.deadline_ns = self.now.mono_ns.saturating_add(self.policy.rate_window_ns);
                conn.window = RateWindow::Unmeasured;
                let armed = self.now.mono_ns.saturating_add(self.policy.rate_window_ns.min(self.rest_ns));
                self.wheel.arm_earlier(token.index, armed);
                self.ops.push((token, Op::Send(encke_io::Send { segments, more: false })));
            }
            Err(fault) => self.conn_failed(token, fault, 0, Vec::new()),
        }
    }

    /// Processes kept input, sends the resulting output, and receives again where possible.
    pub(crate) fn go_on(&mut self, token: Token) {
        let Some(conn) = self.conn(token) else { return };
        // After the last request only the rest of its body is read.
        let looks = !conn.has(LAST) || conn.phase == ConnPhase::Open;
        if conn.input.is_some() && !conn.has(SENDING) && looks {
            self.resume_input(token);
        }
        self.settle(token);
    }

    /// Brings the operations of a connection in line with its state: sends the output, closes if it is over, receives or
    /// pauses.
    pub(crate) fn settle(&mut self, token: Token) {
        self.flush(token);
        let Some(conn) = self.conns.get_mut(token.index as usize) else { return };
        if conn.generation != token.generation || matches!(conn.phase, ConnPhase::Vacant | ConnPhase::Closing)
        {
            return;
        }
        if conn.phase == ConnPhase::Http2 {
            return self.http2_settle(token);
        }
        if conn.has(SENDING) {
            if conn.input.is_some() && !conn.has(PAUSED | PEER_ENDED) {
                conn.flags |= PAUSED;
                self.ops.push((token, Op::Pause));
            } else if conn.phase == ConnPhase::Resident {
                self.settle_duplex(token);
            }
            return;
        }
        if conn.has(LAST) && conn.duty.is_done() {
            self.end(token);
            return;
        }
        if conn.phase == ConnPhase::Resident {
            return self.settle_resident(token);
        }
        let (waits, parsing) = match &conn.input {
            None => (false, false),
            Some(input) => (!input.bytes.is_empty(), input.parsing),
        };
        if conn.has(PEER_ENDED) {
            match conn.phase {
                ConnPhase::Idle if !waits => self.close(token, CloseReason::PeerDone, false),
                ConnPhase::Head | ConnPhase::Proxy => self.close(token, CloseReason::PeerAborted, false),
                ConnPhase::Handshake => self.close(token, CloseReason::Handshake, false),
                ConnPhase::Open => self.end_of_body(token),
                _ => {}
            }
            return;
        }
        let hungry = match conn.phase {
            ConnPhase::Idle | ConnPhase::Head | ConnPhase::Proxy => {
                !waits || parsing || conn.phase == ConnPhase::Proxy
            }
            // Also without a body to read, so that the server notices when the peer disconnects before the response.
            ConnPhase::Open => !waits,
            ConnPhase::Lingering | ConnPhase::Handshake => true,
            ConnPhase::Resident
            | ConnPhase::Http2
            | ConnPhase::Upstream
            | ConnPhase::Vacant
            | ConnPhase::Closing => return,
        };
        self.set_receiving(token, hungry);
    }

    /// Receives from a connection, or pauses receiving.
    #[inline]
    pub(crate) fn set_receiving(&mut self, token: Token, on: bool) {
        let conn = &mut self.conns[token.index as usize];
        if on && conn.has(PAUSED) {
            conn.flags &= !PAUSED;
            self.ops.push((token, Op::Recv));
        } else if !on && !conn.has(PAUSED | PEER_ENDED) {
            conn.flags |= PAUSED;
            self.ops.push((token, Op::Pause));
        }
    }

    /// Handles the peer's end of stream during an exchange: an incomplete body stays incomplete.
    fn end_of_body(&mut self, token: Token) {
        let Some(place) = self.conns[token.index as usize].duty.as_exchange() else { return };
        let Some(record) = self.records.get_mut(place) else { return };
        let waits =
            self.conns[token.index as usize].input.as_ref().is_some_and(|input| !input.bytes.is_empty());
        let unfinished = match record.intake {
            Intake::Done => false,
            Intake::Unread(_) => !waits,
            Intake::Wanted(_) | Intake::Discard(_) => true,
        };
        if unfinished {
            self.break_body(token, CloseReason::PeerAborted, None);
            self.close(token, CloseReason::PeerAborted, false);
        } else if record.is_endless() || record.is_awaited() {
            self.set_deadline(token, HALF_CLOSED_NS);
        }
    }

    /// Turns the output into one send.
    #[inline]
    pub(crate) fn flush(&mut self, token: Token) {
        self.out.seal(&mut self.segments);
        if self.segments.is_empty() {
            // The body of a request may end after its response was sent.
            self.finish_sent_entries();
            return self.flush_control(token);
        }
        if !self.entries.is_empty() {
            let bytes = self.output_bytes();
            self.count_waiting(token, bytes);
        }
        let spare = self.spare_segments.pop().unwrap_or_default();
        let mut segments = std::mem::replace(&mut self.segments, spare);
        let flight = self.begin_flight();
        let deadline = self.now.mono_ns.saturating_add(self.policy.rate_window_ns);
        let conn = &mut self.conns[token.index as usize];
        debug_assert!(!conn.has(SENDING), "one send at a time");
        conn.flight = flight;
        conn.flags |= SENDING;
        conn.deadline_ns = deadline;
        conn.window = RateWindow::Unmeasured;
        let last = conn.has(LAST) && conn.duty.is_done();
        if !conn.transport.is_plain()
            && let Err(fault) = conn.transport.seal(&mut segments, last, &mut self.scratch)
        {
            return self.conn_failed(token, fault, 0, segments);
        }
        // After the send the connection may become idle, which does not touch the timer wheel.
        let armed = self.now.mono_ns.saturating_add(self.policy.rate_window_ns.min(self.rest_ns));
        self.wheel.arm_earlier(token.index, armed);
        self.ops.push((token, Op::Send(encke_io::Send { segments, more: false })));
    }

    /// Without output: sends control data of the transport (TLS), if there is any.
    fn flush_control(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.index as usize) else { return };
        if conn.generation == token.generation
            && !matches!(conn.phase, ConnPhase::Vacant | ConnPhase::Closing)
            && !conn.has(SENDING)
            && let Some(control) = conn.transport.more(&mut self.scratch)
        {
            self.send_on(token, control);
        }
    }

    /// Handles the peer's end of stream. `behind_data`: received bytes before the end are still unread.
    pub(crate) fn peer_closed(&mut self, token: Token, behind_data: bool) {
        let Some(conn) = self.conn(token) else { return };
        let phase = conn.phase;
        // The unread bytes are read first; then the reactor reports the end again.
        conn.flags |= if behind_data { ENDING } else { PEER_ENDED };
        if phase == ConnPhase::Resident {
            self.resident_ended(token);
        }
        if behind_data {
            return;
        }
        if phase == ConnPhase::Upstream {
            return self.upstream_ended(token);
        }
        if phase == ConnPhase::Lingering {
            let reason = self.conns[token.index as usize].reason;
            self.close(token, reason, false);
        } else {
            self.settle(token);
        }
    }

    /// Handles a failed operation of a connection. `sent` is the number of bytes that left.
    pub(crate) fn conn_failed(&mut self, token: Token, fault: OpError, sent: u64, segments: Vec<Segment>) {
        self.recycle_segments(segments);
        self.metrics.sent_bytes.add(sent);
        let Some(conn) = self.conn(token) else { return };
        if conn.phase == ConnPhase::Upstream {
            return self.upstream_broken(token, fault, sent);
        }
        let reason = match fault {
            _ if conn.phase == ConnPhase::Lingering => conn.reason,
            OpError::Reset | OpError::Unreachable => CloseReason::PeerReset,
            OpError::FileShrunk => CloseReason::FileShrunk,
            _ => CloseReason::System,
        };
        let flight = std::mem::replace(&mut conn.flight, NONE);
        self.end_flight(flight, Some(sent), reason.cause());
        // After an incomplete response only a reset shows the client that it is incomplete.
        self.close(token, reason, fault == OpError::FileShrunk);
    }

    /// Handles a deadline that has passed. `unsent` is the number of bytes that the peer has not received.
    pub(crate) fn overdue(&mut self, token: Token, unsent: u64) {
        let Some(conn) = self.conn(token) else { return };
        if conn.phase == ConnPhase::Upstream {
            return self.upstream_overdue(token);
        }
        if conn.has(SENDING) {
            let taken = conn.window.taken(unsent);
            let least = self.policy.window_bytes(self.policy.limits.write_rate.bytes_per_second());
            if taken.is_some_and(|taken| taken < least) {
                self.close_unsent(token, CloseReason::WriteRate, true, Some(unsent));
            } else {
                self.conns[token.index as usize].window = RateWindow::begin(unsent);
                self.set_deadline(token, self.policy.rate_window_ns);
            }
            return;
        }
        match conn.phase {
            ConnPhase::Idle => {
                let fresh = conn.requests == 0;
                let reason = if self.draining() {
                    CloseReason::Drain
                } else if fresh {
                    CloseReason::HeadTime
                } else {
                    CloseReason::IdleTime
                };
                // The kernel would go on holding the bytes that the client has not received.
                self.close(token, reason, unsent > 0);
            }
            ConnPhase::Http2 => self.http2_overdue(token),
            ConnPhase::Proxy => self.close(token, CloseReason::ProxyHeader, false),
            ConnPhase::Handshake => self.close(token, CloseReason::HandshakeTime, false),
            ConnPhase::Head => {
                let input = conn.input.take();
                if let Some(input) = input {
                    self.recycle_input(input);
                }
                self.time_out(token, CloseReason::HeadTime);
            }
            ConnPhase::Open => {
                let conn_has_ended = conn.has(PEER_ENDED);
                let Some(place) = conn.duty.as_exchange() else { return };
                let Some(record) = self.records.get_mut(place) else { return };
                if record.is_awaited() && conn_has_ended {
                    record.half_closed = true;
                    let (handler, key) = (record.handler, record.key(place));
                    return self.call_handler(handler, key, |handler| handler.ended(key));
                }
                if record.is_endless() && conn_has_ended {
                    // The end of the connection would mark the content as complete.
                    let abort = record.asked.framing == FramingKind::Close;
                    return self.close(token, CloseReason::PeerDone, abort);
                }
                let taken = record.body_seen - record.rate_seen;
                if taken >= self.policy.window_bytes(self.policy.limits.body_rate.bytes_per_second()) {
                    self.begin_rate_window(token, place);
                } else {
                    self.metrics.refused(CloseReason::BodyRate.name());
                    self.break_body(token, CloseReason::BodyRate, Some(Reply::error(408)));
                    self.settle(token);
                }
            }
            ConnPhase::Lingering => self.lingering_overdue(token, unsent),
            ConnPhase::Resident => self.resident_overdue(token),
            ConnPhase::Upstream | ConnPhase::Vacant | ConnPhase::Closing => {}
        }
    }

    /// Begins a new rate window for the body of a request.
    pub(crate) fn begin_rate_window(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get_mut(place) else { return };
        record.rate_seen = record.body_seen;
        record.rate_left_ns = self.policy.rate_window_ns;
        self.set_deadline(token, self.policy.rate_window_ns);
    }
}
