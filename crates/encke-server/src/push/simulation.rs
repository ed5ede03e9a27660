//! Push in the simulator: whole servers of one to four workers, publishers, subscribers that are cut and come back,
//! faults of the world; one seed a run.
//!
//! Every message says where it was published and is the only one of its kind. A subscriber keeps what it was told:
//! events and gaps, in order. At the end each pair of neighbours in that account is held against everything that is
//! known to have been published:
//!
//! ```text
//! event 7 ─► event 12   no message of its channels lies between
//! event 7 ─► gap 7..20  at least one message of its channels lies there: no gap without a loss
//! ```

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_hub::Position;
use encke_io::sim::{Client, Conditions, End, World};
use encke_io::{Reactor as _, SimReactor, Token};
use encke_wire::http1::ChunkedDecoder;
use encke_wire::sse::{Event, Parser};

use super::Push;
use super::plan::PushPlan;
use super::rights::{Act, Openness, Shut};
use crate::census::Census;
use crate::conn::Conn;
use crate::exchange::{Link, Message};
use crate::log::Access;
use crate::plan::{MountPoint, Plan};
use crate::policy::Policy;
use crate::settings::{AuthSettings, ChannelSettings, PushSettings};
use crate::worker::{Command, Core, DoorKind, Shared, Turn, Worker};

/// In CI. `ENCKE_SIM_SEEDS=A-B` runs others.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=1_000;
const CHANNELS: [&str; 4] = ["a", "b", "c", "d"];
const PUBLISHERS: usize = 3;
const SUBSCRIBERS: usize = 6;
/// Messages a channel keeps: few, so that many are lost.
const KEPT: u32 = 6;
const MESSAGES: usize = 60;
const STEPS_MAX: usize = 400_000;

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

/// Everything that is known to have been published: by an answer to its publisher, or because somebody got it.
#[derive(Default)]
struct Known {
    /// Channel and text of each offset.
    messages: BTreeMap<u64, (String, String)>,
    /// Publishes whose answer was lost: what they were may be in the stream or not.
    uncertain: HashSet<String>,
}

impl Known {
    fn learn(&mut self, seed: u64, id: &str, channel: &str, text: &str) {
        let offset = id.parse::<Position>().expect("an id of ours").offset;
        let new = (channel.to_owned(), text.to_owned());
        let old = self.messages.entry(offset).or_insert_with(|| new.clone());
        assert_eq!(*old, new, "seed {seed}: one offset, two messages");
    }

    /// Whether a message of some channels lies in `(after, to]`.
    fn between(&self, channels: &[&str], after: u64, to: u64) -> Option<u64> {
        if after >= to {
            return None;
        }
        let mut range = self.messages.range(after + 1..=to);
        range.find(|(_, (channel, _))| channels.contains(&channel.as_str())).map(|(offset, _)| *offset)
    }
}

/// Publishes one message after the other, each on the answer to the one before.
struct Publisher {
    client: Option<Client>,
    number: usize,
    said: usize,
    wire: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// What waits for its answer.
    asked: Option<(String, String)>,
}

impl Publisher {
    fn new(number: usize) -> Self {
        Self { client: None, number, said: 0, wire: Vec::new(), sent: 0, received: Vec::new(), asked: None }
    }

    fn done(&self) -> bool {
        self.said == MESSAGES / PUBLISHERS && self.asked.is_none()
    }

