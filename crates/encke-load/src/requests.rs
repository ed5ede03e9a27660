//! A crowd that sends requests: each user has or opens a connection, and takes a ticket for each request.
//!
//! ```text
//!          ┌─────────────── back-off ◄── Resting ◄── could not connect ──┐     (TLS: Shaking)
//!          ▼                                                             │            ▲
//!   ┌──► Away ── a ticket, or opening before the run ───────► Dialing ───┴── connected ──► Open ◄─┐ response:
//!   │                                                                                       │   │ the next
//!   │                                                                                       ├───┘ ticket
//!   └──────── ended by the server, failed, timed out, request limit reached ◄───────────────┘
//! ```
//! A request is a *flight* from its ticket to its end. A user's flights form a ring, the oldest first; the first `sent` of them
//! are on the wire. A user without a connection takes its ticket before it dials: connecting is part of the request, and if it
//! fails the request has failed. So each request ends in exactly one counter of [`Tally`], whatever happens to connections.
//!
//! ```text
//!   flights of a user   │ sent, response begun │ sent │ sent │ unsent │ free …
//! ```
//! [`crate::sealed`] adds TLS between the reactor and this crowd. With HTTP/2 a connection is Greeting before it is Open. Sent
//! requests then move from the ring to a stream (`streams.rs`), and streams end in any order.

mod streams;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use encke_io::wheel::Wheel;
use encke_io::{Event, Op, OpError, OpKind, Segment, Send, Token};
use encke_session::http2::H2Request;

use crate::answer::{Heads, ResponseReader};
use crate::check::BodyComparison;
use crate::crowd::{Crowd, Outbox, TurnTime};
use crate::gathering::Gathering;
use crate::message::Mix;
use crate::pace::Pace;
use crate::plan::{Plan, PlanShare, Protocol};
use crate::random::Random;
use crate::sealed::{HandshakeOutcome, Sealable};
use crate::tally::{Cause, Errors, RequestPhase, Tally};
use crate::tickets::{RequestTicket, Tickets};

use streams::Carrier;

/// The users of a thread, and their state.
pub(crate) struct Requests {
    plan: Arc<Plan>,
    share: PlanShare,
    tally: Arc<Tally>,
    errors: Errors,
    users: Vec<User>,
    /// With HTTP/2: the streams of each user; otherwise empty.
    carriers: Vec<Option<Box<Carrier>>>,
    /// With an expected body: the comparison of each user's current body; otherwise empty.
    comparisons: Vec<BodyComparison>,
    /// The user of each of the reactor's tokens, by token index.
    owners: Vec<u32>,
    /// `plan.pipeline` entries per user.
    flights: Vec<OpenRequest>,
    /// Flights that have begun and not ended.
    under_way: u64,
    /// Users that wait for a ticket, the longest waiting first.
    idle: VecDeque<u32>,
    tickets: Tickets,
    stage: RequestsStage,
    /// Before the run: users from this one on have not dialed.
    undialed: u32,
    /// During the run: users from this one on have not begun.
    unbegun: u32,
    /// Number of users that are dialing.
    dialing: u32,
    parting: [Token; PARTING_MAX as usize],
    /// The entry of `parting` that is used next.
    parting_next: u32,
    wheel: Wheel,
    due: Vec<u32>,
    timeout_ns: u64,
    /// Time at which the run ends even if requests are open.
    drain_ns: u64,
    times: RequestTimes,
    heads: Heads,
    /// For pipelined requests.
    gathering: Gathering,
    /// Whether the server has spoken HTTP/2 on some connection.
    has_greeted: bool,
    load: SendBuilder,
}

/// Begin and end of a thread's run, on the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestTimes {
    /// Dialing before the run began.
    pub(crate) opening_ns: u64,
    /// All connections that could be opened were open.
    pub(crate) open_ns: u64,
    /// Begin of the first counted request.
    pub(crate) counted_ns: u64,
    /// The last response.
    pub(crate) ended_ns: u64,
}

impl RequestTimes {
    /// Extends the interval to that of another thread or server.
    pub(crate) fn stretch(&mut self, other: Self) {
        if other.counted_ns > 0 {
            self.counted_ns = self.counted_ns.min(other.counted_ns);
        }
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.opening_ns = self.opening_ns.min(other.opening_ns);
        self.open_ns = self.open_ns.max(other.open_ns);
    }

