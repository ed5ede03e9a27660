//! `encke load push`: holds subscribers, publishes messages to them, and measures every delivery.
//!
//! ```text
//!   flags ─► Plan ─► Run ── each second: a line of progress ──► Report ─► summary or JSON ─► exit status
//! ```
//! Exit status: as for `encke load`.

use std::io::{self, IsTerminal as _, Write as _};
use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use encke_io::host::{self, Signals};
use encke_io::{Address, Backend};

use encke_assembly::settings::{OrAuto, Period};
use encke_load::compare::{Block, orders};
use encke_load::push::{self, Dialect, PAYLOAD_BYTES_MIN, PushReport, PushRun, PushRunPlan, StreamError};
use encke_load::tally::{Cause, RequestPhase};
use encke_load::{Arrivals, Comparison, Pace, Protocol, Rate, Slo, Sources, Stop, Url, words};

use super::progress::ViewAction;
#[cfg(feature = "screen")]
use super::screen::push::PushScreen;
use super::{Interrupts, LOOK, LOOKS_PER_LINE, again, command, compare, conclude, rounds, saved};
use crate::arguments::{Secrecy, count};
use crate::error::{ArgumentError, CommandError, CommandResult};
use crate::load;
use crate::output::{check_files, note, print_result};

/// Hold subscribers on a push server, publish, and measure every delivery.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load push http://localhost:8080/       1,000 event streams, 10 messages per second, 10 s
  encke load push -s 18000 --transport ws -r 2 --slo 'p99<200ms,reach=100%' http://localhost:8080/
  encke load push --cycle=5 --transport poll -s 500 http://localhost:8080/     as report 001")]
