//! The node's part in a cluster, as the first worker uses it: errands go to the engine, and its news come as letters.
//!
//! ```text
//!  the first worker ── Errand ──► Cluster ──► Engine (a thread of its own) ──► NATS
//!                   ◄─ Letter::News ── Post ◄─┘
//! ```
//! A build without the feature `nats` has the same names, and nothing behind them.

use std::io;
use std::sync::Arc;

use encke_hub::{Epoch, Errand, Rules};
use encke_stats::Family;
use serde_json::Value;

use crate::exchange::Link;
use crate::settings::ClusterSettings;

#[cfg(feature = "nats")]
pub(crate) use with::Cluster;
#[cfg(not(feature = "nats"))]
pub(crate) use without::Cluster;

#[cfg(feature = "nats")]
mod with {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use encke_broker::nats::{self, About, Engine, Login, Node, Note, Outlet};
    use encke_hub::{Backlog, News, NodeId, Place, Queueing};
    use encke_io::clock::Clock;
    use encke_io::host;
    use encke_stats::Counter;
    use serde_json::json;

    use super::{Arc, ClusterSettings, Epoch, Errand, Family, Link, Rules, Value, io};
    use crate::errors;
    use crate::exchange::Message;
    use crate::push::room::Letter;
    use crate::settings::{Level, Secret, StreamStorage};

    /// A node's part in a cluster.
    pub(crate) struct Cluster {
        engine: Engine,
        stream: String,
        queueing: Queueing,
        figures: Arc<Figures>,
    }

    impl Cluster {
        /// Joins the cluster. It waits for NATS.
        ///
        /// # Errors
        /// A secret cannot be read; or see [`nats::JoinError`].
        pub(crate) fn join(settings: &ClusterSettings, rules: &Rules) -> io::Result<Self> {
            let reveal = |secret: &Secret| secret.reveal().map_err(io::Error::other);
            let login = match (&settings.credentials, &settings.token, &settings.user, &settings.password) {
                (Some(file), ..) => Login::Credentials(file.clone()),
                (None, Some(token), ..) => Login::Token(reveal(token)?),
                (None, None, Some(user), Some(password)) => Login::User(user.clone(), reveal(password)?),
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
            let cluster = nats::Cluster {
                servers: settings.nats.clone(),
                login,
                authority: settings.ca.clone(),
                stream: settings.stream.clone(),
                replicas: settings.replicas.get().into(),
                memory: settings.storage == StreamStorage::Memory,
                age: settings.age.duration(),
                bytes: settings.bytes.bytes(),
                // A publish that is sent again, by a client or by us, is known by its name.
                remembered: Duration::from_millis(rules.key_window_ms).max(patience.saturating_mul(2)),
                patience,
                filters: settings.filters.get().into(),
                linger: settings.linger.duration(),
                queue_age: Duration::from_millis(queueing.age_ms),
                node: NodeId(u64::from_le_bytes(id)),
                about,
            };
            let engine = Engine::join(cluster)
                .map_err(|error| io::Error::other(format!("the cluster cannot be joined: {error}")))?;
            Ok(Self { engine, stream: settings.stream.clone(), queueing, figures: Arc::default() })
        }

        /// The life of its stream.
        pub(crate) fn epoch(&self) -> Epoch {
            self.engine.epoch
        }

        /// Where the stream was when it was joined.
        pub(crate) fn newest(&self) -> u64 {
            self.engine.newest
        }

        /// How much may wait for it.
        pub(crate) fn queueing(&self) -> Queueing {
            self.queueing
        }

        /// What waits for it now. The first that is dropped is told, and then no more until nothing waits.
        pub(crate) fn show(&self, backlog: Backlog) {
            let Backlog { messages, bytes, dropped } = backlog;
            let figures = &self.figures;
            figures.waiting.store(messages as u64, Ordering::Relaxed);
            figures.waiting_bytes.store(bytes, Ordering::Relaxed);
            let before = figures.dropped.swap(dropped, Ordering::Relaxed);
            if dropped > before && !figures.complained.swap(true, Ordering::Relaxed) {
                let text = "messages that wait for the cluster are dropped: they are older than cluster.queue_age, or it does \
                            not take them; encke_cluster_queue_dropped_total counts them";
                errors::report(Level::Error, text);
            }
            if messages == 0 {
                figures.complained.store(false, Ordering::Relaxed);
            }
        }

        /// From now on news come to the first worker.
        pub(crate) fn begin(&self, first: Arc<Link>) {
            self.figures.up.store(true, Ordering::Relaxed);
            self.engine.begin(Arc::new(Post { first, figures: Arc::clone(&self.figures) }));
        }

        pub(crate) fn run(&self, errand: Errand) {
            self.engine.run(errand);
        }

        /// A letter with news was read.
        pub(crate) fn taken(&self) {
            self.engine.taken();
        }

        /// The node ends, and says so; what still waits is lost.
        pub(crate) fn leave(&self, backlog: Backlog) {
            if backlog.messages > 0 {
                let text = format!(
                    "{} messages that waited for the cluster are lost with this node",
                    backlog.messages
                );
                errors::report(Level::Error, &text);
            }
            self.engine.leave();
        }

        /// The nodes as this one sees them.
        pub(crate) fn status(&self) -> Value {
            let nodes = self.engine.nodes();
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
            json!({
                "schema": 1,
                "stream": self.stream,
                "up": self.figures.up.load(Ordering::Relaxed),
                "nodes": nodes.iter().map(one).collect::<Vec<_>>(),
            })
        }

        pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
            let figures = &*self.figures;
            let Figures { up, messages, stored, repeated, refused, .. } = figures;
            [
                Family::gauge("encke_cluster_up", "Whether the stream of the cluster can be reached.")
                    .value(u64::from(up.load(Ordering::Relaxed))),
                Family::gauge(
                    "encke_cluster_nodes",
                    "Nodes of the cluster that this one hears, itself among them.",
                )
                .value(self.engine.nodes().len() as u64),
                Family::counter("encke_cluster_messages_total", "Messages that came by the stream.")
                    .value(messages.value()),
                Family::counter(
                    "encke_cluster_publishes_total",
                    "Messages sent to the stream, by what became of them.",
                )
                .with(&[("outcome", "stored")], stored.value())
                .with(&[("outcome", "repeated")], repeated.value())
                .with(&[("outcome", "refused")], refused.value()),
                Family::gauge(
                    "encke_cluster_queue_messages",
                    "Messages that wait for the stream of the cluster.",
                )
                .value(figures.waiting.load(Ordering::Relaxed)),
                Family::gauge("encke_cluster_queue_bytes", "Memory of the messages that wait.")
                    .value(figures.waiting_bytes.load(Ordering::Relaxed)),
                Family::counter(
                    "encke_cluster_queue_dropped_total",
                    "Messages that were promised with a 202 and dropped: too old, or refused by the stream.",
                )
                .value(figures.dropped.load(Ordering::Relaxed)),
            ]
            .into_iter()
        }
    }

