//! Flash Video (Adobe FLV 10.1, Annex E), with the tags of Enhanced RTMP (Veovera, versions 1 and 2).
//!
//! ```text
//!  header  onMetaData  video configuration  audio configuration   tag     tag     …
//!  └──────────────────────── head ────────────────────────────┘  └ unit ┘└ unit ┘
//! ```

use tags::{TagContent, TagKind, TagSlot};

use super::held_input::{ContainerParser, HeldInput, InputStep, big_endian};
use super::{Container, MediaError, MediaInfo, MediaSink, MediaUnit};

mod tags;

/// Bytes of a head. Each new configuration repeats it, so a source must not make it large: a live stream has no index of frames,
/// and its metadata and configurations have a few kilobytes.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Tags of a head: metadata, and two per track.
const HEAD_TAGS_MAX: usize = 64;
/// Bytes of a tag in front of its content.
const TAG_HEADER: usize = 11;
/// Bytes of the content that say what it is: a byte of flags and a FourCC, with room for two modifiers of 16 bytes.
const CONTENT_HEAD: usize = 40;
/// Bytes of the trailing size of each tag.
const SIZE_BEHIND: usize = 4;

/// The splitter of FLV.
///
/// The head is the file header with the tags before the first coded frame: metadata and configurations of decoders. Each later
/// tag is a unit. A video key frame is a start; without video each coded frame is one. A configuration that differs from the one
/// in the head makes a new head of the file header, the metadata, and the configurations, all of which but the new one are
/// repeated. A file header in the place of a tag begins a new head.
///
/// No byte of a complete stream is dropped. [`finish`](Self::finish) drops a head without a frame and an incomplete tag.
#[derive(Debug, Default)]
pub struct FlvSplitter {
    input: HeldInput,
    parser: FlvParser,
}

#[derive(Debug, Default)]
struct FlvParser {
    /// The file header. Empty before it was received.
    header: Vec<u8>,
    /// The tags of the head.
    tags: Vec<(TagSlot, Vec<u8>)>,
    /// Whether a coded frame was received, and the head passed on.
    coded: bool,
    video: bool,
    /// Bytes of the current tag that need no parsing.
    skip: usize,
}

impl FlvSplitter {
    /// Returns a splitter at the begin of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// The bytes are no tags, or a head is longer than 256 KiB. Later calls return the same error.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        self.input.push(&mut self.parser, bytes, sink)
    }

    /// Ends the stream. No complete unit is ever held back.
    pub fn finish(&mut self, _sink: &mut impl MediaSink) {
        self.input = HeldInput::default();
        self.parser.skip = 0;
    }

    /// Returns the description of the stream, from the first coded frame on.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        self.parser.coded.then(|| MediaInfo {
            container: Container::Flv,
            video: self.parser.video,
            codecs: self
                .parser
                .tags
                .iter()
                .filter_map(|(_, tag)| tags::codec(tag.get(..1)?, content(tag)))
                .collect(),
            bit_rate: self
                .parser
                .tags
                .iter()
                .find_map(|(_, tag)| tags::bit_rate(tag.get(..1)?, content(tag))),
        })
    }

    /// Returns whether a stream that begins with `first` is FLV. `None`: 4 bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        match first.get(..4) {
            Some(first) => Some(first == b"FLV\x01"),
            None if b"FLV\x01".starts_with(first) => None,
            None => Some(false),
        }
    }
}

/// The content of a whole tag.
fn content(tag: &[u8]) -> &[u8] {
    tag.get(TAG_HEADER..tag.len().saturating_sub(SIZE_BEHIND)).unwrap_or_default()
}

