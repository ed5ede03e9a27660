//! A server: addresses and handlers, started on as many workers as there are processors.
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
use encke_session::tls::Watch;
use encke_stats::{Family, Gathered, Source, Ticket};

use crate::census::Census;
use crate::closing::Closing;
use crate::command::{Command, DoorKind};
use crate::guard::{GUARDS_MAX, GuardMount, GuardPoint};
use crate::handler::Mount;
use crate::handshake_figures::TlsFigures;
use crate::link::{Link, Message};
use crate::listener::{Bound, Door, Named, bind, named, present, share};
use crate::log::{AccessLog, LogTail, TailFilter};
use crate::metrics::{EngineFigures, Metrics};
use crate::operate::{ActionResult, ActionValue, FeatureVerbs, Order, RuleStep, merge_results};
use crate::plan::{MountPoint, Plan};
use crate::policy::Policy;
use crate::request::Kept;
use crate::status::Board;
use crate::worker::{Shared, Worker};

/// How a server runs, besides what it serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker threads; `None`: one for each processor this process may use.
    pub workers: Option<usize>,
    /// How to wait for events; `None`: chosen.
    pub backend: Option<Backend>,
    /// Connections that the kernel completes before they are accepted, for each listener.
    pub backlog: u32,
    /// Threads for work that may block.
    pub offload_threads: usize,
    /// How often the files of certificates are looked at; one that has changed is taken at the second look.
    pub certificates_every: Duration,
    /// Limits.
    pub policy: Policy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            backend: None,
            backlog: 4096,
            offload_threads: 2,
            certificates_every: Duration::from_secs(1),
            policy: Policy::default(),
        }
    }
}

/// A server that is being put together.
pub struct Server {
    options: Options,
    doors: Vec<Door>,
    inherited: Vec<Listener>,
    admin: Vec<Listener>,
    mounts: Vec<MountPoint>,
    sources: Vec<Arc<dyn Source>>,
    guards: Vec<GuardPoint>,
    log: AccessLog,
}

/// A server that serves. Dropping it leaves it running until the process ends; [`Running::stop`] ends it.
pub struct Running {
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
    board: Arc<Board>,
    pool: Pool,
    mounts: Mutex<Vec<MountPoint>>,
    guards: Mutex<Vec<GuardPoint>>,
    policy: Mutex<Policy>,
    log: AccessLog,
    /// Looks at the files of certificates, once there are any.
    watch: Mutex<Option<Watch>>,
    backlog: u32,
    certificates_every: Duration,
    /// Listeners that workers are closing.
    closing: Arc<Closing>,
}

