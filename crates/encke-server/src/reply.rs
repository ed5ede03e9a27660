//! Responses of handlers: status, fields and body; and [`Prepared`], the stored form of a response that is sent often.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use encke_io::files::OpenFile;
use encke_io::{Segment, Tuning};
use encke_wire::http1::{self as write, FieldError, HeadField};

/// A response. The server, not the handler, adds `Date`, `Connection` and the framing of the body.
pub struct Reply {
    /// Status code, 200 to 599.
    pub status: u16,
    /// The response's fields.
    pub fields: Fields,
    /// The response's content.
    pub body: Body,
    /// A prepared response that replaces status and content; `fields` are added after its own.
    pub(crate) prepared: Option<Arc<Prepared>>,
    pub(crate) close: bool,
    /// The client sends a body without end, and may not stop after this response.
    pub(crate) amid_endless_body: bool,
    /// The reason of a refusal, for the access log. A thin pointer: a response is moved several times.
    pub(crate) reason: Option<&'static &'static str>,
}

/// The content of a response.
#[non_exhaustive]
pub enum Body {
    /// No content; the length is 0.
    Empty,
    /// Bytes of this response alone.
    Bytes(Vec<u8>),
    /// Bytes that several responses share.
    Shared(Arc<[u8]>),
    /// A range of an open file in bytes, sent by the kernel where the transport allows it.
    File(Arc<OpenFile>, Range<u64>),
    /// Segments in order.
    Segments(Vec<Segment>),
    /// An open response: the handler writes it on the worker with [`HandlerContext::write`](crate::HandlerContext::write) and
    /// [`HandlerContext::finish`](crate::HandlerContext::finish). The length in bytes, or `None` for a framing as for
    /// [`Body::Stream`].
    Open(Option<u64>),
    /// Pulled piece by piece as the client receives it. Chunked with HTTP/1.1; with HTTP/1.0 the connection's end is the
    /// body's.
    Stream(Box<dyn Pull>),
}

/// A body whose length is not known in advance.
///
/// ```
/// use encke_server::{Body, Pull, Pulled, Reply};
///
/// struct Countdown(u8);
///
/// impl Pull for Countdown {
///     fn pull(&mut self, _max: usize, out: &mut Vec<u8>) -> Pulled {
///         if self.0 == 0 {
///             return Pulled::End;
///         }
///         out.extend_from_slice(format!("{}\n", self.0).as_bytes());
///         self.0 -= 1;
///         Pulled::More
///     }
/// }
///
/// let mut out = Vec::new();
/// let mut countdown = Countdown(2);
/// while countdown.pull(1024, &mut out) == Pulled::More {}
/// assert_eq!(out, b"2\n1\n");
/// let reply = Reply::new(200).body(Body::Stream(Box::new(Countdown(2))));
/// assert_eq!(reply.body.len(), None, "sent in chunks");
/// ```
pub trait Pull: Send {
    /// Appends at most `max` bytes to `out`. Called again only when the transport can send.
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled;

    /// Returns the trailer fields (RFC 9110 §6.5); called once after the content. HTTP/2 clients receive them, and HTTP/1.1
    /// clients after the last chunk. HTTP/1.0 has no trailers, and any client may drop them.
    fn trailers(&mut self) -> Fields {
        Fields::new()
    }

    /// Returns limits for the connection, for content that ages while the kernel holds it; called once, before the content.
    /// Without them the kernel takes some megabytes for a client that does not read.
    fn tuning(&self) -> Option<Tuning> {
        None
    }
}

/// The result of a call of [`Pull::pull`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulled {
    /// There may be more now.
    More,
    /// No data until [`crate::WakeStream::wake`].
    Pending,
    /// The body is complete.
    End,
    /// The body cannot be completed: the connection is reset, so that the client does not mistake it for complete.
    Failed,
}

impl Reply {
    /// Creates a response without fields or content.
    pub fn new(status: u16) -> Self {
        debug_assert!((200..600).contains(&status));
        Self {
            status,
            fields: Fields::new(),
            body: Body::Empty,
            prepared: None,
            close: false,
            amid_endless_body: false,
            reason: None,
        }
    }

