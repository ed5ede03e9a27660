//! Subscribed connections: requests become subscribers of the hub, deliveries become sends, deadlines become heartbeats.
//!
//! ```text
//! subscribe ─► (hub opens the channels) ─► started ─► delivery ─► send ─► sent ─► hub: messages published meanwhile
//!                                             ▲            │
//!                                 heartbeat ──┘            └─ another frame is in flight: the delivery is stashed
//!                                                             and follows it
//! poll:      subscribe ─► the first run, or no message in time ─► responded ─► between requests
//!            the client ends its side: the wait is over
//! drain:     each at its own moment, `drain_rate` a second ─► farewell (the retry time) ─► closed
//! expiry:    its token or certificate expires, or its user is logged out ─► last bytes ─► closed; a poll: responded, and the next one rejected
//! ```
//! A subscriber at rest has one deadline, the earliest of heartbeat, expiry and drain ([`PushWorker::due_ns`]). Traffic postpones the
//! heartbeat only: an expiry is also checked after each send and before each message from a WebSocket. A send in flight always
//! completes before the next one begins: deliveries are whole frames.

use std::any::Any;
use std::num::NonZeroU64;
use std::sync::Arc;

use encke_hub::{Delivery, DeliveryContent, Form, Member, Name, Once, Positions, SubscriberId};
use encke_io::{Token, Tuning};
use encke_wire::websocket::{self, FrameRules, Opcode};

use super::admission::close_rejected;
use super::form::{self, EXPIRES, MessageForm, PollResponse, RESUMED};
use super::head_request::describe_stream;
use super::log_out::logged_out_close;
use super::plan::PushPlan;
use super::push_worker::{PushWorker, SocketPublish, Subscription, hub_now};
use super::reject::SubscriberTransport;
use super::side::{RequestDetails, Stashed};
use super::socket::{self, SocketAction, SocketPublisher};
use crate::push_worker::NONE;
use encke_rights::Principal;
use encke_server::{
    Asked, CloseReason, ContentLength, Engine, Fields, Gone, Reply, Slot, SocketMessage, SocketState,
    read_frames, spread_retry_ms,
};

/// Limit of unacknowledged publishes of a WebSocket. At the limit the server stops reading from it.
const UNANSWERED_MAX: u32 = 64;
/// The text for a request whose rights a reload took away while it was pending.
const REVOKED: &str = "the right to read this channel was removed while the request was pending";
/// How often an overdue poll is checked again while its channel is not open yet, or a slice is about to respond to it.
const SERVING_NS: u64 = 100_000_000;

/// Returns the status for a subscription that the hub rejects.
fn refused_status(refused: &encke_hub::SubscribeError) -> u16 {
    match refused {
        encke_hub::SubscribeError::TooManyOnStream { .. } => 400,
        encke_hub::SubscribeError::TooManyChannels { .. } => 503,
    }
}

/// The start value of a takeover by the handler.
pub(crate) enum Start {
    /// A stream or a poll.
    Messages(Subscription),
    /// A WebSocket.
    Socket {
        /// The header fields of the 101.
        fields: Fields,
        /// Whether messages may be compressed.
        deflate: bool,
        speaker: SocketPublisher,
        subscription: Subscription,
    },
}

/// The parameters of a new subscriber.
struct SubscribeMode {
    /// The bits of its form besides the kind.
    bits: u8,
    asked: Asked,
    /// How long a poll waits.
    wait_ns: u64,
}

/// Returns the kind of a connection's form.
pub(crate) fn kind_of(slot: &Slot<'_>) -> MessageForm {
    form::kind(Form(slot.form()))
}

/// Returns whether a connection is a WebSocket.
fn is_socket(slot: &Slot<'_>) -> bool {
    form::is_socket(kind_of(slot))
}

impl PushWorker {
    /// Begins a takeover: a request becomes a subscribed connection.
    pub(crate) fn start(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>) {
        match start.downcast::<Start>().map(|start| *start) {
            Ok(Start::Messages(subscription)) => self.subscribe(slot, asked, subscription),
            Ok(Start::Socket { fields, deflate, speaker, subscription }) => {
                self.upgrade(slot, asked, (fields, deflate), speaker, subscription);
            }
            // Only the handler of channels is mounted with this resident.
            Err(_) => slot.respond(asked, Reply::error(500).and_close()),
        }
    }

