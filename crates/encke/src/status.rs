//! `encke status`: queries the admin listener of a running server.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use encke_assembly::settings::{ADMIN_DEFAULT, ListenAddress, OrOff, Settings};
use encke_wire::method::Method;
use serde_json::Value;

use crate::arguments::Status;
use crate::client::{self, ClientError, ClientRequest, Connection, Location, ServerLocation, TrustSettings};
use crate::error::{CommandError, CommandResult};
use crate::output::print;

/// Timeout of a request. A listener on this machine responds within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two queries with `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &Status) -> CommandResult {
    let admin = AdminTarget::of(arguments)?;
    let mut before: Option<Value> = None;
    loop {
        let answer = admin.ask()?;
        if arguments.json {
            print(&format!("{}\n", answer.trim_end()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let status: Value = serde_json::from_str(&answer).unwrap_or_default();
        let clear = if arguments.watch { "\x1b[H\x1b[2J" } else { "" };
        print(&format!("{clear}{}", format_status(&status, before.as_ref())))?;
        if !arguments.watch {
            return Ok(ExitCode::SUCCESS);
        }
        before = Some(status);
        client::pause(WATCH_PAUSE);
    }
}

/// The admin listener and its token.
#[derive(Debug, PartialEq, Eq)]
struct AdminTarget {
    server: ServerLocation,
    token: Option<String>,
}

/// Why a server sent no status. The origin is the server, or another program at its address.
#[derive(Debug)]
enum AdminError {
    /// There was no response.
    Client(ClientError),
    /// The server requires a token, and none was sent.
    NoToken,
    /// The server rejected the token.
    WrongToken,
    /// The response has this status.
    Status(u16),
    /// The response is not a status of Encke.
    Foreign,
}

impl AdminTarget {
    /// Address and token: from the arguments, else from the settings file, else the default address.
    fn of(arguments: &Status) -> Result<Self, CommandError> {
        let mut admin = Self {
            server: ServerLocation::Inet(ADMIN_DEFAULT.ip().to_string(), ADMIN_DEFAULT.port()),
            token: None,
        };
        if let Some(file) = &arguments.config {
            let OrOff::On(settings) = Settings::read(file)?.server.admin else {
                let text = format!("the admin listener is off in {}", file.display());
                return Err(CommandError::system(text));
            };
            admin.server = server_at(&settings.address());
            if let Some(secret) = &settings.token {
                admin.token = Some(secret.reveal().map_err(CommandError::system)?);
            }
        }
        if let Some(text) = &arguments.admin {
            let named = Self::parse(text)?;
            admin = Self { token: named.token.or(admin.token), ..named };
        }
        if let Some(token) = &arguments.token {
            admin.token = Some(token.clone());
        }
        if admin.token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(CommandError::usage("a token has no spaces or control characters"));
        }
        Ok(admin)
    }

    /// Parses `8081`, `HOST:PORT`, or a URL with `?token=`.
    fn parse(text: &str) -> Result<Self, CommandError> {
        let Location { server, query, .. } = Location::parse(text)
            .map_err(|error| CommandError::usage(error).context("invalid admin listener"))?;
        let mut pairs = query.as_deref().unwrap_or_default().split('&');
        let token = pairs.find_map(|pair| pair.strip_prefix("token=")).map(ToOwned::to_owned);
        Ok(Self { server, token })
    }

    /// Requests `/api/v1/status` and returns the response body.
    fn ask(&self) -> Result<String, CommandError> {
        let failed = |error: AdminError| CommandError::server(error).context(&self.server);
        let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let field = authorization.as_deref().map(|value| ("Authorization", value));
        let request = ClientRequest {
            method: Method::Get,
            target: "/api/v1/status",
            fields: field.as_slice(),
            body: b"",
        };
        let mut connection = Connection::to(&self.server, &TrustSettings::new(None, false))
            .map_err(|error| failed(AdminError::Client(error)))?;
        let answer = connection.ask(&request, PATIENCE).map_err(|error| failed(AdminError::Client(error)))?;
        match answer.head.status() {
            200 => {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                // A site with `spa`, for example, responds to every path.
                let status: Value = serde_json::from_str(&text).unwrap_or_default();
                if status["schema"].is_u64() { Ok(text) } else { Err(failed(AdminError::Foreign)) }
            }
            401 if self.token.is_some() => Err(failed(AdminError::WrongToken)),
            401 => Err(failed(AdminError::NoToken)),
            status => Err(failed(AdminError::Status(status))),
        }
    }
}

/// The remedy for an address of another listener or program.
const NOT_ADMIN: &str = "this is not the admin listener of Encke; the start-up lines print its URL";

/// Where the token is found.
const TOKEN_ORIGIN: &str =
    "it is server.admin.token, or, if that is not set, in the start-up lines of the server";

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::NoToken => write!(f, "a token is required (--token or $ENCKE_TOKEN): {TOKEN_ORIGIN}"),
            Self::WrongToken => write!(f, "wrong token: {TOKEN_ORIGIN}"),
            Self::Status(421) => f.write_str(
                "the admin listener does not accept this host name: use an IP address, or add the name to \
                 server.admin.hosts in its settings file",
            ),
            Self::Status(status) => write!(f, "unexpected status {status}: {NOT_ADMIN}"),
            Self::Foreign => write!(f, "the response is not a status: {NOT_ADMIN}"),
        }
    }
}

