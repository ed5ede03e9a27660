//! Streams that are fetched from another simulated server.

use std::num::NonZeroU32;

use encke_rights::{AuthSettings, StaticToken};
use encke_settings::Secret;

use super::*;
use crate::PullSettings;

/// Settings that pull all streams from server 0.
fn pulling(token: Option<&str>) -> LiveSettings {
    let url = format!("http://{}/live/", address(0));
    let token = token.map(|token| Secret::Text(token.into()));
    live(|channel| channel.pull = vec![PullSettings { url, token }])
}

/// Server 0 has the sources; server 1 pulls them.
fn pair() -> Stage {
    let mut stage = Stage::new();
    stage.add(1, &pulling(None), &open_to_all());
    stage
}

#[test]
fn a_stream_without_source_is_pulled_for_its_listener() {
    let mut stage = pair();
    let mut source = stage.source("song", "Ice-Name: Sea\r\n");
    stage.feed(&mut source, &MP3[..8_000]);
    stage.run(seconds(1));
    let mut listener = stage.listen_at(1, "song", "");
    let head = stage.head(&mut listener);
    assert_eq!((head.status, head.field("Content-Type")), (200, Some("audio/mpeg")), "{}", head.text());
    assert_eq!(head.field("Icy-Name"), Some("Sea"));
    stage.feed(&mut source, &MP3[8_000..]);
    stage.run(seconds(1));
    let body = stage.head(&mut listener).body;
    assert!(body.len() > 8_000 && MP3.windows(400).any(|part| part == &body[body.len() - 400..]));
}

#[test]
fn one_pull_serves_all_listeners() {
    let mut stage = pair();
    let _source = stage.sending("song", MP3);
    let mut listeners: Vec<_> = (0..4).map(|_| stage.listen_at(1, "song", "")).collect();
    listeners.iter_mut().for_each(|listener| assert_eq!(stage.head(listener).status, 200));
    stage.run(seconds(2));
    assert_eq!(stage.info("song")["listeners"], 1, "server 0 has one listener: the pull");
}

