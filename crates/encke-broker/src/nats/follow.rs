//! Following the stream: one consumer delivers the channels that this node has subscribed to, from its current offset on.
//!
//! ```text
//!            ┌─────────────────────── reconnected, or messages were lost in transit ───────────────────────┐
//!            ▼                                                                                             │
//!  look: the same stream? ─► a consumer at `next`, with the filters of `ChannelInterest` ─► batches ─► ClusterEvent::Messages
//!                                            ▲                                          │
//!                                            └────────── the filters change ────────────┘
//! ```
//! **No message is missed.** A consumer numbers its deliveries: while the numbers are consecutive, every message that matches
//! the filters has arrived. When the filters change, a new consumer starts at `next`. A consumer whose filters are changed in
//! place may already have skipped messages of the new filters.
//!
//! **Head offset.** Deliveries do not show the head of the stream when few channels are consumed. Every node therefore receives
//! the *beacon*, an empty message. A node that sees the stream ahead publishes one, under an id made from the previous beacon,
//! so the stream stores one for all nodes. Its arrival proves that every earlier message has arrived. An idle stream gets no
//! beacons.
//!
//! **A channel's history is loaded** once the consumer covers the channel and has passed the stream's head at the time of the
//! request or later. The history ends there. A head may be reported that no consumer ever reaches: a leader that is cut off
//! reports messages that its successor does not have. So every look at the stream may lower the awaited head.
//!
//! **Nothing waits forever** for a message that NATS has lost:
//!
//! | loss | reaction |
//! |---|---|
//! | the end of the stream, below `next` | after [`LOST_END`] the node reports `Down` until the stream is whole |
//! | a beacon whose id the stream rejects | after [`BEACON_LOST`] a beacon with another id |
//! | the deliveries of a consumer | after [`STALLED`] another consumer |
//!
//! **A hole** in the sequences is mostly messages of channels that are not consumed here. But the stream may also have dropped
//! messages before their delivery. Before messages after a hole are passed on, the stream's first sequence is therefore
//! requested. This is skipped where the missing messages are so young, and the stream so large, that none can have been
//! dropped.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, Info};
use async_nats::jetstream::{self, message::Info as Place};
use encke_hub::{ClusterEvent, Message, Name, PublishTicket};
use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use futures_util::stream::ReadyChunks;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::interest::ChannelInterest;
use super::{
    AHEAD, ANSWER_TIME, ASKING, BATCH, HEARTBEAT, INACTIVE, NatsFailure, Never, Note, PAUSE, Side, encoding,
    epoch, message,
};

/// Interval of requests for the stream's info, and of beacons while no read waits for one.
const LOOKS: Duration = Duration::from_secs(1);
/// Minimum interval of beacons.
const BEACONS: Duration = Duration::from_millis(50);
/// How long the stream may seem to end before `next`. A leader may lag behind the server of the consumer for a moment.
const LOST_END: Duration = Duration::from_secs(5);
/// When a beacon that has not arrived gets an id of this node. A leader may reject an id until the duplicate window ends, without
/// having stored the beacon.
const BEACON_LOST: Duration = Duration::from_secs(5);
/// When a consumer that delivers nothing is replaced, although the stream is ahead. Until something arrives, this doubles with
/// each consumer, up to the maximum: a server may need long to find the next message in a large stream.
const STALLED: Duration = Duration::from_secs(10);
const STALLED_MAX: Duration = Duration::from_secs(320);
/// Maximum age of messages that count as young; beacons keep arriving within this time.
const YOUNG: Duration = Duration::from_secs(5);
/// A stream with at least these limits drops no message younger than [`YOUNG`], at 100 MB or 200,000 messages a second.
const ROOM_BYTES: i64 = 512 << 20;
const ROOM_MESSAGES: i64 = 1_000_000;
const ROOM_AGE: Duration = Duration::from_secs(60);
/// The first version of NATS that supports several filters per consumer.
const SEVERAL_FILTERS: (u32, u32) = (2, 10);

/// A command from the sequencer.
pub(super) enum FollowCommand {
    /// Consume a channel and load its history.
    Read { ticket: PublishTicket, channel: Name, to: u64, most: usize },
    /// Stop consuming a channel.
    Release { channel: Name },
}

