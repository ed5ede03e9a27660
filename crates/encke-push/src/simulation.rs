//! Simulation of push: whole servers of one to four workers, publishers, subscribers that are cut and reconnect, and faults of
//! the environment; one seed per run. Three of four runs have a store on a simulated disk. Their server is killed, loses power
//! within a commit, restarts, reloads, fails to store, and deletes channels.
//!
//! ```text
//!  a, b   durable, acknowledged when stored         an acknowledged or delivered message is never lost
//!  c      durable, acknowledged at once             an end without warning may lose some: another epoch
//!  d, e   in memory                                 an end without warning loses all
//! ```
//! Every message is unique and names its channel. A subscriber records the events and gaps that it receives, in order. Each
//! pair of neighbours in that record is checked at the end against all known messages, and so is the store at every start:
//!
//! ```text
//! event 7 ─► event 12   no message of its channels lies between
//! event 7 ─► gap 7..20  a message of its channels in the gap may be lost: evicted, deleted, forgotten, or in memory when
//!                       the server was killed. The others arrive nevertheless
//! ```
//!
//! Planted faults, one line each, show that the simulation finds faults. The seeds at which it found them:
//!
//! | planted | where | found at seed |
//! |---|---|---|
//! | a failed commit clears the mark of early acknowledgements | `Sequencer::committed` without `durable.early &=` | 199 |
//! | after a kill, losses in memory are taken from the last planned end | `forgotten_to` in `read` of the store | 1 |
//! | the remains of a failed commit are not undone | `commit.void` in `write` of the store | 6 |
//! | a failed commit is reported as successful | `PushWorker::committed` | 6 |
//! | a planned end does not store the losses of channels in memory | `Store::close` | 1 |
//! | a durable channel inherits the losses of channels in memory (false gaps) | `Sequencer::found_or_made` | 5 |

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use encke_broker::sim::Disk;
use encke_broker::{Contents, End as Ending, Store};
use encke_hub::{Epoch, Position};
use encke_io::sim::{SimClient, SimConditions, SimReadState, World};
use encke_io::testing::Seeds;
use encke_wire::http1::ChunkedDecoder;
use encke_wire::sse::{Parser, SseEvent};

use super::archive::Archive;
use super::handler::Push;
use super::plan::PushPlan;
use crate::settings::AckMode;
use crate::settings::{ChannelSettings, PushSettings};
use encke_rights::{Act, AuthSettings, Openness, Shut};
use encke_server::testing::traces::{Observed, Suite};
use encke_server::testing::{Fleet, FleetCounts, Stepped};
use encke_server::{ConnLimits, Mount};
use encke_settings::{OrOff, Period};

/// The worlds of a complete run.
const SEEDS: u64 = 1_000;
const CHANNELS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PUBLISHERS: usize = 3;
const SUBSCRIBERS: usize = 6;
/// Messages in a channel's history: few, so that many are lost. A reload adds up to [`KEPT_MORE`].
const KEPT: u32 = 6;
const KEPT_MORE: u64 = 3;
/// Age limit of messages. Without connections, the simulated clock skips to the next timer, which may expire all messages.
/// This limit exceeds every other wait.
const AGE_S: u64 = 1_000_000;
const MESSAGES: usize = 60;
const STEPS_MAX: usize = 400_000;
/// One step in this many brings an event that affects the whole server, while there are publishers.
const BLOWS: u64 = 250;
/// Steps without a publisher before the end: enough for every subscriber to catch up.
const QUIET: usize = 1_000;
/// A request sent this many ns after a response was lost has a later offset than that response's message. Connections, wake-ups
/// and commits take a few milliseconds.
const GRACE_NS: u64 = 20_000_000;

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

/// How a channel's messages survive an end without warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Durable, acknowledged when stored: every acknowledged message survives.
    Stored,
    /// Durable, acknowledged early: some messages may be lost, in a new epoch.
    Soon,
    /// Not durable: no message survives.
    Memory,
}

impl Class {
    fn of(channel: &str) -> Self {
        match channel {
            "a" | "b" => Self::Stored,
            "c" => Self::Soon,
            _ => Self::Memory,
        }
    }

    fn is_durable(self) -> bool {
        self != Self::Memory
    }
}

/// All messages known to be published: acknowledged, or delivered to a subscriber.
#[derive(Default)]
struct Known {
    /// Channel and text of each offset.
    messages: BTreeMap<u64, (String, String)>,
    /// When a text was first sent, by the simulated clock in ns.
    asked: HashMap<String, u64>,
    /// Publishes without a response so far: their messages may be in the stream or not.
    uncertain: Vec<Uncertain>,
    /// Rejected texts, and the number of abrupt ends before they were sent.
    refused: HashMap<String, usize>,
    deletes: Vec<Delete>,
    starts: Vec<Start>,
}

