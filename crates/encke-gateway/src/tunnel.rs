//! Tunnels: WebSockets to an application. The client's connection belongs to this resident from its request on.
//!
//! ```text
//!  Handler::call ─► TunnelStart ─► enter: dial, send the head
//!      101 ─► head to the client ─► bytes in both directions until both sides have ended
//!      any other status ─► its content, up to 64 KiB ─► the response to the client, whose connection goes on
//!      failed before a byte ─► another target, else 502, 503, 504
//! The permit for a connection comes with the start if the upstream has a limit: the request has waited for it as any other.
//! ```
//! **A tunnel at rest holds no buffer**: an entry of this table, and two slots of the worker. Bytes that follow the application's
//! 101 at once go to the client, and bytes that the client has sent too early wait for the 101. A reload does not touch a tunnel:
//! it keeps the upstream with which it began.

use std::any::Any;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use encke_io::{Done, LendLimit, Segment, Token};
use encke_server::{
    Asked, Body, CloseReason, ConnDescription, ContentLength, Engine, Farewells, Fields, Gone,
    HandlerContext, JobId, Origin, Reply, Resident, Slot, UpstreamEvent, UpstreamId,
};
use encke_wire::field::Known;
use encke_wire::http1::{AppResponseReader, ReadStep, ResponseHead};
use encke_wire::method::Method;

use crate::affinity::TargetWish;
use crate::client_pace::ClientPace;
use crate::describe::path_of;
use crate::fault::GatewayFault;
use crate::figures::{ProxyCounters, report_ejection, report_return};
use crate::id_map::IdMap;
use crate::log_notes::AttemptFacts;
use crate::proxy::INTERIMS_MAX;
use crate::proxy_header::put_proxy_header;
use crate::queue::Permit;
use crate::response_head::response_fields;
use crate::route::SiteRoute;
use crate::upstream::NamedUpstream;
use crate::waiting::QueueTimer;

/// Bytes that may wait on one side before the other side is no longer read.
const WAITING_MAX: usize = 64 * 1024;
/// Time without a byte after which a tunnel ends once one of its sides has ended, in ns. The other side has this time for its last
/// bytes.
const ENDING_NS: u64 = 10_000_000_000;
/// Maximum content of a response that refuses a WebSocket, in bytes.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// The value that a handler passes to the resident: the route and its upstream, and the head of the request for the application.
pub(crate) struct TunnelStart {
    pub(crate) route: Arc<SiteRoute>,
    pub(crate) upstream: Arc<NamedUpstream>,
    pub(crate) counters: Arc<ProxyCounters>,
    pub(crate) head: Vec<u8>,
    pub(crate) origin: Origin,
    pub(crate) wish: TargetWish,
    /// The permit for the first connection, if the upstream has a limit.
    pub(crate) permit: Option<Permit>,
    /// Time for which the request has waited for it, in ns.
    pub(crate) waited_ns: u64,
}

/// The tunnels of a worker.
pub(crate) struct Tunnels {
    context: Option<HandlerContext>,
    /// The place of each tunnel is the first word of its slot.
    tunnels: Vec<Option<Tunnel>>,
    free: Vec<u32>,
    by_upstream: IdMap<UpstreamId, u32>,
    farewells: Option<Farewells>,
    scratch: Box<ResponseHead>,
    /// Names that are resolved on the pool, by job.
    resolving: HashMap<JobId, (Arc<NamedUpstream>, usize)>,
    /// The timers of the worker's proxies, of which a handler has none.
    timers: Vec<Weak<QueueTimer>>,
}

