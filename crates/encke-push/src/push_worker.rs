//! Push on one worker: its hub and its part in the exchange of values between workers. The first worker also has the
//! sequencers, which assign an offset to every message.
//!
//! ```text
//! any worker  ── Publish, Info, Forget, Requests ─►  the first worker: a Sequencer for each stream
//! any worker  ◄─────── Feed (one batch in flight, the next after Taken) ─────────┘
//!                      a cluster's engine  ── ClusterEvent ─►  the first worker  ── ClusterCommand ─►  the engine
//! ```
//! A publish is acknowledged once every worker's hub has the message and no worker lags. This slows publishers down to the
//! slowest worker, because a connection has one publish in progress.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use encke_hub::limits::STREAMS_MAX;
use encke_hub::{
    ClusterCommand, ClusterEvent, Deletion, Delivery, Draft, Epoch, Feed, FeedRequest, HubNow, Hubs, Name,
    Position, PublishError, PublishTicket, Published, Publishing, Sequencer, Since, Streams,
};
use encke_io::{Done, Now};
use encke_stats::{Histogram, Ticket};

use super::console::{ChannelDeletion, ConsoleWalk, RowsOrder};
use super::figures::PushCounters;
use super::form::{MessageForm, RunEncoder};
use super::listing::{ChannelListing, ListRequest, info_reply};
use super::log_out::{LogOutOrder, LogOutQueue, LogOutRequest};
use super::negotiate::refusal;
use super::plan::PushPlan;
use super::publisher::{Accepted, ProgramPublish};
use super::side::SideTable;
use encke_rights::{Act, Principal, Share};
use encke_server::{
    ActionError, ActionReport, ActionResult, Body, CodedText, Exchange, Farewells, Fields, Inflation, Reply,
    ResidentMailbox, spread_retry_ms,
};

/// The word of a connection ([`Slot::word`](encke_server::Slot::word)) without a subscriber.
pub(crate) const NONE: u32 = u32::MAX;

/// Limit of messages in a batch for another worker. At 100 bytes each a batch is about 25 KiB of references.
const FEED_BATCH: usize = 256;
/// Limit of messages that the first worker's own hub takes in a turn.
const FEED_LOCAL: usize = 1_024;

/// A subscription, as the handler passes it to the worker: the parsed and authorized request. Only push creates it.
pub(crate) struct Subscription {
    pub(crate) channels: Vec<Name>,
    pub(crate) since: Since,
    pub(crate) kind: MessageForm,
    /// How long a poll waits, in seconds.
    pub(crate) wait_s: u64,
    /// The member's name in channels with presence.
    pub(crate) member: Option<Arc<str>>,
    /// The pages of other origins that may read the response.
    pub(crate) share: Share,
    /// The header fields of the response, for media.
    pub(crate) head: Option<Box<Fields>>,
    /// The name of a subscriber that relays the channel.
    pub(crate) relay: Option<Box<str>>,
    /// The subscriber's identity, if a token or certificate established one: it may expire or lose its rights.
    pub(crate) identity: Option<Principal>,
    /// [`Rights::serial`](encke_rights::Rights::serial) of the rights that admitted the request.
    pub(crate) rights_serial: u64,
    /// The client's address as a number ([`client_number`](encke_rights::client_number)).
    pub(crate) client: u64,
    /// Whether limits by client address apply.
    pub(crate) limited: bool,
}

impl Subscription {
    /// Returns whether the subscription is still allowed under the rights of `plan`, which a reload may have changed while the
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

/// Replaces an identity by its value under the rights of `plan`. Returns whether it may read these channels.
pub(crate) fn renew(identity: &mut Principal, channels: &[Name], plan: &PushPlan) -> bool {
    let Some(new) = plan.rights.renew(identity) else { return false };
    *identity = new;
    channels.iter().all(|channel| identity.may(Act::Subscribe, channel))
}

/// A request from a handler to push.
pub(crate) enum PushRequest {
    Publish(PublishRequest),
    Info {
        exchange: Exchange,
        channel: Name,
        /// Whether to list the members.
        members: bool,
    },
    Forget {
        exchange: Exchange,
        channels: Vec<Name>,
    },
    List(ListRequest),
    LogOut(LogOutRequest),
}

/// The queue of requests from a worker's handlers.
pub(crate) type PushRequests = Rc<RefCell<Vec<PushRequest>>>;

/// A publish request: messages in order, and the exchange to respond to.
pub(crate) struct PublishRequest {
    pub(crate) exchange: Exchange,
    pub(crate) drafts: Vec<Draft>,
    /// Whether the response reports the duration of the fan-out.
    pub(crate) trace: bool,
    /// Whether the body had one envelope per line.
    pub(crate) lines: bool,
}

/// A publish by WebSocket; the response goes to the connection.
pub(crate) struct SocketPublish {
    pub(crate) core: usize,
    pub(crate) token: encke_io::Token,
    pub(crate) reference: Option<u64>,
    pub(crate) draft: Draft,
    /// Whether the client expects a response.
    pub(crate) wants_reply: bool,
}

/// A message between workers.
pub(crate) enum PushMessage {
    /// To the first worker: a request of a handler.
    Ask(PushRequest),
    /// To the first worker: a publish by WebSocket.
    Spoken(SocketPublish),
    /// To the first worker: requests of a worker's hub.
    Requests { core: usize, stream: usize, requests: Vec<FeedRequest> },
    /// To the first worker: the hub has taken a batch. Reports whether this worker's fan-out lags.
    Taken { core: usize, stream: usize, lagging: bool },
    /// To the first worker: a worker's fan-out began to lag, or caught up.
    Lag { core: usize, lagging: bool },
    /// From the first worker: a batch of messages.
    Feed { stream: usize, feeds: Vec<Feed> },
    /// To the first worker: a worker has ended and sends nothing more.
    Gone { core: usize },
    /// To the first worker, from the engine of a cluster's stream.
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "nobody writes it"))]
    News { stream: usize, news: Vec<ClusterEvent> },
    /// To the first worker, or to every worker: a list for an operator.
    Rows(Box<RowsOrder>),
    /// To the first worker: an operator deletes the messages of a channel.
    Delete(ChannelDeletion),
    /// To every worker: an operator disconnects the subscribers of a channel. The ticket is for their number.
    Disconnect { channel: Name, ticket: Ticket<u64> },
    /// To every worker: a log-out, and the ticket for the number of ended subscriptions.
    LogOut { order: Arc<LogOutOrder>, ticket: Ticket<u64> },
    /// From the first worker to the owner of a WebSocket: the response to its publish.
    Heard { token: encke_io::Token, answer: Vec<u8> },
}

