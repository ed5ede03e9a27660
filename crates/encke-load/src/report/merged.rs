//! Merges the runs of several generators into the result of one server under their combined load.
//!
//! ```text
//!   counts, histograms, errors   added up
//!   seconds                      combined by the machines' clocks
//!   rate                         all responses ÷ (last end − first begin)
//!   verdict                      no verdict if one of the runs has none
//! ```
//! Parts shared with runs of subscribers ([`crate::push`]) are also here: spans, verdicts, errors, durations.

use std::fmt;
use std::iter;
use std::ops::Range;
use std::time::Duration;

use encke_stats::Distribution;

use super::saved::{
    Percentiles, Saved, SavedDistribution, SavedError, SavedPart, SavedVerdict, System, per_second, rfc3339,
};
use crate::environment::Environment;
use crate::estimate::Estimate;
use crate::series::Stretch;
use crate::words;

/// Why runs cannot be merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unlike {
    /// Fewer than two runs.
    Few,
    /// A closed loop and an open loop.
    Loops,
    /// Requests and subscribers.
    Kinds,
    /// Subscribers with different transports.
    Transports,
}

/// Two runs count as simultaneous if they share this part of the shorter one.
const OVERLAP: f64 = 0.9;
const SECOND_NS: u64 = 1_000_000_000;

impl Saved {
    /// Merges runs.
    ///
    /// # Errors
    /// The runs cannot be merged.
    pub fn merged(runs: &[Self]) -> Result<Self, Unlike> {
        let [first, others @ ..] = runs else { return Err(Unlike::Few) };
        if others.is_empty() {
            return Err(Unlike::Few);
        }
        if others.iter().any(|other| other.is_closed() != first.is_closed()) {
            return Err(Unlike::Loops);
        }
        let mut all = first.clone();
        for other in others {
            all.take_in(other);
        }
        let spans = Spans(runs.iter().map(Self::span).collect());
        all.began_unix_ns = runs.iter().map(|run| run.began_unix_ns).min().unwrap_or(0);
        all.began = rfc3339(all.began_unix_ns);
        all.elapsed_ns = spans.whole_ns();
        all.rate_per_s = per_second(all.requests.finished, Duration::from_nanos(all.elapsed_ns));
        all.seconds = seconds_of(runs, all.began_unix_ns);
        all.latency.open_loop_estimate = all.estimate();
        all.command = said_by_all(runs, " & ", |run| &run.command);
        all.plan.text = said_by_all(runs, " + ", |run| &run.plan.text);
        all.plan.server = said_by_all(runs, ", ", |run| &run.plan.server);
        let rates: Vec<&str> = runs.iter().filter_map(|run| run.plan.pace.rate.as_deref()).collect();
        all.plan.pace.rate = (!rates.is_empty()).then(|| rates.join(" + "));
        all.environment = Environment::of_all(runs, |run| &run.environment);
        all.verdict = SavedVerdict::of_all(runs, |run| &run.verdict);
        let shortest = runs.iter().map(|run| run.elapsed_ns).min().unwrap_or(0) as f64;
        if (spans.common_ns() as f64) < OVERLAP * shortest {
            all.verdict.remarks.push(format!(
                "The runs were not simultaneous: by their clocks they overlap by {}. The rate counts all responses from the first start to the last end.",
                words::time(spans.common_ns())
            ));
        }
        all.parts = runs.iter().flat_map(Self::parts).collect();
        Ok(all)
    }

