//! `accept` (report 000): how a server waits for connections, and how it handles them.
//!
//! ```text
//!  c clients, each: connect ─ request ─ read to the end ─ again       all threads of this process, none of them pinned
//!        │
//!        ▼
//!  a loop under test ── sleep · sleep when idle · poll ──► a thread per connection ─► respond, close
//!                    └─ Encke's reactor ─────────────────► the same thread ─────────► respond, close
//! ```
//! Each measurement starts and stops its own server, because an idle server that wakes up would disturb the others.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use encke_io::clock::Clock;
use encke_io::offload::Pool;
use encke_io::socket::{Address, ListenOptions};
use encke_io::{
    Backend, Event, Listener, Op, Reactor, ReactorSource, ReactorTask, Segment, Send, Token, Unavailable,
    Waker, run_on,
};
use encke_wire::http1::{Head, HeadLimits, Progress};

use crate::error::LabError;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, Experiment, Fact, Judged, Load, LoadAxis, RowPlan, Seen,
    Way, design_rows, is_windows, loads_within, row_of, rows_here,
};
use crate::helper::HelperThread;
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::specimens::accept::{self, AcceptHow, process_use};

/// The server that accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AcceptServer {
    Specimen(AcceptHow),
    Encke(Backend),
}

impl AcceptServer {
    /// Whether this system has it.
    fn is_here(self) -> bool {
        match self {
            Self::Specimen(how) => how.system().is_here(),
            Self::Encke(backend) => backend.compiled(),
        }
    }
}

/// The rows of all systems.
const ROWS: [RowPlan<AcceptServer>; 9] = [
    (AcceptServer::Specimen(AcceptHow::SleepAlways), Way::Old, "accept, always sleep 10 ms"),
    (AcceptServer::Specimen(AcceptHow::SleepIdle), Way::Cure, "sleep 10 ms after an empty check"),
    (AcceptServer::Specimen(AcceptHow::Poll), Way::Cure, "poll, a thread a connection"),
    (AcceptServer::Specimen(AcceptHow::WsaPoll), Way::Cure, "WSAPoll, a thread a connection"),
    (AcceptServer::Encke(Backend::Afd), Way::Encke, "Encke's reactor on the socket driver"),
    (AcceptServer::Encke(Backend::Poll), Way::Encke, "Encke's reactor on poll"),
    (AcceptServer::Encke(Backend::EpollLevel), Way::Encke, "… on epoll, level"),
    (AcceptServer::Encke(Backend::EpollEdge), Way::Encke, "… on epoll, edge"),
    (AcceptServer::Encke(Backend::Uring), Way::Encke, "… on io_uring"),
];

/// The difference on Windows.
const ON_WINDOWS: &str = "Windows has no epoll and no io_uring: WSAPoll takes the place of poll, and Encke's reactor polls the \
                          socket driver (afd), for one event at a time. The claims on epoll are not measured. Windows counts no \
                          context switches of a process.";

/// Concurrent clients. The report had 1 to 4.
const CLIENTS: [usize; 6] = [1, 2, 3, 4, 16, 64];
const CLIENTS_QUICK: [usize; 4] = [1, 2, 3, 4];

/// Requests of each client in an operation: three sleeps of a sleeping loop.
const REQUESTS: u64 = 3;
/// Factor of the requests for loops that do not sleep. Their times are divided by it. 3 × 16 requests of 200 µs take 10 ms, a
/// third of the time of the sleeping loops.
const TIMES: u64 = 16;

/// The size of the report's image, a small logo.
const BODY_BYTES: usize = 1_348;
const REQUEST: &[u8] =
    b"GET /html/ja/images/small-logo.png HTTP/1.0\r\nHost: localhost\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n";

/// Timeout of a client: a longer wait is a fault of the lab.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Accept {
    design: Design,
    /// The rows of this system.
    rows: Vec<RowPlan<AcceptServer>>,
    clients: Vec<usize>,
    /// By row: wake-ups per second of a server without clients, once measured. The first load reports them.
    idle: Vec<Option<f64>>,
    aside: HelperThread,
}

