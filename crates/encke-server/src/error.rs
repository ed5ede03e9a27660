//! The errors of starting and reconfiguring a server. Errors of a connection are [`crate::CloseReason`].

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use encke_io::{Address, OpError, Unavailable};

use crate::limits::GUARDS_MAX;

/// Why a server cannot start, or take over new settings.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// System: the address cannot be bound.
    Listen(Address, io::Error),
    /// This server: it is still closing a listener that prevents the bind. A retry helps.
    Closing {
        /// The address to bind.
        wanted: Address,
        /// The address of the listener that is being closed.
        own: Address,
    },
    /// Settings: this server itself listens on a conflicting address. A restart helps.
    OwnListener {
        /// The address to bind.
        wanted: Address,
        /// The address of this server's listener.
        own: Address,
    },
    /// Settings or system: the back end is unavailable.
    Backend(Unavailable),
    /// System: a thread cannot be started.
    Thread(io::Error),
    /// System: a worker cannot add a listener to its reactor.
    Worker(OpError),
    /// This server: a worker ended before it was ready.
    WorkerEnded,
    /// System: the access log cannot be opened.
    Log(PathBuf, io::Error),
    /// Program: too many outputs of the access log. Their maximum number.
    LogCount(usize),
    /// Program: too many guards. Their number.
    TooManyGuards(usize),
    /// Program: a guard is attached to this prefix, which has no mount point.
    UnmountedGuard(String),
}

impl ServerError {
    /// Whether another program, or this one, listens on the address to bind.
    pub fn is_address_in_use(&self) -> bool {
        match self {
            Self::Listen(_, error) => error.kind() == io::ErrorKind::AddrInUse,
            Self::Closing { .. } | Self::OwnListener { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}{}", hint(error))
            }
            Self::Closing { wanted, own } => write!(
                f,
                "cannot listen on {wanted}: this server is still closing its listener on {own}: reload again"
            ),
            Self::OwnListener { wanted, own } => write!(
                f,
                "cannot listen on {wanted}: this server itself listens on {own}: restart it to change that"
            ),
            Self::Backend(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Worker(error) => write!(f, "a worker cannot listen: {error}"),
            Self::WorkerEnded => f.write_str("a worker ended at its start"),
            Self::Log(path, error) => {
                write!(f, "access log {} cannot be opened: {error}", path.display())
            }
            Self::LogCount(most) => {
                write!(f, "sites have had more than {most} access logs since the start: restart the server")
            }
            Self::TooManyGuards(count) => {
                write!(f, "{count} guards: a server may have at most {GUARDS_MAX}")
            }
            Self::UnmountedGuard(prefix) => {
                write!(f, "cannot attach a guard to {prefix}: nothing is mounted there")
            }
        }
    }
}

impl Error for ServerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Thread(error) | Self::Log(_, error) => Some(error),
            Self::Backend(error) => Some(error),
            Self::Worker(error) => Some(error),
            Self::Closing { .. }
            | Self::LogCount(_)
            | Self::OwnListener { .. }
            | Self::WorkerEnded
            | Self::TooManyGuards(_)
            | Self::UnmountedGuard(_) => None,
        }
    }
}

/// A hint for the user after a failed bind.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (another program listens there; choose another port with -l)",
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one with -l)"
        }
        io::ErrorKind::AddrNotAvailable => " (this machine has no such address)",
        _ => "",
    }
}
