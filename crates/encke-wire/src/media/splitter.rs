//! The container of a stream, recognised from its first bytes, and the splitter for it.

use super::adts::AdtsSplitter;
use super::flv::FlvSplitter;
use super::fragmented_mp4::FragmentedMp4Splitter;
use super::hint::hinted;
use super::matroska::MatroskaSplitter;
use super::mpeg_audio::Mp3Splitter;
use super::mpeg_ts::MpegTsSplitter;
use super::ogg::OggSplitter;
use super::tags::leading_tags;
use super::{Container, MediaError, MediaInfo, MediaSink, MediaUnit};

/// Bytes that are held back to recognise a container: a transport stream needs three packets, and two audio frames have at most
/// 16 KiB. The rest is for tags before them.
pub const DETECTION_BYTES_MAX: usize = 64 * 1024;

/// Declares the splitters, each by its container and type.
macro_rules! splitters {
    ($($container:ident: $splitter:ty,)*) => {
        #[derive(Debug)]
        enum SplitterEngine {
            $($container(Box<$splitter>),)*
            Unknown,
        }

        impl SplitterEngine {
            fn new(container: Container) -> Self {
                match container {
                    $(Container::$container => Self::$container(Box::default()),)*
                    _ => Self::Unknown,
                }
            }

            fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
                match self {
                    $(Self::$container(splitter) => splitter.push(bytes, sink),)*
                    Self::Unknown => {
                        if !bytes.is_empty() {
                            sink.unit(MediaUnit { start: true, time_us: None });
                            sink.bytes(bytes);
                        }
                        Ok(())
                    }
                }
            }

            fn finish(&mut self, sink: &mut impl MediaSink) {
                match self {
                    $(Self::$container(splitter) => splitter.finish(sink),)*
                    Self::Unknown => {}
                }
            }

            fn info(&self) -> Option<MediaInfo> {
                match self {
                    $(Self::$container(splitter) => splitter.info(),)*
                    Self::Unknown => Some(UNKNOWN),
                }
            }

            const fn container(&self) -> Container {
                match self {
                    $(Self::$container(_) => Container::$container,)*
                    Self::Unknown => Container::Unknown,
                }
            }
        }

        /// The verdicts of the splitters on the first bytes of a stream.
        fn verdicts(first: &[u8]) -> impl Iterator<Item = (Container, Option<bool>)> {
            [$((Container::$container, <$splitter>::recognises(first)),)*].into_iter()
        }
    };
}

splitters! {
    MpegTs: MpegTsSplitter,
    Matroska: MatroskaSplitter,
    FragmentedMp4: FragmentedMp4Splitter,
    Flv: FlvSplitter,
    Ogg: OggSplitter,
    Adts: AdtsSplitter,
    Mp3: Mp3Splitter,
}

const UNKNOWN: MediaInfo =
    MediaInfo { container: Container::Unknown, video: false, codecs: Vec::new(), bit_rate: None };

/// The splitter of a stream in any container.
///
/// A stream in an unknown container has no head. Each [`push`](Self::push) is one unit of it, and a start. Its first unit has all
/// bytes that were held back to recognise the container.
#[derive(Debug, Default)]
pub struct Splitter {
    engine: Option<SplitterEngine>,
    hint: Option<Container>,
    held: Vec<u8>,
    /// Bytes still to be dropped of a tag that is larger than [`DETECTION_BYTES_MAX`].
    tag_rest: u64,
    dropped: u64,
}

impl Splitter {
    /// Returns a splitter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Self::new`], with the `Content-Type` of the source. It decides only if the bytes do not: if more than one container is
    /// possible still, or if MPEG audio or ADTS begins in the middle of a frame.
    #[must_use]
    pub fn with_hint(content_type: &str) -> Self {
        Self { hint: hinted(content_type), ..Self::default() }
    }

    /// Takes the next bytes of the source.
    ///
    /// # Errors
    /// If the stream is not valid in its container. The stream ends there.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        let mut rest = bytes;
        loop {
            if let Some(engine) = &mut self.engine {
                return engine.push(rest, sink);
            }
            let dropped = rest.len().min(usize::try_from(self.tag_rest).unwrap_or(usize::MAX));
            self.tag_rest -= dropped as u64;
            self.dropped += dropped as u64;
            rest = rest.get(dropped..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            // Fewer bytes at first, so that a hint is tried on the same bytes however the source's bytes arrive.
            let step = (self.held.len() + 1).next_power_of_two().clamp(PROBE_BYTES, DETECTION_BYTES_MAX);
            let (now, later) = rest.split_at((step - self.held.len()).min(rest.len()));
            self.held.extend_from_slice(now);
            rest = later;
            if let Some(container) = self.detect(false) {
                self.choose(container, sink)?;
            }
        }
    }

