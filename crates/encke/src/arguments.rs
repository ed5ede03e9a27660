//! Flags and help of every sub-command: the table from which help, completions and man pages are generated.
//!
//! Each `-h` fits one screen (24 lines of 100 columns, `load -h` 32; a test counts) and ends with three examples.

use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use encke_assembly::settings::{ListenAddress, OrAuto, OrOff, Period, TargetUrl};
use encke_io::Backend;
use encke_lab::texts::Language;
use encke_load::plan::WarmUp;
use encke_load::{Rate, Slo, Sources};

use crate::command_line::CommandLine;
use crate::error::ArgumentError;
use crate::load::{self, Foreign, LoadPushArgs, Watching, Weighted};
use crate::publish::PublishPace;
use crate::service_arguments::ServiceArgs;
use crate::subscribe::SinceArg;

/// The web server for things that stay connected.
#[derive(Parser, Debug)]
#[command(
    name = "encke",
    version = VERSION.as_str(),
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    // Clap's template, but shorter, so that the page has 24 lines also where `service` exists: no empty line before the usage, and one
    // line of options instead of four.
    help_template = "\
{about}
{usage-heading} {usage}

Commands:
{subcommands}

Options: -h, --help and -V, --version; each command has its own help{after-help}",
    after_help = "\
Examples:
  encke serve public          serve the directory `public` on http://localhost:8080/
  encke pub news 'hello'      publish to all subscribers of `news` there
  encke serve -h              all options of `serve`"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Version, build profile, compiled back ends, and target.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let names = Backend::NAMED.into_iter().filter(|backend| backend.compiled()).map(Backend::name);
    let names = names.collect::<Vec<_>>().join(", ");
    let build = named_build(env!("ENCKE_PROFILE"));
    format!("{} ({build}back ends: {names}; {})", env!("CARGO_PKG_VERSION"), env!("ENCKE_TARGET"))
});

/// Returns the part of the version that names the build profile. Empty for `release` and `dist`, which generate the same code.
fn named_build(profile: &str) -> String {
    if matches!(profile, "release" | "dist") { String::new() } else { format!("{profile} build; ") }
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Serve(Serve),
    Demo(Demo),
    Pub(PublishArgs),
    Sub(SubscribeArgs),
    Load(Box<LoadArgs>),
    Token(TokenArgs),
    Lab(Lab),
    Check(Check),
    Status(Status),
    Console(ConsoleArgs),
    Schema(Schema),
    Completions(Completions),
    // Only where it is of use: elsewhere it explains what to use.
    #[command(hide = !encke_io::service::IS_AVAILABLE)]
    Service(ServiceArgs),
    // Not in the help, which fits one screen: packages run it.
    #[command(hide = true)]
    Man(Man),
}

/// Serve a directory, or the sites of a settings file.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  encke serve public --list              a directory, with listings, on http://localhost:8080/
  encke serve --to 127.0.0.1:3000        an application, with its WebSockets and event streams
  encke serve -c /etc/encke/encke.toml   a settings file; flags override it")]
pub(crate) struct Serve {
    /// Directory to serve [default: current directory]
    #[arg(value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Settings file [env: ENCKE_CONFIG]
    #[arg(short, long, value_name = "FILE", env = "ENCKE_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
    /// Address: 8080, :8080, HOST:PORT or unix:PATH; repeatable [default: 8080]
    #[arg(short, long, alias = "port", value_name = "ADDRESS")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Worker threads, or auto [default: auto]
    #[arg(short, long, value_name = "COUNT")]
    pub(crate) workers: Option<OrAuto<NonZeroU16>>,
    /// Back end: auto, uring, epoll-edge, epoll-level or poll [default: auto]
    // This and the next one are not in the help, which fits one screen: both are also settings.
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) backend: Option<OrAuto<Backend>>,
    /// Connections that the kernel queues until accepted [default: 4096]
    #[arg(long, hide = true, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) backlog: Option<u32>,
    /// Address of the admin listener, or off [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<OrOff<ListenAddress>>,
    /// List directories that have no index file
    #[arg(long)]
    pub(crate) list: bool,
    /// Respond to navigation to unknown pages with the index file
    #[arg(long)]
    pub(crate) spa: bool,
    /// Application for requests (with DIR: those without a file): URL or port
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<TargetUrl>,
    /// Application that Encke starts for these requests: 'starman app.psgi'
    #[arg(long, value_name = "COMMAND", conflicts_with = "to")]
    pub(crate) run: Option<CommandLine>,
    /// Let every client publish and subscribe without a token
    #[arg(long)]
    pub(crate) open: bool,
    /// Use https with a local authority; the start text explains how to trust it
    #[arg(long)]
    pub(crate) tls_self_signed: bool,
}

