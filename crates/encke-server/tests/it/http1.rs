//! HTTP/1 as clients see it: persistence, pipelining, methods, refusals, half-close.

use encke_server::{CloseReason, Exchange, Outcome, Reply, Request};
use encke_settings::{ByteSize, OrOff};

use crate::rig::handlers::{Echo, Held, hello, mirror};
use crate::rig::{End, Folder, Rig, Stand, files};

on_every_stand! {
    a_connection_serves_one_request_after_the_other,
    sixteen_pipelined_requests_are_answered_in_order_and_at_once,
    a_refusal_behind_a_good_request_leaves_its_answer_whole,
    a_client_that_ends_its_side_is_still_answered,
    a_client_that_ends_its_side_behind_a_pipeline_gets_every_answer,
    a_client_that_ends_its_side_is_answered_later_too,
    a_client_that_ends_its_side_within_a_head_gets_nothing,
}

on_two_stands! {
    a_connection_ends_when_either_side_says_so,
    http_1_0_ends_after_each_answer_unless_asked_to_stay,
    tokens_of_connection_are_found_wherever_they_stand,
    what_follows_the_last_request_is_not_answered,
    requests_behind_the_last_one_do_not_reset_its_response,
    options_of_the_server_itself_names_the_methods,
    methods_that_nobody_has_are_501,
    a_trace_is_not_answered_with_what_was_sent,
    an_absolute_target_names_the_host,
    requests_that_break_a_rule_are_refused_and_end_the_connection,
    requests_that_are_too_large_are_refused_by_their_size,
    an_expectation_that_nobody_knows_is_417,
    the_longest_prefix_has_the_request,
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn serve_hello(stand: Stand) -> Rig {
    stand.serve(|server| server.mount("/", hello))
}

fn a_connection_serves_one_request_after_the_other(stand: Stand) {
    let rig = serve_hello(stand);
    let mut client = rig.client();
    for _ in 0..10 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.text()), (200, "Hello\n"));
        assert_eq!(answer.field("Connection"), None);
    }
    assert_eq!(rig.count("encke_accepts_total"), 1);
}

fn a_connection_ends_when_either_side_says_so(stand: Stand) {
    let last = |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::text(200, "The last\n").and_close());
    let rig = stand.serve(|server| server.mount("/", hello).mount("/last", last));
    for request in [
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut client = rig.client();
        let answer = client.ask(request);
        assert!(answer.status == 200 && answer.closes(), "{request:?}: {answer:?}");
        assert_eq!(client.end(), End::Finished, "{request:?}");
    }
}

fn http_1_0_ends_after_each_answer_unless_asked_to_stay(stand: Stand) {
    let rig = serve_hello(stand);
    let mut client = rig.client();
    let answer = client.ask("GET / HTTP/1.0\r\n\r\n");
    assert!(answer.status == 200 && answer.closes(), "{answer:?}");
    assert_eq!(client.end(), End::Finished);

    let mut client = rig.client();
    for _ in 0..3 {
        let answer = client.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!((answer.status, answer.field("Connection")), (200, Some("keep-alive")));
    }
    assert!(client.ask("GET / HTTP/1.0\r\n\r\n").closes());
    assert_eq!(client.end(), End::Finished);
}

fn tokens_of_connection_are_found_wherever_they_stand(stand: Stand) {
    let rig = serve_hello(stand);
    for (version, fields, closes) in [
        ("1.1", "Connection: Close\r\n", true),
        ("1.1", "Connection: foo, close\r\n", true),
        ("1.1", "Connection: foo\r\nConnection: ,close ,\r\n", true),
        ("1.1", "Connection: closed\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", true),
        ("1.0", "Connection: x, Keep-Alive\r\n", false),
        ("1.0", "Connection: keep-alive-not\r\n", true),
    ] {
        let mut client = rig.client();
        let answer = client.ask(format!("GET / HTTP/{version}\r\nHost: localhost\r\n{fields}\r\n"));
        assert_eq!((answer.status, answer.closes()), (200, closes), "{version} {fields:?}");
        if closes {
            assert_eq!(client.end(), End::Finished, "{version} {fields:?}");
        } else {
            assert_eq!(client.get("/").status, 200, "{version} {fields:?}");
        }
    }
}

