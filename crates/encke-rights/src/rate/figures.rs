//! The figures of rates. Refusals are counted by the engine (`encke_http_refusals_total`).

use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_stats::{Counter, Family, Source};

/// The figures of all workers. They survive a reload.
#[derive(Default)]
pub struct RateFigures {
    /// By number of the worker.
    workers: Mutex<Vec<Arc<RateCounters>>>,
}

/// The counters of one worker.
#[derive(Default)]
pub(crate) struct RateCounters {
    pub(crate) delayed: Counter,
    pub(crate) evicted: Counter,
}

impl RateFigures {
    pub(crate) fn of_worker(&self, number: usize) -> Arc<RateCounters> {
        let mut workers = lock(&self.workers);
        while workers.len() <= number {
            workers.push(Arc::default());
        }
        Arc::clone(&workers[number])
    }
}

impl Source for RateFigures {
    fn name(&self) -> &'static str {
        "rates"
    }

    fn families(&self) -> Vec<Family> {
        let workers = lock(&self.workers).clone();
        let sum = |of: fn(&RateCounters) -> &Counter| -> u64 {
            workers.iter().map(|worker| of(worker).value()).sum()
        };
        vec![
            Family::counter("encke_rate_delayed_total", "Requests that were held until their turn ([[rate]] delay).")
                .with(&[], sum(|worker| &worker.delayed)),
            Family::counter(
                "encke_rate_evicted_keys_total",
                "Keys of rates that made room for others before their time. If it grows, raise `keys` of the rule.",
            )
            .with(&[], sum(|worker| &worker.evicted)),
        ]
    }
}
