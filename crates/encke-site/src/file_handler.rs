//! `FileHandler` serves files on one worker: from the file cache, or by offloading look-ups that would block to the thread pool.
//!
//! ```text
//!   call ─► fresh in the cache? ── yes ─► response
//!             │ no
//!             ▼
//!           look up without blocking ── found ─► cache, watch ─► response
//!             │ needs the disk
//!             ▼
//!           PoolJob, a job on the pool, one for all requests ── offloaded ─► look up again ─► cache, watch ─► responses
//! ```
//! A look-up is valid if all its directories were watched before it began and no notification arrived meanwhile. Otherwise it
//! is repeated: on the worker, for which the pool has filled the kernel's caches, or on the pool. A file that cannot be watched
//! (on a network file system), or that keeps changing, is cached for `revalidate`.
//!
//! A request may look up several names: an error leads to its page, a missing page of a `spa` to the index.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use encke_io::changes::Changes;
use encke_io::files::{OpenError, Patience};
use encke_io::{Done, Now};
use encke_settings::{Level, notice};
use encke_wire::coding::Coding;
use encke_wire::method::Method;
use encke_wire::target::{decode_path, encode_path};

use super::Shared;
use super::compression_cache::{CompressionKey, CompressionOutcome};
use super::error::CompressionError;
use super::file_cache::{self, CacheCost, FileCache, SlotKey};
use super::file_check;
use super::find::{Absence, Content, LookupResult, LookupTarget, SiteRoot};
use super::listing::{Listing, ListingView};
use super::page::{Page, SETTLED_AFTER_NS};
use super::status_error::{StatusError, accepts_html, asks_for_html};
use super::tastes::Tastes;
use super::watch::{DirWatcher, WatchOutcome, give_back};
use encke_server::{
    Body, ContentView, Exchange, Fields, Handler, HandlerContext, JobId, Kept, LogLabel, Outcome, Reply,
    Request,
};

/// The file handler of a worker.
pub(super) struct FileHandler {
    context: HandlerContext,
    shared: Arc<Shared>,
    grounds: Vec<SiteRoot>,
    cache: FileCache<Resource>,
    watch: DirWatcher,
    tastes: Tastes,
    /// Requests that wait for the thread pool.
    waiting: HashMap<LookupTask, PendingLookup>,
    jobs: HashMap<JobId, PoolJob>,
    /// The time of the next check for replaced roots, in ns of the monotonic clock: made by the next cold request.
    roots_due_ns: u64,
    /// A symbolic link leads to a root. Every request may then run that check, since no notification reports a new target.
    linked_roots: bool,
    /// Multipart boundaries created so far.
    boundaries: u64,
}

/// The result of a look-up, as the cache holds it.
pub(super) enum Resource {
    Page(Page),
    /// Any other result, with the fields of the rules.
    Else(Else, Fields),
}

pub(super) enum Else {
    /// A directory whose path lacks the trailing slash.
    Slash,
    Listing,
    /// Status, target, and whether the query of the request is appended.
    Moved(u16, String, bool),
    /// Nothing to serve, and whether a rule removes X-Content-Type-Options.
    Absent(Absence, bool),
}

/// The name that a request looks up, and the purpose.
struct Goal {
    site: u16,
    /// The raw path.
    path: Vec<u8>,
    purpose: GoalPurpose,
}

#[derive(Clone)]
enum GoalPurpose {
    /// The path of the request.
    Asked,
    /// The index of a `spa`, in place of a page that does not exist.
    Fallback,
    /// The page for an error.
    Error(StatusError),
}

/// The outcome of a look-up for a goal.
enum LookOutcome {
    Reply(Reply),
    /// The thread pool is needed.
    Wait(LookupTask, Goal),
}

/// Blocking work for which requests wait.
#[derive(Clone, PartialEq, Eq, Hash)]
enum LookupTask {
    /// Site and raw path.
    Find(u16, Vec<u8>),
    List(u16, Vec<u8>, ListingView),
}

/// The requests that wait for a task.
#[derive(Default)]
struct PendingLookup {
    waiters: Vec<Waiter>,
    /// The number of jobs sent to the pool.
    sent: usize,
    /// The epoch of the watch when the last job was sent.
    epoch: u64,
}

