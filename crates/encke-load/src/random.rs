//! Seeded random numbers: the same seed repeats a run's choices and arrivals exactly.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, 2 ns per number, passes BigCrush. Not for secrets.

/// A random number generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Starts one of a seed's sequences. Sequences of different `stream`s are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut start = Self(seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407));
        start.word();
        start
    }

    /// 64 random bits.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be 0. The bias is less than `limit` ÷ 2⁶⁴.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in (0, 1].
    pub(crate) fn share(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Time to the next of independent events with a mean rate of one per unit of time.
    pub(crate) fn interval(&mut self) -> f64 {
        -self.share().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_streams_differ() {
        let words = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.word(), random.word(), random.word()]
        };
        assert_eq!(words(7, 0), words(7, 0));
        assert_ne!(words(7, 0), words(7, 1));
        assert_ne!(words(7, 0), words(8, 0));
    }

    #[test]
    fn intervals_have_mean_and_variance_one() {
        let mut random = Random::new(1, 0);
        let intervals: Vec<f64> = (0..200_000).map(|_| random.interval()).collect();
        let mean = intervals.iter().sum::<f64>() / intervals.len() as f64;
        let variance =
            intervals.iter().map(|interval| (interval - mean).powi(2)).sum::<f64>() / intervals.len() as f64;
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03, "{mean}, {variance}");
    }

    #[test]
    fn numbers_below_a_limit_are_all_there() {
        let mut random = Random::new(3, 0);
        let mut seen = [0u32; 7];
        (0..7_000).for_each(|_| seen[random.below(7) as usize] += 1);
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }
}
