//! A stream of NATS JetStream that several nodes follow: its side of a [`Sequencer`](encke_hub::Sequencer).
//!
//! ```text
//!  workers                       │ one thread, tokio
//!  Errand::Publish ──────────────┼─► sent in order ─► acknowledged, or sent again under the same name ─► News::Placed
//!  Errand::Read, Release ────────┼─► follow: one consumer of what is wanted ────────────────────────────► News::Messages
//!  Outlet::news ◄── Engine::taken┼─────► past ──────────────────────────────────────────────────────────► News::Past
//!  Errand::Recall ───────────────┼─► history, in chunks that serve several ─────────────────────────────► News::Recalled
//!  Errand::Forget ───────────────┼─► a tombstone; what it forgets is removed behind it ─────────────────► News::Placed
//!  Errand::Tell ─────────────────┼─► beats of this node and of the others ──────────────────────────────► News::Told, Gone
//!                                └── the connection ────────────────────────────────────────────────────► News::Up, Down
//! ```
//! It decides nothing: what is kept and who is told of a loss is the sequencer's to say. No worker waits for it; what is
//! on its way to workers is at most `BATCHES` batches, and what is on its way to NATS is the sequencer's to limit.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{
    ContextBuilder, CreateStreamErrorKind, PublishAckFuture, PublishErrorKind,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, ErrorCode, message::Info as Place};
use async_nats::{ConnectErrorKind, ConnectOptions, Event};
use encke_hub::{
    Change, Draft, Epoch, Errand, Message, Name, News, NodeId, Place as Placed, Recall, Recalled, Refusal,
    Ticket,
};
use futures_util::StreamExt;
use tokio::runtime;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

mod follow;
mod forgetting;
mod history;
mod interest;
mod letter;
mod past;
mod peers;

use follow::{Follower, Wish};
use history::Histories;
use peers::Peers;

pub use peers::{About, Node};

/// Batches of news on their way to the workers, each of at most [`BATCH`] messages: what a worker that is late may be
/// behind before NATS is asked for no more.
const BATCHES: usize = 16;
/// Messages in a batch.
const BATCH: usize = 256;
/// Messages that NATS may send ahead.
const AHEAD: usize = 1_024;
/// Histories that are read at a time.
const READS: usize = 32;
/// How long to reach NATS and to find the stream at the start. Three servers that start together have a leader after some
/// five seconds, on a machine that has much else to do after twenty.
const JOIN_TIME: Duration = Duration::from_secs(30);
/// How long NATS may take to answer what is asked of it.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How often each side of a quiet connection says that it is there: one that is cut is noticed after two of them.
const PING: Duration = Duration::from_secs(5);
/// How often a quiet consumer says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long a consumer asks for messages at a time.
const ASKING: Duration = Duration::from_secs(30);
/// After so long without being asked NATS forgets a consumer.
const INACTIVE: Duration = Duration::from_secs(60);
/// How long to wait before something is tried again, if the connection does not come back before.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two tries to connect.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// How long what changes with those who listen here is gathered before other nodes are told.
const GATHERING: Duration = Duration::from_millis(250);
/// How long a node that ends may take to say so.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where the stream is, and how it is made if it is not there.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Servers, as `nats://host:port` or `tls://host:port`.
    pub servers: Vec<String>,
    /// As whom.
    pub login: Login,
    /// The authority, as PEM, that vouches for the servers; else those that the system trusts.
    pub authority: Option<PathBuf>,
    /// Name of the stream, and of the first part of its subjects.
    pub stream: String,
    /// On how many servers it is kept.
    pub replicas: usize,
    /// Kept in memory alone.
    pub memory: bool,
    /// How long messages are kept.
    pub age: Duration,
    /// How many bytes are kept.
    pub bytes: u64,
    /// How long a publish is remembered by its name.
    pub remembered: Duration,
    /// How long a publish waits to be acknowledged.
    pub patience: Duration,
    /// By how many filters at most the stream is followed; 1: all of it is.
    pub filters: usize,
    /// How long what is not wanted any more may go on coming.
    pub linger: Duration,
    /// How long a message may wait for the stream and be sent again: the stream has to remember it twice as long.
    pub queue_age: Duration,
    /// Names this node for as long as it runs: no other has the same.
    pub node: NodeId,
    /// What it says of itself; what changes while it runs is filled in here.
    pub about: About,
}