struct Waiter {
    exchange: Exchange,
    request: Kept,
    goal: Goal,
}

/// The purpose of a job on the pool.
enum PoolJob {
    For(LookupTask),
    Press(SlotKey, Coding),
    Roots,
}

impl FileHandler {
    /// Creates a handler that receives notifications from `changes`; `None` if there are none.
    pub(super) fn new(
        shared: Arc<Shared>,
        grounds: Vec<SiteRoot>,
        context: HandlerContext,
        changes: Option<Changes>,
    ) -> Self {
        if let Some(watched) = changes.as_ref().and_then(|changes| changes.watched().ok()) {
            context.watch(watched);
        }
        shared.clerks.fetch_add(1, Ordering::Relaxed);
        Self {
            cache: FileCache::new(shared.hash_key, shared.share()),
            roots_due_ns: context.now().mono_ns + ROOTS_EVERY_NS,
            linked_roots: grounds.iter().any(SiteRoot::is_linked),
            context,
            shared,
            grounds,
            watch: DirWatcher::new(changes),
            tastes: Tastes::default(),
            waiting: HashMap::new(),
            jobs: HashMap::new(),
            boundaries: 0,
        }
    }
}

impl Drop for FileHandler {
    fn drop(&mut self) {
        self.shared.clerks.fetch_sub(1, Ordering::Relaxed);
        if let Some(changes) = self.watch.end() {
            give_back(changes);
        }
    }
}

impl Handler for FileHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let Some(site) = self.shared.site(request.authority()) else {
            // Without any site no other name leads to one, so that 421 would mislead.
            let (status, rule) = if self.grounds.is_empty() { (404, &NO_SITE) } else { (421, &UNKNOWN_HOST) };
            self.context.refused(rule);
            return Outcome::Now(StatusError::new(status).because(rule).reply(request));
        };
        let mut outcome = self.serve(request, site, exchange);
        if let Outcome::Now(reply) = &mut outcome {
            self.insist_on_tls(request, site, reply);
        }
        outcome
    }

    fn rejected(&mut self, request: &Request<'_>, exchange: Exchange, reply: Reply) -> Outcome {
        let Some(site) = self.shared.site(request.authority()) else { return Outcome::Now(reply) };
        let rules = &self.grounds[usize::from(site)].rules;
        if rules.error_page(reply.status).is_none() {
            return Outcome::Now(reply);
        }
        let mut fields = Fields::new();
        let content = [
            "content-type",
            "content-encoding",
            "content-language",
            "cache-control",
            "vary",
            "x-content-type-options",
        ];
        for (name, value) in reply.fields.iter() {
            let is_content = content.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()));
            if !is_content && let Ok(name) = std::str::from_utf8(name) {
                // The name and the value were a field before.
                let _ = fields.push(name, value);
            }
        }
        let fault = StatusError { status: reply.status, fields, sniffable: false, rule: reply.cause() };
        let mut outcome = self.fail(request, site, fault, exchange);
        if let Outcome::Now(reply) = &mut outcome {
            self.insist_on_tls(request, site, reply);
        }
        outcome
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        match self.jobs.remove(&job) {
            Some(PoolJob::For(task @ LookupTask::Find(..))) => self.found(task, done),
            Some(PoolJob::For(task @ LookupTask::List(..))) => self.listed(&task, done),
            Some(PoolJob::Press(key, coding)) => self.compressed(key, coding, done),
            Some(PoolJob::Roots) => self.roots_checked(done),
            None => {}
        }
    }

    fn watched(&mut self) {
        let news = self.watch.read();
        if news.top_gone {
            self.check_roots(self.context.now());
        }
        let mut removed = Vec::new();
        if news.all {
            self.cache.clear(&mut removed);
        }
        for key in news.stale {
            self.cache.remove(key, &mut removed);
        }
        self.watch.release(&removed);
    }

    fn shrink(&mut self) {
        let mut removed = Vec::new();
        self.cache.clear(&mut removed);
        self.watch.release(&removed);
    }

    fn log_label(&self, request: &Request<'_>) -> LogLabel<'_> {
        let site = self.shared.site(request.authority());
        let Some(site) = site.map(usize::from) else { return LogLabel::default() };
        let output = self.shared.outputs.get(site).copied().unwrap_or_default();
        LogLabel { site: self.shared.names.get(site).map(|name| &**name), output }
    }
}