/// Push on one worker.
pub(crate) struct PushWorker {
    pub(crate) plan: Arc<PushPlan>,
    pub(crate) core: usize,
    pub(crate) hub: Hubs,
    pub(crate) encoder: RunEncoder,
    central: Option<Box<PushCoordinator>>,
    /// The mailboxes of all workers, by number; empty until all have started.
    pub(crate) links: Arc<[ResidentMailbox]>,
    /// Messages to the first worker from before its mailbox was known.
    early: Vec<PushMessage>,
    pub(crate) counters: Arc<PushCounters>,
    /// Histograms of fan-out times, by class of channels.
    pub(crate) fanouts: Vec<Arc<Histogram>>,
    /// State of subscribers that does not fit into their slots.
    pub(crate) sides: SideTable,
    pub(crate) inflation: Inflation,
    /// Requests from handlers.
    push_requests: PushRequests,
    /// Whether to check the rights of all subscribers after a reload.
    pub(crate) renewing: bool,
    /// Set during a drain: when each subscriber is disconnected.
    pub(crate) farewells: Option<Farewells>,
    /// The index at which the last sample of subscribers ended.
    pub(crate) sample_hand: usize,
    /// A queue of channel changes by WebSockets, each with its `ref`: confirmed once the channels are open. An entry of a
    /// closed connection is dropped, because its token is no longer valid.
    pub(crate) changing: Vec<(encke_io::Token, Option<u64>)>,
    pub(crate) log_outs: LogOutQueue,
    /// Lists and actions of operators in progress, in turn.
    pub(crate) walks: VecDeque<ConsoleWalk>,
    /// Messages accepted and not counted yet.
    pub(crate) published: u64,
    pub(crate) deliveries: Vec<Delivery>,
    feeds: Vec<Feed>,
    /// Requests of the hub, by stream.
    requests: Vec<Vec<FeedRequest>>,
    /// Whether another turn is needed at once.
    pub(crate) pending: bool,
    /// Whether the hub has more deliveries.
    hub_pending: bool,
    lagging: bool,
    /// When the fan-out in progress began, on the monotonic clock in ns.
    fanout_since: Option<u64>,
    /// The next deadline of the sequencers: an expiry or a commit.
    next_ns: Option<u64>,
}

/// The sequencers, and the responses that wait for them.
struct PushCoordinator {
    streams: Arc<Streams>,
    /// By stream.
    lanes: Vec<StreamLane>,
    lagging: Vec<bool>,
    /// Workers that have ended.
    gone: Vec<bool>,
    /// Orders with missing results, by number.
    orders: HashMap<u64, PendingPublish>,
    numbered: u64,
    /// For each stream and ticket: the order, and the message's index in it.
    tickets: HashMap<(usize, PublishTicket), (u64, usize)>,
    held: VecDeque<HeldReply>,
    /// Lists being made, oldest first.
    listings: VecDeque<ChannelListing>,
    commands: Vec<ClusterCommand>,
    /// `push.retry` in ms.
    retry_ms: u64,
}

/// A stream: its sequencer, and the batches in flight from it.
struct StreamLane {
    sequencer: Sequencer,
    /// For each worker with a batch in flight: the offset up to which it had been fed before.
    outstanding: Vec<Option<u64>>,
}

/// An offset in each stream.
type StreamOffsets = [u64; STREAMS_MAX];

/// A publish or delete until all its results are known.
struct PendingPublish {
    requester: Requester,
    results: Vec<Option<Result<Accepted, PublishError>>>,
    /// Number of missing results.
    open: usize,
}

/// The requester of an order.
enum Requester {
    /// A publisher by HTTP.
    Publisher { exchange: Exchange, lines: bool, trace: bool },
    /// A publisher by WebSocket; `publish_reply`: it expects a response.
    Speaker { core: usize, token: encke_io::Token, reference: Option<u64>, tell: bool },
    /// A client that deletes channels; `elsewhere`: on all nodes of a cluster.
    Remover { exchange: Exchange, elsewhere: bool },
    /// An operator who deletes the messages of a channel; `count`: their number.
    Operator { ticket: Ticket<ActionResult>, count: u64, elsewhere: bool },
    /// The program itself.
    Program(Ticket<Result<Accepted, PublishError>>),
}

