//! A worker's room of push: its hub, its part in the exchange of values between workers, and on the first worker
//! the sequencer, which gives every message its place.
//!
//! ```text
//! any worker  ── Publish, Info, Forget, Requests ─►  the first worker: a Sequencer for each stream
//! any worker  ◄─────── Feed (one batch on its way, the next when it was taken) ──┘
//!                      a cluster's engine  ── News ─►  the first worker  ── Errand ─►  the engine
//! ```
//! Publishes are answered when every worker's fan-out keeps up: while one lags, answers wait, and with them the
//! publishers (a connection has one publish on its way).

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use encke_hub::limits::STREAMS_MAX;
use encke_hub::{
    Deletion, Delivery, Draft, Epoch, Errand, Feed, Hubs, Name, News, Now as HubNow, Position, Published,
    Publishing, Refusal, Request, Sequencer, Since, Streams, Ticket,
};
use encke_io::{Done, Now};
use encke_stats::Histogram;

use super::envelope;
use super::figures::PushCounters;
use super::form::{Kind, Press};
use super::negotiate::refusal;
use super::plan::PushPlan;
use super::side::SideTable;
use encke_rights::{Act, Identity, Share};
use encke_server::{Body, Exchange, Farewells, Inflation, Reply, ResidentMailbox};

/// The word of a connection ([`Slot::word`](encke_server::Slot::word)) that is no subscriber.
pub(crate) const NONE: u32 = u32::MAX;

/// Messages in one batch for another worker. At 100 bytes each a batch is some 25 KiB of references.
const FEED_BATCH: usize = 256;
/// Messages the hub beside the sequencer takes in a turn.
const FEED_LOCAL: usize = 1_024;

/// What a request for messages came to: everything that its subscription needs. Made by push alone.
pub(crate) struct Subscription {
    pub(crate) channels: Vec<Name>,
    pub(crate) since: Since,
    pub(crate) kind: Kind,
    /// How long a poll waits.
    pub(crate) wait_s: u64,
    /// Who is there, where that is shown.
    pub(crate) member: Option<Arc<str>>,
    /// Which pages of another origin may read it.
    pub(crate) share: Share,
    /// The subscriber's identity, if a token or certificate established one: it may expire or lose its rights.
    pub(crate) identity: Option<Identity>,
    /// [`Rights::serial`](encke_rights::Rights::serial) of the rights that admitted the request.
    pub(crate) rights_serial: u64,
    /// The client's address as a number ([`client_number`](encke_rights::client_number)).
    pub(crate) client: u64,
    /// Whether limits by client address apply.
    pub(crate) limited: bool,
}

impl Subscription {
    /// Whether the subscription is still allowed under the rights of `plan`, which a reload may have changed while the
    /// request was pending. Replaces the identity by the current one.
    pub(crate) fn renew(&mut self, plan: &PushPlan) -> bool {
        if self.rights_serial == plan.rights.serial() {
            return true;
        }
        self.rights_serial = plan.rights.serial();
        match &mut self.identity {
            Some(identity) => renew(identity, &self.channels, plan),
            None => plan.rights.admits_nobody(),
        }
    }
}

/// Replaces an identity by the one it has under the rights of `plan`. Returns whether it may read these channels.
pub(crate) fn renew(identity: &mut Identity, channels: &[Name], plan: &PushPlan) -> bool {
    let Some(new) = plan.rights.renew(identity) else { return false };
    *identity = new;
    channels.iter().all(|channel| identity.may(Act::Subscribe, channel))
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

/// What the handlers of a worker have asked for.
pub(crate) type Asks = Rc<RefCell<Vec<Ask>>>;

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
    Requests { core: usize, stream: usize, requests: Vec<Request> },
    /// To the first worker: a batch was taken; whether that core's fan-out lags.
    Taken { core: usize, stream: usize, lagging: bool },
    /// To the first worker: a core's fan-out has begun to lag, or keeps up again.
    Lag { core: usize, lagging: bool },
    /// From the first worker.
    Feed { stream: usize, feeds: Vec<Feed> },
    /// To the first worker: a worker has ended, and asks for nothing more.
    Gone { core: usize },
    /// To the first worker, from the engine of a cluster's stream.
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "nobody writes it"))]
    News { stream: usize, news: Vec<News> },
    /// From the first worker, to the owner of the connection.
    Heard { token: encke_io::Token, answer: Vec<u8> },
}

