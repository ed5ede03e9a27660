//! Explains which figures of a run not to trust, and why.
//!
//! Only the saved run is used, so an old run is explained as it would have been at the time. Each finding is about one figure;
//! some only explain how to read it. Findings about requests are in this file, findings about subscribers in [`crate::push`].
//! `Findings` has the common ones.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::environment::Environment;
use crate::gathering::PART;
use crate::plan::Protocol;
use crate::report::PERCENTILES;
use crate::report::saved::{Saved, SavedDistribution, SavedVerdict, Thread};
use crate::verdict::WAITING;
use crate::words;

/// The findings about a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained(Vec<Finding>);

/// A finding about a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The figure, or the part of the run.
    pub about: &'static str,
    /// How trustworthy the figure is.
    pub trust: FigureTrust,
    /// The reason.
    pub text: String,
}

/// How trustworthy a figure is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FigureTrust {
    /// The figure says nothing about the server.
    Not,
    /// The figure says less than it seems to.
    Doubt,
    /// The figure can be taken as it is.
    Fine,
}

/// Minimum number of values beyond a percentile that make it reproducible.
const BEYOND_MIN: f64 = 10.0;
/// Shorter runs may miss periodic work of machines and servers.
const SHORT_S: f64 = 5.0;
/// A run is not steady if its rate changes by more than this.
const CHANGE: f64 = 0.1;
/// A lag above this share of the response time is a significant part of it.
const LAG: f64 = 0.1;

/// Explains a run.
pub fn of(run: &Saved) -> Explained {
    let mut findings = Findings::default();
    findings.verdict(&run.verdict, "Rates and latencies");
    if run.requests.finished == 0 {
        findings.say("all figures", FigureTrust::Not, "No request got a response.");
    }
    findings.loops(run);
    findings.percentiles(run);
    findings.errors(run);
    findings.schedule(run);
    findings.beginning(run);
    findings.rest(run);
    findings.machine(run);
    findings.explained()
}

