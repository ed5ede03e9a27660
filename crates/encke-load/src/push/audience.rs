//! A crowd of subscribers: each has a connection, reconnects when it ends, and accounts for every message.
//!
//! ```text
//!          ┌──────────── back-off, or the server's retry time ◄────┬── could not connect, or was rejected
//!          ▼                                                       │
//!        Away ── dialed ──► Dialing ── connected ──► Asking ───────┤
//!          ▲                                           │ response  │
//!          └── left (churn, storm, end of a cycle) ◄─ Held ────────┘ ended by the server
//!
//!   rejected for good (status 400 to 499, not a stream): Away until the end
//!
//!   the run:  Opening ─► Running ─► Draining ─► Settling ─► Over
//!                        │          published   all received: repeated messages would arrive now
//!                        └─ cycle: Placing ─► Telling ─► Pausing ─► Gathering ─► Placing …
//! ```
//! A subscriber counts as connected once the server has responded: with the head of a stream, with 101, or to a first poll that
//! does not wait. The arrival time of a message is when its bytes were received, and its send time is taken just before the
//! send. Both use the same clock.

use std::collections::VecDeque;
use std::sync::Arc;

use encke_io::wheel::Wheel;
use encke_io::{Event, Op, OpError, OpKind, Segment, Send, Token};
use encke_wire::http1::ResponseHead;

use super::Clockwork;
use super::course::{Course, Curve};
use super::dialect::{PushRunRequests, Transport};
use super::paced::{Paced, Pacer, RoundFigures};
use super::plan::{DIALS_MAX, PushRunPlan};
use super::publishers::Publishers;
use super::receipts::{LaneAccount, Ledger, Receipt, Receipts};
use super::stream::{ReadOptions, ReceiverEvent, ReceiverStream};
use super::tally::{PushTally, RunShared};
use crate::crowd::{Crowd, Outbox, TurnTime};
use crate::pace::Pace;
use crate::plan::{PlanShare, Stop, WarmUp};
use crate::random::Random;
use crate::sealed::{HandshakeOutcome, Sealable};
use crate::tally::{Cause, Errors, RequestPhase};
use crate::tickets::Tickets;
use crate::{Arrivals, Rate};

/// The subscribers of a thread, and on the first thread all publishers.
pub(crate) struct Audience {
    plan: Arc<PushRunPlan>,
    share: PlanShare,
    requests: Arc<PushRunRequests>,
    shared: Arc<RunShared>,
    tally: Arc<PushTally>,
    clock: Clockwork,
    reading: ReadOptions,
    receivers: Vec<PushReceiver>,
    publishers: Publishers,
    /// The user of each of the reactor's tokens, by token index: subscribers first, then publishers.
    owners: Vec<u32>,
    receipts: Receipts,
    ledger: Ledger,
    /// Receipts by send time of their messages, initial subscribers by response time, and reconnects after the storm.
    course: Course,
    answered: Curve,
    returned: Curve,
    errors: Errors,
    stage: AudienceStage,
    times: AudienceTimes,
    rounds: Vec<Round>,
    /// Users still to connect at the beginning, and the schedule of a ramp.
    away: VecDeque<u32>,
    ramp: Option<Tickets>,
    window: u32,
    /// Subscribers that are dialing or waiting for a response, that hold a subscription, and that were rejected for good.
    asking: u32,
    held: u32,
    refused: u32,
    /// The handle for paced rounds; the figures and the begin of the current round.
    pacer: Option<Pacer>,
    figures: RoundFigures,
    round_ns: u64,
    /// Receipts so far.
    received: u64,
    /// When the next subscriber leaves and reconnects.
    churn: Option<Tickets>,
    storm_ns: Option<u64>,
    /// Subscribers cut by the storm: not reconnected, and reconnected without having caught up.
    storm_away: u32,
    storm_behind: u32,
    /// Outstanding receipts; known only while draining and in rounds.
    outstanding: u64,
    /// Whether `outstanding` must be counted again.
    recount: bool,
    wheel: Wheel,
    due: Vec<u32>,
    timeout_ns: u64,
    drain_ns: u64,
    /// Whether all subscribers are connected, or the deadline for them has passed.
    opened: bool,
    opening_until_ns: u64,
    /// The deadline of the run.
    until_ns: u64,
    /// When a thread without publishers next checks whether publishing has ended.
    look_ns: u64,
    random: Random,
    head: ResponseHead,
    told: Vec<ReceiverEvent>,
    /// Segments of completed sends.
    spare: Vec<Vec<Segment>>,
}

/// A subscriber: 120 bytes, 8 for each lane, and 28 in the reactor and the wheel.
struct PushReceiver {
    token: Token,
    state: ReceiverState,
    /// Whether it stops reading once subscribed.
    slow: bool,
    /// Whether it was subscribed before.
    joined: bool,
    /// Whether its subscription resumes at a position.
    resumes: bool,
    /// Whether a send is in flight, and whether a request must follow it.
    sending: bool,
    asks: bool,
    /// Whether the wheel has an entry for the subscriber.
    timed: bool,
    /// Consecutive failures to connect.
    failures: u8,
    /// Set if it was cut by the storm: the number of messages it still lacks, or `CUT` until it has reconnected.
    behind: Option<u32>,
    /// Dialing, Asking: begin of the state. Resting: end of the back-off.
    since_ns: u64,
    stream: ReceiverStream,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReceiverState {
    /// No connection; waits until it may dial.
    Away,
    /// Backs off, or waits for the server's retry time.
    Resting,
    Dialing,
    Asking,
    Held,
    /// As `Held`, with a completed poll: it polls again in the next round.
    Rested,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AudienceStage {
    Opening,
    Running,
    /// Publishing has ended; waits for outstanding receipts until this time.
    Draining(u64),
    /// All receipts have arrived; waits for repeated messages until this time.
    Settling(u64),
    Cycle(CycleStep),
    Paced(RoundState),
    Over,
}

/// State of a paced round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RoundState {
    /// Waits for permission to prepare the round, or to run it.
    Waiting { ready: bool },
    /// Subscribers and publishers connect, until this time at most.
    Preparing(u64),
    /// Polls have until this time to reach the server, before the round is reported ready or continues.
    Placing { until_ns: u64, ready: bool },
    /// Subscribers connect, until this time at most.
    Connecting(u64),
    /// The message was sent; waits for receipts until this time at most.
    Telling(u64),
    /// Publishers publish.
    Publishing,
    /// Publishing has ended; waits for outstanding receipts until this time.
    Draining(u64),
}

/// State of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CycleStep {
    /// All are connected; polls have until this time to reach the server.
    Placing(u64),
    /// The message was sent; waits for receipts until this time at most.
    Telling(u64),
    /// All connections were cut; waits until this time.
    Pausing(u64),
    /// Subscribers connect, until this time at most.
    Gathering(u64),
}

