//! A graceful shutdown: after SIGTERM or ^C the server finishes open requests, accepts no new ones, and exits.
//!
//! `cargo run -p encke-server --example drain`, then `kill -TERM PID`

use std::time::Duration;

use encke_io::host::{Signal, Signals};
use encke_server::{Options, Outcome, Reply, Request, Running, Server};

/// Time for load balancers to notice that `/readyz` of the admin listener returns 503. The server still accepts.
const DELAY: Duration = Duration::from_secs(1);
/// Time for open requests after that.
const TIME: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before the first thread starts: threads inherit the blocked signals.
    let signals = Signals::block();
    let running = app(Server::new(Options::default()).listen("127.0.0.1:8080".parse()?)).start()?;
    println!("http://{}/ of process {}", running.addresses()[0], std::process::id());
    serve_until(running, DELAY, || while !matches!(signals.wait(), Signal::Terminate | Signal::Interrupt) {});
    Ok(())
}

pub(crate) fn app(server: Server) -> Server {
    server.mount("/", |_: &Request<'_>, _| Outcome::Now(Reply::text(200, "Hello, World!\n")))
}

/// Serves until `wait` returns, then drains.
pub(crate) fn serve_until(running: Running, delay: Duration, wait: impl FnOnce()) {
    wait();
    running.drain(delay, TIME);
    running.join();
}
