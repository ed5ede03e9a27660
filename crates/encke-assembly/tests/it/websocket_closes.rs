//! The Close of a WebSocket, as clients receive it: its code and its reason.

use encke_assembly::settings::{Act, AuthSettings, PushSettings};
use encke_server::CloseReason;
use encke_wire::websocket::Opcode;

use super::push_clients::{Socket, Stream, wait_for_subscribers, with};
use crate::rig::{Channels as _, End, Reloads as _, Stand};

on_two_stands! {
    a_plain_websocket_closes_when_its_message_is_rejected,
    a_right_that_is_taken_away_closes_websockets_with_a_code,
}

/// The code and the reason of the Close, after any other frames.
fn close_of(socket: &mut Socket) -> (u16, String) {
    loop {
        if let (8, payload) = socket.hear() {
            let reason = String::from_utf8_lossy(&payload[2..]).into_owned();
            return (u16::from_be_bytes([payload[0], payload[1]]), reason);
        }
    }
}

/// A WebSocket without envelopes has no responses: only a Close can report a rejected message.
fn a_plain_websocket_closes_when_its_message_is_rejected(on: Stand) {
    let mut push = PushSettings { channels: 2, ..PushSettings::default() };
    push.message_bytes = "1KiB".parse().expect("a size");
    let rig = with(on, push);
    let mut stream = Stream::open(&rig, "/push/a", "");
    let mut socket = Socket::open(&rig, "/push/a", "");
    wait_for_subscribers(&rig, 2);
    socket.say(Opcode::Text, &[b'x'; 1_024]);
    assert_eq!(stream.data(), "x".repeat(1_024));
    assert_eq!(socket.hear().1.len(), 1_024);
    // Within the limit of a frame, which is twice that of a message. Later messages are not published.
    socket.say(Opcode::Text, &[b'y'; 1_025]);
    socket.say(Opcode::Text, b"more");
    let (code, reason) = close_of(&mut socket);
    assert_eq!(code, 1009);
    assert!(reason.contains("1025 bytes") && reason.contains("push.message_bytes"), "{reason}");
    drop(socket);
    rig.wait_for_closes(CloseReason::Refused, 1);
}

/// A browser cannot read why a connection without a Close has ended.
fn a_right_that_is_taken_away_closes_websockets_with_a_code(on: Stand) {
    let auth = AuthSettings { anonymous: vec![Act::Subscribe], ..AuthSettings::default() };
    let rig = on.serve(|server| server.push(&PushSettings::default(), &auth).expect("settings that hold"));
    let mut sockets = ["", "encke.v1"].map(|protocol| Socket::open(&rig, "/push/news", protocol));
    let mut stream = Stream::open(&rig, "/push/news", "");
    wait_for_subscribers(&rig, 3);
    let nobody = AuthSettings::default();
    rig.running().reload_push(&PushSettings::default(), &nobody).expect("settings that hold");
    for socket in &mut sockets {
        let (code, reason) = close_of(socket);
        assert_eq!(code, 4401);
        assert!(reason.contains("new settings"), "{reason}");
    }
    let (rest, end) = stream.client.rest();
    assert_eq!(end, End::Finished);
    assert!(rest.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&rest));
    drop(sockets);
    rig.wait_for_closes(CloseReason::TokenExpired, 3);
}
