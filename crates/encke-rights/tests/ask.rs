//! Questions to an application's authorization endpoint, over real sockets: a server between clients and applications of the tests.

mod app;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use encke_hub::Name;
use encke_io::Done;
use encke_rights::{
    Act, AskClient, AskVerdict, AuthSettings, Decision, Denial, Digest, Openness, Rights, Shut, TokenCache,
};
use encke_server::{
    Exchange, Handler, HandlerContext, JobId, ListenConfig, Mount, Options, Outcome, Reply, Request, Running,
    Server, TlsIdentity, UpstreamEvent, UpstreamId, WorkerSetup,
};
use encke_session::tls::LocalAuthority;
use encke_settings::TlsSettings;

use app::{App, PATIENCE};

const ALLOWED: &str = "HTTP/1.1 204 No Content\r\n\r\n";

// ---- the server: asks whether the client may subscribe to the channel that the path names ----

struct Asks(Arc<Rights>);

struct AskHandler {
    rights: Arc<Rights>,
    client: AskClient,
    cache: TokenCache,
    waiting: HashMap<Digest, Exchange>,
}

impl Mount for Asks {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let client = self.0.ask_client(context).expect("an application");
        Box::new(AskHandler {
            rights: Arc::clone(&self.0),
            client,
            cache: TokenCache::default(),
            waiting: HashMap::new(),
        })
    }
}

impl Handler for AskHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let name = Name::parse(request.path().get(1..).unwrap_or_default()).expect("a channel");
        let client = self.rights.identify(request, &mut self.cache).expect("no invalid credentials");
        let decision = self.rights.decide(&client, Act::Subscribe, &name, request, &mut self.cache);
        let Decision::Ask(question) = decision else { panic!("only the application decides") };
        let digest = question.digest();
        if !self.client.ask(*question) {
            return Outcome::Now(Reply::text(429, "full"));
        }
        self.waiting.insert(digest, exchange);
        self.answer_all();
        Outcome::Later
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        self.client.upstream(id, event);
        self.answer_all();
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        self.client.offloaded(job, done);
        self.answer_all();
    }
}

impl AskHandler {
    fn answer_all(&mut self) {
        while let Some((question, verdict)) = self.client.next_verdict() {
            let exchange = self.waiting.remove(&question.digest()).expect("it waits");
            exchange.answer(match verdict {
                AskVerdict::Allowed { kept_s } => Reply::text(200, format!("for {kept_s} s")),
                AskVerdict::Denied { denial: Denial::Unauthorized(_), kept_s } => {
                    Reply::text(401, format!("for {kept_s} s"))
                }
                AskVerdict::Denied { kept_s, .. } => Reply::text(403, format!("for {kept_s} s")),
                AskVerdict::Unanswered(why) => Reply::text(503, why),
            });
        }
    }
}

/// A server whose questions go to a URL.
struct AskServer(Option<Running>);

impl AskServer {
    fn start(url: &str, change: impl FnOnce(&mut AuthSettings)) -> Self {
        let mut auth = AuthSettings { ask: Some(url.parse().expect("a URL")), ..AuthSettings::default() };
        change(&mut auth);
        let rights = Rights::new(&auth, &[], Openness::Shut(Shut::Settings)).expect("valid settings");
        let server = Server::new(Options { workers: Some(1), ..Options::default() });
        let listen = "127.0.0.1:0".parse().expect("an address");
        let server = server.listen(listen).mount("/", Asks(Arc::new(rights)));
        Self(Some(server.start().expect("it starts")))
    }

    /// Sends a request, and returns its connection.
    fn send(&self, channel: &str) -> TcpStream {
        let running = self.0.as_ref().expect("it runs");
        let mut client = TcpStream::connect(running.addresses()[0].to_string()).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let head = format!(
            "GET /{channel} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nCookie: session=1; other=2\r\n\
             Authorization: Bearer abc\r\n\r\n"
        );
        client.write_all(head.as_bytes()).expect("room");
        client
    }

    /// The status and the text of a response.
    fn ask(&self, channel: &str) -> (u16, String) {
        read(self.send(channel))
    }
}

