//! Which rate is the highest that holds: a search that knows only rates that held and rates that did not.
//!
//! ```text
//!   first ── held ──► twice as much, until one does not hold ─┐
//!      └──── did not ──► half as much, until one holds ───────┴─► between the two, until they are close
//! ```
//! Each trial is a run of its own, made by the caller. A server whose answer to a rate changes from run to run is
//! found to hold what it held once.

/// A search in progress.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Search {
    first: f64,
    /// The highest rate that held, and the lowest that did not.
    held: Option<f64>,
    missed: Option<f64>,
}

/// The search ends when the lowest rate that did not hold is at most so many times the highest that did.
const CLOSE: f64 = 1.03;
/// Below this rate nothing is tried.
const RATE_MIN: f64 = 1.0;
/// Nor above this one.
const RATE_MAX: f64 = 1e7;

impl Search {
    /// A search that begins with a rate that may be right.
    pub fn new(first: f64) -> Self {
        Self { first: first.clamp(RATE_MIN, RATE_MAX), held: None, missed: None }
    }

    /// The rate to be tried next; `None`: the search is over.
    pub fn next(&self) -> Option<f64> {
        match (self.held, self.missed) {
            (None, None) => Some(self.first),
            (None, Some(missed)) => (missed > RATE_MIN).then(|| (missed / 2.0).max(RATE_MIN)),
            (Some(held), None) => (held < RATE_MAX).then(|| (held * 2.0).min(RATE_MAX)),
            (Some(held), Some(missed)) => (missed / held > CLOSE).then(|| (held * missed).sqrt()),
        }
    }

    /// Takes in how a trial ended.
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

    /// What a search finds of a server that holds up to `limit`, and after how many trials.
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
