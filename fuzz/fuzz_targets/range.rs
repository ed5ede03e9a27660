//! Ranges: the parts contain every requested byte, no byte twice, none beyond the file, and their framing has exactly the
//! announced length.
//!
//! The input is the size of the file as decimal digits, a space, and the value of a Range field.
#![no_main]

use encke_wire::range::{ByteRange, Multipart, RANGES_MAX, Ranges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(space) = input.iter().position(|&byte| byte == b' ') else { return };
    let Some(size) = std::str::from_utf8(&input[..space]).ok().and_then(|size| size.parse::<u64>().ok())
    else {
        return;
    };
    let value = &input[space + 1..];
    let ranges = Ranges::of(value, size);
    let asked = asked_for(value, size);
    let parts = match &ranges {
        Ranges::Whole => return,
        Ranges::Unsatisfiable => &[][..],
        Ranges::One(range) => std::slice::from_ref(range),
        Ranges::Many(parts) => parts,
    };
    let asked = asked.expect("only what follows the grammar is answered in parts");
    assert!(parts.len() <= RANGES_MAX);
    assert_eq!(parts.is_empty(), asked.is_empty());
    assert_eq!(matches!(ranges, Ranges::Many(_)), parts.len() > 1);
    for (index, part) in parts.iter().enumerate() {
        assert!(part.start < part.end && part.end <= size);
        let is_apart = |other: &ByteRange| part.end <= other.start || other.end <= part.start;
        assert!(parts[..index].iter().all(is_apart), "no byte is sent twice: {parts:?}");
    }
    for (start, end) in asked {
        let is_within = |part: &ByteRange| part.start <= start && end <= part.end;
        assert!(parts.iter().any(is_within), "{start}..{end} is not in {parts:?}");
    }
    lengths_are_as_announced(parts, size);
});

/// Returns the requested ranges within the file, or `None` if the field is invalid.
fn asked_for(value: &[u8], size: u64) -> Option<Vec<(u64, u64)>> {
    let value = std::str::from_utf8(value).ok()?;
    let (unit, set) = value.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| -> Option<u64> {
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let mut asked = Vec::new();
    for spec in set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty()) {
        let (first, last) = spec.split_once('-')?;
        let (start, end) = match (first, last) {
            ("", last) => (size.saturating_sub(number(last)?), size),
            (first, "") => (number(first)?, size),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return None;
                }
                (first, last.saturating_add(1).min(size))
            }
        };
        if start < end {
            asked.push((start, end));
        }
    }
    Some(asked)
}

fn lengths_are_as_announced(parts: &[ByteRange], size: u64) {
    let multipart = Multipart { boundary: b"d2f1c0", content_type: b"text/plain", size };
    let mut frames = Vec::new();
    for &part in parts {
        multipart.put_part_head(&mut frames, part);
    }
    multipart.put_end(&mut frames);
    let data: u128 = parts.iter().map(|part| u128::from(part.bytes())).sum();
    if let Ok(total) = u64::try_from(data + frames.len() as u128) {
        assert_eq!(multipart.total_bytes(parts), total);
    }
}