/// Collects findings, in any order.
#[derive(Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn say(&mut self, about: &'static str, trust: FigureTrust, text: impl Into<String>) {
        self.0.push(Finding { about, trust, text: text.into() });
    }

    /// The bottleneck; if it is the generator, `measured` names the figures that describe the generator.
    pub(crate) fn verdict(&mut self, verdict: &SavedVerdict, measured: &str) {
        let text = &verdict.text;
        if verdict.is_verdict {
            self.say("the bottleneck", FigureTrust::Fine, text);
        } else {
            let so = match verdict.limit.as_str() {
                "unexpected" | "unanswered" | "server_starved" => String::new(),
                _ => format!(" {measured} describe the generator, not the server."),
            };
            self.say("all figures", FigureTrust::Not, format!("{text}{so}"));
        }
        for remark in &verdict.remarks {
            self.say("the run", FigureTrust::Doubt, remark);
        }
    }

    /// The precision of percentiles.
    pub(crate) fn precision(&mut self) {
        let text = "Values have a precision of 1/64, rounded up: values that differ by less than 1.6 % may be equal.";
        self.say("percentiles", FigureTrust::Fine, text);
    }

    /// Whether the generator could run whenever it needed to, and was compiled with optimisation.
    pub(crate) fn generator(&mut self, threads: &[Thread], environment: &Environment) {
        let waiting = threads.iter().map(|thread| thread.waiting).fold(0.0, f64::max);
        if waiting >= WAITING {
            let text = format!(
                "For {} of the time other processes used the generator's processor: every time includes waiting for it.",
                words::percent(waiting)
            );
            self.say("latency", FigureTrust::Doubt, text);
        }
        if !environment.optimised && !environment.system.is_empty() {
            let text = "The generator was compiled without optimisation: it is several times slower than it could be.";
            self.say("all figures", FigureTrust::Not, text);
        }
    }

    /// A server on the generator's own machine: `so` says what that means for the figure `about`.
    pub(crate) fn neighbours(
        &mut self,
        server: &str,
        environment: &Environment,
        about: &'static str,
        so: &str,
    ) {
        if ["127.", "[::1]", "/"].iter().any(|start| server.starts_with(start)) {
            let machine = environment.line();
            self.say(
                about,
                FigureTrust::Doubt,
                format!("Server and generator shared this machine ({machine}): {so}"),
            );
        }
    }

    /// The findings, the least trustworthy first.
    pub(crate) fn explained(mut self) -> Explained {
        self.0.sort_by_key(|finding| finding.trust);
        Explained(self.0)
    }

    fn loops(&mut self, run: &Saved) {
        if !run.is_closed() {
            let text = "An open loop: response times count from when a request was due. Users see these times at this rate.";
            return self.say("latency", FigureTrust::Fine, text);
        }
        let text = "A closed loop: while the server is slow it gets fewer requests. The percentiles are service times, not the times that users see. They can be compared with another closed loop of as many connections; for the times that users see, set a rate (-r).";
        self.say("latency", FigureTrust::Doubt, text);
        let measured = run.waited().and_then(|waited| waited.quantile_ns(0.99));
        let estimate = run.latency.open_loop_estimate.as_ref().and_then(|estimate| estimate.p99_ns);
        if let Some((estimate, measured)) =
            estimate.zip(measured).filter(|(estimate, measured)| estimate > measured)
        {
            let (estimate, measured) = (words::time(estimate), words::time(measured));
            let text = format!(
                "The server stalled at times: 99 of 100 responses took at most {measured}, but a user at a random moment would have waited up to {estimate} (an estimate)."
            );
            self.say("p99", FigureTrust::Doubt, text);
        }
        if run.plan.pipeline > 1 && run.plan.protocol != Protocol::Http2.name() {
            let text = format!(
                "{} requests at a time on a connection: the time of a response includes the responses before it.",
                run.plan.pipeline
            );
            self.say("latency", FigureTrust::Doubt, text);
        }
        if run.requests.gathered > 0 {
            let text = format!(
                "{} responses were read in batches, which saves both sides wake-ups: each may have arrived up to 1/{PART} of the median earlier.",
                words::count(run.requests.gathered)
            );
            self.say("latency", FigureTrust::Fine, text);
        }
    }

    fn percentiles(&mut self, run: &Saved) {
        let Some(waited) = run.waited() else { return };
        let count = waited.count() as f64;
        let beyond = |share: f64| count * (1.0 - share);
        let (known, unknown): (Vec<_>, Vec<_>) =
            PERCENTILES.into_iter().partition(|(_, share)| beyond(*share) >= BEYOND_MIN);
        if let Some((name, share)) = unknown.first() {
            let names: Vec<&str> = unknown.iter().map(|(name, _)| *name).collect();
            let number = words::number(beyond(*share));
            let highest =
                known.last().map_or("none is".to_owned(), |(name, _)| format!("{name} is the highest"));
            let text = format!(
                "{number} of {} values are above {name}, {highest} with {BEYOND_MIN} or more values above it; percentiles with fewer depend on the chance of a few responses.",
                words::count(waited.count())
            );
            self.0.push(Finding {
                about: "percentiles",
                trust: FigureTrust::Doubt,
                text: format!("{}: {text}", names.join(", ")),
            });
        }
        let text =
            "The longest of all: it grows with the length of a run, and another run would not repeat it.";
        self.say("max", FigureTrust::Doubt, text);
        self.precision();
    }

    fn errors(&mut self, run: &Saved) {
        let requests = &run.requests;
        let missing = requests.failed + requests.aborted + requests.unsent;
        let all = requests.finished + missing;
        if missing > 0 {
            let share = missing as f64 / all as f64;
            let hidden: Vec<&str> = PERCENTILES
                .iter()
                .filter(|(_, quantile)| 1.0 - quantile < share)
                .map(|(name, _)| *name)
                .collect();
            let mut text = format!(
                "{} of {} requests got no complete response ({} failed, {} were open at the end, {} were never sent). Percentiles do not include them",
                words::count(missing),
                words::count(all),
                words::count(requests.failed),
                words::count(requests.aborted),
                words::count(requests.unsent),
            );
            if hidden.is_empty() {
                text.push_str(", and they are too few to change one.");
                self.say("latency", FigureTrust::Doubt, text);
            } else {
                let _infallible = write!(
                    text,
                    ": had they counted as the longest, {} would be among them.",
                    hidden.join(", ")
                );
                self.say("latency", FigureTrust::Not, text);
            }
        }
        if requests.wrong > 0 {
            let text = format!(
                "{} of {} responses had an unexpected status. Rate and percentiles include them; an error is often faster than a page.",
                words::count(requests.wrong),
                words::count(requests.finished)
            );
            let many = requests.wrong as f64 > CHANGE * requests.finished as f64;
            self.say("rate and latency", if many { FigureTrust::Not } else { FigureTrust::Doubt }, text);
        }
        if let Some(error) = run.errors.iter().find(|error| error.ours) {
            let text = format!(
                "{}: {} times. That is a limit of the generator.",
                error.cause,
                words::count(error.count)
            );
            self.say("failed requests", FigureTrust::Not, text);
        }
    }

    fn schedule(&mut self, run: &Saved) {
        let (Some(SavedDistribution(lag)), Some(SavedDistribution(response))) =
            (&run.latency.lag, &run.latency.response)
        else {
            return;
        };
        let (Some(late), Some(waited)) = (lag.quantile_ns(0.99), response.quantile_ns(0.5)) else { return };
        let (late_words, waited_words) = (words::time(late), words::time(waited));
        if late as f64 <= LAG * waited as f64 {
            let text = format!("99 of 100 requests were sent within {late_words} of when they were due.");
            return self.say("the schedule", FigureTrust::Fine, text);
        }
        let text = if run.requests.queued * 100 > run.requests.begun {
            format!(
                "{} of {} requests waited for a free connection: with more connections (-c) the server might have responded sooner.",
                words::count(run.requests.queued),
                words::count(run.requests.begun)
            )
        } else {
            format!(
                "1 % of requests were sent more than {late_words} late, while half of the responses took at most {waited_words}: a large part of these times may be the generator's."
            )
        };
        self.say("p50 and p99", FigureTrust::Doubt, text);
    }

    fn beginning(&mut self, run: &Saved) {
        let warmed = run.plan.warm_up.requests.is_some() || run.plan.warm_up.seconds.is_some();
        let seconds = &run.seconds;
        let (Some(first), Some(rest)) = (seconds.first(), seconds.get(1..).filter(|rest| rest.len() >= 3))
        else {
            return;
        };
        if warmed || first.seconds <= 0.0 {
            return;
        }
        let time: f64 = rest.iter().map(|second| second.seconds).sum();
        let rate = rest.iter().map(|second| second.finished).sum::<u64>() as f64 / time.max(1e-9);
        let own = first.finished as f64 / first.seconds;
        let (own_words, rate_words) = (words::number(own), words::number(rate));
        if (own - rate).abs() > CHANGE * rate {
            let text = format!(
                "The run had no warm-up, and its first second differs: {own_words} a second, then {rate_words}. --warm-up 2s excludes it."
            );
            self.say("rate and latency", FigureTrust::Doubt, text);
        } else {
            let text = "The run had no warm-up, and its first second does not differ.";
            self.say("the beginning", FigureTrust::Fine, text);
        }
    }

    /// Whether the run was long enough, and its rate steady.
    fn rest(&mut self, run: &Saved) {
        let elapsed_s = run.elapsed_ns as f64 / 1e9;
        if elapsed_s < SHORT_S {
            let text = format!(
                "{} are short: periodic work of machines and servers may be missing, or included by chance.",
                words::time(run.elapsed_ns)
            );
            self.say("all figures", FigureTrust::Doubt, text);
        }
        // The first and last seconds are incomplete.
        let whole = run.seconds.get(1..run.seconds.len().saturating_sub(1)).unwrap_or_default();
        if whole.len() < 6 {
            return;
        }
        let rate = |part: &[crate::series::Stretch]| {
            let time: f64 = part.iter().map(|second| second.seconds).sum();
            part.iter().map(|second| second.finished).sum::<u64>() as f64 / time.max(1e-9)
        };
        let third = whole.len() / 3;
        let (begun, ended) = (rate(&whole[..third]), rate(&whole[whole.len() - third..]));
        if (ended - begun).abs() > CHANGE * begun.max(ended) {
            let text = format!(
                "The rate changed during the run: {} a second in the first third, {} in the last. The average describes neither.",
                words::number(begun),
                words::number(ended)
            );
            self.say("rate", FigureTrust::Doubt, text);
        }
    }

    fn machine(&mut self, run: &Saved) {
        self.generator(&run.threads, &run.environment);
        let so = "the rate is the maximum of both together, and a faster generator would make the server look faster. The server's CPU per request does not depend on the generator.";
        self.neighbours(&run.plan.server, &run.environment, "rate", so);
        let again = run.connections.made.saturating_sub(run.plan.connections.into());
        if again > 0 && run.plan.requests_per_connection.is_none() {
            let text = format!(
                "{} connections were reopened although they should have stayed open: the server closed them, and its figures include the new connections.",
                words::count(again)
            );
            self.say("rate and latency", FigureTrust::Doubt, text);
        }
    }
}