/// Times of a thread's run, on the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AudienceTimes {
    pub(crate) opening_ns: u64,
    /// The last subscriber was subscribed, at the beginning or in the current round.
    pub(crate) open_ns: u64,
    pub(crate) begun_ns: u64,
    /// The last receipt.
    pub(crate) last_ns: u64,
    /// The storm: all were cut; the last was subscribed again; the last had caught up.
    pub(crate) storm_ns: u64,
    pub(crate) back_ns: u64,
    pub(crate) caught_up_ns: u64,
}

/// A round of a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Time from the first connect(2) until all were subscribed, in ns.
    pub connect_ns: u64,
    /// Time from the message's send to its first receipt, in ns.
    pub first_ns: u64,
    /// Time from the first receipt to the last, in ns.
    pub spread_ns: u64,
    /// Number of subscribers.
    pub held: u32,
    /// Number of receipts.
    pub received: u32,
}

const NOBODY: u32 = u32::MAX;
const CUT: u32 = u32::MAX;
/// The first back-off after a failure to connect. Each consecutive one is twice as long, up to 1.28 s.
const REST_NS: u64 = 10_000_000;
const REST_DOUBLINGS_MAX: u8 = 7;
/// How often a thread without publishers checks whether publishing has ended.
const LOOK_NS: u64 = 20_000_000;
/// Repeated messages are expected within this time after the last outstanding receipt.
const SETTLE_NS: u64 = 100_000_000;
/// Pause between two rounds of a cycle: the clients of report 001 sleep for a second.
const PAUSE_NS: u64 = 1_000_000_000;
/// Time for polls to reach the server: a constant plus this time for each. The slowest server measured took 20 µs per poll.
const PLACING_NS: u64 = 20_000_000;
const PLACING_EACH_NS: u64 = 50_000;
const SPARE_MAX: usize = 64;

impl Audience {
    pub(crate) fn new(
        plan: &Arc<PushRunPlan>,
        requests: &Arc<PushRunRequests>,
        share: PlanShare,
        shared: &Arc<RunShared>,
        tally: &Arc<PushTally>,
        pacer: Option<Pacer>,
        clock: Clockwork,
    ) -> Self {
        let count = share.of(plan.subscribers.into()) as usize;
        let random = Random::new(plan.seed, AUDIENCES + share.number as u64);
        // Slow subscribers are spread evenly.
        let slow_up_to = |index: usize| (index as f64 * plan.slow).floor();
        let listeners = (0..count).map(|index| PushReceiver::new(slow_up_to(index + 1) > slow_up_to(index)));
        let listeners = listeners.collect();
        let publishers = if share.number == 0 { plan.publishers } else { 0 };
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cycle = plan.cycles.is_some() || plan.paced.is_some();
        let at_once = plan.cycles.is_some() || matches!(plan.paced, Some(Paced::Cycle | Paced::Storm));
        Self {
            share,
            clock,
            reading: ReadOptions {
                transport: plan.transport,
                run: plan.run,
                positions: requests.can_resume() && (!cycle || plan.transport == Transport::Poll),
            },
            receivers: listeners,
            publishers: Publishers::new(
                Arc::clone(plan),
                Arc::clone(requests),
                Arc::clone(shared),
                Arc::clone(tally),
                publishers,
            ),
            owners: Vec::new(),
            receipts: Receipts::new(count, plan.channels.len(), plan.lanes()),
            ledger: Ledger::new(plan.lanes()),
            course: Course::default(),
            answered: Curve::default(),
            returned: Curve::default(),
            errors: Errors::default(),
            stage: AudienceStage::Opening,
            times: AudienceTimes::default(),
            rounds: Vec::new(),
            away: (0..count as u32).collect(),
            ramp: None,
            window: if at_once { u32::MAX } else { DIALS_MAX.div_ceil(share.threads as u32) },
            asking: 0,
            held: 0,
            refused: 0,
            pacer,
            figures: RoundFigures::default(),
            round_ns: 0,
            received: 0,
            churn: None,
            storm_ns: None,
            storm_away: 0,
            storm_behind: 0,
            outstanding: 0,
            recount: false,
            wheel: Wheel::new(0),
            due: Vec::new(),
            timeout_ns: nanoseconds(plan.timeout),
            drain_ns: nanoseconds(plan.drain),
            opened: false,
            opening_until_ns: u64::MAX,
            until_ns: u64::MAX,
            look_ns: 0,
            random,
            head: ResponseHead::new(),
            told: Vec::new(),
            spare: Vec::new(),
            plan: Arc::clone(plan),
            requests: Arc::clone(requests),
            shared: Arc::clone(shared),
            tally: Arc::clone(tally),
        }
    }

    /// Returns the outcome of the thread.
    pub(crate) fn into_part(self) -> AudienceOutcome {
        let channels = self.plan.channels.len();
        let share = self.share;
        let mut errors = self.errors;
        errors.merge(self.publishers.into_errors());
        AudienceOutcome {
            held: self.held,
            slow: self.receivers.iter().filter(|listener| listener.slow).count() as u32,
            accounts: self.receipts.into_accounts(|index| channel_of(share, index, channels)),
            ledger: self.ledger,
            course: self.course,
            answered: self.answered,
            returned: self.returned,
            errors,
            times: self.times,
            rounds: self.rounds,
            storm_left: (self.storm_away, self.storm_behind),
        }
    }

    fn channel(&self, index: u32) -> usize {
        channel_of(self.share, index as usize, self.plan.channels.len())
    }

    fn user_of_publishers(&self) -> u32 {
        self.receivers.len() as u32
    }

    // ---- connecting ----

    /// Dials the next subscribers, within the window and the ramp.
    fn dial_next(&mut self, at: TurnTime, out: &mut Outbox) {
        while self.asking < self.window && !self.away.is_empty() {
            if let Some(ramp) = &mut self.ramp
                && ramp.take(at.now_ns).is_none()
            {
                return;
            }
            if let Some(index) = self.away.pop_front() {
                self.dial(index, at, out);
            }
            if self.away.is_empty() {
                self.opening_until_ns = at.now_ns.saturating_add(self.timeout_ns);
            }
        }
    }

