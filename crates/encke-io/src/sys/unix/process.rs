//! Processes of Unix: fork(2), execve(2), waitid(2).

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use crate::clock::Clock;
use crate::lock;
use crate::process::{PASSED_DESCRIPTOR, ProcessEnd, ProcessPlan, StopSignal, SystemUser};
use crate::sys::own::process as own;

/// The variable with the number of the process for which the socket is (sd_listen_fds(3)).
const LISTEN_PID: &str = "LISTEN_PID";

/// The variable that marks a process and its descendants, even after setsid(2).
const MARK: &str = "ENCKE_PROCESS";

/// The processes that were started and have not ended, with their marks.
static STARTED: Mutex<Vec<(Pid, Arc<str>)>> = Mutex::new(Vec::new());

/// The mark of a process that is to be started: no other process of this system has it.
fn new_mark() -> Arc<str> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let (now, number) = (Clock::new().now(), NUMBER.fetch_add(1, Ordering::Relaxed));
    format!("{MARK}={}-{}-{number}", std::process::id(), now.unix_ns).into()
}

/// The numbers of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UserIds {
    uid: libc::uid_t,
    gid: libc::gid_t,
    /// All groups of the user.
    groups: Vec<libc::gid_t>,
}

/// The number of a signal.
const fn number(signal: StopSignal) -> rustix::process::Signal {
    use rustix::process::Signal;
    match signal {
        StopSignal::Terminate => Signal::TERM,
        StopSignal::Interrupt => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::HangUp => Signal::HUP,
        StopSignal::User1 => Signal::USR1,
        StopSignal::User2 => Signal::USR2,
    }
}

/// A process that this one has started.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    mark: Arc<str>,
    /// `None` once the process is reaped: from then on its number may be that of another one.
    child: Mutex<Option<Child>>,
}

impl SystemUser {
    /// Looks up a user by name (getpwnam_r(3), getgrouplist(3)). Returns `None` if there is none.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        let Ok(text) = CString::new(name) else { return Ok(None) };
        let mut buffer = vec![0_u8; 1024];
        loop {
            let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
            let mut found: *mut libc::passwd = std::ptr::null_mut();
            // SAFETY: every pointer is valid for the call, and the buffer has the length that is passed.
            let result = unsafe {
                libc::getpwnam_r(
                    text.as_ptr(),
                    entry.as_mut_ptr(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    &raw mut found,
                )
            };
            if result == libc::ERANGE && buffer.len() < 1 << 20 {
                buffer.resize(buffer.len() * 2, 0);
                continue;
            }
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            if found.is_null() {
                return Ok(None);
            }
            // SAFETY: a result that is not null points to `entry`, which the call has filled in; its home directory is a string
            // in `buffer`, which still lives.
            let (uid, gid, home) = unsafe {
                let entry = entry.assume_init();
                let home = std::ffi::CStr::from_ptr(entry.pw_dir).to_bytes().to_vec();
                (entry.pw_uid, entry.pw_gid, PathBuf::from(OsString::from_vec(home)))
            };
            let groups = groups_of(&text, gid);
            return Ok(Some(Self { name: name.to_owned(), home, ids: UserIds { uid, gid, groups } }));
        }
    }

    /// Whether this process runs as root, and so may start processes of other users.
    pub fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Whether this process runs as the user.
    pub fn is_current(&self) -> bool {
        rustix::process::geteuid().as_raw() == self.ids.uid
    }
}

/// Whether a process can get a listening socket.
pub const PASSES_SOCKETS: bool = true;

/// The names of files that may be the program `name`.
pub fn program_names(name: &str) -> Vec<String> {
    vec![name.to_owned()]
}

/// Whether a file is a batch file: there are none on this system.
pub fn is_batch_file(_file: &Path) -> bool {
    false
}

/// Whether two names are the same variable of the environment.
pub fn is_same_variable(one: &OsStr, other: &OsStr) -> bool {
    one == other
}

