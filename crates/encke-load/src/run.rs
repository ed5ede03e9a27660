//! A run of requests: starting it, following it, and its outcome.
//!
//! ```text
//!   Run::start ─► threads, each with a crowd of Requests and a Tally ─► Outcome
//!   Run::totals    the counters so far, at any time
//! ```
//! The threads share only a barrier at the start and a halt flag.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use encke_io::host::TcpCounters;
use encke_io::{Backend, OpError, Unavailable};

use crate::dial::Sockets;
use crate::message::MessageError;
use crate::plan::{Plan, PlanShare};
use crate::probe::ProbeResult;
use crate::requests::{RequestTimes, Requests};
use crate::sealed::Sealed;
use crate::several::{self, Several};
use crate::tally::{Errors, Tally, Totals};
pub use crate::threads::Halt;
use crate::threads::{Script, Threads};

/// Handle of a running plan.
pub struct RunHandle {
    /// Per server: its name, and one tally per thread.
    servers: Vec<(String, Vec<Arc<Tally>>)>,
    threads: Threads<Vec<ThreadOutcome>>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// When the threads were started, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// All counters and histograms.
    pub totals: Totals,
    /// All errors, by kind.
    pub errors: Errors,
    /// How long it took to open the connections before the run.
    pub opening: Duration,
    /// Time from the first counted request to the last response.
    pub elapsed: Duration,
    /// Processor share and CPU time of each thread during the run.
    pub threads: Vec<ThreadShare>,
    /// TCP counters of this machine during the run, other programs included.
    pub tcp: Option<TcpCounters>,
    /// Fraction of CPU quota periods in which this program's quota was exhausted; 0 without a quota.
    pub throttled: f64,
    /// Resources used by the server, if it was watched.
    pub server: Option<ProbeResult>,
    /// Per-server results of a run with several servers; otherwise empty.
    pub targets: Vec<ServerOutcome>,
}

/// The results of one server among several.
#[derive(Clone, Debug)]
pub struct ServerOutcome {
    /// Name of the server.
    pub name: String,
    /// Counters and histograms of this server.
    pub totals: Totals,
    /// Time from its first counted request to its last response.
    pub elapsed: Duration,
}

/// Processor share of a thread during the run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreadShare {
    /// Fraction of the run's time in which the thread ran.
    pub busy: f64,
    /// Fraction in which the thread was runnable but waited for a processor.
    pub waiting: f64,
    /// CPU time, in ns.
    pub run_ns: u64,
}

/// Why a run could not start or finish.
///
/// [`RunError::Request`] and [`RunError::Descriptors`] ask for another plan; the others come from the operating system. The
/// same run may succeed later only after [`RunError::Thread`] and [`RunError::Wait`].
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The back end is unavailable.
    Backend(Unavailable),
    /// The connections need more descriptors than allowed: needed, and the limit.
    Descriptors(u64, u64),
    /// A request of the plan is invalid.
    Request(MessageError),
    /// A thread could not be started.
    Thread(io::Error),
    /// A thread could not wait for events.
    Wait(OpError),
}

impl RunHandle {
    /// Starts the threads.
    ///
    /// # Errors
    /// The back end, descriptors or threads that the plan needs are unavailable.
    pub fn start(plan: Plan) -> Result<Self, RunError> {
        let names = plan.targets.iter().map(|target| target.name.clone());
        let names = if plan.targets.is_empty() { vec![String::new()] } else { names.collect() };
        let plans: Vec<Arc<Plan>> = plan.parts().into_iter().map(Arc::new).collect();
        let tallies = || (0..plan.threads).map(|_| Arc::new(Tally::new())).collect::<Vec<_>>();
        let servers: Vec<_> = names.into_iter().map(|name| (name, tallies())).collect();
        let tallies = servers.iter().map(|(_, tallies)| tallies.clone()).collect();
        let script = RequestScript { whole: plan, plans, tallies };
        Ok(Self { servers, threads: Threads::start(&Arc::new(script))? })
    }

