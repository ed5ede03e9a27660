//! The guard of one worker: checks addresses, and verifies passwords by jobs of the pool.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use base64ct::{Base64, Encoding as _};
use encke_io::Done;
use encke_server::{
    ExchangeKey, Guard, GuardCall, GuardOutcome, GuardVerdict, HandlerContext, JobId, Passage, Reply,
    Request, Ticket, UpstreamEvent, UpstreamId, household,
};
use encke_wire::field::Known;

use super::asking::{AccessAsks, AccessQuestion, AskProgress, AskWork, MARK};
use super::cache::RecentDigests;
use super::figures::AccessCounters;
use super::rule::{AccessDemands, SharedRules};
use crate::keys::Digest;
use crate::limits::{
    CREDENTIALS_CACHED_MAX, CREDENTIALS_WAITING_MAX, CREDENTIALS_WAITING_PER_ADDRESS_MAX, PASSWORD_BYTES_MAX,
    SUBJECT_BYTES_MAX,
};
use crate::turns::Turns;

/// Time for which a verified password is not hashed again.
const RIGHT_NS: u64 = 60_000_000_000;
/// Time for which the result for a wrong password is cached. A password that was just added to the file soon passes, and a flood of
/// one wrong password costs one hash per second.
const WRONG_NS: u64 = 1_000_000_000;

/// Access control on one worker.
pub(crate) struct AccessGuard {
    context: HandlerContext,
    shared: Arc<SharedRules>,
    counters: Arc<AccessCounters>,
    right: RecentDigests,
    wrong: RecentDigests,
    /// Held requests.
    waiting: HashMap<ExchangeKey, AccessWaiter>,
    /// Credentials to be verified, or being verified, and the requests that wait for the result.
    checks: HashMap<Digest, PasswordCheck>,
    /// Credentials to be verified, by address. Those that several addresses have sent are in the line of each.
    queue: Turns<ClientAddress, Digest>,
    running: Option<(JobId, Digest)>,
    /// Questions to applications.
    asks: AccessAsks,
    /// A buffer for paths.
    decoded: String,
}

/// The address of a client, or the /64 network of an IPv6 address; `None` for a Unix socket whose peer reports no address.
type ClientAddress = Option<IpAddr>;

struct AccessWaiter {
    attempt: CredentialAttempt,
    client: ClientAddress,
    ticket: Ticket<GuardVerdict>,
    /// The credentials that it waits for.
    digest: Digest,
}

#[derive(Default)]
struct PasswordCheck {
    /// Waiting requests, also those of disconnected clients.
    keys: Vec<ExchangeKey>,
    /// The number of waiting requests whose clients are connected.
    present: usize,
}

/// A request with credentials, which several password files may have to confirm one after the other.
struct CredentialAttempt {
    credentials: Credentials,
    /// Indices of rules with passwords.
    rules: Vec<usize>,
    /// The number of rules that have confirmed the credentials.
    confirmed: usize,
    /// Questions about the request, once its password is confirmed.
    questions: VecDeque<AccessQuestion>,
    /// Additions to the request so far.
    passage: Passage,
}

struct Credentials {
    user: String,
    password: Vec<u8>,
}

/// The state of an attempt, as far as the caches know.
enum AccessProgress {
    /// All passwords are confirmed.
    Confirmed(AskWork),
    Refused(Reply),
    /// These credentials must be verified first.
    Unknown(CredentialAttempt, Digest),
}

impl AccessGuard {
    pub(crate) fn new(
        context: HandlerContext,
        shared: Arc<SharedRules>,
        counters: Arc<AccessCounters>,
    ) -> Self {
        let asks = AccessAsks::new(&context, &counters, shared.rules.iter().map(|rule| rule.ask.as_ref()));
        Self {
            asks,
            context,
            shared,
            counters,
            right: RecentDigests::new(RIGHT_NS, CREDENTIALS_CACHED_MAX),
            wrong: RecentDigests::new(WRONG_NS, CREDENTIALS_CACHED_MAX),
            waiting: HashMap::new(),
            checks: HashMap::new(),
            queue: Turns::new(CREDENTIALS_WAITING_MAX, CREDENTIALS_WAITING_PER_ADDRESS_MAX),
            running: None,
            decoded: String::new(),
        }
    }

    /// Advances an attempt by the cached results.
    fn advance(&self, mut attempt: CredentialAttempt) -> AccessProgress {
        let now_ns = self.context.now().mono_ns;
        while let Some(&rule) = attempt.rules.get(attempt.confirmed) {
            let Some(file) = self.shared.rules[rule].file else {
                attempt.confirmed += 1;
                continue;
            };
            let digest = attempt.credentials.digest(&self.shared.salt, file);
            if self.right.has(&digest, now_ns) {
                attempt.confirmed += 1;
            } else if self.wrong.has(&digest, now_ns) {
                return AccessProgress::Refused(self.challenge(rule));
            } else {
                return AccessProgress::Unknown(attempt, digest);
            }
        }
        let file = attempt.rules.iter().find_map(|&rule| self.shared.rules[rule].file);
        let user = file.and_then(|file| self.shared.files[file].user(&attempt.credentials.user));
        let passage = Passage { user, ..attempt.passage };
        AccessProgress::Confirmed(AskWork { questions: attempt.questions, passage })
    }

