//! Flags and help of every sub-command: the table from which help, completions and man pages are generated.
//!
//! Each `-h` fits one screen (24 lines of 100 columns; a test counts) and ends with three examples.

use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use encke_assembly::settings::{ListenAddress, OrAuto, OrOff, Period};
use encke_io::Backend;
use encke_lab::texts::Language;
use encke_load::plan::WarmUp;
use encke_load::{Rate, Slo, Sources};

use crate::load::{self, Foreign, Push, Watching, Weighted};
use crate::publish::Pace;
use crate::subscribe::Since;

/// The web server for things that stay connected.
#[derive(Parser, Debug)]
#[command(
    name = "encke",
    version = VERSION.as_str(),
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    // Clap's template, except for the last part, which would take four lines.
    help_template = "\
{about-with-newline}
{usage-heading} {usage}

Commands:
{subcommands}

Options: -h, --help and -V, --version; each command has a help of its own{after-help}",
    after_help = "\
Examples:
  encke serve public          serve the folder `public` on http://localhost:8080/
  encke pub news 'hello'      publish to everybody who is subscribed to `news` there
  encke serve -h              what else `serve` can be told"
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
    Pub(Publish),
    Sub(Subscribe),
    Load(Box<Load>),
    Token(Token),
    Lab(Lab),
    Check(Check),
    Status(Status),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

/// Serve a folder, or the sites of a settings file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke serve public --list              a folder, with listings, on http://localhost:8080/
  encke serve -l :80 -l unix:/run/e.sock all addresses, and a Unix socket, from the present folder
  encke serve -c /etc/encke/encke.toml   what the settings file says; flags win over it")]
pub(crate) struct Serve {
    /// The folder to serve [default: the present one]
    #[arg(value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Settings file [env: ENCKE_CONFIG]
    #[arg(short, long, value_name = "FILE", env = "ENCKE_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
    /// 8080, :8080, HOST:PORT or unix:PATH; repeatable [default: 8080]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Threads that serve, or auto [default: auto]
    #[arg(short, long, value_name = "COUNT")]
    pub(crate) workers: Option<OrAuto<NonZeroU16>>,
    /// auto, uring, epoll-edge, epoll-level or poll [default: auto]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<OrAuto<Backend>>,
    /// Connections the kernel holds before they are accepted [default: 4096]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) backlog: Option<u32>,
    /// Where metrics and status are, or off [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<OrOff<ListenAddress>>,
    /// List folders that have no index file
    #[arg(long)]
    pub(crate) list: bool,
    /// Answer navigation to unknown pages with the index file
    #[arg(long)]
    pub(crate) spa: bool,
    /// Let everybody who reaches it publish and subscribe without a token
    #[arg(long)]
    pub(crate) open: bool,
    /// Speak https; the start says how to trust this machine's own authority
    #[arg(long)]
    pub(crate) tls_self_signed: bool,
}

/// Serve a chat that the program carries with it, to see push at work.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke demo                    then open http://localhost:8080/ in two windows
  encke demo -l :8080 --open    for the telephones in the same network, too
  encke sub --json chat/lobby   hear in a terminal what is said")]
pub(crate) struct Demo {
    /// 8080, :8080, HOST:PORT or unix:PATH; repeatable [default: 8080]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Let everybody who reaches it take part, not only this machine
    #[arg(long)]
    pub(crate) open: bool,
}

/// Publish to a channel.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke pub news 'hello, world'
  tail -f app.log | encke pub log - --rate 50/s
  encke pub http://example.com/push/news @news.json --type application/json")]