    /// Subscribes a stream or a poll.
    fn subscribe(&mut self, slot: &mut Slot<'_>, asked: Asked, mut subscription: Subscription) {
        let poll = form::is_poll(subscription.kind);
        let draining = slot.draining();
        if asked.head_only {
            let fields = (subscription.head.as_deref(), &subscription.share);
            return describe_stream(slot, asked, subscription.kind, fields);
        }
        if let Some(away) = self.rejection(slot, &subscription) {
            return self.reject_request(slot, asked, away, subscription.kind, &subscription.share);
        }
        if !subscription.renew(&self.plan) {
            let reply = super::negotiate::refusal(403, REVOKED.into()).and_close();
            return slot.respond(asked, subscription.share.onto(reply));
        }
        let bits = form::framing_bits(asked.framing);
        let wait_ns = if poll {
            if !asked.keep || draining {
                slot.end_after(CloseReason::Answered);
            }
            slot.outlast();
            let wait_s = if draining || slot.peer_has_ended() { 0 } else { subscription.wait_s };
            wait_s.saturating_mul(1_000_000_000)
        } else {
            self.plan.heartbeat_ns
        };
        self.join(slot, SubscribeMode { bits, asked, wait_ns }, subscription);
        if slot.is_open() {
            let wait_ns = self.right_left_ns(slot).map_or(wait_ns, |left_ns| wait_ns.min(left_ns));
            slot.set_deadline(wait_ns);
        }
    }

    /// Subscribes a WebSocket.
    fn upgrade(
        &mut self,
        slot: &mut Slot<'_>,
        asked: Asked,
        (fields, deflate): (Fields, bool),
        mut speaker: SocketPublisher,
        mut subscription: Subscription,
    ) {
        let serial = subscription.rights_serial;
        if !subscription.renew(&self.plan) {
            return slot.respond(asked, super::negotiate::refusal(403, REVOKED.into()).and_close());
        }
        if subscription.rights_serial != serial
            && let Some(identity) = self.plan.rights.renew(&speaker.identity)
        {
            speaker.identity = identity;
        }
        slot.count_response(101);
        if let Some(away) = self.rejection(slot, &subscription) {
            slot.put_head(asked.framing, 101, &fields, ContentLength::Upgrade);
            return close_rejected(slot, away);
        }
        let mut state = Box::new(SocketState::new(speaker));
        state.keep_handshake(asked.framing, fields);
        self.sides.put_socket(slot.place(), state);
        let bits = if deflate { form::DEFLATED } else { 0 };
        self.join(slot, SubscribeMode { bits, asked, wait_ns: 0 }, subscription);
        if slot.is_open() {
            self.await_due(slot);
        }
    }

    /// Returns the time until the subscriber's token or certificate expires, in nanoseconds; `None`: never.
    fn right_left_ns(&self, slot: &Slot<'_>) -> Option<u64> {
        if slot.form() & EXPIRES == 0 {
            return None;
        }
        let end_s = self.sides.request(slot.place())?.expires_unix_s()?;
        Some(left_ns(slot, end_s))
    }

    /// Returns whether the subscriber's token or certificate has expired.
    fn right_has_ended(&self, slot: &Slot<'_>) -> bool {
        self.right_left_ns(slot) == Some(0)
    }

    /// The next moment at which a subscriber at rest needs attention, on the monotonic clock: its turn in a drain, else
    /// its heartbeat, or before that the end of its right.
    /// `left_ns` is [`PushWorker::right_left_ns`].
    fn due_ns(&self, slot: &Slot<'_>, left_ns: Option<u64>) -> u64 {
        let now_ns = slot.now().mono_ns;
        let due_ns = match self.farewells {
            Some(farewells) => farewells.at_ns(slot.token()),
            None => now_ns.saturating_add(self.plan.heartbeat_ns),
        };
        match left_ns {
            Some(left_ns) => due_ns.min(now_ns.saturating_add(left_ns)),
            None => due_ns,
        }
    }

    /// Sets the deadline of a subscriber at rest.
    pub(crate) fn await_due(&self, slot: &mut Slot<'_>) {
        let due_ns = self.due_ns(slot, self.right_left_ns(slot));
        slot.set_deadline(due_ns.saturating_sub(slot.now().mono_ns));
    }

