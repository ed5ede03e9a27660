//! A worker: a thread with its own reactor, connections, handlers and timers. Workers share no state on the request path.
//!
//! ```text
//! turn:  wait (not at all if work is pending)
//!        ─► ≤ 256 events ─► due timers ─► ≤ 64 messages ─► jobs and watches of handlers ─► submit
//! ```
//! [`Core`] decides and queues operations; [`Worker`] owns the reactor and submits them. An event can therefore lend memory of
//! the reactor to the core.
//!
//! ```text
//! Serving ──Drain──► Announced ──delay──► Leaving ──open work done──► Retired ──≤ 200 ms──► Draining ──empty──► end
//!                    /readyz returns 503  all is served; streams      listeners accept       listeners are
//!                                         end one by one; responses   queued connections     closed, idle
//!                                         close their connections                            connections end
//! ```
//! `Leaving` ends after three quarters of the drain's time at the latest, `Draining` with that time. `Retired` takes one turn if
//! the process has no connection and the listen queues are empty.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::slab::Slab;
use encke_io::socket::{self, Listener};
use encke_io::{Address, Op, OpError, Reactor, ReactorSource, StreamFacts, Token};
use encke_session::http2::BudgetTotals;
use encke_session::tls::Scratch;

use crate::buffers::{Buffers, Out};
use crate::census::Census;
use crate::close::CloseReason;
use crate::command::{CommandQueue, WorkerCommand};
use crate::conn::NONE;
use crate::conns::{Conns, Timers, earlier, is_stream};
use crate::core::{Core, OpenListener, RETIRE_NS, WorkerStage};
use crate::date::DateCache;
use crate::drain_census::Leaving;
use crate::guard::Guards;
use crate::h2::Http2;
use crate::handler::{Action, HandlerRequests, JobId};
use crate::inbox::WorkerMessage;
use crate::inspect::RecentCloses;
use crate::listener::ListenerKind;
use crate::log::Access;
use crate::metrics::WorkerMetrics;
use crate::operate::Operators;
use crate::outgoing::{UpstreamDial, UpstreamEvent, Upstreams};
use crate::plan::WorkerPlan;
use crate::record::Record;
use crate::redial::{Redial, Redials};
use crate::request_id::RequestIds;
use crate::resident::Resident;
use crate::residents::Residents;
use crate::tls::Handshakes;
use crate::websocket::WebSockets;

/// Maximum number of events in a turn, before timers and messages.
const EVENTS_PER_TURN: usize = 256;
/// Maximum number of messages taken from the inbox in a turn.
const MESSAGES_PER_TURN: usize = 64;
/// A resident's share of a turn: at most 256 sends, in slices after which the clock is checked, and at most a millisecond. A
/// send costs some 6 µs, nearly all of it in the kernel.
const SLICE_SENDS: usize = 64;
const SLICES: usize = 4;
const SLICES_NS: u64 = 1_000_000;
/// A worker on a reactor of kind `R`.
pub(crate) struct Worker<R> {
    reactor: R,
    pub(crate) core: Core,
    commands: Arc<CommandQueue>,
}

/// Whether a worker continues after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Go,
    Over,
}

/// State that a worker shares with other workers and the program.
pub(crate) struct WorkerShared {
    /// The worker's number, and the number of workers.
    pub(crate) number: usize,
    pub(crate) workers: usize,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) census: Arc<Census>,
    pub(crate) http2: Arc<BudgetTotals>,
    pub(crate) log: Access,
}

