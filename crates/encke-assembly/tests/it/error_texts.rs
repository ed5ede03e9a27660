//! The texts of error responses of channels: each names the culprit, the place and the remedy, once and in plain English.

use encke_assembly::settings::PushSettings;

use super::push_clients::with;
use crate::rig::{Rig, Stand};

on_two_stands! {
    every_error_of_a_request_has_one_plain_text,
}

/// Terms of the parser, and of an earlier style.
const AVOIDED: [&str; 9] = [
    "unknown field",
    "missing field",
    "duplicate field",
    "invalid type: s",
    "invalid type: i",
    "EOF",
    "is no ",
    "nobody",
    "whoever",
];

fn answer(rig: &Rig, method: &str, target: &str, fields: &str, body: &str) -> (u16, String) {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = rig.client().ask(request);
    (answer.status, answer.text().to_owned())
}

fn every_error_of_a_request_has_one_plain_text(on: Stand) {
    let push = PushSettings { message_bytes: "1KiB".parse().expect("a size"), ..PushSettings::default() };
    let rig = with(on, push);
    let lines = "Content-Type: application/x-ndjson\r\n";
    let (long, large) = ("x".repeat(201), "x".repeat(1_025));
    let shown = "x".repeat(40);
    for (method, target, fields, body, status, text) in [
        (
            "GET",
            "/push/x?since=5",
            "",
            "",
            400,
            "invalid since=5: expected now, all, key, last:N, an age such as 90s, 10m, 12h or 7d, or the id of a message",
        ),
        ("GET", "/push/x?wait=soon", "", "", 400, "invalid wait=soon: expected seconds from 0 to 55"),
        ("GET", "/push/x?as=xml", "", "", 400, "invalid as=xml: expected sse, ws, poll, json or ndjson"),
        (
            "GET",
            "/push/x?name=%00",
            "",
            "",
            400,
            "invalid name: expected at most 64 bytes without control characters",
        ),
        ("GET", "/push/a,b?info", "", "", 400, "?info supports only one channel"),
        ("GET", "/push/x?info", "", "", 404, "channel x has no message and no subscriber"),
        ("GET", "/push/?as=sse", "", "", 404, "the path names no channel: subscribe to /push/CHANNEL"),
        ("GET", "/push/a//b", "", "", 400, "channel \"a//b\": empty segment at byte 2: remove a slash"),
        ("GET", "/push/a,", "", "", 400, "channel \"\": the name is empty: expected one such as news"),
        ("GET", "/push/.a", "", "", 400, "channel \".a\": the segment at byte 0 begins with a dot"),
        (
            "GET",
            "/push/a%20b",
            "",
            "",
            400,
            "channel \"a%20b\": invalid character ' ' at byte 1: expected letters, digits, . _ ~ - and /",
        ),
        (
            "GET",
            &format!("/push/{long}"),
            "",
            "",
            400,
            &format!("channel \"{shown}…\": the name has 201 bytes: at most 200 are allowed"),
        ),
        (
            "GET",
            "/push/1/2/3/4/5/6/7/8/9",
            "",
            "",
            400,
            "channel \"1/2/3/4/5/6/7/8/9\": too many segments at byte 16: at most 8 are allowed",
        ),
        ("GET", "/push/x?as=ws", "", "", 400, "Connection does not name upgrade."),
        (
            "PATCH",
            "/push/x",
            "",
            "",
            405,
            "unsupported method: read a channel with GET, publish to it with POST",
        ),
        (
            "POST",
            "/push/",
            "",
            "x",
            400,
            "the path names no channel: publish to /push/CHANNEL, or envelopes as application/x-ndjson to /push/",
        ),
        (
            "POST",
            "/push/x",
            lines,
            "{\"channel\":\"a\",\"data\":1}",
            415,
            "application/x-ndjson holds envelopes, which name their channels: publish them to /push/, or one message to \
             /push/CHANNEL with another Content-Type",
        ),
        (
            "POST",
            "/push/x",
            "Content-Type: text\r\n",
            "x",
            400,
            "invalid Content-Type: expected a media type",
        ),
        (
            "POST",
            "/push/x",
            &format!("Encke-Event: {long}\r\n"),
            "x",
            400,
            "invalid encke-event: expected at most 128 bytes of UTF-8 without control characters",
        ),
        (
            "POST",
            "/push/x",
            "Encke-Event: encke.gap\r\n",
            "x",
            400,
            "event names that begin with encke. are reserved for the server",
        ),
        ("POST", "/push/x", "", &large, 413, "the body is larger than 1024 bytes (see push.message_bytes)"),
        (
            "POST",
            "/push/",
            lines,
            &format!("{{\"channel\":\"a\",\"data\":1}}\n{{\"channel\":\"a\",\"data\":\"{large}\"}}"),
            413,
            "the message has 1025 bytes: at most 1024 are allowed; the message before it was published, with id ID",
        ),
        (
            "POST",
            "/push/",
            lines,
            "data: hello",
            400,
            "line 1: expected a JSON object such as {\"channel\":\"news\",\"data\":\"hello\"}; nothing was published",
        ),
        (
            "POST",
            "/push/",
            lines,
            "{\"channel\":\"a b\",\"data\":1}",
            400,
            "line 1: channel \"a b\": invalid character ' ' at byte 1: expected letters, digits, . _ ~ - and /; nothing was \
             published",
        ),
        (
            "POST",
            "/push/",
            lines,
            "{\"data\":1}",
            400,
            "line 1: channel is missing: name the channel to publish to; nothing was published",
        ),
        (
            "POST",
            "/push/",
            lines,
            "{\"channel\":\"a\",\"data\":1,\"type\":\"text\"}",
            400,
            "line 1: invalid type: expected a media type such as application/json; nothing was published",
        ),
        (
            "POST",
            "/push/",
            lines,
            &format!("{{\"channel\":\"a\",\"data\":1,\"key\":\"{long}{long}\"}}"),
            400,
            "line 1: key has 402 bytes: at most 255 are allowed; nothing was published",
        ),
        (
            "POST",
            "/push/",
            lines,
            &format!("{{\"channel\":\"a\",\"data\":1,\"event\":\"{long}\"}}"),
            400,
            "line 1: invalid event: expected at most 128 bytes without control characters; nothing was published",
        ),
    ] {
        let (found, told) = answer(&rig, method, target, fields, body);
        // Ids differ from run to run.
        let told = match told.trim_end().split_once("with id ") {
            Some((before, _)) => format!("{before}with id ID"),
            None => told.trim_end().to_owned(),
        };
        assert_eq!((found, told.as_str()), (status, text), "{method} {target} {fields} {body:.80}");
        assert!(told.matches("expected").count() <= 1, "{told}: the rule comes once");
        assert!(!AVOIDED.iter().any(|term| told.contains(term)), "{told}");
    }
}
