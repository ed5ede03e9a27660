//! A server for conformance probes: serves a directory, echoes request bodies at `/echo` and WebSocket messages at `/ws-echo`,
//! and has channels at `/push/`.
//!
//! `probe_target DIR --listen ADDRESS:PORT [--backend NAME] [--workers N] [--tls-cert FILE --tls-key FILE]`
//!
//! The program prints its address, so port 0 is allowed, and serves until it is killed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use encke_assembly::settings::{AuthSettings, PushSettings, TlsSettings};
use encke_server::{
    Answers, Body, Exchange, ExchangeKey, Handler, HandlerContext, ListenConfig, Mount, Options, Outcome,
    Piece, Reply, Request, Server, Socket, SocketMessage, TlsIdentity, Upgrade, WorkerSetup,
};
use encke_site::{Site, SiteSettings};

/// Maximum size of an echoed body, which is held in memory: a malformed body must yield 400, not a partial echo.
const ECHO_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum size of an echoed WebSocket message.
const WS_MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

fn main() -> ExitCode {
    match start() {
        Ok(running) => {
            println!("{}", running.addresses()[0]);
            running.join();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("probe_target: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<encke_server::Running, Box<dyn std::error::Error>> {
    let mut options = Options { workers: Some(1), ..Options::default() };
    options.policy.connections = 10_000;
    let mut root = None;
    let mut listen = "127.0.0.1:0".to_owned();
    let mut tls = TlsSettings::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--listen" => listen = value()?,
            "--backend" => options.backend = Some(value()?.parse()?),
            "--workers" => options.workers = Some(value()?.parse()?),
            "--tls-cert" => tls.cert = Some(value()?.into()),
            "--tls-key" => tls.key = Some(value()?.into()),
            _ if root.is_none() => root = Some(argument),
            _ => return Err(format!("unexpected argument: {argument}").into()),
        }
    }
    let root = root.ok_or("usage: probe_target DIR --listen ADDRESS:PORT")?;
    let site = Site::new(&[SiteSettings { root: root.into(), ..SiteSettings::default() }], Vec::new())?;
    let identity = match tls.cert {
        Some(_) => Some(Arc::new(TlsIdentity::read(&tls, &mut Vec::new())?)),
        None => None,
    };
    let server = Server::new(options)
        .listener(ListenConfig { tls: identity, ..ListenConfig::from(listen.parse::<SocketAddr>()?) })
        .mount("/", site)
        .mount("/echo", Echo)
        .mount("/ws-echo", ws_echo);
    let server = encke_push::mount(server, &PushSettings::default(), &AuthSettings::default())?;
    Ok(server.start()?)
}

/// Echoes WebSocket messages.
fn ws_echo(request: &Request<'_>, _: Exchange) -> Outcome {
    match Upgrade::accept(request, WS_MESSAGE_BYTES_MAX, EchoSocket) {
        Ok(upgrade) => Outcome::Takeover(upgrade.compressed(request).into()),
        Err(reply) => Outcome::Now(reply),
    }
}

struct EchoSocket;

impl Socket for EchoSocket {
    fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
        answers.send(message);
    }
}

struct Echo;

impl Mount for Echo {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Echoes::default())
    }
}

/// The request bodies that are being received.
#[derive(Default)]
struct Echoes(HashMap<ExchangeKey, (Exchange, Vec<u8>)>);

impl Handler for Echoes {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        exchange.read_more();
        self.0.insert(exchange.key(), (exchange, Vec::new()));
        Outcome::Later
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some((exchange, mut bytes)) = self.0.remove(&key) else { return };
        match piece {
            Piece::Data(data) if bytes.len() + data.len() > ECHO_BYTES_MAX => {
                exchange.answer(Reply::error(413));
            }
            Piece::Data(data) => {
                bytes.extend_from_slice(data);
                exchange.read_more();
                self.0.insert(key, (exchange, bytes));
            }
            Piece::End => exchange.answer(
                Reply::new(200).with("Content-Type", "application/octet-stream").body(Body::Bytes(bytes)),
            ),
            // The engine responds, or the client is already disconnected.
            Piece::Broken => {}
        }
    }
}
