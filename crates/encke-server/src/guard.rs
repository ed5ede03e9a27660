//! Guards: rules that a request must pass before a handler sees it, such as passwords, addresses, rates, or the decision of
//! another program.
//!
//! ```text
//!  request ─► route ─► guards of the server, guards of the mount point ─► Handler::call
//!                        │ check
//!                        ├─ Pass(Passage)   the next guard, then the handler: with the user's name, and fields for the response
//!                        ├─ Refuse(Reply)   the response, by Handler::rejected; no later guard is called
//!                        └─ Later(GuardHold) ─► HeldRequest in the exchange's Record ─┬─ verdict ─► continues with the next guard
//!                                 Ticket<GuardVerdict>, on any thread ──── give ──────┘  dropped ─► 500, counted
//!                                                                        client gone ─► Guard::gone
//! ```
//! **Where.** A guard is attached to the server ([`Server::guard`](crate::Server::guard)) or to a mount point
//! ([`Server::guard_at`](crate::Server::guard_at)), never to a path. A path has many spellings, and only its handler knows which
//! of them name the same thing; so a guard of a path could be evaded. Requests that no mount point serves pass the server's
//! guards as well, before they get their 404. The admin listener has no guards.
//!
//! **Order.** Guards of the server run first, then guards of the mount point, each group in the order of attachment. A guard sees
//! the user name that an earlier guard has set ([`Request::user`]). The engine's own responses (501, 413, 417, the
//! redirect to https) come before all guards.
//!
//! **Opening.** [`GuardMount::open`] is called once per worker, at the start and at each reload, with a [`HandlerContext`] of
//! the guard's own. A guard therefore needs no lock. A request keeps the guards and the handler that it arrived at; guards of
//! an earlier plan live until no request and no job needs them.
//!
//! **While a guard waits** the exchange is open and has no handler:
//! - The request's head is copied ([`Request::keep`]), and the handler gets this copy as it arrived. A guard that decides within
//!   its call causes no copy.
//! - The engine buffers at most one read of the body and sends no `100 Continue`: both wait for
//!   [`Exchange::read_more`](crate::Exchange::read_more).
//! - Pipelined requests wait, as for any open exchange. Streams of HTTP/2 wait independently of each other: a stream is a
//!   connection of its own here.
//! - A verdict that arrives while an earlier response is being sent waits for that send.
//! - The engine sets no deadline. A guard that asks another program limits the time itself.
//! - If the client disconnects, the engine calls [`Guard::gone`], and the verdict is void. A ticket belongs to one call of one
//!   guard, so it never decides for another request, or for another guard of the same request.
//! - A drain waits for the request as for any exchange. At its end the engine closes the connection and calls `gone`.
//!
//! **Failures.** A guard that panics, and a ticket that is dropped, are a 500: a request passes only by a verdict. Both are
//! counted (`encke_guard_failures_total`).
//!
//! **Cost.** Without guards a request tests one flag. A request that all guards let pass by [`Guard::passes`] costs these calls;
//! any other has a `Record` for the length of the checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use encke_io::{Done, Token};
use encke_stats::Ticket;

use crate::close::CloseReason;
use crate::conn::{ADMIN, SENDING};
use crate::core::Core;
use crate::exchange::{Exchange, ExchangeKey};
use crate::handler::{Handler, HandlerContext, JobId, Outcome, Reroute};
use crate::held::{Chain, GuardProgress, HeldRequest};
use crate::inbox::{Inbox, WorkerMessage};
use crate::log::LogEntry;
use crate::outgoing::{UpstreamEvent, UpstreamId};
use crate::record::{Asked, Intake};
use crate::reply::Reply;
use crate::request::{Kept, Request};
use crate::resident::WorkerSetup;
use crate::verdict::{GuardVerdict, Passage};

/// The handler of a request that no mount point serves.
const NO_HANDLER: u16 = u16::MAX;

