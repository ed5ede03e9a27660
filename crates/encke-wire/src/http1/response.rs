//! The head of a response (RFC 9112 §4–6): the client's side, for the load generator and the tests.
//!
//! Shares the parser of field lines with the request head. It is as strict about lines and framing, and stores only positions
//! in the caller's buffer.

use crate::field::{self, Known};
use crate::http1::Refusal;
use crate::http1::framing::{chunked_only, content_length};
use crate::http1::head::{Progress, Version};
use crate::http1::lines::{FieldTally, LineStep, Lines, Values};
use crate::limits::{HEAD_BYTES_MAX, HeadLimits};
use crate::method::Method;
use crate::scan::{self, Class, ScanJob, Scanner};
use crate::status;

/// The head of one response: positions in the buffer that was fed. Reused for every response.
///
/// ```text
///   reset ──► StatusLine ──► Fields ──► Done        any rule broken ──► Refused
/// ```
pub struct ResponseHead {
    phase: ResponseHeadPhase,
    version: Version,
    status: u16,
    at: u16,
    close: bool,
    keep_alive: bool,
    announced: Announced,
    pub(super) lines: Lines,
}

/// The end of a response's body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body.
    None,
    /// Exactly this number of bytes.
    Length(u64),
    /// Up to the last chunk.
    Chunked,
    /// Up to the end of the connection. An aborted connection looks the same.
    Close,
}

