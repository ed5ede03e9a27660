//! The admin listener's handler: checks each request, and calls its route.
//!
//! ```text
//!  request ─► host, origin ─► page, probe ───────────────────────────────► response
//!                     └─► route ─► credentials, role, CSRF token ─► body ─► call ─► response, from any thread
//! ```
//! | path | access | response |
//! |---|---|---|
//! | `/` and its assets | open | the pages of the console |
//! | `/healthz` | open | 200 while the process serves |
//! | `/readyz` | open | 200, or 503 during a drain: for load balancers |
//! | `/metrics` | token, or open with `metrics = "open"` | Prometheus text |
//! | `/api/v1/…` | by the route's role | see [`ROUTES`](crate::routes::ROUTES) |

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use encke_io::Peer;
use encke_server::{
    Body, CodedText, Exchange, ExchangeKey, Handler, HandlerContext, Mount, Outcome, Piece, Reply, Request,
    WorkerSetup,
};
use encke_settings::conceal::conceal;
use encke_stats::prometheus;
use encke_wire::field::Known;
use encke_wire::method::Method;
use encke_wire::target;

use crate::access::{self, RequestOrigin};
use crate::audit::AuditEntry;
use crate::call::{CERTIFICATE_CSRF, Call, CallResponder, address_text, finished};
use crate::console::Console;
use crate::log_in;
use crate::pages;
use crate::problem::ApiProblem;
use crate::routes::{ApiRoute, RouteAccess, find};
use crate::session::{AttemptKind, Identity, IdentityProof};
use crate::settings::{CertFingerprint, ConsoleRole};
use crate::shared::ConsoleShared;

impl Mount for Console {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(ConsoleHandler { shared: Arc::clone(&self.shared), waiting: HashMap::new() })
    }
}

/// The handler of one worker.
struct ConsoleHandler {
    shared: Arc<ConsoleShared>,
    /// The requests whose bodies are incomplete, one per connection or HTTP/2 stream at most.
    waiting: HashMap<ExchangeKey, (&'static ApiRoute, Call)>,
}

impl Handler for ConsoleHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        if let Some(reply) = self.open_reply(request) {
            return Outcome::Now(reply);
        }
        let (route, params) = match self.route(request) {
            Ok(found) => found,
            Err(reply) => return Outcome::Now(reply),
        };
        let identity = match self.identity(request, route) {
            Ok(identity) => identity,
            Err(problem) => return Outcome::Now(finished(problem.into())),
        };
        let call = self.take(request, exchange, route, params, identity);
        if pages::is_read(request.method()) {
            (route.call)(call);
        } else {
            call.responder.exchange.read_more();
            self.waiting.insert(call.responder.exchange.key(), (route, call));
        }
        Outcome::Later
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some((route, mut call)) = self.waiting.remove(&key) else { return };
        match piece {
            Piece::Data(data) if call.body.len() + data.len() > call.body_max => {
                let text = format!("the body is larger than {} bytes", call.body_max);
                call.responder.send(Err(ApiProblem::new(413, text)));
            }
            Piece::Data(data) => {
                call.body.extend_from_slice(data);
                call.responder.exchange.read_more();
                self.waiting.insert(key, (route, call));
            }
            // A client may hold its body back for longer than its rights last.
            Piece::End => match call.check_access() {
                Ok(()) => (route.call)(call),
                Err(problem) => call.responder.send(Err(problem)),
            },
            // The server responds, or the client has disconnected.
            Piece::Broken => {}
        }
    }

    fn gone(&mut self, key: ExchangeKey) {
        self.waiting.remove(&key);
    }
}

