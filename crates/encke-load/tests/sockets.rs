//! The generator against servers on real sockets, over every back end. Counts must agree to the last request and byte, and
//! latencies must show a freeze.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use encke_io::Backend;
use encke_io::socket::Address;
use encke_io::testing::PATIENCE;
use encke_load::plan::WarmUp;
use encke_load::{
    Arrivals, Mix, Pace, Plan, PreparedRequest, Rate, RunHandle, RunOutcome, Sources, Stop, Style, Url,
};

/// A test server with a thread per connection.
struct Server {
    address: Address,
    counts: Arc<Counts>,
}

/// The server's own counts.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    answered: AtomicU64,
    body_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    resets: AtomicU64,
    peers: Mutex<BTreeSet<IpAddr>>,
}

/// Deviations of a server from plain responses.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// Closes each n-th connection with its request unread, so that the system sends a reset.
    reset_every: u64,
    /// Does not respond in the first `frozen_ms` of each second.
    frozen_ms: u64,
}

impl Server {
    fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let counts = Arc::new(Counts::default());
        let own = Arc::clone(&counts);
        let began = Instant::now();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let number = own.connections.fetch_add(1, Ordering::Relaxed) + 1;
                let counts = Arc::clone(&own);
                thread::spawn(move || {
                    let _gone = greet(&stream, number, manners, &counts).and_then(|welcome| {
                        if welcome { attend(stream, manners, began, &counts) } else { Ok(()) }
                    });
                });
            }
        });
        Self { address: address.into(), counts }
    }

    fn count(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        of(&self.counts).load(Ordering::Relaxed)
    }
}

/// Registers a connection; returns false if it is to be reset.
fn greet(stream: &TcpStream, number: u64, manners: Manners, counts: &Counts) -> std::io::Result<bool> {
    counts.peers.lock().expect("nobody panics with it").insert(stream.peer_addr()?.ip());
    stream.set_nodelay(true)?;
    if manners.reset_every > 0 && number.is_multiple_of(manners.reset_every) {
        // Wait until the first byte has arrived, and leave it unread.
        stream.peek(&mut [0])?;
        counts.resets.fetch_add(1, Ordering::Relaxed);
        return Ok(false);
    }
    Ok(true)
}

fn attend(
    mut stream: impl Read + Write,
    manners: Manners,
    began: Instant,
    counts: &Counts,
) -> std::io::Result<()> {
    let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                len => input.extend_from_slice(&buffer[..len]),
            }
            continue;
        };
        let head: Vec<u8> = input.drain(..end + 4).collect();
        counts.requests.fetch_add(1, Ordering::Relaxed);
        thaw(began, manners.frozen_ms);
        let head = String::from_utf8(head).expect("requests are text");
        let closing = head.contains("Connection: close");
        let field = if closing { "Connection: close\r\n" } else { "" };
        let path = head.split(' ').nth(1).expect("a target");
        let (answer, body, last) = match (path, head.starts_with("HEAD")) {
            (_, true) => (format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 7\r\n\r\n"), 0, closing),
            ("/chunked", _) => {
                let chunks = "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
                (format!("HTTP/1.1 200 OK\r\n{field}Transfer-Encoding: chunked\r\n\r\n{chunks}"), 7, closing)
            }
            ("/empty", _) => (format!("HTTP/1.1 204 No Content\r\n{field}\r\n"), 0, closing),
            ("/until-close", _) => ("HTTP/1.1 200 OK\r\n\r\nabcdefg".to_owned(), 7, true),
            ("/gone", _) => {
                (format!("HTTP/1.1 404 Not Found\r\n{field}Content-Length: 0\r\n\r\n"), 0, closing)
            }
            _ => (format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 7\r\n\r\nabcdefg"), 7, closing),
        };
        // Counted before the send: a client that has read the response may look at once.
        counts.answered.fetch_add(1, Ordering::Relaxed);
        counts.body_bytes.fetch_add(body, Ordering::Relaxed);
        counts.sent_bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
        stream.write_all(answer.as_bytes())?;
        if last {
            return Ok(());
        }
    }
}

