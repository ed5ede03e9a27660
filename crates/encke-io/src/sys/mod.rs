//! The operating systems.

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(unix)]
pub(crate) mod unix;
#[cfg(not(unix))]
pub(crate) mod windows;
