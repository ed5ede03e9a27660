//! Connections that listen: from a request to a subscriber of the hub, deliveries to sends, time to heartbeats.
//!
//! ```text
//! subscribe ─► (hub: its channels are here) ─► started ─► delivery ─► send ─► sent ─► hub: what came meanwhile
//!                                                 ▲            │
//!                                     heartbeat ──┘            └─ a frame of its own is on its way: the delivery
//!                                                                 waits in the stash and follows it
//! poll:      subscribe ─► the first run, or nothing in time ─► answered ─► between requests
//!            the client ends its side: the time is over
//! drain:     each at its own moment within the drain's time ─► farewell (when to come back) ─► closed
//! expiry:    its token or certificate expires ─► last bytes ─► closed; a poll: answered, and the next one rejected
//! ```
//! A subscriber at rest has one deadline, the earliest of heartbeat, expiry and drain ([`Core::due_ns`]). Traffic
//! postpones the heartbeat only: an expiry is also checked after each send and before each message from a WebSocket.
//! A send that has begun is always finished before anything else is sent: deliveries are whole frames.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use encke_hub::{Delivery, Form, Member, Once, Positions, SubscriberId, What};
use encke_io::{Op, Segment, Token, Tuning};
use encke_wire::websocket::{self, Opcode, Rules};

use super::form::{self, Kind};
use super::plan::PushPlan;
use super::rights::{Identity, Share};
use super::room::{Extra, Room, Spoken, Subscription, hub_now};
use super::socket::{self, Answers, Deed, Heard, Role, SocketState};
use crate::close::CloseReason;
use crate::conn::{
    ENDING, EXPIRES, Input, LAST, LINGER, NONE, PAUSED, PEER_ENDED, Phase, SENDING, UNMEASURED,
};
use crate::exchange::ExchangeKey;
use crate::handler::Upgrade;
use crate::log::Entry;
use crate::record::Asked;
use crate::reply::Reply;
use crate::worker::Core;

/// Publishes of a WebSocket that wait for their answer before it is read no further.
const UNANSWERED_MAX: u32 = 64;
/// What a WebSocket's messages may become at a time before others have their turn: 64 KiB that were read could become
/// 64 MiB, which takes 240 ms. A message that is begun is finished, so that this is one more at most: some 10 ms.
const INFLATED_BYTES_MAX: u64 = 1024 * 1024;
/// The text for a request whose rights a reload took away while it was pending.
const REVOKED: &str = "the right to read this channel was removed while the request was pending";
/// How long a poll whose time is over waits for its channel, or for what there is in it, before it is looked at again.
const SERVING_NS: u64 = 100_000_000;

/// The status of a subscription that the hub refuses.
fn refused_status(refused: &encke_hub::Refused) -> u16 {
    match refused {
        encke_hub::Refused::TooManyOnStream { .. } => 400,
        encke_hub::Refused::TooManyChannels { .. } => 503,
    }
}

/// How a connection listens.
struct Place {
    phase: Phase,
    /// Of its form, beside the kind.
    bits: u8,
    asked: Asked,
    /// For a poll: how long.
    wait_ns: u64,
}

impl Core {
    /// A request for messages: the connection listens from now on.
    pub(crate) fn subscribe(
        &mut self,
        token: Token,
        asked: Asked,
        mut subscription: Subscription,
        entry: Option<Box<Entry>>,
    ) {
        let poll = matches!(subscription.kind, Kind::Raw | Kind::Json);
        let draining = self.draining();
        if asked.head_only || self.room.is_none() {
            let status = if self.room.is_none() { 503 } else { 200 };
            return self.answer_subscription(
                token,
                asked,
                subscription.share.onto(Reply::new(status)),
                entry,
            );
        }
        if let Some(away) = self.turn_away(token, &subscription) {
            let whom = (subscription.kind, &subscription.share);
            return self.answer_turned_away(token, asked, away, whom, entry);
        }
        if !self.may_join(&mut subscription) {
            let reply = super::negotiate::refusal(403, REVOKED.into()).and_close();
            return self.answer_subscription(token, asked, subscription.share.onto(reply), entry);
        }
        let mut bits = if asked.version_10 { form::VERSION10 } else { 0 };
        let (phase, wait_ns) = if poll {
            if !asked.keep || draining {
                bits |= form::LAST;
                self.end_after(token, CloseReason::Answered);
            }
            let ended = self.conns[token.index as usize].has(PEER_ENDED | ENDING);
            let wait_s = if draining || ended { 0 } else { subscription.wait_s };
            (Phase::Polling, wait_s.saturating_mul(1_000_000_000))
        } else {
            if !asked.version_10 {
                bits |= form::CHUNKED;
            }
            (Phase::Subscribed, self.heartbeat_ns())
        };
        self.join(token, Place { phase, bits, asked, wait_ns }, subscription, entry);
        if self.conns[token.index as usize].subscribes() {
            let wait_ns = self.right_left_ns(token).map_or(wait_ns, |left_ns| wait_ns.min(left_ns));
            self.set_deadline(token, wait_ns);
        }
    }

