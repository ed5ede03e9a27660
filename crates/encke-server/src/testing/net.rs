//! A network of simulated servers and HTTP clients, for tests of one feature: each test states requests and expected responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_io::sim::{SimClient, SimReadState, World};
use encke_io::{Reactor as _, SimReactor};

use super::fleet::Fleet;
use crate::handler::Mount;
use crate::policy::ConnLimits;

/// Simulated time after which an expected response is missing.
const PATIENCE: Duration = Duration::from_secs(120);
/// Simulated time between two looks at the bytes that a client has received, in ns.
const LOOK_NS: u64 = 1_000_000;

/// The mounts of a server.
pub type SimMounts = Vec<(String, Arc<dyn Mount>)>;

/// Simulated servers, each at its own address.
pub struct SimNet {
    seed: u64,
    world: World,
    servers: Vec<(SocketAddr, Fleet)>,
    reactors: usize,
    /// Ends the skips of the simulated clock, which otherwise reach to the next timer of a server.
    clock: SimReactor,
}

/// A client of a simulated server, with all bytes that it has received.
pub struct SimPeer {
    client: SimClient,
    received: Vec<u8>,
}

/// A response as received so far.
#[derive(Clone, Debug)]
pub struct SimResponse {
    /// The status of the head.
    pub status: u16,
    /// The lines of the head.
    pub head: String,
    /// The content, without the framing of chunks.
    pub body: Vec<u8>,
    /// Whether the content is complete.
    pub is_complete: bool,
    /// Number of bytes of the response on the connection.
    bytes: usize,
}

impl SimNet {
    /// Creates a network without faults.
    pub fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let clock = world.reactor();
        Self { seed, world, servers: Vec::new(), reactors: 1, clock }
    }

    /// Starts a server with `workers` workers. Returns its number.
    pub fn start(&mut self, address: SocketAddr, workers: usize, mounts: SimMounts) -> usize {
        self.start_with(address, workers, ConnLimits { connections: 1_000, ..ConnLimits::default() }, mounts)
    }

    /// Starts a server with a policy. Returns its number.
    pub fn start_with(
        &mut self,
        address: SocketAddr,
        workers: usize,
        policy: ConnLimits,
        mounts: SimMounts,
    ) -> usize {
        let fleet = Fleet::start(&self.world, self.reactors, workers, address, policy, mounts);
        self.reactors += workers;
        self.servers.push((address, fleet));
        self.servers.len() - 1
    }

    /// Returns a server's workers.
    pub fn server(&self, number: usize) -> &Fleet {
        &self.servers[number].1
    }

    /// The present time.
    pub fn now(&self) -> encke_io::Now {
        self.world.now()
    }

    /// Runs one turn of a worker, or skips at most `most_ns`. Returns `false` at the time `end_ns`.
    fn step(&mut self, end_ns: u64, most_ns: u64) -> bool {
        let now_ns = self.now().mono_ns;
        if now_ns >= end_ns {
            return false;
        }
        self.clock
            .wait(Some(end_ns.min(now_ns.saturating_add(most_ns))))
            .expect("a simulated wait never fails");
        let reactor = self.world.step().expect("the clock has an alarm");
        if let Some((_, fleet)) = self.servers.iter_mut().find(|(_, fleet)| fleet.has(reactor)) {
            fleet.turn(reactor, self.seed);
        }
        true
    }

    fn after(&self, time: Duration) -> u64 {
        self.now().mono_ns + time.as_nanos() as u64
    }

    /// Runs all servers for this time.
    pub fn run(&mut self, time: Duration) {
        let end_ns = self.after(time);
        while self.step(end_ns, u64::MAX) {}
    }

    /// Connects a client to a server.
    pub fn connect(&self, server: usize) -> SimPeer {
        SimPeer { client: self.world.connect(self.servers[server].0), received: Vec::new() }
    }

    /// Connects a client that sends `bytes`.
    pub fn open(&mut self, server: usize, bytes: &[u8]) -> SimPeer {
        let mut peer = self.connect(server);
        self.send(&mut peer, bytes);
        peer
    }

    /// Sends all bytes.
    ///
    /// # Panics
    /// The server does not read them.
    pub fn send(&mut self, peer: &mut SimPeer, bytes: &[u8]) {
        let end_ns = self.after(PATIENCE);
        let mut sent = 0;
        while sent < bytes.len() {
            sent += peer.client.send(&bytes[sent..]);
            if sent < bytes.len() {
                assert!(self.step(end_ns, LOOK_NS), "{sent} of {} bytes sent", bytes.len());
            }
        }
    }

    /// Runs until `wanted` returns a value for the received bytes.
    ///
    /// # Panics
    /// It never does.
    pub fn until<T>(&mut self, peer: &mut SimPeer, mut wanted: impl FnMut(&SimPeer) -> Option<T>) -> T {
        let end_ns = self.after(PATIENCE);
        loop {
            peer.received.extend(peer.client.take());
            if let Some(value) = wanted(peer) {
                return value;
            }
            assert!(self.step(end_ns, LOOK_NS), "missing after: {}", String::from_utf8_lossy(&peer.received));
        }
    }

    /// Runs until the first response on a connection satisfies `wanted`, and returns it.
    ///
    /// # Panics
    /// It never does.
    pub fn until_response(
        &mut self,
        peer: &mut SimPeer,
        mut wanted: impl FnMut(&SimResponse) -> bool,
    ) -> SimResponse {
        self.until(peer, |peer| peer.response().filter(&mut wanted))
    }

    /// Runs until the first response on a connection is complete, takes it from the received bytes, and returns it.
    ///
    /// # Panics
    /// It is never complete.
    pub fn response(&mut self, peer: &mut SimPeer) -> SimResponse {
        let response = self.until_response(peer, |response| response.is_complete);
        peer.received.drain(..response.bytes);
        response
    }

    /// Sends a request on a connection of its own, and returns the complete response.
    ///
    /// # Panics
    /// There is none.
    pub fn ask(&mut self, server: usize, request: impl AsRef<[u8]>) -> SimResponse {
        let mut peer = self.open(server, request.as_ref());
        self.response(&mut peer)
    }
}

