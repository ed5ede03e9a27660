//! Accept loops that differ in how they wait (`accept.c`).

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

/// How the listening thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// For 10 ms, after each look.
    SleepAlways = 0,
    /// For 10 ms, after a look that found nobody.
    SleepIdle = 1,
    /// For somebody, and 10 ms at most: poll(2).
    Poll = 2,
}

/// What this process has used since it began.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ProcessUse {
    /// CPU time of all its threads.
    pub(crate) cpu_ns: u64,
    /// How often one of its threads gave up its processor, or lost it.
    pub(crate) switches: u64,
}

// SAFETY: the signatures are those of accept.c.
unsafe extern "C" {
    fn lab_accept(how: i32, listener: i32, stop: *const bool, answer: *const u8, bytes: usize) -> i64;
    fn lab_process_use(cpu_ns: *mut u64, switches: *mut u64);
}

/// The count of threads in `accept.c` is one for all.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Answers whoever connects, with a thread each, until `stop` is set, which is seen within 10 ms. Yields how many have
/// been answered.
///
/// # Errors
/// The system refuses the listener.
pub(crate) fn serve(how: How, listener: &TcpListener, stop: &AtomicBool, answer: &[u8]) -> io::Result<u64> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let told =
        // SAFETY: descriptor, flag and answer are borrowed until it returns, and the threads that it starts have ended
        // by then; C reads the flag as the atomic that it is.
        unsafe { lab_accept(how as i32, listener.as_raw_fd(), stop.as_ptr(), answer.as_ptr(), answer.len()) };
    u64::try_from(told).map_err(|_| io::Error::last_os_error())
}

/// What this process has used so far.
pub(crate) fn process_use() -> ProcessUse {
    let mut used = ProcessUse::default();
    // SAFETY: both are numbers to be written.
    unsafe { lab_process_use(&raw mut used.cpu_ns, &raw mut used.switches) };
    used
}