/// Serve a built-in chat that demonstrates push, or a live stream.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke demo                    then open http://localhost:8080/ in two windows
  encke demo -l :8080 --open    for other devices in the network, too
  encke demo --live             a live stream: a test picture with sound")]
pub(crate) struct Demo {
    /// Address: 8080, :8080, HOST:PORT or unix:PATH; repeatable [default: 8080]
    #[arg(short, long, alias = "port", value_name = "ADDRESS")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Allow all clients, not only those on this machine
    #[arg(long)]
    pub(crate) open: bool,
    /// Send a test picture with sound as a live stream, in place of the chat
    #[arg(long)]
    pub(crate) live: bool,
}

/// Publish to a channel.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke pub news 'hello, world'
  encke pub prices '{\"eur\":1.08}' --type application/json
  tail -f app.log | encke pub log - --rate 50/s")]
pub(crate) struct PublishArgs {
    /// Channel name or URL
    #[arg(value_name = "CHANNEL|URL")]
    pub(crate) channel: String,
    /// Message, @FILE, or - for each line of standard input [default: standard input]
    #[arg(value_name = "DATA", allow_negative_numbers = true)]
    pub(crate) data: Option<String>,
    /// File with the message, as @FILE
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) file: Option<PathBuf>,
    /// With -: maximum lines per second or minute (50/s, 30/m)
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<PublishPace>,
    /// Event name
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Content type [default: text if UTF-8, else bytes]
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Idempotency key: a repeat is not published again (with -: KEY-1, KEY-2, …)
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Print responses as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reach: ServerArgs,
}

/// The server, its credentials and the trusted certificates.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Server [env: ENCKE_URL] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", env = "ENCKE_URL", hide_env = true)]
    #[arg(default_value = SERVER_DEFAULT, hide_default_value = true)]
    pub(crate) server: String,
    /// Access token [env: ENCKE_TOKEN]
    #[arg(long, env = "ENCKE_TOKEN", hide_env = true)]
    pub(crate) token: Option<String>,
    /// CA certificates for https [default: system roots]; --insecure trusts any
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// Skip certificate verification.
    // Hidden, because `--cacert` mentions it and the help must fit one screen.
    #[arg(long, hide = true)]
    pub(crate) insecure: bool,
}

/// The default listening address of `encke serve`.
const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

/// Print the messages of channels.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke sub news chat/lobby                  one line per message, until ^C
  encke sub news --since all -n 1 --timeout 5s
  encke sub http://example.com/push/prices --since 10m --json | jq .data")]
pub(crate) struct SubscribeArgs {
    /// Channel names or URLs
    #[arg(value_name = "CHANNEL|URL", required = true)]
    pub(crate) channels: Vec<String>,
    /// Start at now, all, last:N, an age (10m), or after an id [default: now]
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<SinceArg>,
    /// Stop after this many messages
    #[arg(short = 'n', long, value_parser = count::<NonZeroU64>)]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop after this time without a message; status 1 if too few arrived
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Period>,
    /// Print envelopes (id, channel, event, type, time, data) as JSON lines
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
    /// Print only the bytes of the messages
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) reach: ServerArgs,
}

/// Send requests and measure the responses.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "encke load [OPTIONS] <URL>...\n       encke load push|compare|merge|explain|report … (each has its own help)",
    // Clap's template without the sub-commands, which the usage line above names.
    help_template = "\
{about-with-newline}
{usage-heading} {usage}

Arguments:
{positionals}

