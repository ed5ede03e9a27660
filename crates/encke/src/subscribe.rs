//! `encke sub`: prints the messages of channels over one stream of server-sent events until it ends.
//!
//! ```text
//!            ┌── wait: `retry`, doubled on each failure, plus up to half of it at random ◄─┐
//!            ▼                                                                             │
//!  start ─► request ── 200, event stream ─► streaming ── stream ends, or 60 s of silence ──┤
//!            │ │                               ├── COUNT messages ────────────► exit 0     │
//!            │ │                               ├── TIME without a message ────► exit 0, 1  │
//!            │ │                               └── output closed by reader ───► exit 0     │
//!            │ └── no server, 429, 5xx: an error the first time, afterwards ───────────────┘
//!            └──── any other response ──► error
//! ```
//! The command always requests envelopes, so the type, time and bytes of every message are known. After a reconnect it resumes
//! from the last position it received: the server sends the missed messages or reports a gap. Only `--json` shows presence
//! events.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use encke_io::host;
use encke_wire::base64;
use encke_wire::method::Method;
use encke_wire::sse::{Parser, SseEvent};
use serde_json::{Value, json};

use crate::arguments::SubscribeArgs;
use crate::client::refusal::{self, Attempt};
use crate::client::{
    self, ChannelsPath, ClientError, ClientRequest, ClientResponse, Connection, MonoTime, TrustSettings,
};
use crate::error::{ArgumentError, CommandError, CommandResult};
use crate::output::{note, put};

/// Time limit for the response to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server sends a heartbeat every 25 s. If two are missing, the connection is dead.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// Delay before a reconnect unless the server sends another `retry` time, and its maximum while the server does not respond.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The shortest retry time, so that `Retry-After: 0` causes no loop.
const RETRY_SAID_MIN: Duration = Duration::from_secs(1);
/// The longest retry time that is accepted from a server. A longer one, such as a day, is a mistake.
const RETRY_SAID_MAX: Duration = Duration::from_secs(60 * 60);

/// Maximum size of an event, which is held in memory. JSON may encode a byte as 6 (`\u0000`), so this holds at least 10 MiB of
/// payload.
const EVENT_BYTES_MAX: usize = 64 << 20;

pub(crate) fn run(arguments: &SubscribeArgs) -> CommandResult {
    let names = arguments.channels.iter().map(String::as_str);
    let channels = ChannelsPath::of(names, &arguments.reach.server).map_err(CommandError::usage)?;
    client::end_at_interrupt()?;
    SubscribeRun::new(arguments, channels).run()
}

/// A start position (`--since`) with valid syntax. The server interprets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SinceArg(String);

impl FromStr for SinceArg {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let age = text.strip_suffix(['s', 'm', 'h', 'd']).is_some_and(number);
        let last = text.strip_prefix("last:").is_some_and(number);
        let position = |text: &str| {
            text.split_once('-').is_some_and(|(epoch, offset)| {
                !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_alphanumeric()) && number(offset)
            })
        };
        let id = text.split(',').all(position);
        if matches!(text, "now" | "all") || age || last || id {
            Ok(Self(text.to_owned()))
        } else {
            Err(ArgumentError::Since(text.to_owned()))
        }
    }
}

/// The reason why a stream ended.
enum StreamEnd {
    /// All requested messages have arrived.
    Enough,
    /// No message arrived within `--timeout`.
    TooLate,
    /// The stream broke, or the server ended it (`None`). It must be reopened.
    Broken(Option<ClientError>),
}

/// The reason why a stream could not be opened.
enum SubscribeFailure {
    /// A retry would fail again.
    Finally(CommandError),
    /// A retry may help: the reason, and the retry time if the server sent one.
    ForNow(CommandError, Option<Duration>),
}

/// A subscription and its progress.
struct SubscribeRun<'a> {
    arguments: &'a SubscribeArgs,
    channels: ChannelsPath,
    authorization: Option<String>,
    trust: TrustSettings,
    printer: Printer,
    /// The position of the last printed message.
    position: Option<String>,
    /// Number of messages printed.
    count: u64,
    retry: Duration,
    /// Deadline for the next message (`--timeout`).
    give_up: MonoTime,
}

