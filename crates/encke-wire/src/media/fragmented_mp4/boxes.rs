//! Boxes of MP4 (ISO/IEC 14496-12): the tracks of a `moov`, and the first sample of a `moof`.

use crate::media::held_input::big_endian;
use crate::media::{Container, MediaInfo, codecs};

/// `sample_is_non_sync_sample` (8.8.3.1).
const NON_SYNC: u64 = 0x1_0000;

/// Type and size of a box.
pub(super) struct BoxHeader {
    pub(super) kind: [u8; 4],
    /// Bytes with the header. `None`: to the end of the stream.
    pub(super) size: Option<u64>,
    /// Bytes of the header.
    pub(super) len: usize,
}

/// Why there is no header.
pub(super) enum NoBox {
    /// The header needs this many bytes.
    Need(usize),
    /// The bytes are no header.
    Invalid,
}

impl BoxHeader {
    /// Reads the header at the begin of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, NoBox> {
        let size = big_endian(bytes, 0, 4).ok_or(NoBox::Need(8))?;
        let kind: [u8; 4] = *bytes.get(4..).and_then(|bytes| bytes.first_chunk()).ok_or(NoBox::Need(8))?;
        if !kind.iter().all(|&byte| matches!(byte, 0x20..0x7f | 0xa9)) {
            return Err(NoBox::Invalid);
        }
        let (size, len) = match size {
            0 => (None, 8),
            1 => (Some(big_endian(bytes, 8, 8).ok_or(NoBox::Need(16))?), 16),
            size => (Some(size), 8),
        };
        if size.is_some_and(|size| size < len as u64) {
            Err(NoBox::Invalid)
        } else {
            Ok(Self { kind, size, len })
        }
    }
}

/// The boxes in a body, with their contents. One that is longer than the body ends the iteration.
fn boxes(mut body: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let header = BoxHeader::read(body).ok()?;
        let size = header.size.map_or(Some(body.len()), |size| usize::try_from(size).ok())?;
        let (whole, rest) = body.split_at_checked(size)?;
        body = rest;
        Some((header.kind, whole.get(header.len..)?))
    })
}

fn child<'a>(body: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(body).find_map(|(found, content)| (&found == kind).then_some(content))
}

/// Version and flags of a full box.
fn version_and_flags(content: &[u8]) -> Option<(u8, u64)> {
    Some((*content.first()?, big_endian(content, 1, 3)?))
}

#[derive(Debug, Default)]
struct Mp4Track {
    id: u64,
    timescale: u64,
    video: bool,
    codec: Option<Box<str>>,
    bit_rate: u64,
    /// `default_sample_flags` of `trex`.
    flags: u64,
}

/// The tracks of a `moov`.
#[derive(Debug)]
pub(super) struct Movie {
    tracks: Vec<Mp4Track>,
}

impl Movie {
    /// Reads the body of a `moov`. `None`: it announces no fragments (8.8.1).
    pub(super) fn read(moov: &[u8]) -> Option<Self> {
        let extends = child(moov, b"mvex")?;
        let mut tracks: Vec<_> =
            boxes(moov).filter(|(kind, _)| kind == b"trak").filter_map(|(_, trak)| track(trak)).collect();
        for (_, trex) in boxes(extends).filter(|(kind, _)| kind == b"trex") {
            let id = big_endian(trex, 4, 4);
            if let Some(track) = tracks.iter_mut().find(|track| Some(track.id) == id) {
                track.flags = big_endian(trex, 20, 4).unwrap_or_default();
            }
        }
        Some(Self { tracks })
    }

    /// The track that decides about starts: the first one of video, or else the first one.
    fn leading(&self) -> Option<&Mp4Track> {
        self.tracks.iter().find(|track| track.video).or_else(|| self.tracks.first())
    }

    /// Returns the description of the stream.
    pub(super) fn info(&self) -> MediaInfo {
        let rate = self.tracks.iter().fold(0_u64, |sum, track| sum.saturating_add(track.bit_rate));
        MediaInfo {
            container: Container::FragmentedMp4,
            video: self.tracks.iter().any(|track| track.video),
            codecs: self.tracks.iter().filter_map(|track| track.codec.clone()).collect(),
            bit_rate: (rate > 0).then_some(rate),
        }
    }
}

