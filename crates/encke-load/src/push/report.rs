//! Results of a push run, for people and machines.

mod explained;
mod merged;
mod page;
pub mod saved;
mod summary;

pub use saved::SavedPushRun;

use encke_stats::Distribution;

use super::plan::PushRunPlan;
use super::run::PushRunOutcome;
use crate::environment::Environment;
use crate::pace::Pace;
use crate::plan::Stop;
use crate::report::saved::per_second;
use crate::slo::Figures;
use crate::tally::{Cause, RequestPhase};
use crate::verdict::{BUSY, Bottleneck, SENT, SHORTEST, TICK_NS, Verdict, WAITING, WRONG};
use crate::words;

/// A push run and its evaluation.
#[derive(Clone, Debug)]
pub struct PushReport {
    /// The plan.
    pub plan: PushRunPlan,
    /// The URL as given by the user.
    pub url: String,
    /// The command that repeats the run.
    pub command: String,
    /// Results of the run.
    pub outcome: PushRunOutcome,
    /// The bottleneck.
    pub verdict: Verdict,
    /// The machine of the generator.
    pub environment: Environment,
}

/// If this share of messages waited for a publisher, it is no accident.
const QUEUED: f64 = 0.01;
/// Maximum characters shown of a response's text: one or two lines of a terminal.
const TEXT_CHARS_MAX: usize = 200;
/// From this share of the time between first and last receipt, the generator's own cost matters.
const OWN_PART: f64 = 0.5;

impl PushReport {
    /// Evaluates a run.
    pub fn new(plan: PushRunPlan, url: String, command: String, outcome: PushRunOutcome) -> Self {
        let verdict = judge(&plan, &outcome);
        Self { plan, url, command, outcome, verdict, environment: Environment::look() }
    }

    /// Receipts per second.
    pub fn rate(&self) -> f64 {
        per_second(self.outcome.totals.received, self.outcome.elapsed)
    }

    /// On a schedule: messages that were due but never begun.
    pub fn unsent(&self) -> u64 {
        due(&self.plan).map_or(0, |due| due.saturating_sub(self.outcome.totals.published))
    }
}

impl Figures for PushReport {
    /// Latency of all receipts.
    fn latency(&self) -> &Distribution {
        &self.outcome.totals.latency
    }

    fn missing(&self) -> u64 {
        self.outcome.reach.lost
    }

    /// Errors of connections and refused messages, as a share of all connections and messages.
    fn error_share(&self) -> Option<f64> {
        let totals = &self.outcome.totals;
        let tried = totals.published + totals.connected + totals.unconnected;
        let wrong: u64 = self.outcome.errors.iter().map(|error| error.count).sum();
        (tried > 0).then(|| wrong as f64 / tried as f64)
    }

    fn rate(&self) -> Option<f64> {
        (self.outcome.totals.received > 0).then(|| Self::rate(self))
    }

    fn reach(&self) -> Option<f64> {
        self.outcome.reach.share()
    }
}

/// The number of messages due in an even schedule that ends by time; `None` for other plans.
fn due(plan: &PushRunPlan) -> Option<u64> {
    match (&plan.pace, plan.stop, plan.cycles) {
        (Pace::Open(rate, crate::Arrivals::Even), Stop::After(time), None) => {
            // The last moment is outside the time.
            Some(rate.due_within(time).ceil() as u64)
        }
        _ => None,
    }
}

