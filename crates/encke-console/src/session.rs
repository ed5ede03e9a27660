//! Console sessions: one-time tokens, cookies, roles, and the limit of attempts.
//!
//! ```text
//!  start line, encke console ─ one-time token ─┐
//!  configured user ─ password, certificate ────┴─► open ─► cookie and CSRF token ─► find, until its end or the log-out
//! ```
//! The users are behind the same lock as the sessions: a session or token of a user exists only while the settings have the user
//! with the credentials that were checked.
//!
//! Only digests of secrets are kept: neither a table's order nor the time of a look-up tells anything about a secret.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, mem};

use encke_io::{host, lock};
use encke_server::household;
use sha2::{Digest as _, Sha256};

use crate::settings::{CertFingerprint, ConsoleRole, ConsoleUsers};

/// Time for which a one-time token is valid.
const LOGIN_TOKEN_MS: u64 = 10 * 60 * 1000;
/// Maximum number of unused one-time tokens; a new one then replaces the oldest.
const LOGIN_TOKENS_MAX: usize = 16;
/// Maximum number of open sessions; a new one then replaces the one that ends first.
const SESSIONS_MAX: usize = 1024;
/// Maximum number of addresses whose failed attempts are counted. Beyond it, the oldest count is forgotten.
const ADDRESSES_MAX: usize = 4096;
/// The period in which attempts are limited.
const ATTEMPTS_MS: u64 = 60 * 1000;
/// Bytes of a token: 128 bits.
const TOKEN_BYTES: usize = 16;

/// The user of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) user: Arc<str>,
    pub(crate) role: ConsoleRole,
    pub(crate) credential: IdentityProof,
}

/// How a request proves its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdentityProof {
    /// The admin token, which no browser sends by itself.
    Token,
    /// The cookie of a session.
    Session(SessionKey),
    /// A client certificate.
    Certificate(CertFingerprint),
}

impl Identity {
    /// The session, if there is one.
    pub(crate) fn session(&self) -> Option<SessionKey> {
        match self.credential {
            IdentityProof::Session(key) => Some(key),
            IdentityProof::Token | IdentityProof::Certificate(_) => None,
        }
    }
}

/// Identifies a session. Derived from its cookie, and no secret.
pub(crate) type SessionKey = [u8; 32];

/// A session that has just been opened, with its secrets.
pub(crate) struct OpenedSession {
    /// The value of the cookie.
    pub(crate) cookie: String,
    /// The CSRF token.
    pub(crate) csrf: String,
    pub(crate) ends_ms: u64,
}

/// What a session knows about itself.
pub(crate) struct SessionView {
    pub(crate) csrf: String,
    pub(crate) ends_ms: u64,
}

/// Limits of sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Time after which a session ends.
    pub time: Duration,
    /// Maximum number of failed log-ins per minute and address.
    pub attempts: u32,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(12 * 60 * 60), attempts: 10 }
    }
}

/// The configured users, the open sessions, the unused one-time tokens, and the failed attempts.
pub(crate) struct ConsoleSessions {
    limits: Mutex<SessionLimits>,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    users: ConsoleUsers,
    sessions: HashMap<SessionKey, ConsoleSession>,
    /// Oldest first.
    login_tokens: Vec<LoginToken>,
    /// By address, or by the /64 network of an IPv6 address.
    attempts: HashMap<(AttemptKind, Option<IpAddr>), Attempts>,
}

/// A kind of attempt, of which an address has a number per minute. Each kind is counted alone: programs with an old token must not
/// end the log-ins of people at their address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AttemptKind {
    LogIn,
    /// A request with the admin token.
    Token,
}

struct ConsoleSession {
    user: SessionUser,
    csrf: String,
    ends_ms: u64,
}

/// An unused one-time token.
struct LoginToken {
    digest: [u8; 32],
    user: SessionUser,
    ends_ms: u64,
}