Options:
{options}{after-help}",
    after_help = "\
Examples:
  encke load http://localhost:8080/                as fast as 64 connections can, for 10 s
  encke load -n 100000 -c 128 http://localhost:8080/
  encke load -r 20k -d 30s --slo 'p99<10ms,errors<0.1%' http://localhost:8080/"
)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LoadCommand>,
    /// Target URL; WEIGHT@URL to weight one of several
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<Weighted>,
    /// Stop after this many requests
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        value_parser = count::<NonZeroU64>,
        conflicts_with = "duration"
    )]
    pub(crate) requests: Option<NonZeroU64>,
    /// Stop after this time [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = load::duration)]
    pub(crate) duration: Option<Period>,
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    /// Conditions to meet, else status 3: 'p99<10ms,errors<0.1%'
    #[arg(long, value_name = "CONDITIONS")]
    pub(crate) slo: Vec<Slo>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Save the run to a file, in the format of --json
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Write a page with plots, one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Also sample the server: a local process, or http://HOST:8081/metrics
    #[arg(long, value_name = "PID|URL")]
    pub(crate) watch: Option<Watching>,
    /// Show lines instead of the live screen, even on a terminal
    #[arg(long, hide_short_help = true)]
    pub(crate) plain: bool,
    /// Find the highest rate that meets conditions: 'p99<50ms,errors<0.1%'
    #[arg(long, value_name = "CONDITIONS")]
    #[arg(conflicts_with_all = ["requests", "rate", "slo", "pipeline", "streams"])]
    pub(crate) find_max: Option<Slo>,
    /// Accept the flags of ab or htstress, and print their output; must come first
    #[arg(long = "as", value_name = "TOOL", hide_short_help = true)]
    pub(crate) dress: Option<String>,
    /// Output format, set by `--as`
    #[arg(long, hide = true, default_value = "own")]
    pub(crate) layout: Layout,
    /// Warm-up that is not measured: a time, or a number of requests
    #[arg(
        long,
        value_name = "TIME|COUNT",
        default_value = "0",
        hide_default_value = true,
        hide_short_help = true
    )]
    #[arg(value_parser = load::warm_up)]
    pub(crate) warm_up: WarmUp,
}

/// Options that a run and a comparison share.
#[derive(Args, Debug)]
pub(crate) struct TrafficArgs {
    /// Connections, over all threads [default: 64]
    #[arg(
        short,
        long,
        value_name = "COUNT",
        value_parser = count::<NonZeroU32>,
        default_value = "64",
        hide_default_value = true
    )]
    pub(crate) connections: NonZeroU32,
    /// Threads [default: 1]
    #[arg(short, long, value_name = "COUNT", default_value = "1", hide_default_value = true)]
    #[arg(value_parser = load::threads)]
    pub(crate) threads: u16,
    /// Requests per second, regardless of responses: 20k, 1k..50k/60s
    #[arg(short, long)]
    pub(crate) rate: Option<Rate>,
    /// Request method [default: GET, or POST with a body]
    #[arg(short = 'X', long, hide_short_help = true)]
    pub(crate) method: Option<String>,
    /// Header field 'Name: value' of the requests; repeatable
    #[arg(short = 'H', long, value_name = "FIELD")]
    pub(crate) header: Vec<String>,
    /// Request body: a text, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// Open a new connection for each request
    #[arg(long, hide_short_help = true, conflicts_with = "per_conn")]
    pub(crate) no_keepalive: bool,
    /// Reopen a connection after this many requests
    #[arg(long, value_name = "COUNT", value_parser = count::<NonZeroU32>, hide_short_help = true)]
    pub(crate) per_conn: Option<NonZeroU32>,
    /// Requests sent on a connection before the first response [default: 1]
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1",
        hide_default_value = true,
        hide_short_help = true
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=PIPELINE_MAX))]
    pub(crate) pipeline: u16,
    /// Use HTTP/2: https offers nothing else, http assumes that the server supports it
    #[arg(long, conflicts_with = "http10", hide_short_help = true)]
    pub(crate) http2: bool,
    /// With --http2: concurrent requests per connection [default: 1]
    #[arg(long, value_name = "COUNT", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=PIPELINE_MAX))]
    pub(crate) streams: Option<u16>,
    /// Use HTTP/1.0
    #[arg(long, hide_short_help = true)]
    pub(crate) http10: bool,
    /// Timeout of a request [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) timeout: Period,
    /// Expected statuses: 200, 2xx, 200-399 [default: 100-399]
    #[arg(long, value_name = "STATUSES", hide_short_help = true, value_parser = load::statuses)]
    pub(crate) expect_status: Option<load::Statuses>,
    /// Expected body: a text, @FILE or sha256:DIGITS
    #[arg(long, value_name = "TEXT", hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) expect_body: Option<String>,
    /// File of requests, one per line: a URL or path, optionally after METHOD or WEIGHT@; URL names the server
    #[arg(long = "urls", value_name = "FILE", hide_short_help = true, conflicts_with = "from_log")]
    pub(crate) list: Option<PathBuf>,
    /// Send the GETs and HEADs of an access log, in order; URL names the server
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) from_log: Option<PathBuf>,
    /// With --from-log: send requests at their original times
    #[arg(long, hide_short_help = true, requires = "from_log", conflicts_with = "rate")]
    pub(crate) replay: bool,
    /// With a rate: distribution of requests over time [default: even]
    #[arg(
        long,
        value_name = "HOW",
        default_value = "even",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) arrivals: ArrivalsArg,
    #[command(flatten)]
    pub(crate) secrecy: Secrecy,
    /// Source addresses of connections: 127.0.0.2-9,127.0.0.20
    #[arg(long, value_name = "ADDRESSES", hide_short_help = true, conflicts_with = "unix")]
    pub(crate) source: Vec<Sources>,
    /// Unix socket of the server; URL still gives host and path
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub(crate) unix: Option<PathBuf>,
    /// Back end: auto, uring, epoll-edge, epoll-level or poll [default: auto]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) backend: Option<OrAuto<Backend>>,
    /// Seed of random choices [default: 1]
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

