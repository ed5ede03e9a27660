//! A worker's room of push: its hub, its part in the exchange of values between workers, and on the first worker
//! the sequencer, which gives every message its place.
//!
//! ```text
//! any worker  ── Publish, Info, Forget, Requests ─►  the first worker: Sequencer
//! any worker  ◄─────── Feed (one batch on its way, the next when it was taken) ──┘
//! ```
//! Publishes are answered when every worker's fan-out keeps up: while one lags, answers wait, and with them the
//! publishers (a connection has one publish on its way).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use encke_hub::{
    Delivery, Draft, Feed, Hub, Name, Now as HubNow, Position, Published, Refusal, Request, Sequencer, Since,
};
use encke_io::Now;

use super::envelope;
use super::form::{Kind, Press};
use super::negotiate::refusal;
use super::plan::PushPlan;
use super::rights::{Act, Identity};
use crate::exchange::{Exchange, Link, Message};
use crate::log::Entry;
use crate::reply::{Body, Reply};

/// Messages in one batch for another worker. At 100 bytes each a batch is some 25 KiB of references.
const FEED_BATCH: usize = 256;
/// Messages the hub beside the sequencer takes in a turn.
const FEED_LOCAL: usize = 1_024;

/// What a request for messages came to: everything that its subscription needs. Made by push alone.
pub struct Subscription {
    pub(crate) channels: Vec<Name>,
    pub(crate) since: Since,
    pub(crate) kind: Kind,
    /// How long a poll waits.
    pub(crate) wait_s: u64,
    /// Who is there, where that is shown.
    pub(crate) member: Option<Arc<str>>,
    /// Pages of another origin may read it.
    pub(crate) shared: bool,
    /// Who listens, if a token says so: its right may end.
    pub(crate) identity: Option<Identity>,
}

/// What a handler asks of push.
pub(crate) enum Ask {
    Publish(Publish),
    Info {
        exchange: Exchange,
        channel: Name,
        /// Whether to name who is there.
        members: bool,
    },
    Forget {
        exchange: Exchange,
        channels: Vec<Name>,
    },
}

/// Messages to be published, in order, and who is to be told.
pub(crate) struct Publish {
    pub(crate) exchange: Exchange,
    pub(crate) drafts: Vec<Draft>,
    /// Tell how long the fan-out took.
    pub(crate) trace: bool,
    /// They came as lines.
    pub(crate) lines: bool,
}

/// A publish by WebSocket: the answer goes to the connection.
pub(crate) struct Spoken {
    pub(crate) core: usize,
    pub(crate) token: encke_io::Token,
    pub(crate) reference: Option<u64>,
    pub(crate) draft: Draft,
    /// It wants to know what came of it.
    pub(crate) tell: bool,
}

/// What workers tell each other.
pub(crate) enum Letter {
    /// To the first worker.
    Ask(Ask),
    /// To the first worker.
    Spoken(Spoken),
    /// To the first worker: what a core's hub asks for.
    Requests { core: usize, requests: Vec<Request> },
    /// To the first worker: a batch was taken; whether that core's fan-out lags.
    Taken { core: usize, lagging: bool },
    /// To the first worker: a core's fan-out has begun to lag, or keeps up again.
    Lag { core: usize, lagging: bool },
    /// From the first worker.
    Feed(Vec<Feed>),
    /// From the first worker, to the owner of the connection.
    Heard { token: encke_io::Token, answer: Vec<u8> },
}

/// What is known of a subscriber beyond its place: only where there is more to know.
pub(crate) struct Extra {
    pub(crate) entry: Option<Box<Entry>>,
    pub(crate) started_ns: u64,
    pub(crate) sent_bytes: u64,
    /// Who listens by a token, and to what.
    pub(crate) right: Option<(Identity, Vec<Name>)>,
    /// Until when a poll waits that stands behind another answer of its connection.
    pub(crate) until_ns: Option<u64>,
}

impl Extra {
    /// When the right to listen ends, in seconds since 1970.
    pub(crate) fn expires_unix_s(&self) -> Option<u64> {
        self.right.as_ref().and_then(|(identity, _)| identity.expires_unix_s)
    }

