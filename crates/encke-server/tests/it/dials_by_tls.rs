//! Outgoing connections with TLS, from outside: the relays and tunnels of `rig/relays.rs` in front of a server with a
//! certificate of the test's authority. That server's TLS is not Encke's.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use encke_io::files::{Links, OpenFile, Patience, Root};
use encke_io::{Address, Segment};
use encke_server::{
    Exchange, Handler, HandlerContext, Mount, Outcome, Reply, Request, UpstreamEvent, UpstreamId, WorkerSetup,
};
use encke_session::tls::{ClientSessions, Sessions, Trust};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, version};

use crate::rig::relays::{
    ECHO_KEY, Relay, StreamCheck, TUNNEL_HEAD, Tunnel, accept, byte_at, echo, finish, listen, write_stream,
};
use crate::rig::tls::{Authority, BOTH, provider};
use crate::rig::{Client, End, Rig, Stand};

on_two_stands! {
    bodies_pass_in_both_directions_at_once,
    a_client_that_reads_nothing_stops_the_other_server,
    a_server_that_reads_nothing_stops_the_client,
    half_a_close_passes_to_the_other_server,
    half_a_close_passes_to_the_client,
    a_client_that_goes_ends_the_session_in_order,
    an_end_without_a_close_notify_resets_the_client,
    a_response_before_the_whole_request_arrives_although_sends_fail,
    an_end_in_the_handshake_is_a_502,
    a_certificate_for_another_name_is_refused,
    an_unknown_authority_is_refused,
    a_server_without_tls_is_refused,
    an_alert_of_the_server_is_reported,
    a_file_is_sent_whole,
    a_close_after_the_end_waits_for_the_close_notify,
    a_close_at_the_end_of_the_handshake_ends_in_order,
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A server with a certificate for `localhost`, and the authority that signed it.
struct Other {
    authority: Authority,
    listener: TcpListener,
    address: SocketAddr,
    config: Arc<ServerConfig>,
}

impl Other {
    fn new() -> Self {
        Self::with(&BOTH, |_| {})
    }

    fn with(versions: &[&'static SupportedProtocolVersion], change: impl FnOnce(&mut ServerConfig)) -> Self {
        let authority = Authority::new();
        let files = authority.sign("localhost", &["localhost"]);
        let chain = CertificateDer::pem_file_iter(&files.cert).expect("a file");
        let chain = chain.collect::<Result<_, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions that are there");
        let mut config =
            builder.with_no_client_auth().with_single_cert(chain, key).expect("they belong together");
        change(&mut config);
        let (listener, address) = listen();
        Self { authority, listener, address, config: Arc::new(config) }
    }

    /// Sessions of a client that expects this server to have the given name.
    fn sessions(&self, name: &str) -> Option<Arc<dyn Sessions>> {
        let trust = Trust::of_file(&self.authority.path("authority.pem")).expect("an authority");
        Some(Arc::new(ClientSessions::new(trust, name.to_owned())))
    }

    fn accept(&self) -> Stream {
        let session = ServerConnection::new(Arc::clone(&self.config)).expect("a session");
        StreamOwned::new(session, accept(&self.listener))
    }

    fn relay(&self, name: &str) -> Relay {
        Relay { sessions: self.sessions(name), ..Relay::to(self.address) }
    }
}

/// Sends a close_notify.
fn end(stream: &mut Stream) {
    stream.conn.send_close_notify();
    stream.flush().expect("room");
}

/// Reads everything up to the close_notify.
fn read_all(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("a close_notify");
    bytes
}

fn relaying(on: Stand, relay: &Relay) -> Rig {
    on.serve(|server| server.mount("/", relay.clone()))
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn head_of_post(bytes: u64) -> String {
    format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n")
}

/// Waits until all outgoing connections are closed, one of them for this reason.
fn all_closed(rig: &Rig, reason: &str) {
    rig.wait(|| rig.count("encke_upstream_connections") == 0, "no outgoing connection is open");
    assert_eq!(rig.count_of("encke_upstream_closes_total", reason), 1, "{}", rig.told());
}

fn bodies_pass_in_both_directions_at_once(on: Stand) {
    for spoken in [&version::TLS13, &version::TLS12] {
        let other = Other::with(&[spoken], |_| {});
        let rig = relaying(on, &other.relay("localhost"));
        let mut client = rig.client();
        let sizes = [1, 16_383, 16_384, 16_385, 3_000_017];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in sizes {
                    let mut stream = other.accept();
                    echo(&mut stream);
                    end(&mut stream);
                }
            });
            for (seed, bytes) in (1..).zip(sizes) {
                let to = client.stream().try_clone().expect("a descriptor");
                scope.spawn(move || {
                    (&to).write_all(head_of_post(bytes).as_bytes()).expect("room");
                    write_stream(&to, bytes, 1, seed).expect("room");
                });
                let answer = client.answer();
                assert_eq!((answer.status, answer.body.len() as u64), (200, bytes));
                StreamCheck::new(1 ^ ECHO_KEY).take(&answer.body);
            }
        });
        rig.wait(|| rig.count("encke_upstream_connections") == 0, "no outgoing connection is open");
        let all = sizes.iter().sum::<u64>();
        assert_eq!(rig.count_of("encke_upstream_bytes_total", "sent"), all);
        assert_eq!(rig.count_of("encke_upstream_bytes_total", "received"), all);
        assert_eq!(rig.count_of("encke_upstream_closes_total", "closed"), sizes.len() as u64);
        rig.end();
    }
}

