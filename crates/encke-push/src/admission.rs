//! Admission: how many may begin to listen a second, and when those come back who are turned away.
//!
//! ```text
//! begins to listen ─┬─ the server stops ───────────────────► Away: drain        comes back after `retry`
//!                   ├─ only the last connections are left ─► Away: connections ┐ comes back in its own place of a
//!                   ├─ more than `push.admission` a second ► Away: admission   ┘ queue that is as long as it must be
//!                   ├─ opens channels faster than
//!                   │  `push.channel_rate` ────────────────► Away: channels     comes back when it may
//!                   └─ admitted ─── its channel cannot be
//!                                   opened in time ────────► Away: outage        comes back after `retry`
//!
//! told by     event stream     200, `retry: N`, the end (an EventSource comes back after no other status)
//!             NDJSON, poll     503 with Retry-After; 429 if it opens channels too fast
//!             WebSocket        101, then Close 1013 (1012 at a drain) with N as its reason: of a refused handshake a
//!                              page is told nothing
//! ```
//! After an outage everybody comes back at once. Whoever is admitted costs some 15 µs, and while they come no message
//! goes out; whoever is turned away costs less, and comes back in time. The places of the queue are `1 / rate` apart, so
//! that those who were turned away come back as fast as they can be admitted and no faster; `retry` ± 50 % on top of
//! that keeps apart who was told in the same moment.
//!
//! A further poll on the same connection is always admitted, unless it opens channels too fast.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use encke_hub::{Form, Name, Pace, SubscriberId};
use encke_stats::{Family, LastSecond};
use encke_wire::websocket;

use super::away::{Away, Transport};
use super::form::{self, Kind};
use super::negotiate::refusal;
use super::pace::{CHANNELS_TOO_FAST, TOO_FAST, TooFast};
use super::room::{Room, Subscription, hub_now};
use super::socket::{self, Deed, Speaker};
use crate::room::NONE;
use encke_rights::Share;
use encke_server::{Asked, Body, Reply, Slot};

/// How many may begin to listen; one for all workers.
#[derive(Debug)]
pub(crate) struct Admission {
    rate: Option<NonZeroU32>,
    pace: Pace,
    /// When all places are free again, on the monotonic clock in ns.
    full_ns: AtomicU64,
    /// When the last one of the queue is expected.
    queue_ns: AtomicU64,
    /// Admissions.
    tally: LastSecond,
}

/// The queue's pace where there is no limit to admissions: that of the default.
const QUEUE_RATE: NonZeroU32 = crate::settings::ADMISSION;

/// Places at most, as seconds of the rate: a crowd that has just come, is cut, and comes again at once is let in.
const BURST_S: u64 = 2;

/// Nobody is sent away for longer. A queue of five minutes are six million clients.
const QUEUE_NS_MAX: u64 = 300_000_000_000;

/// Of so many connections one is kept for those who do not listen.
const CONNECTIONS_PER_KEPT: usize = 100;

/// A WebSocket without envelopes has published faster than it may.
const CLOSE_TOO_FAST: u16 = 4429;

impl Admission {
    /// At most `rate` a second, and [`BURST_S`] times as many at once; `None`: any number.
    pub(crate) fn new(rate: Option<NonZeroU32>) -> Self {
        let paced = rate.unwrap_or(QUEUE_RATE);
        Self {
            rate,
            pace: Pace::new(paced, u64::from(paced.get()) * BURST_S),
            full_ns: AtomicU64::new(0),
            queue_ns: AtomicU64::new(0),
            tally: LastSecond::default(),
        }
    }

    /// Admissions a second, if they have a limit.
    pub(crate) const fn rate(&self) -> Option<NonZeroU32> {
        self.rate
    }

    /// Whether one more may begin to listen; it then does.
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

