//! The smallest server: a handler that responds at once.
//!
//! `cargo run -p encke-server --example hello`, then `curl http://127.0.0.1:8080/`

use encke_server::{Exchange, Options, Outcome, Reply, Request, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app(Server::new(Options::default()).listen("127.0.0.1:8080".parse()?)).start()?;
    println!("http://{}/", running.addresses()[0]);
    running.join();
    Ok(())
}

pub(crate) fn app(server: Server) -> Server {
    server.mount("/", |request: &Request<'_>, _: Exchange| {
        let path = String::from_utf8_lossy(request.path());
        Outcome::Now(Reply::text(200, format!("You asked for {path}\n")))
    })
}