/// The relay asserts at each write that the waiting bytes are within the limit. Here it must have reached the limit.
fn a_client_that_reads_nothing_stops_the_other_server(on: Stand) {
    const BYTES: u64 = 24 << 20;
    let other = Other::new();
    let relay = other.relay("localhost");
    let rig = relaying(on, &relay);
    let mut client = rig.narrow_client();
    client.send(GET);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = other.accept();
            write_stream(&mut stream, BYTES, 2, 1).expect("in the end all is taken");
            end(&mut stream);
        });
        rig.wait(|| relay.counts.pauses.load(Ordering::Relaxed) > 0, "the other server is paused");
        let answer = client.answer();
        assert_eq!(answer.body.len() as u64, BYTES);
        StreamCheck::new(2).take(&answer.body);
    });
    rig.end();
}

fn a_server_that_reads_nothing_stops_the_client(on: Stand) {
    const BYTES: u64 = 24 << 20;
    let other = Other::new();
    let rig = relaying(on, &other.relay("localhost"));
    let mut client = rig.client();
    let to = client.stream().try_clone().expect("a descriptor");
    client.send(head_of_post(BYTES));
    std::thread::scope(|scope| {
        scope.spawn(|| write_stream(&to, BYTES, 3, 1).expect("in the end all is taken"));
        let mut stream = other.accept();
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        rig.wait(|| rig.count("encke_sends_in_flight") > 0, "a send waits for room");
        assert!(rig.received() < BYTES, "all was taken: {}", rig.received());
        StreamCheck::new(3).read(&mut stream, BYTES, 2);
        end(&mut stream);
        assert_eq!(client.answer().status, 200);
    });
    rig.end();
}

/// A tunnel with TLS: the client's end, and the other server's.
fn tunnel(on: Stand) -> (Rig, Client, Stream, Other) {
    let other = Other::new();
    let tunnel = Tunnel { sessions: other.sessions("localhost"), ..Tunnel::to(other.address) };
    let rig = on.serve(|server| server.mount("/", tunnel));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = other.accept();
    assert_eq!(client.read_exact(TUNNEL_HEAD.len()), TUNNEL_HEAD);
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    (rig, client, stream, other)
}

fn half_a_close_passes_to_the_other_server(on: Stand) {
    let (rig, mut client, mut stream, _other) = tunnel(on);
    client.send("a question");
    client.finish();
    assert_eq!(read_all(&mut stream), b"a question");
    write_stream(&mut stream, 300_001, 3, 1).expect("it takes bytes after its own end");
    end(&mut stream);
    let (bytes, how) = client.rest();
    assert_eq!((bytes.len(), how), (300_001, End::Finished));
    StreamCheck::new(3).take(&bytes);
    all_closed(&rig, "closed");
    rig.end();
}

fn half_a_close_passes_to_the_client(on: Stand) {
    let (rig, mut client, mut stream, _other) = tunnel(on);
    stream.write_all(b"all that I have to say").expect("room");
    end(&mut stream);
    // The end of the socket follows the close_notify, and is not reported as a second end.
    finish(&stream.sock);
    assert_eq!(client.rest(), (b"all that I have to say".to_vec(), End::Finished));
    write_stream(client.stream(), 300_001, 4, 1).expect("it takes bytes after the other's end");
    client.finish();
    let bytes = read_all(&mut stream);
    assert_eq!(bytes.len(), 300_001);
    StreamCheck::new(4).take(&bytes);
    all_closed(&rig, "closed");
    rig.end();
}

