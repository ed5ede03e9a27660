//! Channels under overload: rates, admission, the last connections, a drain under load; and access by web pages.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use encke_assembly::settings::{
    Act, AuthSettings, ChannelSettings, OrOff, OverrunPolicy, PushSettings, Secret, StaticToken,
};
use encke_server::{CloseReason, Network};
use encke_wire::websocket::Opcode;

use crate::push_clients::{Socket, Stream, handshake, json, post, wait_for_subscribers, with};
use crate::rig::{Answer, Client, End, Rig, Stand};
use crate::rig::{Channels as _, Reloads as _};

on_every_stand! {
    a_stranger_publishes_at_a_rate_and_is_told_when_it_may_again,
    a_stranger_publishes_no_faster_by_lines_or_by_sockets,
    each_client_of_a_trusted_proxy_has_a_rate_of_its_own,
    a_socket_that_opens_many_channels_leaves_room_for_others,
    an_address_opens_new_channels_at_a_rate,
    members_of_one_address_join_at_a_rate,
    too_many_who_come_at_once_are_told_when_to_come_back,
    a_poll_that_goes_on_is_always_admitted,
    the_last_connections_are_not_for_those_who_listen,
    everybody_is_told_to_come_back_though_messages_go_on_at_the_drain,
    what_those_who_listen_take_is_shown,
}

on_two_stands! {
    a_reader_with_many_names_evicts_no_message,
    a_named_page_may_read_every_answer_with_its_cookies,
    a_page_that_is_not_named_may_read_none,
    a_star_is_no_name,
    what_is_asked_at_the_same_time_is_asked_once,
    a_right_that_is_taken_away_is_gone_for_the_next_request,
}

/// A host name that no local page or program would use: a client that does is treated as remote.
const HOST: &str = "channels.example";

/// Starts a server where anonymous clients may read and publish.
fn public(on: Stand, push: &PushSettings) -> Rig {
    on.serve(|server| server.push(push, &anybody()).expect("settings that hold"))
}

fn anybody() -> AuthSettings {
    AuthSettings { anonymous: vec![Act::Publish, Act::Subscribe], ..AuthSettings::default() }
}

fn limited(rate: u32) -> PushSettings {
    PushSettings { anonymous_rate: OrOff::On(rate.try_into().expect("above 0")), ..PushSettings::default() }
}

fn publish_as(client: &mut Client, fields: &str) -> Answer {
    client.ask(format!("POST /push/a HTTP/1.1\r\nContent-Length: 1\r\n{fields}\r\nx"))
}

/// Publishes until the rate limit applies. Returns the number of accepted messages, and the rejection.
fn publish_too_fast(client: &mut Client, fields: &str) -> (u64, Answer) {
    for taken in 0..100_000 {
        let answer = publish_as(client, fields);
        if answer.status != 201 {
            return (taken, answer);
        }
    }
    panic!("100,000 messages were taken of {fields:?}")
}

fn a_stranger_publishes_at_a_rate_and_is_told_when_it_may_again(on: Stand) {
    let token = StaticToken {
        token: Secret::Text("0123456789abcdef".into()),
        name: None,
        publish: vec!["**".into()],
        subscribe: Vec::new(),
        presence: Vec::new(),
        manage: Vec::new(),
    };
    let auth = AuthSettings { tokens: vec![token], ..anybody() };
    let rig = on.serve(|server| server.push(&limited(5), &auth).expect("settings that hold"));
    let stranger = format!("Host: {HOST}\r\n");
    let (begun, mut client) = (Instant::now(), rig.client());
    let (taken, answer) = publish_too_fast(&mut client, &stranger);
    assert!(
        (10..=10 + 5 * begun.elapsed().as_secs() + 5).contains(&taken),
        "10 at once, 5 a second: {taken}"
    );
    assert_eq!((answer.status, answer.field("Retry-After")), (429, Some("1")), "{answer:?}");
    assert!(answer.text().contains("push.anonymous_rate") && answer.text().contains("token"), "{answer:?}");
    assert!(rig.count_of("encke_http_refusals_total", "anonymous_rate") >= 1);
    // The limit applies neither to clients with a token nor to this machine, to which the server is open.
    for fields in
        [format!("{stranger}Authorization: Bearer 0123456789abcdef\r\n"), "Host: localhost\r\n".into()]
    {
        for _ in 0..50 {
            assert_eq!(publish_as(&mut client, &fields).status, 201, "{fields}");
        }
    }
    // The client may publish again later.
    rig.wait(|| publish_as(&mut client, &stranger).status == 201, "a message is taken again");
}

