//! What a handler answers: status, fields, body; and the block in which a ready-made answer is kept.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use encke_io::Segment;
use encke_io::files::OpenFile;
use encke_wire::http1::{self as write, FieldError};

/// An answer. `Date`, `Connection` and the framing of the body are the server's, not the handler's.
pub struct Reply {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Fields of the answer.
    pub fields: Fields,
    /// Its content.
    pub body: Body,
    /// A ready-made answer, in place of status and content; the fields go behind its own.
    pub(crate) prepared: Option<Arc<Prepared>>,
    pub(crate) close: bool,
}

/// The content of an answer.
#[non_exhaustive]
pub enum Body {
    /// None, and its length is 0.
    Empty,
    /// Bytes of this answer alone.
    Bytes(Vec<u8>),
    /// Bytes that several answers share.
    Shared(Arc<[u8]>),
    /// A range of an open file, copied by the kernel where the transport allows it.
    File(Arc<OpenFile>, Range<u64>),
    /// Pieces in order.
    Segments(Vec<Segment>),
    /// Written by its handler on the worker, with [`HandlerContext::write`](crate::HandlerContext::write) and
    /// [`HandlerContext::finish`](crate::HandlerContext::finish): of this length, or without one, as for [`Body::Stream`].
    Open(Option<u64>),
    /// Pulled piece by piece as the client takes it; chunked, or to the end of the connection for HTTP/1.0.
    Stream(Box<dyn Pull>),
}

/// A body whose length is not known when it begins.
pub trait Pull: Send {
    /// Appends at most `max` bytes to `out`. Asked again only when the transport can send.
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled;

    /// Fields behind the content (RFC 9110 §6.5), asked for once it has ended. They go to clients of HTTP/2, and of
    /// HTTP/1.1 behind the last chunk; HTTP/1.0 has no place for them, and any client may drop them.
    fn trailers(&mut self) -> Fields {
        Fields::new()
    }
}

/// What a [`Pull`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulled {
    /// There may be more now.
    More,
    /// Nothing more until [`crate::WakeStream::wake`].
    Pending,
    /// That was all.
    End,
    /// It cannot be finished: the connection is reset, so that the client does not take it for whole.
    Failed,
}

impl Reply {
    /// An answer without fields or content.
    pub fn new(status: u16) -> Self {
        debug_assert!((200..600).contains(&status));
        Self { status, fields: Fields::new(), body: Body::Empty, prepared: None, close: false }
    }

    /// An answer of plain text.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self::new(status)
            .with("Content-Type", "text/plain; charset=utf-8")
            .body(Body::Bytes(text.into().into_bytes()))
    }

    /// The plain answer that says what a status means.
    pub fn error(status: u16) -> Self {
        Self::text(status, format!("{status} {}\n", encke_wire::status::reason(status)))
            .with("X-Content-Type-Options", "nosniff")
    }

    /// A ready-made answer.
    pub fn prepared(prepared: Arc<Prepared>) -> Self {
        Self {
            status: prepared.status,
            fields: Fields::new(),
            body: Body::Empty,
            prepared: Some(prepared),
            close: false,
        }
    }

    /// Adds a field whose name and value are this program's own.
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

    /// Has the connection closed after this answer.
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

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// Fields in order, kept as the lines in which HTTP/1 sends them: appending one allocates nothing but room.
#[derive(Clone, Default)]
pub struct Fields {
    /// INVARIANT: zero or more `name: value CRLF`, each name a token, no value with CR, LF or NUL.
    lines: Vec<u8>,
}

impl Fields {
    /// No fields.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// The name is no token, or the value has characters that no field may have (RFC 9110 §5.5): an answer can
    /// therefore not be split.
    pub fn push(&mut self, name: &str, value: &[u8]) -> Result<(), FieldError> {
        write::put_field(&mut self.lines, name, value)
    }

    /// Adds a field whose value is a number.
    pub fn push_number(&mut self, name: &'static str, number: u64) {
        write::put_field_number(&mut self.lines, name, number);
    }

