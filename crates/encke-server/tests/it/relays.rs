//! Open responses from outside: a handler that relays requests to another server (`rig/relays.rs`), and a handler that writes
//! the content that its path specifies.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use encke_server::{
    Body, CloseReason, Exchange, ExchangeKey, Fields, Handler, HandlerContext, Mount, Outcome, Reply,
    Request, WorkerSetup,
};

use crate::rig::h2::{END_STREAM, GET, H2, OK, POST, RST_STREAM, begin, frame, request};
use crate::rig::handlers::hello;
use crate::rig::relays::{
    ECHO_KEY, Relay, StreamCheck, accept, byte_at, echo, finish, listen, read_all, reset, write_rest,
    write_stream, write_until_stopped,
};
use crate::rig::{Answer, Client, End, PATIENCE, Rig, Stand};

on_every_stand! {
    bodies_pass_in_both_directions_at_once,
    a_client_that_goes_closes_the_outgoing_connection,
    a_client_that_goes_before_a_response_closes_the_outgoing_connection,
    a_server_that_resets_resets_the_client,
    a_relay_goes_on_during_a_drain,
}

on_every_back_end! {
    a_client_that_reads_nothing_stops_the_other_server,
    a_server_that_reads_nothing_stops_the_client,
    a_stream_carries_bodies_in_both_directions,
    a_reset_of_the_server_resets_the_stream,
    a_reset_of_the_stream_closes_the_outgoing_connection,
}

on_two_stands! {
    content_without_a_length_ends_with_a_connection_of_http_1_0,
    content_with_a_length_keeps_a_connection,
    responses_without_content_drop_what_is_written,
    trailers_follow_the_content,
    requests_behind_an_open_response_are_answered,
    a_failed_dial_is_a_502,
    more_than_the_length_resets_the_connection,
    less_than_the_length_resets_the_connection,
    writes_before_and_in_the_call_leave_in_order,
    a_write_for_an_exchange_that_is_over_is_dropped,
    a_handler_that_panics_while_it_writes_resets_the_client,
    a_delegated_request_is_answered_through_the_handler_that_delegated_it,
    a_rerouted_request_is_answered_by_the_mount_of_its_new_path,
    a_request_that_has_waited_is_passed_to_its_handler_again,
    a_client_that_ends_its_side_ends_a_response_without_a_length_that_rests,
}

#[cfg(feature = "tls")]
mod sealed {
    use super::*;

    on_two_stands! {
        bodies_pass_in_both_directions_by_tls,
    }

    fn bodies_pass_in_both_directions_by_tls(on: Stand) {
        use crate::rig::tls;

        const BYTES: usize = 300_000;
        let (listener, address) = listen();
        let authority = tls::Authority::new();
        let rig = tls::serve(on, &authority, |_| {}, |server| server.mount("/", Relay::to(address)));
        let config = std::sync::Arc::new(authority.client(&tls::BOTH));
        let mut client = tls::shake(&rig, &config, "localhost");
        let serving = std::thread::spawn(move || (0..2).for_each(|_| echo(accept(&listener))));
        for _ in 0..2 {
            let head = format!(
                "POST /length/{BYTES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BYTES}\r\n\r\n"
            );
            client.write_all(head.as_bytes()).expect("sent");
            write_stream(&mut client, BYTES as u64, 9, 1).expect("sent");
            let (head, content) = tls::answer(&mut client);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert_eq!(content.len(), BYTES);
            StreamCheck::new(9 ^ ECHO_KEY).take(&content);
        }
        serving.join().expect("no panic");
        ended(rig);
    }
}

fn rig(on: Stand) -> (Rig, TcpListener, Relay) {
    let (listener, address) = listen();
    let relay = Relay::to(address);
    let mount = relay.clone();
    (on.serve(|server| server.mount("/", mount).mount("/turn", hello)), listener, relay)
}

/// Ends a server, and checks that no handler has panicked.
fn ended(rig: Rig) {
    assert_eq!(rig.count("encke_handler_panics_total"), 0, "see the text of the panic");
    rig.end();
}

