//! Questions to an application about requests (`[[access]] ask`), and the grants in its answers.
//!
//! ```text
//!  GET /check HTTP/1.1                           2xx             passes; `copy` and `user` from its fields
//!  X-Encke-Ask: access                    ◄──    401, 403,       to the client, with content
//!  X-Forwarded-Method, -Proto, -Host,            302, 303, 307
//!    -Uri, -For                                  any other,
//!  Cookie, Authorization, Accept, …               or none:       503
//! ```
//! - **Each request has a question of its own.** An answer may set a cookie for one client, so no answer is shared.
//! - **Only answers that allow are cached**, for their `max-age`, by every byte of the question: the credentials, the method, the
//!   address of the page, and the client's address. An answer with `Set-Cookie` is not cached.
//! - **`X-Forwarded-Uri`** has the resolved path, as the request for the application of the route.
//! - **No loop.** A request with `X-Encke-Ask` is never a reason for another question.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use encke_io::Done;
use encke_server::{
    Body, ExchangeKey, Fields, GuardVerdict, HandlerContext, JobId, Passage, PassedFields, Reply, Request,
    Ticket, UpstreamEvent, UpstreamId, is_event_source,
};
use encke_wire::field::Known;
use encke_wire::http1::HeadView;
use encke_wire::target::put_resolved_path;

use super::figures::AccessCounters;
use crate::ask::kept_s;
use crate::ask_client::{AskClient, AskEndpoint, AskForm};
use crate::keys::Digest;
use crate::limits::{ANSWERS_CACHED_MAX, SUBJECT_BYTES_MAX};

/// Marks questions, so that none causes another one.
pub(crate) const MARK: &str = "X-Encke-Ask";

/// Fields of a request that an application may need for its decision.
const SENT: [&str; 7] =
    ["Cookie", "Authorization", "Accept", "Accept-Language", "Origin", "User-Agent", "X-Requested-With"];

/// Fields of a denial that its client gets.
const DENIAL_FIELDS: [&str; 9] = [
    "Cache-Control",
    "Content-Encoding",
    "Content-Language",
    "Content-Type",
    "Location",
    "Retry-After",
    "Set-Cookie",
    "Vary",
    "WWW-Authenticate",
];

/// The application of a rule.
pub(crate) struct AccessAsk {
    pub(crate) endpoint: Arc<AskEndpoint>,
    /// Fields of the answer for the application of the route.
    pub(crate) copy: Vec<String>,
    /// The field of the answer with the user's name.
    pub(crate) user: Option<String>,
    /// Fields of `copy` of all rules, which no client may send.
    pub(crate) removed: Arc<PassedFields>,
}

/// A question about one request.
pub(crate) struct AccessQuestion {
    /// Number of the question on the worker.
    number: u64,
    /// Index of the rule.
    rule: usize,
    ask: Arc<AccessAsk>,
    /// The whole request.
    bytes: Vec<u8>,
    /// Whether the client is an `EventSource`, which tries again only after a 200.
    is_event_source: bool,
}

/// The application's answer.
pub(crate) enum AccessAnswer {
    Passes { granted: Arc<AccessGrant>, kept_s: u64 },
    Denied { status: u16, fields: Fields, content: Vec<u8> },
    Unanswered(String),
}

/// Additions to a request that an application has allowed.
pub(crate) struct AccessGrant {
    user: Option<Arc<str>>,
    passed: Arc<PassedFields>,
    /// `Set-Cookie` of the answer, for the client.
    cookies: Fields,
}

