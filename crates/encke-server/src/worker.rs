//! A worker: one thread, one reactor, its own connections, handlers and timers. Nothing in it is shared.
//!
//! ```text
//! turn:  wait (not at all if work is pending)
//!        ─► ≤ 256 events ─► due timers ─► ≤ 64 messages ─► jobs and watches of handlers ─► submit
//! ```
//! [`Core`] decides and puts operations down; [`Worker`] has the reactor and submits them. So an event may lend
//! the reactor's memory while the core works with it.
//!
//! ```text
//! Serving ──Drain──► Announced ──delay──► Retired ──a moment──► Draining ──empty, or time──► over
//!                    /readyz says 503     listeners take what   listeners are closed,
//!                                         is under way          idle connections end
//! ```
//! `Retired` takes one turn if the process has no connection and the listen queues are empty.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::slab::Slab;
use encke_io::socket::Listener;
use encke_io::{Address, Event, Fault, Now, Op, OpKind, Peer, Reactor, Segment, Source, Token};
use encke_wire::http1::Head;

use crate::buffers::{Buffers, Out};
use crate::census::Census;
use crate::close::CloseReason;
use crate::closing::ClosingListener;
use crate::command::{Command, DoorKind};
use crate::conn::{ADMIN, COUNTED, Conn, Input, NONE, Phase, SECURE, TO_HTTPS};
use crate::conns::{Conns, Timers, earlier, is_stream};
use crate::date::DateCache;
use crate::h2::{Http2, Totals};
use crate::handler::{Desk, Handler, JobId, Tray};
use crate::link::{Link, Message};
use crate::log::{Access, Entry};
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::record::Record;
use crate::request::Request;
use crate::resident::{Resident, Residents, WaitingEntry, WorkerSetup};
use crate::tls::{Handshakes, Scratch, Tls};
use crate::transport::Transport;
use crate::websocket::WebSockets;

/// Events served before timers and messages have their turn.
const EVENTS_PER_TURN: usize = 256;
/// Messages taken from the inbox in a turn.
const MESSAGES_PER_TURN: usize = 64;
/// When accepting failed for want of descriptors, and nothing of this worker closes, it is tried again.
const ACCEPT_RETRY_NS: u64 = 100_000_000;
/// How long a retired listener accepts what was under way: a handshake takes a round trip.
const RETIRE_NS: u64 = 200_000_000;
/// A resident's part of a turn: at most 256 sends, in slices between which the clock is looked at, and at most a
/// millisecond. A send costs some 6 µs, nearly all of it the kernel's.
const SLICE_SENDS: usize = 64;
const SLICES: usize = 4;
const SLICES_NS: u64 = 1_000_000;
/// From this share of the connections on, idle ones make room: 97 in 100.
const SHED_PERCENT: usize = 97;
/// Slots looked at to find an idle connection to shed.
const SHED_LOOK: usize = 64;

struct Door {
    token: Token,
    address: Address,
    kind: DoorKind,
    /// Drops that the kernel had counted at the last look.
    drops: u32,
    /// It is retired, and closes at this moment.
    until_ns: Option<u64>,
    /// Dropped when it is closed: others wait for its address.
    closing: Option<ClosingListener>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Serving,
    Announced { until_ns: u64, time_ns: u64 },
    Retired { until_ns: u64, end_ns: u64 },
    Draining { end_ns: u64 },
}

/// A handler.
pub(crate) struct Mounted {
    pub(crate) handler: Box<dyn Handler>,
    /// The seat of its resident, if it has one.
    pub(crate) seat: Option<u8>,
    /// Replaced at a reload: it gets no new requests, and goes when nothing of it is open.
    retired: bool,
    jobs: usize,
    watches: Vec<Token>,
}

/// A worker on a reactor of kind `R`.
pub(crate) struct Worker<R> {
    reactor: R,
    pub(crate) core: Core,
}

