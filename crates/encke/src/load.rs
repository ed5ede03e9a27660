//! `encke load`: builds a plan from flags, runs it, and reports the results on one screen or as JSON.
//!
//! ```text
//!   flags ─► Plan ─► Run ── progress: screen or lines ──► Report ─► summary or JSON ─► exit status
//!                     ▲
//!                     └── ^C, TERM, HUP, or q on the screen: start no more requests, then report; ^C again: exit now
//! ```
//! Exit status: 0 success · 1 nothing could be measured · 2 usage · 3 `--slo` was missed · 4 no verdict, because the generator
//! was the bottleneck, or most responses were unexpected or missing · 130 after ^C, TERM or HUP.

mod again;
mod compare;
mod foreign;
mod imitate;
mod progress;
mod push;
mod rounds;
mod saved;
#[cfg(feature = "screen")]
mod screen;
mod watching;

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use encke_assembly::settings::{OrAuto, Period};
use encke_io::Backend;
use encke_io::host::{self, Signal, Signals};
use encke_io::lock;
use encke_io::socket::{self, Address};
use encke_load::find::{Search, TrialResult};
use encke_load::list::{self, LineTarget, Log};
use encke_load::message::{MESSAGES_MAX, MessageError};
use encke_load::plan::WarmUp;
use encke_load::run::Halt;
use encke_load::slo::Figures;
use encke_load::verdict::Bottleneck;
use encke_load::{
    Expected, InputError, Mix, Pace, Plan, PreparedRequest, Protocol, Rate, Report, RunHandle, Series, Slo,
    Sources, Stop, Style, Target, Url, Verdict, words,
};
use encke_session::tls::{ClientSessions, Sessions};
use serde_json::{Value, json};

use crate::arguments::{Layout, LoadArgs, LoadCommand, Secrecy, Switch, TrafficArgs, whole_number};
use crate::client::TrustSettings;
use crate::error::{ArgumentError, CommandError, CommandResult, INTERRUPTED};
use crate::output::{check_files, note, print_result};

use again::command;
pub(crate) use again::url as redacted_url;
pub(crate) use foreign::{FOREIGN, Foreign};
pub(crate) use imitate::undress;
use progress::{ProgressView, ViewAction, ViewMode};
pub(crate) use push::LoadPushArgs;
pub(crate) use watching::Watching;

/// Time between two samples of a run.
const LOOK: Duration = Duration::from_secs(1);
/// Samples per line of progress if standard error is not a terminal.
const LOOKS_PER_LINE: usize = 10;
/// Connect timeout per address, when the server has several, before the run.
const PROBE: Duration = Duration::from_secs(2);
/// Maximum size of a request body, which is held in memory.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Exit status when the results describe the generator or errors, not the server.
const NO_VERDICT: u8 = 4;
/// Exit status when `--slo` was missed.
const MISSED: u8 = 3;

