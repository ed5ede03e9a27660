//! A disk in memory, for tests: it loses power, fails and fills up when it is told to.
//!
//! ```text
//!  write ─► cached ── sync_data ─► synced
//!              └── restart: gone, or half of it is
//! ```
//! What a store has opened before a restart is of a process that has ended: it reads and writes nothing any more.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, StorageBackend};

use crate::Opener;

/// A disk, shared by all who hold it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    synced: Vec<u8>,
    cached: Vec<u8>,
    /// Writes since the last sync, in order.
    writes: Vec<(usize, Vec<u8>)>,
    syncs: u64,
    /// The power goes at this sync.
    off_at: Option<u64>,
    /// So many of the next syncs fail.
    failing: u64,
    /// There is space for so many bytes.
    space: Option<usize>,
    /// Counts restarts.
    life: u64,
}

/// A file on a disk, as one process has it open.
#[derive(Debug)]
struct File {
    disk: Disk,
    life: u64,
}

impl Disk {
    /// Opens the one file that is on it.
    pub fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move |verify| {
            let life = disk.state().life;
            let mut builder = Database::builder();
            builder.set_check_integrity_on_open(verify).create_with_backend(File { disk: disk.clone(), life })
        })
    }

    /// The power goes at a sync: the next one at 1.
    pub fn lose_power_at(&self, sync: u64) {
        let mut state = self.state();
        state.off_at = Some(state.syncs + sync);
    }

    /// Whether the power is gone.
    pub fn is_off(&self) -> bool {
        self.state().is_off()
    }

    /// The next syncs fail, and nothing else does.
    pub fn fail_syncs(&self, count: u64) {
        self.state().failing = count;
    }

    /// There is no space for more than is used; or for as much as anybody wants, again.
    pub fn fill(&self, full: bool) {
        let mut state = self.state();
        state.space = full.then_some(state.cached.len());
    }

    /// The process has ended, or the power was gone and is back. Of what was not synced some writes have reached the
    /// disk all the same: `reached` says of each whether it has.
    pub fn restart(&self, mut reached: impl FnMut() -> bool) {
        let mut state = self.state();
        let mut bytes = std::mem::take(&mut state.synced);
        for (at, data) in std::mem::take(&mut state.writes) {
            if let Some(place) = bytes.get_mut(at..at + data.len())
                && reached()
            {
                place.copy_from_slice(&data);
            }
        }
        state.cached.clone_from(&bytes);
        state.synced = bytes;
        state.off_at = None;
        state.failing = 0;
        state.life += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_off(&self) -> bool {
        self.off_at.is_some_and(|at| self.syncs >= at)
    }
}

impl File {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        let gone = self.life != state.life || state.is_off();
        if gone { Err(io::Error::other("the power is gone")) } else { Ok(state) }
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state()?;
        let at = offset as usize;
        let bytes = state.cached.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        if state.space.is_some_and(|space| len as usize > space) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.cached.resize(len as usize, 0);
        // Sizes are part of the file's entry, which the file system keeps in its journal.
        state.synced.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.state()?;
        let state = &mut *guard;
        state.syncs += 1;
        if state.is_off() {
            return Err(io::Error::other("the power is gone"));
        }
        if state.failing > 0 {
            state.failing -= 1;
            return Err(io::Error::other("a fault of the disk"));
        }
        for (at, data) in state.writes.drain(..) {
            if let Some(place) = state.synced.get_mut(at..at + data.len()) {
                place.copy_from_slice(&data);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        let at = offset as usize;
        let place = state.cached.get_mut(at..at + data.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        place.copy_from_slice(data);
        state.writes.push((at, data.to_vec()));
        Ok(())
    }
}
