//! The store of durable channels, as workers use it: commits on the pool, one at a time.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use encke_broker::{Contents, Store, StoreError};
use encke_hub::{Commit, Epoch, Refusal, Saved};
use encke_io::host;

use crate::errors;
use crate::server::lock;
use crate::settings::Level;

/// Its name in the folder of state.
const FILE: &str = "push.redb";

/// A store, and what was in it until the sequencer takes that up.
pub(crate) struct Archive {
    store: Mutex<Store>,
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
        let opened = Store::open(&state_dir.join(FILE), new_epoch()?).map_err(io::Error::other)?;
        Ok(Self::of(opened))
    }

    pub(crate) fn of((store, contents): (Store, Contents)) -> Self {
        Self {
            store: Mutex::new(store),
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
        let done = lock(&self.store).commit(commit);
        self.tell(done)
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

/// A name for a stream that begins.
pub(crate) fn new_epoch() -> io::Result<Epoch> {
    let mut epoch = [0; 8];
    host::random(&mut epoch)?;
    // Nought is the epoch of ids that are not ours.
    Ok(Epoch(u64::from_le_bytes(epoch).max(1)))
}
