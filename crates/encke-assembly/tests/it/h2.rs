//! Channels over HTTP/2: each subscriber is a stream, and so is a WebSocket.

use encke_assembly::settings::{AuthSettings, PushSettings};

use crate::rig::Channels as _;
use crate::rig::h2::*;
use crate::rig::{Rig, Stand};

on_every_back_end! {
    a_subscriber_that_resets_its_stream_is_gone,
    what_a_subscriber_has_not_taken_is_told,
    the_response_to_a_poll_is_charged_until_it_is_sent,
    a_client_that_goes_takes_its_streams_along,
}

on_two_stands! {
    subscribers_share_a_connection,
    a_websocket_is_a_stream,
}

fn a_subscriber_that_resets_its_stream_is_gone(stand: Stand) {
    let rig = channels(stand);
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/push/news?as=sse", END_STREAM));
    assert!(client.body_with(1, b"retry:"), "the stream has begun");
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    rig.wait(|| rig.count("encke_push_subscribers") == 0, "no subscriber");
    assert_eq!(rig.count_of("encke_h2_resets_total", "peer"), 1);
    client.ping();
}

fn what_a_subscriber_has_not_taken_is_told(stand: Stand) {
    let rig = channels(stand);
    let mut client = H2::connect(&rig);
    // The event stream starts without a send window.
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    client.send(&request(1, GET, "/push/news?as=sse", END_STREAM));
    let mut other = rig.client();
    let told = || {
        // The worker samples some subscribers once a second, but only in a turn with work.
        other.get("/");
        rig.count_of("encke_push_unsent_bytes", "most") > 0
    };
    rig.wait(told, "bytes that are not sent");
}

fn the_response_to_a_poll_is_charged_until_it_is_sent(stand: Stand) {
    let rig = channels(stand);
    assert_eq!(super::push_clients::publish(&rig, "news", &"x".repeat(100_000)).status, 201);
    let mut client = H2::connect(&rig);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    client.send(&request(1, GET, "/push/news?since=all", END_STREAM));
    rig.wait(|| rig.count("encke_h2_unsent_bytes") >= 50_000, "a response that is not sent");
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]));
    assert_eq!(client.answer(1).body.len(), 100_000);
    rig.wait(|| rig.count("encke_h2_unsent_bytes") == 0, "nothing left to send");
}

fn a_client_that_goes_takes_its_streams_along(stand: Stand) {
    let rig = channels(stand);
    let mut client = H2::connect(&rig);
    for id in [1, 3, 5] {
        client.send(&request(id, GET, "/push/news?as=sse", END_STREAM));
    }
    rig.wait(|| rig.count("encke_push_subscribers") == 3, "three subscribers");
    drop(client);
    rig.wait(|| rig.count("encke_push_subscribers") == 0, "no subscriber");
    rig.wait(|| rig.connections() == 0, "no connection");
    rig.wait(|| rig.count("encke_h2_streams") == 0, "no stream");
}

fn subscribers_share_a_connection(stand: Stand) {
    let rig = channels(stand);
    let mut client = H2::connect(&rig);
    for (id, query) in [(1, "sse"), (3, "ndjson"), (5, "poll"), (7, "json")] {
        client.send(&request(id, GET, &format!("/push/news?as={query}"), END_STREAM));
    }
    rig.wait(|| rig.count("encke_push_subscribers") == 4, "four subscribers");
    let said = "POST /push/news HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(rig.client().ask(said).status, 201);
    assert!(client.body_with(1, b"data: hello\n\n"), "an event");
    assert!(client.body_with(3, b"\"data\":\"hello\""), "a line");
    assert_eq!(client.answer(5), OK.with(b"hello"));
    assert!(client.body_with(7, b"\"data\":\"hello\""), "a batch");
    assert_eq!(rig.client().ask(said).status, 201);
    client.got(1).body.clear();
    assert!(client.body_with(1, b"data: hello\n\n"), "the next event");
}

fn a_websocket_is_a_stream(stand: Stand) {
    use encke_wire::websocket::{Opcode, put_masked};
    let rig = channels(stand);
    let mut client = H2::connect(&rig);
    let mut block = vec![0x02, 7];
    block.extend_from_slice(b"CONNECT");
    block.push(0x86);
    put_literal(&mut block, b":protocol", b"websocket");
    block.extend_from_slice(&target("/push/news?as=ws"));
    put_literal(&mut block, b"sec-websocket-version", b"13");
    client.send(&frame(HEADERS, END_HEADERS, 1, &block));
    rig.wait(|| rig.count("encke_push_subscribers") == 1, "a subscriber");
    let mut message = Vec::new();
    put_masked(&mut message, Opcode::Text, b"from within", [1, 2, 3, 4]);
    client.send(&frame(DATA, 0, 1, &message));
    assert!(client.body_with(1, b"from within"), "what was published comes back as a message");
    assert_eq!(client.got(1).status, Some(OK_STATUS));
    let mut close = Vec::new();
    put_masked(&mut close, Opcode::Close, &1000_u16.to_be_bytes(), [0; 4]);
    client.send(&frame(DATA, 0, 1, &close));
    assert!(client.answer(1).body.ends_with(&[0x88, 2, 3, 0xe8]), "a Close with the same code");
}

fn channels(stand: Stand) -> Rig {
    stand.serve(|server| {
        server.push(&PushSettings::default(), &AuthSettings::default()).expect("settings that hold")
    })
}
