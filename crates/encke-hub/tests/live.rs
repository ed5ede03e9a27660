//! Whatever a source breaks and however a subscriber stalls, a subscriber that starts at a key frame receives a preamble, and
//! then whole units from a key frame on.
//!
//! A seed makes a world: a sequencer, two hubs, and queues between them that deliver late and in pieces. A source publishes
//! units of one to three messages, breaks at any moment, even inside a unit, and returns with a new preamble, with or without
//! a break. Subscribers join, stall and leave. The model is the log of all messages: it knows no ring and no position.
//! `ENCKE_SEED=n` runs one
//! world, `ENCKE_SEEDS=n` runs n worlds.
//!
//! To show that the test finds faults, single lines were broken. The test found each at this seed:
//!
//! | fault | change | seed |
//! |---|---|---|
//! | a run crosses a break | `keyed::collect` without `breaks_before` | 1 |
//! | a run of an ordinary subscriber is shared across a break | `Channel::encoded_unbroken` without `breaks` | 6 |
//! | a preamble inside a unit is no break | `BreakFinder` without `PREAMBLE` | 1 |
//! | a subscriber that lost the rest of a unit continues | `skip_to_key` without `inside` | 1 |
//! | a subscriber that waits for a key frame crosses a break | `Hub::enter` without `broken_at` | 1 |
//! | the start is the oldest key frame | `key_frame` without the end of its loop | 2 |
//! | a worker does not learn of a lost preamble | `Hub::feed`, `Feed::Lost` without `set_preamble` | 2 |
//! | a preamble that its ring dropped is not charged | `drop_oldest` without `is_preamble` | 1 |
//! | a replaced preamble stays charged | `Sequencer::append` without `take_preamble` | 1 |
//! | a channel opens without its preamble | `Channel::opens` without `set_preamble` | 1 |

mod world;

use std::collections::VecDeque;
use std::sync::Arc;

use encke_hub::{
    ChannelRules, Delivery, DeliveryContent, Draft, Encoder, Epoch, Feed, FeedRequest, Flags, Form, Hub,
    HubNow, Name, Once, Overrun, Rules, Run, Sequencer, Since, Subscribe, SubscriberId,
};

use world::{Counts, Random, Seeds};

const SEEDS: u64 = 200;
const STEPS: usize = 1_500;
const CORES: usize = 2;
const CLIENTS: usize = 12;
const EPOCH: Epoch = Epoch(5);
/// Marks a gap in an encoded run. No offset is so high.
const GAP: u64 = u64::MAX;
const CASES: [&str; 12] = [
    "a start with a preamble",
    "a start without one",
    "a wait for a key frame",
    "a preamble that its ring had dropped",
    "a preamble between messages",
    "an end at a break",
    "an end at a break that was missed",
    "an end inside a unit that was never completed",
    "an overrun inside a unit",
    "a continuation at a later key frame",
    "a continuation with a new preamble",
    "a gap of an ordinary subscriber",
];

#[derive(Clone, Copy)]
enum Case {
    WithPreamble,
    Without,
    Wait,
    Dropped,
    Between,
    Break,
    MissedBreak,
    TornEnd,
    Overrun,
    Later,
    LaterPreamble,
    Gap,
}

impl From<Case> for usize {
    fn from(case: Case) -> Self {
        case as Self
    }
}

#[test]
fn each_subscriber_receives_a_preamble_and_whole_units_from_a_key_frame_on() {
    let seeds = Seeds::of(SEEDS);
    let mut met = Counts::default();
    seeds.run(STEPS, |world: World| met.add(&world.met));
    println!("{:#?}", met.named(CASES).collect::<Vec<_>>());
    seeds.assert_met(met.named(CASES));
}

/// A message of the source.
#[derive(Clone, Copy, Debug)]
struct Record {
    offset: u64,
    flags: Flags,
    /// The generation: the number of preambles so far.
    generation: usize,
    /// The first message of a unit.
    begins: bool,
    empty: bool,
    charge: u64,
}

impl Record {
    fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }
}

struct Core {
    hub: Hub,
    feed: VecDeque<Feed>,
    requests: VecDeque<FeedRequest>,
    /// The newest offset fed to the hub.
    fed_to: u64,
}

