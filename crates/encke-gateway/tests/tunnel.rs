//! WebSockets to an application, from outside.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use encke_gateway::{Gateway, RouteSettings, SiteRoutes, UpstreamSettings};
use encke_io::testing::{PATIENCE, wait_until};
use encke_server::{Body, Exchange, Options, Outcome, Reply, Request, Running, Server};

/// An address at which nothing listens: a service of 1988 (RFC 1078), on a port that no test gets from the system.
const CLOSED: &str = "127.0.0.1:1";
const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A long response, for clients that do not read it at once.
fn none(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::new(404).body(Body::Bytes(vec![b'x'; LONG])))
}

const LONG: usize = 32 << 20;

/// Serves one WebSocket of an application by `serve`, after its request.
fn app(serve: impl FnOnce(BufReader<TcpStream>, String) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut reader = BufReader::new(stream);
        let head = head(&mut reader);
        serve(reader, head);
    });
    (address, thread)
}

fn head(reader: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a line") > 0, "the connection ended: {head}");
    }
    head
}

fn gateway(to: &[SocketAddr], change: impl FnOnce(&mut UpstreamSettings)) -> Gateway {
    let to = to.iter().map(|address| format!("http://{address}").parse().expect("a URL")).collect();
    let mut settings = UpstreamSettings { name: "app".into(), to, ..UpstreamSettings::default() };
    change(&mut settings);
    let routes =
        [RouteSettings { pattern: "/chat".into(), upstream: Some("app".into()), ..RouteSettings::default() }];
    let sites = [SiteRoutes { routes: &routes, ..SiteRoutes::default() }];
    Gateway::new(Arc::new(none), &sites, &[settings], &[]).expect("valid settings")
}

fn serve(to: &[SocketAddr], change: impl FnOnce(&mut UpstreamSettings)) -> (Running, SocketAddr) {
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let running = server
        .listen("127.0.0.1:0".parse().expect("an address"))
        .mount("/", gateway(to, change))
        .start()
        .expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    (running, address)
}

fn client(address: SocketAddr, request: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(request.as_bytes()).expect("room");
    BufReader::new(stream)
}

#[test]
fn bytes_pass_in_both_directions_until_both_sides_have_ended() {
    let (address, app) = app(|mut reader, head| {
        assert!(head.starts_with("GET /chat HTTP/1.1\r\nHost: a\r\n"), "{head}");
        for line in [
            "Connection: Upgrade\r\n",
            "Upgrade: websocket\r\n",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        ] {
            assert_eq!(head.matches(line).count(), 1, "{head}");
        }
        // The first frame follows the head in the same packet.
        reader.get_mut().write_all(format!("{ACCEPT}first").as_bytes()).expect("room");
        let mut early = [0; 5];
        reader.read_exact(&mut early).expect("what the client has sent with its request");
        assert_eq!(&early, b"early");
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("the end");
        assert_eq!(rest.len(), 1 << 20);
        reader.get_mut().write_all(&rest).expect("room");
    });
    let (running, address) = serve(&[address], |_| {});
    let mut client = client(address, &format!("{UPGRADE}early"));
    let head = head(&mut client);
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    let mut first = [0; 5];
    client.read_exact(&mut first).expect("the first frame");
    assert_eq!(&first, b"first");
    let sent: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 251 + at) as u8).collect();
    client.get_mut().write_all(&sent).expect("room");
    client.get_mut().shutdown(Shutdown::Write).expect("it is open");
    let mut back = Vec::new();
    client.read_to_end(&mut back).expect("the echo and the end");
    assert!(back == sent, "{} bytes", back.len());
    app.join().expect("no panic");
    running.stop();
}

#[test]
fn a_refusal_of_the_application_reaches_the_client_whose_connection_goes_on() {
    let (address, app) = app(|mut reader, _| {
        let refusal = "HTTP/1.1 403 Forbidden\r\nX-Why: you\r\nContent-Length: 4\r\n\r\nno!\n";
        reader.get_mut().write_all(refusal.as_bytes()).expect("room");
    });
    let (running, address) = serve(&[address], |_| {});
    let mut client = client(address, UPGRADE);
    let refused = head(&mut client);
    assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("X-Why: you\r\n"), "{refused}");
    let mut text = [0; 4];
    client.read_exact(&mut text).expect("the content");
    app.join().expect("no panic");
    client.get_mut().write_all(b"GET /chat HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    assert!(head(&mut client).starts_with("HTTP/1.1 502 "), "nothing listens there now");
    running.stop();
}

#[test]
fn without_an_application_that_responds_the_client_gets_an_error() {
    let closed = CLOSED.parse().expect("an address");
    let (running, address) = serve(&[closed], |_| {});
    assert!(head(&mut client(address, UPGRADE)).starts_with("HTTP/1.1 502 "));
    running.stop();
    let (silent, app) = app(|mut reader, _| drop(reader.read_to_end(&mut Vec::new())));
    let (running, address) =
        serve(&[silent], |settings| settings.response_time = encke_settings::Period::milliseconds(50));
    assert!(head(&mut client(address, UPGRADE)).starts_with("HTTP/1.1 504 "));
    app.join().expect("no panic");
    running.stop();
}