/// As whom a node comes to NATS.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// What the server's URL says, or nobody.
    Nobody,
    /// By a token.
    Token(String),
    /// By name and password.
    User(String, String),
    /// By a file that holds a token and a key.
    Credentials(PathBuf),
}

/// As whom, and no more: what is secret is not shown.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Token(_) => f.write_str("a token"),
            Self::User(name, _) => write!(f, "user {name}"),
            Self::Credentials(file) => write!(f, "credentials {}", file.display()),
        }
    }
}

/// Who is told what the stream says. It is called on the thread of the engine, and does not wait.
pub trait Outlet: Send + Sync {
    /// News, to be answered by [`Engine::taken`].
    fn news(&self, news: Vec<News>);

    /// Something that an operator should know.
    fn note(&self, note: Note);

    /// The time since some moment, which never goes back.
    fn now(&self) -> Duration;
}

/// What an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Something is wrong from now on.
    Trouble(String),
    /// It is well again.
    Relief(String),
}

/// A node's part in a stream.
pub struct Engine {
    /// The life of the stream.
    pub epoch: Epoch,
    /// Where it was when the node joined.
    pub newest: u64,
    errands: mpsc::UnboundedSender<Task>,
    places: Arc<Semaphore>,
    begins: Mutex<Option<oneshot::Sender<Arc<dyn Outlet>>>>,
    nodes: Arc<Mutex<Vec<Node>>>,
}

/// What is asked of the engine's thread.
enum Task {
    Errand(Errand),
    /// Say that this node ends; then this is dropped.
    Leave(std::sync::mpsc::Sender<()>),
}

impl Engine {
    /// Joins the stream, which is made if it is not there. Waits for NATS, at most 30 s.
    ///
    /// # Errors
    /// NATS cannot be reached, refuses, or its stream is none that can be followed.
    pub fn join(cluster: Cluster) -> Result<Self, JoinError> {
        let (errands, asked) = mpsc::unbounded_channel();
        let (begins, begun) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let places = Arc::new(Semaphore::new(BATCHES));
        let theirs = Arc::clone(&places);
        let nodes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&nodes);
        let thread = std::thread::Builder::new().name("encke-nats".into());
        let spawned = thread.spawn(move || {
            let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(JoinError::Thread(error)))),
            };
            runtime.block_on(async {
                let joined = timeout(JOIN_TIME, join(&cluster)).await;
                match joined.unwrap_or_else(|_| Err(JoinError::Time(shown(&cluster.servers)))) {
                    Ok(joined) => {
                        let _gone = tell.send(Ok((joined.epoch, joined.newest)));
                        if let Ok(outlet) = begun.await {
                            serve(cluster, joined, outlet, theirs, seen, asked).await;
                        }
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            });
        });
        spawned.map_err(JoinError::Thread)?;
        let (epoch, newest) =
            told.recv().map_err(|_| JoinError::Thread(std::io::Error::other("it has ended")))??;
        Ok(Self { epoch, newest, errands, places, begins: Mutex::new(Some(begins)), nodes })
    }

    /// From now on the stream is followed, from where it was when it was joined; once.
    pub fn begin(&self, outlet: Arc<dyn Outlet>) {
        let begins = locked(&self.begins).take();
        if let Some(begins) = begins {
            let _gone = begins.send(outlet);
        }
    }

    /// Runs an errand.
    pub fn run(&self, errand: Errand) {
        let _gone = self.errands.send(Task::Errand(errand));
    }

    /// The nodes of the cluster as they were seen last: empty before it has begun.
    pub fn nodes(&self) -> Vec<Node> {
        locked(&self.nodes).clone()
    }

    /// Tells the other nodes that this one ends, so that nobody waits for it. It waits until that is said, at most 1 s.
    pub fn leave(&self) {
        let (tell, told) = std::sync::mpsc::channel();
        let _gone = self.errands.send(Task::Leave(tell));
        let _said = told.recv_timeout(FAREWELL);
    }

    /// A batch of news was taken.
    pub fn taken(&self) {
        self.places.add_permits(1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a node has not joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// The thread could not be started.
    Thread(std::io::Error),
    /// The file of credentials cannot be used.
    Credentials(PathBuf, std::io::Error),
    /// No server was reached.
    Unreachable(String, String),
    /// The server does not let us in.
    Refused(String),
    /// NATS did not answer in time.
    Time(String),
    /// The stream could be neither found nor made.
    Stream(String, String),
    /// There is a stream of that name, and it cannot be followed.
    Unfit(String, String),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "the thread for NATS cannot be started: {error}"),
            Self::Credentials(file, error) => {
                write!(f, "the credentials in {} cannot be used: {error}", file.display())
            }
            Self::Unreachable(servers, why) => write!(f, "no NATS server is reached at {servers}: {why}"),
            Self::Refused(servers) => write!(
                f,
                "NATS at {servers} refuses the login: look at cluster.token, cluster.user and cluster.credentials"
            ),
            Self::Time(servers) => write!(
                f,
                "NATS at {servers} has not found or made the stream within {} s; is JetStream enabled there, has it a leader, \
                 and are there as many servers as cluster.replicas?",
                JOIN_TIME.as_secs()
            ),
            Self::Stream(name, why) => write!(f, "the stream {name} can be neither found nor made: {why}"),
            Self::Unfit(name, why) => write!(f, "the stream {name} is there and cannot be followed: {why}"),
        }
    }
}

