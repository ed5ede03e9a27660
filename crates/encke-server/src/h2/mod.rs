//! HTTP/2 (RFC 9113): one connection that carries many exchanges.
//!
//! ```text
//!  socket ◄─► Transport ◄─► Conn (phase Http2) ─── Engine: frames, HPACK, windows (the h2 crate)
//!                                                     │ requests, data            ▲ heads, data
//!                                                     ▼                           │
//!                                                  Stream ── the "socket" of ──► Conn ─► exchange, handler, hub, log
//! ```
//! **A stream is a connection of its own** with one request. It has a slot, deadlines, and an exchange or a subscriber. The
//! stream takes the place of a socket, and delivers its request in the form of HTTP/1. `framing.rs` writes its response like
//! any other. So code above this directory does not depend on HTTP/2. Bodies are pulled: a stream's window opens only as its
//! handler reads. Rates are enforced, and subscribers work as on HTTP/1. Operations of streams go to [`Core::stream_op`]
//! instead of the reactor, and their results return like the reactor's events.
//!
//! ```text
//! received ─► engine.feed ─► stir ┐
//!            ┌────────────────────┘
//!            └─► poll engines ─► new streams, rung bells ─► handlers ─► operations ─► stream_op ─► poll …
//!                until nothing stirs ─► one send for each engine that has output
//! ```

mod engine;
mod file_reads;
mod head;
mod sources;
mod stream;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use encke_io::slab::Slab;
use encke_io::{Done, Job, JobLane, Op, Segment, Token, Tuning};
use encke_session::http2::{Breach, BudgetTotals, Budgets, Polled, WokenStreams};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{HeaderMap, Response};

use crate::close::CloseReason;
use crate::conn::{
    ADMIN, Conn, ConnPhase, Duty, LAST, LINGER, PAUSED, PEER_ENDED, SECURE, SENDING, TO_HTTPS,
};
use crate::conns::{among_streams, is_stream, stream_place};
use crate::core::Core;
use crate::framing::ContentLength;
use crate::policy::ConnLimits;

use engine::Http2Engine;
use file_reads::FileReads;
pub(crate) use file_reads::is_file_job;
use stream::{FilePiece, FileRead, Http2Stream, PulledIn, Pushed, StreamData};

/// The first bytes of every client connection (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The urgency of a request that names none (RFC 9218 §4.1).
const URGENCY: u8 = 3;

/// The result of comparing a connection's first bytes with the preface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Preface {
    Whole,
    /// All bytes so far match the preface.
    Partial,
    No,
}

impl Preface {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        // The first line decides; the engine checks the rest.
        let line = &PREFACE[..16];
        let shared = bytes.len().min(line.len());
        match bytes[..shared] == line[..shared] {
            true if shared == line.len() => Self::Whole,
            true => Self::Partial,
            false => Self::No,
        }
    }
}

/// The HTTP/2 connections of a worker and their streams.
pub(crate) struct Http2 {
    budgets: Budgets,
    engines: Slab<Http2Engine>,
    streams: Slab<Http2Stream>,
    file_reads: FileReads,
    /// The generation of the latest stream, so that a late event never reaches another stream.
    generation: u32,
    woken: Arc<WokenStreams>,
    /// Indices of engines to poll.
    stirred: Vec<u32>,
    /// Indices of engines whose output is sent once no engine is left to poll.
    touched: Vec<u32>,
    /// An empty list, swapped for one of the two above while its engines run: they fill it again.
    spare: Vec<u32>,
    /// Streams whose send is complete.
    sent: Vec<Token>,
    bells: Vec<u32>,
}

impl Http2 {
    pub(crate) fn new(totals: &BudgetTotals) -> Self {
        Self {
            budgets: Budgets::new(totals),
            engines: Slab::new(),
            streams: Slab::new(),
            file_reads: FileReads::new(),
            generation: 0,
            woken: Arc::default(),
            stirred: Vec::new(),
            touched: Vec::new(),
            spare: Vec::new(),
            sent: Vec::new(),
            bells: Vec::new(),
        }
    }

    /// Applies the limits of a policy.
    pub(crate) fn limit(&self, policy: &ConnLimits) {
        self.budgets.limit(policy.limits.unsent_bytes(), policy.limits.open_streams.get() as usize);
    }

