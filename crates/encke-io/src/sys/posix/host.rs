//! Threads of Unix systems other than Linux: nothing is pinned, and no id is known.

use std::io;

/// Does nothing: not supported on this system.
///
/// # Errors
/// Always.
pub fn pin_thread(_processor: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: not supported on this system.
///
/// # Errors
/// Always.
pub fn pin_thread_here() -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: other systems have no such setting.
pub fn wake_on_time() {}

/// The id of this thread: not available on this system.
pub fn thread_id() -> Option<u32> {
    None
}
