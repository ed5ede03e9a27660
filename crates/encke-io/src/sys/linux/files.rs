//! Files of Linux: openat2(2), fallocate(2), preadv2(2).

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self as sys, Mode, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::files::{Links, OpenFile, Patience, Root};
use crate::sys::unix::files::READ;

/// Exchanges two files of a file system atomically.
///
/// # Errors
/// One of them does not exist, or the system or the file system does not support this.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(sys::renameat_with(sys::CWD, one, sys::CWD, other, sys::RenameFlags::EXCHANGE)?)
}

/// Allocates the blocks of a file between two offsets, even beyond its end, without changing its length. No effect on systems
/// and file systems that do not support this.
///
/// # Errors
/// The disk is full, or a quota or limit is reached.
pub fn allocate(file: &std::fs::File, from: u64, to: u64) -> io::Result<()> {
    loop {
        return match sys::fallocate(file, sys::FallocateFlags::KEEP_SIZE, from, to.saturating_sub(from)) {
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        };
    }
}

/// Opens a name beneath a root by one call.
pub(crate) fn open_beneath(
    root: &Root,
    name: &[u8],
    links: Links,
    patience: Patience,
) -> Result<OwnedFd, Errno> {
    let mut resolve = match links {
        Links::Deny => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::Follow => ResolveFlags::empty(),
    };
    if patience == Patience::Cached {
        resolve |= ResolveFlags::CACHED;
    }
    match sys::openat2(&root.handle, name, READ, Mode::empty(), resolve) {
        // ENOSYS: before Linux 5.6. EPERM: a seccomp filter. EINVAL: RESOLVE_CACHED, before 5.12.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) if patience == Patience::Cached => Err(Errno::AGAIN),
        Err(Errno::NOSYS | Errno::PERM) => root.open_by_components(name),
        other => other,
    }
}

/// The current path of an open file (/proc/self/fd); `None` if it was removed.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    // The kernel marks removed files, and files hidden by another mount.
    let bytes = path.as_os_str().as_encoded_bytes();
    (path.is_absolute() && !bytes.ends_with(b" (deleted)")).then_some(path)
}

/// Reads from the kernel's memory (preadv2(2) with RWF_NOWAIT).
pub(crate) fn read_cached_at(file: &OpenFile, offset: u64, into: &mut [u8]) -> Option<usize> {
    let wanted = into.len();
    let mut pieces = [io::IoSliceMut::new(into)];
    let read = rustix::io::preadv2(&file.handle, &mut pieces, offset, ReadWriteFlags::NOWAIT).ok()?;
    let ends = offset.saturating_add(read as u64) >= file.metadata.len;
    (read == wanted || ends).then_some(read)
}
