//! Requests of sources.

use encke_push::testing::{AuthSettings, StaticToken};
use encke_settings::Secret;

use super::*;

const CAMERA: &str = "camera-0123456789";
const READER: &str = "reader-0123456789";

fn token(token: &str, publish: &str, subscribe: &str) -> StaticToken {
    let patterns = |pattern: &str| if pattern.is_empty() { Vec::new() } else { vec![pattern.to_owned()] };
    StaticToken {
        token: Secret::Text(token.into()),
        name: None,
        publish: patterns(publish),
        subscribe: patterns(subscribe),
        presence: Vec::new(),
        manage: Vec::new(),
    }
}

/// A server on which a camera may send, and a reader may receive one stream.
fn guarded() -> Stage {
    let auth = AuthSettings {
        tokens: vec![token(CAMERA, "live/**", ""), token(READER, "", "live/song")],
        ..AuthSettings::default()
    };
    let mut stage = Stage { net: SimNet::new(7), sites: Vec::new() };
    stage.add(1, &LiveSettings::default(), &auth);
    stage
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_source_that_ends_gets_a_200() {
    let mut stage = Stage::new();
    let mut source = stage.sending("song", MP3);
    let end = stage.end(&mut source);
    assert_eq!((end.status, &*end.text()), (200, "the stream has ended\n"));
    assert_eq!(end.field("Cache-Control"), Some("no-store"));
}

#[test]
fn a_source_with_a_length_ends_with_its_last_byte() {
    let mut stage = Stage::new();
    let head = format!("POST /live/song HTTP/1.1\r\nHost: sim\r\nContent-Length: {}\r\n\r\n", MP3.len());
    let end = stage.net.ask(0, [head.as_bytes(), MP3].concat());
    assert_eq!((end.status, &*end.text()), (200, "the stream has ended\n"));
}

#[test]
fn a_second_source_is_rejected_while_the_first_sends() {
    let mut stage = Stage::new();
    let mut first = stage.sending("song", MP3);
    let mut second = stage.source("song", "");
    let rejected = stage.net.response(&mut second);
    assert_eq!(rejected.status, 409);
    assert_eq!(
        rejected.text(),
        "/live/song: the stream has a source already: end it, or add ?takeover to the address to replace it\n"
    );
    assert_eq!(rejected.field("Connection"), Some("close"));
    assert_eq!(stage.metric("encke_live_sources_refused_total"), 1);
    assert_eq!(stage.end(&mut first).status, 200);
}

#[test]
fn a_takeover_ends_the_first_source_with_a_409() {
    let mut stage = Stage::new();
    let mut first = stage.sending("song", MP3);
    let mut second = stage.source("song?takeover", "");
    stage.feed(&mut second, MP3);
    let end = stage.net.response(&mut first);
    assert_eq!((end.status, &*end.text()), (409, "another source has taken over the stream\n"));
    assert_eq!(stage.end(&mut second).status, 200);
    assert_eq!(stage.metric("encke_live_sources_refused_total"), 0);
}

#[test]
fn a_takeover_of_a_stream_without_source_is_an_ordinary_begin() {
    let mut stage = Stage::new();
    let mut source = stage.source("song?takeover", "");
    stage.feed(&mut source, MP3);
    assert_eq!(stage.end(&mut source).status, 200);
}

#[test]
fn a_listener_continues_after_a_takeover() {
    let mut stage = Stage::new();
    let mut first = stage.sending("song", &MP3[..8_000]);
    let mut listener = stage.listen("song", "");
    let before = stage.head(&mut listener).body.len();
    let mut second = stage.source("song?takeover", "");
    stage.feed(&mut second, MP3);
    assert_eq!(stage.net.response(&mut first).status, 409);
    stage.run(seconds(1));
    assert_eq!(stage.end(&mut second).status, 200);
    let body = stage.net.response(&mut listener).body;
    assert!(body.len() > before + MP3.len() / 2 && body.ends_with(&MP3[MP3.len() - 400..]), "{}", body.len());
}

#[test]
fn a_request_without_a_length_is_no_source() {
    let mut stage = Stage::new();
    let next = "GET /live/ HTTP/1.1\r\nHost: sim\r\n\r\n";
    for method in ["PUT", "POST"] {
        let request = format!("{method} /live/film HTTP/1.1\r\nHost: sim\r\n\r\n{next}");
        let mut peer = stage.net.open(0, request.as_bytes());
        let rejected = stage.net.response(&mut peer);
        assert_eq!(rejected.status, 411, "{method}");
        assert_eq!(
            rejected.text(),
            "a source needs a body of unknown length (Transfer-Encoding: chunked) or a Content-Length\n"
        );
        stage.net.until(&mut peer, |peer| peer.is_closed().then_some(()));
        assert!(peer.received().is_empty(), "{method}: a request in the body has a response");
    }
}

#[test]
fn a_source_needs_the_right_to_publish() {
    let mut stage = guarded();
    let wrong = bearer("wrong-0123456789");
    for (fields, status) in [(String::new(), 401), (wrong, 401), (bearer(READER), 403)] {
        let mut source = stage.source("song", &fields);
        let rejected = stage.net.response(&mut source);
        assert_eq!(rejected.status, status, "{fields:?}: {}", rejected.text());
        let challenge = rejected.head.contains("WWW-Authenticate: Basic realm=\"live streams\"\r\n");
        assert_eq!(challenge, status == 401, "{}", rejected.head);
    }
    let mut source = stage.source("song", &bearer(CAMERA));
    stage.feed(&mut source, MP3);
    assert_eq!(stage.end(&mut source).status, 200);
}

#[test]
fn a_program_may_send_its_token_as_a_password() {
    let mut stage = guarded();
    // camera:camera-0123456789
    let mut source = stage.source("song", "Authorization: Basic Y2FtZXJhOmNhbWVyYS0wMTIzNDU2Nzg5\r\n");
    stage.feed(&mut source, MP3);
    assert_eq!(stage.end(&mut source).status, 200);
}

#[test]
fn a_listener_needs_the_right_to_subscribe() {
    let mut stage = guarded();
    let mut source = stage.source("song", &bearer(CAMERA));
    stage.feed(&mut source, MP3);
    stage.run(seconds(1));
    for (fields, status) in [(String::new(), 401), (bearer(CAMERA), 403), (bearer(READER), 200)] {
        let mut listener = stage.listen("song", &fields);
        assert_eq!(stage.head(&mut listener).status, status, "{fields:?}");
        let mut info = stage.listen("song?info", &fields);
        assert_eq!(stage.net.response(&mut info).status, status, "{fields:?}");
    }
}

#[test]
fn a_list_has_only_the_streams_that_its_client_may_read() {
    let mut stage = guarded();
    let mut sources = ["song", "film"].map(|name| stage.source(name, &bearer(CAMERA)));
    for source in &mut sources {
        stage.feed(source, MP3);
    }
    stage.run(seconds(1));
    let names = |response: &SimResponse| {
        let list: Value = serde_json::from_slice(&response.body).expect("JSON");
        let streams = list["streams"].as_array().expect("a list").clone();
        streams.iter().map(|stream| stream["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let reader = stage.ask("GET", "", &bearer(READER));
    assert_eq!(names(&reader), ["song"]);
    assert_eq!(names(&stage.get("")), Vec::<String>::new());
}

#[test]
fn bytes_that_are_not_valid_in_their_container_end_the_source_with_a_415() {
    let mut stage = Stage::new();
    let mp4 = include_bytes!("../../../encke-wire/tests/media/h264-aac.mp4");
    let mut source = stage.source("film", "");
    stage.feed(&mut source, &[&mp4[..100], &[0; 2_000]].concat());
    let rejected = stage.net.response(&mut source);
    assert_eq!(rejected.status, 415, "{}", rejected.text());
    assert_eq!(rejected.field("Connection"), Some("close"));
    // The stream is free again.
    let mut source = stage.source("film", "");
    stage.feed(&mut source, WEBM);
    assert_eq!(stage.end(&mut source).status, 200);
}

#[test]
fn the_bytes_decide_the_container_whatever_type_is_given() {
    let mut stage = Stage::new();
    for (name, content_type, container, shown) in [
        ("a", "video/webm", "webm", "video/webm"),
        ("b", "application/octet-stream", "webm", "video/webm"),
        ("c", "text/plain", "webm", "video/webm"),
    ] {
        let mut source = stage.source(name, &format!("Content-Type: {content_type}\r\n"));
        stage.feed(&mut source, &WEBM[..WEBM.len() / 2]);
        stage.run(seconds(1));
        let info = stage.info(name);
        assert_eq!((&info["container"], &info["type"]), (&container.into(), &shown.into()), "{content_type}");
    }
}

#[test]
fn bytes_of_no_known_container_are_relayed_unchanged() {
    let mut stage = Stage::new();
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8 & 0x7f).collect();
    let mut source = stage.source("raw", "Content-Type: application/x-own\r\n");
    stage.feed(&mut source, &bytes[..100_000]);
    stage.run(seconds(1));
    let mut listener = stage.listen("raw", "");
    let head = stage.head(&mut listener);
    assert_eq!((head.status, head.field("Content-Type")), (200, Some("application/octet-stream")));
    assert_eq!(stage.info("raw")["container"], "unknown");
    stage.feed(&mut source, &bytes[100_000..]);
    stage.run(seconds(1));
    assert_eq!(stage.end(&mut source).status, 200);
    let body = stage.net.response(&mut listener).body;
    assert!(body.len() >= 100_000 && bytes.ends_with(&body), "{} bytes", body.len());
}

#[test]
fn a_source_that_disconnects_is_lost_and_may_return() {
    let mut stage = Stage::new();
    let source = stage.sending("song", MP3);
    assert_eq!(stage.info("song")["state"], "live");
    source.reset();
    stage.run(seconds(1));
    assert_eq!(stage.info("song")["state"], "lost");
    assert_eq!(stage.metric("encke_live_sources_ended_total"), 1);
    let _source = stage.sending("song", MP3);
    assert_eq!(stage.info("song")["state"], "live");
    assert_eq!(stage.metric("encke_live_sources_total"), 2);
}

#[test]
fn an_operator_ends_a_source_with_a_403() {
    let mut stage = Stage::new();
    let mut source = stage.sending("song", MP3);
    let name = encke_push::Name::parse(b"live/song").expect("a name");
    let stream = stage.sites[0].state.find(&name).expect("known");
    let notice = {
        let inner = encke_io::lock(&stream.inner);
        Arc::clone(&inner.source.as_ref().expect("a source").notice)
    };
    notice.is_stopped.store(true, std::sync::atomic::Ordering::Release);
    (notice.wake)();
    let end = stage.net.response(&mut source);
    assert_eq!((end.status, &*end.text()), (403, "an operator has ended the source\n"));
    assert_eq!(stage.info("song")["state"], "lost");
}

#[test]
fn clients_cannot_publish_to_a_stream_beside_its_source() {
    let mut stage = Stage::new();
    let post = "POST /push/live/song HTTP/1.1\r\nHost: sim\r\nContent-Length: 1\r\n\r\nx";
    let rejected = stage.net.ask(0, post);
    assert_eq!(rejected.status, 403, "{}", rejected.text());
}

#[test]
fn the_prefix_itself_takes_no_source() {
    let mut stage = Stage::new();
    let mut source = stage.source("", "");
    let rejected = stage.net.response(&mut source);
    assert_eq!(
        (rejected.status, &*rejected.text()),
        (400, "the path names no channel: send a source to /live/NAME\n")
    );
}

#[test]
fn other_methods_are_a_405_with_the_allowed_ones() {
    let mut stage = Stage::new();
    let rejected = stage.ask("DELETE", "song", "");
    assert_eq!(rejected.status, 405);
    assert_eq!(rejected.field("Allow"), Some("GET, HEAD, POST, PUT, OPTIONS"));
}

#[test]
fn an_invalid_name_is_a_400() {
    let mut stage = Stage::new();
    let rejected = stage.get("a//b");
    assert_eq!(rejected.status, 400);
    assert!(rejected.text().starts_with("channel \"a//b\": "), "{}", rejected.text());
}

#[test]
fn the_connection_of_a_source_serves_the_next_request() {
    let mut stage = Stage::new();
    let mut source = stage.sending("song", MP3);
    stage.net.send(&mut source, &[LAST_CHUNK, b"GET /live/ HTTP/1.1\r\nHost: sim\r\n\r\n"].concat());
    let statuses = [0; 2].map(|_: i32| stage.net.response(&mut source).status);
    assert_eq!(statuses, [200, 200]);
}

#[test]
fn the_bytes_and_the_title_of_a_source_are_described() {
    let mut stage = Stage::new();
    let mut source = stage.source("sea", "Ice-Name:  Sea at night \r\nUser-Agent: cam/1\r\n");
    stage.feed(&mut source, WEBM);
    stage.run(seconds(1));
    let info = stage.info("sea");
    let wanted = serde_json::json!({
        "name": "sea", "title": "Sea at night", "state": "live", "listeners": 0, "container": "webm",
        "type": "video/webm", "video": true, "codecs": "vp8, vorbis", "gaps": 0
    });
    for (key, value) in wanted.as_object().expect("an object") {
        assert_eq!(info[key], *value, "{key}");
    }
    let interval_s = info["key_interval_s"].as_f64().expect("a number");
    assert!((0.5..2.0).contains(&interval_s), "{interval_s}");
    assert!(info.get("source").is_none() && info.get("program").is_none(), "for operators alone: {info}");
    assert_eq!(stage.metric("encke_live_source_bytes_total"), WEBM.len() as u64);
}

#[test]
fn a_pause_of_the_source_is_counted_for_operators() {
    let mut stage = Stage::new();
    let mut source = stage.sending("song", &MP3[..8_000]);
    stage.run(seconds(3));
    stage.feed(&mut source, &MP3[8_000..]);
    stage.run(seconds(1));
    let name = encke_push::Name::parse(b"live/song").expect("a name");
    let stream = stage.sites[0].state.find(&name).expect("known");
    let inner = encke_io::lock(&stream.inner);
    let card = inner.source.as_ref().expect("a source");
    assert_eq!(card.pauses.count, 1);
    assert!(card.pauses.longest_ns >= 3_000_000_000, "{:?}", card.pauses);
}

#[test]
fn a_source_that_returns_from_a_long_silence_begins_again_with_its_head() {
    let mut stage = Stage::with(&live(|channel| channel.time = Period::seconds(5)));
    let (half, rest) = WEBM.split_at(WEBM.len() / 2);
    let mut source = stage.sending("film", half);
    stage.run(seconds(8));
    stage.feed(&mut source, rest);
    stage.run(seconds(1));
    let mut listener = stage.listen("film", "");
    assert_eq!(stage.bytes(&mut listener, 200)[..200], WEBM[..200]);
}

#[test]
fn after_a_long_silence_pieces_are_dropped_up_to_a_key_frame() {
    let ts: &[u8] = include_bytes!("../../../encke-wire/tests/media/h264-aac.ts");
    let mut stage = Stage::with(&live(|channel| channel.time = Period::seconds(5)));
    let mut source = stage.source("film", "");
    let mut dropped = Vec::new();
    for part in ts.chunks(188 * 20) {
        stage.feed(&mut source, part);
        // A silence after each part.
        stage.run(seconds(6));
        dropped.push(stage.metric("encke_live_dropped_pieces_total"));
    }
    // A part with a key frame drops nothing after it.
    assert_eq!(dropped, [0, 1, 2, 2, 3, 4, 4, 5, 6, 6]);
}

#[test]
fn frames_of_sound_are_gathered_for_a_quarter_of_a_second() {
    let mut stage = Stage::new();
    let mut source = stage.sending("song", &MP3[..8_000]);
    let mut listener = stage.listen("song", "");
    stage.head(&mut listener);
    stage.feed(&mut source, &MP3[8_000..10_000]);
    stage.run(Duration::from_millis(20));
    let passed = stage.head(&mut listener).body.len();
    stage.feed(&mut source, &MP3[10_000..12_000]);
    stage.run(Duration::from_millis(200));
    assert_eq!(stage.head(&mut listener).body.len(), passed, "220 ms after the last frames");
    stage.run(Duration::from_millis(50));
    assert!(stage.head(&mut listener).body.len() > passed + 1_000, "270 ms after the last frames");
}

#[test]
fn frames_are_passed_on_at_once_without_a_gather_time() {
    let mut stage =
        Stage::with(&live(|channel| channel.gather = encke_settings::OrAuto::Set(Period::seconds(0))));
    let mut source = stage.sending("song", &MP3[..8_000]);
    let mut listener = stage.listen("song", "");
    stage.head(&mut listener);
    for end in [10_000, 12_000] {
        let before = stage.head(&mut listener).body.len();
        stage.feed(&mut source, &MP3[end - 2_000..end]);
        stage.run(Duration::from_millis(10));
        assert!(stage.head(&mut listener).body.len() > before + 1_000);
    }
}
