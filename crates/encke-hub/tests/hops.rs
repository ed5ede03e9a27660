//! Clients that move between the nodes of a cluster miss nothing and receive nothing twice. A gap occurs only where the stream
//! has dropped messages, or a client has deleted them. In one of four worlds nodes do not backfill: there a gap may also cover
//! messages that the rings have dropped.
//!
//! A seed makes a world: a stream with one order, which drops its oldest messages at times, and two or three nodes. Each node
//! has a sequencer that follows its wanted channels, a hub, and an engine between the stream and the sequencer. The engine
//! delays commands and events, and starts and stops delivering a channel late. It loses responses, sends publishes twice, and
//! repeats messages after an outage. Nodes are killed. Clients connect, disconnect, and resume on any node with their last
//! position. `ENCKE_SEED=n` runs one
//! world, `ENCKE_SEEDS=n` runs n worlds.
//!
//! To show that the test finds faults, single lines were broken. The test found each at this seed:
//!
//! | fault | change | seed |
//! |---|---|---|
//! | messages repeated after an outage are delivered twice | `arrives` without its first condition | 10 |
//! | a history is put before a gap in the ring | `learn`, `if true` for its look at `lost_to` | 4 |
//! | a history counts as lost after any loss in the ring (false gaps) | `learn`, `lost_to == 0` | 9 |
//! | messages in both the ring and the history are delivered twice | `learn` without dropping | 1 |
//! | an incomplete history counts as complete | `learn`, `lost_to = 0` | 1 |
//! | a complete history counts as lost (false gaps) | `learn`, `lost_to.max(to)` | 60 |
//! | a channel opens before its history is loaded | `want` and `open` without a look at `reading` | 1 |
//! | the ring follows the first run of a backfill | `start` without `may_recall` | 3 |
//! | a loss in the stream before a run is omitted | `deliver_recalled` without `lost_to` | 9 |
//! | a run claims to reach farther than it does | `recalled`, `run.to + 1` | 3 |
//! | a gap covers messages that the stream has | `resume` without `recalls` | 3 |
//! | a tombstone does not cover messages purged before it arrives | `buries` without `lost_to` | 65 |
//! | a tombstone is delivered | `arrives` without `buries` | 1 |
//!
//! Other tests cover the rest. `spans.rs` checks that a loss is fed before later messages. Unit tests in
//! `src/sequencer/shared/tests.rs` and `src/hub/tests/reading.rs` check that losses and tombstones empty the rings. They also
//! check that a response to a removed subscriber does not reach another one.

mod world;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use encke_hub::{
    ChannelRules, ClusterCommand, ClusterEvent, Delivery, DeliveryContent, Draft, Encoder, Epoch,
    FeedRequest, Flags, Form, Hub, HubNow, Message, Name, Once, Overrun, Position, PublishAck, PublishError,
    PublishTicket, Publishing, Recalled, Rules, Run, Sequencer, Since, Subscribe, SubscriberId,
};

use world::{Counts, NOW, Random, Seeds, draft, turn_of_core};

const SEEDS: u64 = 2_000;
const STEPS: usize = 400;
const EPOCH: Epoch = Epoch(7);
const CHANNELS: [&str; 5] = ["a", "b", "short/a", "short/b", "skip/a"];
const CLIENTS: usize = 8;
/// The highest bit of the content marks a tombstone.
const TOMBSTONE: u64 = 1 << 63;

#[test]
fn whoever_hops_between_nodes_gets_everything_in_order_or_is_told_of_a_gap_that_is_one() {
    let seeds = Seeds::of(SEEDS);
    let mut sum = Tally::default();
    seeds.run(STEPS, |world: World| sum.add(&world.tally));
    println!("{sum:?}");
    seeds.assert_met(sum.named(CASES));
}

/// The events counted in all worlds.
#[derive(Clone, Copy)]
enum Case {
    Delivered,
    Hop,
    Gap,
    Overrun,
    Ahead,
    Cut,
    ToldAgain,
    LostBehind,
    Killed,
    Unanswered,
    Refused,
    Twice,
    Dropped,
    PastOfMany,
    WhileReading,
    LetGo,
    Recalled,
    RecalledTwice,
    NotNow,
    Forgotten,
    NotRemoved,
    PassedOver,
    PastBehind,
}

