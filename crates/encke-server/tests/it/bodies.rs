//! Bodies of requests: streamed to the handler at its pace, dropped if no handler reads them, never collected.

use encke_settings::{ByteSize, OrOff};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use encke_server::{
    CloseReason, ConnLimits, Exchange, ExchangeKey, Handler, HandlerContext, Mount, Outcome, Piece, Reply,
    Request, WorkerSetup,
};

use crate::rig::handlers::{Echo, Valve, hello, pattern};
use crate::rig::{End, Stand, ms};

on_every_stand! {
    a_body_is_echoed_in_both_framings,
    a_short_body_that_nobody_reads_is_dropped_and_the_connection_goes_on,
    a_long_body_that_nobody_reads_ends_the_connection_and_its_answer_arrives,
    a_refusal_reaches_a_client_that_goes_on_sending,
    a_client_that_never_stops_sending_is_reset,
    a_client_that_never_stops_sending_a_body_is_reset,
    a_body_that_is_cut_short_is_told_to_the_handler,
    a_handler_that_reads_slowly_holds_up_the_client,
    a_handler_may_answer_before_the_body_is_whole,
    a_handler_that_has_answered_receives_no_broken_body,
}

on_two_stands! {
    a_chunked_body_may_have_extensions_and_trailers,
    a_chunk_that_announces_too_much_is_rejected_at_once,
    a_client_that_waits_is_told_to_continue_once_the_handler_reads,
    a_client_that_waits_behind_a_pipelined_request_is_told_to_continue,
    a_client_that_waits_is_not_told_to_continue_if_nobody_reads,
    a_client_that_did_not_wait_is_not_told_to_continue,
    a_response_amid_an_endless_body_bounds_the_time_of_its_rest,
    a_handler_that_fails_within_a_body_answers_500,
    a_handler_that_fails_at_a_broken_body_ends_only_that_connection,
}

fn a_body_is_echoed_in_both_framings(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let mut client = rig.client();
    for len in [0, 1, 100, 4096, 65_536, 65_537, 1_000_000] {
        let body = pattern(len);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.send(body);
        assert!(client.answer().body == body, "{len} bytes with a length");

        client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for chunk in body.chunks(10_007) {
            client.send(format!("{:x}\r\n", chunk.len()));
            client.send(chunk);
            client.send("\r\n");
        }
        client.send("0\r\n\r\n");
        assert!(client.answer().body == body, "{len} bytes in chunks");
    }
}

fn a_chunked_body_may_have_extensions_and_trailers(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let mut client = rig.client();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, said) in [
        ("3;a=b\r\nabc\r\n2 ; c=\"d;e\"\r\nde\r\n0\r\n\r\n", "abcde"),
        ("005\r\nabcde\r\n000\r\nDigest: x\r\nOther: y\r\n\r\n", "abcde"),
        ("A\r\n0123456789\r\n0;last\r\n\r\n", "0123456789"),
        ("0\r\nHost: b\r\nContent-Length: 5\r\n\r\n", ""),
    ] {
        let answer = client.ask(format!("{head}{body}"));
        assert_eq!((answer.status, answer.text()), (200, said), "{body:?}");
    }
}

const EXPECTS: &str = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

fn a_chunk_that_announces_too_much_is_rejected_at_once(stand: Stand) {
    let limit = |policy: &mut ConnLimits| policy.limits.body_bytes = OrOff::On(ByteSize::of(1000));
    let rig = stand.serve_by(limit, |server| server.mount("/", hello).mount("/echo", Echo));
    let half = "x".repeat(500);
    let head = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for body in [
        "7fffffffffffffff\r\n".to_owned(),
        "ffffffffffffffff\r\nx".to_owned(),
        "3e9\r\n".to_owned(),
        format!("1f4\r\n{half}\r\n1f5\r\n"),
    ] {
        let mut client = rig.client();
        client.send(head("/echo"));
        client.send(&body);
        // The client neither sends the data nor ends its side.
        let answer = client.answer();
        assert!(answer.status == 413 && answer.closes(), "{body:?}: {answer:?}");
        assert_eq!(client.end(), End::Finished, "{body:?}");
    }
    let mut client = rig.client();
    client.send(head("/echo"));
    client.send(format!("1f4\r\n{half}\r\n1f4\r\n{half}\r\n0\r\n\r\n"));
    assert_eq!(client.answer().body.len(), 1000, "the limit itself");
    // The rest of a body that no handler reads.
    let mut client = rig.client();
    client.send(head("/"));
    client.send("10001\r\n");
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.end(), End::Finished);
}

