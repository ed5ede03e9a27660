//! How long the answers of pipelined requests may gather before they are read.
//!
//! ```text
//!   a request:   ├─ sent ─── those before it are answered ─── its answer ─┤      half of them take longer than the median
//!   a wait:                             ├─ gather ─┤ all that has come is read
//!                                          ≤ 1/128
//! ```
//! A server that takes turns among connections sends each answer by itself. Read as they come, each costs a receive and
//! a wake-up, and the server pays for the waking; nobody gains by it where an answer's time is the waiting for others.

/// What answers take.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Gathering {
    /// 0 before the first.
    median_ns: u64,
}

/// What part of the median an answer may be read late.
pub(crate) const PART: u64 = 128;
/// Less is not worth the timer.
const LEAST_NS: u64 = 15_000;
/// More gathers no more, and ends and timeouts wait for it.
const MOST_NS: u64 = 1_000_000;
/// The median moves by a part of itself with each answer.
const STEP: u64 = 256;

impl Gathering {
    /// An answer took so long.
    pub(crate) fn note(&mut self, took_ns: u64) {
        // By a step up or down for each it finds the middle, whatever the longest come to.
        let step_ns = self.median_ns.div_ceil(STEP);
        self.median_ns = match self.median_ns {
            0 => took_ns,
            median_ns if took_ns > median_ns => median_ns + step_ns,
            median_ns => median_ns - step_ns,
        };
    }

    /// For how long answers may gather, ns; 0 where they take too little for that.
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
                // A tenth of them takes a hundred times as long, a tenth a hundredth.
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
