//! A service of Windows: its installation, its control, and the life of its process.
//!
//! ```text
//!  install ─► service manager ─ start ─► run ─► main ─► set_phase(Running) ─► set_phase(Stopping) ─► exit code
//!                   └─ controls ─► Signals: STOP, SHUTDOWN, PRESHUTDOWN ─► Terminate
//!                                           PARAMCHANGE ─► HangUp   128 ─► User1   129 ─► User2
//! ```
//! Other systems have no such service manager ([`IS_AVAILABLE`]): the functions fail with [`ServiceManagerError::Unsupported`] there, or
//! do nothing.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::sys::service::{
    IS_AVAILABLE, check_rights, check_settings, control, data_directory, install, is_installed,
    make_directory, remove, report_error, run, set_phase, start, stop,
};

/// A service to install.
#[derive(Debug)]
pub struct ServicePlan<'a> {
    /// The name for commands and the event log.
    pub name: &'a str,
    /// The name in lists.
    pub title: &'a str,
    /// The purpose, one sentence.
    pub description: &'a str,
    /// The absolute path of the program.
    pub program: &'a Path,
    /// The arguments, without the program's name.
    pub arguments: &'a [OsString],
    /// Time for the service to end when the system shuts down.
    pub stop_time: Duration,
}

/// A phase of a service's process, for the service manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServicePhase {
    /// The process starts.
    Starting,
    /// The service works, and takes controls.
    Running,
    /// The service drains, and then ends.
    Stopping,
}

/// A control for a running service, besides its stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceControl {
    /// Reload the settings (PARAMCHANGE).
    Reload,
    /// Reopen the logs (control 128).
    ReopenLogs,
}

/// Rights of the service's account in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceAccess {
    /// Read, and run programs.
    Read,
    /// Read, write, create and delete.
    Write,
}

/// Why a service could not be installed or controlled.
#[derive(Debug)]
pub enum ServiceManagerError {
    /// This system has no such service manager.
    Unsupported,
    /// The user is no administrator, or runs without an administrator's rights.
    NotAdministrator,
    /// A service of this name exists.
    AlreadyInstalled(String),
    /// No service has this name.
    NotInstalled(String),
    /// The service was removed, and exists until the last program that has it open closes it.
    Leaving(String),
    /// The service runs already.
    AlreadyRunning(String),
    /// The service does not run.
    NotRunning(String),
    /// The service's account cannot read the program.
    Unreadable(String),
    /// The process was started by something else than the service manager.
    NotByManager,
    /// The service ended while it started, with this status.
    Ended(String, u32),
    /// The service neither started nor ended in time.
    Late(String),
    /// The directory belongs to a user that could change its contents.
    ForeignDirectory(PathBuf),
    /// The settings file is a link, or belongs to a user that could change it.
    ForeignSettings(PathBuf),
    /// A call of the system failed. The text names the intended action.
    System(String, io::Error),
}

impl fmt::Display for ServiceManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("this system has no services of Windows"),
            Self::NotAdministrator => f.write_str(
                "services are managed by administrators only: repeat the command in a terminal that was started by \"Run as \
                 administrator\"",
            ),
            Self::AlreadyInstalled(name) => {
                write!(f, "the service {name} is already installed: remove it first, or start it")
            }
            Self::NotInstalled(name) => write!(f, "the service {name} is not installed: install it first"),
            Self::Leaving(name) => write!(
                f,
                "the service {name} was removed, but a program still has it open: close the windows of Services and Task \
                 Manager, and repeat the command"
            ),
            Self::AlreadyRunning(name) => write!(f, "the service {name} is already running"),
            Self::NotRunning(name) => write!(f, "the service {name} is not running: start it first"),
            Self::Unreadable(name) => write!(
                f,
                "the account of the service {name}, NT AUTHORITY\\NetworkService, may not run its program: move the program \
                 to a directory that all users can read, such as C:\\Program Files\\Encke, and install the service again"
            ),
            Self::NotByManager => f.write_str("only the service manager can start a process of the service"),
            Self::Ended(name, status) => write!(f, "the service {name} ended while it started (status {status})"),
            Self::Late(name) => write!(f, "the service {name} makes no progress: the reason may be in its log"),
            Self::ForeignDirectory(path) => write!(
                f,
                "the directory {} belongs to a user that is no administrator: move it away, so that it can be created anew",
                path.display()
            ),
            Self::ForeignSettings(path) => write!(
                f,
                "{} is a link or belongs to a user that is no administrator, and would decide what the service does: move it \
                 away, or replace it by a copy",
                path.display()
            ),
            Self::System(step, error) => write!(f, "{step}: {error}"),
        }
    }
}

impl Error for ServiceManagerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System(_, error) => Some(error),
            _ => None,
        }
    }
}
