//! The proxy of one worker: forwards requests to targets and their responses to clients, without a thread and without a lock.
//!
//! ```text
//!  call ─► ProxiedRequest ─┬─ a kept connection ─► UpstreamConn ─► request head, body
//!                          └─ a new one ─► dial ─► Connected ─────┘      │
//!  client ◄── write, finish ◄── ResponseReader ◄── Received ◄────────────┘
//!                                  │ complete, and the connection may be kept ─► idle, for the next request
//!  failed before a byte of the response ─► another attempt, by the rules of `may_retry` ─► 502, 503, 504
//! ```
//! Bytes pass from event to event: each is copied once, into the buffer of the send on the other side. While more than 64 KiB
//! wait on one side, the other side is not read.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use encke_io::{Address, Done, Segment};
use encke_server::{
    Body, Exchange, ExchangeKey, Fields, Handler, HandlerContext, JobId, Outcome, Piece, Reply, Request,
    UpstreamEvent, UpstreamId,
};
use encke_wire::field::{self, Known};
use encke_wire::http1::{Framing, LAST_CHUNK, ResponseFraming, ResponseHead, put_chunk_head};
use encke_wire::method::Method;

use crate::fault::GatewayFault;
use crate::figures::ProxyCounters;
use crate::request_head::{RequestHeadPlan, Upgrading, put_request_head};
use crate::response_reader::{HeadView, ReadStep, ResponseReader};
use crate::upstream::Upstream;

/// Bytes that may wait on one side before the other side is no longer read.
const WAITING_MAX: u64 = 64 * 1024;
/// Bytes of a request's body that are kept for another attempt.
const REPLAY_BYTES_MAX: usize = 64 * 1024;
/// A request that must not be repeated is sent on a kept connection only if that was used this recently, in ns: the longer a
/// connection rests, the more likely the application is just closing it.
const FRESH_NS: u64 = 1_000_000_000;

/// The proxy of a worker.
pub(crate) struct Proxy {
    upstream: Arc<Upstream>,
    counters: Arc<ProxyCounters>,
    context: HandlerContext,
    /// All connections to targets.
    conns: HashMap<UpstreamId, UpstreamConn>,
    /// All requests whose response is incomplete.
    requests: HashMap<ExchangeKey, ProxiedRequest>,
    /// Kept connections by target, the one used last at the end.
    idle: Vec<Vec<UpstreamId>>,
    /// Names that are resolved on the pool, by job: the target.
    resolving: HashMap<JobId, usize>,
    /// The head of the response that is being read.
    scratch: Box<ResponseHead>,
    /// Buffers of finished requests.
    spare: Vec<Vec<u8>>,
}

/// A connection to a target.
struct UpstreamConn {
    target: usize,
    /// The request that it carries; `None` while it is kept.
    request: Option<ExchangeKey>,
    reader: ResponseReader,
    connected: bool,
    /// Whether it has carried a request before the present one.
    reused: bool,
    /// Whether the application keeps the connection after the present response.
    keeps: bool,
    /// Bytes of the request that the kernel has not taken.
    unsent: u64,
    /// Time of the last event, in ns of the monotonic clock.
    active_ns: u64,
}

/// A request that is forwarded.
struct ProxiedRequest {
    /// Present until the response has begun.
    exchange: Option<Exchange>,
    method: Method,
    conn: Option<UpstreamId>,
    /// The head for the application, for further attempts.
    head: Vec<u8>,
    framing: Framing,
    /// Whether the client waits for `100 Continue` before it sends its body.
    awaits_continue: bool,
    /// Whether the body is complete, and sent or queued.
    body_is_whole: bool,
    /// The body so far as it was sent, for another attempt; `None` if it is too long for that.
    replay: Option<Vec<u8>>,
    /// Whether more of the body is read only once fewer bytes wait.
    full: bool,
    /// The targets that have failed, as a bit mask.
    tried: u64,
    attempts: u32,
}

impl Proxy {
    pub(crate) fn new(upstream: Arc<Upstream>, counters: Arc<ProxyCounters>, context: HandlerContext) -> Self {
        let idle = (0..upstream.targets.len()).map(|_| Vec::new()).collect();
        Self {
            upstream,
            counters,
            context,
            conns: HashMap::new(),
            requests: HashMap::new(),
            idle,
            resolving: HashMap::new(),
            scratch: Box::new(ResponseHead::new()),
            spare: Vec::new(),
        }
    }

