//! The times at which refused clients ask an application again.
//!
//! An application that is slow, or has just started, refuses many clients at the same moment. If they all came back after the same time, it
//! would refuse most of them again. So each gets a later time than the one before, by the time that the application takes per question.

/// The least time before a client tries again, in ns.
const LEAST_NS: u64 = 1_000_000_000;
/// The most, in ns: an application that has not responded for long may respond again.
const MOST_NS: u64 = 60_000_000_000;
/// The least time between two clients of a worker, in ns.
const STEP_NS: u64 = 1_000_000;
/// The share of the last question in the mean.
const WEIGHT: u64 = 8;

/// The pace of one application, as one worker sees it.
#[derive(Default)]
pub(crate) struct RetryPace {
    /// Mean time of a question, in ns; 0 before the first one.
    mean_ns: u64,
    /// The last time that was given, in ns of the monotonic clock.
    last_ns: u64,
}

impl RetryPace {
    /// A question has ended after `ns`, with or without a verdict.
    pub(crate) fn ended(&mut self, ns: u64) {
        self.mean_ns = match self.mean_ns {
            0 => ns,
            mean_ns => (mean_ns / WEIGHT).saturating_mul(WEIGHT - 1).saturating_add(ns / WEIGHT),
        };
    }

    /// The time in ms after which one more refused client may try again, if `at_once` questions are answered at the same time and
    /// `queued` wait.
    pub(crate) fn next_ms(&mut self, now_ns: u64, at_once: usize, queued: usize) -> u64 {
        let step_ns = (self.mean_ns / at_once.max(1) as u64).max(STEP_NS);
        let first_ns = step_ns.saturating_mul(queued as u64).clamp(LEAST_NS, MOST_NS);
        let next_ns = now_ns.saturating_add(first_ns).max(self.last_ns.saturating_add(step_ns));
        self.last_ns = next_ns.min(now_ns.saturating_add(MOST_NS));
        self.last_ns.saturating_sub(now_ns) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn clients_come_back_as_fast_as_the_application_answers() {
        let mut pace = RetryPace::default();
        for _ in 0..100 {
            pace.ended(SECOND / 10);
        }
        // 4 questions at once take 100 ms: one is answered every 25 ms.
        let times: Vec<u64> = (0..5).map(|_| pace.next_ms(SECOND, 4, 8)).collect();
        let steps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(times[0], 1_000);
        assert!(steps.iter().all(|step| (23..=25).contains(step)), "{steps:?}");
        // All earlier clients have returned by then.
        assert_eq!(pace.next_ms(10 * SECOND, 4, 8), 1_000);
        assert!((1_900..=2_100).contains(&pace.next_ms(20 * SECOND, 4, 80)), "80 are before it");
    }

    #[test]
    fn nobody_waits_for_more_than_a_minute() {
        let mut pace = RetryPace::default();
        pace.ended(5 * SECOND);
        let last = (0..10_000).map(|_| pace.next_ms(0, 1, 100)).last();
        assert_eq!(last, Some(60_000));
        let mut unknown = RetryPace::default();
        assert_eq!(unknown.next_ms(0, 4, 0), 1_000);
    }
}