fn nothing_is_open(rig: &Rig) {
    let open = || rig.count("encke_upstream_connections") + rig.count("encke_exchanges_open");
    rig.wait(|| open() == 0, "nothing is open");
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn head_of_post(bytes: u64) -> String {
    format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n")
}

/// Sends a GET that reaches the other server.
fn begun(rig: &Rig, listener: &TcpListener, path: &str) -> (Client, TcpStream) {
    let mut client = rig.client();
    client.send(get(path));
    let mut stream = accept(listener);
    assert!(read_all(&mut stream).is_empty(), "no body");
    (client, stream)
}

fn bodies_pass_in_both_directions_at_once(on: Stand) {
    const BYTES: u64 = 5 << 20;
    let (rig, listener, _) = rig(on);
    let serving = std::thread::spawn(move || (0..2).for_each(|_| echo(accept(&listener))));
    let mut client = rig.client();
    for seed in 1..=2 {
        let to = client.stream().try_clone().expect("a descriptor");
        let sending = std::thread::spawn(move || {
            (&to).write_all(head_of_post(BYTES).as_bytes()).expect("room");
            write_stream(&to, BYTES, 1, seed).expect("room");
        });
        let answer = client.answer();
        sending.join().expect("no panic");
        assert_eq!((answer.status, answer.body.len() as u64), (200, BYTES));
        StreamCheck::new(1 ^ ECHO_KEY).take(&answer.body);
    }
    serving.join().expect("no panic");
    nothing_is_open(&rig);
    ended(rig);
}

/// The relay asserts at each write that the waiting bytes are within the limit.
fn a_client_that_reads_nothing_stops_the_other_server(on: Stand) {
    let (rig, listener, relay) = rig(on);
    let mut client = rig.narrow_client();
    client.send(get("/"));
    let stream = accept(&listener);
    let taken = || rig.count_of("encke_upstream_bytes_total", "received");
    let written = write_until_stopped(&rig, &stream, 64 << 20, 2, taken);
    assert!(relay.counts.pauses.load(Ordering::Relaxed) > 0, "the other server is paused");
    let end = written + (4 << 20);
    let serving = std::thread::spawn(move || write_rest(&stream, written..end, 2, 1).expect("all is taken"));
    let answer = client.answer();
    serving.join().expect("no panic");
    assert_eq!(answer.body.len() as u64, end);
    StreamCheck::new(2).take(&answer.body);
    ended(rig);
}

fn a_server_that_reads_nothing_stops_the_client(on: Stand) {
    const BYTES: u64 = 64 << 20;
    let (rig, listener, _) = rig(on);
    let mut client = rig.client();
    let before = rig.received();
    let head = head_of_post(BYTES);
    client.send(&head);
    let stream = accept(&listener);
    rig.wait(|| rig.received() == before + head.len() as u64, "the head is received");
    let written = write_until_stopped(&rig, client.stream(), BYTES, 3, || rig.received());
    let to = client.stream().try_clone().expect("a descriptor");
    let sending =
        std::thread::spawn(move || write_rest(&to, written..BYTES, 3, 1).expect("in the end all is taken"));
    StreamCheck::new(3).read(&stream, BYTES, 2);
    drop(stream);
    assert_eq!(client.answer().status, 200);
    sending.join().expect("no panic");
    ended(rig);
}

fn a_client_that_goes_closes_the_outgoing_connection(on: Stand) {
    let (rig, listener, relay) = rig(on);
    let (mut client, mut stream) = begun(&rig, &listener, "/");
    stream.write_all(b"the beginning").expect("room");
    assert_eq!(client.head().status, 200);
    client.reset();
    let gone = || relay.counts.gone.load(Ordering::Relaxed);
    rig.wait(|| gone() == 1, "the handler knows");
    nothing_is_open(&rig);
    // Closed after everything was sent: further bytes cause a reset.
    while stream.write_all(&[0; 100_000]).is_ok() {}
    assert_eq!(gone(), 1);
    ended(rig);
}

fn a_client_that_goes_before_a_response_closes_the_outgoing_connection(on: Stand) {
    let (rig, listener, relay) = rig(on);
    let mut client = rig.client();
    client.send(format!("{}abc", head_of_post(10)));
    let mut stream = accept(&listener);
    let mut body = [0; 3];
    stream.read_exact(&mut body).expect("the body so far");
    client.reset();
    assert!(read_all(&mut stream).is_empty());
    nothing_is_open(&rig);
    assert_eq!(relay.counts.gone.load(Ordering::Relaxed), 1);
    assert_eq!(relay.counts.broken.load(Ordering::Relaxed), 1);
    ended(rig);
}

fn a_server_that_resets_resets_the_client(on: Stand) {
    let (rig, listener, relay) = rig(on);
    let (mut client, mut stream) = begun(&rig, &listener, "/");
    stream.write_all(b"the beginning").expect("room");
    assert_eq!(client.head().status, 200);
    reset(stream);
    assert_eq!(client.rest().1, End::Reset);
    rig.wait_for_closes(CloseReason::StreamFailed, 1);
    nothing_is_open(&rig);
    assert_eq!(relay.counts.gone.load(Ordering::Relaxed), 0, "it has reset the exchange itself");
    // Before the response has begun, another one can be sent.
    let (mut client, stream) = begun(&rig, &listener, "/");
    reset(stream);
    assert_eq!(client.answer().status, 502);
    ended(rig);
}

fn a_relay_goes_on_during_a_drain(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, mut stream) = begun(&rig, &listener, "/");
    stream.write_all(b"before ").expect("room");
    assert_eq!(client.head().status, 200);
    rig.running().drain(Duration::ZERO, PATIENCE * 2);
    let open = rig.running().open_work(PATIENCE).expect("the drain has begun");
    assert_eq!((open.streams, open.requests), (0, 1));
    stream.write_all(b"and behind").expect("room");
    drop(stream);
    let (rest, end) = client.rest();
    assert_eq!(end, End::Finished);
    let text = String::from_utf8(rest).expect("text");
    assert!(text.contains("before ") && text.ends_with("and behind\r\n0\r\n\r\n"), "{text:?}");
    ended(rig);
}

