//! The scanner for every machine, and the reference for all others.
//!
//! Classes are tested byte by byte. Values, which are most of a head, are tested eight bytes at a time in an ordinary register.
//! A byte below 0x20 or equal to 0x7f sets the top bit of its result byte.

use super::{Class, Scanner, is_text};

/// Needs only 64-bit arithmetic.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Scanner for Scalar {
    #[inline(always)]
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
        match class {
            Class::Ascii(_) => from + bytes[from..].iter().take_while(|&&byte| class.has(byte)).count(),
            Class::Text => skip_text(bytes, from),
        }
    }
}

#[inline(always)]
fn skip_text(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        while let Some(word) = bytes[at..].first_chunk() {
            let suspects = suspects(u64::from_le_bytes(*word));
            if suspects != 0 {
                at += (suspects.trailing_zeros() / 8) as usize;
                break;
            }
            at += 8;
        }
        // At a suspect byte (which may be a tab), or among the last seven bytes.
        match bytes.get(at) {
            Some(&byte) if is_text(byte) => at += 1,
            _ => return at,
        }
    }
}

/// The top bit of each byte of `word` that may be a control character. The lowest bit set is exact (apart from tabs, which are
/// reported too), because borrows only propagate upwards.
#[inline(always)]
fn suspects(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = word ^ (ONES * 0x7f);
    let is_delete = delete.wrapping_sub(ONES) & !delete;
    (below_space | is_delete) & TOPS
}
