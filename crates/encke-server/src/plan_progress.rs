//! The progress of reloads: how many workers have not applied the plans that were sent to them.
//!
//! ```text
//!  apply: begin() for each worker ─► WorkerCommand::Reload ─► mounted, or the worker has ended: drop ─┐
//!  wait ◄── notified ─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Only the thread that reloads waits; workers do not.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use encke_io::lock;

/// The number of plans that workers have not applied.
#[derive(Default)]
pub(crate) struct PlanProgress {
    open: Mutex<usize>,
    applied: Condvar,
}

/// A plan that was sent to a worker, until it is applied or dropped.
pub(crate) struct PlanReceipt(Arc<PlanProgress>);

impl PlanProgress {
    /// Records a plan for a worker.
    pub(crate) fn begin(self: &Arc<Self>) -> PlanReceipt {
        *lock(&self.open) += 1;
        PlanReceipt(Arc::clone(self))
    }

    /// Waits until all plans are applied. Returns false after `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let waited = self.applied.wait_timeout_while(lock(&self.open), patience, |open| *open > 0);
        let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *open == 0
    }
}

impl Drop for PlanReceipt {
    fn drop(&mut self) {
        *lock(&self.0.open) -= 1;
        self.0.applied.notify_all();
    }
}