/// Returns when the current freeze is over; at once if there is none.
fn thaw(began: Instant, frozen_ms: u64) {
    let (never, mutex) = (Condvar::new(), Mutex::new(()));
    loop {
        let within = Duration::from_nanos(began.elapsed().subsec_nanos().into());
        let left = Duration::from_millis(frozen_ms).saturating_sub(within);
        if left.is_zero() {
            return;
        }
        let guard = mutex.lock().expect("nobody else has it");
        let _timed_out = never.wait_timeout(guard, left).expect("nobody else has it");
    }
}

fn plan(server: &Server, method: &str, path: &str, style: Style) -> Plan {
    let message = PreparedRequest::new(method, "localhost", path, &[], None, style).expect("a request");
    Plan::new(server.address.clone(), Mix::new(vec![(message, 1)]).expect("one message"))
}

fn run(plan: Plan) -> RunOutcome {
    let mut run = RunHandle::start(plan).unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(run.wait(PATIENCE), "it does not end");
    run.outcome().unwrap_or_else(|trouble| panic!("{trouble}"))
}

fn backends() -> impl Iterator<Item = Backend> {
    Backend::NAMED.into_iter().filter(|backend| backend.compiled())
}

#[test]
fn a_fixed_number_of_requests_agrees_with_the_server_for_every_kind_of_answer() {
    for backend in backends() {
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/chunked"),
            ("GET", "/empty"),
            ("HEAD", "/"),
            ("GET", "/until-close"),
            ("GET", "/gone"),
        ] {
            for one_shot in [false, true] {
                let server = Server::start(Manners::default());
                let style = Style { closing: one_shot, ..Style::default() };
                let plan = Plan {
                    stop: Stop::Count(1_000),
                    connections: 10,
                    threads: 2,
                    requests_per_connection: one_shot.then_some(1),
                    backend,
                    ..plan(&server, method, path, style)
                };
                let outcome = run(plan);
                let totals = &outcome.totals;
                let case = format!("{backend}, {method} {path}, one shot: {one_shot}");
                assert!(outcome.errors.is_empty(), "{case}: {:?}", outcome.errors);
                assert_eq!((totals.begun, totals.finished), (1_000, 1_000), "{case}");
                assert_eq!(server.count(|counts| &counts.answered), 1_000, "{case}");
                assert_eq!(server.count(|counts| &counts.body_bytes), totals.body_bytes, "{case}");
                assert_eq!(server.count(|counts| &counts.sent_bytes), totals.received_bytes, "{case}");
                let class = if path == "/gone" { 4 } else { 2 };
                assert_eq!(totals.statuses.class(class), 1_000, "{case}");
                assert_eq!(totals.wrong, if path == "/gone" { 1_000 } else { 0 }, "{case}");
                if one_shot {
                    assert_eq!(server.count(|counts| &counts.connections), 1_000, "{case}");
                }
                assert_eq!(totals.service.count(), 1_000, "{case}");
            }
        }
    }
}

#[test]
fn an_answer_with_another_body_is_wrong_however_it_ends() {
    // The digest of "abcdefg", computed by sha256sum(1).
    let digest = "sha256:7d1a54127b222502f5b79b5fb0803061152a44f92b37e23c6527baf665d4da9a";
    for (expected, method, path, wrong) in [
        ("abcdefg", "GET", "/", 0),
        ("abcdefg", "GET", "/chunked", 0),
        ("abcdefg", "GET", "/until-close", 0),
        (digest, "GET", "/", 0),
        (digest, "GET", "/chunked", 0),
        (digest, "GET", "/until-close", 0),
        ("abcdefh", "GET", "/", 200),
        ("abcdef", "GET", "/chunked", 200),
        ("abcdefgh", "GET", "/until-close", 200),
        (digest, "GET", "/empty", 200),
        ("", "GET", "/empty", 0),
        ("", "HEAD", "/", 0),
    ] {
        for pipeline in [1, 8] {
            if pipeline > 1 && path == "/until-close" {
                continue;
            }
            let server = Server::start(Manners::default());
            let plan = Plan {
                stop: Stop::Count(200),
                connections: 3,
                pipeline,
                body: Some(expected.parse().expect("an expectation")),
                ..plan(&server, method, path, Style::default())
            };
            let totals = run(plan).totals;
            let case = format!("{expected}: {method} {path}, pipeline {pipeline}");
            assert_eq!((totals.finished, totals.wrong, totals.differing), (200, wrong, wrong), "{case}");
        }
    }
    // An unexpected status is wrong by itself, whatever the body.
    let server = Server::start(Manners::default());
    let body = Some("another".parse().expect("an expectation"));
    let totals =
        run(Plan { stop: Stop::Count(20), body, ..plan(&server, "GET", "/gone", Style::default()) }).totals;
    assert_eq!((totals.wrong, totals.differing), (20, 0));
}