impl AccessQuestion {
    /// Builds the question about a request. `None`: its path cannot be decoded, and every handler rejects it.
    pub(crate) fn new(rule: usize, ask: &Arc<AccessAsk>, request: &Request<'_>) -> Option<Self> {
        let url = &ask.endpoint.url;
        let mut bytes = Vec::with_capacity(512);
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| bytes.extend_from_slice(part));
        put(&[b"GET ", url.target().as_bytes(), b" HTTP/1.1\r\nHost: ", url.authority().as_bytes()]);
        put(&[b"\r\n", MARK.as_bytes(), b": access\r\nX-Forwarded-Method: ", request.method_text()]);
        let origin = request.origin();
        let scheme: &[u8] = if origin.secure { b"https" } else { b"http" };
        put(&[b"\r\nX-Forwarded-Proto: ", scheme, b"\r\nX-Forwarded-Host: "]);
        // The application of the route gets the same: the proxy's own field, if a trusted one has named the client.
        let mut by_proxy = request.all(Known::XForwardedHost).filter(|_| origin.forwards);
        put(&[by_proxy.next().unwrap_or(request.authority())]);
        by_proxy.for_each(|value| put(&[b", ", value]));
        put(&[b"\r\nX-Forwarded-Uri: "]);
        if !put_resolved_path(&mut bytes, request.path()) {
            return None;
        }
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| bytes.extend_from_slice(part));
        if let Some(query) = request.query() {
            put(&[b"?", query]);
        }
        put(&[b"\r\n"]);
        if let Some(client) = origin.client {
            put(&[b"X-Forwarded-For: ", client.to_canonical().to_string().as_bytes(), b"\r\n"]);
        }
        for name in SENT {
            let own = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
            let mut values = request.fields().filter(own).map(|(_, value)| value);
            let Some(first) = values.next() else { continue };
            // Parsed field values contain no line ends, so they cannot inject fields.
            put(&[name.as_bytes(), b": ", first]);
            // HTTP/2 clients send a cookie in pieces (RFC 9113 §8.2.3).
            let separator: &[u8] = if name == "Cookie" { b"; " } else { b", " };
            values.for_each(|value| put(&[separator, value]));
            put(&[b"\r\n"]);
        }
        put(&[b"\r\n"]);
        let is_event_source = is_event_source(request);
        Some(Self { number: 0, rule, ask: Arc::clone(ask), bytes, is_event_source })
    }

    fn digest(&self) -> Digest {
        Digest::of(&[&(self.rule as u64).to_be_bytes()[..], &self.bytes].concat())
    }
}

impl AskForm for AccessQuestion {
    type Verdict = AccessAnswer;

    const SETTING: &'static str = "access.ask";

    fn write(&self, request: &mut Vec<u8>) {
        request.extend_from_slice(&self.bytes);
    }

    fn verdict(&self, response: &HeadView<'_>) -> AccessAnswer {
        let (head, bytes) = (response.head, response.bytes);
        let url = &self.ask.endpoint.url;
        let malformed = |name: &str| {
            AccessAnswer::Unanswered(format!("access.ask: {url} responded with an unusable field {name}"))
        };
        match head.status() {
            200..300 => {
                let mut passed = PassedFields::clone(&self.ask.removed);
                let (mut user, mut cookies) = (None, Fields::new());
                for (name, value) in head.fields(bytes) {
                    let is = |other: &str| other.as_bytes().eq_ignore_ascii_case(name);
                    if let Some(name) = self.ask.copy.iter().find(|name| is(name)) {
                        // Two lines: applications take the first, the last or both of them.
                        if passed.fields.value(name).is_some() || passed.fields.push(name, value).is_err() {
                            return malformed(name);
                        }
                    }
                    if let Some(name) = self.ask.user.as_deref().filter(|name| is(name)) {
                        match user_name(value) {
                            Some(found) if user.is_none() => user = Some(found),
                            // Two names: the application and the log could mean different users.
                            _ => return malformed(name),
                        }
                    }
                    if is("Set-Cookie") && cookies.push("Set-Cookie", value).is_err() {
                        return malformed("Set-Cookie");
                    }
                }
                let kept_s =
                    if cookies.is_empty() { kept_s(head.all(bytes, Known::CacheControl)) } else { 0 };
                let granted = AccessGrant { user, passed: Arc::new(passed), cookies };
                AccessAnswer::Passes { granted: Arc::new(granted), kept_s }
            }
            status @ (401 | 403 | 302 | 303 | 307) => {
                let mut fields = Fields::new();
                for (name, value) in head.fields(bytes) {
                    let known =
                        DENIAL_FIELDS.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(name));
                    if let Some(name) = known
                        && fields.push(name, value).is_err()
                    {
                        return malformed(name);
                    }
                }
                if status < 400 && fields.value("Location").is_none() {
                    return malformed("Location");
                }
                if fields.value("Cache-Control").is_none() {
                    // The same page has another content once the client has logged in.
                    let _ = fields.push("Cache-Control", b"no-store");
                }
                AccessAnswer::Denied { status, fields, content: Vec::new() }
            }
            status => AccessAnswer::Unanswered(format!(
                "access.ask: {url} responded with {status}: expected 2xx to allow, 401, 403 or a redirect (302, 303, 307) to deny"
            )),
        }
    }

    fn unanswered(&self, reason: String) -> AccessAnswer {
        AccessAnswer::Unanswered(reason)
    }

    fn content(verdict: &mut AccessAnswer) -> Option<&mut Vec<u8>> {
        match verdict {
            AccessAnswer::Denied { content, .. } => Some(content),
            AccessAnswer::Passes { .. } | AccessAnswer::Unanswered(_) => None,
        }
    }
}