impl<'a> SubscribeRun<'a> {
    fn new(arguments: &'a SubscribeArgs, channels: ChannelsPath) -> Self {
        let style = match (arguments.json, arguments.raw) {
            (true, _) => PrintStyle::Envelopes,
            (_, true) => PrintStyle::Bytes,
            _ => PrintStyle::Lines,
        };
        let reach = &arguments.reach;
        let mut new = Self {
            arguments,
            channels,
            authorization: reach.token.as_ref().map(|token| format!("Bearer {token}")),
            trust: TrustSettings::new(reach.cacert.clone(), reach.insecure),
            printer: Printer { style, terminal: io::stdout().is_terminal() },
            position: None,
            count: 0,
            retry: RETRY,
            give_up: MonoTime::MAX,
        };
        new.wait_on();
        new
    }

    fn run(mut self) -> CommandResult {
        let mut failures = 0;
        let mut connected = false;
        loop {
            let (why, when) = match self.connect() {
                Ok(mut connection) => {
                    self.tell_connected(connected);
                    (connected, failures) = (true, 0);
                    match self.follow(&mut connection)? {
                        StreamEnd::Enough => return Ok(ExitCode::SUCCESS),
                        StreamEnd::TooLate => return Ok(self.too_late()),
                        StreamEnd::Broken(None) => ("the server ended the stream".to_owned(), None),
                        StreamEnd::Broken(Some(error)) => (error.to_string(), None),
                    }
                }
                Err(SubscribeFailure::Finally(failure)) => return Err(failure),
                Err(SubscribeFailure::ForNow(error, _)) if !connected => return Err(error),
                Err(SubscribeFailure::ForNow(error, when)) => {
                    failures += 1;
                    (error.to_string(), when)
                }
            };
            let wait = when.unwrap_or_default().max(retry_delay(self.retry, failures, chance()));
            note(&format!("{why}; retrying in {:.1} s", wait.as_secs_f64()));
            let left = Duration::from_nanos(self.give_up.saturating_sub(client::now()));
            client::pause(wait.min(left));
            if left <= wait {
                return Ok(self.too_late());
            }
        }
    }

