//! Nodes of a cluster during failures, with real servers and sockets, and with every message counted.
//!
//! Publishers get a retry time. Subscribers stay connected or resume on another node by their ids. In the end every subscriber
//! has received every message once and in the same order. No message in these tests may be lost, so every gap is a failure.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::nodes::link::Link;
use crate::nodes::listener::{Kind, Listener, Told, ask};
use crate::nodes::nats::{Nats, Trio, address, api};
use crate::nodes::{Answer, Crowd, Node, Source, publish, sites};
use crate::running::{Folder, encke, get, text};
use encke_io::host::Signal;
use encke_io::testing::{own_host, wait_for};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;

/// Starts `count` nodes of one cluster.
fn start(name: &str, count: usize, cluster: &str) -> Vec<Node> {
    (0..count).map(|number| Node::start(&format!("{name}-{number}"), cluster)).collect()
}

fn on(nats: &Nats) -> String {
    format!("nats = {:?}", nats.url())
}

#[test]
fn nodes_are_killed_under_load_and_nobody_misses_a_message() {
    let nats = Nats::start("killed", &[]);
    let mut nodes = start("killed", 3, &on(&nats));
    let sites = sites(&nodes);
    let crowd = Crowd::gather(&sites, "load", &[Kind::ALL, Kind::ALL].concat());
    let source = Source::start(&sites, "load");
    source.begin(200);
    nodes[0].kill();
    source.begin(200);
    nodes[0].again();
    nodes[1].kill();
    source.begin(200);
    source.end();
    let accounts = crowd.settle(&[200; 3]);
    let moves: usize = accounts.iter().map(|account| account.moves).sum();
    assert!(moves >= 2 * 6, "of both nodes that were killed all have come back elsewhere: {moves}");
}

#[test]
fn three_nodes_are_upgraded_one_after_the_other_and_nobody_misses_a_message() {
    let nats = Nats::start("upgraded", &[]);
    let mut nodes = start("upgraded", 3, &on(&nats));
    let sites = sites(&nodes);
    let crowd = Crowd::gather(&sites, "load", &Kind::ALL);
    let source = Source::start(&sites, "load");
    for node in &mut nodes {
        source.begin(100);
        node.upgrade();
    }
    source.begin(100);
    source.end();
    crowd.settle(&[100; 4]);
}

#[test]
fn of_three_nats_servers_the_leader_is_killed_and_then_the_next_one() {
    let mut trio = Trio::start("trio");
    let nodes = start("trio", 2, &format!("nats = {}\nreplicas = 3", trio.urls()));
    let sites = sites(&nodes);
    let crowd = Crowd::gather(&sites, "load", &Kind::ALL);
    let source = Source::start(&sites, "load");
    for _ in 0..2 {
        source.begin(100);
        let leader = trio.leader("encke");
        trio.0[leader].stop();
        // The other two of three servers continue without it.
        source.begin(100);
        trio.0[leader].run();
    }
    source.begin(100);
    source.end();
    let accounts = crowd.settle(&[100; 5]);
    assert!(accounts.iter().all(|account| account.moves == 0), "listeners stay: {accounts:?}");
}

#[test]
fn what_no_majority_has_stored_may_be_said_again_under_its_key_and_is_no_refusal() {
    let trio = Trio::start("minority");
    let cluster = format!("nats = {}\nreplicas = 3\npublish_time = \"1s\"", trio.urls());
    let node = Node::start("minority", &cluster);
    node.tell("news", "first");
    let leader = trio.leader("encke");
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    others.iter().for_each(|&other| trio.0[other].freeze());
    // The leader has the message and waits for the others: a repeated publish gets a retry time, not a rejection.
    let say = || publish(&node.site, "news", "key", "data").expect("it answers");
    assert_eq!([say(), say()], [Answer::Later, Answer::Later]);
    let (head, body) = ask(&node.site, "DELETE", "news", "", "").expect("it answers");
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: "), "{head}{body}");
    others.iter().for_each(|&other| trio.0[other].thaw());
    let stored = std::iter::repeat_with(say).find(|answer| *answer != Answer::Later).expect("it goes on");
    let Answer::Stored(id, _) = stored else { unreachable!("it is not later") };
    // A follower that the machine has stopped may begin an election.
    let again = std::iter::repeat_with(say).find(|answer| *answer != Answer::Later).expect("it goes on");
    assert_eq!(again, Answer::Stored(id, true));
}

