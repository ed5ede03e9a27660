//! A run: threads that each drive their share of a plan, and whoever started them, who looks on.
//!
//! ```text
//!   Run::start ─► thread 0: open connections ─┐ all are ready  ┌─► turns until its share is over ─► Part ─┐
//!                 thread n: open connections ─┴────────────────┴─► …                                     ─┤
//!   Run::news  ◄── a part has ended, or the time to look again has come ◄──────────────────────────────────┘
//!   Run::totals    what is counted so far, at any time
//! ```
//! The threads share nothing but the moment at which they begin and the wish that they end.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use encke_io::clock::Clock;
use encke_io::host::{self, TcpCounters, ThreadTimes};
use encke_io::offload::Pool;
use encke_io::{Reactor, Unavailable, Waker, run_on, socket};

use crate::engine::Engine;
use crate::plan::{Plan, Share};
use crate::requests::{Requests, Times};
use crate::tally::{Errors, Tally, Totals};

/// Threads at work on a plan.
pub struct Run {
    tallies: Vec<Arc<Tally>>,
    halt: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    news: Receiver<News>,
    sender: Sender<News>,
    parts: Vec<Part>,
    expected: usize,
    trouble: Option<Trouble>,
    tcp: Option<TcpCounters>,
    clock: Clock,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was counted.
    pub totals: Totals,
    /// What went wrong.
    pub errors: Errors,
    /// How long opening connections ahead of the run took.
    pub opening: Duration,
    /// From the first request that counts to the last answer.
    pub elapsed: Duration,
    /// What each thread had of the processors meanwhile, and how long that was.
    pub threads: Vec<ThreadShare>,
    /// What TCP on this machine counted meanwhile, other programs included.
    pub tcp: Option<TcpCounters>,
}

/// A thread's share of the processors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreadShare {
    /// Of the run's time, the share in which it ran.
    pub busy: f64,
    /// The share in which it could have run, but others did.
    pub waiting: f64,
    /// CPU time, ns.
    pub run_ns: u64,
}

/// Why there is no run.
#[derive(Debug)]
pub enum Trouble {
    /// The back end is not to be had.
    Backend(Unavailable),
    /// More connections than descriptors: wanted, and the limit.
    Descriptors(u64, u64),
    /// A thread could not be started, or could not go on.
    System(String),
}

/// Ends a run from another thread.
#[derive(Clone)]
pub struct Halt(Sender<News>);

impl Halt {
    /// As [`Run::halt`]; whoever waits for the run does it.
    pub fn halt(&self) {
        let _the_run_is_over = self.0.send(News::Halt);
    }
}

enum News {
    Began(Waker),
    Halt,
    Ended(Result<Part, Trouble>),
}

/// What a thread came to.
struct Part {
    errors: Errors,
    times: Times,
    /// At the beginning and the end, and when that was.
    processor: Option<(ThreadTimes, ThreadTimes)>,
    over_ns: u64,
}

/// Descriptors beside the connections: standard streams, and some for each thread's reactor.
const DESCRIPTORS_BESIDE: u64 = 64;

