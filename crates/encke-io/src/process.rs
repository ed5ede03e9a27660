//! Processes of other programs that this one starts, and ends with itself.
//!
//! ```text
//!  Process::start ─► fork ─► the child: socket as descriptor 3, user, signals, LISTEN_PID ─► execve
//!                     │
//!                     ├─ wait, on a thread of its own ─► the rest of the group is killed ─► reaped ─► ProcessEnd
//!                     ├─ signal, kill: never another process, because both are only sent before the process is reaped
//!                     └─ PipeReader: what the process writes
//! ```
//! A process is the first of a group of its own: ^C in a terminal does not reach it, and the processes that it starts end with it.
//! On Linux a variable that is inherited (`ENCKE_PROCESS`) finds processes that have left the group.
//! On Windows the group is a job object, a process gets no socket ([`PASSES_SOCKETS`]), and every signal is ^Break.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Listener;
use crate::sys::process::UserIds;

pub use crate::sys::process::{
    PASSES_SOCKETS, Process, in_own_group, is_batch_file, is_same_variable, kill_all, may_execute,
    program_names,
};

/// The number of the descriptor under which a process gets its listening socket (sd_listen_fds(3)).
pub const PASSED_DESCRIPTOR: i32 = 3;

/// A program to start.
#[derive(Debug)]
pub struct ProcessPlan<'a> {
    /// The file of the program: an absolute path, or a path from `directory`.
    pub program: &'a Path,
    /// The arguments; the first is the program's name.
    pub arguments: &'a [OsString],
    /// All variables of the environment. `ENCKE_PROCESS` is added, and `LISTEN_PID` if there is a socket.
    pub environment: &'a [(OsString, OsString)],
    /// The working directory.
    pub directory: &'a Path,
    /// The user of the process. Only root can start a process of another user.
    pub user: Option<&'a SystemUser>,
    /// The socket that the process gets as [`PASSED_DESCRIPTOR`]. It is made blocking, as programs expect.
    pub socket: Option<&'a Listener>,
    /// The signal that the process gets when the thread that has started it ends (PR_SET_PDEATHSIG; only on Linux).
    pub orphan_signal: StopSignal,
}

/// A signal that ends a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGQUIT.
    Quit,
    /// SIGHUP.
    HangUp,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

/// A user of this system, as its database of users has it (passwd(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemUser {
    /// The name.
    pub name: String,
    /// The home directory.
    pub home: PathBuf,
    pub(crate) ids: UserIds,
}

/// How a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// With this exit status.
    Status(i32),
    /// By the signal of this number.
    Signal(i32),
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The system's own statuses of Windows: 0xc0000005.
            Self::Status(status) if *status < 0 => write!(f, "exited with status {status:#010x}"),
            Self::Status(status) => write!(f, "exited with status {status}"),
            Self::Signal(number) => write!(f, "was ended by signal {number}"),
        }
    }
}
