//! The state of a worker without its reactor: connections, exchanges, handlers, residents, timers, and the resulting
//! operations.
//!
//! Other modules extend [`Core`]: `http1` with the requests of a connection, `h2` with its streams, `tls` with its records,
//! `resident` with the connections that outlive their requests.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::slab::Slab;
use encke_io::{Address, Event, Now, Op, OpError, OpKind, Peer, Segment, Token};
use encke_session::tls::{Scratch, Tls};
use encke_wire::http1::Head;
use encke_wire::limits::HeadLimits;

use crate::buffers::{Buffers, Out};
use crate::census::Census;
use crate::close::CloseReason;
use crate::closing::ClosingListener;
use crate::conn::{ADMIN, COUNTED, Conn, ConnPhase, Duty, Input, NONE, SECURE, TO_HTTPS};
use crate::conns::{Conns, Timers, earlier, is_stream};
use crate::date::DateCache;
use crate::drain_census::Leaving;
use crate::end_token::ConnTokens;
use crate::guard::Guards;
use crate::h2::Http2;
use crate::handler::{Action, Handler, HandlerRequests, JobId};
use crate::inbox::{Inbox, WorkerMessage};
use crate::inspect::{ConnWalk, RecentCloses};
use crate::listener::ListenerKind;
use crate::log::{Access, LogFlight, PendingEntry, WaitingEntry};
use crate::metrics::WorkerMetrics;
use crate::operate::Operators;
use crate::outgoing::Upstreams;
use crate::policy::ConnLimits;
use crate::record::Record;
use crate::redial::Redials;
use crate::request_id::RequestIds;
use crate::residents::Residents;
use crate::tls::Handshakes;
use crate::transport::MaybeTls;

/// Time for which a retired listener accepts connections whose handshake is incomplete: a handshake takes a round trip.
pub(crate) const RETIRE_NS: u64 = 200_000_000;
/// Delay before accepting is retried after it failed for lack of descriptors, if no connection of this worker closes meanwhile.
const ACCEPT_RETRY_NS: u64 = 100_000_000;
/// Percentage of the connection limit at which idle connections are shed.
const SHED_PERCENT: usize = 97;
/// Slots examined to find an idle connection to shed.
const SHED_LOOK: usize = 64;
/// Maximum number of pooled lists of segments: the sends of residents in a turn. A list has 32 to 128 bytes.
const SPARE_SEGMENTS_MAX: usize = 256;

/// An open listener of this worker.
pub(crate) struct OpenListener {
    pub(crate) token: Token,
    pub(crate) address: Address,
    pub(crate) kind: ListenerKind,
    /// The kernel's count of drops at the last check.
    pub(crate) drops: u32,
    /// When a retired listener closes; `None` if it is not retired.
    pub(crate) until_ns: Option<u64>,
    /// Dropped when the listener is closed, which releases its address.
    pub(crate) closing: Option<ClosingListener>,
}

/// The worker's stage between start and end. `worker` has the diagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerStage {
    Serving,
    Announced { until_ns: u64, time_ns: u64 },
    Leaving { until_ns: u64, end_ns: u64 },
    Retired { until_ns: u64, end_ns: u64 },
    Draining { end_ns: u64 },
}

/// An open handler of this worker.
pub(crate) struct Mounted {
    pub(crate) handler: Box<dyn Handler>,
    /// The seat of the handler's resident, if it has one.
    pub(crate) seat: Option<u8>,
    /// Replaced by a reload: receives no new requests, and is dropped once none of its exchanges or jobs is open.
    pub(crate) retired: bool,
    pub(crate) jobs: usize,
    pub(crate) watches: Vec<Token>,
}