/// All of a worker but its reactor.
pub(crate) struct Core {
    pub(crate) now: Now,
    pub(crate) date: DateCache,
    pub(crate) policy: Rc<Policy>,
    /// How long a connection may rest between two requests: the policy's idle time, or a moment at a drain.
    pub(crate) rest_ns: u64,
    pub(crate) conns: Conns,
    pub(crate) wheel: Timers,
    pub(crate) records: Slab<Record>,
    /// Counts exchanges, so that a late answer never meets another request.
    pub(crate) generation: u32,
    flights: Slab<Flight>,
    pub(crate) handlers: Vec<Option<Mounted>>,
    /// Prefixes and handlers of each side (site, admin), the longest prefix first; of equal ones the last mounted first.
    routes: [Vec<(Box<[u8]>, u16)>; 2],
    /// There are handlers of an earlier plan.
    retired: bool,
    tray: Rc<Tray>,
    pub(crate) link: Arc<Link>,
    /// Spare heads. Boxed, so that one goes to a connection and comes back as a pointer, not as 1 KiB.
    #[expect(clippy::vec_box, reason = "moved between here and connections: a pointer, not 1 KiB")]
    pub(crate) heads: Vec<Box<Head>>,
    pub(crate) out: Out,
    pub(crate) segments: Vec<Segment>,
    /// Log entries of the answers in the output: entry, content bytes, start.
    pub(crate) out_entries: Vec<(Box<Entry>, u64, u64)>,
    pub(crate) spare_segments: Vec<Vec<Segment>>,
    pub(crate) buffers: Buffers,
    pub(crate) ops: Vec<(Token, Op)>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Access,
    pub(crate) residents: Residents,
    /// Log entries of requests whose connections residents have, by place.
    pub(crate) entries: HashMap<u32, WaitingEntry>,
    /// What TLS connections work with.
    pub(crate) scratch: Scratch,
    pub(crate) handshakes: Handshakes,
    pub(crate) http2: Http2,
    /// Requests of this turn that were answered within their call.
    pub(crate) turn_answers: u64,
    census: Arc<Census>,
    doors: Vec<Door>,
    /// A listener is retired, and not closed yet.
    retiring: bool,
    /// Listeners that the reactor is closing.
    closing: Vec<(Token, ClosingListener)>,
    accept_paused: bool,
    accept_retry_ns: Option<u64>,
    shed_hand: usize,
    open: usize,
    partial: usize,
    /// Connections accepted in this turn.
    turn_accepts: u32,
    stage: Stage,
    due: Vec<u32>,
    messages: Vec<Message>,
    inbox_left: bool,
    checked_second: u64,
    /// Which worker it is, of how many.
    number: usize,
    workers: usize,
}

/// Log entries of answers whose send is in flight.
struct Flight {
    entries: Vec<(Box<Entry>, u64, u64)>,
}

/// Whether a worker goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Go,
    Over,
}

/// What a worker shares with the others and the program.
pub(crate) struct Shared {
    /// Which worker it is, of how many.
    pub(crate) number: usize,
    pub(crate) workers: usize,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) census: Arc<Census>,
    pub(crate) http2: Arc<Totals>,
    pub(crate) log: Access,
}

impl<R: Reactor> Worker<R> {
    pub(crate) fn new(mut reactor: R, link: Arc<Link>, plan: &Plan, shared: Shared) -> Self {
        let now = reactor.now();
        let mut core = Core {
            now,
            date: DateCache::new(now.unix_s()),
            policy: Rc::new(plan.policy.clone()),
            rest_ns: plan.policy.idle_time_ns,
            conns: Conns::default(),
            wheel: Timers::new(now.mono_ns),
            records: Slab::new(),
            generation: 0,
            flights: Slab::new(),
            handlers: Vec::new(),
            routes: Default::default(),
            retired: false,
            tray: Rc::new(Tray::new(Arc::clone(&shared.metrics))),
            link,
            heads: Vec::new(),
            out: Out::default(),
            segments: Vec::new(),
            out_entries: Vec::new(),
            spare_segments: Vec::new(),
            buffers: Buffers::default(),
            ops: Vec::new(),
            metrics: shared.metrics,
            log: shared.log,
            residents: Residents::new(WebSockets::default()),
            entries: HashMap::new(),
            scratch: Scratch::default(),
            handshakes: Handshakes::default(),
            http2: Http2::new(&shared.http2),
            turn_answers: 0,
            census: shared.census,
            doors: Vec::new(),
            retiring: false,
            closing: Vec::new(),
            accept_paused: false,
            accept_retry_ns: None,
            shed_hand: 0,
            open: 0,
            partial: 0,
            turn_accepts: 0,
            stage: Stage::Serving,
            due: Vec::new(),
            messages: Vec::new(),
            inbox_left: false,
            checked_second: 0,
            number: shared.number,
            workers: shared.workers,
        };
        core.http2.limit(&plan.policy);
        core.mount(plan);
        let mut worker = Self { reactor, core };
        worker.serve_desks();
        worker
    }

    /// Accepts on a listener.
    pub(crate) fn listen(&mut self, listener: Listener, kind: DoorKind) -> Result<(), Fault> {
        let address = listener.address().clone();
        let token = self.reactor.adopt(Source::Listener(listener))?;
        self.core.doors.push(Door { token, address, kind, drops: 0, until_ns: None, closing: None });
        if !self.core.accept_paused {
            self.reactor.submit(token, Op::Accept);
        }
        Ok(())
    }

