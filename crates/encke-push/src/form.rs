//! Forms: the encoding of messages for each kind of stream. A run of messages is encoded once per form, and shared by all
//! subscribers that need it.
//!
//! ```text
//! Form    kind: Sse · SseEnvelope · Ndjson · Envelope (WebSocket) · Payload (WebSocket) · Raw (poll) · Json (poll) · Media
//!         CHUNKED   content without a length is sent in chunks (HTTP/1.1)
//!         CLOSING   it ends with the connection (HTTP/1.0); with neither bit, with the stream (HTTP/2)
//!         DEFLATED  the WebSocket accepts compressed messages
//!         EXPIRES, RESUMED  state of the subscriber, not of its encoding
//! ```
//! For the hub a form is an opaque number ([`of_hub`]); only this file interprets it.

use encke_hub::{Encoder, Form, Gap, Message, Run};
use encke_wire::http1;
use encke_wire::sse::{self, Data, Line};
use encke_wire::websocket::{self, Deflater, Opcode};

use super::envelope;
use encke_rights::Share;
use encke_server::{DEFLATE_LEVEL, Fields, FramingKind};

/// The encoding that a subscriber receives: the *kind* of a form. A [`Form`] is a kind with some of the bits below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MessageForm {
    /// Server-sent events of one channel, with plain payloads.
    Sse,
    /// Server-sent events of several channels, with envelopes that name the channel.
    SseEnvelope,
    /// NDJSON: a line with an envelope per message.
    Ndjson,
    /// WebSocket with sub-protocol `encke.v1`: a text frame with an envelope per message.
    Envelope,
    /// WebSocket without a sub-protocol: a frame with the payload per message.
    Payload,
    /// Poll: the response is the payload of one message.
    Raw,
    /// Poll: the response is a JSON list of all messages available.
    Json,
    /// A response without end that consists of the payloads alone: media.
    Media,
}

const KINDS: [MessageForm; 8] = [
    MessageForm::Sse,
    MessageForm::SseEnvelope,
    MessageForm::Ndjson,
    MessageForm::Envelope,
    MessageForm::Payload,
    MessageForm::Raw,
    MessageForm::Json,
    MessageForm::Media,
];
const KIND_BITS: u8 = 0b111;
/// The framing of the response is [`FramingKind::Chunked`].
const CHUNKED: u8 = 1 << 3;
/// The framing of the response is [`FramingKind::Close`].
const CLOSING: u8 = 1 << 5;
/// The subscriber's right to read expires, at the time in its [`RequestDetails`](super::side::RequestDetails). The hub does not
/// see this bit.
pub(crate) const EXPIRES: u8 = 1 << 6;
/// The subscriber's stream was parked and has not started here: its head was sent before. The hub does not see this bit.
pub(crate) const RESUMED: u8 = 1 << 4;
/// Messages of the WebSocket may be compressed in both directions (permessage-deflate).
pub(crate) const DEFLATED: u8 = 1 << 7;

/// Returns the form of a kind with some of the bits above.
pub(crate) fn form(kind: MessageForm, bits: u8) -> Form {
    Form(kind as u8 | bits)
}

/// Returns the bits for the framing of a request that is not a WebSocket.
pub(crate) const fn framing_bits(framing: FramingKind) -> u8 {
    match framing {
        FramingKind::Chunked => CHUNKED,
        FramingKind::Close => CLOSING,
        FramingKind::Http2 | FramingKind::Raw => 0,
    }
}

/// Returns the framing of a subscriber that is not a WebSocket.
pub(crate) const fn framing(form: Form) -> FramingKind {
    match form.0 & (CHUNKED | CLOSING) {
        CHUNKED => FramingKind::Chunked,
        CLOSING => FramingKind::Close,
        _ => FramingKind::Http2,
    }
}

/// Returns the part of a form that determines the encoding: subscribers with the same part share the bytes of a run. The head
/// of a poll's response is written for each poll, so its framing does not matter here.
pub(crate) fn of_hub(form: Form) -> Form {
    let bits = if is_poll(kind(form)) { KIND_BITS } else { !(CLOSING | EXPIRES | RESUMED) };
    Form(form.0 & bits)
}

/// Returns the kind of a form.
pub(crate) fn kind(form: Form) -> MessageForm {
    KINDS[usize::from(form.0 & KIND_BITS).min(KINDS.len() - 1)]
}

/// Returns whether a kind is a poll, which receives one response.
pub(crate) const fn is_poll(kind: MessageForm) -> bool {
    matches!(kind, MessageForm::Raw | MessageForm::Json)
}