#[test]
fn pipelined_requests_are_answered_in_their_order_and_counted_once() {
    for backend in backends() {
        let server = Server::start(Manners::default());
        let stop = Stop::Count(5_000);
        let plan = Plan {
            stop,
            connections: 4,
            pipeline: 16,
            backend,
            ..plan(&server, "GET", "/", Style::default())
        };
        let outcome = run(plan);
        assert_eq!((outcome.totals.begun, outcome.totals.finished), (5_000, 5_000), "{backend}");
        assert_eq!(server.count(|counts| &counts.answered), 5_000, "{backend}");
        assert_eq!(server.count(|counts| &counts.connections), 4, "{backend}");
    }
}

#[test]
fn pipelined_answers_that_wait_for_many_others_gather_where_the_kernel_can() {
    let gathers = Backend::auto_client(true).0;
    for backend in backends() {
        let server = Server::start(Manners::default());
        let plan = Plan {
            stop: Stop::Count(20_000),
            connections: 256,
            pipeline: 16,
            backend,
            ..plan(&server, "GET", "/", Style::default())
        };
        let totals = run(plan).totals;
        assert_eq!((totals.begun, totals.finished), (20_000, 20_000), "{backend}");
        assert_eq!(server.count(|counts| &counts.answered), 20_000, "{backend}");
        let can_gather = backend == Backend::Uring && gathers == Backend::Uring;
        assert_eq!(totals.gathered > 0, can_gather, "{backend}: {} gathered", totals.gathered);
    }
}

#[test]
fn a_server_that_resets_connections_loses_no_request_from_the_account() {
    for backend in backends() {
        let server = Server::start(Manners { reset_every: 100, ..Manners::default() });
        let style = Style { closing: true, ..Style::default() };
        let plan = Plan {
            stop: Stop::Count(3_000),
            connections: 8,
            requests_per_connection: Some(1),
            backend,
            ..plan(&server, "GET", "/", style)
        };
        let totals = run(plan).totals;
        assert_eq!(totals.begun, 3_000, "{backend}");
        assert_eq!(totals.failed, server.count(|counts| &counts.resets), "{backend}");
        assert_eq!(totals.finished, server.count(|counts| &counts.answered), "{backend}");
        assert_eq!((totals.failed, totals.finished), (30, 2_970), "{backend}");
    }
}

/// The true values of p90 and p99 are 100 and 190 ms. A busy machine only adds to them, and not ten times in a row.
#[test]
fn an_open_loop_shows_a_freeze_of_a_real_server() {
    let mut times = Vec::new();
    let is_near = |_| {
        let server = Server::start(Manners { frozen_ms: 200, ..Manners::default() });
        let rate = Rate::constant(500.0).expect("a rate");
        let plan = Plan {
            stop: Stop::After(Duration::from_secs(5)),
            pace: Pace::Open(rate, Arrivals::Even),
            connections: 16,
            ..plan(&server, "GET", "/", Style::default())
        };
        let totals = run(plan).totals;
        assert_eq!((totals.begun, totals.finished), (2_500, 2_500), "the whole schedule is sent");
        let quantile_ms = |share| totals.response.quantile_ns(share).expect("answered") as f64 / 1e6;
        let (p50, p90, p99) = (quantile_ms(0.5), quantile_ms(0.9), quantile_ms(0.99));
        assert!(p90 > 95.0, "p90 {p90} ms");
        assert!(p99 > 180.0, "p99 {p99} ms");
        times.push((p50, p90, p99));
        p50 < 60.0 && p90 < 300.0 && p99 < 600.0
    };
    assert!((0..10).any(is_near), "p50, p90 and p99 in ms: {times:?}");
}

