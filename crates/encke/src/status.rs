//! `encke status`: asks a running server's admin listener how it does.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use encke_server::settings::{ADMIN_DEFAULT, ListenAddress, OrOff, Settings};
use encke_wire::http1::{HeadLimits, Progress, ResponseHead};
use serde_json::Value;

use crate::arguments::Status;
use crate::{Done, Failure, print};

/// An answer of a listener on this machine takes milliseconds; one that takes longer will not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer: a status has some 10 KiB.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run(arguments: &Status) -> Done {
    let admin = Admin::of(arguments)?;
    let mut before: Option<Value> = None;
    loop {
        let answer = admin.ask()?;
        if arguments.json {
            print(&format!("{}\n", answer.trim_end()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let status: Value = serde_json::from_str(&answer)
            .map_err(|error| Failure::CouldNotRun(format!("{} answers no JSON: {error}", admin.host)))?;
        let clear = if arguments.watch { "\x1b[H\x1b[2J" } else { "" };
        print(&format!("{clear}{}", told(&status, before.as_ref())))?;
        if !arguments.watch {
            return Ok(ExitCode::SUCCESS);
        }
        before = Some(status);
        pause();
    }
}

/// Nothing happens here that could be waited for: it is the time itself that somebody asked to see pass.
fn pause() {
    let (_kept, never) = mpsc::channel::<()>();
    let _timed_out = never.recv_timeout(WATCH_PAUSE);
}

/// Where to ask, and with which token.
#[derive(Debug, PartialEq, Eq)]
struct Admin {
    /// `HOST:PORT`.
    host: String,
    token: Option<String>,
}

impl Admin {
    /// From the argument, else from the settings file, else the default.
    fn of(arguments: &Status) -> Result<Self, Failure> {
        let mut admin = Self { host: ADMIN_DEFAULT.to_string(), token: None };
        if let Some(file) = &arguments.config {
            let OrOff::On(settings) = Settings::read(file)?.server.admin else {
                let text = format!("the admin listener is off in {}", file.display());
                return Err(Failure::CouldNotRun(text));
            };
            admin.host = host_of(&settings.address()).map_err(Failure::CouldNotRun)?;
            if let Some(secret) = &settings.token {
                admin.token = Some(secret.reveal().map_err(Failure::CouldNotRun)?);
            }
        }
        if let Some(text) = &arguments.admin {
            let named = Self::parse(text)?;
            admin = Self { token: named.token.or(admin.token), host: named.host };
        }
        if let Some(token) = &arguments.token {
            admin.token = Some(token.clone());
        }
        if admin.token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Failure::Usage("a token has no spaces or control characters".into()));
        }
        Ok(admin)
    }

    /// `8081`, `HOST:PORT`, or a URL with `?token=`.
    fn parse(text: &str) -> Result<Self, Failure> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (host, behind) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let query = behind.split_once('?').map_or("", |(_, query)| query);
        let token = query.split('&').find_map(|pair| pair.strip_prefix("token=")).map(ToOwned::to_owned);
        let host = host.parse().and_then(|address| host_of(&address)).map_err(|_| {
            Failure::Usage(format!(
                "`{text}` is no admin listener; expected HOST:PORT or http://HOST:PORT/?token=…"
            ))
        })?;
        Ok(Self { host, token })
    }

    /// The body of `/api/v1/status`.
    fn ask(&self) -> Result<String, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            let help = "is the server running, and is this its admin listener?";
            Failure::CouldNotRun(format!("{}: {error}; {help}", self.host))
        };
        let addresses = self.host.to_socket_addrs().map_err(|error| failed(&error))?;
        let mut stream = Err(failed(&"no address"));
        for address in addresses {
            stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| failed(&error));
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream?;
        let authorization = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "GET /api/v1/status HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n",
            self.host,
            authorization.unwrap_or_default()
        );
        let mut answer = Vec::new();
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.write_all(request.as_bytes()))
            .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer))
            .map_err(|error| failed(&error))?;
        match body_of(&answer) {
            Some((200, body)) => Ok(String::from_utf8_lossy(body).into_owned()),
            Some((401, _)) => Err(Failure::CouldNotRun(format!(
                "{} wants a token: give the URL that the server printed at its start, --token or $ENCKE_TOKEN",
                self.host
            ))),
            Some((status, _)) => Err(failed(&format!("it answered {status}"))),
            None => Err(failed(&"it answered no HTTP")),
        }
    }
}

