//! A run of requests: what it is started with, and what it came to.
//!
//! ```text
//!   Run::start ─► threads, each with a crowd of Requests and a Tally ─► Outcome
//!   Run::totals    what is counted so far, at any time
//! ```
//! The threads share nothing but the moment at which they begin and the wish that they end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use encke_io::host::TcpCounters;
use encke_io::{Backend, Unavailable};

use crate::dial::Sockets;
use crate::plan::{Plan, Share};
use crate::requests::{Requests, Times};
use crate::sealed::Sealed;
use crate::several::{self, Several};
use crate::tally::{Errors, Tally, Totals};
pub use crate::threads::Halt;
use crate::threads::{Script, Threads};
use crate::watch::Watched;

/// Threads at work on a plan.
pub struct Run {
    /// Of each server what it is called, and a tally for each thread.
    servers: Vec<(String, Vec<Arc<Tally>>)>,
    threads: Threads<Vec<Part>>,
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
    /// Of several servers what came of each; none if there is one.
    pub targets: Vec<Aimed>,
}

/// What came of one server among several.
#[derive(Clone, Debug)]
pub struct Aimed {
    /// What it is called.
    pub name: String,
    /// What was counted of it.
    pub totals: Totals,
    /// From its first request that counts to its last answer.
    pub elapsed: Duration,
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
        let names = plan.targets.iter().map(|target| target.name.clone());
        let names = if plan.targets.is_empty() { vec![String::new()] } else { names.collect() };
        let plans: Vec<Arc<Plan>> = plan.parts().into_iter().map(Arc::new).collect();
        let tallies = || (0..plan.threads).map(|_| Arc::new(Tally::new())).collect::<Vec<_>>();
        let servers: Vec<_> = names.into_iter().map(|name| (name, tallies())).collect();
        let tallies = servers.iter().map(|(_, tallies)| tallies.clone()).collect();
        let script = Requesting { whole: plan, plans, tallies };
        Ok(Self { servers, threads: Threads::start(&Arc::new(script))? })
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
        (
            self.threads.now_ns(),
            Totals::of(self.servers.iter().flat_map(|(_, tallies)| tallies).map(|tally| &**tally)),
        )
    }

    /// What the run came to, once [`Run::wait`] has said that it is over.
    ///
    /// # Errors
    /// It could not be run to its end.
    pub fn outcome(self) -> Result<Outcome, Trouble> {
        let whole = self.threads.whole()?;
        let mut errors = Errors::default();
        // A run without any time ends before it begins.
        let nothing = Times { opening_ns: u64::MAX, counted_ns: u64::MAX, ..Times::default() };
        let (mut all, mut each) = (nothing, vec![nothing; self.servers.len()]);
        for parts in whole.parts {
            for (Part { times, errors: theirs }, server) in parts.into_iter().zip(&mut each) {
                all.stretch(times);
                server.stretch(times);
                errors.merge(theirs);
            }
        }
        let totals = |tallies: &[Arc<Tally>]| Totals::of(tallies.iter().map(|tally| &**tally));
        let several = self.servers.len() > 1;
        let servers = self.servers.iter().zip(each).filter(|_| several);
        let targets = servers.map(|((name, tallies), times)| Aimed {
            name: name.clone(),
            totals: totals(tallies),
            elapsed: times.counted(),
        });
        Ok(Outcome {
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

/// Crowds that send a plan's requests.
struct Requesting {
    whole: Plan,
    /// One for each server.
    plans: Vec<Arc<Plan>>,
    /// Of each server one a thread.
    tallies: Vec<Vec<Arc<Tally>>>,
}

/// What a thread came to.
struct Part {
    errors: Errors,
    times: Times,
}

impl Script for Requesting {
    type Crowd = Several;
    /// Of each server.
    type Part = Vec<Part>;

    fn sockets(&self, share: Share) -> Sockets {
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

    fn crowd(&self, share: Share) -> Several {
        let each = self.plans.iter().zip(&self.tallies);
        let crowds = each.map(|(plan, tallies)| {
            let crowd = Requests::new(Arc::clone(plan), share, Arc::clone(&tallies[share.number]));
            Sealed::new(crowd, plan.tls.clone())
        });
        Several::new(crowds.collect(), &self.plans, share)
    }

    fn part(crowd: Several) -> Vec<Part> {
        let crowds = crowd.into_inner().into_iter();
        crowds.map(|crowd| Part { times: crowd.times(), errors: crowd.into_errors() }).collect()
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