pub(crate) fn run(arguments: &LoadArgs) -> CommandResult {
    // Signals are blocked before the first thread starts, so that only the signal thread receives them.
    let signals = Signals::block();
    if arguments.dress.is_some() {
        return Err(CommandError::usage("--as TOOL must come first: encke load --as ab -n 1000 URL"));
    }
    match &arguments.command {
        None => {}
        Some(LoadCommand::Push(push)) => return push::run(push, signals),
        Some(LoadCommand::Compare(compare)) => return compare::run(compare, signals),
        Some(LoadCommand::Merge(merge)) => return saved::merge(merge),
        Some(LoadCommand::Explain(explain)) => return saved::explain(explain),
        Some(LoadCommand::Report(run)) => return saved::report(run),
    }
    if arguments.find_max.is_some() && (arguments.save.is_some() || arguments.report.is_some()) {
        let flag = if arguments.save.is_some() { "--save" } else { "--report" };
        let text = format!(
            "--find-max cannot be combined with {flag}, which is for one run: --json prints the reports of all trials"
        );
        return Err(CommandError::usage(text));
    }
    let traffic = &arguments.traffic;
    let inputs = [&traffic.list, &traffic.from_log].map(Option::as_deref);
    let inputs: Vec<&Path> = inputs.into_iter().flatten().collect();
    check_files(&[("--save", arguments.save.as_ref()), ("--report", arguments.report.as_ref())], &inputs)?;
    let timed = arguments.duration.map(|period| Stop::After(period.duration()));
    let counted = arguments.requests.map(|count| Stop::Count(count.get()));
    let plan =
        Plan { warm_up: arguments.warm_up, ..plan(&arguments.urls, &arguments.traffic, counted.or(timed))? };
    let interrupts = Interrupts::watch(signals)?;
    if let Some(slo) = &arguments.find_max {
        return find_max(&plan, slo, arguments, &interrupts);
    }
    let said = counted.or(timed).or_else(|| duration_of_rate(&plan)).is_some();
    if !said && arguments.traffic.from_log.is_none() {
        note("running for 10 s by default; change it with -n COUNT or -d TIME");
    }
    let shown = match (arguments.json, arguments.plain) {
        (true, _) => ViewMode::Silent,
        (false, true) => ViewMode::Plain,
        (false, false) => ViewMode::Live,
    };
    let report = measure(plan, &arguments.urls, arguments.watch.as_ref(), shown, &interrupts)?;

    nothing_measured(&report)?;
    if let Some(path) = &arguments.report {
        saved::write(path, &report.saved().page())?;
    }
    if let Some(path) = &arguments.save {
        saved::write(path, &format!("{:#}\n", report.json()))?;
    }
    let text = match arguments.layout {
        _ if arguments.json => format!("{:#}\n", report.json()),
        Layout::Own => report.summary(),
        Layout::Ab => report.ab(),
        Layout::Htstress => report.htstress(),
    };
    print_result(&text)?;
    let is_told = !arguments.json && arguments.layout == Layout::Own;
    Ok(conclude(&report, &report.verdict, &arguments.slo, is_told, &interrupts))
}

/// Names the missed conditions of a run, and its errors if the report does not tell them. Returns the exit status.
fn conclude(
    figures: &impl Figures,
    verdict: &Verdict,
    slos: &[Slo],
    is_told: bool,
    interrupts: &Interrupts,
) -> ExitCode {
    let missed: Vec<_> = slos.iter().flat_map(|slo| slo.missed(figures)).collect();
    for condition in &missed {
        let _nobody_listens = writeln!(io::stderr(), "{condition}");
    }
    let errors = verdict.limit.is_errors();
    if errors && !is_told {
        tell(&verdict.text);
    }
    // Unexpected responses are admitted by `--expect-status`; missing ones by the share that a condition admits.
    let admitted = verdict.limit == Bottleneck::Unanswered && slos.iter().any(Slo::limits_errors);
    ExitCode::from(match (interrupts.seen(), verdict.limit.is_verdict(), missed.is_empty()) {
        (true, _, _) => INTERRUPTED,
        // Errors are the server's, so a missed condition is missed; but errors cannot meet one, unless it is about them.
        (_, _, false) if errors => MISSED,
        // A condition that holds even though the generator was the bottleneck holds.
        (_, _, true) if !slos.is_empty() && (!errors || admitted) => 0,
        (_, false, _) => NO_VERDICT,
        (_, true, false) => MISSED,
        (_, true, true) => 0,
    })
}

/// Runs a plan and shows its progress.
fn measure(
    plan: Plan,
    urls: &[Weighted],
    watching: Option<&Watching>,
    shown: ViewMode,
    interrupts: &Interrupts,
) -> Result<Report, CommandError> {
    let mut watch = watching.map(Watching::begin).transpose()?;
    let mut look_at_server = || {
        if let Some((watching, watch)) = watching.zip(watch.as_mut()) {
            watching.again(watch);
        }
    };
    let urls: Vec<String> = urls.iter().map(|weighted| again::url(&weighted.url.to_string())).collect();
    let mut run = RunHandle::start(plan.clone())?;
    interrupts.end(run.halter());
    let mut view = ProgressView::new(shown, &plan, &plan.to_string(), &urls);
    let mut series = Series::default();
    loop {
        let (now_ns, totals) = run.totals();
        let before = series.last_ns();
        if view.look(now_ns, totals, &mut series) == ViewAction::End {
            interrupts.interrupt();
        }
        // A screen samples more often than a server should be queried. The server was already queried when the run began.
        if before.is_some() && series.last_ns() != before {
            look_at_server();
        }
        if run.wait(view.pause()) {
            break;
        }
    }
    look_at_server();
    let (now_ns, totals) = run.totals();
    series.look(now_ns, totals);
    view.leave();
    let mut outcome = run.outcome()?;
    let answers = outcome.totals.finished + outcome.totals.warm_up;
    outcome.server = watch.map(|watch| watch.watched(answers));
    let stop = interrupts.stop(plan.stop);
    Ok(Report::new(Plan { stop, ..plan }, urls, command(), outcome, series))
}

