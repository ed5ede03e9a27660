//! Names the bottleneck of a run: the server, the requested rate, or the generator. In the last case the results describe the
//! generator, not the server.
//!
//! ```text
//!   most responses had an unexpected status or body ───► Unexpected     no verdict about the server
//!   the generator ran out of ports or descriptors ─────► Generator      no verdict about the server
//!   most requests got no response ─────────────────────► Unanswered     no verdict about the server
//!   under half a second ───────────────────────────────► TooShort
//!   others used the generator's processor, or its quota
//!   was exhausted ─────────────────────────────────────► Starved        no verdict about the server
//!   a generator thread was busy all the time ──────────► Generator      no verdict about the server
//!   open loop: sent, and hardly late ──────────────────► Kept
//!   open loop: late, and the generator was crowded ────► Starved, Generator
//!   open loop: requests waited for connections ────────► Behind         the server, or too few connections
//!   open loop: late for another reason ────────────────► Generator
//!   closed loop: others used the server's processor ───► ServerStarved  no verdict about the server
//!   closed loop: a server thread was busy all the time ► Server
//!   closed loop: the generator crowded, server idle ───► Generator      no verdict about the server
//!   closed loop: neither side was busy ────────────────► Connections    more of them may do more
//!   closed loop: otherwise ────────────────────────────► Server         or the connections
//! ```

use std::time::Duration;

use encke_io::host::TcpCounters;
use encke_stats::Distribution;

use crate::pace::Pace;
use crate::plan::{Plan, Stop};
use crate::probe::ProbeResult;
use crate::run::RunOutcome;
use crate::statuses::StatusCounts;
use crate::tally::{Cause, Totals};
use crate::words;

/// The conclusion of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The bottleneck.
    pub limit: Bottleneck,
    /// The bottleneck in a sentence.
    pub text: String,
    /// Remarks that qualify the results.
    pub remarks: Vec<String>,
}

/// The bottleneck of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bottleneck {
    /// Closed loop: the server, or, if it was not watched, the number of connections.
    Server,
    /// Closed loop: the number of connections, since neither side was busy.
    Connections,
    /// Closed loop: other users of the server's processor, or the server's CPU quota.
    ServerStarved,
    /// Open loop: the schedule was kept.
    Kept,
    /// Open loop: requests waited for a free connection.
    Behind,
    /// This generator.
    Generator,
    /// Other users of the generator's processor, or its CPU quota.
    Starved,
    /// Unknown: the run took less than half a second.
    TooShort,
    /// Unknown: most responses were not the expected ones.
    Unexpected,
    /// Unknown: most requests got no response.
    Unanswered,
}

impl Bottleneck {
    /// Whether the results describe the server: neither the generator, nor other programs, nor errors.
    pub const fn is_verdict(self) -> bool {
        !matches!(self, Self::Generator | Self::Starved | Self::ServerStarved) && !self.is_errors()
    }

    /// Whether the results describe errors: most responses were unexpected, or missing.
    pub const fn is_errors(self) -> bool {
        matches!(self, Self::Unexpected | Self::Unanswered)
    }

