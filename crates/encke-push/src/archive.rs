//! The store of durable channels, as workers use it: commits on the thread pool, one at a time.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use encke_broker::{Contents, Store, StoreError};
use encke_hub::{Commit, Epoch, PublishError, SavedHistories};
use encke_io::clock::Clock;
use encke_io::files::{self, FileId};
use encke_io::host;
use encke_stats::{Counter, Family, Histogram};

use crate::error::PushError;
use encke_io::lock;
use encke_settings::{Level, notice};

/// The file's name in the state directory.
const FILE: &str = "push.redb";

/// A store, and its contents until the sequencer takes them.
pub struct Archive {
    /// The path of the file, if the store is in one, and the identity of that file at the start.
    file: Option<(PathBuf, Option<FileId>)>,
    store: Mutex<Store>,
    figures: ArchiveFigures,
    contents: Mutex<Option<Contents>>,
    /// The outcome of the last commit: one of [`STORED`], [`FULL`], [`FAILED`] and [`GONE`]. A change is logged.
    outcome: AtomicU8,
}

const STORED: u8 = 0;
const FULL: u8 = 1;
const FAILED: u8 = 2;
const GONE: u8 = 3;

/// The reason why a commit failed.
enum CommitError {
    Store(StoreError),
    /// The path no longer names the store's file: the next start would not find the commit.
    Gone(PathBuf),
}

impl CommitError {
    fn outcome(&self) -> u8 {
        match self {
            Self::Store(error) if error.is_full() => FULL,
            Self::Store(_) => FAILED,
            Self::Gone(_) => GONE,
        }
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Gone(path) => write!(
                f,
                "{} was deleted, moved or replaced: put it back, or restart the server to use the present file",
                path.display()
            ),
        }
    }
}

impl Archive {
    /// Opens the store in a state directory.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn open(state_dir: &Path) -> Result<Self, PushError> {
        let file = state_dir.join(FILE);
        let opened = Store::open(&file, files::allocate, new_epoch()?)?;
        Ok(Self::of(Some(file), opened))
    }

    /// Wraps an open store, with the path of its file if it has one.
    pub(crate) fn of(file: Option<PathBuf>, (store, contents): (Store, Contents)) -> Self {
        let id = |file: PathBuf| {
            let id = files::id_of(&file);
            (file, id)
        };
        Self {
            file: file.map(id),
            store: Mutex::new(store),
            figures: ArchiveFigures::default(),
            contents: Mutex::new(Some(contents)),
            outcome: AtomicU8::new(STORED),
        }
    }

    /// Returns the epoch of the stored stream, until [`Self::take`].
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        lock(&self.contents).as_ref().map(|contents| contents.saved.epoch)
    }

    /// Returns the stored contents for the sequencer, once.
    pub(crate) fn take(&self) -> Option<Contents> {
        lock(&self.contents).take()
    }

    /// Stores a commit. Blocks until the disk has it.
    pub(crate) fn commit(&self, commit: &Commit) -> Result<(), PublishError> {
        let mut store = lock(&self.store);
        let mut clock = Clock::new();
        let began_ns = clock.now().mono_ns;
        // A file deleted during the commit loses it as well, so the path is checked before and after.
        let done = self.check().and_then(|()| store.commit(commit).map_err(CommitError::Store));
        let done = done.and_then(|()| self.check());
        let ArchiveFigures { stored, full, failed, lasted } = &self.figures;
        lasted.record(clock.now().mono_ns.saturating_sub(began_ns));
        match &done {
            Ok(()) => stored.increment(),
            Err(error) if error.outcome() == FULL => full.increment(),
            Err(_) => failed.increment(),
        }
        drop(store);
        self.tell(done)
    }

    /// Returns the metrics. Does not wait for a commit.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        let ArchiveFigures { stored, full, failed, lasted } = &self.figures;
        let commits = Family::counter("encke_push_commits_total", "Commits of durable channels, by outcome.")
            .with(&[("outcome", "stored")], stored.value())
            .with(&[("outcome", "full")], full.value())
            .with(&[("outcome", "failed")], failed.value());
        let seconds =
            Family::histogram("encke_push_commit_seconds", "Duration of a commit of durable channels.")
                .value(lasted.distribution());
        let bytes = self.file.as_ref().and_then(|(file, _)| fs::metadata(file).ok()).map(|found| found.len());
        let size = bytes.map(|bytes| {
            Family::gauge("encke_push_store_bytes", "Size of the file of durable channels.").value(bytes)
        });
        [commits, seconds].into_iter().chain(size)
    }

    /// Stores the remaining messages at a planned end.
    pub(crate) fn close(&self, commit: Option<&Commit>, saved: &SavedHistories) {
        let mut store = lock(&self.store);
        let done = self.check().and_then(|()| store.close(commit, saved).map_err(CommitError::Store));
        drop(store);
        let _told = self.tell(done);
    }

    /// Checks that the path still names the store's file. Its inode cannot be reused while the file is open.
    fn check(&self) -> Result<(), CommitError> {
        match &self.file {
            Some((path, Some(id))) if files::id_of(path) != Some(*id) => Err(CommitError::Gone(path.clone())),
            _ => Ok(()),
        }
    }

    /// Logs when the store begins to fail, when the cause changes, and when it works again.
    fn tell(&self, done: Result<(), CommitError>) -> Result<(), PublishError> {
        let outcome = done.as_ref().map_or_else(CommitError::outcome, |()| STORED);
        let changed = self.outcome.swap(outcome, Ordering::Relaxed) != outcome;
        match done {
            Ok(()) => {
                if changed {
                    notice::report(Level::Info, "durable channels accept messages again");
                }
                Ok(())
            }
            Err(error) => {
                if changed {
                    let text = format!("durable channels reject messages until they can be stored: {error}");
                    notice::report(Level::Error, &text);
                }
                Err(if outcome == FULL { PublishError::NoSpace } else { PublishError::NotStored })
            }
        }
    }
}

impl Drop for Archive {
    /// A server that did not start closes the store cleanly, so that the next one loses nothing.
    fn drop(&mut self) {
        if let Some(contents) = self.take() {
            self.close(None, &contents.saved);
        }
    }
}

/// Outcomes of commits. Commits are serialized by the store's lock.
#[derive(Default)]
struct ArchiveFigures {
    stored: Counter,
    full: Counter,
    failed: Counter,
    lasted: Histogram,
}

/// Returns a random epoch for a new stream.
///
/// # Errors
/// The system has no random bytes.
pub(crate) fn new_epoch() -> io::Result<Epoch> {
    let mut epoch = [0; 8];
    host::random(&mut epoch)?;
    // Zero is the epoch of foreign ids.
    Ok(Epoch(u64::from_le_bytes(epoch).max(1)))
}