impl SimPeer {
    /// Returns all received bytes that were not taken.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Returns whether the server has ended the connection.
    pub fn is_closed(&self) -> bool {
        self.client.end() != SimReadState::Open
    }

    /// Ends the sending direction.
    pub fn shutdown(&mut self) {
        self.client.shutdown();
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.client.reset();
    }

    /// Limits the bytes that the client accepts before it reads.
    pub fn set_window(&mut self, bytes: usize) {
        self.client.set_window(bytes);
    }

    /// Parses the first response; `None` while its head is incomplete.
    pub fn response(&self) -> Option<SimResponse> {
        let end = self.received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.received[..end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut response = SimResponse { status, head, body: Vec::new(), is_complete: false, bytes: end };
        let rest = &self.received[end..];
        if let Some(length) = response.field("Content-Length").and_then(|length| length.parse().ok()) {
            let length: usize = length;
            response.body = rest[..length.min(rest.len())].to_vec();
            response.is_complete = rest.len() >= length;
        } else if response.field("Transfer-Encoding") == Some("chunked") {
            let (used, is_complete) = take_chunks(rest, &mut response.body);
            response.is_complete = is_complete;
            response.bytes += used;
            return Some(response);
        } else if matches!(status, 100..=199 | 204 | 304) {
            response.is_complete = true;
        } else {
            response.body = rest.to_vec();
            response.is_complete = self.is_closed();
        }
        response.bytes += response.body.len();
        Some(response)
    }
}

/// Appends the content of chunks. Returns the bytes used, and whether the last chunk was among them.
fn take_chunks(bytes: &[u8], out: &mut Vec<u8>) -> (usize, bool) {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else { return (at, false) };
        let size =
            std::str::from_utf8(&rest[..line]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.expect("a size of a chunk");
        let Some(content) = rest.get(line + 2..line + 2 + size) else { return (at, false) };
        if rest.len() < line + 4 + size {
            return (at, false);
        }
        out.extend_from_slice(content);
        at += line + 4 + size;
        if size == 0 {
            return (at, true);
        }
    }
}

impl SimResponse {
    /// Returns the value of a header field, by its name as the server writes it.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns the content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