/// Ends runs on signals. The first ^C, TERM or HUP ends the current run, which still reports; a second ^C or TERM ends the
/// process. A second HUP does not: when a terminal disappears, its shell and the system send one each.
struct Interrupts {
    seen: Arc<AtomicBool>,
    run: Arc<Mutex<Option<Halt>>>,
}

impl Interrupts {
    fn watch(signals: Signals) -> Result<Self, CommandError> {
        let (seen, run) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None::<Halt>)));
        let watched = Self { seen: Arc::clone(&seen), run: Arc::clone(&run) };
        let watch = move || {
            while !matches!(signals.wait(), Signal::Interrupt | Signal::Terminate | Signal::HangUp) {}
            seen.store(true, Ordering::Relaxed);
            if let Some(halt) = &*lock(&run) {
                halt.halt();
            }
            while !matches!(signals.wait(), Signal::Interrupt | Signal::Terminate) {}
            ProgressView::abandon();
            host::exit_now(INTERRUPTED.into());
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(watch)
            .map_err(|error| CommandError::system(error).context("cannot start the signal thread"))?;
        Ok(watched)
    }

    /// Registers the current run as the one that the first signal ends.
    fn end(&self, halt: Halt) {
        let mut run = lock(&self.run);
        // A signal may have arrived before a run was registered.
        if self.seen() {
            halt.halt();
        }
        *run = Some(halt);
    }

    /// Ends the run as ^C does; for a screen that handles keys itself.
    fn interrupt(&self) {
        self.seen.store(true, Ordering::Relaxed);
        if let Some(halt) = &*lock(&self.run) {
            halt.halt();
        }
    }

    /// Returns the stop condition for the report. After an interrupt it is `Stop::Told`, so that the rest of the plan does not
    /// count as missing.
    fn stop(&self, planned: Stop) -> Stop {
        if self.seen() { Stop::Told } else { planned }
    }

    fn seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }
}

// ---- the highest rate ----

/// Duration of the closed-loop run whose rate is the start of the search.
const SOUNDING: Duration = Duration::from_secs(2);
/// Default duration of a trial at one rate.
const TRIAL: Duration = Duration::from_secs(5);

/// Searches for the highest rate at which a condition holds.
fn find_max(plan: &Plan, slo: &Slo, arguments: &LoadArgs, interrupts: &Interrupts) -> CommandResult {
    let trial = arguments.duration.map_or(TRIAL, Period::duration);
    let shown = if arguments.json { ViewMode::Silent } else { ViewMode::Plain };
    let closed = Plan { pace: Pace::Closed, stop: Stop::After(SOUNDING), ..plan.clone() };
    let sounding = measure(closed, &arguments.urls, arguments.watch.as_ref(), shown, interrupts)?;
    nothing_measured(&sounding)?;
    if sounding.verdict.limit.is_errors() {
        let text = &sounding.verdict.text;
        let told = json!({ "rate_per_s": null, "is_verdict": false, "text": text, "trials": [] });
        return found_max(&told, arguments.json, NO_VERDICT);
    }
    tell(&format!("closed loop: {} per second; the search begins there", words::number(sounding.rate())));
    let mut search = Search::new(sounding.rate());
    let mut trials = Vec::new();
    while let Some(rate) = search.next().filter(|_| !interrupts.seen()) {
        let constant =
            Rate::constant(rate).ok_or_else(|| CommandError::system("the rate is out of range"))?;
        let pace = Pace::Open(constant, arguments.traffic.arrivals.into());
        let open = Plan { pace, stop: Stop::After(trial), drain: trial, ..plan.clone() };
        let report = measure(open, &arguments.urls, arguments.watch.as_ref(), shown, interrupts)?;
        if interrupts.seen() {
            break;
        }
        let result = TrialResult::of(slo, &report);
        search.tell(rate, &result);
        let [p50, p99] = [0.5, 0.99].map(|share| {
            report.outcome.totals.latency().quantile_ns(share).map_or_else(|| "–".into(), words::time)
        });
        let (word, why) = match &result {
            TrialResult::Held => ("held", String::new()),
            TrialResult::Missed(why) => ("did not hold", why.iter().map(|why| format!("; {why}")).collect()),
            TrialResult::Limited(verdict) => ("did not hold", format!("\n{:>14} {verdict}", "")),
        };
        tell(&format!("{:>12}/s {word}: p50 {p50}, p99 {p99}{why}", words::number(rate)));
        let held = result.held();
        trials.push(json!({ "rate_per_s": rate, "held": held, "report": report.json() }));
    }
    let limited = search.generator_limit().is_some();
    let interrupted = if interrupts.seen() { "\nThe search was interrupted." } else { "" };
    let told = json!({
        "rate_per_s": search.found(),
        "is_verdict": !limited && !interrupts.seen(),
        "text": search.words() + interrupted,
        "trials": trials,
    });
    let status = match search.found() {
        _ if interrupts.seen() => INTERRUPTED,
        _ if limited => NO_VERDICT,
        None => MISSED,
        Some(_) => 0,
    };
    found_max(&told, arguments.json, status)
}

