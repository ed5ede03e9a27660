//! Clients with channels of several streams miss nothing and receive nothing twice, wherever they resume with their ids. A gap
//! occurs only where a stream or a node has dropped messages.
//!
//! A seed makes a world: two or three streams with independent orders, which drop their oldest messages at times, and two or
//! three nodes. Each node has a sequencer per stream and the hubs of all. Its engines are late, lose their connection, and
//! repeat messages after that. Nodes are killed. Clients stream and poll, change their channels while subscribed, disconnect,
//! and resume on any node with the text of their last id. The model knows no strands and runs. When an id advances in a stream,
//! the client must have received every wanted message up to that offset, or a gap. `ENCKE_SEED=n` runs one
//! world, `ENCKE_SEEDS=n` runs n worlds.
//!
//! To show that the test finds faults, single lines were broken. The test found each at this seed:
//!
//! | fault | change | seed |
//! |---|---|---|
//! | ids include runs that were not delivered yet | `Hubs::stand` without its look at `owed` | 1 |
//! | the first position of an id counts for every stream | `Core::start` | 1 |
//! | a gap of one stream at the start is omitted | `Hubs::hears`, `strand.gap` | 1 |
//! | a strand continues before its run is sent | `Hubs::sent`, ignoring `flying` | 1 |
//! | an id is ahead of an unreported gap | `deliver_part` without `missed_from` | 3 |
//! | a pending message of a removed channel is delivered | `change_span` without `retain` | 68 |
//! | a change is confirmed before its channels are open | `position_of`, only for strands without a pending run | 284 |
//! | a loss is fed after later messages | `lose_all` without `gone += 1` | 577 |
//! | the opening of a channel covers an unreported loss | `mark`, `lost_to` without `fed_to` | 4525 |
//! | a subscriber with an unreported gap waits, at a position after it | `Hub::waits`, ignoring the state | 25956 |
//!
//! The fifth and the last four were real bugs: this test found them, two of them in the sequencer. The last two need more
//! worlds than a normal run has; unit tests of the sequencer and the hub cover them, too.

mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use encke_hub::{
    ChannelRules, ClusterCommand, ClusterEvent, Delivery, DeliveryContent, Encoder, Epoch, FeedRequest, Form,
    Gap, GapReason, HubNow, Hubs, Message, Name, Once, Overrun, Positions, Recalled, Rules, Run, Sequencer,
    Since, Streams, Subscribe, SubscriberId,
};

use world::{Counts, NOW, Random, Seeds, draft, turn_of_core};

const SEEDS: u64 = 600;
const STEPS: usize = 400;
const CHANNELS: [&str; 9] = ["a", "b", "short/a", "1/a", "1/short", "1/skip", "2/a", "2/short", "2/skip"];
const CLIENTS: usize = 8;

#[test]
fn whoever_listens_to_several_streams_gets_each_in_order_or_is_told_of_a_gap_that_is_one() {
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
    Joined,
    Hop,
    Away,
    Late,
    Epoch,
    Overrun,
    Waits,
    Polled,
    PolledPart,
    TimesOut,
    Cut,
    Killed,
    Dropped,
    Change,
    Spreads,
    Narrows,
    LetGo,
    Recalled,
}

const CASES: [&str; 19] = [
    "a delivery",
    "an id of several streams",
    "a hop",
    "a gap after being away",
    "a gap while being there",
    "an id that lacks a stream",
    "an overrun",
    "a poll that waits",
    "a poll that is answered",
    "a poll that is answered while there is more",
    "a poll that has waited long enough",
    "a cut",
    "a killed node",
    "a stream that drops messages",
    "a change of channels",
    "a change that spreads over more streams",
    "a change that leaves a stream",
    "a channel that a node lets go of",
    "a run that was read from a stream",
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
    /// The stream of each channel.
    owners: Vec<usize>,
    which: Arc<Streams>,
    streams: Vec<Stream>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    published: u64,
    keys: u64,
    /// The clock of timers; messages have no age.
    mono_ns: u64,
    tally: Tally,
}