impl FileHandler {
    /// Serves a request from the cache if it can.
    #[inline]
    fn serve(&mut self, request: &Request<'_>, site: u16, exchange: Exchange) -> Outcome {
        let now = request.now();
        if self.linked_roots && now.mono_ns >= self.roots_due_ns {
            self.check_roots(now);
        }
        if request.method().reads() && !request.is_conditional() {
            let name = self.cache.name(site, request.path());
            if let Some(resource) = self.cache.find(&name, now.mono_ns)
                && let Resource::Page(page) = &**resource
            {
                let (whole, wanted) = page.whole(|| self.tastes.of(request));
                if file_check::is_current(whole) {
                    let reply = Reply::prepared(Arc::clone(whole));
                    if let Some(coding) = wanted {
                        self.compress(request, site, request.path(), coding);
                    }
                    return Outcome::Now(reply);
                }
            }
        }
        self.consider(request, site, exchange)
    }

    /// Adds Strict-Transport-Security to a response to a request over TLS (RFC 6797 §7.2). The cached response serves all
    /// requests, so the field is added to each response.
    #[inline]
    fn insist_on_tls(&self, request: &Request<'_>, site: u16, reply: &mut Reply) {
        if let Some(hsts) = self.grounds[usize::from(site)].rules.hsts()
            && request.origin().secure
        {
            reply.fields.extend(hsts);
        }
    }

    /// Serves all other requests.
    #[cold]
    fn consider(&mut self, request: &Request<'_>, site: u16, exchange: Exchange) -> Outcome {
        match request.method() {
            Method::Get | Method::Head => {}
            _ => return self.without_file(request, site, exchange),
        }
        let goal = Goal { site, path: request.path().to_vec(), purpose: GoalPurpose::Asked };
        self.begin(request, goal, exchange)
    }

    /// Responds to a request whose method no file supports: rules for its path apply to all methods.
    fn without_file(&mut self, request: &Request<'_>, site: u16, exchange: Exchange) -> Outcome {
        let rules = Arc::clone(&self.grounds[usize::from(site)].rules);
        let mut fault = StatusError::new(405).because(&METHOD);
        let mut path = String::new();
        if decode_path(request.path(), &mut path).is_ok() {
            let policy = rules.policy(&path);
            if let Some((status, target, keeps_query)) = rules.moved(&path) {
                return Outcome::Now(moved(request, status, &target, keeps_query, &policy.fields));
            }
            if let Some(status) = policy.special.status {
                let absence = Absence::by_rule(status);
                self.tell_absence(request, &absence);
                fault = StatusError::new(status).because(absence.rule);
            }
            (fault.fields, fault.sniffable) = (policy.fields, policy.sniffable);
        }
        if fault.status == 405 {
            if request.method() == Method::Options {
                return Outcome::Now(Reply::new(204).with("Allow", ALLOW));
            }
            self.context.refused(METHOD);
            fault.fields.push("Allow", ALLOW.as_bytes()).expect("a list of methods");
        }
        self.fail(request, site, fault, exchange)
    }

    /// Responds with an error: the site's page for it, or the default one.
    fn fail(&mut self, request: &Request<'_>, site: u16, fault: StatusError, exchange: Exchange) -> Outcome {
        let Some(page) = self.grounds[usize::from(site)].rules.error_page(fault.status) else {
            return Outcome::Now(fault.reply(request));
        };
        let path = escaped(page).into_bytes();
        self.begin(request, Goal { site, path, purpose: GoalPurpose::Error(fault) }, exchange)
    }

    /// Follows a goal to a response, or lets the request wait for the thread pool.
    fn begin(&mut self, request: &Request<'_>, goal: Goal, exchange: Exchange) -> Outcome {
        match self.pursue(request, goal, None) {
            LookOutcome::Reply(reply) => Outcome::Now(reply),
            LookOutcome::Wait(task, goal) => {
                self.wait(task, Waiter { exchange, request: request.keep(), goal });
                Outcome::Later
            }
        }
    }

