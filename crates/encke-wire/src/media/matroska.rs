//! Matroska and WebM (RFC 9559).
//!
//! ```text
//!  EBML Segment SeekHead Info Tracks Tags …  Cluster: Timestamp Block Block …  Cluster: …
//!  └─────────────── head ────────────────┘   └──── a unit, of known size ───┘
//!                                            └─ a unit of unknown size ─┘└ unit ┘
//! ```

use parser::{MatroskaParser, MatroskaPhase};

use super::held_input::HeldInput;
use super::{MediaError, MediaInfo, MediaSink};

mod ebml;
mod parser;
mod tracks;

/// The splitter of Matroska and WebM.
///
/// The head is all before the first Cluster. A Cluster of known size is one unit. In a Cluster of unknown size each block is a
/// unit; the first one begins with the Cluster's header and ends with the first block of the first video track. A unit is a
/// start if it begins with the header of a Cluster, and the first block of the first video track is a key frame; without video
/// each Cluster is one. Elements between Clusters follow the unit before them, which
/// ends with its Cluster or block. An EBML header after a Cluster begins a new
/// head.
///
/// A start must be at the begin of a Cluster, so a source must begin a Cluster at each key frame. ffmpeg does, unless there are
/// less than 4 kB between two key frames. The head keeps the size of a Segment that has one (a file, not a live source); players
/// then may report a premature end.
///
/// No byte of a complete stream is dropped. [`finish`](Self::finish) drops a head without a Cluster and an incomplete element.
#[derive(Debug, Default)]
pub struct MatroskaSplitter {
    input: HeldInput,
    parser: MatroskaParser,
}

impl MatroskaSplitter {
    /// Returns a splitter at the begin of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// The bytes are no EBML, or a head or a part that is needed whole is longer than
    /// [`HELD_BYTES_MAX`](super::HELD_BYTES_MAX). Later calls return the same error.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl MediaSink) -> Result<(), MediaError> {
        self.input.push(&mut self.parser, bytes, sink)
    }

    /// Ends the stream. Passes on the begin of a Cluster of unknown size that has no video block yet.
    pub fn finish(&mut self, sink: &mut impl MediaSink) {
        self.parser.finish(sink);
    }

    /// Returns the description of the stream, from the first Cluster on.
    #[must_use]
    pub fn info(&self) -> Option<MediaInfo> {
        (self.parser.phase == MatroskaPhase::Clusters).then(|| self.parser.tracks.info())
    }

    /// Returns whether a stream that begins with `first` is Matroska or WebM. `None`: 4 bytes are needed.
    #[must_use]
    pub fn recognises(first: &[u8]) -> Option<bool> {
        let magic = ebml::EBML.to_be_bytes();
        match first.get(..magic.len()) {
            Some(first) => Some(first == magic),
            None if magic.starts_with(first) => None,
            None => Some(false),
        }
    }
}