    /// Every field, name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split(|&byte| byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
        })
    }

    /// The first value of a field; names are compared without regard to case.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Adds every field of another set.
    pub fn extend(&mut self, other: &Self) {
        self.lines.extend_from_slice(&other.lines);
    }

    /// Bytes of all fields, as HTTP/1 sends them.
    pub fn len_bytes(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines as HTTP/1 sends them.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Adds lines that this program has written itself, each ended by CRLF, as [`Fields::lines`] has them.
    ///
    /// # Panics
    /// With debug assertions: they are no well-formed lines.
    pub fn push_lines(&mut self, lines: &[u8]) {
        self.lines.extend_from_slice(lines);
        debug_assert!(lines.is_empty() || lines.ends_with(b"\r\n"), "{}", lines.escape_ascii());
        debug_assert!(!lines.contains(&0) && !lines.windows(4).any(|end| end == b"\r\n\r\n"));
    }

    /// The lines, to append well-formed ones.
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

/// An answer made once and sent often: what a cache of small or hot files holds.
///
/// ```text
/// block   HTTP/1.1 200 OK CRLF │ Date: ………29 bytes……… CRLF │ fields, Content-Length │ CRLF │ content, if small
///                              date_at                      fields_end ─┘             └─ content_at
/// ```
/// A warm request for a small file is one copy of the block, with the date written over.
pub struct Prepared {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) block: Vec<u8>,
    pub(crate) date_at: usize,
    pub(crate) fields_end: usize,
    pub(crate) content_at: usize,
    pub(crate) content: PreparedContent,
}

/// The content of a [`Prepared`] answer.
#[derive(Clone, Debug)]
pub enum ContentView<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// A range of a file.
    File(&'a Arc<OpenFile>, Range<u64>),
}

/// Where the content of a [`Prepared`] answer lies.
pub(crate) enum PreparedContent {
    /// At the end of the block.
    Block,
    /// In memory of its own, sent without a copy.
    Shared(Arc<[u8]>),
    /// In a file.
    File(Arc<OpenFile>, Range<u64>),
}

/// Content up to this size is kept in the block and copied with it. Measured here: one copied send beats
/// sendfile(2) by 1.4 at 1 KiB, and loses to it by 1.2 at 16 KiB (bench/RESULTS.md).
pub const BLOCK_CONTENT_MAX: usize = 8 * 1024;

impl Prepared {
    /// Prepares an answer whose content is in memory.
    pub fn memory(status: u16, fields: Fields, content: &[u8]) -> Self {
        let len = content.len() as u64;
        if content.len() <= BLOCK_CONTENT_MAX {
            Self::assemble(status, fields, len, content, PreparedContent::Block)
        } else {
            Self::assemble(status, fields, len, &[], PreparedContent::Shared(content.into()))
        }
    }

    /// Prepares an answer whose content is in memory that others hold, too.
    pub fn shared(status: u16, fields: Fields, content: Arc<[u8]>) -> Self {
        if content.len() <= BLOCK_CONTENT_MAX {
            return Self::memory(status, fields, &content);
        }
        Self::assemble(status, fields, content.len() as u64, &[], PreparedContent::Shared(content))
    }

    /// Prepares an answer whose content is a range of a file.
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

    /// Its fields, without those that the server adds.
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

    /// The content, where it lies.
    pub fn content(&self) -> ContentView<'_> {
        match &self.content {
            PreparedContent::Block => ContentView::Memory(&self.block[self.content_at..]),
            PreparedContent::Shared(bytes) => ContentView::Memory(bytes),
            PreparedContent::File(file, range) => ContentView::File(file, range.clone()),
        }
    }

    /// Bytes of memory it holds, for the caches' accounts.
    pub fn memory_bytes(&self) -> usize {
        let shared = if let PreparedContent::Shared(bytes) = &self.content { bytes.len() } else { 0 };
        size_of::<Self>() + self.block.capacity() + self.fields.lines.capacity() + shared
    }
}