fn track(trak: &[u8]) -> Option<Mp4Track> {
    let tkhd = child(trak, b"tkhd")?;
    let mdia = child(trak, b"mdia")?;
    let mdhd = child(mdia, b"mdhd")?;
    // Times of version 1 have eight bytes each.
    let at = |content: &[u8]| if content.first() == Some(&1) { 20 } else { 12 };
    let kind = child(mdia, b"hdlr")?.get(8..12)?;
    let stsd = child(child(child(mdia, b"minf")?, b"stbl")?, b"stsd")?;
    let (entry, sample) = boxes(stsd.get(8..)?).next()?;
    let video = kind == b"vide";
    // The fields of a VisualSampleEntry and of an AudioSampleEntry in front of their boxes (12.1.3, 12.2.3).
    let inner = sample.get(if video { 78 } else { 28 }..).unwrap_or_default();
    let rates = child(inner, b"btrt").and_then(|btrt| big_endian(btrt, 8, 4));
    Some(Mp4Track {
        id: big_endian(tkhd, at(tkhd), 4)?,
        timescale: big_endian(mdhd, at(mdhd), 4)?,
        video,
        codec: codec(&entry, inner),
        bit_rate: rates.unwrap_or_default(),
        flags: 0,
    })
}

/// Returns the codec of a sample entry with these boxes.
fn codec(entry: &[u8; 4], inner: &[u8]) -> Option<Box<str>> {
    match entry {
        b"avc1" | b"avc3" => codecs::avc(child(inner, b"avcC")?),
        b"hvc1" => codecs::hevc("hvc1", child(inner, b"hvcC")?),
        b"hev1" => codecs::hevc("hev1", child(inner, b"hvcC")?),
        b"av01" => codecs::av1(child(inner, b"av1C")?),
        b"vp09" => codecs::vp9(child(inner, b"vpcC")?.get(4..)?),
        b"vp08" => Some("vp8".into()),
        b"mp4a" => codecs::elementary_stream(child(inner, b"esds")?.get(4..)?),
        b"Opus" => Some("opus".into()),
        b"fLaC" => Some("flac".into()),
        b".mp3" => Some("mp3".into()),
        b"ac-3" => Some("ac-3".into()),
        b"ec-3" => Some("ec-3".into()),
        _ => None,
    }
}

/// The first sample of a `moof`.
#[derive(Default)]
pub(super) struct Fragment {
    pub(super) start: bool,
    pub(super) time_us: Option<u64>,
}

impl Fragment {
    /// Reads the body of a `moof`.
    pub(super) fn read(moof: &[u8], movie: &Movie) -> Self {
        let Some(leading) = movie.leading() else { return Self::default() };
        let (mut fragment, mut time) = (Self { start: !leading.video, time_us: None }, None);
        for (_, traf) in boxes(moof).filter(|(kind, _)| kind == b"traf") {
            let Some(header) = child(traf, b"tfhd") else { continue };
            let id = big_endian(header, 4, 4);
            let decode_time = movie
                .tracks
                .iter()
                .find(|track| Some(track.id) == id && track.timescale > 0)
                .and_then(|track| decode_time(traf, track.timescale));
            time = time.or(decode_time);
            if id == Some(leading.id) && fragment.time_us.is_none() {
                fragment.time_us = decode_time;
                fragment.start |= first_is_sync(header, traf, leading.flags) == Some(true);
            }
        }
        Self { time_us: fragment.time_us.or(time), ..fragment }
    }
}

fn decode_time(traf: &[u8], timescale: u64) -> Option<u64> {
    let tfdt = child(traf, b"tfdt")?;
    let time = big_endian(tfdt, 4, if tfdt.first() == Some(&1) { 8 } else { 4 })?;
    u64::try_from(u128::from(time) * 1_000_000 / u128::from(timescale)).ok()
}

/// Returns whether the first sample of a `traf` is a sync sample (8.8.7, 8.8.8). `None`: it has no sample.
fn first_is_sync(header: &[u8], traf: &[u8], default: u64) -> Option<bool> {
    let (_, flags) = version_and_flags(header)?;
    let sized = |flag, len| if flags & flag == 0 { 0 } else { len };
    let at = 8 + sized(0x01, 8) + sized(0x02, 4) + sized(0x08, 4) + sized(0x10, 4);
    let default = if flags & 0x20 == 0 { default } else { big_endian(header, at, 4)? };
    for (_, run) in boxes(traf).filter(|(kind, _)| kind == b"trun") {
        let (_, flags) = version_and_flags(run)?;
        if big_endian(run, 4, 4)? == 0 {
            continue;
        }
        let sized = |flag| if flags & flag == 0 { 0 } else { 4 };
        let first = 8 + sized(0x01);
        let sample = match flags {
            flags if flags & 0x04 != 0 => big_endian(run, first, 4)?,
            flags if flags & 0x400 != 0 => big_endian(run, first + sized(0x100) + sized(0x200), 4)?,
            _ => default,
        };
        return Some(sample & NON_SYNC == 0);
    }
    None
}