// ---- HTTP/2 ----

fn a_stream_carries_bodies_in_both_directions(on: Stand) {
    const BYTES: u64 = 700_000;
    let (rig, listener, _) = rig(on);
    let serving = std::thread::spawn(move || (0..2).for_each(|_| echo(accept(&listener))));
    let mut client = H2::connect(&rig);
    let body: Vec<u8> = (0..BYTES).map(|place| byte_at(place, 4)).collect();
    for (stream, path) in [(1, "/".to_owned()), (3, format!("/length/{BYTES}"))] {
        client.send(&request(stream, POST, &path, 0));
        client.send_body(stream, &body);
        let got = client.answer(stream);
        assert_eq!((got.ended, got.reset, got.body.len() as u64), (true, None, BYTES));
        StreamCheck::new(4 ^ ECHO_KEY).take(&got.body);
    }
    serving.join().expect("no panic");
    nothing_is_open(&rig);
    ended(rig);
}

fn a_reset_of_the_server_resets_the_stream(on: Stand) {
    let (rig, listener, _) = rig(on);
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    let mut stream = accept(&listener);
    stream.write_all(b"the beginning").expect("room");
    assert!(client.body_with(1, b"the beginning"));
    reset(stream);
    assert!(client.answer(1).reset.is_some());
    nothing_is_open(&rig);
    ended(rig);
}

fn a_reset_of_the_stream_closes_the_outgoing_connection(on: Stand) {
    let (rig, listener, relay) = rig(on);
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    let mut stream = accept(&listener);
    stream.write_all(b"the beginning").expect("room");
    assert!(client.body_with(1, b"the beginning"));
    client.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    assert!(read_all(&mut stream).is_empty());
    nothing_is_open(&rig);
    assert_eq!(relay.counts.gone.load(Ordering::Relaxed), 1);
    // The connection stays open.
    client.send(&request(3, GET, "/", END_STREAM));
    drop(accept(&listener));
    assert_eq!(client.answer(3), OK);
    ended(rig);
}

// ---- framings ----

fn content_without_a_length_ends_with_a_connection_of_http_1_0(on: Stand) {
    let (rig, listener, _) = rig(on);
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
    let stream = accept(&listener);
    write_stream(&stream, 300_000, 5, 1).expect("room");
    drop(stream);
    let answer = client.answer();
    assert_eq!((answer.field("Transfer-Encoding"), answer.closes()), (None, true));
    assert_eq!(answer.body.len(), 300_000);
    StreamCheck::new(5).take(&answer.body);
    rig.end();
}

