//! The access log of streams, from outside: one line for each, written at its end.

use encke_server::{LogTail, TailFilter};

use super::push_clients::{Socket, Stream, publish, stand, wait_for_subscribers};
use crate::rig::{Folder, PATIENCE, Sites as _, Stand};

on_two_stands! {
    a_stream_is_logged_once_at_its_end,
    a_drain_is_the_reason_for_the_end_of_a_stream,
    a_download_that_a_drain_cuts_is_logged_with_its_sent_bytes,
}

/// The next line of the log.
fn next(tail: &LogTail) -> serde_json::Value {
    let entry = tail.next_within(PATIENCE).expect("another line");
    serde_json::from_slice(&entry.line).expect("JSON")
}

fn a_stream_is_logged_once_at_its_end(on: Stand) {
    let rig = stand(on);
    let tail = rig.running().tail(TailFilter::default(), || {}).expect("room for a tail");
    let mut stream = Stream::open(&rig, "/push/news", "");
    let mut socket = Socket::open(&rig, "/push/news", "");
    wait_for_subscribers(&rig, 2);
    publish(&rig, "news", "hello");
    assert_eq!(next(&tail)["method"], "POST", "a stream has no line while it is open");
    assert_eq!(stream.data(), "hello");
    assert_eq!(socket.hear(), (1, b"hello".to_vec()));
    let at_least = |line: &serde_json::Value, bytes: u64| {
        assert!(
            line["sent_bytes"].as_u64() >= Some(bytes) && line["sent_bytes"].as_u64() < Some(400),
            "{line}"
        );
        assert!(line["duration_us"].as_u64() > Some(0), "{line}");
    };
    drop(stream);
    let line = next(&tail);
    assert_eq!((&line["status"], &line["target"]), (&200.into(), &"/push/news".into()), "{line}");
    at_least(&line, 40);
    socket.0.finish();
    let line = next(&tail);
    assert_eq!((&line["status"], &line["reason"]), (&101.into(), &serde_json::Value::Null), "{line}");
    assert_eq!(line["sent_bytes"], 7, "one frame");
    at_least(&line, 7);
    rig.end();
}

fn a_drain_is_the_reason_for_the_end_of_a_stream(on: Stand) {
    let rig = stand(on);
    let tail = rig.running().tail(TailFilter::default(), || {}).expect("room for a tail");
    let stream = Stream::open(&rig, "/push/news", "");
    let socket = Socket::open(&rig, "/push/news", "");
    wait_for_subscribers(&rig, 2);
    rig.running().drain(std::time::Duration::ZERO, std::time::Duration::from_millis(1));
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let line = next(&tail);
        assert_eq!(line["reason"], "drain", "{line}");
        statuses.push(line["status"].as_u64().expect("a number"));
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [101, 200]);
    drop((stream, socket));
}

fn a_download_that_a_drain_cuts_is_logged_with_its_sent_bytes(on: Stand) {
    const FILE_BYTES: usize = 16 << 20;
    const READ_BYTES: usize = 300_000;
    let folder = Folder::new();
    folder.write("large.bin", vec![b'x'; FILE_BYTES]);
    let rig = on.serve_site(&folder);
    let tail = rig.running().tail(TailFilter::default(), || {}).expect("room for a tail");
    let mut client = rig.narrow_client();
    client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.read_exact(READ_BYTES);
    rig.running().drain(std::time::Duration::ZERO, std::time::Duration::from_millis(1));
    let line = next(&tail);
    assert_eq!((&line["status"], &line["reason"]), (&200.into(), &"drain".into()), "{line}");
    let sent = line["sent_bytes"].as_u64().expect("a number");
    assert!((READ_BYTES as u64..FILE_BYTES as u64).contains(&sent), "{line}");
}