impl Server {
    /// A server that listens nowhere and has no handlers yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            doors: Vec::new(),
            inherited: Vec::new(),
            admin: Vec::new(),
            mounts: Vec::new(),
            sources: Vec::new(),
            guards: Vec::new(),
            log: AccessLog::silent(),
        }
    }

    /// Listens on a TCP address; port 0 lets the system choose.
    #[must_use]
    pub fn listen(self, address: SocketAddr) -> Self {
        self.door(address.into())
    }

    /// Listens as told.
    #[must_use]
    pub fn door(mut self, door: Door) -> Self {
        self.doors.push(door);
        self
    }

    /// Accepts on a socket that listens already.
    #[must_use]
    pub fn inherit(mut self, listener: Listener) -> Self {
        self.inherited.push(listener);
        self
    }

    /// Has requests logged.
    #[must_use]
    pub fn log(mut self, log: AccessLog) -> Self {
        self.log = log;
        self
    }

    /// Binds an address for [`Server::admin`].
    pub fn bind_admin(address: &Address, backlog: u32) -> io::Result<Listener> {
        let options = ListenOptions { backlog, shared: false, mode: None };
        Listener::bind(address, options).map_err(|error| named(&error, address))
    }

    /// Accepts admin connections on a listener, by the first worker.
    #[must_use]
    pub fn admin(mut self, listener: Listener) -> Self {
        self.admin.push(listener);
        self
    }

    /// Gives requests whose path, as sent, begins with `prefix` to a handler. The longest prefix wins.
    #[must_use]
    pub fn mount(mut self, prefix: &str, mount: impl Mount + 'static) -> Self {
        self.mounts.push(MountPoint { prefix: prefix.to_owned(), mount: Arc::new(mount), admin: false });
        self
    }

    /// Adds figures that belong to no mount. Those of a mount come by [`Mount::sources`].
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

    /// Attaches a guard to the mount points at `prefix`. Guards of [`Server::guard`] run before it.
    #[must_use]
    pub fn guard_at(mut self, prefix: &str, guard: impl GuardMount + 'static) -> Self {
        self.guards.push(GuardPoint { at: Some(prefix.to_owned()), guard: Arc::new(guard) });
        self
    }

    /// Serves several mounts, each below its prefix.
    #[must_use]
    pub fn mount_all(mut self, mounts: impl IntoIterator<Item = (String, Arc<dyn Mount>)>) -> Self {
        let points = mounts.into_iter();
        self.mounts.extend(points.map(|(prefix, mount)| MountPoint { prefix, mount, admin: false }));
        self
    }

    /// The listeners that were named.
    pub fn doors(&self) -> &[Door] {
        &self.doors
    }

    /// Binds every address and starts the workers. When it returns, every listener accepts.
    ///
    /// # Errors
    /// An address cannot be bound (the error names it), the back end is not to be had, or the system has no
    /// room for another thread.
    pub fn start(self) -> io::Result<Running> {
        self.start_with(|_| Vec::new())
    }

    /// As [`Server::start`], with mounts of the admin listener, which show the state of the server.
    ///
    /// # Errors
    /// As those of [`Server::start`].
    pub fn start_with(
        self,
        admin: impl FnOnce(&Arc<Board>) -> Vec<(String, Arc<dyn Mount>)>,
    ) -> io::Result<Running> {
        let Self { options, doors, inherited, admin: admin_listeners, mut mounts, sources, guards, log } =
            self;
        check_guards(&guards, &mounts)?;
        let (backend, backend_reason) = match options.backend {
            Some(backend) => (backend, "as asked for"),
            None => Backend::auto()?,
        };
        let workers = options.workers.unwrap_or_else(encke_io::host::processors).max(1);
        let mut queues = Vec::new();
        queues.resize_with(workers, Vec::new);
        let mut addresses = Vec::new();
        let mut identities = Vec::new();
        for door in &doors {
            let Some(address) = bind(door, options.backlog, &mut queues)? else { continue };
            identities.extend(Named::of(door, &address));
            addresses.push(address);
        }
        let mut admin_addresses = Vec::new();
        for listener in admin_listeners {
            admin_addresses.push(listener.address().clone());
            queues[0].push((listener, DoorKind { admin: true, ..DoorKind::default() }));
        }
        for listener in inherited {
            addresses.push(listener.address().clone());
            let kind = DoorKind::default();
            share(listener, kind, &mut queues)?;
        }

        let pool = Pool::start(options.offload_threads, offload::QUEUE_DEFAULT)?;
        let census = Arc::new(Census::default());
        let http2 = Arc::default();
        let metrics: Vec<Arc<Metrics>> = (0..workers).map(|_| Arc::default()).collect();
        let identities = Arc::new(Mutex::new(identities));
        let board = Arc::new(Board {
            metrics: metrics.clone(),
            engine: vec![
                Arc::new(EngineFigures { workers: metrics.clone(), log: log.clone() }),
                Arc::new(TlsFigures {
                    workers: metrics.iter().map(|worker| Arc::clone(&worker.tls)).collect(),
                    identities: present(&identities),
                }),
            ],
            mounted: Mutex::default(),
            others: sources,
            stopping: false.into(),
            on_drain: Mutex::default(),
            backend,
            backend_reason,
            addresses: Mutex::new(addresses),
            identities,
            admin_addresses,
            connections: options.policy.connections,
            started_s: encke_io::clock::Clock::new().now().unix_s(),
        });
        let admin = admin(&board).into_iter();
        mounts.extend(admin.map(|(prefix, mount)| MountPoint { prefix, mount, admin: true }));
        board.show(&mounts);
        let plan = Arc::new(Plan { policy: options.policy, mounts: mounts.clone(), guards: guards.clone() });

        let mut running = Running {
            links: Vec::new(),
            threads: Vec::new(),
            board,
            pool: pool.clone(),
            mounts: Mutex::new(mounts),
            guards: Mutex::new(guards),
            policy: Mutex::new(plan.policy.clone()),
            log: log.clone(),
            watch: Mutex::new(None),
            backlog: options.backlog,
            certificates_every: options.certificates_every,
            closing: Arc::default(),
        };
        for (number, (queue, metrics)) in queues.into_iter().zip(metrics).enumerate() {
            let seat = Seat {
                queue,
                plan: Arc::clone(&plan),
                pool: pool.clone(),
                shared: Shared {
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
                .spawn(move || seat.take(backend, &report))?;
            let started =
                hear.recv().unwrap_or_else(|_| Err(io::Error::other("a worker ended at its start")));
            match started {
                Ok(link) => {
                    running.links.push(link);
                    running.threads.push(thread);
                }
                Err(error) => {
                    running.stop();
                    return Err(error);
                }
            }
        }
        if let Err(error) = running.watch_certificates() {
            running.stop();
            return Err(error);
        }
        let links: Arc<[Arc<Link>]> = running.links.clone().into();
        for link in &running.links {
            link.send(Message::Command(Command::Meet(Arc::clone(&links))));
        }
        Ok(running)
    }
}

/// Checks that each guard has a mount point. A guard without requests would protect nothing, without a sign of it.
fn check_guards(guards: &[GuardPoint], mounts: &[MountPoint]) -> io::Result<()> {
    let public = mounts.iter().filter(|mount| !mount.admin);
    check_guards_at(guards, public.map(|mount| mount.prefix.as_str()))
}

fn check_guards_at<'a>(
    guards: &[GuardPoint],
    prefixes: impl Iterator<Item = &'a str> + Clone,
) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if guards.len() > GUARDS_MAX {
        return invalid(format!("{} guards: a server may have at most {GUARDS_MAX}", guards.len()));
    }
    let mut attached = guards.iter().filter_map(|point| point.at.as_deref());
    match attached.find(|at| !prefixes.clone().any(|prefix| prefix == *at)) {
        Some(at) => invalid(format!("cannot attach a guard to {at}: nothing is mounted there")),
        None => Ok(()),
    }
}