/// A user's name that logs and fields can hold.
fn user_name(value: &[u8]) -> Option<Arc<str>> {
    let name = std::str::from_utf8(value).ok()?;
    let fits = !name.is_empty() && name.len() <= SUBJECT_BYTES_MAX && !name.chars().any(char::is_control);
    fits.then(|| name.into())
}

/// The open questions of a worker, and answers that it may use again.
pub(crate) struct AccessAsks {
    context: HandlerContext,
    counters: Arc<AccessCounters>,
    /// By index of the rule; `None` for rules without an application.
    clients: Vec<Option<AskClient<AccessQuestion>>>,
    waiting: HashMap<u64, AskWaiter>,
    numbers: HashMap<ExchangeKey, u64>,
    count: u64,
    cache: AnswerCache,
}

/// A request and its remaining questions.
pub(crate) struct AskWork {
    pub(crate) questions: VecDeque<AccessQuestion>,
    pub(crate) passage: Passage,
}

struct AskWaiter {
    key: ExchangeKey,
    ticket: Ticket<GuardVerdict>,
    work: AskWork,
}

/// The state of a request, as far as the cache knows.
pub(crate) enum AskProgress {
    Passed(Passage),
    /// The first question is open.
    Open(AskWork),
}

impl AccessAsks {
    pub(crate) fn new<'a>(
        context: &HandlerContext,
        counters: &Arc<AccessCounters>,
        asks: impl Iterator<Item = Option<&'a Arc<AccessAsk>>>,
    ) -> Self {
        let client = |ask: &Arc<AccessAsk>| AskClient::new(context.clone(), Arc::clone(&ask.endpoint));
        Self {
            context: context.clone(),
            counters: Arc::clone(counters),
            clients: asks.map(|ask| ask.map(client)).collect(),
            waiting: HashMap::new(),
            numbers: HashMap::new(),
            count: 0,
            cache: AnswerCache::default(),
        }
    }

    /// Answers the first questions of a request from the cache.
    pub(crate) fn advance(&mut self, mut work: AskWork) -> AskProgress {
        while let Some(question) = work.questions.front() {
            // An empty cache costs no digest.
            let known = (!self.cache.is_empty()).then(|| question.digest());
            let known = known.and_then(|digest| self.cache.get(&digest, self.context.now().mono_ns));
            let Some(granted) = known else { return AskProgress::Open(work) };
            self.counters.asked_cached.increment();
            granted.add_to(&mut work.passage);
            work.questions.pop_front();
        }
        AskProgress::Passed(work.passage)
    }

    /// Asks the first question of a request. The ticket gets the verdict, now or later.
    pub(crate) fn start(&mut self, mut work: AskWork, key: ExchangeKey, ticket: Ticket<GuardVerdict>) {
        self.begin(&mut work, |work| AskWaiter { key, ticket, work });
        self.settle();
    }

    fn begin(&mut self, work: &mut AskWork, waiter: impl FnOnce(AskWork) -> AskWaiter) {
        let questions = std::mem::take(&mut work.questions);
        let passage = std::mem::take(&mut work.passage);
        let mut waiter = waiter(AskWork { questions, passage });
        let Some(mut question) = waiter.work.questions.pop_front() else {
            return waiter.ticket.resolve(GuardVerdict::Pass(waiter.work.passage));
        };
        self.count += 1;
        question.number = self.count;
        let (rule, is_event_source) = (question.rule, question.is_event_source);
        let client = self.clients.get_mut(rule).and_then(Option::as_mut);
        if client.is_none_or(|client| !client.ask(question)) {
            self.counters.asked_full.increment();
            let reply = self.failed("ask_busy", &"ask_busy");
            let reply = self.later(reply, rule, is_event_source);
            return waiter.ticket.resolve(GuardVerdict::Refuse(reply));
        }
        self.numbers.insert(waiter.key, self.count);
        self.waiting.insert(self.count, waiter);
    }

    /// Applies the answers that have arrived.
    fn settle(&mut self) {
        while let Some((question, answer)) =
            self.clients.iter_mut().flatten().find_map(AskClient::next_verdict)
        {
            let waiter = self.waiting.remove(&question.number);
            if let Some(waiter) = &waiter {
                self.numbers.remove(&waiter.key);
            }
            match answer {
                AccessAnswer::Passes { granted, kept_s } => {
                    self.counters.asked_allowed.increment();
                    if kept_s > 0 {
                        let now_ns = self.context.now().mono_ns;
                        self.cache.keep(question.digest(), Arc::clone(&granted), now_ns, kept_s);
                    }
                    let Some(AskWaiter { key, ticket, mut work }) = waiter else { continue };
                    granted.add_to(&mut work.passage);
                    match self.advance(work) {
                        AskProgress::Passed(passage) => ticket.resolve(GuardVerdict::Pass(passage)),
                        AskProgress::Open(mut work) => {
                            self.begin(&mut work, |work| AskWaiter { key, ticket, work });
                        }
                    }
                }
                AccessAnswer::Denied { status, fields, content } => {
                    self.counters.asked_denied.increment();
                    let Some(waiter) = waiter else { continue };
                    self.context.refused("ask");
                    let mut reply = Reply::new(status).body(Body::Bytes(content)).because(&"ask");
                    reply.fields = fields;
                    waiter.ticket.resolve(GuardVerdict::Refuse(reply));
                }
                AccessAnswer::Unanswered(reason) => {
                    self.counters.asked_failed.increment();
                    encke_settings::notice::report(encke_settings::Level::Warn, &reason);
                    let Some(waiter) = waiter else { continue };
                    let reply = self.failed("ask_failed", &"ask_failed");
                    let reply = self.later(reply, question.rule, question.is_event_source);
                    waiter.ticket.resolve(GuardVerdict::Refuse(reply));
                }
            }
        }
    }

    /// A refusal with the time after which the client may try again, at the pace of the application of a rule.
    fn later(&mut self, reply: Reply, rule: usize, is_event_source: bool) -> Reply {
        let client = self.clients.get_mut(rule).and_then(Option::as_mut);
        let retry_ms = client.map_or(1_000, AskClient::retry_ms);
        if is_event_source {
            return reply.for_event_source(retry_ms);
        }
        reply.with("Retry-After", retry_ms.div_ceil(1_000).to_string())
    }

    /// Refuses a request about which the application has not decided.
    pub(crate) fn failed(&self, rule: &'static str, reason: &'static &'static str) -> Reply {
        self.context.refused(rule);
        Reply::error(503).because(reason)
    }

    /// The client of a request has disconnected.
    pub(crate) fn gone(&mut self, key: ExchangeKey) {
        let Some(number) = self.numbers.remove(&key) else { return };
        self.waiting.remove(&number);
        for client in self.clients.iter_mut().flatten() {
            client.forget(|question| question.number == number);
        }
    }

    /// Handles an event of a connection.
    pub(crate) fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        if let Some(client) = self.clients.iter_mut().flatten().find(|client| client.owns(id)) {
            client.upstream(id, event);
            self.settle();
        }
    }

    /// Takes the result of a job, if it is one of a client.
    pub(crate) fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        if let Some(client) = self.clients.iter_mut().flatten().find(|client| client.resolves_by(job)) {
            client.offloaded(job, done);
            self.settle();
        }
    }

    /// Whether a job is one of a client.
    pub(crate) fn has_job(&self, job: JobId) -> bool {
        self.clients.iter().flatten().any(|client| client.resolves_by(job))
    }

    pub(crate) fn shrink(&mut self) {
        self.cache = AnswerCache::default();
    }
}

