//! Supervised applications: Encke starts them, sends them requests when they respond, replaces them without refusing a
//! connection, and ends them.
//!
//! ```text
//!  AppSettings ─► AppPlan (program, user, directory) ─► Apps ─► supervisor (a thread) ─► Process
//!                                                               │  slot.rs: the rules, without clock and process
//!                                                               └─► AppRouting: the server's part, by messages only
//! ```
//! In scope: processes, their sockets, readiness, output and replacement. Out of scope: the requests, which the gateway forwards.

mod check;
mod figures;
mod output;
mod plan;
mod restart;
mod settings;
mod slot;
mod supervisor;

use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use encke_io::lock;
use encke_stats::Source;

pub use plan::AppError;
pub use restart::{AppRestarter, RestartFailure, RestartResult};
pub use settings::{AppProtocol, AppSettings, ReplaceWhen, StopSignalName};
pub use supervisor::AppRouting;

use figures::{AppFigures, AppTally};
use plan::AppPlan;
use supervisor::{Supervisor, SupervisorMessage};

/// All supervised applications of a server. Their processes end when this is dropped.
pub struct Apps {
    sender: Sender<SupervisorMessage>,
    supervisor: Mutex<SupervisorState>,
    tallies: Arc<Mutex<Vec<AppTally>>>,
}

/// The thread of the supervisor. A server without applications does not start it.
enum SupervisorState {
    Idle(Box<dyn AppRouting>, Receiver<SupervisorMessage>),
    Running(JoinHandle<()>),
    Ended,
}

/// Applications that were found on this machine, for [`Apps::run`].
pub struct FoundApps(Vec<AppPlan>);

impl FoundApps {
    /// Finds the programs, directories and users of applications.
    ///
    /// # Errors
    /// The first one that this machine lacks.
    pub fn find(settings: &[AppSettings]) -> Result<Self, AppError> {
        settings.iter().map(AppPlan::find).collect::<Result<_, _>>().map(Self)
    }
}

impl Apps {
    /// Creates a supervisor without applications.
    pub fn new(routing: impl AppRouting + 'static) -> Self {
        let (sender, receiver) = channel();
        let supervisor = Mutex::new(SupervisorState::Idle(Box::new(routing), receiver));
        Self { sender, supervisor, tallies: Arc::default() }
    }

    /// Creates the sockets of new applications, and names them: requests can wait there until [`Apps::run`] starts the processes.
    ///
    /// # Errors
    /// The system has no thread or descriptor left. No application is started then.
    pub fn prepare(&self, apps: &FoundApps) -> io::Result<()> {
        let mut state = lock(&self.supervisor);
        if apps.0.is_empty() {
            return Ok(());
        }
        if matches!(*state, SupervisorState::Idle(..))
            && let SupervisorState::Idle(routing, receiver) =
                mem::replace(&mut *state, SupervisorState::Ended)
        {
            let supervisor = Supervisor::new(routing, self.sender.clone(), Arc::clone(&self.tallies));
            let run = move || supervisor.run(&receiver);
            *state = SupervisorState::Running(thread::Builder::new().name("apps".into()).spawn(run)?);
        }
        let (result, prepared) = channel();
        let _ = self.sender.send(SupervisorMessage::Prepare(apps.0.clone(), result));
        // Without a supervisor no application can start.
        prepared.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Runs these applications from now on: starts new ones, replaces others by their `replace`, and ends those that are missing,
    /// after their requests. Returns at once. Call [`Apps::prepare`] before.
    pub fn run(&self, apps: FoundApps) {
        // Without a thread there are no applications, before and after.
        let _ = self.sender.send(SupervisorMessage::Reload(apps.0));
    }

    /// Creates a handle that restarts applications.
    pub fn restarter(&self) -> AppRestarter {
        AppRestarter(self.sender.clone())
    }

    /// The metrics of the applications.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::new(AppFigures(Arc::clone(&self.tallies)))
    }
}

impl Drop for Apps {
    /// Ends all processes, each within its `stop_time`.
    fn drop(&mut self) {
        let state = mem::replace(&mut *lock(&self.supervisor), SupervisorState::Ended);
        if let SupervisorState::Running(thread) = state {
            let _ = self.sender.send(SupervisorMessage::End);
            let _panicked = thread.join();
        }
    }
}
