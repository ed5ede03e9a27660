//! MPEG audio: layers I to III of MPEG-1 (ISO/IEC 11172-3), MPEG-2 (ISO/IEC 13818-3) and MPEG-2.5.
//!
//! There is no head. A unit is a frame, and each is a start: bits of a frame of layer III may begin in earlier frames, and a
//! decoder drops the first frames if these are missing. Tags and bytes between frames are dropped
//! ([`Mp3Splitter::dropped_bytes`]).

use super::audio_header;
use super::frames::FrameSplitter;
use super::mpeg_header::MpegHeader;
use super::{MediaError, MediaInfo, MediaSink};

/// The splitter of MPEG audio.
#[derive(Debug)]
pub struct Mp3Splitter(FrameSplitter<MpegHeader>);

impl Default for Mp3Splitter {
    fn default() -> Self {
        Self::new()
    }
}

impl Mp3Splitter {
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

    /// Returns the description of the stream, from its first frame. The codec is `mp3`, `mp2` or `mp1`. The bit rate of a stream
    /// with a variable one is the mean that its first frame states (a Xing frame).
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        self.0.info()
    }

    /// Returns whether a stream begins with two consistent frames, with tags in front skipped by their length; `None` if more
    /// bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        audio_header::recognises::<MpegHeader>(first)
    }

    /// Returns the bytes of tags and between frames that were dropped.
    #[must_use]
    pub const fn dropped_bytes(&self) -> u64 {
        self.0.dropped_bytes()
    }
}
