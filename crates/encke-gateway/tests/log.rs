//! The access log of requests to applications.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use encke_gateway::{Gateway, RouteSettings, SiteRoutes, UpstreamSettings};
use encke_io::testing::PATIENCE;
use encke_server::{Exchange, LogTail, Options, Outcome, Reply, Request, Running, Server, TailFilter};
use encke_settings::Period;

/// An address at which nothing listens: a service of 1988 (RFC 1078), on a port that no test gets from the system.
const CLOSED: &str = "127.0.0.1:1";

/// An application that keeps connections. `/broken` ends within its response, `/file` names a file of the site, and `/socket` is a
/// WebSocket that ends at once.
fn app() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || serve_one(&stream.expect("a connection")));
        }
    });
    address
}

fn serve_one(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(count) if count > 0) {
                return;
            }
        }
        let (response, is_last) = match head.split(' ').nth(1) {
            Some("/broken") => ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbroken", true),
            Some("/file") => {
                ("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /a.pdf\r\nContent-Length: 0\r\n\r\n", false)
            }
            Some("/socket") => (
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                true,
            ),
            _ => ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
        };
        if (&*stream).write_all(response.as_bytes()).is_err() || is_last {
            return;
        }
    }
}

fn site(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::text(200, "a file"))
}

fn serve(to: &[SocketAddr], change: impl FnOnce(&mut UpstreamSettings)) -> (Running, SocketAddr, LogTail) {
    let to = to.iter().map(|address| format!("http://{address}").parse().expect("a URL")).collect();
    let mut settings = UpstreamSettings { name: "app".into(), to, ..UpstreamSettings::default() };
    change(&mut settings);
    let app = RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() };
    let file = RouteSettings { pattern: "/a.pdf".into(), internal: true, ..RouteSettings::default() };
    let sites = [SiteRoutes { routes: &[app, file], ..SiteRoutes::default() }];
    let gateway = Gateway::new(Arc::new(site), &sites, &[settings], &[]).expect("valid settings");
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(any).mount("/", gateway).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    let tail = running.tail(TailFilter::default(), || {}).expect("room for a tail");
    (running, address, tail)
}

/// Sends a request, reads to the end of the connection, and returns the line of the log.
fn ask(address: SocketAddr, tail: &LogTail, path: &str, more: &str) -> String {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n").expect("room");
    // A response that breaks off ends with a reset.
    let _ = client.read_to_end(&mut Vec::new());
    drop(client);
    let entry = tail.next_within(PATIENCE).expect("a line");
    String::from_utf8(entry.line.to_vec()).expect("text")
}

const CLOSE: &str = "Connection: close\r\n";

/// The value of a member, as its JSON text.
fn member<'a>(line: &'a str, name: &str) -> &'a str {
    let start = format!(",\"{name}\":");
    let (_, rest) = line.split_once(&start).unwrap_or_else(|| panic!("{name} is missing: {line}"));
    assert!(!rest.contains(&start), "{name} occurs twice: {line}");
    rest.split([',', '}']).next().unwrap_or_default()
}

fn number(line: &str, name: &str) -> u64 {
    member(line, name).parse().unwrap_or_else(|_| panic!("{name} is no number: {line}"))
}

#[test]
fn a_line_has_the_target_and_the_times_of_the_last_attempt() {
    let app = app();
    let (running, address, tail) = serve(&[app], |_| {});
    for (path, is_kept) in [("/", false), ("/", true), ("/file", true), ("/file", true), ("/broken", true)] {
        let line = ask(address, &tail, path, CLOSE);
        assert_eq!(member(&line, "upstream"), "\"app\"");
        assert_eq!(member(&line, "upstream_target"), format!("\"http://{app}\""));
        assert_eq!(number(&line, "upstream_attempts"), 1);
        assert_eq!(number(&line, "upstream_queue_us"), 0);
        assert_eq!(member(&line, "upstream_connect_us") == "null", is_kept, "{line}");
        assert!(number(&line, "upstream_first_byte_us") <= number(&line, "duration_us"), "{line}");
        let reason = if path == "/broken" { "\"truncated\"" } else { "null" };
        assert_eq!(member(&line, "reason"), reason, "{line}");
    }
    running.stop();
}

#[test]
fn a_line_of_a_failure_has_its_reason_and_attempts() {
    let closed = CLOSED.parse().expect("an address");
    let (running, address, tail) = serve(&[closed], |_| {});
    let line = ask(address, &tail, "/", CLOSE);
    assert_eq!(member(&line, "status"), "502");
    assert_eq!(member(&line, "reason"), "\"unreachable\"");
    assert_eq!(member(&line, "upstream_target"), format!("\"http://{CLOSED}\""));
    assert_eq!(number(&line, "upstream_attempts"), 3);
    assert_eq!(member(&line, "upstream_connect_us"), "null");
    assert_eq!(member(&line, "upstream_first_byte_us"), "null");
    running.stop();
}

#[test]
fn a_line_of_a_websocket_has_the_facts_of_its_beginning() {
    let app = app();
    for connections in [0, 1] {
        let (running, address, tail) = serve(&[app], |settings| settings.connections = connections);
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let line = ask(address, &tail, "/socket", upgrade);
        assert_eq!(member(&line, "status"), "101");
        assert_eq!(member(&line, "upstream_target"), format!("\"http://{app}\""));
        assert_eq!(number(&line, "upstream_attempts"), 1);
        assert!(number(&line, "upstream_connect_us") <= number(&line, "upstream_first_byte_us"), "{line}");
        running.stop();
    }
}

#[test]
fn a_line_has_the_time_in_the_queue() {
    // No application accepts, so the first request waits for its connection, and the second one in the queue.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = listener.local_addr().expect("an address");
    let (running, address, tail) = serve(&[silent], |settings| {
        settings.connections = 1;
        settings.queue_time = Period::milliseconds(50);
    });
    let mut first = TcpStream::connect(address).expect("a connection");
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    let (_held, _) = listener.accept().expect("a connection");
    let line = ask(address, &tail, "/", CLOSE);
    assert_eq!(member(&line, "reason"), "\"queue_time\"");
    assert!(number(&line, "upstream_queue_us") >= 50_000, "{line}");
    assert_eq!(number(&line, "upstream_attempts"), 0);
    assert_eq!(member(&line, "upstream_target"), "null");
    running.stop();
}

#[test]
fn a_line_of_the_site_has_no_member_of_an_upstream() {
    let (running, address, tail) = serve(&[app()], |_| {});
    let line = ask(address, &tail, "/a.pdf", CLOSE);
    assert!(!line.contains("upstream"), "{line}");
    running.stop();
}