pub(crate) struct Publish {
    /// A channel, or its URL
    #[arg(value_name = "CHANNEL|URL")]
    pub(crate) channel: String,
    /// The message, @FILE, or - for each line of standard input [default: all of it]
    #[arg(value_name = "DATA", allow_negative_numbers = true)]
    pub(crate) data: Option<String>,
    /// The same as @FILE
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) file: Option<PathBuf>,
    /// With -: at most so many lines a second or minute (50/s, 30/m)
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Pace>,
    /// Name of the event
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Content type [default: text if it is UTF-8, else bytes]
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// A repeat with the same key is not published again (with -: KEY-1, KEY-2, …)
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Print the answers as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Which server is asked, and in whose name.
#[derive(Args, Debug)]
pub(crate) struct Reach {
    /// The server [env: ENCKE_URL] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", env = "ENCKE_URL", hide_env = true)]
    #[arg(default_value = SERVER_DEFAULT, hide_default_value = true)]
    pub(crate) server: String,
    /// A token [env: ENCKE_TOKEN]
    #[arg(long, env = "ENCKE_TOKEN", hide_env = true)]
    pub(crate) token: Option<String>,
    /// Whom to believe by https [default: the system's roots]; --insecure: anybody
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// Believe anybody behind https. Told above, so that the help fits its screen.
    #[arg(long, hide = true)]
    pub(crate) insecure: bool,
}

/// The default listening address of `encke serve`.
const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

/// Print what is published to channels.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke sub news chat/lobby                  a line a message, until ^C
  encke sub news --since all -n 1 --timeout 5s
  encke sub http://example.com/push/prices --since 10m --json | jq .data")]
pub(crate) struct Subscribe {
    /// Channels, or their URLs
    #[arg(value_name = "CHANNEL|URL", required = true)]
    pub(crate) channels: Vec<String>,
    /// Begin with now, all, last:N, an age (10m), or behind an id [default: now]
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<Since>,
    /// End after so many messages
    #[arg(short = 'n', long, value_parser = count::<NonZeroU64>)]
    pub(crate) count: Option<NonZeroU64>,
    /// End after so long without a message; status 1 if too few have come
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Period>,
    /// Envelopes, with id, channel, event, type and time, as JSON lines
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
    /// The bytes of the messages and nothing else
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Send requests, and measure what comes of them.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "encke load [OPTIONS] <URL>...\n       encke load push|compare|merge|explain|report … (each has a help of its own)",
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
pub(crate) struct Load {
    #[command(subcommand)]
    pub(crate) command: Option<LoadCommand>,
    /// Where to; WEIGHT@URL if it is one of several
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<Weighted>,
    /// End after so many requests
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        value_parser = count::<NonZeroU64>,
        conflicts_with = "duration"
    )]
    pub(crate) requests: Option<NonZeroU64>,
    /// End after so long [default: 10s]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) duration: Option<Period>,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    /// What must hold, else the status is 3: 'p99<10ms,errors<0.1%'
    #[arg(long, value_name = "CONDITIONS")]
    pub(crate) slo: Vec<Slo>,
    /// Everything, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Save the run to a file, as --json prints it
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) save: Option<PathBuf>,
    /// Write a page with plots: one HTML file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) report: Option<PathBuf>,
    /// Look at the server meanwhile: a process of this machine, or http://HOST:8081/metrics
    #[arg(long, value_name = "PID|URL", hide_short_help = true)]
    pub(crate) watch: Option<Watching>,
    /// On a terminal, too, show lines in place of the live screen
    #[arg(long, hide_short_help = true)]
    pub(crate) plain: bool,
    /// Search the highest rate at which this holds: 'p99<50ms,errors<0.1%'
    #[arg(long, value_name = "CONDITIONS", hide_short_help = true)]
    #[arg(conflicts_with_all = ["requests", "rate", "slo", "pipeline", "streams"])]
    pub(crate) find_max: Option<Slo>,
    /// Take the flags of ab or htstress, and print what they print; comes first
    #[arg(long = "as", value_name = "TOOL", hide_short_help = true)]
    pub(crate) dress: Option<String>,
    /// What `--as` has been put into
    #[arg(long, hide = true, default_value = "own")]
    pub(crate) layout: Layout,
    /// Do so much first and do not count it: a time, or a number of requests
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