    /// Whether that right holds under a new plan; what it is now is kept.
    pub(crate) fn renew(&mut self, plan: &PushPlan) -> bool {
        let Some((identity, channels)) = &mut self.right else { return plan.rights.admits_nobody() };
        let Some(new) = plan.rights.renew(identity) else { return false };
        let holds = channels.iter().all(|channel| new.may(Act::Subscribe, channel));
        *identity = new;
        holds
    }
}

/// Push on one worker.
pub(crate) struct Room {
    pub(crate) plan: Arc<PushPlan>,
    pub(crate) core: usize,
    pub(crate) hub: Hub,
    pub(crate) press: Press,
    central: Option<Box<Central>>,
    /// Every worker, by number; empty until all have started.
    links: Arc<[Arc<Link>]>,
    /// What was to be sent to the first worker before it was known.
    early: Vec<Letter>,
    /// By place of the connection.
    pub(crate) extras: HashMap<u32, Extra>,
    /// Deliveries that met a frame of the connection's own; they follow it. By place of the connection.
    pub(crate) stash: HashMap<u32, Arc<[u8]>>,
    /// WebSockets that have asked for other channels, and their `ref`: told once the channels are here.
    pub(crate) changing: Vec<(encke_io::Token, Option<u64>)>,
    /// Messages that were accepted since this was last looked at.
    pub(crate) published: u64,
    pub(crate) deliveries: Vec<Delivery>,
    feeds: Vec<Feed>,
    requests: Vec<Request>,
    /// There is something to be done at once.
    pub(crate) pending: bool,
    /// … the hub has.
    hub_pending: bool,
    lagging: bool,
    /// Since when messages are on their way to subscribers here, on the monotonic clock in ns.
    fanout_since: Option<u64>,
    /// When something is due by time: history that grows old, members that have gone.
    next_ns: Option<u64>,
}

/// The sequencer and what it owes.
struct Central {
    sequencer: Sequencer,
    /// A batch is on its way to this core.
    outstanding: Vec<bool>,
    lagging: Vec<bool>,
    held: VecDeque<Held>,
}

/// An answer that waits for the fan-out.
enum Held {
    /// `traced`: since when, if the answer is to say how long it took.
    Told {
        exchange: Exchange,
        told: Told,
        traced: Option<u64>,
    },
    Heard {
        core: usize,
        token: encke_io::Token,
        answer: Vec<u8>,
    },
}

impl Room {
    pub(crate) fn new(plan: Arc<PushPlan>, core: usize, cores: usize, date: [u8; 29]) -> Self {
        let central = (core == 0).then(|| {
            Box::new(Central {
                sequencer: Sequencer::new(plan.epoch, Arc::clone(&plan.rules), cores),
                outstanding: vec![false; cores],
                lagging: vec![false; cores],
                held: VecDeque::new(),
            })
        });
        Self {
            hub: Hub::new(core, plan.epoch, Arc::clone(&plan.rules)),
            plan,
            core,
            press: Press::new(date),
            central,
            links: Arc::new([]),
            early: Vec::new(),
            extras: HashMap::new(),
            stash: HashMap::new(),
            changing: Vec::new(),
            published: 0,
            deliveries: Vec::new(),
            feeds: Vec::new(),
            requests: Vec::new(),
            pending: false,
            hub_pending: false,
            lagging: false,
            fanout_since: None,
            next_ns: None,
        }
    }

    /// Whether there is something to be done now.
    pub(crate) fn wants_turn(&self, now: Now) -> bool {
        self.next_ns().is_some_and(|at| at <= now.mono_ns)
    }