/// Determines the bottleneck.
fn judge(plan: &PushRunPlan, outcome: &PushRunOutcome) -> Verdict {
    let totals = &outcome.totals;
    let busy = outcome.threads.iter().map(|thread| thread.busy).fold(0.0, f64::max);
    let waiting = outcome.threads.iter().map(|thread| thread.waiting).fold(0.0, f64::max);
    let used = format!("the generator's busiest thread used {} of a core", words::percent(busy));
    let late_ns = totals.lag.quantile_ns(0.99).unwrap_or(0);
    let late = words::time(late_ns);
    let sent = due(plan).map_or(1.0, |due| (totals.published as f64 / due.max(1) as f64).min(1.0));
    let ours = outcome.errors.iter().find(|error| error.cause.is_ours());
    let (limit, text) = if let Some(error) = ours {
        let times = words::plural(error.count, "time");
        (Bottleneck::Generator, format!("The generator was the bottleneck: {}, {times}.", error.cause))
    } else if let Some(judged) = rejected(outcome) {
        judged
    } else if plan.cycles.is_none() && outcome.elapsed < SHORTEST {
        (Bottleneck::TooShort, "Too short to determine the bottleneck.".to_owned())
    } else if busy + waiting >= BUSY && waiting >= WAITING {
        let share = words::percent(waiting);
        let text =
            format!("The generator was starved: for {share} of the time other processes used its processor.");
        (Bottleneck::Starved, text)
    } else if busy >= BUSY {
        let more = u32::from(plan.threads) + 1;
        (
            Bottleneck::Generator,
            format!(
                "The generator was the bottleneck: {used}. More threads (-t {more}) may increase the rate."
            ),
        )
    } else if plan.cycles.is_some() || plan.pace == Pace::Closed {
        (Bottleneck::Server, format!("The server was the bottleneck: {used}."))
    } else if late_ns <= TICK_NS && sent >= SENT {
        // Latencies count from the send, so its lateness affects none of them.
        (Bottleneck::Kept, format!("The schedule was kept (99 of 100 messages within {late}); {used}."))
    } else if sent < SENT || totals.queued as f64 >= QUEUED * totals.published as f64 {
        let (sent, queued) = (words::percent(sent), words::plural(totals.queued, "message"));
        let text = format!(
            "The schedule was not kept: {sent} of it was sent, and {queued} waited for a publisher. The server was slower than the rate, or --publishers is too small; {used}."
        );
        (Bottleneck::Behind, text)
    } else {
        let limit = if waiting >= WAITING { Bottleneck::Starved } else { Bottleneck::Generator };
        let text = format!(
            "The generator did not keep the schedule: 1 % of messages were sent more than {late} late, although publishers were free; {used}."
        );
        (limit, text)
    };
    Verdict { limit, text, remarks: remarks(plan, outcome, waiting) }
}

/// The verdict on a run of which most messages were rejected or got no response: the most frequent reason, and the remedy.
fn rejected(outcome: &PushRunOutcome) -> Option<(Bottleneck, String)> {
    let totals = &outcome.totals;
    if totals.refused as f64 <= WRONG * totals.published as f64 {
        return None;
    }
    let of_messages = outcome.errors.iter().filter(|error| error.phase == RequestPhase::Publish);
    let error = of_messages.max_by_key(|error| error.count);
    let (limit, help) = match error.map(|error| &error.cause) {
        Some(Cause::Status(status)) => (Bottleneck::Unexpected, remedy(*status)),
        _ => (Bottleneck::Unanswered, ""),
    };
    let cause = error.map_or_else(
        || "no response at the end of the run".to_owned(),
        |error| {
            let said = first_line(&error.sample);
            let said = if said.is_empty() { said } else { format!(" \"{said}\"") };
            format!("{}{said}", error.cause)
        },
    );
    Some((
        limit,
        format!(
            "No verdict, because most messages were not published: {} of {} ({cause}){help}.",
            words::count(totals.refused),
            words::count(totals.published),
        ),
    ))
}

/// What helps against a status of Encke for a publish.
const fn remedy(status: u16) -> &'static str {
    match status {
        401 | 403 => {
            "; pass a token with the right to publish: --token TOKEN (`encke token --publish '*'` signs one)"
        }
        404 | 405 => "; for a server other than Encke use --preset, or --publish-url",
        429 => {
            "; use a lower --publish-rate, a --token, or a higher push.anonymous_rate in the server's settings"
        }
        _ => "",
    }
}

/// The first line of a response's text, without control characters. HTML is no text for a terminal.
fn first_line(sample: &[u8]) -> String {
    let text = String::from_utf8_lossy(sample);
    let line = text.trim().lines().next().filter(|line| !line.starts_with('<')).unwrap_or_default();
    line.chars().filter(|char| !char.is_control()).take(TEXT_CHARS_MAX).collect()
}

