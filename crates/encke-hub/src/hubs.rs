//! The hubs of one worker, one per stream, and subscribers with channels in several streams.
//!
//! ```text
//!  subscribe ─► channels of one stream ───────────────────────────► its hub, as if there were no other
//!           └─► of several streams ─► Span ─► a strand in each hub ─► runs, one strand after the other ─► Bytes
//!                                      └─ the positions of all strands ─► the id of each message ─────────┘
//! ```
//! A [`Hub`] knows only the order of its stream. **A span** is one subscriber for the server, and a part in each of several
//! hubs. Each part holds at most one run until the connection can send it. The order between streams is that of sending. The id
//! of each message has the positions of all strands at that moment. So a client that resumes from it misses nothing and
//! receives nothing twice. The encodings of a span are not shared.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::HubNow;
use crate::encoding::{Encoder, Form, Gap, GapReason, Run};
use crate::hub::{
    Delivery, DeliveryContent, Hub, Lag, PartDelivery, PartEvent, PartRun, Pass, Subscribe, SubscribeError,
    without_repeats,
};
use crate::name::Name;
use crate::position::{Beside, Epoch, Position, Positions, Since};
use crate::rules::Rules;
use crate::slab::HubSlab;
use crate::streams::Streams;
use crate::subscriber::{Member, Once, SubscriberId};
use crate::values::{Feed, FeedRequest};

mod readers;

/// The hubs of one worker for all streams. With one stream they are its [`Hub`], at no extra cost.
///
/// The interface is that of a hub, but feeds and requests carry the index of their stream.
#[derive(Debug)]
pub struct Hubs {
    streams: Arc<Streams>,
    /// At least one, in stream order.
    hubs: Vec<Hub>,
    most: usize,
    publish_lag_ns: u64,
    spans: HubSlab<MultiSubscriber>,
    /// Spans that may have something to receive, and when each was queued. The next slice sets the time.
    ready_queue: VecDeque<(u32, u64)>,
    /// The stream that is served first.
    turn: usize,
}

/// A subscriber with channels in several streams.
#[derive(Debug)]
struct MultiSubscriber {
    /// The server's identifier of the subscriber.
    key: u64,
    form: Form,
    once: Once,
    member: Option<Member>,
    /// The id that the subscriber resumes from.
    asked: Option<Positions>,
    /// In stream order.
    strands: Vec<Strand>,
    /// Whether `Started` or `Waiting` was delivered.
    started: bool,
    /// Whether the connection is still sending the last delivery.
    busy: bool,
    /// A strand was too slow, so the span ends.
    overrun: bool,
    in_ready_queue: bool,
    /// The stream of the last delivery.
    last: usize,
}

/// The part of a span in one stream.
#[derive(Debug)]
struct Strand {
    stream: usize,
    id: SubscriberId,
    /// Whether the part is in its hub. A polling part is removed with its run.
    here: bool,
    /// Whether the hub has reported the start.
    begun: bool,
    /// Whether the hub waits for the delivery in flight.
    flying: bool,
    /// The gap before the start of the span, or before a poll's response.
    gap: Option<Gap>,
    /// A run from the hub that was not delivered yet.
    pending_run: Option<PartRun>,
}

impl Strand {
    fn new(stream: usize, id: SubscriberId) -> Self {
        Self { stream, id, here: true, begun: false, flying: false, gap: None, pending_run: None }
    }
}

/// The kind of a subscriber: one of a hub, or a span.
#[derive(Clone, Copy)]
enum SubscriberKind {
    Hub(usize, SubscriberId),
    Span(u32),
}

/// The upper bits of an id with several streams: the stream of the hub, or this value for a span. This leaves 2^28 subscribers
/// per stream on a worker, which take 12 GB.
const SPAN: u32 = 0xF;
const INDEX_BITS: u32 = 28;

/// Marks a queue entry that has no time yet.
const UNTIMED: u64 = u64::MAX;