/// A guard as it is attached to a server: opened once by every worker.
pub trait GuardMount: Send + Sync {
    /// Opens the guard of one worker, at its start and at each reload.
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Guard>;
}

/// Decides whether requests reach their handlers, on one worker.
///
/// ```
/// use encke_server::{
///     Exchange, Guard, GuardCall, GuardMount, GuardOutcome, HandlerContext, Options, Outcome, Passage, Reply,
///     Request, Server, WorkerSetup,
/// };
///
/// struct Key;
///
/// impl GuardMount for Key {
///     fn open(&self, _context: HandlerContext, _worker: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
///         Box::new(Key)
///     }
/// }
///
/// impl Guard for Key {
///     fn check(&mut self, request: &Request<'_>, _call: GuardCall<'_>) -> GuardOutcome {
///         match request.field("X-Key") {
///             Some(b"secret") => GuardOutcome::Pass(Passage::default()),
///             _ => GuardOutcome::Refuse(Reply::error(403)),
///         }
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
/// let server = Server::new(Options::default()).listen("127.0.0.1:0".parse()?).guard(Key);
/// let hello = |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::text(200, "hello"));
/// let running = server.mount("/", hello).start()?;
/// let get = |field: &str| ask(&running, &format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{field}\r\n"));
/// assert!(get("")?.starts_with("HTTP/1.1 403 "));
/// assert!(get("X-Key: secret\r\n")?.starts_with("HTTP/1.1 200 "));
/// running.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Guard {
    /// Whether a request passes without additions. The engine calls this first, before the request
    /// costs a record. If it returns false, [`Guard::check`] of this guard and of all later ones decide. A guard that counts
    /// requests has counted this one if it returns true, and not if it returns false.
    fn passes(&mut self, _request: &Request<'_>) -> bool {
        false
    }

    /// Checks a request, now or later. The check must not block.
    fn check(&mut self, request: &Request<'_>, call: GuardCall<'_>) -> GuardOutcome;

    /// The client of a held request has disconnected: its verdict is void.
    fn gone(&mut self, _key: ExchangeKey) {}

    /// A job given to [`HandlerContext::offload`] has ended; `None` if it was refused (busy) or has panicked.
    fn offloaded(&mut self, _job: JobId, _done: Option<Done>) {}

    /// An event of a connection that [`HandlerContext::dial`] has opened.
    fn upstream(&mut self, _id: UpstreamId, _event: UpstreamEvent<'_>) {}

    /// A descriptor given to [`HandlerContext::watch`] is readable.
    fn watched(&mut self) {}

    /// Descriptors or memory are short: release caches.
    fn shrink(&mut self) {}
}

/// The result of a check.
pub enum GuardOutcome {
    /// The request continues with the next guard, or with its handler.
    Pass(Passage),
    /// The client gets this response.
    Refuse(Reply),
    /// The ticket of [`GuardCall::hold`] was kept, and will decide.
    Later(GuardHold),
}

/// A call of a guard, by which it may hold the request.
pub struct GuardCall<'a> {
    pub(crate) link: &'a Arc<Inbox>,
    pub(crate) key: ExchangeKey,
}

/// Proof that a ticket holds a request.
pub struct GuardHold(pub(crate) ExchangeKey);

impl GuardCall<'_> {
    /// Holds the request until the ticket gives a verdict. Return the [`GuardHold`] in [`GuardOutcome::Later`].
    pub fn hold(self) -> (GuardHold, Ticket<GuardVerdict>) {
        let (link, key) = (Arc::clone(self.link), self.key);
        let ticket = Ticket::new(move |verdict: Option<GuardVerdict>| {
            link.send(WorkerMessage::Verdict(key, verdict.map(Box::new)));
        });
        (GuardHold(key), ticket)
    }
}

impl GuardHold {
    /// The request's key, as passed to [`Guard::gone`].
    pub fn key(&self) -> ExchangeKey {
        self.0
    }
}

