//! Sources within the program.

use super::*;
use crate::LiveFeeds;

fn feeds(stage: &Stage) -> LiveFeeds {
    let site = &stage.sites[0];
    LiveFeeds::new(&LiveSettings::default(), &site.state, site.publisher.clone())
}

#[test]
fn a_feed_is_a_source_until_it_ends() {
    let mut stage = Stage::with(&hold(1));
    let feeds = feeds(&stage);
    let mut feed = feeds.begin("song", "A\u{7}song", "audio/mpeg", stage.net.now()).expect("free");
    feed.push(MP3, stage.net.now()).expect("valid");
    stage.run(seconds(1));
    let info = stage.info("song");
    assert_eq!((&info["title"], &info["codecs"]), (&"Asong".into(), &"mp3".into()));
    let mut listener = stage.listen("song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
    feed.end(stage.net.now());
    let body = stage.net.response(&mut listener).body;
    assert!(body.ends_with(&MP3[MP3.len() - 400..]), "{} bytes", body.len());
}

#[test]
fn a_feed_is_rejected_with_a_reason() {
    let mut stage = Stage::new();
    let _source = stage.sending("song", MP3);
    let feeds = feeds(&stage);
    let error = |name: &str| match feeds.begin(name, "", "audio/mpeg", stage.net.now()) {
        Ok(_) => panic!("{name}: a feed"),
        Err(error) => error.to_string(),
    };
    assert_eq!(error("a//b"), "the name of the stream is invalid");
    assert!(error("song").starts_with("the stream has a source already: "), "{}", error("song"));
}

#[test]
fn a_feed_that_another_source_replaces_gets_an_error() {
    let mut stage = Stage::new();
    let mut feed = feeds(&stage).begin("song", "", "audio/mpeg", stage.net.now()).expect("free");
    feed.push(&MP3[..8_000], stage.net.now()).expect("valid");
    let mut source = stage.source("song?takeover", "");
    stage.feed(&mut source, MP3);
    stage.run(seconds(1));
    let error = feed.push(&MP3[8_000..], stage.net.now()).expect_err("replaced");
    assert_eq!(error.to_string(), "another source has taken over the stream");
}

#[test]
fn a_feed_that_is_dropped_gives_up_its_stream() {
    let mut stage = Stage::new();
    let feeds = feeds(&stage);
    drop(feeds.begin("song", "", "audio/mpeg", stage.net.now()).expect("free"));
    let mut source = stage.source("song", "");
    stage.feed(&mut source, MP3);
    assert_eq!(stage.end(&mut source).status, 200);
}
