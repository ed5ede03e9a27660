//! Outgoing connections from outside: results of dials, bytes sent before the connection is established, and connections that
//! no handler closes. The handler is a toy: it dials the target of the case and responds with the events.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use encke_io::{Address, OpError, Segment};
use encke_server::{
    CloseReason, ConnLimits, Exchange, Handler, HandlerContext, Mount, Outcome, Reply, Request,
    UpstreamEvent, UpstreamFault, UpstreamId, WorkerSetup,
};
use rustix::net::{AddressFamily, SocketType};

use crate::rig::handlers::hello;
use crate::rig::{Client, Folder, PATIENCE, Rig, Stand, any_port};

on_every_stand! {
    a_response_comes_back_over_tcp_and_over_a_unix_socket,
    a_refused_dial_is_reported,
    a_missing_unix_socket_is_reported,
    a_dial_that_takes_too_long_is_overdue,
    dials_wait_for_room_in_the_backlog_of_a_unix_socket,
    a_dial_that_waits_for_room_too_long_is_overdue,
    a_peer_that_resets_is_reported,
    dials_beyond_the_limit_are_reported,
    no_event_follows_a_close,
    a_close_with_bytes_left_resets_the_connection,
    a_worker_ends_although_connections_are_at_rest,
}

on_two_stands! {
    a_reload_closes_the_connections_of_the_handler_it_replaces,
    a_handler_that_panics_loses_its_connection,
}

/// Dials a target for each request.
#[derive(Clone)]
struct Dialer {
    target: Address,
    /// Connections that outlive the requests that dialed them.
    kept: Arc<Mutex<usize>>,
}

struct Dialing {
    mount: Dialer,
    context: HandlerContext,
    open: HashMap<UpstreamId, Fetch>,
    /// Closed by this handler: no event may follow.
    closed: Vec<UpstreamId>,
}

/// A request, and the events of its connection so far.
struct Fetch {
    exchange: Option<Exchange>,
    path: Vec<u8>,
    connected: bool,
    sent: u64,
    received: Vec<u8>,
}

impl Dialer {
    fn to(target: impl Into<Address>) -> Self {
        Self { target: target.into(), kept: Arc::default() }
    }
}

impl Mount for Dialer {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Dialing { mount: self.clone(), context, open: HashMap::new(), closed: Vec::new() })
    }
}

impl Handler for Dialing {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let id = self.context.dial(self.mount.target.clone(), None);
        let path = request.path().to_vec();
        match &path[..] {
            b"/brief" => self.context.deadline(id, 1),
            b"/close" => {
                self.context.close(id);
                self.closed.push(id);
                return Outcome::Now(Reply::text(200, "closed"));
            }
            b"/close-behind" => {
                self.context.send(id, [Segment::Bytes(vec![0; 8 << 20])]);
            }
            _ => {
                let segments = [Segment::Bytes(b"one ".to_vec()), Segment::Shared(b"two"[..].into(), 0)];
                self.context.send(id, segments);
            }
        }
        let fetch = Fetch { exchange: Some(exchange), path, connected: false, sent: 0, received: Vec::new() };
        self.open.insert(id, fetch);
        Outcome::Later
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        assert!(!self.closed.contains(&id), "{event:?} of a closed connection");
        let fetch = self.open.get_mut(&id).expect("a connection of this handler");
        let outcome = match event {
            UpstreamEvent::Connected if fetch.path == b"/keep" => {
                *self.mount.kept.lock().expect("no panic") += 1;
                if let Some(exchange) = fetch.exchange.take() {
                    exchange.answer(Reply::text(200, "kept"));
                }
                return;
            }
            UpstreamEvent::Connected if fetch.path == b"/panic" => panic!("asked for by the case"),
            UpstreamEvent::Connected if fetch.path == b"/close-behind" => {
                // More than the kernel takes at once, so a part is still unsent.
                "closed".to_owned()
            }
            UpstreamEvent::Connected => {
                fetch.connected = true;
                self.context.shutdown(id);
                return;
            }
            UpstreamEvent::Received(bytes) => return fetch.received.extend_from_slice(bytes),
            UpstreamEvent::Sent(bytes) => {
                fetch.sent += bytes;
                return;
            }
            UpstreamEvent::Ended => {
                format!("{} sent, {}", fetch.sent, String::from_utf8_lossy(&fetch.received))
            }
            UpstreamEvent::Overdue => format!("overdue, connected: {}", fetch.connected),
            UpstreamEvent::Failed(fault) => {
                let failed = self.open.remove(&id).and_then(|fetch| fetch.exchange);
                if let Some(exchange) = failed {
                    exchange.answer(Reply::text(502, format!("{fault:?}")));
                }
                return;
            }
            other => panic!("unknown event {other:?}"),
        };
        self.context.close(id);
        self.closed.push(id);
        let done = self.open.remove(&id).and_then(|fetch| fetch.exchange);
        if let Some(exchange) = done {
            exchange.answer(Reply::text(200, outcome));
        }
    }
}