impl GuardOutcome {
    /// Lets the request pass without additions.
    pub fn pass() -> Self {
        Self::Pass(Passage::default())
    }
}

impl From<GuardVerdict> for GuardOutcome {
    fn from(verdict: GuardVerdict) -> Self {
        match verdict {
            GuardVerdict::Pass(passage) => Self::Pass(passage),
            GuardVerdict::Refuse(reply) => Self::Refuse(reply),
        }
    }
}

/// Any function of the request is a guard.
impl<F> GuardMount for F
where
    F: Fn(&Request<'_>) -> GuardVerdict + Clone + Send + Sync + 'static,
{
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(GuardFunction(self.clone()))
    }
}

struct GuardFunction<F>(F);

impl<F: Fn(&Request<'_>) -> GuardVerdict> Guard for GuardFunction<F> {
    fn check(&mut self, request: &Request<'_>, _: GuardCall<'_>) -> GuardOutcome {
        (self.0)(request).into()
    }
}

/// A guard and where it is attached.
#[derive(Clone)]
pub struct GuardPoint {
    /// The prefix of a mount point; `None` for all mount points of the server.
    pub at: Option<String>,
    /// The guard.
    pub guard: Arc<dyn GuardMount>,
}

/// The guards of a worker.
#[derive(Default)]
pub(crate) struct Guards {
    /// Guards, by number.
    posts: Vec<Option<GuardEntry>>,
    /// Chains of mount points with guards of their own, by handler.
    chains: Vec<(u16, Chain)>,
    /// The chain of all other mount points, if the server has guards.
    server: Option<Chain>,
    /// Whether any chain exists.
    posted: bool,
}

/// The result of [`Guards::pass`].
pub(crate) enum ChainPass {
    /// All guards let the request pass.
    Passed,
    /// The index of the guard in the chain that has to check the request.
    Stopped(usize),
    /// A guard has panicked.
    Panicked,
}

/// An open guard of this worker.
struct GuardEntry {
    guard: Box<dyn Guard>,
    /// Replaced by a reload: receives no new requests.
    retired: bool,
    jobs: usize,
    watches: Vec<Token>,
}

/// A request: borrowed from its connection, or copied.
enum Subject<'a> {
    Lent(Request<'a>),
    Kept(Kept),
}

impl Subject<'_> {
    fn view<'s>(&'s self, passage: Option<&'s Passage>) -> Request<'s> {
        let view = match self {
            Self::Lent(request) => *request,
            Self::Kept(kept) => kept.view(),
        };
        let user = passage.and_then(|passage| passage.user.as_ref());
        Request { user, passed: passage.and_then(|passage| passage.passed.as_ref()), ..view }
    }

    fn keep(self) -> Kept {
        match self {
            Self::Lent(request) => request.keep(),
            Self::Kept(kept) => kept,
        }
    }
}

impl Guards {
    /// Whether any request must pass a guard.
    #[inline]
    pub(crate) fn are_posted(&self) -> bool {
        self.posted
    }

    /// Returns the guards for requests of a handler; `None` if there are none.
    pub(crate) fn chain(&self, admin: bool, handler: Option<u16>) -> Option<&Chain> {
        let own = self.chains.iter().find(|(number, _)| Some(*number) == handler);
        let chain = own.map(|(_, chain)| chain).or(self.server.as_ref());
        chain.filter(|_| !admin)
    }

    /// Calls [`Guard::passes`] of the guards before a handler, in order, until one returns false.
    #[inline]
    pub(crate) fn pass(&mut self, admin: bool, handler: Option<u16>, request: &Request<'_>) -> ChainPass {
        let Self { posts, chains, server, .. } = self;
        let own = chains.iter().find(|(number, _)| Some(*number) == handler).map(|(_, chain)| chain);
        let Some(chain) = own.or(server.as_ref()).filter(|_| !admin) else { return ChainPass::Passed };
        for (place, guard) in chain.iter().enumerate() {
            let Some(Some(post)) = posts.get_mut(usize::from(*guard)) else {
                return ChainPass::Stopped(place);
            };
            match catch_unwind(AssertUnwindSafe(|| post.guard.passes(request))) {
                Ok(true) => {}
                Ok(false) => return ChainPass::Stopped(place),
                Err(_panic) => return ChainPass::Panicked,
            }
        }
        ChainPass::Passed
    }

