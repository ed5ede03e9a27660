//! The proxy of one worker: forwards requests to targets and their responses to clients, without a thread and without a lock.
//!
//! ```text
//!  call ─► ProxiedRequest ─┬─ a kept connection ─► UpstreamConn ─► request head, body
//!                          └─ a new one ─► dial ─► Connected ─────┘      │
//!  client ◄── write, finish ◄── AppResponseReader ◄── Received ◄────────────┘
//!                                  │ complete, and the connection may be kept ─► idle, for the next request
//!  failed before a byte of the response ─► another attempt, by the rules of `may_retry` ─► 502, 503, 504
//! ```
//! Bytes pass from event to event: each is copied once, into the buffer of the other side's send. While more than 64 KiB wait on one
//! side, the other side is not read.

use std::collections::HashMap;
use std::sync::Arc;

use encke_io::{Done, LendLimit, Segment};
use encke_server::{
    Exchange, ExchangeKey, Fields, HandlerContext, JobId, LogNotes, Piece, Reply, UpstreamEvent, UpstreamId,
};
use encke_wire::http1::{AppResponseReader, ReadStep, ResponseHead};

use crate::balance::TargetChoice;
use crate::conn_reader::ConnReader;
use crate::fastcgi_head::FastCgiWriter;
use crate::fault::GatewayFault;
use crate::figures::{ProxyCounters, report_ejection, report_messages, report_return};
use crate::id_map::IdMap;
use crate::proxied_request::{
    ProxiedRequest, Replacement, UpstreamConn, WAITING_MAX, is_safe, note, put_piece,
};
use crate::proxy_header::put_proxy_header;
use crate::queue::Permit;
use crate::release::first_release_ns;
use crate::response_coding::EncoderPool;
use crate::response_head::{TRAIL_NS, VIA, content, may_trail, response_fields, trailer_fields};
use crate::site_rules::dressed;
use crate::target::UpstreamTarget;
use crate::upstream::{KeptConns, NamedUpstream};
use crate::waiting::{ProxyWaits, retry_after, spread};

/// Interim responses (1xx) to one request. Applications send a few; each is a message to the worker.
pub(crate) const INTERIMS_MAX: u8 = 16;
/// Bytes of a replaced response that are read, so that the connection can be kept. After that it is closed.
const DROPPED_MAX: u64 = 64 * 1024;
/// A request that must not be repeated is sent on a kept connection only if that was used this recently, in ns: the longer a
/// connection rests, the more likely the application is just closing it.
pub(crate) const FRESH_NS: u64 = 1_000_000_000;

/// The proxy of a worker.
pub(crate) struct Proxy {
    pub(crate) upstreams: Vec<Arc<NamedUpstream>>,
    pub(crate) counters: Arc<ProxyCounters>,
    pub(crate) context: HandlerContext,
    /// All connections to targets.
    pub(crate) conns: IdMap<UpstreamId, UpstreamConn>,
    /// All requests whose response is incomplete.
    pub(crate) requests: IdMap<ExchangeKey, ProxiedRequest>,
    /// Kept connections, by upstream.
    pub(crate) kept: Vec<KeptConns>,
    /// The waits of requests for connections, by upstream.
    pub(crate) waits: ProxyWaits,
    /// Names that are resolved on the pool, by job: the upstream and the target.
    resolving: HashMap<JobId, (usize, usize)>,
    /// The head of the response that is being read.
    scratch: Box<ResponseHead>,
    fastcgi: FastCgiWriter,
    /// Buffers of finished requests.
    spare: Vec<Vec<u8>>,
    /// The encoders of compressed responses.
    encoders: EncoderPool,
    /// Requests whose response is to be replaced, for the gateway.
    replaced: Vec<(ProxiedRequest, Replacement)>,
}