/// A history that has yet to be loaded.
struct Read {
    ticket: PublishTicket,
    channel: Name,
    subject: String,
    to: u64,
    most: usize,
    asked: Duration,
    /// The offset that must have been received first: the lowest head that the stream has reported since the request. `None` until
    /// it has reported one.
    after: Option<u64>,
}

/// The stream's info at one moment.
#[derive(Clone, Copy, Debug)]
struct StreamState {
    /// When it was requested.
    at: Duration,
    first: u64,
    last: u64,
    /// Whether the stream holds much more than arrives within a few seconds.
    roomy: bool,
}

/// Consumes the stream for this node, and reports what arrives as cluster events.
pub(super) struct Follower {
    /// State shared with the other tasks of the engine.
    side: Arc<Side>,
    wishes: mpsc::UnboundedReceiver<FollowCommand>,
    tell: mpsc::UnboundedSender<ClusterEvent>,
    interest: ChannelInterest,
    /// Every consumed message before this offset was received and passed on.
    next: u64,
    look: StreamState,
    look_due: Duration,
    /// Messages not yet received were published after this moment.
    young: Option<Duration>,
    reads: Vec<Read>,
    /// When the stream was first known to be ahead.
    behind: Option<Duration>,
    beacon: String,
    /// Offset of the last beacon; without one, the stream's head at the start.
    beacon_offset: u64,
    /// When the last beacon arrived or was published.
    beacon_at: Option<Duration>,
    /// Name of the current consumer.
    consumer: Option<String>,
    /// Messages received from the current consumer.
    counted: u64,
    /// When `next` last advanced, or the current consumer was created.
    progress: Duration,
    /// When a consumer without progress is replaced.
    stalled: Duration,
    /// When the stream was first reported to end before `next`, if it still is.
    short: Option<Duration>,
}

type Coming = Result<jetstream::Message, pull::MessagesError>;
type Batches = ReadyChunks<pull::Stream>;

impl Follower {
    /// Creates a follower that starts after the offset `newest`.
    pub(super) fn new(
        side: Arc<Side>,
        newest: u64,
        wishes: mpsc::UnboundedReceiver<FollowCommand>,
        tell: mpsc::UnboundedSender<ClusterEvent>,
    ) -> Self {
        let now = side.outlet.now();
        Self {
            interest: ChannelInterest::new(&side.prefix, side.cluster.filters, side.cluster.linger),
            next: newest + 1,
            look: StreamState { at: now, first: 0, last: newest, roomy: false },
            look_due: now,
            young: None,
            reads: Vec::new(),
            behind: None,
            beacon: encoding::beacon(&side.prefix),
            beacon_offset: newest,
            beacon_at: None,
            consumer: None,
            counted: 0,
            progress: now,
            stalled: STALLED,
            short: None,
            side,
            wishes,
            tell,
        }
    }

    /// Follows the stream, and retries after every failure.
    pub(super) async fn follow(mut self) {
        let mut unfit = false;
        loop {
            let Err(failure) = self.followed().await;
            let permanent = failure.is_permanent();
            if permanent && !unfit {
                self.side.bring(vec![ClusterEvent::Down]).await;
                self.side.outlet.note(Note::Trouble(failure.to_string()));
            }
            unfit = permanent;
            self.side.pause().await;
        }
    }

    async fn followed(&mut self) -> Result<Never, NatsFailure> {
        let side = Arc::clone(&self.side);
        let mut back = pin!(side.back.notified());
        back.as_mut().enable();
        let look = side.look(self.next).await?;
        self.looked(look).await;
        self.interest.limit(self.now(), side.filters_most());
        let mut up = false;
        loop {
            let mut batches = self.begins().await?;
            if !std::mem::replace(&mut up, true) {
                side.bring(vec![ClusterEvent::Up]).await;
            }
            let mut looking = pin!(Fuse::terminated());
            let mut wishes = Vec::new();
            loop {
                self.begin_reads();
                if self.changes() {
                    break;
                }
                self.beat().await;
                if looking.is_terminated() && self.look_due <= self.now() {
                    looking.set(side.look(self.next).fuse());
                }
                let rest = self.rest(looking.is_terminated());
                tokio::select! {
                    batch = batches.next() => {
                        self.take(batch.ok_or(NatsFailure::ConsumerEnded)?).await?;
                    }
                    () = &mut back => return Err(NatsFailure::Reconnected),
                    count = self.wishes.recv_many(&mut wishes, BATCH) => {
                        if count == 0 {
                            return Err(NatsFailure::Closed);
                        }
                        wishes.drain(..).for_each(|wish| self.on_command(wish));
                    }
                    look = &mut looking => self.on_look(look).await?,
                    _ = timeout(rest, pending::<Never>()) => {}
                }
            }
        }
    }

