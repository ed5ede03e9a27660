//! Dialects of push servers: how to subscribe, publish, and resume after a disconnect.
//!
//! | | subscribe | publish | resume |
//! |---|---|---|---|
//! | encke | `GET /push/CH` | `POST /push/CH` | `Last-Event-ID`; poll, NDJSON and `encke.v1`: `since=ID` |
//! | nchan | `GET /sub/CH` | `POST /pub/CH` | `Last-Event-ID`; poll: both validators of the last response |
//! | mercure | `GET /.well-known/mercure?topic=CH` | a form to `/.well-known/mercure` | `Last-Event-ID` |
//!
//! Other servers are described by two templates, in which `{channel}` stands for the name of a channel.

use std::sync::Arc;

use encke_wire::http1::{put_field, put_field_number};

use super::mark::Mark;
use crate::message::MessageError;

/// How subscribers receive messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Server-sent events.
    Sse,
    /// Long poll: one request per message, on a persistent connection.
    Poll,
    /// WebSocket.
    Ws,
    /// One line of JSON per message.
    Ndjson,
}

/// A predefined dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// Encke.
    Encke,
    /// nginx with nchan, as in `bench/peers/nchan.conf`: `/sub/CH` and `/pub/CH`.
    Nchan,
    /// A hub of the Mercure protocol.
    Mercure,
}

/// How to speak to a push server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dialect {
    /// Path and query to subscribe.
    pub subscribe: String,
    /// Path and query to post messages to.
    pub publish: String,
    /// Body of a publish request, in which `{data}` is the payload; `None`: the payload alone.
    pub form: Option<String>,
    /// Where a request carries the position.
    pub resume: Resume,
    /// A query parameter that makes a poll return at once. Each subscriber begins with it, so that it counts as subscribed only
    /// after a response.
    pub begin: Option<String>,
    /// Sub-protocol of a WebSocket.
    pub protocol: Option<String>,
    /// Additional header fields of subscribers.
    pub subscriber_fields: Vec<(String, String)>,
    /// Additional header fields of publishers.
    pub publisher_fields: Vec<(String, String)>,
}

/// How a subscription resumes at a position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Resuming is not supported.
    Never,
    /// By a header field with the position.
    Field(String),
    /// By a query parameter.
    Query(String),
    /// By `If-Modified-Since` and `If-None-Match` with the validators of the last response.
    Validators,
}

impl Transport {
    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Poll => "poll",
            Self::Ws => "ws",
            Self::Ndjson => "ndjson",
        }
    }
}

impl Dialect {
    /// The dialect of a preset; `None` if the server does not support the transport. With `resumable`, WebSockets to Encke use
    /// `encke.v1`, whose messages have ids. Other WebSockets carry payloads alone.
    pub fn of(preset: Preset, transport: Transport, resumable: bool) -> Option<Self> {
        let last_event_id = || Resume::Field("Last-Event-ID".into());
        let plain = |subscribe: &str, publish: &str, resume: Resume| Self {
            subscribe: subscribe.into(),
            publish: publish.into(),
            form: None,
            resume,
            begin: None,
            protocol: None,
            subscriber_fields: Vec::new(),
            publisher_fields: vec![("Content-Type".into(), "text/plain".into())],
        };
        let encke = |resume| plain("/push/{channel}", "/push/{channel}", resume);
        let nchan = |resume| plain("/sub/{channel}", "/pub/{channel}", resume);
        let since = || Resume::Query("since".into());
        Some(match (preset, transport) {
            (Preset::Encke, Transport::Sse) => encke(last_event_id()),
            (Preset::Encke, Transport::Poll) => Self { begin: Some("wait=0".into()), ..encke(since()) },
            (Preset::Encke, Transport::Ws) if resumable => {
                Self { protocol: Some("encke.v1".into()), ..encke(since()) }
            }
            (Preset::Encke, Transport::Ws) => encke(Resume::Never),
            (Preset::Encke, Transport::Ndjson) => encke(since()),
            (Preset::Nchan, Transport::Sse) => nchan(last_event_id()),
            (Preset::Nchan, Transport::Poll) => nchan(Resume::Validators),
            (Preset::Nchan, Transport::Ws) => nchan(Resume::Never),
            (Preset::Mercure, Transport::Sse) => Self {
                form: Some("topic={channel}&data={data}".into()),
                publisher_fields: vec![("Content-Type".into(), "application/x-www-form-urlencoded".into())],
                ..plain("/.well-known/mercure?topic={channel}", "/.well-known/mercure", last_event_id())
            },
            (Preset::Nchan, Transport::Ndjson)
            | (Preset::Mercure, Transport::Poll | Transport::Ws | Transport::Ndjson) => return None,
        })
    }
}

