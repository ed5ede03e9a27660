//! The head of a request (RFC 9112 §2–5, RFC 9110 §5): the only parser for it.
//!
//! ```text
//!            CRLF (≤ 2)        request line               field line
//!             ┌────┐         ┌─────────────┐              ┌───────┐
//!             │    ▼         │             ▼              │       ▼
//!   reset ──► Start ─────────┴──────────► Fields ─────────┴───── Fields ── empty line, final checks ──► Done
//!               └──────────── any rule broken ──────────────► Refused (for good, until reset)
//! ```
//!
//! The parser keeps positions (u16) in the caller's buffer and copies nothing. Each call of `feed` receives all bytes so far,
//! from the head's first byte. Complete lines are not parsed again. While parsing, it determines all properties that the server
//! needs of every request (method, target, version, body framing, persistence, host).
//!
//! The parser is strict. RFC 9112 lets servers repair or guess in places. Each such place lets two servers disagree about the
//! end of a request, so all of them are rejected here.

use std::ops::Range;

use crate::conditional::Conditions;
use crate::field::{self, Folded, Known};
use crate::http1::Refusal;
use crate::http1::framing::{chunked_only, content_length};
use crate::http1::lines::{FieldTally, LineStep, Lines, Values};
use crate::limits::{HEAD_BYTES_MAX, HeadLimits, LEADING_EMPTY_LINES_MAX, METHOD_BYTES_MAX};
use crate::method::Method;
use crate::scan::{self, FIELD_NAME, HOST_NAME, Scalar, ScanJob, Scanner, TARGET_PATH, TARGET_QUERY};
use crate::target;

/// The head of one request: positions in the buffer that was fed, about 1.2 KiB, without allocation. A worker owns one and
/// reuses it for every request.
///
/// Every function with a `buf` argument needs the buffer of the last [`Head::feed`], which may have grown since. A shorter
/// buffer causes a panic.
#[derive(Clone)]
pub struct Head {
    phase: HeadPhase,
    method: Method,
    version: Version,
    form: TargetForm,
    framing: Framing,
    empty_lines: u8,
    /// Connection and Expect tokens, and whether Host was seen: a set of the flags [`CLOSE`] to [`HAS_HOST`].
    flags: u8,
    /// Position of the next line to parse.
    at: u16,
    method_span: Span,
    target_span: Span,
    /// The authority of an absolute-form or authority-form target; empty for other forms.
    authority: Span,
    /// Path and query of the target. The query is without its `?`.
    path: Span,
    query: Option<Span>,
    pub(super) lines: Lines,
}

/// The result of [`Head::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No error so far, but the head is incomplete: call again with more bytes.
    Partial,
    /// The head is complete.
    Done {
        /// Length of the head in bytes, including leading empty lines and the final empty line. The body begins there.
        head_bytes: usize,
    },
    /// The message is invalid: respond with an error, then close the connection.
    Refused(Refusal),
}

/// The version that determines how a message is read. A minor version above 1 is treated as 1.1 (RFC 9110 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no persistence unless requested, no transfer codings, Host optional.
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2: received as fields of an HTTP/2 stream, and parsed in the form of 1.1 (see [`Head::carry`]).
    Http2,
}

/// The four forms of a request target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`, as sent to proxies; servers must accept it.
    Absolute,
    /// `host:port`, for CONNECT only.
    Authority,
    /// `*`, for OPTIONS only: the server as a whole.
    Asterisk,
}

/// The end of the body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// Exactly this number of bytes.
    Length(u64),
    /// Up to the last chunk.
    Chunked,
}