struct Stream {
    /// The channel and content of each message, by offset from 1.
    messages: Vec<(usize, u64)>,
    /// The first offset still in the stream.
    first: u64,
}

struct Node {
    lanes: Vec<Lane>,
    hubs: Hubs,
}

struct Lane {
    sequencer: Sequencer,
    requests: VecDeque<FeedRequest>,
    /// Commands for the engine, and events from it.
    errands: VecDeque<ClusterCommand>,
    news: VecDeque<ClusterEvent>,
    /// The next offset to deliver.
    next: u64,
    up: bool,
    /// The end of the last reported loss.
    lost_to: u64,
}

struct Client {
    once: Once,
    channels: BTreeSet<usize>,
    key: u64,
    /// The node of the connection, and the subscriber there.
    place: Option<(usize, SubscriberId)>,
    busy: bool,
    started: bool,
    /// The id to resume from.
    id: Option<String>,
    /// By stream: every wanted message up to this offset was received or in a gap.
    seen: BTreeMap<usize, u64>,
    /// By channel: gaps up to this offset were received.
    excused: BTreeMap<usize, u64>,
    /// By channel added while subscribed: the offset after which it starts, once known.
    begins: BTreeMap<usize, Option<u64>>,
    /// Removed channels, which may still cause a gap.
    left: BTreeSet<usize>,
}

fn epoch(stream: usize) -> Epoch {
    Epoch(70 + stream as u64)
}

impl world::World for World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut rules = Rules::default();
        let short = 1 + random.below(4) as usize;
        let base = ChannelRules::default();
        let mut set = |pattern: &str, one| rules.set(pattern.parse().expect("a pattern"), one);
        for pattern in ["short/*", "1/short", "2/short"] {
            set(pattern, ChannelRules { messages: short, ..base });
        }
        set("1/skip", ChannelRules { messages: short, policy: Overrun::Skip, ..base });
        set("2/skip", ChannelRules { messages: short, policy: Overrun::Skip, ..base });
        // In one of four worlds nodes do not backfill.
        rules.recalls = !seed.is_multiple_of(4);
        let rules = Arc::new(rules);
        let count = 2 + random.below(2) as usize;
        let patterns = ["1/**", "2/**"].map(|pattern| vec![pattern.parse().expect("a pattern")]);
        let which = Arc::new(Streams::new(patterns.into_iter().take(count - 1)));
        let names: Vec<Name> =
            CHANNELS.iter().map(|name| Name::parse(name.as_bytes()).expect("a name")).collect();
        let owners = names.iter().map(|name| which.of(name)).collect();
        let newest = vec![0; count];
        let nodes = 2 + random.below(2);
        let mut world = Self {
            seed,
            nodes: (0..nodes).map(|_| Node::new(&newest, &which, &rules)).collect(),
            rules,
            names,
            owners,
            which,
            streams: (0..count).map(|_| Stream { messages: Vec::new(), first: 1 }).collect(),
            clients: Vec::new(),
            random,
            published: 0,
            keys: 0,
            mono_ns: NOW.mono_ns,
            tally: Tally::default(),
        };
        for _ in 0..CLIENTS {
            let once = [Once::Never, Once::Never, Once::Oldest, Once::All][world.random.below(4) as usize];
            let channels = world.some_channels();
            world.clients.push(Client {
                once,
                channels,
                key: 0,
                place: None,
                busy: false,
                started: false,
                id: None,
                seen: BTreeMap::new(),
                excused: BTreeMap::new(),
                begins: BTreeMap::new(),
                left: BTreeSet::new(),
            });
        }
        world
    }

    fn step(&mut self) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        let stream = self.random.below(self.streams.len() as u64) as usize;
        match self.random.below(100) {
            0..18 => self.publishes(),
            18..36 => self.engine_works(node, stream),
            36..50 => self.stream_flows(node, stream),
            50..70 => self.hub_works(node),
            70..77 => self.some_write(),
            77..88 => self.connects(node),
            88..90 => self.is_cut(),
            90..94 => self.changes(),
            94..96 => self.turns(node, stream),
            96..98 => self.drops(stream),
            98 if self.random.below(3) == 0 => self.is_killed(node),
            // Long enough for a hub to release an unused channel.
            _ => self.mono_ns += 16_000_000_000,
        }
    }

    /// Carries everything, with all clients connected. After that no client may lack a message.
    fn settle(&mut self) {
        for node in 0..self.nodes.len() {
            for stream in 0..self.streams.len() {
                if !self.nodes[node].lanes[stream].up {
                    self.turns(node, stream);
                }
            }
        }
        for _ in 0..2_000 {
            for node in 0..self.nodes.len() {
                for stream in 0..self.streams.len() {
                    self.engine_works(node, stream);
                    self.stream_flows(node, stream);
                }
                self.hub_works(node);
                self.connects(node);
            }
            self.some_write();
            if (0..CLIENTS).all(|at| self.is_at_rest(at)) {
                return;
            }
        }
        let lacking: Vec<String> =
            (0..CLIENTS).filter(|at| !self.is_at_rest(*at)).map(|at| self.tells(at)).collect();
        panic!("seed {}: no rest: {lacking:#?}", self.seed);
    }
}

