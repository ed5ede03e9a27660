//! Toys that use outgoing connections, and the servers that they connect to.

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use encke_io::{Address, Segment, Token};
use encke_server::{
    Asked, Body, CloseReason, Engine, Exchange, ExchangeKey, Fields, Gone, Handler, HandlerContext, Mount,
    Outcome, Piece, Reply, Request, Resident, Slot, Takeover, UpstreamEvent, UpstreamId, WorkerSetup,
};

use encke_session::tls::{Session, Sessions};

use super::{PATIENCE, Rig, any_port};

/// Bytes that may wait on one side before the other is paused.
pub const WAITING_MAX: usize = 64 * 1024;
/// Maximum bytes of one event: a lease, plus with TLS a record that began earlier.
const EVENT_MAX: usize = 80 * 1024;

/// A session for a dialed connection, if it uses TLS.
fn session_of(sessions: Option<&Arc<dyn Sessions>>) -> Option<Box<dyn Session>> {
    sessions.map(|sessions| sessions.begin().expect("a session"))
}

/// The response that begins a tunnel.
pub const TUNNEL_HEAD: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tunnel\r\nConnection: Upgrade\r\n\r\n";

/// Connects each request's connection to another server: bytes pass in both directions until both sides have ended.
#[derive(Clone)]
pub struct Tunnel {
    pub target: Address,
    pub sessions: Option<Arc<dyn Sessions>>,
    /// Number of times that the other server was paused because bytes to the client did not leave.
    pub pauses: Arc<AtomicUsize>,
}

struct TunnelHandler {
    target: Address,
}

/// The tunnels of a worker.
struct Tunnels {
    context: Option<HandlerContext>,
    sessions: Option<Arc<dyn Sessions>>,
    pauses: Arc<AtomicUsize>,
    pairs: HashMap<UpstreamId, Pair>,
    /// The outgoing connection of each client, by slot index.
    upstreams: HashMap<u32, UpstreamId>,
}

/// A client's connection and an outgoing one.
struct Pair {
    token: Token,
    /// Bytes of the client that have not left.
    unsent: u64,
    /// Bytes for the client that wait for a send to end. Without capacity while the tunnel is idle.
    waiting: Vec<u8>,
    /// Whether the other server has ended its side.
    upstream_over: bool,
    /// Whether this side has ended, towards the other server and towards the client.
    upstream_shut: bool,
    client_shut: bool,
}

impl Tunnel {
    pub fn to(target: impl Into<Address>) -> Self {
        Self { target: target.into(), sessions: None, pauses: Arc::default() }
    }
}

impl Mount for Tunnel {
    fn open(&self, _: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let (pauses, sessions) = (Arc::clone(&self.pauses), self.sessions.clone());
        worker.resident(|_| Tunnels {
            context: None,
            sessions,
            pauses,
            pairs: HashMap::new(),
            upstreams: HashMap::new(),
        });
        Box::new(TunnelHandler { target: self.target.clone() })
    }
}

impl Handler for TunnelHandler {
    fn call(&mut self, _: &Request<'_>, _: Exchange) -> Outcome {
        Outcome::Takeover(Takeover::new(self.target.clone()))
    }
}

impl Tunnels {
    fn context(&self) -> &HandlerContext {
        self.context.as_ref().expect("taken when the first connection came")
    }

    /// Forwards bytes of the client.
    fn forward(&mut self, slot: &mut Slot<'_>, bytes: &[u8]) {
        let id = self.upstreams[&slot.place()];
        let pair = self.pairs.get_mut(&id).expect("a tunnel of this resident");
        pair.unsent += bytes.len() as u64;
        if pair.unsent >= WAITING_MAX as u64 {
            slot.hold();
        }
        let mut buffer = self.context().take_buffer();
        buffer.extend_from_slice(bytes);
        self.context().send(id, [Segment::Bytes(buffer)]);
    }

    /// Performs all due work: sends waiting bytes, forwards ends, closes connections that have ended in both directions.
    fn go_on(&mut self, id: UpstreamId, slot: &mut Slot<'_>) {
        let context = self.context.clone().expect("taken when the first connection came");
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        if !slot.is_sending() && !pair.waiting.is_empty() {
            slot.push_buffer(std::mem::take(&mut pair.waiting));
            slot.settle();
            context.resume(id);
        }
        if !slot.is_sending() && pair.upstream_over && !pair.client_shut {
            pair.client_shut = true;
            slot.shutdown();
            slot.settle();
        }
        if slot.input_is_over() && !pair.upstream_shut {
            pair.upstream_shut = true;
            context.shutdown(id);
        }
        if pair.client_shut && pair.upstream_shut && pair.unsent == 0 && !slot.is_sending() {
            context.close(id);
            self.pairs.remove(&id);
            self.upstreams.remove(&slot.place());
            slot.close(CloseReason::PeerDone);
        }
    }
}