impl Head {
    /// Creates a head that has not been fed.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: HeadPhase::Start,
            method: Method::Other,
            version: Version::Http11,
            form: TargetForm::Origin,
            framing: Framing::None,
            empty_lines: 0,
            flags: 0,
            at: 0,
            method_span: Span::EMPTY,
            target_span: Span::EMPTY,
            authority: Span::EMPTY,
            path: Span::EMPTY,
            query: None,
            lines: Lines::new(),
        }
    }

    /// Clears the head for the next request.
    #[inline]
    pub const fn reset(&mut self) {
        self.phase = HeadPhase::Start;
        self.framing = Framing::None;
        self.empty_lines = 0;
        self.flags = 0;
        self.at = 0;
        self.lines.reset();
    }

    /// Length in bytes of a complete head, as in [`Progress::Done`].
    pub fn head_bytes(&self) -> usize {
        usize::from(self.at)
    }

    /// Parses the bytes received so far. `buf` begins at the head's first byte and only grows between calls. Bytes after the
    /// head are ignored. After `Done` or `Refused` the result stays the same until `reset`.
    ///
    /// ```
    /// use encke_wire::http1::{Head, HeadLimits, Progress};
    /// use encke_wire::method::Method;
    ///
    /// let request = b"GET /a?b HTTP/1.1\r\nHost: example.org\r\n\r\n";
    /// let (mut head, limits) = (Head::new(), HeadLimits::default());
    /// assert_eq!(head.feed(&request[..20], &limits), Progress::Partial);
    /// assert_eq!(head.feed(request, &limits), Progress::Done { head_bytes: request.len() });
    /// assert_eq!((head.method(), head.path(request)), (Method::Get, &b"/a"[..]));
    /// ```
    ///
    /// # Errors
    /// `Refused` as soon as no continuation could make the head valid within `limits`. Rules about a whole line or head are
    /// checked at its end.
    pub fn feed(&mut self, buf: &[u8], limits: &HeadLimits) -> Progress {
        self.feed_by(buf, limits, |feed| scan::run(feed))
    }

    /// As [`Head::feed`], without vector instructions, to measure their benefit.
    ///
    /// # Errors
    /// As [`Head::feed`].
    pub fn feed_scalar(&mut self, buf: &[u8], limits: &HeadLimits) -> Progress {
        self.feed_by(buf, limits, |feed| feed.run(Scalar))
    }

    #[inline(always)]
    fn feed_by(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        run: impl FnOnce(HeadFeed<'_>) -> Result<bool, Refusal>,
    ) -> Progress {
        match self.phase {
            HeadPhase::Start | HeadPhase::Fields => {}
            HeadPhase::Done => return Progress::Done { head_bytes: usize::from(self.at) },
            HeadPhase::Refused(refusal) => return Progress::Refused(refusal),
        }
        let head_bytes_max = limits.head_bytes.min(HEAD_BYTES_MAX) as usize;
        let window = &buf[..buf.len().min(head_bytes_max)];
        match run(HeadFeed { head: self, buf: window, limits }) {
            Ok(true) => {
                self.phase = HeadPhase::Done;
                Progress::Done { head_bytes: usize::from(self.at) }
            }
            Ok(false) if window.len() < head_bytes_max => Progress::Partial,
            Ok(false) if self.phase == HeadPhase::Start => self.refuse(Refusal::UriTooLong),
            Ok(false) => self.refuse(Refusal::HeadTooLarge),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// The method. For [`Method::Other`], [`Head::method_text`] has its text.
    #[inline]
    #[must_use]
    pub const fn method(&self) -> Method {
        self.method
    }

    /// The method as sent.
    #[must_use]
    pub fn method_text<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        self.method_span.of(buf)
    }

    /// The whole request target as sent.
    #[inline]
    #[must_use]
    pub fn target<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        self.target_span.of(buf)
    }

    /// The target's path, still escaped. Begins with `/` in origin form and absolute form, where a missing path means `/`. `*`
    /// in asterisk form, empty in authority form.
    #[inline]
    #[must_use]
    pub fn path<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        if self.form == TargetForm::Absolute && self.path.is_empty() {
            // RFC 9112 §3.2.4: OPTIONS without a path refers to the server as a whole.
            return if self.method == Method::Options && self.query.is_none() { b"*" } else { b"/" };
        }
        self.path.of(buf)
    }

    /// The target's query, still escaped and without its `?`; `None` if there is no `?`.
    #[inline]
    #[must_use]
    pub fn query<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        self.query.map(|query| query.of(buf))
    }

    /// The form of the target.
    #[inline]
    #[must_use]
    pub const fn form(&self) -> TargetForm {
        self.form
    }

    /// The version.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Sets the version of a request that was fed in the form of HTTP/1.1.
    pub const fn carry(&mut self, version: Version) {
        self.version = version;
    }

    /// The requested authority, as `host` or `host:port`, already validated. The authority of an absolute-form or
    /// authority-form target takes precedence over Host (RFC 9112 §3.2.2). Empty if both are absent.
    #[inline]
    #[must_use]
    pub fn host<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        match self.form {
            TargetForm::Absolute | TargetForm::Authority => self.authority.of(buf),
            TargetForm::Origin | TargetForm::Asterisk => self.known(buf, Known::Host).unwrap_or_default(),
        }
    }

    /// The end of the body.
    #[inline]
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client wants the connection to stay open (RFC 9112 §9.3): with 1.1 unless it sent `close`, with 1.0 only if
    /// it sent `keep-alive`. `close` takes precedence. Always false for HTTP/2, where a stream has a single request.
    #[inline]
    #[must_use]
    pub const fn keep_alive(&self) -> bool {
        match self.version {
            Version::Http11 => self.flags & CLOSE == 0,
            Version::Http10 => self.flags & (CLOSE | KEEP_ALIVE) == KEEP_ALIVE,
            Version::Http2 => false,
        }
    }

    /// Whether the client waits for a 100 before it sends the body (RFC 9110 §10.1.1). Always false for 1.0.
    #[inline]
    #[must_use]
    pub const fn expects_continue(&self) -> bool {
        self.flags & EXPECTS_CONTINUE != 0 && !matches!(self.version, Version::Http10)
    }

    /// Whether the client expects an unknown behaviour, which may be answered with 417.
    #[must_use]
    pub const fn expects_unknown(&self) -> bool {
        self.flags & EXPECTS_UNKNOWN != 0
    }

    /// Whether the client offers another protocol (RFC 9110 §7.8): Upgrade is present and Connection names it. Always false for
    /// 1.0.
    #[inline]
    #[must_use]
    pub const fn upgrade(&self) -> bool {
        self.flags & UPGRADE != 0
            && self.lines.has_any(Known::Upgrade.bit())
            && !matches!(self.version, Version::Http10)
    }

    /// The first value of a known field, without surrounding white space. Costs one array access.
    #[inline]
    #[must_use]
    pub fn known<'a>(&self, buf: &'a [u8], known: Known) -> Option<&'a [u8]> {
        self.lines.known(buf, known)
    }

    /// The value of a known field that must not be repeated: `None` if it is absent or repeated.
    #[must_use]
    pub fn single<'a>(&'a self, buf: &'a [u8], known: Known) -> Option<&'a [u8]> {
        let mut values = self.all(buf, known);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// All values of a known field, in order. A list may be spread over several lines.
    #[inline]
    #[must_use]
    pub fn all<'a>(&'a self, buf: &'a [u8], known: Known) -> Values<'a> {
        self.lines.all(buf, known)
    }

    /// The first value of the field `name` (case-insensitive). Scans all fields: for names in [`Known`] use [`Head::known`].
    #[must_use]
    pub fn field<'a>(&self, buf: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.lines.field(buf, name)
    }

    /// All fields as name and value, in order of arrival.
    pub fn fields<'a>(&self, buf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.lines.fields(buf)
    }

    /// The number of fields.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether the head has no fields.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lines.len() == 0
    }

    /// Whether a Range, If-Range or one of the four other conditions is present. Most requests have none, and one test
    /// suffices.
    #[inline]
    #[must_use]
    pub const fn is_conditional(&self) -> bool {
        const SET: u64 = Known::IfMatch.bit()
            | Known::IfNoneMatch.bit()
            | Known::IfModifiedSince.bit()
            | Known::IfUnmodifiedSince.bit()
            | Known::IfRange.bit()
            | Known::Range.bit();
        self.lines.has_any(SET)
    }

    /// The conditions of the request, for [`crate::conditional::evaluate`].
    #[must_use]
    pub fn conditions<'a>(&'a self, buf: &'a [u8]) -> Conditions<'a, Values<'a>> {
        Conditions {
            if_match: self.all(buf, Known::IfMatch),
            if_none_match: self.all(buf, Known::IfNoneMatch),
            if_modified_since: self.single(buf, Known::IfModifiedSince),
            if_unmodified_since: self.single(buf, Known::IfUnmodifiedSince),
        }
    }

    /// Position of the line parsed last, which is the one that caused a refusal.
    #[must_use]
    pub const fn line_start(&self) -> usize {
        self.at as usize
    }

    #[cold]
    fn refuse(&mut self, refusal: Refusal) -> Progress {
        self.phase = HeadPhase::Refused(refusal);
        Progress::Refused(refusal)
    }

    /// Runs the state machine at the top of this file. Returns false if more bytes are needed.
    #[inline(always)]
    fn advance<S: Scanner>(&mut self, scanner: S, buf: &[u8], limits: &HeadLimits) -> Result<bool, Refusal> {
        if self.phase == HeadPhase::Start {
            while let Some(b'\r' | b'\n') = buf.get(usize::from(self.at)) {
                if !self.empty_line(buf)? {
                    return Ok(false);
                }
            }
            let Some(next) = self.request_line(scanner, buf, limits)? else { return Ok(false) };
            self.at = next as u16;
            self.phase = HeadPhase::Fields;
        }
        let (mut at, mut tally) = (usize::from(self.at), self.lines.tally());
        let is_whole = self.fields_from(&mut at, &mut tally, scanner, buf, limits);
        self.at = at as u16;
        self.lines.keep(tally);
        is_whole
    }

    /// Parses field lines from `at` to the first incomplete line or the end of the head, and advances `at` and `tally`. Returns
    /// false if more bytes are needed.
    #[inline(always)]
    fn fields_from<S: Scanner>(
        &mut self,
        at: &mut usize,
        tally: &mut FieldTally,
        scanner: S,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Result<bool, Refusal> {
        loop {
            match self.lines.step(tally, scanner, buf, *at, limits.fields)? {
                LineStep::Partial => return Ok(false),
                LineStep::Field { known, value: (start, end), next } => {
                    if let Some(known) = known
                        && known.bit() & DECIDING != 0
                    {
                        self.decide(scanner, known, buf, start, end)?;
                    }
                    *at = next;
                }
                LineStep::End { next } => {
                    self.finish()?;
                    *at = next;
                    return Ok(true);
                }
            }
        }
    }

    /// Skips one empty line before the request line. Returns false if its end has not arrived.
    #[cold]
    fn empty_line(&mut self, buf: &[u8]) -> Result<bool, Refusal> {
        if self.empty_lines == LEADING_EMPTY_LINES_MAX {
            return Err(Refusal::EmptyLines);
        }
        let at = usize::from(self.at);
        match (buf.get(at), buf.get(at + 1)) {
            (Some(b'\r'), None) => Ok(false),
            (Some(b'\r'), Some(b'\n')) => {
                self.empty_lines += 1;
                self.at += 2;
                Ok(true)
            }
            (Some(b'\r'), Some(_)) => Err(Refusal::BareCr),
            _ => Err(Refusal::BareLf),
        }
    }

    /// Parses `method SP target SP version CRLF`. Returns the start of the next line, or `None` if the line is incomplete.
    #[inline(always)]
    fn request_line<S: Scanner>(
        &mut self,
        scanner: S,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<usize>, Refusal> {
        let start = usize::from(self.at);
        let (method, method_end) = if buf[start..].first_chunk() == Some(b"GET ") {
            // Nine requests in ten.
            (Method::Get, start + 3)
        } else {
            let Some(method_end) = method_end(scanner, buf, start)? else { return Ok(None) };
            (Method::of(&buf[start..method_end]), method_end)
        };

        let target = method_end + 1;
        let path_end = scanner.skip(TARGET_PATH, buf, target);
        let mut target_end = path_end;
        self.query = None;
        if buf.get(path_end) == Some(&b'?') {
            target_end = scanner.skip(TARGET_QUERY, buf, path_end + 1);
            self.query = Some(Span::new(path_end + 1, target_end));
        }
        if target_end - target > limits.uri_bytes as usize {
            return Err(Refusal::UriTooLong);
        }
        if buf.get(target_end) != Some(&b' ') {
            return no_target_end(&buf[target_end..]);
        }
        let is_origin = buf[target] == b'/' && method != Method::Connect;
        if !is_origin && target == target_end {
            return Err(Refusal::TargetMissing);
        }

        let version = version_line(buf, target_end + 1);
        let Some((version, next)) =
            version.map_err(|refusal| or_no_http(refusal, &buf[target..], target_end - target))?
        else {
            return Ok(None);
        };
        self.version = version;
        self.method = method;
        self.method_span = Span::new(start, method_end);
        self.target_span = Span::new(target, target_end);
        self.path = Span::new(target, path_end);
        self.form = if is_origin { TargetForm::Origin } else { self.rare_form(scanner, buf)? };
        Ok(Some(next))
    }

    /// Handles every form but origin-form (RFC 9112 §3.2.2–3.2.4): finds the authority and the path after it.
    #[cold]
    fn rare_form<S: Scanner>(&mut self, scanner: S, buf: &[u8]) -> Result<TargetForm, Refusal> {
        let target = self.target_span.of(buf);
        if self.method == Method::Connect {
            let has_port = target.iter().rposition(|&byte| byte == b':').is_some_and(|colon| {
                colon + 1 < target.len() && target[colon + 1..].iter().all(u8::is_ascii_digit)
            });
            if !has_port
                || !is_authority(scanner, buf, self.target_span.start.into(), self.target_span.end.into())
            {
                return Err(Refusal::TargetForm);
            }
            self.authority = self.target_span;
            self.path = Span::EMPTY;
            self.query = None;
            return Ok(TargetForm::Authority);
        }
        if target == b"*" {
            return if self.method == Method::Options {
                Ok(TargetForm::Asterisk)
            } else {
                Err(Refusal::TargetForm)
            };
        }
        let scheme = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| {
                target.len() >= scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme)
            })
            .ok_or(Refusal::TargetForm)?;
        let path = Range::from(self.path);
        let start = path.start + scheme.len();
        // A `?` may also end the authority. The path is then empty, and the span before the `?` has no slash.
        let end =
            buf[start..path.end].iter().position(|&byte| byte == b'/').map_or(path.end, |at| start + at);
        if start == end || !is_authority(scanner, buf, start, end) {
            return Err(Refusal::InvalidHost);
        }
        self.authority = Span::new(start, end);
        self.path = Span::new(end, path.end);
        Ok(TargetForm::Absolute)
    }

    /// Handles a field that determines how the request is read.
    #[inline(always)]
    fn decide<S: Scanner>(
        &mut self,
        scanner: S,
        known: Known,
        buf: &[u8],
        start: usize,
        end: usize,
    ) -> Result<(), Refusal> {
        if known == Known::Host {
            if self.flags & HAS_HOST != 0 {
                return Err(Refusal::HostRepeated);
            }
            self.flags |= HAS_HOST;
            if start < end && !is_authority(scanner, buf, start, end) {
                return Err(Refusal::InvalidHost);
            }
        } else if known == Known::Connection {
            self.flags |= match connection_option(Folded::at(buf, start, end)) {
                0 => connection_options(&buf[start..end]),
                only => only,
            };
        } else {
            self.decide_body(known, &buf[start..end])?;
        }
        Ok(())
    }

    /// As [`Self::decide`], for fields that most requests do not have.
    fn decide_body(&mut self, known: Known, value: &[u8]) -> Result<(), Refusal> {
        match known {
            Known::ContentLength => self.framing = self.length(value)?,
            Known::TransferEncoding => self.framing = self.coding(value)?,
            Known::Expect => {
                let is_continue = value.eq_ignore_ascii_case(b"100-continue");
                self.flags |= if is_continue { EXPECTS_CONTINUE } else { EXPECTS_UNKNOWN };
            }
            _ => {}
        }
        Ok(())
    }

    /// The framing announced by a Content-Length (RFC 9112 §6.2, RFC 9110 §8.6).
    fn length(&self, value: &[u8]) -> Result<Framing, Refusal> {
        match self.framing {
            Framing::None => content_length(value).map(Framing::Length),
            Framing::Length(_) => Err(Refusal::LengthRepeated),
            Framing::Chunked => Err(Refusal::LengthWithCoding),
        }
    }

    /// The framing announced by a Transfer-Encoding (RFC 9112 §6.1).
    #[cold]
    fn coding(&self, value: &[u8]) -> Result<Framing, Refusal> {
        match self.framing {
            _ if self.version == Version::Http10 => Err(Refusal::CodingInHttp10),
            Framing::None => chunked_only(value).map(|()| Framing::Chunked),
            Framing::Length(_) => Err(Refusal::LengthWithCoding),
            Framing::Chunked => Err(Refusal::CodingRepeated),
        }
    }

    /// Checks the rules about the whole head.
    #[inline(always)]
    fn finish(&self) -> Result<(), Refusal> {
        if self.flags & HAS_HOST == 0 && self.version == Version::Http11 {
            return Err(Refusal::HostMissing);
        }
        Ok(())
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Head")
            .field("phase", &self.phase)
            .field("method", &self.method)
            .field("version", &self.version)
            .field("form", &self.form)
            .field("framing", &self.framing)
            .field("fields", &self.lines.len())
            .finish_non_exhaustive()
    }
}

