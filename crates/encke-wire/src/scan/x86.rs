//! Scanners for x86-64: 32 bytes at a time with AVX2 (2013), 16 with SSSE3 (2006).
//!
//! A value of [`Avx2`] or [`Ssse3`] is the proof that this processor has those instructions; only `detected`
//! makes one. Everything here is inlined into [`Avx2::run`] and [`Ssse3::run`], which are compiled for those
//! instructions: a token costs no call, and the tables stay in registers from one token to the next.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
};

use super::{Blocks, Class, HIGH_HALF_BIT, Job, Members, Scanner, skip_line_blocks};

/// INVARIANT: exists only on a processor with AVX2 and BMI1.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, if this processor has what it takes. Cached by the standard library: a load and a test.
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
        // WHY: only code compiled for them can have these instructions inlined. Where the compiler left a call a
        // token, 703 bytes of head took 240 ns instead of 205; where it left one an instruction, 1,260.
        unsafe { with_avx2(job, self) }
    }

    /// One bit a byte of `block` that is not in `members`.
    #[inline(always)]
    fn non_members(self, members: &Members, block: &[u8; 32]) -> u64 {
        // SAFETY: `self` proves that the processor has AVX2; the loads are from references to as many bytes
        // as they take, and ask for no alignment.
        let mask = unsafe {
            let bytes = load32(block);
            // A shuffle takes a byte's low half as index, and yields 0 if its top bit is set: no member is.
            let table = _mm256_broadcastsi128_si256(load16(&members.high_halves));
            let candidates = _mm256_shuffle_epi8(table, bytes);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(0x0f));
            let own = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(&HIGH_HALF_BIT)), high);
            let is_stranger = _mm256_cmpeq_epi8(_mm256_and_si256(candidates, own), _mm256_setzero_si256());
            _mm256_movemask_epi8(is_stranger)
        };
        u64::from(mask.cast_unsigned())
    }

    /// One bit a byte of `block` that is a control character other than tab.
    #[inline(always)]
    fn controls(self, block: &[u8; 32]) -> u64 {
        // SAFETY: as in `non_members`.
        let mask = unsafe {
            let bytes = load32(block);
            let below_space = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes);
            let tab = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(0x09));
            let delete = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(0x7f));
            _mm256_movemask_epi8(_mm256_or_si256(_mm256_andnot_si256(tab, below_space), delete))
        };
        u64::from(mask.cast_unsigned())
    }
}

impl Blocks<32> for Avx2 {
    const BITS: usize = 1;

    #[inline(always)]
    fn strangers(self, class: Class, block: &[u8; 32]) -> u64 {
        match class {
            Class::Ascii(members) => self.non_members(members, block),
            Class::Text => self.controls(block),
        }
    }
}

impl Scanner for Avx2 {
    #[inline(always)]
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
        self.skip_blocks(class, bytes, from)
    }

    #[inline(always)]
    fn skip_line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        skip_line_blocks(self, bytes, from)
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
        // WHY: as for AVX2.
        unsafe { with_ssse3(job, self) }
    }

    /// As the function of that name for AVX2.
    #[inline(always)]
    fn non_members(self, members: &Members, block: &[u8; 16]) -> u64 {
        // SAFETY: `self` proves that the processor has SSSE3; the loads are from references to as many bytes
        // as they take, and ask for no alignment.
        let mask = unsafe {
            let bytes = load16(block);
            let candidates = _mm_shuffle_epi8(load16(&members.high_halves), bytes);
            let high = _mm_and_si128(_mm_srli_epi16::<4>(bytes), _mm_set1_epi8(0x0f));
            let own = _mm_shuffle_epi8(load16(&HIGH_HALF_BIT), high);
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(candidates, own), _mm_setzero_si128()))
        };
        u64::from(mask.cast_unsigned())
    }

    /// As the function of that name for AVX2.
    #[inline(always)]
    fn controls(self, block: &[u8; 16]) -> u64 {
        // SAFETY: as in `non_members`.
        let mask = unsafe {
            let bytes = load16(block);
            let below_space = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
            let tab = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x09));
            let delete = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
            _mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, below_space), delete))
        };
        u64::from(mask.cast_unsigned())
    }
}

impl Blocks<16> for Ssse3 {
    const BITS: usize = 1;

    #[inline(always)]
    fn strangers(self, class: Class, block: &[u8; 16]) -> u64 {
        match class {
            Class::Ascii(members) => self.non_members(members, block),
            Class::Text => self.controls(block),
        }
    }
}

impl Scanner for Ssse3 {
    #[inline(always)]
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
        self.skip_blocks(class, bytes, from)
    }

    #[inline(always)]
    fn skip_line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        skip_line_blocks(self, bytes, from)
    }
}

/// # Safety
/// The processor has AVX.
#[inline(always)]
unsafe fn load32(block: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to 32 readable bytes, `loadu` asks for no alignment, and the caller has AVX.
    unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
}

#[inline(always)]
fn load16(block: &[u8; 16]) -> __m128i {
    // SAFETY: the reference is to 16 readable bytes, `loadu` asks for no alignment, and every x86-64 has SSE2.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}
