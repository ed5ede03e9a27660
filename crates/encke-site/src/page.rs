//! A page: a file as representations in each coding, and the response to a request for it.
//!
//! ```text
//!              ┌ plain   ETag "1a2b-400-17…"     always
//!   Page ──────┼ br      ETag "…-br"             if there is a sibling FILE.br
//!              ├ zst     ETag "…-zst"            a sibling, or compressed on the fly once that is done
//!              └ gz      ETag "…-gz"             as zst
//!
//!   request ─► which coding? ─► conditions ─► 412 · 304 · ranges? ─► 416 · 206 · 200
//! ```
//! Each coding is a representation with its own tag and length. Conditions apply to the representation that would be sent.
//! Ranges are served from the plain file and from siblings. They are never served from content compressed on the fly, whose
//! bytes differ after each start. A client that refuses the plain file (`identity;q=0`) and accepts no other available coding
//! receives the plain file anyway: that helps more than an error.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use encke_io::Segment;
use encke_io::files::Metadata;
use encke_wire::coding::{AcceptEncoding, Coding};
use encke_wire::conditional::{self, ConditionResult, EntityTag, Validators};
use encke_wire::date::imf_fixdate;
use encke_wire::field::Known;
use encke_wire::method::Method;
use encke_wire::range::{self, ByteRange, Multipart, Ranges};

use super::file_check::{self, PageFiles};
use super::find::{Content, FileVariant, Leaf, SIBLINGS};
use super::rules::{PathPolicy, RuleSet};
use super::settings::TagSource;
use super::status_error::StatusError;
use encke_server::{Body, ContentView, Fields, Prepared, Reply, Request};

/// A file in each of its codings.
#[derive(Clone)]
pub(super) struct Page {
    plain: Rc<Representation>,
    /// In the order of [`SIBLINGS`].
    coded: [Option<Rc<Representation>>; 3],
    /// Codings that are available.
    ready: Codings,
    /// Codings that are available as files.
    siblings: Codings,
    /// Codings that could be made on the fly, unless compression was found to be useless.
    possible: Codings,
    /// The fields that the rules add to every response.
    pub(super) fields: Fields,
    cache_control: String,
    /// The metadata of the plain file.
    metadata: Metadata,
    /// The files above, for checks that they are unchanged.
    pub(super) files: Rc<PageFiles>,
    /// The time of the next look-up, in ns of the monotonic clock. Until then checks of the files suffice.
    pub(super) look_up_ns: u64,
}

/// A file in one coding: prepared responses and their validators.
pub(super) struct Representation {
    /// The complete response, with status 200.
    whole: Arc<Prepared>,
    /// The 304 response, created when the first client needs it.
    unchanged: OnceCell<Arc<Prepared>>,
    opaque: Vec<u8>,
    /// The file's timestamps are so recent that another change might not alter them (RFC 9110 §8.8.1).
    weak: bool,
    modified_s: Option<u64>,
}

/// A set of codings of [`SIBLINGS`], as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Codings(u8);

impl Codings {
    pub(super) const NONE: Self = Self(0);

    /// The codings that can be made on the fly. (Brotli is worth its time only when made in advance.)
    #[cfg(feature = "zstd")]
    const MADE: Self = Self(0b110);
    #[cfg(not(feature = "zstd"))]
    const MADE: Self = Self(0b100);

    pub(super) const fn of(coding: Coding) -> Self {
        match coding {
            Coding::Identity => Self::NONE,
            other => Self(1 << other as u8),
        }
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) const fn has(self, coding: Coding) -> bool {
        self.0 & Self::of(coding).0 != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A client's preferred coding for each set of codings available in addition to the plain file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taste {
    best: [Coding; 8],
}

impl Taste {
    /// A client that names no coding.
    pub(super) const PLAIN: Self = Self { best: [Coding::Identity; 8] };

    /// Parses the values of all Accept-Encoding lines.
    pub(super) fn of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let accepted = AcceptEncoding::of(lines);
        let mut taste = Self::PLAIN;
        for (set, best) in taste.best.iter_mut().enumerate() {
            let set = Codings(set as u8);
            let mut offered = [Coding::Identity; 4];
            let mut count = 0;
            for coding in
                Coding::ALL.into_iter().filter(|&coding| coding == Coding::Identity || set.has(coding))
            {
                offered[count] = coding;
                count += 1;
            }
            *best = accepted.best(&offered[..count]).unwrap_or(Coding::Identity);
        }
        taste
    }