#[test]
fn several_messages_come_by_their_weights_and_templates_are_filled() {
    let server = Server::start(Manners::default());
    let message = |path| {
        PreparedRequest::new("GET", "localhost", path, &[], None, Style::default()).expect("a request")
    };
    let mix =
        Mix::new(vec![(message("/empty?{seq}&{uuid}"), 1), (message("/gone"), 3)]).expect("two messages");
    let plan = Plan {
        stop: Stop::Count(4_000),
        warm_up: WarmUp::Count(100),
        connections: 4,
        ..Plan::new(server.address.clone(), mix)
    };
    let totals = run(plan).totals;
    assert_eq!((totals.finished, totals.warm_up), (4_000, 100));
    assert!((2_800..3_200).contains(&totals.statuses.class(4)), "{:?}", totals.statuses);
    assert_eq!(server.count(|counts| &counts.requests), 4_100);
}

#[test]
fn a_run_that_is_told_to_stop_ends_with_everything_accounted_for() {
    let server = Server::start(Manners::default());
    let plan = Plan { stop: Stop::Told, threads: 2, ..plan(&server, "GET", "/", Style::default()) };
    let mut run = RunHandle::start(plan).unwrap_or_else(|trouble| panic!("{trouble}"));
    let began = Instant::now();
    while run.totals().1.finished < 1_000 {
        assert!(
            began.elapsed() < PATIENCE && !run.wait(Duration::from_millis(5)),
            "it goes on until it is told"
        );
    }
    let halter = run.halter();
    thread::spawn(move || halter.halt());
    assert!(run.wait(PATIENCE), "it does not end");
    let totals = run.outcome().unwrap_or_else(|trouble| panic!("{trouble}")).totals;
    assert_eq!((totals.begun, totals.aborted, totals.failed), (totals.finished, 0, 0));
    assert_eq!(totals.finished, server.count(|counts| &counts.answered));
}

#[test]
fn connections_come_from_each_source_in_its_turn() {
    for backend in backends() {
        let server = Server::start(Manners::default());
        let Sources(sources) = "127.0.0.2-4,127.0.0.9".parse().expect("sources");
        let peers: BTreeSet<IpAddr> = sources.iter().copied().collect();
        let (stop, connections) = (Stop::Count(100), 8);
        let plan = Plan {
            stop,
            connections,
            threads: 2,
            sources,
            backend,
            ..plan(&server, "GET", "/", Style::default())
        };
        assert_eq!(run(plan).totals.finished, 100, "{backend}");
        assert_eq!(*server.counts.peers.lock().expect("nobody panics with it"), peers, "{backend}");
    }
}

/// No connect time includes earlier dials. On a busy machine the system may still establish several connections together, but
/// not ten times in a row.
#[test]
fn each_connection_is_timed_from_its_own_attempt() {
    for backend in backends() {
        let alone = |_| {
            let server = Server::start(Manners::default());
            let (stop, connections) = (Stop::Count(64), 64);
            let plan = Plan { stop, connections, backend, ..plan(&server, "GET", "/", Style::default()) };
            let RunOutcome { totals, opening, .. } = run(plan);
            totals.connect.mean_ns().expect("64 were made") * 8.0 < opening.as_nanos() as f64
        };
        assert!((0..10).any(alone), "{backend}: as long as all of them");
    }
}

#[test]
fn a_connection_that_its_server_will_close_is_left_to_it() {
    const REQUESTS: u64 = 200;
    for backend in backends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || {
            // Keeps each connection open for a while after announcing its close.
            let mut kept = std::collections::VecDeque::new();
            let mut closed_first = 0;
            for _ in 0..REQUESTS {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a request");
                    request.push(byte[0]);
                }
                // Up to this response the run continues; after the last one the generator closes everything.
                if kept.len() > 3 {
                    let mut oldest: TcpStream = kept.pop_front().expect("there are some");
                    oldest.set_nonblocking(true).expect("a socket");
                    closed_first += u64::from(matches!(oldest.read(&mut [0]), Ok(0)));
                }
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                    .expect("it reads");
                kept.push_back(stream);
            }
            closed_first
        });
        let url: Url = format!("http://{address}/").parse().expect("a URL");
        let message = PreparedRequest::new("GET", &url.authority(), "/", &[], None, Style::default())
            .expect("a request");
        let mix = Mix::new(vec![(message, 1)]).expect("one message");
        let plan = Plan {
            backend,
            stop: Stop::Count(REQUESTS),
            connections: 1,
            ..Plan::new(Address::Inet(address), mix)
        };
        let outcome = run(plan);
        assert_eq!((outcome.totals.finished, outcome.totals.failed), (REQUESTS, 0), "{backend:?}");
        assert_eq!(server.join().expect("it served"), 0, "{backend:?}: closed by the generator first");
    }
}