fn a_stranger_publishes_no_faster_by_lines_or_by_sockets(on: Stand) {
    let rig = public(on, &limited(2));
    let line = "{\"channel\":\"a\",\"data\":\"x\"}\n";
    let fields = format!("Host: {HOST}\r\nContent-Type: application/x-ndjson\r\n");
    let lines = |count: usize| {
        let body = line.repeat(count);
        let length = body.len();
        rig.client().ask(format!("POST /push/ HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}"))
    };
    let answer = lines(5);
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(answer.text().contains("more than 4 messages"), "{answer:?}");
    assert_eq!(rig.client().get("/push/a?info").status, 404, "nothing of it was published");
    let open = |protocol: &str| {
        let mut client = rig.client();
        client.send(handshake("/push/a", protocol).replace("Host: localhost", &format!("Host: {HOST}")));
        assert_eq!(client.head().status, 101);
        Socket(client)
    };
    let mut envelopes = open("Sec-WebSocket-Protocol: encke.v1\r\n");
    assert_eq!(json(&envelopes.text(), "op"), "ok");
    let mut tries = 0..100_000;
    let refused = tries.find_map(|number| {
        envelopes.say(
            Opcode::Text,
            format!("{{\"op\":\"publish\",\"channel\":\"b\",\"data\":\"x\",\"ref\":{number}}}").as_bytes(),
        );
        let answer = loop {
            let text = envelopes.text();
            if text.contains("\"op\"") {
                break text;
            }
        };
        (json(&answer, "op") == "error").then_some(answer)
    });
    let refused = refused.expect("at some time it is too fast");
    assert_eq!(json(&refused, "status"), "429");
    assert!(refused.contains("push.anonymous_rate"), "{refused}");
    // The connection is still usable for other commands.
    envelopes.say(Opcode::Text, b"{\"op\":\"ping\",\"ref\":7}");
    assert_eq!(json(&envelopes.text(), "ref"), "7");
    let mut payloads = open("");
    let code = loop {
        // Frames after the close frame are not read.
        let mut frame = Vec::new();
        encke_wire::websocket::put_masked(&mut frame, Opcode::Text, b"x", [1, 2, 3, 4]);
        let _ended = payloads.0.try_send(frame);
        let (opcode, payload) = payloads.hear();
        if opcode == 8 {
            break u16::from_be_bytes([payload[0], payload[1]]);
        }
    };
    assert_eq!(code, 4429);
}

fn each_client_of_a_trusted_proxy_has_a_rate_of_its_own(on: Stand) {
    let loopback = Network { address: [127, 0, 0, 0].into(), prefix: 8 };
    let rig = on.serve_by(
        |policy| policy.trusted_proxies = vec![loopback],
        |server| server.push(&limited(1), &anybody()).expect("settings that hold"),
    );
    let mut client = rig.client();
    let of = |address: &str| format!("Host: {HOST}\r\nX-Forwarded-For: {address}\r\n");
    let (_, answer) = publish_too_fast(&mut client, &of("192.0.2.1"));
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(publish_as(&mut client, &of("192.0.2.2")).status, 201);
    // A client with a whole network counts as one client.
    let mut number = 0;
    let refused = loop {
        number += 1;
        assert!(number < 65_536, "65,535 messages of one network were taken");
        let answer = publish_as(&mut client, &of(&format!("2001:db8::{number:x}")));
        if answer.status != 201 {
            break answer;
        }
    };
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(publish_as(&mut client, &of("2001:db8:0:1::1")).status, 201);
}