    fn dial(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let listener = &mut self.receivers[index as usize];
        (listener.state, listener.since_ns) = (ReceiverState::Dialing, at.now_ns);
        self.asking += 1;
        self.arm(index, at.now_ns.saturating_add(self.timeout_ns));
        out.dials.push_back(index);
    }

    fn connected(&mut self, index: u32, out: &mut Outbox) {
        let listener = &mut self.receivers[index as usize];
        listener.state = ReceiverState::Asking;
        self.tally.connected.increment();
        self.tally.connect.record((self.clock)().saturating_sub(listener.since_ns));
        out.put(listener.token, Op::Recv);
        self.send_request(index, out);
    }

    /// Requests the stream, or the next response of a poll.
    fn send_request(&mut self, index: u32, out: &mut Outbox) {
        let channel = self.channel(index);
        let listener = &mut self.receivers[index as usize];
        if listener.sending {
            listener.asks = true;
            return;
        }
        let begins = listener.state == ReceiverState::Asking;
        let position = listener.stream.position().filter(|_| self.requests.can_resume());
        if begins {
            listener.resumes = listener.joined && position.is_some();
        }
        let segment = match position {
            Some(position) => Segment::Bytes(self.requests.resumed(channel, &position, begins)),
            None => {
                let begin = self.requests.begin(channel).filter(|_| begins);
                Segment::Shared(Arc::clone(begin.unwrap_or_else(|| self.requests.fresh(channel))), 0)
            }
        };
        let mut segments = self.spare.pop().unwrap_or_default();
        segments.push(segment);
        (listener.sending, listener.asks) = (true, false);
        out.put(listener.token, Op::Send(Send { segments, more: false }));
    }

    fn sent(&mut self, index: u32, out: &mut Outbox) {
        let listener = &mut self.receivers[index as usize];
        listener.sending = false;
        if listener.asks {
            return self.send_request(index, out);
        }
        // If no poll is answered at once, a completed send counts as subscribed.
        let poll = self.plan.transport == Transport::Poll && self.requests.begin(0).is_none();
        if poll && listener.state == ReceiverState::Asking {
            let now_ns = (self.clock)();
            self.hold(index, now_ns, out);
        }
    }

    /// The server has responded: the subscriber is subscribed.
    fn hold(&mut self, index: u32, now_ns: u64, out: &mut Outbox) {
        let channel = self.channel(index);
        let listener = &mut self.receivers[index as usize];
        let answer_ns = now_ns.saturating_sub(listener.since_ns);
        if listener.joined { &self.tally.back } else { &self.tally.answer }.record(answer_ns);
        self.tally.answered.increment();
        self.asking -= 1;
        self.held += 1;
        let anew = !(listener.joined && listener.resumes);
        (listener.state, listener.joined, listener.failures) = (ReceiverState::Held, true, 0);
        if matches!(self.stage, AudienceStage::Opening | AudienceStage::Cycle(_) | AudienceStage::Paced(_)) {
            self.times.open_ns = now_ns;
        }
        if self.stage == AudienceStage::Opening {
            self.answered.note(now_ns.saturating_sub(self.times.opening_ns));
        }
        let (slow, behind) = (listener.slow, listener.behind);
        if slow {
            out.put(listener.token, Op::Pause);
        } else if anew {
            self.receipts.join(index as usize, channel, |lane| self.shared.sent(lane));
            self.recount = true;
        }
        if let Some(behind) = behind {
            // A subscriber that left again before it caught up has already reconnected after the storm.
            if behind == CUT {
                self.times.back_ns = now_ns;
                self.returned.note(now_ns.saturating_sub(self.times.storm_ns));
                self.storm_away -= 1;
                self.storm_behind += 1;
            }
            let owed = self.receipts.owed(index as usize, channel, |lane| self.shared.sent(lane));
            self.receivers[index as usize].behind = Some(u32::try_from(owed).unwrap_or(CUT).min(CUT - 1));
            self.catch_up(index, 0, now_ns);
        }
    }

    /// Counts receipts of a subscriber that was cut by the storm.
    fn catch_up(&mut self, index: u32, receipts: u32, now_ns: u64) {
        let listener = &mut self.receivers[index as usize];
        let Some(behind) = listener.behind.as_mut().filter(|_| listener.state == ReceiverState::Held) else {
            return;
        };
        *behind = behind.saturating_sub(receipts);
        if *behind == 0 {
            listener.behind = None;
            self.storm_behind -= 1;
            self.times.caught_up_ns = now_ns;
        }
    }

    /// Sets a timer for a subscriber, unless it has one: an earlier timer is set again when it fires.
    fn arm(&mut self, index: u32, at_ns: u64) {
        let listener = &mut self.receivers[index as usize];
        if !std::mem::replace(&mut listener.timed, true) {
            self.wheel.arm(index, at_ns);
        }
    }

    /// Handles a subscriber's timer.
    fn look(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let listener = &mut self.receivers[index as usize];
        listener.timed = false;
        let deadline_ns = match listener.state {
            ReceiverState::Resting => listener.since_ns,
            // The timeout of a dial starts when it leaves the queue.
            ReceiverState::Dialing if listener.is_in_line() => at.now_ns.saturating_add(self.timeout_ns),
            ReceiverState::Dialing | ReceiverState::Asking => {
                listener.since_ns.saturating_add(self.timeout_ns)
            }
            ReceiverState::Away | ReceiverState::Held | ReceiverState::Rested => return,
        };
        if deadline_ns > at.now_ns {
            return self.arm(index, deadline_ns);
        }
        match listener.state {
            ReceiverState::Resting => self.dial(index, at, out),
            ReceiverState::Dialing => self.unconnected(index, Cause::Timeout, at, out),
            _ => self.broken(index, RequestPhase::FirstByte, Cause::Timeout, at, out),
        }
    }

    // ---- ends of connections ----

    /// Ends a connection with operation `by`, if there is one. The subscriber is then `Away`.
    fn hang_up(&mut self, index: u32, by: Op, out: &mut Outbox) {
        let channel = self.channel(index);
        let listener = &mut self.receivers[index as usize];
        match listener.state {
            ReceiverState::Dialing | ReceiverState::Asking => self.asking -= 1,
            ReceiverState::Held | ReceiverState::Rested => self.held -= 1,
            ReceiverState::Away | ReceiverState::Resting => {}
        }
        if listener.token != Token::NONE {
            self.owners[listener.token.index as usize] = NOBODY;
            out.put(listener.token, by);
        }
        (listener.token, listener.state) = (Token::NONE, ReceiverState::Away);
        (listener.sending, listener.asks) = (false, false);
        listener.stream.reset();
        if listener.joined && !(self.requests.can_resume() && listener.stream.position().is_some()) {
            self.receipts.leave(index as usize, channel);
            self.recount = true;
        }
    }

