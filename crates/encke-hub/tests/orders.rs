//! Whatever the order in which queues deliver, every subscriber receives each message of its channels once and in order, or
//! gets a gap. Every gap is justified by a lost message.
//!
//! A seed makes a world: a sequencer, one to four hubs, and queues between them that deliver late and in pieces. Publishers
//! publish, and subscribers of all kinds connect, stall, disconnect and resume. A model predicts the results without rings,
//! passes or floors. It lists all messages of each channel, and the messages that each client must still receive. After each
//! step it reads the number of dropped messages from the sequencer. Every second world has a store. Its commits take time,
//! fail, or are stored although they are reported as failed, and they are all that survives a kill. `ENCKE_SEED=n` runs one
//! world, `ENCKE_SEEDS=n` runs n worlds.
//!
//! To show that the test finds faults, single lines were broken. The test found each at this seed:
//!
//! | fault | change | seed |
//! |---|---|---|
//! | the last node, unvisited, replaces a visited node that leaves | `Channel::leaves` without the two moves | 2 |
//! | a new channel has lost all earlier messages (false gaps) | `lost_to: self.newest` in `Sequencer::found_or_made` | 3 |
//! | a position equal to the loss counts as lost (false gaps) | `>=` in `Core::resume` of start.rs | 1 |
//! | a pass does not repeat after the head has moved | `Channel::touch` without `again` | 35 |
//! | a loss fed ahead of its offset moves the head | `Hub::feed`, `Feed::Lost` | 40 |
//! | subscribers at earlier positions receive shared bytes | `Encoded::fits` without `after` | 63 |
//! | only the last of two simultaneous gaps is delivered | `Hub::start` | 65 |
//! | messages of a failed commit stay in the store | `committed` without `durable.void.extend` | 2 |
//! | the offsets of a failed commit are assigned again | `take_commit`, `base` without `reserved_to` | 4 |
//! | the store forgets the losses of removed channels | `Durable::forget` without `forgotten_to` | 180 |
//! | the first message of a commit is not delivered | `committed`, `new.iter().skip(1)` | 2 |
//!
//! The fifth and the seventh were real bugs: this test found them in the first draft of the hub.

#[path = "orders/tally.rs"]
mod tally;
mod world;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use encke_hub::{
    ChannelRules, Commit, Deletion, Delivery, DeliveryContent, Draft, Encoder, Epoch, Feed, FeedRequest,
    Flags, Form, GapReason, Hub, HubNow, Member, Name, Once, Overrun, Position, Positions, PublishError,
    PublishTicket, Published, Publishing, Rules, Run, SavedChannel, SavedHistories, Sequencer, Since, Stored,
    Subscribe, SubscribeError, SubscriberId,
};

use world::{Random, Seeds};

use tally::Tally;

const SEEDS: u64 = 1_000;
const STEPS: usize = 260;
const CHANNELS: usize = 11;
const CLIENTS: usize = 20;
/// Offsets available until the next commit.
const CEILING: u64 = 1 << 32;
/// The channel with presence.
const LOUD: usize = 7;
/// The first durable channel, in worlds with a store.
const DURABLE: usize = 9;

#[test]
fn every_subscriber_gets_everything_in_order_or_is_told_of_a_gap_that_is_one() {
    let seeds = Seeds::of(SEEDS);
    let mut told = Tally::default();
    seeds.run(STEPS, |world: World| told.add(&world.tally));
    println!("{told:#?}");
    // A false gap fails the run where it occurs.
    println!("false gaps: 0");
    seeds.assert_met(told.faults());
}

struct World {
    seed: u64,
    random: Random,
    now: HubNow,
    rules: Arc<Rules>,
    names: Vec<Name>,
    sequencer: Sequencer,
    epoch: Epoch,
    cores: Vec<Core>,
    model: Vec<Model>,
    /// The highest loss of removed channels: in memory, and durable.
    forgotten_to: [u64; 2],
    /// All offsets assigned in this epoch.
    given: HashSet<u64>,
    disk: Option<Disk>,
    /// The commit in flight.
    flight: Option<Arc<Commit>>,
    /// Publishes that wait for a commit: channel, and hash of the data.
    waiting: HashMap<PublishTicket, (usize, u64)>,
    /// Deletes that wait for a commit.
    deletes: HashSet<PublishTicket>,
    clients: Vec<Client>,
    keys: u64,
    tally: Tally,
}

struct Core {
    hub: Hub,
    /// Feeds in transit to the hub, each with the newest offset when it was taken.
    feed: VecDeque<(Feed, u64)>,
    requests: VecDeque<FeedRequest>,
    /// The channels opened on this worker, with the losses fed to it.
    known: Vec<Option<u64>>,
}

/// A store as the sequencer sees it: the result of its commits.
#[derive(Default)]
struct Disk {
    messages: BTreeMap<(Name, u64), Stored>,
    lost: BTreeMap<Name, u64>,
    forgotten_to: u64,
    ceiling: u64,
    durability: Box<str>,
    /// Offsets up to which channels were deleted, including commits that were reported as failed.
    deleted: HashMap<Name, u64>,
}

impl Disk {
    fn apply(&mut self, commit: &Commit) {
        assert!(!commit.early, "nothing is acknowledged early here");
        (self.ceiling, self.forgotten_to) = (commit.ceiling, commit.forgotten_to);
        self.durability.clone_from(&commit.durability);
        for place in &commit.void {
            self.messages.remove(place);
        }
        for (name, to) in commit.lost.iter().chain(&commit.deleted) {
            self.messages.retain(|(other, offset), _| other != name || offset > to);
            let lost = self.lost.entry(name.clone()).or_default();
            *lost = (*lost).max(*to);
        }
        self.deleted.extend(commit.deleted.iter().cloned());
        for name in &commit.forgotten {
            self.lost.remove(name);
        }
        for stored in &commit.messages {
            let place = (stored.message.channel.clone(), stored.message.offset);
            assert!(!self.messages.contains_key(&place), "an offset is given once");
            self.messages.insert(place, stored.clone());
        }
    }

    /// The saved state after a crash.
    fn saved(&self, epoch: Epoch) -> SavedHistories {
        let mut channels: Vec<SavedChannel> = Vec::new();
        for ((name, _), stored) in &self.messages {
            if channels.last().is_none_or(|last| last.name != *name) {
                let lost_to = self.lost.get(name).copied().unwrap_or(self.forgotten_to);
                channels.push(SavedChannel {
                    name: name.clone(),
                    lost_to,
                    durable: true,
                    messages: Vec::new(),
                });
            }
            let last = channels.last_mut().expect("pushed above");
            last.messages.push(stored.clone());
        }
        for (name, lost_to) in &self.lost {
            if channels.iter().all(|channel| channel.name != *name) {
                let (name, lost_to) = (name.clone(), *lost_to);
                channels.push(SavedChannel { name, lost_to, durable: true, messages: Vec::new() });
            }
        }
        channels.sort_by_key(|channel| channel.messages.last().map(|stored| stored.message.offset));
        SavedHistories {
            epoch,
            newest: self.ceiling,
            forgotten_to: self.ceiling,
            durable_forgotten_to: self.forgotten_to,
            durability: self.durability.clone(),
            channels,
        }
    }
}