struct Uncertain {
    channel: String,
    text: String,
    /// When the response was lost.
    lost_ns: Option<u64>,
    /// If published, then at an offset above `after` and below `before`.
    after: u64,
    before: u64,
}

struct Delete {
    channel: String,
    asked_ns: u64,
    answered_ns: Option<u64>,
    /// Whether the response arrived or was lost.
    over: bool,
    /// The offset up to which it may have deleted messages.
    to: u64,
}

/// A start with a store that was not empty.
struct Start {
    at_ns: u64,
    /// The newest offset of the restored stream.
    newest: u64,
    /// Whether the run before ended without warning.
    killed: bool,
    /// The epoch that ended with it.
    ended: Option<Epoch>,
}

impl Known {
    fn learn(&mut self, seed: u64, id: &str, channel: &str, text: &str) {
        let new = (channel.to_owned(), text.to_owned());
        let old = self.messages.entry(offset(id)).or_insert_with(|| new.clone());
        assert_eq!(*old, new, "seed {seed}: one offset, two messages");
        self.uncertain.retain(|one| one.text != text);
        if let Some(ends) = self.refused.get(text) {
            // A failed commit may be on the disk; a server that keeps running undoes it.
            assert!(*ends < self.ends(), "seed {seed}: {text} was refused, and is there");
        }
    }

    /// Records that a publish was sent. Its outcome is unknown so far.
    fn ask(&mut self, channel: &str, text: &str, at_ns: u64) {
        self.asked.insert(text.to_owned(), at_ns);
        self.uncertain.retain(|one| one.text != text);
        let (channel, text, after) = (channel.to_owned(), text.to_owned(), self.newest());
        self.uncertain.push(Uncertain { channel, text, lost_ns: None, after, before: u64::MAX });
    }

    fn refuse(&mut self, text: String, ends: usize) {
        self.uncertain.retain(|one| one.text != text);
        self.refused.insert(text, ends);
    }

    /// Records the response to a publish: earlier requests have lower offsets.
    fn order(&mut self, offset: u64, asked_ns: u64) {
        let earlier = |one: &&mut Uncertain| one.lost_ns.is_some_and(|lost_ns| asked_ns > lost_ns + GRACE_NS);
        for one in self.uncertain.iter_mut().filter(earlier) {
            one.before = one.before.min(offset);
        }
        for one in self.deletes.iter_mut().filter(|one| one.answered_ns.is_some_and(|ns| ns < asked_ns)) {
            one.to = one.to.min(offset - 1);
        }
    }

    /// Returns the number of ends without warning (kills and power losses).
    fn ends(&self) -> usize {
        self.starts.iter().filter(|start| start.killed).count()
    }

    fn newest(&self) -> u64 {
        self.messages.last_key_value().map_or(0, |(offset, _)| *offset)
    }

    /// Returns whether a message may have been lost by events up to `at_ns`.
    fn may_be_lost(&self, offset: u64, at_ns: u64) -> bool {
        let (channel, text) = &self.messages[&offset];
        let by_then = |text: &String| self.asked[text] <= at_ns;
        let newer =
            self.messages.range(offset + 1..).filter(|(_, (other, text))| other == channel && by_then(text));
        let maybe = |one: &&Uncertain| one.channel == *channel && one.before > offset && by_then(&one.text);
        newer.count() + self.uncertain.iter().filter(maybe).count() >= KEPT as usize
            || self.may_be_forgotten(channel, text, offset, at_ns)
            || self.starts.iter().any(|start| {
                let ends = match Class::of(channel) {
                    Class::Stored => false,
                    Class::Soon => start.ended.is_some(),
                    Class::Memory => start.killed,
                };
                ends && start.at_ns <= at_ns && offset <= start.newest
            })
    }

    /// Returns whether a message may have been lost together with its channel: deleted, or expired.
    fn may_be_forgotten(&self, channel: &str, text: &str, offset: u64, at_ns: u64) -> bool {
        // Ages are counted in whole milliseconds.
        let old = at_ns.saturating_sub(self.asked[text]) + 1_000_000 >= AGE_S * 1_000_000_000;
        old || self
            .deletes
            .iter()
            .any(|one| one.channel == channel && one.asked_ns <= at_ns && offset <= one.to)
    }

