//! The node's part in a cluster, for the first worker. Commands go to the engine of their stream; its events arrive as
//! messages.
//!
//! ```text
//!  the first worker ── ClusterCommand ──► ClusterLink ──► a NatsEngine for each stream (a thread and a connection) ──► NATS
//!                   ◄─ PushMessage::News ── EventForwarder ◄─┘
//! ```
//! A build without the feature `nats` has the same names without an implementation.

use std::sync::Arc;

use encke_broker::SourceBoard;
use encke_hub::{ClusterCommand, Epoch, Rules};
#[cfg(feature = "nats")]
use encke_stats::Family;
use encke_stats::{Row, Source};
use serde_json::Value;

use crate::error::PushError;
use crate::settings::cluster::ClusterSettings;
use encke_server::ResidentMailbox;

#[cfg(feature = "nats")]
pub(crate) use with::ClusterLink;
#[cfg(not(feature = "nats"))]
pub(crate) use without::ClusterLink;

/// The key of the cluster in the status.
const NAME: &str = "cluster";

/// The source of a node outside a cluster.
pub(crate) struct NoCluster;

impl Source for NoCluster {
    fn name(&self) -> &'static str {
        NAME
    }

    fn status(&self) -> Option<Value> {
        Some(Value::Null)
    }
}

#[cfg(feature = "nats")]
mod with {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use encke_broker::nats::{self, About, Login, NatsEngine, Node, Note, Outlet};
    use encke_hub::{Backlog, ClusterEvent, NodeId, PublishAck, Queueing};
    use encke_io::clock::Clock;
    use encke_io::host;
    use encke_stats::{Cell, Counter};
    use serde_json::json;

    use super::{
        Arc, ClusterCommand, ClusterSettings, Epoch, Family, NAME, PushError, ResidentMailbox, Row, Rules,
        Source, SourceBoard, Value,
    };
    use crate::push_worker::PushMessage;
    use crate::settings::cluster::{StreamSettings, StreamStorage};
    use encke_settings::Level;
    use encke_settings::notice;

    /// Silence after which a node is shown as silent: two heartbeats are missing.
    const SILENT: Duration = Duration::from_secs(2);

    /// A node's part in a cluster.
    pub struct ClusterLink {
        /// By stream. The first stream's nodes count as the nodes of the cluster.
        lanes: Vec<ClusterLane>,
        /// The queue limits of each stream.
        queueing: Queueing,
        /// The nodes with the sources of live streams.
        sources: Arc<SourceBoard>,
    }

    /// A node's part in one stream.
    struct ClusterLane {
        engine: NatsEngine,
        stream: String,
        figures: Arc<ClusterFigures>,
    }

    impl ClusterLink {
        /// Joins the cluster. Blocks until NATS responds.
        ///
        /// # Errors
        /// A secret cannot be read, or NATS cannot be joined ([`nats::JoinError`]).
        pub fn join(settings: &ClusterSettings, rules: &Rules) -> Result<Self, PushError> {
            let login = match (&settings.credentials, &settings.token, &settings.user, &settings.password) {
                (Some(file), ..) => Login::Credentials(file.clone()),
                (None, Some(token), ..) => Login::Token(token.reveal()?),
                (None, None, Some(user), Some(password)) => Login::User(user.clone(), password.reveal()?),
                _ => Login::Nobody,
            };
            let patience = settings.publish_time.duration();
            let queueing = settings.queueing();
            let mut id = [0; 8];
            host::random(&mut id)?;
            let name = settings.name.clone().or_else(host::name).unwrap_or_else(|| "a node".into());
            let about = About {
                name: name.into(),
                version: env!("CARGO_PKG_VERSION").into(),
                started_s: Clock::new().now().unix_s(),
                ..About::default()
            };
            let node = NodeId(u64::from_le_bytes(id));
            let sources = Arc::<SourceBoard>::default();
            let lane = |(place, stream): (usize, StreamSettings)| {
                let cluster = nats::ClusterConfig {
                    servers: settings.nats.clone(),
                    login: login.clone(),
                    authority: settings.ca.clone(),
                    stream: stream.name.clone(),
                    replicas: stream.replicas.unwrap_or(settings.replicas).get().into(),
                    memory: stream.storage.unwrap_or(settings.storage) == StreamStorage::Memory,
                    age: stream.age.unwrap_or(settings.age).duration(),
                    bytes: stream.bytes.unwrap_or(settings.bytes).bytes(),
                    // Within this window NATS recognizes a publish sent again, by a client or by this node, by its name.
                    remembered: Duration::from_millis(rules.key_window_ms).max(patience.saturating_mul(2)),
                    patience,
                    filters: settings.filters.get().into(),
                    linger: settings.linger.duration(),
                    queue_age: Duration::from_millis(queueing.age_ms),
                    node,
                    about: about.clone(),
                    sources: (place == 0).then(|| Arc::clone(&sources)),
                };
                let engine = NatsEngine::join(cluster)?;
                Ok(ClusterLane { engine, stream: stream.name, figures: Arc::default() })
            };
            let first = StreamSettings { name: settings.stream.clone(), ..StreamSettings::default() };
            let streams = std::iter::once(first).chain(settings.streams.iter().cloned());
            let lanes = streams.enumerate().map(lane).collect::<Result<Vec<_>, PushError>>()?;
            // The streams share the limit equally.
            let queueing = Queueing { bytes: queueing.bytes / lanes.len() as u64, ..queueing };
            Ok(Self { lanes, queueing, sources })
        }