    /// Turns until the worker is told to stop and is empty.
    pub(crate) fn run(mut self) -> Result<(), Fault> {
        while self.turn()? == Turn::Go {}
        self.end();
        Ok(())
    }

    /// It has had its last turn.
    pub(crate) fn end(&mut self) {
        let now = self.core.now;
        for seat in self.core.residents.seats() {
            self.core.call_engine(seat, |resident, _| resident.end(now));
        }
    }

    /// One turn; drawn at the top.
    pub(crate) fn turn(&mut self) -> Result<Turn, Fault> {
        let until = if self.core.inbox_left { Some(0) } else { self.core.until() };
        self.core.begin_turn(self.reactor.wait(until)?);
        self.core.link.awake();

        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.reactor.next() else { break };
            self.core.on_event(event);
            if self.core.is_stirred() {
                self.submit();
            }
        }
        self.timers();
        self.messages();
        self.serve_desks();
        self.residents();
        self.stage();
        self.end_turn();
        // From here on a message rings; one that came in before is looked at in the next turn.
        self.core.inbox_left |= !self.core.link.sleep();
        let Stage::Draining { end_ns } = self.core.stage else { return Ok(Turn::Go) };
        let late = end_ns <= self.core.now.mono_ns;
        let free = self.core.residents.iter().all(|resident| resident.may_end(late));
        let over = self.core.open == 0 && free;
        Ok(if over { Turn::Over } else { Turn::Go })
    }

    /// Gives the operations that an event has led to where they belong, until nothing more comes of them.
    #[inline]
    fn submit(&mut self) {
        loop {
            // Before their places can be another connection's.
            self.core.residents.report_gone();
            // An event mostly leads to one operation or none, and popping it is cheaper than draining a list.
            match self.core.ops.len() {
                0 => {}
                1 => {
                    if let Some((token, op)) = self.core.ops.pop() {
                        self.submit_one(token, op);
                    }
                }
                _ => self.submit_all(),
            }
            if self.core.ops.is_empty() && !self.core.stir() {
                return;
            }
        }
    }

    fn submit_all(&mut self) {
        let mut ops = std::mem::take(&mut self.core.ops);
        for (token, op) in ops.drain(..) {
            self.submit_one(token, op);
        }
        // Those of streams may have led to others.
        ops.append(&mut self.core.ops);
        self.core.ops = ops;
    }

    #[inline]
    fn submit_one(&mut self, token: Token, op: Op) {
        if is_stream(token) {
            self.core.stream_op(token, op);
        } else {
            self.reactor.submit(token, op);
        }
    }

    fn timers(&mut self) {
        let mut due = std::mem::take(&mut self.core.due);
        self.core.wheel.expire(self.core.now.mono_ns, &mut due);
        for index in due.drain(..) {
            let conn = &self.core.conns[index as usize];
            let token = Token { index, generation: conn.generation };
            if conn.deadline_ns > self.core.now.mono_ns {
                // Postponed since the timer was armed.
                if conn.deadline_ns != u64::MAX {
                    // A connection that is busy now may come to rest before that.
                    let rest = self.core.now.mono_ns.saturating_add(self.core.rest_ns);
                    self.core.wheel.arm(index, conn.deadline_ns.min(rest));
                }
                continue;
            }
            let unsent = if is_stream(token) {
                self.core.http2.unsent(token)
            } else {
                self.reactor.unsent(token) + self.reactor.unacknowledged(token)
            };
            self.core.overdue(token, unsent);
            self.submit();
        }
        self.core.due = due;
        if self.core.accept_retry_ns.is_some_and(|at| at <= self.core.now.mono_ns) {
            self.core.resume_accept();
            self.submit();
        }
    }

    #[inline]
    fn messages(&mut self) {
        if self.core.link.is_empty() {
            self.core.inbox_left = false;
        } else {
            self.take_messages();
        }
    }

    #[inline(never)]
    fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.core.messages);
        self.core.inbox_left = self.core.link.take(MESSAGES_PER_TURN, &mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Answer(key, reply) => self.core.answer(key, *reply),
                Message::Takeover(key, takeover) => self.core.late_takeover(key, takeover),
                Message::Interim(key, status, fields) => self.core.interim(key, status, &fields),
                Message::ReadMore(key) => self.core.read_more(key),
                Message::Wake(key) => self.core.wake_stream(key),
                Message::Dropped(key) => self.core.dropped(key),
                Message::Resident(seat, message) => {
                    self.core.call_engine(seat, |resident, engine| resident.message(engine, message));
                }
                Message::Command(command) => self.command(command),
            }
            self.submit();
        }
        self.core.messages = messages;
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Listen(listener, kind) => {
                let address = listener.address().clone();
                if let Err(fault) = self.listen(listener, kind) {
                    encke_settings::notice::report(
                        encke_settings::Level::Warn,
                        &format!("cannot accept on {address}: {fault}"),
                    );
                }
            }
            Command::Unlisten(closing) => {
                let until_ns = self.core.now.mono_ns + RETIRE_NS;
                let at_address =
                    |door: &&mut Door| door.until_ns.is_none() && door.address == *closing.address();
                // A worker has one listener of an address.
                if let Some(door) = self.core.doors.iter_mut().find(at_address) {
                    self.reactor.submit(door.token, Op::Retire);
                    door.until_ns = Some(until_ns);
                    door.closing = Some(closing);
                    self.core.retiring = true;
                }
            }
            Command::Reload(plan) => {
                self.core.policy = Rc::new(plan.policy.clone());
                self.core.http2.limit(&plan.policy);
                if !self.core.draining() {
                    self.core.rest_ns = plan.policy.idle_time_ns;
                }
                self.core.mount(&plan);
            }
            Command::Meet(links) => {
                self.core.meet(&links);
            }
            Command::Drain { delay, time } => {
                if self.core.stage == Stage::Serving {
                    let until_ns = self.core.now.plus(delay);
                    self.core.stage = Stage::Announced { until_ns, time_ns: time.as_nanos() as u64 };
                }
            }
        }
    }

    /// Gives the reactor what handlers have put on their desks.
    #[inline]
    fn serve_desks(&mut self) {
        if self.core.tray.has_work() {
            self.serve_tray();
        }
        if self.core.retired {
            self.drop_retired();
        }
    }

    #[inline(never)]
    fn serve_tray(&mut self) {
        for job in self.core.tray.take_jobs() {
            if let Some(Some(mounted)) = self.core.handlers.get_mut(JobId(job.key).handler()) {
                mounted.jobs += 1;
            }
            self.reactor.submit(Token::NONE, Op::Offload(job));
        }
        for (handler, watched) in self.core.tray.take_watches() {
            if let Some(Some(mounted)) = self.core.handlers.get_mut(usize::from(handler))
                && let Ok(token) = self.reactor.adopt(Source::Watched(watched))
            {
                self.reactor.submit(token, Op::Watch);
                mounted.watches.push(token);
            }
        }
    }

    /// Has the residents do their part of a turn.
    #[inline]
    fn residents(&mut self) {
        let now_ns = self.core.now.mono_ns;
        for seat in self.core.residents.with_turns() {
            if self.core.residents.seat_due_ns(seat).is_some_and(|due_ns| due_ns <= now_ns) {
                self.resident_turn(seat);
            }
        }
    }

    #[inline(never)]
    fn resident_turn(&mut self, seat: u8) {
        self.core.call_engine(seat, Resident::begin);
        self.submit();
        let end_ns = self.reactor.now().mono_ns + SLICES_NS;
        for _ in 0..SLICES {
            let slice = self.core.call_engine(seat, |resident, engine| resident.slice(engine, SLICE_SENDS));
            let more = slice == Some(true);
            self.submit();
            let now = self.reactor.now();
            self.core.call_engine(seat, |resident, engine| resident.sliced(engine, now, more));
            if !more || now.mono_ns >= end_ns {
                break;
            }
        }
        self.core.call_engine(seat, Resident::finish);
        self.submit();
    }

    /// Drops the handlers of an earlier plan of which nothing is open any more.
    fn drop_retired(&mut self) {
        let core = &mut self.core;
        core.retired = false;
        for (number, place) in core.handlers.iter_mut().enumerate() {
            let Some(mounted) = place else { continue };
            let open = |(_, record): (u32, &Record)| usize::from(record.handler) == number;
            if !mounted.retired {
                continue;
            }
            if mounted.jobs > 0 || core.records.iter().any(open) {
                core.retired = true;
                continue;
            }
            for token in mounted.watches.drain(..) {
                self.reactor.submit(token, Op::Close);
            }
            *place = None;
        }
    }

    /// Goes through the stages of a drain as their time comes.
    #[inline]
    fn stage(&mut self) {
        if self.core.stage != Stage::Serving || self.core.retiring {
            self.advance_stage();
        } else if self.core.is_stirred() {
            self.submit();
        }
    }

    #[inline(never)]
    fn advance_stage(&mut self) {
        let now = self.core.now.mono_ns;
        let over = |door: &mut Door| door.until_ns.is_some_and(|until_ns| until_ns <= now);
        for door in self.core.doors.extract_if(.., over) {
            self.reactor.submit(door.token, Op::Close);
            self.core.closing.extend(door.closing.map(|closing| (door.token, closing)));
        }
        self.core.retiring = self.core.doors.iter().any(|door| door.until_ns.is_some());
        match self.core.stage {
            Stage::Announced { until_ns, time_ns } if until_ns <= now => {
                for door in &self.core.doors {
                    self.reactor.submit(door.token, Op::Retire);
                }
                self.core.stage =
                    Stage::Retired { until_ns: now + RETIRE_NS.min(time_ns / 2), end_ns: now + time_ns };
            }
            Stage::Retired { until_ns, end_ns } if until_ns <= now || self.core.is_deserted() => {
                for door in self.core.doors.drain(..) {
                    self.reactor.submit(door.token, Op::Close);
                }
                self.core.stage = Stage::Draining { end_ns };
                self.core.release_idle();
                self.core.drain_residents(end_ns.saturating_sub(now));
            }
            Stage::Draining { end_ns } if end_ns <= now => {
                for index in self.core.conns.places() {
                    let conn = &self.core.conns[index as usize];
                    let token = Token { index, generation: conn.generation };
                    self.core.close(token, CloseReason::Drain, true);
                }
            }
            _ => {}
        }
        self.submit();
    }

    fn end_turn(&mut self) {
        let core = &mut self.core;
        if core.turn_answers > 0 {
            let end = self.reactor.now();
            let lasted = end.mono_ns.saturating_sub(core.now.mono_ns);
            core.metrics.latency.record_many(lasted, core.turn_answers);
            core.turn_answers = 0;
        }
        let occupancy = self.reactor.occupancy();
        core.metrics.turns.add(1);
        core.metrics.open.set(core.open as i64);
        core.metrics.partial.set(core.partial as i64);
        core.metrics.exchanges.set(core.records.len() as i64);
        core.metrics.sends.set(occupancy.sends as i64);
        let (engines, streams) = core.http2.counts();
        core.metrics.h2_connections_open.set(engines as i64);
        core.metrics.h2_streams_open.set(streams as i64);
        core.metrics.h2_unsent_bytes.set(core.http2.unsent_bytes() as i64);
        core.metrics.jobs.set(occupancy.jobs as i64);
        core.log.flush();
        if core.now.unix_s() != core.checked_second {
            core.checked_second = core.now.unix_s();
            let mut drops = 0;
            for door in &mut core.doors {
                let total = self.reactor.listen_drops(door.token).unwrap_or(0);
                drops += u64::from(total.wrapping_sub(door.drops));
                door.drops = total;
            }
            core.metrics.listen_drops.add(drops);
            for seat in core.residents.seats() {
                core.call_engine(seat, |resident, engine| resident.each_second(engine, &self.reactor));
            }
        }
    }
}

