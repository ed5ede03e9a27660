//! Limits on connections to applications, and the queue: a server with real sockets between clients and applications of the tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use encke_gateway::{Balance, BalanceKey, Gateway, RouteSettings, SiteRoutes, UpstreamSettings};
use encke_io::testing::{PATIENCE, wait_until};
use encke_server::{Exchange, Options, Outcome, Reply, Request, Running, Server};
use encke_settings::Period;

/// An application whose responses wait for the test. It keeps connections.
struct App {
    address: SocketAddr,
    /// The paths of the requests, in order of arrival.
    paths: Receiver<String>,
    gate: Arc<Gate>,
}

/// The number of responses that may leave, and counts of the application.
#[derive(Default)]
struct Gate {
    passes: Mutex<usize>,
    more: Condvar,
    /// Requests without a response, and their maximum.
    busy: AtomicUsize,
    busy_max: AtomicUsize,
    accepted: AtomicUsize,
}

impl Gate {
    fn open(&self, passes: usize) {
        *self.passes.lock().expect("no panic") += passes;
        self.more.notify_all();
    }

    /// Lets no response pass from now on.
    fn shut(&self) {
        *self.passes.lock().expect("no panic") = 0;
    }

    fn pass(&self) {
        let passes = self.passes.lock().expect("no panic");
        let (mut passes, waited) =
            self.more.wait_timeout_while(passes, PATIENCE, |passes| *passes == 0).expect("no panic");
        assert!(!waited.timed_out(), "the test lets every response pass");
        *passes -= 1;
    }
}

impl App {
    /// An application whose first `passes` responses leave at once.
    fn start(passes: usize) -> Self {
        Self::start_as(passes, |serve| drop(std::thread::spawn(serve)))
    }

    /// An application of one process, which serves one connection after the other.
    fn start_as_one_process() -> Self {
        Self::start_as(usize::MAX / 2, |serve| serve())
    }

    fn start_as(passes: usize, run: impl Fn(Box<dyn FnOnce() + Send>) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, paths) = channel();
        let gate = Arc::new(Gate::default());
        gate.open(passes);
        let shared = Arc::clone(&gate);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (gate, sender) = (Arc::clone(&shared), sender.clone());
                gate.accepted.fetch_add(1, Ordering::SeqCst);
                run(Box::new(move || serve_one(&stream.expect("a connection"), &gate, &sender)));
            }
        });
        Self { address, paths, gate }
    }

    fn path(&self) -> String {
        self.paths.recv_timeout(PATIENCE).expect("a request arrives")
    }
}

/// Serves the requests of a connection. A request for `/socket` becomes a WebSocket, which ends with its client.
fn serve_one(stream: &TcpStream, gate: &Gate, paths: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(count) if count > 0) {
                return;
            }
        }
        let busy = gate.busy.fetch_add(1, Ordering::SeqCst) + 1;
        gate.busy_max.fetch_max(busy, Ordering::SeqCst);
        let path = head.split(' ').nth(1).expect("a path").to_owned();
        if paths.send(path.clone()).is_err() {
            return;
        }
        if path == "/socket" {
            let accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
            (&*stream).write_all(accepted.as_bytes()).expect("room");
            let mut rest = Vec::new();
            // A reset is an end, too.
            let _ = reader.read_to_end(&mut rest);
            gate.busy.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        gate.pass();
        gate.busy.fetch_sub(1, Ordering::SeqCst);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
        if (&*stream).write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn none(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::error(404))
}