impl World {
    fn some_channels(&mut self) -> BTreeSet<usize> {
        (0..1 + self.random.below(4)).map(|_| self.random.below(CHANNELS.len() as u64) as usize).collect()
    }

    fn publishes(&mut self) {
        let channel = self.random.below(CHANNELS.len() as u64) as usize;
        self.published += 1;
        let stream = self.owners[channel];
        self.streams[stream].messages.push((channel, self.published));
    }

    /// Runs a random command of an engine, and may deliver an event.
    fn engine_works(&mut self, node: usize, stream: usize) {
        let lane = &mut self.nodes[node].lanes[stream];
        let mut errands = Vec::new();
        lane.sequencer.take_commands(&mut errands);
        lane.errands.extend(errands);
        if lane.up && !lane.errands.is_empty() {
            let at = self.random.below(lane.errands.len() as u64) as usize;
            let news = match lane.errands.remove(at) {
                Some(ClusterCommand::Read { ticket, channel, to, most }) => {
                    let (lost_to, messages) = self.past(stream, &channel, to, most);
                    Some(ClusterEvent::Past { ticket, channel, to, lost_to, messages })
                }
                Some(ClusterCommand::Recall { recall, channels, after, to }) => {
                    let run = self.recalled(stream, &channels, after, to);
                    Some(ClusterEvent::Recalled { recall, run })
                }
                _ => None,
            };
            self.nodes[node].lanes[stream].news.extend(news);
        }
        let lane = &mut self.nodes[node].lanes[stream];
        if self.random.below(2) == 0
            && let Some(news) = lane.news.pop_front()
        {
            lane.sequencer.on_event(news);
        }
    }

    /// Reads the history of a channel: the offset up to which messages are lost, and the newest messages up to an offset.
    fn past(&self, stream: usize, name: &Name, to: u64, most: usize) -> (u64, Vec<Arc<Message>>) {
        let Stream { messages, first } = &self.streams[stream];
        let channel = self.names.iter().position(|other| other == name).expect("known");
        let kept = (*first..=to.min(messages.len() as u64))
            .filter(|offset| messages[*offset as usize - 1].0 == channel);
        let mut messages: Vec<Arc<Message>> = kept.map(|offset| self.message(stream, offset)).collect();
        let mut lost_to = (first - 1).min(to);
        if messages.len() > most {
            let more = messages.len() - most;
            lost_to = messages[more - 1].offset;
            messages.drain(..more);
        }
        (lost_to, messages)
    }

    /// Reads some messages of channels after an offset.
    fn recalled(&mut self, stream: usize, channels: &[Name], after: u64, to: u64) -> Recalled {
        self.tally.count(Case::Recalled);
        let most = 1 + self.random.below(4) as usize;
        let Stream { messages, first } = &self.streams[stream];
        let lost_to = (first - 1).min(to);
        let kept = (after.max(lost_to) + 1..=to)
            .filter(|offset| channels.contains(&self.names[messages[*offset as usize - 1].0]));
        let mut messages: Vec<Arc<Message>> = kept.map(|offset| self.message(stream, offset)).collect();
        let whole = messages.len() <= most;
        messages.truncate(most);
        let to = messages.last().filter(|_| !whole).map_or(to, |last| last.offset);
        Recalled { lost_to: if lost_to > after { lost_to } else { 0 }, to, messages, ..Recalled::default() }
    }