    /// Waits for at most this long; returns whether the run is over.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        self.threads.wait(at_most)
    }

    /// Stops the threads from beginning new requests; open requests may finish.
    pub fn halt(&self) {
        self.threads.halter().halt();
    }

    /// Handle that ends the run from another thread.
    pub fn halter(&self) -> Halt {
        self.threads.halter().clone()
    }

    /// The time on the monotonic clock, and the totals so far.
    pub fn totals(&mut self) -> (u64, Totals) {
        (
            self.threads.now_ns(),
            Totals::of(self.servers.iter().flat_map(|(_, tallies)| tallies).map(|tally| &**tally)),
        )
    }

    /// The outcome of the run. Call it once [`RunHandle::wait`] has returned true.
    ///
    /// # Errors
    /// The first error that kept a thread from finishing.
    pub fn outcome(self) -> Result<RunOutcome, RunError> {
        let whole = self.threads.whole()?;
        let mut errors = Errors::default();
        // Neutral element for `stretch`: a run without any times.
        let nothing = RequestTimes { opening_ns: u64::MAX, counted_ns: u64::MAX, ..RequestTimes::default() };
        let (mut all, mut each) = (nothing, vec![nothing; self.servers.len()]);
        for parts in whole.parts {
            for (ThreadOutcome { times, errors: theirs }, server) in parts.into_iter().zip(&mut each) {
                all.stretch(times);
                server.stretch(times);
                errors.merge(theirs);
            }
        }
        let totals = |tallies: &[Arc<Tally>]| Totals::of(tallies.iter().map(|tally| &**tally));
        let several = self.servers.len() > 1;
        let servers = self.servers.iter().zip(each).filter(|_| several);
        let targets = servers.map(|((name, tallies), times)| ServerOutcome {
            name: name.clone(),
            totals: totals(tallies),
            elapsed: times.counted(),
        });
        Ok(RunOutcome {
            began_unix_ns: whole.began_unix_ns,
            targets: targets.collect(),
            totals: Totals::of(self.servers.iter().flat_map(|(_, tallies)| tallies).map(|tally| &**tally)),
            errors,
            opening: Duration::from_nanos(all.open_ns.saturating_sub(all.opening_ns)),
            elapsed: all.counted(),
            threads: whole.shares,
            tcp: whole.tcp,
            throttled: whole.throttled,
            server: None,
        })
    }
}

/// The script of crowds that send a plan's requests.
struct RequestScript {
    whole: Plan,
    /// One plan per server.
    plans: Vec<Arc<Plan>>,
    /// Per server, one tally per thread.
    tallies: Vec<Vec<Arc<Tally>>>,
}

/// The result of one crowd.
struct ThreadOutcome {
    errors: Errors,
    times: RequestTimes,
}

impl Script for RequestScript {
    type Crowd = Several;
    /// One per server.
    type Part = Vec<ThreadOutcome>;

    fn sockets(&self, share: PlanShare) -> Sockets {
        several::sockets(&self.plans, share)
    }

    fn backend(&self) -> Backend {
        self.whole.backend
    }

    fn threads(&self) -> u16 {
        self.whole.threads
    }

    fn connections(&self) -> u64 {
        self.whole.connections.into()
    }

    fn crowd(&self, share: PlanShare) -> Several {
        let each = self.plans.iter().zip(&self.tallies);
        let crowds = each.map(|(plan, tallies)| {
            let crowd = Requests::new(Arc::clone(plan), share, Arc::clone(&tallies[share.number]));
            Sealed::new(crowd, plan.tls.clone())
        });
        Several::new(crowds.collect(), &self.plans, share)
    }

    fn part(crowd: Several) -> Vec<ThreadOutcome> {
        let crowds = crowd.into_inner().into_iter();
        crowds.map(|crowd| ThreadOutcome { times: crowd.times(), errors: crowd.into_errors() }).collect()
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(unavailable) => unavailable.fmt(f),
            Self::Descriptors(wanted, limit) => write!(
                f,
                "the run needs {wanted} descriptors, but {limit} are allowed: use fewer connections, or raise the limit (ulimit -Hn)"
            ),
            Self::Request(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Wait(fault) => write!(f, "cannot wait for events: {fault}"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Backend(unavailable) => Some(unavailable),
            Self::Descriptors(..) => None,
            Self::Request(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::Wait(fault) => Some(fault),
        }
    }
}
