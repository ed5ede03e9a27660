//! Histograms as text: readable by HdrHistogram tools (V2, deflated, base64), and read back unchanged.
//!
//! ```text
//!   here            64 buckets per octave   │       a       │       b       │
//!   HdrHistogram   128 buckets per octave   │       │   a   │       │   b   │     (2 significant digits)
//! ```
//! A bucket here spans two buckets of an HdrHistogram with two digits, and its count is stored in the upper one. The end of
//! that bucket is also the value reported here. Reading restores the same buckets, and merging gives the same sums on both
//! sides. Quantiles agree as well: they are at most 1/64 above the true value.

use encke_wire::base64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Deserializer as Reader, Serialize, Serializer as Writer, de};

/// The initial range of a histogram, in ns: an hour. A longer duration extends it.
const ROOM_NS: u64 = 3_600_000_000_000;

/// Encodes pairs of a value (any in its bucket, ns) and its count.
pub(crate) fn text(held: &[(u64, u64)]) -> String {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, ROOM_NS, 2).expect("2 digits, 1 ns to an hour");
    histogram.auto(true);
    for &(ns, count) in held {
        histogram.record_n(ns, count).expect("it makes room for what is longer");
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).expect("counts are below 2^63");
    let mut text = Vec::new();
    base64::put(&mut text, &bytes);
    String::from_utf8(text).expect("base64 is ASCII")
}

/// Decodes a text into the upper bound of each bucket in ns, and its count. `None` if the text is not a histogram.
pub(crate) fn held(text: &str) -> Option<Vec<(u64, u64)>> {
    let bytes = base64::decode(text.as_bytes())?;
    let histogram = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).ok()?;
    Some(histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect())
}

/// For serde's `with`.
pub(crate) fn serialize<S: Writer>(buckets: &[(u64, u64)], writer: S) -> Result<S::Ok, S::Error> {
    text(buckets).serialize(writer)
}

pub(crate) fn deserialize<'a, R: Reader<'a>>(reader: R) -> Result<Vec<(u64, u64)>, R::Error> {
    let text = String::deserialize(reader)?;
    held(&text).ok_or_else(|| de::Error::custom("invalid histogram: expected HdrHistogram V2 in base64"))
}

#[cfg(test)]
mod tests {
    use encke_stats::Distribution;

    use super::*;
    use crate::random::Random;

    fn pairs(distribution: &Distribution) -> Vec<(u64, u64)> {
        distribution.buckets().map(|(_, last, count)| (last, count)).collect()
    }

    #[test]
    fn a_histogram_comes_back_bucket_by_bucket() {
        for seed in 0..20 {
            let mut random = Random::new(seed, 0);
            let mut distribution = Distribution::new();
            for _ in 0..500 {
                distribution.record(random.word() >> (16 + random.below(48)));
            }
            let back = held(&text(&pairs(&distribution))).expect("a histogram");
            assert_eq!(back, pairs(&distribution), "seed {seed}");
        }
        assert_eq!(held(&text(&[])), Some(Vec::new()));
        // Two hours exceed the initial range.
        assert_eq!(held(&text(&[(7_200_000_000_000, 3)])).map(|held| held[0].1), Some(3));
    }

    #[test]
    fn its_own_tools_find_the_quantiles_that_are_told_here() {
        let mut random = Random::new(5, 0);
        let mut distribution = Distribution::new();
        (0..20_000).for_each(|_| distribution.record((random.interval() * 1e6) as u64));
        let bytes = base64::decode(text(&pairs(&distribution)).as_bytes()).expect("base64");
        let theirs = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).expect("a histogram");
        assert_eq!(theirs.len(), 20_000);
        for quantile in [0.1, 0.5, 0.9, 0.99, 0.999] {
            assert_eq!(Some(theirs.value_at_quantile(quantile)), distribution.quantile_ns(quantile));
        }
    }

    #[test]
    fn what_is_no_histogram_is_said() {
        let whole = text(&[(1_000, 5)]);
        for broken in ["", "HISTFAAA", &whole[4..], &whole[..whole.len() - 8], "%%%%"] {
            assert_eq!(held(broken), None, "{broken}");
        }
    }
}
