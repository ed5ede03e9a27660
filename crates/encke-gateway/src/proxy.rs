//! The proxy of one worker: forwards requests to targets and their responses to clients, without a thread and without a lock.
//!
//! ```text
//!  call ─► ProxiedRequest ─┬─ a kept connection ─► UpstreamConn ─► request head, body
//!                          └─ a new one ─► dial ─► Connected ─────┘      │
//!  client ◄── write, finish ◄── AppResponseReader ◄── Received ◄────────────┘
//!                                  │ complete, and the connection may be kept ─► idle, for the next request
//!  failed before a byte of the response ─► another attempt, by the rules of `may_retry` ─► 502, 503, 504
//! ```
//! Bytes pass from event to event: each is copied once, into the buffer of the send on the other side. While more than 64 KiB
//! wait on one side, the other side is not read.

use std::collections::HashMap;
use std::sync::Arc;

use encke_io::{Done, Now, Segment};
use encke_server::{
    Body, Exchange, ExchangeKey, Fields, HandlerContext, JobId, Origin, Piece, Reply, UpstreamEvent,
    UpstreamId,
};
use encke_wire::field::{self, Known};
use encke_wire::http1::{Framing, LAST_CHUNK, ResponseFraming, ResponseHead, put_chunk_head};
use encke_wire::method::Method;

use crate::fault::GatewayFault;
use crate::field_changes::FieldChanges;
use crate::figures::{ProxyCounters, report_ejection, report_return};
use crate::id_map::IdMap;
use crate::response_reader::{AppResponseReader, HeadView, ReadStep};
use crate::route::SiteRoute;
use crate::settings::{FilesOrder, UpstreamSettings};
use crate::site_rules::SiteFields;
use crate::target::UpstreamTarget;
use crate::upstream::{KeptConns, NamedUpstream};

/// Bytes that may wait on one side before the other side is no longer read.
const WAITING_MAX: u64 = 64 * 1024;
/// Interim responses (1xx) to one request. Applications send a few; each is a message to the worker.
const INTERIMS_MAX: u8 = 16;
/// Time after which the gateway reads the body of a client that waits for the application's consent, in ns.
const CONSENT_NS: u64 = 1_000_000_000;
/// Bytes of a replaced response that are read, so that the connection can be kept. After that it is closed.
const DROPPED_MAX: u64 = 64 * 1024;
/// Bytes of a request's body that are kept for another attempt.
const REPLAY_BYTES_MAX: usize = 64 * 1024;
/// A request that must not be repeated is sent on a kept connection only if that was used this recently, in ns: the longer a
/// connection rests, the more likely the application is just closing it.
const FRESH_NS: u64 = 1_000_000_000;

/// The proxy of a worker.
pub(crate) struct Proxy {
    upstreams: Vec<Arc<NamedUpstream>>,
    counters: Arc<ProxyCounters>,
    context: HandlerContext,
    /// All connections to targets.
    conns: IdMap<UpstreamId, UpstreamConn>,
    /// All requests whose response is incomplete.
    requests: IdMap<ExchangeKey, ProxiedRequest>,
    /// Kept connections, by upstream.
    kept: Vec<KeptConns>,
    /// Names that are resolved on the pool, by job: the upstream and the target.
    resolving: HashMap<JobId, (usize, usize)>,
    /// The head of the response that is being read.
    scratch: Box<ResponseHead>,
    /// Buffers of finished requests.
    spare: Vec<Vec<u8>>,
    /// Requests whose response is to be replaced, for the gateway.
    replaced: Vec<(ProxiedRequest, Replacement)>,
}

/// A response in place of the application's.
pub(crate) enum Replacement {
    /// The files of the site.
    Files,
    /// The file that the application names in `X-Accel-Redirect`, as a path of the site, with the application's fields.
    Path(Vec<u8>, Fields),
    /// The file that the application names in `X-Sendfile`, as an absolute path, with the application's fields.
    File(Vec<u8>, Fields),
    /// The site's page for an error.
    ErrorPage(u16, Option<&'static &'static str>),
}

