//! A server: listeners and handlers, run on one worker per processor.
//!
//! ```
//! use encke_server::{Options, Outcome, Reply, Server};
//!
//! let running = Server::new(Options::default())
//!     .listen("127.0.0.1:0".parse()?)
//!     .mount("/", |request: &encke_server::Request<'_>, _exchange| {
//!         let path = String::from_utf8_lossy(request.path());
//!         Outcome::Now(Reply::text(200, format!("You asked for {path}\n")))
//!     })
//!     .start()?;
//! println!("serving on {}", running.addresses()[0]);
//! running.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use encke_io::lock;
use encke_io::offload::{self, Pool};
use encke_io::socket::{ListenOptions, Listener};
use encke_io::{Address, Backend, Reactor};
use encke_session::tls::{CertWatcher, TlsIdentity};
use encke_stats::{Family, Source, Ticket};

use crate::census::Census;
use crate::closing::ClosingAddresses;
use crate::command::{CommandQueue, WorkerCommand, WorkerQueues};
use crate::drain_census::{Drained, OpenWork};
use crate::error::ServerError;
use crate::guard::{GuardMount, GuardPoint};
use crate::handler::Mount;
use crate::handshake_figures::TlsFigures;
use crate::inbox::Inbox;
use crate::inspect::{BlockList, CertificateList, CloseList, ConnectionList, WorkerFigures};
use crate::limits::GUARDS_MAX;
use crate::listener::{Bound, ListenConfig, ListenerIdentity, ListenerKind, bind, present, share};
use crate::log::{AccessLog, LogTail, TailFilter};
use crate::metrics::{EngineFigures, WorkerMetrics};
use crate::operate::{ActionResult, ActionValue, FeatureVerbs, RuleStep};
use crate::plan::{MountPoint, WorkerPlan};
use crate::plan_progress::PlanProgress;
use crate::policy::ConnLimits;
use crate::request::Kept;
use crate::status::ServerStatus;
use crate::worker::{Worker, WorkerShared};

/// Options of a server, apart from listeners and handlers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker threads; `None`: one for each processor that this process may use.
    pub workers: Option<usize>,
    /// The reactor's back end; `None`: the server selects one.
    pub backend: Option<Backend>,
    /// Backlog of each listener (listen(2)): connections that the kernel completes before they are accepted.
    pub backlog: u32,
    /// Threads of the pool for work that may block.
    pub offload_threads: usize,
    /// Interval between checks of certificate files. A changed file is loaded after two consecutive checks see the same
    /// content.
    pub certificates_every: Duration,
    /// Limits of connections and requests.
    pub policy: ConnLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            backend: None,
            backlog: 4096,
            offload_threads: 2,
            certificates_every: Duration::from_secs(1),
            policy: ConnLimits::default(),
        }
    }
}

/// A server that is being configured.
pub struct Server {
    options: Options,
    listeners: Vec<ListenConfig>,
    inherited: Vec<Listener>,
    admin: Vec<(Listener, Option<Arc<TlsIdentity>>)>,
    mounts: Vec<MountPoint>,
    sources: Vec<Arc<dyn Source>>,
    guards: Vec<GuardPoint>,
    log: AccessLog,
}

/// A running server. Dropping this value does not stop the server; [`Running::stop`] does.
pub struct Running {
    /// Command queues of the workers, by number.
    commands: Vec<Arc<CommandQueue>>,
    threads: Vec<JoinHandle<()>>,
    board: Arc<ServerStatus>,
    census: Arc<Census>,
    pool: Pool,
    mounts: Mutex<Vec<MountPoint>>,
    guards: Mutex<Vec<GuardPoint>>,
    policy: Mutex<ConnLimits>,
    /// Checks the files of certificates; `None` without TLS listeners.
    watch: Mutex<Option<CertWatcher>>,
    backlog: u32,
    certificates_every: Duration,
    /// Listeners that workers are closing.
    closing: Arc<ClosingAddresses>,
    /// Plans that workers have not applied.
    plans: Arc<PlanProgress>,
}

