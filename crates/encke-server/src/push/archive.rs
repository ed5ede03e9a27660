//! The store of durable channels, as workers use it: commits on the pool, one at a time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use encke_broker::{Contents, Store, StoreError};
use encke_hub::{Commit, Epoch, Refusal, Saved};
use encke_io::clock::Clock;
use encke_io::host;
use encke_stats::{Counter, Family, Histogram};

use crate::errors;
use crate::server::lock;
use crate::settings::Level;

/// Its name in the folder of state.
const FILE: &str = "push.redb";

/// A store, and what was in it until the sequencer takes that up.
pub(crate) struct Archive {
    /// Where it is, if that is a file.
    file: Option<PathBuf>,
    store: Mutex<Store>,
    figures: Figures,
    contents: Mutex<Option<Contents>>,
    /// The last commit failed: that was told, and is told no more until one succeeds.
    failing: AtomicBool,
}

impl Archive {
    /// Opens the store in a folder of state.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub(crate) fn open(state_dir: &Path) -> io::Result<Self> {
        let file = state_dir.join(FILE);
        let opened = Store::open(&file, new_epoch()?).map_err(io::Error::other)?;
        Ok(Self::of(Some(file), opened))
    }

    /// Of a store that is open, in a file or somewhere else.
    pub(crate) fn of(file: Option<PathBuf>, (store, contents): (Store, Contents)) -> Self {
        Self {
            file,
            store: Mutex::new(store),
            figures: Figures::default(),
            contents: Mutex::new(Some(contents)),
            failing: AtomicBool::new(false),
        }
    }

    /// The stream that goes on in it.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        lock(&self.contents).as_ref().map(|contents| contents.saved.epoch)
    }

    /// What was in it, for the sequencer: once.
    pub(crate) fn take(&self) -> Option<Contents> {
        lock(&self.contents).take()
    }

    /// Stores a commit. It waits for the disk.
    pub(crate) fn commit(&self, commit: &Commit) -> Result<(), Refusal> {
        let mut store = lock(&self.store);
        let mut clock = Clock::new();
        let began_ns = clock.now().mono_ns;
        let done = store.commit(commit);
        let Figures { stored, full, failed, lasted } = &self.figures;
        lasted.record(clock.now().mono_ns.saturating_sub(began_ns));
        match &done {
            Ok(()) => stored.increment(),
            Err(error) if error.is_full() => full.increment(),
            Err(_) => failed.increment(),
        }
        drop(store);
        self.tell(done)
    }

    /// Its figures. They wait for no commit.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        let Figures { stored, full, failed, lasted } = &self.figures;
        let commits = Family::counter(
            "encke_push_commits_total",
            "Commits of durable channels, by what became of them.",
        )
        .with(&[("outcome", "stored")], stored.value())
        .with(&[("outcome", "full")], full.value())
        .with(&[("outcome", "failed")], failed.value());
        let seconds = Family::histogram("encke_push_commit_seconds", "How long a commit took the disk.")
            .value(lasted.distribution());
        let bytes = self.file.as_ref().and_then(|file| fs::metadata(file).ok()).map(|found| found.len());
        let size = bytes.map(|bytes| {
            Family::gauge("encke_push_store_bytes", "Size of the file that holds durable channels.")
                .value(bytes)
        });
        [commits, seconds].into_iter().chain(size)
    }

    /// Stores what is left at a planned end.
    pub(crate) fn close(&self, commit: Option<&Commit>, saved: &Saved) {
        let done = lock(&self.store).close(commit, saved);
        let _told = self.tell(done);
    }

    /// Says on standard error when the store begins to fail, and when it is well again.
    fn tell(&self, done: Result<(), StoreError>) -> Result<(), Refusal> {
        let failed = done.is_err();
        let failing = self.failing.swap(failed, Ordering::Relaxed);
        match done {
            Ok(()) => {
                if failing {
                    errors::report(Level::Info, "durable channels can be stored again");
                }
                Ok(())
            }
            Err(error) => {
                if !failing {
                    let text = format!("durable channels refuse messages until they can be stored: {error}");
                    errors::report(Level::Error, &text);
                }
                Err(if error.is_full() { Refusal::NoSpace } else { Refusal::NotStored })
            }
        }
    }
}

impl Drop for Archive {
    /// A server that did not start has lost nothing: what was there is there for the next one.
    fn drop(&mut self) {
        if let Some(contents) = self.take() {
            self.close(None, &contents.saved);
        }
    }
}

/// What became of commits. They are counted one at a time, by whoever has the store.
#[derive(Default)]
struct Figures {
    stored: Counter,
    full: Counter,
    failed: Counter,
    lasted: Histogram,
}

/// A name for a stream that begins.
pub(crate) fn new_epoch() -> io::Result<Epoch> {
    let mut epoch = [0; 8];
    host::random(&mut epoch)?;
    // Nought is the epoch of ids that are not ours.
    Ok(Epoch(u64::from_le_bytes(epoch).max(1)))
}