impl std::error::Error for JoinError {}

/// A connection, and the stream on it.
struct Joined {
    jetstream: jetstream::Context,
    stream: Stream,
    events: mpsc::UnboundedReceiver<Event>,
    epoch: Epoch,
    newest: u64,
}

async fn join(cluster: &Cluster) -> Result<Joined, JoinError> {
    let (tell, events) = mpsc::unbounded_channel();
    let mut options = ConnectOptions::new()
        .name("encke")
        .connection_timeout(ANSWER_TIME)
        .request_timeout(Some(ANSWER_TIME))
        .ping_interval(PING)
        .reconnect_delay_callback(|tries| PAUSE.saturating_mul(tries as u32).min(RECONNECT_MAX))
        .event_callback(move |event| {
            let _gone = tell.send(event);
            async {}
        });
    options = match &cluster.login {
        Login::Nobody => options,
        Login::Token(token) => options.token(token.clone()),
        Login::User(name, password) => options.user_and_password(name.clone(), password.clone()),
        Login::Credentials(file) => options
            .credentials_file(file)
            .await
            .map_err(|error| JoinError::Credentials(file.clone(), error))?,
    };
    if let Some(authority) = &cluster.authority {
        options = options.add_root_certificates(authority.clone());
    }
    let servers = shown(&cluster.servers);
    let client = options.connect(&cluster.servers[..]).await.map_err(|error| match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            JoinError::Refused(servers.clone())
        }
        _ => JoinError::Unreachable(servers.clone(), causes(&error)),
    })?;
    let jetstream = ContextBuilder::new()
        .timeout(ANSWER_TIME)
        .ack_timeout(cluster.patience)
        .max_ack_inflight(2 * AHEAD * READS)
        .build(client);
    let name = &cluster.stream;
    let mut tries = interval(PAUSE);
    let stream = loop {
        tries.tick().await;
        match jetstream.get_or_create_stream(shape(cluster)).await {
            Ok(stream) => break stream,
            Err(error) if is_for_now(&error.kind()) => {}
            Err(error) => return Err(JoinError::Stream(name.clone(), causes(&error))),
        }
    };
    let info = stream.cached_info();
    fits(&info.config, cluster).map_err(|why| JoinError::Unfit(name.clone(), why))?;
    let (epoch, newest) = (epoch(info), info.state.last_sequence);
    Ok(Joined { epoch, newest, jetstream, stream, events })
}

/// Whether NATS will say something else in a moment: servers that have just started have no leader yet, or not all of them
/// are there.
fn is_for_now(error: &CreateStreamErrorKind) -> bool {
    match error {
        CreateStreamErrorKind::TimedOut => true,
        CreateStreamErrorKind::JetStream(error) => matches!(
            error.error_code(),
            ErrorCode::CLUSTER_NOT_AVAILABLE
                | ErrorCode::CLUSTER_NOT_LEADER
                | ErrorCode::CLUSTER_NO_PEERS
                | ErrorCode::INSUFFICIENT_RESOURCES
        ),
        _ => false,
    }
}

/// Servers as they may be shown: without what stands before an `@`, which may be a password.
fn shown(servers: &[String]) -> String {
    let plain = |server: &String| match server.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default()),
        None => server.rsplit('@').next().unwrap_or_default().to_owned(),
    };
    servers.iter().map(plain).collect::<Vec<_>>().join(", ")
}