impl Resident for Tunnels {
    fn enter(&mut self, slot: &mut Slot<'_>, _: Asked, start: Box<dyn Any + Send>) {
        let target = *start.downcast::<Address>().expect("what the handler has put there");
        let session = session_of(self.sessions.as_ref());
        let id = self.context.get_or_insert_with(|| slot.context()).dial(target, session);
        let pair = Pair {
            token: slot.token(),
            unsent: 0,
            waiting: Vec::new(),
            upstream_over: false,
            upstream_shut: false,
            client_shut: false,
        };
        self.pairs.insert(id, pair);
        self.upstreams.insert(slot.place(), id);
        slot.outlast();
        slot.count_response(101);
        slot.out().extend_from_slice(TUNNEL_HEAD);
    }

    fn is_duplex(&self) -> bool {
        true
    }

    fn received(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        self.forward(slot, bytes);
        bytes.len()
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        slot.rest_until(u64::MAX);
        if let Some(bytes) = slot.take_input() {
            self.forward(slot, &bytes);
            let used = bytes.len();
            slot.give_input(bytes, used);
        }
        let id = self.upstreams[&slot.place()];
        self.go_on(id, slot);
        if slot.is_open() {
            slot.settle();
        }
    }

    fn ended(&mut self, slot: &mut Slot<'_>) {
        let id = self.upstreams[&slot.place()];
        self.go_on(id, slot);
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        slot.rest_until(u64::MAX);
    }

    fn closed(&mut self, gone: Gone) {
        if let Some(id) = self.upstreams.remove(&gone.token.index) {
            self.pairs.remove(&id);
            self.context().close(id);
        }
    }

    fn upstream(&mut self, engine: &mut Engine<'_>, id: UpstreamId, event: UpstreamEvent<'_>) {
        let pair = self.pairs.get_mut(&id).expect("a tunnel of this resident");
        let mut slot = engine.slot(pair.token).expect("its end closes the outgoing connection");
        match event {
            UpstreamEvent::Received(bytes) if slot.is_sending() => {
                pair.waiting.extend_from_slice(bytes);
                assert!(pair.waiting.len() < WAITING_MAX + EVENT_MAX, "it was paused before");
                if pair.waiting.len() >= WAITING_MAX {
                    self.pauses.fetch_add(1, Ordering::Relaxed);
                    engine.context().pause(id);
                }
            }
            UpstreamEvent::Received(bytes) => {
                assert!(pair.waiting.is_empty(), "what came before leaves before");
                slot.out().extend_from_slice(bytes);
                slot.settle();
            }
            UpstreamEvent::Sent(bytes) => {
                pair.unsent -= bytes;
                if pair.unsent < WAITING_MAX as u64 {
                    slot.unhold();
                    slot.settle();
                }
                self.go_on(id, &mut slot);
            }
            UpstreamEvent::Ended => {
                pair.upstream_over = true;
                self.go_on(id, &mut slot);
            }
            UpstreamEvent::Failed(_) => {
                self.upstreams.remove(&slot.place());
                self.pairs.remove(&id);
                slot.reset(CloseReason::Upstream);
            }
            _ => {}
        }
    }
}

/// Sends each request's body to another server, and that server's bytes as the content of the response. The path selects the
/// framing: `/` without a length, `/length/N` with one, `/trailers` with trailers.
#[derive(Clone)]
pub struct Relay {
    pub target: Address,
    pub sessions: Option<Arc<dyn Sessions>>,
    pub counts: Arc<RelayCounts>,
}

/// Counts of a mount's relays.
#[derive(Default)]
pub struct RelayCounts {
    /// Number of times that the other server was paused because bytes to the client did not leave.
    pub pauses: AtomicUsize,
    /// Exchanges whose client left before their end.
    pub gone: AtomicUsize,
    /// Bodies that broke off.
    pub broken: AtomicUsize,
}

struct Relays {
    mount: Relay,
    context: HandlerContext,
    by_upstream: HashMap<UpstreamId, Relayed>,
    by_exchange: HashMap<ExchangeKey, UpstreamId>,
}

