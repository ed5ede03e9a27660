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

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

mod filter;
mod queue;

pub use filter::TailFilter;
pub use queue::TailEntry;
pub(super) use queue::{TailList, Tails};

use super::{LogShared, MAIN_OFF, OFF, TAILED};
use queue::TailReader;

/// A live view of the access log, which ends when it is dropped.
pub struct LogTail {
    reader: TailReader,
    shared: Arc<LogShared>,
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

impl LogTail {
    /// Begins a tail. A worker calls `wake` when an entry arrives after [`LogTail::try_next`] found none; `wake` must not
    /// block. Returns `None` at the limit of tails.
    pub(super) fn begin(
        shared: &Arc<LogShared>,
        filter: TailFilter,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Option<Self> {
        let reader = TailReader::new(filter, Box::new(wake));
        let is_added = shared.tails.add(&reader.queue, || shared.set_tailed(true));
        is_added.then(|| Self { reader, shared: Arc::clone(shared) })
    }

    /// Returns the next entry, if there is one.
    pub fn try_next(&self) -> Option<TailEntry> {
        self.reader.try_next()
    }

    /// Waits for the next entry. Returns `None` if none arrives in time. For threads that may block.
    pub fn next_within(&self, time: Duration) -> Option<TailEntry> {
        self.reader.next_within(time)
    }

    /// Number of entries that did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        self.reader.dropped()
    }
}

impl Drop for LogTail {
    fn drop(&mut self) {
        self.shared.tails.remove(&self.reader.queue, || self.shared.set_tailed(false));
    }
}