impl Running {
    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Address> {
        lock(&self.board.addresses).clone()
    }

    /// Where the admin listener is.
    pub fn admin_addresses(&self) -> Vec<Address> {
        self.board.admin_addresses.clone()
    }

    /// Whether connections to an address speak TLS.
    pub fn is_secure(&self, address: &Address) -> bool {
        lock(&self.board.identities).iter().any(|named| named.bound == *address)
    }

    /// How it waits for events, and why so.
    pub fn backend(&self) -> (Backend, &'static str) {
        (self.board.backend, self.board.backend_reason)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.links.len()
    }

    /// What the workers have counted so far, under the names of `/metrics`.
    pub fn families(&self) -> Vec<Family> {
        self.board.families()
    }

    /// Has the workers stop: for `delay` they go on and `/readyz` says that they will not; then they take
    /// nothing new, and what is going on has `time` to end.
    pub fn drain(&self, delay: Duration, time: Duration) {
        self.board.begin_drain();
        for link in &self.links {
            link.send(Message::Command(Command::Drain { delay, time }));
        }
    }

    /// Gives the workers other limits, and other mounts in place of all they have but those of the admin listener.
    pub fn reload(&self, policy: Policy, mounts: Option<Vec<(String, Arc<dyn Mount>)>>) {
        self.reload_points(policy, mounts);
    }

