//! A completion port: the queue in which the kernel puts the results of operations.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::time::Duration;

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatusEx, OVERLAPPED_ENTRY, PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::Threading::INFINITE;

use super::error::SysError;
use crate::op::Token;

/// The source of a packet of [`Port::post_file_end`]; `None` for other packets.
pub(crate) fn file_end(packet: &OVERLAPPED_ENTRY) -> Option<Token> {
    let generation = packet.lpOverlapped.addr() as u32;
    (packet.lpCompletionKey == FILE_END)
        .then_some(Token { index: packet.dwNumberOfBytesTransferred, generation })
}

/// The key of packets of [`Port::post_file_end`]. All other packets have the key 0.
const FILE_END: usize = 1;

/// A completion port.
pub(crate) struct Port(OwnedHandle);

impl Port {
    pub(crate) fn new() -> Result<Self, SysError> {
        // SAFETY: without a file the call creates a port; it takes no pointers.
        let handle = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, std::ptr::null_mut(), 0, 1) };
        if handle.is_null() {
            return Err(SysError::last());
        }
        // SAFETY: the handle was created above, and nothing else knows of it.
        Ok(Self(unsafe { OwnedHandle::from_raw_handle(handle) }))
    }

    /// Lets the results of operations on `file` arrive here.
    pub(crate) fn associate(&self, file: &OwnedHandle) -> Result<(), SysError> {
        // SAFETY: both handles are open; the call takes no pointers.
        let handle = unsafe { CreateIoCompletionPort(file.as_raw_handle(), self.raw(), 0, 0) };
        if handle.is_null() { Err(SysError::last()) } else { Ok(()) }
    }

    /// Posts a packet that rings the bell.
    pub(crate) fn post(&self) -> Result<(), SysError> {
        self.post_raw(0, 0, 0)
    }

    /// Posts a packet that reports the end of a file send.
    pub(crate) fn post_file_end(&self, token: Token) -> Result<(), SysError> {
        self.post_raw(token.index, FILE_END, token.generation)
    }

    fn post_raw(&self, bytes: u32, key: usize, address: u32) -> Result<(), SysError> {
        // SAFETY: the port is open. The address is passed on as a number: nothing is read from it.
        let posted = unsafe {
            PostQueuedCompletionStatus(self.raw(), bytes, key, std::ptr::without_provenance(address as usize))
        };
        if posted == 0 { Err(SysError::last()) } else { Ok(()) }
    }

    /// Waits for packets, at most `timeout`, rounded up to whole milliseconds. Returns the packets taken.
    pub(crate) fn take<'a>(
        &self,
        entries: &'a mut [OVERLAPPED_ENTRY],
        timeout: Option<Duration>,
    ) -> Result<&'a [OVERLAPPED_ENTRY], SysError> {
        let milliseconds = timeout.map_or(INFINITE, |timeout| {
            u32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(INFINITE).min(INFINITE - 1)
        });
        let mut count = 0;
        // SAFETY: the call writes at most as many packets as `entries` has room for, and a number to `count`.
        let taken = unsafe {
            GetQueuedCompletionStatusEx(
                self.raw(),
                entries.as_mut_ptr(),
                u32::try_from(entries.len()).unwrap_or(u32::MAX),
                &raw mut count,
                milliseconds,
                0,
            )
        };
        if taken == 0 {
            let error = SysError::last();
            return if error.0 as u32 == WAIT_TIMEOUT { Ok(&[]) } else { Err(error) };
        }
        Ok(&entries[..count as usize])
    }

    fn raw(&self) -> HANDLE {
        self.0.as_raw_handle()
    }
}
