//! A push run: starting it, following it, and its outcome.
//!
//! Receipts are accounted for after the run, since a thread does not know what others publish or which messages are refused.
//! Until then each thread keeps the progress of its subscribers.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke_io::Backend;
use encke_io::clock::Clock;
use encke_io::host::{self, ProcessUsage, TcpCounters};
use encke_io::lock;
use encke_stats::Distribution;

use super::audience::{Audience, AudienceOutcome, AudienceTimes, Round};
use super::course::{self, Column, Course, Curve};
use super::dialect::PushRunRequests;
use super::paced::{self, PacedStep, Pacer, Pacing};
use super::plan::PushRunPlan;
use super::receipts::{LaneAccount, Ledger};
use super::tally::{PushTally, PushTotals, RunShared};
use crate::dial::{self, Sockets};
use crate::message::MessageError;
use crate::plan::PlanShare;
use crate::run::{Halt, RunError, ThreadShare};
use crate::sealed::Sealed;
use crate::tally::Errors;
use crate::threads::{Script, Threads};

/// Handle of a running plan.
pub struct PushRun {
    script: Arc<PushScript>,
    threads: Threads<AudienceOutcome>,
    pacing: Pacing,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct PushRunOutcome {
    /// When the threads were started, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// All counters and histograms.
    pub totals: PushTotals,
    /// All errors, by kind.
    pub errors: Errors,
    /// Expected and lost receipts.
    pub reach: Reach,
    /// How messages spread.
    pub messages: Messages,
    /// Subscribers at the end.
    pub held: u32,
    /// Subscribers at the end that do not read.
    pub slow: u32,
    /// Time from the first connect(2) until the last subscriber was subscribed.
    pub opening: Duration,
    /// Time from the begin of publishing to the last receipt.
    pub elapsed: Duration,
    /// The run over time, by the send time of messages.
    pub columns: Vec<Column>,
    /// Subscribers over time: ns since the first connect(2), and how many were subscribed.
    pub opened: Vec<(u64, u64)>,
    /// How subscribers reconnected after a storm.
    pub storm: Option<Storm>,
    /// Reconnects over time: ns since the cut, and how many were subscribed again.
    pub returned: Vec<(u64, u64)>,
    /// The rounds of a cycle.
    pub rounds: Vec<Round>,
    /// Processor share of each thread while messages were published.
    pub threads: Vec<ThreadShare>,
    /// TCP counters of this machine during the run, other programs included.
    pub tcp: Option<TcpCounters>,
    /// The generator's memory, before and with all subscribers.
    pub own: Option<Memory>,
    /// The server's memory, if it was watched, and its processor time while messages were published.
    pub server: Option<(Memory, Duration)>,
    /// The server's address space, if it was watched: VSZ in ps(1).
    pub server_mapped: Option<Memory>,
}

/// Expected and lost receipts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reach {
    /// Expected receipts: each accepted message counts once for each subscriber that was subscribed, or that resumed its
    /// subscription later.
    pub expected: u64,
    /// Expected receipts that are missing.
    pub lost: u64,
}

/// How messages spread, with one value per message that has receipts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Messages {
    /// Time from the publisher's send to the first receipt.
    pub first: Distribution,
    /// Time from the first receipt to the last.
    pub spread: Distribution,
    /// Time from the publisher's send to the last receipt.
    pub last: Distribution,
}

/// How subscribers reconnected after a storm; `None` if they did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storm {
    /// Time from the cut until the last subscriber was subscribed again.
    pub back: Option<Duration>,
    /// Time from the cut until the last subscriber had received all missed messages.
    pub caught_up: Option<Duration>,
}

/// Memory before the first connection, and with all subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is what its name says")]
pub struct Memory {
    pub before_bytes: u64,
    pub held_bytes: u64,
}

/// Interval between checks whether the run has ended.
const LOOK: Duration = Duration::from_secs(1);

impl Reach {
    /// Receipts as a share of those expected; `None` if none were expected.
    pub fn share(self) -> Option<f64> {
        (self.expected > 0).then(|| (self.expected - self.lost) as f64 / self.expected as f64)
    }
}

impl Memory {
    /// Bytes per subscriber, for `count` subscribers.
    pub fn each(self, count: u32) -> f64 {
        self.held_bytes.saturating_sub(self.before_bytes) as f64 / f64::from(count.max(1))
    }
}

impl PushRun {
    /// Starts the threads.
    ///
    /// # Errors
    /// The back end, descriptors or threads that the plan needs are unavailable, or a header field is invalid.
    pub fn start(plan: PushRunPlan) -> Result<Self, RunError> {
        let (pacer, pacing) = paced::pair();
        let script = PushScript::new(plan.placed(), pacer).map_err(RunError::Request)?;
        let script = Arc::new(script);
        let threads = Threads::start(&script)?;
        Ok(Self { script, threads, pacing })
    }