/// Subscribes until a request is rejected; admitted clients stay. Returns the rejection.
fn come_until_turned_away(rig: &Rig, request: &str, inside: &mut Vec<Client>) -> (Answer, Client) {
    for _ in 0..10_000 {
        let mut client = rig.client();
        client.send(request);
        let mut answer = client.head();
        let length = answer.field("Content-Length").map(|length| length.parse().expect("a length"));
        if let Some(length) = length {
            answer.body = client.read_exact(length);
        }
        if answer.status == 503 || length.is_some() {
            return (answer, client);
        }
        inside.push(client);
    }
    panic!("10,000 were let in")
}

/// Subscribes to a channel on a WebSocket and unsubscribes again. Returns the response to the first.
fn visit(socket: &mut Socket, channel: &str) -> String {
    let envelope = |op: &str| format!("{{\"op\":\"{op}\",\"channels\":[\"{channel}\"],\"ref\":1}}");
    socket.say(Opcode::Text, envelope("subscribe").as_bytes());
    let answer = socket.text();
    socket.say(Opcode::Text, envelope("unsubscribe").as_bytes());
    assert_eq!(json(&socket.text(), "op"), "ok");
    answer
}

fn a_socket_that_opens_many_channels_leaves_room_for_others(on: Stand) {
    let rig = with(on, PushSettings { channels: 40, ..PushSettings::default() });
    let mut socket = Socket::open(&rig, "/push/first", "encke.v1");
    assert_eq!(json(&socket.text(), "op"), "ok");
    for number in 0..200 {
        let answer = visit(&mut socket, &format!("visited/{number}"));
        assert_eq!(json(&answer, "op"), "ok", "{answer}");
    }
    for number in 0..4 {
        let answer = post(&rig, &format!("/push/new/{number}"), "", b"x");
        assert_eq!(answer.status, 201, "{answer:?}");
        let mut stream = Stream::open(&rig, &format!("/push/other/{number}"), "");
        post(&rig, &format!("/push/other/{number}"), "", b"y");
        assert_eq!(stream.data(), "y");
    }
}

fn an_address_opens_new_channels_at_a_rate(on: Stand) {
    let push = PushSettings { channel_rate: OrOff::On(2.try_into().expect("above 0")), ..limited(1_000) };
    let rig = public(on, &push);
    let mut client = rig.client();
    let head = handshake("/push/first", "Sec-WebSocket-Protocol: encke.v1\r\n");
    client.send(head.replace("Host: localhost", &format!("Host: {HOST}")));
    assert_eq!(client.head().status, 101);
    let mut socket = Socket(client);
    assert_eq!(json(&socket.text(), "op"), "ok");
    // Subscribing to an existing channel is free.
    for _ in 0..50 {
        assert_eq!(json(&visit(&mut socket, "second"), "op"), "ok");
    }
    let mut tries = 0..100_000;
    let refused = tries.find_map(|number| {
        let answer = visit(&mut socket, &format!("new/{number}"));
        (json(&answer, "op") == "error").then_some(answer)
    });
    let refused = refused.expect("at some time it is too fast");
    assert_eq!(json(&refused, "status"), "429");
    assert!(refused.contains("push.channel_rate"), "{refused}");
    assert!(rig.count_of("encke_http_refusals_total", "channel_rate") >= 1);
    assert_eq!(json(&visit(&mut socket, "second"), "op"), "ok");

    // The limit applies to other transports, too, each up to its rate.
    let ask = |number: usize, host: &str, accept: &str| {
        let mut client = rig.client();
        client.ask(format!(
            "GET /push/asked/{number}?wait=0 HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n"
        ))
    };
    let poll = (0..100_000).map(|number| ask(number, HOST, "*/*")).find(|answer| answer.status != 204);
    let poll = poll.expect("at some time it is too fast");
    assert_eq!(poll.status, 429, "{poll:?}");
    assert!(poll.field("Retry-After").is_some() && poll.text().contains("push.channel_rate"), "{poll:?}");
    // This machine has no such limit, and the budget refills with time.
    for number in 0..50 {
        assert_eq!(ask(1_000_000 + number, "localhost", "*/*").status, 204);
    }
    let mut number = 2_000_000;
    rig.wait(
        || {
            number += 1;
            ask(number, HOST, "*/*").status == 204
        },
        "a channel is opened again",
    );
}

