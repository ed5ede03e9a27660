//! A restart: streams end at once, files are served until the process ends, and a successor waits for a draining process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use encke_io::host::{Signal, send_signal};

use crate::running::{Folder, Running, encke, get, patiently};

/// Opens an event stream, and reads until its first event has arrived.
fn subscribe(site: &str) -> TcpStream {
    let mut stream = TcpStream::connect(site).expect("it listens");
    let request = "GET /push/a HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = Vec::new();
    while !text.windows(6).any(|window| window == b"retry:") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("the stream begins");
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..count]);
    }
    stream
}

fn folder() -> Folder {
    let folder = Folder::new("restart");
    folder.write("public/index.html", "hello");
    folder
}

#[test]
fn a_restart_with_few_streams_takes_no_time_and_is_logged() {
    let folder = folder();
    let mut server = Running::start(&["--open", &folder.path("public")]);
    let streams: Vec<TcpStream> = (0..5).map(|_| subscribe(&server.site)).collect();
    server.signal(Signal::Terminate);
    let line = server.error_with("draining");
    assert!(line.trim_end().ends_with("draining: 5 streams, up to 8 s"), "{line}");
    for mut stream in streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("ended in order");
        assert!(rest.contains("retry: ") && rest.ends_with("0\r\n\r\n"), "{rest}");
    }
    let (status, rest) = server.end();
    assert_eq!(status, Some(0));
    assert!(rest.contains("info: drained in ") && !rest.contains("closed before"), "{rest}");
}

#[test]
fn files_are_served_while_a_request_is_open_and_a_successor_waits() {
    let folder = folder();
    // Ports are known only once they are bound, and the successor needs the same ones.
    let first = Running::start_alone(&["--open", &folder.path("public")]);
    let admin = first.admin.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let settings = folder.write(
        "encke.toml",
        &format!(
            "[server]\nlisten = \"{}\"\nadmin = \"{admin}\"\nstate_dir = \"state\"\ndrain_time = \"10m\"\n\
             [[site]]\nroot = \"public\"\n",
            first.site
        ),
    );
    first.signal(Signal::Terminate);
    assert_eq!(first.end().0, Some(0));

    let command = || {
        let mut command = encke();
        command.args(["serve", "--open", "-w", "2", "-c", &settings]);
        command
    };
    let mut old = Running::start_command(&mut command());
    let mut open = TcpStream::connect(&old.site).expect("it listens");
    let request =
        "POST /push/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    open.write_all(request.as_bytes()).expect("sent");
    // The request is open once the server wants its body.
    let mut interim = [0; 25];
    open.read_exact(&mut interim).expect("100 Continue");
    old.signal(Signal::Terminate);
    let line = old.error_with("draining");
    assert!(line.contains("draining: 1 request, up to 600 s"), "{line}");
    for _ in 0..5 {
        let answer = get(&old.site, "/");
        assert!(answer.contains("Connection: close") && answer.ends_with("hello"), "{answer}");
    }
    // The mark is set before the line above.
    let mut successor = command().stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut errors = BufReader::new(successor.stderr.take().expect("piped"));
    let mut line = String::new();
    patiently(successor.id(), || errors.read_line(&mut line)).expect("text");
    let holder = format!("another encke (pid {}) is draining and holds {}", old.child.id(), old.site);
    assert!(line.contains(&holder) && line.contains("waiting up to 601 s"), "{line}");
    open.write_all(b"hi").expect("sent");
    let mut answer = String::new();
    open.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let site = old.site.clone();
    let (status, rest) = old.end();
    assert!(status == Some(0) && rest.contains("drained in "), "{rest}");
    patiently(successor.id(), || {
        while !line.contains("\n  capacity ") {
            assert!(errors.read_line(&mut line).expect("text") > 0, "it ended: {line}");
        }
    });
    assert!(get(&site, "/").ends_with("hello"));
    send_signal(successor.id(), Signal::Terminate).expect("it lives");
    assert_eq!(successor.wait().expect("a child").code(), Some(0));
}