pub(crate) struct LoadPushArgs {
    /// Server, or URL of a channel (several with {channel})
    #[arg(value_name = "URL")]
    url: Url,
    /// Subscribers, over all threads and channels
    #[arg(short, long, value_name = "COUNT", default_value = "1000", value_parser = count::<NonZeroU32>)]
    subscribers: NonZeroU32,
    /// Transport: sse, poll, ws or ndjson [default: sse]
    #[arg(long, value_name = "HOW", default_value = "sse", hide_default_value = true)]
    #[arg(hide_possible_values = true)]
    transport: TransportArg,
    /// Messages per second, over all channels [default: 10]
    #[arg(short = 'r', long, value_name = "RATE")]
    publish_rate: Option<Rate>,
    /// Connections that publish; without a rate, each after the previous response
    #[arg(long, value_name = "COUNT", hide_short_help = true)]
    publishers: Option<NonZeroU16>,
    /// Channels for the subscribers and messages
    #[arg(short = 'k', long, value_name = "COUNT", default_value = "1")]
    channels: NonZeroU16,
    /// Bytes per message
    #[arg(long, value_name = "BYTES", default_value = "64", hide_short_help = true)]
    payload: usize,
    /// Stop after this many messages
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "duration")]
    #[arg(value_parser = count::<NonZeroU64>)]
    messages: Option<NonZeroU64>,
    /// Stop after this time [default: 10s]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Period>,
    /// Repeat: all connect, all receive one message, all leave [default: 1]
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    #[arg(conflicts_with_all = ["messages", "duration", "publish_rate", "publishers", "slow", "churn", "storm"])]
    cycle: Option<NonZeroU32>,
    /// Start rounds by lines of standard input: connect, fan, sustained, cycle or storm
    #[arg(long, value_name = "ROUND", hide_short_help = true, hide_possible_values = true)]
    #[arg(conflicts_with_all = ["messages", "publish_rate", "slow", "churn", "storm", "cycle", "against", "report", "save", "slo"])]
    paced: Option<Rounds>,
    /// Another server B, measured in turns with A, that of URL
    #[arg(long, value_name = "URL", conflicts_with_all = ["cycle", "report", "save", "slo", "watch"])]
    against: Option<Url>,
    /// Kind of the other server [default: as --preset]
    #[arg(long, value_name = "SERVER", requires = "against", hide_short_help = true)]
    against_preset: Option<PresetArg>,
    /// With --against: rounds of A B B A or B A A B, each part a separate run [default: 10]
    #[arg(long, value_name = "COUNT", requires = "against", hide_short_help = true)]
    rounds: Option<NonZeroU16>,
    /// Share of subscribers that stop reading: 1%
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        hide_default_value = true,
        hide_short_help = true
    )]
    slow: SubscriberShare,
    /// Share of subscribers that reconnect: 5%/s
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0",
        hide_default_value = true,
        hide_short_help = true
    )]
    churn: SubscriberShare,
    /// Halfway, disconnect all subscribers, which reconnect immediately
    #[arg(long, conflicts_with = "messages", hide_short_help = true)]
    storm: bool,
    /// Also report memory and CPU of this local process
    #[arg(long, value_name = "PID", hide_short_help = true)]
    watch: Option<u32>,
    /// Conditions to meet, else status 3: 'p99<10ms,errors<0.1%,reach=100%'
    #[arg(long, value_name = "CONDITIONS")]
    slo: Vec<Slo>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show lines instead of the live screen, even on a terminal
    #[arg(long, hide_short_help = true)]
    plain: bool,
    /// Save the run to a file, in the format of --json
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    save: Option<PathBuf>,
    /// Write a page with plots, one HTML file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    report: Option<PathBuf>,
    /// Kind of server
    #[arg(long, value_name = "SERVER", default_value = "encke", hide_short_help = true)]
    preset: PresetArg,
    /// Path or URL to subscribe to, with {channel}
    #[arg(long, value_name = "URL", hide_short_help = true)]
    subscribe_url: Option<String>,
    /// Path or URL to publish to, with {channel}
    #[arg(long, value_name = "URL", hide_short_help = true)]
    publish_url: Option<String>,
    /// Name for {channel}; several channels get a number appended
    #[arg(long, value_name = "NAME", default_value = "load", hide_short_help = true)]
    channel: String,
    /// Header field 'Name: value' of all requests; repeatable
    #[arg(short = 'H', long, value_name = "FIELD", hide_short_help = true)]
    header: Vec<String>,
    /// Access token of the publishers [env: ENCKE_TOKEN]
    #[arg(long, value_name = "TOKEN", env = "ENCKE_TOKEN", hide_env = true, hide_short_help = true)]
    token: Option<String>,
    /// Connects per second at the start [default: as fast as the server responds]
    #[arg(long, value_name = "RATE", hide_short_help = true)]
    connect_rate: Option<Rate>,
    /// Threads
    #[arg(short, long, value_name = "COUNT", default_value = "1", hide_short_help = true)]
    #[arg(value_parser = load::threads)]
    threads: u16,
    /// Time to wait for a response before reconnecting, and for outstanding messages at the end
    #[arg(long, value_name = "TIME", default_value = "10s", hide_short_help = true)]
    timeout: Period,
    /// Source addresses of connections: 127.0.0.2-9,127.0.0.20
    #[arg(long, value_name = "ADDRESSES", hide_short_help = true)]
    source: Vec<Sources>,
    #[command(flatten)]
    secrecy: Secrecy,
    /// Back end: auto, uring, epoll-edge, epoll-level or poll [default: auto]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    backend: Option<OrAuto<Backend>>,
    /// Seed of random choices
    #[arg(long, value_name = "NUMBER", default_value = "1", hide_short_help = true)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TransportArg {
    /// Server-sent events.
    Sse,
    /// Long poll.
    Poll,
    /// WebSocket.
    Ws,
    /// One line of JSON per message.
    Ndjson,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PresetArg {
    /// Encke.
    Encke,
    /// nginx with nchan: /sub/{channel} and /pub/{channel}.
    Nchan,
    /// A Mercure hub.
    Mercure,
}

/// The kind of round that a line of standard input starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Rounds {
    /// All connect.
    Connect,
    /// One message, until all subscribers have it.
    Fan,
    /// Publishers send each message after the previous response, for `--duration`.
    Sustained,
    /// All connect at once, then one message.
    Cycle,
    /// All are disconnected, and reconnect immediately.
    Storm,
}

/// A share of the subscribers: `1%`, `0.01`, `5%/s`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct SubscriberShare(f64);

impl FromStr for SubscriberShare {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        let number = text.strip_suffix("/s").unwrap_or(text);
        let (digits, unit) = number.strip_suffix('%').map_or((number, 1.0), |digits| (digits, 0.01));
        let share = digits.parse::<f64>().ok().map(|share| share * unit);
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or_else(|| ArgumentError::Share(text.to_owned()))
    }
}

