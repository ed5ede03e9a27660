//! Several targets from outside: policies, sticky sessions, checks, and an operator's drain, with real sockets between clients and
//! applications of the tests.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use encke_gateway::{
    AppCount, AppPlaces, Balance, BalanceKey, CheckSettings, Gateway, RouteSettings, SiteRoutes,
    TargetSettings, UpstreamSettings,
};
use encke_io::testing::{PATIENCE, wait_until};
use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, ConnLimits, Exchange, FieldValue, Mount, Options,
    Outcome, Reply, Request, Running, Server, Ticket,
};
use encke_settings::{Period, TextOrTable};
use encke_stats::{Cell, ListTicket, Query, Row};

/// An address at which nothing listens: a service of 1988 (RFC 1078), on a port that no test gets from the system.
const CLOSED: &str = "127.0.0.1:1";

/// An application that responds with its name. It keeps connections.
struct App {
    address: SocketAddr,
    name: String,
    seen: Arc<Seen>,
    /// The heads of the checks, in order of arrival.
    checks: Receiver<String>,
}

/// The requests of an application.
#[derive(Default)]
struct Seen {
    /// Without checks.
    requests: AtomicUsize,
    connections: AtomicUsize,
    /// Connections that have ended.
    ended: AtomicUsize,
    /// The status of responses to checks; 0: none.
    health: AtomicU16,
}

impl App {
    fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen { health: 204.into(), ..Seen::default() });
        let (sender, checks) = channel();
        let (shared, own) = (Arc::clone(&seen), name.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, name, sender) = (Arc::clone(&shared), own.clone(), sender.clone());
                seen.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve_one(&stream.expect("a connection"), &seen, &name, &sender);
                    seen.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, name: name.to_owned(), seen, checks }
    }

    fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    fn set_health(&self, status: u16) {
        self.seen.health.store(status, Ordering::SeqCst);
    }

    fn check(&self) -> String {
        self.checks.recv_timeout(PATIENCE).expect("a check arrives")
    }
}

/// Serves the requests of a connection. `/socket` becomes a WebSocket, and a POST has five bytes.
fn serve_one(stream: &TcpStream, seen: &Seen, name: &str, checks: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(count) if count > 0) {
                return;
            }
        }
        if head.starts_with("GET /health?now ") {
            if checks.send(head).is_err() {
                return;
            }
            let status = seen.health.load(Ordering::SeqCst);
            let response =
                format!("HTTP/1.1 {status} Health\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            if status > 0 {
                // The check may have ended.
                let _ = (&*stream).write_all(response.as_bytes());
                return;
            }
            continue;
        }
        seen.requests.fetch_add(1, Ordering::SeqCst);
        if head.starts_with("POST ") && reader.read_exact(&mut [0; 5]).is_err() {
            return;
        }
        let response = if head.starts_with("GET /socket ") {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                .to_owned()
        } else {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())
        };
        if (&*stream).write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn none(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::error(404))
}

fn gateway(to: &[SocketAddr], change: impl FnOnce(&mut UpstreamSettings)) -> Gateway {
    let to = to.iter().map(|address| format!("http://{address}").parse().expect("a URL")).collect();
    let mut settings = UpstreamSettings { name: "app".into(), to, ..UpstreamSettings::default() };
    change(&mut settings);
    let routes = [RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() }];
    let sites = [SiteRoutes { routes: &routes, ..SiteRoutes::default() }];
    Gateway::new(Arc::new(none), &sites, &[settings], &[]).expect("valid settings")
}

