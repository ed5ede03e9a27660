//! Two nodes on one NATS server: subscribers receive messages published on either node, and an id of one is valid on the other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::process::Stdio;

use crate::nodes::nats::server::Nats;
use crate::running::{Folder, Running, encke, text};
use serde_json::Value;

/// A running node with its own directory.
struct Node {
    _folder: Folder,
    running: Running,
}

fn settings(nats: &Nats, more: &str) -> String {
    format!(
        "[[site]]\nroot = \"public\"\n[auth]\nanonymous = [\"publish\", \"subscribe\", \"manage\"]\n\
         [push]\nanonymous_rate = \"off\"\nheartbeat = \"1s\"\n[[push.channel]]\npattern = \"short/*\"\nmessages = 3\n\
         [cluster]\nnats = \"{}\"\n{more}",
        nats.url()
    )
}

impl Node {
    fn start(name: &str, nats: &Nats) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        let file = folder.write("encke.toml", &settings(nats, ""));
        let running = Running::start(&["-c", &file]);
        Self { _folder: folder, running }
    }

    fn site(&self) -> &str {
        &self.running.site
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.site()).expect("it listens");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n\
             Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        let answer = text(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    /// Publishes a message and returns its id.
    fn publish(&self, channel: &str, body: &str) -> String {
        let (head, body) = self.ask("POST", &format!("/push/{channel}"), body);
        assert!(head.starts_with("HTTP/1.1 201 "), "{head}{body}");
        let told: Value = serde_json::from_str(&body).expect("JSON");
        told["id"].as_str().expect("an id").to_owned()
    }

    /// Opens an event stream.
    fn listen(&self, channels: &str, since: &str) -> Events {
        let mut stream = TcpStream::connect(self.site()).expect("it listens");
        let request = format!(
            "GET /push/{channels}?since={since} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        Events(BufReader::new(stream))
    }

    /// Polls. Returns ids and texts, and whether a gap was reported.
    fn poll(&self, channel: &str, since: &str) -> (Vec<(String, String)>, bool) {
        let (head, body) = self.ask("GET", &format!("/push/{channel}?since={since}&wait=20"), "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        let told: Value = serde_json::from_str(&body).expect("JSON");
        let messages = told["messages"].as_array().expect("a list").iter();
        let part = |one: &Value, name: &str| one[name].as_str().expect("text").to_owned();
        let messages = messages.map(|one| (part(one, "id"), part(one, "data"))).collect();
        (messages, body.contains("\"gap\""))
    }
}

/// Events of an open stream.
struct Events(BufReader<TcpStream>);

impl Events {
    /// Returns the rest of the next line that begins with `begin`.
    fn next(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).expect("text");
            assert!(read > 0, "the stream has ended before {begin}");
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Returns the next message of a stream of one channel.
    fn data(&mut self) -> String {
        self.next("data: ")
    }

    /// Returns the next message of a stream of several channels.
    fn told(&mut self) -> String {
        let told: Value = serde_json::from_str(&self.data()).expect("JSON");
        told["data"].as_str().expect("text").to_owned()
    }
}

#[test]
fn what_is_published_on_one_node_reaches_who_listens_on_another_and_ids_mean_the_same() {
    let nats = Nats::start("program", &[]);
    let (one, other) = (Node::start("cluster-one", &nats), Node::start("cluster-other", &nats));

    let mut events = other.listen("news/today,chat", "now");
    let mut ours = one.listen("news/today,chat", "now");
    events.next("id: ");
    ours.next("id: ");
    let first = one.publish("news/today", "from one");
    let second = other.publish("chat", "from the other");
    for events in [&mut events, &mut ours] {
        assert_eq!(events.told(), "from one");
        assert_eq!(events.told(), "from the other");
    }

    // Polls on either node accept an id of either.
    let third = one.publish("chat", "again");
    for node in [&one, &other] {
        let expected = [(second.clone(), "from the other".to_owned()), (third.clone(), "again".to_owned())];
        assert_eq!(node.poll("chat", &first), (expected.to_vec(), false));
        assert_eq!(node.poll("chat", &second), (expected[1..].to_vec(), false));
    }
    // A stream that breaks on one node resumes on the other.
    drop(ours);
    let mut resumed = other.listen("news/today,chat", &first);
    assert_eq!((resumed.told(), resumed.told()), ("from the other".into(), "again".into()));

    // A node reads messages outside its memory from the stream, even of a channel it never held. A second poll returns the
    // rest.
    let ids: Vec<String> = (0..5).map(|number| one.publish("short/a", &number.to_string())).collect();
    let told =
        |numbers: Range<usize>| numbers.map(|number| (ids[number].clone(), number.to_string())).collect();
    for node in [&one, &other] {
        assert_eq!(node.poll("short/a", &ids[0]), (told(1..2), false));
        assert_eq!(node.poll("short/a", &ids[1]), (told(2..5), false));
    }
}

#[test]
fn while_nats_is_away_publishers_are_told_listeners_stay_and_afterwards_nobody_has_missed_anything() {
    let mut nats = Nats::start("outage", &[]);
    let (one, mut other) = (Node::start("outage-one", &nats), Node::start("outage-other", &nats));
    let mut events = other.listen("chat", "now");
    events.next("id: ");
    let first = one.publish("chat", "before");
    assert_eq!(events.data(), "before");

    nats.stop();
    other.running.error_with("is unreachable");
    let (head, body) = other.ask("POST", "/push/chat", "lost");
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("Retry-After: "), "{head}{body}");
    // Messages in memory are still served.
    let (kept, gap) = other.poll("chat", "all");
    assert_eq!((kept.as_slice(), gap), ([(first.clone(), "before".to_owned())].as_slice(), false));

    nats.run();
    other.running.error_with("is reachable again");
    // The node accepts messages once it consumes the stream again.
    let after = loop {
        let (head, body) = one.ask("POST", "/push/chat", "after");
        if head.starts_with("HTTP/1.1 201 ") {
            let told: Value = serde_json::from_str(&body).expect("JSON");
            break told["id"].as_str().expect("an id").to_owned();
        }
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}{body}");
    };
    assert_eq!(events.data(), "after", "the same stream, and nothing between");
    for node in [&one, &other] {
        assert_eq!(node.poll("chat", &first), (vec![(after.clone(), "after".to_owned())], false));
    }
}

#[test]
fn a_node_that_may_not_join_says_why_and_ends() {
    let nats = Nats::start("refused", &["--user", "encke", "--pass", "secret"]);
    let folder = Folder::new("cluster-refused");
    folder.write("public/index.html", "hello");
    let end = |more: &str| {
        let file = folder.write("encke.toml", &settings(&nats, more));
        let arguments = ["serve", "-l", "127.0.0.1:0", "--admin", "off", "-c", &file];
        let output = encke().args(arguments).stdout(Stdio::null()).output().expect("the program starts");
        assert_ne!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    let said = end("user = \"encke\"\npassword = \"wrong\"\n");
    assert!(said.contains("rejects the login"), "{said}");
    assert!(!said.contains("wrong\""), "no secret: {said}");
    let said = end("credentials = \"nobody.creds\"\n");
    assert!(said.contains("nobody.creds: "), "{said}");
    folder.write("secret", "secret\n");
    let file =
        folder.write("encke.toml", &settings(&nats, "user = \"encke\"\npassword = { file = \"secret\" }\n"));
    Running::start(&["-c", &file]).kill();
}
