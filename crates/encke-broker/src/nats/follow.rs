//! How a node follows a stream: what is wanted of it, by one consumer, from the place that it has come to.
//!
//! ```text
//!            ┌─────────────── the connection is another one, messages were lost on their way ──────────────┐
//!            ▼                                                                                              │
//!  look: is it the same stream? ─► a consumer at `next`, with the filters of `Interest` ─► batches ─► News::Messages
//!                                            ▲                                               │
//!                                            └──────────── something else is wanted ─────────┘
//! ```
//! **Nothing is missed.** A consumer numbers what it gives: as long as these numbers follow one another, everything that its
//! filters name has come. When they change, another consumer begins at `next`; one that is changed where it stands may have
//! passed over what is wanted from now on.
//!
//! **How far the stream is** cannot be told by what comes, if little of it is wanted. So there is a *beacon*: a message
//! without a meaning that every node gets. One that sees the stream ahead of itself says it, under a name made of the beacon
//! before, so that of many nodes one is heard; its arrival proves that everything before has come. While the stream rests nobody says
//! anything.
//!
//! **A channel's past is read** when all of the channel comes and everything that was in the stream when it was asked for has come. The
//! past ends there.
//!
//! **A hole** in the stream's sequences is mostly what nobody here wants. It may be a loss if the stream has dropped something that
//! had yet to come: its first sequence tells, and is asked for before what lies behind the hole is handed on; but not where all that
//! has yet to come is so young, and the stream so large, that it cannot have been dropped.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, Info};
use async_nats::jetstream::{self, message::Info as Place};
use encke_hub::{Message, Name, News, Ticket};
use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use futures_util::stream::ReadyChunks;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::interest::Interest;
use super::{
    AHEAD, ANOTHER, ANSWER_TIME, ASKING, BATCH, Failure, HEARTBEAT, INACTIVE, Never, Note, PAUSE, Side,
    epoch, letter, message,
};

/// How often the stream is looked at, and how often there is a beacon if nobody waits for one.
const LOOKS: Duration = Duration::from_secs(1);
/// How often there is a beacon at most.
const BEACONS: Duration = Duration::from_millis(50);
/// What was published since a look that is not older than this is young: as long as beacons come.
const YOUNG: Duration = Duration::from_secs(5);
/// A stream that keeps as much is not turned over while its messages are young: 100 MB a second, 200,000 messages a second.
const ROOM_BYTES: i64 = 512 << 20;
const ROOM_MESSAGES: i64 = 1_000_000;
const ROOM_AGE: Duration = Duration::from_secs(60);
/// The first version of NATS with several filters a consumer.
const SEVERAL_FILTERS: (u32, u32) = (2, 10);

/// What the sequencer wants.
pub(super) enum Wish {
    /// A channel, and its past.
    Read { ticket: Ticket, channel: Name, to: u64, most: usize },
    /// No more of a channel.
    Release { channel: Name },
}

/// A past that has yet to be read.
struct Read {
    ticket: Ticket,
    channel: Name,
    subject: String,
    to: u64,
    most: usize,
    asked: Duration,
    /// What has to have come first.
    behind: Option<u64>,
}

/// What a stream said of itself.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// When it was asked.
    at: Duration,
    first: u64,
    last: u64,
    /// It keeps much more than comes in a few seconds.
    roomy: bool,
}

pub(super) struct Follower {
    side: Arc<Side>,
    wishes: mpsc::UnboundedReceiver<Wish>,
    tell: mpsc::UnboundedSender<News>,
    interest: Interest,
    /// Everything wanted before this has come, and was handed on.
    next: u64,
    look: Look,
    look_due: Duration,
    /// What has yet to come was published after this.
    young: Option<Duration>,
    reads: Vec<Read>,
    /// Since when a look has found the stream ahead.
    behind: Option<Duration>,
    beacon: String,
    /// The last beacon, or where the stream was when there was none.
    beaten: u64,
    /// When it was seen, or one was said.
    beaten_at: Option<Duration>,
    /// The consumer in use.
    consumer: Option<String>,
    /// How many messages of it have come.
    counted: u64,
}

type Coming = Result<jetstream::Message, pull::MessagesError>;
type Batches = ReadyChunks<pull::Stream>;

impl Follower {
    /// One that follows a stream from where it was a moment ago.
    pub(super) fn new(
        side: Arc<Side>,
        newest: u64,
        wishes: mpsc::UnboundedReceiver<Wish>,
        tell: mpsc::UnboundedSender<News>,
    ) -> Self {
        let now = side.outlet.now();
        Self {
            interest: Interest::new(&side.prefix, side.cluster.filters, side.cluster.linger),
            next: newest + 1,
            look: Look { at: now, first: 0, last: newest, roomy: false },
            look_due: now,
            young: None,
            reads: Vec::new(),
            behind: None,
            beacon: letter::beacon(&side.prefix),
            beaten: newest,
            beaten_at: None,
            consumer: None,
            counted: 0,
            side,
            wishes,
            tell,
        }
    }

