//! JSON values as messages: what publishers send in envelopes, and what subscribers of each transport receive.

use std::sync::Arc;

use encke_assembly::settings::{AuthSettings, ChannelSettings, PushSettings};
use encke_push::PushPlan;
use encke_rights::Openness;
use encke_wire::websocket::{self, Opcode};
use serde_json::Value;

use super::push_clients::{Socket, Stream, json, post, stand};
use crate::rig::{Cut, Folder, Rig, Stand};

on_every_stand! {
    a_socket_publishes_json_however_its_frames_are_cut,
    lines_publish_json_however_the_body_is_cut,
}

on_two_stands! {
    a_json_value_reaches_every_kind_of_subscriber,
    an_invalid_envelope_is_reported_without_terms_of_the_parser,
    a_json_value_survives_a_restart,
}

const LINES: &str = "Content-Type: application/x-ndjson\r\n";

/// Returns the oldest message of a channel as raw bytes, and its type.
fn oldest(rig: &Rig, channel: &str) -> (String, String) {
    let answer = rig.client().get(&format!("/push/{channel}?since=all&wait=0&as=poll"));
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.text().to_owned(), answer.field("Content-Type").expect("a type").to_owned())
}

fn a_json_value_reaches_every_kind_of_subscriber(on: Stand) {
    let rig = stand(on);
    let value = "{\"b\": 1.50, \"a\":[true,null,\"\\u00e9\"]}";
    let mut events = Stream::open(&rig, "/push/room/one", "");
    let mut envelopes = Stream::open(&rig, "/push/room/one?envelope", "");
    let mut socket = Socket::open(&rig, "/push/room/one", "encke.v1");
    socket.text();
    let mut payloads = Socket::open(&rig, "/push/room/one", "");
    let mut publisher = Socket::open(&rig, "/push/other", "encke.v1");
    publisher.text();
    super::push_clients::wait_for_subscribers(&rig, 5);
    let command = format!("{{\"op\":\"publish\",\"channel\":\"room/one\",\"data\":{value},\"ref\":1}}");
    publisher.say(Opcode::Text, command.as_bytes());
    assert_eq!(json(&publisher.text(), "op"), "ok");
    assert_eq!(events.data(), value);
    for text in [envelopes.data(), socket.text()] {
        let envelope: Value = serde_json::from_str(&text).expect("an envelope");
        assert_eq!((&envelope["data"], &envelope["type"]), (&value.into(), &"application/json".into()));
    }
    assert_eq!(payloads.text(), value);
    assert_eq!(oldest(&rig, "room/one"), (value.into(), "application/json".into()));
    let batch = rig.client().get("/push/room/one?since=all&wait=0&as=json");
    let batch: Value = serde_json::from_str(batch.text()).expect("a list");
    assert_eq!(batch["messages"][0]["data"], value);
    // The type of the publisher counts, and a string stays a text.
    for (channel, members, data, content_type) in [
        ("typed", "\"data\":[1],\"type\":\"application/vnd.x+json\"", "[1]", "application/vnd.x+json"),
        ("text", "\"data\":\"[1]\"", "[1]", "text/plain; charset=utf-8"),
        ("text/typed", "\"data\":\"[1]\",\"type\":\"application/json\"", "[1]", "application/json"),
        ("null", "\"data\":null", "null", "application/json"),
        ("bytes", "\"data\":null,\"data64\":\"aGk=\"", "hi", "text/plain; charset=utf-8"),
        ("number", "\"data\":-1.0e5", "-1.0e5", "application/json"),
    ] {
        let line = format!("{{\"channel\":\"{channel}\",{members}}}");
        assert_eq!(post(&rig, "/push/", LINES, line.as_bytes()).status, 201, "{line}");
        assert_eq!(oldest(&rig, channel), (data.into(), content_type.into()), "{line}");
    }
}

