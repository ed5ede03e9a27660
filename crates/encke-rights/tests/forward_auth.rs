//! Questions to an application about requests (`[[access]] ask`), over real sockets: a server between clients and an application of the
//! test, which decides.

mod app;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::thread;

use encke_rights::{AccessRules, AccessSettings};
use encke_server::{ConnLimits, Exchange, Options, Outcome, Reply, Request, Running, Server};
use encke_settings::Section as _;

use app::{App, PATIENCE};

const ALLOWED: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A server that asks about requests below `/in/`, and responds with the user and the fields for an application.
struct Asker(Option<Running>);

fn settings(url: &str, more: &str) -> Vec<AccessSettings> {
    #[derive(serde::Deserialize)]
    struct Settings {
        access: Vec<AccessSettings>,
    }
    let text = format!("[[access]]\npattern = \"/in/**\"\nask = \"{url}\"\n{more}");
    let Settings { access } = toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    for rule in &access {
        assert_eq!(rule.check(), [], "{text}");
    }
    access
}

fn tell(request: &Request<'_>, _: Exchange) -> Outcome {
    let passed = request.passed_fields();
    let fields = passed.map(|passed| String::from_utf8_lossy(passed.fields.lines()).into_owned());
    let removed: Vec<_> = ["X-User", "x-groups", "Cookie"]
        .into_iter()
        .filter(|name| passed.is_some_and(|passed| passed.removes(name.as_bytes())))
        .collect();
    let user = request.user().unwrap_or("-");
    Outcome::Now(Reply::text(200, format!("{user}|{}|{}", fields.unwrap_or_default(), removed.join(","))))
}

impl Asker {
    fn start(url: &str, more: &str) -> Self {
        Self::start_with(url, more, Options { workers: Some(1), ..Options::default() })
    }

    fn start_with(url: &str, more: &str, options: Options) -> Self {
        let rules = AccessRules::new(&settings(url, more)).expect("valid settings");
        let server = Server::new(options);
        let server = server.listen("127.0.0.1:0".parse().expect("an address")).guard(rules);
        Self(Some(server.mount("/", tell).start().expect("it starts")))
    }

    fn address(&self) -> String {
        self.0.as_ref().expect("it runs").addresses()[0].to_string()
    }

    fn send(&self, head: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address()).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a limit");
        client.write_all(head.as_bytes()).expect("room");
        client
    }

    fn ask(&self, path: &str, fields: &str) -> (u16, String) {
        read(self.send(&get(path, fields)))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.stop();
        }
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\n")
}

/// The status, and the whole response.
fn read(mut client: TcpStream) -> (u16, String) {
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, response)
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").expect("a body").1
}

/// The response to a request about which an application sends these pieces, and closes the connection.
fn decided(pieces: &[&str], more: &str) -> (u16, String) {
    let pieces: Vec<String> = pieces.iter().map(ToString::to_string).collect();
    let app = App::start(move |call| {
        let _all_sent = pieces.iter().all(|piece| call.send(piece));
        false
    });
    Asker::start(&app.url(), more).ask("/in/x", "")
}

// ---- the question ----