    /// When it must have a turn at the latest.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.pending { Some(0) } else { self.next_ns.into_iter().chain(self.hub.due_ns()).min() }
    }

    /// All workers have started.
    pub(crate) fn meet(&mut self, links: Arc<[Arc<Link>]>) {
        self.links = links;
        for letter in std::mem::take(&mut self.early) {
            self.post(letter);
        }
        self.pending = true;
    }

    /// New settings. What is kept under the old ones is kept until the new ones say otherwise.
    pub(crate) fn obey(&mut self, plan: Arc<PushPlan>) {
        self.hub.reload(Arc::clone(&plan.rules));
        if let Some(central) = &mut self.central {
            central.sequencer.reload(Arc::clone(&plan.rules));
        }
        self.plan = plan;
        self.pending = true;
    }

    /// Something for the sequencer: done here, or sent to where it is.
    pub(crate) fn post(&mut self, letter: Letter) {
        match self.links.first() {
            Some(first) => first.send(Message::Push(letter)),
            None => self.early.push(letter),
        }
    }

    pub(crate) fn ask(&mut self, now: Now, ask: Ask) {
        match &mut self.central {
            Some(_) => self.settle(now, ask),
            None => self.post(Letter::Ask(ask)),
        }
    }

    pub(crate) fn speak(&mut self, now: Now, spoken: Spoken) {
        match &mut self.central {
            Some(_) => self.hear(now, spoken),
            None => self.post(Letter::Spoken(spoken)),
        }
    }

    /// A letter of another worker. What it leaves is the answer to a connection of this one.
    pub(crate) fn read(&mut self, now: Now, letter: Letter) -> Option<(encke_io::Token, Vec<u8>)> {
        self.pending = true;
        match letter {
            Letter::Ask(ask) => self.settle(now, ask),
            Letter::Spoken(spoken) => self.hear(now, spoken),
            Letter::Requests { core, requests } => {
                if let Some(central) = &mut self.central {
                    for request in requests {
                        central.sequencer.apply(hub_now(now), core, request);
                    }
                }
            }
            Letter::Taken { core, lagging } => {
                if let Some(central) = &mut self.central {
                    central.outstanding[core] = false;
                    central.lagging[core] = lagging;
                }
            }
            Letter::Lag { core, lagging } => {
                if let Some(central) = &mut self.central {
                    central.lagging[core] = lagging;
                }
            }
            Letter::Feed(feeds) => {
                self.fanout_since.get_or_insert(now.mono_ns);
                for feed in feeds {
                    self.hub.feed(hub_now(now), feed);
                }
                self.lagging = self.hub.lag(hub_now(now)).exceeded;
                self.post(Letter::Taken { core: self.core, lagging: self.lagging });
            }
            Letter::Heard { token, answer } => return Some((token, answer)),
        }
        None
    }

    /// Values go their way: what the hub asks for to the sequencer, what that has to the hubs. Afterwards `pending`
    /// says whether there is more of it.
    pub(crate) fn trade(&mut self, now: Now) -> Vec<(encke_io::Token, Vec<u8>)> {
        let moment = hub_now(now);
        self.pending = true;
        if !self.requests.is_empty() {
            let requests = std::mem::take(&mut self.requests);
            match &mut self.central {
                Some(central) => {
                    for request in requests {
                        central.sequencer.apply(moment, self.core, request);
                    }
                }
                None => self.post(Letter::Requests { core: self.core, requests }),
            }
        }
        let lagging = self.hub.lag(moment).exceeded;
        let Some(central) = &mut self.central else {
            if lagging != self.lagging {
                self.lagging = lagging;
                self.post(Letter::Lag { core: self.core, lagging });
            }
            return Vec::new();
        };
        central.lagging[self.core] = lagging;
        central.sequencer.take_feed(self.core, FEED_LOCAL, &mut self.feeds);
        if !self.feeds.is_empty() {
            self.fanout_since.get_or_insert(now.mono_ns);
        }
        for feed in self.feeds.drain(..) {
            self.hub.feed(moment, feed);
        }
        for (core, link) in self.links.iter().enumerate() {
            if core == self.core || central.outstanding[core] {
                continue;
            }
            let mut feeds = Vec::new();
            central.sequencer.take_feed(core, FEED_BATCH, &mut feeds);
            if !feeds.is_empty() {
                central.outstanding[core] = true;
                link.send(Message::Push(Letter::Feed(feeds)));
            }
        }
        self.next_ns = central.sequencer.expire(moment);
        self.release(now)
    }

    /// The last send of what was on its way is done; how long it took, in ns.
    pub(crate) fn end_fanout(&mut self, now: Now) -> Option<u64> {
        if self.hub_pending {
            return None;
        }
        let since = self.fanout_since.take()?;
        if let Some(central) = &self.central {
            let waits = |held: &Held| matches!(held, Held::Told { traced: Some(_), .. });
            self.pending |= central.held.iter().any(waits);
        }
        Some(now.mono_ns.saturating_sub(since))
    }

    /// A slice is over; whether the hub has `more`. Decides whether another turn is wanted at once.
    pub(crate) fn rest(&mut self, now: Now, more: bool) {
        self.hub_pending = more;
        self.hub.take_requests(&mut self.requests);
        self.pending = more || !self.requests.is_empty();
        if self.pending {
            return;
        }
        let lagging = self.hub.lag(hub_now(now)).exceeded;
        match &mut self.central {
            Some(central) => {
                central.lagging[self.core] = lagging;
                let owing = !central.held.is_empty() && !central.lagging.iter().any(|lagging| *lagging);
                self.pending = owing || central.sequencer.has_feed(self.core);
            }
            None => self.pending = lagging != self.lagging,
        }
    }

    /// Answers publishers, if everybody keeps up; those who want to know how long it took, once that is known.
    fn release(&mut self, now: Now) -> Vec<(encke_io::Token, Vec<u8>)> {
        let mut own = Vec::new();
        let Some(central) = &mut self.central else { return own };
        if central.lagging.iter().any(|lagging| *lagging) {
            return own;
        }
        for held in std::mem::take(&mut central.held) {
            match held {
                Held::Told { traced: Some(_), .. } if self.fanout_since.is_some() => {
                    central.held.push_back(held);
                }
                Held::Told { exchange, told, traced } => {
                    exchange.answer(told.reply(traced.map(|since| now.mono_ns.saturating_sub(since))));
                }
                Held::Heard { core, token, answer } if core == self.core => own.push((token, answer)),
                Held::Heard { core, token, answer } => {
                    if let Some(link) = self.links.get(core) {
                        link.send(Message::Push(Letter::Heard { token, answer }));
                    }
                }
            }
        }
        own
    }

    /// Does what was asked, on the first worker.
    fn settle(&mut self, now: Now, ask: Ask) {
        let moment = hub_now(now);
        let Some(central) = &mut self.central else { return };
        match ask {
            Ask::Publish(publish) => {
                let Publish { exchange, drafts, lines, trace } = publish;
                let results = drafts.into_iter().map(|draft| central.sequencer.publish(moment, draft));
                match tell(results, lines) {
                    Ok(told) => {
                        self.published += told.published;
                        let traced = trace.then_some(now.mono_ns);
                        central.held.push_back(Held::Told { exchange, told, traced });
                    }
                    Err(reply) => exchange.answer(reply),
                }
            }
            Ask::Info { exchange, channel, members } => {
                exchange.answer(match central.sequencer.info(&channel) {
                    Some(info) => {
                        let names = if members { central.sequencer.members(&channel) } else { Vec::new() };
                        info_reply(&channel, &info, members.then_some(&names))
                    }
                    None => refusal(404, format!("channel {channel} has no message and no subscriber")),
                });
            }
            Ask::Forget { exchange, channels } => {
                for channel in &channels {
                    central.sequencer.delete(channel);
                }
                exchange.answer(Reply::new(204).with("Cache-Control", "no-store"));
            }
        }
        self.pending = true;
    }

    /// Publishes what came by WebSocket, on the first worker.
    fn hear(&mut self, now: Now, spoken: Spoken) {
        let Some(central) = &mut self.central else { return };
        let Spoken { core, token, reference, draft, tell } = spoken;
        let mut answer = Vec::new();
        match central.sequencer.publish(hub_now(now), draft) {
            Ok(published) => {
                let Published { position, subscribers, repeated } = published;
                self.published += u64::from(!repeated);
                let fields = format!(",\"id\":\"{position}\",\"subscribers\":{subscribers}");
                super::socket::put_ok(&mut answer, reference, &fields);
            }
            Err(refusal) => {
                super::socket::put_error(&mut answer, reference, status(&refusal), &refusal.to_string());
            }
        }
        if !tell {
            answer.clear();
        }
        central.held.push_back(Held::Heard { core, token, answer });
        self.pending = true;
    }
}