    /// As [`Running::reload`], with other guards. A request that waits for a guard keeps the one that it waits for.
    ///
    /// # Errors
    /// A guard is attached to a prefix without a mount point, or there are too many; then nothing changes.
    pub fn reload_guarded(
        &self,
        policy: Policy,
        mounts: Option<Vec<(String, Arc<dyn Mount>)>>,
        guards: Vec<GuardPoint>,
    ) -> io::Result<()> {
        match &mounts {
            Some(mounts) => check_guards_at(&guards, mounts.iter().map(|(prefix, _)| prefix.as_str()))?,
            None => check_guards(&guards, &lock(&self.mounts))?,
        }
        *lock(&self.guards) = guards;
        self.reload_points(policy, mounts);
        Ok(())
    }

    fn reload_points(&self, policy: Policy, mounts: Option<Vec<(String, Arc<dyn Mount>)>>) {
        let mut points = lock(&self.mounts);
        if let Some(mounts) = mounts {
            points.retain(|point| point.admin);
            let mounts = mounts.into_iter();
            points.extend(mounts.map(|(prefix, mount)| MountPoint { prefix, mount, admin: false }));
        }
        self.apply(policy, &points);
    }

    /// Begins a live view of the access log, also if that is off. `wake` is called on a worker when an entry comes after
    /// [`LogTail::try_next`] has found none; it must not wait. `None`: there are too many tails.
    pub fn tail(&self, filter: TailFilter, wake: impl Fn() + Send + Sync + 'static) -> Option<LogTail> {
        self.log.tail(filter, wake)
    }

    /// Asks for the verbs of all features.
    pub fn verbs(&self, ticket: Ticket<Vec<FeatureVerbs>>) {
        self.order(0, Order::Verbs(ticket));
    }

    /// Performs an operator's action. The results of all workers are merged.
    pub fn act(&self, feature: &str, verb: &str, value: ActionValue, ticket: Ticket<ActionResult>) {
        let (feature, verb, value) = (Arc::from(feature), Arc::from(verb), Arc::new(value));
        let parts = Gathered::new(ticket, merge_results);
        for worker in 0..self.links.len() {
            let (feature, verb) = (Arc::clone(&feature), Arc::clone(&verb));
            let order = Order::Act { feature, verb, value: Arc::clone(&value), parts: parts.clone() };
            self.order(worker, order);
        }
    }

    /// Asks for the rules that apply to a request, in order.
    pub fn explain(&self, request: Kept, ticket: Ticket<Vec<RuleStep>>) {
        self.order(0, Order::Explain(Box::new(request), ticket));
    }

    fn order(&self, worker: usize, order: Order) {
        if let Some(link) = self.links.get(worker) {
            link.send(Message::Command(Command::Operate(order)));
        }
    }

    /// Puts each of these mounts in the place of the one with its prefix. All others stay.
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

    fn apply(&self, policy: Policy, points: &[MountPoint]) {
        self.board.show(points);
        lock(&self.policy).clone_from(&policy);
        let plan = Arc::new(Plan { policy, mounts: points.to_vec(), guards: lock(&self.guards).clone() });
        for link in &self.links {
            link.send(Message::Command(Command::Reload(Arc::clone(&plan))));
        }
    }