/// Where a listener at this address is reached from the same machine.
fn host_of(address: &ListenAddress) -> Result<String, String> {
    match address {
        ListenAddress::Loopback(port) | ListenAddress::Everywhere(port) => Ok(format!("127.0.0.1:{port}")),
        ListenAddress::Inet(_) | ListenAddress::Name(..) => Ok(address.to_string()),
        ListenAddress::Unix(_) => Err(format!("{address} is asked with curl --unix-socket, not with this")),
    }
}

/// Status and body of a whole answer whose length is said, or that ends with the connection.
fn body_of(answer: &[u8]) -> Option<(u16, &[u8])> {
    let mut head = ResponseHead::new();
    match head.feed(answer, &HeadLimits::default()) {
        Progress::Done { head_bytes } => Some((head.status(), answer.get(head_bytes..)?)),
        _ => None,
    }
}

/// A status in a few lines; with the one of a look before, also what happened between them.
fn told(status: &Value, before: Option<&Value>) -> String {
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
    line("events", text("backend"));
    line("workers", or_unknown(number("workers")));
    let (open, limit) = (or_unknown(number("connections")), or_unknown(number("connections_limit")));
    line("connections", format!("{open} of {limit}"));
    let requests = number("requests");
    let since = before.and_then(|before| requests?.checked_sub(before["requests"].as_u64()?));
    let rate = since.map_or_else(String::new, |since| format!(", {since} since the last look"));
    line("requests", format!("{}{rate}", or_unknown(requests)));
    if let Some(latency) = family(status, "encke_http_request_seconds") {
        let part = |key: &str| latency[key].as_u64().map_or_else(|| "–".into(), duration);
        line("latency", format!("p50 {}, p99 {}, max {}", part("p50_ns"), part("p99_ns"), part("max_ns")));
    }
    if let Some(bytes) = number("resident_bytes") {
        line("memory", format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    }
    line("descriptors", or_unknown(number("descriptors")));
    lines
}

/// The value of a family's first sample.
fn family<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    let families = status["families"].as_array()?;
    let family = families.iter().find(|family| family["name"] == name)?;
    Some(&family["samples"].as_array()?.first()?["value"])
}

/// Nanoseconds for people.
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
            ("http://127.0.0.1:8081/?token=abc", "127.0.0.1:8081", Some("abc")),
            ("http://127.0.0.1:8081/api/v1/status?x=1&token=abc", "127.0.0.1:8081", Some("abc")),
        ] {
            let admin = Admin::parse(text).unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!((admin.host.as_str(), admin.token.as_deref()), (host, token), "{text}");
        }
        for text in ["", "https://h:1/", "localhost", "a b:1", "http:///x"] {
            assert!(matches!(Admin::parse(text), Err(Failure::Usage(_))), "{text}");
        }
    }

    #[test]
    fn an_answer_is_taken_apart_only_when_its_head_is_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(body_of(answer), Some((200, &b"{}"[..])));
        for end in 0..answer.len() - 2 {
            assert_eq!(body_of(&answer[..end]), None, "{end}");
        }
        assert_eq!(body_of(b"SSH-2.0-OpenSSH_9.2\r\n"), None);
    }

    #[test]
    fn a_status_is_told_in_a_few_lines() {
        let latency = json!({"p50_ns": 900, "p99_ns": 2_500_000, "max_ns": 3_000_000_000u64});
        let status = json!({
            "version": "0.1.0", "state": "serving", "pid": 7, "listen": ["127.0.0.1:8080", "[::1]:8080"],
            "backend": "poll", "workers": 2, "connections": 3, "connections_limit": 100, "requests": 50,
            "resident_bytes": 6_291_456, "descriptors": 12,
            "families": [{"name": "encke_http_request_seconds", "samples": [{"labels": {}, "value": latency}]}],
        });
        let lines = told(&status, Some(&json!({"requests": 20})));
        for part in [
            "0.1.0, serving, pid 7",
            "127.0.0.1:8080, [::1]:8080",
            "workers      2\n",
            "3 of 100",
            "50, 30 since the last look",
            "p50 900 ns, p99 2.5 ms, max 3.0 s",
            "6.0 MiB",
        ] {
            assert!(lines.contains(part), "{part} is missing in\n{lines}");
        }
        // A server of another version may leave anything out.
        assert!(told(&json!({}), None).contains('?'));
    }
}