/// Polls a channel under many names, with this host name.
fn poll_under_names(rig: &Rig, host: &str, names: std::ops::Range<usize>) {
    for number in names {
        let path = format!("/push/room?name=n{number}&wait=0");
        let answer = rig.client().ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(matches!(answer.status, 200 | 204), "{answer:?}");
    }
}

/// Returns the history of the channel.
fn kept_of_room(rig: &Rig) -> String {
    let mut all = String::new();
    let mut since = "all".to_owned();
    loop {
        let path = format!("/push/room?as=json&wait=0&since={since}");
        let batch = rig.client().ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(batch.status, 200, "{batch:?}");
        if batch.text().contains("\"messages\":[]") {
            return all;
        }
        since = json(batch.text(), "next").to_owned();
        all.push_str(batch.text());
    }
}

/// Returns the history of the channel once a member has joined.
fn wait_for_join(rig: &Rig, name: &str) -> String {
    let mut all = String::new();
    let joined = || {
        all = kept_of_room(rig);
        all.contains(name)
    };
    rig.wait(joined, "the last join");
    all
}

fn presence(messages: u32) -> ChannelSettings {
    ChannelSettings { pattern: "room".into(), presence: true, messages, ..ChannelSettings::default() }
}

fn a_reader_with_many_names_evicts_no_message(on: Stand) {
    let rig = with(on, PushSettings { channel: vec![presence(3)], ..PushSettings::default() });
    for text in ["first", "second", "third", "fourth"] {
        assert_eq!(post(&rig, "/push/room", "", text.as_bytes()).status, 201);
    }
    poll_under_names(&rig, "localhost", 0..220);
    let all = wait_for_join(&rig, "n219");
    for text in ["second", "third", "fourth", "n0", "n100"] {
        assert!(all.contains(text), "{text} is gone of {all}");
    }
    assert!(!all.contains("first"), "{all}");
}

fn members_of_one_address_join_at_a_rate(on: Stand) {
    let rate = OrOff::On(2.try_into().expect("above 0"));
    let push = PushSettings { join_rate: rate, channel: vec![presence(3)], ..PushSettings::default() };
    let rig = public(on, &push);
    let begun = Instant::now();
    poll_under_names(&rig, HOST, 0..100);
    // The server is open to this machine, which has no such limit.
    poll_under_names(&rig, "localhost", 1_000..1_010);
    // Workers announce members in any order.
    let mut all = String::new();
    for number in 1_000..1_010 {
        all = wait_for_join(&rig, &format!("n{number}"));
    }
    let joins = all.matches("\"encke.join\"").count() as u64;
    let most = 4 + 2 * (begun.elapsed().as_secs() + 1) + 10;
    assert!((14..=most).contains(&joins), "{joins} joins, of at most {most}: {all}");
}

