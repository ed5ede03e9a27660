//! Sends the questions of one worker to an application's authorization endpoint: about channels (`[auth] ask`), and about requests
//! (`[[access]] ask`).
//!
//! ```text
//!  ask ─► queue ─► at most `ask_connections` at a time ─┬─ a kept connection ──────┐
//!          │ full: 503                                  └─ a new one ─► Connected ─┴─► head ─► verdict ─► body, dropped
//!          ▼                                                                                                │
//!         `ask_time` from `ask` on                                    kept for `KEEP_NS` ◄── complete ──────┘
//! ```
//! **Everything that is no verdict is a denial for now**: a failed connection, a response that breaks a rule of HTTP/1, a missed
//! deadline. The client gets a 503, and nothing is cached.
//!
//! An application may close a kept connection while it receives a question. If no byte of a response has arrived, the question
//! is sent once more, on a new connection.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;

use encke_io::{Address, Done, Segment};
use encke_server::{HandlerContext, JobId, UpstreamEvent, UpstreamFault, UpstreamId};
use encke_session::tls::{ClientSessions, SessionError, Sessions, TlsError, Trust};
use encke_settings::Period;
use encke_wire::http1::{AppResponseReader, HeadView, ReadStep, ResponseFault, ResponseHead};
use encke_wire::method::Method;

use crate::ask::Question;
use crate::retry_pace::RetryPace;
use crate::settings::{AskUrl, AuthSettings};

/// Time for which an idle connection is kept, in ns. Application servers close idle connections after 5 s or later.
const KEEP_NS: u64 = 4_000_000_000;
/// Time after which a host name is resolved again, in ns.
const RESOLVED_NS: u64 = 30_000_000_000;
/// The same while connections fail.
const FAILING_RESOLVED_NS: u64 = 1_000_000_000;
/// Addresses of a host name that a question tries.
const ADDRESSES_MAX: usize = 4;
/// Interim responses before the final one.
const INTERIMS_MAX: u32 = 16;
/// Bytes of a response's body that are dropped to keep the connection. A longer body costs more than another connection.
const DROPPED_MAX: u64 = 64 * 1024;
/// Bytes of a response's body that belong to a verdict: the page of a denial.
const CONTENT_MAX: usize = 64 * 1024;

/// The authorization endpoint, as the settings describe it.
pub(crate) struct AskEndpoint {
    pub(crate) url: AskUrl,
    sessions: Option<Arc<dyn Sessions>>,
    time_ns: u64,
    connections: usize,
    queue: usize,
}

impl AskEndpoint {
    /// Returns the endpoint of the settings, if there is one. Reads the authorities of an `https` URL.
    pub(crate) fn of(auth: &AuthSettings) -> Result<Option<Arc<Self>>, TlsError> {
        let Some(url) = &auth.ask else { return Ok(None) };
        let (connections, queue) = (auth.ask_connections, auth.ask_queue);
        Self::new(url, auth.ask_ca.as_deref(), auth.ask_time, connections, queue).map(Some)
    }

    /// Returns an endpoint. Reads the authorities of an `https` URL, from the file `ca` or from the system.
    pub(crate) fn new(
        url: &AskUrl,
        ca: Option<&Path>,
        time: Period,
        connections: NonZeroU16,
        queue: NonZeroU16,
    ) -> Result<Arc<Self>, TlsError> {
        let sessions = match (url.place().secure_name(), ca) {
            (None, _) => None,
            (Some(name), Some(file)) => Some((name, Trust::of_file(file)?)),
            (Some(name), None) => Some((name, Trust::of_system()?)),
        };
        Ok(Arc::new(Self {
            url: url.clone(),
            sessions: sessions.map(|(name, trust)| {
                Arc::new(ClientSessions::new(trust, name.to_owned())) as Arc<dyn Sessions>
            }),
            time_ns: time.nanoseconds(),
            connections: usize::from(connections.get()),
            queue: usize::from(queue.get()),
        }))
    }
}

/// A question of an [`AskClient`], with its form of requests and verdicts.
pub trait AskForm {
    /// The application's decision.
    type Verdict;

    /// The setting with the URL, for errors.
    const SETTING: &'static str;

    /// Appends the request.
    fn write(&self, request: &mut Vec<u8>);

