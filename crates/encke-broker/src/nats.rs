//! The engine of a cluster: connects a [`Sequencer`](encke_hub::Sequencer) to a NATS JetStream stream that all nodes follow.
//!
//! ```text
//!  workers: ClusterCommand       │ one thread, tokio                                              ClusterEvent
//!  Publish ──────────────────────┼─► sent in order ─► acknowledged, or sent again under the same id ► Placed
//!  Read, Release ────────────────┼─► follow: one consumer of the subscribed channels ───────────► Messages, Lost
//!                                │     └─► channel_history: a channel's newest messages ────────► Past
//!  Recall ───────────────────────┼─► history: backfills, in chunks that serve several ──────────► Recalled
//!  Forget ───────────────────────┼─► deletion: a tombstone, then the messages before it are purged ► Placed
//!  Tell ─────────────────────────┼─► peers: heartbeats of this node and of the others ──────────► Told, Gone; SourceBoard
//!                                │   the connection ────────────────────────────────────────────► Up, Down
//!  Outlet::on_events ◄───────────┼── events in batches; NatsEngine::taken acknowledges each batch
//! ```
//! The engine makes no decisions: the sequencer decides which messages are kept and which gaps are reported. No worker waits
//! for the engine. At most `BATCHES` batches are in transit to the workers; the sequencer limits the messages in transit to
//! NATS.

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
    AudienceChange, ClusterCommand, ClusterEvent, Draft, Epoch, Message, Name, NodeId, PublishAck as Placed,
    PublishError, PublishTicket, Recall, Recalled,
};
use futures_util::StreamExt;
use tokio::runtime;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::error::causes;
use crate::source_board::SourceBoard;

mod channel_history;
mod deletion;
mod encoding;
mod error;
mod follow;
mod history;
mod interest;
mod peers;

use error::NatsFailure;
use follow::{FollowCommand, Follower};
use history::Histories;
use peers::{Heartbeat, Peers};

pub use error::{JoinError, Misfit};
pub use peers::{About, Node};

/// Maximum batches of events in transit to the workers, each of at most [`BATCH`] messages. When a worker lags this far, the
/// engine stops reading from NATS.
const BATCHES: usize = 16;
/// Maximum messages in a batch.
const BATCH: usize = 256;
/// Messages that a consumer requests from NATS at a time.
const AHEAD: usize = 1_024;
/// Maximum channel histories that are loaded concurrently.
const READS: usize = 32;
/// Limit for connecting to NATS and finding the stream at the start. Three servers that start together elect a leader after
/// about five seconds, on a busy machine after twenty.
const JOIN_TIME: Duration = Duration::from_secs(30);
/// Timeout of a request to NATS.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Interval of pings on a quiet connection. A broken connection is noticed after two of them.
const PING: Duration = Duration::from_secs(5);
/// Interval of a quiet consumer's heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Expiry of a consumer's pull request.
const ASKING: Duration = Duration::from_secs(30);
/// NATS deletes a consumer after this time without a pull request.
const INACTIVE: Duration = Duration::from_secs(60);
/// Back-off before a retry; a reconnect ends it early.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest delay between two connection attempts.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// Tick of the exchange with other nodes: changes of subscribers are gathered for this time.
const GATHERING: Duration = Duration::from_millis(250);
/// Limit for sending heartbeats, also the last one of a node that stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// Settings of a cluster: the stream, and how to create it if it does not exist.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Servers, as `nats://host:port` or `tls://host:port`.
    pub servers: Vec<String>,
    /// Credentials for NATS.
    pub login: Login,
    /// PEM file with the CA certificates that the servers are verified with; `None` for the system's roots.
    pub authority: Option<PathBuf>,
    /// Name of the stream, and first token of its subjects.
    pub stream: String,
    /// Number of servers that store the stream, if it has to be created.
    pub replicas: usize,
    /// Whether the stream is stored in memory instead of files.
    pub memory: bool,
    /// Maximum age of messages in the stream.
    pub age: Duration,
    /// Maximum size of the stream in bytes.
    pub bytes: u64,
    /// How long the stream recognizes a repeated publish by its message id.
    pub remembered: Duration,
    /// Timeout of a publish until it is acknowledged.
    pub patience: Duration,
    /// Maximum filters of the node's consumer; 1 consumes the whole stream.
    pub filters: usize,
    /// How long a released channel may still be consumed.
    pub linger: Duration,
    /// How long a queued message may wait for the stream and be retried. The stream's duplicate window must be twice as long.
    pub queue_age: Duration,
    /// Identifies this run of the node: no other node or run has the same id.
    pub node: NodeId,
    /// The node's description for other nodes. The engine fills in the values that change at run time.
    pub about: About,
    /// The sources of live streams, for the node's heartbeats; `None` if those of another stream contain them.
    pub sources: Option<Arc<SourceBoard>>,
}

