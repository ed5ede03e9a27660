//! The clocks, read only here. Time is passed on as a value: code above this crate never reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sys::host::monotonic_ns;

pub use crate::sys::host::{THREAD_CPU_STEP_NS, thread_cpu_ns};

/// A point in time, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Nanoseconds on the monotonic clock, since a time chosen by the system (in the simulator: since its start). Never
    /// decreases.
    pub mono_ns: u64,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub unix_ns: u64,
}

impl Now {
    /// Whole seconds since 1970.
    pub const fn unix_s(self) -> u64 {
        self.unix_ns / 1_000_000_000
    }

    /// The monotonic time `after` this one, in ns.
    pub fn plus(self, after: Duration) -> u64 {
        self.mono_ns.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The machine's clocks.
#[derive(Debug, Default)]
pub struct Clock {
    /// Wall-clock time minus monotonic time. Updated once per second, to follow adjustments of the wall clock.
    offset_ns: u64,
    checked_ns: Option<u64>,
}

impl Clock {
    /// Creates a clock without reading the time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the monotonic clock, and the wall clock if its last reading is a second old.
    pub fn now(&mut self) -> Now {
        let mono_ns = monotonic_ns();
        if self.checked_ns.is_none_or(|checked| mono_ns - checked >= 1_000_000_000) {
            self.checked_ns = Some(mono_ns);
            // A clock set before 1970 reads as 1970.
            let unix_ns =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            self.offset_ns = unix_ns.saturating_sub(mono_ns);
        }
        Now { mono_ns, unix_ns: self.offset_ns + mono_ns }
    }
}
