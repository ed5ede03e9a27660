//! The machine and this process, as Windows shows them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use windows_sys::Win32::Foundation::{ERROR_ALREADY_EXISTS, FILETIME, HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::Security::Cryptography::{BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom};
use windows_sys::Win32::System::Console::{
    AllocConsole, CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    STD_ERROR_HANDLE, SetConsoleCtrlHandler, SetStdHandle,
};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetSystemInfo, SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, EVENT_MODIFY_STATE, GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread,
    GetProcessTimes, GetThreadTimes, INFINITE, OpenEventW, SetEvent, SetThreadAffinityMask, TerminateProcess,
    WaitForMultipleObjects,
};

pub use super::console::{open_terminal, prepare_console};
use super::error::SysError;
use super::security;
use crate::host::Signal;
use crate::lock;

/// Time since the first call, in ns.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// A FILETIME in ns.
fn duration_ns(time: FILETIME) -> u64 {
    (u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)) * 100
}

/// User plus system time of a process or a thread, in ns, as `of` reads it.
pub(crate) fn times_ns(of: impl FnOnce([*mut FILETIME; 4]) -> i32) -> u64 {
    let [mut created, mut ended, mut system, mut user] = [FILETIME::default(); 4];
    if of([&raw mut created, &raw mut ended, &raw mut system, &raw mut user]) == 0 {
        return 0;
    }
    duration_ns(system) + duration_ns(user)
}

/// The steps in which [`thread_cpu_ns`] grows, in ns: the system counts a thread's time by ticks of its clock.
pub const THREAD_CPU_STEP_NS: u64 = 15_625_000;

/// CPU time used by the calling thread, in ns: user plus system. 0 if the system does not report it.
pub fn thread_cpu_ns() -> u64 {
    times_ns(|[created, ended, system, user]| {
        // SAFETY: each pointer leads to room for a FILETIME; a thread may always ask for its own times.
        unsafe { GetThreadTimes(GetCurrentThread(), created, ended, system, user) }
    })
}

/// CPU time used by this process, user plus system, in seconds.
pub fn cpu_seconds() -> f64 {
    let used_ns = times_ns(|[created, ended, system, user]| {
        // SAFETY: each pointer leads to room for a FILETIME; a process may always ask for its own times.
        unsafe { GetProcessTimes(GetCurrentProcess(), created, ended, system, user) }
    });
    used_ns as f64 / 1e9
}

/// The text of a file that the kernel provides: none on this system. `/proc` would be a directory of the current drive, which every
/// local user can create.
pub(crate) fn system_text(_path: impl AsRef<Path>) -> Option<String> {
    None
}

/// The size of a file or directory that only the system's administrator can create: none on this system, as in [`system_text`].
pub(crate) fn system_size(_path: impl AsRef<Path>) -> Option<u64> {
    None
}

pub(crate) fn page_bytes() -> u64 {
    let mut info = SYSTEM_INFO::default();
    // SAFETY: the call fills in the structure.
    unsafe { GetSystemInfo(&raw mut info) };
    info.dwPageSize.into()
}

/// Clock ticks per second in /proc/PID/stat, which this system does not have.
pub(crate) fn ticks_per_second() -> u64 {
    100
}

/// Handles that a process may have open: this system's limit is millions, and this one bounds the memory for connections.
const HANDLES: u64 = 1 << 16;

/// Returns a fixed number: this system has no descriptor limit worth raising.
pub fn raise_descriptor_limit() -> u64 {
    HANDLES
}

/// Maximum number of open descriptors of this process: this system has no such limit.
pub fn descriptor_limit() -> Option<u64> {
    None
}

/// Does nothing: this system has no such table.
pub fn reserve_descriptors(_count: u64) {}

/// Fills `bytes` with random bytes from the system's secure generator.
///
/// # Errors
/// The generator is not available.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    for piece in bytes.chunks_mut(1 << 20) {
        // SAFETY: pointer and length belong to `piece`.
        let status = unsafe {
            BCryptGenRandom(
                std::ptr::null_mut(),
                piece.as_mut_ptr(),
                piece.len() as u32,
                BCRYPT_USE_SYSTEM_PREFERRED_RNG,
            )
        };
        if status != 0 {
            return Err(SysError::of_status(status).into());
        }
    }
    Ok(())
}