        /// Returns the sources of live streams on all nodes.
        pub(crate) fn sources(&self) -> Arc<SourceBoard> {
            Arc::clone(&self.sources)
        }

        /// Returns the epochs of the streams.
        pub fn epochs(&self) -> Arc<[Epoch]> {
            self.lanes.iter().map(|lane| lane.engine.epoch).collect()
        }

        /// Returns the newest offset of a stream when it was joined.
        pub(crate) fn newest(&self, stream: usize) -> u64 {
            self.lanes.get(stream).map_or(0, |lane| lane.engine.newest)
        }

        /// Returns the queue limits of each stream.
        pub(crate) fn queueing(&self) -> Queueing {
            self.queueing
        }

        /// Publishes a stream's backlog and newest offset as metrics. Logs the first dropped message, and no other until the queue
        /// is empty.
        pub(crate) fn show(&self, stream: usize, backlog: Backlog, newest: u64) {
            let Backlog { messages, bytes, dropped } = backlog;
            let Some(ClusterLane { figures, .. }) = self.lanes.get(stream) else { return };
            figures.newest.store(newest, Ordering::Relaxed);
            figures.waiting.store(messages as u64, Ordering::Relaxed);
            figures.waiting_bytes.store(bytes, Ordering::Relaxed);
            let before = figures.dropped.swap(dropped, Ordering::Relaxed);
            if dropped > before && !figures.complained.swap(true, Ordering::Relaxed) {
                let text = "dropping queued messages: older than cluster.queue_age, or rejected by the cluster; encke_cluster_queue_dropped_total counts them";
                notice::report(Level::Error, text);
            }
            if messages == 0 {
                figures.complained.store(false, Ordering::Relaxed);
            }
        }

        /// Sends events to the first worker from now on.
        pub(crate) fn begin(&self, first: &ResidentMailbox) {
            for (stream, ClusterLane { engine, figures, .. }) in self.lanes.iter().enumerate() {
                figures.up.store(true, Ordering::Relaxed);
                let (first, figures) = (first.clone(), Arc::clone(figures));
                engine.begin(Arc::new(EventForwarder { stream, first, figures }));
            }
        }

        pub(crate) fn run(&self, stream: usize, errand: ClusterCommand) {
            if let Some(lane) = self.lanes.get(stream) {
                lane.engine.run(errand);
            }
        }

        /// Reports that a message with a stream's events was processed.
        pub(crate) fn taken(&self, stream: usize) {
            if let Some(lane) = self.lanes.get(stream) {
                lane.engine.taken();
            }
        }

        /// Announces the end of this node. Messages still queued are lost.
        pub(crate) fn leave(&self, waiting: usize) {
            if waiting > 0 {
                let text = format!("{waiting} messages queued for the cluster are lost with this node");
                notice::report(Level::Error, &text);
            }
            self.lanes.iter().for_each(|lane| lane.engine.leave());
        }

        /// Returns the nodes of the cluster as this one sees them.
        fn nodes(&self) -> Vec<Node> {
            self.lanes.first().map_or_else(Vec::new, |lane| lane.engine.nodes())
        }

        /// Returns the rows of the list of streams. Absent figures are unknown.
        pub(crate) fn stream_rows(&self) -> Vec<Row> {
            let row = |lane: &ClusterLane| {
                let figures = &lane.figures;
                let count = |number: &AtomicU64| Cell::Count(number.load(Ordering::Relaxed));
                let newest = figures.newest.load(Ordering::Relaxed);
                let farthest =
                    lane.engine.nodes().iter().map(|node| node.about.offset).max().unwrap_or(newest);
                Row(vec![
                    ("stream", lane.stream.clone().into()),
                    ("state", if lane.is_up() { "up" } else { "unreachable" }.into()),
                    ("epoch", lane.engine.epoch.to_string().into()),
                    ("sequence", newest.into()),
                    ("lag", farthest.saturating_sub(newest).into()),
                    ("messages", figures.messages.value().into()),
                    ("stored", figures.stored.value().into()),
                    ("repeated", figures.repeated.value().into()),
                    ("refused", figures.refused.value().into()),
                    ("queue", count(&figures.waiting)),
                    ("queue_bytes", count(&figures.waiting_bytes)),
                    ("dropped", count(&figures.dropped)),
                    ("reconnects", figures.reconnects.value().into()),
                ])
            };
            self.lanes.iter().map(row).collect()
        }