    fn message(&self, stream: usize, offset: u64) -> Arc<Message> {
        let (channel, content) = self.streams[stream].messages[offset as usize - 1];
        let draft = draft(self.names[channel].clone(), content.to_string().into_bytes());
        Arc::new(Message::placed(offset, NOW.unix_ms, draft, false))
    }

    /// Delivers the next messages of a stream to a node.
    fn stream_flows(&mut self, node: usize, stream: usize) {
        let first = self.streams[stream].first;
        let lane = &mut self.nodes[node].lanes[stream];
        if !lane.up {
            return;
        }
        if lane.next < first {
            (lane.next, lane.lost_to) = (first, first - 1);
            lane.sequencer.on_event(ClusterEvent::Lost { to: first - 1 });
        }
        let from = lane.next;
        let end = (from + 1 + self.random.below(5)).min(self.streams[stream].messages.len() as u64 + 1);
        let messages = (from..end).map(|offset| self.message(stream, offset)).collect();
        let lane = &mut self.nodes[node].lanes[stream];
        lane.next = end;
        lane.sequencer.on_event(ClusterEvent::Messages { messages, to: end - 1 });
    }

    /// Carries requests to the sequencers, feeds to the hubs, and deliveries to clients.
    fn hub_works(&mut self, node: usize) {
        let most = 1 + self.random.below(6) as usize;
        // If no message follows a loss, the head reports it to the worker.
        self.mono_ns += 300_000_000;
        let now = HubNow { mono_ns: self.mono_ns, ..NOW };
        let Node { lanes, hubs } = &mut self.nodes[node];
        for (stream, lane) in lanes.iter_mut().enumerate() {
            let mut requests = Vec::new();
            hubs.take_requests(stream, &mut requests);
            lane.requests.extend(requests);
            let feed = turn_of_core(&mut lane.sequencer, now, lane.requests.drain(..), most);
            feed.into_iter().for_each(|feed| hubs.feed(now, stream, feed));
        }
        let channels = hubs.channels();
        let mut out = Vec::new();
        hubs.slice(now, most, &mut Plain, &mut out);
        assert!(out.len() <= most, "seed {}: {} of {most}", self.seed, out.len());
        if hubs.channels() < channels {
            self.tally.count(Case::LetGo);
        }
        for delivery in out {
            self.reads(node, delivery);
        }
        self.confirms(node);
    }

    fn some_write(&mut self) {
        for client in &mut self.clients {
            if client.busy
                && self.random.below(2) == 0
                && let Some((node, id)) = client.place
            {
                client.busy = false;
                self.nodes[node].hubs.sent(id);
            }
        }
    }

    fn connects(&mut self, node: usize) {
        let at = self.random.below(CLIENTS as u64) as usize;
        if self.clients[at].place.is_some() {
            return;
        }
        if self.random.below(6) == 0 {
            self.clients[at].channels = self.some_channels();
        }
        self.keys += 1;
        let client = &mut self.clients[at];
        let since = match &client.id {
            Some(id) => {
                self.tally.count(Case::Hop);
                Since::parse(id).expect("an id")
            }
            None => Since::Now,
        };
        if let Since::After(positions) = &since {
            // Only the positions of the id count.
            let said = |stream| positions.of(epoch(stream)).map(|offset| (stream, offset));
            client.seen = (0..self.streams.len()).filter_map(said).collect();
        }
        (client.key, client.busy, client.started) = (self.keys, false, false);
        client.begins.clear();
        client.excused.clear();
        client.left.clear();
        let subscribe = Subscribe {
            channels: client.channels.iter().map(|channel| self.names[*channel].clone()).collect(),
            since,
            form: Form(0),
            once: client.once,
            key: client.key,
            member: None,
        };
        let now = HubNow { mono_ns: self.mono_ns, ..NOW };
        let id = self.nodes[node].hubs.subscribe(now, subscribe).expect("it is within limits");
        client.place = Some((node, id));
    }

