//! Fragmented MP4 (ISO/IEC 14496-12, 8.8) and CMAF (ISO/IEC 23000-19).
//!
//! ```text
//!  ftyp moov   styp sidx emsg prft moof mdat   moof mdat   …
//!  └─ head ─┘  └────────── unit ─────────┘     └─ unit ─┘
//! ```

use boxes::{BoxHeader, Fragment, Movie, NoBox};

use super::held_input::{ContainerParser, HeldInput, InputStep};
use super::{Container, HELD_BYTES_MAX, MediaError, MediaInfo, MediaSink, MediaUnit};

mod boxes;

/// The splitter of fragmented MP4 and CMAF.
///
/// The head is all before the first fragment. A unit is a fragment: `moof` with its `mdat`, and the boxes `styp`, `sidx`, `ssix`,
/// `emsg` and `prft` in front of it. Other boxes follow the unit before
/// them, which ends with its `mdat`. A unit is a start if its first sample of the
/// first video track is a sync sample; without video each fragment is one. `ftyp` after a fragment, or `moov` alone, begins a
/// new head.
///
/// No byte of a complete stream is dropped. [`finish`](Self::finish) drops a head without a fragment, and boxes in front of a
/// fragment that did not come.
#[derive(Debug, Default)]
pub struct FragmentedMp4Splitter {
    input: HeldInput,
    parser: FragmentedMp4Parser,
}

#[derive(Debug, Default)]
struct FragmentedMp4Parser {
    movie: Option<Movie>,
    /// The head as far as it was received.
    head: Vec<u8>,
    /// The boxes in front of the next fragment.
    front: Vec<u8>,
    phase: Mp4Phase,
    /// Bytes of the current box that need no parsing.
    skip: u64,
    /// Whether that box is the `mdat` of a fragment, whose end is the end of the unit.
    in_media: bool,
}

/// Where boxes without a meaning of their own belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mp4Phase {
    #[default]
    Head,
    /// After a box that announces a fragment, and before its `moof`. `true`: the head is not passed on yet.
    Front(bool),
    Fragment,
}

impl FragmentedMp4Splitter {
    /// Returns a splitter at the begin of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// The bytes are no boxes, the file is not fragmented, or a head or a `moof` is longer than [`HELD_BYTES_MAX`]. Later calls
    /// return the same error.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        self.input.push(&mut self.parser, bytes, sink)
    }

    /// Ends the stream. No complete unit is ever held back.
    pub fn finish(&mut self, _sink: &mut impl MediaSink) {}

    /// Returns the description of the stream, from `moov` on.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        self.parser.movie.as_ref().map(Movie::info)
    }

    /// Returns whether a stream that begins with `first` is MP4. `None`: 8 bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        const KINDS: [&[u8]; 10] =
            [b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx", b"prft"];
        let kind = first.get(4..)?;
        match kind.get(..4) {
            Some(kind) => Some(KINDS.contains(&kind)),
            None => (!KINDS.iter().any(|known| known.starts_with(kind))).then_some(false),
        }
    }
}

impl ContainerParser for FragmentedMp4Parser {
    fn step(&mut self, window: &[u8], at: u64, sink: &mut impl MediaSink) -> Result<InputStep, MediaError> {
        if self.skip > 0 {
            let len = window.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= len as u64;
            return Ok(self.put(window.get(..len).unwrap_or(window), sink));
        }
        let error = |what| Err(MediaError { container: Container::FragmentedMp4, at, what });
        let header = match BoxHeader::read(window) {
            Ok(header) => header,
            Err(NoBox::Need(need)) => return Ok(InputStep::Need(need)),
            Err(NoBox::Invalid) => return error("no MP4 box"),
        };
        let endless = header.size.is_none();
        let whole = header.size.unwrap_or(u64::MAX);
        match &header.kind {
            b"ftyp" | b"moov" if self.phase != Mp4Phase::Head => {
                // Boxes that announced a fragment are part of the stream, so the new head begins with them.
                if self.phase != Mp4Phase::Front(true) {
                    self.head.clear();
                }
                self.head.append(&mut self.front);
                self.phase = Mp4Phase::Head;
                self.movie = None;
            }
            b"styp" | b"sidx" | b"ssix" | b"emsg" | b"prft" => {
                self.phase = match self.phase {
                    Mp4Phase::Head if self.movie.is_some() => Mp4Phase::Front(true),
                    Mp4Phase::Fragment => Mp4Phase::Front(false),
                    phase => phase,
                };
            }
            b"moof" | b"mdat" if self.movie.is_none() => {
                return error(
                    "no moov box before the media: send fragmented MP4 (ffmpeg -movflags frag_keyframe+empty_moov)",
                );
            }
            b"mdat" if self.phase != Mp4Phase::Fragment => {
                return error(
                    "an mdat box without moof: send fragmented MP4 (ffmpeg -movflags frag_keyframe+empty_moov)",
                );
            }
            _ => {}
        }
        let kept = self.phase != Mp4Phase::Fragment;
        if kept && &header.kind != b"moof" && whole.saturating_add(self.held() as u64) > HELD_BYTES_MAX as u64
        {
            return error("more than 4 MiB before a fragment");
        }
        if matches!(&header.kind, b"moov" | b"moof") {
            if whole > HELD_BYTES_MAX as u64 {
                return error("a moov or moof box is longer than 4 MiB: make shorter fragments");
            }
            let Some(bytes) = window.get(..whole as usize) else {
                return Ok(InputStep::Need(whole as usize));
            };
            let body = bytes.get(header.len..).unwrap_or_default();
            if &header.kind == b"moov" {
                let Some(movie) = Movie::read(body) else {
                    return error(
                        "a moov box without mvex: send fragmented MP4 (ffmpeg -movflags frag_keyframe+empty_moov)",
                    );
                };
                self.movie = Some(movie);
            } else {
                self.fragment(body, sink);
            }
            return Ok(self.put(bytes, sink));
        }
        self.skip = if endless { u64::MAX } else { whole - header.len as u64 };
        self.in_media = &header.kind == b"mdat" && !endless;
        Ok(self.put(window.get(..header.len).unwrap_or(window), sink))
    }

    fn held(&self) -> usize {
        if self.phase == Mp4Phase::Fragment { 0 } else { self.head.len() + self.front.len() }
    }

    fn container(&self) -> Container {
        Container::FragmentedMp4
    }
}

impl FragmentedMp4Parser {
    /// Passes on the head, if it is new, and begins the unit of a fragment with the body of its `moof`.
    fn fragment(&mut self, moof: &[u8], sink: &mut impl MediaSink) {
        if matches!(self.phase, Mp4Phase::Head | Mp4Phase::Front(true)) {
            sink.head(&std::mem::take(&mut self.head));
        }
        self.phase = Mp4Phase::Fragment;
        let fragment = self.movie.as_ref().map(|movie| Fragment::read(moof, movie)).unwrap_or_default();
        sink.unit(MediaUnit { start: fragment.start, time_us: fragment.time_us });
        if !self.front.is_empty() {
            sink.bytes(&std::mem::take(&mut self.front));
        }
    }

    /// Passes on bytes: to the head, to the boxes in front of a fragment, or to the sink.
    fn put(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> InputStep {
        match self.phase {
            Mp4Phase::Head => self.head.extend_from_slice(bytes),
            Mp4Phase::Front(_) => self.front.extend_from_slice(bytes),
            Mp4Phase::Fragment => sink.bytes(bytes),
        }
        if self.skip == 0 && std::mem::take(&mut self.in_media) {
            sink.end();
        }
        InputStep::Used(bytes.len())
    }
}