/// Push on one worker.
pub(crate) struct Room {
    pub(crate) plan: Arc<PushPlan>,
    pub(crate) core: usize,
    pub(crate) hub: Hubs,
    pub(crate) press: Press,
    central: Option<Box<Central>>,
    /// The rooms of all workers, by number; empty until all have started.
    links: Arc<[ResidentMailbox]>,
    /// What was to be sent to the first worker before it was known.
    early: Vec<Letter>,
    /// The figures of this worker.
    pub(crate) counters: Arc<PushCounters>,
    /// How long fan-outs took, by class of channels.
    pub(crate) fanouts: Vec<Arc<Histogram>>,
    /// State of subscribers beside their slots.
    pub(crate) sides: SideTable,
    pub(crate) inflation: Inflation,
    /// What handlers have asked for.
    asks: Asks,
    /// The rights of subscribers may have changed with the settings.
    pub(crate) renewing: bool,
    /// The server stops.
    pub(crate) farewells: Option<Farewells>,
    /// Where the last sample of subscribers ended.
    pub(crate) sample_hand: usize,
    /// A queue of channel changes by WebSockets, each with its `ref`: confirmed once the channels are open. An entry of a
    /// closed connection is dropped, because its token is no longer valid.
    pub(crate) changing: Vec<(encke_io::Token, Option<u64>)>,
    /// Messages that were accepted since this was last looked at.
    pub(crate) published: u64,
    pub(crate) deliveries: Vec<Delivery>,
    feeds: Vec<Feed>,
    /// By stream.
    requests: Vec<Vec<Request>>,
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

/// The sequencers and what they owe.
struct Central {
    streams: Arc<Streams>,
    /// In the order of streams.
    lanes: Vec<Lane>,
    lagging: Vec<bool>,
    /// Cores that have ended.
    gone: Vec<bool>,
    /// What waits for a commit, by number.
    orders: HashMap<u64, Order>,
    numbered: u64,
    /// Which of an order's messages a ticket is for.
    tickets: HashMap<(usize, Ticket), (u64, usize)>,
    held: VecDeque<Held>,
    errands: Vec<Errand>,
}

/// A stream: who makes its order or follows it, and what is on its way from there.
struct Lane {
    sequencer: Sequencer,
    /// A batch is on its way to this core, and up to where it was told before.
    outstanding: Vec<Option<u64>>,
}

/// An offset in each stream.
type Reach = [u64; STREAMS_MAX];

/// What somebody has asked for, until all of it is known.
struct Order {
    whose: Whose,
    results: Vec<Option<Result<Taken, Refusal>>>,
    /// How many results are missing.
    open: usize,
}

/// A message that is not refused.
#[derive(Clone, Copy)]
enum Taken {
    Published(Published),
    /// It waits for the cluster, and has no id.
    Queued {
        subscribers: u32,
    },
}

/// Who is to be told.
enum Whose {
    /// A publisher by HTTP.
    Publisher { exchange: Exchange, lines: bool, trace: bool },
    /// A publisher by WebSocket; whether it wants to know.
    Speaker { core: usize, token: encke_io::Token, reference: Option<u64>, tell: bool },
    /// Somebody who has had channels forgotten; whether by all nodes of a cluster.
    Remover { exchange: Exchange, elsewhere: bool },
}

/// An answer that waits for the hubs: whoever asks on any core for what a publisher was told of is to get it.
struct Held {
    /// The newest offsets that it tells of.
    to: Reach,
    /// Since when, if the answer is to say how long the fan-out took.
    traced: Option<u64>,
    owed: Owed,
}

/// … and whose it is.
enum Owed {
    Publisher { exchange: Exchange, told: Told },
    Speaker { core: usize, token: encke_io::Token, answer: Vec<u8> },
    Remover { exchange: Exchange },
}

impl Room {
    pub(crate) fn new(now: Now, plan: Arc<PushPlan>, core: usize, cores: usize) -> Self {
        let central = (core == 0).then(|| {
            let mut found = plan.archive.as_ref().and_then(|archive| archive.take());
            let lane = |(stream, epoch): (usize, &Epoch)| {
                let rules = plan.rules.share(plan.epochs.len());
                let sequencer = match (&plan.cluster, found.take()) {
                    (Some(cluster), _) => {
                        let mut sequencer = Sequencer::follow(*epoch, cluster.newest(stream), rules, cores);
                        sequencer.limit_queue(cluster.queueing());
                        sequencer
                    }
                    (None, Some(found)) => {
                        Sequencer::restore(hub_now(now), found.saved, found.ceiling, rules, cores)
                    }
                    (None, None) => Sequencer::new(*epoch, rules, cores),
                };
                Lane { sequencer, outstanding: vec![None; cores] }
            };
            Box::new(Central {
                streams: Arc::clone(&plan.streams),
                lanes: plan.epochs.iter().enumerate().map(lane).collect(),
                lagging: vec![false; cores],
                gone: vec![false; cores],
                orders: HashMap::new(),
                numbered: 0,
                tickets: HashMap::new(),
                held: VecDeque::new(),
                errands: Vec::new(),
            })
        });
        let requests = plan.epochs.iter().map(|_| Vec::new()).collect();
        Self {
            hub: Hubs::new(core, &plan.epochs, Arc::clone(&plan.streams), &plan.rules),
            counters: plan.figures.of_worker(core),
            plan,
            core,
            press: Press::new(),
            central,
            links: Arc::new([]),
            early: Vec::new(),
            fanouts: Vec::new(),
            sides: SideTable::default(),
            inflation: Inflation::default(),
            asks: Asks::default(),
            renewing: false,
            farewells: None,
            sample_hand: 0,
            changing: Vec::new(),
            published: 0,
            deliveries: Vec::new(),
            feeds: Vec::new(),
            requests,
            pending: false,
            hub_pending: false,
            lagging: false,
            fanout_since: None,
            next_ns: None,
        }
    }

