//! The streams of a server: their sources, and their descriptions for operators and listeners.
//!
//! ```text
//! no source ── lease ─► Live(lease) ── end, loss ─► Held(until) ── time ─► no source
//!                          ▲   └─ lease with takeover: the former source is notified │
//!                          └────────────────── lease ────────────────────────────────┘
//! ```
//! One lock per stream orders the messages of its sources: a source publishes while it holds the lock and the lease, so no
//! message of a former source can follow the head of a new one.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use encke_io::{Now, lock};
use encke_push::{CLAIMS_MAX, ClaimError, Flags, Name, Pattern, SourceBoard, SourceHolder};
use encke_server::ResidentMailbox;
use encke_settings::{TargetUrl, UpstreamTls};
use encke_wire::media::{Container, MediaInfo};

use crate::counters::LiveFigures;
use crate::listener_places::ListenerPlaces;
use crate::pull_url::PullUrl;
use crate::settings::{LiveChannelSettings, LiveSettings};

/// All streams. A reload keeps it.
pub struct LiveState {
    streams: Mutex<HashMap<Name, Arc<LiveChannel>>>,
    rules: RwLock<Vec<(Pattern, LiveChannelSettings)>>,
    /// TLS to the servers that streams are pulled from.
    tls: RwLock<UpstreamTls>,
    /// `live.pulls`
    pulls_max: AtomicU32,
    leases: AtomicU64,
    /// Begin of the names of all streams.
    names: String,
    /// This node's id in chains of nodes.
    node: String,
    /// Streams to be pulled, with the hops of the request.
    wanted: Mutex<Vec<(Arc<LiveChannel>, String)>>,
    /// The keeper of the first worker, once all have started.
    keeper: Mutex<Option<ResidentMailbox>>,
    /// The sources on all nodes, if this is a node of a cluster.
    board: OnceLock<Arc<SourceBoard>>,
    pub(crate) figures: Arc<LiveFigures>,
}

/// A stream.
pub(crate) struct LiveChannel {
    pub(crate) name: Name,
    pub(crate) inner: Mutex<LiveChannelState>,
    pub(crate) listeners: ListenerPlaces,
}

/// The state of a stream that its sources change.
#[derive(Default)]
pub(crate) struct LiveChannelState {
    /// The source that holds the lease.
    pub(crate) source: Option<SourceCard>,
    /// The container of the messages published last.
    pub(crate) container: Option<Container>,
    /// The head published last; empty for none.
    pub(crate) head: Arc<[u8]>,
    /// The description of the stream, once its head is known.
    pub(crate) info: Option<MediaInfo>,
    /// Whether listeners may have received a part of a unit whose rest never came.
    pub(crate) torn: bool,
    /// When listeners of a lost source are ended, on the monotonic clock in ns.
    pub(crate) held_until_ns: Option<u64>,
    /// Whether the stream carries the messages of its fallback.
    pub(crate) falls_back: bool,
    /// The error of the latest pull, and the end of the time in which new listeners get it, on the monotonic clock in ns.
    pull_failure: Option<(String, u64)>,
    /// Requests that wait for the description of the stream: the number of a worker's part, and its waker.
    waiting: Vec<(u64, Box<dyn Fn() + Send + Sync>)>,
}

/// A source, as operators see it.
#[derive(Clone, Debug)]
pub(crate) struct SourceCard {
    pub(crate) lease: u64,
    pub(crate) kind: SourceKind,
    /// The rank of its claim in the cluster; `None` without a cluster, and for a stream that is pulled.
    pub(crate) rank: Option<u64>,
    /// Whether the last message of the source ended within a unit.
    pub(crate) in_unit: bool,
    /// The client's address, or the URL that the stream is pulled from.
    pub(crate) origin: String,
    /// The nodes that the stream has passed, as a field value.
    pub(crate) path: String,
    /// The name of the client's program, or of the server that the stream is pulled from.
    pub(crate) program: Option<Box<str>>,
    pub(crate) title: Option<Box<str>>,
    /// When the source began, on the monotonic clock in ns.
    pub(crate) began_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) bit_rate: Option<u64>,
    pub(crate) key_interval_us: Option<u64>,
    pub(crate) gaps: u64,
    pub(crate) pauses: SourcePauses,
    /// Notifies the source that another one has taken over.
    pub(crate) notice: Arc<SourceNotice>,
}

