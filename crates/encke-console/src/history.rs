//! The history of all series: two hours in steps of ten seconds, and a day in steps of five minutes.
//!
//! ```text
//!  every 10 s   Snapshot ─► numbers ─► ring of 720   (two hours)
//!  every 5 min  Snapshot ─► numbers ─► ring of 288   (a day)
//! ```
//! A ring has four bytes per number: with thirty series, both take 120 KiB, and are allocated as they fill.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::series::{SERIES, Snapshot};

/// Shortest interval from which a rate is derived, in nanoseconds: the rates of shorter ones are noise.
const INTERVAL_MIN_NS: u64 = 1_000_000_000;

/// A step of the history, and the number of its steps that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HistoryStep {
    /// Ten seconds; two hours are kept.
    TenSeconds,
    /// Five minutes; a day is kept.
    FiveMinutes,
}

impl HistoryStep {
    pub(crate) const ALL: [Self; 2] = [Self::TenSeconds, Self::FiveMinutes];

    /// The name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TenSeconds => "10s",
            Self::FiveMinutes => "5m",
        }
    }

    pub(crate) fn seconds(self) -> u64 {
        match self {
            Self::TenSeconds => 10,
            Self::FiveMinutes => 300,
        }
    }

    fn kept(self) -> usize {
        match self {
            Self::TenSeconds => 720,
            Self::FiveMinutes => 288,
        }
    }
}

/// The history of all series.
pub(crate) struct History {
    rings: [HistoryRing; 2],
    /// The beginning of the last complete step of ten seconds.
    earlier: Option<Arc<Snapshot>>,
}

/// The last numbers of all series, in one step.
struct HistoryRing {
    step: HistoryStep,
    /// The beginning of the present step.
    before: Option<Arc<Snapshot>>,
    /// The end of the newest step, in milliseconds since 1970.
    end_ms: u64,
    /// One number per series; NaN if it is not known. Oldest first.
    steps: VecDeque<Box<[f32]>>,
}

/// The numbers of one ring: series by series, oldest first.
pub(crate) struct HistoryPage {
    pub(crate) step_s: u64,
    pub(crate) end_ms: u64,
    pub(crate) series: Vec<(&'static str, Vec<Option<f32>>)>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { rings: HistoryStep::ALL.map(HistoryRing::new), earlier: None }
    }

    /// Time in nanoseconds of the monotonic clock at which the next step ends.
    pub(crate) fn due_ns(&self, now_ns: u64) -> u64 {
        self.rings.iter().map(|ring| ring.due_ns(now_ns)).min().unwrap_or(now_ns)
    }

    /// Ends the steps that are due.
    pub(crate) fn record(&mut self, now: &Arc<Snapshot>, unix_ms: u64) {
        let before = self.rings[0].before.clone();
        for ring in &mut self.rings {
            ring.record(now, unix_ms);
        }
        if self.rings[0].before.as_ref().map(|begun| begun.mono_ns)
            != before.as_ref().map(|begun| begun.mono_ns)
        {
            self.earlier = before;
        }
    }

    /// Returns the last snapshot that is at least a second old: the beginning of the present step of ten seconds, or of the
    /// step before.
    pub(crate) fn last(&self, now_ns: u64) -> Option<&Arc<Snapshot>> {
        let last = self.rings[0].before.iter().chain(&self.earlier);
        last.into_iter().find(|snapshot| now_ns.saturating_sub(snapshot.mono_ns) >= INTERVAL_MIN_NS)
    }

    pub(crate) fn page(&self, step: HistoryStep) -> HistoryPage {
        let ring = &self.rings[usize::from(step == HistoryStep::FiveMinutes)];
        let column = |at: usize| {
            ring.steps
                .iter()
                .map(|numbers| numbers.get(at).copied().filter(|number| !number.is_nan()))
                .collect()
        };
        let series = SERIES.iter().enumerate().map(|(at, series)| (series.name, column(at))).collect();
        HistoryPage { step_s: step.seconds(), end_ms: ring.end_ms, series }
    }
}

impl HistoryRing {
    fn new(step: HistoryStep) -> Self {
        Self { step, before: None, end_ms: 0, steps: VecDeque::new() }
    }

    fn due_ns(&self, now_ns: u64) -> u64 {
        self.before.as_ref().map_or(now_ns, |before| before.mono_ns + self.step.seconds() * 1_000_000_000)
    }

    fn record(&mut self, now: &Arc<Snapshot>, unix_ms: u64) {
        if now.mono_ns < self.due_ns(now.mono_ns) {
            return;
        }
        if let Some(before) = self.before.replace(Arc::clone(now)) {
            if self.steps.len() >= self.step.kept() {
                self.steps.pop_front();
            }
            let numbers = SERIES.iter().map(|series| series.number(&before, now));
            self.steps
                .push_back(numbers.map(|number| number.map_or(f32::NAN, |number| number as f32)).collect());
        }
        self.end_ms = unix_ms;
    }
}

#[cfg(test)]
mod tests {
    use encke_stats::Family;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn snapshot(second: u64) -> Arc<Snapshot> {
        let requests = Family::counter("encke_http_requests_total", "Requests.").value(second * second);
        Arc::new(Snapshot::new(second * SECOND_NS, vec![requests]))
    }

    fn requests(page: &HistoryPage) -> &[Option<f32>] {
        let (name, numbers) = &page.series[0];
        assert_eq!(*name, "requests");
        numbers
    }

    #[test]
    fn steps_are_recorded_when_they_are_due_and_the_oldest_are_dropped() {
        let mut history = History::new();
        assert_eq!(history.due_ns(7), 7, "the first snapshot is due at once");
        history.record(&snapshot(0), 1_000);
        assert_eq!(history.due_ns(7), 10 * SECOND_NS);
        history.record(&snapshot(9), 10_000);
        assert_eq!(requests(&history.page(HistoryStep::TenSeconds)), []);
        for second in (10..=90_000).step_by(10) {
            history.record(&snapshot(second), second * 1000);
        }
        let page = history.page(HistoryStep::TenSeconds);
        assert_eq!((page.step_s, page.end_ms, requests(&page).len()), (10, 90_000_000, 720));
        // The increase of the squares from 89,990 to 90,000, per second.
        assert_eq!(requests(&page).last(), Some(&Some(179_990.0)));
        let day = history.page(HistoryStep::FiveMinutes);
        assert_eq!((day.step_s, requests(&day).len()), (300, 288));
        assert_eq!(requests(&day).last(), Some(&Some(179_700.0)));
        let unknown = day.series.iter().find(|(name, _)| *name == "subscribers").expect("a series");
        assert_eq!(unknown.1.last(), Some(&None), "a family that does not exist");
    }

    #[test]
    fn a_full_history_takes_less_than_two_megabytes() {
        let numbers: usize = HistoryStep::ALL.iter().map(|step| step.kept() * SERIES.len()).sum();
        assert!(numbers * size_of::<f32>() < 500_000, "{numbers} numbers");
    }
}
