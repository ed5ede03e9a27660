//! Explains which figures of a push run not to trust, and why.

use super::SavedPushRun;
use super::summary::reach;
use crate::explain::{Explained, FigureTrust, Findings};
use crate::report::saved::SavedDistribution;
use crate::words;

/// With fewer messages, percentiles of messages depend on chance: p99 has only one message beyond it.
const MESSAGES: u64 = 100;
/// The first messages are an outlier if they take more than this multiple of the others' time.
const FIRST: u64 = 3;

impl SavedPushRun {
    /// The findings about the figures.
    pub fn explained(&self) -> Explained {
        let mut findings = Findings::default();
        findings.verdict(&self.verdict, "Times and rates");
        if self.receipts.received == 0 {
            findings.say("all figures", FigureTrust::Not, "No subscriber received a message.");
        }
        findings.receipts(self);
        findings.times(self);
        findings.crowd(self);
        findings.generator(&self.threads, &self.environment);
        let so = "the last and receipts a second are the maximum of both together. The server's CPU per receipt (--watch) does not depend on the generator.";
        findings.neighbours(&self.plan.server, &self.environment, "the last", so);
        findings.explained()
    }
}

/// Findings about subscribers.
impl Findings {
    fn receipts(&mut self, run: &SavedPushRun) {
        let receipts = &run.receipts;
        if receipts.lost > 0 {
            let text = format!(
                "{} of {} receipts are missing (reach {}). No time includes them: a server that drops slow deliveries looks fast.",
                words::count(receipts.lost),
                words::count(receipts.expected),
                reach(receipts.reach)
            );
            // A lost receipt counts as the longest: if more than 1 % are lost, p99 would differ.
            let many = receipts.lost * 100 > receipts.expected;
            self.say("each receiver", if many { FigureTrust::Not } else { FigureTrust::Doubt }, text);
        }
        if receipts.repeated + receipts.out_of_order > 0 {
            let text = format!(
                "{} were repeated and {} out of order: clients of this server must expect both.",
                words::count(receipts.repeated),
                words::count(receipts.out_of_order)
            );
            self.say("receipts", FigureTrust::Doubt, text);
        }
        if receipts.gaps_told > 0 {
            let text = format!(
                "The server reported {} gaps: their messages are lost as well.",
                words::count(receipts.gaps_told)
            );
            self.say("reach", FigureTrust::Doubt, text);
        }
        if run.messages.refused > 0 {
            let text = format!(
                "{} messages were rejected or got no response. No subscriber has to receive them, so reach ignores them.",
                words::count(run.messages.refused)
            );
            self.say("reach", FigureTrust::Doubt, text);
        }
    }

    fn times(&mut self, run: &SavedPushRun) {
        let messages = run.times.first.as_ref().map_or(0, |SavedDistribution(first)| first.count());
        if (1..MESSAGES).contains(&messages) {
            let text = format!(
                "{} were received: a percentile of messages (the first, first to last, the last) above p{:.0} depends on the chance of one of them. Receipts of one message depend on each other, too.",
                words::plural(messages, "message"),
                100.0 * (1.0 - 1.0 / messages as f64)
            );
            self.say("percentiles of messages", FigureTrust::Doubt, text);
        }
        let [first, rest @ ..] = &run.columns[..] else { return };
        let later = rest.iter().filter_map(|column| column.last_ns).collect::<Vec<_>>();
        let middle = sorted_middle(later);
        if let Some((own, others)) = first.last_ns.zip(middle).filter(|(own, others)| *own > FIRST * others) {
            let text = format!(
                "The first of them took {} to the last receiver, later ones {}: memory and caches were cold. Push runs have no warm-up; in a longer run this matters less.",
                words::time(own),
                words::time(others)
            );
            self.say("max", FigureTrust::Doubt, text);
        }
        let text = "The first alone only shows when a server starts. First to last alone favours a server that encodes everything before its first send. Compare servers by the last and by each receiver.";
        self.say("the first and first to last", FigureTrust::Fine, text);
        self.precision();
        if run.plan.pace.r#loop == "closed" && run.plan.cycles.is_none() {
            let text = "Each publisher waited for its response before it sent the next message: a slow server got fewer messages, so the latencies hide overload. With a rate (-r) they are the times that users see.";
            self.say("latency", FigureTrust::Doubt, text);
        }
    }

    fn crowd(&mut self, run: &SavedPushRun) {
        if run.plan.transport == "poll" {
            let text = "Long polls: between a response and the next request a message waits at the server, and its time includes that. A server without a history would lose it.";
            self.say("each receiver", FigureTrust::Fine, text);
        }
        if run.plan.churn_per_s > 0.0 || run.plan.storm {
            let text = "Some receipts belong to subscribers that were disconnected when the message was sent: their times show how long they were disconnected.";
            self.say("the last, and high percentiles", FigureTrust::Doubt, text);
        }
        if run.subscribers.slow > 0 {
            let text = format!(
                "{} read nothing, and no figure includes them. Their cost shows in the other figures and in the server's memory.",
                words::plural(run.subscribers.slow.into(), "subscriber")
            );
            self.say("receipts", FigureTrust::Fine, text);
        }
    }
}

fn sorted_middle(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
