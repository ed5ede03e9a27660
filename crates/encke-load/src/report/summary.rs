//! A report as text for one screen.

use std::fmt::Write as _;

use encke_stats::Distribution;

use super::saved::{Connections, SavedDistribution, SavedError, SavedVerdict};
use super::{PERCENTILES, Report, Saved};
use crate::gathering::PART;
use crate::tally::RequestPhase;
use crate::words;

impl Report {
    /// The key results, in at most 24 lines unless there are many errors.
    pub fn summary(&self) -> String {
        self.saved().summary()
    }
}

impl Saved {
    /// See [`Report::summary`].
    pub fn summary(&self) -> String {
        let mut text = String::new();
        self.put(&mut text).expect("a String takes everything");
        text
    }

    fn put(&self, out: &mut String) -> std::fmt::Result {
        let requests = &self.requests;
        writeln!(out, "{}", self.plan.text)?;
        writeln!(out, "{}\n", self.urls.join(" "))?;

        let seconds = words::time(self.elapsed_ns);
        let (finished, rate) = (words::count(requests.finished), words::number(self.rate_per_s));
        writeln!(out, "requests     {finished} finished in {seconds}: {rate} a second")?;
        let mut others = vec![
            format!("{} failed", words::count(requests.failed)),
            match requests.differing {
                0 => format!("{} wrong", words::count(requests.wrong)),
                differing => {
                    format!("{} wrong ({} by body)", words::count(requests.wrong), words::count(differing))
                }
            },
        ];
        for (number, what) in [
            (requests.aborted, "without a response at the end"),
            (requests.unsent, "due and not sent"),
            (requests.warm_up, "warm-up, not counted"),
        ] {
            if number > 0 {
                others.push(format!("{} {what}", words::count(number)));
            }
        }
        writeln!(out, "             {}", others.join(", "))?;
        for target in &self.targets {
            let requests = &target.requests;
            let [finished, failed, wrong] =
                [requests.finished, requests.failed, requests.wrong].map(words::count);
            let [p50, p99] = ends(target.latency.as_ref());
            let rate = words::number(target.rate_per_s);
            writeln!(out, "  {}", target.name)?;
            writeln!(
                out,
                "             {finished}: {rate} a second; {failed} failed, {wrong} wrong; p50 {p50}, p99 {p99}"
            )?;
        }
        let classes = self.statuses.iter().filter(|(_, count)| **count > 0);
        let named = |class: &str| match class {
            "4xx" => self.named_statuses(4),
            "5xx" => self.named_statuses(5),
            _ => String::new(),
        };
        let classes: Vec<String> = classes
            .map(|(class, count)| format!("{class} {}{}", words::count(*count), named(class)))
            .collect();
        writeln!(
            out,
            "statuses     {}",
            if classes.is_empty() { "none".into() } else { classes.join(", ") }
        )?;
        let [received, bodies, sent] =
            [self.bytes.received, self.bytes.bodies, self.bytes.sent].map(words::bytes);
        // Bytes on the wire are counted by connection, whatever requests they belong to.
        let warmed =
            if self.requests.warm_up > 0 { " (warm-up included, but not in the bodies)" } else { "" };
        writeln!(out, "bytes        {received} received, {bodies} of them bodies; {sent} sent{warmed}")?;
        self.put_connections(out)?;

        put_names(out)?;
        if !self.is_closed() {
            put_row(out, "response time", self.latency.response.as_ref())?;
            put_row(out, "lag", self.latency.lag.as_ref())?;
        }
        put_row(out, "service time", self.latency.service.as_ref())?;
        put_row(out, "first byte", self.latency.first_byte.as_ref())?;
        if let Some(estimate) = &self.latency.open_loop_estimate {
            write!(out, "{:<13}", "(estimate)")?;
            for ns in estimate.values() {
                write!(out, "{:>9}", told(ns))?;
            }
            writeln!(out, "  an open-loop user, at most")?;
        }
        if requests.gathered > 0 {
            let gathered = words::count(requests.gathered);
            writeln!(
                out,
                "{gathered} responses were read in batches: they may have arrived 1/{PART} of the median earlier."
            )?;
        }
        if self.is_closed() {
            writeln!(
                out,
                "In a closed loop a slow server gets fewer requests: for the times that users see, set a rate (-r)."
            )?;
        }

        put_end(out, &self.errors, &self.verdict, &self.command)
    }