fn serve(apps: &[App], workers: usize, change: impl FnOnce(&mut UpstreamSettings)) -> (Running, SocketAddr) {
    let to: Vec<_> = apps.iter().map(|app| app.address).collect();
    let server = Server::new(Options { workers: Some(workers), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(any).mount("/", gateway(&to, change)).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    (running, address)
}

fn three() -> [App; 3] {
    ["one", "two", "three"].map(App::start)
}

/// The response to a GET with these fields, on a connection of its own.
fn get(address: SocketAddr, fields: &str) -> String {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    client.write_all(request.as_bytes()).expect("room");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    response
}

fn content(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap_or_default().1
}

/// The cookie of a response, and its attributes.
fn cookie(response: &str) -> Option<(&str, &str)> {
    response.lines().find_map(|line| line.strip_prefix("Set-Cookie: "))?.split_once("; ")
}

#[test]
fn every_policy_reaches_all_targets() {
    for balance in [Balance::Two, Balance::Least, Balance::RoundRobin, Balance::Hash(BalanceKey::Address)] {
        let apps = three();
        let (running, address) = serve(&apps, 2, |settings| settings.balance = balance.clone());
        (0..60).for_each(|_| assert!(get(address, "").starts_with("HTTP/1.1 200 ")));
        let mut seen = apps.each_ref().map(App::requests);
        seen.sort_unstable();
        match balance {
            Balance::Hash(_) => assert_eq!(seen, [0, 0, 60], "all requests of one client"),
            Balance::RoundRobin => assert_eq!(seen, [20, 20, 20]),
            _ => assert!(seen[0] >= 5, "{balance:?}: {seen:?}"),
        }
        running.stop();
    }
}

#[test]
fn a_hash_of_a_field_or_cookie_leads_to_one_target() {
    for (key, field) in [
        (BalanceKey::Field("X-User".into()), "X-User: "),
        (BalanceKey::Cookie("sid".into()), "Cookie: a=b; sid="),
    ] {
        let apps = three();
        let (running, address) = serve(&apps, 2, |settings| settings.balance = Balance::Hash(key));
        let mut targets = BTreeSet::new();
        // The hash depends on the ports of the targets: one of three gets none of 20 users in a run of 1,000, none of 100 never.
        for user in 0..100 {
            let names: BTreeSet<_> = (0..2)
                .map(|_| content(&get(address, &format!("{field}user-{user}\r\n"))).to_owned())
                .collect();
            assert_eq!(names.len(), 1, "{field}{user}: {names:?}");
            targets.extend(names);
        }
        assert_eq!(targets.len(), 3, "the users are spread");
        let without: BTreeSet<_> = (0..40).map(|_| content(&get(address, "")).to_owned()).collect();
        assert_eq!(without.len(), 3, "requests without it are spread");
        running.stop();
    }
}

#[test]
fn a_cookie_leads_a_client_to_the_target_of_its_first_response() {
    let apps = three();
    let (running, address) = serve(&apps, 2, |settings| settings.sticky = Some("app".into()));
    let mut cookies = BTreeSet::new();
    for _ in 0..30 {
        let first = get(address, "");
        let (cookie, attributes) = self::cookie(&first).expect("a cookie");
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
        for app in &apps {
            // With the colon: the digits of a port may be in any digest.
            assert!(!cookie.contains(&format!(":{}", app.address.port())), "{cookie} shows a port");
        }
        for _ in 0..4 {
            let next = get(address, &format!("Cookie: other=1; {cookie}\r\n"));
            assert_eq!(content(&next), content(&first), "{cookie}");
            assert_eq!(self::cookie(&next), None, "the client has it already");
        }
        cookies.insert(cookie.to_owned());
    }
    assert_eq!(cookies.len(), 3, "the clients are spread");
    let forged = get(address, "Cookie: app=0123456789abcdef\r\n");
    assert!(cookie(&forged).is_some_and(|(cookie, _)| cookies.contains(cookie)), "{forged}");
    // A WebSocket is a request as any other.
    let cookie = cookies.first().expect("one of three");
    let response = get(address, &format!("Cookie: {cookie}\r\n"));
    let app = apps.iter().find(|app| app.name == content(&response)).expect("one of three");
    let before = app.requests();
    for _ in 0..5 {
        drop(socket(address, &format!("Cookie: {cookie}\r\n")));
    }
    assert_eq!(app.requests(), before + 5);
    running.stop();
}

#[test]
fn a_request_with_a_cookie_waits_for_its_busy_target() {
    let apps = ["one", "two"].map(App::start);
    let (running, address) = serve(&apps, 2, |settings| {
        settings.sticky = Some("app".into());
        settings.connections = 1;
        settings.keep = Some(0);
        settings.queue_time = Period::seconds(60);
    });
    let first = get(address, "");
    let (cookie, _) = cookie(&first).expect("a cookie");
    let own = apps.iter().find(|app| app.name == content(&first)).expect("one of two");
    let fields = format!("Cookie: {cookie}\r\n");
    // The target has one connection, and a WebSocket occupies it.
    let held = socket(address, &fields);
    let waiting = std::thread::spawn({
        let fields = fields.clone();
        move || get(address, &fields)
    });
    wait_until("a waiting request", || queued(&running) == 1.0);
    // Requests without the cookie do not wait behind it.
    assert!((0..10).all(|_| content(&get(address, "")) != own.name));
    assert_eq!(queued(&running), 1.0);
    drop(held);
    assert_eq!(content(&waiting.join().expect("no panic")), own.name);
    // A target that is drained is not worth a wait.
    let held = socket(address, &fields);
    assert_eq!(affected(&act(&running, "drain", own, None)), 1);
    assert_ne!(content(&get(address, &fields)), own.name);
    drop(held);
    running.stop();
}

/// Requests that wait for a connection.
fn queued(running: &Running) -> f64 {
    let metrics = encke_stats::prometheus::render(&running.families());
    let name = "encke_gateway_queue_requests{upstream=\"app\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} is missing: {metrics}")).parse().expect("a number")
}