/// A response held back until every hub has the message, so that a read after the 201 finds it on any worker.
struct HeldReply {
    /// The newest offsets that the response covers.
    to: StreamOffsets,
    /// When the publish was accepted, if the response reports the duration of the fan-out.
    traced: Option<u64>,
    target: ReplyTarget,
}

/// A complete response, and the client to send it to.
enum ReplyTarget {
    Publisher { exchange: Exchange, told: PublishReply },
    Speaker { core: usize, token: encke_io::Token, answer: Vec<u8> },
    Remover { exchange: Exchange },
    Operator { ticket: Ticket<ActionResult>, count: u64 },
    Program { ticket: Ticket<Result<Accepted, PublishError>>, accepted: Accepted },
}

impl PushWorker {
    pub(crate) fn new(now: Now, plan: Arc<PushPlan>, core: usize, cores: usize) -> Self {
        let central = (core == 0).then(|| {
            let mut found = plan.archive.as_ref().and_then(|archive| archive.take());
            let lane = |(stream, epoch): (usize, &Epoch)| {
                let rules = plan.rules.share(&plan.streams, stream);
                let sequencer = match (&plan.cluster, found.take()) {
                    (Some(cluster), _) if !plan.streams.is_local(stream) => {
                        let mut sequencer = Sequencer::follow(*epoch, cluster.newest(stream), rules, cores);
                        sequencer.limit_queue(cluster.queueing());
                        sequencer
                    }
                    (_, Some(found)) => {
                        Sequencer::restore(hub_now(now), found.saved, found.ceiling, rules, cores)
                    }
                    (_, None) => Sequencer::new(*epoch, rules, cores),
                };
                StreamLane { sequencer, outstanding: vec![None; cores] }
            };
            Box::new(PushCoordinator {
                streams: Arc::clone(&plan.streams),
                lanes: plan.epochs.iter().enumerate().map(lane).collect(),
                lagging: vec![false; cores],
                gone: vec![false; cores],
                orders: HashMap::new(),
                numbered: 0,
                tickets: HashMap::new(),
                held: VecDeque::new(),
                listings: VecDeque::new(),
                commands: Vec::new(),
                retry_ms: plan.retry_ms,
            })
        });
        let requests = plan.epochs.iter().map(|_| Vec::new()).collect();
        Self {
            hub: Hubs::new(core, &plan.epochs, Arc::clone(&plan.streams), &plan.rules),
            counters: plan.figures.of_worker(core),
            plan,
            core,
            encoder: RunEncoder::new(),
            central,
            links: Arc::new([]),
            early: Vec::new(),
            fanouts: Vec::new(),
            sides: SideTable::default(),
            inflation: Inflation::default(),
            push_requests: PushRequests::default(),
            renewing: false,
            farewells: None,
            sample_hand: 0,
            changing: Vec::new(),
            log_outs: LogOutQueue::new(),
            walks: VecDeque::new(),
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

    /// Returns the latest time of this worker's next turn, on the monotonic clock in ns; 0: at once.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.pending || !self.push_requests.borrow().is_empty() {
            Some(0)
        } else {
            encke_server::earlier(self.next_ns, self.hub.due_ns())
        }
    }

    /// Stores the mailboxes of all workers, once all have started.
    pub(crate) fn know(&mut self, links: Arc<[ResidentMailbox]>) {
        self.links = links;
        if let (Some(_), Some(cluster), Some(first)) = (&self.central, &self.plan.cluster, self.links.first())
        {
            cluster.begin(first);
        }
        if let (Some(_), Some(first)) = (&self.central, self.links.first()) {
            self.plan.entrance.open(first);
            self.plan.mailboxes.set(&self.links);
        }
        for letter in std::mem::take(&mut self.early) {
            self.post(letter);
        }
        self.pending = true;
    }

    /// Applies new settings. History is kept as far as the new limits allow.
    pub(crate) fn reload(&mut self, plan: Arc<PushPlan>) {
        if Arc::ptr_eq(&self.plan, &plan) {
            return;
        }
        self.renewing = true;
        self.hub.reload(&plan.rules);
        if let Some(central) = &mut self.central {
            for (stream, lane) in central.lanes.iter_mut().enumerate() {
                lane.sequencer.reload(plan.rules.share(&plan.streams, stream));
            }
            central.retry_ms = plan.retry_ms;
        }
        self.plan = plan;
        self.pending = true;
    }

    /// Sends a message to the first worker, which has the sequencers.
    pub(crate) fn post(&mut self, letter: PushMessage) {
        match self.links.first() {
            Some(first) => first.send(letter),
            None => self.early.push(letter),
        }
    }

    /// Returns the queue for requests from handlers.
    pub(crate) fn push_requests(&self) -> PushRequests {
        Rc::clone(&self.push_requests)
    }

    /// Processes the requests from handlers.
    pub(crate) fn take_push_requests(&mut self, now: Now) {
        for ask in self.push_requests.take() {
            self.on_request(now, ask);
        }
    }

    fn on_request(&mut self, now: Now, ask: PushRequest) {
        match (ask, &mut self.central) {
            (PushRequest::LogOut(request), _) => self.order_log_out(request),
            (ask, Some(_)) => self.settle(now, ask),
            (ask, None) => self.post(PushMessage::Ask(ask)),
        }
    }