impl ConsoleHandler {
    /// The response to a request that needs no credentials, or that no foreign page may send; `None` for a request of the API.
    fn open_reply(&self, request: &Request<'_>) -> Option<Reply> {
        let is_probe = matches!(request.path(), b"/healthz" | b"/readyz");
        let is_open_metrics = self.shared.metrics_open && request.path() == b"/metrics";
        let reply = |reply: Reply| Some(finished(reply));
        if !is_probe && !is_open_metrics {
            if !self.host_is_safe(request.authority()) {
                let is_api = request.path().starts_with(b"/api/");
                return reply(if is_api {
                    ApiProblem::of("host", 421, WRONG_HOST).into()
                } else {
                    Reply::text(421, format!("421 Misdirected Request\n{WRONG_HOST}\n{OPEN_METRICS}\n"))
                });
            }
            match RequestOrigin::of(request) {
                RequestOrigin::Own => {}
                RequestOrigin::Navigation if !request.path().starts_with(b"/api/") => {}
                RequestOrigin::Navigation | RequestOrigin::Foreign => {
                    let text = CodedText::new(
                        "origin",
                        "a page of another origin sent this request; open the console itself",
                    );
                    return reply(ApiProblem::of("origin", 403, text).into());
                }
            }
        }
        let is_plain = matches!(request.path(), b"/healthz" | b"/readyz" | b"/metrics");
        if !pages::is_read(request.method()) {
            return is_plain.then(|| finished(Reply::error(405).with("Allow", "GET, HEAD")));
        }
        match request.path() {
            b"/healthz" => reply(Reply::text(200, "ok\n")),
            b"/readyz" if self.shared.stops() => reply(Reply::text(503, "stopping\n")),
            b"/readyz" => reply(Reply::text(200, "ready\n")),
            b"/metrics" if !is_open_metrics => reply(match self.check_token(request, 401) {
                TokenCheck::Right => self.metrics_reply(),
                TokenCheck::Absent | TokenCheck::Wrong => {
                    Reply::text(401, NO_TOKEN).with("WWW-Authenticate", "Bearer")
                }
                TokenCheck::Limited(wait_s) => {
                    let text = format!("429 Too Many Requests\n{}\n", log_in::too_many(wait_s));
                    Reply::text(429, text).with("Retry-After", wait_s.to_string())
                }
            }),
            b"/metrics" => reply(self.metrics_reply()),
            _ => pages::reply(request),
        }
    }

    fn metrics_reply(&self) -> Reply {
        Reply::new(200)
            .with("Content-Type", prometheus::CONTENT_TYPE)
            .body(Body::Bytes(conceal(&self.shared.metrics()).into_owned().into_bytes()))
    }

    fn route(&self, request: &Request<'_>) -> Result<(&'static ApiRoute, Vec<String>), Reply> {
        let path = String::from_utf8_lossy(request.path());
        let method = if request.method() == Method::Head { b"GET" } else { request.method_text() };
        find(method, &path).map_err(|allowed| {
            let reply: Reply = match &*allowed {
                [] => ApiProblem::new(404, format!("the console has no resource {path}")).into(),
                _ => {
                    let allowed = allowed.join(", ");
                    let text = format!("{path} supports only these methods: {allowed}");
                    Reply::from(ApiProblem::new(405, text)).with("Allow", allowed)
                }
            };
            finished(reply)
        })
    }

    /// Checks the credentials of a request, its role, and its CSRF token. Open routes report the identity of a read, if any.
    fn identity(&self, request: &Request<'_>, route: &ApiRoute) -> Result<Option<Identity>, ApiProblem> {
        let least = match route.access {
            RouteAccess::Open if pages::is_read(request.method()) => return self.identified(request, 200),
            RouteAccess::Open => return Ok(None),
            RouteAccess::View => ConsoleRole::View,
            RouteAccess::Admin => ConsoleRole::Admin,
        };
        let Some(identity) = self.identified(request, 401)? else {
            let text = "log in, or send the token (server.admin.token, or the one that the server printed at its start) as \
                        Authorization: Bearer TOKEN";
            return Err(ApiProblem::of("credentials", 401, text));
        };
        if identity.role < least {
            let text = CodedText::new("role", "this needs the role {least}; {user} has the role {role}");
            let text = text.with("least", least).with("user", &identity.user).with("role", identity.role);
            return Err(ApiProblem::of("role", 403, text));
        }
        // Browsers send cookies and certificates by themselves, but no field of a foreign page.
        let given = request.field("encke-csrf").unwrap_or_default();
        let has_csrf = match &identity.credential {
            IdentityProof::Token => true,
            IdentityProof::Session(session) => self.shared.sessions.has_csrf(session, given),
            IdentityProof::Certificate(_) => given == CERTIFICATE_CSRF.as_bytes(),
        };
        if !has_csrf && !pages::is_read(request.method()) {
            let text = CodedText::new(
                "csrf",
                "changes need the field Encke-Csrf with the value `csrf` of /api/v1/session",
            );
            return Err(ApiProblem::of("csrf", 403, text));
        }
        Ok(Some(identity))
    }

