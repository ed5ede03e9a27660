//! The hub of one worker: its subscribers, replicas of the channels they want, and the order of deliveries.
//!
//! ```text
//!  subscribe ─► ready queue ─┐                    ┌─ Started, Waiting
//!  sent ──────► ready queue ─┼─► slice ─► serve ──┼─ Bytes: the subscriber is busy until `sent`
//!  feed ──────► pass ────────┘                    └─ Last, Overrun: the subscriber is removed
//! ```
//! **The ready queue** (`ready_queue`) holds subscribers that may have messages to receive: new subscribers, and subscribers that
//! became writable while behind. **A pass** walks all subscribers of a channel that received messages. A slice serves the ready
//! queue first and then the channels in turn, up to a maximum number of deliveries.
//!
//! A delivery contains all messages up to the head that fit into one run. Subscribers at the same position share its encoding.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::HubNow;
use crate::channel::{Channel, Collector};
use crate::encoding::{Encoded, Encoder, Encodings, Form, Gap, GapReason, Run};
use crate::limits::{ENCODED_SHARE, LINGER_NS, TELLING_MS, UNWANTED_NS};
use crate::message::Message;
use crate::name::Name;
use crate::position::{Beside, Epoch, Position, Positions, Since};
use crate::preamble::breaks_within;
use crate::rules::{Overrun, Rules};
use crate::slab::HubSlab;
use crate::start;
use crate::subscriber::{
    ChannelEntry, ChannelLink, Member, Once, Subscriber, SubscriberEntry, SubscriberExtra, SubscriberId,
    SubscriberState,
};
use crate::values::{Feed, FeedRequest};

mod history;
mod keyed;
mod part;
mod readers;

use history::Backfills;
pub(crate) use part::{PartDelivery, PartEvent, PartRun};
pub use readers::ReaderState;

/// The hub of one worker, for one stream.
///
/// After each input (`subscribe`, `leave`, `change`, `sent`, `feed`) call [`slice`](Self::slice) until no work is left. Then
/// call [`take_requests`](Self::take_requests) and carry the requests to the sequencer in their order.
#[derive(Debug)]
pub struct Hub {
    core: usize,
    epoch: Epoch,
    rules: Arc<Rules>,
    now: HubNow,
    /// All messages of the open channels up to this offset were fed.
    head: u64,
    names: HashMap<Name, u32>,
    channels: HubSlab<Channel>,
    subscribers: HubSlab<Subscriber>,
    /// The ready queue: subscribers, and when each was queued. The first slice after that sets the time.
    ready_queue: VecDeque<(u32, u64)>,
    /// Number of entries at the end of the ready queue without a time.
    untimed: usize,
    /// Channels that lost their last subscriber since the last slice.
    emptied: Vec<u32>,
    /// Channels with a pass in progress, in turn.
    dirty: VecDeque<u32>,
    /// Channels, and times since which their subscribers wait, oldest first. Outdated entries are removed at the front.
    waits: VecDeque<(u32, u64)>,
    /// Number of channels whose pass lags by half a ring.
    pressed: usize,
    requests: Vec<FeedRequest>,
    /// Number of calls of `take_requests`, so that a channel knows whether its pending count is still in `requests`.
    batch: u64,
    /// Channels that had no subscriber, and when to check them.
    idle: VecDeque<(u64, u32)>,
    /// Polling members that left since the last slice.
    parting: Vec<(Name, Arc<str>)>,
    /// Polling members between two polls, and when their leave is announced.
    lingering: VecDeque<(u64, Name, Arc<str>)>,
    /// Channels whose [`Channel::slow`] is not reported yet.
    slow: Vec<u32>,
    /// Passes that ended in the last slice.
    ended: Vec<Pass>,
    backfills: Backfills,
    /// Starting subscribers that are ahead of `head`, by id. They wait for the newest offset.
    ahead: HashMap<u32, Ahead>,
    /// Number of the last request for the newest offset.
    ahead_asked: u64,
    /// Deliveries to parts of subscribers of several streams.
    parts: Vec<PartDelivery>,
    /// Number of subscribers that are such parts.
    parts_count: usize,
    encodings: Encodings,
    /// Channels that cache encodings.
    warm: Vec<u32>,
    scratch: DeliveryScratch,
}

/// A subscriber whose position is ahead of all messages fed to its worker.
#[derive(Debug)]
struct Ahead {
    number: u64,
    /// The newest offset, once the sequencer has reported it.
    newest: Option<u64>,
}

/// A finished pass: a change of a channel was delivered to all its writable subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The class of the channel, from its rules.
    pub class: u16,
    /// When the first change of the pass was fed to this worker, on the monotonic clock in ns.
    pub since_ns: u64,
}

#[derive(Debug, Default)]
struct DeliveryScratch {
    messages: Vec<Arc<Message>>,
    bytes: Vec<u8>,
    /// The next message of each channel of a subscriber: offset, channel, index in its ring.
    merge: BinaryHeap<Reverse<(u64, u32, usize)>>,
}

/// A request to subscribe.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// The channels; duplicates count once. The list may be empty: [`Hub::change`] can add channels later.
    pub channels: Vec<Name>,
    /// The start of the subscription.
    pub since: Since,
    /// The encoding of the messages.
    pub form: Form,
    /// Whether the subscriber stays after a delivery.
    pub once: Once,
    /// The server's identifier of the subscriber, returned with each delivery.
    pub key: u64,
    /// The member for channels with presence.
    pub member: Option<Member>,
}

/// The reason why a subscription is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeError {
    /// More channels than one subscriber may have.
    TooManyOnStream {
        /// The limit.
        most: usize,
    },
    /// This worker would want more channels than allowed.
    TooManyChannels {
        /// The limit.
        most: usize,
    },
}

/// A delivery to one connection.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The subscriber.
    pub subscriber: SubscriberId,
    /// The server's identifier of the subscriber.
    pub key: u64,
    /// The content.
    pub what: DeliveryContent,
}

/// The content of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryContent {
    /// A stream starts: all its channels are open here. The subscriber is busy until [`Hub::sent`].
    Started {
        /// The subscriber's position. Resuming from it misses nothing.
        position: Positions,
        /// The gap before the position, if any.
        gap: Option<Box<Gap>>,
    },
    /// The next bytes of a stream. The subscriber is busy until [`Hub::sent`].
    Bytes(Arc<[u8]>),
    /// The response to a poll. The subscriber is removed.
    Last(Arc<[u8]>),
    /// There are no messages yet, and the subscriber waits for some. Nothing was sent, so the subscriber is not busy.
    Waiting,
    /// The subscriber was too slow for its channel and was removed. A send in flight may still complete.
    Overrun,
    /// The stream of a subscriber that started at a key frame has ended at a break ([`Flags::BREAK`](crate::Flags::BREAK)), and
    /// the subscriber was removed. A new subscriber starts with the new preamble.
    Ended,
}