/// A relayed exchange.
struct Relayed {
    /// Present until the response has begun.
    exchange: Option<Exchange>,
    key: ExchangeKey,
    path: Vec<u8>,
    /// Bytes of the request that have not left.
    unsent: u64,
    /// Whether the handler reads more of the body only once fewer bytes wait.
    full: bool,
}

impl Relay {
    pub fn to(target: impl Into<Address>) -> Self {
        Self { target: target.into(), sessions: None, counts: Arc::default() }
    }
}

impl Mount for Relay {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Relays {
            mount: self.clone(),
            context,
            by_upstream: HashMap::new(),
            by_exchange: HashMap::new(),
        })
    }
}

impl Relays {
    fn of(&mut self, key: ExchangeKey) -> Option<(UpstreamId, &mut Relayed)> {
        let id = *self.by_exchange.get(&key)?;
        Some((id, self.by_upstream.get_mut(&id).expect("both maps have it")))
    }

    fn forget(&mut self, id: UpstreamId) -> Option<Relayed> {
        let relayed = self.by_upstream.remove(&id)?;
        self.by_exchange.remove(&relayed.key);
        self.context.close(id);
        Some(relayed)
    }

    /// Begins the response, unless it has begun.
    fn begin(context: &HandlerContext, relayed: &mut Relayed) {
        if let Some(exchange) = relayed.exchange.take() {
            let length = relayed.path.strip_prefix(b"/length/");
            let length = length.map(|digits| String::from_utf8_lossy(digits).parse().expect("a number"));
            context.respond(exchange, Reply::new(200).body(Body::Open(length)));
        }
    }
}

