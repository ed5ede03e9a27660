//! Responses of handlers: at once, later, from other threads, piece by piece; and handlers that fail.

use std::sync::{Arc, Mutex};

use encke_server::{
    Body, CloseReason, Exchange, Fields, Handler, HandlerContext, HandlerWaker, Mount, Outcome, Prepared,
    Reply, Request, WorkerSetup,
};

use crate::rig::handlers::{
    Echo, Feed, Held, PATTERN_BYTES_MAX, Pattern, Step, hello, lock, pattern, streamed,
};
use crate::rig::{End, Stand};

on_every_stand! {
    an_answer_may_come_from_another_thread,
    answers_that_come_in_any_order_reach_their_clients,
    a_handler_is_woken_from_another_thread,
    an_answer_behind_a_thousand_messages_is_not_forgotten,
    an_answer_to_a_client_that_has_gone_goes_nowhere,
    every_kind_of_body_arrives_whole,
    a_stream_arrives_whole_in_chunks,
    a_stream_that_has_nothing_is_woken_from_another_thread,
    a_stream_is_pulled_only_as_fast_as_it_is_read,
    a_stream_that_fails_is_cut_off,
    a_stream_that_panics_is_cut_off,
    a_stream_is_dropped_when_its_client_has_gone,
    a_stream_that_has_nothing_is_dropped_after_half_a_close,
    a_request_behind_a_stream_waits_for_its_end,
}

on_two_stands! {
    an_exchange_that_is_dropped_is_a_500,
    a_handler_that_panics_is_a_500_and_the_worker_lives,
    an_interim_answer_comes_before_the_final_one,
    an_http_1_0_client_gets_no_interim_answer,
    no_answer_can_be_split_by_its_values,
    a_stream_to_an_http_1_0_client_ends_with_the_connection,
    a_stream_is_not_pulled_for_head,
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn an_answer_may_come_from_another_thread(stand: Stand) {
    let rig = stand.serve(|server| {
        server.mount("/", |_: &Request<'_>, exchange: Exchange| {
            std::thread::spawn(move || exchange.answer(Reply::text(200, "from a thread")));
            Outcome::Later
        })
    });
    let mut client = rig.client();
    for _ in 0..50 {
        assert_eq!(client.get("/").text(), "from a thread");
    }
    client.send(GET.repeat(8));
    for answer in client.answers(8) {
        assert_eq!(answer.text(), "from a thread");
    }
}

/// Responds to all requests once it is woken.
#[derive(Clone, Default)]
struct Sleeper(Arc<Mutex<Option<HandlerWaker>>>);

struct SleeperHandler {
    waiting: Vec<Exchange>,
}

impl Mount for Sleeper {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        *lock(&self.0) = Some(context.waker());
        Box::new(SleeperHandler { waiting: Vec::new() })
    }
}

impl Handler for SleeperHandler {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        if request.path() == b"/waiting" {
            return Outcome::Now(Reply::text(200, self.waiting.len().to_string()));
        }
        self.waiting.push(exchange);
        Outcome::Later
    }

    fn woken(&mut self) {
        self.waiting.drain(..).for_each(|exchange| exchange.answer(Reply::text(200, "awake")));
    }
}

fn a_handler_is_woken_from_another_thread(stand: Stand) {
    let sleeper = Sleeper::default();
    let mount = sleeper.clone();
    let rig = Stand { workers: 1, ..stand }.serve(|server| server.mount("/", mount));
    let (mut client, mut other) = (rig.client(), rig.client());
    client.send(GET);
    while other.get("/waiting").text() != "1" {}
    let waker = lock(&sleeper.0).clone().expect("the handler is open");
    std::thread::spawn(move || waker.wake()).join().expect("no panic");
    assert_eq!(client.answer().text(), "awake");
    assert_eq!(other.get("/waiting").text(), "0");
}