    /// The identity of a request by its token, or else by its session cookie or its client certificate. A wrong token counts even if
    /// another proof is valid: a user with few rights must not guess it. `wrong_status` is the status that a wrong token alone gets.
    ///
    /// # Errors
    /// The client's address has sent too many wrong tokens, and the request has no other proof.
    fn identified(&self, request: &Request<'_>, wrong_status: u16) -> Result<Option<Identity>, ApiProblem> {
        let checked = self.check_token(request, wrong_status);
        if checked == TokenCheck::Right {
            return Ok(Some(token_identity()));
        }
        let now_ms = ConsoleShared::unix_ms();
        let by_cookie =
            access::session_cookies(request).find_map(|cookie| self.shared.sessions.find(cookie, now_ms));
        match (by_cookie.or_else(|| self.by_certificate(request)), checked) {
            (None, TokenCheck::Limited(wait_s)) => Err(log_in::too_many_problem(wait_s)),
            (identity, _) => Ok(identity),
        }
    }

    /// The user whose settings name the client's certificate.
    fn by_certificate(&self, request: &Request<'_>) -> Option<Identity> {
        let fingerprint = CertFingerprint(*request.tls()?.client.as_ref()?.fingerprint);
        let (user, role) = self.shared.users().with_certificate(&fingerprint)?;
        Some(Identity { user, role, credential: IdentityProof::Certificate(fingerprint) })
    }

    fn take(
        &self,
        request: &Request<'_>,
        exchange: Exchange,
        route: &ApiRoute,
        params: Vec<String>,
        identity: Option<Identity>,
    ) -> Call {
        let client = client_of(request);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_change = !pages::is_read(request.method()) && route.is_change;
        let audit = is_change.then(|| audit_entry(request, identity.as_ref()));
        let query = target::query_pairs(request.query().unwrap_or_default());
        let is_admin = identity.as_ref().is_some_and(|identity| identity.role == ConsoleRole::Admin);
        let conceals = !is_admin || !route.is_of_settings();
        Call {
            identity,
            path: text(request.path()),
            params,
            query: query
                .filter(|(key, _)| key != "token")
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
            body: Vec::new(),
            if_match: request.known(Known::IfMatch).map(text),
            authority: text(request.authority()),
            is_secure: request.origin().secure,
            is_head: request.method() == Method::Head,
            cookie_name: access::cookie_name(request),
            client,
            body_max: route.body_max(),
            responder: CallResponder { exchange, shared: Arc::clone(&self.shared), audit, conceals },
            shared: Arc::clone(&self.shared),
        }
    }

    /// Whether no foreign web page can have this host: an IP address, a loopback name, a name of the settings, or none.
    fn host_is_safe(&self, authority: &[u8]) -> bool {
        access::host_is_own(authority) || self.shared.hosts.iter().any(|host| host.matches(authority))
    }