    /// Registers a connection as a subscriber of the hub.
    fn join(&mut self, slot: &mut Slot<'_>, place: SubscribeMode, subscription: Subscription) {
        let SubscribeMode { bits, asked, wait_ns } = place;
        let Subscription {
            channels, since, kind, member, identity, share, head, relay, client, limited, ..
        } = subscription;
        let member = member.map(|name| Member { name, client: limited.then_some(client) });
        let end_s = identity.as_ref().and_then(|identity| identity.expires_unix_s);
        let left_ns = end_s.map(|end_s| left_ns(slot, end_s));
        let wait_ns = left_ns.map_or(wait_ns, |left_ns| wait_ns.min(left_ns));
        let right = identity.map(|identity| (identity, channels.clone()));
        // An earlier response of the connection is sent first. Until then the slot's deadline is that of the send.
        let until_ns = if form::is_poll(kind) && slot.has_output() {
            NonZeroU64::new(slot.now().mono_ns.saturating_add(wait_ns))
        } else {
            None
        };
        let once = match kind {
            MessageForm::Raw => Once::Oldest,
            MessageForm::Json => Once::All,
            _ => Once::Never,
        };
        let form = form::form(kind, bits);
        let key = slot.token().word();
        let subscribe = encke_hub::Subscribe { channels, since, form: form::of_hub(form), once, key, member };
        let id = match self.hub.subscribe(hub_now(slot.now()), subscribe) {
            Ok(id) => id,
            Err(refused) => {
                self.sides.clear(slot.place());
                let status = refused_status(&refused);
                let mut reply = super::negotiate::refusal(status, refused.to_string());
                if status == 503 && SubscriberTransport::of(kind) == SubscriberTransport::Sse {
                    reply = reply.for_event_source(self.retry_ms(slot));
                }
                return slot.respond(asked, share.onto(reply));
            }
        };
        self.sides.put_request(slot.place(), RequestDetails { right, until_ns, share, head, client });
        if let Some(relay) = relay {
            self.sides.put_relay(slot.place(), relay);
        }
        self.pending = true;
        slot.set_word(id.0);
        slot.set_form(form.0 | if left_ns.is_some() { EXPIRES } else { 0 });
        if !form::is_poll(kind) {
            let (unsent_bytes, dead_after_ms) = (self.plan.unsent_bytes, self.plan.dead_after_ms);
            slot.tune(Tuning { unsent_bytes, dead_after_ms });
        }
    }

    /// Removes the subscriber `word` of the connection at an index, if there is one, and its side state.
    pub(crate) fn leave(&mut self, place: u32, word: u32) {
        if word != NONE {
            self.hub.leave(SubscriberId(word));
            self.pending = true;
        }
        self.sides.clear(place);
    }

    /// Removes the subscriber of a closed connection.
    pub(crate) fn forget(&mut self, gone: Gone) {
        self.leave(gone.token.index, gone.word);
    }

    /// Runs one slice: turns deliveries of the hub into sends, at most `most`. Returns whether there are more.
    pub(crate) fn push_slice(&mut self, engine: &mut Engine<'_>, most: usize) -> bool {
        if !self.pending {
            return false;
        }
        let mut deliveries = std::mem::take(&mut self.deliveries);
        let more = self.hub.slice(hub_now(engine.now()), most, &mut self.encoder, &mut deliveries);
        self.rest(engine.now(), more);
        self.counters.deliveries.add(deliveries.len() as u64);
        for delivery in deliveries.drain(..) {
            self.deliver(engine, delivery);
        }
        self.deliveries = deliveries;
        more
    }

    fn deliver(&mut self, engine: &mut Engine<'_>, Delivery { subscriber, key, what }: Delivery) {
        let Some(mut slot) = engine.slot(Token::from_word(key)) else { return };
        let slot = &mut slot;
        if slot.word() != subscriber.0 {
            return;
        }
        match what {
            DeliveryContent::Bytes(bytes) => {
                if slot.is_sending() {
                    return self.stash(slot, bytes);
                }
                send_stream(slot, bytes);
            }
            DeliveryContent::Last(bytes) => {
                // The hub has already removed the subscriber.
                slot.set_word(NONE);
                if slot.is_sending() {
                    return self.stash(slot, bytes);
                }
                self.answer_poll(slot, Some(bytes));
            }
            DeliveryContent::Waiting => {
                if !slot.is_sending() && slot.deadline_ns() <= slot.now().mono_ns {
                    self.answer_poll(slot, None);
                }
            }
            // Output of TLS may still be in flight: the start follows it.
            DeliveryContent::Started { position, gap } if slot.is_sending() && slot.form() & RESUMED == 0 => {
                self.sides.stash(slot.place(), Stashed::Start(position, gap));
            }
            DeliveryContent::Started { position, gap } => self.started(slot, &position, gap.as_deref()),
            DeliveryContent::Overrun => overrun(slot),
            DeliveryContent::Ended => {
                // The hub has already removed the subscriber.
                slot.set_word(NONE);
                if slot.is_sending() {
                    return self.sides.stash(slot.place(), Stashed::End);
                }
                self.ended(slot);
            }
        }
    }

