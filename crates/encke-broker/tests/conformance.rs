//! Cases that hold for every broker: memory alone, a store on disk, or a NATS stream.
//!
//! Each case runs on all three: a sequencer with its broker, and two workers whose hubs serve subscribers. Brokers differ in
//! the history they offer and in their guarantees after a kill; a case states such differences.
#![cfg(feature = "nats")]

mod node;
mod server;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke_broker::Store;
use encke_broker::nats::{ClusterConfig, NatsEngine};
use encke_broker::sim::Disk;
use encke_hub::{
    ChannelRules, ClusterEvent, Deletion, Delivery, DeliveryContent, Draft, Encoder, Epoch, FeedRequest,
    Flags, Form, Gap, GapReason, Hub, HubNow, IdempotencyKey, Name, NodeId, Once, Position, Positions,
    PublishError, PublishTicket, Publishing, Rules, Run, Sequencer, Since, Subscribe, SubscriberId,
};
use node::Hand;
use server::Nats;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const CORES: usize = 2;
const LARGEST: usize = 1_000;

/// Runs a case on each broker.
fn on_each(name: &str, case: impl Fn(&mut Node)) {
    println!("{name}: memory");
    case(&mut Node::start(Broker::Memory));
    println!("{name}: a disk");
    case(&mut Node::start(Broker::Disk { store: None, disk: Disk::default() }));
    println!("{name}: NATS");
    let nats = Nats::start(&format!("conformance-{name}"), &[]);
    case(&mut Node::start(Broker::Nats { engine: None, nats }));
}

// ── Cases ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn a_message_comes_to_all_who_listen_once_and_in_the_order_of_ids() {
    on_each("order", |node| {
        let listeners = [0, 1, 0].map(|core| node.listen(core, &["a", "b/c.d"], Since::Now));
        let ids: Vec<Position> = (0..20)
            .map(|number| node.publish(draft(["a", "b/c.d"][number % 2], &number.to_string())))
            .collect();
        assert!(ids.windows(2).all(|pair| pair[0].offset < pair[1].offset && pair[0].epoch == pair[1].epoch));
        let all: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for listener in listeners {
            assert_eq!(node.hears(listener, 20), all);
            assert_eq!(node.listeners[&listener].position, ids.last().map(|last| (*last).into()));
        }
    });
}

#[test]
fn a_message_comes_as_it_was_published() {
    on_each("content", |node| {
        let listener = node.listen(0, &["a"], Since::Now);
        node.publish(Draft { data: b"\0\xff\n".as_slice().into(), ..draft("a", "") });
        node.publish(draft("a", ""));
        node.publish(Draft {
            content_type: Some("text/x; charset=\"utf-8\"".into()),
            event: Some("märz".into()),
            flags: Flags::KEY_FRAME.with(Flags::CONTROL),
            ..draft("a", "x")
        });
        let labels = format!("märz text/x; charset=\"utf-8\" {} x", Flags::KEY_FRAME.bits());
        assert_eq!(node.hears(listener, 3), ["\\x00\\xff\\n", "", &labels]);
    });
}

#[test]
fn who_comes_back_by_an_id_gets_what_came_since_and_nothing_else() {
    on_each("resume", |node| {
        let ids: Vec<Position> =
            (0..6).map(|number| node.publish(draft(["a", "b"][number % 2], &number.to_string()))).collect();
        for (seen, id) in ids.iter().enumerate() {
            let rest: Vec<String> =
                (seen + 1..6).filter(|number| number % 2 == 0).map(|n| n.to_string()).collect();
            let listener = node.listen(seen % CORES, &["a"], Since::After((*id).into()));
            assert_eq!(node.hears(listener, rest.len()), rest);
            let both = node.listen(seen % CORES, &["a", "b"], Since::After((*id).into()));
            assert_eq!(node.hears(both, 5 - seen).len(), 5 - seen);
            for listener in [listener, both] {
                assert_eq!(node.listeners[&listener].gap, None);
                node.leave(listener);
            }
        }
    });
}