impl Server {
    /// Creates a server without listeners and handlers.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            listeners: Vec::new(),
            inherited: Vec::new(),
            admin: Vec::new(),
            mounts: Vec::new(),
            sources: Vec::new(),
            guards: Vec::new(),
            log: AccessLog::silent(),
        }
    }

    /// Adds a listener on a TCP address. Port 0 lets the system choose a port.
    #[must_use]
    pub fn listen(self, address: SocketAddr) -> Self {
        self.listener(address.into())
    }

    /// Adds a listener with the given configuration.
    #[must_use]
    pub fn listener(mut self, door: ListenConfig) -> Self {
        self.listeners.push(door);
        self
    }

    /// Accepts connections of a socket that is already listening.
    #[must_use]
    pub fn inherit(mut self, listener: Listener) -> Self {
        self.inherited.push(listener);
        self
    }

    /// Sets the access log.
    #[must_use]
    pub fn log(mut self, log: AccessLog) -> Self {
        self.log = log;
        self
    }

    /// Binds an address for [`Server::admin`].
    ///
    /// # Errors
    /// The address cannot be bound; the error names it.
    pub fn bind_admin(address: &Address, backlog: u32) -> Result<Listener, ServerError> {
        let options = ListenOptions { backlog, shared: false, mode: None };
        Listener::bind(address, options).map_err(|error| ServerError::Listen(address.clone(), error))
    }

    /// Accepts admin connections of a listener, on the first worker.
    #[must_use]
    pub fn admin(self, listener: Listener) -> Self {
        self.admin_with(listener, None)
    }

    /// Accepts admin connections of a listener on the first worker, with TLS if there is an identity.
    #[must_use]
    pub fn admin_with(mut self, listener: Listener, tls: Option<Arc<TlsIdentity>>) -> Self {
        self.admin.push((listener, tls));
        self
    }

    /// Mounts a handler for requests whose path, as sent, begins with `prefix`. The longest prefix wins.
    #[must_use]
    pub fn mount(mut self, prefix: &str, mount: impl Mount + 'static) -> Self {
        self.mounts.push(MountPoint { prefix: prefix.to_owned(), mount: Arc::new(mount), admin: false });
        self
    }

    /// Adds a source of figures that belongs to no mount. A mount's own sources come from [`Mount::sources`].
    #[must_use]
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.sources.push(source);
        self
    }

    /// Attaches a guard to all requests, except requests of the admin listener. Guards run in the order of these calls.
    #[must_use]
    pub fn guard(mut self, guard: impl GuardMount + 'static) -> Self {
        self.guards.push(GuardPoint { at: None, guard: Arc::new(guard) });
        self
    }

    /// Attaches a guard where its point is, as [`Server::guard`] and [`Server::guard_at`] do.
    #[must_use]
    pub fn guard_point(mut self, point: GuardPoint) -> Self {
        self.guards.push(point);
        self
    }

    /// Attaches a guard to the mount points at `prefix`. Guards of [`Server::guard`] run before it.
    #[must_use]
    pub fn guard_at(mut self, prefix: &str, guard: impl GuardMount + 'static) -> Self {
        self.guards.push(GuardPoint { at: Some(prefix.to_owned()), guard: Arc::new(guard) });
        self
    }

    /// Mounts several handlers, each at its prefix.
    #[must_use]
    pub fn mount_all(mut self, mounts: impl IntoIterator<Item = (String, Arc<dyn Mount>)>) -> Self {
        let points = mounts.into_iter();
        self.mounts.extend(points.map(|(prefix, mount)| MountPoint { prefix, mount, admin: false }));
        self
    }

    /// Returns the configured listeners.
    pub fn doors(&self) -> &[ListenConfig] {
        &self.listeners
    }

    /// Binds every address and starts the workers. When this returns, every listener accepts.
    ///
    /// # Errors
    /// An address cannot be bound (the error names it), the back end is not available, or the system cannot start another
    /// thread.
    pub fn start(self) -> Result<Running, ServerError> {
        self.start_with(|_| Ok(Vec::new()))
    }

    /// Starts like [`Server::start`], with mounts of the admin listener, which show the state of the server.
    ///
    /// # Errors
    /// As for [`Server::start`], or a thread of `admin` cannot be started.
    pub fn start_with(
        self,
        admin: impl FnOnce(&Arc<ServerStatus>) -> io::Result<Vec<(String, Arc<dyn Mount>)>>,
    ) -> Result<Running, ServerError> {
        let Self {
            options,
            listeners: doors,
            inherited,
            admin: admin_listeners,
            mut mounts,
            sources,
            guards,
            log,
        } = self;
        check_guards(&guards, &mounts)?;
        let (backend, backend_reason) = match options.backend {
            Some(backend) => (backend, "as requested"),
            None => Backend::auto(),
        };
        let workers = options.workers.unwrap_or_else(encke_io::host::processors).max(1);
        let mut queues = Vec::new();
        queues.resize_with(workers, Vec::new);
        let mut addresses = Vec::new();
        let mut redirects = Vec::new();
        let mut identities = Vec::new();
        for door in &doors {
            let Some(address) = bind(door, options.backlog, &mut queues)? else { continue };
            identities.extend(ListenerIdentity::of(door, &address));
            redirects.extend(door.to_https.then(|| address.clone()));
            addresses.push(address);
        }
        let mut admin_addresses = Vec::new();
        for (listener, tls) in admin_listeners {
            let bound = listener.address().clone();
            identities.extend(tls.clone().map(|identity| ListenerIdentity::of_admin(&bound, identity)));
            admin_addresses.push(bound);
            queues[0].push((listener, ListenerKind { admin: true, tls, ..ListenerKind::default() }));
        }
        for listener in inherited {
            addresses.push(listener.address().clone());
            let kind = ListenerKind { outlives: true, ..ListenerKind::default() };
            share(listener, kind, &mut queues)?;
        }

        let pool =
            Pool::start(options.offload_threads, offload::QUEUE_DEFAULT).map_err(ServerError::Thread)?;
        let start = encke_io::clock::Clock::new().now();
        let census = Arc::new(Census::starting(start.unix_ns));
        let http2 = Arc::default();
        let metrics: Vec<Arc<WorkerMetrics>> = (0..workers).map(|_| Arc::default()).collect();
        let identities = Arc::new(Mutex::new(identities));
        let queues_of_workers = Arc::<WorkerQueues>::default();
        let board = Arc::new(ServerStatus {
            metrics: metrics.clone(),
            engine: vec![
                Arc::new(EngineFigures { workers: metrics.clone(), log: log.clone() }),
                Arc::new(TlsFigures {
                    workers: metrics.iter().map(|worker| Arc::clone(&worker.tls)).collect(),
                    identities: present(&identities),
                }),
                Arc::new(WorkerFigures::new(metrics.clone())),
                Arc::new(ConnectionList(Arc::clone(&queues_of_workers))),
                Arc::new(CloseList(Arc::clone(&queues_of_workers))),
                Arc::new(BlockList(Arc::clone(&census))),
                Arc::new(CertificateList(Arc::clone(&identities))),
            ],
            mounted: Mutex::default(),
            others: sources,
            stopping: false.into(),
            on_drain: Mutex::default(),
            backend,
            backend_reason,
            addresses: Mutex::new(addresses),
            redirects: Mutex::new(redirects),
            identities,
            admin_addresses,
            connections: options.policy.connections,
            log: log.clone(),
            queues: Arc::clone(&queues_of_workers),
            started_s: start.unix_s(),
        });
        let admin = admin(&board).map_err(ServerError::Thread)?.into_iter();
        mounts.extend(admin.map(|(prefix, mount)| MountPoint { prefix, mount, admin: true }));
        board.show(&mounts);
        let plan =
            Arc::new(WorkerPlan { policy: options.policy, mounts: mounts.clone(), guards: guards.clone() });

        let mut running = Running {
            commands: Vec::new(),
            threads: Vec::new(),
            board,
            census: Arc::clone(&census),
            pool: pool.clone(),
            mounts: Mutex::new(mounts),
            guards: Mutex::new(guards),
            policy: Mutex::new(plan.policy.clone()),
            watch: Mutex::new(None),
            backlog: options.backlog,
            certificates_every: options.certificates_every,
            closing: Arc::default(),
            plans: Arc::default(),
        };
        for (number, (queue, metrics)) in queues.into_iter().zip(metrics).enumerate() {
            let seat = WorkerInput {
                queue,
                plan: Arc::clone(&plan),
                pool: pool.clone(),
                shared: WorkerShared {
                    number,
                    workers,
                    metrics,
                    census: Arc::clone(&census),
                    http2: Arc::clone(&http2),
                    log: log.access(),
                },
            };
            let (report, hear) = std::sync::mpsc::channel();
            let thread = thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || seat.take(backend, &report))
                .map_err(ServerError::Thread)?;
            match hear.recv().unwrap_or(Err(ServerError::WorkerEnded)) {
                Ok(commands) => {
                    running.commands.push(commands);
                    running.threads.push(thread);
                }
                Err(error) => {
                    running.stop();
                    return Err(error);
                }
            }
        }
        let has_identities = !lock(&running.board.identities).is_empty();
        if has_identities && let Err(error) = running.watch_certificates() {
            running.stop();
            return Err(error);
        }
        let links: Arc<[Arc<Inbox>]> =
            running.commands.iter().map(|worker| Arc::clone(worker.link())).collect();
        for worker in &running.commands {
            worker.send(WorkerCommand::Meet(Arc::clone(&links)));
        }
        running.board.queues.begin(running.commands.clone());
        Ok(running)
    }
}

