//! The console's threads: work that may block, with the clients served in turn.
//!
//! ```text
//!  handler (a worker) ── job of a client ──► bounded queue ──► a thread: password hashes, or the settings file ──► response
//! ```
//! Settings are changed on one thread only, so that two writers are never interleaved. A client with many jobs delays another one by
//! a single job, and takes no place in the queue that another client needs ([`Turns`]).

use std::hash::Hash;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use encke_io::lock;
use encke_rights::Turns;
use encke_settings::{Level, notice};

/// Maximum number of waiting jobs, and of waiting jobs of one client. A job takes up to half a second.
const JOBS_MAX: usize = 64;
const JOBS_PER_CLIENT_MAX: usize = 16;

/// A queue of jobs, and its thread, which ends with the queue.
pub(crate) struct ConsoleThread<C> {
    queue: Arc<ConsoleQueue<C>>,
}

struct ConsoleQueue<C> {
    state: Mutex<ConsoleQueueState<C>>,
    changed: Condvar,
}

struct ConsoleQueueState<C> {
    jobs: Turns<C, ConsoleJob>,
    has_ended: bool,
}

type ConsoleJob = Box<dyn FnOnce(JobFate) + Send>;

/// The outcome of queueing a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JobFate {
    /// The job runs, on the thread of the queue.
    Run,
    /// The queue has no room. The job reports this to its client, and does nothing else: it is called on any thread.
    Rejected,
}

impl<C: Clone + Eq + Hash + Send + 'static> ConsoleThread<C> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let jobs = Turns::new(JOBS_MAX, JOBS_PER_CLIENT_MAX);
        let state = Mutex::new(ConsoleQueueState { jobs, has_ended: false });
        let queue = Arc::new(ConsoleQueue { state, changed: Condvar::new() });
        let served = Arc::clone(&queue);
        thread::Builder::new().name(name.into()).spawn(move || {
            while let Some(job) = served.next() {
                // The response of a job that panics is a 500; the next job must still run.
                if catch_unwind(AssertUnwindSafe(|| job(JobFate::Run))).is_err() {
                    notice::report(Level::Error, "a request of the console has failed by a bug of Encke");
                }
            }
        })?;
        Ok(Self { queue })
    }

    /// Queues a job of a client. It is called once: on the thread, or at once or later because the queue has no room.
    pub(crate) fn run(&self, client: C, job: impl FnOnce(JobFate) + Send + 'static) {
        let pushed = lock(&self.queue.state).jobs.push(client, Box::new(job));
        self.queue.changed.notify_one();
        if let Some(rejected) = pushed.map_or_else(Some, |evicted| evicted.map(|(_, job)| job)) {
            rejected(JobFate::Rejected);
        }
    }
}

impl<C> Drop for ConsoleThread<C> {
    fn drop(&mut self) {
        lock(&self.queue.state).has_ended = true;
        self.queue.changed.notify_one();
    }
}

impl<C: Clone + Eq + Hash> ConsoleQueue<C> {
    /// Waits for the next job; `None` at the end of the queue.
    fn next(&self) -> Option<ConsoleJob> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop() {
                return Some(job);
            }
            if state.has_ended {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A thread whose first job runs until the returned sender is dropped.
    fn busy() -> (ConsoleThread<&'static str>, Sender<()>) {
        let thread = ConsoleThread::start("test").expect("a thread");
        let ((begin, begun), (release, released)) = (channel(), channel::<()>());
        thread.run("first", move |_| {
            begin.send(()).expect("the test waits");
            let _released = released.recv();
        });
        begun.recv().expect("the job runs");
        (thread, release)
    }

    fn queue(
        thread: &ConsoleThread<&'static str>,
        jobs: impl IntoIterator<Item = (&'static str, u32)>,
    ) -> Receiver<(u32, JobFate)> {
        let (send, outcomes) = channel();
        for (client, number) in jobs {
            let send = send.clone();
            thread.run(client, move |fate| send.send((number, fate)).expect("the test waits"));
        }
        outcomes
    }

    #[test]
    fn a_client_with_many_jobs_delays_another_one_by_a_single_job() {
        let (thread, release) = busy();
        let many = (0..10).map(|number| ("many", number));
        let outcomes = queue(&thread, many.chain([("one", 100)]));
        drop(release);
        let order: Vec<(u32, JobFate)> = outcomes.iter().collect();
        assert_eq!(order[..2], [(0, JobFate::Run), (100, JobFate::Run)], "{order:?}");
        assert_eq!(order.len(), 11);
    }

    #[test]
    fn a_full_queue_rejects_a_job_of_the_busiest_client_and_runs_the_others() {
        let (thread, release) = busy();
        let names = ["a", "b", "c", "d"];
        let jobs = names.iter().flat_map(|name| (0..17).map(|number| (*name, number)));
        let outcomes = queue(&thread, jobs.chain([("other", 100)]));
        let rejected: Vec<(u32, JobFate)> = outcomes.try_iter().collect();
        let last = |number| (number, JobFate::Rejected);
        assert_eq!(rejected, [last(16), last(16), last(16), last(16), last(15)], "each line, and the queue");
        drop(release);
        let run: Vec<(u32, JobFate)> = outcomes.iter().collect();
        assert_eq!(run.len(), JOBS_MAX);
        assert!(run.contains(&(100, JobFate::Run)) && run.iter().all(|(_, fate)| *fate == JobFate::Run));
    }
}
