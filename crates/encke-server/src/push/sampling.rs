//! Figures of those who listen: what each takes, and what the kernel holds for some of them.
//!
//! To ask the kernel about every subscriber would cost what it tells about. So each second a few are looked at, others
//! every time, and stand for all; what this process keeps is known without a look.

use encke_hub::SUBSCRIBER_BYTES;
use encke_io::{Now, Reactor, Token};

use super::room::{Extra, hub_now};
use super::socket::SocketState;
use crate::conn::Conn;
use crate::conns::is_stream;
use crate::worker::Core;

/// Subscribers looked at a second, by two system calls each: some 10 µs in all.
const SAMPLES: i64 = 16;
/// Slots passed in search of them.
const LOOKS: usize = 256;

/// What a connection takes beside its slot: its place in the reactor (16 bytes, 20 under io_uring) and its entry in the
/// wheel of timers.
const SEAT_BYTES: usize = 20 + 12;

impl Core {
    /// Looks at some subscribers, and notes what all of them take.
    pub(crate) fn sample(&mut self, reactor: &impl Reactor) {
        let (mut count, mut unsent, mut most, mut kernel) = (0, 0, 0, 0);
        let slots = self.conns.len();
        for _ in 0..LOOKS.min(slots) {
            self.sample_hand = (self.sample_hand + 1) % slots;
            let place = self.conns.place(self.sample_hand);
            let conn = &self.conns[place as usize];
            if !conn.subscribes() {
                continue;
            }
            let token = Token { index: place, generation: conn.generation };
            // A stream has what its connection has not taken yet; in the kernel it has nothing of its own.
            let (bytes, held) = if is_stream(token) {
                (self.http2.unsent(token), 0)
            } else {
                (reactor.unacknowledged(token), reactor.buffered(token).unwrap_or(0))
            };
            let bytes = bytes as i64;
            unsent += bytes;
            most = most.max(bytes);
            kernel += held as i64;
            count += 1;
            if count == SAMPLES {
                break;
            }
        }
        let sample = &self.metrics.sample;
        sample.count.set(count);
        sample.unsent.set(unsent);
        sample.unsent_most.set(most);
        sample.kernel.set(kernel);
        let subscribers = self.room.as_ref().map_or(0, |room| room.hub.subscribers());
        sample.subscribers.set(subscribers as i64);
        sample.user.set(self.user_bytes(subscribers) as i64);
    }

    /// Notes for how long messages have waited for subscribers who could take them.
    pub(crate) fn note_queue_age(&self, now: Now) {
        let Some(room) = &self.room else { return };
        let behind_ns = room.hub.lag(hub_now(now)).behind_ns;
        if behind_ns > 0 {
            self.metrics.queue_age_us.raise(now.mono_ns, behind_ns.div_ceil(1_000));
        }
    }

    /// What so many subscribers take here, in bytes: what every one has, and what some have besides.
    fn user_bytes(&self, subscribers: usize) -> usize {
        let extras = self.room.as_ref().map_or(0, |room| room.extras.capacity());
        subscribers * (size_of::<Conn>() + SEAT_BYTES + SUBSCRIBER_BYTES)
            + table_bytes::<Extra>(extras)
            + table_bytes::<SocketState>(self.sockets.capacity())
    }
}

/// What a map by place takes: entries, a byte of control each, and an eighth that stays empty.
const fn table_bytes<T>(capacity: usize) -> usize {
    capacity / 7 * 8 * (size_of::<(u32, T)>() + 1)
}