    /// Gives the next place of the queue: for how long to stay away, in ns.
    pub(crate) fn queue(&self, now_ns: u64) -> u64 {
        let next = |last_ns: u64| {
            let place_ns = last_ns.max(now_ns).saturating_add(self.pace.interval_ns());
            Some(place_ns.min(now_ns.saturating_add(QUEUE_NS_MAX)))
        };
        let before = self.queue_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let before_ns = before.unwrap_or_else(|unchanged| unchanged);
        next(before_ns).unwrap_or(before_ns).saturating_sub(now_ns)
    }

    /// What is true of all workers at this moment.
    pub(crate) fn families(&self, now_ns: u64) -> [Family; 2] {
        [
            Family::gauge(
                "encke_push_admissions_per_second",
                "Subscribers that began to listen in the last whole second.",
            )
            .value(self.tally.whole(now_ns)),
            Family::gauge(
                "encke_push_expected",
                "Subscribers that were turned away and told to come back, and have not been due yet.",
            )
            .value(self.expected(now_ns)),
        ]
    }

    /// How many of those who were turned away are still expected.
    fn expected(&self, now_ns: u64) -> u64 {
        let left_ns = self.queue_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        left_ns.div_ceil(self.pace.interval_ns().max(1))
    }
}

impl Room {
    /// Whether a connection may begin to listen in this way. If not: why, and after how many ms to come back.
    pub(crate) fn turn_away(&self, slot: &Slot<'_>, subscription: &Subscription) -> Option<(Away, u64)> {
        let transport = Transport::of(subscription.kind);
        // One that goes on, or begins anew on a connection of its own, takes nothing that it did not have.
        let goes_on = transport == Transport::Poll && slot.requests() > 1;
        // At a drain a poll is answered at once with what there is.
        let away = if slot.draining() && transport != Transport::Poll {
            Away::Drain
        } else if !goes_on && connections_are_short(slot) {
            Away::Connections
        } else {
            if !goes_on {
                if !self.plan.admission.admit(slot.now().mono_ns) {
                    return Some((Away::Admission, self.when_to_come_back(slot, transport, Away::Admission)));
                }
                self.counters.admissions.add(1);
            }
            // Last, because a client that is turned away for another reason opens no channel.
            if !subscription.limited {
                return None;
            }
            let now_ns = slot.now().mono_ns;
            let too_fast = self.open(subscription.client, &subscription.channels, now_ns).err()?;
            let retry_ms = self.when_to_come_back(slot, transport, Away::Channels);
            return Some((Away::Channels, retry_ms.saturating_add(too_fast.wait_ns() / 1_000_000)));
        };
        Some((away, self.when_to_come_back(slot, transport, away)))
    }

    /// Somebody is turned away, and counted: after how many ms to come back.
    fn when_to_come_back(&self, slot: &Slot<'_>, transport: Transport, away: Away) -> u64 {
        self.counters.turned_away(away, transport);
        let queue_ns = match away {
            Away::Connections | Away::Admission => self.plan.admission.queue(slot.now().mono_ns),
            Away::Drain | Away::Outage | Away::Channels => 0,
        };
        self.retry_ms(slot).saturating_add(queue_ns / 1_000_000)
    }

    /// Counts the channels that a client is about to open, at its address.
    ///
    /// # Errors
    /// They are too many.
    fn open(&self, client: u64, channels: &[Name], now_ns: u64) -> Result<(), TooFast> {
        let Some(rates) = &self.plan.channel_rates else { return Ok(()) };
        match self.hub.unknown(channels) as u64 {
            0 => Ok(()),
            opened => rates.admit(client, opened, now_ns),
        }
    }

    /// Whether somebody waits in vain: for what the cluster has to say, which cannot be reached.
    pub(crate) fn waits_in_vain(&self, slot: &Slot<'_>) -> bool {
        let id = SubscriberId(slot.word());
        let outage = self.plan.cluster.as_ref().is_some_and(|cluster| !cluster.is_up());
        id.0 != NONE && outage && self.hub.depends_on_others(id, hub_now(slot.now()))
    }