/// The requests of a run, prepared as far as possible.
#[derive(Debug)]
pub(crate) struct PushRunRequests {
    channels: Vec<ChannelRequests>,
    resume: Resume,
    begin: Option<String>,
    /// A subscription's header fields, without the request line and the final empty line.
    fields: Vec<u8>,
}

#[derive(Debug)]
struct ChannelRequests {
    subscribe: String,
    /// A complete request: a subscription without a position.
    fresh: Arc<[u8]>,
    /// The same request with an immediate response.
    begin: Option<Arc<[u8]>>,
    /// A publish request up to its length.
    publish: Vec<u8>,
    /// The text before and after the payload.
    around: (Vec<u8>, Vec<u8>),
}

/// The key of RFC 6455 section 1.3. A random key would only protect against caches, which are absent here.
pub(super) const WS_KEY: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

impl PushRunRequests {
    /// The requests for channels of the server `authority`.
    ///
    /// # Errors
    /// A header field is invalid.
    pub(crate) fn new(
        dialect: &Dialect,
        transport: Transport,
        authority: &str,
        channels: &[String],
    ) -> Result<Self, MessageError> {
        let key = std::str::from_utf8(WS_KEY).expect("it is ASCII");
        let mut wishes = match transport {
            Transport::Sse => vec![("Accept", "text/event-stream")],
            Transport::Poll => vec![("Accept", "*/*")],
            Transport::Ndjson => vec![("Accept", "application/x-ndjson")],
            Transport::Ws => vec![
                ("Connection", "Upgrade"),
                ("Upgrade", "websocket"),
                ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", key),
            ],
        };
        wishes.extend(dialect.protocol.as_deref().map(|protocol| ("Sec-WebSocket-Protocol", protocol)));
        let own = |fields: &[(String, String)]| {
            let mut out = Vec::new();
            put(&mut out, "Host", authority)?;
            for (name, value) in fields {
                put(&mut out, name, value)?;
            }
            Ok(out)
        };
        let mut fields = own(&dialect.subscriber_fields)?;
        for (name, value) in wishes {
            put(&mut fields, name, value)?;
        }
        let publisher = own(&dialect.publisher_fields)?;
        let channels = channels.iter().map(|name| {
            let subscribe = dialect.subscribe.replace("{channel}", name);
            let request =
                |target: &str| [first_line("GET", target), fields.clone(), b"\r\n".to_vec()].concat();
            let target = dialect.publish.replace("{channel}", name);
            let form = dialect.form.as_deref().unwrap_or("{data}").replace("{channel}", name);
            let (before, after) = form.split_once("{data}").unwrap_or((&form, ""));
            ChannelRequests {
                fresh: request(&subscribe).into(),
                begin: dialect.begin.as_ref().map(|query| request(&with_query(&subscribe, query)).into()),
                publish: [first_line("POST", &target), publisher.clone()].concat(),
                around: (before.into(), after.into()),
                subscribe,
            }
        });
        Ok(Self {
            channels: channels.collect(),
            resume: dialect.resume.clone(),
            begin: dialect.begin.clone(),
            fields,
        })
    }

    /// A subscription with an immediate response, if the dialect has one.
    pub(crate) fn begin(&self, channel: usize) -> Option<&Arc<[u8]>> {
        self.channels[channel].begin.as_ref()
    }

    /// A subscription to new messages only.
    pub(crate) fn fresh(&self, channel: usize) -> &Arc<[u8]> {
        &self.channels[channel].fresh
    }

    /// Whether a subscription can resume at a position.
    pub(crate) fn can_resume(&self) -> bool {
        self.resume != Resume::Never
    }