/// Prints the result of a search.
fn found_max(told: &Value, in_json: bool, status: u8) -> CommandResult {
    if in_json {
        print_result(&format!("{:#}\n", json!({ "schema": 1, "find_max": told })))?;
    } else {
        print_result(&format!("{}\n", told["text"].as_str().unwrap_or_default()))?;
    }
    Ok(ExitCode::from(status))
}

/// Prints a line of progress to standard error. The search continues without a reader: its result goes to standard output.
fn tell(line: &str) {
    let _unread = writeln!(io::stderr(), "{line}");
}

/// Returns an error if no request was answered: such a run has no result but its first error.
fn nothing_measured(report: &Report) -> Result<(), CommandError> {
    let outcome = &report.outcome;
    let totals = &outcome.totals;
    let met = if report.plan.tls.is_some() { totals.handshakes } else { totals.connected };
    let nothing = totals.finished == 0 && totals.warm_up == 0 && met == 0;
    match outcome.errors.iter().next() {
        Some(error) if nothing => {
            let text = format!("{} ({})", error.cause, error.phase);
            Err(CommandError::server(text).context(&report.plan.server))
        }
        _ => Ok(()),
    }
}

// ---- flags into a plan ----

/// A URL and its weight among the requests.
#[derive(Clone, Debug)]
pub(crate) struct Weighted {
    weight: u32,
    url: Url,
}

impl std::str::FromStr for Weighted {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let (weight, url) = list::weight(text)?;
        Ok(Self { weight, url: url.parse()? })
    }
}

/// Parses a number of threads. Rejects a duration, which other tools take with `-t`.
pub(crate) fn threads(text: &str) -> Result<u16, ArgumentError> {
    match text.parse() {
        Ok(0) | Err(_) if text.ends_with(['s', 'm', 'h']) => Err(ArgumentError::ThreadsTime(text.to_owned())),
        Ok(0) | Err(_) => Err(ArgumentError::Threads),
        Ok(number) => Ok(number),
    }
}

/// Parses a duration. Rejects a body, which oha takes with `-d`.
pub(crate) fn duration(text: &str) -> Result<Period, ArgumentError> {
    text.parse().map_err(ArgumentError::Duration)
}

/// Expected statuses, as ranges. A separate type, because clap treats a `Vec` as one value per flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Statuses(Vec<RangeInclusive<u16>>);

/// Parses `200`, `2xx` or `200-299`, joined by commas.
pub(crate) fn statuses(text: &str) -> Result<Statuses, ArgumentError> {
    let wrong = || ArgumentError::Statuses(text.to_owned());
    let status = |text: &str| text.parse::<u16>().ok().filter(|status| (100..=999).contains(status));
    let one = |part: &str| {
        if let Some((first, last)) = part.split_once('-') {
            return Some(status(first)?..=status(last)?).filter(|range| !range.is_empty());
        }
        if let Some(class) = part.strip_suffix("xx") {
            let class = class.parse::<u16>().ok().filter(|class| (1..=9).contains(class))?;
            return Some(class * 100..=class * 100 + 99);
        }
        status(part).map(|status| status..=status)
    };
    text.split(',').map(|part| one(part.trim()).ok_or_else(wrong)).collect::<Result<_, _>>().map(Statuses)
}