    /// The source has ended: passes on complete units that are held back, and drops an incomplete one.
    pub fn finish(&mut self, sink: &mut impl MediaSink) {
        if self.engine.is_none() && !self.held.is_empty() {
            let container = self.detect(true).unwrap_or(Container::Unknown);
            // An error leaves a splitter that passes nothing on.
            let _ = self.choose(container, sink);
        }
        if let Some(engine) = &mut self.engine {
            engine.finish(sink);
        }
    }

    /// Returns the description of the stream; `None` until its head or first frame is known.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        self.engine.as_ref()?.info()
    }

    /// Returns the container whose splitter was chosen; `None` until then. WebM counts as Matroska here, not in [`Self::info`].
    #[must_use]
    pub fn container(&self) -> Option<Container> {
        self.engine.as_ref().map(SplitterEngine::container)
    }

    /// Returns the bytes that were dropped: tags, and bytes between audio frames.
    #[must_use]
    pub fn dropped_bytes(&self) -> u64 {
        let by_engine = match &self.engine {
            Some(SplitterEngine::Mp3(splitter)) => splitter.dropped_bytes(),
            Some(SplitterEngine::Adts(splitter)) => splitter.dropped_bytes(),
            _ => 0,
        };
        self.dropped + by_engine
    }

    fn choose(&mut self, container: Container, sink: &mut impl MediaSink) -> Result<(), MediaError> {
        let held = std::mem::take(&mut self.held);
        self.engine.insert(SplitterEngine::new(container)).push(&held, sink)
    }

    /// Returns the container by the bytes held. `None`: more bytes are needed.
    fn detect(&mut self, ended: bool) -> Option<Container> {
        let held = &self.held;
        let is_hinted = |container: &Container| Some(*container) == self.hint;
        let having = |verdict| {
            verdicts(held).filter(move |(_, found)| *found == verdict).map(|(container, _)| container)
        };
        if let Some(container) = having(Some(true)).find(is_hinted).or_else(|| having(Some(true)).next()) {
            return Some(container);
        }
        let is_full = ended || held.len() >= DETECTION_BYTES_MAX;
        if having(None).next().is_none() {
            return match self.hint.filter(|hint| matches!(hint, Container::Mp3 | Container::Adts)) {
                Some(hint) if has_frames(hint, held) => Some(hint),
                Some(_) if !is_full => None,
                _ => Some(Container::Unknown),
            };
        }
        if !is_full {
            return None;
        }
        if let Some(tag) = leading_tags(held).filter(|tag| *tag > held.len() as u64) {
            self.tag_rest = tag - held.len() as u64;
            self.dropped += held.len() as u64;
            self.held.clear();
            return None;
        }
        let mut possible = having(None);
        let first = possible.next();
        let only = first.filter(|_| !ended && possible.next().is_none());
        Some(having(None).find(is_hinted).or(only).unwrap_or(Container::Unknown))
    }
}

/// The bytes on which a hint is tried first. Four frames of MPEG audio at 320 kbit/s.
const PROBE_BYTES: usize = 4 * 1024;

/// Returns whether audio frames occur anywhere in the bytes.
fn has_frames(container: Container, bytes: &[u8]) -> bool {
    struct UnitCount(usize);

    impl MediaSink for UnitCount {
        fn head(&mut self, _head: &[u8]) {}

        fn unit(&mut self, _unit: MediaUnit) {
            self.0 += 1;
        }

        fn bytes(&mut self, _bytes: &[u8]) {}
    }

    let (power, mut count) = (bytes.len().checked_ilog2().unwrap_or(0), UnitCount(0));
    let probe = bytes.get(..1 << power).filter(|probe| probe.len() >= PROBE_BYTES).unwrap_or_default();
    let pushed = SplitterEngine::new(container).push(probe, &mut count);
    pushed.is_ok() && count.0 >= PROBE_FRAMES
}

/// Frames in a row that prove a hint. Two are found by chance in one of 10⁴ blocks with 64 KiB of random bytes.
const PROBE_FRAMES: usize = 3;
