//! The rules for one process of an application and its successors. No clock, no process: times and events come in, and steps go
//! out, for the supervisor.
//!
//! ```text
//!  Waiting ── back-off over ─► Starting ── responds ─► Ready ── replaced ─► Draining ── unused ─► Stopping ─► ended
//!     ▲                          │ start_time: killed    │                      └─ drain_time ──────▲  └─ stop_time: killed
//!     └────── ended, killed ─────┴───────────────────────┘
//! ```
//! A *run* has one socket for all the processes that are started for it one after the other: while a process that has ended is
//! started again, clients wait at the socket. A replacement is a new run with a new socket, so that Encke knows which process a
//! connection is for: the old process is stopped when it has none.

/// The number of a run, unique for its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RunId(pub(crate) u64);

/// The times of an application, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotTimes {
    pub(crate) start_ns: u64,
    pub(crate) drain_ns: u64,
    pub(crate) stop_ns: u64,
}

/// What the supervisor is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Start a process for a run, and report [`AppSlot::started`] or [`AppSlot::ended`].
    Start(RunId),
    /// Test whether it responds, and report [`AppSlot::checked`].
    Check(RunId),
    /// Send requests to this run from now on.
    Direct(RunId),
    /// Send no requests: the run has failed several times.
    Withdraw(RunId),
    /// Report [`AppSlot::unused`] if no connection uses the run any more.
    Look(RunId),
    /// Send the signal to stop.
    Stop(RunId),
    /// Kill.
    Kill(RunId),
    /// Drop everything of the run: its process has ended.
    Forget(RunId),
    /// Start the next process of this run by the newest settings.
    Renew(RunId),
    /// Tell the operator.
    Tell(RunId, Notice),
}

/// A message for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The process responds.
    Ready,
    /// The process of a replacement responds.
    Replaced,
    /// The process has ended, and is started again after this time in ns.
    Again(u64),
    /// The process does not respond in time, and is killed.
    Late,
    /// A replacement has failed, and the old process stays.
    KeptOld,
    /// The process did not end in time, and is killed.
    Killed,
    /// The process was killed, and has not ended: it is given up.
    Stuck,
}

/// The state of a run's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunPhase {
    /// The process is started at this time.
    Waiting { until_ns: u64 },
    /// The process has started. `check_ns`: the time of the next check; `None` while one is under way.
    Starting { since_ns: u64, check_ns: Option<u64> },
    /// The process responds.
    Ready { since_ns: u64 },
    /// Requests go to another run.
    Draining { until_ns: u64, look_ns: u64 },
    /// The process has got its stop signal.
    Stopping { until_ns: u64 },
    /// The process was killed.
    Killed { until_ns: u64 },
}

struct AppRun {
    id: RunId,
    phase: RunPhase,
    times: SlotTimes,
    /// Ends in a row.
    failures: u32,
    /// Whether no requests are sent, because of the failures.
    withdrawn: bool,
}

/// A process of an application, and its successors.
pub(crate) struct AppSlot {
    /// The run for requests.
    current: Option<AppRun>,
    /// The run that replaces it.
    next: Option<AppRun>,
    /// Runs that end.
    leaving: Vec<AppRun>,
    last_id: u64,
    /// No run is started any more.
    is_ending: bool,
}

/// The time to the first start after a failure, and at most, in ns.
const BACK_OFF_NS: u64 = 100_000_000;
const BACK_OFF_NS_MAX: u64 = 10_000_000_000;
/// A process that was ready for this time has not failed, whenever it ends, in ns.
const SOUND_NS: u64 = 10_000_000_000;
/// Failures in a row after which no requests are sent.
const FAILURES_MAX: u32 = 3;
/// The time from the kill of a process until it is given up, in ns.
const KILLED_NS: u64 = 5_000_000_000;
/// The times between two checks, and between two looks at the connections of an old run, in ns.
const CHECK_NS: u64 = 50_000_000;
const LOOK_NS: u64 = 50_000_000;

