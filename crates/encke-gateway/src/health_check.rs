//! Active checks of targets, by the first worker, over connections of their own.
//!
//! ```text
//!  QueueTimer (read by the resident) ─► Handler::woken ─► due ─► dial ─┬─ without a path: connected ──────────────► good
//!                                                                      └─ GET ─► 200 to 399 ──────────────────────► good
//!                                                                         other status, fault, `time` has passed ─► bad
//!  good or bad ─► TargetState::checked, which all workers read
//! ```
//! A check needs no permit: otherwise a busy application would look dead. A reload begins a term of checks, and a handler of an
//! earlier term, which may have requests for hours, checks no more.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use encke_io::{Done, Segment};
use encke_server::{HandlerContext, JobId, UpstreamEvent, UpstreamId};
use encke_wire::http1::{AppResponseReader, ReadStep, ResponseHead};
use encke_wire::method::Method;
use encke_wire::proxy::put_header;

use crate::balance_settings::CheckSettings;
use crate::failure::FailureReason;
use crate::fault::GatewayFault;
use crate::figures::{report_bad_checks, report_good_checks};
use crate::id_map::IdMap;
use crate::queue::GrantInbox;
use crate::target::UpstreamTarget;
use crate::upstream::NamedUpstream;
use crate::waiting::QueueTimer;

/// Bytes of a response that are read before its connection is closed.
const CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Addresses of a name that a check tries.
const ADDRESSES_MAX: usize = 4;

/// The checks of all targets, on one worker.
pub(crate) struct HealthChecks {
    context: HandlerContext,
    /// The present term of checks, and the one of this handler.
    terms: Arc<AtomicU32>,
    term: u32,
    inbox: Arc<GrantInbox>,
    timer: Rc<QueueTimer>,
    targets: Vec<CheckedTarget>,
    running: IdMap<UpstreamId, RunningCheck>,
    /// Names that are resolved on the pool, by job.
    resolving: HashMap<JobId, usize>,
    scratch: Box<ResponseHead>,
}

struct CheckedTarget {
    upstream: Arc<NamedUpstream>,
    target: usize,
    /// The time of the next check, in ns of the monotonic clock; `u64::MAX` while one is in progress.
    due_ns: u64,
}

/// A check in progress.
struct RunningCheck {
    /// Index of the target in [`HealthChecks`].
    place: usize,
    begun_ns: u64,
    /// Number of the address.
    attempt: usize,
    connected: bool,
    reader: AppResponseReader,
    /// Whether the result is known, and only the rest of the response is read.
    is_over: bool,
    received: usize,
}

/// The result of a check.
enum CheckResult {
    Good,
    BadStatus(u16),
    Failed(GatewayFault),
}

impl HealthChecks {
    /// Checks the targets of these upstreams; `None` if none of them has checks. Ends the checks of earlier handlers.
    pub(crate) fn new(
        context: HandlerContext,
        upstreams: &[Arc<NamedUpstream>],
        terms: &Arc<AtomicU32>,
    ) -> Option<Self> {
        let term = terms.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let now_ns = context.now().mono_ns;
        let mut targets = Vec::new();
        for upstream in upstreams.iter().filter(|upstream| upstream.settings.check.is_some()) {
            targets.extend((0..upstream.targets.len()).map(|target| CheckedTarget {
                upstream: Arc::clone(upstream),
                target,
                due_ns: now_ns,
            }));
        }
        if targets.is_empty() {
            return None;
        }
        let inbox = GrantInbox::new(context.waker());
        let timer = QueueTimer::new(&inbox);
        timer.set(now_ns);
        Some(Self {
            context,
            terms: Arc::clone(terms),
            term,
            inbox,
            timer,
            targets,
            running: IdMap::default(),
            resolving: HashMap::new(),
            scratch: Box::new(ResponseHead::new()),
        })
    }

    pub(crate) const fn timer(&self) -> &Rc<QueueTimer> {
        &self.timer
    }

    pub(crate) fn has(&self, id: UpstreamId) -> bool {
        self.running.contains_key(&id)
    }

