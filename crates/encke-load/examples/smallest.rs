//! A minimal run: a number of connections to a server, for some seconds, and the results.
//!
//! `cargo run --release -p encke-load --example smallest -- http://127.0.0.1:8080/ 64 5`

use std::error::Error;
use std::time::Duration;

use encke_load::{Mix, Plan, PreparedRequest, RunHandle, Stop, Style, Url};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |fallback: &str| arguments.next().unwrap_or_else(|| fallback.to_owned());
    let url: Url = next("http://127.0.0.1:8080/").parse()?;
    let connections = next("64").parse()?;
    let seconds = next("5").parse()?;

    let message = PreparedRequest::new("GET", &url.authority(), url.target(), &[], None, Style::default())?;
    let mix = Mix::new(vec![(message, 1)]).ok_or("one message is a mix")?;
    let server = url.addresses()?.remove(0);
    let stop = Stop::After(Duration::from_secs(seconds));
    let mut run = RunHandle::start(Plan { connections, stop, ..Plan::new(server, mix) })?;
    while !run.wait(Duration::from_secs(1)) {}
    let outcome = run.outcome()?;

    let seconds = outcome.elapsed.as_secs_f64();
    let totals = &outcome.totals;
    println!(
        "{} answers in {seconds:.2} s, {:.0} a second",
        totals.finished,
        totals.finished as f64 / seconds
    );
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
        println!("{name:>6} {:>8} µs", totals.service.quantile_ns(share).unwrap_or(0) / 1_000);
    }
    for error in outcome.errors.iter() {
        println!("{} × {}: {}", error.count, error.phase, error.cause);
    }
    Ok(())
}
