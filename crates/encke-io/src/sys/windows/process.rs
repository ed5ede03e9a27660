//! Systems where no process can be given a socket yet.

use std::io::{self, PipeReader};
use std::os::windows::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP;

use crate::process::{ProcessEnd, ProcessPlan, StopSignal, SystemUser};

/// A process that this one has started: none on this system.
#[derive(Debug)]
pub enum Process {}

impl SystemUser {
    /// Looks up a user by name.
    ///
    /// # Errors
    /// Always: users are not known on this system yet.
    pub fn find(_name: &str) -> io::Result<Option<Self>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether this process may start processes of other users.
    pub fn is_root() -> bool {
        false
    }

    /// Whether this process runs as the user.
    pub fn is_current(&self) -> bool {
        false
    }
}

/// The numbers of a user: not known on this system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UserIds;

/// Makes a command the first of a process group of its own, which ^C in a console does not reach.
pub fn in_own_group(command: &mut Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

/// Whether this process may execute a file.
pub fn may_execute(file: &Path) -> bool {
    file.is_file()
}

/// Kills all processes that were started.
pub fn kill_all() {}

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// Always: no process can be given a socket on this system yet.
    pub fn start(_plan: &ProcessPlan<'_>) -> io::Result<(Self, PipeReader)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The number of the process.
    pub const fn pid(&self) -> i32 {
        match *self {}
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// Never: there is no process.
    pub fn wait(&self) -> io::Result<ProcessEnd> {
        match *self {}
    }

    /// Sends a signal to the process.
    pub fn signal(&self, _signal: StopSignal) {
        match *self {}
    }

    /// Kills the process.
    pub fn kill(&self) {
        match *self {}
    }
}
