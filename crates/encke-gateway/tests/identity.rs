//! The identity that guards give a request: its way to applications, with real sockets and a guard of the tests.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use encke_gateway::{Balance, BalanceKey, Gateway, RouteSettings, SiteRoutes, UpstreamSettings};
use encke_io::testing::PATIENCE;
use encke_server::{
    Exchange, Guard, GuardCall, GuardMount, GuardOutcome, HandlerContext, Options, Outcome, Passage,
    PassedFields, Reply, Request, Running, Server, WorkerSetup,
};

/// An application that responds with the port at which it listens. `/one` leads to `/two`, and this to `/three`.
struct App {
    address: SocketAddr,
    /// The heads of the requests, in order of arrival.
    heads: Receiver<String>,
}

impl App {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, heads) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let sender = sender.clone();
                std::thread::spawn(move || respond(&stream.expect("a connection"), address, &sender));
            }
        });
        Self { address, heads }
    }

    fn head(&self) -> String {
        self.heads.recv_timeout(PATIENCE).expect("a request arrives")
    }
}

fn respond(stream: &TcpStream, address: SocketAddr, heads: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(reader.read_line(&mut head), Ok(count) if count > 0) {
            return;
        }
    }
    let field = match head.split(' ').nth(1) {
        Some("/one") => "X-Accel-Redirect: /two\r\n",
        Some("/two") => "X-Accel-Redirect: /three\r\n",
        _ => "",
    };
    let text = address.port().to_string();
    let length = text.len();
    if heads.send(head).is_ok() {
        let response =
            format!("HTTP/1.1 200 OK\r\n{field}Connection: close\r\nContent-Length: {length}\r\n\r\n{text}");
        (&*stream).write_all(response.as_bytes()).expect("room");
    }
}

/// A guard that believes the field X-Login, and reserves X-User and X-Group for itself.
struct Believes;

impl GuardMount for Believes {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(Self)
    }
}

impl Guard for Believes {
    fn check(&mut self, request: &Request<'_>, _: GuardCall<'_>) -> GuardOutcome {
        let mut passed = PassedFields::new(["X-User", "X-Group"]);
        let login = request.field("X-Login");
        let user = login.map(|login| Arc::from(String::from_utf8_lossy(login)));
        if let Some(login) = login {
            passed.fields.push("X-User", login).expect("it was a value before");
        }
        GuardOutcome::Pass(Passage { user, passed: Some(Arc::new(passed)), ..Passage::default() })
    }
}

fn none(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::error(404))
}

fn serve(apps: &[App], balance: Balance, routes: &[RouteSettings]) -> (Running, SocketAddr) {
    let to = apps.iter().map(|app| format!("http://{}", app.address).parse().expect("a URL")).collect();
    let settings = UpstreamSettings { name: "app".into(), to, balance, ..UpstreamSettings::default() };
    let site = SiteRoutes { routes, ..SiteRoutes::default() };
    let gateway = Gateway::new(Arc::new(none), &[site], &[settings], &[]).expect("valid settings");
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let any = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(any).mount("/", gateway).guard(Believes).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    (running, address)
}

fn route(pattern: &str) -> RouteSettings {
    let mut route =
        RouteSettings { pattern: pattern.into(), upstream: Some("app".into()), ..RouteSettings::default() };
    route.request.set.insert("X-Remote-User".into(), "{user}".into());
    route
}

/// The content of the response to a GET with these fields.
fn get(address: SocketAddr, path: &str, fields: &str) -> String {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    client.write_all(request.as_bytes()).expect("room");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    response.split_once("\r\n\r\n").unwrap_or_default().1.to_owned()
}

#[test]
fn an_identity_stays_with_a_request_that_an_application_redirects() {
    let app = [App::start()];
    let mut first = route("/one");
    // The route removes the guard's field here, and only here.
    first.request.remove.push("X-User".into());
    let (running, address) = serve(&app, Balance::Two, &[first, route("/two"), route("/three")]);
    let [app] = app;
    get(address, "/one", "X-Login: ann\r\nX-User: eve\r\nX-Group: admin\r\n");
    for (path, users) in [("/one", 0), ("/two", 1), ("/three", 1)] {
        let head = app.head();
        assert!(head.starts_with(&format!("GET {path} ")), "{head}");
        assert!(head.contains("\r\nX-Remote-User: ann\r\n"), "{head}");
        assert_eq!(head.matches("\r\nX-User: ").count(), users, "{head}");
        assert_eq!(head.matches("\r\nX-User: ann\r\n").count(), users, "{head}");
        assert!(!head.contains("X-Group"), "{head}");
    }
    running.stop();
}

#[test]
fn a_hash_of_a_reserved_field_depends_on_the_guards_value_only() {
    let apps = [App::start(), App::start(), App::start()];
    let by_user = Balance::Hash(BalanceKey::Field("X-User".into()));
    let (running, address) = serve(&apps, by_user, &[route("/**")]);
    let mut found = BTreeSet::new();
    for user in 0..20 {
        let of_user: BTreeSet<_> = (0..5)
            .map(|forged| get(address, "/", &format!("X-Login: user-{user}\r\nX-User: {forged}\r\n")))
            .collect();
        assert_eq!(of_user.len(), 1, "user {user}");
        found.extend(of_user);
    }
    assert_eq!(found.len(), 3, "the users are spread");
    let without: BTreeSet<_> = (0..40).map(|_| get(address, "/", "X-User: user-1\r\n")).collect();
    assert_eq!(without.len(), 3, "a client does not choose its target");
    running.stop();
}