    /// Creates a plain-text response.
    ///
    /// ```
    /// use encke_server::Reply;
    ///
    /// let reply = Reply::text(404, "no such order\n").with("Cache-Control", "no-store");
    /// assert_eq!(reply.fields.value("cache-control"), Some(&b"no-store"[..]));
    /// assert_eq!(reply.body.len(), Some(14));
    /// ```
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self::new(status)
            .with("Content-Type", "text/plain; charset=utf-8")
            .body(Body::Bytes(text.into().into_bytes()))
    }

    /// Creates the plain-text response that names a status, for example `404 Not Found`.
    pub fn error(status: u16) -> Self {
        Self::text(status, format!("{status} {}\n", encke_wire::status::reason(status)))
            .with("X-Content-Type-Options", "nosniff")
    }

    /// Creates a response from a prepared one.
    pub fn prepared(prepared: Arc<Prepared>) -> Self {
        Self {
            status: prepared.status,
            fields: Fields::new(),
            body: Body::Empty,
            prepared: Some(prepared),
            close: false,
            amid_endless_body: false,
            reason: None,
        }
    }

    /// Returns the same response with its own fields and content, so that they can be changed. Other responses are returned as
    /// they are.
    #[must_use]
    pub fn unprepared(self) -> Self {
        let Some(prepared) = self.prepared.clone() else { return self };
        let mut fields = prepared.fields.clone();
        fields.extend(&self.fields);
        let body = match &prepared.content {
            PreparedContent::Block => Body::Bytes(prepared.block[prepared.content_at..].to_vec()),
            PreparedContent::Shared(bytes) => Body::Shared(Arc::clone(bytes)),
            PreparedContent::File(file, range) => Body::File(Arc::clone(file), range.clone()),
        };
        Self { status: prepared.status, fields, body, prepared: None, ..self }
    }

    /// Adds the fields of guards. With a cookie of one client in them, no cache may store the response.
    pub(crate) fn add_guard_fields(&mut self, fields: &Fields) {
        if fields.value("Set-Cookie").is_some() {
            self.forbid_storing();
        }
        self.fields.extend(fields);
    }

    #[cold]
    fn forbid_storing(&mut self) {
        let reply = std::mem::replace(self, Self::new(self.status)).unprepared();
        *self = Self { fields: reply.fields.unstorable(), ..reply };
    }

    /// Adds a field whose name and value come from this program.
    ///
    /// # Panics
    /// The name is no token or the value has control characters: use [`Fields::push`] for values from outside.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value.as_ref()).expect("a field of this program's own is well formed");
        self
    }

    /// Sets the content.
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Sets the reason of a refusal for the access log: a short name in `snake_case`, or the rule or limit in plain words.
    ///
    /// ```
    /// use encke_server::Reply;
    ///
    /// let _refusal = Reply::error(429).because(&"too_many_orders");
    /// ```
    #[must_use]
    pub fn because(mut self, reason: &'static &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Returns the reason that [`Reply::because`] has set.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason.copied()
    }

    /// Returns the reason for another reply: [`Reply::because`].
    pub const fn cause(&self) -> Option<&'static &'static str> {
        self.reason
    }

    /// States that the client sends a body without end. If the connection closes after this response, the rest of that body is read
    /// for `limits.linger_time` only: a client that has not stopped by then reads the response late or never.
    #[must_use]
    pub fn amid_endless_body(mut self) -> Self {
        self.amid_endless_body = true;
        self
    }

    /// Closes the connection after this response.
    #[must_use]
    pub fn and_close(mut self) -> Self {
        self.close = true;
        self
    }
}

impl Body {
    /// Length in bytes, if it is known.
    pub fn len(&self) -> Option<u64> {
        Some(match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Shared(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
            Self::Segments(segments) => segments.iter().map(Segment::len).sum(),
            Self::Open(length) => return *length,
            Self::Stream(_) => return None,
        })
    }