/// Checks that follow each other quickly.
fn checks(change: impl FnOnce(&mut CheckSettings)) -> Option<TextOrTable<CheckSettings>> {
    let mut check: CheckSettings = "/health?now".parse().expect("a path");
    check.every = Period::milliseconds(100);
    change(&mut check);
    Some(TextOrTable(check))
}

/// The value of the sample of a metric with these labels.
fn metric(running: &Running, name: &str, labels: &str) -> f64 {
    let metrics = encke_stats::prometheus::render(&running.families());
    let start = format!("{name}{{upstream=\"app\",{labels}}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{start} is missing: {metrics}")).parse().expect("a number")
}

fn target(address: SocketAddr) -> String {
    format!("target=\"http://{address}\"")
}

fn until_up(running: &Running, app: &App, up: bool) {
    let is_up = || metric(running, "encke_gateway_target_up", &target(app.address)) == f64::from(up);
    wait_until(&format!("{} is up: {up}", app.name), is_up);
}

#[test]
fn a_target_whose_checks_fail_gets_no_requests_until_they_succeed() {
    for status in [500, 404, 0] {
        let apps = three();
        let (running, address) = serve(&apps, 2, |settings| {
            // A check that an application of a busy machine answers late has not failed.
            settings.check = checks(|check| check.time = Period::seconds(1));
        });
        let head = apps[0].check();
        let host = format!("\r\nHost: {}\r\nConnection: close\r\n", apps[0].address);
        assert!(head.starts_with("GET /health?now HTTP/1.1\r\n") && head.contains(&host), "{head}");
        assert!((0..30).all(|_| get(address, "").starts_with("HTTP/1.1 200 ")));
        assert!(apps.iter().all(|app| app.requests() > 0), "checks that succeed change nothing");
        apps[0].set_health(status);
        until_up(&running, &apps[0], false);
        let before = apps[0].requests();
        assert!((0..30).all(|_| get(address, "").starts_with("HTTP/1.1 200 ")));
        assert_eq!(apps[0].requests(), before, "status {status}");
        let count = |result| {
            let labels = format!("{},result=\"{result}\"", target(apps[0].address));
            metric(&running, "encke_gateway_target_checks_total", &labels)
        };
        assert!(count("good") >= 1.0 && count("bad") >= 3.0, "three checks have failed in a row");
        // If all fail, each is as good as the others.
        apps.iter().for_each(|app| app.set_health(status));
        apps.iter().for_each(|app| until_up(&running, app, false));
        assert!((0..30).all(|_| get(address, "").starts_with("HTTP/1.1 200 ")));
        assert!(apps[0].requests() > before);
        apps.iter().for_each(|app| app.set_health(302));
        apps.iter().for_each(|app| until_up(&running, app, true));
        running.stop();
    }
}