fn a_client_that_goes_ends_the_session_in_order(on: Stand) {
    let other = Other::new();
    let rig = relaying(on, &other.relay("localhost"));
    let mut client = rig.client();
    client.send(format!("{}abc", head_of_post(10)));
    let mut stream = other.accept();
    stream.read_exact(&mut [0; 3]).expect("the body so far");
    client.reset();
    assert!(read_all(&mut stream).is_empty());
    all_closed(&rig, "closed");
    rig.end();
}

fn an_end_without_a_close_notify_resets_the_client(on: Stand) {
    let other = Other::new();
    let rig = relaying(on, &other.relay("localhost"));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = other.accept();
    assert!(read_all(&mut stream).is_empty(), "no body");
    stream.write_all(b"the beginning").expect("room");
    assert_eq!(client.head().status, 200);
    drop(stream);
    assert_eq!(client.rest().1, End::Reset);
    all_closed(&rig, "tls_truncated");
    rig.end();
}

/// The other server responds to the head, and closes with the rest of the body unread: a reset, which a send meets first or a read.
fn a_response_before_the_whole_request_arrives_although_sends_fail(on: Stand) {
    const BYTES: u64 = 4 << 20;
    let other = Other::new();
    let rig = relaying(on, &other.relay("localhost"));
    for _ in 0..20 {
        let mut client = rig.client();
        let to = client.stream().try_clone().expect("a descriptor");
        client.send(head_of_post(BYTES));
        std::thread::scope(|scope| {
            // The relay may close the connection before it has the whole body.
            scope.spawn(|| drop(write_stream(&to, BYTES, 3, 1)));
            let mut stream = other.accept();
            // The reset destroys what has not left.
            stream.sock.set_nodelay(true).expect("an option");
            stream.read_exact(&mut [0; 1]).expect("the beginning of the body");
            stream.write_all(b"too large").expect("room");
            end(&mut stream);
            drop(stream);
            assert_eq!(client.answer().text(), "too large");
            drop(client);
        });
    }
    rig.end();
}

fn an_end_in_the_handshake_is_a_502(on: Stand) {
    let other = Other::new();
    let rig = relaying(on, &other.relay("localhost"));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = accept(&other.listener);
    stream.read_exact(&mut [0; 5]).expect("the beginning of a ClientHello");
    finish(&stream);
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (502, "the connection ended without the close_notify of TLS"));
    all_closed(&rig, "tls_truncated");
    rig.end();
}

/// Returns the alert that the other server receives instead of the rest of a handshake.
fn alert(other: &Other) -> io::Error {
    let mut stream = other.accept();
    stream.read(&mut [0]).expect_err("no session")
}

fn a_certificate_for_another_name_is_refused(on: Stand) {
    let other = Other::new();
    let rig = relaying(on, &other.relay("another.test"));
    let mut client = rig.client();
    // The body waits for the handshake, and does not prevent the alert.
    client.send(format!("{}abc", head_of_post(3)));
    let alert = alert(&other).to_string();
    assert!(alert.contains("BadCertificate"), "{alert}");
    let answer = client.answer();
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("its certificate is for others"), "{}", answer.text());
    all_closed(&rig, "tls_distrust");
    assert_eq!(rig.count_of("encke_upstream_bytes_total", "sent"), 0, "nothing of the body has left");
    rig.end();
}

fn an_unknown_authority_is_refused(on: Stand) {
    let (other, stranger) = (Other::new(), Other::new());
    let relay = Relay { target: Address::Inet(stranger.address), ..other.relay("localhost") };
    let rig = relaying(on, &relay);
    let mut client = rig.client();
    client.send(GET);
    let alert = alert(&stranger).to_string();
    assert!(alert.contains("received fatal alert"), "{alert}");
    let answer = client.answer();
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("no authority"), "{}", answer.text());
    all_closed(&rig, "tls_distrust");
    rig.end();
}

fn a_server_without_tls_is_refused(on: Stand) {
    let other = Other::new();
    let rig = relaying(on, &other.relay("localhost"));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = accept(&other.listener);
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").expect("room");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (502, "what answers there does not speak TLS"));
    all_closed(&rig, "tls_protocol");
    rig.end();
}

fn an_alert_of_the_server_is_reported(on: Stand) {
    let other = Other::with(&BOTH, |config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let rig = relaying(on, &other.relay("localhost"));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = other.accept();
    stream.read(&mut [0]).expect_err("no protocol in common");
    let answer = client.answer();
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("NoApplicationProtocol"), "{}", answer.text());
    all_closed(&rig, "tls_alert");
    rig.end();
}

const FILE_BYTES: u64 = 400_003;

