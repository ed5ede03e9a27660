//! Handlers respond to requests. Each worker opens its own handler from a shared [`Mount`], so no handler needs a lock.

use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::socket::Watched;
use encke_io::{Address, Done, Job, JobLane, LendLimit, Now, Segment};
use encke_session::tls::Session;
use encke_settings::SourceLine;
use encke_stats::Source;

use crate::buffers::BUFFER_BYTES;
use crate::exchange::{Exchange, ExchangeKey};
use crate::inbox::{Inbox, WorkerMessage};
use crate::inspect::ConnDescription;
use crate::log::{LogLabel, LogNotes, NotesMode};
use crate::metrics::WorkerMetrics;
use crate::open_table::{OpenEnd, OpenTable, Queued};
use crate::outgoing::{UpstreamDial, UpstreamEvent, UpstreamId, UpstreamIds};
use crate::reply::{Fields, Reply};
use crate::request::{Kept, Request};
use crate::resident::WorkerSetup;
use crate::takeover::Takeover;

/// A factory of handlers, mounted on a server: every worker opens it once.
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
    /// The mount's line in the settings file, for explanations of rules.
    fn source(&self) -> Option<SourceLine> {
        None
    }

    /// Opens the handler of one worker, at its start and at each reload. A feature whose connections outlive their requests
    /// opens its resident with [`WorkerSetup::resident`].
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler>;

    /// The metrics of the feature, for `/metrics`, the status and the console. The server reads them at its start and at each
    /// reload. To keep metrics across a reload, share them between the mounts before and after it. If several sources have the
    /// same name, only the first is shown.
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        Vec::new()
    }
}

/// Responds to requests, on one worker.
pub trait Handler {
    /// Responds to a request, now or later. The call must not block.
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome;

    /// A guard has rejected a request of the handler's mount point. The handler may give the response another content, such as the
    /// error page of a site, with the same status and the fields of `reply`. It must not serve the request.
    fn rejected(&mut self, _request: &Request<'_>, _exchange: Exchange, reply: Reply) -> Outcome {
        Outcome::Now(reply)
    }