fn answers_that_come_in_any_order_reach_their_clients(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut clients: Vec<_> = (0..10).map(|_| rig.client()).collect();
    let mut exchanges = Vec::new();
    for client in &mut clients {
        client.send(GET);
        exchanges.push(held.take(&rig));
    }
    for (number, exchange) in exchanges.into_iter().enumerate().rev() {
        exchange.answer(Reply::text(200, number.to_string()));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().text(), number.to_string());
    }
}

/// A worker takes a limited number of messages per turn. The rest must not wait for a further message.
fn an_answer_behind_a_thousand_messages_is_not_forgotten(stand: Stand) {
    let (feed, held) = (Feed::default(), Held::default());
    let rig = stand.serve(|server| server.mount("/", feed.clone()).mount("/held", held.clone()));
    let mut client = rig.client();
    client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    let exchange = held.take(&rig);
    let mut stream = rig.client();
    stream.send(GET);
    assert_eq!(stream.head().status, 200);
    for _ in 0..1_000 {
        feed.wake();
    }
    exchange.answer(Reply::text(200, "not forgotten"));
    assert_eq!(client.answer().text(), "not forgotten");
}

fn an_answer_to_a_client_that_has_gone_goes_nowhere(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()).mount("/hello", hello));
    for gone in 1..=5 {
        let mut client = rig.client();
        client.send(GET);
        let exchange = held.take(&rig);
        client.reset();
        rig.wait_for_closes(CloseReason::PeerReset, gone);
        // The next request may well use the same slot, and must not receive this response.
        let mut next = rig.client();
        next.send(GET);
        let other = held.take(&rig);
        exchange.answer(Reply::text(200, "for somebody else"));
        other.answer(Reply::text(200, "for you"));
        assert_eq!(next.answer().text(), "for you");
    }
}

fn an_exchange_that_is_dropped_is_a_500(stand: Stand) {
    let held = Held::default();
    let forgetful = |_: &Request<'_>, _: Exchange| Outcome::Later;
    let rig = stand.serve(|server| server.mount("/", forgetful).mount("/held", held.clone()));
    let mut client = rig.client();
    assert_eq!(client.get("/").status, 500);
    client.send("GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
    drop(held.take(&rig));
    assert_eq!(client.answer().status, 500);
    assert_eq!(client.get("/").status, 500);
}

fn a_handler_that_panics_is_a_500_and_the_worker_lives(stand: Stand) {
    let fragile = |_: &Request<'_>, _: Exchange| -> Outcome { panic!("the case asked for it") };
    let rig = stand.serve(|server| server.mount("/", hello).mount("/fragile", fragile));
    let mut bystander = rig.client();
    assert_eq!(bystander.get("/").status, 200);
    for panics in 1..=5 {
        let mut client = rig.client();
        let answer = client.get("/fragile");
        assert!(answer.status == 500 && answer.closes(), "{answer:?}");
        assert_eq!(client.end(), End::Finished);
        rig.wait_for_closes(CloseReason::HandlerPanic, panics);
        assert_eq!(rig.count("encke_handler_panics_total"), panics);
        assert_eq!(bystander.get("/").status, 200);
    }
}

fn hint(exchange: &Exchange) {
    let mut fields = Fields::new();
    fields.push("Link", b"</style.css>; rel=preload").expect("a field of our own");
    exchange.interim(103, fields);
}

fn an_interim_answer_comes_before_the_final_one(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    for _ in 0..3 {
        client.send(GET);
        let exchange = held.take(&rig);
        hint(&exchange);
        let answer = client.answer();
        assert_eq!((answer.status, answer.field("Link")), (103, Some("</style.css>; rel=preload")));
        exchange.answer(Reply::text(200, "at last"));
        assert_eq!(client.answer().text(), "at last");
    }
}

fn an_http_1_0_client_gets_no_interim_answer(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let exchange = held.take(&rig);
    hint(&exchange);
    exchange.answer(Reply::text(200, "at last"));
    assert_eq!(client.answer().text(), "at last");
}

fn every_kind_of_body_arrives_whole(stand: Stand) {
    // Around the sizes at which content is copied, shared, or sent as a separate segment.
    let lens = [0, 1, 4 * 1024, 4 * 1024 + 1, 8 * 1024, 8 * 1024 + 1, 64 * 1024, 300_000];
    let contents: Vec<Arc<[u8]>> = lens.map(|len| pattern(len).into()).to_vec();
    let prepared: Vec<_> = contents
        .iter()
        .map(|content| Arc::new(Prepared::shared(200, Fields::new(), Arc::clone(content))))
        .collect();
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    for (content, prepared) in contents.iter().zip(&prepared) {
        let bodies = [
            Reply::new(200).body(Body::Bytes(content.to_vec())),
            Reply::new(200).body(Body::Shared(Arc::clone(content))),
            Reply::prepared(Arc::clone(prepared)),
            streamed(Pattern { bytes: pattern(content.len()), pulled: Arc::default() }),
        ];
        // All in one pipeline, so that the responses are adjacent in the output.
        client.send(GET.repeat(bodies.len()));
        for reply in bodies {
            held.take(&rig).answer(reply);
            assert!(client.answer().body == **content, "{} bytes", content.len());
        }
    }
}

fn no_answer_can_be_split_by_its_values(stand: Stand) {
    let rig = stand.serve(|server| {
        server.mount("/", |request: &Request<'_>, _: Exchange| {
            let mut reply = Reply::text(200, "whole");
            let value = request.query().unwrap_or_default();
            let value: Vec<u8> = value.iter().map(|&byte| if byte == b'!' { b'\n' } else { byte }).collect();
            if reply.fields.push("X-Echo", &value).is_err() {
                reply = Reply::error(400);
            }
            Outcome::Now(reply)
        })
    });
    let mut client = rig.client();
    assert_eq!(client.get("/?fine").field("X-Echo"), Some("fine"));
    assert_eq!(client.get("/?a!Set-Cookie:b").status, 400);
    assert_eq!(client.get("/?fine").status, 200);
}

