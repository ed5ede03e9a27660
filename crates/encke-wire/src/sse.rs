//! Server-sent events (WHATWG HTML §9.2, `text/event-stream`): encoding events, and parsing them for Encke's own clients.
//!
//! ```text
//!   id: 7f3a-12          a position
//!   event: price         a name; `message` without one
//!   data: first line     the payload, a line each
//!   data: second line
//!                        the empty line sends it off
//! ```
//!
//! **Payloads.** EventSource joins the lines of an event with LF, and treats CR, LF and CR LF alike as the end of a line. A
//! text without CR survives that. A text with CR and bytes that are not UTF-8 do not. They are sent as a `data:TYPE;base64,`
//! URL, which `fetch` in a browser opens, and whose type is that of the published payload. ([`Data::of`] decides, so no payload
//! can be sent in a form that loses bytes.) A text that itself begins with `data:` is sent unchanged. Clients that must tell
//! the two apart use envelopes.
//!
//! Out of scope: the server decides when to send comments, positions and retry times.

use std::fmt;

use crate::base64;
use crate::field;
use crate::http1::put_number;

/// A text that fits in one line of a stream: an id, a name or a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a>(&'a str);

impl<'a> Line<'a> {
    /// Returns `None` if `text` contains CR or LF, which would end the line, or NUL, for which browsers drop an id.
    #[must_use]
    pub fn of(text: &'a str) -> Option<Self> {
        (!text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'))).then_some(Self(text))
    }
}

/// A payload in a form that preserves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    bytes: &'a [u8],
    form: DataForm<'a>,
}

/// The form in which a payload is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataForm<'a> {
    /// Unchanged: UTF-8 without CR.
    Lines,
    /// A `data:` URL.
    Url { content_type: &'a str, is_utf8: bool },
}

impl<'a> Data<'a> {
    /// Chooses the form for `bytes`. The caller knows whether they are UTF-8. Only a URL includes `content_type`.
    #[must_use]
    pub fn of(bytes: &'a [u8], is_utf8: bool, content_type: &'a str) -> Self {
        debug_assert_eq!(is_utf8, std::str::from_utf8(bytes).is_ok());
        let survives = is_utf8 && !bytes.contains(&b'\r');
        Self { bytes, form: if survives { DataForm::Lines } else { DataForm::Url { content_type, is_utf8 } } }
    }

    /// Whether EventSource delivers the payload itself, instead of a URL.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.form, DataForm::Lines)
    }
}

/// Appends a whole event. Without `id` the client's position stays unchanged. Without `event` the name is `message`.
pub fn put_event(out: &mut Vec<u8>, id: Option<Line<'_>>, event: Option<Line<'_>>, data: Data<'_>) {
    // An estimate that is exact for one line: names, colons and spaces, the payload.
    out.reserve(
        32 + id.map_or(0, |id| id.0.len()) + event.map_or(0, |event| event.0.len()) + data.bytes.len(),
    );
    if let Some(id) = id {
        put_line(out, b"id: ", id.0.as_bytes());
    }
    if let Some(event) = event {
        put_line(out, b"event: ", event.0.as_bytes());
    }
    match data.form {
        DataForm::Lines => {
            for line in data.bytes.split(|&byte| byte == b'\n') {
                put_line(out, b"data: ", line);
            }
        }
        DataForm::Url { content_type, is_utf8 } => {
            out.extend_from_slice(b"data: ");
            put_url(out, content_type, is_utf8, data.bytes);
            out.push(b'\n');
        }
    }
    out.push(b'\n');
}

/// Appends a position without an event. EventSource sends it as Last-Event-ID when it reconnects, and delivers nothing to the
/// page.
pub fn put_position(out: &mut Vec<u8>, id: Line<'_>) {
    put_line(out, b"id: ", id.0.as_bytes());
    out.push(b'\n');
}

/// Appends a comment, which pages never see: a heartbeat, or a first byte that makes proxies forward the stream.
pub fn put_comment(out: &mut Vec<u8>, text: Line<'_>) {
    put_line(out, b": ", text.0.as_bytes());
    out.push(b'\n');
}

/// Appends the reconnection delay in milliseconds.
pub fn put_retry(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    put_number(out, ms);
    out.extend_from_slice(b"\n\n");
}

/// Appends `bytes` as a `data:` URL. Keeps the parts of `content_type` that are valid in a URL. An invalid media type becomes
/// `application/octet-stream`.
pub fn put_data_url(out: &mut Vec<u8>, content_type: &str, bytes: &[u8]) {
    put_url(out, content_type, false, bytes);
}