    /// Ends a connection. A poll may end by its timeout, with its position as the response.
    fn is_cut(&mut self) {
        let at = self.random.below(CLIENTS as u64) as usize;
        let Some((node, id)) = self.clients[at].place else { return };
        let hubs = &mut self.nodes[node].hubs;
        if self.clients[at].once == Once::Never {
            self.tally.count(Case::Cut);
        } else if hubs.waits(id)
            && let Some(position) = hubs.position_of(id)
        {
            self.tally.count(Case::TimesOut);
            self.gets(at, &position.to_string(), None);
        }
        self.nodes[node].hubs.leave(id);
        self.clients[at].place = None;
    }

    /// Changes the channels of a streaming client.
    fn changes(&mut self) {
        let at = self.random.below(CLIENTS as u64) as usize;
        let other = self.some_channels();
        let keeps = self.random.below(2) == 0;
        let client = &mut self.clients[at];
        let Some((node, id)) = client.place.filter(|_| client.once == Once::Never && client.started) else {
            return;
        };
        let add: Vec<usize> = other.difference(&client.channels).copied().collect();
        let remove: Vec<usize> =
            if keeps { Vec::new() } else { client.channels.difference(&other).copied().collect() };
        let names = |channels: &[usize]| -> Vec<Name> {
            channels.iter().map(|channel| self.names[*channel].clone()).collect()
        };
        let now = HubNow { mono_ns: self.mono_ns, ..NOW };
        let changed = self.nodes[node].hubs.change(now, id, &names(&add), &names(&remove));
        client.place = Some((node, changed.expect("it is within limits")));
        let before: BTreeSet<usize> = client.channels.iter().map(|channel| self.owners[*channel]).collect();
        for channel in &remove {
            client.channels.remove(channel);
            client.left.insert(*channel);
            client.begins.remove(channel);
        }
        for channel in add {
            client.channels.insert(channel);
            client.begins.insert(channel, None);
        }
        let after: BTreeSet<usize> = client.channels.iter().map(|channel| self.owners[*channel]).collect();
        // The model forgets its progress in a stream that the client left or has just joined.
        client.seen.retain(|stream, _| before.contains(stream) && after.contains(stream));
        self.tally.count(Case::Change);
        if after.difference(&before).next().is_some() {
            self.tally.count(Case::Spreads);
        }
        if before.difference(&after).next().is_some() {
            self.tally.count(Case::Narrows);
        }
    }

    /// Confirms changed channels to clients, once their starts are known.
    fn confirms(&mut self, node: usize) {
        for at in 0..CLIENTS {
            let client = &mut self.clients[at];
            let Some((_, id)) = client.place.filter(|(place, _)| *place == node) else { continue };
            if !client.begins.values().any(Option::is_none) {
                continue;
            }
            let Some(positions) = self.nodes[node].hubs.position_of(id) else { continue };
            for (channel, begins) in &mut client.begins {
                // Messages published from now on.
                *begins = begins.or(Some(self.streams[self.owners[*channel]].messages.len() as u64));
            }
            self.gets(at, &positions.to_string(), None);
        }
    }

    /// Disconnects a node from a stream, or reconnects it. After that the stream may repeat messages.
    fn turns(&mut self, node: usize, stream: usize) {
        let lane = &mut self.nodes[node].lanes[stream];
        lane.up = !lane.up;
        lane.sequencer.on_event(if lane.up { ClusterEvent::Up } else { ClusterEvent::Down });
        if lane.up {
            lane.next -= self.random.below(4).min(lane.next - 1);
        }
    }

    fn drops(&mut self, stream: usize) {
        let Stream { messages, first } = &mut self.streams[stream];
        let count = self.random.below(4).min(messages.len() as u64 + 1 - *first);
        if count > 0 {
            *first += count;
            self.tally.count(Case::Dropped);
        }
    }