impl<R: Reactor> Worker<R> {
    pub(crate) fn new(
        mut reactor: R,
        commands: Arc<CommandQueue>,
        plan: &WorkerPlan,
        shared: WorkerShared,
    ) -> Self {
        let now = reactor.now();
        let mut core = Core {
            now,
            date: DateCache::new(now.unix_s()),
            policy: Rc::new(plan.policy.clone()),
            rest_ns: plan.policy.limits.idle_time.nanoseconds(),
            head_limits: plan.policy.limits.head(),
            conns: Conns::default(),
            wheel: Timers::new(now.mono_ns),
            records: Slab::new(),
            generation: 0,
            flights: Slab::new(),
            handlers: Vec::new(),
            routes: Default::default(),
            guards: Guards::default(),
            retired: false,
            handler_requests: Rc::new(HandlerRequests::new(
                Arc::clone(&shared.metrics),
                Arc::clone(commands.link()),
                shared.log.notes_mode(),
            )),
            link: Arc::clone(commands.link()),
            links: Arc::new([]),
            leaving: Leaving::default(),
            heads: Vec::new(),
            out: Out::default(),
            segments: Vec::new(),
            out_entries: Vec::new(),
            ended_entries: Vec::new(),
            spare_segments: Vec::new(),
            buffers: Buffers::default(),
            ops: Vec::new(),
            actions: Vec::new(),
            metrics: shared.metrics,
            log: shared.log,
            request_ids: RequestIds::new(shared.number),
            open_ids: HashMap::new(),
            end_tokens: HashMap::new(),
            residents: Residents::new(WebSockets::default()),
            walks: VecDeque::new(),
            recent_closes: RecentCloses::default(),
            operators: Operators::default(),
            entries: HashMap::new(),
            scratch: Scratch::default(),
            handshakes: Handshakes::default(),
            http2: Http2::new(&shared.http2),
            upstreams: Upstreams::default(),
            redials: Redials::default(),
            turn_answers: 0,
            census: shared.census,
            listeners: Vec::new(),
            retiring: false,
            closing: Vec::new(),
            accept_paused: false,
            accept_retry_ns: None,
            shed_hand: 0,
            open: 0,
            partial: 0,
            turn_accepts: 0,
            stage: WorkerStage::Serving,
            due: Vec::new(),
            messages: Vec::new(),
            inbox_left: false,
            checked_second: 0,
            number: shared.number,
            workers: shared.workers,
        };
        core.log.set_id_prefix(core.request_ids.prefix());
        core.http2.limit(&plan.policy);
        core.mount(plan);
        let mut worker = Self { reactor, core, commands };
        worker.serve_contexts();
        worker.submit();
        worker
    }

    /// Accepts on a listener.
    pub(crate) fn listen(&mut self, listener: Listener, kind: ListenerKind) -> Result<(), OpError> {
        let address = listener.address().clone();
        let token = self.reactor.adopt(ReactorSource::Listener(listener))?;
        self.reactor.submit(token, Op::Tune(self.core.policy.tuning()));
        self.core.listeners.push(OpenListener {
            token,
            address,
            kind,
            drops: 0,
            until_ns: None,
            closing: None,
        });
        if !self.core.accept_paused {
            self.reactor.submit(token, Op::Accept);
        }
        Ok(())
    }

    /// Runs turns until the worker is drained.
    pub(crate) fn run(mut self) -> Result<(), OpError> {
        if let Some(thread) = encke_io::figures::thread_id() {
            // A worker runs once.
            let _first = self.core.metrics.thread.set(thread);
        }
        while self.turn()? == Turn::Go {}
        self.end();
        Ok(())
    }

    /// Notifies residents of the end, after the last turn.
    pub(crate) fn end(&mut self) {
        let now = self.core.now;
        for seat in self.core.residents.seats() {
            self.core.call_engine(seat, |resident, _| resident.end(now));
        }
    }

    /// Runs one turn, in the order of the diagram above.
    pub(crate) fn turn(&mut self) -> Result<Turn, OpError> {
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
        self.redial();
        self.messages();
        self.serve_contexts();
        self.residents();
        self.stage();
        self.end_turn();
        // From here on a message wakes the reactor. A message that arrived earlier is processed in the next turn.
        self.core.inbox_left |= !self.core.link.sleep();
        let WorkerStage::Draining { end_ns } = self.core.stage else { return Ok(Turn::Go) };
        let late = end_ns <= self.core.now.mono_ns;
        let free = self.core.residents.iter().all(|resident| resident.may_end(late));
        let deserted = self.core.open == 0 && free;
        if deserted && self.core.upstreams.open() > 0 {
            self.core.drain_upstreams();
            self.submit();
            return Ok(Turn::Go);
        }
        Ok(if deserted { Turn::Over } else { Turn::Go })
    }

    /// Submits the operations that an event has caused, until they cause no more.
    #[inline]
    fn submit(&mut self) {
        loop {
            // Before another connection can reuse their slots.
            self.core.residents.report_gone();
            // Most events cause at most one operation, and popping it is cheaper than draining a list.
            match self.core.ops.len() {
                0 => {}
                1 => {
                    if let Some((token, op)) = self.core.ops.pop() {
                        self.submit_one(token, op);
                    }
                }
                _ => self.submit_all(),
            }
            if self.core.ops.is_empty() && !self.serve_actions() && !self.core.stir() {
                return;
            }
        }
    }

