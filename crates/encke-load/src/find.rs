//! Searches for the highest rate that holds.
//!
//! ```text
//!   first ── held ──────────► double, until one does not hold ─┐
//!      └──── did not hold ──► halve, until one holds ──────────┴─► bisect, until both are close
//! ```
//! Each trial is a separate run, made by the caller. If a server's result at a rate varies from run to run, a rate that held
//! once counts as held.

/// A search in progress.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Search {
    first: f64,
    /// The highest rate that held, and the lowest that did not.
    held: Option<f64>,
    missed: Option<f64>,
}

/// The search ends when the lowest rate that did not hold is at most this multiple of the highest that did.
const CLOSE: f64 = 1.03;
/// The lowest rate tried.
const RATE_MIN: f64 = 1.0;
/// The highest rate tried.
const RATE_MAX: f64 = 1e7;

impl Search {
    /// A search that begins at this rate.
    pub fn new(first: f64) -> Self {
        Self { first: first.clamp(RATE_MIN, RATE_MAX), held: None, missed: None }
    }

    /// The rate to try next; `None` when the search is over.
    pub fn next(&self) -> Option<f64> {
        match (self.held, self.missed) {
            (None, None) => Some(self.first),
            (None, Some(missed)) => (missed > RATE_MIN).then(|| (missed / 2.0).max(RATE_MIN)),
            (Some(held), None) => (held < RATE_MAX).then(|| (held * 2.0).min(RATE_MAX)),
            (Some(held), Some(missed)) => (missed / held > CLOSE).then(|| (held * missed).sqrt()),
        }
    }

    /// Records the result of a trial.
    pub fn tell(&mut self, rate: f64, held: bool) {
        if held {
            self.held = Some(self.held.map_or(rate, |best| best.max(rate)));
        } else {
            self.missed = Some(self.missed.map_or(rate, |least| least.min(rate)));
        }
    }

    /// The highest rate that held.
    pub fn found(&self) -> Option<f64> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a search against a server that holds up to `limit`, and the number of trials.
    fn search(first: f64, limit: f64) -> (Option<f64>, usize) {
        let (mut search, mut trials) = (Search::new(first), 0);
        while let Some(rate) = search.next() {
            search.tell(rate, rate <= limit);
            trials += 1;
            assert!(trials < 60, "it does not end");
        }
        (search.found(), trials)
    }

    #[test]
    fn it_finds_the_limit_from_wherever_it_begins() {
        for limit in [1.5, 20.0, 1_000.0, 123_456.0, 2e6] {
            for first in [1.0, 900.0, 50_000.0, 5e6] {
                let (found, trials) = search(first, limit);
                let found = found.expect("some rate holds");
                assert!(found <= limit && found * CLOSE >= limit, "{found} of {limit}");
                assert!(trials <= 30, "{trials} trials from {first} to {limit}");
            }
        }
        assert!(search(110_000.0, 100_000.0).1 <= 8, "from a closed loop's figure it is quick");
    }

    #[test]
    fn nothing_that_holds_and_everything_that_holds_come_to_an_end() {
        assert_eq!(search(1_000.0, 0.0).0, None);
        assert_eq!(search(1_000.0, f64::INFINITY).0, Some(RATE_MAX));
    }
}