    const fn best(&self, offered: Codings) -> Coding {
        self.best[offered.index()]
    }
}

impl Page {
    /// Prepares the responses for a file. `now_unix_ns` is in ns since 1970.
    pub(super) fn of(leaf: Leaf, policy: PathPolicy, rules: &RuleSet, now_unix_ns: u64) -> Self {
        let Leaf { media_type, plain, coded, files } = leaf;
        let special = &policy.special;
        // A rule that gives the file another type describes the file as it is.
        let retyped = special.content_type.as_ref().is_some_and(|name| !name.starts_with(media_type.name));
        let coding = if retyped { Coding::Identity } else { media_type.coding };
        let metadata = plain.metadata;
        let has_siblings = coded.iter().any(Option::is_some);
        let may_compress = rules.compression.on_the_fly
            && !has_siblings
            && coding == Coding::Identity
            && special.compress.unwrap_or_else(|| rules.compression.has_type(media_type.name))
            && (rules.compression.min..=rules.compression.max).contains(&metadata.len);
        let cache_control = policy.cache_control.unwrap_or_else(|| "no-cache".into());
        let shape = CommonFields {
            content_type: special.content_type.clone().unwrap_or_else(|| media_type.value()),
            varies: has_siblings || may_compress,
            download: special.download == Some(true),
            sniffable: policy.sniffable,
            cache_control: &cache_control,
            fields: &policy.fields,
            etag: rules.etag,
            now_unix_ns,
        };
        let plain = Rc::new(shape.representation(plain, coding, Coding::Identity));
        let mut page = Self {
            plain,
            coded: [None, None, None],
            ready: Codings::NONE,
            siblings: Codings::NONE,
            possible: if may_compress { Codings::MADE } else { Codings::NONE },
            fields: Fields::new(),
            cache_control: String::new(),
            metadata,
            files: Rc::new(files),
            look_up_ns: 0,
        };
        for ((slot, part), coding) in page.coded.iter_mut().zip(coded).zip(SIBLINGS) {
            if let Some(part) = part {
                *slot = Some(Rc::new(shape.representation(part, coding, coding)));
                page.siblings = page.siblings.with(Codings::of(coding));
            }
        }
        page.ready = page.siblings;
        page.cache_control = cache_control;
        page.fields = policy.fields;
        page
    }

    /// The complete response for a request without conditions or ranges; and the coding to make for later requests.
    #[inline]
    pub(super) fn whole(&self, taste: impl FnOnce() -> Taste) -> (&Arc<Prepared>, Option<Coding>) {
        let offered = self.ready.with(self.possible);
        if offered.is_empty() {
            return (&self.plain.whole, None);
        }
        let taste = taste();
        let best = taste.best(offered);
        if best == Coding::Identity || self.ready.has(best) {
            return (&self.representation(best).whole, None);
        }
        (&self.representation(taste.best(self.ready)).whole, Some(best))
    }

    /// Responds to a request that may have conditions or ranges; and returns the coding to make for later requests.
    pub(super) fn answer(
        &self,
        request: &Request<'_>,
        taste: Taste,
        boundary: u128,
    ) -> (Reply, Option<Coding>) {
        let wants_part = request.method() == Method::Get && request.known(Known::Range).is_some();
        let offered = if wants_part { self.siblings } else { self.ready.with(self.possible) };
        let best = taste.best(offered);
        let (chosen, wanted) = if best == Coding::Identity || self.ready.has(best) {
            (self.representation(best), None)
        } else {
            (self.representation(taste.best(self.ready)), Some(best))
        };
        match conditional::evaluate(&request.conditions(), request.method(), &chosen.validators()) {
            ConditionResult::PreconditionFailed => (self.fault(412).reply(request), None),
            ConditionResult::NotModified => (Reply::prepared(Arc::clone(self.unchanged(chosen))), None),
            ConditionResult::Proceed if wants_part => (self.part(request, chosen, boundary), None),
            ConditionResult::Proceed => (Reply::prepared(Arc::clone(&chosen.whole)), wanted),
        }
    }

    /// The page as the body of an error response, without the fields that would let a client store it.
    pub(super) fn as_error(&self, status: u16) -> Reply {
        let prepared = &self.plain.whole;
        let mut reply = Reply::new(status).with("Cache-Control", "no-cache");
        for name in ["Content-Type", "Content-Encoding", "X-Content-Type-Options"] {
            if let Some(value) = prepared.fields().value(name) {
                reply = reply.with(name, value);
            }
        }
        reply.body(body_of(prepared, ByteRange { start: 0, end: prepared.len() }))
    }

