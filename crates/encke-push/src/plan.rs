//! What push obeys: made from settings, replaced whole at a reload.

use std::io;
use std::path::Path;
use std::sync::Arc;

use encke_hub::{Epoch, Rules, Streams};

use super::admission::Admission;
use super::archive::{self, Archive};
use super::cluster::Cluster;
use super::figures::PushFigures;
use super::pace::{AddressRates, Limit};
use crate::settings::PushSettings;
use crate::settings::cluster::ClusterSettings;
use encke_rights::{Act, AuthSettings, Openness, Rights};

/// Settings of push, as workers use them.
pub struct PushPlan {
    /// Where channels are, with a slash at both ends.
    pub(crate) prefix: String,
    pub(crate) rules: Arc<Rules>,
    /// Names of the classes of channels, by number.
    pub(crate) classes: Vec<String>,
    pub(crate) rights: Rights,
    /// Which channel is of which stream; one has all of them but in a cluster that says otherwise.
    pub(crate) streams: Arc<Streams>,
    /// Name the lives of the streams, in their order; stay the same over reloads.
    pub(crate) epochs: Arc<[Epoch]>,
    /// Where messages are stored, if they are.
    pub(crate) archive: Option<Arc<Archive>>,
    /// The streams that this node shares with others, if it does.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// What bodies of publishes that are not whole may take, a worker.
    pub(crate) incoming_bytes: usize,
    /// Silence after which a stream says that it is alive.
    pub(crate) heartbeat_ns: u64,
    /// When a client that was sent away comes back: half of this more or less.
    pub(crate) retry_ms: u64,
    /// Messages to WebSockets that offer it are compressed.
    pub(crate) compress: bool,
    /// What may lie in the kernel unsent of a subscriber's stream, in bytes (TCP_NOTSENT_LOWAT).
    pub(crate) unsent_bytes: u32,
    /// After so long without an acknowledgement a subscriber is taken for dead (TCP_USER_TIMEOUT), in ms.
    pub(crate) dead_after_ms: u32,
    /// How many may begin to listen.
    pub(crate) admission: Arc<Admission>,
    /// How fast strangers may publish, if they may at all and not as fast as they like.
    pub(crate) anonymous_rates: Option<Arc<AddressRates>>,
    /// How fast each client address may open channels, if there is a limit.
    pub(crate) channel_rates: Option<Arc<AddressRates>>,
    /// What workers count.
    pub(crate) figures: Arc<PushFigures>,
}

impl PushPlan {
    /// A plan of settings; `openness`: to whom it is open without a token.
    ///
    /// # Errors
    /// The settings contradict themselves, or the system gives no randomness.
    pub fn new(push: &PushSettings, auth: &AuthSettings, openness: Openness) -> io::Result<Self> {
        let rules = push.rules().map_err(|(_, message)| io::Error::other(message))?;
        let anonymous = auth.anonymous.contains(&Act::Publish);
        Ok(Self {
            prefix: push.prefix.clone(),
            rules: Arc::new(rules),
            classes: push.classes(),
            rights: Rights::new(auth, &push.origins, openness).map_err(io::Error::other)?,
            streams: Arc::default(),
            epochs: [archive::new_epoch()?].into(),
            archive: None,
            cluster: None,
            incoming_bytes: usize::try_from(push.incoming.bytes()).unwrap_or(usize::MAX),
            heartbeat_ns: push.heartbeat.nanoseconds(),
            retry_ms: push.retry.nanoseconds() / 1_000_000,
            compress: push.compress,
            unsent_bytes: u32::try_from(push.unsent.bytes()).unwrap_or(u32::MAX),
            dead_after_ms: u32::try_from(push.dead_after.nanoseconds() / 1_000_000).unwrap_or(u32::MAX),
            admission: Arc::new(Admission::new(push.admission.on())),
            anonymous_rates: push
                .anonymous_rate
                .on()
                .filter(|_| anonymous)
                .map(|rate| Arc::new(AddressRates::new(Limit::Messages, rate))),
            channel_rates: push
                .channel_rate
                .on()
                .map(|rate| Arc::new(AddressRates::new(Limit::Channels, rate))),
            figures: Arc::default(),
        })
    }

    /// The streams of a cluster, which the plan's server joins.
    ///
    /// # Errors
    /// The settings contradict themselves, or the cluster cannot be joined.
    pub fn joined(self, cluster: &ClusterSettings) -> io::Result<Self> {
        let streams = cluster.streams().map_err(|(_, wrong)| io::Error::other(wrong))?;
        let cluster = Cluster::join(cluster, &self.rules)?;
        Ok(self.shared_by(cluster, streams))
    }

    /// The stream that goes on in the store of a folder.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn kept_in(self, folder: &Path) -> io::Result<Self> {
        Ok(self.stored_in(Archive::open(folder)?))
    }

    /// Whether messages outlive the process: stored, or kept by a cluster.
    pub fn keeps(&self) -> bool {
        self.archive.is_some() || self.cluster.is_some()
    }

    /// The same streams under other settings. Where a rate stays, what is used up of it stays used up.
    pub fn with_epoch_of(self, other: &Self) -> Self {
        let rates = |new: Option<Arc<AddressRates>>, old: &Option<Arc<AddressRates>>| match (new, old) {
            (Some(new), Some(old)) if new.rate() == old.rate() => Some(Arc::clone(old)),
            (new, _) => new,
        };
        let anonymous_rates = rates(self.anonymous_rates, &other.anonymous_rates);
        let channel_rates = rates(self.channel_rates, &other.channel_rates);
        let same = self.admission.rate() == other.admission.rate();
        let admission = if same { Arc::clone(&other.admission) } else { self.admission };
        let (archive, cluster) = (other.archive.clone(), other.cluster.clone());
        let (streams, epochs) = (Arc::clone(&other.streams), Arc::clone(&other.epochs));
        let prefix = other.prefix.clone();
        let rules = if cluster.is_some() { recalling(self.rules) } else { self.rules };
        Self {
            streams,
            epochs,
            archive,
            cluster,
            prefix,
            rules,
            admission,
            anonymous_rates,
            channel_rates,
            figures: Arc::clone(&other.figures),
            ..self
        }
    }

    /// The stream that goes on in a store.
    pub fn stored_in(self, archive: Archive) -> Self {
        let epochs = archive.epoch().map_or(self.epochs, |epoch| [epoch].into());
        Self { epochs, archive: Some(Arc::new(archive)), ..self }
    }

    /// The streams that others share.
    pub fn shared_by(self, cluster: Cluster, streams: Streams) -> Self {
        let (rules, streams) = (recalling(self.rules), Arc::new(streams));
        Self { streams, epochs: cluster.epochs(), cluster: Some(Arc::new(cluster)), rules, ..self }
    }
}

/// The stream has what rings no longer keep.
fn recalling(mut rules: Arc<Rules>) -> Arc<Rules> {
    Arc::make_mut(&mut rules).recalls = true;
    rules
}
