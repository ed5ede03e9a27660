//! Blocking work away from the workers: a bounded pool of threads that completes as an event.
//!
//! What goes here may wait for a disk or take more than some 100 µs of CPU: opening a file that is not in the
//! kernel's cache, listing a folder, compressing. A worker never waits for it.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::op::{Done, Job};
use crate::wake::Waker;

/// Jobs that may wait; one more is refused. 1,024 jobs of 1 ms on two threads are half a second of queue:
/// past that an answer "busy" now serves people better.
pub const QUEUE_DEFAULT: usize = 1_024;

/// A pool of threads shared by the workers of a process.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

struct Queue {
    jobs: VecDeque<(Job, Arc<Returns>)>,
    limit: usize,
    open: bool,
}

impl Pool {
    /// Starts `threads` threads, over a queue of at most `limit` jobs.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub fn start(threads: usize, limit: usize) -> io::Result<Self> {
        let queue = Queue { jobs: VecDeque::new(), limit, open: true };
        let pool = Self(Arc::new(Shared { queue: Mutex::new(queue), work: Condvar::new() }));
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.0);
            thread::Builder::new()
                .name(format!("offload-{number}"))
                // Compression needs some 100 KiB; the default of 2 MiB would only cost address space.
                .stack_size(512 * 1024)
                .spawn(move || shared.run())?;
        }
        Ok(pool)
    }

    /// Queues a job whose result goes to `returns`; gives it back if the queue is full.
    pub(crate) fn submit(&self, job: Job, returns: &Arc<Returns>) -> Result<(), Job> {
        let mut queue = lock(&self.0.queue);
        if queue.jobs.len() >= queue.limit || !queue.open {
            return Err(job);
        }
        queue.jobs.push_back((job, Arc::clone(returns)));
        drop(queue);
        self.0.work.notify_one();
        Ok(())
    }

    /// Ends the threads once the queued jobs are done; further jobs are refused.
    pub fn close(&self) {
        lock(&self.0.queue).open = false;
        self.0.work.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let (job, returns) = loop {
                if let Some(next) = queue.jobs.pop_front() {
                    break next;
                }
                if !queue.open {
                    return;
                }
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            // A job that panics is answered with nothing; the pool goes on. The hook has printed the panic.
            let done = catch_unwind(AssertUnwindSafe(job.run)).ok();
            returns.push(job.key, done);
        }
    }
}

/// Where the results for one reactor are laid down.
pub(crate) struct Returns {
    done: Mutex<VecDeque<(u64, Option<Done>)>>,
    waker: Waker,
}

impl Returns {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { done: Mutex::new(VecDeque::new()), waker })
    }

    pub(crate) fn push(&self, key: u64, done: Option<Done>) {
        lock(&self.done).push_back((key, done));
        self.waker.wake();
    }

    pub(crate) fn take(&self, into: &mut VecDeque<(u64, Option<Done>)>) {
        into.append(&mut lock(&self.done));
    }
}

/// The data behind these locks is whole at every point where a thread could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
