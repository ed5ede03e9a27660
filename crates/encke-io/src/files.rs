//! Files beneath a root, opened so that no name can lead outside it.
//!
//! [`Root::open`] resolves names in the kernel with openat2(2) and `RESOLVE_BENEATH`, so that dots, links and races cannot
//! escape. Where openat2 is missing (before Linux 5.6, under a seccomp filter, on other systems), it opens each component
//! separately without following links. That is equally safe, and rejects every symbolic link.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Policy for symbolic links below the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Links {
    /// Follow no links.
    Deny,
    /// Follow links whose target is below the root and given by a relative path.
    #[default]
    Beneath,
    /// Follow all links. Any user that can write below the root can then publish any readable file.
    Follow,
}

/// Whether opening a file may wait for a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Use only the kernel's caches; otherwise fail with [`OpenError::NotCached`].
    Cached,
    /// Wait as long as it takes: for the thread pool.
    Patient,
}

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A device, socket or pipe: never served.
    Other,
}

/// Metadata of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The file type.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Last modification of the contents, in ns since 1970. Earlier times read as 1970.
    pub modified_ns: u64,
    /// Last change of the contents or the metadata (ctime), in ns since 1970. No program can set it, so it also distinguishes
    /// contents that were given the same `modified_ns`.
    pub changed_ns: u64,
    /// The file's inode number on its device.
    pub inode: u64,
    /// The device number.
    pub device: u64,
}

/// The reason why a name could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The name does not exist.
    NotFound,
    /// Access denied by permissions, or by the policy for links.
    Forbidden,
    /// The lookup needs the disk ([`Patience::Cached`]).
    NotCached,
    /// Out of descriptors.
    Descriptors,
    /// Any other error, with the system's error number.
    System(i32),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no such file"),
            Self::Forbidden => f.write_str("not permitted"),
            Self::NotCached => f.write_str("not in the page cache"),
            Self::Descriptors => f.write_str("out of file descriptors"),
            Self::System(number) => write!(f, "{}", io::Error::from_raw_os_error(*number)),
        }
    }
}

impl std::error::Error for OpenError {}

/// A directory whose files are served.
#[derive(Debug)]
pub struct Root {
    #[cfg(unix)]
    descriptor: rustix::fd::OwnedFd,
    path: PathBuf,
}

/// An open file or directory, with its metadata.
#[derive(Debug)]
pub struct OpenFile {
    #[cfg(unix)]
    pub(crate) descriptor: rustix::fd::OwnedFd,
    /// The metadata at the time of opening.
    pub metadata: Metadata,
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The file name as raw bytes.
    pub name: Vec<u8>,
    /// Whether the entry is a symbolic link. [`Root::open`] decides whether it may be followed.
    pub is_link: bool,
    /// Type, length and times. Those of the link itself if the entry is a link ([`FileKind::Other`]).
    pub metadata: Metadata,
}

/// Device and inode. All names of one file share it.
pub type FileId = (u64, u64);

/// A directory lookup that determines the target of a name: if the entry changes, so may the target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathStep {
    /// The directory, by its real path.
    pub folder: PathBuf,
    /// The entry looked up.
    pub name: Vec<u8>,
}

impl Root {
    /// The path given to [`Root::new`], made absolute and with links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lookups that determine the target of `name`: one for each symbolic link followed, and a last one for the file itself
    /// or the first missing component. Directories passed through without a link are omitted, because they are ancestors of
    /// those listed. Returns `None` if the links form a cycle.
    ///
    /// This is for change notifications only, and never decides about access: [`Root::open`] does.
    pub fn steps(&self, name: &[u8]) -> Option<Vec<PathStep>> {
        let mut steps = Vec::new();
        let mut folder = self.path.clone();
        let mut pending: Vec<Vec<u8>> = components(name);
        let mut links = 0;
        while let Some(component) = pending.pop() {
            if component == b".." {
                folder.pop();
                continue;
            }
            let path = folder.join(os_name(&component));
            match std::fs::read_link(&path) {
                Ok(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    steps.push(PathStep { folder: folder.clone(), name: component });
                    if target.has_root() {
                        folder = PathBuf::from("/");
                    }
                    pending.append(&mut components(target.as_os_str().as_encoded_bytes()));
                }
                // EINVAL: the entry exists and is not a link.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && !pending.is_empty() => {
                    folder = path;
                }
                Err(_) => {
                    steps.push(PathStep { folder, name: component });
                    return Some(steps);
                }
            }
        }
        Some(steps)
    }
}

