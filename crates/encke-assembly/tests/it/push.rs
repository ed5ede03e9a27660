//! Channels from outside: every subscriber receives the published messages, on every transport.

use std::io::Write as _;

use encke_assembly::settings::{AuthSettings, ChannelSettings, PushSettings};
use encke_stats::Value;
use encke_wire::websocket::{self, Opcode};

use crate::push_clients::*;
use crate::rig::{Channels as _, Reloads as _};
use crate::rig::{Client, End, Stand};

on_every_stand! {
    a_message_reaches_every_kind_of_subscriber,
    bodies_on_their_way_take_no_more_memory_than_they_may,
    a_poll_whose_client_ends_its_side_is_answered_at_once,
    whoever_listens_and_goes_is_gone,
    many_subscribers_get_every_message_once,
    subscribers_are_sent_away_at_a_drain,
    an_old_client_gets_a_stream_that_ends_with_the_connection,
    a_socket_that_is_written_to_without_a_pause_is_answered_to_the_end,
}

on_two_stands! {
    a_stream_goes_on_where_it_was_cut,
    what_a_publisher_was_told_of_is_there_for_everybody,
    what_there_is_is_told_behind_another_answer_too,
    what_is_no_longer_kept_is_told_as_a_gap,
    an_id_of_another_life_is_a_gap,
    an_id_ahead_of_all_messages_is_a_gap,
    tags_of_a_poll_are_compared_weakly,
    escapes_in_channel_names_are_decoded,
    several_channels_come_on_one_stream_in_one_order,
    what_is_wrong_with_a_publish_is_said,
    a_repeated_publish_is_published_once,
    envelopes_are_published_in_order,
    a_poll_waits_and_is_answered_with_nothing,
    a_poll_stands_between_other_requests,
    a_channel_can_be_asked_about_and_forgotten,
    a_websocket_publishes_and_subscribes,
    a_websocket_that_breaks_the_rules_is_told_and_closed,
    handshakes_that_are_none_are_refused,
    bytes_that_are_no_text_arrive,
    the_way_in_stays_shut_to_strangers,
    who_is_there_is_told,
    a_right_that_is_taken_away_ends_the_stream,
    the_client_library_is_served_and_kept,
    a_socket_of_payloads_that_missed_something_is_closed,
    a_socket_whose_handler_panics_is_told_and_the_others_go_on,
    fan_outs_are_timed_by_the_class_of_their_channel,
}