    /// Adds all sums.
    fn take_in(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.requests, &other.requests);
        for (sum, count) in [
            (&mut mine.begun, theirs.begun),
            (&mut mine.finished, theirs.finished),
            (&mut mine.wrong, theirs.wrong),
            (&mut mine.differing, theirs.differing),
            (&mut mine.failed, theirs.failed),
            (&mut mine.aborted, theirs.aborted),
            (&mut mine.warm_up, theirs.warm_up),
            (&mut mine.queued, theirs.queued),
            (&mut mine.gathered, theirs.gathered),
            (&mut mine.unsent, theirs.unsent),
            (&mut self.bytes.received, other.bytes.received),
            (&mut self.bytes.bodies, other.bytes.bodies),
            (&mut self.bytes.sent, other.bytes.sent),
            (&mut self.connections.made, other.connections.made),
            (&mut self.connections.failed, other.connections.failed),
            (&mut self.connections.handshakes, other.connections.handshakes),
            (&mut self.connections.resumed, other.connections.resumed),
            (&mut self.connections.ended_at_rest, other.connections.ended_at_rest),
        ] {
            *sum += count;
        }
        self.connections.opening_ns = self.connections.opening_ns.max(other.connections.opening_ns);
        self.plan.connections += other.plan.connections;
        self.plan.threads += other.plan.threads;
        for (class, count) in &other.statuses {
            *self.statuses.entry(class.clone()).or_default() += count;
        }
        self.status_codes.merge(&other.status_codes);
        let (mine, theirs) = (&mut self.latency, &other.latency);
        for (sum, held) in [
            (&mut mine.service, &theirs.service),
            (&mut mine.first_byte, &theirs.first_byte),
            (&mut mine.response, &theirs.response),
            (&mut mine.lag, &theirs.lag),
            (&mut mine.connect, &theirs.connect),
            (&mut mine.handshake, &theirs.handshake),
        ] {
            SavedDistribution::take_in(sum, held.as_ref());
        }
        SavedError::take_in(&mut self.errors, &other.errors);
        self.threads.extend(&other.threads);
        self.system.take_in(other.system);
        self.urls
            .extend(other.urls.iter().filter(|url| !self.urls.contains(url)).cloned().collect::<Vec<_>>());
    }

    fn estimate(&self) -> Option<Percentiles> {
        let SavedDistribution(service) = self.latency.service.as_ref().filter(|_| self.is_closed())?;
        let estimate = Estimate::of(service);
        estimate.differs().then(|| Percentiles::estimated(&estimate))
    }

    fn parts(&self) -> Vec<SavedPart> {
        if !self.parts.is_empty() {
            return self.parts.clone();
        }
        vec![SavedPart {
            command: self.command.clone(),
            began: self.began.clone(),
            began_unix_ns: self.began_unix_ns,
            environment: self.environment.clone(),
            requests: self.requests,
            rate_per_s: self.rate_per_s,
            elapsed_ns: self.elapsed_ns,
            verdict: self.verdict.clone(),
        }]
    }

    /// The approximate time from its first counted request to its end, in ns since 1970.
    fn span(&self) -> Range<u64> {
        let warm_up_ns = (self.plan.warm_up.seconds.unwrap_or(0.0) * 1e9) as u64;
        // A file may contain any time.
        let opened = self.began_unix_ns.saturating_add(self.connections.opening_ns);
        let from = opened.saturating_add(warm_up_ns);
        from..from.saturating_add(self.elapsed_ns)
    }
}