        /// Returns the rows of the list of nodes: the facts of the status.
        pub(crate) fn node_rows(&self, now_s: u64) -> Vec<Row> {
            let is_up = self.lanes.first().is_some_and(ClusterLane::is_up);
            let nodes = self.nodes();
            let newest = nodes.iter().map(|node| node.about.offset).max().unwrap_or(0);
            let row = |Node { id: NodeId(id), about, silent, here }: &Node| {
                let state = match (here, is_up) {
                    (true, true) => "this node",
                    (true, false) => "this node, cut off",
                    // The node hears nothing at present.
                    (false, false) => "last known",
                    (false, true) if *silent >= SILENT => "silent",
                    (false, true) => "up",
                };
                Row(vec![
                    ("node", about.name.to_string().into()),
                    ("state", state.into()),
                    ("version", about.version.to_string().into()),
                    ("uptime_s", now_s.saturating_sub(about.started_s).into()),
                    ("sequence", about.offset.into()),
                    ("lag", newest.saturating_sub(about.offset).into()),
                    ("channels", about.channels.into()),
                    ("subscriptions", about.subscriptions.into()),
                    ("silent_s", silent.as_secs_f64().into()),
                    ("id", format!("{id:016x}").into()),
                ])
            };
            nodes.iter().map(row).collect()
        }

        /// Returns whether all streams can be reached.
        pub(crate) fn is_up(&self) -> bool {
            self.lanes.iter().all(ClusterLane::is_up)
        }
    }

    impl Source for ClusterLink {
        fn name(&self) -> &'static str {
            NAME
        }

        /// The nodes as this one sees them.
        fn status(&self) -> Option<Value> {
            let nodes = self.nodes();
            let newest = nodes.iter().map(|node| node.about.offset).max().unwrap_or(0);
            let one = |Node { id: NodeId(id), about, silent, here }: &Node| {
                json!({
                    "id": format!("{id:016x}"),
                    "name": about.name,
                    "here": here,
                    "version": about.version,
                    "started_s": about.started_s,
                    "offset": about.offset,
                    "behind": newest - about.offset,
                    "channels": about.channels,
                    "subscriptions": about.subscriptions,
                    "silent_ms": silent.as_millis() as u64,
                })
            };
            let stream = |lane: &ClusterLane| json!({ "name": lane.stream, "up": lane.is_up() });
            Some(json!({
                "schema": 1,
                "stream": self.lanes.first().map(|lane| &lane.stream),
                "streams": self.lanes.iter().map(stream).collect::<Vec<_>>(),
                "up": self.is_up(),
                "nodes": nodes.iter().map(one).collect::<Vec<_>>(),
            }))
        }