    /// Opens the stream.
    fn connect(&self) -> Result<Connection, SubscribeFailure> {
        let server = &self.channels.server;
        let failed = |error: ClientError| {
            if error.is_transient() {
                SubscribeFailure::ForNow(error.of_server(server), None)
            } else {
                SubscribeFailure::Finally(error.of_server(server))
            }
        };
        let since = self.arguments.since.as_ref().map(|since| format!("since={}", since.0));
        let query: Vec<&str> = std::iter::once("envelope").chain(since.as_deref()).collect();
        let target = self.channels.target(&query);
        let fields: Vec<(&str, &str)> = [
            ("Accept", Some("text/event-stream")),
            ("Authorization", self.authorization.as_deref()),
            // The server prefers this field over `since`.
            ("Last-Event-ID", self.position.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let request = ClientRequest { method: Method::Get, target: &target, fields: &fields, body: b"" };
        let until = client::moment_in(PATIENCE).min(self.give_up);
        let mut connection = Connection::to(server, &self.trust).map_err(failed)?;
        let head = connection.begin(&request, until).map_err(failed)?;
        match head.status() {
            200 if head.is_type("text/event-stream") => Ok(connection),
            200 => {
                let kind = head.field("Content-Type").unwrap_or("a response without a type");
                let path = &self.channels.path;
                let text = format!("{path} is {kind}, not an event stream; is it a push channel?");
                Err(SubscribeFailure::Finally(CommandError::server(text).context(server)))
            }
            // EventSource also treats 204 as the end of the stream.
            204 => Err(SubscribeFailure::Finally(
                CommandError::server("the server ended the subscription (204)").context(server),
            )),
            status @ (429 | 500 | 502..=504) => {
                let text = format!("temporarily unavailable ({status})");
                let when = head.retry_after().map(|time| time.min(RETRY_SAID_MAX));
                Err(SubscribeFailure::ForNow(CommandError::server(text).context(server), when))
            }
            _ => {
                let body = connection.rest(until).unwrap_or_default();
                let (path, token) = (&self.channels.path, self.authorization.is_some());
                let answer = ClientResponse { head, body };
                Err(SubscribeFailure::Finally(refusal::of(server, path, Attempt::Subscribe, token, &answer)))
            }
        }
    }

    fn tell_connected(&self, again: bool) {
        let ChannelsPath { server, path, .. } = &self.channels;
        match &self.position {
            _ if !again && !io::stderr().is_terminal() => {}
            _ if !again => note(&format!("subscribed to {path} on {server}; ^C ends")),
            Some(position) => note(&format!("subscribed again, from {position}")),
            None => note("subscribed again"),
        }
    }

    /// Prints events until the stream ends.
    fn follow(&mut self, connection: &mut Connection) -> Result<StreamEnd, CommandError> {
        let mut parser = Parser::new(EVENT_BYTES_MAX);
        loop {
            let mut input = match connection.piece(client::moment_in(DEAD_AFTER).min(self.give_up)) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(StreamEnd::Broken(None)),
                Err(ClientError::Silent) if client::now() >= self.give_up => return Ok(StreamEnd::TooLate),
                Err(error) => return Ok(StreamEnd::Broken(Some(error))),
            };
            // All events of one read are written and flushed together.
            let mut out = Vec::new();
            let mut enough = false;
            while !input.is_empty() && !enough {
                let Ok(step) = parser.feed(input) else {
                    let text = format!("an event is larger than {} MiB", EVENT_BYTES_MAX >> 20);
                    return Err(CommandError::server(text).context(&self.channels.server));
                };
                input = &input[step.used..];
                match step.event {
                    Some(SseEvent::Message { id, event, data }) => {
                        if !id.is_empty() {
                            self.position = Some(id.to_owned());
                        }
                        enough = self.take(event, data, &mut out);
                    }
                    Some(SseEvent::Position { id }) => self.position = Some(id.to_owned()),
                    Some(SseEvent::Retry { ms }) => {
                        self.retry = Duration::from_millis(ms).clamp(RETRY_SAID_MIN, RETRY_SAID_MAX);
                    }
                    None => {}
                }
            }
            put(&out)?;
            if enough {
                return Ok(StreamEnd::Enough);
            }
        }
    }

    /// Handles an event. Returns whether it is the last one requested.
    fn take(&mut self, event: &str, data: &str, out: &mut Vec<u8>) -> bool {
        if event == "encke.gap" {
            note(&gap(data));
        }
        let id = self.position.as_deref().unwrap_or_default();
        self.printer.put(&ReceivedMessage { id, event, data }, out);
        if event.starts_with("encke.") {
            return false;
        }
        self.count += 1;
        self.wait_on();
        self.arguments.count.is_some_and(|count| self.count >= count.get())
    }

    /// Restarts the `--timeout` for the next message.
    fn wait_on(&mut self) {
        self.give_up =
            self.arguments.timeout.map_or(MonoTime::MAX, |timeout| client::moment_in(timeout.duration()));
    }

    /// The exit status after a timeout: success if messages arrived and no count was requested.
    fn too_late(&self) -> ExitCode {
        if self.count > 0 && self.arguments.count.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Returns the delay before the next attempt: the server's retry time, doubled on each failure in a row, plus up to half of it
/// according to `chance` (0 to 1). The delay is never shorter than the server's retry time, because the server may use it to
/// spread reconnects.
fn retry_delay(retry: Duration, failures: u32, chance: f64) -> Duration {
    let doubled = retry.saturating_mul(1 << failures.min(16)).min(RETRY_MAX.max(retry));
    doubled.mul_f64(1.0 + chance / 2.0)
}

/// Returns a random number from 0 to 1.
fn chance() -> f64 {
    let mut bits = [0; 4];
    // Without random numbers all clients wait equally long, which is acceptable.
    let _none = host::random(&mut bits);
    f64::from(u32::from_ne_bytes(bits)) / f64::from(u32::MAX)
}

/// Describes a gap for people.
fn gap(data: &str) -> String {
    let said: Value = serde_json::from_str(data).unwrap_or_default();
    let part = |name: &str| said[name].as_str().unwrap_or("?").to_owned();
    format!("gap: messages after {} up to {} are lost ({})", part("from"), part("to"), part("reason"))
}

/// An event as received.
struct ReceivedMessage<'a> {
    id: &'a str,
    event: &'a str,
    /// An envelope, if the server is Encke.
    data: &'a str,
}

/// The output format of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PrintStyle {
    /// One payload per line; binary payloads as a `data:` URL.
    Lines,
    /// One envelope per line.
    Envelopes,
    /// Payloads without separators.
    Bytes,
}

/// Formats messages for the output.
struct Printer {
    style: PrintStyle,
    /// The output is a terminal, so control characters from other users are escaped.
    terminal: bool,
}

impl Printer {
    fn put(&self, message: &ReceivedMessage<'_>, out: &mut Vec<u8>) {
        let ours = message.envelope();
        if self.style == PrintStyle::Envelopes {
            match &ours {
                // Copied unchanged, to keep the documented order of the keys.
                Some(_) if !message.data.contains('\n') => out.extend_from_slice(message.data.as_bytes()),
                Some(envelope) => out.extend_from_slice(envelope.to_string().as_bytes()),
                None => out.extend_from_slice(message.made_up().to_string().as_bytes()),
            }
            out.push(b'\n');
            return;
        }
        if message.event.starts_with("encke.") {
            return;
        }
        let bytes =
            ours.as_ref().and_then(|envelope| base64::decode(envelope["data64"].as_str()?.as_bytes()));
        let text = ours.as_ref().and_then(|envelope| envelope["data"].as_str()).unwrap_or(message.data);
        match (self.style, bytes) {
            (PrintStyle::Bytes, Some(bytes)) => out.extend_from_slice(&bytes),
            (PrintStyle::Bytes, None) => out.extend_from_slice(text.as_bytes()),
            (_, Some(_)) => {
                let envelope = ours.unwrap_or_default();
                let (kind, data) = (envelope["type"].as_str(), envelope["data64"].as_str());
                let url = format!("data:{};base64,{}\n", kind.unwrap_or_default(), data.unwrap_or_default());
                out.extend_from_slice(url.as_bytes());
            }
            (_, None) => {
                out.extend_from_slice(if self.terminal { harmless(text) } else { text.into() }.as_bytes());
                out.push(b'\n');
            }
        }
    }
}

impl ReceivedMessage<'_> {
    /// Parses the envelope. Returns `None` if the data is not an envelope of Encke.
    fn envelope(&self) -> Option<Value> {
        let envelope: Value = serde_json::from_str(self.data).ok()?;
        let ours = envelope["id"].as_str() == Some(self.id) && envelope["channel"].is_string();
        (ours || envelope["op"].is_string() && self.event.starts_with("encke.")).then_some(envelope)
    }

