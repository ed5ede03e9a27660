//! The bell of Linux: an eventfd(2), one descriptor for both sides.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Interrupts a reactor's wait from any thread.
pub struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Makes the descriptor readable. Always returns true: the wait ends.
    pub(crate) fn ring(&self) -> bool {
        // An eventfd takes eight bytes. If the counter is full, the descriptor is readable already.
        let _full = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        true
    }

    /// Reads what [`Bell::ring`] has written.
    pub(crate) fn silence(&self) {
        let mut word = [0; 8];
        let _empty = rustix::io::read(&self.0, &mut word);
    }
}

impl AsFd for Bell {
    /// The descriptor that becomes readable when the bell rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