/// The lag of the fan-out to writable subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The longest time that a writable subscriber has waited, in ns.
    pub behind_ns: u64,
    /// Whether publishers should wait: the lag is above [`Rules::publish_lag_ns`], or a pass lags by half of its ring.
    pub exceeded: bool,
}

/// Idle channels examined to find one to release. Channels opened recently, or left recently by a polling member, cannot be
/// released; they are few.
const RELEASE_LOOKS: usize = 64;

/// Nodes examined per delivery of a slice. A pass over 18,000 busy subscribers then takes about four slices of 256 deliveries.
const VISITS: usize = 16;

impl Hub {
    /// Creates the hub of worker `core`, without subscribers.
    pub fn new(core: usize, epoch: Epoch, rules: Arc<Rules>) -> Self {
        Self {
            core,
            epoch,
            rules,
            now: HubNow::default(),
            head: 0,
            names: HashMap::new(),
            channels: HubSlab::new(),
            subscribers: HubSlab::in_own_block(),
            ready_queue: VecDeque::new(),
            untimed: 0,
            emptied: Vec::new(),
            dirty: VecDeque::new(),
            waits: VecDeque::new(),
            pressed: 0,
            requests: Vec::new(),
            batch: 1,
            idle: VecDeque::new(),
            parting: Vec::new(),
            lingering: VecDeque::new(),
            slow: Vec::new(),
            ended: Vec::new(),
            backfills: Backfills::default(),
            ahead: HashMap::new(),
            ahead_asked: 0,
            parts: Vec::new(),
            parts_count: 0,
            encodings: Encodings::default(),
            warm: Vec::new(),
            scratch: DeliveryScratch::default(),
        }
    }

    /// Adds a subscriber. The next [`slice`](Self::slice) serves it if all its channels are open here. Otherwise it is served
    /// once they are.
    ///
    /// # Errors
    /// The subscriber, or this worker, would have too many channels.
    pub fn subscribe(&mut self, now: HubNow, subscribe: Subscribe) -> Result<SubscriberId, SubscribeError> {
        self.take(now, subscribe, false)
    }

    fn take(
        &mut self,
        now: HubNow,
        subscribe: Subscribe,
        part: bool,
    ) -> Result<SubscriberId, SubscribeError> {
        self.now = now;
        let Subscribe { mut channels, since, form, once, key, member } = subscribe;
        if channels.len() > 1 {
            channels = without_repeats(&channels, self.rules.channels_per_stream);
        }
        self.make_room(&channels, 0)?;
        let (since, entry) = keyed::entry(since, channels.len(), once, part);
        let single = channels.len() == 1 && member.is_none();
        let subscriber = Subscriber {
            key,
            position: self.head,
            rest: None,
            channel: 0,
            place: 0,
            form,
            once,
            state: SubscriberState::Starting,
            entry,
            in_ready_queue: false,
            late: false,
            part,
            skips: 0,
        };
        let id = self.subscribers.insert(subscriber);
        self.parts_count += usize::from(part);
        let only = if single { channels.first() } else { None };
        if let Some(name) = only {
            let channel = self.wanted(name);
            let place = self.join(channel, ChannelEntry { subscriber: id, link: 0 });
            let subscriber = &mut self.subscribers[id];
            (subscriber.channel, subscriber.place) = (channel, place);
            let open = self.channels[channel].open;
            if open && !self.is_ahead(&since) {
                self.begins(id, since);
                self.enqueue(id);
                return Ok(SubscriberId(id));
            }
            let link = ChannelLink { channel, place, announced: false, floor: ChannelLink::PENDING };
            let rest = SubscriberExtra {
                links: vec![link],
                member: None,
                since: Some(since),
                asked_ms: now.unix_ms,
                gap: None,
            };
            self.subscribers[id].rest = Some(Box::new(rest));
            if open {
                self.enqueue(id);
            }
            return Ok(SubscriberId(id));
        }
        let rest = SubscriberExtra {
            links: Vec::with_capacity(channels.len()),
            member,
            since: Some(since),
            asked_ms: now.unix_ms,
            gap: None,
        };
        self.subscribers[id].rest = Some(Box::new(rest));
        for name in &channels {
            self.link(id, name, 0);
        }
        if self.all_open(id) {
            if !self.awaits_newest(id) {
                self.resolve_start(id);
            }
            self.enqueue(id);
        }
        Ok(SubscriberId(id))
    }

    /// Removes a subscriber in any state. Not to be called after `Last`, `Overrun` or `Ended`.
    pub fn leave(&mut self, id: SubscriberId) {
        if self.subscribers.get(id.0).is_some() {
            self.remove(id.0);
        }
    }

    /// Adds channels to a subscriber and removes others. Added channels start now. A channel in both lists is removed first,
    /// and starts again. A subscriber that started at a key frame receives all further messages from now on.
    ///
    /// # Errors
    /// The subscriber, or this worker, would have too many channels; then nothing has changed.
    pub fn change(
        &mut self,
        now: HubNow,
        id: SubscriberId,
        add: &[Name],
        remove: &[Name],
    ) -> Result<(), SubscribeError> {
        self.now = now;
        let SubscriberId(id) = id;
        if self.subscribers.get(id).is_none() {
            return Ok(());
        }
        let removed: Vec<u32> = remove.iter().filter_map(|name| self.names.get(name).copied()).collect();
        let channels_of =
            |hub: &Self| -> Vec<u32> { hub.channels_of(id).map(|(channel, _)| channel).collect() };
        let stays: Vec<u32> = channels_of(self).into_iter().filter(|one| !removed.contains(one)).collect();
        let mut added = without_repeats(add, self.rules.channels_per_stream);
        added.retain(|name| !self.names.get(name).is_some_and(|channel| stays.contains(channel)));
        self.make_room(&added, stays.len())?;
        if !added.is_empty() || !removed.is_empty() {
            self.becomes_plain(id);
        }
        self.spread(id);
        for channel in removed {
            self.unlink(id, channel);
        }
        for name in &added {
            let floor = match self.names.get(name) {
                Some(&channel) if self.channels[channel].open => {
                    self.head.max(self.channels[channel].lost_to)
                }
                _ => ChannelLink::PENDING,
            };
            self.link(id, name, floor);
        }
        self.discard_run(id);
        // The subscriber may have waited for a removed channel to open.
        if self.subscribers[id].state == SubscriberState::Starting {
            self.enqueue(id);
        }
        Ok(())
    }

