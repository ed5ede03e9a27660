//! Additional steps of a child on Linux between fork(2) and execve(2), and the end of its descendants.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The most passes over the processes of the system: a process that is about to end may start others meanwhile.
const PASSES_MAX: usize = 8;

/// Kills all processes whose environment has one of the variables, each given as `NAME=VALUE` (proc_pid_environ(5)). Processes of
/// other users cannot be seen unless this one is root's.
pub(crate) fn kill_marked(variables: &[&[u8]]) {
    for _ in 0..PASSES_MAX {
        let Ok(entries) = fs::read_dir("/proc") else { return };
        let mut found = false;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            // The descriptor first: a number may belong to another process once its process has ended.
            let Some(descriptor) = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
                continue;
            };
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            if environment.split(|byte| *byte == 0).any(|variable| variables.contains(&variable)) {
                found |= pidfd_send_signal(&descriptor, Signal::KILL).is_ok();
            }
        }
        if !found {
            return;
        }
    }
}

/// Lets no descriptor from `first` on be inherited. Kernels before 5.11 keep them open.
///
/// # Safety
/// Only for a child between fork(2) and execve(2).
pub(crate) unsafe fn close_from(first: libc::c_int) {
    // SAFETY: the call touches no memory, and the caller uses no descriptor from `first` on after execve(2).
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Drops the ambient capabilities (capabilities(7)).
///
/// # Safety
/// Only for a child between fork(2) and execve(2).
pub(crate) unsafe fn drop_rights() {
    // SAFETY: the call touches no memory.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
}

/// Makes the child get `signal` when the thread that has started it ends. Exits at once if `parent` has ended before.
///
/// # Safety
/// Only for a child between fork(2) and execve(2).
pub(crate) unsafe fn end_with(parent: libc::pid_t, signal: libc::c_int) {
    // SAFETY: the calls touch no memory, and are safe in a child of a process with threads (signal-safety(7)).
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong, 0, 0, 0);
        if libc::getppid() != parent {
            libc::_exit(1);
        }
    }
}
