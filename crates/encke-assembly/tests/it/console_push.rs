//! Lists and actions of push for operators, on running servers.

use std::sync::mpsc::channel;

use encke_assembly::settings::{ChannelSettings, OverrunPolicy, PushSettings};
use encke_server::{ActionError, ActionReport, ActionResult, ActionValue, FieldValue, Ticket};
use encke_stats::{Cell, ListTicket, Query, Row, Rows, Sort};
use encke_wire::websocket::Opcode;

use super::push_clients::{Socket, Stream, post, publish, stand, wait_for_subscribers, with};
use crate::rig::{End, PATIENCE, Rig, Stand};

on_two_stands! {
    channels_are_listed_with_their_figures_and_their_pattern,
    a_list_of_many_channels_keeps_the_first_ones_of_its_order,
    a_slow_subscriber_is_listed_by_name_before_it_is_dropped,
    subscribers_of_all_workers_are_listed,
    members_and_messages_of_a_channel_are_listed,
    an_operator_publishes_as_a_client_does,
    an_operator_deletes_the_messages_of_a_channel,
    an_operator_disconnects_the_subscribers_of_one_channel,
    an_operator_logs_a_user_out,
}

pub(super) fn query(whole: &[(&str, &str)]) -> Query {
    let whole = whole.iter().map(|(column, text)| ((*column).into(), (*text).into())).collect();
    Query { whole, limit: 1_000, ..Query::default() }
}

pub(super) fn list(rig: &Rig, name: &str, query: &Query) -> Rows {
    let (send, receive) = channel();
    let ticket = ListTicket::new(query, move |rows| send.send(rows).expect("the case waits"));
    assert!(rig.running().status().list(name, query, ticket), "no list {name}");
    receive.recv_timeout(PATIENCE).expect("a list ends")
}

pub(super) fn act(rig: &Rig, feature: &str, verb: &str, fields: &[(&str, &str)]) -> ActionResult {
    let value: ActionValue =
        fields.iter().map(|(name, text)| ((*name).to_owned(), FieldValue::Text((*text).into()))).collect();
    let (send, receive) = channel();
    let ticket = Ticket::new(move |result| send.send(result).expect("the case waits"));
    rig.running().act(feature, verb, value, ticket);
    receive.recv_timeout(PATIENCE).expect("an end").expect("a result")
}

fn number(row: &Row, column: &str) -> f64 {
    match row.cell(column) {
        Some(Cell::Count(count)) => *count as f64,
        Some(Cell::Number(number)) => *number,
        other => panic!("{column} is {other:?} in {row:?}"),
    }
}

fn text<'a>(row: &'a Row, column: &str) -> &'a str {
    match row.cell(column) {
        Some(Cell::Text(text)) => text,
        other => panic!("{column} is {other:?} in {row:?}"),
    }
}

fn only(rows: &Rows) -> &Row {
    assert_eq!((rows.total, rows.rows.len()), (1, 1), "{rows:?}");
    &rows.rows[0]
}

fn channels_are_listed_with_their_figures_and_their_pattern(on: Stand) {
    let pattern = ChannelSettings {
        pattern: "chat/**".into(),
        messages: 2,
        policy: OverrunPolicy::Skip,
        ..ChannelSettings::default()
    };
    let rig = with(on, PushSettings { channel: vec![pattern], ..PushSettings::default() });
    let streams: Vec<Stream> = (0..3).map(|_| Stream::open(&rig, "/push/chat/a", "")).collect();
    wait_for_subscribers(&rig, 3);
    for data in ["one", "two", "three"] {
        assert_eq!(publish(&rig, "chat/a", data).status, 201);
    }
    assert_eq!(publish(&rig, "other", "x").status, 201);
    let all = list(&rig, "channels", &query(&[]));
    assert_eq!(all.rows.iter().map(|row| text(row, "channel")).collect::<Vec<_>>(), ["chat/a", "other"]);
    let rows = list(&rig, "channels", &query(&[("channel", "chat/a")]));
    let row = only(&rows);
    assert_eq!(*row, all.rows[0], "an exact condition finds the same row");
    let numbers =
        ["subscribers", "messages", "retained", "dropped", "keep_messages"].map(|name| number(row, name));
    assert_eq!(numbers, [3.0, 3.0, 2.0, 0.0, 2.0]);
    assert!(number(row, "rate") > 0.0 && number(row, "last_ms") > 1e12, "{row:?}");
    assert_eq!(["pattern", "policy", "durable"].map(|name| text(row, name)), ["chat/**", "skip", "no"]);
    rig.wait(
        || only(&list(&rig, "channels", &query(&[("channel", "chat/a")]))).cell("latency_p99").is_some(),
        "the fan-outs are measured",
    );
    assert_eq!(text(&all.rows[1], "pattern"), "other");
    assert_eq!(list(&rig, "channels", &query(&[("channel", "chat")])).total, 0, "no part of a name");
    assert_eq!(list(&rig, "channels", &query(&[("pattern", "other")])).total, 1);
    assert_eq!(list(&rig, "channels", &Query { filter: Some("hat/".into()), ..query(&[]) }).total, 1);
    drop(streams);
    rig.end();
}

