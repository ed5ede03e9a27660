//! Admission: limits new subscribers per second, and gives rejected ones their retry times.
//!
//! ```text
//! subscribes ─┬─ the server drains ──────────────────► Away: drain       ┐
//!             ├─ only reserved connections are left ─► Away: connections │ retries at its own place of a
//!             ├─ more than `push.admission` a second ► Away: admission   ┘ queue that is as long as needed
//!             ├─ opens channels faster than
//!             │  `push.channel_rate` ────────────────► Away: channels      retries when the rate allows
//!             └─ admitted ─── its channel cannot be
//!                             opened in time ────────► Away: outage        retries after `retry`
//!
//! transport        response
//! event stream     200, `retry: N`, the end (an EventSource reconnects after no other status)
//! NDJSON, poll     503 with Retry-After; 429 if it opens channels too fast
//! WebSocket        101, then Close 1013 (1012 at a drain) with N as its reason: a page sees no details of a
//!                  rejected handshake
//! ```
//! After an outage all clients reconnect at once. An admission costs about 15 µs, during which no message is sent. A rejection
//! costs less and spreads the load. The places of the queue are `1 / rate` apart, so rejected clients return exactly as fast as
//! they can be admitted. On top of that, `retry` ± 50 % separates clients that were rejected at the same moment.
//!
//! A further poll on the same connection is always admitted, unless it opens channels too fast.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_hub::{Form, Name, SubscriberId, TokenBucket};
use encke_stats::{Family, LastSecond};
use encke_wire::websocket;

use super::address_rates::{CHANNELS_TOO_FAST, TOO_FAST, TooFast};
use super::form::{self, MessageForm};
use super::negotiate::refusal;
use super::push_worker::{PushWorker, Subscription, hub_now};
use super::reject::{RejectReason, SubscriberTransport};
use super::socket::{self, SocketAction, SocketPublisher};
use crate::push_worker::NONE;
use encke_rights::Share;
use encke_server::{Asked, Body, Reply, Slot};

/// The limit on new subscribers, shared by all workers.
#[derive(Debug)]
pub(crate) struct Admission {
    rate: Option<NonZeroU32>,
    pace: TokenBucket,
    /// When the token bucket is full again, on the monotonic clock in ns.
    full_ns: AtomicU64,
    /// The last retry time in the queue, on the monotonic clock in ns.
    queue_ns: AtomicU64,
    /// Admissions per second.
    tally: LastSecond,
}

/// The queue's rate if admissions are unlimited: the default limit.
const QUEUE_RATE: NonZeroU32 = crate::settings::ADMISSION;

/// The burst, as seconds of the rate: a crowd that was just admitted, is cut and reconnects at once is admitted again.
const BURST_S: u64 = 2;

/// Limit of a retry time. At the default rate a queue of five minutes has six million clients.
const QUEUE_NS_MAX: u64 = 300_000_000_000;

/// One in this many connections is reserved for requests that do not subscribe.
const CONNECTIONS_PER_KEPT: usize = 100;

/// Close code: a WebSocket without envelopes has published faster than allowed.
const CLOSE_TOO_FAST: u16 = 4429;

impl Admission {
    /// Admits at most `rate` subscribers a second, and [`BURST_S`] times as many at once; `None`: any number.
    pub(crate) fn new(rate: Option<NonZeroU32>) -> Self {
        let paced = rate.unwrap_or(QUEUE_RATE);
        Self {
            rate,
            pace: TokenBucket::new(paced, u64::from(paced.get()) * BURST_S),
            full_ns: AtomicU64::new(0),
            queue_ns: AtomicU64::new(0),
            tally: LastSecond::default(),
        }
    }

    /// Returns the limit of admissions per second, if there is one.
    pub(crate) const fn rate(&self) -> Option<NonZeroU32> {
        self.rate
    }

    /// Admits one more subscriber if the rate allows it.
    pub(crate) fn admit(&self, now_ns: u64) -> bool {
        let admitted = self.rate.is_none() || {
            let take = |full_ns| self.pace.take(full_ns, now_ns, 1).ok();
            self.full_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        };
        if admitted {
            self.tally.add(now_ns);
        }
        admitted
    }