    /// Sends a request to a target: on a kept connection, or on a new one. `fault` is the reason of the attempt before.
    fn attempt(&mut self, key: ExchangeKey, fault: Option<GatewayFault>) {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get_mut(&key) else { return };
        let may_go_on = request.attempts <= self.upstream.settings.retries;
        let target = may_go_on.then(|| self.upstream.targets.choose(request.tried, now_ns)).flatten();
        let Some(target) = target else {
            return self.refuse(key, fault.unwrap_or(GatewayFault::Unreachable));
        };
        request.attempts += 1;
        let fresh_ns = if is_safe(request.method) { u64::MAX } else { FRESH_NS };
        // After a failure on a kept connection, the others are suspect as well.
        let kept = if fault.is_none() { self.take_idle(target, now_ns, fresh_ns) } else { None };
        self.resolve(target, now_ns, fault.is_some());
        let Some(chosen) = self.upstream.targets.get(target) else { return };
        let id = match kept {
            Some(id) => id,
            None => {
                let Some(request) = self.requests.get(&key) else { return };
                let Some(address) = chosen.address(request.attempts as usize - 1) else {
                    return self.refuse(key, GatewayFault::Unresolved);
                };
                let id = self.context.dial(address, None);
                self.context.deadline(id, self.upstream.settings.connect_time.nanoseconds());
                self.counters.dials.increment();
                self.conns.insert(id, UpstreamConn::new(target, now_ns));
                id
            }
        };
        chosen.begin();
        let (Some(request), Some(conn)) = (self.requests.get_mut(&key), self.conns.get_mut(&id)) else { return };
        request.conn = Some(id);
        conn.request = Some(key);
        conn.reader.begin(request.method);
        conn.active_ns = now_ns;
        let mut buffer = self.context.take_buffer();
        buffer.extend_from_slice(&request.head);
        if let Some(replay) = &request.replay {
            buffer.extend_from_slice(replay);
        }
        conn.unsent += buffer.len() as u64;
        self.context.send(id, [Segment::Bytes(buffer)]);
        if conn.connected {
            self.context.deadline(id, self.upstream.settings.response_time.nanoseconds());
            self.read_body(key);
        }
    }

    /// Resolves the name of a target again on the pool, if it is time to.
    fn resolve(&mut self, target: usize, now_ns: u64, is_failing: bool) {
        let Some(chosen) = self.upstream.targets.get(target) else { return };
        let is_failing = is_failing || chosen.address(0).is_none();
        if chosen.must_resolve(now_ns, is_failing) {
            let url = chosen.url().clone();
            let job = self.context.offload_remote(move || url.addresses());
            self.resolving.insert(job, target);
        }
    }

    /// Reads the body of a request, unless its client waits for the application's consent.
    fn read_body(&self, key: ExchangeKey) {
        if let Some(request) = self.requests.get(&key)
            && !request.body_is_whole
            && !request.awaits_continue
        {
            self.context.read_more(key);
        }
    }

    /// Takes a kept connection that was used within `fresh_ns`.
    fn take_idle(&mut self, target: usize, now_ns: u64, fresh_ns: u64) -> Option<UpstreamId> {
        let id = *self.idle.get(target)?.last()?;
        let conn = self.conns.get_mut(&id)?;
        if now_ns.saturating_sub(conn.active_ns) > fresh_ns {
            return None;
        }
        self.idle.get_mut(target)?.pop();
        conn.reused = true;
        self.counters.reuses.increment();
        Some(id)
    }

    /// Removes a connection from the kept ones.
    fn forget_idle(&mut self, id: UpstreamId, target: usize) {
        if let Some(idle) = self.idle.get_mut(target) {
            idle.retain(|other| *other != id);
        }
    }

    /// Responds with an error in place of the application's response.
    fn refuse(&mut self, key: ExchangeKey, fault: GatewayFault) {
        self.counters.failed(fault);
        let Some(request) = self.end_request(key) else { return };
        match request {
            Some(exchange) => {
                let reply = Reply::error(fault.status());
                self.context.respond(exchange, reply);
            }
            None => self.context.reset(key),
        }
    }