    /// Reconnects after this time.
    fn rest(&mut self, index: u32, rest_ns: u64, at: TurnTime) {
        let listener = &mut self.receivers[index as usize];
        (listener.state, listener.since_ns) = (ReceiverState::Resting, at.now_ns.saturating_add(rest_ns));
        listener.timed = true;
        self.wheel.arm(index, listener.since_ns);
    }

    /// Reconnects after a back-off that doubles with each consecutive failure.
    fn back_off(&mut self, index: u32, at: TurnTime) {
        let listener = &mut self.receivers[index as usize];
        let rest_ns = REST_NS << listener.failures.min(REST_DOUBLINGS_MAX);
        listener.failures = listener.failures.saturating_add(1);
        self.rest(index, rest_ns, at);
    }

    fn unconnected(&mut self, index: u32, cause: Cause, at: TurnTime, out: &mut Outbox) {
        self.tally.unconnected.increment();
        self.broken(index, RequestPhase::Connect, cause, at, out);
    }

    /// Handles an error of a connection.
    fn broken(&mut self, index: u32, phase: RequestPhase, cause: Cause, at: TurnTime, out: &mut Outbox) {
        if matches!(self.receivers[index as usize].state, ReceiverState::Held | ReceiverState::Rested) {
            self.tally.closed.increment();
        }
        let since_ns = at.now_ns.saturating_sub(self.times.opening_ns);
        self.errors.add(phase, cause, since_ns, &[]);
        self.hang_up(index, Op::Close, out);
        self.back_off(index, at);
        self.dial_next(at, out);
    }

    /// Reconnects after the server's retry time, or after a back-off if it gave none.
    fn put_off(&mut self, index: u32, retry_ms: Option<u64>, at: TurnTime, out: &mut Outbox) {
        self.hang_up(index, Op::Close, out);
        match retry_ms {
            Some(ms) => self.rest(index, ms.saturating_mul(1_000_000), at),
            None => self.back_off(index, at),
        }
        self.dial_next(at, out);
    }

    /// Ends the connection, and reconnects at once.
    fn leave(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        self.tally.left.increment();
        self.hang_up(index, Op::Close, out);
        self.dial(index, at, out);
    }

    // ---- input ----

    fn received(&mut self, index: u32, lease: &mut [u8], at: TurnTime, out: &mut Outbox) {
        self.tally.received_bytes.add(lease.len() as u64);
        let now_ns = (self.clock)();
        let mut told = std::mem::take(&mut self.told);
        let listener = &mut self.receivers[index as usize];
        let read = listener.stream.feed(self.reading, &mut self.head, lease, &mut told);
        self.on_events(index, &mut told, now_ns, at, out);
        self.told = told;
        if let Err(wrong) = read {
            // An earlier event of the same bytes may have ended the connection.
            if self.receivers[index as usize].token != Token::NONE {
                let phase = match self.receivers[index as usize].state {
                    ReceiverState::Held => RequestPhase::Body,
                    _ => RequestPhase::FirstByte,
                };
                self.broken(index, phase, Cause::NotUnderstood(wrong), at, out);
                if wrong.is_final() && self.receivers[index as usize].state == ReceiverState::Resting {
                    self.receivers[index as usize].state = ReceiverState::Away;
                    self.refused += 1;
                }
            }
        }
    }

    fn on_events(
        &mut self,
        index: u32,
        told: &mut Vec<ReceiverEvent>,
        now_ns: u64,
        at: TurnTime,
        out: &mut Outbox,
    ) {
        for told in told.drain(..) {
            match told {
                ReceiverEvent::Answered => self.hold(index, now_ns, out),
                ReceiverEvent::Polled => {
                    let begins = self.receivers[index as usize].state == ReceiverState::Asking;
                    if begins {
                        self.hold(index, now_ns, out);
                    }
                    if begins || !matches!(self.stage, AudienceStage::Cycle(_) | AudienceStage::Paced(_)) {
                        self.send_request(index, out);
                    } else {
                        self.receivers[index as usize].state = ReceiverState::Rested;
                    }
                }
                ReceiverEvent::Message(mark) => {
                    if self.receivers[index as usize].state == ReceiverState::Asking {
                        // A poll that resumes may be answered with missed messages.
                        self.hold(index, now_ns, out);
                    }
                    self.take(index, mark, now_ns);
                }
                ReceiverEvent::Gap => self.tally.gaps.increment(),
                ReceiverEvent::Pong(bytes) => {
                    let listener = &mut self.receivers[index as usize];
                    // A pong that cannot be sent now is dropped: another ping will follow.
                    if !std::mem::replace(&mut listener.sending, true) {
                        let segments = vec![Segment::Bytes(bytes)];
                        out.put(listener.token, Op::Send(Send { segments, more: false }));
                    }
                }
                ReceiverEvent::Ended(retry_ms) => {
                    self.tally.closed.increment();
                    self.put_off(index, retry_ms, at, out);
                    break;
                }
                ReceiverEvent::TurnedAway(retry_ms) => {
                    self.tally.turned_away.increment();
                    self.put_off(index, retry_ms, at, out);
                    break;
                }
            }
        }
    }

    fn take(&mut self, index: u32, mark: super::mark::Mark, now_ns: u64) {
        let channel = self.channel(index);
        if self.receivers[index as usize].slow {
            return;
        }
        let fresh = match self.receipts.receive(index as usize, channel, mark) {
            Receipt::New { .. } => true,
            Receipt::Late => {
                self.tally.late.increment();
                true
            }
            Receipt::Repeated => {
                self.tally.repeated.increment();
                false
            }
            Receipt::Early | Receipt::Foreign => {
                self.tally.early.increment();
                false
            }
        };
        if fresh {
            self.times.last_ns = now_ns;
            self.received += 1;
            self.tally.received.increment();
            let took_ns = now_ns.saturating_sub(mark.sent_ns);
            self.tally.latency.record(took_ns);
            self.course.note(mark.sent_ns.saturating_sub(self.times.begun_ns), took_ns);
            if let Some(before) = self.ledger.note(mark, now_ns) {
                self.tally.first.record(took_ns);
                if before.received > 0 {
                    self.tally.last.record(before.last_ns.saturating_sub(before.sent_ns));
                }
            }
            self.outstanding = self.outstanding.saturating_sub(1);
            self.catch_up(index, 1, now_ns);
        }
    }