    /// Creates a consumer with the current filters, and deletes the previous one.
    async fn begins(&mut self) -> Result<Batches, NatsFailure> {
        let asked = self.now();
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            ack_policy: AckPolicy::None,
            inactive_threshold: INACTIVE,
            num_replicas: 1,
            memory_storage: true,
            ..filtered(self.interest.filters(&self.beacon))
        };
        let consumer = self.side.stream.create_consumer(config).await?;
        self.counted = 0;
        if let Some(before) = self.consumer.replace(consumer.cached_info().name.clone()) {
            let side = Arc::clone(&self.side);
            // If this fails, NATS deletes it after `INACTIVE`.
            tokio::spawn(async move { drop(side.stream.delete_consumer(&before).await) });
        }
        let messages =
            consumer.stream().max_messages_per_batch(AHEAD).heartbeat(HEARTBEAT).expires(ASKING).messages();
        let batches = messages.await?.ready_chunks(BATCH);
        let now = self.now();
        self.progress = now;
        self.interest.changed(now, now.saturating_sub(asked));
        Ok(batches)
    }

    // ── Subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    fn on_command(&mut self, wish: FollowCommand) {
        let now = self.now();
        match wish {
            FollowCommand::Read { ticket, channel, to, most } => {
                let subject = encoding::subject(&self.side.prefix, &channel);
                self.interest.want(&subject);
                self.reads.push(Read { ticket, channel, subject, to, most, asked: now, after: None });
                self.look_due = self.look_due.min(now);
            }
            FollowCommand::Release { channel } => {
                self.interest.release(now, &encoding::subject(&self.side.prefix, &channel));
                self.reads.retain(|read| read.channel != channel);
            }
        }
    }

    /// Returns whether the filters have changed and a new consumer is needed.
    fn changes(&mut self) -> bool {
        let now = self.now();
        self.interest.due().is_some_and(|due| due <= now) && self.interest.change(now)
    }

    /// Starts the reads that are ready.
    fn begin_reads(&mut self) {
        let next = self.next;
        let interest = &self.interest;
        let can =
            |read: &Read| read.after.is_some_and(|after| after < next) && interest.covers(&read.subject);
        if !self.reads.iter().any(can) {
            return;
        }
        let (ready, waiting): (Vec<Read>, _) = std::mem::take(&mut self.reads).into_iter().partition(can);
        self.reads = waiting;
        for Read { ticket, channel, to, most, .. } in ready {
            let side = Arc::clone(&self.side);
            // Tombstones did not arrive while the channel was not consumed, so cached chunks may be outdated.
            side.histories.forget(&channel);
            tokio::spawn(side.read(ticket, channel, to.max(next - 1), most, self.tell.clone()));
        }
    }

    /// Time until the next timer. `may_look` is false while a request for the stream's info is in flight.
    fn rest(&self, may_look: bool) -> Duration {
        let look = may_look.then_some(self.look_due);
        let soon = [look, self.interest.due(), self.beat_due()].into_iter().flatten().min();
        soon.map_or(LOOKS, |soon| soon.saturating_sub(self.now()))
    }

    fn now(&self) -> Duration {
        self.side.outlet.now()
    }

    // ── Deliveries ──────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes a batch: all messages in sequence, up to the first error.
    async fn take(&mut self, batch: Vec<Coming>) -> Result<(), NatsFailure> {
        let mut messages = Vec::with_capacity(batch.len());
        let mut next = self.next;
        // Young messages cannot have been dropped. Otherwise the first sequence is requested once, when the whole batch is
        // here.
        let is_young =
            self.look.roomy && self.young.is_some_and(|young| self.now().saturating_sub(young) < YOUNG);
        let mut first = is_young.then_some(0);
        let mut failed = None;
        for one in &batch {
            let (one, place) = match self.in_turn(one) {
                Ok(placed) => placed,
                Err(failure) => {
                    failed = Some(failure);
                    break;
                }
            };
            // A lagging server may start the consumer before the requested sequence.
            if place.stream_sequence < next {
                continue;
            }
            if place.stream_sequence > next {
                if first.is_none() {
                    self.hand_on(&mut messages, next).await;
                    match self.side.look(next).await {
                        Ok(look) => {
                            first = Some(look.first);
                            self.looked(StreamState { first: look.first.min(place.stream_sequence), ..look })
                                .await;
                        }
                        // The next attempt to follow finds out whether the stream was replaced.
                        Err(failure) => {
                            failed = Some(NatsFailure::DropsUnknown(Box::new(failure)));
                            break;
                        }
                    }
                }
                if let Some(first) = first.filter(|first| *first > next) {
                    self.hand_on(&mut messages, next).await;
                    self.lose_before(first.min(place.stream_sequence)).await;
                }
            }
            next = place.stream_sequence + 1;
            if one.subject.as_str() == self.beacon {
                (self.beacon_offset, self.beacon_at) = (place.stream_sequence, Some(self.now()));
            } else if let Some(channel) = encoding::channel(&self.side.prefix, &one.subject) {
                messages.push(message(channel, one, &place));
            }
        }
        self.hand_on(&mut messages, next).await;
        failed.map_or(Ok(()), Err)
    }

    /// Returns a delivery and its position if it is the consumer's next one.
    fn in_turn<'a>(&mut self, one: &'a Coming) -> Result<(&'a jetstream::Message, Place<'a>), NatsFailure> {
        let one = one.as_ref().map_err(|error| NatsFailure::Nats(error.to_string().into()))?;
        let place = one.info().map_err(NatsFailure::Nats)?;
        if place.consumer_sequence != self.counted + 1 {
            return Err(NatsFailure::Skipped);
        }
        self.counted += 1;
        Ok((one, place))
    }

    /// Passes messages on: everything before `next` was received.
    async fn hand_on(&mut self, messages: &mut Vec<Arc<Message>>, next: u64) {
        if next > self.next {
            self.advance(next);
            let to = next - 1;
            self.side.offset.store(to, Ordering::Relaxed);
            let tombstones = messages.iter().filter(|message| message.forgets_to().is_some());
            tombstones.for_each(|tombstone| self.side.histories.forget(&tombstone.channel));
            self.side.bring(vec![ClusterEvent::Messages { messages: std::mem::take(messages), to }]).await;
            self.ages();
        }
    }

    fn advance(&mut self, next: u64) {
        (self.next, self.progress, self.stalled) = (next, self.now(), STALLED);
    }

    /// Updates `young` and `behind`. Once everything up to the last known head was received, missing messages are younger than
    /// the last look.
    fn ages(&mut self) {
        if self.look.last < self.next {
            (self.young, self.behind) = (Some(self.look.at), None);
        } else {
            self.behind.get_or_insert(self.look.at);
        }
    }

    // ── Head offset ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Reports messages as lost that the stream dropped before they were received.
    async fn lose_before(&mut self, first: u64) {
        if first > self.next {
            self.advance(first);
            self.side.bring(vec![ClusterEvent::Lost { to: first - 1 }]).await;
            // The last beacon may be among the dropped messages.
            self.beacon_offset = self.beacon_offset.max(first - 1);
        }
    }

    /// Applies the outcome of a periodic request for the stream's info. A failed request is retried; steps that need the info wait
    /// for it.
    async fn on_look(&mut self, look: Result<StreamState, NatsFailure>) -> Result<(), NatsFailure> {
        let now = self.now();
        match look {
            Ok(look) => {
                self.looked(look).await;
                let since = self.behind.map(|behind| behind.max(self.progress));
                if since.is_some_and(|since| look.at.saturating_sub(since) >= self.stalled) {
                    self.stalled = (self.stalled * 2).min(STALLED_MAX);
                    return Err(NatsFailure::Stalled);
                }
            }
            Err(failure) => {
                self.look_due = now + PAUSE;
                if failure.is_permanent() && now.saturating_sub(*self.short.get_or_insert(now)) >= LOST_END {
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// Applies new stream info.
    async fn looked(&mut self, look: StreamState) {
        (self.look, self.short) = (look, None);
        self.lose_before(look.first).await;
        self.ages();
        let mut more = false;
        for read in &mut self.reads {
            if read.asked <= look.at {
                read.after = Some(read.after.map_or(look.last, |after| after.min(look.last)));
            } else {
                more |= read.after.is_none();
            }
        }
        self.look_due = if more { look.at } else { look.at + LOOKS };
    }

    /// When to publish a beacon if no message arrives before. If a read waits for one this is at once, otherwise when the
    /// stream has been ahead for a while.
    fn beat_due(&self) -> Option<Duration> {
        let behind = self.behind?;
        let waited_for = self.reads.iter().any(|read| read.after.is_some_and(|after| after >= self.next));
        let (pause, wait) = if waited_for { (BEACONS, Duration::ZERO) } else { (LOOKS, LOOKS) };
        let free = self.beacon_at.map(|at| at + pause);
        free.max(Some(behind + wait))
    }

    async fn beat(&mut self) {
        let now = self.now();
        if self.beat_due().is_none_or(|due| due > now) {
            return;
        }
        self.beacon_at = Some(now);
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, self.beacon_id(now));
        let client = self.side.jetstream.client();
        let said = client.publish_with_headers(self.beacon.clone(), headers, Vec::new().into());
        // A lost beacon is published again later.
        let _unheard = timeout(ANSWER_TIME, said).await;
    }

    /// The id of the next beacon: the same on all nodes, so the stream stores one. While none arrives, each node has an id of its
    /// own, another one after each [`BEACON_LOST`].
    fn beacon_id(&self, now: Duration) -> String {
        let common = format!("$beacon {}", self.beacon_offset);
        let since = self.behind.unwrap_or(now).max(self.progress);
        match now.saturating_sub(since).as_secs() / BEACON_LOST.as_secs() {
            0 => common,
            times => format!("{common} {:016x} {times}", self.side.cluster.node.0),
        }
    }
}

impl Side {
    /// Requests the stream's info. Fails if the stream was recreated, or ends before the messages already received.
    async fn look(&self, next: u64) -> Result<StreamState, NatsFailure> {
        let at = self.outlet.now();
        let info = self.stream.get_info().await?;
        let (first, last) = (info.state.first_sequence, info.state.last_sequence);
        if epoch(&info) != self.epoch || last + 1 < next {
            return Err(NatsFailure::Replaced(self.cluster.stream.clone()));
        }
        Ok(StreamState { at, first, last, roomy: is_roomy(&info) })
    }

    /// The number of filters that the server supports, at most the configured one.
    fn filters_most(&self) -> usize {
        let version = self.jetstream.client().server_info().version;
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version < SEVERAL_FILTERS { 1 } else { self.cluster.filters }
    }
}

/// Returns whether a stream holds much more than arrives within a few seconds.
fn is_roomy(Info { config, .. }: &Info) -> bool {
    let Config { max_bytes, max_messages, max_age, .. } = config;
    (*max_bytes <= 0 || *max_bytes >= ROOM_BYTES)
        && (*max_messages <= 0 || *max_messages >= ROOM_MESSAGES)
        && (max_age.is_zero() || *max_age >= ROOM_AGE)
}

/// Sets the filters of a consumer. A single filter has a field of its own, which every version supports. Versions before 2.10
/// ignore a list of filters and deliver everything.
pub(super) fn filtered(mut filters: Vec<String>) -> pull::Config {
    if filters.len() == 1 {
        pull::Config { filter_subject: filters.remove(0), ..pull::Config::default() }
    } else {
        pull::Config { filter_subjects: filters, ..pull::Config::default() }
    }
}