/// Publishes without a key. Returns head and body of the response.
fn say(node: &Node, channel: &str, data: &str) -> (String, String) {
    ask(&node.site, "POST", channel, "", data).expect("it answers")
}

/// Publishes envelopes, one per line. Returns head and body of the response.
fn say_lines(node: &Node, lines: &str) -> (String, String) {
    let fields = "Content-Type: application/x-ndjson\r\n";
    ask(&node.site, "POST", "", fields, lines).expect("it answers")
}

/// Returns the value of a metric of a node.
fn figure(node: &Node, name: &str) -> u64 {
    let metrics = node.running.admin.replace("/api/v1/status", "/metrics");
    let (_, rest) = metrics.split_once("://").expect("a URL");
    let (site, path) = rest.split_once('/').expect("a path");
    let figures = get(site, &format!("/{path}"));
    let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {figures}")).parse().expect("a whole number")
}

/// Publishes a message that is to be queued.
fn wait_with(node: &Node, channel: &str, data: &str) {
    let (head, body) = say(node, channel, data);
    assert!(head.starts_with("HTTP/1.1 202 "), "{head}{body}");
    assert!(body.starts_with("{\"queued\":1,\"subscribers\":"), "{body}");
}

#[test]
fn what_is_published_while_nats_is_away_waits_and_comes_once_and_in_order() {
    let mut nats = Nats::start("waits", &[]);
    let mut near = Node::start("waits-near", &format!("{}\nqueue = \"1MiB\"", on(&nats)));
    let far = Node::start("waits-far", &on(&nats));
    let open = |node: &Node, kind| Listener::open(&node.site, kind, "news", "now").expect("it listens");
    let mut listeners =
        [(&near, Kind::Events), (&near, Kind::Socket), (&far, Kind::Events), (&far, Kind::Polls)]
            .map(|(node, kind)| open(node, kind));
    listeners.iter_mut().for_each(|listener| drop(listener.next()));
    near.tell("news", "first");
    assert!(listeners.iter_mut().all(|listener| listener.data() == "first"));

    nats.stop();
    near.running.error_with("is unreachable");
    (0..1_000).for_each(|number| wait_with(&near, "news", &number.to_string()));
    assert_eq!(figure(&near, "encke_cluster_queue_messages"), 1_000);
    let (head, body) = say(&near, "news", &"x".repeat(1 << 20));
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: "), "{head}{body}");
    assert_eq!(
        publish(&far.site, "news", "far", "far").expect("it answers"),
        Answer::Later,
        "it has no queue"
    );

    nats.run();
    near.running.error_with("is reachable again");
    // This message is queued after the others, if they are still queued.
    let (head, body) = say(&near, "news", "last");
    assert!(head.starts_with("HTTP/1.1 20"), "{head}{body}");
    let due: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    for listener in &mut listeners {
        let seen: Vec<String> =
            std::iter::repeat_with(|| listener.data()).take_while(|data| data != "last").collect();
        assert_eq!(seen, due);
    }
    // The queue is empty: a publish returns an id again.
    while !say(&near, "news", "after").0.starts_with("HTTP/1.1 201 ") {}
    assert_eq!(figure(&near, "encke_cluster_queue_messages"), 0);
    assert_eq!(figure(&near, "encke_cluster_queue_dropped_total"), 0);
}

/// Sends a WebSocket handshake for a channel, and returns all bytes until the end of the connection.
fn shake_hands(node: &Node, channel: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(&node.site).expect("it listens");
    let request = format!(
        "GET /push/{channel} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends");
    answer
}

