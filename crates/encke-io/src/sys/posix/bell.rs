//! The bell of POSIX: a pipe.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// Interrupts a reactor's wait from any thread.
pub struct Bell {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe()?;
        for end in [&reader, &writer] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok(Self { reader, writer })
    }

    /// Makes the descriptor readable. Always returns true: the wait ends.
    pub(crate) fn ring(&self) -> bool {
        // If the pipe is full, the descriptor is readable already.
        let _full = rustix::io::write(&self.writer, &1u64.to_ne_bytes());
        true
    }

    /// Reads what [`Bell::ring`] has written.
    pub(crate) fn silence(&self) {
        let mut words = [0; 64];
        let _empty = rustix::io::read(&self.reader, &mut words);
    }
}

impl AsFd for Bell {
    /// The descriptor that becomes readable when the bell rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