    fn is_killed(&mut self, node: usize) {
        self.tally.count(Case::Killed);
        let newest: Vec<u64> = self.streams.iter().map(|stream| stream.messages.len() as u64).collect();
        self.nodes[node] = Node::new(&newest, &self.which, &self.rules);
        for client in self.clients.iter_mut().filter(|client| client.place.is_some_and(|(at, _)| at == node))
        {
            client.place = None;
        }
    }

    fn is_at_rest(&self, at: usize) -> bool {
        let client = &self.clients[at];
        let seen = client.channels.iter().all(|channel| {
            let stream = self.owners[*channel];
            // A poll that waits without a position wants new messages only.
            let after = client.seen.get(&stream).copied();
            after.map_or(client.once != Once::Never, |after| {
                self.lacks(at, stream, after, u64::MAX, &[]).is_none()
            })
        });
        client.started && !client.busy && client.place.is_some() && seen
    }

    // ── Deliveries ──────────────────────────────────────────────────────────────────────────────────────────────

    fn reads(&mut self, node: usize, delivery: Delivery) {
        let at = self.clients.iter().position(|client| client.place.is_some() && client.key == delivery.key);
        let at = at.expect("who is told something is there");
        let client = &mut self.clients[at];
        assert_eq!(client.place, Some((node, delivery.subscriber)), "seed {}", self.seed);
        assert!(!client.busy, "seed {}: two things at once", self.seed);
        let first = !std::mem::replace(&mut client.started, true);
        match delivery.what {
            DeliveryContent::Started { position, gap } => {
                assert!(first && client.once == Once::Never);
                client.busy = true;
                if let Some(gap) = gap {
                    self.hears_of_gap(at, node, &gap);
                }
                self.gets(at, &position.to_string(), None);
            }
            DeliveryContent::Bytes(bytes) => {
                assert!(!first && client.once == Once::Never);
                client.busy = true;
                self.gets_run(at, node, &bytes);
            }
            DeliveryContent::Last(bytes) => {
                assert!(client.once != Once::Never);
                client.place = None;
                self.tally.count(Case::Polled);
                let (messages, more) = self.gets_run(at, node, &bytes);
                assert!(self.clients[at].once == Once::All || messages <= 1);
                if more > 0 {
                    self.tally.count(Case::PolledPart);
                }
            }
            DeliveryContent::Waiting => {
                assert!(first && client.once != Once::Never);
                self.tally.count(Case::Waits);
            }
            DeliveryContent::Ended => panic!("no channel has a preamble"),
            DeliveryContent::Overrun => {
                assert!(client.once == Once::Never);
                self.tally.count(Case::Overrun);
                client.place = None;
            }
        }
    }

    /// Checks a run. Returns the number of its messages, and of those after it.
    fn gets_run(&mut self, at: usize, node: usize, bytes: &[u8]) -> (usize, usize) {
        let text = std::str::from_utf8(bytes).expect("text");
        let mut lines = text.lines();
        let (mut messages, mut more) = (0, 0);
        if let Some(gap) = lines.next().and_then(|line| line.strip_prefix("gap ")) {
            let mut words = gap.split(' ');
            let mut word = || words.next().expect("three words");
            let (from, to): (Positions, Positions) =
                (word().parse().expect("an id"), word().parse().expect("an id"));
            let reason = match word() {
                "Away" => GapReason::Away,
                "Late" => GapReason::Late,
                _ => GapReason::Epoch,
            };
            self.hears_of_gap(at, node, &Gap { from, to, reason });
        }
        for line in lines {
            let (kind, rest) = line.split_once(' ').expect("two words");
            if kind == "end" {
                let (id, left) = rest.split_once(' ').expect("two words");
                self.gets(at, id, None);
                more = left.parse().expect("a number");
            } else {
                messages += 1;
                let (offset, content) = rest.split_once(' ').expect("two words");
                let number = |text: &str| text.parse::<u64>().expect("a number");
                let stream = self.stream_of(number(content));
                self.gets(at, kind, Some((stream, number(offset), number(content))));
            }
        }
        (messages, more)
    }

    fn stream_of(&self, content: u64) -> usize {
        let has = |stream: &Stream| stream.messages.iter().any(|(_, one)| *one == content);
        self.streams.iter().position(has).expect("it was published")
    }

