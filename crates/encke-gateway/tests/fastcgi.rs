//! FastCGI from outside: a server with real sockets between clients and applications of the tests.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use encke_gateway::{Gateway, RouteSettings, ScriptRoot, SiteRoutes, UpstreamSettings};
use encke_io::testing::PATIENCE;
use encke_server::{Exchange, Options, Outcome, Reply, Request, Running, Server};

/// A request, as an application gets it.
struct Call {
    variables: HashMap<String, String>,
    body: Vec<u8>,
    keeps: bool,
}

/// An application that sends the bytes which a function returns for each request.
struct App {
    address: SocketAddr,
    calls: Receiver<Call>,
}

impl App {
    fn start(respond: impl Fn(&Call) -> Vec<u8> + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, calls) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (respond, sender) = (respond.clone(), sender.clone());
                let stream = stream.expect("a connection");
                std::thread::spawn(move || serve_app(stream, respond, &sender));
            }
        });
        Self { address, calls }
    }

    fn call(&self) -> Call {
        self.calls.recv_timeout(PATIENCE).expect("a request arrives")
    }
}

/// Serves one connection until the server closes it, or the request did not ask to keep it.
fn serve_app(mut stream: TcpStream, respond: impl Fn(&Call) -> Vec<u8>, calls: &Sender<Call>) {
    while let Some(call) = read_call(&mut stream) {
        let bytes = respond(&call);
        let keeps = call.keeps;
        let _ = calls.send(call);
        if stream.write_all(&bytes).is_err() || !keeps {
            return;
        }
    }
}

fn read_call(stream: &mut TcpStream) -> Option<Call> {
    let (mut params, mut body, mut keeps) = (Vec::new(), Vec::new(), false);
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).ok()?;
        assert_eq!((head[0], head[2], head[3]), (1, 0, 1), "version 1, request 1");
        let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]])) + usize::from(head[6])];
        stream.read_exact(&mut content).ok()?;
        match head[1] {
            1 => keeps = content[2] & 1 == 1,
            4 => params.extend_from_slice(&content),
            5 if content.is_empty() => return Some(Call { variables: variables(&params), body, keeps }),
            5 => body.extend_from_slice(&content),
            other => panic!("a record of type {other}"),
        }
    }
}

fn variables(mut rest: &[u8]) -> HashMap<String, String> {
    let length = |rest: &mut &[u8]| {
        let short = rest[0] < 0x80;
        let (taken, length) = if short {
            (1, usize::from(rest[0]))
        } else {
            (4, u32::from_be_bytes([rest[0] & 0x7f, rest[1], rest[2], rest[3]]) as usize)
        };
        *rest = &rest[taken..];
        length
    };
    let mut found = HashMap::new();
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest), length(&mut rest));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.insert(text(&rest[..name]), text(&rest[name..name + value]));
        rest = &rest[name + value..];
    }
    found
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("short").to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 3, 0], content, &[0; 3]].concat()
}

/// A whole response.
fn output(content: &str) -> Vec<u8> {
    [record(6, content.as_bytes()), record(6, b""), record(3, &[0; 8])].concat()
}

/// The site: a file `/page.html`, and nothing else.
fn files(request: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(match request.path() {
        b"/page.html" => Reply::text(200, "a page"),
        b"/docs/" => Reply::text(200, "the pages of a directory"),
        path if path.ends_with(b".php") => Reply::text(200, "<?php secret"),
        _ => Reply::error(404),
    })
}

fn serve_with(
    route: RouteSettings,
    upstreams: &[UpstreamSettings],
    root: Option<&Path>,
) -> (Running, SocketAddr) {
    let root = root.map(|directory| ScriptRoot { directory, follows_links: true });
    serve_routes(&[route], upstreams, root)
}

fn serve_routes(
    routes: &[RouteSettings],
    upstreams: &[UpstreamSettings],
    root: Option<ScriptRoot<'_>>,
) -> (Running, SocketAddr) {
    let sites = [SiteRoutes { root, routes, ..SiteRoutes::default() }];
    let gateway = Gateway::new(Arc::new(files), &sites, upstreams, &[]).expect("valid settings");
    let server = Server::new(Options { workers: Some(1), ..Options::default() });
    let listen = "127.0.0.1:0".parse().expect("an address");
    let running = server.listen(listen).mount("/", gateway).start().expect("it starts");
    let address = running.addresses()[0].to_string().parse().expect("an address");
    (running, address)
}