    /// Handles an orderly end of a connection by the server.
    fn ended(&mut self, index: u32, at: TurnTime, out: &mut Outbox) {
        let now_ns = (self.clock)();
        match self.receivers[index as usize].state {
            ReceiverState::Held | ReceiverState::Rested => {
                let mut told = std::mem::take(&mut self.told);
                self.receivers[index as usize].stream.ended(self.reading, &mut told);
                self.on_events(index, &mut told, now_ns, at, out);
                self.told = told;
            }
            _ => self.broken(index, RequestPhase::FirstByte, Cause::Ended, at, out),
        }
    }

    fn take_back(&mut self, mut segments: Vec<Segment>) {
        if segments.capacity() > 0 && self.spare.len() < SPARE_MAX {
            segments.clear();
            self.spare.push(segments);
        }
    }

    // ---- the run ----

    /// Does the work that is due in the current stage.
    fn advance(&mut self, at: TurnTime, out: &mut Outbox) {
        if at.now_ns >= self.until_ns {
            return self.close(out);
        }
        match self.stage {
            AudienceStage::Opening if self.is_port_closed() => {
                self.opened = true;
                self.close(out);
            }
            AudienceStage::Opening => {
                self.dial_next(at, out);
                let all = (self.held + self.refused) as usize == self.receivers.len();
                let whole = all && self.publishers.are_open();
                self.opened |= whole || at.now_ns >= self.opening_until_ns;
            }
            AudienceStage::Running => {
                self.look_ns = at.now_ns.saturating_add(LOOK_NS);
                self.disturb(at, out);
                if self.share.number == 0 {
                    if self.publishers.are_gone(at) {
                        self.publishers.stop();
                    }
                    if self.publishers.are_over() {
                        self.shared.end();
                    }
                }
                if self.shared.is_over() {
                    self.stage = AudienceStage::Draining(at.now_ns.saturating_add(self.drain_ns));
                    self.recount = true;
                    self.advance(at, out);
                }
            }
            AudienceStage::Draining(until_ns) => {
                if std::mem::take(&mut self.recount) {
                    self.outstanding = self.count_outstanding();
                }
                let back = self.storm_away == 0 && self.storm_behind == 0;
                if self.outstanding == 0 && back {
                    self.stage = AudienceStage::Settling(at.now_ns.saturating_add(SETTLE_NS));
                } else if at.now_ns >= until_ns {
                    self.close(out);
                }
            }
            AudienceStage::Settling(until_ns) => {
                if at.now_ns >= until_ns {
                    self.close(out);
                }
            }
            AudienceStage::Cycle(step) => self.cycle(step, at, out),
            AudienceStage::Paced(turn) => self.take_turn(turn, at, out),
            AudienceStage::Over => {}
        }
    }

    /// Whether no server listens: a connection was refused before any was established, so a retry would only delay the error.
    fn is_port_closed(&self) -> bool {
        let refused = Cause::Fault(OpError::Refused);
        self.tally.connected.value() == 0 && self.errors.iter().any(|error| error.cause == refused)
    }

    /// Starts churn and storm when they are due.
    fn disturb(&mut self, at: TurnTime, out: &mut Outbox) {
        while let Some(churn) = &mut self.churn
            && churn.take(at.now_ns).is_some()
        {
            let index = self.random.below(self.receivers.len().max(1) as u64) as u32;
            // Only a connected subscriber can leave.
            if self
                .receivers
                .get(index as usize)
                .is_some_and(|one| one.state == ReceiverState::Held && !one.slow)
            {
                self.leave(index, at, out);
            }
        }
        if self.storm_ns.is_some_and(|storm_ns| storm_ns <= at.now_ns) {
            self.storm_ns = None;
            self.times.storm_ns = at.now_ns;
            for index in 0..self.receivers.len() as u32 {
                let listener = &mut self.receivers[index as usize];
                if listener.state == ReceiverState::Held && !listener.slow {
                    listener.behind = Some(CUT);
                    self.storm_away += 1;
                    self.leave(index, at, out);
                }
            }
        }
    }

    /// The number of outstanding receipts, excluding refused messages.
    fn count_outstanding(&self) -> u64 {
        let owed: u64 = (0..self.receivers.len())
            .filter(|index| !self.receivers[*index].slow)
            .map(|index| {
                let channel = self.channel(index as u32);
                self.receipts.owed(index, channel, |lane| self.shared.sent(lane))
            })
            .sum();
        let refused = self.shared.refused();
        if refused.is_empty() {
            return owed;
        }
        // Refused messages are rare, and every subscriber of the channel counts each as outstanding.
        let each = (0..self.receivers.len()).filter(|index| !self.receivers[*index].slow).map(|index| {
            let channel = self.channel(index as u32);
            refused
                .iter()
                .filter(|(lane, number)| self.receipts.lacks(index, channel, *lane, *number))
                .count() as u64
        });
        owed.saturating_sub(each.sum())
    }

    fn cycle(&mut self, step: CycleStep, at: TurnTime, out: &mut Outbox) {
        let all = self.receivers.len() as u32;
        if self.shared.is_over() && !matches!(step, CycleStep::Telling(_)) {
            return self.close(out);
        }
        match step {
            CycleStep::Placing(until_ns) if at.now_ns >= until_ns => {
                if let Some(sent_ns) = self.publishers.publish(&mut self.clock, out) {
                    self.outstanding = u64::from(self.held);
                    self.stage =
                        AudienceStage::Cycle(CycleStep::Telling(sent_ns.saturating_add(self.timeout_ns)));
                }
            }
            CycleStep::Telling(until_ns) if self.outstanding == 0 || at.now_ns >= until_ns => {
                self.end_round(until_ns.saturating_sub(self.timeout_ns));
                self.cut_all(out);
                let done = self.plan.cycles.is_some_and(|cycles| self.rounds.len() >= cycles as usize);
                if done {
                    self.close(out);
                } else {
                    self.stage = AudienceStage::Cycle(CycleStep::Pausing(at.now_ns.saturating_add(PAUSE_NS)));
                }
            }
            CycleStep::Pausing(until_ns) if at.now_ns >= until_ns => {
                self.times.opening_ns = at.now_ns;
                self.away = (0..all).collect();
                self.stage =
                    AudienceStage::Cycle(CycleStep::Gathering(at.now_ns.saturating_add(self.timeout_ns)));
                self.dial_next(at, out);
            }
            CycleStep::Gathering(until_ns) => {
                self.dial_next(at, out);
                if self.held == all || at.now_ns >= until_ns {
                    self.place(at);
                }
            }
            CycleStep::Placing(_) | CycleStep::Telling(_) | CycleStep::Pausing(_) => {}
        }
    }