/// The state of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadPhase {
    Start,
    Fields,
    Done,
    Refused(Refusal),
}

/// A range of the buffer.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u16,
    end: u16,
}

impl Span {
    const EMPTY: Self = Self { start: 0, end: 0 };

    /// Both arguments are positions in a window of at most 65,535 bytes.
    #[inline]
    const fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= HEAD_BYTES_MAX as usize);
        Self { start: start as u16, end: end as u16 }
    }

    const fn is_empty(self) -> bool {
        self.start == self.end
    }

    #[inline]
    fn of(self, buf: &[u8]) -> &[u8] {
        &buf[Range::from(self)]
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        usize::from(span.start)..usize::from(span.end)
    }
}

/// One call of [`Head::feed`], compiled for each instruction set.
struct HeadFeed<'a> {
    head: &'a mut Head,
    buf: &'a [u8],
    limits: &'a HeadLimits,
}

impl ScanJob for HeadFeed<'_> {
    type Output = Result<bool, Refusal>;

    #[inline(always)]
    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        self.head.advance(scanner, self.buf, self.limits)
    }
}

/// Finds the end of the method that begins at `start`, which a space must follow. `None` if the end has not arrived.
#[inline(always)]
fn method_end<S: Scanner>(scanner: S, buf: &[u8], start: usize) -> Result<Option<usize>, Refusal> {
    let end = scanner.skip(FIELD_NAME, buf, start);
    if end - start > METHOD_BYTES_MAX {
        return Err(Refusal::MethodTooLong);
    }
    match buf.get(end) {
        None => Ok(None),
        Some(b' ') if end > start => Ok(Some(end)),
        Some(_) => Err(Refusal::InvalidMethod),
    }
}