    /// Follows, whatever happens.
    pub(super) async fn follow(mut self) {
        let mut unfit = false;
        loop {
            let Err(failure) = self.followed().await;
            let permanent = failure.0.starts_with(ANOTHER);
            if permanent && !unfit {
                self.side.bring(vec![News::Down]).await;
                self.side.outlet.note(Note::Trouble(failure.0));
            }
            unfit = permanent;
            self.side.pause().await;
        }
    }

    async fn followed(&mut self) -> Result<Never, Failure> {
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
                side.bring(vec![News::Up]).await;
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
                        self.take(batch.ok_or_else(|| Failure("the consumer has ended".into()))?).await?;
                    }
                    () = &mut back => return Err(Failure("the connection is another one".into())),
                    count = self.wishes.recv_many(&mut wishes, BATCH) => {
                        if count == 0 {
                            return Err(Failure("nobody wants anything any more".into()));
                        }
                        wishes.drain(..).for_each(|wish| self.wish(wish));
                    }
                    // One that fails is tried again; what needs a look waits for it.
                    look = &mut looking => match look {
                        Ok(look) => self.looked(look).await,
                        Err(_) => self.look_due = self.now() + PAUSE,
                    },
                    _ = timeout(rest, pending::<Never>()) => {}
                }
            }
        }
    }

    /// A consumer with the filters of now, in place of the one before.
    async fn begins(&mut self) -> Result<Batches, Failure> {
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
            // Else NATS forgets it by itself.
            tokio::spawn(async move { drop(side.stream.delete_consumer(&before).await) });
        }
        let messages =
            consumer.stream().max_messages_per_batch(AHEAD).heartbeat(HEARTBEAT).expires(ASKING).messages();
        let batches = messages.await?.ready_chunks(BATCH);
        let now = self.now();
        self.interest.changed(now, now.saturating_sub(asked));
        Ok(batches)
    }

    // ── What is wanted ──────────────────────────────────────────────────────────────────────────────────────────

    fn wish(&mut self, wish: Wish) {
        let now = self.now();
        match wish {
            Wish::Read { ticket, channel, to, most } => {
                let subject = letter::subject(&self.side.prefix, &channel);
                self.interest.want(&subject);
                self.reads.push(Read { ticket, channel, subject, to, most, asked: now, behind: None });
                self.look_due = self.look_due.min(now);
            }
            Wish::Release { channel } => {
                self.interest.release(now, &letter::subject(&self.side.prefix, &channel));
                self.reads.retain(|read| read.channel != channel);
            }
        }
    }

    /// Whether other filters are needed now.
    fn changes(&mut self) -> bool {
        let now = self.now();
        self.interest.due().is_some_and(|due| due <= now) && self.interest.change(now)
    }

    /// Reads what can be read.
    fn begin_reads(&mut self) {
        let next = self.next;
        let interest = &self.interest;
        let can =
            |read: &Read| read.behind.is_some_and(|behind| behind < next) && interest.covers(&read.subject);
        if !self.reads.iter().any(can) {
            return;
        }
        let (ready, waiting): (Vec<Read>, _) = std::mem::take(&mut self.reads).into_iter().partition(can);
        self.reads = waiting;
        for Read { ticket, channel, to, most, .. } in ready {
            let side = Arc::clone(&self.side);
            // While it did not come, nor did its tombstones.
            side.histories.forget(&channel);
            tokio::spawn(side.read(ticket, channel, to.max(next - 1), most, self.tell.clone()));
        }
    }

    /// How long there is nothing to do, if nothing comes before. A look is on its way, or is none of it.
    fn rest(&self, looks: bool) -> Duration {
        let look = looks.then_some(self.look_due);
        let soon = [look, self.interest.due(), self.beat_due()].into_iter().flatten().min();
        soon.map_or(LOOKS, |soon| soon.saturating_sub(self.now()))
    }

    fn now(&self) -> Duration {
        self.side.outlet.now()
    }

    // ── What comes ──────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes what has come: all of it that is in turn, up to what is wrong.
    async fn take(&mut self, batch: Vec<Coming>) -> Result<(), Failure> {
        let mut messages = Vec::with_capacity(batch.len());
        let mut next = self.next;
        // What is young cannot have been dropped. Else it is asked for once, when all of this batch is here.
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
            // A server that is behind the others begins before what was asked for.
            if place.stream_sequence < next {
                continue;
            }
            if place.stream_sequence > next {
                if first.is_none() {
                    self.hand_on(&mut messages, next).await;
                    match self.side.look(next).await {
                        Ok(look) => {
                            first = Some(look.first);
                            self.looked(Look { first: look.first.min(place.stream_sequence), ..look }).await;
                        }
                        // Whether it is another stream is found out when it is followed again.
                        Err(Failure(why)) => {
                            failed = Some(Failure(format!("what was dropped is not known: {why}")));
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
                (self.beaten, self.beaten_at) = (place.stream_sequence, Some(self.now()));
            } else if let Some(channel) = letter::channel(&self.side.prefix, &one.subject) {
                messages.push(message(channel, one, &place));
            }
        }
        self.hand_on(&mut messages, next).await;
        failed.map_or(Ok(()), Err)
    }

    /// What has come, if it is the consumer's next.
    fn in_turn<'a>(&mut self, one: &'a Coming) -> Result<(&'a jetstream::Message, Place<'a>), Failure> {
        let one = one.as_ref().map_err(Failure::of)?;
        let place = one.info().map_err(Failure::of)?;
        if place.consumer_sequence != self.counted + 1 {
            return Err(Failure("messages were lost on their way".into()));
        }
        self.counted += 1;
        Ok((one, place))
    }

    /// Everything before `next` is here.
    async fn hand_on(&mut self, messages: &mut Vec<Arc<Message>>, next: u64) {
        if next > self.next {
            self.next = next;
            let to = next - 1;
            self.side.offset.store(to, Ordering::Relaxed);
            let tombstones = messages.iter().filter(|message| message.forgets_to().is_some());
            tombstones.for_each(|tombstone| self.side.histories.forget(&tombstone.channel));
            self.side.bring(vec![News::Messages { messages: std::mem::take(messages), to }]).await;
            self.ages();
        }
    }

    /// If all that was there at the last look has come, what has yet to come is younger.
    fn ages(&mut self) {
        if self.look.last < self.next {
            (self.young, self.behind) = (Some(self.look.at), None);
        } else {
            self.behind.get_or_insert(self.look.at);
        }
    }

    // ── How far the stream is ───────────────────────────────────────────────────────────────────────────────────

    /// What the stream has dropped before it came here is lost.
    async fn lose_before(&mut self, first: u64) {
        if first > self.next {
            self.next = first;
            self.side.bring(vec![News::Lost { to: first - 1 }]).await;
            // The beacon before may have gone with it.
            self.beaten = self.beaten.max(first - 1);
        }
    }

    /// The stream was looked at.
    async fn looked(&mut self, look: Look) {
        self.look = look;
        self.lose_before(look.first).await;
        self.ages();
        let waiting = self.reads.iter_mut().filter(|read| read.behind.is_none());
        let mut more = false;
        for read in waiting {
            if read.asked <= look.at {
                read.behind = Some(look.last);
            } else {
                more = true;
            }
        }
        self.look_due = if more { look.at } else { look.at + LOOKS };
    }

    /// When a beacon is said, if nothing comes before: at once if somebody waits, and when the stream has been ahead for a while.
    fn beat_due(&self) -> Option<Duration> {
        let behind = self.behind?;
        let waited_for = self.reads.iter().any(|read| read.behind.is_some_and(|behind| behind >= self.next));
        let (pause, wait) = if waited_for { (BEACONS, Duration::ZERO) } else { (LOOKS, LOOKS) };
        let free = self.beaten_at.map(|at| at + pause);
        free.max(Some(behind + wait))
    }

    async fn beat(&mut self) {
        let now = self.now();
        if self.beat_due().is_none_or(|due| due > now) {
            return;
        }
        self.beaten_at = Some(now);
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, format!("$beacon {}", self.beaten));
        let client = self.side.jetstream.client();
        let said = client.publish_with_headers(self.beacon.clone(), headers, Vec::new().into());
        // One that is not heard is said again.
        let _unheard = timeout(ANSWER_TIME, said).await;
    }
}