impl Core {
    fn begin_turn(&mut self, now: Now) {
        self.now = now;
        self.date.turn(now.unix_s());
        self.turn_accepts = 0;
        self.tray.set_now(now);
    }

    /// Until when the worker may sleep.
    #[inline]
    fn until(&self) -> Option<u64> {
        let stage = match self.stage {
            Stage::Serving => None,
            // The next turn sees whether a connection waits in a listen queue.
            Stage::Retired { .. } if !self.accept_paused && self.open_everywhere() == 0 => Some(0),
            Stage::Announced { until_ns, .. } | Stage::Retired { until_ns, .. } => Some(until_ns),
            Stage::Draining { end_ns } => Some(end_ns),
        };
        let doors =
            if self.retiring { self.doors.iter().filter_map(|door| door.until_ns).min() } else { None };
        let residents = self.residents.due_ns();
        earlier(
            earlier(earlier(self.wheel.next_ns(), residents), self.accept_retry_ns),
            earlier(stage, doors),
        )
    }

    /// Whether answers close their connections.
    pub(crate) fn draining(&self) -> bool {
        matches!(self.stage, Stage::Retired { .. } | Stage::Draining { .. })
    }

    /// Whether the process has no connection, and this turn found none in this worker's listen queues.
    fn is_deserted(&self) -> bool {
        self.turn_accepts == 0 && !self.accept_paused && self.open_everywhere() == 0
    }