#[test]
fn a_port_where_nobody_listens_is_told_as_refused() {
    // A service of 1988 (RFC 1078), on a port that no test gets from the system.
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let url: Url = format!("http://{address}/").parse().expect("a URL");
    let message = PreparedRequest::new("GET", &url.authority(), url.target(), &[], None, Style::default());
    let mix = Mix::new(vec![(message.expect("a request"), 1)]).expect("one message");
    let outcome = run(Plan { stop: Stop::Count(5), connections: 2, ..Plan::new(address, mix) });
    assert_eq!((outcome.totals.finished, outcome.totals.failed), (0, 5));
    let said: Vec<String> = outcome.errors.iter().map(|error| error.cause.to_string()).collect();
    assert_eq!(said, ["the connection was refused"]);
}

/// Servers on Unix sockets, which not every system has.
#[cfg(unix)]
mod unix {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use encke_io::socket::{ListenOptions, Listener};

    use super::*;

    /// A server on a Unix socket.
    fn local(path: &Path) -> Server {
        let listener = UnixListener::bind(path).expect("a free path");
        let counts = Arc::new(Counts::default());
        let own = Arc::clone(&counts);
        let began = Instant::now();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                own.connections.fetch_add(1, Ordering::Relaxed);
                let counts = Arc::clone(&own);
                thread::spawn(move || {
                    let _gone = attend(stream, Manners::default(), began, &counts);
                });
            }
        });
        Server { address: Address::Unix(path.to_owned()), counts }
    }

    #[test]
    fn a_unix_socket_is_asked_as_a_port_is() {
        for backend in backends() {
            let path = std::env::temp_dir().join(format!("encke-load-{}-{backend}", std::process::id()));
            let _left_by_another_run = std::fs::remove_file(&path);
            let server = local(&path);
            for one_shot in [false, true] {
                let before = server.count(|counts| &counts.answered);
                let style = Style { closing: one_shot, ..Style::default() };
                let plan = Plan {
                    stop: Stop::Count(500),
                    connections: 10,
                    requests_per_connection: one_shot.then_some(1),
                    backend,
                    ..plan(&server, "GET", "/", style)
                };
                let outcome = run(plan);
                assert!(outcome.errors.is_empty(), "{backend}: {:?}", outcome.errors);
                assert_eq!(outcome.totals.finished, 500, "{backend}, one shot: {one_shot}");
                assert_eq!(server.count(|counts| &counts.answered) - before, 500, "{backend}");
            }
            assert_eq!(server.count(|counts| &counts.connections), 510, "{backend}");
            std::fs::remove_file(&path).expect("it was bound");
        }
    }

    #[test]
    fn a_unix_socket_whose_queue_is_full_is_told_as_that() {
        let path = std::env::temp_dir().join(format!("encke-load-{}-full", std::process::id()));
        let _left_by_another_run = std::fs::remove_file(&path);
        // No connection is accepted, so the queue fills up.
        let options = ListenOptions { backlog: 4, shared: false, mode: None };
        let _listener = Listener::bind(&Address::Unix(path.clone()), options).expect("a free path");
        let server = Server { address: Address::Unix(path.clone()), counts: Arc::default() };
        let plan = Plan {
            stop: Stop::Count(20),
            connections: 20,
            timeout: Duration::from_millis(200),
            requests_per_connection: Some(1),
            ..plan(&server, "GET", "/", Style::default())
        };
        let outcome = run(plan);
        std::fs::remove_file(&path).expect("it was bound");
        let said: BTreeSet<String> = outcome.errors.iter().map(|error| error.cause.to_string()).collect();
        assert!(said.contains("the queue of the server's listener is full"), "{said:?}");
        assert_eq!((outcome.totals.begun, outcome.totals.failed), (20, 20));
    }
}