/// The components of a path, in reverse order.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.rsplit(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(unix)]
fn os_name(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

#[cfg(not(unix))]
fn os_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Maximum number of links followed in one lookup: the kernel's own limit (path_resolution(7)).
const LINKS_MAX: usize = 40;

#[cfg(unix)]
mod unix {
    use super::*;
    use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
    use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags};
    use rustix::io::Errno;

    /// Non-blocking, so that opening a named pipe never hangs. The pipe is rejected afterwards because of its type.
    const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

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

    /// Opens a regular file to read. Never waits for the writer of a named pipe.
    ///
    /// # Errors
    /// The system's, or the path leads to something else than a regular file.
    pub fn open_regular(path: &Path) -> io::Result<std::fs::File> {
        regular(std::fs::File::from(sys::open(path, READ, Mode::empty())?))
    }

    /// Exchanges two files of a file system atomically.
    ///
    /// # Errors
    /// One of them does not exist, or the system or the file system does not support this.
    pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return Ok(sys::renameat_with(sys::CWD, one, sys::CWD, other, sys::RenameFlags::EXCHANGE)?);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (one, other);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Allocates the blocks of a file between two offsets, even beyond its end, without changing its length. No effect on
    /// systems and file systems that do not support this.
    ///
    /// # Errors
    /// The disk is full, or a quota or limit is reached.
    pub fn allocate(file: &std::fs::File, from: u64, to: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        loop {
            return match sys::fallocate(file, sys::FallocateFlags::KEEP_SIZE, from, to.saturating_sub(from)) {
                Err(Errno::INTR) => continue,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
                done => Ok(done?),
            };
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, from, to);
            Ok(())
        }
    }

    impl Root {
        /// Opens a directory to serve files from.
        ///
        /// # Errors
        /// The path does not exist, is not a directory, or may not be read.
        pub fn new(path: &Path) -> io::Result<Self> {
            let path = path.canonicalize()?;
            let descriptor = sys::open(&path, READ | OFlags::DIRECTORY, Mode::empty())?;
            Ok(Self { descriptor, path })
        }

        /// Opens `name`, a path relative to the root without a leading slash. `""` is the root itself.
        ///
        /// # Errors
        /// See [`OpenError`].
        pub fn open(&self, name: &[u8], links: Links, patience: Patience) -> Result<OpenFile, OpenError> {
            let name = if name.is_empty() { b".".as_slice() } else { name };
            let descriptor = match links {
                Links::Follow if patience == Patience::Patient => {
                    sys::openat(&self.descriptor, name, READ, Mode::empty())
                }
                _ => self.open_beneath(name, links, patience),
            }
            .map_err(OpenError::from)?;
            OpenFile::of(descriptor).map_err(OpenError::from)
        }

        /// The identity of the root directory.
        ///
        /// # Errors
        /// The file system's.
        pub fn id(&self) -> io::Result<FileId> {
            let metadata = Metadata::from(&sys::fstat(&self.descriptor)?);
            Ok((metadata.device, metadata.inode))
        }

        #[cfg(target_os = "linux")]
        fn open_beneath(&self, name: &[u8], links: Links, patience: Patience) -> Result<OwnedFd, Errno> {
            use rustix::fs::ResolveFlags;
            let mut resolve = match links {
                Links::Deny => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
                Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
                Links::Follow => ResolveFlags::empty(),
            };
            if patience == Patience::Cached {
                resolve |= ResolveFlags::CACHED;
            }
            match sys::openat2(&self.descriptor, name, READ, Mode::empty(), resolve) {
                // ENOSYS: before Linux 5.6. EPERM: a seccomp filter. EINVAL: RESOLVE_CACHED, before 5.12.
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) if patience == Patience::Cached => {
                    Err(Errno::AGAIN)
                }
                Err(Errno::NOSYS | Errno::PERM) => self.open_by_components(name),
                other => other,
            }
        }

        #[cfg(not(target_os = "linux"))]
        fn open_beneath(&self, name: &[u8], _: Links, patience: Patience) -> Result<OwnedFd, Errno> {
            if patience == Patience::Cached {
                return Err(Errno::AGAIN);
            }
            self.open_by_components(name)
        }

        /// The portable fallback: one openat(2) per component, none of which may be a link.
        pub(super) fn open_by_components(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
            let mut folder: Option<OwnedFd> = None;
            let mut components = name.split(|&byte| byte == b'/').filter(|part| *part != b".").peekable();
            while let Some(component) = components.next() {
                if component == b".." || component.is_empty() && components.peek().is_some() {
                    return Err(Errno::XDEV);
                }
                if component.is_empty() {
                    break;
                }
                let at: BorrowedFd<'_> = folder.as_ref().unwrap_or(&self.descriptor).as_fd();
                let kind = if components.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
                folder = Some(sys::openat(at, component, READ | OFlags::NOFOLLOW | kind, Mode::empty())?);
            }
            match folder {
                Some(last) => Ok(last),
                None => sys::openat(&self.descriptor, c".", READ, Mode::empty()),
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
            Ok(Self { descriptor, metadata })
        }

        /// The file's current metadata.
        ///
        /// # Errors
        /// The file system's.
        pub fn stat(&self) -> io::Result<Metadata> {
            Ok(Metadata::from(&sys::fstat(&self.descriptor)?))
        }

        /// The identity of the file, independent of the name used to open it.
        pub fn id(&self) -> FileId {
            (self.metadata.device, self.metadata.inode)
        }

        /// The file's current path with links resolved; `None` if the system does not report it, or the file was removed.
        #[cfg(target_os = "linux")]
        pub fn path(&self) -> Option<PathBuf> {
            use std::os::fd::AsRawFd;
            let path = std::fs::read_link(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())).ok()?;
            // The kernel marks removed files, and files hidden by another mount.
            let bytes = path.as_os_str().as_encoded_bytes();
            (path.is_absolute() && !bytes.ends_with(b" (deleted)")).then_some(path)
        }

        /// Not available on this system: always `None`.
        #[cfg(not(target_os = "linux"))]
        pub fn path(&self) -> Option<PathBuf> {
            None
        }

        /// Reads at `offset` from the kernel's memory, without waiting for a disk (preadv2(2) with RWF_NOWAIT). Returns `None`
        /// unless the read fills `into` or reaches the end of the file. Also `None` if the file system does not support this.
        #[cfg(target_os = "linux")]
        pub fn read_cached_at(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
            use rustix::io::ReadWriteFlags;
            let wanted = into.len();
            let mut pieces = [io::IoSliceMut::new(into)];
            let read =
                rustix::io::preadv2(&self.descriptor, &mut pieces, offset, ReadWriteFlags::NOWAIT).ok()?;
            let ends = offset.saturating_add(read as u64) >= self.metadata.len;
            (read == wanted || ends).then_some(read)
        }

        /// Not supported on this system: always `None`.
        #[cfg(not(target_os = "linux"))]
        pub fn read_cached_at(&self, _offset: u64, _into: &mut [u8]) -> Option<usize> {
            None
        }

        /// Reads at `offset` until `into` is full or the file ends. Returns the number of bytes read. May wait for a disk.
        ///
        /// # Errors
        /// The file system's.
        pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let mut filled = 0;
            while filled < into.len() {
                match rustix::io::pread(&self.descriptor, &mut into[filled..], offset + filled as u64) {
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
            for entry in sys::Dir::read_from(&self.descriptor)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                if entries.len() == limit {
                    return Ok((entries, true));
                }
                if let Ok(stat) = sys::statat(&self.descriptor, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                {
                    let is_link = FileType::from_raw_mode(stat.st_mode as _) == FileType::Symlink;
                    entries.push(DirEntry { name: name.to_vec(), is_link, metadata: Metadata::from(&stat) });
                }
            }
            Ok((entries, false))
        }
    }

    impl AsFd for OpenFile {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.descriptor.as_fd()
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
}