/// A stream of a megabyte.
fn million(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(streamed(Pattern { bytes: pattern(1_000_000), pulled: Arc::default() }))
}

fn a_stream_arrives_whole_in_chunks(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", million));
    let mut client = rig.client();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!(answer.field("Transfer-Encoding"), Some("chunked"));
        assert!(answer.body == pattern(1_000_000));
    }
}

fn a_stream_to_an_http_1_0_client_ends_with_the_connection(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", million));
    for connection in ["", "Connection: keep-alive\r\n"] {
        let answer = rig.client().ask(format!("GET / HTTP/1.0\r\n{connection}\r\n"));
        assert_eq!(answer.field("Transfer-Encoding"), None);
        assert!(answer.closes() && answer.body == pattern(1_000_000));
    }
}

fn a_stream_is_not_pulled_for_head(stand: Stand) {
    let feed = Feed::default();
    feed.lay(Step::Panic);
    let rig = stand.serve(|server| server.mount("/", feed.clone()).mount("/hello", hello));
    let mut client = rig.client();
    client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status, answer.field("Transfer-Encoding")), (200, Some("chunked")));
    assert_eq!(client.get("/hello").text(), "Hello\n");
    rig.wait(|| feed.dropped(), "the stream is dropped");
}

fn a_stream_that_has_nothing_is_woken_from_another_thread(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()).mount("/hello", hello));
    let mut client = rig.client();
    client.send(GET);
    assert_eq!(client.head().status, 200);
    for starved in 1..=5 {
        feed.wait_until_starved(&rig, starved);
        assert!(!client.has_news(), "it has nothing to say yet");
        feed.push(Step::Bytes(vec![b'0' + starved as u8]));
        assert_eq!(client.read_exact(9), [b"0001\r\n", &[b'0' + starved as u8][..], b"\r\n"].concat());
    }
    feed.push(Step::End);
    assert_eq!(client.read_exact(5), b"0\r\n\r\n");
    assert_eq!(client.get("/hello").text(), "Hello\n");
    rig.wait(|| feed.dropped(), "the stream is dropped");
}