impl Error for AdminError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::NoToken | Self::WrongToken | Self::Status(_) | Self::Foreign => None,
        }
    }
}

/// Returns the server that reaches a listener at this address from the same machine.
fn server_at(address: &ListenAddress) -> ServerLocation {
    match address {
        ListenAddress::Loopback(port) | ListenAddress::Everywhere(port) => {
            ServerLocation::Inet("127.0.0.1".into(), *port)
        }
        ListenAddress::Inet(address) => ServerLocation::Inet(address.ip().to_string(), address.port()),
        ListenAddress::Name(host, port) => ServerLocation::Inet(host.clone(), *port),
        ListenAddress::Unix(path) => ServerLocation::Unix(path.clone()),
    }
}

/// Formats a status in a few lines. With the previous status, also the change since then.
fn format_status(status: &Value, before: Option<&Value>) -> String {
    let text = |key: &str| status[key].as_str().unwrap_or("?").to_owned();
    let number = |key: &str| status[key].as_u64();
    let or_unknown = |value: Option<u64>| value.map_or_else(|| "?".into(), |value| value.to_string());
    let list = |key: &str| {
        let items = status[key].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let mut lines = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(lines, "{name:<12} {value}").expect("a String takes everything");
    };
    line("encke", format!("{}, {}, pid {}", text("version"), text("state"), or_unknown(number("pid"))));
    line("listening", list("listen"));
    line("back end", text("backend"));
    line("workers", or_unknown(number("workers")));
    let (open, limit) = (or_unknown(number("connections")), or_unknown(number("connections_limit")));
    line("connections", format!("{open} of {limit}"));
    let requests = number("requests");
    let since = before.and_then(|before| requests?.checked_sub(before["requests"].as_u64()?));
    let rate = since.map_or_else(String::new, |since| format!(", {since} since the last update"));
    line("requests", format!("{}{rate}", or_unknown(requests)));
    if let Some(latency) = family(status, "encke_http_request_seconds") {
        let part = |key: &str| latency[key].as_u64().map_or_else(|| "–".into(), duration);
        line("latency", format!("p50 {}, p99 {}, max {}", part("p50_ns"), part("p99_ns"), part("max_ns")));
    }
    let push = |key: &str| status["push"][key].as_u64();
    if let Some(subscribers) = push("subscribers").filter(|subscribers| *subscribers > 0) {
        let part = |key: &str| or_unknown(push(key));
        line(
            "subscribers",
            format!(
                "{subscribers}, {} B each in the process and {} B in kernel buffers",
                part("subscriber_user_bytes"),
                part("subscriber_kernel_bytes")
            ),
        );
        let age = push("queue_age_ns").map_or_else(|| "–".into(), duration);
        let (mean, most) = (part("unsent_bytes"), part("unsent_bytes_max"));
        line("messages", format!("queued for at most {age}; unsent {mean} B on average, at most {most} B"));
    }
    if let Some(store) = store(status) {
        line("store", store);
    }
    for (place, node) in nodes(status).into_iter().enumerate() {
        line(if place == 0 { "nodes" } else { "" }, node);
    }
    if let Some(bytes) = number("resident_bytes") {
        line("memory", format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    }
    line("descriptors", or_unknown(number("descriptors")));
    lines
}

/// Summarizes the commits of durable channels, if there were any.
fn store(status: &Value) -> Option<String> {
    let families = status["families"].as_array()?;
    let commits = families.iter().find(|family| family["name"] == "encke_push_commits_total")?;
    let count = |outcome: &str| {
        let samples = commits["samples"].as_array().into_iter().flatten();
        samples
            .filter(|one| one["labels"]["outcome"] == outcome)
            .find_map(|one| one["value"].as_u64())
            .unwrap_or(0)
    };
    let (stored, full, failed) = (count("stored"), count("full"), count("failed"));
    if stored + full + failed == 0 {
        return None;
    }
    let p99 = family(status, "encke_push_commit_seconds").and_then(|lasted| lasted["p99_ns"].as_u64());
    let lasted = p99.map_or_else(|| "–".into(), duration);
    let refused = if full + failed == 0 {
        String::new()
    } else {
        format!(", {full} rejected as full, {failed} failed")
    };
    Some(format!("{stored} commits{refused}; p99 {lasted}"))
}

/// Describes the nodes of a cluster, one line each.
fn nodes(status: &Value) -> Vec<String> {
    let cluster = &status["cluster"];
    let nodes = cluster["nodes"].as_array().into_iter().flatten();
    let mut lines: Vec<String> = nodes
        .map(|node| {
            let number = |key: &str| node[key].as_u64().unwrap_or(0);
            let mut line = format!(
                "{} {}, {} subscriptions to {} channels",
                node["name"].as_str().unwrap_or("?"),
                node["version"].as_str().unwrap_or("?"),
                number("subscriptions"),
                number("channels")
            );
            match number("behind") {
                0 => {}
                behind => line.push_str(&format!(", {behind} messages of lag")),
            }
            match number("silent_ms") {
                _ if node["here"] == true => line.push_str(" (this node)"),
                ..2_000 => {}
                silent_ms => line.push_str(&format!(", silent for {} s", silent_ms / 1_000)),
            }
            line
        })
        .collect();
    if cluster["up"] == false {
        lines.insert(0, "NATS cannot be reached; last known state:".into());
    }
    lines
}

/// Returns the value of the first sample of a metric family.
fn family<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    let families = status["families"].as_array()?;
    let family = families.iter().find(|family| family["name"] == name)?;
    Some(&family["samples"].as_array()?.first()?["value"])
}