/// A connection to a target.
struct UpstreamConn {
    upstream: usize,
    target: usize,
    /// The request that it carries; `None` while it is kept.
    request: Option<ExchangeKey>,
    reader: AppResponseReader,
    connected: bool,
    /// Whether it has carried a request before the present one.
    reused: bool,
    /// Whether the application keeps the connection after the present response.
    keeps: bool,
    /// Bytes of the request that the kernel has not taken.
    unsent: u64,
    /// Time of the last event, in ns of the monotonic clock.
    active_ns: u64,
    /// Time of the present request.
    begun_ns: u64,
    /// Whether receiving is paused, because the client takes the response slowly.
    paused: bool,
    /// Interim responses to the present request.
    interims: u8,
    /// Whether this side has ended, so that the connection carries no further request.
    shut: bool,
}

/// The target and authority of a client's request.
#[derive(Clone)]
pub(crate) struct ClientTarget {
    pub(crate) target: Vec<u8>,
    pub(crate) authority: Vec<u8>,
}

/// A request that is forwarded.
pub(crate) struct ProxiedRequest {
    /// Present until the response has begun.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) route: Arc<SiteRoute>,
    pub(crate) origin: Origin,
    /// The client's target and authority, if the application gets others.
    pub(crate) client: Option<Box<ClientTarget>>,
    /// The fields that the site gives the response.
    pub(crate) site: Option<Box<SiteFields>>,
    /// The time of the request.
    pub(crate) started: Now,
    upstream: usize,
    pub(crate) method: Method,
    conn: Option<UpstreamId>,
    /// The head for the application, for further attempts.
    pub(crate) head: Vec<u8>,
    framing: Framing,
    /// Whether the client waits for `100 Continue` before it sends its body.
    awaits_continue: bool,
    /// Whether the body is complete, and sent or queued.
    body_is_whole: bool,
    /// The body so far as it was sent, for another attempt; `None` if it is too long for that.
    replay: Option<Vec<u8>>,
    /// Whether more of the body is read only once fewer bytes wait.
    full: bool,
    /// Bytes of the body so far.
    body_seen: u64,
    /// The targets that have failed, as a bit mask.
    tried: u64,
    attempts: u32,
    /// Whether only new connections are used.
    avoids_kept: bool,
    /// Times that an application has sent the client to another path.
    pub(crate) redirects: u8,
    /// The response in place of the application's, whose content is dropped.
    replacement: Option<Replacement>,
    /// Bytes of that content.
    dropped: u64,
}

impl Proxy {
    pub(crate) fn new(
        upstreams: Vec<Arc<NamedUpstream>>,
        counters: Arc<ProxyCounters>,
        context: HandlerContext,
    ) -> Self {
        let kept = upstreams.iter().map(|upstream| KeptConns::new(upstream.targets.len())).collect();
        Self {
            upstreams,
            kept,
            counters,
            context,
            conns: IdMap::default(),
            requests: IdMap::default(),
            resolving: HashMap::new(),
            scratch: Box::new(ResponseHead::new()),
            spare: Vec::new(),
            replaced: Vec::new(),
        }
    }

    pub(crate) fn counters(&self) -> Arc<ProxyCounters> {
        Arc::clone(&self.counters)
    }

    /// Returns a buffer for the head of a request.
    pub(crate) fn head_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// The next request whose response is to be replaced.
    pub(crate) fn next_replaced(&mut self) -> Option<(ProxiedRequest, Replacement)> {
        self.replaced.pop()
    }

    /// Forwards a request.
    pub(crate) fn begin(&mut self, request: ProxiedRequest) {
        let Some(key) = request.exchange.as_ref().map(Exchange::key) else { return };
        self.requests.insert(key, request);
        self.attempt(key, None);
    }