/// The reason why `rest`, at the end of a target, has no leading space: more bytes are needed, or another byte is an error.
#[cold]
const fn no_target_end(rest: &[u8]) -> Result<Option<usize>, Refusal> {
    match rest {
        [] => Ok(None),
        [b'\r' | b'\n', ..] => Err(Refusal::InvalidVersion),
        _ => Err(Refusal::InvalidTarget),
    }
}

/// Parses `HTTP/1.x CRLF` at `at`. Returns the version and the start of the next line, or `None` if the line is incomplete.
#[inline(always)]
fn version_line(buf: &[u8], at: usize) -> Result<Option<(Version, usize)>, Refusal> {
    // One comparison of two words. A pattern would be compared byte by byte.
    let line = buf[at..].first_chunk();
    let version = if line == Some(b"HTTP/1.1\r\n") {
        Some(Version::Http11)
    } else if line == Some(b"HTTP/1.0\r\n") {
        Some(Version::Http10)
    } else {
        rare_version(&buf[at..])?
    };
    Ok(version.map(|version| (version, at + 10)))
}

/// As [`version_line`], for lines that are incomplete, malformed, or neither 1.1 nor 1.0.
#[cold]
fn rare_version(rest: &[u8]) -> Result<Option<Version>, Refusal> {
    const MAJOR: usize = 5;
    const MINOR: usize = 7;
    for (at, (&byte, &pattern)) in rest.iter().zip(b"HTTP/1.0\r\n").enumerate() {
        match (at, byte) {
            (MAJOR, b'1'..=b'9') | (MINOR, b'0'..=b'9') => {}
            (_, byte) if byte == pattern => {}
            (8, b'\n') => return Err(Refusal::BareLf),
            (9, _) => return Err(Refusal::BareCr),
            _ => return Err(Refusal::InvalidVersion),
        }
    }
    if rest.len() < 10 {
        return Ok(None);
    }
    match (rest[MAJOR], rest[MINOR]) {
        (b'1', b'0') => Ok(Some(Version::Http10)),
        (b'1', _) => Ok(Some(Version::Http11)),
        _ => Err(Refusal::UnsupportedVersion),
    }
}

/// The refusal for an invalid version. [`Refusal::NotHttp`] if additionally the target has no slash and the version no `H`, so
/// that the line has no trace of HTTP. `rest` begins with the target.
#[cold]
fn or_no_http(refusal: Refusal, rest: &[u8], target_bytes: usize) -> Refusal {
    let (target, version) = rest.split_at(target_bytes);
    let other =
        refusal == Refusal::InvalidVersion && !target.contains(&b'/') && version.get(1) != Some(&b'H');
    if other { Refusal::NotHttp } else { refusal }
}

/// Whether the bytes from `start` to `end` are `uri-host [":" port]` (RFC 9110 §7.2) with a non-empty host. Takes positions in
/// the larger buffer, because scanners are slow on slices shorter than a block.
#[inline(always)]
fn is_authority<S: Scanner>(scanner: S, buf: &[u8], start: usize, end: usize) -> bool {
    // Most authorities are a plain name with or without a port. The full grammar decides about all others.
    let host_end = scanner.skip(HOST_NAME, buf, start);
    if host_end >= end {
        return end > start;
    }
    match &buf[host_end..end] {
        [b':', port @ ..] if host_end > start => port.is_empty() || target::parse_port(port).is_some(),
        _ => target::parse_authority(&buf[start..end]).is_ok(),
    }
}

/// The flag of one connection option; 0 if it is unknown.
#[inline(always)]
fn connection_option(option: Folded) -> u8 {
    if const { Folded::of(b"keep-alive") }.is(&option) {
        KEEP_ALIVE
    } else if const { Folded::of(b"close") }.is(&option) {
        CLOSE
    } else if const { Folded::of(b"upgrade") }.is(&option) {
        UPGRADE
    } else {
        0
    }
}

/// The flags of a list of connection options.
fn connection_options(value: &[u8]) -> u8 {
    field::list(value).fold(0, |flags, option| flags | connection_option(Folded::of(option)))
}

/// Flags in [`Head::flags`].
const CLOSE: u8 = 1;
const KEEP_ALIVE: u8 = 1 << 1;
const UPGRADE: u8 = 1 << 2;
const EXPECTS_CONTINUE: u8 = 1 << 3;
const EXPECTS_UNKNOWN: u8 = 1 << 4;
const HAS_HOST: u8 = 1 << 5;