    /// Executes the requests of features in callbacks. Returns whether there were any.
    #[inline]
    fn serve_actions(&mut self) -> bool {
        self.core.handler_requests.has_actions() && self.execute_actions()
    }

    #[inline(never)]
    fn execute_actions(&mut self) -> bool {
        let empty = std::mem::take(&mut self.core.actions);
        let mut actions = self.core.handler_requests.take_actions(empty);
        for action in actions.drain(..) {
            match action {
                Action::Dial(dial) => self.dial(dial),
                other => self.core.act(other),
            }
        }
        self.core.actions = actions;
        self.core.actions_done();
        true
    }

    /// Opens an outgoing connection.
    fn dial(&mut self, mut dial: UpstreamDial) {
        if !self.core.begin_dial(&mut dial) {
            return;
        }
        if self.core.redials.has(&dial.address) {
            return self.core.redials.push(Redial::new(dial), self.core.now.mono_ns);
        }
        self.attempt(Redial::new(dial));
    }

    /// Attempts to open the socket of a dial.
    fn attempt(&mut self, redial: Redial) {
        let socket = match &redial.dial.address {
            Address::Inet(address) => socket::unconnected(address, None),
            Address::Unix(path) => socket::connected_local(path),
        };
        if socket.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return self.core.redials.push(redial, self.core.now.mono_ns);
        }
        let dial = redial.dial;
        match socket
            .map_err(OpError::from)
            .and_then(|socket| self.reactor.adopt(ReactorSource::Stream(socket)))
        {
            Ok(token) => self.core.dialed(&dial, token),
            Err(fault) => self.core.dial_failed(dial.id, fault),
        }
    }

    /// Attempts the dials again that wait for room in a backlog, and reports those whose time is over.
    #[inline]
    fn redial(&mut self) {
        if self.core.redials.due_ns().is_some_and(|due_ns| due_ns <= self.core.now.mono_ns) {
            self.attempt_again();
        }
    }

    #[inline(never)]
    fn attempt_again(&mut self) {
        let now_ns = self.core.now.mono_ns;
        for redial in self.core.redials.take_due(now_ns) {
            if self.core.upstreams.get_mut(redial.dial.id).is_none() {
                // The owner has closed the connection.
                self.core.census.leave_upstream();
            } else if self.core.redials.has(&redial.dial.address) {
                self.core.redials.push(redial, now_ns);
            } else {
                self.attempt(redial);
                self.submit();
            }
        }
        while let Some(id) = self.core.redials.overdue(now_ns) {
            if self.core.upstreams.get_mut(id).is_some() {
                self.core.report_upstream(id.slot, UpstreamEvent::Overdue);
                self.submit();
            }
        }
    }

    fn submit_all(&mut self) {
        let mut ops = std::mem::take(&mut self.core.ops);
        for (token, op) in ops.drain(..) {
            self.submit_one(token, op);
        }
        // Operations of HTTP/2 streams may have caused others.
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
                    // A connection that is busy now may become idle before its deadline.
                    let rest = self.core.now.mono_ns.saturating_add(self.core.rest_ns);
                    self.core.wheel.arm(index, conn.deadline_ns.min(rest));
                }
                continue;
            }
            let unsent = self.unsent(token);
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
                WorkerMessage::Answer(key, reply) => self.core.answer(key, *reply),
                WorkerMessage::Delegated(key, reply) => self.core.delegated(key, *reply),
                WorkerMessage::Takeover(key, takeover) => self.core.late_takeover(key, takeover),
                WorkerMessage::Interim(key, status, fields) => self.core.interim(key, status, &fields),
                WorkerMessage::ReadMore(key) => self.core.read_more(key),
                WorkerMessage::Endless(key) => self.core.allow_endless(key),
                WorkerMessage::Wake(key) => self.core.wake_stream(key),
                WorkerMessage::WakeHandler(number) => self.core.wake_handler(number),
                WorkerMessage::Dropped(key) => self.core.dropped(key),
                WorkerMessage::Undialed(id, fault) => self.core.undialed(id, fault),
                WorkerMessage::Verdict(key, verdict) => self.core.verdict(key, verdict),
                WorkerMessage::Resident(seat, message) => {
                    self.core.call_engine(seat, |resident, engine| resident.message(engine, message));
                }
                WorkerMessage::Command => self.command(self.commands.take()),
                WorkerMessage::Walk => self.walk(),
                // Only wakes the worker: this turn advances its stage.
                WorkerMessage::Left => {}
            }
            self.submit();
        }
        self.core.messages = messages;
    }

    fn command(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Listen(listener, kind) => {
                let address = listener.address().clone();
                if let Err(fault) = self.listen(listener, kind) {
                    encke_settings::notice::report(
                        encke_settings::Level::Warn,
                        &format!("cannot accept on {address}: {fault}"),
                    );
                }
            }
            WorkerCommand::Unlisten(closing) => {
                let until_ns = self.core.now.mono_ns + RETIRE_NS;
                let at_address =
                    |door: &&mut OpenListener| door.until_ns.is_none() && door.address == *closing.address();
                // A worker has at most one listener per address.
                if let Some(door) = self.core.listeners.iter_mut().find(at_address) {
                    if !door.kind.outlives {
                        self.reactor.submit(door.token, Op::Retire);
                    }
                    door.until_ns = Some(until_ns);
                    door.closing = Some(closing);
                    self.core.retiring = true;
                }
            }
            WorkerCommand::Reload(plan, _applied) => {
                self.core.policy = Rc::new(plan.policy.clone());
                let tuning = self.core.policy.tuning();
                for door in &self.core.listeners {
                    self.reactor.submit(door.token, Op::Tune(tuning));
                }
                self.core.http2.limit(&plan.policy);
                if !self.core.draining() {
                    self.core.rest_ns = plan.policy.limits.idle_time.nanoseconds();
                    self.core.head_limits = plan.policy.limits.head();
                }
                self.core.mount(&plan);
            }
            WorkerCommand::Operate(order) => self.core.operate(order),
            WorkerCommand::Meet(links) => {
                self.core.pass_mailboxes(&links);
                self.core.links = links;
            }
            WorkerCommand::Drain { delay, time } => {
                if self.core.stage == WorkerStage::Serving {
                    self.core.count_work();
                    let until_ns = self.core.now.plus(delay);
                    self.core.stage = WorkerStage::Announced { until_ns, time_ns: time.as_nanos() as u64 };
                }
            }
        }
    }

    /// Submits the handlers' jobs and watches to the reactor.
    #[inline]
    fn serve_contexts(&mut self) {
        if self.core.handler_requests.has_work() {
            self.serve_handler_requests();
        }
        if self.core.retired {
            self.drop_retired();
        }
    }

    #[inline(never)]
    fn serve_handler_requests(&mut self) {
        for job in self.core.handler_requests.take_jobs() {
            if let Some(Some(mounted)) = self.core.handlers.get_mut(JobId(job.key).handler()) {
                mounted.jobs += 1;
            }
            self.core.guards.job_begins(JobId(job.key));
            self.reactor.submit(Token::NONE, Op::Offload(job));
        }
        for (context, watched) in self.core.handler_requests.take_watches() {
            let watches = match self.core.handlers.get_mut(usize::from(context)) {
                Some(Some(mounted)) => Some(&mut mounted.watches),
                _ => self.core.guards.watches(context),
            };
            if let Some(watches) = watches
                && let Ok(token) = self.reactor.adopt(ReactorSource::Watched(watched))
            {
                self.reactor.submit(token, Op::Watch);
                watches.push(token);
            }
        }
    }

    /// Runs the residents' share of a turn.
    #[inline]
    fn residents(&mut self) {
        let now_ns = self.core.now.mono_ns;
        let mut due_ns = None;
        for seat in self.core.residents.with_turns() {
            let mut seat_due_ns = self.core.residents.seat_due_ns(seat);
            if seat_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
                self.resident_turn(seat);
                seat_due_ns = self.core.residents.seat_due_ns(seat);
            }
            due_ns = earlier(due_ns, seat_due_ns);
        }
        // Until the next turn, only a change of the stage or the check once a second calls a handler or a resident.
        self.core.residents.keep_due_ns(due_ns);
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
        self.core.call_engine(seat, |resident, engine| resident.finish(engine, &self.reactor));
        self.submit();
    }

    /// Drops the handlers of earlier plans that have no open exchange or job.
    fn drop_retired(&mut self) {
        let core = &mut self.core;
        core.retired = false;
        let mut over = Vec::new();
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
            over.push(number as u16);
            for token in mounted.watches.drain(..) {
                self.reactor.submit(token, Op::Close);
            }
            *place = None;
        }
        for handler in over {
            core.retire_upstreams(handler);
        }
        for token in core.drop_retired_guards() {
            self.reactor.submit(token, Op::Close);
        }
    }

    /// Advances the stages of a drain when their time is over.
    #[inline]
    fn stage(&mut self) {
        if self.core.stage != WorkerStage::Serving || self.core.retiring {
            self.advance_stage();
        } else if self.core.is_stirred() {
            self.submit();
        }
    }

    #[inline(never)]
    fn advance_stage(&mut self) {
        self.core.residents.forget_due_ns();
        let now = self.core.now.mono_ns;
        let over = |door: &mut OpenListener| door.until_ns.is_some_and(|until_ns| until_ns <= now);
        for door in self.core.listeners.extract_if(.., over) {
            self.reactor.submit(door.token, Op::Close);
            self.core.closing.extend(door.closing.map(|closing| (door.token, closing)));
        }
        self.core.retiring = self.core.listeners.iter().any(|door| door.until_ns.is_some());
        match self.core.stage {
            WorkerStage::Announced { until_ns, time_ns } if until_ns <= now => {
                self.core.begin_leaving(time_ns);
                self.submit();
                self.retire_listeners();
            }
            WorkerStage::Leaving { .. } => self.retire_listeners(),
            WorkerStage::Retired { until_ns, end_ns } if until_ns <= now || self.core.is_deserted() => {
                for door in self.core.listeners.drain(..) {
                    self.reactor.submit(door.token, Op::Close);
                }
                self.core.stage = WorkerStage::Draining { end_ns };
                self.core.release_idle();
            }
            WorkerStage::Draining { end_ns } if end_ns <= now => {
                self.core.count_late();
                for index in self.core.conns.places() {
                    let conn = &self.core.conns[index as usize];
                    let token = Token { index, generation: conn.generation };
                    let unsent = (conn.flight != NONE).then(|| self.unsent(token));
                    self.core.close_unsent(token, CloseReason::Drain, true, unsent);
                }
            }
            _ => {}
        }
        self.submit();
    }

    /// Returns the kernel's facts about a connection.
    pub(crate) fn facts(&self, token: Token) -> Option<StreamFacts> {
        self.reactor.facts(token)
    }

    /// Returns the bytes of a connection's send that its peer has not received.
    pub(crate) fn unsent(&self, token: Token) -> u64 {
        if is_stream(token) {
            return self.core.http2.unsent(token);
        }
        let waiting = self.core.conns[token.index as usize].transport.waiting_bytes();
        waiting + self.reactor.unsent(token) + self.reactor.unacknowledged(token)
    }

    /// Retires the listeners if the open work has ended, or its time is over.
    fn retire_listeners(&mut self) {
        let WorkerStage::Leaving { until_ns, end_ns } = self.core.stage else { return };
        let now = self.core.now.mono_ns;
        if !self.core.has_left() && now < until_ns {
            return;
        }
        // A socket that outlives this server keeps its queue: the next server accepts connections from now on.
        for door in self.core.listeners.iter().filter(|door| !door.kind.outlives) {
            self.reactor.submit(door.token, Op::Retire);
        }
        let until_ns = now + RETIRE_NS.min(end_ns.saturating_sub(now) / 2);
        self.core.stage = WorkerStage::Retired { until_ns, end_ns };
    }

    fn end_turn(&mut self) {
        let core = &mut self.core;
        if core.turn_answers > 0 || !core.ended_entries.is_empty() {
            let end = self.reactor.now();
            core.write_entries(end.mono_ns);
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
        core.metrics.upstreams_open.set(core.upstreams.open() as i64);
        if core.now.unix_s() != core.checked_second {
            core.checked_second = core.now.unix_s();
            let mut drops = 0;
            for door in &mut core.listeners {
                let total = self.reactor.listen_drops(door.token).unwrap_or(0);
                drops += u64::from(total.wrapping_sub(door.drops));
                door.drops = total;
            }
            core.metrics.listen_drops.add(drops);
            core.buffers.trim();
            for seat in core.residents.seats() {
                core.call_engine(seat, |resident, engine| resident.each_second(engine, &self.reactor));
            }
            // Residents may have closed connections.
            core.write_entries(core.now.mono_ns);
        }
        core.log.flush();
    }
}