    /// Whether a subscription is still allowed: a reload may have changed rights while its request was pending.
    fn may_join(&self, subscription: &mut Subscription) -> bool {
        self.room.as_ref().is_none_or(|room| subscription.renew(&room.plan))
    }

    /// A handshake: the connection is a WebSocket from now on.
    pub(crate) fn upgrade(
        &mut self,
        token: Token,
        asked: Asked,
        upgrade: Upgrade,
        entry: Option<Box<Entry>>,
    ) {
        let Upgrade { mut head, deflate, mut role, mut subscription } = upgrade;
        if let Some(subscription) = &mut subscription {
            let serial = subscription.rights_serial;
            if !self.may_join(subscription) {
                let reply = super::negotiate::refusal(403, REVOKED.into()).and_close();
                return self.answer_subscription(token, asked, reply, entry);
            }
            if subscription.rights_serial != serial
                && let (Role::Push(speaker), Some(room)) = (&mut role, &self.room)
                && let Some(identity) = room.plan.rights.renew(&speaker.identity)
            {
                speaker.identity = identity;
            }
        }
        head.extend_from_slice(b"\r\n");
        self.metrics.responses(101);
        if let Some(subscription) = &subscription
            && let Some(away) = self.turn_away(token, subscription)
        {
            return self.close_turned_away(token, away, &head, entry);
        }
        let mut state = SocketState::new(role);
        let bits = if deflate { form::DEFLATED } else { 0 };
        match subscription {
            Some(subscription) => {
                *state.waiting() = head;
                self.sockets.insert(token.index, state);
                let place = Place { phase: Phase::Socket, bits, asked, wait_ns: 0 };
                self.join(token, place, *subscription, entry);
            }
            None => {
                self.sockets.insert(token.index, state);
                let conn = &mut self.conns[token.index as usize];
                conn.phase = Phase::Socket;
                conn.record = NONE;
                conn.form = form::form(Kind::Payload, bits).0;
                self.end_entry(entry, 101, 0, self.now.mono_ns);
                self.out.tail(&mut self.buffers).extend_from_slice(&head);
            }
        }
        self.await_due(token);
    }

    /// A handshake that was accepted after its call.
    pub(crate) fn late_upgrade(&mut self, key: ExchangeKey, upgrade: Upgrade) {
        let Some(record) = self.records.get(key.slot) else { return };
        let token = record.token;
        if record.generation != key.generation || record.answered || !record.intake.is_done() {
            return;
        }
        if self.conns[token.index as usize].has(SENDING) {
            // An earlier answer of a client that asks for a WebSocket behind it: no browser does.
            self.answer(
                key,
                super::negotiate::refusal(503, "try again on a new connection".into()).and_close(),
            );
            return;
        }
        let Some(record) = self.records.remove(key.slot) else { return };
        self.conns[token.index as usize].record = NONE;
        self.upgrade(token, record.asked, upgrade, record.entry);
        self.settle(token);
    }

    /// The time until the subscriber's token or certificate expires, in nanoseconds; `None`: never.
    fn right_left_ns(&self, token: Token) -> Option<u64> {
        if !self.conns[token.index as usize].has(EXPIRES) {
            return None;
        }
        let end_s = self.room.as_ref()?.extras.get(&token.index)?.expires_unix_s()?;
        Some(self.left_ns(end_s))
    }

    /// The nanoseconds until a moment in seconds since 1970; 0 if it has passed.
    const fn left_ns(&self, end_unix_s: u64) -> u64 {
        end_unix_s.saturating_mul(1_000_000_000).saturating_sub(self.now.unix_ns)
    }

    /// Whether the subscriber's token or certificate has expired.
    fn right_has_ended(&self, token: Token) -> bool {
        self.right_left_ns(token) == Some(0)
    }

    /// The next moment at which a subscriber at rest needs attention, on the monotonic clock: its turn in a drain, else
    /// its heartbeat, or before that the end of its right.
    fn due_ns(&self, token: Token) -> u64 {
        let now_ns = self.now.mono_ns;
        let due_ns = self.farewell_ns(token).unwrap_or_else(|| now_ns.saturating_add(self.heartbeat_ns()));
        match self.right_left_ns(token) {
            Some(left_ns) => due_ns.min(now_ns.saturating_add(left_ns)),
            None => due_ns,
        }
    }

    /// Sets the deadline of a subscriber at rest.
    fn await_due(&mut self, token: Token) {
        let due_ns = self.due_ns(token);
        self.set_deadline(token, due_ns.saturating_sub(self.now.mono_ns));
    }

    fn heartbeat_ns(&self) -> u64 {
        self.room.as_ref().map_or(25_000_000_000, |room| room.plan.heartbeat_ns)
    }

