//! The contents of FLV tags, in the classic form and in that of Enhanced RTMP.

use crate::media::codecs;

/// The type of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagKind {
    Audio,
    Video,
    Script,
}

impl TagKind {
    /// The kind of a type byte, whose fifth bit marks encryption.
    pub(super) const fn of(kind: u8) -> Option<Self> {
        match kind & !0x20 {
            8 => Some(Self::Audio),
            9 => Some(Self::Video),
            18 => Some(Self::Script),
            _ => None,
        }
    }
}

/// The place of a tag in a head. A later tag replaces one of the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagSlot {
    /// A configuration: the type and the track of Enhanced RTMP, 0 without.
    Configuration(u8, u8),
    /// Other tags before the first coded frame.
    Other,
}

/// The meaning of a tag, by the begin of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagContent {
    /// A coded frame.
    pub(super) coded: bool,
    /// A key frame.
    pub(super) key: bool,
    /// A configuration of a decoder.
    pub(super) configures: bool,
    /// The place in the head, unless it is a coded frame.
    pub(super) slot: Option<TagSlot>,
}

/// The packet types of a sequence's configuration and of coded frames.
const SEQUENCE_START: u8 = 0;
const CODED_FRAMES: u8 = 1;

impl TagContent {
    /// Reads the begin of the content of a tag.
    pub(super) fn of(kind: TagKind, content: &[u8]) -> Self {
        let first = content.first().copied().unwrap_or_default();
        let (packet, key, track) = match kind {
            TagKind::Script => return Self::other(),
            TagKind::Audio if first >> 4 == 9 => extended(first & 15, content, true)
                .map_or((2, false, 0), |found| (found.packet, false, found.track)),
            TagKind::Video if first & 0x80 != 0 => {
                let key = first >> 4 & 7 == 1;
                // Type 5 is a command to the player.
                let command = first >> 4 & 7 == 5;
                extended(first & 15, content, false)
                    .filter(|_| !command)
                    .map_or((2, key, 0), |found| (found.packet, key, found.track))
            }
            // AAC, AVC and HEVC have a configuration, in packets of type 0. Older codecs have none.
            TagKind::Audio if first >> 4 == 10 => (content.get(1).copied().unwrap_or(2), false, 0),
            TagKind::Video if first >> 4 == 5 => (2, false, 0),
            TagKind::Video if matches!(first & 15, 7 | 12 | 13) => {
                (content.get(1).copied().unwrap_or(2), first >> 4 == 1, 0)
            }
            TagKind::Audio => (CODED_FRAMES, false, 0),
            TagKind::Video => (CODED_FRAMES, first >> 4 == 1, 0),
        };
        match packet {
            SEQUENCE_START => Self {
                coded: false,
                key: false,
                configures: true,
                slot: Some(TagSlot::Configuration(u8::from(kind == TagKind::Video), track)),
            },
            CODED_FRAMES if !content.is_empty() => Self { coded: true, key, configures: false, slot: None },
            _ => Self::other(),
        }
    }

    const fn other() -> Self {
        Self { coded: false, key: false, configures: false, slot: Some(TagSlot::Other) }
    }
}

/// An extended header without its modifiers.
struct Extended<'a> {
    /// `SEQUENCE_START`, `CODED_FRAMES` or another number.
    packet: u8,
    track: u8,
    four_cc: &'a [u8],
    /// The rest of the content.
    body: &'a [u8],
}

/// Reads an extended header. `packet` is the packet type of its first byte.
fn extended(mut packet: u8, content: &[u8], audio: bool) -> Option<Extended<'_>> {
    let mut rest = content.get(1..)?;
    // Modifiers (type 7): a size, data, and a byte with the next packet type.
    while packet == 7 {
        let (mut size, mut behind) = (usize::from(*rest.first()?) + 1, rest.get(1..)?);
        if size == 256 {
            size = usize::from(u16::from_be_bytes(*behind.first_chunk()?)) + 1;
            behind = behind.get(2..)?;
        }
        packet = behind.get(size)? & 15;
        rest = behind.get(size + 1..)?;
    }
    // Type 5 of audio and type 6 of video: several tracks, of which the first is read.
    let multitrack = packet == if audio { 5 } else { 6 };
    let mut track = 0;
    if multitrack {
        packet = rest.first()? & 15;
        track = *rest.get(5)?;
    }
    let four_cc = rest.get(usize::from(multitrack)..)?.get(..4)?;
    let body = rest.get(if multitrack { 6 } else { 4 }..)?;
    // Frames of video without a composition time, and the configuration in the form of MPEG-TS.
    let packet = match (audio, packet) {
        (false, 3) => CODED_FRAMES,
        (false, 5) => SEQUENCE_START,
        (_, packet) => packet,
    };
    Some(Extended { packet, track, four_cc, body })
}

/// Returns the codec of a configuration tag, by its type byte and content.
pub(super) fn codec(kind: &[u8], content: &[u8]) -> Option<Box<str>> {
    let kind = TagKind::of(*kind.first()?)?;
    if !TagContent::of(kind, content).configures {
        return None;
    }
    let first = *content.first()?;
    let (name, record) = match kind {
        TagKind::Audio if first >> 4 == 10 => (&b"mp4a"[..], content.get(2..)?),
        TagKind::Video if first & 0x8f == 7 => (&b"avc1"[..], content.get(5..)?),
        TagKind::Video if first & 0x8f == 12 => (&b"hvc1"[..], content.get(5..)?),
        TagKind::Video if first & 0x8f == 13 => (&b"av01"[..], content.get(5..)?),
        _ => {
            let found = extended(first & 15, content, kind == TagKind::Audio)?;
            (found.four_cc, found.body)
        }
    };
    match name {
        b"mp4a" => codecs::aac(record),
        b"avc1" => codecs::avc(record),
        b"hvc1" => codecs::hevc("hvc1", record),
        b"av01" => codecs::av1(record),
        b"vp09" => codecs::vp9(record.get(4..)?),
        b"vp08" => Some("vp8".into()),
        b"Opus" => Some("opus".into()),
        b"fLaC" => Some("flac".into()),
        b".mp3" => Some("mp3".into()),
        _ => None,
    }
}

/// Returns the sum of `videodatarate` and `audiodatarate`, which are in kbit/s, of an `onMetaData` tag.
pub(super) fn bit_rate(kind: &[u8], content: &[u8]) -> Option<u64> {
    if TagKind::of(*kind.first()?) != Some(TagKind::Script) {
        return None;
    }
    // A name, the marker of a number (AMF0 type 0), and its eight bytes.
    let rate = |name: &[u8]| {
        let at = content.windows(name.len()).position(|found| found == name)?;
        let (marker, number) = content.get(at + name.len()..)?.split_first()?;
        let number = f64::from_be_bytes(*number.first_chunk()?);
        (*marker == 0 && (0.0..1e9).contains(&number)).then_some((number * 1000.0) as u64)
    };
    let sum = rate(b"videodatarate").unwrap_or(0) + rate(b"audiodatarate").unwrap_or(0);
    (sum > 0).then_some(sum)
}
