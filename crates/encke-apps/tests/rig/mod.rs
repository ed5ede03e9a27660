//! The server's side of a supervisor: records where requests are directed, and says which addresses are in use.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke_apps::{AppRouting, AppSettings, Apps, FoundApps, RestartResult};
use encke_io::lock;
use encke_stats::Ticket;

/// Longer than any event takes that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A message of the supervisor to the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directed {
    pub(crate) app: String,
    pub(crate) number: usize,
    pub(crate) address: Option<SocketAddr>,
}

struct RecordingServer {
    told: Sender<Directed>,
    used: Arc<Mutex<Vec<SocketAddr>>>,
}

impl AppRouting for RecordingServer {
    fn direct(&mut self, app: &str, number: usize, address: Option<SocketAddr>) {
        let _test_has_ended = self.told.send(Directed { app: app.to_owned(), number, address });
    }

    fn is_used(&mut self, address: SocketAddr) -> bool {
        lock(&self.used).contains(&address)
    }
}

/// A supervisor, and its messages to the server.
pub(crate) struct SupervisedApps {
    pub(crate) apps: Apps,
    pub(crate) told: Receiver<Directed>,
    /// The addresses of the processes that have connections.
    pub(crate) used: Arc<Mutex<Vec<SocketAddr>>>,
}

impl SupervisedApps {
    pub(crate) fn new(settings: &[AppSettings]) -> Self {
        let (sender, told) = channel();
        let used = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let apps = Apps::new(RecordingServer { told: sender, used: Arc::clone(&used) });
        let new = Self { apps, told, used };
        new.run(settings);
        new
    }

    pub(crate) fn run(&self, settings: &[AppSettings]) {
        let found = FoundApps::find(settings).expect("the programs exist");
        self.apps.prepare(&found).expect("a thread");
        self.apps.run(found);
    }

    /// The next address that the supervisor names.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.told.recv_timeout(PATIENCE).expect("an address").address
    }

    /// The next address that differs from `old`. Another program may take the port of a replacement between its choice and its use.
    /// Then the old process stays, and the application is restarted.
    pub(crate) fn other(&self, old: SocketAddr) -> SocketAddr {
        for _ in 0..5 {
            while let Ok(directed) = self.told.recv_timeout(PATIENCE / 5) {
                let found = directed.address.expect("an address");
                if found != old {
                    return found;
                }
            }
            println!("the replacement has failed: {:?}", self.restart("shop"));
        }
        panic!("no process replaces that at {old}")
    }

    /// Restarts an application as an operator does, and waits for the result.
    pub(crate) fn restart(&self, app: &str) -> RestartResult {
        let (send, receive) = channel();
        let ticket = Ticket::new(move |result| send.send(result).expect("the test waits"));
        self.apps.restarter().restart(app, ticket);
        receive.recv_timeout(PATIENCE).expect("an end").expect("the supervisor runs")
    }
}

/// Sends a request, and returns the words of the response.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<Vec<String>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: app\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(body.split_whitespace().map(str::to_owned).collect())
}
