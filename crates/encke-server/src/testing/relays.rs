//! Relays in the simulator: a server relays its clients' requests to another server. All workers of both are in one world of
//! faults, one seed per run.
//!
//! ```text
//! Client ◄─► Fleet at 10.0.0.1: Relays ─ dial, send, write ─► Fleet at 10.0.0.2: the handlers of `simulation`
//! ```
//! The content of a relayed response is the other server's response, including its head. A client whose response is complete
//! must have received all of it. A broken connection on either side must reach the other side.

use crate::limits::LimitSettings;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use encke_io::sim::{SimClient, SimConditions, SimReadState, World};
use encke_io::testing::Seeds;
use encke_io::{Address, Segment};

use super::{Fleet, Stepped};
use crate::exchange::{Exchange, ExchangeKey};
use crate::handler::{Handler, HandlerContext, Mount, Outcome, Piece};
use crate::outgoing::{UpstreamEvent, UpstreamId};
use crate::policy::ConnLimits;
use crate::reply::{Body, Fields, Reply};
use crate::request::Request;
use crate::resident::WorkerSetup;
use crate::simulation::{Place, filler};

/// The worlds of a complete run.
const SEEDS: u64 = 120;
const CLIENTS: usize = 16;
/// Steps after which an unfinished run counts as stuck.
const STEPS_MAX: usize = 2_000_000;

fn relay_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

fn other_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

struct Relay;

struct Relays {
    context: HandlerContext,
    by_upstream: HashMap<UpstreamId, (ExchangeKey, Option<Exchange>)>,
    by_exchange: HashMap<ExchangeKey, UpstreamId>,
}

impl Mount for Relay {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Relays { context, by_upstream: HashMap::new(), by_exchange: HashMap::new() })
    }
}

impl Relays {
    fn forget(&mut self, id: UpstreamId) -> Option<(ExchangeKey, Option<Exchange>)> {
        let relayed = self.by_upstream.remove(&id)?;
        self.by_exchange.remove(&relayed.0);
        self.context.close(id);
        Some(relayed)
    }

    fn begin(&mut self, id: UpstreamId) -> ExchangeKey {
        let (key, exchange) = self.by_upstream.get_mut(&id).expect("a connection of this handler");
        if let Some(exchange) = exchange.take() {
            self.context.respond(exchange, Reply::new(200).body(Body::Open(None)));
        }
        *key
    }
}

impl Handler for Relays {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let path = String::from_utf8_lossy(request.path()).into_owned();
        let method = String::from_utf8_lossy(request.method_text()).into_owned();
        let length = request.field("Content-Length").map_or(String::new(), |length| {
            format!("Content-Length: {}\r\n", String::from_utf8_lossy(length))
        });
        let head = format!("{method} {path} HTTP/1.1\r\nHost: other\r\nConnection: close\r\n{length}\r\n");
        let id = self.context.dial(Address::Inet(other_address()), None);
        self.context.deadline(id, 30_000_000_000);
        self.context.send(id, [Segment::Bytes(head.into_bytes())]);
        let key = exchange.key();
        self.by_exchange.insert(key, id);
        self.by_upstream.insert(id, (key, Some(exchange)));
        self.context.read_more(key);
        Outcome::Later
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some(id) = self.by_exchange.get(&key) else { return };
        if let Piece::Data(data) = piece {
            self.context.send(*id, [Segment::Bytes(data.to_vec())]);
            self.context.read_more(key);
        }
    }

    fn writable(&mut self, key: ExchangeKey) {
        self.context.resume(self.by_exchange[&key]);
    }

    fn gone(&mut self, key: ExchangeKey) {
        let id = self.by_exchange[&key];
        self.forget(id);
    }

    fn upstream(&mut self, id: UpstreamId, event: UpstreamEvent<'_>) {
        match event {
            UpstreamEvent::Received(bytes) => {
                let key = self.begin(id);
                if self.context.write(key, bytes).is_full {
                    self.context.pause(id);
                }
            }
            UpstreamEvent::Ended => {
                let key = self.begin(id);
                self.context.finish(key, Fields::new());
                self.forget(id);
            }
            UpstreamEvent::Failed(_) | UpstreamEvent::Overdue => match self.forget(id) {
                Some((_, Some(exchange))) => self.context.respond(exchange, Reply::error(502)),
                Some((key, None)) => self.context.reset(key),
                None => panic!("an event of a connection that was closed"),
            },
            UpstreamEvent::Connected | UpstreamEvent::Sent(_) => {
                assert!(self.by_upstream.contains_key(&id), "an event of a connection that was closed");
            }
        }
    }
}

/// A client with one request.
struct Visitor {
    client: Option<SimClient>,
    wire: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// The expected end of the other server's response.
    content: Vec<u8>,
}

