//! An application in the simulator that responds correctly, or breaks a rule in one of many ways.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use encke_io::sim::World;
use encke_io::{Event, Op, Reactor as _, ReactorSource, Segment, Send, SimReactor, Token};

/// The requests and responses of the applications, by the number of a request.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Connections on which the head of a request has begun to arrive.
    pub(crate) seen: BTreeMap<usize, u32>,
    /// Complete responses: status and content.
    pub(crate) responses: BTreeMap<usize, Vec<(u16, Vec<u8>)>>,
    /// Requests whose response has begun and may have broken off.
    pub(crate) broken: BTreeSet<usize>,
    /// Requests that were answered before their body was complete.
    pub(crate) early: BTreeSet<usize>,
    /// Times that an application was down.
    pub(crate) deaths: u64,
}

pub(crate) struct SimApp {
    address: SocketAddr,
    reactor: SimReactor,
    /// `None` while the application is down.
    listener: Option<Token>,
    /// The time at which a dead application returns.
    returns_ns: Option<u64>,
    /// In the order of arrival.
    conns: Vec<AppConn>,
}

struct AppConn {
    token: Token,
    input: Vec<u8>,
    /// The number of the request whose head has begun to arrive.
    request: Option<usize>,
    /// The number of the last request, whose response may still be in transit.
    last: Option<usize>,
    is_answered: bool,
    steps: VecDeque<Step>,
    /// The time of the first step; `None` while a send is in flight.
    due_ns: Option<u64>,
    is_socket: bool,
}

/// A step of a response.
enum Step {
    After(u64),
    Send(Vec<u8>),
    Close,
    Abort,
    /// The connection carries another request.
    Next,
}

/// A parsed request.
struct Arrived {
    number: usize,
    upgrades: bool,
    /// Bytes up to the end of the body; `None` while bytes are missing.
    end: Option<usize>,
}

const MS: u64 = 1_000_000;
/// The path of the gateway's checks.
pub(crate) const CHECK: &str = "/check";

/// `count` bytes, each of which shows its position (modulo 26).
pub(crate) fn filler(count: usize) -> Vec<u8> {
    (0..count).map(|place| b'a' + (place % 26) as u8).collect()
}

impl SimApp {
    pub(crate) fn start(world: &World, address: SocketAddr) -> Self {
        let reactor = world.reactor();
        let mut app = Self { address, reactor, listener: None, returns_ns: None, conns: Vec::new() };
        app.listen(world);
        app
    }

    pub(crate) fn number(&self) -> usize {
        self.reactor.number()
    }

    fn listen(&mut self, world: &World) {
        let listener = world.listener(self.address).expect("a descriptor");
        let token = self.reactor.adopt(ReactorSource::Listener(listener)).expect("room");
        self.reactor.submit(token, Op::Accept);
        self.listener = Some(token);
    }

    /// Runs a turn of the application's reactor.
    pub(crate) fn turn(&mut self, world: &World, ledger: &mut Ledger) {
        let due_ns = self.conns.iter().filter_map(|conn| conn.due_ns).chain(self.returns_ns).min();
        let now_ns = self.reactor.wait(due_ns).expect("a simulated wait never fails").mono_ns;
        self.events(now_ns);
        for place in 0..self.conns.len() {
            self.read(place, world, ledger, now_ns);
        }
        if self.conns.iter().any(|conn| conn.due_ns == Some(0)) {
            self.die(world, ledger, now_ns);
        }
        for place in 0..self.conns.len() {
            self.act(place, now_ns);
        }
        if self.returns_ns.is_some_and(|returns_ns| returns_ns <= now_ns) {
            self.returns_ns = None;
            self.listen(world);
        }
    }

    fn events(&mut self, now_ns: u64) {
        let mut arm = Vec::new();
        while let Some(event) = self.reactor.next() {
            let find = |token: Token| self.conns.iter().position(|conn| conn.token == token);
            match event {
                Event::Accepted { token, .. } => {
                    arm.push((token, Op::Recv));
                    self.conns.push(AppConn::new(token));
                }
                Event::Received { token, lease } => {
                    if let Some(place) = find(token) {
                        self.conns[place].input.extend_from_slice(lease);
                    }
                }
                Event::Sent { token, .. } => {
                    if let Some(place) = find(token) {
                        self.conns[place].due_ns = Some(now_ns);
                    }
                }
                Event::PeerClosed { token, .. } => {
                    // The gateway needs no response, or the client of a WebSocket has ended its side.
                    if let Some(place) = find(token) {
                        self.conns[place].steps = [Step::Close].into();
                        self.conns[place].due_ns = Some(now_ns);
                    }
                }
                // A listener that was short of descriptors for a moment.
                Event::Failed { token, .. } if Some(token) == self.listener => arm.push((token, Op::Accept)),
                Event::Failed { token, .. } => {
                    if let Some(place) = find(token) {
                        self.conns[place].steps = [Step::Abort].into();
                        self.conns[place].due_ns = Some(now_ns);
                    }
                }
                Event::Closed { token, .. } => self.conns.retain(|conn| conn.token != token),
                _ => {}
            }
        }
        for (token, op) in arm {
            self.reactor.submit(token, op);
        }
    }