/// Checks that each guard has a mount point. A guard without requests would silently protect nothing.
fn check_guards(guards: &[GuardPoint], mounts: &[MountPoint]) -> Result<(), ServerError> {
    let public = mounts.iter().filter(|mount| !mount.admin);
    check_guards_at(guards, public.map(|mount| mount.prefix.as_str()))
}

fn check_guards_at<'a>(
    guards: &[GuardPoint],
    prefixes: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), ServerError> {
    if guards.len() > GUARDS_MAX {
        return Err(ServerError::TooManyGuards(guards.len()));
    }
    let mut attached = guards.iter().filter_map(|point| point.at.as_deref());
    match attached.find(|at| !prefixes.clone().any(|prefix| prefix == *at)) {
        Some(at) => Err(ServerError::UnmountedGuard(at.to_owned())),
        None => Ok(()),
    }
}

impl Running {
    /// Returns the addresses of the listeners, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Address> {
        lock(&self.board.addresses).clone()
    }

    /// Returns the addresses of the admin listener.
    pub fn admin_addresses(&self) -> Vec<Address> {
        self.board.admin_addresses.clone()
    }

    /// Whether connections to an address use TLS.
    pub fn is_secure(&self, address: &Address) -> bool {
        self.board.is_secure(address)
    }

    /// Whether the listener at an address redirects all requests to https.
    pub fn is_redirect(&self, address: &Address) -> bool {
        lock(&self.board.redirects).contains(address)
    }

    /// Returns the names in the certificates of the listener at an address. Empty without TLS.
    pub fn certificate_names(&self, address: &Address) -> Vec<String> {
        let identities = lock(&self.board.identities);
        let found = identities.iter().find(|named| named.bound == *address);
        found.map(|named| named.identity.names()).unwrap_or_default()
    }

    /// Returns the reactor's back end and the reason for its selection.
    pub fn backend(&self) -> (Backend, &'static str) {
        (self.board.backend, self.board.backend_reason)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.commands.len()
    }

    /// Returns the figures of the engine and of all features, under the names of `/metrics`.
    ///
    /// ```
    /// use encke_server::{Options, Server};
    ///
    /// let running = Server::new(Options { workers: Some(1), ..Options::default() }).start()?;
    /// assert!(running.families().iter().any(|family| family.name == "encke_connections"));
    /// running.stop();
    /// # Ok::<(), encke_server::ServerError>(())
    /// ```
    pub fn families(&self) -> Vec<Family> {
        self.board.families()
    }

    /// Drains the server. For `delay` the workers keep serving while `/readyz` reports the drain. Then streams end one by one,
    /// open requests have `time` to finish, and responses close their connections. The listeners accept until the streams and
    /// requests that were open have ended, for at most three quarters of `time`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use encke_server::{Options, Server};
    ///
    /// let running = Server::new(Options::default()).listen("127.0.0.1:0".parse()?).start()?;
    /// let address = running.addresses()[0].to_string();
    /// running.drain(Duration::ZERO, Duration::from_secs(30));
    /// running.join();
    /// assert!(std::net::TcpStream::connect(address).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, delay: Duration, time: Duration) {
        self.board.begin_drain();
        for worker in &self.commands {
            worker.send(WorkerCommand::Drain { delay, time });
        }
    }

    /// Returns the work that was open when the drain began. Waits until all workers have counted theirs, which takes a turn;
    /// `None` after `patience`.
    pub fn open_work(&self, patience: Duration) -> Option<OpenWork> {
        self.census.drain.wait(self.commands.len(), patience)
    }

    /// Replaces the policy and, if given, all mounts. The admin listener keeps its mounts.
    pub fn reload(&self, policy: ConnLimits, mounts: Option<Vec<(String, Arc<dyn Mount>)>>) {
        self.reload_points(policy, mounts);
    }

    /// Reloads like [`Running::reload`], with other guards. A request that waits for a guard keeps that guard.
    ///
    /// # Errors
    /// A guard is attached to a prefix without a mount point, or there are too many guards; then nothing changes.
    pub fn reload_guarded(
        &self,
        policy: ConnLimits,
        mounts: Option<Vec<(String, Arc<dyn Mount>)>>,
        guards: Vec<GuardPoint>,
    ) -> Result<(), ServerError> {
        match &mounts {
            Some(mounts) => check_guards_at(&guards, mounts.iter().map(|(prefix, _)| prefix.as_str()))?,
            None => check_guards(&guards, &lock(&self.mounts))?,
        }
        *lock(&self.guards) = guards;
        self.reload_points(policy, mounts);
        Ok(())
    }

    /// Waits until every worker has applied the mounts and policies of earlier reloads. Returns false after `patience`.
    pub fn has_reloaded(&self, patience: Duration) -> bool {
        self.plans.wait(patience)
    }

    fn reload_points(&self, policy: ConnLimits, mounts: Option<Vec<(String, Arc<dyn Mount>)>>) {
        let mut points = lock(&self.mounts);
        if let Some(mounts) = mounts {
            points.retain(|point| point.admin);
            let mounts = mounts.into_iter();
            points.extend(mounts.map(|(prefix, mount)| MountPoint { prefix, mount, admin: false }));
        }
        self.apply(policy, &points);
    }

    /// Begins a live view of the access log; see [`ServerStatus::tail`].
    pub fn tail(&self, filter: TailFilter, wake: impl Fn() + Send + Sync + 'static) -> Option<LogTail> {
        self.board.tail(filter, wake)
    }

    /// Requests the verbs of all features.
    pub fn verbs(&self, ticket: Ticket<Vec<FeatureVerbs>>) {
        self.board.verbs(ticket);
    }

    /// Performs an operator's action on all workers and merges their results.
    pub fn act(&self, feature: &str, verb: &str, value: ActionValue, ticket: Ticket<ActionResult>) {
        self.board.act(feature, verb, value, ticket);
    }

    /// Requests the rules that apply to a request, in order.
    pub fn explain(&self, request: Kept, ticket: Ticket<Vec<RuleStep>>) {
        self.board.explain(request, ticket);
    }

    /// Returns the state of the server, which the handlers of the admin listener share.
    pub fn status(&self) -> &Arc<ServerStatus> {
        &self.board
    }

    /// Replaces each mount whose prefix is given. All others stay.
    pub fn replace(&self, mounts: impl IntoIterator<Item = (String, Arc<dyn Mount>)>) {
        let mut points = lock(&self.mounts);
        for (prefix, mount) in mounts {
            if let Some(old) = points.iter_mut().find(|point| !point.admin && point.prefix == prefix) {
                old.mount = mount;
            }
        }
        let policy = lock(&self.policy).clone();
        self.apply(policy, &points);
    }

    fn apply(&self, policy: ConnLimits, points: &[MountPoint]) {
        self.board.show(points);
        lock(&self.policy).clone_from(&policy);
        let plan =
            Arc::new(WorkerPlan { policy, mounts: points.to_vec(), guards: lock(&self.guards).clone() });
        for worker in &self.commands {
            worker.send(WorkerCommand::Reload(Arc::clone(&plan), self.plans.begin()));
        }
    }

    /// Binds the listeners that are not bound yet. Waits until this server has closed earlier listeners on their addresses; no
    /// worker waits.
    ///
    /// # Errors
    /// One of them cannot be bound; then none is.
    pub fn bind_new(&self, doors: &[ListenConfig]) -> Result<Bound, ServerError> {
        let known = lock(&self.board.addresses).clone();
        let mut bound = Bound::default();
        bound.queues.resize_with(self.commands.len(), Vec::new);
        for door in doors.iter().filter(|door| !known.contains(&door.address)) {
            let closing = self.closing.wait(&door.address);
            match bind(door, self.backlog, &mut bound.queues) {
                Ok(Some(address)) => bound.identities.extend(ListenerIdentity::of(door, &address)),
                Ok(None) => {}
                Err(error) if error.is_address_in_use() => {
                    return Err(self.closing.explain(error, &door.address, closing, &known));
                }
                Err(error) => return Err(error),
            }
        }
        if !bound.identities.is_empty() {
            self.watch_certificates()?;
        }
        Ok(bound)
    }

    /// Gives listeners that already use TLS the identities of `doors`. Returns the addresses at which TLS is turned on or
    /// off: these need a new listener.
    pub fn renew_identities(&self, doors: &[ListenConfig]) -> Vec<Address> {
        let identities = lock(&self.board.identities);
        let mut changed = Vec::new();
        for door in doors {
            let known = identities.iter().find(|named| !named.admin && named.asked == door.address);
            match (known, &door.tls) {
                (Some(known), Some(new)) => known.identity.renew(new),
                (None, None) => {}
                _ => changed.push(door.address.clone()),
            }
        }
        changed
    }

    /// Keeps only the listeners of `listeners`: adds those just bound, and closes all others.
    pub fn listen_only(&self, doors: &[ListenConfig], bound: Bound) {
        let mut addresses = lock(&self.board.addresses);
        for address in addresses.extract_if(.., |known| !doors.iter().any(|door| door.address == *known)) {
            for worker in &self.commands {
                worker.send(WorkerCommand::Unlisten(self.closing.begin(&address)));
            }
        }
        let mut redirects = lock(&self.board.redirects);
        redirects.retain(|known| addresses.contains(known));
        let mut identities = lock(&self.board.identities);
        identities.retain(|named| named.admin || doors.iter().any(|door| door.address == named.asked));
        identities.extend(bound.identities);
        drop(identities);
        for (worker, queue) in self.commands.iter().zip(bound.queues) {
            for (listener, kind) in queue {
                if !addresses.contains(listener.address()) {
                    addresses.push(listener.address().clone());
                    redirects.extend(kind.to_https.then(|| listener.address().clone()));
                }
                worker.send(WorkerCommand::Listen(listener, kind));
            }
        }
    }

    /// Starts checking the files of certificates, if they are not checked yet.
    fn watch_certificates(&self) -> Result<(), ServerError> {
        let mut watch = lock(&self.watch);
        if watch.is_none() {
            let watcher = CertWatcher::start(self.certificates_every, present(&self.board.identities));
            *watch = Some(watcher.map_err(ServerError::Thread)?);
        }
        Ok(())
    }

    /// Waits until the workers have stopped. Returns the result of the drain.
    pub fn join(mut self) -> Drained {
        if let Some(watch) = lock(&self.watch).take() {
            watch.stop();
        }
        for thread in self.threads.drain(..) {
            // A panic of a worker aborts the process, so `join` never returns an error.
            let _ended = thread.join();
        }
        self.pool.close();
        self.census.drain.drained()
    }

    /// Stops the server: drains it within 500 ms and waits for its end.
    pub fn stop(self) {
        self.drain(Duration::ZERO, Duration::from_millis(500));
        let _drained = self.join();
    }
}