#[test]
fn the_application_sees_the_request_that_it_decides_about_and_nothing_a_client_forges() {
    let app = App::start(|call| call.send(ALLOWED));
    let server = Asker::start(&app.url(), "");
    let fields = "Cookie: a=1\r\nCookie: b=2\r\nAuthorization: Bearer abc\r\nAccept: text/html\r\n\
                  X-Forwarded-Uri: /public\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Method: HEAD\r\n\
                  X-Secret: s\r\nContent-Length: 3\r\n";
    let head = format!(
        "POST /x/../in//a%20b?q=1&r HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\nabc"
    );
    assert_eq!(read(server.send(&head)).0, 200);
    let (_, head) = app.head();
    assert!(head.starts_with("GET /may?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
    for line in [
        "X-Forwarded-Method: POST",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: shop.example",
        "X-Forwarded-Uri: /in/a%20b?q=1&r",
        "X-Forwarded-For: 127.0.0.1",
        "Cookie: a=1; b=2",
        "Authorization: Bearer abc",
        "Accept: text/html",
        "X-Encke-Ask: access",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} is missing in {head}");
    }
    let lines = head.matches("\r\n").count();
    assert_eq!(lines, 12, "no other line: {head}");
}

#[test]
fn requests_that_no_rule_matches_or_that_cannot_be_decoded_ask_nothing() {
    let app = App::start(|call| call.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"));
    let server = Asker::start(&app.url(), "");
    for path in ["/", "/out", "/in", "/in/../out", "/.well-known/acme-challenge/x"] {
        assert_eq!(server.ask(path, "").0, 200, "{path}");
    }
    assert_eq!(server.ask("/in%2Fx", "").0, 400);
    assert_eq!(app.connections(), Vec::<usize>::new());
    for path in ["/in/", "/%69n/x", "/out/../in/x", "//in/x", "http://other/in/x"] {
        assert_eq!(server.ask(path, "").0, 403, "{path}");
    }
}

#[test]
fn two_credentials_of_one_request_are_rejected() {
    let app = App::start(|call| call.send(ALLOWED));
    let server = Asker::start(&app.url(), "");
    assert_eq!(server.ask("/in/x", "Authorization: a\r\nAuthorization: b\r\n").0, 400);
    assert_eq!(app.connections(), Vec::<usize>::new());
}

#[test]
fn a_question_never_causes_a_question() {
    // The server asks itself: its own address is known only after its start.
    let app = App::start(|call| call.send(ALLOWED));
    let server = Asker::start(&app.url(), "");
    let (status, response) = server.ask("/in/x", "X-Encke-Ask: access\r\n");
    assert_eq!(status, 503, "{response}");
    assert_eq!(app.connections(), Vec::<usize>::new());
}

// ---- the verdict ----

#[test]
fn success_passes_and_a_denial_reaches_the_client_with_its_content() {
    for status in [200, 204, 299] {
        let (found, response) = decided(&[&format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")], "");
        assert_eq!((found, body(&response)), (200, "-||"), "{status}");
    }
    for (status, field) in [
        (401, "WWW-Authenticate: Bearer"),
        (403, "Content-Type: text/html"),
        (302, "Location: https://login.example/?rd=x"),
        (303, "Location: /login"),
        (307, "Location: /login"),
    ] {
        let answer = format!(
            "HTTP/1.1 {status} X\r\n{field}\r\nSet-Cookie: csrf=1\r\nSet-Cookie: b=2\r\nX-Internal: secret\r\n\
             Content-Length: 5\r\n\r\nlogin"
        );
        for at in [0, answer.len() - 2] {
            let (one, other) = answer.split_at(at);
            let (found, response) = decided(&[one, other], "");
            assert_eq!((found, body(&response)), (status, "login"), "{response}");
            for line in [field, "Set-Cookie: csrf=1", "Set-Cookie: b=2", "Cache-Control: no-store"] {
                assert!(response.contains(&format!("\r\n{line}\r\n")), "{line}: {response}");
            }
            assert!(!response.contains("X-Internal"), "{response}");
        }
    }
    let chunked = "HTTP/1.1 403 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(body(&decided(&[chunked], "").1), "abcde");
    let until_close = "HTTP/1.1 403 X\r\nConnection: close\r\n\r\nuntil the end";
    assert_eq!(body(&decided(&[until_close], "").1), "until the end");
}

#[test]
fn everything_else_fails_closed() {
    let interims = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17) + ALLOWED;
    let endless = format!("HTTP/1.1 200 OK\r\n{}", format!("X: {}\r\n", "x".repeat(1_000)).repeat(100));
    let large = format!("HTTP/1.1 403 X\r\nContent-Length: 70000\r\n\r\n{}", "x".repeat(70_000));
    for response in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 301 X\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 304 X\r\n\r\n",
        "HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
        &interims,
        &endless,
        &large,
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\nX: y\n\n",
        "HTTP/1.1 200 OK\r\nX",
        "HTTP/1.1 403 X\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 403 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 403 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        "",
    ] {
        let (status, text) = decided(&[response], "");
        let start: String = response.chars().take(80).collect();
        assert_eq!(status, 503, "{start:?}: {text}");
        assert!(text.contains("\r\nRetry-After: 1\r\n"), "{start:?}: {text}");
    }
}

#[test]
fn an_application_that_is_silent_drips_or_cannot_be_reached_fails_closed() {
    let short = "ask_time = \"50ms\"";
    let silent = App::start(|_| true);
    assert_eq!(Asker::start(&silent.url(), short).ask("/in/x", "").0, 503);
    for (first, next) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
        // The page of a denial has the same deadline.
        ("HTTP/1.1 403 X\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"),
    ] {
        let dripping = App::start(move |call| {
            call.send(first);
            while call.send(next) {
                thread::yield_now();
            }
            false
        });
        assert_eq!(Asker::start(&dripping.url(), short).ask("/in/x", "").0, 503, "{first}{next}");
    }
    for nowhere in ["http://127.0.0.1:1/may".to_owned(), format!("http://{}.invalid/", "x".repeat(70))] {
        let asker = Asker::start(&nowhere, "");
        assert_eq!(asker.ask("/in/x", "").0, 503, "{nowhere}");
        // After another status than 200 an EventSource never tries again.
        let (status, text) = asker.ask("/in/x", "Accept: text/event-stream\r\n");
        assert!(status == 200 && text.contains("retry: 1000\n\n"), "{nowhere}: {status} {text}");
    }
}

// ---- fields for the application of the route ----

const COPY: &str = "copy = [\"X-User\", \"X-Groups\"]\nuser = \"X-User\"";

#[test]
fn fields_of_the_answer_replace_those_of_the_client() {
    let answer = "HTTP/1.1 200 X\r\nx-user: ann\r\nX-Groups: a, b\r\nX-Other: c\r\nContent-Length: 0\r\n\r\n";
    let (_, response) = decided(&[answer], COPY);
    assert_eq!(body(&response), "ann|X-User: ann\r\nX-Groups: a, b\r\n|X-User,x-groups");
    // Fields of the client are also removed if the answer lacks them, and on unprotected paths.
    let app = App::start(|call| call.send(ALLOWED));
    let server = Asker::start(&app.url(), COPY);
    for (path, fields, expected) in [
        ("/in/x", "", "-||X-User,x-groups"),
        ("/in/x", "X-User: eve\r\n", "-||X-User,x-groups"),
        ("/out", "x-uSER: eve\r\n", "-||X-User,x-groups"),
        // Some applications take these for the same name.
        ("/out", "X.User: eve\r\n", "-||X-User,x-groups"),
        ("/out", "X~Groups: eve\r\n", "-||X-User,x-groups"),
        ("/out", "X-Other: eve\r\n", "-||"),
        ("/out", "X-Users: eve\r\n", "-||"),
    ] {
        let (status, response) = server.ask(path, fields);
        assert_eq!((status, body(&response)), (200, expected), "{path} {fields}");
    }
}

#[test]
fn a_copied_field_that_an_answer_repeats_fails_closed() {
    for fields in ["X-Groups: a\r\nX-Groups: b\r\n", "X-Groups: a\r\nx-groups: a\r\n"] {
        let answer = format!("HTTP/1.1 200 X\r\n{fields}Content-Length: 0\r\n\r\n");
        assert_eq!(decided(&[&answer], COPY).0, 503, "{fields}");
    }
}

#[test]
fn behind_a_proxy_the_application_sees_the_host_that_the_proxy_names() {
    let app = App::start(|call| call.send(ALLOWED));
    let trusted_proxies = vec!["127.0.0.1".parse().expect("an address")];
    let policy = ConnLimits { trusted_proxies, ..ConnLimits::default() };
    let server =
        Asker::start_with(&app.url(), "", Options { workers: Some(1), policy, ..Options::default() });
    for (fields, expected) in [
        ("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: shop.test\r\n", "shop.test"),
        ("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: a\r\nX-Forwarded-Host: b\r\n", "a, b"),
        ("X-Forwarded-For: 192.0.2.1\r\n", "shop.example"),
        // Not from the proxy: it would have named the client.
        ("X-Forwarded-Host: evil.test\r\n", "shop.example"),
    ] {
        assert_eq!(server.ask("/in/x", fields).0, 200, "{fields}");
        let (_, head) = app.head();
        assert!(head.contains(&format!("\r\nX-Forwarded-Host: {expected}\r\n")), "{fields}: {head}");
        assert_eq!(head.matches("X-Forwarded-Host").count(), 1, "{head}");
    }
}

#[test]
fn a_user_name_that_is_ambiguous_or_unusable_fails_closed() {
    let long = "x".repeat(257);
    for (fields, expected) in [
        ("X-User: ann\r\nX-User: bob\r\n".to_owned(), 503),
        ("X-User:\r\n".to_owned(), 503),
        (format!("X-User: {long}\r\n"), 503),
        ("X-User: j\u{f6}rg\r\n".to_owned(), 200),
    ] {
        let answer = format!("HTTP/1.1 200 X\r\n{fields}Content-Length: 0\r\n\r\n");
        assert_eq!(decided(&[&answer], COPY).0, expected, "{fields}");
    }
}

#[test]
fn a_cookie_of_an_answer_that_allows_reaches_the_client() {
    let answer =
        "HTTP/1.1 200 X\r\nSet-Cookie: session=2\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n";
    let app = App::start(move |call| call.send(answer));
    let server = Asker::start(&app.url(), "");
    for _ in 0..2 {
        let (status, response) = server.ask("/in/x", "Cookie: session=1\r\n");
        assert!(status == 200 && response.contains("\r\nSet-Cookie: session=2\r\n"), "{response}");
    }
    assert_eq!(app.connections().len(), 2, "it is not cached");
}

// ---- caching, connections ----

#[test]
fn an_answer_is_cached_as_it_says_and_only_for_the_same_question() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let app = App::start(move |call| {
        let number = seen.fetch_add(1, Ordering::Relaxed);
        call.send(&format!(
            "HTTP/1.1 200 X\r\nX-User: u{number}\r\nCache-Control: max-age=600\r\nContent-Length: 0\r\n\r\n"
        ))
    });
    let server = Asker::start(&app.url(), COPY);
    let user = |head: &str| body(&read(server.send(head)).1).split('|').next().map(str::to_owned);
    let first = get("/in/x", "Cookie: a=1\r\nAuthorization: b\r\n");
    for _ in 0..3 {
        assert_eq!(user(&first).as_deref(), Some("u0"));
    }
    for (number, other) in [
        get("/in/y", "Cookie: a=1\r\nAuthorization: b\r\n"),
        get("/in/x?q", "Cookie: a=1\r\nAuthorization: b\r\n"),
        get("/in/x", "Cookie: a=2\r\nAuthorization: b\r\n"),
        get("/in/x", "Cookie: a=1\r\n"),
        get("/in/x", "Cookie: a=1\r\nAuthorization: B\r\n"),
        get("/in/x", ""),
        first.replace("GET", "DELETE"),
        first.replace("shop.example", "other.example"),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(user(other), Some(format!("u{}", number + 1)), "{other}");
    }
    assert_eq!(user(&first).as_deref(), Some("u0"), "it is still known");
}

