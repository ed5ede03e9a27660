//! Whole servers in the simulator: real workers, handlers and connections in a world of clients and faults, one seed per run.
//!
//! Each client sends a script of pipelined requests in pieces, and reads responses at its own pace. The received bytes must be
//! a prefix of the responses that its script requires, in order and byte for byte except for dates. They must be all of them,
//! unless the world or the client broke the connection. At the end every slot, exchange, timer and buffer must be released, and
//! a drain must end every worker.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_io::sim::{FaultCounts, SimClient, SimConditions, SimReadState, World};
use encke_io::testing::Seeds;
use encke_io::{Reactor, SimReactor};

use crate::census::Census;
use crate::command::{CommandQueue, WorkerCommand};
use crate::conn::Conn;
use crate::core::RETIRE_NS;
use crate::exchange::{Exchange, ExchangeKey, WakeStream};
use crate::handler::{Handler, HandlerContext, JobId, Mount, Outcome, Piece};
use crate::inbox::Inbox;
use crate::listener::ListenerKind;
use crate::log::Access;
use crate::metrics::WorkerMetrics;
use crate::plan::{MountPoint, WorkerPlan};
use crate::policy::ConnLimits;
use crate::reply::{Body, Fields, Prepared, Pull, Pulled, Reply};
use crate::request::Request;
use crate::resident::WorkerSetup;
use crate::testing::traces::{Observed, Suite};
use crate::websocket::{Answers, Socket, SocketMessage, Upgrade};
use crate::worker::{Turn, Worker, WorkerShared};

/// The worlds of a complete run.
const SEEDS: u64 = 200;
const CLIENTS: usize = 24;
/// Steps after which an unfinished run counts as stuck.
const STEPS_MAX: usize = 2_000_000;

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

// ---- handlers ----

/// Responds in every possible way: at once, later from a job, by a stream, after reading a body, or not at all.
struct Everything {
    context: HandlerContext,
    ready: Arc<Prepared>,
    jobs: HashMap<JobId, (Exchange, usize)>,
    bodies: HashMap<ExchangeKey, (Exchange, Vec<u8>)>,
    sleepers: Vec<WakeStream>,
}

#[derive(Clone)]
pub(crate) struct Place;

impl Mount for Place {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let ready = Arc::new(Prepared::memory(200, Fields::new(), b"prepared"));
        Box::new(Everything {
            context,
            ready,
            jobs: HashMap::new(),
            bodies: HashMap::new(),
            sleepers: Vec::new(),
        })
    }
}

/// The number at the end of a path.
fn number(path: &[u8]) -> usize {
    path.iter().filter(|byte| byte.is_ascii_digit()).fold(0, |sum, byte| sum * 10 + usize::from(byte - b'0'))
}

/// `count` bytes, each of which shows its position (modulo 26).
pub(crate) fn filler(count: usize) -> Vec<u8> {
    (0..count).map(|place| b'a' + (place % 26) as u8).collect()
}

impl Handler for Everything {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let path = request.path();
        // Each call wakes the sleeping streams, so wakes come at unexpected moments.
        for sleeper in self.sleepers.drain(..) {
            sleeper.wake();
        }
        match path.get(1) {
            Some(b'p') => Outcome::Now(Reply::prepared(Arc::clone(&self.ready))),
            Some(b'b') => Outcome::Now(Reply::new(200).body(Body::Bytes(filler(number(path))))),
            Some(b'l') => {
                let count = number(path);
                let job = self.context.offload(move || filler(count));
                self.jobs.insert(job, (exchange, count));
                Outcome::Later
            }
            Some(b's') => {
                let wake = exchange.wake_handle();
                self.sleepers.push(wake.clone());
                Outcome::Now(Reply::new(200).body(Body::Stream(Box::new(Letters {
                    left: number(path),
                    at: 0,
                    naps: 2,
                    wake,
                }))))
            }
            Some(b'e') => {
                exchange.read_more();
                self.bodies.insert(exchange.key(), (exchange, Vec::new()));
                Outcome::Later
            }
            Some(b'd') => Outcome::Later,
            _ => Outcome::Now(Reply::error(404)),
        }
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some((exchange, mut bytes)) = self.bodies.remove(&key) else { return };
        match piece {
            Piece::Data(data) => {
                bytes.extend_from_slice(data);
                exchange.read_more();
                self.bodies.insert(key, (exchange, bytes));
            }
            Piece::End => exchange.answer(Reply::new(200).body(Body::Bytes(bytes))),
            Piece::Broken => {}
        }
    }

    fn offloaded(&mut self, job: JobId, done: Option<encke_io::Done>) {
        let (exchange, count) = self.jobs.remove(&job).expect("a job of this handler");
        let bytes = done.and_then(|done| done.downcast::<Vec<u8>>().ok()).expect("the job ran");
        assert_eq!(bytes.len(), count);
        exchange.answer(Reply::new(200).body(Body::Bytes(*bytes)));
    }
}