struct Client {
    key: u64,
    core: usize,
    id: SubscriberId,
    keyed: bool,
    busy: bool,
    /// The client does not read.
    stalled: bool,
    /// The last message received, as index in the log.
    last: Option<usize>,
    /// The generation of the last preamble received that is not empty.
    preamble: Option<usize>,
    /// A preamble came last, or nothing: the next message may be any key frame.
    waits: bool,
    /// The next delivery follows a gap.
    gap: bool,
}

struct World {
    seed: u64,
    random: Random,
    now: HubNow,
    sequencer: Sequencer,
    cores: Vec<Core>,
    clients: Vec<Client>,
    keys: u64,
    burst_ms: u64,
    log: Vec<Record>,
    /// Messages left in the unit of the source.
    parts_left: u64,
    /// The preamble before the present one was lost with all messages.
    emptied_at: usize,
    met: Counts<12>,
}

struct Offsets;

impl Encoder for Offsets {
    fn encode(&mut self, _: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        if run.gap.is_some() {
            out.extend(GAP.to_le_bytes());
        }
        for message in run.messages {
            out.extend(message.offset.to_le_bytes());
        }
    }
}

fn tv() -> Name {
    world::name("live/tv")
}

impl world::World for World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let burst_ms = [0, 0, 500, 2_000][random.below(4) as usize];
        let mut rules = Rules::default();
        rules.default = ChannelRules {
            messages: 4 + random.below(24) as usize,
            age_ms: 20_000,
            policy: Overrun::Key,
            burst_ms,
            ..ChannelRules::default()
        };
        let rules = Arc::new(rules);
        let core = |core| Core {
            hub: Hub::new(core, EPOCH, Arc::clone(&rules)),
            feed: VecDeque::new(),
            requests: VecDeque::new(),
            fed_to: 0,
        };
        Self {
            seed,
            now: world::NOW,
            sequencer: Sequencer::new(EPOCH, Arc::clone(&rules), CORES),
            cores: (0..CORES).map(core).collect(),
            clients: Vec::new(),
            keys: 0,
            burst_ms,
            log: Vec::new(),
            parts_left: 0,
            emptied_at: 0,
            met: Counts::default(),
            random,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..24 => self.source_sends(),
            24 => self.source_breaks(),
            25..44 => self.carries_feed(),
            44..54 => self.carries_requests(),
            54..72 => self.slices(),
            72..88 => self.writes_out(),
            88..92 => self.joins(),
            92 => self.leaves(),
            93..95 => self.stalls(),
            95..99 => self.time_passes(300),
            _ if self.random.below(40) == 0 => self.time_passes(40_000),
            _ if self.random.below(40) == 0 => {
                self.sequencer.delete(&tv());
                self.notes_emptied();
            }
            _ => self.source_sends(),
        }
        self.checks_memory();
    }

    fn settle(&mut self) {
        self.clients.iter_mut().for_each(|client| client.stalled = false);
        self.reads_all();
        while self.parts_left > 0 {
            self.source_sends();
        }
        if self.is_empty() {
            self.publishes(Flags::PREAMBLE.with(Flags::BREAK), true);
        }
        for flags in [Flags::KEY_FRAME, Flags::default()] {
            self.publishes(flags, true);
            self.reads_all();
        }
        let last = self.log.len() - 1;
        for client in &self.clients {
            assert_eq!(client.last, Some(last), "seed {}: client {} lacks the end", self.seed, client.key);
        }
    }
}

impl World {
    // ── The source ──────────────────────────────────────────────────────────────────────────────────────────────

    fn is_empty(&self) -> bool {
        self.sequencer.kept_messages(&tv(), 0, 1).next().is_none()
    }

    /// Records that the channel has lost all its messages, and its preamble with them.
    fn notes_emptied(&mut self) {
        if self.is_empty() {
            self.emptied_at = self.log.len();
        }
    }

