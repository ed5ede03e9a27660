//! Services of Windows: the service manager, and the process of a service.
//!
//! ```text
//!  run ─► StartServiceCtrlDispatcherW ─ a thread of the system ─► service_main ─► main ─► STOPPED, exit code
//!                       │                                             └─ pulse, a thread: checkpoints while a phase is pending
//!                       └─ on_control, on the first thread ─► Signals
//! ```
//! A pending phase must report a checkpoint now and then, otherwise the manager takes the process for dead. The pulse does so every
//! [`PULSE`] until the process runs or has stopped, so a drain may take as long as the settings permit.

use std::ffi::OsStr;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_CALL_NOT_IMPLEMENTED, ERROR_DUPLICATE_SERVICE_NAME,
    ERROR_FAILED_SERVICE_CONTROLLER_CONNECT, ERROR_FILE_NOT_FOUND, ERROR_SERVICE_ALREADY_RUNNING,
    ERROR_SERVICE_CANNOT_ACCEPT_CTRL, ERROR_SERVICE_DOES_NOT_EXIST, ERROR_SERVICE_EXISTS,
    ERROR_SERVICE_MARKED_FOR_DELETE, ERROR_SERVICE_NOT_ACTIVE, ERROR_SERVICE_SPECIFIC_ERROR, NO_ERROR,
};
use windows_sys::Win32::Storage::FileSystem::DELETE;
use windows_sys::Win32::System::EventLog::{
    DeregisterEventSource, EVENTLOG_ERROR_TYPE, RegisterEventSourceW, ReportEventW,
};
use windows_sys::Win32::System::Registry::{
    HKEY, HKEY_LOCAL_MACHINE, KEY_SET_VALUE, REG_DWORD, REG_EXPAND_SZ, REG_OPTION_NON_VOLATILE, RegCloseKey,
    RegCreateKeyExW, RegDeleteKeyW, RegSetValueExW,
};
use windows_sys::Win32::System::Services::{
    ChangeServiceConfig2W, CloseServiceHandle, ControlService, CreateServiceW, DeleteService, OpenSCManagerW,
    OpenServiceW, QueryServiceStatusEx, RegisterServiceCtrlHandlerExW, SC_ACTION, SC_ACTION_RESTART,
    SC_HANDLE, SC_MANAGER_CONNECT, SC_MANAGER_CREATE_SERVICE, SC_STATUS_PROCESS_INFO,
    SERVICE_ACCEPT_PARAMCHANGE, SERVICE_ACCEPT_PRESHUTDOWN, SERVICE_ACCEPT_SHUTDOWN, SERVICE_ACCEPT_STOP,
    SERVICE_AUTO_START, SERVICE_CHANGE_CONFIG, SERVICE_CONFIG, SERVICE_CONFIG_DESCRIPTION,
    SERVICE_CONFIG_FAILURE_ACTIONS, SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, SERVICE_CONFIG_PRESHUTDOWN_INFO,
    SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO, SERVICE_CONTROL_INTERROGATE, SERVICE_CONTROL_PARAMCHANGE,
    SERVICE_CONTROL_PRESHUTDOWN, SERVICE_CONTROL_SHUTDOWN, SERVICE_CONTROL_STOP, SERVICE_DESCRIPTIONW,
    SERVICE_ERROR_NORMAL, SERVICE_FAILURE_ACTIONS_FLAG, SERVICE_FAILURE_ACTIONSW, SERVICE_PAUSE_CONTINUE,
    SERVICE_PRESHUTDOWN_INFO, SERVICE_QUERY_STATUS, SERVICE_REQUIRED_PRIVILEGES_INFOW, SERVICE_RUNNING,
    SERVICE_START, SERVICE_START_PENDING, SERVICE_STATUS, SERVICE_STATUS_HANDLE, SERVICE_STATUS_PROCESS,
    SERVICE_STOP, SERVICE_STOP_PENDING, SERVICE_STOPPED, SERVICE_TABLE_ENTRYW, SERVICE_USER_DEFINED_CONTROL,
    SERVICE_WIN32_OWN_PROCESS, SetServiceStatus, StartServiceCtrlDispatcherW, StartServiceW,
};