/// Parses a warm-up: a duration or a number of requests.
pub(crate) fn warm_up(text: &str) -> Result<WarmUp, ArgumentError> {
    match whole_number(text) {
        Some(count) => Ok(WarmUp::Count(count)),
        None => match text.parse::<Period>() {
            Ok(period) => Ok(WarmUp::For(period.duration())),
            Err(error) => Err(ArgumentError::WarmUp(error)),
        },
    }
}

fn plan(urls: &[Weighted], traffic: &TrafficArgs, stop: Option<Stop>) -> Result<Plan, CommandError> {
    let limit = traffic.per_conn.map(|limit| u64::from(limit.get()));
    let requests_per_connection = if traffic.no_keepalive { Some(1) } else { limit };
    let workload = Workload::of(urls, traffic)?;
    let pace = match workload.rate.as_ref().or(traffic.rate.as_ref()) {
        None => Pace::Closed,
        Some(rate) => Pace::Open(rate.clone(), traffic.arrivals.into()),
    };
    let (protocol, pipeline) = match (traffic.http2, traffic.streams) {
        (true, streams) => (Protocol::Http2, streams.unwrap_or(1)),
        (false, None) => (Protocol::Http1, traffic.pipeline),
        (false, Some(streams)) => {
            let text = format!(
                "--streams requires HTTP/2: use --http2 --streams {streams}, or --pipeline for HTTP/1"
            );
            return Err(CommandError::usage(text));
        }
    };
    if protocol == Protocol::Http2 {
        if traffic.pipeline > 1 {
            let text = format!("--pipeline requires HTTP/1; use --streams {} for HTTP/2", traffic.pipeline);
            return Err(CommandError::usage(text));
        }
        if !workload.aims.iter().all(|aim| aim.mix.fits_http2()) {
            return Err(CommandError::usage(
                "HTTP/2 cannot carry these requests: a method, host or path has invalid characters",
            ));
        }
    }
    if traffic.pipeline > 1 && pace != Pace::Closed {
        let text = "--pipeline cannot be combined with a rate: requests start when they are due, not when a \
                    connection is free";
        return Err(CommandError::usage(text));
    }
    let backend = match traffic.backend {
        Some(OrAuto::Set(backend)) => backend,
        Some(OrAuto::Auto) | None => {
            // Only responses to pipelined requests can arrive in batches.
            Backend::auto_client(traffic.pipeline > 1).0
        }
    };
    let mut targets = Vec::new();
    for WeightedTarget { url, mix, weight } in workload.aims {
        let server = match &traffic.unix {
            Some(path) => Address::Unix(path.clone()),
            None => Address::from(server(&url)?),
        };
        let tls = tls(&url, &traffic.secrecy, protocol)?;
        targets.push(Target { name: url.origin(), server, tls, mix, weight });
    }
    let Some(first) = targets.first().cloned() else { return Err(CommandError::usage("a URL is required")) };
    if targets.len() > 1 && traffic.unix.is_some() {
        return Err(CommandError::usage("--unix specifies one server, but the URLs are of several"));
    }
    for target in &targets {
        sources(&target.server, &traffic.source)?;
    }
    let sources = sources(&first.server, &traffic.source)?;
    if targets.len() == 1 {
        targets.clear();
    }
    let base = Plan { tls: first.tls, targets, ..Plan::new(first.server, first.mix) };
    let mut plan = Plan {
        connections: traffic.connections.get(),
        threads: traffic.threads,
        protocol,
        pipeline,
        requests_per_connection,
        timeout: traffic.timeout.duration(),
        drain: traffic.timeout.duration(),
        sources,
        body: traffic.expect_body.as_deref().map(expected_body).transpose()?,
        pace,
        backend,
        seed: traffic.seed,
        ..base
    };
    let once = workload.count.map(Stop::Count);
    plan.stop = stop.or_else(|| duration_of_rate(&plan)).or(once).unwrap_or(plan.stop);
    if let Some(Statuses(expected)) = &traffic.expect_status {
        plan.expected = expected.clone();
    }
    if let Stop::Count(count) = plan.stop {
        plan.connections = plan.connections.min(u32::try_from(count).unwrap_or(u32::MAX));
    }
    let servers = plan.targets.len().max(1) as u64;
    if u64::from(plan.threads) * servers > u64::from(plan.connections) {
        let text = match servers {
            1 => format!("fewer connections than {} threads", plan.threads),
            _ => {
                format!("fewer connections than {} threads × {servers} servers", plan.threads)
            }
        };
        return Err(CommandError::usage(text));
    }
    Ok(plan.placed())
}