#[test]
fn another_target_takes_over_where_nothing_listens() {
    let closed = CLOSED.parse().expect("an address");
    let (address, app) = app(|mut reader, _| reader.get_mut().write_all(ACCEPT.as_bytes()).expect("room"));
    let (running, address) = serve(&[closed, address], |_| {});
    assert!(head(&mut client(address, UPGRADE)).starts_with("HTTP/1.1 101 "));
    app.join().expect("no panic");
    running.stop();
}

#[test]
fn a_tunnel_survives_a_reload_and_ends_with_its_client() {
    let (address, app) = app(|mut reader, _| {
        reader.get_mut().write_all(ACCEPT.as_bytes()).expect("room");
        let mut bytes = [0; 4];
        for _ in 0..2 {
            reader.read_exact(&mut bytes).expect("bytes");
            reader.get_mut().write_all(&bytes).expect("room");
        }
        assert_eq!(reader.read(&mut bytes).expect("the end"), 0);
    });
    let (running, at) = serve(&[address], |_| {});
    let mut client = client(at, UPGRADE);
    head(&mut client);
    let echo = |client: &mut BufReader<TcpStream>| {
        client.get_mut().write_all(b"ping").expect("room");
        let mut bytes = [0; 4];
        client.read_exact(&mut bytes).expect("the echo");
    };
    echo(&mut client);
    let other = Arc::new(gateway(&[at], |_| {}));
    running.reload(encke_server::ConnLimits::default(), Some(vec![("/".into(), other)]));
    echo(&mut client);
    drop(client);
    app.join().expect("no panic");
    running.stop();
}

#[test]
fn the_application_may_respond_before_an_earlier_response_is_read() {
    for refuses in [false, true] {
        let (address, app) = app(move |mut reader, _| {
            let response =
                if refuses { "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno" } else { ACCEPT };
            reader.get_mut().write_all(response.as_bytes()).expect("room");
        });
        let (running, address) = serve(&[address], |_| {});
        // The client reads the first response only when the application has closed its connection.
        let mut client = client(address, &format!("GET /long HTTP/1.1\r\nHost: a\r\n\r\n{UPGRADE}"));
        app.join().expect("no panic");
        assert!(head(&mut client).starts_with("HTTP/1.1 404 "));
        let mut content = vec![0; LONG];
        client.read_exact(&mut content).expect("the long response");
        let status = if refuses { "HTTP/1.1 403 " } else { "HTTP/1.1 101 " };
        assert!(head(&mut client).starts_with(status));
        running.stop();
    }
}

/// The value of a metric without labels.
fn metric(running: &Running, name: &str) -> String {
    let metrics = encke_stats::prometheus::render(&running.families());
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing: {metrics}")).to_owned()
}

#[test]
fn a_client_that_sends_gets_the_last_bytes_of_an_application_that_closes() {
    const BYTES: usize = 200_000;
    let (go, gate) = channel::<()>();
    let (address, app) = app(move |mut reader, _| {
        reader.get_mut().write_all(ACCEPT.as_bytes()).expect("room");
        // Bytes of the client that stay unread make the close a reset.
        reader.get_mut().peek(&mut [0]).expect("the client's bytes");
        reader.get_mut().write_all(&[b'x'; BYTES]).expect("room");
        // A reset also destroys what has not left.
        gate.recv().expect("the gateway has all bytes");
    });
    let (running, address) = serve(&[address], |_| {});
    let mut client = client(address, UPGRADE);
    head(&mut client);
    client.get_mut().write_all(b"more").expect("room");
    let received = "encke_upstream_bytes_total{direction=\"received\"}";
    let all = || metric(&running, received).parse::<usize>().is_ok_and(|bytes| bytes >= BYTES);
    wait_until("the gateway has all bytes", all);
    go.send(()).expect("the application waits");
    app.join().expect("no panic");
    wait_until("the gateway knows", || metric(&running, "encke_upstream_connections") == "0");
    // The client has received nothing, and still sends.
    client.get_mut().write_all(b"still more").expect("room");
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).expect("an end, not a reset");
    assert_eq!(bytes.len(), BYTES);
    running.stop();
}

#[test]
fn endless_interim_responses_end_the_request() {
    let (address, app) = app(|mut reader, _| {
        // Until the gateway closes the connection.
        while reader.get_mut().write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").is_ok() {}
    });
    let (running, address) = serve(&[address], |_| {});
    let mut client = client(address, UPGRADE);
    assert!(head(&mut client).starts_with("HTTP/1.1 502 "));
    app.join().expect("no panic");
    running.stop();
}