/// Credentials with which a node connects to NATS.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// The credentials in the server's URL, or none.
    Nobody,
    /// An access token.
    Token(String),
    /// A user name and a password.
    User(String, String),
    /// A credentials file, which contains a token and a key.
    Credentials(PathBuf),
}

/// Shows the kind of the login and the user name, never a secret.
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

/// Receives the engine's events. Its methods are called on the engine's thread, and must not block.
pub trait Outlet: Send + Sync {
    /// A batch of cluster events. The receiver calls [`NatsEngine::taken`] once for each batch that it has processed.
    fn on_events(&self, news: Vec<ClusterEvent>);

    /// A note for the operator.
    fn note(&self, note: Note);

    /// Monotonic time since an arbitrary moment.
    fn now(&self) -> Duration;
}

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A problem has begun.
    Trouble(String),
    /// The problem is over.
    Relief(String),
}

/// A node's connection to the cluster's stream.
pub struct NatsEngine {
    /// Epoch of the stream.
    pub epoch: Epoch,
    /// Offset of the stream's last message when the node joined.
    pub newest: u64,
    commands: mpsc::UnboundedSender<EngineCommand>,
    permits: Arc<Semaphore>,
    begins: Mutex<Option<oneshot::Sender<Arc<dyn Outlet>>>>,
    nodes: Arc<Mutex<Vec<Node>>>,
}

/// A command to the engine's thread.
enum EngineCommand {
    Errand(ClusterCommand),
    /// Announces that this node leaves, then drops the sender.
    Leave(std::sync::mpsc::Sender<()>),
}

impl NatsEngine {
    /// Joins the stream, and creates it if it does not exist. Blocks for at most 30 s.
    ///
    /// # Errors
    /// NATS cannot be reached or rejects the login, or its stream does not fit.
    pub fn join(cluster: ClusterConfig) -> Result<Self, JoinError> {
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
        let (epoch, newest) = told.recv().map_err(|_| JoinError::Ended)??;
        Ok(Self {
            epoch,
            newest,
            commands: errands,
            permits: places,
            begins: Mutex::new(Some(begins)),
            nodes,
        })
    }

    /// Starts following the stream, from the offset at which the node joined. Later calls do nothing.
    pub fn begin(&self, outlet: Arc<dyn Outlet>) {
        let begins = locked(&self.begins).take();
        if let Some(begins) = begins {
            let _gone = begins.send(outlet);
        }
    }

    /// Queues a command of the sequencer.
    pub fn run(&self, errand: ClusterCommand) {
        let _gone = self.commands.send(EngineCommand::Errand(errand));
    }

    /// The nodes of the cluster as last seen; empty before [`NatsEngine::begin`].
    pub fn nodes(&self) -> Vec<Node> {
        locked(&self.nodes).clone()
    }

    /// Announces to the other nodes that this node leaves, so that they need not wait for its timeout. Blocks until the
    /// announcement is sent, at most 1 s.
    pub fn leave(&self) {
        let (tell, told) = std::sync::mpsc::channel();
        let _gone = self.commands.send(EngineCommand::Leave(tell));
        let _said = told.recv_timeout(FAREWELL);
    }