use super::command_line::{command_line, zero_terminated};
use super::host;
use super::security::{self, SecurityDescriptor};
use crate::host::Signal;
use crate::lock;
use crate::service::{ServiceAccess, ServiceControl, ServiceManagerError, ServicePhase, ServicePlan};

/// Whether this system has a service manager of Windows.
pub const IS_AVAILABLE: bool = true;

/// The account of an installed service: few rights on this machine; in a network it acts as the machine.
const ACCOUNT: &str = r"NT AUTHORITY\NetworkService";
/// The only privilege that the service's process keeps: to pass directories that it may not list. The account has others, such as
/// that to act as its clients.
const PRIVILEGE: &str = "SeChangeNotifyPrivilege";
/// The exit code of a process whose main function has panicked.
const PANICKED: u32 = 1;

/// Waits before the restarts after a failure, in ms; the last one is for all later failures.
const RESTARTS_MS: [u32; 3] = [1_000, 10_000, 60_000];
/// Time after which a failure counts as the first, in seconds.
const RESET_S: u32 = 86_400;

/// Controls of our own: SIGUSR1 and SIGUSR2 of other systems.
const CONTROL_REOPEN: u32 = 128;
const CONTROL_HAND_OVER: u32 = 129;

/// Time between two checkpoints, and the time within which the manager expects the next one.
const PULSE: Duration = Duration::from_secs(1);
const HINT_MS: u32 = 10_000;

/// Time between two looks at a service that starts or stops, and for which it may make no progress.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

/// A handle of the service manager.
struct ScHandle(SC_HANDLE);

impl Drop for ScHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and used no more.
        unsafe { CloseServiceHandle(self.0) };
    }
}

fn wide(text: &str) -> Result<Vec<u16>, ServiceManagerError> {
    zero_terminated(OsStr::new(text)).map_err(|error| ServiceManagerError::System(text.to_owned(), error))
}

/// The error of this thread's last call for a service.
fn last_error(name: &str, step: &str) -> ServiceManagerError {
    let error = io::Error::last_os_error();
    match error.raw_os_error().unwrap_or(0) as u32 {
        ERROR_ACCESS_DENIED => ServiceManagerError::NotAdministrator,
        ERROR_SERVICE_EXISTS | ERROR_DUPLICATE_SERVICE_NAME => {
            ServiceManagerError::AlreadyInstalled(name.into())
        }
        ERROR_SERVICE_DOES_NOT_EXIST => ServiceManagerError::NotInstalled(name.into()),
        ERROR_SERVICE_MARKED_FOR_DELETE => ServiceManagerError::Leaving(name.into()),
        ERROR_SERVICE_ALREADY_RUNNING => ServiceManagerError::AlreadyRunning(name.into()),
        // A service that starts or stops takes no controls.
        ERROR_SERVICE_NOT_ACTIVE | ERROR_SERVICE_CANNOT_ACCEPT_CTRL => {
            ServiceManagerError::NotRunning(name.into())
        }
        _ => ServiceManagerError::System(format!("cannot {step} the service {name}"), error),
    }
}

fn manager(access: u32) -> Result<ScHandle, ServiceManagerError> {
    // SAFETY: null names this machine and its active database.
    let handle = unsafe { OpenSCManagerW(std::ptr::null(), std::ptr::null(), access) };
    if handle.is_null() { Err(last_error("manager", "open")) } else { Ok(ScHandle(handle)) }
}

fn open(name: &str, access: u32) -> Result<ScHandle, ServiceManagerError> {
    let manager = manager(SC_MANAGER_CONNECT)?;
    let wide = wide(name)?;
    // SAFETY: the manager is open, and the name ends with a zero.
    let handle = unsafe { OpenServiceW(manager.0, wide.as_ptr(), access) };
    if handle.is_null() { Err(last_error(name, "open")) } else { Ok(ScHandle(handle)) }
}