/// The fields that determine how a request is read.
const DECIDING: u64 = Known::Host.bit()
    | Known::ContentLength.bit()
    | Known::TransferEncoding.bit()
    | Known::Connection.bit()
    | Known::Expect.bit();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::{Random, splits};
    use crate::limits::FIELDS_MAX;
    use crate::scan::Class;
    use proptest::prelude::*;

    /// Feeds `input` whole, in two pieces at every position, and byte by byte: all must give the same result.
    fn feed_with(input: &[u8], limits: &HeadLimits) -> (Head, Progress) {
        let mut whole = Head::new();
        let progress = whole.feed(input, limits);
        for pieces in splits(input) {
            let mut head = Head::new();
            let (mut seen, mut split) = (0, Progress::Partial);
            for piece in &pieces {
                seen += piece.len();
                split = head.feed(&input[..seen], limits);
                if split != Progress::Partial {
                    break;
                }
            }
            assert_eq!(split, progress, "{} in {} pieces", input.escape_ascii(), pieces.len());
            if let Progress::Done { .. } = progress {
                assert_eq!(facts(&head, input), facts(&whole, input), "{}", input.escape_ascii());
            }
        }
        assert_eq!(whole.feed(input, limits), progress, "the answer stays the same");
        assert_eq!(Head::new().feed_scalar(input, limits), progress, "nor does it hang on vectors");
        (whole, progress)
    }

    /// All properties of a head, as text.
    fn facts(head: &Head, buf: &[u8]) -> String {
        let fields: Vec<_> =
            head.fields(buf).map(|(name, value)| (name.escape_ascii(), value.escape_ascii())).collect();
        format!(
            "{head:?} {} {} {} {:?} {} {} {} {} {} {fields:?}",
            head.method_text(buf).escape_ascii(),
            head.target(buf).escape_ascii(),
            head.path(buf).escape_ascii(),
            head.query(buf).map(<[u8]>::escape_ascii),
            head.host(buf).escape_ascii(),
            head.keep_alive(),
            head.expects_continue(),
            head.expects_unknown(),
            head.upgrade(),
        )
    }

    fn accepted(input: &[u8]) -> Head {
        let (head, progress) = feed_with(input, &HeadLimits::default());
        assert!(matches!(progress, Progress::Done { .. }), "{progress:?}: {}", input.escape_ascii());
        head
    }

    fn refused(input: &[u8]) -> Refusal {
        refused_with(input, &HeadLimits::default())
    }

    fn refused_with(input: &[u8], limits: &HeadLimits) -> Refusal {
        match feed_with(input, limits).1 {
            Progress::Refused(refusal) => refusal,
            other => panic!("{other:?}: {}", input.escape_ascii()),
        }
    }

    /// A GET of `/` with these lines after Host.
    fn with_lines(lines: &str) -> Vec<u8> {
        format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
    }

    fn get(target: &str) -> Vec<u8> {
        format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
    }

    #[test]
    fn a_plain_request_is_read() {
        let input = b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x y\r\n\r\nbody";
        let (head, progress) = feed_with(input, &HeadLimits::default());
        assert_eq!(progress, Progress::Done { head_bytes: input.len() - 4 });
        assert_eq!((head.method(), head.method_text(input)), (Method::Get, &b"GET"[..]));
        assert_eq!(head.target(input), b"/a/b?c=d");
        assert_eq!(head.path(input), b"/a/b");
        assert_eq!(head.query(input), Some(&b"c=d"[..]));
        assert_eq!((head.version(), head.form()), (Version::Http11, TargetForm::Origin));
        assert_eq!(head.host(input), b"example.com:8080");
        assert_eq!(head.framing(), Framing::None);
        assert!(head.keep_alive() && !head.expects_continue() && !head.upgrade() && !head.is_conditional());
        assert_eq!(head.known(input, Known::UserAgent), Some(&b"x y"[..]));
        assert_eq!(head.field(input, "uSER-aGENT"), Some(&b"x y"[..]));
        assert_eq!(head.known(input, Known::Cookie), None);
        assert_eq!(head.len(), 2);
    }

    #[test]
    fn a_head_without_any_field_is_read_in_http10() {
        let head = accepted(b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!(head.version(), Version::Http10);
        assert!(head.is_empty() && !head.keep_alive());
        assert_eq!(head.host(b"GET / HTTP/1.0\r\n\r\n"), b"");
    }

    #[test]
    fn a_request_split_anywhere_is_the_same_request() {
        // `accepted` feeds the input in every possible split, and this input uses most features.
        let input =
            b"\r\n\r\nPOST http://u.example:81/p?q HTTP/1.1\r\nhost:\t a \t\r\nConnection: close, x\r\n\
            Content-Length: 10\r\nExpect: 100-Continue\r\nX-Empty:\r\nCookie: a=b\r\ncookie: c=d\r\n\r\n";
        let head = accepted(input);
        assert_eq!(head.framing(), Framing::Length(10));
        assert_eq!(head.host(input), b"u.example:81");
        assert!(!head.keep_alive() && head.expects_continue());
        let cookies: Vec<_> = head.all(input, Known::Cookie).collect();
        assert_eq!(cookies, [b"a=b", b"c=d"]);
        assert_eq!(head.known(input, Known::Cookie), Some(&b"a=b"[..]));
        assert_eq!(head.single(input, Known::Cookie), None);
        assert_eq!(head.single(input, Known::Expect), Some(&b"100-Continue"[..]));
        assert_eq!(head.field(input, "x-empty"), Some(&b""[..]));
    }

    #[test]
    fn pipelined_heads_are_read_one_after_the_other_with_one_head() {
        let one = b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\nRange: bytes=0-\r\n\r\n";
        let two = b"HEAD /2?x HTTP/1.1\r\nHost: b\r\n\r\n";
        let both = [&one[..], two].concat();
        let mut head = Head::new();
        assert_eq!(head.feed(&both, &HeadLimits::default()), Progress::Done { head_bytes: one.len() });
        head.reset();
        let rest = &both[one.len()..];
        assert_eq!(head.feed(rest, &HeadLimits::default()), Progress::Done { head_bytes: two.len() });
        assert_eq!(head.path(rest), b"/2");
        assert_eq!(head.host(rest), b"b");
        assert_eq!(head.framing(), Framing::None);
        assert!(head.keep_alive() && !head.is_conditional());
        assert_eq!(head.len(), 1);
    }

    #[test]
    fn up_to_two_empty_lines_come_before_a_request() {
        accepted(b"\r\nGET / HTTP/1.0\r\n\r\n");
        accepted(b"\r\n\r\nGET / HTTP/1.0\r\n\r\n");
        assert_eq!(refused(b"\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n"), Refusal::EmptyLines);
        assert_eq!(refused(b"\nGET / HTTP/1.0\r\n\r\n"), Refusal::BareLf);
        assert_eq!(refused(b"\r\rGET / HTTP/1.0\r\n\r\n"), Refusal::BareCr);
    }

    #[test]
    fn methods_are_tokens_and_unknown_ones_are_left_to_the_server() {
        for (text, method) in [("get", Method::Other), ("FOOBAR", Method::Other), ("DELETE", Method::Delete)]
        {
            let input = format!("{text} / HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
            let head = accepted(&input);
            assert_eq!((head.method(), head.method_text(&input)), (method, text.as_bytes()));
        }
        assert_eq!(refused(b"G@T / HTTP/1.1\r\n"), Refusal::InvalidMethod);
        assert_eq!(refused(b" GET / HTTP/1.1\r\n"), Refusal::InvalidMethod);
        assert_eq!(refused(b"GET\t/ HTTP/1.1\r\n"), Refusal::InvalidMethod);
        assert_eq!(refused(b"GET\r\n\r\n"), Refusal::InvalidMethod);
        assert_eq!(refused(&[b'A'; 33]), Refusal::MethodTooLong);
        accepted(&[&[b'A'; 32][..], b" / HTTP/1.0\r\n\r\n"].concat());
    }

    #[test]
    fn garbage_is_refused_at_its_first_byte_and_not_at_the_end_of_a_line() {
        assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01"), Refusal::InvalidMethod);
        assert_eq!(refused(b"\0"), Refusal::InvalidMethod);
        assert_eq!(refused(b"GE\xff"), Refusal::InvalidMethod);
        assert_eq!(refused(b"GET /\xff"), Refusal::InvalidTarget);
        assert_eq!(refused(b"GET / HTX"), Refusal::InvalidVersion);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nA\0"), Refusal::InvalidFieldName);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nA: b\0"), Refusal::ControlByte);
        assert_eq!(refused(b"PRI * HTTP/2.0\r\n"), Refusal::UnsupportedVersion);
    }

    #[test]
    fn a_line_whose_target_and_version_are_both_strange_is_no_http() {
        for line in ["INVALID CONNECTION PREFACE", "SSH 2 0", "GET index.html 1.1", "A B \t"] {
            assert_eq!(refused(format!("{line}\r\n\r\n").as_bytes()), Refusal::NotHttp, "{line}");
        }
        for line in ["GET index.html", "GET / PREFACE", "GET http://a b", "GET a HTTQ/1.1"] {
            assert_eq!(refused(format!("{line}\r\n\r\n").as_bytes()), Refusal::InvalidVersion, "{line}");
        }
        assert_eq!(refused(b"GET index.html HTTP/1.1\r\n\r\n"), Refusal::TargetForm);
    }

    #[test]
    fn versions_are_exactly_two_digits_with_major_one() {
        assert_eq!(accepted(b"GET / HTTP/1.2\r\nHost: a\r\n\r\n").version(), Version::Http11);
        assert_eq!(accepted(b"GET / HTTP/1.9\r\nHost: a\r\n\r\n").version(), Version::Http11);
        for version in [
            "HTTP/1.1x",
            "HTTP/1,1",
            "HTTP/11",
            "HTTP/1.",
            "HTTQ/1.1",
            "HTTP/1.10",
            "http/1.1",
            "HTTP /1.1",
            "HTTP/0.9",
            "HTTP/1.1 ",
            "",
            "\t",
            "HTTP/1.1\t",
            "HTTP/a.1",
            "HTTP/1.a",
        ] {
            let refusal = refused(format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!(refusal, Refusal::InvalidVersion, "{version}");
        }
        for version in ["HTTP/2.0", "HTTP/9.9", "HTTP/3.0"] {
            let refusal = refused(format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!((refusal, refusal.status()), (Refusal::UnsupportedVersion, 505), "{version}");
        }
        assert_eq!(refused(b"GET /file.txt\r\n"), Refusal::InvalidVersion, "HTTP/0.9");
        assert_eq!(refused(b"GET / HTTP/1.1\nHost: a\n\n"), Refusal::BareLf);
        assert_eq!(refused(b"GET / HTTP/1.1\rHost: a\r\n\r\n"), Refusal::BareCr);
        assert_eq!(refused(b"GET / HTTP/1.1\r\r\n\r\n"), Refusal::BareCr);
        assert_eq!(refused(b"GET / HTTP/0.1\r\x0c"), Refusal::InvalidVersion, "the first fault counts");
        assert_eq!(refused(b"GET / HTTP/2.0\r\x0c"), Refusal::BareCr);
    }

    #[test]
    fn targets_hold_uri_characters_only() {
        assert_eq!(refused(b"GET  HTTP/1.1\r\n"), Refusal::TargetMissing);
        assert_eq!(refused(b"GET /fi le.txt HTTP/1.1\r\nHost: a\r\n\r\n"), Refusal::InvalidVersion);
        for target in ["/a\0", "/a\u{7f}", "/a\t", "/é", "/a\\b", "/a#b", "/a?b#c", "/a?\\", "/a\u{1}"] {
            assert_eq!(refused(&get(target)), Refusal::InvalidTarget, "{target:?}");
        }
        for target in ["/a|b", "/^{}<>\"`", "/a?b?c", "/;,=&$!*'()+@:[]", "/%zz", "//x"] {
            let input = get(target);
            assert_eq!(accepted(&input).target(&input), target.as_bytes());
        }
    }

    #[test]
    fn the_form_of_a_target_must_go_with_the_method() {
        let form = |start: &str| {
            let input = format!("{start} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
            match feed_with(&input, &HeadLimits::default()) {
                (head, Progress::Done { .. }) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    Ok((head.form(), text(head.host(&input)), text(head.path(&input))))
                }
                (_, Progress::Refused(refusal)) => Err(refusal),
                (_, Progress::Partial) => panic!("a whole head is not partial"),
            }
        };
        let is = |form, host: &str, path: &str| Ok((form, host.to_owned(), path.to_owned()));
        assert_eq!(form("OPTIONS *"), is(TargetForm::Asterisk, "h", "*"));
        assert_eq!(form("GET *"), Err(Refusal::TargetForm));
        assert_eq!(form("OPTIONS *a"), Err(Refusal::TargetForm));
        assert_eq!(form("GET ../secret.txt"), Err(Refusal::TargetForm));
        assert_eq!(form("GET ?a"), Err(Refusal::TargetForm));
        assert_eq!(form("GET example.com:80"), Err(Refusal::TargetForm));
        assert_eq!(form("CONNECT example.com:80"), is(TargetForm::Authority, "example.com:80", ""));
        assert_eq!(form("CONNECT [::1]:80"), is(TargetForm::Authority, "[::1]:80", ""));
        for target in
            ["example.com", "/", "*", "http://a:1", "example.com:", ":80", "a:1?b", "u@a:1", "a:99999"]
        {
            assert_eq!(form(&format!("CONNECT {target}")), Err(Refusal::TargetForm), "{target}");
        }
        assert_eq!(form("GET http://e.example/p?q"), is(TargetForm::Absolute, "e.example", "/p"));
        assert_eq!(form("GET HTTPS://e.example:1"), is(TargetForm::Absolute, "e.example:1", "/"));
        assert_eq!(form("GET http://e.example?q"), is(TargetForm::Absolute, "e.example", "/"));
        assert_eq!(form("OPTIONS http://e.example"), is(TargetForm::Absolute, "e.example", "*"));
        assert_eq!(form("GET http://x/../s"), is(TargetForm::Absolute, "x", "/../s"));
        assert_eq!(form("GET ftp://e.example/"), Err(Refusal::TargetForm));
        for target in ["http:///p", "http://", "http://?q", "http://u@h/", "http://a:b/", "http://[::1/"] {
            assert_eq!(form(&format!("GET {target}")), Err(Refusal::InvalidHost), "{target}");
        }
    }

    #[test]
    fn an_absolute_target_wins_over_the_host_field_but_does_not_replace_it() {
        let input = b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n";
        assert_eq!(accepted(input).host(input), b"a");
        assert_eq!(refused(b"GET http://a/ HTTP/1.1\r\n\r\n"), Refusal::HostMissing);
    }

    #[test]
    fn http11_needs_exactly_one_valid_host() {
        assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), Refusal::HostMissing);
        assert_eq!(refused(&with_lines("Host: b\r\n")), Refusal::HostRepeated);
        assert_eq!(refused(&with_lines("host: a\r\n")), Refusal::HostRepeated);
        assert_eq!(refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), Refusal::HostRepeated);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nHost:\r\nHost:\r\n\r\n"), Refusal::HostRepeated);
        for host in
            ["a b", "a/b", "u@a", "a:b", "a,b:1:2", "[::1", "a:70000", ":80", "é", "a\"b", "http://a", "a%zz"]
        {
            let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(refused(input.as_bytes()), Refusal::InvalidHost, "{host}");
        }
        for host in ["", "a", "a.b:80", "[::1]", "[2001:db8::1]:8080", "127.0.0.1:8080", "a_b", "a:", "a%20b"]
        {
            let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
            assert_eq!(accepted(&input).host(&input), host.as_bytes());
        }
    }

    #[test]
    fn field_names_match_exactly_and_in_any_case() {
        let input = with_lines("Conn: close\r\nH: b\r\nCONTENT-LENGTH: 4\r\nConnectionX: close\r\n");
        let head = accepted(&input);
        assert!(head.keep_alive(), "Conn is not Connection");
        assert_eq!(head.host(&input), b"a", "H is not Host");
        assert_eq!(head.framing(), Framing::Length(4));
        assert!(!accepted(&with_lines("cOnNeCtIoN: ClOsE\r\n")).keep_alive());
        assert_eq!(head.field(&input, "conn"), Some(&b"close"[..]));
        assert_eq!(head.field(&input, "con"), None);
    }

    #[test]
    fn persistence_follows_the_version_and_the_connection_tokens() {
        let keeps = |version: &str, lines: &str| {
            accepted(format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n").as_bytes()).keep_alive()
        };
        assert!(keeps("1.1", ""));
        assert!(keeps("1.1", "Connection: keep-alive\r\n"));
        assert!(!keeps("1.1", "Connection: close\r\n"));
        assert!(!keeps("1.1", "Connection: keep-alive, close\r\n"));
        assert!(!keeps("1.1", "Connection: x,CLOSE ,\ty\r\n"));
        assert!(!keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
        assert!(keeps("1.1", "Connection: closed\r\n"));
        assert!(keeps("1.1", "Connection: \"close\"\r\n"));
        assert!(!keeps("1.0", ""));
        assert!(keeps("1.0", "connection: Keep-Alive\r\n"));
        assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
        assert!(!keeps("1.0", "Proxy-Connection: keep-alive\r\n"));
    }

    #[test]
    fn upgrade_needs_the_field_and_the_token_and_http11() {
        assert!(accepted(&with_lines("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n")).upgrade());
        assert!(!accepted(&with_lines("Upgrade: websocket\r\n")).upgrade());
        assert!(!accepted(&with_lines("Connection: Upgrade\r\n")).upgrade());
        let old = b"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        assert!(!accepted(old).upgrade());
    }

    #[test]
    fn expectations_are_100_continue_or_unknown() {
        assert!(accepted(&with_lines("Expect: 100-continue\r\n")).expects_continue());
        let unknown = accepted(&with_lines("Expect: bananas\r\n"));
        assert!(!unknown.expects_continue() && unknown.expects_unknown());
        let old = accepted(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
        assert!(!old.expects_continue());
    }

    #[test]
    fn field_lines_that_two_parsers_could_read_differently_are_refused() {
        for (lines, refusal) in [
            ("X-A : b\r\n", Refusal::SpaceBeforeColon),
            ("X-A\t: b\r\n", Refusal::SpaceBeforeColon),
            ("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", Refusal::SpaceBeforeColon),
            ("X\u{1}A: b\r\n", Refusal::InvalidFieldName),
            ("X(A): b\r\n", Refusal::InvalidFieldName),
            ("é: b\r\n", Refusal::InvalidFieldName),
            (": b\r\n", Refusal::EmptyFieldName),
            ("garbage\r\n", Refusal::MissingColon),
            ("X-A: b\n", Refusal::BareLf),
            ("X-A\n", Refusal::BareLf),
            ("\nX: a\r\n", Refusal::BareLf),
            ("X-A: b\rX-B: c\r\n", Refusal::BareCr),
            ("\rX: a\r\n", Refusal::BareCr),
            ("X-A: b\0\r\n", Refusal::ControlByte),
            ("X-A: b\u{7f}\r\n", Refusal::ControlByte),
            ("X-A: b\u{b}c\r\n", Refusal::ControlByte),
            ("X-A: b\r\n c\r\n", Refusal::ObsoleteFold),
            ("X-A: b\r\n\tc\r\n", Refusal::ObsoleteFold),
        ] {
            assert_eq!(refused(&with_lines(lines)), refusal, "{lines:?}");
        }
        assert_eq!(refused(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"), Refusal::LeadingSpace);
        assert_eq!(refused(b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n"), Refusal::ControlByte);
    }

    #[test]
    fn values_are_trimmed_and_otherwise_opaque() {
        let input = b"GET / HTTP/1.1\r\nHost:\t a \t\r\nX-A:  \xe9\xff \t b \r\nX-B:\r\nX-C: \t \r\n\r\n";
        let head = accepted(input);
        let fields: Vec<_> = head.fields(input).collect();
        let expected: [(&[u8], &[u8]); 4] =
            [(b"Host", b"a"), (b"X-A", b"\xe9\xff \t b"), (b"X-B", b""), (b"X-C", b"")];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_content_length_is_one_decimal_number() {
        let length = |value: &str| {
            let input = with_lines(&format!("Content-Length: {value}\r\n"));
            match feed_with(&input, &HeadLimits::default()) {
                (head, Progress::Done { .. }) => Ok(head.framing()),
                (_, Progress::Refused(refusal)) => Err(refusal),
                (_, Progress::Partial) => panic!("a whole head is not partial"),
            }
        };
        assert_eq!(length("0"), Ok(Framing::Length(0)));
        assert_eq!(length("0005"), Ok(Framing::Length(5)));
        assert_eq!(length("18446744073709551615"), Ok(Framing::Length(u64::MAX)));
        for value in
            ["+5", "-5", "0x5", "5a", "5 5", "", "1e1", "5, 6", "5, 5", "5,5", "5.0", "\"5\"", "٥", "5;"]
        {
            assert_eq!(length(value), Err(Refusal::InvalidLength), "{value}");
        }
        for value in ["99999999999999999999999", "18446744073709551616", "18446744073709551621"] {
            assert_eq!(length(value), Err(Refusal::LengthOverflow), "{value}");
        }
        let repeated = with_lines("Content-Length: 5\r\nContent-Length: 5\r\n");
        assert_eq!(refused(&repeated), Refusal::LengthRepeated);
    }

    #[test]
    fn a_transfer_coding_is_exactly_chunked_and_stands_alone() {
        assert_eq!(accepted(&with_lines("Transfer-Encoding: chunked\r\n")).framing(), Framing::Chunked);
        assert_eq!(accepted(&with_lines("transfer-encoding: \t ChunKed \r\n")).framing(), Framing::Chunked);
        for (value, refusal) in [
            ("chunked, chunked", Refusal::InvalidCoding),
            ("gzip", Refusal::InvalidCoding),
            ("identity", Refusal::InvalidCoding),
            ("chunked, gzip", Refusal::InvalidCoding),
            ("\u{a0}chunked", Refusal::InvalidCoding),
            ("\"chunked\"", Refusal::InvalidCoding),
            ("chunked;a=b", Refusal::InvalidCoding),
            ("xchunked", Refusal::InvalidCoding),
            ("chunked chunked", Refusal::InvalidCoding),
            (",", Refusal::InvalidCoding),
            ("", Refusal::InvalidCoding),
            ("chunked,", Refusal::InvalidCoding),
            ("gzip, chunked", Refusal::UnsupportedCoding),
            ("foo;bar=\"a,b\", chunked", Refusal::UnsupportedCoding),
        ] {
            let input = with_lines(&format!("Transfer-Encoding: {value}\r\n"));
            assert_eq!(refused(&input), refusal, "{value:?}");
        }
        let chunked = "Transfer-Encoding: chunked\r\n";
        assert_eq!(refused(&with_lines(&format!("{chunked}{chunked}"))), Refusal::CodingRepeated);
        let length = "Content-Length: 5\r\n";
        assert_eq!(refused(&with_lines(&format!("{length}{chunked}"))), Refusal::LengthWithCoding);
        assert_eq!(refused(&with_lines(&format!("{chunked}{length}"))), Refusal::LengthWithCoding);
        let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(refused(old), Refusal::CodingInHttp10);
    }

    #[test]
    fn a_target_over_the_limit_is_414_and_one_at_the_limit_is_not() {
        let limits = HeadLimits { uri_bytes: 10, ..HeadLimits::default() };
        let target = |bytes: usize| get(&format!("/{}", "a".repeat(bytes - 1)));
        assert!(matches!(feed_with(&target(10), &limits).1, Progress::Done { .. }));
        assert_eq!(refused_with(&target(11), &limits), Refusal::UriTooLong);
        assert_eq!(
            refused_with(b"GET /aaaaaaaaaaaaaaaaaaaa", &limits),
            Refusal::UriTooLong,
            "before its end"
        );
        assert_eq!(refused_with(&get("/?aaaaaaaaa"), &limits), Refusal::UriTooLong);
        let beyond_head = HeadLimits { uri_bytes: u32::MAX, ..HeadLimits::default() };
        let mut head = Head::new();
        let endless = [&b"GET /"[..], &[b'a'; 100_000]].concat();
        assert_eq!(head.feed(&endless, &beyond_head), Progress::Refused(Refusal::UriTooLong));
    }

    #[test]
    fn a_head_over_the_limit_is_431_and_one_at_the_limit_is_not() {
        let input = with_lines("X-A: 1234567890\r\n");
        let bytes = input.len() as u32;
        let exact = HeadLimits { head_bytes: bytes, ..HeadLimits::default() };
        assert!(matches!(feed_with(&input, &exact).1, Progress::Done { .. }));
        let less = HeadLimits { head_bytes: bytes - 1, ..HeadLimits::default() };
        assert_eq!(refused_with(&input, &less), Refusal::HeadTooLarge);
        let mut followed = input.clone();
        followed.extend_from_slice(&[0; 100]);
        assert!(matches!(feed_with(&followed, &exact).1, Progress::Done { .. }), "the body is not counted");
        let mut head = Head::new();
        let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'a'; 1_000_000]].concat();
        assert_eq!(head.feed(&endless, &HeadLimits::default()), Progress::Refused(Refusal::HeadTooLarge));
        let largest = HeadLimits { head_bytes: u32::MAX, uri_bytes: u32::MAX, fields: u16::MAX };
        let mut head = Head::new();
        assert_eq!(head.feed(&endless, &largest), Progress::Refused(Refusal::HeadTooLarge));
        let widest = [&b"GET / HTTP/1.1\r\nHost:a\r\nX:"[..], &[b'a'; 65_535 - 30], b"\r\n\r\n"].concat();
        let mut head = Head::new();
        assert_eq!(head.feed(&widest, &largest), Progress::Done { head_bytes: 65_535 });
        assert_eq!(head.field(&widest, "x").map(<[u8]>::len), Some(65_535 - 30));
    }

    #[test]
    fn the_number_of_fields_and_the_length_of_a_name_are_limited() {
        let lines = |count: usize| with_lines(&"X-A: b\r\n".repeat(count - 1));
        let limits = HeadLimits { fields: 5, ..HeadLimits::default() };
        assert_eq!(feed_with(&lines(5), &limits).0.len(), 5);
        assert_eq!(refused_with(&lines(6), &limits), Refusal::TooManyFields);
        let most = HeadLimits { fields: u16::MAX, ..HeadLimits::default() };
        let mut head = Head::new();
        let input = lines(usize::from(FIELDS_MAX));
        assert_eq!(head.feed(&input, &most), Progress::Done { head_bytes: input.len() });
        assert_eq!(head.fields(&input).count(), usize::from(FIELDS_MAX));
        head.reset();
        let input = lines(usize::from(FIELDS_MAX) + 1);
        assert_eq!(head.feed(&input, &most), Progress::Refused(Refusal::TooManyFields));
        accepted(&with_lines(&format!("{}: b\r\n", "n".repeat(255))));
        assert_eq!(refused(&with_lines(&format!("{}: b\r\n", "n".repeat(256)))), Refusal::FieldNameTooLong);
    }

    #[test]
    fn the_first_of_the_last_fields_is_found() {
        // The tables hold indices as u8, so the last line must be reachable.
        let lines = "X-A: b\r\n".repeat(usize::from(FIELDS_MAX) - 2) + "Cookie: c\r\n";
        let input = with_lines(&lines);
        let mut head = Head::new();
        let limits = HeadLimits { fields: FIELDS_MAX, ..HeadLimits::default() };
        assert_eq!(head.feed(&input, &limits), Progress::Done { head_bytes: input.len() });
        assert_eq!(head.known(&input, Known::Cookie), Some(&b"c"[..]));
        assert_eq!(head.all(&input, Known::Cookie).count(), 1);
    }

    #[test]
    fn what_is_left_of_a_refused_head_does_not_survive_a_reset() {
        let mut head = Head::new();
        let limits = HeadLimits::default();
        let bad = b"POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\nX : b\r\n\r\n";
        assert_eq!(head.feed(bad, &limits), Progress::Refused(Refusal::SpaceBeforeColon));
        head.reset();
        let good = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n";
        assert_eq!(head.feed(good, &limits), Progress::Done { head_bytes: good.len() });
        let mut fresh = Head::new();
        fresh.feed(good, &limits);
        assert_eq!(facts(&head, good), facts(&fresh, good));
    }

    #[test]
    fn a_head_is_about_a_kilobyte() {
        assert!(size_of::<Head>() <= 1_280, "{}", size_of::<Head>());
    }

    /// `httparse` accepts every head that this parser accepts, with the same contents. (It accepts more, because it is
    /// lenient.)
    fn agrees_with_httparse(input: &[u8]) -> bool {
        let mut head = Head::new();
        let Progress::Done { head_bytes } = head.feed(input, &HeadLimits::default()) else { return false };
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut request = httparse::Request::new(&mut fields);
        let status = request.parse(input).unwrap_or_else(|error| panic!("{error}: {}", input.escape_ascii()));
        assert_eq!(status, httparse::Status::Complete(head_bytes));
        assert_eq!(request.method.map(str::as_bytes), Some(head.method_text(input)));
        assert_eq!(request.path.map(str::as_bytes), Some(head.target(input)));
        assert_eq!(request.version, Some(u8::from(head.version() == Version::Http11)));
        let theirs = request.headers.iter().map(|field| (field.name.as_bytes(), field.value));
        assert!(theirs.eq(head.fields(input)), "{}", input.escape_ascii());
        true
    }

    /// A request with up to three bytes changed, inserted or removed.
    fn mutation(random: &mut Random) -> Vec<u8> {
        let seeds: [&[u8]; 4] = [
            b"GET /a?b HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
            b"\r\nPOST /x HTTP/1.0\r\nContent-Length: 3\r\nX-Y:\r\n\r\nabc",
            b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\nCookie: a=b; c=\"d\"\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost:a\r\nAccess-Control-Request-Headers-And-More: x-a, x-b, x-c, x-d\r\n\r\n",
        ];
        let interesting = b"\r\n\0\t :;,?#/\\%*a1\x7f\x80\xff";
        let mut input = seeds[random.below(seeds.len())].to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(input.len());
            let byte = interesting[random.below(interesting.len())];
            match random.below(3) {
                0 => input[at] = byte,
                1 => input.insert(at, byte),
                _ => drop(input.remove(at)),
            }
        }
        input
    }

    #[test]
    fn what_mutations_of_real_requests_we_accept_httparse_accepts_alike() {
        let seed = 0x5eed_0003;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        let accepted = (0..200_000).filter(|_| agrees_with_httparse(&mutation(&mut random))).count();
        println!("{accepted} of 200000 accepted");
        assert!(accepted > 10_000, "the comparison must not be empty: {accepted}");
    }

    /// All results of one scanner for a whole buffer.
    struct Read<'a>(&'a [u8]);

    impl ScanJob for Read<'_> {
        type Output = (Progress, usize, String);

        fn run<S: Scanner>(self, scanner: S) -> Self::Output {
            let mut head = Head::new();
            let progress = head.feed_by(self.0, &HeadLimits::default(), |feed| feed.run(scanner));
            let facts = match progress {
                Progress::Done { .. } => facts(&head, self.0),
                _ => String::new(),
            };
            (progress, head.line_start(), facts)
        }
    }

    #[test]
    fn every_scanner_finds_the_same_in_mutations_of_real_requests() {
        let seed = 0x5eed_0004;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        for _ in 0..10_000 {
            let input = mutation(&mut random);
            let found = scan::by_each(|| Read(&input));
            for (name, other) in &found[1..] {
                assert_eq!(*other, found[0].1, "{name}: {}", input.escape_ascii());
            }
        }
    }

    #[test]
    fn a_scanner_that_takes_one_byte_for_another_is_found_out() {
        /// Treats DEL as text in lines.
        #[derive(Clone, Copy)]
        struct Careless;

        impl Scanner for Careless {
            fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
                Scalar.skip(class, bytes, from)
            }

            fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
                let text = bytes[from..].iter().take_while(|&&byte| byte == 0x7f || Class::Text.has(byte));
                (Scalar.line(bytes, from).0, text.count())
            }
        }

        let seed = 0x5eed_0005;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        let differs = |input: Vec<u8>| Read(&input).run(Careless) != Read(&input).run(Scalar);
        let count = (0..10_000).filter(|_| differs(mutation(&mut random))).count();
        assert!(count > 20, "what the comparison finds of a planted fault: {count} of 10000");
    }

    proptest! {
        #[test]
        fn requests_made_by_the_grammar_are_accepted_and_read_back(
            method in "[A-Z]{1,12}",
            target in "/[!$-.0-;=@-\\[\\]_a-z~]{0,40}",
            fields in proptest::collection::vec(("[!#-'*+.^_`|~0-9A-Za-z-]{1,30}", "([!-~é]([ -~é]{0,60}[!-~é])?)?"), 0..12),
            spaces in "[ \t]{0,3}",
        ) {
            let deciding = |name: &str| {
                Known::of(name.as_bytes()).is_some_and(|known| known.bit() & DECIDING != 0)
            };
            let fields: Vec<_> = fields.into_iter().filter(|(name, _)| !deciding(name)).collect();
            prop_assume!(method != "CONNECT");
            let mut input = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n");
            for (name, value) in &fields {
                input += &format!("{name}:{spaces}{value}{spaces}\r\n");
            }
            input += "\r\n";
            let head = accepted(input.as_bytes());
            prop_assert_eq!(head.method_text(input.as_bytes()), method.as_bytes());
            prop_assert_eq!(head.target(input.as_bytes()), target.as_bytes());
            let read: Vec<_> = head.fields(input.as_bytes()).skip(1).collect();
            let made: Vec<_> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            prop_assert_eq!(read, made);
            prop_assert!(agrees_with_httparse(input.as_bytes()));
        }
    }
}