    /// Follows a goal to a response or to the thread pool. `here` is the result for its name, if already known.
    fn pursue(
        &mut self,
        request: &Request<'_>,
        mut goal: Goal,
        mut here: Option<Rc<Resource>>,
    ) -> LookOutcome {
        loop {
            let resource = match here.take() {
                Some(resource) => resource,
                None => match self.look(goal.site, &goal.path, request.now()) {
                    Some(resource) => resource,
                    None => return LookOutcome::Wait(LookupTask::Find(goal.site, goal.path.clone()), goal),
                },
            };
            let next = match (&*resource, &goal.purpose) {
                (Resource::Page(page), GoalPurpose::Error(fault)) => {
                    let mut reply = page.as_error(fault.status);
                    reply.fields.extend(&fault.fields);
                    if let Some(rule) = fault.rule {
                        reply = reply.because(rule);
                    }
                    return LookOutcome::Reply(reply);
                }
                (Resource::Page(page), _) => return LookOutcome::Reply(self.page(request, &goal, page)),
                // An error on the way to an error page: the default page is sent.
                (_, GoalPurpose::Error(fault)) => return LookOutcome::Reply(fault.reply(request)),
                (Resource::Else(Else::Slash, fields), _) => {
                    return LookOutcome::Reply(slash(request, &goal.path, fields));
                }
                (Resource::Else(Else::Moved(status, target, keeps_query), fields), _) => {
                    return LookOutcome::Reply(moved(request, *status, target, *keeps_query, fields));
                }
                (Resource::Else(Else::Listing, _), _) => {
                    let view = ListingView::of(request);
                    return LookOutcome::Wait(LookupTask::List(goal.site, goal.path.clone(), view), goal);
                }
                (Resource::Else(Else::Absent(Absence { status: 404, .. }, _), _), GoalPurpose::Asked)
                    if self.has_fallback(request, goal.site) =>
                {
                    GoalPurpose::Fallback
                }
                (Resource::Else(Else::Absent(absence, sniffable), fields), _) => {
                    let Absence { status, rule } = *absence;
                    self.tell_absence(request, absence);
                    let fields = fields.clone();
                    GoalPurpose::Error(StatusError {
                        status,
                        fields,
                        sniffable: *sniffable,
                        rule: Some(rule),
                    })
                }
            };
            goal.path.clear();
            match &next {
                GoalPurpose::Error(fault) => {
                    let Some(path) = self.grounds[usize::from(goal.site)].rules.error_page(fault.status)
                    else {
                        return LookOutcome::Reply(fault.reply(request));
                    };
                    goal.path = escaped(path).into_bytes();
                }
                _ => goal.path.push(b'/'),
            }
            goal.purpose = next;
        }
    }

    /// Looks up a name; `None` if only the thread pool can.
    fn look(&mut self, site: u16, raw: &[u8], now: Now) -> Option<Rc<Resource>> {
        let name = self.cache.name(site, raw);
        if let Some(resource) = self.cache.find(&name, now.mono_ns)
            && resource.is_current()
        {
            return Some(Rc::clone(resource));
        }
        if let Some(resource) = self.checked(site, raw, now) {
            return Some(resource);
        }
        if now.mono_ns >= self.roots_due_ns {
            self.check_roots(now);
        }
        let mut path = String::new();
        if let Err(error) = decode_path(raw, &mut path) {
            self.context.refused(error.reason());
            return Some(Rc::new(Resource::absent(Absence { status: 400, rule: error.reason_ref() })));
        }
        let ground = &self.grounds[usize::from(site)];
        if !ground.is_near(&path) {
            return None;
        }
        let found = ground.find(&path, Patience::Cached).ok()?;
        let watched = self.watch_steps(site, &found);
        let (found, is_watched) = match watched {
            WatchOutcome::Before => (found, true),
            WatchOutcome::Never => (found, false),
            // The file may have changed between the look-up and the watch: look it up again, now that it is watched.
            WatchOutcome::Now => {
                let again = self.grounds[usize::from(site)].find(&path, Patience::Cached).ok()?;
                let same_way = again.steps == found.steps;
                (again, same_way)
            }
        };
        Some(self.admit(site, raw, found, is_watched, now))
    }