#[test]
fn what_a_channel_keeps_no_more_is_a_gap_unless_a_stream_has_it() {
    on_each("gaps", |node| {
        let ids: Vec<Position> =
            (0..6).map(|number| node.publish(draft("short/a", &number.to_string()))).collect();
        let late = node.listen(0, &["short/a"], Since::After(ids[1].into()));
        if matches!(node.broker, Broker::Nats { .. }) {
            assert_eq!(node.hears(late, 4), ["2", "3", "4", "5"]);
            assert_eq!(node.listeners[&late].gap, None);
        } else {
            assert_eq!(node.hears(late, 3), ["3", "4", "5"]);
            let gap = node.listeners[&late].gap.clone().expect("one is missing");
            assert_eq!((gap.from, gap.to, gap.reason), (ids[1].into(), ids[2].into(), GapReason::Away));
        }
        let in_time = node.listen(1, &["short/a"], Since::After(ids[2].into()));
        assert_eq!(node.hears(in_time, 3), ["3", "4", "5"]);
        assert_eq!(node.listeners[&in_time].gap, None);
    });
}

#[test]
fn who_was_away_for_many_messages_gets_them_run_by_run_where_a_stream_has_them() {
    on_each("far", |node| {
        let others = node.listen(1, &["short/a", "short/b"], Since::Now);
        let first = node.publish(draft("short/a", "first"));
        let all: Vec<String> = (0..400).map(|number| number.to_string()).collect();
        for (number, data) in all.iter().enumerate() {
            node.publish(draft(["short/a", "short/b"][number % 2], data));
            node.turn();
        }
        assert_eq!(node.hears(others, 401)[1..], all);
        if !matches!(node.broker, Broker::Nats { .. }) {
            return;
        }
        // Several subscribers at the same position, on several workers, of one channel and of both.
        let both =
            [0, 1, 0].map(|core| node.listen(core, &["short/a", "short/b"], Since::After(first.into())));
        let one = [0, 1].map(|core| node.listen(core, &["short/b"], Since::After(first.into())));
        let odd: Vec<String> = all.iter().skip(1).step_by(2).cloned().collect();
        for (listener, expected) in both.map(|one| (one, &all)).into_iter().chain(one.map(|one| (one, &odd)))
        {
            assert_eq!(node.hears(listener, expected.len()), *expected);
            assert_eq!(node.listeners[&listener].gap, None);
        }
        node.publish(draft("short/b", "last"));
        for listener in both.into_iter().chain(one) {
            node.until("heard", |node| {
                node.listeners[&listener].messages.last().is_some_and(|one| one == "last")
            });
        }
    });
}

#[test]
fn what_was_forgotten_is_told_to_nobody_and_as_a_gap_to_who_has_not_seen_it() {
    on_each("forgotten", |node| {
        node.forget("a");
        let ids: Vec<Position> = (0..5).map(|number| node.publish(draft("a", &number.to_string()))).collect();
        let there = node.listen(0, &["a"], Since::After(ids[4].into()));
        let other = node.listen(1, &["b"], Since::Now);
        node.publish(draft("b", "stays"));
        node.forget("a");
        let after = node.publish(draft("a", "5"));
        assert_eq!(node.hears(there, 1), ["5"]);
        assert_eq!(node.listeners[&there].gap, None, "it had seen everything");
        assert_eq!(node.hears(other, 1), ["stays"]);
        for core in [0, 1] {
            let behind = node.listen(core, &["a"], Since::After(ids[1].into()));
            assert_eq!(node.hears(behind, 1), ["5"]);
            let gap = node.listeners[&behind].gap.clone().expect("three are missing");
            assert_eq!((gap.from, gap.to, gap.reason), (ids[1].into(), ids[4].into(), GapReason::Away));
            let in_time = node.listen(core, &["a"], Since::After(ids[4].into()));
            assert_eq!(node.hears(in_time, 1), ["5"]);
            assert_eq!(node.listeners[&in_time].gap, None);
            let all = node.listen(core, &["a", "b"], Since::All);
            assert_eq!(node.hears(all, 2), ["stays", "5"]);
        }
        // Also on a node that starts later.
        node.is_killed();
        if !matches!(node.broker, Broker::Memory) {
            let behind = node.listen(0, &["a"], Since::After(ids[1].into()));
            assert_eq!(node.hears(behind, 1), ["5"]);
            assert_eq!(node.listeners[&behind].gap.clone().map(|gap| gap.to), Some(ids[4].into()));
            assert_eq!(node.listeners[&behind].position, Some(after.into()));
        }
    });
}

