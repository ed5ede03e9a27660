//! Error numbers of Windows. The numbers of Winsock and Win32 do not overlap.

use std::io;

use windows_sys::Win32::Foundation as win;
use windows_sys::Win32::Foundation::{NTSTATUS, RtlNtStatusToDosError};
use windows_sys::Win32::Networking::WinSock as ws;

use crate::op_error::OpError;

/// An error number of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SysError(pub(crate) i32);

impl SysError {
    /// The error of this thread's last call (GetLastError).
    pub(crate) fn last() -> Self {
        Self(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The error of a native call.
    pub(crate) fn of_status(status: NTSTATUS) -> Self {
        // SAFETY: the call touches no memory of this process but the thread's own block.
        Self(unsafe { RtlNtStatusToDosError(status) } as i32)
    }
}

impl From<SysError> for io::Error {
    fn from(SysError(number): SysError) -> Self {
        Self::from_raw_os_error(number)
    }
}

impl From<SysError> for OpError {
    fn from(SysError(number): SysError) -> Self {
        match number {
            ws::WSAECONNRESET
            | ws::WSAECONNABORTED
            | ws::WSAENOTCONN
            | ws::WSAESHUTDOWN
            | ws::WSAENETRESET => Self::Reset,
            ws::WSAETIMEDOUT | ws::WSAEHOSTUNREACH | ws::WSAENETUNREACH | ws::WSAENETDOWN => {
                Self::Unreachable
            }
            ws::WSAECONNREFUSED => Self::Refused,
            ws::WSAEMFILE => Self::Descriptors,
            ws::WSAENOBUFS => Self::Memory,
            _ => match number as u32 {
                win::ERROR_NETNAME_DELETED | win::ERROR_BROKEN_PIPE | win::ERROR_NO_DATA => Self::Reset,
                win::ERROR_CONNECTION_REFUSED => Self::Refused,
                win::ERROR_TOO_MANY_OPEN_FILES => Self::Descriptors,
                win::ERROR_NOT_ENOUGH_MEMORY
                | win::ERROR_OUTOFMEMORY
                | win::ERROR_NO_SYSTEM_RESOURCES
                | win::ERROR_WORKING_SET_QUOTA => Self::Memory,
                win::ERROR_OPERATION_ABORTED => Self::Canceled,
                _ => Self::System(number),
            },
        }
    }
}

impl From<io::Error> for OpError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Unsupported => SysError(ws::WSAEAFNOSUPPORT).into(),
            _ => SysError(error.raw_os_error().unwrap_or(0)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_sets_have_the_same_meaning() {
        for (number, expected) in [
            (10054, OpError::Reset),
            (64, OpError::Reset),
            (10061, OpError::Refused),
            (1225, OpError::Refused),
            (10060, OpError::Unreachable),
            (8, OpError::Memory),
            (995, OpError::Canceled),
            (2, OpError::System(2)),
        ] {
            assert_eq!(OpError::from(SysError(number)), expected, "{number}");
        }
    }
}
