//! Reading channels: negotiation, polls, event streams and NDJSON, positions and gaps.

use super::*;

#[test]
fn an_event_stream_begins_with_retry_time_and_position() {
    let mut stage = Stage::new();
    let mut stream = stage.open("news", "Accept: text/event-stream\r\n");
    let head = stage.head(&mut stream);
    for (name, value) in [
        ("Content-Type", "text/event-stream"),
        ("Cache-Control", "no-store, no-transform"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Accel-Buffering", "no"),
    ] {
        assert_eq!(head.field(name), Some(value), "{}", head.head);
    }
    let start = stage.wait(&mut stream, "id:");
    assert!(start.starts_with(": encke\n"), "{start:?}");
    let retry = start.lines().find_map(|line| line.strip_prefix("retry:")).expect("a retry time");
    let retry_ms: u64 = retry.trim().parse().expect("a number");
    assert!((1_000..=3_000).contains(&retry_ms), "2 s ± 50 %: {retry_ms}");
    assert!(start.contains(&id(0)), "{start}");
}

#[test]
fn an_event_has_its_id_its_name_and_its_lines() {
    let mut stage = Stage::new();
    let mut stream = stage.open("news?as=sse", "");
    stage.wait(&mut stream, "retry:");
    stage.ask("POST", "news", "Encke-Event: price\r\n", "one\ntwo");
    let text = stage.wait(&mut stream, "two");
    let event = format!("id:{}\nevent:price\ndata:one\ndata:two\n\n", id(1));
    assert!(text.replace(": ", ":").ends_with(&event), "{text:?}");
}

#[test]
fn a_stream_of_several_channels_has_envelopes() {
    let mut stage = Stage::new();
    let mut stream = stage.open("a,b?as=sse", "");
    stage.wait(&mut stream, "retry:");
    stage.post("b", "hello");
    let text = stage.wait(&mut stream, "hello");
    assert!(
        text.contains(&format!(
            "{{\"id\":\"{}\",\"channel\":\"b\",\"type\":\"text/plain; charset=utf-8\",\"time\":\"2026-",
            id(1)
        )),
        "{text}"
    );
    assert!(text.contains("Z\",\"data\":\"hello\"}"), "{text}");
    let mut single = stage.open("b?as=sse&envelope&since=all", "");
    assert!(stage.wait(&mut single, "hello").contains("\"channel\":\"b\""));
}

#[test]
fn an_ndjson_stream_has_a_line_for_each_message() {
    let mut stage = Stage::new();
    let mut stream = stage.open("news", "Accept: application/x-ndjson\r\n");
    assert_eq!(stage.head(&mut stream).field("Content-Type"), Some("application/x-ndjson"));
    stage.wait(&mut stream, "\n");
    stage.ask("POST", "news", "Encke-Event: e\r\nContent-Type: text/x-own\r\n", "a\"b");
    let text = stage.wait(&mut stream, "data");
    let start = format!(
        "\n{{\"id\":\"{}\",\"channel\":\"news\",\"event\":\"e\",\"type\":\"text/x-own\",\"time\":\"",
        id(1)
    );
    assert!(text.starts_with(&start) && text.ends_with("Z\",\"data\":\"a\\\"b\"}\n"), "{text:?}");
}

#[test]
fn the_accept_field_selects_the_most_preferred_form() {
    let mut stage = Stage::new();
    stage.post("news", "x");
    for (accept, expected) in [
        ("", "text/plain; charset=utf-8"),
        ("Accept: */*\r\n", "text/plain; charset=utf-8"),
        ("Accept: image/png\r\n", "text/plain; charset=utf-8"),
        ("Accept: application/json\r\n", "application/json"),
        ("Accept: text/event-stream;q=0.1, application/json\r\n", "application/json"),
        ("Accept: application/json;q=0.1, text/event-stream\r\n", "text/event-stream"),
        ("Accept: application/x-ndjson, application/json;q=0.9\r\n", "application/x-ndjson"),
        ("Accept: text/html, */*;q=0.8\r\n", "text/html; charset=utf-8"),
    ] {
        let mut peer = stage.open("news?since=all", accept);
        assert_eq!(stage.head(&mut peer).field("Content-Type"), Some(expected), "{accept}");
    }
    for (shape, expected) in [
        ("sse", "text/event-stream"),
        ("ndjson", "application/x-ndjson"),
        ("json", "application/json"),
        ("poll", "text/plain; charset=utf-8"),
    ] {
        let mut peer = stage.open(&format!("news?since=all&as={shape}"), "Accept: text/html\r\n");
        assert_eq!(stage.head(&mut peer).field("Content-Type"), Some(expected), "{shape}");
    }
}

#[test]
fn an_invalid_query_is_a_400_with_the_expected_values() {
    let mut stage = Stage::new();
    for (query, text) in [
        ("as=xml", "invalid as=xml: expected sse, ws, poll, json or ndjson\n"),
        ("wait=x", "invalid wait=x: expected seconds from 0 to 55\n"),
        ("name=a%01b", "invalid name: expected at most 64 bytes without control characters\n"),
    ] {
        let rejected = stage.get(&format!("news?{query}"), "");
        assert_eq!((rejected.status, &*rejected.text()), (400, text));
    }
    let rejected = stage.get("news?since=never", "");
    assert!(rejected.text().starts_with("invalid since=never: "), "{}", rejected.text());
    for (bytes, status) in [(64, 204), (65, 400)] {
        let name = "n".repeat(bytes);
        assert_eq!(stage.get(&format!("news?wait=0&name={name}"), "").status, status, "{bytes}");
    }
}

#[test]
fn a_poll_is_one_message_with_its_fields() {
    let mut stage = Stage::new();
    for text in ["one", "two", "three"] {
        stage.post("news", text);
    }
    let polled = stage.get("news?since=all", "");
    assert_eq!((polled.status, &*polled.text()), (200, "one"));
    for (name, value) in [
        ("ETag", format!("\"{}\"", id(1))),
        ("Encke-Id", id(1)),
        ("Encke-Channel", "news".to_owned()),
        ("Encke-More", "2".to_owned()),
        ("Content-Security-Policy", "sandbox".to_owned()),
        ("Cache-Control", "no-store, no-transform".to_owned()),
        ("X-Content-Type-Options", "nosniff".to_owned()),
    ] {
        assert_eq!(polled.field(name), Some(&*value), "{}", polled.head);
    }
    assert_eq!((polled.field("Encke-Event"), polled.field("Encke-Gap")), (None, None));
}

#[test]
fn a_poll_of_a_script_or_a_style_sheet_is_text() {
    let mut stage = Stage::new();
    let text = "text/plain; charset=utf-8";
    for (given, expected) in [
        ("text/javascript", text),
        ("Application/JavaScript; charset=utf-8", text),
        ("application/x-ecmascript", text),
        ("text/jscript", text),
        ("text/livescript", text),
        ("text/javascript1.5", text),
        ("text/css", text),
        ("text/html", "text/html"),
        ("application/json", "application/json"),
        ("image/svg+xml", "image/svg+xml"),
        ("text/plain; note=javascript", "text/plain; note=javascript"),
    ] {
        let publish = format!(
            "POST /push/code HTTP/1.1\r\nHost: sim\r\nContent-Type: {given}\r\nContent-Length: 8\r\n\r\nalert(1)"
        );
        assert_eq!(stage.net.ask(0, publish).status, 201, "{given}");
        let polled = stage.get("code?since=last:1&wait=0", "");
        assert_eq!((polled.field("Content-Type"), &*polled.text()), (Some(expected), "alert(1)"), "{given}");
        assert_eq!(polled.field("X-Content-Type-Options"), Some("nosniff"));
        // The type of the publisher is in the envelope.
        let envelope = stage.get("code?since=last:1&wait=0&as=json", "").text();
        assert!(envelope.contains(&format!("\"type\":\"{given}\"")), "{envelope}");
    }
}

#[test]
fn a_poll_continues_after_the_id_in_each_field() {
    let mut stage = Stage::new();
    for text in ["one", "two", "three"] {
        stage.post("news", text);
    }
    for fields in [
        format!("Last-Event-ID: {}\r\n", id(1)),
        format!("If-None-Match: \"{}\"\r\n", id(1)),
        format!("If-None-Match: W/\"{}-gzip\"\r\n", id(1)),
        format!("If-None-Match: \"{}\", \"{}\"\r\n", id(2), id(1)),
        format!("Last-Event-ID: {}\r\nIf-None-Match: \"{}\"\r\n", id(1), id(2)),
    ] {
        assert_eq!(stage.get("news?since=all", &fields).text(), "two", "{fields}");
    }
    assert_eq!(stage.get(&format!("news?since={}", id(2)), "").text(), "three");
    assert_eq!(stage.get("news?since=last:2", "").text(), "two");
}

#[test]
fn a_stream_ignores_if_none_match_and_reads_last_event_id() {
    let mut stage = Stage::new();
    for text in ["one", "two"] {
        stage.post("news", text);
    }
    let mut stream = stage.open("news?as=sse&since=all", &format!("If-None-Match: \"{}\"\r\n", id(1)));
    assert!(stage.wait(&mut stream, "two").contains("one"));
    let mut stream = stage.open("news?as=sse&since=all", &format!("Last-Event-ID: {}\r\n", id(1)));
    assert!(!stage.wait(&mut stream, "two").contains("one"));
}

#[test]
fn a_poll_for_all_messages_is_a_list_with_the_next_id() {
    let mut stage = Stage::new();
    for text in ["one", "two"] {
        stage.post("news", text);
    }
    let polled = stage.get("news?as=json&since=all", "").text();
    assert!(polled.starts_with("{\"messages\":[{\"id\":"), "{polled}");
    assert!(polled.contains("\"data\":\"one\"},{\"id\":"), "{polled}");
    assert!(polled.ends_with(&format!("\"data\":\"two\"}}],\"next\":\"{}\"}}", id(2))), "{polled}");
    let nothing = stage.get("news?as=json&wait=0", "");
    assert_eq!(
        (nothing.status, nothing.text()),
        (200, format!("{{\"messages\":[],\"next\":\"{}\"}}", id(2)))
    );
}

#[test]
fn a_poll_without_message_waits_and_is_a_204_with_the_position() {
    let mut stage = Stage::new();
    stage.post("news", "x");
    for (query, seconds) in [("wait=0", 0), ("wait=3", 3), ("wait=99", 55), ("", 25)] {
        let from_ns = stage.net.now().mono_ns;
        let polled = stage.get(&format!("news?{query}"), "");
        let took_s = (stage.net.now().mono_ns - from_ns) / 1_000_000_000;
        assert_eq!((polled.status, polled.field("Encke-Id")), (204, Some(&*id(1))), "{query}");
        assert_eq!(took_s, seconds, "{query}");
        assert_eq!(polled.field("Content-Length"), None);
    }
}

#[test]
fn a_waiting_poll_gets_the_next_message_at_once() {
    let mut stage = Stage::new();
    let mut poll = stage.open("news", "");
    stage.run(seconds(2));
    let from_ns = stage.net.now().mono_ns;
    stage.post("news", "hello");
    assert_eq!(stage.net.response(&mut poll).text(), "hello");
    assert!(stage.net.now().mono_ns - from_ns < 100_000_000);
}

#[test]
fn a_poll_whose_client_ends_its_side_is_answered_at_once() {
    let mut stage = Stage::new();
    let mut poll = stage.open("news", "");
    poll.shutdown();
    let from_ns = stage.net.now().mono_ns;
    assert_eq!(stage.net.response(&mut poll).status, 204);
    assert!(stage.net.now().mono_ns - from_ns < 1_000_000_000);
}

#[test]
fn polls_of_one_connection_follow_each_other() {
    let mut stage = Stage::new();
    for text in ["one", "two"] {
        stage.post("news", text);
    }
    let mut peer = stage.open("news?since=all", "");
    assert_eq!(stage.net.response(&mut peer).text(), "one");
    let next = request("GET", "news", &format!("Last-Event-ID: {}\r\n", id(1)), "");
    stage.net.send(&mut peer, next.as_bytes());
    assert_eq!(stage.net.response(&mut peer).text(), "two");
}

/// A channel that keeps two of five messages.
fn with_evicted() -> Stage {
    let mut stage = Stage::with(&channels(|channel| channel.messages = 2), &open_to_all());
    for number in 1..=5 {
        stage.post("news", &format!("m{number}"));
    }
    stage
}

#[test]
fn an_evicted_message_is_a_gap_for_a_poll() {
    let mut stage = with_evicted();
    let polled = stage.get("news", &format!("Last-Event-ID: {}\r\n", id(1)));
    assert_eq!(polled.text(), "m4");
    assert_eq!(polled.field("Encke-Gap"), Some(&*format!("from={}, to={}, reason=away", id(1), id(3))));
    let json = stage.get("news?as=json", &format!("Last-Event-ID: {}\r\n", id(1))).text();
    let gap = format!(
        "\"gap\":{{\"op\":\"gap\",\"from\":\"{}\",\"to\":\"{}\",\"reason\":\"away\"}}}}",
        id(1),
        id(3)
    );
    assert!(json.ends_with(&gap), "{json}");
}

#[test]
fn an_evicted_message_is_a_gap_for_a_stream() {
    let mut stage = with_evicted();
    let mut stream = stage.open("news?as=sse", &format!("Last-Event-ID: {}\r\n", id(1)));
    let text = stage.wait(&mut stream, "m5");
    let gap = format!("{{\"op\":\"gap\",\"from\":\"{}\",\"to\":\"{}\",\"reason\":\"away\"}}", id(1), id(3));
    assert!(text.contains("encke.gap") && text.contains(&gap), "{text}");
    assert!(!text.contains("m3") && text.contains("m4"), "{text}");
    let mut lines = stage.open("news?as=ndjson", &format!("Last-Event-ID: {}\r\n", id(1)));
    assert!(stage.wait(&mut lines, "m5").contains(&gap));
}

#[test]
fn a_position_that_is_still_kept_is_no_gap() {
    let mut stage = with_evicted();
    let polled = stage.get("news", &format!("Last-Event-ID: {}\r\n", id(3)));
    assert_eq!((&*polled.text(), polled.field("Encke-Gap")), ("m4", None));
}

#[test]
fn a_foreign_id_is_a_gap_of_another_epoch() {
    let mut stage = with_evicted();
    for foreign in ["elsewhere", "0000000000000009-1"] {
        let polled = stage.get("news", &format!("Last-Event-ID: {foreign}\r\n"));
        let gap = polled.field("Encke-Gap").unwrap_or_else(|| panic!("{foreign}: {}", polled.head));
        assert!(gap.ends_with("reason=epoch"), "{gap}");
        assert_eq!(polled.text(), "m4");
    }
}

#[test]
fn a_silent_stream_gets_heartbeats() {
    let mut stage = Stage::new();
    for (shape, beat) in [("sse", ":\n\n"), ("ndjson", "\n")] {
        let mut stream = stage.open(&format!("news?as={shape}"), "");
        stage.wait(&mut stream, "\n");
        stage.run(seconds(1));
        let start = stage.head(&mut stream).text();
        stage.run(seconds(23));
        assert_eq!(stage.head(&mut stream).text(), start, "{shape}");
        stage.run(seconds(2));
        assert_eq!(stage.head(&mut stream).text(), format!("{start}{beat}"), "{shape}");
    }
}

#[test]
fn a_head_request_is_a_200_without_content() {
    let mut stage = Stage::new();
    stage.post("news", "x");
    let mut peer =
        stage.net.open(0, request("HEAD", "news?since=all", "Connection: close\r\n", "").as_bytes());
    stage.net.until(&mut peer, |peer| peer.is_closed().then_some(()));
    let head = peer.response().expect("a head");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_head_request_has_the_fields_of_its_stream_and_no_length() {
    let mut stage = Stage::new();
    for (query, media) in
        [("?as=sse", Some("text/event-stream")), ("?as=ndjson", Some("application/x-ndjson")), ("", None)]
    {
        let bytes = request("HEAD", &format!("news{query}"), "Connection: close\r\n", "");
        let mut peer = stage.net.open(0, bytes.as_bytes());
        stage.net.until(&mut peer, |peer| peer.is_closed().then_some(()));
        let head = peer.response().expect("a head");
        assert_eq!(
            (head.status, head.field("Content-Length"), head.body.len()),
            (200, None, 0),
            "{}",
            head.head
        );
        assert_eq!(head.field("Content-Type"), media, "{}", head.head);
    }
}

#[test]
fn an_http_1_0_stream_ends_with_its_connection() {
    let mut stage = Stage::new();
    stage.post("news", "hello");
    let mut stream = stage.net.open(0, b"GET /push/news?as=ndjson&since=all HTTP/1.0\r\nHost: sim\r\n\r\n");
    let text = stage.wait(&mut stream, "hello");
    assert!(text.starts_with("\n{\"id\":"), "no chunks: {text:?}");
    assert_eq!(stage.head(&mut stream).field("Transfer-Encoding"), None);
}

#[test]
fn a_stream_has_at_most_as_many_channels_as_the_limit() {
    let settings = PushSettings { channels_per_stream: 2, ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut stream = stage.open("a,b,a?as=sse", "");
    assert_eq!(stage.head(&mut stream).status, 200, "a name that occurs twice counts once");
    let rejected = stage.get("a,b,c?as=sse", "");
    assert_eq!(
        (rejected.status, &*rejected.text()),
        (400, "3 channels in one stream: at most 2 are allowed\n")
    );
}

#[test]
fn a_page_may_read_a_stream_only_if_its_origin_is_listed() {
    let settings = PushSettings { origins: vec!["https://page.example".into()], ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    stage.post("news", "x");
    for (origin, allowed) in [("https://page.example", true), ("https://other.example", false)] {
        for target in ["news?since=all", "news?as=sse", "news?info", "a//b"] {
            let mut peer = stage.open(target, &format!("Origin: {origin}\r\n"));
            let head = stage.head(&mut peer);
            let shared = head.field("Access-Control-Allow-Origin");
            assert_eq!(shared, allowed.then_some(origin), "{target}: {}", head.head);
        }
    }
}

#[test]
fn a_preflight_names_methods_and_fields() {
    let settings = PushSettings { origins: vec!["https://page.example".into()], ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let fields = "Origin: https://page.example\r\nAccess-Control-Request-Method: POST\r\n";
    let reply = stage.ask("OPTIONS", "news", fields, "");
    assert_eq!((reply.status, reply.field("Allow")), (204, Some("GET, HEAD, POST, PUT, DELETE, OPTIONS")));
    for (name, value) in [
        ("Access-Control-Allow-Origin", "https://page.example"),
        ("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE"),
        (
            "Access-Control-Allow-Headers",
            "accept, authorization, cache-control, content-type, encke-event, idempotency-key, if-match, \
             if-modified-since, if-none-match, last-event-id, traceparent, tracestate, x-request-id, x-requested-with",
        ),
    ] {
        assert_eq!(reply.field(name), Some(value), "{}", reply.head);
    }
}

#[test]
fn a_browser_gets_the_page_of_one_channel() {
    let mut stage = Stage::new();
    let page = stage.get("news", "Accept: text/html\r\n");
    let policy = page.field("Content-Security-Policy").expect("a policy");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    let several = stage.get("a,b?wait=0", "Accept: text/html\r\n");
    assert_eq!(several.status, 204);
}

#[test]
fn the_client_library_is_cached_by_its_tag() {
    let mut stage = Stage::new();
    let path = crate::client::CLIENT_PATH;
    let library = stage.net.ask(0, format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n"));
    assert_eq!(
        (library.status, library.field("Content-Type")),
        (200, Some("text/javascript; charset=utf-8"))
    );
    let tag = library.field("ETag").expect("a tag");
    let known = stage.net.ask(0, format!("GET {path} HTTP/1.1\r\nHost: sim\r\nIf-None-Match: {tag}\r\n\r\n"));
    assert_eq!((known.status, known.body.len()), (304, 0));
    let wrong = stage.net.ask(0, format!("DELETE {path} HTTP/1.1\r\nHost: sim\r\n\r\n"));
    assert_eq!((wrong.status, wrong.field("Allow")), (405, Some("GET, HEAD")));
}