/// Returns the source addresses of connections, after a check that the system has each of them.
fn sources(server: &Address, given: &[Sources]) -> Result<Vec<IpAddr>, CommandError> {
    let sources: Vec<IpAddr> = given.iter().flat_map(|Sources(sources)| sources.iter().copied()).collect();
    let Address::Inet(server) = server else { return Ok(sources) };
    for source in &sources {
        if source.is_ipv4() != server.is_ipv4() {
            return Err(CommandError::usage(format!("cannot reach {server} from this address"))
                .context(format_args!("--source {source}")));
        }
        socket::unconnected(server, Some(SocketAddr::new(*source, 0)))
            .map_err(|error| CommandError::system(error).context(format_args!("--source {source}")))?;
    }
    Ok(sources)
}

/// Returns the TLS sessions for a URL, or `None` for `http`.
fn tls(url: &Url, secrecy: &Secrecy, protocol: Protocol) -> Result<Option<Arc<dyn Sessions>>, CommandError> {
    if !url.is_secure() {
        return Ok(None);
    }
    let trust_settings = TrustSettings::new(secrecy.cacert.clone(), secrecy.insecure);
    let name = secrecy.sni.as_deref().unwrap_or(url.host()).to_owned();
    let mut trust = trust_settings.trust().map_err(CommandError::system)?.clone();
    if secrecy.tls_resume == Switch::Off {
        trust = trust.forgetting();
    }
    if protocol == Protocol::Http2 {
        trust = trust.for_http2();
    }
    let sessions = ClientSessions::new(trust, name);
    // An invalid server name is reported before the first connection.
    sessions.begin().map_err(CommandError::usage)?;
    Ok(Some(Arc::new(sessions)))
}

/// Returns the duration of a rate with ramps or steps, which ends by itself.
fn duration_of_rate(plan: &Plan) -> Option<Stop> {
    match &plan.pace {
        Pace::Open(rate, _) => rate.duration().map(Stop::After),
        Pace::Closed => None,
    }
}

/// The requests of a run, by server, from the command line or a file.
struct Workload {
    aims: Vec<WeightedTarget>,
    /// For a log as the source: its number of requests, and their rate.
    count: Option<u64>,
    rate: Option<Rate>,
}

/// A server, its requests, and its weight relative to the other servers.
struct WeightedTarget {
    url: Url,
    mix: Mix,
    weight: u64,
}

impl Workload {
    fn of(urls: &[Weighted], traffic: &TrafficArgs) -> Result<Self, CommandError> {
        let defaults = RequestDefaults::of(traffic)?;
        let [Weighted { url: server, .. }, ..] = urls else {
            return Err(CommandError::usage("a URL is required"));
        };
        let listed = traffic.list.as_ref().or(traffic.from_log.as_ref());
        if let Some(file) = listed.filter(|_| urls.len() > 1) {
            let text = format!("{} lists the requests; specify one URL, that of the server", file.display());
            return Err(CommandError::usage(text));
        }
        if let Some(path) = &traffic.list {
            return Ok(Self { aims: defaults.listed(server, path)?, count: None, rate: None });
        }
        if let Some(path) = &traffic.from_log {
            return defaults.logged(server, path, traffic.replay);
        }
        let messages = urls.iter().map(|Weighted { weight, url }| {
            defaults.to(None, url, url.target(), false).map(|message| (url.clone(), message, *weight))
        });
        let messages = messages.collect::<Result<Vec<_>, _>>().map_err(CommandError::usage)?;
        let aims = WeightedTarget::of(messages).ok_or_else(|| CommandError::usage("too many URLs"))?;
        Ok(Self { aims, count: None, rate: None })
    }
}