/// The user of a session or of a one-time token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionUser {
    pub(crate) name: Arc<str>,
    pub(crate) role: ConsoleRole,
    pub(crate) owner: SessionOwner,
    /// The latest end of a session in milliseconds since 1970: that of the session which has requested the token.
    pub(crate) until_ms: u64,
}

/// The cause of a session: it ends with its cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionOwner {
    /// The person who reads the server's output, or has its admin token.
    Operator,
    /// A configured user, with a digest of role, password and certificate at the log-in.
    User { credentials: [u8; 32] },
}

/// A session or token was not created.
#[derive(Debug)]
pub(crate) enum SessionOpenError {
    /// The settings no longer have the user with these credentials and this role.
    UserChanged,
    /// The system gives no random bytes.
    Random(io::Error),
}

impl From<io::Error> for SessionOpenError {
    fn from(error: io::Error) -> Self {
        Self::Random(error)
    }
}

impl SessionState {
    fn is_current(&self, user: &SessionUser) -> bool {
        match user.owner {
            SessionOwner::Operator => true,
            SessionOwner::User { credentials } => self.users.credentials(&user.name) == Some(credentials),
        }
    }
}

/// Open and failed attempts of an address in the present period.
struct Attempts {
    since_ms: u64,
    count: u32,
    /// Whether an attempt beyond the limit was rejected.
    rejected: bool,
}

impl Attempts {
    fn since(now_ms: u64) -> Self {
        Self { since_ms: now_ms, count: 0, rejected: false }
    }
}

/// The rejection of an attempt beyond the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttemptLimit {
    /// Time until the next attempt, in seconds.
    pub(crate) wait_s: u64,
    /// Whether it is the first rejection of the period.
    pub(crate) is_first: bool,
}

impl ConsoleSessions {
    pub(crate) fn new(users: ConsoleUsers, limits: SessionLimits) -> Self {
        let state = SessionState { users, ..SessionState::default() };
        Self { limits: Mutex::new(limits), state: Mutex::new(state) }
    }

    /// Replaces the users, and the limits of later sessions and attempts. Sessions and one-time tokens end if their user is removed, or
    /// has another role, password or certificate.
    pub(crate) fn set_users(&self, users: ConsoleUsers, limits: SessionLimits) {
        *lock(&self.limits) = limits;
        let state = &mut *lock(&self.state);
        state.users = users;
        let (mut sessions, mut tokens) = (mem::take(&mut state.sessions), mem::take(&mut state.login_tokens));
        sessions.retain(|_, session| state.is_current(&session.user));
        tokens.retain(|token| state.is_current(&token.user));
        (state.sessions, state.login_tokens) = (sessions, tokens);
    }

    pub(crate) fn users(&self) -> ConsoleUsers {
        lock(&self.state).users.clone()
    }

    fn limits(&self) -> SessionLimits {
        *lock(&self.limits)
    }

    /// Creates a one-time token for a user. Returns it and the time of its end.
    ///
    /// # Errors
    /// The user has changed since its credentials were checked, or the system gives no random bytes.
    pub(crate) fn login_token(
        &self,
        user: SessionUser,
        now_ms: u64,
    ) -> Result<(String, u64), SessionOpenError> {
        let token = new_secret()?;
        let ends_ms = now_ms + LOGIN_TOKEN_MS;
        let mut state = lock(&self.state);
        if !state.is_current(&user) {
            return Err(SessionOpenError::UserChanged);
        }
        state.login_tokens.retain(|token| token.ends_ms > now_ms);
        if state.login_tokens.len() >= LOGIN_TOKENS_MAX {
            state.login_tokens.remove(0);
        }
        state.login_tokens.push(LoginToken { digest: digest(&token), user, ends_ms });
        Ok((token, ends_ms))
    }

