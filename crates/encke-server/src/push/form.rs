//! Forms: how messages look on each kind of stream. One run of messages is encoded once for each form and shared
//! by every subscriber that needs it.
//!
//! ```text
//! Form    kind: Sse · SseEnvelope · Ndjson · Envelope (WebSocket) · Payload (WebSocket) · Raw (poll) · Json (poll)
//!         CHUNKED   the stream is framed by chunks (HTTP/1.1); without it, it ends with the connection (HTTP/1.0)
//!         LAST      the answer to a poll is the connection's last one
//!         VERSION10 the poll came by HTTP/1.0
//!         DEFLATED  the WebSocket takes compressed messages
//! ```
//! The hub knows a form as a number; only this file knows what it means.

use encke_hub::{Encoder, Form, Gap, Message, Run};
use encke_wire::date::DATE_BYTES;
use encke_wire::http1;
use encke_wire::sse::{self, Data, Line};
use encke_wire::websocket::{self, Deflater, Opcode};

use super::envelope;
use super::rights::Share;
use crate::websocket::DEFLATE_LEVEL;

/// What a subscriber gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Server-sent events of one channel: payloads as they are.
    Sse,
    /// Server-sent events of several channels: envelopes, which name theirs.
    SseEnvelope,
    /// A line of JSON a message.
    Ndjson,
    /// WebSocket, sub-protocol `encke.v1`: a text frame with an envelope a message.
    Envelope,
    /// WebSocket without a sub-protocol: a frame with the payload a message.
    Payload,
    /// A poll that is answered by one message as it is.
    Raw,
    /// A poll that is answered by all messages there are.
    Json,
}

const KINDS: [Kind; 7] =
    [Kind::Sse, Kind::SseEnvelope, Kind::Ndjson, Kind::Envelope, Kind::Payload, Kind::Raw, Kind::Json];
const KIND_BITS: u8 = 0b111;
/// The stream is framed by chunks.
pub(crate) const CHUNKED: u8 = 1 << 3;
/// The answer is the connection's last one.
pub(crate) const LAST: u8 = 1 << 4;
/// The request came by HTTP/1.0.
pub(crate) const VERSION10: u8 = 1 << 5;
/// The subscriber's right to read ends at a time that its [`Extra`](super::room::Extra) knows. The hub is not told.
pub(crate) const EXPIRES: u8 = 1 << 6;
/// Messages of the WebSocket may be compressed, either way (permessage-deflate).
pub(crate) const DEFLATED: u8 = 1 << 7;

/// A form of a kind, with some of the bits above.
pub(crate) fn form(kind: Kind, bits: u8) -> Form {
    Form(kind as u8 | bits)
}

/// The kind of a form.
pub(crate) fn kind(form: Form) -> Kind {
    KINDS[usize::from(form.0 & KIND_BITS).min(KINDS.len() - 1)]
}

/// Whether a subscriber gets one response.
pub(crate) const fn is_poll(kind: Kind) -> bool {
    matches!(kind, Kind::Raw | Kind::Json)
}

/// Whether a subscriber is a WebSocket.
pub(crate) const fn is_socket(kind: Kind) -> bool {
    matches!(kind, Kind::Envelope | Kind::Payload)
}

/// Whether a form has a bit.
pub(crate) fn has(form: Form, bit: u8) -> bool {
    form.0 & bit != 0
}

/// Makes runs of messages into bytes; one a worker.
pub(crate) struct Press {
    /// The present second, for the answers to polls.
    pub(crate) date: [u8; DATE_BYTES],
    body: Vec<u8>,
    deflater: Deflater,
}

impl Press {
    pub(crate) fn new() -> Self {
        Self { date: [0; DATE_BYTES], body: Vec::new(), deflater: Deflater::new(DEFLATE_LEVEL) }
    }
}

impl Encoder for Press {
    fn encode(&mut self, form: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        match kind(form) {
            Kind::Sse => {
                if let Some(gap) = run.gap {
                    put_sse_gap(&mut body, gap, None);
                }
                for message in run.messages.iter() {
                    let data = Data::of(&message.data, message.text, envelope::content_type(message));
                    put_event(&mut body, &run.id(message).to_string(), message.event.as_deref(), data);
                }
                frame(form, &body, out);
            }
            Kind::SseEnvelope => {
                if let Some(gap) = run.gap {
                    put_sse_gap(&mut body, gap, None);
                }
                let mut json = Vec::new();
                for message in run.messages.iter() {
                    json.clear();
                    envelope::put(&mut json, run.id(message), message);
                    put_event(
                        &mut body,
                        &run.id(message).to_string(),
                        message.event.as_deref(),
                        json_data(&json),
                    );
                }
                frame(form, &body, out);
            }
            Kind::Ndjson => {
                if let Some(gap) = run.gap {
                    envelope::put_gap(&mut body, gap);
                    body.push(b'\n');
                }
                for message in run.messages.iter() {
                    envelope::put(&mut body, run.id(message), message);
                    body.push(b'\n');
                }
                frame(form, &body, out);
            }
            Kind::Envelope => {
                if let Some(gap) = run.gap {
                    envelope::put_gap(&mut body, gap);
                    websocket::put_frame(out, Opcode::Text, &body);
                }
                for message in run.messages.iter() {
                    body.clear();
                    envelope::put(&mut body, run.id(message), message);
                    self.put_message(form, Opcode::Text, &body, out);
                }
            }
            Kind::Payload => {
                if run.gap.is_some() {
                    websocket::put_close(out, CLOSE_GAP, "messages are missing");
                }
                for message in run.messages.iter() {
                    let opcode = if message.text { Opcode::Text } else { Opcode::Binary };
                    self.put_message(form, opcode, &message.data, out);
                }
            }
            Kind::Raw => match run.messages.iter().next() {
                Some(message) => self.put_raw(form, run, message, out),
                None => self.put_nothing(form, &run.end().to_string(), run.gap, out),
            },
            Kind::Json => {
                envelope::put_batch(&mut body, run);
                self.put_head(form, 200, "application/json", body.len(), out);
                put_position(out, &run.end().to_string());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(&body);
            }
        }
        self.body = body;
    }
}

