//! Reads a subscriber's stream: turns the bytes of its connection into events.
//!
//! ```text
//!             ┌─────────── poll: end of the response: Polled ──────────────────┐
//!             ▼                                                                │
//!   Head ── complete head ─┬─ event stream, NDJSON: Answered ─► Body ──────────┤   units of the body: an event, a line,
//!                          ├─ poll ───────────────────────────► Body ──────────┘   a whole poll; each Message, Gap …
//!                          ├─ 101: Answered ──────────────────► Frames
//!                          └─ any other status: TurnedAway, or an error            the end: Ended
//! ```
//! A unit is processed once it is complete: usually where it was received, otherwise in `partial`, which is empty at rest. A
//! position (the id of the last event) therefore advances exactly with its message, wherever the connection breaks. Lines of
//! event streams end with LF or CR LF.

use std::borrow::Cow;
use std::fmt;

use encke_wire::field::Known;
use encke_wire::http1::{
    BodyState, ChunkedDecoder, HeadLimits, Progress, Refusal, ResponseFraming, ResponseHead,
};
use encke_wire::method::Method;
use encke_wire::websocket::{self, Decoder, Failure, FrameRules, FrameSender, Opcode};
use memchr::{memchr, memmem};

use super::dialect::Transport;
use super::mark::Mark;

/// State of a subscriber's connection between reads, and its position in the channel.
#[derive(Debug, Default)]
pub(crate) struct ReceiverStream {
    phase: StreamPhase,
    /// A partial head, or the incomplete unit at the end of the body.
    partial: Vec<u8>,
    /// The position at which the next subscription resumes, as given by the server.
    position: Option<Box<[u8]>>,
    /// The position after the response being read.
    pending: Option<Box<[u8]>>,
    /// Retry time of an event stream after its end.
    retry_ms: Option<u32>,
}

#[derive(Debug, Default)]
enum StreamPhase {
    #[default]
    Head,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
    /// `None`: between two frames.
    Frames(Option<Box<Decoder>>),
    /// The rest of the input is ignored.
    Over,
}

/// Events of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReceiverEvent {
    /// The server has accepted the subscription.
    Answered,
    Message(Mark),
    /// The server reports a gap.
    Gap,
    /// The response to a poll is complete.
    Polled,
    /// A frame to send in return.
    Pong(Vec<u8>),
    /// An orderly end of the subscription, with the retry time in ms if given.
    Ended(Option<u64>),
    /// The subscription was rejected, with the retry time in ms if given.
    TurnedAway(Option<u64>),
}

/// Why a connection is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamError {
    /// The response is not valid HTTP.
    Http(Refusal),
    /// A WebSocket frame is invalid.
    Frame(Failure),
    /// The status is not one of a subscription.
    Status(u16),
    /// The response is not the requested kind of stream.
    NoStream,
    /// A message exceeds `UNIT_BYTES_MAX`.
    TooLarge,
}

impl StreamError {
    /// Whether another attempt would have the same result.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Status(400..=499) | Self::NoStream)
    }
}

/// How to read a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    pub(crate) transport: Transport,
    /// Marks of this run are searched for.
    pub(crate) run: u32,
    /// Whether positions are needed: each message has one, which is copied.
    pub(crate) positions: bool,
}

/// Maximum bytes of an event, a line, a frame or a poll's response. They stay in memory until they are complete.
const UNIT_BYTES_MAX: usize = 64 << 20;