/// The state of a worker, without its reactor.
pub(crate) struct Core {
    pub(crate) now: Now,
    pub(crate) date: DateCache,
    pub(crate) policy: Rc<ConnLimits>,
    /// How long a connection may stay idle between two requests: the policy's idle time, or [`RETIRE_NS`] during a drain.
    pub(crate) rest_ns: u64,
    /// Limits of a request\'s head, of the present policy.
    pub(crate) head_limits: HeadLimits,
    pub(crate) conns: Conns,
    pub(crate) wheel: Timers,
    pub(crate) records: Slab<Record>,
    /// Number of the last exchange. Exchanges are numbered so that a late response never reaches another request.
    pub(crate) generation: u32,
    pub(crate) flights: Slab<LogFlight>,
    pub(crate) handlers: Vec<Option<Mounted>>,
    /// Prefixes and handlers of each side (site, admin), longest prefix first; among equal prefixes, the last mounted first.
    pub(crate) routes: [Vec<(Box<[u8]>, u16)>; 2],
    pub(crate) guards: Guards,
    /// Whether handlers or guards of an earlier plan exist.
    pub(crate) retired: bool,
    pub(crate) handler_requests: Rc<HandlerRequests>,
    pub(crate) link: Arc<Inbox>,
    /// The inboxes of all workers, once they have started.
    pub(crate) links: Arc<[Arc<Inbox>]>,
    pub(crate) leaving: Leaving,
    /// Spare heads. Boxed, so that handing one to a connection and back moves a pointer, not 1 KiB.
    #[expect(clippy::vec_box, reason = "moved between here and connections: a pointer, not 1 KiB")]
    pub(crate) heads: Vec<Box<Head>>,
    pub(crate) out: Out,
    pub(crate) segments: Vec<Segment>,
    /// Log entries of the responses in the output.
    pub(crate) out_entries: Vec<PendingEntry>,
    /// Log entries of responses that ended in this turn. The end of the turn ends their durations, too.
    pub(crate) ended_entries: Vec<PendingEntry>,
    pub(crate) spare_segments: Vec<Vec<Segment>>,
    pub(crate) buffers: Buffers,
    pub(crate) ops: Vec<(Token, Op)>,
    /// An empty list, swapped for the list of actions of features.
    pub(crate) actions: Vec<Action>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) log: Access,
    pub(crate) request_ids: RequestIds,
    /// Ids of open requests for their responses, by connection index: of all requests if responses have ids, otherwise of
    /// requests with guards whose id a proxy has given.
    pub(crate) open_ids: HashMap<u32, Box<[u8]>>,
    /// Values of guards that are dropped once the response of a request is sent, or its resident has ended, by connection index.
    pub(crate) end_tokens: HashMap<u32, ConnTokens>,
    pub(crate) residents: Residents,
    /// Walks of operators over all connections, of which the first continues in the next turn.
    pub(crate) walks: VecDeque<ConnWalk>,
    pub(crate) recent_closes: RecentCloses,
    pub(crate) operators: Operators,
    /// Log entries of requests whose connections belong to residents, by connection index.
    pub(crate) entries: HashMap<u32, WaitingEntry>,
    /// Scratch buffers of TLS connections.
    pub(crate) scratch: Scratch,
    pub(crate) handshakes: Handshakes,
    pub(crate) http2: Http2,
    pub(crate) upstreams: Upstreams,
    pub(crate) redials: Redials,
    /// Requests of this turn to which the handler responded within its call.
    pub(crate) turn_answers: u64,
    pub(crate) census: Arc<Census>,
    pub(crate) listeners: Vec<OpenListener>,
    /// Whether a listener is retired but not yet closed.
    pub(crate) retiring: bool,
    /// Listeners that the reactor is closing.
    pub(crate) closing: Vec<(Token, ClosingListener)>,
    pub(crate) accept_paused: bool,
    pub(crate) accept_retry_ns: Option<u64>,
    pub(crate) shed_hand: usize,
    pub(crate) open: usize,
    pub(crate) partial: usize,
    /// Connections accepted in this turn.
    pub(crate) turn_accepts: u32,
    pub(crate) stage: WorkerStage,
    pub(crate) due: Vec<u32>,
    pub(crate) messages: Vec<WorkerMessage>,
    pub(crate) inbox_left: bool,
    pub(crate) checked_second: u64,
    /// This worker's number.
    pub(crate) number: usize,
    pub(crate) workers: usize,
}

impl Core {
    pub(crate) fn begin_turn(&mut self, now: Now) {
        self.residents.forget_due_ns();
        self.now = now;
        self.date.turn(now.unix_s());
        self.turn_accepts = 0;
        self.handler_requests.set_now(now);
    }