    /// Whether the length is known to be 0.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// Header fields in order, stored as the lines that HTTP/1 sends: appending a field allocates only capacity.
#[derive(Clone, Default)]
pub struct Fields {
    /// INVARIANT: zero or more `name: value CRLF`, each name a token, no value with CR, LF or NUL.
    lines: Vec<u8>,
}

impl Fields {
    /// Creates an empty set of fields.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Creates an empty set with room for lines of this length in bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { lines: Vec::with_capacity(bytes) }
    }

    /// Adds a field.
    ///
    /// ```
    /// use encke_server::Fields;
    ///
    /// let mut fields = Fields::new();
    /// fields.push("Location", b"/orders/7")?;
    /// assert!(fields.push("Location", b"/\r\nSet-Cookie: a=b").is_err());
    /// assert_eq!(fields.lines(), b"Location: /orders/7\r\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The name is no token, or the value has characters that no field value may have (RFC 9110 §5.5). This prevents response
    /// splitting.
    pub fn push(&mut self, name: &str, value: &[u8]) -> Result<(), FieldError> {
        write::put_field(&mut self.lines, name, value)
    }

    /// Adds a field of a head that was parsed, and so checked.
    pub fn push_parsed(&mut self, field: &HeadField<'_>) {
        field.put(&mut self.lines);
    }

    /// Adds a field whose value is a number.
    pub fn push_number(&mut self, name: &'static str, number: u64) {
        write::put_field_number(&mut self.lines, name, number);
    }

    /// Returns the name and value of each field.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split(|&byte| byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
        })
    }

    /// Returns the first value of a field. Names are compared case-insensitively.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Adds all fields of another set.
    pub fn extend(&mut self, other: &Self) {
        self.lines.extend_from_slice(&other.lines);
    }

    /// Returns the fields with `Cache-Control: private, no-store` in place of all rules for caches, those for shared caches
    /// (RFC 9213) included.
    #[cold]
    pub(crate) fn unstorable(&self) -> Self {
        let mut fields = Self::with_capacity(self.len_bytes());
        for line in self.lines.split_inclusive(|&byte| byte == b'\n') {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default().to_ascii_lowercase();
            let is_rule =
                name.ends_with(b"cache-control") || name == b"surrogate-control" || name == b"expires";
            if !is_rule {
                fields.push_lines(line);
            }
        }
        fields.push_lines(b"Cache-Control: private, no-store\r\n");
        fields
    }

    /// Length of all field lines in bytes, as HTTP/1 sends them.
    pub fn len_bytes(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines as HTTP/1 sends them.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Adds lines that this program wrote, each ended by CRLF, in the form of [`Fields::lines`].
    ///
    /// # Panics
    /// With debug assertions: the lines are malformed.
    pub fn push_lines(&mut self, lines: &[u8]) {
        self.lines.extend_from_slice(lines);
        debug_assert!(lines.is_empty() || lines.ends_with(b"\r\n"), "{}", lines.escape_ascii());
        debug_assert!(!lines.contains(&0) && !lines.windows(4).any(|end| end == b"\r\n\r\n"));
    }

    /// Returns the lines, to append well-formed ones.
    pub(crate) fn lines_mut(&mut self) -> &mut Vec<u8> {
        &mut self.lines
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(name, value)| (String::from_utf8_lossy(name), String::from_utf8_lossy(value))),
            )
            .finish()
    }
}

/// A response that is built once and sent often: the entry of a cache for small or frequently requested files.
///
/// ```text
/// block   HTTP/1.1 200 OK CRLF │ Date: ………29 bytes……… CRLF │ fields, Content-Length │ CRLF │ content, if small
///                              date_at                      fields_end ─┘             └─ content_at
/// ```
/// A warm request for a small file costs one copy of the block; the date is then overwritten.
pub struct Prepared {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) block: Vec<u8>,
    pub(crate) date_at: usize,
    pub(crate) fields_end: usize,
    pub(crate) content_at: usize,
    pub(crate) content: PreparedContent,
}