impl ReceiverStream {
    /// The position at which the next subscription resumes, if known.
    pub(crate) fn position(&self) -> Option<Cow<'_, str>> {
        self.position.as_deref().map(String::from_utf8_lossy)
    }

    /// Stores a position, in place if it is as long as the last.
    fn store_position(&mut self, id: &[u8]) {
        match &mut self.position {
            Some(position) if position.len() == id.len() => position.copy_from_slice(id),
            position => *position = Some(id.into()),
        }
    }

    /// Resets the state for a new connection, but keeps the position.
    pub(crate) fn reset(&mut self) {
        let position = self.position.take();
        *self = Self { position, ..Self::default() };
    }

    /// Resets the state including the position.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Reads input, and appends its events to `told`. `head` is working memory.
    ///
    /// # Errors
    /// The response is invalid; the connection cannot be read any further.
    pub(crate) fn feed(
        &mut self,
        reading: ReadOptions,
        head: &mut ResponseHead,
        lease: &mut [u8],
        told: &mut Vec<ReceiverEvent>,
    ) -> Result<(), StreamError> {
        let before = told.len();
        if matches!(self.phase, StreamPhase::Head) && !self.partial.is_empty() {
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(lease);
            self.read(reading, head, &mut joined, told)?;
        } else {
            self.read(reading, head, lease, told)?;
        }
        // A stream that ends with its first bytes counts as rejected.
        if let [ReceiverEvent::Answered, .., ReceiverEvent::Ended(retry_ms)] = told[before..] {
            let silent = !told[before..].iter().any(|told| matches!(told, ReceiverEvent::Message(_)));
            if silent {
                told.truncate(before);
                told.push(ReceiverEvent::TurnedAway(retry_ms));
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        reading: ReadOptions,
        head: &mut ResponseHead,
        input: &mut [u8],
        told: &mut Vec<ReceiverEvent>,
    ) -> Result<(), StreamError> {
        let mut at = 0;
        while at < input.len() {
            let rest = &mut input[at..];
            match &mut self.phase {
                StreamPhase::Head => {
                    head.reset();
                    match head.feed(rest, &HeadLimits::default()) {
                        Progress::Partial => {
                            self.partial = rest.to_vec();
                            return Ok(());
                        }
                        Progress::Refused(refusal) => return Err(StreamError::Http(refusal)),
                        Progress::Done { head_bytes } => {
                            self.understand(reading, head, rest, told)?;
                            at += head_bytes;
                        }
                    }
                }
                StreamPhase::Length(left) => {
                    // At most `rest.len()`, so the cast holds.
                    let taken = (*left).min(rest.len() as u64) as usize;
                    *left -= taken as u64;
                    let whole = *left == 0;
                    self.take(reading, &rest[..taken], told)?;
                    at += taken;
                    if whole {
                        self.end_body(reading, told);
                    }
                }
                StreamPhase::Chunked(decoder) => {
                    let chunk = decoder.feed(rest).map_err(StreamError::Http)?;
                    self.take(reading, chunk.data, told)?;
                    at += chunk.consumed;
                    if chunk.state == BodyState::Done {
                        self.end_body(reading, told);
                    }
                }
                StreamPhase::UntilClose => {
                    self.take(reading, rest, told)?;
                    at = input.len();
                }
                StreamPhase::Frames(_) => at += self.take_frame(reading, rest, told)?,
                StreamPhase::Over => return Ok(()),
            }
        }
        Ok(())
    }

    /// Handles an orderly end of the connection.
    pub(crate) fn ended(&mut self, reading: ReadOptions, told: &mut Vec<ReceiverEvent>) {
        match self.phase {
            StreamPhase::UntilClose => self.end_body(reading, told),
            _ => told.push(ReceiverEvent::Ended(self.retry_ms.map(u64::from))),
        }
    }

    /// Applies a complete head, at the beginning of `bytes`.
    fn understand(
        &mut self,
        reading: ReadOptions,
        head: &ResponseHead,
        bytes: &[u8],
        told: &mut Vec<ReceiverEvent>,
    ) -> Result<(), StreamError> {
        let status = head.status();
        let field = |known| head.known(bytes, known).and_then(|value| std::str::from_utf8(value).ok());
        match (status, reading.transport) {
            (101, Transport::Ws) => {
                let accept = websocket::accept_of(super::dialect::WS_KEY);
                if field(Known::SecWebSocketAccept).map(str::as_bytes) != Some(&accept) {
                    return Err(StreamError::NoStream);
                }
                self.phase = StreamPhase::Frames(None);
                told.push(ReceiverEvent::Answered);
                return Ok(());
            }
            (100..=199, _) => return Ok(()),
            (200, Transport::Sse) => {
                if !field(Known::ContentType).is_some_and(|kind| kind.starts_with("text/event-stream")) {
                    return Err(StreamError::NoStream);
                }
                told.push(ReceiverEvent::Answered);
            }
            (200, Transport::Ndjson) => told.push(ReceiverEvent::Answered),
            (200 | 204 | 304 | 408, Transport::Poll) => {
                if reading.positions {
                    self.pending = position_of(head, bytes);
                }
            }
            (429 | 503, _) => {
                let seconds = field(Known::RetryAfter).and_then(|seconds| seconds.trim().parse::<u64>().ok());
                told.push(ReceiverEvent::TurnedAway(seconds.map(|seconds| seconds.saturating_mul(1_000))));
                self.phase = StreamPhase::Over;
                return Ok(());
            }
            (status, _) => return Err(StreamError::Status(status)),
        }
        self.phase = match head.framing(Method::Get) {
            ResponseFraming::None | ResponseFraming::Length(0) => {
                self.end_body(reading, told);
                return Ok(());
            }
            ResponseFraming::Length(bytes) => StreamPhase::Length(bytes),
            ResponseFraming::Chunked => StreamPhase::Chunked(ChunkedDecoder::new()),
            ResponseFraming::Close => StreamPhase::UntilClose,
        };
        if reading.transport == Transport::Poll && head.field(bytes, "Encke-Gap").is_some() {
            told.push(ReceiverEvent::Gap);
        }
        Ok(())
    }

    fn end_body(&mut self, reading: ReadOptions, told: &mut Vec<ReceiverEvent>) {
        self.phase = StreamPhase::Head;
        if reading.transport == Transport::Poll {
            let body = std::mem::take(&mut self.partial);
            find_all(reading.run, &body, told);
            if let Some(position) = self.pending.take() {
                self.position = Some(position);
            }
            told.push(ReceiverEvent::Polled);
        } else {
            self.phase = StreamPhase::Over;
            told.push(ReceiverEvent::Ended(self.retry_ms.map(u64::from)));
        }
    }

    // ---- bodies ----

    /// Takes a piece of a body, and processes the units that it completes.
    fn take(
        &mut self,
        reading: ReadOptions,
        piece: &[u8],
        told: &mut Vec<ReceiverEvent>,
    ) -> Result<(), StreamError> {
        if self.partial.is_empty() {
            let used = self.units(reading, piece, told);
            self.partial.extend_from_slice(&piece[used..]);
        } else {
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(piece);
            let used = self.units(reading, &joined, told);
            joined.drain(..used);
            if !joined.is_empty() {
                self.partial = joined;
            }
        }
        if self.partial.len() > UNIT_BYTES_MAX { Err(StreamError::TooLarge) } else { Ok(()) }
    }

    /// Processes complete units; returns their length.
    fn units(&mut self, reading: ReadOptions, text: &[u8], told: &mut Vec<ReceiverEvent>) -> usize {
        match reading.transport {
            Transport::Sse => self.events(reading, text, told),
            Transport::Ndjson => {
                let mut used = 0;
                while let Some(bytes) = memchr(b'\n', &text[used..]) {
                    self.envelope(reading, &text[used..used + bytes], told);
                    used += bytes + 1;
                }
                used
            }
            // A poll's unit ends with its body; frames are read elsewhere.
            Transport::Poll | Transport::Ws => 0,
        }
    }

    /// Processes events up to their empty lines; returns their length.
    fn events(&mut self, reading: ReadOptions, text: &[u8], told: &mut Vec<ReceiverEvent>) -> usize {
        let (mut used, mut at) = (0, 0);
        let (mut id, mut gap): (Option<&[u8]>, bool) = (None, false);
        let mut open = told.len();
        while let Some(bytes) = memchr(b'\n', &text[at..]) {
            let line = &text[at..at + bytes];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            at += bytes + 1;
            if line.is_empty() {
                if gap {
                    told.truncate(open);
                    told.push(ReceiverEvent::Gap);
                }
                if let Some(id) = id.take().filter(|_| reading.positions) {
                    self.store_position(id);
                }
                (gap, used, open) = (false, at, told.len());
            } else if let Some(data) = line.strip_prefix(b"data:") {
                find_all(reading.run, data, told);
            } else if let Some(value) = line.strip_prefix(b"id:") {
                id = Some(value.trim_ascii());
            } else if let Some(name) = line.strip_prefix(b"event:") {
                gap = name.trim_ascii() == b"encke.gap";
            } else if let Some(ms) = line.strip_prefix(b"retry:") {
                let ms = std::str::from_utf8(ms).ok().and_then(|ms| ms.trim().parse().ok());
                self.retry_ms = ms.or(self.retry_ms);
            }
        }
        // Messages of an incomplete event are found again once it is complete.
        told.truncate(open);
        used
    }

    /// Processes a line or a frame: an envelope, or only a payload.
    fn envelope(&mut self, reading: ReadOptions, text: &[u8], told: &mut Vec<ReceiverEvent>) {
        let before = told.len();
        find_all(reading.run, text, told);
        if told.len() == before && memmem::find(text, b"\"op\":\"gap\"").is_some() {
            told.push(ReceiverEvent::Gap);
        }
        if reading.positions
            && let Some(id) = behind(text, b"\"id\":\"")
            && let Some(end) = memchr(b'"', id)
        {
            self.store_position(&id[..end]);
        }
    }

    /// Processes a frame or a part of one; returns its length in the input.
    fn take_frame(
        &mut self,
        reading: ReadOptions,
        input: &mut [u8],
        told: &mut Vec<ReceiverEvent>,
    ) -> Result<usize, StreamError> {
        let StreamPhase::Frames(held) = &mut self.phase else { return Ok(0) };
        let mut decoder = held.take().map_or_else(Decoder::new, |held| *held);
        let step = decoder.feed(input, &RULES).map_err(StreamError::Frame)?;
        let used = step.used;
        match step.event {
            Some(websocket::FrameEvent::Data { payload, first: true, last: true, .. }) => {
                self.envelope(reading, payload, told);
            }
            Some(websocket::FrameEvent::Data { payload, last, .. }) => {
                self.partial.extend_from_slice(payload);
                if last {
                    let whole = std::mem::take(&mut self.partial);
                    self.envelope(reading, &whole, told);
                }
            }
            Some(websocket::FrameEvent::Ping(payload)) => {
                let mut pong = Vec::new();
                // A fixed mask suffices: masks protect caches from content that an attacker chooses (RFC 6455 section 10.3),
                // and this payload is the server's own.
                websocket::put_masked(&mut pong, Opcode::Pong, payload, [0; 4]);
                told.push(ReceiverEvent::Pong(pong));
            }
            Some(websocket::FrameEvent::Close { code, reason }) => {
                if code == Some(GAP_CODE) {
                    told.push(ReceiverEvent::Gap);
                }
                told.push(ReceiverEvent::Ended(reason.parse().ok()));
                self.phase = StreamPhase::Over;
                return Ok(used);
            }
            Some(websocket::FrameEvent::Pong(_)) | None => {}
        }
        if !decoder.is_at_rest() {
            self.phase = StreamPhase::Frames(Some(Box::new(decoder)));
        }
        Ok(used)
    }
}

/// Encke's close code for a gap on a WebSocket without envelopes.
const GAP_CODE: u16 = 4410;
const RULES: FrameRules = FrameRules::new(FrameSender::Server, UNIT_BYTES_MAX as u64);

/// The position after a poll: Encke's id, or nchan's two validators separated by a line feed.
fn position_of(head: &ResponseHead, bytes: &[u8]) -> Option<Box<[u8]>> {
    if let Some(id) = head.field(bytes, "Encke-Id") {
        return Some(id.into());
    }
    let modified = head.known(bytes, Known::LastModified)?;
    let tag = head.known(bytes, Known::Etag).unwrap_or_default();
    Some([modified, b"\n", tag].concat().into())
}

fn find_all(run: u32, mut text: &[u8], told: &mut Vec<ReceiverEvent>) {
    while let Some((mark, rest)) = Mark::find(run, text) {
        told.push(ReceiverEvent::Message(mark));
        text = rest;
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(refusal) => write!(f, "invalid HTTP response: {refusal}"),
            Self::Frame(failure) => write!(f, "invalid WebSocket frame: {failure}"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::NoStream => f.write_str("a response, but not the requested stream"),
            Self::TooLarge => f.write_str("a message of more than 64 MiB"),
        }
    }
}

fn behind<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    memmem::find(text, word).map(|at| &text[at + word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u32 = 3;

    fn reading(transport: Transport) -> ReadOptions {
        ReadOptions { transport, run: RUN, positions: true }
    }

    fn mark(number: u32) -> Mark {
        Mark { lane: 0, number, sent_ns: 9 }
    }

    fn text(number: u32) -> String {
        let mut out = Vec::new();
        mark(number).put(RUN, 64, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    fn message(number: u32) -> ReceiverEvent {
        ReceiverEvent::Message(mark(number))
    }

    /// Events of some pieces, the error, the position, and whether no partial input is kept.
    type Heard = (Vec<ReceiverEvent>, Option<StreamError>, Option<String>, bool);

    fn hear(transport: Transport, pieces: &[&[u8]]) -> Heard {
        let (mut stream, mut head, mut told) = (ReceiverStream::default(), ResponseHead::new(), Vec::new());
        let mut wrong = None;
        for piece in pieces {
            if let Err(error) = stream.feed(reading(transport), &mut head, &mut piece.to_vec(), &mut told) {
                wrong = Some(error);
                break;
            }
        }
        let at_rest = stream.partial.capacity() == 0;
        (told, wrong, stream.position().map(Cow::into_owned), at_rest)
    }

    /// Reads the bytes whole, byte by byte, and split at every position.
    fn every_way(transport: Transport, bytes: &[u8]) -> Heard {
        let whole = hear(transport, &[bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(hear(transport, &single), whole, "byte by byte: {}", bytes.escape_ascii());
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(hear(transport, &[first, second]), whole, "split at {at}: {}", bytes.escape_ascii());
        }
        whole
    }

    fn chunk(data: &str) -> String {
        format!("{:x}\r\n{data}\r\n", data.len())
    }

    #[test]
    fn an_event_stream_tells_its_events_however_it_is_framed() {
        let events = format!(
            ": hello\n\nid: a-1\n\nid: a-2\r\nevent: x\r\ndata: {}\r\n\r\n: tick\n\ndata: {}\ndata: more\nid: a-3\n\n\
             event: encke.gap\ndata: {{}}\n\n",
            text(0),
            text(1)
        );
        let kind = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n";
        for stream in [
            format!("{kind}\r\n{events}"),
            format!("{kind}Transfer-Encoding: chunked\r\n\r\n{}", chunk(&events)),
        ] {
            let (told, wrong, position, at_rest) = every_way(Transport::Sse, stream.as_bytes());
            assert_eq!(
                told,
                [ReceiverEvent::Answered, message(0), message(1), ReceiverEvent::Gap],
                "{stream}"
            );
            assert_eq!((wrong, position.as_deref(), at_rest), (None, Some("a-3"), true), "{stream}");
        }
    }

    #[test]
    fn an_event_that_is_cut_has_neither_told_anything_nor_moved_the_position() {
        let stream = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: a-1\n\nid: a-2\ndata: {}\n",
            text(0)
        );
        let (told, _, position, at_rest) = every_way(Transport::Sse, stream.as_bytes());
        assert_eq!((told, position.as_deref(), at_rest), (vec![ReceiverEvent::Answered], Some("a-1"), false));
    }

    #[test]
    fn a_stream_that_ends_at_once_never_was_one() {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        let put_off = format!("{head}Content-Length: 15\r\n\r\nretry: 10700\n\n\n");
        let (told, ..) = hear(Transport::Sse, &[put_off.as_bytes()]);
        assert_eq!(told, [ReceiverEvent::TurnedAway(Some(10_700))]);

        let ended = format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            chunk(&format!("data: {}\n\n", text(0)))
        );
        let (told, ..) = every_way(Transport::Sse, ended.as_bytes());
        assert_eq!(told, [ReceiverEvent::Answered, message(0), ReceiverEvent::Ended(None)]);
    }

    #[test]
    fn lines_of_json_are_messages_with_ids() {
        let body = format!(
            "\n{{\"id\":\"a-1\",\"data\":\"{}\"}}\n{{\"op\":\"gap\"}}\n{{\"id\":\"a-2\",\"data\":\"{}\"}}\n",
            text(0),
            text(1)
        );
        let stream = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", chunk(&body));
        let (told, wrong, position, at_rest) = every_way(Transport::Ndjson, stream.as_bytes());
        assert_eq!(told, [ReceiverEvent::Answered, message(0), ReceiverEvent::Gap, message(1)]);
        assert_eq!((wrong, position.as_deref(), at_rest), (None, Some("a-2"), true));
    }

    #[test]
    fn a_poll_is_told_when_its_answer_has_ended() {
        let body = text(0);
        let length = body.len();
        let answers = format!(
            "HTTP/1.1 204 No Content\r\nEncke-Id: a-1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\
             Encke-Id: a-2\r\nEncke-Gap: a-1 a-2\r\n\r\n{body}HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
             Last-Modified: Sun\r\nETag: 5\r\n\r\n{}0\r\n\r\n",
            chunk(&text(1))
        );
        let (told, wrong, position, at_rest) = every_way(Transport::Poll, answers.as_bytes());
        assert_eq!(
            told,
            [
                ReceiverEvent::Polled,
                ReceiverEvent::Gap,
                message(0),
                ReceiverEvent::Polled,
                message(1),
                ReceiverEvent::Polled
            ]
        );
        assert_eq!((wrong, position.as_deref(), at_rest), (None, Some("Sun\n5"), true));
    }

    #[test]
    fn a_websocket_tells_messages_pings_and_its_close() {
        let mut stream = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: \
            s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
            .to_vec();
        websocket::put_frame(&mut stream, Opcode::Text, text(0).as_bytes());
        websocket::put_frame(&mut stream, Opcode::Ping, b"hi");
        let halves = text(1);
        let (first, second) = halves.split_at(20);
        stream.extend_from_slice(&[0x01, first.len() as u8]);
        stream.extend_from_slice(first.as_bytes());
        websocket::put_frame(&mut stream, Opcode::Continuation, second.as_bytes());
        websocket::put_frame(&mut stream, Opcode::Text, b"{\"op\":\"gap\"}");
        let (told, wrong, _, at_rest) = every_way(Transport::Ws, &stream);
        let pong = ReceiverEvent::Pong(vec![0x8A, 0x82, 0, 0, 0, 0, b'h', b'i']);
        assert_eq!(told, [ReceiverEvent::Answered, message(0), pong, message(1), ReceiverEvent::Gap]);
        assert_eq!((wrong, at_rest), (None, true));

        websocket::put_close(&mut stream, GAP_CODE, "gap");
        let (told, ..) = every_way(Transport::Ws, &stream);
        assert_eq!(told[5..], [ReceiverEvent::Gap, ReceiverEvent::Ended(None)]);
    }

    #[test]
    fn what_is_no_subscription_is_told_as_what_it_is() {
        for (transport, answer, expected) in [
            (Transport::Sse, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", StreamError::Status(404)),
            (Transport::Sse, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", StreamError::NoStream),
            (
                Transport::Poll,
                "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
                StreamError::Status(403),
            ),
            (Transport::Ws, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", StreamError::Status(200)),
            (
                Transport::Ws,
                "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: no\r\n\r\n",
                StreamError::NoStream,
            ),
        ] {
            let (told, wrong, ..) = every_way(transport, answer.as_bytes());
            assert_eq!((told, wrong), (vec![], Some(expected)), "{answer}");
        }
        let answer = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
        let (told, ..) = every_way(Transport::Ndjson, answer.as_bytes());
        assert_eq!(told, [ReceiverEvent::TurnedAway(Some(7_000))]);
        assert!(matches!(hear(Transport::Sse, &[b"SSH-2.0-x\r\n"]).1, Some(StreamError::Http(_))));
    }

    #[test]
    fn a_stream_takes_what_its_subscriber_says() {
        assert_eq!(size_of::<ReceiverStream>(), 88);
    }
}