    /// Returns the moment until which the worker may sleep; `None` if only an event wakes it.
    #[inline]
    pub(crate) fn until(&self) -> Option<u64> {
        let stage = match self.stage {
            WorkerStage::Serving => None,
            // The next turn checks whether a listen queue holds a connection.
            WorkerStage::Retired { .. } if !self.accept_paused && self.open_everywhere() == 0 => Some(0),
            WorkerStage::Announced { until_ns, .. }
            | WorkerStage::Leaving { until_ns, .. }
            | WorkerStage::Retired { until_ns, .. } => Some(until_ns),
            WorkerStage::Draining { end_ns } => Some(end_ns),
        };
        let doors =
            if self.retiring { self.listeners.iter().filter_map(|door| door.until_ns).min() } else { None };
        let residents = self.residents.due_ns();
        earlier(
            earlier(earlier(self.wheel.next_ns(), residents), self.accept_retry_ns),
            earlier(earlier(stage, doors), self.redials.due_ns()),
        )
    }

    /// Whether responses close their connections.
    pub(crate) fn draining(&self) -> bool {
        matches!(
            self.stage,
            WorkerStage::Leaving { .. } | WorkerStage::Retired { .. } | WorkerStage::Draining { .. }
        )
    }

    /// Whether the process has no connection, and this turn found none in this worker's listen queues.
    pub(crate) fn is_deserted(&self) -> bool {
        self.turn_accepts == 0 && !self.accept_paused && self.open_everywhere() == 0
    }

    /// Returns the number of connections of the whole process.
    pub(crate) fn open_everywhere(&self) -> usize {
        self.census.open()
    }

    /// Returns the connection of a token, unless it has closed.
    pub(crate) fn conn(&mut self, token: Token) -> Option<&mut Conn> {
        let conn = self.conns.get_mut(token.index as usize)?;
        (conn.generation == token.generation && conn.phase != ConnPhase::Vacant).then_some(conn)
    }

