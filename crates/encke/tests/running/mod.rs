//! The program under test: started on free ports, observed by its output, and killed when the test ends.

#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use encke_io::host::{Signal, send_signal};
use encke_io::testing::{own_host, wait_until};

/// Returns the program, without variables of the test environment that would affect it.
pub(crate) fn encke() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
    for name in [
        "ENCKE_CONFIG",
        "ENCKE_TOKEN",
        "ENCKE_URL",
        "LISTEN_FDS",
        "LISTEN_PID",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "KUBERNETES_SERVICE_HOST",
        "container",
        "NOTIFY_SOCKET",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends a GET request to `site`. Returns head and body of the response.
pub(crate) fn get(site: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(site).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    text(&answer)
}

/// Waits until a program that has started listens at this address.
pub(crate) fn wait_until_open(address: &str) {
    wait_until(&format!("a program listens at {address}"), || TcpStream::connect(address).is_ok());
}

/// A directory of one test, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("encke-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path.canonicalize().expect("it is there"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("temporary paths are text").to_owned()
    }

    /// Writes a file and its parent directories. Returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("folders");
        std::fs::write(&path, content).expect("written");
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect("a file of the test")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Maximum wait for an expected line. Then the server is stopped, which fails the test with all of its output. No expected line
/// takes a minute.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for `outcome` of the process `id`, with [`PATIENCE`].
pub(crate) fn patiently<T>(id: u32, outcome: impl FnOnce() -> T) -> T {
    let (over, wait) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("process {id} is told to end: what is waited for has not come in {PATIENCE:?}");
                let _or_ended = send_signal(id, Signal::Terminate);
            }
        });
        let _until_it_is_here = over;
        outcome()
    })
}

/// A running server.
pub(crate) struct Running {
    pub(crate) child: Child,
    /// The address of the first listener, as `127.0.0.1:PORT`.
    pub(crate) site: String,
    /// The printed URL of the admin listener, with its token.
    pub(crate) admin: String,
    pub(crate) greeting: String,
    /// Lines before the greeting, from other threads.
    early: VecDeque<String>,
    errors: Option<BufReader<ChildStderr>>,
    output: Option<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts `encke serve` with these arguments on free ports, and waits until it serves.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1", arguments)
    }

    /// Starts the server as [`Running::start`] does, at an address of its own: another one can start at its ports later.
    pub(crate) fn start_alone(arguments: &[&str]) -> Self {
        Self::start_at(&own_host(), arguments)
    }

    fn start_at(host: &str, arguments: &[&str]) -> Self {
        let mut command = encke();
        let any = format!("{host}:0");
        command.args(["serve", "-l", &any, "--admin", &any, "-w", "2"]).args(arguments);
        Self::start_command(command.stdout(Stdio::piped()))
    }

    /// Starts a complete command, and waits until it serves.
    pub(crate) fn start_command(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let output = child.stdout.take().map(BufReader::new);
        let mut said = String::new();
        // The last line of the greeting follows when all sockets listen.
        patiently(child.id(), || {
            while !said.contains("\n  capacity ") {
                let read = errors.read_line(&mut said).expect("text");
                assert!(read > 0, "it ended: {said}");
            }
        });
        let mut starts = said.match_indices("encke ").map(|(at, _)| at);
        let start = starts.find(|&at| at == 0 || said[..at].ends_with('\n'));
        let (early, greeting) = said.split_at(start.expect("it begins with its name"));
        let (early, greeting) =
            (early.split_inclusive('\n').map(String::from).collect(), greeting.to_owned());
        let told = |name: &str| {
            let start = format!("  {name} ");
            let line = greeting.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap_or_default().trim().to_owned()
        };
        let site = told("site");
        let (_, site) = site.split_once("://").unwrap_or_default();
        let site = site.trim_end_matches('/').to_owned();
        let admin = told("admin");
        Self { child, site, admin, greeting, early, errors: Some(errors), output }
    }

    /// Sends a GET request. Returns head and body of the response.
    pub(crate) fn get(&self, path: &str) -> String {
        get(&self.site, path)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.child.id(), signal).expect("it lives");
    }

    /// Returns the next line on standard error that contains `part`.
    pub(crate) fn error_with(&mut self, part: &str) -> String {
        let Self { early, errors, .. } = self;
        let errors = errors.as_mut().expect("not taken");
        let mut all = String::new();
        patiently(self.child.id(), || {
            loop {
                let line = early.pop_front().map_or_else(|| next_line(errors), Ok).expect("text");
                assert!(!line.is_empty(), "it ended without `{part}`: {all}");
                if line.contains(part) {
                    return line;
                }
                all += &line;
            }
        })
    }

    /// Takes the read end of its standard error.
    pub(crate) fn take_errors(&mut self) -> Option<BufReader<ChildStderr>> {
        self.errors.take()
    }

    /// Returns the next line on standard output.
    pub(crate) fn line(&mut self) -> String {
        let output = self.output.as_mut().expect("piped");
        patiently(self.child.id(), || next_line(output)).expect("text")
    }

    /// Waits until the program exits. Returns the exit status and the rest of standard error, without the warning about a
    /// container: it depends on the machine that runs the tests.
    pub(crate) fn end(self) -> (Option<i32>, String) {
        let (status, said) = self.end_with_all();
        let is_warning =
            |line: &&str| is_container() && line.contains("runs in a container: a reverse proxy");
        (status, said.split_inclusive('\n').filter(|line| !is_warning(line)).collect())
    }

    /// Kills the process as `kill -9` does, and waits for its end: until then it holds its files and ports.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child")
    }

    /// Waits as [`Running::end`] does, and returns every line.
    pub(crate) fn end_with_all(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        if let Some(errors) = &mut self.errors {
            patiently(self.child.id(), || errors.read_to_string(&mut rest)).expect("text");
        }
        (self.child.wait().expect("a child").code(), rest)
    }
}

/// Whether the tests run in a container.
pub(crate) fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|file| std::path::Path::new(file).exists())
}

/// Reads a line. Empty at end of file.
fn next_line(lines: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = String::new();
    lines.read_line(&mut line).map(|_| line)
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