/// The directory for the data of services: `%ProgramData%`.
///
/// # Errors
/// The variable is missing.
pub fn data_directory() -> Result<PathBuf, ServiceManagerError> {
    let found = std::env::var_os("ProgramData").map(PathBuf::from).filter(|path| path.is_absolute());
    found.ok_or_else(|| {
        ServiceManagerError::System(
            "the variable ProgramData names no directory".into(),
            io::ErrorKind::NotFound.into(),
        )
    })
}

/// Whether this process may install services.
///
/// # Errors
/// It may not, or the system's error.
pub fn check_rights() -> Result<(), ServiceManagerError> {
    manager(SC_MANAGER_CONNECT | SC_MANAGER_CREATE_SERVICE).map(drop)
}

/// Whether a service is installed.
///
/// # Errors
/// The system's.
pub fn is_installed(name: &str) -> Result<bool, ServiceManagerError> {
    match open(name, SERVICE_QUERY_STATUS) {
        Ok(_) => Ok(true),
        Err(ServiceManagerError::NotInstalled(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a directory with access for the administrators, the system and the account of services only. If the directory exists,
/// sets these rights.
///
/// # Errors
/// The directory belongs to another user, is a link or no directory, or the system's error.
pub fn make_directory(path: &Path, access: ServiceAccess) -> Result<(), ServiceManagerError> {
    let made = directory_rights(access).and_then(|rights| security::make_directory(path, &rights));
    match made {
        Ok(true) => Ok(()),
        Ok(false) => Err(ServiceManagerError::ForeignDirectory(path.to_owned())),
        Err(error) => {
            Err(ServiceManagerError::System(format!("cannot create the directory {}", path.display()), error))
        }
    }
}

/// The descriptor of a directory of [`make_directory`]. Files and directories in it inherit its entries.
fn directory_rights(access: ServiceAccess) -> io::Result<SecurityDescriptor> {
    // FILE_GENERIC_READ | FILE_GENERIC_EXECUTE, and with them FILE_GENERIC_WRITE | DELETE.
    let rights = match access {
        ServiceAccess::Read => "0x1200a9",
        ServiceAccess::Write => "0x1301bf",
    };
    SecurityDescriptor::of(&format!("O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;{rights};;;NS)"))
}

/// Checks that a settings file is no link, and belongs to administrators, to the system, or to this user: others could change what
/// the service does.
///
/// # Errors
/// It does not, or the system's error.
pub fn check_settings(path: &Path) -> Result<(), ServiceManagerError> {
    match security::is_trusted(path) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ServiceManagerError::ForeignSettings(path.to_owned())),
        Err(error) => Err(ServiceManagerError::System(format!("cannot use {}", path.display()), error)),
    }
}

/// Installs a service: with the account NetworkService, a start with the system, restarts after failures, and a source of the event
/// log.
///
/// # Errors
/// See [`ServiceManagerError`].
pub fn install(plan: &ServicePlan<'_>) -> Result<(), ServiceManagerError> {
    let name = plan.name;
    let manager = manager(SC_MANAGER_CONNECT | SC_MANAGER_CREATE_SERVICE)?;
    let arguments = plan.arguments.iter().map(|argument| &**argument);
    let line = command_line(plan.program.as_os_str(), arguments)
        .map_err(|error| ServiceManagerError::System(format!("cannot install the service {name}"), error))?;
    let (wide_name, title, account) = (wide(name)?, wide(plan.title)?, wide(ACCOUNT)?);
    // SAFETY: the manager is open; all texts end with a zero and live until the call returns; null is permitted for the others.
    let handle = unsafe {
        CreateServiceW(
            manager.0,
            wide_name.as_ptr(),
            title.as_ptr(),
            // A service with restarts needs the right to start.
            SERVICE_CHANGE_CONFIG | SERVICE_START | DELETE,
            SERVICE_WIN32_OWN_PROCESS,
            SERVICE_AUTO_START,
            SERVICE_ERROR_NORMAL,
            line.as_ptr(),
            std::ptr::null(),
            std::ptr::null_mut(),
            std::ptr::null(),
            account.as_ptr(),
            std::ptr::null(),
        )
    };
    if handle.is_null() {
        return Err(last_error(name, "install"));
    }
    let service = ScHandle(handle);
    configure(&service, plan).and_then(|()| add_event_source(name)).inspect_err(|_| {
        // SAFETY: the service is open with this right.
        unsafe { DeleteService(service.0) };
    })
}

/// Sets what CreateServiceW cannot.
fn configure(service: &ScHandle, plan: &ServicePlan<'_>) -> Result<(), ServiceManagerError> {
    let set = |what: SERVICE_CONFIG, info: *const core::ffi::c_void| {
        // SAFETY: the service is open; `info` leads to the structure that belongs to `what`, and lives until the call returns.
        if unsafe { ChangeServiceConfig2W(service.0, what, info) } == 0 {
            return Err(last_error(plan.name, "configure"));
        }
        Ok(())
    };
    let mut text = wide(plan.description)?;
    let description = SERVICE_DESCRIPTIONW { lpDescription: text.as_mut_ptr() };
    set(SERVICE_CONFIG_DESCRIPTION, (&raw const description).cast())?;
    let mut actions = RESTARTS_MS.map(|delay_ms| SC_ACTION { Type: SC_ACTION_RESTART, Delay: delay_ms });
    let failure = SERVICE_FAILURE_ACTIONSW {
        dwResetPeriod: RESET_S,
        lpRebootMsg: std::ptr::null_mut(),
        lpCommand: std::ptr::null_mut(),
        cActions: actions.len() as u32,
        lpsaActions: actions.as_mut_ptr(),
    };
    set(SERVICE_CONFIG_FAILURE_ACTIONS, (&raw const failure).cast())?;
    // Restarts also after an exit status, as systemd's `Restart=on-failure`; wine does not know this.
    let flag = SERVICE_FAILURE_ACTIONS_FLAG { fFailureActionsOnNonCrashFailures: 1 };
    let _only_after_crashes = set(SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, (&raw const flag).cast());
    let mut privileges = wide(PRIVILEGE)?;
    // The list ends with an empty text.
    privileges.push(0);
    let required = SERVICE_REQUIRED_PRIVILEGES_INFOW { pmszRequiredPrivileges: privileges.as_mut_ptr() };
    // Without it, the process has all privileges of its account.
    let _all_privileges = set(SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO, (&raw const required).cast());
    let stop_ms = u32::try_from(plan.stop_time.as_millis()).unwrap_or(u32::MAX);
    let shutdown = SERVICE_PRESHUTDOWN_INFO { dwPreshutdownTimeout: stop_ms };
    set(SERVICE_CONFIG_PRESHUTDOWN_INFO, (&raw const shutdown).cast())
}

/// The registry's key of a source of events.
fn event_source(name: &str) -> Result<Vec<u16>, ServiceManagerError> {
    wide(&format!(r"SYSTEM\CurrentControlSet\Services\EventLog\Application\{name}"))
}

/// Registers a source of events. Their text is the whole message: eventcreate.exe of the system has messages of this form.
fn add_event_source(name: &str) -> Result<(), ServiceManagerError> {
    let failed = |status| {
        let error = io::Error::from_raw_os_error(status as i32);
        ServiceManagerError::System(format!("cannot register {name} with the event log"), error)
    };
    let path = event_source(name)?;
    let mut key: HKEY = std::ptr::null_mut();
    // SAFETY: the path ends with a zero, and the call writes one handle; null is permitted for the others.
    let status = unsafe {
        RegCreateKeyExW(
            HKEY_LOCAL_MACHINE,
            path.as_ptr(),
            0,
            std::ptr::null(),
            REG_OPTION_NON_VOLATILE,
            KEY_SET_VALUE,
            std::ptr::null(),
            &raw mut key,
            std::ptr::null_mut(),
        )
    };
    if status != NO_ERROR {
        return Err(failed(status));
    }
    let set = |value: &str, kind, bytes: &[u8]| {
        let value = wide(value)?;
        // SAFETY: the key is open, the name ends with a zero, and pointer and length belong to `bytes`.
        match unsafe { RegSetValueExW(key, value.as_ptr(), 0, kind, bytes.as_ptr(), bytes.len() as u32) } {
            NO_ERROR => Ok(()),
            status => Err(failed(status)),
        }
    };
    let file: Vec<u8> =
        wide(r"%SystemRoot%\System32\eventcreate.exe")?.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    // Errors, warnings, and information.
    let types = 7_u32.to_le_bytes();
    let done =
        set("EventMessageFile", REG_EXPAND_SZ, &file).and_then(|()| set("TypesSupported", REG_DWORD, &types));
    // SAFETY: the key is open, and used no more.
    unsafe { RegCloseKey(key) };
    done
}

fn remove_event_source(name: &str) -> Result<(), ServiceManagerError> {
    let path = event_source(name)?;
    // SAFETY: the path ends with a zero.
    match unsafe { RegDeleteKeyW(HKEY_LOCAL_MACHINE, path.as_ptr()) } {
        NO_ERROR | ERROR_FILE_NOT_FOUND => Ok(()),
        status => {
            let error = io::Error::from_raw_os_error(status as i32);
            Err(ServiceManagerError::System(format!("cannot remove {name} from the event log"), error))
        }
    }
}

/// Stops a service if it runs, and removes it and its source of the event log.
///
/// # Errors
/// See [`ServiceManagerError`].
pub fn remove(name: &str) -> Result<(), ServiceManagerError> {
    let service = open(name, SERVICE_STOP | SERVICE_QUERY_STATUS | DELETE)?;
    match stop_service(&service, name) {
        Ok(()) | Err(ServiceManagerError::NotRunning(_)) => {}
        Err(error) => return Err(error),
    }
    // SAFETY: the service is open with this right.
    if unsafe { DeleteService(service.0) } == 0 {
        return Err(last_error(name, "remove"));
    }
    remove_event_source(name)
}

/// Starts a service, and waits until it runs.
///
/// # Errors
/// See [`ServiceManagerError`].
pub fn start(name: &str) -> Result<(), ServiceManagerError> {
    let service = open(name, SERVICE_START | SERVICE_QUERY_STATUS)?;
    // SAFETY: the service is open with this right, and gets no arguments.
    if unsafe { StartServiceW(service.0, 0, std::ptr::null()) } == 0 {
        return Err(match last_error(name, "start") {
            // The right to start was granted above: it is the file that is denied, to the service's account.
            ServiceManagerError::NotAdministrator => ServiceManagerError::Unreadable(name.into()),
            error => error,
        });
    }
    let status = wait_while(&service, name, SERVICE_START_PENDING)?;
    if status.dwCurrentState == SERVICE_RUNNING {
        return Ok(());
    }
    let code = match status.dwWin32ExitCode {
        ERROR_SERVICE_SPECIFIC_ERROR => status.dwServiceSpecificExitCode,
        code => code,
    };
    Err(ServiceManagerError::Ended(name.into(), code))
}

/// Stops a service, and waits for its end.
///
/// # Errors
/// See [`ServiceManagerError`].
pub fn stop(name: &str) -> Result<(), ServiceManagerError> {
    stop_service(&open(name, SERVICE_STOP | SERVICE_QUERY_STATUS)?, name)
}

fn stop_service(service: &ScHandle, name: &str) -> Result<(), ServiceManagerError> {
    // A service that starts takes no controls.
    let status = wait_while(service, name, SERVICE_START_PENDING)?;
    // If the service is stopping already, only wait for its end.
    if status.dwCurrentState != SERVICE_STOP_PENDING {
        let mut ignored = SERVICE_STATUS::default();
        // SAFETY: the service is open with this right, and the call writes one structure.
        if unsafe { ControlService(service.0, SERVICE_CONTROL_STOP, &raw mut ignored) } == 0 {
            return Err(last_error(name, "stop"));
        }
    }
    // Until the process has seen the control, it counts as running.
    wait_while(service, name, SERVICE_RUNNING)?;
    match wait_while(service, name, SERVICE_STOP_PENDING)?.dwCurrentState {
        SERVICE_STOPPED => Ok(()),
        _ => Err(ServiceManagerError::Late(name.into())),
    }
}

/// Sends a control to a running service.
///
/// # Errors
/// See [`ServiceManagerError`].
pub fn control(name: &str, control: ServiceControl) -> Result<(), ServiceManagerError> {
    let (number, right) = match control {
        ServiceControl::Reload => (SERVICE_CONTROL_PARAMCHANGE, SERVICE_PAUSE_CONTINUE),
        ServiceControl::ReopenLogs => (CONTROL_REOPEN, SERVICE_USER_DEFINED_CONTROL),
    };
    let service = open(name, right)?;
    let mut ignored = SERVICE_STATUS::default();
    // SAFETY: the service is open with this right, and the call writes one structure.
    if unsafe { ControlService(service.0, number, &raw mut ignored) } == 0 {
        return Err(last_error(name, "control"));
    }
    Ok(())
}

/// Waits while a service is in a state, as long as it makes progress. Returns the next status.
fn wait_while(
    service: &ScHandle,
    name: &str,
    state: u32,
) -> Result<SERVICE_STATUS_PROCESS, ServiceManagerError> {
    let (mut progress, mut since) = (None, Instant::now());
    loop {
        let mut status = SERVICE_STATUS_PROCESS::default();
        let mut needed = 0;
        // SAFETY: the service is open with this right; the call writes one structure, and gets its size.
        let done = unsafe {
            QueryServiceStatusEx(
                service.0,
                SC_STATUS_PROCESS_INFO,
                (&raw mut status).cast(),
                size_of::<SERVICE_STATUS_PROCESS>() as u32,
                &raw mut needed,
            )
        };
        if done == 0 {
            return Err(last_error(name, "query"));
        }
        if status.dwCurrentState != state {
            return Ok(status);
        }
        if progress.replace(status.dwCheckPoint) != Some(status.dwCheckPoint) {
            since = Instant::now();
        } else if since.elapsed() > PATIENCE {
            return Err(ServiceManagerError::Late(name.into()));
        }
        // The manager has no event that every version of the system offers.
        thread::park_timeout(LOOK);
    }
}

/// Writes an error to the event log. Errors of the log itself are ignored: there is no other place to report them.
pub fn report_error(name: &str, text: &str) {
    // A text of an event has at most 31,839 characters (ReportEventW), and no zeros.
    let text: String = text.chars().filter(|letter| *letter != '\0').take(15_000).collect();
    let (Ok(name), Ok(text)) = (wide(name), wide(&text)) else { return };
    // SAFETY: the name ends with a zero; null names this machine.
    let source = unsafe { RegisterEventSourceW(std::ptr::null(), name.as_ptr()) };
    if source.is_null() {
        return;
    }
    let texts = [text.as_ptr()];
    // SAFETY: the source is open; there is one text, which ends with a zero, no user, and no data.
    unsafe {
        ReportEventW(
            source,
            EVENTLOG_ERROR_TYPE,
            0,
            1,
            std::ptr::null_mut(),
            1,
            0,
            texts.as_ptr(),
            std::ptr::null(),
        );
        DeregisterEventSource(source);
    }
}

/// The process of a service, as it was reported to the manager.
struct ServiceLife {
    /// The handle of its status, which is never closed.
    handle: SERVICE_STATUS_HANDLE,
    state: u32,
    checkpoint: u32,
}

// SAFETY: the handle is a number for the service manager, which any thread may use.
unsafe impl Send for ServiceLife {}

type ServiceMain = Box<dyn FnOnce() -> u32 + Send>;

/// The name and the main function of the service that is to run.
static MAIN: Mutex<Option<(Vec<u16>, ServiceMain)>> = Mutex::new(None);
static LIFE: Mutex<Option<ServiceLife>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

impl ServiceLife {
    /// Reports the state. Errors are ignored: a lost manager has no remedy here.
    fn report(&mut self, exit_code: u32) {
        let accepted = match self.state {
            SERVICE_RUNNING => {
                SERVICE_ACCEPT_STOP
                    | SERVICE_ACCEPT_SHUTDOWN
                    | SERVICE_ACCEPT_PRESHUTDOWN
                    | SERVICE_ACCEPT_PARAMCHANGE
            }
            _ => 0,
        };
        let is_pending = self.is_pending();
        self.checkpoint = if is_pending { self.checkpoint + 1 } else { 0 };
        let status = SERVICE_STATUS {
            dwServiceType: SERVICE_WIN32_OWN_PROCESS,
            dwCurrentState: self.state,
            dwControlsAccepted: accepted,
            dwWin32ExitCode: if exit_code == 0 { NO_ERROR } else { ERROR_SERVICE_SPECIFIC_ERROR },
            dwServiceSpecificExitCode: exit_code,
            dwCheckPoint: self.checkpoint,
            dwWaitHint: if is_pending { HINT_MS } else { 0 },
        };
        // SAFETY: the handle was registered, and the call reads one structure.
        unsafe { SetServiceStatus(self.handle, &raw const status) };
    }

    /// Whether the state may follow. Only the end follows a stop: a reload meanwhile must not take it back.
    const fn permits(&self, state: u32) -> bool {
        match self.state {
            SERVICE_STOPPED => false,
            SERVICE_STOP_PENDING => state == SERVICE_STOPPED,
            _ => true,
        }
    }

    const fn is_pending(&self) -> bool {
        matches!(self.state, SERVICE_START_PENDING | SERVICE_STOP_PENDING)
    }
}

/// Reports the phase of this process to the service manager. Does nothing in a process that is no service.
pub fn set_phase(phase: ServicePhase) {
    let state = match phase {
        ServicePhase::Starting => SERVICE_START_PENDING,
        ServicePhase::Running => SERVICE_RUNNING,
        ServicePhase::Stopping => SERVICE_STOP_PENDING,
    };
    enter(state, 0);
}

fn enter(state: u32, exit_code: u32) {
    if let Some(life) = &mut *lock(&LIFE)
        && life.permits(state)
    {
        life.state = state;
        life.report(exit_code);
        CHANGED.notify_all();
    }
}

/// Reports checkpoints while a phase is pending, until the end.
fn pulse() {
    let mut life = lock(&LIFE);
    while let Some(current) = &mut *life {
        if current.state == SERVICE_STOPPED {
            return;
        }
        let pending = current.is_pending();
        life = if pending {
            let (mut life, waited) =
                CHANGED.wait_timeout(life, PULSE).unwrap_or_else(PoisonError::into_inner);
            if let Some(current) = life.as_mut().filter(|current| waited.timed_out() && current.is_pending())
            {
                current.report(0);
            }
            life
        } else {
            CHANGED.wait(life).unwrap_or_else(PoisonError::into_inner)
        };
    }
}

/// Runs the process of a service: `main` on a thread of its own, until it returns the exit code; 0 is success. Blocks. Call it once.
///
/// # Errors
/// The process was started by something else than the service manager, or the system's error.
pub fn run(name: &str, main: impl FnOnce() -> u32 + Send + 'static) -> Result<(), ServiceManagerError> {
    let mut wide = wide(name)?;
    let table = [
        SERVICE_TABLE_ENTRYW { lpServiceName: wide.as_mut_ptr(), lpServiceProc: Some(service_main) },
        SERVICE_TABLE_ENTRYW { lpServiceName: std::ptr::null_mut(), lpServiceProc: None },
    ];
    *lock(&MAIN) = Some((wide.clone(), Box::new(main)));
    // SAFETY: the table ends with an empty entry, and lives until the call returns, as does the name.
    if unsafe { StartServiceCtrlDispatcherW(table.as_ptr()) } == 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error().unwrap_or(0) as u32 {
            ERROR_FAILED_SERVICE_CONTROLLER_CONNECT => ServiceManagerError::NotByManager,
            _ => ServiceManagerError::System("cannot connect to the service manager".into(), error),
        });
    }
    Ok(())
}