    /// Numbers of open connections and open streams.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.engines.len(), self.streams.len())
    }

    /// Response bytes that were read and not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.budgets.bytes.used()
    }

    /// The protocol's id of a connection's stream; 0 if the connection is no stream.
    pub(crate) fn stream_id(&self, token: Token) -> u32 {
        if !is_stream(token) {
            return 0;
        }
        self.streams.get(among_streams(token)).map_or(0, |stream| stream.id)
    }

    /// The connection that carries a stream.
    pub(crate) fn carrier(&self, token: Token) -> Option<Token> {
        let stream = self.streams.get(among_streams(token))?;
        self.engines.get(stream.engine).map(|engine| engine.token)
    }

    /// Bytes of a stream's send that the engine has not taken.
    pub(crate) fn unsent(&self, token: Token) -> u64 {
        self.streams.get(among_streams(token)).map_or(0, Http2Stream::unsent)
    }

    /// Begins the response of a stream.
    pub(crate) fn put_head(&mut self, token: Token, response: Response<()>, content: ContentLength) {
        if let Some(stream) = self.stream_of(token) {
            stream.put_head(response, content);
        }
    }

    /// Sends an interim response of a stream.
    pub(crate) fn put_interim(&mut self, token: Token, response: Response<()>) {
        if let Some(stream) = self.stream_of(token) {
            stream.put_interim(response);
        }
    }

    /// Sets the trailers of a stream's response.
    pub(crate) fn put_trailers(&mut self, token: Token, trailers: HeaderMap) {
        if let Some(stream) = self.stream_of(token) {
            stream.put_trailers(trailers);
        }
    }

    /// Whether the body of a stream's request is incomplete.
    pub(crate) fn has_body_left(&self, token: Token) -> bool {
        self.streams.get(among_streams(token)).is_some_and(Http2Stream::has_body_left)
    }

    /// Whether a connection uses HTTP/2, has no open stream, and sends nothing.
    pub(crate) fn is_idle(&self, conn: &Conn) -> bool {
        if conn.requests > 0
            && !conn.has(SENDING)
            && let Some(place) = conn.duty.as_engine()
            && let Some(engine) = self.engines.get(place)
        {
            engine.streams.is_empty()
        } else {
            false
        }
    }

    /// Number of open streams of a connection; `None` once its engine has ended.
    pub(crate) fn open_streams(&self, conn: &Conn) -> Option<usize> {
        Some(self.engines.get(conn.duty.as_engine()?)?.streams.len())
    }

    /// The start of HTTP/2 on a connection, on the monotonic clock.
    pub(crate) fn began_ns(&self, conn: &Conn, policy: &ConnLimits) -> Option<u64> {
        let engine = self.engines.get(conn.duty.as_engine()?)?;
        Some(engine.first_by_ns.saturating_sub(policy.limits.head_time.nanoseconds()))
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.stirred.is_empty() && self.touched.is_empty() && self.sent.is_empty()
    }

    fn stir(&mut self, place: u32) {
        if let Some(engine) = self.engines.get_mut(place)
            && !engine.stirred
        {
            engine.stirred = true;
            self.stirred.push(place);
        }
    }

    fn stream_of(&mut self, token: Token) -> Option<&mut Http2Stream> {
        self.streams.get_mut(among_streams(token)).filter(|stream| stream.token == token)
    }
}

impl Core {
    /// Begins HTTP/2 on a connection whose first bytes are the preface.
    pub(crate) fn begin_http2(&mut self, token: Token, bytes: &[u8]) {
        let engine = Http2Engine::new(token, &self.policy, self.now.mono_ns, &self.http2.budgets);
        let place = self.http2.engines.insert(engine);
        let conn = &mut self.conns[token.index as usize];
        conn.phase = ConnPhase::Http2;
        conn.duty = Duty::engine(place);
        self.metrics.h2_connections.add(1);
        if self.draining()
            && let Some(engine) = self.http2.engines.get_mut(place)
        {
            engine.leave(CloseReason::Drain);
        }
        self.http2_received(token, bytes);
    }