#[test]
fn a_channel_is_the_same_when_somebody_comes_after_nobody_was_there_for_long() {
    on_each("linger", |node| {
        let first = node.listen(0, &["a"], Since::Now);
        let id = node.publish(draft("a", "1"));
        node.hears(first, 1);
        node.leave(first);
        node.publish(draft("a", "2"));
        // Long enough for a worker to release the channel, but too short for messages to expire.
        node.mono_ns += 60_000_000_000;
        node.turn();
        node.publish(draft("a", "3"));
        let second = node.listen(0, &["a"], Since::After(id.into()));
        assert_eq!(node.hears(second, 2), ["2", "3"]);
        assert_eq!(node.listeners[&second].gap, None);
    });
}

#[test]
fn a_key_makes_a_publish_happen_once_in_its_channel() {
    on_each("keys", |node| {
        let listener = node.listen(0, &["a", "b"], Since::Now);
        let keyed = |channel: &str, data: &str, publisher| Draft {
            key: Some(IdempotencyKey { publisher, key: "k".into() }),
            ..draft(channel, data)
        };
        let first = node.send(keyed("a", "1", 1)).expect("taken");
        assert!(!first.repeated);
        let again = node.send(keyed("a", "1", 1)).expect("taken");
        assert_eq!((again.position, again.repeated), (first.position, true));
        assert_eq!(node.send(keyed("a", "2", 1)).err(), Some(PublishError::KeyMismatch));
        assert!(!node.send(keyed("b", "3", 1)).expect("another channel").repeated);
        assert!(!node.send(keyed("a", "4", 2)).expect("another publisher").repeated);
        assert_eq!(node.hears(listener, 3), ["1", "3", "4"]);
    });
}

#[test]
fn what_is_refused_is_not_published() {
    on_each("refused", |node| {
        let listener = node.listen(0, &["a"], Since::Now);
        for (wrong, refusal) in [
            (
                draft("a", &"x".repeat(LARGEST + 1)),
                PublishError::TooLarge { bytes: LARGEST + 1, most: LARGEST },
            ),
            (Draft { event: Some("encke.join".into()), ..draft("a", "") }, PublishError::ReservedEvent),
            (Draft { event: Some("a\nb".into()), ..draft("a", "") }, PublishError::BadEvent),
            (Draft { content_type: Some("".into()), ..draft("a", "") }, PublishError::BadType),
        ] {
            assert_eq!(node.send(wrong).err(), Some(refusal));
        }
        node.publish(draft("a", &"x".repeat(LARGEST)));
        assert_eq!(node.hears(listener, 1), ["x".repeat(LARGEST)]);
    });
}

#[test]
fn many_messages_on_their_way_at_once_keep_their_order() {
    on_each("many", |node| {
        let listener = node.listen(1, &["a"], Since::Now);
        let tickets: Vec<Publishing> = (0..300)
            .map(|number| node.sequencer.publish(node.now(), draft("a", &number.to_string())).expect("taken"))
            .collect();
        let ids: Vec<u64> =
            tickets.into_iter().map(|one| node.placed(one).expect("taken").position.offset).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        let all: Vec<String> = (0..300).map(|number| number.to_string()).collect();
        assert_eq!(node.hears(listener, 300), all);
    });
}