/// The first function of the service, on a thread that the system has started for it.
extern "system" fn service_main(_count: u32, _arguments: *mut *mut u16) {
    let Some((name, main)) = lock(&MAIN).take() else { return };
    let own_name = String::from_utf16_lossy(name.strip_suffix(&[0]).unwrap_or(&name));
    // SAFETY: the name ends with a zero; `on_control` may run on any thread, at any time, and needs no context.
    let handle = unsafe { RegisterServiceCtrlHandlerExW(name.as_ptr(), Some(on_control), std::ptr::null()) };
    if handle.is_null() {
        let error = io::Error::last_os_error();
        return report_error(&own_name, &format!("cannot take controls of the service manager: {error}"));
    }
    *lock(&LIFE) = Some(ServiceLife { handle, state: SERVICE_START_PENDING, checkpoint: 0 });
    set_phase(ServicePhase::Starting);
    host::become_service();
    // Without the thread, a long start or drain is taken for dead, and the rest works.
    let _no_checkpoints = thread::Builder::new().name("service-pulse".to_owned()).spawn(pulse);
    let exit_code = panic::catch_unwind(AssertUnwindSafe(main)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        report_error(&own_name, &format!("the service ends after an internal error: {text}"));
        PANICKED
    });
    enter(SERVICE_STOPPED, exit_code);
}