    fn visit(&mut self, seed: u64, world: &World, known: &mut Known) {
        if self.done() {
            self.client = None;
            return;
        }
        if self.asked.is_none() {
            let channel = CHANNELS[world.chance(CHANNELS.len() as u64) as usize].to_owned();
            let text = format!("{channel}:{}:{}", self.number, self.said);
            self.said += 1;
            self.wire = format!(
                "POST /push/{channel} HTTP/1.1\r\nHost: sim\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
            .into_bytes();
            (self.sent, self.received) = (0, Vec::new());
            self.asked = Some((channel, text));
        }
        let client = self.client.get_or_insert_with(|| world.connect(address()));
        let wish = (1 + world.chance(200) as usize).min(self.wire.len() - self.sent);
        self.sent += client.send(&self.wire[self.sent..self.sent + wish]);
        self.received.extend(client.take());
        let text = String::from_utf8_lossy(&self.received).into_owned();
        if text.ends_with("}\n") {
            let (channel, said) = self.asked.take().expect("it waits for this");
            known.learn(seed, field(&text, "id"), &channel, &said);
        } else if client.end() != End::Open || client.is_shut() {
            // Nobody knows whether it was published.
            let (_, said) = self.asked.take().expect("it waits for this");
            known.uncertain.insert(said);
            self.client = None;
        }
    }
}

/// What a subscriber was told, in order.
#[derive(Clone, Debug)]
enum Told {
    Start(u64),
    Resumed,
    Event(u64),
    Gap { from: u64, to: u64 },
}

struct Subscriber {
    channels: Vec<&'static str>,
    /// Polls instead of a stream.
    polls: bool,
    client: Option<Client>,
    asked: bool,
    received: Vec<u8>,
    head_seen: bool,
    decoder: ChunkedDecoder,
    parser: Parser,
    body: Vec<u8>,
    /// Where it goes on.
    position: Option<String>,
    told: Vec<Told>,
    resumes: usize,
}

impl Subscriber {
    fn new(world: &World) -> Self {
        let count = 1 + world.chance(3) as usize;
        let first = world.chance(CHANNELS.len() as u64) as usize;
        let channels: Vec<&str> = (0..count).map(|at| CHANNELS[(first + at) % CHANNELS.len()]).collect();
        Self {
            polls: channels.len() == 1 && world.chance(3) == 0,
            channels,
            client: None,
            asked: false,
            received: Vec::new(),
            head_seen: false,
            decoder: ChunkedDecoder::new(),
            parser: Parser::new(1 << 20),
            body: Vec::new(),
            position: None,
            told: Vec::new(),
            resumes: 0,
        }
    }

    /// The connection is gone; what it had not understood is, too.
    fn cut(&mut self) {
        self.client = None;
        self.received.clear();
        self.body.clear();
        self.asked = false;
    }

    fn visit(&mut self, seed: u64, world: &World, known: &mut Known, cutting: bool) {
        if self.client.is_none() {
            self.client = Some(world.connect(address()));
            self.head_seen = false;
            (self.decoder, self.parser) = (ChunkedDecoder::new(), Parser::new(1 << 20));
            self.resumes += usize::from(self.position.is_some());
        }
        let client = self.client.as_mut().expect("made above");
        if !self.asked {
            let names = self.channels.join(",");
            let last =
                self.position.as_ref().map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
            let accept = if self.polls { "" } else { "Accept: text/event-stream\r\n" };
            let request = format!("GET /push/{names}?wait=1 HTTP/1.1\r\nHost: sim\r\n{accept}{last}\r\n");
            // A request is small: the world takes it whole, or the connection is gone.
            if client.send(request.as_bytes()) != request.len() {
                return self.cut();
            }
            self.asked = true;
        }
        self.received.extend(client.take_at_most(1 + world.chance(2_000) as usize));
        let ended = client.end() != End::Open || client.is_shut();
        if self.polls {
            self.read_polls(seed, known);
        } else {
            self.read_stream(seed, known);
        }
        if ended {
            self.cut();
        } else if cutting && world.chance(150) == 0 {
            self.client.take().expect("it is there").reset();
            self.cut();
        }
    }

