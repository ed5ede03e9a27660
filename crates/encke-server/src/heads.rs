//! Response heads, in HTTP/1 and in HTTP/2; see `framing`.
//!
//! ```text
//! status, fields, length ─┬─ HTTP/1 ─► lines at the end of the output        (put_prepared: a copy of a block)
//!                         └─ HTTP/2 ─► Http2::put_head: the stream has it at once
//! ```
//! An HTTP/2 head adds an empty segment to the output: a send is due even without content.

use std::ops::Range;
use std::sync::Arc;

use encke_io::files::OpenFile;
use encke_io::{Segment, Token};
use encke_wire::date::DATE_BYTES;
use encke_wire::http1;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::core::Core;
use crate::date::DateCache;
use crate::framing::{ContentLength, FramingKind};
use crate::reply::{Body, Fields, Prepared, PreparedContent};

/// Content up to this size in bytes is copied after its head; larger content is a separate segment. A copy of 4 KiB costs about
/// 100 ns, a further slice in sendmsg(2) about the same.
const COPY_BYTES_MAX: usize = 4 * 1024;

impl Core {
    /// Begins the response to a request. `last`: the connection closes after it.
    #[inline]
    pub(crate) fn put_head(
        &mut self,
        token: Token,
        (framing, last): (FramingKind, bool),
        status: u16,
        fields: &Fields,
        content: ContentLength,
    ) {
        if framing == FramingKind::Http2 {
            return self.put_stream_head(token, status, fields, content, &EMPTY);
        }
        let out = self.out.tail(&mut self.buffers);
        put_text_head((framing, last), (status, fields, content), &self.date, out);
    }

    /// Writes an interim response (RFC 9110 §15.2). The caller has checked that the client accepts it.
    pub(crate) fn put_interim(&mut self, token: Token, framing: FramingKind, status: u16, fields: &Fields) {
        if framing == FramingKind::Http2 {
            let response = stream_head(status, None, fields, ContentLength::Absent, &EMPTY);
            self.http2.put_interim(token, response);
            self.segments.push(Segment::Bytes(Vec::new()));
            return;
        }
        let out = self.out.tail(&mut self.buffers);
        http1::put_status_line(out, status);
        out.extend_from_slice(fields.lines());
        out.extend_from_slice(b"\r\n");
    }

    /// Ends content without a length.
    pub(crate) fn finish(&mut self, token: Token, framing: FramingKind, trailers: &Fields) {
        if framing == FramingKind::Http2 {
            if !trailers.is_empty() {
                let mut fields = HeaderMap::new();
                append_fields(&mut fields, trailers);
                self.http2.put_trailers(token, fields);
            }
        } else {
            framing.put_end(trailers, self.out.tail(&mut self.buffers));
        }
    }

    /// The warm path: one copy of a block, whose date is then overwritten. `more` are fields of this response alone. Returns
    /// the length of the content in bytes.
    #[inline(always)]
    pub(crate) fn put_prepared(
        &mut self,
        token: Token,
        (framing, head_only, last): (FramingKind, bool, bool),
        prepared: &Prepared,
        more: &Fields,
    ) -> u64 {
        if framing == FramingKind::Http2 {
            self.put_prepared_on_stream(token, prepared, more, head_only);
        } else {
            let (more, persistence) = (more.lines(), framing.persistence(last));
            let out = self.out.tail(&mut self.buffers);
            let start = out.len();
            if more.is_empty() && persistence.is_empty() && !head_only {
                out.extend_from_slice(&prepared.block);
            } else {
                out.extend_from_slice(&prepared.block[..prepared.fields_end]);
                out.extend_from_slice(more);
                out.extend_from_slice(persistence);
                let end = if head_only { prepared.content_at } else { prepared.block.len() };
                out.extend_from_slice(&prepared.block[prepared.fields_end..end]);
            }
            let date = start + prepared.date_at;
            out[date..date + DATE_BYTES].copy_from_slice(self.date.bytes());
        }
        if head_only {
            return 0;
        }
        match &prepared.content {
            PreparedContent::Block => {}
            PreparedContent::Shared(bytes) => self.out_segment(Segment::Shared(Arc::clone(bytes), 0)),
            PreparedContent::File(file, range) => self.out_file(Arc::clone(file), range),
        }
        prepared.len()
    }

