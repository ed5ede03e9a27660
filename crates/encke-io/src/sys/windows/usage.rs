//! Resource usage of processes, and the memory of the machine.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessHandleCount, GetProcessTimes, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION,
};

use super::host::times_ns;
use crate::host::ProcessUsage;

/// Resource usage of a process, without its descendants. CPU time has the resolution of the clock tick, some 16 ms.
pub(crate) fn of_process(pid: u32) -> Option<ProcessUsage> {
    // SAFETY: the call takes no pointers.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle was opened above, and nothing else knows of it.
    let process = unsafe { OwnedHandle::from_raw_handle(handle) };
    of_handle(process.as_raw_handle())
}

/// Resource usage of this process.
pub(crate) fn of_this_process() -> Option<ProcessUsage> {
    // SAFETY: the call takes no pointers; the handle it returns needs no end.
    of_handle(unsafe { GetCurrentProcess() })
}

fn of_handle(process: HANDLE) -> Option<ProcessUsage> {
    let mut memory = PROCESS_MEMORY_COUNTERS::default();
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    // SAFETY: the call writes at most `size` bytes to the structure, which is that large. The process is open.
    if unsafe { K32GetProcessMemoryInfo(process, &raw mut memory, size) } == 0 {
        return None;
    }
    let cpu_ns = times_ns(|[created, ended, system, user]| {
        // SAFETY: each pointer leads to room for a FILETIME. The process is open.
        unsafe { GetProcessTimes(process, created, ended, system, user) }
    });
    Some(ProcessUsage {
        cpu_ns,
        resident_bytes: memory.WorkingSetSize as u64,
        mapped_bytes: memory.PagefileUsage as u64,
        threads: Vec::new(),
    })
}

/// Number of open handles of this process: sockets, files, events and others.
pub(crate) fn open_handles() -> Option<usize> {
    let mut count = 0;
    // SAFETY: the call writes the number to `count`.
    let found = unsafe { GetProcessHandleCount(GetCurrentProcess(), &raw mut count) };
    (found != 0).then_some(count as usize)
}

/// Total memory of the machine in bytes.
pub(crate) fn memory_bytes() -> Option<u64> {
    let mut status =
        MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..MEMORYSTATUSEX::default() };
    // SAFETY: the call fills in the structure, whose size is in its first field.
    let found = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    (found != 0).then_some(status.ullTotalPhys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    #[test]
    fn a_process_reports_its_memory_handles_and_time() {
        let own = of_this_process().expect("a process may read its own figures");
        assert!(own.resident_bytes > 1 << 16, "{own:?}");
        let by_number = host::process_usage(std::process::id()).expect("this process exists");
        assert!(by_number.resident_bytes > 1 << 16 && by_number.cpu_ns >= own.cpu_ns, "{by_number:?}");
        assert_eq!(host::process_usage(u32::MAX), None);
        // Other tests of this program open and close handles, too.
        let sockets = [(); 200].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let many = host::open_descriptors().expect("known");
        drop(sockets);
        let few = host::open_descriptors().expect("known");
        if std::env::var_os("WINEPREFIX").is_some() {
            // Wine 8 counts no handles.
            assert_eq!((few, many), (0, 0));
        } else {
            assert!(few + 100 < many, "{few} of {many}");
        }
        assert!(host::memory_bytes().is_some_and(|bytes| bytes > host::resident_bytes().expect("known")));
    }
}