fn too_many_who_come_at_once_are_told_when_to_come_back(on: Stand) {
    let push =
        PushSettings { admission: OrOff::On(3.try_into().expect("above 0")), ..PushSettings::default() };
    let rig = with(on, push);
    let mut inside = Vec::new();
    let get = |accept: &str| format!("GET /push/a HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");

    let mut moments = HashSet::new();
    for _ in 0..5 {
        let (answer, mut client) = come_until_turned_away(&rig, &get("text/event-stream"), &mut inside);
        assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("text/event-stream")));
        assert!(answer.closes(), "{answer:?}");
        let retry = answer.text().trim_end().strip_prefix("retry: ").unwrap_or_else(|| panic!("{answer:?}"));
        let retry_ms: u64 = retry.parse().expect("a number of ms");
        // 2 s plus or minus the jitter, and the position in the queue, which advances every third of a second.
        assert!((1_000..60_000).contains(&retry_ms), "{retry_ms}");
        moments.insert(retry_ms);
        assert_eq!(client.end(), End::Finished);
    }
    // Two of some thousand may be equal.
    assert!(moments.len() >= 3, "each has a moment of its own: {moments:?}");

    let (answer, _) = come_until_turned_away(&rig, &get("application/x-ndjson"), &mut inside);
    assert_eq!(answer.status, 503, "{answer:?}");
    let (answer, _) = loop {
        let turned_away = rig.client();
        let mut client = turned_away;
        let answer = client.ask("GET /push/a?wait=0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if answer.status != 204 {
            break (answer, client);
        }
    };
    assert!(answer.status == 503 && answer.closes(), "{answer:?}");
    let seconds: u64 = answer.field("Retry-After").expect("when").parse().expect("seconds");
    assert!((1..60).contains(&seconds), "{answer:?}");
    assert!(answer.text().contains("push.admission"), "{answer:?}");

    let (opcode, payload) = loop {
        let mut client = rig.client();
        client.send(handshake("/push/a", "Sec-WebSocket-Protocol: encke.v1\r\n"));
        assert_eq!(client.head().status, 101);
        let mut socket = Socket(client);
        let (opcode, payload) = socket.hear();
        if opcode == 8 {
            assert_eq!(socket.0.end(), End::Finished);
            break (opcode, payload);
        }
        inside.push(socket.0);
    };
    assert_eq!((opcode, u16::from_be_bytes([payload[0], payload[1]])), (8, 1013));
    let wait_ms: u64 = std::str::from_utf8(&payload[2..]).expect("text").parse().expect("a number of ms");
    assert!((1_000..60_000).contains(&wait_ms), "{wait_ms}");

    for transport in ["sse", "ndjson", "poll", "websocket"] {
        rig.wait(|| rig.count_of("encke_push_rejected_total", transport) >= 1, transport);
    }
    rig.wait(|| rig.closes(CloseReason::Rejected) >= 8, "all of them are closed");
    assert!(rig.count("encke_push_retrying") >= 1, "{}", rig.told());
    assert_eq!(rig.count_of("encke_push_rejected_total", "drain"), 0);
}

fn a_poll_that_goes_on_is_always_admitted(on: Stand) {
    let push =
        PushSettings { admission: OrOff::On(1.try_into().expect("above 0")), ..PushSettings::default() };
    let rig = with(on, push);
    let mut client = rig.client();
    for _ in 0..100 {
        assert_eq!(client.get("/push/a?wait=0").status, 204);
    }
}

fn the_last_connections_are_not_for_those_who_listen(on: Stand) {
    let rig = on.serve_by(
        |policy| policy.connections = 200,
        |server| server.push(&PushSettings::default(), &AuthSettings::default()).expect("settings that hold"),
    );
    let mut inside = Vec::new();
    let request = "GET /push/a HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    let (answer, client) = come_until_turned_away(&rig, request, &mut inside);
    assert_eq!(inside.len(), 198, "of 200");
    assert!(answer.text().starts_with("retry: "), "{answer:?}");
    drop(client);
    // A publisher is still admitted and served.
    assert_eq!(post(&rig, "/push/a", "", b"still here").status, 201);
    assert!(rig.count_of("encke_push_rejected_total", "connections") >= 1, "{}", rig.told());
    // A client that disconnects frees a slot.
    drop(inside.pop());
    rig.wait(|| rig.connections() == 197, "one has gone, and so has who published");
    drop(Stream::open(&rig, "/push/a", ""));
}

/// Messages during a drain do not prevent the close notice to any subscriber.
fn everybody_is_told_to_come_back_though_messages_go_on_at_the_drain(on: Stand) {
    // Four seconds for 40 streams, so that the messages fall between their ends.
    let slow = NonZeroU32::new(10).expect("above 0");
    let rig = on.serve_by(
        |policy| policy.drain_rate = slow,
        |server| server.push(&PushSettings::default(), &AuthSettings::default()).expect("settings that hold"),
    );
    let mut streams: Vec<Stream> = (0..40).map(|_| Stream::open(&rig, "/push/a", "")).collect();
    wait_for_subscribers(&rig, 40);
    // Open requests may finish, and their messages are still delivered.
    let mut publishers: Vec<Client> = (0..8).map(|_| rig.client()).collect();
    for publisher in &mut publishers {
        publisher.send("POST /push/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n");
    }
    rig.wait(|| rig.count("encke_exchanges_open") == 8, "all are under way");
    rig.running().drain(Duration::ZERO, Duration::from_secs(60));
    for (number, publisher) in publishers.iter_mut().enumerate() {
        let gone = 2 + number * 2;
        rig.wait(|| rig.count("encke_push_subscribers") <= 40 - gone as u64, "some have gone");
        publisher.send("more");
        assert_eq!(publisher.answer().status, 201);
    }
    let mut heard = 0;
    for stream in &mut streams {
        let (rest, end) = stream.client.rest();
        let rest = String::from_utf8(rest).expect("text");
        heard += rest.matches("data: more").count();
        assert!(rest.contains("retry: ") && rest.ends_with("0\r\n\r\n"), "{rest}");
        assert_eq!(end, End::Finished);
    }
    assert!(heard > 0, "nobody heard anything: the case shows nothing");
}

