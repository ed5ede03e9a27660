//! Accept loops that differ in how they wait (`accept.c`).

use std::io;
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use encke_io::host;

use super::system::{CSocket, SpecimenSystem, socket};

/// How the listening thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcceptHow {
    /// Sleeps 10 ms after each `accept`.
    SleepAlways,
    /// Sleeps 10 ms after an `accept` that found no connection.
    SleepIdle,
    /// Waits for a connection with poll(2), at most 10 ms at a time.
    Poll,
    /// The same with WSAPoll, the poll of Windows.
    WsaPoll,
}

impl AcceptHow {
    /// The systems that have it.
    pub(crate) const fn system(self) -> SpecimenSystem {
        match self {
            Self::SleepAlways | Self::SleepIdle => SpecimenSystem::Any,
            Self::Poll => SpecimenSystem::Unix,
            Self::WsaPoll => SpecimenSystem::Windows,
        }
    }

    /// The number in `accept.c`, where both polls are one.
    const fn number(self) -> i32 {
        match self {
            Self::SleepAlways => 0,
            Self::SleepIdle => 1,
            Self::Poll | Self::WsaPoll => 2,
        }
    }
}

/// Resources that this process has used since its start.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ProcessUse {
    /// CPU time of all its threads.
    pub(crate) cpu_ns: u64,
    /// Context switches of its threads, voluntary or not; `None` if the system does not count them.
    pub(crate) switches: Option<u64>,
}

// SAFETY: the signatures are those of accept.c.
unsafe extern "C" {
    fn lab_accept(how: i32, listener: CSocket, stop: *const bool, answer: *const u8, bytes: usize) -> i64;
    fn lab_process_use(cpu_ns: *mut u64, switches: *mut u64) -> i32;
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
        unsafe { lab_accept(how.number(), socket(listener), stop.as_ptr(), answer.as_ptr(), answer.len()) };
    u64::try_from(told).map_err(|_| io::Error::last_os_error())
}

/// Returns the resources that this process has used so far.
pub(crate) fn process_use() -> ProcessUse {
    let (mut cpu_ns, mut switches) = (0, 0);
    // SAFETY: both are numbers to be written.
    match unsafe { lab_process_use(&raw mut cpu_ns, &raw mut switches) } {
        0 => ProcessUse { cpu_ns: (host::cpu_seconds() * 1e9) as u64, switches: None },
        _ => ProcessUse { cpu_ns, switches: Some(switches) },
    }
}
