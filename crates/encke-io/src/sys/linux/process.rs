//! Additional steps of a child on Linux between fork(2) and execve(2).

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