const SHOP: &str = "https://shop.example";

/// Starts a server that reads a cookie and names one origin; only `team` is readable without a token.
fn shop(on: Stand) -> Rig {
    let push = PushSettings { origins: vec![SHOP.into()], ..PushSettings::default() };
    let token = StaticToken {
        token: Secret::Text("0123456789abcdef".into()),
        name: Some("ann".into()),
        publish: vec!["team".into()],
        subscribe: vec!["team".into()],
        presence: vec!["team".into()],
        manage: vec!["team".into()],
    };
    let auth =
        AuthSettings { tokens: vec![token], cookie: Some("session".into()), ..AuthSettings::default() };
    on.serve(|server| server.push(&push, &auth).expect("settings that hold"))
}

fn ask_as(rig: &Rig, origin: &str, line: &str, fields: &str) -> Answer {
    let body = if line.starts_with("POST") { "Content-Length: 1\r\n\r\nx" } else { "\r\n" };
    rig.client().ask(format!(
        "{line} HTTP/1.1\r\nHost: {HOST}\r\nOrigin: {origin}\r\nCookie: session=0123456789abcdef\r\n{fields}{body}"
    ))
}

fn a_named_page_may_read_every_answer_with_its_cookies(on: Stand) {
    let rig = shop(on);
    for (line, fields, status) in [
        ("POST /push/team", "", 201),
        ("GET /push/team?since=all", "", 200),
        ("GET /push/team?since=all", "Accept: application/json\r\n", 200),
        ("GET /push/team?wait=0", "", 204),
        ("GET /push/team?wait=0", "Accept: application/json\r\n", 200),
        ("GET /push/team?info", "", 200),
        ("GET /push/other?info", "", 403),
        ("GET /push/team?since=x", "", 400),
        ("PATCH /push/team", "", 405),
        ("DELETE /push/team", "", 204),
        ("OPTIONS /push/team", "Access-Control-Request-Method: POST\r\n", 204),
    ] {
        let answer = ask_as(&rig, SHOP, line, fields);
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        assert_eq!(answer.field("Access-Control-Allow-Origin"), Some(SHOP), "{line}: {answer:?}");
        assert_eq!(answer.field("Access-Control-Allow-Credentials"), Some("true"), "{line}: {answer:?}");
        assert_eq!(answer.field("Vary"), Some("Origin"), "{line}: {answer:?}");
    }
    let mut client = rig.client();
    client.send(format!(
        "GET /push/team HTTP/1.1\r\nHost: {HOST}\r\nOrigin: {SHOP}\r\nAccept: text/event-stream\r\n\
         Cookie: session=0123456789abcdef\r\n\r\n"
    ));
    let head = client.head();
    assert_eq!(head.status, 200);
    assert_eq!(head.field("Access-Control-Allow-Origin"), Some(SHOP), "{head:?}");
    assert_eq!(head.field("Access-Control-Allow-Credentials"), Some("true"), "{head:?}");
    // The shared response to waiting polls has the access fields for each client's own origin.
    let mut polls: Vec<Client> = (0..4).map(|_| rig.client()).collect();
    for (number, poll) in polls.iter_mut().enumerate() {
        let origin = if number % 2 == 0 { format!("Origin: {SHOP}\r\n") } else { String::new() };
        poll.send(format!(
            "GET /push/team HTTP/1.1\r\nHost: {HOST}\r\n{origin}Cookie: session=0123456789abcdef\r\n\r\n"
        ));
    }
    wait_for_subscribers(&rig, 5);
    assert_eq!(ask_as(&rig, SHOP, "POST /push/team", "").status, 201);
    for (number, poll) in polls.iter_mut().enumerate() {
        let answer = poll.answer();
        assert_eq!((answer.status, answer.text()), (200, "x"), "{answer:?}");
        let origin = answer.field("Access-Control-Allow-Origin");
        assert_eq!(origin, (number % 2 == 0).then_some(SHOP), "{answer:?}");
    }
}