    /// Answers to polls, one after the other.
    fn read_polls(&mut self, seed: u64, known: &mut Known) {
        let Some(head) = self.received.windows(4).position(|window| window == b"\r\n\r\n") else { return };
        let text = String::from_utf8_lossy(&self.received[..head]).into_owned();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let length = value("Content-Length: ").map_or(0, |length| length.parse().expect("a length"));
        if self.received.len() < head + 4 + length {
            return;
        }
        let body = String::from_utf8(self.received[head + 4..head + 4 + length].to_vec()).expect("text");
        self.received.drain(..head + 4 + length);
        self.asked = false;
        let Some(id) = value("Encke-Id: ") else { return };
        if let Some(gap) = value("Encke-Gap: ") {
            let part = |name: &str| {
                let rest = &gap[gap.find(name).expect("both ends are told") + name.len()..];
                offset(rest.split(',').next().unwrap_or_default())
            };
            self.told.push(Told::Gap { from: part("from="), to: part("to=") });
        }
        if text.starts_with("HTTP/1.1 200") {
            known.learn(seed, &id, self.channels[0], &body);
            if self.told.is_empty() {
                // Without a position it began somewhere: nothing is known of what was before.
                self.told.push(Told::Start(offset(&id) - 1));
            }
            self.told.push(Told::Event(offset(&id)));
        } else if self.told.is_empty() {
            self.told.push(Told::Start(offset(&id)));
        }
        self.position = Some(id);
    }

    fn read_stream(&mut self, seed: u64, known: &mut Known) {
        if !self.head_seen {
            let Some(head) = self.received.windows(4).position(|window| window == b"\r\n\r\n") else {
                return;
            };
            assert!(self.received.starts_with(b"HTTP/1.1 200"), "seed {seed}");
            self.received.drain(..head + 4);
            self.head_seen = true;
        }
        while !self.received.is_empty() {
            let chunk = self.decoder.feed(&self.received).expect("chunks");
            self.body.extend_from_slice(chunk.data);
            let used = chunk.consumed;
            self.received.drain(..used);
            if used == 0 {
                break;
            }
        }
        while !self.body.is_empty() {
            let body = std::mem::take(&mut self.body);
            let step = self.parser.feed(&body).expect("events of a sensible size");
            let used = step.used;
            match step.event {
                Some(Event::Position { id }) => {
                    // A resume begins where it ended.
                    self.told.push(if self.told.is_empty() {
                        Told::Start(offset(id))
                    } else {
                        Told::Resumed
                    });
                    self.position = Some(id.to_owned());
                }
                Some(Event::Message { id, event: "encke.gap", data }) => {
                    self.told
                        .push(Told::Gap { from: offset(field(data, "from")), to: offset(field(data, "to")) });
                    self.position = Some(id.to_owned());
                }
                Some(Event::Message { id, data, .. }) => {
                    let (channel, text) = match &self.channels[..] {
                        [only] => ((*only).to_owned(), data.to_owned()),
                        _ => (field(data, "channel").to_owned(), field(data, "data").to_owned()),
                    };
                    known.learn(seed, id, &channel, &text);
                    assert!(
                        self.channels.contains(&channel.as_str()),
                        "seed {seed}: {channel} was not asked for"
                    );
                    self.told.push(Told::Event(offset(id)));
                    self.position = Some(id.to_owned());
                }
                Some(Event::Retry { .. }) | None => {}
            }
            self.body = body[used..].to_vec();
            if used == 0 {
                break;
            }
        }
    }

