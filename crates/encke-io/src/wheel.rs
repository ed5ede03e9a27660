//! Timers: a hierarchical wheel in which arming, cancelling and expiring cost O(1).
//!
//! Each index has at most one timer, in a table parallel to the reactor's sources: 12 bytes per connection and no allocation
//! per timer. An owner with several deadlines arms the earliest, and decides at expiry which are due. So postponing a deadline
//! does not touch the wheel (ARCHITECTURE.md, "Timers").
//!
//! ```text
//! level 0   64 slots of 1 tick       (16.8 ms)     what is due within 1.07 s
//! level 1   64 slots of 64 ticks                                within 69 s
//! level 2   64 slots of 4,096 ticks                             within 73 min
//! level 3   64 slots of 262,144 ticks              everything later; re-placed when reached
//! ```
//! A slot of a higher level is *cascaded* when time reaches it: its entries are placed again, at a lower level.

use crate::table::connection_table;

/// Length of a tick as a power of two: 2^24 ns = 16.8 ms. A timer fires at most one tick late, never early.
const TICK_SHIFT: u32 = 24;
const LEVELS: usize = 4;
const SLOTS: u32 = 64;
const SLOT_BITS: u32 = 6;

/// The `prev` of a slot's first entry is `HEAD | slot`. The last 256 numbers are therefore not valid entries.
const HEAD: u32 = 0xFFFF_FF00;
const NONE: u32 = HEAD - 1;
/// No tick.
const NEVER: u64 = u64::MAX;

/// A wheel of timers, at most one per index.
pub struct Wheel {
    /// The tick up to which all due timers have expired. Entries are compared with its low half.
    current: u64,
    /// First entry of each slot, level by level.
    heads: [u32; LEVELS * SLOTS as usize],
    /// One bit per slot: set if the slot has entries.
    occupied: [u64; LEVELS],
    entries: Vec<WheelEntry>,
    armed: u32,
    /// A lower bound for the first tick of any slot with entries, returned by `next_ns`. So a turn without changes costs one
    /// comparison. After a cancel it may be too early, never too late.
    next: u64,
}

/// INVARIANT: `prev == NONE` exactly when the entry is in no slot.
#[derive(Clone, Copy)]
struct WheelEntry {
    prev: u32,
    next: u32,
    tick: u32,
}

impl Wheel {
    /// Creates an empty wheel at the time `mono_ns`.
    pub fn new(mono_ns: u64) -> Self {
        Self {
            current: mono_ns >> TICK_SHIFT,
            heads: [NONE; LEVELS * SLOTS as usize],
            occupied: [0; LEVELS],
            entries: Vec::new(),
            armed: 0,
            next: NEVER,
        }
    }

    /// Creates an empty wheel for the connections of a worker.
    pub fn for_connections(mono_ns: u64) -> Self {
        Self { entries: connection_table(), ..Self::new(mono_ns) }
    }

    /// Number of armed timers.
    pub fn armed(&self) -> u32 {
        self.armed
    }