    /// Reports that a connection has sent its last delivery. The subscriber is writable, and is queued if it is behind.
    pub fn sent(&mut self, id: SubscriberId) {
        let SubscriberId(id) = id;
        let Some(subscriber) = self.subscribers.get_mut(id) else { return };
        if subscriber.state != SubscriberState::Busy {
            return;
        }
        subscriber.state = SubscriberState::Ready;
        if subscriber.entry != SubscriberEntry::Plain {
            return self.sent_keyed(id);
        }
        if self.backfills.has(id) {
            subscriber.state = SubscriberState::Reading;
            return self.enqueue(id);
        }
        let position = subscriber.position;
        if subscriber.rest.is_none() {
            let channel = &self.channels[subscriber.channel];
            if channel.edge <= position {
                return;
            }
            subscriber.late = channel.lost_to > position;
        } else {
            let (behind, late) = self.is_behind(id);
            if !behind {
                return;
            }
            self.subscribers[id].late = late;
        }
        self.enqueue(id);
    }

    /// Applies a value from the sequencer.
    pub fn feed(&mut self, now: HubNow, feed: Feed) {
        self.now = now;
        match feed {
            Feed::Opened { channel, lost_to, head, messages, preamble } => {
                self.head = self.head.max(head);
                let Some(&at) = self.names.get(&channel) else { return };
                let channel = &mut self.channels[at];
                if !channel.open {
                    channel.opens(lost_to, self.head, messages, preamble);
                    let came = channel.came();
                    self.touch(at, came);
                }
            }
            Feed::Message { message, lost_to } => {
                self.head = self.head.max(message.offset);
                let Some(&at) = self.names.get(&message.channel) else { return };
                let channel = &mut self.channels[at];
                // After an unwant and a new want, messages fed for the earlier want arrive first and are ignored.
                if channel.open {
                    let came = channel.came();
                    channel.append(message, lost_to);
                    self.touch(at, came);
                }
            }
            Feed::Head { to } => self.head = self.head.max(to),
            Feed::Lost { channel, to, preamble } => {
                // Messages of other channels up to this offset may still arrive, so the head stays.
                let Some(&at) = self.names.get(&channel) else { return };
                let channel = &mut self.channels[at];
                if channel.open {
                    let (came, edge) = (channel.came(), channel.edge);
                    channel.loses(to);
                    channel.set_preamble(preamble);
                    // Otherwise this worker had received all of the lost messages, and only busy subscribers have missed them.
                    if channel.edge > edge {
                        self.touch(at, came);
                    }
                }
            }
            Feed::Newest { reader: SubscriberId(id), number, to } => {
                if let Some(ahead) = self.ahead.get_mut(&id).filter(|ahead| ahead.number == number) {
                    ahead.newest = Some(to);
                    self.enqueue(id);
                }
            }
            Feed::Recalled { reader: SubscriberId(id), number, run } => {
                if self.backfills.store_run(id, number, run) {
                    self.enqueue(id);
                }
            }
        }
    }

    /// Appends the requests for the sequencer, in order.
    pub fn take_requests(&mut self, into: &mut Vec<FeedRequest>) {
        self.report_slow();
        into.append(&mut self.requests);
        self.batch += 1;
    }

    /// Serves subscribers: appends at most `most` deliveries to `out`. Returns whether work is left.
    ///
    /// Call it also when [`due_ns`](Self::due_ns) has passed.
    pub fn slice(
        &mut self,
        now: HubNow,
        most: usize,
        encoder: &mut impl Encoder,
        out: &mut Vec<Delivery>,
    ) -> bool {
        self.now = now;
        self.ended.clear();
        self.times();
        self.release_unused();
        let end = out.len() + most;
        // A quarter is reserved for channels, so that fast subscribers cannot delay all others.
        let line_end = if self.dirty.is_empty() { end } else { end - most / 4 };
        let mut visits = most * VISITS;
        while self.told(out) < line_end && visits > 0 {
            let Some((id, _)) = self.ready_queue.pop_front() else { break };
            visits -= 1;
            if let Some(subscriber) = self.subscribers.get_mut(id)
                && std::mem::take(&mut subscriber.in_ready_queue)
            {
                self.serve(id, encoder, out);
            }
        }
        while self.told(out) < end && visits > 0 {
            let Some(&at) = self.dirty.front() else { break };
            if self.pass(at, end, &mut visits, encoder, out) {
                self.dirty.pop_front();
            } else {
                self.dirty.rotate_left(1);
            }
        }
        self.tidy();
        self.lets_read();
        !self.ready_queue.is_empty() || !self.dirty.is_empty()
    }

    /// Returns the passes that ended in the last slice.
    pub fn ended(&self) -> &[Pass] {
        &self.ended
    }

    /// Returns when to call [`slice`](Self::slice) even without an input, on the monotonic clock in ns.
    pub fn due_ns(&self) -> Option<u64> {
        let idle = self.idle.front().map(|(at, _)| *at);
        let lingering = self.lingering.front().map(|(at, ..)| *at);
        match (idle, lingering) {
            (Some(idle), Some(lingering)) => Some(idle.min(lingering)),
            (idle, lingering) => idle.or(lingering),
        }
    }

    /// Returns the lag of the fan-out, counting writable subscribers only.
    pub fn lag(&self, now: HubNow) -> Lag {
        let line = self
            .ready_queue
            .front()
            .filter(|_| self.ready_queue.len() > self.untimed)
            .map(|(_, since)| *since);
        let pass = self.waits.front().map(|(_, since)| *since);
        let since = line.into_iter().chain(pass).min().unwrap_or(now.mono_ns);
        let behind_ns = now.mono_ns.saturating_sub(since);
        Lag { behind_ns, exceeded: behind_ns > self.rules.publish_lag_ns || self.pressed > 0 }
    }

    /// Applies new rules, to existing channels as well.
    pub fn reload(&mut self, rules: Arc<Rules>) {
        self.rules = rules;
        for at in 0..self.channels.places() {
            let Some(channel) = self.channels.get_mut(at) else { continue };
            let before = std::mem::replace(&mut channel.rules, *self.rules.of(&channel.name));
            let presence = channel.rules.presence;
            self.update_pressed(at);
            if before.presence != presence {
                self.announce_all(at, presence);
            }
        }
    }

    /// Returns the position of a subscriber. Resuming from it misses nothing and repeats nothing. An up-to-date subscriber is
    /// at the head. `None` if the subscriber does not exist, a channel is not open yet, or a gap is still to be delivered.
    pub fn position_of(&mut self, id: SubscriberId) -> Option<Positions> {
        self.offset_of(id).map(|offset| self.at(offset).into())
    }

    fn offset_of(&mut self, id: SubscriberId) -> Option<u64> {
        let SubscriberId(id) = id;
        let rest = self.subscribers.get(id)?.rest.as_ref();
        if rest.is_some_and(|rest| rest.since.is_some() || rest.gap.is_some()) || !self.all_open(id) {
            return None;
        }
        let behind = self.is_behind(id).0;
        let subscriber = &mut self.subscribers[id];
        if !behind {
            subscriber.position = subscriber.position.max(self.head);
        }
        Some(subscriber.position)
    }