impl Hubs {
    /// Creates the hubs of worker `core`, without subscribers: one for each of `streams`, with the given epochs.
    ///
    /// # Panics
    /// The number of epochs differs from that of the streams.
    pub fn new(core: usize, epochs: &[Epoch], streams: Arc<Streams>, rules: &Arc<Rules>) -> Self {
        assert_eq!(epochs.len(), streams.count(), "each stream has an epoch");
        let hub = |(stream, epoch): (usize, &Epoch)| Hub::new(core, *epoch, rules.share(&streams, stream));
        Self {
            hubs: epochs.iter().enumerate().map(hub).collect(),
            streams,
            most: rules.channels_per_stream,
            publish_lag_ns: rules.publish_lag_ns,
            spans: HubSlab::new(),
            ready_queue: VecDeque::new(),
            turn: 0,
        }
    }

    /// See [`Hub::subscribe`].
    ///
    /// # Errors
    /// The subscriber, or this worker, would have too many channels.
    pub fn subscribe(&mut self, now: HubNow, subscribe: Subscribe) -> Result<SubscriberId, SubscribeError> {
        let stream = match &subscribe.channels[..] {
            _ if self.hubs.len() == 1 => Some(0),
            [] => Some(0),
            [first, rest @ ..] => {
                let stream = self.streams.of(first);
                rest.iter().all(|name| self.streams.of(name) == stream).then_some(stream)
            }
        };
        match stream {
            Some(stream) => {
                let id = self.hubs[stream].subscribe(now, subscribe)?;
                Ok(self.named(SubscriberKind::Hub(stream, id)))
            }
            None => self.subscribe_span(now, subscribe),
        }
    }

