//! Publishers: connections that each post one message at a time.
//!
//! ```text
//!   Away ── dialed ──► Dialing ── connected ──► Idle ◄──────────────┐
//!    ▲ ▲                  │                      │ a ticket         │ response
//!    │ └── back-off ── Resting ◄─── failed ───┐   ▼                  │
//!    └────── ended by the server ─────────────┴─ Busy ───────────────┘
//!                                                 └─ no response: the message counts as refused
//! ```
//! A message that is due while all publishers are busy stays due; its delay is the lag of the schedule.

use std::collections::VecDeque;
use std::sync::Arc;

use encke_io::{Op, OpError, OpKind, Segment, Send, Token};
use encke_wire::method::Method;

use super::Clockwork;
use super::dialect::PushRunRequests;
use super::mark::Mark;
use super::plan::PushRunPlan;
use super::tally::{PushTally, RunShared};
use crate::answer::{Heads, ResponseReader};
use crate::crowd::{Outbox, TurnTime};
use crate::pace::Pace;
use crate::plan::{PlanShare, WarmUp};
use crate::tally::{Cause, Errors, RequestPhase, SAMPLE_BYTES_MAX};
use crate::tickets::Tickets;

/// The publishers of a run. Only the first thread has any.
pub(crate) struct Publishers {
    plan: Arc<PushRunPlan>,
    requests: Arc<PushRunRequests>,
    shared: Arc<RunShared>,
    tally: Arc<PushTally>,
    publishers: Vec<Publisher>,
    /// Publishers without an open request.
    idle: VecDeque<u16>,
    tickets: Option<Tickets>,
    /// Messages sent without a response yet.
    under_way: usize,
    published: usize,
    /// The time at which the last publisher lost its connection, if all have.
    alone_since_ns: Option<u64>,
    /// The beginning of the run: errors are timed from it.
    opening_ns: u64,
    timeout_ns: u64,
    errors: Errors,
    heads: Heads,
}

struct Publisher {
    token: Token,
    state: PublisherState,
    /// Dialing, Idle, Busy: begin of the state. Resting: end of the back-off.
    since_ns: u64,
    /// Index of its next lane.
    turn: usize,
    /// The message of its open request.
    mark: Option<Mark>,
    reader: ResponseReader,
    partial: Vec<u8>,
    /// First bytes of the body of the current response: the reason, if it is a rejection.
    text: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PublisherState {
    Away,
    Resting,
    Dialing,
    Idle,
    Busy,
}

impl Publisher {
    /// Whether its dial is queued.
    fn is_in_line(&self) -> bool {
        self.state == PublisherState::Dialing && self.token == Token::NONE
    }
}

/// Maximum messages of a run. Each thread keeps 32 bytes per message, which is 134 MB.
pub const MESSAGES_MAX: usize = 1 << 22;
/// Back-off after a failure to connect.
const REST_NS: u64 = 100_000_000;

impl Publishers {
    pub(crate) fn new(
        plan: Arc<PushRunPlan>,
        requests: Arc<PushRunRequests>,
        shared: Arc<RunShared>,
        tally: Arc<PushTally>,
        count: u16,
    ) -> Self {
        let publishers = (0..count).map(|_| Publisher {
            token: Token::NONE,
            state: PublisherState::Away,
            since_ns: 0,
            turn: 0,
            mark: None,
            reader: ResponseReader::new(),
            partial: Vec::new(),
            text: Vec::new(),
        });
        Self {
            timeout_ns: u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX),
            publishers: publishers.collect(),
            plan,
            requests,
            shared,
            tally,
            idle: VecDeque::new(),
            tickets: None,
            under_way: 0,
            published: 0,
            alone_since_ns: None,
            opening_ns: 0,
            errors: Errors::default(),
            heads: Heads::new(),
        }
    }

