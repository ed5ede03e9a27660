//! The endpoints of the admin listener: health, metrics, status.
//!
//! | path | access | response |
//! |---|---|---|
//! | `/healthz` | open | 200 while the process serves |
//! | `/readyz` | open | 200, or 503 during a drain: for load balancers |
//! | `/metrics` | token, or open with `metrics = "open"` | Prometheus text |
//! | `/api/v1/status` | token | JSON, schema 1, which only gains keys |
//! | `/api/v1/cluster` | token | JSON about the nodes of the cluster; 404 without a cluster |
//! | `/api/v1/live` | token | the status without `families`, as an event stream: at once, and every second |
//!
//! The token is sent as `Authorization: Bearer …` or `?token=…`. A foreign web page can send a browser here if its host name
//! resolves to this machine (DNS rebinding). Only hosts that no such page can have are therefore served: IP addresses, loopback
//! names and the names of the settings. Requests for other hosts get a 421. Responses that are open to every client have any
//! host: a client that may read them needs no browser of another machine for it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use encke_stats::{Family, json, prometheus};
use encke_wire::field::Known;
use encke_wire::host::HostPattern;
use encke_wire::method::Method;
use encke_wire::target;
use serde_json::{Value, json};

use encke_server::{
    Body, Exchange, Handler, HandlerContext, Mount, Outcome, Reply, Request, ServerStatus, WorkerSetup,
};

use crate::status_stream::{StatusStream, StatusTicker};

/// The handler of the admin listener: the server that it shows, and the access rules.
#[derive(Clone)]
pub struct Console {
    /// The server that it shows.
    board: Arc<ServerStatus>,
    ticker: Arc<StatusTicker>,
    token: Arc<str>,
    metrics_open: bool,
    /// Names of this server that are accepted as the host of a request.
    hosts: Arc<[HostPattern]>,
}

impl Console {
    /// Creates a handler that shows a server to clients with the token. With `metrics_open` the metrics need no token, and are
    /// served under every host name.
    pub fn new(board: Arc<ServerStatus>, token: Arc<str>, metrics_open: bool) -> Self {
        let ticker = Arc::<StatusTicker>::default();
        let woken = Arc::clone(&ticker);
        board.on_drain(move || woken.quicken());
        Self { board, ticker, token, metrics_open, hosts: Arc::default() }
    }

    /// Serves all paths under these host names, too. Without them only IP addresses and loopback names are accepted.
    #[must_use]
    pub fn with_hosts(self, hosts: impl Into<Arc<[HostPattern]>>) -> Self {
        Self { hosts: hosts.into(), ..self }
    }
}

impl Mount for Console {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

impl Handler for Console {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let reply = match self.denial(request) {
            Some(denial) => denial,
            None if request.path() == b"/api/v1/live" => self.live(request.method(), &exchange),
            None => self.answer(request),
        };
        exchange.answer(reply.with("Cache-Control", "no-store"));
        Outcome::Later
    }
}