/// Remarks that qualify the results.
fn remarks(plan: &PushRunPlan, outcome: &PushRunOutcome, waiting: f64) -> Vec<String> {
    let totals = &outcome.totals;
    let mut remarks = Vec::new();
    if waiting >= WAITING {
        let share = words::percent(waiting);
        remarks.push(format!(
            "For {share} of the time other processes used the generator's processor: latencies include that."
        ));
    }
    if let Some((each_ns, part)) = own_part(plan, outcome).filter(|(_, part)| *part >= OWN_PART) {
        remarks.push(format!(
            "Receiving took the generator {} per receipt: {} of the time from the first to the last is its own.",
            words::time(each_ns as u64),
            words::percent(part.min(1.0))
        ));
    }
    if outcome.held < plan.subscribers && plan.cycles.is_none() {
        let absent = words::plural(u64::from(plan.subscribers - outcome.held), "subscriber");
        remarks.push(format!("At the end {absent} had no accepted subscription."));
    }
    if totals.early > 0 {
        let early = words::plural(totals.early, "message");
        remarks.push(format!(
            "{early} reached subscribers that joined after the send: no figure includes them."
        ));
    }
    if totals.published >= super::publishers::MESSAGES_MAX as u64 {
        let most = words::count(super::publishers::MESSAGES_MAX as u64);
        remarks.push(format!("The run ended with message {most}: it can record no more."));
    }
    if let Some(tcp) = outcome.tcp.filter(|tcp| tcp.listen_drops > 0) {
        let drops = words::plural(tcp.listen_drops, "connection");
        remarks.push(format!(
            "{drops} to listeners of this machine were dropped because a queue was full; each was delayed by a second or more."
        ));
    }
    remarks
}