    /// Assigns the next place of the queue. Returns the time until then, in ns.
    pub(crate) fn queue(&self, now_ns: u64) -> u64 {
        let next = |last_ns: u64| {
            let place_ns = last_ns.max(now_ns).saturating_add(self.pace.interval_ns());
            Some(place_ns.min(now_ns.saturating_add(QUEUE_NS_MAX)))
        };
        let before = self.queue_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let before_ns = before.unwrap_or_else(|unchanged| unchanged);
        next(before_ns).unwrap_or(before_ns).saturating_sub(now_ns)
    }

    /// Returns the metrics that all workers share.
    pub(crate) fn families(&self, now_ns: u64) -> [Family; 2] {
        [
            Family::gauge(
                "encke_push_admissions_per_second",
                "Subscribers admitted in the last complete second.",
            )
            .value(self.tally.whole(now_ns)),
            Family::gauge("encke_push_retrying", "Rejected subscribers whose retry time is not over yet.")
                .value(self.expected(now_ns)),
        ]
    }

    /// Returns the number of rejected clients that are expected back.
    fn expected(&self, now_ns: u64) -> u64 {
        let left_ns = self.queue_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        left_ns.div_ceil(self.pace.interval_ns().max(1))
    }
}

impl PushWorker {
    /// Admits a subscription. If it is rejected, returns the reason and the retry time in ms.
    pub(crate) fn rejection(
        &self,
        slot: &Slot<'_>,
        subscription: &Subscription,
    ) -> Option<(RejectReason, u64)> {
        let transport = SubscriberTransport::of(subscription.kind);
        // A later poll of a connection takes no resources that the connection does not have already.
        let goes_on = transport == SubscriberTransport::Poll && slot.requests() > 1;
        // During a drain a poll is answered at once with the messages available.
        let away = if slot.draining() && transport != SubscriberTransport::Poll {
            RejectReason::Drain
        } else if !goes_on && connections_are_short(slot) {
            RejectReason::Connections
        } else {
            if !goes_on {
                if !self.plan.admission.admit(slot.now().mono_ns) {
                    return Some((
                        RejectReason::Admission,
                        self.when_to_come_back(slot, transport, RejectReason::Admission),
                    ));
                }
                self.counters.admissions.add(1);
            }
            // Last, because a client that is rejected for another reason opens no channel.
            if !subscription.limited {
                return None;
            }
            let now_ns = slot.now().mono_ns;
            let too_fast = self.open(subscription.client, &subscription.channels, now_ns).err()?;
            let retry_ms = self.when_to_come_back(slot, transport, RejectReason::Channels);
            return Some((RejectReason::Channels, retry_ms.saturating_add(too_fast.wait_ns() / 1_000_000)));
        };
        Some((away, self.when_to_come_back(slot, transport, away)))
    }

    /// Counts a rejection, and returns the retry time in ms.
    fn when_to_come_back(&self, slot: &Slot<'_>, transport: SubscriberTransport, away: RejectReason) -> u64 {
        self.counters.count_rejected(away, transport);
        let queue_ns = match away {
            RejectReason::Connections | RejectReason::Admission | RejectReason::Drain => {
                self.plan.admission.queue(slot.now().mono_ns)
            }
            RejectReason::Outage | RejectReason::Channels => 0,
        };
        self.retry_ms(slot).saturating_add(queue_ns / 1_000_000)
    }

    /// Returns the retry time in ms of a subscriber that a drain disconnects. If the drain ends subscribers faster than
    /// `push.admission`, the queue delays their return to that rate.
    pub(crate) fn farewell_retry_ms(&self, slot: &Slot<'_>) -> u64 {
        let queue_ns = self.plan.admission.queue(slot.now().mono_ns);
        self.retry_ms(slot).saturating_add(queue_ns / 1_000_000)
    }

