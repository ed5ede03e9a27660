//! Tokens that expire while their subscribers receive messages without a pause.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use encke_assembly::settings::{AuthSettings, ChannelSettings, KeySettings, PushSettings, Secret};
use encke_rights::{Signer, TokenContents};
use encke_server::CloseReason;
use encke_wire::websocket::Opcode;

use super::push_clients::{Socket, publish_by};
use crate::rig::Channels as _;
use crate::rig::{End, Rig, Stand};

on_every_back_end! {
    a_busy_stream_ends_when_its_token_expires,
    a_busy_poll_is_rejected_once_its_token_expires,
    a_websocket_that_publishes_without_a_pause_ends_when_its_token_expires,
}

/// Starts a server whose channels keep more than a case publishes, so that no subscriber is overrun.
fn serve(on: Stand) -> (Rig, Signer) {
    let secret = Secret::Text("0123456789abcdef0123456789abcdef".into());
    let auth = AuthSettings {
        keys: vec![KeySettings { kid: None, secret: Some(secret), pem: None }],
        ..AuthSettings::default()
    };
    let kept = ChannelSettings {
        pattern: "**".into(),
        messages: 1_000_000,
        bytes: "64MiB".parse().expect("a size"),
        ..ChannelSettings::default()
    };
    let push = PushSettings { channel: vec![kept], ..PushSettings::default() };
    let rig = on.serve(|server| server.push(&push, &auth).expect("valid settings"));
    (rig, Signer::of_settings(&auth, None).expect("a key that signs"))
}

/// Signs a token for all rights that expires in four seconds at most, or never. Clients of a busy machine connect within three.
fn token(signer: &Signer, expires: bool) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let all = vec!["**".to_owned()];
    let pass = TokenContents {
        expires_unix_s: expires.then(|| now.as_secs() + 4),
        publish: all.clone(),
        subscribe: all,
        ..TokenContents::default()
    };
    signer.sign(&pass).expect("a token")
}

/// Publishes without a pause until `count` subscribers have ended.
fn publish_until(rig: &Rig, token: &str, ended: &AtomicUsize, count: usize) {
    let mut publisher = rig.client();
    rig.wait(
        || {
            assert_eq!(publish_by(&mut publisher, "news", token, "x").status, 201);
            ended.load(Ordering::Relaxed) == count
        },
        "the end of every subscriber",
    );
}

fn a_busy_stream_ends_when_its_token_expires(on: Stand) {
    let (rig, signer) = serve(on);
    let (short, long) = (token(&signer, true), token(&signer, false));
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for accept in ["text/event-stream", "application/x-ndjson"] {
            let mut client = rig.client();
            client.send(format!(
                "GET /push/news HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nAuthorization: Bearer {short}\r\n\r\n"
            ));
            assert_eq!(client.head().status, 200, "{accept}");
            let ended = &ended;
            scope.spawn(move || {
                let (bytes, end) = client.rest();
                ended.fetch_add(1, Ordering::Relaxed);
                assert_eq!(end, End::Finished, "{accept}");
                assert!(bytes.ends_with(b"0\r\n\r\n"), "{accept}: a whole response");
            });
        }
        for protocol in ["", "encke.v1"] {
            let mut socket = Socket::open(&rig, &format!("/push/news?access_token={short}"), protocol);
            let ended = &ended;
            scope.spawn(move || {
                let mut last = socket.hear();
                while last.0 != Opcode::Close as u8 {
                    last = socket.hear();
                }
                ended.fetch_add(1, Ordering::Relaxed);
                assert_eq!(last.1[..2], 4401_u16.to_be_bytes(), "{protocol}");
            });
        }
        publish_until(&rig, &long, &ended, 4);
    });
    rig.wait_for_closes(CloseReason::TokenExpired, 4);
}

fn a_busy_poll_is_rejected_once_its_token_expires(on: Stand) {
    let (rig, signer) = serve(on);
    let (short, long) = (token(&signer, true), token(&signer, false));
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut client = rig.client();
        let (ended, short) = (&ended, &short);
        scope.spawn(move || {
            // No message is published to this channel: the poll waits, and gets its response when the token expires.
            let answer = client.get(&format!("/push/quiet?wait=55&access_token={short}"));
            assert_eq!(answer.status, 204);
            assert_eq!(client.get(&format!("/push/quiet?access_token={short}")).status, 401);
            ended.fetch_add(1, Ordering::Relaxed);
        });
        publish_until(&rig, &long, ended, 1);
    });
}

fn a_websocket_that_publishes_without_a_pause_ends_when_its_token_expires(on: Stand) {
    let (rig, signer) = serve(on);
    let short = token(&signer, true);
    let mut socket = Socket::open(&rig, &format!("/push/news?access_token={short}"), "encke.v1");
    let code = loop {
        socket.say(Opcode::Text, br#"{"op":"publish","channel":"other","data":"x","ref":1}"#);
        match socket.hear() {
            (8, payload) => break u16::from_be_bytes([payload[0], payload[1]]),
            (opcode, _) => assert_eq!(opcode, Opcode::Text as u8),
        }
    };
    assert_eq!(code, 4401);
    // The server lingers until the client has closed.
    drop(socket);
    rig.wait_for_closes(CloseReason::TokenExpired, 1);
}