    pub(crate) fn forward_socket_publish(&mut self, now: Now, spoken: SocketPublish) {
        match &mut self.central {
            Some(_) => self.publish_from_socket(now, spoken),
            None => self.post(PushMessage::Spoken(spoken)),
        }
    }

    /// Processes a message from another worker. Returns a response for a connection of this worker, if the message is one.
    pub(crate) fn read(&mut self, now: Now, letter: PushMessage) -> Option<(encke_io::Token, Vec<u8>)> {
        self.pending = true;
        match letter {
            PushMessage::Ask(ask) => self.settle(now, ask),
            PushMessage::Spoken(spoken) => self.publish_from_socket(now, spoken),
            PushMessage::Requests { core, stream, requests } => {
                if let Some(central) = &mut self.central {
                    for request in requests {
                        central.lanes[stream].sequencer.apply(hub_now(now), core, request);
                    }
                }
            }
            PushMessage::Taken { core, stream, lagging } => {
                if let Some(central) = &mut self.central {
                    central.lanes[stream].outstanding[core] = None;
                    central.lagging[core] = lagging;
                }
            }
            PushMessage::Lag { core, lagging } => {
                if let Some(central) = &mut self.central {
                    central.lagging[core] = lagging;
                }
            }
            PushMessage::Gone { core } => {
                if let Some(central) = &mut self.central {
                    central.gone[core] = true;
                    central.lagging[core] = false;
                }
            }
            PushMessage::Feed { stream, feeds } => {
                self.fanout_since.get_or_insert(now.mono_ns);
                for feed in feeds {
                    self.hub.feed(hub_now(now), stream, feed);
                }
                self.lagging = self.hub.lag(hub_now(now)).exceeded;
                self.post(PushMessage::Taken { core: self.core, stream, lagging: self.lagging });
            }
            PushMessage::News { stream, news } => self.on_cluster_events(now, stream, news),
            PushMessage::Rows(order) => self.begin_rows(*order),
            PushMessage::Delete(deletion) => self.delete_for_operator(now, deletion),
            PushMessage::Disconnect { channel, ticket } => self.begin_disconnect(&channel, ticket),
            PushMessage::LogOut { order, ticket } => self.begin_log_out(order, ticket),
            PushMessage::Heard { token, answer } => return Some((token, answer)),
        }
        None
    }

    /// Processes events from a stream's engine, on the first worker.
    fn on_cluster_events(&mut self, now: Now, stream: usize, news: Vec<ClusterEvent>) {
        let Some(central) = &mut self.central else { return };
        for one in news {
            if let Some((ticket, result)) = central.lanes[stream].sequencer.on_event(one) {
                self.published += central.answer(now, (stream, ticket), result);
            }
        }
        if let Some(cluster) = &self.plan.cluster {
            cluster.taken(stream);
        }
    }