/// A stream that is sometimes pending for a while.
struct Letters {
    left: usize,
    at: usize,
    naps: u32,
    wake: WakeStream,
}

impl Pull for Letters {
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled {
        if self.naps > 0 && self.at % 3 == 1 {
            self.naps -= 1;
            self.at += 3;
            self.left -= 3.min(self.left);
            out.extend_from_slice(b"zzz");
            // Wakes itself: otherwise nothing might ever wake the pending stream.
            self.wake.wake();
            return Pulled::Pending;
        }
        let count = max.min(self.left).min(1 + self.at % 700);
        out.extend(std::iter::repeat_n(b's', count));
        self.left -= count;
        self.at += count;
        if self.left == 0 { Pulled::End } else { Pulled::More }
    }
}

// ---- clients ----

/// A request and its expected response. `None`: any body.
struct Asked {
    wire: Vec<u8>,
    status: u16,
    body: Option<Vec<u8>>,
    streamed: bool,
}

fn ask(world: &World, last: bool) -> Asked {
    let size = [0, 1, 13, 700, 5_000, 40_000][world.chance(6) as usize];
    let close = if last { "Connection: close\r\n" } else { "" };
    let get = |path: String| format!("GET {path} HTTP/1.1\r\nHost: sim\r\n{close}\r\n").into_bytes();
    let ok = |wire, body| Asked { wire, status: 200, body: Some(body), streamed: false };
    match world.chance(8) {
        0 | 1 => ok(get("/p".into()), b"prepared".to_vec()),
        2 => ok(get(format!("/b{size}")), filler(size)),
        3 => ok(get(format!("/l{size}")), filler(size)),
        4 => Asked { wire: get(format!("/s{size}")), status: 200, body: None, streamed: true },
        5 => Asked { wire: get("/nothing".into()), status: 404, body: None, streamed: false },
        6 => Asked { wire: get("/d".into()), status: 500, body: None, streamed: false },
        _ => {
            let body = filler(size);
            let mut wire = format!("POST /e HTTP/1.1\r\nHost: sim\r\n{close}").into_bytes();
            if world.chance(2) == 0 {
                wire.extend_from_slice(format!("Content-Length: {size}\r\n\r\n").as_bytes());
                wire.extend_from_slice(&body);
            } else {
                wire.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in body.chunks(1 + world.chance(900) as usize) {
                    wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    wire.extend_from_slice(chunk);
                    wire.extend_from_slice(b"\r\n");
                }
                wire.extend_from_slice(b"0\r\n\r\n");
            }
            ok(wire, body)
        }
    }
}

struct Visitor {
    number: usize,
    client: Option<SimClient>,
    script: Vec<Asked>,
    wire: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// The client or the world broke the connection: an incomplete result is acceptable.
    broken: bool,
    end: SimReadState,
}

impl Visitor {
    fn new(world: &World, number: usize) -> Self {
        let count = 1 + world.chance(6) as usize;
        let script: Vec<Asked> = (0..count).map(|at| ask(world, at + 1 == count)).collect();
        let wire = script.iter().flat_map(|asked| asked.wire.clone()).collect();
        let client = Some(world.connect(address()));
        let end = SimReadState::Open;
        Self { number, client, script, wire, sent: 0, received: Vec::new(), broken: false, end }
    }