    /// Sends a request to a target: on a kept connection, or on a new one. `fault` is the reason of the attempt before.
    fn attempt(&mut self, key: ExchangeKey, fault: Option<GatewayFault>) {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get_mut(&key) else { return };
        let Some(upstream) = self.upstreams.get(request.upstream).map(Arc::clone) else { return };
        let may_go_on = request.attempts <= upstream.settings.retries;
        let target = may_go_on.then(|| upstream.targets.choose(request.tried, now_ns)).flatten();
        let Some(target) = target else {
            return self.refuse(key, fault.unwrap_or(GatewayFault::Unreachable));
        };
        request.attempts += 1;
        let attempt = request.attempts as usize - 1;
        let place = request.upstream;
        let fresh_ns = if is_safe(request.method) { u64::MAX } else { FRESH_NS };
        let avoids_kept = request.avoids_kept;
        let kept = if avoids_kept { None } else { self.take_kept(place, target, now_ns, fresh_ns) };
        self.resolve(place, target, now_ns, fault.is_some());
        let Some(chosen) = upstream.targets.get(target) else { return };
        let id = match kept {
            Some(id) => id,
            None => {
                let Some(address) = chosen.address(attempt) else {
                    return self.refuse(key, GatewayFault::Unresolved);
                };
                let Ok(session) = chosen.session() else { return self.refuse(key, GatewayFault::Tls) };
                let id = self.context.dial(address, session);
                self.context.deadline(id, upstream.settings.connect_time.nanoseconds());
                self.counters.dials.increment();
                self.conns.insert(id, UpstreamConn::new(place, target, now_ns));
                id
            }
        };
        chosen.begin();
        let (Some(request), Some(conn)) = (self.requests.get_mut(&key), self.conns.get_mut(&id)) else {
            return;
        };
        request.conn = Some(id);
        conn.request = Some(key);
        conn.reader.begin(request.method);
        conn.active_ns = now_ns;
        conn.begun_ns = now_ns;
        conn.interims = 0;
        let mut buffer = self.context.take_buffer();
        buffer.extend_from_slice(&request.head);
        if let Some(replay) = &request.replay {
            buffer.extend_from_slice(replay);
        }
        conn.unsent += buffer.len() as u64;
        self.context.send(id, [Segment::Bytes(buffer)]);
        if conn.connected {
            let wait_ns = request.wait_ns(&upstream.settings);
            self.context.deadline(id, wait_ns);
            self.read_body(key);
        }
    }

