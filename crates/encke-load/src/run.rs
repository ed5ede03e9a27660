//! A run of requests: what it is started with, and what it came to.
//!
//! ```text
//!   Run::start ─► threads, each with a crowd of Requests and a Tally ─► Outcome
//!   Run::totals    what is counted so far, at any time
//! ```
//! The threads share nothing but the moment at which they begin and the wish that they end.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_io::host::TcpCounters;
use encke_io::{Address, Backend, Unavailable};

use crate::plan::{Plan, Share};
use crate::requests::{Requests, Times};
use crate::tally::{Errors, Tally, Totals};
pub use crate::threads::Halt;
use crate::threads::{Script, Threads};
use crate::watch::Watched;

/// Threads at work on a plan.
pub struct Run {
    tallies: Vec<Arc<Tally>>,
    threads: Threads<Part>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When its threads were started: nanoseconds since 1970.
    pub began_unix_ns: u64,
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
    /// The share of the periods of its CPU quota, if there is one, that this program has used up meanwhile.
    pub throttled: f64,
    /// What the server used, if somebody watched it.
    pub server: Option<Watched>,
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

impl Run {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the plan needs is not to be had.
    pub fn start(plan: Plan) -> Result<Self, Trouble> {
        let tallies: Vec<Arc<Tally>> = (0..plan.threads).map(|_| Arc::new(Tally::new())).collect();
        let script = Requesting { plan: Arc::new(plan), tallies: tallies.clone() };
        Ok(Self { tallies, threads: Threads::start(&Arc::new(script))? })
    }

    /// Waits until the run is over, true, or so long, false.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        self.threads.wait(at_most)
    }

    /// Has the threads begin nothing more; what is under way may end.
    pub fn halt(&self) {
        self.threads.halter().halt();
    }

    /// What ends it from another thread.
    pub fn halter(&self) -> Halt {
        self.threads.halter().clone()
    }

    /// What is counted so far, and the moment on the monotonic clock.
    pub fn totals(&mut self) -> (u64, Totals) {
        (self.threads.now_ns(), Totals::of(self.tallies.iter().map(|tally| &**tally)))
    }

    /// What the run came to, once [`Run::wait`] has said that it is over.
    ///
    /// # Errors
    /// It could not be run to its end.
    pub fn outcome(self) -> Result<Outcome, Trouble> {
        let whole = self.threads.whole()?;
        let mut errors = Errors::default();
        let (mut counted, mut ended, mut opening, mut open) = (u64::MAX, 0, u64::MAX, 0);
        for Part { times, errors: theirs } in whole.parts {
            if times.counted_ns > 0 {
                counted = counted.min(times.counted_ns);
            }
            ended = ended.max(times.ended_ns);
            opening = opening.min(times.opening_ns);
            open = open.max(times.open_ns);
            errors.merge(theirs);
        }
        Ok(Outcome {
            began_unix_ns: whole.began_unix_ns,
            totals: Totals::of(self.tallies.iter().map(|tally| &**tally)),
            errors,
            opening: Duration::from_nanos(open.saturating_sub(opening)),
            elapsed: Duration::from_nanos(ended.saturating_sub(counted.min(ended))),
            threads: whole.shares,
            tcp: whole.tcp,
            throttled: whole.throttled,
            server: None,
        })
    }
}

/// Crowds that send a plan's requests.
struct Requesting {
    plan: Arc<Plan>,
    /// One a thread.
    tallies: Vec<Arc<Tally>>,
}

/// What a thread came to.
struct Part {
    errors: Errors,
    times: Times,
}

impl Script for Requesting {
    type Crowd = Requests;
    type Part = Part;

    fn server(&self) -> &Address {
        &self.plan.server
    }

    fn sources(&self) -> &[IpAddr] {
        &self.plan.sources
    }

    fn backend(&self) -> Backend {
        self.plan.backend
    }

    fn threads(&self) -> u16 {
        self.plan.threads
    }

    fn connections(&self) -> u64 {
        self.plan.connections.into()
    }

    fn crowd(&self, share: Share) -> Requests {
        Requests::new(Arc::clone(&self.plan), share, Arc::clone(&self.tallies[share.number]))
    }

    fn part(crowd: Requests) -> Part {
        Part { times: crowd.times(), errors: crowd.into_errors() }
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
