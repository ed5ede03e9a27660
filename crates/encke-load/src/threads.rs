//! Threads that each drive a crowd, and the handle by which the thread that started them waits and stops them.
//!
//! ```text
//!   start ─► thread 0: open connections ─┐ all are ready  ┌─► turns until its share is done ─► Part ─┐
//!            thread n: open connections ─┴── prepared ────┴─► …                                      ┤
//!   wait   ◄── a thread has ended, or the time is up ◄───────────────────────────────────────────────┘
//! ```
//! A [`Script`] defines the crowds: [`crate::run`] has one for requests, [`crate::push`] one for subscribers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use encke_io::clock::Clock;
use encke_io::host::{self, QuotaPeriods, TcpCounters, ThreadTimes};
use encke_io::lock;
use encke_io::offload::Pool;
use encke_io::{Backend, Reactor, Unavailable, Waker, run_on};

use crate::crowd::Crowd;
use crate::dial::Sockets;
use crate::engine::LoadEngine;
use crate::plan::PlanShare;
use crate::run::{RunError, ThreadShare};

/// Defines a run: one crowd per thread, and the result taken from it.
pub(crate) trait Script: Send + Sync + 'static {
    type Crowd: Crowd;
    /// The result of a thread.
    type Part: Send + 'static;

    /// The source of a thread's sockets.
    fn sockets(&self, share: PlanShare) -> Sockets;

    fn backend(&self) -> Backend;

    fn threads(&self) -> u16;

    /// Maximum open connections, over all threads.
    fn connections(&self) -> u64;

    /// Creates a thread's crowd; called on that thread.
    fn crowd(&self, share: PlanShare) -> Self::Crowd;

    /// Called once when all connections are open and nothing has begun. All threads wait for it.
    fn prepared(&self) {}

    /// Takes the result out of a finished crowd.
    fn part(crowd: Self::Crowd) -> Self::Part;
}

/// Handle of the running threads.
pub(crate) struct Threads<P> {
    halt: Halt,
    news: Receiver<Result<Ended<P>, RunError>>,
    parts: Vec<Ended<P>>,
    expected: usize,
    trouble: Option<RunError>,
    tcp: Option<TcpCounters>,
    quota: QuotaPeriods,
    clock: Clock,
    began_unix_ns: u64,
}

/// The result of a thread that has ended.
pub(crate) struct Ended<P> {
    pub(crate) part: P,
    /// Processor share of the thread during the run.
    pub(crate) share: Option<ThreadShare>,
}

/// The results of all threads.
pub(crate) struct ThreadResults<P> {
    /// When the threads were started, in nanoseconds since 1970.
    pub(crate) began_unix_ns: u64,
    pub(crate) parts: Vec<P>,
    pub(crate) shares: Vec<ThreadShare>,
    pub(crate) tcp: Option<TcpCounters>,
    /// Fraction of CPU quota periods in which the quota of this process was exhausted.
    pub(crate) throttled: f64,
}

/// Handle that ends a run from any thread.
#[derive(Clone)]
pub struct Halt {
    told: Arc<AtomicBool>,
    wakers: Arc<Mutex<Vec<Waker>>>,
}

impl Halt {
    fn new() -> Self {
        Self { told: Arc::new(AtomicBool::new(false)), wakers: Arc::new(Mutex::new(Vec::new())) }
    }

