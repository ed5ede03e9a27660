//! The supervisor: one thread that performs the steps of all slots.
//!
//! ```text
//!  Apps ─ SupervisorMessage ─► supervisor ── Process::start ─► process ─┬─ thread: its lines ─► the log
//!    start, reload, end            │   ▲                                  └─ thread: its end ───┐
//!                                  │   └── Ended, Checked ◄── thread: check ────────────────────┘
//!                                  └─► AppRouting: which address gets requests, and whether one is still in use
//! ```
//! The supervisor knows no worker: [`AppRouting`] is all that it tells the server, so another process could host it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use std::{io, mem};

use encke_io::clock::Clock;
use encke_io::process::{Process, ProcessEnd, ProcessPlan};
use encke_io::socket::ListenOptions;
use encke_io::{Address, Listener, lock};
use encke_settings::Level;
use encke_settings::notice::report;
use encke_stats::Ticket;

use crate::check;
use crate::figures::{AppEnd, AppProcess, AppState, AppTally};
use crate::output::AppOutput;
use crate::plan::AppPlan;
use crate::restart::{PendingRestarts, RestartFailure, RestartOutcome, RestartResult};
use crate::settings::{AppSettings, ReplaceWhen};
use crate::slot::{AppSlot, Notice, RunId, RunPhase, Step};

/// Sends requests to the processes of applications.
pub trait AppRouting: Send {
    /// Sends requests for a process of an application to an address from now on; `None`: there is none that could respond.
    /// `number`: from 0, below the application's `count`.
    fn direct(&mut self, app: &str, number: usize, address: Option<SocketAddr>);

    /// Whether a connection to the address is open.
    fn is_used(&mut self, address: SocketAddr) -> bool;
}

/// A message for the supervisor.
pub(crate) enum SupervisorMessage {
    /// The process of a run with this number has ended: a run may have had several.
    Ended(Place, i32, ProcessEnd),
    /// A check of a run has ended.
    Checked(Place, bool),
    /// Create the sockets of applications that are to start, and name them. Respond with the first error.
    Prepare(Vec<AppPlan>, Sender<io::Result<()>>),
    /// Run these applications from now on.
    Reload(Vec<AppPlan>),
    /// Replace the processes of this application.
    Restart(Arc<str>, Ticket<RestartResult>),
    /// End all processes, and then the supervisor.
    End,
}

/// A run of a slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    app: Arc<str>,
    number: usize,
    run: RunId,
}

/// A process of an application, with its successors.
struct SupervisedSlot {
    slot: AppSlot,
    runs: HashMap<RunId, SupervisedRun>,
    /// The last unasked end of a process, or failed start.
    last_end: Option<AppEnd>,
}

/// The resources of a run.
struct SupervisedRun {
    plan: Arc<AppPlan>,
    /// The socket; `None` if the program listens itself.
    socket: Option<Listener>,
    address: SocketAddr,
    process: Option<Arc<Process>>,
    /// The time of its start, in ms since 1970.
    started_ms: u64,
    /// The reason why the process has ended, for the operator.
    end: String,
}

struct SupervisedApp {
    plan: Arc<AppPlan>,
    /// By number. Those beyond `count` are ending.
    slots: Vec<SupervisedSlot>,
}

pub(crate) struct Supervisor {
    apps: HashMap<Arc<str>, SupervisedApp>,
    routing: Box<dyn AppRouting>,
    sender: Sender<SupervisorMessage>,
    clock: Clock,
    tallies: Arc<Mutex<Vec<AppTally>>>,
    /// First runs of applications that are to start.
    prepared: HashMap<(Arc<str>, usize), SupervisedRun>,
    restarts: PendingRestarts,
    is_ending: bool,
}

/// The longest wait for a message.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// Connections that may wait for a process.
const BACKLOG: u32 = 4_096;