    /// Dials all publishers without a connection. `user` is the user number of the first, `opening_ns` the beginning of the run.
    pub(crate) fn open(&mut self, user: u32, opening_ns: u64, at: TurnTime, out: &mut Outbox) {
        self.opening_ns = opening_ns;
        for (index, one) in self.publishers.iter_mut().enumerate() {
            if one.state == PublisherState::Away {
                (one.state, one.since_ns) = (PublisherState::Dialing, at.now_ns);
                out.dials.push_back(user + index as u32);
            }
        }
    }

    pub(crate) fn are_open(&self) -> bool {
        self.publishers.iter().all(|one| matches!(one.state, PublisherState::Idle | PublisherState::Busy))
    }

    /// Begins to publish at the plan's pace.
    pub(crate) fn begin(&mut self, at: TurnTime) {
        let whole = PlanShare { number: 0, threads: 1 };
        let PushRunPlan { stop, pace, seed, .. } = &*self.plan;
        self.tickets = Some(Tickets::of(*stop, pace, WarmUp::None, *seed, whole, at.now_ns));
    }

    /// Publishes no more messages.
    pub(crate) fn stop(&mut self) {
        if let Some(tickets) = &mut self.tickets {
            tickets.stop();
        }
    }

    /// Whether no publisher has been connected for the duration of the timeout.
    pub(crate) fn are_gone(&mut self, at: TurnTime) -> bool {
        if self.publishers.iter().any(|one| matches!(one.state, PublisherState::Idle | PublisherState::Busy))
        {
            self.alone_since_ns = None;
            return false;
        }
        let since_ns = *self.alone_since_ns.get_or_insert(at.now_ns);
        since_ns.saturating_add(self.timeout_ns) <= at.now_ns
    }

    /// Whether no request is open.
    pub(crate) const fn are_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Whether all messages have been sent.
    pub(crate) fn are_said(&self) -> bool {
        self.tickets.as_ref().is_none_or(Tickets::is_exhausted)
    }

    /// Whether all messages have been sent and have a response.
    pub(crate) fn are_over(&self) -> bool {
        self.are_idle() && self.are_said()
    }

    pub(crate) fn into_errors(self) -> Errors {
        self.errors
    }