impl ContainerParser for FlvParser {
    fn step(&mut self, window: &[u8], at: u64, sink: &mut impl MediaSink) -> Result<InputStep, MediaError> {
        if self.skip > 0 {
            let len = window.len().min(self.skip);
            self.skip -= len;
            sink.bytes(window.get(..len).unwrap_or(window));
            return Ok(InputStep::Used(len));
        }
        let error = |what| Err(MediaError { container: Container::Flv, at, what });
        let first = window.first().copied().unwrap_or_default();
        if self.header.is_empty() || first == b'F' {
            let Some(header) = window.get(..9) else { return Ok(InputStep::Need(9)) };
            if !header.starts_with(b"FLV\x01") {
                return error("no FLV header");
            }
            let len = big_endian(header, 5, 4).unwrap_or_default() as usize;
            if !(9..=1024).contains(&len) {
                return error("an FLV header has 9 bytes");
            }
            let Some(header) = window.get(..len + SIZE_BEHIND) else {
                return Ok(InputStep::Need(len + SIZE_BEHIND));
            };
            let video = header.get(4).is_some_and(|flags| flags & 1 != 0);
            *self = Self { header: header.to_vec(), video, ..Self::default() };
            return Ok(InputStep::Used(header.len()));
        }
        let Some(fields) = window.first_chunk::<TAG_HEADER>() else { return Ok(InputStep::Need(TAG_HEADER)) };
        let &[kind, s2, s1, s0, t2, t1, t0, t3, ..] = fields;
        let size = u32::from_be_bytes([0, s2, s1, s0]) as usize;
        let Some(kind) = TagKind::of(kind) else { return error("no FLV tag: its type must be 8, 9 or 18") };
        let head_len = TAG_HEADER + size.min(CONTENT_HEAD);
        let Some(head) = window.get(TAG_HEADER..head_len) else { return Ok(InputStep::Need(head_len)) };
        let whole = TAG_HEADER + size + SIZE_BEHIND;
        let found = TagContent::of(kind, head);
        self.video |= kind == TagKind::Video;
        if let Some(slot) = found.slot.filter(|_| !self.coded || found.configures) {
            if self.held().saturating_add(whole) > HEAD_BYTES_MAX || self.tags.len() >= HEAD_TAGS_MAX {
                return error("metadata and configurations of more than 256 KiB or 64 tags");
            }
            let Some(tag) = window.get(..whole) else { return Ok(InputStep::Need(whole)) };
            if self.replace(slot, tag) {
                if self.coded {
                    sink.head(&self.head());
                }
                return Ok(InputStep::Used(whole));
            }
        }
        if found.coded && !self.coded {
            self.coded = true;
            sink.head(&self.head());
        }
        let start = found.coded && (found.key || !self.video);
        let time_ms = u32::from_be_bytes([t3, t2, t1, t0]);
        sink.unit(MediaUnit { start, time_us: Some(u64::from(time_ms) * 1000) });
        sink.bytes(window.get(..TAG_HEADER).unwrap_or(window));
        self.skip = whole - TAG_HEADER;
        Ok(InputStep::Used(TAG_HEADER))
    }

    fn held(&self) -> usize {
        self.header.len() + self.tags.iter().map(|(_, tag)| tag.len()).sum::<usize>()
    }

    fn container(&self) -> Container {
        Container::Flv
    }
}

impl FlvParser {
    /// Puts a tag into the head. Before the first coded frame each tag is kept. Later a new configuration
    /// replaces its predecessor. Returns whether the head has changed.
    fn replace(&mut self, slot: TagSlot, tag: &[u8]) -> bool {
        let old = self.tags.iter_mut().rev().find(|(other, _)| self.coded && *other == slot);
        match old {
            Some((_, old)) if content(old) == content(tag) => return false,
            Some((_, old)) => *old = tag.to_vec(),
            None => self.tags.push((slot, tag.to_vec())),
        }
        true
    }

    fn head(&self) -> Vec<u8> {
        let tags = self.tags.iter().map(|(_, tag)| tag.as_slice());
        std::iter::once(self.header.as_slice()).chain(tags).collect::<Vec<_>>().concat()
    }
}