#[test]
fn what_was_acknowledged_survives_a_kill_where_that_is_promised_and_is_told_as_lost_where_not() {
    on_each("killed", |node| {
        let ids: Vec<Position> = (0..3).map(|number| node.publish(draft("a", &number.to_string()))).collect();
        node.is_killed();
        let after = node.publish(draft("a", "3"));
        let listener = node.listen(0, &["a"], Since::After(ids[0].into()));
        if matches!(node.broker, Broker::Memory) {
            assert_eq!(node.hears(listener, 1), ["3"]);
            assert_eq!(node.listeners[&listener].gap.as_ref().map(|gap| gap.reason), Some(GapReason::Epoch));
        } else {
            assert!(after.epoch == ids[2].epoch && after.offset > ids[2].offset);
            assert_eq!(node.hears(listener, 3), ["1", "2", "3"]);
            assert_eq!(node.listeners[&listener].gap, None);
        }
    });
}

// ── A node ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/// The broker under test; [`Broker::start`] creates its running parts.
enum Broker {
    Memory,
    Disk { store: Option<Store>, disk: Disk },
    Nats { engine: Option<(NatsEngine, Receiver<Vec<ClusterEvent>>)>, nats: Nats },
}

impl Broker {
    /// Starts one run of the broker, and returns its sequencer.
    fn start(&mut self, life: u64) -> Sequencer {
        let fresh = Epoch(life);
        let now = HubNow { mono_ns: 1, unix_ms: 1 };
        match self {
            Self::Memory => Sequencer::new(fresh, rules(false), CORES),
            Self::Disk { store, disk } => {
                let (opened, found) =
                    Store::open_by(Path::new("a disk"), disk.opener(), fresh).expect("a store that is whole");
                *store = Some(opened);
                Sequencer::restore(now, found.saved, found.ceiling, rules(true), CORES)
            }
            Self::Nats { engine, nats } => {
                let joined = NatsEngine::join(cluster(nats)).unwrap_or_else(|error| panic!("{error}"));
                let (tell, news) = channel();
                joined.begin(Arc::new(Hand(Mutex::new(tell))));
                let sequencer = Sequencer::follow(joined.epoch, joined.newest, rules(false), CORES);
                *engine = Some((joined, news));
                sequencer
            }
        }
    }

    /// Kills the running parts, without a planned end.
    fn is_killed(&mut self) {
        match self {
            Self::Memory => {}
            Self::Disk { store, disk } => {
                *store = None;
                disk.restart(|| true);
            }
            Self::Nats { engine, .. } => *engine = None,
        }
    }
}

fn cluster(nats: &Nats) -> ClusterConfig {
    ClusterConfig { memory: true, patience: PATIENCE, node: NodeId(1), ..node::cluster(nats) }
}

fn rules(durable: bool) -> Arc<Rules> {
    let mut rules = Rules::default();
    rules.message_bytes = LARGEST;
    rules.default = ChannelRules { durable, messages: 1_000, ..ChannelRules::default() };
    let short = ChannelRules { messages: 3, ..rules.default };
    rules.set("short/*".parse().expect("a pattern"), short);
    Arc::new(rules)
}

struct Node {
    broker: Broker,
    sequencer: Sequencer,
    hubs: Vec<Hub>,
    listeners: HashMap<u64, Listener>,
    /// Outcomes of publishes.
    fates: HashMap<PublishTicket, Result<encke_hub::Published, PublishError>>,
    mono_ns: u64,
    lives: u64,
    keys: u64,
}

/// A subscriber, and the messages it received.
struct Listener {
    core: usize,
    id: SubscriberId,
    started: bool,
    messages: Vec<String>,
    position: Option<Positions>,
    gap: Option<Box<Gap>>,
}

impl Node {
    fn start(mut broker: Broker) -> Self {
        let sequencer = broker.start(1);
        let mut node = Self {
            broker,
            sequencer,
            hubs: Vec::new(),
            listeners: HashMap::new(),
            fates: HashMap::new(),
            mono_ns: 1,
            lives: 1,
            keys: 0,
        };
        node.open();
        node
    }