    /// Checks an id, possibly that of a message: the client advances, and must have missed nothing.
    fn gets(&mut self, at: usize, id: &str, message: Option<(usize, u64, u64)>) {
        let positions: Positions = id.parse().expect("an id");
        if positions.as_slice().len() > 1 {
            self.tally.count(Case::Joined);
        }
        let told = || format!("seed {}: {id} {message:?} for {}", self.seed, self.tells(at));
        let client = &self.clients[at];
        let mut came: Option<(usize, u64)> = None;
        if let Some((stream, offset, content)) = message {
            let (channel, published) = self.streams[stream].messages[offset as usize - 1];
            assert_eq!(published, content, "{}", told());
            assert!(client.channels.contains(&channel), "{}: it did not ask for {channel}", told());
            assert_eq!(positions.of(epoch(stream)), Some(offset), "{}", told());
            let seen = client.seen.get(&stream).copied().unwrap_or(0);
            assert!(offset > seen, "{}: it comes again", told());
            came = Some((stream, offset));
        }
        for stream in client.channels.iter().map(|channel| self.owners[*channel]) {
            let to = positions.of(epoch(stream));
            let to = to.unwrap_or_else(|| panic!("{}: nothing of stream {stream}", told()));
            let Some(before) = client.seen.get(&stream).copied() else { continue };
            assert!(to >= before, "{}: it goes back", told());
            let here: &[u64] = match &came {
                Some((one, offset)) if *one == stream => std::slice::from_ref(offset),
                _ => &[],
            };
            let lacks = self.lacks(at, stream, before, to, here);
            assert_eq!(lacks, None, "{}: missing in stream {stream} behind {before}", told());
        }
        if message.is_some() {
            self.tally.count(Case::Delivered);
        }
        let client = &mut self.clients[at];
        client.id = Some(id.to_owned());
        for stream in client.channels.iter().map(|channel| self.owners[*channel]) {
            if let Some(to) = positions.of(epoch(stream)) {
                client.seen.insert(stream, to);
            }
        }
    }

    /// Returns the first wanted message in a range of a stream that was not received.
    fn lacks(&self, at: usize, stream: usize, after: u64, to: u64, came: &[u64]) -> Option<u64> {
        let client = &self.clients[at];
        let messages = &self.streams[stream].messages;
        (after + 1..=to.min(messages.len() as u64)).find(|offset| {
            let (channel, _) = messages[*offset as usize - 1];
            let excused = client.excused.get(&channel).is_some_and(|to| offset <= to);
            let wanted = match client.begins.get(&channel) {
                None => client.channels.contains(&channel),
                Some(None) => false,
                Some(Some(begins)) => offset > begins,
            };
            wanted && !excused && !came.contains(offset)
        })
    }

    /// Checks a gap: messages in it must be lost, or the client's id must lack a stream.
    fn hears_of_gap(&mut self, at: usize, node: usize, gap: &Gap) {
        let told = format!("seed {}: {gap:?} on {node} for {}", self.seed, self.tells(at));
        let client = &self.clients[at];
        let streams: BTreeSet<usize> = client.channels.iter().map(|channel| self.owners[*channel]).collect();
        let lacking: Vec<usize> =
            streams.iter().copied().filter(|stream| !client.seen.contains_key(stream)).collect();
        match gap.reason {
            GapReason::Epoch => {
                assert!(!lacking.is_empty() && client.id.is_some(), "{told}: its id says all");
                self.tally.count(Case::Epoch);
            }
            GapReason::Away => self.tally.count(Case::Away),
            GapReason::Late => self.tally.count(Case::Late),
        }
        if gap.reason == GapReason::Epoch {
            assert_eq!(Some(gap.from.to_string()), client.id, "{told}");
        }
        let mut justified = gap.reason == GapReason::Epoch;
        let mut excused = Vec::new();
        for stream in streams {
            let channels: Vec<usize> =
                client.channels.iter().copied().filter(|channel| self.owners[*channel] == stream).collect();
            let to = gap.to.of(epoch(stream));
            let to = to.unwrap_or_else(|| panic!("{told}: nothing of stream {stream}"));
            match client.seen.get(&stream) {
                Some(before) if self.is_lost(at, node, stream, *before, to) => {
                    justified = true;
                    excused.extend(channels.into_iter().map(|channel| (channel, to)));
                }
                Some(_) => {}
                // The client receives the kept messages.
                None if gap.reason == GapReason::Epoch => {
                    let gone = |channel: usize| {
                        let end = self.streams[stream].messages.len() as u64;
                        (1..=end).rev().find(|offset| self.is_gone(node, channel, *offset)).unwrap_or(0)
                    };
                    excused.extend(channels.into_iter().map(|channel| (channel, gone(channel).max(to))));
                }
                // The loss happened while the client started.
                None => {
                    justified = true;
                    excused.extend(channels.into_iter().map(|channel| (channel, to)));
                }
            }
        }
        assert!(justified, "{told}: nothing is lost");
        for (channel, to) in excused {
            let excused = self.clients[at].excused.entry(channel).or_default();
            *excused = to.max(*excused);
        }
    }