    /// A subscription that resumes after a position. `begin` requests an immediate response, if the dialect has one.
    pub(crate) fn resumed(&self, channel: usize, position: &str, begin: bool) -> Vec<u8> {
        let ChannelRequests { subscribe, .. } = &self.channels[channel];
        let mut target = subscribe.clone();
        if let Resume::Query(name) = &self.resume {
            target = with_query(&target, &format!("{name}={position}"));
        }
        if let Some(query) = self.begin.as_ref().filter(|_| begin) {
            target = with_query(&target, query);
        }
        let mut out = first_line("GET", &target);
        out.extend_from_slice(&self.fields);
        let fields = match &self.resume {
            Resume::Never | Resume::Query(_) => vec![],
            Resume::Field(name) => vec![(name.as_str(), position)],
            Resume::Validators => {
                let (modified, tag) = position.split_once('\n').unwrap_or((position, ""));
                vec![("If-Modified-Since", modified), ("If-None-Match", tag)]
            }
        };
        for (name, value) in fields {
            // The position came from a header field or a line, so it has no bytes that are invalid in a field.
            let _sent_without_it = put(&mut out, name, value);
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    /// The publish request of a message with a payload of this length, complete except for its send time.
    pub(crate) fn draft(
        &self,
        channel: usize,
        run: u32,
        lane: u16,
        number: u32,
        payload_bytes: usize,
    ) -> PublishDraft {
        let ChannelRequests { publish, around: (before, after), .. } = &self.channels[channel];
        let length = before.len() + payload_bytes + after.len();
        let mut out = Vec::with_capacity(publish.len() + LENGTH_LINES + length);
        out.extend_from_slice(publish);
        put_field_number(&mut out, "Content-Length", length as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(before);
        let place = out.len();
        Mark { lane, number, sent_ns: 0 }.put(run, payload_bytes, &mut out);
        out.extend_from_slice(after);
        PublishDraft { request: out, place }
    }
}

/// A publish request without its send time.
pub(crate) struct PublishDraft {
    request: Vec<u8>,
    /// Position of the mark.
    place: usize,
}

impl PublishDraft {
    /// The request with its send time.
    pub(crate) fn dated(mut self, sent_ns: u64) -> Vec<u8> {
        Mark::put_time(sent_ns, self.place, &mut self.request);
        self.request
    }
}

/// `Content-Length`, its number, and the empty line.
const LENGTH_LINES: usize = 40;

fn first_line(method: &str, target: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\n").into_bytes()
}

fn with_query(target: &str, query: &str) -> String {
    let joint = if target.contains('?') { '&' } else { '?' };
    format!("{target}{joint}{query}")
}

fn put(out: &mut Vec<u8>, name: &str, value: &str) -> Result<(), MessageError> {
    put_field(out, name, value.as_bytes()).map_err(|error| MessageError::Field(name.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(preset: Preset, transport: Transport, resumable: bool) -> PushRunRequests {
        let dialect = Dialect::of(preset, transport, resumable).expect("there is one");
        PushRunRequests::new(&dialect, transport, "h:1", &["a".into(), "b".into()])
            .expect("fields that may be sent")
    }

    fn text(bytes: impl AsRef<[u8]>) -> String {
        String::from_utf8(bytes.as_ref().to_vec()).expect("text")
    }

    #[test]
    fn each_preset_asks_as_its_server_wants_it() {
        let encke = requests(Preset::Encke, Transport::Sse, true);
        assert_eq!(
            text(encke.fresh(1)),
            "GET /push/b HTTP/1.1\r\nHost: h:1\r\nAccept: text/event-stream\r\n\r\n"
        );
        assert!(text(encke.resumed(0, "x-1", false)).ends_with("\r\nLast-Event-ID: x-1\r\n\r\n"));

        let poll = requests(Preset::Encke, Transport::Poll, true);
        assert!(poll.begin(0).is_some_and(|begin| begin.starts_with(b"GET /push/a?wait=0 HTTP/1.1\r\n")));
        assert!(text(poll.resumed(0, "x-1", false)).starts_with("GET /push/a?since=x-1 HTTP/1.1\r\n"));
        assert!(text(poll.resumed(0, "x-1", true)).starts_with("GET /push/a?since=x-1&wait=0 HTTP/1.1\r\n"));

        let socket = requests(Preset::Encke, Transport::Ws, true);
        assert!(text(socket.fresh(0)).contains("Sec-WebSocket-Protocol: encke.v1\r\n"));
        assert!(!text(requests(Preset::Encke, Transport::Ws, false).fresh(0)).contains("Protocol"));

        let nchan = requests(Preset::Nchan, Transport::Poll, true);
        assert!(nchan.begin(0).is_none());
        let resumed = text(nchan.resumed(0, "Sun, 1 Jan\n5", true));
        assert!(resumed.contains("If-Modified-Since: Sun, 1 Jan\r\nIf-None-Match: 5\r\n\r\n"), "{resumed}");

        let mercure = requests(Preset::Mercure, Transport::Sse, true);
        assert!(text(mercure.fresh(0)).starts_with("GET /.well-known/mercure?topic=a HTTP/1.1\r\n"));
        assert!(Dialect::of(Preset::Mercure, Transport::Ws, true).is_none());
    }

    #[test]
    fn a_publish_has_the_payload_and_its_length() {
        let mark = Mark { lane: 1, number: 2, sent_ns: 3 };
        let plain = text(requests(Preset::Nchan, Transport::Sse, true).draft(1, 9, 1, 2, 64).dated(3));
        let (head, body) = plain.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.starts_with("POST /pub/b HTTP/1.1\r\nHost: h:1\r\nContent-Type: text/plain\r\n"),
            "{head}"
        );
        assert!(head.ends_with("Content-Length: 64") && body.len() == 64, "{plain}");
        assert_eq!(Mark::find(9, body.as_bytes()).map(|(mark, _)| mark), Some(mark));

        let form = text(requests(Preset::Mercure, Transport::Sse, true).draft(0, 9, 1, 2, 64).dated(3));
        let (head, body) = form.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(body.starts_with("topic=a&data=#00000009"), "{body}");
    }
}
