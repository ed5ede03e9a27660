//! Clients and applications that break rules at the cost of others.

use super::*;

use encke_server::{ConnLimits, Network};
use encke_settings::Period;
use encke_wire::forwarded::ForwardingField;

fn failures(running: &Running, target: SocketAddr) -> String {
    let metrics = encke_stats::prometheus::render(&running.families());
    let start =
        format!("encke_gateway_target_failures_total{{upstream=\"app\",target=\"http://{target}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{start} is missing: {metrics}")).to_owned()
}

#[test]
fn unfinished_bodies_do_not_count_against_a_target() {
    // The application waits for 3 of 9 bytes, and gives up.
    let app = App::start(|call| {
        if call.head.starts_with("GET ") {
            return call.reply("ok");
        }
        if call.path() == "/begun" {
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
        }
        call.reader.read_exact(&mut [0; 3]).expect("a part of the body");
        false
    });
    let (running, address) = serve(&[app.address], |_| {});
    for path in ["/begun", "/", "/", "/", "/"] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
        let mut client = client(address);
        client.get_mut().write_all(request.as_bytes()).expect("room");
        if path == "/begun" {
            // The response breaks off.
            let mut response = Vec::new();
            let _reset = client.read_to_end(&mut response);
            assert!(response.starts_with(b"HTTP/1.1 200 "));
        } else {
            assert!(answer(&mut client).0.starts_with("HTTP/1.1 502 "));
        }
    }
    assert_eq!(failures(&running, app.address), "0");
    assert_eq!(content(&ask(address, get("/"))), "ok", "the target is not ejected");
    running.stop();
}

#[test]
fn a_response_that_has_begun_does_not_count_against_a_target() {
    let app = App::start(|call| match call.path() {
        "/ok" => call.reply("ok"),
        "/cut" => call.send_last("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        "/silent" => {
            call.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            call.reader.read_to_end(&mut Vec::new()).expect("the end");
            false
        }
        "/fields" => {
            let fields: String = (0..110).map(|number| format!("A{number}: b\r\n")).collect();
            call.send_last(format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))
        }
        _ => call.send_last("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    });
    let (running, address) = serve(&[app.address], |upstream| upstream.idle_time = Period::milliseconds(1));
    for path in ["/cut", "/silent", "/fields", "/both"] {
        for _ in 0..4 {
            let mut client = client(address);
            client.get_mut().write_all(get(path).as_bytes()).expect("room");
            let mut response = Vec::new();
            // A response that has begun ends with a reset.
            let _reset = client.read_to_end(&mut response);
        }
    }
    assert_eq!(failures(&running, app.address), "0");
    assert_eq!(content(&ask(address, get("/ok"))), "ok", "the target is not ejected");
    running.stop();
}

#[test]
fn the_end_of_a_clients_side_does_not_count_against_a_target() {
    let app = App::start(|call| {
        call.reader.read_to_end(&mut Vec::new()).expect("the end");
        false
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    app.head();
    client.get_mut().shutdown(std::net::Shutdown::Write).expect("it is open");
    assert!(answer(&mut client).0.starts_with("HTTP/1.1 502 "));
    assert_eq!(failures(&running, app.address), "0");
    running.stop();
}

#[test]
fn complete_requests_without_a_response_count_against_a_target() {
    let app = App::start(|_| false);
    let (running, address) = serve(&[app.address], |_| {});
    ask(address, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(failures(&running, app.address), "1");
    running.stop();
}

#[test]
fn content_behind_a_head_response_answers_no_other_request() {
    for (method, head) in [
        ("HEAD", "200 OK\r\nContent-Length: 38"),
        ("GET", "304 Not Modified\r\nContent-Length: 38"),
        ("GET", "204 No Content\r\nTransfer-Encoding: chunked"),
    ] {
        let (go, gate) = channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let app = App::start(move |call| {
            if call.path() == "/other" {
                return call.reply("own");
            }
            call.send(format!("HTTP/1.1 {head}\r\n\r\n"));
            gate.lock().expect("one user").recv().expect("the test sends");
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        });
        let (running, address) = serve(&[app.address], |_| {});
        let mut client = client(address);
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.get_mut().write_all(request.as_bytes()).expect("room");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            client.read_line(&mut line).expect("a head");
        }
        // The next request arrives before the content.
        client.get_mut().write_all(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
        assert!(app.head().starts_with(method));
        assert!(app.head().starts_with("GET /other "), "it has another connection, which is served now");
        go.send(()).expect("the application waits");
        assert_eq!(answer(&mut client).1, "own");
        running.stop();
    }
}

/// A server that trusts the proxies of this machine.
fn serve_behind(dialect: ForwardingField, app: &App) -> (Running, SocketAddr) {
    let loopback = Network { address: [127, 0, 0, 1].into(), prefix: 32 };
    let policy = ConnLimits { trusted_proxies: vec![loopback], dialect, ..ConnLimits::default() };
    let options = Options { workers: Some(1), policy, ..Options::default() };
    serve_by(options, &[app.address], |_| {}, &[route("/**", |_| {})])
}

#[test]
fn applications_get_no_forwarding_field_of_the_client_where_proxies_write_another() {
    let app = App::start(|call| call.reply("ok"));
    for (dialect, list, host) in [
        (ForwardingField::XForwardedFor, "6.6.6.6, 9.9.9.9, 127.0.0.1", "evil"),
        (ForwardingField::Forwarded, "203.0.113.9, 127.0.0.1", "a"),
    ] {
        let (running, address) = serve_behind(dialect, &app);
        ask(
            address,
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nForwarded: for=203.0.113.9\r\n\
             X-Forwarded-For: 6.6.6.6, 9.9.9.9\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\n\r\n",
        );
        let head = app.head();
        assert!(head.contains(&format!("\r\nX-Forwarded-For: {list}\r\n")), "{head}");
        assert!(head.contains(&format!("\r\nX-Forwarded-Host: {host}\r\n")), "{head}");
        assert_eq!(head.contains("X-Forwarded-Port"), dialect == ForwardingField::XForwardedFor, "{head}");
        running.stop();
    }
    // The client's address is a part of another one.
    let (running, address) = serve_behind(ForwardingField::Forwarded, &app);
    ask(
        address,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nForwarded: for=1.1.1.1\r\nX-Forwarded-For: 11.1.1.1\r\n\r\n",
    );
    assert!(app.head().contains("\r\nX-Forwarded-For: 1.1.1.1, 127.0.0.1\r\n"));
    running.stop();
}

#[test]
fn the_end_of_a_clients_side_passes_to_the_application() {
    let (sender, ended) = channel();
    let app = App::start(move |call| {
        let mut rest = Vec::new();
        call.reader.read_to_end(&mut rest).expect("the end");
        sender.send(()).expect("the test waits");
        call.reply("late")
    });
    let (running, address) = serve(&[app.address], |_| {});
    let mut client = client(address);
    client.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("room");
    app.head();
    client.get_mut().shutdown(std::net::Shutdown::Write).expect("it is open");
    ended.recv_timeout(PATIENCE).expect("the application sees the end");
    assert_eq!(answer(&mut client).1, "late", "an application that goes on can still respond");
    running.stop();
}
