//! Nodes of a cluster as processes, with the environment of a test.
//!
//! ```text
//!  Source ── numbered messages ─► Node ─┐                       ┌─► Nats (one, or a Trio)
//!  Crowd ◄── each once, in order ─ Node ┴─► Link (may be cut) ──┘
//! ```

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use encke_io::host::Signal;
use encke_io::testing::wait_for;

use crate::running::{Folder, Running, encke};

pub(crate) mod link;
pub(crate) mod listener;
pub(crate) mod nats;
pub(crate) mod random;

use listener::{Kind, Listener, Told};
use random::Random;

/// Settings of every node. A history ring holds all messages of a test, so every gap is a failure.
const SETTINGS: &str = r#"
[server]
drain_time = "2s"
[log]
access = "off"
[[site]]
root = "public"
[auth]
anonymous = ["publish", "subscribe", "manage"]
[push]
anonymous_rate = "off"
heartbeat = "1s"
retry = "1ms"
[[push.channel]]
pattern = "**"
messages = 10000
[cluster]
"#;

/// The last message of a [`Source`].
const LAST: &str = "the last";

/// A node that can be stopped and restarted at the same address.
pub(crate) struct Node {
    // Removed when the node is dropped.
    _folder: Folder,
    file: String,
    pub(crate) site: String,
    pub(crate) running: Running,
}

impl Node {
    /// Starts a node; `cluster` is the content of its `[cluster]` table.
    pub(crate) fn start(name: &str, cluster: &str) -> Self {
        let folder = Folder::new(name);
        folder.write("public/index.html", "hello");
        let file = folder.write("encke.toml", &format!("{SETTINGS}{cluster}\n"));
        let running = Running::start_alone(&["-c", &file]);
        Self { site: running.site.clone(), _folder: folder, file, running }
    }

    /// Publishes until the message is stored, with the message itself as key. Returns its id.
    pub(crate) fn tell(&self, channel: &str, data: &str) -> String {
        published(std::slice::from_ref(&self.site), channel, data, data)
    }

    /// Kills the process as `kill -9` does, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.running.kill();
    }

    /// Stops and restarts the node as an upgrade does.
    pub(crate) fn upgrade(&mut self) {
        self.running.signal(Signal::Terminate);
        let status = self.running.child.wait().expect("a child");
        assert!(status.success(), "{status}");
        self.again();
    }

    /// Restarts the node at its address.
    pub(crate) fn again(&mut self) {
        let arguments = ["serve", "-l", &self.site, "--admin", "127.0.0.1:0", "-w", "2", "-c", &self.file];
        self.running = Running::start_command(encke().args(arguments));
    }
}

/// Returns the addresses of nodes.
pub(crate) fn sites(nodes: &[Node]) -> Arc<[String]> {
    nodes.iter().map(|node| node.site.clone()).collect()
}

/// The result of a publish.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The message's id, and whether it had been stored before.
    Stored(String, bool),
    /// Retry later: 503 with `Retry-After`.
    Later,
}

/// Publishes with a key, so that the message can be published again after a 503.
pub(crate) fn publish(site: &str, channel: &str, key: &str, data: &str) -> io::Result<Answer> {
    let (head, body) = listener::ask(site, "POST", channel, &format!("Idempotency-Key: {key}\r\n"), data)?;
    let told: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let id = || told["id"].as_str().expect("an id").to_owned();
    match head.split(' ').nth(1) {
        Some("201") => Ok(Answer::Stored(id(), false)),
        Some("200") => Ok(Answer::Stored(id(), true)),
        Some("503") => {
            assert!(
                head.contains("\r\nRetry-After: "),
                "who is sent away is told for how long: {head}{body}"
            );
            Ok(Answer::Later)
        }
        _ => panic!("{key} is answered with {head}{body}"),
    }
}

/// Publishes until the message is stored, on any node. Returns its id. A failed attempt is repeated on the next node.
fn published(sites: &[String], channel: &str, key: &str, data: &str) -> String {
    let mut turns = sites.iter().cycle();
    wait_for(&format!("{key} is stored"), || {
        let site = turns.next().expect("there are nodes");
        match publish(site, channel, key, data) {
            Ok(Answer::Stored(id, _)) => Some(id),
            Ok(Answer::Later) | Err(_) => None,
        }
    })
}