    /// All are connected. Streams are ready; polls still have to reach the server.
    fn place(&mut self, at: TurnTime) {
        self.stage = AudienceStage::Cycle(CycleStep::Placing(self.placed_ns(at)));
    }

    /// When all polls have reached the server.
    fn placed_ns(&self, at: TurnTime) -> u64 {
        let wait_ns = match self.plan.transport {
            Transport::Poll => PLACING_NS + PLACING_EACH_NS * u64::from(self.held),
            _ => 0,
        };
        at.now_ns.saturating_add(wait_ns)
    }

    /// Resets all connections, so that neither side keeps state. Subscribers reconnect as new ones.
    fn cut_all(&mut self, out: &mut Outbox) {
        for index in 0..self.receivers.len() as u32 {
            self.hang_up(index, Op::Abort, out);
            let channel = self.channel(index);
            self.receipts.leave(index as usize, channel);
            let listener = &mut self.receivers[index as usize];
            listener.stream.forget();
            listener.joined = false;
        }
    }

    // ---- paced rounds ----

    fn take_turn(&mut self, turn: RoundState, at: TurnTime, out: &mut Outbox) {
        let Some(paced) = self.plan.paced else { return };
        let all = self.receivers.len() as u32;
        let next = match turn {
            RoundState::Waiting { ready } => {
                if !self.pacer.as_mut().is_some_and(Pacer::take) {
                    return;
                }
                if ready { self.run_round(paced, at, out) } else { self.prepare_round(paced, at, out) }
            }
            RoundState::Preparing(until_ns) => {
                self.dial_next(at, out);
                let there = paced.begins_alone() || self.held == all;
                if !(there && self.publishers.are_open()) && at.now_ns < until_ns {
                    return;
                }
                let until_ns = if paced.begins_alone() { at.now_ns } else { self.placed_ns(at) };
                RoundState::Placing { until_ns, ready: false }
            }
            RoundState::Placing { until_ns, ready } => {
                if at.now_ns < until_ns {
                    return;
                }
                if ready {
                    self.say_one(out)
                } else {
                    self.say(super::PacedStep::Ready);
                    RoundState::Waiting { ready: true }
                }
            }
            RoundState::Connecting(until_ns) => {
                self.dial_next(at, out);
                if self.held < all && at.now_ns < until_ns {
                    return;
                }
                self.figures.connect_ns = (self.clock)().saturating_sub(self.round_ns);
                if paced == Paced::Cycle {
                    RoundState::Placing { until_ns: self.placed_ns(at), ready: true }
                } else {
                    self.end_figures()
                }
            }
            RoundState::Telling(until_ns) => {
                if (self.outstanding > 0 || !self.publishers.are_idle()) && at.now_ns < until_ns {
                    return;
                }
                let sent_ns = until_ns.saturating_sub(self.timeout_ns);
                let newest = self.ledger.records().find(|record| record.sent_ns >= sent_ns);
                if let Some(record) = newest {
                    self.figures.first_ns = record.first_ns.saturating_sub(record.sent_ns);
                    self.figures.first_to_last_ns = record.last_ns.saturating_sub(record.first_ns);
                }
                self.figures.lost = self.outstanding;
                self.end_figures()
            }
            RoundState::Publishing => {
                if !self.publishers.are_over() {
                    if self.figures.published_ns == 0 && self.publishers.are_said() {
                        self.end_publishing();
                    }
                    return;
                }
                if self.figures.published_ns == 0 {
                    self.end_publishing();
                }
                self.outstanding = self.count_outstanding();
                RoundState::Draining(at.now_ns.saturating_add(self.drain_ns))
            }
            RoundState::Draining(until_ns) => {
                if self.outstanding > 0 && at.now_ns < until_ns {
                    return;
                }
                self.figures.lost = self.outstanding;
                self.end_figures()
            }
        };
        self.stage = AudienceStage::Paced(next);
        // A state may end as soon as it begins.
        if next != turn {
            self.take_turn(next, at, out);
        }
    }

    /// Begins the preparation of a round.
    fn prepare_round(&mut self, paced: Paced, at: TurnTime, out: &mut Outbox) -> RoundState {
        self.publishers.open(self.user_of_publishers(), self.times.opening_ns, at, out);
        if paced.begins_alone() {
            self.cut_all(out);
            self.away.clear();
        } else {
            self.gather();
            for index in 0..self.receivers.len() as u32 {
                if self.receivers[index as usize].state == ReceiverState::Rested {
                    self.receivers[index as usize].state = ReceiverState::Held;
                    self.send_request(index, out);
                }
            }
        }
        RoundState::Preparing(at.now_ns.saturating_add(self.timeout_ns))
    }

    fn run_round(&mut self, paced: Paced, at: TurnTime, out: &mut Outbox) -> RoundState {
        self.figures = RoundFigures::default();
        self.round_ns = (self.clock)();
        match paced {
            Paced::Connect | Paced::Cycle | Paced::Storm => {
                self.cut_all(out);
                self.gather();
                RoundState::Connecting(at.now_ns.saturating_add(self.timeout_ns))
            }
            Paced::Fan => self.say_one(out),
            Paced::Sustained => {
                self.figures.in_time = self.received;
                self.publishers.begin(at);
                RoundState::Publishing
            }
        }
    }

    /// Queues all unconnected subscribers for dialing.
    fn gather(&mut self) {
        let away = |index: &u32| self.receivers[*index as usize].state == ReceiverState::Away;
        self.away = (0..self.receivers.len() as u32).filter(away).collect();
    }

    fn say_one(&mut self, out: &mut Outbox) -> RoundState {
        // If the message cannot be sent, all its receipts are lost.
        let sent_ns = self.publishers.publish(&mut self.clock, out).unwrap_or_else(|| (self.clock)());
        self.outstanding = u64::from(self.held);
        RoundState::Telling(sent_ns.saturating_add(self.timeout_ns))
    }