    /// See [`Hub::leave`].
    pub fn leave(&mut self, id: SubscriberId) {
        match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => self.hubs[stream].leave(id),
            SubscriberKind::Span(at) => self.remove(at),
        }
    }

    /// See [`Hub::change`]. Returns the id of the subscriber, which changes when a subscriber of one stream gets channels of
    /// another.
    ///
    /// # Errors
    /// The subscriber, or this worker, would have too many channels; then nothing has changed.
    pub fn change(
        &mut self,
        now: HubNow,
        id: SubscriberId,
        add: &[Name],
        remove: &[Name],
    ) -> Result<SubscriberId, SubscribeError> {
        match self.kind_of(id) {
            SubscriberKind::Hub(stream, inner) => {
                let same = self.hubs.len() == 1 || add.iter().all(|name| self.streams.of(name) == stream);
                if same || !self.hubs[stream].stays(inner) {
                    self.hubs[stream].change(now, inner, add, remove)?;
                    return Ok(id);
                }
                let names = self.hubs[stream].names_of(inner);
                self.check(&names, add, remove)?;
                let at = self.becomes_span(stream, inner);
                self.change_span(now, at, add, remove)?;
                Ok(self.named(SubscriberKind::Span(at)))
            }
            SubscriberKind::Span(at) => {
                let Some(span) = self.spans.get(at).filter(|span| !span.overrun) else { return Ok(id) };
                let strands = span.strands.iter();
                let names: Vec<Name> =
                    strands.flat_map(|strand| self.hubs[strand.stream].names_of(strand.id)).collect();
                self.check(&names, add, remove)?;
                self.change_span(now, at, add, remove)?;
                Ok(id)
            }
        }
    }

    /// See [`Hub::sent`].
    pub fn sent(&mut self, id: SubscriberId) {
        let at = match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => return self.hubs[stream].sent(id),
            SubscriberKind::Span(at) => at,
        };
        let Some(span) = self.spans.get_mut(at) else { return };
        span.busy = false;
        for strand in &mut span.strands {
            if std::mem::take(&mut strand.flying) {
                self.hubs[strand.stream].sent(strand.id);
            }
        }
        if span.overrun || span.strands.iter().any(|strand| strand.pending_run.is_some()) {
            self.enqueue(at);
        }
    }

    /// See [`Hub::feed`].
    pub fn feed(&mut self, now: HubNow, stream: usize, feed: Feed) {
        if let Some(hub) = self.hubs.get_mut(stream) {
            hub.feed(now, feed);
        }
    }

    /// See [`Hub::take_requests`].
    pub fn take_requests(&mut self, stream: usize, into: &mut Vec<FeedRequest>) {
        if let Some(hub) = self.hubs.get_mut(stream) {
            hub.take_requests(into);
        }
    }

    /// See [`Hub::slice`].
    pub fn slice(
        &mut self,
        now: HubNow,
        most: usize,
        encoder: &mut impl Encoder,
        out: &mut Vec<Delivery>,
    ) -> bool {
        if let [only] = &mut self.hubs[..] {
            return only.slice(now, most, encoder, out);
        }
        for (_, since_ns) in
            self.ready_queue.iter_mut().rev().take_while(|(_, since_ns)| *since_ns == UNTIMED)
        {
            *since_ns = now.mono_ns;
        }
        let end = out.len() + most;
        // A quarter is reserved for spans.
        self.serve_queue(end - most + most / 4, encoder, out);
        let count = self.hubs.len();
        let mut more = false;
        for turn in 0..count {
            let stream = (self.turn + turn) % count;
            let share = end.saturating_sub(out.len()) / (count - turn);
            let before = out.len();
            more |= self.hubs[stream].slice(now, share, encoder, out);
            for delivery in &mut out[before..] {
                delivery.subscriber = self.named(SubscriberKind::Hub(stream, delivery.subscriber));
            }
            for tidings in self.hubs[stream].take_parts() {
                self.hears(stream, tidings);
            }
        }
        self.turn = (self.turn + 1) % count;
        self.serve_queue(end, encoder, out);
        more || !self.ready_queue.is_empty()
    }

    fn serve_queue(&mut self, end: usize, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        while out.len() < end {
            let Some((at, _)) = self.ready_queue.pop_front() else { return };
            if let Some(span) = self.spans.get_mut(at)
                && std::mem::take(&mut span.in_ready_queue)
            {
                self.serve(at, encoder, out);
            }
        }
    }

    /// See [`Hub::ended`].
    pub fn ended(&self) -> impl Iterator<Item = &Pass> {
        self.hubs.iter().flat_map(Hub::ended)
    }

    /// See [`Hub::due_ns`].
    pub fn due_ns(&self) -> Option<u64> {
        match &self.hubs[..] {
            // Workers call this in each turn, and most have one stream.
            [only] => only.due_ns(),
            hubs => hubs.iter().filter_map(Hub::due_ns).min(),
        }
    }

    /// See [`Hub::lag`].
    pub fn lag(&self, now: HubNow) -> Lag {
        let since_ns = self.ready_queue.front().map_or(now.mono_ns, |(_, since_ns)| *since_ns);
        let behind_ns = now.mono_ns.saturating_sub(since_ns);
        let own = Lag { behind_ns, exceeded: behind_ns > self.publish_lag_ns };
        self.hubs.iter().map(|hub| hub.lag(now)).fold(own, |most, one| Lag {
            behind_ns: most.behind_ns.max(one.behind_ns),
            exceeded: most.exceeded || one.exceeded,
        })
    }

    /// See [`Hub::reload`].
    pub fn reload(&mut self, rules: &Arc<Rules>) {
        (self.most, self.publish_lag_ns) = (rules.channels_per_stream, rules.publish_lag_ns);
        for (stream, hub) in self.hubs.iter_mut().enumerate() {
            hub.reload(rules.share(&self.streams, stream));
        }
    }

    /// See [`Hub::position_of`].
    pub fn position_of(&mut self, id: SubscriberId) -> Option<Positions> {
        let at = match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => return self.hubs[stream].position_of(id),
            SubscriberKind::Span(at) => at,
        };
        let mut positions = Vec::new();
        for strand in &self.spans.get(at).filter(|span| !span.overrun)?.strands {
            let hub = &mut self.hubs[strand.stream];
            // The start of a newly added channel may be unknown, even in a strand with an undelivered run.
            let known = if strand.here { Some(hub.position_of(strand.id)?) } else { None };
            let owed = strand.pending_run.as_ref().map(|owed| owed.from);
            let offset = owed.or_else(|| known.and_then(|known| known.of(hub.epoch())))?;
            positions.push(Position { epoch: hub.epoch(), offset });
        }
        Positions::new(positions)
    }

    /// Returns the position of a subscriber that has received nothing: offset 0 in each of its streams.
    pub fn nowhere(&self, id: SubscriberId) -> Positions {
        let at_0 = |stream: usize| Position { epoch: self.hubs[stream].epoch(), offset: 0 };
        let positions = match self.kind_of(id) {
            SubscriberKind::Hub(stream, _) => return at_0(stream).into(),
            SubscriberKind::Span(at) => self
                .spans
                .get(at)
                .map(|span| span.strands.iter().map(|strand| at_0(strand.stream)).collect::<Vec<_>>()),
        };
        positions.and_then(Positions::new).unwrap_or_else(|| at_0(0).into())
    }

    /// See [`Hub::has_begun`].
    pub fn has_begun(&self, id: SubscriberId) -> bool {
        match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => self.hubs[stream].has_begun(id),
            SubscriberKind::Span(at) => self.spans.get(at).is_some_and(|span| {
                let begun = |strand: &Strand| !strand.here || self.hubs[strand.stream].has_begun(strand.id);
                span.strands.iter().all(begun)
            }),
        }
    }

    /// See [`Hub::waits`].
    pub fn waits(&self, id: SubscriberId) -> bool {
        match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => self.hubs[stream].waits(id),
            SubscriberKind::Span(at) => self.spans.get(at).is_none_or(|span| {
                let waits = |strand: &Strand| {
                    strand.pending_run.is_none() && self.hubs[strand.stream].waits(strand.id)
                };
                !span.overrun && span.strands.iter().all(waits)
            }),
        }
    }

    /// See [`Hub::depends_on_others`].
    pub fn depends_on_others(&self, id: SubscriberId, now: HubNow) -> bool {
        match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => self.hubs[stream].depends_on_others(id, now),
            SubscriberKind::Span(at) => self.spans.get(at).is_none_or(|span| {
                let depends = |strand: &Strand| {
                    strand.here && self.hubs[strand.stream].depends_on_others(strand.id, now)
                };
                span.strands.iter().any(depends)
            }),
        }
    }

    /// See [`Hub::parked`]. Spans are never parked.
    pub fn parked(&mut self, id: SubscriberId) -> Option<Subscribe> {
        match self.kind_of(id) {
            SubscriberKind::Hub(stream, id) => self.hubs[stream].parked(id),
            SubscriberKind::Span(_) => None,
        }
    }

    /// See [`Hub::memory`].
    pub fn memory(&mut self) -> usize {
        self.hubs.iter_mut().map(Hub::memory).sum()
    }

    /// See [`Hub::subscribers`].
    pub fn subscribers(&self) -> usize {
        let whole = self.hubs.iter().map(|hub| hub.subscribers() - hub.parts()).sum::<usize>();
        whole + self.spans.len()
    }

    /// See [`Hub::channels`].
    pub fn channels(&self) -> usize {
        self.hubs.iter().map(Hub::channels).sum()
    }

    /// See [`Hub::unknown`].
    pub fn unknown(&self, channels: &[Name]) -> usize {
        let unknown = |stream: usize| match stream {
            0 if self.hubs.len() == 1 => self.hubs[0].unknown(channels),
            _ => self.hubs[stream].unknown(&self.of_stream(channels, stream)),
        };
        (0..self.hubs.len()).map(unknown).sum()
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.hubs.len()
    }

    // ── Ids ─────────────────────────────────────────────────────────────────────────────────────────────────────

    fn named(&self, whose: SubscriberKind) -> SubscriberId {
        let (upper, index) = match whose {
            SubscriberKind::Hub(stream, SubscriberId(index)) => (stream as u32, index),
            SubscriberKind::Span(at) => (SPAN, at),
        };
        SubscriberId(upper << INDEX_BITS | index)
    }

    fn kind_of(&self, id: SubscriberId) -> SubscriberKind {
        if self.hubs.len() == 1 {
            return SubscriberKind::Hub(0, id);
        }
        let (upper, index) = (id.0 >> INDEX_BITS, id.0 & ((1 << INDEX_BITS) - 1));
        if upper == SPAN {
            SubscriberKind::Span(index)
        } else {
            SubscriberKind::Hub(upper as usize, SubscriberId(index))
        }
    }

    // ── Subscribe, change, leave ────────────────────────────────────────────────────────────────────────────────

    fn subscribe_span(&mut self, now: HubNow, subscribe: Subscribe) -> Result<SubscriberId, SubscribeError> {
        let Subscribe { channels, since, form, once, key, member } = subscribe;
        self.check(&[], &channels, &[])?;
        let asked = if let Since::After(positions) = &since { Some(positions.clone()) } else { None };
        let at = self.spans.insert(MultiSubscriber {
            key,
            form,
            once,
            member: member.clone(),
            asked,
            strands: Vec::new(),
            started: false,
            busy: false,
            overrun: false,
            in_ready_queue: false,
            last: 0,
        });
        for stream in 0..self.hubs.len() {
            let channels = self.of_stream(&channels, stream);
            if channels.is_empty() {
                continue;
            }
            let (since, member) = (since.clone(), member.clone());
            let part = Subscribe { channels, since, form, once, key: at.into(), member };
            match self.hubs[stream].subscribe_part(now, part) {
                Ok(id) => self.spans[at].strands.push(Strand::new(stream, id)),
                Err(refused) => {
                    self.remove(at);
                    return Err(refused);
                }
            }
        }
        Ok(self.named(SubscriberKind::Span(at)))
    }

    /// Checks the limits for a subscriber with these channels.
    fn check(&mut self, channels: &[Name], add: &[Name], remove: &[Name]) -> Result<(), SubscribeError> {
        let stays: Vec<&Name> = channels.iter().filter(|name| !remove.contains(name)).collect();
        let mut added = without_repeats(add, self.most);
        added.retain(|name| !stays.contains(&name));
        if stays.len() + added.len() > self.most {
            return Err(SubscribeError::TooManyOnStream { most: self.most });
        }
        (0..self.hubs.len()).try_for_each(|stream| {
            let added = self.of_stream(&added, stream);
            self.hubs[stream].has_room(&added)
        })
    }

    fn of_stream(&self, names: &[Name], stream: usize) -> Vec<Name> {
        names.iter().filter(|name| self.streams.of(name) == stream).cloned().collect()
    }

    /// Turns a subscriber of one stream into a span.
    fn becomes_span(&mut self, stream: usize, id: SubscriberId) -> u32 {
        let at = self.spans.insert(MultiSubscriber {
            key: 0,
            form: Form(0),
            once: Once::Never,
            member: None,
            asked: None,
            strands: vec![Strand::new(stream, id)],
            started: false,
            busy: false,
            overrun: false,
            in_ready_queue: false,
            last: 0,
        });
        let span = &mut self.spans[at];
        if let Some(whole) = self.hubs[stream].becomes_part(id, at.into()) {
            (span.key, span.form, span.member) = (whole.key, whole.form, whole.member);
            (span.started, span.busy) = (whole.begun, whole.busy);
            (span.strands[0].begun, span.strands[0].flying) = (whole.begun, whole.busy);
        }
        at
    }

    /// Adds and removes channels of a span. The limits are checked already.
    fn change_span(
        &mut self,
        now: HubNow,
        at: u32,
        add: &[Name],
        remove: &[Name],
    ) -> Result<(), SubscribeError> {
        for stream in 0..self.hubs.len() {
            let (add, remove) = (self.of_stream(add, stream), self.of_stream(remove, stream));
            let span = &mut self.spans[at];
            let hub = &mut self.hubs[stream];
            let place = span.strands.partition_point(|strand| strand.stream < stream);
            match span.strands.get_mut(place).filter(|strand| strand.stream == stream) {
                Some(strand) => {
                    hub.change(now, strand.id, &add, &remove)?;
                    let Some(owed) = &mut strand.pending_run else { continue };
                    owed.messages.retain(|message| !remove.contains(&message.channel));
                    if owed.messages.is_empty() && owed.gap.is_none() {
                        strand.pending_run = None;
                        hub.sent(strand.id);
                    }
                }
                None if add.is_empty() => {}
                None => {
                    let (form, once, member) = (span.form, span.once, span.member.clone());
                    // The strand starts at the head of its hub, and its channels start like those added to any subscriber.
                    let (channels, since) = (Vec::new(), Since::Now);
                    let part = Subscribe { channels, since, form, once, key: at.into(), member };
                    let id = hub.subscribe_part(now, part)?;
                    span.strands.insert(place, Strand::new(stream, id));
                    hub.change(now, id, &add, &[])?;
                }
            }
        }
        // A strand without channels is removed. One strand stays, to give a span without channels a position.
        let mut place = 0;
        while let Some(strand) =
            self.spans[at].strands.get(place).filter(|_| self.spans[at].strands.len() > 1)
        {
            let (stream, id) = (strand.stream, strand.id);
            if self.hubs[stream].names_of(id).is_empty() {
                self.hubs[stream].leave(id);
                self.spans[at].strands.remove(place);
            } else {
                place += 1;
            }
        }
        self.enqueue(at);
        Ok(())
    }

    fn remove(&mut self, at: u32) {
        let Some(span) = self.spans.remove(at) else { return };
        for strand in span.strands.iter().filter(|strand| strand.here) {
            self.hubs[strand.stream].leave(strand.id);
        }
    }

    fn enqueue(&mut self, at: u32) {
        let span = &mut self.spans[at];
        if !std::mem::replace(&mut span.in_ready_queue, true) {
            self.ready_queue.push_back((at, UNTIMED));
        }
    }

    // ── Serving ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Applies a delivery to a part.
    fn hears(&mut self, stream: usize, tidings: PartDelivery) {
        let PartDelivery { id, key, part } = tidings;
        let at = key as u32;
        let Some(span) = self.spans.get_mut(at) else { return };
        let Some(strand) = span.strands.iter_mut().find(|one| one.stream == stream && one.id == id) else {
            return;
        };
        strand.begun = true;
        match part {
            PartEvent::Started(gap) if !span.started => (strand.gap, strand.flying) = (gap, true),
            PartEvent::Started(None) => self.hubs[stream].sent(id),
            PartEvent::Started(Some(gap)) => {
                let hub = &mut self.hubs[stream];
                let to = hub.stands(id).unwrap_or(0);
                let from = gap.from.of(hub.epoch()).unwrap_or(to);
                strand.pending_run =
                    Some(PartRun { messages: Vec::new(), from, to, gap: Some(gap), more: 0 });
            }
            PartEvent::Run(run) => {
                strand.here = span.once == Once::Never;
                strand.pending_run = Some(run);
            }
            PartEvent::Waiting => {}
            // Deliveries of other strands in flight complete first.
            PartEvent::Overrun => (strand.here, span.overrun) = (false, true),
        }
        self.enqueue(at);
    }

    /// Serves a span if its connection is writable and all strands have started.
    fn serve(&mut self, at: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let span = &self.spans[at];
        let begun = span.started || span.strands.iter().all(|strand| strand.begun);
        if span.busy || !begun {
            return;
        }
        if span.overrun {
            let (subscriber, key) = (self.named(SubscriberKind::Span(at)), span.key);
            out.push(Delivery { subscriber, key, what: DeliveryContent::Overrun });
            return self.remove(at);
        }
        match span.once {
            Once::Never if span.started => self.deliver(at, encoder, out),
            Once::Never => self.start(at, out),
            Once::Oldest | Once::All => self.answer(at, encoder, out),
        }
    }

    /// Starts a span.
    fn start(&mut self, at: u32, out: &mut Vec<Delivery>) {
        let positions = self.strand_positions(at);
        let gap = self.missed(at, &positions);
        let subscriber = self.named(SubscriberKind::Span(at));
        let span = &mut self.spans[at];
        (span.started, span.busy, span.asked) = (true, true, None);
        let Some(position) = Positions::new(positions) else { return };
        out.push(Delivery {
            subscriber,
            key: span.key,
            what: DeliveryContent::Started { position, gap: gap.map(Box::new) },
        });
    }

    /// Delivers the pending run of the next strand in turn.
    fn deliver(&mut self, at: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let positions = self.strand_positions(at);
        let span = &mut self.spans[at];
        let behind = span.strands.partition_point(|strand| strand.stream <= span.last);
        let turns = (behind..span.strands.len()).chain(0..behind);
        let Some(place) = turns.into_iter().find(|place| span.strands[*place].pending_run.is_some()) else {
            return;
        };
        let strand = &mut span.strands[place];
        let Some(run) = strand.pending_run.take() else { return };
        (strand.flying, span.busy, span.last) = (true, true, strand.stream);
        let key = span.key;
        let joined = |of: &Positions| of.as_slice().first().map(|one| beside(&positions, place).with(*one));
        let gap = run
            .gap
            .as_ref()
            .and_then(|gap| Some(Gap { from: joined(&gap.from)?, to: joined(&gap.to)?, reason: gap.reason }));
        let bytes = self.encode(at, place, &positions, &run, gap.as_ref(), encoder);
        let subscriber = self.named(SubscriberKind::Span(at));
        out.push(Delivery { subscriber, key, what: DeliveryContent::Bytes(bytes) });
    }

    /// Responds to a polling span once all strands have started and one has a run. The response has messages of one stream;
    /// later polls get the messages of the others.
    fn answer(&mut self, at: u32, encoder: &mut impl Encoder, out: &mut Vec<Delivery>) {
        let subscriber = self.named(SubscriberKind::Span(at));
        let span = &mut self.spans[at];
        let has_messages =
            |strand: &Strand| strand.pending_run.as_ref().is_some_and(|owed| !owed.messages.is_empty());
        let first = span.strands.iter().position(has_messages);
        let first = first.or_else(|| span.strands.iter().position(|strand| strand.pending_run.is_some()));
        let key = span.key;
        let Some(place) = first else {
            if !std::mem::replace(&mut span.started, true) {
                out.push(Delivery { subscriber, key, what: DeliveryContent::Waiting });
            }
            return;
        };
        for strand in &mut span.strands {
            strand.gap = strand.pending_run.as_mut().and_then(|owed| owed.gap.take());
        }
        let positions = self.strand_positions(at);
        let gap = self.missed(at, &positions);
        let left =
            |strand: &Strand| strand.pending_run.as_ref().map_or(0, |owed| owed.messages.len() + owed.more);
        let all: usize = self.spans[at].strands.iter().map(left).sum();
        let Some(mut run) = self.spans[at].strands[place].pending_run.take() else { return };
        run.more = all - run.messages.len();
        let bytes = self.encode(at, place, &positions, &run, gap.as_ref(), encoder);
        self.remove(at);
        out.push(Delivery { subscriber, key, what: DeliveryContent::Last(bytes) });
    }

    /// Returns the positions of the strands, as delivered to the connection.
    fn strand_positions(&mut self, at: u32) -> Vec<Position> {
        let strands = self.spans[at].strands.iter();
        let position = |strand: &Strand| {
            let hub = &mut self.hubs[strand.stream];
            let owed = strand.pending_run.as_ref().map(|owed| owed.from);
            let offset = owed.or_else(|| hub.stands(strand.id)).unwrap_or(0);
            Position { epoch: hub.epoch(), offset }
        };
        strands.map(position).collect()
    }

    /// Joins the gaps of the strands before a start at `positions` into one.
    fn missed(&mut self, at: u32, positions: &[Position]) -> Option<Gap> {
        let span = &mut self.spans[at];
        let gaps: Vec<Option<Gap>> = span.strands.iter_mut().map(|strand| strand.gap.take()).collect();
        let reasons = || gaps.iter().flatten().map(|gap| gap.reason);
        let reason = reasons().find(|reason| *reason == GapReason::Epoch);
        let reason =
            reason.or_else(|| reasons().find(|reason| *reason == GapReason::Away)).or(reasons().next())?;
        let side = |of: fn(&Gap) -> &Positions| {
            let one = |(gap, stands): (&Option<Gap>, &Position)| {
                let offset = gap.as_ref().and_then(|gap| of(gap).of(stands.epoch));
                Position { offset: offset.unwrap_or(stands.offset), ..*stands }
            };
            Positions::new(gaps.iter().zip(positions).map(one).collect())
        };
        let from = span.asked.take().or_else(|| side(|gap| &gap.from))?;
        Some(Gap { from, to: side(|gap| &gap.to)?, reason })
    }

    /// Encodes a run of a strand, with the other strands at `positions`.
    fn encode(
        &mut self,
        at: u32,
        place: usize,
        positions: &[Position],
        run: &PartRun,
        gap: Option<&Gap>,
        encoder: &mut impl Encoder,
    ) -> Arc<[u8]> {
        let span = &self.spans[at];
        let hub = &mut self.hubs[span.strands[place].stream];
        let position = Position { epoch: hub.epoch(), offset: run.to };
        let beside = beside(positions, place);
        let run = Run { messages: &run.messages, position, beside, gap, more: run.more };
        hub.encodes(encoder, span.form, &run)
    }
}

/// Returns the positions of the other strands of a span.
fn beside(positions: &[Position], place: usize) -> Beside<'_> {
    Beside { before: &positions[..place], behind: &positions[place + 1..] }
}
