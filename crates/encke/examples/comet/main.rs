//! A crowd of subscribers and those who publish to it, on one thread: what a push server is measured with.
//!
//! ```text
//!             made ready                    run, measured
//! connect     nobody is connected           all connect
//! fan         all are connected             one message, until everybody has it
//! sustained   all are connected             publishers publish as soon as they are answered, for --seconds
//! cycle       nobody is connected           all connect, one message, until everybody has it (report 001 of the lab)
//! storm       all are connected             all are cut and connect again at once
//! ```
//! A round is made ready, then run. Each run prints one JSON object: durations in nanoseconds, latencies from just
//! before the publisher's send to each subscriber's receive, and what was lost, repeated or closed. With `--paced`,
//! a line on the standard input starts each of the two, and a line on the standard output says that it is done: so
//! whoever reads the server's CPU time meanwhile reads it of the run alone.

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use encke_io::host;
use serde_json::{Value, json};

mod crowd;
mod dialect;
mod engine;
mod message;

use crowd::{Crowd, Tally};
use dialect::{Dialect, Requests, Transport};
use engine::{Engine, Trouble};

/// Between two rounds of a cycle, as in report 001.
const CYCLE_PAUSE: Duration = Duration::from_secs(1);
/// Between two rounds of the others: the server comes to rest.
const PAUSE: Duration = Duration::from_millis(100);
/// What is open besides the connections: standard streams, epoll, the wake, the library's own.
const DESCRIPTORS_BESIDE: u64 = 64;