fn content_with_a_length_keeps_a_connection(on: Stand) {
    let (rig, listener, _) = rig(on);
    let mut client = rig.client();
    for version in ["1.0", "1.1", "1.0"] {
        client.send(format!(
            "GET /length/300000 HTTP/{version}\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
        ));
        let stream = accept(&listener);
        write_stream(&stream, 300_000, 6, 1).expect("room");
        drop(stream);
        let answer = client.answer();
        assert_eq!((answer.field("Content-Length"), answer.closes()), (Some("300000"), false));
        StreamCheck::new(6).take(&answer.body);
    }
    rig.end();
}

/// Writes the content that the path specifies.
#[derive(Clone)]
struct Writer;

struct Writing {
    context: HandlerContext,
    /// The key of an exchange that is over.
    last: Option<ExchangeKey>,
}

impl Mount for Writer {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Writing { context, last: None })
    }
}

impl Handler for Writing {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let (context, key) = (self.context.clone(), exchange.key());
        let open = |status, length| Outcome::Now(Reply::new(status).body(Body::Open(length)));
        if let Some(over) = self.last.replace(key) {
            context.write(over, b"for an exchange that is over");
            context.finish(over, Fields::new());
        }
        match request.path() {
            b"/more" => {
                context.write(key, b"four");
                open(200, Some(3))
            }
            b"/less" => {
                context.write(key, b"four");
                context.finish(key, Fields::new());
                open(200, Some(5))
            }
            b"/204" | b"/304" => {
                assert_eq!(context.write(key, b"dropped").bytes, 7);
                context.finish(key, Fields::new());
                open(if request.path() == b"/204" { 204 } else { 304 }, None)
            }
            b"/respond" => {
                context.write(key, b"one ");
                context.respond(exchange, Reply::new(200).body(Body::Open(None)));
                context.write(key, b"two ");
                context.write(key, b"three");
                context.finish(key, Fields::new());
                Outcome::Later
            }
            b"/panic" => {
                context.write(key, &[0; 4 << 20]);
                open(200, None)
            }
            _ => {
                context.write(key, b"content");
                context.finish(key, Fields::new());
                open(200, None)
            }
        }
    }

    fn writable(&mut self, _: ExchangeKey) {
        panic!("asked for by the case");
    }
}

fn writer(on: Stand) -> Rig {
    on.serve(|server| server.mount("/", Writer))
}

fn responses_without_content_drop_what_is_written(on: Stand) {
    let rig = writer(on);
    let mut client = rig.client();
    for path in ["/204", "/304"] {
        assert_eq!(client.get(path).body, b"");
    }
    client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 200);
    assert_eq!(client.get("/").text(), "content");
    rig.end();
}

fn trailers_follow_the_content(on: Stand) {
    let (rig, listener, _) = rig(on);
    let (mut client, mut stream) = begun(&rig, &listener, "/trailers");
    stream.write_all(b"content").expect("room");
    drop(stream);
    assert_eq!(client.head().status, 200);
    let expected = b"7\r\ncontent\r\n0\r\nChecksum: abc\r\n\r\n";
    assert_eq!(client.read_exact(expected.len()), expected);

    let mut client = H2::speak(client_with(&rig, &begin()));
    client.send(&request(1, GET, "/trailers", END_STREAM));
    let mut stream = accept(&listener);
    stream.write_all(b"content").expect("room");
    drop(stream);
    let got = client.answer(1);
    assert_eq!((&got.body[..], got.ended), (&b"content"[..], true));
    assert!(!got.trailers.is_empty());
    rig.end();
}

fn client_with(rig: &Rig, bytes: &[u8]) -> Client {
    let mut client = rig.client();
    client.send(bytes);
    client
}

fn requests_behind_an_open_response_are_answered(on: Stand) {
    let (rig, listener, _) = rig(on);
    let mut client = rig.client();
    client.send([get("/"), get("/length/5"), get("/")].concat());
    for text in ["first", "other", "third"] {
        let mut stream = accept(&listener);
        stream.write_all(text.as_bytes()).expect("room");
        finish(&stream);
        assert_eq!(client.answer().text(), text);
    }
    rig.end();
}

