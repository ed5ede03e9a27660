//! Files beneath a root, opened so that no name can lead outside it.
//!
//! [`Root::open`] resolves names in the kernel with openat2(2) and `RESOLVE_BENEATH`, so that dots, links and races cannot
//! escape. Where openat2 is missing (before Linux 5.6, under a seccomp filter, on other systems), it opens each component
//! separately without following links. That is equally safe, and rejects every symbolic link.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::sys::files as sys;

pub use crate::sys::files::{
    allocate, allow_writing, exchange, id_of, is_used_name, may_write, open_regular, plain_path,
};

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
    pub(crate) handle: sys::RootHandle,
    pub(crate) path: PathBuf,
}

/// An open file or directory, with its metadata.
#[derive(Debug)]
pub struct OpenFile {
    pub(crate) handle: sys::FileHandle,
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
    /// those listed. The list is empty for a name that no file can have. Returns `None` if the links form a cycle, and on Windows if
    /// there is a link.
    ///
    /// This is for change notifications only, and never decides about access: [`Root::open`] does.
    pub fn steps(&self, name: &[u8]) -> Option<Vec<PathStep>> {
        if !sys::may_exist(name) {
            return Some(Vec::new());
        }
        let mut steps = Vec::new();
        let mut folder = self.path.clone();
        let mut pending: Vec<Vec<u8>> = components(name);
        let mut links = 0;
        while let Some(component) = pending.pop() {
            if component == b".." {
                folder.pop();
                continue;
            }
            let path = folder.join(sys::os_name(&component));
            match sys::step_target(&path) {
                Ok(Some(target)) => {
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
                Ok(None) if !pending.is_empty() => folder = path,
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return None,
                Ok(None) | Err(_) => {
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

/// Maximum number of links followed in one lookup: the kernel's own limit (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Files that the system has sent by itself for the reactors of a thread (TransmitFile on Windows).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileSends {
    /// Calls.
    pub calls: u64,
    /// Calls that also sent bytes in memory before the file.
    pub with_head: u64,
    /// Bytes of the calls that have ended.
    pub bytes: u64,
}

/// Returns the figures of this thread: zero on systems that send files in another way.
pub fn file_sends() -> FileSends {
    crate::sys::net::file_sends()
}

/// Creates a file that only its owner may read and write, and opens it to write. On Windows the system and the administrators
/// may, too, as root may on Unix.
///
/// # Errors
/// The file exists, or the system refuses.
pub fn create_private(path: &Path) -> io::Result<std::fs::File> {
    sys::create_private(path)
}

/// Whether only the owner may read and write a file or a directory. On Windows the owner is the user of this process, and the
/// system and the administrators may, too.
///
/// # Errors
/// The file does not exist, or its permissions cannot be read.
pub fn is_private(path: &Path) -> io::Result<bool> {
    sys::is_private(path)
}

/// Creates a directory for its owner only, with its ancestors. On Windows new files in it are private, too.
///
/// # Errors
/// The system's.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    sys::make_private_folder(folder)
}

/// The owner, the group and the permissions of a file. On Windows its access control list and its read-only attribute.
#[derive(Debug)]
pub struct FileRights(sys::OwnRights);

impl FileRights {
    /// Reads the rights of a file.
    ///
    /// # Errors
    /// The file does not exist, or its permissions cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        sys::OwnRights::of(path).map(Self)
    }

    /// Gives these rights to a file that [`create_private`] has created. Only root may give a file away: the permissions of a
    /// group that cannot be kept are dropped, because the new group may contain other users.
    ///
    /// # Errors
    /// The permissions cannot be set.
    pub fn give_to(&self, file: &std::fs::File) -> io::Result<()> {
        self.0.give_to(file)
    }
}

/// Stores the names of a directory on the disk. On Windows there is nothing to do.
///
/// # Errors
/// The file system's.
pub fn sync_directory(folder: &Path) -> io::Result<()> {
    sys::sync_directory(folder)
}

/// Returns the file if it is a regular one.
pub(crate) fn regular(file: std::fs::File) -> io::Result<std::fs::File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(not_regular())
}

pub(crate) fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
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