/// All messages that a channel ever had.
#[derive(Default)]
struct Model {
    records: Vec<Record>,
    /// Number of messages that the sequencer has dropped.
    evicted: usize,
    exists: bool,
    /// The loss that the channel was created with.
    born_lost: u64,
}

#[derive(Clone, Copy)]
struct Record {
    offset: u64,
    unix_ms: u64,
    /// Hash of the data; 0 for a join or a leave.
    hash: u64,
    /// A join or a leave dropped from between messages, which is no loss.
    dropped: bool,
}

impl Model {
    fn lost_to(&self) -> u64 {
        let lost = self.records[..self.evicted].iter().rev().find(|record| !record.dropped);
        lost.map_or(0, |record| record.offset)
    }

    fn index_after(&self, offset: u64) -> usize {
        self.records.partition_point(|record| record.offset <= offset)
    }

    /// Whether a message in this range is lost.
    fn lost_in(&self, after: u64, to: u64) -> bool {
        let mut gone = self.records[..self.evicted].iter().skip(self.index_after(after));
        gone.find(|record| !record.dropped).is_some_and(|first| first.offset <= to)
    }
}

struct Client {
    /// The identifier in the hub, a new one for each connection.
    key: u64,
    core: usize,
    id: Option<SubscriberId>,
    once: Once,
    form: Form,
    since: Since,
    /// Whether this connection has received a delivery.
    started: bool,
    busy: bool,
    /// The last position received.
    position: Option<Position>,
    /// The offset of its id until the first delivery, if the id was ahead of all messages when it was made.
    ahead: Option<u64>,
    /// Whether the client ever received a message.
    ever: bool,
    channels: Vec<Wish>,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    channel: usize,
    /// Messages after this offset must be delivered. While `pending`, none are required.
    need_after: u64,
    /// Losses up to this offset were reported to the client, or are older than its subscription.
    excused: u64,
    /// The channel was added to a running subscription, and is not open on the worker yet.
    pending: bool,
    /// The newest offset when the ring had passed the client. With [`Overrun::Latest`], older messages may be omitted.
    passed_at: u64,
}

/// A delivery, decoded.
#[derive(Debug)]
struct Read {
    messages: Vec<(u64, u64, usize)>,
    position: Position,
    gap: Option<(Position, Position, GapReason)>,
    more: u64,
}

impl world::World for World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let texts = ["a/1", "a/2", "s/1", "s/2", "l/1", "b/1", "t/1", "p/1", "x", "d/1", "d/2"];
        let names: Vec<Name> =
            texts.iter().map(|text| Name::parse(text.as_bytes()).expect("a name")).collect();
        let mut disk = seed.is_multiple_of(2).then(Disk::default);
        let rules = Arc::new(some_rules(&mut random, disk.is_some()));
        let cores = [1, 1, 2, 2, 3, 4][random.below(6) as usize];
        let epoch = Epoch(random.next());
        let now = HubNow { mono_ns: 1_000_000_000_000, unix_ms: 1_700_000_000_000 };
        let sequencer = match &mut disk {
            Some(disk) => {
                let saved = disk.saved(epoch);
                disk.ceiling = CEILING;
                Sequencer::restore(now, saved, CEILING, Arc::clone(&rules), cores)
            }
            None => Sequencer::new(epoch, Arc::clone(&rules), cores),
        };
        Self {
            seed,
            now,
            sequencer,
            disk,
            flight: None,
            waiting: HashMap::new(),
            deletes: HashSet::new(),
            epoch,
            cores: (0..cores).map(|core| Core::new(core, epoch, &rules)).collect(),
            model: (0..CHANNELS).map(|_| Model::default()).collect(),
            forgotten_to: [0; 2],
            given: HashSet::new(),
            clients: Vec::new(),
            keys: 0,
            tally: Tally::default(),
            rules,
            names,
            random,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..14 => self.publishes(),
            14..32 => self.carries_feed(),
            32..44 => self.carries_requests(),
            44..62 => self.slices(),
            62..76 => self.writes_out(),
            76..88 => self.subscribes(),
            88..91 => self.cuts(),
            91..93 => self.time_goes_by(),
            93..96 => self.changes(),
            96 => self.heartbeats(),
            97 => self.deletes(),
            98 => self.reloads(),
            _ => match self.random.below(4) {
                0 => self.restarts(),
                1 if self.disk.is_some() => self.is_killed(),
                1 => self.loses_its_epoch(),
                _ => self.publishes(),
            },
        }
        if self.disk.is_some() && self.random.below(4) == 0 {
            self.commits();
        }
    }

    /// Carries everything and lets every client read. After that no client may lack a message.
    fn settle(&mut self) {
        for at in 0..self.clients.len() {
            if self.clients[at].id.is_none() {
                continue;
            }
            if self.clients[at].busy {
                self.written(at);
            }
        }
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 1_000, "seed {}: it never comes to rest", self.seed);
            let mut rests = true;
            self.stores_all(self.now);
            for number in 0..self.cores.len() {
                self.takes_requests(number);
                while !self.cores[number].requests.is_empty() {
                    self.applies(number);
                    rests = false;
                }
            }
            for number in 0..self.cores.len() {
                while self.takes_feed(number, 7) {}
                while !self.cores[number].feed.is_empty() {
                    self.feeds(number);
                    rests = false;
                }
                while self.slice(number, 5) {
                    rests = false;
                }
            }
            for at in 0..self.clients.len() {
                if self.clients[at].busy {
                    self.written(at);
                    rests = false;
                }
            }
            if rests {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "seed {}: a publish was never answered", self.seed);
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            if client.id.is_none() {
                continue;
            }
            assert!(client.started, "seed {}: client {at} was told nothing", self.seed);
            for wish in &client.channels {
                let model = &self.model[wish.channel];
                let index = model.index_after(wish.need_after);
                let latest = self.rules.of(&self.names[wish.channel]).policy == Overrun::Latest;
                // The policy reports no loss.
                let index = if latest { index.max(model.evicted) } else { index };
                let lacks = model.records[index..].iter().find(|record| !record.dropped);
                let lacks = lacks.map(|record| record.offset);
                assert_eq!(lacks, None, "seed {}: {}", self.seed, self.tells(at));
            }
        }
        for core in &mut self.cores {
            assert_eq!(core.hub.memory(), 0, "seed {}: nobody holds bytes any more", self.seed);
            assert!(!core.hub.lag(self.now).exceeded);
            assert_eq!(core.hub.lag(self.now).behind_ns, 0);
        }
    }
}