    /// Exchanges values between hubs and sequencers: sends the hub's requests, and on the first worker distributes feeds.
    /// Returns the responses that are due for WebSockets of this worker.
    pub(crate) fn exchange_feeds(&mut self, now: Now) -> Vec<(encke_io::Token, Vec<u8>)> {
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
                    let letter = PushMessage::Requests { core: self.core, stream, requests };
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
                self.post(PushMessage::Lag { core: self.core, lagging });
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
                let before = lane.sequencer.fed_to(core);
                lane.sequencer.take_feed(core, FEED_BATCH, &mut feeds);
                if !feeds.is_empty() {
                    lane.outstanding[core] = Some(before);
                    link.send(PushMessage::Feed { stream, feeds });
                }
            }
            self.next_ns = self.next_ns.into_iter().chain(lane.sequencer.expire(moment)).min();
            lane.sequencer.take_commands(&mut central.commands);
            if let Some(cluster) = self.plan.cluster.as_ref().filter(|_| lane.sequencer.is_shared()) {
                central.commands.drain(..).for_each(|errand| cluster.run(stream, errand));
                cluster.show(stream, lane.sequencer.backlog(), lane.sequencer.newest().offset);
            }
        }
        central.lend_memory();
        self.release(now)
    }

    /// Returns a commit for the thread pool, if there is something to store and no commit is in progress. Its outcome goes to
    /// [`PushWorker::committed`].
    pub(crate) fn take_commit(
        &mut self,
        now: Now,
    ) -> Option<impl FnOnce() -> Result<(), PublishError> + Send + use<>> {
        let (central, archive) = (self.central.as_mut()?, self.plan.archive.as_ref()?);
        let [StreamLane { sequencer, .. }] = &mut central.lanes[..] else { return None };
        let commit = sequencer.take_commit(hub_now(now));
        let due_ns = sequencer.commit_due_ns();
        self.next_ns = self.next_ns.into_iter().chain(due_ns).min();
        let (commit, archive) = (commit?, Arc::clone(archive));
        Some(move || archive.commit(&commit))
    }

    /// Processes the outcome of a commit; `None`: the pool was full, or the commit panicked.
    pub(crate) fn committed(&mut self, now: Now, done: Option<Done>) {
        let outcome = done.and_then(|done| done.downcast::<Result<(), PublishError>>().ok());
        let outcome = outcome.map_or(Err(PublishError::NotStored), |outcome| *outcome);
        let Some(central) = &mut self.central else { return };
        let [StreamLane { sequencer, .. }] = &mut central.lanes[..] else { return };
        for (ticket, result) in sequencer.committed(hub_now(now), outcome) {
            self.published += central.answer(now, (0, ticket), result);
        }
        self.pending = true;
    }

    /// Returns whether this worker may end: all other workers have ended, and no publish or commit is open. Unless `late`, no
    /// message may wait for the cluster either.
    pub(crate) fn is_done(&self, late: bool) -> bool {
        let Some(central) = &self.central else { return true };
        let others = central.gone.iter().enumerate().filter(|(core, _)| *core != self.core);
        let alone = self.links.is_empty() || others.into_iter().all(|(_, gone)| *gone);
        let mut lanes = central.lanes.iter().map(|lane| &lane.sequencer);
        let sent = late || lanes.clone().all(|sequencer| sequencer.backlog().messages == 0);
        let committing = lanes.any(Sequencer::is_committing);
        alone && sent && !committing && central.orders.is_empty()
    }

    /// Ends push on this worker. The first worker ends last and stores the rest.
    pub(crate) fn close(&mut self, now: Now) {
        // In a simulation every connection has closed by now.
        debug_assert!(!cfg!(test) || self.sides.is_empty(), "a closed connection has a row");
        if self.central.is_some() {
            self.plan.entrance.close();
            self.plan.mailboxes.clear();
        }
        match (&mut self.central, &self.plan.archive) {
            (Some(central), Some(archive)) => {
                // This time makes every message due, also if it waits to share a commit.
                let moment = HubNow { mono_ns: u64::MAX, ..hub_now(now) };
                if let [StreamLane { sequencer, .. }] = &mut central.lanes[..] {
                    let commit = sequencer.take_commit(moment);
                    archive.close(commit.as_deref(), &sequencer.save());
                }
            }
            (Some(central), None) => {
                if let Some(cluster) = &self.plan.cluster {
                    cluster.leave(central.lanes.iter().map(|lane| lane.sequencer.backlog().messages).sum());
                }
            }
            (None, _) => self.post(PushMessage::Gone { core: self.core }),
        }
    }

    /// Records the fan-outs that ended in the last slice.
    pub(crate) fn record_fanouts(&self, now: Now) {
        for pass in self.hub.ended() {
            if let Some(histogram) = self.fanouts.get(usize::from(pass.class)) {
                histogram.record(now.mono_ns.saturating_sub(pass.since_ns));
            }
        }
    }

    /// Ends the fan-out in progress once the hub has no more deliveries.
    pub(crate) fn end_fanout(&mut self) {
        self.counters.published.add(std::mem::take(&mut self.published));
        if self.hub_pending || self.fanout_since.take().is_none() {
            return;
        }
        if let Some(central) = &self.central {
            self.pending |= central.held.iter().any(|held| held.traced.is_some());
        }
    }

    /// Ends a slice, where `more` says whether the hub has more deliveries. Decides whether another turn is needed at once.
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
                let fed = |lane: &StreamLane| lane.sequencer.has_feed(self.core);
                self.pending = owing || central.lanes.iter().any(fed);
            }
            None => self.pending = lagging != self.lagging,
        }
    }

    /// Sends the responses whose messages every hub has, if no worker lags. Responses that report the duration of a fan-out
    /// wait for its end. Returns those for WebSockets of this worker.
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
            match held.target {
                ReplyTarget::Publisher { exchange, told } => {
                    let fanout_ns = held.traced.map(|since| now.mono_ns.saturating_sub(since));
                    exchange.answer(told.reply(fanout_ns));
                }
                ReplyTarget::Remover { exchange } => exchange.answer(deleted_reply()),
                ReplyTarget::Operator { ticket, count } => {
                    ticket.resolve(Ok(ActionReport { affected: count, notes: Vec::new() }));
                }
                ReplyTarget::Program { ticket, accepted } => ticket.resolve(Ok(accepted)),
                ReplyTarget::Speaker { core, token, answer } if core == self.core => {
                    own.push((token, answer));
                }
                ReplyTarget::Speaker { core, token, answer } => {
                    if let Some(link) = self.links.get(core) {
                        link.send(PushMessage::Heard { token, answer });
                    }
                }
            }
        }
        own
    }

    /// Executes a request of a handler, on the first worker.
    fn settle(&mut self, now: Now, ask: PushRequest) {
        let Some(central) = &mut self.central else { return };
        match ask {
            PushRequest::Publish(publish) => {
                let PublishRequest { exchange, drafts, lines, trace } = publish;
                let whose = Requester::Publisher { exchange, lines, trace };
                self.published += central.publish(now, whose, drafts, &self.plan);
            }
            PushRequest::Info { exchange, channel, members } => {
                let sequencer = &central.lanes[central.streams.of(&channel)].sequencer;
                exchange.answer(match sequencer.info(&channel) {
                    Some(info) => {
                        let has_members = members && self.plan.rules.of(&channel).presence;
                        let names = has_members.then(|| sequencer.members(&channel));
                        info_reply(&channel, &info, names.as_ref())
                    }
                    None if self.plan.cluster_of(&channel).is_some() => {
                        refusal(404, format!("channel {channel} has no subscriber"))
                    }
                    None => refusal(404, format!("channel {channel} has no message and no subscriber")),
                });
            }
            PushRequest::Forget { exchange, channels } => {
                let elsewhere = channels.iter().any(|channel| self.plan.cluster_of(channel).is_some());
                let results = central.delete(&channels);
                central.order(now, Requester::Remover { exchange, elsewhere }, results);
            }
            PushRequest::List(request) => central.listings.push_back(ChannelListing::new(request)),
            PushRequest::LogOut(request) => self.order_log_out(request),
        }
        self.pending = true;
    }

    /// Makes a part of the oldest list, on the first worker.
    pub(crate) fn continue_listing(&mut self, now: Now) {
        let Some(central) = &mut self.central else { return };
        let Some(mut listing) = central.listings.pop_front() else { return };
        if listing.advance(central.lanes.iter().map(|lane| &lane.sequencer)) {
            let row = |name: &Name| central.lanes[central.streams.of(name)].sequencer.row(name);
            listing.finish(hub_now(now).unix_ms, row);
        } else {
            central.listings.push_front(listing);
        }
        self.pending |= !central.listings.is_empty();
    }

    /// Publishes a message from a WebSocket, on the first worker.
    fn publish_from_socket(&mut self, now: Now, spoken: SocketPublish) {
        let Some(central) = &mut self.central else { return };
        let SocketPublish { core, token, reference, draft, wants_reply: tell } = spoken;
        let whose = Requester::Speaker { core, token, reference, tell };
        self.published += central.publish(now, whose, vec![draft], &self.plan);
        self.pending = true;
    }

    /// Deletes the messages of a channel for an operator, on the first worker.
    pub(crate) fn delete_for_operator(&mut self, now: Now, deletion: ChannelDeletion) {
        let ChannelDeletion { channel, ticket } = deletion;
        let elsewhere = self.plan.cluster_of(&channel).is_some();
        let known = self.sequencer_of(&channel).and_then(|sequencer| sequencer.info(&channel));
        let count = known.map_or(0, |info| info.messages as u64);
        let Some(central) = &mut self.central else { return };
        if count == 0 && !elsewhere {
            let text = CodedText::new("channel_empty", "channel {channel} has no messages");
            return ticket.resolve(Err(ActionError::Refused(text.with("channel", channel))));
        }
        let results = central.delete(&[channel]);
        central.order(now, Requester::Operator { ticket, count, elsewhere }, results);
        self.pending = true;
    }

    /// Returns the sequencers in stream order; none but on the first worker.
    pub(crate) fn sequencers(&self) -> impl Iterator<Item = &Sequencer> {
        self.central.iter().flat_map(|central| &central.lanes).map(|lane| &lane.sequencer)
    }

    /// Returns the sequencer of a channel, on the first worker.
    pub(crate) fn sequencer_of(&self, channel: &Name) -> Option<&Sequencer> {
        self.sequencers().nth(self.plan.streams.of(channel))
    }

    /// Publishes a message of the program, on the first worker.
    pub(crate) fn publish_for_program(&mut self, now: Now, publish: ProgramPublish) {
        let Some(central) = &mut self.central else { return };
        let ProgramPublish { draft, ticket } = publish;
        self.published += central.publish(now, Requester::Program(ticket), vec![draft], &self.plan);
        self.pending = true;
    }
}