impl From<TransportArg> for push::Transport {
    fn from(transport: TransportArg) -> Self {
        match transport {
            TransportArg::Sse => Self::Sse,
            TransportArg::Poll => Self::Poll,
            TransportArg::Ws => Self::Ws,
            TransportArg::Ndjson => Self::Ndjson,
        }
    }
}

impl From<PresetArg> for push::Preset {
    fn from(preset: PresetArg) -> Self {
        match preset {
            PresetArg::Encke => Self::Encke,
            PresetArg::Nchan => Self::Nchan,
            PresetArg::Mercure => Self::Mercure,
        }
    }
}

impl From<Rounds> for push::Paced {
    fn from(rounds: Rounds) -> Self {
        match rounds {
            Rounds::Connect => Self::Connect,
            Rounds::Fan => Self::Fan,
            Rounds::Sustained => Self::Sustained,
            Rounds::Cycle => Self::Cycle,
            Rounds::Storm => Self::Storm,
        }
    }
}

impl LoadPushArgs {
    /// Whether a field of all requests is an `Authorization`.
    fn has_authorization(&self) -> bool {
        let mut fields = self.header.iter().filter_map(|field| field.split_once(':'));
        fields.any(|(name, _)| name.eq_ignore_ascii_case("Authorization"))
    }
}

pub(crate) fn run(arguments: &LoadPushArgs, signals: Signals) -> CommandResult {
    if arguments.token.is_some() && arguments.has_authorization() {
        note("publishers send the Authorization of -H, not the token of --token or $ENCKE_TOKEN");
    }
    check_files(&[("--save", arguments.save.as_ref()), ("--report", arguments.report.as_ref())], &[])?;
    if let Some(pid) = arguments.watch.filter(|pid| host::process_usage(*pid).is_none()) {
        return Err(CommandError::system("no such process").context(format_args!("--watch {pid}")));
    }
    let plan = plan(arguments, &arguments.url, arguments.preset)?;
    let interrupts = Interrupts::watch(signals)?;
    if plan.paced.is_some() {
        return rounds::run(plan, &interrupts);
    }
    if let Some(url) = &arguments.against {
        let other = self::plan(arguments, url, arguments.against_preset.unwrap_or(arguments.preset))?;
        return compared(arguments, [plan, other], &interrupts);
    }
    if arguments.messages.is_none() && arguments.duration.is_none() && arguments.cycle.is_none() {
        note("running for 10 s by default; change it with -n COUNT or -d TIME");
    }
    let mut run = PushRun::start(plan.clone())?;
    interrupts.end(run.halter());
    let mut onlooker = PushProgressView::new(arguments, &plan);
    while !run.wait(onlooker.pause()) {
        let (now_ns, totals) = run.totals();
        if onlooker.look(now_ns, totals) == ViewAction::End {
            interrupts.interrupt();
        }
    }
    onlooker.leave();
    let plan = PushRunPlan { stop: interrupts.stop(plan.stop), ..plan };
    let report = PushReport::new(plan, again::url(&arguments.url.to_string()), command(), run.outcome()?);
    nobody_there(&report)?;
    if let Some(path) = &arguments.report {
        saved::write(path, &report.saved().page())?;
    }
    if let Some(path) = &arguments.save {
        saved::write(path, &format!("{:#}\n", report.json()))?;
    }
    let text = if arguments.json { format!("{:#}\n", report.json()) } else { report.summary() };
    print_result(&text)?;
    Ok(conclude(&report, &report.verdict, &arguments.slo, !arguments.json, &interrupts))
}

/// Default duration of each block of a comparison, and default number of rounds.
const BLOCK: Duration = Duration::from_secs(2);
const ROUNDS: u16 = 10;

