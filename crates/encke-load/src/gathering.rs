//! How long responses to pipelined requests may gather before they are read.
//!
//! ```text
//!   a request:   ├─ sent ─── earlier responses ─── its response ─┤   half of them take longer than the median
//!   a wait:                                ├─ gather ─┤ then read all that arrived
//!                                            ≤ 1/128
//! ```
//! A server that alternates between connections sends each response separately. Reading them one by one costs a receive and a
//! wake-up each, and the server pays for the wake-ups. Pipelined responses mostly wait for the ones before them, so reading
//! them a little later changes their times by at most 1/128 of the median.

/// Running estimate of the median response time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Gathering {
    /// 0 before the first response.
    median_ns: u64,
}

/// A response may be read late by this fraction of the median: 1/128.
pub(crate) const PART: u64 = 128;
/// Shorter times are not worth a timer.
const LEAST_NS: u64 = 15_000;
/// Longer times gather no more responses, and would delay timeouts and the end.
const MOST_NS: u64 = 1_000_000;
/// Each response moves the median by this fraction of itself: 1/256.
const STEP: u64 = 256;

impl Gathering {
    /// Takes the duration of a response into account.
    pub(crate) fn note(&mut self, took_ns: u64) {
        // One step up or down per response converges to the median, however long the longest responses are.
        let step_ns = self.median_ns.div_ceil(STEP);
        self.median_ns = match self.median_ns {
            0 => took_ns,
            median_ns if took_ns > median_ns => median_ns + step_ns,
            median_ns => median_ns - step_ns,
        };
    }

    /// How long responses may gather, in ns; 0 if they are too fast for it.
    pub(crate) fn time_ns(self) -> u64 {
        match self.median_ns / PART {
            ..LEAST_NS => 0,
            time_ns => time_ns.min(MOST_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn answers_gather_for_a_128th_of_their_median_and_a_millisecond_at_most() {
        for (took_ns, time_ns) in [
            (0, 0..1),
            (1_900_000, 0..1),
            (6_400_000, 48_000..52_000),
            (100_000_000, 750_000..812_500),
            (10_000_000_000, MOST_NS..MOST_NS + 1),
        ] {
            let (mut gathering, mut random) = (Gathering::default(), Random::new(1, 1));
            assert_eq!(gathering.time_ns(), 0);
            for _ in 0..10_000 {
                // A tenth takes a hundred times as long, a tenth a hundredth of the time.
                gathering.note(match random.below(10) {
                    0 => took_ns * 100,
                    1 => took_ns / 100,
                    _ => took_ns,
                });
            }
            assert!(time_ns.contains(&gathering.time_ns()), "{took_ns}: {}", gathering.time_ns());
        }
    }
}
