//! Figures of those who listen: what each takes, and what the kernel holds for some of them.
//!
//! To ask the kernel about every subscriber would cost what it tells about. So each second a few are looked at, others
//! every time, and stand for all; what this process keeps is known without a look.

use encke_hub::SUBSCRIBER_BYTES;
use encke_io::Now;

use super::room::{Room, hub_now};
use encke_server::{CONNECTION_BYTES, Engine, Kernel};

/// Subscribers looked at a second, by two system calls each: some 10 µs in all.
const SAMPLES: i64 = 16;
/// Slots passed in search of them.
const LOOKS: usize = 256;

impl Room {
    /// Looks at some subscribers, and notes what all of them take.
    pub(crate) fn sample(&mut self, engine: &mut Engine<'_>, kernel: &dyn Kernel) {
        let (mut count, mut unsent, mut most, mut held) = (0, 0, 0, 0);
        let places = engine.places();
        for _ in 0..LOOKS.min(places) {
            self.sample_hand = (self.sample_hand + 1) % places;
            let Some(token) = engine.slot_at(self.sample_hand).map(|slot| slot.token()) else { continue };
            let (bytes, buffered) = engine.backlog(kernel, token);
            let bytes = bytes as i64;
            unsent += bytes;
            most = most.max(bytes);
            held += buffered as i64;
            count += 1;
            if count == SAMPLES {
                break;
            }
        }
        let sample = &self.counters.sample;
        sample.count.set(count);
        sample.unsent.set(unsent);
        sample.unsent_most.set(most);
        sample.kernel.set(held);
        let subscribers = self.hub.subscribers();
        sample.subscribers.set(subscribers as i64);
        sample.user.set(self.user_bytes(subscribers) as i64);
    }

    /// Notes for how long messages have waited for subscribers who could take them.
    pub(crate) fn note_queue_age(&self, now: Now) {
        let behind_ns = self.hub.lag(hub_now(now)).behind_ns;
        if behind_ns > 0 {
            self.counters.queue_age_us.raise(now.mono_ns, behind_ns.div_ceil(1_000));
        }
    }

    /// The memory of this worker's subscribers, in bytes: connections, the hub's entries, and the side table.
    fn user_bytes(&self, subscribers: usize) -> usize {
        subscribers * (CONNECTION_BYTES + SUBSCRIBER_BYTES) + self.sides.bytes()
    }
}