/// A client's connection, and one to an application.
struct Tunnel {
    token: Token,
    id: UpstreamId,
    /// The right to the connection to the application.
    permit: Option<Permit>,
    /// Present until the application has responded with 101.
    handshake: Option<Box<Handshake>>,
    /// Bytes of the client that the kernel has not taken.
    unsent: u64,
    /// Bytes for the client that wait for a send to end. Without capacity while the tunnel rests.
    waiting: Vec<u8>,
    pace: ClientPace,
    /// The time of a tunnel without a byte, in ns.
    rest_ns: u64,
    /// The time of the last byte, in ns of the monotonic clock.
    active_ns: u64,
    upstream_over: bool,
    /// Whether the application's connection has failed. An application that closes while the client sends resets it.
    failed: bool,
    /// Whether nothing is read for the client, whose connection holds as much as it may.
    crowded: bool,
    /// Whether this side has ended, towards the application and towards the client.
    upstream_shut: bool,
    client_shut: bool,
}

/// A WebSocket without a response of the application.
struct Handshake {
    asked: Asked,
    start: TunnelStart,
    reader: AppResponseReader,
    target: usize,
    /// The time of the present attempt, in ns of the monotonic clock.
    begun_ns: u64,
    facts: AttemptFacts,
    connected: bool,
    keeps: bool,
    /// Interim responses of the present attempt.
    interims: u8,
    /// The response that refuses the WebSocket, and its content so far.
    refusal: Option<Reply>,
    content: Vec<u8>,
    /// The application's bytes, and the end of its connection, that wait for a send to the client to end: the response to the
    /// request before this one, for example.
    early: Vec<u8>,
    early_end: Option<EarlyEnd>,
}

/// The end of an application's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EarlyEnd {
    Over,
    Failed(GatewayFault),
}

impl Tunnel {
    /// Reads from the application again, if the client's connection has room.
    fn read_on(&self, context: &HandlerContext) {
        if !self.crowded {
            context.resume(self.id);
        }
    }
}

impl Handshake {
    /// Adds the facts of the last attempt to the line of the request in the log.
    fn note(&self, slot: &mut Slot<'_>) {
        if slot.context().takes_notes() {
            slot.note(self.facts.notes(&self.start.upstream));
        }
    }

    /// The cookie that leads the client to this target again.
    fn sticky_cookie(&self) -> Option<Fields> {
        let TunnelStart { upstream, wish, origin, .. } = &self.start;
        upstream.sticky_cookie(wish, self.target, origin.secure)
    }
}

impl Tunnels {
    pub(crate) fn new() -> Self {
        Self {
            context: None,
            tunnels: Vec::new(),
            free: Vec::new(),
            by_upstream: IdMap::default(),
            farewells: None,
            scratch: Box::new(ResponseHead::new()),
            resolving: HashMap::new(),
            timers: Vec::new(),
        }
    }

    /// Adds the timer of a proxy.
    pub(crate) fn add_timer(&mut self, timer: &Rc<QueueTimer>) {
        self.timers.retain(|timer| timer.strong_count() > 0);
        self.timers.push(Rc::downgrade(timer));
    }

    fn tunnel(&mut self, place: u32) -> Option<&mut Tunnel> {
        self.tunnels.get_mut(place as usize)?.as_mut()
    }

    fn insert(&mut self, tunnel: Tunnel) -> u32 {
        let id = tunnel.id;
        let place = match self.free.pop() {
            Some(place) => {
                self.tunnels[place as usize] = Some(tunnel);
                place
            }
            None => {
                self.tunnels.push(Some(tunnel));
                self.tunnels.len() as u32 - 1
            }
        };
        self.by_upstream.insert(id, place);
        place
    }

    fn remove(&mut self, place: u32) -> Option<Tunnel> {
        let tunnel = self.tunnels.get_mut(place as usize)?.take()?;
        self.by_upstream.remove(&tunnel.id);
        self.free.push(place);
        if let Some(handshake) = &tunnel.handshake
            && let Some(target) = handshake.start.upstream.targets.get(handshake.target)
        {
            target.end();
        }
        Some(tunnel)
    }

