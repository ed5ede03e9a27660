//! Codecs as in the `codecs` parameter of RFC 6381, from the configuration records of decoders.

use super::held_input::big_endian;

/// H.264, from an `AVCDecoderConfigurationRecord` (ISO/IEC 14496-15, 5.3.3.1).
pub(super) fn avc(record: &[u8]) -> Option<Box<str>> {
    avc_profile(record.get(1..4)?)
}

/// H.264, from a sequence parameter set without its NAL unit header. Its first bytes are profile, constraints and level.
pub(super) fn avc_profile(sps: &[u8]) -> Option<Box<str>> {
    Some(format!("avc1.{:06x}", big_endian(sps, 0, 3)?).into())
}

/// H.265, from an `HEVCDecoderConfigurationRecord` (ISO/IEC 14496-15, 8.3.3.1). `entry` is `hvc1` or `hev1`.
pub(super) fn hevc(entry: &str, record: &[u8]) -> Option<Box<str>> {
    hevc_profile(entry, record.get(1..)?)
}

/// H.265, from a `profile_tier_level` (ITU-T H.265, 7.3.3), in the form of ISO/IEC 14496-15, E.3.
pub(super) fn hevc_profile(entry: &str, level: &[u8]) -> Option<Box<str>> {
    let first = *level.first()?;
    let space = ["", "A", "B", "C"].get(usize::from(first >> 6))?;
    let tier = if first & 0x20 == 0 { 'L' } else { 'H' };
    let compatible = (big_endian(level, 1, 4)? as u32).reverse_bits();
    let constraints = level.get(5..11)?;
    let mut codec =
        format!("{entry}.{space}{}.{compatible:X}.{tier}{}", first & 0x1f, big_endian(level, 11, 1)?);
    let used = constraints.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    for byte in constraints.iter().take(used) {
        codec.push_str(&format!(".{byte:X}"));
    }
    Some(codec.into())
}

/// AV1, from an `AV1CodecConfigurationRecord` (AV1 in ISOBMFF, 2.3).
pub(super) fn av1(record: &[u8]) -> Option<Box<str>> {
    let (first, second) = (*record.get(1)?, *record.get(2)?);
    let tier = if second & 0x80 == 0 { 'M' } else { 'H' };
    let depth = match second & 0x60 {
        0x40 => 10,
        0x60 => 12,
        _ => 8,
    };
    Some(format!("av01.{}.{:02}{tier}.{depth:02}", first >> 5, first & 0x1f).into())
}

/// VP9, from the body of a `vpcC` box (VP Codec ISO Media File Format Binding) behind version and flags.
pub(super) fn vp9(record: &[u8]) -> Option<Box<str>> {
    let (profile, level, depth) = (record.first()?, record.get(1)?, record.get(2)? >> 4);
    Some(vp9_of(*profile, *level, depth))
}

/// VP9 of a profile, level and bit depth. A level of 0 is unknown, and is written as 1.0, the lowest.
pub(super) fn vp9_of(profile: u8, level: u8, depth: u8) -> Box<str> {
    format!("vp09.{profile:02}.{:02}.{depth:02}", if level == 0 { 10 } else { level }).into()
}

/// AAC, from an `AudioSpecificConfig` (ISO/IEC 14496-3, 1.6.2.1).
pub(super) fn aac(config: &[u8]) -> Option<Box<str>> {
    let bits = big_endian(config, 0, 2)?;
    let kind = match bits >> 11 {
        31 => 32 + (bits >> 5 & 0x3f),
        kind => kind,
    };
    Some(aac_of(kind))
}

/// AAC of an audio object type.
pub(super) fn aac_of(kind: u64) -> Box<str> {
    format!("mp4a.40.{kind}").into()
}

/// AAC or MP3, from an `ES_Descriptor` (ISO/IEC 14496-1, 7.2.6.5).
pub(super) fn elementary_stream(descriptor: &[u8]) -> Option<Box<str>> {
    let stream = tagged(descriptor, 3)?;
    let flags = *stream.get(2)?;
    let url = if flags & 0x40 == 0 { 0 } else { 1 + usize::from(*stream.get(3)?) };
    let optional = usize::from(flags >> 7) * 2 + url + usize::from(flags >> 5 & 1) * 2;
    let config = tagged(stream.get(3 + optional..)?, 4)?;
    match config.first()? {
        0x40 => aac(tagged(config.get(13..)?, 5)?),
        0x69 | 0x6b => Some("mp3".into()),
        _ => None,
    }
}

/// The content of a descriptor with this tag. Its size has up to four bytes of 7 bits.
fn tagged(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let (_, mut rest) = bytes.split_first().filter(|(first, _)| **first == tag)?;
    let mut size = 0;
    for _ in 0..4 {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        size = size << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    rest.get(..size.min(rest.len()))
}
