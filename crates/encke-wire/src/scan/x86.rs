//! Scanners for x86-64: 32 bytes at a time with AVX2 (2013), 16 with SSSE3 (2006).
//!
//! A value of [`Avx2`] or [`Ssse3`] proves that this processor supports the instructions; only `detected` creates one. All code
//! here is inlined into [`Avx2::run`] and [`Ssse3::run`], which are compiled for those instructions. So a token costs no call,
//! and the tables stay in registers from one token to the next.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
};
use std::hint::assert_unchecked;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{
    Blocks, CONTROL_HIGH_HALVES, Class, FIELD_NAME_MEMBERS, HIGH_HALF_BIT, Members, ScanJob, Scanner,
};

/// The best scanner that this processor supports.
#[derive(Clone, Copy)]
pub(crate) enum Best {
    Avx2(Avx2),
    Ssse3(Ssse3),
    Neither,
}

/// Returns the best scanner with one load and one branch. The standard library would take as much for each of three features,
/// and would repeat that for each head.
#[inline]
pub(crate) fn best() -> Best {
    match BEST.load(Ordering::Relaxed) {
        // Only `detect` stores these two values, after detecting the features.
        AVX2 => Best::Avx2(Avx2(())),
        SSSE3 => Best::Ssse3(Ssse3(())),
        _ => detect(),
    }
}

#[cold]
fn detect() -> Best {
    if let Some(avx2) = Avx2::detected() {
        BEST.store(AVX2, Ordering::Relaxed);
        return Best::Avx2(avx2);
    }
    match Ssse3::detected() {
        Some(ssse3) => {
            BEST.store(SSSE3, Ordering::Relaxed);
            Best::Ssse3(ssse3)
        }
        None => Best::Neither,
    }
}

/// The result of [`detect`]; 0 before the first call, or if nothing was detected.
static BEST: AtomicU8 = AtomicU8::new(0);
const AVX2: u8 = 1;
const SSSE3: u8 = 2;

/// INVARIANT: exists only on a processor with AVX2, BMI1 and BMI2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Returns the proof if this processor supports the instructions.
    pub(crate) fn detected() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Self(()))
    }

    /// Runs a job compiled for AVX2.
    #[inline]
    pub(crate) fn run<J: ScanJob>(self, job: J) -> J::Output {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn with_avx2<J: ScanJob>(job: J, scanner: Avx2) -> J::Output {
            job.run(scanner)
        }
        // SAFETY: `self` proves that the processor has AVX2, BMI1 and BMI2.
        // WHY: only code compiled for them can inline these instructions. A head of 703 bytes took 205 ns. With one call left
        // per token it took 240 ns, with one call per instruction 1,260 ns.
        unsafe { with_avx2(job, self) }
    }

    /// One bit per byte of `block`, set if the byte is not in `members`.
    #[inline(always)]
    fn non_members(self, members: &Members, block: &[u8; 32]) -> u64 {
        let (bytes, own) = self.halved(block);
        // SAFETY: `self` proves that the processor has AVX2.
        let mask = unsafe {
            let is_stranger =
                _mm256_cmpeq_epi8(among(&members.high_halves, bytes, own), _mm256_setzero_si256());
            _mm256_movemask_epi8(is_stranger)
        };
        mask.cast_unsigned().into()
    }

    /// The bytes of `block`, and for each the bit of its high half; an arbitrary bit for bytes above 0x7f.
    #[inline(always)]
    fn halved(self, block: &[u8; 32]) -> (__m256i, __m256i) {
        // SAFETY: `self` proves that the processor has AVX2; the loads are from references to as many bytes
        // as they take, and ask for no alignment.
        unsafe {
            let bytes = load32(block);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(0x0f));
            (bytes, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(&OWN_BIT)), high))
        }
    }

    /// One bit per byte of `block`, set if the byte is a control character other than tab.
    #[inline(always)]
    fn controls(self, block: &[u8; 32]) -> u64 {
        // SAFETY: as in `halved`.
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

    /// Both masks by table look-ups, which share the look-up of the high halves.
    #[inline(always)]
    fn line_strangers(self, block: &[u8; 32]) -> (u64, u64) {
        let (bytes, own) = self.halved(block);
        // SAFETY: `self` proves that the processor has AVX2.
        let (nameless, textless) = unsafe {
            let nameless =
                _mm256_cmpeq_epi8(among(&FIELD_NAME_MEMBERS.high_halves, bytes, own), _mm256_setzero_si256());
            let textless = _mm256_cmpeq_epi8(among(&CONTROL_HIGH_HALVES, bytes, own), own);
            (_mm256_movemask_epi8(nameless), _mm256_movemask_epi8(textless))
        };
        (nameless.cast_unsigned().into(), textless.cast_unsigned().into())
    }
}

impl Scanner for Avx2 {
    #[inline(always)]
    fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
        self.skip_blocks(class, bytes, from)
    }

    #[inline(always)]
    fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        let (name_bytes, text_bytes) = self.line_in_blocks(bytes, from);
        // SAFETY: `line_in_blocks` has panicked if `from` is beyond the end, counts no further than to it, and ends
        // a name where it ends a text.
        // WHY: callers that index at these positions need no further bounds checks, which would be eight per line.
        unsafe { assert_unchecked(name_bytes <= text_bytes && text_bytes <= bytes.len() - from) }
        (name_bytes, text_bytes)
    }
}

/// For each byte the bit of its own high half if the byte is in the set `high_halves`, else 0.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn among(high_halves: &[u8; 16], bytes: __m256i, own: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        // A shuffle uses the low half of a byte as index, and yields 0 if the top bit is set: such bytes are never members.
        let table = _mm256_broadcastsi128_si256(load16(high_halves));
        _mm256_and_si256(_mm256_shuffle_epi8(table, bytes), own)
    }
}

/// As [`HIGH_HALF_BIT`], but with a bit for bytes above 0x7f as well. [`among`] yields 0 for them, so only members have their
/// own bit in its result.
const OWN_BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 1, 1, 1, 1, 1, 1, 1];

/// INVARIANT: exists only on a processor with SSSE3.
#[derive(Clone, Copy)]
pub(crate) struct Ssse3(());

impl Ssse3 {
    /// Returns the proof if this processor supports the instructions.
    pub(crate) fn detected() -> Option<Self> {
        is_x86_feature_detected!("ssse3").then_some(Self(()))
    }

    /// Runs a job compiled for SSSE3.
    #[inline]
    pub(crate) fn run<J: ScanJob>(self, job: J) -> J::Output {
        #[target_feature(enable = "ssse3")]
        fn with_ssse3<J: ScanJob>(job: J, scanner: Ssse3) -> J::Output {
            job.run(scanner)
        }
        // SAFETY: `self` proves that the processor has SSSE3.
        // WHY: as for AVX2.
        unsafe { with_ssse3(job, self) }
    }

    /// As [`Avx2::non_members`].
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

    /// As [`Avx2::controls`].
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
    fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
        self.line_in_blocks(bytes, from)
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