    // Inlined: a call saves and restores all registers, twice per request.
    #[inline(always)]
    pub(crate) fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Received { token, lease } => {
                self.metrics.received_bytes.add(lease.len() as u64);
                self.received(token, lease);
            }
            Event::Sent { token, bytes, segments } => self.sent(token, bytes, segments),
            Event::Accepted { listener, token, peer } => self.accepted(listener, token, peer),
            Event::PeerClosed { token, behind_data } => self.peer_closed(token, behind_data),
            Event::Closed { token, segments } => {
                self.recycle_segments(segments);
                self.closed(token);
            }
            Event::Failed { token, op: OpKind::Accept, fault, .. } => self.accept_failed(token, fault),
            Event::Failed { op: OpKind::Shutdown, .. } | Event::Woken => {}
            Event::Connected { token } => self.upstream_connected(token),
            Event::Failed { token, op: OpKind::Send, fault: OpError::Reset, sent, segments }
                if self.is_open_upstream(token) =>
            {
                self.upstream_deaf(token, sent, segments);
            }
            Event::Failed { token, fault, sent, segments, .. } => {
                self.conn_failed(token, fault, sent, segments);
            }
            Event::Watched { token } => {
                let watching = self.handlers.iter_mut().flatten().find(|one| one.watches.contains(&token));
                if let Some(mounted) = watching {
                    mounted.handler.watched();
                } else {
                    self.guard_watched(token);
                }
            }
            Event::Offloaded { key, done } if crate::h2::is_file_job(key) => self.file_was_read(key, done),
            Event::Offloaded { key, done } => {
                let job = JobId(key);
                if let Some(seat) = job.resident() {
                    self.call_engine(seat, |resident, engine| resident.offloaded(engine, job, done));
                } else if let Some(Some(mounted)) = self.handlers.get_mut(job.handler()) {
                    mounted.jobs -= 1;
                    mounted.handler.offloaded(job, done);
                } else {
                    self.guard_offloaded(job, done);
                }
            }
        }
    }

    pub(crate) fn accepted(&mut self, listener: Token, token: Token, peer: Peer) {
        let Some(kind) = self.listeners.iter().find(|door| door.token == listener).map(|door| &door.kind)
        else {
            self.ops.push((token, Op::Close));
            return;
        };
        self.metrics.accepted.add(1);
        self.turn_accepts += 1;
        let (admin, proxy_protocol) = (kind.admin, kind.proxy_protocol);
        // The client behind a PROXY header is unknown until the header is read.
        if self.census.blocks.has_any() && !admin && !proxy_protocol && self.is_blocked(peer) {
            self.ops.push((token, Op::Abort));
            return;
        }
        let phase = if proxy_protocol { ConnPhase::Proxy } else { ConnPhase::Idle };
        let mut conn = Conn::new(token.generation, peer, phase);
        conn.deadline_ns = self.now.mono_ns.saturating_add(self.policy.limits.head_time.nanoseconds());
        if admin {
            conn.flags |= ADMIN;
        }
        if kind.to_https {
            conn.flags |= TO_HTTPS;
        }
        if let Some(identity) = &kind.tls {
            let ends_ns = self.now.mono_ns.saturating_add(self.policy.limits.handshake_time.nanoseconds());
            let Some(tls) = Tls::new(identity.config(), ends_ns) else {
                self.metrics.tls.refused.add(1);
                self.ops.push((token, Op::Close));
                return;
            };
            conn.transport = MaybeTls::Tls(tls);
            conn.flags |= SECURE;
            if !proxy_protocol {
                conn.phase = ConnPhase::Handshake;
                conn.deadline_ns = ends_ns;
            }
        }
        let deadline_ns = conn.deadline_ns;
        self.conns.put(token.index, conn);
        self.open += 1;
        let most = self.policy.connections;
        let open = self.census.enter();
        if open >= most {
            // New clients wait in the kernel's queue. The admin listener keeps accepting.
            self.pause_accept(false);
        }
        // The client behind a PROXY header is unknown until the header is read.
        if !proxy_protocol && !self.count_address(token) {
            self.close(token, CloseReason::AddressLimit, true);
            return;
        }
        if open.saturating_mul(100) >= most.saturating_mul(SHED_PERCENT) {
            self.shed_one();
        }
        self.wheel.arm(token.index, deadline_ns);
        self.ops.push((token, Op::Recv));
    }

    /// Whether an operator has blocked a client's address. Counts the refusal.
    #[cold]
    fn is_blocked(&self, peer: Peer) -> bool {
        let Peer::Inet(address) = peer else { return false };
        let blocked = self.census.blocks.refuses(address.ip(), self.now.mono_ns);
        if blocked {
            self.metrics.refused(CloseReason::Blocked.name());
        }
        blocked
    }

    /// Admits the client that a PROXY header has named. Returns false, and closes the connection, if the client is blocked or
    /// has reached the limit of its address.
    pub(crate) fn admit_proxied(&mut self, token: Token) -> bool {
        let peer = self.conns[token.index as usize].peer.unpack();
        if self.census.blocks.has_any() && self.is_blocked(peer) {
            self.close(token, CloseReason::Blocked, true);
            return false;
        }
        if !self.count_address(token) {
            self.close(token, CloseReason::AddressLimit, true);
            return false;
        }
        true
    }

    /// Counts a connection against the limit of its address. Returns false if the address has reached the limit.
    pub(crate) fn count_address(&mut self, token: Token) -> bool {
        let conn = &mut self.conns[token.index as usize];
        if let (Some(most), Peer::Inet(address)) =
            (self.policy.limits.connections_per_address.on().map(NonZeroU32::get), conn.peer.unpack())
        {
            if !self.census.enter_address(address.ip(), most) {
                return false;
            }
            conn.flags |= COUNTED;
        }
        true
    }

    /// Closes the idle connection that would time out first among the next [`SHED_LOOK`] slots. Connections of the admin listener
    /// stay: an operator needs them most while descriptors are short.
    pub(crate) fn shed_one(&mut self) {
        let count = self.conns.sockets.len();
        let mut oldest: Option<usize> = None;
        for _ in 0..SHED_LOOK.min(count) {
            self.shed_hand = (self.shed_hand + 1) % count;
            let conn = &self.conns[self.shed_hand];
            let older = |index: usize| conn.deadline_ns < self.conns[index].deadline_ns;
            let is_idle = !conn.has(ADMIN) && (conn.is_idle() || self.http2.is_idle(conn));
            if is_idle && oldest.is_none_or(older) {
                oldest = Some(self.shed_hand);
            }
        }
        if let Some(index) = oldest {
            let token = Token { index: index as u32, generation: self.conns[index].generation };
            self.close(token, CloseReason::Shed, false);
        }
    }

    pub(crate) fn accept_failed(&mut self, listener: Token, fault: OpError) {
        let address =
            self.listeners.iter().find(|door| door.token == listener).map(|door| door.address.to_string());
        let address = address.unwrap_or_default();
        encke_settings::notice::report(
            encke_settings::Level::Warn,
            &format!("cannot accept on {address}: {fault}; accepting pauses until a connection closes"),
        );
        self.pause_accept(true);
        for mounted in self.handlers.iter_mut().flatten() {
            mounted.handler.shrink();
        }
        self.guards.shrink();
        self.buffers.shrink();
        self.shed_one();
    }

    pub(crate) fn pause_accept(&mut self, admin: bool) {
        self.accept_retry_ns = Some(self.now.mono_ns + ACCEPT_RETRY_NS);
        if self.accept_paused {
            return;
        }
        self.accept_paused = true;
        self.metrics.accept_pauses.add(1);
        for door in self.listeners.iter().filter(|door| admin || !door.kind.admin) {
            self.ops.push((door.token, Op::Pause));
        }
    }

    /// Resumes accepting if the connection limit allows it. Otherwise checks again later, because another worker may close a
    /// connection.
    pub(crate) fn resume_accept(&mut self) {
        if self.census.open() >= self.policy.connections {
            self.accept_retry_ns = Some(self.now.mono_ns + ACCEPT_RETRY_NS);
            return;
        }
        self.accept_retry_ns = None;
        if std::mem::take(&mut self.accept_paused) {
            for door in &self.listeners {
                self.ops.push((door.token, Op::Accept));
            }
        }
    }

    /// Sets a deadline that may be earlier than the armed timer.
    pub(crate) fn set_deadline(&mut self, token: Token, after_ns: u64) {
        let deadline = self.now.mono_ns.saturating_add(after_ns);
        self.conns[token.index as usize].deadline_ns = deadline;
        self.wheel.arm_earlier(token.index, deadline);
    }

    /// Closes a connection. Its open exchange ends, and its output is discarded.
    pub(crate) fn close(&mut self, token: Token, reason: CloseReason, abort: bool) {
        self.close_unsent(token, reason, abort, None);
    }

    /// Closes a connection whose send may be in flight. `unsent`: bytes that the client has not received, if they are known, for
    /// the access log.
    pub(crate) fn close_unsent(
        &mut self,
        token: Token,
        reason: CloseReason,
        abort: bool,
        unsent: Option<u64>,
    ) {
        let Some(conn) = self.conn(token) else { return };
        if conn.phase == ConnPhase::Closing {
            return;
        }
        if conn.phase == ConnPhase::Upstream {
            return self.drain_upstream(token);
        }
        if !is_stream(token) {
            self.note_close(token, reason);
        }
        let Some(conn) = self.conn(token) else { return };
        if let Some(engine) = conn.duty.as_engine() {
            conn.duty = Duty::Rest;
            self.abandon_http2(engine, reason);
        } else if conn.duty.seat().is_some() {
            self.leave_resident(token, reason);
        }
        if !self.open_ids.is_empty() {
            self.open_ids.remove(&token.index);
        }
        if !self.end_tokens.is_empty() {
            self.end_tokens.remove(&token.index);
        }
        let Some(conn) = self.conn(token) else { return };
        conn.phase = ConnPhase::Closing;
        conn.deadline_ns = u64::MAX;
        let exchange = std::mem::replace(&mut conn.duty, Duty::Rest).as_exchange();
        let flight = std::mem::replace(&mut conn.flight, NONE);
        let input = conn.input.take();
        if is_stream(token) {
            self.conns[token.index as usize].reason = reason;
        } else {
            self.metrics.closed(reason);
        }
        if let Some(input) = input {
            self.recycle_input(input);
        }
        if let Some(place) = exchange
            && let Some(gone) = self.records.remove(place)
        {
            self.abandon(place, gone, reason);
        }
        if flight != NONE {
            let unsent = if is_stream(token) { Some(self.http2.unsent(token)) } else { unsent };
            self.cut_flight(flight, unsent, reason.cause());
        }
        self.out.clear();
        self.segments.clear();
        self.drop_out_entries(reason.cause());
        self.ops.push((token, if abort { Op::Abort } else { Op::Close }));
    }

    /// Ends an exchange whose client has disconnected. Notifies the handler, unless the response is complete.
    fn abandon(&mut self, slot: u32, mut record: Record, reason: CloseReason) {
        let key = record.key(slot);
        let cause = record.reason.or(reason.cause());
        if let Some(held) = record.held.take() {
            // No handler was called.
            let entry = record.entry.take().or_else(|| self.abandon_held(record.token, key, &held));
            return self.finish_entry(entry, record.sent_bytes, record.started_ns, cause);
        }
        if record.is_read() {
            self.call_body(record.handler, key, crate::handler::Piece::Broken);
        }
        self.close_open(slot);
        if record.is_unfinished() {
            self.call_handler(record.handler, key, |handler| handler.gone(key));
        }
        self.finish_entry(record.entry, record.sent_bytes, record.started_ns, cause);
    }

    pub(crate) fn closed(&mut self, token: Token) {
        if !self.closing.is_empty() {
            self.closing.retain(|(closing, _)| *closing != token);
        }
        let Some(conn) = self.conns.get_mut(token.index as usize) else { return };
        if conn.generation != token.generation || conn.phase == ConnPhase::Vacant {
            return;
        }
        if conn.phase == ConnPhase::Upstream {
            return self.upstream_closed(token);
        }
        if conn.has(COUNTED)
            && let Peer::Inet(address) = conn.peer.unpack()
        {
            self.census.leave_address(address.ip());
        }
        self.end_handshake(token);
        if !self.end_tokens.is_empty() {
            self.end_tokens.remove(&token.index);
        }
        self.conns[token.index as usize] = Conn::vacant();
        self.wheel.cancel(token.index);
        self.open -= 1;
        self.census.leave();
        if self.accept_paused {
            self.resume_accept();
        }
    }

    /// Returns the handler of a path: among the handlers of the listener's side, the one with the longest matching prefix.
    #[inline]
    pub(crate) fn route(&self, admin: bool, path: &[u8]) -> Option<u16> {
        let mut routes = self.routes[usize::from(admin)].iter();
        routes.find(|(prefix, _)| begins_with(path, prefix)).map(|(_, handler)| *handler)
    }

    /// Returns an empty head to parse into.
    pub(crate) fn spare_head(&mut self) -> Box<Head> {
        self.heads.pop().unwrap_or_default()
    }

    #[expect(clippy::boxed_local, reason = "it comes from a connection's slot, where it is boxed")]
    pub(crate) fn recycle_input(&mut self, input: Box<Input>) {
        let Input { bytes, head, .. } = *input;
        self.buffers.give(bytes);
        self.give_head(head);
    }

    #[inline]
    pub(crate) fn recycle_segment(&mut self, segment: Segment) {
        if let Segment::Bytes(bytes) = segment {
            self.buffers.give(bytes);
        }
    }

    pub(crate) fn recycle_segments(&mut self, mut segments: Vec<Segment>) {
        while let Some(segment) = segments.pop() {
            self.recycle_segment(segment);
        }
        if segments.capacity() > 0 && self.spare_segments.len() < SPARE_SEGMENTS_MAX {
            self.spare_segments.push(segments);
        }
    }
}

/// Whether a path begins with a prefix. Compares the last byte of the prefix first: most paths differ there, and comparing the
/// rest is a call.
#[inline]
fn begins_with(path: &[u8], prefix: &[u8]) -> bool {
    match prefix.split_last() {
        Some((last, rest)) => {
            path.get(rest.len()) == Some(last) && (rest.is_empty() || path.starts_with(rest))
        }
        None => true,
    }
}
