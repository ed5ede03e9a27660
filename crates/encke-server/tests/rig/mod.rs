//! Common parts of the cases: a server in this process, strict clients, handlers, directories.
//!
//! ```text
//! Stand (back end, workers) ─► Rig: a running server ─► Client ─► Answer
//!                               └─ counts: what the server says of itself, as in /metrics
//! ```
//! Nothing here waits for time to pass. A case waits for a response, for an end, or for a count ([`Rig::wait`]). If it does not
//! arrive within [`PATIENCE`], the case fails.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]
#![allow(missing_docs, unreachable_pub, reason = "a test: nobody uses it as a library")]

pub mod client;
pub mod folder;
pub mod h2;
pub mod handlers;
pub mod relays;
#[cfg(feature = "tls")]
pub mod tls;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use encke_io::{Address, Backend};
use encke_server::{CloseReason, ConnLimits, Options, Running, Server};
use encke_settings::Period;
use encke_stats::Value;

pub use client::{Answer, Client, Cut, End};
pub use folder::Folder;
use handlers::Files;

/// Maximum wait for an expected event. Only a failing case waits that long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Times in the server's limits, for cases that do not test them.
const AMPLE_MS: u64 = 60_000;

/// The back end and number of workers that a case runs on.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    pub backend: Backend,
    pub workers: usize,
}

/// A server in this process. It ends with the rig, at once.
pub struct Rig {
    running: Option<Running>,
    addresses: Vec<Address>,
}

impl Stand {
    /// Starts a server with the default limits.
    pub fn serve(self, assemble: impl FnOnce(Server) -> Server) -> Rig {
        self.serve_by(|_| {}, assemble)
    }

    /// Starts a server with limits that the case sets.
    pub fn serve_by(
        self,
        limit: impl FnOnce(&mut ConnLimits),
        assemble: impl FnOnce(Server) -> Server,
    ) -> Rig {
        let server = Server::new(self.options(limit)).listen(any_port());
        Rig::of(assemble(server).start().expect("a free port, and the back end is there"))
    }

    /// Starts a server that serves only the files of a directory.
    pub fn serve_files(self, folder: &Folder) -> Rig {
        let files = files(folder);
        self.serve(|server| server.mount("/", files))
    }

    /// The options of such a server. Times are so long that a client meets a limit only where its case sets one, however busy
    /// the machine is.
    pub fn options(self, limit: impl FnOnce(&mut ConnLimits)) -> Options {
        let mut options =
            Options { workers: Some(self.workers), backend: Some(self.backend), ..Options::default() };
        let policy = &mut options.policy;
        policy.rate_window_ns = ms(AMPLE_MS).nanoseconds();
        let limits = &mut policy.limits;
        for time in [&mut limits.head_time, &mut limits.idle_time, &mut limits.linger_time] {
            *time = ms(AMPLE_MS);
        }
        limit(policy);
        options
    }
}

/// Loopback, with a port that the system chooses.
pub fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Serves the files of a directory with a handler of the tests.
pub fn files(folder: &Folder) -> Files {
    Files::of(folder)
}

/// A period in milliseconds.
pub const fn ms(milliseconds: u64) -> Period {
    Period::milliseconds(milliseconds)
}

impl Rig {
    /// Takes over a running server.
    pub fn of(running: Running) -> Self {
        Self { addresses: running.addresses(), running: Some(running) }
    }

    /// The server.
    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("it is taken only when the rig ends")
    }

    /// The first address.
    pub fn address(&self) -> &Address {
        &self.addresses[0]
    }

    /// All addresses.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Connects a client.
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Connects a client that sends `bytes`, and waits for the first byte of the server. If the server ends the connection without
    /// one, the client tries again: a busy machine may let more time pass between the connection and its first byte than a limit of
    /// the case allows. The second value is the number of such ends.
    pub fn begun(&self, bytes: impl AsRef<[u8]>) -> (Client, u64) {
        for ends in 0..100 {
            let mut client = self.client();
            if client.try_send(bytes.as_ref()).is_ok() && client.is_answered() {
                return (client, ends);
            }
        }
        panic!("the server ends each connection without a response{}", self.told());
    }

    /// Connects a client with a small receive buffer.
    pub fn narrow_client(&self) -> Client {
        Client::connect_narrow(self.address())
    }

    /// The sum of a family's samples.
    pub fn count(&self, family: &str) -> u64 {
        self.sum(family, |_| true)
    }

    /// The sample of a family with this label.
    pub fn count_of(&self, family: &str, label: &str) -> u64 {
        self.sum(family, |other| other == label)
    }

    /// Number of connections that ended for a reason.
    pub fn closes(&self, reason: CloseReason) -> u64 {
        self.count_of("encke_closes_total", reason.name())
    }

    /// Number of open connections.
    pub fn connections(&self) -> u64 {
        self.count("encke_connections")
    }

    /// Bytes that the server has received.
    pub fn received(&self) -> u64 {
        self.count("encke_received_bytes_total")
    }

    /// Waits until this number of connections have ended for a reason.
    pub fn wait_for_closes(&self, reason: CloseReason, count: u64) {
        self.wait(|| self.closes(reason) >= count, &format!("{count} connections closed: {}", reason.name()));
        assert_eq!(self.closes(reason), count, "connections closed: {}", reason.name());
    }

    /// Waits until a condition holds.
    pub fn wait(&self, happened: impl FnMut() -> bool, what: &str) {
        let told = || self.told();
        wait_for(happened, what, told);
    }

    /// Ends the server and waits for its threads.
    pub fn end(mut self) {
        self.halt();
    }

    /// All counts of the server that are not 0, for a case that fails.
    pub fn told(&self) -> String {
        let mut text = String::new();
        for family in self.running().families() {
            for sample in family.samples {
                let labels: Vec<&str> = sample.labels.iter().map(|(_, value)| value.as_ref()).collect();
                match sample.value {
                    Value::Count(0) | Value::Distribution(_) => {}
                    value => text.push_str(&format!("\n  {} {labels:?} {value:?}", family.name)),
                }
            }
        }
        text
    }

    fn sum(&self, name: &str, chosen: impl Fn(&str) -> bool) -> u64 {
        let families = self.running().families();
        let family = families.iter().find(|family| family.name == name);
        let samples = &family.unwrap_or_else(|| panic!("no family is called {name}")).samples;
        let of = |value: &Value| match value {
            Value::Count(count) => *count,
            Value::Number(number) => *number as u64,
            Value::Distribution(_) => panic!("{name} is a distribution"),
        };
        samples
            .iter()
            .filter(|sample| sample.labels.is_empty() || sample.labels.iter().any(|(_, value)| chosen(value)))
            .map(|sample| of(&sample.value))
            .sum()
    }

    fn halt(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::ZERO, Duration::ZERO);
            running.join();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Checks a condition repeatedly until it holds.
pub fn wait_for(mut happened: impl FnMut() -> bool, what: &str, told: impl Fn() -> String) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for this: {what}{}", told());
        std::thread::park_timeout(Duration::from_micros(500));
    }
}