/// The seconds of all runs combined. Each stretch counts for the second that contains its midpoint.
fn seconds_of(runs: &[Saved], began_unix_ns: u64) -> Vec<Stretch> {
    let mut all: Vec<(Stretch, Distribution)> = Vec::new();
    for run in runs {
        let late_s = (run.began_unix_ns - began_unix_ns) as f64 / 1e9;
        let mut of_run: Vec<f64> = Vec::new();
        for stretch in &run.seconds {
            let place = (late_s + stretch.at_s - stretch.seconds / 2.0).max(0.0) as usize;
            // Only places within one day: a file may contain any time.
            if place >= 86_400 {
                continue;
            }
            if all.len() <= place {
                all.resize_with(place + 1, Default::default);
            }
            if of_run.len() <= place {
                of_run.resize(place + 1, 0.0);
            }
            let (sum, latency) = &mut all[place];
            of_run[place] += stretch.seconds;
            sum.seconds = sum.seconds.max(of_run[place]);
            sum.finished += stretch.finished;
            sum.wrong += stretch.wrong;
            sum.failed += stretch.failed;
            sum.connected += stretch.connected;
            sum.received_bytes += stretch.received_bytes;
            sum.max_ns = sum.max_ns.max(stretch.max_ns);
            stretch.latency.iter().for_each(|&(ns, count)| latency.record_many(ns, count));
        }
    }
    let held = all.into_iter().enumerate().filter(|(_, (sum, _))| sum.seconds > 0.0);
    held.map(|(place, (sum, latency))| Stretch {
        at_s: (place as u64 * SECOND_NS + SECOND_NS) as f64 / 1e9,
        p50_ns: latency.quantile_ns(0.5),
        p99_ns: latency.quantile_ns(0.99),
        latency: latency.buckets().map(|(_, last, count)| (last, count)).collect(),
        ..sum
    })
    .collect()
}

/// The time span of each run by its machine's clock, in nanoseconds since 1970.
pub(crate) struct Spans(pub(crate) Vec<Range<u64>>);

impl Spans {
    /// Time from the first begin to the last end.
    pub(crate) fn whole_ns(&self) -> u64 {
        let began = self.0.iter().map(|span| span.start).min().unwrap_or(0);
        let ended = self.0.iter().map(|span| span.end).max().unwrap_or(0);
        ended.saturating_sub(began)
    }

    /// The time during which all runs were active.
    pub(crate) fn common_ns(&self) -> u64 {
        let began = self.0.iter().map(|span| span.start).max().unwrap_or(0);
        let ended = self.0.iter().map(|span| span.end).min().unwrap_or(0);
        ended.saturating_sub(began)
    }
}

impl SavedVerdict {
    /// The verdict on merged runs: no verdict if one of them has none.
    pub(crate) fn of_all<R>(runs: &[R], verdict: impl Fn(&R) -> &Self) -> Self {
        let all: Vec<&Self> = runs.iter().map(verdict).collect();
        let without: Vec<&Self> = all.iter().filter(|verdict| !verdict.is_verdict).copied().collect();
        let text = match without.len() {
            0 => format!("{} runs together, with a verdict each:", all.len()),
            some => format!("{some} of {} runs have no verdict, so their sum has none:", all.len()),
        };
        let said = all.iter().zip(1..).flat_map(|(verdict, number)| {
            let texts = iter::once(&verdict.text).chain(&verdict.remarks);
            texts.map(move |text| format!("{number}: {text}"))
        });
        Self {
            limit: without.first().or(all.first()).map_or_else(String::new, |verdict| verdict.limit.clone()),
            is_verdict: without.is_empty(),
            text,
            remarks: said.collect(),
        }
    }
}

impl Environment {
    /// The environment of the first run, with all distinct names.
    pub(crate) fn of_all<R>(runs: &[R], environment: impl Fn(&R) -> &Self) -> Self {
        Self {
            processor: said_by_all(runs, ", ", |run| &environment(run).processor),
            system: said_by_all(runs, ", ", |run| &environment(run).system),
            ..runs.first().map(&environment).cloned().unwrap_or_default()
        }
    }
}

impl SavedDistribution {
    /// Adds the durations of another run.
    pub(crate) fn take_in(sum: &mut Option<Self>, more: Option<&Self>) {
        if let Some(Self(more)) = more {
            sum.get_or_insert_with(|| Self(Distribution::new())).0.merge(more);
        }
    }
}

impl SavedError {
    /// Adds the errors of another run.
    pub(crate) fn take_in(errors: &mut Vec<Self>, more: &[Self]) {
        for theirs in more {
            let same = |mine: &&mut Self| (&mine.phase, &mine.cause) == (&theirs.phase, &theirs.cause);
            match errors.iter_mut().find(same) {
                None => errors.push(theirs.clone()),
                Some(mine) => {
                    mine.count += theirs.count;
                    if theirs.first_ns < mine.first_ns {
                        (mine.first_ns, mine.sample) = (theirs.first_ns, theirs.sample.clone());
                    }
                }
            }
        }
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    }
}

