//! A stand-in for a guard's worker.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::{Job, Now, PlainReactor, Reactor};

use super::lend;
use crate::exchange::ExchangeKey;
use crate::guard::{Guard, GuardCall, GuardHold, GuardMount, GuardOutcome};
use crate::handler::{HandlerContext, HandlerRequests, JobId};
use crate::inbox::{Inbox, WorkerMessage};
use crate::log::NotesMode;
use crate::metrics::WorkerMetrics;
use crate::request::{Origin, Request};
use crate::resident::WorkerSetup;
use crate::verdict::GuardVerdict;

/// Lends requests to a guard, runs its jobs on request, and collects its later verdicts. Time is a value.
pub struct GuardStage {
    guard: Box<dyn Guard>,
    tray: Rc<HandlerRequests>,
    link: Arc<Inbox>,
    now: Now,
    jobs: VecDeque<Job>,
    jobs_run: usize,
    checks: u32,
    _reactor: PlainReactor,
}

impl GuardStage {
    /// Opens a guard at `now`.
    ///
    /// # Panics
    /// The system provides no thread or descriptor.
    pub fn open(now: Now, mount: &dyn GuardMount) -> Self {
        let reactor = PlainReactor::new(Pool::start(1, 1).expect("a thread")).expect("a reactor");
        let link = Inbox::new(reactor.waker());
        let tray = Rc::new(HandlerRequests::new(
            Arc::<WorkerMetrics>::default(),
            Arc::clone(&link),
            NotesMode::default(),
        ));
        tray.set_now(now);
        let context = HandlerContext::new(0, Rc::clone(&tray));
        let guard = WorkerSetup::alone(now, |worker| mount.open(context, worker));
        Self { guard, tray, link, now, jobs: VecDeque::new(), jobs_run: 0, checks: 0, _reactor: reactor }
    }

    /// Advances the time.
    pub fn pass(&mut self, time: Duration) {
        self.now.mono_ns += time.as_nanos() as u64;
        self.now.unix_ns += time.as_nanos() as u64;
        self.tray.set_now(self.now);
    }

    /// Calls the guard with a request.
    ///
    /// # Errors
    /// The guard holds the request: its key.
    ///
    /// # Panics
    /// `bytes` are not exactly one head.
    pub fn check(&mut self, bytes: &[u8], origin: &Origin) -> Result<GuardVerdict, ExchangeKey> {
        self.check_as(None, bytes, origin)
    }

    /// Calls the guard with a request of a user that an earlier guard has identified.
    ///
    /// # Errors
    /// The guard holds the request: its key.
    ///
    /// # Panics
    /// `bytes` are not exactly one head.
    pub fn check_as(
        &mut self,
        user: Option<&str>,
        bytes: &[u8],
        origin: &Origin,
    ) -> Result<GuardVerdict, ExchangeKey> {
        self.check_after(Duration::ZERO, user, bytes, origin)
    }

    /// Calls the guard with a request that arrived some time ago: an earlier guard has held it.
    ///
    /// # Errors
    /// The guard holds the request: its key.
    ///
    /// # Panics
    /// `bytes` are not exactly one head.
    pub fn check_after(
        &mut self,
        held: Duration,
        user: Option<&str>,
        bytes: &[u8],
        origin: &Origin,
    ) -> Result<GuardVerdict, ExchangeKey> {
        let mut arrived = self.now;
        arrived.mono_ns = arrived.mono_ns.saturating_sub(held.as_nanos() as u64);
        self.checks += 1;
        let key = ExchangeKey { slot: self.checks, generation: 0, stream: 0 };
        let call = GuardCall { link: &self.link, key };
        let guard = &mut self.guard;
        let user: Option<Arc<str>> = user.map(Arc::from);
        let check = |request: &Request<'_>| guard.check(&Request { user: user.as_ref(), ..*request }, call);
        match lend(bytes, origin, arrived, check) {
            GuardOutcome::Pass(passage) => Ok(GuardVerdict::Pass(passage)),
            GuardOutcome::Refuse(reply) => Ok(GuardVerdict::Refuse(reply)),
            GuardOutcome::Later(GuardHold(key)) => Err(key),
        }
    }

    /// Whether the guard lets a request pass without a record ([`Guard::passes`]).
    ///
    /// # Panics
    /// `bytes` are not exactly one head.
    pub fn passes(&mut self, bytes: &[u8], origin: &Origin) -> bool {
        let guard = &mut self.guard;
        lend(bytes, origin, self.now, |request| guard.passes(request))
    }

    /// Reports that the client of a held request has disconnected.
    pub fn gone(&mut self, key: ExchangeKey) {
        self.guard.gone(key);
    }

    /// Returns the number of jobs that have not run.
    pub fn jobs_waiting(&mut self) -> usize {
        self.jobs.extend(self.tray.take_jobs());
        self.jobs.len()
    }

    /// Number of jobs that have run.
    pub fn jobs_run(&self) -> usize {
        self.jobs_run
    }

    /// Runs the first job. Returns whether there was one.
    pub fn run_job(&mut self) -> bool {
        self.jobs.extend(self.tray.take_jobs());
        let Some(job) = self.jobs.pop_front() else { return false };
        self.jobs_run += 1;
        let done = (job.run)();
        self.guard.offloaded(JobId(job.key), Some(done));
        true
    }

    /// Runs all jobs, and all jobs that these create.
    pub fn run_jobs(&mut self) {
        while self.run_job() {}
    }

    /// Reports all jobs to the guard as refused.
    pub fn refuse_jobs(&mut self) {
        while self.jobs_waiting() > 0 {
            for job in std::mem::take(&mut self.jobs) {
                self.guard.offloaded(JobId(job.key), None);
            }
        }
    }

    /// Returns later verdicts by the key of their request, in order; `None` for a dropped ticket.
    ///
    /// # Panics
    /// The guard has sent another message.
    pub fn verdicts(&mut self) -> Vec<(ExchangeKey, Option<GuardVerdict>)> {
        let mut messages = Vec::new();
        self.link.take(usize::MAX, &mut messages);
        let verdicts = messages.into_iter().map(|message| match message {
            WorkerMessage::Verdict(key, verdict) => (key, verdict.map(|verdict| *verdict)),
            _ => panic!("only verdicts"),
        });
        verdicts.collect()
    }

    /// Number of refusals that the guard has counted for a rule.
    pub fn refusals(&self, rule: &str) -> u64 {
        self.tray.refusals(rule)
    }
}