    /// Returns whether the start of a subscriber is resolved. This requires that all its initial channels have opened.
    pub fn has_begun(&self, id: SubscriberId) -> bool {
        let SubscriberId(id) = id;
        let subscriber = self.subscribers.get(id);
        subscriber.is_some_and(|subscriber| subscriber.rest.as_ref().is_none_or(|rest| rest.since.is_none()))
    }

    /// Returns whether a subscriber is up to date. Otherwise a later slice serves it, or a channel is not open yet.
    pub fn waits(&self, id: SubscriberId) -> bool {
        let SubscriberId(id) = id;
        let Some(subscriber) = self.subscribers.get(id) else { return true };
        // A starting subscriber may still have a gap to receive.
        subscriber.state != SubscriberState::Starting && self.all_open(id) && !self.is_behind(id).0
    }

    /// Returns whether a subscriber depends on something outside this worker. Either its channels are not open although the
    /// sequencer has had [`TELLING_MS`] to open them, or it backfills.
    pub fn depends_on_others(&self, id: SubscriberId, now: HubNow) -> bool {
        if self.has_begun(id) {
            return self.backfills.has(id.0);
        }
        let rest = self.subscribers.get(id.0).and_then(|subscriber| subscriber.rest.as_ref());
        // If the clock was set back, the elapsed time is unknown.
        let waited_ms = rest.and_then(|rest| now.unix_ms.checked_sub(rest.asked_ms));
        waited_ms.is_none_or(|waited_ms| waited_ms >= TELLING_MS)
    }

    /// Returns the subscription with which an idle subscriber can resume at its position. `None` while a delivery is being
    /// sent, before the subscriber has started, or if it started at a key frame: a position does not describe that.
    pub fn parked(&mut self, id: SubscriberId) -> Option<Subscribe> {
        let position = self.position_of(id)?;
        let SubscriberId(id) = id;
        let subscriber = self.subscribers.get(id)?;
        if subscriber.state != SubscriberState::Ready || subscriber.entry != SubscriberEntry::Plain {
            return None;
        }
        Some(Subscribe {
            channels: self.channels_of(id).map(|(channel, _)| self.channels[channel].name.clone()).collect(),
            since: Since::After(position),
            form: subscriber.form,
            once: subscriber.once,
            key: subscriber.key,
            member: subscriber.rest.as_ref().and_then(|rest| rest.member.clone()),
        })
    }

    /// Returns the bytes of encodings held by connections or cached by channels.
    pub fn memory(&mut self) -> usize {
        self.encodings.charge()
    }

    /// Returns the number of subscribers.
    pub fn subscribers(&self) -> usize {
        self.subscribers.len()
    }

    /// Returns the number of channels that this worker wants, or wanted until recently.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns the index of the worker.
    pub fn core(&self) -> usize {
        self.core
    }

    fn at(&self, offset: u64) -> Position {
        Position { epoch: self.epoch, offset }
    }

    /// Joins two gaps that end at different offsets of this stream.
    fn farther(&self, gap: Gap, other: Gap) -> Gap {
        let farther = other.to.of(self.epoch) > gap.to.of(self.epoch);
        if farther { Gap { to: other.to, ..gap } } else { gap }
    }

    /// Returns the number of deliveries so far, to parts as well.
    fn told(&self, out: &[Delivery]) -> usize {
        out.len() + self.parts.len()
    }

    // ── Serving ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Visits nodes of a channel until the slice is full. Returns whether the channel has no pass left.
    fn pass(
        &mut self,
        at: u32,
        end: usize,
        visits: &mut usize,
        encoder: &mut impl Encoder,
        out: &mut Vec<Delivery>,
    ) -> bool {
        while self.told(out) < end && *visits > 0 {
            *visits -= 1;
            let channel = &mut self.channels[at];
            let Some(node) = channel.visit() else {
                if !channel.nodes.is_empty() {
                    self.ended.push(Pass { class: channel.rules.class, since_ns: channel.begun_ns() });
                }
                let repeats = channel.end_pass();
                self.update_pressed(at);
                if repeats {
                    continue;
                }
                return true;
            };
            let subscriber = &self.subscribers[node.subscriber];
            let due = match subscriber.state {
                SubscriberState::Busy | SubscriberState::Reading => false,
                SubscriberState::Starting => true,
                SubscriberState::Ready => subscriber.position < channel.edge,
            };
            if due {
                self.serve(node.subscriber, encoder, out);
            }
        }
        false
    }

    /// Serves a subscriber according to its state.
    fn serve(&mut self, id: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        match self.subscribers[id].state {
            SubscriberState::Busy => {}
            SubscriberState::Starting => self.start(id, encoder, out),
            SubscriberState::Reading => self.read(id, encoder, out),
            SubscriberState::Ready if self.subscribers[id].entry != SubscriberEntry::Plain => {
                self.serve_keyed(id, encoder, out);
            }
            SubscriberState::Ready if self.is_lost(id) => self.overrun(id, encoder, out),
            SubscriberState::Ready => self.deliver(id, None, encoder, out),
        }
    }

    /// Starts a subscriber once all its channels are open.
    fn start(&mut self, id: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        if !self.all_open(id) || self.awaits_newest(id) {
            return;
        }
        self.resolve_start(id);
        let mut gap = None;
        let subscriber = &mut self.subscribers[id];
        if let Some(rest) = &mut subscriber.rest {
            gap = rest.gap.take();
            for link in &mut rest.links {
                link.floor = self.channels[link.channel].floor(link.floor);
            }
            // The channels may have changed since the subscribe; only the current ones count.
            if let [only] = rest.links[..] {
                subscriber.position = subscriber.position.max(only.floor);
            }
        }
        // A subscriber that starts at a key frame needs no message before it.
        let plain = self.subscribers[id].entry == SubscriberEntry::Plain;
        let reads = plain && gap.is_none() && self.may_recall(id);
        if plain && !reads && self.is_lost(id) {
            // The subscriber was queued for longer than its first messages were kept.
            let lost = self.lose(id).gap;
            gap = match (gap, lost) {
                (Some(gap), Some(lost)) => Some(self.farther(gap, lost)),
                (gap, lost) => gap.or(lost),
            };
        }
        self.compact(id);
        if reads {
            self.backfills.begin(id, GapReason::Away);
        }
        let subscriber = &mut self.subscribers[id];
        let (key, offset, part) = (subscriber.key, subscriber.position, subscriber.part);
        if subscriber.once == Once::Never {
            subscriber.state = SubscriberState::Busy;
            if part {
                return self.parts.push(PartDelivery {
                    id: SubscriberId(id),
                    key,
                    part: PartEvent::Started(gap),
                });
            }
            let what = DeliveryContent::Started { position: self.at(offset).into(), gap: gap.map(Box::new) };
            out.push(Delivery { subscriber: SubscriberId(id), key, what });
            return;
        }
        if reads {
            subscriber.state = SubscriberState::Reading;
            return self.read(id, encoder, out);
        }
        self.answer(id, gap, encoder, out);
    }