impl Console {
    /// The response that rejects a request; `None` if the request is allowed.
    fn denial(&self, request: &Request<'_>) -> Option<Reply> {
        let is_probe = matches!(request.path(), b"/healthz" | b"/readyz");
        let any_host = is_probe || (self.metrics_open && request.path() == b"/metrics");
        if !any_host && !self.host_is_safe(request.authority()) {
            return Some(Reply::text(421, WRONG_HOST));
        }
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Some(Reply::error(405).with("Allow", "GET, HEAD"));
        }
        let open = match request.path() {
            b"/metrics" => self.metrics_open,
            b"/api/v1/status" | b"/api/v1/cluster" | b"/api/v1/live" => false,
            _ => true,
        };
        if open || self.may(request) {
            return None;
        }
        let text = "401 Unauthorized\nA valid token is required: server.admin.token. If that is not set, the server printed a token at its start.\n";
        Some(Reply::text(401, text).with("WWW-Authenticate", "Bearer"))
    }

    fn answer(&self, request: &Request<'_>) -> Reply {
        match request.path() {
            b"/healthz" => Reply::text(200, "ok\n"),
            b"/readyz" if self.stops() => Reply::text(503, "stopping\n"),
            b"/readyz" => Reply::text(200, "ready\n"),
            b"/metrics" => Reply::new(200)
                .with("Content-Type", prometheus::CONTENT_TYPE)
                .body(Body::Bytes(prometheus::render(&self.families()).into_bytes())),
            b"/api/v1/status" => {
                let mut status = self.status();
                let families = serde_json::from_str::<Value>(&json::render(&self.families()));
                status["families"] = families.unwrap_or_default()["families"].take();
                as_json(&status)
            }
            b"/api/v1/cluster" => match self.board.part("cluster") {
                Some(cluster) if !cluster.is_null() => as_json(&cluster),
                _ => {
                    let text = "404 Not Found\nThis server is not in a cluster: cluster.nats is not set.\n";
                    Reply::text(404, text)
                }
            },
            _ => Reply::error(404),
        }
    }

    /// The response with the status as an event stream.
    fn live(&self, method: Method, exchange: &Exchange) -> Reply {
        let reply = Reply::new(200).with("Content-Type", "text/event-stream");
        if method == Method::Head {
            return reply;
        }
        let due = Arc::new(AtomicBool::new(false));
        if self.ticker.beat_for(&due, exchange.wake_handle()).is_err() {
            return Reply::error(503).with("Retry-After", "1");
        }
        let console = self.clone();
        reply.body(Body::Stream(Box::new(StatusStream::new(due, move || {
            (!console.stops()).then(|| console.status())
        }))))
    }

    /// Whether no foreign web page can have this host: an IP address, a loopback name, a name of the settings, or none.
    fn host_is_safe(&self, authority: &[u8]) -> bool {
        host_is_own(authority) || self.hosts.iter().any(|host| host.matches(authority))
    }

    fn stops(&self) -> bool {
        self.board.is_stopping()
    }

    fn may(&self, request: &Request<'_>) -> bool {
        let bearer = request
            .known(Known::Authorization)
            .and_then(|value| value.split_first_chunk::<7>())
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
            .is_some_and(|(_, token)| same(token.trim_ascii(), self.token.as_bytes()));
        let query = request.query().unwrap_or_default();
        bearer
            || target::query_pairs(query)
                .any(|(name, value)| name == "token" && same(value.as_bytes(), self.token.as_bytes()))
    }

    fn families(&self) -> Vec<Family> {
        let mut families = self.board.families();
        let info = Family::gauge("encke_build_info", "Version and back end. The value is always 1.");
        families.push(info.with(
            &[("version", env!("CARGO_PKG_VERSION")), ("backend", self.board.backend().0.name())],
            1u64,
        ));
        families.push(
            Family::gauge("encke_connections_limit", "Maximum number of open connections.")
                .value(self.board.connections_limit() as u64),
        );
        let process = [
            ("process_resident_memory_bytes", "Resident memory in bytes.", encke_io::host::resident_bytes()),
            (
                "process_open_fds",
                "Open file descriptors.",
                encke_io::host::open_descriptors().map(|count| count as u64),
            ),
            (
                "process_start_time_seconds",
                "Start time in seconds since 1970.",
                Some(self.board.started_unix_s()),
            ),
        ];
        for (name, help, value) in process {
            if let Some(value) = value {
                families.push(Family::gauge(name, help).value(value));
            }
        }
        #[cfg(unix)]
        families.push(
            Family::counter("process_cpu_seconds_total", "User and system CPU time in seconds.")
                .value(encke_io::host::cpu_seconds()),
        );
        families
    }

    /// The status as JSON, without the metric families.
    fn status(&self) -> Value {
        let board = &self.board;
        let text =
            |addresses: &[encke_io::Address]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut status = json!({
            "schema": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "state": if self.stops() { "stopping" } else { "serving" },
            "backend": board.backend().0.name(),
            "backend_reason": board.backend().1,
            "workers": board.workers(),
            "pid": std::process::id(),
            "started_s": board.started_unix_s(),
            "listen": text(&board.addresses()),
            "admin": text(&board.admin_addresses()),
            "connections_limit": board.connections_limit(),
            "connections": board.connections(),
            "requests": board.requests(),
            "resident_bytes": encke_io::host::resident_bytes(),
            "descriptors": encke_io::host::open_descriptors(),
        });
        for source in board.sources() {
            // A source cannot replace a key of the engine.
            if let (None, Some(part)) = (status.get(source.name()), source.status()) {
                status[source.name()] = part;
            }
        }
        status
    }
}

/// The content of a 421.
const WRONG_HOST: &str = "421 Misdirected Request\nUse an IP address or localhost as the host, or add the name to server.admin.hosts of the settings file. Other names are rejected, because a page on the Internet could use them to read this response.\nserver.admin.metrics = \"open\" serves /metrics under every name, without a token.\n";

fn as_json(value: &Value) -> Reply {
    Reply::new(200).with("Content-Type", "application/json").body(Body::Bytes(value.to_string().into_bytes()))
}

/// Compares in constant time: the time does not depend on the position of the first difference.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let differing = given.iter().zip(wanted).fold(0, |differing, (one, other)| differing | (one ^ other));
    given.len() == wanted.len() && differing == 0
}

/// Returns whether a foreign web page cannot have this host: an IP address, a loopback name, or none.
fn host_is_own(authority: &[u8]) -> bool {
    let Ok(authority) = target::parse_authority(authority) else { return authority.is_empty() };
    let host = std::str::from_utf8(authority.host).unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    authority.is_loopback()
        || host.parse::<Ipv4Addr>().is_ok()
        || address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_that_no_foreign_page_can_have_are_answered() {
        for host in
            ["", "localhost", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "10.1.2.3", "[2001:db8::1]"]
        {
            assert!(host_is_own(host.as_bytes()), "{host}");
        }
        for host in ["example.org", "localhost.example.org", "127.0.0.1.example.org:8081", "1.2.3", "a b"] {
            assert!(!host_is_own(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn a_token_is_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for other in ["", "secre", "secret ", "Secret", "secretsecret"] {
            assert!(!same(other.as_bytes(), b"secret"), "{other}");
        }
    }
}