impl WeightedTarget {
    /// Groups requests by the server of their URL. Returns `None` if there are too many.
    fn of(messages: Vec<(Url, PreparedRequest, u32)>) -> Option<Vec<Self>> {
        let mut servers: Vec<(Url, Vec<(PreparedRequest, u32)>)> = Vec::new();
        for (url, message, weight) in messages {
            match servers.iter_mut().find(|(server, _)| server.same_server(&url)) {
                Some((_, messages)) => messages.push((message, weight)),
                None => servers.push((url, vec![(message, weight)])),
            }
        }
        let aims = servers.into_iter().map(|(url, messages)| {
            let weight = messages.iter().map(|(_, weight)| u64::from(*weight)).sum();
            Some(Self { url, mix: Mix::new(messages)?, weight })
        });
        aims.collect()
    }
}

/// The properties that all requests of a run share.
struct RequestDefaults<'a> {
    method: Option<&'a str>,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    style: Style,
}

impl<'a> RequestDefaults<'a> {
    fn of(traffic: &'a TrafficArgs) -> Result<Self, CommandError> {
        let body = traffic.body.as_deref().map(body).transpose()?;
        let fields = traffic.header.iter().map(|field| match field.split_once(':') {
            Some((name, value)) => Ok((name.to_owned(), value.trim().to_owned())),
            None => {
                Err(CommandError::usage(format!("invalid header field `{field}`: expected 'Name: value'")))
            }
        });
        let fields = fields.collect::<Result<_, _>>()?;
        let style = Style { http10: traffic.http10, closing: traffic.no_keepalive, literal: false };
        Ok(Self { method: traffic.method.as_deref(), fields, body, style })
    }

    /// Builds the request for a target of a server. Requests listed as GET or HEAD have no body.
    fn to(
        &self,
        method: Option<&str>,
        server: &Url,
        target: &str,
        literal: bool,
    ) -> Result<PreparedRequest, MessageError> {
        let body = self.body.as_deref().filter(|_| !matches!(method, Some("GET" | "HEAD")));
        let usual = if body.is_some() { "POST" } else { "GET" };
        let method = method.or(self.method).unwrap_or(usual);
        let style = Style { literal, ..self.style };
        PreparedRequest::new(method, &server.authority(), target, &self.fields, body, style)
    }

    /// Reads the requests of a file of URLs.
    fn listed(&self, server: &Url, path: &Path) -> Result<Vec<WeightedTarget>, CommandError> {
        let lines = list::lines(&text_of(path)?).map_err(|error| invalid(path, error))?;
        let messages = lines.iter().map(|line| {
            let method = line.method.as_deref();
            let (url, target) = match &line.place {
                LineTarget::Target(target) => (server, target.as_str()),
                LineTarget::Url(url) => (url, url.target()),
            };
            Ok((url.clone(), self.to(method, url, target, false)?, line.weight))
        });
        let messages =
            messages.collect::<Result<Vec<_>, MessageError>>().map_err(|error| invalid(path, error))?;
        WeightedTarget::of(messages)
            .ok_or_else(|| invalid(path, format!("more than {MESSAGES_MAX} requests")))
    }

    /// Reads the requests of an access log.
    fn logged(&self, server: &Url, path: &Path, replay: bool) -> Result<Workload, CommandError> {
        let log = Log::read(&text_of(path)?).map_err(|error| invalid(path, error))?;
        if log.left_out > 0 {
            let left_out = words::plural(log.left_out, "line");
            note(&format!("{}: skipped {left_out} without a GET or HEAD request", path.display()));
        }
        let messages =
            log.requests.iter().map(|(method, target)| self.to(Some(method), server, target, true));
        let messages = messages.collect::<Result<Vec<_>, _>>().map_err(|error| invalid(path, error))?;
        let count = Some(log.order.len() as u64);
        let rate = Rate::of_seconds(log.seconds).filter(|_| replay);
        let mix = Mix::in_order(messages, log.order)
            .ok_or_else(|| invalid(path, format!("more than {MESSAGES_MAX} different requests")))?;
        Ok(Workload { aims: vec![WeightedTarget { url: server.clone(), mix, weight: 1 }], count, rate })
    }
}