    /// Builds an envelope from the known fields of a plain event.
    fn made_up(&self) -> Value {
        let mut envelope = json!({ "id": self.id, "data": self.data });
        if !matches!(self.event, "" | "message") {
            envelope["event"] = self.event.into();
        }
        envelope
    }
}

/// Escapes control characters except tabs and line ends.
fn harmless(text: &str) -> Cow<'_, str> {
    let harmful = |char: char| char.is_control() && !matches!(char, '\t' | '\n');
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let visible =
        |char: char| if harmful(char) { char.escape_default().to_string() } else { char.to_string() };
    Cow::Owned(text.chars().map(visible).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(style: PrintStyle, terminal: bool, event: &str, data: &str) -> String {
        let mut out = Vec::new();
        Printer { style, terminal }.put(&ReceivedMessage { id: "e-7", event, data }, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_message_is_printed_as_line_as_envelope_or_as_it_is() {
        let text = r#"{"id":"e-7","channel":"news","type":"text/plain","data":"one\ntwo"}"#;
        let bytes = r#"{"id":"e-7","channel":"news","type":"image/png","data64":"/w=="}"#;
        for (data, style, out) in [
            (text, PrintStyle::Lines, "one\ntwo\n"),
            (text, PrintStyle::Bytes, "one\ntwo"),
            (text, PrintStyle::Envelopes, &format!("{text}\n")),
            (bytes, PrintStyle::Lines, "data:image/png;base64,/w==\n"),
            (bytes, PrintStyle::Bytes, "\u{fffd}"),
            (bytes, PrintStyle::Envelopes, &format!("{bytes}\n")),
            // An event from a server without envelopes, or a payload that resembles one.
            ("hi", PrintStyle::Lines, "hi\n"),
            (
                r#"{"id":"e-6","channel":"x","data":"y"}"#,
                PrintStyle::Bytes,
                r#"{"id":"e-6","channel":"x","data":"y"}"#,
            ),
        ] {
            assert_eq!(printed(style, false, "price", data), out, "{style:?}: {data}");
        }
        let made_up: Value =
            serde_json::from_str(&printed(PrintStyle::Envelopes, false, "price", "hi")).expect("JSON");
        assert_eq!(made_up, json!({ "id": "e-7", "event": "price", "data": "hi" }));
    }

    #[test]
    fn what_controls_a_channel_is_shown_among_envelopes_only() {
        let gap = r#"{"op":"gap","from":"e-1","to":"e-5","reason":"evicted"}"#;
        assert_eq!(printed(PrintStyle::Envelopes, false, "encke.gap", gap), format!("{gap}\n"));
        assert_eq!(printed(PrintStyle::Lines, false, "encke.gap", gap), "");
        assert_eq!(printed(PrintStyle::Bytes, false, "encke.join", r#"{"name":"ann"}"#), "");
        assert_eq!(super::gap(gap), "gap: messages after e-1 up to e-5 are lost (evicted)");
        assert!(super::gap("").contains("lost"));
    }

    #[test]
    fn a_terminal_is_not_commanded_by_a_message() {
        let data = r#"{"id":"e-7","channel":"c","data":"\u001b[31mred\ttab\u0007é"}"#;
        assert_eq!(printed(PrintStyle::Lines, true, "", data), "\\u{1b}[31mred\ttab\\u{7}é\n");
        assert_eq!(printed(PrintStyle::Lines, false, "", data), "\u{1b}[31mred\ttab\u{7}é\n");
    }

    #[test]
    fn a_beginning_is_one_of_five_kinds() {
        for text in ["now", "all", "last:5", "10m", "30s", "2h", "1d", "a9z-17", "a9z-17,b-3"] {
            assert_eq!(text.parse().ok(), Some(SinceArg(text.to_owned())));
        }
        for text in [
            "", "later", "last:", "last:x", "m", "10", "10y", "-5", "a-", "a b-1", "a-1&x=2", "a-1,", "a-1,b",
        ] {
            assert!(text.parse::<SinceArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn it_waits_as_long_as_it_was_told_and_longer_while_it_fails() {
        let s = Duration::from_secs;
        for (retry, failures, least, most) in [
            (s(2), 0, s(2), s(3)),
            (s(2), 1, s(4), s(6)),
            (s(2), 3, s(16), s(24)),
            (s(2), 4, s(30), s(45)),
            (s(2), u32::MAX, s(30), s(45)),
            (s(120), 5, s(120), s(180)),
        ] {
            assert_eq!((retry_delay(retry, failures, 0.0), retry_delay(retry, failures, 1.0)), (least, most));
        }
        for _ in 0..100 {
            assert!((0.0..=1.0).contains(&chance()));
        }
    }
}