#[test]
fn fall_decides_and_a_connection_may_be_enough() {
    let [app, other] = ["one", "two"].map(App::start);
    app.set_health(503);
    let apps = [app, other];
    let once =
        |check: &mut CheckSettings| (check.fall, check.every) = (NonZeroU16::MIN, Period::seconds(3_600));
    let (running, _) = serve(&apps, 1, |settings| settings.check = checks(once));
    until_up(&running, &apps[0], false);
    running.stop();
    // Nothing listens at the first target; a check of the second one sends nothing.
    let gone = CLOSED.parse().expect("an address");
    let apps = [App { address: gone, ..App::start("gone") }, App::start("two")];
    let (running, address) = serve(&apps, 1, |settings| {
        settings.check = checks(|check| {
            once(check);
            check.path = None;
        });
    });
    until_up(&running, &apps[0], false);
    wait_until("the end of a check", || apps[1].seen.ended.load(Ordering::SeqCst) == 1);
    assert_eq!(apps[1].requests(), 0);
    assert!((0..10).all(|_| content(&get(address, "")) == "two"));
    running.stop();
}

#[test]
fn a_process_without_an_address_fails_no_check() {
    let [app, backup] = ["one", "backup"].map(App::start);
    let url = |text: &str| text.parse().expect("a URL");
    let to: Vec<TargetSettings> =
        vec![url("app:shop"), TargetSettings { backup: true, ..url(&format!("http://{}", backup.address)) }];
    let settings =
        UpstreamSettings { name: "app".into(), to, check: checks(|_| {}), ..UpstreamSettings::default() };
    let routes = [RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() }];
    let site = SiteRoutes { routes: &routes, ..SiteRoutes::default() };
    let (places, apps) = (AppPlaces::default(), [AppCount { name: "shop", count: 1 }]);
    let gateway = Gateway::with_apps(Arc::new(none), &[site], &[settings], &[], &apps, &places);
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(any).mount("/", gateway.expect("valid settings")).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    // Each round checks both targets.
    (0..4).for_each(|_| drop(backup.check()));
    assert_eq!(content(&get(address, "")), "backup");
    let bad = || metric(&running, "encke_gateway_target_checks_total", "target=\"app:shop\",result=\"bad\"");
    assert_eq!(bad(), 0.0, "no process was checked");
    app.set_health(0);
    places.direct("shop", 0, Some(app.address));
    assert_eq!(content(&get(address, "")), "one", "no check has decided yet");
    // From now on there is a process to check, and it does not respond.
    wait_until("a bad check", || bad() > 0.0);
    running.stop();
}

fn act(running: &Running, verb: &str, app: &App, upstream: Option<&str>) -> ActionResult {
    let (send, receive) = channel();
    let ticket = Ticket::new(move |result| send.send(result).expect("the test waits"));
    let text = |text: &str| FieldValue::Text(text.to_owned());
    let mut value = ActionValue::from([("target".to_owned(), text(&format!("http://{}", app.address)))]);
    value.extend(upstream.map(|name| ("upstream".to_owned(), text(name))));
    running.act("upstreams", verb, value, ticket);
    receive.recv_timeout(PATIENCE).expect("an end").expect("a result")
}