    /// Decides about a request whose passwords are confirmed, now or after its questions.
    fn ask(&mut self, work: AskWork, call: GuardCall<'_>) -> GuardOutcome {
        match self.asks.advance(work) {
            AskProgress::Passed(passage) => GuardOutcome::Pass(passage),
            AskProgress::Open(work) => {
                let (hold, ticket) = call.hold();
                self.asks.start(work, hold.key(), ticket);
                GuardOutcome::Later(hold)
            }
        }
    }

    /// Builds the questions about a request.
    ///
    /// # Errors
    /// The response, if the request is rejected without a question.
    fn questions(&self, rules: &[usize], request: &Request<'_>) -> Result<VecDeque<AccessQuestion>, Reply> {
        if rules.is_empty() {
            return Ok(VecDeque::new());
        }
        if request.field(MARK).is_some() {
            return Err(self.asks.failed("ask_loop", &"ask_loop"));
        }
        if request.all(Known::Authorization).count() > 1 {
            // The application of the rule and that of the route could take different ones.
            self.context.refused("ask_credentials");
            return Err(Reply::error(400).because(&"ask_credentials"));
        }
        let question =
            |&rule: &usize| AccessQuestion::new(rule, self.shared.rules[rule].ask.as_ref()?, request);
        let questions: Option<_> = rules.iter().map(question).collect();
        questions.ok_or_else(|| Reply::error(400).because(&"path"))
    }

    /// Lets a request wait for the verification of its credentials, for which there is room.
    fn wait(&mut self, key: ExchangeKey, waiter: AccessWaiter) {
        let AccessWaiter { digest, client, .. } = waiter;
        let check = self.checks.entry(digest).or_default();
        check.keys.push(key);
        check.present += 1;
        self.waiting.insert(key, waiter);
        let is_running = self.running.is_some_and(|(_, running)| running == digest);
        if !is_running && !self.queue.contains(&client, &digest) {
            // Without room the request shares the place of another address with the same credentials.
            if let Ok(Some((client, evicted))) = self.queue.push(client, digest) {
                self.evict(client, &evicted);
            }
        }
    }

    /// Whether credentials cannot wait.
    fn is_full(&self, client: ClientAddress, digest: &Digest) -> bool {
        !self.checks.contains_key(digest) && !self.queue.has_room(&client)
    }

    /// Rejects the requests of an address whose credentials have lost their place.
    fn evict(&mut self, client: ClientAddress, digest: &Digest) {
        let Some(check) = self.checks.get_mut(digest) else { return };
        let waiting = &mut self.waiting;
        let is_evicted =
            |key: &mut ExchangeKey| waiting.get(key).is_some_and(|waiter| waiter.client == client);
        let keys: Vec<ExchangeKey> = check.keys.extract_if(.., is_evicted).collect();
        check.present -= keys.len();
        if check.present == 0 {
            self.checks.remove(digest);
        }
        for key in keys {
            if let Some(AccessWaiter { ticket, .. }) = self.waiting.remove(&key) {
                ticket.resolve(GuardVerdict::Refuse(self.busy()));
            }
        }
    }

    /// Starts the next verification, if none is running.
    fn start_next(&mut self) {
        while self.running.is_none()
            && let Some(digest) = self.queue.pop()
        {
            let keys = self.checks.get(&digest).map(|check| &check.keys[..]).unwrap_or_default();
            let waiter = keys.iter().filter_map(|key| self.waiting.get(key)).find(|one| one.digest == digest);
            let rule = waiter.and_then(|waiter| waiter.attempt.rules.get(waiter.attempt.confirmed));
            let file = rule.and_then(|&rule| self.shared.rules[rule].file);
            let (Some(AccessWaiter { attempt, .. }), Some(file)) = (waiter, file) else {
                // All clients have disconnected.
                self.checks.remove(&digest);
                continue;
            };
            let Credentials { user, password } = &attempt.credentials;
            let (job, password) = (self.shared.files[file].job(user), password.clone());
            self.running = Some((self.context.offload_hash(move || job.run(&password)), digest));
        }
    }

    /// Refuses a request for its address.
    fn denied(&self) -> Reply {
        self.context.refused("address");
        Reply::error(403).because(&"address")
    }

    /// Refuses a request for its password.
    fn challenge(&self, rule: usize) -> Reply {
        self.context.refused("password");
        let reply = Reply::text(401, "a user name and a password are required\n").because(&"password");
        reply.with("WWW-Authenticate", &self.shared.rules[rule].challenge)
    }

    /// Refuses a request whose password cannot be verified now.
    fn busy(&self) -> Reply {
        self.context.refused("password_busy");
        Reply::error(503).with("Retry-After", "1").because(&"password_busy")
    }
}

impl Guard for AccessGuard {
    fn passes(&mut self, request: &Request<'_>) -> bool {
        let demands = self.shared.demands(request, &mut self.decoded);
        demands.is_some_and(|demands| {
            demands.passwords.is_empty() && demands.asks.is_empty() && !demands.undecodable
        }) && !self.shared.is_forged(request)
    }