    /// Responds to a poll, or reports that it waits.
    fn answer(&mut self, id: u32, gap: Option<Gap>, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let subscriber = &mut self.subscribers[id];
        let (key, part) = (subscriber.key, subscriber.part);
        subscriber.state = SubscriberState::Ready;
        let before = self.told(out);
        self.deliver(id, gap, encoder, out);
        if self.told(out) == before && part {
            self.parts.push(PartDelivery { id: SubscriberId(id), key, part: PartEvent::Waiting });
        } else if self.told(out) == before {
            out.push(Delivery { subscriber: SubscriberId(id), key, what: DeliveryContent::Waiting });
        }
    }

    /// Handles a writable subscriber that a ring has passed, by the policy of the channel.
    fn overrun(&mut self, id: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        // A subscriber that this hub served too late backfills the missed messages.
        if !self.subscribers[id].late && self.may_recall(id) {
            self.backfills.begin(id, GapReason::Late);
            self.subscribers[id].state = SubscriberState::Reading;
            return self.read(id, encoder, out);
        }
        let Loss { gap, ends, lost } = self.lose(id);
        self.count_slow(id, &lost, ends);
        let Subscriber { key, once, part, .. } = self.subscribers[id];
        if ends {
            if part {
                self.parts.push(PartDelivery { id: SubscriberId(id), key, part: PartEvent::Overrun });
            } else {
                out.push(Delivery { subscriber: SubscriberId(id), key, what: DeliveryContent::Overrun });
            }
            self.remove(id);
            return;
        }
        if gap.is_none() || once != Once::Never {
            self.deliver(id, gap, encoder, out);
            return;
        }
        // The gap is delivered alone, so that the messages after it share their encoding.
        self.scratch.messages.clear();
        self.deliver_alone(id, gap, 0, encoder, out);
    }

    /// Moves a subscriber past lost messages.
    fn lose(&mut self, id: u32) -> Loss {
        let subscriber = &mut self.subscribers[id];
        let from = subscriber.position;
        // Only a subscriber that was itself too slow is disconnected. One that this hub served too late gets a gap.
        let may_end = std::mem::take(&mut subscriber.late) && subscriber.once == Once::Never;
        let mut to = None;
        let mut ends = false;
        let mut lost = Vec::new();
        let mut moved = |channel: &Channel| match channel.rules.policy {
            Overrun::Latest => channel.before_newest(),
            policy => {
                ends |= may_end && policy == Overrun::Disconnect;
                to = to.max(Some(channel.lost_to));
                channel.lost_to
            }
        };
        match &mut subscriber.rest {
            None => {
                subscriber.position = moved(&self.channels[subscriber.channel]);
                lost.push(subscriber.channel);
            }
            Some(rest) => {
                for link in &mut rest.links {
                    let channel = &self.channels[link.channel];
                    if channel.has_lost(from, link.floor) {
                        link.floor = moved(channel);
                        lost.push(link.channel);
                    }
                }
                if let [only] = rest.links[..] {
                    subscriber.position = from.max(only.floor);
                }
            }
        }
        let (from, to) = (self.at(from), to.map(|to| self.at(to)));
        let gap = to.map(|to| Gap { from: from.into(), to: to.into(), reason: GapReason::Late });
        Loss { gap, ends, lost }
    }

    /// Delivers all unseen messages to a subscriber, as far as one run reaches. Does nothing without messages and gap.
    fn deliver(&mut self, id: u32, gap: Option<Gap>, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let Subscriber { form, once, part, .. } = self.subscribers[id];
        let oldest = once == Once::Oldest;
        let only_one = oldest || self.is_crowded();
        match (self.unread(id), gap) {
            (Unread::None, None) => {}
            (Unread::In { channel, after }, None) if !part => {
                let (to, bytes) = self.shared::<false>(channel, after, form, oldest, encoder);
                self.subscribers[id].position = to;
                self.deliver_bytes(id, bytes, out);
            }
            (news, gap) => {
                let more = match news {
                    Unread::None => {
                        self.scratch.messages.clear();
                        0
                    }
                    Unread::In { channel, after } => {
                        collect(&self.channels[channel], after, only_one, &mut self.scratch.messages)
                    }
                    Unread::InSeveral => self.merge(id, only_one),
                };
                self.deliver_alone(id, gap, more, encoder, out);
            }
        }
    }

    /// Delivers the collected messages in an encoding of their own.
    fn deliver_alone(
        &mut self,
        id: u32,
        gap: Option<Gap>,
        more: usize,
        encoder: &mut impl Encoder,
        out: &mut Vec<Delivery>,
    ) {
        let Subscriber { position, form, part, .. } = self.subscribers[id];
        let to = self.scratch.messages.last().map_or(position, |last| last.offset);
        self.subscribers[id].position = to;
        if part {
            return self.deliver_part(id, position, gap, more);
        }
        let messages = &self.scratch.messages;
        let run = Run { messages, position: self.at(to), beside: Beside::default(), gap: gap.as_ref(), more };
        let bytes = encode(encoder, form, &run, &mut self.scratch.bytes, &mut self.encodings);
        self.deliver_bytes(id, bytes, out);
    }

    /// Delivers bytes to a subscriber.
    fn deliver_bytes(&mut self, id: u32, bytes: Arc<[u8]>, out: &mut Vec<Delivery>) {
        let subscriber = &mut self.subscribers[id];
        let key = subscriber.key;
        let what = if subscriber.once == Once::Never {
            subscriber.state = SubscriberState::Busy;
            DeliveryContent::Bytes(bytes)
        } else {
            self.remove(id);
            DeliveryContent::Last(bytes)
        };
        out.push(Delivery { subscriber: SubscriberId(id), key, what });
    }