impl ResponseHead {
    /// Creates a head that has not been fed.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: ResponseHeadPhase::StatusLine,
            version: Version::Http11,
            status: 0,
            at: 0,
            close: false,
            keep_alive: false,
            announced: Announced::Nothing,
            lines: Lines::new(),
        }
    }

    /// Clears the head for the next response.
    pub const fn reset(&mut self) {
        self.phase = ResponseHeadPhase::StatusLine;
        self.at = 0;
        (self.close, self.keep_alive) = (false, false);
        self.announced = Announced::Nothing;
        self.lines.reset();
    }

    /// Parses the bytes received so far, by the same rules as [`crate::http1::Head::feed`].
    pub fn feed(&mut self, buf: &[u8], limits: &HeadLimits) -> Progress {
        match self.phase {
            ResponseHeadPhase::StatusLine | ResponseHeadPhase::Fields => {}
            ResponseHeadPhase::Done => return Progress::Done { head_bytes: usize::from(self.at) },
            ResponseHeadPhase::Refused(refusal) => return Progress::Refused(refusal),
        }
        let head_bytes_max = limits.head_bytes.min(HEAD_BYTES_MAX) as usize;
        let window = &buf[..buf.len().min(head_bytes_max)];
        let refusal = match scan::run(ResponseHeadFeed { head: self, buf: window, limits }) {
            Ok(true) => {
                self.phase = ResponseHeadPhase::Done;
                return Progress::Done { head_bytes: usize::from(self.at) };
            }
            Ok(false) if window.len() < head_bytes_max => return Progress::Partial,
            Ok(false) => Refusal::HeadTooLarge,
            Err(refusal) => refusal,
        };
        self.phase = ResponseHeadPhase::Refused(refusal);
        Progress::Refused(refusal)
    }

    /// The status, between 100 and 999.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The end of the body, for a response to a request with `method`.
    #[must_use]
    pub const fn framing(&self, method: Method) -> ResponseFraming {
        if matches!(method, Method::Head) || status::has_no_content(self.status) {
            return ResponseFraming::None;
        }
        match (method, self.status, self.announced) {
            (Method::Connect, 200..=299, _) => ResponseFraming::None,
            (_, _, Announced::Chunked) => ResponseFraming::Chunked,
            (_, _, Announced::Length(bytes)) => ResponseFraming::Length(bytes),
            (_, _, Announced::Nothing) => ResponseFraming::Close,
        }
    }

    /// Whether the head announces content, also where the response has none.
    #[must_use]
    pub const fn announces_content(&self) -> bool {
        !matches!(self.announced, Announced::Nothing | Announced::Length(0))
    }

    /// Whether the server keeps the connection open after this response, according to its head. A body that ends with the
    /// connection ([`ResponseFraming::Close`]) rules this out in any case.
    #[must_use]
    pub const fn keep_alive(&self) -> bool {
        match self.version {
            Version::Http11 | Version::Http2 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        }
    }

    /// The first value of a known field.
    #[must_use]
    pub fn known<'a>(&self, buf: &'a [u8], known: Known) -> Option<&'a [u8]> {
        self.lines.known(buf, known)
    }

    /// All values of a known field, in order.
    #[must_use]
    pub fn all<'a>(&'a self, buf: &'a [u8], known: Known) -> Values<'a> {
        self.lines.all(buf, known)
    }

    /// The first value of the field `name` (case-insensitive).
    #[must_use]
    pub fn field<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.lines.field(buf, name)
    }

    /// All fields as name and value, in order of arrival.
    pub fn fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.lines.fields(buf)
    }

    /// Returns false if more bytes are needed.
    #[inline(always)]
    fn advance<S: Scanner>(&mut self, scanner: S, buf: &[u8], limits: &HeadLimits) -> Result<bool, Refusal> {
        if self.phase == ResponseHeadPhase::StatusLine {
            let Some(next) = self.status_line(scanner, buf)? else { return Ok(false) };
            self.at = next as u16;
            self.phase = ResponseHeadPhase::Fields;
        }
        let mut tally = self.lines.tally();
        let is_whole = self.fields_from(&mut tally, scanner, buf, limits);
        self.lines.keep(tally);
        is_whole
    }

    /// Parses field lines to the first incomplete line or the end of the head, and updates `tally`.
    #[inline(always)]
    fn fields_from<S: Scanner>(
        &mut self,
        tally: &mut FieldTally,
        scanner: S,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Result<bool, Refusal> {
        loop {
            match self.lines.step(tally, scanner, buf, usize::from(self.at), limits.fields)? {
                LineStep::Partial => return Ok(false),
                LineStep::Field { known, value: (start, end), next } => {
                    self.decide(known, &buf[start..end])?;
                    self.at = next as u16;
                }
                LineStep::End { next } => {
                    self.at = next as u16;
                    return Ok(true);
                }
            }
        }
    }

    /// Parses `HTTP/1.x SP 3DIGIT SP [reason] CRLF`. Some servers omit the second space.
    #[inline(always)]
    fn status_line<S: Scanner>(&mut self, scanner: S, buf: &[u8]) -> Result<Option<usize>, Refusal> {
        for (at, (&byte, &pattern)) in buf.iter().zip(b"HTTP/1.0 000").enumerate() {
            match pattern {
                b'0' if byte.is_ascii_digit() => {}
                b'1' if matches!(byte, b'2'..=b'9') => return Err(Refusal::UnsupportedVersion),
                pattern if pattern == byte => {}
                _ if at < 8 => return Err(Refusal::InvalidVersion),
                _ => return Err(Refusal::InvalidStatus),
            }
        }
        let Some(line) = buf.first_chunk::<12>() else { return Ok(None) };
        self.version = if line[7] == b'0' { Version::Http10 } else { Version::Http11 };
        let digit = |at: usize| u16::from(line[at] - b'0');
        self.status = digit(9) * 100 + digit(10) * 10 + digit(11);
        if self.status < 100 {
            return Err(Refusal::InvalidStatus);
        }
        let end = match buf.get(12) {
            None => return Ok(None),
            Some(b' ') => scanner.skip(Class::Text, buf, 13),
            Some(_) => 12,
        };
        match (buf.get(end), buf.get(end + 1)) {
            (None, _) | (Some(b'\r'), None) => Ok(None),
            (Some(b'\r'), Some(b'\n')) => Ok(Some(end + 2)),
            (Some(b'\r'), Some(_)) => Err(Refusal::BareCr),
            (Some(b'\n'), _) => Err(Refusal::BareLf),
            _ => Err(Refusal::InvalidStatus),
        }
    }

    /// Handles a field that determines how the response is read.
    fn decide(&mut self, known: Option<Known>, value: &[u8]) -> Result<(), Refusal> {
        match (known, self.announced) {
            (Some(Known::ContentLength), Announced::Nothing) => {
                self.announced = Announced::Length(content_length(value)?);
            }
            (Some(Known::ContentLength), Announced::Length(_)) => return Err(Refusal::LengthRepeated),
            (Some(Known::ContentLength), Announced::Chunked)
            | (Some(Known::TransferEncoding), Announced::Length(_)) => return Err(Refusal::LengthWithCoding),
            (Some(Known::TransferEncoding), Announced::Chunked) => return Err(Refusal::CodingRepeated),
            (Some(Known::TransferEncoding), Announced::Nothing) => {
                if self.version == Version::Http10 {
                    return Err(Refusal::CodingInHttp10);
                }
                chunked_only(value)?;
                self.announced = Announced::Chunked;
            }
            (Some(Known::Connection), _) => {
                for option in field::list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for ResponseHead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ResponseHead")
            .field("phase", &self.phase)
            .field("version", &self.version)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseHeadPhase {
    StatusLine,
    Fields,
    Done,
    Refused(Refusal),
}

/// The end of the body as announced by the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    Nothing,
    Length(u64),
    Chunked,
}

/// One call of [`ResponseHead::feed`], compiled for each instruction set.
struct ResponseHeadFeed<'a> {
    head: &'a mut ResponseHead,
    buf: &'a [u8],
    limits: &'a HeadLimits,
}

impl ScanJob for ResponseHeadFeed<'_> {
    type Output = Result<bool, Refusal>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        self.head.advance(scanner, self.buf, self.limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::splits;

    /// Feeds `input` whole, in two pieces at every position, and byte by byte: all must give the same result.
    fn feed(input: &[u8]) -> (ResponseHead, Progress) {
        let limits = HeadLimits::default();
        let mut whole = ResponseHead::new();
        let progress = whole.feed(input, &limits);
        for pieces in splits(input) {
            let mut head = ResponseHead::new();
            let (mut seen, mut split) = (0, Progress::Partial);
            for piece in &pieces {
                seen += piece.len();
                split = head.feed(&input[..seen], &limits);
                if split != Progress::Partial {
                    break;
                }
            }
            assert_eq!(split, progress, "{} in {} pieces", input.escape_ascii(), pieces.len());
            if let Progress::Done { .. } = progress {
                assert_eq!(format!("{head:?}"), format!("{whole:?}"));
                assert!(head.fields(input).eq(whole.fields(input)));
            }
        }
        (whole, progress)
    }

    fn accepted(input: &[u8]) -> ResponseHead {
        let (head, progress) = feed(input);
        assert!(matches!(progress, Progress::Done { .. }), "{progress:?}: {}", input.escape_ascii());
        head
    }

    fn refused(input: &[u8]) -> Refusal {
        match feed(input).1 {
            Progress::Refused(refusal) => refusal,
            other => panic!("{other:?}: {}", input.escape_ascii()),
        }
    }

    #[test]
    fn a_plain_response_is_read() {
        let input = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nX-A: b\r\nSet-Cookie: a\r\nset-cookie: b\r\n\r\nnot found";
        let (head, progress) = feed(input);
        assert_eq!(progress, Progress::Done { head_bytes: input.len() - 9 });
        assert_eq!((head.status(), head.version()), (404, Version::Http11));
        assert_eq!(head.framing(Method::Get), ResponseFraming::Length(9));
        assert!(head.keep_alive());
        assert_eq!(head.known(input, Known::ContentLength), Some(&b"9"[..]));
        assert_eq!(head.field(input, "x-a"), Some(&b"b"[..]));
        assert_eq!(
            head.fields(input).filter(|(name, _)| name.eq_ignore_ascii_case(b"set-cookie")).count(),
            2
        );
        assert_eq!(head.all(input, Known::ContentLength).count(), 1);
    }

    #[test]
    fn what_we_write_we_read() {
        for status in 100..600 {
            let mut out = Vec::new();
            crate::http1::put_status_line(&mut out, status);
            out.extend_from_slice(b"\r\n");
            assert_eq!(accepted(&out).status(), status);
        }
    }

    #[test]
    fn the_body_ends_as_method_status_and_head_say() {
        let framing = |method, status: &str, lines: &str| {
            accepted(format!("HTTP/1.1 {status}\r\n{lines}\r\n").as_bytes()).framing(method)
        };
        let length = "Content-Length: 5\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        assert_eq!(framing(Method::Get, "200 OK", length), ResponseFraming::Length(5));
        assert_eq!(framing(Method::Get, "200 OK", chunked), ResponseFraming::Chunked);
        assert_eq!(framing(Method::Get, "200 OK", ""), ResponseFraming::Close);
        assert_eq!(framing(Method::Head, "200 OK", length), ResponseFraming::None);
        assert_eq!(framing(Method::Head, "200 OK", chunked), ResponseFraming::None);
        assert_eq!(framing(Method::Get, "304 Not Modified", length), ResponseFraming::None);
        assert_eq!(framing(Method::Get, "204 No Content", ""), ResponseFraming::None);
        assert_eq!(framing(Method::Get, "100 Continue", ""), ResponseFraming::None);
        assert_eq!(framing(Method::Connect, "200 OK", length), ResponseFraming::None);
        assert_eq!(framing(Method::Connect, "407 No", length), ResponseFraming::Length(5));
    }

    #[test]
    fn persistence_follows_the_version_and_the_connection_tokens() {
        let keeps = |start: &str| accepted(format!("{start}\r\n\r\n").as_bytes()).keep_alive();
        assert!(keeps("HTTP/1.1 200 OK"));
        assert!(!keeps("HTTP/1.1 200 OK\r\nConnection: x, Close"));
        assert!(!keeps("HTTP/1.0 200 OK"));
        assert!(keeps("HTTP/1.0 200 OK\r\nConnection: keep-alive"));
    }

    #[test]
    fn reasons_may_be_anything_or_nothing() {
        for start in ["HTTP/1.1 200 ", "HTTP/1.1 200", "HTTP/1.1 200 All  good\té", "HTTP/1.9 999 x"] {
            accepted(format!("{start}\r\n\r\n").as_bytes());
        }
    }

    #[test]
    fn malformed_heads_are_refused() {
        for (input, refusal) in [
            (&b"HTTP/2.0 200 OK\r\n\r\n"[..], Refusal::UnsupportedVersion),
            (b"HTTP/0.9 200 OK\r\n\r\n", Refusal::InvalidVersion),
            (b"HTTP/1.x 200 OK\r\n\r\n", Refusal::InvalidVersion),
            (b"ICY 200 OK\r\n\r\n", Refusal::InvalidVersion),
            (b"\x15\x03\x01", Refusal::InvalidVersion),
            (b"HTTP/1.1 20 OK\r\n\r\n", Refusal::InvalidStatus),
            (b"HTTP/1.1 099 OK\r\n\r\n", Refusal::InvalidStatus),
            (b"HTTP/1.1 2000 OK\r\n\r\n", Refusal::InvalidStatus),
            (b"HTTP/1.1  200 OK\r\n\r\n", Refusal::InvalidStatus),
            (b"HTTP/1.1 200 OK\n\n", Refusal::BareLf),
            (b"HTTP/1.1 200 OK\rX", Refusal::BareCr),
            (b"HTTP/1.1 200 O\0K\r\n\r\n", Refusal::InvalidStatus),
            (b"HTTP/1.1 200 OK\r\n X: a\r\n\r\n", Refusal::LeadingSpace),
            (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", Refusal::ObsoleteFold),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", Refusal::InvalidLength),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", Refusal::LengthRepeated),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                Refusal::LengthWithCoding,
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
                Refusal::LengthWithCoding,
            ),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Refusal::UnsupportedCoding),
            (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::CodingInHttp10),
        ] {
            assert_eq!(refused(input), refusal, "{}", input.escape_ascii());
        }
        let endless = [&b"HTTP/1.1 200 "[..], &[b'a'; 100_000]].concat();
        let mut head = ResponseHead::new();
        assert_eq!(head.feed(&endless, &HeadLimits::default()), Progress::Refused(Refusal::HeadTooLarge));
    }

    #[test]
    fn one_head_reads_one_response_after_the_other() {
        let limits = HeadLimits::default();
        let mut head = ResponseHead::new();
        let one = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
        assert_eq!(head.feed(one, &limits), Progress::Done { head_bytes: one.len() });
        head.reset();
        let two = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(head.feed(two, &limits), Progress::Done { head_bytes: two.len() });
        assert_eq!((head.status(), head.framing(Method::Get)), (204, ResponseFraming::None));
        assert!(head.keep_alive());
        assert_eq!(head.known(two, Known::ContentLength), None);
    }
}