impl Drop for AskServer {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.stop();
        }
    }
}

fn read(mut client: TcpStream) -> (u16, String) {
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, response.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

/// The response to a question to an application that sends these pieces, and closes the connection.
fn verdict(pieces: &[&str]) -> (u16, String) {
    let pieces: Vec<String> = pieces.iter().map(ToString::to_string).collect();
    let app = App::start(move |call| {
        // The server may have closed the connection after the head.
        let _all_sent = pieces.iter().all(|piece| call.send(piece));
        false
    });
    AskServer::start(&app.url(), |_| {}).ask("news/today")
}

// ---- the question, and its verdict ----

#[test]
fn the_application_sees_what_is_asked_and_who_asks() {
    let app = App::start(|call| call.send(ALLOWED));
    let server = AskServer::start(&app.url(), |_| {});
    assert_eq!(server.ask("news/today"), (200, "for 0 s".into()));
    let (_, head) = app.head();
    assert!(head.starts_with("GET /may?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
    for line in [
        "X-Encke-Action: subscribe",
        "X-Encke-Channel: news/today",
        "Authorization: Bearer abc",
        "Cookie: session=1; other=2",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} is missing in {head}");
    }
    assert!(!head.contains("Connection:"), "the connection is kept: {head}");
}

#[test]
fn success_allows_and_401_and_403_deny() {
    for (given, status) in [(200, 200), (204, 200), (299, 200), (401, 401), (403, 403)] {
        let response = format!("HTTP/1.1 {given} X\r\nCache-Control: max-age=60\r\n\r\n");
        assert_eq!(verdict(&[&response]), (status, "for 60 s".into()), "{given}");
    }
}

#[test]
fn everything_else_is_no_verdict() {
    let interims = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17) + ALLOWED;
    let endless = format!("HTTP/1.1 200 OK\r\n{}", format!("X: {}\r\n", "x".repeat(1_000)).repeat(100));
    for (response, reason) in [
        ("HTTP/1.1 302 X\r\nLocation: /login\r\n\r\n", "responded with 302"),
        ("HTTP/1.1 404 X\r\n\r\n", "responded with 404"),
        ("HTTP/1.1 500 X\r\nCache-Control: max-age=60\r\n\r\n", "responded with 500"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "changes the protocol"),
        (&interims, "too many interim responses"),
        (&endless, "breaks the rules"),
        ("SSH-2.0-OpenSSH\r\n", "breaks the rules"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", "breaks the rules"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n", "breaks the rules"),
        ("HTTP/1.1 200 OK\nX: y\n\n", "breaks the rules"),
        ("HTTP/1.1 200 OK\r\nX", "ended within the response"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "ended within the response"),
        ("", "ended before the response"),
    ] {
        let (status, why) = verdict(&[response]);
        assert!(status == 503 && why.contains(reason), "{response:?}: {status} {why}");
    }
}

#[test]
fn a_response_in_pieces_after_an_interim_one_is_the_same() {
    let response = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: max-age=5\r\n\r\nyes";
    for at in (0..response.len()).step_by(3) {
        let (one, other) = response.split_at(at);
        assert_eq!(verdict(&[one, other]), (200, "for 5 s".into()), "split at {at}");
    }
}

#[test]
fn a_reset_is_no_verdict() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let app = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        // The rest of the request is unread, so the kernel resets the connection.
        stream.read_exact(&mut [0]).expect("a request");
    });
    let (status, why) = AskServer::start(&url, |_| {}).ask("a");
    assert!(status == 503 && why.contains("no verdict from http://127.0.0.1:"), "{status} {why}");
    app.join().expect("no panic");
}

#[test]
fn an_application_that_is_silent_or_drips_has_a_deadline() {
    let short = |auth: &mut AuthSettings| auth.ask_time = "50ms".parse().expect("a period");
    let silent = App::start(|_| true);
    let (status, why) = AskServer::start(&silent.url(), short).ask("a");
    assert!(status == 503 && why.contains("no response within auth.ask_time"), "{status} {why}");
    // Interim responses, and lines of a head, each in time.
    for (first, next) in [("", "HTTP/1.1 100 Continue\r\n\r\n"), ("HTTP/1.1 200 OK\r\n", "X: y\r\n")] {
        let dripping = App::start(move |call| {
            call.send(first);
            while call.send(next) {}
            false
        });
        assert_eq!(AskServer::start(&dripping.url(), short).ask("a").0, 503);
    }
}