    /// Makes a connection a subscriber of the hub.
    fn join(&mut self, token: Token, place: Place, subscription: Subscription, entry: Option<Box<Entry>>) {
        let Place { phase, bits, asked, wait_ns } = place;
        let Subscription { channels, since, kind, member, identity, share, client, limited, .. } =
            subscription;
        let member = member.map(|name| Member { name, client: limited.then_some(client) });
        let end_s = identity.as_ref().and_then(|identity| identity.expires_unix_s);
        let left_ns = end_s.map(|end_s| self.left_ns(end_s));
        let wait_ns = left_ns.map_or(wait_ns, |left_ns| wait_ns.min(left_ns));
        let right = identity.map(|identity| (identity, channels.clone()));
        // The answer to an earlier request of the connection leaves first, and takes the deadline's place meanwhile.
        let until_ns = (self.out.len() > 0 || !self.segments.is_empty())
            .then(|| self.now.mono_ns.saturating_add(wait_ns));
        let Some(room) = &mut self.room else { return };
        let once = match kind {
            Kind::Raw => Once::Oldest,
            Kind::Json => Once::All,
            _ => Once::Never,
        };
        let form = form::form(kind, bits);
        let subscribe = encke_hub::Subscribe { channels, since, form, once, key: token.word(), member };
        let id = match room.hub.subscribe(hub_now(self.now), subscribe) {
            Ok(id) => id,
            Err(refused) => return self.refuse_subscription(token, asked, &refused, &share, entry),
        };
        if entry.is_some() || right.is_some() || until_ns.is_some() || share != Share::Nobody {
            let extra =
                Extra { entry, started_ns: self.now.mono_ns, sent_bytes: 0, right, until_ns, share, client };
            room.extras.insert(token.index, extra);
        }
        room.pending = true;
        let (unsent_bytes, dead_after_ms) = (room.plan.unsent_bytes, room.plan.dead_after_ms);
        let conn = &mut self.conns[token.index as usize];
        conn.phase = phase;
        conn.record = id.0;
        conn.form = form.0;
        if left_ns.is_some() {
            conn.flags |= EXPIRES;
        }
        if phase != Phase::Polling {
            self.ops.push((token, Op::Tune(Tuning { unsent_bytes, dead_after_ms })));
        }
    }

    /// A subscriber's connection is no subscriber any more: what is known of it comes back.
    pub(crate) fn leave(&mut self, token: Token) -> Option<Extra> {
        let conn = &mut self.conns[token.index as usize];
        conn.flags &= !EXPIRES;
        let id = SubscriberId(std::mem::replace(&mut conn.record, NONE));
        let room = self.room.as_mut()?;
        if id.0 != NONE {
            room.hub.leave(id);
            room.pending = true;
        }
        room.stash.remove(&token.index);
        room.resumed.remove(&token.index);
        room.extras.remove(&token.index)
    }

    /// What belongs to a connection that closes while it listens.
    pub(crate) fn leave_closing(&mut self, token: Token) {
        self.sockets.remove(&token.index);
        if let Some(extra) = self.leave(token)
            && let Some(entry) = extra.entry
        {
            self.finish_entry(entry, extra.sent_bytes, extra.started_ns);
        }
    }

    /// Answers a request for messages without any.
    pub(crate) fn answer_subscription(
        &mut self,
        token: Token,
        asked: Asked,
        reply: Reply,
        entry: Option<Box<Entry>>,
    ) {
        let status = reply.status;
        let (_, content) = self.put_reply(token, asked, true, reply);
        self.end_entry(entry, status, content, self.now.mono_ns);
        self.next_request(token);
    }

    /// There are too many channels.
    fn refuse_subscription(
        &mut self,
        token: Token,
        asked: Asked,
        refused: &encke_hub::Refused,
        share: &Share,
        entry: Option<Box<Entry>>,
    ) {
        self.sockets.remove(&token.index);
        let reply = super::negotiate::refusal(refused_status(refused), refused.to_string());
        self.answer_subscription(token, asked, share.onto(reply), entry);
    }

    pub(crate) fn end_after(&mut self, token: Token, reason: CloseReason) {
        let conn = &mut self.conns[token.index as usize];
        conn.flags |= LAST;
        conn.reason = reason;
    }

    /// One slice: what the hub has for connections becomes sends. True if there is more.
    pub(crate) fn push_slice(&mut self, most: usize) -> bool {
        let Some(room) = &mut self.room else { return false };
        if !room.pending {
            return false;
        }
        let mut deliveries = std::mem::take(&mut room.deliveries);
        let Room { hub, press, .. } = &mut **room;
        let more = hub.slice(hub_now(self.now), most, press, &mut deliveries);
        room.rest(self.now, more);
        self.metrics.deliveries.add(deliveries.len() as u64);
        for delivery in deliveries.drain(..) {
            self.deliver(delivery);
        }
        if let Some(room) = &mut self.room {
            room.deliveries = deliveries;
        }
        more
    }

