//! Files of Unix, opened relative to descriptors of their directories.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::{
    DirEntry, FileId, FileKind, Links, Metadata, OpenError, OpenFile, Patience, Root, regular,
};
use crate::sys::own::files as own;

pub use crate::sys::own::files::{allocate, exchange};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The open directory of a [`Root`].
pub(crate) type RootHandle = OwnedFd;
/// The handle of an [`OpenFile`].
pub(crate) type FileHandle = OwnedFd;

/// Non-blocking, so that opening a named pipe never hangs. The pipe is rejected afterwards because of its type.
pub(crate) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The identity of the file at `path`; `None` if it cannot be determined.
pub fn id_of(path: &Path) -> Option<FileId> {
    let metadata = Metadata::from(&sys::stat(path).ok()?);
    Some((metadata.device, metadata.inode))
}

/// Tests whether this process may write to a file, or create files in a directory.
///
/// # Errors
/// It may not, or the path does not exist.
pub fn may_write(path: &Path) -> io::Result<()> {
    Ok(sys::access(path, sys::Access::WRITE_OK)?)
}

/// The command that lets the owner of a file write it.
pub fn allow_writing(file: &Path) -> String {
    format!("chmod u+w {}", file.display())
}

/// Whether a request may use `name`, a path relative to `root` with `/` between its segments, for the file at `real`, an
/// absolute path without links. On Windows a file has many names, and only its true name may be used. On this system each
/// name is a directory entry of its own: always true.
pub fn is_used_name(_root: &Path, _name: &str, _real: &Path) -> bool {
    true
}

/// The usual form of an absolute path, for other programs. Only Windows has another one.
pub fn plain_path(path: &Path) -> std::borrow::Cow<'_, Path> {
    path.into()
}

/// Opens a regular file to read. Never waits for the writer of a named pipe.
///
/// # Errors
/// The system's, or the path leads to something else than a regular file.
pub fn open_regular(path: &Path) -> io::Result<std::fs::File> {
    regular(std::fs::File::from(sys::open(path, READ, Mode::empty())?))
}

impl Root {
    /// Opens a directory to serve files from.
    ///
    /// # Errors
    /// The path does not exist, is not a directory, or may not be read.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let handle = sys::open(&path, READ | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { handle, path })
    }

    /// Opens `name`, a path relative to the root without a leading slash. `""` is the root itself.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, name: &[u8], links: Links, patience: Patience) -> Result<OpenFile, OpenError> {
        let name = if name.is_empty() { b".".as_slice() } else { name };
        let descriptor = match links {
            Links::Follow if patience == Patience::Patient => {
                sys::openat(&self.handle, name, READ, Mode::empty())
            }
            _ => own::open_beneath(self, name, links, patience),
        }
        .map_err(OpenError::from)?;
        OpenFile::of(descriptor).map_err(OpenError::from)
    }

    /// The identity of the root directory.
    ///
    /// # Errors
    /// The file system's.
    pub fn id(&self) -> io::Result<FileId> {
        let metadata = Metadata::from(&sys::fstat(&self.handle)?);
        Ok((metadata.device, metadata.inode))
    }

    /// The portable fallback: one openat(2) per component, none of which may be a link.
    pub(crate) fn open_by_components(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let mut folder: Option<OwnedFd> = None;
        let mut components = name.split(|&byte| byte == b'/').filter(|part| *part != b".").peekable();
        while let Some(component) = components.next() {
            if component == b".." || component.is_empty() && components.peek().is_some() {
                return Err(Errno::XDEV);
            }
            if component.is_empty() {
                break;
            }
            let at: BorrowedFd<'_> = folder.as_ref().unwrap_or(&self.handle).as_fd();
            let kind = if components.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
            folder = Some(sys::openat(at, component, READ | OFlags::NOFOLLOW | kind, Mode::empty())?);
        }
        match folder {
            Some(last) => Ok(last),
            None => sys::openat(&self.handle, c".", READ, Mode::empty()),
        }
    }
}

impl OpenFile {
    /// Opens the directory at `path`, which may not be a link itself.
    ///
    /// # Errors
    /// See [`OpenError`]. The error is [`OpenError::NotFound`] also if `path` is not a directory.
    pub fn folder(path: &Path) -> Result<Self, OpenError> {
        let descriptor = sys::open(path, READ | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self::of(descriptor)?)
    }

    fn of(descriptor: OwnedFd) -> Result<Self, Errno> {
        let metadata = Metadata::from(&sys::fstat(&descriptor)?);
        Ok(Self { handle: descriptor, metadata })
    }