/// What is sent, and how: what a run and a comparison have in common.
#[derive(Args, Debug)]
pub(crate) struct Traffic {
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
    /// Requests a second, whatever the server does: 20k, 1k..50k/60s
    #[arg(short, long)]
    pub(crate) rate: Option<Rate>,
    /// The method [default: GET, with a body POST]
    #[arg(short = 'X', long, hide_short_help = true)]
    pub(crate) method: Option<String>,
    /// A field of the requests, 'Name: value'; repeatable
    #[arg(short = 'H', long, value_name = "FIELD")]
    pub(crate) header: Vec<String>,
    /// The body: a text, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// A new connection for each request
    #[arg(long, hide_short_help = true, conflicts_with = "per_conn")]
    pub(crate) no_keepalive: bool,
    /// Requests after which a connection is closed and another one opened
    #[arg(long, value_name = "COUNT", value_parser = count::<NonZeroU32>, hide_short_help = true)]
    pub(crate) per_conn: Option<NonZeroU32>,
    /// Requests sent on a connection before the first of them is answered [default: 1]
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "1",
        hide_default_value = true,
        hide_short_help = true
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=PIPELINE_MAX))]
    pub(crate) pipeline: u16,
    /// Speak HTTP/2: by https nothing else is offered, by http the server is known to speak it
    #[arg(long, conflicts_with = "http10", hide_short_help = true)]
    pub(crate) http2: bool,
    /// With --http2: requests under way at a time on a connection [default: 1]
    #[arg(long, value_name = "COUNT", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=PIPELINE_MAX))]
    pub(crate) streams: Option<u16>,
    /// Speak HTTP/1.0
    #[arg(long, hide_short_help = true)]
    pub(crate) http10: bool,
    /// A request that takes longer has failed [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) timeout: Period,
    /// Statuses that are no wrong answer: 200, 2xx, 200-399 [default: 100-399]
    #[arg(long, value_name = "STATUSES", hide_short_help = true, value_parser = load::statuses)]
    pub(crate) expect_status: Option<load::Statuses>,
    /// What every body must be: a text, @FILE or sha256:DIGITS; another one is a wrong answer
    #[arg(long, value_name = "TEXT", hide_short_help = true, allow_hyphen_values = true)]
    pub(crate) expect_body: Option<String>,
    /// Requests from a file, one a line: a URL or a path, before it METHOD or WEIGHT@; the URL names the server
    #[arg(long = "urls", value_name = "FILE", hide_short_help = true, conflicts_with = "from_log")]
    pub(crate) list: Option<PathBuf>,
    /// The GETs and HEADs of an access log, in their order; the URL names the server
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) from_log: Option<PathBuf>,
    /// With --from-log: at the times at which they came
    #[arg(long, hide_short_help = true, requires = "from_log", conflicts_with = "rate")]
    pub(crate) replay: bool,
    /// With a rate: how requests are spread over time [default: even]
    #[arg(
        long,
        value_name = "HOW",
        default_value = "even",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) arrivals: Arrivals,
    #[command(flatten)]
    pub(crate) secrecy: Secrecy,
    /// Addresses of this machine that connections come from: 127.0.0.2-9,127.0.0.20
    #[arg(long, value_name = "ADDRESSES", hide_short_help = true, conflicts_with = "unix")]
    pub(crate) source: Vec<Sources>,
    /// A Unix socket at which the server listens; the URL says what is asked of it
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub(crate) unix: Option<PathBuf>,
    /// auto, uring, epoll-edge, epoll-level or poll [default: auto]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) backend: Option<OrAuto<Backend>>,
    /// Where chance begins: the same one repeats the same choices [default: 1]
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

/// What else is done with load, and with runs that were saved.
#[derive(Subcommand, Debug)]
pub(crate) enum LoadCommand {
    Push(Box<Push>),
    Compare(Box<Compare>),
    Merge(Merge),
    Explain(Explain),
    Report(SavedRun),
}