    /// Connects to a target and sends the head. Returns the connection; a fault if there is no target left.
    fn dial(
        &mut self,
        context: &HandlerContext,
        handshake: &mut Handshake,
    ) -> Result<(UpstreamId, Permit), GatewayFault> {
        let mut first = None;
        loop {
            match self.dial_one(context, handshake) {
                // This target cannot be dialed: the next one is tried, until none is left.
                Err(fault @ (GatewayFault::Unresolved | GatewayFault::NotReady | GatewayFault::Tls)) => {
                    handshake.start.wish.add_tried(handshake.target);
                    first.get_or_insert(fault);
                }
                Err(fault) => return Err(first.unwrap_or(fault)),
                dialed => return dialed,
            }
        }
    }

    fn dial_one(
        &mut self,
        context: &HandlerContext,
        handshake: &mut Handshake,
    ) -> Result<(UpstreamId, Permit), GatewayFault> {
        let upstream = Arc::clone(&handshake.start.upstream);
        let granted = handshake.start.permit.take();
        if handshake.facts.attempts
            > upstream.settings.retries.saturating_add(upstream.targets.spare_addresses())
        {
            return Err(GatewayFault::Unreachable);
        }
        let now_ns = context.now().mono_ns;
        let permit =
            granted.filter(|permit| !handshake.start.wish.has_tried(permit.target())).or_else(|| {
                // Another attempt does not wait for a connection.
                let is_free = |target: usize| upstream.has_room(target);
                Permit::take(
                    &upstream,
                    upstream.targets.choose(&handshake.start.wish, now_ns, is_free).free()?,
                )
            });
        let mut permit = permit.ok_or(GatewayFault::NoTarget)?;
        let target = permit.target();
        handshake.target = target;
        let chosen = upstream.targets.get(target).ok_or(GatewayFault::Unreachable)?;
        let address = permit.address(now_ns);
        if chosen.must_resolve(now_ns, handshake.facts.attempts > 0 || address.is_err()) {
            let url = chosen.url().clone();
            let job = context.offload_remote(move || url.addresses());
            self.resolving.insert(job, (Arc::clone(&upstream), target));
        }
        let (address, limit_ns) = address?;
        let session = chosen.session().map_err(|_| GatewayFault::Tls)?;
        let facts = &mut handshake.facts;
        *facts = AttemptFacts {
            target: Some(target),
            attempts: facts.attempts + 1,
            waited_ns: facts.waited_ns,
            ..AttemptFacts::default()
        };
        handshake.begun_ns = now_ns;
        handshake.connected = false;
        handshake.interims = 0;
        handshake.reader.begin(Method::Get);
        chosen.begin();
        handshake.start.counters.dials.increment();
        let mut buffer = context.take_buffer();
        if let Some(version) = upstream.settings.proxy_protocol {
            put_proxy_header(&mut buffer, version.into(), &handshake.start.origin, &address);
        }
        let id = context.dial(address, session);
        context.lend(id, LendLimit::Narrow);
        buffer.extend_from_slice(&handshake.start.head);
        context.send(id, [Segment::Bytes(buffer)]);
        context.deadline(id, limit_ns);
        Ok((id, permit))
    }

    /// Responds with an error in place of the application, and gives the connection back. The caller settles the slot.
    fn refuse(slot: &mut Slot<'_>, handshake: &Handshake, fault: GatewayFault) {
        handshake.start.counters.failed(fault);
        handshake.note(slot);
        slot.respond(handshake.asked, Reply::error(fault.status()).because(fault.reason()));
    }