    /// Marks a batch of events as processed, which permits another one.
    pub fn taken(&self) {
        self.permits.add_permits(1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection, and the stream on it.
struct Joined {
    jetstream: jetstream::Context,
    stream: Stream,
    events: mpsc::UnboundedReceiver<Event>,
    epoch: Epoch,
    newest: u64,
}

async fn join(cluster: &ClusterConfig) -> Result<Joined, JoinError> {
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
        _ => JoinError::Unreachable(servers.clone(), error),
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
            Err(error) => return Err(JoinError::Stream(name.clone(), error)),
        }
    };
    let info = stream.cached_info();
    fits(&info.config, cluster).map_err(|misfit| JoinError::Unfit(name.clone(), misfit))?;
    let (epoch, newest) = (epoch(info), info.state.last_sequence);
    Ok(Joined { epoch, newest, jetstream, stream, events })
}

/// Whether NATS may succeed in a moment: servers that have just started have no leader yet, or some of them are missing.
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

/// Servers without the part before an `@`, which may contain a password.
fn shown(servers: &[String]) -> String {
    let plain = |server: &String| match server.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default()),
        None => server.rsplit('@').next().unwrap_or_default().to_owned(),
    };
    servers.iter().map(plain).collect::<Vec<_>>().join(", ")
}

/// The configuration with which the stream is created.
fn shape(cluster: &ClusterConfig) -> Config {
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
        // NATS rejects a window longer than the maximum age.
        duplicate_window: cluster.remembered.max(2 * cluster.queue_age).min(cluster.age),
        allow_direct: true,
        ..Config::default()
    }
}

/// Checks that a resume can be complete on a stream: the stream contains all messages, and drops only the oldest. Its duplicate
/// window must cover `queue_age`.
fn fits(config: &Config, cluster: &ClusterConfig) -> Result<(), Misfit> {
    let wanted = format!("{}.>", prefix(&cluster.stream));
    if !config.subjects.contains(&wanted) {
        return Err(Misfit::Subjects(wanted));
    }
    if config.retention != RetentionPolicy::Limits {
        return Err(Misfit::Retention);
    }
    if config.max_messages_per_subject > 0 {
        return Err(Misfit::SubjectLimit);
    }
    let (window, required) = (config.duplicate_window, 2 * cluster.queue_age);
    if window < required {
        return Err(Misfit::Window { stream: cluster.stream.clone(), window, required });
    }
    Ok(())
}

fn prefix(stream: &str) -> String {
    format!("{stream}.m")
}

/// The epoch of a stream: a hash (FNV-1a) of its name and creation time. All nodes compute the same epoch, and a recreated
/// stream has another one.
fn epoch(info: &Info) -> Epoch {
    let created = info.created.unix_timestamp_nanos().to_le_bytes();
    let bytes = info.config.name.bytes().chain([0]).chain(created);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // Epoch 0 marks ids of other origin.
    Epoch(hash.max(1))
}

/// The engine's side of the stream: the state that its tasks share.
struct Side {
    cluster: ClusterConfig,
    prefix: String,
    jetstream: jetstream::Context,
    stream: Stream,
    epoch: Epoch,
    outlet: Arc<dyn Outlet>,
    places: Arc<Semaphore>,
    reads: Semaphore,
    histories: Histories,
    /// Notified on every connect: requests sent before a reconnect may be lost.
    back: Notify,
    /// The offset up to which the stream has been followed.
    offset: AtomicU64,
    /// The nodes as last seen.
    nodes: Arc<Mutex<Vec<Node>>>,
}

