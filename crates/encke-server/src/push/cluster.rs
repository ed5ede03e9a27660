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

use crate::exchange::Link;
use crate::settings::ClusterSettings;

#[cfg(feature = "nats")]
pub(crate) use with::Cluster;
#[cfg(not(feature = "nats"))]
pub(crate) use without::Cluster;

#[cfg(feature = "nats")]
mod with {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use encke_broker::nats::{self, Engine, Login, Note, Outlet};
    use encke_hub::{News, Place};
    use encke_stats::Counter;

    use super::{Arc, ClusterSettings, Epoch, Errand, Family, Link, Rules, io};
    use crate::errors;
    use crate::exchange::Message;
    use crate::push::room::Letter;
    use crate::settings::{Level, Secret, StreamStorage};

    /// A node's part in a cluster.
    pub(crate) struct Cluster {
        engine: Engine,
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
            };
            let engine = Engine::join(cluster)
                .map_err(|error| io::Error::other(format!("the cluster cannot be joined: {error}")))?;
            Ok(Self { engine, figures: Arc::default() })
        }

        /// The life of its stream.
        pub(crate) fn epoch(&self) -> Epoch {
            self.engine.epoch
        }

        /// Where the stream was when it was joined.
        pub(crate) fn newest(&self) -> u64 {
            self.engine.newest
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

        pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
            let Figures { up, messages, stored, repeated, refused } = &*self.figures;
            [
                Family::gauge("encke_cluster_up", "Whether the stream of the cluster can be reached.")
                    .value(u64::from(up.load(Ordering::Relaxed))),
                Family::counter("encke_cluster_messages_total", "Messages that came by the stream.")
                    .value(messages.value()),
                Family::counter(
                    "encke_cluster_publishes_total",
                    "Messages sent to the stream, by what became of them.",
                )
                .with(&[("outcome", "stored")], stored.value())
                .with(&[("outcome", "repeated")], repeated.value())
                .with(&[("outcome", "refused")], refused.value()),
            ]
            .into_iter()
        }
    }

    /// What has come by the stream. It is counted on the engine's thread alone.
    #[derive(Default)]
    struct Figures {
        up: AtomicBool,
        messages: Counter,
        stored: Counter,
        repeated: Counter,
        refused: Counter,
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
                    News::Lost { .. } | News::Past { .. } => {}
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
    }
}

#[cfg(not(feature = "nats"))]
mod without {
    use std::convert::Infallible;

    use super::{Arc, ClusterSettings, Epoch, Errand, Family, Link, Rules, io};

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

        pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
            match self.0 {}
            #[expect(unreachable_code, reason = "it says which iterator")]
            std::iter::empty()
        }
    }
}