    fn deliver(&mut self, Delivery { subscriber, key, what }: Delivery) {
        let token = Token::from_word(key);
        let listens = |conn: &crate::conn::Conn| conn.subscribes() && conn.record == subscriber.0;
        if !self.conn(token).is_some_and(|conn| listens(conn)) {
            return;
        }
        match what {
            What::Bytes(bytes) => {
                if self.conns[token.index as usize].has(SENDING) {
                    return self.stash(token, bytes);
                }
                self.send_stream(token, bytes);
            }
            What::Last(bytes) => {
                // The hub knows it no longer.
                let conn = &mut self.conns[token.index as usize];
                conn.record = NONE;
                if conn.has(SENDING) {
                    return self.stash(token, bytes);
                }
                self.answer_poll(token, Some(bytes));
            }
            What::Waiting => {
                let conn = &self.conns[token.index as usize];
                if !conn.has(SENDING) && conn.deadline_ns <= self.now.mono_ns {
                    self.answer_poll(token, None);
                }
            }
            What::Started { position, gap } => self.started(token, &position, gap.as_deref()),
            What::Overrun => self.overrun(token),
        }
    }

    /// Keeps a delivery until what is being sent has left.
    fn stash(&mut self, token: Token, bytes: Arc<[u8]>) {
        if let Some(room) = &mut self.room {
            room.stash.insert(token.index, bytes);
        }
    }

    /// The next bytes of a stream. A Close among them is its end: payloads alone cannot say that messages are missing.
    fn send_stream(&mut self, token: Token, bytes: Arc<[u8]>) {
        let conn = &self.conns[token.index as usize];
        let closes = conn.phase == Phase::Socket && bytes.first() == Some(&form::CLOSE_BYTE);
        self.send_shared(token, bytes);
        if closes {
            self.end_after(token, CloseReason::Overrun);
        }
    }

    /// Sends bytes that others are sent, too. The warm path of a fan-out.
    #[inline]
    fn send_shared(&mut self, token: Token, bytes: Arc<[u8]>) {
        let mut segments = self.spare_segments.pop().unwrap_or_default();
        if let Some(room) = &mut self.room
            && !room.extras.is_empty()
            && let Some(extra) = room.extras.get_mut(&token.index)
        {
            extra.sent_bytes += bytes.len() as u64;
        }
        segments.push(Segment::Shared(bytes, 0));
        let deadline_ns = self.now.mono_ns.saturating_add(self.policy.rate_window_ns);
        let conn = &mut self.conns[token.index as usize];
        conn.flags |= SENDING;
        conn.deadline_ns = deadline_ns;
        conn.window_bytes = UNMEASURED;
        let last = conn.has(LAST);
        if let Err(fault) = conn.transport.seal(&mut segments, last, &mut self.scratch) {
            return self.conn_failed(token, fault, 0, segments);
        }
        self.wheel.arm_earlier(token.index, deadline_ns);
        self.hand_out(token, segments);
    }

    /// The channels of a subscriber are here: its stream begins.
    fn started(&mut self, token: Token, position: &Positions, gap: Option<&encke_hub::Gap>) {
        let retry_ms = self.retry_ms(token);
        let draining = self.draining();
        let Some(room) = &mut self.room else { return };
        if !room.resumed.is_empty() && room.resumed.remove(&token.index) {
            return self.resumed(token, gap);
        }
        let conn = &self.conns[token.index as usize];
        let (id, form, sending) = (SubscriberId(conn.record), Form(conn.form), conn.has(SENDING));
        // What TLS has to say by itself may still be on its way: this follows it.
        let mut later = Vec::new();
        let out = if sending { &mut later } else { self.out.tail(&mut self.buffers) };
        if self.conns[token.index as usize].phase == Phase::Socket {
            let Some(state) = self.sockets.get_mut(&token.index) else { return };
            if !sending {
                out.extend_from_slice(&state.take_waiting());
            }
            match (form::kind(form), gap) {
                (Kind::Envelope, gap) => {
                    // The gap first: whoever were told the position alone, and then cut, would never hear of it.
                    if let Some(gap) = gap {
                        let mut json = Vec::new();
                        super::envelope::put_gap(&mut json, gap);
                        websocket::put_frame(out, Opcode::Text, &json);
                    }
                    socket::put_ok(out, None, &format!(",\"id\":\"{position}\""));
                }
                (_, Some(_)) => {
                    websocket::put_close(out, form::CLOSE_GAP, "messages are missing");
                    if !sending {
                        self.end_after(token, CloseReason::Overrun);
                    }
                }
                (_, None) => {}
            }
        } else {
            self.metrics.responses(200);
            let share = room.take_share(token.index);
            room.press.put_stream_head(form, &position.to_string(), retry_ms, gap, &share, out);
            if draining && !sending {
                out.extend_from_slice(&form::farewell(form, retry_ms));
                self.end_after(token, CloseReason::Drain);
            }
        }
        if sending {
            if !later.is_empty() {
                self.stash(token, later.into());
            }
            return;
        }
        if self.out.len() == 0 {
            // Its head has left already, behind what TLS had to say when the request came with the end of its handshake.
            if let Some(room) = &mut self.room {
                room.hub.sent(id);
                room.pending = true;
            }
        }
        self.settle(token);
    }

