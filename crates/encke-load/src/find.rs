//! Searches for the highest rate that holds.
//!
//! ```text
//!   first ── held ──────────► double, until one does not hold ─┐
//!      └──── did not hold ──► halve, until one holds ──────────┴─► bisect, until both are close
//! ```
//! Each trial is a separate run, made by the caller. If a server's result at a rate varies from run to run, a rate that held
//! once counts as held. A rate that the generator could not offer is a limit of the search, but not of the server.

use crate::report::Report;
use crate::slo::Slo;
use crate::verdict::Bottleneck;
use crate::words;

/// A search in progress.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    first: f64,
    /// The highest rate that held.
    held: Option<f64>,
    /// The lowest rate that did not, and why if the generator was the limit.
    missed: Option<(f64, Option<String>)>,
}

/// The result of a trial at a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrialResult {
    /// The conditions held.
    Held,
    /// A condition did not hold; the reasons.
    Missed(Vec<String>),
    /// A condition did not hold, and the generator was the limit; the verdict.
    Limited(String),
}

/// The search ends when the lowest rate that did not hold is at most this multiple of the highest that did.
const CLOSE: f64 = 1.03;
/// The lowest rate tried.
const RATE_MIN: f64 = 1.0;
/// The highest rate tried.
const RATE_MAX: f64 = 1e7;
/// A rate holds only if at most one in this many requests remains unsent.
const UNSENT: u64 = 1_000;
/// A rate holds only if half of the requests were sent within this share of the trial after they were due. Otherwise conditions
/// without latencies would hold at a rate that was never reached.
const LATE: f64 = 0.1;

impl TrialResult {
    /// Judges a trial. Latency includes the wait for a connection, but not requests that were never sent.
    pub fn of(slo: &Slo, report: &Report) -> Self {
        let mut missed: Vec<String> = slo.missed(report).iter().map(ToString::to_string).collect();
        let totals = &report.outcome.totals;
        if report.unsent() > totals.begun / UNSENT {
            missed.push("not all due requests were sent".into());
        }
        let late_ns = totals.lag.quantile_ns(0.5).unwrap_or(0);
        if late_ns as f64 > LATE * report.outcome.elapsed.as_nanos() as f64 {
            missed.push(format!("half of the requests were sent more than {} late", words::time(late_ns)));
        }
        let limit = report.verdict.limit;
        match limit {
            Bottleneck::Unexpected => missed.push("most responses were unexpected".into()),
            Bottleneck::Unanswered => missed.push("most requests got no response".into()),
            _ => {}
        }
        match limit {
            // Conditions that hold even though the generator was the bottleneck hold.
            _ if missed.is_empty() => Self::Held,
            Bottleneck::Generator | Bottleneck::Starved | Bottleneck::ServerStarved => {
                Self::Limited(report.verdict.text.clone())
            }
            _ => Self::Missed(missed),
        }
    }

    /// Whether the rate held.
    pub fn held(&self) -> bool {
        *self == Self::Held
    }
}

impl Search {
    /// A search that begins at this rate.
    pub fn new(first: f64) -> Self {
        Self { first: first.clamp(RATE_MIN, RATE_MAX), held: None, missed: None }
    }

    /// The rate to try next; `None` when the search is over.
    pub fn next(&self) -> Option<f64> {
        match (self.held, self.missed.as_ref().map(|(rate, _)| *rate)) {
            (None, None) => Some(self.first),
            (None, Some(missed)) => (missed > RATE_MIN).then(|| (missed / 2.0).max(RATE_MIN)),
            (Some(held), None) => (held < RATE_MAX).then(|| (held * 2.0).min(RATE_MAX)),
            (Some(held), Some(missed)) => (missed / held > CLOSE).then(|| (held * missed).sqrt()),
        }
    }

    /// Records the result of a trial.
    pub fn tell(&mut self, rate: f64, result: &TrialResult) {
        let limit = match result {
            TrialResult::Held => {
                self.held = Some(self.held.map_or(rate, |best| best.max(rate)));
                return;
            }
            TrialResult::Missed(_) => None,
            TrialResult::Limited(verdict) => Some(verdict.clone()),
        };
        if self.missed.as_ref().is_none_or(|(least, _)| rate < *least) {
            self.missed = Some((rate, limit));
        }
    }