    /// Reads the request of a connection, and decides on the response.
    fn read(&mut self, place: usize, world: &World, ledger: &mut Ledger, now_ns: u64) {
        let conn = &mut self.conns[place];
        if conn.input.starts_with(format!("GET {CHECK} ").as_bytes()) {
            if conn.input.ends_with(b"\r\n\r\n") && !conn.is_answered {
                let status = ["200 OK", "200 OK", "302 Found", "500 No"][world.chance(4) as usize];
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
                let after = Step::After(world.chance(100) * MS);
                conn.respond(now_ns, [after, Step::Send(head.into_bytes()), Step::Close]);
            }
            return;
        }
        if conn.is_socket && !conn.input.is_empty() {
            conn.steps.push_back(Step::Send(std::mem::take(&mut conn.input)));
            conn.due_ns = conn.due_ns.or(Some(now_ns));
            return;
        }
        let Some(arrived) = arrived(&conn.input) else { return };
        if conn.request.is_none() {
            conn.request = Some(arrived.number);
            conn.last = conn.request;
            *ledger.seen.entry(arrived.number).or_default() += 1;
            let case = if arrived.end.is_none() { world.chance(12) } else { 12 };
            if case < 2 {
                // A proxy may repeat the request, unless it is a POST.
                return conn.respond(now_ns, [Step::After(world.chance(20) * MS), Step::Abort]);
            }
            if case == 2 {
                ledger.early.insert(arrived.number);
                let body = format!("{}:early", arrived.number).into_bytes();
                let head =
                    format!("HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                ledger.responses.entry(arrived.number).or_default().push((413, body.clone()));
                conn.respond(now_ns, [Step::Send([head.into_bytes(), body].concat()), Step::Close]);
            }
        }
        let Some(end) = arrived.end.filter(|_| !conn.is_answered) else { return };
        conn.input.drain(..end);
        if arrived.upgrades && world.chance(4) > 0 {
            conn.is_socket = true;
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
            return conn.respond(now_ns, [Step::Send(head.as_bytes().to_vec())]);
        }
        let steps = response(arrived.number, world, ledger);
        match steps {
            Some(steps) => conn.respond(now_ns, steps),
            // The whole application ends.
            None => conn.due_ns = Some(0),
        }
    }

    /// Ends all connections, and refuses further ones for some time.
    fn die(&mut self, world: &World, ledger: &mut Ledger, now_ns: u64) {
        ledger.deaths += 1;
        if let Some(listener) = self.listener.take() {
            self.reactor.submit(listener, Op::Close);
            self.returns_ns = Some(now_ns + (1 + world.chance(500)) * MS);
        }
        for conn in &mut self.conns {
            ledger.broken.extend(conn.last);
            conn.steps = [Step::Abort].into();
            conn.due_ns = Some(now_ns);
        }
    }

    /// Executes the steps that are due.
    fn act(&mut self, place: usize, now_ns: u64) {
        let conn = &mut self.conns[place];
        while conn.due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            match conn.steps.pop_front() {
                None => conn.due_ns = None,
                Some(Step::After(ns)) => conn.due_ns = Some(now_ns + ns),
                Some(Step::Send(bytes)) => {
                    conn.due_ns = None;
                    let segments = vec![Segment::Bytes(bytes)];
                    self.reactor.submit(conn.token, Op::Send(Send { segments, more: false }));
                }
                Some(Step::Close) => {
                    conn.due_ns = None;
                    self.reactor.submit(conn.token, Op::Close);
                }
                Some(Step::Abort) => {
                    conn.due_ns = None;
                    self.reactor.submit(conn.token, Op::Abort);
                }
                Some(Step::Next) => {
                    conn.request = None;
                    conn.is_answered = false;
                    conn.due_ns = None;
                }
            }
        }
    }
}

impl AppConn {
    fn new(token: Token) -> Self {
        Self {
            token,
            input: Vec::new(),
            request: None,
            last: None,
            is_answered: false,
            steps: VecDeque::new(),
            due_ns: None,
            is_socket: false,
        }
    }

    fn respond(&mut self, now_ns: u64, steps: impl IntoIterator<Item = Step>) {
        self.is_answered = true;
        self.steps = steps.into_iter().collect();
        self.due_ns = Some(now_ns);
    }
}