fn sixteen_pipelined_requests_are_answered_in_order_and_at_once(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", mirror));
    let mut client = rig.client();
    let get = |letter: char| format!("GET /{letter} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let requests: String = ('a'..='p').map(get).collect();
    // One write arrives in one read. Responses sent one by one would arrive in several pieces; a busy machine may join them,
    // but not in every attempt.
    for _ in 0..10 {
        client.send(&requests);
        let first = String::from_utf8(client.read_some(64 * 1024)).expect("ASCII");
        assert_eq!(first.matches("HTTP/1.1 200 OK\r\n").count(), 16, "{first}");
        let said = ('a'..='p').map(|letter| first.find(&format!("GET localhost /{letter}")));
        let places: Vec<usize> = said.map(|place| place.expect("an answer to each")).collect();
        assert!(places.is_sorted(), "out of order: {first}");
    }
}

fn what_follows_the_last_request_is_not_answered(stand: Stand) {
    let rig = serve_hello(stand);
    let mut client = rig.client();
    let last = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.send(format!("{GET}{last}{GET}{GET}"));
    assert!(!client.answer().closes());
    assert!(client.answer().closes());
    client.finish();
    assert_eq!(client.end(), End::Finished);
    assert_eq!(rig.count_of("encke_http_requests_total", "2xx"), 2);
}

fn options_of_the_server_itself_names_the_methods(stand: Stand) {
    let rig = serve_hello(stand);
    let mut client = rig.client();
    let answer = client.ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(answer.status, 204);
    let allow = answer.field("Allow").expect("what it can do");
    assert!(allow.contains("GET") && allow.contains("HEAD") && allow.contains("OPTIONS"), "{allow}");
    assert_eq!(client.get("/").status, 200);
}

fn methods_that_nobody_has_are_501(stand: Stand) {
    let rig = serve_hello(stand);
    for method in ["ABC", "get", "PROPFIND", "GETGET", "X-1"] {
        let mut client = rig.client();
        let answer = client.ask(format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(answer.status, 501, "{method}");
    }
    let mut client = rig.client();
    let answer = client.ask("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n");
    assert!(answer.status == 501 && answer.closes(), "{answer:?}");
}

fn a_trace_is_not_answered_with_what_was_sent(stand: Stand) {
    let rig = serve_hello(stand);
    let answer = rig.client().ask("TRACE / HTTP/1.1\r\nHost: localhost\r\nCookie: secret\r\n\r\n");
    assert_eq!(answer.status, 405);
    assert!(!answer.text().contains("secret"));
}

fn an_absolute_target_names_the_host(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", mirror));
    let mut client = rig.client();
    for (target, host, said) in [
        ("http://example.org/a?b", "localhost", "GET example.org /a"),
        ("HTTP://example.org:81/", "example.org:81", "GET example.org:81 /"),
        ("http://example.org", "example.org", "GET example.org /"),
    ] {
        let answer = client.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((answer.status, answer.text()), (200, said), "{target}");
    }
}

fn requests_that_break_a_rule_are_refused_and_end_the_connection(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nx", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400),
    ] {
        let mut client = rig.client();
        let answer = client.ask(request);
        assert!(answer.status == status && answer.closes(), "{request:?}: {answer:?}");
        // The server lingers so that the response is not lost, and closes after the client's end.
        client.finish();
        assert_eq!(client.end(), End::Finished, "{request:?}");
    }
}

fn requests_that_are_too_large_are_refused_by_their_size(stand: Stand) {
    let rig = stand.serve_by(
        |policy| policy.limits.body_bytes = OrOff::On(ByteSize::of(1000)),
        |server| server.mount("/", Echo),
    );
    let many = "A: b\r\n".repeat(100);
    let large = "a".repeat(16 * 1024);
    for (request, status, setting) in [
        (format!("GET /{large} HTTP/1.1\r\nHost: a\r\n\r\n"), 414, "(limits.uri_bytes)"),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {large}\r\nY: {large}\r\n\r\n"),
            431,
            "(limits.head_bytes)",
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431, "(limits.fields)"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".to_owned(), 413, ""),
        (
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}",
                &large[..1001]
            ),
            413,
            "",
        ),
    ] {
        let mut client = rig.client();
        let answer = client.ask(&request);
        assert!(answer.status == status && answer.closes(), "{}: {answer:?}", &request[..60]);
        assert!(answer.text().contains(setting), "{}: {answer:?}", &request[..60]);
        client.finish();
        assert_eq!(client.end(), End::Finished, "{}", &request[..60]);
    }
    let just = format!("GET /?{} HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", &large[..8000], &large[..8000]);
    assert_eq!(rig.client().ask(just).status, 200);
    // No pattern of a rule matches more than 4,096 bytes of a decoded path.
    for (path, status) in [
        (large[..4_095].to_owned(), 200),
        (large[..4_096].to_owned(), 414),
        ("%61".repeat(4_095), 200),
        ("%61".repeat(4_096), 414),
        (format!("{}{}", "a/../".repeat(1_000), &large[..4_095]), 200),
    ] {
        let answer = rig.client().ask(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, status, "{} bytes: {}", path.len(), &path[..20]);
    }
    let body = &large[..1000];
    let just = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{body}");
    assert_eq!(rig.client().ask(just).text(), body);
}

