//! A relay: the content of each response comes from another server, which is paused while the client reads more slowly.
//!
//! `cargo run -p encke-server --example relay -- 127.0.0.1:9000`, then `curl http://127.0.0.1:8080/`

use std::collections::HashMap;
use std::net::SocketAddr;

use encke_server::{
    Body, Exchange, ExchangeKey, Fields, Handler, HandlerContext, Mount, Options, Outcome, Reply, Request,
    Server, UpstreamEvent, UpstreamId, WorkerSetup,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: relay ADDRESS:PORT")?.parse()?;
    let server = Server::new(Options::default()).listen("127.0.0.1:8080".parse()?);
    let running = server.mount("/", Relay(target)).start()?;
    println!("http://{}/", running.addresses()[0]);
    running.join();
    Ok(())
}

/// The address of the other server.
pub(crate) struct Relay(pub(crate) SocketAddr);

/// A worker's relay.
struct RelayHandler {
    target: SocketAddr,
    context: HandlerContext,
    exchanges: HashMap<UpstreamId, ExchangeKey>,
}

impl Mount for Relay {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(RelayHandler { target: self.0, context, exchanges: HashMap::new() })
    }
}

impl RelayHandler {
    fn upstream_of(&self, exchange: ExchangeKey) -> Option<UpstreamId> {
        self.exchanges.iter().find(|(_, key)| **key == exchange).map(|(id, _)| *id)
    }
}

impl Handler for RelayHandler {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        let id = self.context.dial(self.target.into(), None);
        self.exchanges.insert(id, exchange.key());
        self.context.respond(exchange, Reply::new(200).body(Body::Open(None)));
        Outcome::Later
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        let Some(exchange) = self.exchanges.get(&id).copied() else { return };
        match event {
            UpstreamEvent::Received(bytes) => {
                let queued = self.context.write(exchange, bytes);
                // `Handler::writable` resumes the other server.
                if queued.is_full {
                    self.context.pause(id);
                }
            }
            UpstreamEvent::Ended => {
                self.context.finish(exchange, Fields::new());
                self.context.close(id);
                self.exchanges.remove(&id);
            }
            UpstreamEvent::Failed(_) => {
                self.context.reset(exchange);
                self.exchanges.remove(&id);
            }
            _ => {}
        }
    }

    fn writable(&mut self, exchange: ExchangeKey) {
        if let Some(id) = self.upstream_of(exchange) {
            self.context.resume(id);
        }
    }

    fn gone(&mut self, exchange: ExchangeKey) {
        if let Some(id) = self.upstream_of(exchange) {
            self.context.close(id);
            self.exchanges.remove(&id);
        }
    }
}