    /// Ends the publishing time of a round; responses may still be outstanding.
    fn end_publishing(&mut self) {
        self.figures.in_time = self.received - self.figures.in_time;
        self.figures.published_ns = (self.clock)().saturating_sub(self.round_ns);
    }

    fn end_figures(&mut self) -> RoundState {
        self.figures.held = self.held;
        self.say(super::PacedStep::Done(self.figures));
        RoundState::Waiting { ready: false }
    }

    fn say(&self, step: super::PacedStep) {
        if let Some(pacer) = &self.pacer {
            pacer.tell(step);
        }
    }

    /// Ends a round of a cycle whose message was sent at `sent_ns`.
    fn end_round(&mut self, sent_ns: u64) {
        let newest = self.ledger.records().find(|record| record.sent_ns >= sent_ns).copied();
        let newest = newest.unwrap_or_default();
        self.rounds.push(Round {
            connect_ns: self.times.open_ns.saturating_sub(self.times.opening_ns),
            first_ns: newest.first_ns.saturating_sub(newest.sent_ns),
            spread_ns: newest.last_ns.saturating_sub(newest.first_ns),
            held: self.held,
            received: newest.received,
        });
    }

    fn owner(&self, token: Token) -> Option<u32> {
        let owner = *self.owners.get(token.index as usize)?;
        (owner != NOBODY).then_some(owner)
    }
}

impl Crowd for Audience {
    /// Independent of the limit on concurrent connects ([`DIALS_MAX`]). A connect time includes the dials made after it.
    const DIALS_AT_ONCE: usize = 64;

    fn open(&mut self, at: TurnTime, out: &mut Outbox) {
        self.wheel = Wheel::new(at.now_ns);
        (self.times.opening_ns, self.times.open_ns) = (at.now_ns, at.now_ns);
        if self.plan.paced.is_some() {
            self.opened = true;
            return;
        }
        if self.receivers.is_empty() {
            self.opening_until_ns = at.now_ns.saturating_add(self.timeout_ns);
        }
        self.ramp = self.plan.connect_rate.as_ref().map(|rate| {
            let pace = Pace::Open(rate.clone(), Arrivals::Even);
            Tickets::of(Stop::Told, &pace, WarmUp::None, self.plan.seed, self.share, at.now_ns)
        });
        self.publishers.open(self.user_of_publishers(), self.times.opening_ns, at, out);
        self.dial_next(at, out);
    }

    fn is_open(&self) -> bool {
        self.opened
    }

    fn begin(&mut self, at: TurnTime, out: &mut Outbox) {
        self.times.begun_ns = at.now_ns;
        self.times.last_ns = at.now_ns;
        if self.is_over() {
            return;
        }
        // The ramp does not delay the remaining subscribers any longer.
        self.ramp = None;
        if self.plan.paced.is_some() {
            self.stage = AudienceStage::Paced(RoundState::Waiting { ready: false });
            // A step may have been allowed before this thread could be woken.
            return self.on_time(at, out);
        }
        if self.plan.cycles.is_some() {
            self.place(at);
            return;
        }
        self.stage = AudienceStage::Running;
        let plan = Arc::clone(&self.plan);
        if let Stop::After(time) = plan.stop {
            let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.storm_ns = plan.storm.then(|| at.now_ns.saturating_add(time_ns / 2));
            let longest_ns = time_ns.saturating_add(self.timeout_ns).saturating_add(self.drain_ns);
            self.until_ns = at.now_ns.saturating_add(longest_ns);
        }
        let leaving = Rate::constant(plan.churn * self.receivers.len() as f64);
        self.churn = leaving.map(|rate| {
            let alone = PlanShare { number: 0, threads: 1 };
            let pace = Pace::Open(rate, Arrivals::Even);
            Tickets::of(Stop::Told, &pace, WarmUp::None, plan.seed, alone, at.now_ns)
        });
        if self.share.number == 0 {
            self.publishers.begin(at);
        }
        self.on_time(at, out);
    }

    fn is_queued(&self, user: u32) -> bool {
        match self.publisher(user) {
            Some(publisher) => self.publishers.is_in_line(publisher),
            None => self.receivers[user as usize].is_in_line(),
        }
    }

    fn dialed(&mut self, user: u32, token: Result<Token, OpError>, at: TurnTime, out: &mut Outbox) {
        if let Ok(token) = token {
            let place = token.index as usize;
            if self.owners.len() <= place {
                self.owners.resize(place + 1, NOBODY);
            }
            self.owners[place] = user;
        }
        match self.publisher(user) {
            Some(publisher) => self.publishers.dialed(publisher, token, at, out),
            None => match token {
                Ok(token) => {
                    // Many dial at once; each is timed from its own attempt.
                    let listener = &mut self.receivers[user as usize];
                    (listener.token, listener.since_ns) = (token, at.now_ns);
                }
                Err(fault) => self.unconnected(user, fault.into(), at, out),
            },
        }
    }

    fn on_event(&mut self, event: Event<'_>, at: TurnTime, out: &mut Outbox) {
        match event {
            Event::Received { token, lease } => {
                let Some(user) = self.owner(token) else { return };
                match self.publisher(user) {
                    Some(publisher) => self.publishers.received(publisher, lease, at, out),
                    None => self.received(user, lease, at, out),
                }
            }
            Event::Sent { token, bytes, segments } => {
                self.tally.sent_bytes.add(bytes);
                self.take_back(segments);
                let Some(user) = self.owner(token) else { return };
                if self.publisher(user).is_none() {
                    self.sent(user, out);
                }
            }
            Event::Connected { token } => {
                let Some(user) = self.owner(token) else { return };
                match self.publisher(user) {
                    Some(publisher) => self.publishers.connected(publisher, at, out),
                    None => self.connected(user, out),
                }
            }
            Event::PeerClosed { token, .. } => {
                let Some(user) = self.owner(token) else { return };
                match self.publisher(user) {
                    Some(publisher) => self.publishers.ended(publisher, at, out),
                    None => self.ended(user, at, out),
                }
            }
            Event::Failed { token, op, fault, sent, segments } => {
                self.tally.sent_bytes.add(sent);
                self.take_back(segments);
                let Some(user) = self.owner(token) else { return };
                match self.publisher(user) {
                    Some(publisher) => self.publishers.failed(publisher, op, fault, at, out),
                    None => match self.receivers[user as usize].state {
                        ReceiverState::Dialing => self.unconnected(user, fault.into(), at, out),
                        _ if op == OpKind::Send => {
                            self.broken(user, RequestPhase::Write, fault.into(), at, out);
                        }
                        ReceiverState::Held | ReceiverState::Rested => {
                            self.broken(user, RequestPhase::Body, fault.into(), at, out);
                        }
                        _ => self.broken(user, RequestPhase::FirstByte, fault.into(), at, out),
                    },
                }
            }
            Event::Closed { segments, .. } => self.take_back(segments),
            Event::Woken | Event::Accepted { .. } | Event::Watched { .. } | Event::Offloaded { .. } => {}
        }
    }

