//! Log-in and log-out: one-time tokens, passwords, cookies.

use std::sync::Arc;

use encke_server::{CodedText, Reply, household};
use serde::Deserialize;
use serde_json::json;

use crate::call::{CERTIFICATE_CSRF, Call};
use crate::json::{as_json, json_text};
use crate::problem::ApiProblem;
use crate::session::{Identity, IdentityProof, SessionOpenError, SessionOwner, SessionUser};
use crate::settings::{ConsoleRole, ConsoleUsers, NAME_BYTES_MAX};
use crate::shared::ConsoleShared;
use crate::worker::JobFate;

/// The user of a one-time token: the person who can read the server's output, or has its admin token.
const OPERATOR: &str = "operator";

/// The user of the program's own one-time tokens.
pub(crate) fn operator() -> SessionUser {
    let owner = SessionOwner::Operator;
    SessionUser { name: OPERATOR.into(), role: ConsoleRole::Admin, owner, until_ms: u64::MAX }
}

/// A configured user whose credentials were checked with `users`.
fn configured(users: &ConsoleUsers, name: Arc<str>, role: ConsoleRole) -> Option<SessionUser> {
    let owner = SessionOwner::User { credentials: users.credentials(&name)? };
    Some(SessionUser { name, role, owner, until_ms: u64::MAX })
}

/// The user of a one-time token: the one that requests it, so that the token has no longer life than its user.
fn token_user(call: &Call, now_ms: u64) -> Option<SessionUser> {
    match call.identity.as_ref()?.credential {
        IdentityProof::Token => Some(operator()),
        IdentityProof::Session(key) => call.shared.sessions.user(&key, now_ms),
        IdentityProof::Certificate(fingerprint) => {
            let users = call.shared.users();
            let (name, role) = users.with_certificate(&fingerprint)?;
            configured(&users, name, role)
        }
    }
}

/// The credentials of a log-in.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum LogInBody {
    Token { token: String },
    Password { user: String, password: String },
}

impl LogInBody {
    /// Parses the body of a log-in.
    ///
    /// # Errors
    /// The body is not the expected JSON, or the user's name is longer than any configured one.
    fn parse(body: &[u8]) -> Result<Self, ApiProblem> {
        // The error of the parser could contain the password.
        let parsed = serde_json::from_slice(body).map_err(|_| {
            ApiProblem::new(400, "the body has either {\"token\"} or {\"user\", \"password\"}")
        })?;
        match &parsed {
            Self::Password { user, .. } if user.len() > NAME_BYTES_MAX => {
                Err(ApiProblem::new(400, format!("a user's name has at most {NAME_BYTES_MAX} bytes")))
            }
            Self::Password { .. } | Self::Token { .. } => Ok(parsed),
        }
    }
}

pub(crate) fn log_in(call: Call) {
    let now_ms = ConsoleShared::unix_ms();
    let parsed = call.allow_query(&[]).and_then(|()| LogInBody::parse(&call.body));
    // A right token counts for no limit: whoever guesses passwords from the same address must not block it.
    let checked = parsed.and_then(|credentials| match credentials {
        LogInBody::Token { .. } => Ok(credentials),
        LogInBody::Password { .. } => begin_attempt(&call).map(|()| credentials),
    });
    match checked {
        Err(problem) => call.responder.send(Err(problem)),
        Ok(LogInBody::Token { token }) => {
            let user = call.shared.sessions.take_login_token(&token, now_ms);
            if user.is_none()
                && let Err(problem) = begin_attempt(&call)
            {
                return call.responder.send(Err(problem));
            }
            open(call, user, WRONG_TOKEN);
        }
        Ok(LogInBody::Password { user, password }) => {
            let mut call = call;
            call.responder.set_user(&user.as_str().into());
            let (shared, users) = (Arc::clone(&call.shared), call.shared.users());
            shared.passwords.run(call.client.map(household), move |fate| {
                if fate == JobFate::Rejected {
                    call.shared.sessions.forgive_attempt(call.client);
                    return call.responder.send(Err(busy()));
                }
                let found = users.log_in(&user, password.as_bytes());
                let found = found.and_then(|(name, role)| configured(&users, name, role));
                if found.is_some() {
                    call.shared.sessions.forgive_attempt(call.client);
                }
                open(call, found, WRONG_PASSWORD);
            });
        }
    }
}

/// Too many jobs wait for the console's thread.
pub(crate) fn busy() -> ApiProblem {
    let text = CodedText::new("busy", "too many requests wait for the console; try again");
    ApiProblem::of("busy", 503, text)
}

const ACCESS_ENDED: &str = "your session has ended, or your user was changed; log in again";

/// The rights of a request have ended since its credentials were checked.
pub(crate) fn access_ended() -> ApiProblem {
    ApiProblem::of("credentials", 401, ACCESS_ENDED)
}

fn begin_attempt(call: &Call) -> Result<(), ApiProblem> {
    let begun = call.shared.sessions.begin_attempt(call.client, ConsoleShared::mono_ms());
    begun.map_err(|limit| too_many_problem(limit.wait_s))
}

/// The error of an address with too many failed attempts.
pub(crate) fn too_many_problem(wait_s: u64) -> ApiProblem {
    ApiProblem::of("attempts", 429, too_many(wait_s)).retry_after(wait_s)
}

pub(crate) fn too_many(wait_s: u64) -> CodedText {
    CodedText::new("attempts", "too many failed attempts from this address; wait {n} s").with("n", wait_s)
}