    /// Returns the context numbers of the guards before a handler.
    pub(crate) fn contexts(&self, handler: Option<u16>) -> Vec<u16> {
        let chain = self.chain(false, handler);
        chain.iter().flat_map(|chain| chain.iter()).map(|number| JobId::context_of(*number)).collect()
    }

    /// Counts a guard's job that was handed to the pool.
    pub(crate) fn job_begins(&mut self, job: JobId) {
        if let Some(post) = job.guard().and_then(|number| self.post(number)) {
            post.jobs += 1;
        }
    }

    /// Returns the watched descriptors of the guard with this context.
    pub(crate) fn watches(&mut self, context: u16) -> Option<&mut Vec<Token>> {
        let number = JobId::guard_of(context)?;
        self.post(number).map(|post| &mut post.watches)
    }

    pub(crate) fn shrink(&mut self) {
        for post in self.posts.iter_mut().flatten() {
            post.guard.shrink();
        }
    }

    fn post(&mut self, number: u16) -> Option<&mut GuardEntry> {
        self.posts.get_mut(usize::from(number))?.as_mut()
    }

    /// Marks all guards as retired. Returns whether there are any.
    pub(crate) fn retire(&mut self) -> bool {
        for post in self.posts.iter_mut().flatten() {
            post.retired = true;
        }
        self.posts.iter().any(Option::is_some)
    }

    /// Adds a guard under a number from [`Guards::free`].
    pub(crate) fn put(&mut self, number: u16, guard: Box<dyn Guard>) {
        self.posts[usize::from(number)] =
            Some(GuardEntry { guard, retired: false, jobs: 0, watches: Vec::new() });
    }

    /// Sets the chains of a plan: one for the server, and one for each handler that includes the server's guards.
    pub(crate) fn set_chains(&mut self, server: Chain, chains: impl Iterator<Item = (u16, Chain)>) {
        self.chains = chains.filter(|(_, chain)| chain.len() > server.len()).collect();
        self.server = Some(server).filter(|chain| !chain.is_empty());
        self.posted = self.server.is_some() || !self.chains.is_empty();
    }

    /// Returns an unused guard number. Its entry in `posts` exists and is `None`.
    pub(crate) fn free(&mut self) -> u16 {
        let free = self.posts.iter().position(Option::is_none).unwrap_or_else(|| {
            self.posts.push(None);
            self.posts.len() - 1
        });
        // Only requests that are held, and jobs, keep guards of earlier plans.
        assert!(free < JobId::GUARDS_MAX, "too many guards of earlier plans");
        free as u16
    }
}

impl Core {
    /// Drops the unused guards of earlier plans. Returns the descriptors that they watched.
    pub(crate) fn drop_retired_guards(&mut self) -> Vec<Token> {
        let mut watches = Vec::new();
        for number in 0..self.guards.posts.len() {
            let Some(post) = self.guards.posts[number].as_mut().filter(|post| post.retired) else { continue };
            let holds = |held: &HeldRequest| held.way.chain.iter().any(|guard| usize::from(*guard) == number);
            if post.jobs > 0
                || self.records.iter().filter_map(|(_, record)| record.held.as_deref()).any(holds)
            {
                self.retired = true;
                continue;
            }
            watches.append(&mut post.watches);
            self.guards.posts[number] = None;
            self.retire_upstreams(JobId::context_of(number as u16));
        }
        watches
    }