    /// The application's connection has failed, or a time limit has passed.
    fn failed(&mut self, slot: &mut Slot<'_>, place: u32, fault: GatewayFault) {
        if let Some(tunnel) = self.tunnel(place).filter(|tunnel| tunnel.handshake.is_none()) {
            tunnel.failed = true;
            return self.go_on(place, slot);
        }
        let Some(mut tunnel) = self.remove(place) else { return };
        let context = slot.context();
        context.close(tunnel.id);
        let permit = tunnel.permit.take();
        let Some(mut handshake) = tunnel.handshake.take() else { return };
        let now_ns = slot.now().mono_ns;
        let is_last = handshake.connected
            || !matches!(fault, GatewayFault::ConnectTime | GatewayFault::Unreachable)
            || permit.as_ref().is_none_or(|permit| permit.not_connected(now_ns));
        if let Some(target) = handshake.start.upstream.targets.get(handshake.target)
            && is_last
            && fault.ejects()
            && target.failed(now_ns, fault)
        {
            report_ejection(&handshake.start.upstream, target, fault);
            handshake.start.counters.ejections.increment();
        }
        if handshake.connected || handshake.refusal.is_some() {
            return Self::refuse(slot, &handshake, fault);
        }
        if handshake.start.upstream.targets.len() > 1 {
            handshake.start.wish.add_tried(handshake.target);
        }
        handshake.start.counters.retries.increment();
        handshake.start.permit = permit;
        match self.dial(&context, &mut handshake) {
            Ok((id, permit)) => {
                let next =
                    self.insert(Tunnel { id, permit: Some(permit), handshake: Some(handshake), ..tunnel });
                slot.set_word(next);
                slot.await_room();
            }
            Err(_) => Self::refuse(slot, &handshake, fault),
        }
    }

    /// Reads the response of the application. No send to the client is in flight.
    fn respond(&mut self, slot: &mut Slot<'_>, place: u32, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let Some(tunnel) = self.tunnels.get_mut(place as usize).and_then(Option::as_mut) else { return };
            let Some(handshake) = &mut tunnel.handshake else { return };
            let route = Arc::clone(&handshake.start.route);
            let step = handshake.reader.step(&mut self.scratch, rest, &mut handshake.keeps);
            match step {
                Err(fault) => return self.failed(slot, place, fault.into()),
                Ok(ReadStep::More) => return,
                Ok(ReadStep::Head(view, used)) => {
                    rest = &rest[used..];
                    let status = view.head.status();
                    if status == 101 || status >= 200 {
                        let ns = slot.now().mono_ns.saturating_sub(handshake.begun_ns);
                        handshake.facts.first_byte_ns = Some(ns);
                    }
                    match status {
                        101 if view
                            .head
                            .known(view.bytes, Known::Upgrade)
                            .is_some_and(|name| name.eq_ignore_ascii_case(b"websocket")) =>
                        {
                            let mut fields = Fields::new();
                            let kept = response_fields(&view, &route.response);
                            // The worker writes the fields of the connection for the client's protocol.
                            fields.push_lines(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
                            fields.extend(&kept);
                            if let Some(cookie) = handshake.sticky_cookie() {
                                fields.extend(&cookie);
                            }
                            return self.open(slot, place, &fields, rest);
                        }
                        101 => return self.failed(slot, place, GatewayFault::Upgrade),
                        102..200 | 100 => {
                            handshake.interims += 1;
                            if handshake.interims > INTERIMS_MAX {
                                return self.failed(slot, place, GatewayFault::Malformed);
                            }
                        }
                        _ => {
                            handshake.start.counters.responded(status);
                            let mut reply = Reply::new(status);
                            reply.fields = response_fields(&view, &route.response);
                            if let Some(cookie) = handshake.sticky_cookie() {
                                reply.fields.extend(&cookie);
                            }
                            handshake.refusal = Some(reply);
                        }
                    }
                }
                Ok(ReadStep::Data(data, used)) => {
                    handshake.content.extend_from_slice(data);
                    rest = &rest[used..];
                    if handshake.content.len() > REFUSAL_BYTES_MAX {
                        return self.failed(slot, place, GatewayFault::Truncated);
                    }
                }
                Ok(ReadStep::End { .. }) => return self.refused(slot, place),
            }
        }
    }

    /// The application's connection has ended, before a tunnel was open.
    fn over(&mut self, slot: &mut Slot<'_>, place: u32) {
        let Some(tunnel) = self.tunnels.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let Some(handshake) = &mut tunnel.handshake else { return };
        match handshake.reader.end() {
            Ok(()) => self.refused(slot, place),
            Err(fault) => self.failed(slot, place, fault.into()),
        }
    }