/// Compare two servers, measured in turns, or two saved runs: B ÷ A, with intervals.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load compare http://localhost:8080/ http://localhost:8081/
  encke load compare --rounds 20 -r 5k http://a/ http://b/
  encke load compare yesterday.json today.json                 what --json or --save has written")]
pub(crate) struct Compare {
    /// A: a URL, or the file of a saved run
    #[arg(value_name = "A")]
    pub(crate) one: String,
    /// B: the same
    #[arg(value_name = "B")]
    pub(crate) other: String,
    /// How long each is measured at a time
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) block: Period,
    /// Rounds of A B B A or B A A B; fewer than 4 say nothing
    #[arg(long, value_name = "COUNT", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=ROUNDS_MAX))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    /// The servers' CPU a request, too: A's, then B's; or one for both
    #[arg(long, value_name = "PID|URL")]
    pub(crate) watch: Vec<load::Watching>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Join saved runs that were made at the same time, by several generators.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load merge one.json two.json                   the summary of both together
  encke load merge --json *.json >all.json             the same, saved
  encke load merge --json one.json two.json | jq .rate_per_s")]
pub(crate) struct Merge {
    /// Files that --json or --save has written
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub(crate) runs: Vec<PathBuf>,
    /// Write a page with plots: one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Everything, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say in words which figures of a saved run not to trust, and why.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load explain run.json
  encke load explain --json run.json
  encke load --json http://localhost:8080/ | encke load explain -")]
pub(crate) struct Explain {
    /// A file that --json or --save has written; - is standard input
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a saved run as it was printed when it was made, or make a page of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke load report run.json --report run.html         a page with plots
  encke load report --json run.json                    as this version writes it
  encke load --json http://localhost:8080/ | encke load report -")]
pub(crate) struct SavedRun {
    /// A file that --json or --save has written; - is standard input
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Write a page with plots: one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Everything, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Maximum of rounds of a comparison: with blocks of 1 s, 100 rounds take seven minutes. Intervals narrow with the square root of
/// their number.
const ROUNDS_MAX: i64 = 100;
/// TLS settings of `encke load`.
#[derive(Args, Debug)]
pub(crate) struct Secrecy {
    /// Whom to believe by https [default: whom the system believes]
    #[arg(long, value_name = "FILE", hide_short_help = true, conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// Believe anybody behind https
    #[arg(long, hide_short_help = true)]
    pub(crate) insecure: bool,
    /// By https: the name that is asked for and certified [default: the host of the URL]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) sni: Option<String>,
    /// By https: whether a new connection goes on with an old one's session [default: on]
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

/// What is done or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Whose words a report is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Layout {
    Own,
    Ab,
    Htstress,
}

/// How requests that are due are spread over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Arrivals {
    /// At equal distances.
    Even,
    /// Independent of each other, as those of many users are.
    Poisson,
}

impl From<Arrivals> for encke_load::Arrivals {
    fn from(arrivals: Arrivals) -> Self {
        match arrivals {
            Arrivals::Even => Self::Even,
            Arrivals::Poisson => Self::Poisson,
        }
    }
}

/// Make a token: who may do what on channels.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke token -c encke.toml --subscribe 'news/*' --sub ann
  encke token --key key.pem --publish '**' --ttl 5m
  ENCKE_TOKEN=$(encke token -c encke.toml --publish news) encke pub news hello")]
pub(crate) struct Token {
    /// Channels to publish to: news, news/*, **; repeatable, or with commas
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) publish: Vec<String>,
    /// Channels to read
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) subscribe: Vec<String>,
    /// Channels whose members may be seen
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) presence: Vec<String>,
    /// Channels whose messages may be forgotten
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub(crate) manage: Vec<String>,
    /// The user's name, as other members see it
    #[arg(long, value_name = "NAME")]
    pub(crate) sub: Option<String>,
    /// How long it is valid, or off [default: 1h]
    #[arg(long, value_name = "TIME", default_value = "1h", hide_default_value = true)]
    pub(crate) ttl: OrOff<Period>,
    /// A private key (PEM) or a secret [default: from the settings]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The name of the key
    #[arg(long, value_name = "NAME")]
    pub(crate) kid: Option<String>,
    /// The server's settings file [env: ENCKE_CONFIG]
    #[arg(short, long, value_name = "FILE", env = "ENCKE_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
}

