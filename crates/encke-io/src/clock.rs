//! Time, read here and handed on as a value: nothing above this crate asks for it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Nanoseconds since this process (in the simulator: the simulation) began; never goes back.
    pub mono_ns: u64,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub unix_ns: u64,
}

impl Now {
    /// Whole seconds since 1970.
    pub const fn unix_s(self) -> u64 {
        self.unix_ns / 1_000_000_000
    }

    /// The monotonic moment `after` this one.
    pub fn plus(self, after: Duration) -> u64 {
        self.mono_ns.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The machine's clocks.
pub struct Clock {
    origin: Instant,
    /// Wall-clock time of `origin`; read anew once a second, so that a corrected clock is followed.
    origin_unix_ns: u64,
    checked_ns: u64,
}

impl Clock {
    /// Begins now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), origin_unix_ns: unix_ns(), checked_ns: 0 }
    }

    /// Reads the monotonic clock, and the wall clock if a second has passed since it was last read.
    pub fn now(&mut self) -> Now {
        let mono_ns = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if mono_ns - self.checked_ns >= 1_000_000_000 {
            self.checked_ns = mono_ns;
            self.origin_unix_ns = unix_ns().saturating_sub(mono_ns);
        }
        Now { mono_ns, unix_ns: self.origin_unix_ns + mono_ns }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Wall-clock time; a clock set before 1970 reads as 1970.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