/// Pins this thread to one processor.
///
/// # Errors
/// The thread may not run there.
pub fn pin_thread(processor: usize) -> io::Result<()> {
    let mask = u32::try_from(processor).ok().and_then(|bit| 1_usize.checked_shl(bit));
    let mask = mask.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes no pointers.
    if unsafe { SetThreadAffinityMask(GetCurrentThread(), mask) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Pins this thread to the processor that it currently runs on, and returns that processor.
///
/// # Errors
/// The system refuses.
pub fn pin_thread_here() -> io::Result<usize> {
    // SAFETY: the call takes no pointers.
    let processor = unsafe { GetCurrentProcessorNumber() } as usize;
    pin_thread(processor)?;
    Ok(processor)
}

/// Does nothing: waits end with the system's clock tick.
pub fn wake_on_time() {}

/// The id of this thread: its times are not available by id on this system.
pub fn thread_id() -> Option<u32> {
    None
}

/// The host name of this machine; `None` if it is not UTF-16.
pub fn name() -> Option<String> {
    let mut buffer = [0_u16; 256];
    let mut len = buffer.len() as u32;
    // SAFETY: the call writes at most `len` units to the buffer, which is that long.
    let found =
        unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, buffer.as_mut_ptr(), &raw mut len) };
    if found == 0 {
        return None;
    }
    String::from_utf16(buffer.get(..len as usize)?).ok()
}

/// Sockets passed by a service manager: none on this system.
///
/// # Errors
/// None.
pub fn inherited_listeners() -> io::Result<Vec<crate::Listener>> {
    Ok(Vec::new())
}