    /// Resolves the name of a target again on the pool, if it is time to.
    fn resolve(&mut self, upstream: usize, target: usize, now_ns: u64, is_failing: bool) {
        let chosen = self.upstreams.get(upstream).and_then(|upstream| upstream.targets.get(target));
        let Some(chosen) = chosen else { return };
        let is_failing = is_failing || chosen.address(0).is_none();
        if chosen.must_resolve(now_ns, is_failing) {
            let url = chosen.url().clone();
            let job = self.context.offload_remote(move || url.addresses());
            self.resolving.insert(job, (upstream, target));
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
    fn take_kept(
        &mut self,
        upstream: usize,
        target: usize,
        now_ns: u64,
        fresh_ns: u64,
    ) -> Option<UpstreamId> {
        let kept = self.kept.get_mut(upstream)?;
        let id = kept.last(target)?;
        let conn = self.conns.get_mut(&id)?;
        if now_ns.saturating_sub(conn.active_ns) > fresh_ns {
            return None;
        }
        kept.pop(target);
        conn.reused = true;
        self.counters.reuses.increment();
        Some(id)
    }

    /// The target of a connection.
    fn target(&self, conn: &UpstreamConn) -> Option<&UpstreamTarget> {
        self.upstreams.get(conn.upstream)?.targets.get(conn.target)
    }

    /// Responds with an error in place of the application's response.
    fn refuse(&mut self, key: ExchangeKey, fault: GatewayFault) {
        self.counters.failed(fault);
        self.fail_request(key, fault.status(), fault.reason());
    }

    /// Responds with an error page, or resets the response if it has begun.
    fn fail_request(&mut self, key: ExchangeKey, status: u16, reason: &'static &'static str) {
        let Some(mut request) = self.requests.remove(&key) else { return };
        if request.exchange.is_none() {
            self.recycle(request);
            return self.context.reset(key);
        }
        if request.route.error_page(status).is_some() {
            return self.replaced.push((request, Replacement::ErrorPage(status, Some(reason))));
        }
        if let Some(exchange) = request.exchange.take() {
            let mut reply = Reply::error(status).because(reason);
            request.dress(&mut reply);
            self.context.respond(exchange, if request.body_is_whole { reply } else { reply.and_close() });
        }
        self.recycle(request);
    }

    /// Ends a request whose body has broken off. The worker may have responded already.
    fn end_broken(&mut self, key: ExchangeKey) {
        let Some(mut request) = self.requests.remove(&key) else { return };
        match request.exchange.take() {
            Some(exchange) => {
                self.context.respond(exchange, Reply::error(400).because(&"body_broken").and_close());
            }
            None => self.context.reset(key),
        }
        self.recycle(request);
    }

    /// Keeps the buffer of a request that is over.
    pub(crate) fn recycle(&mut self, mut request: ProxiedRequest) {
        if self.spare.len() < SPARE_MAX {
            request.head.clear();
            self.spare.push(request.head);
        }
    }

    /// Closes a connection, and detaches it from its request. Returns the request, and whether another attempt cannot be seen
    /// twice by the application.
    fn drop_conn(&mut self, id: UpstreamId) -> Option<(UpstreamConn, Option<ExchangeKey>)> {
        let conn = self.conns.remove(&id)?;
        self.context.close(id);
        match conn.request {
            Some(key) => {
                if let Some(target) = self.target(&conn) {
                    target.end();
                }
                if let Some(request) = self.requests.get_mut(&key) {
                    request.conn = None;
                }
            }
            None => {
                if let Some(kept) = self.kept.get_mut(conn.upstream) {
                    kept.remove(conn.target, id);
                }
            }
        }
        let key = conn.request;
        Some((conn, key))
    }

    /// Handles the failure of a connection.
    fn fail(&mut self, id: UpstreamId, fault: GatewayFault) {
        let now_ns = self.context.now().mono_ns;
        let Some((conn, Some(key))) = self.drop_conn(id) else { return };
        // An application may close a kept connection at any time: this says nothing about its health.
        let is_stale = conn.reused && conn.reader.is_untouched() && fault == GatewayFault::Ended;
        let counts = !is_stale && fault.is_targets();
        if counts
            && let Some(upstream) = self.upstreams.get(conn.upstream)
            && let Some(target) = upstream.targets.get(conn.target)
            && target.failed(now_ns)
        {
            self.counters.ejections.increment();
            report_ejection(upstream, target, fault);
        }
        let alone = self.upstreams.get(conn.upstream).is_some_and(|upstream| upstream.targets.len() == 1);
        let Some(request) = self.requests.get_mut(&key) else { return };
        if request.replacement.is_some() {
            // The content that fails is dropped anyway.
            return self.replace(key);
        }
        // With a single target, another attempt may find another of its addresses.
        if counts && (!alone || conn.connected) {
            request.tried |= 1 << conn.target;
        }
        // The application may be closing its other kept connections, too.
        request.avoids_kept |= is_stale;
        if is_stale {
            // No application has seen this attempt. There is one at most, since all further ones use new connections.
            request.attempts = request.attempts.saturating_sub(1);
        }
        let is_early = conn.reader.is_untouched()
            && matches!(fault, GatewayFault::Ended | GatewayFault::ResponseTime)
            && !conn.shut
            && self
                .upstreams
                .get(conn.upstream)
                .is_some_and(|upstream| upstream.targets.has_other(request.tried));
        if request.may_retry(&conn, is_stale || is_early) {
            self.counters.retries.increment();
            return self.attempt(key, Some(fault));
        }
        self.refuse(key, fault);
    }

    /// Passes a request to the gateway, which replaces the response.
    fn replace(&mut self, key: ExchangeKey) {
        if let Some(mut request) = self.requests.remove(&key)
            && let Some(replacement) = request.replacement.take()
        {
            self.replaced.push((request, replacement));
        }
    }

    /// Reads bytes of a target.
    fn received(&mut self, id: UpstreamId, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let Self { conns, requests, scratch, context, counters, upstreams, .. } = self;
            let Some(conn) = conns.get_mut(&id) else { return };
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
                    conn.active_ns = context.now().mono_ns;
                    if view.head.status() < 200 {
                        conn.interims += 1;
                        if conn.interims > INTERIMS_MAX {
                            return self.fail(id, GatewayFault::Malformed);
                        }
                    }
                    match view.head.status() {
                        100 => {
                            request.awaits_continue = false;
                            context.read_more(key);
                        }
                        101 => return self.fail(id, GatewayFault::Upgrade),
                        status @ 102..200 => {
                            if let Some(exchange) = &request.exchange {
                                exchange.interim(status, response_fields(&view, &request.route.response));
                            }
                        }
                        status => {
                            let upstream = upstreams.get(conn.upstream);
                            if let Some(upstream) = upstream
                                && let Some(target) = upstream.targets.get(conn.target)
                            {
                                if target.succeeded() {
                                    report_return(upstream, target);
                                }
                                target.tally.responded(status, conn.active_ns.saturating_sub(conn.begun_ns));
                            }
                            counters.responded(status);
                            request.replacement = request.replacement_for(&view);
                            if request.replacement.is_none()
                                && let Some(exchange) = request.exchange.take()
                            {
                                let mut reply = Reply::new(status).body(content(request.method, view.head));
                                reply.fields = response_fields(&view, &request.route.response);
                                request.dress(&mut reply);
                                if let Some(settings) = upstream.map(|upstream| &upstream.settings)
                                    && settings.idle_time < settings.response_time
                                {
                                    context.deadline(id, settings.idle_time.nanoseconds());
                                }
                                if upstream.is_some_and(|upstream| upstream.settings.via) {
                                    reply.fields.push_lines(VIA);
                                }
                                context.respond(exchange, reply);
                            }
                        }
                    }
                }
                ReadStep::Data(data, used) => {
                    let Some(key) = key else { return };
                    rest = &rest[used..];
                    conn.active_ns = context.now().mono_ns;
                    match requests.get_mut(&key) {
                        Some(request) if request.replacement.is_some() => {
                            request.dropped += data.len() as u64;
                            if request.dropped > DROPPED_MAX {
                                self.drop_conn(id);
                                return self.replace(key);
                            }
                        }
                        _ if data.is_empty() => {}
                        _ if context.write(key, data) as u64 >= WAITING_MAX => {
                            conn.paused = true;
                            context.pause(id);
                        }
                        _ => {}
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
        let keeps = keeps && !conn.shut;
        let (place, target, unsent) = (conn.upstream, conn.target, conn.unsent);
        conn.paused = false;
        let Some(upstream) = self.upstreams.get(place).map(Arc::clone) else { return };
        if let Some(target) = upstream.targets.get(target) {
            target.end();
        }
        let request = self.requests.get_mut(&key);
        let is_sent = request.as_ref().is_some_and(|request| request.body_is_whole) && unsent == 0;
        if request.is_some_and(|request| request.replacement.is_some()) {
            self.replace(key);
        } else {
            self.context.finish(key, Fields::new());
            if let Some(request) = self.requests.remove(&key) {
                self.recycle(request);
            }
        }
        let Some(kept) = self.kept.get_mut(place) else { return };
        if keeps && is_sent && kept.push(target, id, upstream.settings.keep) {
            self.context.resume(id);
            self.context.deadline(id, upstream.settings.keep_time.nanoseconds());
        } else {
            self.conns.remove(&id);
            self.context.close(id);
        }
    }

    fn overdue(&mut self, id: UpstreamId) {
        let Some(conn) = self.conns.get(&id) else { return };
        let Some(upstream) = self.upstreams.get(conn.upstream).map(Arc::clone) else { return };
        let settings = &upstream.settings;
        let now_ns = self.context.now().mono_ns;
        let Some(key) = conn.request else {
            self.drop_conn(id);
            return;
        };
        if !conn.connected {
            return self.fail(id, GatewayFault::ConnectTime);
        }
        let request = self.requests.get_mut(&key);
        if let Some(request) = request
            && request.exchange.is_some()
            && !request.body_is_whole
            && !request.full
        {
            // The client is slow with its body, which the worker's own limit bounds. Or it waits for a consent that the application
            // does not give, as applications of HTTP/1.0 do not: RFC 9110 §10.1.1 lets it send its body after some time.
            request.awaits_continue = false;
            self.context.deadline(id, settings.response_time.nanoseconds());
            return self.read_body(key);
        }
        if conn.paused {
            // The client is slow, which the worker's own limit bounds, and the application waits for it.
            return self.context.deadline(id, settings.idle_time.nanoseconds());
        }
        let has_begun = self.requests.get(&key).is_some_and(|request| request.exchange.is_none());
        let (limit_ns, fault) = if has_begun {
            (settings.idle_time.nanoseconds(), GatewayFault::IdleTime)
        } else {
            (settings.response_time.nanoseconds(), GatewayFault::ResponseTime)
        };
        // Activity does not move the deadline. An expired deadline checks the time of the last activity.
        let left_ns = conn.active_ns.saturating_add(limit_ns).saturating_sub(now_ns);
        if left_ns == 0 { self.fail(id, fault) } else { self.context.deadline(id, left_ns) }
    }
}

impl Proxy {
    /// Whether the proxy has this request.
    pub(crate) fn has(&self, key: ExchangeKey) -> bool {
        self.requests.contains_key(&key)
    }

    /// Handles a piece of a request's body.
    pub(crate) fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        if request.body_is_whole && piece != Piece::Broken {
            // The rest of the body of an earlier request, from which an application has sent the client here.
            return;
        }
        let Some(id) = request.conn else { return };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut buffer = self.context.take_buffer();
        match piece {
            Piece::Data(data) => {
                request.body_seen += data.len() as u64;
                if request.route.exceeds(request.body_seen) {
                    self.drop_conn(id);
                    return self.fail_request(key, 413, &"route_body_bytes");
                }
                if request.framing == Framing::Chunked {
                    put_chunk_head(&mut buffer, data.len() as u64);
                    buffer.extend_from_slice(data);
                    buffer.extend_from_slice(b"\r\n");
                } else {
                    buffer.extend_from_slice(data);
                }
            }
            Piece::End => {
                request.body_is_whole = true;
                if request.framing == Framing::Chunked {
                    buffer.extend_from_slice(LAST_CHUNK);
                }
            }
            Piece::Broken => {
                self.drop_conn(id);
                return self.end_broken(key);
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

    pub(crate) fn writable(&mut self, key: ExchangeKey) {
        if let Some(id) = self.requests.get(&key).and_then(|request| request.conn)
            && let Some(conn) = self.conns.get_mut(&id)
        {
            conn.paused = false;
            conn.active_ns = self.context.now().mono_ns;
            self.context.resume(id);
        }
    }

    /// The client has ended its side. So does this one towards the application, which may then give up the request.
    pub(crate) fn ended(&mut self, key: ExchangeKey) {
        if let Some(request) = self.requests.get(&key)
            && request.body_is_whole
            && let Some(id) = request.conn
            && let Some(conn) = self.conns.get_mut(&id)
        {
            conn.shut = true;
            self.context.shutdown(id);
        }
    }

    pub(crate) fn gone(&mut self, key: ExchangeKey) {
        let conn = self.requests.get(&key).and_then(|request| request.conn);
        if let Some(id) = conn {
            self.drop_conn(id);
        }
        if let Some(request) = self.requests.remove(&key) {
            self.recycle(request);
        }
    }

    /// Handles the end of a job. Returns its result if the job is not one of the proxy's.
    pub(crate) fn offloaded(&mut self, job: JobId, done: Option<Done>) -> Option<Option<Done>> {
        let Some((upstream, target)) = self.resolving.remove(&job) else { return Some(done) };
        let target = self.upstreams.get(upstream)?.targets.get(target)?;
        target.resolved(done);
        None
    }

    pub(crate) fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        match event {
            UpstreamEvent::Connected => {
                let now_ns = self.context.now().mono_ns;
                let Some(conn) = self.conns.get_mut(&id) else { return };
                conn.connected = true;
                let connect_ns = now_ns.saturating_sub(conn.active_ns);
                conn.active_ns = now_ns;
                if let Some(upstream) = self.upstreams.get(conn.upstream) {
                    let request = conn.request.and_then(|key| self.requests.get(&key));
                    let wait_ns = request.map_or(u64::MAX, |request| request.wait_ns(&upstream.settings));
                    self.context.deadline(id, wait_ns);
                    if let Some(target) = upstream.targets.get(conn.target) {
                        target.tally.connected(connect_ns);
                    }
                }
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
    const fn new(upstream: usize, target: usize, now_ns: u64) -> Self {
        Self {
            upstream,
            target,
            request: None,
            reader: AppResponseReader::new(),
            connected: false,
            reused: false,
            keeps: false,
            unsent: 0,
            active_ns: now_ns,
            begun_ns: now_ns,
            paused: false,
            interims: 0,
            shut: false,
        }
    }
}

impl ProxiedRequest {
    /// Creates a request to be forwarded. `head` is for the application.
    pub(crate) fn new(
        (exchange, route, upstream): (Option<Exchange>, Arc<SiteRoute>, usize),
        (method, framing, expects): (Method, Framing, bool),
        (origin, started): (Origin, Now),
        head: Vec<u8>,
    ) -> Self {
        Self {
            exchange,
            route,
            origin,
            client: None,
            site: None,
            started,
            upstream,
            method,
            conn: None,
            head,
            framing,
            awaits_continue: expects && framing != Framing::None,
            body_is_whole: matches!(framing, Framing::None | Framing::Length(0)),
            replay: Some(Vec::new()),
            full: false,
            body_seen: 0,
            tried: 0,
            attempts: 0,
            avoids_kept: false,
            redirects: 0,
            replacement: None,
            dropped: 0,
        }
    }

    /// Gives a response the fields of the site.
    fn dress(&self, reply: &mut Reply) {
        if let Some(site) = &self.site {
            site.apply(reply);
        }
    }

    /// The time until the next check of the request, in ns.
    fn wait_ns(&self, settings: &UpstreamSettings) -> u64 {
        let response_ns = settings.response_time.nanoseconds();
        if self.awaits_continue { response_ns.min(CONSENT_NS) } else { response_ns }
    }

    /// The response in place of the application's, if its head or the route says so.
    fn replacement_for(&self, view: &HeadView<'_>) -> Option<Replacement> {
        self.exchange.as_ref()?;
        let (head, bytes, status) = (view.head, view.bytes, view.head.status());
        let fields = || response_fields(view, &self.route.response);
        if let Some(path) = head.field(bytes, "X-Accel-Redirect") {
            return Some(Replacement::Path(path.to_vec(), fields()));
        }
        if !self.route.sendfile.is_empty()
            && let Some(path) =
                ["X-Sendfile", "X-Lighttpd-Send-File"].iter().find_map(|name| head.field(bytes, name))
        {
            return Some(Replacement::File(path.to_vec(), fields()));
        }
        let reads = matches!(self.method, Method::Get | Method::Head);
        if status == 404 && self.route.files == Some(FilesOrder::Last) && reads {
            return Some(Replacement::Files);
        }
        let intercepts = self.route.intercept_errors && self.route.error_page(status).is_some();
        intercepts.then_some(Replacement::ErrorPage(status, None))
    }

    /// Whether another attempt is safe. It is if the connection was never established, because no application has executed the
    /// request. `is_early`: the application closed a kept connection without a byte of a response, so it probably has not seen the
    /// request, or another target may respond in its place. Then only requests that change nothing are repeated (RFC 9110 §9.2.2).
    fn may_retry(&self, conn: &UpstreamConn, is_early: bool) -> bool {
        self.exchange.is_some()
            && self.replay.is_some()
            && (!conn.connected || is_early && is_safe(self.method))
    }
}

/// Whether a method changes nothing at the application (RFC 9110 §9.2.1).
const fn is_safe(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// The content of the response for the client.
fn content(method: Method, head: &ResponseHead) -> Body {
    // The length in a response to HEAD is that of the content which GET would get. The worker sends none.
    let method = if method == Method::Head { Method::Get } else { method };
    match head.framing(method) {
        ResponseFraming::None | ResponseFraming::Chunked | ResponseFraming::Close => Body::Open(None),
        ResponseFraming::Length(length) => Body::Open(Some(length)),
    }
}

/// The fields of a response for the client: all but those of the connection, and those that only this server obeys.
pub(crate) fn response_fields(view: &HeadView<'_>, changes: &FieldChanges) -> Fields {
    let mut fields = Fields::with_capacity(view.bytes.len());
    let has_named = view.head.known(view.bytes, Known::Connection).is_some();
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
            None => is_order(name),
        };
        if is_dropped
            || changes.drops(name)
            || has_named && named().any(|option| option.eq_ignore_ascii_case(name))
        {
            continue;
        }
        // The reader has checked both: a field that is not well formed never gets here.
        if let Ok(name) = std::str::from_utf8(name) {
            let _ = fields.push(name, value);
        }
    }
    changes.extend(&mut fields);
    fields
}

/// Whether a field of a response is for this server only.
fn is_order(name: &[u8]) -> bool {
    name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
        || name.eq_ignore_ascii_case(b"x-sendfile")
        || name.eq_ignore_ascii_case(b"x-lighttpd-send-file")
}

/// This server in the path of a message.
pub(crate) const VIA: &[u8] = b"Via: 1.1 encke\r\n";
/// Buffers that are kept for further requests.
const SPARE_MAX: usize = 32;