/// Returns whether a kind is a WebSocket.
pub(crate) const fn is_socket(kind: MessageForm) -> bool {
    matches!(kind, MessageForm::Envelope | MessageForm::Payload)
}

/// Returns whether a form has a bit.
pub(crate) fn has(form: Form, bit: u8) -> bool {
    form.0 & bit != 0
}

/// Encodes runs of messages; one per worker.
pub(crate) struct RunEncoder {
    body: Vec<u8>,
    deflater: Deflater,
}

impl RunEncoder {
    pub(crate) fn new() -> Self {
        Self { body: Vec::new(), deflater: Deflater::new(DEFLATE_LEVEL) }
    }
}

impl Encoder for RunEncoder {
    fn encode(&mut self, form: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        match kind(form) {
            MessageForm::Sse => {
                if let Some(gap) = run.gap {
                    put_sse_gap(&mut body, gap, None);
                }
                for message in run.messages.iter() {
                    let data = Data::of(&message.data, message.text, envelope::content_type(message));
                    put_event(&mut body, &run.id(message).to_string(), message.event.as_deref(), data);
                }
                frame(form, &body, out);
            }
            MessageForm::SseEnvelope => {
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
            MessageForm::Ndjson => {
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
            MessageForm::Envelope => {
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
            MessageForm::Payload => {
                if run.gap.is_some() {
                    websocket::put_close(out, CLOSE_GAP, "messages are missing");
                }
                for message in run.messages.iter() {
                    let opcode = if message.text { Opcode::Text } else { Opcode::Binary };
                    self.put_message(form, opcode, &message.data, out);
                }
            }
            // The bytes for a player have no place for a gap. The hub continues at a key frame.
            MessageForm::Media => {
                for message in run.messages {
                    body.extend_from_slice(&message.data);
                }
                frame(form, &body, out);
            }
            MessageForm::Raw => match run.messages.iter().next() {
                Some(message) => put_raw(run, message, out),
                None => put_nothing(form, &run.end().to_string(), run.gap, out),
            },
            MessageForm::Json => {
                envelope::put_batch(&mut body, run);
                put_json(&run.end().to_string(), &body, out);
            }
        }
        self.body = body;
    }
}

impl RunEncoder {
    /// Appends a message of a WebSocket.
    fn put_message(&mut self, form: Form, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
        if has(form, DEFLATED) {
            self.deflater.put_frame(out, opcode, payload);
        } else {
            websocket::put_frame(out, opcode, payload);
        }
    }
}

/// The encoded response to a poll, shared by all polls of its kind. Each poll has its own head.
///
/// ```text
///  0  status, little-endian    2  bytes of the fields, little-endian    6  field lines, content
/// ```
pub(crate) struct PollResponse<'a> {
    pub(crate) status: u16,
    /// Field lines.
    pub(crate) fields: &'a [u8],
    pub(crate) content_at: usize,
}

impl<'a> PollResponse<'a> {
    /// Parses the output of [`RunEncoder`].
    pub(crate) fn of(encoded: &'a [u8]) -> Option<Self> {
        let (status, rest) = encoded.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let fields = rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        let content_at = encoded.len() - rest.len() + fields.len();
        Some(Self { status: u16::from_le_bytes(*status), fields, content_at })
    }
}

fn put_poll(status: u16, content: &[u8], out: &mut Vec<u8>, put_fields: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&status.to_le_bytes());
    let len_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    out.extend_from_slice(CACHING);
    put_fields(out);
    // The request that published the message bounds the size of the fields.
    let len = u32::try_from(out.len() - start).unwrap_or(0);
    out[len_at..start].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(content);
}

/// Appends the response to a poll with one message.
fn put_raw(run: &Run<'_>, message: &Message, out: &mut Vec<u8>) {
    put_poll(200, &message.data, out, |out| {
        put_content_type(out, envelope::response_type(message));
        put_position(out, &run.id(message).to_string());
        out.extend_from_slice(b"Encke-Channel: ");
        out.extend_from_slice(message.channel.as_str().as_bytes());
        out.extend_from_slice(b"\r\n");
        if let Some(event) = &message.event {
            // A value that is invalid in a field was rejected when it was published.
            let _checked = http1::put_field(out, "Encke-Event", event.as_bytes());
        }
        http1::put_field_number(out, "Encke-More", run.more as u64);
        if let Some(gap) = run.gap {
            put_gap_field(out, gap);
        }
        out.extend_from_slice(b"Content-Security-Policy: sandbox\r\n");
    });
}

/// Appends the response to a poll with a list of messages.
fn put_json(position: &str, json: &[u8], out: &mut Vec<u8>) {
    put_poll(200, json, out, |out| {
        put_content_type(out, "application/json");
        put_position(out, position);
    });
}

/// Appends the response to a poll without messages: 204 or an empty list, and the position from which to continue.
pub(crate) fn put_nothing(form: Form, position: &str, gap: Option<&Gap>, out: &mut Vec<u8>) {
    if kind(form) == MessageForm::Json {
        let json = format!("{{\"messages\":[],\"next\":\"{position}\"}}");
        return put_json(position, json.as_bytes(), out);
    }
    put_poll(204, b"", out, |out| {
        put_position(out, position);
        if let Some(gap) = gap {
            put_gap_field(out, gap);
        }
    });
}

/// Returns the header fields of a stream. `share`: the pages that may read it.
pub(crate) fn stream_fields(form: Form, share: &Share) -> Fields {
    let mut lines = Vec::new();
    put_content_type(
        &mut lines,
        if kind(form) == MessageForm::Ndjson { "application/x-ndjson" } else { "text/event-stream" },
    );
    lines.extend_from_slice(CACHING);
    // Without this field nginx in front with default settings would hold back 4 KiB of the stream.
    lines.extend_from_slice(b"X-Accel-Buffering: no\r\n");
    let mut fields = Fields::new();
    fields.push_lines(&lines);
    fields.extend(&share.fields());
    fields
}

/// Appends the start of a stream's content, before its first message. `retry_ms` is the client's retry time.
pub(crate) fn put_stream_start(
    form: Form,
    position: &str,
    retry_ms: u64,
    gap: Option<&Gap>,
    out: &mut Vec<u8>,
) {
    let mut start = Vec::with_capacity(96);
    if kind(form) == MessageForm::Ndjson {
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
            // Gap and position share one event: a client that is cut after the position alone would never learn of the gap.
            Some(gap) => put_sse_gap(&mut start, gap, Some(position)),
        }
    }
    frame(form, &start, out);
}

