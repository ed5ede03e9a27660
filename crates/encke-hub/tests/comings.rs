//! Every subscriber of a channel in a cluster receives joins and leaves. Once the cluster is stable, the last event of each
//! name is correct.
//!
//! A seed makes a world: three nodes, a stream, and delayed announcements between nodes. Names join and leave, sometimes on
//! several nodes at once. Nodes are cut off from the stream, publishes are reported as failed whether stored or not, and nodes
//! are killed and replaced. `ENCKE_SEED=n` runs one
//! world, `ENCKE_SEEDS=n` runs n worlds.
//!
//! Each fault occurs at the worst moment in some worlds: a node may be killed with announcements that it has not sent.

mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use encke_hub::{
    Announcement, AudienceChange, ChannelRules, ClusterCommand, ClusterEvent, Epoch, Flags, HubNow, Member,
    Message, Name, NodeId, PublishAck, PublishError, Rules, Sequencer,
};

use world::{Random, Seeds, name};

const SEEDS: u64 = 300;
const STEPS: usize = 300;
const NODES: usize = 3;
const MEMBERS: [&str; 3] = ["ann", "bob", "cid"];
const CHANNELS: [&str; 2] = ["a", "b"];

#[test]
fn the_last_that_is_told_of_a_name_is_true_when_all_is_quiet() {
    let seeds = Seeds::of(SEEDS);
    let (mut told, mut needless) = (0, 0);
    seeds.run(STEPS, |world: World| {
        let (all, more) = world.check();
        (told, needless) = (told + all, needless + more);
    });
    println!("{told} told, {needless} of them twice");
    assert!(seeds.is_single() || told > 10 * seeds.count() as usize, "hardly anything was told: {told}");
    // Outages and failures are much more frequent here than in production; without them events are hardly ever repeated.
    assert!(needless * 3 < told, "{needless} of {told} were told twice");
}

struct World {
    seed: u64,
    random: Random,
    rules: Arc<Rules>,
    /// The channel, the name, and whether it joined.
    stream: Vec<(usize, String, bool)>,
    /// Leaves published with a shared key: channel, member, and offset of the join.
    named: BTreeSet<(usize, String, u64)>,
    nodes: Vec<Node>,
    lives: u64,
    mono_ns: u64,
}

struct Node {
    id: NodeId,
    sequencer: Sequencer,
    up: bool,
    next: usize,
    errands: VecDeque<ClusterCommand>,
    /// Events in transit to the node: from its engine, and from each other node.
    news: VecDeque<ClusterEvent>,
    heard: Vec<VecDeque<ClusterEvent>>,
    /// Number of subscribers by channel and name.
    here: BTreeMap<(usize, usize), u32>,
    /// The announced state, for nodes that join later.
    told: BTreeMap<Name, AudienceChange>,
}

impl world::World for World {
    fn new(seed: u64) -> Self {
        let mut rules = Rules::default();
        rules.default = ChannelRules { presence: true, messages: 1_000, ..ChannelRules::default() };
        let rules = Arc::new(rules);
        let mut world = Self {
            seed,
            random: Random::new(seed),
            rules,
            stream: Vec::new(),
            named: BTreeSet::new(),
            nodes: Vec::new(),
            lives: 0,
            mono_ns: 1,
        };
        for _ in 0..NODES {
            let node = world.new_node();
            world.nodes.push(node);
        }
        for at in 0..NODES {
            world.tells_whole(at);
        }
        world
    }

    fn step(&mut self) {
        let node = self.random.below(NODES as u64) as usize;
        match self.random.below(100) {
            0..14 => self.comes(node),
            14..28 => self.goes(node),
            28..58 => self.works(node, true),
            58..74 => self.hears(node),
            74..92 => self.flows(node),
            92..96 => self.turns(node),
            96..98 => self.is_killed(node),
            _ => self.mono_ns += 1_000_000_000,
        }
    }