    /// Counts the channels that a client is about to open, at its address.
    ///
    /// # Errors
    /// They exceed the rate.
    fn open(&self, client: u64, channels: &[Name], now_ns: u64) -> Result<(), TooFast> {
        let Some(rates) = &self.plan.channel_rates else { return Ok(()) };
        match self.hub.unknown(channels) as u64 {
            0 => Ok(()),
            opened => rates.admit(client, opened, now_ns),
        }
    }

    /// Returns whether a subscriber waits for data of a cluster that cannot be reached.
    pub(crate) fn waits_in_vain(&self, slot: &Slot<'_>) -> bool {
        let id = SubscriberId(slot.word());
        let outage = self.plan.cluster.as_ref().is_some_and(|cluster| !cluster.is_up());
        id.0 != NONE && outage && self.hub.depends_on_others(id, hub_now(slot.now()))
    }

    /// Rejects a subscriber that was admitted and waited through an outage. It has received no part of a response.
    pub(crate) fn reject_waiting(&mut self, slot: &mut Slot<'_>) {
        let form = Form(slot.form());
        let kind = form::kind(form);
        let away = (
            RejectReason::Outage,
            self.when_to_come_back(slot, SubscriberTransport::of(kind), RejectReason::Outage),
        );
        let share = self.leave_unanswered(slot);
        if form::is_socket(kind) {
            close_rejected(slot, away);
        } else {
            let mut asked = Asked::unread(slot.token());
            asked.framing = form::framing(form);
            self.reject_request(slot, asked, away, kind, &share);
        }
        slot.settle();
    }

    /// Removes a subscriber that has received no part of a response, and puts the handshake of a WebSocket. Returns the pages
    /// that may read the response.
    pub(crate) fn leave_unanswered(&mut self, slot: &mut Slot<'_>) -> Share {
        if let Some(mut state) = self.sides.take_socket(slot.place()) {
            state.put_handshake(slot);
            slot.out().extend_from_slice(&state.take_waiting());
        }
        let share = self.sides.take_share(slot.place());
        self.leave(slot.place(), slot.word());
        slot.set_word(NONE);
        share
    }

    /// Sends the rejection of a stream or poll.
    pub(crate) fn reject_request(
        &self,
        slot: &mut Slot<'_>,
        asked: Asked,
        (away, retry_ms): (RejectReason, u64),
        kind: MessageForm,
        share: &Share,
    ) {
        let reply = if SubscriberTransport::of(kind) == SubscriberTransport::Sse {
            let mut body = Vec::new();
            encke_wire::sse::put_retry(&mut body, retry_ms);
            body.push(b'\n');
            Reply::new(200)
                .with("Content-Type", "text/event-stream")
                .with("Cache-Control", "no-store, no-transform")
                .with("X-Accel-Buffering", "no")
                .body(Body::Bytes(body))
        } else {
            let seconds = retry_ms.div_ceil(1_000);
            refusal(away.status(), format!("{}: retry in {seconds} s", away.text()))
                .with("Retry-After", seconds.to_string())
                .because(&"rejected")
        };
        slot.set_reason(away.close_reason());
        slot.respond(asked, share.onto(reply).and_close());
    }

    /// Applies the limits by client address to a command of a WebSocket. A command beyond a limit is rejected: it becomes
    /// [`SocketAction::Nothing`], or [`SocketAction::Close`] without envelopes.
    pub(crate) fn paced(
        &self,
        slot: &Slot<'_>,
        speaker: &SocketPublisher,
        deed: SocketAction,
        out: &mut Vec<u8>,
    ) -> SocketAction {
        let now_ns = slot.now().mono_ns;
        let reference = match &deed {
            SocketAction::Publish(reference, _) => reference,
            SocketAction::Change { add, reference, .. } if !speaker.identity.is_unlimited() => {
                // A client without a token may have no request details. Its publisher is then its address.
                let request = self.sides.request(slot.place());
                let client = request.map_or(speaker.publisher, |request| request.client);
                let Err(too_fast) = self.open(client, add, now_ns) else { return deed };
                slot.count_refusal(CHANNELS_TOO_FAST);
                socket::put_error(out, *reference, 429, &too_fast.to_string());
                return SocketAction::Nothing;
            }
            _ => return deed,
        };
        let rates = self.plan.anonymous_rates.as_ref();
        let Some(rates) = rates.filter(|_| speaker.identity.publishes_anonymously()) else { return deed };
        let Err(too_fast) = rates.admit(speaker.publisher, 1, now_ns) else { return deed };
        slot.count_refusal(TOO_FAST);
        if speaker.channel.is_none() {
            socket::put_error(out, *reference, 429, &too_fast.to_string());
            return SocketAction::Nothing;
        }
        // Without envelopes, only a Close can report the rejection. Its reason has room for 123 bytes.
        websocket::put_close(out, CLOSE_TOO_FAST, "push.anonymous_rate: publish slower, or with a token");
        SocketAction::Close
    }
}

