//! Publishing by HTTP.

use super::*;

#[test]
fn a_publish_is_a_201_with_the_id_of_the_message() {
    let mut stage = Stage::new();
    let published = stage.ask("POST", "news", "", "hello");
    assert_eq!(published.status, 201);
    assert_eq!(published.text(), format!("{{\"id\":\"{}\",\"subscribers\":0}}\n", id(1)));
    assert_eq!(published.field("Content-Type"), Some("application/json"));
    assert_eq!(published.field("Cache-Control"), Some("no-store"));
    let put = stage.ask("PUT", "news", "", "again");
    assert_eq!((put.status, put.text()), (201, format!("{{\"id\":\"{}\",\"subscribers\":0}}\n", id(2))));
}

#[test]
fn a_publish_to_several_channels_has_an_id_for_each() {
    let mut stage = Stage::new();
    assert_eq!(
        stage.post("a,b", "hello"),
        format!("{{\"id\":\"{1}\",\"ids\":[\"{0}\",\"{1}\"],\"subscribers\":0}}\n", id(1), id(2))
    );
    for channel in ["a", "b"] {
        assert_eq!(stage.get(&format!("{channel}?since=all"), "").text(), "hello");
    }
}

#[test]
fn a_publish_counts_the_subscribers_of_its_channel() {
    let mut stage = Stage::of(3, &PushSettings::default(), &open_to_all());
    let mut streams: Vec<_> = (0..5).map(|_| stage.open("news?as=sse", "")).collect();
    for stream in &mut streams {
        stage.wait(stream, "retry:");
    }
    stage.run(seconds(1));
    assert!(stage.post("news", "x").ends_with(",\"subscribers\":5}\n"));
    assert!(stage.post("other", "x").ends_with(",\"subscribers\":0}\n"));
}

#[test]
fn a_repeated_key_publishes_once() {
    let mut stage = Stage::new();
    let key = "Idempotency-Key: k1\r\n";
    let first = stage.ask("POST", "news", key, "hello");
    let again = stage.ask("POST", "news", key, "hello");
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.text(), again.text());
    let info = stage.get("news?info", "").text();
    assert!(info.contains("\"messages\":1,"), "{info}");
}

#[test]
fn a_key_with_another_body_is_a_422() {
    let mut stage = Stage::new();
    let key = "Idempotency-Key: k1\r\n";
    assert_eq!(stage.ask("POST", "news", key, "hello").status, 201);
    let rejected = stage.ask("POST", "news", key, "other");
    assert_eq!(rejected.status, 422, "{}", rejected.text());
    assert_eq!(stage.ask("POST", "other", key, "other").status, 201, "a key belongs to its channel");
}

#[test]
fn a_key_has_at_most_as_many_bytes_as_the_limit() {
    let mut stage = Stage::new();
    let most = crate::command::KEY_BYTES_MAX;
    for (bytes, status) in [(most, 201), (most + 1, 400)] {
        let response = stage.ask("POST", "news", &format!("Idempotency-Key: {}\r\n", "k".repeat(bytes)), "x");
        assert_eq!(response.status, status, "{bytes}");
        if status == 400 {
            let text = format!(
                "invalid idempotency-key: expected at most {most} bytes of UTF-8 without control characters\n"
            );
            assert_eq!(response.text(), text);
        }
    }
}

#[test]
fn a_blank_key_is_none() {
    let mut stage = Stage::new();
    for _ in 0..2 {
        assert_eq!(stage.ask("POST", "news", "Idempotency-Key:  \r\n", "x").status, 201);
    }
}

#[test]
fn an_event_has_at_most_as_many_bytes_as_the_limit() {
    let mut stage = Stage::new();
    let most = crate::command::EVENT_BYTES_MAX;
    for (bytes, status) in [(most, 201), (most + 1, 400)] {
        let response = stage.ask("POST", "news", &format!("Encke-Event: {}\r\n", "e".repeat(bytes)), "x");
        assert_eq!(response.status, status, "{bytes}: {}", response.text());
    }
}

#[test]
fn a_reserved_event_is_a_400() {
    let mut stage = Stage::new();
    let rejected = stage.ask("POST", "news", "Encke-Event: encke.gap\r\n", "x");
    assert_eq!(rejected.status, 400, "{}", rejected.text());
}