impl AppRun {
    const fn new(id: RunId, times: SlotTimes, now_ns: u64) -> Self {
        Self { id, phase: RunPhase::Waiting { until_ns: now_ns }, times, failures: 0, withdrawn: false }
    }

    /// The time at which something is due.
    fn due_ns(&self) -> u64 {
        match self.phase {
            RunPhase::Waiting { until_ns }
            | RunPhase::Stopping { until_ns }
            | RunPhase::Killed { until_ns } => until_ns,
            RunPhase::Starting { since_ns, check_ns } => {
                let end_ns = since_ns.saturating_add(self.times.start_ns);
                check_ns.map_or(end_ns, |check_ns| check_ns.min(end_ns))
            }
            RunPhase::Draining { until_ns, look_ns } => look_ns.min(until_ns),
            RunPhase::Ready { .. } => u64::MAX,
        }
    }

    fn stop(&mut self, now_ns: u64, steps: &mut Vec<Step>) {
        self.phase = RunPhase::Stopping { until_ns: now_ns.saturating_add(self.times.stop_ns) };
        steps.push(Step::Stop(self.id));
    }

    /// Performs what is due.
    fn turn(&mut self, now_ns: u64, steps: &mut Vec<Step>) {
        match &mut self.phase {
            RunPhase::Waiting { until_ns } if *until_ns <= now_ns => {
                self.phase = RunPhase::Starting { since_ns: now_ns, check_ns: None };
                steps.push(Step::Start(self.id));
            }
            RunPhase::Starting { since_ns, .. } if since_ns.saturating_add(self.times.start_ns) <= now_ns => {
                self.phase = RunPhase::Killed { until_ns: now_ns.saturating_add(KILLED_NS) };
                steps.extend([Step::Tell(self.id, Notice::Late), Step::Kill(self.id)]);
            }
            RunPhase::Starting { check_ns, .. } if check_ns.is_some_and(|check_ns| check_ns <= now_ns) => {
                *check_ns = None;
                steps.push(Step::Check(self.id));
            }
            RunPhase::Draining { until_ns, .. } if *until_ns <= now_ns => self.stop(now_ns, steps),
            RunPhase::Draining { look_ns, .. } if *look_ns <= now_ns => {
                *look_ns = now_ns + LOOK_NS;
                steps.push(Step::Look(self.id));
            }
            RunPhase::Stopping { until_ns } if *until_ns <= now_ns => {
                self.phase = RunPhase::Killed { until_ns: now_ns.saturating_add(KILLED_NS) };
                steps.extend([Step::Tell(self.id, Notice::Killed), Step::Kill(self.id)]);
            }
            _ => {}
        }
    }

    /// The process has ended, and is to be started again.
    fn ended(&mut self, now_ns: u64, steps: &mut Vec<Step>) {
        if let RunPhase::Ready { since_ns } = self.phase
            && now_ns.saturating_sub(since_ns) >= SOUND_NS
        {
            self.failures = 0;
        }
        // Seven doublings exceed the maximum.
        let wait_ns = (BACK_OFF_NS << self.failures.min(7)).min(BACK_OFF_NS_MAX);
        self.failures += 1;
        self.phase = RunPhase::Waiting { until_ns: now_ns.saturating_add(wait_ns) };
        steps.push(Step::Tell(self.id, Notice::Again(wait_ns)));
        if self.failures >= FAILURES_MAX && !self.withdrawn {
            self.withdrawn = true;
            steps.push(Step::Withdraw(self.id));
        }
    }
}

impl AppSlot {
    pub(crate) fn new(times: SlotTimes, now_ns: u64) -> Self {
        let current = AppRun::new(RunId(1), times, now_ns);
        Self { current: Some(current), next: None, leaving: Vec::new(), last_id: 1, is_ending: false }
    }

    fn runs(&self) -> impl Iterator<Item = &AppRun> {
        self.current.iter().chain(&self.next).chain(&self.leaving)
    }

    fn run(&mut self, id: RunId) -> Option<&mut AppRun> {
        let mut runs = self.current.iter_mut().chain(&mut self.next).chain(&mut self.leaving);
        runs.find(|run| run.id == id)
    }

