//! Change notifications: not available on this system.

use std::io;

use crate::changes::{Change, FolderId};
use crate::files::OpenFile;
use crate::socket::Watched;

/// A stub: change notifications are not supported on this system. Caches revalidate periodically instead.
pub struct Changes {
    none: std::convert::Infallible,
}

impl Changes {
    /// Always fails.
    ///
    /// # Errors
    /// Always: Encke does not use this system's notifications yet.
    pub fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Closes this on a thread of its own.
    pub fn close_aside(self) {
        match self.none {}
    }

    /// A descriptor for [`crate::Op::Watch`].
    ///
    /// # Errors
    /// None: no value of this type exists.
    pub fn watched(&self) -> io::Result<Watched> {
        match self.none {}
    }

    /// Watches an open directory.
    ///
    /// # Errors
    /// None: no value of this type exists.
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

    /// Reads all pending notifications.
    ///
    /// # Errors
    /// None: no value of this type exists.
    pub fn read(&mut self, _: impl FnMut(Change)) -> io::Result<()> {
        match self.none {}
    }
}

/// Not supported on this system: always false.
pub fn reliable<T>(_: T) -> bool {
    false
}
