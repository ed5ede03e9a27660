//! A helper thread that is not pinned. The measuring thread is pinned, and so are the threads that it starts. A server whose
//! threads must not be pinned is therefore started from this thread.

use std::sync::mpsc::{self, Sender};
use std::thread;

type HelperJob = Box<dyn FnOnce() + Send>;

/// A thread that runs jobs one after the other. It ends when this value is dropped.
pub(crate) struct HelperThread {
    jobs: Option<Sender<HelperJob>>,
}

impl HelperThread {
    /// Starts the thread. Call this before the measuring thread is pinned.
    pub(crate) fn start(name: &str) -> Self {
        let (jobs, given) = mpsc::channel::<HelperJob>();
        let started =
            thread::Builder::new().name(name.into()).spawn(move || given.into_iter().for_each(|job| job()));
        Self { jobs: started.is_ok().then_some(jobs) }
    }

    /// Runs a job and waits for its result. `None` if the thread could not be started, or the job panicked.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (tell, told) = mpsc::channel();
        let job = Box::new(move || {
            let _nobody_waits = tell.send(work());
        });
        self.jobs.as_ref()?.send(job).ok()?;
        told.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_on_one_other_thread() {
        let aside = HelperThread::start("aside");
        let here = thread::current().id();
        let there = aside.run(|| thread::current().id());
        assert!(there.is_some_and(|there| there != here));
        assert_eq!(aside.run(|| thread::current().id()), there);
    }
}