impl Proxy {
    pub(crate) fn new(
        upstreams: Vec<Arc<NamedUpstream>>,
        counters: Arc<ProxyCounters>,
        context: HandlerContext,
    ) -> Self {
        let kept = upstreams.iter().map(KeptConns::new).collect();
        let waits = ProxyWaits::new(context.waker(), &upstreams);
        Self {
            upstreams,
            kept,
            waits,
            counters,
            context,
            conns: IdMap::default(),
            requests: IdMap::default(),
            resolving: HashMap::new(),
            scratch: Box::new(ResponseHead::new()),
            fastcgi: FastCgiWriter::default(),
            spare: Vec::new(),
            encoders: EncoderPool::default(),
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
        let buffers = request.buffered.is_some();
        self.requests.insert(key, request);
        if buffers {
            return self.context.read_more(key);
        }
        self.attempt(key, None, None);
    }

    /// Finds a connection for a request, or lets it wait for one. `fault` is the reason of the attempt before, and `held` the
    /// permit of its connection.
    fn attempt(&mut self, key: ExchangeKey, fault: Option<GatewayFault>, held: Option<Permit>) {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get(&key) else { return };
        let Some(place) = self.upstreams.get(request.upstream).map(|_| request.upstream) else { return };
        let upstream = Arc::clone(&self.upstreams[place]);
        let wish = request.wish;
        if request.facts.attempts
            > upstream.settings.retries.saturating_add(upstream.targets.spare_addresses())
        {
            return self.refuse(key, fault.unwrap_or(GatewayFault::Unreachable));
        }
        if let Some(permit) = held
            && upstream.is_limited()
            && !wish.has_tried(permit.target())
        {
            // The request has waited for this permit already.
            return self.start(key, permit.target(), Some(permit), fault);
        }
        let kept = &self.kept[place];
        let awaited = if upstream.queue.is_waiting() { upstream.awaited(now_ns) } else { 0 };
        let is_free =
            |target: usize| awaited & 1 << target == 0 && (kept.has(target) || upstream.has_room(target));
        match upstream.targets.choose(&wish, now_ns, is_free) {
            TargetChoice::None => self.refuse(key, fault.unwrap_or(GatewayFault::NoTarget)),
            TargetChoice::Free(target) => self.start(key, target, None, fault),
            TargetChoice::Busy => self.wait(key, fault),
        }
    }

    /// Sends a request to a target: on a kept connection, or on a new one with `permit` or a free permit. Without any, the request
    /// waits.
    pub(crate) fn start(
        &mut self,
        key: ExchangeKey,
        target: usize,
        permit: Option<Permit>,
        fault: Option<GatewayFault>,
    ) {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get_mut(&key) else { return };
        let place = request.upstream;
        let Some(upstream) = self.upstreams.get(place).map(Arc::clone) else { return };
        let fresh_ns = if is_safe(request.method) { u64::MAX } else { FRESH_NS };
        let is_for_kept = permit.is_none() && !request.avoids_kept && !request.upgrades;
        let kept = if is_for_kept { self.take_kept(place, target, now_ns, fresh_ns) } else { None };
        self.resolve(place, target, now_ns, fault.is_some());
        let id = match kept {
            Some(id) => id,
            None => {
                let permit = permit
                    .or_else(|| Permit::take(&upstream, target))
                    .or_else(|| self.take_idle_permit(place, target));
                let Some(permit) = permit else { return self.wait(key, fault) };
                if self.requests.get(&key).is_some_and(|request| request.upgrades) {
                    return self.begin_tunnel(key, permit);
                }
                match self.dial(place, permit, now_ns) {
                    Ok(id) => id,
                    Err(fault) => return self.fail_dial(key, target, fault),
                }
            }
        };
        self.carry(id, key);
    }

    /// A target cannot be dialed: another one serves the request.
    fn fail_dial(&mut self, key: ExchangeKey, target: usize, fault: GatewayFault) {
        let now_ns = self.context.now().mono_ns;
        let Some(request) = self.requests.get_mut(&key) else { return };
        request.wish.add_tried(target);
        if let Some(upstream) = self.upstreams.get(request.upstream)
            && let Some(failed) = upstream.targets.get(target)
            && fault.ejects()
            && failed.failed(now_ns, fault)
        {
            self.counters.ejections.increment();
            report_ejection(upstream, failed, fault);
        }
        // Each further call has one target less.
        self.attempt(key, Some(fault), None);
    }

    /// Opens a connection to the target of a permit.
    fn dial(&mut self, place: usize, mut permit: Permit, now_ns: u64) -> Result<UpstreamId, GatewayFault> {
        let upstream = self.upstreams.get(place).ok_or(GatewayFault::Unreachable)?;
        let chosen = upstream.targets.get(permit.target()).ok_or(GatewayFault::Unreachable)?;
        let (address, limit_ns) = permit.address(now_ns)?;
        let session = chosen.session().map_err(|_| GatewayFault::Tls)?;
        let id = self.context.dial(address, session);
        self.context.lend(id, LendLimit::Narrow);
        self.context.deadline(id, limit_ns);
        self.counters.dials.increment();
        let reader = if upstream.settings.is_fastcgi() {
            ConnReader::FastCgi(Box::default())
        } else {
            ConnReader::Http(AppResponseReader::new())
        };
        self.conns.insert(id, UpstreamConn::new(place, permit, reader, now_ns));
        Ok(id)
    }

    /// Sends a request on a connection that carries no other one.
    pub(crate) fn carry(&mut self, id: UpstreamId, key: ExchangeKey) {
        let now_ns = self.context.now().mono_ns;
        let (Some(request), Some(conn)) = (self.requests.get_mut(&key), self.conns.get_mut(&id)) else {
            return;
        };
        let Some(upstream) = self.upstreams.get(conn.upstream) else { return };
        let mut buffer = self.context.take_buffer();
        if let Some(target) = upstream.targets.get(conn.target) {
            target.begin();
            if let Some(version) = upstream.settings.proxy_protocol
                && let Some(permit) = &conn.permit
                && let Some(address) = permit.destination()
            {
                put_proxy_header(&mut buffer, version.into(), &request.origin, &address);
            }
        }
        request.facts.attempts += 1;
        request.facts.target = Some(conn.target);
        request.facts.connect_ns = None;
        request.facts.first_byte_ns = None;
        request.conn = Some(id);
        conn.request = Some(key);
        conn.reader.begin(request.method, upstream.settings.kept() > 0);
        conn.active_ns = now_ns;
        conn.begun_ns = now_ns;
        conn.interims = 0;
        conn.may_trail = false;
        conn.flow.begin(&self.context, id);
        self.context.await_room(key);
        if !request.put_head(&mut buffer, upstream.settings.kept() > 0, &mut self.fastcgi) {
            return self.fail(id, GatewayFault::Request);
        }
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
    pub(crate) fn read_body(&self, key: ExchangeKey) {
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
        while let Some(id) = self.kept.get(upstream)?.last(target)
            && !self.is_current(id)
        {
            self.take_idle_permit(upstream, target);
        }
        let kept = self.kept.get_mut(upstream)?;
        let conns = &self.conns;
        let is_usable = |id: &UpstreamId| conns.get(id).is_some_and(|conn| conn.rests_until_ns <= now_ns);
        let id = kept.last_of(target, is_usable)?;
        let conn = self.conns.get_mut(&id)?;
        if now_ns.saturating_sub(conn.active_ns) > fresh_ns {
            return None;
        }
        kept.remove(target, id);
        conn.reused = true;
        self.counters.reuses.increment();
        Some(id)
    }

    /// Whether a connection is not to a process that was replaced.
    pub(crate) fn is_current(&self, id: UpstreamId) -> bool {
        let permit = self.conns.get(&id).and_then(|conn| conn.permit.as_ref());
        permit.is_none_or(Permit::is_current)
    }

    /// The target of a connection.
    fn target(&self, conn: &UpstreamConn) -> Option<&UpstreamTarget> {
        self.upstreams.get(conn.upstream)?.targets.get(conn.target)
    }

    /// Responds with an error in place of the application's response.
    pub(crate) fn refuse(&mut self, key: ExchangeKey, fault: GatewayFault) {
        self.counters.failed(fault);
        if (fault.is_queues() || fault == GatewayFault::NotReady)
            && let Some(request) = self.requests.get_mut(&key)
            && let Some(upstream) = self.upstreams.get(request.upstream)
            && let Some(exchange) = &mut request.exchange
        {
            exchange.add_fields(&retry_after(key, &upstream.settings));
        }
        self.fail_request(key, fault.status(), fault.reason());
    }

    /// Responds with an error page, or resets the response if it has begun.
    fn fail_request(&mut self, key: ExchangeKey, status: u16, reason: &'static &'static str) {
        let Some(mut request) = self.requests.remove(&key) else { return };
        if request.exchange.is_none() {
            self.recycle(request);
            self.context.note(key, LogNotes::default().because(reason));
            return self.context.reset(key);
        }
        note(&self.context, &self.upstreams, &request, key);
        let is_of_event_source = matches!(status, 502..=504) && request.is_of_event_source();
        if !is_of_event_source && request.route.error_page(status).is_some() {
            return self.replaced.push((request, Replacement::ErrorPage(status, Some(reason))));
        }
        if let Some(exchange) = request.exchange.take() {
            let mut reply = Reply::error(status).because(reason);
            if is_of_event_source {
                reply = reply.for_event_source(RETRY_MS + spread(key, RETRY_MS));
            }
            let reply = dressed(request.site.as_deref(), reply);
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

    /// Adds the facts of a request's last attempt to its line in the log.
    pub(crate) fn note(&self, request: &ProxiedRequest, key: ExchangeKey) {
        note(&self.context, &self.upstreams, request, key);
    }

    /// Keeps the buffer of a request that is over.
    pub(crate) fn recycle(&mut self, mut request: ProxiedRequest) {
        if let Some(encoder) = request.encoder.take() {
            self.encoders.give(*encoder);
        }
        if self.spare.len() < SPARE_MAX {
            request.head.clear();
            self.spare.push(request.head);
        }
    }

    /// Closes a connection, and detaches it from its request. Returns both.
    pub(crate) fn drop_conn(&mut self, id: UpstreamId) -> Option<(UpstreamConn, Option<ExchangeKey>)> {
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
    pub(crate) fn fail(&mut self, id: UpstreamId, fault: GatewayFault) {
        let now_ns = self.context.now().mono_ns;
        let Some((mut conn, Some(key))) = self.drop_conn(id) else { return };
        if let Some(text) = conn.reader.take_messages()
            && let Some(upstream) = self.upstreams.get(conn.upstream)
        {
            report_messages(upstream, &text);
        }
        let permit = conn.permit.take();
        // Another address of the target may respond.
        let is_last = conn.connected
            || !matches!(fault, GatewayFault::ConnectTime | GatewayFault::Unreachable)
            || permit.as_ref().is_none_or(|permit| permit.not_connected(now_ns));
        // An application may close a kept connection at any time: this says nothing about its health.
        let is_stale = conn.reused && conn.reader.is_untouched() && fault == GatewayFault::Ended;
        let body_is_whole = self.requests.get(&key).is_none_or(|request| request.body_is_whole);
        let is_targets = !is_stale && fault.is_targets();
        if is_last
            && !is_stale
            && fault.ejects()
            && !conn.is_clients(fault, body_is_whole)
            && let Some(upstream) = self.upstreams.get(conn.upstream)
            && let Some(target) = upstream.targets.get(conn.target)
            && target.failed(now_ns, fault)
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
        if is_targets && (!alone || conn.connected) {
            request.wish.add_tried(conn.target);
        }
        // The application may be closing its other kept connections, too.
        request.avoids_kept |= is_stale;
        if is_stale {
            // No application has seen this attempt. There is one at most, since all further ones use new connections.
            request.facts.attempts = request.facts.attempts.saturating_sub(1);
        }
        let is_early = conn.reader.is_untouched()
            && matches!(fault, GatewayFault::Ended | GatewayFault::ResponseTime)
            && !conn.shut
            && self
                .upstreams
                .get(conn.upstream)
                .is_some_and(|upstream| upstream.targets.has_other(&request.wish));
        if request.may_retry(&conn, is_stale || is_early) {
            self.counters.retries.increment();
            return self.attempt(key, Some(fault), permit);
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
            let Self { conns, requests, scratch, context, counters, upstreams, encoders, .. } = self;
            let Some(conn) = conns.get_mut(&id) else { return };
            let key = conn.request;
            let step = match conn.reader.step(scratch, rest, &mut conn.keeps) {
                Ok(step) => step,
                Err(fault) => return self.fail(id, fault.into()),
            };
            match step {
                ReadStep::More => {
                    // The application pauses: the client gets everything so far.
                    if let Some(key) = key
                        && let Some(encoder) =
                            requests.get_mut(&key).and_then(|request| request.encoder.as_mut())
                    {
                        match encoders.flush(encoder) {
                            Ok(coded) => conn.flow.write(context, (id, key), coded),
                            Err(_) => return self.fail(id, GatewayFault::Coding),
                        }
                    }
                    return;
                }
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
                            conn.may_trail = may_trail(request.method, view.head);
                            let upstream = upstreams.get(conn.upstream);
                            if let Some(upstream) = upstream
                                && let Some(target) = upstream.targets.get(conn.target)
                            {
                                if target.succeeded(conn.active_ns) {
                                    report_return(upstream, target);
                                }
                                let first_byte_ns = conn.active_ns.saturating_sub(conn.begun_ns);
                                target.tally.responded(status, first_byte_ns);
                                request.facts.first_byte_ns = Some(first_byte_ns);
                            }
                            counters.responded(status);
                            request.stick(upstream, conn.target);
                            request.replacement = request.replacement_for(&view);
                            if !matches!(request.replacement, Some(Replacement::Path(..))) {
                                // A path may lead to another application, whose facts the line has then.
                                note(context, upstreams, request, key);
                            }
                            if request.replacement.is_none()
                                && let Some(exchange) = request.exchange.take()
                            {
                                let mut reply = Reply::new(status).body(content(request.method, view.head));
                                reply.fields = request.response_fields(&view);
                                // Before the compression, whose Vary the site's fields must not remove.
                                let mut reply = dressed(request.site.as_deref(), reply);
                                request.code(&view, &mut reply, encoders);
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
                        Some(ProxiedRequest { encoder: Some(encoder), .. }) => {
                            match encoders.encode(encoder, data) {
                                Ok(coded) => conn.flow.write(context, (id, key), coded),
                                Err(_) => return self.fail(id, GatewayFault::Coding),
                            }
                        }
                        _ => conn.flow.write(context, (id, key), data),
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
        let mut keeps = keeps && !conn.shut && conn.permit.as_ref().is_none_or(Permit::is_current);
        let (place, target, unsent) = (conn.upstream, conn.target, conn.unsent);
        conn.flow.paused = false;
        let Some(upstream) = self.upstreams.get(place).map(Arc::clone) else { return };
        if let Some(target) = upstream.targets.get(target) {
            target.end();
            keeps &= !target.state.is_drained();
        }
        let request = self.requests.get_mut(&key);
        let trailers = match &request {
            Some(request) if request.trailers => {
                let (changes, is_coded) = (&request.route.response, request.encoder.is_some());
                conn.reader.http().map(|reader| trailer_fields(reader, changes, is_coded)).unwrap_or_default()
            }
            _ => Fields::new(),
        };
        if let Some(text) = conn.reader.take_messages()
            && let Some(upstream) = self.upstreams.get(conn.upstream)
        {
            report_messages(upstream, &text);
        }
        let is_sent = request.as_ref().is_some_and(|request| request.body_is_whole) && unsent == 0;
        if request.is_some_and(|request| request.replacement.is_some()) {
            self.replace(key);
        } else {
            self.finish(key, trailers);
        }
        let Some(kept) = self.kept.get_mut(place) else { return };
        if keeps && is_sent && upstream.settings.kept() > 0 {
            let now_ns = self.context.now().mono_ns;
            if let Some(conn) =
                self.conns.get_mut(&id).filter(|conn| conn.may_trail && conn.reader.http().is_some())
            {
                conn.rests_until_ns = now_ns.saturating_add(TRAIL_NS);
            } else if let Some(waiter) = upstream.next_waiter(target, self.waits.inbox(), now_ns) {
                return self.pass_on(id, waiter);
            }
            if kept.push(target, id) {
                self.context.resume(id);
                self.context.deadline(id, upstream.settings.keep_time.nanoseconds());
                if upstream.queue.is_waiting() {
                    // A request of another worker has begun to wait meanwhile.
                    self.waits.inbox().wake();
                }
                return;
            }
        }
        self.conns.remove(&id);
        self.context.close(id);
    }

    /// Ends the response for the client.
    fn finish(&mut self, key: ExchangeKey, trailers: Fields) {
        let Some(mut request) = self.requests.remove(&key) else { return };
        let ended = match &mut request.encoder {
            Some(encoder) => self.encoders.finish(encoder).map(|coded| _ = self.context.write(key, coded)),
            None => Ok(()),
        };
        match ended {
            Ok(()) => self.context.finish(key, trailers),
            Err(_) => self.context.reset(key),
        }
        self.recycle(request);
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
        let id = request.conn;
        if let Piece::Data(data) = piece {
            request.body_seen += data.len() as u64;
        }
        if piece == Piece::Broken || request.route.exceeds(request.body_seen) {
            self.leave_queue(key);
            if let Some(id) = id {
                self.drop_conn(id);
            }
            if piece == Piece::Broken {
                return self.end_broken(key);
            }
            self.context.refused("route_body_bytes");
            return self.fail_request(key, 413, &"route_body_bytes");
        }
        if request.lacks_length() {
            self.context.refused("no_length");
            return self.fail_request(key, 411, &"no_length");
        }
        if request.buffered.is_some() {
            return if request.buffer(piece) {
                self.context.read_more(key);
            } else {
                self.attempt(key, None, None);
            };
        }
        request.body_is_whole |= piece == Piece::End;
        let Some(id) = id else { return request.keep_piece(piece) };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut buffer = self.context.take_buffer();
        put_piece(&mut buffer, request.body_form(), piece);
        let replay_max = request.replay_max();
        request.replay = request.replay.take().filter(|kept| kept.len() + buffer.len() <= replay_max);
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

    /// The client's connection holds as much as it may: nothing more is read for it.
    pub(crate) fn crowded(&mut self, key: ExchangeKey) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        if let Some(id) = request.conn
            && let Some(conn) = self.conns.get_mut(&id)
        {
            conn.flow.paused = true;
            self.context.pause(id);
        }
    }

    pub(crate) fn writable(&mut self, key: ExchangeKey) {
        if let Some(id) = self.requests.get(&key).and_then(|request| request.conn)
            && let Some(conn) = self.conns.get_mut(&id)
        {
            conn.active_ns = self.context.now().mono_ns;
            conn.flow.read_on(&self.context, id);
        }
    }

    /// The client has ended its side. So does this one towards the application, which may then give up the request.
    pub(crate) fn ended(&mut self, key: ExchangeKey) {
        if self.leave_queue(key) {
            return self.refuse(key, GatewayFault::QueueLeft);
        }
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
        self.leave_queue(key);
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
                if let Some(permit) = &conn.permit {
                    permit.connected();
                }
                let connect_ns = now_ns.saturating_sub(conn.active_ns);
                conn.active_ns = now_ns;
                if let Some(upstream) = self.upstreams.get(conn.upstream) {
                    let mut request = conn.request.and_then(|key| self.requests.get_mut(&key));
                    if let Some(request) = &mut request {
                        request.facts.connect_ns = Some(connect_ns);
                    }
                    let wait_ns = request.map_or(u64::MAX, |request| request.wait_ns(&upstream.settings));
                    self.context.deadline(id, wait_ns.min(first_release_ns(upstream)));
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

/// Least time after which an `EventSource` without a response of its application tries again, in ms.
const RETRY_MS: u64 = 2_000;
/// Buffers that are kept for further requests.
const SPARE_MAX: usize = 32;