    /// Reads the verdict from the head of the final response.
    fn verdict(&self, response: &HeadView<'_>) -> Self::Verdict;

    /// The verdict if there is no response: the reason.
    fn unanswered(&self, reason: String) -> Self::Verdict;

    /// Returns the buffer for the response's content, if the verdict needs it. Otherwise the content is dropped.
    fn content(_verdict: &mut Self::Verdict) -> Option<&mut Vec<u8>> {
        None
    }
}

/// The questions of one worker that have no verdict yet, and its connections to the endpoint.
pub struct AskClient<Q: AskForm = Question> {
    context: HandlerContext,
    endpoint: Arc<AskEndpoint>,
    /// The addresses of the endpoint, in order of preference; none before its name is resolved.
    addresses: Vec<Address>,
    /// When the name was last resolved, in ns of the monotonic clock.
    resolved_ns: u64,
    resolving: Option<JobId>,
    conns: HashMap<UpstreamId, AskConn<Q>>,
    /// Idle connections, the most recently used one last.
    kept: Vec<UpstreamId>,
    queue: VecDeque<PendingQuestion<Q>>,
    verdicts: VecDeque<(Q, Q::Verdict)>,
    scratch: ResponseHead,
    pace: RetryPace,
}

/// A question without a verdict.
struct PendingQuestion<Q> {
    question: Q,
    due_ns: u64,
    /// The time at which the question was last sent, in ns of the monotonic clock.
    sent_ns: u64,
    /// Number of addresses that could not be reached.
    attempts: usize,
    /// Whether a kept connection has failed under this question.
    repeated: bool,
}

/// A connection to the endpoint.
struct AskConn<Q: AskForm> {
    /// The question, until its verdict.
    pending: Option<PendingQuestion<Q>>,
    /// A verdict whose content is incomplete.
    incomplete: Option<(Q, Q::Verdict)>,
    reader: AppResponseReader,
    connected: bool,
    reused: bool,
    keeps: bool,
    interims: u32,
    dropped: u64,
}

/// Why there is no verdict. The next question is a retry.
#[derive(Debug)]
enum AskError {
    /// The host name cannot be resolved at present.
    Unresolved,
    /// The deadline has passed.
    Overdue,
    Connection(UpstreamFault),
    Tls(SessionError),
    Response(ResponseFault),
    /// The application changes the protocol.
    Upgrade,
    Interims,
    /// The content of a verdict is too long.
    Content,
}

impl<Q: AskForm> AskClient<Q> {
    pub(crate) fn new(context: HandlerContext, endpoint: Arc<AskEndpoint>) -> Self {
        // Only a name needs the system's resolver, which may block.
        let place = endpoint.url.place();
        let addresses = if place.is_name() { Vec::new() } else { place.addresses().unwrap_or_default() };
        Self {
            context,
            endpoint,
            addresses,
            resolved_ns: 0,
            resolving: None,
            conns: HashMap::new(),
            kept: Vec::new(),
            queue: VecDeque::new(),
            verdicts: VecDeque::new(),
            scratch: ResponseHead::new(),
            pace: RetryPace::default(),
        }
    }

    /// Sends a question, or queues it. Returns `false` if the queue is full.
    pub fn ask(&mut self, question: Q) -> bool {
        if !self.may_begin() && self.queue.len() >= self.endpoint.queue {
            return false;
        }
        let due_ns = self.context.now().mono_ns.saturating_add(self.endpoint.time_ns);
        self.queue.push_back(PendingQuestion { question, due_ns, sent_ns: 0, attempts: 0, repeated: false });
        self.send_queued();
        true
    }

    /// The time in ms after which a client whose question was refused, or had no verdict, may try again.
    pub fn retry_ms(&mut self) -> u64 {
        let now_ns = self.context.now().mono_ns;
        self.pace.next_ms(now_ns, self.endpoint.connections, self.queue.len())
    }

    /// Returns the next verdict. Call it after each other call, until it returns `None`.
    pub fn next_verdict(&mut self) -> Option<(Q, Q::Verdict)> {
        self.verdicts.pop_front()
    }

    /// Whether a connection is one of this client.
    pub(crate) fn owns(&self, id: UpstreamId) -> bool {
        self.conns.contains_key(&id)
    }

    /// Whether a job resolves the name of the endpoint for this client.
    pub(crate) fn resolves_by(&self, job: JobId) -> bool {
        self.resolving == Some(job)
    }

    /// Drops queued questions that have become void.
    pub(crate) fn forget(&mut self, is_void: impl Fn(&Q) -> bool) {
        self.queue.retain(|pending| !is_void(&pending.question));
    }