impl Accept {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let clients = loads_within(&CLIENTS, &CLIENTS_QUICK, pace);
        let rows = rows_here(&ROWS, AcceptServer::is_here);
        let load = |&clients: &usize| Load {
            units: (clients as u64 * REQUESTS) as f64,
            ..Load::amount(format!("c = {clients}"), clients as f64)
        };
        let design = Design {
            name: "accept",
            unit: "a request, as the server sees it (its inverse is the rate)",
            judged: Judged::Wall,
            rows: design_rows(&rows),
            loads: clients.iter().map(load).collect(),
            axis: LoadAxis::Amounts("clients at a time"),
            drawn: Vec::new(),
        };
        let idle = vec![None; rows.len()];
        Self { design, rows, clients, idle, aside: HelperThread::start("accept") }
    }
}

impl Experiment for Accept {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let (door, clients) = (self.rows[cell.row].0, self.clients[cell.load]);
        let times = if matches!(door, AcceptServer::Specimen(AcceptHow::SleepAlways | AcceptHow::SleepIdle)) {
            1
        } else {
            TIMES
        };
        let requests = count * REQUESTS * times;
        let known = if cell.load == 0 { self.idle[cell.row] } else { Some(0.0) };
        let besieged = self.aside.run(move || besieged(door, clients, requests, known));
        let (mut sample, idle) =
            besieged.unwrap_or(Err(LabError::Ended("its thread panicked or could not start")))?;
        if cell.load == 0 {
            self.idle[cell.row] = idle;
            sample.facts.extend(idle.map(|idle| (IDLE, Fact::Number(idle))));
        }
        sample.wall_ns /= times;
        sample.cpu_ns /= times;
        Ok(sample)
    }

    fn difference(&self) -> Option<&'static str> {
        is_windows().then_some(ON_WINDOWS)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row = |how| row_of(&self.rows, &AcceptServer::Specimen(how));
        let load =
            |count| self.clients.iter().position(|clients| *clients == count).expect("a pace has 1 to 4");
        let loads = 0..self.clients.len();
        let poll = row(AcceptHow::Poll).or_else(|| row(AcceptHow::WsaPoll));
        let [always, idle] = [AcceptHow::SleepAlways, AcceptHow::SleepIdle]
            .map(|how| row(how).expect("every system can sleep"));
        let edge = row_of(&self.rows, &AcceptServer::Encke(Backend::EpollEdge));
        let crawls = |load| {
            let cell = CellIndex { row: always, load };
            let Some(time) = results.wall(cell) else { return Claim::unclear() };
            let seen = match time {
                time if time.low >= CRAWL_NS => Seen::Yes,
                time if time.high < CRAWL_NS => Seen::No,
                _ => Seen::Unclear,
            };
            Claim {
                seen,
                figure: format!("{}: {:.1}/s", results.design().loads[load].name, 1e9 / time.median).into(),
            }
        };
        vec![
            Claim::all(loads.clone().map(crawls)),
            results.cell_at_most(
                0.4,
                CellIndex { row: idle, load: load(4) },
                CellIndex { row: idle, load: load(1) },
            ),
            results.at_most(0.2, poll, always, load(1)),
            Claim::all(loads.clone().map(|load| results.at_most(1.0, edge, poll, load))),
            Claim::all(loads.map(|load| results.at_most(1.0 / 3.0, edge, poll, load))),
        ]
    }
}

/// The server's thread panicked.
const SERVER_BROKE_OFF: LabError = LabError::Ended("the server's thread panicked or could not start");

/// Name of the fact for a server without clients: every wake-up makes some system calls to no purpose.
const IDLE: &str = "wake-ups a second, idle";
/// How long the server has no clients.
const IDLE_TIME: Duration = Duration::from_millis(200);

/// A loop that always sleeps takes at least 10 ms per request. With three requests, part of the first sleep may have passed
/// before the first client read the clock.
const CRAWL_NS: f64 = 9.5e6;