    /// Begins the checks that are due.
    pub(crate) fn woken(&mut self) {
        // Later calls of the timer wake the handler again.
        drop(self.inbox.take());
        let now_ns = self.context.now().mono_ns;
        for place in 0..self.targets.len() {
            if let Some(checked) = self.targets.get_mut(place).filter(|checked| checked.due_ns <= now_ns) {
                checked.due_ns = u64::MAX;
                self.begin(place, 0, now_ns);
            }
        }
        self.set_timer();
    }

    /// Whether no later handler checks the targets.
    fn is_current(&self) -> bool {
        self.terms.load(Ordering::Relaxed) == self.term
    }

    fn set_timer(&self) {
        self.timer.set(self.targets.iter().map(|checked| checked.due_ns).min().unwrap_or(u64::MAX));
    }

    /// Begins a check, or its next attempt with another address of the target.
    fn begin(&mut self, place: usize, attempt: usize, begun_ns: u64) {
        let Some(checked) = self.targets.get(place).filter(|_| self.is_current()) else { return };
        let upstream = Arc::clone(&checked.upstream);
        let (Some(settings), Some(target)) = (checked.settings(), checked.target()) else { return };
        let now_ns = self.context.now().mono_ns;
        let address = target.address(attempt);
        if target.must_resolve(now_ns, address.is_none() || target.state.is_failing()) {
            let url = target.url().clone();
            let job = self.context.offload_remote(move || url.addresses());
            self.resolving.insert(job, place);
        }
        let Some(address) = address else {
            // A supervised application that is starting has no address, and its check does not count.
            let is_starting = target.place().is_some();
            let fault = if is_starting { GatewayFault::NotReady } else { GatewayFault::Unresolved };
            return self.end(place, begun_ns, &CheckResult::Failed(fault));
        };
        let Ok(session) = target.session() else {
            return self.end(place, begun_ns, &CheckResult::Failed(GatewayFault::Tls));
        };
        let mut reader = AppResponseReader::new();
        reader.begin(Method::Get);
        let id = self.context.dial(address, session);
        let left_ns = begun_ns.saturating_add(settings.time.nanoseconds()).saturating_sub(now_ns);
        self.context.deadline(id, left_ns);
        let mut request = self.context.take_buffer();
        if let Some(version) = upstream.settings.proxy_protocol {
            // The connection serves no client.
            put_header(&mut request, version.into(), None);
        }
        if let Some(path) = &settings.path {
            let host = settings.host.clone().unwrap_or_else(|| target.url().authority());
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nUser-Agent: encke (check)\r\n\r\n"
            );
            request.extend_from_slice(head.as_bytes());
        }
        if !request.is_empty() {
            self.context.send(id, [Segment::Bytes(request)]);
        }
        let check =
            RunningCheck { place, begun_ns, attempt, connected: false, reader, is_over: false, received: 0 };
        self.running.insert(id, check);
    }

    /// Handles an event of a check's connection.
    pub(crate) fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        match event {
            UpstreamEvent::Connected => {
                let Some(check) = self.running.get_mut(&id) else { return };
                check.connected = true;
                let settings = self.targets.get(check.place).and_then(CheckedTarget::settings);
                if settings.is_none_or(|settings| settings.path.is_none()) {
                    self.close(id, Some(&CheckResult::Good));
                }
            }
            UpstreamEvent::Received(bytes) => self.received(id, bytes),
            UpstreamEvent::Ended => {
                let end = self.running.get_mut(&id).map(|check| check.reader.end());
                let fault = end.and_then(Result::err).map(|fault| CheckResult::Failed(fault.into()));
                self.close(id, fault.as_ref());
            }
            UpstreamEvent::Overdue => {
                let connected = self.running.get(&id).is_some_and(|check| check.connected);
                let fault = if connected { GatewayFault::ResponseTime } else { GatewayFault::ConnectTime };
                self.close(id, Some(&CheckResult::Failed(fault)));
            }
            UpstreamEvent::Failed(fault) => {
                let Some(check) = self.running.get(&id) else { return };
                let fault = GatewayFault::of_connection(&fault, check.connected);
                let (place, next, begun_ns) = (check.place, check.attempt + 1, check.begun_ns);
                let target = self.targets.get(place).and_then(CheckedTarget::target);
                let count = target.map_or(0, UpstreamTarget::addresses).min(ADDRESSES_MAX);
                if !check.connected && fault.is_targets() && next < count {
                    self.running.remove(&id);
                    self.context.close(id);
                    return self.begin(place, next, begun_ns);
                }
                self.close(id, Some(&CheckResult::Failed(fault)));
            }
            _ => {}
        }
    }

    fn received(&mut self, id: UpstreamId, bytes: &[u8]) {
        let mut rest = bytes;
        let mut keeps = false;
        loop {
            let Some(check) = self.running.get_mut(&id) else { return };
            let place = check.place;
            let (status, used) = match check.reader.step(&mut self.scratch, rest, &mut keeps) {
                Ok(ReadStep::More) => return,
                Ok(ReadStep::Head(view, used)) => (view.head.status(), used),
                Ok(ReadStep::Data(data, used)) => {
                    check.received += data.len();
                    if check.received > CONTENT_BYTES_MAX {
                        return self.close(id, None);
                    }
                    (0, used)
                }
                Ok(ReadStep::End { .. }) => return self.close(id, None),
                Err(fault) => return self.close(id, Some(&CheckResult::Failed(fault.into()))),
            };
            rest = rest.get(used..).unwrap_or_default();
            let result = match status {
                0 | 100 | 102..200 => continue,
                101 => CheckResult::Failed(GatewayFault::Upgrade),
                200..400 => CheckResult::Good,
                status => CheckResult::BadStatus(status),
            };
            // The rest of the response is read, so that the application does not see a reset.
            check.is_over = true;
            let begun_ns = check.begun_ns;
            self.end(place, begun_ns, &result);
        }
    }

    /// Closes the connection of a check. Its result counts, unless it was known before.
    fn close(&mut self, id: UpstreamId, result: Option<&CheckResult>) {
        self.context.close(id);
        let Some(check) = self.running.remove(&id).filter(|check| !check.is_over) else { return };
        let missing = CheckResult::Failed(GatewayFault::Ended);
        self.end(check.place, check.begun_ns, result.unwrap_or(&missing));
    }

    /// Counts the result of a check, and plans the next one.
    fn end(&mut self, place: usize, begun_ns: u64, result: &CheckResult) {
        let now_ns = self.context.now().mono_ns;
        let is_current = self.is_current();
        let Some(checked) = self.targets.get_mut(place) else { return };
        let Some(settings) = checked.settings() else { return };
        let every_ns = settings.every.nanoseconds();
        checked.due_ns = begun_ns.saturating_add(every_ns).max(now_ns);
        if is_current {
            checked.count(result, now_ns);
        }
        self.set_timer();
    }

    /// Handles the end of a job. Returns its result if the job is not one of the checks'.
    pub(crate) fn offloaded(&mut self, job: JobId, done: Option<Done>) -> Option<Option<Done>> {
        let Some(place) = self.resolving.remove(&job) else { return Some(done) };
        self.targets.get(place)?.target()?.resolved(done);
        None
    }
}