    fn settle(&mut self) {
        for at in 0..NODES {
            if !self.nodes[at].up {
                self.turns(at);
            }
        }
        for _ in 0..200 {
            self.mono_ns += 2_000_000_000;
            for at in 0..NODES {
                for _ in 0..4 {
                    self.works(at, false);
                    self.hears(at);
                    self.flows(at);
                }
            }
        }
        for node in &self.nodes {
            let quiet = node.next == self.stream.len() && node.errands.is_empty() && node.news.is_empty();
            assert!(quiet && node.heard.iter().all(VecDeque::is_empty), "seed {}: no rest", self.seed);
        }
    }
}

impl World {
    /// Node ids are random, not ascending.
    fn new_node(&mut self) -> Node {
        self.lives += 1;
        let id = NodeId(self.random.below(1_000) * 1_000 + self.lives);
        let newest = self.stream.len() as u64;
        let mut sequencer = Sequencer::follow(Epoch(1), newest, Arc::clone(&self.rules), 1);
        for channel in CHANNELS {
            sequencer.want(0, &name(channel));
        }
        Node {
            id,
            sequencer,
            up: true,
            next: self.stream.len(),
            errands: VecDeque::new(),
            news: VecDeque::new(),
            heard: (0..NODES).map(|_| VecDeque::new()).collect(),
            here: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    fn now(&self) -> HubNow {
        HubNow { mono_ns: self.mono_ns, unix_ms: 1 }
    }

    fn comes(&mut self, at: usize) {
        let key = (
            self.random.below(CHANNELS.len() as u64) as usize,
            self.random.below(MEMBERS.len() as u64) as usize,
        );
        let now = self.now();
        *self.nodes[at].here.entry(key).or_insert(0) += 1;
        let member = Member { name: MEMBERS[key.1].into(), client: None };
        self.nodes[at].sequencer.member_joins(now, &name(CHANNELS[key.0]), &member);
    }

    fn goes(&mut self, at: usize) {
        let here = self.nodes[at].here.len() as u64;
        if here == 0 {
            return;
        }
        let place = self.random.below(here) as usize;
        let now = self.now();
        let node = &mut self.nodes[at];
        let key = *node.here.keys().nth(place).expect("there are so many");
        let times = node.here.get_mut(&key).expect("it is there");
        *times -= 1;
        if *times == 0 {
            node.here.remove(&key);
        }
        node.sequencer.member_leaves(now, &name(CHANNELS[key.0]), &MEMBERS[key.1].into());
    }

    /// Runs one command of the engine.
    fn works(&mut self, at: usize, may_fail: bool) {
        let now = self.now();
        let luck = if may_fail { self.random.below(12) } else { 9 };
        let node = &mut self.nodes[at];
        node.sequencer.expire(now);
        let mut errands = Vec::new();
        node.sequencer.take_commands(&mut errands);
        node.errands.extend(errands);
        match node.errands.pop_front() {
            Some(ClusterCommand::Announce(announcement)) => {
                let stored = node.up && luck > 0 || !node.up && luck == 1;
                let known = node.up && luck > 1;
                let Announcement { channel, member, joins: comes, after } = &announcement;
                let channel = CHANNELS.iter().position(|one| *one == channel.as_str()).expect("one of ours");
                // The stream deduplicates an event that another node has published with the same key.
                let again =
                    after.is_some_and(|after| !self.named.insert((channel, member.to_string(), after)));
                if stored && !again {
                    self.stream.push((channel, member.to_string(), *comes));
                } else if let (false, Some(after)) = (stored || again, after) {
                    self.named.remove(&(channel, member.to_string(), *after));
                }
                let place = PublishAck { offset: self.stream.len() as u64, repeated: again };
                let fate = if known { Ok(place) } else { Err(PublishError::Unanswered) };
                node.news.push_back(ClusterEvent::Announced { announcement, fate });
            }
            Some(ClusterCommand::Tell(change)) => {
                let kept = node.told.entry(change.channel.clone()).or_insert(AudienceChange {
                    joined: Vec::new(),
                    left: Vec::new(),
                    ..change.clone()
                });
                kept.subscribers = change.subscribers;
                kept.joined.retain(|one| !change.left.contains(one));
                kept.joined.extend(change.joined.iter().cloned());
                let id = node.id;
                for (other, node) in self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != at) {
                    let _ = other;
                    node.heard[at].push_back(ClusterEvent::Told {
                        node: id,
                        anew: false,
                        changes: vec![change.clone()],
                    });
                }
            }
            Some(ClusterCommand::Read { ticket, channel, to, .. }) => {
                let messages = (1..=to)
                    .filter(|offset| CHANNELS[self.stream[*offset as usize - 1].0] == channel.as_str());
                let messages = messages.map(|offset| message(&self.stream, offset)).collect();
                node.news.push_back(ClusterEvent::Past { ticket, channel, to, lost_to: 0, messages });
            }
            // The engine delivers all channels in any case.
            Some(ClusterCommand::Release { .. }) => {}
            Some(
                ClusterCommand::Publish { .. }
                | ClusterCommand::Recall { .. }
                | ClusterCommand::Forget { .. },
            ) => {
                panic!("nobody publishes, forgets or is late")
            }
            None => {}
        }
        if let Some(news) = self.nodes[at].news.pop_front() {
            self.nodes[at].sequencer.on_event(news);
        }
    }

    /// Delivers one announcement of another node.
    fn hears(&mut self, at: usize) {
        let other = self.random.below(NODES as u64) as usize;
        if let Some(news) = self.nodes[at].heard[other].pop_front() {
            self.nodes[at].sequencer.on_event(news);
        }
    }

    fn flows(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.up && node.next < self.stream.len() {
            node.next += 1;
            let message = message(&self.stream, node.next as u64);
            node.sequencer.on_event(ClusterEvent::Messages { messages: vec![message], to: node.next as u64 });
        }
    }

    fn turns(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.up = !node.up;
        node.sequencer.on_event(if node.up { ClusterEvent::Up } else { ClusterEvent::Down });
    }

    /// Kills a node and starts another in its place.
    fn is_killed(&mut self, at: usize) {
        let gone = self.nodes[at].id;
        self.nodes[at] = self.new_node();
        for other in (0..NODES).filter(|other| *other != at) {
            self.nodes[other].heard[at].push_back(ClusterEvent::Gone { node: gone });
        }
        for other in 0..NODES {
            self.tells_whole(other);
        }
    }

    /// Sends the announced state of a node to all others.
    fn tells_whole(&mut self, at: usize) {
        let (id, changes): (_, Vec<AudienceChange>) =
            (self.nodes[at].id, self.nodes[at].told.values().cloned().collect());
        for other in (0..NODES).filter(|other| *other != at) {
            let anew = ClusterEvent::Told { node: id, anew: true, changes: changes.clone() };
            self.nodes[other].heard[at].push_back(anew);
        }
    }

    /// Checks the final state. Returns the number of events, and of repeated ones.
    fn check(&self) -> (usize, usize) {
        let mut last: BTreeMap<(usize, &str), bool> = BTreeMap::new();
        let mut needless = 0;
        for (channel, member, came) in &self.stream {
            let before = last.insert((*channel, member), *came).unwrap_or(false);
            needless += usize::from(before == *came);
        }
        for (channel, text) in CHANNELS.iter().enumerate() {
            let mut here = Vec::new();
            for (place, member) in MEMBERS.iter().enumerate() {
                let there = self.nodes.iter().any(|node| node.here.contains_key(&(channel, place)));
                here.extend(there.then_some(Arc::from(*member)));
                let told = last.get(&(channel, *member)).copied().unwrap_or(false);
                assert_eq!(told, there, "seed {}: {member} in {channel}: {:?}", self.seed, self.stream);
            }
            for node in &self.nodes {
                assert_eq!(node.sequencer.members(&name(text)), here, "seed {}", self.seed);
            }
        }
        (self.stream.len(), needless)
    }
}

fn message(stream: &[(usize, String, bool)], offset: u64) -> Arc<Message> {
    let (channel, member, comes) = &stream[offset as usize - 1];
    let announcement = Announcement {
        channel: name(CHANNELS[*channel]),
        member: (**member).into(),
        joins: *comes,
        after: None,
    };
    let draft = announcement.draft();
    assert!(draft.flags.contains(Flags::CONTROL));
    Arc::new(Message::placed(offset, 1, draft, true))
}