impl World {
    // ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────

    fn publishes(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            let channel = self.random.below(CHANNELS as u64) as usize;
            let data: Box<[u8]> = (0..self.random.below(80)).map(|_| self.random.next() as u8).collect();
            let hash = hash(&data);
            let draft = Draft {
                channel: self.names[channel].clone(),
                data,
                content_type: None,
                event: None,
                flags: Flags::default(),
                key: None,
            };
            let publishing = match self.sequencer.publish(self.now, draft) {
                Err(PublishError::TooManyChannels { most }) => {
                    assert_eq!(most, self.rules.channels);
                    self.tally.refused_channels += 1;
                    continue;
                }
                publishing => publishing.expect("it is within limits"),
            };
            match publishing {
                Publishing::Done(Published { position, .. }) => {
                    assert!(self.disk.is_none() || channel < DURABLE, "it waits for its commit");
                    assert_eq!(position.epoch, self.epoch);
                    self.tally.published += 1;
                    self.records(channel, position.offset, hash);
                }
                Publishing::Queued { .. } => panic!("a store has no queue"),
                Publishing::Waits(ticket) => {
                    assert!(self.disk.is_some() && channel >= DURABLE, "no store is waited for");
                    self.tally.staged += 1;
                    self.waiting.insert(ticket, (channel, hash));
                }
            }
            let before: Vec<usize> = self.model.iter().map(|model| model.evicted).collect();
            self.looks();
            for (other, before) in before.into_iter().enumerate() {
                let evicted = (self.model[other].evicted - before) as u64;
                let kept = self.model[other].records.len() - self.model[other].evicted;
                if other != channel {
                    self.tally.evicted_by_memory += evicted;
                } else if kept == self.rules.of(&self.names[channel]).messages {
                    self.tally.evicted_by_count += evicted;
                } else {
                    self.tally.evicted_by_bytes += evicted;
                }
            }
        }
    }

    /// Begins a commit, or ends the current one with a random outcome.
    fn commits(&mut self) {
        let Some(commit) = self.flight.take() else {
            self.flight = self.takes_commit(self.now);
            return;
        };
        match self.random.below(8) {
            0 => {
                self.tally.failed_commits += 1;
                self.hears_of_commit(&commit, Err(PublishError::NotStored));
            }
            1 => {
                self.tally.failed_commits_that_are_there += 1;
                self.disk.as_mut().expect("it commits").apply(&commit);
                self.hears_of_commit(&commit, Err(PublishError::NoSpace));
            }
            _ => {
                self.tally.commits += 1;
                self.disk.as_mut().expect("it commits").apply(&commit);
                self.hears_of_commit(&commit, Ok(()));
                self.nothing_refused_is_stored();
            }
        }
    }

    /// A successful commit removes the messages of earlier failed commits.
    fn nothing_refused_is_stored(&self) {
        for (name, offset) in self.disk.iter().flat_map(|disk| disk.messages.keys()) {
            let channel = self.names.iter().position(|one| one == name).expect("a known name");
            let known = self.model[channel].records.iter().any(|record| record.offset == *offset);
            assert!(known, "seed {}: {offset} in {name} was refused, and is stored", self.seed);
        }
    }

    fn takes_commit(&mut self, moment: HubNow) -> Option<Arc<Commit>> {
        let commit = self.sequencer.take_commit(moment)?;
        for Stored { message, .. } in &commit.messages {
            let new = self.given.insert(message.offset);
            assert!(new, "seed {}: {} is given twice", self.seed, message.offset);
        }
        Some(commit)
    }

    fn hears_of_commit(&mut self, commit: &Commit, outcome: Result<(), PublishError>) {
        for (ticket, result) in self.sequencer.committed(self.now, outcome) {
            assert_eq!(result.map(drop), outcome, "seed {}", self.seed);
            if self.deletes.remove(&ticket) {
                self.tally.deleted += u64::from(result.is_ok());
                continue;
            }
            let (channel, hash) = self.waiting.remove(&ticket).expect("somebody waits for it");
            if let Ok(Published { position, .. }) = result {
                let offset = position.offset;
                let stored = commit.messages.iter().find(|stored| stored.message.offset == offset);
                // The time of the message is that of the start of its commit.
                let unix_ms = stored.expect("it was in the commit").message.unix_ms;
                self.model[channel].records.push(Record { offset, unix_ms, hash, dropped: false });
            }
        }
        self.looks();
    }

    /// Stores everything that is due at a moment.
    fn stores_all(&mut self, moment: HubNow) {
        loop {
            let taken = self.flight.take().or_else(|| self.takes_commit(moment));
            let Some(commit) = taken else { return };
            self.disk.as_mut().expect("it commits").apply(&commit);
            self.hears_of_commit(&commit, Ok(()));
        }
    }

    fn records(&mut self, channel: usize, offset: u64, hash: u64) {
        assert!(self.given.insert(offset), "seed {}: {offset} is given twice", self.seed);
        let record = Record { offset, unix_ms: self.now.unix_ms, hash, dropped: false };
        self.model[channel].records.push(record);
    }

    /// Compares the model with the messages that the sequencer keeps.
    fn looks(&mut self) {
        let mut memory = self.looks_at_events();
        for (channel, model) in self.model.iter_mut().enumerate() {
            let info = self.sequencer.info(&self.names[channel]);
            let messages = info.map_or(0, |info| info.messages);
            memory += info.map_or(0, |info| info.bytes);
            let first = info.and_then(|info| info.first).map_or(u64::MAX, |first| first.offset);
            let evicted = model.records.partition_point(|record| record.offset < first);
            assert!(evicted >= model.evicted, "seed {}: it has come back", self.seed);
            model.evicted = evicted;
            let kept = &model.records[evicted..];
            assert!(kept.first().is_none_or(|record| record.offset == first && !record.dropped));
            assert_eq!(kept.iter().filter(|record| record.hash != 0).count(), messages);
            assert!(messages <= self.rules.of(&self.names[channel]).messages.max(1));
        }
        assert_eq!(memory, self.sequencer.memory());
        // A publish creates its channel before it evicts messages of others.
        let kind = |channel: usize| usize::from(self.disk.is_some() && channel >= DURABLE);
        for (channel, model) in self.model.iter_mut().enumerate() {
            if !model.exists && self.sequencer.info(&self.names[channel]).is_some() {
                model.exists = true;
                model.born_lost = self.forgotten_to[kind(channel)];
            }
        }
        for (channel, model) in self.model.iter_mut().enumerate() {
            if model.exists && self.sequencer.info(&self.names[channel]).is_none() {
                model.exists = false;
                let forgotten_to = &mut self.forgotten_to[kind(channel)];
                *forgotten_to = (*forgotten_to).max(model.lost_to()).max(model.born_lost);
                self.tally.forgotten += 1;
            }
        }
        assert_eq!(self.forgotten_to[0], self.sequencer.forgotten_to(), "seed {}", self.seed);
    }

    /// Marks the joins and leaves that were dropped from between messages. Returns the bytes of the kept ones.
    fn looks_at_events(&mut self) -> u64 {
        let saved = self.sequencer.save();
        let found = saved.channels.iter().find(|saved| saved.name == self.names[LOUD]);
        let Some(SavedChannel { lost_to, messages, .. }) = found else { return 0 };
        let kept: Vec<&Stored> =
            messages.iter().filter(|stored| stored.message.flags.contains(Flags::CONTROL)).collect();
        let most = 2 * self.rules.of(&self.names[LOUD]).members;
        assert!(kept.len() <= most, "seed {}: {} joins and leaves are kept", self.seed, kept.len());
        let model = &mut self.model[LOUD];
        for record in model.records.iter_mut().filter(|record| record.hash == 0 && !record.dropped) {
            let there = kept.iter().any(|stored| stored.message.offset == record.offset);
            record.dropped = !there && record.offset > *lost_to;
            self.tally.events_dropped += u64::from(record.dropped);
        }
        kept.iter().map(|stored| stored.message.charge()).sum()
    }

    fn carries_feed(&mut self) {
        let number = self.random.below(self.cores.len() as u64) as usize;
        let most = 1 + self.random.below(12) as usize;
        self.takes_feed(number, most);
        for _ in 0..self.random.below(12) {
            self.feeds(number);
        }
    }

    fn takes_feed(&mut self, number: usize, most: usize) -> bool {
        let mut items = Vec::new();
        let more = self.sequencer.take_feed(number, most, &mut items);
        assert!(items.len() <= most);
        let newest = self.sequencer.newest().offset;
        self.cores[number].feed.extend(items.into_iter().map(|item| (item, newest)));
        more
    }

    fn feeds(&mut self, number: usize) {
        let core = &mut self.cores[number];
        let Some((item, newest)) = core.feed.pop_front() else { return };
        let place = |name: &Name| self.names.iter().position(|one| one == name).expect("a known name");
        let (channel, lost_to, opened) = match &item {
            Feed::Opened { channel, lost_to, .. } => (place(channel), *lost_to, true),
            Feed::Message { message, lost_to } => (place(&message.channel), *lost_to, false),
            Feed::Lost { channel, to, .. } => (place(channel), *to, false),
            Feed::Recalled { .. } => panic!("nobody asks for what is not kept"),
            Feed::Newest { .. } => {
                core.hub.feed(self.now, item);
                return;
            }
            Feed::Head { .. } => {
                self.tally.heads += 1;
                core.hub.feed(self.now, item);
                return;
            }
        };
        core.hub.feed(self.now, item);
        if opened || core.known[channel].is_some() {
            core.known[channel] = Some(lost_to);
        }
        if opened {
            for client in
                self.clients.iter_mut().filter(|client| client.core == number && client.id.is_some())
            {
                let ahead = client.position.map_or(0, |position| position.offset);
                let begins = !client.started && !client.since.resumes(self.epoch);
                for wish in client.channels.iter_mut().filter(|wish| wish.channel == channel) {
                    wish.excused = wish.excused.max(if begins { lost_to } else { 0 });
                    if std::mem::take(&mut wish.pending) {
                        wish.need_after = newest.max(ahead);
                        wish.excused = wish.excused.max(lost_to);
                    }
                }
            }
        }
    }

    fn carries_requests(&mut self) {
        let number = self.random.below(self.cores.len() as u64) as usize;
        self.takes_requests(number);
        for _ in 0..self.random.below(6) {
            self.applies(number);
        }
    }

    fn takes_requests(&mut self, number: usize) {
        let core = &mut self.cores[number];
        let mut taken = Vec::new();
        core.hub.take_requests(&mut taken);
        for request in &taken {
            if let FeedRequest::Unwant { channel } = request {
                let channel = self.names.iter().position(|name| name == channel).expect("a known name");
                core.known[channel] = None;
            }
        }
        core.requests.extend(taken);
    }

    /// Takes the requests of a hub at its limit, which may have released channels to make room for others.
    fn looks_for_released(&mut self, number: usize) {
        let core = &self.cores[number];
        if core.hub.channels() == self.rules.channels {
            let before = core.known.iter().flatten().count();
            self.takes_requests(number);
            let after = self.cores[number].known.iter().flatten().count();
            self.tally.released_channels += (before - after) as u64;
        }
    }

    fn applies(&mut self, number: usize) {
        let Some(request) = self.cores[number].requests.pop_front() else { return };
        let newest = self.sequencer.newest().offset;
        self.sequencer.apply(self.now, number, request);
        let told = self.sequencer.newest().offset;
        if told > newest {
            // A join or a leave was published in the channel.
            assert_eq!(told, newest + 1);
            self.records(LOUD, told, 0);
            self.tally.members_told += 1;
        }
        self.looks();
    }

    fn slices(&mut self) {
        let number = self.random.below(self.cores.len() as u64) as usize;
        let most = 1 + self.random.below(10) as usize;
        self.slice(number, most);
    }

    fn slice(&mut self, number: usize, most: usize) -> bool {
        let mut out = Vec::new();
        let mut made = 0;
        let channels = self.cores[number].hub.channels();
        let more = self.cores[number].hub.slice(self.now, most, &mut Plain { made: &mut made }, &mut out);
        assert!(out.len() <= most);
        if self.cores[number].hub.channels() < channels {
            // The hub has released channels: takes its requests now, to update `known`.
            self.takes_requests(number);
        }
        let bytes = out
            .iter()
            .filter(|one| matches!(one.what, DeliveryContent::Bytes(_) | DeliveryContent::Last(_)))
            .count() as u64;
        self.tally.shared += bytes - made;
        for delivery in out {
            self.reads(number, delivery);
        }
        more
    }

    fn writes_out(&mut self) {
        for _ in 0..3 {
            let Some(at) = self.some_client(|client| client.busy) else { return };
            self.written(at);
        }
    }

    fn written(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.busy = false;
        let id = client.id.expect("who is busy is there");
        self.cores[client.core].hub.sent(id);
    }

    fn subscribes(&mut self) {
        if self.clients.len() < CLIENTS && (self.clients.is_empty() || self.random.below(3) == 0) {
            let client = self.some_new_client();
            self.clients.push(client);
            self.connects(self.clients.len() - 1);
        } else if let Some(at) = self.some_client(|client| client.id.is_none()) {
            let ahead = self.sequencer.newest().offset + 1 + self.random.below(4);
            let jumps = self.random.below(12) == 0;
            let client = &mut self.clients[at];
            if jumps {
                let position = Position { epoch: self.epoch, offset: ahead };
                client.since = Since::After(position.into());
                client.position = Some(position);
                client.ahead = Some(ahead);
                for wish in &mut client.channels {
                    (wish.need_after, wish.excused) = (ahead, ahead);
                }
                self.tally.ids_ahead += 1;
            } else if let Some(position) = client.position {
                client.since = Since::After(position.into());
                self.tally.resumes += 1;
                self.tally.resumes_before_the_first_message += u64::from(!client.ever);
            }
            self.connects(at);
        }
    }

    fn some_new_client(&mut self) -> Client {
        let mut channels: Vec<usize> = Vec::new();
        // In every third world all clients subscribe to the channel with presence.
        if self.seed.is_multiple_of(3) {
            channels.push(LOUD);
        }
        for _ in 0..[1, 1, 2, 3, 5][self.random.below(5) as usize] {
            // Some channels are more popular than others, so that subscribers share bytes.
            let channel = self.random.below(CHANNELS as u64).min(self.random.below(CHANNELS as u64)) as usize;
            if !channels.contains(&channel) {
                channels.push(channel);
            }
        }
        let wish = |channel| Wish { channel, need_after: 0, excused: 0, pending: false, passed_at: 0 };
        let since = match self.random.below(6) {
            0 => Since::All,
            1 => Since::Last(self.random.below(5) as u32),
            2 => Since::Age { ms: self.random.below(400) },
            3 => Since::After(
                Position { epoch: Epoch(self.epoch.0 ^ 1), offset: self.random.below(50) }.into(),
            ),
            _ => Since::Now,
        };
        Client {
            key: 0,
            core: 0,
            id: None,
            once: [Once::Never, Once::Never, Once::Oldest, Once::All][self.random.below(4) as usize],
            form: Form(u8::from(self.random.below(4) == 0)),
            since,
            started: false,
            busy: false,
            position: None,
            ahead: None,
            ever: false,
            channels: channels.into_iter().map(wish).collect(),
        }
    }

    fn connects(&mut self, at: usize) {
        self.keys += 1;
        let member = (self.random.below(2) == 0)
            .then(|| Member { name: format!("m{}", at % 9).into(), client: Some(1) });
        let client = &mut self.clients[at];
        client.key = self.keys;
        client.core = self.random.below(self.cores.len() as u64) as usize;
        client.started = false;
        client.busy = false;
        let core = &mut self.cores[client.core];
        for wish in &mut client.channels {
            if std::mem::take(&mut wish.pending) {
                wish.need_after = client.position.map_or(0, |position| position.offset);
            }
            let known = core.known[wish.channel].unwrap_or(0);
            wish.excused = if client.since.resumes(self.epoch) { 0 } else { known };
            wish.passed_at = if client.since.resumes(self.epoch) { wish.passed_at } else { 0 };
        }
        let subscribe = Subscribe {
            channels: client.channels.iter().map(|wish| self.names[wish.channel].clone()).collect(),
            since: client.since.clone(),
            form: client.form,
            once: client.once,
            key: client.key,
            member,
        };
        let number = client.core;
        match core.hub.subscribe(self.now, subscribe) {
            Ok(id) => client.id = Some(id),
            Err(SubscribeError::TooManyChannels { .. }) => self.tally.refused_channels += 1,
            Err(refused) => panic!("{refused}"),
        }
        self.looks_for_released(number);
    }

    fn cuts(&mut self) {
        let Some(at) = self.some_client(|client| client.id.is_some()) else { return };
        self.tally.cuts += 1;
        self.tally.cuts_in_flight += u64::from(self.clients[at].busy);
        // A poll that times out receives its position.
        if self.clients[at].once != Once::Never && self.clients[at].started {
            self.hears_its_position(at);
        }
        let client = &mut self.clients[at];
        let id = client.id.take().expect("it is there");
        client.busy = false;
        self.cores[client.core].hub.leave(id);
    }

    fn heartbeats(&mut self) {
        if let Some(at) = self.some_client(|client| client.id.is_some() && client.started) {
            self.hears_its_position(at);
        }
    }

    fn hears_its_position(&mut self, at: usize) {
        let client = &self.clients[at];
        let id = client.id.expect("it is there");
        if let Some(position) = self.cores[client.core].hub.position_of(id) {
            let position = only(&position);
            self.gets(at, &Read { messages: Vec::new(), position, gap: None, more: 0 });
        }
    }

    fn time_goes_by(&mut self) {
        let ms = match self.random.below(8) {
            0 => 35_000,
            1 => 11_000,
            _ => self.random.below(150),
        };
        self.now.mono_ns += ms * 1_000_000;
        self.now.unix_ms += ms;
        let before: usize = self.model.iter().map(|model| model.evicted).sum();
        let newest = self.sequencer.newest().offset;
        let next = self.sequencer.expire(self.now);
        assert!(next.is_none_or(|next| next > self.now.mono_ns));
        for offset in newest + 1..=self.sequencer.newest().offset {
            // A delayed join.
            self.records(LOUD, offset, 0);
            self.tally.members_told_later += 1;
        }
        self.looks();
        let after: usize = self.model.iter().map(|model| model.evicted).sum();
        self.tally.expired += (after - before) as u64;
    }

    fn changes(&mut self) {
        let streams = |client: &Client| client.id.is_some() && client.once == Once::Never;
        let Some(at) = self.some_client(streams) else { return };
        let (added, removed) = (self.random.below(CHANNELS as u64), self.random.below(CHANNELS as u64));
        let (added, removed) = (added as usize, removed as usize);
        // Before the start, a channel may be added in time for the start or after it: that depends on the queues.
        let client = &self.clients[at];
        if added == removed || !(client.started || client.since == Since::Now) {
            return;
        }
        let newest = self.sequencer.newest().offset;
        let client = &mut self.clients[at];
        let core = &mut self.cores[client.core];
        let id = client.id.expect("it is there");
        let (add, remove) = ([self.names[added].clone()], [self.names[removed].clone()]);
        if let Err(refused) = core.hub.change(self.now, id, &add, &remove) {
            assert!(matches!(refused, SubscribeError::TooManyChannels { .. }), "{refused}");
            self.tally.refused_channels += 1;
            let number = client.core;
            return self.looks_for_released(number);
        }
        client.channels.retain(|wish| wish.channel != removed);
        if !client.channels.iter().any(|wish| wish.channel == added) {
            let known = core.known[added];
            let ahead = client.position.map_or(0, |position| position.offset);
            client.channels.push(Wish {
                channel: added,
                need_after: if known.is_some() { newest.max(ahead) } else { u64::MAX },
                excused: known.unwrap_or(0),
                pending: known.is_none(),
                passed_at: 0,
            });
        }
        let number = client.core;
        self.looks_for_released(number);
        self.tally.changes += 1;
    }

    fn deletes(&mut self) {
        let channel = self.random.below(CHANNELS as u64) as usize;
        match self.sequencer.delete(&self.names[channel]) {
            Deletion::Waits(ticket) => assert!(self.deletes.insert(ticket)),
            Deletion::Done => self.tally.deleted += 1,
            Deletion::Absent => {}
        }
        self.looks();
    }

    fn reloads(&mut self) {
        self.rules = Arc::new(some_rules(&mut self.random, self.disk.is_some()));
        self.sequencer.reload(Arc::clone(&self.rules));
        for core in &mut self.cores {
            core.hub.reload(Arc::clone(&self.rules));
        }
        self.looks();
        self.tally.reloads += 1;
    }

    /// A planned shutdown, before which all waiting publishers get their results.
    fn restarts(&mut self) {
        // Including changes that are not worth a commit of their own.
        self.stores_all(HubNow { mono_ns: u64::MAX, ..self.now });
        self.nothing_refused_is_stored();
        assert!(self.waiting.is_empty(), "seed {}: nobody waits any more", self.seed);
        let saved = self.sequencer.save();
        let ceiling = self.disk.as_mut().map_or(u64::MAX, |disk| {
            disk.ceiling = saved.newest + CEILING;
            disk.ceiling
        });
        self.sequencer =
            Sequencer::restore(self.now, saved, ceiling, Arc::clone(&self.rules), self.cores.len());
        self.begins_anew();
        self.looks();
        self.tally.restarts += 1;
        self.tally.restarts_of_a_store += u64::from(self.disk.is_some());
    }

    /// A crash: only stored messages survive.
    fn is_killed(&mut self) {
        let disk = self.disk.as_mut().expect("only with a store");
        if let Some(commit) = self.flight.take()
            && self.random.below(2) == 0
        {
            disk.apply(&commit);
        }
        let saved = disk.saved(self.epoch);
        assert!(saved.newest >= self.sequencer.newest().offset, "seed {}: an offset comes again", self.seed);
        disk.ceiling = saved.newest + CEILING;
        self.forgotten_to = [saved.forgotten_to, saved.durable_forgotten_to];
        if saved.durability.is_empty() {
            // The store does not know yet which channels are durable.
            self.forgotten_to[1] = saved.forgotten_to.max(saved.durable_forgotten_to);
        }
        for (channel, model) in self.model.iter_mut().enumerate() {
            let found = saved.channels.iter().find(|found| found.name == self.names[channel]);
            let stored: &[Stored] = found.map_or(&[], |found| &found.messages);
            if channel >= DURABLE {
                for record in &model.records[model.evicted..] {
                    let there = stored.iter().any(|stored| stored.message.offset == record.offset);
                    let deleted =
                        disk.deleted.get(&self.names[channel]).is_some_and(|to| record.offset <= *to);
                    assert!(
                        there || deleted,
                        "seed {}: what was acknowledged is gone: {}",
                        self.seed,
                        record.offset
                    );
                }
            }
            for Stored { message, .. } in stored {
                if model.records.iter().all(|record| record.offset != message.offset) {
                    // The message is stored although its publish was not acknowledged.
                    let (offset, unix_ms, hash) = (message.offset, message.unix_ms, hash(&message.data));
                    model.records.push(Record { offset, unix_ms, hash, dropped: false });
                    self.tally.refused_and_there += 1;
                }
            }
            model.records.sort_by_key(|record| record.offset);
            // Messages that the ring had dropped and the store had not are back.
            model.evicted = model.records.len() - stored.len();
            let kept = model.records[model.evicted..].iter().map(|record| record.offset);
            assert!(kept.eq(stored.iter().map(|stored| stored.message.offset)), "seed {}", self.seed);
            model.exists = found.is_some();
            model.born_lost = found.map_or(0, |found| found.lost_to);
            self.tally.kept_over_a_kill += stored.len() as u64;
        }
        self.waiting.clear();
        self.deletes.clear();
        let ceiling = disk.ceiling;
        self.sequencer =
            Sequencer::restore(self.now, saved, ceiling, Arc::clone(&self.rules), self.cores.len());
        self.begins_anew();
        self.looks();
        self.tally.kills += 1;
    }

    fn loses_its_epoch(&mut self) {
        self.epoch = Epoch(self.random.next());
        self.sequencer = Sequencer::new(self.epoch, Arc::clone(&self.rules), self.cores.len());
        self.model = (0..CHANNELS).map(|_| Model::default()).collect();
        self.forgotten_to = [0; 2];
        self.given.clear();
        self.begins_anew();
        self.tally.new_epochs += 1;
    }

    fn begins_anew(&mut self) {
        self.cores = (0..self.cores.len()).map(|core| Core::new(core, self.epoch, &self.rules)).collect();
        for client in &mut self.clients {
            client.id = None;
            client.busy = false;
        }
    }

    // ── Deliveries ──────────────────────────────────────────────────────────────────────────────────────────────

    fn reads(&mut self, core: usize, delivery: Delivery) {
        let at = self.clients.iter().position(|client| client.id.is_some() && client.key == delivery.key);
        let at = at.expect("who is told something is there");
        let client = &mut self.clients[at];
        assert_eq!((client.core, client.id), (core, Some(delivery.subscriber)));
        assert!(!client.busy, "seed {}: two things at once", self.seed);
        let first = !std::mem::replace(&mut client.started, true);
        match delivery.what {
            DeliveryContent::Started { position, gap } => {
                assert!(first && client.once == Once::Never);
                client.busy = true;
                let gap = gap.map(|gap| (only(&gap.from), only(&gap.to), gap.reason));
                let position = only(&position);
                self.learns_of_id_ahead(at, gap);
                // With several channels, a channel opened for the client may start after the client's position.
                let exact = self.clients[at].channels.len() == 1;
                self.begins(at, exact.then_some(position.offset));
                self.gets(at, &Read { messages: Vec::new(), position, gap, more: 0 });
            }
            DeliveryContent::Bytes(bytes) => {
                assert!(!first && client.once == Once::Never);
                client.busy = true;
                self.gets(at, &Read::from(&bytes));
            }
            DeliveryContent::Last(bytes) => {
                let read = Read::from(&bytes);
                let most = if client.once == Once::Oldest { 1 } else { 64 };
                assert!(client.once != Once::Never && read.messages.len() <= most);
                assert!(!read.messages.is_empty() || read.gap.is_some());
                if first {
                    self.learns_of_id_ahead(at, read.gap);
                    self.begins(at, Some(read.position.offset));
                }
                self.gets(at, &read);
                self.clients[at].id = None;
            }
            DeliveryContent::Waiting => {
                assert!(first && client.once != Once::Never);
                self.learns_of_id_ahead(at, None);
                self.begins(at, None);
                self.tally.waits += 1;
            }
            DeliveryContent::Ended => panic!("no channel has a preamble"),
            DeliveryContent::Overrun => {
                assert!(!first && client.once == Once::Never);
                assert!(self.is_lost(at, u64::MAX), "seed {}: an overrun without a loss", self.seed);
                self.clients[at].id = None;
                self.tally.overruns += 1;
            }
        }
    }

    /// Checks the first delivery to a client whose id was ahead of all messages. Either it has a gap, and the client starts as
    /// with the id of another epoch. Or a message with that offset was published meanwhile.
    fn learns_of_id_ahead(&mut self, at: usize, gap: Option<(Position, Position, GapReason)>) {
        let client = &mut self.clients[at];
        let Some(offset) = client.ahead.take().filter(|_| client.since.resumes(self.epoch)) else { return };
        match gap {
            Some((from, _, GapReason::Epoch)) => {
                assert_eq!(from, Position { epoch: self.epoch, offset });
                client.since = Since::After(Position { epoch: Epoch(self.epoch.0 ^ 1), offset }.into());
                let known = &self.cores[client.core].known;
                for wish in &mut client.channels {
                    wish.excused = known[wish.channel].unwrap_or(0);
                }
                self.tally.gaps_ahead += 1;
            }
            _ => {
                let newest = self.sequencer.newest().offset;
                assert!(newest >= offset, "seed {}: {offset} of {newest} is a position", self.seed);
            }
        }
    }

    /// Sets the messages that a client must receive, according to its `since`. New messages start after `news` if it is given,
    /// else now.
    fn begins(&mut self, at: usize, news: Option<u64>) {
        let newest = self.sequencer.newest().offset;
        let client = &mut self.clients[at];
        let set: Vec<usize> = client.channels.iter().map(|wish| wish.channel).collect();
        // Joins and leaves do not count.
        let last = |count: usize| {
            let mut all: Vec<Record> =
                set.iter().flat_map(|one| self.model[*one].records.iter().copied()).collect();
            all.sort_unstable_by_key(|record| record.offset);
            let mut left = count;
            while left > 0 && !all.is_empty() {
                left -= usize::from(all.pop().is_some_and(|record| record.hash != 0));
            }
            all.last().map_or(0, |record| record.offset)
        };
        for wish in &mut client.channels {
            let model = &self.model[wish.channel];
            let lost_to = model.lost_to();
            wish.need_after = match &client.since {
                Since::Key => unreachable!("no client starts at a key frame"),
                // A client that resumes needs the same messages as before.
                Since::After(positions) if positions.of(self.epoch).is_some() => wish.need_after,
                Since::After(_) | Since::All => lost_to,
                Since::Now => news.unwrap_or(newest),
                Since::Last(count) => last(*count as usize).max(lost_to),
                Since::Age { ms } => {
                    let from_ms = self.now.unix_ms.saturating_sub(*ms);
                    let old = model.records.partition_point(|record| record.unix_ms < from_ms);
                    old.checked_sub(1).map_or(0, |index| model.records[index].offset).max(lost_to)
                }
            };
            if wish.pending {
                wish.need_after = u64::MAX;
            }
        }
        if !client.since.resumes(self.epoch) {
            client.position = None;
        }
    }

    /// Checks a delivery: messages in order, and none omitted without a gap.
    fn gets(&mut self, at: usize, read: &Read) {
        let Read { messages, position, gap, more } = read;
        assert_eq!(position.epoch, self.epoch);
        let seed = self.seed;
        if let Some((from, to, reason)) = *gap {
            self.hears_of_gap(at, from, to, reason);
        }
        let before = match self.clients[at].position {
            Some(position) if position.epoch == self.epoch => position.offset,
            _ => 0,
        };
        assert!(position.offset >= before, "seed {seed}: {read:?} goes back: {}", self.tells(at));
        let mut last = before;
        for (offset, hash, channel) in messages {
            assert!(*offset > last, "seed {seed}: client {at} got {offset} behind {last}");
            assert!(*offset <= position.offset);
            let model = &self.model[*channel];
            let record = model.records[..].iter().rev().find(|record| record.offset == *offset);
            let record = record.expect("a message that was published there");
            assert_eq!(record.hash, *hash);
            let wished = self.clients[at].channels.iter().any(|wish| wish.channel == *channel);
            assert!(wished, "seed {seed}: client {at} did not ask for channel {channel}");
            last = *offset;
        }
        self.tally.delivered += messages.len() as u64;
        let client = &mut self.clients[at];
        let behind = |wish: &Wish| {
            let model = &self.model[wish.channel];
            model.records.len() - model.index_after(position.offset)
        };
        assert!(
            *more <= client.channels.iter().map(behind).sum::<usize>() as u64,
            "seed {seed}: more than there are"
        );
        let mut lacking = None;
        let newest = self.sequencer.newest().offset;
        for wish in &mut client.channels {
            let model = &self.model[wish.channel];
            let latest = self.rules.of(&self.names[wish.channel]).policy == Overrun::Latest;
            let passed = model.lost_in(before, u64::MAX) || model.born_lost > before;
            if latest && passed {
                wish.passed_at = newest;
            }
            let needed = &model.records[model.index_after(wish.need_after)..];
            for record in needed.iter().take_while(|record| record.offset <= position.offset) {
                let came = messages.iter().any(|(offset, ..)| *offset == record.offset);
                if !came && !record.dropped {
                    if record.offset > wish.passed_at {
                        lacking = lacking.or(Some((record.offset, wish.channel)));
                    }
                    self.tally.skipped_to_the_latest += 1;
                }
            }
        }
        assert!(lacking.is_none(), "seed {seed}: lacks {lacking:?} in {read:?}: {}", self.tells(at));
        let client = &mut self.clients[at];
        for wish in &mut client.channels {
            wish.need_after = wish.need_after.max(position.offset);
        }
        client.ever |= !messages.is_empty();
        client.position = Some(*position);
    }

    /// Checks a gap: messages in it must be lost.
    fn hears_of_gap(&mut self, at: usize, from: Position, to: Position, reason: GapReason) {
        let seed = self.seed;
        if reason == GapReason::Epoch {
            let foreign = !self.clients[at].since.resumes(self.epoch);
            assert!(from.epoch != self.epoch || foreign, "seed {seed}: a false gap");
            self.tally.gaps_epoch += 1;
        } else {
            let lost = self.is_lost(at, to.offset);
            assert!(lost, "seed {seed}: a false gap {from:?} {to:?} {reason:?}: {}", self.tells(at));
            match reason {
                GapReason::Away => self.tally.gaps_away += 1,
                _ => self.tally.gaps_late += 1,
            }
        }
        let client = &mut self.clients[at];
        let known = &self.cores[client.core].known;
        for wish in &mut client.channels {
            let model = &self.model[wish.channel];
            let gone = &model.records[..model.evicted];
            let told = gone.partition_point(|record| record.offset <= to.offset);
            let told = told.checked_sub(1).map_or(0, |index| gone[index].offset);
            wish.need_after = wish.need_after.max(told);
            // The gap covers losses known to the worker. Losses fed later are separate gaps.
            wish.excused = wish.excused.max(known[wish.channel].unwrap_or(0).min(to.offset));
        }
    }

    /// Returns whether a message that a client lacks is lost, up to an offset.
    fn is_lost(&mut self, at: usize, to: u64) -> bool {
        let client = &self.clients[at];
        let asked = match &client.since {
            Since::After(positions) => positions.of(self.epoch),
            _ => None,
        };
        let position = client.position.filter(|position| position.epoch == self.epoch);
        let position = position.map(|position| position.offset).or(asked).unwrap_or(0);
        let mut forgotten = false;
        for wish in &client.channels {
            let model = &self.model[wish.channel];
            let after = position.max(wish.excused);
            if model.lost_in(after, to) {
                return true;
            }
            forgotten |= model.born_lost > after && model.born_lost <= to;
        }
        self.tally.gaps_of_forgotten_channels += u64::from(forgotten);
        forgotten
    }

    /// Describes a client for a failure message.
    fn tells(&self, at: usize) -> String {
        let client = &self.clients[at];
        let mut told = format!("client {at} {:?} {:?} {:?}", client.once, client.since, client.position);
        for wish in &client.channels {
            let model = &self.model[wish.channel];
            let gone: Vec<u64> = model.records[..model.evicted].iter().map(|record| record.offset).collect();
            told += &format!("\n{wish:?} gone {gone:?} born {} exists {}", model.born_lost, model.exists);
        }
        told
    }

    fn some_client(&mut self, of: impl Fn(&Client) -> bool) -> Option<usize> {
        let which: Vec<usize> = (0..self.clients.len()).filter(|at| of(&self.clients[*at])).collect();
        if which.is_empty() { None } else { Some(which[self.random.below(which.len() as u64) as usize]) }
    }
}