    fn source_sends(&mut self) {
        // A source publishes its preamble again once the channel is empty.
        if self.is_empty() || self.log.is_empty() {
            return self.source_returns();
        }
        if self.parts_left > 0 {
            self.parts_left -= 1;
            let flags = if self.parts_left > 0 { Flags::CONTINUES } else { Flags::default() };
            return self.publishes(flags, false);
        }
        let key = if self.random.below(5) == 0 { Flags::KEY_FRAME } else { Flags::default() };
        self.parts_left = self.random.below(3);
        let flags = if self.parts_left > 0 { key.with(Flags::CONTINUES) } else { key };
        self.publishes(flags, true);
    }

    fn source_breaks(&mut self) {
        if !self.log.is_empty() {
            self.source_returns();
        }
    }

    fn source_returns(&mut self) {
        self.parts_left = 0;
        let breaks = self.random.below(2) == 0;
        let flags = if breaks { Flags::PREAMBLE.with(Flags::BREAK) } else { Flags::PREAMBLE };
        self.publishes(flags, true);
    }

    fn publishes(&mut self, flags: Flags, begins: bool) {
        let preamble = flags.contains(Flags::PREAMBLE);
        let empty = preamble && self.random.below(5) == 0;
        let data = if empty { Vec::new() } else { vec![b'x'; 1 + self.random.below(50) as usize] };
        let draft = Draft { flags, ..world::draft(tv(), data) };
        let published = self.sequencer.publish(self.now, draft).expect("it is within limits");
        let offset = published.done().expect("nothing is stored").position.offset;
        let newest = self.sequencer.kept_messages(&tv(), offset - 1, 1).next().expect("the newest is kept");
        let before = self.log.last().map_or(0, |record| record.generation);
        let generation = before + usize::from(preamble);
        self.log.push(Record { offset, flags, generation, begins, empty, charge: newest.charge() });
    }

    /// The memory is that of the kept messages, and of the newest preamble.
    fn checks_memory(&mut self) {
        let kept: Vec<_> = self.sequencer.kept_messages(&tv(), 0, usize::MAX).collect();
        let ring: u64 = kept.iter().map(|message| message.charge()).sum();
        let first = kept.first().map(|message| message.offset);
        let since = &self.log[self.emptied_at..];
        let preamble = since.iter().rev().find(|record| record.has(Flags::PREAMBLE));
        let dropped = preamble.filter(|preamble| first.is_some_and(|first| preamble.offset < first));
        let expected = ring + dropped.map_or(0, |preamble| preamble.charge);
        assert_eq!(self.sequencer.memory(), expected, "seed {}", self.seed);
    }

    // ── Transport ───────────────────────────────────────────────────────────────────────────────────────────────

    fn carries_feed(&mut self) {
        let core = self.random.below(CORES as u64) as usize;
        let mut feed = Vec::new();
        self.sequencer.take_feed(core, 1 + self.random.below(6) as usize, &mut feed);
        self.cores[core].feed.extend(feed);
        for _ in 0..self.random.below(5) {
            self.feeds(core);
        }
    }

    fn feeds(&mut self, core: usize) -> bool {
        let core = &mut self.cores[core];
        let Some(feed) = core.feed.pop_front() else { return false };
        match &feed {
            Feed::Opened { messages, .. } => {
                core.fed_to = messages.last().map_or(core.fed_to, |last| last.offset);
            }
            Feed::Message { message, .. } => core.fed_to = message.offset,
            _ => {}
        }
        core.hub.feed(self.now, feed);
        true
    }

    fn carries_requests(&mut self) {
        let core = self.random.below(CORES as u64) as usize;
        for _ in 0..1 + self.random.below(4) {
            self.requests(core);
        }
    }

    fn requests(&mut self, core: usize) -> bool {
        let mut requests = Vec::new();
        self.cores[core].hub.take_requests(&mut requests);
        self.cores[core].requests.extend(requests);
        let Some(request) = self.cores[core].requests.pop_front() else { return false };
        self.sequencer.apply(self.now, core, request);
        true
    }

    fn time_passes(&mut self, most_ms: u64) {
        let ms = 1 + self.random.below(most_ms);
        self.now.mono_ns += ms * 1_000_000;
        self.now.unix_ms += ms;
        self.sequencer.expire(self.now);
        self.notes_emptied();
    }

    fn slices(&mut self) {
        let core = self.random.below(CORES as u64) as usize;
        let most = 1 + self.random.below(8) as usize;
        self.slice(core, most);
    }

