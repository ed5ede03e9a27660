//! The age of messages, which a clock that is set forward does not change.
//!
//! A message expires by its time on the wall clock, which the store and other nodes know, too. If that clock is set forward by a
//! year, all messages would be a year old at once. So the sequencer compares both of its clocks: where the wall clock gains more
//! than [`JUMP_MS`] on the monotonic clock, the difference is taken off the present time for as long as a message from before the
//! jump may live:
//!
//! ```text
//!   stamps    10:00  10:01 │ 2027 …        jump of a year at │, ages of 10 minutes
//!   present                │ minus a year ────── 10 minutes ──────┤ as the clock says
//! ```
//! By then every message from before has expired, and none from after it. A clock that is set back lets messages live longer.

use std::cmp::Reverse;

use super::Sequencer;
use crate::HubNow;

/// Gain of the wall clock that is a jump, in ms: far above the pace at which clocks are adjusted.
const JUMP_MS: u64 = 5_000;
/// Jumps that are remembered.
const JUMPS_MAX: usize = 16;

/// What the wall clock has gained.
#[derive(Debug, Default)]
pub(super) struct AgeClock {
    seen: Option<HubNow>,
    /// The time of each jump on the monotonic clock, and its size, both in ms.
    jumps: Vec<(u64, u64)>,
}

impl AgeClock {
    /// Compares the clocks with those of the last call.
    fn observe(&mut self, now: HubNow) {
        if let Some(seen) = self.seen.replace(now) {
            let passed_ms = now.mono_ns.saturating_sub(seen.mono_ns) / 1_000_000;
            let gained_ms = now.unix_ms.saturating_sub(seen.unix_ms).saturating_sub(passed_ms);
            if gained_ms > JUMP_MS {
                if self.jumps.len() == JUMPS_MAX {
                    self.jumps.remove(0);
                }
                self.jumps.push((now.mono_ns / 1_000_000, gained_ms));
            }
        }
    }

    /// Returns the present time for messages that live for `age_ms`, in ms since 1970, and the time in ms until it leaps because a
    /// jump is older than these messages.
    fn present_ms(&self, now: HubNow, age_ms: u64) -> (u64, u64) {
        let mono_ms = now.mono_ns / 1_000_000;
        let (mut present_ms, mut leap_ms) = (now.unix_ms, u64::MAX);
        for (at_ms, gained_ms) in &self.jumps {
            let left_ms = at_ms.saturating_add(age_ms).saturating_sub(mono_ms);
            if left_ms > 0 {
                present_ms = present_ms.saturating_sub(*gained_ms);
                leap_ms = leap_ms.min(left_ms);
            }
        }
        (present_ms, leap_ms)
    }
}

impl Sequencer {
    /// Drops expired messages. Returns when the next one expires, on the monotonic clock in ns.
    pub(super) fn expire_messages(&mut self, now: HubNow) -> Option<u64> {
        self.age_clock.observe(now);
        while let Some(&Reverse((at_ms, at, timer))) = self.ages.peek() {
            let current = self.channels.get(at).filter(|channel| channel.timer == timer);
            if current.is_some() && at_ms > now.unix_ms {
                let wait_ms = at_ms - now.unix_ms;
                return Some(now.mono_ns.saturating_add(wait_ms.saturating_mul(1_000_000)));
            }
            self.ages.pop();
            let Some(channel) = current else { continue };
            let (present_ms, leap_ms) = self.age_clock.present_ms(now, channel.rules.age_ms);
            match channel.expires_ms().map(|expires_ms| expires_ms.saturating_sub(present_ms)) {
                Some(left_ms) if left_ms > 0 => {
                    let wait_ms = left_ms.min(leap_ms);
                    self.ages.push(Reverse((now.unix_ms.saturating_add(wait_ms), at, timer)));
                }
                _ => self.drop_expired(at, present_ms),
            }
        }
        None
    }

    fn drop_expired(&mut self, at: u32, present_ms: u64) {
        self.channels[at].timer = 0;
        while self.channels[at].expires_ms().is_some_and(|expires| expires <= present_ms) {
            self.drop_oldest(at);
        }
        self.arm(at);
        self.mark_lost(at);
        self.forget_if_unused(at);
    }

    /// Sets a timer for the expiry of the oldest message, if there is none.
    pub(super) fn arm(&mut self, at: u32) {
        let channel = &mut self.channels[at];
        if channel.timer == 0
            && let Some(expires) = channel.expires_ms()
        {
            self.timers += 1;
            channel.timer = self.timers;
            self.ages.push(Reverse((expires, at, self.timers)));
        }
    }
}
