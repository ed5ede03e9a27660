//! Tools for tests of features: a worker's interface for one handler or guard without a worker, whole servers in the simulator, and
//! digests of their clients' observations.
//!
//! The feature `testing` adds this module. No program enables it.

mod fleet;
mod guard_stage;
mod net;
#[cfg(test)]
mod relays;
pub mod traces;

pub use fleet::{Fleet, FleetCounts, Stepped};
pub use guard_stage::GuardStage;
pub use net::{SimMounts, SimNet, SimPeer, SimResponse};

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::{Now, Peer, PlainReactor, Reactor};
use encke_wire::http1::{Head, Progress};
use encke_wire::limits::HeadLimits;

use crate::exchange::{Exchange, ExchangeKey};
use crate::handler::{Handler, HandlerContext, HandlerRequests, JobId, Outcome};
use crate::inbox::{Inbox, WorkerMessage};
use crate::log::NotesMode;
use crate::reply::{Prepared, Reply};
use crate::request::{Asker, Origin, Request};
use crate::resident::WorkerSetup;

/// Parses the head of a request, and lends it as a handler sees it.
///
/// # Panics
/// `bytes` are not exactly one head.
pub fn lend<T>(bytes: &[u8], origin: &Origin, now: Now, look: impl FnOnce(&Request<'_>) -> T) -> T {
    let mut head = Head::new();
    let progress = head.feed(bytes, &HeadLimits::default());
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(progress, Progress::Done { head_bytes: bytes.len() }, "{text}");
    look(&Request { head: &head, bytes, asker: Asker::Known(origin), now, user: None, passed: None })
}

/// Returns the prepared response of a reply, if it consists of one.
pub fn prepared(reply: &Reply) -> Option<&Arc<Prepared>> {
    reply.prepared.as_ref()
}

/// A stand-in for a handler's worker. It lends requests, runs jobs of the thread pool on request, and collects later
/// responses. Time is a value.
pub struct Stage {
    handler: Box<dyn Handler>,
    tray: Rc<HandlerRequests>,
    link: Arc<Inbox>,
    now: Now,
    jobs: usize,
    _reactor: PlainReactor,
}

impl Stage {
    /// Opens a handler at `now`.
    ///
    /// # Panics
    /// The system provides no thread or descriptor.
    pub fn open(
        now: Now,
        open: impl FnOnce(HandlerContext, &mut WorkerSetup<'_>) -> Box<dyn Handler>,
    ) -> Self {
        let reactor = PlainReactor::new(Pool::start(1, 1).expect("a thread")).expect("a reactor");
        let link = Inbox::new(reactor.waker());
        let tray = Rc::new(HandlerRequests::new(Arc::default(), Arc::clone(&link), NotesMode::default()));
        tray.set_now(now);
        let handler = Self::handler_of(&tray, now, open);
        Self { handler, tray, link, now, jobs: 0, _reactor: reactor }
    }

    fn handler_of(
        tray: &Rc<HandlerRequests>,
        now: Now,
        open: impl FnOnce(HandlerContext, &mut WorkerSetup<'_>) -> Box<dyn Handler>,
    ) -> Box<dyn Handler> {
        WorkerSetup::alone(now, |worker| open(HandlerContext::new(0, Rc::clone(tray)), worker))
    }

    /// Replaces the handler, as a reload does.
    pub fn reopen(&mut self, open: impl FnOnce(HandlerContext, &mut WorkerSetup<'_>) -> Box<dyn Handler>) {
        self.handler = Self::handler_of(&self.tray, self.now, open);
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut dyn Handler {
        &mut *self.handler
    }

    /// The present time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Advances the time.
    pub fn pass(&mut self, time: Duration) {
        self.now.mono_ns += time.as_nanos() as u64;
        self.now.unix_ns += time.as_nanos() as u64;
        self.tray.set_now(self.now);
    }

    /// Takes the descriptors that the handler wants to watch. Returns their number.
    pub fn take_watches(&mut self) -> usize {
        self.tray.take_watches().len()
    }

    /// Number of jobs that have run.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Calls the handler with a request, whose exchange is at `slot`. Returns `None` if the response comes later.
    ///
    /// # Panics
    /// `bytes` are not exactly one head, or the handler has dropped the exchange or taken it over.
    pub fn call(&mut self, bytes: &[u8], slot: u32) -> Option<Reply> {
        let origin = Origin {
            peer: Peer::Local,
            client: None,
            forwards: false,
            hidden: false,
            secure: false,
            tls: None,
            local: true,
        };
        let key = ExchangeKey { slot, generation: 0, stream: 0 };
        let exchange = Exchange::new(Arc::clone(&self.link), key);
        self.link.call.enter(key.word());
        let handler = &mut self.handler;
        let outcome = lend(bytes, &origin, self.now, |request| handler.call(request, exchange));
        let dropped = self.link.call.leave();
        match outcome {
            Outcome::Now(reply) => Some(reply),
            Outcome::Later => {
                assert!(!dropped, "an exchange that was kept was dropped");
                None
            }
            Outcome::Takeover(_) => panic!("this place has no residents"),
        }
    }

    /// Runs the handler's jobs, and the jobs that result from them.
    pub fn run_jobs(&mut self) {
        loop {
            let jobs = self.tray.take_jobs();
            if jobs.is_empty() {
                return;
            }
            for job in jobs {
                self.jobs += 1;
                let done = (job.run)();
                self.handler.offloaded(JobId(job.key), Some(done));
            }
        }
    }

    /// Drops jobs that have not run, as a full pool does before it reports this.
    pub fn lose_jobs(&mut self) {
        self.tray.take_jobs();
    }

    /// Reports all jobs to the handler as refused.
    pub fn refuse_jobs(&mut self) {
        for job in self.tray.take_jobs() {
            self.handler.offloaded(JobId(job.key), None);
        }
    }

    /// Returns later responses, by the slot of their exchange.
    ///
    /// # Panics
    /// The handler has sent another message.
    pub fn answers(&mut self) -> Vec<(u32, Reply)> {
        let mut messages = Vec::new();
        self.link.take(usize::MAX, &mut messages);
        let answers = messages.into_iter().map(|message| match message {
            WorkerMessage::Answer(key, reply) => (key.slot, *reply),
            _ => panic!("nothing but answers"),
        });
        answers.collect()
    }
}