    /// Stores a delivery until the send in flight completes.
    fn stash(&mut self, slot: &Slot<'_>, bytes: Arc<[u8]>) {
        self.sides.stash(slot.place(), Stashed::Bytes(bytes));
    }

    /// Begins a stream or WebSocket once its channels are open.
    fn started(&mut self, slot: &mut Slot<'_>, position: &Positions, gap: Option<&encke_hub::Gap>) {
        let retry_ms = self.retry_ms(slot);
        if slot.form() & RESUMED != 0 {
            slot.set_form(slot.form() & !RESUMED);
            return self.resumed(slot, gap);
        }
        let (id, form) = (SubscriberId(slot.word()), Form(slot.form()));
        if is_socket(slot) {
            let Some(state) = self.sides.socket(slot.place()) else { return };
            state.put_handshake(slot);
            let closes = state.closes();
            let out = slot.out();
            out.extend_from_slice(&state.take_waiting());
            if closes {
                slot.part(CloseReason::Refused);
                return slot.settle();
            }
            match (form::kind(form), gap) {
                (MessageForm::Envelope, gap) => {
                    // The gap comes first: a client that is cut after the position alone would never learn of it.
                    if let Some(gap) = gap {
                        let mut json = Vec::new();
                        super::envelope::put_gap(&mut json, gap);
                        websocket::put_frame(out, Opcode::Text, &json);
                    }
                    socket::put_ok(out, None, &format!(",\"id\":\"{position}\""));
                }
                (_, Some(_)) => {
                    websocket::put_close(out, form::CLOSE_GAP, "messages are missing");
                    slot.part(CloseReason::Overrun);
                }
                (_, None) => {}
            }
        } else {
            slot.count_response(200);
            let share = self.sides.take_share(slot.place());
            let is_media = form::kind(form) == MessageForm::Media;
            let fields = if is_media {
                let mut fields = self.sides.take_head(slot.place());
                fields.extend(&share.fields());
                fields
            } else {
                form::stream_fields(form, &share)
            };
            slot.put_head(form::framing(form), 200, &fields, ContentLength::Open);
            if !is_media {
                form::put_stream_start(form, &position.to_string(), retry_ms, gap, slot.out());
            }
            if slot.draining() {
                let retry_ms = self.farewell_retry_ms(slot);
                slot.out().extend_from_slice(&form::last_event(form, retry_ms));
                end_after(slot, CloseReason::Drain);
            }
        }
        if !slot.has_output() {
            // The head is already sent: it followed output of the TLS handshake that carried the request.
            self.has_sent(id);
        }
        slot.settle();
    }

    /// Ends a subscriber whose stream has ended.
    fn ended(&mut self, slot: &mut Slot<'_>) {
        let retry_ms = self.retry_ms(slot);
        let form = Form(slot.form());
        end_subscriber(slot, &form::ended(form, retry_ms), CloseReason::Answered);
    }

    /// Reports a completed send: the hub may deliver messages published meanwhile.
    fn has_sent(&mut self, id: SubscriberId) {
        self.hub.sent(id);
        self.pending = true;
    }

    /// Resumes a parked stream: sends the gap that it missed, if any.
    fn resumed(&mut self, slot: &mut Slot<'_>, gap: Option<&encke_hub::Gap>) {
        let (id, form) = (SubscriberId(slot.word()), Form(slot.form()));
        match gap.map(|gap| Arc::from(form::gap(form, gap))) {
            Some(bytes) if slot.is_sending() => self.stash(slot, bytes),
            Some(bytes) => send_stream(slot, bytes),
            None => self.has_sent(id),
        }
    }