    fn check(&mut self, request: &Request<'_>, call: GuardCall<'_>) -> GuardOutcome {
        let Some(AccessDemands { passwords, asks, undecodable }) =
            self.shared.demands(request, &mut self.decoded)
        else {
            return GuardOutcome::Refuse(self.denied());
        };
        if undecodable {
            return GuardOutcome::Refuse(Reply::error(400).because(&"undecodable_path"));
        }
        let passed = self.shared.reserved.clone().filter(|_| self.shared.is_forged(request));
        let passage = Passage { passed, ..Passage::default() };
        let questions = match self.questions(&asks, request) {
            Ok(questions) => questions,
            Err(reply) => return GuardOutcome::Refuse(reply),
        };
        let Some(&first) = passwords.first() else {
            return self.ask(AskWork { questions, passage }, call);
        };
        let Some(credentials) = credentials(request) else {
            return GuardOutcome::Refuse(self.challenge(first));
        };
        let rules = passwords;
        match self.advance(CredentialAttempt { credentials, rules, confirmed: 0, questions, passage }) {
            AccessProgress::Confirmed(work) => self.ask(work, call),
            AccessProgress::Refused(reply) => GuardOutcome::Refuse(reply),
            AccessProgress::Unknown(attempt, digest) => {
                let client = request.client().map(household);
                if self.is_full(client, &digest) {
                    return GuardOutcome::Refuse(self.busy());
                }
                let (hold, ticket) = call.hold();
                self.wait(hold.key(), AccessWaiter { attempt, client, ticket, digest });
                self.start_next();
                GuardOutcome::Later(hold)
            }
        }
    }

    fn gone(&mut self, key: ExchangeKey) {
        self.asks.gone(key);
        let Some(waiter) = self.waiting.remove(&key) else { return };
        let Some(check) = self.checks.get_mut(&waiter.digest) else { return };
        check.present -= 1;
        let is_running = self.running.is_some_and(|(_, digest)| digest == waiter.digest);
        if check.present == 0 && !is_running {
            self.checks.remove(&waiter.digest);
            self.queue.retain(|digest| *digest != waiter.digest);
        }
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        self.asks.upstream(id, event);
    }

    fn shrink(&mut self) {
        self.asks.shrink();
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        if self.asks.has_job(job) {
            return self.asks.offloaded(job, done);
        }
        let Some((_, digest)) = self.running.take_if(|(running, _)| *running == job) else { return };
        let now_ns = self.context.now().mono_ns;
        let right = done.and_then(|done| done.downcast::<bool>().ok()).map(|right| *right);
        match right {
            Some(true) => {
                self.counters.right.increment();
                self.right.keep(digest, now_ns);
            }
            Some(false) => {
                self.counters.wrong.increment();
                self.wrong.keep(digest, now_ns);
            }
            None => self.counters.failed.increment(),
        }
        for key in self.checks.remove(&digest).unwrap_or_default().keys {
            let Some(AccessWaiter { attempt, client, ticket, .. }) = self.waiting.remove(&key) else {
                continue;
            };
            let progress = match right {
                Some(_) => self.advance(attempt),
                None => AccessProgress::Refused(self.busy()),
            };
            match progress {
                AccessProgress::Confirmed(work) => match self.asks.advance(work) {
                    AskProgress::Passed(passage) => ticket.resolve(GuardVerdict::Pass(passage)),
                    AskProgress::Open(work) => self.asks.start(work, key, ticket),
                },
                AccessProgress::Refused(reply) => ticket.resolve(GuardVerdict::Refuse(reply)),
                AccessProgress::Unknown(_, digest) if self.is_full(client, &digest) => {
                    ticket.resolve(GuardVerdict::Refuse(self.busy()));
                }
                AccessProgress::Unknown(attempt, digest) => {
                    self.wait(key, AccessWaiter { attempt, client, ticket, digest });
                }
            }
        }
        self.start_next();
    }
}

impl Credentials {
    /// Identifies the credentials and the password file.
    fn digest(&self, salt: &[u8; 32], file: usize) -> Digest {
        let Self { user, password } = self;
        let lengths = [file as u64, user.len() as u64].map(u64::to_be_bytes);
        Digest::of(&[&salt[..], lengths.as_flattened(), user.as_bytes(), password].concat())
    }
}

/// Returns the user and the password of `Authorization: Basic …` (RFC 7617). `None`: there are none that a file could confirm.
fn credentials(request: &Request<'_>) -> Option<Credentials> {
    let mut fields = request.all(Known::Authorization);
    let value = fields.next().filter(|_| fields.clone().next().is_none())?;
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let encoded = std::str::from_utf8(rest.trim_ascii()).ok()?;
    let mut decoded = Base64::decode_vec(encoded).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let password = decoded.split_off(colon + 1);
    decoded.truncate(colon);
    let user = String::from_utf8(decoded).ok()?;
    let is_short = user.len() <= SUBJECT_BYTES_MAX && password.len() <= PASSWORD_BYTES_MAX;
    is_short.then_some(Credentials { user, password })
}