    /// The watched page of a name, if a check finds its files unchanged.
    fn checked(&mut self, site: u16, raw: &[u8], now: Now) -> Option<Rc<Resource>> {
        let name = self.cache.name(site, raw);
        let resource = Rc::clone(self.cache.find_stale(&name)?);
        let Resource::Page(page) = &*resource else { return None };
        let ground = &self.grounds[usize::from(site)];
        if now.mono_ns >= page.look_up_ns || !page.files.are_unchanged(ground) {
            return None;
        }
        let until_ns = now.mono_ns.saturating_add(ground.rules.revalidate_ns).min(page.look_up_ns);
        self.cache.extend(&name, until_ns);
        Some(resource)
    }

    /// Writes the rule that decided about a 403 or 404, for operators who look for the reason.
    #[cold]
    fn tell_absence(&self, request: &Request<'_>, absence: &Absence) {
        if matches!(absence.status, 403 | 404) && notice::is_written(Level::Debug) {
            let Absence { status, rule } = absence;
            let host = request.authority().escape_ascii();
            // The query may hold a token.
            let path = request.path().escape_ascii();
            notice::report(Level::Debug, &format!("{status} for {path} of host {host}: {rule}"));
        }
    }

    fn watch_steps(&mut self, site: u16, found: &LookupResult) -> WatchOutcome {
        let Some(steps) = &found.steps else { return WatchOutcome::Never };
        let tops = self.grounds[usize::from(site)].tops();
        let tops: Vec<&Path> = tops.iter().map(PathBuf::as_path).collect();
        self.watch.watch(steps, &tops)
    }

    /// Adds the result of a look-up to the cache.
    fn admit(
        &mut self,
        site: u16,
        raw: &[u8],
        found: LookupResult,
        is_watched: bool,
        now: Now,
    ) -> Rc<Resource> {
        let name = self.cache.name(site, raw);
        let rules = Arc::clone(&self.grounds[usize::from(site)].rules);
        let LookupResult { thing, policy, steps } = found;
        let mut fresh_for_ns = if is_watched { WATCHED_FOR_NS } else { rules.revalidate_ns };
        let resource = match thing {
            LookupTarget::Page(leaf) => {
                let mut page = Page::of(*leaf, policy, &rules, now.unix_ns);
                fresh_for_ns = fresh_for_ns.min(rules.revalidate_ns);
                if page.is_weak() {
                    // Another change might leave the same times: a check could not notice it.
                    fresh_for_ns = fresh_for_ns.min(SETTLED_AFTER_NS);
                } else if is_watched {
                    page.look_up_ns = now.mono_ns.saturating_add(WATCHED_FOR_NS);
                }
                if let Some(before) = self.cache.find_stale(&name)
                    && let Resource::Page(before) = &**before
                {
                    page.inherit(before);
                }
                Resource::Page(page)
            }
            LookupTarget::Slash => Resource::Else(Else::Slash, policy.fields),
            LookupTarget::Listing => Resource::Else(Else::Listing, policy.fields),
            LookupTarget::Moved(status, target, keeps_query) => {
                Resource::Else(Else::Moved(status, target, keeps_query), policy.fields)
            }
            LookupTarget::Absent(absence) => {
                if absence.status == 403 {
                    // The owner may permit it under another name of the file.
                    fresh_for_ns = fresh_for_ns.min(rules.revalidate_ns);
                }
                Resource::Else(Else::Absent(absence, policy.sniffable), policy.fields)
            }
        };
        let resource = Rc::new(resource);
        let mut removed = Vec::new();
        self.cache.limit(self.shared.share());
        let until_ns = now.mono_ns.saturating_add(fresh_for_ns);
        let key = self.cache.put(&name, Rc::clone(&resource), until_ns, &mut removed);
        if is_watched {
            self.watch.depend(key, steps.unwrap_or_default());
        }
        self.watch.release(&removed);
        resource
    }

