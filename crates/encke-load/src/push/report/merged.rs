//! Runs of several generators as one: subscribers of one server that were held by several machines.
//!
//! ```text
//!   counts, histograms, errors   added up; a machine's own messages only reach its own subscribers' accounts
//!   rate                         all receipts by the time from the first beginning to the last end
//!   over time                    not joined: each machine's clock knows only its own messages
//!   verdict                      the first that is none, else that of all
//! ```

use encke_stats::Distribution;

use super::Saved;
use super::saved::SavedPart;
use crate::report::merged::Unlike;
use crate::report::saved::{Held, SavedError, rfc3339};
use crate::words;

impl Saved {
    /// All of them as one.
    ///
    /// # Errors
    /// There is no sense in a sum of them.
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
        let began = runs.iter().map(Self::counted_unix_ns).min().unwrap_or(0);
        let ended = runs.iter().map(|run| run.counted_unix_ns() + run.elapsed_ns).max().unwrap_or(0);
        all.began_unix_ns = runs.iter().map(|run| run.began_unix_ns).min().unwrap_or(0);
        all.began = rfc3339(all.began_unix_ns);
        all.elapsed_ns = ended.saturating_sub(began);
        let seconds = all.elapsed_ns as f64 / 1e9;
        all.rate_per_s = if seconds > 0.0 { all.receipts.received as f64 / seconds } else { 0.0 };
        let due = all.receipts.expected;
        all.receipts.reach = (due > 0).then(|| due.saturating_sub(all.receipts.lost) as f64 / due as f64);
        all.errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        all.command = joined(runs, " & ", |run| &run.command);
        all.url = joined(runs, " ", |run| &run.url);
        all.plan.text = joined(runs, " + ", |run| &run.plan.text);
        all.environment.processor = joined(runs, ", ", |run| &run.environment.processor);
        all.environment.system = joined(runs, ", ", |run| &run.environment.system);
        // What each has measured by itself, in its own time, has no sum.
        (all.columns, all.subscribers.course) = (Vec::new(), Vec::new());
        (all.memory, all.server) = (None, None);
        all.judge(runs);
        all.parts = runs.iter().flat_map(Self::parts).collect();
        Ok(all)
    }

    /// Adds what can be added.
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
            if let Some(Held(held)) = held {
                sum.get_or_insert_with(|| Held(Distribution::new())).0.merge(held);
            }
        }
        self.rounds.extend(&other.rounds);
        self.threads.extend(&other.threads);
        for error in &other.errors {
            self.take_in_error(error);
        }
        // Of a storm: when the last one of all was back.
        self.storm = self.storm.take().zip(other.storm.as_ref()).map(|(mut mine, theirs)| {
            mine.back_ns = mine.back_ns.zip(theirs.back_ns).map(|(mine, theirs)| mine.max(theirs));
            let caught_up = mine.caught_up_ns.zip(theirs.caught_up_ns);
            mine.caught_up_ns = caught_up.map(|(mine, theirs)| mine.max(theirs));
            mine.course = Vec::new();
            mine
        });
    }

    fn take_in_error(&mut self, theirs: &SavedError) {
        let same = |mine: &&mut SavedError| (&mine.phase, &mine.cause) == (&theirs.phase, &theirs.cause);
        match self.errors.iter_mut().find(same) {
            None => self.errors.push(theirs.clone()),
            Some(mine) => {
                mine.count += theirs.count;
                mine.first_ns = mine.first_ns.min(theirs.first_ns);
            }
        }
    }

    fn judge(&mut self, runs: &[Self]) {
        let doubtful = runs.iter().find(|run| !run.verdict.is_verdict);
        self.verdict = doubtful.unwrap_or(&runs[0]).verdict.clone();
        let mut remarks: Vec<String> = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            let of_run = std::iter::once(&run.verdict.text).chain(&run.verdict.remarks);
            remarks.extend(of_run.map(|text| format!("{}: {text}", number + 1)));
        }
        let without = runs.iter().filter(|run| !run.verdict.is_verdict).count();
        self.verdict.text = match without {
            0 => format!("{} runs together; what was the limit, each says for itself:", runs.len()),
            some => format!("{some} of {} runs have no verdict, so their sum has none:", runs.len()),
        };
        let begun = runs.iter().map(Self::counted_unix_ns).max().unwrap_or(0);
        let ended = runs.iter().map(|run| run.counted_unix_ns() + run.elapsed_ns).min().unwrap_or(0);
        if ended <= begun {
            remarks.push(
                "They were not made at the same time: no two of them held subscribers together.".to_owned(),
            );
        }
        remarks.push(format!(
            "Each generator has followed its own messages to its own subscribers; {} took part.",
            words::plural(runs.len() as u64, "generator")
        ));
        self.verdict.remarks = remarks;
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
            receipts: self.receipts,
            rate_per_s: self.rate_per_s,
            verdict: self.verdict.clone(),
        }]
    }

    /// About when its first message was sent.
    fn counted_unix_ns(&self) -> u64 {
        self.began_unix_ns + self.subscribers.opening_ns
    }
}

/// What the runs say, once if all say the same.
fn joined(runs: &[Saved], between: &str, said: impl Fn(&Saved) -> &String) -> String {
    let all: Vec<&str> = runs.iter().map(|run| said(run).as_str()).collect();
    match all.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => (*first).to_owned(),
        _ => all.join(between),
    }
}
