//! Change notifications of Linux: inotify(7).

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::changes::{Change, FolderId};
use crate::files::OpenFile;
use crate::socket::Watched;

/// Watches directories.
pub struct Changes {
    inotify: OwnedFd,
    buffer: Vec<std::mem::MaybeUninit<u8>>,
    watched: HashMap<FolderId, u32>,
}

impl Changes {
    /// Creates an instance that watches nothing.
    ///
    /// # Errors
    /// The user's limit of inotify instances is reached, or the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            buffer: vec![std::mem::MaybeUninit::uninit(); 16 * 1024],
            watched: HashMap::new(),
        })
    }

    /// Closes this on a thread of its own, because close(2) waits until all processors have forgotten the watches: milliseconds.
    pub fn close_aside(self) {
        let closing = std::thread::Builder::new().name("close-watches".into());
        // Without a thread it is closed here.
        let _is_closed = closing.spawn(move || drop(self.inotify));
    }

    /// A descriptor for [`crate::Op::Watch`] that becomes readable when notifications are pending.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn watched(&self) -> io::Result<Watched> {
        Ok(Watched::new(self.inotify.try_clone()?))
    }

    /// Watches an open directory. Watching the same directory again returns the same id.
    ///
    /// # Errors
    /// The user's limit of watches (fs.inotify.max_user_watches) is reached.
    pub fn watch(&mut self, folder: &OpenFile) -> io::Result<FolderId> {
        use std::os::fd::AsRawFd;
        // The descriptor's path watches exactly this directory, even if its name now refers to another one.
        let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
        self.watch_path(Path::new(&path))
    }

    /// Watches a directory by its path.
    ///
    /// # Errors
    /// As [`Changes::watch`], or the directory does not exist.
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

    /// Removes one watch. Each call to `watch` needs one call to `forget`.
    pub fn forget(&mut self, folder: FolderId) {
        let Some(count) = self.watched.get_mut(&folder) else { return };
        *count -= 1;
        if *count == 0 {
            self.watched.remove(&folder);
            let _gone_already = inotify::remove_watch(&self.inotify, folder.0);
        }
    }

    /// Removes all watches and drops all pending notifications. Prefer this to a new instance: closing an inotify(7)
    /// instance blocks until the kernel has freed its watches, which takes seconds on a busy system.
    pub fn clear(&mut self) {
        for (folder, _) in self.watched.drain() {
            let _gone_already = inotify::remove_watch(&self.inotify, folder.0);
        }
        let _dropped = self.read(drop);
    }

    /// Number of watched directories.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// Whether no directory is watched.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Reads all pending notifications.
    ///
    /// # Errors
    /// The kernel's error. A retry loses no notifications.
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

/// Whether all changes below `folder` go through this kernel, which then reports each of them. This is not the case on
/// network file systems, FUSE, and file systems shared with the host of a virtual machine.
pub fn reliable(folder: impl AsFd) -> bool {
    // Magic numbers of statfs(2) for file systems that only this kernel writes to.
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
