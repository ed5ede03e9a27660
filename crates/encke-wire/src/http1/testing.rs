//! Shared by the tests of this crate: input in all possible splits, and seeded random numbers.

/// A small random number generator (xorshift64*): the same seed gives the same run everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        assert_ne!(seed, 0, "xorshift never leaves 0");
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }
}

/// `input` split in two at every position, and byte by byte.
pub(crate) fn splits(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let halves = (0..=input.len()).map(|at| vec![&input[..at], &input[at..]]);
    halves.chain([input.chunks(1).collect()]).collect()
}
