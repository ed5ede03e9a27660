//! Lists, descriptions and deletions of channels.

use super::*;

#[test]
fn a_description_has_the_counts_of_a_channel() {
    let mut stage = Stage::new();
    for text in ["one", "three"] {
        stage.post("news", text);
    }
    let info = stage.get("news?info", "");
    assert_eq!(info.status, 200);
    let text = info.text();
    assert!(text.starts_with("{\"channel\":\"news\",\"messages\":2,\"bytes\":"), "{text}");
    let ids = format!("\"first\":\"{}\",\"last\":\"{}\",\"subscribers\":0", id(1), id(2));
    assert!(text.contains(&ids), "{text}");
    assert_eq!(info.field("Content-Type"), Some("application/json"));
    let several = stage.get("a,b?info", "");
    assert_eq!((several.status, &*several.text()), (400, "?info supports only one channel\n"));
}

#[test]
fn a_deleted_channel_has_no_messages_and_its_readers_a_gap() {
    let mut stage = Stage::new();
    for text in ["one", "two"] {
        stage.post("news", text);
    }
    let deleted = stage.ask("DELETE", "news", "", "");
    assert_eq!((deleted.status, deleted.field("Cache-Control")), (204, Some("no-store")));
    assert_eq!(stage.get("news?since=all&wait=0", "").status, 204);
    stage.post("news", "three");
    let polled = stage.get("news", &format!("Last-Event-ID: {}\r\n", id(1)));
    assert_eq!(polled.text(), "three");
    assert!(polled.field("Encke-Gap").is_some(), "{}", polled.head);
}

#[test]
fn several_channels_are_deleted_at_once_and_others_stay() {
    let mut stage = Stage::new();
    for channel in ["a", "b", "c"] {
        stage.post(channel, "x");
    }
    assert_eq!(stage.ask("DELETE", "a,b", "", "").status, 204);
    for (channel, status) in [("a", 204), ("b", 204), ("c", 200)] {
        assert_eq!(stage.get(&format!("{channel}?since=all&wait=0"), "").status, status, "{channel}");
    }
}

#[test]
fn a_list_has_the_rows_of_its_channels_in_order() {
    let mut stage = Stage::new();
    for channel in ["b", "a/x", "a/y"] {
        stage.post(channel, "x");
    }
    stage.run(seconds(1));
    let list = stage.get("", "").text();
    let places = ["\"a/x\"", "\"a/y\"", "\"b\""].map(|name| list.find(name).expect("a row"));
    assert!(places.is_sorted(), "{list}");
    assert!(list.ends_with("],\"total\":3}\n"), "{list}");
    assert!(list.starts_with("{\"channels\":[{\"channel\":\"a/x\",\"messages\":1,\"bytes\":"), "{list}");
    let ids = format!(",\"first\":\"{0}\",\"last\":\"{0}\",\"age_ms\":1", id(2));
    assert!(list.contains(&ids), "{list}");
    assert!(list.contains(",\"subscribers\":0,\"durable\":false},{"), "{list}");
}

#[test]
fn a_list_has_pages_and_patterns() {
    let mut stage = Stage::new();
    for channel in ["a", "b", "c", "x/1"] {
        stage.post(channel, "x");
    }
    let names = |text: &str| -> Vec<String> {
        let rows = text.split("{\"channel\":\"").skip(1);
        rows.map(|row| row.split('"').next().unwrap_or_default().to_owned()).collect()
    };
    let first = stage.get("?limit=2", "").text();
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first.ends_with("],\"total\":4,\"next\":\"b\"}\n"), "{first}");
    let second = stage.get("?limit=2&after=b", "").text();
    assert_eq!(names(&second), ["c", "x/1"]);
    assert!(!second.contains("\"next\""), "{second}");
    assert_eq!(names(&stage.get("?pattern=*", "").text()), ["a", "b", "c"]);
    assert_eq!(names(&stage.get("?pattern=x/**&access_token=", "").text()), ["x/1"]);
}

#[test]
fn an_invalid_query_of_a_list_is_a_400() {
    let mut stage = Stage::new();
    for (query, text) in [
        ("limit=0", "invalid limit=0: expected a number from 1 to 1000\n"),
        ("limit=1001", "invalid limit=1001: expected a number from 1 to 1000\n"),
        ("patern=a", "unknown parameter \"patern\": a list takes after, limit, pattern and access_token\n"),
    ] {
        let rejected = stage.get(&format!("?{query}"), "");
        assert_eq!((rejected.status, &*rejected.text()), (400, text));
    }
    assert!(stage.get("?after=a//b", "").text().starts_with("invalid after=a//b: "));
    assert!(stage.get("?pattern=a//b", "").text().starts_with("invalid pattern=a//b: "));
    assert_eq!(stage.get("?limit=1000&after=", "").status, 200);
}

#[test]
fn the_prefix_itself_has_no_stream() {
    let mut stage = Stage::new();
    for query in ["as=sse", "as=ndjson", "as=ws"] {
        let rejected = stage.get(&format!("?{query}"), "");
        assert_eq!(
            (rejected.status, &*rejected.text()),
            (404, "the path names no channel: subscribe to /push/CHANNEL\n")
        );
    }
}

#[test]
fn a_drain_ends_streams_with_a_retry_time() {
    let mut stage = Stage::new();
    let mut stream = stage.open("news?as=sse", "");
    stage.wait(&mut stream, "retry:");
    let mut socket = stage.envelopes("news", "");
    stage.heard(&mut socket);
    let mut poll = stage.open("news", "");
    stage.run(seconds(1));
    stage.net.server(0).drain(Duration::ZERO, seconds(20));
    let end = stage.net.response(&mut stream);
    assert_eq!(end.text().matches("retry:").count(), 2, "{}", end.text());
    let (code, reason) = stage.closed(&mut socket);
    assert_eq!(code, 1012);
    assert!(reason.parse::<u64>().is_ok_and(|retry_ms| retry_ms >= 1_000), "{reason}");
    assert_eq!(stage.net.response(&mut poll).status, 204);
}

#[test]
fn a_message_of_the_program_is_published_like_one_of_a_client() {
    let mut stage = Stage::new();
    let (send, results) = std::sync::mpsc::channel();
    let mut stream = stage.open("news?as=ndjson", "");
    stage.wait(&mut stream, "\n");
    let draft = encke_hub::Draft::new(encke_hub::Name::parse(b"news").expect("a name"), *b"hello");
    stage.plan.publisher().publish(draft, move |result| send.send(result).expect("the test reads"));
    stage.wait(&mut stream, "\"data\":\"hello\"");
    stage.run(seconds(1));
    let results: Vec<_> = results.try_iter().collect();
    let [Ok(crate::Accepted::Published(published))] = &results[..] else { panic!("{results:?}") };
    assert_eq!((published.position.to_string(), published.subscribers), (id(1), 1));
}