impl Run {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the plan needs is not to be had.
    pub fn start(plan: Plan) -> Result<Self, Trouble> {
        let (wanted, limit) =
            (u64::from(plan.connections) + DESCRIPTORS_BESIDE, host::raise_descriptor_limit());
        if wanted > limit {
            return Err(Trouble::Descriptors(wanted, limit));
        }
        let threads = usize::from(plan.threads);
        let plan = Arc::new(plan);
        let halt = Arc::new(AtomicBool::new(false));
        let barrier = Arc::new(Barrier::new(threads));
        let tallies: Vec<Arc<Tally>> = (0..threads).map(|_| Arc::new(Tally::new())).collect();
        let (sender, news) = channel();
        let tcp = host::tcp_counters();
        for (number, tally) in tallies.iter().enumerate() {
            let seat = Seat {
                plan: Arc::clone(&plan),
                share: Share { number, threads },
                tally: Arc::clone(tally),
                halt: Arc::clone(&halt),
                barrier: Arc::clone(&barrier),
                news: sender.clone(),
            };
            thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || seat.take())
                .map_err(|error| Trouble::System(format!("a thread cannot be started: {error}")))?;
        }
        let clock = Clock::new();
        let (wakers, parts) = (Vec::new(), Vec::new());
        Ok(Self { tallies, halt, wakers, news, sender, parts, expected: threads, trouble: None, tcp, clock })
    }

    /// Waits until the run is over, true, or so long, false.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        let until_ns = self.clock.now().plus(at_most);
        while self.expected > 0 {
            let left_ns = until_ns.saturating_sub(self.clock.now().mono_ns);
            match self.news.recv_timeout(Duration::from_nanos(left_ns)) {
                Ok(News::Began(waker)) => {
                    self.wakers.push(waker);
                    if self.halt.load(Ordering::Relaxed) {
                        self.halt();
                    }
                }
                Ok(News::Halt) => self.halt(),
                Ok(News::Ended(ended)) => {
                    self.expected -= 1;
                    match ended {
                        Ok(part) => self.parts.push(part),
                        Err(trouble) => {
                            self.trouble.get_or_insert(trouble);
                            self.halt();
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => unreachable!("the run keeps a sender of its own"),
            }
        }
        true
    }

    /// Has the threads begin nothing more; what is under way may end.
    pub fn halt(&self) {
        self.halt.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// What ends it from another thread.
    pub fn halter(&self) -> Halt {
        Halt(self.sender.clone())
    }

    /// What is counted so far, and the moment on the monotonic clock.
    pub fn totals(&mut self) -> (u64, Totals) {
        (self.clock.now().mono_ns, Totals::of(self.tallies.iter().map(|tally| &**tally)))
    }

    /// What the run came to, once [`Run::wait`] has said that it is over.
    ///
    /// # Errors
    /// It could not be run to its end.
    pub fn outcome(self) -> Result<Outcome, Trouble> {
        if let Some(trouble) = self.trouble {
            return Err(trouble);
        }
        let mut errors = Errors::default();
        let (mut counted, mut ended, mut opening, mut open) = (u64::MAX, 0, u64::MAX, 0);
        let mut threads = Vec::new();
        for part in self.parts {
            let times = part.times;
            if times.counted_ns > 0 {
                counted = counted.min(times.counted_ns);
            }
            ended = ended.max(times.ended_ns);
            opening = opening.min(times.opening_ns);
            open = open.max(times.open_ns);
            if let Some((begin, end)) = part.processor {
                let run_ns = end.run_ns.saturating_sub(begin.run_ns);
                let time = part.over_ns.saturating_sub(times.open_ns).max(1) as f64;
                threads.push(ThreadShare {
                    busy: run_ns as f64 / time,
                    waiting: end.wait_ns.saturating_sub(begin.wait_ns) as f64 / time,
                    run_ns,
                });
            }
            errors.merge(part.errors);
        }
        let tcp = self.tcp.zip(host::tcp_counters()).map(|(before, after)| TcpCounters {
            listen_drops: after.listen_drops.saturating_sub(before.listen_drops),
            retransmits: after.retransmits.saturating_sub(before.retransmits),
        });
        Ok(Outcome {
            totals: Totals::of(self.tallies.iter().map(|tally| &**tally)),
            errors,
            opening: Duration::from_nanos(open.saturating_sub(opening)),
            elapsed: Duration::from_nanos(ended.saturating_sub(counted.min(ended))),
            threads,
            tcp,
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(unavailable) => unavailable.fmt(f),
            Self::Descriptors(wanted, limit) => write!(
                f,
                "{wanted} descriptors are needed and {limit} allowed; use fewer connections, or raise the limit \
                 (ulimit -Hn)"
            ),
            Self::System(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Trouble {}

/// What a thread is given.
struct Seat {
    plan: Arc<Plan>,
    share: Share,
    tally: Arc<Tally>,
    halt: Arc<AtomicBool>,
    barrier: Arc<Barrier>,
    news: Sender<News>,
}

impl Seat {
    fn take(self) {
        let _whole = AbortOnPanic;
        let pool = match Pool::start(1, 1) {
            Ok(pool) => pool,
            Err(error) => {
                self.barrier.wait();
                let trouble = Trouble::System(format!("a thread cannot be started: {error}"));
                return self.tell(News::Ended(Err(trouble)));
            }
        };
        run_on(self.plan.backend, pool, self);
    }

    fn tell(&self, news: News) {
        let _nobody_looks_on = self.news.send(news);
    }

    fn drive<R: Reactor>(&self, reactor: R) -> Result<Part, Trouble> {
        let lost = |fault| Trouble::System(format!("waiting for events failed: {fault}"));
        self.tell(News::Began(reactor.waker()));
        host::wake_on_time();
        let crowd = Requests::new(Arc::clone(&self.plan), self.share, Arc::clone(&self.tally));
        let sockets = Box::new(|server: &_| socket::unconnected(server, None));
        let mut engine = Engine::new(reactor, crowd, self.plan.server, sockets, Arc::clone(&self.halt));
        let opened = engine.open();
        self.barrier.wait();
        opened.map_err(lost)?;
        let begin = host::thread_times();
        let over_ns = engine.run().map_err(lost)?;
        let processor = begin.zip(host::thread_times());
        let crowd = engine.into_crowd();
        Ok(Part { times: crowd.times(), errors: crowd.into_errors(), processor, over_ns })
    }
}

impl encke_io::Run for Seat {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        let ended = match reactor {
            Ok(reactor) => self.drive(reactor),
            Err(unavailable) => {
                // The others wait for it.
                self.barrier.wait();
                Err(Trouble::Backend(unavailable))
            }
        };
        self.tell(News::Ended(ended));
    }
}

/// A thread that panics would leave the others waiting and its requests uncounted: there is nothing to report then.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