fn a_failed_dial_is_a_502(on: Stand) {
    let refusing = Relay::to(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
    let rig = on.serve(|server| server.mount("/", refusing));
    assert_eq!(rig.client().get("/").status, 502);
    rig.end();
}

fn more_than_the_length_resets_the_connection(on: Stand) {
    let rig = writer(on);
    let mut client = rig.client();
    client.send(get("/more"));
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    rig.wait_for_closes(CloseReason::BodyLength, 1);
    rig.end();
}

fn less_than_the_length_resets_the_connection(on: Stand) {
    let rig = writer(on);
    let mut client = rig.client();
    client.send(get("/less"));
    assert_eq!(client.rest().1, End::Reset);
    rig.wait_for_closes(CloseReason::BodyLength, 1);
    rig.end();
}

fn writes_before_and_in_the_call_leave_in_order(on: Stand) {
    let rig = writer(on);
    let mut client = rig.client();
    for _ in 0..3 {
        let answer: Answer = client.get("/respond");
        assert_eq!(answer.text(), "one two three");
    }
    rig.end();
}

fn a_write_for_an_exchange_that_is_over_is_dropped(on: Stand) {
    let rig = writer(on);
    let mut client = rig.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "content");
    }
    rig.end();
}

fn a_handler_that_panics_while_it_writes_resets_the_client(on: Stand) {
    let rig = writer(on);
    let mut client = rig.client();
    client.send(get("/panic"));
    assert_eq!(client.rest().1, End::Reset);
    rig.wait_for_closes(CloseReason::HandlerPanic, 1);
    rig.end();
}

/// Answers `/late` itself, later, and passes all other requests to the handler below it, with `/late` in place of `/moved`.
#[derive(Clone)]
struct Above;

struct AboveHandler {
    below: Box<dyn Handler>,
    context: HandlerContext,
    waiting: std::collections::HashMap<ExchangeKey, Exchange>,
}

/// Responds later to `/late`, never to `/dropped`, and at once to everything else.
struct Below;

impl Handler for Below {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        match request.path() {
            b"/late" => std::thread::spawn(move || exchange.answer(Reply::text(404, "late"))),
            b"/dropped" => std::thread::spawn(move || drop(exchange)),
            b"/lost" => return Outcome::Later,
            _ => return Outcome::Now(Reply::text(200, "now")),
        };
        Outcome::Later
    }
}

impl Mount for Above {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(AboveHandler { below: Box::new(Below), context, waiting: std::collections::HashMap::new() })
    }
}

impl Handler for AboveHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        match exchange.delegate(request, &mut *self.below) {
            Outcome::Now(reply) => Outcome::Now(reply.with("X-Seen", "now")),
            Outcome::Later => {
                self.waiting.insert(exchange.key(), exchange);
                Outcome::Later
            }
            outcome @ Outcome::Takeover(_) => outcome,
        }
    }

    fn delegated(&mut self, key: ExchangeKey, reply: Reply) {
        let exchange = self.waiting.remove(&key).expect("it waits");
        self.context.respond(exchange, reply.with("X-Seen", "later"));
    }
}

fn a_delegated_request_is_answered_through_the_handler_that_delegated_it(on: Stand) {
    let rig = on.serve(|server| server.mount("/", Above));
    let mut client = rig.client();
    // The other thread may be done before the call returns.
    let either = ["now", "later"];
    for (path, status, seen) in [
        ("/", 200, &either[..1]),
        ("/late", 404, &either),
        ("/dropped", 500, &either),
        ("/lost", 500, &either[..1]),
    ] {
        client.send(get(path));
        let answer = client.answer();
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.field("x-seen").is_some_and(|one| seen.contains(&one)), "{path}: {answer:?}");
    }
    ended(rig);
}

/// Passes each request on, now or later: `/on/PATH` to `/PATH`.
#[derive(Clone)]
struct PassOn;

struct PassOnHandler {
    context: HandlerContext,
    jobs: std::collections::HashMap<encke_server::JobId, (Exchange, String)>,
}

impl PassOnHandler {
    fn pass_on(&self, mut exchange: Exchange, path: &str) {
        let mut fields = Fields::new();
        fields.push("X-Passed", b"on").expect("well-formed");
        exchange.add_fields(&fields);
        let kept = encke_server::Kept::sample("GET", path, "localhost", &Fields::new()).expect("a request");
        self.context.reroute(exchange, kept);
    }
}

impl Mount for PassOn {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(PassOnHandler { context, jobs: std::collections::HashMap::new() })
    }
}