    /// Appends content of a known length, which needs no framing.
    pub(crate) fn put_body(&mut self, body: Body) {
        let out = self.out.tail(&mut self.buffers);
        match body {
            Body::Empty | Body::Open(_) | Body::Stream(_) => {}
            Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => out.extend_from_slice(&bytes),
            Body::Bytes(bytes) => self.out_segment(Segment::Bytes(bytes)),
            Body::Shared(bytes) => self.out_shared(bytes, 0),
            Body::File(file, range) => self.out_file(file, &range),
            Body::Segments(segments) => {
                for segment in segments {
                    if !segment.is_empty() {
                        self.out_segment(segment);
                    }
                }
            }
        }
    }

    /// Appends shared bytes, from the offset `start`.
    pub(crate) fn out_shared(&mut self, bytes: Arc<[u8]>, start: usize) {
        if bytes.len() - start <= COPY_BYTES_MAX {
            self.out.tail(&mut self.buffers).extend_from_slice(&bytes[start..]);
        } else {
            self.out_segment(Segment::Shared(bytes, start));
        }
    }

    fn out_file(&mut self, file: Arc<OpenFile>, range: &Range<u64>) {
        if range.start < range.end {
            self.out_segment(Segment::File { file, offset: range.start, len: range.end - range.start });
        }
    }

    /// Appends a segment to the output.
    pub(crate) fn out_segment(&mut self, segment: Segment) {
        self.out.seal(&mut self.segments);
        self.segments.push(segment);
    }

    #[inline(never)]
    fn put_prepared_on_stream(&mut self, token: Token, prepared: &Prepared, more: &Fields, head_only: bool) {
        let content = match prepared.status {
            304 => ContentLength::Absent,
            _ => ContentLength::Known(prepared.len()),
        };
        self.put_stream_head(token, prepared.status, prepared.fields(), content, more);
        if !head_only && matches!(prepared.content, PreparedContent::Block) {
            let out = self.out.tail(&mut self.buffers);
            out.extend_from_slice(&prepared.block[prepared.content_at..]);
        }
    }

    #[inline(never)]
    fn put_stream_head(
        &mut self,
        token: Token,
        status: u16,
        fields: &Fields,
        content: ContentLength,
        more: &Fields,
    ) {
        let response = stream_head(status, Some(&self.date), fields, content, more);
        self.http2.put_head(token, response, content);
        self.segments.push(Segment::Bytes(Vec::new()));
    }
}