/// The stream, if it has to be made.
fn shape(cluster: &Cluster) -> Config {
    Config {
        name: cluster.stream.clone(),
        description: Some("channels of Encke".into()),
        subjects: vec![format!("{}.>", prefix(&cluster.stream))],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: if cluster.memory { StorageType::Memory } else { StorageType::File },
        num_replicas: cluster.replicas,
        max_age: cluster.age,
        max_bytes: i64::try_from(cluster.bytes).unwrap_or(i64::MAX),
        max_messages: -1,
        // Never longer than messages are kept: NATS refuses that.
        duplicate_window: cluster.remembered.max(2 * cluster.queue_age).min(cluster.age),
        allow_direct: true,
        ..Config::default()
    }
}

/// Whether a resume can be whole on a stream: messages go from its end alone, and all of them are in it.
fn fits(config: &Config, cluster: &Cluster) -> Result<(), String> {
    let wanted = format!("{}.>", prefix(&cluster.stream));
    if !config.subjects.contains(&wanted) {
        return Err(format!("it does not take {wanted}; add that to its subjects"));
    }
    if config.retention != RetentionPolicy::Limits {
        return Err("its retention has to be limits, so that every node can read all of it".into());
    }
    if config.max_messages_per_subject > 0 {
        return Err("it has a limit a subject, which drops messages from its middle; remove that".into());
    }
    let window = 2 * cluster.queue_age;
    if config.duplicate_window < window {
        return Err(format!(
            "it knows a message that is sent again for {} s, and for what waits up to cluster.queue_age that has to be {} s: \
             `nats stream edit {} --dupe-window={}s`, or a shorter cluster.queue_age",
            config.duplicate_window.as_secs_f64(),
            window.as_secs_f64(),
            cluster.stream,
            window.as_secs_f64().ceil()
        ));
    }
    Ok(())
}

fn prefix(stream: &str) -> String {
    format!("{stream}.m")
}

/// Names the life of a stream: the same on every node, another one if it is made anew (FNV-1a).
fn epoch(info: &Info) -> Epoch {
    let created = info.created.unix_timestamp_nanos().to_le_bytes();
    let bytes = info.config.name.bytes().chain([0]).chain(created);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // Nought is the epoch of ids that are not ours.
    Epoch(hash.max(1))
}

/// What its tasks share.
struct Side {
    cluster: Cluster,
    prefix: String,
    jetstream: jetstream::Context,
    stream: Stream,
    epoch: Epoch,
    outlet: Arc<dyn Outlet>,
    places: Arc<Semaphore>,
    reads: Semaphore,
    histories: Histories,
    /// The connection has come back: what was asked for before may have been lost.
    back: Notify,
    /// Up to where the stream was followed.
    offset: AtomicU64,
    /// The nodes as they were seen last.
    nodes: Arc<Mutex<Vec<Node>>>,
}