/// The hub's time.
pub(crate) fn hub_now(now: Now) -> HubNow {
    HubNow { mono_ns: now.mono_ns, unix_ms: now.unix_ns / 1_000_000 }
}

/// What a publisher is told.
struct Told {
    status: u16,
    /// An object that is not closed.
    json: Vec<u8>,
    published: u64,
}

impl Told {
    fn reply(self, fanout_ns: Option<u64>) -> Reply {
        let mut json = self.json;
        if let Some(ns) = fanout_ns {
            json.extend_from_slice(format!(",\"fanout_ns\":{ns}").as_bytes());
        }
        json.extend_from_slice(b"}\n");
        Reply::new(self.status)
            .with("Content-Type", "application/json")
            .with("Cache-Control", "no-store")
            .body(Body::Bytes(json))
    }
}

/// The answer to a publish. Of several messages the last one's id is told, and all of them in a list.
fn tell(results: impl Iterator<Item = Result<Published, Refusal>>, lines: bool) -> Result<Told, Reply> {
    let mut ids: Vec<Position> = Vec::new();
    let mut subscribers: u64 = 0;
    let mut repeats = 0;
    for result in results {
        match result {
            Ok(published) => {
                repeats += usize::from(published.repeated);
                subscribers += u64::from(published.subscribers);
                ids.push(published.position);
            }
            Err(error) => {
                let before = ids.last().map_or_else(String::new, |last| {
                    format!("; the {} before it were published, the last as {last}", ids.len())
                });
                return Err(refusal(status(&error), format!("{error}{before}")));
            }
        }
    }
    let mut json = b"{".to_vec();
    if let Some(last) = ids.last() {
        json.extend_from_slice(format!("\"id\":\"{last}\",").as_bytes());
    }
    if lines {
        json.extend_from_slice(format!("\"published\":{},", ids.len()).as_bytes());
    } else if ids.len() > 1 {
        let list: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
        json.extend_from_slice(format!("\"ids\":[{}],", list.join(",")).as_bytes());
    }
    json.extend_from_slice(format!("\"subscribers\":{subscribers}").as_bytes());
    let repeated = repeats > 0 && repeats == ids.len();
    Ok(Told { status: if repeated { 200 } else { 201 }, json, published: (ids.len() - repeats) as u64 })
}