    /// Returns the run of one channel after `after`, encoded for all subscribers there: its last offset, and its bytes. With
    /// `KEYED` no break divides the run.
    fn shared<const KEYED: bool>(
        &mut self,
        at: u32,
        after: u64,
        form: Form,
        oldest: bool,
        encoder: &mut impl Encoder,
    ) -> (u64, Arc<[u8]>) {
        let only_one = oldest || self.is_crowded();
        let channel = &mut self.channels[at];
        let cached =
            if KEYED { channel.encoded_unbroken(form, after) } else { channel.encoded(form, oldest, after) };
        if let Some((to, bytes)) = cached {
            return (to, Arc::clone(bytes));
        }
        let messages = &mut self.scratch.messages;
        let more = if KEYED {
            keyed::collect(channel, after, only_one, messages)
        } else {
            collect(channel, after, only_one, messages)
        };
        let to = messages.last().map_or(after, |last| last.offset);
        let position = Position { epoch: self.epoch, offset: to };
        let run = Run { messages, position, beside: Beside::default(), gap: None, more };
        let bytes = encode(encoder, form, &run, &mut self.scratch.bytes, &mut self.encodings);
        let index = channel.index_after(after);
        let before = index.checked_sub(1).and_then(|before| channel.message(before));
        let encoded = Encoded {
            form,
            oldest,
            after: before.map_or(channel.lost_to, |message| message.offset),
            first: channel.message(index).map_or(0, |message| message.offset),
            to,
            edge: channel.edge,
            full: more > 0,
            breaks: breaks_within(messages),
            bytes: Arc::clone(&bytes),
        };
        if channel.keep(encoded) {
            self.warm.push(at);
        }
        (to, bytes)
    }

    /// Collects messages of several channels in offset order. Returns the number of messages left.
    fn merge(&mut self, id: u32, only_one: bool) -> usize {
        let DeliveryScratch { messages, merge, .. } = &mut self.scratch;
        merge.clear();
        let subscriber = &self.subscribers[id];
        let mut kept = 0;
        for link in subscriber.rest.iter().flat_map(|rest| &rest.links) {
            let channel = &self.channels[link.channel];
            let index = channel.index_after(subscriber.position.max(channel.floor(link.floor)));
            if let Some(message) = channel.message(index) {
                kept += channel.kept() - index;
                merge.push(Reverse((message.offset, link.channel, index)));
            }
        }
        let mut run = Collector::new(messages, only_one);
        while let Some(Reverse((_, at, index))) = merge.pop() {
            let channel = &self.channels[at];
            if !channel.message(index).is_some_and(|message| run.take(message)) {
                break;
            }
            if let Some(message) = channel.message(index + 1) {
                merge.push(Reverse((message.offset, at, index + 1)));
            }
        }
        kept - messages.len()
    }

    /// Returns whether stalled subscribers hold too many bytes, so that runs shrink to one message.
    fn is_crowded(&self) -> bool {
        self.encodings.bytes() as u64 > self.rules.memory_bytes / ENCODED_SHARE
    }

    /// Returns where a subscriber's unseen messages are.
    fn unread(&self, id: u32) -> Unread {
        let subscriber = &self.subscribers[id];
        let Some(rest) = &subscriber.rest else {
            let (channel, after) = (subscriber.channel, subscriber.position);
            let any = self.channels[channel].has_after(after);
            return if any { Unread::In { channel, after } } else { Unread::None };
        };
        let mut news = Unread::None;
        for link in &rest.links {
            let channel = &self.channels[link.channel];
            let after = subscriber.position.max(channel.floor(link.floor));
            if channel.has_after(after) {
                match news {
                    Unread::None => news = Unread::In { channel: link.channel, after },
                    Unread::In { .. } | Unread::InSeveral => return Unread::InSeveral,
                }
            }
        }
        news
    }

    /// Returns whether a subscriber is behind in any channel, and whether a ring has passed it.
    fn is_behind(&self, id: u32) -> (bool, bool) {
        let subscriber = &self.subscribers[id];
        let mut both = (false, false);
        for (channel, floor) in self.channels_of(id) {
            let channel = &self.channels[channel];
            both.0 |= channel.edge > subscriber.position.max(channel.floor(floor));
            both.1 |= channel.has_lost(subscriber.position, floor);
        }
        both
    }

    fn is_lost(&self, id: u32) -> bool {
        let subscriber = &self.subscribers[id];
        match &subscriber.rest {
            None => self.channels[subscriber.channel].lost_to > subscriber.position,
            Some(rest) => rest
                .links
                .iter()
                .any(|link| self.channels[link.channel].has_lost(subscriber.position, link.floor)),
        }
    }

    // ── Start ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Resolves the pending start of a subscriber, if any.
    fn resolve_start(&mut self, id: u32) {
        if let Some(since) = self.subscribers[id].rest.as_mut().and_then(|rest| rest.since.take()) {
            self.begins(id, since);
        }
    }

    /// Returns whether a subscriber would start ahead of all messages fed here.
    fn is_ahead(&self, since: &Since) -> bool {
        matches!(since, Since::After(from) if from.of(self.epoch).is_some_and(|offset| offset > self.head))
    }

    /// Returns whether a subscriber still waits for the newest offset. The first call requests it.
    fn awaits_newest(&mut self, id: u32) -> bool {
        let since = self.subscribers[id].rest.as_ref().and_then(|rest| rest.since.as_ref());
        if !since.is_some_and(|since| self.is_ahead(since)) {
            return false;
        }
        if let Some(ahead) = self.ahead.get(&id) {
            return ahead.newest.is_none();
        }
        self.ahead_asked += 1;
        let number = self.ahead_asked;
        self.ahead.insert(id, Ahead { number, newest: None });
        self.requests.push(FeedRequest::Newest { reader: SubscriberId(id), number });
        true
    }

    /// Resolves the start of a subscriber whose channels are all open here.
    fn begins(&mut self, id: u32, since: Since) {
        let newest = self.ahead.remove(&id).and_then(|ahead| ahead.newest);
        let subscriber = &mut self.subscribers[id];
        let mut single = [ChannelLink { channel: subscriber.channel, place: 0, announced: false, floor: 0 }];
        let (links, asked_ms) = match &mut subscriber.rest {
            None => (&mut single[..], self.now.unix_ms),
            Some(rest) => {
                rest.since = None;
                (&mut rest.links[..], rest.asked_ms)
            }
        };
        let core = start::StartState {
            epoch: self.epoch,
            head: self.head,
            now: self.now,
            channels: &self.channels,
            recalls: self.rules.recalls,
            newest,
        };
        let (position, gap) = core.start(since, subscriber.position, asked_ms, links);
        subscriber.position = position;
        if gap.is_some() {
            self.spread(id);
            if let Some(rest) = &mut self.subscribers[id].rest {
                rest.gap = gap;
            }
        }
    }

    /// Returns whether all channels of a subscriber are open here.
    fn all_open(&self, id: u32) -> bool {
        self.channels_of(id).all(|(channel, _)| self.channels[channel].open)
    }

    /// Returns the channels of a subscriber, each with its floor.
    fn channels_of(&self, id: u32) -> impl Iterator<Item = (u32, u64)> {
        let subscriber = &self.subscribers[id];
        let only = if subscriber.rest.is_none() { Some((subscriber.channel, 0)) } else { None };
        let links = subscriber.rest.iter().flat_map(|rest| &rest.links);
        only.into_iter().chain(links.map(|link| (link.channel, link.floor)))
    }

