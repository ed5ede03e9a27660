//! Nodes of a cluster know each other, and the number of subscriptions of each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::nodes::nats::server::Nats;
use crate::running::{Folder, Running, encke, get, text};
use serde_json::Value;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    _folder: Folder,
    running: Running,
}

impl Node {
    fn start(name: &str, nats: &Nats) -> Self {
        // Several tests use this node name, each with its own NATS server.
        let port = nats.url().rsplit(':').next().expect("a port").to_owned();
        let folder = Folder::new(&format!("cluster-nodes-{name}-{port}"));
        folder.write("public/index.html", "hello");
        let settings = format!(
            "[[site]]\nroot = \"public\"\n[auth]\nanonymous = [\"publish\", \"subscribe\", \"presence\"]\n\
             [[push.channel]]\npattern = \"room\"\npresence = true\n\
             [cluster]\nnats = \"{}\"\nname = \"{name}\"\n",
            nats.url()
        );
        let file = folder.write("encke.toml", &settings);
        Self { running: Running::start(&["-c", &file]), _folder: folder }
    }

    /// Opens a subscription that lasts as long as the returned value.
    fn listener(&self, channel: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.running.site).expect("it listens");
        let request =
            format!("GET /push/{channel} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while !line.starts_with("id: ") {
            line.clear();
            assert!(stream.read_line(&mut line).expect("text") > 0, "it has ended");
        }
        stream
    }

    /// Repeats a request until its response satisfies a condition.
    fn until(&self, path: &str, so: impl Fn(&Value) -> bool) -> Value {
        let (site, path) = match path.strip_prefix("admin:") {
            Some(path) => (admin(&self.running), format!("{path}?token={}", token(&self.running))),
            None => (self.running.site.as_str(), path.to_owned()),
        };
        let begin = Instant::now();
        loop {
            let answer = get(site, &path);
            let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
            if let Ok(told) = serde_json::from_str::<Value>(body)
                && so(&told)
            {
                return told;
            }
            assert!(begin.elapsed() < PATIENCE, "never so: {path}: {answer}");
        }
    }

    /// Waits until the node knows `count` nodes. Returns their names and numbers of subscriptions.
    fn nodes(&self, count: usize) -> Vec<(String, u64)> {
        let told = self.until("admin:/api/v1/cluster", |told| {
            told["nodes"].as_array().is_some_and(|nodes| nodes.len() == count)
        });
        let nodes = told["nodes"].as_array().expect("it is a list").iter();
        let one = |node: &Value| {
            (
                node["name"].as_str().expect("text").to_owned(),
                node["subscriptions"].as_u64().expect("a number"),
            )
        };
        nodes.map(one).collect()
    }
}

fn admin(running: &Running) -> &str {
    running.admin.split('/').nth(2).expect("a host")
}

fn token(running: &Running) -> &str {
    running.admin.split_once("token=").expect("a token").1
}

#[test]
fn a_node_knows_who_listens_on_the_others_until_they_end_or_die() {
    let nats = Nats::start("nodes-program", &[]);
    let (one, other, third) =
        (Node::start("ann", &nats), Node::start("bob", &nats), Node::start("cid", &nats));
    let _here = one.listener("chat");
    let there = [other.listener("chat"), other.listener("chat")];
    let _elsewhere = third.listener("news");
    for node in [&one, &other] {
        node.until("/push/chat?info", |told| told["subscribers"] == 3 && told["messages"] == 0);
    }
    // A node without subscribers of a channel reports no message count for it.
    third.until("/push/chat?info", |told| told["subscribers"] == 3 && told["messages"].is_null());

    one.until("admin:/api/v1/cluster", |told| {
        let subscriptions =
            |nodes: &Vec<Value>| nodes.iter().filter_map(|one| one["subscriptions"].as_u64()).sum();
        told["up"] == true && told["nodes"].as_array().map(subscriptions) == Some(4_u64)
    });
    let expected = [("ann", 1), ("bob", 2), ("cid", 1)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(one.nodes(3), expected);
    // The lists of the console have the same facts.
    let rows = |name: &str, so: &dyn Fn(&Value) -> bool| {
        one.until(&format!("admin:/api/v1/lists/{name}"), |list| {
            list["rows"].as_array().is_some_and(|rows| rows.iter().any(so))
        })
    };
    let nodes = rows("nodes", &|node| node["node"] == "bob" && node["subscriptions"] == 2);
    assert_eq!(nodes["total"], 3, "{nodes}");
    let here = nodes["rows"].as_array().expect("rows").iter().find(|node| node["state"] == "this node");
    assert_eq!(here.expect("it lists itself")["node"], "ann");
    let streams = rows("streams", &|stream| stream["state"] == "up" && stream["lag"] == 0);
    assert_eq!((&streams["total"], &streams["rows"][0]["reconnects"]), (&1.into(), &0.into()), "{streams}");
    let output = encke().args(["status", &one.running.admin]).output().expect("the program starts");
    let said = text(&output.stdout);
    for line in ["1 subscriptions to 1 channels (this node)", "bob ", "cid "] {
        assert!(said.contains(line), "{line}: {said}");
    }

    // A killed node sends no departure; a stopped node does.
    let Node { running: mut killed, .. } = other;
    killed.kill();
    drop(there);
    one.until("/push/chat?info", |told| told["subscribers"] == 1);
    assert_eq!(one.nodes(2), [expected[0].clone(), expected[2].clone()]);
    third.running.signal(encke_io::host::Signal::Terminate);
    assert_eq!(one.nodes(1), expected[..1]);
}

/// Returns the next presence event.
fn next_of(events: &mut BufReader<TcpStream>) -> (String, String) {
    let mut next = |begin: &str| loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).expect("text") > 0, "it has ended before {begin}");
        if let Some(rest) = line.strip_prefix(begin) {
            return rest.trim().to_owned();
        }
    };
    (next("event: encke."), next("data: "))
}

#[test]
fn who_comes_to_a_node_and_goes_with_it_is_told_on_the_others() {
    let nats = Nats::start("presence-program", &[]);
    let (one, other) = (Node::start("ann", &nats), Node::start("bob", &nats));
    let mut events = one.listener("room");
    let (ann, bob) = ("{\"name\":\"ann\"}".to_owned(), "{\"name\":\"bob\"}".to_owned());
    let here = one.listener("room?name=ann");
    assert_eq!(next_of(&mut events), ("join".into(), ann.clone()));
    let there = other.listener("room?name=bob");
    assert_eq!(next_of(&mut events), ("join".into(), bob.clone()));
    // Ann also joins on the other node, and stays a member when she leaves this one, so there is no event.
    let also = other.listener("room?name=ann");
    for node in [&one, &other] {
        node.until("/push/room?info", |told| {
            told["subscribers"] == 4 && told["members"] == serde_json::json!(["ann", "bob"])
        });
    }
    drop(here);
    one.until("/push/room?info", |told| told["subscribers"] == 3);

    // Both leave with the killed node, which announces nothing.
    let Node { running: mut killed, .. } = other;
    killed.kill();
    drop((there, also));
    let mut gone = [next_of(&mut events), next_of(&mut events)];
    gone.sort();
    assert_eq!(gone, [("leave".into(), ann), ("leave".into(), bob)]);
}
