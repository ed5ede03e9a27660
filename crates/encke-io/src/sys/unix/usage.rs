//! Resource usage of processes without /proc: unknown. Linux has /proc, which `host.rs` reads.

use crate::host::ProcessUsage;

/// Resource usage of a process: not known.
pub(crate) fn of_process(_pid: u32) -> Option<ProcessUsage> {
    None
}

/// Resource usage of this process: not known.
pub(crate) fn of_this_process() -> Option<ProcessUsage> {
    None
}

/// Number of open descriptors of this process: not known.
pub(crate) fn open_handles() -> Option<usize> {
    None
}

/// Total memory of the machine: not known.
pub(crate) fn memory_bytes() -> Option<u64> {
    None
}