    /// Returns whether a gap in `(from, to]`, reported at `at_ns`, may be true.
    fn justifies(&self, channels: &[&str], from: u64, to: u64, at_ns: u64) -> bool {
        let wanted = |channel: &str| channels.contains(&channel);
        // The losses of a forgotten channel are unknown, so the server reports them to all channels of its class.
        let forgotten = |channel: &str, text: &str, offset: u64| {
            let kin = |other: &&str| Class::of(other).is_durable() == Class::of(channel).is_durable();
            channels.iter().any(kin) && self.may_be_forgotten(channel, text, offset, at_ns)
        };
        let lost = self.messages.range(from + 1..=to).any(|(offset, (channel, text))| {
            wanted(channel) && self.may_be_lost(*offset, at_ns) || forgotten(channel, text, *offset)
        });
        let maybe = self.uncertain.iter().any(|one| {
            let there = one.after < to && one.before > from && self.asked[&one.text] <= at_ns;
            there && (wanted(&one.channel) || forgotten(&one.channel, &one.text, one.after + 1))
        });
        let killed = self.starts.iter().any(|start| {
            let spanned = from < start.newest && start.newest <= to;
            start.killed && spanned && channels.iter().any(|channel| !Class::of(channel).is_durable())
        });
        lost || maybe || killed
    }

    /// Returns the offset of the last message in some channels.
    fn last_of(&self, channels: &[&str]) -> Option<u64> {
        let mut all = self.messages.iter().rev();
        all.find(|(_, (channel, _))| channels.contains(&channel.as_str())).map(|(offset, _)| *offset)
    }

    /// Checks the contents of a store against the known messages, at a start or at the end.
    fn inspect(&mut self, seed: u64, contents: &Contents, before: Option<Epoch>, at_ns: u64) {
        let saved = &contents.saved;
        let killed = contents.end == Ending::Abrupt;
        let ended = before.filter(|before| *before != saved.epoch);
        assert!(ended.is_none() || killed, "seed {seed}: a planned end keeps the epoch");
        assert!(self.newest() <= saved.newest, "seed {seed}: an offset may come again");
        // A publish still without a response may be published by the next run, because its connection can outlast the restart.
        for one in self.uncertain.iter_mut().filter(|one| one.lost_ns.is_some()) {
            one.before = one.before.min(saved.newest + 1);
        }
        for one in self.deletes.iter_mut().filter(|one| one.over) {
            one.to = one.to.min(saved.newest);
        }
        self.starts.push(Start { at_ns, newest: saved.newest, killed, ended });
        for stored in saved.channels.iter().flat_map(|channel| &channel.messages) {
            let encke_hub::Message { offset, channel, data, .. } = &*stored.message;
            let id = Position { epoch: saved.epoch, offset: *offset }.to_string();
            self.learn(seed, &id, channel.as_str(), &String::from_utf8_lossy(data));
        }
        for (offset, (channel, text)) in &self.messages {
            let class = Class::of(channel);
            let found = saved.channels.iter().find(|one| one.name.as_str() == channel);
            if found.is_some_and(|one| one.messages.iter().any(|one| one.message.offset == *offset)) {
                continue;
            }
            assert!(
                self.may_be_lost(*offset, at_ns),
                "seed {seed}: {text}, {offset}, is gone after {:?}: {found:?} of {:?}, start {}",
                contents.end,
                self.messages,
                self.starts.len()
            );
            if class == Class::Soon && ended.is_some() {
                continue;
            }
            let forgotten_to =
                if class.is_durable() { saved.durable_forgotten_to } else { saved.forgotten_to };
            let lost_to = found.map_or(forgotten_to, |one| one.lost_to);
            let epoch_ended =
                self.starts.iter().any(|start| start.ended.is_some() && *offset <= start.newest);
            let told = *offset <= lost_to || class == Class::Soon && epoch_ended;
            assert!(told, "seed {seed}: {channel} {offset}: a loss is silent");
        }
    }
}

/// Publishes messages one after the other, each after the response to the one before. Now and then it deletes a channel.
struct Publisher {
    client: Option<SimClient>,
    number: usize,
    said: usize,
    wire: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// The request that waits for its response.
    asked: Option<Asked>,
}

struct Asked {
    channel: String,
    /// `None`: deletes the channel, as the delete with the index `delete`.
    text: Option<String>,
    delete: usize,
    at_ns: u64,
    /// Number of abrupt ends when the request was sent completely.
    ends: usize,
}