fn a_list_of_many_channels_keeps_the_first_ones_of_its_order(on: Stand) {
    let rig = stand(on);
    // More than a slice.
    let count = 2_500;
    let line =
        |n: usize| format!("{{\"channel\":\"c/{:04}\",\"data\":\"{}\"}}", n * 7 % count, "x".repeat(n % 50));
    let lines: Vec<String> = (0..count).map(line).collect();
    let kind = "Content-Type: application/x-ndjson\r\n";
    assert_eq!(post(&rig, "/push/", kind, lines.join("\n").as_bytes()).status, 201);
    let by = |column: &str, descending, limit| Query {
        sort: Some(Sort { column: column.into(), descending }),
        limit,
        ..Query::default()
    };
    let first = list(&rig, "channels", &by("channel", true, 3));
    let names = |rows: &Rows| rows.rows.iter().map(|row| text(row, "channel").to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (first.total, names(&first)),
        (count, ["c/2499", "c/2498", "c/2497"].map(str::to_owned).into())
    );
    let large = list(&rig, "channels", &by("retained_bytes", true, 50));
    assert_eq!((large.total, large.rows.len()), (count, 50));
    let sizes: Vec<f64> = large.rows.iter().map(|row| number(row, "retained_bytes")).collect();
    assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "50 channels have the largest size: {sizes:?}");
    assert!(names(&large).is_sorted(), "equal rows are in the order of names");
    let some = list(&rig, "channels", &Query { filter: Some("c/12".into()), ..by("channel", false, 5) });
    assert_eq!((some.total, names(&some)[0].as_str()), (100, "c/1200"));
    rig.end();
}