fn a_message_reaches_every_kind_of_subscriber(on: Stand) {
    let rig = stand(on);
    let mut sse = Stream::open(&rig, "/push/news", "");
    let mut ndjson = rig.client();
    ndjson.send("GET /push/news HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n");
    assert_eq!(ndjson.head().field("Content-Type"), Some("application/x-ndjson"));
    let mut raw = rig.client();
    raw.send("GET /push/news HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut batch = rig.client();
    batch.send("GET /push/news HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    let mut payloads = Socket::open(&rig, "/push/news", "");
    let mut envelopes = Socket::open(&rig, "/push/news", "chat, encke.v1");
    assert_eq!(json(&envelopes.text(), "op"), "ok");
    wait_for_subscribers(&rig, 6);

    let told = publish(&rig, "news", "hello");
    assert_eq!(told.status, 201, "{told:?}");
    let id = json(told.text(), "id").to_owned();
    rig.wait(
        || {
            let info = rig.client().get("/push/news?info");
            json(info.text(), "messages") == "1"
        },
        "the message is kept",
    );

    let event = sse.next();
    assert_eq!((event.id.as_str(), event.event.as_str(), event.data.as_str()), (&*id, "message", "hello"));
    let answer = raw.answer();
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!(answer.field("Encke-Id"), Some(&*id));
    assert_eq!(answer.field("ETag"), Some(&*format!("\"{id}\"")));
    assert_eq!(answer.field("Encke-More"), Some("0"));
    assert_eq!(answer.field("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(answer.field("Content-Security-Policy"), Some("sandbox"));
    let answer = batch.answer();
    assert_eq!((json(answer.text(), "data"), json(answer.text(), "next")), ("hello", &*id));
    assert_eq!(payloads.hear(), (1, b"hello".to_vec()));
    let text = envelopes.text();
    assert_eq!((json(&text, "id"), json(&text, "channel"), json(&text, "data")), (&*id, "news", "hello"));
    let mut line = Vec::new();
    while !line.ends_with(b"}\n\r\n") {
        line.extend_from_slice(&ndjson.read_some(1 << 16));
    }
    let text = String::from_utf8(line).expect("JSON");
    assert_eq!((json(&text, "id"), json(&text, "data")), (&*id, "hello"));
}

fn a_stream_goes_on_where_it_was_cut(on: Stand) {
    let rig = stand(on);
    let mut first = Stream::open(&rig, "/push/a", "");
    let start = first.id.clone();
    publish(&rig, "a", "one");
    assert_eq!(first.data(), "one");
    let seen = first.id.clone();
    drop(first);
    for text in ["two", "three"] {
        publish(&rig, "a", text);
    }
    let mut again = Stream::open(&rig, "/push/a", &format!("Last-Event-ID: {seen}\r\n"));
    assert_eq!([again.data(), again.data()], ["two", "three"]);
    // The position at the start is valid, too, and the field has priority over the query.
    let mut all = Stream::open(&rig, "/push/a?since=now", &format!("Last-Event-ID: {start}\r\n"));
    assert_eq!([all.data(), all.data(), all.data()], ["one", "two", "three"]);
    let mut last = Stream::open(&rig, "/push/a?since=last:1", "");
    assert_eq!(last.data(), "three");
    // A poll resumes by the entity tag of the previous response.
    let mut poll = rig.client();
    let ask =
        |tag: &str| format!("GET /push/a?wait=5 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n");
    let answer = poll.ask(ask(&format!("\"{start}\"")));
    assert_eq!((answer.text(), answer.field("Encke-More")), ("one", Some("2")));
    let answer = poll.ask(ask(answer.field("ETag").expect("it has one")));
    assert_eq!((answer.text(), answer.field("Encke-More")), ("two", Some("1")));
}

fn what_a_publisher_was_told_of_is_there_for_everybody(on: Stand) {
    let rig = stand(on);
    // On whichever worker the kernel has put them.
    let listeners: Vec<Stream> = (0..8).map(|_| Stream::open(&rig, "/push/a", "")).collect();
    let mut askers: Vec<Client> = (0..8).map(|_| rig.client()).collect();
    for number in 0..100 {
        assert_eq!(publish(&rig, "a", &number.to_string()).status, 201);
        for asker in &mut askers {
            let answer = asker.get("/push/a?since=last:1&wait=0");
            assert_eq!((answer.status, answer.text()), (200, &*number.to_string()));
        }
    }
    drop(listeners);
}

fn what_there_is_is_told_behind_another_answer_too(stand: Stand) {
    let rig = self::stand(stand);
    // Each channel is new to all workers but one, and the request for it arrives while the previous response is being sent.
    for number in 0..20 {
        assert_eq!(publish(&rig, &format!("a{number}"), "hi").status, 201);
        let mut client = rig.client();
        client.send(format!(
            "GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n\
             GET /push/a{number}?wait=0&since=all HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ));
        assert_eq!(client.answer().text(), "a file\n");
        assert_eq!(client.answer().text(), "hi");
    }
}

fn what_is_no_longer_kept_is_told_as_a_gap(on: Stand) {
    let rig = stand(on);
    let start = Stream::open(&rig, "/push/a", "").id;
    for number in 0..150 {
        assert_eq!(publish(&rig, "a", &number.to_string()).status, 201);
    }
    let mut stream = Stream::open(&rig, "/push/a", &format!("Last-Event-ID: {start}\r\n"));
    let gap = stream.next();
    assert_eq!(gap.event, "encke.gap");
    assert_eq!((json(&gap.data, "from"), json(&gap.data, "reason")), (&*start, "away"));
    for number in 50..150 {
        assert_eq!(stream.data(), number.to_string());
    }
    let answer = rig.client().ask(format!("GET /push/a?since={start} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(answer.text(), "50");
    assert!(answer.field("Encke-Gap").is_some_and(|gap| gap.contains("reason=away")), "{answer:?}");
}

fn an_id_of_another_life_is_a_gap(on: Stand) {
    let rig = stand(on);
    publish(&rig, "a", "kept");
    for id in ["0000000000001-7", "what is this", "\u{1f600}"] {
        let mut stream = Stream::open(&rig, "/push/a", &format!("Last-Event-ID: {id}\r\n"));
        let gap = stream.next();
        assert_eq!((gap.event.as_str(), json(&gap.data, "reason")), ("encke.gap", "epoch"), "{id}");
        assert_eq!(stream.data(), "kept", "{id}");
    }
}

fn an_id_ahead_of_all_messages_is_a_gap(on: Stand) {
    let rig = stand(on);
    let told = publish(&rig, "a", "kept");
    let (epoch, offset) = json(told.text(), "id").split_once('-').expect("a position");
    let ahead = offset.parse::<u64>().expect("an offset") + 1;
    // The offset of the next message, a distant one, and the maximum.
    for offset in [ahead, ahead + 1_000, u64::MAX] {
        // On an open channel, and together with a channel that the worker has to open.
        for (path, body) in [("/push/a", "kept"), ("/push/a", "kept"), ("/push/a,b", "kept")] {
            let query = format!("?since={epoch}-{offset}&wait=0");
            let answer = rig.client().get(&format!("{path}{query}"));
            assert_eq!((answer.status, answer.text()), (200, body), "{path} {offset}: {answer:?}");
            let gap = answer.field("Encke-Gap").unwrap_or_default();
            assert!(gap.starts_with(&format!("from={epoch}-{offset}, to={epoch}-")), "{gap}");
            assert!(gap.ends_with("reason=epoch"), "{gap}");
        }
        let new = rig.client().get(&format!("/push/new?since={epoch}-{offset}&wait=0"));
        assert!(new.field("Encke-Gap").is_some_and(|gap| gap.ends_with("reason=epoch")), "{new:?}");
        let mut stream = Stream::open(&rig, "/push/a", &format!("Last-Event-ID: {epoch}-{offset}\r\n"));
        let gap = stream.next();
        assert_eq!((gap.event.as_str(), json(&gap.data, "reason")), ("encke.gap", "epoch"), "{offset}");
        assert_eq!(stream.data(), "kept", "{offset}");
    }
}

fn tags_of_a_poll_are_compared_weakly(on: Stand) {
    let rig = stand(on);
    let ids: Vec<String> =
        ["one", "two", "three"].map(|text| json(publish(&rig, "a", text).text(), "id").to_owned()).into();
    let [one, two, _] = &ids[..] else { panic!("three ids") };
    let poll = |fields: &str| {
        let head = format!("GET /push/a?since=all&wait=0 HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let answer = rig.client().ask(head);
        let gap = answer.field("Encke-Gap").map(|gap| gap.rsplit('=').next().unwrap_or_default().to_owned());
        (answer.text().to_owned(), gap.unwrap_or_default())
    };
    for (fields, text, gap) in [
        (format!("If-None-Match: \"{one}\"\r\n"), "two", ""),
        (format!("If-None-Match: W/\"{one}\"\r\n"), "two", ""),
        (format!("If-None-Match: W/\"{two}\"\r\n"), "three", ""),
        // The earliest of several tags counts: messages may be repeated, but not lost.
        (format!("If-None-Match: W/\"{two}\" , \"{one}\"\r\n"), "two", ""),
        (format!("If-None-Match: \"{two}\"\r\nIf-None-Match: W/\"{one}\"\r\n"), "two", ""),
        (format!("If-None-Match: \"{one}-gzip\"\r\n"), "two", ""),
        (format!("If-None-Match: W/\"{one};gzip\"\r\n"), "two", ""),
        // `*` matches any message, so it has no position.
        ("If-None-Match: *\r\n".into(), "one", ""),
        // Messages may be missing.
        ("If-None-Match: \"another\"\r\n".into(), "one", "epoch"),
        (format!("If-None-Match: W/\"another\", \"{two}\"\r\n"), "one", "epoch"),
        (format!("If-None-Match: {two}\r\n"), "one", "epoch"),
        (format!("If-None-Match: w/\"{two}\"\r\n"), "one", "epoch"),
        (format!("Last-Event-ID: {two}\r\nIf-None-Match: W/\"{one}\"\r\n"), "three", ""),
    ] {
        assert_eq!(poll(&fields), (text.to_owned(), gap.to_owned()), "{fields}");
    }
}

fn escapes_in_channel_names_are_decoded(on: Stand) {
    let rig = stand(on);
    let mut stream = Stream::open(&rig, "/push/x~-A.b/c", "");
    for path in ["x~-A.b/c", "x%7E%2D%41%2Eb/c", "%78%7e-A.b/%63", "x~-A.b/c,%78~-A.b/c"] {
        let told = publish(&rig, path, path);
        assert_eq!(told.status, 201, "{path}: {told:?}");
        assert_eq!(stream.data(), path);
    }
    assert_eq!(
        rig.client().get("/push/%78~%2DA.b/c?since=last:1&wait=0").field("Encke-Channel"),
        Some("x~-A.b/c")
    );
    assert_eq!(json(rig.client().get("/push/x~-%41.b/c?info").text(), "messages"), "4");
    for (path, said) in [
        ("a%2Fb", "%2F"),
        ("a%2fb", "%2F"),
        ("a%20b", "letters, digits"),
        ("a%2Cb", "letters, digits"),
        ("a%00", "letters, digits"),
        ("a%C3%A9", "letters, digits"),
        ("%2Ea", "begins with a dot"),
        ("a%25", "letters, digits"),
        ("a%2541", "letters, digits"),
        ("a%4", "%"),
        ("a%zz", "%"),
        ("a%2D//b", "empty segment"),
        ("a/%2E%2E/b", "begins with a dot"),
    ] {
        for answer in [publish(&rig, path, "x"), rig.client().get(&format!("/push/{path}?wait=0"))] {
            assert_eq!(answer.status, 400, "{path}: {answer:?}");
            assert!(answer.text().contains(said), "{path}: {answer:?}");
        }
    }
    let forget = "DELETE /push/%78~-A.b/c HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(rig.client().ask(forget).status, 204);
    assert_eq!(json(rig.client().get("/push/x~-A.b/c?info").text(), "messages"), "0");
}

fn several_channels_come_on_one_stream_in_one_order(on: Stand) {
    let rig = stand(on);
    let mut stream = Stream::open(&rig, "/push/a,b/c,a", "");
    for (channel, text) in [("a", "1"), ("b/c", "2"), ("d", "not this"), ("a", "3"), ("b/c", "4")] {
        publish(&rig, channel, text);
    }
    for (channel, text) in [("a", "1"), ("b/c", "2"), ("a", "3"), ("b/c", "4")] {
        let event = stream.next();
        assert_eq!((json(&event.data, "channel"), json(&event.data, "data")), (channel, text));
        assert_eq!(json(&event.data, "id"), event.id);
    }
    let told = publish(&rig, "a,b/c", "both");
    assert!(told.text().contains("\"ids\":["), "{told:?}");
    assert_eq!([json(&stream.data(), "data"), json(&stream.data(), "data")], ["both", "both"]);
}

fn what_is_wrong_with_a_publish_is_said(on: Stand) {
    let push = PushSettings { message_bytes: "1KiB".parse().expect("a size"), ..PushSettings::default() };
    let rig = with(on, push);
    for (path, fields, status) in [
        ("/push/", "", 400),
        ("/push/a//b", "", 400),
        ("/push/a/", "", 400),
        ("/push/.a", "", 400),
        ("/push/a%2Fb%20c", "", 400),
        ("/push/a?since=yesterday", "", 400),
        ("/push/a", "Encke-Event: encke.gap\r\n", 400),
        ("/push/a", "Content-Type: nonsense\r\n", 400),
    ] {
        let answer = post(&rig, path, fields, b"x");
        assert_eq!(answer.status, status, "{path} {fields}: {answer:?}");
        assert!(answer.text().len() > 12, "{path}: {answer:?}");
    }
    assert_eq!(publish(&rig, &"x".repeat(201), "x").status, 400);
    assert_eq!(publish(&rig, "1/2/3/4/5/6/7/8/9", "x").status, 400);
    assert_eq!(publish(&rig, "a", &"x".repeat(1024)).status, 201);
    assert_eq!(publish(&rig, "a", &"x".repeat(1025)).status, 413);
    let answer = rig.client().ask("PATCH /push/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answer.status, 405);
    assert!(answer.field("Allow").is_some_and(|allow| allow.contains("POST")), "{answer:?}");
}

fn bodies_on_their_way_take_no_more_memory_than_they_may(on: Stand) {
    let rig =
        with(on, PushSettings { incoming: "64KiB".parse().expect("a size"), ..PushSettings::default() });
    let (first, last) = ([b'x'; 30 << 10], [b'y'; 1 << 10]);
    let head = format!("POST /push/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 31 << 10);
    // At least three of nine clients are on the same worker, where two of three fit.
    let mut clients: Vec<Client> = (0..9).map(|_| rig.client()).collect();
    for client in &mut clients {
        client.send(&head);
        client.send(first);
    }
    rig.wait(|| rig.count_of("encke_http_refusals_total", "push_incoming") > 0, "somebody is refused");
    let mut statuses = Vec::new();
    for client in &mut clients {
        // The server may stop reading from a rejected client.
        drop(client.try_send(last));
        let answer = client.answer();
        statuses.push(answer.status);
        if answer.status == 503 {
            assert_eq!((answer.field("Retry-After"), answer.field("Connection")), (Some("1"), Some("close")));
        }
    }
    assert!(statuses.iter().all(|status| [201, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&201) && statuses.contains(&503), "{statuses:?}");
    assert_eq!(publish(&rig, "a", &"z".repeat(100_000)).status, 201, "what was taken is given back");
}

fn a_repeated_publish_is_published_once(on: Stand) {
    let rig = stand(on);
    let once = |body: &str| post(&rig, "/push/a", "Idempotency-Key: k1\r\n", body.as_bytes());
    let first = once("text");
    let again = once("text");
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(json(first.text(), "id"), json(again.text(), "id"));
    assert_eq!(once("another").status, 422);
    let info = rig.client().get("/push/a?info");
    assert_eq!(json(info.text(), "messages"), "1");
}

fn envelopes_are_published_in_order(on: Stand) {
    let rig = stand(on);
    let mut stream = Stream::open(&rig, "/push/a,b", "");
    let lines =
        "{\"channel\":\"a\",\"data\":\"one\",\"event\":\"x\"}\n\n{\"channel\":\"b\",\"data64\":\"dHdv\"}\n";
    let answer = post(&rig, "/push/", "Content-Type: application/x-ndjson\r\n", lines.as_bytes());
    assert_eq!((answer.status, json(answer.text(), "published")), (201, "2"));
    let event = stream.next();
    assert_eq!((event.event.as_str(), json(&event.data, "data")), ("x", "one"));
    assert_eq!(json(&stream.data(), "data"), "two");
    let wrong = "{\"channel\":\"a\",\"data\":\"kept back\"}\n{\"chanel\":\"a\",\"data\":\"x\"}\n";
    let answer = post(&rig, "/push/", "Content-Type: application/x-ndjson\r\n", wrong.as_bytes());
    assert_eq!(answer.status, 400);
    assert!(answer.text().starts_with("line 2: unknown member \"chanel\""), "{answer:?}");
    publish(&rig, "a", "after");
    assert_eq!(json(&stream.data(), "data"), "after", "nothing of a bad request was published");
}

fn a_poll_waits_and_is_answered_with_nothing(on: Stand) {
    let rig = stand(on);
    let mut client = rig.client();
    let now = client.get("/push/a?wait=0");
    assert_eq!((now.status, now.body.len()), (204, 0));
    let id = now.field("Encke-Id").expect("from where to go on").to_owned();
    let waited = client.get("/push/a?wait=1");
    assert_eq!(waited.status, 204);
    publish(&rig, "a", "between two polls");
    assert_eq!(client.get(&format!("/push/a?since={id}")).text(), "between two polls");
    let batch = client
        .ask("GET /push/a?wait=0&since=all HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    assert_eq!(json(batch.text(), "data"), "between two polls");
    client.send("HEAD /push/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 200, "HEAD never waits");
    assert_eq!(client.get("/push/a?wait=soon").status, 400);
}

fn a_poll_stands_between_other_requests(on: Stand) {
    let rig = stand(on);
    let mut client = rig.client();
    client.send(
        "GET /f HTTP/1.1\r\nHost: localhost\r\n\r\nGET /push/a HTTP/1.1\r\nHost: localhost\r\n\r\n\
         GET /g HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "a file\n");
    wait_for_subscribers(&rig, 1);
    publish(&rig, "a", "now");
    assert_eq!(client.answer().text(), "now");
    assert_eq!(client.answer().text(), "a file\n");
}

fn a_poll_whose_client_ends_its_side_is_answered_at_once(on: Stand) {
    let rig = stand(on);
    let poll = |query: &str| format!("GET /push/a{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // The end of stream arrives while the first poll waits: directly, after polls already read, and after unread polls.
    let pipelines: [&[usize]; 5] = [&[1], &[3], &[1, 1], &[1, 1, 1], &[1, 2, 3]];
    for pieces in pipelines {
        let mut client = rig.client();
        for (number, polls) in pieces.iter().enumerate() {
            let expected = rig.received() + poll("").len() as u64;
            client.send(poll("").repeat(*polls));
            if number < 2 {
                rig.wait(|| rig.received() >= expected, "the polls are read");
            }
            wait_for_subscribers(&rig, 1);
        }
        client.finish();
        for number in 0..pieces.iter().sum() {
            let answer = client.answer();
            assert_eq!(answer.status, 204, "{pieces:?}: {number}: {answer:?}");
            assert!(answer.field("Encke-Id").is_some_and(|id| id.contains('-')), "{pieces:?}: {answer:?}");
        }
        assert_eq!(client.end(), End::Finished, "{pieces:?}");
    }
    publish(&rig, "a", "kept");
    for query in ["?since=all", "?since=all&wait=0"] {
        let mut client = rig.client();
        client.send(format!("GET /f HTTP/1.1\r\nHost: localhost\r\n\r\n{}", poll(query).repeat(3)));
        client.finish();
        assert_eq!(client.answer().text(), "a file\n");
        for number in 0..3 {
            assert_eq!(client.answer().text(), "kept", "{query}: {number}");
        }
        assert_eq!(client.end(), End::Finished, "{query}");
    }
    let mut last = rig.client();
    last.send("GET /push/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    wait_for_subscribers(&rig, 1);
    last.finish();
    assert_eq!(last.answer().status, 204);
    assert_eq!(last.end(), End::Finished);
}

fn whoever_listens_and_goes_is_gone(on: Stand) {
    let rig = stand(on);
    let mut polls: Vec<Client> = (0..4).map(|_| rig.client()).collect();
    for poll in &mut polls {
        // Later requests stay unread while the poll waits; the end of stream is detected nevertheless.
        poll.send("GET /push/a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /push/b");
    }
    let stream = Stream::open(&rig, "/push/a", "");
    wait_for_subscribers(&rig, 5);
    for poll in &mut polls {
        poll.finish();
    }
    wait_for_subscribers(&rig, 1);
    stream.client.reset();
    wait_for_subscribers(&rig, 0);
    drop(polls);
    rig.wait(|| rig.connections() == 0, "all connections are closed");
    assert_eq!(json(publish(&rig, "a", "x").text(), "id").split('-').count(), 2);
}

fn a_channel_can_be_asked_about_and_forgotten(on: Stand) {
    let rig = stand(on);
    assert_eq!(rig.client().get("/push/a?info").status, 404);
    let stream = Stream::open(&rig, "/push/a", "");
    let first = publish(&rig, "a", "one");
    publish(&rig, "a", "two");
    let info = rig.client().get("/push/a?info");
    assert_eq!((json(info.text(), "messages"), json(info.text(), "first")), ("2", json(first.text(), "id")));
    let answer = rig.client().ask("DELETE /push/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(answer.status, 204);
    let info = rig.client().get("/push/a?info");
    assert_eq!((json(info.text(), "messages"), json(info.text(), "first")), ("0", "null"));
    // A subscriber with an earlier position gets a gap.
    let mut back = Stream::open(&rig, "/push/a", &format!("Last-Event-ID: {}\r\n", json(first.text(), "id")));
    assert_eq!(back.next().event, "encke.gap");
    drop(stream);
}

fn a_websocket_publishes_and_subscribes(on: Stand) {
    let rig = stand(on);
    let mut socket = Socket::open(&rig, "/push/a", "encke.v1");
    let start = socket.text();
    assert_eq!(json(&start, "op"), "ok");
    let mut other = Stream::open(&rig, "/push/a", "");
    socket.say(Opcode::Text, br#"{"op":"publish","channel":"a","data":"by socket","ref":7}"#);
    let (first, second) = (socket.text(), socket.text());
    let (ok, own) = if first.contains("\"op\"") { (first, second) } else { (second, first) };
    assert_eq!((json(&ok, "op"), json(&ok, "ref")), ("ok", "7"));
    assert_eq!((json(&own, "data"), json(&own, "id")), ("by socket", json(&ok, "id")));
    assert_eq!(other.data(), "by socket");

    socket.say(Opcode::Text, br#"{"op":"subscribe","channels":["b","c/d"],"ref":8}"#);
    assert_eq!(json(&socket.text(), "ref"), "8");
    publish(&rig, "c/d", "more");
    assert_eq!(json(&socket.text(), "channel"), "c/d");
    socket.say(Opcode::Text, br#"{"op":"unsubscribe","channels":["a"],"ref":9}"#);
    assert_eq!(json(&socket.text(), "ref"), "9");
    publish(&rig, "a", "unheard");
    publish(&rig, "b", "heard");
    assert_eq!(json(&socket.text(), "data"), "heard");

    for wrong in [
        "{",
        "{\"op\":\"fly\",\"ref\":1}",
        "{\"op\":\"publish\",\"ref\":1}",
        "{\"op\":\"subscribe\",\"channels\":[\"a b\"]}",
    ] {
        socket.say(Opcode::Text, wrong.as_bytes());
        let answer = socket.text();
        assert_eq!((json(&answer, "op"), json(&answer, "status")), ("error", "400"), "{wrong}");
    }
    socket.say(Opcode::Ping, b"there?");
    assert_eq!(socket.hear(), (10, b"there?".to_vec()));
    socket.say(Opcode::Close, &1000_u16.to_be_bytes());
    assert_eq!(socket.close_code(), 1000);
    assert_eq!(socket.0.end(), crate::rig::End::Finished);

    let mut plain = Socket::open(&rig, "/push/a", "");
    wait_for_subscribers(&rig, 2);
    plain.say(Opcode::Binary, &[0xff, 0]);
    assert_eq!(plain.hear(), (2, vec![0xff, 0]));
    assert!(other.data().contains("unheard"));
    assert_eq!(other.data(), "data:application/octet-stream;base64,/wA=");
}

fn a_websocket_that_breaks_the_rules_is_told_and_closed(on: Stand) {
    let rig = stand(on);
    let masked = |opcode: Opcode, payload: &[u8]| {
        let mut frame = Vec::new();
        websocket::put_masked(&mut frame, opcode, payload, [9, 8, 7, 6]);
        frame
    };
    let mut unfinished = masked(Opcode::Text, b"caf\xc3");
    unfinished[0] &= 0x7f;
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("not masked", vec![0x81, 1, b'x'], 1002),
        ("a reserved bit", [&[0xc1], &masked(Opcode::Text, b"x")[1..]].concat(), 1002),
        ("a reserved opcode", [&[0x83], &masked(Opcode::Text, b"x")[1..]].concat(), 1002),
        ("a long way to say 1", vec![0x81, 0xfe, 0, 1, 0, 0, 0, 0, b'x'], 1002),
        ("an announced giant", vec![0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
        ("no UTF-8", masked(Opcode::Text, b"\xff"), 1007),
        (
            "no UTF-8, seen before the end",
            [&unfinished[..], &masked(Opcode::Continuation, b"\x28")].concat(),
            1007,
        ),
        ("a continuation of nothing", masked(Opcode::Continuation, b"x"), 1002),
        ("a ping in pieces", [&[0x09], &masked(Opcode::Ping, b"x")[1..]].concat(), 1002),
        ("a close code that nobody may send", masked(Opcode::Close, &1005_u16.to_be_bytes()), 1002),
    ];
    for (what, bytes, code) in cases {
        let mut socket = Socket::open(&rig, "/push/a", "encke.v1");
        socket.text();
        socket.0.send(&bytes);
        assert_eq!(socket.close_code(), code, "{what}");
        assert_eq!(socket.0.end(), crate::rig::End::Finished, "{what}");
    }
}

fn handshakes_that_are_none_are_refused(on: Stand) {
    let rig = stand(on);
    let good = handshake("/push/a", "");
    for (from, to, status) in [
        ("Version: 13", "Version: 12", 426),
        ("Sec-WebSocket-Version: 13\r\n", "", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400),
        ("Connection: Upgrade", "Connection: close", 400),
    ] {
        let answer = rig.client().ask(good.replace(from, to));
        assert_eq!(answer.status, status, "{from} → {to}: {answer:?}");
    }
    let answer = rig.client().ask(good.replace("Version: 13", "Version: 8"));
    assert_eq!(answer.field("Sec-WebSocket-Version"), Some("13"));
}

fn bytes_that_are_no_text_arrive(on: Stand) {
    let rig = stand(on);
    let mut stream = Stream::open(&rig, "/push/a", "");
    let bytes: Vec<u8> = (0..=255).collect();
    post(&rig, "/push/a", "Content-Type: image/x\r\n", &bytes);
    assert!(stream.data().starts_with("data:image/x;base64,AAECAw"));
    for text in ["", "one line", "two\nlines", "\n", "ends\n", "日本語 \u{1f680}"] {
        publish(&rig, "a", text);
        assert_eq!(stream.data(), text);
    }
    let answer = rig.client().get("/push/a?since=all&wait=0");
    assert_eq!((answer.field("Content-Type"), &answer.body), (Some("image/x"), &bytes));
    // The default content type of curl carries no information.
    post(&rig, "/push/b", "Content-Type: application/x-www-form-urlencoded\r\n", b"a=b");
    let answer = rig.client().get("/push/b?since=all&wait=0");
    assert_eq!(answer.field("Content-Type"), Some("text/plain; charset=utf-8"));
}

fn many_subscribers_get_every_message_once(on: Stand) {
    let rig = stand(on);
    let mut streams: Vec<Stream> = (0..60).map(|_| Stream::open(&rig, "/push/a", "")).collect();
    let mut sockets: Vec<Socket> = (0..20).map(|_| Socket::open(&rig, "/push/a", "")).collect();
    wait_for_subscribers(&rig, 80);
    let mut publishers: Vec<Client> = (0..4).map(|_| rig.client()).collect();
    for round in 0..20 {
        for (number, publisher) in publishers.iter_mut().enumerate() {
            let body = format!("{:04}", round * 4 + number);
            let request =
                format!("POST /push/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n{body}");
            assert_eq!(publisher.ask(request).status, 201);
        }
    }
    for stream in &mut streams {
        for number in 0..80 {
            assert_eq!(stream.data(), format!("{number:04}"));
        }
    }
    for socket in &mut sockets {
        for number in 0..80 {
            assert_eq!(socket.text(), format!("{number:04}"));
        }
    }
}

/// Without a settings file channels are open to programs and pages of this machine, but not to clients that may act for others.
fn the_way_in_stays_shut_to_strangers(on: Stand) {
    let rig = stand(on);
    for (fields, status) in [
        ("Host: localhost\r\n", 201),
        ("Host: 127.0.0.1:80\r\nOrigin: http://localhost:3000\r\n", 201),
        ("Host: [::1]\r\n", 201),
        ("Host: evil.example\r\n", 401),
        ("Host: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n", 401),
        ("Host: localhost\r\nForwarded: for=192.0.2.1\r\n", 401),
        ("Host: localhost\r\nVia: 1.1 proxy\r\n", 401),
        ("Host: localhost\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\nContent-Type: text/plain\r\n", 403),
    ] {
        let answer = rig.client().ask(format!("POST /push/a HTTP/1.1\r\n{fields}Content-Length: 1\r\n\r\nx"));
        assert_eq!(answer.status, status, "{fields}: {answer:?}");
        let read = rig.client().ask(format!("GET /push/a?wait=0 HTTP/1.1\r\n{fields}\r\n"));
        // Another worker may receive a just published message slightly later, so that its channel is still empty.
        assert_eq!(matches!(read.status, 200 | 204), status == 201, "{fields}: {read:?}");
    }
}

fn subscribers_are_sent_away_at_a_drain(on: Stand) {
    let rig = stand(on);
    let mut stream = Stream::open(&rig, "/push/a", "");
    let mut socket = Socket::open(&rig, "/push/a", "encke.v1");
    socket.text();
    let mut poll = rig.client();
    poll.send("GET /push/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_for_subscribers(&rig, 3);
    rig.running().drain(std::time::Duration::ZERO, std::time::Duration::from_secs(60));
    let answer = poll.answer();
    assert!(answer.status == 204, "{answer:?}");
    assert_eq!(socket.close_code(), 1012);
    let (rest, end) = stream.client.rest();
    let rest = String::from_utf8(rest).expect("text");
    assert!(rest.contains("retry: ") && rest.ends_with("0\r\n\r\n"), "{rest}");
    assert_eq!(end, crate::rig::End::Finished);
}

fn an_old_client_gets_a_stream_that_ends_with_the_connection(on: Stand) {
    let push = PushSettings { origins: Vec::new(), ..PushSettings::default() };
    let auth =
        AuthSettings { anonymous: encke_assembly::settings::Act::ALL.to_vec(), ..AuthSettings::default() };
    let rig = on.serve(|server| server.push(&push, &auth).expect("settings that hold"));
    let mut client = rig.client();
    client.send("GET /push/a HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.field("Transfer-Encoding"), head.closes()), (200, None, true));
    wait_for_subscribers(&rig, 1);
    publish(&rig, "a", "old");
    let mut text = Vec::new();
    while !text.ends_with(b"data: old\n\n") {
        let some = client.read_some(4096);
        assert!(!some.is_empty(), "{:?}", String::from_utf8_lossy(&text));
        text.write_all(&some).expect("memory");
    }
}

fn who_is_there_is_told(on: Stand) {
    let mut push = PushSettings::default();
    let rules = encke_assembly::settings::ChannelSettings {
        pattern: "room/*".into(),
        presence: true,
        ..encke_assembly::settings::ChannelSettings::default()
    };
    push.channel.push(rules);
    let rig = with(on, push);
    let mut ann = Stream::open(&rig, "/push/room/1?name=ann", "");
    let joined = ann.next();
    assert_eq!((joined.event.as_str(), json(&joined.data, "name")), ("encke.join", "ann"));
    let bob = Stream::open(&rig, "/push/room/1?name=bob", "");
    let joined = ann.next();
    assert_eq!((joined.event.as_str(), json(&joined.data, "name")), ("encke.join", "bob"));
    let info = rig.client().get("/push/room/1?info");
    assert!(info.text().contains(r#""members":["ann","bob"]"#), "{info:?}");
    publish(&rig, "no/presence", "x");
    let info = rig.client().get("/push/no/presence?info");
    assert!(info.status == 200 && !info.text().contains("members"), "{info:?}");
    drop(bob);
    let left = ann.next();
    assert_eq!((left.event.as_str(), json(&left.data, "name")), ("encke.leave", "bob"));
}

/// Input during a response waits; the socket is read again afterwards.
fn a_socket_that_is_written_to_without_a_pause_is_answered_to_the_end(on: Stand) {
    let rig = stand(on);
    let mut socket = Socket::open(&rig, "/push/a", "encke.v1");
    socket.text();
    let payload = [b'p'; 100];
    for round in 0..20 {
        for _ in 0..200 {
            socket.say(Opcode::Ping, &payload);
        }
        for pong in 0..200 {
            assert_eq!(socket.hear().0, 10, "round {round}, pong {pong}");
        }
    }
}

/// A WebSocket without envelopes can report a gap only by closing.
fn a_socket_of_payloads_that_missed_something_is_closed(on: Stand) {
    let mut push = PushSettings::default();
    push.channel.push(encke_assembly::settings::ChannelSettings {
        messages: 4,
        policy: encke_assembly::settings::OverrunPolicy::Skip,
        ..encke_assembly::settings::ChannelSettings::default()
    });
    let rig = with(on, push);
    let mut client = rig.narrow_client();
    client.send(handshake("/push/a", ""));
    assert_eq!(client.head().status, 101);
    let mut socket = Socket(client);
    wait_for_subscribers(&rig, 1);
    let text = "x".repeat(200_000);
    for _ in 0..40 {
        assert_eq!(publish(&rig, "a", &text).status, 201);
    }
    let mut heard = 0;
    loop {
        let (opcode, payload) = socket.hear();
        if opcode == 8 {
            assert_eq!(u16::from_be_bytes(payload[..2].try_into().expect("a code")), 4410);
            break;
        }
        heard += 1;
        assert!(heard < 40, "it has missed nothing: the case shows nothing");
    }
}

fn a_socket_whose_handler_panics_is_told_and_the_others_go_on(on: Stand) {
    struct Touchy;
    impl encke_server::Socket for Touchy {
        fn message(
            &mut self,
            message: encke_server::SocketMessage<'_>,
            answers: &mut encke_server::Answers<'_>,
        ) {
            assert_ne!(message, encke_server::SocketMessage::Text("boo"), "the case asked for it");
            answers.send(message);
        }
    }
    let rig = on.serve(|server| {
        server.mount("/touchy", |request: &encke_server::Request<'_>, _| match encke_server::Upgrade::accept(
            request, 1_000, Touchy,
        ) {
            Ok(upgrade) => encke_server::Outcome::Takeover(upgrade.into()),
            Err(reply) => encke_server::Outcome::Now(reply),
        })
    });
    let mut other = Socket::open(&rig, "/touchy", "");
    let mut socket = Socket::open(&rig, "/touchy", "");
    socket.say(Opcode::Text, b"well");
    assert_eq!(socket.text(), "well");
    socket.say(Opcode::Text, b"boo");
    assert_eq!(socket.close_code(), 1011);
    assert_eq!(socket.0.end(), crate::rig::End::Finished);
    other.say(Opcode::Text, b"still there");
    assert_eq!(other.text(), "still there");
    assert_eq!(rig.count("encke_handler_panics_total"), 1);
}

fn the_client_library_is_served_and_kept(on: Stand) {
    let rig = stand(on);
    let first = rig.client().get("/encke.js");
    assert_eq!((first.status, first.field("Content-Type")), (200, Some("text/javascript; charset=utf-8")));
    assert!(first.text().contains("subscribe"));
    let tag = first.field("ETag").expect("it has one");
    let again = format!("GET /encke.js HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n");
    assert_eq!(rig.client().ask(again).status, 304);
    assert_eq!(rig.client().get("/encke.json").status, 404);
}

/// A reload revokes rights, with and without a token. (Token expiry is tested in the rights themselves, and its check in the
/// heartbeat's tests.)
fn a_right_that_is_taken_away_ends_the_stream(on: Stand) {
    use encke_assembly::settings::{Act, Secret, StaticToken};
    let token = StaticToken {
        token: Secret::Text("0123456789abcdef0123".into()),
        name: None,
        publish: Vec::new(),
        subscribe: vec!["team/*".into()],
        presence: Vec::new(),
        manage: Vec::new(),
    };
    let auth =
        AuthSettings { anonymous: vec![Act::Subscribe], tokens: vec![token], ..AuthSettings::default() };
    let rig = on.serve(|server| server.push(&PushSettings::default(), &auth).expect("settings that hold"));
    let mut nobody = Stream::open(&rig, "/push/team/1", "");
    let mut somebody = Stream::open(&rig, "/push/team/1", "Authorization: Bearer 0123456789abcdef0123\r\n");
    wait_for_subscribers(&rig, 2);
    let now = AuthSettings { anonymous: Vec::new(), ..auth.clone() };
    rig.running().reload_push(&PushSettings::default(), &now).expect("settings that hold");
    nobody.client.rest();
    rig.wait_for_closes(encke_server::CloseReason::TokenExpired, 1);
    wait_for_subscribers(&rig, 1);
    rig.running()
        .reload_push(&PushSettings::default(), &AuthSettings::default())
        .expect("settings that hold");
    somebody.client.rest();
    rig.wait_for_closes(encke_server::CloseReason::TokenExpired, 2);
}

fn fan_outs_are_timed_by_the_class_of_their_channel(stand: Stand) {
    let class = |pattern: &str| ChannelSettings { pattern: pattern.into(), ..ChannelSettings::default() };
    let channel = vec![class("news/*"), class("quiet/*")];
    let rig = with(stand, PushSettings { channel, ..PushSettings::default() });
    let timed = |class: &str| -> u64 {
        let families = rig.running().families();
        let family = families.iter().find(|family| family.name == "encke_push_fanout_seconds");
        let samples = &family.expect("it is among them").samples;
        let of = |value: &Value| match value {
            Value::Distribution(distribution) => distribution.count(),
            other => panic!("no distribution: {other:?}"),
        };
        let mine = samples.iter().filter(|sample| sample.labels.iter().any(|(_, value)| *value == class));
        mine.map(|sample| of(&sample.value)).sum()
    };
    let _news = Stream::open(&rig, "/push/news/a", "");
    let _other = Stream::open(&rig, "/push/b", "");
    for (name, class) in [("news/a", "news/*"), ("b", "other")] {
        let before = timed(class);
        assert_eq!(publish(&rig, name, "x").status, 201);
        rig.wait(|| timed(class) > before, "its fan-out");
    }
    assert_eq!(publish(&rig, "quiet/a", "x").status, 201);
    assert_eq!(timed("quiet/*"), 0, "nobody is there");
}