/// Sub-commands of load.
#[derive(Subcommand, Debug)]
pub(crate) enum LoadCommand {
    Push(Box<LoadPushArgs>),
    Compare(Box<Compare>),
    Merge(Merge),
    Explain(ExplainArgs),
    Report(SavedRunArgs),
}

/// Compare two servers, measured in turns, or two saved runs: B ÷ A, with intervals.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load compare http://localhost:8080/ http://localhost:8081/
  encke load compare --rounds 20 -r 5k http://a/ http://b/
  encke load compare yesterday.json today.json                 files written by --json or --save")]
pub(crate) struct Compare {
    /// A: a URL, or the file of a saved run
    #[arg(value_name = "A")]
    pub(crate) one: String,
    /// B: a URL, or the file of a saved run
    #[arg(value_name = "B")]
    pub(crate) other: String,
    /// Duration of one measurement
    #[arg(short = 'd', long, alias = "duration", value_name = "TIME", default_value = "1s")]
    pub(crate) block: Period,
    /// Rounds of A B B A or B A A B; at least 4 for a result
    #[arg(long, value_name = "COUNT", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=ROUNDS_MAX))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    /// Also measure CPU per request: of A, then of B; or one for both
    #[arg(long, value_name = "PID|URL")]
    pub(crate) watch: Vec<load::Watching>,
    /// Compare even if statuses or sizes of the responses differ
    #[arg(long, hide_short_help = true)]
    pub(crate) different_responses: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Merge saved runs of several generators that ran at the same time.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load merge one.json two.json                   the summary of both
  encke load merge --json *.json >all.json             the merged run, saved
  encke load merge --json one.json two.json | jq .rate_per_s")]
pub(crate) struct Merge {
    /// Files written by --json or --save
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub(crate) runs: Vec<PathBuf>,
    /// Write a page with plots, one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Explain which figures of a saved run are unreliable, and why.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load explain run.json
  encke load explain --json run.json
  encke load --json http://localhost:8080/ | encke load explain -")]
pub(crate) struct ExplainArgs {
    /// File written by --json or --save; - is standard input
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the report of a saved run, or write a page of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load report run.json --report run.html         a page with plots
  encke load report --json run.json                    in the format of this version
  encke load --json http://localhost:8080/ | encke load report -")]
pub(crate) struct SavedRunArgs {
    /// File written by --json or --save; - is standard input
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Write a page with plots, one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Maximum of rounds of a comparison: with blocks of 1 s, 100 rounds take seven minutes. Intervals narrow with the square root of
/// their number.
const ROUNDS_MAX: i64 = 100;
/// TLS settings of `encke load`.
#[derive(Args, Debug)]
pub(crate) struct Secrecy {
    /// CA certificates for https [default: system roots]
    #[arg(long, value_name = "FILE", hide_short_help = true, conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// Skip certificate verification
    #[arg(long, hide_short_help = true)]
    pub(crate) insecure: bool,
    /// Server name for TLS [default: the host of the URL]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) sni: Option<String>,
    /// Whether new TLS connections resume sessions [default: on]
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) tls_resume: Switch,
}

/// Maximum of pipelined requests or streams per connection: wrk's scripts use 16, and a socket's buffers hold some thousands.
const PIPELINE_MAX: i64 = 1_024;

/// Whether a feature is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// The output format of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Layout {
    Own,
    Ab,
    Htstress,
}

/// The distribution of requests over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ArrivalsArg {
    /// At equal intervals.
    Even,
    /// Independent of each other, as requests of many users are.
    Poisson,
}

impl From<ArrivalsArg> for encke_load::Arrivals {
    fn from(arrivals: ArrivalsArg) -> Self {
        match arrivals {
            ArrivalsArg::Even => Self::Even,
            ArrivalsArg::Poisson => Self::Poisson,
        }
    }
}

/// Sign an access token for channels.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke token -c encke.toml --subscribe 'news/*' --sub ann
  encke token --key key.pem --publish '**' --ttl 5m
  ENCKE_TOKEN=$(encke token -c encke.toml --publish news) encke pub news hello")]
pub(crate) struct TokenArgs {
    /// Channels to publish to: news, news/*, **; repeatable or comma-separated
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) publish: Vec<String>,
    /// Channels to subscribe to
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) subscribe: Vec<String>,
    /// Channels whose members are visible
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) presence: Vec<String>,
    /// Channels to manage: list them, delete messages, log users out
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) manage: Vec<String>,
    /// User name, as shown to other members
    #[arg(long, value_name = "NAME")]
    pub(crate) sub: Option<String>,
    /// Lifetime, or off [default: 1h]
    #[arg(long, value_name = "TIME", default_value = "1h", hide_default_value = true)]
    pub(crate) ttl: OrOff<Period>,
    /// File of a private key (PEM) or a secret [default: from the settings]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Key id
    #[arg(long, value_name = "NAME")]
    pub(crate) kid: Option<String>,
    /// Settings file of the server [env: ENCKE_CONFIG]
    #[arg(short, long, value_name = "FILE", env = "ENCKE_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
}