    /// Responds to a poll, with messages or without any.
    pub(crate) fn answer_poll(&mut self, slot: &mut Slot<'_>, answer: Option<Arc<[u8]>>) {
        let (word, form) = (slot.word(), Form(slot.form()));
        let answer = answer.unwrap_or_else(|| {
            // Before the channel is open there is no position, so the response claims nothing.
            let id = SubscriberId(word);
            let position = self.hub.position_of(id).unwrap_or_else(|| self.hub.nowhere(id));
            let mut encoded = Vec::new();
            form::put_nothing(form, &position.to_string(), None, &mut encoded);
            encoded.into()
        });
        let Some(PollResponse { status, fields: lines, content_at }) = PollResponse::of(&answer) else {
            debug_assert!(false, "polls are encoded by `Press`");
            return slot.close(CloseReason::HandlerPanic);
        };
        let mut fields = Fields::new();
        fields.push_lines(lines);
        fields.extend(&self.sides.take_share(slot.place()).fields());
        let len = (answer.len() - content_at) as u64;
        let content = if status == 204 { ContentLength::Absent } else { ContentLength::Known(len) };
        slot.put_head(form::framing(form), status, &fields, content);
        slot.push_shared(answer, content_at);
        self.leave(slot.place(), word);
        slot.responded(status, len);
        slot.settle();
    }

    /// A send of a subscriber has ended.
    pub(crate) fn on_sent(&mut self, slot: &mut Slot<'_>) {
        // Most sends are deliveries of streams: each accessor of a slot looks its connection up, so they are called once.
        let (form, id) = (slot.form(), SubscriberId(slot.word()));
        let left_ns = if form & EXPIRES == 0 { None } else { self.right_left_ns(slot) };
        slot.rest_until(self.due_ns(slot, left_ns));
        let kind = form::kind(Form(form));
        if form::is_poll(kind) {
            return self.poll_goes_on(slot);
        }
        if slot.is_ending() {
            return slot.end();
        }
        if left_ns == Some(0) {
            return self.expire(slot);
        }
        if form::is_socket(kind) {
            if let Some(state) = self.sides.socket(slot.place()) {
                let begins = state.put_handshake(slot);
                let closes = state.closes();
                let waiting = state.take_waiting();
                if begins || !waiting.is_empty() {
                    slot.push_buffer(waiting);
                    if closes {
                        slot.part(CloseReason::Refused);
                    }
                    return slot.settle();
                }
            }
            if slot.has_input() {
                self.resume_frames(slot);
                slot.settle();
                if !slot.is_open() || slot.is_sending() {
                    return;
                }
            }
        }
        if let Some(stashed) = self.sides.take_stashed(slot.place()) {
            return match stashed {
                Stashed::Bytes(bytes) => send_stream(slot, bytes),
                Stashed::Start(position, gap) => self.started(slot, &position, gap.as_deref()),
                Stashed::End => self.ended(slot),
            };
        }
        if id.0 != NONE {
            self.has_sent(id);
        }
        if slot.is_paused() {
            // Messages that arrived during the send are handled, so there is room for more.
            slot.settle();
        }
    }

    /// Resumes a poll once the response before its own is sent.
    fn poll_goes_on(&mut self, slot: &mut Slot<'_>) {
        if let Some(Stashed::Bytes(bytes)) = self.sides.take_stashed(slot.place()) {
            return self.answer_poll(slot, Some(bytes));
        }
        let until_ns = self.sides.request(slot.place()).and_then(|request| request.until_ns);
        let left_ns = until_ns.map_or(0, NonZeroU64::get).saturating_sub(slot.now().mono_ns);
        if left_ns == 0 {
            return self.poll_overdue(slot);
        }
        slot.set_deadline(left_ns);
    }

    /// Handles the end of the client's side of the connection. A stream has no other end, whatever was sent before. The client
    /// of a poll may be gone, or still read a response: the poll responds at once, as with `wait=0`.
    pub(crate) fn peer_ended(&mut self, slot: &mut Slot<'_>) {
        let kind = kind_of(slot);
        if form::is_socket(kind) {
            return;
        }
        if !form::is_poll(kind) {
            return slot.close(CloseReason::PeerDone);
        }
        if !slot.is_sending() {
            return slot.set_deadline(0);
        }
        self.sides.end_wait(slot.place());
    }

    /// Ends the wait of a poll, unless its channel is not open yet or a response is imminent.
    fn poll_overdue(&mut self, slot: &mut Slot<'_>) {
        if self.is_logged_out(slot) {
            return self.refuse_logged_out(slot);
        }
        if self.waits_in_vain(slot) {
            return self.reject_waiting(slot);
        }
        if !self.hub.waits(SubscriberId(slot.word())) {
            // The first worker has not opened its channel yet, or a slice is about to respond.
            return slot.set_deadline(SERVING_NS);
        }
        self.answer_poll(slot, None);
    }

