//! Handlers: what answers requests. Each worker opens its own from a shared [`Mount`], so none needs a lock.

use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::socket::Watched;
use encke_io::{Address, Done, Job, JobLane, Now, Segment};
use encke_session::tls::Session;
use encke_settings::SourceLine;
use encke_stats::Source;

use crate::buffers::BUFFER_BYTES;
use crate::exchange::{Exchange, ExchangeKey};
use crate::metrics::WorkerMetrics;
use crate::open_table::{OpenEnd, OpenTable};
use crate::outgoing::{UpstreamEvent, UpstreamId, UpstreamIds};
use crate::reply::{Fields, Reply};
use crate::request::Request;
use crate::resident::WorkerSetup;
use crate::takeover::Takeover;

/// Something that is mounted on a server: opened once by every worker.
///
/// ```
/// use encke_server::{
///     Exchange, Handler, HandlerContext, Mount, Options, Outcome, Reply, Request, Server, WorkerSetup,
/// };
///
/// /// Mounted once; each worker opens its own counter, so a counter needs no lock.
/// struct Counters;
///
/// struct Counter(u64);
///
/// impl Mount for Counters {
///     fn open(&self, _context: HandlerContext, _worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
///         Box::new(Counter(0))
///     }
/// }
///
/// impl Handler for Counter {
///     fn call(&mut self, _request: &Request<'_>, _exchange: Exchange) -> Outcome {
///         self.0 += 1;
///         Outcome::Now(Reply::text(200, self.0.to_string()))
///     }
/// }
///
/// # fn ask(running: &encke_server::Running, request: &str) -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut client = std::net::TcpStream::connect(running.addresses()[0].to_string())?;
/// #     client.write_all(request.as_bytes())?;
/// #     let mut response = String::new();
/// #     client.read_to_string(&mut response)?;
/// #     Ok(response)
/// # }
/// let server = Server::new(Options { workers: Some(1), ..Options::default() });
/// let running = server.listen("127.0.0.1:0".parse()?).mount("/", Counters).start()?;
/// for count in ["1", "2"] {
///     let response = ask(&running, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
///     assert!(response.ends_with(&format!("\r\n\r\n{count}")), "{response}");
/// }
/// running.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Mount: Send + Sync {
    /// Where the settings have it, for explanations.
    fn source(&self) -> Option<SourceLine> {
        None
    }

    /// Makes a worker's own handler, at its start and at each reload. A feature whose connections outlive their requests
    /// opens its resident by [`WorkerSetup::resident`].
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler>;

    /// The figures of the feature, for `/metrics`, the status and the console. The server reads them at its start and at each
    /// reload; figures that shall outlive a reload are shared by the mounts before and after it. Of sources with the same
    /// name only the first one is shown.
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        Vec::new()
    }
}

/// Answers requests, on one worker.
pub trait Handler {
    /// Answers a request, now or later. It must not wait for anything.
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome;