    /// Memory used by the wheel, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<WheelEntry>()
    }

    /// Arms the timer of `index` for `deadline_ns`, replacing its previous deadline.
    pub fn arm(&mut self, index: u32, deadline_ns: u64) {
        debug_assert!(index < NONE);
        if index as usize >= self.entries.len() {
            self.entries.resize(index as usize + 1, WheelEntry { prev: NONE, next: NONE, tick: 0 });
        }
        self.cancel(index);
        // Never the current tick, because it may have been processed already.
        let tick = tick_ceil(deadline_ns);
        let earliest = (self.current as u32).wrapping_add(1);
        let tick = if (tick.wrapping_sub(earliest) as i32) < 0 { earliest } else { tick };
        self.armed += 1;
        self.place(index, tick);
    }

    /// Arms the timer of `index`, unless it is already armed for this deadline or an earlier one.
    pub fn arm_earlier(&mut self, index: u32, deadline_ns: u64) {
        if let Some(entry) = self.entries.get(index as usize)
            && entry.prev != NONE
            && (entry.tick.wrapping_sub(tick_ceil(deadline_ns)) as i32) <= 0
        {
            return;
        }
        self.arm(index, deadline_ns);
    }

    /// Disarms the timer of `index`. No effect if it is not armed.
    pub fn cancel(&mut self, index: u32) {
        let Some(&entry) = self.entries.get(index as usize) else { return };
        if entry.prev == NONE {
            return;
        }
        self.armed -= 1;
        if entry.next != NONE {
            self.entries[entry.next as usize].prev = entry.prev;
        }
        if entry.prev >= HEAD {
            let slot = (entry.prev - HEAD) as usize;
            self.heads[slot] = entry.next;
            if entry.next == NONE {
                self.occupied[slot >> SLOT_BITS] &= !(1 << (slot as u32 % SLOTS));
            }
        } else {
            self.entries[entry.prev as usize].next = entry.next;
        }
        self.entries[index as usize].prev = NONE;
    }

    /// The monotonic time in ns of the next necessary `expire`: no later than the earliest deadline plus a tick, possibly
    /// earlier (to cascade). `None` if no timer is armed.
    pub fn next_ns(&self) -> Option<u64> {
        if self.next == NEVER { None } else { Some(self.next << TICK_SHIFT) }
    }

    /// Advances the wheel to `mono_ns`. Disarms each timer that is due and appends its index to `due`.
    ///
    /// ```
    /// use encke_io::wheel::Wheel;
    ///
    /// const SECOND_NS: u64 = 1_000_000_000;
    /// let mut wheel = Wheel::new(0);
    /// wheel.arm(7, SECOND_NS);
    /// let mut due = Vec::new();
    /// wheel.expire(SECOND_NS / 2, &mut due);
    /// assert!(due.is_empty());
    /// wheel.expire(SECOND_NS * 2, &mut due);
    /// assert_eq!(due, [7]);
    /// ```
    #[inline]
    pub fn expire(&mut self, mono_ns: u64, due: &mut Vec<u32>) {
        if mono_ns >> TICK_SHIFT >= self.next {
            self.turn(mono_ns >> TICK_SHIFT, due);
        }
    }

    fn turn(&mut self, now: u64, due: &mut Vec<u32>) {
        while let Some((level, slot, ticks)) = self.next_slot() {
            if self.current + u64::from(ticks) > now {
                break;
            }
            self.current += u64::from(ticks);
            self.empty(level, slot, due);
        }
        self.current = self.current.max(now);
        self.next = self.next_slot().map_or(NEVER, |(_, _, ticks)| self.current + u64::from(ticks));
    }

    /// The slot to empty next: its level, its index, and the ticks until it begins.
    fn next_slot(&self) -> Option<(usize, u32, u32)> {
        let mut best: Option<(usize, u32, u32)> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let current = self.current as u32;
            let position = (current >> shift) % SLOTS;
            // Slots after the current one, in order of time; the current one comes last.
            let ahead = self.occupied[level].rotate_right((position + 1) % SLOTS).trailing_zeros() + 1;
            let start = (current >> shift).wrapping_add(ahead) << shift;
            let ticks = start.wrapping_sub(current);
            // At the same tick a higher level goes first, because its entries may be due then.
            if best.is_none_or(|(_, _, least)| ticks <= least) {
                best = Some((level, (position + ahead) % SLOTS, ticks));
            }
        }
        best
    }

    /// Empties a slot: due entries go to `due`, the others are placed again.
    fn empty(&mut self, level: usize, slot: u32, due: &mut Vec<u32>) {
        let head = level * SLOTS as usize + slot as usize;
        let mut index = std::mem::replace(&mut self.heads[head], NONE);
        self.occupied[level] &= !(1 << slot);
        while index != NONE {
            let entry = self.entries[index as usize];
            if (entry.tick.wrapping_sub(self.current as u32) as i32) <= 0 {
                self.entries[index as usize].prev = NONE;
                self.armed -= 1;
                due.push(index);
            } else {
                self.place(index, entry.tick);
            }
            index = entry.next;
        }
    }

    /// Links an entry into the slot of its tick, which is after the current tick.
    fn place(&mut self, index: u32, tick: u32) {
        // The level is the highest group of six bits in which the two ticks differ.
        let differing = tick ^ self.current as u32;
        let level = ((31 - (differing | 1).leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (SLOT_BITS * level)) % SLOTS;
        let head = (level * SLOTS + slot) as usize;
        let begins = tick >> (SLOT_BITS * level) << (SLOT_BITS * level);
        self.next = self.next.min(self.current + u64::from(begins.wrapping_sub(self.current as u32)));
        let next = self.heads[head];
        if next != NONE {
            self.entries[next as usize].prev = index;
        }
        self.entries[index as usize] = WheelEntry { prev: HEAD + head as u32, next, tick };
        self.heads[head] = index;
        self.occupied[level as usize] |= 1 << slot;
    }
}

