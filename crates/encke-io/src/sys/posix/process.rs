//! Additional steps of a child between fork(2) and execve(2): none on these systems.

/// Does nothing: not available on this system.
///
/// # Safety
/// None.
pub(crate) unsafe fn close_from(_first: libc::c_int) {}

/// Does nothing: this system has no such rights.
///
/// # Safety
/// None.
pub(crate) unsafe fn drop_rights() {}

/// Does nothing: not available on this system.
///
/// # Safety
/// None.
pub(crate) unsafe fn end_with(_parent: libc::pid_t, _signal: libc::c_int) {}

/// Kills all processes whose environment has one of the variables: this system does not show it.
pub(crate) fn kill_marked(_variables: &[&[u8]]) {}