#[test]
fn who_asks_in_an_outage_for_a_channel_that_its_node_does_not_know_is_told_to_come_back() {
    let mut nats = Nats::start("unknown", &[]);
    let mut node = Node::start("unknown", &on(&nats));
    let mut stays = Listener::open(&node.site, Kind::Events, "known", "now").expect("it listens");
    stays.next();
    node.tell("known", "kept");
    assert_eq!(stays.data(), "kept");
    nats.stop();
    node.running.error_with("is unreachable");

    let get = |target: &str| ask(&node.site, "GET", target, "", "").expect("it answers");
    for target in
        ["unknown?wait=0", "unknown?wait=0&since=all&as=json", "unknown,known?wait=1", "unknown?as=ndjson"]
    {
        let (head, body) = get(target);
        assert!(head.starts_with("HTTP/1.1 503 "), "{target}: {head}{body}");
        assert!(head.contains("\r\nRetry-After: "), "{target}: {head}");
        assert!(body.contains("the cluster is unreachable"), "{target}: {body}");
    }
    let (head, body) = get("unknown?as=sse");
    assert!(head.starts_with("HTTP/1.1 200 "), "an EventSource comes back after nothing else: {head}{body}");
    assert!(body.starts_with("retry: ") && body.trim_end().lines().count() == 1, "{body:?}");
    let answer = shake_hands(&node, "unknown");
    let head = b"HTTP/1.1 101 ";
    assert!(answer.starts_with(head), "{}", String::from_utf8_lossy(&answer));
    let close = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!(answer[close], 0x88, "a Close");
    assert_eq!(answer[close + 2..close + 4], 1013_u16.to_be_bytes(), "try again later");
    for (transport, count) in [("poll", 3), ("ndjson", 1), ("sse", 1), ("websocket", 1)] {
        let name = format!("encke_push_rejected_total{{reason=\"outage\",transport=\"{transport}\"}}");
        assert_eq!(figure(&node, &name), count, "{transport}");
    }
    // Known channels are served.
    let (head, body) = get("known?wait=0");
    assert!(head.starts_with("HTTP/1.1 204 "), "{head}{body}");
    let (head, body) = get("known?wait=0&since=all");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "kept", "{head}{body}");

    // A request that still waits when NATS returns is then served.
    let waits = thread::spawn({
        let site = node.site.clone();
        move || ask(&site, "GET", "unknown?wait=55", "", "").expect("it answers")
    });
    nats.run();
    node.running.error_with("is reachable again");
    let mut events = Listener::open(&node.site, Kind::Events, "unknown", "now").expect("it listens");
    events.next();
    while !waits.is_finished() {
        node.tell("unknown", "hello");
    }
    assert_eq!(events.data(), "hello");
    let (head, body) = waits.join().expect("it was answered");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "hello", "{head}{body}");
}

#[test]
fn a_publisher_that_does_not_wait_has_no_id_and_its_messages_come_in_order() {
    let nats = Nats::start("local", &[]);
    let settings =
        format!("{}\nqueue = \"1MiB\"\n[[push.channel]]\npattern = \"soon/*\"\nack = \"local\"", on(&nats));
    let node = Node::start("local", &settings);
    let mut events = Listener::open(&node.site, Kind::Events, "soon/a", "now").expect("it listens");
    events.next();
    let mut socket = Listener::open(&node.site, Kind::Socket, "soon/a", "now").expect("it listens");
    socket.next();
    let mut heard = || {
        let data = events.data();
        assert_eq!(socket.data(), data);
        data
    };
    (0..100).for_each(|number| wait_with(&node, "soon/a", &number.to_string()));
    (0..100).for_each(|number| assert_eq!(heard(), number.to_string()));
    // Only the queued message has no id yet.
    let (head, body) = say(&node, "news,soon/a", "both");
    let told: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert!(head.starts_with("HTTP/1.1 202 "), "{head}{body}");
    assert!(told["id"].is_string() && told["queued"] == 1, "{body}");
    assert_eq!(told["ids"], json!([told["id"], null]));
    assert_eq!(heard(), "both");
    // Publishes by lines, and on a WebSocket.
    let lines = [("soon/a", "one"), ("news", "two"), ("soon/a", "three")]
        .map(|(channel, data)| json!({ "channel": channel, "data": data }).to_string() + "\n");
    let (head, body) = say_lines(&node, &lines.concat());
    let told: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert!(head.starts_with("HTTP/1.1 202 "), "{head}{body}");
    assert!(told["id"].is_string() && told["published"] == 1 && told["queued"] == 2, "{body}");
    assert_eq!([heard(), heard()], ["one", "three"]);
    let told = socket.publish("soon/a", "four");
    assert_eq!(
        (&told["op"], &told["queued"], &told["id"]),
        (&json!("ok"), &json!(1), &json!(null)),
        "{told}"
    );
    assert_eq!(socket.data(), "four");
    assert_eq!(events.data(), "four");
    assert!(socket.publish("news", "five")["id"].is_string(), "others have an id");
}