#[cfg(unix)]
pub use unix::{allocate, exchange, id_of, may_write, open_regular};

/// Does nothing: not supported on this system.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn allocate(_file: &std::fs::File, _from: u64, _to: u64) -> io::Result<()> {
    Ok(())
}

fn regular(file: std::fs::File) -> io::Result<std::fs::File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Opens a regular file to read.
///
/// # Errors
/// The system's, or the path leads to something else than a regular file.
#[cfg(not(unix))]
pub fn open_regular(path: &Path) -> io::Result<std::fs::File> {
    regular(std::fs::File::open(path)?)
}

/// Not available on this system.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Not available on this system: always `None`.
#[cfg(not(unix))]
pub fn id_of(_path: &Path) -> Option<FileId> {
    None
}

/// Not available on this system: `Ok` if the path exists.
///
/// # Errors
/// The path does not exist.
#[cfg(not(unix))]
pub fn may_write(path: &Path) -> io::Result<()> {
    std::fs::metadata(path).map(drop)
}

#[cfg(not(unix))]
impl Root {
    /// Opens a directory to serve files from.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn new(_path: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The identity of the root directory.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn id(&self) -> io::Result<FileId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Opens a name beneath the root.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn open(&self, _name: &[u8], _links: Links, _patience: Patience) -> Result<OpenFile, OpenError> {
        Err(OpenError::Forbidden)
    }
}