impl Press {
    /// A message of a WebSocket.
    fn put_message(&mut self, form: Form, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
        if has(form, DEFLATED) {
            self.deflater.put_frame(out, opcode, payload);
        } else {
            websocket::put_frame(out, opcode, payload);
        }
    }

    /// The answer to a poll by one message.
    fn put_raw(&self, form: Form, run: &Run<'_>, message: &Message, out: &mut Vec<u8>) {
        let content_type = envelope::content_type(message);
        self.put_head(form, 200, content_type, message.data.len(), out);
        put_position(out, &run.id(message).to_string());
        out.extend_from_slice(b"Encke-Channel: ");
        out.extend_from_slice(message.channel.as_str().as_bytes());
        out.extend_from_slice(b"\r\n");
        if let Some(event) = &message.event {
            // What no field may have was refused when it was published.
            let _checked = http1::put_field(out, "Encke-Event", event.as_bytes());
        }
        http1::put_field_number(out, "Encke-More", run.more as u64);
        if let Some(gap) = run.gap {
            put_gap_field(out, gap);
        }
        out.extend_from_slice(b"Content-Security-Policy: sandbox\r\n\r\n");
        out.extend_from_slice(&message.data);
    }

    /// The answer to a poll for which nothing came: 204, and from where to go on.
    pub(crate) fn put_nothing(&self, form: Form, position: &str, gap: Option<&Gap>, out: &mut Vec<u8>) {
        if kind(form) == Kind::Json {
            let body = format!("{{\"messages\":[],\"next\":\"{position}\"}}");
            self.put_head(form, 200, "application/json", body.len(), out);
            put_position(out, position);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(body.as_bytes());
            return;
        }
        self.put_start(form, 204, out);
        put_position(out, position);
        if let Some(gap) = gap {
            put_gap_field(out, gap);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The head of an answer with content, but for what the caller adds, and for the empty line.
    fn put_head(&self, form: Form, status: u16, content_type: &str, len: usize, out: &mut Vec<u8>) {
        self.put_start(form, status, out);
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(content_type.as_bytes());
        out.extend_from_slice(b"\r\n");
        http1::put_field_number(out, "Content-Length", len as u64);
    }

    fn put_start(&self, form: Form, status: u16, out: &mut Vec<u8>) {
        http1::put_status_line(out, status);
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(&self.date);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(CACHING);
        out.extend_from_slice(match (has(form, LAST), has(form, VERSION10)) {
            (true, _) => b"Connection: close\r\n",
            (false, true) => b"Connection: keep-alive\r\n",
            (false, false) => b"",
        });
    }

    /// The head of a stream: everything up to its first message. `retry_ms`: after how long to come back; `share`: who
    /// may read it.
    pub(crate) fn put_stream_head(
        &self,
        form: Form,
        position: &str,
        retry_ms: u64,
        gap: Option<&Gap>,
        share: &Share,
        out: &mut Vec<u8>,
    ) {
        http1::put_status_line(out, 200);
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(&self.date);
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(match kind(form) {
            Kind::Ndjson => b"application/x-ndjson".as_slice(),
            _ => b"text/event-stream",
        });
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(CACHING);
        // A stock nginx in front would keep back 4 KiB of the stream without it.
        out.extend_from_slice(b"X-Accel-Buffering: no\r\n");
        out.extend_from_slice(share.fields().lines());
        out.extend_from_slice(if has(form, CHUNKED) {
            b"Transfer-Encoding: chunked\r\n".as_slice()
        } else {
            b"Connection: close\r\n"
        });
        out.extend_from_slice(b"\r\n");
        let mut start = Vec::with_capacity(96);
        if kind(form) == Kind::Ndjson {
            start.push(b'\n');
            if let Some(gap) = gap {
                envelope::put_gap(&mut start, gap);
                start.push(b'\n');
            }
        } else {
            sse::put_comment(&mut start, line("encke"));
            sse::put_retry(&mut start, retry_ms);
            match gap {
                None => sse::put_position(&mut start, line(position)),
                // In one event: whoever were told the position alone, and then cut, would never hear of the gap.
                Some(gap) => put_sse_gap(&mut start, gap, Some(position)),
            }
        }
        frame(form, &start, out);
    }
}

/// A WebSocket without envelopes has missed messages, and there is no other way to say so.
pub(crate) const CLOSE_GAP: u16 = 4410;
/// The token or certificate of a WebSocket has expired: the client needs a new one.
pub(crate) const CLOSE_UNAUTHORIZED: u16 = 4401;
/// The first byte of a Close (RFC 6455 §5.2: FIN and opcode 8).
pub(crate) const CLOSE_BYTE: u8 = 0x88;
/// Nothing of push may be kept by a cache or changed on its way.
const CACHING: &[u8] = b"Cache-Control: no-store, no-transform\r\nX-Content-Type-Options: nosniff\r\n";

/// Frames a piece of a stream.
pub(crate) fn frame(form: Form, body: &[u8], out: &mut Vec<u8>) {
    if !has(form, CHUNKED) {
        out.extend_from_slice(body);
        return;
    }
    if !body.is_empty() {
        http1::put_chunk_head(out, body.len() as u64);
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
    }
}

/// Bytes of the status line that an answer begins with.
pub(crate) fn status_line_bytes(answer: &[u8]) -> usize {
    answer.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// What says that a stream is alive.
pub(crate) fn heartbeat(form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    match kind(form) {
        Kind::Sse | Kind::SseEnvelope => frame(form, b":\n\n", &mut out),
        Kind::Ndjson => frame(form, b"\n", &mut out),
        Kind::Envelope | Kind::Payload => websocket::put_frame(&mut out, Opcode::Ping, b""),
        // A poll that has waited long enough is answered.
        Kind::Raw | Kind::Json => {}
    }
    out
}

/// What tells a stream that messages are missing.
pub(crate) fn gap(form: Form, gap: &Gap) -> Vec<u8> {
    let (mut body, mut out) = (Vec::new(), Vec::new());
    if kind(form) == Kind::Ndjson {
        envelope::put_gap(&mut body, gap);
        body.push(b'\n');
    } else {
        put_sse_gap(&mut body, gap, None);
    }
    frame(form, &body, &mut out);
    out
}

/// The last bytes of a subscriber whose token or certificate has expired.
pub(crate) fn expired(form: Form, retry_ms: u64) -> Vec<u8> {
    match kind(form) {
        Kind::Envelope | Kind::Payload => {
            let mut out = Vec::new();
            websocket::put_close(&mut out, CLOSE_UNAUTHORIZED, "the token has expired");
            out
        }
        Kind::Sse | Kind::SseEnvelope | Kind::Ndjson | Kind::Raw | Kind::Json => farewell(form, retry_ms),
    }
}

/// A stream's last words: when to come back, and its end.
pub(crate) fn farewell(form: Form, retry_ms: u64) -> Vec<u8> {
    let mut out = Vec::new();
    match kind(form) {
        Kind::Sse | Kind::SseEnvelope => {
            let mut body = Vec::new();
            sse::put_retry(&mut body, retry_ms);
            body.push(b'\n');
            frame(form, &body, &mut out);
        }
        Kind::Envelope | Kind::Payload => {
            // 1012: the service restarts. The reason says when to come back, in milliseconds.
            websocket::put_close(&mut out, 1012, &retry_ms.to_string());
        }
        Kind::Ndjson | Kind::Raw | Kind::Json => {}
    }
    if has(form, CHUNKED) {
        out.extend_from_slice(http1::LAST_CHUNK);
    }
    out
}

fn put_position(out: &mut Vec<u8>, position: &str) {
    for (name, quote) in [("ETag: ", "\""), ("Encke-Id: ", "")] {
        for part in [name, quote, position, quote, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

fn put_gap_field(out: &mut Vec<u8>, gap: &Gap) {
    let value = format!("from={}, to={}, reason={}", gap.from, gap.to, envelope::reason(gap));
    let _own = http1::put_field(out, "Encke-Gap", value.as_bytes());
}

/// Within a stream a gap has no id: whoever goes on goes on from before it, because of several channels one may have
/// kept what another has lost. At its start the id is where the stream begins.
fn put_sse_gap(body: &mut Vec<u8>, gap: &Gap, position: Option<&str>) {
    let mut json = Vec::new();
    envelope::put_gap(&mut json, gap);
    sse::put_event(body, position.map(line), Line::of("encke.gap"), json_data(&json));
}

fn put_event(body: &mut Vec<u8>, id: &str, event: Option<&str>, data: Data<'_>) {
    // An event's name was checked when it was published.
    sse::put_event(body, Some(line(id)), event.and_then(Line::of), data);
}

/// JSON has no line ends.
fn json_data(json: &[u8]) -> Data<'_> {
    Data::of(json, true, "application/json")
}

fn line(text: &str) -> Line<'_> {
    Line::of(text).expect("positions and comments of ours have no line ends")
}