/// The setup of a worker's thread.
struct WorkerInput {
    queue: Vec<(Listener, ListenerKind)>,
    plan: Arc<WorkerPlan>,
    pool: Pool,
    shared: WorkerShared,
}

type StartReport = std::sync::mpsc::Sender<Result<Arc<CommandQueue>, ServerError>>;

/// A worker's setup, to be run on a reactor.
struct StartingWorker<'a> {
    seat: WorkerInput,
    report: &'a StartReport,
}

impl WorkerInput {
    /// Runs a worker on the selected back end until it ends.
    fn take(self, backend: Backend, report: &StartReport) {
        let pool = self.pool.clone();
        encke_io::run_on(backend, pool, StartingWorker { seat: self, report });
    }
}

impl encke_io::ReactorTask for StartingWorker<'_> {
    fn run<R: Reactor>(self, reactor: Result<R, encke_io::Unavailable>) {
        let Self { seat, report } = self;
        let reactor = match reactor {
            Ok(reactor) => reactor,
            Err(error) => {
                let _gone = report.send(Err(ServerError::Backend(error)));
                return;
            }
        };
        let commands = CommandQueue::new(Inbox::new(reactor.waker()));
        let mut worker = Worker::new(reactor, Arc::clone(&commands), &seat.plan, seat.shared);
        for (listener, kind) in seat.queue {
            if let Err(fault) = worker.listen(listener, kind) {
                let _gone = report.send(Err(ServerError::Worker(fault)));
                return;
            }
        }
        let _gone = report.send(Ok(Arc::clone(&commands)));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run()));
        match ended {
            Ok(Ok(())) => commands.close(),
            Ok(Err(fault)) => {
                encke_settings::notice::report(
                    encke_settings::Level::Warn,
                    &format!("worker cannot wait for events: {fault}; aborting"),
                );
                std::process::abort();
            }
            // Without this worker a part of the clients would receive no response: a restart is better.
            Err(_panic) => std::process::abort(),
        }
    }
}