    /// Paced rounds: prepares the next round or runs it, and waits for the report. `None`: the run has ended.
    pub fn step(&mut self) -> Option<PacedStep> {
        self.pacing.allow();
        self.threads.halter().wake();
        loop {
            match self.pacing.wait(LOOK) {
                Ok(step) => return Some(step),
                // The run may have ended before the audience took its side of the channel.
                Err(RecvTimeoutError::Timeout) if !self.threads.wait(Duration::ZERO) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for at most this long; returns whether the run is over.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        self.threads.wait(at_most)
    }

    /// Handle that ends the run from another thread: publishing stops, and open requests may finish.
    pub fn halter(&self) -> Halt {
        self.threads.halter().clone()
    }

    /// The time on the monotonic clock, and the totals so far.
    pub fn totals(&mut self) -> (u64, PushTotals) {
        (self.threads.now_ns(), self.script.totals())
    }

    /// The outcome of the run. Call it once [`PushRun::wait`] has returned true.
    ///
    /// # Errors
    /// The first error that kept a thread from finishing.
    pub fn outcome(self) -> Result<PushRunOutcome, RunError> {
        let after = self.script.plan.watch.and_then(host::process_usage);
        let whole = self.threads.whole()?;
        let mut outcome = self.script.outcome(whole.parts);
        outcome.began_unix_ns = whole.began_unix_ns;
        outcome.threads = whole.shares;
        outcome.tcp = whole.tcp;
        let samples = lock(&self.script.samples);
        let Samples { before, held } = samples.clone();
        drop(samples);
        let memory = |before: u64, held: u64| Memory { before_bytes: before, held_bytes: held };
        outcome.own = before.own.zip(held.own).map(|(before, held)| memory(before, held));
        let server = before.server.zip(held.server);
        outcome.server_mapped =
            server.as_ref().map(|(before, held)| memory(before.mapped_bytes, held.mapped_bytes));
        outcome.server = server.zip(after).map(|((before, held), after)| {
            let used = Duration::from_nanos(after.cpu_ns.saturating_sub(held.cpu_ns));
            (memory(before.resident_bytes, held.resident_bytes), used)
        });
        Ok(outcome)
    }
}

/// The script of crowds that subscribe.
struct PushScript {
    plan: Arc<PushRunPlan>,
    requests: Arc<PushRunRequests>,
    shared: Arc<RunShared>,
    /// One per thread.
    tallies: Vec<Arc<PushTally>>,
    /// Present until the first thread takes it.
    pacer: Mutex<Option<Pacer>>,
    samples: Mutex<Samples>,
}

#[derive(Clone, Debug, Default)]
struct Samples {
    before: UsageSample,
    held: UsageSample,
}

#[derive(Clone, Debug, Default)]
struct UsageSample {
    own: Option<u64>,
    server: Option<ProcessUsage>,
}

impl UsageSample {
    fn now(plan: &PushRunPlan) -> Self {
        Self { own: host::resident_bytes(), server: plan.watch.and_then(host::process_usage) }
    }
}

impl PushScript {
    fn new(plan: PushRunPlan, pacer: Pacer) -> Result<Self, MessageError> {
        let requests = PushRunRequests::new(&plan.dialect, plan.transport, &plan.authority, &plan.channels)?;
        let samples = Samples { before: UsageSample::now(&plan), held: UsageSample::default() };
        Ok(Self {
            requests: Arc::new(requests),
            shared: Arc::new(RunShared::new(plan.lanes())),
            tallies: (0..plan.threads).map(|_| Arc::new(PushTally::default())).collect(),
            pacer: Mutex::new(Some(pacer)),
            samples: Mutex::new(samples),
            plan: Arc::new(plan),
        })
    }

    fn totals(&self) -> PushTotals {
        PushTotals::of(self.tallies.iter().map(|tally| &**tally))
    }

    fn outcome(&self, parts: Vec<AudienceOutcome>) -> PushRunOutcome {
        outcome_of(&self.plan, &self.shared, self.totals(), parts)
    }
}

impl Script for PushScript {
    type Crowd = Sealed<Audience>;
    type Part = AudienceOutcome;

    fn sockets(&self, share: PlanShare) -> Sockets {
        dial::sockets(self.plan.server.clone(), self.plan.sources.clone(), share)
    }

    fn backend(&self) -> Backend {
        self.plan.backend
    }

    fn threads(&self) -> u16 {
        self.plan.threads
    }

    fn connections(&self) -> u64 {
        self.plan.connections()
    }

    fn crowd(&self, share: PlanShare) -> Sealed<Audience> {
        let mut clock = Clock::new();
        let clock = Box::new(move || clock.now().mono_ns);
        let tally = &self.tallies[share.number];
        let mut pacer = lock(&self.pacer);
        let pacer = pacer.take_if(|_| share.number == 0);
        let audience = Audience::new(&self.plan, &self.requests, share, &self.shared, tally, pacer, clock);
        Sealed::new(audience, self.plan.tls.clone())
    }

    fn prepared(&self) {
        let mut samples = lock(&self.samples);
        samples.held = UsageSample::now(&self.plan);
    }

    fn part(crowd: Sealed<Audience>) -> AudienceOutcome {
        crowd.into_inner().into_part()
    }
}

/// Combines the outcomes of all threads. The caller adds the figures of the operating system.
pub(super) fn outcome_of(
    plan: &PushRunPlan,
    shared: &RunShared,
    totals: PushTotals,
    parts: Vec<AudienceOutcome>,
) -> PushRunOutcome {
    let refused = shared.refused();
    let mut reach = Reach::default();
    let mut ledger = Ledger::new(plan.lanes());
    let mut errors = Errors::default();
    let mut times = AudienceTimes { opening_ns: u64::MAX, begun_ns: u64::MAX, ..AudienceTimes::default() };
    let (mut course, mut opened, mut returned) = (Course::default(), Curve::default(), Curve::default());
    let (mut held, mut slow, mut rounds) = (0, 0, Vec::new());
    let (mut away, mut behind) = (0, 0);
    for part in parts {
        for account in &part.accounts {
            add(&mut reach, account, shared.sent(account.lane.into()), &refused);
        }
        ledger.merge(part.ledger);
        course.merge(part.course);
        opened.merge(part.answered);
        returned.merge(part.returned);
        errors.merge(part.errors);
        times.opening_ns = times.opening_ns.min(part.times.opening_ns);
        times.begun_ns = times.begun_ns.min(part.times.begun_ns);
        times.open_ns = times.open_ns.max(part.times.open_ns);
        times.last_ns = times.last_ns.max(part.times.last_ns);
        times.storm_ns = times.storm_ns.max(part.times.storm_ns);
        times.back_ns = times.back_ns.max(part.times.back_ns);
        times.caught_up_ns = times.caught_up_ns.max(part.times.caught_up_ns);
        (held, slow) = (held + part.held, slow + part.slow);
        (away, behind) = (away + part.storm_left.0, behind + part.storm_left.1);
        rounds.extend(part.rounds);
    }
    let mut messages = Messages::default();
    for record in ledger.records() {
        messages.first.record(record.first_ns.saturating_sub(record.sent_ns));
        messages.spread.record(record.last_ns.saturating_sub(record.first_ns));
        messages.last.record(record.last_ns.saturating_sub(record.sent_ns));
    }
    let between = |from_ns: u64, to_ns: u64| Duration::from_nanos(to_ns.saturating_sub(from_ns));
    let storm = (times.storm_ns > 0).then(|| Storm {
        back: (away == 0).then(|| between(times.storm_ns, times.back_ns)),
        caught_up: (away == 0 && behind == 0).then(|| between(times.storm_ns, times.caught_up_ns)),
    });
    PushRunOutcome {
        began_unix_ns: 0,
        totals,
        errors,
        reach,
        messages,
        columns: course::columns(&course, ledger.records(), times.begun_ns),
        opened: opened.points(),
        returned: returned.points(),
        held,
        slow,
        opening: between(times.opening_ns, times.open_ns),
        elapsed: between(times.begun_ns, times.last_ns),
        storm,
        rounds,
        threads: Vec::new(),
        tcp: None,
        own: None,
        server: None,
        server_mapped: None,
    }
}

/// Adds the expected and lost receipts of one subscriber in one lane. `sent` messages were sent in the lane.
fn add(reach: &mut Reach, account: &LaneAccount, sent: u32, refused: &[(u16, u32)]) {
    let lane = account.lane;
    // The number of messages in a range that the server accepted.
    let taken = |from: u32, to: u32| {
        let first = refused.partition_point(|one| *one < (lane, from));
        let last = refused.partition_point(|one| *one < (lane, to));
        u64::from(to.saturating_sub(from)) - last.saturating_sub(first) as u64
    };
    let until = account.until.unwrap_or(sent);
    reach.expected += taken(account.from, until.max(account.from));
    reach.lost += taken(account.next, until.max(account.next));
    reach.lost += account.missing.iter().map(|range| taken(range.start, range.end)).sum::<u64>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_refused_is_neither_due_nor_lost() {
        let refused = [(0, 3), (1, 4), (1, 7), (1, 9), (2, 4)];
        let account = |until, missing: &[(u32, u32)]| LaneAccount {
            lane: 1,
            from: 2,
            next: 8,
            until,
            missing: missing.iter().map(|(start, end)| *start..*end).collect(),
        };
        let reach = |account: LaneAccount| {
            let mut reach = Reach::default();
            add(&mut reach, &account, 12, &refused);
            (reach.expected, reach.lost)
        };
        assert_eq!(reach(account(None, &[])), (10 - 3, 4 - 1), "2 to 11 but 4, 7, 9; lost 8, 10, 11");
        assert_eq!(reach(account(Some(8), &[])), (6 - 2, 0));
        assert_eq!(reach(account(Some(8), &[(3, 5)])), (6 - 2, 1), "of 3 and 4 the server took 3");
    }
}