/// The content of a [`Prepared`] response.
#[derive(Clone, Debug)]
pub enum ContentView<'a> {
    /// Bytes in memory.
    Memory(&'a [u8]),
    /// A range of a file, in bytes.
    File(&'a Arc<OpenFile>, Range<u64>),
}

/// The storage of a [`Prepared`] response's content.
pub(crate) enum PreparedContent {
    /// At the end of the block.
    Block,
    /// In separate memory, sent without a copy.
    Shared(Arc<[u8]>),
    /// In a file.
    File(Arc<OpenFile>, Range<u64>),
}

/// Content up to this size in bytes is stored in the block and copied with it. At 1 KiB one copied send is 1.4 times as fast as
/// sendfile(2); at 16 KiB sendfile(2) is 1.2 times as fast (bench/RESULTS.md).
pub const BLOCK_CONTENT_MAX: usize = 8 * 1024;

impl Prepared {
    /// Prepares a response with its own copy of the content.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use encke_server::{ContentView, Fields, Prepared, Reply};
    ///
    /// let hello = Arc::new(Prepared::memory(200, Fields::new(), b"hello"));
    /// assert!(matches!(hello.content(), ContentView::Memory(b"hello")));
    /// let replies = [Reply::prepared(Arc::clone(&hello)), Reply::prepared(hello)];
    /// assert!(replies.iter().all(|reply| reply.status == 200));
    /// ```
    pub fn memory(status: u16, fields: Fields, content: &[u8]) -> Self {
        let len = content.len() as u64;
        if content.len() <= BLOCK_CONTENT_MAX {
            Self::assemble(status, fields, len, content, PreparedContent::Block)
        } else {
            Self::assemble(status, fields, len, &[], PreparedContent::Shared(content.into()))
        }
    }

    /// Prepares a response whose content is shared with other owners. Small content is copied instead.
    pub fn shared(status: u16, fields: Fields, content: Arc<[u8]>) -> Self {
        if content.len() <= BLOCK_CONTENT_MAX {
            return Self::memory(status, fields, &content);
        }
        Self::assemble(status, fields, content.len() as u64, &[], PreparedContent::Shared(content))
    }

    /// Prepares a response whose content is a range of a file, in bytes.
    pub fn file(status: u16, fields: Fields, file: Arc<OpenFile>, range: Range<u64>) -> Self {
        let len = range.end - range.start;
        Self::assemble(status, fields, len, &[], PreparedContent::File(file, range))
    }

    fn assemble(status: u16, fields: Fields, len: u64, inline: &[u8], content: PreparedContent) -> Self {
        let mut block = Vec::with_capacity(128 + fields.lines.len() + inline.len());
        write::put_status_line(&mut block, status);
        block.extend_from_slice(b"Date: ");
        let date_at = block.len();
        block.extend_from_slice(&[b' '; encke_wire::date::DATE_BYTES]);
        block.extend_from_slice(b"\r\n");
        block.extend_from_slice(&fields.lines);
        if status != 304 {
            write::put_field_number(&mut block, "Content-Length", len);
        }
        let fields_end = block.len();
        block.extend_from_slice(b"\r\n");
        let content_at = block.len();
        block.extend_from_slice(inline);
        block.shrink_to_fit();
        Self { status, fields, block, date_at, fields_end, content_at, content }
    }

    /// Returns the response's fields, without the fields that the server adds.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Length of the content in bytes.
    pub fn len(&self) -> u64 {
        match &self.content {
            PreparedContent::Block => (self.block.len() - self.content_at) as u64,
            PreparedContent::Shared(bytes) => bytes.len() as u64,
            PreparedContent::File(_, range) => range.end - range.start,
        }
    }

    /// Whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the content where it is stored.
    pub fn content(&self) -> ContentView<'_> {
        match &self.content {
            PreparedContent::Block => ContentView::Memory(&self.block[self.content_at..]),
            PreparedContent::Shared(bytes) => ContentView::Memory(bytes),
            PreparedContent::File(file, range) => ContentView::File(file, range.clone()),
        }
    }

    /// Memory that this response occupies in bytes, for the accounting of caches.
    pub fn memory_bytes(&self) -> usize {
        let shared = if let PreparedContent::Shared(bytes) = &self.content { bytes.len() } else { 0 };
        size_of::<Self>() + self.block.capacity() + self.fields.lines.capacity() + shared
    }
}
