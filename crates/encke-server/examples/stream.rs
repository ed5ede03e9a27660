//! A stream: the server pulls lines that a thread produces, as fast as the client reads them.
//!
//! `cargo run -p encke-server --example stream`, then `curl http://127.0.0.1:8080/progress`

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use encke_server::{Body, Exchange, Options, Outcome, Pull, Pulled, Reply, Request, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app(Server::new(Options::default()).listen("127.0.0.1:8080".parse()?)).start()?;
    println!("http://{}/progress", running.addresses()[0]);
    running.join();
    Ok(())
}

pub(crate) fn app(server: Server) -> Server {
    let progress = |_: &Request<'_>, exchange: Exchange| {
        let (send, lines) = channel();
        let wake = exchange.wake_handle();
        thread::spawn(move || {
            for step in 1..=3 {
                // An error: the client has disconnected, and the stream was dropped.
                if send.send(format!("step {step} of 3\n")).is_err() {
                    return;
                }
                wake.wake();
            }
            drop(send);
            wake.wake();
        });
        let body = Body::Stream(Box::new(Progress(lines)));
        Outcome::Now(Reply::new(200).with("Content-Type", "text/plain").body(body))
    };
    server.mount("/progress", progress)
}

/// Lines of a thread, which wakes the stream after each.
struct Progress(Receiver<String>);

impl Pull for Progress {
    fn pull(&mut self, _max: usize, out: &mut Vec<u8>) -> Pulled {
        match self.0.try_recv() {
            Ok(line) => {
                out.extend_from_slice(line.as_bytes());
                Pulled::More
            }
            Err(TryRecvError::Empty) => Pulled::Pending,
            Err(TryRecvError::Disconnected) => Pulled::End,
        }
    }
}