    /// The highest rate that held.
    pub fn found(&self) -> Option<f64> {
        self.held
    }

    /// The lowest rate that did not hold, and the verdict on it, if the generator was the limit there.
    pub fn generator_limit(&self) -> Option<(f64, &str)> {
        self.missed.as_ref().and_then(|(rate, limit)| Some((*rate, limit.as_deref()?)))
    }

    /// The result in words, one sentence or two.
    pub fn words(&self) -> String {
        let found = self.found().map_or_else(
            || "no rate held".to_owned(),
            |rate| format!("highest rate that held: {} per second", words::number(rate)),
        );
        match self.generator_limit() {
            None => found,
            Some((rate, verdict)) => format!(
                "{found}\nThe generator was the limit, not the server, which may hold more. At {} per second: {verdict}",
                words::number(rate)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Arrivals, Pace, Rate};
    use crate::report::tests::report;

    /// The result of a search against a server that holds up to `limit`, and the number of trials.
    fn search(first: f64, limit: f64) -> (Option<f64>, usize) {
        let (mut search, mut trials) = (Search::new(first), 0);
        while let Some(rate) = search.next() {
            let result = if rate <= limit { TrialResult::Held } else { TrialResult::Missed(Vec::new()) };
            search.tell(rate, &result);
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

    #[test]
    fn a_limit_of_the_generator_is_told_as_such() {
        let (missed, limited) =
            (TrialResult::Missed(Vec::new()), TrialResult::Limited("It was starved.".into()));
        for (trials, found, limit) in [
            (&[(100.0, &TrialResult::Held), (200.0, &limited)][..], Some(100.0), Some(200.0)),
            (&[(200.0, &limited), (100.0, &TrialResult::Held)], Some(100.0), Some(200.0)),
            (&[(200.0, &limited), (100.0, &missed)], None, None),
            (&[(200.0, &missed), (100.0, &limited)], None, Some(100.0)),
            (&[(200.0, &missed), (100.0, &TrialResult::Held), (140.0, &missed)], Some(100.0), None),
        ] {
            let mut search = Search::new(trials[0].0);
            trials.iter().for_each(|(rate, result)| search.tell(*rate, result));
            assert_eq!(search.found(), found, "{trials:?}");
            assert_eq!(search.generator_limit().map(|(rate, _)| rate), limit, "{trials:?}");
            assert_eq!(search.words().contains("The generator was the limit"), limit.is_some(), "{trials:?}");
            assert!(search.next() != found && search.next() != limit, "the search goes on below: {trials:?}");
        }
    }

    #[test]
    fn a_trial_holds_if_its_rate_was_kept_and_its_conditions_hold() {
        let open = || Pace::Open(Rate::constant(100.0).expect("a rate"), Arrivals::Even);
        let trial = |slo: &str, change: fn(&mut Report)| {
            let mut report = report(open());
            (report.outcome.totals.begun, report.verdict.limit) = (1_003, Bottleneck::Behind);
            change(&mut report);
            TrialResult::of(&slo.parse().expect("conditions"), &report)
        };
        assert!(trial("errors<50%", |_| {}).held());
        assert!(trial("errors<50%", |report| report.verdict.limit = Bottleneck::Starved).held());
        let slow = trial("p50<1ns", |_| {});
        assert!(matches!(&slow, TrialResult::Missed(why) if why[0].contains("p50<1ns")), "{slow:?}");
        // All requests were sent in the end, but the last ones after the trial: half of them two seconds late.
        let late = trial("errors<50%", |report| report.outcome.totals.lag.record_many(2_000_000_000, 1_000));
        assert!(matches!(&late, TrialResult::Missed(why) if why[0].contains("late")), "{late:?}");
        let wrong = trial("errors<50%", |report| report.verdict.limit = Bottleneck::Unexpected);
        assert!(matches!(&wrong, TrialResult::Missed(why) if why[0].contains("unexpected")), "{wrong:?}");
        let starved = trial("p50<1ns", |report| report.verdict.limit = Bottleneck::Starved);
        assert!(matches!(&starved, TrialResult::Limited(_)), "{starved:?}");
    }
}
