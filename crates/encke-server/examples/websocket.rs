//! A WebSocket that echoes messages.
//!
//! `cargo run -p encke-server --example websocket`, then connect a client to `ws://127.0.0.1:8080/echo`

use encke_server::{Answers, Exchange, Options, Outcome, Request, Server, Socket, SocketMessage, Upgrade};

/// A longer message ends the connection with close code 1009.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = app(Server::new(Options::default()).listen("127.0.0.1:8080".parse()?)).start()?;
    println!("ws://{}/echo", running.addresses()[0]);
    running.join();
    Ok(())
}

pub(crate) fn app(server: Server) -> Server {
    server.mount("/echo", |request: &Request<'_>, _: Exchange| {
        match Upgrade::accept(request, MESSAGE_BYTES_MAX, Echo) {
            Ok(upgrade) => Outcome::Takeover(upgrade.compressed(request).into()),
            // Not a valid handshake: 400 or 426.
            Err(reply) => Outcome::Now(reply),
        }
    })
}

/// One per connection. Fields of the type keep the state of the connection.
pub(crate) struct Echo;

impl Socket for Echo {
    fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
        answers.send(message);
    }
}