fn a_socket_publishes_json_however_its_frames_are_cut(on: Stand) {
    let rig = stand(on);
    let mut socket = Socket::open(&rig, "/push/a", "encke.v1");
    socket.text();
    let command = br#"{"channel":"b","data":{"x":[1,"\u00e9"]},"ref":3}"#;
    let mut bytes = Vec::new();
    websocket::put_masked(&mut bytes, Opcode::Text, command, [1, 2, 3, 4]);
    let mut count = 0_u64;
    for cut in Cut::all(&bytes) {
        socket.0.send_cut(&rig, &bytes, cut);
        assert_eq!(json(&socket.text(), "op"), "ok", "{cut:?}");
        count += 1;
    }
    // The same message in two fragments, divided at each byte.
    for place in 1..command.len() {
        let (first, last) = command.split_at(place);
        let mut bytes = Vec::new();
        websocket::put_masked(&mut bytes, Opcode::Text, first, [1, 2, 3, 4]);
        bytes[0] &= 0x7f;
        websocket::put_masked(&mut bytes, Opcode::Continuation, last, [4, 3, 2, 1]);
        socket.0.send(&bytes);
        assert_eq!(json(&socket.text(), "op"), "ok", "divided at {place}");
        count += 1;
    }
    let batch = rig.client().get("/push/b?since=all&wait=0&as=json");
    let batch: Value = serde_json::from_str(batch.text()).expect("a list");
    let messages = batch["messages"].as_array().expect("a list");
    // The channel keeps its last 100 messages, and a response has at most 64.
    let more = batch["more"].as_u64().expect("there are more");
    assert_eq!(messages.len() as u64 + more, 100.min(count));
    assert!(messages.iter().all(|message| message["data"] == r#"{"x":[1,"\u00e9"]}"#), "{messages:?}");
}

fn lines_publish_json_however_the_body_is_cut(on: Stand) {
    let rig = stand(on);
    let body = "{\"channel\":\"a\",\"data\":{\"x\":1}}\r\n\n{\"channel\":\"b\",\"data\":[\"\u{e9}\"]}\n";
    let request = format!(
        "POST /push/ HTTP/1.1\r\nHost: localhost\r\n{LINES}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let head = request.len() - body.len();
    let mut client = rig.client();
    let cuts = [Cut::Whole, Cut::EachByte].into_iter().chain((head..request.len()).map(Cut::At));
    for cut in cuts {
        client.send_cut(&rig, request.as_bytes(), cut);
        let answer = client.answer();
        assert_eq!((answer.status, json(answer.text(), "published")), (201, "2"), "{cut:?}");
    }
    assert_eq!(oldest(&rig, "a"), ("{\"x\":1}".into(), "application/json".into()));
    assert_eq!(oldest(&rig, "b"), ("[\"\u{e9}\"]".into(), "application/json".into()));
}

fn an_invalid_envelope_is_reported_without_terms_of_the_parser(on: Stand) {
    let rig = stand(on);
    let mut socket = Socket::open(&rig, "/push/a", "encke.v1");
    socket.text();
    for (text, reference, expected) in [
        ("[1]", None, "expected a JSON object"),
        ("{\"channel\":\"a\",\"data\":\"x\"", None, "the JSON object ends too early"),
        ("{\"ref\":5,\"channel\":7,\"data\":1}", Some(5), "channel is a number: expected a string"),
        ("{\"ref\":6,\"chanel\":\"a\"}", Some(6), "unknown member \"chanel\""),
        ("{\"ref\":7,\"channel\":\"a\",\"data\":1,\"data\":2}", Some(7), "data is given twice"),
        ("{\"ref\":8,\"channel\":\"a\"}", Some(8), "data is missing"),
        ("{\"ref\":9,\"channel\":\"a\",\"data64\":\"?\"}", Some(9), "data64 is not base64"),
    ] {
        socket.say(Opcode::Text, text.as_bytes());
        let answer: Value = serde_json::from_str(&socket.text()).expect("an error");
        assert_eq!((&answer["op"], &answer["status"]), (&"error".into(), &400.into()), "{text}");
        assert_eq!(answer["ref"].as_u64(), reference, "{text}");
        assert!(answer["text"].as_str().is_some_and(|told| told.starts_with(expected)), "{text}: {answer}");
        let body = format!("{{\"channel\":\"a\",\"data\":1}}\n{text}\n");
        let answer = post(&rig, "/push/", LINES, body.as_bytes());
        assert_eq!(answer.status, 400, "{text}");
        assert!(answer.text().starts_with(&format!("line 2: {expected}")), "{text}: {answer:?}");
        assert!(answer.text().ends_with("; nothing was published\n"), "{text}: {answer:?}");
    }
    let answer = post(&rig, "/push/", LINES, b"{\"op\":\"ping\"}");
    assert!(answer.text().starts_with("line 1: op is ping: a request only publishes"), "{answer:?}");
    assert_eq!(rig.client().get("/push/a?since=all&wait=0").status, 204, "nothing was published");
}

fn a_json_value_survives_a_restart(on: Stand) {
    let folder = Folder::new();
    let channel =
        ChannelSettings { pattern: "orders/**".into(), durable: true, ..ChannelSettings::default() };
    let push = PushSettings { channel: vec![channel], ..PushSettings::default() };
    let serve = |on: Stand| {
        on.serve(|server| {
            let openness = Openness::of(false, false, server.doors().iter().map(|door| &door.address));
            let plan = PushPlan::new(&push, &AuthSettings::default(), openness).expect("valid settings");
            let plan = Arc::new(plan.kept_in(folder.path()).expect("a store"));
            server.mount_all(plan.mounts())
        })
    };
    let rig = serve(on);
    let line = b"{\"channel\":\"orders/7\",\"data\":{\"total\": 12.50},\"event\":\"paid\"}";
    assert_eq!(post(&rig, "/push/", LINES, line).status, 201);
    drop(rig);
    let rig = serve(on);
    assert_eq!(oldest(&rig, "orders/7"), ("{\"total\": 12.50}".into(), "application/json".into()));
    let list = rig.client().get("/push/?pattern=orders/*");
    let list: Value = serde_json::from_str(list.text()).expect("a list");
    assert_eq!((&list["channels"][0]["durable"], &list["total"]), (&true.into(), &1.into()), "{list}");
}
