//! The plan of push: built from the settings, replaced as a whole at a reload.

use std::path::Path;
use std::sync::Arc;

use encke_broker::SourceBoard;
use encke_hub::{Epoch, Pattern, Rules, Streams};

use super::address_rates::{AddressRates, LimitedAction};
use super::admission::Admission;
use super::archive::{self, Archive};
use super::channel_point::{self, ChannelPoint};
use super::cluster::ClusterLink;
use super::console::PushMailboxes;
use super::error::PushError;
use super::figures::PushFigures;
use super::publisher::{Entrance, PushPublisher};
use crate::settings::PushSettings;
use crate::settings::cluster::ClusterSettings;
use encke_rights::{Act, AuthSettings, Openness, Rights};

/// The settings of push in the form that workers use.
pub struct PushPlan {
    /// The path prefix of channels, with a slash at both ends.
    pub(crate) prefix: String,
    pub(crate) rules: Arc<Rules>,
    /// Names of the classes of channels, by number.
    pub(crate) classes: Vec<String>,
    pub(crate) rights: Rights,
    /// The stream of each channel. Without a cluster that distributes them, one stream has all channels.
    pub(crate) streams: Arc<Streams>,
    /// The epochs of the streams, in their order. A reload keeps them.
    pub(crate) epochs: Arc<[Epoch]>,
    /// The store of durable channels, if there is one.
    pub(crate) archive: Option<Arc<Archive>>,
    /// The streams shared with other nodes, if there are any.
    pub(crate) cluster: Option<Arc<ClusterLink>>,
    /// Limit of the memory of incomplete bodies, in bytes per worker.
    pub(crate) incoming_bytes: usize,
    /// Silence after which a stream receives a heartbeat.
    pub(crate) heartbeat_ns: u64,
    /// When a disconnected or rejected client may reconnect, ± 50 %.
    pub(crate) retry_ms: u64,
    /// Whether messages are compressed for WebSockets that offer it.
    pub(crate) compress: bool,
    /// Limit of unsent bytes in the kernel for one subscriber (TCP_NOTSENT_LOWAT).
    pub(crate) unsent_bytes: u32,
    /// A subscriber is considered dead after this time without an acknowledgement (TCP_USER_TIMEOUT), in ms.
    pub(crate) dead_after_ms: u32,
    /// The limit on new subscribers.
    pub(crate) admission: Arc<Admission>,
    /// The publish rates of anonymous publishers, if these are allowed and limited.
    pub(crate) anonymous_rates: Option<Arc<AddressRates>>,
    /// The rates at which client addresses may open channels, if limited.
    pub(crate) channel_rates: Option<Arc<AddressRates>>,
    /// The figures of the workers.
    pub(crate) figures: Arc<PushFigures>,
    /// Features that serve channels at a prefix of their own.
    pub(crate) points: Vec<Arc<dyn ChannelPoint>>,
    /// For messages of the program.
    pub(crate) entrance: Arc<Entrance>,
    /// For the lists and actions of operators.
    pub(crate) mailboxes: Arc<PushMailboxes>,
}

impl PushPlan {
    /// Builds a plan from the settings. `openness` says to which clients push is open without a token.
    ///
    /// # Errors
    /// The settings contradict themselves, or the system has no random bytes.
    pub fn new(push: &PushSettings, auth: &AuthSettings, openness: Openness) -> Result<Self, PushError> {
        let rules = push.rules()?;
        let anonymous = auth.anonymous.contains(&Act::Publish);
        Ok(Self {
            prefix: push.prefix.clone(),
            rules: Arc::new(rules),
            classes: push.classes(),
            rights: Rights::new(auth, &push.origins, openness)?,
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
                .map(|rate| Arc::new(AddressRates::new(LimitedAction::Messages, rate))),
            channel_rates: push
                .channel_rate
                .on()
                .map(|rate| Arc::new(AddressRates::new(LimitedAction::Channels, rate))),
            figures: Arc::default(),
            points: Vec::new(),
            entrance: Arc::default(),
            mailboxes: Arc::default(),
        })
    }