/// Takes a control of the service manager.
extern "system" fn on_control(
    control: u32,
    _kind: u32,
    _data: *mut core::ffi::c_void,
    _context: *mut core::ffi::c_void,
) -> u32 {
    let signal = match control {
        SERVICE_CONTROL_STOP | SERVICE_CONTROL_SHUTDOWN | SERVICE_CONTROL_PRESHUTDOWN => {
            // The manager must not send a second one: it would end the drain.
            set_phase(ServicePhase::Stopping);
            Signal::Terminate
        }
        SERVICE_CONTROL_PARAMCHANGE => Signal::HangUp,
        CONTROL_REOPEN => Signal::User1,
        CONTROL_HAND_OVER => Signal::User2,
        SERVICE_CONTROL_INTERROGATE => return NO_ERROR,
        _ => return ERROR_CALL_NOT_IMPLEMENTED,
    };
    host::arrive(signal);
    NO_ERROR
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::Security::{
        CONTAINER_INHERIT_ACE, GetSecurityDescriptorControl, OBJECT_INHERIT_ACE, SE_DACL_PROTECTED,
    };
    use windows_sys::Win32::Storage::FileSystem::{
        FILE_ALL_ACCESS, FILE_GENERIC_EXECUTE, FILE_GENERIC_READ, FILE_GENERIC_WRITE,
    };

    use super::*;

    #[test]
    fn only_the_end_follows_a_stop() {
        let life = |state| ServiceLife { handle: std::ptr::null_mut(), state, checkpoint: 0 };
        let states = [SERVICE_START_PENDING, SERVICE_RUNNING, SERVICE_STOP_PENDING, SERVICE_STOPPED];
        for state in states {
            assert!(life(SERVICE_RUNNING).permits(state));
            assert_eq!(life(SERVICE_STOP_PENDING).permits(state), state == SERVICE_STOPPED);
            assert!(!life(SERVICE_STOPPED).permits(state));
        }
    }

    /// Wine keeps no lists of rights, so this test checks the lists that are passed to the system.
    #[test]
    fn a_directory_of_the_service_passes_its_rights_on_and_gives_others_none() {
        const ALL: u32 = FILE_ALL_ACCESS;
        const READ: u32 = FILE_GENERIC_READ | FILE_GENERIC_EXECUTE;
        const WRITE: u32 = READ | FILE_GENERIC_WRITE | DELETE;
        let [system, administrators, account] = ["S-1-5-18", "S-1-5-32-544", "S-1-5-20"].map(String::from);
        for (access, rights) in [(ServiceAccess::Read, READ), (ServiceAccess::Write, WRITE)] {
            let descriptor = directory_rights(access).expect("a descriptor");
            let inherit = OBJECT_INHERIT_ACE | CONTAINER_INHERIT_ACE;
            let expected = [(&system, ALL), (&administrators, ALL), (&account, rights)]
                .map(|(who, rights)| (who.clone(), rights, inherit));
            assert_eq!(security::entries(&descriptor).expect("a list"), expected);
            let mut control = 0;
            let mut revision = 0;
            // SAFETY: the descriptor lives until the call returns, which writes two numbers.
            let known = unsafe {
                GetSecurityDescriptorControl(descriptor.as_ptr(), &raw mut control, &raw mut revision)
            };
            assert_ne!(known, 0);
            assert_ne!(control & SE_DACL_PROTECTED, 0, "rights of the directory above would count, too");
        }
    }
}