impl AccessGrant {
    fn add_to(&self, passage: &mut Passage) {
        if self.user.is_some() {
            passage.user.clone_from(&self.user);
        }
        passage.fields.extend(&self.cookies);
        match &mut passage.passed {
            Some(earlier) => Arc::make_mut(earlier).add(&self.passed),
            None => passage.passed = Some(Arc::clone(&self.passed)),
        }
    }
}

/// Answers that allow, by the digest of their question.
#[derive(Default)]
struct AnswerCache {
    answers: HashMap<Digest, (u64, Arc<AccessGrant>)>,
    /// In order of arrival.
    order: VecDeque<Digest>,
}

impl AnswerCache {
    fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    fn get(&self, digest: &Digest, now_ns: u64) -> Option<Arc<AccessGrant>> {
        let (until_ns, granted) = self.answers.get(digest)?;
        (now_ns < *until_ns).then(|| Arc::clone(granted))
    }

    fn keep(&mut self, digest: Digest, granted: Arc<AccessGrant>, now_ns: u64, kept_s: u64) {
        let until_ns = now_ns.saturating_add(kept_s.saturating_mul(1_000_000_000));
        if self.answers.insert(digest, (until_ns, granted)).is_none() {
            self.order.push_back(digest);
        }
        while self.order.len() > ANSWERS_CACHED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}
