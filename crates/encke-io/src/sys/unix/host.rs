//! The machine and this process, as Unix shows them.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::host::Signal;
pub use crate::sys::own::host::{pin_thread, pin_thread_here, thread_id, wake_on_time};
use rustix::fs::FileType;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The text of a file that the kernel provides (proc(5), sysfs(5)).
pub(crate) fn system_text(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The size of a file or directory that only the system's administrator can create.
pub(crate) fn system_size(path: impl AsRef<Path>) -> Option<u64> {
    std::fs::metadata(path).ok().map(|file| file.len())
}

pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Clock ticks per second in /proc/PID/stat (sysconf(3), _SC_CLK_TCK).
pub(crate) fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// Raises the soft limit of open descriptors to the hard limit. Returns the limit now in force.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(maximum) = limit.maximum else { return limit.current.unwrap_or(u64::MAX) };
    if limit.current == Some(maximum) {
        return maximum;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(maximum), maximum: Some(maximum) }) {
        Ok(()) => maximum,
        Err(_) => limit.current.unwrap_or(maximum),
    }
}

/// Maximum number of open descriptors of this process; `None` if there is no limit.
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Grows this process's descriptor table to `count` entries of 8 bytes at once. Linux doubles a full table. In a
/// multi-threaded process each doubling waits for an RCU grace period on all processors (synchronize_rcu()). This measured
/// 4 to 17 ms each, 80 ms of the 1.1 s for 10,000 connections.
pub fn reserve_descriptors(count: u64) {
    let Ok(last) = i32::try_from(count.saturating_sub(1)) else { return };
    // If this fails (no standard error, a lower limit), the table grows as usual.
    let _grown = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last);
}

/// CPU time used by this process, user plus system, in seconds (getrusage(2)).
pub fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes a whole `rusage` into memory of that size; all zeros is a valid value, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

const SIGNALS: [(libc::c_int, Signal); 5] = [
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGHUP, Signal::HangUp),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
];

/// The set of all [`Signal`]s, blocked in every thread so that one thread can wait for them.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks the signals in this thread and in the threads it starts later. Ignores SIGPIPE, and SIGXFSZ, so that a write
    /// beyond RLIMIT_FSIZE fails with EFBIG. Call this before the first thread starts.
    pub fn block() -> Self {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, which the other calls only read or change; SIG_IGN is a
        // valid disposition (signal(2)), and `nothing` does nothing, so it may run at any moment.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for (number, _) in SIGNALS {
                libc::sigaddset(set.as_mut_ptr(), number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t);
            Self(set.assume_init())
        }
    }

    /// Ways in which signals cannot reach this process, with the reasons: none on this system.
    pub const fn unavailable(&self) -> &[(String, io::Error)] {
        &[]
    }

    /// Runs `act` while this thread receives the signals with their default effect: each but SIGPIPE and SIGXFSZ ends the
    /// process. For a wait that the user may interrupt, before the server starts.
    pub fn unblocked<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: the set is initialised, and pthread_sigmask(3) only reads it.
        let mask = |how| unsafe { libc::pthread_sigmask(how, &raw const self.0, std::ptr::null_mut()) };
        mask(libc::SIG_UNBLOCK);
        let done = act();
        mask(libc::SIG_BLOCK);
        done
    }

    /// Blocks until the next signal arrives, and returns it.
    pub fn wait(&self) -> Signal {
        loop {
            let mut number = 0;
            // SAFETY: the set is initialised, and `number` is room for one signal number (sigwait(3)).
            let result = unsafe { libc::sigwait(&raw const self.0, &raw mut number) };
            if result == 0
                && let Some((_, signal)) = SIGNALS.iter().find(|(known, _)| *known == number)
            {
                return *signal;
            }
        }
    }
}

/// An empty handler for a signal that children must not ignore. execve(2) resets signals with a handler to the default, but
/// keeps SIG_IGN. (std restores SIGPIPE in the children that it starts.)
extern "C" fn nothing(_signal: libc::c_int) {}

/// Sends a signal to a process.
///
/// # Errors
/// The process does not exist, or belongs to another user.
pub fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    let number = SIGNALS.iter().find(|(_, known)| *known == signal).map_or(0, |(number, _)| *number);
    // SAFETY: kill(2) touches no memory of this process.
    if unsafe { libc::kill(pid as libc::pid_t, number) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Exits the process at once, without unwinding or flushing, for the second ^C.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) does not return and runs no code of this process.
    unsafe { libc::_exit(status) }
}