    /// Sends a piece and receives a piece. Returns true while there is something to wait for.
    fn visit(&mut self, world: &World, observed: &mut Observed) -> bool {
        let Some(client) = &mut self.client else { return false };
        let wish = (1 + world.chance(4_000) as usize).min(self.wire.len() - self.sent);
        self.sent += client.send(&self.wire[self.sent..self.sent + wish]);
        let bytes = client.take_at_most(1 + world.chance(30_000) as usize);
        observed.received(self.number, world.now(), &bytes);
        self.received.extend(bytes);
        self.broken |= client.is_shut();
        self.end = client.end();
        if self.end != SimReadState::Open {
            observed.ended(self.number, world.now(), self.end);
            self.client = None;
            return false;
        }
        if world.chance(400) == 0 {
            self.broken = true;
            self.client.take().expect("looked at above").reset();
            return false;
        }
        true
    }

    /// Checks the received bytes against the script.
    fn judge(&self, seed: u64, fouls: bool) {
        let mut rest = &self.received[..];
        let mut answered = 0;
        for (at, asked) in self.script.iter().enumerate() {
            let Some((status, body, used)) = answer(rest) else { break };
            rest = &rest[used..];
            answered += 1;
            // A client that ended its side early may receive one of these errors.
            if self.broken && matches!(status, 400 | 408) {
                continue;
            }
            assert_eq!(status, asked.status, "seed {seed}: answer {at}");
            if let Some(expected) = &asked.body {
                assert!(body == *expected, "seed {seed}: the body of answer {at} is not what was asked for");
            }
            if asked.streamed {
                assert!(body.iter().all(|byte| b"sz".contains(byte)), "seed {seed}: answer {at}");
            }
        }
        if !self.broken && !fouls {
            assert_eq!(self.end, SimReadState::Finished, "seed {seed}: an honest client was cut off");
        }
        if self.end == SimReadState::Finished && !self.broken {
            assert_eq!(answered, self.script.len(), "seed {seed}: an answer is missing");
            assert!(rest.is_empty(), "seed {seed}: there is more than was asked for");
        }
    }
}

/// Parses the first complete response in `bytes`: status, body, bytes used.
fn answer(bytes: &[u8]) -> Option<(u16, Vec<u8>, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).expect("heads are ASCII");
    let status = text.get(9..12)?.parse().expect("a status");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    if let Some(length) = value("Content-Length: ") {
        let length: usize = length.parse().expect("a length");
        let body = bytes.get(head..head + length)?;
        return Some((status, body.to_vec(), head + length));
    }
    assert_eq!(value("Transfer-Encoding: "), Some("chunked"), "{text}");
    let mut body = Vec::new();
    let mut at = head;
    loop {
        let line = bytes.get(at..)?.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let data = at + line + 2;
        body.extend_from_slice(bytes.get(data..data + size)?);
        at = data + size + 2;
        bytes.get(..at)?;
        if size == 0 {
            return Some((status, body, at));
        }
    }
}

// ---- the run ----

struct Run {
    trace: u64,
    faults: FaultCounts,
    answers: usize,
    parked: u64,
    observed: Observed,
}

/// Returns the observations of a seed's clients.
pub(crate) fn observe(seed: u64) -> Observed {
    run(seed).observed
}

fn plan() -> WorkerPlan {
    WorkerPlan {
        guards: Vec::new(),
        policy: ConnLimits { connections: 1_000, ..ConnLimits::default() },
        mounts: vec![MountPoint { prefix: "/".into(), mount: Arc::new(Place), admin: false }],
    }
}

/// Starts a worker with a listener.
fn start(
    world: &World,
    plan: &WorkerPlan,
    census: &Arc<Census>,
    (number, workers): (usize, usize),
    metrics: Arc<WorkerMetrics>,
) -> (Arc<CommandQueue>, Worker<SimReactor>) {
    let reactor = world.reactor();
    let commands = CommandQueue::new(Inbox::new(reactor.waker()));
    let shared = WorkerShared {
        number,
        workers,
        metrics,
        census: Arc::clone(census),
        http2: Arc::default(),
        log: Access::default(),
    };
    let mut worker = Worker::new(reactor, Arc::clone(&commands), plan, shared);
    let kind = ListenerKind::default();
    worker.listen(world.listener(address()).expect("a descriptor"), kind).expect("room");
    (commands, worker)
}

