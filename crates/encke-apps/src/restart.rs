//! Restarts of applications for an operator: each process is replaced as a reload replaces it.
//!
//! ```text
//!  AppRestarter::restart ─► supervisor ─► AppSlot::replace for each process ─► Ready, Replaced ─┐
//!                                                                         └─► KeptOld, Late … ──┴─► Ticket, once all have a result
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use encke_stats::Ticket;

use crate::slot::RunId;
use crate::supervisor::SupervisorMessage;

/// Restarts applications, from any thread.
#[derive(Clone)]
pub struct AppRestarter(pub(crate) Sender<SupervisorMessage>);

/// The result of a restart: a sentence for each process that was replaced.
pub type RestartResult = Result<Vec<String>, RestartFailure>;

/// Why an application was not restarted, or not all of its processes were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartFailure {
    /// No application has this name, or it is ending.
    NotRunning,
    /// A sentence for each process that was not replaced. The old ones continue.
    Failed(Vec<String>),
}

/// The restarts whose processes do not have a result yet.
#[derive(Default)]
pub(crate) struct PendingRestarts(Vec<PendingRestart>);

struct PendingRestart {
    app: Arc<str>,
    /// The runs without a result, with the numbers of their processes.
    waiting: Vec<(usize, RunId)>,
    replaced: Vec<String>,
    failed: Vec<String>,
    ticket: Ticket<RestartResult>,
}

impl AppRestarter {
    /// Replaces the processes of an application. The ticket gets its result when each new process responds or has failed; it is
    /// dropped if the supervisor has ended.
    pub fn restart(&self, app: &str, ticket: Ticket<RestartResult>) {
        // A supervisor that has ended drops the message.
        let _ = self.0.send(SupervisorMessage::Restart(app.into(), ticket));
    }
}

impl PendingRestarts {
    /// Waits for these runs.
    pub(crate) fn add(
        &mut self,
        app: &Arc<str>,
        waiting: Vec<(usize, RunId)>,
        ticket: Ticket<RestartResult>,
    ) {
        if waiting.is_empty() {
            return ticket.resolve(Err(RestartFailure::NotRunning));
        }
        let (replaced, failed) = (Vec::new(), Vec::new());
        self.0.push(PendingRestart { app: Arc::clone(app), waiting, replaced, failed, ticket });
    }

    /// A run has a result, in words.
    pub(crate) fn note(&mut self, app: &str, number: usize, run: RunId, outcome: &RestartOutcome) {
        for restart in self.0.iter_mut().filter(|restart| *restart.app == *app) {
            let before = restart.waiting.len();
            restart.waiting.retain(|waiting| *waiting != (number, run));
            if restart.waiting.len() < before {
                match outcome {
                    RestartOutcome::Replaced(text) => restart.replaced.push(text.clone()),
                    RestartOutcome::Failed(text) => restart.failed.push(text.clone()),
                }
            }
        }
    }

    /// Resolves the restarts whose runs all have a result.
    pub(crate) fn resolve(&mut self) {
        for restart in self.0.extract_if(.., |restart| restart.waiting.is_empty()) {
            let PendingRestart { replaced, failed, ticket, .. } = restart;
            ticket.resolve(if failed.is_empty() {
                Ok(replaced)
            } else {
                Err(RestartFailure::Failed(failed))
            });
        }
    }
}

/// What became of a run, in words.
pub(crate) enum RestartOutcome {
    Replaced(String),
    Failed(String),
}

impl fmt::Display for RestartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning => f.write_str("no application of this name is running"),
            Self::Failed(reasons) => f.write_str(&reasons.join("; ")),
        }
    }
}

impl std::error::Error for RestartFailure {}
