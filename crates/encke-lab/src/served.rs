//! Encke's own server under test, in a process of its own, so that its memory and CPU time can be measured.
//!
//! ```text
//!  this process                              `encke lab --under-test`: the same program
//!  [`RunningServer::start`] ── starts ──► [`under_test`] ── starts the server
//!        ◄─────────── "127.0.0.1:PORT\n" ────────┘
//!  [`RunningServer`] drops ── closes the pipe ─────► end of input: it exits. So does the death of this process.
//! ```
//! Without a program (in this crate's tests) the server runs on threads of this process. It serves in the same way, but its
//! memory and CPU time are not reported.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use encke_assembly::settings::{Listen, ListenAddress, LogTarget, OrAuto, OrOff, Period, Settings};
use encke_assembly::{Service, ServiceError};
use encke_io::{Address, host};
use encke_server::{Exchange, Outcome, Reply, Request};

use crate::error::LabError;

/// A server that runs until it is dropped.
pub(crate) struct RunningServer {
    address: SocketAddr,
    place: ServerPlace,
}

/// The server's process or threads.
enum ServerPlace {
    Child(Child),
    /// Taken when the server is dropped.
    Here(Option<Box<Service>>),
}

impl RunningServer {
    /// Starts a server on a port that the system chooses. `connections` is its limit; `None` for as many as it has descriptors.
    ///
    /// # Errors
    /// The server cannot be started.
    pub(crate) fn start(program: Option<&Path>, connections: Option<NonZeroU32>) -> Result<Self, LabError> {
        let Some(program) = program else {
            let service = service(connections)?;
            return Ok(Self {
                address: address(&service)?,
                place: ServerPlace::Here(Some(Box::new(service))),
            });
        };
        let mut command = Command::new(program);
        command.args(["lab", UNDER_TEST]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.args(connections.map(|connections| connections.to_string()));
        // ^C ends the lab, which then ends the server.
        encke_io::process::in_own_group(&mut command);
        let mut child = command.spawn()?;
        let mut line = String::new();
        let told =
            child.stdout.take().ok_or_else(|| LabError::unexpected("the server under test has no output"))?;
        BufReader::new(told).read_line(&mut line)?;
        let Ok(address) = line.trim().parse() else {
            drop(child.stdin.take());
            let status = child.wait()?;
            let text = format!("the server under test did not start ({status})");
            return Err(LabError::unexpected(text));
        };
        Ok(Self { address, place: ServerPlace::Child(child) })
    }

    /// The address at which the server listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's process, if it is not this one.
    pub(crate) fn process(&self) -> Option<u32> {
        match &self.place {
            ServerPlace::Child(child) => Some(child.id()),
            ServerPlace::Here(_) => None,
        }
    }

    /// CPU time that all threads of the server's process have used so far, in ns; `None` if it runs in this process.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        let usage = host::process_usage(self.process()?)?;
        // The times of threads are finer, where the system reports them.
        let threads: u64 = usage.threads.iter().map(|thread| thread.run_ns).sum();
        Some(if usage.threads.is_empty() { usage.cpu_ns } else { threads })
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        match &mut self.place {
            ServerPlace::Child(child) => {
                // The server exits at the end of its input.
                drop(child.stdin.take());
                let _is_gone = child.wait();
            }
            ServerPlace::Here(service) => {
                if let Some(service) = service.take() {
                    service.drain();
                    service.join();
                }
            }
        }
    }
}

/// The flag of `encke lab` that runs [`under_test`].
pub const UNDER_TEST: &str = "--under-test";

/// The server process: listens on a port that the system chooses, writes its address as a line, and returns at the end of the
/// input.
///
/// # Errors
/// The server cannot start, or its address cannot be written.
pub fn under_test(connections: Option<NonZeroU32>) -> Result<(), LabError> {
    let service = service(connections)?;
    let mut output = io::stdout().lock();
    writeln!(output, "{}", address(&service)?)?;
    output.flush()?;
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    // The measurements are done, so nothing is drained.
    Ok(())
}

/// Starts a server with the default settings of `encke serve`, but without pages, admin listener, access log, drain and
/// admission limits.
fn service(connections: Option<NonZeroU32>) -> Result<Service, ServiceError> {
    let mut settings = Settings::default();
    settings.server.listen = vec![Listen::at(ListenAddress::Inet(SocketAddr::from(([127, 0, 0, 1], 0))))];
    settings.server.admin = OrOff::Off;
    settings.server.drain_delay = Period::seconds(0);
    settings.server.drain_time = Period::seconds(0);
    settings.log.access = LogTarget::Off;
    settings.push.admission = OrOff::Off;
    settings.limits.connections = connections.map_or(OrAuto::Auto, OrAuto::Set);
    Service::start_with(&settings, |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::error(404)))
}

fn address(service: &Service) -> Result<SocketAddr, LabError> {
    match service.addresses()[..] {
        [Address::Inet(address)] => Ok(address),
        _ => Err(LabError::unexpected("the server does not listen at the requested address")),
    }
}