    /// The application has refused the WebSocket: the client gets its response.
    fn refused(&mut self, slot: &mut Slot<'_>, place: u32) {
        let Some(mut tunnel) = self.remove(place) else { return };
        slot.context().close(tunnel.id);
        let Some(handshake) = tunnel.handshake.take() else { return };
        if let Some(target) = handshake.start.upstream.targets.get(handshake.target)
            && target.succeeded(slot.now().mono_ns)
        {
            report_return(&handshake.start.upstream, target);
        }
        handshake.note(slot);
        if let Some(reply) = handshake.refusal {
            slot.respond(handshake.asked, reply.body(Body::Bytes(handshake.content)));
        }
    }

    /// Opens a tunnel. `rest` are the bytes after the application's head.
    fn open(&mut self, slot: &mut Slot<'_>, place: u32, fields: &Fields, rest: &[u8]) {
        let context = slot.context();
        let Some(tunnel) = self.tunnels.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let Some(handshake) = tunnel.handshake.take() else { return };
        if let Some(target) = handshake.start.upstream.targets.get(handshake.target) {
            if target.succeeded(slot.now().mono_ns) {
                report_return(&handshake.start.upstream, target);
            }
            target.end();
        }
        handshake.start.counters.tunnels.increment();
        handshake.note(slot);
        context.deadline(tunnel.id, u64::MAX);
        tunnel.read_on(&context);
        slot.count_response(101);
        slot.put_head(handshake.asked.framing, 101, fields, ContentLength::Upgrade);
        slot.out().extend_from_slice(rest);
        slot.outlast();
        if let Some(input) = slot.take_input() {
            Self::forward(&context, tunnel, slot, &input);
            let used = input.len();
            slot.give_input(input, used);
        }
    }

    /// Handles the events of the application that came while a send to the client was in flight.
    fn catch_up(&mut self, slot: &mut Slot<'_>, place: u32) {
        let Some(tunnel) = self.tunnel(place) else { return };
        let Some(handshake) = &mut tunnel.handshake else { return };
        let (early, end) = (std::mem::take(&mut handshake.early), handshake.early_end.take());
        if early.is_empty() && end.is_none() {
            return;
        }
        tunnel.read_on(&slot.context());
        self.respond(slot, place, &early);
        // The response may have ended the handshake, and another one may have its place.
        let Some(tunnel) = self.tunnel(place).filter(|tunnel| tunnel.token == slot.token()) else { return };
        match (end, &tunnel.handshake) {
            (Some(EarlyEnd::Over), Some(_)) => self.over(slot, place),
            (Some(EarlyEnd::Over), None) => tunnel.upstream_over = true,
            (Some(EarlyEnd::Failed(fault)), _) => self.failed(slot, place, fault),
            (None, _) => {}
        }
    }

    /// Keeps an event of an application that has not opened a tunnel, while a send to the client is in flight.
    fn keep_event(context: &HandlerContext, tunnel: &mut Tunnel, event: UpstreamEvent<'_>) {
        let Some(handshake) = &mut tunnel.handshake else { return };
        match event {
            UpstreamEvent::Received(bytes) => {
                handshake.early.extend_from_slice(bytes);
                context.pause(tunnel.id);
            }
            UpstreamEvent::Ended => handshake.early_end = Some(EarlyEnd::Over),
            UpstreamEvent::Overdue => {
                let fault =
                    if handshake.connected { GatewayFault::ResponseTime } else { GatewayFault::ConnectTime };
                handshake.early_end = Some(EarlyEnd::Failed(fault));
            }
            UpstreamEvent::Failed(fault) => {
                let fault = GatewayFault::of_connection(&fault, handshake.connected);
                handshake.early_end = Some(EarlyEnd::Failed(fault));
            }
            _ => {}
        }
    }