#[test]
fn denials_and_answers_without_a_time_are_never_cached() {
    for answer in [
        "HTTP/1.1 403 X\r\nCache-Control: max-age=600\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 X\r\nCache-Control: no-store, max-age=600\r\nContent-Length: 0\r\n\r\n",
    ] {
        let app = App::start(move |call| call.send(answer));
        let server = Asker::start(&app.url(), "");
        for _ in 0..3 {
            server.ask("/in/x", "");
        }
        assert_eq!(app.connections(), [0, 0, 0], "{answer}");
    }
}

#[test]
fn each_client_has_an_answer_of_its_own_and_questions_have_a_limit_and_a_queue() {
    let both = Arc::new(Barrier::new(3));
    let (release, released) = channel::<()>();
    let (gate, released) = (Arc::clone(&both), Arc::new(Mutex::new(released)));
    let count = Arc::new(AtomicUsize::new(0));
    let app = App::start(move |call| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        if number < 2 {
            gate.wait();
        }
        let is_released = released.lock().expect("no panic").recv().is_ok();
        let denial = format!("HTTP/1.1 403 X\r\nSet-Cookie: csrf={number}\r\nContent-Length: 0\r\n\r\n");
        is_released && call.send(&denial)
    });
    let server = Asker::start(&app.url(), "ask_connections = 2\nask_queue = 1\nask_time = \"1m\"");
    let mut clients = vec![server.send(&get("/in/x", "")), server.send(&get("/in/x", ""))];
    both.wait();
    // A client that disconnects leaves its place in the queue: its body is incomplete, so the server need not respond.
    let gone = server.send(&get("/in/x", "Content-Length: 9\r\n"));
    assert_eq!(server.ask("/in/x", "").0, 503, "the queue is full");
    drop(gone);
    // The first client that gets no 503 waits in the queue.
    let (mut rejected, mut next) = (0, None);
    while next.is_none() {
        let client = server.send(&get("/in/x", ""));
        // The server handles this request after that of the client.
        let (status, response) = server.ask("/in/x", "");
        assert_eq!(status, 503, "{response}");
        client.set_nonblocking(true).expect("a socket");
        let waits = client.peek(&mut [0]).is_err();
        client.set_nonblocking(false).expect("a socket");
        rejected += usize::from(!waits);
        next = waits.then_some(client);
    }
    println!("{rejected} clients before the server knew that one has gone");
    clients.extend(next);
    let mut cookies: Vec<String> = Vec::new();
    for _ in 0..3 {
        release.send(()).expect("the application waits");
    }
    for client in clients {
        let (status, response) = read(client);
        assert_eq!(status, 403);
        cookies.extend(response.lines().filter(|line| line.starts_with("Set-Cookie")).map(str::to_owned));
    }
    cookies.sort_unstable();
    assert_eq!(cookies, ["Set-Cookie: csrf=0", "Set-Cookie: csrf=1", "Set-Cookie: csrf=2"]);
}

#[test]
fn two_rules_ask_two_applications_one_after_the_other() {
    let one = App::start(|call| call.send("HTTP/1.1 200 X\r\nX-User: ann\r\nContent-Length: 0\r\n\r\n"));
    let other = App::start(|call| call.send("HTTP/1.1 200 X\r\nX-Role: admin\r\nContent-Length: 0\r\n\r\n"));
    let more = format!(
        "{COPY}\n[[access]]\npattern = \"/in/deep/**\"\nask = \"{}\"\ncopy = [\"X-Role\"]",
        other.url()
    );
    let server = Asker::start(&one.url(), &more);
    assert_eq!(body(&server.ask("/in/deep/x", "").1), "ann|X-User: ann\r\nX-Role: admin\r\n|X-User,x-groups");
    assert_eq!(body(&server.ask("/in/x", "").1), "ann|X-User: ann\r\n|X-User,x-groups");
    assert_eq!((one.connections().len(), other.connections().len()), (2, 1));
}