fn serve(
    to: &[SocketAddr],
    workers: usize,
    change: impl FnOnce(&mut UpstreamSettings),
) -> (Running, SocketAddr) {
    let to = to.iter().map(|address| format!("http://{address}").parse().expect("a URL")).collect();
    let mut settings =
        UpstreamSettings { name: "app".into(), to, connections: 1, ..UpstreamSettings::default() };
    settings.queue_time = Period::seconds(60);
    change(&mut settings);
    let routes = [RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() }];
    let sites = [SiteRoutes { routes: &routes, ..SiteRoutes::default() }];
    let gateway = Gateway::new(Arc::new(none), &sites, &[settings], &[]).expect("valid settings");
    let server = Server::new(Options { workers: Some(workers), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(any).mount("/", gateway).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    (running, address)
}

/// A client with one request, whose response it has not read.
struct Client(TcpStream);

impl Client {
    fn ask(address: SocketAddr, path: &str) -> Self {
        Self::send(address, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    }

    fn send(address: SocketAddr, request: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.write_all(request.as_bytes()).expect("room");
        Self(stream)
    }

    /// Reads the response to the end of the connection.
    fn answer(mut self) -> String {
        let mut response = Vec::new();
        self.0.read_to_end(&mut response).expect("a response");
        String::from_utf8(response).expect("text")
    }

    fn later(self) -> JoinHandle<String> {
        std::thread::spawn(|| self.answer())
    }
}

fn status(response: &str) -> &str {
    response.get(9..12).unwrap_or(response)
}

/// The value of a metric with one sample, or of the sample with these labels.
fn metric(running: &Running, start: &str) -> f64 {
    let metrics = encke_stats::prometheus::render(&running.families());
    let line = metrics.lines().find_map(|line| line.strip_prefix(start)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{start} is missing: {metrics}")).parse().expect("a number")
}

const QUEUE: &str = "encke_gateway_queue_requests{upstream=\"app\"}";

/// Waits until a metric has a value.
fn until(running: &Running, start: &str, value: f64) {
    wait_until(&format!("{start} is {value}"), || metric(running, start) == value);
}

#[test]
fn waiting_requests_are_sent_in_their_order_on_one_connection() {
    let app = App::start(0);
    let (running, address) = serve(&[app.address], 1, |_| {});
    let mut clients = Vec::new();
    for number in 0..6 {
        clients.push(Client::ask(address, &format!("/{number}")));
        if number == 0 {
            assert_eq!(app.path(), "/0");
        } else {
            until(&running, QUEUE, f64::from(number));
        }
    }
    app.gate.open(6);
    for (number, client) in clients.into_iter().enumerate() {
        assert!(client.answer().ends_with(&format!("\r\n\r\n/{number}")));
        if number > 0 {
            assert_eq!(app.path(), format!("/{number}"));
        }
    }
    assert_eq!(app.gate.busy_max.load(Ordering::SeqCst), 1);
    assert_eq!(app.gate.accepted.load(Ordering::SeqCst), 1, "the connection is reused");
    assert_eq!(metric(&running, "encke_gateway_queue_waits_total{upstream=\"app\"}"), 5.0);
    assert!(metric(&running, "encke_gateway_queue_wait_seconds_total{upstream=\"app\"}") > 0.0);
    running.stop();
}

#[test]
fn two_workers_share_the_limit() {
    const LIMIT: usize = 3;
    let app = App::start(usize::MAX / 2);
    let (running, address) = serve(&[app.address], 2, |settings| settings.connections = LIMIT as u32);
    let clients: Vec<_> = (0..24)
        .map(|number| {
            std::thread::spawn(move || {
                for turn in 0..20 {
                    let path = format!("/{number}/{turn}");
                    let response = Client::ask(address, &path).answer();
                    assert!(response.ends_with(&format!("\r\n\r\n{path}")), "{response}");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("each request has its response"));
    let most = app.gate.busy_max.load(Ordering::SeqCst);
    assert!(most <= LIMIT, "{most} requests at once");
    let accepted = app.gate.accepted.load(Ordering::SeqCst);
    println!("{accepted} connections for 480 requests");
    assert!(accepted < 160, "{accepted} connections: most requests find one of their worker");
    let open = format!(
        "encke_gateway_target_connections_open{{upstream=\"app\",target=\"http://{}\"}}",
        app.address
    );
    assert!(metric(&running, &open) <= LIMIT as f64);
    assert_eq!(metric(&running, QUEUE), 0.0);
    running.stop();
}

#[test]
fn a_request_that_waits_too_long_is_a_503_with_a_retry_time() {
    let app = App::start(0);
    let (running, address) =
        serve(&[app.address], 1, |settings| settings.queue_time = Period::milliseconds(100));
    let first = Client::ask(address, "/first");
    assert_eq!(app.path(), "/first");
    let response = Client::ask(address, "/second").answer();
    assert_eq!(status(&response), "503", "{response}");
    assert!(response.contains("\r\nRetry-After: 1\r\n"), "{response}");
    app.gate.open(1);
    assert_eq!(status(&first.answer()), "200");
    assert_eq!(metric(&running, "encke_gateway_failures_total{reason=\"queue_time\"}"), 1.0);
    running.stop();
}

#[test]
fn a_full_queue_is_a_503_at_once() {
    let app = App::start(0);
    let (running, address) = serve(&[app.address], 1, |settings| settings.queue = 1);
    let first = Client::ask(address, "/first");
    assert_eq!(app.path(), "/first");
    let second = Client::ask(address, "/second");
    until(&running, QUEUE, 1.0);
    let third = Client::ask(address, "/third").answer();
    assert_eq!(status(&third), "503", "{third}");
    assert!(third.contains("\r\nRetry-After: "), "{third}");
    assert_eq!(metric(&running, "encke_gateway_failures_total{reason=\"queue_full\"}"), 1.0);
    app.gate.open(2);
    for client in [first, second] {
        assert_eq!(status(&client.answer()), "200");
    }
    running.stop();
}

/// Two applications of which the first stops responding, and the paths that a hash sends to each.
fn half_hanging(workers: usize, queue: u32) -> (Running, SocketAddr, [App; 2], [Vec<String>; 2]) {
    let apps = [App::start(1_000), App::start(1_000)];
    let targets = apps.each_ref().map(|app| app.address);
    let (running, address) = serve(&targets, workers, |settings| {
        settings.balance = Balance::Hash(BalanceKey::Path);
        settings.queue = queue;
    });
    let mut paths = [Vec::new(), Vec::new()];
    for number in 0..64 {
        let path = format!("/{number}");
        assert_eq!(status(&Client::ask(address, &path).answer()), "200");
        paths[usize::from(apps[0].paths.try_recv().is_err())].push(path);
    }
    assert!(paths.iter().all(|paths| paths.len() >= 4), "{paths:?}");
    while apps.iter().any(|app| app.paths.try_recv().is_ok()) {}
    apps[0].gate.shut();
    (running, address, apps, paths)
}

#[test]
fn a_target_that_hangs_holds_up_no_requests_for_another() {
    let (running, address, apps, [hanging, free]) = half_hanging(1, 2);
    let first = Client::ask(address, &hanging[0]);
    assert_eq!(apps[0].path(), hanging[0]);
    let mut waiting = Vec::new();
    for (number, path) in hanging[1..3].iter().enumerate() {
        waiting.push(Client::ask(address, path));
        until(&running, QUEUE, number as f64 + 1.0);
    }
    for path in &free {
        let response = Client::ask(address, path).answer();
        assert!(response.ends_with(&format!("\r\n\r\n{path}")), "{response}");
    }
    let full = Client::ask(address, &hanging[3]).answer();
    assert_eq!(status(&full), "503", "requests for the target itself still have a limit");
    assert_eq!(metric(&running, QUEUE), 2.0);
    apps[0].gate.open(3);
    assert_eq!(status(&first.answer()), "200");
    for (client, path) in waiting.into_iter().zip(&hanging[1..]) {
        assert!(client.answer().ends_with(path));
        assert_eq!(apps[0].path(), *path, "in their order");
    }
    running.stop();
}

#[test]
fn a_queue_has_room_for_a_busy_target_beside_one_that_hangs() {
    let (running, address, apps, [hanging, free]) = half_hanging(1, 1);
    apps[1].gate.shut();
    let mut clients = Vec::new();
    for (app, paths) in apps.iter().zip([&hanging, &free]) {
        clients.push(Client::ask(address, &paths[0]));
        assert_eq!(app.path(), paths[0]);
    }
    for (number, paths) in [&hanging, &free].into_iter().enumerate() {
        clients.push(Client::ask(address, &paths[1]));
        until(&running, QUEUE, number as f64 + 1.0);
    }
    for paths in [&hanging, &free] {
        assert_eq!(status(&Client::ask(address, &paths[2]).answer()), "503");
    }
    apps.iter().for_each(|app| app.gate.open(2));
    for client in clients {
        assert_eq!(status(&client.answer()), "200");
    }
    running.stop();
}

#[test]
fn a_client_that_leaves_also_leaves_the_queue() {
    let app = App::start(0);
    let (running, address) = serve(&[app.address], 1, |_| {});
    let first = Client::ask(address, "/first");
    assert_eq!(app.path(), "/first");
    // One closes its connection, and the other one only its side of it.
    drop(Client::ask(address, "/second"));
    let third = Client::ask(address, "/third");
    third.0.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(status(&third.answer()), "503");
    until(&running, QUEUE, 0.0);
    let fourth = Client::ask(address, "/fourth");
    until(&running, QUEUE, 1.0);
    app.gate.open(2);
    assert_eq!(status(&first.answer()), "200");
    assert_eq!(status(&fourth.answer()), "200");
    assert_eq!(app.path(), "/fourth", "the application has not seen the others");
    running.stop();
}

#[test]
fn a_client_that_resets_its_connection_leaves_the_queue() {
    let app = App::start(1);
    let (running, address) = serve(&[app.address], 1, |settings| settings.queue_time = Period::seconds(600));
    let mut leaving = Client::send(address, "GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.path(), "/one");
    // The response stays unread, so the system resets the connection when the client closes it.
    leaving.0.peek(&mut [0]).expect("a response");
    let first = Client::ask(address, "/first");
    assert_eq!(app.path(), "/first");
    leaving.0.write_all(b"GET /two HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    until(&running, QUEUE, 1.0);
    drop(leaving);
    until(&running, QUEUE, 0.0);
    app.gate.open(1);
    assert_eq!(status(&first.answer()), "200");
    running.stop();
}

#[test]
fn a_kept_connection_is_given_up_for_another_worker() {
    let app = App::start(usize::MAX / 2);
    // Kept connections never end by themselves here.
    let (running, address) = serve(&[app.address], 2, |settings| settings.keep_time = Period::seconds(600));
    // The system distributes connections over the workers. Only one worker at a time can hold the only permit.
    for number in 0..64 {
        // A request that waited for the end of a kept connection would be refused after `queue_time`.
        let response = Client::ask(address, &format!("/{number}")).answer();
        assert_eq!(status(&response), "200", "{response}");
    }
    let accepted = app.gate.accepted.load(Ordering::SeqCst);
    assert!(accepted > 1, "both workers take part");
    running.stop();
}

#[test]
fn idle_connections_do_not_occupy_the_only_process_of_an_application() {
    let app = App::start_as_one_process();
    // Kept connections never end by themselves here, and no limit is set.
    let (running, address) = serve(&[app.address], 2, |settings| {
        settings.connections = 0;
        settings.keep_time = Period::seconds(600);
        settings.response_time = Period::seconds(600);
    });
    // The system distributes connections over the workers.
    let mut number = 0;
    while app.gate.accepted.load(Ordering::SeqCst) < 3 {
        let response = Client::ask(address, &format!("/{number}")).answer();
        assert_eq!(status(&response), "200", "{response}");
        number += 1;
        assert!(number < 10_000, "both workers take part");
    }
    running.stop();
}

#[test]
fn a_websocket_occupies_a_connection_until_its_end() {
    let app = App::start(usize::MAX / 2);
    let (running, address) = serve(&[app.address], 1, |_| {});
    let upgrade = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut first = Client::send(address, upgrade);
    first.0.read_exact(&mut [0; 12]).expect("a response");
    assert_eq!(app.path(), "/socket");
    let second = Client::send(address, upgrade);
    until(&running, QUEUE, 1.0);
    let third = Client::ask(address, "/third").later();
    until(&running, QUEUE, 2.0);
    drop(first);
    assert_eq!(app.path(), "/socket");
    until(&running, QUEUE, 1.0);
    drop(second);
    assert_eq!(status(&third.join().expect("no panic")), "200");
    assert_eq!(app.path(), "/third");
    running.stop();
}

#[test]
fn a_failed_connection_passes_its_permit_on() {
    // Accepts connections of a target that closes each at once.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let (running, gateway) = serve(&[address], 2, |settings| settings.keep = Some(0));
    let clients: Vec<_> = (0..40).map(|number| Client::ask(gateway, &format!("/{number}")).later()).collect();
    for client in clients {
        let response = client.join().expect("no panic");
        assert_eq!(status(&response), "502", "{response}");
    }
    let open =
        format!("encke_gateway_target_connections_open{{upstream=\"app\",target=\"http://{address}\"}}");
    assert_eq!(metric(&running, &open), 0.0);
    running.stop();
}

/// Reads a head and a body of `length` bytes.
fn read_request(reader: &mut impl std::io::Read, length: usize) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    body
}

#[test]
fn a_body_that_arrives_during_the_wait_reaches_the_next_target() {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (busy, failing) = (listen(), listen());
    let targets = [&busy, &failing].map(|listener| listener.local_addr().expect("an address"));
    let (running, address) = serve(&targets, 1, |_| {});
    let first = Client::ask(address, "/first");
    let (mut busy, _) = busy.accept().expect("a connection");
    read_request(&mut busy, 0);
    let head = "OPTIONS /second HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n";
    let mut second = Client::send(address, &format!("{head}hello"));
    // The other target ends after a part of the body.
    let (mut ending, _) = failing.accept().expect("a connection");
    read_request(&mut ending, 5);
    drop(ending);
    until(&running, QUEUE, 1.0);
    let received = metric(&running, "encke_received_bytes_total");
    second.0.write_all(b"world").expect("room");
    until(&running, "encke_received_bytes_total", received + 5.0);
    busy.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("room");
    assert_eq!(status(&first.answer()), "200");
    assert_eq!(read_request(&mut busy, 10), b"helloworld");
    busy.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("room");
    assert_eq!(status(&second.answer()), "200");
    running.stop();
}