/// Appends an HTTP/1 head.
#[inline]
fn put_text_head(
    (framing, last): (FramingKind, bool),
    (status, fields, content): (u16, &Fields, ContentLength),
    date: &DateCache,
    out: &mut Vec<u8>,
) {
    http1::put_status_line(out, status);
    if content == ContentLength::Upgrade {
        out.extend_from_slice(fields.lines());
        out.extend_from_slice(b"\r\n");
        return;
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date.bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(fields.lines());
    match content {
        ContentLength::Known(len) => http1::put_field_number(out, "Content-Length", len),
        ContentLength::Open if framing == FramingKind::Chunked => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        ContentLength::Open | ContentLength::Absent | ContentLength::Upgrade => {}
    }
    out.extend_from_slice(framing.persistence(last));
    out.extend_from_slice(b"\r\n");
}

/// Builds an HTTP/2 head. The 101 of an upgrade is the 200 of a stream (RFC 8441 §5).
fn stream_head(
    status: u16,
    date: Option<&DateCache>,
    fields: &Fields,
    content: ContentLength,
    more: &Fields,
) -> Response<()> {
    let mut headers = HeaderMap::with_capacity(8);
    if let Some(date) = date.filter(|_| content != ContentLength::Upgrade) {
        headers.append(header::DATE, date.header_value());
    }
    append_fields(&mut headers, fields);
    if let ContentLength::Known(len) = content {
        // `HeaderValue::from(len)` allocates twice.
        let value = HeaderValue::from_bytes(http1::decimal(len, &mut [0; 20]));
        headers.append(header::CONTENT_LENGTH, value.expect("digits"));
    }
    append_fields(&mut headers, more);
    let mut response = Response::new(());
    let status = if content == ContentLength::Upgrade { 200 } else { status };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

static EMPTY: Fields = Fields::new();

/// Adds fields to an HTTP/2 head or to HTTP/2 trailers.
fn append_fields(headers: &mut HeaderMap, fields: &Fields) {
    for (name, value) in fields.iter() {
        let field = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        let (Ok(name), Ok(value)) = field else {
            debug_assert!(false, "`Fields` holds well-formed fields");
            continue;
        };
        if !concerns_connection(&name) {
            headers.append(name, value);
        }
    }
}

/// Whether a field belongs to an HTTP/1 connection: streams must not have it (RFC 9113 §8.2.2, RFC 8441 §5).
fn concerns_connection(name: &HeaderName) -> bool {
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::SEC_WEBSOCKET_ACCEPT]
        .contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in pairs {
            fields.push(name, value.as_bytes()).expect("well-formed");
        }
        fields
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn a_stream_has_no_field_of_the_connection() {
        let own = fields(&[("ETag", "\"x\""), ("Connection", "close"), ("Upgrade", "h3")]);
        let more = fields(&[("Transfer-Encoding", "chunked"), ("Vary", "Accept")]);
        let date = DateCache::new(0);
        let head = stream_head(206, Some(&date), &own, ContentLength::Known(5), &more);
        assert_eq!(head.status(), 206);
        assert_eq!(names(head.headers()), ["date", "etag", "content-length", "vary"]);
        assert_eq!(head.headers()["content-length"], "5");
        assert_eq!(head.headers()["date"].as_bytes(), date.bytes());
    }

    #[test]
    fn an_upgrade_is_a_200_on_a_stream() {
        let own = fields(&[
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Accept", "x"),
            ("Sec-WebSocket-Protocol", "encke.v1"),
        ]);
        let head = stream_head(101, Some(&DateCache::new(0)), &own, ContentLength::Upgrade, &EMPTY);
        assert_eq!(head.status(), 200);
        assert_eq!(names(head.headers()), ["sec-websocket-protocol"]);
    }

    #[test]
    fn a_head_of_http1_states_length_and_persistence() {
        use ContentLength::{Absent, Known, Open, Upgrade};
        use FramingKind::{Chunked, Close};
        for (framing, content, last, expected) in [
            (Chunked, Known(5), false, "Date: *\r\nA: b\r\nContent-Length: 5\r\n"),
            (Chunked, Known(5), true, "Date: *\r\nA: b\r\nContent-Length: 5\r\nConnection: close\r\n"),
            (Close, Known(5), false, "Date: *\r\nA: b\r\nContent-Length: 5\r\nConnection: keep-alive\r\n"),
            (Chunked, Open, false, "Date: *\r\nA: b\r\nTransfer-Encoding: chunked\r\n"),
            (Close, Open, true, "Date: *\r\nA: b\r\nConnection: close\r\n"),
            (Chunked, Absent, false, "Date: *\r\nA: b\r\n"),
            (Chunked, Upgrade, true, "A: b\r\n"),
        ] {
            let (fields, date) = (fields(&[("A", "b")]), DateCache::new(0));
            let mut out = Vec::new();
            put_text_head((framing, last), (200, &fields, content), &date, &mut out);
            let text = String::from_utf8(out).expect("ASCII");
            let date = std::str::from_utf8(date.bytes()).expect("ASCII");
            let case = format!("{framing:?}, {content:?}, last: {last}");
            assert_eq!(text.replace(date, "*"), format!("HTTP/1.1 200 OK\r\n{expected}\r\n"), "{case}");
        }
    }
}