    /// Turns one away that was admitted and has waited in vain. Nothing was said to it yet.
    pub(crate) fn turn_away_at_last(&mut self, slot: &mut Slot<'_>) {
        let form = Form(slot.form());
        let kind = form::kind(form);
        let away = (Away::Outage, self.when_to_come_back(slot, Transport::of(kind), Away::Outage));
        if let Some(mut state) = self.sides.take_socket(slot.place()) {
            state.put_handshake(slot);
            slot.out().extend_from_slice(&state.take_waiting());
        }
        let share = self.sides.take_share(slot.place());
        self.leave(slot.place(), slot.word());
        slot.set_word(NONE);
        if form::is_socket(kind) {
            close_turned_away(slot, away);
        } else {
            let mut asked = Asked::unread(slot.token());
            asked.framing = form::framing(form);
            self.answer_turned_away(slot, asked, away, kind, &share);
        }
        slot.settle();
    }

    /// Turns a request for messages away.
    pub(crate) fn answer_turned_away(
        &self,
        slot: &mut Slot<'_>,
        asked: Asked,
        (away, retry_ms): (Away, u64),
        kind: Kind,
        share: &Share,
    ) {
        let reply = if Transport::of(kind) == Transport::Sse {
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
            refusal(away.status(), format!("{}; come back in {seconds} s", away.text()))
                .with("Retry-After", seconds.to_string())
        };
        slot.set_reason(away.close_reason());
        slot.respond(asked, share.onto(reply).and_close());
    }

    /// Checks the limits by client address on what a WebSocket does. What exceeds one is refused, and becomes nothing or the
    /// end.
    pub(crate) fn paced(&self, slot: &Slot<'_>, speaker: &Speaker, deed: Deed, out: &mut Vec<u8>) -> Deed {
        let now_ns = slot.now().mono_ns;
        let reference = match &deed {
            Deed::Publish(reference, _) => reference,
            Deed::Change { add, reference, .. } if !speaker.identity.is_unlimited() => {
                // A client without a token may have no request details. Its publisher is then its address.
                let request = self.sides.request(slot.place());
                let client = request.map_or(speaker.publisher, |request| request.client);
                let Err(too_fast) = self.open(client, add, now_ns) else { return deed };
                slot.count_refusal(CHANNELS_TOO_FAST);
                socket::put_error(out, *reference, 429, &too_fast.to_string());
                return Deed::Nothing;
            }
            _ => return deed,
        };
        let rates = self.plan.anonymous_rates.as_ref();
        let Some(rates) = rates.filter(|_| speaker.identity.publishes_as_anybody()) else { return deed };
        let Err(too_fast) = rates.admit(speaker.publisher, 1, now_ns) else { return deed };
        slot.count_refusal(TOO_FAST);
        if speaker.channel.is_none() {
            socket::put_error(out, *reference, 429, &too_fast.to_string());
            return Deed::Nothing;
        }
        // Without envelopes there is no way to say it but the end, whose reason has room for 123 bytes.
        websocket::put_close(out, CLOSE_TOO_FAST, "push.anonymous_rate: publish slower, or with a token");
        Deed::Close
    }
}

/// Turns a WebSocket away whose 101 is written.
pub(crate) fn close_turned_away(slot: &mut Slot<'_>, (away, retry_ms): (Away, u64)) {
    slot.log(101, 0);
    websocket::put_close(slot.out(), away.close_code(), &retry_ms.to_string());
    slot.end_after(away.close_reason());
}

/// Whether only those connections are left that are kept for whoever does not listen: those who listen stay, and
/// would else shut out who publishes.
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

    /// A storm in the virtual time of this loop: 100,000 come in one moment, those who are turned away come when they
    /// were told to.
    #[test]
    fn a_storm_is_over_as_soon_as_it_can_be_and_nobody_comes_in_vain_often() {
        let rate = 20_000;
        let admission = admission(rate);
        // When they come, and how often they have.
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
        // 60,000 at 20,000 a second are 3 s, and the last one comes up to 3 s later.
        assert!(end_ns <= 7 * SECOND_NS, "{} ms", end_ns / 1_000_000);
        assert!(most_tries <= 4, "{most_tries}");
    }
}
