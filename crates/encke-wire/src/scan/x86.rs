//! Scanners for x86-64: 32 bytes at a time with AVX2 (2013), 16 with SSSE3 (2006).
//!
//! A value of [`Avx2`] or [`Ssse3`] is the proof that this processor has those instructions; only `detected`
//! makes one. The functions marked with a target feature are inlined into [`Avx2::run`] and [`Ssse3::run`],
//! which are compiled for the same features, so that a token costs no call.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
};

use super::{Class, HIGH_HALF_BIT, Job, Scalar, Scanner};

/// INVARIANT: exists only on a processor with AVX2 and BMI1.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, if this processor has what it takes. Cached by the standard library: one load and a test.
    #[inline]
    pub(crate) fn detected() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1")).then_some(Self(()))
    }

    /// Runs a job that is compiled for AVX2.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Output {
        #[target_feature(enable = "avx2,bmi1")]
        fn with_avx2<J: Job>(job: J, scanner: Avx2) -> J::Output {
            job.run(scanner)
        }
        // SAFETY: `self` proves that the processor has AVX2 and BMI1.
        // WHY: only code compiled with the feature can inline its instructions; a call a token doubles the
        // time of a head of ten fields.
        unsafe { with_avx2(job, self) }
    }
}

impl Scanner for Avx2 {
    #[inline(always)]
    fn skip(self, class: &Class, bytes: &[u8], from: usize) -> usize {
        // SAFETY: `self` proves that the processor has AVX2 and BMI1.
        unsafe { avx2::skip(class, bytes, from) }
    }

    #[inline(always)]
    fn skip_text(self, bytes: &[u8], from: usize) -> usize {
        // SAFETY: `self` proves that the processor has AVX2 and BMI1.
        unsafe { avx2::skip_text(bytes, from) }
    }
}

/// INVARIANT: exists only on a processor with SSSE3.
#[derive(Clone, Copy)]
pub(crate) struct Ssse3(());

impl Ssse3 {
    /// The proof, if this processor has what it takes.
    #[inline]
    pub(crate) fn detected() -> Option<Self> {
        is_x86_feature_detected!("ssse3").then_some(Self(()))
    }

    /// Runs a job that is compiled for SSSE3.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Output {
        #[target_feature(enable = "ssse3")]
        fn with_ssse3<J: Job>(job: J, scanner: Ssse3) -> J::Output {
            job.run(scanner)
        }
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { with_ssse3(job, self) }
    }
}

impl Scanner for Ssse3 {
    #[inline(always)]
    fn skip(self, class: &Class, bytes: &[u8], from: usize) -> usize {
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { ssse3::skip(class, bytes, from) }
    }

    #[inline(always)]
    fn skip_text(self, bytes: &[u8], from: usize) -> usize {
        // SAFETY: `self` proves that the processor has SSSE3.
        unsafe { ssse3::skip_text(bytes, from) }
    }
}