    /// Gives a subscriber a rest, if it has none.
    fn spread(&mut self, id: u32) {
        let subscriber = &mut self.subscribers[id];
        if subscriber.rest.is_none() {
            let (channel, place) = (subscriber.channel, subscriber.place);
            let links = vec![ChannelLink { channel, place, announced: false, floor: 0 }];
            subscriber.rest =
                Some(Box::new(SubscriberExtra { links, member: None, since: None, asked_ms: 0, gap: None }));
        }
    }

    /// Removes the rest of a subscriber if the other fields suffice.
    fn compact(&mut self, id: u32) {
        let subscriber = &mut self.subscribers[id];
        let Some(rest) = &subscriber.rest else { return };
        let plain = rest.member.is_none() && rest.since.is_none() && rest.gap.is_none();
        if let [link] = rest.links[..]
            && plain
            && link.floor <= subscriber.position
        {
            (subscriber.channel, subscriber.place, subscriber.rest) = (link.channel, link.place, None);
        }
    }

    // ── Join and leave ──────────────────────────────────────────────────────────────────────────────────────────

    /// Checks the limits on channels. At the limit of the worker, channels without subscribers are released first.
    fn make_room(&mut self, added: &[Name], there: usize) -> Result<(), SubscribeError> {
        let most = self.rules.channels_per_stream;
        if added.len() + there > most {
            return Err(SubscribeError::TooManyOnStream { most });
        }
        let most = self.rules.channels;
        loop {
            let unknown = self.unknown(added);
            if unknown == 0 || self.channels.len() + unknown <= most {
                return Ok(());
            }
            if unknown > most || !self.release_oldest() {
                return Err(SubscribeError::TooManyChannels { most });
            }
        }
    }

    /// Returns the number of these channels that this worker does not have. Subscribing to them opens them.
    pub fn unknown(&self, channels: &[Name]) -> usize {
        channels.iter().filter(|name| !self.names.contains_key(*name)).count()
    }

    /// Releases the channel that has had no subscriber for longest. Returns whether there was one.
    fn release_oldest(&mut self) -> bool {
        self.times();
        for _ in 0..self.idle.len().min(RELEASE_LOOKS) {
            let Some((due_ns, at)) = self.idle.pop_front() else { return false };
            let channel = &mut self.channels[at];
            if !channel.nodes.is_empty() {
                channel.idle = false;
                continue;
            }
            // The channel was used after it was queued.
            let used = channel.left_ns.saturating_add(UNWANTED_NS) > due_ns;
            if used || !channel.may_go() {
                self.idle.push_back((self.now.mono_ns.saturating_add(UNWANTED_NS), at));
                continue;
            }
            self.release(at);
            return true;
        }
        false
    }

    /// Returns the replica of a channel; requests the channel if there is none.
    fn wanted(&mut self, name: &Name) -> u32 {
        if let Some(&at) = self.names.get(name) {
            return at;
        }
        let at = self.channels.insert(Channel::new(name.clone(), *self.rules.of(name)));
        self.names.insert(name.clone(), at);
        self.requests.push(FeedRequest::Want { channel: name.clone() });
        at
    }

    /// Adds a channel to a subscriber with a rest.
    fn link(&mut self, id: u32, name: &Name, floor: u64) {
        let channel = self.wanted(name);
        let floor = if self.channels[channel].open { floor } else { ChannelLink::PENDING };
        let link = self.subscribers[id].rest.as_ref().map_or(0, |rest| rest.links.len());
        let place = self.join(channel, ChannelEntry { subscriber: id, link: link as u32 });
        if let Some(rest) = &mut self.subscribers[id].rest {
            rest.links.push(ChannelLink { channel, place, announced: false, floor });
            if self.channels[channel].rules.presence {
                self.announce(id, link, true);
            }
        }
    }

    /// Removes a channel from a subscriber with a rest.
    fn unlink(&mut self, id: u32, channel: u32) {
        let Some(rest) = &self.subscribers[id].rest else { return };
        let Some(at) = rest.links.iter().rposition(|link| link.channel == channel) else { return };
        self.announce(id, at, false);
        let Some(rest) = &mut self.subscribers[id].rest else { return };
        let gone = rest.links.swap_remove(at);
        if let Some(moved) = rest.links.get(at) {
            self.channels[moved.channel].nodes[moved.place as usize].link = at as u32;
        }
        self.part(gone.channel, gone.place);
    }

    fn remove(&mut self, id: u32) {
        self.backfills.end(id);
        self.ahead.remove(&id);
        while let Some(rest) = &self.subscribers[id].rest {
            match rest.links.last().map(|link| link.channel) {
                Some(channel) => self.unlink(id, channel),
                None => break,
            }
        }
        let Some(subscriber) = self.subscribers.remove(id) else { return };
        self.parts_count -= usize::from(subscriber.part);
        if subscriber.rest.is_none() {
            self.part(subscriber.channel, subscriber.place);
        }
    }

    fn join(&mut self, channel: u32, node: ChannelEntry) -> u32 {
        self.count(channel, 1, 0);
        self.channels[channel].joins(node)
    }

    fn part(&mut self, at: u32, place: u32) {
        self.count(at, 0, 1);
        let subscribers = &mut self.subscribers;
        let channel = &mut self.channels[at];
        channel.leaves(place, |node, to| subscribers[node.subscriber].moved(node.link, to));
        if channel.nodes.is_empty() {
            self.emptied.push(at);
        }
    }

    /// Adds to the pending count request of a channel, or makes a new one.
    fn count(&mut self, at: u32, joins: u32, leaves: u32) {
        let channel = &mut self.channels[at];
        let (batch, index) = channel.counted;
        if batch == self.batch
            && let Some(FeedRequest::Count { joined, left, .. }) = self.requests.get_mut(index)
        {
            *joined += joins;
            *left += leaves;
            return;
        }
        channel.counted = (self.batch, self.requests.len());
        let channel = channel.name.clone();
        self.requests.push(FeedRequest::Count { channel, joined: joins, left: leaves });
    }

    fn enqueue(&mut self, id: u32) {
        let subscriber = &mut self.subscribers[id];
        if !subscriber.in_ready_queue {
            subscriber.in_ready_queue = true;
            self.ready_queue.push_back((id, 0));
            self.untimed += 1;
        }
    }

    /// Records a change of a channel. `came` are the counts before it.
    fn touch(&mut self, at: u32, came: (u64, u64)) {
        let mono_ns = self.now.mono_ns;
        let channel = &mut self.channels[at];
        if channel.nodes.is_empty() && !channel.dirty {
            return;
        }
        let (begins, waits) = channel.touch(mono_ns, came);
        if begins {
            self.dirty.push_back(at);
        }
        if waits {
            self.waits.push_back((at, mono_ns));
        }
        self.update_pressed(at);
    }