/// Where the bytes of a source come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A request, or this program: the source of the stream itself.
    Own,
    /// Another server, which has the source.
    Pull,
    /// The node of the cluster that has the source, or had it.
    NodePull,
}

/// A message to the keeper: a deadline may be new, or a stream is to be pulled.
pub(crate) struct KeeperLook;

/// A message to the keeper: a source is to be woken at a time, on the monotonic clock in ns.
pub(crate) struct KeeperWake(pub(crate) u64, pub(crate) Arc<SourceNotice>);

/// Nodes in a chain. A longer list of hops counts as a loop.
const HOPS_MAX: usize = 16;

/// Tells a source that it has lost its lease or is to end, and wakes its handler.
pub(crate) struct SourceNotice {
    pub(crate) wake: Box<dyn Fn() + Send + Sync>,
    /// Whether an operator has ended the source. The source then gives up its lease itself.
    pub(crate) is_stopped: AtomicBool,
}

/// Times in which a source sent no byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourcePauses {
    /// When the last bytes arrived, on the monotonic clock in ns; 0 before the first ones.
    pub(crate) received_ns: u64,
    /// Number of pauses of at least [`PAUSE_NS`] between two receptions.
    pub(crate) count: u64,
    /// The longest time between two receptions, in ns.
    pub(crate) longest_ns: u64,
}

/// A source that sends nothing for as long has paused: 2 s, which a player's buffer may not bridge.
const PAUSE_NS: u64 = 2_000_000_000;

impl SourcePauses {
    /// Bytes have arrived.
    pub(crate) fn received(&mut self, now_ns: u64) {
        let before_ns = std::mem::replace(&mut self.received_ns, now_ns.max(1));
        if before_ns > 0 {
            let pause_ns = now_ns.saturating_sub(before_ns);
            self.longest_ns = self.longest_ns.max(pause_ns);
            self.count += u64::from(pause_ns >= PAUSE_NS);
        }
    }
}

impl std::fmt::Debug for SourceNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceNotice").finish_non_exhaustive()
    }
}

/// Why a stream has no room for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occupied {
    /// It has a source on this node.
    Here,
    /// It has a source on another node.
    Elsewhere(SourceHolder),
    /// This node has as many sources as it can announce to others.
    Full,
}

/// The places to pull a stream from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PullPlaces {
    /// The stream on the node that has its source. It comes before the others.
    pub(crate) node: Option<PullUrl>,
    /// The URLs of the settings.
    pub(crate) urls: Vec<PullUrl>,
    /// TLS to these servers.
    pub(crate) tls: UpstreamTls,
}

impl LiveState {
    /// Creates the state without streams.
    pub fn new(settings: &LiveSettings) -> Arc<Self> {
        Arc::new(Self {
            streams: Mutex::default(),
            rules: RwLock::new(settings.by_pattern()),
            tls: RwLock::new(settings.tls.clone()),
            pulls_max: AtomicU32::new(settings.pulls.get()),
            leases: AtomicU64::new(0),
            names: settings.names().to_owned(),
            node: node_id(),
            wanted: Mutex::default(),
            keeper: Mutex::default(),
            board: OnceLock::new(),
            figures: Arc::default(),
        })
    }

    /// Applies new settings. Sources apply them when they begin.
    pub fn reload(&self, settings: &LiveSettings) {
        *self.rules.write().unwrap_or_else(std::sync::PoisonError::into_inner) = settings.by_pattern();
        *self.tls.write().unwrap_or_else(std::sync::PoisonError::into_inner) = settings.tls.clone();
        self.pulls_max.store(settings.pulls.get(), Ordering::Relaxed);
    }

    /// Returns the number of streams that may be pulled at the same time.
    pub(crate) fn pulls_max(&self) -> usize {
        self.pulls_max.load(Ordering::Relaxed) as usize
    }

    /// Returns the rules of a stream.
    pub(crate) fn rules_of(&self, name: &Name) -> LiveChannelSettings {
        let rules = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = rules.iter().find(|(pattern, _)| pattern.matches(name));
        found.map(|(_, rules)| rules.clone()).unwrap_or_default()
    }

    /// Returns whether any stream has a fallback.
    pub(crate) fn has_fallbacks(&self) -> bool {
        let rules = self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        rules.iter().any(|(_, rules)| rules.fallback.is_some())
    }

    /// Returns a stream if it is known.
    pub(crate) fn find(&self, name: &Name) -> Option<Arc<LiveChannel>> {
        lock(&self.streams).get(name).cloned()
    }

