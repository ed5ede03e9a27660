//! A server in the simulator: the world determines which worker runs its next turn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_io::sim::World;
use encke_io::{Reactor as _, SimReactor, Token};

use super::traces::Observed;
use crate::census::Census;
use crate::command::{CommandQueue, WorkerCommand};
use crate::core::Core;
use crate::handler::Mount;
use crate::inbox::Inbox;
use crate::listener::ListenerKind;
use crate::log::Access;
use crate::metrics::WorkerMetrics;
use crate::plan::{MountPoint, WorkerPlan};
use crate::plan_progress::PlanProgress;
use crate::policy::ConnLimits;
use crate::worker::{Turn, Worker, WorkerShared};

/// The workers of one simulated server, which listen on one address.
pub struct Fleet {
    /// The number of the first worker's reactor in the world.
    first: usize,
    commands: Vec<Arc<CommandQueue>>,
    workers: Vec<Option<Worker<SimReactor>>>,
    counts: FleetCounts,
}

/// The close reasons of a server's workers.
#[derive(Clone, Default)]
pub struct FleetCounts(Vec<Arc<WorkerMetrics>>);

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stepped {
    /// The reactor belongs to another server, or its worker has ended.
    NotHere,
    /// The worker continues.
    Goes,
    /// The worker has ended, and has released all connections.
    Ended,
}

fn plan(policy: ConnLimits, mounts: Vec<(String, Arc<dyn Mount>)>) -> WorkerPlan {
    let mounts = mounts.into_iter().map(|(prefix, mount)| MountPoint { prefix, mount, admin: false });
    WorkerPlan { policy, mounts: mounts.collect(), guards: Vec::new() }
}

impl Fleet {
    /// Starts `count` workers. The world has had `first` reactors before.
    ///
    /// # Panics
    /// The world is out of descriptors.
    pub fn start(
        world: &World,
        first: usize,
        count: usize,
        address: SocketAddr,
        policy: ConnLimits,
        mounts: Vec<(String, Arc<dyn Mount>)>,
    ) -> Self {
        let plan = plan(policy, mounts);
        let census = Arc::new(Census::default());
        let mut fleet =
            Self { first, commands: Vec::new(), workers: Vec::new(), counts: FleetCounts::default() };
        for number in 0..count {
            let reactor = world.reactor();
            let commands = CommandQueue::new(Inbox::new(reactor.waker()));
            let shared = WorkerShared {
                number,
                workers: count,
                metrics: Arc::default(),
                census: Arc::clone(&census),
                http2: Arc::default(),
                log: Access::default(),
            };
            fleet.counts.0.push(Arc::clone(&shared.metrics));
            let mut worker = Worker::new(reactor, Arc::clone(&commands), &plan, shared);
            let kind = ListenerKind::default();
            worker.listen(world.listener(address).expect("a descriptor"), kind).expect("room");
            fleet.commands.push(commands);
            fleet.workers.push(Some(worker));
        }
        let all: Arc<[Arc<Inbox>]> = fleet.commands.iter().map(|worker| Arc::clone(worker.link())).collect();
        fleet.command(|| WorkerCommand::Meet(Arc::clone(&all)));
        fleet
    }

    /// Whether a worker is still running.
    pub fn is_up(&self) -> bool {
        self.workers.iter().any(Option::is_some)
    }

    /// Returns the workers' counts, which remain readable after their end.
    pub fn counts(&self) -> FleetCounts {
        self.counts.clone()
    }

    /// Replaces the policy and the mounts.
    pub fn reload(&self, policy: ConnLimits, mounts: Vec<(String, Arc<dyn Mount>)>) {
        let plan = Arc::new(plan(policy, mounts));
        let progress = Arc::<PlanProgress>::default();
        self.command(|| WorkerCommand::Reload(Arc::clone(&plan), progress.begin()));
    }

    /// Drains the server: within `time`, after `delay`.
    pub fn drain(&self, delay: Duration, time: Duration) {
        self.command(|| WorkerCommand::Drain { delay, time });
    }

    fn command(&self, command: impl Fn() -> WorkerCommand) {
        for worker in &self.commands {
            worker.send(command());
        }
    }

    /// Whether a reactor belongs to a running worker of this server.
    pub fn has(&self, reactor: usize) -> bool {
        reactor.checked_sub(self.first).is_some_and(|at| matches!(self.workers.get(at), Some(Some(_))))
    }

    /// Runs a turn of a reactor's worker. After its last turn no state of a connection may be left.
    ///
    /// # Panics
    /// State is left.
    pub fn turn(&mut self, reactor: usize, seed: u64) -> Stepped {
        let place = reactor.checked_sub(self.first).and_then(|at| self.workers.get_mut(at));
        let Some(place) = place else { return Stepped::NotHere };
        let Some(worker) = place else { return Stepped::NotHere };
        if worker.turn().expect("a simulated wait never fails") == Turn::Go {
            return Stepped::Goes;
        }
        worker.end();
        worker.core.assert_empty(seed);
        *place = None;
        Stepped::Ended
    }

    /// Turns idle connections of residents into records and back, on the worker of a reactor: no state of them may be anywhere
    /// else. `chosen` selects the connections. Returns the number of those restored.
    pub fn park(&mut self, reactor: usize, mut chosen: impl FnMut() -> bool) -> u64 {
        let worker = reactor.checked_sub(self.first).and_then(|at| self.workers.get_mut(at)?.as_mut());
        let Some(core) = worker.map(|worker| &mut worker.core) else { return 0 };
        let mut parked = 0;
        for index in core.conns.places() {
            let token = Token { index, generation: core.conns[index as usize].generation };
            parked += u64::from(chosen() && core.park_and_unpark(token));
        }
        parked
    }
}

impl FleetCounts {
    /// Adds the close reasons of all workers.
    pub fn observe(&self, observed: &mut Observed) {
        self.0.iter().for_each(|worker| observed.closed(worker));
    }
}

impl Core {
    /// Asserts that no state of any connection is left, at the end of a simulated run.
    pub(crate) fn assert_empty(&self, seed: u64) {
        use crate::conn::ConnPhase;
        assert_eq!(self.open, 0, "seed {seed}: connections");
        let mut places = self.conns.places();
        assert!(
            places.all(|place| self.conns[place as usize].phase == ConnPhase::Vacant),
            "seed {seed}: slots"
        );
        assert_eq!(self.records.len(), 0, "seed {seed}: exchanges");
        assert_eq!(self.flights.len(), 0, "seed {seed}: flights");
        assert_eq!(self.entries.len(), 0, "seed {seed}: log entries");
        assert!(self.residents.is_settled(), "seed {seed}: closed connections that no resident knows of");
        assert_eq!(self.upstreams.open(), 0, "seed {seed}: outgoing connections");
        assert_eq!(self.wheel.armed(), 0, "seed {seed}: timers");
        assert_eq!(self.out.len() + self.segments.len() + self.ops.len(), 0, "seed {seed}: output");
    }
}