    /// When it must have a turn at the latest.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.pending || !self.asks.borrow().is_empty() {
            Some(0)
        } else {
            encke_server::earlier(self.next_ns, self.hub.due_ns())
        }
    }

    /// All workers have started.
    pub(crate) fn know(&mut self, links: Arc<[ResidentMailbox]>) {
        self.links = links;
        if let (Some(_), Some(cluster), Some(first)) = (&self.central, &self.plan.cluster, self.links.first())
        {
            cluster.begin(first);
        }
        for letter in std::mem::take(&mut self.early) {
            self.post(letter);
        }
        self.pending = true;
    }

    /// New settings. What is kept under the old ones is kept until the new ones say otherwise.
    pub(crate) fn obey(&mut self, plan: Arc<PushPlan>) {
        if Arc::ptr_eq(&self.plan, &plan) {
            return;
        }
        self.renewing = true;
        self.hub.reload(&plan.rules);
        if let Some(central) = &mut self.central {
            let share = plan.rules.share(central.lanes.len());
            central.lanes.iter_mut().for_each(|lane| lane.sequencer.reload(Arc::clone(&share)));
        }
        self.plan = plan;
        self.pending = true;
    }

    /// Something for the sequencer: done here, or sent to where it is.
    pub(crate) fn post(&mut self, letter: Letter) {
        match self.links.first() {
            Some(first) => first.send(letter),
            None => self.early.push(letter),
        }
    }

    /// Where handlers put what they ask for.
    pub(crate) fn asks(&self) -> Asks {
        Rc::clone(&self.asks)
    }

    /// Does what handlers have asked for.
    pub(crate) fn take_asks(&mut self, now: Now) {
        for ask in self.asks.take() {
            self.ask(now, ask);
        }
    }

    fn ask(&mut self, now: Now, ask: Ask) {
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
            Letter::Requests { core, stream, requests } => {
                if let Some(central) = &mut self.central {
                    for request in requests {
                        central.lanes[stream].sequencer.apply(hub_now(now), core, request);
                    }
                }
            }
            Letter::Taken { core, stream, lagging } => {
                if let Some(central) = &mut self.central {
                    central.lanes[stream].outstanding[core] = None;
                    central.lagging[core] = lagging;
                }
            }
            Letter::Lag { core, lagging } => {
                if let Some(central) = &mut self.central {
                    central.lagging[core] = lagging;
                }
            }
            Letter::Gone { core } => {
                if let Some(central) = &mut self.central {
                    central.gone[core] = true;
                    central.lagging[core] = false;
                }
            }
            Letter::Feed { stream, feeds } => {
                self.fanout_since.get_or_insert(now.mono_ns);
                for feed in feeds {
                    self.hub.feed(hub_now(now), stream, feed);
                }
                self.lagging = self.hub.lag(hub_now(now)).exceeded;
                self.post(Letter::Taken { core: self.core, stream, lagging: self.lagging });
            }
            Letter::News { stream, news } => self.hear_news(now, stream, news),
            Letter::Heard { token, answer } => return Some((token, answer)),
        }
        None
    }

    /// The engine of a stream has news, on the first worker.
    fn hear_news(&mut self, now: Now, stream: usize, news: Vec<News>) {
        let Some(central) = &mut self.central else { return };
        for one in news {
            if let Some((ticket, result)) = central.lanes[stream].sequencer.hear(one) {
                self.published += central.answer(now, (stream, ticket), result);
            }
        }
        if let Some(cluster) = &self.plan.cluster {
            cluster.taken(stream);
        }
    }

    /// Values go their way: what the hub asks for to the sequencer, what that has to the hubs. Afterwards `pending`
    /// says whether there is more of it.
    pub(crate) fn trade(&mut self, now: Now) -> Vec<(encke_io::Token, Vec<u8>)> {
        let moment = hub_now(now);
        self.pending = true;
        for (stream, requests) in self.requests.iter_mut().enumerate() {
            if requests.is_empty() {
                continue;
            }
            let requests = std::mem::take(requests);
            match (&mut self.central, self.links.first()) {
                (Some(central), _) => {
                    for request in requests {
                        central.lanes[stream].sequencer.apply(moment, self.core, request);
                    }
                }
                (None, first) => {
                    let letter = Letter::Requests { core: self.core, stream, requests };
                    match first {
                        Some(first) => first.send(letter),
                        None => self.early.push(letter),
                    }
                }
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
        self.next_ns = None;
        for (stream, lane) in central.lanes.iter_mut().enumerate() {
            lane.sequencer.take_feed(self.core, FEED_LOCAL, &mut self.feeds);
            if !self.feeds.is_empty() {
                self.fanout_since.get_or_insert(now.mono_ns);
            }
            for feed in self.feeds.drain(..) {
                self.hub.feed(moment, stream, feed);
            }
            for (core, link) in self.links.iter().enumerate() {
                if core == self.core || lane.outstanding[core].is_some() || central.gone[core] {
                    continue;
                }
                let mut feeds = Vec::new();
                let before = lane.sequencer.told_to(core);
                lane.sequencer.take_feed(core, FEED_BATCH, &mut feeds);
                if !feeds.is_empty() {
                    lane.outstanding[core] = Some(before);
                    link.send(Letter::Feed { stream, feeds });
                }
            }
            self.next_ns = self.next_ns.into_iter().chain(lane.sequencer.expire(moment)).min();
            lane.sequencer.take_errands(&mut central.errands);
            if let Some(cluster) = &self.plan.cluster {
                central.errands.drain(..).for_each(|errand| cluster.run(stream, errand));
                cluster.show(stream, lane.sequencer.backlog());
            }
        }
        self.release(now)
    }

    /// A commit for the pool, if there is something to store and none is on its way. What became of it comes by
    /// [`Room::committed`].
    pub(crate) fn take_commit(
        &mut self,
        now: Now,
    ) -> Option<impl FnOnce() -> Result<(), Refusal> + Send + use<>> {
        let (central, archive) = (self.central.as_mut()?, self.plan.archive.as_ref()?);
        let [Lane { sequencer, .. }] = &mut central.lanes[..] else { return None };
        let commit = sequencer.take_commit(hub_now(now));
        let due_ns = sequencer.commit_due_ns();
        self.next_ns = self.next_ns.into_iter().chain(due_ns).min();
        let (commit, archive) = (commit?, Arc::clone(archive));
        Some(move || archive.commit(&commit))
    }

    /// A commit has ended; `None`: the pool is too busy for it, or it has panicked.
    pub(crate) fn committed(&mut self, now: Now, done: Option<Done>) {
        let outcome = done.and_then(|done| done.downcast::<Result<(), Refusal>>().ok());
        let outcome = outcome.map_or(Err(Refusal::NotStored), |outcome| *outcome);
        let Some(central) = &mut self.central else { return };
        let [Lane { sequencer, .. }] = &mut central.lanes[..] else { return };
        for (ticket, result) in sequencer.committed(hub_now(now), outcome) {
            self.published += central.answer(now, (0, ticket), result);
        }
        self.pending = true;
    }

    /// Whether it may end: nobody asks for anything any more, nothing waits for the disk, nor for the cluster unless it is
    /// `late`.
    pub(crate) fn is_done(&self, late: bool) -> bool {
        let Some(central) = &self.central else { return true };
        let others = central.gone.iter().enumerate().filter(|(core, _)| *core != self.core);
        let alone = self.links.is_empty() || others.into_iter().all(|(_, gone)| *gone);
        let mut lanes = central.lanes.iter().map(|lane| &lane.sequencer);
        let sent = late || lanes.clone().all(|sequencer| sequencer.backlog().messages == 0);
        let committing = lanes.any(Sequencer::is_committing);
        alone && sent && !committing && central.orders.is_empty()
    }

    /// The worker ends. The first one has waited for the others, and stores what there is.
    pub(crate) fn close(&mut self, now: Now) {
        // In a simulation every connection has closed by now.
        debug_assert!(!cfg!(test) || self.sides.is_empty(), "a closed connection has a row");
        match (&mut self.central, &self.plan.archive) {
            (Some(central), Some(archive)) => {
                // Also what was not worth a commit of its own.
                let moment = HubNow { mono_ns: u64::MAX, ..hub_now(now) };
                if let [Lane { sequencer, .. }] = &mut central.lanes[..] {
                    let commit = sequencer.take_commit(moment);
                    archive.close(commit.as_deref(), &sequencer.save());
                }
            }
            (Some(central), None) => {
                if let Some(cluster) = &self.plan.cluster {
                    cluster.leave(central.lanes.iter().map(|lane| lane.sequencer.backlog().messages).sum());
                }
            }
            (None, _) => self.post(Letter::Gone { core: self.core }),
        }
    }

    /// Records the fan-outs that have ended in the last slice.
    pub(crate) fn record_fanouts(&self, now: Now) {
        for pass in self.hub.ended() {
            if let Some(histogram) = self.fanouts.get(usize::from(pass.class)) {
                histogram.record(now.mono_ns.saturating_sub(pass.since_ns));
            }
        }
    }

    /// The last send of what was on its way is done.
    pub(crate) fn end_fanout(&mut self) {
        self.counters.published.add(std::mem::take(&mut self.published));
        if self.hub_pending || self.fanout_since.take().is_none() {
            return;
        }
        if let Some(central) = &self.central {
            self.pending |= central.held.iter().any(|held| held.traced.is_some());
        }
    }

    /// A slice is over; whether the hub has `more`. Decides whether another turn is wanted at once.
    pub(crate) fn rest(&mut self, now: Now, more: bool) {
        self.hub_pending = more;
        for (stream, requests) in self.requests.iter_mut().enumerate() {
            self.hub.take_requests(stream, requests);
        }
        self.pending = more || self.requests.iter().any(|requests| !requests.is_empty());
        if self.pending {
            return;
        }
        let lagging = self.hub.lag(hub_now(now)).exceeded;
        match &mut self.central {
            Some(central) => {
                central.lagging[self.core] = lagging;
                let owing = central.owes_now(self.fanout_since.is_some());
                let fed = |lane: &Lane| lane.sequencer.has_feed(self.core);
                self.pending = owing || central.lanes.iter().any(fed);
            }
            None => self.pending = lagging != self.lagging,
        }
    }

    /// Answers publishers whose messages every hub has, if everybody keeps up; those who want to know how long it took,
    /// once that is known.
    fn release(&mut self, now: Now) -> Vec<(encke_io::Token, Vec<u8>)> {
        let mut own = Vec::new();
        let fanning = self.fanout_since.is_some();
        let Some(central) = self.central.as_mut().filter(|central| central.owes_now(fanning)) else {
            return own;
        };
        let reached = central.reached();
        for held in std::mem::take(&mut central.held) {
            if !held.is_due(&reached, fanning) {
                central.held.push_back(held);
                continue;
            }
            match held.owed {
                Owed::Publisher { exchange, told } => {
                    let fanout_ns = held.traced.map(|since| now.mono_ns.saturating_sub(since));
                    exchange.answer(told.reply(fanout_ns));
                }
                Owed::Remover { exchange } => exchange.answer(forgotten()),
                Owed::Speaker { core, token, answer } if core == self.core => own.push((token, answer)),
                Owed::Speaker { core, token, answer } => {
                    if let Some(link) = self.links.get(core) {
                        link.send(Letter::Heard { token, answer });
                    }
                }
            }
        }
        own
    }

    /// Does what was asked, on the first worker.
    fn settle(&mut self, now: Now, ask: Ask) {
        let Some(central) = &mut self.central else { return };
        match ask {
            Ask::Publish(publish) => {
                let Publish { exchange, drafts, lines, trace } = publish;
                let whose = Whose::Publisher { exchange, lines, trace };
                self.published += central.publish(now, whose, drafts);
            }
            Ask::Info { exchange, channel, members } => {
                let sequencer = &central.lanes[central.streams.of(&channel)].sequencer;
                exchange.answer(match sequencer.info(&channel) {
                    Some(info) => {
                        let names = if members { sequencer.members(&channel) } else { Vec::new() };
                        info_reply(&channel, &info, members.then_some(&names))
                    }
                    None if self.plan.cluster.is_some() => {
                        refusal(404, format!("channel {channel} has no subscriber"))
                    }
                    None => refusal(404, format!("channel {channel} has no message and no subscriber")),
                });
            }
            Ask::Forget { exchange, channels } if self.plan.cluster.is_some() => {
                let forget = |channel: &Name| {
                    let stream = central.streams.of(channel);
                    (stream, central.lanes[stream].sequencer.forget(channel))
                };
                let results = channels.iter().map(forget).collect();
                central.order(now, Whose::Remover { exchange, elsewhere: true }, results);
            }
            Ask::Forget { exchange, channels } => {
                let [Lane { sequencer, .. }] = &mut central.lanes[..] else { return };
                let mut delete = |channel| match sequencer.delete(channel) {
                    Deletion::Absent => None,
                    Deletion::Waits(ticket) => Some((0, Ok(Publishing::Waits(ticket)))),
                    Deletion::Done => Some((0, Ok(Publishing::Done(sequencer.deleted())))),
                };
                let results = channels.iter().filter_map(&mut delete).collect();
                central.order(now, Whose::Remover { exchange, elsewhere: false }, results);
            }
        }
        self.pending = true;
    }

    /// Publishes what came by WebSocket, on the first worker.
    fn hear(&mut self, now: Now, spoken: Spoken) {
        let Some(central) = &mut self.central else { return };
        let Spoken { core, token, reference, draft, tell } = spoken;
        let whose = Whose::Speaker { core, token, reference, tell };
        self.published += central.publish(now, whose, vec![draft]);
        self.pending = true;
    }
}

impl Central {
    /// Publishes in order, up to the first message that is refused; returns how many are published already.
    fn publish(&mut self, now: Now, whose: Whose, drafts: Vec<Draft>) -> u64 {
        let mut results = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let stream = self.streams.of(&draft.channel);
            let result = self.lanes[stream].sequencer.publish(hub_now(now), draft);
            let refused = result.is_err();
            results.push((stream, result));
            if refused {
                break;
            }
        }
        self.order(now, whose, results)
    }

    /// Answers when all results are known.
    fn order(&mut self, now: Now, whose: Whose, results: Vec<(usize, Result<Publishing, Refusal>)>) -> u64 {
        let number = self.numbered + 1;
        let mut order = Order { whose, results: Vec::with_capacity(results.len()), open: 0 };
        for (place, (stream, result)) in results.into_iter().enumerate() {
            order.results.push(match result {
                Ok(Publishing::Done(published)) => Some(Ok(Taken::Published(published))),
                Ok(Publishing::Queued { subscribers }) => Some(Ok(Taken::Queued { subscribers })),
                Ok(Publishing::Waits(ticket)) => {
                    self.tickets.insert((stream, ticket), (number, place));
                    order.open += 1;
                    None
                }
                Err(refusal) => Some(Err(refusal)),
            });
        }
        if order.open == 0 {
            return self.hold(now, order);
        }
        self.numbered = number;
        self.orders.insert(number, order);
        0
    }

    /// It is known what became of a publish: if that was the last of its order, it is answered. Returns how many messages
    /// were published.
    fn answer(&mut self, now: Now, ticket: (usize, Ticket), result: Result<Published, Refusal>) -> u64 {
        let Some((number, place)) = self.tickets.remove(&ticket) else { return 0 };
        let Some(order) = self.orders.get_mut(&number) else { return 0 };
        order.results[place] = Some(result.map(Taken::Published));
        order.open -= 1;
        if order.open > 0 {
            return 0;
        }
        self.orders.remove(&number).map_or(0, |order| self.hold(now, order))
    }

    /// Whether somebody can be answered, while messages are `fanning` out here or not.
    fn owes_now(&self, fanning: bool) -> bool {
        let reached = self.reached();
        let keeping_up = !self.lagging.iter().any(|lagging| *lagging);
        keeping_up && self.held.iter().any(|held| held.is_due(&reached, fanning))
    }

    /// Up to where every core that is still there has what it wants, of each stream.
    fn reached(&self) -> Reach {
        let mut reached = [u64::MAX; STREAMS_MAX];
        for (reached, lane) in reached.iter_mut().zip(&self.lanes) {
            *reached = lane.reached(&self.gone);
        }
        reached
    }

    /// Everything is known: the answer waits for the hubs alone. Returns how many messages were published.
    fn hold(&mut self, now: Now, order: Order) -> u64 {
        let results = order.results.into_iter().flatten();
        let mut to = [0; STREAMS_MAX];
        for Position { epoch, offset } in results.clone().flatten().filter_map(Taken::awaited) {
            let same = |lane: &Lane| lane.sequencer.newest().epoch == epoch;
            if let Some(stream) = self.lanes.iter().position(same) {
                to[stream] = offset.max(to[stream]);
            }
        }
        match order.whose {
            Whose::Publisher { exchange, lines, trace } => match tell(results, lines) {
                Ok(told) => {
                    let published = told.published;
                    let traced = trace.then_some(now.mono_ns);
                    self.held.push_back(Held { to, traced, owed: Owed::Publisher { exchange, told } });
                    published
                }
                Err(reply) => {
                    exchange.answer(reply);
                    0
                }
            },
            Whose::Speaker { core, token, reference, tell } => {
                let mut answer = Vec::new();
                let mut new = 0;
                for result in results {
                    match result {
                        Ok(Taken::Published(Published {
                            position,
                            subscribers,
                            repeated,
                            early,
                            wanted: _,
                        })) => {
                            new += u64::from(!repeated);
                            let stored = if early { ",\"stored\":false" } else { "" };
                            let fields =
                                format!(",\"id\":\"{position}\",\"subscribers\":{subscribers}{stored}");
                            super::socket::put_ok(&mut answer, reference, &fields);
                        }
                        Ok(Taken::Queued { subscribers }) => {
                            new += 1;
                            let fields = format!(",\"queued\":1,\"subscribers\":{subscribers}");
                            super::socket::put_ok(&mut answer, reference, &fields);
                        }
                        Err(refusal) => {
                            let text = refusal.to_string();
                            super::socket::put_error(&mut answer, reference, status(&refusal), &text);
                        }
                    }
                }
                if !tell {
                    answer.clear();
                }
                let owed = Owed::Speaker { core, token, answer };
                self.held.push_back(Held { to, traced: None, owed });
                new
            }
            Whose::Remover { exchange, elsewhere } => {
                match results.into_iter().find_map(Result::err) {
                    // A read after the 204 must not return the messages on any worker.
                    None => self.held.push_back(Held { to, traced: None, owed: Owed::Remover { exchange } }),
                    Some(error) => exchange.answer(not_forgotten(&error, elsewhere)),
                }
                0
            }
        }
    }
}