/// Whether this process may execute a file (access(2)).
pub fn may_execute(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Makes a command the first of a process group of its own, which ^C in a terminal does not reach.
pub fn in_own_group(command: &mut Command) {
    command.process_group(0);
}

/// The groups of a user, with its own.
fn groups_of(name: &CString, gid: libc::gid_t) -> Vec<libc::gid_t> {
    let mut count: libc::c_int = 64;
    loop {
        let room = count;
        let mut groups = vec![0; room as usize];
        // The type of the numbers differs between systems.
        // SAFETY: the list has room for `count` numbers, and the call writes no more.
        let result =
            unsafe { libc::getgrouplist(name.as_ptr(), gid as _, groups.as_mut_ptr(), &raw mut count) };
        groups.truncate(usize::try_from(count).unwrap_or(0));
        if result >= 0 || count <= room {
            return groups.into_iter().map(|group| group as libc::gid_t).collect();
        }
    }
}

/// The strings of an argument list for execve(2), and the pointers to them.
struct StringList {
    /// The pointers lead here.
    texts: Vec<Vec<u8>>,
    pointers: Vec<*mut libc::c_char>,
}

// SAFETY: the pointers lead to the texts of the same value, and nothing else changes those.
unsafe impl Send for StringList {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for StringList {}

impl StringList {
    /// # Errors
    /// A text contains a null byte.
    fn new(texts: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Self> {
        let ended = texts.into_iter().map(|text| CString::new(text).map(CString::into_bytes_with_nul));
        let mut texts: Vec<Vec<u8>> = ended.collect::<Result<_, _>>()?;
        let ends = std::iter::once(std::ptr::null_mut());
        let pointers = texts.iter_mut().map(|text| text.as_mut_ptr().cast()).chain(ends).collect();
        Ok(Self { texts, pointers })
    }
}

/// Everything that a child needs between fork(2) and execve(2), where it may not allocate.
struct ChildSetup {
    program: CString,
    arguments: StringList,
    /// The last text is LISTEN_PID, with room for the number, if there is a socket.
    environment: StringList,
    directory: CString,
    user: Option<UserIds>,
    socket: Option<i32>,
    orphan_signal: libc::c_int,
    parent: libc::pid_t,
}

/// The digits of a process's number.
const PID_DIGITS: usize = 10;

impl ChildSetup {
    fn new(plan: &ProcessPlan<'_>, mark: &str) -> io::Result<Self> {
        let text = |text: &OsStr| text.as_bytes().to_vec();
        let mut variables: Vec<Vec<u8>> = plan
            .environment
            .iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect();
        variables.push(mark.as_bytes().to_vec());
        if plan.socket.is_some() {
            variables.push(format!("{LISTEN_PID}={}", "0".repeat(PID_DIGITS)).into_bytes());
        }
        Ok(Self {
            program: CString::new(text(plan.program.as_os_str()))?,
            arguments: StringList::new(plan.arguments.iter().map(|argument| text(argument)))?,
            environment: StringList::new(variables)?,
            directory: CString::new(text(plan.directory.as_os_str()))?,
            user: plan.user.filter(|user| !user.is_current()).map(|user| user.ids.clone()),
            socket: plan.socket.map(|socket| socket.handle.as_raw_fd()),
            orphan_signal: number(plan.orphan_signal).as_raw(),
            parent: std::process::id() as libc::pid_t,
        })
    }

    /// Becomes the program. Returns only if that fails.
    ///
    /// # Safety
    /// Only for a child between fork(2) and execve(2). Allocates nothing.
    unsafe fn become_program(&mut self) -> io::Error {
        let failed = |result: libc::c_int| result != 0;
        // SAFETY: these calls are safe in a child of a process with threads (signal-safety(7)); all pointers lead to values of
        // `self`, which live as long as the child.
        unsafe {
            if let Some(socket) = self.socket {
                if socket == PASSED_DESCRIPTOR {
                    libc::fcntl(socket, libc::F_SETFD, 0);
                } else if libc::dup2(socket, PASSED_DESCRIPTOR) < 0 {
                    return io::Error::last_os_error();
                }
                self.set_listen_pid(libc::getpid());
            }
            // Descriptors that this process has inherited itself.
            own::close_from(PASSED_DESCRIPTOR + libc::c_int::from(self.socket.is_some()));
            // Other systems count groups by another type.
            if let Some(user) = &self.user
                && (failed(libc::setgroups(user.groups.len() as _, user.groups.as_ptr()))
                    || failed(libc::setgid(user.gid))
                    || failed(libc::setuid(user.uid)))
            {
                return io::Error::last_os_error();
            }
            if failed(libc::chdir(self.directory.as_ptr())) {
                return io::Error::last_os_error();
            }
            // Rights that this process has got for its own listeners, such as that of ports below 1024.
            own::drop_rights();
            // A change of the user clears it.
            own::end_with(self.parent, self.orphan_signal);
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            libc::execve(
                self.program.as_ptr(),
                self.arguments.pointers.as_ptr().cast(),
                self.environment.pointers.as_ptr().cast(),
            );
            io::Error::last_os_error()
        }
    }

    /// Writes the number of this process into the variable, without leading zeros.
    fn set_listen_pid(&mut self, pid: libc::pid_t) {
        let Some(variable) = self.environment.texts.last_mut() else { return };
        let digits = &mut variable[LISTEN_PID.len() + 1..];
        let mut length = 1;
        let mut rest = pid / 10;
        while rest > 0 {
            length += 1;
            rest /= 10;
        }
        let mut rest = pid;
        for digit in digits[..length].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        digits[length] = 0;
    }
}

impl Process {
    /// Starts a program. Returns the process, and its standard output and standard error.
    ///
    /// # Errors
    /// The system's reason: the file or the directory does not exist or is not permitted, the user may not be changed, or there
    /// are no descriptors or processes left.
    pub fn start(plan: &ProcessPlan<'_>) -> io::Result<(Self, PipeReader)> {
        if let Some(socket) = plan.socket {
            rustix::io::ioctl_fionbio(&socket.handle, false)?;
        }
        let mark = new_mark();
        let mut setup = ChildSetup::new(plan, &mark)?;
        // The descriptor that a child passes its error by must not be the one that the socket gets.
        let mut held = Vec::new();
        while plan.socket.is_some() {
            let descriptor = std::fs::File::open("/dev/null")?;
            let is_above = descriptor.as_raw_fd() > PASSED_DESCRIPTOR;
            held.push(descriptor);
            if is_above {
                break;
            }
        }
        keep_ended();
        let (output, input) = io::pipe()?;
        let mut command = Command::new(plan.program);
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
        // SAFETY: `become_program` allocates nothing, and is only called in the child.
        unsafe { command.pre_exec(move || Err(setup.become_program())) };
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
        lock(&STARTED).push((pid, Arc::clone(&mark)));
        Ok((Self { pid, mark, child: Mutex::new(Some(child)) }, output))
    }

    /// The number of the process.
    pub const fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits for the end of the process, kills the rest of its group, and removes it from the table of processes. On Linux also
    /// processes end that it has started in groups of their own, unless their environment does not show it. Another thread may send
    /// signals meanwhile. Call this once.
    ///
    /// # Errors
    /// The process was awaited before.
    pub fn wait(&self) -> io::Result<ProcessEnd> {
        // The process stays in the table, so that its number, and that of its group, belong to no other one.
        while let Err(error) = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            if error != rustix::io::Errno::INTR {
                // Somebody else has removed the process from the table, such as a library of this program: from now on its number
                // may be that of another process or group.
                lock(&STARTED).retain(|(other, _)| *other != self.pid);
                lock(&self.child).take();
                return Err(error.into());
            }
        }
        let mut child = lock(&self.child);
        lock(&STARTED).retain(|(other, _)| *other != self.pid);
        // Fails if the group has no other process.
        let _ = kill_process_group(self.pid, rustix::process::Signal::KILL);
        own::kill_marked(&[self.mark.as_bytes()]);
        let status = child.take().ok_or(io::ErrorKind::NotFound)?.wait()?;
        Ok(status.code().map_or_else(|| ProcessEnd::Signal(status.signal().unwrap_or(0)), ProcessEnd::Status))
    }

    /// Sends a signal to the process, unless it has ended.
    pub fn signal(&self, signal: StopSignal) {
        if lock(&self.child).is_some() {
            // A process that has ended, and is still in the table, ignores signals.
            let _ = kill_process(self.pid, number(signal));
        }
    }

    /// Kills the process and its group, unless it has ended.
    pub fn kill(&self) {
        if lock(&self.child).is_some() {
            let _ = kill_process_group(self.pid, rustix::process::Signal::KILL);
            // The process may have left its group.
            let _ = kill_process(self.pid, rustix::process::Signal::KILL);
        }
    }
}

/// Keeps the processes that have ended until they are awaited. A parent may have started this program with SIGCHLD ignored: then the
/// system removes them at once, and their numbers may be those of other processes while they are still signalled.
fn keep_ended() {
    // SAFETY: a zeroed action is valid, and the call writes the present one. Its function stays, or becomes the default.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action) != 0 {
            return;
        }
        let is_ignored = action.sa_sigaction == libc::SIG_IGN;
        if is_ignored || action.sa_flags & libc::SA_NOCLDWAIT != 0 {
            action.sa_sigaction = if is_ignored { libc::SIG_DFL } else { action.sa_sigaction };
            action.sa_flags &= !libc::SA_NOCLDWAIT;
            libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Kills all processes that [`Process::start`] has started and that have not ended, with their groups: for the moment before this
/// process exits at once.
pub fn kill_all() {
    let started = lock(&STARTED);
    for (pid, _) in started.iter() {
        let _ = kill_process_group(*pid, rustix::process::Signal::KILL);
        let _ = kill_process(*pid, rustix::process::Signal::KILL);
    }
    let marks: Vec<&[u8]> = started.iter().map(|(_, mark)| mark.as_bytes()).collect();
    own::kill_marked(&marks);
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::socket::ListenOptions;
    use crate::{Address, Listener};

    /// Starts a script of sh(1).
    fn sh<'a>(arguments: &'a [OsString], directory: &'a Path) -> ProcessPlan<'a> {
        ProcessPlan {
            program: Path::new("/bin/sh"),
            arguments,
            environment: &[],
            directory,
            user: None,
            socket: None,
            orphan_signal: StopSignal::Terminate,
        }
    }

    fn script(text: &str) -> [OsString; 3] {
        ["sh", "-c", text].map(OsString::from)
    }

    fn output(mut pipe: PipeReader) -> String {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn a_process_has_its_directory_its_variables_and_no_others() {
        let arguments = script("pwd; echo $A $HOME; echo bad >&2; exit 7");
        let environment = [("A".into(), "one two".into())];
        let plan = ProcessPlan { environment: &environment, ..sh(&arguments, Path::new("/usr")) };
        let (process, pipe) = Process::start(&plan).expect("started");
        assert_eq!(output(pipe), "/usr\none two\nbad\n");
        assert_eq!(process.wait().expect("it was started here"), ProcessEnd::Status(7));
    }

    #[test]
    fn a_socket_arrives_as_descriptor_3_and_is_meant_for_this_process() {
        let options = ListenOptions { backlog: 8, shared: false, mode: None };
        let socket = Listener::bind(&Address::Inet(([127, 0, 0, 1], 0).into()), options).expect("bound");
        let arguments = script("test $LISTEN_PID = $$ && readlink /proc/self/fd/3; ls /proc/self/fd | wc -l");
        let environment = [("PATH".into(), "/usr/bin:/bin".into())];
        let plan = ProcessPlan {
            socket: Some(&socket),
            environment: &environment,
            ..sh(&arguments, Path::new("/"))
        };
        let (process, pipe) = Process::start(&plan).expect("started");
        let text = output(pipe);
        assert!(text.starts_with("socket:["), "{text}");
        // Input, output, errors, the socket, and the directory that ls(1) reads.
        assert!(text.ends_with("\n5\n"), "another descriptor was inherited: {text}");
        assert_eq!(process.wait().expect("it was started here"), ProcessEnd::Status(0));
    }

    #[test]
    fn a_program_that_cannot_start_is_an_error_of_the_start() {
        for (program, directory, kind) in [
            ("/nonexistent", "/", io::ErrorKind::NotFound),
            ("/bin/sh", "/nonexistent", io::ErrorKind::NotFound),
            ("/etc/passwd", "/", io::ErrorKind::PermissionDenied),
        ] {
            let arguments = script("exit 0");
            let plan = ProcessPlan { program: Path::new(program), ..sh(&arguments, Path::new(directory)) };
            assert_eq!(Process::start(&plan).err().map(|error| error.kind()), Some(kind), "{program}");
        }
    }

    #[test]
    fn signals_reach_a_process_whose_parent_has_blocked_them() {
        let _blocked = crate::host::Signals::block();
        let arguments = script("echo ready; while :; do sleep 1; done");
        let (process, mut pipe) = Process::start(&sh(&arguments, Path::new("/"))).expect("started");
        let mut ready = [0; 6];
        pipe.read_exact(&mut ready).expect("the script writes it");
        process.signal(StopSignal::Terminate);
        assert_eq!(process.wait().expect("it was started here"), ProcessEnd::Signal(libc::SIGTERM));
    }

    #[test]
    fn the_processes_that_a_process_has_started_end_with_it() {
        // The pipe ends when all writers have ended.
        let arguments = script("sleep 1000 & echo ready; exit 3");
        let (process, pipe) = Process::start(&sh(&arguments, Path::new("/"))).expect("started");
        assert_eq!(process.wait().expect("it was started here"), ProcessEnd::Status(3));
        assert_eq!(output(pipe), "ready\n");
        process.signal(StopSignal::Terminate);
        process.kill();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processes_in_sessions_of_their_own_end_with_it() {
        // The pipe ends when all writers have ended.
        let text = "setsid sh -c 'setsid sleep 1000 & echo first; exec sleep 1000' & read line; exit 3";
        for is_killed in [false, true] {
            let text = if is_killed { text.replace("read line", "sleep 1000") } else { text.to_owned() };
            let arguments = script(&text);
            let environment = [("PATH".into(), "/usr/bin:/bin".into())];
            let plan = ProcessPlan { environment: &environment, ..sh(&arguments, Path::new("/")) };
            let (process, mut pipe) = Process::start(&plan).expect("started");
            let mut first = [0; 6];
            pipe.read_exact(&mut first).expect("the session of its own writes it");
            if is_killed {
                process.kill();
            }
            let end = process.wait().expect("it was started here");
            assert_eq!(end, if is_killed { ProcessEnd::Signal(9) } else { ProcessEnd::Status(3) });
            assert_eq!(output(pipe), "");
        }
    }

    #[test]
    fn a_process_that_was_removed_from_the_table_gets_no_signal() {
        let arguments = script("exit 0");
        let (process, pipe) = Process::start(&sh(&arguments, Path::new("/"))).expect("started");
        output(pipe);
        // Another part of the program awaits it, as with SIGCHLD ignored the system does.
        let pid = libc::pid_t::from(process.pid());
        // SAFETY: the call writes no status.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        assert!(process.wait().is_err());
        assert!(lock(&process.child).is_none(), "no signal is sent to its number");
        assert!(!lock(&STARTED).iter().any(|(pid, _)| *pid == process.pid));
    }

    #[test]
    fn users_are_found_by_name() {
        let root = SystemUser::find("root").expect("readable").expect("every system has it");
        assert_eq!((root.ids.uid, root.home.as_path()), (0, Path::new("/root")));
        assert!(root.ids.groups.contains(&0));
        assert_eq!(SystemUser::find("no such user").expect("readable"), None);
    }
}