fn a_page_that_is_not_named_may_read_none(on: Stand) {
    let rig = shop(on);
    for origin in ["https://evil.example", "http://shop.example", "https://shop.example:444", "null"] {
        for (line, status) in [
            ("POST /push/team", 403),
            ("GET /push/team?since=all&wait=0", 403),
            ("GET /push/team?info", 403),
            ("OPTIONS /push/team", 204),
        ] {
            let answer = ask_as(&rig, origin, line, "");
            assert_eq!(answer.status, status, "{origin} {line}: {answer:?}");
            let allowed: Vec<_> =
                answer.fields.iter().filter(|(name, _)| name.starts_with("Access-Control")).collect();
            assert!(allowed.is_empty(), "{origin} {line}: {allowed:?}");
        }
        let request = handshake("/push/team", &format!("Origin: {origin}\r\n"))
            .replace("Host: localhost", &format!("Host: {HOST}\r\nCookie: session=0123456789abcdef"));
        assert_eq!(rig.client().ask(request).status, 403, "{origin}");
    }
    // Pages of the server's own origin need no permission, and get no access fields.
    let answer = ask_as(&rig, &format!("https://{HOST}"), "GET /push/team?wait=0", "");
    assert_eq!((answer.status, answer.field("Access-Control-Allow-Origin")), (204, None), "{answer:?}");
}

fn a_star_is_no_name(on: Stand) {
    let push = PushSettings { origins: vec!["*".into()], ..PushSettings::default() };
    let rig = public(on, &push);
    for line in ["GET /push/a?wait=0", "POST /push/a", "OPTIONS /push/a"] {
        let answer = ask_as(&rig, "https://anything.example", line, "");
        assert_eq!(answer.field("Access-Control-Allow-Origin"), Some("*"), "{line}: {answer:?}");
        assert_eq!(answer.field("Access-Control-Allow-Credentials"), None, "{line}: {answer:?}");
    }
    // With cookies, `*` would give every page on the Internet access.
    let auth = AuthSettings { cookie: Some("session".into()), ..AuthSettings::default() };
    let error = rig.running().reload_push(&push, &auth).expect_err("it is refused");
    assert!(error.to_string().contains("name the origins"), "{error}");
}

/// An authorization endpoint that responds only on request.
struct Application {
    address: std::net::SocketAddr,
    asked: Arc<AtomicUsize>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Application {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (count, door) = (Arc::clone(&asked), Arc::clone(&gate));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                count.fetch_add(1, Ordering::SeqCst);
                let door = Arc::clone(&door);
                std::thread::spawn(move || {
                    let mut request = Vec::new();
                    let mut piece = [0; 1024];
                    while !request.ends_with(b"\r\n\r\n") {
                        let count = stream.read(&mut piece).expect("a request");
                        request.extend_from_slice(&piece[..count]);
                    }
                    let (open, opened) = &*door;
                    let open = open.lock().expect("no panic");
                    drop(opened.wait_while(open, |open| !*open).expect("no panic"));
                    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("somebody waits for it");
                });
            }
        });
        Self { address, asked, gate }
    }

    fn open(&self) {
        let (open, opened) = &*self.gate;
        *open.lock().expect("no panic") = true;
        opened.notify_all();
    }
}

