//! Compression, trailers, PROXY headers and buffered bodies.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;

use encke_gateway::ProxyProtocol;
use encke_server::{Exchange, ListenConfig, Options, Outcome, Reply, Request, Server};

use super::{
    App, CLOSED, PATIENCE, RouteSettings, answer, ask, client, content, get, route, serve, serve_routes,
};

/// The content of a response with chunks.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let line = rest.windows(2).position(|pair| pair == b"\r\n").expect("a size line");
        let size = std::str::from_utf8(&rest[..line]).expect("text");
        let size = usize::from_str_radix(size, 16).expect("hexadecimal");
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 4 + size..];
    }
}

fn gunzipped(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).expect("gzip");
    text
}

/// Sends a GET that accepts gzip. Returns the head of the response, and its content without chunks.
fn get_coded(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).expect("room");
    let mut response = Vec::new();
    client.read_to_end(&mut response).expect("a response");
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(response[..end + 4].to_vec()).expect("text");
    let is_chunked = head.contains("Transfer-Encoding: chunked\r\n");
    let content = &response[end + 4..];
    (head, if is_chunked { unchunked(content) } else { content.to_vec() })
}

#[test]
fn a_response_is_compressed_by_its_type_and_size_for_a_client_that_accepts_it() {
    let text = "Comet Encke has the shortest period of all. ".repeat(200);
    let sent = text.clone();
    let app = App::start(move |call| {
        let fields = match call.path() {
            "/image" => "Content-Type: image/png\r\n",
            "/coded" => "Content-Type: text/html\r\nContent-Encoding: br\r\n",
            "/part" => "Content-Type: text/html\r\nContent-Range: bytes 0-1/2\r\n",
            "/events" => "Content-Type: text/event-stream\r\n",
            "/fixed" => "Content-Type: text/html\r\nCache-Control: public, no-transform\r\n",
            "/digest" => "Content-Type: text/html\r\nContent-Digest: sha-256=:x:\r\n",
            _ => {
                "Content-Type: Text/HTML; charset=utf-8\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\n"
            }
        };
        let body = if call.path() == "/short" { "short" } else { sent.as_str() };
        call.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()))
    });
    let (running, address) = serve(&[app.address], |_| {});
    let (head, coded) = get_coded(address, "/page");
    for line in
        ["Content-Encoding: gzip\r\n", "ETag: W/\"1\"\r\n", "Vary: Cookie\r\n", "Vary: Accept-Encoding\r\n"]
    {
        assert!(head.contains(line), "{line}: {head}");
    }
    for gone in ["Content-Length", "Accept-Ranges"] {
        assert!(!head.contains(gone), "{gone}: {head}");
    }
    assert!(coded.len() < text.len() / 4, "{}", coded.len());
    assert_eq!(gunzipped(&coded), text);
    for path in ["/image", "/coded", "/part", "/events", "/fixed", "/digest", "/short"] {
        let (head, plain) = get_coded(address, path);
        assert!(!head.contains("Content-Encoding: gzip"), "{path}: {head}");
        assert_eq!(plain, if path == "/short" { "short".as_bytes() } else { text.as_bytes() }, "{path}");
    }
    let response = ask(address, get("/page"));
    assert!(response.contains("Vary: Accept-Encoding\r\n"), "others may get another content: {response}");
    assert_eq!(content(&response), text);
    let head =
        ask(address, "HEAD /page HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
    assert!(head.contains("Content-Encoding: gzip\r\n") && !head.contains("Content-Length"), "{head}");
    running.stop();
}

#[test]
fn a_route_may_leave_responses_uncompressed_or_hide_the_codings_from_the_application() {
    let text = "Comet Encke. ".repeat(100);
    let sent = text.clone();
    let app = App::start(move |call| {
        call.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{sent}",
            sent.len()
        ))
    });
    let routes = [
        route("/plain/**", |route| route.compress = false),
        route("/**", |route| route.request.remove = vec!["Accept-Encoding".into()]),
    ];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let (head, plain) = get_coded(address, "/plain/x");
    assert!(!head.contains("Content-Encoding") && plain == text.as_bytes(), "{head}");
    assert!(app.head().contains("Accept-Encoding: gzip\r\n"));
    let (head, coded) = get_coded(address, "/x");
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    assert_eq!(gunzipped(&coded), text);
    assert!(!app.head().contains("Accept-Encoding"));
    running.stop();
}

