//! Guards that let requests pass without a record, and tokens that live as long as a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use encke_server::{
    Body, EndToken, Exchange, Guard, GuardCall, GuardMount, GuardOutcome, HandlerContext, Outcome, Passage,
    Reply, Request, WorkerSetup,
};

use crate::residents;
use crate::rig::h2::{END_STREAM, GET, H2, RST_STREAM, frame, request};
use crate::rig::handlers::{hello, pattern};
use crate::rig::{Client, Rig, Stand, wait_for};

on_every_stand! {
    a_token_lives_until_the_response_is_sent_or_the_client_has_gone,
    a_token_lives_as_long_as_the_resident_of_a_connection,
    a_token_of_a_request_before_that_of_a_resident_ends_with_its_response,
}

on_two_stands! {
    a_guard_that_passes_a_request_is_not_asked_again,
    a_guard_that_panics_while_it_passes_a_request_is_a_500,
    a_token_ends_with_its_stream_of_http2,
    a_token_of_a_request_that_a_later_guard_refuses_is_dropped,
}

/// Content that no socket buffer holds.
const LARGE: usize = 64 << 20;

/// Counts the open requests.
#[derive(Clone, Default)]
struct Tokens(Arc<AtomicUsize>);

impl Tokens {
    /// Number of open requests.
    fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self, count: usize) {
        wait_for(|| self.open() == count, "the token is dropped", || format!("{} of {count}", self.open()));
    }
}

/// An open request.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GuardMount for Tokens {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(self.clone())
    }
}

impl Guard for Tokens {
    fn check(&mut self, _: &Request<'_>, _: GuardCall<'_>) -> GuardOutcome {
        self.0.fetch_add(1, Ordering::Relaxed);
        let until_end = vec![EndToken::new(Open(Arc::clone(&self.0)))];
        GuardOutcome::Pass(Passage { until_end, ..Passage::default() })
    }
}

fn large(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::new(200).body(Body::Bytes(pattern(LARGE).to_vec())))
}

fn serve(on: Stand) -> (Rig, Tokens) {
    let tokens = Tokens::default();
    let rig = on.serve(|server| {
        let server = server.mount("/", hello).mount("/large", large).mount("/echo", residents::Echo);
        server.guard(tokens.clone())
    });
    (rig, tokens)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn a_token_lives_until_the_response_is_sent_or_the_client_has_gone(on: Stand) {
    let (rig, tokens) = serve(on);
    let mut client = rig.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "Hello\n");
        tokens.wait(0);
    }
    client.send(get("/").repeat(5));
    assert_eq!(client.answers(5).len(), 5);
    tokens.wait(0);

    let mut slow = rig.client();
    slow.send(get("/large"));
    slow.read_exact(1000);
    assert_eq!(tokens.open(), 1, "the client has not read all of it");
    let mut other = rig.client();
    other.send(get("/large"));
    other.read_exact(1000);
    assert_eq!(tokens.open(), 2);
    assert_eq!(client.get("/").text(), "Hello\n");
    tokens.wait(2);
    other.reset();
    tokens.wait(1);
    slow.read_exact(LARGE - 1000);
    tokens.wait(0);
    rig.end();
}

fn a_token_lives_as_long_as_the_resident_of_a_connection(on: Stand) {
    let (rig, tokens) = serve(on);
    let mut client: Client = rig.client();
    client.send(get("/echo"));
    assert_eq!(client.read_exact(residents::HEAD.len()), residents::HEAD);
    for _ in 0..3 {
        client.send("bytes");
        assert_eq!(client.read_exact(5), b"bytes");
        assert_eq!(tokens.open(), 1);
    }
    client.reset();
    tokens.wait(0);
    rig.end();
}

fn a_token_of_a_request_before_that_of_a_resident_ends_with_its_response(on: Stand) {
    let (rig, tokens) = serve(on);
    let mut client: Client = rig.client();
    client.send(get("/") + &get("/") + &get("/echo"));
    assert_eq!(client.answers(2).len(), 2);
    assert_eq!(client.read_exact(residents::HEAD.len()), residents::HEAD);
    tokens.wait(1);
    client.send("bytes");
    assert_eq!(client.read_exact(5), b"bytes");
    assert_eq!(tokens.open(), 1);
    client.reset();
    tokens.wait(0);
    rig.end();
}

fn a_token_ends_with_its_stream_of_http2(on: Stand) {
    let (rig, tokens) = serve(on);
    let mut h2 = H2::connect(&rig);
    for stream in [1, 3] {
        h2.send(&request(stream, GET, "/", END_STREAM));
        assert!(h2.answer(stream).ended);
        tokens.wait(0);
    }
    // The window is nearly full.
    h2.send(&request(5, GET, "/large", END_STREAM));
    while h2.got(5).body.len() < 60_000 {
        h2.read_one();
    }
    assert_eq!(tokens.open(), 1);
    h2.send(&frame(RST_STREAM, 0, 5, &8_u32.to_be_bytes()));
    tokens.wait(0);
    rig.end();
}

fn a_token_of_a_request_that_a_later_guard_refuses_is_dropped(on: Stand) {
    let tokens = Tokens::default();
    let refuse = |request: &Request<'_>| match request.path() {
        b"/no" => encke_server::GuardVerdict::Refuse(Reply::error(403)),
        _ => encke_server::GuardVerdict::Pass(Passage::default()),
    };
    let rig = on.serve(|server| server.mount("/", hello).guard(tokens.clone()).guard(refuse));
    assert_eq!(rig.client().get("/").status, 200);
    assert_eq!(rig.client().get("/no").status, 403);
    tokens.wait(0);
    rig.end();
}

/// Lets requests of `/fast` pass without a check, and panics for `/panic`.
#[derive(Clone)]
struct Fast(&'static str);

impl GuardMount for Fast {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(self.clone())
    }
}

impl Guard for Fast {
    fn passes(&mut self, request: &Request<'_>) -> bool {
        assert_ne!(request.path(), b"/panic", "a guard that fails");
        request.path() == b"/fast" || request.query() == Some(self.0.as_bytes())
    }

    fn check(&mut self, _: &Request<'_>, _: GuardCall<'_>) -> GuardOutcome {
        let mut passage = Passage::default();
        passage.fields.push("X-Checked", self.0.as_bytes()).expect("well formed");
        GuardOutcome::Pass(passage)
    }
}

fn a_guard_that_passes_a_request_is_not_asked_again(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello).guard(Fast("one")).guard(Fast("two")));
    for (path, expected) in [
        ("/fast", &[][..]),
        ("/?one", &["two"]),
        // From the first guard on that has to check, all later ones check.
        ("/?two", &["one", "two"]),
        ("/", &["one", "two"]),
    ] {
        let answer = rig.client().get(path);
        let checked = answer.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-checked"));
        let checked: Vec<&str> = checked.map(|(_, value)| &**value).collect();
        assert_eq!((answer.text(), &checked[..]), ("Hello\n", expected), "{path}");
    }
    rig.end();
}

fn a_guard_that_panics_while_it_passes_a_request_is_a_500(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello).guard(Fast("one")));
    let mut client = rig.client();
    client.send(get("/panic"));
    let answer = client.answer();
    assert!(answer.status == 500 && answer.closes(), "{answer:?}");
    assert_eq!(rig.client().get("/fast").text(), "Hello\n", "the worker lives");
    rig.end();
}