trait Resumes {
    fn resumes(&self, epoch: Epoch) -> bool;
}

impl Resumes for Since {
    /// Returns whether the subscription resumes in this epoch.
    fn resumes(&self, epoch: Epoch) -> bool {
        matches!(self, Self::After(positions) if positions.of(epoch).is_some())
    }
}

impl Core {
    fn new(core: usize, epoch: Epoch, rules: &Arc<Rules>) -> Self {
        Self {
            hub: Hub::new(core, epoch, Arc::clone(rules)),
            feed: VecDeque::new(),
            requests: VecDeque::new(),
            known: vec![None; CHANNELS],
        }
    }
}

fn some_rules(random: &mut Random, durable: bool) -> Rules {
    let mut rules = Rules::default();
    rules.memory_bytes = 1_500 + random.below(6_000);
    if random.below(3) == 0 {
        rules.channels = 3 + random.below(8) as usize;
    }
    rules.default = ChannelRules { messages: 4, age_ms: 20_000, ..ChannelRules::default() };
    let base = rules.default;
    let mut set = |pattern: &str, one: ChannelRules| rules.set(pattern.parse().expect("a pattern"), one);
    set("a/*", ChannelRules { messages: 2 + random.below(6) as usize, ..base });
    set("s/*", ChannelRules { policy: Overrun::Skip, messages: 1 + random.below(5) as usize, ..base });
    set("l/1", ChannelRules { policy: Overrun::Latest, messages: 1 + random.below(3) as usize, ..base });
    set("b/1", ChannelRules { messages: 50, bytes: 200 + random.below(500), ..base });
    set("t/1", ChannelRules { messages: 50, age_ms: random.below(200), ..base });
    set("d/*", ChannelRules { durable, messages: 2 + random.below(5) as usize, ..base });
    let members = 1 + random.below(3) as usize;
    set("p/1", ChannelRules { presence: random.below(4) > 0, members, ..base });
    rules.join_rate = NonZeroU32::new(random.below(3).min(1) as u32);
    rules
}

