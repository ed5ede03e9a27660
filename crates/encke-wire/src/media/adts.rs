//! AAC in ADTS frames (ISO/IEC 13818-7 §6.2, ISO/IEC 14496-3 §1.A.2.2).
//!
//! There is no head. A unit is a frame, and each is a start. Tags and bytes between frames are dropped
//! ([`AdtsSplitter::dropped_bytes`]). The CRC of a frame is not checked.

use super::audio_header::{self, AudioHeader, FrameMeasure};
use super::frames::FrameSplitter;
use super::{Container, MediaError, MediaInfo, MediaSink};

/// The splitter of ADTS.
#[derive(Debug)]
pub struct AdtsSplitter(FrameSplitter<AdtsHeader>);

impl Default for AdtsSplitter {
    fn default() -> Self {
        Self::new()
    }
}

impl AdtsSplitter {
    /// Returns a splitter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self(FrameSplitter::new())
    }

    /// Takes the next bytes of the source.
    ///
    /// # Errors
    /// Never: bytes that belong to no frame are dropped.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        self.0.push(bytes, sink);
        Ok(())
    }

    /// The source has ended: passes on a complete frame that is held back, and drops other bytes.
    pub fn finish(&mut self, sink: &mut impl MediaSink) {
        self.0.finish(sink);
    }

    /// Returns the description of the stream, from its first frame. ADTS states no bit rate. HE-AAC is described as the AAC that
    /// it extends, because its frames do not show the extension.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        self.0.info()
    }

    /// Returns whether a stream begins with two consistent frames, with tags in front skipped by their length; `None` if more
    /// bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        audio_header::recognises::<AdtsHeader>(first)
    }

    /// Returns the bytes of tags and between frames that were dropped.
    #[must_use]
    pub const fn dropped_bytes(&self) -> u64 {
        self.0.dropped_bytes()
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
struct AdtsHeader {
    /// The 7 bytes of the header, without the CRC that may follow.
    word: u64,
}

const SAMPLE_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

/// Sync, version, layer, profile, sample rate and channels: equal in all frames of a stream. Without the bits for protection,
/// for private use and for copyright.
const SAME: u64 = 0x00ff_fefd_c000_0000;

impl AdtsHeader {
    fn sample_rate(&self) -> Option<u32> {
        SAMPLE_RATES.get((self.word >> 34 & 0xf) as usize).copied()
    }

    const fn size(&self) -> usize {
        (self.word >> 13 & 0x1fff) as usize
    }
}

impl AudioHeader for AdtsHeader {
    const BYTES: usize = 7;

    fn parse(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; 7] = bytes.first_chunk()?;
        let header = Self { word: head.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) };
        let sync = header.word >> 44 == 0xfff && header.word >> 41 & 3 == 0;
        let head_bytes = if header.word >> 40 & 1 == 0 { 9 } else { 7 };
        (sync && header.sample_rate().is_some() && header.size() > head_bytes).then_some(header)
    }

    fn frame_bytes(&self) -> Option<usize> {
        Some(self.size())
    }

    fn follows(&self, before: &Self) -> bool {
        (self.word ^ before.word) & SAME == 0
    }

    fn measure(&self, _bytes: &[u8], _ended: bool) -> FrameMeasure<Self> {
        FrameMeasure::Known(*self)
    }

    fn sized_like(self, _before: &Self) -> Self {
        self
    }

    fn samples(&self) -> (u32, u32) {
        (1_024 * (1 + (self.word & 3) as u32), self.sample_rate().unwrap_or(0))
    }

    fn info(&self, _frame: &[u8]) -> MediaInfo {
        let object_type = 1 + (self.word >> 38 & 3);
        MediaInfo {
            container: Container::Adts,
            video: false,
            codecs: vec![format!("mp4a.40.{object_type}").into()],
            bit_rate: None,
        }
    }
}