#[test]
fn a_node_that_ends_during_an_outage_says_what_is_lost_with_it() {
    let mut nats = Nats::start("ends", &[]);
    let mut node = Node::start("ends", &format!("{}\nqueue = \"1MiB\"", on(&nats)));
    nats.stop();
    node.running.error_with("is unreachable");
    (0..3).for_each(|number| wait_with(&node, "news", &number.to_string()));
    // The drain waits for the queue as long as its time limit allows.
    node.running.signal(Signal::Terminate);
    node.running.error_with("3 messages queued for the cluster are lost");
    assert!(node.running.child.wait().expect("a child").success());
}

#[test]
fn a_node_that_is_cut_off_from_nats_keeps_its_listeners_and_catches_up() {
    let nats = Nats::start("cut", &[]);
    let link = Link::to(&address(&nats));
    let near = Node::start("cut-near", &on(&nats));
    let mut far =
        Node::start("cut-far", &format!("nats = \"nats://{}\"\npublish_time = \"1s\"", link.address));
    let mut listeners = Vec::new();
    for (site, kind) in [(&near.site, Kind::Socket), (&far.site, Kind::Events), (&far.site, Kind::Socket)] {
        listeners.push(Listener::open(site, kind, "news", "now").expect("it listens"));
    }
    // Each subscriber gets its position before the first message.
    listeners.iter_mut().for_each(|listener| drop(listener.next()));
    let first = far.tell("news", "first");
    assert!(listeners.iter_mut().all(|listener| listener.data() == "first"));

    link.cut();
    let late = |node: &Node| publish(&node.site, "news", "late", "late").expect("it answers");
    assert_eq!(late(&far), Answer::Later, "nobody knows of the cut yet: after `publish_time`");
    for number in 0..20 {
        near.tell("news", &number.to_string());
    }
    // A request for a channel that this node never had waits for a while, gets a retry time, and succeeds at the retry.
    let fresh = Kind::ALL.map(|kind| {
        let site = far.site.clone();
        thread::spawn(move || {
            wait_for(&format!("{kind:?} is subscribed"), || {
                let mut listener = Listener::open(&site, kind, "fresh", "now").ok()?;
                match listener.next() {
                    Told::At(_) => Some(listener),
                    Told::End => None,
                    other => panic!("{kind:?} is told {other:?}"),
                }
            })
        })
    });
    // The link carries nothing for two ping intervals; then the node detects the outage.
    far.running.error_with("is unreachable");
    assert_eq!(late(&far), Answer::Later, "at once");
    let (head, _) = ask(&far.site, "DELETE", "other", "", "").expect("it answers");
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: "), "{head}");
    let (head, body) = ask(&far.site, "GET", "news?since=all&wait=0&as=json", "", "").expect("it answers");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains(&first), "memory is served: {head}{body}");
    listeners[1].heartbeat();

    link.mend();
    far.running.error_with("is reachable again");
    let fresh = fresh.map(|listener| listener.join().expect("told why above"));
    near.tell("fresh", "at last");
    assert!(fresh.into_iter().all(|mut listener| listener.data() == "at last"));
    far.tell("news", "late");
    near.tell("news", "last");
    let mut seen = listeners.iter_mut().map(|listener| {
        let mut seen: Vec<String> =
            std::iter::repeat_with(|| listener.data()).take_while(|data| data != "last").collect();
        let late = seen.iter().position(|data| data == "late").expect("it was stored");
        seen.remove(late);
        assert_eq!(seen, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
        late
    });
    let late = seen.next();
    assert!(seen.all(|other| Some(other) == late), "in the same place for all");
}

