//! A disk in memory for tests, which loses power, fails or fills up on request.
//!
//! ```text
//!  write ─► cached ── sync_data ─► synced
//!              └── restart: each write since the last sync is lost or kept
//! ```
//! A restart ends the process that used the disk: files opened before it return errors from then on.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, StorageBackend};

use crate::Opener;

/// A simulated disk with one file. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    synced: Vec<u8>,
    cached: Vec<u8>,
    /// Writes since the last sync, in order.
    writes: Vec<(usize, Vec<u8>)>,
    syncs: u64,
    /// The number of the sync at which the power fails.
    off_at: Option<u64>,
    /// How many of the next syncs fail.
    failing: u64,
    /// Capacity in bytes; `None`: unlimited.
    space: Option<usize>,
    /// Number of restarts.
    life: u64,
}

/// An injected fault.
#[derive(Clone, Copy, Debug)]
enum DiskFault {
    /// The power is off, or the file was opened before a restart.
    Power,
    /// A sync that was to fail.
    Sync,
}

/// The file, as opened by one process.
#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    life: u64,
}

impl Disk {
    /// Returns an opener of the database on this disk.
    pub fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move |verify| {
            let life = disk.state().life;
            let mut builder = Database::builder();
            builder
                .set_check_integrity_on_open(verify)
                .create_with_backend(DiskFile { disk: disk.clone(), life })
        })
    }

    /// Cuts the power at a sync, counted from now: 1 is the next one.
    pub fn lose_power_at(&self, sync: u64) {
        let mut state = self.state();
        state.off_at = Some(state.syncs + sync);
    }

    /// Returns whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state().is_off()
    }

    /// Lets the next `count` syncs fail, and no other operation.
    pub fn fail_syncs(&self, count: u64) {
        self.state().failing = count;
    }

    /// Limits the capacity to the bytes in use, or removes the limit.
    pub fn fill(&self, full: bool) {
        let mut state = self.state();
        state.space = full.then_some(state.cached.len());
    }

    /// Restarts the process, with the power back on. A write since the last sync survives if `reached` returns true for it.
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

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskState {
    fn is_off(&self) -> bool {
        self.off_at.is_some_and(|at| self.syncs >= at)
    }
}

impl fmt::Display for DiskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Power => "the power is gone",
            Self::Sync => "a fault of the disk",
        })
    }
}

impl std::error::Error for DiskFault {}

impl From<DiskFault> for io::Error {
    fn from(fault: DiskFault) -> Self {
        Self::other(fault)
    }
}

impl DiskFile {
    fn state(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.disk.state();
        let gone = self.life != state.life || state.is_off();
        if gone { Err(DiskFault::Power.into()) } else { Ok(state) }
    }
}

impl StorageBackend for DiskFile {
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
        // The size is metadata, which the file system journals.
        state.synced.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.state()?;
        let state = &mut *guard;
        state.syncs += 1;
        if state.is_off() {
            return Err(DiskFault::Power.into());
        }
        if state.failing > 0 {
            state.failing -= 1;
            return Err(DiskFault::Sync.into());
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
