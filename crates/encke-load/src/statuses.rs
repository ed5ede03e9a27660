//! Responses by status.

use std::collections::BTreeMap;

use encke_stats::Counter;
use serde::{Deserialize, Serialize};

use crate::words;

/// One counter per status, which any thread may read.
#[derive(Debug)]
pub struct StatusCounters(Box<[Counter]>);

/// The number of responses with each status.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StatusCounts(BTreeMap<u16, u64>);

/// A status has three digits. The counters of a thread take 8 KB.
const STATUSES: usize = 1_000;
/// Maximum statuses in a sentence.
const NAMED_MAX: usize = 4;

impl Default for StatusCounters {
    fn default() -> Self {
        Self((0..STATUSES).map(|_| Counter::new()).collect())
    }
}

impl StatusCounters {
    /// Counts responses.
    pub fn add(&self, status: u16, count: u64) {
        if let Some(counter) = self.0.get(usize::from(status)) {
            counter.add(count);
        }
    }
}

impl StatusCounts {
    /// Adds responses.
    pub fn add(&mut self, status: u16, count: u64) {
        if count > 0 {
            *self.0.entry(status).or_default() += count;
        }
    }

    /// Adds the counts of a thread.
    pub(crate) fn add_counters(&mut self, counters: &StatusCounters) {
        for (status, counter) in (0..).zip(&counters.0) {
            self.add(status, counter.value());
        }
    }

    /// Adds other counts.
    pub(crate) fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(status, count)| self.add(status, count));
    }

    /// The statuses in ascending order, each with its count, which is not 0.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        self.0.iter().map(|(status, count)| (*status, *count))
    }

    /// Whether there are no responses.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of all responses.
    pub(crate) fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// The number of responses whose status has this first digit.
    pub fn class(&self, class: u16) -> u64 {
        self.0.range(class * 100..class * 100 + 100).map(|(_, count)| count).sum()
    }

    /// The share of a status among all responses.
    pub(crate) fn share(&self, status: u16) -> f64 {
        let count = self.0.get(&status).copied().unwrap_or(0);
        count as f64 / self.sum().max(1) as f64
    }

    /// The most frequent statuses with their shares: `200 95.0 %, 503 5.00 %`.
    pub(crate) fn words(&self) -> String {
        let mut statuses: Vec<u16> = self.0.keys().copied().collect();
        statuses.sort_by_key(|status| std::cmp::Reverse(self.0.get(status)));
        let named = statuses.iter().take(NAMED_MAX);
        let mut named: Vec<String> =
            named.map(|status| format!("{status} {}", words::percent(self.share(*status)))).collect();
        if statuses.len() > NAMED_MAX {
            named.push("others".into());
        }
        named.join(", ")
    }
}

impl FromIterator<(u16, u64)> for StatusCounts {
    fn from_iter<I: IntoIterator<Item = (u16, u64)>>(counts: I) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|(status, count)| all.add(status, count));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_status_and_class() {
        let (one, two) = (StatusCounters::default(), StatusCounters::default());
        one.add(200, 90);
        two.add(404, 6);
        two.add(499, 4);
        two.add(u16::MAX, 1);
        let mut all = StatusCounts::default();
        all.add_counters(&one);
        all.add_counters(&two);
        assert_eq!(all.iter().collect::<Vec<_>>(), [(200, 90), (404, 6), (499, 4)]);
        assert_eq!([1, 2, 4, 5].map(|class| all.class(class)), [0, 90, 10, 0]);
        assert_eq!((all.sum(), all.share(404), all.share(500)), (100, 0.06, 0.0));
        assert_eq!(all.words(), "200 90.0 %, 404 6.00 %, 499 4.00 %");
        assert_eq!(serde_json::to_string(&all).ok().as_deref(), Some(r#"{"200":90,"404":6,"499":4}"#));
    }
}