#[test]
fn compressed_content_reaches_the_client_while_the_application_pauses() {
    let (sender, go_on) = channel::<()>();
    let go_on = Arc::new(std::sync::Mutex::new(go_on));
    let app = App::start(move |call| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
        call.send(format!("{head}6\r\nfirst \r\n"));
        let went_on = go_on.lock().expect("no panic").recv_timeout(PATIENCE);
        went_on.is_ok() && call.send_last("6\r\nsecond\r\n0\r\n\r\n")
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").expect("room");
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        client.read_line(&mut head).expect("a line");
    }
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    // Every chunk is handed to the decoder as it arrives.
    let mut coded = Vec::new();
    let mut plain = String::new();
    let mut is_over = false;
    while !is_over {
        let mut line = String::new();
        client.read_line(&mut line).expect("a size line");
        let size = usize::from_str_radix(line.trim(), 16).expect("hexadecimal");
        let mut chunk = vec![0; size + 2];
        client.read_exact(&mut chunk).expect("a chunk");
        coded.extend_from_slice(&chunk[..size]);
        is_over = size == 0;
        plain.clear();
        let ended = flate2::read::GzDecoder::new(&coded[..]).read_to_string(&mut plain).is_ok();
        assert_eq!(ended, plain == "first second", "{plain:?}");
        if plain == "first " {
            sender.send(()).expect("the application waits");
        }
    }
    assert_eq!(plain, "first second");
    running.stop();
}

#[test]
fn further_responses_are_sent_as_they_are_while_all_encoders_are_in_use() {
    let (sender, go_on) = channel::<()>();
    let go_on = Arc::new(std::sync::Mutex::new(go_on));
    let app = App::start(move |call| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
        call.send(head);
        let waits = call.path() == "/held";
        let went_on = !waits || go_on.lock().expect("no panic").recv_timeout(PATIENCE).is_ok();
        went_on && call.send("2\r\nok\r\n0\r\n\r\n")
    });
    let (running, address) = serve(&[app.address], |_| {});
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut client = client(address);
            client
                .get_mut()
                .write_all(
                    b"GET /held HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n",
                )
                .expect("room");
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                client.read_line(&mut head).expect("a line");
            }
            assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
            client
        })
        .collect();
    let (head, plain) = get_coded(address, "/");
    assert!(!head.contains("Content-Encoding") && head.contains("Vary: Accept-Encoding\r\n"), "{head}");
    assert_eq!(plain, b"ok");
    for mut client in held {
        sender.send(()).expect("the application waits");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("the rest");
        assert_eq!(gunzipped(&unchunked(&rest)), "ok");
    }
    let (head, coded) = get_coded(address, "/");
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    assert_eq!(gunzipped(&coded), "ok");
    running.stop();
}

#[test]
fn trailers_reach_a_client_that_accepts_them() {
    let app = App::start(|call| {
        call.send(
            "HTTP/1.1 200 OK\r\nTrailer: X-Sum, Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
             X-Sum: 7 \r\nContent-Length: 9\r\nX-Accel-Redirect: /private/x\r\nSet-Cookie: a=b\r\n\r\n",
        )
    });
    let (running, address) = serve(&[app.address], |_| {});
    let response = ask(address, "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n");
    assert!(response.contains("Trailer: X-Sum, Content-Length\r\n"), "{response}");
    assert!(response.ends_with("2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"), "{response}");
    let head = app.head();
    assert!(head.contains("TE: trailers\r\nConnection: TE\r\n"), "{head}");
    let response = ask(address, get("/"));
    assert!(response.ends_with("2\r\nok\r\n0\r\n\r\n") && !response.contains("Trailer"), "{response}");
    assert!(!app.head().contains("TE:"));
    running.stop();
}

#[test]
fn a_connection_begins_with_the_clients_address_if_the_application_wants_a_proxy_header() {
    let app = App::start(|call| call.reply("ok"));
    let (running, address) =
        serve(&[app.address], |settings| settings.proxy_protocol = Some(ProxyProtocol::V1));
    let mut client = client(address);
    let port = client.get_ref().local_addr().expect("an address").port();
    for _ in 0..2 {
        client.get_mut().write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
        assert_eq!(answer(&mut client).1, "ok");
        let head = app.head();
        let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}\r\n", app.address.port());
        assert!(
            head.starts_with(&format!("{line}GET /a HTTP/1.1\r\n")),
            "each has a connection of its own: {head}"
        );
        assert!(head.contains("Connection: close\r\n"), "{head}");
    }
    running.stop();
}