    /// The most frequent statuses of a class: ` (404)`, ` (503 1,200, 500 3)`; empty without any.
    fn named_statuses(&self, class: u16) -> String {
        let mut statuses: Vec<(u16, u64)> =
            self.status_codes.iter().filter(|(status, _)| status / 100 == class).collect();
        statuses.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        match statuses[..] {
            [] => String::new(),
            [(status, _)] => format!(" ({status})"),
            _ => {
                let named = statuses.iter().take(STATUSES_SHOWN);
                let named: Vec<String> =
                    named.map(|(status, count)| format!("{status} {}", words::count(*count))).collect();
                format!(" ({})", named.join(", "))
            }
        }
    }

    fn put_connections(&self, out: &mut String) -> std::fmt::Result {
        let made = words::count(self.connections.made);
        let [p50, p99] = ends(self.latency.connect.as_ref());
        write!(out, "connections  {made} made")?;
        if self.plan.requests_per_connection != Some(1) {
            let opening = words::time(self.connections.opening_ns);
            write!(out, ", the first {} in {opening}", words::count(self.plan.connections.into()))?;
        }
        write!(out, " (p50 {p50}, p99 {p99} each)")?;
        for (number, what) in [
            (self.connections.failed, "failed to connect"),
            (self.connections.ended_at_rest, "closed by the server while idle"),
        ] {
            if number > 0 {
                write!(out, ", {} {what}", words::count(number))?;
            }
        }
        writeln!(out)?;
        if let Some(server) = &self.server {
            server.put(out)?;
        }
        let Connections { handshakes, resumed, .. } = self.connections;
        put_handshakes(out, handshakes, resumed, self.latency.handshake.as_ref())
    }
}

/// Maximum kinds of failure shown; JSON has all.
const ERRORS_SHOWN: usize = 6;
const SAMPLE_SHOWN: usize = 40;
/// Maximum statuses shown of a class; JSON has all.
const STATUSES_SHOWN: usize = 3;

/// Appends a line about TLS, if there were handshakes.
pub(crate) fn put_handshakes(
    out: &mut String,
    made: u64,
    resumed: u64,
    took: Option<&SavedDistribution>,
) -> std::fmt::Result {
    if made == 0 {
        return Ok(());
    }
    let ([made, resumed], [p50, p99]) = ([made, resumed].map(words::count), ends(took));
    writeln!(out, "handshakes   {made} of TLS, {resumed} resumed (p50 {p50}, p99 {p99} each)")
}

/// Appends the errors, the verdict and the command to repeat the run.
pub(crate) fn put_end(
    out: &mut String,
    errors: &[SavedError],
    verdict: &SavedVerdict,
    command: &str,
) -> std::fmt::Result {
    if !errors.is_empty() {
        writeln!(out)?;
    }
    for error in errors.iter().take(ERRORS_SHOWN) {
        write!(out, "{:>12} {}: {}", words::count(error.count), error.phase, error.cause)?;
        if !error.sample.is_empty() {
            let sample = error.sample.chars().take(SAMPLE_SHOWN).flat_map(char::escape_debug);
            // The sample of a rejected message is the server's text; other samples are bytes received before the error.
            let begin =
                if error.phase == RequestPhase::Publish.to_string() { "first" } else { "first after" };
            write!(out, "; {begin} \"{}\"", sample.collect::<String>())?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\n{}", verdict.text)?;
    for remark in &verdict.remarks {
        writeln!(out, "{remark}")?;
    }
    writeln!(out, "Again: {command}")
}

/// Appends an empty line and the names of the percentiles.
pub(crate) fn put_names(out: &mut String) -> std::fmt::Result {
    write!(out, "\n{:<13}", "")?;
    for (name, _) in PERCENTILES {
        write!(out, "{name:>9}")?;
    }
    writeln!(out, "{:>9}{:>9}", "max", "mean")
}

/// Appends a line of percentiles.
pub(crate) fn put_row(out: &mut String, name: &str, held: Option<&SavedDistribution>) -> std::fmt::Result {
    write!(out, "{name:<13}")?;
    let distribution = held.map(|SavedDistribution(distribution)| distribution);
    for (_, share) in PERCENTILES {
        write!(out, "{:>9}", told(distribution.and_then(|held| held.quantile_ns(share))))?;
    }
    let mean = distribution.and_then(Distribution::mean_ns).map(|ns| ns as u64);
    let max = distribution.map(Distribution::max_ns);
    writeln!(out, "{:>9}{:>9}", told(max), told(mean))
}

/// The median and the 99th percentile.
pub(crate) fn ends(held: Option<&SavedDistribution>) -> [String; 2] {
    [0.5, 0.99].map(|share| told(held.and_then(|SavedDistribution(held)| held.quantile_ns(share))))
}

pub(crate) fn told(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".into(), words::time)
}