    /// Connections of the whole process.
    pub(crate) fn open_everywhere(&self) -> usize {
        self.census.open()
    }

    /// The connection that a token names, if it is still that one.
    pub(crate) fn conn(&mut self, token: Token) -> Option<&mut Conn> {
        let conn = self.conns.get_mut(token.index as usize)?;
        (conn.generation == token.generation && conn.phase != Phase::Vacant).then_some(conn)
    }

    // A call here saves and restores all registers, twice a request.
    #[inline(always)]
    fn on_event(&mut self, event: Event<'_>) {
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
            Event::Failed { op: OpKind::Shutdown, .. } | Event::Woken | Event::Connected { .. } => {}
            Event::Failed { token, fault, sent, segments, .. } => {
                self.conn_failed(token, fault, sent, segments);
            }
            Event::Watched { token } => {
                let watching = self.handlers.iter_mut().flatten().find(|one| one.watches.contains(&token));
                if let Some(mounted) = watching {
                    mounted.handler.watched();
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
                }
            }
        }
    }

    fn accepted(&mut self, listener: Token, token: Token, peer: Peer) {
        let Some(kind) = self.doors.iter().find(|door| door.token == listener).map(|door| &door.kind) else {
            self.ops.push((token, Op::Close));
            return;
        };
        self.metrics.accepted.add(1);
        self.turn_accepts += 1;
        let (admin, proxy_protocol) = (kind.admin, kind.proxy_protocol);
        let phase = if proxy_protocol { Phase::Proxy } else { Phase::Idle };
        let mut conn = Conn::new(token.generation, peer, phase);
        conn.deadline_ns = self.now.mono_ns.saturating_add(self.policy.head_time_ns);
        if admin {
            conn.flags |= ADMIN;
        }
        if kind.to_https {
            conn.flags |= TO_HTTPS;
        }
        if let Some(identity) = &kind.tls {
            let ends_ns = self.now.mono_ns.saturating_add(self.policy.handshake_time_ns);
            let Some(tls) = Tls::new(identity.config(), ends_ns) else {
                self.metrics.handshakes_refused.add(1);
                self.ops.push((token, Op::Close));
                return;
            };
            conn.transport = Transport::Tls(tls);
            conn.flags |= SECURE;
            if !proxy_protocol {
                conn.phase = Phase::Handshake;
                conn.deadline_ns = ends_ns;
            }
        }
        let deadline_ns = conn.deadline_ns;
        self.conns.put(token.index, conn);
        self.open += 1;
        let most = self.policy.connections;
        let open = self.census.enter();
        if open >= most {
            // Whoever comes now waits in the kernel's queue; whoever runs the server is still let in.
            self.pause_accept(false);
        }
        // Behind a PROXY header the client is known only when that is read.
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

    /// Counts a connection against its address; false if that has as many as it may have.
    pub(crate) fn count_address(&mut self, token: Token) -> bool {
        let conn = &mut self.conns[token.index as usize];
        if let (Some(most), Peer::Inet(address)) = (self.policy.connections_per_address, conn.peer.unpack()) {
            if !self.census.enter_address(address.ip(), most) {
                return false;
            }
            conn.flags |= COUNTED;
        }
        true
    }

    /// Closes an idle connection: of those that the clock's hand passes, the one that would time out first.
    fn shed_one(&mut self) {
        let count = self.conns.sockets.len();
        let mut oldest: Option<usize> = None;
        for _ in 0..SHED_LOOK.min(count) {
            self.shed_hand = (self.shed_hand + 1) % count;
            let conn = &self.conns[self.shed_hand];
            let older = |index: usize| conn.deadline_ns < self.conns[index].deadline_ns;
            if (conn.is_idle() || self.http2.is_idle(conn)) && oldest.is_none_or(older) {
                oldest = Some(self.shed_hand);
            }
        }
        if let Some(index) = oldest {
            let token = Token { index: index as u32, generation: self.conns[index].generation };
            self.close(token, CloseReason::Shed, false);
        }
    }

    fn accept_failed(&mut self, listener: Token, fault: Fault) {
        let address =
            self.doors.iter().find(|door| door.token == listener).map(|door| door.address.to_string());
        let address = address.unwrap_or_default();
        encke_settings::notice::report(
            encke_settings::Level::Warn,
            &format!("cannot accept on {address}: {fault}; accepting pauses until a connection closes"),
        );
        self.pause_accept(true);
        for mounted in self.handlers.iter_mut().flatten() {
            mounted.handler.shrink();
        }
        self.buffers.shrink();
        self.shed_one();
    }

    fn pause_accept(&mut self, admin: bool) {
        self.accept_retry_ns = Some(self.now.mono_ns + ACCEPT_RETRY_NS);
        if self.accept_paused {
            return;
        }
        self.accept_paused = true;
        self.metrics.accept_pauses.add(1);
        for door in self.doors.iter().filter(|door| admin || !door.kind.admin) {
            self.ops.push((door.token, Op::Pause));
        }
    }

    /// Accepts again, if there is room; else looks again later, because room may come from another worker.
    fn resume_accept(&mut self) {
        if self.census.open() >= self.policy.connections {
            self.accept_retry_ns = Some(self.now.mono_ns + ACCEPT_RETRY_NS);
            return;
        }
        self.accept_retry_ns = None;
        if std::mem::take(&mut self.accept_paused) {
            for door in &self.doors {
                self.ops.push((door.token, Op::Accept));
            }
        }
    }

    /// Gives a connection a deadline that comes before the timer may be armed.
    pub(crate) fn set_deadline(&mut self, token: Token, after_ns: u64) {
        let deadline = self.now.mono_ns.saturating_add(after_ns);
        self.conns[token.index as usize].deadline_ns = deadline;
        self.wheel.arm_earlier(token.index, deadline);
    }

    /// Closes a connection: its open exchange ends, and nothing more is sent.
    pub(crate) fn close(&mut self, token: Token, reason: CloseReason, abort: bool) {
        let Some(conn) = self.conn(token) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        if conn.phase == Phase::Http2 {
            let engine = std::mem::replace(&mut conn.record, NONE);
            self.abandon_http2(engine);
        } else if conn.phase == Phase::Resident {
            self.leave_resident(token);
        }
        let Some(conn) = self.conn(token) else { return };
        conn.phase = Phase::Closing;
        conn.deadline_ns = u64::MAX;
        let record = std::mem::replace(&mut conn.record, NONE);
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
        if let Some(gone) = self.records.remove(record) {
            self.abandon(record, gone);
        }
        self.end_flight(flight, Some(0));
        self.out.clear();
        self.segments.clear();
        for (entry, _, started_ns) in std::mem::take(&mut self.out_entries) {
            self.finish_entry(entry, 0, started_ns);
        }
        self.ops.push((token, if abort { Op::Abort } else { Op::Close }));
    }

    /// An exchange whose client is gone: a handler that reads its body is told.
    fn abandon(&mut self, slot: u32, record: Record) {
        use crate::record::Intake;
        if let Intake::Unread(_) | Intake::Wanted(_) = record.intake
            && !record.answered
        {
            let key = record.key(slot);
            self.call_body(record.handler, key, crate::handler::Piece::Broken);
        }
        if let Some(entry) = record.entry {
            self.finish_entry(entry, record.sent_bytes, record.started_ns);
        }
    }

    fn closed(&mut self, token: Token) {
        if !self.closing.is_empty() {
            self.closing.retain(|(closing, _)| *closing != token);
        }
        let Some(conn) = self.conns.get_mut(token.index as usize) else { return };
        if conn.generation != token.generation || conn.phase == Phase::Vacant {
            return;
        }
        if conn.has(COUNTED)
            && let Peer::Inet(address) = conn.peer.unpack()
        {
            self.census.leave_address(address.ip());
        }
        self.end_handshake(token);
        self.conns[token.index as usize] = Conn::vacant();
        self.wheel.cancel(token.index);
        self.open -= 1;
        self.census.leave();
        if self.accept_paused {
            self.resume_accept();
        }
    }

    /// Idle connections of a server that stops get a moment to send what they have on the way; those that are
    /// busy get it when they come to rest.
    fn release_idle(&mut self) {
        self.rest_ns = RETIRE_NS;
        let rest = self.now.mono_ns.saturating_add(RETIRE_NS);
        let connected = |(_, conn): &(u32, &mut Conn)| conn.phase != Phase::Vacant;
        for (index, conn) in self.conns.iter_mut().filter(connected) {
            if conn.phase == Phase::Resident {
                continue;
            }
            if conn.phase == Phase::Idle && !conn.has(crate::conn::SENDING) {
                conn.deadline_ns = rest;
            }
            self.wheel.arm_earlier(index, rest);
        }
        self.leave_http2();
    }

    /// Opens the handlers of a plan; those of the plan before get no further requests.
    fn mount(&mut self, plan: &Plan) {
        for mounted in self.handlers.iter_mut().flatten() {
            mounted.retired = true;
            self.retired = true;
        }
        let first = self.handlers.len();
        for mount in &plan.mounts {
            let number = self.handlers.len();
            let desk = Desk::new(number as u16, Rc::clone(&self.tray));
            let mut setup = WorkerSetup {
                residents: &mut self.residents,
                metrics: &self.metrics,
                now: self.now,
                number: self.number,
                workers: self.workers,
                seat: None,
            };
            let handler = mount.mount.open(desk, &mut setup);
            let seat = setup.seat;
            self.handlers.push(Some(Mounted { handler, seat, retired: false, jobs: 0, watches: Vec::new() }));
        }
        self.routes = [false, true].map(|admin| {
            let mounts = plan.mounts.iter().zip(first as u16..).filter(|(mount, _)| mount.admin == admin);
            let mut routes: Vec<(Box<[u8]>, u16)> =
                mounts.map(|(mount, handler)| (mount.prefix.as_bytes().into(), handler)).collect();
            routes.sort_by_key(|(prefix, handler)| std::cmp::Reverse((prefix.len(), *handler)));
            routes
        });
    }

    /// The handler for a path: of those of the listener's side, the one with the longest prefix.
    #[inline]
    pub(crate) fn route(&self, admin: bool, path: &[u8]) -> Option<u16> {
        let mut routes = self.routes[usize::from(admin)].iter();
        routes.find(|(prefix, _)| begins_with(path, prefix)).map(|(_, handler)| *handler)
    }

    /// A head to parse into.
    pub(crate) fn spare_head(&mut self) -> Box<Head> {
        self.heads.pop().unwrap_or_default()
    }

    #[expect(clippy::boxed_local, reason = "it comes from a connection's slot, where it is boxed")]
    pub(crate) fn recycle_input(&mut self, input: Box<Input>) {
        let Input { bytes, head, .. } = *input;
        self.buffers.give(bytes);
        self.give_head(head);
    }

    pub(crate) fn recycle_segments(&mut self, mut segments: Vec<Segment>) {
        while let Some(segment) = segments.pop() {
            if let Segment::Bytes(bytes) = segment {
                self.buffers.give(bytes);
            }
        }
        if segments.capacity() > 0 && self.spare_segments.len() < 64 {
            self.spare_segments.push(segments);
        }
    }

    // ---- the access log ----

    #[inline]
    pub(crate) fn begin_entry(&mut self, request: &Request<'_>) -> Option<Box<Entry>> {
        if self.log.is_on() { self.log.begin(request) } else { None }
    }

    /// A request that could not be understood is logged by its peer alone.
    pub(crate) fn begin_refused_entry(&mut self, token: Token) -> Option<Box<Entry>> {
        let peer = self.conns[token.index as usize].peer.unpack();
        self.log.begin_refused(peer, self.now)
    }

    /// The answer to an entry is in the output.
    pub(crate) fn end_entry(
        &mut self,
        entry: Option<Box<Entry>>,
        status: u16,
        content: u64,
        started_ns: u64,
    ) {
        if let Some(mut entry) = entry {
            self.log.set_status(&mut entry, status);
            self.out_entries.push((entry, content, started_ns));
        }
    }

    /// The entries of an output wait for its send.
    pub(crate) fn begin_flight(&mut self) -> u32 {
        if self.out_entries.is_empty() {
            return NONE;
        }
        self.flights.insert(Flight { entries: std::mem::take(&mut self.out_entries) })
    }

    /// A send has ended: whole (`sent: None`) or after so many bytes.
    pub(crate) fn end_flight(&mut self, flight: u32, sent: Option<u64>) {
        let Some(flight) = self.flights.remove(flight) else { return };
        let mut left = sent.unwrap_or(u64::MAX);
        for (entry, content, started_ns) in flight.entries {
            let sent = content.min(left);
            left -= sent;
            self.finish_entry(entry, sent, started_ns);
        }
    }

    pub(crate) fn finish_entry(&mut self, entry: Box<Entry>, sent: u64, started_ns: u64) {
        let lasted = self.now.mono_ns.saturating_sub(started_ns);
        self.log.finish(entry, sent, lasted);
    }
}

