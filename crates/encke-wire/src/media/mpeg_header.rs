//! The header of an MPEG audio frame.

use super::audio_header::{AudioHeader, FrameMeasure};
use super::{Container, MediaInfo};

/// The header of a frame (ISO/IEC 11172-3 §2.4.1.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct MpegHeader {
    /// The 4 bytes of the header.
    word: u32,
    /// For free format: bytes of a frame without padding, or 0 if not known yet.
    free_bytes: usize,
}

/// Sync, version, layer and sample rate: equal in all frames of a stream.
const SAME: u32 = 0xfffe_0c00;

/// The longest frame in free format that is recognised. A frame of MPEG-2.5 layer II with 640 kbit/s has 11,520 bytes.
const FREE_BYTES_MAX: usize = 16 * 1024;

/// Distances that are tried for the size of a frame in free format. The pattern of its header occurs within a frame once in 2 MB
/// of random bytes.
const FREE_DISTANCES_MAX: usize = 16;

/// kbit/s by index, for MPEG-1 layers I, II and III, MPEG-2 and 2.5 layer I, and their layers II and III.
const KBITS: [[u32; 15]; 5] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

impl MpegHeader {
    const fn bits(&self, shift: u32, count: u32) -> u32 {
        self.word >> shift & ((1 << count) - 1)
    }

    const fn is_mpeg1(&self) -> bool {
        self.bits(19, 2) == 3
    }

    /// 1 to 3.
    const fn layer(&self) -> u32 {
        4 - self.bits(17, 2)
    }

    fn sample_rate(&self) -> u32 {
        let rate = [44_100, 48_000, 32_000].get(self.bits(10, 2) as usize).copied().unwrap_or(0);
        match self.bits(19, 2) {
            3 => rate,
            2 => rate / 2,
            _ => rate / 4,
        }
    }

    fn bit_rate(&self) -> u32 {
        let table = match (self.is_mpeg1(), self.layer()) {
            (true, layer) => layer as usize - 1,
            (false, 1) => 3,
            (false, _) => 4,
        };
        1_000 * KBITS.get(table).and_then(|kbits| kbits.get(self.bits(12, 4) as usize)).copied().unwrap_or(0)
    }

    const fn is_free(&self) -> bool {
        self.bits(12, 4) == 0
    }

    /// The additional slot of this frame: 4 bytes in layer I, 1 in the others.
    const fn padding(&self) -> usize {
        match (self.bits(9, 1), self.layer()) {
            (0, _) => 0,
            (_, 1) => 4,
            _ => 1,
        }
    }

    /// The mean bit rate by the bytes and frames that the first frame of a file may count (Xing, or Info if the rate is constant).
    fn counted_rate(&self, frame: &[u8]) -> Option<u64> {
        let side = match (self.is_mpeg1(), self.bits(6, 2) == 3) {
            (true, false) => 32,
            (false, true) => 9,
            _ => 17,
        };
        let tag = frame.get(4 + side..).filter(|tag| tag.starts_with(b"Xing") || tag.starts_with(b"Info"))?;
        let word = |at: usize| Some(u64::from(u32::from_be_bytes(*tag.get(at..)?.first_chunk()?)));
        let has_both = word(4)? & 3 == 3;
        let (frames, bytes) = (word(8).filter(|_| has_both)?, word(12)?);
        let (samples, rate) = self.samples();
        (bytes * 8 * u64::from(rate)).checked_div(frames * u64::from(samples))
    }
}

impl AudioHeader for MpegHeader {
    const BYTES: usize = 4;

    fn parse(bytes: &[u8]) -> Option<Self> {
        let header = Self { word: u32::from_be_bytes(*bytes.first_chunk()?), free_bytes: 0 };
        let sync = header.bits(21, 11) == 0x7ff;
        let reserved = header.bits(19, 2) == 1
            || header.bits(17, 2) == 0
            || header.bits(12, 4) == 15
            || header.bits(10, 2) == 3
            || header.bits(0, 2) == 2;
        (sync && !reserved).then_some(header)
    }

    fn frame_bytes(&self) -> Option<usize> {
        if self.is_free() {
            return (self.free_bytes > 0).then(|| self.free_bytes + self.padding());
        }
        let (rate, samples) = (self.bit_rate(), self.sample_rate().max(1));
        let bytes = match (self.layer(), self.is_mpeg1()) {
            (1, _) => 12 * rate / samples * 4,
            (3, false) => 72 * rate / samples,
            _ => 144 * rate / samples,
        };
        Some(bytes as usize + self.padding())
    }

    fn follows(&self, before: &Self) -> bool {
        (self.word ^ before.word) & SAME == 0 && self.is_free() == before.is_free()
    }

    /// The size is the distance to the next header, if a third header follows at the same distance.
    fn measure(&self, bytes: &[u8], ended: bool) -> FrameMeasure<Self> {
        let same = |at: usize| {
            let header = bytes.get(at..).filter(|rest| rest.len() >= Self::BYTES).and_then(Self::parse)?;
            header.follows(self).then_some(header)
        };
        let window = bytes.len().min(FREE_BYTES_MAX);
        let starts = (Self::BYTES..window).filter(|at| bytes.get(*at) == Some(&0xff));
        let nexts = starts.filter_map(|at| Some((at, same(at)?)));
        for (at, next) in nexts.take(FREE_DISTANCES_MAX) {
            let Some(free_bytes) = at.checked_sub(self.padding()).filter(|size| *size > Self::BYTES) else {
                continue;
            };
            let third = at + free_bytes + next.padding();
            if third + Self::BYTES > bytes.len() && !ended {
                return FrameMeasure::Short;
            }
            if same(third).is_some() || third == bytes.len() {
                return FrameMeasure::Known(Self { free_bytes, ..*self });
            }
        }
        if bytes.len() < FREE_BYTES_MAX && !ended { FrameMeasure::Short } else { FrameMeasure::Unframed }
    }

    fn sized_like(self, before: &Self) -> Self {
        Self { free_bytes: before.free_bytes, ..self }
    }

    fn samples(&self) -> (u32, u32) {
        let samples = match (self.layer(), self.is_mpeg1()) {
            (1, _) => 384,
            (3, false) => 576,
            _ => 1_152,
        };
        (samples, self.sample_rate())
    }

    fn info(&self, frame: &[u8]) -> MediaInfo {
        let codec = ["mp1", "mp2", "mp3"].get(self.layer() as usize - 1).copied().unwrap_or("mp3");
        let size = self.frame_bytes().unwrap_or_default() - self.padding();
        let by_size = u64::from(self.sample_rate()) * 8 * size as u64 / u64::from(self.samples().0);
        let own = if self.is_free() { by_size } else { self.bit_rate().into() };
        // The count includes padding and the counting frame, so that it is not exact for a constant rate.
        let counted = self.counted_rate(frame).filter(|counted| counted.abs_diff(own) > own / 20);
        MediaInfo {
            container: Container::Mp3,
            video: false,
            codecs: vec![codec.into()],
            bit_rate: Some(counted.unwrap_or(own)),
        }
    }
}
