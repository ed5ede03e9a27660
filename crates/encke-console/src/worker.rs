//! The console's thread: work that may block, in the order of its arrival.
//!
//! ```text
//!  handler (a worker) ── job ──► bounded queue ──► thread "console": password hashes, settings file ──► response
//! ```
//! Settings are changed on this thread only, so that two writers are never interleaved.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use encke_io::lock;
use encke_settings::{Level, notice};

/// Maximum number of waiting jobs. A job takes up to half a second.
const JOBS_MAX: usize = 64;

/// A queue of jobs, and its thread, which ends with the queue.
#[derive(Clone)]
pub(crate) struct ConsoleThread {
    jobs: SyncSender<ConsoleJob>,
}

type ConsoleJob = Box<dyn FnOnce() + Send>;

impl ConsoleThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (jobs, queue) = sync_channel::<ConsoleJob>(JOBS_MAX);
        thread::Builder::new().name(name.into()).spawn(move || {
            for job in queue {
                // The response of a job that panics is a 500; the next job must still run.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    notice::report(Level::Error, "a request of the console has failed by a bug of Encke");
                }
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs a job with a value on the thread. If the queue is full, returns the value: a response that it holds can then be
    /// given at once.
    pub(crate) fn run<T: Send + 'static>(&self, held: T, job: impl FnOnce(T) + Send + 'static) -> Option<T> {
        let held = Arc::new(Mutex::new(Some(held)));
        let taken = Arc::clone(&held);
        let queued = self.jobs.try_send(Box::new(move || {
            let held = lock(&taken).take();
            if let Some(held) = held {
                job(held);
            }
        }));
        if queued.is_ok() { None } else { lock(&held).take() }
    }
}
