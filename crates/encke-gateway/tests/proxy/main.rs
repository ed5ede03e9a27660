//! The gateway from outside: a server with real sockets between clients and applications of the tests.

mod hostile;
mod responses;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use encke_gateway::{
    AppDirectory, FilesOrder, Gateway, ResponseCompression, RouteSettings, SiteRoutes, UpstreamSettings,
    UpstreamTls,
};
use encke_io::testing::PATIENCE;
use encke_server::{Exchange, ListenConfig, Options, Outcome, Reply, Request, Running, Server, TlsIdentity};

use encke_session::tls::LocalAuthority;
use encke_settings::TlsSettings;

/// An address at which nothing listens: a service of 1988 (RFC 1078), on a port that no test gets from the system.
const CLOSED: &str = "127.0.0.1:1";

/// An application: each connection is served by the given function, on a thread of its own.
struct App {
    address: SocketAddr,
    /// The heads of the requests, in order of arrival.
    heads: Receiver<String>,
}

impl App {
    fn start(serve: impl Fn(&mut Call) -> bool + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, heads) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                let (serve, sender) = (serve.clone(), sender.clone());
                std::thread::spawn(move || {
                    let mut call = Call::on(stream, sender);
                    while call.next() && serve(&mut call) {}
                });
            }
        });
        Self { address, heads }
    }

    fn head(&self) -> String {
        self.heads.recv_timeout(PATIENCE).expect("a request arrives")
    }
}

/// A request, as an application sees it.
struct Call {
    reader: BufReader<TcpStream>,
    heads: Sender<String>,
    head: String,
}

impl Call {
    fn on(stream: TcpStream, heads: Sender<String>) -> Self {
        Self { reader: BufReader::new(stream), heads, head: String::new() }
    }

    /// Reads the next head. Returns false at the end of the connection.
    fn next(&mut self) -> bool {
        self.head.clear();
        while !self.head.ends_with("\r\n\r\n") {
            if !matches!(self.reader.read_line(&mut self.head), Ok(count) if count > 0) {
                return false;
            }
        }
        self.heads.send(self.head.clone()).is_ok()
    }

    fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Reads the body of the request.
    fn body(&mut self) -> Vec<u8> {
        let lower = self.head.to_ascii_lowercase();
        let mut body = Vec::new();
        if let Some(length) = lower.lines().find_map(|line| line.strip_prefix("content-length: ")) {
            body.resize(length.parse().expect("a length"), 0);
            self.reader.read_exact(&mut body).expect("the body");
        } else if lower.contains("transfer-encoding: chunked") {
            loop {
                let mut line = String::new();
                self.reader.read_line(&mut line).expect("a size");
                let size = usize::from_str_radix(line.trim(), 16).expect("hexadecimal");
                let mut piece = vec![0; size + 2];
                self.reader.read_exact(&mut piece).expect("a chunk");
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&piece[..size]);
            }
        }
        body
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Sends, and closes the connection.
    fn send_last(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.send(bytes);
        false
    }

    fn reply(&mut self, body: &str) -> bool {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }
}

fn serve(to: &[SocketAddr], change: impl FnOnce(&mut UpstreamSettings)) -> (Running, SocketAddr) {
    serve_routes(to, change, &[RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() }])
}

/// The files of a site without any, except `/file`, `/page` (an error page) and `/private/…`. `/slow/…` is answered later.
fn files(request: &Request<'_>, exchange: Exchange) -> Outcome {
    let path = String::from_utf8_lossy(request.path()).into_owned();
    let host = String::from_utf8_lossy(request.authority()).into_owned();
    let respond = move || match path.as_str() {
        "/file" | "/slow/file" => Reply::text(200, "a file").with("ETag", "\"site\""),
        "/page" => Reply::text(200, "sorry"),
        path if path.starts_with("/private/") || host == SECRET_HOST => {
            Reply::text(200, format!("{host}{path}")).with("ETag", "\"site\"")
        }
        _ => Reply::error(404),
    };
    if request.path().starts_with(b"/slow/") {
        std::thread::spawn(move || exchange.answer(respond()));
        return Outcome::Later;
    }
    Outcome::Now(respond())
}

const SECRET_HOST: &str = "files-7.invalid";

