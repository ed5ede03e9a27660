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
#[path = "head_tests.rs"]
mod tests;