    /// Holds what it was told against what is known; returns how many gaps were true.
    fn judge(&self, seed: u64, known: &Known) -> usize {
        let mut at: Option<u64> = None;
        let mut gaps = 0;
        let mut gap_to = 0;
        for told in &self.told {
            match *told {
                Told::Start(offset) => at = Some(offset),
                Told::Resumed => {}
                Told::Event(offset) => {
                    if let Some(before) = at {
                        assert!(
                            before < offset,
                            "seed {seed}: {offset} came after {before}: {:?}",
                            self.told
                        );
                        let missed = known.between(&self.channels, before.max(gap_to), offset - 1);
                        assert_eq!(
                            missed, None,
                            "seed {seed}: missed between {before} and {offset}, and not told: {:?} {} {:?}",
                            self.channels, self.polls, self.told
                        );
                    }
                    at = Some(offset);
                }
                Told::Gap { from, to } => {
                    let lost = known.between(&self.channels, from, to).is_some();
                    // What nobody ever saw may have been lost, too.
                    let maybe =
                        known.uncertain.iter().any(|text| self.channels.iter().any(|c| text.starts_with(c)));
                    assert!(lost || maybe, "seed {seed}: a gap from {from} to {to} without a loss");
                    gaps += 1;
                    // Other channels of it may have kept what lies within.
                    gap_to = gap_to.max(to);
                    at = Some(at.unwrap_or(0));
                }
            }
        }
        gaps
    }
}

fn offset(id: &str) -> u64 {
    id.parse::<Position>().expect("an id of ours").offset
}

/// The text of a key in a flat JSON object.
fn field<'a>(json: &'a str, key: &str) -> &'a str {
    let start = json.find(&format!("\"{key}\":\"")).expect("the key is there") + key.len() + 4;
    &json[start..start + json[start..].find('"').expect("a text ends")]
}

#[derive(Default)]
struct Sum {
    messages: usize,
    events: usize,
    resumes: usize,
    gaps: usize,
    resets: u64,
    short_sends: u64,
    delayed_wakes: u64,
    slow_readers: u64,
    parked: u64,
}

/// Subscribers at rest become records and come back: nothing of them may lie anywhere else. Returns how many.
fn park(core: &mut Core, world: &World) -> u64 {
    let mut parked = 0;
    for index in core.conns.places() {
        let token = Token { index, generation: core.conns[index as usize].generation };
        if world.chance(2) == 0
            && let Some(record) = core.parked_subscriber(token)
        {
            core.leave(token);
            core.conns[index as usize] = Conn::vacant();
            assert!(core.unpark_subscriber(token, &record), "our own version, and its channels are here");
            parked += 1;
        }
    }
    parked
}

fn plan() -> Arc<PushPlan> {
    let settings = PushSettings {
        channel: vec![ChannelSettings { messages: KEPT, ..ChannelSettings::default() }],
        ..PushSettings::default()
    };
    let auth = AuthSettings { anonymous: Act::ALL.to_vec(), ..AuthSettings::default() };
    Arc::new(PushPlan::new(&settings, &auth, Openness::Shut(Shut::Settings)).expect("settings that hold"))
}

