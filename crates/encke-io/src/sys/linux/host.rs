//! Threads of Linux.

use std::io;

/// Pins this thread to one processor.
///
/// # Errors
/// The thread may not run there.
pub fn pin_thread(processor: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Makes this thread's timed waits end on time. By default the kernel may delay each by 50 µs to batch wake-ups
/// (PR_SET_TIMERSLACK, prctl(2)). No effect if the system refuses.
pub fn wake_on_time() {
    let _best_effort = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Pins this thread, and the threads it starts later, to the processor that it currently runs on. Returns that processor.
///
/// # Errors
/// The system refuses.
pub fn pin_thread_here() -> io::Result<usize> {
    let processor = rustix::thread::sched_getcpu();
    pin_thread(processor)?;
    Ok(processor)
}

/// The id of this thread (gettid(2)), for [`crate::figures::thread_times_of`]; `None` if the system has none.
pub fn thread_id() -> Option<u32> {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()
}