    /// Compares a request's token with the admin token. Wrong ones count as failed attempts of the client's address, and are in the
    /// audit with `wrong_status`.
    fn check_token(&self, request: &Request<'_>, wrong_status: u16) -> TokenCheck {
        let Some(given) = given_token(request) else { return TokenCheck::Absent };
        let token = self.shared.token.as_bytes();
        let is_right = access::same(&given, token);
        // A long token cannot be guessed. A program with an old one must not lock out others at its address.
        if is_right && token.len() >= UNGUESSABLE_BYTES {
            return TokenCheck::Right;
        }
        let (client, now_ms) = (client_of(request), ConsoleShared::mono_ms());
        match self.shared.sessions.attempt(AttemptKind::Token, client, now_ms, !is_right) {
            Ok(()) if is_right => TokenCheck::Right,
            Ok(()) => {
                self.record_token(request, " with a wrong token", wrong_status);
                TokenCheck::Wrong
            }
            Err(limit) => {
                // Further requests of the same minute would push changes out of the audit.
                if limit.is_first {
                    let text =
                        if is_right { " with a token, after wrong ones" } else { " with a wrong token" };
                    self.record_token(request, text, 429);
                }
                TokenCheck::Limited(limit.wait_s)
            }
        }
    }

    fn record_token(&self, request: &Request<'_>, text: &str, status: u16) {
        let mut entry = audit_entry(request, None);
        entry.act.push_str(text);
        self.shared.audit.record(AuditEntry { result: status, ..entry });
    }
}

/// Minimum length in bytes of a token that cannot be guessed at any rate of requests: in hexadecimal digits 64 bits.
const UNGUESSABLE_BYTES: usize = 16;

/// The result of comparing a request's token with the admin token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenCheck {
    /// The request has no token.
    Absent,
    Right,
    Wrong,
    /// Too many wrong tokens from this address. The time to wait in seconds.
    Limited(u64),
}

/// Returns the token of a request: of its `Authorization` field, or else of its query. The query may have it only in requests that
/// change nothing: a link on a foreign page cannot contain it, but logs of a proxy may.
fn given_token<'a>(request: &Request<'a>) -> Option<Cow<'a, [u8]>> {
    let in_query = || {
        let query = request.query().filter(|_| pages::is_read(request.method()))?;
        let (_, token) = target::query_pairs(query).find(|(name, _)| name == "token")?;
        Some(Cow::Owned(token.into_owned().into_bytes()))
    };
    access::bearer(request).map(Cow::Borrowed).or_else(in_query).filter(|token| !token.is_empty())
}

/// The client's address, as a trusted proxy reports it; without such a report the peer's. `None` for a Unix socket.
fn client_of(request: &Request<'_>) -> Option<IpAddr> {
    let origin = request.origin();
    let peer = match origin.peer {
        Peer::Inet(address) => Some(address.ip()),
        Peer::Local => None,
    };
    origin.client.or(peer).map(|address| address.to_canonical())
}

/// The entry of a request for the audit, still without values and result.
fn audit_entry(request: &Request<'_>, identity: Option<&Identity>) -> AuditEntry {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    AuditEntry {
        unix_ms: ConsoleShared::unix_ms(),
        user: identity.map_or_else(|| "-".into(), |identity| Arc::clone(&identity.user)),
        address: address_text(client_of(request)),
        act: format!("{} {}", text(request.method_text()), text(request.path())),
        old: String::new(),
        new: String::new(),
        result: 0,
    }
}

/// The user of the admin token.
fn token_identity() -> Identity {
    Identity { user: "token".into(), role: ConsoleRole::Admin, credential: IdentityProof::Token }
}

/// The content of a 401 without JSON.
const NO_TOKEN: &str = "401 Unauthorized\nA valid token is required: server.admin.token. If that is not set, the server printed a token at its start.\n";

/// The remedy for a 421.
const WRONG_HOST: &str = "Use an IP address or localhost as the host, or add the name to server.admin.hosts of the settings file. Other names are rejected, because a page on the Internet could use them to read this response.";
const OPEN_METRICS: &str =
    "server.admin.metrics = \"open\" serves /metrics under every name, without a token.";