/// Measures two servers in turns.
fn compared(arguments: &LoadPushArgs, mut plans: [PushRunPlan; 2], interrupts: &Interrupts) -> CommandResult {
    let urls = [&arguments.url, arguments.against.as_ref().unwrap_or(&arguments.url)]
        .map(|url| again::url(&url.to_string()));
    if arguments.messages.is_none() && arguments.duration.is_none() {
        plans.iter_mut().for_each(|plan| plan.stop = Stop::After(BLOCK));
    }
    let measured = |side: usize| -> Result<PushReport, CommandError> {
        // A run number of its own, so that messages that a channel still holds from the previous run are not counted.
        let plan = PushRunPlan { run: run_number()?, ..plans[side].clone() };
        let mut run = PushRun::start(plan.clone())?;
        interrupts.end(run.halter());
        while !run.wait(LOOK) {}
        let report = PushReport::new(plan, urls[side].clone(), command(), run.outcome()?);
        nobody_there(&report)?;
        Ok(report)
    };
    for side in [0, 1] {
        measured(side)?;
    }
    let rounds = arguments.rounds.map_or(ROUNDS, NonZeroU16::get);
    let (mut pairs, mut limits, mut how) = (Vec::new(), Vec::new(), String::new());
    for (number, order) in orders(arguments.seed, rounds).enumerate() {
        let mut pair = [Block::default(), Block::default()];
        for side in order {
            if interrupts.seen() {
                break;
            }
            let report = measured(side)?;
            let saved = report.saved();
            pair[side] = Block::of_push(&saved);
            limits.push(report.verdict.limit);
            how = saved.plan.text;
        }
        if interrupts.seen() {
            break;
        }
        if !arguments.json {
            compare::progress(number + 1, rounds, &pair);
        }
        pairs.push(pair);
    }
    let how = format!("{how}\n{} of runs, in turns", words::plural(pairs.len() as u64, "pair"));
    let mut comparison = Comparison::of_pairs(urls.clone(), how, &pairs);
    compare::judge(&mut comparison, &limits);
    compare::told(&comparison, arguments.json, interrupts.seen())
}

/// Returns an error if no subscriber was answered: such a run has no result but its first error.
fn nobody_there(report: &PushReport) -> Result<(), CommandError> {
    let outcome = &report.outcome;
    if outcome.totals.answered > 0 {
        return Ok(());
    }
    // Publishers may have had more errors, but subscribers come first.
    let of_subscribers = outcome.errors.iter().find(|error| error.phase != RequestPhase::Publish);
    let text = match (of_subscribers, outcome.errors.iter().next()) {
        (None, _) if outcome.totals.turned_away > 0 => {
            "every subscription was rejected with a retry time: by status 429 if they open channels faster than \
             push.channel_rate, by 503 if the server drains or has no room; use --connect-rate"
                .to_owned()
        }
        (Some(error), _) | (None, Some(error)) => {
            let help = match error.cause {
                Cause::NotUnderstood(StreamError::Status(401 | 403)) => {
                    "; grant the right to subscribe in [auth], or pass a token with it: -H 'Authorization: Bearer TOKEN' \
                     (`encke token --subscribe '*' --publish '*'` signs one)"
                }
                Cause::NotUnderstood(StreamError::Status(404)) => {
                    "; for a server other than Encke use --preset, or --subscribe-url and --publish-url"
                }
                _ => "",
            };
            format!("{} ({}){help}", error.cause, error.phase)
        }
        (None, None) => return Ok(()),
    };
    Err(CommandError::server(text).context(&report.url))
}

// ---- flags into a plan ----

/// Returns a random run number, which distinguishes the messages of this run from messages of other runs.
fn run_number() -> Result<u32, CommandError> {
    let mut run = [0; 4];
    host::random(&mut run).map_err(|error| CommandError::system(error).context("no random numbers"))?;
    Ok(u32::from_le_bytes(run))
}