/// Parses the request at the start of `input`, once its head has arrived.
fn arrived(input: &[u8]) -> Option<Arrived> {
    let line = input.windows(2).position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(&input[..line]).expect("heads are text");
    let number = line.split(['/', ' ']).nth(2).and_then(|number| number.parse().ok());
    let number = number.unwrap_or_else(|| panic!("{line}: no request of a client"));
    let missing = Arrived { number, upgrades: false, end: None };
    let Some(head) = input.windows(4).position(|four| four == b"\r\n\r\n") else { return Some(missing) };
    let head = head + 4;
    let text = std::str::from_utf8(&input[..head]).expect("heads are text");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let upgrades = value("Upgrade: ").is_some();
    let end = if value("Transfer-Encoding: chunked").is_some() {
        chunked_end(input, head).map(|(end, body)| {
            assert!(body == filler(body.len()), "request {number}: the body has changed");
            end
        })
    } else {
        let length: usize = value("Content-Length: ").map_or(0, |length| length.parse().expect("a length"));
        input.get(head..head + length).map(|body| {
            assert!(body == filler(length), "request {number}: the body has changed");
            head + length
        })
    };
    Some(Arrived { number, upgrades, end })
}

/// Decodes chunks. Returns their end and the content; `None` while bytes are missing.
pub(crate) fn chunked_end(bytes: &[u8], start: usize) -> Option<(usize, Vec<u8>)> {
    let (mut at, mut body) = (start, Vec::new());
    loop {
        let line = bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        let digits = std::str::from_utf8(&bytes[at..at + line]).expect("digits");
        let size = usize::from_str_radix(digits, 16).expect("a size");
        let data = at + line + 2;
        body.extend_from_slice(bytes.get(data..data + size)?);
        at = data + size + 2;
        bytes.get(..at)?;
        if size == 0 {
            return Some((at, body));
        }
    }
}

/// The steps of a response to a request; `None` if the application dies. Records the response, if it is complete.
fn response(number: usize, world: &World, ledger: &mut Ledger) -> Option<Vec<Step>> {
    let size = [0, 10, 900, 9_000, 70_000][world.chance(5) as usize];
    let body = [format!("{number}:").into_bytes(), filler(size)].concat();
    let length = body.len();
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes();
    let whole = [head(&format!("Content-Length: {length}\r\n")), body.clone()].concat();
    let chunk = [format!("{length:x}\r\n").as_bytes(), &body, b"\r\n"].concat();
    let chunked = [head("Transfer-Encoding: chunked\r\n"), chunk.clone(), b"0\r\n\r\n".to_vec()].concat();
    let half = [head(&format!("Content-Length: {}\r\n", length + 1)), body.clone()].concat();
    // Half of the responses are plain ones.
    let case = world.chance(60).saturating_sub(30);
    if matches!(case, 0..=16) {
        ledger.responses.entry(number).or_default().push((200, body.clone()));
    } else {
        ledger.broken.insert(number);
    }
    Some(match case {
        0..=8 => vec![Step::Send(whole), Step::Next],
        9 | 10 => {
            let pieces = chunked.chunks(1 + world.chance(40_000) as usize);
            let steps = pieces.flat_map(|piece| [Step::Send(piece.to_vec()), Step::After(MS)]);
            steps.chain([Step::Next]).collect()
        }
        11 => vec![Step::Send([head("Connection: close\r\n"), body].concat()), Step::Close],
        12 => vec![Step::After(world.chance(100) * MS), Step::Send(whole), Step::Next],
        // Some of these are late.
        13 => vec![Step::After(world.chance(1_000) * MS), Step::Send(whole), Step::Next],
        14 => {
            let hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec();
            vec![Step::Send(hint), Step::After(MS), Step::Send(whole), Step::Next]
        }
        15 => vec![Step::Send([whole, b"XYZ".to_vec()].concat()), Step::Next],
        16 => vec![Step::Send(whole), Step::After(world.chance(30) * MS), Step::Close],
        17 => vec![Step::Abort],
        18 => vec![Step::Close],
        19 => vec![Step::Send(b"SSH-2.0-x\r\n\0\0\r\n\r\n".to_vec()), Step::Close],
        20 => vec![Step::Send(half), Step::Close],
        21 => vec![Step::Send([head("Transfer-Encoding: chunked\r\n"), chunk].concat()), Step::Abort],
        22 => vec![Step::Send(chunked[..chunked.len() - 3].to_vec()), Step::Close],
        23 => vec![Step::After(3_600_000 * MS)],
        24 => vec![Step::Send(half), Step::After(3_600_000 * MS)],
        25 => {
            let both = head("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n");
            vec![Step::Send([both, b"3\r\nabc\r\n0\r\n\r\n".to_vec()].concat()), Step::Next]
        }
        26 => vec![Step::Send(whole[..whole.len().min(9)].to_vec()), Step::Abort],
        27 => vec![Step::Send([head("Content-Length: 5, 6\r\n"), b"hello".to_vec()].concat()), Step::Next],
        28 => vec![Step::Send([head("Transfer-Encoding: chunked\r\n"), b"zz\r\n".to_vec()].concat())],
        _ => return None,
    })
}