/// The generator's own cost of a receipt in ns, and its share of the time from a message's first receipt to the last.
fn own_part(plan: &PushRunPlan, outcome: &PushRunOutcome) -> Option<(f64, f64)> {
    let run_ns: u64 = outcome.threads.iter().map(|thread| thread.run_ns).sum();
    let each_ns = run_ns as f64 / outcome.totals.received.max(1) as f64;
    let spread_ns = outcome.messages.spread.mean_ns()?;
    let receipts = f64::from(plan.subscribers) / plan.channels.len() as f64 / f64::from(plan.threads);
    (spread_ns > 0.0).then(|| (each_ns, each_ns * receipts / spread_ns))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::SavedRun;
    use crate::push::{
        Column, Dialect, Memory, Messages, Preset, PushTotals, Reach, Round, Storm, Transport,
    };
    use crate::run::ThreadShare;
    use crate::slo::Slo;
    use crate::tally::Errors;

    fn plan() -> PushRunPlan {
        let dialect = Dialect::of(Preset::Encke, Transport::Sse, false).expect("it has event streams");
        let server = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        PushRunPlan::new(server, "h".into(), dialect, Transport::Sse, 1)
    }

    /// 20 columns of 5 messages, with all times multiplied by `times`.
    fn columns(times: u64) -> Vec<Column> {
        let column = |place: u32| Column {
            at_s: f64::from(place) / 2.0,
            seconds: 0.5,
            messages: 5,
            first_ns: Some((1_000_000 + u64::from(place)) * times),
            first_to_last_ns: Some((30_000_000 + u64::from(place)) * times),
            last_ns: Some((31_000_000 + u64::from(place)) * times),
            receipts: vec![(5_242_879 * times, 40), (20_971_519 * times, 4_960)],
        };
        (0..20).map(column).collect()
    }

    /// 100 messages to 1,000 subscribers; all but 7 receipts arrived.
    fn outcome(busy: f64, waiting: f64) -> PushRunOutcome {
        let mut totals = PushTotals {
            published: 100,
            received: 99_993,
            repeated: 3,
            late: 2,
            answered: 1_000,
            connected: 1_001,
            ..PushTotals::default()
        };
        let mut messages = Messages::default();
        totals.latency.record_many(20_000_000, totals.received);
        for _ in 0..100 {
            totals.lag.record(100_000);
            messages.first.record(1_000_000);
            messages.spread.record(30_000_000);
            messages.last.record(31_000_000);
        }
        let mut errors = Errors::default();
        errors.add(RequestPhase::Connect, Cause::Timeout, 5, b"");
        PushRunOutcome {
            began_unix_ns: 1_000_000_000_000_000_000,
            columns: columns(1),
            opened: vec![(10_000_000, 400), (50_000_000, 1_000)],
            returned: vec![(900_000_000, 999), (1_000_000_000, 1_000)],
            totals,
            errors,
            reach: Reach { expected: 100_000, lost: 7 },
            messages,
            held: 1_000,
            slow: 0,
            opening: Duration::from_millis(50),
            elapsed: Duration::from_secs(10),
            storm: Some(Storm { back: Some(Duration::from_secs(1)), caught_up: None }),
            rounds: Vec::new(),
            threads: vec![ThreadShare { busy, waiting, run_ns: 1_000_000_000 }],
            tcp: None,
            own: Some(Memory { before_bytes: 1_000_000, held_bytes: 1_300_000 }),
            server: None,
            server_mapped: None,
        }
    }

    fn report(plan: PushRunPlan, outcome: PushRunOutcome) -> PushReport {
        PushReport::new(plan, "http://h/".into(), "encke load push http://h/".into(), outcome)
    }

    #[test]
    fn the_summary_fits_a_screen_and_rounds_no_loss_away() {
        let text = report(plan(), outcome(0.2, 0.0)).summary();
        assert!(text.lines().count() <= 26, "{} lines:\n{text}", text.lines().count());
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        for said in [
            "1,000 subscribers of 1 channel by sse; 10/s from 1 publisher, 64 B",
            "99,993 of 100,000 due: reach 99.9930 %",
            "7 lost, 3 repeated, 2 out of order",
            "300 B each here",
            "c 50.0 ms (50.0 µs each",
            "back after 1.00 s; some never had",
            "1 connect: timed out",
            "Again: encke load push http://h/",
        ] {
            assert!(text.contains(said), "no `{said}`:\n{text}");
        }
    }

    #[test]
    fn a_cycle_is_told_in_two_lines_a_round() {
        let round =
            Round { connect_ns: 500_000_000, first_ns: 1, spread_ns: 20_000_000, held: 100, received: 99 };
        let outcome = PushRunOutcome { rounds: vec![round; 2], ..outcome(0.2, 0.0) };
        let text = report(PushRunPlan { cycles: Some(2), ..plan() }, outcome).summary();
        assert!(text.starts_with("c,100,0.500000,0.00500000\nr,100,0.020000,0.00020000\nc,100,"), "{text}");
        assert!(text.contains("2 receipts are missing"), "{text}");
    }

    #[test]
    fn the_json_has_every_count_and_the_histograms() {
        let json = report(plan(), outcome(0.2, 0.0)).json();
        assert_eq!((&json["schema"], &json["kind"]), (&1.into(), &"push".into()));
        assert_eq!(json["receipts"]["lost"], 7);
        assert_eq!(json["times"]["first_to_last"]["count"], 100);
        assert!(json["times"]["receipt"]["histogram"].as_str().is_some_and(|text| text.len() > 20));
        assert_eq!(json["memory"]["each_bytes"], 300.0);
        assert_eq!(json["storm"]["caught_up_ns"], serde_json::Value::Null);
    }

    #[test]
    fn a_run_comes_back_from_its_json() {
        let saved = report(plan(), outcome(0.2, 0.0)).saved();
        let json = saved.json();
        let Ok(SavedRun::Push(read)) = SavedRun::read(&json.to_string()) else { panic!("{json:#}") };
        assert_eq!(read.json(), json);
        assert_eq!(read.summary(), saved.summary());
        // Fields that older programs did not write have defaults.
        let mut old = json.clone();
        let object = old.as_object_mut().expect("an object");
        for key in ["began", "began_unix_ns", "environment", "columns"] {
            object.remove(key);
        }
        assert!(matches!(SavedRun::read(&old.to_string()), Ok(SavedRun::Push(_))));
    }

    #[test]
    fn a_page_has_its_plots_and_accounts_and_needs_nothing_else() {
        let mut saved = report(plan(), outcome(0.2, 0.0)).saved();
        saved.url = "http://h/?<script>".into();
        let page = saved.page();
        for said in [
            "By percentile",
            "Fan-out: receivers reached",
            "The first, first to last, and the last",
            "Receipts a second, by when",
            "Accepted subscribers",
            "Reconnected subscribers",
            "reach</th><td>99.9930 %",
            "repeated</th><td>3",
            "What not to trust",
            "connect: timed out",
        ] {
            assert!(page.contains(said), "no `{said}`");
        }
        assert_eq!(page.matches('<').count(), page.matches('>').count(), "what is text is escaped");
        let own = page.replace("http://www.w3.org/2000/svg", "").replace("http://h/", "");
        for from_elsewhere in ["http:", "https:", "<script", "<link", "@import", "url(", "NaN", "inf,"] {
            assert!(!own.contains(from_elsewhere), "{from_elsewhere}");
        }
        // A run without results has a page as well.
        saved.columns.clear();
        saved.times = saved::SavedTimes::default();
        assert!(!saved.page().contains("NaN"));
    }

    #[test]
    fn what_not_to_trust_is_told_with_the_worst_first() {
        let mut saved = report(plan(), outcome(0.2, 0.0)).saved();
        saved.plan.pace.r#loop = "closed".into();
        let explained = saved.explained().text();
        for said in [
            "7 of 100,000 receipts are missing",
            "3 were repeated and 2 out of order",
            "Each publisher waited",
        ] {
            assert!(explained.contains(said), "no `{said}`:\n{explained}");
        }
        saved.verdict.is_verdict = false;
        saved.receipts.lost = 5_000;
        let worst = saved.explained().findings()[0].trust;
        assert_eq!(worst, crate::explain::FigureTrust::Not);
    }

    #[test]
    fn generators_together_have_the_sums_of_their_accounts() {
        let saved = report(plan(), outcome(0.2, 0.0)).saved();
        let runs = [saved.clone(), saved.clone()].map(|run| SavedRun::Push(Box::new(run)));
        let Ok(SavedRun::Push(both)) = SavedRun::merged(runs.to_vec()) else { panic!("two alike") };
        assert_eq!((both.receipts.expected, both.receipts.lost, both.plan.subscribers), (200_000, 14, 2_000));
        assert_eq!(both.receipts.reach, saved.receipts.reach);
        assert_eq!((both.parts.len(), both.elapsed_ns), (2, saved.elapsed_ns));
        assert!((both.rate_per_s - 2.0 * saved.rate_per_s).abs() < 1e-6);
        assert!(both.summary().contains("2 runs together") && both.page().contains("joined from"));
        let other = SavedRun::Requests(Box::new(crate::report::example().saved()));
        assert_eq!(SavedRun::merged(vec![runs[0].clone(), other]), Err(crate::report::Unlike::Kinds));
    }

    #[test]
    fn two_runs_differ_where_their_messages_do_and_are_alike_where_not() {
        let one = report(plan(), outcome(0.2, 0.0)).saved();
        let run = |saved: &SavedPushRun| SavedRun::Push(Box::new(saved.clone()));
        let compared = |other: &SavedPushRun| {
            let names = ["a".to_owned(), "b".to_owned()];
            SavedRun::compared(names, [&run(&one), &run(other)]).expect("two of a kind")
        };
        assert!(!compared(&one).differs(), "{}", compared(&one).summary());
        let slower = SavedPushRun { columns: columns(2), ..one.clone() };
        let text = compared(&slower).summary();
        assert!(text.contains("first 100.0 % more") && text.contains("last 100.0 % more"), "{text}");
    }

    #[test]
    fn conditions_hold_of_reach_receipts_and_errors() {
        let report = report(plan(), outcome(0.2, 0.0));
        for (text, missed) in [
            ("reach=100%", 1),
            ("reach>=99.99%", 0),
            ("p99<21ms,rate>9k", 0),
            // Seven receipts are missing.
            ("p99.99<21ms", 0),
            ("p99.999<21ms,max<21ms", 2),
            ("p50<10ms", 1),
            ("errors<0.05%", 1),
            ("errors<0.1%", 0),
        ] {
            let slo: Slo = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(slo.missed(&report).len(), missed, "{text}: {:?}", slo.missed(&report));
        }
    }

    #[test]
    fn who_was_the_limit_is_told_from_what_was_measured() {
        let mut late = outcome(0.2, 0.0);
        (0..100).for_each(|_| late.totals.lag.record(50_000_000));
        let mut starved = outcome(0.2, 0.3);
        starved.totals.lag.merge(&late.totals.lag);
        let mut queued = late.clone();
        queued.totals.queued = 50;
        let unsent = {
            let mut outcome = outcome(0.2, 0.0);
            outcome.totals.published = 90;
            outcome
        };
        let closed = PushRunPlan { pace: Pace::Closed, ..plan() };
        for (plan, outcome, limit) in [
            (plan(), outcome(0.2, 0.0), Bottleneck::Kept),
            (plan(), outcome(0.97, 0.0), Bottleneck::Generator),
            (plan(), outcome(0.5, 0.5), Bottleneck::Starved),
            (
                plan(),
                PushRunOutcome { elapsed: Duration::from_millis(20), ..outcome(0.2, 0.0) },
                Bottleneck::TooShort,
            ),
            (plan(), late, Bottleneck::Generator),
            (plan(), starved, Bottleneck::Starved),
            (plan(), queued, Bottleneck::Behind),
            (plan(), unsent, Bottleneck::Behind),
            (closed, outcome(0.2, 0.0), Bottleneck::Server),
        ] {
            let verdict = judge(&plan, &outcome);
            assert_eq!(verdict.limit, limit, "{}", verdict.text);
        }
    }

    #[test]
    fn rejected_messages_give_no_verdict_but_the_reason_and_the_remedy() {
        for (status, text, said) in [
            (
                403,
                &b"no right\n"[..],
                "100 of 100 (status 403 \"no right\"); pass a token with the right to publish",
            ),
            (401, b"", "(status 401); pass a token with the right to publish: --token"),
            (
                429,
                b"<html>",
                "(status 429); use a lower --publish-rate, a --token, or a higher push.anonymous_rate",
            ),
            (500, b"", "(status 500)."),
        ] {
            let mut outcome = PushRunOutcome { elapsed: Duration::from_millis(1), ..outcome(0.2, 0.0) };
            outcome.totals.refused = 100;
            (0..100).for_each(|_| outcome.errors.add(RequestPhase::Publish, Cause::Status(status), 5, text));
            let verdict = judge(&plan(), &outcome);
            assert_eq!(verdict.limit, Bottleneck::Unexpected, "{}", verdict.text);
            assert!(verdict.text.contains(said), "no `{said}`: {}", verdict.text);
        }
        let mut silent = outcome(0.2, 0.0);
        silent.totals.refused = 51;
        silent.errors.add(RequestPhase::Publish, Cause::Timeout, 5, b"");
        let verdict = judge(&plan(), &silent);
        assert_eq!(verdict.limit, Bottleneck::Unanswered);
        assert!(verdict.text.contains("51 of 100 (timed out)"), "{}", verdict.text);
    }

    #[test]
    fn a_receiver_that_takes_half_the_time_itself_says_so() {
        // Receipts of 10 µs by 1,000 subscribers take 10 ms: less than half of 30 ms from first to last, but more than half of
        // 15 ms.
        let remarked = |outcome: &PushRunOutcome| {
            remarks(&plan(), outcome, 0.0)
                .iter()
                .any(|remark| remark.contains("Receiving took the generator"))
        };
        let mut quick = outcome(0.2, 0.0);
        assert!(!remarked(&quick));
        quick.messages.spread = Distribution::new();
        quick.messages.spread.record(15_000_000);
        assert!(remarked(&quick));
    }
}