    /// A stream goes on that was parked: it is told what it has missed meanwhile.
    fn resumed(&mut self, token: Token, gap: Option<&encke_hub::Gap>) {
        let conn = &self.conns[token.index as usize];
        let (id, form, sending) = (SubscriberId(conn.record), Form(conn.form), conn.has(SENDING));
        match gap.map(|gap| Arc::from(form::gap(form, gap))) {
            Some(bytes) if sending => self.stash(token, bytes),
            Some(bytes) => self.send_stream(token, bytes),
            None => {
                if let Some(room) = &mut self.room {
                    room.hub.sent(id);
                    room.pending = true;
                }
            }
        }
    }

    /// Answers a poll: with a message, or with nothing.
    fn answer_poll(&mut self, token: Token, answer: Option<Arc<[u8]>>) {
        let conn = &self.conns[token.index as usize];
        let (id, form) = (SubscriberId(conn.record), Form(conn.form));
        let Some(room) = &mut self.room else { return };
        // The answer is the same for all: what one page may do goes behind its status line.
        let own = room.take_share(token.index).fields();
        let (status, len) = match answer {
            Some(bytes) if own.is_empty() => {
                let len = bytes.len() as u64;
                self.segments.push(Segment::Shared(bytes, 0));
                (200, len)
            }
            Some(bytes) => {
                let len = (bytes.len() + own.lines().len()) as u64;
                let line = form::status_line_bytes(&bytes);
                let out = self.out.tail(&mut self.buffers);
                out.extend_from_slice(&bytes[..line]);
                out.extend_from_slice(own.lines());
                self.out_segment(Segment::Shared(bytes, line));
                (200, len)
            }
            None => {
                // Of a channel that is not known here yet nothing can be said but that nothing was seen.
                let position = room.hub.position_of(id).unwrap_or_else(|| room.hub.nowhere(id));
                let out = self.out.tail(&mut self.buffers);
                let start = out.len();
                room.press.put_nothing(form, &position.to_string(), None, out);
                let line = start + form::status_line_bytes(&out[start..]);
                out.splice(line..line, own.lines().iter().copied());
                (if form::kind(form) == Kind::Json { 200 } else { 204 }, 0)
            }
        };
        self.metrics.responses(status);
        if let Some(extra) = self.leave(token)
            && extra.entry.is_some()
        {
            self.end_entry(extra.entry, status, len, extra.started_ns);
        }
        self.next_request(token);
        self.settle(token);
    }

    /// Brings receiving in line with the state of a connection that listens and to which nothing is being sent.
    pub(crate) fn settle_subscriber(&mut self, token: Token) {
        let hungry_socket = self.socket_is_hungry(token);
        let conn = &mut self.conns[token.index as usize];
        let waits = conn.input.as_ref().is_some_and(|input| !input.bytes.is_empty());
        if conn.has(PEER_ENDED) && !waits && conn.phase != Phase::Polling {
            return self.close(token, CloseReason::PeerDone, false);
        }
        let hungry = !waits && (conn.phase != Phase::Socket || hungry_socket) && !conn.has(PEER_ENDED);
        if hungry && conn.has(PAUSED) {
            conn.flags &= !PAUSED;
            self.ops.push((token, Op::Recv));
        } else if !hungry && !conn.has(PAUSED | PEER_ENDED) {
            conn.flags |= PAUSED;
            self.ops.push((token, Op::Pause));
        }
    }

    /// The ring has passed a subscriber whose channel says that it is then to go.
    fn overrun(&mut self, token: Token) {
        if self.conns[token.index as usize].phase == Phase::Socket {
            let out = self.out.tail(&mut self.buffers);
            websocket::put_close(out, form::CLOSE_GAP, "too slow: messages are missing");
            self.end_after(token, CloseReason::Overrun);
            self.settle(token);
        } else {
            self.close(token, CloseReason::Overrun, false);
        }
    }

    /// A send of a subscriber has ended.
    pub(crate) fn subscriber_sent(&mut self, token: Token) {
        let next_ns = self.due_ns(token);
        let conn = &mut self.conns[token.index as usize];
        conn.deadline_ns = next_ns;
        // The send has armed the timer for its rate window. A later deadline is armed when that timer fires.
        let armed_ns = self.now.mono_ns.saturating_add(self.policy.rate_window_ns);
        if next_ns < armed_ns {
            self.wheel.arm_earlier(token.index, next_ns);
        }
        let conn = &mut self.conns[token.index as usize];
        let (id, phase) = (SubscriberId(conn.record), conn.phase);
        let flight = std::mem::replace(&mut conn.flight, NONE);
        if flight != NONE {
            self.end_flight(flight, None);
        }
        if phase == Phase::Polling {
            return self.poll_goes_on(token);
        }
        if self.conns[token.index as usize].has(LAST) {
            return self.end(token);
        }
        if self.right_has_ended(token) {
            return self.expire(token);
        }
        if phase == Phase::Socket {
            let waiting =
                self.sockets.get_mut(&token.index).map(SocketState::take_waiting).unwrap_or_default();
            if !waiting.is_empty() {
                self.segments.push(Segment::Bytes(waiting));
                return self.settle(token);
            }
            if self.conns[token.index as usize].input.is_some() {
                self.resume_input(token);
                self.settle(token);
                if !self.conn(token).is_some_and(|conn| conn.phase == Phase::Socket && !conn.has(SENDING)) {
                    return;
                }
            }
        }
        if let Some(room) = &mut self.room {
            if !room.stash.is_empty()
                && let Some(bytes) = room.stash.remove(&token.index)
            {
                return self.send_stream(token, bytes);
            }
            if id.0 != NONE {
                room.hub.sent(id);
                room.pending = true;
            }
        }
        if self.conns[token.index as usize].has(PAUSED) {
            // What came while something was being sent is dealt with: there is room for more.
            self.settle(token);
        }
    }