/// Runs errands until there will be none any more, and all the while follows the stream.
async fn serve(
    cluster: Cluster,
    joined: Joined,
    outlet: Arc<dyn Outlet>,
    places: Arc<Semaphore>,
    nodes: Arc<Mutex<Vec<Node>>>,
    mut errands: mpsc::UnboundedReceiver<Task>,
) {
    let Joined { jetstream, stream, events, epoch, newest } = joined;
    let side = Arc::new(Side {
        prefix: prefix(&cluster.stream),
        cluster,
        jetstream,
        stream,
        epoch,
        outlet,
        places,
        reads: Semaphore::new(READS),
        histories: Histories::default(),
        back: Notify::new(),
        offset: AtomicU64::new(newest),
        nodes,
    });
    let (tell, told) = mpsc::unbounded_channel();
    let (change, changes) = mpsc::unbounded_channel();
    let (wish, wishes) = mpsc::unbounded_channel();
    tokio::spawn(Arc::clone(&side).keep_company(changes));
    tokio::spawn(Arc::clone(&side).watch(events));
    tokio::spawn(Arc::clone(&side).answer(told));
    tokio::spawn(Follower::new(Arc::clone(&side), newest, wishes, tell.clone()).follow());
    while let Some(task) = errands.recv().await {
        match task {
            Task::Errand(Errand::Publish { ticket, draft, number }) => {
                let id = match (&draft.key, number) {
                    (Some(key), _) => Some(letter::id(&draft.channel, key)),
                    (None, Some(number)) => Some(letter::id_of_queued(side.cluster.node, number)),
                    (None, None) => None,
                };
                let tell = tell.clone();
                let placed = move |fate| drop(tell.send(News::Placed { ticket, fate }));
                side.publish(draft, id, placed).await;
            }
            Task::Errand(Errand::Announce(announcement)) => {
                let (draft, id) = (announcement.draft(), letter::id_of(&announcement));
                let tell = tell.clone();
                let placed = move |fate| drop(tell.send(News::Announced { announcement, fate }));
                side.publish(draft, id, placed).await;
            }
            Task::Errand(Errand::Read { ticket, channel, to, most }) => {
                drop(wish.send(Wish::Read { ticket, channel, to, most }));
            }
            Task::Errand(Errand::Recall { recall, channels, after, to }) => {
                tokio::spawn(Arc::clone(&side).recall(recall, channels, after, to, tell.clone()));
            }
            Task::Errand(Errand::Forget { ticket, channel }) => {
                tokio::spawn(Arc::clone(&side).forget(ticket, channel, tell.clone()));
            }
            Task::Errand(Errand::Release { channel }) => drop(wish.send(Wish::Release { channel })),
            Task::Errand(Errand::Tell(one)) => drop(change.send(Said::Change(one))),
            Task::Leave(ended) => drop(change.send(Said::Leave(ended))),
        }
    }
}

/// What is said to the other nodes.
enum Said {
    Change(Change),
    Leave(std::sync::mpsc::Sender<()>),
}

impl Side {
    /// Brings news to the workers, as many at a time as they take.
    async fn bring(&self, news: Vec<News>) {
        if let Ok(place) = self.places.acquire().await {
            place.forget();
            self.outlet.news(news);
        }
    }

    /// Brings answers, several at a time.
    async fn answer(self: Arc<Self>, mut told: mpsc::UnboundedReceiver<News>) {
        let mut news = Vec::new();
        while told.recv_many(&mut news, BATCH).await > 0 {
            self.bring(std::mem::take(&mut news)).await;
        }
    }

    // ── The connection ──────────────────────────────────────────────────────────────────────────────────────────

    /// Tells when NATS cannot be reached. That it can be again is told when the stream is followed again.
    async fn watch(self: Arc<Self>, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut up = true;
        while let Some(event) = events.recv().await {
            match event {
                Event::Disconnected | Event::Closed if up => {
                    up = false;
                    self.bring(vec![News::Down]).await;
                    let text = "the cluster's NATS cannot be reached; publishing is refused, or waits in cluster.queue, until it is back";
                    self.outlet.note(Note::Trouble(text.into()));
                }
                Event::Connected => {
                    if !std::mem::replace(&mut up, true) {
                        self.outlet.note(Note::Relief("the cluster's NATS is back".into()));
                    }
                    self.back.notify_waiters();
                }
                Event::ServerError(error) => {
                    self.outlet.note(Note::Trouble(format!("the cluster's NATS says: {error}")));
                }
                _ => {}
            }
        }
    }

    /// Waits until the connection is back, or for a moment.
    async fn pause(&self) {
        let _early = timeout(PAUSE, self.back.notified()).await;
    }

    // ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Reads what a channel keeps, as often as it takes.
    async fn read(
        self: Arc<Self>,
        ticket: Ticket,
        channel: Name,
        to: u64,
        most: usize,
        tell: mpsc::UnboundedSender<News>,
    ) {
        let subject = letter::subject(&self.prefix, &channel);
        let Ok(_one_of_few) = self.reads.acquire().await else { return };
        loop {
            match past::read(&self.stream, &channel, &subject, to, most).await {
                Ok(past::Past { lost_to, messages }) => {
                    let _gone = tell.send(News::Past { ticket, channel, to, lost_to, messages });
                    return;
                }
                Err(_) => self.pause().await,
            }
        }
    }

    /// Reads what is before the rings. If that takes too long, it is asked for again by whoever is still there.
    async fn recall(
        self: Arc<Self>,
        recall: Recall,
        channels: Vec<Name>,
        after: u64,
        to: u64,
        tell: mpsc::UnboundedSender<News>,
    ) {
        let read = self.histories.run(&self.stream, &self.prefix, &channels, after, to);
        let run = match timeout(ANSWER_TIME, read).await {
            Ok(Ok(run)) => run,
            Ok(Err(_)) | Err(_) => {
                self.pause().await;
                Recalled::default()
            }
        };
        let _gone = tell.send(News::Recalled { recall, run });
    }

