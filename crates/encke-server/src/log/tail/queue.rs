//! The queue between the workers and the reader of a tail, and the workers' lists of queues. `tests/loom.rs` has models of both.
//!
//! ```text
//!  worker: TailList ─ offer ─► TailQueue ─ bounded channel ─► TailReader ─ try_next
//!          ▲ copied if the version differs       └─ wake, if the reader found nothing
//!          Tails: list and version
//! ```

use std::time::Duration;

use super::filter::TailFilter;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use crate::sync::{Arc, Mutex, Weak, lock};

/// Maximum number of concurrent tails.
const TAILS_MAX: usize = 16;
/// Maximum number of entries that wait for one tail: a few seconds of a busy site, or a fraction of a second of a flood.
const ENTRIES_MAX: usize = 1024;
/// Maximum size in bytes of the lines that wait for one tail. A line usually has 300 bytes, and at most some 70 KiB.
const BYTES_MAX: usize = 256 * 1024;

/// The log entry of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TailEntry {
    /// The status of the response.
    pub status: u16,
    /// The line in the log's JSON format, without a line break.
    pub line: Arc<[u8]>,
}

/// The workers' end of a queue.
pub(super) struct TailQueue {
    filter: TailFilter,
    pub(super) entries: SyncSender<TailEntry>,
    /// Size of the lines in the queue, and of those with room in it that a worker is about to add.
    pub(super) bytes: AtomicUsize,
    dropped: AtomicU64,
    /// Whether the reader found the queue empty.
    pub(super) waits: AtomicBool,
    pub(super) wake: Box<dyn Fn() + Send + Sync>,
}

/// The reader's end of a queue.
pub(super) struct TailReader {
    pub(super) queue: Arc<TailQueue>,
    pub(super) entries: Receiver<TailEntry>,
}

/// The tails of a log.
#[derive(Default)]
pub(crate) struct Tails {
    pub(super) queues: Mutex<Vec<Arc<TailQueue>>>,
    /// Counts changes of `queues`.
    pub(super) version: AtomicU64,
}

/// A worker's list of tails.
#[derive(Default)]
pub(crate) struct TailList {
    queues: Vec<Weak<TailQueue>>,
    version: u64,
    line: Vec<u8>,
}

impl TailReader {
    /// Creates a queue. A worker calls `wake` when an entry arrives after [`TailReader::try_next`] found none, or before the
    /// first call of it.
    pub(super) fn new(filter: TailFilter, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let (sender, entries) = sync_channel(ENTRIES_MAX);
        let queue = TailQueue {
            filter,
            entries: sender,
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            waits: AtomicBool::new(true),
            wake,
        };
        Self { queue: Arc::new(queue), entries }
    }

    /// Returns the next entry, if there is one.
    pub(super) fn try_next(&self) -> Option<TailEntry> {
        let mut entry = self.entries.try_recv().ok();
        if entry.is_none() {
            // An entry that arrives between the two attempts is either found by the second one, or wakes the reader. On x86-64 a
            // swap is the same instruction as a store with this order, and loom models its order among other swaps exactly.
            self.queue.waits.swap(true, Ordering::SeqCst);
            entry = self.entries.try_recv().ok();
        }
        self.taken(entry)
    }

    /// Waits for the next entry. Returns `None` if none arrives in time.
    pub(super) fn next_within(&self, time: Duration) -> Option<TailEntry> {
        let received = self.entries.recv_timeout(time);
        debug_assert_ne!(received, Err(RecvTimeoutError::Disconnected), "the queue holds a sender");
        self.taken(received.ok())
    }

    /// Number of entries that did not fit into the queue.
    pub(super) fn dropped(&self) -> u64 {
        self.queue.dropped.load(Ordering::Relaxed)
    }

    /// Subtracts an entry that left the channel from the size of the queue.
    pub(super) fn taken(&self, entry: Option<TailEntry>) -> Option<TailEntry> {
        if let Some(entry) = &entry {
            self.queue.bytes.fetch_sub(entry.line.len(), Ordering::AcqRel);
        }
        entry
    }
}

impl TailQueue {
    /// Adds an entry, or drops and counts it if it does not fit.
    pub(super) fn offer(&self, entry: TailEntry) {
        let bytes = entry.line.len();
        // An entry that does not fit adds nothing, even for a moment in which another worker could find the queue full.
        let with_it = |before: usize| before.checked_add(bytes).filter(|after| *after <= BYTES_MAX);
        if self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, with_it).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.entries.try_send(entry).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.waits.swap(false, Ordering::SeqCst) {
            (self.wake)();
        }
    }
}

impl Tails {
    /// Adds a queue, and calls `mark` before other tails can change. Returns false at the limit of tails.
    pub(super) fn add(&self, queue: &Arc<TailQueue>, mark: impl FnOnce()) -> bool {
        let mut queues = lock(&self.queues);
        let fits = queues.len() < TAILS_MAX;
        if fits {
            queues.push(Arc::clone(queue));
            self.version.fetch_add(1, Ordering::Release);
            mark();
        }
        fits
    }

    /// Removes a queue. If it was the last one, calls `unmark` before another one can be added.
    pub(super) fn remove(&self, queue: &Arc<TailQueue>, unmark: impl FnOnce()) {
        let mut queues = lock(&self.queues);
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        self.version.fetch_add(1, Ordering::Release);
        if queues.is_empty() {
            unmark();
        }
    }
}

impl TailList {
    /// Offers a request to the tails whose filters admit it. `put` writes its line.
    pub(crate) fn offer(&mut self, tails: &Tails, status: u16, path: &[u8], put: impl FnOnce(&mut Vec<u8>)) {
        if tails.version.load(Ordering::Acquire) != self.version
            && let Ok(queues) = tails.queues.try_lock()
        {
            self.version = tails.version.load(Ordering::Acquire);
            self.queues = queues.iter().map(Arc::downgrade).collect();
        }
        if self.queues.is_empty() {
            return;
        }
        self.line.clear();
        put(&mut self.line);
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let mut shared: Option<Arc<[u8]>> = None;
        for queue in self.queues.iter().filter_map(Weak::upgrade) {
            if queue.filter.admits(status, path, line) {
                let line = shared.get_or_insert_with(|| line.into());
                queue.offer(TailEntry { status, line: Arc::clone(line) });
            }
        }
    }
}