impl Publisher {
    fn new(number: usize) -> Self {
        Self { client: None, number, said: 0, wire: Vec::new(), sent: 0, received: Vec::new(), asked: None }
    }

    fn done(&self) -> bool {
        self.said == MESSAGES / PUBLISHERS && self.asked.is_none()
    }

    /// Chooses the next request.
    fn ask(&mut self, world: &World, known: &mut Known) {
        let channel = CHANNELS[world.chance(CHANNELS.len() as u64) as usize].to_owned();
        let at_ns = world.now().mono_ns;
        let text = (world.chance(40) > 0).then(|| format!("{channel}:{}:{}", self.number, self.said));
        self.wire = match &text {
            Some(text) => {
                self.said += 1;
                let length = text.len();
                format!(
                    "POST /push/{channel} HTTP/1.1\r\nHost: sim\r\nContent-Length: {length}\r\n\r\n{text}"
                )
            }
            None => {
                let delete = Delete {
                    channel: channel.clone(),
                    asked_ns: at_ns,
                    answered_ns: None,
                    over: false,
                    to: 0,
                };
                known.deletes.push(delete);
                format!("DELETE /push/{channel} HTTP/1.1\r\nHost: sim\r\n\r\n")
            }
        }
        .into_bytes();
        (self.sent, self.received) = (0, Vec::new());
        let delete = known.deletes.len().wrapping_sub(1);
        self.asked = Some(Asked { channel, text, delete, at_ns, ends: 0 });
    }

    fn visit(&mut self, seed: u64, world: &World, known: &mut Known, sum: &mut Sum) {
        if self.done() {
            self.client = None;
            return;
        }
        if self.asked.is_none() {
            self.ask(world, known);
        }
        let client = self.client.get_or_insert_with(|| world.connect(address()));
        let wish = (1 + world.chance(200) as usize).min(self.wire.len() - self.sent);
        self.sent += client.send(&self.wire[self.sent..self.sent + wish]);
        if wish > 0 && self.sent == self.wire.len() {
            // From now on the server may process the request.
            let asked = self.asked.as_mut().expect("asked above");
            asked.ends = known.ends();
            match &asked.text {
                Some(text) => known.ask(&asked.channel, text, asked.at_ns),
                None => known.deletes[asked.delete].to = u64::MAX,
            }
        }
        let bytes = client.take();
        sum.observed.received(self.number, world.now(), &bytes);
        self.received.extend(bytes);
        let over = client.end() != SimReadState::Open || client.is_shut();
        if over {
            sum.observed.ended(self.number, world.now(), client.end());
        }
        if let Some((status, body)) = answer(&self.received) {
            let asked = self.asked.take().expect("it waits for this");
            match (asked.text, status) {
                (Some(text), 201 | 202) => {
                    assert!(
                        status == 201 || Class::of(&asked.channel) == Class::Soon,
                        "seed {seed}: {status} in {text}"
                    );
                    sum.early += u64::from(status == 202);
                    let id = field(&body, "id");
                    known.learn(seed, id, &asked.channel, &text);
                    known.order(offset(id), asked.at_ns);
                }
                (Some(text), 408 | 503) => {
                    sum.refused += u64::from(body.contains("could not be stored"));
                    known.refuse(text, asked.ends);
                }
                (None, 204) => {
                    sum.deletes += 1;
                    known.deletes[asked.delete].answered_ns = Some(world.now().mono_ns);
                    known.deletes[asked.delete].over = true;
                }
                (None, 408 | 503) => {}
                (asked, status) => panic!("seed {seed}: {status} for {asked:?}: {body}"),
            }
        } else if over && self.sent < self.wire.len() {
            // The server has not received the whole request: send it again.
            (self.sent, self.received) = (0, Vec::new());
        } else if over {
            // The outcome of the publish is unknown.
            let asked = self.asked.take().expect("asked above");
            if asked.text.is_none() {
                known.deletes[asked.delete].over = true;
            }
            let mut uncertain = known.uncertain.iter_mut();
            if let Some(one) = uncertain.find(|one| asked.text.as_ref() == Some(&one.text)) {
                one.lost_ns = Some(world.now().mono_ns);
            }
        }
        if over {
            self.client = None;
        }
    }
}

/// Returns status and content of a response, once it is complete.
fn answer(bytes: &[u8]) -> Option<(u16, String)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).expect("a head is text");
    let status = text.split(' ').nth(1)?.parse().expect("a status");
    let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |length| length.parse().expect("a length"));
    let body = bytes.get(head + 4..head + 4 + length)?;
    Some((status, String::from_utf8_lossy(body).into_owned()))
}

