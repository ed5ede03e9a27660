//! Requests of listeners, the list, and pages.

use std::num::NonZeroU32;

use encke_settings::OrOff;

use super::*;

#[test]
fn a_stream_without_source_is_a_404_with_a_retry_time() {
    let mut stage = Stage::new();
    for target in ["film", "film?info"] {
        let absent = stage.get(target);
        assert_eq!(absent.status, 404, "{target}");
        assert_eq!(absent.field("Retry-After"), Some("5"));
        assert!(absent.text().starts_with("no source sends to /live/film now: "), "{}", absent.text());
    }
}

#[test]
fn a_listener_gets_the_bytes_of_the_source_up_to_its_end() {
    let mut stage = Stage::new();
    let mut source = stage.source("film", "");
    let mut listener = stage.listen("film", "");
    stage.feed(&mut source, WEBM);
    stage.run(seconds(1));
    assert_eq!(stage.end(&mut source).status, 200);
    let response = stage.net.response(&mut listener);
    assert_eq!(response.status, 200);
    // The listener begins at the last key frame: the head of the file, then its end.
    let body = response.body;
    assert!(body.len() > 1_000 && body.len() <= WEBM.len(), "{} of {} bytes", body.len(), WEBM.len());
    assert_eq!(body[..200], WEBM[..200]);
    assert_eq!(body[body.len() - 500..], WEBM[WEBM.len() - 500..]);
}

#[test]
fn a_response_to_a_player_has_the_fields_that_it_needs() {
    let mut stage = Stage::new();
    let mut source = stage.source("film", "Ice-Name: Sea\r\n");
    stage.feed(&mut source, &WEBM[..WEBM.len() / 2]);
    stage.run(seconds(1));
    let mut listener = stage.listen("film", "Range: bytes=0-\r\n");
    let head = stage.head(&mut listener);
    assert_eq!(head.status, 200);
    for (name, value) in [
        ("Content-Type", "video/webm"),
        ("Cache-Control", "no-store, no-transform"),
        ("Accept-Ranges", "none"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Accel-Buffering", "no"),
        ("Icy-Name", "Sea"),
        ("Transfer-Encoding", "chunked"),
    ] {
        assert_eq!(head.field(name), Some(value), "{}", head.head);
    }
    assert_eq!(head.field("Encke-Hops"), None);
}

#[test]
fn a_head_request_has_the_fields_and_no_content() {
    let mut stage = Stage::new();
    let _source = stage.sending("song", MP3);
    let mut peer = stage.listen("song", "");
    let get = stage.head(&mut peer);
    let mut peer = stage.net.open(0, b"HEAD /live/song HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n");
    stage.net.until(&mut peer, |peer| peer.is_closed().then_some(()));
    let head = peer.response().expect("a head");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.field("Content-Type"), get.field("Content-Type"));
    // A HEAD is no listener.
    assert_eq!(stage.info("song")["listeners"], 1);
}

#[test]
fn a_listener_waits_until_the_container_is_known() {
    let mut stage = Stage::new();
    let mut source = stage.source("film", "");
    stage.feed(&mut source, &WEBM[..10]);
    let mut listener = stage.listen("film", "");
    stage.run(seconds(1));
    assert!(listener.response().is_none());
    stage.feed(&mut source, &WEBM[10..WEBM.len() / 2]);
    assert_eq!(stage.head(&mut listener).status, 200);
}

#[test]
fn listeners_of_every_worker_get_the_stream() {
    let mut stage = Stage { net: SimNet::new(7), sites: Vec::new() };
    stage.add(4, &LiveSettings::default(), &open_to_all());
    let mut source = stage.sending("song", MP3);
    let mut listeners: Vec<_> = (0..12).map(|_| stage.listen("song", "")).collect();
    for listener in &mut listeners {
        assert_eq!(stage.head(listener).status, 200);
    }
    stage.run(seconds(2));
    assert_eq!(stage.info("song")["listeners"], 12);
    assert_eq!(stage.metric("encke_live_listeners"), 12);
    assert_eq!(stage.end(&mut source).status, 200);
    for listener in &mut listeners {
        let body = stage.net.response(listener).body;
        assert!(body.ends_with(&MP3[MP3.len() - 400..]), "{} bytes", body.len());
    }
}

