//! A real nats-server with JetStream, on an address of its own. Its directory is deleted with the test.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod proxy;

use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use encke_io::testing::own_host;

/// A server process, running or stopped.
pub(crate) struct Nats {
    child: Option<Child>,
    folder: PathBuf,
    arguments: Vec<String>,
    host: String,
    port: u16,
}

impl Nats {
    /// Starts a server with additional arguments.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        Self::start_at(own_host(), name, arguments)
    }

    /// Starts a server at an address of [`own_host`].
    pub(crate) fn start_at(host: String, name: &str, arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("encke-nats-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut nats = Self { child: None, folder, arguments, host, port: 0 };
        nats.run();
        nats
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> String {
        format!("nats://{}:{}", self.host, self.port)
    }

    /// Kills the server. Acknowledged messages are on disk.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended_already = child.kill();
            child.wait().expect("a child");
        }
    }

    /// Suspends the server (SIGSTOP): connections stay open, without any traffic.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Resumes a suspended server (SIGCONT).
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args([signal, &id]).status().expect("kill is installed");
        assert!(status.success(), "kill {signal} {id}: {status}");
    }

    /// Starts the server, again on the same port and directory.
    pub(crate) fn run(&mut self) {
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        let mut child = Command::new("nats-server")
            .args(["-js", "-a", &self.host, "-p", &port, "-sd"])
            .arg(&self.folder)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server is installed: .ci/need nats-server");
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("Server is ready") {
            let read = log.read_line(&mut said).expect("text");
            assert!(read > 0, "nats-server ended: {said}");
        }
        let told = format!("client connections on {}:", self.host);
        let (_, address) = said.split_once(&told).expect("where it listens");
        let port: String = address.chars().take_while(char::is_ascii_digit).collect();
        self.port = port.parse().expect("a port");
        self.child = Some(child);
        // Drains the rest of the log, so that the server never blocks on it.
        std::thread::spawn(move || io::copy(&mut log, &mut io::sink()));
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.stop();
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}