/// Sockets passed by the service manager (sd_listen_fds(3)). LISTEN_PID must name this process; LISTEN_FDS counts
/// descriptors from 3 on. Call this at most once.
///
/// # Errors
/// A descriptor is not a listening socket.
pub fn inherited_listeners() -> io::Result<Vec<crate::Listener>> {
    use std::os::fd::FromRawFd;
    let variable = |name| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    if variable("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    // The system gives no process more descriptors than an i32 counts.
    let end = variable("LISTEN_FDS").unwrap_or(0).saturating_add(3).min(i32::MAX as u32);
    (3..end)
        .map(|number| {
            // SAFETY: the call reads flags of a descriptor, which need not be open.
            if unsafe { libc::fcntl(number as i32, libc::F_GETFD) } < 0 {
                let text = format!("descriptor {number} of LISTEN_FDS is not open");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            // SAFETY: the service manager gives these descriptors to this process (LISTEN_PID is ours), and
            // nothing else in it knows of them.
            let descriptor = unsafe { rustix::fd::OwnedFd::from_raw_fd(number as i32) };
            crate::Listener::inherited(descriptor).map_err(|error| {
                io::Error::new(error.kind(), format!("descriptor {number} of LISTEN_FDS: {error}"))
            })
        })
        .collect()
}

/// Sends a datagram to a Unix socket of the service manager (sd_notify(3)), without waiting.
///
/// # Errors
/// No program listens there, or its queue is full.
pub fn send_to_manager(socket: &Path, text: &[u8]) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    // A manager with a full queue must not block the server.
    datagram.set_nonblocking(true)?;
    datagram.send_to(text, socket).map(drop)
}

/// The host name of this machine (uname(2)); `None` if it is not UTF-8.
pub fn name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

/// Not available on this system: a shell or the service manager redirects.
///
/// # Errors
/// Always.
pub fn redirect_errors(_path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: standard error was not redirected.
///
/// # Errors
/// None.
pub fn reopen_errors() -> io::Result<()> {
    Ok(())
}

/// Whether standard error is connected to the journal, which adds its own time stamps (sd-daemon(3)).
pub fn under_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Does nothing: terminals need no preparation.
pub fn prepare_console() {}

/// Opens the terminal of this process for reading, wherever standard input comes from.
///
/// # Errors
/// The process has no terminal.
pub fn open_terminal() -> io::Result<File> {
    File::open("/dev/tty")
}

/// Whether an error of `output` means that its terminal has disappeared: EIO from a character device. isatty(3) returns
/// false for such a terminal, and EIO from a file is a disk error.
pub fn is_lost_terminal(error: &io::Error, output: &impl AsFd) -> bool {
    let is_device =
        |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    error.raw_os_error() == Some(libc::EIO) && rustix::fs::fstat(output).is_ok_and(is_device)
}

/// Opens a pseudo-terminal (pty(7)) for tests. Returns the terminal's side and the programs' side.
///
/// # Errors
/// No pseudo-terminal is available.
pub fn pseudo_terminal() -> io::Result<(File, File)> {
    /// Held while the string returned by ptsname(3) is in use: each call overwrites it.
    static NAME: Mutex<()> = Mutex::new(());
    // Children must not inherit the descriptor: a terminal closes with its last descriptor.
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: posix_openpt(3) touches no memory of this process.
    let number = unsafe { libc::posix_openpt(flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened above, and nothing else knows of it.
    let terminal = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    // SAFETY: the descriptor is open; neither call touches memory of this process (grantpt(3), unlockpt(3)).
    if unsafe { libc::grantpt(number) } != 0 || unsafe { libc::unlockpt(number) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _one_at_a_time = NAME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the descriptor is open.
    let name = unsafe { libc::ptsname(number) };
    if name.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: ptsname(3) returned a string that ends with a zero byte, and no other call changes it while the lock is
    // held.
    let name = unsafe { CStr::from_ptr(name) };
    let slave = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(OsStr::from_bytes(name.to_bytes()))?;
    Ok((terminal, slave))
}

/// Fills `bytes` with random bytes from the system's secure generator.
///
/// # Errors
/// The generator is not available.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    use std::io::Read as _;
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// CLOCK_MONOTONIC (clock_gettime(2)), through the vDSO: 28 ns and some 40 instructions. `Instant` with its checks takes three
/// times as many instructions.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec to where it is pointed, and knows this clock everywhere.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The steps in which [`thread_cpu_ns`] grows, in ns.
pub const THREAD_CPU_STEP_NS: u64 = 1;

/// CPU time used by the calling thread, in ns: user plus system (CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)).
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec to where it is pointed; a thread may always ask for its own time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