#[test]
fn listeners_that_leave_are_not_counted_any_more() {
    let mut stage = Stage::new();
    let _source = stage.sending("song", MP3);
    let mut listeners: Vec<_> = (0..3).map(|_| stage.listen("song", "")).collect();
    listeners.iter_mut().for_each(|listener| assert_eq!(stage.head(listener).status, 200));
    assert_eq!(stage.info("song")["listeners"], 3);
    listeners.truncate(1);
    stage.run(Duration::from_millis(10));
    assert_eq!(stage.info("song")["listeners"], 1);
}

#[test]
fn a_lost_source_ends_its_listeners_after_the_hold_time() {
    let mut stage = Stage::with(&hold(10));
    let mut source = stage.sending("song", MP3);
    let mut listener = stage.listen("song", "");
    stage.head(&mut listener);
    assert_eq!(stage.end(&mut source).status, 200);
    stage.run(seconds(8));
    assert!(!stage.head(&mut listener).is_complete, "listeners wait for another source");
    stage.run(seconds(3));
    assert!(stage.head(&mut listener).is_complete);
    assert_eq!(stage.get("song").status, 404);
}

#[test]
fn a_source_that_returns_within_the_hold_time_keeps_its_listeners() {
    let mut stage = Stage::with(&hold(10));
    let mut source = stage.sending("song", MP3);
    let mut listener = stage.listen("song", "");
    let before = stage.head(&mut listener).body.len();
    assert_eq!(stage.end(&mut source).status, 200);
    stage.run(seconds(8));
    let _source = stage.sending("song", MP3);
    stage.run(seconds(8));
    let now = stage.head(&mut listener);
    assert!(!now.is_complete && now.body.len() > before, "{} bytes, then {}", before, now.body.len());
}