    /// The page with one more coding, made from exactly the present plain representation. `None` in place of bytes if
    /// compression saved nothing.
    pub(super) fn with_coded(&self, coding: Coding, bytes: Option<Arc<[u8]>>) -> Self {
        let mut page = self.clone();
        page.possible = page.possible.without(Codings::of(coding));
        if let Some(bytes) = bytes {
            page.coded[coding as usize] = Some(Rc::new(self.plain.coded(coding, bytes)));
            page.ready = page.ready.with(Codings::of(coding));
        }
        page
    }

    /// Takes over the content compressed on the fly from an earlier look-up that found the same bytes.
    pub(super) fn inherit(&mut self, before: &Self) {
        // Tags may be equal for different bytes.
        let same = !self.plain.weak && !before.plain.weak && self.metadata == before.metadata;
        if !same || !self.siblings.is_empty() || !before.siblings.is_empty() || self.possible.is_empty() {
            return;
        }
        (self.coded, self.ready, self.possible) = (before.coded.clone(), before.ready, before.possible);
    }

    /// Returns the page without the content compressed on the fly.
    pub(super) fn without_made(&self) -> Self {
        let mut page = self.clone();
        for (slot, coding) in page.coded.iter_mut().zip(SIBLINGS) {
            if !page.siblings.has(coding) && slot.take().is_some() {
                page.possible = page.possible.with(Codings::of(coding));
            }
        }
        page.ready = page.siblings;
        page
    }

    /// The plain representation, for compression.
    pub(super) fn plain(&self) -> &Prepared {
        &self.plain.whole
    }

    /// An exact tag, which identifies this state of the file.
    pub(super) fn state(&self) -> Vec<u8> {
        exact_tag(&self.metadata)
    }

    /// Whether the tag is weak, so that the file must be looked up again later.
    pub(super) fn is_weak(&self) -> bool {
        self.plain.weak || self.coded.iter().flatten().any(|coded| coded.weak)
    }

    /// Whether the content of each representation still matches its tag.
    pub(super) fn is_current(&self) -> bool {
        self.representations().all(|one| file_check::is_current(&one.whole))
    }

    /// The number of descriptors that the page keeps open.
    pub(super) fn descriptors(&self) -> usize {
        let of = |one: &&Rc<Representation>| matches!(one.whole.content(), ContentView::File(..));
        self.representations().filter(of).count()
    }