    /// The answer before a poll's has left.
    fn poll_goes_on(&mut self, token: Token) {
        let Some(room) = &mut self.room else { return };
        if let Some(bytes) = room.stash.remove(&token.index) {
            return self.answer_poll(token, Some(bytes));
        }
        let until_ns = room.extras.get(&token.index).and_then(|extra| extra.until_ns);
        let left_ns = until_ns.unwrap_or(0).saturating_sub(self.now.mono_ns);
        if left_ns == 0 {
            return self.poll_overdue(token);
        }
        self.set_deadline(token, left_ns);
    }

    /// The client of a poll has ended its side of the connection. It may be gone, or still read a response: the poll responds
    /// at once, as with `wait=0`.
    pub(crate) fn hurry_poll(&mut self, token: Token) {
        if !self.conns[token.index as usize].has(SENDING) {
            return self.set_deadline(token, 0);
        }
        if let Some(room) = &mut self.room
            && let Some(extra) = room.extras.get_mut(&token.index)
        {
            extra.until_ns = None;
        }
    }

    /// A poll has waited long enough, and ends if there is nothing for it.
    fn poll_overdue(&mut self, token: Token) {
        let id = SubscriberId(self.conns[token.index as usize].record);
        if self.waits_in_vain(token) {
            return self.turn_away_at_last(token);
        }
        if self.room.as_ref().is_some_and(|room| !room.hub.waits(id)) {
            // Its channel is still on its way from the first worker, or a slice is about to answer it.
            return self.set_deadline(token, SERVING_NS);
        }
        self.answer_poll(token, None);
    }

    /// Time has come for a connection that listens and to which nothing is being sent.
    pub(crate) fn subscriber_overdue(&mut self, token: Token) {
        let conn = &self.conns[token.index as usize];
        let (phase, form) = (conn.phase, conn.form);
        if phase == Phase::Polling {
            return self.poll_overdue(token);
        }
        if self.right_has_ended(token) {
            return self.expire(token);
        }
        if phase == Phase::Socket && self.conns[token.index as usize].input.is_some() {
            self.await_due(token);
            self.resume_input(token);
            return self.settle(token);
        }
        if !self.has_begun(token) {
            // Its head has not left, and nothing may come before that. A cluster whose NATS is away opens no channel.
            if self.draining() {
                return self.close(token, CloseReason::Drain, false);
            }
            if self.waits_in_vain(token) {
                return self.turn_away_at_last(token);
            }
            return self.await_due(token);
        }
        let form = Form(form);
        if self.draining() {
            let retry_ms = self.retry_ms(token);
            return self.end_subscriber(token, &form::farewell(form, retry_ms), CloseReason::Drain);
        }
        self.out.tail(&mut self.buffers).extend_from_slice(&form::heartbeat(form));
        self.settle(token);
    }

    /// Ends a subscriber whose token or certificate has expired, between two sends.
    fn expire(&mut self, token: Token) {
        if !self.has_begun(token) {
            // No part of a response has left: the client's next request is rejected with a reason.
            return self.close(token, CloseReason::TokenExpired, false);
        }
        let retry_ms = self.retry_ms(token);
        let mut bytes = self.sockets.get_mut(&token.index).map(SocketState::take_waiting).unwrap_or_default();
        let form = Form(self.conns[token.index as usize].form);
        bytes.extend_from_slice(&form::expired(form, retry_ms));
        if self.conns[token.index as usize].phase == Phase::Socket {
            // The kernel would answer a message in transit with a reset, and the client would never see the Close.
            self.conns[token.index as usize].flags |= LINGER;
        }
        self.end_subscriber(token, &bytes, CloseReason::TokenExpired);
    }

    /// Sends the last bytes of a subscriber and then closes its connection.
    fn end_subscriber(&mut self, token: Token, bytes: &[u8], reason: CloseReason) {
        self.end_after(token, reason);
        self.out.tail(&mut self.buffers).extend_from_slice(bytes);
        self.settle(token);
        if self.conn(token).is_some_and(|conn| !conn.has(SENDING) && conn.has(LAST)) {
            self.end(token);
        }
    }

    /// Whether a subscriber was told where it begins, or is about to be.
    fn has_begun(&self, token: Token) -> bool {
        let id = SubscriberId(self.conns[token.index as usize].record);
        let begun = |room: &Room| room.hub.has_begun(id) || room.resumed.contains(&token.index);
        id.0 == NONE || self.room.as_deref().is_none_or(begun)
    }

