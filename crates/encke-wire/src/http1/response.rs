//! The head of a response (RFC 9112 §4–6): the client's side of the wire, for the load generator and the tests.
//!
//! It shares the recogniser of field lines with the request head, is as strict about lines and framing, and
//! keeps as little: positions in the caller's buffer.

use crate::field::{self, Known};
use crate::http1::Refusal;
use crate::http1::head::{Progress, Version, chunked_only, content_length};
use crate::http1::lines::{Lines, Step, Values};
use crate::limits::{HEAD_BYTES_MAX, HeadLimits};
use crate::method::Method;
use crate::scan::{self, Job, Scanner};
use crate::status;

/// The head of one response: positions in the buffer that it was fed from. Used again for every response.
///
/// ```text
///   reset ──► StatusLine ──► Fields ──► Done        any rule broken ──► Refused
/// ```
pub struct ResponseHead {
    phase: Phase,
    version: Version,
    status: u16,
    at: u16,
    close: bool,
    keep_alive: bool,
    announced: Announced,
    lines: Lines,
}

/// Where the body of a response ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is no body.
    None,
    /// It has exactly that many bytes.
    Length(u64),
    /// It ends with its last chunk.
    Chunked,
    /// It ends with the connection; a connection that breaks off looks the same.
    Close,
}

impl ResponseHead {
    /// A head that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::StatusLine,
            version: Version::Http11,
            status: 0,
            at: 0,
            close: false,
            keep_alive: false,
            announced: Announced::Nothing,
            lines: Lines::new(),
        }
    }

    /// Forgets everything: ready for the next response.
    pub const fn reset(&mut self) {
        self.phase = Phase::StatusLine;
        self.at = 0;
        (self.close, self.keep_alive) = (false, false);
        self.announced = Announced::Nothing;
        self.lines.reset();
    }

    /// Looks at what has arrived, by the same rules as [`crate::http1::Head::feed`].
    pub fn feed(&mut self, buf: &[u8], limits: &HeadLimits) -> Progress {
        match self.phase {
            Phase::StatusLine | Phase::Fields => {}
            Phase::Done => return Progress::Done { head_bytes: usize::from(self.at) },
            Phase::Refused(refusal) => return Progress::Refused(refusal),
        }
        let head_bytes_max = limits.head_bytes.min(HEAD_BYTES_MAX) as usize;
        let window = &buf[..buf.len().min(head_bytes_max)];
        let refusal = match scan::run(Feed { head: self, buf: window, limits }) {
            Ok(Some(head_bytes)) => {
                self.phase = Phase::Done;
                return Progress::Done { head_bytes };
            }
            Ok(None) if window.len() < head_bytes_max => return Progress::Partial,
            Ok(None) => Refusal::HeadTooLarge,
            Err(refusal) => refusal,
        };
        self.phase = Phase::Refused(refusal);
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

    /// Where the body ends, if this answers a request with `method`.
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

    /// Whether the server keeps the connection open after this response, as far as its head says. A body that
    /// ends with the connection ([`ResponseFraming::Close`]) rules it out all the same.
    #[must_use]
    pub const fn keep_alive(&self) -> bool {
        match self.version {
            Version::Http11 => !self.close,
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

    /// The first value of the field called `name` (any mix of cases).
    #[must_use]
    pub fn field<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.lines.field(buf, name)
    }

    /// All fields as name and value, in the order they came.
    pub fn fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.lines.fields(buf)
    }

    #[inline(always)]
    fn advance<S: Scanner>(
        &mut self,
        scanner: S,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<usize>, Refusal> {
        if self.phase == Phase::StatusLine {
            let Some(next) = self.status_line(scanner, buf)? else { return Ok(None) };
            self.at = next as u16;
            self.phase = Phase::Fields;
        }
        loop {
            match self.lines.step(scanner, buf, usize::from(self.at), limits.fields)? {
                Step::Partial => return Ok(None),
                Step::Field { known, value: (start, end), next } => {
                    self.decide(known, &buf[start..end])?;
                    self.at = next as u16;
                }
                Step::End { next } => {
                    self.at = next as u16;
                    return Ok(Some(next));
                }
            }
        }
    }

    /// `HTTP/1.x SP 3DIGIT SP [reason] CRLF`; servers that leave out the second space are known.
    #[inline(always)]
    fn status_line<S: Scanner>(&mut self, scanner: S, buf: &[u8]) -> Result<Option<usize>, Refusal> {
        for (&byte, &pattern) in buf.iter().zip(b"HTTP/1.0 000") {
            match pattern {
                b'0' if byte.is_ascii_digit() => {}
                b'1' if matches!(byte, b'2'..=b'9') => return Err(Refusal::UnsupportedVersion),
                pattern if pattern == byte => {}
                b'0' => return Err(Refusal::InvalidStatus),
                _ => return Err(Refusal::InvalidVersion),
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
            Some(b' ') => scanner.skip_text(buf, 13),
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

    /// Takes a field that decides how the response is read.
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
enum Phase {
    StatusLine,
    Fields,
    Done,
    Refused(Refusal),
}

/// What the head said of the body's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    Nothing,
    Length(u64),
    Chunked,
}

/// One call of [`ResponseHead::feed`], compiled for each instruction set.
struct Feed<'a> {
    head: &'a mut ResponseHead,
    buf: &'a [u8],
    limits: &'a HeadLimits,
}

impl Job for Feed<'_> {
    type Output = Result<Option<usize>, Refusal>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        self.head.advance(scanner, self.buf, self.limits)
    }
}