    /// Handles an event of a connection.
    pub fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match event {
            UpstreamEvent::Connected => conn.connected = true,
            UpstreamEvent::Received(bytes) => self.received(id, bytes),
            UpstreamEvent::Ended => match conn.reader.end() {
                Ok(()) => {
                    self.verdicts.extend(conn.incomplete.take());
                    self.close(id);
                }
                Err(fault) => self.fail(id, AskError::Response(fault)),
            },
            UpstreamEvent::Overdue => self.fail(id, AskError::Overdue),
            UpstreamEvent::Failed(fault) => self.fail(id, AskError::Connection(fault)),
            _ => {}
        }
        self.send_queued();
    }

    /// Takes the result of a job that has resolved the name of the endpoint.
    pub fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        if self.resolving != Some(job) {
            return;
        }
        self.resolving = None;
        self.resolved_ns = self.context.now().mono_ns;
        let found = done.and_then(|done| done.downcast::<io::Result<Vec<Address>>>().ok());
        // If the name cannot be resolved, its last addresses stay in use.
        if let Some(Ok(addresses)) = found.map(|result| *result) {
            self.addresses = addresses;
        }
        if self.addresses.is_empty() {
            for pending in std::mem::take(&mut self.queue) {
                self.give_up(pending.question, &AskError::Unresolved);
            }
        }
        self.send_queued();
    }

    fn may_begin(&self) -> bool {
        !self.addresses.is_empty() && self.conns.len() - self.kept.len() < self.endpoint.connections
    }

    fn send_queued(&mut self) {
        if self.addresses.is_empty() && !self.queue.is_empty() {
            self.resolve();
        }
        while self.may_begin()
            && let Some(pending) = self.queue.pop_front()
        {
            self.send(pending, true);
        }
    }

    /// Sends a question on a kept connection, if it may, or on a new one.
    fn send(&mut self, mut pending: PendingQuestion<Q>, may_reuse: bool) {
        let now_ns = self.context.now().mono_ns;
        pending.sent_ns = now_ns;
        let left_ns = pending.due_ns.saturating_sub(now_ns);
        if left_ns == 0 {
            return self.give_up(pending.question, &AskError::Overdue);
        }
        let kept = if may_reuse { self.kept.pop() } else { None };
        let id = match kept {
            Some(id) => id,
            None => match self.dial(now_ns, pending.attempts) {
                Ok(id) => id,
                Err(error) => return self.give_up(pending.question, &error),
            },
        };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut request = self.context.take_buffer();
        pending.question.write(&mut request);
        (conn.interims, conn.dropped) = (0, 0);
        conn.reader.begin(Method::Get);
        conn.pending = Some(pending);
        self.context.send(id, [Segment::Bytes(request)]);
        self.context.deadline(id, left_ns);
    }

    fn dial(&mut self, now_ns: u64, attempts: usize) -> Result<UpstreamId, AskError> {
        if self.endpoint.url.place().is_name() && now_ns.saturating_sub(self.resolved_ns) >= RESOLVED_NS {
            self.resolve();
        }
        let address = self.addresses.get(attempts % self.addresses.len().max(1)).cloned();
        let address = address.ok_or(AskError::Unresolved)?;
        let session = self.endpoint.sessions.as_ref().map(|sessions| sessions.begin());
        let id = self.context.dial(address, session.transpose().map_err(AskError::Tls)?);
        self.conns.insert(
            id,
            AskConn {
                pending: None,
                incomplete: None,
                reader: AppResponseReader::new(),
                connected: false,
                reused: false,
                keeps: false,
                interims: 0,
                dropped: 0,
            },
        );
        Ok(id)
    }

    fn resolve(&mut self) {
        if self.resolving.is_none() {
            let place = self.endpoint.url.place().clone();
            self.resolving = Some(self.context.offload_remote(move || place.addresses()));
        }
    }

    fn received(&mut self, id: UpstreamId, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let Self { conns, scratch, verdicts, pace, context, .. } = self;
            let Some(conn) = conns.get_mut(&id) else { return };
            match conn.reader.step(scratch, rest, &mut conn.keeps) {
                Err(fault) => return self.fail(id, AskError::Response(fault)),
                Ok(ReadStep::More) => return,
                Ok(ReadStep::Head(view, used)) => {
                    rest = &rest[used..];
                    match view.head.status() {
                        101 => return self.fail(id, AskError::Upgrade),
                        ..200 => {
                            conn.interims += 1;
                            if conn.interims > INTERIMS_MAX {
                                return self.fail(id, AskError::Interims);
                            }
                        }
                        _ => {
                            if let Some(PendingQuestion { question, sent_ns, .. }) = conn.pending.take() {
                                pace.ended(context.now().mono_ns.saturating_sub(sent_ns));
                                let mut verdict = question.verdict(&view);
                                match Q::content(&mut verdict) {
                                    Some(_) => conn.incomplete = Some((question, verdict)),
                                    None => verdicts.push_back((question, verdict)),
                                }
                            }
                        }
                    }
                }
                Ok(ReadStep::Data(data, used)) => {
                    rest = &rest[used..];
                    if let Some(content) = conn.incomplete.as_mut().and_then(|(_, one)| Q::content(one)) {
                        if content.len() + data.len() > CONTENT_MAX {
                            return self.fail(id, AskError::Content);
                        }
                        content.extend_from_slice(data);
                        continue;
                    }
                    conn.dropped += data.len() as u64;
                    if conn.dropped > DROPPED_MAX {
                        return self.close(id);
                    }
                }
                Ok(ReadStep::End { keeps, used }) => {
                    rest = &rest[used..];
                    verdicts.extend(conn.incomplete.take());
                    if !keeps || !rest.is_empty() {
                        return self.close(id);
                    }
                    conn.reused = true;
                    self.kept.push(id);
                    return self.context.deadline(id, KEEP_NS);
                }
            }
        }
    }

    /// Closes a connection after an error. Its question is sent again if the application cannot have seen it, or gets no verdict.
    fn fail(&mut self, id: UpstreamId, error: AskError) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Some((question, _)) = conn.incomplete.take() {
            self.close(id);
            return self.give_up(question, &error);
        }
        let (connected, reused, untouched) = (conn.connected, conn.reused, conn.reader.is_untouched());
        let Some(mut pending) = self.close_with_question(id) else { return };
        let is_closed = matches!(
            error,
            AskError::Connection(UpstreamFault::Failed(_) | UpstreamFault::Truncated)
                | AskError::Response(ResponseFault::Ended)
        );
        if is_closed && reused && untouched && !pending.repeated {
            pending.repeated = true;
            return self.send(pending, false);
        }
        if is_closed && !connected {
            pending.attempts += 1;
            let now_ns = self.context.now().mono_ns;
            if self.endpoint.url.place().is_name()
                && now_ns.saturating_sub(self.resolved_ns) >= FAILING_RESOLVED_NS
            {
                self.resolve();
            }
            if pending.attempts < self.addresses.len().min(ADDRESSES_MAX) {
                return self.send(pending, false);
            }
        }
        self.pace.ended(self.context.now().mono_ns.saturating_sub(pending.sent_ns));
        self.give_up(pending.question, &error);
    }

    fn give_up(&mut self, question: Q, error: &AskError) {
        let (url, setting) = (&self.endpoint.url, Q::SETTING);
        let text = match error {
            AskError::Overdue => {
                format!("{setting}: no verdict from {url}: no response within {setting}_time")
            }
            _ => format!("{setting}: no verdict from {url}: {error}"),
        };
        let verdict = question.unanswered(text);
        self.verdicts.push_back((question, verdict));
    }

    fn close(&mut self, id: UpstreamId) {
        self.close_with_question(id);
    }

    fn close_with_question(&mut self, id: UpstreamId) -> Option<PendingQuestion<Q>> {
        self.context.close(id);
        self.kept.retain(|other| *other != id);
        self.conns.remove(&id)?.pending
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unresolved => "the host name cannot be resolved",
            Self::Overdue => "no response in time",
            Self::Connection(fault) => return fault.fmt(f),
            Self::Tls(error) => return error.fmt(f),
            Self::Response(ResponseFault::Malformed(_)) => "the response breaks the rules of HTTP/1",
            Self::Response(ResponseFault::Unasked) => "bytes follow the response",
            Self::Response(ResponseFault::Truncated) => "the connection ended within the response",
            Self::Response(ResponseFault::Ended) => "the connection ended before the response",
            Self::Upgrade => "the response changes the protocol",
            Self::Interims => "too many interim responses",
            Self::Content => "the content of the denial is larger than 64 KiB",
        })
    }
}