/// Returns the error of a file of requests with invalid contents.
fn invalid(path: &Path, cause: impl Into<Box<dyn Error + Send + Sync>>) -> CommandError {
    CommandError::usage(cause).context(path.display())
}

/// Reads a text file.
fn text_of(path: &Path) -> Result<String, CommandError> {
    let bytes = std::fs::read(path).map_err(|error| CommandError::system(error).context(path.display()))?;
    // Logs contain arbitrary bytes from clients.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses `--expect-body`: a text, `@FILE`, or a digest.
fn expected_body(text: &str) -> Result<Expected, CommandError> {
    match text.strip_prefix('@') {
        Some(_) => Ok(Expected::Text(body(text)?)),
        None => Ok(text.parse::<Expected>()?),
    }
}

/// Parses `--body`: a text, `@FILE`, or `-` for standard input.
fn body(text: &str) -> Result<Vec<u8>, CommandError> {
    let failed =
        |error: io::Error| CommandError::system(error).context(format_args!("cannot read the body ({text})"));
    let mut content = Vec::new();
    match text.strip_prefix('@') {
        Some(path) => {
            let file = std::fs::File::open(path).map_err(failed)?;
            file.take(BODY_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
        }
        None if text == "-" => {
            io::stdin().lock().take(BODY_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
        }
        None => content.extend_from_slice(text.as_bytes()),
    }
    if content.len() as u64 > BODY_BYTES_MAX {
        return Err(CommandError::usage(format!("the body ({text}) is longer than 64 MiB")));
    }
    Ok(content)
}

/// Returns the address to connect to. If there are several, the first that accepts a connection.
fn server(url: &Url) -> Result<SocketAddr, CommandError> {
    let addresses = url.addresses().map_err(|error| CommandError::system(error).context(url))?;
    match addresses[..] {
        [only] => Ok(only),
        _ => {
            let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, PROBE).is_ok();
            let found = addresses.iter().find(listens).copied();
            found.ok_or_else(|| CommandError::server("no address accepts connections").context(url))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_have_a_weight() {
        let weighted: Weighted = "3@http://h/a".parse().expect("a weight and a URL");
        assert_eq!((weighted.weight, weighted.url.to_string().as_str()), (3, "http://h/a"));
        assert_eq!("http://h/a".parse::<Weighted>().expect("a URL").weight, 1);
        assert_eq!("http://h/a@b".parse::<Weighted>().expect("a URL").weight, 1);
        assert!(
            "0@http://h/".parse::<Weighted>().is_err_and(|error| error.to_string().contains("1 or more"))
        );
    }

    #[test]
    fn expected_statuses_are_numbers_classes_and_ranges() {
        let expected = Statuses(vec![200..=200, 300..=399, 404..=410]);
        assert_eq!(statuses("200,3xx, 404-410").ok(), Some(expected));
        for text in ["", "20", "2x", "0xx", "300-200", "200;201"] {
            assert!(statuses(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_another_tool_means_by_t_is_told() {
        assert_eq!(threads("4").ok(), Some(4));
        assert!(threads("10s").is_err_and(|error| error.to_string().contains("-d 10s")));
        assert!(threads("10s").is_err_and(|error| error.to_string().contains("--timeout 10s")));
        assert!(threads("0").is_err());
    }

    #[test]
    fn a_body_in_place_of_a_duration_names_the_flag_of_bodies() {
        assert_eq!(duration("10s").ok(), Some(Period::seconds(10)));
        let said = |text: &str| duration(text).expect_err(text).to_string();
        assert!(said("{\"a\":1}").ends_with("; a request body is --body TEXT"), "{}", said("{\"a\":1}"));
        assert!(said("10").contains("write 10s") && !said("10").contains("--body"), "{}", said("10"));
    }

    #[test]
    fn warm_up_is_a_time_or_a_number() {
        assert_eq!(warm_up("500").ok(), Some(WarmUp::Count(500)));
        assert_eq!(warm_up("10k").ok(), Some(WarmUp::Count(10_000)));
        assert_eq!(warm_up("2m").ok(), Some(WarmUp::For(Duration::from_secs(120))), "minutes");
        assert_eq!(warm_up("2s").ok(), Some(WarmUp::For(Duration::from_secs(2))));
        assert!(warm_up("two").is_err());
    }
}