impl System {
    /// Adds the counters of another machine.
    pub(crate) fn take_in(&mut self, more: Self) {
        for (sum, count) in
            [(&mut self.listen_drops, more.listen_drops), (&mut self.retransmits, more.retransmits)]
        {
            *sum = sum.zip(count).map(|(mine, theirs)| mine + theirs);
        }
    }
}

/// The texts of all runs, only once if they are equal.
pub(crate) fn said_by_all<R>(runs: &[R], between: &str, said: impl Fn(&R) -> &str) -> String {
    let all: Vec<&str> = runs.iter().map(said).collect();
    match all.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => (*first).to_owned(),
        _ => all.join(between),
    }
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Few => "at least two runs are needed",
            Self::Loops => "a closed and an open loop cannot be merged: they measure different times",
            Self::Kinds => "a run of requests and a run of subscribers cannot be merged",
            Self::Transports => "runs with different transports cannot be merged: compare them",
        })
    }
}

impl std::error::Error for Unlike {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    fn run(began_s: u64, seconds: u32) -> Saved {
        let mut saved = example().saved();
        saved.began_unix_ns = began_s * SECOND_NS;
        saved.connections.opening_ns = 0;
        saved.seconds = (1..=seconds)
            .map(|at| Stretch {
                at_s: at.into(),
                seconds: 1.0,
                finished: 100,
                latency: vec![(1_000_000 * u64::from(at), 100)],
                ..Stretch::default()
            })
            .collect();
        saved
    }

    #[test]
    fn counts_histograms_and_seconds_are_added_up() {
        let (one, two) = (run(1_000, 10), run(1_002, 10));
        let both = Saved::merged(&[one.clone(), two]).expect("two closed loops");
        assert_eq!((both.requests.finished, both.requests.wrong), (2_000, 20));
        assert_eq!(both.waited().map(Distribution::count), Some(2_000));
        // From second 1,000 to second 1,012.
        assert_eq!(both.elapsed_ns, 12 * SECOND_NS);
        assert!((both.rate_per_s - 2_000.0 / 12.0).abs() < 1e-9);
        let finished: Vec<u64> = both.seconds.iter().map(|second| second.finished).collect();
        assert_eq!(finished, [100, 100, 200, 200, 200, 200, 200, 200, 200, 200, 100, 100]);
        assert_eq!(both.seconds[2].latency.len(), 2, "the third second of one, the first of the other");
        assert_eq!((both.plan.connections, both.parts.len()), (128, 2));
        assert!(both.verdict.remarks.iter().any(|remark| remark.contains("overlap by 8.00 s")), "{both:?}");
        // The merged run can be saved and merged again.
        let read = Saved::read(&both.json().to_string()).expect("a run");
        let three = Saved::merged(&[read, one]).expect("closed loops");
        assert_eq!((three.requests.finished, three.parts.len()), (3_000, 3));
        assert!(three.summary().contains("3,000 finished"));
    }

    #[test]
    fn what_has_no_sum_is_refused() {
        let mut open = run(0, 1);
        open.plan.pace.r#loop = "open".into();
        assert_eq!(Saved::merged(&[run(0, 1), open]), Err(Unlike::Loops));
        assert_eq!(Saved::merged(&[run(0, 1)]), Err(Unlike::Few));
    }

    #[test]
    fn one_run_without_a_verdict_is_none_for_all() {
        let mut doubtful = run(1, 2);
        doubtful.verdict.is_verdict = false;
        let both = Saved::merged(&[run(1, 2), doubtful]).expect("closed loops");
        assert!(
            !both.verdict.is_verdict && both.verdict.text.contains("1 of 2 runs"),
            "{}",
            both.verdict.text
        );
    }
}
