//! Unix systems other than Linux: POSIX. Functions for other features of Linux do nothing, or fail with `Unsupported`.

pub(crate) mod backends;
pub(crate) mod bell;
pub(crate) mod changes;
pub(crate) mod counters;
pub(crate) mod drain_mark;
pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod net;
pub(crate) mod process;