impl Explained {
    /// The findings, the least trustworthy first.
    pub fn findings(&self) -> &[Finding] {
        &self.0
    }

    /// The findings as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for trust in [FigureTrust::Not, FigureTrust::Doubt, FigureTrust::Fine] {
            let mut found = self.0.iter().filter(|finding| finding.trust == trust).peekable();
            if found.peek().is_some() {
                let _infallible = writeln!(text, "{}", trust.words());
            }
            for finding in found {
                let _infallible = writeln!(text, "- {}: {}", finding.about, finding.text);
            }
        }
        text
    }

    /// The findings as JSON.
    pub fn json(&self) -> Value {
        let findings = self.0.iter().map(
            |finding| json!({ "about": finding.about, "trust": finding.trust.name(), "text": finding.text }),
        );
        json!({ "schema": 1, "explain": findings.collect::<Vec<_>>() })
    }
}

impl FigureTrust {
    const fn words(self) -> &'static str {
        match self {
            Self::Not => "Do not trust:",
            Self::Doubt => "Read with care:",
            Self::Fine => "No doubts:",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Not => "not",
            Self::Doubt => "doubt",
            Self::Fine => "fine",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;
    use crate::report::saved::{Percentiles, SavedExtent, Thread};
    use crate::series::Stretch;

    /// An open loop of 10 s with 100,000 responses of 1 ms, without any problem.
    fn good() -> Saved {
        let mut run = example().saved();
        run.plan.pace.r#loop = "open".into();
        run.plan.server = "192.0.2.1:80".into();
        (run.requests.begun, run.requests.finished, run.requests.wrong) = (100_000, 100_000, 0);
        let mut waited = encke_stats::Distribution::new();
        waited.record_many(1_000_000, 2_000_000);
        run.latency.response = Some(SavedDistribution(waited.clone()));
        run.latency.service = Some(SavedDistribution(waited));
        let mut lag = encke_stats::Distribution::new();
        lag.record_many(1_000, 100_000);
        run.latency.lag = Some(SavedDistribution(lag));
        run.errors.clear();
        run.environment.optimised = true;
        run.connections.made = run.plan.connections.into();
        run.seconds = (1..=10)
            .map(|at| Stretch { at_s: at.into(), seconds: 1.0, finished: 10_000, ..Stretch::default() })
            .collect();
        run.verdict.is_verdict = true;
        run.verdict.remarks.clear();
        run
    }

    /// The findings for the good run with one change, without those for the unchanged run.
    fn said(change: impl Fn(&mut Saved)) -> Vec<Finding> {
        let mut run = good();
        change(&mut run);
        let before = of(&good());
        of(&run).0.into_iter().filter(|finding| !before.0.contains(finding)).collect()
    }

    #[test]
    fn of_a_good_run_nothing_bad_is_said() {
        let explained = of(&good());
        let bad: Vec<_> = explained
            .findings()
            .iter()
            .filter(|finding| finding.trust != FigureTrust::Fine && finding.about != "max")
            .collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert!(explained.text().starts_with("Read with care:\n- max: "), "{}", explained.text());
        assert_eq!(explained.json()["explain"][0]["trust"], "doubt");
    }

    #[test]
    fn each_thing_that_is_wrong_is_named() {
        type Change = fn(&mut Saved);
        let cases: [(&str, FigureTrust, Change); 16] = [
            ("describe the generator, not the server", FigureTrust::Not, |run| {
                run.verdict.is_verdict = false;
            }),
            ("A closed loop", FigureTrust::Doubt, |run| run.plan.pace.r#loop = "closed".into()),
            ("stalled at times", FigureTrust::Doubt, |run| {
                run.plan.pace.r#loop = "closed".into();
                run.latency.open_loop_estimate =
                    Some(Percentiles { p99_ns: Some(190_000_000), ..Percentiles::default() });
            }),
            ("p99.9, p99.99, p99.999", FigureTrust::Doubt, |run| {
                let mut few = encke_stats::Distribution::new();
                few.record_many(1_000_000, 5_000);
                run.latency.response = Some(SavedDistribution(few));
            }),
            ("p99, p99.9, p99.99, p99.999 would be among them", FigureTrust::Not, |run| {
                run.requests.failed = 2_000;
            }),
            ("too few to change one", FigureTrust::Doubt, |run| {
                run.requests.finished = 10_000_000;
                run.requests.aborted = 1;
            }),
            ("unexpected status", FigureTrust::Doubt, |run| run.requests.wrong = 10),
            ("unexpected status", FigureTrust::Not, |run| run.requests.wrong = 90_000),
            ("late, while half of the responses", FigureTrust::Doubt, |run| {
                let mut late = encke_stats::Distribution::new();
                late.record_many(800_000, 100_000);
                run.latency.lag = Some(SavedDistribution(late));
            }),
            ("its first second differs", FigureTrust::Doubt, |run| run.seconds[0].finished = 500),
            ("are short", FigureTrust::Doubt, |run| run.elapsed_ns = 1_000_000_000),
            ("in the first third", FigureTrust::Doubt, |run| {
                run.seconds[6..].iter_mut().for_each(|second| second.finished = 5_000);
            }),
            ("other processes used the generator's processor", FigureTrust::Doubt, |run| {
                run.threads = vec![Thread { waiting: 0.3, ..Thread::default() }];
            }),
            ("shared this machine", FigureTrust::Doubt, |run| run.plan.server = "127.0.0.1:8080".into()),
            ("without optimisation", FigureTrust::Not, |run| {
                run.environment.system = "linux".into();
                run.environment.optimised = false;
            }),
            ("were reopened", FigureTrust::Doubt, |run| run.connections.made += 500),
        ];
        for (words, trust, change) in cases {
            let found = said(change);
            let named = found.iter().any(|finding| finding.text.contains(words) && finding.trust == trust);
            assert!(named, "no `{words}` in {found:?}");
        }
        let warmed = said(|run| {
            run.seconds[0].finished = 500;
            run.plan.warm_up = SavedExtent { requests: Some(100), seconds: None };
        });
        assert!(warmed.is_empty(), "{warmed:?}");
    }
}