impl Handler for Relays {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let id = self.context.dial(self.mount.target.clone(), session_of(self.mount.sessions.as_ref()));
        let key = exchange.key();
        let path = request.path().to_vec();
        self.by_exchange.insert(key, id);
        self.by_upstream.insert(id, Relayed { exchange: Some(exchange), key, path, unsent: 0, full: false });
        self.context.read_more(key);
        Outcome::Later
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let context = self.context.clone();
        let Some((id, relayed)) = self.of(key) else { return };
        match piece {
            Piece::Data(data) => {
                let mut buffer = context.take_buffer();
                buffer.extend_from_slice(data);
                context.send(id, [Segment::Bytes(buffer)]);
                relayed.unsent += data.len() as u64;
                assert!(relayed.unsent < (WAITING_MAX + EVENT_MAX) as u64, "it was not asked for");
                relayed.full = relayed.unsent >= WAITING_MAX as u64;
                if !relayed.full {
                    context.read_more(key);
                }
            }
            Piece::End => context.shutdown(id),
            Piece::Broken => {
                self.mount.counts.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn writable(&mut self, key: ExchangeKey) {
        let context = self.context.clone();
        let (id, _) = self.of(key).expect("an exchange of this handler");
        context.resume(id);
    }

    fn gone(&mut self, key: ExchangeKey) {
        self.mount.counts.gone.fetch_add(1, Ordering::Relaxed);
        let (id, _) = self.of(key).expect("an exchange of this handler");
        self.forget(id);
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        let relayed = self.by_upstream.get_mut(&id).expect("a connection of this handler");
        let key = relayed.key;
        match event {
            UpstreamEvent::Received(bytes) => {
                Self::begin(&self.context, relayed);
                let queued = self.context.write(key, bytes);
                assert!(queued.bytes < WAITING_MAX + EVENT_MAX, "it was paused before: {}", queued.bytes);
                if queued.is_full {
                    self.mount.counts.pauses.fetch_add(1, Ordering::Relaxed);
                    self.context.pause(id);
                }
            }
            UpstreamEvent::Sent(bytes) => {
                relayed.unsent -= bytes;
                if relayed.full && relayed.unsent < WAITING_MAX as u64 {
                    relayed.full = false;
                    self.context.read_more(key);
                }
            }
            UpstreamEvent::Ended => {
                Self::begin(&self.context, relayed);
                let mut trailers = Fields::new();
                if relayed.path == b"/trailers" {
                    trailers.push("Checksum", b"abc").expect("well formed");
                }
                self.context.finish(key, trailers);
                self.forget(id);
            }
            UpstreamEvent::Failed(fault) => match self.forget(id).and_then(|relayed| relayed.exchange) {
                Some(exchange) => self.context.respond(exchange, Reply::text(502, format!("{fault}"))),
                None => self.context.reset(key),
            },
            _ => {}
        }
    }
}

// ---- servers to connect to ----

/// Random sizes from a seed: xorshift64 mixes well enough.
pub struct Sizes(u64);

impl Sizes {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A size from 1 to `most`; small ones are as frequent as large ones.
    pub fn next(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let bits = most.ilog2() as u64 + 1;
        let size = 1_usize << ((self.0 >> 32) % bits);
        (size + (self.0 as usize) % size).min(most)
    }
}

/// The byte at a position of a stream whose bytes depend on their position.
pub fn byte_at(place: u64, key: u8) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8 ^ key
}

/// Writes `count` bytes in pieces of random sizes.
pub fn write_stream(to: impl Write, count: u64, key: u8, seed: u64) -> io::Result<()> {
    write_rest(to, 0..count, key, seed)
}

/// Writes a part of a stream in pieces of random sizes.
pub fn write_rest(mut to: impl Write, part: Range<u64>, key: u8, seed: u64) -> io::Result<()> {
    let mut sizes = Sizes::new(seed);
    let mut place = part.start;
    while place < part.end {
        let size = (sizes.next(200_000) as u64).min(part.end - place);
        let piece: Vec<u8> = (place..place + size).map(|place| byte_at(place, key)).collect();
        to.write_all(&piece)?;
        place += size;
    }
    Ok(())
}

/// Writes the beginning of a stream until the server takes no more of it. The server has one worker, which keeps running:
/// requests to `/turn` get responses, each in a separate turn. `taken` returns the bytes that the server has received,
/// including bytes of the requests if they count there. Returns the number of bytes written.
pub fn write_until_stopped(
    rig: &Rig,
    mut to: impl Write,
    most: u64,
    key: u8,
    taken: impl Fn() -> u64,
) -> u64 {
    const PIECE: u64 = 16 * 1024;
    const TURN: &str = "GET /turn HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const TURNS: u64 = 8;
    let mut client = rig.client();
    let first = taken();
    client.ask(TURN);
    let request_bytes = taken() - first;
    let (mut place, mut requests) = (0, 1);
    while place < most {
        let piece: Vec<u8> = (place..place + PIECE).map(|place| byte_at(place, key)).collect();
        to.write_all(&piece).expect("the server has not closed it");
        place += PIECE;
        loop {
            let seen = taken() - first - requests * request_bytes;
            if seen == place {
                break;
            }
            for _ in 0..TURNS {
                client.ask(TURN);
            }
            requests += TURNS;
            if taken() - first - requests * request_bytes == seen {
                return place;
            }
        }
    }
    panic!("the server has taken all {most} bytes")
}

/// Compares received bytes with the stream that was written.
pub struct StreamCheck {
    pub place: u64,
    key: u8,
}

impl StreamCheck {
    pub const fn new(key: u8) -> Self {
        Self { place: 0, key }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            assert_eq!(*byte, byte_at(self.place, self.key), "at {}", self.place);
            self.place += 1;
        }
    }

    /// Reads exactly `count` bytes in pieces of random sizes.
    pub fn read(&mut self, mut from: impl Read, count: u64, seed: u64) {
        let mut sizes = Sizes::new(seed);
        let mut buffer = vec![0; 200_000];
        let end = self.place + count;
        while self.place < end {
            let most = sizes.next(buffer.len()).min((end - self.place) as usize);
            let read = from.read(&mut buffer[..most]).expect("more comes");
            assert!(read > 0, "the end, {} bytes too early", end - self.place);
            self.take(&buffer[..read]);
        }
    }
}

/// A listener, and its address.
pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Accepts the next connection of a listener.
pub fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time above 0");
    stream
}

/// Ends a connection by a reset.
pub fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket can");
}

/// Reads everything up to the end.
pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an end in order");
    bytes
}

/// Ends the sending side.
pub fn finish(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).expect("it is connected");
}

/// A server that returns received bytes, changed by [`ECHO_KEY`].
pub fn echo(mut stream: impl Read + Write) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer).expect("bytes or an end");
        if count == 0 {
            return;
        }
        buffer[..count].iter_mut().for_each(|byte| *byte ^= ECHO_KEY);
        stream.write_all(&buffer[..count]).expect("room");
    }
}

/// The difference between the bytes of an echo and the original.
pub const ECHO_KEY: u8 = 0x80;