/// Holds a crowd of subscribers to a push server, publishes to them, and times every receiver.
#[derive(Parser, Debug)]
struct Options {
    /// What is measured.
    mode: Mode,
    /// The server: http://HOST:PORT
    url: String,
    /// Subscribers.
    #[arg(short = 'n', long, default_value_t = 1_000)]
    subscribers: usize,
    /// How subscribers receive.
    #[arg(long = "as", value_enum, default_value_t = Transport::Sse)]
    transport: Transport,
    /// Whose paths are used.
    #[arg(long, value_enum, default_value_t = Dialect::Encke)]
    dialect: Dialect,
    #[arg(long, default_value = "comet")]
    channel: String,
    /// Bearer token of those who publish.
    #[arg(long)]
    token: Option<String>,
    /// How often it is made ready and run.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Publishers, each on its own connection; all but sustained use the first.
    #[arg(long, default_value_t = 1)]
    publishers: usize,
    /// How long publishers publish.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How many connect at a time [default: 256; cycle and storm: all].
    #[arg(long)]
    window: Option<usize>,
    /// Longest wait for any step, in seconds.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
    /// A line of the standard input starts each step; rounds go on until it ends.
    #[arg(long)]
    paced: bool,
    /// A line for people instead of JSON.
    #[arg(long)]
    human: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Mode {
    Connect,
    Fan,
    Sustained,
    Cycle,
    Storm,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("comet: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Trouble> {
    check(options)?;
    let (host, target) = place(&options.url)?;
    let requests =
        Requests::new(options.dialect, options.transport, host, &options.channel, options.token.as_deref());
    let crowd = Crowd::new(requests, options.transport, options.subscribers, options.publishers);
    let window = options.window.unwrap_or(match options.mode {
        Mode::Cycle | Mode::Storm => options.subscribers,
        _ => 256,
    });
    let mut engine = Engine::new(crowd, target, window, Duration::from_secs(options.timeout))?;
    if options.paced {
        let lines = engine.lines();
        while engine.next_line(&lines)? {
            make_ready(options.mode, &mut engine)?;
            println!("{}", json!({ "ready": true }));
            if !engine.next_line(&lines)? {
                break;
            }
            measure(options, &mut engine)?;
        }
        return Ok(());
    }
    for round in 0..options.rounds {
        if round > 0 {
            engine.pause(if options.mode == Mode::Cycle { CYCLE_PAUSE } else { PAUSE })?;
        }
        make_ready(options.mode, &mut engine)?;
        measure(options, &mut engine)?;
    }
    Ok(())
}

/// Refuses what cannot be meant, before anything is connected.
fn check(options: &Options) -> Result<(), Trouble> {
    let connections = (options.subscribers + options.publishers) as u64;
    let descriptors = host::raise_descriptor_limit();
    if connections + DESCRIPTORS_BESIDE > descriptors {
        let most = descriptors.saturating_sub(DESCRIPTORS_BESIDE + options.publishers as u64);
        return Err(format!("this process may hold {most} subscribers (ulimit -n is {descriptors})").into());
    }
    if options.publishers == 0 || options.publishers > message::PUBLISHERS_MAX {
        return Err(format!("--publishers goes from 1 to {}", message::PUBLISHERS_MAX).into());
    }
    if options.mode == Mode::Sustained && options.transport == Transport::Poll {
        return Err(
            "sustained needs a stream: --as sse or --as ws (what is said between two polls would count \
                    as lost)"
                .into(),
        );
    }
    Ok(())
}

/// The `HOST:PORT` of a URL, and its address.
fn place(url: &str) -> Result<(&str, SocketAddr), Trouble> {
    let host = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let address =
        host.to_socket_addrs().map_err(|error| format!("{url}: {error}; it must be http://HOST:PORT"))?;
    Ok((host, address.into_iter().next().ok_or_else(|| format!("{url} has no address"))?))
}

fn make_ready(mode: Mode, engine: &mut Engine) -> Result<(), Trouble> {
    engine.connect_publishers()?;
    match mode {
        Mode::Connect | Mode::Cycle => {
            engine.cut_all();
            engine.rest()
        }
        Mode::Storm => engine.connect_all(),
        Mode::Fan | Mode::Sustained => {
            engine.connect_all()?;
            engine.ask_again()?;
            engine.settle()?;
            Ok(())
        }
    }
}

fn measure(options: &Options, engine: &mut Engine) -> Result<(), Trouble> {
    engine.crowd.begin();
    let cpu_seconds = host::cpu_seconds();
    let start_ns = engine.now_ns();
    let mut figures = json!({
        "mode": format!("{:?}", options.mode).to_lowercase(),
        "dialect": format!("{:?}", options.dialect).to_lowercase(),
        "as": format!("{:?}", options.transport).to_lowercase(),
        "subscribers": options.subscribers,
    });
    match options.mode {
        Mode::Connect => {
            engine.connect_all()?;
            figures["connect_ns"] = (engine.now_ns() - start_ns).into();
        }
        Mode::Storm => {
            engine.cut_all();
            engine.connect_all()?;
            figures["back_ns"] = (engine.now_ns() - start_ns).into();
        }
        Mode::Fan => {
            engine.publish_one()?;
            add_fan(&mut figures, engine);
        }
        Mode::Cycle => {
            engine.connect_all()?;
            figures["connect_ns"] = (engine.now_ns() - start_ns).into();
            let known = engine.settle()?;
            figures["known_ns"] = known.then(|| engine.now_ns() - start_ns).into();
            engine.publish_one()?;
            add_fan(&mut figures, engine);
        }
        Mode::Sustained => {
            let in_time = engine.publish_for(Duration::from_secs(options.seconds))?;
            figures["publishers"] = options.publishers.into();
            figures["seconds"] = options.seconds.into();
            figures["published"] = engine.crowd.tally.sent.into();
            figures["delivered_per_second"] = (in_time as f64 / options.seconds as f64).into();
        }
    }
    add_tally(&mut figures, engine, host::cpu_seconds() - cpu_seconds);
    if options.human {
        println!("{}", line(options.mode, &figures));
    } else {
        println!("{figures}");
    }
    Ok(())
}

/// What one message took to the first and from the first to the last.
fn add_fan(figures: &mut Value, engine: &Engine) {
    let Tally { received, first_ns, last_ns, .. } = engine.crowd.tally;
    if received > 0 {
        figures["first_ns"] = (first_ns - engine.crowd.last_sent_ns(0)).into();
        figures["spread_ns"] = (last_ns - first_ns).into();
    }
}

fn add_tally(figures: &mut Value, engine: &Engine, cpu_seconds: f64) {
    let Crowd { tally, awaited, .. } = &engine.crowd;
    for (name, quantile) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("max_ns", 1.0)] {
        figures[name] = tally.latency.quantile_ns(quantile).into();
    }
    figures["received"] = tally.received.into();
    figures["lost"] = (tally.lost + awaited).into();
    figures["repeated"] = tally.repeated.into();
    figures["closed"] = tally.closed.into();
    figures["turned_away"] = tally.turned_away.into();
    figures["own_cpu_ns"] = ((cpu_seconds * 1e9) as u64).into();
}

/// The figures in one line; a cycle's in the form of report 001.
fn line(mode: Mode, figures: &Value) -> String {
    let ns = |name: &str| figures[name].as_f64().unwrap_or_default();
    let (ms, count) = (|name: &str| ns(name) / 1e6, |name: &str| figures[name].as_u64().unwrap_or_default());
    let subscribers = count("subscribers");
    let mut text = match mode {
        Mode::Connect => format!("{subscribers} connected in {:.1} ms", ms("connect_ns")),
        Mode::Storm => format!("{subscribers} back in {:.1} ms", ms("back_ns")),
        Mode::Fan => format!(
            "{subscribers}: first {:.2} ms, r {:.2} ms, p50 {:.2}, p99 {:.2}, max {:.2} ms",
            ms("first_ns"),
            ms("spread_ns"),
            ms("p50_ns"),
            ms("p99_ns"),
            ms("max_ns")
        ),
        Mode::Cycle => {
            let each = |name: &str| (ns(name) / 1e9, ns(name) / 1e9 / subscribers as f64);
            let ((c, c_each), (r, r_each)) = (each("connect_ns"), each("spread_ns"));
            format!("c,{subscribers},{c:.6},{c_each:.8}\nr,{subscribers},{r:.6},{r_each:.8}")
        }
        Mode::Sustained => format!(
            "{subscribers}: {:.0}/s delivered of {} published, p50 {:.1}, p99 {:.1}, max {:.1} ms",
            ns("delivered_per_second"),
            count("published"),
            ms("p50_ns"),
            ms("p99_ns"),
            ms("max_ns")
        ),
    };
    for wrong in ["lost", "repeated", "closed", "turned_away"] {
        if count(wrong) > 0 {
            let _infallible = write!(text, ", {} {}", count(wrong), wrong.replace('_', " "));
        }
    }
    if mode != Mode::Cycle {
        let _infallible = write!(text, "; own CPU {:.1} ms", ms("own_cpu_ns"));
    }
    text
}