    /// Feeds received bytes to an engine.
    pub(crate) fn http2_received(&mut self, token: Token, bytes: &[u8]) {
        let now_ns = self.now.mono_ns;
        let Some(place) = self.conns[token.index as usize].duty.as_engine() else { return };
        let Some(engine) = self.http2.engines.get_mut(place) else { return };
        match engine.connection.watch.look(bytes, now_ns) {
            Ok(()) => {
                engine.connection.feed(bytes);
                if engine.calm() {
                    self.metrics.refused("h2_resets");
                }
            }
            Err(breach) => {
                let (goaway, reason, name) = match breach {
                    Breach::Chores => (Reason::ENHANCE_YOUR_CALM, CloseReason::Flood, "h2_chores"),
                    Breach::Closed => (Reason::STREAM_CLOSED, CloseReason::Refused, "h2_stream_closed"),
                };
                engine.stop(goaway, reason);
                self.metrics.refused(name);
            }
        }
        let Some(engine) = self.http2.engines.get_mut(place) else { return };
        let since = engine.connection.watch.in_block().then(|| engine.block_since.unwrap_or(now_ns));
        engine.block_since = since;
        self.http2.stir(place);
    }

    /// Handles a completed send of an engine, or its peer's end of stream.
    pub(crate) fn http2_settle(&mut self, token: Token) {
        let conn = &self.conns[token.index as usize];
        let Some(place) = conn.duty.as_engine() else { return };
        if let Some(engine) = self.http2.engines.get_mut(place) {
            if conn.has(PEER_ENDED) {
                engine.connection.end_input();
            }
            if !conn.has(SENDING) {
                engine.connection.output_sent();
            }
        }
        self.http2.stir(place);
    }

    /// Handles the deadline of an engine that has no send in flight.
    pub(crate) fn http2_overdue(&mut self, token: Token) {
        let draining = self.draining();
        let conn = &self.conns[token.index as usize];
        let fresh = conn.requests == 0;
        let Some(place) = conn.duty.as_engine() else { return };
        let head_time_ns = self.policy.limits.head_time.nanoseconds();
        let now_ns = self.now.mono_ns;
        let Some(engine) = self.http2.engines.get_mut(place) else { return };
        if engine.block_since.is_some_and(|since| since.saturating_add(head_time_ns) <= now_ns) {
            engine.stop(Reason::ENHANCE_YOUR_CALM, CloseReason::HeadTime);
        } else if engine.streams.is_empty() {
            let reason = match (draining, fresh) {
                (true, _) => CloseReason::Drain,
                (false, true) => CloseReason::HeadTime,
                (false, false) => CloseReason::IdleTime,
            };
            engine.stop(Reason::NO_ERROR, reason);
        }
        self.http2.stir(place);
    }

    /// Drains all engines: they accept no new streams, and end with the last open one.
    pub(crate) fn leave_http2(&mut self) {
        let places: Vec<u32> = self.http2.engines.iter().map(|(place, _)| place).collect();
        for place in places {
            if let Some(engine) = self.http2.engines.get_mut(place) {
                engine.leave(CloseReason::Drain);
            }
            self.http2.stir(place);
        }
    }

    /// Closes the streams of an engine whose connection closes for `reason`.
    pub(crate) fn abandon_http2(&mut self, place: u32, reason: CloseReason) {
        // A connection that ends regularly, while a stream is open, was ended by the client.
        let reason = if reason.cause().is_some() { reason } else { CloseReason::PeerReset };
        let Some(engine) = self.http2.engines.remove(place) else { return };
        for stream in engine.streams {
            if let Some(token) = self.http2.streams.get(stream).map(|stream| stream.token) {
                self.close(token, reason, true);
            }
        }
    }

    /// Whether there are operations to submit or streams to continue.
    #[inline]
    pub(crate) fn is_stirred(&self) -> bool {
        !self.ops.is_empty() || self.handler_requests.has_actions() || !self.http2.is_quiet()
    }

    /// Continues engines and streams. Returns true if operations may have resulted or more work is left.
    #[inline]
    pub(crate) fn stir(&mut self) -> bool {
        !self.http2.is_quiet() && self.stir_engines()
    }