#[test]
fn who_was_away_for_far_more_than_a_ring_keeps_gets_all_of_it_on_another_node() {
    let nats = Nats::start("away", &[]);
    let short = "[[push.channel]]\npattern = \"short/**\"\nmessages = 3";
    let mut nodes = start("away", 2, &format!("{}\n{short}", on(&nats)));
    let mut listener = Listener::open(&nodes[0].site, Kind::Events, "short/a", "now").expect("it listens");
    listener.next();
    let seen = nodes[0].tell("short/a", "seen");
    assert_eq!(listener.data(), "seen");
    nodes[0].kill();
    let missed: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    for data in &missed {
        nodes[1].tell("short/a", data);
    }
    nodes[0].again();
    let mut back = Vec::new();
    for (site, kind) in sites(&nodes).iter().flat_map(|site| Kind::ALL.map(|kind| (site.clone(), kind))) {
        let mut listener = Listener::open(&site, kind, "short/a", &seen).expect("it listens");
        let came: Vec<String> = missed.iter().map(|_| listener.data()).collect();
        assert_eq!(came, missed, "{kind:?}");
        back.push(listener);
    }
    nodes[0].tell("short/a", "live");
    assert!(back.iter_mut().all(|listener| listener.data() == "live"));
}

#[test]
fn what_one_node_is_told_to_forget_no_node_tells_any_more() {
    let nats = Nats::start("forgotten", &[]);
    let nodes = start("forgotten", 2, &on(&nats));
    let mut there = Listener::open(&nodes[1].site, Kind::Events, "news", "now").expect("it listens");
    there.next();
    let seen = nodes[0].tell("news", "seen");
    for data in ["one", "two"] {
        nodes[0].tell("news", data);
    }
    assert!(["seen", "one", "two"].into_iter().all(|data| there.data() == data));
    let (head, body) = ask(&nodes[0].site, "DELETE", "news", "", "").expect("it answers");
    assert!(head.starts_with("HTTP/1.1 204 ") && body.is_empty(), "{head}{body}");
    let (_, body) = ask(&nodes[0].site, "GET", "news?since=all&wait=0&as=json", "", "").expect("it answers");
    assert!(!body.contains("one"), "at once: {body}");
    nodes[0].tell("news", "three");
    assert_eq!(there.data(), "three", "it had seen everything");
    for node in &nodes {
        let mut back = Listener::open(&node.site, Kind::Events, "news", &seen).expect("it listens");
        let gap = std::iter::repeat_with(|| back.next()).find(|told| !matches!(told, Told::At(_)));
        assert!(matches!(gap, Some(Told::Gap(_))), "{gap:?}");
        assert_eq!(back.data(), "three");
    }
}

#[test]
fn a_nats_that_is_slow_is_waited_for_and_one_that_is_too_slow_is_an_outage() {
    let nats = Nats::start("slow", &[]);
    let link = Link::to(&address(&nats));
    let node = Node::start("slow", &format!("nats = \"nats://{}\"\npublish_time = \"10s\"", link.address));
    let mut events = Listener::open(&node.site, Kind::Events, "news", "now").expect("it listens");
    events.next();
    link.slow_down(Duration::from_millis(200));
    let publish = |key: &str| publish(&node.site, "news", key, key).expect("it answers");
    assert!(matches!(publish("slow"), Answer::Stored(_, false)));
    assert_eq!(events.data(), "slow");

    link.slow_down(Duration::from_secs(600));
    assert_eq!(publish("slower"), Answer::Later);
    link.mend();
    // The message was stored in the end, although the node did not know it. The repeated publish is recognized by its key.
    assert_eq!(events.data(), "slower");
    assert!(matches!(publish("slower"), Answer::Stored(_, true)));
    assert!(matches!(publish("after"), Answer::Stored(_, false)));
    assert_eq!(events.data(), "after", "and comes once");
}