    fn open(&mut self) {
        let epoch = self.sequencer.newest().epoch;
        let mut rules = Rules::clone(&rules(false));
        rules.recalls = matches!(self.broker, Broker::Nats { .. });
        let rules = Arc::new(rules);
        self.hubs = (0..CORES).map(|core| Hub::new(core, epoch, Arc::clone(&rules))).collect();
    }

    /// Kills the node without a planned end, and starts it again.
    fn is_killed(&mut self) {
        self.broker.is_killed();
        self.lives += 1;
        self.sequencer = self.broker.start(self.lives);
        self.listeners.clear();
        self.fates.clear();
        self.open();
    }

    fn now(&self) -> HubNow {
        HubNow { mono_ns: self.mono_ns, unix_ms: 1_000 }
    }

    /// Publishes a draft, and returns its id.
    fn publish(&mut self, draft: Draft) -> Position {
        self.send(draft).expect("taken").position
    }

    /// Publishes a draft, and returns the outcome.
    fn send(&mut self, draft: Draft) -> Result<encke_hub::Published, PublishError> {
        let publishing = self.sequencer.publish(self.now(), draft)?;
        self.placed(publishing)
    }

    fn placed(&mut self, publishing: Publishing) -> Result<encke_hub::Published, PublishError> {
        match publishing {
            Publishing::Done(published) => Ok(published),
            Publishing::Queued { .. } => panic!("no broker here has a queue"),
            Publishing::Waits(ticket) => {
                self.until("answered", |node| node.fates.contains_key(&ticket));
                self.fates.remove(&ticket).expect("it is there")
            }
        }
    }

    /// Deletes a channel.
    fn forget(&mut self, channel: &str) {
        let waits = match &self.broker {
            Broker::Nats { .. } => Some(self.sequencer.forget(&name(channel)).expect("taken")),
            Broker::Memory | Broker::Disk { .. } => match self.sequencer.delete(&name(channel)) {
                Deletion::Waits(ticket) => Some(Publishing::Waits(ticket)),
                Deletion::Absent | Deletion::Done => None,
            },
        };
        if let Some(waits) = waits {
            let to = self.placed(waits).expect("forgotten").position.offset;
            self.until("followed", |node| node.sequencer.newest().offset >= to);
        }
    }

    /// Adds a subscriber, and waits until it has started. Returns its key.
    fn listen(&mut self, core: usize, channels: &[&str], since: Since) -> u64 {
        self.keys += 1;
        let key = self.keys;
        let subscribe = Subscribe {
            channels: channels.iter().map(|channel| name(channel)).collect(),
            since,
            form: Form(0),
            once: Once::Never,
            key,
            member: None,
        };
        let now = self.now();
        let id = self.hubs[core].subscribe(now, subscribe).expect("within limits");
        let (messages, position, gap) = (Vec::new(), None, None);
        self.listeners.insert(key, Listener { core, id, started: false, messages, position, gap });
        self.until("started", |node| node.listeners[&key].started);
        key
    }

    fn leave(&mut self, key: u64) {
        let listener = self.listeners.remove(&key).expect("it is there");
        self.hubs[listener.core].leave(listener.id);
    }