fn put_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn put_url(out: &mut Vec<u8>, content_type: &str, is_utf8: bool, bytes: &[u8]) {
    out.extend_from_slice(b"data:");
    put_media_type(out, content_type.as_bytes(), is_utf8);
    out.extend_from_slice(b";base64,");
    base64::put(out, bytes);
}

/// Appends a media type in the form for a `data:` URL: tokens without white space. UTF-8 text gets a charset, because the
/// default would be US-ASCII.
fn put_media_type(out: &mut Vec<u8>, content_type: &[u8], is_utf8: bool) {
    // A `#` would end the URL.
    let fits = |part: &[u8]| field::is_token(part) && !part.contains(&b'#');
    let mut parameters = field::parameters(content_type);
    let essence = parameters.next().unwrap_or_default();
    let mut halves = essence.splitn(2, |&byte| byte == b'/');
    if !halves.next().is_some_and(fits) || !halves.next().is_some_and(fits) {
        out.extend_from_slice(b"application/octet-stream");
        return;
    }
    out.extend_from_slice(essence);
    let mut has_charset = false;
    for parameter in parameters {
        let Some(equals) = parameter.iter().position(|&byte| byte == b'=') else { continue };
        let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
        if fits(name) && fits(value) {
            has_charset |= name.eq_ignore_ascii_case(b"charset");
            out.push(b';');
            out.extend_from_slice(parameter);
        }
    }
    let is_text = essence.get(..5).is_some_and(|main| main.eq_ignore_ascii_case(b"text/"));
    if is_text && is_utf8 && !has_charset {
        out.extend_from_slice(b";charset=utf-8");
    }
}

/// Parses an event stream as EventSource does, in pieces of any size.
///
/// ```text
///   feed ─► a line is whole ─┬─ field: kept for the event ─► next line       (retry: told at once)
///              ▲             ├─ comment: dropped
///              └── CR, LF,   └─ empty: the event is lent until the next feed
///                  CR LF
/// ```
#[derive(Debug, Default)]
pub struct Parser {
    /// The start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Data of the current event: its lines, each followed by LF.
    data: String,
    event: String,
    /// The last id received, which stays valid until the next id.
    id: String,
    /// Whether the current event has an id.
    has_id: bool,
    /// Maximum bytes of an event's data, and of a line.
    bytes_max: usize,
    /// Whether the first line was read. A byte order mark may precede it.
    begun: bool,
    /// Whether the last byte was CR, so that a following LF is part of the same line end.
    after_cr: bool,
    /// Whether `data` and `event` are lent.
    lent: bool,
}

/// The result of one call of [`Parser::feed`].
#[derive(Debug, PartialEq, Eq)]
pub struct SseStep<'a> {
    /// The parsed event, if any.
    pub event: Option<SseEvent<'a>>,
    /// Number of input bytes consumed.
    pub used: usize,
}

/// An event from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseEvent<'a> {
    /// An event with data.
    Message {
        /// The position after this event: the last id received, empty if there was none.
        id: &'a str,
        /// The event's name, `message` by default.
        event: &'a str,
        /// The data lines, joined with LF.
        data: &'a str,
    },
    /// An id without data.
    Position {
        /// The new position.
        id: &'a str,
    },
    /// A new reconnection delay.
    Retry {
        /// The delay in milliseconds.
        ms: u64,
    },
}

