//! Routes to applications in a complete server: rules and error pages of their site, and responses to uploads that the application does not read.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use encke_assembly::Service;
use encke_assembly::settings::Settings;

use crate::rig::{Answer, Client, Folder, Stand};

on_two_stands! {
    fields_of_the_site_are_in_every_response_of_its_routes,
    redirects_apply_to_every_method_with_their_status,
    a_more_specific_route_precedes_a_redirect,
    rejected_paths_precede_every_route,
    error_pages_of_the_site_replace_errors_of_routes_and_rules,
    a_large_upload_gets_the_response_of_an_application_that_does_not_read_it,
    a_large_upload_gets_the_response_of_encke,
}

/// The password `secret` of `ann`, with the lowest cost of bcrypt: `htpasswd -nbB -C 4 ann secret`.
const USERS: &str = "ann:$2y$04$QwyTMGb40uZk0meOEBJf6ODDhgJ3QmEPMT0my0U.DF17TEg7uaapW\n";

/// An application: responds to each request by its path, after a part of its body or without reading it.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || respond(stream));
        }
    });
    address
}

fn respond(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(reader.read_line(&mut head), Ok(bytes) if bytes > 0) {
            return;
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    if let Some(bytes) = path.strip_prefix("/refuse/") {
        let bytes: u64 = bytes.parse().expect("a number");
        let mut part = reader.by_ref().take(bytes);
        let _the_client_may_go = std::io::copy(&mut part, &mut std::io::sink());
        let text = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge";
        // The rest of the body is unread, so this close resets the connection.
        let _it_may_be_gone = reader.get_mut().write_all(text.as_bytes());
        return;
    }
    let fields = match path.as_str() {
        "/accel" => "X-Accel-Redirect: /protected/none\r\n",
        "/circle" => "X-Accel-Redirect: /circle\r\n",
        "/sendfile" => "X-Sendfile: /etc/passwd\r\n",
        _ => "X-Frame-Options: SAMEORIGIN\r\nServer: app\r\nX-Own: app\r\n",
    };
    let text = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 3\r\nConnection: close\r\n\r\napp");
    let _it_may_be_gone = reader.get_mut().write_all(text.as_bytes());
}

fn folder() -> Folder {
    Folder::new()
        .with("site/index.html", "index")
        .with("site/401.html", "page for 401")
        .with("site/403.html", "page for 403")
        .with("site/404.html", "page for 404")
        .with("site/405.html", "page for 405")
        .with("site/413.html", "page for 413")
        .with("site/502.html", "page for 502")
        .with("site/protected/file", "protected")
        .with("users", USERS)
}

/// Starts a server with one site; `APP` in `rest` is the address of the application.
fn start(stand: Stand, folder: &Folder, rest: &str) -> Service {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = {}\nbackend = \"{}\"\nadmin = \"off\"\n[log]\naccess = \"off\"\n\
         [push]\nenabled = false\n{}",
        stand.workers,
        stand.backend,
        rest.replace("APP", &format!("http://{}", application())),
    );
    folder.write("encke.toml", &text);
    let settings = Settings::read(&folder.path().join("encke.toml"));
    let settings = settings.unwrap_or_else(|error| panic!("{text}: {error}"));
    Service::start(&settings).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(service: &Service, method: &str, path: &str) -> Answer {
    let mut client = Client::connect(&service.addresses()[0]);
    client.ask(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"))
}

fn fields_of_the_site_are_in_every_response_of_its_routes(stand: Stand) {
    let folder = folder();
    let rules = "[[site]]\nroot = \"site\"\nhsts = \"max-age=300\"\n\
        headers = [{ pattern = \"/**\", set = { X-Frame-Options = \"DENY\", Server = \"\", X-Kept = \"site\" } }, \
        { pattern = \"/deep/**\", set = { X-Deep = \"1\" } }]\n\
        [[site.route]]\nupstream = \"APP\"\nresponse = { remove = [\"X-Kept\"], set = { X-Route = \"1\" } }\n\
        [[site.route]]\npattern = \"/down/**\"\nupstream = \"http://127.0.0.1:1\"\n";
    let service = start(stand, &folder, rules);
    let answer = ask(&service, "GET", "/deep/x");
    assert_eq!((answer.status, answer.text()), (200, "app"));
    for (name, value) in [
        ("X-Frame-Options", Some("DENY")),
        ("Server", None),
        ("X-Own", Some("app")),
        ("X-Deep", Some("1")),
        ("X-Route", Some("1")),
        ("X-Kept", None),
        ("Strict-Transport-Security", None),
    ] {
        assert_eq!(answer.field(name), value, "{name}");
    }
    assert_eq!(ask(&service, "GET", "/x").field("X-Deep"), None);
    let down = ask(&service, "GET", "/down/x");
    assert_eq!((down.status, down.field("X-Frame-Options")), (502, Some("DENY")));
    assert_eq!(down.field("X-Kept"), Some("site"), "this route removes nothing");
    service.drain();
    service.join();
}

fn redirects_apply_to_every_method_with_their_status(stand: Stand) {
    let folder = folder();
    let rules = "[[site]]\nroot = \"site\"\n\
        redirects = [{ from = \"/a/*\", to = \"/new/$1\" }, { from = \"/b/*\", to = \"/new/$1\", status = 307 }, \
        { from = \"/c/*\", to = \"/new/$1\", status = 308 }]\n\
        [[site.route]]\nupstream = \"APP\"\n[[site.route]]\npattern = \"/c/**\"\nupstream = \"APP\"\n";
    let service = start(stand, &folder, rules);
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        for (path, status) in [("/a/x", 301), ("/b/x", 307), ("/c/x", 308)] {
            let mut client = Client::connect(&service.addresses()[0]);
            client.send(format!(
                "{method} {path}?q=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
            ));
            let answer = if method == "HEAD" { client.answer_to_head() } else { client.answer() };
            assert_eq!(answer.status, status, "{method} {path}");
            assert_eq!(answer.field("Location"), Some("/new/x?q=1"), "{method} {path}");
        }
    }
    assert_eq!(ask(&service, "POST", "/d/x").text(), "app");
    service.drain();
    service.join();
}

fn a_more_specific_route_precedes_a_redirect(stand: Stand) {
    let folder = folder();
    let rules = "[[site]]\nroot = \"site\"\nredirects = [{ from = \"/**\", to = \"https://example.org/$1\" }]\n\
        [[site.route]]\npattern = \"/api/**\"\nupstream = \"APP\"\n";
    let service = start(stand, &folder, rules);
    assert_eq!(ask(&service, "GET", "/api/x").text(), "app");
    for method in ["GET", "POST"] {
        assert_eq!(ask(&service, method, "/apis").status, 301, "{method}");
    }
    service.drain();
    service.join();
}

fn rejected_paths_precede_every_route(stand: Stand) {
    let folder = folder();
    let rules = "[[site]]\nroot = \"site\"\nerrors = { 404 = \"/404.html\" }\n\
        paths = [{ pattern = \"/**/*.php\", status = 404 }]\n\
        [[site.route]]\npattern = \"/long/pattern/**\"\nupstream = \"APP\"\n";
    let service = start(stand, &folder, rules);
    assert_eq!(ask(&service, "GET", "/long/pattern/x").text(), "app");
    for method in ["GET", "POST"] {
        for path in ["/long/pattern/x.php", "/%6cong/pattern/x.ph%70", "/x.php"] {
            let answer = ask(&service, method, path);
            assert_eq!((answer.status, answer.text()), (404, "page for 404"), "{method} {path}");
        }
    }
    service.drain();
    service.join();
}

fn error_pages_of_the_site_replace_errors_of_routes_and_rules(stand: Stand) {
    let folder = folder();
    let pages: Vec<String> = [401, 403, 404, 405, 413, 502]
        .iter()
        .map(|status| format!("{status} = \"/{status}.html\""))
        .collect();
    let rules = format!(
        "[[site]]\nroot = \"site\"\nerrors = {{ {} }}\nheaders = [{{ pattern = \"/**\", set = {{ X-Site = \"1\" }} }}]\n\
         [[site.route]]\npattern = \"/protected/**\"\ninternal = true\n\
         [[site.route]]\npattern = \"/small/**\"\nupstream = \"APP\"\nbody_bytes = 10\n\
         [[site.route]]\npattern = \"/*\"\nupstream = \"APP\"\nsendfile = [\"site/protected\"]\n\
         [[site.route]]\npattern = \"/down/**\"\nupstream = \"http://127.0.0.1:1\"\n\
         [[access]]\npattern = \"/admin/**\"\npasswords = \"users\"\nrealm = \"admin\"\n\
         [[access]]\npattern = \"/here/**\"\nallow = [\"192.0.2.1\"]\n",
        pages.join(", ")
    );
    let service = start(stand, &folder, &rules);
    for (method, path, status) in [
        ("GET", "/admin/x", 401),
        ("POST", "/admin/x", 401),
        ("GET", "/here/x", 403),
        ("POST", "/file/of/site", 405),
        ("GET", "/accel", 404),
        ("GET", "/sendfile", 404),
        ("GET", "/circle", 502),
        ("POST", "/circle", 502),
        ("GET", "/down/x", 502),
        ("POST", "/down/x", 502),
    ] {
        let answer = ask(&service, method, path);
        assert_eq!(
            (answer.status, answer.text()),
            (status, &*format!("page for {status}")),
            "{method} {path}"
        );
        let challenge = (status == 401).then_some("Basic realm=\"admin\", charset=\"UTF-8\"");
        assert_eq!(answer.field("WWW-Authenticate"), challenge, "{method} {path}");
        let is_rules = matches!(status, 401 | 403);
        assert_eq!(answer.field("X-Site").is_some(), !is_rules, "{method} {path}");
    }
    let mut client = Client::connect(&service.addresses()[0]);
    let answer = client.ask(
        "POST /small/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
    );
    assert_eq!((answer.status, answer.text()), (413, "page for 413"));
    let answer = client_of(&service)
        .ask("POST /small/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n0123456789abcdef");
    assert_eq!((answer.status, answer.text()), (413, "page for 413"));
    // Credentials that are rejected later, by a thread.
    let wrong = "GET /admin/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOndyb25n\r\n\r\n";
    assert_eq!(client_of(&service).ask(wrong).text(), "page for 401");
    service.drain();
    service.join();
}

fn client_of(service: &Service) -> Client {
    Client::connect(&service.addresses()[0])
}

/// Sends all of an upload before it reads the response, as many programs do.
fn upload(service: &Service, path: &str, chunked: bool) -> Answer {
    const PIECE: usize = 64 * 1024;
    const PIECES: usize = 320;
    let mut client = client_of(service);
    let length = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {}", PIECE * PIECES)
    };
    client.send(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n"));
    let mut piece = vec![b'x'; PIECE];
    if chunked {
        piece = [format!("{PIECE:x}\r\n").as_bytes(), &piece, b"\r\n"].concat();
    }
    for number in 0..PIECES {
        let sent = client.try_send(&piece);
        assert!(sent.is_ok(), "{path}: {sent:?} after {number} of {PIECES} pieces");
    }
    client.answer()
}

fn a_large_upload_gets_the_response_of_an_application_that_does_not_read_it(stand: Stand) {
    let folder = folder();
    let service = start(stand, &folder, "[[site]]\nroot = \"site\"\n[[site.route]]\nupstream = \"APP\"\n");
    for turn in 0..10 {
        for (read, chunked) in [(0, false), (0, true), (100_000, false), (3_000_000, true)] {
            let answer = upload(&service, &format!("/refuse/{read}"), chunked);
            assert_eq!((answer.status, answer.text()), (413, "large"), "turn {turn}, {read} bytes were read");
        }
    }
    service.drain();
    service.join();
}

fn a_large_upload_gets_the_response_of_encke(stand: Stand) {
    let folder = folder();
    let rules = "[[site]]\nroot = \"site\"\nredirects = [{ from = \"/old\", to = \"/new\", status = 307 }]\n\
        [[site.route]]\nupstream = \"APP\"\nbody_bytes = \"1MiB\"\n\
        [[site.route]]\npattern = \"/down/**\"\nupstream = \"http://127.0.0.1:1\"\n\
        [[access]]\npattern = \"/admin/**\"\npasswords = \"users\"\n";
    let service = start(stand, &folder, rules);
    for (path, status) in [("/app", 413), ("/down/x", 502), ("/admin/x", 401), ("/old", 307)] {
        for chunked in [false, true] {
            if path == "/app" && chunked {
                continue;
            }
            assert_eq!(upload(&service, path, chunked).status, status, "{path}, chunked: {chunked}");
        }
    }
    service.drain();
    service.join();
}