/// Starts the loop, measures its idle wake-ups if they are not known, and runs `clients` clients with `requests` requests each.
/// Returns the total time and the wake-ups, if the system counts them. The first request of each client is not counted: it meets the loop anywhere in its
/// sleep. CPU time is that of the whole process.
fn besieged(
    door: AcceptServer,
    clients: usize,
    requests: u64,
    idle: Option<f64>,
) -> Result<(CellSample, Option<f64>), LabError> {
    let answer: Arc<[u8]> = answer().into();
    let stop = AtomicBool::new(false);
    let (ready, done) = (Barrier::new(clients + 1), Barrier::new(clients + 1));
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let server = {
            let (answer, stop) = (Arc::clone(&answer), &stop);
            scope.spawn(move || open(door, answer, stop, tell))
        };
        let Ok(opened) = told.recv() else {
            let result = server.join().unwrap_or(Err(SERVER_BROKE_OFF));
            return Err(result.err().unwrap_or(LabError::Ended("the server exited at once")));
        };
        let idle = idle.or_else(wakes);
        let visitors: Vec<_> = (0..clients)
            .map(|_| {
                let (ready, done, expected) = (&ready, &done, answer.len());
                scope.spawn(move || {
                    let mut clock = Clock::new();
                    let mut all = visit(opened.address, expected);
                    ready.wait();
                    let begun_ns = clock.now().mono_ns;
                    for _ in 0..requests {
                        all = all.and_then(|()| visit(opened.address, expected));
                    }
                    let ended_ns = clock.now().mono_ns;
                    done.wait();
                    all.map(|()| (begun_ns, ended_ns))
                })
            })
            .collect();
        ready.wait();
        let before = process_use();
        done.wait();
        let after = process_use();
        stop.store(true, Ordering::SeqCst);
        if let Some(waker) = &opened.waker {
            waker.wake();
        }
        // From the first start to the last end, because this thread may have woken later.
        let (mut begun_ns, mut ended_ns) = (u64::MAX, 0);
        for visitor in visitors {
            let (begun, ended) =
                visitor.join().unwrap_or(Err(LabError::Ended("a thread panicked or could not start")))?;
            (begun_ns, ended_ns) = (begun_ns.min(begun), ended_ns.max(ended));
        }
        let wall_ns = ended_ns - begun_ns;
        let threads = server.join().unwrap_or(Err(SERVER_BROKE_OFF))?;
        let all = requests as f64 * clients as f64;
        let visited = (requests + 1) as f64 * clients as f64;
        let cpu_ns = after.cpu_ns - before.cpu_ns;
        let mut facts = vec![
            ("requests/s", Fact::Number((all * 1e9 / wall_ns.max(1) as f64).round())),
            ("threads a request", Fact::Number(threads as f64 / visited)),
        ];
        if let Some((after, before)) = after.switches.zip(before.switches) {
            facts.push(("switches a request", Fact::Number((after - before) as f64 / all)));
        }
        facts.push(("CPU µs a request", Fact::Number(cpu_ns as f64 / all / 1e3)));
        Ok((CellSample { wall_ns, cpu_ns, facts, ..CellSample::default() }, idle))
    })
}

/// Returns how often per second threads of this process wake up while this one waits; `None` if the system does not count it.
fn wakes() -> Option<f64> {
    let (_nobody_speaks, silence) = mpsc::channel::<()>();
    let before = process_use().switches?;
    let _time_is_over = silence.recv_timeout(IDLE_TIME);
    // This thread itself has slept once.
    let switches = (process_use().switches? - before).saturating_sub(1);
    Some(switches as f64 / IDLE_TIME.as_secs_f64())
}

/// A request on a new connection, as `ab` makes it.
fn visit(address: SocketAddr, expected: usize) -> Result<(), LabError> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut buffer = [0; 4096];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 if bytes == expected => return Ok(()),
            0 => {
                let text = format!("{bytes} bytes came in place of {expected}");
                return Err(LabError::unexpected(text));
            }
            some => bytes += some,
        }
    }
}

fn answer() -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.0 200 OK\r\nServer: lab\r\nConnection: close\r\nContent-Type: image/png\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    )
    .into_bytes();
    answer.resize(answer.len() + BODY_BYTES, 0x5a);
    answer
}

/// The server's address, and a waker if the server's wait needs one.
struct OpenedServer {
    address: SocketAddr,
    waker: Option<Waker>,
}