    /// A piece of a request's body, as requested by [`Exchange::read_more`].
    fn body(&mut self, _exchange: ExchangeKey, _piece: Piece<'_>) {}

    /// The client's connection holds as many unsent bytes as it may (`limits.unsent`): the handler must stop reading content for this
    /// exchange until [`Handler::writable`]. Called after [`HandlerContext::await_room`].
    fn crowded(&mut self, _exchange: ExchangeKey) {}

    /// The handler may read content for an exchange again: fewer than 64 KiB of its open response are queued, after
    /// [`HandlerContext::write`] has returned 64 KiB or more, or the connection has room after [`Handler::crowded`].
    fn writable(&mut self, _exchange: ExchangeKey) {}

    /// The client disconnected before its response was complete: before the handler responded, or before it finished an open
    /// response. No call for this exchange follows.
    fn gone(&mut self, _exchange: ExchangeKey) {}

    /// The client ended its side of the connection a second ago, its request is complete, and its response has not begun. The client
    /// may have gone, or still wait for the response.
    fn ended(&mut self, _exchange: ExchangeKey) {}

    /// A handler to which this one has delegated a request ([`Exchange::delegate`]) has responded later.
    fn delegated(&mut self, _exchange: ExchangeKey, _reply: Reply) {}

    /// An event of a connection that [`HandlerContext::dial`] has opened.
    fn upstream(&mut self, _id: UpstreamId, _event: UpstreamEvent<'_>) {}

    /// A job of [`HandlerContext::offload`] has ended; `None` if it was rejected (busy) or has panicked.
    fn offloaded(&mut self, _job: JobId, _done: Option<Done>) {}

    /// A descriptor given to [`HandlerContext::watch`] is readable.
    fn watched(&mut self) {}

    /// A [`HandlerWaker`] of this handler was used since the last such call.
    fn woken(&mut self) {}

    /// Descriptors or memory are short: release caches.
    fn shrink(&mut self) {}

    /// Describes an open exchange for the operator's list of connections. Called only while a list is requested.
    fn describe(&self, _exchange: ExchangeKey) -> ConnDescription {
        ConnDescription::default()
    }

    /// Describes a request for the access log. Called only while a log is on, for each request of the handler's mount point,
    /// including requests that the engine or a guard refuses.
    fn log_label(&self, _request: &Request<'_>) -> LogLabel<'_> {
        LogLabel::default()
    }
}

/// The result of a handler call.
pub enum Outcome {
    /// The response.
    Now(Reply),
    /// The handler kept the exchange, and will respond.
    Later,
    /// The connection passes to a resident: it becomes a WebSocket, a stream of messages, or a tunnel.
    Takeover(Takeover),
}

impl Exchange {
    /// Lets another handler of the same worker respond to a request in place of the client's: this handler receives the
    /// response, now or by [`Handler::delegated`], and may change it, use another one, or ignore it. All other calls for the
    /// exchange, such as [`Handler::gone`], are still made to this handler, which passes them on.
    ///
    /// `request` may be any request, such as the client's with another path.
    pub fn delegate(&self, request: &Request<'_>, to: &mut dyn Handler) -> Outcome {
        match self.lend_for(|lent| to.call(request, lent)) {
            (Outcome::Later, true) => Outcome::Now(Reply::error(500)),
            (outcome, _) => outcome,
        }
    }
}

/// A piece of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes; more follow after [`Exchange::read_more`].
    Data(&'a [u8]),
    /// The body is complete.
    End,
    /// The client disconnected, sent too much, or broke the framing. No more bytes follow, and a response may not reach the
    /// client.
    Broken,
}

/// Identifies a job of a handler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobId(pub(crate) u64);

/// A handler's interface to its worker: offload jobs, watch descriptors, open connections, read the clock.
#[derive(Clone)]
pub struct HandlerContext {
    /// The handler's number: the high bits of its jobs' keys.
    handler: u16,
    requests: Rc<HandlerRequests>,
}

/// A handle that wakes a handler from any thread: [`Handler::woken`] follows on the handler's worker.
#[derive(Clone)]
pub struct HandlerWaker {
    link: Arc<Inbox>,
    handler: u16,
}

impl HandlerWaker {
    /// Wakes the handler. Does nothing if the handler was dropped.
    pub fn wake(&self) {
        self.link.send(WorkerMessage::WakeHandler(self.handler));
    }
}

/// Requests of a worker's handlers to the worker.
pub(crate) struct HandlerRequests {
    link: Arc<Inbox>,
    now: Cell<Now>,
    next_job: Cell<u64>,
    jobs: RefCell<Vec<Job>>,
    watches: RefCell<Vec<(u16, Watched)>>,
    /// Whether there may be jobs or watches.
    has_work: Cell<bool>,
    /// Whether there are actions.
    has_actions: Cell<bool>,
    actions: RefCell<Vec<Action>>,
    upstreams: RefCell<UpstreamIds>,
    open: RefCell<OpenTable>,
    /// Responses for [`Action::Respond`], in its order.
    replies: RefCell<VecDeque<(ExchangeKey, Reply)>>,
    /// Empty buffers for [`HandlerContext::take_buffer`].
    spare: RefCell<Vec<Vec<u8>>>,
    metrics: Arc<WorkerMetrics>,
    notes_mode: NotesMode,
}

/// A request of a feature in a callback. The worker executes it when the callback has returned.
pub(crate) enum Action {
    Dial(UpstreamDial),
    Send(UpstreamId, Segment),
    Shutdown(UpstreamId),
    /// Starts or stops receiving.
    Receive(UpstreamId, bool),
    Lend(UpstreamId, LendLimit),
    /// Nanoseconds until the deadline.
    Deadline(UpstreamId, u64),
    Close(UpstreamId),
    /// Respond to an exchange with the first reply in [`HandlerRequests`].
    Respond,
    ReadMore(ExchangeKey),
    AwaitRoom(ExchangeKey),
    Note(ExchangeKey, Box<LogNotes>),
    Reroute(Box<Reroute>),
}

/// A request that another mount responds to.
pub(crate) struct Reroute {
    pub(crate) exchange: ExchangeKey,
    pub(crate) request: Kept,
    /// Fields that the first handler has added to the response.
    pub(crate) fields: Fields,
}

/// Empty buffers that are kept for [`HandlerContext::take_buffer`]: a callback rarely fills more.
const SPARE_MAX: usize = 4;

/// A job's key has its number in the low 48 bits, and the handler's number in the 16 bits above.
const JOB_BITS: u32 = 48;
/// Numbers of the first guard and the first resident in the handlers' number range. No handler has so high a number.
const FIRST_GUARD: u16 = 0xF000;
const FIRST_RESIDENT: u16 = 0xFE00;

impl HandlerContext {
    pub(crate) fn new(handler: u16, tray: Rc<HandlerRequests>) -> Self {
        Self { handler, requests: tray }
    }

    /// Runs a blocking job on the thread pool. [`Handler::offloaded`] receives its result.
    pub fn offload<T: Any + Send>(&self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        self.offload_to(JobLane::Local, job)
    }

    /// Runs a job that waits for another program, on other threads than jobs for files. [`Handler::offloaded`] receives its
    /// result, or `None` if too many such jobs are queued.
    pub fn offload_remote<T: Any + Send>(&self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        self.offload_to(JobLane::Remote, job)
    }

    /// Runs a job that hashes a password, on other threads than jobs for files. [`Handler::offloaded`] receives its result, or
    /// `None` if too many such jobs are queued.
    pub fn offload_hash<T: Any + Send>(&self, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        self.offload_to(JobLane::Hash, job)
    }

    fn offload_to<T: Any + Send>(&self, lane: JobLane, job: impl FnOnce() -> T + Send + 'static) -> JobId {
        let key = self.requests.next_job_key(self.handler);
        self.requests.has_work.set(true);
        self.requests.jobs.borrow_mut().push(Job {
            key,
            lane,
            run: Box::new(move || Box::new(job()) as Done),
        });
        JobId(key)
    }

    /// Watches a descriptor: the worker calls [`Handler::watched`] whenever it is readable.
    pub fn watch(&self, watched: Watched) {
        self.requests.has_work.set(true);
        self.requests.watches.borrow_mut().push((self.handler, watched));
    }

    /// Opens a connection to another server. [`Handler::upstream`] receives its events; for a resident's context,
    /// [`Resident::upstream`](crate::Resident::upstream) does. The first event is [`UpstreamEvent::Connected`] or
    /// [`UpstreamEvent::Failed`].
    ///
    /// With a session the connection uses TLS: `Connected` follows the handshake, events and [`HandlerContext::send`] carry
    /// plaintext, and [`HandlerContext::shutdown`] sends a close_notify.
    pub fn dial(&self, address: Address, session: Option<Box<dyn Session>>) -> UpstreamId {
        let id = self.requests.upstreams.borrow_mut().take();
        self.act(Action::Dial(UpstreamDial { id, owner: self.handler, address, session }));
        id
    }

    /// Sends on an outgoing connection, after all bytes sent before. May be called before the connection is established.
    pub fn send(&self, id: UpstreamId, segments: impl IntoIterator<Item = Segment>) {
        for segment in segments {
            self.act(Action::Send(id, segment));
        }
    }

    /// Ends this side of an outgoing connection, after all bytes sent before.
    pub fn shutdown(&self, id: UpstreamId) {
        self.act(Action::Shutdown(id));
    }

    /// Stops receiving from an outgoing connection until [`HandlerContext::resume`].
    pub fn pause(&self, id: UpstreamId) {
        self.act(Action::Receive(id, false));
    }

    /// Receives from an outgoing connection again.
    pub fn resume(&self, id: UpstreamId) {
        self.act(Action::Receive(id, true));
    }

    /// Limits the bytes that one [`UpstreamEvent::Received`] of an outgoing connection lends. At first they are not limited beyond
    /// [`LEASE_BYTES_MAX`](encke_io::LEASE_BYTES_MAX).
    pub fn lend(&self, id: UpstreamId, limit: LendLimit) {
        self.act(Action::Lend(id, limit));
    }

    /// Sets the deadline of an outgoing connection, in place of an earlier one: [`UpstreamEvent::Overdue`] follows after
    /// `after_ns`; with `u64::MAX`, never.
    pub fn deadline(&self, id: UpstreamId, after_ns: u64) {
        self.act(Action::Deadline(id, after_ns));
    }

    /// Closes an outgoing connection. No event of it follows. Resets it if queued bytes are left.
    pub fn close(&self, id: UpstreamId) {
        if self.requests.upstreams.borrow_mut().end(id) {
            self.act(Action::Close(id));
        }
    }

    /// Returns an empty buffer for bytes to be sent. The worker reuses sent buffers.
    pub fn take_buffer(&self) -> Vec<u8> {
        let spare = self.requests.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Responds to an exchange of this worker. Unlike [`Exchange::answer`], this call keeps its order among the other calls of
    /// this context.
    pub fn respond(&self, exchange: Exchange, reply: Reply) {
        if let Some(reply) = exchange.into_reply(reply) {
            self.requests.replies.borrow_mut().push_back(reply);
            self.act(Action::Respond);
        }
    }

    /// Lets the mount of another path respond to `request`, in place of this handler and of the client's request. Guards are not
    /// asked again: the calling handler decides that the client may do this, and the other one learns of it by
    /// [`Request::is_rerouted`]. No call for the exchange follows here.
    pub fn reroute(&self, exchange: Exchange, request: Kept) {
        if let Some((exchange, fields)) = exchange.into_rerouted() {
            self.act(Action::Reroute(Box::new(Reroute { exchange, request: request.rerouted(), fields })));
        }
    }

    /// Calls the handler of the request's path again with it, after a wait of this handler: after a reload that is another one.
    /// Guards are not asked again. The exchange has another key then.
    pub fn call_again(&self, exchange: Exchange, request: Kept) {
        if let Some((exchange, fields)) = exchange.into_rerouted() {
            self.act(Action::Reroute(Box::new(Reroute { exchange, request, fields })));
        }
    }

    /// Writes content of an open response ([`Body::Open`](crate::Body::Open)), even before the response itself is given.
    /// Returns the bytes that wait: the queue is full at 64 KiB, or at 8 KiB while the client has received less than
    /// [`PROVEN_BYTES`](crate::PROVEN_BYTES) of the response. Does nothing if the exchange has ended.
    pub fn write(&self, exchange: ExchangeKey, bytes: &[u8]) -> Queued {
        self.requests.has_actions.set(true);
        let key = (exchange.slot, exchange.generation);
        self.requests.open.borrow_mut().write(key, bytes, || self.take_buffer())
    }

    /// Ends an open response. `trailers` are fields after its content. They are dropped in HTTP/1.0, and in HTTP/1.1 if the
    /// response has a length.
    pub fn finish(&self, exchange: ExchangeKey, trailers: Fields) {
        self.end(exchange, OpenEnd::Finish(trailers));
    }

    /// Aborts an open response: resets the connection, so that the client does not take the response as complete.
    pub fn reset(&self, exchange: ExchangeKey) {
        self.end(exchange, OpenEnd::Reset);
    }

    fn end(&self, exchange: ExchangeKey, end: OpenEnd) {
        self.requests.has_actions.set(true);
        self.requests.open.borrow_mut().end((exchange.slot, exchange.generation), end);
    }

    /// Requests the next piece of a request's body, like [`Exchange::read_more`], also after the response with
    /// [`Body::Open`](crate::Body::Open) was given.
    pub fn read_more(&self, exchange: ExchangeKey) {
        self.act(Action::ReadMore(exchange));
    }

    /// Requests [`Handler::crowded`] for an exchange whose response is read from elsewhere, before its first byte is read. An HTTP/2
    /// connection carries many such exchanges, and its share of `limits.unsent` is for all of them.
    pub fn await_room(&self, exchange: ExchangeKey) {
        if exchange.stream != 0 {
            self.act(Action::AwaitRoom(exchange));
        }
    }

    fn act(&self, action: Action) {
        self.requests.has_actions.set(true);
        self.requests.actions.borrow_mut().push(action);
    }

    /// Whether lines of the log may have notes: it is in the JSON format, or an operator watches it. Without, a handler need not
    /// collect any.
    pub fn takes_notes(&self) -> bool {
        self.requests.notes_mode.is_on()
    }

    /// Adds notes to the line of a request in the JSON log, before its response is complete.
    pub fn note(&self, exchange: ExchangeKey, notes: LogNotes) {
        self.act(Action::Note(exchange, Box::new(notes)));
    }

    /// Returns a handle that wakes the handler of this context from any thread. Guards and residents have no such call.
    pub fn waker(&self) -> HandlerWaker {
        HandlerWaker { link: Arc::clone(&self.requests.link), handler: self.handler }
    }

    /// The start of the worker's current turn.
    pub fn now(&self) -> Now {
        self.requests.now.get()
    }

    /// Counts a rejection, by the rule that was broken.
    pub fn refused(&self, rule: &'static str) {
        self.requests.metrics.refused(rule);
    }
}

impl HandlerRequests {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>, link: Arc<Inbox>, notes_mode: NotesMode) -> Self {
        Self {
            link,
            now: Cell::default(),
            next_job: Cell::default(),
            jobs: RefCell::default(),
            watches: RefCell::default(),
            has_work: Cell::default(),
            has_actions: Cell::default(),
            actions: RefCell::default(),
            upstreams: RefCell::default(),
            open: RefCell::default(),
            replies: RefCell::default(),
            spare: RefCell::default(),
            metrics,
            notes_mode,
        }
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

    /// Swaps the actions for an empty list.
    pub(crate) fn take_actions(&self, empty: Vec<Action>) -> Vec<Action> {
        debug_assert!(empty.is_empty());
        self.has_actions.set(false);
        self.actions.replace(empty)
    }

    /// Removes the first reply, for an [`Action::Respond`].
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

    /// Returns the key of the next job of a handler, a guard or a resident.
    pub(crate) fn next_job_key(&self, owner: u16) -> u64 {
        let number = self.next_job.get();
        self.next_job.set((number + 1) & ((1 << JOB_BITS) - 1));
        u64::from(owner) << JOB_BITS | number
    }

    /// Releases the table entry of an id for reuse.
    pub(crate) fn release(&self, id: UpstreamId) {
        self.upstreams.borrow_mut().release(id);
    }

    /// Takes empty buffers until [`SPARE_MAX`] are kept.
    pub(crate) fn refill(&self, mut next: impl FnMut() -> Option<Vec<u8>>) {
        let mut spare = self.spare.borrow_mut();
        while spare.len() < SPARE_MAX
            && let Some(buffer) = next()
        {
            spare.push(buffer);
        }
    }

    /// Number of rejections that were counted for a rule.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn refusals(&self, rule: &str) -> u64 {
        self.metrics.refusals(rule)
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
    /// Returns the number of the resident at a seat, in the handlers' number range.
    pub(crate) const fn number_of(seat: u8) -> u16 {
        FIRST_RESIDENT | seat as u16
    }

    /// Returns the seat of the resident with this number, if it is a resident's.
    pub(crate) fn seat_of(number: u16) -> Option<u8> {
        (FIRST_RESIDENT..=FIRST_RESIDENT + 0xFF).contains(&number).then_some(number as u8)
    }

    /// Maximum number of handlers of a worker, including handlers of earlier plans.
    pub(crate) const HANDLERS_MAX: usize = FIRST_GUARD as usize;

    /// Maximum number of guards of a worker, including guards of earlier plans.
    pub(crate) const GUARDS_MAX: usize = (FIRST_RESIDENT - FIRST_GUARD) as usize;

    /// Returns the context number of a guard.
    pub(crate) const fn context_of(guard: u16) -> u16 {
        FIRST_GUARD + guard
    }

    /// Returns the guard with this context, if a guard has it.
    pub(crate) fn guard_of(context: u16) -> Option<u16> {
        (FIRST_GUARD..FIRST_RESIDENT).contains(&context).then(|| context - FIRST_GUARD)
    }

    /// Returns the guard of this job, if it is a guard's.
    pub(crate) fn guard(self) -> Option<u16> {
        Self::guard_of((self.0 >> JOB_BITS) as u16)
    }

    pub(crate) fn handler(self) -> usize {
        (self.0 >> JOB_BITS) as usize
    }

    /// Returns the seat of this job's resident, if it is a resident's.
    pub(crate) fn resident(self) -> Option<u8> {
        Self::seat_of((self.0 >> JOB_BITS) as u16)
    }
}

/// Any function of request and exchange is a handler.
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