/// Repeat experiments on this machine: what makes servers fast, and why.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "encke lab [OPTIONS] <EXPERIMENT>...\n       encke lab merge <FILE>… (has a help of its own)",
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
  encke lab merge *.json                     what many machines have saved with --json"
)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,
    /// accept, backlog, comet, fanout, mux, parser, ring, timers, trigger, zerocopy; all
    #[arg(value_name = "EXPERIMENT", required_unless_present_any = ["list", "under_test"])]
    pub(crate) experiments: Vec<String>,
    /// Serve, for an experiment that has started this: connections in place of experiments
    #[arg(long, hide = true)]
    pub(crate) under_test: bool,
    /// Say which experiments there are, and what each is about
    #[arg(long)]
    pub(crate) list: bool,
    /// en, ja or zh-Hant [default: as LC_ALL, LC_MESSAGES or LANG say]
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<Language>,
    /// Fewer and smaller loads
    #[arg(long)]
    pub(crate) quick: bool,
    /// Say first what is asked, what is done, and what to expect
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write a page with plots; it needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Everything, as JSON
    #[arg(long, conflicts_with_all = ["csv", "explain"])]
    pub(crate) json: bool,
    /// All cells, as CSV
    #[arg(long, conflicts_with = "explain")]
    pub(crate) csv: bool,
    /// Decides the order of cells [default: by chance]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
}

/// What else is done with results of the laboratory.
#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    Merge(LabMerge),
}

/// Lay out what several machines have saved with --json: one table of a class.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke lab all --json > \"$(hostname).json\"    on each machine
  encke lab merge *.json
  encke lab merge *.json --csv > class.csv")]
pub(crate) struct LabMerge {
    /// Files that `encke lab --json` has written
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// All cells of all machines, as CSV
    #[arg(long)]
    pub(crate) csv: bool,
    /// en, ja or zh-Hant [default: as LC_ALL, LC_MESSAGES or LANG say]
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<Language>,
    /// Write a page with the tables; it needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Look a settings file over, without serving anything.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke check encke.toml
  ENCKE_CONFIG=/etc/encke/encke.toml encke check
  encke check encke.toml && kill -HUP \"$(cat /run/encke.pid)\"")]
pub(crate) struct Check {
    /// The settings file
    #[arg(value_name = "FILE", env = "ENCKE_CONFIG", hide_env_values = true)]
    pub(crate) file: Option<PathBuf>,
}

/// Tell how a running server does.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke status 'http://127.0.0.1:8081/?token=TOKEN'
  encke status --watch -c /etc/encke/encke.toml
  encke status --json 127.0.0.1:8081 --token TOKEN | jq .connections")]
pub(crate) struct Status {
    /// The admin listener: HOST:PORT, or the URL it printed [default: 127.0.0.1:8081]
    #[arg(value_name = "ADMIN")]
    pub(crate) admin: Option<String>,
    /// Its token
    #[arg(long, env = "ENCKE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The server's settings file, for address and token
    #[arg(short, long, value_name = "FILE", env = "ENCKE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Look again every second
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Everything, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the JSON Schema of the settings file.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke schema > encke.schema.json
  encke schema | jq '.properties | keys'
  encke schema --markdown | less")]
pub(crate) struct Schema {
    /// As a page to read: the settings reference
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Print completions for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke completions bash > /etc/bash_completion.d/encke
  encke completions zsh > \"${fpath[1]}/_encke\"
  encke completions fish > ~/.config/fish/completions/encke.fish")]
pub(crate) struct Completions {
    /// The shell
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
    /// Of this sub-command [default: of the program]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

/// Parses a positive number. (The standard error for zero addresses programmers.)
fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number, 1 or more".into())
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
