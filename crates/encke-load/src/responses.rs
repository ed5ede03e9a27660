//! The responses of a server in a comparison: statuses and body sizes.
//!
//! A server that rejects every request is fast. So two servers are compared only if they sent the same responses, as far as
//! statuses and sizes show.

use serde_json::{Value, json};

use crate::statuses::StatusCounts;
use crate::words;

/// Responses of one side.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ResponseMix {
    pub(crate) statuses: StatusCounts,
    /// Bodies, and their bytes without framing.
    pub(crate) bodies: u64,
    pub(crate) body_bytes: u64,
}

/// Statuses are different if the share of one differs by more than this. Fewer errors are a figure of the comparison.
const SHARE: f64 = 0.01;
/// Mean sizes are different if they differ by more than this share of the larger one, and by more than [`SIZE_BYTES`].
const SIZE: f64 = 0.05;
/// Pages with a date, a counter or an address differ by some bytes.
const SIZE_BYTES: f64 = 32.0;

impl ResponseMix {
    /// Adds the responses of another block.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.statuses.merge(&other.statuses);
        self.bodies += other.bodies;
        self.body_bytes += other.body_bytes;
    }

    /// The mean size of a body in bytes; `None` without responses.
    fn mean_bytes(&self) -> Option<f64> {
        (self.bodies > 0).then(|| self.body_bytes as f64 / self.bodies as f64)
    }

    /// The differences between the responses of A and B, in words. Empty if they are alike, or if a side has no responses.
    pub(crate) fn differences(pair: [&Self; 2]) -> Vec<String> {
        let mut differences = Vec::new();
        let [a, b] = pair.map(|side| &side.statuses);
        let differs = |(status, _): (u16, u64)| (a.share(status) - b.share(status)).abs() > SHARE;
        if !a.is_empty() && !b.is_empty() && a.iter().chain(b.iter()).any(differs) {
            differences.push(format!("statuses A {}; B {}", a.words(), b.words()));
        }
        if let [Some(a), Some(b)] = pair.map(Self::mean_bytes) {
            let apart = (a - b).abs();
            let one_is_empty = (a == 0.0) != (b == 0.0);
            if one_is_empty || apart > SIZE_BYTES.max(SIZE * a.max(b)) {
                let [a, b] = [a, b].map(|mean| words::bytes(mean.round() as u64));
                differences.push(format!("bodies A {a}, B {b} on average"));
            }
        }
        differences
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "status_codes": self.statuses, "body_bytes_mean": self.mean_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(statuses: &[(u16, u64)], mean_bytes: u64) -> ResponseMix {
        let statuses: StatusCounts = statuses.iter().copied().collect();
        let bodies = statuses.sum();
        ResponseMix { statuses, bodies, body_bytes: bodies * mean_bytes }
    }

    #[test]
    fn statuses_and_sizes_beyond_the_tolerance_differ() {
        let page = mix(&[(200, 1_000)], 1_000);
        for (other, said) in [
            (mix(&[(200, 3_000)], 1_000), ""),
            (mix(&[(200, 995), (503, 5)], 1_000), ""),
            (mix(&[(200, 980), (503, 20)], 1_000), "statuses A 200 100 %; B 200 98.0 %, 503 2.00 %"),
            (mix(&[(403, 9)], 1_000), "statuses A 200 100 %; B 403 100 %"),
            (mix(&[(200, 9)], 1_050), ""),
            (mix(&[(200, 9)], 1_060), "bodies A 1.00 kB, B 1.06 kB on average"),
            (mix(&[(204, 9)], 0), "statuses A 200 100 %; B 204 100 %, bodies A 1.00 kB, B 0 B on average"),
            (mix(&[], 0), ""),
        ] {
            assert_eq!(ResponseMix::differences([&page, &other]).join(", "), said);
        }
        let [small, smaller] = [30, 1].map(|bytes| mix(&[(200, 9)], bytes));
        assert_eq!(ResponseMix::differences([&small, &smaller]), [""; 0], "some bytes");
        let empty = ResponseMix::differences([&smaller, &mix(&[(200, 9)], 0)]);
        assert_eq!(empty, ["bodies A 1 B, B 0 B on average"]);
    }
}