    fn page(&mut self, request: &Request<'_>, goal: &Goal, page: &Page) -> Reply {
        let taste = self.tastes.of(request);
        self.boundaries += 1;
        let boundary = u128::from(self.shared.hash_key.word(2 * self.boundaries)) << 64
            | u128::from(self.shared.hash_key.word(2 * self.boundaries + 1));
        let (reply, wanted) = page.answer(request, taste, boundary);
        if let Some(coding) = wanted {
            self.compress(request, goal.site, &goal.path, coding);
        }
        reply
    }

    /// Whether the index replaces a page that does not exist: the request is a navigation, or the settings include others.
    fn has_fallback(&self, request: &Request<'_>, site: u16) -> bool {
        let rules = &self.grounds[usize::from(site)].rules;
        let last = request.path().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let accepts = if rules.spa_wildcards { accepts_html } else { asks_for_html };
        rules.spa && (rules.spa_dots || !last.contains(&b'.')) && accepts(request)
    }

    fn wait(&mut self, task: LookupTask, waiter: Waiter) {
        if let Some(wait) = self.waiting.get_mut(&task) {
            wait.waiters.push(waiter);
        } else {
            self.send(task, PendingLookup { waiters: vec![waiter], ..PendingLookup::default() });
        }
    }

    /// Sends a job to the thread pool.
    fn send(&mut self, task: LookupTask, mut wait: PendingLookup) {
        let (LookupTask::Find(site, raw) | LookupTask::List(site, raw, _)) = &task;
        let ground = self.grounds[usize::from(*site)].clone();
        let mut path = String::new();
        decode_path(raw, &mut path).expect("what could not be decoded was answered at once");
        let job = match task {
            LookupTask::Find(..) => self.context.offload(move || ground.find_patiently(&path)),
            LookupTask::List(_, _, view) => self
                .context
                .offload(move || Listing::read(&ground, &path).map(|listing| view.render(listing))),
        };
        self.jobs.insert(job, PoolJob::For(task.clone()));
        wait.sent += 1;
        wait.epoch = self.watch.epoch();
        self.waiting.insert(task, wait);
    }

    /// Takes the result of a look-up on the pool.
    fn found(&mut self, task: LookupTask, done: Option<Done>) {
        let wait = self.waiting.remove(&task).unwrap_or_default();
        let (LookupTask::Find(site, raw) | LookupTask::List(site, raw, _)) = &task;
        let now = self.context.now();
        // Reads the notifications that arrived during the look-up.
        self.watched();
        let result = done.and_then(|done| done.downcast::<Result<LookupResult, OpenError>>().ok());
        let resource = match result.map(|result| *result) {
            Some(Ok(found)) => {
                let is_same = wait.epoch == self.watch.epoch();
                match self.watch_steps(*site, &found) {
                    WatchOutcome::Before if is_same => Ok(self.admit(*site, raw, found, true, now)),
                    WatchOutcome::Never => Ok(self.admit(*site, raw, found, false, now)),
                    WatchOutcome::Before | WatchOutcome::Now => match self.look(*site, raw, now) {
                        Some(resource) => Ok(resource),
                        None if wait.sent < SENT_MAX => return self.send(task, wait),
                        None => Ok(self.admit(*site, raw, found, false, now)),
                    },
                }
            }
            Some(Err(OpenError::Descriptors)) => {
                self.shrink();
                if wait.sent < SENT_MAX {
                    return self.send(task, wait);
                }
                Err(Absence { status: 503, rule: &"no_descriptors" })
            }
            // The pool's queue is full, or the directories of the path are renamed continually.
            None | Some(Err(OpenError::NotCached)) => Err(Absence { status: 503, rule: &"file_pool_busy" }),
            Some(Err(_)) => Err(Absence { status: 500, rule: &"system" }),
        };
        for Waiter { exchange, request, goal } in wait.waiters {
            let here = match &resource {
                Ok(resource) => Rc::clone(resource),
                Err(absence) => Rc::new(Resource::absent(*absence)),
            };
            let site = goal.site;
            match self.pursue(&request.view(), goal, Some(here)) {
                LookOutcome::Reply(mut reply) => {
                    self.insist_on_tls(&request.view(), site, &mut reply);
                    exchange.answer(reply);
                }
                LookOutcome::Wait(task, goal) => self.wait(task, Waiter { exchange, request, goal }),
            }
        }
    }