    /// The memory that the page takes, in bytes, without content compressed on the fly.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.files.memory_bytes()
            + self.representations().map(|one| one.memory_bytes()).sum::<usize>()
            - self.made_bytes()
    }

    /// The memory that content compressed on the fly takes, in bytes.
    pub(super) fn made_bytes(&self) -> usize {
        let made = self.coded.iter().zip(SIBLINGS).filter(|(_, coding)| !self.siblings.has(*coding));
        made.filter_map(|(one, _)| Some(one.as_ref()?.memory_bytes())).sum()
    }

    fn representations(&self) -> impl Iterator<Item = &Rc<Representation>> {
        std::iter::once(&self.plain).chain(self.coded.iter().flatten())
    }

    fn representation(&self, coding: Coding) -> &Representation {
        // Identity is past the end of `coded`.
        self.coded.get(coding as usize).and_then(Option::as_ref).unwrap_or(&self.plain)
    }

    /// The 304 response: the fields that a cache needs to find and to keep its copy (RFC 9110 §15.4.5), and the fields of the
    /// rules.
    fn unchanged<'a>(&self, chosen: &'a Representation) -> &'a Arc<Prepared> {
        chosen.unchanged.get_or_init(|| {
            let mut fields = Fields::new();
            for name in ["Vary", "ETag", "Cache-Control"] {
                if let Some(value) = chosen.whole.fields().value(name) {
                    fields.push(name, value).expect("it was a field already");
                }
            }
            fields.extend(&self.fields);
            Arc::new(Prepared::memory(304, fields, &[]))
        })
    }

    /// Returns the error with this status, which has the fields of the rules.
    fn fault(&self, status: u16) -> StatusError {
        let sniffable = self.plain.whole.fields().value("X-Content-Type-Options").is_none();
        StatusError { fields: self.fields.clone(), sniffable, ..StatusError::new(status) }
    }

    /// Responds with ranges of the page, unless If-Range names another state of the file.
    fn part(&self, request: &Request<'_>, chosen: &Representation, boundary: u128) -> Reply {
        let size = chosen.whole.len();
        let holds = request.known(Known::IfRange).is_none_or(|value| {
            conditional::if_range_holds(value, &chosen.validators(), request.now().unix_s())
        });
        let ranges = match request.known(Known::Range) {
            Some(value) if holds => Ranges::of(value, size),
            _ => Ranges::Whole,
        };
        let mut value = Vec::with_capacity(64);
        match ranges {
            Ranges::Whole => Reply::prepared(Arc::clone(&chosen.whole)),
            Ranges::Unsatisfiable => {
                range::put_unsatisfied_range(&mut value, size);
                let mut fault = self.fault(416);
                fault.fields.push("Content-Range", &value).expect("a range in digits");
                fault.reply(request)
            }
            Ranges::One(range) => {
                range::put_content_range(&mut value, range, size);
                let mut reply = Reply::new(206).with("Content-Range", value);
                reply.fields.extend(chosen.whole.fields());
                reply.body(body_of(&chosen.whole, range))
            }
            Ranges::Many(parts) => {
                let boundary = format!("{boundary:032x}");
                let content_type = chosen.whole.fields().value("Content-Type").unwrap_or_default();
                let multipart = Multipart { boundary: boundary.as_bytes(), content_type, size };
                multipart.put_content_type(&mut value);
                let mut reply = Reply::new(206).with("Content-Type", value);
                for (name, value) in chosen.whole.fields().iter().filter(|(name, _)| *name != b"Content-Type")
                {
                    let name = std::str::from_utf8(name).expect("a token is ASCII");
                    reply.fields.push(name, value).expect("it was a field already");
                }
                let mut segments = Vec::with_capacity(2 * parts.len() + 1);
                for part in parts {
                    let mut head = Vec::with_capacity(128);
                    multipart.put_part_head(&mut head, part);
                    segments.push(Segment::Bytes(head));
                    segments.push(segment_of(&chosen.whole, part));
                }
                let mut end = Vec::with_capacity(40);
                multipart.put_end(&mut end);
                segments.push(Segment::Bytes(end));
                reply.body(Body::Segments(segments))
            }
        }
    }
}

impl Representation {
    fn validators(&self) -> Validators<'_> {
        let etag = EntityTag { weak: self.weak, opaque: &self.opaque };
        Validators { etag: Some(etag), last_modified: self.modified_s }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.opaque.capacity() + self.whole.memory_bytes()
    }

    /// The representation of the same file, compressed on the fly.
    fn coded(&self, coding: Coding, bytes: Arc<[u8]>) -> Self {
        let opaque = coded_tag(&self.opaque, coding);
        let mut fields = Fields::new();
        for (name, value) in self.whole.fields().iter() {
            let name = std::str::from_utf8(name).expect("a token is ASCII");
            match name {
                // No ranges: another start may compress to other bytes.
                "Accept-Ranges" => continue,
                "ETag" => push_tag(&mut fields, EntityTag { weak: self.weak, opaque: &opaque }),
                _ => fields.push(name, value).expect("it was a field already"),
            }
            if name == "Content-Type" {
                fields.push("Content-Encoding", coding.name().as_bytes()).expect("a token");
            }
        }
        Self {
            whole: Arc::new(Prepared::shared(200, fields, bytes)),
            unchanged: OnceCell::new(),
            opaque,
            weak: self.weak,
            modified_s: self.modified_s,
        }
    }
}

/// The properties that all representations of a file share.
struct CommonFields<'a> {
    content_type: String,
    varies: bool,
    download: bool,
    sniffable: bool,
    cache_control: &'a str,
    fields: &'a Fields,
    etag: TagSource,
    now_unix_ns: u64,
}