/// An entry in a subscriber's record.
#[derive(Clone, Debug)]
enum Told {
    Start(u64),
    Resumed,
    Event(u64),
    /// A gap received at `at_ns`; later events have offsets above `at`.
    Gap {
        from: Position,
        to: Position,
        at: u64,
        at_ns: u64,
    },
}

struct Subscriber {
    /// Follows the numbers of the publishers.
    number: usize,
    channels: Vec<&'static str>,
    /// Polls instead of a stream.
    polls: bool,
    client: Option<SimClient>,
    asked: bool,
    received: Vec<u8>,
    head_seen: bool,
    decoder: ChunkedDecoder,
    parser: Parser,
    body: Vec<u8>,
    /// The position to resume from.
    position: Option<String>,
    told: Vec<Told>,
    resumes: usize,
}

impl Subscriber {
    fn new(world: &World, number: usize) -> Self {
        let count = 1 + world.chance(3) as usize;
        let first = world.chance(CHANNELS.len() as u64) as usize;
        let channels: Vec<&str> = (0..count).map(|at| CHANNELS[(first + at) % CHANNELS.len()]).collect();
        Self {
            number,
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

    /// Drops the connection and its unparsed bytes.
    fn cut(&mut self) {
        self.client = None;
        self.received.clear();
        self.body.clear();
        self.asked = false;
    }

    fn visit(&mut self, seed: u64, world: &World, known: &mut Known, sum: &mut Sum, cutting: bool) {
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
            // A request is small: the connection accepts all of it, or is closed.
            if client.send(request.as_bytes()) != request.len() {
                return self.cut();
            }
            self.asked = true;
        }
        let bytes = client.take_at_most(1 + world.chance(2_000) as usize);
        sum.observed.received(self.number, world.now(), &bytes);
        self.received.extend(bytes);
        let ended = client.end() != SimReadState::Open || client.is_shut();
        if ended {
            sum.observed.ended(self.number, world.now(), client.end());
        }
        let at_ns = world.now().mono_ns;
        if self.polls {
            self.read_polls(seed, known, at_ns);
        } else {
            self.read_stream(seed, known, at_ns);
        }
        if ended {
            self.cut();
        } else if cutting && world.chance(150) == 0 {
            self.client.take().expect("it is there").reset();
            self.cut();
        }
    }

    /// Parses responses to polls, one after the other.
    fn read_polls(&mut self, seed: u64, known: &mut Known, at_ns: u64) {
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
                position(rest.split(',').next().unwrap_or_default())
            };
            let at = offset(&id) - u64::from(text.starts_with("HTTP/1.1 200"));
            self.told.push(Told::Gap { from: part("from="), to: part("to="), at, at_ns });
        }
        if text.starts_with("HTTP/1.1 200") {
            known.learn(seed, &id, self.channels[0], &body);
            if self.told.is_empty() {
                // Without a position the poll began at an unknown offset: earlier messages do not count.
                self.told.push(Told::Start(offset(&id) - 1));
            }
            self.told.push(Told::Event(offset(&id)));
        } else if self.told.is_empty() {
            self.told.push(Told::Start(offset(&id)));
        }
        self.position = Some(id);
    }

    fn read_stream(&mut self, seed: u64, known: &mut Known, at_ns: u64) {
        if !self.head_seen {
            let Some(head) = self.received.windows(4).position(|window| window == b"\r\n\r\n") else {
                return;
            };
            assert!(self.received.starts_with(b"HTTP/1.1 200"), "seed {seed}");
            let streams = |line: &[u8]| line == b"Transfer-Encoding: chunked\r";
            if !self.received[..head + 1].split(|byte| *byte == b'\n').any(streams) {
                // Rejected: the server is about to stop.
                return self.received.clear();
            }
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
                Some(SseEvent::Position { id }) => {
                    // A resume begins at the position where the connection before ended.
                    self.told.push(if self.told.is_empty() {
                        Told::Start(offset(id))
                    } else {
                        Told::Resumed
                    });
                    self.position = Some(id.to_owned());
                }
                Some(SseEvent::Message { id, event: "encke.gap", data }) => {
                    let (from, to) = (position(field(data, "from")), position(field(data, "to")));
                    self.told.push(Told::Gap { from, to, at: offset(id), at_ns });
                    self.position = Some(id.to_owned());
                }
                Some(SseEvent::Message { id, data, .. }) => {
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
                Some(SseEvent::Retry { .. }) | None => {}
            }
            self.body = body[used..].to_vec();
            if used == 0 {
                break;
            }
        }
    }

    /// Checks the record against the known messages. Returns the number of gaps, which are all true.
    fn judge(&self, seed: u64, known: &Known) -> usize {
        let mut at: Option<u64> = None;
        // The gaps so far: their last offset, and when they were received.
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        let missed = |after: u64, to: u64, gaps: &[(u64, u64)]| {
            let told = |offset: u64| {
                gaps.iter().any(|(to, at_ns)| offset <= *to && known.may_be_lost(offset, *at_ns))
            };
            if after >= to {
                return;
            }
            for (offset, (channel, text)) in known.messages.range(after + 1..=to) {
                assert!(
                    !self.channels.contains(&channel.as_str()) || told(*offset),
                    "seed {seed}: {text}, {offset}, between {after} and {to} never came, and that was not told: {:?} {} {:?}",
                    self.channels,
                    self.polls,
                    self.told
                );
            }
        };
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
                        missed(before, offset - 1, &gaps);
                    }
                    at = Some(offset);
                }
                Told::Gap { from, to, at: begins, at_ns } => {
                    if from.epoch == to.epoch {
                        assert!(
                            known.justifies(&self.channels, from.offset, to.offset, at_ns),
                            "seed {seed}: a false gap from {from} to {to}: {:?} {:?}",
                            self.channels,
                            self.told
                        );
                        gaps.push((to.offset, at_ns));
                        at = Some(at.unwrap_or(0));
                    } else {
                        let ended = |start: &Start| start.ended == Some(from.epoch);
                        assert!(
                            known.starts.iter().any(ended),
                            "seed {seed}: the epoch of {from} has not ended"
                        );
                        // The subscriber receives the present history. This gap covers all earlier losses.
                        gaps.push((u64::MAX, at_ns));
                        missed(at.unwrap_or(begins), begins, &gaps);
                        // The history arrives once more, under new ids.
                        at = Some(begins);
                    }
                }
            }
        }
        gaps.len()
    }
}

