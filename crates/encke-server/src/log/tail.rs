//! Live views of the access log, for a console.
//!
//! ```text
//!  worker: finish ─► JSON line ─► filter of each tail ─► bounded queue ─► LogTail::try_next
//!                                                        full: dropped, counted
//! ```
//! Without tails a request costs nothing extra: each request loads the log's mode anyway, and a bit of the mode marks tails.
//! With tails each request has a JSON line, whatever the log's own format, even if the log is off. A worker never waits for a
//! tail. It keeps its own list of the queues, updates the list only when the registry's lock is free, and drops entries that do
//! not fit. Tokens are masked before any filter sees a line.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use encke_io::lock;
use encke_settings::Network;

use super::line::client_of;
use super::{LogShared, MAIN_OFF, OFF, TAILED};

/// Maximum number of concurrent tails.
const TAILS_MAX: usize = 16;
/// Maximum number of entries that wait for one tail: a few seconds of a busy site, or a fraction of a second of a flood.
const ENTRIES_MAX: usize = 1024;
/// Maximum size in bytes of the lines that wait for one tail. A line usually has 300 bytes, and at most some 70 KiB.
const BYTES_MAX: usize = 256 * 1024;

/// A selection of log entries. Absent conditions admit everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TailFilter {
    /// The first digit of the status: 5 for 500 to 599.
    pub status_class: Option<u8>,
    /// A prefix of the path, as the client sent it.
    pub path_prefix: Option<String>,
    /// Text within the line.
    pub text: Option<String>,
    /// The network of the client's address; for one address, the network of that address alone.
    pub client: Option<Network>,
}

/// The log entry of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TailEntry {
    /// The status of the response.
    pub status: u16,
    /// The line in the log's JSON format, without a line break.
    pub line: Arc<[u8]>,
}

/// A live view of the access log, which ends when it is dropped.
pub struct LogTail {
    queue: Arc<TailQueue>,
    entries: Receiver<TailEntry>,
    shared: Arc<LogShared>,
}

/// The workers' view of a tail.
pub(super) struct TailQueue {
    filter: TailFilter,
    entries: SyncSender<TailEntry>,
    bytes: AtomicUsize,
    dropped: AtomicU64,
    /// Whether the reader found the queue empty.
    waits: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The tails of a log.
#[derive(Default)]
pub(super) struct Tails {
    queues: Mutex<Vec<Arc<TailQueue>>>,
    /// Counts changes of `queues`.
    version: AtomicU64,
}

/// A worker's list of tails.
#[derive(Default)]
pub(super) struct TailList {
    queues: Vec<Weak<TailQueue>>,
    version: u64,
    line: Vec<u8>,
}

/// The mode: the log's format, and a bit for tails.
impl LogShared {
    /// Sets the format in the mode.
    pub(super) fn set_format(&self, format: u8) {
        self.set_mode(|mode| mode & TAILED | format);
    }

    /// Ends the output of the server, whose reader has exited.
    pub(super) fn end_main(&self) {
        let has_others = self.has_others.load(Ordering::Relaxed);
        self.set_mode(|mode| if has_others { mode | MAIN_OFF } else { mode & TAILED | OFF });
    }

    fn set_tailed(&self, tailed: bool) {
        self.set_mode(|mode| mode & !TAILED | if tailed { TAILED } else { 0 });
    }

    fn set_mode(&self, change: impl Fn(u8) -> u8) {
        let mut mode = self.mode.load(Ordering::Relaxed);
        while let Err(other) =
            self.mode.compare_exchange_weak(mode, change(mode), Ordering::Relaxed, Ordering::Relaxed)
        {
            mode = other;
        }
    }
}

impl TailFilter {
    fn admits(&self, status: u16, path: &[u8], line: &[u8]) -> bool {
        let contains = |text: &String| {
            text.is_empty() || line.windows(text.len()).any(|window| window == text.as_bytes())
        };
        self.status_class.is_none_or(|class| u16::from(class) == status / 100)
            && self.path_prefix.as_ref().is_none_or(|prefix| path.starts_with(prefix.as_bytes()))
            && self
                .client
                .is_none_or(|network| client_of(line).is_some_and(|client| network.contains(client)))
            && self.text.as_ref().is_none_or(contains)
    }
}

impl LogTail {
    /// Begins a tail. A worker calls `wake` when an entry arrives after [`LogTail::try_next`] found none; `wake` must not
    /// block. Returns `None` at the limit of tails.
    pub(super) fn begin(
        shared: &Arc<LogShared>,
        filter: TailFilter,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        let (sender, entries) = sync_channel(ENTRIES_MAX);
        let queue = Arc::new(TailQueue {
            filter,
            entries: sender,
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            waits: AtomicBool::new(true),
            wake: Box::new(wake),
        });
        let mut queues = lock(&shared.tails.queues);
        if queues.len() >= TAILS_MAX {
            return None;
        }
        queues.push(Arc::clone(&queue));
        shared.tails.version.fetch_add(1, Ordering::Release);
        shared.set_tailed(true);
        drop(queues);
        Some(Self { queue, entries, shared: Arc::clone(shared) })
    }

    /// Returns the next entry, if there is one.
    pub fn try_next(&self) -> Option<TailEntry> {
        let mut entry = self.entries.try_recv().ok();
        if entry.is_none() {
            // An entry that arrives between the two attempts is either found by the second one, or wakes the reader.
            self.queue.waits.store(true, Ordering::SeqCst);
            entry = self.entries.try_recv().ok();
        }
        self.taken(entry)
    }

    /// Waits for the next entry. Returns `None` if none arrives in time. For threads that may block.
    pub fn next_within(&self, time: Duration) -> Option<TailEntry> {
        let received = self.entries.recv_timeout(time);
        debug_assert_ne!(received, Err(RecvTimeoutError::Disconnected), "the queue holds a sender");
        self.taken(received.ok())
    }

    /// Number of entries that did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped.load(Ordering::Relaxed)
    }

    fn taken(&self, entry: Option<TailEntry>) -> Option<TailEntry> {
        if let Some(entry) = &entry {
            self.queue.bytes.fetch_sub(entry.line.len(), Ordering::AcqRel);
        }
        entry
    }
}

impl Drop for LogTail {
    fn drop(&mut self) {
        let mut queues = lock(&self.shared.tails.queues);
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.shared.tails.version.fetch_add(1, Ordering::Release);
        if queues.is_empty() {
            self.shared.set_tailed(false);
        }
    }
}

impl TailQueue {
    fn offer(&self, entry: TailEntry) {
        let bytes = entry.line.len();
        if self.bytes.fetch_add(bytes, Ordering::AcqRel) + bytes > BYTES_MAX
            || self.entries.try_send(entry).is_err()
        {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.waits.swap(false, Ordering::SeqCst) {
            (self.wake)();
        }
    }
}

impl TailList {
    /// Offers a request to the tails whose filters admit it. `put` writes its line.
    pub(super) fn offer(&mut self, tails: &Tails, status: u16, path: &[u8], put: impl FnOnce(&mut Vec<u8>)) {
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