fn run(seed: u64) -> Run {
    let fouls = !seed.is_multiple_of(3);
    let world = World::with(seed, if fouls { SimConditions::harsh() } else { SimConditions::default() });
    let count = 1 + (seed % 4) as usize;
    let plan = plan();
    let census = Arc::new(Census::default());
    let (mut commands, mut metrics) = (Vec::new(), Vec::new());
    let mut workers: Vec<Option<Worker<SimReactor>>> = Vec::new();
    for number in 0..count {
        let counts = Arc::<WorkerMetrics>::default();
        metrics.push(Arc::clone(&counts));
        let (queue, worker) = start(&world, &plan, &census, (number, count), counts);
        commands.push(queue);
        workers.push(Some(worker));
    }

    let mut visitors = Vec::new();
    let mut observed = Observed::default();
    let mut steps = 0;
    let mut parked = 0;
    let mut stopping = false;
    loop {
        steps += 1;
        assert!(steps < STEPS_MAX, "seed {seed}: stuck");
        if visitors.len() < CLIENTS && world.chance(3) == 0 {
            visitors.push(Visitor::new(&world, visitors.len()));
        }
        let mut waiting = false;
        for visitor in &mut visitors {
            waiting |= visitor.visit(&world, &mut observed);
        }
        if visitors.len() == CLIENTS && !waiting && !stopping {
            stopping = true;
            for queue in &commands {
                let time = Duration::from_secs(5);
                queue.send(WorkerCommand::Drain { delay: Duration::ZERO, time });
            }
        }
        let number = match world.step() {
            Some(number) => number,
            None if stopping => break,
            // Nothing happens until a client connects or reads.
            None => continue,
        };
        let Some(worker) = &mut workers[number] else { continue };
        if worker.turn().expect("a simulated wait never fails") == Turn::Over {
            worker.end();
            worker.core.assert_empty(seed);
            workers[number] = None;
            if workers.iter().all(Option::is_none) {
                break;
            }
            continue;
        }
        // Idle connections are replaced by their records: no state of them may be anywhere else.
        if world.chance(8) == 0 {
            for conn in &mut worker.core.conns.sockets {
                if let Some(record) = conn.park() {
                    let deadline_ns = conn.deadline_ns;
                    *conn = Conn::unpark(&record, conn.generation).expect("our own version");
                    conn.deadline_ns = deadline_ns;
                    parked += 1;
                }
            }
        }
    }
    assert!(workers.iter().all(Option::is_none), "seed {seed}: a worker did not end");
    assert_eq!(census.open(), 0, "seed {seed}");
    for visitor in &visitors {
        visitor.judge(seed, fouls);
    }
    metrics.iter().for_each(|worker| observed.closed(worker));
    let answers =
        visitors.iter().map(|visitor| visitor.received.windows(9).filter(|w| w == b"HTTP/1.1 ").count());
    Run { trace: world.trace(), faults: world.faults(), answers: answers.sum(), parked, observed }
}

#[test]
fn every_seed_gives_each_client_exactly_what_it_asked_for() {
    let mut sum = FaultCounts::default();
    let (mut answers, mut parked) = (0, 0);
    let seeds = Seeds::of(SEEDS);
    for seed in seeds.range() {
        let run = run(seed);
        answers += run.answers;
        parked += run.parked;
        sum.resets += run.faults.resets;
        sum.half_closes += run.faults.half_closes;
        sum.short_sends += run.faults.short_sends;
        sum.accept_failures += run.faults.accept_failures;
        sum.delayed_wakes += run.faults.delayed_wakes;
        sum.slow_readers += run.faults.slow_readers;
    }
    println!("{answers} answers, {parked} times parked and back, faults {sum:?}");
    if seeds.is_single() {
        return;
    }
    assert!(
        answers > 25 * seeds.count() as usize && parked > 5 * seeds.count(),
        "{answers} answers, {parked} parked: too quiet to mean anything"
    );
    for (kind, count) in [
        ("resets", sum.resets),
        ("half-closes", sum.half_closes),
        ("short sends", sum.short_sends),
        ("accept failures", sum.accept_failures),
        ("delayed wakes", sum.delayed_wakes),
        ("slow readers", sum.slow_readers),
    ] {
        assert!(count > 0, "no {kind} in {seeds:?}");
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed).trace, run(seed).trace, "seed {seed}");
    }
    assert_ne!(run(1).trace, run(5).trace);
}