impl Visitor {
    fn new(world: &World) -> Self {
        let size = [0, 13, 5_000, 40_000, 200_000][world.chance(5) as usize];
        let content = filler(size);
        let wire = if world.chance(2) == 0 {
            format!("GET /b{size} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n").into_bytes()
        } else {
            let head = format!(
                "POST /e HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
            );
            [head.as_bytes(), &content].concat()
        };
        let client = Some(world.connect(relay_address()));
        Self { client, wire, sent: 0, received: Vec::new(), content }
    }

    /// Sends a piece and receives a piece. Returns true while there is something to wait for.
    fn visit(&mut self, world: &World) -> bool {
        let Some(client) = &mut self.client else { return false };
        let wish = (1 + world.chance(9_000) as usize).min(self.wire.len() - self.sent);
        self.sent += client.send(&self.wire[self.sent..self.sent + wish]);
        self.received.extend(client.take_at_most(1 + world.chance(30_000) as usize));
        if client.end() != SimReadState::Open {
            self.client = None;
        } else if world.chance(600) == 0 {
            self.client.take().expect("looked at above").reset();
        }
        self.client.is_some()
    }

    /// Whether a complete response has arrived, which must then be the right one.
    fn judge(&self, seed: u64) -> bool {
        let Some(head) = self.received.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
        let (head, mut rest) = self.received.split_at(head + 4);
        if !head.starts_with(b"HTTP/1.1 200 ") {
            return false;
        }
        let mut relayed = Vec::new();
        loop {
            let Some(line) = rest.windows(2).position(|two| two == b"\r\n") else { return false };
            let digits = std::str::from_utf8(&rest[..line]).expect("digits");
            let size = usize::from_str_radix(digits, 16).expect("a size");
            let Some(chunk) = rest.get(line + 2..line + 2 + size) else { return false };
            relayed.extend_from_slice(chunk);
            rest = rest.get(line + 4 + size..).unwrap_or_default();
            if size == 0 {
                break;
            }
        }
        if !relayed.starts_with(b"HTTP/1.1 200 ") {
            // The other server rejected a body that broke off in transit.
            assert!(relayed.starts_with(b"HTTP/1.1 4"), "seed {seed}: {}", String::from_utf8_lossy(&relayed));
            return false;
        }
        let at = relayed.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
        assert!(relayed[at..] == self.content, "seed {seed}: the content is not whole, or not the right one");
        true
    }
}

/// Runs a seed. Returns the number of complete responses, and the world's trace.
fn run(seed: u64) -> (usize, u64) {
    let conditions = if seed.is_multiple_of(3) { SimConditions::default() } else { SimConditions::harsh() };
    let world = World::with(seed, conditions);
    let count = 1 + (seed % 3) as usize;
    let limits =
        || LimitSettings { upstreams: NonZeroU32::new(12).expect("above 0"), ..LimitSettings::default() };
    let policy = || ConnLimits { limits: limits(), connections: 1_000, ..ConnLimits::default() };
    let relay: Arc<dyn Mount> = Arc::new(Relay);
    let other: Arc<dyn Mount> = Arc::new(Place);
    let mut relays = Fleet::start(&world, 0, count, relay_address(), policy(), vec![("/".into(), relay)]);
    let mut others = Fleet::start(&world, count, 2, other_address(), policy(), vec![("/".into(), other)]);
    let mut visitors: Vec<Visitor> = Vec::new();
    let mut stopping = false;
    for _ in 0..STEPS_MAX {
        if visitors.len() < CLIENTS && world.chance(3) == 0 {
            visitors.push(Visitor::new(&world));
        }
        let mut waiting = false;
        for visitor in &mut visitors {
            waiting |= visitor.visit(&world);
        }
        if visitors.len() == CLIENTS && !waiting && !stopping {
            stopping = true;
            relays.drain(Duration::ZERO, Duration::from_secs(5));
            others.drain(Duration::ZERO, Duration::from_secs(5));
        }
        let Some(reactor) = world.step() else {
            assert!(!stopping || !(relays.is_up() || others.is_up()), "seed {seed}: a worker did not end");
            if stopping {
                break;
            }
            continue;
        };
        if relays.turn(reactor, seed) == Stepped::NotHere {
            others.turn(reactor, seed);
        }
        if !relays.is_up() && !others.is_up() {
            break;
        }
    }
    assert!(!relays.is_up() && !others.is_up(), "seed {seed}: stuck");
    (visitors.iter().filter(|visitor| visitor.judge(seed)).count(), world.trace())
}

#[test]
fn relayed_responses_arrive_complete_or_are_reset() {
    let seeds = Seeds::of(SEEDS);
    let complete: usize = seeds.range().map(|seed| run(seed).0).sum();
    println!("{complete} complete responses in {seeds:?}");
    assert!(
        seeds.is_single() || complete > 5 * seeds.count() as usize,
        "{complete} complete responses: too few to mean anything"
    );
}

#[test]
fn a_seed_of_relays_is_one_run() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
