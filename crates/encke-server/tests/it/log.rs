//! The access log from outside: status, bytes, duration and reason of requests that end in all possible ways.

use encke_server::{LogTail, TailFilter};
use encke_settings::{ByteRate, ByteSize, OrOff};
use serde_json::{Value, json};

use crate::rig::handlers::{Echo, Held, hello};
use crate::rig::{Folder, PATIENCE, Rig, Stand, files, ms};

on_two_stands! {
    a_served_request_has_a_duration_and_no_reason,
    every_refusal_has_a_reason_and_a_count,
    slow_requests_are_logged_with_their_limit,
    a_response_that_is_cut_names_the_cause,
    log_and_response_have_the_same_id,
    only_a_trusted_proxy_gives_ids,
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// Follows the access log of a server.
fn follow(rig: &Rig) -> LogTail {
    rig.running().tail(TailFilter::default(), || {}).expect("room for a tail")
}

/// The next line of the log.
fn next(tail: &LogTail) -> Value {
    let entry = tail.next_within(PATIENCE).expect("another line");
    serde_json::from_slice(&entry.line).expect("JSON")
}

fn a_served_request_has_a_duration_and_no_reason(on: Stand) {
    let rig = on.serve(|server| server.mount("/", hello));
    let tail = follow(&rig);
    let mut client = rig.client();
    client.get("/");
    let line = next(&tail);
    assert_eq!(
        (&line["status"], &line["sent_bytes"], &line["reason"]),
        (&json!(200), &json!(6), &Value::Null)
    );
    assert!(line["duration_us"].as_u64().expect("a number") > 0, "{line}");
    // All requests of one read share a turn, and each has its duration.
    client.send(get("/").repeat(3));
    client.answers(3);
    for _ in 0..3 {
        assert!(next(&tail)["duration_us"].as_u64().expect("a number") > 0);
    }
    rig.end();
}

/// Request bytes, the status of their refusal, and its reason in the log. The reason up to the first space is counted.
const REFUSALS: &[(&str, u16, &str)] = &[
    ("GET / HTTP/1.1\nHost: h\r\n\r\n", 400, "bare_lf"),
    ("GET / HTTP/1.1\r\n\r\n", 400, "host_missing"),
    ("GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "invalid_target"),
    ("GET / HTTP/2.1\r\nHost: h\r\n\r\n", 505, "unsupported_version"),
    (
        "GET /long-target-long-target-long-target-long-target HTTP/1.1\r\n",
        414,
        "uri_too_long (limits.uri_bytes)",
    ),
    (
        "GET / HTTP/1.1\r\nHost: h\r\nA: a\r\nB: b\r\nC: c\r\nD: d\r\n\r\n",
        431,
        "too_many_fields (limits.fields)",
    ),
    (
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 99999\r\n\r\n",
        413,
        "body_too_large (limits.body_bytes)",
    ),
    (
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n",
        413,
        "body_too_large (limits.body_bytes)",
    ),
    ("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400, "invalid_chunk_size"),
    ("GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", 417, "unknown_expectation"),
    ("BREW / HTTP/1.1\r\nHost: h\r\n\r\n", 501, "unknown_method"),
    ("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 501, "connect"),
    ("TRACE / HTTP/1.1\r\nHost: h\r\n\r\n", 405, "trace"),
    ("GET /none HTTP/1.1\r\nHost: h\r\n\r\n", 404, "no_handler"),
];

fn every_refusal_has_a_reason_and_a_count(on: Stand) {
    let limit = |policy: &mut encke_server::ConnLimits| {
        policy.limits.head_bytes = ByteSize::of(256);
        policy.limits.uri_bytes = ByteSize::of(32);
        policy.limits.fields = 4;
        policy.limits.body_bytes = OrOff::On(ByteSize::of(1_000));
    };
    let rig = on.serve_by(limit, |server| server.mount("/echo", Echo));
    let tail = follow(&rig);
    for (request, status, reason) in REFUSALS {
        let name = reason.split(' ').next().unwrap_or_default();
        let before = rig.count_of("encke_http_refusals_total", name);
        let mut client = rig.client();
        client.send(request);
        let answer = client.answer();
        assert_eq!(answer.status, *status, "{request:?}");
        let line = next(&tail);
        assert_eq!((&line["status"], &line["reason"]), (&json!(status), &json!(reason)), "{request:?}");
        assert_eq!(line["sent_bytes"], answer.body.len(), "{request:?}");
        assert_eq!(rig.count_of("encke_http_refusals_total", name), before + 1, "{request:?}");
    }
    // A short body is read after the refusal, and its end is the end of the request.
    let mut client = rig.client();
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    client.send([b'x'; 1_001]);
    assert_eq!(next(&tail)["reason"], "body_too_large (limits.body_bytes)");
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(300));
    assert_eq!(rig.client().ask(long).status, 431);
    assert_eq!(next(&tail)["reason"], "head_too_large (limits.head_bytes)");
    rig.end();
}

fn slow_requests_are_logged_with_their_limit(on: Stand) {
    let limit = |policy: &mut encke_server::ConnLimits| {
        policy.limits.head_time = ms(50);
        policy.rate_window_ns = ms(50).nanoseconds();
        policy.limits.body_rate = ByteRate::of(1_000_000);
    };
    let rig = on.serve_by(limit, |server| server.mount("/echo", Echo));
    let tail = follow(&rig);
    for (request, reason) in [
        ("GET / HTTP/1.1\r\nHos", "head_time (limits.head_time)"),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx", "body_rate (limits.body_rate)"),
    ] {
        let name = reason.split(' ').next().unwrap_or_default();
        let (mut client, _) = rig.begun(request);
        assert_eq!(client.answer().status, 408, "{reason}");
        let line = next(&tail);
        assert_eq!((&line["status"], &line["reason"]), (&json!(408), &json!(reason)));
        assert_eq!(rig.count_of("encke_http_refusals_total", name), 1, "{reason}");
    }
    rig.end();
}

fn log_and_response_have_the_same_id(on: Stand) {
    let rig = on.serve_by(|policy| policy.request_id_header = true, |server| server.mount("/", hello));
    let tail = follow(&rig);
    let mut client = rig.client();
    let mut ids = Vec::new();
    client.send(get("/").repeat(3));
    for answer in client.answers(3) {
        let id = answer.field("X-Request-Id").expect("an id").to_owned();
        assert_eq!(next(&tail)["request_id"], id.as_str());
        assert!(id.len() == 32 && !ids.contains(&id), "{id}");
        ids.push(id);
    }
    let answer = client.ask("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: given\r\n\r\n");
    assert_ne!(answer.field("X-Request-Id"), Some("given"), "nobody trusts this client");
    assert_eq!(next(&tail)["request_id"], answer.field("X-Request-Id").expect("an id"));
    assert_eq!(rig.client().ask("GET / HTTP/1.1\r\n\r\n").status, 400);
    assert_eq!(next(&tail)["request_id"], Value::Null, "no request was read");
    rig.end();
}

fn only_a_trusted_proxy_gives_ids(on: Stand) {
    let trust = |policy: &mut encke_server::ConnLimits| {
        policy.trusted_proxies = vec!["127.0.0.1".parse().expect("an address")];
    };
    let rig = on.serve_by(trust, |server| server.mount("/", hello));
    let tail = follow(&rig);
    for (field, kept) in [("given-1", true), ("no id", false), ("<script>", false)] {
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: {field}\r\n\r\n");
        let answer = rig.client().ask(request);
        assert_eq!((answer.status, answer.field("X-Request-Id")), (200, None), "off by default");
        let line = next(&tail);
        assert_eq!(line["request_id"] == field, kept, "{line}");
    }
    rig.end();
}

fn a_response_that_is_cut_names_the_cause(on: Stand) {
    let folder = Folder::new().with("large", vec![b'x'; 32 << 20]);
    let held = Held::default();
    let (mount, files) = (held.clone(), files(&folder));
    let limit = |policy: &mut encke_server::ConnLimits| {
        policy.rate_window_ns = ms(100).nanoseconds();
        policy.limits.write_rate = ByteRate::of(10_000);
    };
    let rig = on.serve_by(limit, |server| server.mount("/", mount).mount("/large", files));
    let tail = follow(&rig);
    let mut client = rig.client();
    client.send(get("/held"));
    let exchange = held.take(&rig);
    client.reset();
    let line = next(&tail);
    assert_eq!((&line["status"], &line["reason"]), (&json!(0), &json!("peer_reset")), "no response was sent");
    drop(exchange);
    let mut client = rig.narrow_client();
    client.send(get("/large"));
    let line = next(&tail);
    assert_eq!((&line["status"], &line["reason"]), (&json!(200), &json!("write_rate (limits.write_rate)")));
    assert!(line["sent_bytes"].as_u64().expect("a number") < 32 << 20, "{line}");
    rig.end();
}