    fn slice(&mut self, core: usize, most: usize) -> bool {
        let mut out = Vec::new();
        let more = self.cores[core].hub.slice(self.now, most, &mut Offsets, &mut out);
        for delivery in out {
            self.reads(delivery);
        }
        more
    }

    fn reads_all(&mut self) {
        loop {
            let mut busy = false;
            for core in 0..CORES {
                while self.requests(core) {
                    busy = true;
                }
                let mut feed = Vec::new();
                while self.sequencer.take_feed(core, 64, &mut feed) {}
                busy |= !feed.is_empty();
                self.cores[core].feed.extend(feed);
                while self.feeds(core) {
                    busy = true;
                }
                while self.slice(core, 64) {}
            }
            for at in 0..self.clients.len() {
                busy |= self.clients[at].busy;
                self.writes(at);
            }
            if !busy {
                return;
            }
        }
    }

    // ── Clients ─────────────────────────────────────────────────────────────────────────────────────────────────

    fn joins(&mut self) {
        if self.clients.len() == CLIENTS {
            return;
        }
        self.keys += 1;
        let core = self.random.below(CORES as u64) as usize;
        let keyed = self.random.below(5) > 0;
        let subscribe = Subscribe {
            channels: vec![tv()],
            since: if keyed { Since::Key } else { Since::Now },
            form: Form(self.random.below(2) as u8),
            once: Once::Never,
            key: self.keys,
            member: None,
        };
        let id = self.cores[core].hub.subscribe(self.now, subscribe).expect("it is within limits");
        self.clients.push(Client {
            key: self.keys,
            core,
            id,
            keyed,
            busy: false,
            stalled: self.random.below(6) == 0,
            last: None,
            preamble: None,
            waits: true,
            gap: false,
        });
    }

    fn leaves(&mut self) {
        if let Some(at) = self.some_client() {
            let client = self.clients.swap_remove(at);
            self.cores[client.core].hub.leave(client.id);
        }
    }

    fn stalls(&mut self) {
        if let Some(at) = self.some_client() {
            self.clients[at].stalled = self.random.below(3) == 0;
        }
    }

