//! For the tests of features: a worker's place for one handler without a worker, whole servers in the simulator, and digests
//! of what their clients observe.
//!
//! Build it with the feature `testing`; no program does.

mod fleet;
#[cfg(test)]
mod relays;
pub mod traces;

pub use fleet::{Counts, Fleet, Stepped};

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::{Now, Peer, PollReactor, Reactor};
use encke_wire::http1::{Head, Progress};
use encke_wire::limits::HeadLimits;

use crate::exchange::{Exchange, ExchangeKey};
use crate::handler::{Handler, HandlerContext, JobId, Outcome, Tray};
use crate::link::{Link, Message};
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
    look(&Request { head: &head, bytes, asker: Asker::Known(origin), now, user: None })
}

/// The ready-made answer that a reply consists of, if it does.
pub fn prepared(reply: &Reply) -> Option<&Arc<Prepared>> {
    reply.prepared.as_ref()
}

/// Calls a handler as its worker would: it lends requests, runs the jobs of the pool by hand, and collects later answers. Time
/// is a value.
pub struct Stage {
    handler: Box<dyn Handler>,
    tray: Rc<Tray>,
    link: Arc<Link>,
    now: Now,
    jobs: usize,
    _reactor: PollReactor,
}

impl Stage {
    /// Opens a handler at `now`.
    ///
    /// # Panics
    /// The system gives no thread and no descriptor for it.
    pub fn open(
        now: Now,
        open: impl FnOnce(HandlerContext, &mut WorkerSetup<'_>) -> Box<dyn Handler>,
    ) -> Self {
        let reactor = PollReactor::new(Pool::start(1, 1).expect("a thread")).expect("poll(2)");
        let tray = Rc::new(Tray::default());
        tray.set_now(now);
        let handler = Self::handler_of(&tray, now, open);
        Self { handler, tray, link: Link::new(reactor.waker()), now, jobs: 0, _reactor: reactor }
    }

    fn handler_of(
        tray: &Rc<Tray>,
        now: Now,
        open: impl FnOnce(HandlerContext, &mut WorkerSetup<'_>) -> Box<dyn Handler>,
    ) -> Box<dyn Handler> {
        WorkerSetup::alone(now, |worker| open(HandlerContext::new(0, Rc::clone(tray)), worker))
    }

    /// Puts another handler in the place of the first, as a reload does.
    pub fn reopen(&mut self, open: impl FnOnce(HandlerContext, &mut WorkerSetup<'_>) -> Box<dyn Handler>) {
        self.handler = Self::handler_of(&self.tray, self.now, open);
    }

    /// The handler.
    pub fn handler(&mut self) -> &mut dyn Handler {
        &mut *self.handler
    }

    /// The present moment.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now.mono_ns += time.as_nanos() as u64;
        self.now.unix_ns += time.as_nanos() as u64;
        self.tray.set_now(self.now);
    }

    /// Takes the descriptors that the handler wants to have watched; their number.
    pub fn take_watches(&mut self) -> usize {
        self.tray.take_watches().len()
    }

    /// How many jobs have run.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Calls the handler with a request, whose exchange is at `slot`. Returns `None` if the response comes later.
    ///
    /// # Panics
    /// `bytes` are not exactly one head; the handler has dropped the exchange, or taken it over.
    pub fn call(&mut self, bytes: &[u8], slot: u32) -> Option<Reply> {
        let origin = Origin { peer: Peer::Local, client: None, secure: false, tls: None, local: true };
        let key = ExchangeKey { slot, generation: 0, stream: 0 };
        let exchange = Exchange::new(Arc::clone(&self.link), key);
        self.link.enter_call(key);
        let handler = &mut self.handler;
        let outcome = lend(bytes, &origin, self.now, |request| handler.call(request, exchange));
        let dropped = self.link.leave_call();
        match outcome {
            Outcome::Now(reply) => Some(reply),
            Outcome::Later => {
                assert!(!dropped, "an exchange that was kept was dropped");
                None
            }
            Outcome::Takeover(_) => panic!("this place has no residents"),
        }
    }

    /// Runs the handler's jobs, and those that come of them.
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

    /// Forgets jobs that have not run, as a pool without room does before it says so.
    pub fn lose_jobs(&mut self) {
        self.tray.take_jobs();
    }

    /// Tells the handler that its jobs were refused.
    pub fn refuse_jobs(&mut self) {
        for job in self.tray.take_jobs() {
            self.handler.offloaded(JobId(job.key), None);
        }
    }

    /// Responses that were given later, by the slot of their exchange.
    ///
    /// # Panics
    /// The handler has sent something else.
    pub fn answers(&mut self) -> Vec<(u32, Reply)> {
        let mut messages = Vec::new();
        self.link.take(usize::MAX, &mut messages);
        let answers = messages.into_iter().map(|message| match message {
            Message::Answer(key, reply) => (key.slot, *reply),
            _ => panic!("nothing but answers"),
        });
        answers.collect()
    }
}