    // ── The other nodes ─────────────────────────────────────────────────────────────────────────────────────────

    /// Tells the other nodes that we are here and who listens here, and hears the same of them.
    async fn keep_company(self: Arc<Self>, mut changes: mpsc::UnboundedReceiver<Said>) {
        let subjects = format!("{}.n", self.cluster.stream);
        let client = self.jetstream.client();
        // It is asked for again after every cut; an error says that the client has ended.
        let Ok(mut heard) = client.subscribe(format!("{subjects}.*")).await else { return };
        let ours = format!("{subjects}.{:016x}", self.cluster.node.0);
        let mut peers = Peers::new(self.cluster.node, Duration::ZERO);
        // Its time is that of its ticks: while this process is held up, nobody grows older.
        let mut now = Duration::ZERO;
        let mut ticks = interval(GATHERING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut news = Vec::new();
            tokio::select! {
                said = changes.recv() => match said {
                    Some(Said::Change(change)) => peers.tell(change),
                    Some(Said::Leave(_ended)) => {
                        // What went before it, for whoever tells the names of a node that is gone.
                        let mut beats = peers.beats(now, &self.about());
                        beats.push(peers.farewell(&self.about()));
                        return self.say(&ours, beats).await;
                    }
                    None => return,
                },
                beat = heard.next() => {
                    let Some(beat) = beat else { return };
                    let node = beat.subject.rsplit('.').next().and_then(|node| u64::from_str_radix(node, 16).ok());
                    // Somebody else's words are passed over.
                    if let (Some(node), Ok(read)) = (node, serde_json::from_slice(&beat.payload)) {
                        news.extend(peers.hears(now, NodeId(node), read));
                    }
                }
                _ = ticks.tick() => {
                    now += GATHERING;
                    news = peers.buries();
                    // What is said while nobody hears it would have to be asked for again.
                    if client.connection_state() == State::Connected {
                        self.say(&ours, peers.beats(now, &self.about())).await;
                    }
                    *locked(&self.nodes) = peers.nodes(now, &self.about());
                }
            }
            if !news.is_empty() {
                self.bring(news).await;
            }
        }
    }

    /// Says something to the other nodes. Whoever has not heard it asks.
    async fn say(&self, subject: &str, beats: impl IntoIterator<Item = peers::Beat>) {
        let client = self.jetstream.client();
        for beat in beats {
            if let Ok(text) = serde_json::to_vec(&beat) {
                let _unheard = client.publish(subject.to_owned(), text.into()).await;
            }
        }
        let _unheard = timeout(FAREWELL, client.flush()).await;
    }

    fn about(&self) -> About {
        About { offset: self.offset.load(Ordering::Relaxed), ..self.cluster.about.clone() }
    }

    // ── Publishing ──────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a draft, under a name or another one each time; what becomes of it is told later.
    async fn publish(
        self: &Arc<Self>,
        draft: Draft,
        id: Option<String>,
        tell: impl FnOnce(Result<Placed, Refusal>) + Send + 'static,
    ) {
        let subject = letter::subject(&self.prefix, &draft.channel);
        let id = id.unwrap_or_else(|| self.jetstream.client().new_inbox());
        // In their order, for as long as all goes well.
        let first = timeout(
            self.cluster.patience,
            self.jetstream.send_publish(subject.clone(), letter::written(&draft, &id)),
        );
        let first = first
            .await
            .map_err(|_| Refusal::Away)
            .and_then(|sent| sent.map_err(|error| self.refusal(&error, &draft)));
        let side = Arc::clone(self);
        tokio::spawn(async move {
            let landed = async {
                match first {
                    Ok(first) => side.land(first, subject, &id, &draft).await,
                    Err(refusal) => Err(refusal),
                }
            };
            tell(timeout(side.cluster.patience, landed).await.unwrap_or(Err(Refusal::Unanswered)));
        });
    }

