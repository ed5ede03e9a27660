//! A run over time: what each second brought.

use serde::{Deserialize, Serialize};

use crate::report::blob;
use crate::tally::Totals;

/// A part of a run, about a second long.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stretch {
    /// When it ended, in seconds after the first look.
    pub at_s: f64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Requests that were answered.
    pub finished: u64,
    /// Those of them whose answer was wrong.
    #[serde(default)]
    pub wrong: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Connections that were made.
    #[serde(default)]
    pub connected: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Latencies: the last value of each bucket that holds something, in ns, and how many it holds.
    #[serde(rename = "histogram", with = "blob")]
    pub latency: Vec<(u64, u64)>,
    /// The median of them; `None` if nothing was answered.
    pub p50_ns: Option<u64>,
    /// What 99 of 100 did not exceed.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: u64,
}

/// Stretches, made from looks at the totals.
#[derive(Clone, Debug, Default)]
pub struct Series {
    first_ns: Option<u64>,
    last: Option<(u64, Totals)>,
    stretches: Vec<Stretch>,
}

/// Stretches kept: four hours of seconds, at some 4 KB each. What is older goes first.
const STRETCHES_MAX: usize = 14_400;

impl Series {
    /// Takes a look: what came since the one before is a stretch.
    pub fn look(&mut self, now_ns: u64, totals: Totals) -> Option<&Stretch> {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let (then_ns, before) = self.last.replace((now_ns, totals))?;
        let (_, totals) = self.last.as_ref()?;
        if now_ns <= then_ns {
            return None;
        }
        if self.stretches.len() == STRETCHES_MAX {
            self.stretches.remove(0);
        }
        let seconds = |ns: u64| ns as f64 / 1e9;
        let latency = totals.latency().since(before.latency());
        self.stretches.push(Stretch {
            at_s: seconds(now_ns - first_ns),
            seconds: seconds(now_ns - then_ns),
            finished: totals.finished - before.finished,
            wrong: totals.wrong - before.wrong,
            failed: totals.failed - before.failed,
            connected: totals.connected - before.connected,
            received_bytes: totals.received_bytes - before.received_bytes,
            p50_ns: latency.quantile_ns(0.5),
            p99_ns: latency.quantile_ns(0.99),
            max_ns: latency.max_ns(),
            latency: latency.buckets().map(|(_, last, count)| (last, count)).collect(),
        });
        self.stretches.last()
    }

    /// When the last look was, on the clock that it was told by; `None` before the first.
    pub fn last_ns(&self) -> Option<u64> {
        self.last.as_ref().map(|(ns, _)| *ns)
    }

    /// All of them, in order.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_what_came_between_two_looks() {
        let mut series = Series::default();
        let mut totals = Totals { finished: 5, ..Totals::default() };
        totals.service.record(9);
        assert_eq!(series.look(1_000_000_000, totals.clone()), None);
        totals.finished = 25;
        totals.service.record(7);
        let stretch = series.look(3_000_000_000, totals).expect("time has passed");
        assert_eq!((stretch.at_s, stretch.seconds, stretch.finished), (2.0, 2.0, 20));
        assert_eq!((&stretch.latency[..], stretch.p50_ns, stretch.max_ns), (&[(7, 1)][..], Some(7), 7));
        assert_eq!(series.stretches().len(), 1);
    }
}