/// Rejects a WebSocket whose 101 is written.
pub(crate) fn close_rejected(slot: &mut Slot<'_>, (away, retry_ms): (RejectReason, u64)) {
    websocket::put_close(slot.out(), away.close_code(), &retry_ms.to_string());
    slot.part(away.close_reason());
}

/// Returns whether only reserved connections are left. Subscribers stay connected, and would otherwise exclude publishers.
fn connections_are_short(slot: &Slot<'_>) -> bool {
    let (open, most) = slot.connections();
    open > most - most / CONNECTIONS_PER_KEPT
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn admission(rate: u32) -> Admission {
        Admission::new(NonZeroU32::new(rate))
    }

    #[test]
    fn as_many_are_admitted_at_once_as_in_two_seconds() {
        let admission = admission(1_000);
        let at = |now_ns| (0..3_000).filter(|_| admission.admit(now_ns)).count();
        assert_eq!(at(SECOND_NS), 2_000);
        assert_eq!(at(SECOND_NS + SECOND_NS / 2), 500);
        assert_eq!(at(9 * SECOND_NS), 2_000);
    }

    #[test]
    fn without_a_limit_all_are_admitted() {
        let admission = admission(0);
        assert!((0..100_000).all(|_| admission.admit(0)));
        assert_eq!(admission.tally.whole(SECOND_NS), 100_000);
    }

    #[test]
    fn who_is_turned_away_gets_a_place_in_the_queue() {
        let admission = admission(1_000);
        for place in 1..=5_000 {
            assert_eq!(admission.queue(0), place * SECOND_NS / 1_000);
        }
        assert_eq!(admission.expected(0), 5_000);
        assert_eq!(admission.expected(SECOND_NS), 4_000);
        assert_eq!(admission.queue(SECOND_NS), 4 * SECOND_NS + SECOND_NS / 1_000);
        assert_eq!(admission.expected(60 * SECOND_NS), 0);
        for _ in 0..1_000_000 {
            assert!(admission.queue(60 * SECOND_NS) <= QUEUE_NS_MAX);
        }
    }

    /// A storm in the virtual time of this loop: 100,000 clients arrive at once, and rejected ones return at their retry time.
    #[test]
    fn a_storm_is_over_as_soon_as_it_can_be_and_nobody_comes_in_vain_often() {
        let rate = 20_000;
        let admission = admission(rate);
        // The arrivals: time, and number of earlier tries.
        let mut coming: BinaryHeap<Reverse<(u64, u32)>> = vec![Reverse((0, 0)); 100_000].into();
        let (mut end_ns, mut most_tries, mut seed) = (0, 0, 1_u64);
        while let Some(Reverse((now_ns, tries))) = coming.pop() {
            (end_ns, most_tries) = (now_ns, most_tries.max(tries + 1));
            if !admission.admit(now_ns) {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let jitter_ns = SECOND_NS + (seed >> 32) % (2 * SECOND_NS);
                coming.push(Reverse((now_ns + admission.queue(now_ns) + jitter_ns, tries + 1)));
            }
        }
        // 60,000 at 20,000 a second take 3 s, and the last client returns up to 3 s later.
        assert!(end_ns <= 7 * SECOND_NS, "{} ms", end_ns / 1_000_000);
        assert!(most_tries <= 4, "{most_tries}");
    }
}
