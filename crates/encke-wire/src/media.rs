//! Media containers, as far as a relay must know them: the head, without which no player can start, and the places at which a
//! player can start or continue.
//!
//! ```text
//!  bytes of a source, in any pieces ─► Splitter ─► MediaSink
//!                                                   head(bytes)          a new head, which a player must receive first
//!                                                   unit(MediaUnit)      the next bytes begin a unit: a frame, a fragment, a page
//!                                                   bytes(bytes)         bytes of the current unit
//!                                                   end()                the current unit is complete, if its size is known
//! ```
//! **No byte of a unit is changed or lost.** The sink receives the bytes of the source in their order. Bytes that no player needs are
//! dropped: tags and garbage between audio frames, and packets before the first head of a transport stream. A new head also goes to
//! connected listeners. Whether they can continue after it depends on the container ([`Container::restarts`]).
//!
//! **A unit is what must not be torn.** A listener that was too slow leaves the stream at the end of a unit and continues at the
//! begin of a later unit that is a start ([`MediaUnit::start`]).
//!
//! A splitter holds back only the bytes that it needs to recognise the begin of a unit, and at most [`HELD_BYTES_MAX`].
//!
//! [`Splitter`](splitter::Splitter) recognises the container and dispatches to its splitter.
//! [`MediaGatherer`](gather::MediaGatherer) is a sink that makes messages of whole units.

pub mod adts;
mod audio_header;
mod frames;
pub mod gather;
pub mod gauge;
mod hint;
pub mod mpeg_audio;
mod mpeg_header;
pub mod ogg;
mod ogg_page;
pub mod splitter;
mod tags;

mod codecs;
pub mod flv;
pub mod fragmented_mp4;
mod held_input;
pub mod matroska;
pub mod mpeg_ts;

/// Bytes that a splitter may hold back to recognise a head or the begin of a unit. 4 MiB: the `moov` box of an hour is smaller,
/// and a picture in a Matroska tag rarely is larger.
pub const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A container of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// MPEG transport stream (ISO/IEC 13818-1).
    MpegTs,
    /// Matroska (RFC 9559).
    Matroska,
    /// WebM: Matroska with fewer codecs.
    WebM,
    /// Fragmented MP4 (ISO/IEC 14496-12) or CMAF.
    FragmentedMp4,
    /// Flash Video, with the extensions of Enhanced RTMP.
    Flv,
    /// MPEG audio frames: MP3, also layers I and II.
    Mp3,
    /// AAC in ADTS frames (ISO/IEC 13818-7).
    Adts,
    /// Ogg (RFC 3533) with Vorbis, Opus, FLAC or Theora.
    Ogg,
    /// None of the above. The bytes are relayed as they are.
    Unknown,
}

impl Container {
    /// Returns the media type of the container, for `Content-Type`. `video` is whether the stream has pictures.
    #[must_use]
    pub const fn media_type(self, video: bool) -> &'static str {
        match (self, video) {
            (Self::MpegTs, _) => "video/mp2t",
            (Self::Matroska, true) => "video/x-matroska",
            (Self::Matroska, false) => "audio/x-matroska",
            (Self::WebM, true) => "video/webm",
            (Self::WebM, false) => "audio/webm",
            (Self::FragmentedMp4, true) => "video/mp4",
            (Self::FragmentedMp4, false) => "audio/mp4",
            (Self::Flv, _) => "video/x-flv",
            (Self::Mp3, _) => "audio/mpeg",
            (Self::Adts, _) => "audio/aac",
            (Self::Ogg, true) => "video/ogg",
            (Self::Ogg, false) => "audio/ogg",
            (Self::Unknown, _) => "application/octet-stream",
        }
    }

    /// Returns whether a player continues with a new head in the middle of a stream. Otherwise the stream of a
    /// listener ends before the new head, and the player connects again.
    #[must_use]
    pub const fn restarts(self) -> bool {
        matches!(self, Self::MpegTs | Self::Mp3 | Self::Adts | Self::Ogg | Self::Unknown)
    }
}

/// The begin of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaUnit {
    /// Whether a player that has the head can start with this unit.
    pub start: bool,
    /// The time of the unit on the clock of the stream in µs, if the container states one.
    pub time_us: Option<u64>,
}

/// The description of a stream, from its head and its first units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaInfo {
    /// The container.
    pub container: Container,
    /// Whether there are pictures.
    pub video: bool,
    /// The codecs as in the `codecs` parameter of RFC 6381: `avc1.64001f`, `mp4a.40.2`, `vp09.00.10.08`, `vp8`, `opus`,
    /// `vorbis`, `flac`, `mp3`. Empty if unknown.
    pub codecs: Vec<Box<str>>,
    /// The bit rate that the stream itself states, in bits per second.
    pub bit_rate: Option<u64>,
}

/// The receiver of a split stream.
pub trait MediaSink {
    /// A new head, whole. It replaces the earlier one. It may come more than once, also with the same bytes.
    fn head(&mut self, head: &[u8]);
    /// The next bytes begin a unit.
    fn unit(&mut self, unit: MediaUnit);
    /// Bytes of the current unit. There may be several calls per unit.
    fn bytes(&mut self, bytes: &[u8]);
    /// The current unit is complete. Containers whose units have no known size do not call this: the next unit ends the one before.
    /// Bytes between units, such as an index, follow without a [`unit`](Self::unit).
    fn end(&mut self) {}
}

/// A stream is not valid in its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaError {
    /// The container.
    pub container: Container,
    /// The position in the stream in bytes.
    pub at: u64,
    /// The expected and the found bytes, in words.
    pub what: &'static str,
}

impl std::fmt::Display for MediaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {} of the stream: {}", self.at, self.what)
    }
}

impl std::error::Error for MediaError {}