    /// Forwards bytes of the client.
    fn forward(context: &HandlerContext, tunnel: &mut Tunnel, slot: &mut Slot<'_>, bytes: &[u8]) {
        tunnel.active_ns = slot.now().mono_ns;
        if tunnel.failed {
            return;
        }
        tunnel.unsent += bytes.len() as u64;
        if tunnel.unsent >= WAITING_MAX as u64 {
            slot.hold();
        }
        let mut buffer = context.take_buffer();
        buffer.extend_from_slice(bytes);
        context.send(tunnel.id, [Segment::Bytes(buffer)]);
    }

    /// Sends waiting bytes, forwards ends, and closes a tunnel that has ended in both directions.
    fn go_on(&mut self, place: u32, slot: &mut Slot<'_>) {
        let context = slot.context();
        let Some(tunnel) = self.tunnel(place).filter(|tunnel| tunnel.handshake.is_none()) else { return };
        if !slot.is_sending() && !tunnel.waiting.is_empty() {
            slot.push_buffer(std::mem::take(&mut tunnel.waiting));
            slot.settle();
            tunnel.read_on(&context);
        }
        if tunnel.failed {
            if !slot.is_sending() {
                // The client may not have received the application's last bytes, which a reset would destroy. It may still send.
                context.close(tunnel.id);
                self.remove(place);
                slot.set_word(u32::MAX);
                slot.part(CloseReason::Upstream);
                slot.end();
            }
            return;
        }
        if !slot.is_sending() && tunnel.upstream_over && !tunnel.client_shut {
            tunnel.client_shut = true;
            tunnel.rest_ns = tunnel.rest_ns.min(ENDING_NS);
            slot.shutdown();
            slot.settle();
            slot.set_deadline(ENDING_NS);
        }
        if slot.input_is_over() && !tunnel.upstream_shut {
            tunnel.upstream_shut = true;
            context.shutdown(tunnel.id);
            tunnel.rest_ns = tunnel.rest_ns.min(ENDING_NS);
            slot.set_deadline(tunnel.rest_ns);
        }
        let is_over = tunnel.client_shut && tunnel.upstream_shut && tunnel.unsent == 0;
        if is_over && !slot.is_sending() {
            context.close(tunnel.id);
            self.remove(place);
            slot.set_word(u32::MAX);
            slot.close(CloseReason::PeerDone);
        }
    }

    /// The time at which a resting tunnel ends, in ns of the monotonic clock.
    fn due_ns(&self, slot: &Slot<'_>) -> u64 {
        if let Some(farewells) = self.farewells {
            return farewells.at_ns(slot.token());
        }
        let tunnel = self.tunnels.get(slot.word() as usize).and_then(Option::as_ref);
        tunnel.map_or(u64::MAX, |tunnel| tunnel.active_ns.saturating_add(tunnel.rest_ns))
    }
}

impl Resident for Tunnels {
    fn describe(&mut self, slot: &mut Slot<'_>) -> ConnDescription {
        let tunnel = self.tunnels.get(slot.word() as usize).and_then(Option::as_ref);
        let Some(tunnel) = tunnel else { return ConnDescription::default() };
        let idle_s = slot.now().mono_ns.saturating_sub(tunnel.active_ns) / 1_000_000_000;
        let (waits, path) = match &tunnel.handshake {
            Some(handshake) => {
                let name = &handshake.start.upstream.settings.name;
                (format!("waits for upstream {name}"), path_of(&handshake.start.head))
            }
            None => (format!("no byte in either direction for {idle_s} s"), None),
        };
        let unsent_bytes = tunnel.waiting.len() as u64;
        ConnDescription { waits: Some(waits), path, unsent_bytes, ..ConnDescription::default() }
    }

