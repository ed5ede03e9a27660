//! Handlers: what answers requests. Each worker opens its own from a shared [`Mount`], so none needs a lock.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use encke_io::socket::Watched;
use encke_io::{Done, Job, JobLane, Now};

use crate::exchange::{Exchange, ExchangeKey};
use crate::metrics::Metrics;
use crate::reply::Reply;
use crate::request::Request;
use crate::resident::{Takeover, WorkerSetup};

/// Something that is mounted on a server: opened once by every worker.
pub trait Mount: Send + Sync {
    /// Makes a worker's own handler, at its start and at each reload. A feature whose connections outlive their requests
    /// opens its resident by [`WorkerSetup::resident`].
    fn open(&self, desk: Desk, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler>;
}

/// Answers requests, on one worker.
pub trait Handler {
    /// Answers a request, now or later. It must not wait for anything.
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome;

    /// A piece of a request's body, asked for by [`Exchange::read_more`].
    fn body(&mut self, _exchange: ExchangeKey, _piece: Piece<'_>) {}

    /// A job given to [`Desk::offload`] has ended; `None` if it was refused (busy) or has panicked.
    fn offloaded(&mut self, _job: JobId, _done: Option<Done>) {}

    /// A descriptor given to [`Desk::watch`] is readable.
    fn watched(&mut self) {}

    /// Descriptors or memory are short: give back what is only held for speed.
    fn shrink(&mut self) {}
}

/// What a call came to.
#[non_exhaustive]
pub enum Outcome {
    /// Answered.
    Now(Reply),
    /// The exchange was kept and will be answered.
    Later,
    /// The connection is given to a resident: it becomes a WebSocket, a stream of messages, a tunnel.
    Takeover(Takeover),
}

/// A piece of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes; more follows. Ask again by [`Exchange::read_more`].
    Data(&'a [u8]),
    /// It is whole.
    End,
    /// The client has gone, sent too much, or broke the framing: nothing more will come, and an answer may not
    /// reach it.
    Broken,
}

/// Names a job of a handler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobId(pub(crate) u64);

/// A handler's place at its worker: what it may ask for besides answering.
#[derive(Clone)]
pub struct Desk {
    /// Which handler of the worker this is: the high bits of its jobs' keys.
    handler: u16,
    tray: Rc<Tray>,
}

/// What the handlers of a worker have asked for.
#[derive(Default)]
pub(crate) struct Tray {
    now: Cell<Now>,
    next_job: Cell<u64>,
    jobs: RefCell<Vec<Job>>,
    watches: RefCell<Vec<(u16, Watched)>>,
    /// There may be jobs or watches.
    has_work: Cell<bool>,
    metrics: Arc<Metrics>,
}

/// Jobs are numbered in the low 48 bits of a key, handlers in the 16 above.
const JOB_BITS: u32 = 48;
/// The number of the first resident among handlers: no handler has so high a number.
const FIRST_RESIDENT: u16 = 0xFE00;

impl Desk {
    pub(crate) fn new(handler: u16, tray: Rc<Tray>) -> Self {
        Self { handler, tray }
    }

    /// Runs a blocking job on the pool; its result comes by [`Handler::offloaded`].
    pub fn offload<T: Any + Send>(&self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        self.offload_to(JobLane::Local, job)
    }

    /// Runs a job that waits for another program, on threads apart from jobs for files. [`Handler::offloaded`] receives
    /// its result, or `None` if too many such jobs are queued.
    pub fn offload_remote<T: Any + Send>(&self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        self.offload_to(JobLane::Remote, job)
    }

    fn offload_to<T: Any + Send>(&self, lane: JobLane, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        let number = self.tray.next_job.get();
        self.tray.next_job.set((number + 1) & ((1 << JOB_BITS) - 1));
        let key = u64::from(self.handler) << JOB_BITS | number;
        self.tray.has_work.set(true);
        self.tray.jobs.borrow_mut().push(Job { key, lane, run: Box::new(move || Box::new(job()) as Done) });
        JobId(key)
    }

    /// Has [`Handler::watched`] called whenever a descriptor is readable.
    pub fn watch(&self, watched: Watched) {
        self.tray.has_work.set(true);
        self.tray.watches.borrow_mut().push((self.handler, watched));
    }

    /// The moment at which the worker's present turn began.
    pub fn now(&self) -> Now {
        self.tray.now.get()
    }

    /// What the worker counts.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.tray.metrics
    }
}

impl Tray {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..Self::default() }
    }

    pub(crate) fn set_now(&self, now: Now) {
        self.now.set(now);
    }

    /// Whether there are jobs or watches.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.get()
    }

    pub(crate) fn take_jobs(&self) -> Vec<Job> {
        self.has_work.set(false);
        self.jobs.take()
    }

    pub(crate) fn take_watches(&self) -> Vec<(u16, Watched)> {
        self.watches.take()
    }
}

impl JobId {
    /// For a job of the resident at a seat.
    pub(crate) fn of_resident(seat: u8) -> Self {
        Self(u64::from(FIRST_RESIDENT | u16::from(seat)) << JOB_BITS)
    }

    pub(crate) fn handler(self) -> usize {
        (self.0 >> JOB_BITS) as usize
    }

    /// The seat of the resident whose job it is, if it is one's.
    pub(crate) fn resident(self) -> Option<u8> {
        let number = (self.0 >> JOB_BITS) as u16;
        (FIRST_RESIDENT..=FIRST_RESIDENT + 0xFF).contains(&number).then_some(number as u8)
    }
}

/// A handler that is a function of request and exchange.
impl<F> Mount for F
where
    F: Fn(&Request<'_>, Exchange) -> Outcome + Clone + Send + Sync + 'static,
{
    fn open(&self, _: Desk, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Function(self.clone()))
    }
}

struct Function<F>(F);

impl<F: Fn(&Request<'_>, Exchange) -> Outcome> Handler for Function<F> {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        (self.0)(request, exchange)
    }
}
