//! The reason why a system operation failed, reduced to the cases that callers distinguish. `sys` maps the numbers of each
//! system to them.

use std::fmt;
use std::io;

/// A failed operation. Errors that the layers above handle differently have a variant; all others keep the system's error
/// number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpError {
    /// The peer reset the connection, or the connection no longer exists (ECONNRESET, EPIPE, ENOTCONN, ECONNABORTED).
    Reset,
    /// The peer or its network did not respond (ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN).
    Unreachable,
    /// No listener at the address (ECONNREFUSED).
    Refused,
    /// No descriptor left, in the process or in the system (EMFILE, ENFILE).
    Descriptors,
    /// No memory left in the kernel (ENOMEM, ENOBUFS).
    Memory,
    /// A file ended before the end of the range to send.
    FileShrunk,
    /// The operation was cancelled by [`crate::Op::Cancel`].
    Canceled,
    /// Any other failure, with the system's error number.
    System(i32),
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => f.write_str("the peer reset the connection"),
            Self::Unreachable => f.write_str("the peer is unreachable"),
            Self::Refused => f.write_str("the connection was refused"),
            Self::Descriptors => f.write_str("out of file descriptors"),
            Self::Memory => f.write_str("the kernel is out of memory for sockets"),
            Self::FileShrunk => f.write_str("the file became shorter while it was sent"),
            Self::Canceled => f.write_str("canceled"),
            Self::System(number) => write!(f, "{}", io::Error::from_raw_os_error(*number)),
        }
    }
}

impl std::error::Error for OpError {}