    /// Name in saved runs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Connections => "connections",
            Self::ServerStarved => "server_starved",
            Self::Kept => "kept",
            Self::Behind => "behind",
            Self::Generator => "generator",
            Self::Starved => "starved",
            Self::TooShort => "too_short",
            Self::Unexpected => "unexpected",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A thread busy for at least this share of the time had no capacity left.
pub(crate) const BUSY: f64 = 0.95;
/// Waiting for a processor for this share of the time affects latencies.
pub(crate) const WAITING: f64 = 0.1;
/// A thread busy for less than this share had capacity left.
const IDLE: f64 = 0.7;
pub(crate) const SHORTEST: Duration = Duration::from_millis(500);
/// In an open loop, a due request waits for a thread that is busy for a share ρ of the time. On average ρ ÷ (1 − ρ) others are
/// ahead of it (M/M/1), so nine at this share. If the server has capacity left, the generator causes such a wait.
const CROWDED: f64 = 0.9;
/// A schedule is kept if this share of it was sent, and 99 of 100 requests were hardly late: see [`hardly_late`].
pub(crate) const SENT: f64 = 0.999;
/// Timer resolution on a machine that does other work: a tick of Linux at its usual 250 Hz. A thread that sleeps until a moment
/// runs 60 µs later if its processor was idle (measured), and otherwise at the running task's tick.
pub(crate) const TICK_NS: u64 = 4_000_000;
/// A lateness below this share of a response time does not affect it; a larger one is reported.
const LATE_PART: f64 = 0.1;
/// If this share of requests waited for a free connection, it is no accident.
const QUEUED: f64 = 0.01;
/// If more than this share of the responses is wrong, or of the requests unanswered, the results describe errors.
pub(crate) const WRONG: f64 = 0.5;
/// Retransmitted segments per request above which the network is considered a factor.
const RETRANSMITS: f64 = 0.001;

impl Verdict {
    /// The verdict on a run of a plan.
    pub fn of(plan: &Plan, outcome: &RunOutcome) -> Self {
        let busy = outcome.threads.iter().map(|thread| thread.busy).fold(0.0, f64::max);
        let waiting = outcome.threads.iter().map(|thread| thread.waiting).fold(0.0, f64::max);
        let occupied = outcome.threads.iter().map(|thread| thread.busy + thread.waiting).fold(0.0, f64::max);
        let used = format!("the generator's busiest thread used {} of a core", words::percent(busy));
        let taken = taken(outcome.throttled);
        let ours = outcome.errors.iter().find(|error| error.cause.is_ours());
        let (limit, text) = if let Some(text) = unexpected(plan, &outcome.totals) {
            (Bottleneck::Unexpected, text)
        } else if let Some(error) = ours {
            let times = words::plural(error.count, "time");
            let help = match error.cause {
                Cause::Ports => {
                    "; keep connections open, use fewer at a time, or use more source addresses (--source)"
                }
                _ => "",
            };
            (
                Bottleneck::Generator,
                format!("The generator was the bottleneck: {}, {times}{help}.", error.cause),
            )
        } else if let Some(text) = unanswered(outcome) {
            (Bottleneck::Unanswered, text)
        } else if outcome.elapsed < SHORTEST {
            (Bottleneck::TooShort, "Too short to determine the bottleneck.".to_owned())
        } else if waiting >= WAITING && (occupied >= BUSY || waiting >= 1.0 - occupied) {
            // The generator lost more time to others than it had left.
            let share = words::percent(waiting);
            (Bottleneck::Starved, format!("The generator was starved: for {share} of the time {taken}."))
        } else if busy >= BUSY {
            (Bottleneck::Generator, format!("The generator was the bottleneck: {used}. {}", more(plan)))
        } else if let Pace::Open(rate, _) = &plan.pace {
            let due = match plan.stop {
                Stop::After(time) => rate.due_within(time).floor(),
                _ => outcome.totals.begun as f64,
            };
            let sent = if due > 0.0 { (outcome.totals.begun as f64 / due).min(1.0) } else { 1.0 };
            let late_ns = outcome.totals.lag.quantile_ns(0.99).unwrap_or(0);
            let late = words::time(late_ns);
            let queued = outcome.totals.queued as f64 / outcome.totals.begun.max(1) as f64;
            if sent >= SENT && hardly_late(&outcome.totals) {
                (
                    Bottleneck::Kept,
                    format!("The schedule was kept (99 of 100 requests within {late}); {used}."),
                )
            } else if waiting >= WAITING && !is_busy(outcome.server.as_ref()) {
                let text = format!(
                    "The schedule was not kept, and the generator was starved: for {} of the time {taken}; {used}.",
                    words::percent(waiting)
                );
                (Bottleneck::Starved, text)
            } else if busy >= CROWDED && !is_busy(outcome.server.as_ref()) {
                let text = format!(
                    "The schedule was not kept, and the generator was the bottleneck: {used}. {}",
                    more(plan)
                );
                (Bottleneck::Generator, text)
            } else if sent < SENT || (queued >= QUEUED && !late_by_itself(&outcome.totals, queued)) {
                let (sent, queued) = (words::percent(sent), words::percent(queued));
                let text = format!(
                    "The schedule was not kept: {sent} of it was sent, and {queued} of that waited for a free connection. {}; {used}.",
                    slower(outcome.server.as_ref())
                );
                (Bottleneck::Behind, text)
            } else {
                let text = format!(
                    "The generator did not keep the schedule: 1 % of requests were sent more than {late} late, although connections were free; {used}, and for {} of the time {taken}.",
                    words::percent(waiting)
                );
                (Bottleneck::Generator, text)
            }
        } else {
            closed(plan, outcome, busy, waiting, &used)
        };
        let mut remarks = remarks(outcome);
        remarks.extend((limit == Bottleneck::Kept).then(|| own_part(&outcome.totals)).flatten());
        if waiting >= WAITING && limit != Bottleneck::Starved {
            let share = words::percent(waiting);
            remarks.push(format!(
                "For {share} of the time the generator could not run, as {taken}: latencies include that."
            ));
        }
        Self { limit, text, remarks }
    }
}

/// Names the responses of a run of which most were wrong: an error is often faster than a page.
fn unexpected(plan: &Plan, totals: &Totals) -> Option<String> {
    if totals.wrong as f64 <= WRONG * totals.finished as f64 {
        return None;
    }
    let is_expected = |status: u16| plan.expected.iter().any(|expected| expected.contains(&status));
    let wrong: StatusCounts = totals.statuses.iter().filter(|(status, _)| !is_expected(*status)).collect();
    let of = |wrong: u64| format!("{} of {}", words::count(wrong), words::count(totals.finished));
    if totals.differing * 2 > totals.wrong {
        let text = format!("{} responses had another body than the expected one.", of(totals.differing));
        return Some(format!("No verdict, because wrong responses were measured: {text}"));
    }
    let seen: Vec<String> = totals.statuses.iter().map(|(status, _)| status.to_string()).collect();
    Some(format!(
        "No verdict, because errors were measured: {} responses had an unexpected status ({}). If that is intended: --expect-status {}.",
        of(wrong.sum()),
        wrong.words(),
        seen.join(",")
    ))
}

/// Names the most frequent error of a run in which most requests got no response. Its percentiles describe a minority.
fn unanswered(outcome: &RunOutcome) -> Option<String> {
    let totals = &outcome.totals;
    let (missing, sent) = (totals.unanswered(), totals.unanswered() + totals.finished);
    if missing as f64 <= WRONG * sent as f64 {
        return None;
    }
    let error = outcome.errors.iter().max_by_key(|error| error.count);
    let cause = error.map_or_else(String::new, |error| format!(" ({}: {})", error.phase, error.cause));
    Some(format!(
        "No verdict, because most requests got no response: {} of {}{cause}. If that is intended: --slo 'errors<=100%'.",
        words::count(missing),
        words::count(sent),
    ))
}

/// Whether the server was watched and one of its threads had no capacity left.
fn is_busy(server: Option<&ProbeResult>) -> bool {
    server.and_then(ProbeResult::busiest).is_some_and(|(ran, _)| ran >= BUSY)
}

/// The verdict on a closed loop in which the generator had capacity left, from the watched server if there is one.
fn closed(plan: &Plan, outcome: &RunOutcome, busy: f64, waiting: f64, used: &str) -> (Bottleneck, String) {
    let server = outcome.server.as_ref();
    let unknown = || {
        // One line of the summary: it is shorter than `used`.
        let busy = words::percent(busy);
        let text = format!(
            "The server was the bottleneck, or the number of connections; busiest generator thread: {busy} of a core."
        );
        (Bottleneck::Server, text)
    };
    let Some((ran, waited)) = server.and_then(ProbeResult::busiest) else { return unknown() };
    let (share, lost) = (words::percent(ran), words::percent(waited));
    if ran + waited >= BUSY && waited >= WAITING {
        let taken = taken(server.and_then(|server| server.throttled).unwrap_or(0.0));
        let text = format!(
            "The server was starved: its busiest thread ran for {share} of the time, and for {lost} {taken}; {used}."
        );
        (Bottleneck::ServerStarved, text)
    } else if ran >= BUSY {
        (
            Bottleneck::Server,
            format!("The server was the bottleneck: its busiest thread used {share} of a core; {used}."),
        )
    } else if busy >= CROWDED && ran < IDLE && waited < WAITING {
        let text = format!(
            "The generator was the bottleneck: {used}, the server's busiest thread {share}. {}",
            more(plan)
        );
        (Bottleneck::Generator, text)
    } else if ran < IDLE && busy < IDLE && waited < WAITING && waiting < WAITING {
        let text = match resent(outcome) {
            Some(segments) => format!(
                "The network was the bottleneck, or the number of connections: {segments} were retransmitted; the server's busiest thread used {share} of a core, {used}."
            ),
            None => format!(
                "The number of connections was the bottleneck: the server's busiest thread used {share} of a core, {used}. A higher -c may increase the rate."
            ),
        };
        (Bottleneck::Connections, text)
    } else {
        unknown()
    }
}

/// Whether 99 of 100 requests of a schedule were hardly late: within the timer resolution, or by a small part of the 99th
/// percentile of response times.
fn hardly_late(totals: &Totals) -> bool {
    let [late, took] = [&totals.lag, &totals.response].map(|held| held.quantile_ns(0.99).unwrap_or(0));
    late <= TICK_NS || late as f64 <= LATE_PART * took as f64
}

/// Whether most late requests had a free connection. `queued` is the share of requests that had none.
fn late_by_itself(totals: &Totals, queued: f64) -> bool {
    queued < 0.5 && totals.lag.quantile_ns(1.0 - 2.0 * queued).is_some_and(|late_ns| late_ns > TICK_NS)
}

/// Advice on how to remove the generator's limit.
fn more(plan: &Plan) -> String {
    format!("More threads (-t {}) may increase the rate.", u32::from(plan.threads) + 1)
}

/// Retransmitted segments of this machine, if there are too many to ignore.
fn resent(outcome: &RunOutcome) -> Option<String> {
    let segments = outcome.tcp?.retransmits;
    let ended = (outcome.totals.finished + outcome.totals.failed).max(1);
    (segments as f64 / ended as f64 >= RETRANSMITS).then(|| words::plural(segments, "segment"))
}

/// Why requests of a schedule waited for connections.
fn slower(server: Option<&ProbeResult>) -> String {
    match server.and_then(ProbeResult::busiest) {
        Some((ran, _)) if ran >= BUSY => {
            let share = words::percent(ran);
            format!("The server was slower than the rate: its busiest thread used {share} of a core")
        }
        Some((ran, _)) if ran < IDLE => {
            let share = words::percent(ran);
            format!(
                "-c is too small, or the server waits for other servers: its busiest thread used {share} of a core"
            )
        }
        _ => "The server was slower than the rate, or -c is too small".to_owned(),
    }
}

/// Why a runnable thread did not run. `throttled` is the share of periods in which the quota of its process was exhausted.
const fn taken(throttled: f64) -> &'static str {
    if throttled >= WAITING { "its CPU quota was used up" } else { "other processes used its processor" }
}

