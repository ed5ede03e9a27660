//! The tracks in the head of a Matroska stream.

use super::ebml::{self, elements, unsigned};
use crate::media::{Container, MediaInfo, codecs};

/// Nanoseconds of a unit of time without `TimestampScale` (RFC 9559, 5.1.2.9).
const SCALE_NS: u64 = 1_000_000;

/// The tracks, and the unit of time.
#[derive(Debug)]
pub(super) struct Tracks {
    web: bool,
    pub(super) scale_ns: u64,
    /// The number of the first video track.
    pub(super) video: Option<u64>,
    codecs: Vec<Box<str>>,
}

impl Default for Tracks {
    fn default() -> Self {
        Self { web: false, scale_ns: SCALE_NS, video: None, codecs: Vec::new() }
    }
}

impl Tracks {
    /// Reads the content of `EBML`, `Info` or `Tracks`.
    pub(super) fn read(&mut self, id: u32, content: &[u8]) {
        for (child, content) in elements(content) {
            match (id, child) {
                (ebml::EBML, ebml::DOC_TYPE) => self.web = content.starts_with(b"webm"),
                (ebml::INFO, ebml::TIMESTAMP_SCALE) => {
                    self.scale_ns = unsigned(content).filter(|&scale| scale > 0).unwrap_or(SCALE_NS);
                }
                (ebml::TRACKS, ebml::TRACK_ENTRY) => self.read_entry(content),
                _ => {}
            }
        }
    }

    fn read_entry(&mut self, entry: &[u8]) {
        let (mut number, mut kind, mut id, mut private) = (None, None, &b""[..], &b""[..]);
        for (child, content) in elements(entry) {
            match child {
                ebml::TRACK_NUMBER => number = unsigned(content),
                ebml::TRACK_TYPE => kind = unsigned(content),
                ebml::CODEC_ID => id = content,
                ebml::CODEC_PRIVATE => private = content,
                _ => {}
            }
        }
        if kind == Some(1) {
            self.video = self.video.or(number);
        }
        self.codecs.extend(codec(id, private));
    }

    /// Matroska or WebM.
    pub(super) const fn container(&self) -> Container {
        if self.web { Container::WebM } else { Container::Matroska }
    }

    /// Returns the description of the stream.
    pub(super) fn info(&self) -> MediaInfo {
        MediaInfo {
            container: self.container(),
            video: self.video.is_some(),
            codecs: self.codecs.clone(),
            bit_rate: None,
        }
    }
}

/// Returns the codec of a `CodecID` and `CodecPrivate` (Matroska codec mappings).
fn codec(id: &[u8], private: &[u8]) -> Option<Box<str>> {
    match id.trim_ascii_end() {
        b"V_VP8" => Some("vp8".into()),
        b"V_VP9" => Some(vp9(private)),
        b"V_AV1" => codecs::av1(private),
        b"V_MPEG4/ISO/AVC" => codecs::avc(private),
        b"V_MPEGH/ISO/HEVC" => codecs::hevc("hvc1", private),
        b"A_OPUS" => Some("opus".into()),
        b"A_VORBIS" => Some("vorbis".into()),
        b"A_FLAC" => Some("flac".into()),
        b"A_MPEG/L3" => Some("mp3".into()),
        b"A_AC3" => Some("ac-3".into()),
        b"A_EAC3" => Some("ec-3".into()),
        b"A_AAC" => codecs::aac(private),
        _ => None,
    }
}

/// VP9, from features in the form id, length, value: profile, level and bit depth are features 1 to 3 of one byte.
fn vp9(features: &[u8]) -> Box<str> {
    let feature = |wanted| {
        features
            .as_chunks()
            .0
            .iter()
            .find_map(|&[id, len, value]| ((id, len) == (wanted, 1)).then_some(value))
    };
    codecs::vp9_of(feature(1).unwrap_or(0), feature(2).unwrap_or(0), feature(3).unwrap_or(8))
}