/// Runs commands until their queue closes, and follows the stream meanwhile.
async fn serve(
    cluster: ClusterConfig,
    joined: Joined,
    outlet: Arc<dyn Outlet>,
    places: Arc<Semaphore>,
    nodes: Arc<Mutex<Vec<Node>>>,
    mut errands: mpsc::UnboundedReceiver<EngineCommand>,
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
            EngineCommand::Errand(ClusterCommand::Publish { ticket, draft, number }) => {
                let id = match (&draft.key, number) {
                    (Some(key), _) => Some(encoding::id(&draft.channel, key)),
                    (None, Some(number)) => Some(encoding::id_of_queued(side.cluster.node, number)),
                    (None, None) => None,
                };
                let tell = tell.clone();
                let placed = move |fate| drop(tell.send(ClusterEvent::Placed { ticket, fate }));
                side.publish(draft, id, placed).await;
            }
            EngineCommand::Errand(ClusterCommand::Announce(announcement)) => {
                let (draft, id) = (announcement.draft(), encoding::id_of(&announcement));
                let tell = tell.clone();
                let placed = move |fate| drop(tell.send(ClusterEvent::Announced { announcement, fate }));
                side.publish(draft, id, placed).await;
            }
            EngineCommand::Errand(ClusterCommand::Read { ticket, channel, to, most }) => {
                drop(wish.send(FollowCommand::Read { ticket, channel, to, most }));
            }
            EngineCommand::Errand(ClusterCommand::Recall { recall, channels, after, to }) => {
                tokio::spawn(Arc::clone(&side).recall(recall, channels, after, to, tell.clone()));
            }
            EngineCommand::Errand(ClusterCommand::Forget { ticket, channel }) => {
                tokio::spawn(Arc::clone(&side).forget(ticket, channel, tell.clone()));
            }
            EngineCommand::Errand(ClusterCommand::Release { channel }) => {
                drop(wish.send(FollowCommand::Release { channel }));
            }
            EngineCommand::Errand(ClusterCommand::Tell(one)) => drop(change.send(PeerMessage::Change(one))),
            EngineCommand::Leave(ended) => drop(change.send(PeerMessage::Leave(ended))),
        }
    }
}

/// A message for the other nodes.
enum PeerMessage {
    Change(AudienceChange),
    Leave(std::sync::mpsc::Sender<()>),
}

impl Side {
    /// Passes events to the workers, after a permit is available.
    async fn bring(&self, news: Vec<ClusterEvent>) {
        if let Ok(place) = self.places.acquire().await {
            place.forget();
            self.outlet.on_events(news);
        }
    }

    /// Passes responses to the workers, in batches.
    async fn answer(self: Arc<Self>, mut told: mpsc::UnboundedReceiver<ClusterEvent>) {
        let mut news = Vec::new();
        while told.recv_many(&mut news, BATCH).await > 0 {
            self.bring(std::mem::take(&mut news)).await;
        }
    }

    // ── The connection ──────────────────────────────────────────────────────────────────────────────────────────

    /// Reports when NATS becomes unreachable. [`Follower`] reports `ClusterEvent::Up` once it follows the stream again.
    async fn watch(self: Arc<Self>, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut up = true;
        while let Some(event) = events.recv().await {
            match event {
                Event::Disconnected | Event::Closed if up => {
                    up = false;
                    self.bring(vec![ClusterEvent::Down]).await;
                    let text = "the cluster's NATS is unreachable: publishes are rejected, or queued in cluster.queue";
                    self.outlet.note(Note::Trouble(text.into()));
                }
                Event::Connected => {
                    if !std::mem::replace(&mut up, true) {
                        self.outlet.note(Note::Relief("the cluster's NATS is reachable again".into()));
                    }
                    self.back.notify_waiters();
                }
                Event::ServerError(error) => {
                    self.outlet.note(Note::Trouble(format!("the cluster's NATS reports: {error}")));
                }
                _ => {}
            }
        }
    }

    /// Waits for a reconnect, at most [`PAUSE`].
    async fn pause(&self) {
        let _early = timeout(PAUSE, self.back.notified()).await;
    }

    // ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Loads a channel's history, and retries until that succeeds. A reconnect starts the next attempt at once.
    async fn read(
        self: Arc<Self>,
        ticket: PublishTicket,
        channel: Name,
        to: u64,
        most: usize,
        tell: mpsc::UnboundedSender<ClusterEvent>,
    ) {
        let subject = encoding::subject(&self.prefix, &channel);
        let Ok(_one_of_few) = self.reads.acquire().await else { return };
        loop {
            let read = tokio::select! {
                read = channel_history::read(&self.stream, &channel, &subject, to, most) => read,
                () = self.back.notified() => continue,
            };
            match read {
                Ok(channel_history::Past { lost_to, messages }) => {
                    let _gone = tell.send(ClusterEvent::Past { ticket, channel, to, lost_to, messages });
                    return;
                }
                Err(_) => self.pause().await,
            }
        }
    }

