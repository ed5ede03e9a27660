//! A subscriber by event stream, WebSocket or polls, with the same events for each.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::running::text;

/// Longer than any expected wait, so that a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(120);

/// The transport of a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Events,
    Socket,
    Polls,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Events, Self::Socket, Self::Polls];
}

/// An event of a subscriber.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The subscriber's position, before any message.
    At(String),
    Message {
        id: String,
        data: String,
    },
    Gap(String),
    /// The connection has ended.
    End,
}

/// One connection, or one poll after the other.
pub(crate) struct Listener {
    kind: Kind,
    request: String,
    since: String,
    stream: BufReader<TcpStream>,
    /// Received events that were not returned yet.
    rest: VecDeque<Told>,
}

impl Listener {
    /// Subscribes after an id, or `now`.
    ///
    ///  # Errors
    /// The connection fails, or the response is not a subscription.
    pub(crate) fn open(site: &str, kind: Kind, channel: &str, since: &str) -> io::Result<Self> {
        let stream = BufReader::new(connect(site)?);
        let request = format!("GET /push/{channel}");
        let mut listener = Self { kind, request, since: since.to_owned(), stream, rest: VecDeque::new() };
        // `Last-Event-ID` accepts only ids.
        let (query, field) = match since {
            "now" => ("?since=now", String::new()),
            id => ("", format!("Last-Event-ID: {id}\r\n")),
        };
        match kind {
            // With HTTP/1.0 the stream is not chunked.
            Kind::Events => {
                listener
                    .say(&format!("{query} HTTP/1.0"), &format!("Accept: text/event-stream\r\n{field}"))?;
                listener.head("200")?;
            }
            Kind::Socket => {
                let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: encke.v1\r\n";
                listener.say(&format!("?since={since} HTTP/1.1"), fields)?;
                listener.head("101")?;
            }
            Kind::Polls if since == "now" => listener.poll("&wait=0")?,
            Kind::Polls => {}
        }
        Ok(listener)
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> Told {
        match self.tried() {
            Ok(told) => told,
            // The connection was cut. A timeout means that an expected event is missing.
            Err(error) => {
                let waited = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                assert!(!waited, "{:?} since {}: nothing is said for {PATIENCE:?}", self.kind, self.since);
                Told::End
            }
        }
    }

    /// Returns the data of the next message. Panics on a gap or end.
    pub(crate) fn data(&mut self) -> String {
        loop {
            match self.next() {
                Told::Message { data, .. } => return data,
                Told::At(_) => {}
                other => panic!("a message should come, and it is {other:?}"),
            }
        }
    }

    /// Waits for a heartbeat that was sent after this call.
    pub(crate) fn heartbeat(&mut self) {
        assert!(matches!(self.kind, Kind::Events), "others are pinged");
        // Nothing was read for a while: data that is already here is old, and skipped.
        self.stream.get_ref().set_nonblocking(true).expect("a socket");
        while self.line().is_ok() {}
        self.stream.get_ref().set_nonblocking(false).expect("a socket");
        while !self.line().expect("the stream goes on").starts_with(':') {}
    }

    fn tried(&mut self) -> io::Result<Told> {
        match self.kind {
            Kind::Events => self.event(),
            Kind::Socket => match self.rest.pop_front() {
                Some(told) => Ok(told),
                None => Ok(self.envelope()?.as_ref().map_or(Told::End, told)),
            },
            Kind::Polls => loop {
                if let Some(told) = self.rest.pop_front() {
                    return Ok(told);
                }
                self.poll("&wait=20")?;
            },
        }
    }

    fn say(&mut self, target: &str, fields: &str) -> io::Result<()> {
        let request = format!("{}{target}\r\nHost: localhost\r\n{fields}\r\n", self.request);
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Reads a head, which must have the status `wanted`.
    fn head(&mut self, wanted: &str) -> io::Result<(String, usize)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        if status == wanted || wanted.is_empty() {
            Ok((status, length))
        } else {
            Err(io::Error::other(first))
        }
    }

    fn event(&mut self) -> io::Result<Told> {
        let (mut id, mut data, mut kind) = (None, None, String::new());
        loop {
            let line = self.line()?;
            if let Some((name, value)) = line.split_once(": ") {
                match name {
                    "id" => id = Some(value.to_owned()),
                    "data" => data = Some(value.to_owned()),
                    "event" => value.clone_into(&mut kind),
                    _ => {}
                }
            }
            if !line.is_empty() {
                continue;
            }
            let kind = std::mem::take(&mut kind);
            match (id.take(), data.take()) {
                (_, Some(text)) if kind == "encke.gap" => return Ok(Told::Gap(text)),
                (Some(id), Some(data)) => return Ok(Told::Message { id, data }),
                (Some(id), None) => return Ok(Told::At(id)),
                (None, None) => {}
                (None, Some(data)) => panic!("a message without an id: {data}"),
            }
        }
    }

    /// Publishes on a WebSocket and returns the response. Events before it are returned later.
    pub(crate) fn publish(&mut self, channel: &str, data: &str) -> Value {
        let envelope = json!({ "op": "publish", "channel": channel, "data": data, "ref": 1 }).to_string();
        let length = u8::try_from(envelope.len()).ok().filter(|length| *length < 126);
        let mut frame = vec![0x81, 0x80 | length.expect("a short envelope"), 0, 0, 0, 0];
        frame.extend_from_slice(envelope.as_bytes());
        self.stream.get_mut().write_all(&frame).expect("it listens");
        loop {
            let envelope = self.envelope().expect("it answers").expect("it stays");
            if envelope["ref"] == 1 {
                return envelope;
            }
            self.rest.push_back(told(&envelope));
        }
    }

    /// Returns the next envelope, or `None` once the peer has closed.
    fn envelope(&mut self) -> io::Result<Option<Value>> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head)?;
            let length = match head[1] {
                126 => {
                    let mut long = [0; 2];
                    self.stream.read_exact(&mut long)?;
                    u16::from_be_bytes(long).into()
                }
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload)?;
            match head[0] & 0x0f {
                1 => return Ok(Some(serde_json::from_slice(&payload)?)),
                8 => return Ok(None),
                // Answered with a pong that has a zero mask.
                9 => {
                    let mut pong = vec![0x8a, 0x80 | head[1], 0, 0, 0, 0];
                    pong.extend_from_slice(&payload);
                    self.stream.get_mut().write_all(&pong)?;
                }
                _ => {}
            }
        }
    }

    /// Polls once; `rest` receives the events.
    fn poll(&mut self, wait: &str) -> io::Result<()> {
        let target = format!("?since={}{wait} HTTP/1.1", self.since);
        self.say(&target, "Accept: application/json\r\n")?;
        let (status, length) = self.head("")?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        match status.as_str() {
            "200" => {}
            _ => return Err(io::Error::other(text(&body))),
        }
        let answer: Value = serde_json::from_slice(&body)?;
        if !answer["gap"].is_null() {
            self.rest.push_back(Told::Gap(answer["gap"].to_string()));
        }
        self.rest.extend(answer["messages"].as_array().into_iter().flatten().map(told));
        if let Some(next) = answer["next"].as_str() {
            if self.since == "now" {
                self.rest.push_back(Told::At(next.to_owned()));
            }
            next.clone_into(&mut self.since);
        }
        Ok(())
    }
}

/// Converts an envelope to an event.
fn told(envelope: &Value) -> Told {
    let part = |name: &str| envelope[name].as_str().map(str::to_owned);
    match (part("op").as_deref(), part("id"), part("data")) {
        (Some("gap"), ..) => Told::Gap(envelope.to_string()),
        (None, Some(id), Some(data)) => Told::Message { id, data },
        (Some("ok"), Some(id), _) => Told::At(id),
        _ => panic!("an envelope that says nothing: {envelope}"),
    }
}

/// Sends one request on a connection of its own, and returns head and body of the response. The body is plain text unless a
/// field says otherwise.
pub(crate) fn ask(
    site: &str,
    method: &str,
    channel: &str,
    fields: &str,
    body: &str,
) -> io::Result<(String, String)> {
    let mut stream = connect(site)?;
    let length = body.len();
    let kind = if fields.contains("Content-Type: ") { "" } else { "Content-Type: text/plain\r\n" };
    let request = format!(
        "{method} /push/{channel} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{kind}\
         Content-Length: {length}\r\n{fields}\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head.to_owned(), body.to_owned()))
}

fn connect(site: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(site)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}