fn serve(app: &App, change: impl FnOnce(&mut UpstreamSettings)) -> (Running, SocketAddr) {
    let to = vec![format!("fcgi://{}", app.address).parse().expect("a URL")];
    let mut upstream = UpstreamSettings { name: "app".into(), to, ..UpstreamSettings::default() };
    change(&mut upstream);
    let route = RouteSettings { upstream: Some("app".into()), ..RouteSettings::default() };
    serve_with(route, &[upstream], None)
}

/// Sends a request, and reads to the end of the connection.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    client.write_all(request.as_bytes()).expect("room");
    let mut response = Vec::new();
    // A reset ends the response, too.
    let _ = client.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
}

fn content(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap_or_default().1
}

#[test]
fn a_program_gets_its_variables_and_body_and_its_output_is_the_response() {
    let app = App::start(|call| {
        let length = call.body.len();
        output(&format!("Status: 201 Created\nX-Own: 1\nContent-Length: 5\n\n{length:05}"))
    });
    let (running, address) = serve(&app, |_| {});
    let body = "x".repeat(70_000);
    let post = format!(
        "POST /a%20b?c=d HTTP/1.1\r\nHost: shop.example\r\nProxy: evil\r\nX_Own: evil\r\nConnection: close\r\nContent-Length: 70000\r\n\r\n{body}"
    );
    let response = ask(address, &post);
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    assert!(response.contains("X-Own: 1\r\n") && response.contains("Content-Length: 5\r\n"), "{response}");
    assert_eq!(content(&response), "70000");
    let call = app.call();
    let variable = |name: &str| call.variables.get(name).map(String::as_str);
    assert_eq!(variable("REQUEST_METHOD"), Some("POST"));
    assert_eq!(variable("PATH_INFO"), Some("/a b"));
    assert_eq!(variable("REQUEST_URI"), Some("/a%20b?c=d"));
    assert_eq!(variable("CONTENT_LENGTH"), Some("70000"));
    assert_eq!(variable("REMOTE_ADDR"), Some("127.0.0.1"));
    assert_eq!(variable("HTTP_HOST"), Some("shop.example"));
    assert!(!call.variables.keys().any(|name| name == "HTTP_PROXY" || name == "HTTP_X_OWN"));
    assert!(!call.keeps, "an idle connection would occupy a process");
    running.stop();
}

#[test]
fn connections_are_kept_if_the_settings_say_so() {
    let app = App::start(|_| output("X: y\n\nok"));
    let (running, address) = serve(&app, |settings| settings.keep = Some(2));
    for _ in 0..3 {
        assert!(ask(address, &get("/")).ends_with("2\r\nok\r\n0\r\n\r\n"));
        assert!(app.call().keeps);
    }
    running.stop();
}