    fn on_time(&mut self, at: TurnTime, out: &mut Outbox) {
        if self.stage == AudienceStage::Over {
            return;
        }
        self.wheel.expire(at.now_ns, &mut self.due);
        while let Some(index) = self.due.pop() {
            self.look(index, at, out);
        }
        self.publishers.on_time(self.receivers.len() as u32, at, &mut self.clock, out);
        self.advance(at, out);
    }

    fn next_ns(&self) -> Option<u64> {
        let stage_ns = match self.stage {
            AudienceStage::Opening => (self.opening_until_ns < u64::MAX).then_some(self.opening_until_ns),
            AudienceStage::Running if self.share.number > 0 => Some(self.look_ns),
            AudienceStage::Running
            | AudienceStage::Over
            | AudienceStage::Paced(RoundState::Waiting { .. } | RoundState::Publishing) => None,
            AudienceStage::Paced(
                RoundState::Preparing(until_ns)
                | RoundState::Placing { until_ns, .. }
                | RoundState::Connecting(until_ns)
                | RoundState::Telling(until_ns)
                | RoundState::Draining(until_ns),
            ) => Some(until_ns),
            AudienceStage::Draining(until_ns) | AudienceStage::Settling(until_ns) => Some(until_ns),
            AudienceStage::Cycle(
                CycleStep::Placing(until_ns)
                | CycleStep::Telling(until_ns)
                | CycleStep::Pausing(until_ns)
                | CycleStep::Gathering(until_ns),
            ) => Some(until_ns),
        };
        let ramp_ns = self.ramp.as_ref().filter(|_| !self.away.is_empty()).and_then(Tickets::next_ns);
        let churn_ns = self.churn.as_ref().and_then(Tickets::next_ns);
        let until_ns = (self.until_ns < u64::MAX).then_some(self.until_ns);
        let others = [stage_ns, ramp_ns, churn_ns, self.storm_ns, until_ns, self.publishers.next_ns()];
        others.into_iter().chain([self.wheel.next_ns()]).flatten().min()
    }

    fn stop(&mut self, at: TurnTime) {
        self.publishers.stop();
        self.storm_ns = None;
        if matches!(self.stage, AudienceStage::Cycle(_)) {
            self.shared.end();
        }
        if matches!(self.stage, AudienceStage::Paced(_)) {
            self.until_ns = at.now_ns;
        }
        let longest_ns = self.timeout_ns.saturating_add(self.drain_ns);
        self.until_ns = self.until_ns.min(at.now_ns.saturating_add(longest_ns));
    }

    fn is_over(&self) -> bool {
        self.stage == AudienceStage::Over
    }

    fn close(&mut self, out: &mut Outbox) {
        self.publishers.close(out);
        if self.share.number == 0 {
            self.shared.end();
        }
        for listener in &mut self.receivers {
            if listener.token != Token::NONE {
                out.put(listener.token, Op::Close);
            }
            (listener.token, listener.state) = (Token::NONE, ReceiverState::Away);
        }
        self.owners.fill(NOBODY);
        self.stage = AudienceStage::Over;
    }
}

impl Sealable for Audience {
    /// A TLS connection counts as connected after its handshake, so its connect time includes the handshake.
    fn shaken(&mut self, token: Token, shaken: HandshakeOutcome, at: TurnTime, out: &mut Outbox) {
        self.tally.handshakes.increment();
        if shaken.resumed {
            self.tally.resumed.increment();
        }
        self.tally.handshake.record(shaken.took_ns);
        self.on_event(Event::Connected { token }, at, out);
    }

    fn spoken(&mut self, bytes: u64) {
        self.tally.sent_bytes.add(bytes);
    }

    fn untrusted(&mut self, token: Token, cause: Cause, at: TurnTime, out: &mut Outbox) {
        let Some(user) = self.owner(token) else { return };
        match self.publisher(user) {
            Some(publisher) => self.publishers.untrusted(publisher, cause, at, out),
            None if self.receivers[user as usize].state == ReceiverState::Dialing => {
                self.tally.unconnected.increment();
                self.broken(user, RequestPhase::Tls, cause, at, out);
            }
            None => self.broken(user, RequestPhase::Body, cause, at, out),
        }
    }
}

impl Audience {
    /// The number of a publisher; `None` if the user is a subscriber.
    fn publisher(&self, user: u32) -> Option<u16> {
        // There are at most 65,535 of them, so the cast holds.
        user.checked_sub(self.receivers.len() as u32).map(|index| index as u16)
    }
}

impl PushReceiver {
    fn new(slow: bool) -> Self {
        Self {
            token: Token::NONE,
            state: ReceiverState::Away,
            slow,
            joined: false,
            resumes: false,
            sending: false,
            asks: false,
            timed: false,
            failures: 0,
            behind: None,
            since_ns: 0,
            stream: ReceiverStream::default(),
        }
    }

    /// Whether its dial is queued.
    fn is_in_line(&self) -> bool {
        self.state == ReceiverState::Dialing && self.token == Token::NONE
    }
}

/// The outcome of a thread.
pub(crate) struct AudienceOutcome {
    pub(crate) held: u32,
    pub(crate) slow: u32,
    pub(crate) accounts: Vec<LaneAccount>,
    pub(crate) ledger: Ledger,
    pub(crate) course: Course,
    pub(crate) answered: Curve,
    pub(crate) returned: Curve,
    pub(crate) errors: Errors,
    pub(crate) times: AudienceTimes,
    pub(crate) rounds: Vec<Round>,
    /// Subscribers that did not reconnect after the storm, and subscribers that did not catch up.
    pub(crate) storm_left: (u32, u32),
}

/// First random stream used by audiences.
const AUDIENCES: u64 = 3 << 32;

/// The channel of a thread's subscriber. Over all threads, subscribers are assigned to channels in rotation.
fn channel_of(share: PlanShare, index: usize, channels: usize) -> usize {
    (share.number + index * share.threads) % channels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_takes_what_its_comment_says() {
        assert_eq!(size_of::<PushReceiver>(), 120);
    }
}
