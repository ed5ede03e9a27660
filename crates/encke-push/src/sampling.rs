//! Figures of subscribers: their memory in this process, and the kernel's buffers for a sample of them.
//!
//! Two system calls for each subscriber would be too expensive. Instead, each second another few are sampled, and stand for
//! all. The memory in this process is computed for all of them.

use encke_hub::SUBSCRIBER_BYTES;
use encke_io::Now;

use super::push_worker::{PushWorker, hub_now};
use encke_server::{CONNECTION_BYTES, Engine, Kernel};

/// Subscribers sampled per second, by two system calls each: about 10 µs in all.
const SAMPLES: i64 = 16;
/// Limit of slots examined to find them.
const LOOKS: usize = 256;

impl PushWorker {
    /// Samples some subscribers, and updates the memory figures of all.
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

    /// Records the age of the oldest message that waits for a subscriber able to receive it.
    pub(crate) fn note_queue_age(&self, now: Now) {
        let behind_ns = self.hub.lag(hub_now(now)).behind_ns;
        if behind_ns > 0 {
            self.counters.queue_age_us.raise(now.mono_ns, behind_ns.div_ceil(1_000));
        }
    }

    /// Returns the memory of this worker's subscribers in bytes: connections, the hub's entries, and the side table.
    fn user_bytes(&self, subscribers: usize) -> usize {
        subscribers * (CONNECTION_BYTES + SUBSCRIBER_BYTES) + self.sides.bytes()
    }
}