fn put_content_type(out: &mut Vec<u8>, content_type: &str) {
    for part in ["Content-Type: ", content_type, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Close code: a WebSocket without envelopes has a gap, and nothing else can report it.
pub(crate) const CLOSE_GAP: u16 = 4410;
/// Close code: the token or certificate has expired, and the client needs a new one.
pub(crate) const CLOSE_UNAUTHORIZED: u16 = 4401;
/// The first byte of a Close (RFC 6455 §5.2: FIN and opcode 8).
pub(crate) const CLOSE_BYTE: u8 = 0x88;
/// No cache may store a response of push, and no proxy may change it.
const CACHING: &[u8] = b"Cache-Control: no-store, no-transform\r\nX-Content-Type-Options: nosniff\r\n";

/// Appends a piece of a stream in its framing.
pub(crate) fn frame(form: Form, body: &[u8], out: &mut Vec<u8>) {
    framing(form).put_data(body, out);
}

/// Returns the bytes that show that a stream is alive.
pub(crate) fn heartbeat(form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    match kind(form) {
        MessageForm::Sse | MessageForm::SseEnvelope => frame(form, b":\n\n", &mut out),
        MessageForm::Ndjson => frame(form, b"\n", &mut out),
        MessageForm::Envelope | MessageForm::Payload => websocket::put_frame(&mut out, Opcode::Ping, b""),
        // A poll has no heartbeat: its wait ends with a response. Media has no bytes that a player ignores.
        MessageForm::Raw | MessageForm::Json | MessageForm::Media => {}
    }
    out
}

/// Returns the encoded report of a gap.
pub(crate) fn gap(form: Form, gap: &Gap) -> Vec<u8> {
    let (mut body, mut out) = (Vec::new(), Vec::new());
    if kind(form) == MessageForm::Ndjson {
        envelope::put_gap(&mut body, gap);
        body.push(b'\n');
    } else {
        put_sse_gap(&mut body, gap, None);
    }
    frame(form, &body, &mut out);
    out
}

/// Returns the last bytes of a subscriber whose token or certificate has expired, or whose right a reload has removed
/// (`is_revoked`).
pub(crate) fn expired(form: Form, retry_ms: u64, is_revoked: bool) -> Vec<u8> {
    match kind(form) {
        MessageForm::Envelope | MessageForm::Payload => {
            let mut out = Vec::new();
            let reason = if is_revoked {
                "the server has new settings, without this right"
            } else {
                "the token has expired"
            };
            websocket::put_close(&mut out, CLOSE_UNAUTHORIZED, reason);
            out
        }
        MessageForm::Sse
        | MessageForm::SseEnvelope
        | MessageForm::Ndjson
        | MessageForm::Raw
        | MessageForm::Json
        | MessageForm::Media => last_event(form, retry_ms),
    }
}

/// Returns the last bytes of a stream that the source of its channel has ended.
pub(crate) fn ended(form: Form, retry_ms: u64) -> Vec<u8> {
    if !is_socket(kind(form)) {
        return last_event(form, retry_ms);
    }
    let mut out = Vec::new();
    // RFC 6455, section 7.4.1: a normal closure.
    websocket::put_close(&mut out, 1000, "the stream has ended");
    out
}

/// Returns the last bytes of a stream: the retry time, and its end.
pub(crate) fn last_event(form: Form, retry_ms: u64) -> Vec<u8> {
    let mut out = Vec::new();
    match kind(form) {
        MessageForm::Sse | MessageForm::SseEnvelope => {
            let mut body = Vec::new();
            sse::put_retry(&mut body, retry_ms);
            body.push(b'\n');
            frame(form, &body, &mut out);
        }
        MessageForm::Envelope | MessageForm::Payload => {
            // 1012: the service restarts. The reason is the retry time in milliseconds.
            websocket::put_close(&mut out, 1012, &retry_ms.to_string());
        }
        MessageForm::Ndjson | MessageForm::Raw | MessageForm::Json | MessageForm::Media => {}
    }
    if !is_socket(kind(form)) {
        framing(form).put_end(&Fields::new(), &mut out);
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

/// Appends a gap as an event. Within a stream it has no id, so that a client resumes before the gap: of several channels one
/// may have kept what another has lost. At the start of a stream its id is the start position.
fn put_sse_gap(body: &mut Vec<u8>, gap: &Gap, position: Option<&str>) {
    let mut json = Vec::new();
    envelope::put_gap(&mut json, gap);
    sse::put_event(body, position.map(line), Line::of("encke.gap"), json_data(&json));
}

fn put_event(body: &mut Vec<u8>, id: &str, event: Option<&str>, data: Data<'_>) {
    // The event's name was checked when it was published.
    sse::put_event(body, Some(line(id)), event.and_then(Line::of), data);
}

/// JSON contains no line ends.
fn json_data(json: &[u8]) -> Data<'_> {
    Data::of(json, true, "application/json")
}

fn line(text: &str) -> Line<'_> {
    Line::of(text).expect("positions and comments of ours have no line ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_to_a_poll_is_read_as_it_was_encoded() {
        let mut encoded = Vec::new();
        put_json("1-2", b"{}", &mut encoded);
        let PollResponse { status, fields, content_at } = PollResponse::of(&encoded).expect("whole");
        assert_eq!((status, &encoded[content_at..]), (200, &b"{}"[..]));
        assert!(fields.starts_with(CACHING) && fields.ends_with(b"Encke-Id: 1-2\r\n"));
        for end in 0..content_at {
            assert!(PollResponse::of(&encoded[..end]).is_none(), "{end} bytes");
        }
        let mut nothing = Vec::new();
        put_nothing(form(MessageForm::Raw, 0), "1-2", None, &mut nothing);
        let PollResponse { status, content_at, .. } = PollResponse::of(&nothing).expect("whole");
        assert_eq!((status, content_at), (204, nothing.len()));
    }

    #[test]
    fn subscribers_that_need_the_same_bytes_have_the_same_form_in_the_hub() {
        let all = [FramingKind::Chunked, FramingKind::Close, FramingKind::Http2];
        for (kind, encodings) in
            [(MessageForm::Raw, 1), (MessageForm::Json, 1), (MessageForm::Sse, 2), (MessageForm::Ndjson, 2)]
        {
            let mut forms: Vec<u8> = Vec::new();
            for kind_of_framing in all {
                for bits in [0, EXPIRES, RESUMED] {
                    let form = form(kind, framing_bits(kind_of_framing) | bits);
                    assert_eq!(framing(form), kind_of_framing);
                    forms.push(of_hub(form).0);
                }
            }
            forms.sort_unstable();
            forms.dedup();
            assert_eq!(forms.len(), encodings, "{kind:?}");
        }
    }
}