#[test]
fn another_server_reads_the_binary_proxy_header() {
    let behind = Server::new(Options { workers: Some(1), ..Options::default() });
    let echo = |request: &Request<'_>, _: Exchange| {
        Outcome::Now(Reply::text(200, format!("{:?}", request.origin().peer)))
    };
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let behind = behind
        .listener(ListenConfig { proxy_protocol: true, ..any.into() })
        .mount("/", echo)
        .start()
        .expect("it starts");
    let target = behind.addresses()[0].to_string().parse().expect("an address");
    let (running, address) = serve(&[target], |settings| settings.proxy_protocol = Some(ProxyProtocol::V2));
    let mut client = client(address);
    let own = client.get_ref().local_addr().expect("an address");
    client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    assert_eq!(answer(&mut client).1, format!("Inet({own})"));
    running.stop();
    behind.stop();
}

#[test]
fn a_buffered_body_reaches_the_application_whole_and_with_its_length() {
    let app = App::start(|call| {
        let length = call.body().len();
        call.reply(&length.to_string())
    });
    let routes = [route("/**", |route| route.buffer = Some("1KiB".parse().expect("a size")))];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let mut client = client(address);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    client.get_mut().write_all(post.as_bytes()).expect("room");
    assert!(answer(&mut client).0.starts_with("HTTP/1.1 100 "), "the server consents itself");
    client.get_mut().write_all(b"3\r\nabc\r\n").expect("room");
    // The application has no request yet: its first one comes on another connection.
    assert_eq!(content(&ask(address, get("/first"))), "0");
    assert!(app.head().starts_with("GET /first "));
    client.get_mut().write_all(b"2\r\nde\r\n0\r\n\r\n").expect("room");
    assert_eq!(answer(&mut client).1, "5");
    let head = app.head();
    assert!(head.contains("Content-Length: 5\r\n"), "{head}");
    assert!(!head.contains("Transfer-Encoding") && !head.contains("Expect"), "{head}");
    running.stop();
}

#[test]
fn a_body_beyond_the_buffer_is_passed_on_as_it_arrives() {
    let (sender, arrived) = channel();
    let app = App::start(move |call| {
        let mut start = [0; 2];
        // The size line of the first chunk shows that the request has begun.
        call.reader.read_exact(&mut start).expect("the beginning of the body");
        sender.send(start).expect("the test waits");
        let mut rest = String::new();
        while !rest.ends_with("0\r\n\r\n") {
            call.reader.read_line(&mut rest).expect("a line");
        }
        call.reply(&rest.matches('x').count().to_string())
    });
    let routes = [route("/**", |route| route.buffer = Some("1KiB".parse().expect("a size")))];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let mut client = client(address);
    let chunk = format!("7d0\r\n{}\r\n", "x".repeat(2_000));
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
    client.get_mut().write_all(post.as_bytes()).expect("room");
    arrived
        .recv_timeout(PATIENCE)
        .expect("the application has the beginning before the client sends the end");
    client.get_mut().write_all(format!("{chunk}0\r\n\r\n").as_bytes()).expect("room");
    assert_eq!(answer(&mut client).1, "4000");
    running.stop();
}

#[test]
fn a_client_that_gives_up_its_buffered_body_never_reaches_the_application() {
    let app = App::start(|call| call.reply("ok"));
    let routes = [route("/**", |route| {
        route.buffer = Some("1KiB".parse().expect("a size"));
        route.body_bytes = Some("4B".parse().expect("a size"));
    })];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let post = |body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let response = ask(address, post("5\r\nabcde\r\n0\r\n\r\n"));
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    let response = ask(address, post("zz\r\n"));
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert_eq!(content(&ask(address, get("/last"))), "ok");
    assert!(app.head().starts_with("GET /last "), "the only request of the application");
    running.stop();
}

#[test]
fn a_field_that_looks_like_the_framing_changes_nothing_in_a_buffered_request() {
    let app = App::start(|call| {
        let body = call.body();
        call.reply(&String::from_utf8_lossy(&body))
    });
    let routes = [route("/**", |route| route.buffer = Some("1KiB".parse().expect("a size")))];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    let smuggled = "0\r\n\r\nGET /internal HTTP/1.1\r\nHost: a\r\n\r\n";
    let response = ask(
        address,
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Transfer-Encoding: chunked\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n",
            smuggled.len()
        ),
    );
    assert_eq!(content(&response), smuggled, "all of it is content");
    let head = app.head();
    assert!(head.contains("X-Transfer-Encoding: chunked\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", smuggled.len())), "{head}");
    assert!(!head.contains("\r\nTransfer-Encoding"), "{head}");
    running.stop();
}