    /// Takes the listing of a directory from the pool.
    fn listed(&mut self, task: &LookupTask, done: Option<Done>) {
        let wait = self.waiting.remove(task).unwrap_or_default();
        let LookupTask::List(site, raw, view) = task else { return };
        let result = done.and_then(|done| done.downcast::<Result<Vec<u8>, OpenError>>().ok());
        let content: Result<Arc<[u8]>, u16> = match result.map(|result| *result) {
            Some(Ok(content)) => Ok(content.into()),
            Some(Err(OpenError::NotFound)) => Err(404),
            Some(Err(OpenError::Forbidden)) => Err(403),
            Some(Err(OpenError::Descriptors | OpenError::NotCached)) | None => Err(503),
            Some(Err(OpenError::System(_))) => Err(500),
        };
        let mut path = String::new();
        decode_path(raw, &mut path).expect("it was decoded before it was listed");
        let policy = self.grounds[usize::from(*site)].rules.policy(&path);
        for Waiter { exchange, request, .. } in wait.waiters {
            let mut reply = match &content {
                Ok(content) => {
                    let mut reply = Reply::new(200)
                        .with("Content-Type", view.content_type())
                        .with("Vary", "Accept")
                        .with("Cache-Control", "no-cache")
                        .with("X-Content-Type-Options", "nosniff");
                    reply.fields.extend(&policy.fields);
                    reply.body(Body::Shared(Arc::clone(content)))
                }
                Err(status) => {
                    let fields = policy.fields.clone();
                    StatusError { fields, sniffable: policy.sniffable, ..StatusError::new(*status) }
                        .reply(&request.view())
                }
            };
            self.insist_on_tls(&request.view(), *site, &mut reply);
            exchange.answer(reply);
        }
    }

    /// Starts the compression of a page, unless it is already running. HEAD gets the head of the present GET response and
    /// starts nothing.
    #[cold]
    fn compress(&mut self, request: &Request<'_>, site: u16, raw: &[u8], coding: Coding) {
        let name = self.cache.name(site, raw);
        let Some(key) = self.cache.key(&name) else { return };
        let Some(Resource::Page(page)) = self.cache.at(key).map(|resource| &**resource) else { return };
        let pressing = self.jobs.values().filter(|errand| matches!(errand, PoolJob::Press(..)));
        let is_same = |errand: &PoolJob| matches!(errand, PoolJob::Press(one, other) if (*one, *other) == (key, coding));
        // The compressed bytes of a file that may still change would be useless.
        if request.method() != Method::Get
            || page.is_weak()
            || pressing.clone().count() >= PRESSING_MAX
            || pressing.into_iter().any(is_same)
        {
            return;
        }
        let plain = page.plain();
        let len = plain.len();
        let content = match plain.content() {
            ContentView::File(file, _) => Content::File(Arc::clone(file)),
            ContentView::Memory(bytes) => Content::Memory(bytes.to_vec()),
        };
        let source = CompressionKey { site, state: page.state(), coding };
        let shared = Arc::clone(&self.shared);
        let job = self.context.offload(move || shared.press.compressed(source, content, len));
        self.jobs.insert(job, PoolJob::Press(key, coding));
    }

    fn compressed(&mut self, key: SlotKey, coding: Coding, done: Option<Done>) {
        // The key identifies the compressed state of the file: a later look-up has another key.
        let Some(Resource::Page(page)) = self.cache.at(key).map(|resource| &**resource) else { return };
        let result =
            done.and_then(|done| done.downcast::<Result<CompressionOutcome, CompressionError>>().ok());
        let page = match result.map(|result| *result) {
            // The pool was busy, or another worker is compressing the file: the next request tries again.
            None | Some(Ok(CompressionOutcome::InProgress)) => return,
            Some(Ok(CompressionOutcome::Made(made))) => page.with_coded(coding, Some(made)),
            Some(Ok(CompressionOutcome::Futile) | Err(_)) => page.with_coded(coding, None),
        };
        self.cache.replace(key, Rc::new(Resource::Page(page)));
        while let Some(over) = self.cache.next_made() {
            let Some(Resource::Page(page)) = self.cache.at(over).map(|resource| &**resource) else { return };
            let page = page.without_made();
            self.cache.replace(over, Rc::new(Resource::Page(page)));
        }
    }