    /// Binds the doors that have no listener yet. Waits until this server has closed earlier listeners on their addresses;
    /// no worker waits.
    ///
    /// # Errors
    /// One of them cannot be bound; then none is.
    pub fn bind_new(&self, doors: &[Door]) -> io::Result<Bound> {
        let known = lock(&self.board.addresses).clone();
        let mut queues = Vec::new();
        queues.resize_with(self.links.len(), Vec::new);
        for door in doors.iter().filter(|door| !known.contains(&door.address)) {
            let closing = self.closing.wait(&door.address);
            match bind(door, self.backlog, &mut queues) {
                Ok(Some(bound)) => lock(&self.board.identities).extend(Named::of(door, &bound)),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    return Err(self.closing.explain(error, &door.address, closing, &known));
                }
                Err(error) => return Err(error),
            }
        }
        self.watch_certificates()?;
        Ok(Bound(queues))
    }

    /// Those of `doors` that speak TLS already do so under the new names from now on. Returns the addresses at which TLS
    /// comes or goes, which takes a new listener.
    pub fn renew_identities(&self, doors: &[Door]) -> Vec<Address> {
        let identities = lock(&self.board.identities);
        let mut changed = Vec::new();
        for door in doors {
            let known = identities.iter().find(|named| named.asked == door.address);
            match (known, &door.tls) {
                (Some(known), Some(new)) => known.identity.renew(new),
                (None, None) => {}
                _ => changed.push(door.address.clone()),
            }
        }
        changed
    }

    /// Accepts at `doors` only: at those just bound, and no longer at those that are not among them.
    pub fn listen_only(&self, doors: &[Door], bound: Bound) {
        let mut addresses = lock(&self.board.addresses);
        for address in addresses.extract_if(.., |known| !doors.iter().any(|door| door.address == *known)) {
            for link in &self.links {
                link.send(Message::Command(Command::Unlisten(self.closing.begin(&address))));
            }
        }
        lock(&self.board.identities).retain(|named| doors.iter().any(|door| door.address == named.asked));
        for (link, queue) in self.links.iter().zip(bound.0) {
            for (listener, kind) in queue {
                if !addresses.contains(listener.address()) {
                    addresses.push(listener.address().clone());
                }
                link.send(Message::Command(Command::Listen(listener, kind)));
            }
        }
    }

    /// Has the files of certificates looked at from now on, if there are any and nobody does so yet.
    fn watch_certificates(&self) -> io::Result<()> {
        let mut watch = lock(&self.watch);
        if watch.is_none() && !lock(&self.board.identities).is_empty() {
            *watch = Some(Watch::start(self.certificates_every, present(&self.board.identities))?);
        }
        Ok(())
    }

    /// Waits until the workers have stopped.
    pub fn join(mut self) {
        if let Some(watch) = lock(&self.watch).take() {
            watch.stop();
        }
        for thread in self.threads.drain(..) {
            // A worker that panics aborts the process: there is no other end to hear of.
            let _ended = thread.join();
        }
        self.pool.close();
    }

    /// Stops at once what is idle, gives the rest a moment, and waits for the end.
    pub fn stop(self) {
        self.drain(Duration::ZERO, Duration::from_millis(500));
        self.join();
    }
}

/// What a worker's thread is given.
struct Seat {
    queue: Vec<(Listener, DoorKind)>,
    plan: Arc<Plan>,
    pool: Pool,
    shared: Shared,
}

type Report = std::sync::mpsc::Sender<io::Result<Arc<Link>>>;

/// A worker's seat on its way to a reactor.
struct Taken<'a> {
    seat: Seat,
    report: &'a Report,
}

impl Seat {
    /// Runs a worker on the chosen back end until it is over.
    fn take(self, backend: Backend, report: &Report) {
        let pool = self.pool.clone();
        encke_io::run_on(backend, pool, Taken { seat: self, report });
    }
}

impl encke_io::Run for Taken<'_> {
    fn run<R: Reactor>(self, reactor: Result<R, encke_io::Unavailable>) {
        let Self { seat, report } = self;
        let reactor = match reactor {
            Ok(reactor) => reactor,
            Err(error) => {
                let _gone = report.send(Err(error.into()));
                return;
            }
        };
        let link = Link::new(reactor.waker());
        let mut worker = Worker::new(reactor, Arc::clone(&link), &seat.plan, seat.shared);
        for (listener, kind) in seat.queue {
            if let Err(fault) = worker.listen(listener, kind) {
                let _gone = report.send(Err(io::Error::other(fault)));
                return;
            }
        }
        let _gone = report.send(Ok(link));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run()));
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                encke_settings::notice::report(
                    encke_settings::Level::Warn,
                    &format!("a worker cannot wait for events any more: {fault}; stopping"),
                );
                std::process::abort();
            }
            // One worker less would answer a part of the clients with silence: better to be started again.
            Err(_panic) => std::process::abort(),
        }
    }
}
