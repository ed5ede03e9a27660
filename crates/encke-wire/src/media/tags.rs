//! Tags around audio frames: ID3 and APEv2. They describe a file, and no decoder needs them.

/// The longest begin of a tag that states its size: the header of APEv2.
const TAG_BYTES_MAX: usize = 32;

/// Returns the bytes of the tag at the start of `bytes`: 0 if there is none, `None` if more bytes are needed.
///
/// ID3v2: 10 bytes with a size in four times seven bits, and a footer by flag (ID3v2.4 §3.1). ID3v1: 128 bytes, with an extension
/// of 227 in front. APEv2: 32 bytes, with the size of the rest.
pub(super) fn tag_bytes(bytes: &[u8]) -> Option<u64> {
    let opens = |magic: &[u8]| bytes.iter().zip(magic).all(|(byte, magic)| byte == magic);
    if opens(b"ID3") {
        let head: &[u8; 10] = bytes.first_chunk()?;
        let [_, _, _, major, minor, flags, size @ ..] = head;
        if *major == 0xff || *minor == 0xff || size.iter().any(|byte| *byte > 0x7f) {
            return Some(0);
        }
        let size = size.iter().fold(0, |sum, byte| sum << 7 | u64::from(*byte));
        return Some(10 + size + if flags & 0x10 == 0 { 0 } else { 10 });
    }
    if opens(b"TAG") {
        return Some(if *bytes.get(3)? == b'+' { 227 } else { 128 });
    }
    if opens(b"APETAGEX") {
        let head: &[u8; TAG_BYTES_MAX] = bytes.first_chunk()?;
        let word = |at: usize| {
            head.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
        };
        let is_header = word(20) & 1 << 29 != 0;
        return Some(TAG_BYTES_MAX as u64 + if is_header { u64::from(word(12)) } else { 0 });
    }
    Some(0)
}

/// Returns the bytes of all tags before a stream, also beyond the end of `bytes`; `None` if more bytes are needed.
pub(super) fn leading_tags(bytes: &[u8]) -> Option<u64> {
    let mut total = 0;
    while let Some(rest) = usize::try_from(total).ok().and_then(|total| bytes.get(total..)) {
        match tag_bytes(rest)? {
            0 => break,
            tag => total += tag,
        }
    }
    Some(total)
}