fn a_client_that_waits_is_told_to_continue_once_the_handler_reads(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()));
    let mut client = rig.client();
    for _ in 0..2 {
        client.send(EXPECTS);
        valve.wait(&rig);
        assert!(!client.has_news(), "nobody has asked for the body yet");
        valve.open_once();
        assert_eq!(client.answer().status, 100);
        client.send("body");
        rig.wait(|| valve.flow().pieces > 0, "the body is there");
        if !valve.flow().whole {
            valve.open_once();
        }
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, "4 bytes"));
        *valve.flow() = Default::default();
    }
}

/// The previous response may still be in flight when the handler reads the body. The `100 Continue` must not be lost then.
fn a_client_that_waits_behind_a_pipelined_request_is_told_to_continue(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo).mount("/hello", hello));
    let mut client = rig.client();
    for _ in 0..50 {
        client.send(format!("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n{EXPECTS}"));
        assert_eq!(client.answer().text(), "Hello\n");
        assert_eq!(client.answer().status, 100);
        client.send("body");
        assert_eq!(client.answer().text(), "body");
    }
}

fn a_client_that_waits_is_not_told_to_continue_if_nobody_reads(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    let answer = client.ask(EXPECTS);
    // The client may now send either the body or another request. The server cannot distinguish them, so the connection ends.
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    client.finish();
    assert_eq!(client.end(), End::Finished);
}

fn a_client_that_did_not_wait_is_not_told_to_continue(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let mut client = rig.client();
    for _ in 0..10 {
        let answer = client.ask(format!("{EXPECTS}body"));
        assert_eq!((answer.status, answer.text()), (200, "body"));
    }
    let mut client = rig.client();
    let answer = client.ask("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!((answer.status, answer.text()), (200, "body"), "an HTTP/1.0 client knows no 100");
}

fn a_short_body_that_nobody_reads_is_dropped_and_the_connection_goes_on(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    for len in [1, 1_000, 64 * 1024] {
        let body = vec![b'G'; len];
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.send(&body);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n"));
        client.send(&body);
        client.send("\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        for answer in client.answers(3) {
            assert!(answer.status == 200 && !answer.closes(), "{len}: {answer:?}");
        }
    }
    assert_eq!(rig.count("encke_accepts_total"), 1);
}

fn a_long_body_that_nobody_reads_ends_the_connection_and_its_answer_arrives(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    let len = 64 * 1024 + 1;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
    client.send(vec![b'x'; len]);
    let answer = client.answer();
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    client.finish();
    assert_eq!(client.end(), End::Finished);

    // The length of a chunked body is unknown at first: it is responded to, and the connection ends when the body is too long.
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..65 {
        client.send(format!("400\r\n{}\r\n", "x".repeat(1024)));
    }
    assert_eq!(client.answer().status, 200);
    client.finish();
    assert_eq!(client.end(), End::Finished);
}

fn a_refusal_reaches_a_client_that_goes_on_sending(stand: Stand) {
    let rig = stand.serve_by(
        |policy| policy.limits.body_bytes = OrOff::On(ByteSize::of(1000)),
        |server| server.mount("/", Echo),
    );
    let megabyte = vec![b'x'; 1024 * 1024];
    for (head, status) in [
        (format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", megabyte.len()), 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".to_owned(), 400),
        ("BREW / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n".to_owned(), 413),
    ] {
        let mut client = rig.client();
        client.send(&head);
        // The client sends everything before it reads, as many clients do.
        let body = if status == 413 && head.starts_with("BREW") { &megabyte[..500_000] } else { &megabyte };
        client.send(body);
        client.finish();
        let answer = client.answer();
        assert!(answer.status == status && answer.closes(), "{head:?}: {answer:?}");
        assert_eq!(client.end(), End::Finished, "{head:?}");
    }
    assert_eq!(rig.closes(CloseReason::LingerTime), 0);
}

fn a_client_that_never_stops_sending_is_reset(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    client.send("nonsense\r\n\r\n");
    let piece = [b'x'; 64 * 1024];
    let mut sent = 0_u64;
    while client.try_send(piece).is_ok() {
        sent += piece.len() as u64;
        assert!(sent < 1 << 30, "it reads a client that reads nothing for ever");
    }
    rig.wait_for_closes(CloseReason::LingerTime, 1);
    // The server has read the limit and at most one more read.
    assert!(rig.received() <= 1024 * 1024 + 256 * 1024, "{}", rig.received());
}

fn a_client_that_never_stops_sending_a_body_is_reset(stand: Stand) {
    const LIMIT: u64 = 3 * 1024 * 1024;
    let rig = stand.serve_by(
        |policy| policy.limits.linger_bytes = ByteSize::of(LIMIT),
        |server| server.mount("/", hello),
    );
    for (head, most) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n", LIMIT),
        // Not a body, so it gets less patience.
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 1024 * 1024),
    ] {
        let (before, closes) = (rig.received(), rig.closes(CloseReason::LingerTime));
        let mut client = rig.client();
        client.send(head);
        let piece = [b'x'; 64 * 1024];
        let mut sent = 0_u64;
        while client.try_send(piece).is_ok() {
            sent += piece.len() as u64;
            assert!(sent < 1 << 30, "it reads a client that reads nothing for ever");
        }
        rig.wait_for_closes(CloseReason::LingerTime, closes + 1);
        let received = rig.received() - before;
        // The server has read the limit and at most one more read.
        assert!((most..=most + 256 * 1024).contains(&received), "{head:?}: {received}");
    }
}