    /// What has come by the stream, counted on the engine's thread alone, and what waits for it.
    #[derive(Default)]
    struct Figures {
        up: AtomicBool,
        messages: Counter,
        stored: Counter,
        repeated: Counter,
        refused: Counter,
        // What waits is told by the first worker.
        waiting: AtomicU64,
        waiting_bytes: AtomicU64,
        dropped: AtomicU64,
        complained: AtomicBool,
    }

    /// Brings news to the first worker.
    struct Post {
        first: Arc<Link>,
        figures: Arc<Figures>,
    }

    impl Outlet for Post {
        fn news(&self, news: Vec<News>) {
            let figures = &self.figures;
            for one in &news {
                match one {
                    News::Up => figures.up.store(true, Ordering::Relaxed),
                    News::Down => figures.up.store(false, Ordering::Relaxed),
                    News::Messages { messages, .. } => figures.messages.add(messages.len() as u64),
                    News::Placed { fate: Ok(Place { repeated: false, .. }), .. } => {
                        figures.stored.increment();
                    }
                    News::Placed { fate: Ok(_), .. } => figures.repeated.increment(),
                    News::Placed { fate: Err(_), .. } => figures.refused.increment(),
                    News::Lost { .. }
                    | News::Past { .. }
                    | News::Recalled { .. }
                    | News::Told { .. }
                    | News::Gone { .. }
                    | News::Announced { .. } => {}
                }
            }
            self.first.send(Message::Push(Letter::News(news)));
        }

        fn note(&self, note: Note) {
            match note {
                Note::Trouble(text) => errors::report(Level::Error, &text),
                Note::Relief(text) => errors::report(Level::Info, &text),
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

    use super::{Arc, ClusterSettings, Epoch, Errand, Family, Link, Rules, Value, io};

    /// A node's part in a cluster: there is none, in this build.
    pub(crate) struct Cluster(Infallible);

    impl Cluster {
        /// Says that this build knows no NATS.
        ///
        /// # Errors
        /// Always.
        pub(crate) fn join(_: &ClusterSettings, _: &Rules) -> io::Result<Self> {
            Err(io::Error::other("cluster.nats is set, and this Encke was built without NATS"))
        }

        pub(crate) fn epoch(&self) -> Epoch {
            match self.0 {}
        }

        pub(crate) fn newest(&self) -> u64 {
            match self.0 {}
        }

        pub(crate) fn begin(&self, _: Arc<Link>) {
            match self.0 {}
        }

        pub(crate) fn run(&self, _: Errand) {
            match self.0 {}
        }

        pub(crate) fn taken(&self) {
            match self.0 {}
        }

        pub(crate) fn queueing(&self) -> Queueing {
            match self.0 {}
        }

        pub(crate) fn show(&self, _: Backlog) {
            match self.0 {}
        }

        pub(crate) fn leave(&self, _: Backlog) {
            match self.0 {}
        }

        pub(crate) fn status(&self) -> Value {
            match self.0 {}
        }

        pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
            match self.0 {}
            #[expect(unreachable_code, reason = "it says which iterator")]
            std::iter::empty()
        }
    }
}