/// Encodes runs for the checks of this test.
struct Plain<'a> {
    made: &'a mut u64,
}

impl Encoder for Plain<'_> {
    fn encode(&mut self, form: Form, run: &Run<'_>, out: &mut Vec<u8>) {
        *self.made += 1;
        let mut put = |number: u64| out.extend(number.to_le_bytes());
        put(u64::from(form.0));
        put(run.position.epoch.0);
        put(run.position.offset);
        put(run.more as u64);
        put(run.gap.map_or(0, |gap| 1 + gap.reason as u64));
        for end in run.gap.iter().flat_map(|gap| [only(&gap.from), only(&gap.to)]) {
            put(end.epoch.0);
            put(end.offset);
        }
        for message in run.messages {
            put(message.offset);
            put(if message.flags.contains(Flags::CONTROL) { 0 } else { hash(&message.data) });
            put(match message.channel.as_str() {
                "a/1" => 0,
                "a/2" => 1,
                "s/1" => 2,
                "s/2" => 3,
                "l/1" => 4,
                "b/1" => 5,
                "t/1" => 6,
                "p/1" => 7,
                "x" => 8,
                "d/1" => 9,
                _ => 10,
            });
        }
    }
}

/// Returns the position in the only stream.
fn only(positions: &Positions) -> Position {
    positions.as_slice()[0]
}

impl Read {
    fn from(bytes: &[u8]) -> Self {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut word = || words.next().expect("a whole run");
        let _form = word();
        let position = Position { epoch: Epoch(word()), offset: word() };
        let more = word();
        let reason = match word() {
            0 => None,
            1 => Some(GapReason::Away),
            2 => Some(GapReason::Late),
            _ => Some(GapReason::Epoch),
        };
        let gap = reason.map(|reason| {
            let from = Position { epoch: Epoch(word()), offset: word() };
            (from, Position { epoch: Epoch(word()), offset: word() }, reason)
        });
        let rest: Vec<u64> = words.collect();
        let messages = rest.chunks_exact(3).map(|one| (one[0], one[1], one[2] as usize)).collect();
        Self { messages, position, gap, more }
    }
}

fn hash(data: &[u8]) -> u64 {
    // FNV-1a, but never 0, which marks joins and leaves.
    data.iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
        | 1
}
