//! A push report as text for one screen.

use std::fmt::Write as _;

use super::{PushReport, SavedPushRun};
use crate::report::summary::{ends, put_end, put_handshakes, put_names, put_row};
use crate::words;

impl PushReport {
    /// The key results, in at most 24 lines unless there are many errors. For a cycle: lines in the format of report 001.
    pub fn summary(&self) -> String {
        self.saved().summary()
    }
}

impl SavedPushRun {
    /// See [`PushReport::summary`].
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let put = if self.plan.cycles.is_some() { self.put_rounds(&mut text) } else { self.put(&mut text) };
        put.and_then(|()| put_end(&mut text, &self.errors, &self.verdict, &self.command))
            .expect("a String takes everything");
        text
    }

    fn put(&self, out: &mut String) -> std::fmt::Result {
        let Self { subscribers, messages, receipts, times, .. } = self;
        writeln!(out, "{}", self.plan.text)?;
        writeln!(out, "{}\n", self.url)?;

        let each_ns = subscribers.opening_ns / u64::from(self.plan.subscribers.max(1));
        let [p50, p99] = ends(times.answer.as_ref());
        writeln!(
            out,
            "subscribers  {} accepted; c {} ({} each; p50 {p50}, p99 {p99})",
            words::count(subscribers.answered),
            words::time(subscribers.opening_ns),
            words::time(each_ns),
        )?;
        put_others(
            out,
            &[
                (subscribers.closed, "closed by the server"),
                (subscribers.turned_away, "rejected with a retry time"),
                (subscribers.unconnected, "attempts failed"),
                (subscribers.left, "left and reconnected"),
                (subscribers.slow.into(), "that read nothing"),
            ],
        )?;
        put_handshakes(out, subscribers.handshakes, subscribers.resumed, times.handshake.as_ref())?;
        self.put_memory(out)?;

        let [p50, p99] = ends(times.publish.as_ref());
        writeln!(
            out,
            "messages     {} published in {}, acknowledged in p50 {p50}, p99 {p99}",
            words::count(messages.published),
            words::time(self.elapsed_ns)
        )?;
        put_others(
            out,
            &[(messages.refused, "rejected or without a response"), (messages.unsent, "due and not sent")],
        )?;
        writeln!(
            out,
            "receipts     {} of {} due: reach {}; {} a second",
            words::count(receipts.expected.saturating_sub(receipts.lost)),
            words::count(receipts.expected),
            reach(receipts.reach),
            words::number(self.rate_per_s)
        )?;
        let [lost, repeated, late, gaps] =
            [receipts.lost, receipts.repeated, receipts.out_of_order, receipts.gaps_told].map(words::count);
        writeln!(
            out,
            "             {lost} lost, {repeated} repeated, {late} out of order; {gaps} gaps reported by the server"
        )?;

        put_names(out)?;
        put_row(out, "each receiver", times.receipt.as_ref())?;
        put_row(out, "the first", times.first.as_ref())?;
        put_row(out, "first to last", times.first_to_last.as_ref())?;
        put_row(out, "the last", times.last.as_ref())?;
        if times.lag.is_some() {
            put_row(out, "sent late by", times.lag.as_ref())?;
        }
        if times.back.is_some() {
            put_row(out, "back after", times.back.as_ref())?;
        }
        if let Some(storm) = &self.storm {
            writeln!(out, "storm        {}", storm.words())?;
        }
        Ok(())
    }

    fn put_memory(&self, out: &mut String) -> std::fmt::Result {
        let each = |bytes: f64| format!("{} B", words::count(bytes.round() as u64));
        let own = self.memory.map(|own| format!("{} each here", each(own.each_bytes)));
        let server = self.server.map(|server| {
            format!(
                "{} each at the server; its CPU {} per receipt",
                each(server.memory.each_bytes),
                words::time(server.cpu_ns / self.receipts.received.max(1))
            )
        });
        let told: Vec<String> = own.into_iter().chain(server).collect();
        if told.is_empty() { Ok(()) } else { writeln!(out, "memory       {}", told.join(", ")) }
    }

    /// Two lines per round: name, count, seconds, seconds per subscriber.
    fn put_rounds(&self, out: &mut String) -> std::fmt::Result {
        for round in &self.rounds {
            let held = round.held;
            for (name, ns) in [("c", round.connect_ns), ("r", round.first_to_last_ns)] {
                let seconds = ns as f64 / 1e9;
                writeln!(out, "{name},{held},{seconds:.6},{:.8}", seconds / f64::from(held.max(1)))?;
            }
        }
        writeln!(out, "\n{}\n{}", self.plan.text, self.url)?;
        put_names(out)?;
        put_row(out, "each receiver", self.times.receipt.as_ref())?;
        put_row(out, "the first", self.times.first.as_ref())?;
        put_row(out, "the last", self.times.last.as_ref())?;
        let missed: u64 =
            self.rounds.iter().map(|round| u64::from(round.held.saturating_sub(round.received))).sum();
        if missed > 0 {
            let timeout = words::time((self.plan.timeout_s * 1e9) as u64);
            writeln!(out, "{} receipts are missing after {timeout}.", words::count(missed))?;
        }
        Ok(())
    }
}

impl super::saved::SavedStorm {
    /// The outcome of the storm in words.
    pub(super) fn words(&self) -> String {
        match [self.back_ns, self.caught_up_ns].map(|after| after.map(words::time)) {
            [Some(back), Some(caught_up)] => {
                format!("all were back after {back}, and had all messages after {caught_up}")
            }
            [Some(back), None] => format!("all were back after {back}; some never had all messages"),
            [None, _] => "some did not come back".into(),
        }
    }
}

/// A share of receipts. Only a complete share is written as 100 %.
pub(super) fn reach(share: Option<f64>) -> String {
    match share {
        Some(1.0) => "100 %".into(),
        Some(share) => format!("{:.4} %", (share * 1e6).floor() / 1e4),
        None => "none expected".into(),
    }
}

/// Appends a line of other counts, unless all are 0.
fn put_others(out: &mut String, others: &[(u64, &str)]) -> std::fmt::Result {
    let some = others.iter().filter(|(number, _)| *number > 0);
    let some: Vec<String> = some.map(|(number, what)| format!("{} {what}", words::count(*number))).collect();
    if some.is_empty() { Ok(()) } else { writeln!(out, "             {}", some.join(", ")) }
}
