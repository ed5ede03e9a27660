//! A small server with three responses: an immediate one, one from another thread, and a stream.
//!
//! `cargo run -p encke-server --example hello -- 127.0.0.1:8080 [BACKEND]`

use std::sync::Arc;
use std::time::Duration;

use encke_server::{
    Body, Exchange, Fields, Options, Outcome, Prepared, Pull, Pulled, Reply, Request, Server,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".into()).parse()?;
    let backend = arguments.next().map(|name| name.parse()).transpose()?;

    let mut fields = Fields::new();
    fields.push("Content-Type", b"text/plain")?;
    let hello = Arc::new(Prepared::memory(200, fields, b"Hello, World!"));

    let running = Server::new(Options { workers: Some(1), backend, ..Options::default() })
        .listen(address)
        // At once, from memory.
        .mount("/", move |_: &Request<'_>, _| Outcome::Now(Reply::prepared(Arc::clone(&hello))))
        // Later, from another thread.
        .mount("/later", |_: &Request<'_>, exchange: Exchange| {
            std::thread::spawn(move || exchange.answer(Reply::text(200, "This took a thread.\n")));
            Outcome::Later
        })
        // Piece by piece, as the client receives it.
        .mount("/count", |_: &Request<'_>, _| {
            Outcome::Now(Reply::new(200).body(Body::Stream(Box::new(Count(0)))))
        })
        .start()?;
    println!("http://{}/ on {}", running.addresses()[0], running.backend().0);
    // Until ^C on the terminal.
    loop {
        std::thread::park_timeout(Duration::MAX);
    }
}

/// The numbers below a million.
struct Count(u32);

impl Pull for Count {
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled {
        let end = out.len() + max - 16;
        while out.len() < end {
            if self.0 == 1_000_000 {
                return Pulled::End;
            }
            out.extend_from_slice(format!("{}\n", self.0).as_bytes());
            self.0 += 1;
        }
        Pulled::More
    }
}