#[cfg(not(unix))]
impl OpenFile {
    /// Opens a directory.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn folder(_path: &Path) -> Result<Self, OpenError> {
        Err(OpenError::Forbidden)
    }

    /// Not available on this system: always `None`.
    pub fn path(&self) -> Option<PathBuf> {
        None
    }

    /// Not supported on this system: always `None`.
    pub fn read_cached_at(&self, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    /// The file's current metadata.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn stat(&self) -> io::Result<Metadata> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reads at an offset.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn read_at(&self, _offset: u64, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// Always: files cannot be served on this system yet.
    pub fn entries(&self, _limit: usize) -> io::Result<(Vec<DirEntry>, bool)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The identity of the file.
    pub fn id(&self) -> FileId {
        (self.metadata.device, self.metadata.inode)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory `site` next to a secret file, removed at the end.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("encke-files-{name}-{}", std::process::id()));
            let _left = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("site/sub")).expect("a writable temporary folder");
            std::fs::write(path.join("secret"), "secret").expect("written");
            std::fs::write(path.join("site/a"), "aaaa").expect("written");
            std::fs::write(path.join("site/sub/b"), "bb").expect("written");
            symlink("../secret", path.join("site/out")).expect("linked");
            symlink(path.join("secret"), path.join("site/absolute")).expect("linked");
            symlink("sub/b", path.join("site/in")).expect("linked");
            symlink("..", path.join("site/up")).expect("linked");
            Self(path)
        }

        fn root(&self) -> Root {
            Root::new(&self.0.join("site")).expect("opened")
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _gone = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn nothing_outside_the_root_can_be_opened() {
        let scene = Scene::new("escape");
        let root = scene.root();
        for name in ["../secret", "sub/../../secret", "out", "absolute", "up/secret", "/etc/passwd", ".."] {
            for links in [Links::Deny, Links::Beneath] {
                let opened = root.open(name.as_bytes(), links, Patience::Patient);
                assert!(
                    matches!(opened, Err(OpenError::Forbidden | OpenError::NotFound)),
                    "{name} with {links:?}: {opened:?}"
                );
            }
            assert!(root.open_by_components(name.as_bytes()).is_err(), "{name} by components");
        }
    }

    #[test]
    fn links_obey_the_policy() {
        let scene = Scene::new("links");
        let root = scene.root();
        let open =
            |name: &str, links| root.open(name.as_bytes(), links, Patience::Patient).map(|f| f.metadata.len);
        assert_eq!(open("in", Links::Deny), Err(OpenError::Forbidden));
        assert_eq!(open("in", Links::Beneath), Ok(2));
        assert_eq!(open("out", Links::Follow), Ok(6));
    }

    #[test]
    fn both_ways_open_the_same_files() {
        let scene = Scene::new("same");
        let root = scene.root();
        for name in ["a", "sub/b", "sub", "sub/", "."] {
            let kernel = root.open(name.as_bytes(), Links::Deny, Patience::Patient).expect("opened");
            let portable = root.open_by_components(name.as_bytes()).expect("opened");
            let stat = rustix::fs::fstat(&portable).expect("stat");
            assert_eq!(Metadata::from(&stat).inode, kernel.metadata.inode, "{name}");
        }
        assert!(matches!(root.open(b"nothing", Links::Deny, Patience::Patient), Err(OpenError::NotFound)));
        assert!(matches!(root.open(b"a/b", Links::Deny, Patience::Patient), Err(OpenError::NotFound)));
    }

    #[test]
    fn a_named_pipe_does_not_hang_the_opener() {
        let scene = Scene::new("pipe");
        let path = scene.0.join("site/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("made");
        let opened = scene.root().open(b"pipe", Links::Deny, Patience::Patient).expect("opened");
        assert_eq!(opened.metadata.kind, FileKind::Other);
    }

    #[test]
    fn only_a_regular_file_is_opened_as_one() {
        let scene = Scene::new("regular");
        let path = scene.0.join("site/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("made");
        for other in [&path, &scene.0] {
            let error = open_regular(other).expect_err("no regular file").to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        open_regular(&scene.0.join("site/a")).expect("a file");
    }

    #[test]
    fn the_steps_to_a_file_are_its_links_and_its_end() {
        let scene = Scene::new("steps");
        let root = scene.root();
        symlink("../in", scene.0.join("site/sub/twice")).expect("linked");
        symlink("circle", scene.0.join("site/circle")).expect("linked");
        let site = root.path().to_path_buf();
        let steps = |name: &str| {
            let steps = root.steps(name.as_bytes())?.into_iter();
            let text = |step: PathStep| {
                let folder = step.folder.strip_prefix(&site).expect("below the root").join("");
                format!("{}{}", folder.display(), String::from_utf8_lossy(&step.name))
            };
            Some(steps.map(text).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(steps("sub/b").as_deref(), Some("sub/b"));
        assert_eq!(steps("in").as_deref(), Some("in sub/b"));
        assert_eq!(steps("sub/twice").as_deref(), Some("sub/twice in sub/b"));
        assert_eq!(steps("sub/missing").as_deref(), Some("sub/missing"));
        assert_eq!(steps("missing/deep/down").as_deref(), Some("missing"));
        assert_eq!(steps("a/b").as_deref(), Some("a/b"));
        assert_eq!(steps("").as_deref(), Some(""));
        assert_eq!(steps("circle"), None);
    }

    #[test]
    fn an_open_file_knows_its_path_and_its_bytes_in_memory() {
        let scene = Scene::new("path");
        let root = scene.root();
        let file = root.open(b"in", Links::Beneath, Patience::Patient).expect("opened");
        assert_eq!(file.path(), Some(root.path().join("sub/b")));
        let mut bytes = [0; 8];
        assert_eq!(file.read_cached_at(0, &mut bytes), Some(2), "just written, so the kernel has it");
        assert_eq!(&bytes[..2], b"bb");
        std::fs::remove_file(root.path().join("sub/b")).expect("removed");
        assert_eq!(file.path(), None);
    }

    #[test]
    fn a_listing_is_bounded_and_says_so() {
        let scene = Scene::new("list");
        let root = scene.root().open(b"", Links::Deny, Patience::Patient).expect("opened");
        let (all, more) = root.entries(100).expect("read");
        assert_eq!((all.len(), more), (6, false));
        let links: Vec<_> = all.iter().filter(|entry| entry.is_link).collect();
        assert_eq!(links.len(), 4);
        assert!(links.iter().all(|link| link.metadata.kind == FileKind::Other));
        let (some, more) = root.entries(3).expect("read");
        assert_eq!((some.len(), more), (3, true));
    }
}