    /// Uses a one-time token up. Returns its user, if it was valid.
    pub(crate) fn take_login_token(&self, token: &str, now_ms: u64) -> Option<SessionUser> {
        let wanted = digest(token);
        let mut state = lock(&self.state);
        let found = state.login_tokens.iter().position(|known| known.digest == wanted)?;
        let token = state.login_tokens.remove(found);
        (token.ends_ms > now_ms).then_some(token.user)
    }

    /// Opens a session.
    ///
    /// # Errors
    /// The user has changed since its credentials were checked, or the system gives no random bytes.
    pub(crate) fn open(&self, user: SessionUser, now_ms: u64) -> Result<OpenedSession, SessionOpenError> {
        let (cookie, csrf) = (new_secret()?, new_secret()?);
        let time_ms = u64::try_from(self.limits().time.as_millis()).unwrap_or(u64::MAX);
        let ends_ms = now_ms.saturating_add(time_ms).min(user.until_ms);
        let mut state = lock(&self.state);
        if !state.is_current(&user) {
            return Err(SessionOpenError::UserChanged);
        }
        state.sessions.retain(|_, session| session.ends_ms > now_ms);
        if state.sessions.len() >= SESSIONS_MAX {
            let first = state.sessions.iter().min_by_key(|(_, session)| session.ends_ms).map(|(key, _)| *key);
            first.and_then(|key| state.sessions.remove(&key));
        }
        state.sessions.insert(digest(&cookie), ConsoleSession { user, csrf: csrf.clone(), ends_ms });
        Ok(OpenedSession { cookie, csrf, ends_ms })
    }

    /// Returns the user of a cookie.
    pub(crate) fn find(&self, cookie: &str, now_ms: u64) -> Option<Identity> {
        let key = digest(cookie);
        let state = lock(&self.state);
        let session = state.sessions.get(&key).filter(|session| session.ends_ms > now_ms)?;
        Some(Identity {
            user: Arc::clone(&session.user.name),
            role: session.user.role,
            credential: IdentityProof::Session(key),
        })
    }

    /// Returns the user of an open session, for a one-time token whose session ends no later.
    pub(crate) fn user(&self, key: &SessionKey, now_ms: u64) -> Option<SessionUser> {
        let state = lock(&self.state);
        let session = state.sessions.get(key).filter(|session| session.ends_ms > now_ms)?;
        Some(SessionUser { until_ms: session.ends_ms, ..session.user.clone() })
    }

    /// Returns the facts of a session.
    pub(crate) fn view(&self, key: &SessionKey, now_ms: u64) -> Option<SessionView> {
        let state = lock(&self.state);
        let session = state.sessions.get(key).filter(|session| session.ends_ms > now_ms)?;
        Some(SessionView { csrf: session.csrf.clone(), ends_ms: session.ends_ms })
    }

    /// Ends a session.
    pub(crate) fn close(&self, key: &SessionKey) {
        lock(&self.state).sessions.remove(key);
    }

    /// Whether this is the CSRF token of the session.
    pub(crate) fn has_csrf(&self, key: &SessionKey, given: &[u8]) -> bool {
        let state = lock(&self.state);
        let session = state.sessions.get(key);
        session.is_some_and(|session| digest_bytes(session.csrf.as_bytes()) == digest_bytes(given))
    }

    /// Counts an attempt of an address to log in. Attempts count from their begin, so that many at once are limited as well;
    /// [`forgive_attempt`](Self::forgive_attempt) takes a successful one back.
    ///
    /// # Errors
    /// The address has reached its limit.
    pub(crate) fn begin_attempt(&self, address: Option<IpAddr>, now_ms: u64) -> Result<(), AttemptLimit> {
        self.attempt(AttemptKind::LogIn, address, now_ms, true)
    }

