//! Results of a run, for people and machines.
//!
//! ```text
//!   Plan + Outcome + Series + Verdict ──► Report ──┬─► summary: one screen of text
//!                                                  ├─► ab, htstress: in the layout of those tools
//!                                                  └─► Saved ◄──► JSON: everything, schema 1
//!                                                        └─► page: HTML with plots
//! ```

pub(crate) mod blob;
mod foreign;
mod kinds;
pub(crate) mod merged;
pub(crate) mod page;
pub mod saved;
pub(crate) mod summary;

use crate::environment::Environment;
use crate::estimate::Estimate;
use crate::pace::Pace;
use crate::plan::{Plan, Stop};
use crate::run::RunOutcome;
use crate::series::Series;
use crate::verdict::Verdict;

pub use kinds::SavedRun;
pub use merged::Unlike;
pub use saved::Saved;

/// A run and its evaluation.
#[derive(Clone, Debug)]
pub struct Report {
    /// The plan.
    pub plan: Plan,
    /// The URLs as given by the user.
    pub urls: Vec<String>,
    /// The command that repeats the run.
    pub command: String,
    /// Results of the run.
    pub outcome: RunOutcome,
    /// Results over time.
    pub series: Series,
    /// The bottleneck.
    pub verdict: Verdict,
    /// The machine of the generator.
    pub environment: Environment,
}

impl Report {
    /// Evaluates a run.
    pub fn new(plan: Plan, urls: Vec<String>, command: String, outcome: RunOutcome, series: Series) -> Self {
        let verdict = Verdict::of(&plan, &outcome);
        Self { plan, urls, command, outcome, series, verdict, environment: Environment::look() }
    }

    /// Responses per second.
    pub fn rate(&self) -> f64 {
        saved::per_second(self.outcome.totals.finished, self.outcome.elapsed)
    }

    /// Open loop: requests that were due but never begun.
    pub fn unsent(&self) -> u64 {
        match (&self.plan.pace, self.plan.stop) {
            (Pace::Open(rate, _), Stop::After(time)) => {
                let totals = &self.outcome.totals;
                // The last moment is outside the time, and a Poisson schedule has a random count.
                (rate.due_within(time).floor() as u64).saturating_sub(totals.begun)
            }
            _ => 0,
        }
    }

    /// Closed loop: the estimated latency of an open-loop user, if it differs.
    fn estimate(&self) -> Option<Estimate> {
        let closed = self.plan.pace == Pace::Closed;
        closed.then(|| Estimate::of(&self.outcome.totals.service)).filter(Estimate::differs)
    }
}

/// Percentiles reported: name and share.
pub(crate) const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("p99.999", 0.99999)];

/// A run of 1,000 responses of 1 ms within 10 s, 10 of them wrong.
#[cfg(test)]
pub(crate) fn example() -> Report {
    let mut report = tests::report(Pace::Closed);
    let totals = crate::Totals { begun: 1_000, finished: 1_000, wrong: 10, ..crate::Totals::default() };
    report.outcome.totals = totals;
    (0..1_000).for_each(|_| report.outcome.totals.service.record(1_000_000));
    report
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::{Mix, PreparedRequest, Style};
    use crate::pace::{Arrivals, Rate};
    use crate::run::ThreadShare;
    use crate::tally::{Cause, Errors, RequestPhase, Totals};

    pub(crate) fn report(pace: Pace) -> Report {
        let message = PreparedRequest::new("GET", "h", "/", &[], None, Style::default()).expect("a request");
        let mix = Mix::new(vec![(message, 1)]).expect("one message");
        let plan = Plan { pace, ..Plan::new(std::net::SocketAddr::from(([127, 0, 0, 1], 80)), mix) };
        let mut totals = Totals { begun: 1_003, finished: 1_000, failed: 2, aborted: 1, ..Totals::default() };
        totals.statuses = [(200, 990), (503, 10)].into_iter().collect();
        totals.wrong = 10;
        for place in 0..1_000 {
            let ns = if place < 3 { 2_000_000_000 } else { 500_000 };
            totals.service.record(ns);
            if plan.pace != Pace::Closed {
                totals.response.record(ns * 2);
            }
        }
        let mut errors = Errors::default();
        errors.add(RequestPhase::FirstByte, Cause::Ended, 5, b"HTTP/1.1 2");
        let outcome = RunOutcome {
            began_unix_ns: 0,
            totals,
            errors,
            opening: Duration::from_millis(3),
            elapsed: Duration::from_secs(10),
            threads: vec![ThreadShare { busy: 0.25, waiting: 0.0, run_ns: 2_500_000_000 }],
            tcp: None,
            throttled: 0.0,
            server: None,
            targets: Vec::new(),
        };
        let urls = vec!["http://h/".to_owned()];
        Report::new(plan, urls, "encke load http://h/".into(), outcome, Series::default())
    }

    #[test]
    fn the_summary_fits_a_screen_and_names_the_loop() {
        let open = Pace::Open(Rate::constant(100.0).expect("a rate"), Arrivals::Even);
        for (pace, said) in [
            (Pace::Closed, ["Closed loop; 64 connections, kept open", "service time", "open-loop user"]),
            (open, ["Open loop: 100/s; 64 connections", "response time", "Again: encke load http://h/"]),
        ] {
            let text = report(pace).summary();
            assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
            assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
            for said in said {
                assert!(text.contains(said), "no `{said}`:\n{text}");
            }
            for said in [
                "1,000 finished",
                "2 failed",
                "10 wrong",
                "1 without",
                "2xx 990, 5xx 10 (503)",
                "100 a second",
            ] {
                assert!(text.contains(said), "no `{said}`:\n{text}");
            }
        }
    }

    #[test]
    fn scripts_find_the_lines_of_other_tools() {
        let report = example();
        let ab = report.ab();
        for line in [
            "Document Path:          /",
            "Concurrency Level:      64",
            "Time taken for tests:   10.000 seconds",
            "Complete requests:      1000",
            "Failed requests:        0",
            "Requests per second:    100.00 [#/sec] (mean)",
            "Time per request:       640.000 [ms] (mean)",
            "  50%      1",
            " 100%      1 (longest request)",
        ] {
            assert!(ab.lines().any(|other| other == line), "no `{line}`:\n{ab}");
        }
        let htstress = report.htstress();
        for line in [
            "requests:      1000",
            "good requests: 990 [99%]",
            "seconds:       10.000",
            "requests/sec:  100.000",
        ] {
            assert!(htstress.lines().any(|other| other == line), "no `{line}`:\n{htstress}");
        }
    }
}
