//! Blocking work away from the workers: bounded pools of threads that complete as events.
//!
//! ```text
//! Local   disk, compression      threads from the start, their number is a setting   queue: QUEUE_DEFAULT
//! Hash    passwords              threads when needed, one less than local ones       queue: HASH_QUEUE_MAX
//! Remote  another program        threads when needed, at most REMOTE_THREADS_MAX     queue: REMOTE_QUEUE_MAX
//! ```
//! A job belongs here if it may wait for a disk or needs more than about 100 µs of CPU. Examples are opening a file that is not
//! in the kernel's cache, listing a directory, and compressing. Workers never wait for it. Jobs that wait for another program
//! have separate threads ([`JobLane::Remote`]), so that files are still read when that program hangs. So do hashes of passwords
//! ([`JobLane::Hash`]), of which strangers can request any number: they never wait for all processor cores of the local threads.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::lock::lock;
use crate::op::{Done, Job, JobLane};
use crate::wake::Waker;

/// Maximum number of queued local jobs. 1,024 jobs of 1 ms on two threads are half a second of queue. Beyond that, an immediate
/// "busy" response serves clients better.
pub const QUEUE_DEFAULT: usize = 1_024;
/// Maximum number of concurrent remote jobs. A program that responds within 5 ms handles 1,600 requests per second with them.
pub const REMOTE_THREADS_MAX: usize = 8;
/// Maximum number of queued remote jobs. With a program that takes 50 ms, the last job waits for 0.4 s.
pub const REMOTE_QUEUE_MAX: usize = 64;

/// Maximum number of queued hashes. Each worker requests one at a time.
pub const HASH_QUEUE_MAX: usize = 1_024;

/// Threads shared by the workers of a process, by [`JobLane`].
#[derive(Clone)]
pub struct Pool {
    local: Arc<PoolShared>,
    hash: Arc<PoolShared>,
    remote: Arc<PoolShared>,
}

struct PoolShared {
    /// Prefix of the thread names.
    name: &'static str,
    queue: Mutex<JobQueue>,
    work: Condvar,
}

struct JobQueue {
    jobs: VecDeque<(Job, Arc<Returns>)>,
    limit: usize,
    threads: usize,
    threads_max: usize,
    /// Number of threads that wait for a job.
    idle: usize,
    open: bool,
}

impl Pool {
    /// Creates a pool with `threads` threads for local jobs, and a queue of at most `limit` local jobs.
    ///
    /// # Errors
    /// The system cannot create another thread.
    pub fn start(threads: usize, limit: usize) -> io::Result<Self> {
        let local = PoolShared::new("offload", threads.max(1), limit);
        for _ in 0..threads.max(1) {
            local.start_thread(&mut lock(&local.queue))?;
        }
        let hash = PoolShared::new("hash", threads.saturating_sub(1).max(1), HASH_QUEUE_MAX);
        Ok(Self { local, hash, remote: PoolShared::new("remote", REMOTE_THREADS_MAX, REMOTE_QUEUE_MAX) })
    }

    /// Queues a job whose result goes to `returns`. Gives the job back if the queue is full.
    pub(crate) fn submit(&self, job: Job, returns: &Arc<Returns>) -> Result<(), Job> {
        match job.lane {
            JobLane::Local => self.local.submit(job, returns),
            JobLane::Hash => self.hash.submit(job, returns),
            JobLane::Remote => self.remote.submit(job, returns),
        }
    }

    /// Ends the threads once the queued jobs are done; further jobs are rejected.
    pub fn close(&self) {
        for shared in [&self.local, &self.hash, &self.remote] {
            lock(&shared.queue).open = false;
            shared.work.notify_all();
        }
    }
}

impl PoolShared {
    fn new(name: &'static str, threads_max: usize, limit: usize) -> Arc<Self> {
        let queue = JobQueue { jobs: VecDeque::new(), limit, threads: 0, threads_max, idle: 0, open: true };
        Arc::new(Self { name, queue: Mutex::new(queue), work: Condvar::new() })
    }

    fn submit(self: &Arc<Self>, job: Job, returns: &Arc<Returns>) -> Result<(), Job> {
        let mut queue = lock(&self.queue);
        if queue.jobs.len() >= queue.limit || !queue.open {
            return Err(job);
        }
        let busy = queue.idle <= queue.jobs.len() && queue.threads < queue.threads_max;
        // If the system cannot create another thread, the job waits for a running one.
        if busy && self.start_thread(&mut queue).is_err() && queue.threads == 0 {
            return Err(job);
        }
        queue.jobs.push_back((job, Arc::clone(returns)));
        drop(queue);
        self.work.notify_one();
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, queue: &mut JobQueue) -> io::Result<()> {
        let shared = Arc::clone(self);
        thread::Builder::new()
            .name(format!("{}-{}", self.name, queue.threads))
            // Compression needs some 100 KiB; the default of 2 MiB would only cost address space.
            .stack_size(512 * 1024)
            .spawn(move || shared.run())?;
        queue.threads += 1;
        Ok(())
    }

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
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            };
            drop(queue);
            // A job that panics completes without a result, and the thread takes the next one. The panic hook has already
            // printed the panic.
            let done = catch_unwind(AssertUnwindSafe(job.run)).ok();
            returns.push(job.key, done);
        }
    }
}

/// Collects the results for one reactor.
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
