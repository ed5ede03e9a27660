//! A histogram as text: what HdrHistogram's tools read (V2, deflated, base64), and what comes back unchanged.
//!
//! ```text
//!   ours    64 buckets an octave   │       a       │       b       │
//!   theirs 128 buckets an octave   │       │   a   │       │   b   │     (2 significant digits)
//! ```
//! Each bucket here is two of an HdrHistogram of two digits, so its count stands in the upper one: whose end is the value
//! that is told here, too. Reading it gives the same buckets, merging there and merging here the same sums, and a
//! quantile there is the one here, which is at most 1/64 above the truth.

use encke_wire::base64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Deserializer as Reader, Serialize, Serializer as Writer, de};

/// Longest duration that a fresh histogram has room for: an hour. One that is longer makes more.
const ROOM_NS: u64 = 3_600_000_000_000;

/// Values (any of a bucket's, ns) and how many, as text.
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

/// What a text holds: the last value of each bucket in ns, and how many lie in it. `None` if it is no histogram.
pub(crate) fn held(text: &str) -> Option<Vec<(u64, u64)>> {
    let bytes = base64::decode(text.as_bytes())?;
    let histogram = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).ok()?;
    Some(histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect())
}

/// As serde's `with` wants it.
pub(crate) fn serialize<S: Writer>(buckets: &[(u64, u64)], writer: S) -> Result<S::Ok, S::Error> {
    text(buckets).serialize(writer)
}

pub(crate) fn deserialize<'a, R: Reader<'a>>(reader: R) -> Result<Vec<(u64, u64)>, R::Error> {
    let text = String::deserialize(reader)?;
    held(&text).ok_or_else(|| de::Error::custom("a histogram is not one of HdrHistogram's (V2, base64)"))
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
        // Two hours are longer than there is room for.
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