    /// Waits until a subscriber has `count` messages, and returns them, with any that follow within three turns.
    fn hears(&mut self, key: u64, count: usize) -> Vec<String> {
        self.until("heard", |node| node.listeners[&key].messages.len() >= count);
        for _ in 0..3 {
            self.turn();
        }
        self.listeners[&key].messages.clone()
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..1_000 {
            let goes_on = self.turn();
            if holds(self) {
                return;
            }
            if !goes_on && let Broker::Nats { engine: Some((engine, news)), .. } = &self.broker {
                let news = news.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("never {what}"));
                engine.taken();
                self.take(news);
            }
        }
        panic!("never {what}");
    }

    fn take(&mut self, news: Vec<ClusterEvent>) {
        for news in news {
            self.fates.extend(self.sequencer.on_event(news));
        }
    }

    /// Runs all pending work without waiting. Returns whether more may be pending.
    fn turn(&mut self) -> bool {
        self.mono_ns += 1_000_000;
        let now = self.now();
        for (core, hub) in self.hubs.iter_mut().enumerate() {
            let mut requests: Vec<FeedRequest> = Vec::new();
            hub.take_requests(&mut requests);
            requests.into_iter().for_each(|request| self.sequencer.apply(now, core, request));
        }
        match &mut self.broker {
            Broker::Memory => {}
            Broker::Disk { store, .. } => {
                if let Some(commit) = self.sequencer.take_commit(now) {
                    let store = store.as_mut().expect("it runs");
                    store.commit(&commit).expect("a disk that is well");
                    self.fates.extend(self.sequencer.committed(now, Ok(())));
                }
            }
            Broker::Nats { engine, .. } => {
                let (engine, _) = engine.as_ref().expect("it runs");
                let mut errands = Vec::new();
                self.sequencer.take_commands(&mut errands);
                errands.into_iter().for_each(|errand| engine.run(errand));
            }
        }
        let mut out = Vec::new();
        for (core, hub) in self.hubs.iter_mut().enumerate() {
            let mut feeds = Vec::new();
            self.sequencer.take_feed(core, 1_000, &mut feeds);
            feeds.into_iter().for_each(|feed| hub.feed(now, feed));
            hub.slice(now, 1_000, &mut Plain, &mut out);
        }
        self.sequencer.expire(now);
        let mut requests: Vec<(usize, FeedRequest)> = Vec::new();
        for (core, hub) in self.hubs.iter_mut().enumerate() {
            let mut asked = Vec::new();
            hub.take_requests(&mut asked);
            requests.extend(asked.into_iter().map(|request| (core, request)));
        }
        let goes_on = !out.is_empty() || !requests.is_empty();
        requests.into_iter().for_each(|(core, request)| self.sequencer.apply(now, core, request));
        for Delivery { key, what, .. } in out {
            let Some(listener) = self.listeners.get_mut(&key) else { continue };
            match what {
                DeliveryContent::Started { position, gap } => {
                    listener.started = true;
                    listener.position = Some(position);
                    listener.gap = gap;
                }
                DeliveryContent::Bytes(bytes) => {
                    let text = String::from_utf8(bytes.to_vec()).expect("as it was encoded");
                    let (position, messages) = text.split_once('\n').expect("a line");
                    let (gap, position) = position.rsplit_once(' ').unwrap_or(("", position));
                    if let Some((from, to)) = gap.split_once(' ') {
                        let at = |text: &str| text.parse().expect("a position");
                        let (from, to) = (at(from), at(to));
                        listener.gap = Some(Box::new(Gap { from, to, reason: GapReason::Away }));
                    }
                    listener.position = position.parse().ok();
                    listener.messages.extend(messages.lines().map(str::to_owned));
                }
                other => panic!("nobody polls, and nobody is late: {other:?}"),
            }
            self.hubs[listener.core].sent(listener.id);
        }
        goes_on
    }
}

/// Encodes runs for the test: the gap, if there is one, the position, and a line for each message.
struct Plain;

impl Encoder for Plain {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        if let Some(Gap { from, to, reason }) = run.gap {
            assert_eq!(*reason, GapReason::Away, "nobody is late");
            out.extend(format!("{from} {to} ").bytes());
        }
        out.extend(format!("{}\n", run.position).bytes());
        for message in run.messages {
            for label in [&message.event, &message.content_type].into_iter().flatten() {
                out.extend(format!("{label} ").bytes());
            }
            if message.flags != Flags::default() {
                out.extend(format!("{} ", message.flags.bits()).bytes());
            }
            out.extend(format!("{}\n", message.data.escape_ascii()).bytes());
        }
    }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).expect("a name")
}

fn draft(channel: &str, data: &str) -> Draft {
    Draft {
        channel: name(channel),
        data: data.as_bytes().into(),
        content_type: None,
        event: None,
        flags: Flags::default(),
        key: None,
    }
}