    /// Stops the threads from beginning anything new; open requests may finish.
    pub fn halt(&self) {
        self.told.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Wakes the threads so that they check for work.
    pub(crate) fn wake(&self) {
        lock(&self.wakers).iter().for_each(Waker::wake);
    }

    /// Registers a thread's waker, and wakes it at once if the run was halted already.
    fn enrol(&self, waker: Waker) {
        let mut wakers = lock(&self.wakers);
        if self.told.load(Ordering::Relaxed) {
            waker.wake();
        }
        wakers.push(waker);
    }
}

/// Descriptors needed besides the connections: standard streams, and some for each thread's reactor.
const DESCRIPTORS_BESIDE: u64 = 64;

impl<P: Send + 'static> Threads<P> {
    /// Starts the threads.
    ///
    /// # Errors
    /// The descriptor limit is too low, or a thread cannot be started.
    pub(crate) fn start<S: Script<Part = P>>(script: &Arc<S>) -> Result<Self, RunError> {
        let (wanted, limit) = (script.connections() + DESCRIPTORS_BESIDE, host::raise_descriptor_limit());
        if wanted > limit {
            return Err(RunError::Descriptors(wanted, limit));
        }
        // Done before the first connection is timed.
        host::reserve_descriptors(wanted);
        let threads = usize::from(script.threads());
        let halt = Halt::new();
        let barrier = Arc::new(Barrier::new(threads));
        let (sender, news) = channel();
        let (tcp, quota) = (host::tcp_counters(), host::quota_periods(None));
        let mut clock = Clock::new();
        let began_unix_ns = clock.now().unix_ns;
        for number in 0..threads {
            let seat = ThreadInput {
                script: Arc::clone(script),
                share: PlanShare { number, threads },
                halt: halt.clone(),
                barrier: Arc::clone(&barrier),
                news: sender.clone(),
            };
            thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || seat.take())
                .map_err(RunError::Thread)?;
        }
        let (parts, expected, trouble) = (Vec::new(), threads, None);
        Ok(Self { halt, news, parts, expected, trouble, tcp, quota, clock, began_unix_ns })
    }

    /// Waits for at most this long; returns whether all threads have ended.
    pub(crate) fn wait(&mut self, at_most: Duration) -> bool {
        let until_ns = self.clock.now().plus(at_most);
        while self.expected > 0 {
            let left_ns = until_ns.saturating_sub(self.clock.now().mono_ns);
            match self.news.recv_timeout(Duration::from_nanos(left_ns)) {
                Ok(ended) => {
                    self.expected -= 1;
                    match ended {
                        Ok(ended) => self.parts.push(ended),
                        Err(trouble) => {
                            self.trouble.get_or_insert(trouble);
                            self.halt.halt();
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => unreachable!("each thread tells its end, or aborts"),
            }
        }
        true
    }

    /// Handle that ends the threads from any thread.
    pub(crate) fn halter(&self) -> &Halt {
        &self.halt
    }

    /// The time on the monotonic clock.
    pub(crate) fn now_ns(&mut self) -> u64 {
        self.clock.now().mono_ns
    }

    /// The results of all threads. Call it once [`Threads::wait`] has returned true.
    ///
    /// # Errors
    /// The first error of any thread.
    pub(crate) fn whole(self) -> Result<ThreadResults<P>, RunError> {
        if let Some(trouble) = self.trouble {
            return Err(trouble);
        }
        let tcp = self.tcp.zip(host::tcp_counters()).map(|(before, after)| TcpCounters {
            listen_drops: after.listen_drops.saturating_sub(before.listen_drops),
            retransmits: after.retransmits.saturating_sub(before.retransmits),
        });
        let throttled = host::quota_periods(None).share_since(self.quota);
        let shares = self.parts.iter().filter_map(|ended| ended.share).collect();
        let parts = self.parts.into_iter().map(|ended| ended.part).collect();
        Ok(ThreadResults { began_unix_ns: self.began_unix_ns, parts, shares, tcp, throttled })
    }
}

/// Everything a thread is started with.
struct ThreadInput<S: Script> {
    script: Arc<S>,
    share: PlanShare,
    halt: Halt,
    barrier: Arc<Barrier>,
    news: Sender<Result<Ended<S::Part>, RunError>>,
}

impl<S: Script> ThreadInput<S> {
    fn take(self) {
        let _whole = AbortOnPanic;
        match Pool::start(1, 1) {
            Ok(pool) => run_on(self.script.backend(), pool, self),
            Err(error) => {
                self.stay_away();
                self.tell(Err(RunError::Thread(error)));
            }
        }
    }

    fn tell(&self, ended: Result<Ended<S::Part>, RunError>) {
        let _nobody_looks_on = self.news.send(ended);
    }

    /// Passes both barriers without doing anything, since the other threads wait there.
    fn stay_away(&self) {
        self.barrier.wait();
        self.barrier.wait();
    }

    fn drive<R: Reactor>(&self, reactor: R) -> Result<Ended<S::Part>, RunError> {
        self.halt.enrol(reactor.waker());
        host::wake_on_time();
        let crowd = self.script.crowd(self.share);
        let sockets = self.script.sockets(self.share);
        let mut engine = LoadEngine::new(reactor, crowd, sockets, Arc::clone(&self.halt.told));
        let opened = engine.open();
        if self.barrier.wait().is_leader() {
            self.script.prepared();
        }
        self.barrier.wait();
        opened.map_err(RunError::Wait)?;
        let (before, began_ns) = (host::thread_times(), engine.now_ns());
        let over_ns = engine.run().map_err(RunError::Wait)?;
        let share = before.zip(host::thread_times());
        let share = share.map(|(before, after)| share_of(before, after, over_ns.saturating_sub(began_ns)));
        Ok(Ended { part: S::part(engine.into_crowd()), share })
    }
}

impl<S: Script> encke_io::ReactorTask for ThreadInput<S> {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        let ended = match reactor {
            Ok(reactor) => self.drive(reactor),
            Err(unavailable) => {
                self.stay_away();
                Err(RunError::Backend(unavailable))
            }
        };
        self.tell(ended);
    }
}

fn share_of(before: ThreadTimes, after: ThreadTimes, time_ns: u64) -> ThreadShare {
    let run_ns = after.run_ns.saturating_sub(before.run_ns);
    let time = time_ns.max(1) as f64;
    ThreadShare {
        busy: run_ns as f64 / time,
        waiting: after.wait_ns.saturating_sub(before.wait_ns) as f64 / time,
        run_ns,
    }
}

/// Aborts the process if a thread panics: the other threads would wait forever, and its requests would be uncounted.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