fn what_is_asked_at_the_same_time_is_asked_once(on: Stand) {
    let application = Application::start();
    let url = format!("http://{}/may", application.address);
    let auth = AuthSettings { ask: Some(url.parse().expect("a URL")), ..AuthSettings::default() };
    let rig = on.serve(|server| server.push(&PushSettings::default(), &auth).expect("settings that hold"));
    let mut clients: Vec<Client> = (0..24).map(|_| rig.client()).collect();
    for client in &mut clients {
        client.send(format!("GET /push/a?wait=0 HTTP/1.1\r\nHost: {HOST}\r\nCookie: one=1\r\n\r\n"));
    }
    rig.wait(|| rig.count("encke_exchanges_open") == 24, "all wait for the application");
    rig.wait(|| application.asked.load(Ordering::SeqCst) >= 1, "it is asked");
    application.open();
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    let asked = application.asked.load(Ordering::SeqCst);
    assert!((1..=on.workers).contains(&asked), "{asked} times by {} workers", on.workers);
    // A request with other credentials or another right, or a later one, is a new authorization request.
    for request in [
        "a?wait=0 HTTP/1.1\r\nCookie: one=2",
        "b?wait=0 HTTP/1.1\r\nCookie: one=1",
        "a?wait=0 HTTP/1.1\r\nCookie: one=1",
    ] {
        let before = application.asked.load(Ordering::SeqCst);
        let answer = rig.client().ask(format!("GET /push/{request}\r\nHost: {HOST}\r\n\r\n"));
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(application.asked.load(Ordering::SeqCst), before + 1, "{request}");
    }
}

fn a_right_that_is_taken_away_is_gone_for_the_next_request(on: Stand) {
    let rig = public(on, &PushSettings::default());
    let fields = format!("Host: {HOST}\r\n");
    assert_eq!(publish_as(&mut rig.client(), &fields).status, 201);
    let nobody = AuthSettings::default();
    rig.running().reload_push(&PushSettings::default(), &nobody).expect("settings that hold");
    rig.wait(|| publish_as(&mut rig.client(), &fields).status == 401, "the new settings hold");
}

fn what_those_who_listen_take_is_shown(on: Stand) {
    let mut push = PushSettings::default();
    push.channel.push(ChannelSettings { policy: OverrunPolicy::Skip, ..ChannelSettings::default() });
    let rig = with(on, push);
    let listen = |channel: &str| {
        let mut client = if channel == "slow" { rig.narrow_client() } else { rig.client() };
        client.send(format!(
            "GET /push/{channel} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        ));
        client
    };
    // Each check publishes, so that there is a turn, and a sample each second.
    let look = |channel: &str, bytes: usize, happened: &dyn Fn() -> bool, what: &str| {
        let (path, body) = (format!("/push/{channel}"), "x".repeat(bytes));
        rig.wait(|| post(&rig, &path, "", body.as_bytes()).status == 201 && happened(), what);
    };

    // These clients read nothing.
    let slow: Vec<Client> = (0..8).map(|_| listen("slow")).collect();
    wait_for_subscribers(&rig, 8);
    let of = |family: &str, label: &str| rig.count_of(family, label);
    look("slow", 4_000, &|| of("encke_push_unsent_bytes", "most") > 0, "something lies unsent");
    look("slow", 4_000, &|| of("encke_push_subscriber_bytes", "kernel") > 0, "the kernel holds it");
    drop(slow);

    // More subscribers than a turn can serve.
    let many: Vec<Client> = (0..400).map(|_| listen("many")).collect();
    wait_for_subscribers(&rig, 400);
    look("many", 10, &|| queue_age_s(&rig) > 0.0, "messages wait for their subscribers");
    assert!(queue_age_s(&rig) < crate::rig::PATIENCE.as_secs_f64());
    look("many", 10, &|| of("encke_push_subscriber_bytes", "user") > 0, "it knows what it keeps");
    let each = of("encke_push_subscriber_bytes", "user");
    assert!((140..400).contains(&each), "{each} bytes a subscriber");
    drop(many);
}

fn queue_age_s(rig: &Rig) -> f64 {
    let families = rig.running().families();
    let family = families.iter().find(|family| family.name == "encke_push_queue_age_seconds");
    match &family.expect("it is told").samples[0].value {
        encke_stats::Value::Number(age) => *age,
        other => panic!("{other:?}"),
    }
}
