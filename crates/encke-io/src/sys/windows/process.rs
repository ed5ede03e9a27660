//! Processes of Windows: CreateProcessW, with a job object in place of a process group.
//!
//! ```text
//!  start ─► CreateProcessW, suspended, in a console group of its own ─► its job ─► resumed
//!            │  inherits NUL and the pipe for its output, and nothing else
//!            ├─ signal ─► ^Break to the group; without a console: killed
//!            └─ wait ─► the rest of the job is killed ─► ProcessEnd
//! ```
//! The job ends with its last handle, which this process holds: so the processes end with this one, however it ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::windows::io::{AsRawHandle, FromRawHandle as _, OwnedHandle};
use std::os::windows::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use windows_sys::Win32::Foundation::{
    HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation, WAIT_OBJECT_0, WAIT_TIMEOUT,
};
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation, SetInformationJobObject,
    TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessW,
    DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, GetExitCodeProcess, INFINITE,
    InitializeProcThreadAttributeList, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROCESS_INFORMATION, ResumeThread,
    STARTF_USESTDHANDLES, STARTUPINFOEXW, TerminateProcess, UpdateProcThreadAttribute, WaitForSingleObject,
};

use super::command_line::{command_line, zero_terminated};
use crate::process::{ProcessEnd, ProcessPlan, StopSignal, SystemUser};

/// Whether a process can get a listening socket.
pub const PASSES_SOCKETS: bool = false;

/// The exit status of processes that this one kills.
const KILLED: u32 = 1;

/// A process that this one has started.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    process: OwnedHandle,
    job: OwnedHandle,
}

impl SystemUser {
    /// Looks up a user by name.
    ///
    /// # Errors
    /// Always: processes of other users cannot be started on this system.
    pub fn find(_name: &str) -> io::Result<Option<Self>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether this process may start processes of other users.
    pub fn is_root() -> bool {
        false
    }

    /// Whether this process runs as the user.
    pub fn is_current(&self) -> bool {
        false
    }
}

/// The numbers of a user: not known on this system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UserIds;

/// Makes a command the first of a process group of its own, which ^C in a console does not reach.
pub fn in_own_group(command: &mut Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

/// Whether the name of a file has one of these extensions.
fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    let own = file.extension().unwrap_or_default();
    extensions.iter().any(|extension| own.eq_ignore_ascii_case(extension))
}

/// Whether this process may execute a file: whether it is a program.
pub fn may_execute(file: &Path) -> bool {
    file.is_file() && has_extension(file, &["exe", "com"])
}

/// Whether a file is a batch file. Its interpreter reads arguments by rules of its own, so that no quoting is safe
/// (CVE-2024-24576): it is never started.
pub fn is_batch_file(file: &Path) -> bool {
    has_extension(file, &["cmd", "bat"])
}

/// Candidates for the file of the program `name`: first with the extensions of programs, then with those of scripts. A script
/// cannot be executed, but an error about the script explains more than one about a missing file.
pub fn program_names(name: &str) -> Vec<String> {
    let extensions = ["exe", "com", "cmd", "bat"];
    if has_extension(Path::new(name), &extensions) {
        return vec![name.to_owned()];
    }
    let with = extensions.iter().map(|extension| format!("{name}.{extension}"));
    with.chain([name.to_owned()]).collect()
}

/// Whether two names are the same variable of the environment: their case does not matter.
pub fn is_same_variable(one: &OsStr, other: &OsStr) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Does nothing: the processes that were started end with this one, as their jobs do.
pub fn kill_all() {}

/// A job that kills its processes when its last handle is closed.
fn new_job() -> io::Result<OwnedHandle> {
    // SAFETY: null is permitted for both.
    let handle = unsafe { CreateJobObjectW(std::ptr::null(), std::ptr::null()) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was opened above, and nothing else knows of it.
    let job = unsafe { OwnedHandle::from_raw_handle(handle) };
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    // SAFETY: the job is open; the call reads one structure, and gets its size.
    let done = unsafe {
        SetInformationJobObject(
            job.as_raw_handle(),
            JobObjectExtendedLimitInformation,
            (&raw const limits).cast(),
            size_of_val(&limits) as u32,
        )
    };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(job) }
}