    /// Makes an attempt of an address whose outcome is known at once: only a failed one counts.
    ///
    /// # Errors
    /// The address has reached its limit.
    pub(crate) fn attempt(
        &self,
        kind: AttemptKind,
        address: Option<IpAddr>,
        now_ms: u64,
        has_failed: bool,
    ) -> Result<(), AttemptLimit> {
        let (key, limit) = ((kind, address.map(household)), self.limits().attempts);
        let mut state = lock(&self.state);
        if let Some(attempts) = state.attempts.get_mut(&key) {
            let age_ms = now_ms.saturating_sub(attempts.since_ms);
            if age_ms >= ATTEMPTS_MS {
                *attempts = Attempts::since(now_ms);
            } else if attempts.count >= limit {
                let is_first = !std::mem::replace(&mut attempts.rejected, true);
                return Err(AttemptLimit { wait_s: (ATTEMPTS_MS - age_ms).div_ceil(1000), is_first });
            }
            attempts.count += u32::from(has_failed);
            return Ok(());
        }
        if !has_failed {
            return Ok(());
        }
        if state.attempts.len() >= ADDRESSES_MAX {
            state.attempts.retain(|_, attempts| now_ms.saturating_sub(attempts.since_ms) < ATTEMPTS_MS);
            if state.attempts.len() >= ADDRESSES_MAX {
                // Otherwise attempts from many networks would lock everyone else out.
                let oldest = state.attempts.iter().min_by_key(|(_, attempts)| attempts.since_ms);
                let oldest = oldest.map(|(key, _)| *key);
                oldest.and_then(|key| state.attempts.remove(&key));
            }
        }
        state.attempts.insert(key, Attempts { count: 1, ..Attempts::since(now_ms) });
        Ok(())
    }

    /// Takes an attempt to log in back, because it was successful.
    pub(crate) fn forgive_attempt(&self, address: Option<IpAddr>) {
        let mut state = lock(&self.state);
        let key = (AttemptKind::LogIn, address.map(household));
        if let Some(attempts) = state.attempts.get_mut(&key) {
            attempts.count = attempts.count.saturating_sub(1);
            if attempts.count == 0 {
                state.attempts.remove(&key);
            }
        }
    }
}

