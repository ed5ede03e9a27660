//! Streams that are fetched from another simulated server.

use std::num::NonZeroU32;

use encke_push::testing::{AuthSettings, StaticToken};
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

/// The requests that a stub of a server has received.
type Asked = Arc<std::sync::Mutex<Vec<String>>>;

/// A server that pulls from a stub in its network, which responds to each request by its number.
fn with_stub(reply: impl Fn(usize) -> encke_server::Reply + Clone + Send + Sync + 'static) -> (Stage, Asked) {
    with_stub_at([10, 0, 1, 1], reply)
}

fn with_stub_at(
    ip: [u8; 4],
    reply: impl Fn(usize) -> encke_server::Reply + Clone + Send + Sync + 'static,
) -> (Stage, Asked) {
    let at = SocketAddr::from((ip, 80));
    let asked = Asked::default();
    let record = Arc::clone(&asked);
    let stub = move |request: &encke_server::Request<'_>, _: encke_server::Exchange| {
        let field = |name: &str| String::from_utf8_lossy(request.field(name).unwrap_or(b"-")).into_owned();
        let path = String::from_utf8_lossy(request.path());
        let fields = ["host", "user-agent", "accept", "encke-hops", "authorization"].map(field).join(" | ");
        let mut asked = encke_io::lock(&record);
        asked.push(format!("{path} | {fields}"));
        encke_server::Outcome::Now(reply(asked.len()))
    };
    let mut stage = Stage { net: SimNet::new(7), sites: Vec::new() };
    let token = Some(Secret::Text("token-1".into()));
    let pull = vec![PullSettings { url: format!("http://{at}/live/"), token }];
    stage.add(1, &live(|channel| channel.pull = pull), &open_to_all());
    stage.net.start(at, 1, vec![("/".into(), Arc::new(stub))]);
    (stage, asked)
}

fn redirect(to: &str) -> encke_server::Reply {
    encke_server::Reply::new(302).with("Location", to)
}

/// Sends a listener to the server, and returns the text of its 502.
fn failure(stage: &mut Stage) -> String {
    let rejected = stage.get("song");
    assert_eq!(rejected.status, 502, "{}", rejected.text());
    rejected.text()
}

#[test]
fn a_pull_is_a_request_with_the_nodes_and_the_token() {
    let (mut stage, asked) = with_stub(|_| encke_server::Reply::error(404));
    let mut listener = stage.listen("song", "Encke-Hops: other\r\n");
    assert_eq!(stage.net.response(&mut listener).status, 502);
    let node = stage.sites[0].state.node().to_owned();
    let first = encke_io::lock(&asked)[0].clone();
    assert_eq!(first, format!("/live/song | 10.0.1.1 | encke | */* | other, {node} | Bearer token-1"));
}

#[test]
fn failed_attempts_are_a_pause_apart() {
    let (mut stage, asked) = with_stub(|_| encke_server::Reply::error(503));
    assert_eq!(failure(&mut stage), "the stream cannot be pulled: status 503\n");
    stage.run(seconds(10));
    let count = encke_io::lock(&asked).len();
    assert!((1..=3).contains(&count), "{count} attempts");
}

#[test]
fn the_error_of_a_pull_is_given_to_new_listeners_for_two_seconds() {
    let (mut stage, asked) = with_stub(|_| encke_server::Reply::error(503));
    failure(&mut stage);
    let before = encke_io::lock(&asked).len();
    failure(&mut stage);
    assert_eq!(encke_io::lock(&asked).len(), before, "no further attempt");
}

#[test]
fn a_redirection_on_the_same_server_keeps_the_token() {
    let (mut stage, asked) = with_stub(|number| match number {
        1 => redirect("http://10.0.1.1/live/other"),
        _ => encke_server::Reply::error(404),
    });
    failure(&mut stage);
    let asked = encke_io::lock(&asked).clone();
    assert!(asked[1].starts_with("/live/other | ") && asked[1].ends_with("Bearer token-1"), "{asked:?}");
}

#[test]
fn a_redirection_leads_no_further_inside_than_its_server() {
    for (server, to) in [
        ([203, 0, 113, 1], "http://10.0.0.9/private"),
        ([203, 0, 113, 1], "http://127.0.0.1/private"),
        ([203, 0, 113, 1], "http://169.254.169.254/private"),
        ([203, 0, 113, 1], "http://[::ffff:10.0.0.9]/private"),
        ([10, 0, 1, 1], "http://127.0.0.1/private"),
        ([10, 0, 1, 1], "http://localhost/private"),
    ] {
        let (mut stage, asked) = with_stub_at(server, move |_| redirect(to));
        let expected = "the stream cannot be pulled: the server redirects to an internal address\n";
        assert_eq!(failure(&mut stage), expected, "{to}");
        let asked = encke_io::lock(&asked).clone();
        assert!(asked.iter().all(|request| request.starts_with("/live/song | ")), "{asked:?}");
    }
}

#[test]
fn a_redirection_out_of_a_network_and_within_it_is_followed() {
    for at in ["10.0.0.9:80", "203.0.113.1:80"] {
        let (mut stage, _) = with_stub(move |_| redirect(&format!("http://{at}/song")));
        let other = |_: &encke_server::Request<'_>, _: encke_server::Exchange| {
            encke_server::Outcome::Now(
                encke_server::Reply::new(200)
                    .with("Content-Type", "audio/mpeg")
                    .body(encke_server::Body::Bytes(MP3.to_vec())),
            )
        };
        stage.net.start(at.parse().expect("an address"), 1, vec![("/".into(), Arc::new(other))]);
        let mut listener = stage.listen("song", "");
        assert_eq!(stage.head(&mut listener).status, 200, "{at}");
    }
}

#[test]
fn three_redirections_in_a_row_are_followed() {
    let (mut stage, asked) = with_stub(|number| redirect(&format!("http://10.0.1.1/live/{number}")));
    assert_eq!(failure(&mut stage), "the stream cannot be pulled: too many redirections in a row\n");
    let paths: Vec<String> = encke_io::lock(&asked)
        .iter()
        .map(|one| one.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(paths[..4], ["/live/song", "/live/1", "/live/2", "/live/3"]);
    assert!(!paths.contains(&"/live/4".to_owned()), "{paths:?}");
}

#[test]
fn a_response_that_is_no_stream_is_a_502_with_its_reason() {
    for (status, location, text) in [
        (302, None, "status 302 without an http:// or https:// URL as Location"),
        (302, Some("ftp://a/b"), "status 302 without an http:// or https:// URL as Location"),
        (401, None, "status 401: the server requires another token, see live.channel.pull"),
        (403, None, "status 403: the server requires another token, see live.channel.pull"),
        (508, None, "status 508: the nodes pull from each other, a loop"),
        (500, None, "status 500"),
    ] {
        let (mut stage, _) = with_stub(move |_| {
            let reply = encke_server::Reply::error(status);
            match location {
                Some(location) => reply.with("Location", location),
                None => reply,
            }
        });
        assert_eq!(failure(&mut stage), format!("the stream cannot be pulled: {text}\n"), "{status}");
    }
}