    /// Returns whether messages after a position were dropped, by the stream or by the limits of a node.
    fn is_lost(&self, at: usize, node: usize, stream: usize, before: u64, to: u64) -> bool {
        let Stream { messages, first } = &self.streams[stream];
        let dropped_to = (first - 1).max(self.nodes[node].lanes[stream].lost_to);
        if before < dropped_to && to <= dropped_to && before < to {
            return true;
        }
        (before + 1..=to.min(messages.len() as u64)).any(|offset| {
            let (channel, _) = messages[offset as usize - 1];
            let Client { channels, left, .. } = &self.clients[at];
            (channels.contains(&channel) || left.contains(&channel)) && self.is_gone(node, channel, offset)
        })
    }

    /// Returns whether an offset belongs to a dropped message of this channel.
    fn is_gone(&self, node: usize, channel: usize, offset: u64) -> bool {
        let stream = self.owners[channel];
        let Stream { messages, first } = &self.streams[stream];
        let newer = messages[offset as usize..].iter().filter(|(other, _)| *other == channel).count();
        let passed = newer >= self.rules.of(&self.names[channel]).messages;
        let dropped = offset < *first || offset <= self.nodes[node].lanes[stream].lost_to;
        messages[offset as usize - 1].0 == channel && (passed || dropped)
    }

    /// Describes a client for a failure message.
    fn tells(&self, at: usize) -> String {
        let Client { once, channels, place, busy, started, id, seen, excused, begins, .. } =
            &self.clients[at];
        format!(
            "client {at} {once:?} of {channels:?} at {place:?} busy {busy} started {started} id {id:?} seen {seen:?} \
             excused {excused:?} begins {begins:?}"
        )
    }
}

impl Node {
    /// Creates a node that joins at the newest offsets.
    fn new(newest: &[u64], which: &Arc<Streams>, rules: &Arc<Rules>) -> Self {
        let epochs: Vec<Epoch> = (0..newest.len()).map(epoch).collect();
        let lane = |(stream, newest): (usize, &u64)| Lane {
            sequencer: Sequencer::follow(epoch(stream), *newest, Arc::clone(rules), 1),
            requests: VecDeque::new(),
            errands: VecDeque::new(),
            news: VecDeque::new(),
            next: newest + 1,
            up: true,
            lost_to: 0,
        };
        Self {
            lanes: newest.iter().enumerate().map(lane).collect(),
            hubs: Hubs::new(0, &epochs, Arc::clone(which), rules),
        }
    }
}

/// Encodes runs as lines: an optional gap, the messages, and the end. A message has its id, offset and content; the end has the
/// id and the number of messages left.
struct Plain;

impl Encoder for Plain {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        let mut lines = vec![match run.gap {
            Some(gap) => format!("gap {} {} {:?}", gap.from, gap.to, gap.reason),
            None => "whole".to_owned(),
        }];
        for message in run.messages {
            let content = String::from_utf8_lossy(&message.data);
            lines.push(format!("{} {} {content}", run.id(message), message.offset));
        }
        lines.push(format!("end {} {}", run.end(), run.more));
        out.extend(lines.join("\n").bytes());
    }
}