/// The variables of an environment as one text: `A=1\0B=2\0\0`, in the order that the system requires.
fn environment_block(variables: &[(OsString, OsString)]) -> io::Result<Vec<u16>> {
    let mut sorted: Vec<&(OsString, OsString)> = variables.iter().collect();
    sorted.sort_by_key(|(name, _)| name.to_ascii_uppercase());
    let mut block = Vec::new();
    for (name, value) in sorted {
        let mut text = name.clone();
        text.push("=");
        text.push(value);
        block.extend(zero_terminated(&text)?);
    }
    // An empty block ends with two zeros, too.
    if block.is_empty() {
        block.push(0);
    }
    block.push(0);
    Ok(block)
}

/// The handles that a child inherits, for the call that starts it: the list of attributes refers to them.
struct InheritedHandles<'a> {
    /// The list, in words, because it may contain pointers.
    list: Vec<usize>,
    _handles: &'a [HANDLE],
}

impl<'a> InheritedHandles<'a> {
    fn new(handles: &'a [HANDLE]) -> io::Result<Self> {
        let mut bytes = 0;
        // SAFETY: without a list the call only writes the size that one needs.
        unsafe { InitializeProcThreadAttributeList(std::ptr::null_mut(), 1, 0, &raw mut bytes) };
        let mut list = vec![0_usize; bytes.div_ceil(size_of::<usize>())];
        // SAFETY: the list has the size that the call above has named.
        if unsafe { InitializeProcThreadAttributeList(list.as_mut_ptr().cast(), 1, 0, &raw mut bytes) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let mut inherited = Self { list, _handles: handles };
        // SAFETY: the list was initialized for one attribute; the handles live as long as this value.
        let done = unsafe {
            UpdateProcThreadAttribute(
                inherited.list.as_mut_ptr().cast(),
                0,
                PROC_THREAD_ATTRIBUTE_HANDLE_LIST as usize,
                handles.as_ptr().cast(),
                size_of_val(handles),
                std::ptr::null_mut(),
                std::ptr::null(),
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(inherited) }
    }
}

impl Drop for InheritedHandles<'_> {
    fn drop(&mut self) {
        // SAFETY: the list was initialized.
        unsafe { DeleteProcThreadAttributeList(self.list.as_mut_ptr().cast()) };
    }
}

/// Lets children inherit a handle, if they name it.
fn make_inheritable(handle: &impl AsRawHandle) -> io::Result<HANDLE> {
    let handle = handle.as_raw_handle();
    // SAFETY: the handle is open.
    if unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(handle)
}

impl Process {
    /// Starts a program. Returns the process, and its standard output and standard error.
    ///
    /// # Errors
    /// The system's reason: the file or the directory does not exist, is not permitted, or is no program; or the plan contains a
    /// socket or a user, which this system cannot pass on.
    pub fn start(plan: &ProcessPlan<'_>) -> io::Result<(Self, PipeReader)> {
        if plan.socket.is_some() || plan.user.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let program = plan.directory.join(plan.program);
        if !may_execute(&program) {
            let kind =
                if program.is_file() { io::ErrorKind::PermissionDenied } else { io::ErrorKind::NotFound };
            return Err(kind.into());
        }
        let name = plan.arguments.first().map_or(plan.program.as_os_str(), |name| name);
        let arguments = plan.arguments.iter().skip(1).map(|argument| &**argument);
        let mut line = command_line(name, arguments)?;
        let program = zero_terminated(program.as_os_str())?;
        let environment = environment_block(plan.environment)?;
        let directory = zero_terminated(plan.directory.as_os_str())?;
        let job = new_job()?;
        let (output, input) = io::pipe()?;
        let nothing = File::open("NUL")?;
        let handles = [make_inheritable(&nothing)?, make_inheritable(&input)?];
        let mut inherited = InheritedHandles::new(&handles)?;
        let mut startup = STARTUPINFOEXW::default();
        startup.StartupInfo.cb = size_of::<STARTUPINFOEXW>() as u32;
        startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
        let [stdin, both] = handles;
        (startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError) =
            (stdin, both, both);
        startup.lpAttributeList = inherited.list.as_mut_ptr().cast();
        let mut info = PROCESS_INFORMATION::default();
        // SAFETY: all texts end with a zero, the block with two; they, the handles and the list live until the call returns. The
        // command line may be written to. The startup structure is an extended one, as the flag says.
        let done = unsafe {
            CreateProcessW(
                program.as_ptr(),
                line.as_mut_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                1,
                CREATE_NEW_PROCESS_GROUP
                    | CREATE_SUSPENDED
                    | CREATE_UNICODE_ENVIRONMENT
                    | EXTENDED_STARTUPINFO_PRESENT,
                environment.as_ptr().cast(),
                directory.as_ptr(),
                (&raw const startup).cast(),
                &raw mut info,
            )
        };
        if done == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has opened both handles for this process.
        let (process, thread) = unsafe {
            (OwnedHandle::from_raw_handle(info.hProcess), OwnedHandle::from_raw_handle(info.hThread))
        };
        let started = Self { pid: info.dwProcessId, process, job };
        // SAFETY: job, process and thread are open. The process runs only as part of the job.
        let runs = unsafe {
            AssignProcessToJobObject(started.job.as_raw_handle(), started.process.as_raw_handle()) != 0
                && ResumeThread(thread.as_raw_handle()) != u32::MAX
        };
        if !runs {
            let error = io::Error::last_os_error();
            // SAFETY: the process is open.
            unsafe { TerminateProcess(started.process.as_raw_handle(), KILLED) };
            return Err(error);
        }
        Ok((started, output))
    }

