//! Applications that listen at `{port}` themselves, on every system: the application is this program.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke_apps::{AppRouting, AppSettings, Apps, FoundApps, RestartFailure};
use encke_io::lock;
use encke_settings::Period;
use encke_stats::Ticket;

/// Longer than any event takes that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two looks at a process.
const POLL: Duration = Duration::from_millis(1);

/// The application: responds with its process id and a variable. After `/exit` it exits with status 3. Does nothing in a usual run of
/// the tests.
#[test]
fn an_application_serves() {
    let Ok(port) = std::env::var("APP_PORT") else { return };
    if std::env::var("APP_WORD").is_ok_and(|word| word == "fails") {
        std::process::exit(7);
    }
    let port: u16 = port.parse().expect("a port");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    println!("listening");
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        let _rest = lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).count();
        let body = format!("{} {}", std::process::id(), std::env::var("APP_WORD").unwrap_or_default());
        let response =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        let _client_is_gone = stream.write_all(response.as_bytes());
        if first.starts_with("GET /exit ") {
            std::process::exit(3);
        }
    }
}

/// The server's side: records what it is told, and says which addresses are in use.
struct PortServer {
    told: Sender<Option<SocketAddr>>,
    used: Arc<Mutex<Vec<SocketAddr>>>,
}

impl AppRouting for PortServer {
    fn direct(&mut self, _app: &str, _number: usize, address: Option<SocketAddr>) {
        let _test_has_ended = self.told.send(address);
    }

    fn is_used(&mut self, address: SocketAddr) -> bool {
        lock(&self.used).contains(&address)
    }
}

struct PortWorld {
    apps: Apps,
    told: Receiver<Option<SocketAddr>>,
    used: Arc<Mutex<Vec<SocketAddr>>>,
}

impl PortWorld {
    fn new(settings: &AppSettings) -> Self {
        let (sender, told) = channel();
        let used = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let apps = Apps::new(PortServer { told: sender, used: Arc::clone(&used) });
        let world = Self { apps, told, used };
        world.run(settings);
        world
    }

    fn run(&self, settings: &AppSettings) {
        let found = FoundApps::find(std::slice::from_ref(settings)).expect("this program exists");
        self.apps.prepare(&found).expect("a thread");
        self.apps.run(found);
    }

    /// The next address that the supervisor names.
    fn address(&self) -> Option<SocketAddr> {
        self.told.recv_timeout(PATIENCE).expect("an address")
    }

    /// The next address that differs from `old`.
    fn other(&self, old: SocketAddr) -> SocketAddr {
        loop {
            if let Some(found) = self.address().filter(|found| *found != old) {
                return found;
            }
        }
    }
}

fn app(word: &str) -> AppSettings {
    let program = std::env::current_exe().expect("its path").display().to_string();
    let words = ["--exact", "an_application_serves", "--nocapture"].map(String::from);
    AppSettings {
        name: "shop".into(),
        run: std::iter::once(program).chain(words).collect(),
        directory: Some(std::env::temp_dir()),
        env: [("APP_PORT", "{port}"), ("APP_WORD", word)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        start_time: Period::seconds(60),
        ..AppSettings::default()
    }
}

/// Sends a request, and returns the words of the response: process id and variable.
fn get(address: SocketAddr, path: &str) -> io::Result<Vec<String>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: app\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(body.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn a_process_that_ends_is_started_again_at_another_port() {
    let world = PortWorld::new(&app("first"));
    let address = world.address().expect("it responds");
    let first = get(address, "/exit").expect("a response");
    assert_eq!(first[1], "first");
    assert_eq!(world.address(), None, "another program may get the port");
    let again = world.address().expect("it responds again");
    assert_ne!(get(again, "/").expect("a response")[0], first[0]);
}

#[test]
fn a_replaced_process_serves_its_connections_and_then_ends() {
    let world = PortWorld::new(&app("first"));
    let old = world.address().expect("it responds");
    let first = get(old, "/").expect("a response");
    lock(&world.used).push(old);
    world.run(&app("second"));
    let new = world.other(old);
    assert_eq!(get(new, "/").expect("a response")[1], "second");
    assert_eq!(get(old, "/").expect("the old process serves its connections")[0], first[0]);
    lock(&world.used).clear();
    while get(old, "/").is_ok() {
        std::thread::park_timeout(POLL);
    }
}

#[test]
fn a_replacement_that_fails_leaves_the_old_process_in_place() {
    let world = PortWorld::new(&app("first"));
    let old = world.address().expect("it responds");
    let first = get(old, "/").expect("a response");
    world.run(&app("fails"));
    let (send, receive) = channel();
    let ticket = Ticket::new(move |result| send.send(result).expect("the test waits"));
    world.apps.restarter().restart("shop", ticket);
    let result = receive.recv_timeout(PATIENCE).expect("an end").expect("the supervisor runs");
    let Err(RestartFailure::Failed(reasons)) = result else { panic!("{result:?}") };
    assert!(reasons[0].contains("the old one stays"), "{reasons:?}");
    assert_eq!(get(old, "/").expect("the old one stays")[0], first[0]);
}

#[test]
fn all_processes_end_with_the_supervisor() {
    let world = PortWorld::new(&AppSettings { count: 2.try_into().expect("not 0"), ..app("first") });
    let one = world.address().expect("it responds");
    let addresses = [one, world.other(one)];
    for address in addresses {
        get(address, "/").expect("a response");
    }
    drop(world.apps);
    for address in addresses {
        assert!(get(address, "/").is_err(), "a process has outlived its supervisor");
    }
}
