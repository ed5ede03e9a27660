//! A report on one screen.

use std::fmt::Write as _;

use encke_stats::Distribution;

use super::{PERCENTILES, Report};
use crate::pace::Pace;
use crate::words;

impl Report {
    /// What an `ab` user reads at a glance, in at most 24 lines unless much went wrong.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        self.put(&mut text).expect("a String takes everything");
        text
    }

    fn put(&self, out: &mut String) -> std::fmt::Result {
        let totals = &self.outcome.totals;
        writeln!(out, "{}", self.loop_line())?;
        writeln!(out, "{}\n", self.urls.join(" "))?;

        let seconds = words::time(u64::try_from(self.outcome.elapsed.as_nanos()).unwrap_or(u64::MAX));
        let (finished, rate) = (words::count(totals.finished), words::number(self.rate()));
        writeln!(out, "requests     {finished} finished in {seconds}: {rate} a second")?;
        let mut others = vec![
            format!("{} failed", words::count(totals.failed)),
            format!("{} wrong", words::count(totals.wrong)),
        ];
        for (number, what) in [
            (totals.aborted, "without an answer at the end"),
            (self.unsent(), "due and not sent"),
            (totals.warm_up, "warm-up, not counted"),
        ] {
            if number > 0 {
                others.push(format!("{} {what}", words::count(number)));
            }
        }
        writeln!(out, "             {}", others.join(", "))?;
        let classes = (1..10).filter(|class| totals.statuses[*class] > 0);
        let classes: Vec<String> =
            classes.map(|class| format!("{class}xx {}", words::count(totals.statuses[class]))).collect();
        writeln!(
            out,
            "statuses     {}",
            if classes.is_empty() { "none".into() } else { classes.join(", ") }
        )?;
        let [received, bodies, sent] =
            [totals.received_bytes, totals.body_bytes, totals.sent_bytes].map(words::bytes);
        writeln!(out, "bytes        {received} received, {bodies} of them bodies; {sent} sent")?;
        self.put_connections(out)?;

        write!(out, "\n{:<13}", "")?;
        for (name, _) in PERCENTILES {
            write!(out, "{name:>9}")?;
        }
        writeln!(out, "{:>9}{:>9}", "max", "mean")?;
        if matches!(self.plan.pace, Pace::Open(..)) {
            put_row(out, "response time", &totals.response)?;
            put_row(out, "lag", &totals.lag)?;
        }
        put_row(out, "service time", &totals.service)?;
        put_row(out, "first byte", &totals.first_byte)?;
        if let Some(estimate) = self.estimate() {
            write!(out, "{:<13}", "(estimate)")?;
            for (_, share) in PERCENTILES {
                write!(out, "{:>9}", told(estimate.quantile_ns(share)))?;
            }
            writeln!(out, "  an open-loop user, at most")?;
        }
        if self.plan.pace == Pace::Closed {
            writeln!(
                out,
                "In a closed loop a slow server is asked less: for what users see, give a rate (-r)."
            )?;
        }

        if !self.outcome.errors.is_empty() {
            writeln!(out)?;
        }
        for error in self.outcome.errors.iter().take(ERRORS_SHOWN) {
            write!(out, "{:>12} {}: {}", words::count(error.count), error.phase, error.cause)?;
            if !error.sample.is_empty() {
                let sample = &error.sample[..error.sample.len().min(SAMPLE_SHOWN)];
                write!(out, "; first behind \"{}\"", sample.escape_ascii())?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\n{}", self.verdict.text)?;
        for remark in &self.verdict.remarks {
            writeln!(out, "{remark}")?;
        }
        writeln!(out, "Again: {}", self.command)
    }

    fn put_connections(&self, out: &mut String) -> std::fmt::Result {
        let totals = &self.outcome.totals;
        let connected = words::count(totals.connected);
        let [p50, p99] = [0.5, 0.99].map(|share| told(totals.connect.quantile_ns(share)));
        write!(out, "connections  {connected} made")?;
        if !self.plan.one_shot() {
            let opening = words::time(u64::try_from(self.outcome.opening.as_nanos()).unwrap_or(u64::MAX));
            write!(out, ", the first {} in {opening}", words::count(self.plan.connections.into()))?;
        }
        write!(out, " (p50 {p50}, p99 {p99} each)")?;
        for (number, what) in
            [(totals.unconnected, "could not be made"), (totals.ended_idle, "ended by the server at rest")]
        {
            if number > 0 {
                write!(out, ", {} {what}", words::count(number))?;
            }
        }
        writeln!(out)
    }
}

/// Kinds of failure that are shown; JSON has all.
const ERRORS_SHOWN: usize = 6;
const SAMPLE_SHOWN: usize = 40;

fn put_row(out: &mut String, name: &str, distribution: &Distribution) -> std::fmt::Result {
    write!(out, "{name:<13}")?;
    for (_, share) in PERCENTILES {
        write!(out, "{:>9}", told(distribution.quantile_ns(share)))?;
    }
    let mean = distribution.mean_ns().map(|ns| ns as u64);
    let max = mean.map(|_| distribution.max_ns());
    writeln!(out, "{:>9}{:>9}", told(max), told(mean))
}

fn told(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".into(), words::time)
}