    /// Handles the deadline of a subscriber without a send in flight.
    pub(crate) fn is_due(&mut self, slot: &mut Slot<'_>) {
        if form::is_poll(kind_of(slot)) {
            return self.poll_overdue(slot);
        }
        if self.right_has_ended(slot) {
            return self.expire(slot);
        }
        if is_socket(slot) && slot.has_input() {
            self.await_due(slot);
            self.resume_frames(slot);
            return slot.settle();
        }
        if !self.has_begun(slot) {
            // Nothing may precede the head, which has not been sent. No channel opens while a cluster has lost NATS.
            if slot.draining() {
                return slot.close(CloseReason::Drain);
            }
            if self.waits_in_vain(slot) {
                return self.reject_waiting(slot);
            }
            return self.await_due(slot);
        }
        let form = Form(slot.form());
        if slot.draining() {
            let retry_ms = self.farewell_retry_ms(slot);
            return end_subscriber(slot, &form::last_event(form, retry_ms), CloseReason::Drain);
        }
        let heartbeat = form::heartbeat(form);
        if heartbeat.is_empty() {
            return self.await_due(slot);
        }
        slot.out().extend_from_slice(&heartbeat);
        slot.settle();
    }

    /// Ends a subscriber whose token or certificate has expired, whose user was logged out, or whose right a reload has removed,
    /// between two sends.
    pub(crate) fn expire(&mut self, slot: &mut Slot<'_>) {
        let logged_out = self.is_logged_out(slot);
        if !self.has_begun(slot) || self.sides.is_start_stashed(slot.place()) {
            if logged_out {
                return self.refuse_logged_out(slot);
            }
            // No part of a response has left: the client's next request is rejected with a reason.
            return slot.close(CloseReason::TokenExpired);
        }
        let retry_ms = self.retry_ms(slot);
        let (mut bytes, mut closes) = (Vec::new(), false);
        if let Some(state) = self.sides.socket(slot.place()) {
            state.put_handshake(slot);
            closes = state.closes();
            bytes = state.take_waiting();
        }
        if !closes {
            bytes.extend_from_slice(&if logged_out && is_socket(slot) {
                logged_out_close()
            } else {
                form::expired(Form(slot.form()), retry_ms, self.is_revoked(slot))
            });
        }
        end_subscriber(
            slot,
            &bytes,
            if logged_out { CloseReason::LoggedOut } else { CloseReason::TokenExpired },
        );
    }

    /// Returns whether the subscriber has received its start position, or is about to.
    pub(crate) fn has_begun(&self, slot: &Slot<'_>) -> bool {
        let id = SubscriberId(slot.word());
        id.0 == NONE || self.hub.has_begun(id) || slot.form() & RESUMED != 0
    }

    /// Returns this client's retry time in ms: the setting ± 50 %, so that clients do not reconnect at once.
    pub(crate) fn retry_ms(&self, slot: &Slot<'_>) -> u64 {
        spread_retry_ms(self.plan.retry_ms, slot.token(), slot.now())
    }

    /// Applies new rights after a reload: closes subscribers that may no longer read, and updates the identities of WebSockets.
    pub(crate) fn renew_rights(&mut self, engine: &mut Engine<'_>) {
        let plan = Arc::clone(&self.plan);
        // Most WebSockets share one identity, and share the renewed one as well.
        let mut renewed: Option<(Principal, Principal)> = None;
        for place in 0..engine.places() {
            let Some(mut slot) = engine.slot_at(place).filter(|slot| slot.word() != NONE) else { continue };
            let holds = match self.sides.request_mut(slot.place()) {
                Some(request) => request.renew(&plan),
                None => plan.rights.admits_nobody(),
            };
            if !holds {
                self.revoke(&mut slot);
            } else if let Some(state) = self.sides.socket(slot.place()) {
                renew_speaker(&mut state.speaker, &plan, &mut renewed);
            }
        }
    }

    /// Ends a subscriber whose right a reload has removed: now, or after its send in flight. The next request of a poll is
    /// rejected.
    fn revoke(&mut self, slot: &mut Slot<'_>) {
        if form::is_poll(kind_of(slot)) {
            return slot.close(CloseReason::TokenExpired);
        }
        let place = slot.place();
        // A log-out that waits for the send in flight has its own Close.
        if !self.is_logged_out(slot) {
            self.sides.put_right(place, (Principal::revoked(), Vec::new()));
            if let Some(state) = self.sides.socket(place) {
                state.speaker.identity = Principal::revoked();
            }
            slot.set_form(slot.form() | EXPIRES);
        }
        if !slot.is_sending() {
            self.expire(slot);
        }
    }

