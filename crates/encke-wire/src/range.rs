//! Byte ranges (RFC 9110 §14): the requested parts of a representation, and their framing.
//!
//! ```text
//!   Range: bytes=0-9,5-19,-10   of 1,000 bytes
//!   read     0..10  5..20  990..1000
//!   joined   0..20  990..1000            ─► Many: multipart/byteranges of two parts
//! ```
//!
//! A Range field is an offer to save bytes. If it cannot save any, the response is the whole representation (200), as without
//! the field. The reasons are another unit, bad grammar, more than [`RANGES_MAX`] ranges, or more than two overlaps. Overlaps
//! indicate an attempt to make the server send a file many times. Joined ranges never overlap, so a response is never larger
//! than the file plus the heads of 16 parts.

use crate::field;
use crate::http1::put_number;

/// Maximum number of ranges in a request. PDF and video readers request one to a handful.
pub const RANGES_MAX: usize = 16;

/// The bytes from `start` up to but not including `end`. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The part of a representation to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Everything, with 200: the field is ignored.
    Whole,
    /// One part, with 206 and Content-Range.
    One(ByteRange),
    /// Several parts that do not overlap, in the requested order, with 206 as `multipart/byteranges`. At least 2 and at most
    /// [`RANGES_MAX`]. Only this case allocates.
    Many(Vec<ByteRange>),
    /// Nothing, with 416: all ranges are beyond the end.
    Unsatisfiable,
}

impl ByteRange {
    /// The number of bytes in the range.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// Whether the two overlap, touch, or are so close that a separate part would cost more than the gap.
    const fn is_near(self, other: Self) -> bool {
        self.start <= other.end.saturating_add(GAP_BYTES) && other.start <= self.end.saturating_add(GAP_BYTES)
    }

    const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn joined(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl Ranges {
    /// Parses a Range field for a representation of `size` bytes. The caller has checked that the field applies: the method is
    /// GET, and If-Range, if present, holds.
    ///
    /// ```
    /// use encke_wire::range::{ByteRange, Ranges};
    ///
    /// assert_eq!(Ranges::of(b"bytes=-500", 2_000), Ranges::One(ByteRange { start: 1_500, end: 2_000 }));
    /// assert_eq!(Ranges::of(b"bytes=2000-", 2_000), Ranges::Unsatisfiable);
    /// assert_eq!(Ranges::of(b"lines=1-2", 2_000), Ranges::Whole);
    /// ```
    #[must_use]
    pub fn of(value: &[u8], size: u64) -> Self {
        let Some(set) =
            value.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes=")).map(|_| &value[6..])
        else {
            return Self::Whole;
        };
        let mut first: Option<ByteRange> = None;
        let mut others: Vec<ByteRange> = Vec::new();
        let (mut count, mut overlapping) = (0, 0);
        for spec in field::list(set) {
            count += 1;
            let Some(spec) = Spec::parse(spec) else { return Self::Whole };
            if count > RANGES_MAX {
                return Self::Whole;
            }
            if spec == (Spec::Last { bytes: 0 }) {
                continue;
            }
            if size == 0 && matches!(spec, Spec::Last { .. }) {
                // "The last n bytes" of an empty representation is satisfiable (§14.1.2), but Content-Range cannot express it.
                return Self::Whole;
            }
            let Some(range) = spec.within(size) else { continue };
            let earlier = first.iter().chain(&others);
            overlapping += earlier.filter(|earlier| earlier.overlaps(range)).count();
            match first {
                None => first = Some(range),
                Some(_) => others.push(range),
            }
        }
        match (count, first) {
            (0, _) => Self::Whole,
            (_, None) => Self::Unsatisfiable,
            _ if overlapping > OVERLAPPING_MAX => Self::Whole,
            (_, Some(range)) if others.is_empty() => Self::One(range),
            (_, Some(range)) => Self::joined(range, others),
        }
    }

    /// Joins ranges that are near each other. Each part takes the position of its first range.
    fn joined(first: ByteRange, others: Vec<ByteRange>) -> Self {
        let mut parts: Vec<ByteRange> = Vec::with_capacity(others.len() + 1);
        for range in [first].into_iter().chain(others) {
            let mut range = range;
            let mut place = parts.len();
            // A grown part may reach the next one: at most 16 iterations over at most 16 parts.
            while let Some(near) = parts.iter().position(|part| part.is_near(range)) {
                range = parts.remove(near).joined(range);
                place = place.min(near);
            }
            parts.insert(place.min(parts.len()), range);
        }
        match parts[..] {
            [one] => Self::One(one),
            _ => Self::Many(parts),
        }
    }
}

/// One range as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// `first-last` or `first-`; the last byte is included.
    FromTo { first: u64, last: Option<u64> },
    /// `-bytes`
    Last { bytes: u64 },
}

impl Spec {
    /// Returns `None` if the text is malformed, or if the range ends before it begins.
    fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|&byte| byte == b'-')?;
        match (&text[..dash], &text[dash + 1..]) {
            (b"", bytes) => Some(Self::Last { bytes: saturating_number(bytes)? }),
            (first, b"") => Some(Self::FromTo { first: saturating_number(first)?, last: None }),
            (first, last) => {
                let (first, last) = (saturating_number(first)?, saturating_number(last)?);
                (first <= last).then_some(Self::FromTo { first, last: Some(last) })
            }
        }
    }

    /// The selected bytes of a representation of `size` bytes; `None` if there are none.
    fn within(self, size: u64) -> Option<ByteRange> {
        let (start, end) = match self {
            Self::FromTo { first, last } => {
                (first, last.map_or(size, |last| last.saturating_add(1).min(size)))
            }
            Self::Last { bytes } => (size.saturating_sub(bytes), size),
        };
        (start < end).then_some(ByteRange { start, end })
    }
}