impl CommonFields<'_> {
    /// The tag of one state of a file. The portable tag has nginx's format, so that it remains valid when nginx is replaced.
    fn tag(&self, metadata: &Metadata) -> Vec<u8> {
        let modified_s = metadata.modified_ns / NS;
        match self.etag {
            TagSource::Portable if modified_s > EPOCH_DATE_MAX_S => {
                format!("{modified_s:x}-{:x}", metadata.len).into_bytes()
            }
            _ => exact_tag(metadata),
        }
    }

    /// Prepares a file whose bytes have `coding`, and which is a sibling in `sibling`.
    fn representation(&self, part: FileVariant, coding: Coding, sibling: Coding) -> Representation {
        let FileVariant { metadata, content } = part;
        let mut opaque = self.tag(&metadata);
        if sibling != Coding::Identity {
            opaque = coded_tag(&opaque, sibling);
        }
        let weak = is_fresh(&metadata, self.now_unix_ns);
        // A date in the future is not sent (RFC 9110 §8.8.2.1), nor the date of a reproducible build.
        let modified_s = Some(metadata.modified_ns / NS)
            .filter(|&modified| modified <= self.now_unix_ns / NS && modified > EPOCH_DATE_MAX_S);
        let mut fields = Fields::new();
        let mut push = |name, value: &[u8]| fields.push(name, value).expect("rules and types were checked");
        push("Content-Type", self.content_type.as_bytes());
        if coding != Coding::Identity {
            push("Content-Encoding", coding.name().as_bytes());
        }
        if self.varies {
            push("Vary", b"Accept-Encoding");
        }
        if let Some(modified) = modified_s {
            push("Last-Modified", &imf_fixdate(modified));
        }
        push("Cache-Control", self.cache_control.as_bytes());
        push("Accept-Ranges", b"bytes");
        if self.download {
            push("Content-Disposition", b"attachment");
        }
        if !self.sniffable {
            push("X-Content-Type-Options", b"nosniff");
        }
        push_tag(&mut fields, EntityTag { weak, opaque: &opaque });
        fields.extend(self.fields);
        let whole = Arc::new(match content {
            Content::Memory(bytes) => Prepared::memory(200, fields, &bytes),
            Content::File(file) => Prepared::file(200, fields, file, 0..metadata.len),
        });
        Representation { whole, unchanged: OnceCell::new(), opaque, weak, modified_s }
    }
}

/// The exact tag of one state of a file: inode, length, and the times of the last write and the last change. The second time differs
/// where a program has written other content of the same length and reset the first time (`rsync -t`, `tar`).
fn exact_tag(metadata: &Metadata) -> Vec<u8> {
    let Metadata { inode, len, modified_ns, changed_ns, .. } = metadata;
    format!("{inode:x}-{len:x}-{modified_ns:x}-{changed_ns:x}").into_bytes()
}

fn coded_tag(opaque: &[u8], coding: Coding) -> Vec<u8> {
    [opaque, b"-", &coding.extension().as_bytes()[1..]].concat()
}

fn push_tag(fields: &mut Fields, tag: EntityTag<'_>) {
    let mut value = Vec::with_capacity(tag.opaque.len() + 4);
    tag.put(&mut value);
    fields.push("ETag", &value).expect("a tag of hexadecimal digits");
}

/// Whether a file changed so recently that another change could leave the same timestamps. File systems count time in ticks of
/// up to 2 s (FAT), most in 4 ms.
fn is_fresh(metadata: &Metadata, now_unix_ns: u64) -> bool {
    metadata.modified_ns.max(metadata.changed_ns).saturating_add(SETTLED_AFTER_NS) > now_unix_ns
}

/// A range of a prepared response's content. Ranges were limited to the length of this content.
fn body_of(prepared: &Prepared, range: ByteRange) -> Body {
    match prepared.content() {
        ContentView::File(file, whole) => {
            Body::File(Arc::clone(file), whole.start + range.start..whole.start + range.end)
        }
        ContentView::Memory(bytes) => Body::Bytes(bytes[range.start as usize..range.end as usize].to_vec()),
    }
}

fn segment_of(prepared: &Prepared, range: ByteRange) -> Segment {
    match prepared.content() {
        ContentView::File(file, whole) => {
            Segment::File { file: Arc::clone(file), offset: whole.start + range.start, len: range.bytes() }
        }
        ContentView::Memory(bytes) => {
            Segment::Bytes(bytes[range.start as usize..range.end as usize].to_vec())
        }
    }
}

const NS: u64 = 1_000_000_000;

/// The latest modification time that says nothing about a file, in seconds since 1970. Reproducible builds give all files one time:
/// 1 in the store of Nix, 0 in other images. New content with the same time would never replace a copy of a client.
const EPOCH_DATE_MAX_S: u64 = 1;

/// The age at which a tag becomes strong.
pub(super) const SETTLED_AFTER_NS: u64 = 2 * NS;