    /// Joins the streams of a cluster, and blocks until NATS responds.
    ///
    /// # Errors
    /// The settings contradict themselves, or the cluster cannot be joined.
    pub fn joined(self, cluster: &ClusterSettings) -> Result<Self, PushError> {
        let streams = cluster.streams()?;
        let cluster = ClusterLink::join(cluster, &self.rules)?;
        Ok(self.shared_by(cluster, streams))
    }

    /// Adds a feature that serves channels at a prefix of its own. Clients cannot publish to these channels elsewhere.
    #[must_use]
    pub fn with_point(mut self, point: Arc<dyn ChannelPoint>) -> Self {
        let rules = Arc::make_mut(&mut self.rules);
        for (pattern, channels) in point.rules() {
            rules.set(pattern, channels);
        }
        self.points.push(point);
        self
    }

    /// Keeps the channels of a pattern out of the cluster: they get a stream of this node alone. Without a cluster the server
    /// has no other streams, and nothing changes.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn with_local_channels(mut self, pattern: Pattern) -> Result<Self, PushError> {
        if self.cluster.is_some() {
            self.streams = Arc::new(Streams::clone(&self.streams).with_local([pattern]));
            self.epochs = self.epochs.iter().copied().chain([archive::new_epoch()?]).collect();
        }
        Ok(self)
    }

    /// Returns the sources of live streams on all nodes of the cluster, if there is one.
    pub fn cluster_sources(&self) -> Option<Arc<SourceBoard>> {
        self.cluster.as_ref().map(|cluster| cluster.sources())
    }

    /// Returns the cluster if it has the channel's stream.
    pub(crate) fn cluster_of(&self, channel: &encke_hub::Name) -> Option<&Arc<ClusterLink>> {
        self.cluster.as_ref().filter(|_| !self.streams.is_local(self.streams.of(channel)))
    }

    /// Returns whether a channel belongs to a point, which alone publishes to it.
    pub(crate) fn is_reserved(&self, channel: &encke_hub::Name) -> bool {
        self.points.iter().any(|point| channel_point::owns(&**point, channel))
    }

    /// Continues the stream of the store in a directory.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn kept_in(self, folder: &Path) -> Result<Self, PushError> {
        Ok(self.stored_in(Archive::open(folder)?))
    }

    /// Creates a publisher for the server that mounts this plan. It stays valid over reloads ([`PushPlan::with_epoch_of`]).
    pub fn publisher(&self) -> PushPublisher {
        PushPublisher::new(&self.entrance)
    }

    /// Returns whether messages outlive the process: stored on disk, or kept by a cluster.
    pub fn keeps(&self) -> bool {
        self.archive.is_some() || self.cluster.is_some()
    }

    /// Continues the streams of another plan under these settings. An unchanged rate keeps its used tokens.
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
            entrance: Arc::clone(&other.entrance),
            mailboxes: Arc::clone(&other.mailboxes),
            ..self
        }
    }

    /// Continues the stream of a store.
    pub fn stored_in(self, archive: Archive) -> Self {
        let epochs = archive.epoch().map_or(self.epochs, |epoch| [epoch].into());
        Self { epochs, archive: Some(Arc::new(archive)), ..self }
    }

    /// Uses the streams of a cluster.
    pub fn shared_by(self, cluster: ClusterLink, streams: Streams) -> Self {
        let (rules, streams) = (recalling(self.rules), Arc::new(streams));
        Self { streams, epochs: cluster.epochs(), cluster: Some(Arc::new(cluster)), rules, ..self }
    }
}

/// Enables backfill: the cluster stream has messages that the rings no longer keep.
fn recalling(mut rules: Arc<Rules>) -> Arc<Rules> {
    Arc::make_mut(&mut rules).recalls = true;
    rules
}