    /// The number of the process.
    pub const fn pid(&self) -> i32 {
        self.pid.cast_signed()
    }

    /// Waits for the end of the process, and kills the rest of its job. Another thread may send signals meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self) -> io::Result<ProcessEnd> {
        // SAFETY: the process is open.
        if unsafe { WaitForSingleObject(self.process.as_raw_handle(), INFINITE) } != WAIT_OBJECT_0 {
            return Err(io::Error::last_os_error());
        }
        self.kill();
        let mut status = 0;
        // SAFETY: the process is open, and the call writes one number.
        if unsafe { GetExitCodeProcess(self.process.as_raw_handle(), &raw mut status) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ProcessEnd::Status(status.cast_signed()))
    }

    fn has_ended(&self) -> bool {
        // SAFETY: the process is open.
        unsafe { WaitForSingleObject(self.process.as_raw_handle(), 0) != WAIT_TIMEOUT }
    }

    /// Sends ^Break to the group of the process, unless it has ended: this system has no other signal for groups. Kills the process
    /// if this one has no console, so that ^Break cannot be sent.
    pub fn signal(&self, _signal: StopSignal) {
        if self.has_ended() {
            return;
        }
        // SAFETY: the call takes no pointers. The number belongs to this process, whose handle is open.
        if unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.pid) } == 0 {
            self.kill();
        }
    }

    /// Kills the process and its job.
    pub fn kill(&self) {
        // SAFETY: the job is open.
        unsafe { TerminateJobObject(self.job.as_raw_handle(), KILLED) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use super::*;

    /// The variable that makes a run of this program's tests a child of one of them.
    const ROLE: &str = "TEST_ROLE";

    /// The child of the tests below: does nothing in a usual run.
    #[test]
    fn a_child_plays_its_role() {
        let Ok(role) = std::env::var(ROLE) else { return };
        match role.as_str() {
            "show" => {
                let here = std::env::current_dir().expect("a directory");
                println!("[{}] [{}]", std::env::var("WORD").unwrap_or_default(), here.display());
                println!("arguments {:?}", std::env::args().skip(3).collect::<Vec<_>>());
                eprintln!("to standard error");
                std::process::exit(7);
            }
            "wait" => {
                println!("ready");
                std::thread::park();
            }
            "parent" => {
                let program = std::env::current_exe().expect("its path");
                let mut command = Command::new(program);
                command.args([
                    "--exact",
                    "sys::windows::process::tests::a_child_plays_its_role",
                    "--nocapture",
                ]);
                let child = command.env(ROLE, "wait").spawn().expect("started");
                println!("child {}", child.id());
                std::process::exit(3);
            }
            other => panic!("no role {other}"),
        }
    }

    /// Starts this program as a child with a role.
    fn start(role: &str, extra: &[&str]) -> (Process, PipeReader) {
        let program = std::env::current_exe().expect("its path");
        let words =
            ["tests", "--nocapture", "--exact", "sys::windows::process::tests::a_child_plays_its_role"];
        let arguments: Vec<OsString> = words.iter().chain(extra).map(OsString::from).collect();
        let mut environment: Vec<(OsString, OsString)> =
            std::env::vars_os().filter(|(name, _)| !is_same_variable(name, OsStr::new("WORD"))).collect();
        environment.extend([(ROLE.into(), role.into()), ("WORD".into(), "one two".into())]);
        let directory = std::env::temp_dir();
        let plan = ProcessPlan {
            program: &program,
            arguments: &arguments,
            environment: &environment,
            directory: &directory,
            user: None,
            socket: None,
            orphan_signal: StopSignal::Terminate,
        };
        Process::start(&plan).expect("started")
    }

    fn output(mut pipe: PipeReader) -> String {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn a_process_has_its_directory_its_variables_and_its_arguments() {
        let extra = ["--skip", r#"a "quoted" \ one"#, "--skip", r"C:\a dir\", "--skip", ""];
        let (process, pipe) = start("show", &extra);
        let text = output(pipe);
        let here = std::env::temp_dir();
        assert!(text.contains("[one two]"), "{text}");
        assert!(text.contains(here.display().to_string().trim_end_matches('\\')), "{text}");
        let expected = format!("{:?}", extra);
        assert!(text.contains(expected.trim_start_matches('[')), "{text}");
        assert!(text.contains("to standard error"), "{text}");
        assert_eq!(process.wait().expect("it ends"), ProcessEnd::Status(7));
    }

    #[test]
    fn a_process_is_stopped_and_does_not_outlive_its_job() {
        let (process, mut pipe) = start("wait", &[]);
        let mut text = Vec::new();
        while !text.ends_with(b"ready") {
            let mut byte = [0];
            pipe.read_exact(&mut byte).expect("the child writes it");
            text.push(byte[0]);
        }
        assert!(!process.has_ended());
        process.signal(StopSignal::Terminate);
        assert!(matches!(process.wait().expect("it ends"), ProcessEnd::Status(status) if status != 0));
        process.signal(StopSignal::Terminate);
        process.kill();
    }

    #[test]
    fn the_processes_that_a_process_has_started_end_with_it() {
        let (process, pipe) = start("parent", &[]);
        assert_eq!(process.wait().expect("it ends"), ProcessEnd::Status(3));
        // The pipe ends when all writers have ended.
        let text = output(pipe);
        assert!(text.contains("child "), "{text}");
    }

    #[test]
    fn a_dropped_process_ends() {
        let (process, pipe) = start("wait", &[]);
        drop(process);
        let _ended = output(pipe);
    }

    #[test]
    fn only_programs_start() {
        let folder = std::env::temp_dir().join(format!("encke-programs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary directory");
        for name in ["a.cmd", "a.BAT", "a.txt"] {
            let file = folder.join(name);
            std::fs::write(&file, "exit").expect("written");
            let plan = ProcessPlan {
                program: &file,
                arguments: &[],
                environment: &[],
                directory: &folder,
                user: None,
                socket: None,
                orphan_signal: StopSignal::Terminate,
            };
            let error = Process::start(&plan).map(drop).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
        std::fs::remove_dir_all(&folder).expect("it was made here");
        assert_eq!(program_names("node.EXE"), ["node.EXE"]);
        assert_eq!(program_names("node"), ["node.exe", "node.com", "node.cmd", "node.bat", "node"]);
        assert_eq!(program_names("a.b"), ["a.b.exe", "a.b.com", "a.b.cmd", "a.b.bat", "a.b"]);
    }

    #[test]
    fn an_environment_is_sorted_without_regard_to_case() {
        let variables = [("b", "2"), ("A", "1"), ("C", "")].map(|(name, value)| (name.into(), value.into()));
        let block = environment_block(&variables).expect("a block");
        assert_eq!(String::from_utf16(&block).expect("text"), "A=1\0b=2\0C=\0\0");
        assert_eq!(environment_block(&[]).expect("a block"), [0, 0]);
        assert!(environment_block(&[("A".into(), "a\0b".into())]).is_err());
    }

    #[test]
    fn a_pipe_ends_with_its_process() {
        // A handle that was inherited by another child, too, would keep the pipe open.
        let (first, first_pipe) = start("wait", &[]);
        let (second, second_pipe) = start("wait", &[]);
        first.kill();
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(output(first_pipe)));
        ended.recv_timeout(Duration::from_secs(60)).expect("the pipe of the first has ended");
        second.kill();
        let _ended = output(second_pipe);
    }
}