#[test]
fn a_new_listener_of_a_lost_source_waits_with_the_others() {
    let mut stage = Stage::with(&hold(10));
    let mut source = stage.sending("song", MP3);
    assert_eq!(stage.end(&mut source).status, 200);
    let mut listener = stage.listen("song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
    stage.run(seconds(11));
    assert!(stage.head(&mut listener).is_complete);
}

#[test]
fn a_stream_has_as_many_listeners_as_the_limit_allows() {
    let limit = OrOff::On(NonZeroU32::new(2).expect("above 0"));
    let mut stage = Stage::with(&live(|channel| channel.listeners = limit));
    let _source = stage.sending("song", MP3);
    let mut listeners: Vec<_> = (0..3).map(|_| stage.listen("song", "")).collect();
    let statuses: Vec<u16> = listeners.iter_mut().map(|listener| stage.head(listener).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    let full = stage.get("song");
    assert_eq!((full.status, full.field("Retry-After")), (503, Some("10")));
    assert_eq!(
        full.text(),
        "the stream has as many listeners as live.channel.listeners allows: try again later\n"
    );
    drop(listeners);
    stage.run(Duration::from_millis(10));
    let mut listener = stage.listen("song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
}

#[test]
fn the_limit_of_listeners_holds_at_every_moment_of_a_second() {
    let mut stage = Stage { net: SimNet::new(7), sites: Vec::new() };
    stage.add(4, &live(|channel| channel.listeners = OrOff::On(NonZeroU32::MIN)), &open_to_all());
    let _source = stage.sending("song", MP3);
    for moment in 0..60 {
        let mut listener = stage.listen("song", "");
        assert_eq!(stage.head(&mut listener).status, 200, "moment {moment}");
        stage.run(Duration::from_millis(70));
        assert_eq!(stage.get("song").status, 503, "moment {moment}");
        drop(listener);
        stage.run(Duration::from_millis(10));
    }
}

#[test]
fn a_websocket_counts_as_a_listener_until_it_closes() {
    let mut stage = Stage::with(&live(|channel| channel.listeners = OrOff::On(NonZeroU32::MIN)));
    let _source = stage.sending("song", MP3);
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut socket = stage.listen("song", upgrade);
    assert_eq!(stage.head(&mut socket).status, 101);
    assert_eq!(stage.get("song").status, 503);
    drop(socket);
    stage.run(Duration::from_millis(10));
    // A handshake that fails takes no place.
    assert_eq!(stage.ask("GET", "song", "Upgrade: websocket\r\nConnection: Upgrade\r\n").status, 400);
    let mut listener = stage.listen("song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
}

#[test]
fn listeners_above_the_limit_are_sent_to_each_sibling_in_turn() {
    let siblings = ["http://b/live/song", "http://c/live/song"];
    let mut stage = Stage::with(&live(|channel| {
        channel.listeners = OrOff::On(NonZeroU32::MIN);
        channel.siblings = siblings.map(ToOwned::to_owned).to_vec();
    }));
    let _source = stage.sending("song", MP3);
    let mut listener = stage.listen("song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
    let mut targets: Vec<String> = Vec::new();
    for _ in 0..4 {
        let sent = stage.get("song");
        assert_eq!((sent.status, sent.field("Cache-Control")), (302, Some("no-store")));
        targets.push(sent.field("Location").expect("a sibling").to_owned());
    }
    assert_eq!(targets[..2], targets[2..]);
    assert!(siblings.iter().all(|sibling| targets.iter().any(|target| target == sibling)), "{targets:?}");
}

#[test]
fn a_page_of_another_origin_reads_a_stream_only_if_the_settings_list_it() {
    let mut stage = Stage::new();
    let _source = stage.sending("song", MP3);
    for (origin, allowed) in [("https://page.example", true), ("https://other.example", false)] {
        for target in ["song", "song?info"] {
            let mut listener = stage.listen(target, &format!("Origin: {origin}\r\n"));
            let head = stage.head(&mut listener);
            let shared = head.field("Access-Control-Allow-Origin");
            assert_eq!(shared, allowed.then_some(origin), "{target}: {}", head.head);
        }
    }
}

#[test]
fn a_browser_gets_pages_and_a_program_the_stream() {
    let mut stage = Stage::new();
    let _source = stage.sending("song", MP3);
    let html = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for target in ["", "song"] {
        let page = stage.ask("GET", target, html);
        assert_eq!(page.status, 200);
        assert!(
            page.field("Content-Type").is_some_and(|given| given.starts_with("text/html")),
            "{}",
            page.head
        );
        assert!(page.text().starts_with("<!doctype html>") || page.text().starts_with("<!DOCTYPE html>"));
    }
    let player = stage.ask("GET", "song", html);
    let policy = player.field("Content-Security-Policy").expect("a policy");
    assert!(policy.contains("media-src 'self' blob:"), "{policy}");
    for accept in ["Accept: */*\r\n", "Accept: application/json, text/html;q=0.5\r\n"] {
        let mut listener = stage.listen("song", accept);
        assert_eq!(stage.head(&mut listener).field("Content-Type"), Some("audio/mpeg"), "{accept}");
    }
}

#[test]
fn a_list_is_json_with_its_schema_and_sorted_by_name() {
    let mut stage = Stage::new();
    let _sources = ["b", "a"].map(|name| stage.sending(name, MP3));
    let list = stage.get("");
    for (name, value) in [
        ("Content-Type", "application/json"),
        ("Cache-Control", "no-store"),
        ("Vary", "Accept"),
        ("X-Content-Type-Options", "nosniff"),
    ] {
        assert!(list.head.contains(&format!("{name}: {value}\r\n")), "{}", list.head);
    }
    let json: Value = serde_json::from_slice(&list.body).expect("JSON");
    assert_eq!((&json["schema"], &json["streams"][0]["name"]), (&1.into(), &"a".into()));
    assert_eq!(json["streams"][1]["name"], "b");
    assert_eq!(stage.metric("encke_live_streams"), 2);
}

#[test]
fn a_stream_without_source_and_listeners_is_forgotten() {
    let mut stage = Stage::with(&hold(1));
    let mut source = stage.sending("song", MP3);
    assert_eq!(stage.end(&mut source).status, 200);
    stage.run(seconds(4));
    assert!(stage.sites[0].state.all().is_empty());
}

#[test]
fn a_websocket_gets_payloads_whatever_protocol_it_offers() {
    let mut stage = Stage::new();
    let _source = stage.sending("song", MP3);
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: encke.v1\r\n";
    let mut socket = stage.listen("song", upgrade);
    let head = stage.head(&mut socket);
    assert_eq!((head.status, head.field("Sec-WebSocket-Protocol")), (101, None));
    assert_eq!(head.field("Sec-WebSocket-Extensions"), None);
    let end = head.head.len();
    stage.net.until(&mut socket, |peer| (peer.received().len() > end + 100).then_some(()));
    // FIN and binary.
    assert_eq!(socket.received()[end], 0x82);
}
