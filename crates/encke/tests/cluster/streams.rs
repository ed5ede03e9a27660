//! Channels of several streams: a subscriber of all of them receives each in order, on any node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use crate::nodes::listener::{Kind, Listener, Told, ask};
use crate::nodes::nats::{Nats, api};
use crate::nodes::{Node, sites};
use serde_json::{Value, json};

/// Messages per channel.
const ROUNDS: usize = 90;
const CHANNELS: [&str; 2] = ["chat", "ticks/a"];

fn start(name: &str, nats: &Nats) -> Vec<Node> {
    let cluster = format!(
        "nats = {:?}\nage = \"1h\"\n[[cluster.streams]]\nname = \"ticks\"\nchannels = [\"ticks/**\"]\n\
         storage = \"memory\"\nage = \"10m\"\nbytes = \"64MiB\"",
        nats.url()
    );
    (0..2).map(|number| Node::start(&format!("{name}-{number}"), &cluster)).collect()
}

/// Subscribes to both channels, on another node after every few messages, until both have ended. Returns the messages by
/// channel, and the number of moves.
fn hops(sites: &[String], kind: Kind, ready: impl FnOnce()) -> (BTreeMap<String, Vec<String>>, usize) {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut id, mut moves, mut ready) = ("now".to_owned(), 0, Some(ready));
    for site in sites.iter().cycle() {
        let Ok(mut listener) = Listener::open(site, kind, &CHANNELS.join(","), &id) else { continue };
        let mut most = 5;
        while most > 0 {
            match listener.next() {
                Told::At(position) => id = position,
                Told::Message { id: position, data } => {
                    id = position;
                    assert_eq!(id.split(',').count(), 2, "{kind:?}: {id} says where it is in both streams");
                    // An event of a subscription to several channels is an envelope.
                    let envelope = serde_json::from_str::<Value>(&data).unwrap_or_default();
                    let data = envelope["data"].as_str().unwrap_or(&data);
                    let (channel, number) = data.split_once(' ').expect("a channel and a number");
                    seen.entry(channel.to_owned()).or_default().push(number.to_owned());
                    if seen.len() == 2
                        && seen.values().all(|seen| seen.last().is_some_and(|last| last == "end"))
                    {
                        return (seen, moves);
                    }
                    most -= 1;
                }
                Told::Gap(text) => panic!("{kind:?} at {site} since {id}: nothing was lost, and yet: {text}"),
                Told::End => break,
            }
            if let Some(ready) = ready.take() {
                ready();
            }
        }
        moves += 1;
    }
    unreachable!("sites go round")
}

#[test]
fn a_client_of_two_streams_hops_between_nodes_of_which_one_is_killed_and_misses_nothing() {
    let nats = Nats::start("streams", &[]);
    let mut nodes = start("streams", &nats);
    let sites = sites(&nodes);
    let (tell, ready) = std::sync::mpsc::channel();
    let clients: Vec<_> = [Kind::ALL, Kind::ALL]
        .concat()
        .into_iter()
        .map(|kind| {
            let (sites, tell) = (Arc::clone(&sites), tell.clone());
            thread::spawn(move || hops(&sites, kind, move || tell.send(()).expect("it is waited for")))
        })
        .collect();
    assert_eq!(ready.iter().take(clients.len()).count(), clients.len());
    for round in 0..ROUNDS {
        for channel in CHANNELS {
            let id = nodes[0].tell(channel, &format!("{channel} {round}"));
            assert_eq!(id.split(',').count(), 1, "a message has its place in one stream: {id}");
        }
        if round == ROUNDS / 3 {
            nodes[1].kill();
        }
        if round == ROUNDS * 2 / 3 {
            nodes[1].again();
        }
    }
    for channel in CHANNELS {
        nodes[0].tell(channel, &format!("{channel} end"));
    }
    let due: Vec<String> = (0..ROUNDS).map(|round| round.to_string()).chain(["end".to_owned()]).collect();
    for client in clients {
        let (seen, moves) = client.join().expect("told why above");
        for channel in CHANNELS {
            assert_eq!(seen[channel], due, "{channel}, after {moves} moves");
        }
        assert!(moves > 0);
    }

    // Each stream has the configured storage, and only its own messages.
    for (stream, storage) in [("encke", "file"), ("ticks", "memory")] {
        let every = json!({ "subjects_filter": ">" });
        let told = api(&nats, &format!("STREAM.INFO.{stream}"), &every).expect("it answers");
        assert_eq!(told["config"]["storage"], storage, "{told}");
        // Beacons belong to no channel.
        let subjects = told["state"]["subjects"].as_object().expect("each has some").iter();
        let channels = subjects.filter(|(subject, _)| !subject.ends_with(".$beacon"));
        let messages: u64 = channels.map(|(_, messages)| messages.as_u64().expect("a count")).sum();
        assert_eq!(messages, due.len() as u64, "{told}");
    }
}

#[test]
fn a_position_in_one_stream_is_a_gap_in_another_and_none_in_its_own() {
    let nats = Nats::start("one-of-two", &[]);
    let nodes = start("one-of-two", &nats);
    // A node keeps the messages of channels with subscribers.
    let _listener = Listener::open(&nodes[1].site, Kind::Socket, "chat,ticks/a", "now").expect("it listens");
    let chat = nodes[0].tell("chat", "one");
    let tick = nodes[0].tell("ticks/a", "two");
    let last = nodes[0].tell("chat", "three");
    let ask = |channels: &str, since: &str| -> Value {
        let target = format!("{channels}?since={since}&as=json&wait=20");
        let (head, body) = ask(&nodes[1].site, "GET", &target, "", "").expect("it answers");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}{body}");
        serde_json::from_str(&body).expect("JSON")
    };
    let data = |told: &Value| -> Vec<String> {
        let messages = told["messages"].as_array().expect("a list").iter();
        messages.map(|one| one["data"].as_str().expect("text").to_owned()).collect()
    };

    // A poll of fewer channels than its id has: the other positions are ignored.
    let both = format!("{tick},{chat}");
    let told = ask("chat", &both);
    assert_eq!((data(&told), &told["gap"]), (vec!["three".to_owned()], &Value::Null), "{told}");
    assert_eq!(told["next"], last.as_str());

    // A poll of more channels: the other stream starts with its history, with a gap. One poll returns messages of one stream.
    let mut since = chat;
    let (mut came, mut gaps) = (Vec::new(), Vec::new());
    while came.len() < 2 {
        let told = ask("chat,ticks/a", &since);
        came.extend(data(&told));
        gaps.push(told["gap"]["reason"].as_str().map(str::to_owned));
        told["next"].as_str().expect("an id").clone_into(&mut since);
    }
    came.sort();
    assert_eq!(came, ["three", "two"]);
    assert_eq!(gaps, [Some("epoch".to_owned()), None]);
    // The stream that was created first is served first.
    assert_eq!(since, format!("{last},{tick}"));
}