#[test]
fn an_application_that_cannot_be_reached_is_no_verdict() {
    // A service of 1988 (RFC 1078), on a port that no test gets from the system.
    let (status, why) = AskServer::start("http://127.0.0.1:1/may", |_| {}).ask("a");
    assert!(status == 503 && why.contains("no verdict from http://127.0.0.1:1/may: "), "{status} {why}");
    // A label has at most 63 bytes (RFC 1035 §2.3.4).
    let nowhere = format!("http://{}.invalid/", "x".repeat(70));
    let (status, why) = AskServer::start(&nowhere, |_| {}).ask("a");
    assert!(status == 503 && why.contains("cannot be resolved"), "{status} {why}");
}

// ---- connections ----

#[test]
fn questions_reuse_a_connection() {
    let app = App::start(|call| call.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"));
    let server = AskServer::start(&format!("http://localhost:{}/", app.address.port()), |_| {});
    for channel in ["a", "b", "c"] {
        assert_eq!(server.ask(channel).0, 200);
    }
    assert_eq!(app.connections(), [0, 0, 0], "the name was resolved, and one connection serves all");
}

#[test]
fn a_connection_that_cannot_be_kept_is_not() {
    for response in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nyes",
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nyes",
        // Unexpected bytes could be read as the response to the next question.
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyesHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let app = App::start(move |call| call.send(response));
        let server = AskServer::start(&app.url(), |_| {});
        assert_eq!([server.ask("a").0, server.ask("b").0], [200, 200], "{response}");
        assert_eq!(app.connections(), [0, 1], "{response}");
    }
    // A body that is too long to be dropped. The verdict does not wait for its end, which never comes.
    let app = App::start(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n") && call.send(&"x".repeat(100_000))
    });
    let server = AskServer::start(&app.url(), |auth| auth.ask_connections = NonZeroU16::MIN);
    assert_eq!([server.ask("a").0, server.ask("b").0], [200, 200]);
    assert_eq!(app.connections(), [0, 1]);
}

#[test]
fn a_kept_connection_that_the_application_closes_costs_no_verdict() {
    // Each connection serves one request, and closes at the next.
    let app = App::start(|call| call.place.1 == 0 && call.send(ALLOWED));
    let server = AskServer::start(&app.url(), |_| {});
    for channel in ["a", "b", "c"] {
        assert_eq!(server.ask(channel), (200, "for 0 s".into()), "{channel}");
    }
    assert_eq!(app.connections(), [0, 0, 1, 1, 2]);
}

#[test]
fn a_question_is_repeated_once_and_only_without_a_response() {
    // After the first request the application closes every connection, without a response.
    let app = App::start(|call| call.place == (0, 0) && call.send(ALLOWED));
    let server = AskServer::start(&app.url(), |_| {});
    assert_eq!(server.ask("a").0, 200);
    assert_eq!(server.ask("b").0, 503);
    assert_eq!(app.connections(), [0, 0, 1]);
    // A part of a response is one.
    let app = App::start(|call| match call.place.1 {
        0 => call.send(ALLOWED),
        _ => {
            call.send("HTTP/1.1 2");
            false
        }
    });
    let server = AskServer::start(&app.url(), |_| {});
    assert_eq!(server.ask("a").0, 200);
    let (status, why) = server.ask("b");
    assert!(status == 503 && why.contains("ended within the response"), "{status} {why}");
    assert_eq!(app.connections(), [0, 0]);
}