mod avx2 {
    use super::*;

    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    pub(super) fn skip(class: &Class, bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(block) = bytes[at..].first_chunk() {
            let strangers = strangers(class, block);
            if strangers != 0 {
                return at + strangers.trailing_zeros() as usize;
            }
            at += 32;
        }
        // Fewer than 32 bytes are left: look at the last 32 of the buffer and forget those before `at`.
        let Some(block) = bytes.last_chunk() else { return ssse3::skip(class, bytes, at) };
        let seen = 32 - (bytes.len() - at);
        first_of(u64::from(strangers(class, block)) >> seen, at, bytes)
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    pub(super) fn skip_text(bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(block) = bytes[at..].first_chunk() {
            let controls = controls(block);
            if controls != 0 {
                return at + controls.trailing_zeros() as usize;
            }
            at += 32;
        }
        let Some(block) = bytes.last_chunk() else { return ssse3::skip_text(bytes, at) };
        let seen = 32 - (bytes.len() - at);
        first_of(u64::from(controls(block)) >> seen, at, bytes)
    }

    /// One bit a byte of `block` that is not in `class`.
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    fn strangers(class: &Class, block: &[u8; 32]) -> u32 {
        let bytes = load32(block);
        // A shuffle takes a byte's low half as index, and yields 0 if its top bit is set: no member is.
        let candidates = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(&class.high_halves)), bytes);
        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(0x0f));
        let own = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(&HIGH_HALF_BIT)), high);
        let is_stranger = _mm256_cmpeq_epi8(_mm256_and_si256(candidates, own), _mm256_setzero_si256());
        _mm256_movemask_epi8(is_stranger).cast_unsigned()
    }

    /// One bit a byte of `block` that is a control character other than tab.
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    fn controls(block: &[u8; 32]) -> u32 {
        let bytes = load32(block);
        let below_space = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes);
        let tab = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(0x09));
        let delete = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(0x7f));
        let is_control = _mm256_or_si256(_mm256_andnot_si256(tab, below_space), delete);
        _mm256_movemask_epi8(is_control).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load32(block: &[u8; 32]) -> __m256i {
        // SAFETY: the reference is to 32 readable bytes, and `loadu` asks for no alignment.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load16(block: &[u8; 16]) -> __m128i {
        // SAFETY: the reference is to 16 readable bytes, and `loadu` asks for no alignment.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }
}

mod ssse3 {
    use super::*;

    #[inline]
    #[target_feature(enable = "ssse3")]
    pub(super) fn skip(class: &Class, bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(block) = bytes[at..].first_chunk() {
            let strangers = strangers(class, block);
            if strangers != 0 {
                return at + strangers.trailing_zeros() as usize;
            }
            at += 16;
        }
        let Some(block) = bytes.last_chunk() else { return Scalar.skip(class, bytes, at) };
        let seen = 16 - (bytes.len() - at);
        first_of(u64::from(strangers(class, block)) >> seen, at, bytes)
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    pub(super) fn skip_text(bytes: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(block) = bytes[at..].first_chunk() {
            let controls = controls(block);
            if controls != 0 {
                return at + controls.trailing_zeros() as usize;
            }
            at += 16;
        }
        let Some(block) = bytes.last_chunk() else { return Scalar.skip_text(bytes, at) };
        let seen = 16 - (bytes.len() - at);
        first_of(u64::from(controls(block)) >> seen, at, bytes)
    }

    /// As the function of that name for AVX2.
    #[inline]
    #[target_feature(enable = "ssse3")]
    fn strangers(class: &Class, block: &[u8; 16]) -> u32 {
        let bytes = load16(block);
        let candidates = _mm_shuffle_epi8(load16(&class.high_halves), bytes);
        let high = _mm_and_si128(_mm_srli_epi16::<4>(bytes), _mm_set1_epi8(0x0f));
        let own = _mm_shuffle_epi8(load16(&HIGH_HALF_BIT), high);
        let is_stranger = _mm_cmpeq_epi8(_mm_and_si128(candidates, own), _mm_setzero_si128());
        _mm_movemask_epi8(is_stranger).cast_unsigned()
    }

    /// As the function of that name for AVX2.
    #[inline]
    #[target_feature(enable = "ssse3")]
    fn controls(block: &[u8; 16]) -> u32 {
        let bytes = load16(block);
        let below_space = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
        let tab = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x09));
        let delete = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
        _mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, below_space), delete)).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "ssse3")]
    fn load16(block: &[u8; 16]) -> __m128i {
        // SAFETY: the reference is to 16 readable bytes, and `loadu` asks for no alignment.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }
}

/// The position that the lowest bit of `found` names, counted from `at`; the end if there is none. `found` has
/// 32 bits, so that a shift by all 32 of them is defined.
#[inline(always)]
fn first_of(found: u64, at: usize, bytes: &[u8]) -> usize {
    if found == 0 { bytes.len() } else { at + found.trailing_zeros() as usize }
}