/// A server that reads up to the end and responds with the same bytes in reverse, `count` times.
fn backwards<S: Read + Write>(
    mut accept: impl FnMut() -> io::Result<S> + Send + 'static,
    count: usize,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for _ in 0..count {
            let mut stream = accept().expect("a connection");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("the end");
            bytes.reverse();
            stream.write_all(&bytes).expect("room");
        }
    })
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// A reserved port that refuses connections as long as the socket is open.
fn refusing() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
    rustix::net::bind(&socket, &any_port()).expect("a free port");
    let name = rustix::net::getsockname(&socket).expect("it is bound");
    (socket, name.try_into().expect("an Internet address"))
}

fn rig(on: Stand, dialer: Dialer) -> Rig {
    on.serve(|server| server.mount("/", dialer))
}

/// Waits until all connections are closed, and `count` of them are counted for this reason.
fn all_closed(rig: &Rig, reason: &str, count: u64) {
    let closes = || rig.count("encke_upstream_closes_total");
    let all = || {
        closes() == rig.count("encke_upstream_dials_total")
            && rig.count_of("encke_upstream_closes_total", reason) == count
            && rig.count("encke_upstream_connections") == 0
    };
    rig.wait(all, &format!("{count} outgoing connections are closed: {reason}"));
    assert_eq!(closes(), count);
}

fn a_response_comes_back_over_tcp_and_over_a_unix_socket(on: Stand) {
    let (tcp, address) = listener();
    let server = backwards(move || tcp.accept().map(|(stream, _)| stream), 3);
    let tcp_rig = rig(on, Dialer::to(address));
    let mut client = tcp_rig.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "7 sent, owt eno");
    }
    server.join().expect("no panic");
    all_closed(&tcp_rig, "closed", 3);
    assert_eq!(tcp_rig.count_of("encke_upstream_bytes_total", "sent"), 21);
    assert_eq!(tcp_rig.count_of("encke_upstream_bytes_total", "received"), 21);
    tcp_rig.end();

    let folder = Folder::new();
    let path = folder.path().join("socket");
    let unix = UnixListener::bind(&path).expect("a new path");
    let server = backwards(move || unix.accept().map(|(stream, _)| stream), 1);
    let unix_rig = rig(on, Dialer::to(Address::Unix(path)));
    assert_eq!(unix_rig.client().get("/").text(), "7 sent, owt eno");
    server.join().expect("no panic");
    all_closed(&unix_rig, "closed", 1);
    unix_rig.end();
}

fn a_refused_dial_is_reported(on: Stand) {
    let (_held, address) = refusing();
    let rig = rig(on, Dialer::to(address));
    let answer = rig.client().get("/");
    assert_eq!(answer.text(), format!("{:?}", UpstreamFault::Failed(OpError::Refused)));
    all_closed(&rig, "refused", 1);
    rig.end();
}

fn a_missing_unix_socket_is_reported(on: Stand) {
    let folder = Folder::new();
    let rig = rig(on, Dialer::to(Address::Unix(folder.path().join("nothing"))));
    let missing = OpError::System(rustix::io::Errno::NOENT.raw_os_error());
    assert_eq!(rig.client().get("/").text(), format!("{:?}", UpstreamFault::Failed(missing)));
    all_closed(&rig, "system", 1);
    rig.end();
}

/// A listener whose queue is full does not respond to further connection attempts.
fn a_dial_that_takes_too_long_is_overdue(on: Stand) {
    let (socket, address) = refusing();
    rustix::net::listen(&socket, 0).expect("it is bound");
    let _first = TcpStream::connect(address).expect("there is room for one");
    let rig = rig(on, Dialer::to(address));
    assert_eq!(rig.client().get("/brief").text(), "overdue, connected: false");
    all_closed(&rig, "closed", 1);
    rig.end();
}

/// A Unix socket whose backlog is full, and the connection that fills it.
fn crowded(folder: &Folder) -> (UnixListener, UnixStream, Address) {
    let path = folder.path().join("socket");
    let unix = UnixListener::bind(&path).expect("a new path");
    rustix::net::listen(&unix, 0).expect("it is bound");
    let first = UnixStream::connect(&path).expect("there is room for one");
    (unix, first, Address::Unix(path))
}

fn dials_wait_for_room_in_the_backlog_of_a_unix_socket(on: Stand) {
    let folder = Folder::new();
    let (unix, first, address) = crowded(&folder);
    let rig = rig(on, Dialer::to(address));
    let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    rig.wait(|| rig.count("encke_upstream_dials_total") == 3, "all have dialed");
    drop(first);
    drop(unix.accept().expect("the connection that filled it"));
    let server = backwards(move || unix.accept().map(|(stream, _)| stream), 3);
    for client in &mut clients {
        assert_eq!(client.answer().text(), "7 sent, owt eno");
    }
    server.join().expect("no panic");
    all_closed(&rig, "closed", 3);
    rig.end();
}