    /// Returns whether a reload has removed the right of the subscriber.
    fn is_revoked(&self, slot: &Slot<'_>) -> bool {
        let right = self.sides.request(slot.place()).and_then(|request| request.right.as_ref());
        right.is_some_and(|(identity, _)| identity.is_revoked())
    }

    // ---- WebSocket ----

    /// Reads frames from a WebSocket. Returns the number of bytes used.
    pub(crate) fn frames(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        if !is_socket(slot) {
            return 0;
        }
        let Some(mut state) = self.sides.take_socket(slot.place()) else { return bytes.len() };
        let deflate = form::has(Form(slot.form()), form::DEFLATED);
        let message_bytes_max = socket::bytes_max(&self.plan.rules);
        let rules =
            FrameRules { deflate, ..FrameRules::new(websocket::FrameSender::Client, message_bytes_max) };
        let SocketState { speaker, traffic } = &mut *state;
        let traffic = traffic.get_or_insert_default();
        let mut inflation = std::mem::take(&mut self.inflation);
        let mut out = slot.take_buffer();
        let how = (&rules, &mut inflation);
        let used = read_frames(slot, traffic, bytes, how, &mut out, |slot, message, out| {
            self.on_socket_message(slot, speaker, message, out)
        });
        self.inflation = inflation;
        hold_if_many(slot, traffic.unanswered);
        state.rest();
        self.sides.put_socket(slot.place(), state);
        slot.push_buffer(out);
        used
    }

    /// Reads frames that arrived during a send or were left for a later turn.
    fn resume_frames(&mut self, slot: &mut Slot<'_>) {
        if let Some(mut input) = slot.take_input() {
            let used = self.frames(slot, &mut input);
            slot.give_input(input, used);
        }
    }

    /// Processes a message from a WebSocket. Returns the number of responses that follow later.
    fn on_socket_message(
        &mut self,
        slot: &mut Slot<'_>,
        speaker: &SocketPublisher,
        message: SocketMessage<'_>,
        out: &mut Vec<u8>,
    ) -> u32 {
        if speaker.identity.has_expired(slot.now().unix_s()) {
            if speaker.identity.is_ended() {
                out.extend_from_slice(&logged_out_close());
                slot.part(CloseReason::LoggedOut);
            } else {
                let is_revoked = speaker.identity.is_revoked();
                out.extend_from_slice(&form::expired(Form(slot.form()), 0, is_revoked));
                slot.part(CloseReason::TokenExpired);
            }
            return 0;
        }
        let tell = speaker.channel.is_none();
        let deed = speaker.on_message(message, out);
        let deed = self.paced(slot, speaker, deed, out);
        self.act(slot, deed, tell, out)
    }

    /// Executes a command of a WebSocket. Returns the number of responses that follow later.
    fn act(&mut self, slot: &mut Slot<'_>, deed: SocketAction, tell: bool, out: &mut Vec<u8>) -> u32 {
        match deed {
            SocketAction::Nothing => {}
            SocketAction::Close => {
                slot.part(CloseReason::Refused);
            }
            SocketAction::Publish(reference, draft) => {
                let (core, token) = (self.core, slot.token());
                self.forward_socket_publish(
                    slot.now(),
                    SocketPublish { core, token, reference, draft, wants_reply: tell },
                );
                self.pending = true;
                return 1;
            }
            SocketAction::Change { add, remove, reference } => {
                self.change(slot, add, &remove, reference, out);
            }
        }
        0
    }

    /// Changes the channels of a WebSocket.
    fn change(
        &mut self,
        slot: &mut Slot<'_>,
        add: Vec<Name>,
        remove: &[Name],
        reference: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        let id = SubscriberId(slot.word());
        match self.hub.change(hub_now(slot.now()), id, &add, remove) {
            Ok(id) => {
                slot.set_word(id.0);
                self.changing.push((slot.token(), reference));
                if let Some(RequestDetails { right: Some((_, channels)), .. }) =
                    self.sides.request_mut(slot.place())
                {
                    channels.retain(|channel| !remove.contains(channel));
                    channels.extend(add);
                }
            }
            Err(error) => socket::put_error(out, reference, refused_status(&error), &error.to_string()),
        }
        self.pending = true;
    }

