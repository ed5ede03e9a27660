//! Clients of channels, and servers with channels, for the cases of several files.

use encke_assembly::settings::{AuthSettings, PushSettings};
use encke_wire::http1::ChunkedDecoder;
use encke_wire::sse;
use encke_wire::websocket::{self, Opcode};

use crate::rig::Channels as _;
use crate::rig::{Answer, Client, Rig, Stand};

pub(super) fn stand(stand: Stand) -> Rig {
    with(stand, PushSettings::default())
}

pub(super) fn with(stand: Stand, push: PushSettings) -> Rig {
    stand.serve(|server| {
        let server = server.mount("/", |_: &encke_server::Request<'_>, _| {
            encke_server::Outcome::Now(encke_server::Reply::text(200, "a file\n"))
        });
        server.push(&push, &AuthSettings::default()).expect("settings that hold")
    })
}

pub(super) fn publish(rig: &Rig, channel: &str, body: &str) -> Answer {
    post(rig, &format!("/push/{channel}"), "", body.as_bytes())
}

/// Publishes with a token on a persistent connection.
pub(super) fn publish_by(client: &mut Client, channel: &str, token: &str, body: &str) -> Answer {
    client.ask(format!(
        "POST /push/{channel} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n\
         {body}",
        body.len()
    ))
}

pub(super) fn post(rig: &Rig, path: &str, fields: &str, body: &[u8]) -> Answer {
    let mut client = rig.client();
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    request.extend_from_slice(body);
    client.ask(request)
}

/// Returns the raw value of a key in a flat JSON object.
pub(super) fn json<'a>(text: &'a str, key: &str) -> &'a str {
    let start =
        text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {text}")) + key.len() + 3;
    let rest = &text[start..];
    match rest.strip_prefix('"') {
        Some(text) => &text[..text.find('"').expect("a string ends")],
        None => &rest[..rest.find([',', '}']).expect("a value ends")],
    }
}

/// An event stream.
pub(super) struct Stream {
    pub(super) client: Client,
    decoder: ChunkedDecoder,
    parser: sse::Parser,
    /// Body bytes that are not yet parsed.
    body: Vec<u8>,
    pub(super) id: String,
    /// The event that arrived with the first position.
    first: Option<Event>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) event: String,
    pub(super) data: String,
}

impl Stream {
    pub(super) fn open(rig: &Rig, path: &str, fields: &str) -> Self {
        let mut client = rig.client();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n"
        ));
        let head = client.head();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.field("Content-Type"), Some("text/event-stream"));
        assert_eq!(head.field("Cache-Control"), Some("no-store, no-transform"));
        assert_eq!(head.field("X-Accel-Buffering"), Some("no"));
        assert_eq!(head.field("Transfer-Encoding"), Some("chunked"));
        let parser = sse::Parser::new(1 << 20);
        let decoder = ChunkedDecoder::new();
        let mut stream = Self { client, decoder, parser, body: Vec::new(), id: String::new(), first: None };
        // The position arrives before any message, or with a gap that precedes it.
        while stream.id.is_empty() {
            stream.first = stream.look();
        }
        assert!(stream.first.as_ref().is_none_or(|event| event.event == "encke.gap"), "{:?}", stream.first);
        stream
    }

    /// Returns the next event.
    pub(super) fn next(&mut self) -> Event {
        if let Some(first) = self.first.take() {
            return first;
        }
        loop {
            if let Some(event) = self.look() {
                return event;
            }
        }
    }

    /// Returns the next event if the received bytes contain one. Reads more if there are none.
    pub(super) fn look(&mut self) -> Option<Event> {
        if self.body.is_empty() {
            let mut bytes = self.client.read_some(1 << 16);
            assert!(!bytes.is_empty(), "the stream has ended");
            while !bytes.is_empty() {
                let chunk = self.decoder.feed(&bytes).expect("chunks");
                self.body.extend_from_slice(chunk.data);
                let used = chunk.consumed;
                assert!(used > 0, "a chunk line is split: {bytes:?}");
                bytes.drain(..used);
            }
        }
        let body = std::mem::take(&mut self.body);
        let step = self.parser.feed(&body).expect("events of a sensible size");
        let event = match step.event {
            Some(sse::SseEvent::Message { id, event, data }) => {
                self.id = id.to_owned();
                Some(Event { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() })
            }
            Some(sse::SseEvent::Position { id }) => {
                self.id = id.to_owned();
                None
            }
            Some(sse::SseEvent::Retry { .. }) | None => None,
        };
        self.body = body[step.used..].to_vec();
        event
    }

    /// The id of the last event, or of the start.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn data(&mut self) -> String {
        self.next().data
    }
}

/// A WebSocket.
pub(super) struct Socket(pub(super) Client);

impl Socket {
    pub(super) fn open(rig: &Rig, path: &str, protocol: &str) -> Self {
        let mut client = rig.client();
        let protocol = if protocol.is_empty() {
            String::new()
        } else {
            format!("Sec-WebSocket-Protocol: {protocol}\r\n")
        };
        client.send(handshake(path, &protocol));
        let head = client.head();
        assert_eq!(head.status, 101, "{head:?}");
        assert_eq!(head.field("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Self(client)
    }

    pub(super) fn say(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut frame = Vec::new();
        websocket::put_masked(&mut frame, opcode, payload, [1, 2, 3, 4]);
        self.0.send(frame);
    }

    /// Returns the next frame: its opcode and payload.
    pub(super) fn hear(&mut self) -> (u8, Vec<u8>) {
        let (first, payload) = self.frame();
        assert_eq!(first & 0x70, 0, "reserved bits");
        (first & 0xf, payload)
    }

    /// Returns the next frame: its first byte and payload.
    pub(super) fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.0.read_exact(2);
        assert_eq!(head[1] & 0x80, 0, "a server does not mask");
        let len = match head[1] {
            126 => u16::from_be_bytes(self.0.read_exact(2).try_into().expect("two bytes")) as usize,
            127 => u64::from_be_bytes(self.0.read_exact(8).try_into().expect("eight bytes")) as usize,
            len => len as usize,
        };
        (head[0], self.0.read_exact(len))
    }

    pub(super) fn text(&mut self) -> String {
        let (opcode, payload) = self.hear();
        assert_eq!(opcode, 1, "{:?}", String::from_utf8_lossy(&payload));
        String::from_utf8(payload).expect("text")
    }

    pub(super) fn close_code(&mut self) -> u16 {
        let (opcode, payload) = self.hear();
        assert_eq!(opcode, 8, "{:?}", String::from_utf8_lossy(&payload));
        u16::from_be_bytes(payload[..2].try_into().expect("a code"))
    }
}

pub(super) fn handshake(path: &str, fields: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{fields}\r\n"
    )
}

pub(super) fn wait_for_subscribers(rig: &Rig, count: u64) {
    rig.wait(|| rig.count("encke_push_subscribers") == count, &format!("{count} subscribers"));
}