fn status(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::TooLarge { .. } => 413,
        Refusal::KeyMismatch => 422,
        Refusal::ReservedEvent | Refusal::KeyTooLong | Refusal::BadEvent | Refusal::BadType => 400,
        Refusal::TooManyChannels { .. } => 503,
    }
}

fn info_reply(channel: &Name, info: &encke_hub::Info, members: Option<&Vec<Arc<str>>>) -> Reply {
    let id = |position: Option<Position>| match position {
        Some(position) => format!("\"{position}\""),
        None => "null".into(),
    };
    let mut json = format!(
        "{{\"channel\":\"{channel}\",\"messages\":{},\"bytes\":{},\"first\":{},\"last\":{},\"subscribers\":{}",
        info.messages,
        info.bytes,
        id(info.first),
        id(info.last),
        info.subscribers
    )
    .into_bytes();
    if let Some(names) = members {
        json.extend_from_slice(b",\"members\":[");
        for (place, name) in names.iter().enumerate() {
            if place > 0 {
                json.push(b',');
            }
            envelope::put_text(&mut json, name);
        }
        json.push(b']');
    }
    json.extend_from_slice(b"}\n");
    Reply::new(200)
        .with("Content-Type", "application/json")
        .with("Cache-Control", "no-store")
        .body(Body::Bytes(json))
}