fn serve_routes(
    to: &[SocketAddr],
    change: impl FnOnce(&mut UpstreamSettings),
    routes: &[RouteSettings],
) -> (Running, SocketAddr) {
    serve_by(Options { workers: Some(1), ..Options::default() }, to, change, routes)
}

fn serve_by(
    options: Options,
    to: &[SocketAddr],
    change: impl FnOnce(&mut UpstreamSettings),
    routes: &[RouteSettings],
) -> (Running, SocketAddr) {
    let to = to.iter().map(|address| format!("http://{address}").parse().expect("a URL")).collect();
    let mut settings = UpstreamSettings { name: "app".into(), to, ..UpstreamSettings::default() };
    change(&mut settings);
    let errors = [("502".to_owned(), "/page".to_owned()), ("500".to_owned(), "/page".to_owned())].into();
    let compression = ResponseCompression { types: vec!["text/*".into()], bytes: 100..=100_000, at_once: 2 };
    let sites = [SiteRoutes {
        hosts: &[],
        root: None,
        routes,
        errors: &errors,
        compression: Some(compression),
        rules: None,
    }];
    let directories = [AppDirectory { directory: "/srv/private".into(), host: SECRET_HOST.to_owned() }];
    let gateway = Gateway::new(Arc::new(files), &sites, &[settings], &directories).expect("valid settings");
    let running = Server::new(options)
        .listen("127.0.0.1:0".parse().expect("an address"))
        .mount("/", gateway)
        .start()
        .expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    (running, address)
}

fn route(pattern: &str, change: impl FnOnce(&mut RouteSettings)) -> RouteSettings {
    let mut route =
        RouteSettings { pattern: pattern.into(), upstream: Some("app".into()), ..RouteSettings::default() };
    change(&mut route);
    route
}

/// Sends a request, and reads the response to the end of the connection.
fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    client.write_all(request.as_ref()).expect("room");
    let mut response = Vec::new();
    client.read_to_end(&mut response).expect("a response");
    String::from_utf8_lossy(&response).into_owned()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
}

fn content(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap_or_default().1
}

/// Reads one response with a length from a connection that stays open.
fn answer(client: &mut BufReader<TcpStream>) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(client.read_line(&mut head).expect("a line") > 0, "the connection ended: {head}");
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().expect("a length")];
    client.read_exact(&mut body).expect("the body");
    (head, String::from_utf8(body).expect("text"))
}

fn client(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    BufReader::new(stream)
}

#[test]
fn a_request_reaches_the_application_and_its_response_the_client() {
    let app = App::start(|call| call.reply("hello"));
    let (running, address) = serve(&[app.address], |_| {});
    let response = ask(address, get("/a?b=c"));
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert_eq!(content(&response), "hello");
    let head = app.head();
    assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\nHost: example.org\r\n"), "{head}");
    for line in
        ["X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n", "X-Forwarded-Host: example.org\r\n"]
    {
        assert!(head.contains(line), "{head}");
    }
    running.stop();
}