    /// Confirms subscriptions to WebSockets once the channels are open, so that later messages reach them.
    pub(crate) fn confirm_changes(&mut self, engine: &mut Engine<'_>) {
        for (token, reference) in std::mem::take(&mut self.changing) {
            let Some(mut slot) = engine.slot(token) else { continue };
            let Some(position) = self.hub.position_of(SubscriberId(slot.word())) else {
                self.changing.push((token, reference));
                continue;
            };
            let mut answer = Vec::new();
            socket::put_ok(&mut answer, reference, &format!(",\"id\":\"{position}\""));
            self.say(&mut slot, &answer);
        }
    }

    /// Sends the response to a publish by WebSocket.
    pub(crate) fn on_publish_reply(&mut self, engine: &mut Engine<'_>, token: Token, answer: &[u8]) {
        let Some(mut slot) = engine.slot(token) else { return };
        let Some(state) = self.sides.socket(token.index) else { return };
        state.answered();
        hold_if_many(&mut slot, state.traffic.as_ref().map_or(0, |traffic| traffic.unanswered));
        if socket::is_close(answer) {
            return self.close_publisher(&mut slot, answer);
        }
        self.say(&mut slot, answer);
    }

    /// Closes a WebSocket without envelopes whose message was rejected: now, or after its send in flight.
    fn close_publisher(&mut self, slot: &mut Slot<'_>, close: &[u8]) {
        let Some(state) = self.sides.socket(slot.place()) else { return };
        // An earlier Close is being sent.
        if slot.is_ending() {
            return;
        }
        if slot.is_sending() {
            return state.wait_to_close(close);
        }
        state.put_handshake(slot);
        end_subscriber(slot, close, CloseReason::Refused);
    }

    /// Sends control frames and responses of a WebSocket, or stores them until the send in flight completes.
    fn say(&mut self, slot: &mut Slot<'_>, frames: &[u8]) {
        if !slot.is_sending() {
            slot.out().extend_from_slice(frames);
        } else if !frames.is_empty()
            && let Some(state) = self.sides.socket(slot.place())
        {
            state.waiting().extend_from_slice(frames);
        }
        slot.settle();
    }
}

/// Returns the nanoseconds until a moment in seconds since 1970; 0 if it has passed.
fn left_ns(slot: &Slot<'_>, end_unix_s: u64) -> u64 {
    end_unix_s.saturating_mul(1_000_000_000).saturating_sub(slot.now().unix_ns)
}

/// Sends the next bytes of a stream. A Close among them ends it: payloads alone cannot report a gap.
#[inline]
fn send_stream(slot: &mut Slot<'_>, bytes: Arc<[u8]>) {
    let closes = bytes.first() == Some(&form::CLOSE_BYTE) && is_socket(slot);
    slot.send(bytes);
    if closes {
        slot.part(CloseReason::Overrun);
    }
}

/// Disconnects a subscriber that its ring has passed, as the policy of its channel requires.
fn overrun(slot: &mut Slot<'_>) {
    if is_socket(slot) {
        websocket::put_close(slot.out(), form::CLOSE_GAP, "too slow: messages are missing");
        slot.part(CloseReason::Overrun);
        slot.settle();
    } else {
        slot.close(CloseReason::Overrun);
    }
}

/// Closes a subscriber's connection once its output is sent.
fn end_after(slot: &mut Slot<'_>, reason: CloseReason) {
    if is_socket(slot) { slot.part(reason) } else { slot.end_after(reason) }
}

/// Sends the last bytes of a subscriber and then closes its connection.
pub(crate) fn end_subscriber(slot: &mut Slot<'_>, bytes: &[u8], reason: CloseReason) {
    end_after(slot, reason);
    slot.out().extend_from_slice(bytes);
    slot.settle();
    if slot.is_open() && !slot.is_sending() {
        slot.end();
    }
}

/// Stops reading from a WebSocket while too many of its publishes are unacknowledged.
fn hold_if_many(slot: &mut Slot<'_>, unanswered: u32) {
    if unanswered < UNANSWERED_MAX {
        slot.unhold();
    } else {
        slot.hold();
    }
}

/// Renews the identity of a WebSocket. `renewed` caches the last renewal, as old and new identity.
fn renew_speaker(
    speaker: &mut SocketPublisher,
    plan: &PushPlan,
    renewed: &mut Option<(Principal, Principal)>,
) {
    let known = renewed.as_ref().filter(|(old, _)| old.is(&speaker.identity));
    let new = match known {
        Some((_, new)) => Some(new.clone()),
        None => plan.rights.renew(&speaker.identity),
    };
    if let Some(new) = new {
        let old = std::mem::replace(&mut speaker.identity, new.clone());
        *renewed = Some((old, new));
    }
}