/// The size of an event or a line exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl Parser {
    /// Creates a parser at the first byte of a body. `bytes_max` limits the data of an event, and any line.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// The current position for Last-Event-ID: the last id received, empty if there was none.
    #[must_use]
    pub fn last_id(&self) -> &str {
        &self.id
    }

    /// Parses `input` up to the end of the first event. The caller advances by `used` and calls again until its input is used
    /// up. Each call consumes at least one byte. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// ```
    /// use encke_wire::sse::{Parser, SseEvent};
    ///
    /// let mut parser = Parser::new(1024);
    /// let step = parser.feed(b"id: 7\ndata: hello\n\ndata: next").expect("a small event");
    /// assert_eq!(step.event, Some(SseEvent::Message { id: "7", event: "message", data: "hello" }));
    /// assert_eq!(parser.last_id(), "7");
    /// ```
    ///
    /// # Errors
    /// [`TooLarge`]. The parser must not be used afterwards.
    pub fn feed(&mut self, input: &[u8]) -> Result<SseStep<'_>, TooLarge> {
        if std::mem::take(&mut self.lent) {
            self.data.clear();
            self.event.clear();
        }
        let mut used = 0;
        let found = loop {
            let rest = &input[used..];
            if self.after_cr && !rest.is_empty() {
                self.after_cr = false;
                if rest.first() == Some(&b'\n') {
                    used += 1;
                    continue;
                }
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.keep(rest)?;
                used = input.len();
                break LineResult::Nothing;
            };
            used += end + 1;
            self.after_cr = rest[end] == b'\r';
            match self.line_and(&rest[..end])? {
                LineResult::Nothing => {}
                found => break found,
            }
        };
        Ok(SseStep { event: self.lend(found), used })
    }

    /// Buffers the start of a line.
    fn keep(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        if piece.len() > self.bytes_max - self.line.len() {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    /// Handles the line that ends with `piece`.
    fn line_and(&mut self, piece: &[u8]) -> Result<LineResult, TooLarge> {
        if self.line.is_empty() && piece.len() <= self.bytes_max {
            return self.whole_line(piece);
        }
        self.keep(piece)?;
        let mut line = std::mem::take(&mut self.line);
        let found = self.whole_line(&line);
        line.clear();
        self.line = line;
        found
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<LineResult, TooLarge> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(line);
        if line.is_empty() {
            return Ok(self.end());
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                let value = String::from_utf8_lossy(value);
                if value.len() > self.bytes_max.saturating_sub(self.data.len()) {
                    return Err(TooLarge);
                }
                self.data.push_str(&value);
                self.data.push('\n');
            }
            b"event" => String::from_utf8_lossy(value).as_ref().clone_into(&mut self.event),
            b"id" if !value.contains(&b'\0') => {
                String::from_utf8_lossy(value).as_ref().clone_into(&mut self.id);
                self.has_id = true;
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let ms = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                return Ok(ms.map_or(LineResult::Nothing, LineResult::Retry));
            }
            // Comments have an empty name. Unknown names are ignored.
            _ => {}
        }
        Ok(LineResult::Nothing)
    }

    /// Handles the empty line that ends an event.
    fn end(&mut self) -> LineResult {
        let has_id = std::mem::take(&mut self.has_id);
        // The last line feed is not part of the data. An event without data is ignored.
        self.lent = self.data.pop().is_some();
        if self.lent {
            return LineResult::Message;
        }
        self.event.clear();
        if has_id { LineResult::Position } else { LineResult::Nothing }
    }

    fn lend(&self, found: LineResult) -> Option<SseEvent<'_>> {
        Some(match found {
            LineResult::Nothing => return None,
            LineResult::Retry(ms) => SseEvent::Retry { ms },
            LineResult::Position => SseEvent::Position { id: &self.id },
            LineResult::Message => {
                let event = if self.event.is_empty() { "message" } else { &self.event };
                SseEvent::Message { id: &self.id, event, data: &self.data }
            }
        })
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the server sent an event that is larger than the limit")
    }
}

impl std::error::Error for TooLarge {}

/// The result of a line.
enum LineResult {
    Nothing,
    Message,
    Position,
    Retry(u64),
}