/// Not available on this system: its service manager has no such socket.
///
/// # Errors
/// Always.
pub fn send_to_manager(_socket: &Path, _text: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether standard error is connected to the journal, which this system does not have.
pub fn under_journal() -> bool {
    false
}

/// Whether an error of `output` means that its terminal has disappeared: a closed console ends its processes instead.
pub fn is_lost_terminal(_error: &io::Error, _output: &impl AsHandle) -> bool {
    false
}

/// The file to which standard error was redirected, and its handles. The handle before the last one stays open, because another
/// thread may still write to it.
struct RedirectedErrors {
    path: PathBuf,
    current: File,
    _previous: Option<File>,
}

static ERRORS: Mutex<Option<RedirectedErrors>> = Mutex::new(None);

/// Appends standard error of this process to a file from now on. The file may be renamed and removed meanwhile.
///
/// # Errors
/// The file cannot be opened.
pub fn redirect_errors(path: &Path) -> io::Result<()> {
    let mut errors = lock(&ERRORS);
    let file = File::options().append(true).create(true).open(path)?;
    // SAFETY: the handle stays open: the file is kept at least until standard error has another one.
    if unsafe { SetStdHandle(STD_ERROR_HANDLE, file.as_raw_handle()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let previous = errors.take().map(|old| old.current);
    *errors = Some(RedirectedErrors { path: path.to_owned(), current: file, _previous: previous });
    Ok(())
}

/// Opens the file of [`redirect_errors`] again, after it was renamed. Does nothing if standard error was not redirected.
///
/// # Errors
/// The file cannot be opened. The old one stays in use.
pub fn reopen_errors() -> io::Result<()> {
    let path = lock(&ERRORS).as_ref().map(|errors| errors.path.clone());
    path.map_or(Ok(()), |path| redirect_errors(&path))
}

/// Not available on this system.
///
/// # Errors
/// Always.
pub fn pseudo_terminal() -> io::Result<(File, File)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Exits the process at once, without unwinding or flushing, for the second ^C.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: the call ends this process and runs no code of it.
    unsafe { TerminateProcess(GetCurrentProcess(), status as u32) };
    // Reached only if the system refuses.
    std::process::exit(status)
}

/// The signals, and the names of their events.
const SIGNALS: [(Signal, &str); 5] = [
    (Signal::Terminate, "stop"),
    (Signal::Interrupt, "interrupt"),
    (Signal::HangUp, "reload"),
    (Signal::User1, "reopen"),
    (Signal::User2, "handover"),
];

/// Signals that have arrived and that [`Signals::wait`] has not returned.
struct ArrivedSignals {
    queue: VecDeque<Signal>,
    /// Whether the console's signals have their default effect: they end the process.
    by_default: bool,
    /// Whether [`Signals`] exist.
    are_awaited: bool,
}

static ARRIVED: Mutex<ArrivedSignals> =
    Mutex::new(ArrivedSignals { queue: VecDeque::new(), by_default: false, are_awaited: false });
static ARRIVAL: Condvar = Condvar::new();

/// Whether this process is a service: its console outlives the users' sessions.
static IS_SERVICE: AtomicBool = AtomicBool::new(false);

/// Prepares this process to be a service: it ignores the end of a user's session, and gets a hidden console, which it needs to send
/// ^Break to its applications.
pub(super) fn become_service() {
    IS_SERVICE.store(true, Ordering::Relaxed);
    // SAFETY: the call takes no pointers. It fails if there is a console already.
    unsafe { AllocConsole() };
}

pub(super) fn arrive(signal: Signal) {
    lock(&ARRIVED).queue.push_back(signal);
    ARRIVAL.notify_one();
}

/// The signals of this process: ^C, ^Break and the end of the console, and one named event for each [`Signal`],
/// `Global\\encke-PID-stop`, `-interrupt`, `-reload`, `-reopen` and `-handover`, which [`send_signal`] sets. Only this process's user,
/// administrators and the system may set them, from any session.
pub struct Signals {
    unavailable: Vec<(String, io::Error)>,
}

impl Signals {
    /// Receives the signals from now on. Call this before the first thread starts, at most once.
    pub fn block() -> Self {
        lock(&ARRIVED).are_awaited = true;
        // SAFETY: `on_console` may run at any moment, on a thread of the system.
        let _no_console = unsafe { SetConsoleCtrlHandler(Some(on_console), 1) };
        let SignalEvents { events, unavailable } = SignalEvents::create(std::process::id());
        let _no_thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || watch(&events));
        Self { unavailable }
    }

    /// Ways in which signals cannot reach this process: names of events that could not be created, with the reasons.
    pub fn unavailable(&self) -> &[(String, io::Error)] {
        &self.unavailable
    }

    /// Runs `act` while the console's signals have their default effect: they end the process.
    pub fn unblocked<T>(&self, act: impl FnOnce() -> T) -> T {
        lock(&ARRIVED).by_default = true;
        let done = act();
        lock(&ARRIVED).by_default = false;
        done
    }

    /// Blocks until the next signal arrives, and returns it.
    pub fn wait(&self) -> Signal {
        let mut arrived = lock(&ARRIVED);
        loop {
            if let Some(signal) = arrived.queue.pop_front() {
                return signal;
            }
            arrived = ARRIVAL.wait(arrived).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Takes a signal of the console. Returns whether it was handled.
extern "system" fn on_console(event: u32) -> i32 {
    if lock(&ARRIVED).by_default {
        return 0;
    }
    match event {
        CTRL_C_EVENT => arrive(Signal::Interrupt),
        CTRL_BREAK_EVENT => arrive(Signal::Terminate),
        // The service manager tells a service about the end of the system.
        CTRL_LOGOFF_EVENT | CTRL_SHUTDOWN_EVENT if IS_SERVICE.load(Ordering::Relaxed) => {}
        CTRL_CLOSE_EVENT | CTRL_LOGOFF_EVENT | CTRL_SHUTDOWN_EVENT => {
            arrive(Signal::Terminate);
            // The system ends the process when this function returns, or after some seconds: time to drain.
            loop {
                std::thread::park();
            }
        }
        _ => return 0,
    }
    1
}

fn watch(events: &[(Signal, OwnedHandle)]) {
    let handles: Vec<HANDLE> = events.iter().map(|(_, event)| event.as_raw_handle()).collect();
    loop {
        // SAFETY: pointer and length belong to `handles`, which stay open.
        let woken = unsafe { WaitForMultipleObjects(handles.len() as u32, handles.as_ptr(), 0, INFINITE) };
        match events.get(woken.wrapping_sub(WAIT_OBJECT_0) as usize) {
            Some((signal, _)) => arrive(*signal),
            // The wait failed, and would fail again.
            None => return,
        }
    }
}

/// The name of an event. Names without `Global\` belong to one session, and services have their own.
fn event_name(pid: u32, name: &str) -> String {
    format!("Global\\encke-{pid}-{name}")
}

fn zero_terminated(name: &str) -> Vec<u16> {
    name.encode_utf16().chain([0]).collect()
}

/// The events of a process, and for each event that could not be created its name and the reason.
#[derive(Default)]
struct SignalEvents {
    events: Vec<(Signal, OwnedHandle)>,
    unavailable: Vec<(String, io::Error)>,
}

impl SignalEvents {
    fn create(pid: u32) -> Self {
        let mut created = Self::default();
        for (signal, name) in SIGNALS {
            let name = event_name(pid, name);
            match create_event(&name) {
                Ok(event) => created.events.push((signal, event)),
                Err(error) => created.unavailable.push((name, error)),
            }
        }
        created
    }
}

/// Creates an event.
///
/// # Errors
/// Another process has created it, and may set it; or the system's error.
fn create_event(name: &str) -> io::Result<OwnedHandle> {
    let name = zero_terminated(name);
    let descriptor = security::for_owner_and_administrators("GA", "")?;
    let attributes = descriptor.attributes();
    // SAFETY: the name ends with a zero; name and attributes live until the call returns.
    let handle = unsafe { CreateEventW(&raw const attributes, 0, 0, name.as_ptr()) };
    let error = io::Error::last_os_error();
    if handle.is_null() {
        return Err(error);
    }
    // SAFETY: the handle was opened above, and nothing else knows of it.
    let event = unsafe { OwnedHandle::from_raw_handle(handle) };
    if error.raw_os_error() == Some(ERROR_ALREADY_EXISTS as i32) { Err(error) } else { Ok(event) }
}

/// Sends a signal to a process that receives [`Signals`]. This process gets it without its event, which another program may have
/// created before.
///
/// # Errors
/// The process does not exist, receives no signals, or belongs to another user.
pub fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    if pid == std::process::id() {
        if !lock(&ARRIVED).are_awaited {
            return Err(io::ErrorKind::NotFound.into());
        }
        arrive(signal);
        return Ok(());
    }
    set_event(pid, signal)
}

/// Sets the event of a process for a signal.
fn set_event(pid: u32, signal: Signal) -> io::Result<()> {
    let name = SIGNALS.iter().find(|(known, _)| *known == signal).map_or("", |(_, name)| *name);
    let name = zero_terminated(&event_name(pid, name));
    // SAFETY: the name ends with a zero and lives until the call returns.
    let handle = unsafe { OpenEventW(EVENT_MODIFY_STATE, 0, name.as_ptr()) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was opened above, and nothing else knows of it.
    let event = unsafe { OwnedHandle::from_raw_handle(handle) };
    // SAFETY: the event is open; the call takes no pointers.
    if unsafe { SetEvent(event.as_raw_handle()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_this_process_arrives() {
        let signals = Signals::block();
        for (signal, _) in SIGNALS {
            send_signal(std::process::id(), signal).expect("this process receives signals");
            assert_eq!(signals.wait(), signal);
            set_event(std::process::id(), signal).expect("as another process would do it");
            assert_eq!(signals.wait(), signal);
        }
        assert!(send_signal(u32::MAX, Signal::HangUp).is_err(), "there is no such process");
    }

    #[test]
    fn events_that_another_process_has_created_are_unavailable() {
        // No process has this id: it is no multiple of 4.
        let pid = std::process::id() | 1;
        let SignalEvents { events, unavailable } = SignalEvents::create(pid);
        assert_eq!((events.len(), unavailable.len()), (SIGNALS.len(), 0), "{unavailable:?}");
        let SignalEvents { events: again, unavailable } = SignalEvents::create(pid);
        assert!(again.is_empty(), "another process could send signals to this one");
        let names: Vec<&str> = unavailable.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names[2], format!("Global\\encke-{pid}-reload"));
        for (name, error) in &unavailable {
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}: {error}");
        }
        drop(events);
        assert_eq!(SignalEvents::create(pid).events.len(), SIGNALS.len(), "they are free again");
    }

    #[test]
    fn files_of_other_systems_are_not_read() {
        let folder = std::env::temp_dir().join(format!("encke-system-text-{}", std::process::id()));
        std::fs::write(&folder, "0::/").expect("written");
        assert_eq!((system_text(&folder), system_size(&folder)), (None, None));
        std::fs::remove_file(&folder).expect("removed");
    }

    #[test]
    fn random_bytes_differ_and_times_grow() {
        let [mut one, mut other] = [[0; 32]; 2];
        random(&mut one).expect("a generator");
        random(&mut other).expect("a generator");
        assert_ne!(one, other);
        let before = monotonic_ns();
        let mut sum = 0_u64;
        while monotonic_ns() == before || cpu_seconds() == 0.0 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(name().is_some_and(|name| !name.is_empty()));
        assert!(page_bytes() >= 4096);
    }
}