fn a_response_amid_an_endless_body_bounds_the_time_of_its_rest(stand: Stand) {
    const PERIOD: Duration = Duration::from_millis(400);
    let rejecting = |_: &Request<'_>, _: Exchange| {
        Outcome::Now(Reply::text(409, "taken\n").and_close().amid_endless_body())
    };
    let rig = stand.serve_by(
        |policy| policy.limits.linger_time = ms(PERIOD.as_millis() as u64),
        |server| server.mount("/", rejecting),
    );
    let (mut client, mut pace) = (rig.client(), rig.client());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = client.answer();
    assert!(answer.status == 409 && answer.closes(), "{answer:?}");
    // An upload with an end would have 16 periods.
    let began = Instant::now();
    while client.try_send("1\r\nx\r\n").is_ok() {
        pace.idle(Duration::from_millis(20));
        assert!(began.elapsed() < 8 * PERIOD, "the server reads a body without end");
    }
    rig.wait_for_closes(CloseReason::LingerTime, 1);
}

fn a_body_that_is_cut_short_is_told_to_the_handler(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()));
    for (count, request) in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nTrailer: x\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        *valve.flow() = Default::default();
        let mut client = rig.client();
        client.send(request);
        valve.wait(&rig);
        valve.open_once();
        client.finish();
        let broken = || {
            let flow = valve.flow();
            if flow.pieces == 1 && !flow.broken {
                drop(flow);
                // After the half that arrived.
                valve.open_once();
                return false;
            }
            flow.broken
        };
        rig.wait(broken, "the handler hears that the body is broken");
        assert!(!valve.flow().whole, "{request:?}");
        // No response: no status would be true for half a request.
        assert_eq!(client.end(), End::Finished, "{request:?}");
        rig.wait_for_closes(CloseReason::PeerAborted, count as u64 + 1);
    }
}