#[test]
fn conditions_have_the_tag_that_the_application_gave() {
    let app = App::start(|call| call.send("HTTP/1.1 204 No Content\r\nX-Accel-Buffering: no\r\n\r\n"));
    let routes = [route("/**", |_| {}), route("/plain/**", |route| route.compress = false)];
    let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
    for (path, condition, passed) in [
        ("/", "If-Match: W/\"a\"", "If-Match: \"a\"\r\n"),
        ("/", "If-None-Match: W/\"a\"", "If-None-Match: W/\"a\", \"a\"\r\n"),
        ("/", "If-Range: W/\"a\"", "If-Range: W/\"a\"\r\n"),
        ("/", "If-Match: *", "If-Match: *\r\n"),
        ("/plain/", "If-Match: W/\"a\"", "If-Match: W/\"a\"\r\n"),
    ] {
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n{condition}\r\n\r\n"
        );
        let response = ask(address, request);
        assert!(response.contains("X-Accel-Buffering: no\r\n"), "for a server before this one: {response}");
        let head = app.head();
        assert!(head.contains(passed), "{condition}: {head}");
    }
    running.stop();
}

#[test]
fn a_digest_or_an_unchanged_page_is_not_that_of_compressed_content() {
    let text = "Comet Encke. ".repeat(100);
    let sent = text.clone();
    let app = App::start(move |call| {
        if call.path() == "/same" {
            return call.send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
        }
        let trailer = if call.path() == "/declared" { "Trailer: content-digest\r\n" } else { "" };
        let (size, digest) = (sent.len(), "Content-Digest: sha-256=:x:\r\nX-Sum: 1");
        call.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{trailer}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{sent}\r\n0\r\n{digest}\r\n\r\n"
        ))
    });
    let (running, address) = serve(&[app.address], |_| {});
    let get = |path: &str, more: &str| {
        ask(
            address,
            format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nTE: trailers\r\nConnection: close\r\n{more}\r\n"
            ),
        )
    };
    let declared = get("/declared", "");
    assert!(!declared.contains("Content-Encoding") && declared.contains("Content-Digest: "), "{declared}");
    let undeclared = get("/", "");
    assert!(undeclared.contains("Content-Encoding: gzip\r\n"), "{undeclared}");
    assert!(undeclared.contains("X-Sum: 1\r\n") && !undeclared.contains("Content-Digest"), "{undeclared}");
    let same = get("/same", "If-None-Match: W/\"a\"\r\n");
    assert!(same.contains("ETag: W/\"a\"\r\n") && same.contains("Vary: Accept-Encoding\r\n"), "{same}");
    let same = get("/same", "If-None-Match: \"a\"\r\n");
    assert!(same.contains("ETag: \"a\"\r\n") && !same.contains("Vary"), "{same}");
    running.stop();
}

#[test]
fn a_target_without_an_address_takes_no_request_from_another_one() {
    let app = App::start(|call| call.reply("ok"));
    let (running, address) = serve(&[app.address], |settings| {
        settings.to.insert(0, "http://no-host.invalid:1".parse().expect("a URL"));
    });
    for _ in 0..6 {
        let response = ask(address, get("/"));
        assert_eq!(content(&response), "ok", "{response}");
    }
    running.stop();
}

#[test]
fn the_name_of_a_file_may_be_escaped_or_not() {
    for name in ["tä st.pdf", "t%C3%A4%20st.pdf", "tä%20st.pdf", "t%C3%A4 st.pdf"] {
        let app = App::start(move |call| {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: /private/";
            call.send(format!("{head}{name}\r\n\r\n"))
        });
        let internal =
            RouteSettings { pattern: "/private/**".into(), internal: true, ..RouteSettings::default() };
        let routes = [route("/**", |_| {}), internal];
        let (running, address) = serve_routes(&[app.address], |_| {}, &routes);
        let response = ask(address, get("/download"));
        assert!(response.ends_with("example.org/private/t%C3%A4%20st.pdf"), "{name}: {response}");
        running.stop();
    }
}

#[test]
fn an_event_source_without_a_target_tries_again() {
    let closed = CLOSED.parse().expect("an address");
    let (running, address) = serve(&[closed], |_| {});
    let request = |method| {
        format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\nAccept: text/event-stream\r\n\r\n"
        )
    };
    let response = ask(address, request("GET"));
    assert!(response.starts_with("HTTP/1.1 200 "), "a browser would never come back: {response}");
    assert!(content(&response).starts_with("retry: "), "{response}");
    let post = ask(address, request("POST"));
    assert!(post.starts_with("HTTP/1.1 502 "), "no EventSource sends this: {post}");
    running.stop();
}