fn new_secret() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    host::random(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn digest(secret: &str) -> [u8; 32] {
    digest_bytes(secret.as_bytes())
}

fn digest_bytes(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ConsoleSettings, ConsoleUser};

    const MINUTE_MS: u64 = 60_000;

    fn user(name: &str, role: ConsoleRole) -> SessionUser {
        SessionUser { name: name.into(), role, owner: SessionOwner::Operator, until_ms: u64::MAX }
    }

    fn sessions() -> ConsoleSessions {
        ConsoleSessions::new(
            ConsoleUsers::default(),
            SessionLimits { time: Duration::from_secs(600), attempts: 3 },
        )
    }

    /// A configured user of this role with a certificate.
    fn configured(role: ConsoleRole) -> ConsoleUsers {
        let certificate = Some(CertFingerprint([7; 32]));
        let user = vec![ConsoleUser { name: "ann".into(), password: None, certificate, role }];
        ConsoleUsers::read(&ConsoleSettings { user, ..ConsoleSettings::default() })
            .expect("no secrets to read")
    }

    /// The user, as a log-in with these users checked it.
    fn checked(users: &ConsoleUsers) -> SessionUser {
        let credentials = users.credentials("ann").expect("a configured user");
        let owner = SessionOwner::User { credentials };
        SessionUser { owner, ..user("ann", ConsoleRole::Admin) }
    }

    #[test]
    fn a_log_in_that_overlaps_a_reload_opens_no_session_of_a_changed_user() {
        let sessions = sessions();
        let before = configured(ConsoleRole::Admin);
        let ann = checked(&before);
        for after in [ConsoleUsers::default(), configured(ConsoleRole::View)] {
            sessions.set_users(after, SessionLimits::default());
            assert!(matches!(sessions.open(ann.clone(), 0), Err(SessionOpenError::UserChanged)));
            assert!(matches!(sessions.login_token(ann.clone(), 0), Err(SessionOpenError::UserChanged)));
        }
        sessions.set_users(before, SessionLimits::default());
        assert!(sessions.open(ann.clone(), 0).is_ok() && sessions.login_token(ann, 0).is_ok());
    }

    #[test]
    fn sessions_and_tokens_end_with_their_user() {
        let sessions = sessions();
        let users = configured(ConsoleRole::Admin);
        sessions.set_users(users.clone(), SessionLimits::default());
        let ann = sessions.open(checked(&users), 0).expect("a known user");
        let (token, _) = sessions.login_token(checked(&users), 0).expect("a known user");
        let operator = sessions.open(user("operator", ConsoleRole::Admin), 0).expect("random bytes");
        sessions.set_users(configured(ConsoleRole::Admin), SessionLimits::default());
        assert!(sessions.find(&ann.cookie, 1).is_some(), "a reload that changes nothing ends no session");
        sessions.set_users(configured(ConsoleRole::View), SessionLimits::default());
        assert!(sessions.find(&ann.cookie, 1).is_none() && sessions.take_login_token(&token, 1).is_none());
        assert!(sessions.find(&operator.cookie, 1).is_some());
    }

    #[test]
    fn a_session_by_a_token_ends_no_later_than_the_session_that_requested_it() {
        let sessions = sessions();
        let first = sessions.open(user("ann", ConsoleRole::Admin), 0).expect("random bytes");
        let key = sessions.find(&first.cookie, 1).and_then(|found| found.session()).expect("a session");
        let again = sessions.user(&key, first.ends_ms - 1).expect("an open session");
        let second = sessions.open(again, first.ends_ms - 1).expect("random bytes");
        assert_eq!(second.ends_ms, first.ends_ms);
        assert!(sessions.user(&key, first.ends_ms).is_none(), "it has ended");
    }

    #[test]
    fn a_login_token_is_valid_once_and_for_ten_minutes() {
        let sessions = sessions();
        let token = || sessions.login_token(user("ann", ConsoleRole::View), 1_000).expect("random bytes").0;
        let (first, second) = (token(), token());
        assert!(sessions.take_login_token("0123456789abcdef", 1_000).is_none());
        assert!(sessions.take_login_token(&first, 1_000).is_some());
        assert!(sessions.take_login_token(&first, 1_000).is_none(), "it was used");
        assert!(sessions.take_login_token(&second, 1_000 + 10 * MINUTE_MS).is_none(), "it has ended");
        let last = token();
        assert!(sessions.take_login_token(&last, 999 + 10 * MINUTE_MS).is_some());
    }

    #[test]
    fn unused_login_tokens_are_limited() {
        let sessions = sessions();
        let tokens: Vec<String> = (0..=LOGIN_TOKENS_MAX)
            .map(|_| sessions.login_token(user("ann", ConsoleRole::View), 0).expect("random bytes").0)
            .collect();
        assert!(sessions.take_login_token(&tokens[0], 0).is_none(), "the oldest was replaced");
        assert!(tokens[1..].iter().all(|token| sessions.take_login_token(token, 0).is_some()));
    }

    #[test]
    fn a_session_is_found_by_its_cookie_until_its_end_or_the_log_out() {
        let sessions = sessions();
        let open = |name: &str, role| sessions.open(user(name, role), 0).expect("random bytes");
        let (ann, ben) = (open("ann", ConsoleRole::Admin), open("ben", ConsoleRole::View));
        let found = sessions.find(&ann.cookie, 1).expect("it is open");
        assert_eq!((&*found.user, found.role), ("ann", ConsoleRole::Admin));
        let key = found.session().expect("a session");
        assert!(sessions.has_csrf(&key, ann.csrf.as_bytes()));
        for wrong in ["", &ben.csrf, &ann.cookie] {
            assert!(!sessions.has_csrf(&key, wrong.as_bytes()), "{wrong}");
        }
        sessions.close(&key);
        assert!(sessions.find(&ann.cookie, 1).is_none(), "it was closed");
        assert!(sessions.find(&ben.cookie, ben.ends_ms - 1).is_some());
        assert!(sessions.find(&ben.cookie, ben.ends_ms).is_none(), "it has ended");
        assert!(sessions.find("", 1).is_none());
    }

    #[test]
    fn the_session_that_ends_first_is_replaced_at_the_limit() {
        let sessions = sessions();
        let open = |now_ms| sessions.open(user("ann", ConsoleRole::View), now_ms).expect("random bytes");
        let first = open(0);
        let others: Vec<OpenedSession> = (1..=SESSIONS_MAX as u64).map(open).collect();
        assert!(sessions.find(&first.cookie, 1).is_none());
        assert!(others.iter().all(|other| sessions.find(&other.cookie, 1).is_some()));
    }

    #[test]
    fn failed_attempts_of_an_address_are_limited_per_minute() {
        let sessions = sessions();
        let one = Some(IpAddr::from([192, 0, 2, 1]));
        for now_ms in 0..3 {
            assert_eq!(sessions.begin_attempt(one, now_ms), Ok(()));
        }
        let limit = |wait_s, is_first| Err(AttemptLimit { wait_s, is_first });
        assert_eq!(sessions.begin_attempt(one, 30_000), limit(30, true), "none of the three has an end yet");
        assert_eq!(sessions.begin_attempt(one, 40_000), limit(20, false));
        assert_eq!(sessions.begin_attempt(None, 30_000), Ok(()), "another address");
        for nth in 1..=3 {
            assert_eq!(sessions.begin_attempt(one, MINUTE_MS), Ok(()), "a minute has passed: attempt {nth}");
        }
        assert_eq!(sessions.begin_attempt(one, MINUTE_MS), limit(60, true), "first of this minute");
    }

    #[test]
    fn only_failed_attempts_of_a_known_outcome_count_and_the_limit_rejects_all() {
        let sessions = sessions();
        let attempt = |has_failed| sessions.attempt(AttemptKind::Token, None, 0, has_failed);
        for _ in 0..3 {
            assert_eq!([attempt(false), attempt(true)], [Ok(()), Ok(())]);
        }
        assert_eq!(attempt(false), Err(AttemptLimit { wait_s: 60, is_first: true }));
        assert_eq!(sessions.begin_attempt(None, 0), Ok(()), "log-ins are counted alone");
        assert_eq!(sessions.attempt(AttemptKind::Token, None, MINUTE_MS, false), Ok(()));
    }

    #[test]
    fn attempts_from_many_networks_lock_nobody_out() {
        let sessions = sessions();
        for number in 0..=ADDRESSES_MAX as u32 {
            let address = Some(IpAddr::from(number.to_be_bytes()));
            assert_eq!(sessions.begin_attempt(address, number.into()), Ok(()), "{number}");
        }
        assert_eq!(lock(&sessions.state).attempts.len(), ADDRESSES_MAX);
    }

    #[test]
    fn successful_attempts_are_not_limited() {
        let sessions = sessions();
        for _ in 0..10 {
            assert_eq!(sessions.begin_attempt(None, 0), Ok(()));
            sessions.forgive_attempt(None);
        }
        assert!(lock(&sessions.state).attempts.is_empty());
    }

    #[test]
    fn addresses_of_an_ipv6_network_share_their_attempts() {
        let sessions = sessions();
        let address = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        for text in ["2001:db8::1", "2001:db8::2", "2001:db8::3"] {
            assert_eq!(sessions.begin_attempt(address(text), 0), Ok(()), "{text}");
        }
        let limit = AttemptLimit { wait_s: 60, is_first: true };
        assert_eq!(sessions.begin_attempt(address("2001:db8::4"), 0), Err(limit));
        assert_eq!(sessions.begin_attempt(address("2001:db8:0:1::1"), 0), Ok(()), "another network");
    }
}