    fn some_client(&mut self) -> Option<usize> {
        let count = self.clients.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn writes_out(&mut self) {
        for _ in 0..3 {
            if let Some(at) = self.some_client().filter(|at| !self.clients[*at].stalled) {
                self.writes(at);
            }
        }
    }

    fn writes(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if std::mem::take(&mut client.busy) {
            self.cores[client.core].hub.sent(client.id);
        }
    }

    // ── The model ───────────────────────────────────────────────────────────────────────────────────────────────

    fn reads(&mut self, delivery: Delivery) {
        let Some(at) = self.clients.iter().position(|client| client.key == delivery.key) else {
            panic!("seed {}: a delivery to a client that has left", self.seed);
        };
        assert!(!self.clients[at].busy, "seed {}: a delivery during a send", self.seed);
        match delivery.what {
            DeliveryContent::Started { gap, .. } => {
                assert!(gap.is_none() || !self.clients[at].keyed, "seed {}: a gap", self.seed);
                self.clients[at].busy = true;
            }
            DeliveryContent::Bytes(bytes) => {
                self.clients[at].busy = true;
                for word in bytes.chunks_exact(8) {
                    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                    self.receives(at, word);
                }
            }
            DeliveryContent::Ended => self.ends(at),
            DeliveryContent::Overrun => self.overruns(at),
            other => panic!("seed {}: nobody polls: {other:?}", self.seed),
        }
    }

    /// Returns whether the sequencer has dropped a message.
    fn is_dropped(&self, index: usize) -> bool {
        let first = self.sequencer.kept_messages(&tv(), 0, 1).next();
        first.is_none_or(|first| self.log[index].offset < first.offset)
    }

    /// Returns whether a break is behind the first of these messages.
    fn has_break(&self, after: usize, to: usize) -> bool {
        self.log[after + 1..=to].iter().any(|record| record.has(Flags::BREAK))
    }

    fn receives(&mut self, at: usize, offset: u64) {
        if offset == GAP {
            assert!(!self.clients[at].keyed, "seed {}: a gap", self.seed);
            self.met.count(Case::Gap);
            self.clients[at].gap = true;
            return;
        }
        let client = &self.clients[at];
        let index = self.log.binary_search_by_key(&offset, |record| record.offset);
        let index = index.expect("a message of the source");
        let record = self.log[index];
        let told = format!("seed {}: client {} after {:?}: {record:?}", self.seed, client.key, client.last);
        let follows = client.last.is_some_and(|last| last + 1 == index);
        if !client.keyed {
            assert!(follows || client.last.is_none() || client.gap, "{told}: lost without a gap");
            assert!(client.last.is_none_or(|last| last < index), "{told}: order");
            (self.clients[at].last, self.clients[at].gap) = (Some(index), false);
            return;
        }
        if let Some(last) = client.last {
            let before = self.log[last];
            assert!(last < index, "{told}: order");
            let inside = before.has(Flags::CONTINUES);
            assert!(!inside || follows && !record.begins, "{told}: a torn unit");
            assert!(!self.has_break(last, index), "{told}: crosses a break");
            if !follows && !client.waits {
                assert!(self.is_dropped(last + 1), "{told}: skips a message that is kept");
                let preamble = record.has(Flags::PREAMBLE);
                self.met.count(if preamble { Case::LaterPreamble } else { Case::Later });
            }
        }
        if record.has(Flags::PREAMBLE) {
            match client.last {
                None if self.is_dropped(index) => self.met.count(Case::Dropped),
                None => {}
                Some(_) => self.met.count(Case::Between),
            }
            let client = &mut self.clients[at];
            // For a subscriber that receives each message, the preamble is one of them.
            client.waits = client.waits || !follows;
            if !record.empty {
                client.preamble = Some(record.generation);
            }
            client.last = Some(index);
            return;
        }
        if client.waits || !follows {
            assert!(record.has(Flags::KEY_FRAME), "{told}: starts with another message than a key frame");
            let fed_to = self.cores[client.core].fed_to;
            let newer = self.log[index + 1..].iter().take_while(|record| record.offset <= fed_to);
            let newer = newer.filter(|record| record.has(Flags::KEY_FRAME)).count();
            assert!(newer == 0 || self.burst_ms > 0, "{told}: {newer} newer key frames");
            let start = self.log[..index].iter().rev().find(|record| record.has(Flags::PREAMBLE));
            // An empty preamble means that units need none.
            let needs = start.filter(|start| !start.empty).map(|start| start.generation);
            assert!(needs.is_none() || client.preamble == needs, "{told}: of another generation");
            self.met.count(if needs.is_some() { Case::WithPreamble } else { Case::Without });
            if client.last.is_some_and(|last| last + 1 < index) {
                self.met.count(Case::Wait);
            }
        }
        let client = &mut self.clients[at];
        (client.last, client.waits) = (Some(index), false);
    }

    fn ends(&mut self, at: usize) {
        let client = self.clients.swap_remove(at);
        let told = format!("seed {}: client {} ends after {:?}", self.seed, client.key, client.last);
        assert!(client.keyed, "{told}");
        let last = client.last.expect("one that has received nothing takes the new preamble");
        let next = self.log.get(last + 1).expect("something follows");
        if self.log[last].has(Flags::CONTINUES) && next.has(Flags::PREAMBLE) {
            return self.met.count(Case::TornEnd);
        }
        assert!(!self.log[last].has(Flags::CONTINUES), "{told}: a torn unit ends cleanly");
        assert!(self.has_break(last, self.log.len() - 1), "{told}: without a break");
        if next.has(Flags::BREAK) {
            return self.met.count(Case::Break);
        }
        assert!(client.waits || self.is_dropped(last + 1), "{told}: before a message that is kept");
        self.met.count(Case::MissedBreak);
    }

    fn overruns(&mut self, at: usize) {
        let client = self.clients.swap_remove(at);
        let told = format!("seed {}: client {} after {:?}", self.seed, client.key, client.last);
        let last = client.last.expect("one that has received nothing is never passed");
        assert!(client.keyed && self.log[last].has(Flags::CONTINUES), "{told}: outside of a unit");
        assert!(self.is_dropped(last + 1), "{told}: the rest of the unit is kept");
        self.met.count(Case::Overrun);
    }
}