fn position(id: &str) -> Position {
    id.parse().expect("an id of ours")
}

fn offset(id: &str) -> u64 {
    position(id).offset
}

/// Returns the text of a key in a flat JSON object.
fn field<'a>(json: &'a str, key: &str) -> &'a str {
    let start = json.find(&format!("\"{key}\":\"")).expect("the key is there") + key.len() + 4;
    &json[start..start + json[start..].find('"').expect("a text ends")]
}

type Count = fn(&Sum) -> u64;

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
    early: u64,
    refused: u64,
    deletes: u64,
    reloads: u64,
    kills: u64,
    power_losses: u64,
    stops: u64,
    epochs: u64,
    observed: Observed,
}

/// A server and its environment.
struct House {
    seed: u64,
    world: World,
    /// Number of workers.
    count: usize,
    disk: Option<Disk>,
    /// The epoch in the store at the last start.
    epoch: Option<Epoch>,
    lives: u64,
    push: Option<Arc<PushPlan>>,
    /// The running server; it takes no commands after its end.
    fleet: Option<Fleet>,
    /// The counts of all runs.
    counts: Vec<FleetCounts>,
    reactors: usize,
    stopping: bool,
}

impl House {
    fn new(seed: u64, world: &World) -> Self {
        Self {
            seed,
            world: world.clone(),
            count: 1 + (seed % 4) as usize,
            disk: (seed / 4 % 4 != 3).then(Disk::default),
            epoch: None,
            lives: 0,
            push: None,
            fleet: None,
            counts: Vec::new(),
            reactors: 0,
            stopping: false,
        }
    }

    fn start(&mut self, known: &mut Known) {
        let mut push = push_plan(KEPT);
        if let Some(disk) = &self.disk {
            let opened = self.open(disk, known);
            push = push.stored_in(Archive::of(None, opened));
        } else {
            // The system's random epoch would make two runs of a seed differ.
            push.epochs = [self.fresh_epoch()].into();
        }
        self.epoch = self.disk.as_ref().map(|_| push.epochs[0]);
        self.lives += 1;
        let push = Arc::new(push);
        let fleet = Fleet::start(&self.world, self.reactors, self.count, address(), policy(), mounts(&push));
        self.push = Some(push);
        self.reactors += self.count;
        self.counts.push(fleet.counts());
        self.fleet = Some(fleet);
        self.stopping = false;
    }