    /// Returns all streams, by name.
    pub(crate) fn all(&self) -> Vec<Arc<LiveChannel>> {
        let mut all: Vec<_> = lock(&self.streams).values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Returns a stream; makes it if it is new.
    pub(crate) fn found_or_made(&self, name: &Name) -> Arc<LiveChannel> {
        let mut streams = lock(&self.streams);
        let stream = streams.entry(name.clone()).or_insert_with(|| {
            Arc::new(LiveChannel {
                name: name.clone(),
                inner: Mutex::default(),
                listeners: ListenerPlaces::default(),
            })
        });
        Arc::clone(stream)
    }

    pub(crate) fn set_keeper(&self, keeper: ResidentMailbox) {
        *lock(&self.keeper) = Some(keeper);
    }

    /// Tells the keeper of a new deadline.
    pub(crate) fn look_later(&self) {
        if let Some(keeper) = &*lock(&self.keeper) {
            keeper.send(KeeperLook);
        }
    }

    /// Asks the keeper to wake a source at a time, on the monotonic clock in ns.
    pub(crate) fn wake_at(&self, at_ns: u64, notice: &Arc<SourceNotice>) {
        if let Some(keeper) = &*lock(&self.keeper) {
            keeper.send(KeeperWake(at_ns, Arc::clone(notice)));
        }
    }

    /// Returns the stream that replaces another while its source is absent.
    pub(crate) fn fallback_of(&self, name: &Name) -> Option<Name> {
        let fallback = self.rules_of(name).fallback?;
        Name::parse(self.name_of(&fallback).as_bytes()).ok()
    }

    /// Returns a number that was not returned before.
    pub(crate) fn next_number(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the name of a stream's channel.
    pub(crate) fn name_of(&self, title: &str) -> String {
        format!("{}{title}", self.names)
    }

    /// Returns the name of a stream without the prefix.
    pub(crate) fn title_of(&self, name: &Name) -> Option<String> {
        name.as_str().strip_prefix(&self.names).map(ToOwned::to_owned)
    }

    /// Returns this node's id.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Returns whether a list of hops has this node, or is too long.
    pub(crate) fn has_passed(&self, hops: &str) -> bool {
        let mut nodes = hops.split(',').map(str::trim).filter(|node| !node.is_empty());
        nodes.clone().count() >= HOPS_MAX || nodes.any(|node| node == self.node)
    }

    /// Asks the keeper to pull a stream.
    pub(crate) fn want(&self, stream: &Arc<LiveChannel>, hops: &str) {
        self.add_wanted(stream, hops);
        self.look_later();
    }

    /// Adds a stream to be pulled.
    pub(crate) fn add_wanted(&self, stream: &Arc<LiveChannel>, hops: &str) {
        let hops = if hops.is_empty() { self.node.clone() } else { format!("{hops}, {}", self.node) };
        lock(&self.wanted).push((Arc::clone(stream), hops));
    }

    /// Takes the streams to be pulled.
    pub(crate) fn take_wanted(&self) -> Vec<(Arc<LiveChannel>, String)> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// Drops streams that have neither a source nor waiting listeners. A stream that is used elsewhere, for example by a pull, stays:
    /// otherwise another one of its name would get a source beside it.
    pub(crate) fn drop_unused(&self) {
        lock(&self.streams).retain(|_, stream| {
            // New references are made under the lock of the map only.
            if Arc::strong_count(stream) > 1 {
                return true;
            }
            // A source that holds the lock of its stream may look for other streams: no waiting for it here.
            let Ok(inner) = stream.inner.try_lock() else { return true };
            let is_used = inner.source.is_some() || inner.held_until_ns.is_some() || inner.falls_back;
            is_used || inner.is_awaited() || stream.listeners.count() > 0
        });
    }

    /// Makes this server a node of a cluster: `board` has the sources of the other nodes, which reach this one at `address`. Without
    /// an address they know of its sources, and cannot fetch them.
    pub fn join(self: &Arc<Self>, board: Arc<SourceBoard>, address: Option<&TargetUrl>) {
        let address = address.map_or_else(String::new, |address| format!("{address}/{}", self.names));
        let state = Arc::downgrade(self);
        board.open(&address, move || {
            if let Some(state) = state.upgrade() {
                state.look_later();
            }
        });
        let _joined_before = self.board.set(board);
    }

    /// Returns whether this is a node of a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.board.get().is_some()
    }

    /// Returns the other node that has the source of a stream.
    pub(crate) fn holder_of(&self, name: &Name) -> Option<SourceHolder> {
        self.board.get()?.holder(&self.title_of(name)?)
    }

    /// Returns the streams whose source is on another node, without the prefix.
    pub(crate) fn held_elsewhere(&self) -> BTreeMap<Box<str>, SourceHolder> {
        self.board.get().map(|board| board.held_elsewhere()).unwrap_or_default()
    }

    /// Returns the places to pull a stream from.
    pub(crate) fn places_of(&self, name: &Name) -> PullPlaces {
        let Some(title) = self.title_of(name) else { return PullPlaces::default() };
        let node = self.holder_of(name).and_then(|holder| PullUrl::parse(&holder.address, &title));
        let urls = self.rules_of(name).pull;
        let urls = urls.iter().filter_map(|pull| PullUrl::of(pull, &title)).collect();
        let tls = self.tls.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        PullPlaces { node, urls, tls }
    }

    /// Ends the sources whose streams another node has taken over. Their listeners wait for `hold`.
    pub(crate) fn yield_to_others(&self, now_ns: u64) {
        let outranked = self.board.get().map(|board| board.outranked()).unwrap_or_default();
        for (title, rank) in outranked {
            let name = Name::parse(format!("{}{title}", self.names).as_bytes()).ok();
            let Some(stream) = name.and_then(|name| self.find(&name)) else { continue };
            let mut inner = lock(&stream.inner);
            if inner.source.as_ref().is_none_or(|source| source.rank != Some(rank)) {
                continue;
            }
            let former = self.vacate(&stream, &mut inner, now_ns);
            drop(inner);
            if let Some(former) = former {
                (former.notice.wake)();
            }
        }
    }

    /// Removes the source of a stream, whose listeners wait for `hold`.
    pub(crate) fn vacate(
        &self,
        stream: &LiveChannel,
        inner: &mut LiveChannelState,
        now_ns: u64,
    ) -> Option<SourceCard> {
        let former = self.remove_source(stream, inner)?;
        inner.wake();
        self.end_mirrors(&stream.name, now_ns);
        let hold_ns = self.rules_of(&stream.name).hold.nanoseconds();
        inner.held_until_ns = Some(now_ns.saturating_add(hold_ns));
        self.figures.sources_ended.fetch_add(1, Ordering::Relaxed);
        Some(former)
    }

    /// Removes the source of a stream, and ends its claim in the cluster.
    pub(crate) fn remove_source(
        &self,
        stream: &LiveChannel,
        inner: &mut LiveChannelState,
    ) -> Option<SourceCard> {
        let former = inner.source.take()?;
        inner.torn |= former.in_unit;
        if let (Some(board), Some(rank)) = (self.board.get(), former.rank) {
            board.release(stream.title(&self.names), rank);
        }
        Some(former)
    }

    /// Gives the lease of a stream to a new source. With `takeover` the present source loses it, on whichever node it is. Only own
    /// sources claim the stream in the cluster. They need no takeover to replace a pull from a node that has lost its source.
    ///
    /// # Errors
    /// The stream has a source, or this node has too many.
    pub(crate) fn lease(
        &self,
        stream: &LiveChannel,
        takeover: bool,
        kind: SourceKind,
        now: Now,
        card: impl FnOnce(u64, Option<u64>) -> SourceCard,
    ) -> Result<u64, Occupied> {
        let mut inner = lock(&stream.inner);
        if let Some(present) = &inner.source
            && !takeover
        {
            match self.holder_of(&stream.name) {
                Some(holder) => return Err(Occupied::Elsewhere(holder)),
                None if present.kind == SourceKind::NodePull && kind == SourceKind::Own => {}
                None => return Err(Occupied::Here),
            }
        }
        let rank = match self.board.get().filter(|_| kind == SourceKind::Own) {
            Some(board) => {
                let rank = board.claim(stream.title(&self.names), takeover, now.unix_ns / 1_000_000);
                Some(rank.map_err(|error| match error {
                    ClaimError::Held(holder) => Occupied::Elsewhere(holder),
                    ClaimError::Full => Occupied::Full,
                })?)
            }
            None => None,
        };
        let lease = self.next_number();
        let former = inner.source.replace(card(lease, rank));
        inner.torn |= former.as_ref().is_some_and(|former| former.in_unit);
        inner.held_until_ns = None;
        inner.falls_back = false;
        inner.pull_failure = None;
        drop(inner);
        self.figures.sources_begun.fetch_add(1, Ordering::Relaxed);
        if let Some(former) = former {
            (former.notice.wake)();
        }
        Ok(lease)
    }
}

impl LiveChannel {
    /// Returns the name without the prefix of live streams.
    pub(crate) fn title(&self, names: &str) -> &str {
        self.name.as_str().strip_prefix(names).unwrap_or(self.name.as_str())
    }
}

impl LiveChannelState {
    /// Records a new head. Returns the flags of its message.
    pub(crate) fn take_head(&mut self, container: Container, head: &[u8]) -> Flags {
        let goes_on = self.container == Some(container) && container.restarts() && !self.torn;
        self.container = Some(container);
        self.torn = false;
        self.head = head.into();
        let flags = Flags::PREAMBLE.with(Flags::BINARY);
        if goes_on { flags } else { flags.with(Flags::BREAK) }
    }

