//! Figures about a live stream for operators.

use super::MediaUnit;

/// Counters and rates of a source. The caller states the time in ns, on a clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct MediaGauge {
    /// Bytes received, with heads.
    pub bytes: u64,
    /// Units begun.
    pub units: u64,
    /// Units at which a player can start.
    pub starts: u64,
    /// Time between the last two starts in µs, on the clock of the stream.
    pub start_interval_us: Option<u64>,
    /// Jumps of the stream's time: forwards by more than [`JUMP_US`]; back by more than that, or between starts by anything.
    pub gaps: u64,
    /// The time of the last start.
    start_us: Option<u64>,
    /// The latest time of a unit.
    latest_us: Option<u64>,
    /// Bytes by second, the second modulo the length.
    seconds: [u64; RATE_SECONDS + 1],
    /// The first and the current second.
    first: Option<u64>,
    current: u64,
}

/// A larger jump of the stream's time is a gap: 1 s. Pictures that are not in the order of display jump by less.
pub const JUMP_US: u64 = 1_000_000;

/// Seconds for [`MediaGauge::bit_rate`].
const RATE_SECONDS: usize = 10;

impl MediaGauge {
    /// Returns a gauge at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a unit.
    pub fn unit(&mut self, unit: MediaUnit) {
        self.units += 1;
        self.starts += u64::from(unit.start);
        let Some(time_us) = unit.time_us else { return };
        let latest_us = self.latest_us.unwrap_or(time_us);
        let goes_back = unit.start && self.start_us.is_some_and(|start_us| time_us < start_us);
        if goes_back || time_us.abs_diff(latest_us) > JUMP_US {
            self.gaps += 1;
            // Later times are compared with the new one.
            self.latest_us = Some(time_us);
        } else {
            self.latest_us = Some(latest_us.max(time_us));
        }
        if unit.start {
            self.start_interval_us = self.start_us.and_then(|start_us| time_us.checked_sub(start_us));
            self.start_us = Some(time_us);
        }
    }

    /// A new head: the time of the stream may begin again, which is no gap.
    pub fn restart(&mut self) {
        (self.start_us, self.latest_us) = (None, None);
    }

    /// Counts bytes received now.
    pub fn bytes(&mut self, count: usize, now_ns: u64) {
        self.bytes += count as u64;
        self.enter(now_ns);
        if let Some(second) = self.seconds.get_mut(self.current as usize % (RATE_SECONDS + 1)) {
            *second += count as u64;
        }
    }

    /// Returns bits per second in the last ten complete seconds, or in those since the first byte; `None` before the first
    /// complete second.
    pub fn bit_rate(&mut self, now_ns: u64) -> Option<u64> {
        let first = self.first?;
        self.enter(now_ns);
        let complete = self.current.saturating_sub(first).min(RATE_SECONDS as u64);
        let seconds = (self.current - complete)..self.current;
        let bytes =
            seconds.filter_map(|second| self.seconds.get(second as usize % (RATE_SECONDS + 1))).sum::<u64>();
        (bytes * 8).checked_div(complete)
    }

    /// Clears the seconds since the last call.
    fn enter(&mut self, now_ns: u64) {
        let now = now_ns / 1_000_000_000;
        if self.first.is_none() {
            (self.first, self.current) = (Some(now), now);
        }
        for second in (self.current + 1..=now).rev().take(RATE_SECONDS + 1) {
            if let Some(bytes) = self.seconds.get_mut(second as usize % (RATE_SECONDS + 1)) {
                *bytes = 0;
            }
        }
        self.current = self.current.max(now);
    }
}