impl Taken {
    /// The place that the hubs have to come to, if there is one.
    fn awaited(self) -> Option<Position> {
        match self {
            Self::Published(published) => published.wanted.then_some(published.position),
            Self::Queued { .. } => None,
        }
    }
}

impl Lane {
    /// Up to where every core but those that have ended has what it wants.
    fn reached(&self, gone: &[bool]) -> u64 {
        // What has its place elsewhere comes when it comes: nobody waits for an outage to end.
        if !self.sequencer.is_up() {
            return u64::MAX;
        }
        let cores = self.outstanding.iter().zip(gone).enumerate().filter(|(_, (_, gone))| !**gone);
        let reached = cores.map(|(core, (before, _))| before.unwrap_or_else(|| self.sequencer.told_to(core)));
        reached.min().unwrap_or(u64::MAX)
    }
}

impl Held {
    fn is_due(&self, reached: &Reach, fanning: bool) -> bool {
        self.to.iter().zip(reached).all(|(to, reached)| to <= reached) && !(fanning && self.traced.is_some())
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

/// The answer to a publish. Of several messages the last one's id is told, and all of them in a list, `null` for what
/// waits for the cluster; of messages that all do there are none.
fn tell(results: impl Iterator<Item = Result<Taken, Refusal>>, lines: bool) -> Result<Told, Reply> {
    let mut ids: Vec<Option<Position>> = Vec::new();
    let mut subscribed: u64 = 0;
    let (mut repeats, mut queued, mut early) = (0, 0, false);
    for result in results {
        match result {
            Ok(Taken::Published(published)) => {
                repeats += usize::from(published.repeated);
                subscribed += u64::from(published.subscribers);
                early |= published.early;
                ids.push(Some(published.position));
            }
            Ok(Taken::Queued { subscribers }) => {
                queued += 1;
                subscribed += u64::from(subscribers);
                ids.push(None);
            }
            Err(error) => {
                let mut before = String::new();
                if !ids.is_empty() {
                    before = format!(
                        "; the {} before it were {}",
                        ids.len(),
                        if queued > 0 { "taken" } else { "published" }
                    );
                }
                if let Some(last) = ids.iter().flatten().last() {
                    before = format!("{before}, the last as {last}");
                }
                let reply = refusal(status(&error), format!("{error}{before}"));
                return Err(if is_soon_over(&error) {
                    reply.with("Retry-After", RETRY_AFTER_S)
                } else {
                    reply
                });
            }
        }
    }
    let mut json = b"{".to_vec();
    if let Some(last) = ids.iter().flatten().last() {
        json.extend_from_slice(format!("\"id\":\"{last}\",").as_bytes());
    }
    if lines {
        json.extend_from_slice(format!("\"published\":{},", ids.len() - queued).as_bytes());
    } else if ids.len() > 1 && queued < ids.len() {
        let one = |id: &Option<Position>| id.map_or_else(|| "null".to_owned(), |id| format!("\"{id}\""));
        let list: Vec<String> = ids.iter().map(one).collect();
        json.extend_from_slice(format!("\"ids\":[{}],", list.join(",")).as_bytes());
    }
    if queued > 0 {
        json.extend_from_slice(format!("\"queued\":{queued},").as_bytes());
    }
    json.extend_from_slice(format!("\"subscribers\":{subscribed}").as_bytes());
    let repeated = repeats > 0 && repeats == ids.len();
    let status = match (repeated, early || queued > 0) {
        (true, _) => 200,
        // It is yet to be stored.
        (false, true) => 202,
        (false, false) => 201,
    };
    Ok(Told { status, json, published: (ids.len() - repeats) as u64 })
}

fn status(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::TooLarge { .. } => 413,
        Refusal::KeyMismatch => 422,
        Refusal::ReservedEvent | Refusal::KeyTooLong | Refusal::BadEvent | Refusal::BadType => 400,
        Refusal::TooManyChannels { .. } | Refusal::NotStored | Refusal::Stalled => 503,
        Refusal::Away | Refusal::Unanswered | Refusal::Crowded | Refusal::NotTaken => 503,
        Refusal::NoSpace => 507,
    }
}

/// Whether the same may well be taken in a moment.
fn is_soon_over(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Away | Refusal::Unanswered | Refusal::Crowded)
}