#[test]
fn a_pull_ends_30_s_after_its_last_listener() {
    let mut stage = pair();
    let mut source = stage.sending("song", MP3);
    let mut listener = stage.listen_at(1, "song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
    drop(listener);
    let mut listeners = Vec::new();
    for _ in 0..35 {
        // A pull without bytes would end after 10 s of silence.
        stage.feed(&mut source, &MP3[..418]);
        stage.run(seconds(1));
        listeners.push(stage.info("song")["listeners"].as_u64().expect("a number"));
    }
    assert_eq!(listeners[25..28], [1; 3], "{listeners:?}");
    assert_eq!(listeners[34], 0, "{listeners:?}");
}

#[test]
fn a_stream_that_cannot_be_pulled_is_a_502_with_its_reason() {
    let mut stage = pair();
    let mut listener = stage.listen_at(1, "absent", "");
    let rejected = stage.net.response(&mut listener);
    assert_eq!((rejected.status, rejected.field("Retry-After")), (502, Some("5")));
    assert_eq!(rejected.text(), "the stream cannot be pulled: status 404\n");
}

#[test]
fn a_server_that_is_not_there_is_a_502() {
    let mut stage = Stage::new();
    let url = "http://10.9.9.9:80/live/".to_owned();
    stage.add(1, &live(|channel| channel.pull = vec![PullSettings { url, token: None }]), &open_to_all());
    let mut listener = stage.listen_at(1, "song", "");
    let rejected = stage.net.response(&mut listener);
    assert_eq!(rejected.status, 502);
    assert!(rejected.text().starts_with("the stream cannot be pulled: "), "{}", rejected.text());
    assert!(!rejected.text().contains("10.9.9.9"), "an address is for operators: {}", rejected.text());
}

#[test]
fn the_token_of_the_settings_opens_the_other_server() {
    const TOKEN: &str = "reader-0123456789";
    let token = StaticToken {
        token: Secret::Text(TOKEN.into()),
        name: None,
        publish: vec!["live/**".into()],
        subscribe: vec!["live/**".into()],
        presence: Vec::new(),
        manage: Vec::new(),
    };
    let auth = AuthSettings { tokens: vec![token], ..AuthSettings::default() };
    let mut stage = Stage { net: SimNet::new(7), sites: Vec::new() };
    stage.add(1, &LiveSettings::default(), &auth);
    for token in [Some(TOKEN), None] {
        stage.add(1, &pulling(token), &open_to_all());
    }
    let mut source = stage.source("song", &format!("Authorization: Bearer {TOKEN}\r\n"));
    stage.feed(&mut source, MP3);
    stage.run(seconds(1));
    let mut listener = stage.listen_at(1, "song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
    let mut listener = stage.listen_at(2, "song", "");
    let rejected = stage.net.response(&mut listener);
    assert_eq!(
        (rejected.status, &*rejected.text()),
        (
            502,
            "the stream cannot be pulled: status 401: the server requires another token, see live.channel.pull\n"
        )
    );
}

#[test]
fn a_pulled_stream_names_the_nodes_that_it_has_passed() {
    let mut stage = pair();
    let _source = stage.sending("song", MP3);
    let mut relay = stage.listen_at(1, "song", "Encke-Hops: other\r\n");
    let head = stage.head(&mut relay);
    let nodes = [0, 1].map(|server: usize| stage.sites[server].state.node().to_owned());
    assert_eq!(head.status, 200, "{}", head.text());
    assert_eq!(head.field("Encke-Hops"), Some(&*nodes.join(", ")));
}

#[test]
fn a_request_that_has_passed_this_node_is_a_508() {
    let mut stage = pair();
    let _source = stage.sending("song", MP3);
    let node = stage.sites[0].state.node().to_owned();
    let rejected = stage.ask("GET", "song", &format!("Encke-Hops: other, {node}\r\n"));
    assert_eq!(
        (rejected.status, &*rejected.text()),
        (508, "the nodes pull this stream from each other: a loop\n")
    );
    let chain = (0..16).map(|hop| format!("node-{hop}")).collect::<Vec<_>>().join(", ");
    assert_eq!(stage.ask("GET", "song", &format!("Encke-Hops: {chain}\r\n")).status, 508, "too long");
}

#[test]
fn two_servers_that_pull_from_each_other_end_the_loop() {
    let mut stage = Stage { net: SimNet::new(7), sites: Vec::new() };
    for other in [1, 0] {
        let url = format!("http://{}/live/", address(other));
        let settings = live(|channel| channel.pull = vec![PullSettings { url, token: None }]);
        stage.add(1, &settings, &open_to_all());
    }
    let mut listener = stage.listen("song", "");
    let rejected = stage.net.response(&mut listener);
    assert_eq!(rejected.status, 502);
    assert!(rejected.text().starts_with("the stream cannot be pulled: status 50"), "{}", rejected.text());
}

#[test]
fn further_streams_than_the_limit_are_a_502() {
    let mut stage = Stage::new();
    let settings = LiveSettings { pulls: NonZeroU32::MIN, ..pulling(None) };
    stage.add(1, &settings, &open_to_all());
    let _sources = ["a", "b"].map(|name| stage.sending(name, MP3));
    let mut first = stage.listen_at(1, "a", "");
    assert_eq!(stage.head(&mut first).status, 200);
    let mut second = stage.listen_at(1, "b", "");
    let rejected = stage.net.response(&mut second);
    assert_eq!(rejected.status, 502);
    assert_eq!(rejected.text(), "the server fetches as many streams as live.pulls allows\n");
}

#[test]
fn a_pull_goes_on_when_the_source_returns() {
    let mut stage = pair();
    let mut source = stage.sending("song", MP3);
    let mut listener = stage.listen_at(1, "song", "");
    stage.head(&mut listener);
    assert_eq!(stage.end(&mut source).status, 200);
    stage.run(seconds(12));
    let before = stage.head(&mut listener).body.len();
    let mut source = stage.source("song", "");
    for _ in 0..6 {
        stage.feed(&mut source, MP3);
        stage.run(seconds(1));
    }
    let now = stage.head(&mut listener);
    assert!(!now.is_complete && now.body.len() > before, "{before} bytes, then {}", now.body.len());
}

#[test]
fn a_source_of_its_own_is_refused_beside_a_pull_that_delivers() {
    let mut stage = pair();
    let _source = stage.sending("song", MP3);
    let mut listener = stage.listen_at(1, "song", "");
    assert_eq!(stage.head(&mut listener).status, 200);
    let mut own = stage.source_at(1, "song", "");
    assert_eq!(stage.net.response(&mut own).status, 409);
}
