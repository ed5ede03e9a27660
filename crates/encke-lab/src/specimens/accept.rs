//! Accept loops that differ in how they wait (`accept.c`).

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

/// How the listening thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcceptHow {
    /// Sleeps 10 ms after each `accept`.
    SleepAlways = 0,
    /// Sleeps 10 ms after an `accept` that found no connection.
    SleepIdle = 1,
    /// Waits for a connection with poll(2), at most 10 ms at a time.
    Poll = 2,
}

/// Resources that this process has used since its start.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ProcessUse {
    /// CPU time of all its threads.
    pub(crate) cpu_ns: u64,
    /// Context switches of its threads, voluntary or not.
    pub(crate) switches: u64,
}

// SAFETY: the signatures are those of accept.c.
unsafe extern "C" {
    fn lab_accept(how: i32, listener: i32, stop: *const bool, answer: *const u8, bytes: usize) -> i64;
    fn lab_process_use(cpu_ns: *mut u64, switches: *mut u64);
}

/// All loops share the count of threads in `accept.c`.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Responds to every connection, each on a thread of its own, until `stop` is set, which the loop notices within 10 ms. Returns
/// the number of connections.
///
/// # Errors
/// The system rejects the listener.
pub(crate) fn serve(
    how: AcceptHow,
    listener: &TcpListener,
    stop: &AtomicBool,
    answer: &[u8],
) -> io::Result<u64> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let told =
        // SAFETY: descriptor, flag and answer are borrowed until it returns, and the threads that it starts have ended
        // by then; C reads the flag as the atomic that it is.
        unsafe { lab_accept(how as i32, listener.as_raw_fd(), stop.as_ptr(), answer.as_ptr(), answer.len()) };
    u64::try_from(told).map_err(|_| io::Error::last_os_error())
}

/// Returns the resources that this process has used so far.
pub(crate) fn process_use() -> ProcessUse {
    let mut used = ProcessUse::default();
    // SAFETY: both are numbers to be written.
    unsafe { lab_process_use(&raw mut used.cpu_ns, &raw mut used.switches) };
    used
}