/// The channels are forgotten.
fn forgotten() -> Reply {
    Reply::new(204).with("Cache-Control", "no-store")
}

/// They are not, or not all of them.
fn not_forgotten(error: &Refusal, elsewhere: bool) -> Reply {
    let text = match error {
        Refusal::Away => "the cluster cannot be reached; nothing was forgotten, try again".into(),
        Refusal::Unanswered => {
            "the cluster has not answered in time, and may have forgotten it: ask again".into()
        }
        error if elsewhere => error.to_string(),
        Refusal::NoSpace => "no space left to store the delete; the messages are still there".into(),
        error => format!("{error}; the server deletes the messages once the store works"),
    };
    let reply = refusal(status(error), text);
    if is_soon_over(error) { reply.with("Retry-After", RETRY_AFTER_S) } else { reply }
}

/// How soon to try again what the cluster did not take: about as long as NATS needs to choose another leader.
const RETRY_AFTER_S: &str = "2";

fn info_reply(channel: &Name, info: &encke_hub::Info, members: Option<&Vec<Arc<str>>>) -> Reply {
    let id = |position: Option<Position>| match position {
        Some(position) => format!("\"{position}\""),
        None => "null".into(),
    };
    // Of a channel that only other nodes keep, nothing is claimed.
    let kept = |value: u64| if info.kept { value.to_string() } else { "null".into() };
    let mut json = format!(
        "{{\"channel\":\"{channel}\",\"messages\":{},\"bytes\":{},\"first\":{},\"last\":{},\"subscribers\":{}",
        kept(info.messages as u64),
        kept(info.bytes),
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