#[test]
fn a_repeated_question_gets_a_new_connection() {
    // Two connections are kept, and both close at their next question.
    let both = Arc::new(Barrier::new(2));
    let app = App::start(move |call| {
        if call.place.0 < 2 && call.place.1 == 0 {
            both.wait();
        }
        call.place.1 == 0 && call.send(ALLOWED)
    });
    let server = AskServer::start(&app.url(), |_| {});
    assert_eq!(["a", "b"].map(|channel| server.send(channel)).map(|client| read(client).0), [200, 200]);
    assert_eq!(server.ask("c").0, 200);
    let connections = app.connections();
    assert!(connections.len() == 4 && connections.ends_with(&[2]), "{connections:?}");
}

#[test]
fn concurrent_questions_have_a_limit_and_a_queue() {
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let app = App::start(move |call| {
        let is_released = released.lock().expect("no panic").recv().is_ok();
        is_released && call.send(ALLOWED)
    });
    let server = AskServer::start(&app.url(), |auth| {
        auth.ask_time = "1m".parse().expect("a period");
        auth.ask_connections = NonZeroU16::MIN.saturating_add(1);
        auth.ask_queue = NonZeroU16::MIN.saturating_add(1);
    });
    let mut clients = vec![server.send("a"), server.send("b")];
    let mut first = [app.head().0, app.head().0];
    first.sort_unstable();
    assert_eq!(first, [0, 1], "two at a time");
    // Two of four more questions fit into the queue.
    clients.extend(["c", "d", "e", "f"].map(|channel| server.send(channel)));
    let (tell, told) = channel();
    for client in clients {
        let tell = tell.clone();
        thread::spawn(move || tell.send(read(client)));
    }
    let next = || told.recv_timeout(PATIENCE).expect("a response").0;
    assert_eq!([next(), next()], [429, 429], "these did not fit");
    assert_eq!(app.connections(), Vec::<usize>::new(), "the queue waits");
    for _ in 0..4 {
        release.send(()).expect("the application waits");
    }
    assert_eq!([next(), next(), next(), next()], [200; 4]);
    let rest = app.connections();
    assert!(rest.len() == 2 && rest.iter().all(|number| *number < 2), "{rest:?}: on the same connections");
}

#[cfg(unix)]
#[test]
fn an_application_at_a_unix_socket_is_asked() {
    use std::io::{BufRead as _, BufReader};
    let path = std::env::temp_dir().join(format!("encke-ask-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let app = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).expect("a line");
        }
        stream.get_mut().write_all(ALLOWED.as_bytes()).expect("room");
        head
    });
    let url = format!("http://unix:{}:/may", path.display());
    assert_eq!(AskServer::start(&url, |_| {}).ask("a").0, 200);
    let head = app.join().expect("no panic");
    assert!(head.starts_with("GET /may HTTP/1.1\r\nHost: localhost\r\n"), "{head}");
    std::fs::remove_file(&path).expect("it was made here");
}

#[test]
fn an_application_is_asked_by_tls_if_its_certificate_is_valid() {
    let folder = std::env::temp_dir().join(format!("encke-ask-tls-{}", std::process::id()));
    let authority = |name: &str| {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        LocalAuthority::open(&folder).expect("an authority")
    };
    let (its, other) = (authority("its"), authority("other"));
    let (cert, key) = (its.leaf.cert.clone(), its.leaf.key.clone());
    let tls = TlsSettings { cert: Some(cert), key: Some(key), ..TlsSettings::default() };
    let identity = Arc::new(TlsIdentity::read(&tls, &mut Vec::new()).expect("a certificate"));
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let allows = |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::text(200, "yes"));
    let app = server.listener(ListenConfig { tls: Some(identity), ..any.into() }).mount("/", allows);
    let app = app.start().expect("it starts");
    let port = app.addresses()[0].to_string().rsplit_once(':').expect("a port").1.to_owned();
    let url = format!("https://localhost:{port}/may");
    for (ca, expected) in [(Some(its.certificate), 200), (Some(other.certificate), 503), (None, 503)] {
        let server = AskServer::start(&url, |auth| auth.ask_ca = ca.clone());
        for channel in ["a", "b"] {
            let (status, text) = server.ask(channel);
            assert_eq!(status, expected, "{ca:?}: {text}");
        }
    }
    app.stop();
    std::fs::remove_dir_all(&folder).expect("it was made here");
}