    /// When this client is to come back: the setting, half more or less, so that not all come at once.
    pub(crate) fn retry_ms(&mut self, token: Token) -> u64 {
        let retry_ms = self.room.as_ref().map_or(2_000, |room| room.plan.retry_ms);
        // A multiplicative hash of what differs between connections: no need for a better one.
        let seed = u64::from(token.index) << 32 ^ u64::from(token.generation) ^ self.now.mono_ns;
        let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        retry_ms / 2 + spread % retry_ms.max(1)
    }

    /// New settings hold: who may not listen any more is sent away, and who speaks does so with the rights it has now.
    pub(crate) fn renew_rights(&mut self, plan: &PushPlan) {
        // Most who speak share one identity: they shall share the new one, too.
        let mut renewed: Option<(Identity, Identity)> = None;
        for index in self.conns.places() {
            let conn = &self.conns[index as usize];
            if !conn.subscribes() || conn.record == NONE {
                continue;
            }
            let token = Token { index, generation: conn.generation };
            let Some(room) = &mut self.room else { return };
            let holds = match room.extras.get_mut(&index) {
                Some(extra) => extra.renew(plan),
                None => plan.rights.admits_nobody(),
            };
            if !holds {
                self.close(token, CloseReason::TokenExpired, false);
            } else if let Some(state) = self.sockets.get_mut(&index)
                && let Role::Push(speaker) = &mut state.role
            {
                let known = renewed.as_ref().filter(|(old, _)| old.is(&speaker.identity));
                let new = match known {
                    Some((_, new)) => Some(new.clone()),
                    None => plan.rights.renew(&speaker.identity),
                };
                if let Some(new) = new {
                    let old = std::mem::replace(&mut speaker.identity, new.clone());
                    renewed = Some((old, new));
                }
            }
        }
    }

    /// At a drain subscribers go one by one, over most of its time.
    pub(crate) fn spread_farewells(&mut self, time_ns: u64) {
        self.farewells = Some((self.now.mono_ns, time_ns / 4 * 3));
        for index in self.conns.places() {
            let conn = &self.conns[index as usize];
            let token = Token { index, generation: conn.generation };
            // A subscriber with a send in flight gets its deadline when that has left.
            if conn.subscribes() && !conn.has(SENDING) {
                self.await_due(token);
            }
        }
    }

    /// When a subscriber goes, once the server stops.
    fn farewell_ns(&self, token: Token) -> Option<u64> {
        let (start_ns, spread_ns) = self.farewells?;
        // Neighbours go far from each other: those who came together do not come back together.
        let after_ns = u64::from(token.index).wrapping_mul(0x9e37_79b9_7f4a_7c15) % spread_ns.max(1);
        Some(start_ns + after_ns)
    }

    // ---- WebSocket ----

    /// Bytes of a WebSocket, which are looked at unless something is being sent.
    pub(crate) fn frames(&mut self, token: Token, bytes: &mut [u8]) {
        let Some(mut state) = self.sockets.remove(&token.index) else { return };
        let rules = self.socket_rules(token, &state.role);
        let SocketState { role, traffic } = &mut state;
        let traffic = traffic.get_or_insert_default();
        let mut codec = std::mem::take(&mut self.codec);
        let mut out = self.buffers.take();
        let mut used = 0;
        codec.inflation.made_bytes = 0;
        while used < bytes.len()
            && !self.conns[token.index as usize].has(LAST)
            && codec.inflation.made_bytes < INFLATED_BYTES_MAX
        {
            let (heard, taken) = match traffic.read(&mut bytes[used..], &rules, &mut codec.inflation) {
                Ok(read) => read,
                Err(failure) => {
                    self.metrics.refused(failure.reason());
                    websocket::put_close(&mut out, failure.code(), &failure.to_string());
                    self.end_after(token, CloseReason::Refused);
                    self.conns[token.index as usize].flags |= LINGER;
                    break;
                }
            };
            used += taken;
            match (heard, &mut *role) {
                (None, _) => {}
                (Some(Heard::Ping(payload)), _) => websocket::put_frame(&mut out, Opcode::Pong, payload),
                (Some(Heard::Close(code)), _) => {
                    match code {
                        Some(code) => websocket::put_close(&mut out, code, ""),
                        None => websocket::put_frame(&mut out, Opcode::Close, b""),
                    }
                    self.end_after(token, CloseReason::PeerDone);
                }
                (Some(Heard::Message(message)), Role::Handler { socket, .. }) => {
                    let deflater = rules.deflate.then_some(&mut codec.deflater);
                    let mut answers = Answers { out: &mut out, deflater };
                    let called = catch_unwind(AssertUnwindSafe(|| socket.message(message, &mut answers)));
                    if called.is_err() {
                        self.metrics.handler_panics.add(1);
                        websocket::put_close(&mut out, 1011, "the server has made a mistake");
                        self.end_after(token, CloseReason::HandlerPanic);
                    }
                }
                (Some(Heard::Message(_)), Role::Push(speaker))
                    if speaker.identity.has_expired(self.now.unix_s()) =>
                {
                    let form = Form(self.conns[token.index as usize].form);
                    out.extend_from_slice(&form::expired(form, 0));
                    self.end_after(token, CloseReason::TokenExpired);
                    self.conns[token.index as usize].flags |= LINGER;
                }
                (Some(Heard::Message(message)), Role::Push(speaker)) => {
                    let tell = speaker.channel.is_none();
                    let deed = speaker.hear(message, &mut out);
                    let deed = self.paced(token, speaker, deed, &mut out);
                    self.act(token, deed, tell, &mut traffic.unanswered, &mut out);
                }
            }
        }
        self.codec = codec;
        state.rest();
        self.sockets.insert(token.index, state);
        if used < bytes.len() && !self.conns[token.index as usize].has(LAST) {
            self.put_off(token, &bytes[used..]);
        }
        if out.is_empty() {
            self.buffers.give(out);
        } else {
            self.segments.push(Segment::Bytes(out));
        }
    }