/// Runs the loop on this thread until `stop`. Returns the number of threads that it started.
fn open(
    door: AcceptServer,
    answer: Arc<[u8]>,
    stop: &AtomicBool,
    tell: Sender<OpenedServer>,
) -> Result<u64, LabError> {
    match door {
        AcceptServer::Specimen(how) => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let _lives = tell.send(OpenedServer { address: listener.local_addr()?, waker: None });
            drop(tell);
            Ok(accept::serve(how, &listener, stop, &answer)?)
        }
        AcceptServer::Encke(backend) => {
            let mut result = Ok(());
            let pool = Pool::start(1, 1)?;
            run_on(backend, pool.clone(), Responder { answer, stop, tell, result: &mut result });
            pool.close();
            result.map(|()| 0)
        }
    }
}

/// Encke's way: one thread, where only the reactor waits.
struct Responder<'a> {
    answer: Arc<[u8]>,
    stop: &'a AtomicBool,
    tell: Sender<OpenedServer>,
    result: &'a mut Result<(), LabError>,
}

impl ReactorTask for Responder<'_> {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        *self.result = reactor
            .map_err(LabError::from)
            .and_then(|reactor| respond(reactor, &self.answer, self.stop, self.tell));
    }
}

fn respond<R: Reactor>(
    mut reactor: R,
    answer: &Arc<[u8]>,
    stop: &AtomicBool,
    tell: Sender<OpenedServer>,
) -> Result<(), LabError> {
    let any = Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listener = Listener::bind(&any, ListenOptions { backlog: 4096, shared: false, mode: None })?;
    let Address::Inet(address) = *listener.address() else {
        return Err(LabError::unexpected("a TCP listener has another address"));
    };
    let door = reactor.adopt(ReactorSource::Listener(listener))?;
    reactor.submit(door, Op::Accept);
    let _lives = tell.send(OpenedServer { address, waker: Some(reactor.waker()) });
    drop(tell);
    let mut head = Head::new();
    // By connection index: the bytes received of the request.
    let mut requests: Vec<Vec<u8>> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        reactor.wait(None)?;
        while let Some(event) = reactor.next() {
            let then: Option<(Token, Op)> = match event {
                Event::Accepted { token, .. } => {
                    let place = token.index as usize;
                    requests.resize_with(requests.len().max(place + 1), Vec::new);
                    requests[place].clear();
                    Some((token, Op::Recv))
                }
                Event::Received { token, lease } => {
                    let request = &mut requests[token.index as usize];
                    request.extend_from_slice(lease);
                    head.reset();
                    match head.feed(request, &HeadLimits::default()) {
                        Progress::Done { .. } => {
                            let segments = vec![Segment::Shared(Arc::clone(answer), 0)];
                            Some((token, Op::Send(Send { segments, more: false })))
                        }
                        Progress::Partial => None,
                        _ => Some((token, Op::Abort)),
                    }
                }
                Event::Sent { token, .. } | Event::PeerClosed { token, .. } => Some((token, Op::Close)),
                Event::Failed { token, .. } if token != door => Some((token, Op::Abort)),
                Event::Failed { fault, .. } => return Err(fault.into()),
                _ => None,
            };
            if let Some((token, op)) = then {
                reactor.submit(token, op);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stopwatch;

    /// The slow loop is recognizable on any machine: no sleep is shorter than requested.
    #[test]
    fn who_always_sleeps_answers_no_more_than_a_request_each_10_ms() {
        for clients in [1, 2] {
            let mut result = Ok(CellSample::default());
            let door = AcceptServer::Specimen(AcceptHow::SleepAlways);
            let all =
                stopwatch::time(|| result = besieged(door, clients, 3, Some(0.0)).map(|(sample, _)| sample));
            result.expect("loopback works");
            // Each client has made one request before the three, and no sleep precedes the very first one.
            let quanta = 4 * clients as u64 - 1;
            assert!(all.wall_ns >= quanta * 10_000_000, "{clients} clients: {} ns", all.wall_ns);
        }
    }

    #[test]
    fn every_door_answers_everybody_whole_and_only_the_specimens_start_threads() {
        for (door, ..) in rows_here(&ROWS, AcceptServer::is_here) {
            let (sample, _) = besieged(door, 3, 5, None).expect("this system has them all");
            let threads = sample.facts.iter().find(|(name, _)| *name == "threads a request");
            let each = if matches!(door, AcceptServer::Specimen(_)) { 1.0 } else { 0.0 };
            assert_eq!(threads, Some(&("threads a request", Fact::Number(each))), "{door:?}");
        }
    }
}