    /// Opens the store, and checks its contents against the known messages.
    fn open(&self, disk: &Disk, known: &mut Known) -> (Store, Contents) {
        let opened =
            Store::open_by(Path::new("a disk"), disk.opener(), self.fresh_epoch()).expect("the disk is well");
        if self.lives > 0 {
            known.inspect(self.seed, &opened.1, self.epoch, self.world.now().mono_ns);
        }
        opened
    }

    /// Returns the epoch for a run that begins with an empty stream.
    fn fresh_epoch(&self) -> Epoch {
        Epoch(self.seed << 8 | (self.lives + 1))
    }

    fn is_up(&self) -> bool {
        self.fleet.as_ref().is_some_and(Fleet::is_up)
    }

    /// Drains the server.
    fn stop(&mut self, time: Duration) {
        self.stopping = true;
        if let Some(fleet) = &self.fleet {
            fleet.drain(Duration::ZERO, time);
        }
    }

    /// Kills the server.
    fn kill(&mut self) {
        self.end();
        self.fleet = None;
    }

    /// Ends the run: data that has not reached the disk is lost, and open stores become unusable.
    fn end(&mut self) {
        if let Some(disk) = &self.disk {
            disk.restart(|| self.world.chance(2) == 0);
        }
        self.push = None;
    }

    fn reload(&mut self) {
        let Some(old) = &self.push else { return };
        let new = Arc::new(push_plan(KEPT + self.world.chance(1 + KEPT_MORE) as u32).with_epoch_of(old));
        if let Some(fleet) = &self.fleet {
            fleet.reload(policy(), mounts(&new));
        }
        self.push = Some(new);
    }

    /// Applies a random fault or command to the server.
    fn befall(&mut self, sum: &mut Sum) {
        let Some(disk) = &self.disk else {
            sum.reloads += 1;
            return self.reload();
        };
        match self.world.chance(6) {
            0 => {
                sum.kills += 1;
                self.kill();
            }
            1 => disk.lose_power_at(1 + self.world.chance(6)),
            2 => {
                sum.stops += 1;
                self.stop(Duration::from_secs(1));
            }
            3 => disk.fail_syncs(1 + self.world.chance(4)),
            _ => {
                sum.reloads += 1;
                self.reload();
            }
        }
    }

    /// Runs a turn of a worker. Returns whether it was the last one of the last worker.
    fn turn(&mut self, number: usize, sum: &mut Sum) -> bool {
        let Some(fleet) = self.fleet.as_mut().filter(|fleet| fleet.has(number)) else { return false };
        if self.world.chance(20) == 0 {
            sum.parked += fleet.park(number, || self.world.chance(2) == 0);
        }
        fleet.turn(number, self.seed) == Stepped::Ended && !fleet.is_up()
    }
}

fn push_plan(kept: u32) -> PushPlan {
    let channel = |pattern: &str, durable, ack| ChannelSettings {
        pattern: pattern.into(),
        messages: kept,
        age: Period::seconds(AGE_S),
        durable,
        ack,
        ..ChannelSettings::default()
    };
    let settings = PushSettings {
        channel: vec![
            channel("**", false, AckMode::Stored),
            channel("a", true, AckMode::Stored),
            channel("b", true, AckMode::Stored),
            channel("c", true, AckMode::Memory),
        ],
        // All publishers have the same address.
        anonymous_rate: OrOff::Off,
        ..PushSettings::default()
    };
    let auth = AuthSettings { anonymous: Act::ALL.to_vec(), ..AuthSettings::default() };
    PushPlan::new(&settings, &auth, Openness::Shut(Shut::Settings)).expect("settings that hold")
}

fn policy() -> ConnLimits {
    ConnLimits { connections: 1_000, ..ConnLimits::default() }
}

fn mounts(push: &Arc<PushPlan>) -> Vec<(String, Arc<dyn Mount>)> {
    vec![(push.prefix.clone(), Arc::new(Push(Arc::clone(push))))]
}

/// Returns the observations of a seed's clients.
pub(crate) fn observe(seed: u64) -> Observed {
    let mut sum = Sum::default();
    run(seed, &mut sum);
    sum.observed
}