fn a_slow_subscriber_is_listed_by_name_before_it_is_dropped(on: Stand) {
    let pattern = ChannelSettings { pattern: "**".into(), messages: 20, ..ChannelSettings::default() };
    let rig = with(on, PushSettings { channel: vec![pattern], ..PushSettings::default() });
    let mut slow = rig.narrow_client();
    slow.send("GET /push/news HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    assert_eq!(slow.head().status, 200);
    let _other = Stream::open(&rig, "/push/quiet", "");
    wait_for_subscribers(&rig, 2);
    let body = "x".repeat(100_000);
    let subscribers = || list(&rig, "subscribers", &query(&[("channel", "news")]));
    let mut published = 0;
    loop {
        assert_eq!(publish(&rig, "news", &body).status, 201);
        published += 1;
        let rows = subscribers();
        if number(only(&rows), "behind") >= 2.0 {
            break;
        }
        assert!(published < 1_000, "the client takes all of it");
    }
    let rows = subscribers();
    let row = only(&rows);
    assert_eq!(["transport", "address"].map(|name| text(row, name)), ["sse", "127.0.0.1"]);
    assert_eq!(number(row, "behind_bytes"), number(row, "behind") * 100_000.0);
    assert!(number(row, "unsent_bytes") > 0.0 && row.cell("behind_s").is_some(), "{row:?}");
    assert!(number(row, "idle_s") >= number(row, "behind_s"), "{row:?}");
    let sorted = list(
        &rig,
        "subscribers",
        &Query {
            sort: Some(Sort { column: "behind".into(), descending: true }),
            limit: 1,
            ..Query::default()
        },
    );
    assert_eq!((sorted.total, text(&sorted.rows[0], "channel")), (2, "news"));
    let dropped = || number(only(&list(&rig, "channels", &query(&[("channel", "news")]))), "dropped_slow");
    assert_eq!(dropped(), 0.0);
    for _ in 0..25 {
        publish(&rig, "news", &body);
    }
    // It reads again: its next message is gone.
    std::thread::scope(|scope| {
        scope.spawn(|| slow.rest());
        rig.wait(|| dropped() == 1.0, "the slow subscriber is dropped and counted");
    });
    assert_eq!(subscribers().total, 0);
    rig.end();
}

fn subscribers_of_all_workers_are_listed(on: Stand) {
    let rig = stand(on);
    let streams: Vec<Stream> = (0..40).map(|_| Stream::open(&rig, "/push/a,b", "")).collect();
    let mut poll = rig.client();
    poll.send("GET /push/a?wait=55 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut socket = Socket::open(&rig, "/push/b", "encke.v1");
    socket.text();
    wait_for_subscribers(&rig, 42);
    let of = |conditions: &[(&str, &str)]| list(&rig, "subscribers", &query(conditions));
    assert_eq!(["a", "b", "none", "no channel!"].map(|name| of(&[("channel", name)]).total), [41, 41, 0, 0]);
    assert_eq!(of(&[]).total, 82, "one row for each channel of a subscriber");
    assert_eq!(of(&[("transport", "websocket")]).total, 1);
    assert_eq!(of(&[("transport", "poll"), ("channel", "a")]).total, 1);
    let ids: std::collections::BTreeSet<String> =
        of(&[("channel", "a")]).rows.iter().map(|row| text(row, "id").to_owned()).collect();
    assert_eq!(ids.len(), 41);
    drop(streams);
    rig.end();
}

fn members_and_messages_of_a_channel_are_listed(on: Stand) {
    let pattern = ChannelSettings { pattern: "room/*".into(), presence: true, ..ChannelSettings::default() };
    let rig = with(on, PushSettings { channel: vec![pattern], ..PushSettings::default() });
    let tabs: Vec<Stream> =
        ["ada", "ada", "bob"].map(|name| Stream::open(&rig, &format!("/push/room/1?name={name}"), "")).into();
    wait_for_subscribers(&rig, 3);
    let members = |conditions: &[(&str, &str)]| {
        let rows = list(&rig, "members", &query(conditions)).rows;
        rows.iter()
            .map(|row| (text(row, "member").to_owned(), number(row, "count") as u64))
            .collect::<Vec<_>>()
    };
    let expected = [("ada".to_owned(), 2), ("bob".to_owned(), 1)];
    rig.wait(|| members(&[("channel", "room/1")]) == expected, "both members are listed");
    assert_eq!(members(&[]), expected);
    assert!(members(&[("channel", "room/2")]).is_empty());
    post(&rig, "/push/room/1", "Content-Type: application/json\r\nEncke-Event: score\r\n", b"{\"goals\":2}");
    publish(&rig, "room/1", &"\u{e9}".repeat(300));
    post(&rig, "/push/room/1", "Content-Type: image/png\r\n", b"\xff\x00");
    let newest = Query {
        sort: Some(Sort { column: "time_ms".into(), descending: true }),
        limit: 3,
        ..query(&[("channel", "room/1")])
    };
    let rows = list(&rig, "messages", &newest);
    assert_eq!(rows.total, 5, "two joins are kept, too: {rows:?}");
    let row = |content: &str| {
        let found = rows.rows.iter().find(|row| text(row, "content_type") == content);
        found.unwrap_or_else(|| panic!("no {content} in {rows:?}"))
    };
    assert_eq!(["event", "text"].map(|name| text(row("application/json"), name)), ["score", "{\"goals\":2}"]);
    assert_eq!(
        (text(row("text/plain"), "text").chars().count(), number(row("text/plain"), "bytes")),
        (200, 600.0)
    );
    assert_eq!((text(row("image/png"), "text"), number(row("image/png"), "bytes")), ("", 2.0));
    assert_eq!(list(&rig, "messages", &query(&[("channel", "room/1"), ("event", "score")])).total, 1);
    assert_eq!(list(&rig, "messages", &query(&[])).total, 0, "a channel must be named");
    drop(tabs);
    rig.end();
}

fn an_operator_publishes_as_a_client_does(on: Stand) {
    let rig =
        with(on, PushSettings { message_bytes: "1KiB".parse().expect("a size"), ..PushSettings::default() });
    let mut stream = Stream::open(&rig, "/push/news", "");
    wait_for_subscribers(&rig, 1);
    let publish = |fields: &[(&str, &str)]| act(&rig, "channels", "publish", fields);
    let report =
        publish(&[("channel", "news"), ("text", "hello"), ("event", "greeting")]).expect("published");
    assert_eq!(report.affected, 1);
    assert_eq!(stream.data(), "hello");
    assert_eq!(report.notes, [format!("id {}", stream.id())]);
    for (fields, reason) in [
        (&[("channel", "a b"), ("text", "x")][..], "invalid channel \"a b\": "),
        (&[("channel", "news"), ("text", &"x".repeat(1_025))], "the message has 1025 bytes: at most 1024"),
        (&[("channel", "news"), ("text", "x"), ("event", "encke.join")], "reserved for the server"),
        (&[("channel", "news"), ("text", "x"), ("content_type", "png")], "invalid content_type \"png\""),
    ] {
        match publish(fields) {
            Err(ActionError::Refused(text)) => assert!(text.to_string().contains(reason), "{text}"),
            other => panic!("{fields:?}: {other:?}"),
        }
    }
    assert_eq!(publish(&[("channel", "news")]), Err(ActionError::Value("text".into())));
    rig.end();
}

fn an_operator_deletes_the_messages_of_a_channel(on: Stand) {
    let rig = stand(on);
    publish(&rig, "news", "one");
    publish(&rig, "news", "two");
    let delete = || act(&rig, "channels", "delete", &[("channel", "news")]);
    assert_eq!(delete().map(|report| report.affected), Ok(2));
    assert_eq!(rig.client().get("/push/news?info").status, 404);
    let empty = delete().expect_err("no messages");
    assert_eq!(empty.to_string(), "channel news has no messages");
    rig.end();
}

fn an_operator_disconnects_the_subscribers_of_one_channel(on: Stand) {
    let rig = stand(on);
    let mut streams: Vec<Stream> = (0..20).map(|_| Stream::open(&rig, "/push/news", "")).collect();
    let mut socket = Socket::open(&rig, "/push/news,more", "");
    let mut poll = rig.client();
    poll.send("GET /push/news?wait=55 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut other = Stream::open(&rig, "/push/more", "");
    wait_for_subscribers(&rig, 23);
    let report = act(&rig, "channels", "disconnect", &[("channel", "news")]);
    assert_eq!(report, Ok(ActionReport { affected: 22, notes: Vec::new() }));
    for stream in &mut streams {
        let (bytes, end) = stream.client.rest();
        assert_eq!(end, End::Finished);
        assert!(bytes.ends_with(b"0\r\n\r\n"), "a whole response: {:?}", String::from_utf8_lossy(&bytes));
    }
    assert_eq!(socket.hear().0, Opcode::Close as u8);
    assert_eq!(poll.answer().status, 204);
    wait_for_subscribers(&rig, 1);
    publish(&rig, "more", "still");
    assert_eq!(other.data(), "still");
    rig.end();
}

fn an_operator_logs_a_user_out(on: Stand) {
    let (rig, signer) = super::manage::serve(on, Vec::new());
    let [ann, bob] = ["ann", "bob"].map(|user| super::manage::token(&signer, user, &[]));
    let open = |token: &str| Stream::open(&rig, &format!("/push/news?access_token={token}"), "");
    let (mut first, _second) = (open(&ann), open(&bob));
    wait_for_subscribers(&rig, 2);
    let users = list(&rig, "subscribers", &query(&[("user", "ann")]));
    assert_eq!(text(only(&users), "channel"), "news");
    let report = act(&rig, "channels", "log_out", &[("user", "ann")]);
    assert_eq!(report.map(|report| report.affected), Ok(1));
    assert_eq!(first.client.rest().1, End::Finished);
    wait_for_subscribers(&rig, 1);
    rig.end();
}