    /// A piece of a request's body, asked for by [`Exchange::read_more`].
    fn body(&mut self, _exchange: ExchangeKey, _piece: Piece<'_>) {}

    /// Fewer than 64 KiB of an open response wait, after [`HandlerContext::write`] has returned 64 KiB or more.
    fn writable(&mut self, _exchange: ExchangeKey) {}

    /// The client has gone before its response was complete: before the handler has responded, or before it has finished an
    /// open response. Nothing of the exchange follows.
    fn gone(&mut self, _exchange: ExchangeKey) {}

    /// Something has happened on a connection that [`HandlerContext::dial`] has opened.
    fn upstream(&mut self, _id: UpstreamId, _event: UpstreamEvent<'_>) {}

    /// A job given to [`HandlerContext::offload`] has ended; `None` if it was refused (busy) or has panicked.
    fn offloaded(&mut self, _job: JobId, _done: Option<Done>) {}

    /// A descriptor given to [`HandlerContext::watch`] is readable.
    fn watched(&mut self) {}

    /// Descriptors or memory are short: give back what is only held for speed.
    fn shrink(&mut self) {}
}

/// What a call came to.
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
pub struct HandlerContext {
    /// Which handler of the worker this is: the high bits of its jobs' keys.
    handler: u16,
    requests: Rc<HandlerRequests>,
}

/// What the handlers of a worker have asked for.
#[derive(Default)]
pub(crate) struct HandlerRequests {
    now: Cell<Now>,
    next_job: Cell<u64>,
    jobs: RefCell<Vec<Job>>,
    watches: RefCell<Vec<(u16, Watched)>>,
    /// There may be jobs or watches.
    has_work: Cell<bool>,
    /// There are actions.
    has_actions: Cell<bool>,
    actions: RefCell<Vec<Action>>,
    upstreams: RefCell<UpstreamIds>,
    open: RefCell<OpenTable>,
    /// Responses for [`Action::Respond`], in its order.
    replies: RefCell<VecDeque<(ExchangeKey, Reply)>>,
    /// Empty buffers for [`HandlerContext::take_buffer`].
    spare: RefCell<Vec<Vec<u8>>>,
    metrics: Arc<WorkerMetrics>,
}

/// What a feature has asked for in a callback. The worker executes it when the callback has returned.
pub(crate) enum Action {
    Dial(UpstreamDial),
    Send(UpstreamId, Segment),
    Shutdown(UpstreamId),
    /// Whether to receive.
    Receive(UpstreamId, bool),
    /// In so many nanoseconds.
    Deadline(UpstreamId, u64),
    Close(UpstreamId),
    /// Respond to an exchange: the reply is the first in [`HandlerRequests`].
    Respond,
    ReadMore(ExchangeKey),
}

/// An outgoing connection to be opened.
pub(crate) struct UpstreamDial {
    pub(crate) id: UpstreamId,
    /// The number of the handler, or of the resident among handlers.
    pub(crate) owner: u16,
    pub(crate) address: Address,
    pub(crate) session: Option<Box<dyn Session>>,
}

/// Empty buffers that are kept for [`HandlerContext::take_buffer`]: a callback rarely fills more.
const SPARE_MAX: usize = 4;

/// Jobs are numbered in the low 48 bits of a key, handlers in the 16 above.
const JOB_BITS: u32 = 48;
/// The number of the first guard among handlers, and of the first resident: no handler has so high a number.
const FIRST_GUARD: u16 = 0xF000;
const FIRST_RESIDENT: u16 = 0xFE00;

impl HandlerContext {
    pub(crate) fn new(handler: u16, tray: Rc<HandlerRequests>) -> Self {
        Self { handler, requests: tray }
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
        let number = self.requests.next_job.get();
        self.requests.next_job.set((number + 1) & ((1 << JOB_BITS) - 1));
        let key = u64::from(self.handler) << JOB_BITS | number;
        self.requests.has_work.set(true);
        self.requests.jobs.borrow_mut().push(Job {
            key,
            lane,
            run: Box::new(move || Box::new(job()) as Done),
        });
        JobId(key)
    }

    /// Has [`Handler::watched`] called whenever a descriptor is readable.
    pub fn watch(&self, watched: Watched) {
        self.requests.has_work.set(true);
        self.requests.watches.borrow_mut().push((self.handler, watched));
    }

    /// Opens a connection to another server. Its events come by [`Handler::upstream`], or by
    /// [`Resident::upstream`](crate::Resident::upstream) of a resident's context; the first is
    /// [`UpstreamEvent::Connected`] or [`UpstreamEvent::Failed`].
    ///
    /// With a session the connection speaks TLS: `Connected` follows the handshake, events and
    /// [`HandlerContext::send`] carry plaintext, and [`HandlerContext::shutdown`] sends a close_notify.
    pub fn dial(&self, address: Address, session: Option<Box<dyn Session>>) -> UpstreamId {
        let id = self.requests.upstreams.borrow_mut().take();
        self.act(Action::Dial(UpstreamDial { id, owner: self.handler, address, session }));
        id
    }

    /// Sends on an outgoing connection, behind everything that was sent before. May be called before it is connected.
    pub fn send(&self, id: UpstreamId, segments: impl IntoIterator<Item = Segment>) {
        for segment in segments {
            self.act(Action::Send(id, segment));
        }
    }

    /// Ends this side of an outgoing connection, behind everything that was sent before.
    pub fn shutdown(&self, id: UpstreamId) {
        self.act(Action::Shutdown(id));
    }

    /// Receives nothing more from an outgoing connection until [`HandlerContext::resume`].
    pub fn pause(&self, id: UpstreamId) {
        self.act(Action::Receive(id, false));
    }

    /// Receives from an outgoing connection again.
    pub fn resume(&self, id: UpstreamId) {
        self.act(Action::Receive(id, true));
    }

    /// Has [`UpstreamEvent::Overdue`] reported in `after_ns`, in place of an earlier deadline; `u64::MAX`: never.
    pub fn deadline(&self, id: UpstreamId, after_ns: u64) {
        self.act(Action::Deadline(id, after_ns));
    }

    /// Closes an outgoing connection. No event of it follows. If bytes that were to be sent are left, it is reset.
    pub fn close(&self, id: UpstreamId) {
        if self.requests.upstreams.borrow_mut().end(id) {
            self.act(Action::Close(id));
        }
    }

    /// An empty buffer, for bytes to be sent. Sent buffers are used again.
    pub fn take_buffer(&self) -> Vec<u8> {
        let spare = self.requests.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Responds to an exchange of this worker. Unlike [`Exchange::answer`] it keeps the order with what this context is asked
    /// for before and afterwards.
    pub fn respond(&self, exchange: Exchange, reply: Reply) {
        self.requests.replies.borrow_mut().push_back(exchange.into_reply(reply));
        self.act(Action::Respond);
    }

    /// Writes content of an open response ([`Body::Open`](crate::Body::Open)), which may begin before the response itself
    /// is given. Returns how many bytes wait to be sent: with 64 KiB or more the handler writes no more until
    /// [`Handler::writable`]. Of an exchange that is over, nothing is written.
    pub fn write(&self, exchange: ExchangeKey, bytes: &[u8]) -> usize {
        self.requests.has_actions.set(true);
        let key = (exchange.slot, exchange.generation);
        self.requests.open.borrow_mut().write(key, bytes, || self.take_buffer())
    }

    /// Ends an open response. `trailers` are fields behind its content; HTTP/1.0 has no place for them, nor has a response
    /// with a length by HTTP/1.1.
    pub fn finish(&self, exchange: ExchangeKey, trailers: Fields) {
        self.end(exchange, OpenEnd::Finish(trailers));
    }

    /// Gives an open response up: the connection is reset, so that the client does not take it for whole.
    pub fn reset(&self, exchange: ExchangeKey) {
        self.end(exchange, OpenEnd::Reset);
    }

    fn end(&self, exchange: ExchangeKey, end: OpenEnd) {
        self.requests.has_actions.set(true);
        self.requests.open.borrow_mut().end((exchange.slot, exchange.generation), end);
    }

    /// Asks for the next piece of a request's body, as [`Exchange::read_more`] does, also after the exchange was responded
    /// to with an open response.
    pub fn read_more(&self, exchange: ExchangeKey) {
        self.act(Action::ReadMore(exchange));
    }

    fn act(&self, action: Action) {
        self.requests.has_actions.set(true);
        self.requests.actions.borrow_mut().push(action);
    }

    /// The moment at which the worker's present turn began.
    pub fn now(&self) -> Now {
        self.requests.now.get()
    }

    /// Counts something that was refused, by the rule that it broke.
    pub fn refused(&self, rule: &'static str) {
        self.requests.metrics.refused(rule);
    }
}

impl HandlerRequests {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>) -> Self {
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

    /// Whether there are actions.
    #[inline]
    pub(crate) fn has_actions(&self) -> bool {
        self.has_actions.get()
    }

    /// Exchanges the actions for an empty list.
    pub(crate) fn take_actions(&self, empty: Vec<Action>) -> Vec<Action> {
        debug_assert!(empty.is_empty());
        self.has_actions.set(false);
        self.actions.replace(empty)
    }

    /// The first of the responses, for an [`Action::Respond`].
    pub(crate) fn next_reply(&self) -> Option<(ExchangeKey, Reply)> {
        self.replies.borrow_mut().pop_front()
    }

    pub(crate) fn open(&self) -> RefMut<'_, OpenTable> {
        self.open.borrow_mut()
    }

    /// Whether an id has not ended.
    pub(crate) fn is_current(&self, id: UpstreamId) -> bool {
        self.upstreams.borrow().is_current(id)
    }

    /// The place of an id may be used again.
    pub(crate) fn release(&self, id: UpstreamId) {
        self.upstreams.borrow_mut().release(id);
    }

    /// Takes empty buffers, as many as are missing.
    pub(crate) fn refill(&self, mut next: impl FnMut() -> Option<Vec<u8>>) {
        let mut spare = self.spare.borrow_mut();
        while spare.len() < SPARE_MAX
            && let Some(buffer) = next()
        {
            spare.push(buffer);
        }
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
        Self(u64::from(Self::number_of(seat)) << JOB_BITS)
    }

    /// The number of the resident at a seat, among handlers.
    pub(crate) const fn number_of(seat: u8) -> u16 {
        FIRST_RESIDENT | seat as u16
    }

    /// The seat of the resident that has a number among handlers.
    pub(crate) fn seat_of(number: u16) -> Option<u8> {
        (FIRST_RESIDENT..=FIRST_RESIDENT + 0xFF).contains(&number).then_some(number as u8)
    }

    /// Handlers that a worker may have, with those of earlier plans.
    pub(crate) const HANDLERS_MAX: usize = FIRST_GUARD as usize;

    /// Numbers of guards.
    pub(crate) const GUARDS_MAX: usize = (FIRST_RESIDENT - FIRST_GUARD) as usize;

    /// The context number of a guard.
    pub(crate) const fn context_of(guard: u16) -> u16 {
        FIRST_GUARD + guard
    }

    /// The guard with this context, if it belongs to a guard.
    pub(crate) fn guard_of(context: u16) -> Option<u16> {
        (FIRST_GUARD..FIRST_RESIDENT).contains(&context).then(|| context - FIRST_GUARD)
    }

    /// The guard of this job, if it belongs to a guard.
    pub(crate) fn guard(self) -> Option<u16> {
        Self::guard_of((self.0 >> JOB_BITS) as u16)
    }

    pub(crate) fn handler(self) -> usize {
        (self.0 >> JOB_BITS) as usize
    }

    /// The seat of the resident whose job it is, if it is one's.
    pub(crate) fn resident(self) -> Option<u8> {
        Self::seat_of((self.0 >> JOB_BITS) as u16)
    }
}

/// A handler that is a function of request and exchange.
impl<F> Mount for F
where
    F: Fn(&Request<'_>, Exchange) -> Outcome + Clone + Send + Sync + 'static,
{
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Function(self.clone()))
    }
}

struct Function<F>(F);

impl<F: Fn(&Request<'_>, Exchange) -> Outcome> Handler for Function<F> {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        (self.0)(request, exchange)
    }
}