#[test]
fn a_message_of_the_largest_size_is_published_and_a_larger_one_is_a_413() {
    let settings =
        PushSettings { message_bytes: encke_settings::ByteSize::of(2_000), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    stage.post("news", &"x".repeat(2_000));
    let rejected = stage.ask("POST", "news", "", &"x".repeat(2_001));
    assert_eq!(rejected.status, 413);
    assert_eq!(rejected.text(), "the body is larger than 2000 bytes (see push.message_bytes)\n");
    assert_eq!(rejected.field("Connection"), Some("close"));
}

#[test]
fn the_media_type_of_a_message_is_kept_and_that_of_a_form_is_not() {
    let mut stage = Stage::new();
    for (given, expected) in [
        ("application/json", "application/json"),
        ("text/html; charset=latin1", "text/html; charset=latin1"),
        ("application/x-www-form-urlencoded", "text/plain; charset=utf-8"),
    ] {
        stage.ask("POST", "news", &format!("Content-Type: {given}\r\n"), "x");
        let polled = stage.get("news?since=last:1", "");
        assert_eq!(polled.field("Content-Type"), Some(expected), "{given}");
    }
    for wrong in ["text", "/plain", "text/", "text/pl\u{e4}in"] {
        let rejected = stage.ask("POST", "news", &format!("Content-Type: {wrong}\r\n"), "x");
        assert_eq!(
            (rejected.status, &*rejected.text()),
            (400, "invalid Content-Type: expected a media type\n"),
            "{wrong}"
        );
    }
}

#[test]
fn bytes_that_are_not_text_have_the_type_of_bytes() {
    let mut stage = Stage::new();
    let head = "POST /push/news HTTP/1.1\r\nHost: sim\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(stage.net.ask(0, [head.as_bytes(), b"\xff\x00"].concat()).status, 201);
    let polled = stage.get("news?since=all", "");
    assert_eq!(polled.field("Content-Type"), Some("application/octet-stream"));
    assert_eq!(polled.body, b"\xff\x00");
    let json = stage.get("news?since=all&as=json", "").text();
    assert!(json.contains("\"data64\":\"/wA=\""), "{json}");
}

#[test]
fn a_body_of_envelopes_publishes_each_line() {
    let mut stage = Stage::new();
    let lines =
        "{\"channel\":\"a\",\"data\":\"one\"}\n\n{\"channel\":\"b\",\"data\":{\"x\":1},\"event\":\"e\"}\n";
    let published = stage.ask("POST", "", "Content-Type: application/x-ndjson\r\n", lines);
    assert_eq!(published.status, 201);
    assert_eq!(published.text(), format!("{{\"id\":\"{}\",\"published\":2,\"subscribers\":0}}\n", id(2)));
    let polled = stage.get("b?since=all", "");
    assert_eq!(
        (polled.field("Content-Type"), polled.field("Encke-Event")),
        (Some("application/json"), Some("e"))
    );
    assert_eq!(polled.text(), "{\"x\":1}");
}

#[test]
fn an_invalid_envelope_publishes_nothing_and_names_its_line() {
    let mut stage = Stage::new();
    let good = "{\"channel\":\"a\",\"data\":\"one\"}\n";
    for (line, text) in [
        (
            "{\"channel\":\"a\"}",
            "line 2: data is missing: give data, or data64 for bytes; nothing was published\n",
        ),
        (
            "{\"data\":1}",
            "line 2: channel is missing: name the channel to publish to; nothing was published\n",
        ),
        (
            "{\"op\":\"ping\"}",
            "line 2: op is ping: a request only publishes; open a WebSocket with encke.v1; nothing was published\n",
        ),
        (
            "{\"channel\":\"a\",\"data\":1,\"type\":\"text\"}",
            "line 2: invalid type: expected a media type such as application/json; nothing was published\n",
        ),
    ] {
        let body = format!("{good}{line}");
        let rejected = stage.ask("POST", "", "Content-Type: application/x-ndjson\r\n", &body);
        assert_eq!((rejected.status, &*rejected.text()), (400, text));
    }
    assert_eq!(stage.get("a?since=all&wait=0", "").status, 204, "the first line was not published either");
}

#[test]
fn an_envelope_has_a_key_and_an_event_up_to_their_limits() {
    let mut stage = Stage::new();
    let (key, event) = (crate::command::KEY_BYTES_MAX, crate::command::EVENT_BYTES_MAX);
    for (member, most, text) in [
        (
            "key",
            key,
            format!("line 1: key has {} bytes: at most {key} are allowed; nothing was published\n", key + 1),
        ),
        (
            "event",
            event,
            format!(
                "line 1: invalid event: expected at most {event} bytes without control characters; nothing was published\n"
            ),
        ),
    ] {
        for (bytes, status) in [(most, 201), (most + 1, 400)] {
            let body = format!("{{\"channel\":\"a\",\"data\":1,\"{member}\":\"{}\"}}", "k".repeat(bytes));
            let response = stage.ask("POST", "", "Content-Type: application/x-ndjson\r\n", &body);
            assert_eq!(response.status, status, "{}", response.text());
            if status == 400 {
                assert_eq!(response.text(), text);
            }
        }
    }
}

#[test]
fn a_request_has_at_most_10_000_envelopes() {
    let mut stage =
        Stage::with(&PushSettings { anonymous_rate: OrOff::Off, ..PushSettings::default() }, &open_to_all());
    let body = "{\"channel\":\"a\",\"data\":1}\n".repeat(10_001);
    let kind = "Content-Type: application/x-ndjson\r\n";
    let rejected = stage.ask("POST", "", kind, &body);
    assert_eq!(
        (rejected.status, &*rejected.text()),
        (413, "line 10001: at most 10000 envelopes per request\n")
    );
    let published = stage.ask("POST", "", kind, &body[..body.len() / 10_001 * 10_000]);
    assert!(published.text().contains("\"published\":10000,"), "{}", published.text());
}

#[test]
fn envelopes_are_for_the_prefix_and_messages_for_channels() {
    let mut stage = Stage::new();
    let named = stage.ask("POST", "news", "Content-Type: application/x-ndjson\r\n", "{}");
    assert_eq!(named.status, 415);
    assert!(
        named.text().contains("publish them to /push/, or one message to /push/CHANNEL"),
        "{}",
        named.text()
    );
    let unnamed = stage.ask("POST", "", "", "x");
    assert_eq!(
        (unnamed.status, &*unnamed.text()),
        (
            400,
            "the path names no channel: publish to /push/CHANNEL, or envelopes as application/x-ndjson to /push/\n"
        )
    );
}

#[test]
fn a_trace_reports_the_time_of_the_fan_out() {
    let mut stage = Stage::new();
    let text = stage.post("news?trace", "x");
    assert!(text.contains(",\"fanout_ns\":"), "{text}");
    assert!(!stage.post("news", "x").contains("fanout_ns"));
}

#[test]
fn an_invalid_channel_is_a_400_that_shows_its_begin() {
    let mut stage = Stage::new();
    let rejected = stage.ask("POST", "a//b", "", "x");
    assert_eq!(rejected.status, 400);
    assert!(rejected.text().starts_with("channel \"a//b\": "), "{}", rejected.text());
    let long = stage.ask("POST", &format!("a//{}", "b".repeat(100)), "", "x").text();
    assert!(long.starts_with(&format!("channel \"a//{}…\": ", "b".repeat(37))), "{long}");
}

#[test]
fn an_escaped_channel_is_the_same_channel() {
    let mut stage = Stage::new();
    stage.post("n%65ws", "hello");
    assert_eq!(stage.get("news?since=all", "").text(), "hello");
    assert_eq!(stage.ask("POST", "a%2Fb", "", "x").status, 400, "a slash cannot be escaped");
}

#[test]
fn an_unsupported_method_is_a_405_with_the_allowed_ones() {
    let mut stage = Stage::new();
    let rejected = stage.ask("PATCH", "news", "", "");
    assert_eq!(rejected.status, 405);
    assert_eq!(rejected.text(), "unsupported method: read a channel with GET, publish to it with POST\n");
    assert_eq!(rejected.field("Allow"), Some("GET, HEAD, POST, PUT, DELETE, OPTIONS"));
    assert_eq!(rejected.field("X-Content-Type-Options"), Some("nosniff"));
}