fn run(seed: u64, sum: &mut Sum) {
    let harsh = seed.is_multiple_of(2);
    let world = World::with(seed, if harsh { SimConditions::harsh() } else { SimConditions::default() });
    let mut known = Known::default();
    let mut house = House::new(seed, &world);
    house.start(&mut known);
    let mut publishers: Vec<Publisher> = (0..PUBLISHERS).map(Publisher::new).collect();
    let mut subscribers: Vec<Subscriber> =
        (PUBLISHERS..).take(SUBSCRIBERS).map(|number| Subscriber::new(&world, number)).collect();
    let (mut ending, mut quiet) = (false, 0);
    for step in 0.. {
        assert!(step < STEPS_MAX, "seed {seed}: stuck");
        let published = publishers.iter().all(Publisher::done);
        if !ending {
            for publisher in &mut publishers {
                if world.chance(4) == 0 {
                    publisher.visit(seed, &world, &mut known, sum);
                }
            }
            for subscriber in &mut subscribers {
                if world.chance(3) == 0 {
                    subscriber.visit(seed, &world, &mut known, sum, !published);
                }
            }
        }
        if !published && house.is_up() && !house.stopping && world.chance(BLOWS) == 0 {
            house.befall(sum);
        }
        if house.disk.as_ref().is_some_and(Disk::is_off) && house.is_up() {
            sum.power_losses += 1;
            house.kill();
        }
        if !house.is_up() {
            house.end();
            house.start(&mut known);
            ending = false;
        }
        quiet = if published && !house.stopping { quiet + 1 } else { 0 };
        if quiet == QUIET {
            ending = true;
            for subscriber in &mut subscribers {
                subscriber.client = None;
            }
            house.stop(Duration::from_secs(5));
        }
        let Some(number) = world.step() else { continue };
        if house.turn(number, sum) && ending {
            break;
        }
    }
    assert!(!house.is_up(), "seed {seed}: a worker did not end");
    if let Some(disk) = house.disk.clone() {
        house.end();
        house.open(&disk, &mut known);
    }
    house.counts.iter().for_each(|counts| counts.observe(&mut sum.observed));
    sum.epochs += known.starts.iter().filter(|start| start.ended.is_some()).count() as u64;
    sum.messages += known.messages.len();
    for subscriber in &subscribers {
        sum.gaps += subscriber.judge(seed, &known);
        sum.resumes += subscriber.resumes;
        sum.events += subscriber.told.len();
        // A stream that is open at the end has the last message of its channels, unless a fault cut it just then.
        if !harsh
            && !subscriber.polls
            && let Some(last) = known.last_of(&subscriber.channels)
            && !known.may_be_lost(last, u64::MAX)
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

#[test]
fn every_subscriber_of_every_seed_misses_nothing_that_it_is_not_told_of() {
    let (seeds, lanes) = (Seeds::of(SEEDS), encke_io::host::processors());
    let sums: Vec<Sum> = std::thread::scope(|scope| {
        let lane = |first| {
            let tried = seeds.range().skip(first).step_by(lanes);
            scope.spawn(|| {
                let mut sum = Sum::default();
                tried.for_each(|seed| run(seed, &mut sum));
                sum
            })
        };
        let lanes: Vec<_> = (0..lanes).map(lane).collect();
        lanes.into_iter().map(|lane| lane.join().expect("no seed has failed")).collect()
    });
    let all = |count: Count| sums.iter().map(count).sum::<u64>();
    let (messages, events) = (all(|sum| sum.messages as u64), all(|sum| sum.events as u64));
    println!("{messages} messages, {events} times told; false gaps: 0");
    let kinds: [(&str, Count); 15] = [
        ("resumes", |sum| sum.resumes as u64),
        ("true gaps", |sum| sum.gaps as u64),
        ("resets", |sum| sum.resets),
        ("short sends", |sum| sum.short_sends),
        ("delayed wakes", |sum| sum.delayed_wakes),
        ("slow readers", |sum| sum.slow_readers),
        ("parked subscribers", |sum| sum.parked),
        ("early answers", |sum| sum.early),
        ("refusals of a store that fails", |sum| sum.refused),
        ("deleted channels", |sum| sum.deletes),
        ("reloads", |sum| sum.reloads),
        ("kills", |sum| sum.kills),
        ("losses of power within a commit", |sum| sum.power_losses),
        ("planned restarts", |sum| sum.stops),
        ("epochs that ended", |sum| sum.epochs),
    ];
    for (kind, count) in kinds {
        let count = all(count);
        println!("{count} {kind}");
        assert!(count > 0 || seeds.is_single(), "no {kind}: too quiet to mean anything");
    }
}

const TRACES: Suite = Suite { name: "push", seeds: 1..=200, group: 50, run: observe };

mod traces {
    use super::TRACES;
    use std::path::Path;

    #[test]
    fn simulated_subscribers_observe_what_is_recorded() {
        TRACES.compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guards/golden/traces"));
    }

    #[test]
    fn a_seed_always_gives_the_same_digest() {
        TRACES.repeat();
    }
}
