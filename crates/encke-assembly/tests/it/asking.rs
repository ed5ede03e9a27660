//! Authorization requests to an application (`auth.ask`).

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};

use encke_assembly::settings::{AuthSettings, PushSettings};
use encke_site::{Site, SiteSettings};

use super::push_clients::handshake;
use crate::rig::{Answer, Client, Folder, Rig, Stand};
use crate::rig::{Channels as _, Reloads as _};

on_every_back_end! {
    a_hanging_authorization_endpoint_delays_no_file,
}

on_two_stands! {
    authorization_requests_beyond_the_queue_get_503,
    a_right_removed_during_an_authorization_request_is_gone,
}

/// The server is open to requests from this machine, unless they come through a proxy.
const PROXIED: &str = "Via: 1.1 proxy\r\n";

/// Limits of a worker in these tests: concurrent questions, and as many in the queue.
const LIMIT: usize = 4;

/// Starts a server with a directory and channels, and its authorization endpoint, which never responds.
fn serve(on: Stand, folder: &Folder) -> (Rig, TcpListener) {
    let endpoint = TcpListener::bind("127.0.0.1:0").expect("a free port");
    endpoint.set_nonblocking(true).expect("our own socket");
    let url = format!("http://{}/may", endpoint.local_addr().expect("bound"));
    let auth = AuthSettings {
        anonymous: Vec::new(),
        ask: Some(url.parse().expect("a URL")),
        ask_connections: NonZeroU16::MIN.saturating_add(LIMIT as u16 - 1),
        ask_queue: NonZeroU16::MIN.saturating_add(LIMIT as u16 - 1),
        ..AuthSettings::default()
    };
    let site = SiteSettings { root: folder.path().to_owned(), list: true, ..SiteSettings::default() };
    let site = Site::new(&[site], Vec::new()).expect("a readable directory");
    let rig = on.serve(|server| {
        server.mount("/", site).push(&PushSettings::default(), &auth).expect("valid settings")
    });
    (rig, endpoint)
}

/// Accepts the next authorization request.
fn accept(rig: &Rig, endpoint: &TcpListener) -> TcpStream {
    let mut accepted = None;
    rig.wait(
        || {
            accepted = endpoint.accept().ok();
            accepted.is_some()
        },
        "an authorization request",
    );
    accepted.expect("it has come").0
}

fn a_right_removed_during_an_authorization_request_is_gone(on: Stand) {
    for websocket in [false, true] {
        let folder = Folder::new();
        let (rig, endpoint) = serve(on, &folder);
        let mut client = rig.client();
        client.send(if websocket {
            handshake("/push/news", PROXIED)
        } else {
            format!("GET /push/news?as=sse HTTP/1.1\r\nHost: localhost\r\n{PROXIED}\r\n")
        });
        let mut asked = accept(&rig, &endpoint);
        let shut = AuthSettings { anonymous: Vec::new(), ..AuthSettings::default() };
        let push = PushSettings { origins: vec!["https://a.example".into()], ..PushSettings::default() };
        rig.running().reload_push(&push, &shut).expect("valid settings");
        let preflight = "OPTIONS /push/news HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\n\r\n";
        let reloaded = || rig.client().ask(preflight).field("Access-Control-Allow-Origin").is_some();
        rig.wait(reloaded, "the new settings");
        asked.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the server waits");
        let answer = client.answer();
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
}

fn a_hanging_authorization_endpoint_delays_no_file(on: Stand) {
    let folder = Folder::new().with("sub/file.txt", "hello");
    let (rig, endpoint) = serve(on, &folder);
    let mut waiting = Vec::new();
    let hanging: Vec<TcpStream> = (0..LIMIT)
        .map(|number| {
            let mut client = rig.client();
            client.send(format!("GET /push/channel-{number} HTTP/1.1\r\nHost: localhost\r\n{PROXIED}\r\n"));
            waiting.push(client);
            accept(&rig, &endpoint)
        })
        .collect();
    // The thread pool reads directories: a cached file would not need it.
    let listing = rig.client().get("/sub/");
    assert_eq!(listing.status, 200);
    assert!(listing.text().contains("file.txt"));
    drop(hanging);
    for client in &mut waiting {
        assert_eq!(client.answer().status, 503, "the endpoint has closed without a response");
    }
}

fn authorization_requests_beyond_the_queue_get_503(on: Stand) {
    let folder = Folder::new();
    let (rig, endpoint) = serve(on, &folder);
    let mut clients: Vec<_> = (0..100)
        .map(|number| {
            let mut client = rig.client();
            // Every second one is an EventSource, which never tries again after another status than 200.
            let accept = if number % 2 == 0 { "" } else { "Accept: text/event-stream\r\n" };
            client.send(format!(
                "GET /push/channel-{number} HTTP/1.1\r\nHost: localhost\r\n{accept}{PROXIED}\r\n"
            ));
            client
        })
        .collect();
    rig.wait(
        || rig.count_of("encke_http_refusals_total", "push_ask") > 0,
        "a request that meets a full queue",
    );
    // The endpoint closes each connection. It keeps its port, which would else become that of another test's endpoint.
    endpoint.set_nonblocking(false).expect("a socket can");
    let (address, has_ended) = (endpoint.local_addr().expect("bound"), AtomicBool::new(false));
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        scope.spawn(|| endpoint.incoming().take_while(|_| !has_ended.load(Ordering::Acquire)).for_each(drop));
        let answers = clients.iter_mut().map(Client::answer).collect();
        has_ended.store(true, Ordering::Release);
        TcpStream::connect(address).expect("it listens");
        answers
    });
    let mut times = Vec::new();
    for (number, answer) in answers.iter().enumerate() {
        if number % 2 == 0 {
            assert_eq!(
                (answer.status, answer.field("Retry-After").is_some()),
                (503, true),
                "{}",
                answer.text()
            );
            continue;
        }
        assert_eq!(answer.field("Content-Type"), Some("text/event-stream"), "{answer:?}");
        let retry = answer.text().strip_prefix("retry: ").and_then(|rest| rest.strip_suffix("\n\n"));
        times.push(retry.and_then(|time| time.parse::<u64>().ok()).unwrap_or_else(|| panic!("{answer:?}")));
    }
    times.sort_unstable();
    times.dedup();
    // Each worker has its own sequence.
    assert!(times.len() > 5 && times[0] >= 1_000, "not all at the same moment: {times:?}");
}
