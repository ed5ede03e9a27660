//! The examples of the embedding API (`docs/embedding.md`), each with a client.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use encke_server::{Reply, Request, Server, Takeover, Upgrade};
use encke_wire::websocket::{self, Opcode};

use crate::rig::{Client, End, Stand, any_port};

#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/drain.rs"]
mod drain;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/hello.rs"]
mod hello;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/json_later.rs"]
mod json_later;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/relay.rs"]
mod relay;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/stream.rs"]
mod stream;
#[allow(dead_code, reason = "the test program has a `main` of its own")]
#[path = "../../examples/websocket.rs"]
mod websocket_echo;

on_two_stands! {
    hello_responds_at_once,
    json_later_responds_from_a_thread,
    stream_sends_lines_of_a_thread,
    websocket_echoes_messages,
    relay_passes_on_the_bytes_of_another_server,
    drain_serves_until_it_is_told_to_stop,
}

fn hello_responds_at_once(stand: Stand) {
    let rig = stand.serve(hello::app);
    assert_eq!(rig.client().get("/a?b").text(), "You asked for /a\n");
}

fn json_later_responds_from_a_thread(stand: Stand) {
    let rig = stand.serve(json_later::app);
    let mut client = rig.client();
    let answer = client.get("/square?of=12");
    assert_eq!(answer.field("Content-Type"), Some("application/json"));
    assert_eq!((answer.status, answer.text()), (200, "{\"square\":144}\n"));
    assert_eq!(client.get("/square?of=-2147483648").text(), "{\"square\":4611686018427387904}\n");
    assert_eq!(client.get("/square?of=x").status, 400);
}

fn stream_sends_lines_of_a_thread(stand: Stand) {
    let rig = stand.serve(stream::app);
    assert_eq!(rig.client().get("/progress").text(), "step 1 of 3\nstep 2 of 3\nstep 3 of 3\n");
}

/// Accepts a WebSocket that echoes messages.
pub(crate) fn echo(request: &Request<'_>) -> Result<Takeover, Reply> {
    Upgrade::accept(request, 1024, websocket_echo::Echo).map(Takeover::from)
}

/// Serves WebSockets that echo messages, for [`UPGRADE`].
pub(crate) fn echoing(server: Server) -> Server {
    websocket_echo::app(server)
}

pub(crate) const UPGRADE: &str = "GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

fn websocket_echoes_messages(stand: Stand) {
    let rig = stand.serve(echoing);
    assert_eq!(rig.client().get("/echo").status, 400);
    let mut client = rig.client();
    client.send(UPGRADE);
    assert_eq!(client.head().field("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let (mut frame, mut echo) = (Vec::new(), Vec::new());
    websocket::put_masked(&mut frame, Opcode::Text, b"hello", [1, 2, 3, 4]);
    websocket::put_frame(&mut echo, Opcode::Text, b"hello");
    client.send(&frame);
    assert_eq!(client.read_exact(echo.len()), echo);
}

fn relay_passes_on_the_bytes_of_another_server(stand: Stand) {
    let other = TcpListener::bind(any_port()).expect("a free port");
    let target = other.local_addr().expect("a bound socket");
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let expected = content.clone();
    let sent = thread::spawn(move || {
        let (mut whole, _) = other.accept().expect("the relay connects");
        whole.write_all(&content).expect("the relay reads");
        other
    });
    let rig = stand.serve(|server| server.mount("/", relay::Relay(target)));
    assert!(rig.client().get("/").body == expected, "other bytes");
    drop(sent.join().expect("it does not panic"));
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.rest().1, End::Reset, "nothing listens at the target");
}

fn drain_serves_until_it_is_told_to_stop(stand: Stand) {
    let server = Server::new(stand.options(|_| {})).listen(any_port());
    let running = drain::app(server).start().expect("a free port, and the back end is there");
    let address = running.addresses()[0].clone();
    let (stop, stopped) = channel::<()>();
    let served = thread::spawn(move || {
        drain::serve_until(running, Duration::ZERO, || stopped.recv().expect("the case sends it"));
    });
    let mut client = Client::connect(&address);
    assert_eq!(client.get("/").text(), "Hello, World!\n");
    stop.send(()).expect("the server waits for it");
    assert_eq!(client.end(), End::Finished);
    served.join().expect("it does not panic");
    assert!(Client::try_connect(&address).is_err(), "the server still accepts");
}