impl Side {
    /// What the stream says of itself; not even the end of what had come may be missing.
    async fn look(&self, next: u64) -> Result<Look, Failure> {
        let at = self.outlet.now();
        let info = self.stream.get_info().await?;
        let (first, last) = (info.state.first_sequence, info.state.last_sequence);
        if epoch(&info) != self.epoch || last + 1 < next {
            return Err(Failure(format!(
                "{ANOTHER}: {} was made anew or has lost its end; publishing is refused until the nodes are started \
                 again",
                self.cluster.stream
            )));
        }
        Ok(Look { at, first, last, roomy: is_roomy(&info) })
    }

    /// How many filters the server takes.
    fn filters_most(&self) -> usize {
        let version = self.jetstream.client().server_info().version;
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version < SEVERAL_FILTERS { 1 } else { self.cluster.filters }
    }
}

/// Whether a stream keeps much more than comes in a few seconds.
fn is_roomy(Info { config, .. }: &Info) -> bool {
    let Config { max_bytes, max_messages, max_age, .. } = config;
    (*max_bytes <= 0 || *max_bytes >= ROOM_BYTES)
        && (*max_messages <= 0 || *max_messages >= ROOM_MESSAGES)
        && (max_age.is_zero() || *max_age >= ROOM_AGE)
}

/// One filter has a field of its own, which every version knows; of several, one before 2.10 knows nothing and gives everything.
pub(super) fn filtered(mut filters: Vec<String>) -> pull::Config {
    if filters.len() == 1 {
        pull::Config { filter_subject: filters.remove(0), ..pull::Config::default() }
    } else {
        pull::Config { filter_subjects: filters, ..pull::Config::default() }
    }
}