fn affected(result: &ActionResult) -> u64 {
    result.as_ref().map(|report: &ActionReport| report.affected).expect("a success")
}

/// Opens a WebSocket, with these fields in its request.
fn socket(address: SocketAddr, fields: &str) -> TcpStream {
    let upgrade = format!(
        "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    socket.write_all(upgrade.as_bytes()).expect("room");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    socket
}

#[test]
fn a_drained_target_keeps_only_what_is_in_progress() {
    let apps = ["one", "two"].map(App::start);
    // Kept connections never end by themselves here.
    let (running, address) = serve(&apps, 2, |settings| {
        settings.keep_time = Period::seconds(600);
        settings.balance = Balance::RoundRobin;
    });
    let sockets: Vec<_> = (0..4).map(|_| socket(address, "")).collect();
    assert!((0..20).all(|_| get(address, "").starts_with("HTTP/1.1 200 ")));
    let open = |app: &App| metric(&running, "encke_gateway_target_connections_open", &target(app.address));
    assert!(open(&apps[0]) > 2.0, "two WebSockets, and kept connections");
    let mut in_progress = Vec::new();
    let busy = |app: &App| metric(&running, "encke_gateway_target_requests_open", &target(app.address));
    for _ in 0..2 {
        let mut client = TcpStream::connect(address).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a limit");
        client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").expect("room");
        in_progress.push(client);
        wait_until("a request in progress", || {
            apps.iter().map(busy).sum::<f64>() == in_progress.len() as f64
        });
    }
    assert_eq!(busy(&apps[0]), 1.0, "one of two requests in turn");
    let drained = act(&running, "drain", &apps[0], Some("app"));
    assert_eq!(affected(&drained), 1, "{drained:?}");
    wait_until("the end of the kept connections", || open(&apps[0]) == 3.0);
    for mut client in in_progress {
        client.write_all(b"hello").expect("room");
        client.read_exact(&mut [0; 12]).expect("the response to a request in progress");
    }
    wait_until("the end of the connection with a request", || open(&apps[0]) == 2.0);
    assert_eq!(affected(&act(&running, "drain", &apps[0], None)), 0, "it is drained");
    let before = apps[0].requests();
    assert!((0..20).all(|_| content(&get(address, "")) == "two"));
    assert_eq!(apps[0].requests(), before);
    // A WebSocket ends by its client only.
    for mut socket in sockets {
        socket.set_nonblocking(true).expect("a socket");
        let error = socket.read(&mut [0]).expect_err("no byte, and no end");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    assert_eq!(affected(&act(&running, "drain", &apps[1], None)), 1);
    let refused = get(address, "");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    let metrics = encke_stats::prometheus::render(&running.families());
    assert!(metrics.contains("\nencke_gateway_failures_total{reason=\"no_target\"} 1\n"), "{metrics}");
    assert_eq!(affected(&act(&running, "resume", &apps[0], None)), 1);
    assert!((0..20).all(|_| content(&get(address, "")) == "one"));
    assert_eq!(affected(&act(&running, "resume", &apps[0], None)), 0, "it is not drained");
    let unknown = act(&running, "drain", &App::start("other"), None);
    assert_eq!(unknown, Err(ActionError::Value("target".into())));
    running.stop();
}

#[test]
fn a_list_shows_the_state_of_each_target() {
    let apps = three();
    let to: Vec<_> = apps.iter().map(|app| app.address).collect();
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    apps[1].set_health(500);
    let gateway = Arc::new(gateway(&to, |settings| settings.check = checks(|_| {})));
    let mounts: Vec<(String, Arc<dyn Mount>)> = vec![("/".into(), Arc::clone(&gateway) as Arc<dyn Mount>)];
    let running = server.listen(any).mount_all(mounts).start().expect("it starts");
    until_up(&running, &apps[1], false);
    assert_eq!(affected(&act(&running, "drain", &apps[2], None)), 1);
    let (send, receive) = channel();
    let query = Query { limit: 10, ..Query::default() };
    let sources = gateway.sources();
    let source = sources.iter().find(|source| source.name() == "gateway").expect("the gateway's");
    source.list(&query, ListTicket::new(&query, move |rows| send.send(rows).expect("the test waits")));
    let rows = receive.recv_timeout(PATIENCE).expect("a list").rows;
    let text = |cell: &Cell| if let Cell::Text(text) = cell { text.to_string() } else { String::new() };
    let mut states: Vec<_> = rows.iter().map(|row| [1, 2].map(|column| text(&row.0[column].1))).collect();
    let expected = ["up", "failing check", "drained"];
    let mut expected: Vec<_> = apps
        .iter()
        .zip(expected)
        .map(|(app, state)| [format!("http://{}", app.address), state.to_owned()])
        .collect();
    states.sort();
    expected.sort();
    assert_eq!(states, expected);
    running.stop();
}

/// The rows of the list of targets.
fn rows(gateway: &Gateway) -> Vec<Row> {
    let (send, receive) = channel();
    let query = Query { limit: 10, ..Query::default() };
    let sources = gateway.sources();
    let source = sources.iter().find(|source| source.name() == "gateway").expect("the gateway's");
    source.list(&query, ListTicket::new(&query, move |rows| send.send(rows).expect("the test waits")));
    receive.recv_timeout(PATIENCE).expect("a list").rows
}

#[test]
fn a_list_tells_times_and_the_last_failure_of_each_target() {
    let app = App::start("one");
    let down = CLOSED.parse().expect("an address");
    let gateway = Arc::new(gateway(&[app.address, down], |_| {}));
    let mounts: Vec<(String, Arc<dyn Mount>)> = vec![("/".into(), Arc::clone(&gateway) as Arc<dyn Mount>)];
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(any).mount_all(mounts).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    let row = |of: SocketAddr| {
        let url = Cell::from(format!("http://{of}"));
        let rows = rows(&gateway);
        rows.iter().find(|row| row.cell("target") == Some(&url)).cloned().expect("a row")
    };
    assert_eq!(row(down).cell("last_failure"), None, "no request was sent");
    assert_eq!(row(app.address).cell("connect_s"), None);
    // Each target gets its turn, and three failures in a row eject one.
    for _ in 0..10 {
        assert_eq!(content(&get(address, "")), "one");
        // An ejection lasts a second, after which a further failure would follow.
        if row(down).cell("ejections") == Some(&1_u64.into()) {
            break;
        }
    }
    let failed = row(down);
    let Some(Cell::Text(text)) = failed.cell("last_failure") else { panic!("{failed:?}") };
    assert!(text.starts_with("connection refused, or no route to it ("), "{text}");
    assert!(matches!(failed.cell("last_failure_s"), Some(Cell::Number(seconds)) if *seconds < 60.0));
    assert_eq!(failed.cell("ejections"), Some(&1_u64.into()), "{failed:?}");
    assert_eq!(failed.cell("failures"), Some(&3_u64.into()), "{failed:?}");
    let served = row(app.address);
    for column in ["connect_s", "first_byte_s"] {
        assert!(matches!(served.cell(column), Some(Cell::Number(seconds)) if *seconds > 0.0), "{served:?}");
    }
    assert_eq!((served.cell("last_failure"), served.cell("ejections")), (None, Some(&0_u64.into())));
    let known =
        gateway.sources().iter().find(|source| source.name() == "gateway").map(|source| source.columns());
    let known = known.expect("the gateway's");
    for row in [failed, served] {
        assert!(row.0.iter().all(|(column, _)| known.contains(column)), "{row:?}");
    }
    running.stop();
}

#[test]
fn the_list_of_connections_names_the_upstream_that_a_client_waits_for() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let app = silent.local_addr().expect("an address");
    let start = |app: SocketAddr| {
        let server = Server::new(Options { workers: Some(1), ..Options::default() });
        let any = "127.0.0.1:0".parse().expect("an address");
        let running = server.listen(any).mount("/", gateway(&[app], |_| {})).start().expect("it starts");
        let address: SocketAddr = running.addresses()[0].to_string().parse().expect("an address");
        (running, address)
    };
    let connections = |running: &Running| {
        let (send, receive) = channel();
        let query = Query { limit: 10, ..Query::default() };
        let ticket = ListTicket::new(&query, move |rows| send.send(rows).expect("the test waits"));
        assert!(running.status().list("connections", &query, ticket));
        receive.recv_timeout(PATIENCE).expect("a list").rows
    };
    let begins = |running: &Running, column: &str, start: &str| {
        let is = |cell: &Cell| matches!(cell, Cell::Text(text) if text.starts_with(start));
        connections(running).iter().any(|row| row.cell(column).is_some_and(is))
    };
    let (running, address) = start(app);
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(b"GET /slow?x HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let waits = format!("waits for upstream app at http://{app}");
    wait_until("the request waits for the application", || begins(&running, "waits", &waits));
    assert!(begins(&running, "path", "/slow?x"), "{:?}", connections(&running));
    drop(client);
    running.stop();
    let tunnel = App::start("sockets");
    let (running, address) = start(tunnel.address);
    let _socket = socket(address, "");
    wait_until("the WebSocket is a tunnel", || begins(&running, "protocol", "tunnel"));
    assert!(begins(&running, "waits", "no byte in either direction for "), "{:?}", connections(&running));
    running.stop();
}

#[test]
fn a_reload_keeps_drained_targets_and_ends_the_checks_before_it() {
    let apps = three();
    let to: Vec<_> = apps.iter().map(|app| app.address).collect();
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let with_host = |host: &'static str| {
        move |settings: &mut UpstreamSettings| {
            settings.check = checks(|check| check.host = Some(host.to_owned()));
        }
    };
    let mount = |gateway: &Arc<Gateway>| vec![("/".to_owned(), Arc::clone(gateway) as Arc<dyn Mount>)];
    let first = Arc::new(gateway(&to, with_host("first")));
    let running = server.listen(any).mount_all(mount(&first)).start().expect("it starts");
    let address: SocketAddr = running.addresses()[0].to_string().parse().expect("an address");
    apps[0].set_health(500);
    until_up(&running, &apps[0], false);
    assert_eq!(affected(&act(&running, "drain", &apps[1], None)), 1);
    // A request that waits for its body keeps the old handler.
    let mut waiting = TcpStream::connect(address).expect("a connection");
    waiting.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").expect("room");
    let is_open = || metric(&running, "encke_gateway_target_requests_open", &target(to[2])) == 1.0;
    wait_until("a request in progress", is_open);
    let up = |running: &Running| {
        apps.each_ref().map(|app| metric(running, "encke_gateway_target_up", &target(app.address)))
    };
    let reload = |next: &Arc<Gateway>| running.reload(ConnLimits::default(), Some(mount(next)));
    let same = Arc::new(gateway(&to, with_host("first")).with_figures_of(&first));
    reload(&same);
    assert_eq!(up(&running), [0.0, 0.0, 1.0], "the upstream has not changed");
    apps[0].set_health(200);
    let changed = Arc::new(gateway(&to, with_host("second")).with_figures_of(&same));
    reload(&changed);
    while !apps[2].check().contains("\r\nHost: second\r\n") {}
    assert_eq!(up(&running), [1.0, 0.0, 1.0], "the state of an operator outlives a change");
    // One check may have been in progress.
    let late: usize = (0..5).map(|_| usize::from(apps[2].check().contains("\r\nHost: first\r\n"))).sum();
    assert!(late <= 1, "{late} checks of the old handler");
    waiting.write_all(b"hello").expect("room");
    waiting.read_exact(&mut [0; 12]).expect("a response of the old handler");
    running.stop();
}