fn a_stream_is_pulled_only_as_fast_as_it_is_read(stand: Stand) {
    let bytes = pattern(PATTERN_BYTES_MAX);
    let pulled: Arc<Mutex<usize>> = Arc::default();
    let count = Arc::clone(&pulled);
    let rig = stand.serve(|server| {
        server.mount("/", move |_: &Request<'_>, _: Exchange| {
            Outcome::Now(streamed(Pattern { bytes, pulled: Arc::clone(&count) }))
        })
    });
    let mut client = rig.narrow_client();
    client.send(GET);
    assert_eq!(client.head().status, 200);
    // The kernel's send buffer may grow to 4 MiB (tcp_wmem). The worker pulls at most one piece beyond it.
    let mut read = 0;
    for _ in 0..20 {
        read += client.read_some(16 * 1024).len();
        let pulled = *lock(&pulled);
        assert!(pulled < read + (8 << 20), "{pulled} bytes were pulled when {read} were read");
    }
    client.reset();
    rig.wait_for_closes(CloseReason::PeerReset, 1);
    assert!(*lock(&pulled) < bytes.len());
}

fn a_stream_that_fails_is_cut_off(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()));
    for (count, version) in (1..).zip(["1.1", "1.0", "1.1"]) {
        feed.lay(Step::Bytes(b"half".to_vec()));
        let mut client = rig.client();
        client.send(format!("GET / HTTP/{version}\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.head().status, 200);
        let half = if version == "1.1" { &b"0004\r\nhalf\r\n"[..] } else { b"half" };
        assert_eq!(client.read_exact(half.len()), half);
        feed.push(Step::Fail);
        // The client must not mistake this for a complete response.
        assert_eq!(client.end(), End::Reset);
        rig.wait_for_closes(CloseReason::StreamFailed, count);
    }
}

fn a_stream_that_panics_is_cut_off(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()).mount("/hello", hello));
    feed.lay(Step::Bytes(b"half".to_vec()));
    let mut client = rig.client();
    client.send(GET);
    assert_eq!(client.head().status, 200);
    assert_eq!(client.read_exact(12), b"0004\r\nhalf\r\n");
    feed.push(Step::Panic);
    assert_eq!(client.end(), End::Reset);
    assert_eq!(rig.client().get("/hello").status, 200, "the worker lives");
}

fn a_stream_is_dropped_when_its_client_has_gone(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()));
    let mut client = rig.client();
    client.send(GET);
    assert_eq!(client.head().status, 200);
    feed.wait_until_starved(&rig, 1);
    client.reset();
    rig.wait(|| feed.dropped(), "the stream is dropped");
    feed.push(Step::Bytes(b"too late".to_vec()));
    rig.wait_for_closes(CloseReason::PeerReset, 1);
}

/// Until the server sends something, the close of a connection looks like the end of the client's side only.
fn a_stream_that_has_nothing_is_dropped_after_half_a_close(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()));
    let mut client = rig.client();
    client.send(GET);
    assert_eq!(client.head().status, 200);
    feed.wait_until_starved(&rig, 1);
    client.finish();
    rig.wait(|| feed.dropped(), "the stream is dropped");
    rig.wait_for_closes(CloseReason::PeerDone, 1);
}

fn a_request_behind_a_stream_waits_for_its_end(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()).mount("/echo", Echo));
    let mut client = rig.client();
    client.send(format!("{GET}POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"));
    assert_eq!(client.head().status, 200);
    feed.wait_until_starved(&rig, 1);
    assert!(!client.has_news(), "the second answer may not come before the first has ended");
    feed.push(Step::End);
    assert_eq!(client.read_exact(5), b"0\r\n\r\n");
    assert_eq!(client.answer().text(), "body");
}