/// Publishes numbered messages on all nodes in turn, on request, from a thread of its own.
pub(crate) struct Source {
    orders: Sender<usize>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Source {
    pub(crate) fn start(sites: &Arc<[String]>, name: &'static str) -> Self {
        let (orders, ordered) = channel::<usize>();
        let (tell, done) = channel();
        let sites = Arc::clone(sites);
        let thread = thread::spawn(move || {
            let mut number = 0;
            let mut say = |data: &str| {
                let first = number % sites.len();
                let turns: Vec<String> = sites[first..].iter().chain(&sites[..first]).cloned().collect();
                published(&turns, name, &format!("key-{number}"), data);
                number += 1;
            };
            for (begun, count) in ordered.iter().enumerate() {
                for one in 0..count {
                    say(&format!("{begun} {one}"));
                    let _gone = tell.send(());
                }
            }
            say(LAST);
        });
        Self { orders, done, thread }
    }

    /// Starts to publish `count` messages. Returns when the first half is stored; the rest follows in the background.
    pub(crate) fn begin(&self, count: usize) {
        self.orders.send(count).expect("it lives");
        self.wait(count / 2);
    }

    /// Waits until `count` more messages are stored.
    pub(crate) fn wait(&self, count: usize) {
        for _ in 0..count {
            self.done.recv().expect("it publishes whatever happens");
        }
    }

    /// Publishes the last message.
    pub(crate) fn end(self) {
        drop(self.orders);
        self.thread.join().expect("it publishes whatever happens");
    }
}

/// A moving subscriber changes its node once in this many messages, on average.
const MESSAGES_PER_HOP: u64 = 20;

/// Many subscribers, each on a node that accepts it, which resume by their ids.
pub(crate) struct Crowd(Vec<JoinHandle<Account>>);

/// The result of one subscriber.
#[derive(Debug)]
pub(crate) struct Account {
    kind: Kind,
    seen: Vec<String>,
    /// How often the subscriber had to reconnect.
    pub(crate) moves: usize,
}

impl Crowd {
    /// Opens one subscriber of each kind per node, and returns when all are subscribed.
    pub(crate) fn gather(sites: &Arc<[String]>, name: &'static str, kinds: &[Kind]) -> Self {
        Self::come(sites, name, kinds, || None)
    }

    /// Opens subscribers as [`Crowd::gather`] does, which also change their node at random.
    pub(crate) fn hop(
        sites: &Arc<[String]>,
        name: &'static str,
        kinds: &[Kind],
        random: &mut Random,
    ) -> Self {
        Self::come(sites, name, kinds, || Some(random.fork()))
    }

    fn come(
        sites: &Arc<[String]>,
        name: &'static str,
        kinds: &[Kind],
        mut mood: impl FnMut() -> Option<Random>,
    ) -> Self {
        let count = sites.len() * kinds.len();
        let (tell, ready) = channel();
        let mut threads = Vec::new();
        for first in 0..sites.len() {
            for &kind in kinds {
                let tell = tell.clone();
                let walk = Walk { sites: Arc::clone(sites), at: first, mood: mood() };
                let ready = move || tell.send(()).expect("everybody is waited for");
                threads.push(thread::spawn(move || listen(walk, name, kind, ready)));
            }
        }
        drop(tell);
        assert_eq!(ready.iter().take(count).count(), count, "all of them listen");
        Self(threads)
    }

    /// Waits until all subscribers have the last message. Checks that each has received the messages that a [`Source`]
    /// publishes for these orders, once and in order.
    pub(crate) fn settle(self, orders: &[usize]) -> Vec<Account> {
        let one = |(begun, count): (usize, &usize)| (0..*count).map(move |one| format!("{begun} {one}"));
        let due: Vec<String> = orders.iter().enumerate().flat_map(one).collect();
        let accounts: Vec<Account> =
            self.0.into_iter().map(|one| one.join().expect("told why above")).collect();
        for Account { kind, seen, moves } in &accounts {
            // The first difference is sufficient.
            let wrong = (0..due.len().max(seen.len())).find(|&at| due.get(at) != seen.get(at));
            let wrong = wrong.map(|at| (at, due.get(at), seen.get(at)));
            assert_eq!(wrong, None, "(place, due, seen) of {kind:?} after {moves} moves");
        }
        accounts
    }
}

/// The choice of nodes by a subscriber: round robin after failures only, or random at random times.
struct Walk {
    sites: Arc<[String]>,
    at: usize,
    mood: Option<Random>,
}

impl Walk {
    fn site(&self) -> &str {
        &self.sites[self.at]
    }

    fn go_on(&mut self) {
        let count = self.sites.len();
        self.at = match &mut self.mood {
            Some(random) => random.below(count as u64) as usize,
            None => (self.at + 1) % count,
        };
    }

    fn is_fed_up(&mut self) -> bool {
        self.mood.as_mut().is_some_and(|random| random.below(MESSAGES_PER_HOP) == 0)
    }
}

/// Receives until the last message.
fn listen(mut walk: Walk, channel: &str, kind: Kind, ready: impl FnOnce()) -> Account {
    let mut account = Account { kind, seen: Vec::new(), moves: 0 };
    let mut ready = Some(ready);
    let mut id = "now".to_owned();
    loop {
        let Ok(mut listener) = Listener::open(walk.site(), kind, channel, &id) else {
            walk.go_on();
            continue;
        };
        loop {
            match listener.next() {
                Told::At(position) => id = position,
                Told::Message { id: position, data } => {
                    id = position;
                    if data == LAST {
                        return account;
                    }
                    account.seen.push(data);
                    if walk.is_fed_up() {
                        break;
                    }
                }
                Told::Gap(text) => {
                    panic!("{kind:?} at {} since {id}: nothing was lost, and yet: {text}", walk.site())
                }
                Told::End => break,
            }
            if let Some(ready) = ready.take() {
                ready();
            }
        }
        account.moves += 1;
        walk.go_on();
    }
}
