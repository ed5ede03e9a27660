//! Time series of a run, one entry per second.

use serde::{Deserialize, Serialize};

use crate::report::blob;
use crate::tally::Totals;

/// A stretch of a run, about one second long.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stretch {
    /// End of the stretch, in seconds after the first sample.
    pub at_s: f64,
    /// Length in seconds.
    pub seconds: f64,
    /// Requests that were answered.
    pub finished: u64,
    /// Finished requests with a wrong response.
    #[serde(default)]
    pub wrong: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Connections that were established.
    #[serde(default)]
    pub connected: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Latencies as histogram: the upper bound of each non-empty bucket in ns, and its count.
    #[serde(rename = "histogram", with = "blob")]
    pub latency: Vec<(u64, u64)>,
    /// Median latency; `None` if no request finished.
    pub p50_ns: Option<u64>,
    /// 99th percentile of latency.
    pub p99_ns: Option<u64>,
    /// Maximum latency.
    pub max_ns: u64,
}

/// Collects stretches from samples of the totals.
#[derive(Clone, Debug, Default)]
pub struct Series {
    first_ns: Option<u64>,
    last: Option<(u64, Totals)>,
    stretches: Vec<Stretch>,
}

/// Maximum stretches kept: four hours of seconds, at about 4 KB each. The oldest are dropped first.
const STRETCHES_MAX: usize = 14_400;

impl Series {
    /// Takes a sample. The difference to the previous sample is a new stretch.
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

    /// Time of the last sample, as passed to [`Series::look`]; `None` before the first.
    pub fn last_ns(&self) -> Option<u64> {
        self.last.as_ref().map(|(ns, _)| *ns)
    }

    /// All stretches, in order.
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
