//! Notices of changed files (inotify(7)): what lets a cache answer without asking the disk.
//!
//! A folder is watched, not each file. Notices may be lost ([`Change::Overflow`]) and file systems that other
//! machines write to send none ([`reliable`] tells); whoever caches must have an answer to both.

#[cfg(target_os = "linux")]
pub use linux::{Changes, reliable};
#[cfg(not(target_os = "linux"))]
pub use other::{Changes, reliable};

/// Names a watched folder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FolderId(i32);

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A file or folder of that name appeared, changed, or went.
    Entry(FolderId, Vec<u8>),
    /// The watched folder itself was moved or removed, and is no longer watched.
    Gone(FolderId),
    /// Notices were lost: anything may have changed.
    Overflow,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::io;
    use std::path::Path;

    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    use super::{Change, FolderId};
    use crate::files::OpenFile;
    use crate::socket::Watched;

    /// Watches folders.
    pub struct Changes {
        inotify: OwnedFd,
        buffer: Vec<std::mem::MaybeUninit<u8>>,
        watched: HashMap<FolderId, u32>,
    }

    impl Changes {
        /// Watches nothing yet.
        ///
        /// # Errors
        /// The user's limit of inotify instances is used up, or out of descriptors.
        pub fn new() -> io::Result<Self> {
            Ok(Self {
                inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
                buffer: vec![std::mem::MaybeUninit::uninit(); 16 * 1024],
                watched: HashMap::new(),
            })
        }

        /// A descriptor for [`crate::Op::Watch`] that becomes readable when there is news.
        ///
        /// # Errors
        /// Out of descriptors.
        pub fn watched(&self) -> io::Result<Watched> {
            Ok(Watched::new(self.inotify.try_clone()?))
        }

        /// Watches an open folder. Watching it again gives the same name.
        ///
        /// # Errors
        /// The user's limit of watches (fs.inotify.max_user_watches) is used up.
        pub fn watch(&mut self, folder: &OpenFile) -> io::Result<FolderId> {
            use std::os::fd::AsRawFd;
            // By its descriptor, so that it is this folder that is watched, whatever has its name now.
            let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
            self.watch_path(Path::new(&path))
        }

        /// Watches a folder by its path.
        ///
        /// # Errors
        /// As [`Changes::watch`], or it is not there.
        pub fn watch_path(&mut self, path: &Path) -> io::Result<FolderId> {
            let flags = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::MOVE_SELF
                | WatchFlags::DELETE_SELF
                | WatchFlags::ONLYDIR;
            let id = FolderId(inotify::add_watch(&self.inotify, path, flags)?);
            *self.watched.entry(id).or_default() += 1;
            Ok(id)
        }

        /// Stops watching, once for each time it was watched.
        pub fn forget(&mut self, folder: FolderId) {
            let Some(count) = self.watched.get_mut(&folder) else { return };
            *count -= 1;
            if *count == 0 {
                self.watched.remove(&folder);
                let _gone_already = inotify::remove_watch(&self.inotify, folder.0);
            }
        }

        /// Stops watching everything, and drops the notices there are: as good as new. To be preferred to a new
        /// one: closing an instance of inotify(7) waits, for seconds on a busy system, until the kernel has
        /// freed its watches.
        pub fn clear(&mut self) {
            for (folder, _) in self.watched.drain() {
                let _gone_already = inotify::remove_watch(&self.inotify, folder.0);
            }
            let _dropped = self.read(drop);
        }

        /// Number of watched folders.
        pub fn len(&self) -> usize {
            self.watched.len()
        }

        /// Whether nothing is watched.
        pub fn is_empty(&self) -> bool {
            self.watched.is_empty()
        }

        /// Reads all news there is.
        ///
        /// # Errors
        /// The kernel's; nothing is lost by trying again.
        pub fn read(&mut self, mut each: impl FnMut(Change)) -> io::Result<()> {
            let mut reader = inotify::Reader::new(&self.inotify, &mut self.buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let folder = FolderId(event.wd());
                        let events = event.events();
                        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                            each(Change::Overflow);
                        } else if events.intersects(
                            ReadFlags::DELETE_SELF
                                | ReadFlags::MOVE_SELF
                                | ReadFlags::UNMOUNT
                                | ReadFlags::IGNORED,
                        ) {
                            each(Change::Gone(folder));
                        } else if let Some(name) = event.file_name() {
                            each(Change::Entry(folder, name.to_bytes().to_vec()));
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => return Ok(()),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
    }

    /// Whether changes below `folder` are made by this kernel alone, so that it tells of each: not so on network
    /// file systems, FUSE, and file systems shared with a hypervisor's host.
    pub fn reliable(folder: impl AsFd) -> bool {
        // Magic numbers of statfs(2): those written only through this kernel.
        const LOCAL: [u32; 11] = [
            0xEF53,      // ext2, ext3, ext4
            0x5846_5342, // XFS
            0x9123_683E, // btrfs
            0xF2F5_2010, // f2fs
            0x0102_1994, // tmpfs
            0x8584_58F6, // ramfs
            0x794C_7630, // overlayfs
            0x2FC1_2FC1, // ZFS
            0xCA45_1A4E, // bcachefs
            0x7371_7368, // squashfs
            0x4D44,      // FAT
        ];
        rustix::fs::fstatfs(folder).is_ok_and(|status| LOCAL.contains(&(status.f_type as u32)))
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;

    use super::{Change, FolderId};
    use crate::files::OpenFile;
    use crate::socket::Watched;

    /// Watches folders: not on this system, where caches look again after a while.
    pub struct Changes {
        none: std::convert::Infallible,
    }

    impl Changes {
        /// Watches nothing.
        ///
        /// # Errors
        /// Always: this system's notices are not used yet.
        pub fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// A descriptor for [`crate::Op::Watch`].
        ///
        /// # Errors
        /// None: there is no such value.
        pub fn watched(&self) -> io::Result<Watched> {
            match self.none {}
        }

        /// Watches an open folder.
        ///
        /// # Errors
        /// None: there is no such value.
        pub fn watch(&mut self, _: &OpenFile) -> io::Result<FolderId> {
            match self.none {}
        }

        /// Stops watching.
        pub fn forget(&mut self, _: FolderId) {
            match self.none {}
        }

        /// Stops watching everything.
        pub fn clear(&mut self) {
            match self.none {}
        }

        /// Reads all news there is.
        ///
        /// # Errors
        /// None: there is no such value.
        pub fn read(&mut self, _: impl FnMut(Change)) -> io::Result<()> {
            match self.none {}
        }
    }

    /// Whether changes below `folder` are told of: never, here.
    pub fn reliable<T>(_: T) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_a_watched_folder_is_told() {
        let path = std::env::temp_dir().join(format!("encke-changes-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a writable temporary folder");
        let root = crate::files::Root::new(&path).expect("opened");
        let folder =
            root.open(b"", crate::files::Links::Deny, crate::files::Patience::Patient).expect("opened");
        let mut changes = Changes::new().expect("made");
        let id = changes.watch(&folder).expect("watched");
        std::fs::write(path.join("new"), "x").expect("written");
        std::fs::remove_file(path.join("new")).expect("removed");
        std::fs::remove_dir(&path).expect("removed");
        drop(folder);
        let mut told = Vec::new();
        changes.read(|change| told.push(change)).expect("read");
        assert_eq!(told.first(), Some(&Change::Entry(id, b"new".to_vec())));
        assert!(reliable(std::fs::File::open(std::env::temp_dir()).expect("opened")));
    }

    #[test]
    fn what_was_cleared_tells_of_nothing_and_can_watch_again() {
        let path = std::env::temp_dir().join(format!("encke-changes-again-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a writable temporary folder");
        let mut changes = Changes::new().expect("made");
        let before = changes.watch_path(&path).expect("watched");
        std::fs::write(path.join("one"), "x").expect("written");
        changes.clear();
        assert!(changes.is_empty());
        std::fs::write(path.join("two"), "x").expect("written");
        changes.read(|change| panic!("it told of {change:?}")).expect("read");
        let after = changes.watch_path(&path).expect("watched");
        assert_ne!(before, after, "a notice of then is none of now");
        std::fs::write(path.join("three"), "x").expect("written");
        let mut told = Vec::new();
        changes.read(|change| told.push(change)).expect("read");
        assert_eq!(told.first(), Some(&Change::Entry(after, b"three".to_vec())));
        std::fs::remove_dir_all(&path).expect("removed");
    }
}