/// Repeat experiments on this machine: what makes servers fast, and why.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "encke lab [OPTIONS] <EXPERIMENT>...\n       encke lab merge <FILE>… (has its own help)",
    // Clap's template without the sub-command, which the usage line above names.
    help_template = "\
{about-with-newline}
{usage-heading} {usage}

Arguments:
{positionals}

Options:
{options}{after-help}",
    after_help = "\
Examples:
  encke lab parser                           how much a switch, a goto and vectors matter
  encke lab all --quick --report lab.html    all in three minutes, as a page with plots
  encke lab merge *.json                     results of several machines, saved with --json"
)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,
    /// accept, backlog, comet, fanout, mux, parser, ring, timers, trigger, zerocopy; all
    #[arg(value_name = "EXPERIMENT", required_unless_present_any = ["list", "under_test"])]
    pub(crate) experiments: Vec<String>,
    /// Serve as the server under test of an experiment: connections in place of experiments
    #[arg(long, hide = true)]
    pub(crate) under_test: bool,
    /// List the experiments and their questions
    #[arg(long)]
    pub(crate) list: bool,
    /// en, ja or zh-Hant [default: from LC_ALL, LC_MESSAGES or LANG]
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<Language>,
    /// Fewer and smaller loads
    #[arg(long)]
    pub(crate) quick: bool,
    /// First print the question and the expectation
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write a page with plots, which needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print all results as JSON
    #[arg(long, conflicts_with_all = ["csv", "explain"])]
    pub(crate) json: bool,
    /// Print all cells as CSV
    #[arg(long, conflicts_with = "explain")]
    pub(crate) csv: bool,
    /// Seed of the order of cells [default: random]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
}

/// Sub-commands of lab.
#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    Merge(LabMerge),
}

/// Merge the --json results of several machines into one table.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke lab all --json > \"$(hostname).json\"    on each machine
  encke lab merge *.json
  encke lab merge *.json --csv > class.csv")]