#[test]
fn a_body_without_a_length_is_measured_first() {
    let app = App::start(|call| output(&format!("\n{}", call.body.len())));
    let (running, address) = serve(&app, |_| {});
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let response = ask(address, &format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
    assert!(response.contains("\r\n5\r\n"), "{response}");
    assert_eq!(app.call().variables.get("CONTENT_LENGTH").map(String::as_str), Some("5"));
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let response = ask(address, &format!("{head}{}0\r\n\r\n", chunk.repeat(3)));
    assert!(response.starts_with("HTTP/1.1 411 "), "{response}");
    running.stop();
}

#[test]
fn a_script_does_not_run_with_a_part_of_a_body() {
    let app = App::start(|call| output(&format!("\n{}", call.body.len())));
    let (running, address) = serve(&app, |_| {});
    for (length, sent) in [(5, 0), (5, 2), (60_000, 59_999)] {
        let mut client = TcpStream::connect(address).expect("a connection");
        let head = format!("POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).expect("room");
        client.write_all(&vec![b'x'; sent]).expect("room");
        client.shutdown(std::net::Shutdown::Write).expect("it is open");
        // The server has seen the end.
        client.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let _reset = client.read_to_end(&mut Vec::new());
    }
    let body = "x".repeat(60_000);
    let whole = format!(
        "POST /whole HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 60000\r\n\r\n{body}"
    );
    let response = ask(address, &whole);
    assert!(response.contains("\r\n60000\r\n"), "{response}");
    assert_eq!(app.call().variables.get("REQUEST_URI").map(String::as_str), Some("/whole"));
    running.stop();
}

#[test]
fn content_beyond_its_length_is_dropped() {
    let app = App::start(|_| output("Content-Length: 5\n\nhello\n"));
    let (running, address) = serve(&app, |_| {});
    assert_eq!(content(&ask(address, &get("/"))), "hello");
    running.stop();
}

#[test]
fn a_program_that_dies_never_leaves_a_complete_response() {
    let app = App::start(|call| match call.variables["PATH_INFO"].as_str() {
        "/before" => Vec::new(),
        "/within" => record(6, b"X: y\n\nthe beginning"),
        "/length" => [record(6, b"Content-Length: 9\n\nshort"), record(3, &[0; 8])].concat(),
        "/garbage" => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec(),
        _ => output("X: y\n\nok"),
    });
    let (running, address) = serve(&app, |_| {});
    assert!(ask(address, &get("/before")).starts_with("HTTP/1.1 502 "));
    assert!(ask(address, &get("/garbage")).starts_with("HTTP/1.1 502 "));
    let within = ask(address, &get("/within"));
    assert!(!within.ends_with("0\r\n\r\n"), "{within}");
    let short = ask(address, &get("/length"));
    assert!(!short.ends_with("short") || short.contains("Content-Length: 9"), "{short}");
    assert!(ask(address, &get("/")).starts_with("HTTP/1.1 200 "));
    running.stop();
}

struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("encke-fastcgi-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("blog")).expect("a directory");
        for file in ["index.php", "blog/index.php", "a.php", "page.html", "x.jpg"] {
            std::fs::write(root.join(file), "<?php secret").expect("a file");
        }
        Self(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_php_route_runs_scripts_that_exist_and_sends_other_files() {
    let app = App::start(|call| {
        output(&format!("\n{} {}", call.variables["SCRIPT_NAME"], call.variables["PATH_INFO"]))
    });
    let root = Root::new("route");
    let php = |front: &str| RouteSettings {
        php: Some(app.address.to_string()),
        front: front.into(),
        ..RouteSettings::default()
    };
    let (running, address) = serve_with(php("/index.php"), &[], Some(&root.0));
    for (path, ran) in [
        ("/a.php", "/a.php "),
        ("/a.php/more?x=y", "/a.php /more"),
        ("/blog/", "/blog/index.php "),
        ("/", "/index.php "),
        ("/about/us", "/index.php "),
        ("/blog/../a.php", "/a.php "),
    ] {
        let response = ask(address, &get(path));
        assert!(response.contains(&format!("\r\n{ran}\r\n")), "{path}: {response}");
    }
    assert_eq!(content(&ask(address, &get("/page.html"))), "a page");
    assert_eq!(content(&ask(address, &get("/docs/"))), "the pages of a directory");
    for path in ["/.git/x.php", "/x.jpg/y.php", "/missing.php", "/A.PHP", "/a.php%00.jpg", "/a.php%2fx"] {
        let response = ask(address, &get(path));
        assert!(response.starts_with("HTTP/1.1 40"), "{path}: {response}");
        assert!(!response.contains("secret"), "{path}: {response}");
    }
    running.stop();
    // The site has other scripts than those of the route, and sends none of them.
    let narrow = RouteSettings { pattern: "/blog/**".into(), ..php("/index.php") };
    let (running, address) = serve_with(narrow, &[], Some(&root.0));
    let response = ask(address, &get("/index.php"));
    assert!(response.starts_with("HTTP/1.1 404 ") && !response.contains("secret"), "{response}");
    running.stop();
    let (running, address) = serve_with(php("/none.php"), &[], Some(&root.0));
    assert!(ask(address, &get("/about")).starts_with("HTTP/1.1 404 "), "there is no front script");
    running.stop();
}

/// An application that sends each client to the path in the query, or describes the request.
fn redirecting() -> App {
    App::start(|call| {
        let variable = |name: &str| call.variables.get(name).map_or("", String::as_str);
        match variable("QUERY_STRING").split_once("to=") {
            Some((_, target)) => output(&format!("X-Accel-Redirect: {target}\nX-Own: 1\n\ndropped")),
            None => output(&format!(
                "\n{} {} {} {}{}",
                variable("REQUEST_METHOD"),
                variable("SCRIPT_NAME"),
                variable("REQUEST_URI"),
                call.body.len(),
                variable("CONTENT_LENGTH")
            )),
        }
    })
}

#[test]
fn an_application_sends_clients_to_scripts_and_to_files_beside_them() {
    let app = redirecting();
    let root = Root::new("redirect");
    std::fs::create_dir_all(root.0.join("private")).expect("a directory");
    std::fs::write(root.0.join("private/report.php"), "<?php secret").expect("a file");
    let php = |pattern: &str, internal: bool| RouteSettings {
        pattern: pattern.into(),
        php: Some(app.address.to_string()),
        internal,
        ..RouteSettings::default()
    };
    let routes = [php("/**", false), php("/private/**", true)];
    let scripts = ScriptRoot { directory: &root.0, follows_links: true };
    let (running, address) = serve_routes(&routes, &[], Some(scripts));
    for (to, ran) in [
        ("/a.php", "GET /a.php /a.php 0"),
        ("/a.php/x?y=z", "GET /a.php /a.php/x?y=z 0"),
        ("/private/report.php?id=1", "GET /private/report.php /private/report.php?id=1 0"),
        ("/blog/", "GET /blog/index.php /blog/ 0"),
        ("/about", "GET /index.php /about 0"),
        ("/private/about", "GET /index.php /private/about 0"),
        ("/index.php?to=/a.php", "GET /a.php /a.php 0"),
    ] {
        let response = ask(address, &get(&format!("/index.php?to={to}")));
        assert!(response.contains(&format!("\r\n{ran}\r\n")), "{to}: {response}");
    }
    let post = "POST /?to=/a.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    assert!(ask(address, post).contains("\r\nGET /a.php /a.php 0\r\n"), "a GET without a body");
    let file = ask(address, &get("/?to=/page.html"));
    assert!(file.contains("X-Own: 1\r\n") && content(&file) == "a page", "{file}");
    for to in ["/missing.php", "/x.jpg/y.php", "/A.PHP", "/a.php%00.jpg", "/a%2fb", "/.git/x.php"] {
        let response = ask(address, &get(&format!("/?to={to}")));
        assert!(response.starts_with("HTTP/1.1 502 ") && !response.contains("secret"), "{to}: {response}");
    }
    assert!(ask(address, &get("/private/report.php")).starts_with("HTTP/1.1 404 "), "not for clients");
    running.stop();
}

#[test]
fn a_route_of_files_sends_no_script_of_a_site_with_php() {
    let app = redirecting();
    let root = Root::new("source");
    let files = |pattern: &str| RouteSettings { pattern: pattern.into(), ..RouteSettings::default() };
    let strip = |pattern: &str, prefix: &str| RouteSettings { strip: Some(prefix.into()), ..files(pattern) };
    let routes = [
        RouteSettings { php: Some(app.address.to_string()), ..RouteSettings::default() },
        strip("/blog/**", "/blog"),
        strip("/old**", "/old"),
        RouteSettings { rewrite: Some("/index.php".into()), ..files("/moved/*") },
        files("/plain/**"),
        RouteSettings { internal: true, ..files("/private/**") },
        RouteSettings { internal: true, rewrite: Some("/a.php".into()), ..files("/hidden/*") },
    ];
    let scripts = ScriptRoot { directory: &root.0, follows_links: true };
    let (running, address) = serve_routes(&routes, &[], Some(scripts));
    assert_eq!(content(&ask(address, &get("/blog/page.html"))), "a page");
    for path in [
        "/blog/blog/index.php",
        "/blog/index.php",
        "/older.php",
        "/old/index.php",
        "/old/blog/index.PHP/more",
        "/moved/x",
        "/plain/x.php",
    ] {
        let response = ask(address, &get(path));
        assert!(response.starts_with("HTTP/1.1 404 ") && !response.contains("secret"), "{path}: {response}");
    }
    for to in ["/private/report.php", "/plain/x.php", "/older.php", "/blog/blog/index.php", "/hidden/x"] {
        let response = ask(address, &get(&format!("/?to={to}")));
        assert!(response.starts_with("HTTP/1.1 502 ") && !response.contains("secret"), "{to}: {response}");
    }
    assert_eq!(content(&ask(address, &get("/?to=/blog/page.html"))), "a page");
    running.stop();
    // Without PHP, a script is a file as any other.
    let (running, address) = serve_routes(&[strip("/old/**", "/old")], &[], None);
    assert!(ask(address, &get("/old/a.php")).starts_with("HTTP/1.1 200 "));
    running.stop();
}

#[test]
fn redirects_between_scripts_end() {
    let app = App::start(|_| output("X-Accel-Redirect: /a.php\n\n"));
    let root = Root::new("circle");
    let route = RouteSettings { php: Some(app.address.to_string()), ..RouteSettings::default() };
    let (running, address) = serve_with(route, &[], Some(&root.0));
    for path in ["/a.php", "/about"] {
        let response = ask(address, &get(path));
        assert!(response.starts_with("HTTP/1.1 502 "), "{path}: {response}");
        // The request, and five redirects.
        for _ in 0..6 {
            app.call();
        }
        assert!(app.calls.try_recv().is_err(), "another request");
    }
    running.stop();
    let app = App::start(|_| output("X-Accel-Redirect: /about\n\n"));
    let route = RouteSettings { php: Some(app.address.to_string()), ..RouteSettings::default() };
    let (running, address) = serve_with(route, &[], Some(&root.0));
    assert!(
        ask(address, &get("/about")).starts_with("HTTP/1.1 502 "),
        "the front script sends clients to itself"
    );
    running.stop();
}

#[test]
fn php_has_the_limits_of_a_named_upstream() {
    let app = App::start(|call| output(&format!("\n{}", call.variables["SCRIPT_NAME"])));
    let to = vec![format!("fcgi://{}", app.address).parse().expect("a URL")];
    let upstream = UpstreamSettings {
        name: "fpm".into(),
        to,
        keep: Some(1),
        connections: 1,
        ..UpstreamSettings::default()
    };
    let root = Root::new("named");
    let route = RouteSettings { php: Some("fpm".into()), ..RouteSettings::default() };
    let (running, address) = serve_with(route.clone(), &[upstream], Some(&root.0));
    for _ in 0..3 {
        assert!(ask(address, &get("/a.php")).contains("\r\n/a.php\r\n"));
        assert!(app.call().keeps, "the upstream keeps connections");
    }
    running.stop();
    let error = |upstreams: &[UpstreamSettings]| {
        let routes = [route.clone()];
        let root = Some(ScriptRoot { directory: &root.0, follows_links: true });
        let site = SiteRoutes { root, routes: &routes, ..SiteRoutes::default() };
        Gateway::new(Arc::new(files), &[site], upstreams, &[]).err().expect("invalid").to_string()
    };
    let to = vec!["http://127.0.0.1:3000".parse().expect("a URL")];
    let http = UpstreamSettings { name: "fpm".into(), to, ..UpstreamSettings::default() };
    assert!(error(&[]).contains("php: there is no upstream \"fpm\""), "{}", error(&[]));
    assert!(error(&[http]).contains("php: the upstream \"fpm\" does not speak FastCGI"));
}

#[cfg(unix)]
#[test]
fn a_site_without_links_runs_no_script_through_one() {
    let app = App::start(|call| output(&format!("\n{}", call.variables["SCRIPT_NAME"])));
    let root = Root::new("links");
    std::os::unix::fs::symlink("a.php", root.0.join("alias.php")).expect("a link");
    let route = [RouteSettings { php: Some(app.address.to_string()), ..RouteSettings::default() }];
    for (follows_links, status) in [(true, 200), (false, 404)] {
        let root = ScriptRoot { directory: &root.0, follows_links };
        let (running, address) = serve_routes(&route, &[], Some(root));
        let response = ask(address, &get("/alias.php"));
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{follows_links}: {response}");
        assert!(ask(address, &get("/a.php")).starts_with("HTTP/1.1 200 "));
        running.stop();
    }
}