/// Whether a path begins with a prefix. The last byte of a prefix is compared first: there most paths differ, and comparing
/// the others is a call.
#[inline]
fn begins_with(path: &[u8], prefix: &[u8]) -> bool {
    match prefix.split_last() {
        Some((last, rest)) => {
            path.get(rest.len()) == Some(last) && (rest.is_empty() || path.starts_with(rest))
        }
        None => true,
    }
}

#[cfg(test)]
impl Core {
    /// Nothing is left of any connection: for the end of a simulated run.
    pub(crate) fn assert_empty(&self, seed: u64) {
        assert_eq!(self.open, 0, "seed {seed}: connections");
        let mut places = self.conns.places();
        assert!(places.all(|place| self.conns[place as usize].phase == Phase::Vacant), "seed {seed}: slots");
        assert_eq!(self.records.len(), 0, "seed {seed}: exchanges");
        assert_eq!(self.flights.len(), 0, "seed {seed}: flights");
        assert_eq!(self.entries.len(), 0, "seed {seed}: log entries");
        assert!(self.residents.is_settled(), "seed {seed}: closed connections that no resident knows of");
        assert_eq!(self.wheel.armed(), 0, "seed {seed}: timers");
        assert_eq!(self.out.len() + self.segments.len() + self.ops.len(), 0, "seed {seed}: output");
    }
}