/// Parses a decimal number. Numbers above 64 bits saturate, which is beyond the end of every file.
fn saturating_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits
        .iter()
        .try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    Some(value.unwrap_or(u64::MAX))
}

/// Appends the value of Content-Range for a part: `bytes 0-9/1000`.
pub fn put_content_range(out: &mut Vec<u8>, range: ByteRange, size: u64) {
    out.extend_from_slice(b"bytes ");
    put_number(out, range.start);
    out.push(b'-');
    put_number(out, range.end - 1);
    out.push(b'/');
    put_number(out, size);
}

/// Appends the value of Content-Range for a 416: `bytes */1000`.
pub fn put_unsatisfied_range(out: &mut Vec<u8>, size: u64) {
    out.extend_from_slice(b"bytes */");
    put_number(out, size);
}

/// The framing of several parts of one representation (RFC 9110 §14.6).
///
/// ```text
///   CRLF --boundary CRLF Content-Type: … CRLF Content-Range: … CRLF CRLF  bytes of the part   (each part)
///   CRLF --boundary-- CRLF                                                                    (the end)
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Multipart<'a> {
    /// 1 to 70 characters that do not occur in any part. The caller provides the randomness.
    pub boundary: &'a [u8],
    /// The type of the representation; empty if it has none.
    pub content_type: &'a [u8],
    /// Size of the representation in bytes.
    pub size: u64,
}