    /// Starts a check on the pool whether the paths of the roots still lead to the same directories.
    #[cold]
    fn check_roots(&mut self, now: Now) {
        self.roots_due_ns = now.mono_ns + ROOTS_EVERY_NS;
        if self.waiting.is_empty() {
            self.watch.sweep();
        }
        if self.jobs.values().any(|errand| matches!(errand, PoolJob::Roots)) {
            return;
        }
        let grounds = self.grounds.clone();
        let job = self.context.offload(move || {
            let renewed =
                grounds.iter().enumerate().filter_map(|(site, ground)| Some((site, ground.renewed()?)));
            renewed.collect::<Vec<(usize, SiteRoot)>>()
        });
        self.jobs.insert(job, PoolJob::Roots);
    }

    fn roots_checked(&mut self, done: Option<Done>) {
        let Some(renewed) = done.and_then(|done| done.downcast::<Vec<(usize, SiteRoot)>>().ok()) else {
            return;
        };
        if renewed.is_empty() {
            return;
        }
        for (site, ground) in *renewed {
            self.grounds[site] = ground;
        }
        self.shrink();
    }
}

impl Resource {
    /// Whether a fresh page may be sent: a large file may have changed without a notification.
    fn is_current(&self) -> bool {
        match self {
            Self::Page(page) => page.is_current(),
            Self::Else(..) => true,
        }
    }

    /// Nothing to serve, and no rules apply.
    const fn absent(absence: Absence) -> Self {
        Self::Else(Else::Absent(absence, false), Fields::new())
    }
}

impl file_cache::Cacheable for Resource {
    fn load(&self) -> CacheCost {
        match self {
            Self::Page(page) => CacheCost {
                names: 1,
                descriptors: page.descriptors(),
                memory: page.memory_bytes(),
                made: page.made_bytes(),
            },
            Self::Else(_, fields) => {
                CacheCost { names: 1, memory: size_of::<Self>() + fields.len_bytes(), ..CacheCost::default() }
            }
        }
    }
}

/// Redirects to the same path with a trailing slash. The target is made from the decoded path, which begins with exactly one
/// slash and therefore never names a host.
fn slash(request: &Request<'_>, raw: &[u8], fields: &Fields) -> Reply {
    let mut path = String::new();
    decode_path(raw, &mut path).expect("it was decoded when the folder was found");
    let location = format!("{}/", escaped(&path));
    moved(request, 301, &location, true, fields)
}

fn moved(request: &Request<'_>, status: u16, target: &str, keeps_query: bool, fields: &Fields) -> Reply {
    let mut location = target.as_bytes().to_vec();
    if let Some(query) = request.query().filter(|_| keeps_query) {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let mut reply = Reply::new(status).with("Cache-Control", "no-cache");
    // Cannot fail: the head parser allows no control character in a query, and rules are checked. If it did, the client would
    // get an error and no redirect.
    if reply.fields.push("Location", &location).is_err() {
        return StatusError::new(400).reply(request);
    }
    reply.fields.extend(fields);
    let text = format!("See {}\n", String::from_utf8_lossy(&location));
    reply.with("Content-Type", "text/plain; charset=utf-8").body(Body::Bytes(text.into_bytes()))
}

fn escaped(path: &str) -> String {
    let mut out = String::new();
    encode_path(path, &mut out);
    out
}

/// The reason of a 421.
const UNKNOWN_HOST: &str = "unknown_host";

/// The reason of a 404 of a server without sites.
const NO_SITE: &str = "no_site";

/// The reason of a 405.
const METHOD: &str = "method_of_file";

/// The methods that a file supports.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// The lifetime of a watched entry without another look-up: some changes cause no notification.
const WATCHED_FOR_NS: u64 = 60_000_000_000;

/// The interval of checks for replaced roots.
const ROOTS_EVERY_NS: u64 = 1_000_000_000;

/// Jobs sent to the pool for one name: until a look-up finds everything watched, and has a free descriptor.
const SENT_MAX: usize = 3;

/// Concurrent compressions of one worker; the pool has other work as well.
const PRESSING_MAX: usize = 4;
