//! Error numbers of Unix (errno(3)).

use std::io;

use rustix::io::Errno;

use crate::op_error::OpError;

impl From<Errno> for OpError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN | Errno::CONNABORTED => Self::Reset,
            Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN => Self::Unreachable,
            Errno::CONNREFUSED => Self::Refused,
            Errno::MFILE | Errno::NFILE => Self::Descriptors,
            Errno::NOMEM | Errno::NOBUFS => Self::Memory,
            Errno::CANCELED => Self::Canceled,
            other => Self::System(other.raw_os_error()),
        }
    }
}

impl From<io::Error> for OpError {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error)
            .map_or_else(|| Self::System(error.raw_os_error().unwrap_or(0)), Self::from)
    }
}