    /// Time from the first counted request to the last response.
    pub(crate) fn counted(self) -> Duration {
        Duration::from_nanos(self.ended_ns.saturating_sub(self.counted_ns.min(self.ended_ns)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestsStage {
    Opening,
    Running,
    /// Finished: no request is started.
    Over,
}

/// A user. A connection takes 96 bytes here, 24 bytes per flight, and 28 bytes in the reactor and the wheel. A TLS session adds
/// its own.
struct User {
    token: Token,
    state: UserState,
    /// Whether the user is in `idle`.
    queued: bool,
    /// Whether the user waited for its next ticket. If not, the ticket waited for a user.
    rested: bool,
    /// Whether a send is in flight.
    sending: bool,
    /// Whether the first byte of the oldest flight's response has arrived.
    answering: bool,
    /// Whether the wheel has an entry for the user.
    timed: bool,
    /// Consecutive failures to connect.
    failures: u8,
    /// The ring: position of the oldest flight, number of flights, and how many of them were sent.
    first: u16,
    count: u16,
    sent: u16,
    /// Requests sent on this connection.
    served: u64,
    /// Dialing, Shaking, Greeting: begin of the state. Resting: end of the back-off.
    since_ns: u64,
    reader: ResponseReader,
    /// A partial head.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UserState {
    /// No connection.
    Away,
    /// Backs off after a failure to connect.
    Resting,
    Dialing,
    /// Connected; the TLS handshake is not complete.
    Shaking,
    /// Sent its HTTP/2 preface, and waits for the server's.
    Greeting,
    Open,
}

/// An open request.
#[derive(Clone, Copy, Default)]
struct OpenRequest {
    intended_ns: u64,
    begun_ns: u64,
    message: u32,
    warm: bool,
}

/// Connections opened concurrently before the run: half of a listener's usual queue (512), so that opening does not test it.
const DIALS_MAX: u32 = 256;
/// The first back-off after a failure to connect. Each consecutive one is twice as long, up to 1.28 s.
const REST_NS: u64 = 10_000_000;
const REST_DOUBLINGS_MAX: u8 = 7;
const NOBODY: u32 = u32::MAX;
/// Users that begin at a time. With all at once, ten thousand operations would be in memory together.
const BEGIN_MAX: u32 = 32;
/// Connections left for their servers to close. If there are more, the oldest is closed.
const PARTING_MAX: u32 = 64;
/// First of the owner numbers that denote an entry of `parting` instead of a user.
const PARTING: u32 = NOBODY - PARTING_MAX;

impl Requests {
    pub(crate) fn new(plan: Arc<Plan>, share: PlanShare, tally: Arc<Tally>) -> Self {
        let count = share.of(plan.connections.into()) as usize;
        let depth = usize::from(plan.pipeline);
        let users: Vec<User> = (0..count).map(|_| User::away()).collect();
        Self {
            tickets: Tickets::new(&plan, share, 0),
            timeout_ns: u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX),
            load: SendBuilder::new(&plan, share),
            carriers: if plan.protocol == Protocol::Http2 {
                (0..count).map(|_| None).collect()
            } else {
                Vec::new()
            },
            comparisons: vec![BodyComparison::default(); if plan.body.is_some() { count } else { 0 }],
            plan,
            share,
            tally,
            errors: Errors::default(),
            flights: vec![OpenRequest::default(); count * depth],
            users,
            owners: Vec::new(),
            under_way: 0,
            idle: VecDeque::new(),
            stage: RequestsStage::Opening,
            undialed: 0,
            unbegun: 0,
            dialing: 0,
            parting: [Token::NONE; PARTING_MAX as usize],
            parting_next: 0,
            wheel: Wheel::new(0),
            due: Vec::new(),
            drain_ns: u64::MAX,
            times: RequestTimes::default(),
            heads: Heads::new(),
            gathering: Gathering::default(),
            has_greeted: false,
        }
    }

    /// Returns the errors of the run.
    pub(crate) fn into_errors(self) -> Errors {
        self.errors
    }

    pub(crate) fn times(&self) -> RequestTimes {
        self.times
    }

    // ---- beginning requests ----

    /// Whether the run has begun, but some users have not.
    fn is_beginning(&self) -> bool {
        self.stage == RequestsStage::Running && (self.unbegun as usize) < self.users.len()
    }

    fn begin_some(&mut self, at: TurnTime, out: &mut Outbox) {
        for index in (self.unbegun..self.users.len() as u32).take(BEGIN_MAX as usize) {
            self.unbegun = index + 1;
            let user = &self.users[index as usize];
            match user.state {
                // An event in the meantime has started this user.
                _ if user.queued || user.count > 0 => {}
                UserState::Open => self.refill(index, at, out),
                UserState::Away => self.revive(index, at, out),
                UserState::Resting | UserState::Dialing | UserState::Shaking | UserState::Greeting => {}
            }
        }
    }

    /// Lets a connected user begin as many requests as it may, and sends them in one send.
    fn refill(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let user = &self.users[index as usize];
        if user.state != UserState::Open || user.sending || self.stage != RequestsStage::Running {
            return;
        }
        if !self.carriers.is_empty() {
            return self.refill_streams(index, at, out);
        }
        if user.count == user.sent && user.count > self.plan.pipeline / 2 {
            // Requests are sent in batches of half a pipeline. One by one, each response would cost a send.
            return;
        }
        let mut room = u64::from(self.plan.pipeline - user.count);
        if let Some(limit) = self.plan.requests_per_connection {
            let taken = user.served + u64::from(user.count - user.sent);
            room = room.min(limit.saturating_sub(taken));
        }
        for _ in 0..room {
            let Some(ticket) = self.tickets.take(at.now_ns) else { break };
            self.depart(index, ticket, at);
        }
        let user = &self.users[index as usize];
        if user.count > user.sent {
            self.send(index, at, out);
        } else if user.count == 0 {
            self.rest_idle(index);
        }
    }

    /// Lets a user without a connection dial, if it has a request or gets a ticket.
    fn revive(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        if self.stage != RequestsStage::Running {
            return;
        }
        if self.users[index as usize].count == 0 {
            let Some(ticket) = self.tickets.take(at.now_ns) else { return self.rest_idle(index) };
            self.depart(index, ticket, at);
        }
        self.dial(index, at, out);
    }

    fn rest_idle(&mut self, index: u32) {
        let user = &mut self.users[index as usize];
        if !std::mem::replace(&mut user.queued, true) {
            self.idle.push_back(index);
        }
    }

    /// Begins a request.
    fn depart(&mut self, index: u32, ticket: RequestTicket, at: TurnTime) {
        let RequestTicket { intended_ns, warm } = ticket;
        let message = self.load.choose(&self.plan.mix);
        let rested = std::mem::take(&mut self.users[index as usize].rested);
        self.under_way += 1;
        self.tally.begun.increment();
        if !warm {
            if self.times.counted_ns == 0 {
                self.times.counted_ns = intended_ns;
            }
            if matches!(self.plan.pace, Pace::Open(..)) {
                let lag_ns = at.now_ns.saturating_sub(intended_ns);
                self.tally.lag.record(lag_ns);
                if lag_ns > 0 && !rested {
                    self.tally.queued.increment();
                }
            }
        }
        self.line_up(index, OpenRequest { intended_ns, begun_ns: at.now_ns, message, warm });
    }

    /// Appends a flight to a user's ring.
    fn line_up(&mut self, index: u32, flight: OpenRequest) {
        let depth = self.plan.pipeline;
        let user = &mut self.users[index as usize];
        let place = ring(depth, user.first, user.count);
        user.count += 1;
        self.flights[index as usize * usize::from(depth) + place] = flight;
    }

    fn dial(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        (user.state, user.since_ns) = (UserState::Dialing, at.now_ns);
        self.dialing += 1;
        self.arm(index, at.now_ns.saturating_add(self.timeout_ns));
        out.dials.push_back(index);
    }

    /// Sends all unsent flights of a user.
    fn send(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let depth = self.plan.pipeline;
        let user = &mut self.users[index as usize];
        let unsent = user.count - user.sent;
        let base = index as usize * usize::from(depth);
        let first = user.first;
        let messages =
            (user.sent..user.count).map(|nth| self.flights[base + ring(depth, first, nth)].message);
        let segments = self.load.segments(&self.plan, unsent, messages);
        (user.sent, user.sending) = (user.count, true);
        user.served += u64::from(unsent);
        out.put(user.token, Op::Send(Send { segments, more: false }));
        let oldest_ns = self.flights[base + usize::from(first)].begun_ns.max(at.now_ns);
        self.arm(index, oldest_ns.saturating_add(self.timeout_ns));
    }

    /// Sets a timer for a user, unless it has one: an earlier timer is set again when it fires.
    fn arm(&mut self, index: u32, at_ns: u64) {
        let user = &mut self.users[index as usize];
        if !std::mem::replace(&mut user.timed, true) {
            self.wheel.arm(index, at_ns);
        }
    }

    // ---- ends of requests ----

    fn received(&mut self, index: u32, lease: &[u8], at: TurnTime, out: &mut Outbox) {
        if self.plan.tls.is_none() {
            self.tally.received_bytes.add(lease.len() as u64);
        }
        self.understand(index, lease, at, out);
    }

    /// Processes decrypted input.
    fn understand(&mut self, index: u32, lease: &[u8], at: TurnTime, out: &mut Outbox) {
        if !self.carriers.is_empty() {
            return self.on_input(index, lease, at, out);
        }
        let mut kept = std::mem::take(&mut self.users[index as usize].partial);
        if kept.is_empty() {
            let consumed = self.read(index, lease, at, out);
            if let Some(left) = consumed.and_then(|consumed| lease.get(consumed..)) {
                self.users[index as usize].partial = left.to_vec();
            }
        } else {
            kept.extend_from_slice(lease);
            if let Some(consumed) = self.read(index, &kept, at, out) {
                kept.drain(..consumed);
                if !kept.is_empty() {
                    self.users[index as usize].partial = kept;
                }
            }
        }
    }

    /// Reads responses. Returns the number of bytes consumed, or `None` if the connection is over.
    fn read(&mut self, index: u32, input: &[u8], at: TurnTime, out: &mut Outbox) -> Option<usize> {
        let mut consumed = 0;
        while consumed < input.len() {
            let rest = &input[consumed..];
            let user = &mut self.users[index as usize];
            if user.sent == 0 {
                self.broken(index, RequestPhase::Body, &Cause::Unasked, rest, at, out);
                return None;
            }
            let oldest = index as usize * usize::from(self.plan.pipeline) + usize::from(user.first);
            let flight = self.flights[oldest];
            if !std::mem::replace(&mut user.answering, true) && !flight.warm {
                self.tally.first_byte.record(at.woken_ns.saturating_sub(flight.begun_ns));
            }
            let method = self.plan.mix.message(flight.message).method();
            let mut checked = self.plan.body.as_ref().zip(self.comparisons.get_mut(index as usize));
            let body = |piece: &[u8]| {
                if let Some((expected, compared)) = &mut checked {
                    compared.take(expected, piece);
                }
            };
            let step = match user.reader.feed(&mut self.heads, method, rest, body) {
                Ok(step) => step,
                Err(refusal) => {
                    self.broken(index, RequestPhase::Body, &Cause::Malformed(refusal), rest, at, out);
                    return None;
                }
            };
            consumed += step.consumed;
            if !flight.warm {
                self.tally.body_bytes.add(step.body as u64);
            }
            if !step.done {
                return Some(consumed);
            }
            self.answered(index, at);
            if self.is_enough(index) {
                self.see_off(index, out);
                self.hang_up(index, out);
                self.revive(index, at, out);
                return None;
            }
        }
        self.refill(index, at, out);
        Some(consumed)
    }

    /// Whether the connection ends after the response that was just read.
    fn is_enough(&self, index: u32) -> bool {
        let user = &self.users[index as usize];
        let served = self.plan.requests_per_connection.is_some_and(|limit| user.served >= limit);
        !user.reader.keep_alive() || served && user.sent == 0
    }

    /// Completes the oldest flight.
    fn answered(&mut self, index: u32, at: TurnTime) {
        let flight = self.land(index);
        let user = &mut self.users[index as usize];
        user.answering = false;
        let status = user.reader.status();
        let same = self.is_same(index);
        if self.plan.pipeline > 1 {
            self.gathering.note(at.woken_ns.saturating_sub(flight.begun_ns));
        }
        self.finish(flight, status, same, at);
    }

    /// Ends a flight with a complete response. `same`: the body is the expected one.
    fn finish(&mut self, flight: OpenRequest, status: u16, same: bool, at: TurnTime) {
        self.under_way -= 1;
        self.times.ended_ns = at.now_ns;
        if flight.warm {
            self.tally.warm_up.increment();
            return;
        }
        self.tally.finished.increment();
        self.tally.statuses.add(status, 1);
        if !self.plan.expected.iter().any(|expected| expected.contains(&status)) {
            self.tally.wrong.increment();
        } else if !same {
            self.tally.wrong.increment();
            self.tally.differing.increment();
        }
        // With io_uring a response may arrive in the same turn as its request.
        let whole_ns = at.woken_ns.max(flight.begun_ns);
        if at.gathered {
            self.tally.gathered.increment();
        }
        self.tally.service.record(whole_ns - flight.begun_ns);
        if matches!(self.plan.pace, Pace::Open(..)) {
            self.tally.response.record(whole_ns.saturating_sub(flight.intended_ns));
        }
    }

    /// Whether the body that just ended is the expected one. True if no body is expected.
    fn is_same(&mut self, index: u32) -> bool {
        let checked = self.plan.body.as_ref().zip(self.comparisons.get_mut(index as usize));
        checked.is_none_or(|(expected, compared)| compared.end(expected))
    }

    /// Removes the oldest flight from the ring.
    fn land(&mut self, index: u32) -> OpenRequest {
        let depth = self.plan.pipeline;
        let user = &mut self.users[index as usize];
        let flight = self.flights[index as usize * usize::from(depth) + usize::from(user.first)];
        user.first = ring(depth, user.first, 1) as u16;
        user.count -= 1;
        user.sent = user.sent.saturating_sub(1);
        flight
    }

    /// The server has ended its side. `cut`: without the close_notify of TLS.
    fn ended(&mut self, index: u32, cut: bool, at: TurnTime, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        if let UserState::Shaking | UserState::Greeting = user.state {
            let phase = user.phase();
            return self.unconnected(index, phase, &Cause::Ended, at, out);
        }
        let carries =
            self.carriers.get(index as usize).and_then(Option::as_deref).is_some_and(Carrier::is_busy);
        if user.sent > 0 && !cut && user.reader.ended() {
            self.answered(index, at);
        } else if user.sent > 0 || carries {
            let phase = user.phase();
            let seen = std::mem::take(&mut user.partial);
            let cause = if cut { Cause::Cut } else { Cause::Ended };
            return self.broken(index, phase, &cause, &seen, at, out);
        } else {
            self.tally.ended_idle.increment();
        }
        self.hang_up(index, out);
        self.revive(index, at, out);
    }

    /// Gives up a connection: sent requests fail, unsent ones move to the next connection.
    fn broken(
        &mut self,
        index: u32,
        mut phase: RequestPhase,
        cause: &Cause,
        seen: &[u8],
        at: TurnTime,
        out: &mut Outbox,
    ) {
        self.lose_streams(index, phase, cause, at);
        for _ in 0..self.users[index as usize].sent {
            self.fail(index, phase, cause, seen, at);
            // Later requests have received nothing.
            phase = RequestPhase::FirstByte;
        }
        self.hang_up(index, out);
        self.revive(index, at, out);
    }

    /// A user failed to connect, or TLS failed.
    fn unconnected(
        &mut self,
        index: u32,
        phase: RequestPhase,
        cause: &Cause,
        at: TurnTime,
        out: &mut Outbox,
    ) {
        self.tally.unconnected.increment();
        let waiting = self.users[index as usize].count;
        if waiting == 0 {
            self.errors.add(phase, cause.clone(), self.since_begin(at), &[]);
        }
        for _ in 0..waiting {
            self.fail(index, phase, cause, &[], at);
        }
        if waiting > 0 && matches!(cause, Cause::Strange) && !self.has_greeted {
            // Further requests would fail the same way, each after a pause.
            self.tickets.stop();
        }
        self.hang_up(index, out);
        let user = &mut self.users[index as usize];
        let rest_ns = REST_NS << user.failures.min(REST_DOUBLINGS_MAX);
        user.failures = user.failures.saturating_add(1);
        (user.state, user.since_ns) = (UserState::Resting, at.now_ns.saturating_add(rest_ns));
        user.timed = true;
        self.wheel.arm(index, user.since_ns);
        self.dial_next(at, out);
    }

    fn fail(&mut self, index: u32, phase: RequestPhase, cause: &Cause, seen: &[u8], at: TurnTime) {
        let flight = self.land(index);
        self.lose(flight, phase, cause, seen, at);
    }

    /// Ends a flight without a complete response.
    fn lose(&mut self, flight: OpenRequest, phase: RequestPhase, cause: &Cause, seen: &[u8], at: TurnTime) {
        self.under_way -= 1;
        self.times.ended_ns = at.now_ns;
        if flight.warm {
            self.tally.warm_up.increment();
        } else {
            self.tally.failed.increment();
            self.errors.add(phase, cause.clone(), self.since_begin(at), seen);
        }
    }

    /// Aborts a flight because the run is over.
    fn abort(&mut self, flight: OpenRequest) {
        self.under_way -= 1;
        if flight.warm { &self.tally.warm_up } else { &self.tally.aborted }.increment();
    }

    /// Time since the beginning of the run; 0 while connections are opened before it.
    fn since_begin(&self, at: TurnTime) -> u64 {
        if self.stage == RequestsStage::Opening { 0 } else { at.now_ns.saturating_sub(self.times.open_ns) }
    }

    /// Closes a user's connection, if it has one. Requests after the last response are sent again on the next connection: a
    /// server that announces a close has not processed them (RFC 9112 section 9.6).
    fn hang_up(&mut self, index: u32, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        if matches!(user.state, UserState::Dialing | UserState::Shaking | UserState::Greeting) {
            self.dialing -= 1;
        }
        if let Some(carrier) = self.carriers.get_mut(index as usize) {
            *carrier = None;
        }
        if let Some(compared) = self.comparisons.get_mut(index as usize) {
            *compared = BodyComparison::default();
        }
        if user.token != Token::NONE {
            self.owners[user.token.index as usize] = NOBODY;
            out.put(user.token, Op::Close);
        }
        let User { queued, rested, timed, failures, first, count, .. } = *user;
        *user = User { queued, rested, timed, failures, first, count, ..User::away() };
    }

    // ---- connections ----

    fn connected(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        self.count_connect(index, at);
        out.put(self.users[index as usize].token, Op::Recv);
        if self.carriers.is_empty() {
            self.opened(index, at, out);
        } else {
            self.greet(index, at, out);
        }
    }

    fn count_connect(&mut self, index: u32, at: TurnTime) {
        self.tally.connected.increment();
        self.tally.connect.record(at.woken_ns.saturating_sub(self.users[index as usize].since_ns));
    }

    /// Marks a connection as ready for requests.
    fn opened(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        (user.state, user.failures) = (UserState::Open, 0);
        self.dialing -= 1;
        self.dial_next(at, out);
        self.refill(index, at, out);
    }

    /// Before the run: dials until DIALS_MAX users are dialing.
    fn dial_next(&mut self, at: TurnTime, out: &mut Outbox) {
        if self.stage != RequestsStage::Opening {
            return;
        }
        while self.dialing < DIALS_MAX && (self.undialed as usize) < self.users.len() {
            let index = self.undialed;
            self.undialed += 1;
            self.dial(index, at, out);
        }
    }

    /// Handles a user's timer.
    fn look(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        user.timed = false;
        let oldest = index as usize * usize::from(self.plan.pipeline) + usize::from(user.first);
        if user.state == UserState::Open && !self.carriers.is_empty() {
            return self.expire_streams(index, at, out);
        }
        let deadline_ns = match user.state {
            UserState::Resting => user.since_ns,
            // The timeout of a dial starts when it leaves the queue.
            UserState::Dialing if user.is_in_line() => at.now_ns.saturating_add(self.timeout_ns),
            UserState::Dialing | UserState::Shaking | UserState::Greeting => {
                user.since_ns.saturating_add(self.timeout_ns)
            }
            UserState::Open if user.sent > 0 => self.flights[oldest].begun_ns.saturating_add(self.timeout_ns),
            UserState::Away | UserState::Open => return,
        };
        if deadline_ns > at.now_ns {
            return self.arm(index, deadline_ns);
        }
        match user.state {
            UserState::Resting => {
                user.state = UserState::Away;
                self.revive(index, at, out);
            }
            UserState::Dialing | UserState::Shaking | UserState::Greeting => {
                let phase = user.phase();
                self.unconnected(index, phase, &Cause::Timeout, at, out);
            }
            UserState::Away | UserState::Open => {
                let phase = user.phase();
                let seen = std::mem::take(&mut user.partial);
                self.broken(index, phase, &Cause::Timeout, &seen, at, out);
            }
        }
    }

    fn owner(&self, token: Token) -> Option<u32> {
        let owner = *self.owners.get(token.index as usize)?;
        (owner < PARTING && self.users[owner as usize].token == token).then_some(owner)
    }

    /// Leaves a connection to its server, if the server has announced to close it. The side that closes first keeps the address
    /// pair in TIME-WAIT for a minute (RFC 9293 section 3.6.1). Ports are the scarce resource of a generator.
    fn see_off(&mut self, index: u32, out: &mut Outbox) {
        let user = &mut self.users[index as usize];
        if user.reader.keep_alive() || self.plan.tls.is_some() {
            return;
        }
        let token = std::mem::replace(&mut user.token, Token::NONE);
        let seat = self.parting_next;
        self.parting_next = (seat + 1) % PARTING_MAX;
        self.owners[token.index as usize] = PARTING + seat;
        let longest = std::mem::replace(&mut self.parting[seat as usize], token);
        if longest != Token::NONE {
            self.owners[longest.index as usize] = NOBODY;
            out.put(longest, Op::Close);
        }
    }

    /// A connection without a user has ended.
    fn parted(&mut self, token: Token, out: &mut Outbox) {
        let Some(owner) = self.owners.get_mut(token.index as usize) else { return };
        let seat = owner.checked_sub(PARTING).and_then(|seat| self.parting.get_mut(seat as usize));
        if let Some(seat) = seat.filter(|seat| **seat == token) {
            (*seat, *owner) = (Token::NONE, NOBODY);
            out.put(token, Op::Recycle);
        }
    }
}

impl Crowd for Requests {
    const DIALS_AT_ONCE: usize = 1;

    fn open(&mut self, at: TurnTime, out: &mut Outbox) {
        self.wheel = Wheel::new(at.now_ns);
        self.times.opening_ns = at.now_ns;
        if self.plan.one_shot() {
            // Each request opens its own connection.
            self.undialed = self.users.len() as u32;
        }
        self.dial_next(at, out);
    }

    fn is_open(&self) -> bool {
        self.dialing == 0 && self.undialed as usize == self.users.len()
    }

    fn begin(&mut self, at: TurnTime, out: &mut Outbox) {
        self.times.open_ns = at.now_ns;
        self.times.ended_ns = at.now_ns;
        self.stage = RequestsStage::Running;
        self.tickets = Tickets::new(&self.plan, self.share, at.now_ns);
        let drain_ns = u64::try_from(self.plan.drain.as_nanos()).unwrap_or(u64::MAX);
        self.drain_ns =
            self.tickets.until_ns().map_or(u64::MAX, |until_ns| until_ns.saturating_add(drain_ns));
        self.begin_some(at, out);
    }

    fn is_queued(&self, user: u32) -> bool {
        self.users.get(user as usize).is_some_and(User::is_in_line)
    }

    fn dialed(&mut self, user: u32, token: Result<Token, OpError>, at: TurnTime, out: &mut Outbox) {
        match token {
            Ok(token) => {
                let place = token.index as usize;
                if self.owners.len() <= place {
                    self.owners.resize(place + 1, NOBODY);
                }
                self.owners[place] = user;
                let user = &mut self.users[user as usize];
                // Dials may be queued: each is timed from its own attempt.
                (user.token, user.since_ns) = (token, at.now_ns);
            }
            Err(fault) => self.unconnected(user, RequestPhase::Connect, &fault.into(), at, out),
        }
    }

    fn on_event(&mut self, event: Event<'_>, at: TurnTime, out: &mut Outbox) {
        match event {
            Event::Received { token, lease } => {
                if let Some(index) = self.owner(token) {
                    self.received(index, lease, at, out);
                }
            }
            Event::Sent { token, bytes, segments } => {
                self.tally.sent_bytes.add(bytes);
                self.load.take_back(segments);
                if let Some(index) = self.owner(token) {
                    let user = &mut self.users[index as usize];
                    user.sending = false;
                    // Only pipelined requests can be answered while others are being sent, and a request can only wait after
                    // data that HTTP/2 sends by itself.
                    if user.count < self.plan.pipeline || user.sent < user.count {
                        self.refill(index, at, out);
                    }
                    self.flush(index, out);
                }
            }
            Event::Connected { token } => {
                if let Some(index) = self.owner(token) {
                    self.connected(index, at, out);
                }
            }
            Event::PeerClosed { token, .. } => match self.owner(token) {
                Some(index) => self.ended(index, false, at, out),
                None => self.parted(token, out),
            },
            Event::Failed { token, op, fault, sent, segments } => {
                self.tally.sent_bytes.add(sent);
                self.load.take_back(segments);
                if let Some(index) = self.owner(token) {
                    let user = &self.users[index as usize];
                    match user.state {
                        UserState::Dialing | UserState::Shaking | UserState::Greeting => {
                            self.unconnected(index, user.phase(), &fault.into(), at, out);
                        }
                        _ => {
                            let phase = if op == OpKind::Send { RequestPhase::Write } else { user.phase() };
                            self.broken(index, phase, &fault.into(), &[], at, out);
                        }
                    }
                } else {
                    self.parted(token, out);
                }
            }
            Event::Closed { segments, .. } => self.load.take_back(segments),
            Event::Woken | Event::Accepted { .. } | Event::Watched { .. } | Event::Offloaded { .. } => {}
        }
    }

    fn on_time(&mut self, at: TurnTime, out: &mut Outbox) {
        if self.stage == RequestsStage::Over {
            return;
        }
        if self.is_beginning() {
            self.begin_some(at, out);
        }
        self.wheel.expire(at.now_ns, &mut self.due);
        while let Some(index) = self.due.pop() {
            self.look(index, at, out);
        }
        while self.tickets.next_ns().is_some_and(|due_ns| due_ns <= at.now_ns)
            && let Some(index) = self.idle.pop_front()
        {
            let user = &mut self.users[index as usize];
            (user.queued, user.rested) = (false, true);
            match user.state {
                UserState::Open => self.refill(index, at, out),
                UserState::Away => self.revive(index, at, out),
                UserState::Resting | UserState::Dialing | UserState::Shaking | UserState::Greeting => {}
            }
        }
        if at.now_ns >= self.drain_ns {
            self.close(out);
        }
    }

    fn gather_ns(&self) -> u64 {
        self.gathering.time_ns()
    }

    fn next_ns(&self) -> Option<u64> {
        if self.is_beginning() {
            return Some(0);
        }
        // If no user is idle, a due request waits for a user, not for a time.
        let due_ns = if self.idle.is_empty() { None } else { self.tickets.next_ns() };
        let drain_ns = (self.drain_ns < u64::MAX).then_some(self.drain_ns);
        [due_ns, self.wheel.next_ns(), drain_ns].into_iter().flatten().min()
    }

    fn stop(&mut self, at: TurnTime) {
        self.tickets.stop();
        let drain_ns = u64::try_from(self.plan.drain.as_nanos()).unwrap_or(u64::MAX);
        self.drain_ns = self.drain_ns.min(at.now_ns.saturating_add(drain_ns));
    }

    fn is_over(&self) -> bool {
        match self.stage {
            RequestsStage::Opening => false,
            RequestsStage::Running => self.under_way == 0 && self.tickets.is_exhausted(),
            RequestsStage::Over => true,
        }
    }

    fn close(&mut self, out: &mut Outbox) {
        for index in 0..self.users.len() as u32 {
            self.abort_streams(index);
            for _ in 0..self.users[index as usize].count {
                let flight = self.land(index);
                self.abort(flight);
            }
            self.hang_up(index, out);
        }
        for token in std::mem::replace(&mut self.parting, [Token::NONE; PARTING_MAX as usize]) {
            if token != Token::NONE {
                self.owners[token.index as usize] = NOBODY;
                out.put(token, Op::Close);
            }
        }
        self.tickets.stop();
        self.stage = RequestsStage::Over;
    }
}

impl Sealable for Requests {
    fn shaking(&mut self, token: Token, at: TurnTime) {
        let Some(index) = self.owner(token) else { return };
        self.count_connect(index, at);
        let user = &mut self.users[index as usize];
        (user.state, user.since_ns) = (UserState::Shaking, at.now_ns);
    }

    fn shaken(&mut self, token: Token, shaken: HandshakeOutcome, at: TurnTime, out: &mut Outbox) {
        let Some(index) = self.owner(token) else { return };
        self.tally.handshakes.increment();
        if shaken.resumed {
            self.tally.resumed.increment();
        }
        self.tally.handshake.record(shaken.took_ns);
        if self.carriers.is_empty() {
            self.opened(index, at, out);
        } else if shaken.http2 {
            self.greet(index, at, out);
        } else {
            self.unconnected(index, RequestPhase::Tls, &Cause::Strange, at, out);
        }
    }

    fn arrived(&mut self, bytes: u64) {
        self.tally.received_bytes.add(bytes);
    }

    fn spoken(&mut self, bytes: u64) {
        self.tally.sent_bytes.add(bytes);
    }

    fn untrusted(&mut self, token: Token, cause: Cause, at: TurnTime, out: &mut Outbox) {
        let Some(index) = self.owner(token) else { return };
        let user = &self.users[index as usize];
        match (cause, user.state) {
            (Cause::Cut, _) => self.ended(index, true, at, out),
            (cause, UserState::Shaking | UserState::Greeting) => {
                self.unconnected(index, user.phase(), &cause, at, out);
            }
            (cause, _) => self.broken(index, user.phase(), &cause, &[], at, out),
        }
    }
}

impl User {
    const fn away() -> Self {
        Self {
            token: Token::NONE,
            state: UserState::Away,
            queued: false,
            rested: false,
            sending: false,
            answering: false,
            timed: false,
            failures: 0,
            first: 0,
            count: 0,
            sent: 0,
            served: 0,
            since_ns: 0,
            reader: ResponseReader::new(),
            partial: Vec::new(),
        }
    }

    /// Whether its dial is queued.
    fn is_in_line(&self) -> bool {
        self.state == UserState::Dialing && self.token == Token::NONE
    }

    /// The phase of the connection, or of the oldest flight.
    fn phase(&self) -> RequestPhase {
        if self.state == UserState::Dialing {
            RequestPhase::Connect
        } else if self.state == UserState::Shaking {
            RequestPhase::Tls
        } else if self.state == UserState::Greeting {
            RequestPhase::Greeting
        } else if self.sending && !self.answering {
            RequestPhase::Write
        } else if self.answering {
            RequestPhase::Body
        } else {
            RequestPhase::FirstByte
        }
    }
}

/// The ring position `nth` after `first`, in a ring of `depth`.
fn ring(depth: u16, first: u16, nth: u16) -> usize {
    (usize::from(first) + usize::from(nth)) % usize::from(depth)
}

/// Builds sends, with reusable buffers.
struct SendBuilder {
    /// If all requests are identical: as many copies as a pipeline holds, and the length of one.
    train: Option<(Arc<[u8]>, usize)>,
    /// With HTTP/2: the prepared form of each constant message, once it was used.
    h2_requests: Vec<Option<H2Request>>,
    /// Segments of completed sends, which still contain the train.
    spare: Vec<Vec<Segment>>,
    buffers: Vec<Vec<u8>>,
    random: Random,
    /// The number of the next request for `{seq}`, and its place in a mix with an order.
    sequence: u64,
    place: u64,
    /// Increment of both: the other threads have the numbers between.
    stride: u64,
}

/// Maximum spare buffers, of at most 64 KiB each.
const BUFFERS_MAX: usize = 64;
const BUFFER_BYTES_MAX: usize = 64 * 1024;

impl SendBuilder {
    fn new(plan: &Plan, share: PlanShare) -> Self {
        let http1 = plan.protocol == Protocol::Http1;
        let single = plan.mix.single().filter(|_| http1);
        let train = single.map(|message| (message.repeat(usize::from(plan.pipeline)).into(), message.len()));
        Self {
            train,
            h2_requests: vec![None; if http1 { 0 } else { plan.mix.len() }],
            spare: Vec::new(),
            buffers: Vec::new(),
            random: Random::new(plan.seed, share.number as u64),
            sequence: share.number as u64 + 1,
            place: share.number as u64,
            stride: share.threads as u64,
        }
    }

    /// Chooses the message of the next request.
    fn choose(&mut self, mix: &Mix) -> u32 {
        let place = self.place;
        self.place += self.stride;
        mix.choose(place, &mut self.random)
    }

    /// The bytes of the next `count` requests, which are `messages`.
    fn segments(&mut self, plan: &Plan, count: u16, mut messages: impl Iterator<Item = u32>) -> Vec<Segment> {
        let mut segments = self.spare.pop().unwrap_or_default();
        if let Some((train, bytes)) = &self.train {
            // A shorter train is the end of the whole one.
            let from = train.len() - usize::from(count) * bytes;
            match &mut segments[..] {
                [Segment::Shared(_, start)] => *start = from,
                _ => {
                    segments.clear();
                    segments.push(Segment::Shared(Arc::clone(train), from));
                }
            }
            return segments;
        }
        let first = messages.next();
        let single = first.filter(|_| count == 1).and_then(|number| plan.mix.message(number).fixed());
        segments.push(match single {
            Some(fixed) => Segment::Shared(Arc::clone(fixed), 0),
            None => {
                let mut buffer = self.buffer();
                for number in first.into_iter().chain(messages) {
                    plan.mix.message(number).put(self.sequence, &mut self.random, &mut buffer);
                    self.sequence += self.stride;
                }
                Segment::Bytes(buffer)
            }
        });
        segments
    }

    /// The next request, which is message `number`, for HTTP/2. `None` if HTTP/2 cannot represent it; a checked plan has no
    /// such message.
    fn letter(&mut self, plan: &Plan, number: u32) -> Option<H2Request> {
        let message = plan.mix.message(number);
        let kept = self.h2_requests.get_mut(number as usize)?;
        if let Some(letter) = kept {
            return Some(letter.clone());
        }
        let letter = message.h2_request(plan.tls.is_some(), self.sequence, &mut self.random)?;
        if message.fixed().is_some() {
            *kept = Some(letter.clone());
        } else {
            self.sequence += self.stride;
        }
        Some(letter)
    }

    /// Returns an empty buffer.
    fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < BUFFERS_MAX && buffer.capacity() <= BUFFER_BYTES_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Keeps the segments of a completed send for reuse.
    fn take_back(&mut self, mut segments: Vec<Segment>) {
        if segments.capacity() == 0 {
            return;
        }
        // Segments with the train are reused unchanged.
        if !matches!((&self.train, &segments[..]), (Some(_), [Segment::Shared(..)])) {
            for segment in segments.drain(..) {
                if let Segment::Bytes(buffer) = segment {
                    self.keep(buffer);
                }
            }
        }
        if self.spare.len() < BUFFERS_MAX {
            self.spare.push(segments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_connection_takes_what_its_comment_says() {
        assert_eq!((size_of::<User>(), size_of::<OpenRequest>()), (96, 24));
    }

    #[test]
    fn a_ring_begins_again_at_its_end() {
        assert_eq!(
            [ring(4, 0, 0), ring(4, 3, 0), ring(4, 3, 1), ring(4, 2, 3), ring(1, 0, 1)],
            [0, 3, 0, 1, 0]
        );
    }
}