const CASES: [&str; 23] = [
    "a delivery",
    "a hop",
    "a gap",
    "an overrun",
    "an id ahead of its node",
    "a cut",
    "messages told again",
    "messages dropped before a node had them",
    "a killed node",
    "an answer that was lost",
    "a publish that was refused during a cut",
    "a publish that was sent twice",
    "a stream that drops messages",
    "a channel with more messages than its ring",
    "a message that comes while the past is read",
    "a channel that a node lets go of",
    "a run that was read from the stream",
    "one that reads a second run",
    "a run that could not be read now",
    "a channel that was forgotten",
    "a forgotten channel whose messages the stream still has",
    "a message that is not told because nobody wants it",
    "a message behind the asking that is part of the past",
];

type Tally = Counts<{ CASES.len() }>;

impl From<Case> for usize {
    fn from(case: Case) -> Self {
        case as Self
    }
}

struct World {
    seed: u64,
    random: Random,
    rules: Arc<Rules>,
    names: Vec<Name>,
    /// The channel and content of each message, by offset from 1. A tombstone has the highest bit set, and the offset up to
    /// which it deletes.
    stream: Vec<(usize, u64)>,
    /// The first offset still in the stream.
    first: u64,
    /// Offsets purged from the middle of the stream.
    removed: BTreeSet<u64>,
    /// The offset up to which each channel is deleted.
    forgotten: [u64; CHANNELS.len()],
    nodes: Vec<Node>,
    clients: Vec<Client>,
    published: u64,
    keys: u64,
    /// The clock of timers; messages have no age.
    mono_ns: u64,
    tally: Tally,
}

struct Node {
    sequencer: Sequencer,
    hub: Hub,
    requests: VecDeque<FeedRequest>,
    /// Commands for the engine, and events from it.
    errands: VecDeque<ClusterCommand>,
    news: VecDeque<ClusterEvent>,
    /// Channels that the engine should deliver, and channels that it delivers.
    wanted: [bool; CHANNELS.len()],
    told: [bool; CHANNELS.len()],
    /// Histories to read: ticket, channel, newest offset at the request, maximum number of messages.
    reads: VecDeque<(PublishTicket, usize, u64, usize)>,
    /// The next offset to deliver.
    next: u64,
    up: bool,
    /// The end of the last reported loss.
    lost_to: u64,
}

struct Client {
    channels: Vec<usize>,
    key: u64,
    /// The node of the connection, and the subscriber there.
    place: Option<(usize, SubscriberId)>,
    busy: bool,
    /// Whether this connection has received a delivery.
    started: bool,
    position: Option<u64>,
    /// Gaps up to this offset were received. With several channels the position may be lower.
    excused: u64,
}

impl world::World for World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut rules = Rules::default();
        let short = 1 + random.below(4) as usize;
        let base = ChannelRules::default();
        let mut set = |pattern: &str, one| rules.set(pattern.parse().expect("a pattern"), one);
        set("short/*", ChannelRules { messages: short, ..base });
        set("skip/*", ChannelRules { messages: short, policy: Overrun::Skip, ..base });
        rules.recalls = !seed.is_multiple_of(4);
        let rules = Arc::new(rules);
        let nodes = 2 + random.below(2);
        let names: Vec<Name> =
            CHANNELS.iter().map(|name| Name::parse(name.as_bytes()).expect("a name")).collect();
        let clients = (0..CLIENTS)
            .map(|_| {
                let one = random.below(CHANNELS.len() as u64) as usize;
                let other = random.below(CHANNELS.len() as u64) as usize;
                let channels = if one == other { vec![one] } else { vec![one, other] };
                Client {
                    channels,
                    key: 0,
                    place: None,
                    busy: false,
                    started: false,
                    position: None,
                    excused: 0,
                }
            })
            .collect();
        Self {
            seed,
            nodes: (0..nodes).map(|_| Node::new(0, &rules)).collect(),
            random,
            rules,
            names,
            stream: Vec::new(),
            first: 1,
            removed: BTreeSet::new(),
            forgotten: [0; CHANNELS.len()],
            clients,
            published: 0,
            keys: 0,
            mono_ns: NOW.mono_ns,
            tally: Tally::default(),
        }
    }

    fn step(&mut self) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(100) {
            0..22 => self.publishes(node),
            22..44 => self.engine_works(node),
            44..54 => {
                let proof = self.random.below(2) == 0;
                self.stream_flows(node, proof);
            }
            54..56 => self.interest_changes(node),
            56..74 => self.hub_works(node),
            74..80 => self.some_write(),
            80..90 => self.connects(node),
            90..94 => self.is_cut(),
            94..96 => self.turns(node),
            96 => self.drops(),
            97 => self.forgets(node),
            98 if self.random.below(3) == 0 => self.is_killed(node),
            // Long enough for a hub to release an unused channel.
            _ => self.mono_ns += 16_000_000_000,
        }
    }

    /// Carries everything, with all clients connected. After that no client may lack a message.
    fn settle(&mut self) {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].up {
                self.turns(node);
            }
        }
        for _ in 0..2_000 {
            for node in 0..self.nodes.len() {
                self.engine_works(node);
                self.interest_changes(node);
                self.stream_flows(node, true);
                self.hub_works(node);
                self.connects(node);
            }
            self.some_write();
            if self.is_at_rest() {
                return;
            }
        }
        let at = |client: &Client| (client.place, client.channels.clone(), client.position);
        let clients: Vec<_> = self.clients.iter().map(at).collect();
        let node = |node: &Node| (node.sequencer.newest(), node.next, node.errands.len(), node.news.len());
        let nodes: Vec<_> = self.nodes.iter().map(node).collect();
        panic!("seed {}: no rest: {clients:?} {nodes:?} of {:?} from {}", self.seed, self.stream, self.first);
    }
}

