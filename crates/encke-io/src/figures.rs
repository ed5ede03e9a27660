//! Figures of threads and of the machine's TCP, which the kernel keeps anyway: reading them costs the threads nothing.

use crate::host::{ThreadTimes, named, times};

use crate::sys::host::system_text;
pub use crate::sys::host::thread_id;

/// The times of a thread of this process; `None` if it has ended, or the system does not report them
/// (/proc/self/task/TID/schedstat).
pub fn thread_times_of(thread: u32) -> Option<ThreadTimes> {
    times(&system_text(format!("/proc/self/task/{thread}/schedstat"))?)
}

/// Figures of TCP in this network namespace, for all programs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MachineTcp {
    /// Connections that listeners dropped, for any reason (ListenDrops). Includes `listen_overflows`.
    pub listen_drops: u64,
    /// Connections that listeners dropped because their queue was full (ListenOverflows).
    pub listen_overflows: u64,
    /// Memory of the buffers of all TCP sockets, in pages of the system.
    memory_pages: u64,
}

impl MachineTcp {
    /// Memory of the buffers of all TCP sockets, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_pages.saturating_mul(crate::host::page_bytes())
    }
}

/// Returns the figures; `None` if the system does not report them (/proc/net/netstat and sockstat).
pub fn machine_tcp() -> Option<MachineTcp> {
    machine_tcp_of(&system_text("/proc/net/netstat")?, &system_text("/proc/net/sockstat")?)
}

fn machine_tcp_of(netstat: &str, sockstat: &str) -> Option<MachineTcp> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_ascii_whitespace().skip_while(|word| *word != "mem");
    Some(MachineTcp {
        listen_drops: named(netstat, "TcpExt:", "ListenDrops")?,
        listen_overflows: named(netstat, "TcpExt:", "ListenOverflows")?,
        memory_pages: words.nth(1)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name() {
        let netstat =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 7 3 5\nIpExt: A\nIpExt: 1\n";
        let sockstat = "sockets: used 9\nTCP: inuse 4 orphan 0 tw 2 alloc 6 mem 12\nUDP: inuse 1 mem 99\n";
        let found = machine_tcp_of(netstat, sockstat);
        assert_eq!(found, Some(MachineTcp { listen_drops: 5, listen_overflows: 3, memory_pages: 12 }));
        assert_eq!(machine_tcp_of(netstat, "UDP: inuse 1 mem 99\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_works_has_run() {
        let (send, ids) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(thread_id().expect("Linux has ids")).expect("the test waits");
            let _ended = wait.recv();
        });
        let id = ids.recv().expect("an id");
        let before = thread_times_of(thread_id().expect("Linux has ids")).expect("its own times");
        assert!(thread_times_of(id).is_some());
        drop(end);
        thread.join().expect("no panic");
        let mut sum = 0_u64;
        while thread_times_of(thread_id().expect("as above")).expect("as above").run_ns == before.run_ns {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(machine_tcp().is_some_and(|tcp| tcp.listen_drops >= tcp.listen_overflows));
    }
}