pub(crate) struct LabMerge {
    /// Files written by `encke lab --json`
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Print all cells of all machines as CSV
    #[arg(long)]
    pub(crate) csv: bool,
    /// en, ja or zh-Hant [default: from LC_ALL, LC_MESSAGES or LANG]
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<Language>,
    /// Write a page with the tables, which needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Check a settings file without serving.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke check encke.toml
  ENCKE_CONFIG=/etc/encke/encke.toml encke check
  encke check encke.toml && kill -HUP \"$(cat /run/encke.pid)\"")]
pub(crate) struct Check {
    /// Settings file
    #[arg(value_name = "FILE", env = "ENCKE_CONFIG", hide_env_values = true)]
    pub(crate) file: Option<PathBuf>,
}

/// Show the status of a running server.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke status
  encke status --watch -c /etc/encke/encke.toml
  encke status --json 127.0.0.1:8081 --token TOKEN | jq .connections")]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Refresh every second
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Print the complete status as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Open the console of a running server in the browser, logged in.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke console
  encke console -c /etc/encke/encke.toml
  encke console --print 127.0.0.1:8081 --token TOKEN    only print the address")]
pub(crate) struct ConsoleArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the address, which is valid once and for ten minutes, in place of opening it
    #[arg(long)]
    pub(crate) print: bool,
}

/// The admin listener of a running server.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// Admin listener: HOST:PORT, or the printed URL [default: 127.0.0.1:8081]
    #[arg(value_name = "ADMIN")]
    pub(crate) admin: Option<String>,
    /// Access token [default: left by the server for its user]
    #[arg(long, env = "ENCKE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Settings file of the server, for address and token
    #[arg(short, long, value_name = "FILE", env = "ENCKE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Certificate authority of the server, as PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

/// Print the JSON Schema of the settings file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke schema > encke.schema.json
  encke schema | jq '.properties | keys'
  encke schema --markdown | less")]
pub(crate) struct Schema {
    /// Print the settings reference in Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Print a settings file with every key, its meaning and its default
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) toml: bool,
}

/// Print completions for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke completions bash > /etc/bash_completion.d/encke
  encke completions zsh > \"${fpath[1]}/_encke\"
  encke completions fish > ~/.config/fish/completions/encke.fish")]
pub(crate) struct Completions {
    /// Shell
    pub(crate) shell: Shell,
}

/// Print a man page.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke man | man -l -
  encke man serve | man -l -
  encke man serve > /usr/local/share/man/man1/encke-serve.1")]
pub(crate) struct Man {
    /// Sub-command [default: the program]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

/// Parses a positive number: `500`, `10k` or `2M`. (The standard error for zero addresses programmers.)
pub(crate) fn count<T: TryFrom<NonZeroU64>>(text: &str) -> Result<T, ArgumentError> {
    let number = whole_number(text).and_then(NonZeroU64::new).ok_or(ArgumentError::Count)?;
    T::try_from(number).map_err(|_| ArgumentError::CountTooLarge)
}

/// Parses a whole number with an optional `k` (thousand) or `M` (million). A small `m` is rejected: it means minutes in times.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_table_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn counts_are_whole_numbers_with_k_or_m() {
        let number = |text| count::<NonZeroU32>(text).ok().map(NonZeroU32::get);
        for (text, expected) in [("1", 1), ("500", 500), ("10k", 10_000), ("10K", 10_000), ("2M", 2_000_000)]
        {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "0",
            "0k",
            "k",
            "-1",
            "1.5k",
            "1e3",
            "2m",
            "1kk",
            "1k ",
            "１k",
            "5000M",
            "99999999999999999M",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
        let error = count::<NonZeroU32>("5000M").expect_err("more than 32 bits").to_string();
        assert!(error.contains("too large"), "{error}");
    }

    #[test]
    fn the_version_names_exactly_the_back_ends_that_are_compiled_in() {
        for backend in Backend::NAMED {
            assert_eq!(VERSION.contains(backend.name()), backend.compiled(), "{backend} in {}", *VERSION);
        }
    }

    #[test]
    fn the_version_names_every_profile_but_the_optimised_ones() {
        assert_eq!(named_build("quick"), "quick build; ");
        assert_eq!(named_build("debug"), "debug build; ");
        assert_eq!((named_build("release"), named_build("dist")), (String::new(), String::new()));
    }
}