    /// The time at which [`AppSlot::turn`] has something to do, in ns; `u64::MAX` if there is nothing.
    pub(crate) fn due_ns(&self) -> u64 {
        self.runs().map(AppRun::due_ns).min().unwrap_or(u64::MAX)
    }

    /// The phase of a run.
    pub(crate) fn phase(&self, id: RunId) -> Option<RunPhase> {
        self.runs().find(|run| run.id == id).map(|run| run.phase)
    }

    /// Whether requests may wait for the process of a run: it is the one for requests, and has not failed several times.
    pub(crate) fn may_wait_at(&self, id: RunId) -> bool {
        self.current.as_ref().is_some_and(|run| run.id == id && !run.withdrawn)
    }

    /// The run for requests.
    pub(crate) fn current(&self) -> Option<RunId> {
        self.current.as_ref().map(|run| run.id)
    }

    /// Whether no run is started any more.
    pub(crate) const fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Starts a new run after [`AppSlot::end`], beside those that still end.
    pub(crate) fn begin_again(&mut self, times: SlotTimes, now_ns: u64, steps: &mut Vec<Step>) {
        self.is_ending = false;
        self.replace(times, now_ns, steps);
    }

    /// Whether all runs have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.runs().next().is_none()
    }

    /// Performs what is due.
    pub(crate) fn turn(&mut self, now_ns: u64, steps: &mut Vec<Step>) {
        let runs = self.current.iter_mut().chain(&mut self.next).chain(&mut self.leaving);
        runs.for_each(|run| run.turn(now_ns, steps));
        let is_stuck =
            |run: &&AppRun| matches!(run.phase, RunPhase::Killed { until_ns } if until_ns <= now_ns);
        let stuck: Vec<RunId> = self.runs().filter(is_stuck).map(|run| run.id).collect();
        for id in stuck {
            steps.push(Step::Tell(id, Notice::Stuck));
            self.ended(id, now_ns, steps);
        }
    }

    /// The process of a run has started.
    pub(crate) fn started(&mut self, id: RunId, now_ns: u64) {
        if let Some(run) = self.run(id)
            && let RunPhase::Starting { check_ns, .. } = &mut run.phase
        {
            *check_ns = Some(now_ns + CHECK_NS);
        }
    }

    /// A check has ended.
    pub(crate) fn checked(&mut self, id: RunId, responds: bool, now_ns: u64, steps: &mut Vec<Step>) {
        let Some(run) = self.run(id) else { return };
        let RunPhase::Starting { check_ns, .. } = &mut run.phase else { return };
        if !responds {
            *check_ns = Some(now_ns + CHECK_NS);
            return;
        }
        run.phase = RunPhase::Ready { since_ns: now_ns };
        run.withdrawn = false;
        if let Some(place) = self.leaving.iter().position(|run| run.id == id) {
            // It serves the requests that have waited for it, and no others.
            let run = self.leaving.remove(place);
            return self.leave(Some(run), true, now_ns, steps);
        }
        steps.push(Step::Direct(id));
        let replaces = self.next.as_ref().is_some_and(|next| next.id == id);
        steps.push(Step::Tell(id, if replaces { Notice::Replaced } else { Notice::Ready }));
        if replaces {
            let mut old = std::mem::replace(&mut self.current, self.next.take());
            if let Some(run) = &mut old
                && matches!(run.phase, RunPhase::Starting { .. })
            {
                // Requests may have come before its check.
                run.phase = RunPhase::Ready { since_ns: now_ns };
            }
            self.leave(old, true, now_ns, steps);
        }
    }

    /// Lets a run end: with `serves`, after the requests that it has, or that wait for it.
    fn leave(&mut self, run: Option<AppRun>, serves: bool, now_ns: u64, steps: &mut Vec<Step>) {
        let Some(mut run) = run else { return };
        match run.phase {
            // Requests may wait at its socket: it gets one more process.
            RunPhase::Waiting { .. } if serves && run.failures > 0 && !run.withdrawn => {}
            RunPhase::Waiting { .. } => return steps.push(Step::Forget(run.id)),
            RunPhase::Ready { .. } if serves => {
                let until_ns = now_ns.saturating_add(run.times.drain_ns);
                run.phase = RunPhase::Draining { until_ns, look_ns: now_ns };
            }
            RunPhase::Ready { .. } | RunPhase::Starting { .. } => run.stop(now_ns, steps),
            RunPhase::Draining { .. } | RunPhase::Stopping { .. } | RunPhase::Killed { .. } => {}
        }
        self.leaving.push(run);
    }

    /// No connection uses a run any more.
    pub(crate) fn unused(&mut self, id: RunId, now_ns: u64, steps: &mut Vec<Step>) {
        if let Some(run) = self.run(id)
            && matches!(run.phase, RunPhase::Draining { .. })
        {
            run.stop(now_ns, steps);
        }
    }

    /// The process of a run has ended, or could not be started.
    pub(crate) fn ended(&mut self, id: RunId, now_ns: u64, steps: &mut Vec<Step>) {
        if let Some(place) = self.leaving.iter().position(|run| run.id == id) {
            self.leaving.remove(place);
            return steps.push(Step::Forget(id));
        }
        if self.next.as_ref().is_some_and(|next| next.id == id) {
            self.next = None;
            steps.extend([Step::Tell(id, Notice::KeptOld), Step::Forget(id)]);
            return;
        }
        if let Some(run) = self.current.as_mut().filter(|run| run.id == id) {
            run.ended(now_ns, steps);
        }
    }

    /// Replaces the current run. If another replacement is under way, that one ends.
    pub(crate) fn replace(&mut self, times: SlotTimes, now_ns: u64, steps: &mut Vec<Step>) {
        if self.is_ending {
            return;
        }
        let unfinished = self.next.take();
        self.leave(unfinished, false, now_ns, steps);
        match &mut self.current {
            // There is no process to keep. The next one serves the requests that wait at the socket.
            Some(run) if matches!(run.phase, RunPhase::Waiting { .. } | RunPhase::Killed { .. }) => {
                (run.times, run.failures, run.withdrawn) = (times, 0, false);
                if let RunPhase::Waiting { until_ns } = &mut run.phase {
                    *until_ns = now_ns;
                }
                steps.push(Step::Renew(run.id));
            }
            current => {
                self.last_id += 1;
                let new = AppRun::new(RunId(self.last_id), times, now_ns);
                let place = if current.is_some() { &mut self.next } else { current };
                *place = Some(new);
            }
        }
    }

    /// The newest run.
    pub(crate) fn newest(&self) -> Option<RunId> {
        self.next.as_ref().or(self.current.as_ref()).map(|run| run.id)
    }

    /// Ends all runs: with `drains`, after the requests of the current one.
    pub(crate) fn end(&mut self, drains: bool, now_ns: u64, steps: &mut Vec<Step>) {
        self.is_ending = true;
        let (current, next) = (self.current.take(), self.next.take());
        self.leave(next, false, now_ns, steps);
        self.leave(current, drains, now_ns, steps);
        if !drains {
            let (mut stopping, waiting) =
                (Vec::new(), |run: &AppRun| matches!(run.phase, RunPhase::Waiting { .. }));
            for mut run in std::mem::take(&mut self.leaving) {
                match run.phase {
                    _ if waiting(&run) => {
                        steps.push(Step::Forget(run.id));
                        continue;
                    }
                    RunPhase::Draining { .. } | RunPhase::Starting { .. } => run.stop(now_ns, steps),
                    _ => {}
                }
                stopping.push(run);
            }
            self.leaving = stopping;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TIMES: SlotTimes = SlotTimes { start_ns: 5 * SECOND, drain_ns: 3 * SECOND, stop_ns: 2 * SECOND };

    /// The steps of a call, without those for the operator.
    fn steps(call: impl FnOnce(&mut Vec<Step>)) -> Vec<Step> {
        let mut steps = Vec::new();
        call(&mut steps);
        steps.retain(|step| !matches!(step, Step::Tell(..)));
        steps
    }

    /// A slot whose run is ready at 1 s.
    fn ready() -> AppSlot {
        let mut slot = AppSlot::new(TIMES, 0);
        let one = RunId(1);
        assert_eq!(steps(|steps| slot.turn(0, steps)), [Step::Start(one)]);
        slot.started(one, 0);
        assert_eq!(steps(|steps| slot.turn(CHECK_NS, steps)), [Step::Check(one)]);
        assert_eq!(steps(|steps| slot.checked(one, true, SECOND, steps)), [Step::Direct(one)]);
        slot
    }

    #[test]
    fn a_process_gets_requests_when_it_responds() {
        let mut slot = AppSlot::new(TIMES, 7);
        let one = RunId(1);
        assert_eq!(slot.due_ns(), 7);
        assert_eq!(steps(|steps| slot.turn(7, steps)), [Step::Start(one)]);
        slot.started(one, 7);
        for at in 1..4 {
            assert_eq!(slot.due_ns(), 7 + at * CHECK_NS);
            assert_eq!(steps(|steps| slot.turn(7 + at * CHECK_NS, steps)), [Step::Check(one)]);
            assert_eq!(steps(|steps| slot.turn(7 + at * CHECK_NS, steps)), [], "one check at a time");
            assert_eq!(steps(|steps| slot.checked(one, false, 7 + at * CHECK_NS, steps)), []);
        }
        assert_eq!(steps(|steps| slot.checked(one, true, SECOND, steps)), [Step::Direct(one)]);
        assert_eq!(slot.due_ns(), u64::MAX);
    }

    #[test]
    fn a_process_that_is_not_ready_in_time_is_killed_and_started_again() {
        let mut slot = AppSlot::new(TIMES, 0);
        let one = RunId(1);
        slot.turn(0, &mut Vec::new());
        slot.started(one, 0);
        assert_eq!(steps(|steps| slot.turn(5 * SECOND, steps)), [Step::Kill(one)]);
        assert_eq!(slot.due_ns(), 5 * SECOND + KILLED_NS, "the end of the process comes next");
        assert_eq!(steps(|steps| slot.ended(one, 5 * SECOND, steps)), []);
        assert_eq!(steps(|steps| slot.turn(5 * SECOND + BACK_OFF_NS, steps)), [Step::Start(one)]);
    }

    #[test]
    fn a_crash_loop_backs_off_up_to_ten_seconds_and_gets_no_requests() {
        let mut slot = ready();
        let one = RunId(1);
        let mut now_ns = SECOND;
        let mut waits = Vec::new();
        for failure in 1..10 {
            let expected: &[Step] = if failure == FAILURES_MAX { &[Step::Withdraw(one)] } else { &[] };
            assert_eq!(steps(|steps| slot.ended(one, now_ns, steps)), expected);
            waits.push((slot.due_ns() - now_ns) / 1_000_000);
            now_ns = slot.due_ns();
            assert_eq!(steps(|steps| slot.turn(now_ns, steps)), [Step::Start(one)]);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        slot.started(one, now_ns);
        slot.turn(now_ns + CHECK_NS, &mut Vec::new());
        assert_eq!(steps(|steps| slot.checked(one, true, now_ns, steps)), [Step::Direct(one)]);
        now_ns += SOUND_NS;
        slot.ended(one, now_ns, &mut Vec::new());
        assert_eq!(slot.due_ns() - now_ns, BACK_OFF_NS, "it had recovered");
    }

    #[test]
    fn a_replacement_takes_over_when_it_responds_and_the_old_process_ends_when_it_is_unused() {
        let mut slot = ready();
        let (one, two) = (RunId(1), RunId(2));
        assert_eq!(steps(|steps| slot.replace(TIMES, 2 * SECOND, steps)), []);
        assert_eq!(steps(|steps| slot.turn(2 * SECOND, steps)), [Step::Start(two)]);
        slot.started(two, 2 * SECOND);
        assert_eq!(steps(|steps| slot.turn(3 * SECOND, steps)), [Step::Check(two)]);
        assert_eq!(slot.current(), Some(one));
        assert_eq!(steps(|steps| slot.checked(two, true, 3 * SECOND, steps)), [Step::Direct(two)]);
        assert_eq!(slot.current(), Some(two));
        assert_eq!(steps(|steps| slot.turn(3 * SECOND, steps)), [Step::Look(one)]);
        assert_eq!(steps(|steps| slot.turn(3 * SECOND + LOOK_NS, steps)), [Step::Look(one)]);
        assert_eq!(steps(|steps| slot.unused(one, 4 * SECOND, steps)), [Step::Stop(one)]);
        assert_eq!(steps(|steps| slot.ended(one, 5 * SECOND, steps)), [Step::Forget(one)]);
        assert_eq!(slot.due_ns(), u64::MAX);
    }

    #[test]
    fn connections_that_stay_and_processes_that_do_not_end_have_a_limit() {
        let mut slot = ready();
        let (one, two) = (RunId(1), RunId(2));
        slot.replace(TIMES, 2 * SECOND, &mut Vec::new());
        slot.turn(2 * SECOND, &mut Vec::new());
        slot.started(two, 2 * SECOND);
        slot.turn(3 * SECOND, &mut Vec::new());
        slot.checked(two, true, 3 * SECOND, &mut Vec::new());
        assert_eq!(steps(|steps| slot.turn(6 * SECOND, steps)), [Step::Stop(one)], "after drain_time");
        assert_eq!(steps(|steps| slot.turn(8 * SECOND, steps)), [Step::Kill(one)], "after stop_time");
        assert_eq!(steps(|steps| slot.ended(one, 8 * SECOND, steps)), [Step::Forget(one)]);
    }

    #[test]
    fn a_replacement_that_fails_leaves_the_old_process_in_place() {
        for is_late in [false, true] {
            let mut slot = ready();
            let (one, two) = (RunId(1), RunId(2));
            slot.replace(TIMES, 2 * SECOND, &mut Vec::new());
            slot.turn(2 * SECOND, &mut Vec::new());
            slot.started(two, 2 * SECOND);
            if is_late {
                assert_eq!(steps(|steps| slot.turn(7 * SECOND, steps)), [Step::Kill(two)]);
            }
            assert_eq!(steps(|steps| slot.ended(two, 7 * SECOND, steps)), [Step::Forget(two)]);
            assert_eq!(slot.current(), Some(one));
            assert_eq!(slot.phase(one), Some(RunPhase::Ready { since_ns: SECOND }));
            assert_eq!(slot.due_ns(), u64::MAX, "it is not tried again");
        }
    }

    #[test]
    fn a_process_that_starts_keeps_its_requests_when_it_is_replaced() {
        let mut slot = AppSlot::new(TIMES, 0);
        let (one, two) = (RunId(1), RunId(2));
        slot.turn(0, &mut Vec::new());
        slot.started(one, 0);
        assert_eq!(steps(|steps| slot.replace(TIMES, 1, steps)), []);
        assert_eq!(steps(|steps| slot.turn(1, steps)), [Step::Start(two)]);
        slot.started(two, 1);
        slot.turn(SECOND, &mut Vec::new());
        assert_eq!(steps(|steps| slot.checked(two, true, SECOND, steps)), [Step::Direct(two)]);
        assert_eq!(steps(|steps| slot.checked(one, true, SECOND, steps)), [], "it gets no further requests");
        assert_eq!(steps(|steps| slot.turn(SECOND, steps)), [Step::Look(one)]);
    }

    #[test]
    fn a_second_replacement_ends_the_first() {
        let mut slot = ready();
        let (two, three) = (RunId(2), RunId(3));
        slot.replace(TIMES, 2 * SECOND, &mut Vec::new());
        slot.turn(2 * SECOND, &mut Vec::new());
        slot.started(two, 2 * SECOND);
        assert_eq!(steps(|steps| slot.replace(TIMES, 3 * SECOND, steps)), [Step::Stop(two)]);
        assert_eq!(steps(|steps| slot.turn(3 * SECOND, steps)), [Step::Start(three)]);
        slot.checked(two, true, 3 * SECOND, &mut Vec::new());
        assert_eq!(slot.current(), Some(RunId(1)), "a run that ends takes no requests");
        assert_eq!(steps(|steps| slot.ended(two, 4 * SECOND, steps)), [Step::Forget(two)]);
    }

    #[test]
    fn a_replacement_of_a_process_in_a_crash_loop_starts_at_once_at_the_same_socket() {
        let mut slot = ready();
        let one = RunId(1);
        for _ in 0..FAILURES_MAX {
            slot.ended(one, 2 * SECOND, &mut Vec::new());
        }
        assert!(!slot.may_wait_at(one));
        assert_eq!(steps(|steps| slot.replace(TIMES, 2 * SECOND, steps)), [Step::Renew(one)]);
        assert_eq!(steps(|steps| slot.turn(2 * SECOND, steps)), [Step::Start(one)]);
        assert!(slot.may_wait_at(one), "requests wait for the new program");
    }

    #[test]
    fn requests_that_wait_for_a_process_that_has_ended_are_served_before_it_leaves() {
        let mut slot = ready();
        let (one, two) = (RunId(1), RunId(2));
        slot.replace(TIMES, 2 * SECOND, &mut Vec::new());
        slot.turn(2 * SECOND, &mut Vec::new());
        slot.started(two, 2 * SECOND);
        slot.ended(one, 2 * SECOND, &mut Vec::new());
        slot.turn(2 * SECOND + CHECK_NS, &mut Vec::new());
        assert_eq!(
            steps(|steps| slot.checked(two, true, 2 * SECOND + CHECK_NS, steps)),
            [Step::Direct(two)],
            "the socket of the first run stays"
        );
        assert_eq!(steps(|steps| slot.turn(2 * SECOND + BACK_OFF_NS, steps)), [Step::Start(one)]);
        slot.started(one, 3 * SECOND);
        slot.turn(4 * SECOND, &mut Vec::new());
        assert_eq!(steps(|steps| slot.checked(one, true, 4 * SECOND, steps)), [], "no further requests");
        assert_eq!(steps(|steps| slot.turn(4 * SECOND, steps)), [Step::Look(one)]);
        assert_eq!(steps(|steps| slot.unused(one, 4 * SECOND, steps)), [Step::Stop(one)]);
    }

    #[test]
    fn a_process_that_cannot_be_killed_is_given_up() {
        let mut slot = ready();
        let one = RunId(1);
        slot.end(false, 2 * SECOND, &mut Vec::new());
        assert_eq!(steps(|steps| slot.turn(4 * SECOND, steps)), [Step::Kill(one)]);
        assert!(!slot.is_over());
        assert_eq!(steps(|steps| slot.turn(4 * SECOND + KILLED_NS, steps)), [Step::Forget(one)]);
        assert!(slot.is_over());
    }

    #[test]
    fn an_end_stops_every_run_and_starts_none() {
        let mut slot = ready();
        let (one, two) = (RunId(1), RunId(2));
        slot.replace(TIMES, 2 * SECOND, &mut Vec::new());
        slot.turn(2 * SECOND, &mut Vec::new());
        slot.started(two, 2 * SECOND);
        let mut found = steps(|steps| slot.end(false, 3 * SECOND, steps));
        found.sort_by_key(|step| format!("{step:?}"));
        assert_eq!(found, [Step::Stop(one), Step::Stop(two)]);
        assert!(!slot.is_over());
        slot.replace(TIMES, 3 * SECOND, &mut Vec::new());
        for id in [one, two] {
            assert_eq!(steps(|steps| slot.ended(id, 4 * SECOND, steps)), [Step::Forget(id)]);
        }
        assert!(slot.is_over());
        let mut drained = ready();
        assert_eq!(steps(|steps| drained.end(true, 3 * SECOND, steps)), []);
        assert_eq!(steps(|steps| drained.turn(3 * SECOND, steps)), [Step::Look(one)]);
    }
}