/// U+FEFF at the start of a stream is not part of its contents.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::{Random, splits};
    use proptest::prelude::*;

    /// An owned event: id, name, data.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Told {
        Message(String, String, String),
        Position(String),
        Retry(u64),
    }

    fn message(id: &str, event: &str, data: &str) -> Told {
        Told::Message(id.into(), event.into(), data.into())
    }

    fn parse_pieces(pieces: &[&[u8]], bytes_max: usize) -> Result<Vec<Told>, TooLarge> {
        let (mut parser, mut told) = (Parser::new(bytes_max), Vec::new());
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                let SseStep { event, used } = parser.feed(&piece[at..])?;
                assert!(used > 0, "each call uses some of its input");
                at += used;
                told.extend(event.map(|event| match event {
                    SseEvent::Message { id, event, data } => message(id, event, data),
                    SseEvent::Position { id } => Told::Position(id.into()),
                    SseEvent::Retry { ms } => Told::Retry(ms),
                }));
            }
        }
        Ok(told)
    }

    /// Parses the stream in every possible split, with equal results.
    fn parse(stream: &[u8]) -> Vec<Told> {
        let whole = parse_pieces(&[stream], 1_000_000).expect("small enough");
        for pieces in splits(stream) {
            assert_eq!(parse_pieces(&pieces, 1_000_000).as_ref(), Ok(&whole), "{pieces:?}");
        }
        whole
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("a stream is UTF-8")
    }

    fn line(text: &str) -> Option<Line<'_>> {
        Some(Line::of(text).expect("one line"))
    }

    fn event(payload: &[u8], content_type: &str) -> String {
        let data = Data::of(payload, std::str::from_utf8(payload).is_ok(), content_type);
        written(|out| put_event(out, None, None, data))
    }

    #[test]
    fn events_are_written_line_by_line() {
        let data = Data::of(b"one\n\n two", true, "text/plain");
        let stream = written(|out| put_event(out, line("7f-1"), line("price"), data));
        assert_eq!(stream, "id: 7f-1\nevent: price\ndata: one\ndata: \ndata:  two\n\n");
        assert_eq!(parse(stream.as_bytes()), [message("7f-1", "price", "one\n\n two")]);
    }

    #[test]
    fn an_empty_payload_is_an_event_too() {
        assert_eq!(event(b"", "text/plain"), "data: \n\n");
        assert_eq!(parse(b"data: \n\n"), [message("", "message", "")]);
    }

    #[test]
    fn what_would_not_survive_is_sent_as_a_url() {
        assert_eq!(event(b"\xff\x00", "image/png"), "data: data:image/png;base64,/wA=\n\n");
        assert_eq!(event(b"a\r\nb", "text/plain"), "data: data:text/plain;charset=utf-8;base64,YQ0KYg==\n\n");
        assert_eq!(event(b"\r", "application/json"), "data: data:application/json;base64,DQ==\n\n");
        assert!(Data::of(b"a\nb", true, "").is_plain());
        assert!(!Data::of(b"a\rb", true, "").is_plain());
        assert!(!Data::of(b"a\xffb", false, "").is_plain());
    }

    #[test]
    fn the_type_of_a_url_is_made_of_tokens() {
        for (content_type, expected) in [
            ("text/html; charset=UTF-8", "text/html;charset=UTF-8"),
            ("Text/Html ;a=b ; c=\"d,e\"", "Text/Html;a=b"),
            ("text/plain", "text/plain"),
            ("", "application/octet-stream"),
            ("text", "application/octet-stream"),
            ("text/", "application/octet-stream"),
            ("te xt/plain", "application/octet-stream"),
            ("text/a#b", "application/octet-stream"),
            ("a/b,c", "application/octet-stream"),
            ("a/b; flag", "a/b"),
            ("a/b; x=\u{e4}", "a/b"),
        ] {
            let url = written(|out| put_data_url(out, content_type, b"foo"));
            assert_eq!(url, format!("data:{expected};base64,Zm9v"), "{content_type}");
        }
        let url = |content_type| written(|out| put_url(out, content_type, true, b""));
        assert_eq!(url("text/csv"), "data:text/csv;charset=utf-8;base64,");
        assert_eq!(url("TEXT/csv; Charset=utf8"), "data:TEXT/csv;Charset=utf8;base64,");
    }

    #[test]
    fn what_ends_a_line_cannot_stand_in_one() {
        assert_eq!(Line::of("a\nb"), None);
        assert_eq!(Line::of("a\rb"), None);
        assert_eq!(Line::of("a\0b"), None);
        assert!(Line::of("").is_some());
        assert!(Line::of("ä: b").is_some());
    }

    #[test]
    fn positions_comments_and_retries_are_no_events() {
        let stream = written(|out| {
            put_position(out, Line::of("7f-1").expect("one line"));
            put_comment(out, Line::of("here").expect("one line"));
            put_retry(out, 2_000);
            put_event(out, None, None, Data::of(b"a", true, ""));
        });
        assert_eq!(stream, "id: 7f-1\n\n: here\n\nretry: 2000\n\ndata: a\n\n");
        let expected = [Told::Position("7f-1".into()), Told::Retry(2_000), message("7f-1", "message", "a")];
        assert_eq!(parse(stream.as_bytes()), expected);
    }

    #[test]
    fn the_examples_of_the_standard_are_read_as_it_says() {
        let stream =
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
        let expected = [
            message("1", "message", "first event"),
            message("", "message", "second event"),
            message("", "message", " third event"),
        ];
        assert_eq!(parse(stream), expected);
        let expected = [message("", "message", ""), message("", "message", "\n")];
        assert_eq!(parse(b"data\n\ndata\ndata\n\ndata:"), expected, "the last block is not ended");
        assert_eq!(parse(b"data:test\n\ndata: test\n\n"), vec![message("", "message", "test"); 2]);
        let expected = [message("", "message", "YHOO\n+2\n10")];
        assert_eq!(parse(b"data: YHOO\ndata: +2\ndata: 10\n\n"), expected);
        assert_eq!(
            parse(b"event: add\ndata: 7\n\ndata: 8\n\n"),
            [message("", "add", "7"), message("", "message", "8")]
        );
    }

    #[test]
    fn lines_end_in_cr_lf_or_both() {
        let expected = [message("", "a", "x\ny"), message("", "message", "z")];
        for end in ["\n", "\r", "\r\n"] {
            let stream = ["event: a", "data: x", "data: y", "", "data: z", "", ""].join(end);
            assert_eq!(parse(stream.as_bytes()), expected, "{end:?}");
        }
        assert_eq!(parse(b"data: a\r\n\n"), [message("", "message", "a")], "CR LF, LF: two ends");
    }

    #[test]
    fn what_the_standard_ignores_is_ignored() {
        assert_eq!(parse(b"\xef\xbb\xbfdata: a\n\n"), [message("", "message", "a")], "a byte order mark");
        assert_eq!(parse(b"data: a\n\n\xef\xbb\xbfdata: b\n\n").len(), 1, "but only the first");
        assert_eq!(parse(b"Data: a\nfoo: b\nretry: 1s\nretry: 99999999999999999999\nretry:\n\n"), Vec::new());
        assert_eq!(parse(b"id: 1\0\ndata: a\n\n"), [message("", "message", "a")], "an id with NUL");
        assert_eq!(parse(b"event: x\n\ndata: a\n\n"), [message("", "message", "a")], "a name without data");
        assert_eq!(parse(b"data: a\xffb\n\n"), [message("", "message", "a\u{fffd}b")]);
    }

    #[test]
    fn an_event_or_a_line_beyond_the_limit_is_an_error_before_it_is_kept() {
        let limit = |stream: &[u8]| parse_pieces(&[stream], 16);
        assert!(limit(b"data: 0123456789\n\n").is_ok(), "16 bytes");
        assert_eq!(limit(b"data: 0123456789a\n\n"), Err(TooLarge));
        assert_eq!(limit(b"data: 0123456789a"), Err(TooLarge));
        assert_eq!(limit(b"data: 012345\ndata: 0123456789\n\n"), Err(TooLarge));
        assert_eq!(limit(b": no end in sight"), Err(TooLarge));
        let bytes: Vec<&[u8]> = b"data: 0123456789a".chunks(1).collect();
        assert_eq!(parse_pieces(&bytes, 16), Err(TooLarge));
    }

    #[test]
    fn any_bytes_are_read_the_same_way_in_any_pieces() {
        const SEED: u64 = 0x0073_7365;
        const PARTS: &[&[u8]] = &[
            b"data",
            b"id",
            b"event",
            b"retry",
            b":",
            b" ",
            b"\n",
            b"\n",
            b"\r",
            b"\r\n",
            b"7",
            b"\xef\xbb\xbf",
            b"\xff",
            b"\0",
            "ä".as_bytes(),
            b"x",
        ];
        let mut random = Random::new(SEED);
        for _ in 0..400 {
            let stream: Vec<u8> =
                (0..random.below(40)).flat_map(|_| PARTS[random.below(PARTS.len())].to_vec()).collect();
            parse(&stream);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            events in proptest::collection::vec((any::<Option<String>>(), any::<Option<String>>(), "(\\PC|[\n\r\t\0 :])*"), 0..5)
        ) {
            let (mut stream, mut expected, mut position) = (Vec::new(), Vec::new(), String::new());
            for (id, name, data) in &events {
                let id = id.as_deref().and_then(Line::of);
                let name = name.as_deref().and_then(Line::of);
                let payload = Data::of(data.as_bytes(), true, "text/plain");
                put_event(&mut stream, id, name, payload);
                if let Some(id) = id {
                    id.0.clone_into(&mut position);
                }
                let name = name.map(|name| name.0).filter(|name| !name.is_empty()).unwrap_or("message");
                let data = if payload.is_plain() {
                    data.clone()
                } else {
                    written(|out| put_url(out, "text/plain", true, data.as_bytes()))
                };
                expected.push(message(&position, name, &data));
            }
            prop_assert_eq!(parse(&stream), expected);
        }

        #[test]
        fn a_url_holds_every_byte(bytes: Vec<u8>) {
            let url = written(|out| put_data_url(out, "a/b", &bytes));
            let text = url.strip_prefix("data:a/b;base64,").expect("the head of the URL");
            prop_assert_eq!(base64::decode(text.as_bytes()), Some(bytes));
        }
    }
}
