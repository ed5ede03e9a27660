//! The admin listener behind a proxy: addresses of clients, codings, and streams without buffering.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use crate::running::{Folder, Running, encke};

/// Starts a server whose admin listener has these settings.
fn serve(folder: &Folder, text: &str) -> Running {
    let file = folder.write("encke.toml", text);
    let mut command = encke();
    command.args(["serve", "-c", &file, "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-w", "1"]);
    Running::start_command(command.env("XDG_STATE_HOME", folder.path("state")).stdout(Stdio::piped()))
}

/// The address and the token of the admin listener.
fn admin(server: &Running) -> (&str, &str) {
    let (address, rest) = server.admin.trim_start_matches("http://").split_once('/').expect("a URL");
    (address, rest.rsplit_once('=').expect("a token").1)
}

/// Sends a GET request with these fields, and returns the head of the response.
fn head(server: &Running, target: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(admin(server).0).expect("it listens");
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).expect("a head") > 2 {}
    head
}

/// The status of a request with a wrong token that a proxy forwards for this client.
fn status(server: &Running, client: &str) -> u16 {
    let fields = format!("X-Forwarded-For: {client}\r\nAuthorization: Bearer wrong\r\n");
    let head = head(server, "/api/v1/status", &fields);
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn failed_attempts_behind_a_trusted_proxy_count_for_their_client_only() {
    let folder = Folder::new("console-proxy");
    let server = serve(&folder, "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[console]\nattempts = 2\n");
    let statuses: Vec<u16> = (0..3).map(|_| status(&server, "192.0.2.1")).collect();
    assert_eq!(statuses, [401, 401, 429]);
    assert_eq!(status(&server, "192.0.2.2"), 401, "another client is locked out");
    assert_eq!(
        status(&server, "198.51.100.1, 192.0.2.1"),
        429,
        "a client evades the limit by a field of its own"
    );
    assert_eq!(status(&server, "unknown"), 401, "a client without an address counts as the proxy");
}

#[test]
fn failed_attempts_with_a_forged_field_count_for_the_peer() {
    let folder = Folder::new("console-forged");
    let server = serve(&folder, "[console]\nattempts = 2\n");
    let statuses: Vec<u16> = (1..4).map(|number| status(&server, &format!("192.0.2.{number}"))).collect();
    assert_eq!(statuses, [401, 401, 429]);
}

#[test]
fn event_streams_and_pages_pass_proxies_and_plain_clients() {
    let folder = Folder::new("console-stream");
    let server = serve(&folder, "");
    let (address, token) = admin(&server);
    let stream = head(&server, "/api/v1/live", &format!("Authorization: Bearer {token}\r\n"));
    assert!(stream.contains("text/event-stream"), "{stream}");
    assert!(stream.to_ascii_lowercase().contains("\r\nx-accel-buffering: no\r\n"), "{stream}");
    let mut plain = TcpStream::connect(address).expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut page = Vec::new();
    plain.read_to_end(&mut page).expect("a page");
    let page = String::from_utf8(page).expect("a page without a coding is text");
    assert!(page.contains("</html>") && !page.contains("Content-Encoding"), "{page}");
    let compressed = head(&server, "/", "Accept-Encoding: gzip\r\n");
    assert!(compressed.contains("Content-Encoding: gzip\r\n"), "{compressed}");
}
