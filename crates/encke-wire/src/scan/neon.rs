//! The scanner for aarch64: 16 bytes at a time with NEON, which every such processor supports.
//!
//! NEON has no `movemask`. Narrowing each 16-bit lane by four bits leaves four bits per byte, 64 bits in total. Counting zeros
//! then finds the first match.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vbicq_u8, vceqq_u8, vceqzq_u8, vcltq_u8, vdupq_n_u8, vget_lane_u64, vld1q_u8,
    vorrq_u8, vqtbl1q_u8, vreinterpret_u64_u8, vreinterpretq_u16_u8, vshrn_n_u16, vshrq_n_u8,
};

use super::{Blocks, Class, HIGH_HALF_BIT, Members, Scanner};

/// Needs no proof: NEON is part of the architecture.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

impl Blocks<16> for Neon {
    const BITS: usize = 4;

    #[inline(always)]
    fn strangers(self, class: Class, block: &[u8; 16]) -> u64 {
        match class {
            Class::Ascii(members) => non_members(members, block),
            Class::Text => controls(block),
        }
    }
}

impl Scanner for Neon {
    #[inline(always)]
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
        self.skip_blocks(class, bytes, from)
    }

    #[inline(always)]
    fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        self.line_in_blocks(bytes, from)
    }
}

/// Four bits per byte of `block`, set if the byte is not in `members`.
#[inline(always)]
fn non_members(members: &Members, block: &[u8; 16]) -> u64 {
    let bytes = load16(block);
    // SAFETY: NEON is part of aarch64, and these work on values only.
    unsafe {
        // A table look-up yields 0 for an index of 16 or more, so the low half must be masked. Bytes above 0x7f have no bit in
        // HIGH_HALF_BIT, so they are not members.
        let candidates = vqtbl1q_u8(load16(&members.high_halves), vandq_u8(bytes, vdupq_n_u8(0x0f)));
        let own = vqtbl1q_u8(load16(&HIGH_HALF_BIT), vshrq_n_u8::<4>(bytes));
        mask(vceqzq_u8(vandq_u8(candidates, own)))
    }
}

/// Four bits per byte of `block`, set if the byte is a control character other than tab.
#[inline(always)]
fn controls(block: &[u8; 16]) -> u64 {
    let bytes = load16(block);
    // SAFETY: NEON is part of aarch64, and these work on values only.
    unsafe {
        let below_space = vcltq_u8(bytes, vdupq_n_u8(0x20));
        let tab = vceqq_u8(bytes, vdupq_n_u8(0x09));
        let delete = vceqq_u8(bytes, vdupq_n_u8(0x7f));
        mask(vorrq_u8(vbicq_u8(below_space, tab), delete))
    }
}

#[inline(always)]
fn load16(block: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the reference is to 16 readable bytes, and the load asks for no alignment.
    unsafe { vld1q_u8(block.as_ptr()) }
}

/// Four bits per byte of `lanes`, whose bytes are all ones or all zeros.
#[inline(always)]
fn mask(lanes: uint8x16_t) -> u64 {
    // SAFETY: NEON is part of aarch64, and these work on values only.
    unsafe { vget_lane_u64::<0>(vreinterpret_u64_u8(vshrn_n_u16::<4>(vreinterpretq_u16_u8(lanes)))) }
}