/// Runs a worker until it ends. Returns the simulated time that passed.
fn run_out(world: &World, mut worker: Worker<SimReactor>) -> Duration {
    let begun_ns = world.now().mono_ns;
    for _ in 0..STEPS_MAX {
        world.step().expect("the worker has something to do until it is over");
        if worker.turn().expect("a simulated wait never fails") == Turn::Over {
            return Duration::from_nanos(world.now().mono_ns - begun_ns);
        }
    }
    panic!("stuck")
}

/// A drain of a worker without connections takes only the delay.
#[test]
fn a_drain_without_connections_takes_no_time() {
    const WAKE: Duration = Duration::from_millis(1);
    for delay in [Duration::ZERO, Duration::from_secs(5)] {
        let world = World::new(1);
        let (commands, worker) = start(&world, &plan(), &Arc::default(), (0, 1), Arc::default());
        let time = Duration::from_secs(60);
        commands.send(WorkerCommand::Drain { delay, time });
        let took = run_out(&world, worker);
        assert!((delay..=delay + WAKE).contains(&took), "{delay:?} became {took:?}");
    }
}

/// Connections at rest stay open for the same time, with and without a request before; a request in that time is the last one.
#[test]
fn connections_at_rest_may_send_a_last_request_in_a_drain() {
    const GET: &[u8] = b"GET /p HTTP/1.1\r\nHost: sim\r\n\r\n";
    let at_rest = Duration::from_nanos(RETIRE_NS);
    let world = World::new(1);
    let (commands, worker) = start(&world, &plan(), &Arc::default(), (0, 1), Arc::default());
    let mut worker = Some(worker);
    // Returns whether anything was left to do.
    let mut step = || {
        let stepped = world.step().is_some();
        let place = worker.as_mut().filter(|_| stepped);
        if place.is_some_and(|worker| worker.turn().expect("a simulated wait never fails") == Turn::Over) {
            worker = None;
        }
        stepped
    };
    let [mut fresh, mut idle, mut last] = [(); 3].map(|()| world.connect(address()));
    for client in [&mut idle, &mut last] {
        client.send(GET);
        let mut response = Vec::new();
        while !response.ends_with(b"prepared") {
            assert!(step());
            response.extend(client.take());
        }
    }
    let begun_ns = world.now().mono_ns;
    commands.send(WorkerCommand::Drain { delay: Duration::ZERO, time: Duration::from_secs(8) });
    let (mut response, mut ends, mut is_asked) = (Vec::new(), [None; 2], false);
    loop {
        let is_over = !step();
        let passed = Duration::from_nanos(world.now().mono_ns - begun_ns);
        // The listeners have closed.
        if passed >= at_rest && !std::mem::replace(&mut is_asked, true) {
            last.send(GET);
        }
        response.extend(last.take());
        for (end, client) in ends.iter_mut().zip([&fresh, &idle]) {
            if client.is_closed() {
                end.get_or_insert(passed);
            }
        }
        if is_over {
            break;
        }
    }
    let text = String::from_utf8_lossy(&response);
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("\r\nConnection: close\r\n"), "{text}");
    for end in ends {
        assert!(end.is_some_and(|end| (at_rest * 2..at_rest * 3).contains(&end)), "{ends:?}");
    }
    assert!(fresh.take().is_empty() && idle.take().is_empty());
}

/// Upgrades every request to a WebSocket.
#[derive(Clone)]
struct Upgrades;

impl Mount for Upgrades {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Self)
    }
}

impl Handler for Upgrades {
    fn call(&mut self, request: &Request<'_>, _: Exchange) -> Outcome {
        match Upgrade::accept(request, 1_000, Silent) {
            Ok(upgrade) => Outcome::Takeover(upgrade.into()),
            Err(reply) => Outcome::Now(reply),
        }
    }
}

/// A WebSocket that never sends.
struct Silent;

impl Socket for Silent {
    fn message(&mut self, _: SocketMessage<'_>, _: &mut Answers<'_>) {}
}