    /// Removes a request. Returns its exchange, if the response has not begun; `None` if there is no such request.
    #[allow(clippy::option_option, reason = "the two kinds of nothing differ")]
    fn end_request(&mut self, key: ExchangeKey) -> Option<Option<Exchange>> {
        let mut request = self.requests.remove(&key)?;
        if self.spare.len() < SPARE_MAX {
            request.head.clear();
            self.spare.push(request.head);
        }
        Some(request.exchange)
    }

    /// Closes a connection, and detaches it from its request. Returns the request, and whether another attempt cannot be seen
    /// twice by the application.
    fn drop_conn(&mut self, id: UpstreamId) -> Option<(UpstreamConn, Option<ExchangeKey>)> {
        let conn = self.conns.remove(&id)?;
        self.context.close(id);
        match conn.request {
            Some(key) => {
                if let Some(target) = self.upstream.targets.get(conn.target) {
                    target.end();
                }
                if let Some(request) = self.requests.get_mut(&key) {
                    request.conn = None;
                }
            }
            None => self.forget_idle(id, conn.target),
        }
        let key = conn.request;
        Some((conn, key))
    }

    /// Handles the failure of a connection.
    fn fail(&mut self, id: UpstreamId, fault: GatewayFault) {
        let now_ns = self.context.now().mono_ns;
        let Some((conn, Some(key))) = self.drop_conn(id) else { return };
        let Some(request) = self.requests.get_mut(&key) else { return };
        // An application may close a kept connection at any time: this says nothing about its health.
        let is_stale = conn.reused && conn.reader.is_untouched() && fault == GatewayFault::Ended;
        if !is_stale && fault.is_targets() && let Some(target) = self.upstream.targets.get(conn.target) {
            if target.failed(now_ns) {
                self.counters.ejections.increment();
            }
            request.tried |= 1 << conn.target;
            // With a single target, another attempt may find another of its addresses.
            if self.upstream.targets.len() == 1 && !conn.connected {
                request.tried = 0;
            }
        }
        if request.may_retry(&conn, is_stale) {
            self.counters.retries.increment();
            return self.attempt(key, Some(fault));
        }
        self.refuse(key, fault);
    }