fn run(seed: u64, sum: &mut Sum) {
    let fouls = seed.is_multiple_of(2);
    let world = World::with(seed, if fouls { Conditions::harsh() } else { Conditions::default() });
    let count = 1 + (seed % 4) as usize;
    let push = plan();
    let plan = Plan {
        policy: Policy { connections: 1_000, ..Policy::default() },
        mounts: vec![MountPoint {
            prefix: push.prefix.clone(),
            mount: Arc::new(Push(Arc::clone(&push))),
            admin: false,
        }],
        push: Some(push),
    };
    let census = Arc::new(Census::default());
    let mut links = Vec::new();
    let mut workers: Vec<Option<Worker<SimReactor>>> = Vec::new();
    for number in 0..count {
        let reactor = world.reactor();
        let link = Link::new(reactor.waker());
        let shared = Shared {
            number,
            workers: count,
            metrics: Arc::default(),
            census: Arc::clone(&census),
            log: Access::default(),
        };
        let mut worker = Worker::new(reactor, Arc::clone(&link), &plan, shared);
        let kind = DoorKind::default();
        worker.listen(world.listener(address()).expect("a descriptor"), kind).expect("room");
        links.push(link);
        workers.push(Some(worker));
    }
    let all: Arc<[Arc<Link>]> = links.clone().into();
    for link in &links {
        link.send(Message::Command(Command::Meet(Arc::clone(&all))));
    }

    let mut known = Known::default();
    let mut publishers: Vec<Publisher> = (0..PUBLISHERS).map(Publisher::new).collect();
    let mut subscribers: Vec<Subscriber> = (0..SUBSCRIBERS).map(|_| Subscriber::new(&world)).collect();
    let (mut stopping, mut quiet) = (false, 0);
    for step in 0.. {
        assert!(step < STEPS_MAX, "seed {seed}: stuck");
        let published = publishers.iter().all(Publisher::done);
        if !stopping {
            for publisher in &mut publishers {
                if world.chance(4) == 0 {
                    publisher.visit(seed, &world, &mut known);
                }
            }
        }
        for subscriber in &mut subscribers {
            if !stopping && world.chance(3) == 0 {
                subscriber.visit(seed, &world, &mut known, !published);
            }
        }
        quiet = if published { quiet + 1 } else { 0 };
        if quiet == 3_000 {
            stopping = true;
            for subscriber in &mut subscribers {
                subscriber.client = None;
            }
            for link in &links {
                let time = Duration::from_secs(5);
                link.send(Message::Command(Command::Drain { delay: Duration::ZERO, time }));
            }
        }
        let Some(number) = world.step() else {
            if stopping {
                break;
            }
            continue;
        };
        let Some(worker) = &mut workers[number] else { continue };
        if world.chance(20) == 0 {
            sum.parked += park(&mut worker.core, &world);
        }
        if worker.turn().expect("a simulated wait never fails") == Turn::Over {
            worker.end();
            worker.core.assert_empty(seed);
            workers[number] = None;
            if workers.iter().all(Option::is_none) {
                break;
            }
        }
    }
    assert!(workers.iter().all(Option::is_none), "seed {seed}: a worker did not end");
    sum.messages += known.messages.len();
    for subscriber in &subscribers {
        sum.gaps += subscriber.judge(seed, &known);
        sum.resumes += subscriber.resumes;
        sum.events += subscriber.told.len();
        // Whoever was there at the end has the last message of its channels, unless the world cut it just then.
        if !fouls
            && !subscriber.polls
            && let Some(last) = known.between_last(&subscriber.channels)
            && let Some(Told::Start(start)) = subscriber.told.first()
            && *start < last
        {
            let has =
                subscriber.told.iter().any(|told| matches!(told, Told::Event(offset) if *offset == last));
            assert!(has, "seed {seed}: the last message {last} never came: {:?}", subscriber.told.last());
        }
    }
    let faults = world.faults();
    sum.resets += faults.resets;
    sum.short_sends += faults.short_sends;
    sum.delayed_wakes += faults.delayed_wakes;
    sum.slow_readers += faults.slow_readers;
}

impl Known {
    /// The last message of some channels.
    fn between_last(&self, channels: &[&str]) -> Option<u64> {
        let mut all = self.messages.iter().rev();
        all.find(|(_, (channel, _))| channels.contains(&channel.as_str())).map(|(offset, _)| *offset)
    }
}

#[test]
fn every_subscriber_of_every_seed_misses_nothing_that_it_is_not_told_of() {
    let seeds = std::env::var("ENCKE_SIM_SEEDS").ok().and_then(|text| {
        let (first, last) = text.split_once('-')?;
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let mut sum = Sum::default();
    for seed in seeds.unwrap_or(SEEDS) {
        run(seed, &mut sum);
    }
    println!(
        "{} messages, {} times told, {} resumes, {} true gaps, 0 false ones; resets {}, short sends {}, delayed wakes \
         {}, slow readers {}, parked and back {}",
        sum.messages,
        sum.events,
        sum.resumes,
        sum.gaps,
        sum.resets,
        sum.short_sends,
        sum.delayed_wakes,
        sum.slow_readers,
        sum.parked
    );
    for (kind, count) in [
        ("resumes", sum.resumes as u64),
        ("gaps", sum.gaps as u64),
        ("resets", sum.resets),
        ("short sends", sum.short_sends),
        ("delayed wakes", sum.delayed_wakes),
        ("slow readers", sum.slow_readers),
        ("parked subscribers", sum.parked),
    ] {
        assert!(count > 0, "no {kind}: too quiet to mean anything");
    }
}