/// A remark if the generator's own lateness is a significant part of the longest responses of a kept schedule.
fn own_part(totals: &Totals) -> Option<String> {
    let p99 = |held: &Distribution| held.quantile_ns(0.99);
    let (late, took, served) = (p99(&totals.lag)?, p99(&totals.response)?, p99(&totals.service)?);
    // The difference also contains waiting for a connection, which the server causes.
    let own = late.min(took.saturating_sub(served));
    (own as f64 > LATE_PART * took as f64).then(|| {
        format!(
            "p99 is {} from when requests were due and {} from their send: most of the difference is the generator's own delay, not the server's.",
            words::time(took),
            words::time(served)
        )
    })
}

fn remarks(outcome: &RunOutcome) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut remark = |text: String| remarks.push(text);
    if let Some(TcpCounters { listen_drops: drops @ 1.., .. }) = outcome.tcp {
        remark(format!(
            "{} to listeners of this machine were dropped because a queue was full; each was delayed by a second or more.",
            words::plural(drops, "connection")
        ));
    }
    if let Some(segments) = resent(outcome) {
        remark(format!("This machine retransmitted {segments}."));
    }
    if outcome.totals.aborted > 0 {
        let aborted = words::plural(outcome.totals.aborted, "request");
        remark(format!("{aborted} had no response at the end of the run: percentiles do not include them."));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use encke_io::OpError;
    use encke_io::host::TcpCounters;

    use super::*;
    use crate::message::{Mix, PreparedRequest, Style};
    use crate::pace::{Arrivals, Rate};
    use crate::run::ThreadShare;
    use crate::tally::{Errors, RequestPhase, Totals};

    fn plan(pace: Pace) -> Plan {
        let message = PreparedRequest::new("GET", "h", "/", &[], None, Style::default()).expect("a request");
        let mix = Mix::new(vec![(message, 1)]).expect("one message");
        Plan { pace, ..Plan::new(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), mix) }
    }

    fn outcome(busy: f64, waiting: f64) -> RunOutcome {
        let totals = Totals { begun: 10_000, finished: 10_000, ..Totals::default() };
        RunOutcome {
            began_unix_ns: 0,
            totals,
            errors: Errors::default(),
            opening: Duration::ZERO,
            elapsed: Duration::from_secs(10),
            threads: vec![ThreadShare { busy, waiting, run_ns: 1 }],
            tcp: None,
            throttled: 0.0,
            server: None,
            targets: Vec::new(),
        }
    }

    fn open() -> Pace {
        Pace::Open(Rate::constant(1_000.0).expect("a rate"), Arrivals::Even)
    }

    #[test]
    fn who_was_the_limit_is_told_from_what_was_measured() {
        let short = RunOutcome { elapsed: Duration::from_millis(20), ..outcome(1.0, 0.0) };
        let mut late = outcome(0.2, 0.0);
        late.totals.lag.record_many(50_000_000, 10_000);
        // Responses take half a second: a tenth of that does not matter. Nor does a lateness of one tick, for any response.
        let mut slow = late.clone();
        slow.totals.response.record_many(550_000_000, 10_000);
        let mut tick = outcome(0.2, 0.0);
        tick.totals.lag.record_many(3_900_000, 10_000);
        let mut queued = late.clone();
        queued.totals.queued = 5_000;
        // A quarter was late, 3 % because no connection was free: the generator stalled.
        let mut stopped = outcome(0.2, 0.0);
        stopped.totals.lag.record_many(10_000, 7_500);
        stopped.totals.lag.record_many(250_000_000, 2_500);
        stopped.totals.queued = 300;
        let crowded = RunOutcome { threads: outcome(0.94, 0.02).threads, ..queued.clone() };
        let mut starved = outcome(0.2, 0.3);
        starved.totals.lag.merge(&late.totals.lag);
        let mut unsent = outcome(0.2, 0.0);
        unsent.totals.begun = 9_000;
        let mut ports = outcome(0.2, 0.0);
        ports.errors.add(RequestPhase::Connect, Cause::Ports, 0, &[]);
        let mut descriptors = outcome(0.2, 0.0);
        descriptors.errors.add(RequestPhase::Connect, Cause::Fault(OpError::Descriptors), 0, &[]);
        let mut refused = outcome(0.2, 0.0);
        refused.errors.add(RequestPhase::Connect, Cause::Fault(OpError::Refused), 0, &[]);
        // A watched server: the busy and the starved share of its busiest thread.
        let watched = |outcome: &RunOutcome, ran: f64, waited: f64| {
            let (busiest_thread, starved_thread) = (Some(ran), Some(waited));
            let server = Some(ProbeResult { busiest_thread, starved_thread, ..ProbeResult::default() });
            RunOutcome { server, ..outcome.clone() }
        };
        let metrics = RunOutcome { server: Some(ProbeResult::default()), ..outcome(0.2, 0.0) };
        let mut backlog = outcome(0.2, 0.0);
        backlog.errors.add(RequestPhase::Connect, Cause::Backlog, 0, &[]);
        let mut memory = outcome(0.2, 0.0);
        memory.errors.add(RequestPhase::Connect, Cause::Fault(OpError::Memory), 0, &[]);
        let half = outcome(0.5, 0.0);
        let mut rejected = RunOutcome { elapsed: Duration::from_millis(20), ..outcome(0.99, 0.0) };
        (rejected.totals.wrong, rejected.totals.statuses) = (10_000, [(403, 10_000)].into_iter().collect());
        let mut half_wrong = outcome(0.5, 0.0);
        half_wrong.totals.wrong = 5_000;
        let missing = |missing: u64, finished: u64| {
            let mut outcome = outcome(0.5, 0.0);
            (outcome.totals.failed, outcome.totals.aborted) = (missing - 1, 1);
            outcome.totals.finished = finished;
            outcome
        };
        for (pace, outcome, limit) in [
            (Pace::Closed, watched(&half, 0.98, 0.01), Bottleneck::Server),
            (Pace::Closed, watched(&half, 0.2, 0.0), Bottleneck::Connections),
            (Pace::Closed, watched(&half, 0.8, 0.0), Bottleneck::Server),
            (Pace::Closed, watched(&half, 0.7, 0.28), Bottleneck::ServerStarved),
            (Pace::Closed, watched(&half, 0.2, 0.2), Bottleneck::Server),
            (Pace::Closed, watched(&outcome(0.97, 0.0), 0.2, 0.0), Bottleneck::Generator),
            (Pace::Closed, watched(&outcome(0.2, 0.3), 0.2, 0.0), Bottleneck::Server),
            (Pace::Closed, watched(&outcome(0.8, 0.0), 0.2, 0.0), Bottleneck::Server),
            (Pace::Closed, metrics, Bottleneck::Server),
            (Pace::Closed, backlog, Bottleneck::Server),
            (Pace::Closed, memory, Bottleneck::Generator),
            (open(), watched(&half, 0.98, 0.0), Bottleneck::Kept),
            (open(), watched(&queued, 0.98, 0.0), Bottleneck::Behind),
            (open(), watched(&queued, 0.2, 0.0), Bottleneck::Behind),
            (Pace::Closed, outcome(0.5, 0.0), Bottleneck::Server),
            (Pace::Closed, outcome(0.97, 0.0), Bottleneck::Generator),
            (Pace::Closed, outcome(0.6, 0.38), Bottleneck::Starved),
            (Pace::Closed, outcome(0.3, 0.3), Bottleneck::Server),
            (Pace::Closed, short, Bottleneck::TooShort),
            (Pace::Closed, ports, Bottleneck::Generator),
            (Pace::Closed, descriptors, Bottleneck::Generator),
            (Pace::Closed, refused, Bottleneck::Server),
            (open(), outcome(0.5, 0.0), Bottleneck::Kept),
            (open(), outcome(0.99, 0.0), Bottleneck::Generator),
            (open(), queued, Bottleneck::Behind),
            (open(), late, Bottleneck::Generator),
            (open(), slow, Bottleneck::Kept),
            (open(), stopped, Bottleneck::Generator),
            (open(), tick, Bottleneck::Kept),
            (open(), watched(&crowded, 0.3, 0.0), Bottleneck::Generator),
            (open(), watched(&crowded, 0.98, 0.0), Bottleneck::Behind),
            (Pace::Closed, watched(&outcome(0.92, 0.0), 0.3, 0.0), Bottleneck::Generator),
            (Pace::Closed, outcome(0.92, 0.0), Bottleneck::Server),
            (open(), starved, Bottleneck::Starved),
            (open(), unsent, Bottleneck::Behind),
            (Pace::Closed, rejected, Bottleneck::Unexpected),
            (Pace::Closed, half_wrong, Bottleneck::Server),
            (Pace::Closed, missing(5_000, 5_000), Bottleneck::Server),
            (Pace::Closed, missing(5_001, 4_999), Bottleneck::Unanswered),
            (open(), missing(10_000, 0), Bottleneck::Unanswered),
        ] {
            let verdict = Verdict::of(&plan(pace), &outcome);
            assert_eq!(verdict.limit, limit, "{}", verdict.text);
            assert!(verdict.text.ends_with('.') && !verdict.limit.name().is_empty(), "{}", verdict.text);
        }
    }

    #[test]
    fn a_schedule_that_was_not_kept_names_whose_doing_that_was_if_the_server_was_watched() {
        let mut queued = outcome(0.2, 0.0);
        (0..10_000).for_each(|_| queued.totals.lag.record(50_000_000));
        queued.totals.queued = 5_000;
        for (ran, said) in [
            (Some(0.98), "slower than the rate: its busiest thread used 98.0 %"),
            (Some(0.8), "slower than the rate, or -c is too small"),
            (Some(0.1), "-c is too small, or the server waits for other servers"),
            (None, "slower than the rate, or -c is too small"),
        ] {
            let watched = ProbeResult {
                busiest_thread: ran,
                starved_thread: ran.map(|_| 0.0),
                ..ProbeResult::default()
            };
            let verdict = Verdict::of(&plan(open()), &RunOutcome { server: Some(watched), ..queued.clone() });
            assert!(verdict.limit == Bottleneck::Behind && verdict.text.contains(said), "{}", verdict.text);
        }
    }

    #[test]
    fn of_a_schedule_that_was_kept_it_is_told_what_of_p99_is_lateness() {
        for (late_ns, service_ns, response_ns, told) in [
            (1_200_000, 400_000, 1_500_000, true),
            (60_000, 1_400_000, 1_500_000, false),
            // Both contain the same wait: the long responses had a long service time.
            (1_200_000, 1_450_000, 1_500_000, false),
        ] {
            let mut outcome = outcome(0.2, 0.0);
            outcome.totals.lag.record_many(late_ns, 10_000);
            outcome.totals.service.record_many(service_ns, 10_000);
            outcome.totals.response.record_many(response_ns, 10_000);
            let verdict = Verdict::of(&plan(open()), &outcome);
            let remarked = verdict.remarks.iter().any(|remark| remark.contains("the generator's own delay"));
            assert_eq!((verdict.limit, remarked), (Bottleneck::Kept, told), "{:?}", verdict.remarks);
        }
    }

    #[test]
    fn mostly_unexpected_responses_are_named_and_give_no_verdict() {
        let verdict = |statuses: &[(u16, u64)], wrong, differing| {
            let mut outcome = outcome(0.2, 0.0);
            outcome.totals.statuses = statuses.iter().copied().collect();
            (outcome.totals.wrong, outcome.totals.differing) = (wrong, differing);
            Verdict::of(&plan(Pace::Closed), &outcome)
        };
        let mixed = verdict(&[(200, 1_000), (403, 8_000), (404, 1_000)], 9_000, 0);
        assert!(!mixed.limit.is_verdict());
        for said in ["9,000 of 10,000", "403 88.9 %, 404 11.1 %", "--expect-status 200,403,404."] {
            assert!(mixed.text.contains(said), "no `{said}`: {}", mixed.text);
        }
        let other = verdict(&[(200, 10_000)], 10_000, 10_000);
        assert!(
            other.limit == Bottleneck::Unexpected && other.text.contains("another body"),
            "{}",
            other.text
        );
        assert_eq!(verdict(&[(200, 5_000), (404, 5_000)], 5_000, 0).limit, Bottleneck::Server);
    }

    #[test]
    fn mostly_missing_responses_are_counted_with_their_cause() {
        let mut silent = RunOutcome { elapsed: Duration::from_millis(20), ..outcome(0.2, 0.0) };
        (silent.totals.finished, silent.totals.failed, silent.totals.aborted) = (10, 985, 5);
        silent.errors.add(RequestPhase::FirstByte, Cause::Timeout, 0, &[]);
        let verdict = Verdict::of(&plan(Pace::Closed), &silent);
        assert!(!verdict.limit.is_verdict());
        for said in ["990 of 1,000 (first byte: timed out)", "--slo 'errors<=100%'"] {
            assert!(verdict.text.contains(said), "no `{said}`: {}", verdict.text);
        }
    }

    #[test]
    fn a_quota_is_told_from_others_who_had_the_processor() {
        let mut ours = outcome(0.2, 0.78);
        ours.throttled = 0.78;
        let (busiest_thread, starved_thread, throttled) = (Some(0.2), Some(0.79), Some(0.79));
        let server = ProbeResult { busiest_thread, starved_thread, throttled, ..ProbeResult::default() };
        let theirs = RunOutcome { server: Some(server), ..outcome(0.5, 0.0) };
        for (outcome, limit) in [(ours, Bottleneck::Starved), (theirs, Bottleneck::ServerStarved)] {
            let verdict = Verdict::of(&plan(Pace::Closed), &outcome);
            assert!(
                verdict.limit == limit && verdict.text.contains("its CPU quota was used up"),
                "{}",
                verdict.text
            );
        }
    }

    #[test]
    fn what_disturbs_is_remarked() {
        let mut outcome = outcome(0.3, 0.2);
        outcome.tcp = Some(TcpCounters { listen_drops: 3, retransmits: 500 });
        outcome.totals.aborted = 1;
        let server =
            ProbeResult { busiest_thread: Some(0.1), starved_thread: Some(0.0), ..ProbeResult::default() };
        let idle = RunOutcome { server: Some(server), threads: Vec::new(), ..outcome.clone() };
        let network = Verdict::of(&plan(Pace::Closed), &idle);
        assert!(
            network.limit == Bottleneck::Connections && network.text.contains("The network"),
            "{}",
            network.text
        );
        let verdict = Verdict::of(&plan(Pace::Closed), &outcome);
        assert_eq!(verdict.limit, Bottleneck::Server);
        for said in ["20.0 %", "3 connections", "500 segments", "1 request had no response"] {
            let found = verdict.remarks.iter().any(|remark| remark.contains(said));
            assert!(found, "{said}: {:?}", verdict.remarks);
        }
    }
}
