//! A JSON handler that responds later: it passes the exchange to a thread, which responds.
//!
//! `cargo run -p encke-server --example json_later`, then `curl 'http://127.0.0.1:8080/square?of=12'`

use std::sync::mpsc::sync_channel;
use std::thread;

use encke_server::{Body, Exchange, Options, Outcome, Reply, Request, Server};
use serde_json::{Value, json};

/// Jobs that wait for the thread; further requests get a 503.
const JOBS_MAX: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app(Server::new(Options::default()).listen("127.0.0.1:8080".parse()?)).start()?;
    println!("http://{}/square?of=12", running.addresses()[0]);
    running.join();
    Ok(())
}

pub(crate) fn app(server: Server) -> Server {
    let (jobs, queue) = sync_channel::<(i32, Exchange)>(JOBS_MAX);
    // Ends with the server, whose handlers hold the other end of the queue.
    thread::spawn(move || {
        for (number, exchange) in queue {
            exchange.answer(json_reply(200, &json!({ "square": i64::from(number).pow(2) })));
        }
    });
    server.mount("/square", move |request: &Request<'_>, exchange: Exchange| {
        let Some(number) = number(request) else {
            return Outcome::Now(json_reply(400, &json!({ "error": "expected ?of=NUMBER" })));
        };
        match jobs.try_send((number, exchange)) {
            Ok(()) => Outcome::Later,
            Err(_full) => Outcome::Now(json_reply(503, &json!({ "error": "too many jobs" }))),
        }
    })
}

fn number(request: &Request<'_>) -> Option<i32> {
    std::str::from_utf8(request.query()?).ok()?.strip_prefix("of=")?.parse().ok()
}

fn json_reply(status: u16, value: &Value) -> Reply {
    Reply::new(status)
        .with("Content-Type", "application/json")
        .body(Body::Bytes(format!("{value}\n").into_bytes()))
}