    /// Lets a worker's part wait for the description of the stream, or for the failure of its pull.
    pub(crate) fn wait(&mut self, desk: u64, wake: impl FnOnce() -> Box<dyn Fn() + Send + Sync>) {
        if !self.waiting.iter().any(|(other, _)| *other == desk) {
            self.waiting.push((desk, wake()));
        }
    }

    /// Returns whether requests wait.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Wakes the requests that wait.
    pub(crate) fn wake(&mut self) {
        for (_, wake) in self.waiting.drain(..) {
            wake();
        }
    }

    /// The stream cannot be pulled: tells the requests that wait.
    pub(crate) fn fail_pull(&mut self, text: String, now_ns: u64) {
        self.pull_failure = Some((text, now_ns.saturating_add(FAILURE_NS)));
        self.wake();
    }

    /// Returns why the stream could not be pulled just now.
    pub(crate) fn pull_failure(&self, now_ns: u64) -> Option<&str> {
        self.pull_failure.as_ref().filter(|(_, until_ns)| now_ns < *until_ns).map(|(text, _)| text.as_str())
    }

    /// Returns the state in one word.
    pub(crate) const fn state(&self) -> &'static str {
        match (&self.source, self.falls_back, self.held_until_ns) {
            (Some(_), ..) => "live",
            (None, true, _) => "fallback",
            (None, false, Some(_)) => "lost",
            (None, false, None) => "absent",
        }
    }