const WRONG_TOKEN: &str =
    "the token is wrong, used, or older than ten minutes; `encke console` opens the page with a new one";
const WRONG_PASSWORD: &str = "the user or the password is wrong";

/// The error of a user that has changed since its credentials were checked, or of the system.
fn session_problem(error: SessionOpenError, changed: &'static str) -> ApiProblem {
    match error {
        SessionOpenError::UserChanged => ApiProblem::of("credentials", 401, changed),
        SessionOpenError::Random(error) => {
            ApiProblem::new(503, format!("the system gives no random bytes: {error}"))
        }
    }
}

/// Opens a session for a user. Without one the attempt stays counted.
fn open(call: Call, user: Option<SessionUser>, wrong: &'static str) {
    let Call { shared, mut responder, is_secure, cookie_name, .. } = call;
    let now_ms = ConsoleShared::unix_ms();
    let Some(user) = user else {
        return responder.send(Err(ApiProblem::of("credentials", 401, wrong)));
    };
    responder.set_user(&user.name);
    let (name, role) = (Arc::clone(&user.name), user.role);
    let opened = match shared.sessions.open(user, now_ms) {
        Ok(opened) => opened,
        Err(error) => return responder.send(Err(session_problem(error, wrong))),
    };
    let session =
        json!({ "schema": 1, "user": &*name, "role": role, "csrf": opened.csrf, "ends_ms": opened.ends_ms });
    let seconds = opened.ends_ms.saturating_sub(now_ms) / 1000;
    let reply = json_text(201, session.to_string())
        .with("Set-Cookie", cookie(&cookie_name, &opened.cookie, seconds, is_secure));
    responder.send(Ok(reply));
}

/// The cookie of a session, for this listener's pages only.
fn cookie(name: &str, value: &str, seconds: u64, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Responds with the identity of a request. Without one `role` is null instead of a 401: browsers report every 401 as an error, and
/// the log-in page always begins with this request.
pub(crate) fn session(call: Call) {
    let result = call.allow_query(&[]).map(|()| {
        let Some(identity) = &call.identity else {
            return as_json(&json!({ "schema": 1, "user": null, "role": null, "csrf": "", "ends_ms": null }));
        };
        let (csrf, ends_ms) = match identity.credential {
            IdentityProof::Token => (String::new(), None),
            IdentityProof::Certificate(_) => (CERTIFICATE_CSRF.to_owned(), None),
            IdentityProof::Session(key) => match call.shared.sessions.view(&key, ConsoleShared::unix_ms()) {
                Some(view) => (view.csrf, Some(view.ends_ms)),
                None => (String::new(), None),
            },
        };
        let (user, role) = (&*identity.user, identity.role);
        as_json(&json!({ "schema": 1, "user": user, "role": role, "csrf": csrf, "ends_ms": ends_ms }))
    });
    call.responder.send(result);
}

pub(crate) fn log_out(call: Call) {
    let result = call.allow_query(&[]).map(|()| {
        if let Some(session) = call.identity.as_ref().and_then(Identity::session) {
            call.shared.sessions.close(&session);
        }
        Reply::new(204).with("Set-Cookie", cookie(&call.cookie_name, "", 0, call.is_secure))
    });
    call.responder.send(result);
}

pub(crate) fn new_token(call: Call) {
    let now_ms = ConsoleShared::unix_ms();
    let user = token_user(&call, now_ms);
    let Call { shared, responder, authority, is_secure, .. } = call;
    let Some(user) = user else { return responder.send(Err(access_ended())) };
    let result = shared.sessions.login_token(user, now_ms);
    responder.send(match result {
        Ok((token, ends_ms)) => {
            let scheme = if is_secure { "https" } else { "http" };
            let url = format!("{scheme}://{authority}/#login={token}");
            let made = json!({ "schema": 1, "token": token, "url": url, "ends_ms": ends_ms });
            Ok(json_text(201, made.to_string()))
        }
        Err(error) => Err(session_problem(error, ACCESS_ENDED)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_has_a_user_name_of_limited_length() {
        let parse = |bytes: usize| {
            let body =
                json!({ "user": "é".repeat(bytes / 2) + &"a".repeat(bytes % 2), "password": "s3cret" });
            LogInBody::parse(body.to_string().as_bytes())
        };
        for bytes in [0, 1, NAME_BYTES_MAX] {
            let Ok(LogInBody::Password { user, .. }) = parse(bytes) else {
                panic!("{bytes} bytes are a name")
            };
            assert_eq!(user.len(), bytes);
        }
        for bytes in [NAME_BYTES_MAX + 1, 4_000] {
            let Err(problem) = parse(bytes) else { panic!("{bytes} bytes are too long") };
            assert_eq!(problem.status, 400);
            assert!(problem.json()["detail"].as_str().is_some_and(|text| text.contains("256 bytes")));
        }
    }

    #[test]
    fn an_invalid_log_in_is_rejected_without_its_password() {
        for body in [
            r#"{"user":"ann","password":"s3cret","more":1}"#,
            r#"{"user":"ann","token":"s3cret"}"#,
            r#"{"user":"ann"}"#,
            r#"["s3cret"]"#,
            "s3cret",
            "",
        ] {
            let Err(problem) = LogInBody::parse(body.as_bytes()) else { panic!("{body} is no log-in") };
            assert!(problem.status == 400 && !problem.json().to_string().contains("s3cret"), "{body}");
        }
        assert!(matches!(LogInBody::parse(br#"{"token":"t"}"#), Ok(LogInBody::Token { .. })));
    }
}