    fn is_tunnel(&self) -> bool {
        true
    }

    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>) {
        let Ok(start) = start.downcast::<TunnelStart>() else { return slot.close(CloseReason::HandlerPanic) };
        let rest_ns = start.upstream.settings.tunnel_time.nanoseconds();
        let facts = AttemptFacts { waited_ns: start.waited_ns, ..AttemptFacts::default() };
        let mut handshake = Box::new(Handshake {
            asked,
            start: *start,
            reader: AppResponseReader::new(),
            target: 0,
            begun_ns: 0,
            facts,
            connected: false,
            keeps: false,
            interims: 0,
            refusal: None,
            content: Vec::new(),
            early: Vec::new(),
            early_end: None,
        });
        let context = self.context.get_or_insert_with(|| slot.context()).clone();
        match self.dial(&context, &mut handshake) {
            Ok((id, permit)) => {
                let place = self.insert(Tunnel {
                    token: slot.token(),
                    id,
                    permit: Some(permit),
                    handshake: Some(handshake),
                    unsent: 0,
                    waiting: Vec::new(),
                    pace: ClientPace::NEW,
                    rest_ns,
                    active_ns: slot.now().mono_ns,
                    upstream_over: false,
                    failed: false,
                    crowded: false,
                    upstream_shut: false,
                    client_shut: false,
                });
                slot.set_word(place);
                slot.await_room();
                // The application's own limits apply until it has responded.
                slot.set_deadline(u64::MAX);
            }
            Err(fault) => Self::refuse(slot, &handshake, fault),
        }
    }

    fn offloaded(&mut self, _: &mut Engine<'_>, job: JobId, done: Option<Done>) {
        let Some((upstream, target)) = self.resolving.remove(&job) else { return };
        if let Some(target) = upstream.targets.get(target) {
            target.resolved(done);
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let timers = self.timers.iter().filter_map(Weak::upgrade);
        timers.filter_map(|timer| timer.due_ns()).min()
    }

    fn begin(&mut self, engine: &mut Engine<'_>) {
        let now_ns = engine.now().mono_ns;
        self.timers.iter().filter_map(Weak::upgrade).for_each(|timer| timer.check(now_ns));
    }

    fn is_duplex(&self) -> bool {
        true
    }

    fn received(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        let context = slot.context();
        match self.tunnel(slot.word()) {
            Some(tunnel) if tunnel.handshake.is_none() => {
                Self::forward(&context, tunnel, slot, bytes);
                bytes.len()
            }
            // The bytes wait for the response.
            Some(_) => 0,
            None => bytes.len(),
        }
    }

    fn crowded(&mut self, slot: &mut Slot<'_>) {
        let context = slot.context();
        if let Some(tunnel) = self.tunnel(slot.word()) {
            tunnel.crowded = true;
            context.pause(tunnel.id);
        }
    }

    fn writable(&mut self, slot: &mut Slot<'_>) {
        let context = slot.context();
        if let Some(tunnel) = self.tunnel(slot.word()) {
            tunnel.crowded = false;
            if tunnel.waiting.len() < tunnel.pace.waiting_max(WAITING_MAX) {
                tunnel.read_on(&context);
            }
        }
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        let place = slot.word();
        let now_ns = slot.now().mono_ns;
        if let Some(tunnel) = self.tunnel(place) {
            tunnel.active_ns = now_ns;
            tunnel.pace.widen(&slot.context(), tunnel.id);
        }
        slot.rest_until(self.due_ns(slot));
        self.catch_up(slot, place);
        let is_open = self.tunnel(place).is_some_and(|tunnel| tunnel.handshake.is_none());
        if is_open && let Some(input) = slot.take_input() {
            let context = slot.context();
            if let Some(tunnel) = self.tunnel(place) {
                Self::forward(&context, tunnel, slot, &input);
            }
            let used = input.len();
            slot.give_input(input, used);
        }
        if is_open {
            self.go_on(place, slot);
        }
        slot.settle();
    }

    fn ended(&mut self, slot: &mut Slot<'_>) {
        self.go_on(slot.word(), slot);
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        let (due_ns, now_ns) = (self.due_ns(slot), slot.now().mono_ns);
        if due_ns > now_ns {
            return slot.set_deadline(due_ns - now_ns);
        }
        let reason = if slot.draining() { CloseReason::Drain } else { CloseReason::IdleTime };
        if slot.is_sending() {
            return slot.close(reason);
        }
        if let Some(tunnel) = self.remove(slot.word()) {
            slot.context().close(tunnel.id);
            slot.set_word(u32::MAX);
        }
        slot.part(reason);
        slot.end();
    }

    fn closed(&mut self, gone: Gone) {
        if let Some(tunnel) = self.remove(gone.word)
            && let Some(context) = &self.context
        {
            context.close(tunnel.id);
        }
    }

    fn upstream(&mut self, engine: &mut Engine<'_>, id: UpstreamId, event: UpstreamEvent<'_>) {
        let Some(&place) = self.by_upstream.get(&id) else { return };
        let context = engine.context();
        let Some(tunnel) = self.tunnels.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let Some(mut slot) = engine.slot(tunnel.token) else { return };
        if let UpstreamEvent::Connected = event {
            if let Some(handshake) = &mut tunnel.handshake {
                handshake.connected = true;
                if let Some(permit) = &tunnel.permit {
                    permit.connected();
                }
                let now_ns = slot.now().mono_ns;
                handshake.facts.connect_ns = Some(now_ns.saturating_sub(handshake.begun_ns));
                context.deadline(id, handshake.start.upstream.settings.response_time.nanoseconds());
            }
            return;
        }
        let is_waiting = tunnel.handshake.is_some();
        if is_waiting && slot.is_sending() {
            return Self::keep_event(&context, tunnel, event);
        }
        match event {
            UpstreamEvent::Received(bytes) if is_waiting => self.respond(&mut slot, place, bytes),
            UpstreamEvent::Received(bytes) => {
                tunnel.active_ns = slot.now().mono_ns;
                tunnel.pace.count(bytes.len());
                if slot.is_sending() || !tunnel.waiting.is_empty() {
                    tunnel.waiting.extend_from_slice(bytes);
                    slot.charge_waiting(tunnel.waiting.capacity());
                    if tunnel.waiting.len() >= tunnel.pace.waiting_max(WAITING_MAX) {
                        context.pause(id);
                    }
                } else {
                    slot.out().extend_from_slice(bytes);
                }
            }
            UpstreamEvent::Sent(_) if is_waiting => {}
            UpstreamEvent::Sent(bytes) => {
                tunnel.unsent = tunnel.unsent.saturating_sub(bytes);
                if tunnel.unsent < WAITING_MAX as u64 {
                    slot.unhold();
                }
                self.go_on(place, &mut slot);
            }
            UpstreamEvent::Ended if is_waiting => self.over(&mut slot, place),
            UpstreamEvent::Ended => {
                tunnel.upstream_over = true;
                self.go_on(place, &mut slot);
            }
            UpstreamEvent::Overdue => {
                let connected = tunnel.handshake.as_ref().is_none_or(|handshake| handshake.connected);
                let fault = if connected { GatewayFault::ResponseTime } else { GatewayFault::ConnectTime };
                self.failed(&mut slot, place, fault);
            }
            UpstreamEvent::Failed(fault) => {
                let connected = tunnel.handshake.as_ref().is_none_or(|handshake| handshake.connected);
                self.failed(&mut slot, place, GatewayFault::of_connection(&fault, connected));
            }
            _ => {}
        }
        slot.settle();
    }

    fn drain(&mut self, engine: &mut Engine<'_>, time_ns: u64) {
        self.farewells = Some(engine.farewells(time_ns));
        for place in 0..engine.places() {
            // A tunnel with a send in flight gets its deadline when the send completes.
            if let Some(mut slot) = engine.slot_at(place).filter(|slot| !slot.is_sending()) {
                let due_ns = self.due_ns(&slot);
                let now_ns = slot.now().mono_ns;
                slot.set_deadline(due_ns.saturating_sub(now_ns));
            }
        }
    }
}