    /// Serves one backfill. If it fails or times out the result is empty, and the hub requests it again.
    async fn recall(
        self: Arc<Self>,
        recall: Recall,
        channels: Vec<Name>,
        after: u64,
        to: u64,
        tell: mpsc::UnboundedSender<ClusterEvent>,
    ) {
        let read = self.histories.run(&self.stream, &self.prefix, &channels, after, to);
        let run = match timeout(ANSWER_TIME, read).await {
            Ok(Ok(run)) => run,
            Ok(Err(_)) | Err(_) => {
                self.pause().await;
                Recalled::default()
            }
        };
        let _gone = tell.send(ClusterEvent::Recalled { recall, run });
    }

    // ── The other nodes ─────────────────────────────────────────────────────────────────────────────────────────

    /// Exchanges heartbeats with the other nodes: presence of this node and its subscribers, and theirs.
    async fn keep_company(self: Arc<Self>, mut changes: mpsc::UnboundedReceiver<PeerMessage>) {
        let subjects = format!("{}.n", self.cluster.stream);
        let client = self.jetstream.client();
        // The client resubscribes after every reconnect. An error means that the client has ended.
        let Ok(mut heard) = client.subscribe(format!("{subjects}.*")).await else { return };
        let ours = format!("{subjects}.{:016x}", self.cluster.node.0);
        let sources = self.cluster.sources.as_deref();
        if let Some(sources) = sources {
            sources.set_here(self.cluster.node);
        }
        let mut peers = Peers::new(self.cluster.node, Duration::ZERO);
        // Time advances by ticks only, so a stalled process expires no other node.
        let mut now = Duration::ZERO;
        let mut ticks = interval(GATHERING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut news = Vec::new();
            tokio::select! {
                said = changes.recv() => match said {
                    Some(PeerMessage::Change(change)) => peers.record_change(change),
                    Some(PeerMessage::Leave(_ended)) => {
                        // Pending changes go first: other nodes announce the members of this node as gone, and need all names.
                        let mut beats = peers.beats(now, &self.about());
                        beats.push(peers.last_heartbeat(&self.about()));
                        return self.say(&ours, beats).await;
                    }
                    None => return,
                },
                beat = heard.next() => {
                    let Some(beat) = beat else { return };
                    let node = beat.subject.rsplit('.').next().and_then(|node| u64::from_str_radix(node, 16).ok());
                    // Other payloads on these subjects are skipped.
                    if let (Some(node), Ok(read)) = (node, serde_json::from_slice::<Heartbeat>(&beat.payload)) {
                        if let (Some(sources), Some(announcement)) = (sources, &read.sources) {
                            sources.hears(NodeId(node), &read.about.name, announcement.clone());
                        }
                        news.extend(peers.hears(now, NodeId(node), read));
                    }
                }
                _ = ticks.tick() => {
                    now += GATHERING;
                    news = peers.buries();
                    // A heartbeat sent while disconnected would be lost, and every node would request the full state.
                    if client.connection_state() == State::Connected {
                        if sources.is_some_and(SourceBoard::take_change) {
                            peers.hasten();
                        }
                        let mut beats = peers.beats(now, &self.about());
                        if let Some(first) = beats.first_mut() {
                            first.sources = sources.and_then(SourceBoard::announcement);
                        }
                        self.say(&ours, beats).await;
                    }
                    *locked(&self.nodes) = peers.nodes(now, &self.about());
                }
            }
            for one in &news {
                if let (ClusterEvent::Gone { node }, Some(sources)) = (one, sources) {
                    sources.forget(*node);
                }
            }
            if !news.is_empty() {
                self.bring(news).await;
            }
        }
    }