fn a_refusal_behind_a_good_request_leaves_its_answer_whole(stand: Stand) {
    let folder = Folder::new().with("large", vec![b'x'; 1_000_000]);
    let files = files(&folder);
    let rig = stand.serve(|server| server.mount("/", files));
    let mut client = rig.narrow_client();
    client.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n");
    assert_eq!(client.answer().body.len(), 1_000_000);
    let answer = client.answer();
    assert!(answer.status == 400 && answer.closes(), "{answer:?}");
    client.finish();
    assert_eq!(client.end(), End::Finished);
}

fn an_expectation_that_nobody_knows_is_417(stand: Stand) {
    let rig = serve_hello(stand);
    let mut client = rig.client();
    let answer = client.ask("GET / HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n\r\n");
    assert_eq!(answer.status, 417);
    assert_eq!(client.get("/").status, 200);
}

fn a_client_that_ends_its_side_is_still_answered(stand: Stand) {
    let folder = Folder::new().with("large", vec![b'x'; 300_000]);
    let files = files(&folder);
    let rig = stand.serve(|server| server.mount("/", hello).mount("/echo", Echo).mount("/large", files));
    for (request, body) in [
        (GET.to_owned(), b"Hello\n".to_vec()),
        ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody".into(), b"body".to_vec()),
        ("GET /large HTTP/1.1\r\nHost: a\r\n\r\n".into(), vec![b'x'; 300_000]),
    ] {
        let mut client = rig.client();
        client.send(&request);
        client.finish();
        let answer = client.answer();
        assert!(answer.status == 200 && answer.body == body, "{request:?}");
        assert_eq!(client.end(), End::Finished, "{request:?}");
    }
}

fn requests_behind_the_last_one_do_not_reset_its_response(stand: Stand) {
    const BYTES: usize = 16 << 20;
    let folder = Folder::new().with("large", vec![b'x'; BYTES]);
    let files = files(&folder);
    let rig = stand.serve(|server| server.mount("/", files));
    let mut client = rig.narrow_client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.head().status, 200);
    // The response is under way. The server reads a part of these requests, and the rest is unread at its end.
    client.send(GET.repeat(3_000));
    rig.wait(|| rig.received() > 10_000, "a part was read");
    client.read_exact(BYTES);
    assert_eq!(client.end(), End::Finished);
}

fn a_client_that_ends_its_side_behind_a_pipeline_gets_every_answer(stand: Stand) {
    let folder = Folder::new().with("large", vec![b'x'; 100_000]);
    let files = files(&folder);
    let rig = stand.serve(|server| server.mount("/", hello).mount("/large", files));
    // Much more than fits into one send, for a client with a small receive buffer: the client's end arrives while responses
    // still wait.
    let mut client = rig.narrow_client();
    client.send(format!("{GET}{}", "GET /large HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20)));
    client.finish();
    assert_eq!(client.answer().text(), "Hello\n");
    for number in 0..20 {
        assert_eq!(client.answer().body.len(), 100_000, "answer {number}");
    }
    assert_eq!(client.end(), End::Finished);
}

fn a_client_that_ends_its_side_is_answered_later_too(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    client.send(GET);
    client.finish();
    let exchange = held.take(&rig);
    exchange.answer(Reply::text(200, "at last"));
    assert_eq!(client.answer().text(), "at last");
    assert_eq!(client.end(), End::Finished);
}

fn a_client_that_ends_its_side_within_a_head_gets_nothing(stand: Stand) {
    let rig = serve_hello(stand);
    for cut in 1..GET.len() {
        let mut client = rig.client();
        client.send(&GET[..cut]);
        client.finish();
        assert_eq!(client.end(), End::Finished, "after {cut} bytes");
    }
    rig.wait_for_closes(CloseReason::PeerAborted, GET.len() as u64 - 1);
}

fn the_longest_prefix_has_the_request(stand: Stand) {
    let named = |name: &'static str| move |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::text(200, name));
    let rig = stand
        .serve(|server| server.mount("/a", named("a")).mount("/a/b", named("b")).mount("/a/bc", named("c")));
    let mut client = rig.client();
    for (path, said) in [("/a", "a"), ("/a/b", "b"), ("/a/bc/d", "c"), ("/ab", "a"), ("/a/b?/a/bc", "b")] {
        assert_eq!(client.get(path).text(), said, "{path}");
    }
    assert_eq!(client.get("/").status, 404);
}
