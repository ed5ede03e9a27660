//! The begin of a frame in MPEG-TS: its time, and whether it is a key frame.

use crate::media::codecs;
use crate::media::held_input::big_endian;

/// The result of a search for the first slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceVerdict {
    /// Not its first slice.
    Open,
    Key,
    Other,
}

/// A search for the first slice in the bytes of a video stream.
#[derive(Debug)]
pub(super) struct FrameScan {
    /// `stream_type` of the PMT.
    kind: u8,
    /// Bytes of the PES header left.
    header: usize,
    /// The last four bytes.
    last: u32,
}

/// The bytes of a PES header in front of its optional fields (ISO/IEC 13818-1, 2.4.3.6).
const PES_HEADER: usize = 9;

impl FrameScan {
    /// Returns a scan of the frame whose first packet has this payload, and the time of the frame.
    pub(super) fn of(payload: &[u8], video: Option<(u16, u8)>) -> (Self, Option<u64>) {
        let optional = payload.get(PES_HEADER - 1).copied().map_or(0, usize::from);
        let scan =
            Self { kind: video.map_or(0, |(_, kind)| kind), header: PES_HEADER + optional, last: u32::MAX };
        (scan, time_us(payload))
    }

    /// Reads the payload of the next packet of the stream.
    pub(super) fn push(&mut self, payload: &[u8]) -> SliceVerdict {
        let skipped = self.header.min(payload.len());
        self.header -= skipped;
        for &byte in payload.get(skipped..).unwrap_or_default() {
            self.last = self.last << 8 | u32::from(byte);
            if self.last >> 8 == 1 {
                match verdict(self.kind, byte) {
                    SliceVerdict::Open => {}
                    verdict => return verdict,
                }
            }
        }
        SliceVerdict::Open
    }
}

/// Returns the codec, if a sequence parameter set begins in this payload of a stream of type `kind`.
pub(super) fn codec(kind: u8, payload: &[u8]) -> Option<Box<str>> {
    let units =
        || payload.windows(3).enumerate().filter(|(_, found)| *found == [0, 0, 1]).map(|(at, _)| at + 3);
    match kind {
        0x1b => units().find_map(|at| {
            let unit = payload.get(at..)?;
            (unit.first()? & 0x1f == 7).then(|| codecs::avc_profile(unit.get(1..)?))?
        }),
        // A NAL unit header of two bytes and a byte with ids precede the profile.
        0x24 => units().find_map(|at| {
            let unit = payload.get(at..)?;
            (unit.first()? >> 1 & 0x3f == 33)
                .then(|| codecs::hevc_profile("hvc1", &unescaped(unit.get(3..)?)))?
        }),
        _ => None,
    }
}

/// The verdict about the NAL unit or start code that begins with `byte`.
const fn verdict(kind: u8, byte: u8) -> SliceVerdict {
    match (kind, byte) {
        // MPEG-1 and MPEG-2: a sequence header, or a picture without one.
        (0x01 | 0x02, 0xb3) => SliceVerdict::Key,
        (0x01 | 0x02, 0x00) => SliceVerdict::Other,
        // H.264: a slice of an IDR picture, or of another one.
        (0x1b, _) if byte & 0x1f == 5 => SliceVerdict::Key,
        (0x1b, _) if matches!(byte & 0x1f, 1..=4) => SliceVerdict::Other,
        // H.265: a slice of a random access point, or of another picture.
        (0x24, _) if matches!(byte >> 1 & 0x3f, 16..=23) => SliceVerdict::Key,
        (0x24, _) if byte >> 1 & 0x3f < 16 => SliceVerdict::Other,
        (0x01 | 0x02 | 0x1b | 0x24, _) => SliceVerdict::Open,
        // Only `random_access_indicator` is known of other codecs.
        _ => SliceVerdict::Other,
    }
}

/// The first bytes of a NAL unit without the bytes that prevent start codes (ITU-T H.265, 7.3.1.1).
fn unescaped(unit: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &byte in unit.iter().take(24) {
        if byte != 3 || !bytes.ends_with(&[0, 0]) {
            bytes.push(byte);
        }
    }
    bytes
}

/// The presentation time of a PES packet: 33 bits at 90 kHz, in three fields.
fn time_us(payload: &[u8]) -> Option<u64> {
    let starts = payload.starts_with(&[0, 0, 1]) && payload.get(7)? & 0x80 != 0;
    let field = if starts { big_endian(payload, PES_HEADER, 5)? } else { return None };
    let time = (field >> 3 & 0x1_c000_0000) | (field >> 2 & 0x3fff_8000) | (field >> 1 & 0x7fff);
    Some(time * 100 / 9)
}
