//! A report on one screen.

use std::fmt::Write as _;
use std::time::Duration;

use super::Report;
use encke_stats::Distribution;

use crate::report::saved::Held;
use crate::report::summary::{self, put_names, told};
use crate::words;

impl Report {
    /// What a person reads at a glance, in at most 24 lines unless much went wrong. Of a cycle: report 001's lines.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let put = if self.plan.cycles.is_some() { self.put_rounds(&mut text) } else { self.put(&mut text) };
        put.and_then(|()| self.put_end(&mut text)).expect("a String takes everything");
        text
    }

    fn put(&self, out: &mut String) -> std::fmt::Result {
        let outcome = &self.outcome;
        let totals = &outcome.totals;
        writeln!(out, "{}", self.line())?;
        writeln!(out, "{}\n", self.url)?;

        let each_ns = outcome.opening.as_nanos() as f64 / f64::from(self.plan.subscribers.max(1));
        let [p50, p99] = [0.5, 0.99].map(|share| told(totals.answer.quantile_ns(share)));
        writeln!(
            out,
            "subscribers  {} answered; c {} ({} each; p50 {p50}, p99 {p99})",
            words::count(totals.answer.count()),
            time(outcome.opening),
            words::time(each_ns as u64),
        )?;
        put_others(
            out,
            &[
                (totals.closed, "ended by the server"),
                (totals.turned_away, "put off"),
                (totals.unconnected, "attempts failed"),
                (totals.left, "left and came back"),
                (outcome.slow.into(), "that read nothing"),
            ],
        )?;
        self.put_memory(out)?;

        let seconds = time(outcome.elapsed);
        write!(out, "messages     {} published in {seconds}", words::count(totals.published))?;
        writeln!(
            out,
            ", answered in p50 {}, p99 {}",
            told(totals.taken.quantile_ns(0.5)),
            told(totals.taken.quantile_ns(0.99))
        )?;
        put_others(
            out,
            &[(totals.refused, "refused or without an answer"), (self.unsent(), "due and not sent")],
        )?;
        let reach = match outcome.reach.share() {
            Some(1.0) => "100 %".into(),
            // Never rounded up to all.
            Some(share) => format!("{:.4} %", (share * 1e6).floor() / 1e4),
            None => "of nothing".into(),
        };
        writeln!(
            out,
            "receipts     {} of {} due: reach {reach}; {} a second",
            words::count(outcome.reach.expected - outcome.reach.lost),
            words::count(outcome.reach.expected),
            words::number(self.rate())
        )?;
        let [lost, repeated, late, gaps] =
            [outcome.reach.lost, totals.repeated, totals.late, totals.gaps].map(words::count);
        writeln!(
            out,
            "             {lost} lost, {repeated} repeated, {late} out of order; {gaps} gaps told by the server"
        )?;

        put_names(out)?;
        put_row(out, "each receiver", &totals.latency)?;
        put_row(out, "the first", &outcome.messages.first)?;
        put_row(out, "first to last", &outcome.messages.spread)?;
        put_row(out, "the last", &outcome.messages.last)?;
        if totals.lag.count() > 0 {
            put_row(out, "sent late by", &totals.lag)?;
        }
        if totals.back.count() > 0 {
            put_row(out, "back after", &totals.back)?;
        }
        if let Some(storm) = outcome.storm {
            let [back, caught_up] = [storm.back, storm.caught_up].map(|after| after.map(time));
            let told = match (back, caught_up) {
                (Some(back), Some(caught_up)) => {
                    format!("all were back after {back}, and had all that was said after {caught_up}")
                }
                (Some(back), None) => format!("all were back after {back}; some never had all that was said"),
                (None, _) => "some did not come back".into(),
            };
            writeln!(out, "storm        {told}")?;
        }
        Ok(())
    }

    fn put_memory(&self, out: &mut String) -> std::fmt::Result {
        let each = |memory: super::super::Memory| {
            format!("{} B", words::count(memory.each(self.plan.subscribers).round() as u64))
        };
        let own = self.outcome.own.map(|own| format!("{} each here", each(own)));
        let server = self.outcome.server.map(|(memory, used)| {
            let receipt_ns = used.as_nanos() as f64 / self.outcome.totals.received.max(1) as f64;
            format!(
                "{} each at the server; its CPU {} a receipt",
                each(memory),
                words::time(receipt_ns as u64)
            )
        });
        let told: Vec<String> = own.into_iter().chain(server).collect();
        if told.is_empty() { Ok(()) } else { writeln!(out, "memory       {}", told.join(", ")) }
    }

    /// Two lines a round: what, how many, seconds, seconds each.
    fn put_rounds(&self, out: &mut String) -> std::fmt::Result {
        for round in &self.outcome.rounds {
            let held = round.held;
            for (name, ns) in [("c", round.connect_ns), ("r", round.spread_ns)] {
                let seconds = ns as f64 / 1e9;
                writeln!(out, "{name},{held},{seconds:.6},{:.8}", seconds / f64::from(held.max(1)))?;
            }
        }
        writeln!(out, "\n{}\n{}", self.line(), self.url)?;
        put_names(out)?;
        put_row(out, "each receiver", &self.outcome.totals.latency)?;
        put_row(out, "the first", &self.outcome.messages.first)?;
        put_row(out, "the last", &self.outcome.messages.last)?;
        let missed: u64 = self
            .outcome
            .rounds
            .iter()
            .map(|round| u64::from(round.held.saturating_sub(round.received)))
            .sum();
        if missed > 0 {
            writeln!(
                out,
                "{} receipts did not happen within {}.",
                words::count(missed),
                time(self.plan.timeout)
            )?;
        }
        Ok(())
    }

    fn put_end(&self, out: &mut String) -> std::fmt::Result {
        if !self.outcome.errors.is_empty() {
            writeln!(out)?;
        }
        for error in self.outcome.errors.iter().take(ERRORS_SHOWN) {
            writeln!(out, "{:>12} {}: {}", words::count(error.count), error.phase, error.cause)?;
        }
        writeln!(out, "\n{}", self.verdict.text)?;
        for remark in &self.verdict.remarks {
            writeln!(out, "{remark}")?;
        }
        writeln!(out, "Again: {}", self.command)
    }
}

/// Kinds of failure that are shown; JSON has all.
const ERRORS_SHOWN: usize = 6;

fn put_row(out: &mut String, name: &str, distribution: &Distribution) -> std::fmt::Result {
    let held = (distribution.count() > 0).then(|| Held(distribution.clone()));
    summary::put_row(out, name, held.as_ref())
}

/// A line of what there is of other things, if there is any.
fn put_others(out: &mut String, others: &[(u64, &str)]) -> std::fmt::Result {
    let some = others.iter().filter(|(number, _)| *number > 0);
    let some: Vec<String> = some.map(|(number, what)| format!("{} {what}", words::count(*number))).collect();
    if some.is_empty() { Ok(()) } else { writeln!(out, "             {}", some.join(", ")) }
}

fn time(duration: Duration) -> String {
    words::time(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