    /// Updates the number of channels whose pass lags by half a ring.
    fn update_pressed(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        let pressed = channel.is_pressed();
        if pressed != channel.pressed {
            channel.pressed = pressed;
            self.pressed = if pressed { self.pressed + 1 } else { self.pressed - 1 };
        }
    }

    /// Announces the join or the leave of a member in one of its channels.
    fn announce(&mut self, id: u32, link: usize, here: bool) {
        let Subscriber { rest: Some(rest), once, .. } = &mut self.subscribers[id] else { return };
        let (Some(link), Some(member)) = (rest.links.get_mut(link), &rest.member) else { return };
        if link.announced == here {
            return;
        }
        link.announced = here;
        let (channel, member) = (self.channels[link.channel].name.clone(), member.clone());
        if here {
            return self.requests.push(FeedRequest::Joined { channel, member });
        }
        let member = member.name;
        if *once == Once::Never {
            self.requests.push(FeedRequest::Left { channel, member });
        } else {
            // A polling member has not left: its next poll usually arrives before the linger time ends.
            self.parting.push((channel, member));
        }
    }

    fn announce_all(&mut self, at: u32, here: bool) {
        for index in 0..self.channels[at].nodes.len() {
            let ChannelEntry { subscriber, link } = self.channels[at].nodes[index];
            self.announce(subscriber, link as usize, here);
        }
    }

    // ── Housekeeping ────────────────────────────────────────────────────────────────────────────────────────────

    /// Sets the times of events since the last slice. `sent` and `leave` do not take the time.
    fn times(&mut self) {
        let mono_ns = self.now.mono_ns;
        for (_, since) in self.ready_queue.iter_mut().rev().take(std::mem::take(&mut self.untimed)) {
            *since = mono_ns;
        }
        for (channel, member) in self.parting.drain(..) {
            if let Some(at) = self.names.get(&channel) {
                self.channels[*at].lingering += 1;
            }
            self.lingering.push_back((mono_ns.saturating_add(LINGER_NS), channel, member));
        }
        for at in self.emptied.drain(..) {
            let Some(channel) = self.channels.get_mut(at) else { continue };
            channel.left_ns = mono_ns;
            if !std::mem::replace(&mut channel.idle, true) {
                self.idle.push_back((mono_ns.saturating_add(UNWANTED_NS), at));
            }
        }
    }

    /// Announces the leave of polling members that did not return, and releases channels without subscribers.
    fn release_unused(&mut self) {
        let mono_ns = self.now.mono_ns;
        while self.lingering.front().is_some_and(|(at, ..)| *at <= mono_ns) {
            if let Some((_, channel, member)) = self.lingering.pop_front() {
                if let Some(at) = self.names.get(&channel) {
                    self.channels[*at].lingering -= 1;
                }
                self.requests.push(FeedRequest::Left { channel, member });
            }
        }
        while self.idle.front().is_some_and(|(at, _)| *at <= mono_ns) {
            let Some((_, at)) = self.idle.pop_front() else { return };
            self.check_idle(at);
        }
    }

    fn check_idle(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        channel.idle = false;
        if !channel.nodes.is_empty() {
            return;
        }
        let recent = channel.left_ns.saturating_add(UNWANTED_NS) > self.now.mono_ns;
        if recent || !channel.may_go() {
            channel.idle = true;
            self.idle.push_back((self.now.mono_ns.saturating_add(UNWANTED_NS), at));
            return;
        }
        self.release(at);
    }

    /// Releases a channel, and reports that to the sequencer.
    fn release(&mut self, at: u32) {
        if let Some(channel) = self.channels.remove(at) {
            self.names.remove(&channel.name);
            self.requests.push(FeedRequest::Unwant { channel: channel.name });
        }
    }

    /// Drops memory that only finished work needed.
    fn tidy(&mut self) {
        while let Some((at, since)) = self.waits.front() {
            if self.channels.get(*at).is_some_and(|channel| channel.waits_since(*since)) {
                break;
            }
            self.waits.pop_front();
        }
        if self.ready_queue.is_empty() && !self.warm.is_empty() {
            let channels = &mut self.channels;
            self.warm.retain(|at| {
                let Some(channel) = channels.get_mut(*at) else { return false };
                if !channel.dirty {
                    channel.drop_encoded();
                }
                channel.dirty
            });
        }
        self.scratch.messages.clear();
        self.encodings.sweep(LOOKS);
    }
}

/// Encodings checked in each slice for those no longer in use.
const LOOKS: usize = 16;

/// Where a subscriber's unseen messages are.
#[derive(Clone, Copy, Debug)]
enum Unread {
    None,
    /// In one channel, after this offset.
    In {
        channel: u32,
        after: u64,
    },
    InSeveral,
}

/// The consequence for a subscriber that a ring has passed.
#[derive(Debug)]
struct Loss {
    /// The gap to deliver, if any.
    gap: Option<Gap>,
    /// Whether the subscriber is disconnected.
    ends: bool,
    /// The channels with lost messages.
    lost: Vec<u32>,
}

/// Collects the messages of a channel after an offset. Returns the number of messages left.
fn collect(channel: &Channel, after: u64, only_one: bool, into: &mut Vec<Arc<Message>>) -> usize {
    let mut run = Collector::new(into, only_one);
    let mut index = channel.index_after(after);
    while channel.message(index).is_some_and(|message| run.take(message)) {
        index += 1;
    }
    channel.kept() - index
}

fn encode(
    encoder: &mut impl Encoder,
    form: Form,
    run: &Run<'_>,
    scratch: &mut Vec<u8>,
    encodings: &mut Encodings,
) -> Arc<[u8]> {
    scratch.clear();
    encoder.encode(form, run, scratch);
    let bytes: Arc<[u8]> = scratch.as_slice().into();
    encodings.hold(&bytes);
    bytes
}

/// Returns the names without duplicates, in their order. Stops after `most + 1` names, which are too many. For up to some
/// hundred names, comparing all pairs is cheaper than a hash table.
pub(crate) fn without_repeats(names: &[Name], most: usize) -> Vec<Name> {
    let mut once: Vec<Name> = Vec::with_capacity(names.len().min(most + 1));
    for name in names {
        if once.len() <= most && !once.contains(name) {
            once.push(name.clone());
        }
    }
    once
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyOnStream { most } => {
                write!(f, "too many channels in one stream, at most {most} are allowed: open another stream")
            }
            Self::TooManyChannels { most } => {
                write!(f, "the server has reached its limit of {most} channels: retry later")
            }
        }
    }
}

impl std::error::Error for SubscribeError {}

#[cfg(test)]
mod tests;