    fn stir_engines(&mut self) -> bool {
        while let Some(token) = self.http2.sent.pop() {
            if let Some(stream) = self.http2.stream_of(token) {
                let spent = std::mem::take(&mut stream.spent);
                // The bytes are counted when the engine's output is sent.
                self.sent(token, 0, spent);
            }
        }
        if !self.ops.is_empty() {
            return true;
        }
        let spare = std::mem::take(&mut self.http2.spare);
        let mut stirred = std::mem::replace(&mut self.http2.stirred, spare);
        for place in stirred.drain(..) {
            self.run_engine(place);
        }
        self.http2.spare = stirred;
        if !self.ops.is_empty() {
            // Responses first: most streams end with them, and need no bell.
            return true;
        }
        self.answer_bells();
        if !self.ops.is_empty() || !self.http2.stirred.is_empty() || !self.http2.sent.is_empty() {
            return true;
        }
        let spare = std::mem::take(&mut self.http2.spare);
        let mut touched = std::mem::replace(&mut self.http2.touched, spare);
        for place in touched.drain(..) {
            self.flush_engine(place);
        }
        self.http2.spare = touched;
        true
    }

    fn run_engine(&mut self, place: u32) {
        if let Some(engine) = self.http2.engines.get_mut(place) {
            engine.stirred = false;
            for stream in engine.take_crowded() {
                self.http2.woken.wake(stream);
            }
            let sources_change = engine.sources.check(&engine.connection.bytes);
            self.http2.touched.push(place);
            if sources_change {
                self.check_sources(place);
            }
        }
        while let Some(engine) = self.http2.engines.get_mut(place) {
            match engine.connection.poll() {
                Polled::Request(parts, body, respond) => self.open_stream(place, &parts, body, respond),
                Polled::Quiet | Polled::Over => return,
            }
        }
    }