fn a_handler_that_reads_slowly_holds_up_the_client(stand: Stand) {
    const LEN: usize = 64 << 20;
    // One or two reads; io_uring fills some buffers ahead.
    const AHEAD: u64 = 2 << 20;
    let valve = Valve::default();
    let rig = stand
        .serve_by(|policy| policy.limits.body_bytes = OrOff::Off, |server| server.mount("/", valve.clone()));
    let mut client = rig.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n"));
    valve.wait(&rig);
    let body = pattern(LEN);
    let mut sent = client.send_what_fits(body);
    assert!(sent < LEN, "the client was never held up");
    for _ in 0..20 {
        valve.pass(&rig);
        sent += client.send_what_fits(&body[sent..]);
        let (received, passed) = (rig.received(), valve.flow().bytes);
        assert!(received <= passed + AHEAD, "{received} bytes were read when the handler had had {passed}");
    }
    let held = valve.flow().bytes;
    assert!(held <= 20 * 64 * 1024, "20 pieces were asked for, {held} bytes came");

    let rest = std::thread::spawn(move || {
        client.send(&body[sent..]);
        client
    });
    while !valve.flow().whole {
        valve.pass(&rig);
    }
    let mut client = rest.join().expect("the client sends everything");
    assert_eq!(client.answer().text(), format!("{LEN} bytes"));
}

fn a_handler_may_answer_before_the_body_is_whole(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()).mount("/hello", hello));
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    valve.wait(&rig);
    valve.pass(&rig);
    valve.answer(Reply::text(200, "enough"));
    assert_eq!(client.answer().text(), "enough");
    client.send("rest");
    assert_eq!(client.get("/hello").text(), "Hello\n");
    assert_eq!(valve.flow().bytes, 4, "the rest is nobody's");
}

fn a_handler_that_has_answered_receives_no_broken_body(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()));
    let too_long = format!("400\r\n{}\r\n", "x".repeat(1024)).repeat(65);
    for (count, rest) in [too_long.as_str(), "no chunk\r\n"].into_iter().enumerate() {
        *valve.flow() = Default::default();
        let mut client = rig.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        valve.wait(&rig);
        valve.answer(Reply::text(200, "enough"));
        assert_eq!(client.answer().text(), "enough");
        client.send(rest);
        client.finish();
        assert_eq!(client.end(), End::Finished);
        rig.wait_for_closes(CloseReason::Refused, count as u64 + 1);
        assert_eq!(valve.flow().pieces, 0, "{count}");
    }
}

/// Panics at a piece of a body.
#[derive(Clone, Copy)]
enum Fragile {
    AtData,
    AtBroken,
}

impl Mount for Fragile {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(FragileHandler { at: *self, exchange: None })
    }
}

struct FragileHandler {
    at: Fragile,
    exchange: Option<Exchange>,
}

impl Handler for FragileHandler {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        exchange.read_more();
        self.exchange = Some(exchange);
        Outcome::Later
    }

    fn body(&mut self, _: ExchangeKey, piece: Piece<'_>) {
        match (self.at, piece) {
            (Fragile::AtData, Piece::Data(_)) | (Fragile::AtBroken, Piece::Broken) => {
                panic!("the case asked for it")
            }
            _ => {}
        }
    }
}

fn a_handler_that_fails_within_a_body_answers_500(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello).mount("/fragile", Fragile::AtData));
    let mut client = rig.client();
    let answer = client.ask("POST /fragile HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert!(answer.status == 500 && answer.closes(), "{answer:?}");
    assert_eq!(client.end(), End::Finished);
    assert_eq!(rig.client().get("/").status, 200, "the worker lives");
    assert_eq!(rig.count("encke_handler_panics_total"), 1);
}

fn a_handler_that_fails_at_a_broken_body_ends_only_that_connection(stand: Stand) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let counted = move |request: &Request<'_>, exchange: Exchange| {
        count.fetch_add(1, Ordering::Relaxed);
        hello(request, exchange)
    };
    let rig = stand.serve(|server| server.mount("/", counted).mount("/fragile", Fragile::AtBroken));
    for number in 1..=4 {
        let mut client = rig.client();
        client.send("POST /fragile HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo");
        if number % 2 == 0 {
            client.finish();
            let (_, end) = client.rest();
            assert_eq!(end, End::Finished);
        } else {
            rig.wait(|| rig.count("encke_exchanges_open") == 1, "the request is there");
            client.reset();
        }
        rig.wait(|| rig.count("encke_handler_panics_total") == number, "the handler has failed");
        assert_eq!(rig.client().get("/").status, 200, "the worker lives");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}
