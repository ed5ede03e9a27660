//! The streams of a server: their sources, and their descriptions for operators and listeners.
//!
//! ```text
//! no source ── lease ─► Live(lease) ── end, loss ─► Held(until) ── time ─► no source
//!                          ▲   └─ lease with takeover: the former source is notified │
//!                          └────────────────── lease ────────────────────────────────┘
//! ```
//! One lock per stream orders the messages of its sources: a source publishes while it holds the lock and the lease, so no
//! message of a former source can follow the head of a new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use encke_io::lock;
use encke_push::{Flags, Name, Pattern};
use encke_server::ResidentMailbox;
use encke_wire::media::{Container, MediaInfo};

use crate::counters::LiveFigures;
use crate::settings::{LiveChannelSettings, LiveSettings};

/// All streams. A reload keeps it.
pub struct LiveState {
    streams: Mutex<HashMap<Name, Arc<LiveChannel>>>,
    rules: RwLock<Vec<(Pattern, LiveChannelSettings)>>,
    leases: AtomicU64,
    /// Begin of the names of all streams.
    names: String,
    /// This node's id in chains of nodes.
    node: String,
    /// Streams to be pulled, with the hops of the request.
    wanted: Mutex<Vec<(Arc<LiveChannel>, String)>>,
    /// The keeper of the first worker, once all have started.
    keeper: Mutex<Option<ResidentMailbox>>,
    pub(crate) figures: Arc<LiveFigures>,
}

/// A stream.
pub(crate) struct LiveChannel {
    pub(crate) name: Name,
    pub(crate) inner: Mutex<LiveChannelState>,
    /// Number of listeners: admitted since they were counted, which is every second.
    pub(crate) listeners: AtomicU32,
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
    /// The client's address, or the URL that the stream is pulled from.
    pub(crate) origin: String,
    /// The nodes that the stream has passed, as a field value.
    pub(crate) path: String,
    /// The name of the client's program, or of the server that the stream is pulled from.
    pub(crate) program: Option<Box<str>>,
    pub(crate) title: Option<Box<str>>,
    pub(crate) began_unix_s: u64,
    pub(crate) bytes: u64,
    pub(crate) bit_rate: Option<u64>,
    pub(crate) key_interval_us: Option<u64>,
    pub(crate) gaps: u64,
    pub(crate) pauses: SourcePauses,
    /// Notifies the source that another one has taken over.
    pub(crate) notice: Arc<SourceNotice>,
}

/// A message to the keeper: a deadline may be new, or a stream is to be pulled.
pub(crate) struct KeeperLook;

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

/// The stream has a source already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupied;

impl LiveState {
    /// Creates the state without streams.
    pub fn new(settings: &LiveSettings) -> Arc<Self> {
        Arc::new(Self {
            streams: Mutex::default(),
            rules: RwLock::new(settings.by_pattern()),
            leases: AtomicU64::new(0),
            names: settings.names().to_owned(),
            node: node_id(),
            wanted: Mutex::default(),
            keeper: Mutex::default(),
            figures: Arc::default(),
        })
    }

    /// Applies new settings. Sources apply them when they begin.
    pub fn reload(&self, settings: &LiveSettings) {
        *self.rules.write().unwrap_or_else(std::sync::PoisonError::into_inner) = settings.by_pattern();
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
                listeners: AtomicU32::new(0),
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
        let hops = if hops.is_empty() { self.node.clone() } else { format!("{hops}, {}", self.node) };
        lock(&self.wanted).push((Arc::clone(stream), hops));
        self.look_later();
    }

    /// Takes the streams to be pulled.
    pub(crate) fn take_wanted(&self) -> Vec<(Arc<LiveChannel>, String)> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// Drops streams that have neither a source nor waiting listeners.
    pub(crate) fn drop_unused(&self) {
        lock(&self.streams).retain(|_, stream| {
            // A source that holds the lock of its stream may look for other streams: no waiting for it here.
            let Ok(inner) = stream.inner.try_lock() else { return true };
            let is_used = inner.source.is_some() || inner.held_until_ns.is_some() || inner.falls_back;
            is_used || inner.is_awaited() || stream.listeners.load(Ordering::Relaxed) > 0
        });
    }

    /// Gives the lease of a stream to a new source. With `takeover` the present source loses it.
    ///
    /// # Errors
    /// The stream has a source.
    pub(crate) fn lease(
        &self,
        stream: &LiveChannel,
        takeover: bool,
        card: impl FnOnce(u64) -> SourceCard,
    ) -> Result<u64, Occupied> {
        let mut inner = lock(&stream.inner);
        if inner.source.is_some() && !takeover {
            return Err(Occupied);
        }
        let lease = self.next_number();
        let former = inner.source.replace(card(lease));
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