fn a_dial_that_waits_for_room_too_long_is_overdue(on: Stand) {
    let folder = Folder::new();
    let (_unix, _first, address) = crowded(&folder);
    let rig = rig(on, Dialer::to(address));
    assert_eq!(rig.client().get("/brief").text(), "overdue, connected: false");
    all_closed(&rig, "closed", 1);
    rig.end();
}

fn a_peer_that_resets_is_reported(on: Stand) {
    let (tcp, address) = listener();
    let rig = rig(on, Dialer::to(address));
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (mut stream, _) = tcp.accept().expect("a connection");
    stream.read_exact(&mut [0; 7]).expect("what was sent before it was connected");
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket can");
    drop(stream);
    assert_eq!(client.answer().text(), format!("{:?}", UpstreamFault::Failed(OpError::Reset)));
    all_closed(&rig, "reset", 1);
    rig.end();
}

fn dials_beyond_the_limit_are_reported(on: Stand) {
    let (tcp, address) = listener();
    let rig = on.serve_by(
        |policy| policy.limits.upstreams = NonZeroU32::new(1).expect("above 0"),
        |server| server.mount("/", Dialer::to(address)),
    );
    let mut first = rig.client();
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (mut stream, _) = tcp.accept().expect("a connection");
    assert_eq!(rig.client().get("/").text(), format!("{:?}", UpstreamFault::Limit));
    stream.read_to_end(&mut Vec::new()).expect("the end");
    drop(stream);
    assert_eq!(first.answer().status, 200);
    rig.wait(|| rig.count("encke_upstream_connections") == 0, "there is room again");
    assert_eq!(rig.count_of("encke_upstream_closes_total", "limit"), 1);
    let server = backwards(move || tcp.accept().map(|(stream, _)| stream), 1);
    assert_eq!(first.get("/").text(), "7 sent, owt eno");
    server.join().expect("no panic");
    rig.end();
}

fn no_event_follows_a_close(on: Stand) {
    let (tcp, address) = listener();
    let rig = rig(on, Dialer::to(address));
    for _ in 0..20 {
        assert_eq!(rig.client().get("/close").text(), "closed");
    }
    all_closed(&rig, "closed", 20);
    assert_eq!(rig.count("encke_handler_panics_total"), 0);
    drop(tcp);
    rig.end();

    // A Unix socket is connected in the same step in which it is closed.
    let folder = Folder::new();
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path).expect("a new path");
    let rig = self::rig(on, Dialer::to(Address::Unix(path)));
    assert_eq!(rig.client().get("/close").text(), "closed");
    all_closed(&rig, "closed", 1);
    assert_eq!(rig.count("encke_handler_panics_total"), 0);
    rig.end();
}

fn a_close_with_bytes_left_resets_the_connection(on: Stand) {
    let (tcp, address) = listener();
    let rig = rig(on, Dialer::to(address));
    let mut client = rig.client();
    client.send("GET /close-behind HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (mut stream, _) = tcp.accept().expect("a connection");
    assert_eq!(client.answer().text(), "closed");
    all_closed(&rig, "closed", 1);
    let read = stream.read_to_end(&mut Vec::new());
    assert_eq!(read.expect_err("no end in order").kind(), io::ErrorKind::ConnectionReset);
    rig.end();
}

fn a_worker_ends_although_connections_are_at_rest(on: Stand) {
    let (tcp, address) = listener();
    let rig = rig(on, Dialer::to(address));
    let mut streams = Vec::new();
    for _ in 0..8 {
        assert_eq!(rig.client().get("/keep").text(), "kept");
        streams.push(tcp.accept().expect("a connection").0);
    }
    assert_eq!(rig.count("encke_upstream_connections"), 8);
    // The drain has more time than any case waits.
    rig.running().drain(Duration::ZERO, PATIENCE * 2);
    for mut stream in streams {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("closed in order");
        assert_eq!(bytes, b"one two");
    }
    rig.end();
}

fn a_reload_closes_the_connections_of_the_handler_it_replaces(on: Stand) {
    let (tcp, address) = listener();
    let rig = rig(on, Dialer::to(address));
    assert_eq!(rig.client().get("/keep").text(), "kept");
    let (mut stream, _) = tcp.accept().expect("a connection");
    let other: Arc<dyn Mount> = Arc::new(hello);
    rig.running().reload(ConnLimits::default(), Some(vec![("/".to_owned(), other)]));
    stream.read_to_end(&mut Vec::new()).expect("closed in order");
    all_closed(&rig, "retired", 1);
    rig.end();
}

fn a_handler_that_panics_loses_its_connection(on: Stand) {
    let (tcp, address) = listener();
    let rig = rig(on, Dialer::to(address));
    let mut client: Client = rig.client();
    client.send("GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _accepted = tcp.accept().expect("a connection");
    all_closed(&rig, "panic", 1);
    assert_eq!(rig.count("encke_handler_panics_total"), 1);
    drop(client);
    rig.wait_for_closes(CloseReason::PeerDone, 0);
    rig.end();
}