/// Sends a range of a file between bytes of memory, and responds with the number of bytes that were reported as sent.
#[derive(Clone)]
struct Sender {
    target: Address,
    sessions: Arc<dyn Sessions>,
    file: Arc<OpenFile>,
}

struct Sending {
    mount: Sender,
    context: HandlerContext,
    exchange: Option<Exchange>,
    sent: u64,
}

impl Mount for Sender {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Sending { mount: self.clone(), context, exchange: None, sent: 0 })
    }
}

impl Handler for Sending {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        self.exchange = Some(exchange);
        let session = self.mount.sessions.begin().expect("a session");
        let id = self.context.dial(self.mount.target.clone(), Some(session));
        let file = Segment::File { file: Arc::clone(&self.mount.file), offset: 1, len: FILE_BYTES - 1 };
        self.context.send(id, [Segment::Bytes(vec![byte_at(0, 5)]), file]);
        self.context.shutdown(id);
        Outcome::Later
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        let answer = match event {
            UpstreamEvent::Sent(bytes) => return self.sent += bytes,
            UpstreamEvent::Ended => Reply::text(200, self.sent.to_string()),
            UpstreamEvent::Failed(fault) => Reply::text(502, fault.to_string()),
            _ => return,
        };
        self.context.close(id);
        self.exchange.take().expect("one end").answer(answer);
    }
}

fn a_file_is_sent_whole(on: Stand) {
    let other = Other::new();
    let path = other.authority.path("content");
    let root = Root::new(other.authority.folder.path()).expect("a folder");
    write_stream(File::create(path).expect("a new file"), FILE_BYTES, 5, 1).expect("room");
    let sender = Sender {
        target: other.address.into(),
        sessions: other.sessions("localhost").expect("sessions"),
        file: Arc::new(root.open(b"content", Links::Deny, Patience::Patient).expect("a file")),
    };
    let rig = on.serve(|server| server.mount("/", sender));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = other.accept();
    let bytes = read_all(&mut stream);
    assert_eq!(bytes.len() as u64, FILE_BYTES);
    StreamCheck::new(5).take(&bytes);
    end(&mut stream);
    assert_eq!(client.answer().text(), FILE_BYTES.to_string());
    all_closed(&rig, "closed");
    rig.end();
}

/// Sends a word and its end, and closes the connection in the same turn. Without a word it closes the connection once it is
/// established.
#[derive(Clone)]
struct Parting {
    target: Address,
    sessions: Arc<dyn Sessions>,
    word: &'static [u8],
}

struct Partings {
    mount: Parting,
    context: HandlerContext,
    sent: Option<UpstreamId>,
}

impl Mount for Parting {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Partings { mount: self.clone(), context, sent: None })
    }
}

impl Handler for Partings {
    fn call(&mut self, _: &Request<'_>, _: Exchange) -> Outcome {
        let session = self.mount.sessions.begin().expect("a session");
        let id = self.context.dial(self.mount.target.clone(), Some(session));
        if !self.mount.word.is_empty() {
            self.context.send(id, [Segment::Bytes(self.mount.word.to_vec())]);
        }
        Outcome::Now(Reply::text(200, "on its way"))
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        match event {
            UpstreamEvent::Sent(_) => {
                self.context.shutdown(id);
                self.sent = Some(id);
                // Messages follow the events of a turn, so that the close_notify is in flight with io_uring.
                self.context.waker().wake();
            }
            UpstreamEvent::Connected if self.mount.word.is_empty() => self.context.close(id),
            UpstreamEvent::Failed(fault) => panic!("the connection works: {fault}"),
            _ => {}
        }
    }

    fn woken(&mut self) {
        self.context.close(self.sent.take().expect("woken after a send"));
    }
}

fn part(on: Stand, word: &'static [u8]) {
    // Tickets that arrive after the close would be answered by a reset.
    let other = Other::with(&BOTH, |config| config.send_tls13_tickets = 0);
    let sessions = other.sessions("localhost").expect("sessions");
    let parting = Parting { target: other.address.into(), sessions, word };
    let rig = on.serve(|server| server.mount("/", parting));
    let mut client = rig.client();
    client.send(GET);
    let mut stream = other.accept();
    assert_eq!(client.answer().text(), "on its way");
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    // A reset would discard what is not read yet.
    all_closed(&rig, "closed");
    assert_eq!(read_all(&mut stream), word);
    rig.end();
}

fn a_close_after_the_end_waits_for_the_close_notify(on: Stand) {
    part(on, b"goodbye");
}

/// As a health check without a request does it.
fn a_close_at_the_end_of_the_handshake_ends_in_order(on: Stand) {
    part(on, b"");
}