    /// Lets the guards check a request whose head is complete, from the one at `next` on.
    #[inline(never)]
    pub(crate) fn guarded(
        &mut self,
        token: Token,
        request: Request<'_>,
        asked: Asked,
        intake: Intake,
        handler: Option<u16>,
        next: usize,
    ) {
        let admin = self.conns[token.index as usize].has(ADMIN);
        let chain = self.guards.chain(admin, handler).expect("a guard of it has stopped the request");
        let chain = Chain::clone(chain);
        if self.log.is_on() && request.given_id().is_some() {
            // The copy of a held request does not know its proxy.
            self.open_id(token, &request);
        }
        self.generation = self.generation.wrapping_add(1);
        let place = self.open_record(token, asked, intake, handler.unwrap_or(NO_HANDLER), None);
        let way = GuardProgress { chain, next, passage: None };
        self.pass_guards(token, place, Subject::Lent(request), way);
    }

    /// Calls the remaining guards of a request, then its handler.
    fn pass_guards(&mut self, token: Token, place: u32, subject: Subject<'_>, mut way: GuardProgress) {
        while let Some(guard) = way.chain.get(way.next).copied() {
            way.next += 1;
            let request = subject.view(way.passage.as_deref());
            match self.ask_guard(guard, place, &request) {
                Some(GuardOutcome::Pass(passage)) => way.add(passage),
                Some(GuardOutcome::Refuse(reply)) => {
                    return self.reject(token, place, &subject, &way, reply);
                }
                Some(GuardOutcome::Later(GuardHold(key))) => {
                    if self.records.get(place).is_none_or(|record| record.key(place) != key) {
                        // The hold belongs to another request, so no ticket would ever decide about this one.
                        self.metrics.guard_tickets_dropped.add(1);
                        return self.answer_guarded(token, place, &subject, &way, Reply::error(500));
                    }
                    self.conns[token.index as usize].deadline_ns = u64::MAX;
                    let held = HeldRequest { request: subject.keep(), way, verdict: None };
                    if let Some(record) = self.records.get_mut(place) {
                        record.held = Some(Box::new(held));
                    }
                    return;
                }
                None => {
                    self.conns[token.index as usize].reason = CloseReason::HandlerPanic;
                    self.metrics.guard_panics.add(1);
                    let reply = Reply::error(500).and_close();
                    return self.answer_guarded(token, place, &subject, &way, reply);
                }
            }
        }
        if let Some(passage) = &mut way.passage
            && !passage.until_end.is_empty()
            && let Some(record) = self.records.get_mut(place)
        {
            record.until_end = Some(std::mem::take(&mut passage.until_end).into());
        }
        self.admit(token, place, &subject, &way);
    }

    /// Calls a guard; `None` if it has panicked.
    fn ask_guard(&mut self, guard: u16, place: u32, request: &Request<'_>) -> Option<GuardOutcome> {
        let key = self.name_anew(place)?;
        let call = GuardCall { link: &self.link, key };
        let guard = &mut self.guards.post(guard)?.guard;
        catch_unwind(AssertUnwindSafe(|| guard.check(request, call))).ok()
    }

    /// Gives an open exchange a new key. Tickets with the old key are void.
    fn name_anew(&mut self, place: u32) -> Option<ExchangeKey> {
        self.generation = self.generation.wrapping_add(1);
        let record = self.records.get_mut(place)?;
        record.generation = self.generation;
        Some(record.key(place))
    }

    /// A request has passed all guards: calls its handler.
    fn admit(&mut self, token: Token, place: u32, subject: &Subject<'_>, way: &GuardProgress) {
        let handler = self.records.get(place).map_or(NO_HANDLER, |record| record.handler);
        if handler == NO_HANDLER {
            let reply = Self::no_handler();
            self.count_refusal(&reply);
            return self.answer_guarded(token, place, subject, way, reply);
        }
        self.hand_over(token, place, subject, way, |handler, request, exchange| {
            handler.call(request, exchange)
        });
    }

