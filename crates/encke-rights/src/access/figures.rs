//! The figures of access control. Refusals are counted by the engine (`encke_http_refusals_total`).

use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_stats::{Counter, Family, Source};

/// The figures of all workers. They survive a reload.
#[derive(Default)]
pub struct AccessFigures {
    /// By number of the worker.
    workers: Mutex<Vec<Arc<AccessCounters>>>,
}

/// The counters of one worker.
#[derive(Default)]
pub(crate) struct AccessCounters {
    pub(crate) right: Counter,
    pub(crate) wrong: Counter,
    pub(crate) failed: Counter,
    pub(crate) asked_allowed: Counter,
    pub(crate) asked_denied: Counter,
    pub(crate) asked_failed: Counter,
    pub(crate) asked_full: Counter,
    pub(crate) asked_cached: Counter,
}

impl AccessFigures {
    pub(crate) fn of_worker(&self, number: usize) -> Arc<AccessCounters> {
        let mut workers = lock(&self.workers);
        while workers.len() <= number {
            workers.push(Arc::default());
        }
        Arc::clone(&workers[number])
    }
}

impl Source for AccessFigures {
    fn name(&self) -> &'static str {
        "access"
    }

    fn families(&self) -> Vec<Family> {
        let workers = lock(&self.workers).clone();
        let sum = |of: fn(&AccessCounters) -> &Counter| -> u64 {
            workers.iter().map(|worker| of(worker).value()).sum()
        };
        vec![
            Family::counter(
                "encke_password_checks_total",
                "Passwords that were hashed to verify them, by outcome; cached results are not counted.",
            )
            .with(&[("outcome", "right")], sum(|worker| &worker.right))
            .with(&[("outcome", "wrong")], sum(|worker| &worker.wrong))
            .with(&[("outcome", "failed")], sum(|worker| &worker.failed)),
            Family::counter(
                "encke_access_questions_total",
                "Questions to applications about requests ([[access]] ask), by outcome.",
            )
            .with(&[("outcome", "allowed")], sum(|worker| &worker.asked_allowed))
            .with(&[("outcome", "denied")], sum(|worker| &worker.asked_denied))
            .with(&[("outcome", "failed")], sum(|worker| &worker.asked_failed))
            .with(&[("outcome", "full")], sum(|worker| &worker.asked_full))
            .with(&[("outcome", "cached")], sum(|worker| &worker.asked_cached)),
        ]
    }
}