    /// Reads bytes of a target.
    fn received(&mut self, id: UpstreamId, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let Self { conns, requests, scratch, context, counters, upstream, .. } = self;
            let Some(conn) = conns.get_mut(&id) else { return };
            conn.active_ns = context.now().mono_ns;
            let key = conn.request;
            let step = match conn.reader.step(scratch, rest, &mut conn.keeps) {
                Ok(step) => step,
                Err(fault) => return self.fail(id, fault.into()),
            };
            match step {
                ReadStep::More => return,
                ReadStep::Head(view, used) => {
                    let Some(key) = key else { return };
                    let Some(request) = requests.get_mut(&key) else { return };
                    rest = &rest[used..];
                    match view.head.status() {
                        100 => {
                            request.awaits_continue = false;
                            context.read_more(key);
                        }
                        101 => return self.fail(id, GatewayFault::Upgrade),
                        status @ 102..200 => {
                            if let Some(exchange) = &request.exchange {
                                exchange.interim(status, response_fields(&view));
                            }
                        }
                        status => {
                            if let Some(target) = upstream.targets.get(conn.target) {
                                target.succeeded();
                            }
                            counters.responded(status);
                            if let Some(exchange) = request.exchange.take() {
                                let mut reply = Reply::new(status).body(content(request.method, view.head));
                                reply.fields = response_fields(&view);
                                context.respond(exchange, reply);
                            }
                        }
                    }
                }
                ReadStep::Data(data, used) => {
                    let Some(key) = key else { return };
                    rest = &rest[used..];
                    if !data.is_empty() && context.write(key, data) as u64 >= WAITING_MAX {
                        context.pause(id);
                    }
                }
                ReadStep::End { keeps, used } => {
                    rest = &rest[used..];
                    self.complete(id, keeps && rest.is_empty());
                    if rest.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// A response is complete. Keeps the connection, or closes it.
    fn complete(&mut self, id: UpstreamId, keeps: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(key) = conn.request.take() else { return };
        let target = conn.target;
        let is_sent = self.requests.get(&key).is_some_and(|request| request.body_is_whole) && conn.unsent == 0;
        self.context.finish(key, Fields::new());
        self.end_request(key);
        if let Some(target) = self.upstream.targets.get(target) {
            target.end();
        }
        let settings = &self.upstream.settings;
        let Some(idle) = self.idle.get_mut(target) else { return };
        if keeps && is_sent && idle.len() < settings.keep as usize {
            idle.push(id);
            self.context.resume(id);
            self.context.deadline(id, settings.keep_time.nanoseconds());
        } else {
            self.conns.remove(&id);
            self.context.close(id);
        }
    }

    fn overdue(&mut self, id: UpstreamId) {
        let Some(conn) = self.conns.get(&id) else { return };
        let settings = &self.upstream.settings;
        let now_ns = self.context.now().mono_ns;
        let Some(key) = conn.request else {
            self.drop_conn(id);
            return;
        };
        if !conn.connected {
            return self.fail(id, GatewayFault::ConnectTime);
        }
        let has_begun = self.requests.get(&key).is_some_and(|request| request.exchange.is_none());
        let (limit_ns, fault) = if has_begun {
            (settings.idle_time.nanoseconds(), GatewayFault::IdleTime)
        } else {
            (settings.response_time.nanoseconds(), GatewayFault::ResponseTime)
        };
        // Activity does not move the deadline: it is looked at when it has passed.
        let left_ns = conn.active_ns.saturating_add(limit_ns).saturating_sub(now_ns);
        if left_ns == 0 { self.fail(id, fault) } else { self.context.deadline(id, left_ns) }
    }
}

impl Handler for Proxy {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let mut head = self.spare.pop().unwrap_or_default();
        let origin = request.origin();
        let plan = RequestHeadPlan {
            strip: "",
            upgrading: Upgrading::No,
            keep: self.upstream.settings.keep > 0,
            origin: &origin,
        };
        if !put_request_head(&mut head, request, &plan) {
            self.context.refused("path");
            return Outcome::Now(Reply::error(400));
        }
        let key = exchange.key();
        let framing = request.framing();
        let expects = request.known(Known::Expect).is_some();
        self.requests.insert(
            key,
            ProxiedRequest {
                exchange: Some(exchange),
                method: request.method(),
                conn: None,
                head,
                framing,
                awaits_continue: expects && framing != Framing::None,
                body_is_whole: framing == Framing::None,
                replay: Some(Vec::new()),
                full: false,
                tried: 0,
                attempts: 0,
            },
        );
        self.attempt(key, None);
        Outcome::Later
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        let Some(id) = request.conn else { return };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut buffer = self.context.take_buffer();
        match piece {
            Piece::Data(data) if request.framing == Framing::Chunked => {
                put_chunk_head(&mut buffer, data.len() as u64);
                buffer.extend_from_slice(data);
                buffer.extend_from_slice(b"\r\n");
            }
            Piece::Data(data) => buffer.extend_from_slice(data),
            Piece::End => {
                request.body_is_whole = true;
                if request.framing == Framing::Chunked {
                    buffer.extend_from_slice(LAST_CHUNK);
                }
            }
            Piece::Broken => {
                self.drop_conn(id);
                match self.end_request(key) {
                    Some(Some(exchange)) => self.context.respond(exchange, Reply::error(400).and_close()),
                    Some(None) => self.context.reset(key),
                    None => {}
                }
                return;
            }
        }
        request.replay = request.replay.take().filter(|kept| kept.len() + buffer.len() <= REPLAY_BYTES_MAX);
        if let Some(replay) = &mut request.replay {
            replay.extend_from_slice(&buffer);
        }
        conn.active_ns = self.context.now().mono_ns;
        conn.unsent += buffer.len() as u64;
        request.full = conn.unsent >= WAITING_MAX;
        let goes_on = !request.full && !request.body_is_whole;
        self.context.send(id, [Segment::Bytes(buffer)]);
        if goes_on {
            self.context.read_more(key);
        }
    }

    fn writable(&mut self, key: ExchangeKey) {
        if let Some(id) = self.requests.get(&key).and_then(|request| request.conn) {
            self.context.resume(id);
        }
    }

    fn gone(&mut self, key: ExchangeKey) {
        let conn = self.requests.get(&key).and_then(|request| request.conn);
        if let Some(id) = conn {
            self.drop_conn(id);
        }
        self.end_request(key);
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        let Some(target) = self.resolving.remove(&job).and_then(|target| self.upstream.targets.get(target)) else {
            return;
        };
        // If the name cannot be resolved now, its last addresses stay in use.
        if let Some(Ok(addresses)) =
            done.and_then(|done| done.downcast::<io::Result<Vec<Address>>>().ok()).map(|result| *result)
        {
            target.set_addresses(addresses);
        }
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        match event {
            UpstreamEvent::Connected => {
                let Some(conn) = self.conns.get_mut(&id) else { return };
                conn.connected = true;
                conn.active_ns = self.context.now().mono_ns;
                self.context.deadline(id, self.upstream.settings.response_time.nanoseconds());
                if let Some(key) = conn.request {
                    self.read_body(key);
                }
            }
            UpstreamEvent::Received(bytes) => self.received(id, bytes),
            UpstreamEvent::Sent(bytes) => {
                let Some(conn) = self.conns.get_mut(&id) else { return };
                conn.unsent = conn.unsent.saturating_sub(bytes);
                conn.active_ns = self.context.now().mono_ns;
                let (unsent, key) = (conn.unsent, conn.request);
                if unsent < WAITING_MAX
                    && let Some(key) = key
                    && let Some(request) = self.requests.get_mut(&key)
                    && request.full
                {
                    request.full = false;
                    self.context.read_more(key);
                }
            }
            UpstreamEvent::Ended => {
                let Some(conn) = self.conns.get_mut(&id) else { return };
                let is_busy = conn.request.is_some();
                match conn.reader.end() {
                    Ok(()) if is_busy => self.complete(id, false),
                    Ok(()) => {
                        self.drop_conn(id);
                    }
                    Err(fault) => self.fail(id, fault.into()),
                }
            }
            UpstreamEvent::Overdue => self.overdue(id),
            UpstreamEvent::Failed(fault) => {
                let Some(conn) = self.conns.get(&id) else { return };
                let truncated = conn.connected && !conn.reader.is_untouched();
                let fault = if truncated {
                    GatewayFault::Truncated
                } else {
                    GatewayFault::of_connection(&fault, conn.connected)
                };
                self.fail(id, fault);
            }
            _ => {}
        }
    }
}

impl UpstreamConn {
    const fn new(target: usize, now_ns: u64) -> Self {
        Self {
            target,
            request: None,
            reader: ResponseReader::new(),
            connected: false,
            reused: false,
            keeps: false,
            unsent: 0,
            active_ns: now_ns,
        }
    }
}

impl ProxiedRequest {
    /// Whether another attempt cannot make the application execute the request twice. It cannot if the connection was never
    /// established. It probably does not if the application closed a kept connection without a byte of a response; then only
    /// requests that change nothing are repeated. `is_stale`: this is that case.
    fn may_retry(&self, conn: &UpstreamConn, is_stale: bool) -> bool {
        self.exchange.is_some()
            && self.replay.is_some()
            && (!conn.connected || is_stale && is_safe(self.method))
    }
}

/// Whether a method changes nothing at the application (RFC 9110 §9.2.1).
const fn is_safe(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// The content of the response for the client.
fn content(method: Method, head: &ResponseHead) -> Body {
    match head.framing(method) {
        ResponseFraming::None | ResponseFraming::Chunked | ResponseFraming::Close => Body::Open(None),
        ResponseFraming::Length(length) => Body::Open(Some(length)),
    }
}

/// The fields of a response for the client: all but those of the connection, and those that only this server obeys.
fn response_fields(view: &HeadView<'_>) -> Fields {
    let mut fields = Fields::new();
    let named = || view.head.all(view.bytes, Known::Connection).flat_map(field::list);
    for (name, value) in view.head.fields(view.bytes) {
        let is_dropped = match Known::of(name) {
            Some(known) => matches!(
                known,
                Known::Connection
                    | Known::ContentLength
                    | Known::Date
                    | Known::KeepAlive
                    | Known::ProxyConnection
                    | Known::Te
                    | Known::Trailer
                    | Known::TransferEncoding
                    | Known::Upgrade
            ),
            None => name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-")),
        };
        if is_dropped || named().any(|option| option.eq_ignore_ascii_case(name)) {
            continue;
        }
        // The reader has checked both: a field that is not well formed never gets here.
        if let Ok(name) = std::str::from_utf8(name) {
            let _ = fields.push(name, value);
        }
    }
    fields
}

/// Buffers that are kept for further requests.
const SPARE_MAX: usize = 32;
