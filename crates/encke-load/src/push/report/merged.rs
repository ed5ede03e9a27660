//! Merges the push runs of several generators, whose subscribers shared one server.
//!
//! ```text
//!   counts, histograms, errors   added up; messages of a machine count only for its own subscribers
//!   rate                         all receipts ÷ (last end − first begin)
//!   over time                    not merged: each machine's clock knows only its own messages
//!   verdict                      no verdict if one of the runs has none
//! ```

use std::ops::Range;
use std::time::Duration;

use super::SavedPushRun;
use super::saved::SavedPushPart;
use crate::environment::Environment;
use crate::report::merged::{Spans, Unlike, said_by_all};
use crate::report::saved::{SavedDistribution, SavedError, SavedVerdict, per_second, rfc3339};
use crate::words;

impl SavedPushRun {
    /// Merges runs.
    ///
    /// # Errors
    /// The runs cannot be merged.
    pub fn merged(runs: &[Self]) -> Result<Self, Unlike> {
        let [first, others @ ..] = runs else { return Err(Unlike::Few) };
        if others.is_empty() {
            return Err(Unlike::Few);
        }
        if others.iter().any(|other| other.plan.transport != first.plan.transport) {
            return Err(Unlike::Transports);
        }
        let mut all = first.clone();
        for other in others {
            all.take_in(other);
        }
        let spans = Spans(runs.iter().map(Self::span).collect());
        all.began_unix_ns = runs.iter().map(|run| run.began_unix_ns).min().unwrap_or(0);
        all.began = rfc3339(all.began_unix_ns);
        all.elapsed_ns = spans.whole_ns();
        all.rate_per_s = per_second(all.receipts.received, Duration::from_nanos(all.elapsed_ns));
        let due = all.receipts.expected;
        all.receipts.reach = (due > 0).then(|| due.saturating_sub(all.receipts.lost) as f64 / due as f64);
        all.command = said_by_all(runs, " & ", |run| &run.command);
        all.url = said_by_all(runs, " ", |run| &run.url);
        all.plan.text = said_by_all(runs, " + ", |run| &run.plan.text);
        all.environment = Environment::of_all(runs, |run| &run.environment);
        // Measurements that each machine made in its own time have no sum.
        (all.columns, all.subscribers.course) = (Vec::new(), Vec::new());
        (all.memory, all.server) = (None, None);
        all.verdict = SavedVerdict::of_all(runs, |run| &run.verdict);
        if spans.common_ns() == 0 {
            let text = "The runs were not simultaneous: no two of them had subscribers at the same time.";
            all.verdict.remarks.push(text.to_owned());
        }
        all.verdict.remarks.push(format!(
            "Each generator counts its own messages to its own subscribers; {} took part.",
            words::plural(runs.len() as u64, "generator")
        ));
        all.parts = runs.iter().flat_map(Self::parts).collect();
        Ok(all)
    }

    /// Adds all sums.
    fn take_in(&mut self, other: &Self) {
        let (receipts, theirs) = (&mut self.receipts, &other.receipts);
        for (sum, count) in [
            (&mut receipts.expected, theirs.expected),
            (&mut receipts.received, theirs.received),
            (&mut receipts.lost, theirs.lost),
            (&mut receipts.repeated, theirs.repeated),
            (&mut receipts.out_of_order, theirs.out_of_order),
            (&mut receipts.early, theirs.early),
            (&mut receipts.gaps_told, theirs.gaps_told),
            (&mut self.messages.published, other.messages.published),
            (&mut self.messages.refused, other.messages.refused),
            (&mut self.messages.queued, other.messages.queued),
            (&mut self.messages.unsent, other.messages.unsent),
            (&mut self.subscribers.answered, other.subscribers.answered),
            (&mut self.subscribers.closed, other.subscribers.closed),
            (&mut self.subscribers.turned_away, other.subscribers.turned_away),
            (&mut self.subscribers.left, other.subscribers.left),
            (&mut self.subscribers.unconnected, other.subscribers.unconnected),
            (&mut self.subscribers.handshakes, other.subscribers.handshakes),
            (&mut self.subscribers.resumed, other.subscribers.resumed),
            (&mut self.bytes.received, other.bytes.received),
            (&mut self.bytes.sent, other.bytes.sent),
        ] {
            *sum += count;
        }
        self.subscribers.held += other.subscribers.held;
        self.subscribers.slow += other.subscribers.slow;
        self.subscribers.opening_ns = self.subscribers.opening_ns.max(other.subscribers.opening_ns);
        self.plan.subscribers += other.plan.subscribers;
        self.plan.publishers = self.plan.publishers.saturating_add(other.plan.publishers);
        self.plan.threads = self.plan.threads.saturating_add(other.plan.threads);
        let (mine, theirs) = (&mut self.times, &other.times);
        for (sum, held) in [
            (&mut mine.receipt, &theirs.receipt),
            (&mut mine.first, &theirs.first),
            (&mut mine.first_to_last, &theirs.first_to_last),
            (&mut mine.last, &theirs.last),
            (&mut mine.connect, &theirs.connect),
            (&mut mine.handshake, &theirs.handshake),
            (&mut mine.answer, &theirs.answer),
            (&mut mine.back, &theirs.back),
            (&mut mine.publish, &theirs.publish),
            (&mut mine.lag, &theirs.lag),
        ] {
            SavedDistribution::take_in(sum, held.as_ref());
        }
        self.rounds.extend(&other.rounds);
        SavedError::take_in(&mut self.errors, &other.errors);
        self.threads.extend(&other.threads);
        self.system.take_in(other.system);
        // A storm ends when the last subscriber of all runs has reconnected.
        self.storm = self.storm.take().zip(other.storm.as_ref()).map(|(mut mine, theirs)| {
            mine.back_ns = mine.back_ns.zip(theirs.back_ns).map(|(mine, theirs)| mine.max(theirs));
            let caught_up = mine.caught_up_ns.zip(theirs.caught_up_ns);
            mine.caught_up_ns = caught_up.map(|(mine, theirs)| mine.max(theirs));
            mine.course = Vec::new();
            mine
        });
    }

    fn parts(&self) -> Vec<SavedPushPart> {
        if !self.parts.is_empty() {
            return self.parts.clone();
        }
        vec![SavedPushPart {
            command: self.command.clone(),
            began: self.began.clone(),
            began_unix_ns: self.began_unix_ns,
            environment: self.environment.clone(),
            receipts: self.receipts,
            rate_per_s: self.rate_per_s,
            verdict: self.verdict.clone(),
        }]
    }

    /// The approximate time from its first message to its end, in ns since 1970.
    const fn span(&self) -> Range<u64> {
        // A file may contain any time.
        let from = self.began_unix_ns.saturating_add(self.subscribers.opening_ns);
        from..from.saturating_add(self.elapsed_ns)
    }
}