    /// Waits for the place of a message, which is sent again under the same name while the connection comes and goes.
    async fn land(
        &self,
        first: PublishAckFuture,
        subject: String,
        id: &str,
        draft: &Draft,
    ) -> Result<Placed, Refusal> {
        let mut sent = Some(first);
        loop {
            let acknowledged = match sent.take() {
                Some(sent) => tokio::select! {
                    acknowledged = sent.into_future() => Some(acknowledged),
                    () = self.back.notified() => None,
                },
                None => None,
            };
            match acknowledged {
                Some(Ok(ack)) => {
                    let place = Placed { offset: ack.sequence, repeated: ack.duplicate };
                    return if ack.duplicate { self.same(place, draft).await } else { Ok(place) };
                }
                Some(Err(error)) => match error.kind() {
                    PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => self.pause().await,
                    PublishErrorKind::TimedOut => return Err(Refusal::Unanswered),
                    _ if is_passing(&error) => self.pause().await,
                    _ => return Err(self.refusal(&error, draft)),
                },
                None => {}
            }
            let again = self.jetstream.send_publish(subject.clone(), letter::written(draft, id)).await;
            sent = Some(again.map_err(|error| self.refusal(&error, draft))?);
        }
    }

    /// Whether what was published under a key before is the same. If it is gone, nobody can say otherwise.
    async fn same(&self, place: Placed, draft: &Draft) -> Result<Placed, Refusal> {
        let Ok(found) = self.stream.get_raw_message(place.offset).await else { return Ok(place) };
        let other = letter::read(draft.channel.clone(), Some(&found.headers), &found.payload);
        let same = (&other.data, &other.content_type, &other.event)
            == (&draft.data, &draft.content_type, &draft.event);
        // Sent again by ourselves, it is no repetition.
        let place = Placed { repeated: draft.key.is_some(), ..place };
        if same { Ok(place) } else { Err(Refusal::KeyMismatch) }
    }

    /// Why NATS does not take a message.
    fn refusal(&self, error: &jetstream::context::PublishError, draft: &Draft) -> Refusal {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let most = self.jetstream.client().server_info().max_payload;
                Refusal::TooLarge { bytes: draft.data.len(), most }
            }
            PublishErrorKind::TimedOut => Refusal::Unanswered,
            PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => Refusal::Away,
            _ => match code(error) {
                Some(
                    ErrorCode::STREAM_STORE_FAILED
                    | ErrorCode::INSUFFICIENT_RESOURCES
                    | ErrorCode::STORAGE_RESOURCES_EXCEEDED,
                ) => Refusal::NoSpace,
                _ => {
                    let text = format!("the cluster does not take a message: {}", causes(error));
                    self.outlet.note(Note::Trouble(text));
                    Refusal::NotTaken
                }
            },
        }
    }
}

/// What JetStream says of a publish that it refuses.
fn code(error: &jetstream::context::PublishError) -> Option<ErrorCode> {
    let said = error.source()?.downcast_ref::<jetstream::Error>()?;
    Some(said.error_code())
}

/// Whether a refusal says nothing of the message: one under the same name, or before a tombstone in the same channel, has no
/// place yet, which takes long while most servers are away; or nobody leads the stream at this moment.
fn is_passing(error: &jetstream::context::PublishError) -> bool {
    matches!(
        code(error),
        Some(
            ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT
                | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
                | ErrorCode::CLUSTER_NOT_AVAILABLE
                | ErrorCode::CLUSTER_NOT_LEADER
        )
    )
}

/// Begins the text of a failure that does not heal.
const ANOTHER: &str = "the cluster's stream is another one";

/// There is none.
enum Never {}

/// Why something has to be tried again, in words.
#[derive(Debug)]
struct Failure(String);

impl Failure {
    fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(causes(&error))
    }
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// What NATS has brought, at its place.
fn message(channel: Name, one: &jetstream::Message, place: &Place<'_>) -> Arc<Message> {
    let unix_ms = u64::try_from(place.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    let draft = letter::read(channel, one.headers.as_ref(), &one.payload);
    let official = letter::is_official(one.headers.as_ref());
    Arc::new(Message::placed(place.stream_sequence, unix_ms, draft, official))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let servers = ["nats://ann:se@cret@host:4222", "tls://host", "ann:secret@host"].map(str::to_owned);
        assert_eq!(shown(&servers), "nats://host:4222, tls://host, host");
        assert_eq!(format!("{:?}", Login::User("ann".into(), "secret".into())), "user ann");
        assert_eq!(format!("{:?}", Login::Token("secret".into())), "a token");
    }
}