    /// Keeps what a WebSocket has sent until others have had their turn: to the next tick of the wheel, or to the end
    /// of the send that begins now.
    fn put_off(&mut self, token: Token, rest: &[u8]) {
        let mut bytes = self.buffers.take();
        bytes.extend_from_slice(rest);
        let head = self.spare_head();
        self.conns[token.index as usize].input = Some(Box::new(Input { bytes, head, parsing: false }));
        self.set_deadline(token, 0);
    }

    /// What a WebSocket may send us.
    fn socket_rules(&self, token: Token, role: &Role) -> Rules {
        let message_bytes_max = match role {
            Role::Handler { message_bytes_max, .. } => *message_bytes_max,
            Role::Push(_) => self.room.as_ref().map_or(0, |room| socket::bytes_max(&room.plan.rules)),
        };
        let form = Form(self.conns[token.index as usize].form);
        Rules {
            deflate: form::has(form, form::DEFLATED),
            ..Rules::new(websocket::Peer::Client, message_bytes_max)
        }
    }

    /// Does what a speaker wants.
    fn act(&mut self, token: Token, deed: Deed, tell: bool, unanswered: &mut u32, out: &mut Vec<u8>) {
        let id = SubscriberId(self.conns[token.index as usize].record);
        let Some(room) = &mut self.room else { return };
        match deed {
            Deed::Nothing => {}
            Deed::Close => self.end_after(token, CloseReason::Refused),
            Deed::Publish(reference, draft) => {
                *unanswered += 1;
                let core = room.core;
                room.speak(self.now, Spoken { core, token, reference, draft, tell });
                room.pending = true;
            }
            Deed::Change { add, remove, reference } => {
                match room.hub.change(hub_now(self.now), id, &add, &remove) {
                    Ok(id) => {
                        self.conns[token.index as usize].record = id.0;
                        room.changing.push((token, reference));
                        if let Some(Extra { right: Some((_, channels)), .. }) =
                            room.extras.get_mut(&token.index)
                        {
                            channels.retain(|channel| !remove.contains(channel));
                            channels.extend(add);
                        }
                    }
                    Err(error) => {
                        socket::put_error(out, reference, refused_status(&error), &error.to_string());
                    }
                }
                room.pending = true;
            }
        }
    }

    /// Tells WebSockets that the channels they asked for are here: what is published from now on reaches them.
    pub(crate) fn confirm_changes(&mut self) {
        let Some(room) = &mut self.room else { return };
        for (token, reference) in std::mem::take(&mut room.changing) {
            let Some(conn) = self.conn(token).filter(|conn| conn.phase == Phase::Socket) else { continue };
            let id = SubscriberId(conn.record);
            let Some(room) = &mut self.room else { return };
            let Some(position) = room.hub.position_of(id) else {
                room.changing.push((token, reference));
                continue;
            };
            let mut answer = Vec::new();
            socket::put_ok(&mut answer, reference, &format!(",\"id\":\"{position}\""));
            self.say(token, &answer);
        }
    }

    /// The answer to a publish by WebSocket.
    pub(crate) fn heard(&mut self, token: Token, answer: &[u8]) {
        if !self.conn(token).is_some_and(|conn| conn.phase == Phase::Socket) {
            return;
        }
        let Some(state) = self.sockets.get_mut(&token.index) else { return };
        state.answered();
        self.say(token, answer);
    }

    /// Sends frames of a WebSocket's own, or keeps them until what is being sent has left.
    fn say(&mut self, token: Token, frames: &[u8]) {
        if !self.conns[token.index as usize].has(SENDING) {
            self.out.tail(&mut self.buffers).extend_from_slice(frames);
        } else if !frames.is_empty()
            && let Some(state) = self.sockets.get_mut(&token.index)
        {
            state.waiting().extend_from_slice(frames);
        }
        self.settle(token);
    }

    /// Whether a WebSocket is to be read.
    pub(crate) fn socket_is_hungry(&self, token: Token) -> bool {
        let traffic = self.sockets.get(&token.index).and_then(|state| state.traffic.as_ref());
        traffic.is_none_or(|traffic| traffic.unanswered < UNANSWERED_MAX)
    }
}