impl Multipart<'_> {
    /// Appends the value of the response's Content-Type.
    pub fn put_content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(self.boundary);
    }

    /// Appends the head of the part with the bytes of `range`.
    pub fn put_part_head(&self, out: &mut Vec<u8>, range: ByteRange) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary);
        if !self.content_type.is_empty() {
            out.extend_from_slice(b"\r\nContent-Type: ");
            out.extend_from_slice(self.content_type);
        }
        out.extend_from_slice(b"\r\nContent-Range: ");
        put_content_range(out, range, self.size);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends the end of the body after the last part.
    pub fn put_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(self.boundary);
        out.extend_from_slice(b"--\r\n");
    }

    /// The Content-Length of a whole response with these parts.
    #[must_use]
    pub fn total_bytes(&self, parts: &[ByteRange]) -> u64 {
        let mut frame = Vec::with_capacity(128 + self.boundary.len() + self.content_type.len());
        self.put_end(&mut frame);
        let mut total = frame.len() as u64;
        for &part in parts {
            frame.clear();
            self.put_part_head(&mut frame, part);
            total += frame.len() as u64 + part.bytes();
        }
        total
    }
}

/// Approximate size of a part's head: a gap of at most this size is sent instead.
const GAP_BYTES: u64 = 80;

/// Maximum number of overlapping pairs. RFC 9110 §14.2 regards more than two as an attack or a broken client.
const OVERLAPPING_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(value: &str, size: u64) -> Ranges {
        Ranges::of(value.as_bytes(), size)
    }

    fn one(start: u64, end: u64) -> Ranges {
        Ranges::One(ByteRange { start, end })
    }

    fn many(parts: &[(u64, u64)]) -> Ranges {
        Ranges::Many(parts.iter().map(|&(start, end)| ByteRange { start, end }).collect())
    }

    #[test]
    fn single_ranges_are_cut_at_the_end() {
        assert_eq!(of("bytes=0-9", 1_000), one(0, 10));
        assert_eq!(of("bytes=0-0", 1_000), one(0, 1));
        assert_eq!(of("bytes=990-", 1_000), one(990, 1_000));
        assert_eq!(of("bytes=-10", 1_000), one(990, 1_000));
        assert_eq!(of("bytes=-5000", 1_000), one(0, 1_000));
        assert_eq!(of("bytes=0-99999999999999999999999", 1_000), one(0, 1_000));
        assert_eq!(of("bytes=999-18446744073709551615", 1_000), one(999, 1_000));
        assert_eq!(of("Bytes= 0-9", 1_000), one(0, 10));
        assert_eq!(of("bytes=,0-9,", 1_000), one(0, 10));
        assert_eq!(of("bytes=0-", u64::MAX), one(0, u64::MAX));
    }

    #[test]
    fn what_lies_beyond_the_end_cannot_be_satisfied() {
        assert_eq!(of("bytes=1000-", 1_000), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=1000-1001", 1_000), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=-0", 1_000), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=99999999999999999999999-", 1_000), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=2000-, 3000-4000, -0", 1_000), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=2000-, 5-6", 1_000), one(5, 7), "one that can be is enough");
        assert_eq!(of("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(of("bytes=-5", 0), Ranges::Whole);
    }

    #[test]
    fn what_is_no_range_in_bytes_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "items=0-9",
            "bytes 0-9",
            "bytes=abc",
            "bytes=9-0",
            "bytes=0-9,x",
            "bytes=-",
            "bytes=--5",
            "bytes=1-2-3",
            "bytes=0x1-2",
            "bytes=+1-2",
            "bytes= 1 - 2",
            "bytes=0-9;5-6",
            "bytes=-9-",
            "octets=0-1",
            "bytes =0-9",
            "bytes=0-9, 9-5",
        ] {
            assert_eq!(of(value, 1_000), Ranges::Whole, "{value:?}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order_and_near_ones_are_joined() {
        assert_eq!(of("bytes=0-0,999-999", 1_000), many(&[(0, 1), (999, 1_000)]));
        assert_eq!(of("bytes=-1, 0-0", 1_000), many(&[(999, 1_000), (0, 1)]));
        assert_eq!(of("bytes=0-9,5-19,-10", 1_000), many(&[(0, 20), (990, 1_000)]));
        assert_eq!(of("bytes=0-9,10-19", 1_000), one(0, 20), "they touch");
        assert_eq!(of("bytes=0-9,50-59", 1_000), one(0, 60), "the gap is smaller than a part's head");
        assert_eq!(of("bytes=0-9,200-209,100-199", 1_000), many(&[(0, 10), (100, 210)]));
        assert_eq!(of("bytes=0-9,400-409,200-209,95-399", 10_000), many(&[(0, 10), (95, 410)]));
    }

    #[test]
    fn abuse_gets_the_whole_file_once() {
        let spread = |count: u64| -> String {
            let specs: Vec<_> = (0..count).map(|n| format!("{}-{}", n * 1_000, n * 1_000)).collect();
            format!("bytes={}", specs.join(","))
        };
        assert!(matches!(of(&spread(16), 1 << 20), Ranges::Many(parts) if parts.len() == 16));
        assert_eq!(of(&spread(17), 1 << 20), Ranges::Whole);
        assert_eq!(of("bytes=0-,0-,0-", 1_000), Ranges::Whole);
        assert_eq!(of("bytes=0-,0-", 1_000), one(0, 1_000));
        assert_eq!(of("bytes=0-100,50-150,100-200,150-250", 1_000), Ranges::Whole);
    }

    #[test]
    fn content_ranges_include_their_last_byte() {
        let mut out = Vec::new();
        put_content_range(&mut out, ByteRange { start: 0, end: 10 }, 1_000);
        assert_eq!(out, b"bytes 0-9/1000");
        out.clear();
        put_unsatisfied_range(&mut out, 1_000);
        assert_eq!(out, b"bytes */1000");
    }

    #[test]
    fn multipart_lengths_are_those_of_what_is_written() {
        let multipart = Multipart { boundary: b"xyz", content_type: b"text/plain", size: 1_000 };
        let parts = [ByteRange { start: 0, end: 1 }, ByteRange { start: 990, end: 1_000 }];
        let mut out = Vec::new();
        for part in parts {
            multipart.put_part_head(&mut out, part);
            out.extend(std::iter::repeat_n(b'.', part.bytes() as usize));
        }
        multipart.put_end(&mut out);
        let expected = "\r\n--xyz\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-0/1000\r\n\r\n.\
            \r\n--xyz\r\nContent-Type: text/plain\r\nContent-Range: bytes 990-999/1000\r\n\r\n..........\
            \r\n--xyz--\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        assert_eq!(multipart.total_bytes(&parts), out.len() as u64);
        let untyped = Multipart { content_type: b"", ..multipart };
        assert_eq!(untyped.total_bytes(&[]), b"\r\n--xyz--\r\n".len() as u64);
        let mut content_type = Vec::new();
        multipart.put_content_type(&mut content_type);
        assert_eq!(content_type, b"multipart/byteranges; boundary=xyz");
    }

    proptest! {
        #[test]
        fn parts_hold_every_byte_asked_for_and_none_twice(
            specs in proptest::collection::vec((0u64..500, 0u64..500), 1..20),
            size in 1u64..500,
        ) {
            let text: Vec<_> = specs.iter().map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))).collect();
            let parts = match of(&format!("bytes={}", text.join(",")), size) {
                Ranges::Whole => vec![ByteRange { start: 0, end: size }],
                Ranges::One(range) => vec![range],
                Ranges::Many(parts) => {
                    prop_assert!((2..=RANGES_MAX).contains(&parts.len()));
                    parts
                }
                Ranges::Unsatisfiable => Vec::new(),
            };
            let holds = |byte: u64| parts.iter().filter(|part| part.start <= byte && byte < part.end).count();
            for byte in 0..size {
                let asked = specs.iter().any(|&(a, b)| a.min(b) <= byte && byte <= a.max(b));
                prop_assert!(holds(byte) <= 1);
                prop_assert!(!asked || holds(byte) == 1, "byte {} is missing", byte);
            }
            for part in parts {
                prop_assert!(part.start < part.end && part.end <= size);
            }
        }
    }
}
