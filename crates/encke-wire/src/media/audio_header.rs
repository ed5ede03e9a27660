//! Headers of audio frames, and the check that a frame follows.

use super::MediaInfo;
use super::tags::{leading_tags, tag_bytes};

/// The header of a frame.
pub(super) trait AudioHeader: Copy {
    /// Bytes of a header.
    const BYTES: usize;

    /// Parses a header at the start of `bytes`, which are at least [`Self::BYTES`].
    fn parse(bytes: &[u8]) -> Option<Self>;
    /// Returns the bytes of the frame with its header, or `None` for a frame in free format whose size is unknown yet.
    fn frame_bytes(&self) -> Option<usize>;
    /// Returns whether a frame with this header may follow one with the header `before`.
    fn follows(&self, before: &Self) -> bool;
    /// Determines the size of the frame at the start of `bytes`, which is in free format.
    fn measure(&self, bytes: &[u8], ended: bool) -> FrameMeasure<Self>;
    /// Takes over the size of free format from an earlier frame of the stream.
    fn sized_like(self, before: &Self) -> Self;
    /// Samples per channel in the frame, and samples per second.
    fn samples(&self) -> (u32, u32);
    /// Returns the description of a stream with this frame in front.
    fn info(&self, frame: &[u8]) -> MediaInfo;
}

/// The result of measuring a frame in free format.
pub(super) enum FrameMeasure<H> {
    /// The header with the size.
    Known(H),
    /// No frame begins here.
    Unframed,
    /// More bytes are needed.
    Short,
}

/// The verdict on a parsed header.
pub(super) enum FrameVerdict<H> {
    Yes(H, usize),
    No,
    Short,
}

/// Checks by the header after the frame that `bytes` begin with a frame. At the end of the stream, or before a tag, a
/// complete frame needs no other.
pub(super) fn confirmed<H: AudioHeader>(header: H, bytes: &[u8], ended: bool) -> FrameVerdict<H> {
    let header = match header.frame_bytes() {
        Some(_) => header,
        None => match header.measure(bytes, ended) {
            FrameMeasure::Known(header) => header,
            FrameMeasure::Unframed => return FrameVerdict::No,
            FrameMeasure::Short => return FrameVerdict::Short,
        },
    };
    let Some(size) = header.frame_bytes() else { return FrameVerdict::No };
    let Some(behind) = bytes.get(size..) else {
        return if ended { FrameVerdict::No } else { FrameVerdict::Short };
    };
    let undecided = if ended { FrameVerdict::No } else { FrameVerdict::Short };
    match tag_bytes(behind) {
        _ if behind.is_empty() && ended => FrameVerdict::Yes(header, size),
        Some(1..) => FrameVerdict::Yes(header, size),
        None => undecided,
        Some(0) if behind.first() != Some(&0xff) => FrameVerdict::No,
        Some(0) if behind.len() < H::BYTES => undecided,
        Some(0) if H::parse(behind).is_some_and(|next| next.follows(&header)) => {
            FrameVerdict::Yes(header, size)
        }
        Some(0) => FrameVerdict::No,
    }
}

/// Returns whether a stream begins with two frames, after tags; `None` if more bytes are needed.
pub(super) fn recognises<H: AudioHeader>(first: &[u8]) -> Option<bool> {
    let rest = first.get(usize::try_from(leading_tags(first)?).ok()?..)?;
    if rest.first().is_some_and(|byte| *byte != 0xff) {
        return Some(false);
    }
    if rest.len() < H::BYTES {
        return None;
    }
    let Some(header) = H::parse(rest) else { return Some(false) };
    match confirmed(header, rest, false) {
        FrameVerdict::Yes(..) => Some(true),
        FrameVerdict::No => Some(false),
        FrameVerdict::Short => None,
    }
}