/// Converts a deadline to a tick, rounded up, of which only the low half is kept. Ticks are compared by wrapping difference,
/// which is valid up to 416 days ahead.
fn tick_ceil(ns: u64) -> u32 {
    (ns.saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1 << TICK_SHIFT;

    fn due(wheel: &mut Wheel, at: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.expire(at, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn a_timer_fires_at_its_deadline_and_not_before() {
        for delay in [1, 2, 63, 64, 65, 4_095, 4_096, 4_097, 262_143, 262_144, 20_000_000] {
            for start in [0, 1, 63, 64, 4_000, 262_143] {
                let mut wheel = Wheel::new(start * TICK);
                let deadline = (start + delay) * TICK;
                wheel.arm(7, deadline);
                assert_eq!(due(&mut wheel, deadline - 1), [], "early: {start} + {delay}");
                assert_eq!(due(&mut wheel, deadline), [7], "late: {start} + {delay}");
                assert_eq!(wheel.armed(), 0);
            }
        }
    }

    #[test]
    fn a_cancelled_timer_never_fires_and_its_neighbours_do() {
        let mut wheel = Wheel::new(0);
        for index in 0..3 {
            wheel.arm(index, 5 * TICK);
        }
        wheel.cancel(1);
        wheel.cancel(1);
        wheel.cancel(99);
        assert_eq!(due(&mut wheel, 5 * TICK), [0, 2]);
        assert_eq!(wheel.next_ns(), None);
    }

    #[test]
    fn arming_again_replaces_the_deadline() {
        let mut wheel = Wheel::new(0);
        wheel.arm(0, 3 * TICK);
        wheel.arm(0, 9 * TICK);
        assert_eq!(due(&mut wheel, 8 * TICK), []);
        assert_eq!(due(&mut wheel, 9 * TICK), [0]);
    }

    #[test]
    fn arming_earlier_never_postpones() {
        let mut wheel = Wheel::new(0);
        wheel.arm(0, 5 * TICK);
        wheel.arm_earlier(0, 9 * TICK);
        assert_eq!(due(&mut wheel, 5 * TICK), [0]);
        wheel.arm_earlier(0, 9 * TICK);
        wheel.arm_earlier(0, 7 * TICK);
        assert_eq!(due(&mut wheel, 7 * TICK), [0]);
        assert_eq!(wheel.armed(), 0);
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_the_next_tick() {
        let mut wheel = Wheel::new(100 * TICK);
        wheel.arm(0, 1);
        assert_eq!(wheel.next_ns(), Some(101 * TICK));
        assert_eq!(due(&mut wheel, 101 * TICK), [0]);
    }

    #[test]
    fn ticks_may_wrap_after_833_days() {
        let start = (u64::from(u32::MAX) - 10) * TICK;
        let mut wheel = Wheel::new(start);
        wheel.arm(1, start + 5 * TICK);
        wheel.arm(2, start + 50 * TICK);
        wheel.arm(3, start + 100_000 * TICK);
        assert_eq!(due(&mut wheel, start + 5 * TICK), [1]);
        assert_eq!(due(&mut wheel, start + 50 * TICK), [2]);
        assert_eq!(due(&mut wheel, start + 99_999 * TICK), []);
        assert_eq!(due(&mut wheel, start + 100_000 * TICK), [3]);
    }

    /// Compares with a sorted list. A simple generator makes the run repeatable.
    #[test]
    fn it_agrees_with_a_sorted_list_over_random_histories() {
        for seed in 1..60u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut random = move |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut now = random(1 << 40);
            let mut wheel = Wheel::new(now);
            let mut twin: Vec<(u64, u32)> = Vec::new();
            for _ in 0..2_000 {
                let index = random(200) as u32;
                match random(4) {
                    0 | 1 => {
                        let scale = 1 << random(40);
                        let deadline = now + random(scale);
                        wheel.arm(index, deadline);
                        twin.retain(|&(_, other)| other != index);
                        twin.push((deadline, index));
                    }
                    2 => {
                        wheel.cancel(index);
                        twin.retain(|&(_, other)| other != index);
                    }
                    _ => {
                        let scale = 1 << random(38);
                        now += random(scale);
                        let fired = due(&mut wheel, now);
                        for index in fired {
                            let at = twin.iter().position(|&(_, other)| other == index);
                            let (deadline, _) = twin.swap_remove(at.expect("fired only what was armed"));
                            assert!(deadline <= now, "seed {seed}: fired early");
                        }
                        let late = twin.iter().filter(|&&(deadline, _)| deadline + 2 * TICK <= now).count();
                        assert_eq!(late, 0, "seed {seed}: a timer is more than a tick late");
                        assert_eq!(wheel.armed() as usize, twin.len(), "seed {seed}");
                        if let (Some(next), Some(least)) = (wheel.next_ns(), twin.iter().min()) {
                            assert!(
                                next <= (least.0 | (TICK - 1)) + 1 + TICK,
                                "seed {seed}: would sleep past it"
                            );
                        }
                    }
                }
            }
        }
    }
}
