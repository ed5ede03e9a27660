//! Files of Unix systems other than Linux.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::files::{Links, OpenFile, Patience, Root};

/// Not available on this system.
///
/// # Errors
/// Always.
pub fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: not supported on this system.
///
/// # Errors
/// None.
pub fn allocate(_file: &std::fs::File, _from: u64, _to: u64) -> io::Result<()> {
    Ok(())
}

/// Opens a name beneath a root, component by component.
pub(crate) fn open_beneath(root: &Root, name: &[u8], _: Links, patience: Patience) -> Result<OwnedFd, Errno> {
    if patience == Patience::Cached {
        return Err(Errno::AGAIN);
    }
    root.open_by_components(name)
}

/// Not available on this system: always `None`.
pub(crate) fn path_of(_: BorrowedFd<'_>) -> Option<PathBuf> {
    None
}

/// Not supported on this system: always `None`.
pub(crate) fn read_cached_at(_: &OpenFile, _: u64, _: &mut [u8]) -> Option<usize> {
    None
}
