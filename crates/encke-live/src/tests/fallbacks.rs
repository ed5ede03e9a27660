//! Streams that carry the messages of another one.

use super::*;

/// Settings under which `pause` replaces `song`.
fn with_fallback() -> LiveSettings {
    let channel = LiveChannelSettings {
        pattern: "song".into(),
        fallback: Some("pause".into()),
        hold: Period::seconds(5),
        ..LiveChannelSettings::default()
    };
    LiveSettings { channel: vec![channel], ..LiveSettings::default() }
}

#[test]
fn a_listener_without_source_gets_the_fallback() {
    let mut stage = Stage::with(&with_fallback());
    let mut pause = stage.sending("pause", &MP3[..8_000]);
    let mut listener = stage.listen("song", "");
    let head = stage.head(&mut listener);
    assert_eq!((head.status, head.field("Content-Type")), (200, Some("audio/mpeg")));
    stage.feed(&mut pause, &MP3[8_000..]);
    stage.run(seconds(1));
    assert!(!stage.bytes(&mut listener, 4_000).is_empty());
    assert_eq!(stage.info("song")["state"], "fallback");
}

#[test]
fn a_source_of_its_own_ends_the_fallback() {
    let mut stage = Stage::with(&with_fallback());
    let mut pause = stage.sending("pause", &MP3[..8_000]);
    let mut listener = stage.listen("song", "");
    stage.head(&mut listener);
    stage.feed(&mut pause, &MP3[8_000..]);
    stage.run(seconds(1));
    let mut source = stage.source("song", "");
    stage.feed(&mut source, MP3);
    stage.run(seconds(1));
    assert_eq!(stage.info("song")["state"], "live");
    let before = stage.head(&mut listener).body.len();
    stage.feed(&mut pause, MP3);
    stage.run(seconds(1));
    assert_eq!(stage.head(&mut listener).body.len(), before, "the fallback is not mixed in");
    assert_eq!(stage.end(&mut source).status, 200);
    assert_eq!(stage.info("song")["state"], "lost", "until the fallback begins again");
}

#[test]
fn listeners_of_a_lost_fallback_wait_for_the_hold_time() {
    let mut stage = Stage::with(&with_fallback());
    let mut pause = stage.sending("pause", &MP3[..8_000]);
    let mut listener = stage.listen("song", "");
    stage.head(&mut listener);
    stage.feed(&mut pause, &MP3[8_000..]);
    stage.run(seconds(1));
    assert_eq!(stage.end(&mut pause).status, 200);
    stage.run(seconds(3));
    assert_eq!(stage.info("song")["state"], "lost");
    assert!(!stage.head(&mut listener).is_complete);
    stage.run(seconds(3));
    assert!(stage.head(&mut listener).is_complete);
}

#[test]
fn a_stream_without_source_and_without_that_of_its_fallback_is_a_404() {
    let mut stage = Stage::with(&with_fallback());
    assert_eq!(stage.get("song").status, 404);
    let _other = stage.sending("other", MP3);
    assert_eq!(stage.get("song").status, 404);
}