    /// Opens the stream of a new request: it becomes a connection, which receives the request as HTTP/1.
    fn open_stream(
        &mut self,
        engine_place: u32,
        parts: &Parts,
        body: RecvStream,
        mut respond: SendResponse<StreamData>,
    ) {
        let mut text = self.buffers.take();
        let ended = body.is_end_stream();
        let Ok(form) = head::put_request(parts, ended, &mut text) else {
            self.metrics.refused("h2_request");
            self.buffers.give(text);
            return respond.send_reset(Reason::PROTOCOL_ERROR);
        };
        let Some(engine) = self.http2.engines.get_mut(engine_place) else { return };
        if !engine.connection.has_room() {
            // No handler has seen the request, so the client may retry it (RFC 9113 §8.7).
            self.metrics.refused("h2_crowded");
            self.buffers.give(text);
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        let carrier = engine.token;
        self.http2.generation = self.http2.generation.wrapping_add(1);
        let place = self.http2.streams.next_index();
        let token = Token { index: stream_place(place), generation: self.http2.generation };
        let head_only = parts.method == http::Method::HEAD;
        let urgency = urgency(parts);
        let body = (!ended).then_some(body);
        let accounts = (&engine.connection.bytes, engine.connection.open.charge(1));
        let mut stream = Http2Stream::new(token, engine_place, respond, body, head_only, urgency, accounts);
        stream.set_form(form);
        engine.streams.push(place);
        self.http2.streams.insert(stream);
        let below = &mut self.conns[carrier.index as usize];
        below.requests = below.requests.wrapping_add(1);
        let (requests, flags) = (below.requests, below.flags & (ADMIN | SECURE | TO_HTTPS));
        let conn = Conn { flags, ..Conn::new(token.generation, below.peer.unpack(), ConnPhase::Idle) };
        self.conns.put(token.index, conn);
        self.metrics.h2_streams.add(1);
        if self
            .policy
            .limits
            .requests_per_connection
            .on()
            .map(NonZeroU32::get)
            .is_some_and(|most| requests >= most)
            && let Some(engine) = self.http2.engines.get_mut(engine_place)
        {
            engine.leave(CloseReason::Answered);
        }
        self.plaintext(token, &mut text);
        self.buffers.give(text);
        // From now on the stream's bell reports changes by the client.
        self.http2.woken.wake(place);
    }

    fn answer_bells(&mut self) {
        let mut bells = std::mem::take(&mut self.http2.bells);
        self.http2.woken.take(&mut bells);
        bells.sort_unstable();
        bells.dedup();
        let urgency = |place: &u32| self.http2.streams.get(*place).map_or(URGENCY, |stream| stream.urgency);
        bells.sort_by_key(urgency);
        for place in bells.drain(..) {
            self.go_on_with(place);
        }
        self.http2.bells = bells;
    }

    /// Continues a stream whose window, body or end may have changed.
    fn go_on_with(&mut self, place: u32) {
        let rung = Arc::clone(&self.http2.woken);
        let Some(stream) = self.http2.streams.get_mut(place) else { return };
        stream.expect_no_more();
        let (token, engine) = (stream.token, stream.engine);
        let bell = stream.waker(place, &rung);
        if stream.is_reset(&bell) {
            self.metrics.h2_resets_received.add(1);
            return self.close(token, CloseReason::PeerReset, true);
        }
        if stream.has_body_left()
            && self
                .http2
                .engines
                .get(engine)
                .is_some_and(|engine| engine.connection.watch.is_malformed(stream.id))
        {
            self.metrics.refused("h2_request");
            return self.close(token, CloseReason::Refused, true);
        }
        if stream.sending {
            self.push_out(token);
        }
        loop {
            let reads = self.conn(token).is_some_and(|conn| {
                !conn.has(PAUSED | PEER_ENDED)
                    && !matches!(conn.phase, ConnPhase::Closing | ConnPhase::Vacant)
            });
            if !reads {
                break;
            }
            let Some(stream) = self.http2.stream_of(token) else { break };
            let mut piece = self.buffers.take();
            let pulled = stream.pull_in(&bell, &mut piece);
            let tunnel = stream.is_tunnel();
            if !piece.is_empty() {
                self.plaintext(token, &mut piece);
            }
            self.buffers.give(piece);
            match pulled {
                PulledIn::Piece => {}
                PulledIn::Nothing => break,
                PulledIn::End => {
                    let lingers = self.conn(token).is_some_and(|conn| conn.phase == ConnPhase::Lingering);
                    if tunnel || lingers {
                        self.peer_closed(token, false);
                    }
                    break;
                }
                PulledIn::Gone => {
                    self.close(token, CloseReason::PeerAborted, true);
                    break;
                }
            }
        }
        self.http2.stir(engine);
    }

    /// Passes a stream's send to its engine, as much as the engine takes.
    fn push_out(&mut self, token: Token) {
        let rung = Arc::clone(&self.http2.woken);
        let Some(stream) = self.http2.stream_of(token) else { return };
        let engine = stream.engine;
        match stream.push_out(among_streams(token), &rung) {
            Pushed::Done => self.http2.sent.push(token),
            Pushed::Waits => {}
            Pushed::Crowded => {
                if let Some(engine) = self.http2.engines.get_mut(engine) {
                    engine.wait_for_room(among_streams(token));
                }
            }
            Pushed::File(piece) => self.read_file(token, piece),
            Pushed::Shrunk => self.close(token, CloseReason::FileShrunk, true),
            Pushed::Gone => self.close(token, CloseReason::PeerReset, true),
        }
        self.http2.stir(engine);
    }

    /// Reads a piece of a file on the thread pool, because it is not in the page cache.
    fn read_file(&mut self, token: Token, piece: FilePiece) {
        let key = self.http2.file_reads.begin(token);
        let run = move || {
            let mut bytes = vec![0; piece.bytes];
            let read = piece.file.read_at(piece.offset, &mut bytes);
            Box::new(piece_read(read, bytes)) as Done
        };
        self.ops.push((Token::NONE, Op::Offload(Job { key, lane: JobLane::Local, run: Box::new(run) })));
    }

    /// Handles the result of a read on the thread pool. `None`: the pool was full, or the job panicked.
    pub(crate) fn file_was_read(&mut self, key: u64, done: Option<Done>) {
        let read = done_read(done);
        let (piece, fault) = match read {
            Ok(piece) => (Some(piece), CloseReason::StreamFailed),
            Err(fault) => (None, fault),
        };
        let Some(token) = self.http2.file_reads.end(key) else { return };
        let Some(stream) = self.http2.stream_of(token) else { return };
        match stream.file_read(piece) {
            FileRead::Taken => self.push_out(token),
            FileRead::Failed => self.close(token, fault, true),
            FileRead::Unexpected => {}
        }
    }

    /// Executes an operation of a stream, as a reactor does for a socket.
    #[inline(never)]
    pub(crate) fn stream_op(&mut self, token: Token, op: Op) {
        let place = among_streams(token);
        match op {
            Op::Send(send) => {
                if let Some(stream) = self.http2.stream_of(token) {
                    stream.send(send.segments);
                    self.push_out(token);
                }
            }
            Op::Recv => {
                self.http2.woken.wake(place);
                if let Some(engine) = self.http2.stream_of(token).map(|stream| stream.engine) {
                    self.http2.stir(engine);
                }
            }
            Op::Tune(Tuning { unsent_bytes, dead_after_ms }) => {
                let engine = self.http2.stream_of(token).map(|stream| stream.engine);
                if let Some(engine) = engine.and_then(|engine| self.http2.engines.get(engine)) {
                    self.ops.push((engine.token, Op::Tune(Tuning { unsent_bytes, dead_after_ms })));
                }
            }
            Op::Shutdown => {
                if let Some(stream) = self.http2.stream_of(token) {
                    stream.finish();
                    let engine = stream.engine;
                    self.http2.stir(engine);
                }
            }
            Op::Close | Op::Abort => self.close_stream(token, matches!(op, Op::Close)),
            // A stream that is not read is paused, and streams have no other operations.
            _ => {}
        }
    }

    /// Ends a stream with the connection above it, and frees the connection's slot.
    fn close_stream(&mut self, token: Token, in_order: bool) {
        let place = among_streams(token);
        if self.http2.stream_of(token).is_none() {
            return;
        }
        let Some(stream) = self.http2.streams.remove(place) else { return };
        let conn = &mut self.conns[token.index as usize];
        let (last, reason) = (conn.has(LAST), conn.reason);
        *conn = Conn::vacant();
        self.wheel.cancel(token.index);
        let (engine_place, id) = (stream.engine, stream.id);
        self.recycle_stream(stream, in_order && last, reset_reason(reason));
        let idle_ns = self.now.mono_ns.saturating_add(self.rest_ns);
        if let Some(engine) = self.http2.engines.get_mut(engine_place) {
            engine.streams.retain(|open| *open != place);
            engine.sources.remove(place);
            engine.connection.watch.forget(id);
            let carrier = &mut self.conns[engine.token.index as usize];
            if engine.streams.is_empty() && !carrier.has(SENDING) {
                carrier.deadline_ns = idle_ns;
            }
        }
        self.http2.stir(engine_place);
    }

    fn recycle_stream(&mut self, mut stream: Http2Stream, whole: bool, reason: Reason) {
        let spent = std::mem::take(&mut stream.spent);
        self.recycle_segments(spent);
        if stream.close(whole, reason) {
            self.metrics.h2_resets_sent.add(1);
        }
    }

    /// Sends the output of an engine, and receives or pauses as the engine needs.
    fn flush_engine(&mut self, place: u32) {
        let Some(engine) = self.http2.engines.get_mut(place) else { return };
        let token = engine.token;
        let over = engine.connection.is_over();
        let conn = &mut self.conns[token.index as usize];
        if conn.has(SENDING) {
            if !engine.connection.is_hungry() && !conn.has(PAUSED | PEER_ENDED) {
                conn.flags |= PAUSED;
                self.ops.push((token, Op::Pause));
            }
            return;
        }
        let output = engine.connection.take_output();
        if over {
            return self.conclude(token, place, output);
        }
        let hungry = engine.connection.is_hungry();
        let block_ns =
            engine.block_since.map(|since| since.saturating_add(self.policy.limits.head_time.nanoseconds()));
        let rest_ns = self.now.mono_ns.saturating_add(self.rest_ns);
        let first_by_ns = engine.first_by_ns;
        let is_idle = engine.streams.is_empty();
        if !output.is_empty() {
            self.segments.push(Segment::Bytes(output));
            self.flush(token);
            // The engine may have more output.
            self.http2.stir(place);
        }
        self.set_receiving(token, hungry);
        let conn = &mut self.conns[token.index as usize];
        if conn.has(SENDING) {
            return;
        }
        conn.deadline_ns = match block_ns {
            Some(at_ns) => at_ns,
            None if !is_idle => u64::MAX,
            None if conn.requests > 0 => rest_ns,
            None => rest_ns.min(first_by_ns),
        };
        let deadline_ns = conn.deadline_ns;
        if deadline_ns != u64::MAX {
            self.wheel.arm_earlier(token.index, deadline_ns);
        }
    }

    /// Ends an engine: sends its last output and closes the connection.
    fn conclude(&mut self, token: Token, place: u32, output: Vec<u8>) {
        let Some(engine) = self.http2.engines.get_mut(place) else { return };
        let reason = engine.reason();
        if let Some(fault) = engine.connection.fault.take() {
            self.metrics.refused(fault);
        }
        self.abandon_http2(place, reason);
        let conn = &mut self.conns[token.index as usize];
        conn.duty = Duty::Rest;
        conn.phase = ConnPhase::Idle;
        conn.reason = reason;
        // The client nearly always has something in transit, if only a window update. A reset in reply would destroy the GOAWAY
        // and the end of the last response.
        conn.flags |= LAST | LINGER;
        if !output.is_empty() {
            self.segments.push(Segment::Bytes(output));
        }
        self.settle(token);
    }
}

/// A piece of a file, or the reason why it could not be read.
type PieceRead = Result<Vec<u8>, CloseReason>;

/// The result of a read that was to fill `bytes`.
fn piece_read(read: io::Result<usize>, bytes: Vec<u8>) -> PieceRead {
    match read {
        Ok(read) if read == bytes.len() => Ok(bytes),
        Ok(_) => Err(CloseReason::FileShrunk),
        Err(_) => Err(CloseReason::System),
    }
}

/// The result of a job that reads a piece. `None`: the pool was full, or the job panicked.
fn done_read(done: Option<Done>) -> PieceRead {
    let read = done.and_then(|done| done.downcast::<PieceRead>().ok());
    read.map_or(Err(CloseReason::StreamFailed), |read| *read)
}

/// The error code for resetting a stream that cannot be completed (RFC 9113 §7).
fn reset_reason(reason: CloseReason) -> Reason {
    match reason {
        CloseReason::Refused => Reason::PROTOCOL_ERROR,
        CloseReason::WriteRate | CloseReason::BodyRate | CloseReason::HeadTime => Reason::ENHANCE_YOUR_CALM,
        CloseReason::HandlerPanic
        | CloseReason::StreamFailed
        | CloseReason::FileShrunk
        | CloseReason::System => Reason::INTERNAL_ERROR,
        _ => Reason::CANCEL,
    }
}

/// The urgency of a request, 0 to 7 (RFC 9218 §5). It is the member `u` of the `Priority` field, or the last such member (RFC
/// 8941 §3.2).
fn urgency(parts: &Parts) -> u8 {
    let Some(value) = parts.headers.get("priority") else { return URGENCY };
    let members = value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let mut digits = members.filter_map(|member| match member {
        [b'u', b'=', digit @ b'0'..=b'7'] => Some(digit - b'0'),
        _ => None,
    });
    digits.next_back().unwrap_or(URGENCY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_urgent_as_it_says() {
        for (said, expected) in [
            ("u=0", 0),
            ("i, u=7", 7),
            ("u=1, i", 1),
            ("u=1,u=5", 5),
            ("", URGENCY),
            ("u=8", URGENCY),
            ("u=-1", URGENCY),
            ("u=10", URGENCY),
            ("urgent", URGENCY),
        ] {
            let request = http::Request::get("/").header("priority", said).body(()).expect("a request");
            assert_eq!(urgency(&request.into_parts().0), expected, "{said:?}");
        }
        let silent = http::Request::get("/").body(()).expect("a request");
        assert_eq!(urgency(&silent.into_parts().0), URGENCY);
    }

    #[test]
    fn a_piece_that_is_missing_has_the_reason_of_its_cause() {
        let done = |read: PieceRead| Some(Box::new(read) as Done);
        let failed = io::ErrorKind::Other.into();
        assert_eq!(done_read(done(piece_read(Ok(3), vec![7; 3]))), Ok(vec![7; 3]));
        assert_eq!(done_read(done(piece_read(Ok(2), vec![7; 3]))), Err(CloseReason::FileShrunk));
        assert_eq!(done_read(done(piece_read(Err(failed), vec![7; 3]))), Err(CloseReason::System));
        assert_eq!(done_read(None), Err(CloseReason::StreamFailed), "a full pool shrinks no file");
    }

    #[test]
    fn a_preface_is_told_by_its_first_line() {
        for end in 0..PREFACE.len() {
            let expected = if end < 16 { Preface::Partial } else { Preface::Whole };
            assert_eq!(Preface::of(&PREFACE[..end]), expected, "{end} bytes");
        }
        for end in 0..16 {
            let mut other = PREFACE[..=end].to_vec();
            other[end] ^= 1;
            assert_eq!(Preface::of(&other), Preface::No, "{end} bytes that agree");
        }
    }
}