/// Drains a server of two workers with `count` WebSockets. Returns the simulated time until the last one has ended, and the number
/// of sockets that ended in each tenth of a second.
fn drain_sockets(count: usize) -> (Duration, Vec<usize>) {
    let world = World::new(1);
    let plan = WorkerPlan {
        policy: ConnLimits { connections: 10_000, ..ConnLimits::default() },
        mounts: vec![MountPoint { prefix: "/".into(), mount: Arc::new(Upgrades), admin: false }],
        guards: Vec::new(),
    };
    let census = Arc::default();
    let (queues, workers): (Vec<_>, Vec<_>) =
        (0..2).map(|number| start(&world, &plan, &census, (number, 2), Arc::default())).unzip();
    let mut workers: Vec<_> = workers.into_iter().map(Some).collect();
    let links: Arc<[Arc<Inbox>]> = queues.iter().map(|queue| Arc::clone(queue.link())).collect();
    let send = |command: &dyn Fn() -> WorkerCommand| queues.iter().for_each(|queue| queue.send(command()));
    send(&|| WorkerCommand::Meet(Arc::clone(&links)));
    let mut clients: Vec<_> = (0..count).map(|_| world.connect(address())).collect();
    for client in &mut clients {
        client.send(
            b"GET / HTTP/1.1\r\nHost: sim\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
    }
    let mut open = vec![Vec::new(); count];
    let step = |workers: &mut Vec<Option<Worker<SimReactor>>>| {
        let number = world.step().expect("something is in transit, or a worker has something to do");
        let Some(worker) = &mut workers[number] else { return };
        if worker.turn().expect("a simulated wait never fails") == Turn::Over {
            workers[number] = None;
        }
    };
    while !open.iter().all(|head| head.ends_with(b"\r\n\r\n")) {
        step(&mut workers);
        open.iter_mut().zip(&mut clients).for_each(|(head, client)| head.extend(client.take()));
    }
    assert!(open.iter().all(|head| head.starts_with(b"HTTP/1.1 101")), "{:?}", open.first());
    let begun_ns = world.now().mono_ns;
    send(&|| WorkerCommand::Drain { delay: Duration::ZERO, time: Duration::from_secs(8) });
    let mut ends = Vec::new();
    let mut clients: Vec<_> = clients.into_iter().map(Some).collect();
    let (mut took_ns, mut closes) = (0, 0);
    while workers.iter().any(Option::is_some) {
        step(&mut workers);
        let since_ns = world.now().mono_ns - begun_ns;
        let tenth = (since_ns / 100_000_000) as usize;
        for place in &mut clients {
            let Some(client) = place else { continue };
            let bytes = client.take();
            closes += usize::from(bytes.first() == Some(&0x88));
            if client.end() != SimReadState::Open {
                *place = None;
                took_ns = since_ns;
                ends.resize(ends.len().max(tenth + 1), 0);
                ends[tenth] += 1;
            }
        }
    }
    // Bytes in transit at the end of the workers arrive.
    while world.step().is_some() {}
    for client in clients.iter_mut().flatten() {
        closes += usize::from(client.take().first() == Some(&0x88));
    }
    assert_eq!(closes, count, "each client receives a Close");
    (Duration::from_nanos(took_ns), ends)
}

#[test]
fn few_sockets_end_at_once_and_more_end_at_the_drain_rate() {
    let (took, ends) = drain_sockets(5);
    assert!(took < Duration::from_millis(50), "5 sockets took {took:?}: {ends:?}");
    let (took, ends) = drain_sockets(1_000);
    assert!(took < Duration::from_secs(1), "1,000 sockets took {took:?}: {ends:?}");
    // 2,000 a second are 200 in a tenth; the workers' schedules are estimates.
    assert!(ends.len() >= 4 && ends.iter().all(|&ends| ends <= 300), "{ends:?}");
}

const TRACES: Suite = Suite { name: "http", seeds: 1..=100, group: 25, run: observe };

mod traces {
    use super::TRACES;
    use std::path::Path;

    #[test]
    fn simulated_clients_observe_what_is_recorded() {
        TRACES.compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guards/golden/traces"));
    }

    #[test]
    fn a_seed_always_gives_the_same_digest() {
        TRACES.repeat();
    }
}