        fn families(&self) -> Vec<Family> {
            let sum = |counter: fn(&ClusterFigures) -> &Counter| {
                self.lanes.iter().map(|lane| counter(&lane.figures).value()).sum::<u64>()
            };
            let waits = |number: fn(&ClusterFigures) -> &AtomicU64| {
                self.lanes.iter().map(|lane| number(&lane.figures).load(Ordering::Relaxed)).sum::<u64>()
            };
            vec![
                Family::gauge("encke_cluster_up", "Whether the streams of the cluster are reachable.")
                    .value(u64::from(self.is_up())),
                Family::gauge(
                    "encke_cluster_nodes",
                    "Nodes of the cluster whose heartbeats arrive, including this one.",
                )
                .value(self.nodes().len() as u64),
                Family::counter("encke_cluster_messages_total", "Messages received from the streams.")
                    .value(sum(|figures| &figures.messages)),
                Family::counter(
                    "encke_cluster_publishes_total",
                    "Messages published to the streams, by outcome.",
                )
                .with(&[("outcome", "stored")], sum(|figures| &figures.stored))
                .with(&[("outcome", "repeated")], sum(|figures| &figures.repeated))
                .with(&[("outcome", "refused")], sum(|figures| &figures.refused)),
                Family::gauge(
                    "encke_cluster_queue_messages",
                    "Messages queued for the streams of the cluster.",
                )
                .value(waits(|figures| &figures.waiting)),
                Family::gauge("encke_cluster_queue_bytes", "Memory of the queued messages.")
                    .value(waits(|figures| &figures.waiting_bytes)),
                Family::counter(
                    "encke_cluster_queue_dropped_total",
                    "Messages accepted with a 202 and dropped later: too old, or rejected by the stream.",
                )
                .value(waits(|figures| &figures.dropped)),
            ]
        }
    }

    impl ClusterLane {
        fn is_up(&self) -> bool {
            self.figures.up.load(Ordering::Relaxed)
        }
    }

    /// The figures of a stream. Those of its events are counted on the engine's thread alone.
    #[derive(Default)]
    struct ClusterFigures {
        up: AtomicBool,
        messages: Counter,
        stored: Counter,
        repeated: Counter,
        refused: Counter,
        /// Number of times that the stream was reachable again.
        reconnects: Counter,
        /// The newest offset that this node has followed.
        newest: AtomicU64,
        // The first worker updates the figures of the queue.
        waiting: AtomicU64,
        waiting_bytes: AtomicU64,
        dropped: AtomicU64,
        complained: AtomicBool,
    }

    /// Delivers a stream's events to the first worker.
    struct EventForwarder {
        stream: usize,
        first: ResidentMailbox,
        figures: Arc<ClusterFigures>,
    }

    impl Outlet for EventForwarder {
        fn on_events(&self, news: Vec<ClusterEvent>) {
            let figures = &self.figures;
            for one in &news {
                match one {
                    ClusterEvent::Up => {
                        if !figures.up.swap(true, Ordering::Relaxed) {
                            figures.reconnects.increment();
                        }
                    }
                    ClusterEvent::Down => figures.up.store(false, Ordering::Relaxed),
                    ClusterEvent::Messages { messages, .. } => figures.messages.add(messages.len() as u64),
                    ClusterEvent::Placed { fate: Ok(PublishAck { repeated: false, .. }), .. } => {
                        figures.stored.increment();
                    }
                    ClusterEvent::Placed { fate: Ok(_), .. } => figures.repeated.increment(),
                    ClusterEvent::Placed { fate: Err(_), .. } => figures.refused.increment(),
                    ClusterEvent::Lost { .. }
                    | ClusterEvent::Past { .. }
                    | ClusterEvent::Recalled { .. }
                    | ClusterEvent::Told { .. }
                    | ClusterEvent::Gone { .. }
                    | ClusterEvent::Announced { .. } => {}
                }
            }
            self.first.send(PushMessage::News { stream: self.stream, news });
        }

        fn note(&self, note: Note) {
            match note {
                Note::Trouble(text) => notice::report(Level::Error, &text),
                Note::Relief(text) => notice::report(Level::Info, &text),
            }
        }

        fn now(&self) -> Duration {
            Duration::from_nanos(Clock::new().now().mono_ns)
        }
    }
}

#[cfg(not(feature = "nats"))]
mod without {
    use std::convert::Infallible;

    use encke_hub::{Backlog, Queueing};

    use super::{
        Arc, ClusterCommand, ClusterSettings, Epoch, PushError, ResidentMailbox, Row, Rules, Source,
        SourceBoard,
    };

    /// A node's part in a cluster. This build has none.
    pub struct ClusterLink(Infallible);

    impl ClusterLink {
        /// Fails: this build lacks NATS.
        ///
        /// # Errors
        /// Always.
        pub fn join(_: &ClusterSettings, _: &Rules) -> Result<Self, PushError> {
            Err(PushError::NoNats)
        }

        pub fn epochs(&self) -> Arc<[Epoch]> {
            match self.0 {}
        }

        pub(crate) fn newest(&self, _: usize) -> u64 {
            match self.0 {}
        }

        pub(crate) fn sources(&self) -> Arc<SourceBoard> {
            match self.0 {}
        }

        pub(crate) fn begin(&self, _: &ResidentMailbox) {
            match self.0 {}
        }

        pub(crate) fn run(&self, _: usize, _: ClusterCommand) {
            match self.0 {}
        }

        pub(crate) fn taken(&self, _: usize) {
            match self.0 {}
        }

        pub(crate) fn queueing(&self) -> Queueing {
            match self.0 {}
        }

        pub(crate) fn stream_rows(&self) -> Vec<Row> {
            match self.0 {}
        }

        pub(crate) fn node_rows(&self, _: u64) -> Vec<Row> {
            match self.0 {}
        }

        pub(crate) fn show(&self, _: usize, _: Backlog, _: u64) {
            match self.0 {}
        }

        pub(crate) fn leave(&self, _: usize) {
            match self.0 {}
        }

        pub(crate) fn is_up(&self) -> bool {
            match self.0 {}
        }
    }

    impl Source for ClusterLink {
        fn name(&self) -> &'static str {
            match self.0 {}
        }
    }
}