    /// The next moment at which `on_time` must run even without an event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let due_ns = self.tickets.as_ref().filter(|_| !self.idle.is_empty()).and_then(Tickets::next_ns);
        let waits = self.publishers.iter().filter_map(|one| match one.state {
            PublisherState::Resting => Some(one.since_ns),
            PublisherState::Dialing if one.is_in_line() => None,
            PublisherState::Dialing | PublisherState::Busy => {
                Some(one.since_ns.saturating_add(self.timeout_ns))
            }
            PublisherState::Away | PublisherState::Idle => None,
        });
        due_ns.into_iter().chain(waits).min()
    }

    /// Sends due messages, and handles timeouts.
    pub(crate) fn on_time(&mut self, user: u32, at: TurnTime, clock: &mut Clockwork, out: &mut Outbox) {
        for index in 0..self.publishers.len() as u16 {
            let one = &mut self.publishers[usize::from(index)];
            let late = one.since_ns.saturating_add(self.timeout_ns) <= at.now_ns;
            match one.state {
                PublisherState::Resting if one.since_ns <= at.now_ns => {
                    (one.state, one.since_ns) = (PublisherState::Dialing, at.now_ns);
                    out.dials.push_back(user + u32::from(index));
                }
                PublisherState::Dialing | PublisherState::Busy if late && !one.is_in_line() => {
                    self.lose(index, Cause::Timeout, at, out);
                }
                _ => {}
            }
        }
        while let Some(tickets) = &mut self.tickets
            && !self.idle.is_empty()
            && let Some(ticket) = tickets.take(at.now_ns)
        {
            let next = self.idle.front().map(|index| self.publishers[usize::from(*index)].since_ns);
            let Some(sent_ns) = self.publish(clock, out) else { return };
            if matches!(self.plan.pace, Pace::Open(..)) {
                self.tally.lag.record(sent_ns.saturating_sub(ticket.intended_ns));
                if next.is_some_and(|idle_ns| idle_ns > ticket.intended_ns) {
                    self.tally.queued.increment();
                }
            }
        }
    }

    /// Publishes a message from an idle publisher; returns the send time, or `None` if all are busy. The clock is read last,
    /// since the time to build a message is not the server's.
    pub(crate) fn publish(&mut self, clock: &mut Clockwork, out: &mut Outbox) -> Option<u64> {
        let index = self.idle.pop_front()?;
        let one = &mut self.publishers[usize::from(index)];
        // The lanes of a publisher are index, index + publishers and so on.
        let (lanes, step) = (self.plan.lanes(), usize::from(self.plan.publishers));
        let lane = usize::from(index) + one.turn * step;
        one.turn = if lane + step < lanes { one.turn + 1 } else { 0 };
        let number = self.shared.begin(lane);
        let channel = lane % self.plan.channels.len();
        // There are at most 65,536 lanes, so the cast holds.
        let lane = lane as u16;
        let draft = self.requests.draft(channel, self.plan.run, lane, number, self.plan.payload_bytes);
        self.under_way += 1;
        self.published += 1;
        self.tally.published.increment();
        let mut segments = Vec::with_capacity(1);
        let sent_ns = clock();
        segments.push(Segment::Bytes(draft.dated(sent_ns)));
        (one.state, one.since_ns, one.mark) =
            (PublisherState::Busy, sent_ns, Some(Mark { lane, number, sent_ns }));
        out.put(one.token, Op::Send(Send { segments, more: false }));
        if self.published == MESSAGES_MAX {
            self.stop();
        }
        Some(sent_ns)
    }

    pub(crate) fn is_in_line(&self, index: u16) -> bool {
        self.publishers.get(usize::from(index)).is_some_and(Publisher::is_in_line)
    }

    pub(crate) fn dialed(
        &mut self,
        index: u16,
        token: Result<Token, OpError>,
        at: TurnTime,
        out: &mut Outbox,
    ) {
        match token {
            Ok(token) => {
                let one = &mut self.publishers[usize::from(index)];
                (one.token, one.since_ns) = (token, at.now_ns);
            }
            Err(fault) => self.lose(index, fault.into(), at, out),
        }
    }

    pub(crate) fn connected(&mut self, index: u16, at: TurnTime, out: &mut Outbox) {
        let one = &mut self.publishers[usize::from(index)];
        (one.state, one.since_ns) = (PublisherState::Idle, at.now_ns);
        self.idle.push_back(index);
        out.put(one.token, Op::Recv);
    }

    /// Handles bytes of a response.
    pub(crate) fn received(&mut self, index: u16, lease: &[u8], at: TurnTime, out: &mut Outbox) {
        let one = &mut self.publishers[usize::from(index)];
        let mut kept = std::mem::take(&mut one.partial);
        kept.extend_from_slice(lease);
        let mut used = 0;
        while used < kept.len() {
            let one = &mut self.publishers[usize::from(index)];
            let text = &mut one.text;
            let keep = |piece: &[u8]| {
                let room = SAMPLE_BYTES_MAX - text.len().min(SAMPLE_BYTES_MAX);
                text.extend_from_slice(&piece[..piece.len().min(room)]);
            };
            let step = match one.reader.feed(&mut self.heads, Method::Post, &kept[used..], keep) {
                Ok(step) => step,
                Err(refusal) => return self.lose(index, Cause::Malformed(refusal), at, out),
            };
            used += step.consumed;
            if !step.done {
                break;
            }
            let (status, kept_open) = (one.reader.status(), one.reader.keep_alive());
            self.answered(index, status, at);
            if !kept_open {
                return self.hang_up(index, at, out);
            }
        }
        kept.drain(..used);
        self.publishers[usize::from(index)].partial = kept;
    }

    /// Handles an orderly end of a connection by the server.
    pub(crate) fn ended(&mut self, index: u16, at: TurnTime, out: &mut Outbox) {
        let one = &mut self.publishers[usize::from(index)];
        if one.state == PublisherState::Busy && one.reader.ended() {
            let status = one.reader.status();
            self.answered(index, status, at);
        }
        if self.publishers[usize::from(index)].state == PublisherState::Busy {
            self.lose(index, Cause::Ended, at, out);
        } else {
            self.hang_up(index, at, out);
        }
    }

    pub(crate) fn failed(&mut self, index: u16, op: OpKind, fault: OpError, at: TurnTime, out: &mut Outbox) {
        match (self.publishers[usize::from(index)].state, op) {
            // An idle connection: a server may close it after a while.
            (PublisherState::Idle, _) => self.hang_up(index, at, out),
            _ => self.lose(index, fault.into(), at, out),
        }
    }

    /// TLS failed on a connection.
    pub(crate) fn untrusted(&mut self, index: u16, cause: Cause, at: TurnTime, out: &mut Outbox) {
        match self.publishers[usize::from(index)].state {
            PublisherState::Idle => self.hang_up(index, at, out),
            PublisherState::Busy => self.lose(index, cause, at, out),
            PublisherState::Away | PublisherState::Resting | PublisherState::Dialing => {
                self.unconnected(RequestPhase::Tls, cause, at);
                self.hang_up(index, at, out);
            }
        }
    }

    fn answered(&mut self, index: u16, status: u16, at: TurnTime) {
        let one = &mut self.publishers[usize::from(index)];
        (one.state, one.since_ns) = (PublisherState::Idle, at.now_ns);
        self.idle.push_back(index);
        if let Some(mark) = one.mark.take() {
            self.under_way -= 1;
            if (200..300).contains(&status) {
                self.tally.taken.record(at.woken_ns.saturating_sub(mark.sent_ns));
            } else {
                let text = std::mem::take(&mut one.text);
                self.refuse(mark, Cause::Status(status), &text, at);
            }
        }
        self.publishers[usize::from(index)].text.clear();
    }

    /// Gives up a connection; its message, if there is one, counts as refused.
    fn lose(&mut self, index: u16, cause: Cause, at: TurnTime, out: &mut Outbox) {
        let one = &mut self.publishers[usize::from(index)];
        match one.mark.take() {
            Some(mark) => {
                self.under_way -= 1;
                self.refuse(mark, cause, &[], at);
            }
            None => self.unconnected(RequestPhase::Connect, cause, at),
        }
        self.hang_up(index, at, out);
    }

    fn unconnected(&mut self, phase: RequestPhase, cause: Cause, at: TurnTime) {
        self.tally.unconnected.increment();
        self.errors.add(phase, cause, self.since_opening(at), &[]);
    }

    fn refuse(&mut self, mark: Mark, cause: Cause, text: &[u8], at: TurnTime) {
        self.shared.refuse(mark.lane, mark.number);
        self.tally.refused.increment();
        self.errors.add(RequestPhase::Publish, cause, self.since_opening(at), text);
    }

    const fn since_opening(&self, at: TurnTime) -> u64 {
        at.now_ns.saturating_sub(self.opening_ns)
    }

    fn hang_up(&mut self, index: u16, at: TurnTime, out: &mut Outbox) {
        self.idle.retain(|other| *other != index);
        let one = &mut self.publishers[usize::from(index)];
        if one.token != Token::NONE {
            out.put(one.token, Op::Close);
        }
        one.token = Token::NONE;
        (one.state, one.since_ns) = (PublisherState::Resting, at.now_ns.saturating_add(REST_NS));
        (one.reader, one.partial, one.text) = (ResponseReader::new(), Vec::new(), Vec::new());
    }

    /// Closes every connection. Messages without a response count as refused.
    pub(crate) fn close(&mut self, out: &mut Outbox) {
        for one in &mut self.publishers {
            if one.token != Token::NONE {
                out.put(one.token, Op::Close);
            }
            if let Some(mark) = one.mark.take() {
                self.shared.refuse(mark.lane, mark.number);
                self.tally.refused.increment();
            }
            (one.token, one.state) = (Token::NONE, PublisherState::Away);
        }
        self.under_way = 0;
        self.stop();
        self.idle.clear();
    }
}