#[test]
fn a_stream_that_is_full_refuses_publishers_until_there_is_room() {
    let nats = Nats::start("no-room", &[]);
    let stream = json!({ "name": "encke", "subjects": ["encke.m.>"], "max_msgs": 2, "discard": "new" });
    let made = api(&nats, "STREAM.CREATE.encke", &stream).expect("it answers");
    assert!(made["error"].is_null(), "{made}");
    let node = Node::start("no-room", &on(&nats));
    let mut events = Listener::open(&node.site, Kind::Events, "news", "now").expect("it listens");
    events.next();
    let say = |data: &str| ask(&node.site, "POST", "news", "", data).expect("it answers").0;
    for data in ["one", "two"] {
        assert!(say(data).starts_with("HTTP/1.1 201 "));
        assert_eq!(events.data(), data);
    }
    let told = say("three");
    assert!(told.starts_with("HTTP/1.1 507 "), "{told}");
    api(&nats, "STREAM.PURGE.encke", &json!({})).expect("it answers");
    assert!(say("four").starts_with("HTTP/1.1 201 "));
    assert_eq!(events.data(), "four", "who had seen what went has lost nothing");
}

#[test]
fn a_nats_that_lets_nobody_in_any_more_is_an_outage_and_no_end() {
    let folder = Folder::new("password");
    let password =
        |word: &str| folder.write("nats.conf", &format!("authorization {{ user: encke, password: {word} }}"));
    let settings = password("right");
    let mut nats = Nats::start("password", &["-c", &settings]);
    let mut node = Node::start("password", &format!("{}\nuser = \"encke\"\npassword = \"right\"", on(&nats)));
    let mut events = Listener::open(&node.site, Kind::Events, "news", "now").expect("it listens");
    events.next();

    nats.stop();
    password("wrong");
    nats.run();
    node.running.error_with("is unreachable");
    assert_eq!(publish(&node.site, "news", "a", "a").expect("it answers"), Answer::Later);
    events.heartbeat();

    nats.stop();
    password("right");
    nats.run();
    node.running.error_with("is reachable again");
    node.tell("news", "a");
    assert_eq!(events.data(), "a");
}

#[test]
fn nats_is_spoken_to_by_tls_and_only_if_its_certificate_is_good() {
    let folder = Folder::new("nats-tls");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("randomness");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let authority = folder.write("authority.pem", &issuer.pem());
    let key = KeyPair::generate().expect("randomness");
    let host = own_host();
    let params = CertificateParams::new(vec![host.clone()]).expect("an address");
    let cert = folder.write("cert.pem", &params.signed_by(&key, &issuer).expect("a certificate").pem());
    let key = folder.write("key.pem", &key.serialize_pem());
    let nats = Nats::start_at(host, "tls", &["--tls", "--tlscert", &cert, "--tlskey", &key]);

    // The server requires TLS whatever the scheme says.
    for scheme in ["tls", "nats"] {
        let url = format!("{scheme}://{}", address(&nats));
        let node = Node::start(&format!("tls-{scheme}"), &format!("nats = {url:?}\nca = {authority:?}"));
        let mut events = Listener::open(&node.site, Kind::Events, "news", "now").expect("it listens");
        events.next();
        node.tell("news", scheme);
        assert_eq!(events.data(), scheme);
    }
    folder.write("public/index.html", "hello");
    let file = folder.write(
        "encke.toml",
        &format!("[[site]]\nroot = \"public\"\n[cluster]\nnats = \"tls://{}\"\n", address(&nats)),
    );
    let refused = encke()
        .args(["serve", "-l", "127.0.0.1:0", "--admin", "off", "-c", &file])
        .stdout(Stdio::null())
        .output();
    let refused = refused.expect("the program starts");
    assert_ne!(refused.status.code(), Some(0));
    assert!(text(&refused.stderr).contains("certificate"), "{}", text(&refused.stderr));
}
