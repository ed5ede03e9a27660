//! WebSockets, with envelopes and with plain payloads.

use super::*;

#[test]
fn a_websocket_with_envelopes_begins_with_its_position() {
    let mut stage = Stage::new();
    stage.post("news", "x");
    let mut socket = stage.envelopes("news", "");
    assert_eq!(socket.head.field("Sec-WebSocket-Protocol"), Some("encke.v1"));
    assert_eq!(socket.head.field("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(stage.heard(&mut socket), format!("{{\"op\":\"ok\",\"id\":\"{}\"}}", id(1)));
    stage.post("news", "hello");
    let message = stage.heard(&mut socket);
    assert!(message.starts_with(&format!("{{\"id\":\"{}\",\"channel\":\"news\",", id(2))), "{message}");
    assert!(message.ends_with("Z\",\"data\":\"hello\"}"), "{message}");
}

#[test]
fn a_plain_websocket_has_payloads_in_frames_of_their_kind() {
    let mut stage = Stage::new();
    let mut socket = stage.socket("news", "");
    assert_eq!(socket.head.field("Sec-WebSocket-Protocol"), None);
    stage.run(seconds(1));
    stage.post("news", "hello");
    assert_eq!(stage.frame(&mut socket), (0x81, b"hello".to_vec()));
    let head = "POST /push/news HTTP/1.1\r\nHost: sim\r\nContent-Length: 2\r\n\r\n";
    stage.net.ask(0, [head.as_bytes(), b"\xff\x00"].concat());
    assert_eq!(stage.frame(&mut socket), (0x82, b"\xff\x00".to_vec()));
}

#[test]
fn a_plain_websocket_publishes_its_messages_to_its_first_channel() {
    let mut stage = Stage::new();
    let mut socket = stage.socket("news,other", "");
    stage.say(&mut socket, "hello");
    assert_eq!(stage.frame(&mut socket), (0x81, b"hello".to_vec()));
    stage.say_frame(&mut socket, Opcode::Binary, b"ab");
    assert_eq!(stage.frame(&mut socket).1, b"ab");
    let polled = stage.get("news?since=last:1", "");
    assert_eq!((&*polled.text(), polled.field("Content-Type")), ("ab", Some("application/octet-stream")));
}

#[test]
fn a_plain_websocket_with_a_gap_is_closed() {
    let mut stage = Stage::with(&channels(|channel| channel.messages = 2), &open_to_all());
    for text in ["one", "two", "three", "four"] {
        stage.post("news", text);
    }
    let mut socket = stage.socket(&format!("news?since={}", id(1)), "");
    assert_eq!(stage.closed(&mut socket), (4410, "messages are missing".into()));
    let mut socket = stage.envelopes(&format!("news?since={}", id(1)), "");
    let gap = format!("{{\"op\":\"gap\",\"from\":\"{}\",\"to\":\"{}\",\"reason\":\"away\"}}", id(1), id(2));
    let first = [stage.heard(&mut socket), stage.heard(&mut socket)];
    assert!(first.contains(&gap), "{first:?}");
}

#[test]
fn a_command_gets_a_response_with_its_reference() {
    let mut stage = Stage::new();
    let mut socket = stage.envelopes("news", "");
    stage.heard(&mut socket);
    for (command, response) in [
        (r#"{"op":"ping","ref":1}"#, r#"{"op":"ok","ref":1}"#),
        (r#"{"op":"ping"}"#, r#"{"op":"ok"}"#),
        (
            r#"{"op":"fly","ref":2}"#,
            r#"{"op":"error","ref":2,"status":400,"text":"op is \"fly\": expected publish, subscribe, unsubscribe or ping"}"#,
        ),
        (
            r#"{"op":"subscribe","ref":3}"#,
            r#"{"op":"error","ref":3,"status":400,"text":"channels is missing or empty: name at least one channel"}"#,
        ),
        (
            r#"{"ref":4,"data":1}"#,
            r#"{"op":"error","ref":4,"status":400,"text":"channel is missing: name the channel to publish to"}"#,
        ),
    ] {
        stage.say(&mut socket, command);
        assert_eq!(stage.heard(&mut socket), response);
    }
    stage.say_frame(&mut socket, Opcode::Binary, b"x");
    assert_eq!(
        stage.heard(&mut socket),
        r#"{"op":"error","status":400,"text":"invalid binary frame: encke.v1 has text frames only"}"#
    );
}

#[test]
fn a_publish_by_websocket_is_acknowledged_with_its_id() {
    let mut stage = Stage::new();
    let mut socket = stage.envelopes("other", "");
    stage.heard(&mut socket);
    stage.say(&mut socket, r#"{"channel":"news","data":"hello","ref":7}"#);
    assert_eq!(
        stage.heard(&mut socket),
        format!("{{\"op\":\"ok\",\"ref\":7,\"id\":\"{}\",\"subscribers\":0}}", id(1))
    );
    assert_eq!(stage.get("news?since=all", "").text(), "hello");
}

#[test]
fn a_websocket_changes_its_channels() {
    let mut stage = Stage::new();
    let mut socket = stage.envelopes("a", "");
    stage.heard(&mut socket);
    stage.say(&mut socket, r#"{"op":"subscribe","channels":["b"],"ref":1}"#);
    assert!(stage.heard(&mut socket).starts_with("{\"op\":\"ok\",\"ref\":1"));
    stage.post("b", "one");
    assert!(stage.heard(&mut socket).contains("\"channel\":\"b\""));
    stage.say(&mut socket, r#"{"op":"unsubscribe","channels":["b"],"ref":2}"#);
    assert!(stage.heard(&mut socket).starts_with("{\"op\":\"ok\",\"ref\":2"));
    stage.post("b", "two");
    stage.post("a", "three");
    assert!(stage.heard(&mut socket).ends_with("\"data\":\"three\"}"));
}

#[test]
fn a_silent_websocket_gets_pings() {
    let mut stage = Stage::new();
    let mut socket = stage.envelopes("news", "");
    stage.heard(&mut socket);
    stage.run(seconds(24));
    let at = socket.at;
    assert!(stage.net.until(&mut socket.peer, |peer| Some(frame_at(peer.received(), at))).is_none());
    assert_eq!(stage.frame(&mut socket), (0x89, Vec::new()));
}

#[test]
fn a_close_of_the_client_is_returned() {
    let mut stage = Stage::new();
    let mut socket = stage.envelopes("news", "");
    stage.heard(&mut socket);
    stage.say_frame(&mut socket, Opcode::Close, &1000u16.to_be_bytes());
    assert_eq!(stage.closed(&mut socket).0, 1000);
    stage.net.until(&mut socket.peer, |peer| peer.is_closed().then_some(()));
}

#[test]
fn a_message_of_twice_the_size_is_too_long_for_a_websocket() {
    let settings =
        PushSettings { message_bytes: encke_settings::ByteSize::of(1_000), ..PushSettings::default() };
    let mut stage = Stage::with(&settings, &open_to_all());
    let mut socket = stage.socket("news", "");
    stage.say(&mut socket, &"x".repeat(1_000));
    assert_eq!(stage.frame(&mut socket).1.len(), 1_000);
    stage.say(&mut socket, &"x".repeat(1_001));
    let (code, reason) = stage.closed(&mut socket);
    assert_eq!(code, 1009);
    assert!(reason.ends_with("(push.message_bytes)"), "{reason}");
    let mut socket = stage.envelopes("news", "");
    stage.heard(&mut socket);
    stage.say(&mut socket, &format!("{{\"channel\":\"news\",\"ref\":1,\"data\":\"{}\"}}", "x".repeat(1_001)));
    assert!(stage.heard(&mut socket).starts_with("{\"op\":\"error\",\"ref\":1,\"status\":413,"));
    stage.say(&mut socket, &"x".repeat(2_001));
    assert_eq!(stage.closed(&mut socket).0, 1009);
}

#[test]
fn compression_is_accepted_unless_the_settings_disable_it() {
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    for compress in [true, false] {
        let mut stage = Stage::with(&PushSettings { compress, ..PushSettings::default() }, &open_to_all());
        let mut socket = stage.socket("news", offer);
        let accepted = socket.head.field("Sec-WebSocket-Extensions").is_some();
        assert_eq!(accepted, compress, "{}", socket.head.head);
        stage.run(seconds(1));
        stage.post("news", &"x".repeat(2_000));
        let (first, payload) = stage.frame(&mut socket);
        // FIN and text; RSV1 marks a compressed message.
        assert_eq!(first, if compress { 0xc1 } else { 0x81 });
        assert_eq!(payload.len() < 200, compress, "{}", payload.len());
    }
}

#[test]
fn a_request_for_a_websocket_without_upgrade_is_rejected_with_the_version() {
    let mut stage = Stage::new();
    let rejected = stage.get("news?as=ws", "");
    assert!((400..500).contains(&rejected.status), "{}", rejected.head);
    assert_eq!(rejected.field("Sec-WebSocket-Version"), Some("13"));
    assert_eq!(rejected.field("Upgrade"), Some("websocket"));
}