impl Supervisor {
    pub(crate) fn new(
        routing: Box<dyn AppRouting>,
        sender: Sender<SupervisorMessage>,
        tallies: Arc<Mutex<Vec<AppTally>>>,
    ) -> Self {
        let clock = Clock::new();
        Self {
            apps: HashMap::new(),
            routing,
            sender,
            clock,
            tallies,
            prepared: HashMap::new(),
            restarts: PendingRestarts::default(),
            is_ending: false,
        }
    }

    /// Performs messages and what is due, until the end.
    pub(crate) fn run(mut self, receiver: &Receiver<SupervisorMessage>) {
        loop {
            let now_ns = self.clock.now().mono_ns;
            let due_ns = self.slots().map(|slot| slot.slot.due_ns()).min().unwrap_or(u64::MAX);
            let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns)).min(WAIT_MAX);
            match receiver.recv_timeout(wait) {
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
                // The supervisor has a sender itself.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.turn();
            if self.is_ending && self.apps.is_empty() {
                return;
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = &SupervisedSlot> {
        self.apps.values().flat_map(|app| &app.slots)
    }

    fn handle(&mut self, message: SupervisorMessage) {
        match message {
            SupervisorMessage::Ended(place, pid, end) => {
                let run = self.run_of(&place.app, place.number, place.run);
                let process = run.and_then(|run| run.process.as_ref());
                // Another process was given up before.
                if process.is_some_and(|process| process.pid() == pid) {
                    self.ended(&place, &end.to_string());
                }
            }
            SupervisorMessage::Checked(place, responds) => {
                let now_ns = self.clock.now().mono_ns;
                self.change(&place.app, place.number, |slot, steps| {
                    slot.checked(place.run, responds, now_ns, steps);
                });
            }
            SupervisorMessage::Prepare(plans, result) => {
                // The caller waits.
                let _ = result.send(self.prepare(&plans));
            }
            SupervisorMessage::Reload(plans) => self.reload(plans),
            SupervisorMessage::Restart(app, ticket) => self.restart(&app, ticket),
            SupervisorMessage::End => {
                self.is_ending = true;
                let places: Vec<_> = self.places().collect();
                let now_ns = self.clock.now().mono_ns;
                for (app, number) in places {
                    self.change(&app, number, |slot, steps| slot.end(false, now_ns, steps));
                }
            }
        }
    }

    /// All slots.
    fn places(&self) -> impl Iterator<Item = (Arc<str>, usize)> {
        let slots = |(name, app): (&Arc<str>, &SupervisedApp)| {
            let name = Arc::clone(name);
            (0..app.slots.len()).map(move |number| (Arc::clone(&name), number))
        };
        self.apps.iter().flat_map(slots)
    }

    /// Performs what is due, and removes what has ended.
    fn turn(&mut self) {
        let now_ns = self.clock.now().mono_ns;
        let places: Vec<_> = self.places().collect();
        for (app, number) in places {
            self.change(&app, number, |slot, steps| slot.turn(now_ns, steps));
        }
        for (name, app) in &mut self.apps {
            while app.slots.last().is_some_and(|slot| slot.slot.is_over()) {
                app.slots.pop();
                self.routing.direct(name, app.slots.len(), None);
            }
        }
        self.apps.retain(|_, app| !app.slots.is_empty());
        let states = self.apps.iter().map(|(name, app)| app_tally(name, app)).collect();
        AppTally::update(&mut lock(&self.tallies), states);
        // After the update, so that an operator who has the result sees its processes.
        self.restarts.resolve();
    }

    /// Changes a slot, and performs the steps that follow.
    fn change(&mut self, app: &Arc<str>, number: usize, change: impl FnOnce(&mut AppSlot, &mut Vec<Step>)) {
        let mut steps = Vec::new();
        let Some(slot) = self.slot(app, number) else { return };
        change(&mut slot.slot, &mut steps);
        for step in steps {
            self.perform(app, number, step);
        }
    }

    fn slot(&mut self, app: &str, number: usize) -> Option<&mut SupervisedSlot> {
        self.apps.get_mut(app)?.slots.get_mut(number)
    }

    fn run_of(&mut self, app: &str, number: usize, id: RunId) -> Option<&mut SupervisedRun> {
        self.slot(app, number)?.runs.get_mut(&id)
    }

    fn perform(&mut self, app: &Arc<str>, number: usize, step: Step) {
        match step {
            Step::Start(id) => self.start(Place { app: Arc::clone(app), number, run: id }),
            Step::Check(id) => self.check(Place { app: Arc::clone(app), number, run: id }),
            Step::Direct(id) => {
                let address = self.run_of(app, number, id).map(|run| run.address);
                self.routing.direct(app, number, address);
            }
            Step::Withdraw(_) => self.routing.direct(app, number, None),
            Step::Look(id) => {
                let now_ns = self.clock.now().mono_ns;
                let Some(address) = self.run_of(app, number, id).map(|run| run.address) else { return };
                if !self.routing.is_used(address) {
                    self.change(app, number, |slot, steps| slot.unused(id, now_ns, steps));
                }
            }
            Step::Stop(id) => {
                let Some(run) = self.run_of(app, number, id) else { return };
                if let Some(process) = &run.process {
                    process.signal(run.plan.settings.stop_signal.into());
                }
            }
            Step::Kill(id) => {
                if let Some(process) = self.run_of(app, number, id).and_then(|run| run.process.as_ref()) {
                    process.kill();
                }
            }
            Step::Forget(id) => {
                let text = "another replacement, or the end of the application, came first";
                let ended = RestartOutcome::Failed(text.to_owned());
                self.restarts.note(app, number, id, &ended);
                if let Some(slot) = self.slot(app, number) {
                    slot.runs.remove(&id);
                }
            }
            Step::Renew(id) => {
                let plan = self.apps.get(app).map(|app| Arc::clone(&app.plan));
                if let (Some(run), Some(plan)) = (self.run_of(app, number, id), plan) {
                    run.plan = plan;
                }
            }
            Step::Tell(id, notice) => self.tell(app, number, id, notice),
        }
    }

    /// Starts a process for a run.
    fn start(&mut self, place: Place) {
        let Some(app) = self.apps.get(&place.app) else { return };
        let plan = Arc::clone(&app.plan);
        let Some(slot) = self.slot(&place.app, place.number) else { return };
        let run = match slot.runs.remove(&place.run) {
            // The port may be taken by now.
            Some(run) if run.socket.is_none() || run.plan.settings.listens_itself() => {
                SupervisedRun::new(run.plan)
            }
            Some(run) => Ok(run),
            None => match self.prepared.remove(&(Arc::clone(&place.app), place.number)) {
                Some(run) if run.plan.settings == plan.settings => Ok(run),
                _ => SupervisedRun::new(plan),
            },
        };
        let started = run.and_then(|mut run| {
            let result = run.start(place.clone(), &self.sender);
            self.slot(&place.app, place.number).map(|slot| slot.runs.insert(place.run, run));
            result
        });
        let now_ns = self.clock.now().mono_ns;
        match started {
            Ok(()) => {
                self.change(&place.app, place.number, |slot, _| slot.started(place.run, now_ns));
                self.open_early(&place);
            }
            Err(error) => self.ended(&place, &format!("could not be started: {error}")),
        }
    }

    /// Lets requests wait at the socket of a run until its process responds, if there is no other one for them.
    fn open_early(&mut self, place: &Place) {
        let Some(slot) = self.slot(&place.app, place.number) else { return };
        if slot.slot.may_wait_at(place.run)
            && let Some(run) = slot.runs.get(&place.run)
            && run.socket.is_some()
        {
            let address = run.address;
            self.routing.direct(&place.app, place.number, Some(address));
        }
    }

    /// Checks on a thread of its own whether a run responds.
    fn check(&mut self, place: Place) {
        let Some(run) = self.run_of(&place.app, place.number, place.run) else { return };
        let (address, plan) = (run.address, Arc::clone(&run.plan));
        // Requests that have waited for the process come first.
        let patience = Duration::from_nanos(plan.settings.start_time.nanoseconds());
        let sender = self.sender.clone();
        let (sender_on_error, place_on_error) = (sender.clone(), place.clone());
        let check = move || {
            let settings = &plan.settings;
            let responds = check::responds(address, patience, settings.protocol, settings.check.as_deref());
            // The supervisor may have ended.
            let _ = sender.send(SupervisorMessage::Checked(place, responds));
        };
        if thread::Builder::new().name("app-check".into()).spawn(check).is_err() {
            let _ = sender_on_error.send(SupervisorMessage::Checked(place_on_error, false));
        }
    }

    fn ended(&mut self, place: &Place, end: &str) {
        let now_ns = self.clock.now().mono_ns;
        let slot = self.slot(&place.app, place.number);
        let is_current = slot.is_some_and(|slot| slot.slot.current() == Some(place.run));
        let time_ms = self.clock.now().unix_ns / 1_000_000;
        if let Some(slot) = self.slot(&place.app, place.number)
            && (is_current || slot.slot.newest() == Some(place.run))
        {
            slot.last_end = Some(AppEnd { text: end.into(), time_ms });
        }
        if let Some(run) = self.run_of(&place.app, place.number, place.run) {
            run.process = None;
            end.clone_into(&mut run.end);
            if run.socket.is_none() && is_current {
                // Another program may get the port.
                self.routing.direct(&place.app, place.number, None);
            }
        } else {
            report(Level::Error, &format!("{}: {end}", self.title(&place.app, place.number)));
        }
        self.change(&place.app, place.number, |slot, steps| slot.ended(place.run, now_ns, steps));
    }

    /// The name of a process for the operator: that of the application, with a number if there are several.
    fn title(&self, app: &str, number: usize) -> String {
        let count = self.apps.get(app).map_or(1, |app| app.slots.len());
        if count > 1 { format!("app {app} ({})", number + 1) } else { format!("app {app}") }
    }

    fn tell(&mut self, app: &str, number: usize, id: RunId, notice: Notice) {
        let title = self.title(app, number);
        let Some(run) = self.run_of(app, number, id) else { return };
        let pid = run.process.as_ref().map_or(0, |process| process.pid());
        let address = run.address;
        let settings = &run.plan.settings;
        let start_s = settings.start_time.nanoseconds() / 1_000_000_000;
        let stop_s = settings.stop_time.nanoseconds() / 1_000_000_000;
        let socket = if run.socket.is_some() {
            "does it take its socket from descriptor 3 (LISTEN_FDS, SERVER_STARTER_PORT, FPM_SOCKETS, {fd})? \
             Otherwise write {port} in run or env, where it expects its port"
        } else {
            "does it listen at {port} of 127.0.0.1?"
        };
        let (level, text) = match notice {
            Notice::Ready => (Level::Info, format!("ready: process {pid} at {address}")),
            Notice::Replaced => (Level::Info, format!("replaced by process {pid} at {address}")),
            Notice::Again(ns) => {
                let end = mem::take(&mut run.end);
                (Level::Error, format!("{end}; starting again in {:.1} s", ns as f64 / 1e9))
            }
            Notice::Late => (
                Level::Error,
                format!("process {pid} did not respond at {address} within {start_s} s: {socket}"),
            ),
            Notice::KeptOld => {
                (Level::Error, format!("the new process {}; the old one stays", mem::take(&mut run.end)))
            }
            Notice::Stuck => (
                Level::Error,
                format!("process {pid} cannot be killed, and is left alone: does it run as another user?"),
            ),
            Notice::Killed => (Level::Warn, format!("process {pid} did not end within {stop_s} s: killed")),
        };
        if matches!(notice, Notice::Again(_)) {
            AppTally::count_restart(&mut lock(&self.tallies), app);
        }
        report(level, &format!("{title}: {text}"));
        let result = match notice {
            Notice::Ready | Notice::Replaced => RestartOutcome::Replaced(text),
            Notice::Again(_) | Notice::Late | Notice::KeptOld | Notice::Stuck => RestartOutcome::Failed(text),
            Notice::Killed => return,
        };
        self.restarts.note(app, number, id, &result);
    }

    /// Replaces the processes of an application, as a reload does.
    fn restart(&mut self, app: &Arc<str>, ticket: Ticket<RestartResult>) {
        let Some(found) = self.apps.get(app) else {
            return ticket.resolve(Err(RestartFailure::NotRunning));
        };
        let (times, count, now_ns) = (found.plan.times(), found.slots.len(), self.clock.now().mono_ns);
        let mut waiting = Vec::new();
        for number in 0..count {
            self.change(app, number, |slot, steps| slot.replace(times, now_ns, steps));
            let slot = self.slot(app, number).filter(|slot| !slot.slot.is_ending());
            waiting.extend(slot.and_then(|slot| slot.slot.newest()).map(|run| (number, run)));
        }
        self.restarts.add(app, waiting, ticket);
    }

    /// Creates the sockets of new applications, so that requests can wait there before their processes start.
    fn prepare(&mut self, plans: &[AppPlan]) -> io::Result<()> {
        self.prepared.clear();
        for plan in plans.iter().filter(|plan| !plan.settings.listens_itself()) {
            let (name, plan) = (Arc::<str>::from(&*plan.settings.name), Arc::new(plan.clone()));
            for number in 0..usize::from(plan.settings.count.get()) {
                if self.slot(&name, number).is_some() {
                    continue;
                }
                let run = SupervisedRun::new(Arc::clone(&plan))?;
                self.routing.direct(&name, number, Some(run.address));
                self.prepared.insert((Arc::clone(&name), number), run);
            }
        }
        Ok(())
    }

    /// Runs these applications: starts new ones, replaces those that have changed, and ends all others.
    fn reload(&mut self, plans: Vec<AppPlan>) {
        let now_ns = self.clock.now().mono_ns;
        let gone: Vec<_> = self
            .places()
            .filter(|(app, number)| {
                let plan = plans.iter().find(|plan| *plan.settings.name == **app);
                plan.is_none_or(|plan| *number >= plan.settings.count.get().into())
            })
            .collect();
        for (app, number) in gone {
            self.change(&app, number, |slot, steps| slot.end(true, now_ns, steps));
        }
        for plan in plans {
            let (name, times) = (Arc::<str>::from(&*plan.settings.name), plan.times());
            let plan = Arc::new(plan);
            let app = self
                .apps
                .entry(Arc::clone(&name))
                .or_insert_with(|| SupervisedApp { plan: Arc::clone(&plan), slots: Vec::new() });
            app.plan = Arc::clone(&plan);
            for number in 0..usize::from(plan.settings.count.get()) {
                let Some(app) = self.apps.get_mut(&name) else { return };
                let slot = app.slots.get(number);
                let replaces = plan.settings.replace == ReplaceWhen::Reload
                    || slot.is_some_and(|slot| slot.differs(&plan));
                let speaks_otherwise = slot.is_some_and(|slot| slot.speaks_otherwise(&plan));
                match slot.map(|slot| slot.slot.is_ending()) {
                    Some(false) if replaces => {
                        if speaks_otherwise {
                            // The gateway uses the new protocol at once, which the old process does not know.
                            self.routing.direct(&name, number, None);
                        }
                        self.change(&name, number, |slot, steps| slot.replace(times, now_ns, steps));
                    }
                    Some(false) => {}
                    Some(true) => {
                        self.change(&name, number, |slot, steps| slot.begin_again(times, now_ns, steps));
                    }
                    None => {
                        let slot = AppSlot::new(times, now_ns);
                        app.slots.push(SupervisedSlot { slot, runs: HashMap::new(), last_end: None });
                    }
                }
            }
        }
    }
}

impl SupervisedSlot {
    /// The plan of the newest run.
    fn plan(&self) -> Option<&AppPlan> {
        self.runs.get(&self.slot.newest()?).map(|run| &*run.plan)
    }

    /// Whether the newest run has other settings, apart from the number of processes.
    fn differs(&self, plan: &AppPlan) -> bool {
        self.plan().is_none_or(|own| {
            let with_own_count = AppSettings { count: own.settings.count, ..plan.settings.clone() };
            own.settings != with_own_count
        })
    }

    fn speaks_otherwise(&self, plan: &AppPlan) -> bool {
        self.plan().is_some_and(|own| own.settings.protocol != plan.settings.protocol)
    }
}

/// The state of an application, for its metrics.
fn app_tally(name: &Arc<str>, app: &SupervisedApp) -> AppState {
    let mut processes = Vec::new();
    for (number, slot) in app.slots.iter().enumerate() {
        for (id, run) in &slot.runs {
            let phase = match slot.slot.phase(*id) {
                Some(RunPhase::Waiting { .. }) => "waiting",
                Some(RunPhase::Starting { .. }) => "starting",
                Some(RunPhase::Ready { .. }) => "ready",
                Some(RunPhase::Draining { .. }) => "draining",
                Some(RunPhase::Stopping { .. }) => "stopping",
                Some(RunPhase::Killed { .. }) => "killed",
                None => continue,
            };
            let pid = run.process.as_ref().map(|process| process.pid());
            let (address, started_ms) = (run.address, pid.map(|_| run.started_ms));
            let last_end = slot.last_end.clone();
            processes.push(AppProcess { number, pid, phase, address, started_ms, last_end });
        }
    }
    processes.sort_unstable_by_key(|process| (process.number, process.pid));
    AppState { name: Arc::clone(name), processes }
}

impl SupervisedRun {
    /// Creates the socket of a run, or finds a free port.
    fn new(plan: Arc<AppPlan>) -> io::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (socket, address) = if plan.settings.listens_itself() {
            // Free until the program listens there; if another program is faster, the next start finds another port.
            (None, TcpListener::bind(any)?.local_addr()?)
        } else {
            let options = ListenOptions { backlog: BACKLOG, shared: false, mode: None };
            let socket = Listener::bind(&Address::Inet(any), options)?;
            let Address::Inet(address) = *socket.address() else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            (Some(socket), address)
        };
        Ok(Self { plan, socket, address, process: None, started_ms: 0, end: String::new() })
    }

    /// Starts a process, and the threads that wait for its lines and its end.
    fn start(&mut self, place: Place, sender: &Sender<SupervisorMessage>) -> io::Result<()> {
        let plan = &self.plan;
        let (process, pipe) = Process::start(&ProcessPlan {
            program: &plan.program,
            arguments: &plan.arguments(self.address),
            environment: &plan.environment(self.address),
            directory: &plan.directory,
            user: plan.user.as_ref(),
            socket: self.socket.as_ref(),
            orphan_signal: plan.settings.stop_signal.into(),
        })?;
        let process = Arc::new(process);
        let (name, pid) = (plan.settings.name.clone(), process.pid());
        let (runs, ended) = channel();
        let output = AppOutput { name, pid, rate: plan.settings.output_rate, ended };
        let lines = thread::Builder::new().name("app-lines".into());
        let has_lines = lines.spawn(move || output.report(pipe));
        let (waited, sender) = (Arc::clone(&process), sender.clone());
        let wait = thread::Builder::new().name("app-end".into()).spawn(move || {
            let end = waited.wait().unwrap_or(ProcessEnd::Status(-1));
            drop(runs);
            // The supervisor may have ended.
            let _ = sender.send(SupervisorMessage::Ended(place, pid, end));
        });
        if let Err(error) = has_lines.map(drop).and(wait.map(drop)) {
            // Without a thread its end would not be noticed.
            process.kill();
            return Err(error);
        }
        self.process = Some(process);
        self.started_ms = Clock::new().now().unix_ns / 1_000_000;
        Ok(())
    }
}