fn plan(arguments: &LoadPushArgs, url: &Url, preset: PresetArg) -> Result<PushRunPlan, CommandError> {
    let backend = match arguments.backend {
        Some(OrAuto::Set(backend)) => backend,
        Some(OrAuto::Auto) | None => Backend::auto().0,
    };
    if arguments.payload < PAYLOAD_BYTES_MIN {
        return Err(CommandError::usage(format!(
            "--payload must be at least {PAYLOAD_BYTES_MIN} bytes, the size of a message's mark"
        )));
    }
    if arguments.cycle.is_some() && arguments.threads > 1 {
        return Err(CommandError::usage("--cycle requires one thread, which must have all subscribers"));
    }
    if arguments.paced.is_some() && arguments.threads > 1 {
        return Err(CommandError::usage("--paced requires one thread, which must have all subscribers"));
    }
    if arguments.paced == Some(Rounds::Sustained) && arguments.transport == TransportArg::Poll {
        return Err(CommandError::usage("--paced sustained requires a stream, not polls"));
    }
    if arguments.slow.0 > 0.0 && arguments.transport == TransportArg::Poll {
        return Err(CommandError::usage("--slow requires a stream, not polls"));
    }
    if u32::from(arguments.threads) > arguments.subscribers.get() {
        return Err(CommandError::usage(format!("fewer subscribers than {} threads", arguments.threads)));
    }
    let server = Address::from(load::server(url)?);
    let sources = load::sources(&server, &arguments.source)?;
    let transport = arguments.transport.into();
    let dialect = dialect(arguments, url, preset)?;
    let base = PushRunPlan::new(server, url.authority(), dialect, transport, run_number()?);
    let count = arguments.channels.get();
    let name = &arguments.channel;
    let channels = match count {
        1 => vec![name.clone()],
        _ => (0..count).map(|number| format!("{name}-{number}")).collect(),
    };
    let pace = match (&arguments.publish_rate, arguments.publishers) {
        (Some(rate), _) => Pace::Open(rate.clone(), Arrivals::Even),
        (None, Some(_)) => Pace::Closed,
        (None, None) if arguments.paced.is_some() => Pace::Closed,
        (None, None) => base.pace.clone(),
    };
    let ending = arguments.publish_rate.as_ref().and_then(Rate::duration);
    let stop = arguments
        .messages
        .map(|count| Stop::Count(count.get()))
        .or_else(|| arguments.duration.map(|period| Stop::After(period.duration())))
        .or(ending.map(Stop::After))
        .unwrap_or(base.stop);
    let plan = PushRunPlan {
        sources,
        tls: load::tls(url, &arguments.secrecy, Protocol::Http1)?,
        channels,
        subscribers: arguments.subscribers.get(),
        pace,
        publishers: arguments.publishers.map_or(1, NonZeroU16::get),
        payload_bytes: arguments.payload,
        stop,
        connect_rate: arguments.connect_rate.clone(),
        slow: arguments.slow.0,
        churn: arguments.churn.0,
        storm: arguments.storm,
        cycles: arguments.cycle.map(NonZeroU32::get),
        paced: arguments.paced.map(Into::into),
        threads: arguments.threads,
        timeout: arguments.timeout.duration(),
        drain: arguments.timeout.duration(),
        backend,
        seed: arguments.seed,
        watch: arguments.watch,
        ..base
    };
    Ok(plan.placed())
}

/// Returns the paths, header fields and formats for the server.
fn dialect(arguments: &LoadPushArgs, url: &Url, preset: PresetArg) -> Result<Dialect, CommandError> {
    let transport = arguments.transport;
    // Only subscribers that reconnect use positions, and a WebSocket has them only in envelopes.
    let resumable = arguments.storm || arguments.churn.0 > 0.0;
    let Some(mut dialect) = Dialect::of(preset.into(), transport.into(), resumable) else {
        let name = push::Transport::from(transport).name();
        return Err(CommandError::usage(format!(
            "this kind of server does not support the transport {name}"
        )));
    };
    let path = url.target();
    if path != "/" {
        if preset != PresetArg::Encke {
            let text = format!(
                "`{url}`: with --preset the URL must have no path; use --subscribe-url and --publish-url"
            );
            return Err(CommandError::usage(text));
        }
        (dialect.subscribe, dialect.publish) = (path.to_owned(), path.to_owned());
    }
    for (template, place) in
        [(&arguments.subscribe_url, &mut dialect.subscribe), (&arguments.publish_url, &mut dialect.publish)]
    {
        match template {
            None => {}
            Some(path) if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) => {
                *place = path.clone();
            }
            Some(text) => {
                let named = text.parse::<Url>()?;
                if !named.same_server(url) {
                    return Err(CommandError::usage(format!(
                        "{named} and {url} are different servers; a run has one"
                    )));
                }
                *place = named.target().to_owned();
            }
        }
    }
    if arguments.channels.get() > 1 && !dialect.subscribe.contains("{channel}") {
        return Err(CommandError::usage(format!(
            "`{}`: {{channel}} is required for several channels",
            dialect.subscribe
        )));
    }
    for field in &arguments.header {
        let (name, value) = field.split_once(':').ok_or_else(|| {
            CommandError::usage(format!("invalid header field `{field}`: expected 'Name: value'"))
        })?;
        let field = (name.to_owned(), value.trim().to_owned());
        dialect.subscriber_fields.push(field.clone());
        dialect.publisher_fields.push(field);
    }
    // Two fields would be a malformed request.
    if let Some(token) = arguments.token.as_ref().filter(|_| !arguments.has_authorization()) {
        dialect.publisher_fields.push(("Authorization".into(), format!("Bearer {token}")));
    }
    Ok(dialect)
}