impl World {
    fn publishes(&mut self, node: usize) {
        let channel = self.random.below(CHANNELS.len() as u64) as usize;
        self.published += 1;
        let draft = Draft {
            channel: self.names[channel].clone(),
            data: self.published.to_le_bytes().into(),
            content_type: None,
            event: None,
            flags: Flags::default(),
            key: None,
        };
        let up = self.nodes[node].sequencer.is_up();
        match self.nodes[node].sequencer.publish(NOW, draft) {
            Ok(Publishing::Waits(_)) => assert!(up, "seed {}", self.seed),
            Err(PublishError::Away) => {
                assert!(!up, "seed {}", self.seed);
                self.tally.count(Case::Refused);
            }
            other => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// Runs a random command of an engine, and may deliver an event.
    fn engine_works(&mut self, node: usize) {
        let mut errands = Vec::new();
        self.nodes[node].sequencer.take_commands(&mut errands);
        for errand in errands {
            let place = |channel: &Name| self.names.iter().position(|name| name == channel).expect("known");
            match errand {
                ClusterCommand::Read { ticket, channel, to, most } => {
                    self.nodes[node].wanted[place(&channel)] = true;
                    self.nodes[node].reads.push_back((ticket, place(&channel), to, most));
                }
                ClusterCommand::Release { channel } => {
                    self.nodes[node].wanted[place(&channel)] = false;
                    self.nodes[node].reads.retain(|(_, channel_of_it, ..)| *channel_of_it != place(&channel));
                }
                other => self.nodes[node].errands.push_back(other),
            }
        }
        let at = self.random.below(self.nodes[node].errands.len() as u64 + 1) as usize;
        let (up, publish) = (self.nodes[node].up, self.random.below(4));
        // Publishes may run during an outage; other commands wait for the connection.
        let runs = up || matches!(self.nodes[node].errands.get(at), Some(ClusterCommand::Publish { .. }));
        if let Some(errand) = runs.then(|| self.nodes[node].errands.remove(at)).flatten() {
            match errand {
                ClusterCommand::Publish { ticket, draft, number: _ } => {
                    let id = u64::from_le_bytes((*draft.data).try_into().expect("eight bytes"));
                    let channel = self.names.iter().position(|name| *name == draft.channel).expect("known");
                    let fate = if up && publish > 0 || !up && publish == 1 {
                        self.stream.push((channel, id));
                        let offset = self.stream.len() as u64;
                        if publish == 1 {
                            // The message is stored, but the response is lost.
                            self.tally.count(Case::Unanswered);
                            Err(PublishError::Unanswered)
                        } else {
                            if publish == 2 {
                                // The stream deduplicates the message by its number.
                                self.tally.count(Case::Twice);
                            }
                            Ok(PublishAck { offset, repeated: false })
                        }
                    } else {
                        Err(PublishError::Unanswered)
                    };
                    self.nodes[node].news.push_back(ClusterEvent::Placed { ticket, fate });
                }
                ClusterCommand::Recall { recall, .. } if publish == 0 => {
                    self.tally.count(Case::NotNow);
                    let run = Recalled::default();
                    self.nodes[node].news.push_back(ClusterEvent::Recalled { recall, run });
                }
                ClusterCommand::Recall { recall, channels, after, to } => {
                    let run = self.recalled(&channels, after, to);
                    self.nodes[node].news.push_back(ClusterEvent::Recalled { recall, run });
                }
                ClusterCommand::Forget { ticket, channel } => {
                    let place = self.buries(&channel, publish);
                    let fate = if up { Ok(place) } else { Err(PublishError::Unanswered) };
                    self.nodes[node].news.push_back(ClusterEvent::Placed { ticket, fate });
                }
                ClusterCommand::Read { .. } | ClusterCommand::Release { .. } => {
                    unreachable!("it was taken aside")
                }
                // Subscribers on other nodes do not affect the order.
                ClusterCommand::Tell(_) | ClusterCommand::Announce(_) => {}
            }
        }
        if self.random.below(3) == 0 {
            self.reads_past(node);
        }
        if self.random.below(2) == 0
            && let Some(news) = self.nodes[node].news.pop_front()
        {
            self.hears(node, news);
        }
    }

    /// Updates the channels that the engine delivers: the wanted ones, and some earlier ones.
    fn interest_changes(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        for (wanted, told) in node.wanted.iter().zip(&mut node.told).filter(|_| node.up) {
            *told = *wanted || *told && self.random.below(2) == 0;
        }
    }

    /// Reads a history up to the last delivered offset, if the engine delivers the channel from there on.
    fn reads_past(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        let Some((ticket, channel, asked, most)) = one.reads.pop_front() else { return };
        if !one.up || !one.told[channel] {
            return one.reads.push_back((ticket, channel, asked, most));
        }
        let to = one.sequencer.newest().offset.max(one.next - 1);
        if (asked..to).any(|offset| self.stream[offset as usize].0 == channel) {
            self.tally.count(Case::PastBehind);
        }
        let past = self.past(ticket, channel, to, most);
        self.nodes[node].news.push_back(past);
    }

    /// Reads the history of a channel: the newest messages up to an offset.
    fn past(&mut self, ticket: PublishTicket, channel: usize, to: u64, most: usize) -> ClusterEvent {
        let kept = (self.first..=to.min(self.stream.len() as u64)).filter(|offset| {
            self.stream[*offset as usize - 1].0 == channel && !self.removed.contains(offset)
        });
        let mut messages: Vec<Arc<Message>> = kept.map(|offset| self.message(offset)).collect();
        // A tombstone counts even if it was not delivered yet.
        let mut lost_to = (self.first - 1).max(self.forgotten[channel]).min(to);
        messages.retain(|message| message.offset > lost_to);
        if messages.len() > most {
            self.tally.count(Case::PastOfMany);
            let more = messages.len() - most;
            lost_to = messages[more - 1].offset;
            messages.drain(..more);
        }
        if self.stream[to.min(self.stream.len() as u64) as usize..].iter().any(|one| one.0 == channel) {
            self.tally.count(Case::WhileReading);
        }
        ClusterEvent::Past { ticket, channel: self.names[channel].clone(), to, lost_to, messages }
    }

    /// Reads some messages of channels after an offset.
    fn recalled(&mut self, channels: &[Name], after: u64, to: u64) -> Recalled {
        self.tally.count(Case::Recalled);
        let most = 1 + self.random.below(4) as usize;
        let lost_to = (self.first - 1).min(to);
        let kept = (after.max(lost_to) + 1..=to).filter(|offset| {
            let channel = &self.names[self.stream[*offset as usize - 1].0];
            channels.contains(channel) && !self.removed.contains(offset)
        });
        let mut messages: Vec<Arc<Message>> = kept.map(|offset| self.message(offset)).collect();
        let whole = messages.len() <= most;
        messages.truncate(most);
        let last = messages.last().map(|last| last.offset);
        if !whole {
            self.tally.count(Case::RecalledTwice);
        }
        let to = last.filter(|_| !whole).unwrap_or(to);
        Recalled { lost_to: if lost_to > after { lost_to } else { 0 }, to, messages, ..Recalled::default() }
    }

    /// Deletes a channel: publishes a tombstone, and may purge the messages before it.
    fn buries(&mut self, name: &Name, removes: u64) -> PublishAck {
        let channel = self.names.iter().position(|other| other == name).expect("known");
        let newest = self.stream.iter().rposition(|(other, _)| *other == channel);
        let to = newest.map_or(0, |newest| newest as u64 + 1);
        self.forgotten[channel] = to;
        self.stream.push((channel, TOMBSTONE | to));
        let offset = self.stream.len() as u64;
        self.tally.count(Case::Forgotten);
        if removes > 0 {
            self.removed.extend((1..=to).filter(|one| self.stream[*one as usize - 1].0 == channel));
        } else {
            self.tally.count(Case::NotRemoved);
        }
        PublishAck { offset, repeated: false }
    }

    fn forgets(&mut self, node: usize) {
        let channel = self.random.below(CHANNELS.len() as u64) as usize;
        let up = self.nodes[node].sequencer.is_up();
        let forgets = self.nodes[node].sequencer.forget(&self.names[channel]);
        assert_eq!(forgets.is_ok(), up, "seed {}", self.seed);
    }

    fn message(&self, offset: u64) -> Arc<Message> {
        let (channel, id) = self.stream[offset as usize - 1];
        if id & TOMBSTONE > 0 {
            let draft = Draft::tombstone(self.names[channel].clone(), id - TOMBSTONE);
            return Arc::new(Message::placed(offset, NOW.unix_ms, draft, true));
        }
        let draft = draft(self.names[channel].clone(), id.to_le_bytes().to_vec());
        Arc::new(Message::placed(offset, NOW.unix_ms, draft, false))
    }

    fn hears(&mut self, node: usize, news: ClusterEvent) {
        if let Some((_, Ok(published))) = self.nodes[node].sequencer.on_event(news) {
            assert_eq!(published.position.epoch, EPOCH);
        }
    }

    /// Delivers the next messages of the engine's channels to a node. With `proof`, the event covers the skipped messages after
    /// the last delivered one.
    fn stream_flows(&mut self, node: usize, proof: bool) {
        if !self.nodes[node].up {
            return;
        }
        if self.nodes[node].next < self.first {
            let to = self.first - 1;
            self.nodes[node].next = self.first;
            self.nodes[node].lost_to = to;
            self.tally.count(Case::LostBehind);
            self.hears(node, ClusterEvent::Lost { to });
        }
        let count = 1 + self.random.below(5);
        let from = self.nodes[node].next;
        let end = (from + count).min(self.stream.len() as u64 + 1);
        let told = self.nodes[node].told;
        let (come, passed): (Vec<u64>, Vec<u64>) =
            (from..end).partition(|offset| told[self.stream[*offset as usize - 1].0]);
        let to = if proof { end - 1 } else { come.last().copied().unwrap_or(from - 1) };
        if passed.first().is_some_and(|offset| *offset <= to) {
            self.tally.count(Case::PassedOver);
        }
        let there = come.into_iter().filter(|offset| !self.removed.contains(offset));
        let messages = there.map(|offset| self.message(offset)).collect();
        self.nodes[node].next = to + 1;
        self.hears(node, ClusterEvent::Messages { messages, to });
    }

    /// Carries requests to the sequencer, the feed to the hub, and deliveries to clients.
    fn hub_works(&mut self, node: usize) {
        let most = 1 + self.random.below(6) as usize;
        // If no message follows a loss, the head reports it to the worker.
        self.mono_ns += 300_000_000;
        let now = HubNow { mono_ns: self.mono_ns, ..NOW };
        let one = &mut self.nodes[node];
        let mut requests = Vec::new();
        one.hub.take_requests(&mut requests);
        one.requests.extend(requests);
        let feed = turn_of_core(&mut one.sequencer, now, one.requests.drain(..), most);
        feed.into_iter().for_each(|feed| one.hub.feed(now, feed));
        let channels = one.hub.channels();
        let mut out = Vec::new();
        one.hub.slice(now, most, &mut Plain, &mut out);
        let lets_go = one.hub.channels() < channels;
        if lets_go {
            self.tally.count(Case::LetGo);
        }
        for delivery in out {
            self.reads(node, delivery);
        }
    }

    fn some_write(&mut self) {
        for client in &mut self.clients {
            if client.busy
                && self.random.below(2) == 0
                && let Some((node, id)) = client.place
            {
                client.busy = false;
                self.nodes[node].hub.sent(id);
            }
        }
    }

    fn connects(&mut self, node: usize) {
        let at = self.random.below(CLIENTS as u64) as usize;
        if self.clients[at].place.is_some() {
            return;
        }
        self.keys += 1;
        let client = &mut self.clients[at];
        let since = match client.position {
            Some(offset) => Since::After(Position { epoch: EPOCH, offset }.into()),
            // With several channels, the history of one may start after the position.
            None if client.channels.len() > 1 => Since::Now,
            None => Since::All,
        };
        if client.position.is_some() {
            self.tally.count(Case::Hop);
        }
        if client.position.is_some_and(|offset| offset > self.nodes[node].sequencer.newest().offset) {
            self.tally.count(Case::Ahead);
        }
        (client.key, client.busy, client.started) = (self.keys, false, false);
        let subscribe = Subscribe {
            channels: client.channels.iter().map(|channel| self.names[*channel].clone()).collect(),
            since,
            form: Form(0),
            once: Once::Never,
            key: client.key,
            member: None,
        };
        let now = HubNow { mono_ns: self.mono_ns, ..NOW };
        let id = self.nodes[node].hub.subscribe(now, subscribe).expect("it is within limits");
        client.place = Some((node, id));
    }

    fn is_cut(&mut self) {
        let at = self.random.below(CLIENTS as u64) as usize;
        if let Some((node, id)) = self.clients[at].place.take() {
            self.nodes[node].hub.leave(id);
        }
    }

    /// Disconnects a node from the stream, or reconnects it. After that the stream may repeat messages.
    fn turns(&mut self, node: usize) {
        let up = !self.nodes[node].up;
        self.nodes[node].up = up;
        self.hears(node, if up { ClusterEvent::Up } else { ClusterEvent::Down });
        if up {
            let back = self.random.below(4).min(self.nodes[node].next - 1);
            if back > 0 {
                self.tally.count(Case::ToldAgain);
            }
            self.nodes[node].next -= back;
        } else {
            self.tally.count(Case::Cut);
        }
    }

    fn drops(&mut self) {
        let there = self.stream.len() as u64 + 1 - self.first;
        let count = self.random.below(4).min(there);
        if count > 0 {
            self.first += count;
            self.tally.count(Case::Dropped);
        }
    }

    fn is_killed(&mut self, node: usize) {
        self.tally.count(Case::Killed);
        self.nodes[node] = Node::new(self.stream.len() as u64, &self.rules);
        for client in self.clients.iter_mut().filter(|client| client.place.is_some_and(|(at, _)| at == node))
        {
            client.place = None;
        }
    }

    fn is_at_rest(&self) -> bool {
        self.clients.iter().all(|client| {
            client.started && !client.busy && client.place.is_some() && {
                let after = client.position.unwrap_or(0).max(client.excused) as usize;
                !self.stream[after.min(self.stream.len())..]
                    .iter()
                    .any(|(one, id)| id & TOMBSTONE == 0 && client.channels.contains(one))
            }
        })
    }

    // ── Deliveries ──────────────────────────────────────────────────────────────────────────────────────────────

    fn reads(&mut self, node: usize, delivery: Delivery) {
        let at = self.clients.iter().position(|client| client.place.is_some() && client.key == delivery.key);
        let at = at.expect("who is told something is there");
        let first = !std::mem::replace(&mut self.clients[at].started, true);
        match delivery.what {
            DeliveryContent::Started { position, gap } => {
                assert!(first);
                self.clients[at].busy = true;
                let gap = gap.and_then(|gap| gap.to.of(EPOCH));
                self.gets(at, node, position.of(EPOCH).expect("of this life"), gap, &[]);
            }
            DeliveryContent::Bytes(bytes) => {
                assert!(!first);
                self.clients[at].busy = true;
                let words: Vec<u64> = bytes
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                    .collect();
                let gap = words[1].checked_sub(1);
                let messages: Vec<(u64, u64)> =
                    words[2..].chunks_exact(2).map(|one| (one[0], one[1])).collect();
                self.gets(at, node, words[0], gap, &messages);
            }
            DeliveryContent::Overrun => {
                self.tally.count(Case::Overrun);
                self.clients[at].place = None;
            }
            DeliveryContent::Last(_) | DeliveryContent::Waiting => panic!("nobody polls"),
            DeliveryContent::Ended => panic!("no channel has a preamble"),
        }
    }

    /// Checks a delivery: messages up to a position, after a gap if there is one.
    fn gets(&mut self, at: usize, node: usize, to: u64, gap_to: Option<u64>, messages: &[(u64, u64)]) {
        let (seed, channels) = (self.seed, self.clients[at].channels.clone());
        let told = format!(
            "seed {seed}: client {at} of {channels:?} on {node}, gap {gap_to:?}: {messages:?} up to {to}"
        );
        let before = self.clients[at].position.replace(to);
        let Some(before) = before else {
            // The first messages were dropped while the client was queued.
            self.clients[at].excused = gap_to.unwrap_or(0);
            return;
        };
        assert!(to >= before, "{told}: behind {before}");
        let mut last = before;
        for (offset, id) in messages {
            assert!(*offset > last && *offset <= to, "{told}: out of order behind {before}");
            let (channel, content) = self.stream[*offset as usize - 1];
            let wanted = channels.contains(&channel) && content == *id && id & TOMBSTONE == 0;
            assert!(wanted, "{told}: another message");
            last = *offset;
            self.tally.count(Case::Delivered);
        }
        let excused = gap_to.unwrap_or(0).max(self.clients[at].excused);
        self.clients[at].excused = excused;
        for offset in before + 1..=to.min(self.stream.len() as u64) {
            let (channel, id) = self.stream[offset as usize - 1];
            // A stream may purge deleted messages before a node has received them or the tombstone. The node then delivers
            // later messages first.
            let untold = self.removed.contains(&offset);
            let wanted = channels.contains(&channel) && id & TOMBSTONE == 0 && !untold;
            let came = messages.iter().any(|(one, _)| *one == offset);
            assert!(!wanted || came || offset <= excused, "{told}: {offset} is missing behind {before}");
        }
        if let Some(gap_to) = gap_to {
            self.tally.count(Case::Gap);
            assert!(self.is_justified(node, &channels, before, gap_to), "{told}: no gap behind {before}");
        }
    }

    /// Returns whether messages after a position were dropped, by the stream or by the limits of a node.
    fn is_justified(&self, node: usize, channels: &[usize], before: u64, gap_to: u64) -> bool {
        let dropped_to = (self.first - 1).max(self.nodes[node].lost_to);
        if before < dropped_to && gap_to <= dropped_to {
            return true;
        }
        // A history that ends before the deleted messages reports the loss up to its end only. The rest is reported later.
        if channels
            .iter()
            .any(|channel| before < self.forgotten[*channel] && gap_to < self.forgotten[*channel])
        {
            return true;
        }
        let slow = |channel: usize| self.rules.of(&self.names[channel]).policy == Overrun::Skip;
        (before + 1..=gap_to.min(self.stream.len() as u64)).any(|offset| {
            let (channel, _) = self.stream[offset as usize - 1];
            if channels.contains(&channel) && offset <= self.forgotten[channel] {
                return true;
            }
            // With backfill, only a slow client of a channel with [`Overrun::Skip`] misses messages that the stream has.
            if self.rules.recalls && !slow(channel) {
                return false;
            }
            let newer = self.stream[offset as usize..].iter().filter(|(other, _)| *other == channel).count();
            channels.contains(&channel) && newer >= self.rules.of(&self.names[channel]).messages
        })
    }
}

impl Node {
    /// Creates a node that joins at the newest offset.
    fn new(newest: u64, rules: &Arc<Rules>) -> Self {
        Self {
            sequencer: Sequencer::follow(EPOCH, newest, Arc::clone(rules), 1),
            hub: Hub::new(0, EPOCH, Arc::clone(rules)),
            requests: VecDeque::new(),
            errands: VecDeque::new(),
            news: VecDeque::new(),
            wanted: [false; CHANNELS.len()],
            told: [false; CHANNELS.len()],
            reads: VecDeque::new(),
            next: newest + 1,
            up: true,
            lost_to: 0,
        }
    }
}

/// Encodes runs for the checks of this test: the position, the end of the gap plus one, offsets and contents.
struct Plain;

impl Encoder for Plain {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        out.extend(run.position.offset.to_le_bytes());
        out.extend(run.gap.and_then(|gap| gap.to.of(EPOCH)).map_or(0, |to| to + 1).to_le_bytes());
        for message in run.messages {
            out.extend(message.offset.to_le_bytes());
            out.extend(&*message.data);
        }
    }
}