impl CheckedTarget {
    fn settings(&self) -> Option<&CheckSettings> {
        self.upstream.settings.check.as_ref().map(|check| &check.0)
    }

    fn target(&self) -> Option<&UpstreamTarget> {
        self.upstream.targets.get(self.target)
    }

    fn count(&self, result: &CheckResult, now_ns: u64) {
        let (Some(settings), Some(target)) = (self.settings(), self.target()) else { return };
        // A fault of this server says nothing about the target.
        if matches!(result, CheckResult::Failed(fault) if !fault.is_targets()) {
            return;
        }
        let is_good = matches!(result, CheckResult::Good);
        target.tally.checked(is_good);
        match result {
            CheckResult::Good => {}
            CheckResult::BadStatus(status) => {
                target.tally.failed(now_ns, FailureReason::CheckStatus(*status));
            }
            CheckResult::Failed(fault) => target.tally.failed(now_ns, FailureReason::Check(*fault)),
        }
        match target.state.checked(is_good, (settings.rise.get(), settings.fall.get()), now_ns) {
            None => {}
            Some(true) => report_good_checks(&self.upstream, target),
            Some(false) => {
                let reason = match result {
                    CheckResult::BadStatus(status) => format!("status {status}"),
                    CheckResult::Failed(fault) => fault.name().to_owned(),
                    CheckResult::Good => String::new(),
                };
                report_bad_checks(&self.upstream, target, &reason);
            }
        }
    }
}