impl PushCoordinator {
    /// Lends the memory of the local stream, in whole MiB, which the streams of the cluster return.
    fn lend_memory(&mut self) {
        let Some((local, shared)) = self.lanes.split_last_mut() else { return };
        if local.sequencer.is_shared() || shared.is_empty() {
            return;
        }
        let lent = local.sequencer.memory().next_multiple_of(1 << 20) / shared.len() as u64;
        shared.iter_mut().for_each(|lane| lane.sequencer.lend(lent));
    }

    /// Deletes the messages of channels: those of a cluster on all of its nodes.
    fn delete(&mut self, channels: &[Name]) -> Vec<(usize, Result<Publishing, PublishError>)> {
        let delete = |channel| {
            let stream = self.streams.of(channel);
            let sequencer = &mut self.lanes.get_mut(stream)?.sequencer;
            if sequencer.is_shared() {
                return Some((stream, sequencer.forget(channel)));
            }
            match sequencer.delete(channel) {
                Deletion::Absent => None,
                Deletion::Waits(ticket) => Some((stream, Ok(Publishing::Waits(ticket)))),
                Deletion::Done => Some((stream, Ok(Publishing::Done(sequencer.deleted())))),
            }
        };
        channels.iter().filter_map(delete).collect()
    }

    /// Publishes in order, up to the first rejected message. Returns the number already published.
    fn publish(&mut self, now: Now, whose: Requester, drafts: Vec<Draft>, plan: &PushPlan) -> u64 {
        let may_all = matches!(whose, Requester::Program(_));
        let mut results = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let stream = self.streams.of(&draft.channel);
            let result = if may_all || !plan.is_reserved(&draft.channel) {
                self.lanes[stream].sequencer.publish(hub_now(now), draft)
            } else {
                Err(PublishError::ReservedChannel)
            };
            let refused = result.is_err();
            results.push((stream, result));
            if refused {
                break;
            }
        }
        self.order(now, whose, results)
    }

    /// Responds once all results are known. Returns the number of messages already published.
    fn order(
        &mut self,
        now: Now,
        whose: Requester,
        results: Vec<(usize, Result<Publishing, PublishError>)>,
    ) -> u64 {
        let number = self.numbered + 1;
        let mut order =
            PendingPublish { requester: whose, results: Vec::with_capacity(results.len()), open: 0 };
        for (place, (stream, result)) in results.into_iter().enumerate() {
            order.results.push(match result {
                Ok(Publishing::Done(published)) => Some(Ok(Accepted::Published(published))),
                Ok(Publishing::Queued { subscribers }) => Some(Ok(Accepted::Queued { subscribers })),
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

    /// Records the result of one message, and responds if its order is complete. Returns the number of messages published.
    fn answer(
        &mut self,
        now: Now,
        ticket: (usize, PublishTicket),
        result: Result<Published, PublishError>,
    ) -> u64 {
        let Some((number, place)) = self.tickets.remove(&ticket) else { return 0 };
        let Some(order) = self.orders.get_mut(&number) else { return 0 };
        order.results[place] = Some(result.map(Accepted::Published));
        order.open -= 1;
        if order.open > 0 {
            return 0;
        }
        self.orders.remove(&number).map_or(0, |order| self.hold(now, order))
    }

    /// Returns whether a response is due; `fanning`: a fan-out is in progress on this worker.
    fn owes_now(&self, fanning: bool) -> bool {
        let reached = self.reached();
        let keeping_up = !self.lagging.iter().any(|lagging| *lagging);
        keeping_up && self.held.iter().any(|held| held.is_due(&reached, fanning))
    }

    /// Returns for each stream the offset up to which every live worker has been fed.
    fn reached(&self) -> StreamOffsets {
        let mut reached = [u64::MAX; STREAMS_MAX];
        for (reached, lane) in reached.iter_mut().zip(&self.lanes) {
            *reached = lane.reached(&self.gone);
        }
        reached
    }

    /// Completes an order: sends an error at once; a success waits for the hubs. Returns the number of messages published.
    fn hold(&mut self, now: Now, order: PendingPublish) -> u64 {
        let results = order.results.into_iter().flatten();
        let mut to = [0; STREAMS_MAX];
        for Position { epoch, offset } in results.clone().flatten().filter_map(Accepted::awaited) {
            let same = |lane: &StreamLane| lane.sequencer.newest().epoch == epoch;
            if let Some(stream) = self.lanes.iter().position(same) {
                to[stream] = offset.max(to[stream]);
            }
        }
        match order.requester {
            Requester::Publisher { exchange, lines, trace } => match publish_reply(results, lines) {
                Ok(told) => {
                    let published = told.published;
                    let traced = trace.then_some(now.mono_ns);
                    self.held.push_back(HeldReply {
                        to,
                        traced,
                        target: ReplyTarget::Publisher { exchange, told },
                    });
                    published
                }
                Err(reply) => {
                    exchange.answer(reply);
                    0
                }
            },
            Requester::Speaker { core, token, reference, tell } => {
                let mut answer = Vec::new();
                let mut new = 0;
                for result in results {
                    match result {
                        Ok(Accepted::Published(Published {
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
                        Ok(Accepted::Queued { subscribers }) => {
                            new += 1;
                            let fields = format!(",\"queued\":1,\"subscribers\":{subscribers}");
                            super::socket::put_ok(&mut answer, reference, &fields);
                        }
                        Err(refusal) if tell => {
                            let text = refusal.to_string();
                            super::socket::put_error(&mut answer, reference, status(&refusal), &text);
                        }
                        // Without envelopes, only a Close can report the rejection. A socket publishes single messages.
                        Err(refusal) => {
                            let retry_ms = spread_retry_ms(self.retry_ms, token, now);
                            let status = status(&refusal);
                            super::socket::put_rejection(&mut answer, status, &refusal.to_string(), retry_ms);
                        }
                    }
                }
                if !tell && !super::socket::is_close(&answer) {
                    answer.clear();
                }
                let owed = ReplyTarget::Speaker { core, token, answer };
                self.held.push_back(HeldReply { to, traced: None, target: owed });
                new
            }
            Requester::Remover { exchange, elsewhere } => {
                match results.into_iter().find_map(Result::err) {
                    // A read after the 204 must not return the messages on any worker.
                    None => self.held.push_back(HeldReply {
                        to,
                        traced: None,
                        target: ReplyTarget::Remover { exchange },
                    }),
                    Some(error) => exchange.answer(not_deleted_reply(&error, elsewhere)),
                }
                0
            }
            Requester::Operator { ticket, count, elsewhere } => {
                match results.into_iter().find_map(Result::err) {
                    None => self.held.push_back(HeldReply {
                        to,
                        traced: None,
                        target: ReplyTarget::Operator { ticket, count },
                    }),
                    Some(error) => {
                        ticket.resolve(Err(ActionError::Refused(not_deleted_text(&error, elsewhere))));
                    }
                }
                0
            }
            Requester::Program(ticket) => match results.into_iter().next() {
                Some(Ok(accepted)) => {
                    let owed = ReplyTarget::Program { ticket, accepted };
                    self.held.push_back(HeldReply { to, traced: None, target: owed });
                    u64::from(!accepted.is_repeated())
                }
                Some(Err(error)) => {
                    ticket.resolve(Err(error));
                    0
                }
                None => 0,
            },
        }
    }
}

impl Accepted {
    /// Returns the position that the hubs must reach before the response, if any.
    fn awaited(self) -> Option<Position> {
        match self {
            Self::Published(published) => published.wanted.then_some(published.position),
            Self::Queued { .. } => None,
        }
    }
}

impl StreamLane {
    /// Returns the offset up to which every live worker has been fed.
    fn reached(&self, gone: &[bool]) -> u64 {
        // During an outage messages arrive late or never, so responses do not wait for them.
        if !self.sequencer.is_up() {
            return u64::MAX;
        }
        let cores = self.outstanding.iter().zip(gone).enumerate().filter(|(_, (_, gone))| !**gone);
        let reached = cores.map(|(core, (before, _))| before.unwrap_or_else(|| self.sequencer.fed_to(core)));
        reached.min().unwrap_or(u64::MAX)
    }
}

impl HeldReply {
    fn is_due(&self, reached: &StreamOffsets, fanning: bool) -> bool {
        self.to.iter().zip(reached).all(|(to, reached)| to <= reached) && !(fanning && self.traced.is_some())
    }
}

/// Converts the reactor's time for the hub.
pub(crate) fn hub_now(now: Now) -> HubNow {
    HubNow { mono_ns: now.mono_ns, unix_ms: now.unix_ns / 1_000_000 }
}

/// The response to a publish, complete except for the duration of the fan-out.
struct PublishReply {
    status: u16,
    /// An unterminated JSON object.
    json: Vec<u8>,
    published: u64,
}

impl PublishReply {
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

/// Builds the response to a publish. `id` is the last message's. For several messages `ids` lists all ids, with `null` for
/// a message that waits for the cluster. If all of them wait, the response has neither.
///
/// # Errors
/// The response to the first rejected message, with the number of messages before it.
fn publish_reply(
    results: impl Iterator<Item = Result<Accepted, PublishError>>,
    lines: bool,
) -> Result<PublishReply, Reply> {
    let mut ids: Vec<Option<Position>> = Vec::new();
    let mut subscribed: u64 = 0;
    let (mut repeats, mut queued, mut early) = (0, 0, false);
    for result in results {
        match result {
            Ok(Accepted::Published(published)) => {
                repeats += usize::from(published.repeated);
                subscribed += u64::from(published.subscribers);
                early |= published.early;
                ids.push(Some(published.position));
            }
            Ok(Accepted::Queued { subscribers }) => {
                queued += 1;
                subscribed += u64::from(subscribers);
                ids.push(None);
            }
            Err(error) => {
                let mut before = String::new();
                if !ids.is_empty() {
                    let what = if queued > 0 { "accepted" } else { "published" };
                    before = match ids.len() {
                        1 => format!("; the message before it was {what}"),
                        count => format!("; the {count} messages before it were {what}"),
                    };
                }
                if let Some(last) = ids.iter().flatten().last() {
                    let which = if ids.len() == 1 { "" } else { "the last " };
                    before = format!("{before}, {which}with id {last}");
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
        // The message is not stored yet.
        (false, true) => 202,
        (false, false) => 201,
    };
    Ok(PublishReply { status, json, published: (ids.len() - repeats) as u64 })
}

fn status(refusal: &PublishError) -> u16 {
    match refusal {
        PublishError::TooLarge { .. } => 413,
        PublishError::KeyMismatch => 422,
        PublishError::ReservedChannel => 403,
        PublishError::ReservedEvent
        | PublishError::KeyTooLong
        | PublishError::BadEvent
        | PublishError::BadType => 400,
        PublishError::TooManyChannels { .. } | PublishError::NotStored | PublishError::Stalled => 503,
        PublishError::Away | PublishError::Unanswered | PublishError::Crowded | PublishError::NotTaken => 503,
        PublishError::NoSpace => 507,
    }
}

/// Returns whether a repeated request may soon succeed.
fn is_soon_over(refusal: &PublishError) -> bool {
    matches!(refusal, PublishError::Away | PublishError::Unanswered | PublishError::Crowded)
}

/// The response to a successful delete.
fn deleted_reply() -> Reply {
    Reply::new(204).with("Cache-Control", "no-store")
}

/// The response to a failed or incomplete delete.
fn not_deleted_reply(error: &PublishError, elsewhere: bool) -> Reply {
    let reply = refusal(status(error), not_deleted_text(error, elsewhere).to_string());
    if is_soon_over(error) { reply.with("Retry-After", RETRY_AFTER_S) } else { reply }
}

/// The reason of a failed or incomplete delete.
fn not_deleted_text(error: &PublishError, elsewhere: bool) -> CodedText {
    match error {
        PublishError::Away => {
            CodedText::new("deletion_away", "the cluster is unreachable: nothing was deleted; retry")
        }
        PublishError::Unanswered => CodedText::new(
            "deletion_unanswered",
            "the cluster did not respond in time, and may have deleted the messages: retry",
        ),
        error if elsewhere => error.to_string().into(),
        PublishError::NoSpace => {
            CodedText::new("deletion_no_space", "no space left to store the deletion: the messages are kept")
        }
        PublishError::NotStored | PublishError::Stalled => CodedText::new(
            "deletion_not_stored",
            "the deletion could not be stored: see the server's log; the server repeats it",
        ),
        error => error.to_string().into(),
    }
}

/// `Retry-After` for messages that the cluster did not accept: about the time in which NATS elects a leader.
const RETRY_AFTER_S: &str = "2";