#[test]
fn requests_share_a_kept_connection() {
    let app = App::start(|call| {
        let port = call.reader.get_ref().peer_addr().expect("an address").port();
        call.reply(&port.to_string())
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    let mut ports = Vec::new();
    for _ in 0..5 {
        client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
        ports.push(answer(&mut client).1);
    }
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    running.stop();
}

#[test]
fn fields_of_the_connection_stay_and_forged_ones_go() {
    let app = App::start(|call| {
        call.send("HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Accel-Limit-Rate: 1\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok")
    });
    let (running, address) = serve(&[app.address], |_| {});
    let response = ask(
        address,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nTE: gzip\r\nProxy: evil\r\n\
         X-Sendfile-Type: X-Accel-Redirect\r\nX-Accel-Mapping: /=/\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
         X-Own: kept\r\n\r\n",
    );
    assert!(response.contains("X-Kept: 1\r\n"), "{response}");
    for gone in ["X-Hop", "Keep-Alive: timeout", "X-Accel"] {
        assert!(!response.contains(gone), "{gone}: {response}");
    }
    let head = app.head();
    assert!(head.contains("X-Own: kept\r\n"), "{head}");
    for gone in ["X-Mine", "TE:", "Proxy:", "X-Sendfile", "X-Accel", "6.6.6.6", "https"] {
        assert!(!head.contains(gone), "{gone}: {head}");
    }
    running.stop();
}

#[test]
fn names_that_an_application_could_take_for_others_go() {
    let app = App::start(|call| call.reply("ok"));
    let (running, address) = serve(&[app.address], |_| {});
    ask(
        address,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX_Accel_Mapping: /=/\r\nX_Forwarded_For: 6.6.6.6\r\n\
         X-Forwarded-Ssl: on\r\nX-Forwarded-Prefix: /evil\r\nX-Own: kept\r\n\r\n",
    );
    let head = app.head();
    assert!(head.contains("X-Own: kept\r\n"), "{head}");
    for gone in ["X_", "Ssl", "Prefix", "6.6.6.6"] {
        assert!(!head.contains(gone), "{gone}: {head}");
    }
    running.stop();
}

#[test]
fn the_rest_of_a_body_is_no_request_to_the_application_that_answers_instead() {
    // A request to the gateway's own application would follow in the body.
    let first = App::start(|call| {
        call.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /other\r\nContent-Length: 0\r\n\r\n")
    });
    let (sender, go_on) = channel::<()>();
    let go_on = Arc::new(std::sync::Mutex::new(go_on));
    let second = App::start(move |call| {
        let went_on = go_on.lock().expect("no panic").recv_timeout(PATIENCE);
        went_on.is_ok() && call.reply("second")
    });
    let routes = [
        route("/**", |_| {}),
        route("/other", |route| route.upstream = Some(format!("http://{}", second.address))),
    ];
    let (running, address) = serve_routes(&[first.address], |_| {}, &routes);
    let mut client = client(address);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", smuggled.len());
    client.get_mut().write_all(head.as_bytes()).expect("room");
    assert!(second.head().starts_with("GET /other "));
    client.get_mut().write_all(smuggled.as_bytes()).expect("room");
    sender.send(()).expect("the application waits");
    assert_eq!(answer(&mut client).1, "second");
    client.get_mut().write_all(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    assert!(second.head().starts_with("GET /other "), "the next request of the application is the client's");
    sender.send(()).expect("the application waits");
    assert_eq!(answer(&mut client).1, "second");
    running.stop();
}

#[test]
fn no_route_leads_clients_to_an_internal_place() {
    let app = App::start(|call| call.reply("app"));
    let internal =
        || RouteSettings { pattern: "/private/**".into(), internal: true, ..RouteSettings::default() };
    let routes = [
        internal(),
        RouteSettings { pattern: "/a/**".into(), strip: Some("/a".into()), ..RouteSettings::default() },
        RouteSettings { pattern: "/b/**".into(), rewrite: Some("/$1".into()), ..RouteSettings::default() },
        route("/private/**/longer.pattern/*", |_| {}),
    ];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    for path in ["/private/x", "/a/private/x", "/b/private/x", "/private/longer.pattern/x", "/a//private/./x"]
    {
        let response = ask(address, get(path));
        assert!(response.starts_with("HTTP/1.1 404 "), "{path}: {response}");
    }
    assert_eq!(content(&ask(address, get("/a/file"))), "a file");
    running.stop();
}

#[test]
fn what_a_route_sets_is_for_its_application_only() {
    let app = App::start(|call| match call.path() {
        "/to-app" => call.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /other\r\nContent-Length: 0\r\n\r\n"),
        _ => call.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /private/x\r\nContent-Length: 0\r\n\r\n"),
    });
    let other = App::start(|call| call.reply("other"));
    let routes = [
        route("/**", |route| {
            let set = [
                ("Host".to_owned(), "app.internal".to_owned()),
                ("Authorization".to_owned(), "secret".to_owned()),
            ];
            route.request.set = set.into();
        }),
        route("/other", |route| route.upstream = Some(format!("http://{}", other.address))),
        RouteSettings { pattern: "/private/**".into(), internal: true, ..RouteSettings::default() },
    ];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    assert_eq!(content(&ask(address, get("/to-file"))), "example.org/private/x", "the client's host");
    assert_eq!(content(&ask(address, get("/to-app"))), "other");
    let head = other.head();
    assert!(head.contains("\r\nHost: example.org\r\n") && !head.contains("secret"), "{head}");
    running.stop();
}

#[test]
fn bodies_reach_the_application_with_one_framing() {
    let app = App::start(|call| {
        let body = call.body();
        call.reply(&String::from_utf8(body).expect("text"))
    });
    let (running, address) = serve(&[app.address], |_| {});
    let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    assert_eq!(content(&ask(address, format!("{post}Content-Length: 5\r\n\r\nhello"))), "hello");
    assert_eq!(
        content(&ask(
            address,
            format!("{post}Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nT: x\r\n\r\n")
        )),
        "hello"
    );
    assert!(app.head().contains("\r\nContent-Length: 5\r\n"));
    let chunked = app.head();
    assert!(
        chunked.contains("\r\nTransfer-Encoding: chunked\r\n") && !chunked.contains("Content-Length"),
        "{chunked}"
    );
    running.stop();
}

#[test]
fn a_client_that_waits_for_consent_gets_the_applications() {
    let app = App::start(|call| {
        if call.path() == "/refused" {
            let refusal =
                "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
            return call.send_last(refusal);
        }
        call.send("HTTP/1.1 100 Continue\r\n\r\n");
        let body = call.body();
        call.reply(&format!("{} bytes", body.len()))
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    client
        .get_mut()
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .expect("room");
    let mut line = String::new();
    client.read_line(&mut line).expect("an interim response");
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    client.read_line(&mut line).expect("its end");
    client.get_mut().write_all(b"body").expect("room");
    assert_eq!(answer(&mut client).1, "4 bytes");
    let refused = ask(
        address,
        "POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    );
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    running.stop();
}

#[test]
fn a_body_is_read_in_time_if_the_application_does_not_consent() {
    let app = App::start(|call| {
        let body = call.body();
        call.reply(&format!("{} bytes", body.len()))
    });
    let (running, address) = serve(&[app.address], |_| {});
    let response = ask(
        address,
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
    );
    assert!(response.ends_with("\r\n\r\n4 bytes"), "{response}");
    running.stop();
}

#[test]
fn a_response_without_a_length_ends_with_the_connection() {
    let app = App::start(|call| {
        call.send("HTTP/1.1 200 OK\r\n\r\nto the ");
        call.send_last("end")
    });
    let (running, address) = serve(&[app.address], |_| {});
    let response = ask(address, get("/"));
    assert!(response.contains("Transfer-Encoding: chunked\r\n"), "{response}");
    assert!(response.ends_with("\r\n0\r\n\r\n"), "{response}");
    running.stop();
}

#[test]
fn a_cut_response_never_looks_complete() {
    let app = App::start(|call| call.send_last("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin"));
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    client.write_all(get("/").as_bytes()).expect("room");
    let mut response = Vec::new();
    let end = client.read_to_end(&mut response).map_err(|error| error.kind());
    assert_eq!(
        end,
        Err(std::io::ErrorKind::ConnectionReset),
        "reset, as the length alone would not tell a client of HTTP/1.0"
    );
    running.stop();
}

#[test]
fn a_response_that_could_be_read_in_two_ways_is_a_502() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        "garbage\r\n\r\n",
    ] {
        let app = App::start(move |call| call.send_last(response));
        let (running, address) = serve(&[app.address], |_| {});
        let got = ask(address, get("/"));
        assert!(got.starts_with("HTTP/1.1 502 "), "{response:?}: {got}");
        running.stop();
    }
}

#[test]
fn a_kept_connection_that_the_application_closed_costs_no_get() {
    // Each connection serves one request, says that it stays open, and closes.
    let app = App::start(|call| call.send_last("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonce"));
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    for _ in 0..200 {
        client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
        let (head, body) = answer(&mut client);
        assert_eq!(body, "once", "{head}");
    }
    running.stop();
}

#[test]
fn a_post_is_executed_at_most_once() {
    // The application executes the request, and closes the connection without a response. The gateway cannot know that it has been
    // executed: on a kept connection the same end may mean that the application has closed it before.
    let app = App::start(|call| {
        call.body();
        call.path() == "/first" && call.reply("first")
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    client.get_mut().write_all(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    assert_eq!(answer(&mut client).1, "first");
    client.get_mut().write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").expect("room");
    assert!(answer(&mut client).0.starts_with("HTTP/1.1 502 "));
    assert!(app.head().starts_with("GET "));
    assert!(app.head().starts_with("POST "));
    assert!(app.heads.try_recv().is_err(), "a second attempt");
    running.stop();
}

#[test]
fn another_target_takes_over_where_nothing_listens() {
    let closed = CLOSED.parse().expect("an address");
    let app = App::start(|call| {
        let body = call.body();
        call.reply(&format!("{} bytes", body.len()))
    });
    let (running, address) = serve(&[closed, app.address], |_| {});
    for _ in 0..10 {
        let response =
            ask(address, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(content(&response), "2 bytes", "{response}");
    }
    running.stop();
}

#[test]
fn without_a_target_the_client_gets_a_502() {
    let closed = CLOSED.parse().expect("an address");
    let (running, address) = serve(&[closed], |_| {});
    let response = ask(address, get("/"));
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    running.stop();
}

#[test]
fn an_application_that_does_not_respond_is_a_504() {
    let app = App::start(Call::next);
    let (running, address) = serve(&[app.address], |settings| {
        settings.response_time = encke_settings::Period::milliseconds(50);
    });
    let response = ask(address, get("/"));
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    running.stop();
}

#[test]
fn a_client_that_leaves_ends_the_request_at_the_application() {
    let (sender, ended) = channel();
    let app = App::start(move |call| {
        call.send("HTTP/1.1 200 OK\r\n\r\n");
        let mut rest = Vec::new();
        let _ = call.reader.read_to_end(&mut rest);
        sender.send(()).expect("the test waits");
        false
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    let mut line = String::new();
    client.read_line(&mut line).expect("a response begins");
    drop(client);
    ended.recv_timeout(PATIENCE).expect("the application sees the end");
    running.stop();
}

#[test]
fn bodies_of_any_size_pass_in_both_directions() {
    const BYTES: usize = 20 << 20;
    let app = App::start(|call| {
        let body = call.body();
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())) && call.send(&body)
    });
    let (running, address) = serve(&[app.address], |_| {});
    let body: Vec<u8> = (0..BYTES).map(|at| (at / 251 + at) as u8).collect();
    let stream = TcpStream::connect(address).expect("a connection");
    let mut to = stream.try_clone().expect("a descriptor");
    let sent = body.clone();
    let sending: JoinHandle<()> = std::thread::spawn(move || {
        to.write_all(
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        )
        .and_then(|()| to.write_all(&sent))
        .expect("room");
    });
    let mut response = Vec::new();
    BufReader::new(stream).read_to_end(&mut response).expect("a response");
    sending.join().expect("no panic");
    assert!(response.ends_with(&body), "{} bytes", response.len());
    running.stop();
}

#[test]
fn paths_are_stripped_and_rewritten_for_the_application() {
    let app = App::start(|call| call.reply(call.path().to_owned().as_str()));
    let routes = [
        route("/api/**", |route| route.strip = Some("/api".into())),
        route("/old/*", |route| route.rewrite = Some("/new/$1".into())),
        route("/other/**", |_| {}),
    ];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    for (path, got) in [
        ("/api/users?page=2", "/users?page=2"),
        ("/old/a", "/new/a"),
        ("/other/a%7Ea", "/other/a%7Ea"),
        ("/file", "a file"),
    ] {
        assert_eq!(content(&ask(address, get(path))), got, "{path}");
    }
    running.stop();
}

#[test]
fn fields_are_changed_by_the_route() {
    let app = App::start(|call| {
        call.send("HTTP/1.1 200 OK\r\nServer: app\r\nX-Old: 1\r\nContent-Length: 0\r\n\r\n")
    });
    let routes = [route("/**", |route| {
        route.request.set =
            [("X-Real-IP".to_owned(), "{client}".to_owned()), ("Host".to_owned(), "app".to_owned())].into();
        route.request.remove = vec!["Cookie".into()];
        route.response.set = [("X-Old".to_owned(), "2".to_owned())].into();
        route.response.remove = vec!["Server".into()];
    })];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let response = ask(
        address,
        "GET / HTTP/1.1\r\nHost: a\r\nCookie: b\r\nX-Real-IP: 6.6.6.6\r\nConnection: close\r\n\r\n",
    );
    assert!(response.contains("\r\nX-Old: 2\r\n") && !response.contains("Server: app"), "{response}");
    let head = app.head();
    assert!(head.contains("\r\nX-Real-IP: 127.0.0.1\r\n") && head.contains("\r\nHost: app\r\n"), "{head}");
    assert!(
        !head.contains("Cookie") && !head.contains("6.6.6.6") && !head.contains("\r\nHost: a\r\n"),
        "{head}"
    );
    running.stop();
}

#[test]
fn files_are_tried_before_or_after_the_application() {
    let app = App::start(|call| match call.path() {
        "/missing" => call.send("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\napp"),
        _ => call.reply("app"),
    });
    let routes = [route("/**", |route| route.files = Some(FilesOrder::First))];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    for (path, status, text) in [
        ("/file", 200, "a file"),
        ("/slow/file", 200, "a file"),
        ("/other", 200, "app"),
        ("/slow/other", 200, "app"),
        ("/missing", 404, "app"),
    ] {
        let response = ask(address, get(path));
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {response}");
        assert_eq!(content(&response), text, "{path}");
    }
    running.stop();
    let app = App::start(|call| call.send("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\napp"));
    let routes = [route("/**", |route| route.files = Some(FilesOrder::Last))];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    assert_eq!(content(&ask(address, get("/file"))), "a file");
    assert_eq!(content(&ask(address, get("/slow/file"))), "a file");
    assert!(content(&ask(address, get("/none"))).starts_with("404"));
    assert_eq!(
        content(&ask(
            address,
            "POST /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )),
        "app"
    );
    running.stop();
}

#[test]
fn an_application_sends_files_by_their_path_of_the_site() {
    let app = App::start(|call| {
        // The whole file, as Plack sends it: it is thrown away.
        let body = "x".repeat(100_000);
        call.send(format!(
            "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /private/a.pdf\r\nContent-Type: application/pdf\r\nSet-Cookie: a=b\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    });
    let routes = [
        route("/**", |_| {}),
        RouteSettings { pattern: "/private/**".into(), internal: true, ..RouteSettings::default() },
    ];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let response = ask(address, get("/download"));
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nexample.org/private/a.pdf"), "{response}");
    for line in [
        "Content-Type: application/pdf\r\n",
        "Set-Cookie: a=b\r\n",
        "ETag: \"site\"\r\n",
        "Content-Length: 25\r\n",
    ] {
        assert!(response.contains(line), "{line}: {response}");
    }
    assert!(!response.contains("X-Accel") && !response.contains("text/plain"), "{response}");
    let direct = ask(address, get("/private/a.pdf"));
    assert!(direct.starts_with("HTTP/1.1 404 "), "clients cannot go there: {direct}");
    running.stop();
}

#[test]
fn an_application_sends_files_of_its_directories() {
    let app = App::start(|call| {
        let path = call.path().to_owned();
        call.send(format!(
            "HTTP/1.1 200 OK\r\nX-Sendfile: {path}\r\nETag: \"v1\"\r\nContent-Length: 2\r\n\r\nno"
        ))
    });
    let routes = [route("/srv/**", |route| route.sendfile = vec!["/srv/private".into()])];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let response = ask(address, get("/srv/private/b.txt"));
    assert_eq!(content(&response), format!("{SECRET_HOST}/b.txt"));
    assert!(response.contains("ETag: \"v1\"\r\n") && !response.contains("site"), "{response}");
    let same = ask(
        address,
        "GET /srv/private/b.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"v1\"\r\nConnection: close\r\n\r\n",
    );
    assert!(same.starts_with("HTTP/1.1 304 "), "{same}");
    for path in ["/srv/other/b.txt", "/srv/private"] {
        let response = ask(address, get(path));
        assert!(
            response.starts_with("HTTP/1.1 404 ") && !content(&response).contains("no"),
            "{path}: {response}"
        );
    }
    let forged =
        ask(address, format!("GET /b.txt HTTP/1.1\r\nHost: {SECRET_HOST}\r\nConnection: close\r\n\r\n"));
    assert!(forged.starts_with("HTTP/1.1 404 "), "a client that has learnt the name gets nothing: {forged}");
    running.stop();
}

#[test]
fn errors_have_the_pages_of_the_site() {
    let app = App::start(|call| match call.path() {
        "/end" => false,
        _ => call.send("HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\ntrace"),
    });
    let routes = [route("/**", |_| {}), route("/kept/**", |route| route.intercept_errors = true)];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    for (path, status, text) in [("/end", 502, "sorry"), ("/", 500, "trace"), ("/kept/", 500, "sorry")] {
        let response = ask(address, get(path));
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {response}");
        assert_eq!(content(&response), text, "{path}");
    }
    running.stop();
}

#[test]
fn a_body_beyond_the_limit_of_its_route_is_a_413() {
    let app = App::start(|call| {
        let body = call.body();
        call.reply(&body.len().to_string())
    });
    let routes = [route("/**", |route| route.body_bytes = Some("4".parse().expect("a size")))];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    for (request, status) in [
        (format!("{post}Content-Length: 4\r\n\r\nfour"), 200),
        (format!("{post}Content-Length: 5\r\n\r\nfive!"), 413),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n"), 200),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n5\r\nfive!\r\n0\r\n\r\n"), 413),
    ] {
        let response = ask(address, &request);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
    }
    running.stop();
}

#[test]
fn a_head_response_keeps_its_length() {
    let app = App::start(|call| call.send("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n"));
    let (running, address) = serve(&[app.address], |_| {});
    let response = ask(address, "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(response.contains("Content-Length: 12345\r\n") && content(&response).is_empty(), "{response}");
    running.stop();
}

#[test]
fn an_application_is_reached_by_tls_if_its_certificate_has_its_name() {
    let folder = std::env::temp_dir().join(format!("encke-gateway-tls-{}", std::process::id()));
    let authority = LocalAuthority::open(&folder).expect("an authority");
    let (cert, key) = (authority.leaf.cert.clone(), authority.leaf.key.clone());
    let tls = TlsSettings { cert: Some(cert), key: Some(key), ..TlsSettings::default() };
    let identity = Arc::new(TlsIdentity::read(&tls, &mut Vec::new()).expect("a certificate"));
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listen = ListenConfig { tls: Some(identity), ..any.into() };
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let app = server.listener(listen).mount("/", files).start().expect("it starts");
    let port = app.addresses()[0].to_string().rsplit_once(':').expect("a port").1.to_owned();
    for (ca, name, status) in [
        (Some(authority.certificate.clone()), None, 200),
        (Some(authority.certificate.clone()), Some("other.example".to_owned()), 502),
        (None, None, 502),
    ] {
        let (running, address) = serve(&[], |settings| {
            settings.to = vec![format!("https://localhost:{port}").parse().expect("a URL")];
            settings.tls = UpstreamTls { ca: ca.clone(), name: name.clone(), insecure: false };
        });
        for _ in 0..2 {
            let response = ask(address, get("/file"));
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{ca:?} {name:?}: {response}");
        }
        running.stop();
    }
    app.stop();
    std::fs::remove_dir_all(&folder).expect("it was made here");
}

#[test]
fn each_target_has_its_figures() {
    let closed = CLOSED.parse().expect("an address");
    let app = App::start(|call| call.reply("ok"));
    let (running, address) = serve(&[closed, app.address], |_| {});
    for _ in 0..4 {
        ask(address, get("/"));
    }
    let metrics = encke_stats::prometheus::render(&running.families());
    let line = |name: &str, target: SocketAddr, more: &str| {
        let start = format!("{name}{{upstream=\"app\",target=\"http://{target}\"{more}}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} is missing: {metrics}")).to_owned()
    };
    assert_eq!(line("encke_gateway_target_responses_total", app.address, ",status=\"2xx\""), "4");
    assert_eq!(line("encke_gateway_target_failures_total", app.address, ""), "0");
    assert_ne!(line("encke_gateway_target_failures_total", closed, ""), "0");
    assert_eq!(line("encke_gateway_target_connects_total", app.address, ""), "1");
    assert_eq!(line("encke_gateway_target_requests_open", app.address, ""), "0");
    running.stop();
}

#[test]
fn a_get_goes_to_another_target_if_the_first_gives_no_response() {
    let (sender, posts) = channel();
    let failing = App::start(move |call| {
        if call.head.starts_with("POST") {
            sender.send(()).expect("the test counts");
        }
        false
    });
    let silent = App::start(Call::next);
    let app = App::start(|call| call.reply("ok"));
    let (running, address) = serve(&[failing.address, silent.address, app.address], |settings| {
        // No application that runs takes so long, even on a busy machine.
        settings.response_time = encke_settings::Period::seconds(2);
    });
    for _ in 0..6 {
        assert_eq!(content(&ask(address, get("/"))), "ok");
    }
    running.stop();
    let (running, address) = serve(&[failing.address, app.address], |_| {});
    let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let failed = (0..4).filter(|_| ask(address, post).starts_with("HTTP/1.1 502 ")).count();
    assert_eq!(posts.try_iter().count(), failed, "each POST was executed once");
    assert!(failed > 0, "one of the first goes to the failing target");
    running.stop();
}