impl Handler for PassOnHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        assert!(!request.is_rerouted(), "the client's own request");
        let path = String::from_utf8_lossy(&request.path()[3..]).into_owned();
        if path.starts_with("/later/") {
            let job = self.context.offload(|| ());
            self.jobs.insert(job, (exchange, path));
        } else {
            self.pass_on(exchange, &path);
        }
        Outcome::Later
    }

    fn offloaded(&mut self, job: encke_server::JobId, _: Option<encke_io::Done>) {
        let (exchange, path) = self.jobs.remove(&job).expect("one of this handler");
        self.pass_on(exchange, &path);
    }
}

fn a_rerouted_request_is_answered_by_the_mount_of_its_new_path(on: Stand) {
    let see = |request: &Request<'_>, _: Exchange| {
        let path = String::from_utf8_lossy(request.path()).into_owned();
        Outcome::Now(Reply::text(200, format!("{path} {}", request.is_rerouted())))
    };
    let rig = on.serve(|server| server.mount("/on/", PassOn).mount("/seen/", see).mount("/later/", see));
    let mut client = rig.client();
    // The second request arrives while the first one is open.
    client.send([get("/on/later/a"), get("/on/seen/b"), get("/seen/c")].concat());
    for (path, passed, body) in [
        ("/on/later/a", Some("on"), "/later/a true"),
        ("/on/seen/b", Some("on"), "/seen/b true"),
        ("/seen/c", None, "/seen/c false"),
    ] {
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("x-passed")), (200, passed), "{path}");
        assert_eq!(String::from_utf8_lossy(&answer.body), body);
    }
    client.send(get("/on/nobody/serves/this"));
    assert_eq!(client.answer().status, 404);
    // The client disconnects before its response.
    let mut gone = rig.client();
    gone.send(get("/on/later/x"));
    drop(gone);
    nothing_is_open(&rig);
    ended(rig);
}

/// Responds to each request at its second call.
#[derive(Clone)]
struct SecondCall;

struct SecondCallHandler {
    context: HandlerContext,
    jobs: std::collections::HashMap<encke_server::JobId, (Exchange, encke_server::Kept)>,
    /// The paths of requests that were seen once.
    seen: std::collections::HashSet<Vec<u8>>,
}

impl Mount for SecondCall {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let (jobs, seen) = (std::collections::HashMap::new(), std::collections::HashSet::new());
        Box::new(SecondCallHandler { context, jobs, seen })
    }
}

impl Handler for SecondCallHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        if self.seen.remove(request.path()) {
            let path = String::from_utf8_lossy(request.path()).into_owned();
            return Outcome::Now(Reply::text(200, format!("{path} {}", request.is_rerouted())));
        }
        self.seen.insert(request.path().to_vec());
        let job = self.context.offload(|| ());
        self.jobs.insert(job, (exchange, request.keep()));
        Outcome::Later
    }

    fn offloaded(&mut self, job: encke_server::JobId, _: Option<encke_io::Done>) {
        let (exchange, request) = self.jobs.remove(&job).expect("one of this handler");
        self.context.call_again(exchange, request);
    }
}

fn a_request_that_has_waited_is_passed_to_its_handler_again(on: Stand) {
    let rig = on.serve(|server| server.mount("/", SecondCall));
    let mut client = rig.client();
    client.send([get("/a"), get("/b")].concat());
    for body in ["/a false", "/b false"] {
        let answer = client.answer();
        assert_eq!((answer.status, &*String::from_utf8_lossy(&answer.body)), (200, body));
    }
    let mut gone = rig.client();
    gone.send(get("/gone"));
    drop(gone);
    nothing_is_open(&rig);
    ended(rig);
}

fn a_client_that_ends_its_side_ends_a_response_without_a_length_that_rests(on: Stand) {
    let (rig, listener, relay) = rig(on);
    let (mut client, mut stream) = begun(&rig, &listener, "/");
    stream.write_all(b"the beginning").expect("room");
    assert_eq!(client.head().status, 200);
    client.finish();
    rig.wait(|| relay.counts.gone.load(Ordering::Relaxed) == 1, "the handler knows");
    assert!(read_all(&mut stream).is_empty(), "closed");
    nothing_is_open(&rig);
    ended(rig);
}