    /// Publishes heartbeats. A node that misses one requests the full state.
    async fn say(&self, subject: &str, beats: impl IntoIterator<Item = Heartbeat>) {
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

    /// Publishes a draft under a message id, or under a new one if `id` is `None`. `record_change` receives the outcome later.
    async fn publish(
        self: &Arc<Self>,
        draft: Draft,
        id: Option<String>,
        tell: impl FnOnce(Result<Placed, PublishError>) + Send + 'static,
    ) {
        let subject = encoding::subject(&self.prefix, &draft.channel);
        let id = id.unwrap_or_else(|| self.jetstream.client().new_inbox());
        // The first attempts are sent in order; retries may be reordered.
        let first = timeout(
            self.cluster.patience,
            self.jetstream.send_publish(subject.clone(), encoding::written(&draft, &id)),
        );
        let first = first
            .await
            .map_err(|_| PublishError::Away)
            .and_then(|sent| sent.map_err(|error| self.refusal(&error, &draft)));
        let side = Arc::clone(self);
        tokio::spawn(async move {
            let landed = async {
                match first {
                    Ok(first) => side.land(first, subject, &id, &draft).await,
                    Err(refusal) => Err(refusal),
                }
            };
            tell(timeout(side.cluster.patience, landed).await.unwrap_or(Err(PublishError::Unanswered)));
        });
    }

    /// Waits for the offset of a message. After an error or a reconnect the message is sent again under the same id.
    async fn land(
        &self,
        first: PublishAckFuture,
        subject: String,
        id: &str,
        draft: &Draft,
    ) -> Result<Placed, PublishError> {
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
                    PublishErrorKind::TimedOut => return Err(PublishError::Unanswered),
                    _ if is_passing(&error) => self.pause().await,
                    _ => return Err(self.refusal(&error, draft)),
                },
                None => {}
            }
            let again = self.jetstream.send_publish(subject.clone(), encoding::written(draft, id)).await;
            sent = Some(again.map_err(|error| self.refusal(&error, draft))?);
        }
    }

    /// Compares a draft with the message published before under its id. If that message is no longer stored, they count as
    /// equal.
    async fn same(&self, place: Placed, draft: &Draft) -> Result<Placed, PublishError> {
        let Ok(found) = self.stream.get_raw_message(place.offset).await else { return Ok(place) };
        let other = encoding::read(draft.channel.clone(), Some(&found.headers), &found.payload);
        let same = (&other.data, &other.content_type, &other.event)
            == (&draft.data, &draft.content_type, &draft.event);
        // A retry by this node is not a repetition; a key that a publisher reuses is one.
        let place = Placed { repeated: draft.key.is_some(), ..place };
        if same { Ok(place) } else { Err(PublishError::KeyMismatch) }
    }

    /// Maps a publish error of NATS to a rejection.
    fn refusal(&self, error: &jetstream::context::PublishError, draft: &Draft) -> PublishError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                let most = self.jetstream.client().server_info().max_payload;
                PublishError::TooLarge { bytes: draft.data.len(), most }
            }
            PublishErrorKind::TimedOut => PublishError::Unanswered,
            PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => PublishError::Away,
            _ => match code(error) {
                Some(
                    ErrorCode::STREAM_STORE_FAILED
                    | ErrorCode::INSUFFICIENT_RESOURCES
                    | ErrorCode::STORAGE_RESOURCES_EXCEEDED,
                ) => PublishError::NoSpace,
                _ => {
                    let text = format!("the cluster rejected a message: {}", causes(error));
                    self.outlet.note(Note::Trouble(text));
                    PublishError::NotTaken
                }
            },
        }
    }
}

/// The error code with which JetStream rejects a publish, if there is one.
fn code(error: &jetstream::context::PublishError) -> Option<ErrorCode> {
    let said = error.source()?.downcast_ref::<jetstream::Error>()?;
    Some(said.error_code())
}

/// Whether a rejection is temporary and unrelated to the message. A publish with the same id, or a tombstone of the same
/// channel, may have no offset yet, which takes long while most servers are down. Or the stream has no leader at the moment.
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

/// A type without values.
enum Never {}

/// Converts a message of NATS, at its offset in the stream.
fn message(channel: Name, one: &jetstream::Message, place: &Place<'_>) -> Arc<Message> {
    let unix_ms = u64::try_from(place.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    let draft = encoding::read(channel, one.headers.as_ref(), &one.payload);
    let official = encoding::is_official(one.headers.as_ref());
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