// ---- while it runs ----

/// The progress display: a screen, or lines, which may be silent.
enum PushProgressView {
    Lines(Box<ProgressLines>),
    #[cfg(feature = "screen")]
    Screen(Box<PushScreen>),
}

impl PushProgressView {
    fn new(arguments: &LoadPushArgs, plan: &PushRunPlan) -> Self {
        #[cfg(feature = "screen")]
        if !arguments.json
            && !arguments.plain
            && io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|name| name != "dumb")
            // Falls back to lines if the screen cannot be opened.
            && let Ok(screen) = PushScreen::open(plan, plan.to_string(), again::url(&arguments.url.to_string()))
        {
            return Self::Screen(Box::new(screen));
        }
        let _only_a_screen_shows_it = plan;
        Self::Lines(Box::new(ProgressLines::new(arguments.json)))
    }

    const fn pause(&self) -> Duration {
        match self {
            Self::Lines(_) => LOOK,
            #[cfg(feature = "screen")]
            Self::Screen(_) => super::screen::PAUSE,
        }
    }

    fn look(&mut self, now_ns: u64, totals: push::PushTotals) -> ViewAction {
        match self {
            Self::Lines(progress) => {
                progress.tell(now_ns, totals);
                ViewAction::Nothing
            }
            #[cfg(feature = "screen")]
            Self::Screen(screen) => screen.show(now_ns, &totals),
        }
    }

    /// Clears the progress line at the end of a run.
    fn leave(self) {
        match self {
            Self::Lines(progress) => progress.end(),
            #[cfg(feature = "screen")]
            Self::Screen(_) => {}
        }
    }
}

/// Lines of progress on standard error: on a terminal one line that is overwritten, elsewhere a line per [`LOOKS_PER_LINE`]
/// samples.
struct ProgressLines {
    terminal: bool,
    silent: bool,
    looks: usize,
    before: Option<(u64, push::PushTotals)>,
}

impl ProgressLines {
    fn new(silent: bool) -> Self {
        Self { terminal: io::stderr().is_terminal(), silent, looks: 0, before: None }
    }

    fn tell(&mut self, now_ns: u64, totals: push::PushTotals) {
        let before = self.before.replace((now_ns, totals.clone()));
        self.looks += 1;
        if self.silent || !self.terminal && !self.looks.is_multiple_of(LOOKS_PER_LINE) {
            return;
        }
        let Some((before_ns, before)) = before else { return };
        let seconds = Duration::from_nanos(now_ns.saturating_sub(before_ns)).as_secs_f64().max(1e-9);
        let since = totals.latency.since(&before.latency);
        let [p50, p99] =
            [0.5, 0.99].map(|share| since.quantile_ns(share).map_or_else(|| "–".into(), words::time));
        let line = format!(
            "{} subscribed, {} published, {} receipts per second, p50 {p50}, p99 {p99}",
            words::count(totals.answered),
            words::count(totals.published),
            words::number((totals.received - before.received) as f64 / seconds),
        );
        let (begin, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let mut error = io::stderr().lock();
        let _nobody_listens = write!(error, "{begin}{line}{end}").and_then(|()| error.flush());
    }

    fn end(&self) {
        if self.terminal && !self.silent && self.looks > 0 {
            let _nobody_listens = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_the_whole() {
        for (text, share) in [("1%", 0.01), ("0.5", 0.5), ("5%/s", 0.05), ("0", 0.0), ("100%", 1.0)] {
            assert_eq!(text.parse().ok(), Some(SubscriberShare(share)), "{text}");
        }
        for text in ["", "%", "-1%", "101%", "1/2", "NaN"] {
            assert!(text.parse::<SubscriberShare>().is_err(), "{text}");
        }
    }
}