    /// A guard has rejected a request: its handler may give the response another content.
    fn reject(&mut self, token: Token, place: u32, subject: &Subject<'_>, way: &GuardProgress, reply: Reply) {
        let has_handler = self.records.get(place).is_some_and(|record| record.handler != NO_HANDLER);
        if !has_handler || !(400..500).contains(&reply.status) {
            return self.answer_guarded(token, place, subject, way, reply);
        }
        self.hand_over(token, place, subject, way, |handler, request, exchange| {
            handler.rejected(request, exchange, reply)
        });
    }

    /// Calls the handler of a request.
    fn hand_over(
        &mut self,
        token: Token,
        place: u32,
        subject: &Subject<'_>,
        way: &GuardProgress,
        call: impl FnOnce(&mut dyn Handler, &Request<'_>, Exchange) -> Outcome,
    ) {
        let handler = self.records.get(place).map_or(NO_HANDLER, |record| record.handler);
        let Some(key) = self.name_anew(place) else { return };
        let request = subject.view(way.passage.as_deref());
        self.begin_guarded_entry(place, &request);
        let mut exchange = Exchange::new(Arc::clone(&self.link), key);
        if let Some(passage) = &way.passage {
            exchange.add_guard_fields(&passage.fields);
        }
        self.link.call.enter(key.word());
        let called = self.handlers[usize::from(handler)].as_mut().map(|mounted| {
            catch_unwind(AssertUnwindSafe(|| call(&mut *mounted.handler, &request, exchange)))
        });
        let dropped = self.link.call.leave();
        let mut reply = match called {
            Some(Ok(Outcome::Now(reply))) => reply,
            Some(Ok(Outcome::Later)) if !dropped => {
                self.conns[token.index as usize].deadline_ns = u64::MAX;
                return;
            }
            Some(Ok(Outcome::Takeover(mut takeover))) => {
                if let Some(passage) = &way.passage {
                    takeover.fields.extend(&passage.fields);
                }
                return self.take_over_record(token, place, takeover);
            }
            Some(Ok(Outcome::Later)) | None => Reply::error(500),
            Some(Err(_panic)) => {
                self.conns[token.index as usize].reason = CloseReason::HandlerPanic;
                self.metrics.handler_panics.add(1);
                Reply::error(500).and_close()
            }
        };
        way.add_fields(&mut reply);
        self.answer_record(token, place, reply);
    }

    /// Responds to a request without calling its handler.
    fn answer_guarded(
        &mut self,
        token: Token,
        place: u32,
        subject: &Subject<'_>,
        way: &GuardProgress,
        mut reply: Reply,
    ) {
        self.begin_guarded_entry(place, &subject.view(way.passage.as_deref()));
        way.add_fields(&mut reply);
        self.answer_record(token, place, reply);
    }

    /// Begins the log line of a request, once its user is known.
    fn begin_guarded_entry(&mut self, place: u32, request: &Request<'_>) {
        let Some(record) = self.records.get(place) else { return };
        if record.entry.is_some() {
            // Another handler has passed the request on. The line is about the client's.
            return;
        }
        let token = record.token;
        let entry = self.begin_entry(token, request);
        if let Some(record) = self.records.get_mut(place) {
            record.entry = entry;
        }
    }

    /// Processes a guard's verdict; `None`: its ticket was dropped.
    pub(crate) fn verdict(&mut self, key: ExchangeKey, verdict: Option<Box<GuardVerdict>>) {
        let Some(record) = self.records.get_mut(key.slot) else { return };
        if record.generation != key.generation {
            return;
        }
        let token = record.token;
        let Some(held) = &mut record.held else { return };
        held.verdict = Some(verdict);
        if !self.conns[token.index as usize].has(SENDING) {
            self.resume_held(token, key.slot);
            self.go_on(token);
        }
    }

    /// Calls the handler of another mount for an open exchange, as soon as no send is in flight.
    pub(crate) fn reroute(&mut self, Reroute { exchange: key, request, fields }: Reroute) {
        let Some(record) = self.records.get(key.slot) else { return };
        if record.generation != key.generation || record.answered || record.reply.is_some() {
            return;
        }
        let token = record.token;
        let admin = self.conns[token.index as usize].has(ADMIN);
        let handler = self.route(admin, request.view().path()).unwrap_or(NO_HANDLER);
        let way = GuardProgress { chain: Rc::new([]), next: 0, passage: None };
        let Request { user, passed, .. } = request.view();
        let (user, passed) = (user.cloned(), passed.cloned());
        let passage = Passage { fields, user, passed, until_end: Vec::new() };
        let passage = Box::new(GuardVerdict::Pass(passage));
        let held = HeldRequest { request, way, verdict: Some(Some(passage)) };
        let Some(record) = self.records.get_mut(key.slot) else { return };
        record.handler = handler;
        record.held = Some(Box::new(held));
        if !self.conns[token.index as usize].has(SENDING) {
            self.resume_held(token, key.slot);
            self.go_on(token);
        }
    }

    /// Continues with a held request, if it has a verdict.
    pub(crate) fn resume_held(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get_mut(place) else { return };
        let Some(held) = record.held.take_if(|held| held.verdict.is_some()) else { return };
        let HeldRequest { request, mut way, verdict } = *held;
        let subject = Subject::Kept(request);
        match verdict.flatten().map(|verdict| *verdict) {
            Some(GuardVerdict::Pass(passage)) => {
                way.add(passage);
                self.pass_guards(token, place, subject, way);
            }
            Some(GuardVerdict::Refuse(reply)) => self.reject(token, place, &subject, &way, reply),
            None => {
                self.metrics.guard_tickets_dropped.add(1);
                self.answer_guarded(token, place, &subject, &way, Reply::error(500));
            }
        }
    }

    /// Reports to its guard that the client of a held request has disconnected. Returns the log entry.
    pub(crate) fn abandon_held(
        &mut self,
        token: Token,
        key: ExchangeKey,
        held: &HeldRequest,
    ) -> Option<Box<LogEntry>> {
        let HeldRequest { request, way, .. } = held;
        let asked = way.next.checked_sub(1).and_then(|at| way.chain.get(at)).copied();
        if let Some(post) = asked.and_then(|number| self.guards.post(number))
            && catch_unwind(AssertUnwindSafe(|| post.guard.gone(key))).is_err()
        {
            self.metrics.guard_panics.add(1);
        }
        let user = way.passage.as_deref().and_then(|passage| passage.user.as_ref());
        self.begin_entry(token, &Request { user, ..request.view() })
    }

    /// Passes an event of an outgoing connection to its guard. An error is a panic of the guard.
    pub(crate) fn guard_upstream(
        &mut self,
        guard: u16,
        id: UpstreamId,
        event: UpstreamEvent<'_>,
    ) -> std::thread::Result<()> {
        let Some(post) = self.guards.post(guard) else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| post.guard.upstream(id, event)))
    }

    /// Notifies the guard that watches a descriptor: it is readable.
    pub(crate) fn guard_watched(&mut self, token: Token) {
        let mut posts = self.guards.posts.iter_mut().flatten();
        if let Some(post) = posts.find(|post| post.watches.contains(&token))
            && catch_unwind(AssertUnwindSafe(|| post.guard.watched())).is_err()
        {
            self.metrics.guard_panics.add(1);
        }
    }

    /// Passes the result of a job to its guard.
    pub(crate) fn guard_offloaded(&mut self, job: JobId, done: Option<Done>) {
        let Some(post) = job.guard().and_then(|number| self.guards.post(number)) else { return };
        post.jobs -= 1;
        if catch_unwind(AssertUnwindSafe(|| post.guard.offloaded(job, done))).is_err() {
            self.metrics.guard_panics.add(1);
        }
    }
}
