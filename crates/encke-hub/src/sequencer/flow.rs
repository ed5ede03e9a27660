//! The counts of a channel for operators: messages in total, their rate, and subscribers that were too slow.
//!
//! ```text
//!            previous      current
//!  time  ──┤  12 messages  │  3 …      rate = the current slot, and the part of the previous one within the last 8 s
//!                          └─ slot: 8.192 s
//! ```
//! The rate needs no timer and no state of its readers: a publish adds one, and a read weighs two numbers.

/// Length of a slot as a power of two, in ms: 8,192 ms. Short enough to follow a change, long enough for one message per second.
const SLOT_BITS: u32 = 13;
const SLOT_MS: u64 = 1 << SLOT_BITS;

/// The counts of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChannelFlow {
    /// Messages since the start, or since the channel exists here.
    pub(super) messages: u64,
    /// The present slot: the time in units of [`SLOT_MS`], modulo 2^32.
    slot: u32,
    /// Messages in the present slot, and in the one before.
    current: u32,
    previous: u32,
    /// Subscribers that were removed because they were behind the ring.
    pub(super) ended: u32,
    /// Number of times that a subscriber behind the ring has skipped messages.
    pub(super) skipped: u32,
}

impl ChannelFlow {
    /// Counts a message published at this time.
    #[inline]
    pub(super) fn count_message(&mut self, unix_ms: u64) {
        let slot = slot_of(unix_ms);
        if slot != self.slot {
            self.previous = if slot == self.slot.wrapping_add(1) { self.current } else { 0 };
            self.current = 0;
            self.slot = slot;
        }
        self.current = self.current.saturating_add(1);
        self.messages += 1;
    }

    /// Counts messages from before the start.
    pub(super) fn restore(&mut self, messages: usize) {
        self.messages += messages as u64;
    }

    /// Counts subscribers that have lost messages.
    pub(super) fn count_slow(&mut self, ended: u32, skipped: u32) {
        self.ended = self.ended.saturating_add(ended);
        self.skipped = self.skipped.saturating_add(skipped);
    }

    /// Returns the messages per second over the last slot length.
    pub(super) fn rate(&self, unix_ms: u64) -> f64 {
        let slot = slot_of(unix_ms);
        let (current, previous) = if slot == self.slot {
            (self.current, self.previous)
        } else if slot == self.slot.wrapping_add(1) {
            (0, self.current)
        } else {
            (0, 0)
        };
        let left = (SLOT_MS - unix_ms % SLOT_MS) as f64 / SLOT_MS as f64;
        (f64::from(current) + f64::from(previous) * left) * 1_000.0 / SLOT_MS as f64
    }
}

fn slot_of(unix_ms: u64) -> u32 {
    (unix_ms >> SLOT_BITS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any moment, at the start of a slot.
    const START_MS: u64 = 100 * SLOT_MS;

    #[test]
    fn a_steady_rate_is_read_at_any_moment() {
        let mut flow = ChannelFlow::default();
        for number in 0..400 {
            let now_ms = START_MS + number * 100;
            flow.count_message(now_ms);
            // The first two slots are not full yet.
            if number > 164 {
                let rate = flow.rate(now_ms + 1);
                assert!((rate - 10.0).abs() < 0.5, "{rate} after {number}");
            }
        }
        assert_eq!(flow.messages, 400);
    }

    #[test]
    fn the_rate_of_a_silent_channel_falls_to_zero_within_two_slots() {
        let mut flow = ChannelFlow::default();
        (0..80).for_each(|number| flow.count_message(START_MS + number * 100));
        let rates =
            [0, SLOT_MS / 2, SLOT_MS, 2 * SLOT_MS].map(|after_ms| flow.rate(START_MS + SLOT_MS + after_ms));
        assert!(rates[0] > 9.0 && rates[1] > 4.0 && rates[1] < 6.0, "{rates:?}");
        assert_eq!(rates[2..], [0.0, 0.0]);
        flow.count_message(START_MS + 9 * SLOT_MS);
        assert!(flow.rate(START_MS + 9 * SLOT_MS) < 0.2, "the old slot does not count");
    }

    #[test]
    fn a_clock_that_is_set_back_ends_the_old_slots() {
        let mut flow = ChannelFlow::default();
        (0..100).for_each(|_| flow.count_message(START_MS));
        flow.count_message(START_MS - 5 * SLOT_MS);
        assert!(flow.rate(START_MS - 5 * SLOT_MS) < 0.2);
        assert_eq!(flow.messages, 101);
    }
}