    /// Returns whether the source with this lease holds it still.
    pub(crate) fn is_held_by(&self, lease: u64) -> bool {
        self.source.as_ref().is_some_and(|source| source.lease == lease)
    }
}

impl PullPlaces {
    /// Returns whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.node.is_none() && self.urls.is_empty()
    }

    /// Returns the number of places.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.node.is_some()) + self.urls.len()
    }

    /// Returns the place for an attempt: each in turn.
    pub(crate) fn of_attempt(&self, attempt: usize) -> Option<&PullUrl> {
        self.node.iter().chain(&self.urls).nth(attempt % self.count().max(1))
    }
}

impl std::fmt::Display for Occupied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const REMEDY: &str = "end it, or add ?takeover to the address to replace it";
        match self {
            Self::Here => write!(f, "the stream has a source already: {REMEDY}"),
            Self::Elsewhere(SourceHolder { node, .. }) => {
                write!(f, "the stream has a source already, on {node}: {REMEDY}")
            }
            Self::Full => write!(
                f,
                "this node has {CLAIMS_MAX} sources, as many as it can announce to the cluster: send the stream to another node"
            ),
        }
    }
}

/// Time for which new listeners get the error of a failed pull, in ns.
const FAILURE_NS: u64 = 2_000_000_000;

/// Returns a random id for this node. Without random bytes of the system it is the process id, which suffices on one machine.
fn node_id() -> String {
    let mut bytes = [0; 8];
    match encke_io::host::random(&mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => format!("pid-{}", std::process::id()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_source_pauses_when_two_receptions_are_two_seconds_apart() {
        let mut pauses = SourcePauses::default();
        let received_s = [5, 6, 7, 9, 10, 15];
        let counts = received_s.map(|second| {
            pauses.received(second * SECOND_NS);
            (pauses.count, pauses.longest_ns / SECOND_NS)
        });
        assert_eq!(counts, [(0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (2, 5)]);
        assert_eq!(pauses.received_ns, 15 * SECOND_NS);
    }
}