    /// The file's current metadata.
    ///
    /// # Errors
    /// The file system's.
    pub fn stat(&self) -> io::Result<Metadata> {
        Ok(Metadata::from(&sys::fstat(&self.handle)?))
    }

    /// The identity of the file, independent of the name used to open it.
    pub fn id(&self) -> FileId {
        (self.metadata.device, self.metadata.inode)
    }

    /// The file's current path with links resolved; `None` if the system does not report it, or the file was removed.
    pub fn path(&self) -> Option<PathBuf> {
        own::path_of(self.handle.as_fd())
    }

    /// Reads at `offset` from the kernel's memory, without waiting for a disk. Returns `None` unless the read fills `into` or
    /// reaches the end of the file. Also `None` if the system or the file system does not support this.
    pub fn read_cached_at(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        own::read_cached_at(self, offset, into)
    }

    /// Reads at `offset` until `into` is full or the file ends. Returns the number of bytes read. May wait for a disk.
    ///
    /// # Errors
    /// The file system's.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match rustix::io::pread(&self.handle, &mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(filled)
    }

    /// The entries of a directory, unsorted, at most `limit`, and whether more exist. Omits `.`, `..`, and entries whose
    /// metadata cannot be read.
    ///
    /// # Errors
    /// Not a directory, or an error of the file system.
    // The fields of struct stat have other widths on other systems.
    #[allow(clippy::unnecessary_cast)]
    pub fn entries(&self, limit: usize) -> io::Result<(Vec<DirEntry>, bool)> {
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, true));
            }
            if let Ok(stat) = sys::statat(&self.handle, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                let is_link = FileType::from_raw_mode(stat.st_mode as _) == FileType::Symlink;
                entries.push(DirEntry { name: name.to_vec(), is_link, metadata: Metadata::from(&stat) });
            }
        }
        Ok((entries, false))
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl From<&sys::Stat> for Metadata {
    // The fields of struct stat have other widths on other systems.
    #[allow(clippy::unnecessary_cast)]
    fn from(stat: &sys::Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode as _) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            _ => FileKind::Other,
        };
        let moment = |seconds: i64, nanoseconds: i64| {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
        };
        Self {
            kind,
            len: u64::try_from(stat.st_size as i64).unwrap_or(0),
            modified_ns: moment(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed_ns: moment(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            inode: stat.st_ino as u64,
            device: stat.st_dev as u64,
        }
    }
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Self::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV | Errno::NXIO => Self::Forbidden,
            Errno::AGAIN => Self::NotCached,
            Errno::MFILE | Errno::NFILE => Self::Descriptors,
            other => Self::System(other.raw_os_error()),
        }
    }
}

/// The target of a link on the way to a file; `None` if the path leads to something else (EINVAL, readlink(2)).
pub(crate) fn step_target(path: &Path) -> io::Result<Option<PathBuf>> {
    match std::fs::read_link(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        target => target.map(Some),
    }
}

/// Whether a file can have this name: any bytes are a name on this system.
pub(crate) fn may_exist(_name: &[u8]) -> bool {
    true
}

/// A component of a path, as the system has it.
pub(crate) fn os_name(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

/// Creates a file that only its owner may read and write, and opens it to write.
pub(crate) fn create_private(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Whether only the owner may read the file or directory.
pub(crate) fn is_private(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(path)?.mode() & 0o077 == 0)
}

/// Creates a directory for its owner only.
pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The owner, the group and the permissions of a file.
#[derive(Debug)]
pub(crate) struct OwnRights(std::fs::Metadata);

impl OwnRights {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self(std::fs::metadata(path)?))
    }

    /// Gives these rights to a new file.
    pub(crate) fn give_to(&self, file: &std::fs::File) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
        let (own, old) = (file.metadata()?, &self.0);
        let mut mode = old.mode() & 0o777;
        if own.gid() != old.gid() && fchown(file, None, Some(old.gid())).is_err() {
            mode &= 0o707;
        }
        if own.uid() != old.uid() {
            let _not_root = fchown(file, Some(old.uid()), None);
        }
        file.set_permissions(std::fs::Permissions::from_mode(mode))
    }
}

/// Stores the names of a directory on the disk.
pub(crate) fn sync_directory(folder: &Path) -> io::Result<()> {
    match std::fs::File::open(folder)?.sync_all() {
        // Some network file systems cannot sync directories.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}