/// Formats nanoseconds for people.
fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_admin_listener_is_named_in_any_form() {
        for (text, host, token) in [
            ("8081", "127.0.0.1:8081", None),
            ("localhost:8081", "localhost:8081", None),
            ("[::1]:8081", "[::1]:8081", None),
            ("http://127.0.0.1:8081", "127.0.0.1:8081", None),
            ("https://example.com/", "example.com:443", None),
            ("http://127.0.0.1:8081/?token=abc", "127.0.0.1:8081", Some("abc")),
            ("http://127.0.0.1:8081/api/v1/status?x=1&token=abc", "127.0.0.1:8081", Some("abc")),
        ] {
            let admin = AdminTarget::parse(text).unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!((admin.server.to_string().as_str(), admin.token.as_deref()), (host, token), "{text}");
        }
        for text in ["", "localhost", "a b:1", "http:///x"] {
            assert!(matches!(AdminTarget::parse(text), Err(CommandError::Usage(_))), "{text}");
        }
    }

    #[test]
    fn other_servers_and_other_listeners_are_named_as_such() {
        use std::io::{Read as _, Write as _};
        for (status, body, said) in [
            ("404 Not Found", "", "unexpected status 404: this is not the admin listener of Encke"),
            ("421 Misdirected Request", "", "add the name to server.admin.hosts"),
            ("200 OK", "<p>hello", "the response is not a status: this is not the admin listener"),
            ("200 OK", "{}", "the response is not a status: this is not the admin listener"),
            ("401 Unauthorized", "", "a token is required"),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("bound").to_string();
            let server = std::thread::spawn(move || {
                let (mut client, _) = listener.accept().expect("a client");
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") {
                    client.read_exact(&mut byte).expect("a head");
                    head.push(byte[0]);
                }
                let length = body.len();
                let response = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                client.write_all(response.as_bytes()).expect("the client reads");
            });
            let failure = AdminTarget::parse(&address).and_then(|admin| admin.ask()).expect_err(status);
            assert!(failure.to_string().contains(said), "{status}: {failure}");
            server.join().expect("no panic");
        }
    }

    #[test]
    fn a_status_is_told_in_a_few_lines() {
        let latency = json!({"p50_ns": 900, "p99_ns": 2_500_000, "max_ns": 3_000_000_000u64});
        let status = json!({
            "version": "0.1.0", "state": "serving", "pid": 7, "listen": ["127.0.0.1:8080", "[::1]:8080"],
            "backend": "poll", "workers": 2, "connections": 3, "connections_limit": 100, "requests": 50,
            "resident_bytes": 6_291_456, "descriptors": 12,
            "push": {
                "subscribers": 18_000, "queue_age_ns": 1_200_000, "unsent_bytes": 0, "unsent_bytes_max": 71,
                "subscriber_user_bytes": 144, "subscriber_kernel_bytes": 768,
            },
            "families": [
                {"name": "encke_http_request_seconds", "samples": [{"labels": {}, "value": latency}]},
                {"name": "encke_push_commits_total", "samples": [
                    {"labels": {"outcome": "stored"}, "value": 7},
                    {"labels": {"outcome": "full"}, "value": 2},
                    {"labels": {"outcome": "failed"}, "value": 0},
                ]},
                {"name": "encke_push_commit_seconds", "samples": [{"labels": {}, "value": {"p99_ns": 4_000_000}}]},
            ],
        });
        let lines = format_status(&status, Some(&json!({"requests": 20})));
        for part in [
            "0.1.0, serving, pid 7",
            "127.0.0.1:8080, [::1]:8080",
            "workers      2\n",
            "3 of 100",
            "50, 30 since the last update",
            "p50 900 ns, p99 2.5 ms, max 3.0 s",
            "store        7 commits, 2 rejected as full, 0 failed; p99 4.0 ms\n",
            "18000, 144 B each in the process and 768 B in kernel buffers",
            "queued for at most 1.2 ms; unsent 0 B on average, at most 71 B",
            "6.0 MiB",
        ] {
            assert!(lines.contains(part), "{part} is missing in\n{lines}");
        }
        // A server of another version may omit any field.
        assert!(format_status(&json!({}), None).contains('?'));
    }
}
