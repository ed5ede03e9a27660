//! How long trains of pipelined requests take, and so how long their answers may be left to gather.
//!
//! ```text
//!   a train:   ├─ sent ──── an answer ── an answer ── … ── the last ─┤      half of them take longer than `median_ns`
//!   a turn:    ├─ gather ─┤ all that has come is read
//!                 ≤ 1/64
//! ```
//! A server that takes turns among connections sends each answer by itself. Read as they come, each costs a receive and
//! a wake-up, at both ends; nothing is gained by it where 63 of 64 parts of an answer's time are waiting for others.
//! A histogram tells a time to 1/64, too.

/// What trains take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Trains {
    /// 0 before the first.
    median_ns: u64,
}

/// Of a train's time the part for which its answers may gather.
const PART: u64 = 64;
/// Less is not worth the timer.
const LEAST_NS: u64 = 20_000;
/// More gathers no more, and ends and timeouts wait for it.
const MOST_NS: u64 = 1_000_000;

impl Trains {
    /// A train was answered within this.
    pub(crate) fn note(&mut self, took_ns: u64) {
        // By a step up or down for each it finds the middle, whatever the longest come to.
        let step_ns = self.median_ns / 64;
        self.median_ns = match self.median_ns {
            0 => took_ns,
            median_ns if took_ns > median_ns => median_ns + step_ns,
            median_ns => median_ns - step_ns,
        };
    }

    /// For how long answers may gather before they are read, ns; 0 where trains are too short for that.
    pub(crate) fn gather_ns(self) -> u64 {
        match self.median_ns / PART {
            ..LEAST_NS => 0,
            gather_ns => gather_ns.min(MOST_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn answers_gather_for_a_64th_of_the_median_and_a_millisecond_at_most() {
        for (train_ns, gather_ns) in
            [(1_000_000, 0..1), (6_400_000, 90_000..105_000), (10_000_000_000, MOST_NS..MOST_NS + 1)]
        {
            let (mut trains, mut random) = (Trains::default(), Random::new(1, 1));
            assert_eq!(trains.gather_ns(), 0);
            for _ in 0..10_000 {
                // A tenth of them takes a hundred times as long, a tenth a hundredth.
                trains.note(match random.below(10) {
                    0 => train_ns * 100,
                    1 => train_ns / 100,
                    _ => train_ns,
                });
            }
            assert!(gather_ns.contains(&trains.gather_ns()), "{train_ns}: {}", trains.gather_ns());
        }
    }
}
