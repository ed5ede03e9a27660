//! The simulator: reactors without an operating system, in a world with one clock and one seed.
//!
//! ```text
//!   Client ◄──── link ────► SimReactor 0 ─┐
//!   Client ◄──── link ────► SimReactor 1 ─┼─ World: clock, agenda, ports, seed, faults, trace
//!   Client ◄──── link ────► SimReactor 2 ─┘
//!                                              loop { let turn = world.step()?; workers[turn].turn() }
//! ```
//!
//! A link carries bytes in pieces of random size, each after a random delay, and holds no more than its receiver's window. So
//! sends block, as on a network. All random decisions come from the seed. All future events are in the agenda, and the clock
//! jumps to the next of them. The same seed and the same calls give the same run, which [`World::trace`] condenses into one
//! number.
//!
//! In scope: the sockets of a server, files (read from disk), timers, wake-ups, and jobs, which run at once and complete later.
//! Out of scope: everything below a socket (loss and reordering appear as delay), and watched descriptors, which never become
//! readable here.
//!
//! [`Reactor::wait`] does not block here: [`World::step`] has already advanced the time, and returns the reactor to run.

use std::cell::{Ref, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use crate::clock::Now;
use crate::op::{Done, Event, Job, LendLimit, Op, OpKind, Peer, Send, Token};
use crate::op_error::OpError;
use crate::places::Places;
use crate::reactor::{Backend, LEASE_BYTES_MAX, NARROW_LEASE_BYTES, Occupancy, Reactor, ReactorSource};
use crate::sending::{SegmentRest, Sending};
use crate::socket::{Address, Listener, Stream};
use crate::wake::{WakeSignal, Waker};

/// The properties of a world. Probabilities are in thousandths.
#[derive(Clone, Debug)]
pub struct SimConditions {
    /// Time from one end of a link to the other, in ns.
    pub latency_ns: RangeInclusive<u64>,
    /// Size in bytes of the pieces that travel together.
    pub piece_bytes: RangeInclusive<usize>,
    /// Maximum bytes unread at an end or in transit to it. A client may set its own.
    pub window_bytes: RangeInclusive<usize>,
    /// Time per byte on a link, in addition to the latency, in ns.
    pub byte_ns: u64,
    /// Duration of a reactor's turn, in ns.
    pub turn_ns: RangeInclusive<u64>,
    /// Duration of a job, in ns.
    pub job_ns: RangeInclusive<u64>,
    /// Probability that a link breaks as a piece arrives: both ends are reset.
    pub resets: u16,
    /// Probability that a client ends its sending direction after a send.
    pub half_closes: u16,
    /// Probability that a send is accepted only in part although there is room.
    pub short_sends: u16,
    /// Probability that an accept fails for lack of descriptors.
    pub accept_failures: u16,
    /// Probability that a wake-up arrives up to a millisecond late.
    pub delayed_wakes: u16,
    /// Probability that a client stops reading for up to a second.
    pub slow_readers: u16,
}

impl Default for SimConditions {
    /// A world without errors, but with delays, pieces and partial sends.
    fn default() -> Self {
        Self {
            latency_ns: 10_000..=500_000,
            piece_bytes: 1..=16 * 1024,
            window_bytes: 16 * 1024..=128 * 1024,
            byte_ns: 1,
            turn_ns: 1_000..=20_000,
            job_ns: 10_000..=2_000_000,
            resets: 0,
            half_closes: 0,
            short_sends: 100,
            accept_failures: 0,
            delayed_wakes: 100,
            slow_readers: 0,
        }
    }
}

impl SimConditions {
    /// A world in which every fault occurs occasionally.
    pub fn harsh() -> Self {
        Self {
            piece_bytes: 1..=2_000,
            window_bytes: 1..=20_000,
            resets: 5,
            half_closes: 20,
            accept_failures: 50,
            slow_readers: 30,
            ..Self::default()
        }
    }
}

/// Number of injected faults, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Links reset.
    pub resets: u64,
    /// Clients that ended their sending direction.
    pub half_closes: u64,
    /// Sends accepted only in part.
    pub short_sends: u64,
    /// Accepts that failed for lack of descriptors.
    pub accept_failures: u64,
    /// Wake-ups that arrived late.
    pub delayed_wakes: u64,
    /// Clients that stopped reading.
    pub slow_readers: u64,
}

/// The read state of a [`SimClient`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimReadState {
    /// More data may arrive.
    Open,
    /// The other side ended its stream, and all data before the end has been read.
    Finished,
    /// The link was reset. Data not yet read is lost.
    Reset,
    /// No listener at the address, or no response from it.
    Refused,
}

/// A simulated world, shared by its reactors and clients.
#[derive(Clone)]
pub struct World(Rc<RefCell<WorldState>>);

impl World {
    /// Creates a world without errors.
    ///
    /// ```
    /// use encke_io::sim::World;
    ///
    /// let world = World::new(7);
    /// let client = world.connect("10.0.0.1:80".parse().expect("an address"));
    /// assert_ne!(client.address().port(), 80);
    /// assert_eq!(world.trace(), World::new(7).trace(), "same seed, same start");
    /// ```
    pub fn new(seed: u64) -> Self {
        Self::with(seed, SimConditions::default())
    }

    /// Creates a world with the given conditions.
    pub fn with(seed: u64, conditions: SimConditions) -> Self {
        Self(Rc::new(RefCell::new(WorldState {
            now_ns: EPOCH_NS,
            random: SimRandom(seed),
            conditions,
            trace: seed,
            faults: FaultCounts::default(),
            stations: Vec::new(),
            links: Places::new(),
            listeners: Vec::new(),
            agenda: BinaryHeap::new(),
            sequence: 0,
            next_port: 0,
        })))
    }

    /// Adds a reactor. [`World::step`] identifies it by its number, counted from 0.
    pub fn reactor(&self) -> SimReactor {
        let mut state = self.0.borrow_mut();
        let bell = WakeSignal::without_bell();
        state.stations.push(Station::new(Arc::clone(&bell)));
        let number = state.stations.len() - 1;
        SimReactor { world: self.clone(), number, bell, lease: Vec::new() }
    }

    /// Creates a listener for one of the reactors. Several listeners may share an address: each connection goes to a random
    /// one.
    ///
    /// # Errors
    /// Out of descriptors, on systems where a listener holds one.
    pub fn listener(&self, address: SocketAddr) -> io::Result<Listener> {
        Listener::simulated(address)
    }

    /// Creates a stream for [`Op::Connect`].
    ///
    /// # Errors
    /// Out of descriptors, on systems where a stream holds one.
    pub fn stream(&self) -> io::Result<Stream> {
        Stream::simulated()
    }

    /// Creates a client that connects to `address`. The client may send at once.
    pub fn connect(&self, address: SocketAddr) -> SimClient {
        let mut state = self.0.borrow_mut();
        let link = state.open_link(Owner::Client, address);
        let origin = state.links.get(link).expect(OPEN).origin;
        SimClient { world: self.clone(), link, origin, shut: false }
    }

    /// Advances the time to the next event and returns the number of the reactor to run for one turn, a wait and its events.
    /// The choice is random among the reactors that have work or whose wait is over. Returns `None` if nothing will ever happen
    /// again.
    ///
    /// A reactor that received an event gets another turn, to set its next wait.
    pub fn step(&self) -> Option<usize> {
        let mut state = self.0.borrow_mut();
        loop {
            state.deliver_wakes();
            let runnable: Vec<usize> = (0..state.stations.len())
                .filter(|number| state.stations[*number].is_due(state.now_ns))
                .collect();
            if !runnable.is_empty() {
                let number = runnable[state.random.below(runnable.len() as u64) as usize];
                state.stations[number].alarm_ns = None;
                let now_ns = state.now_ns;
                state.note(&[0, number as u64, now_ns]);
                return Some(number);
            }
            let planned = state.agenda.peek().map(|Reverse(due)| due.at_ns);
            let alarm = state.stations.iter().filter_map(|station| station.alarm_ns).min();
            state.now_ns = [planned, alarm].into_iter().flatten().min()?;
            state.happen();
        }
    }

    /// Whether nothing is pending: only timers or calls from outside can cause further events.
    pub fn is_quiet(&self) -> bool {
        let state = self.0.borrow();
        let busy = |station: &Station| !station.gone && (station.has_work() || station.bell.is_set());
        state.agenda.is_empty() && !state.stations.iter().any(busy)
    }

    /// The current time.
    pub fn now(&self) -> Now {
        self.0.borrow().now()
    }

    /// A hash of all events and decisions so far.
    pub fn trace(&self) -> u64 {
        self.0.borrow().trace
    }

    /// The faults injected so far.
    pub fn faults(&self) -> FaultCounts {
        self.0.borrow().faults
    }

    /// A random number below `limit` from the world's seed, for decisions that a test leaves to chance.
    pub fn chance(&self, limit: u64) -> u64 {
        self.0.borrow_mut().random.below(limit)
    }
}

/// The remote end of a connection, driven by the test. When dropped, it closes as a program that exits.
pub struct SimClient {
    world: World,
    link: Token,
    origin: SocketAddr,
    shut: bool,
}

impl SimClient {
    /// The client's address as the server sees it.
    pub fn address(&self) -> SocketAddr {
        self.origin
    }

    /// Sends as many bytes as fit and returns their number: 0 after a shutdown or a reset.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        let mut state = self.world.0.borrow_mut();
        let len = bytes.len().min(state.room(self.link, CLIENT));
        if self.shut || len == 0 {
            return 0;
        }
        state.put(self.link, CLIENT, &bytes[..len]);
        if state.strikes(|conditions| conditions.half_closes) {
            state.faults.half_closes += 1;
            state.finish(self.link, CLIENT);
            self.shut = true;
        }
        len
    }

    /// Reads all data that has arrived, which makes room for more.
    pub fn take(&mut self) -> Vec<u8> {
        self.take_at_most(usize::MAX)
    }

    /// Reads at most `limit` bytes of the data that has arrived.
    pub fn take_at_most(&mut self, limit: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.world.0.borrow_mut().read(self.link, CLIENT, limit, &mut bytes);
        bytes
    }

    /// Ends the sending direction. Data already sent arrives before the end.
    pub fn shutdown(&mut self) {
        if !std::mem::replace(&mut self.shut, true) {
            self.world.0.borrow_mut().finish(self.link, CLIENT);
        }
    }

    /// Resets the connection. Data in transit is lost.
    pub fn reset(self) {
        self.world.0.borrow_mut().abort(self.link, CLIENT);
    }

    /// Sets the number of bytes that the client accepts before it reads.
    pub fn set_window(&mut self, bytes: usize) {
        let mut state = self.world.0.borrow_mut();
        if let Some(link) = state.links.get_mut(self.link) {
            link.ends[CLIENT].window = bytes;
        }
        state.promise_room(self.link, SERVER);
    }

    /// The read state of this client.
    pub fn end(&self) -> SimReadState {
        let state = self.world.0.borrow();
        let Some(link) = state.links.get(self.link) else { return SimReadState::Reset };
        let end = &link.ends[CLIENT];
        if end.refused {
            SimReadState::Refused
        } else if end.reset {
            SimReadState::Reset
        } else if end.finished && end.inbox.is_empty() {
            SimReadState::Finished
        } else {
            SimReadState::Open
        }
    }

    /// Whether no more data can arrive.
    pub fn is_closed(&self) -> bool {
        self.end() != SimReadState::Open
    }

    /// Whether the sending direction has ended, by [`SimClient::shutdown`] or by the world ([`SimConditions::half_closes`]).
    pub fn is_shut(&self) -> bool {
        self.shut
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.world.0.borrow_mut().close(self.link, CLIENT);
    }
}

/// One worker's reactor in a world.
pub struct SimReactor {
    world: World,
    number: usize,
    bell: Arc<WakeSignal>,
    lease: Vec<u8>,
}

impl SimReactor {
    /// The reactor's number in the world.
    pub fn number(&self) -> usize {
        self.number
    }

    fn state(&self) -> RefMut<'_, WorldState> {
        self.world.0.borrow_mut()
    }

    fn station(&self) -> Ref<'_, Station> {
        Ref::map(self.world.0.borrow(), |state| &state.stations[self.number])
    }
}

impl Reactor for SimReactor {
    fn backend(&self) -> Backend {
        Backend::Sim
    }

    fn adopt(&mut self, source: ReactorSource) -> Result<Token, OpError> {
        let number = self.number;
        let mut state = self.state();
        let (kind, address) = match &source {
            ReactorSource::Listener(listener) => match listener.address() {
                Address::Inet(address) => (SimSourceKind::Listener, Some(*address)),
                // A world has ports but no paths.
                Address::Unix(_) => return Err(OpError::Unreachable),
            },
            ReactorSource::Stream(_) => (SimSourceKind::Stream, None),
            ReactorSource::Watched(_) => (SimSourceKind::Watched, None),
        };
        let token = state.stations[number].places.insert(SimSource::new(kind, None));
        if let Some(address) = address {
            state.listeners.push(SimListener { address, station: number, token, retired: false });
        }
        Ok(token)
    }

    fn submit(&mut self, token: Token, op: Op) {
        let number = self.number;
        let mut state = self.state();
        if let Op::Offload(job) = op {
            drop(state);
            return self.run(job);
        }
        let Some(place) = state.stations[number].places.get_mut(token) else { return };
        match op {
            Op::Accept | Op::Recv | Op::Watch => {
                if !place.has(ENDED) {
                    place.flags |= ARMED;
                    state.stations[number].enqueue(token);
                }
            }
            Op::Pause => {
                place.flags &= !ARMED;
                state.stations[number].enqueue(token);
            }
            Op::Retire => {
                for door in &mut state.listeners {
                    door.retired |= door.station == number && door.token == token;
                }
            }
            // Simulated links have limits of their own, and no acknowledgements.
            Op::Tune(_) => {}
            Op::Lend(LendLimit::Narrow) => place.flags |= NARROW,
            Op::Lend(LendLimit::Wide) => place.flags &= !NARROW,
            Op::Connect(address) => {
                assert!(place.link.is_none(), "connected once");
                place.flags |= CONNECTING;
                let link = state.open_link(Owner::Source(number, token), address);
                let place = state.stations[number].places.get_mut(token).expect(KNOWN);
                place.link = Some((link, CLIENT));
            }
            Op::Send(send) => state.start_send(number, token, send),
            Op::Shutdown => state.shutdown_source(number, token),
            Op::Cancel => state.cancel(number, token),
            Op::Close | Op::Recycle => state.close_source(number, token, false),
            Op::Abort => state.close_source(number, token, true),
            Op::Offload(_) => unreachable!("returned above"),
        }
    }

    fn wait(&mut self, until: Option<u64>) -> Result<Now, OpError> {
        let number = self.number;
        let mut state = self.state();
        let turn_ns = state.conditions.turn_ns.clone();
        state.now_ns += state.random.within(turn_ns);
        state.happen();
        let station = &mut state.stations[number];
        station.awake = false;
        station.alarm_ns = until;
        Ok(state.now())
    }

    fn next(&mut self) -> Option<Event<'_>> {
        let number = self.number;
        let mut lease = std::mem::take(&mut self.lease);
        let mut state = self.state();
        let told = state.next(number, &mut lease);
        if let Some(told) = &told {
            state.stations[number].awake = true;
            state.note_event(number, told);
        }
        drop(state);
        self.lease = lease;
        Some(match told? {
            PendingEvent::Event(event) => event,
            PendingEvent::Received(token) => Event::Received { token, lease: &mut self.lease },
        })
    }

    fn now(&mut self) -> Now {
        self.world.now()
    }

    fn waker(&self) -> Waker {
        Waker::of(&self.bell)
    }

    fn unsent(&self, token: Token) -> u64 {
        let station = self.station();
        let sending = station.places.get(token).and_then(|place| place.sending.as_ref());
        sending.map_or(0, Sending::unsent)
    }

    fn unacknowledged(&self, token: Token) -> u64 {
        let state = self.world.0.borrow();
        let link = state.stations[self.number].places.get(token).and_then(|place| place.link);
        let found = link.and_then(|(link, at)| Some((state.links.get(link)?, at)));
        found.map_or(0, |(link, at)| link.ends[1 - at].transit as u64)
    }

    fn listen_drops(&self, _: Token) -> Option<u32> {
        None
    }

    fn occupancy(&self) -> Occupancy {
        let station = self.station();
        let sends = station.sends;
        Occupancy { sources: station.places.len(), sends, jobs: station.jobs, leases: 0 }
    }
}

impl SimReactor {
    /// Runs a job at once. Its completion is reported after the simulated duration.
    fn run(&mut self, job: Job) {
        let done = catch_unwind(AssertUnwindSafe(job.run)).ok();
        let number = self.number;
        let mut state = self.state();
        state.stations[number].jobs += 1;
        let job_ns = state.conditions.job_ns.clone();
        let after_ns = state.random.within(job_ns);
        state.plan(after_ns, SimEvent::Done { station: number, key: job.key, done });
    }
}

impl Drop for SimReactor {
    /// Closes all sources, as when a process ends.
    fn drop(&mut self) {
        let number = self.number;
        let mut state = self.state();
        for index in 0..state.stations[number].places.rows() {
            let token = state.stations[number].places.token(index);
            if state.stations[number].places.get(token).is_some() {
                state.close_source(number, token, false);
            }
        }
        let station = &mut state.stations[number];
        station.queue.clear();
        station.done.clear();
        station.awake = false;
        station.alarm_ns = None;
        station.gone = true;
    }
}

/// The initial time of a world, so that code cannot mistake 0 for "never".
const EPOCH_NS: u64 = 1_000_000_000;
/// The wall clock at time 0: 2026-01-01T00:00:00Z.
const EPOCH_UNIX_NS: u64 = 1_767_225_600_000_000_000;
/// Bytes that the sender's side buffers in addition to the receiver's window.
const SEND_BUFFER: usize = 4 * 1024;
/// Delay before an unanswered connection attempt is retried (RFC 6298 §2). Doubles with each of at most `RETRIES` retries.
const RETRY_NS: u64 = 1_000_000_000;
const RETRIES: u32 = 6;

/// The index of a link's end: the side that connected, and the side that accepted.
const CLIENT: usize = 0;
const SERVER: usize = 1;

const OPEN: &str = "the link was opened by this call";
const KNOWN: &str = "tokens are checked where they come in";

struct WorldState {
    now_ns: u64,
    random: SimRandom,
    conditions: SimConditions,
    trace: u64,
    faults: FaultCounts,
    stations: Vec<Station>,
    links: Places<SimLink>,
    listeners: Vec<SimListener>,
    agenda: BinaryHeap<Reverse<ScheduledEvent>>,
    sequence: u64,
    next_port: u16,
}

/// The state of one reactor.
struct Station {
    places: Places<SimSource>,
    /// Sources that may have work, each at most once.
    queue: VecDeque<Token>,
    done: VecDeque<Event<'static>>,
    /// Whether an event was delivered since the last wait, so that the reactor may want a different wait now.
    awake: bool,
    /// The time at which the current wait ends.
    alarm_ns: Option<u64>,
    /// The reactor was dropped. Its jobs may still complete and its bell may ring, without effect.
    gone: bool,
    bell: Arc<WakeSignal>,
    /// The time at which a wake-up is delivered.
    wake_ns: Option<u64>,
    sends: usize,
    jobs: usize,
}

struct SimSource {
    kind: SimSourceKind,
    flags: u8,
    link: Option<(Token, usize)>,
    sending: Option<Sending>,
    /// A listener's links that have not been accepted.
    backlog: VecDeque<Token>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SimSourceKind {
    Listener,
    Stream,
    Watched,
}

/// `Accept`, `Recv` or `Watch` is armed.
const ARMED: u8 = 1;
/// Reading has no further events.
const ENDED: u8 = 1 << 1;
/// The end of stream was reported while receiving was paused.
const HINTED: u8 = 1 << 2;
/// Queued in `queue`.
const QUEUED: u8 = 1 << 3;
/// The send in flight waits for room.
const BLOCKED: u8 = 1 << 4;
const CONNECTING: u8 = 1 << 5;
/// The sending direction ends once the send in flight has ended.
const FINISHING: u8 = 1 << 6;
/// Leases are narrow.
const NARROW: u8 = 1 << 7;

/// A listener's address.
struct SimListener {
    address: SocketAddr,
    station: usize,
    token: Token,
    retired: bool,
}

struct SimLink {
    /// The address of the end that connected.
    origin: SocketAddr,
    ends: [LinkEnd; 2],
}

struct LinkEnd {
    owner: Owner,
    /// Bytes that arrived and are unread.
    inbox: VecDeque<u8>,
    /// Bytes in transit to this end.
    transit: usize,
    window: usize,
    /// Arrival time of the last piece. Later pieces arrive no earlier, so a link keeps the order.
    last_ns: u64,
    /// The owner reads nothing until this time.
    choked_until_ns: u64,
    /// The end of the other side's stream has arrived.
    finished: bool,
    /// This side has ended its stream.
    closing: bool,
    reset: bool,
    refused: bool,
    /// A notification of room is in transit to this end.
    room_promised: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Client,
    Source(usize, Token),
    /// In transit to a listener, or in its backlog.
    Waiting,
    Gone,
}

struct ScheduledEvent {
    at_ns: u64,
    sequence: u64,
    what: SimEvent,
}

/// A future event.
enum SimEvent {
    /// A connection attempt reaches the address.
    Attempt {
        link: Token,
        address: SocketAddr,
        tries: u32,
    },
    /// The response to an attempt reaches the end that connects.
    Answer {
        link: Token,
        outcome: Result<(), OpError>,
    },
    Piece {
        link: Token,
        to: usize,
        bytes: Vec<u8>,
    },
    Finish {
        link: Token,
        to: usize,
    },
    Reset {
        link: Token,
        to: usize,
    },
    Room {
        link: Token,
        to: usize,
    },
    Done {
        station: usize,
        key: u64,
        done: Option<Done>,
    },
    /// A delayed wake-up is due.
    Wake,
}

enum PendingEvent {
    Event(Event<'static>),
    /// The bytes are in the lease.
    Received(Token),
}

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.sequence).cmp(&(other.at_ns, other.sequence))
    }
}

impl SimSource {
    fn new(kind: SimSourceKind, link: Option<(Token, usize)>) -> Self {
        Self { kind, flags: 0, link, sending: None, backlog: VecDeque::new() }
    }

    fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

impl Station {
    fn new(bell: Arc<WakeSignal>) -> Self {
        Self {
            places: Places::new(),
            queue: VecDeque::new(),
            done: VecDeque::new(),
            awake: true,
            alarm_ns: None,
            gone: false,
            bell,
            wake_ns: None,
            sends: 0,
            jobs: 0,
        }
    }

    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.done.is_empty()
    }

    fn is_due(&self, now_ns: u64) -> bool {
        !self.gone && (self.awake || self.has_work() || self.alarm_ns.is_some_and(|alarm| alarm <= now_ns))
    }

    fn enqueue(&mut self, token: Token) {
        let Some(place) = self.places.get_mut(token) else { return };
        if !place.has(QUEUED) {
            place.flags |= QUEUED;
            self.queue.push_back(token);
        }
    }
}

impl WorldState {
    const fn now(&self) -> Now {
        Now { mono_ns: self.now_ns, unix_ns: EPOCH_UNIX_NS + self.now_ns }
    }

    /// Adds words to the trace.
    fn note(&mut self, words: &[u64]) {
        for word in words {
            self.trace = SimRandom((self.trace ^ word).rotate_left(5)).word();
        }
    }

    fn note_event(&mut self, number: usize, told: &PendingEvent) {
        let (kind, token, size) = match told {
            PendingEvent::Received(token) => (1, *token, 0),
            PendingEvent::Event(event) => match event {
                Event::Accepted { token, .. } => (2, *token, 0),
                Event::Connected { token } => (3, *token, 0),
                Event::Received { .. } => unreachable!("told with its lease"),
                Event::PeerClosed { token, behind_data } => (4, *token, u64::from(*behind_data)),
                Event::Sent { token, bytes, .. } => (5, *token, *bytes),
                Event::Watched { token } => (6, *token, 0),
                Event::Offloaded { key, done } => (7, Token::NONE, *key << 1 | u64::from(done.is_some())),
                Event::Woken => (8, Token::NONE, 0),
                Event::Closed { token, .. } => (9, *token, 0),
                Event::Failed { token, op, sent, .. } => (10 + *op as u64, *token, *sent),
            },
        };
        self.note(&[number as u64, kind, token.word(), size, self.now_ns]);
    }

    /// Decides randomly whether a fault occurs now.
    fn strikes(&mut self, chance: impl Fn(&SimConditions) -> u16) -> bool {
        let chance = u64::from(chance(&self.conditions));
        chance > 0 && self.random.below(1_000) < chance
    }

    fn plan(&mut self, after_ns: u64, what: SimEvent) {
        self.plan_at(self.now_ns.saturating_add(after_ns), what);
    }

    fn plan_at(&mut self, at_ns: u64, what: SimEvent) {
        self.sequence += 1;
        self.agenda.push(Reverse(ScheduledEvent { at_ns, sequence: self.sequence, what }));
    }

    fn latency(&mut self) -> u64 {
        let latency_ns = self.conditions.latency_ns.clone();
        self.random.within(latency_ns)
    }

    /// Processes all events that are due.
    fn happen(&mut self) {
        while let Some(Reverse(due)) = self.agenda.peek()
            && due.at_ns <= self.now_ns
            && let Some(Reverse(due)) = self.agenda.pop()
        {
            match due.what {
                SimEvent::Attempt { link, address, tries } => self.attempt(link, address, tries),
                SimEvent::Answer { link, outcome } => self.answer(link, outcome),
                SimEvent::Piece { link, to, bytes } => self.arrive(link, to, &bytes),
                SimEvent::Finish { link, to } => {
                    if let Some(link) = self.links.get_mut(link) {
                        link.ends[to].finished = true;
                    }
                    self.queue_owner(link, to);
                }
                SimEvent::Reset { link, to } => self.break_end(link, to),
                SimEvent::Room { link, to } => {
                    if let Some(link) = self.links.get_mut(link) {
                        link.ends[to].room_promised = false;
                    }
                    self.unblock(link, to);
                }
                SimEvent::Done { station, key, done } => {
                    self.stations[station].jobs -= 1;
                    self.stations[station].done.push_back(Event::Offloaded { key, done });
                }
                SimEvent::Wake => {}
            }
        }
    }

    /// Turns rung bells into events, at once or late.
    fn deliver_wakes(&mut self) {
        for number in 0..self.stations.len() {
            let station = &mut self.stations[number];
            if station.wake_ns.is_some_and(|wake| wake <= self.now_ns) {
                station.wake_ns = None;
                if station.bell.clear() {
                    station.done.push_back(Event::Woken);
                }
            } else if station.wake_ns.is_none() && station.bell.is_set() {
                let mut after_ns = 0;
                if self.strikes(|conditions| conditions.delayed_wakes) {
                    self.faults.delayed_wakes += 1;
                    after_ns = self.random.below(1_000_000);
                }
                let wake_ns = self.now_ns + after_ns;
                self.stations[number].wake_ns = Some(wake_ns);
                self.plan_at(wake_ns, SimEvent::Wake);
            }
        }
    }

    /// Creates a link whose first end belongs to `owner`, and schedules its connection attempt.
    fn open_link(&mut self, owner: Owner, address: SocketAddr) -> Token {
        self.next_port = self.next_port.wrapping_add(1);
        let origin = SocketAddr::from(([10, 0, 0, 1], 1_024 + self.next_port % 60_000));
        let ends = [owner, Owner::Waiting].map(|owner| {
            let window = self.random.within_usize(self.conditions.window_bytes.clone());
            LinkEnd {
                owner,
                inbox: VecDeque::new(),
                transit: 0,
                window,
                last_ns: 0,
                choked_until_ns: 0,
                finished: false,
                closing: false,
                reset: false,
                refused: false,
                room_promised: false,
            }
        });
        let link = self.links.insert(SimLink { origin, ends });
        let after_ns = self.latency();
        self.links.get_mut(link).expect(OPEN).ends[SERVER].last_ns = self.now_ns + after_ns;
        self.plan(after_ns, SimEvent::Attempt { link, address, tries: 0 });
        link
    }

    fn attempt(&mut self, link: Token, address: SocketAddr, tries: u32) {
        let after_ns = self.latency();
        let known = self.listeners.iter().any(|door| door.address == address);
        let open = self.listeners.iter().filter(|door| door.address == address && !door.retired);
        let open: Vec<(usize, Token)> = open.map(|door| (door.station, door.token)).collect();
        let Some(found) = self.links.get_mut(link) else { return };
        if !open.is_empty() {
            let (station, listener) = open[self.random.below(open.len() as u64) as usize];
            found.ends[SERVER].owner = Owner::Waiting;
            if let Some(place) = self.stations[station].places.get_mut(listener) {
                place.backlog.push_back(link);
            }
            self.stations[station].enqueue(listener);
            self.plan(after_ns, SimEvent::Answer { link, outcome: Ok(()) });
        } else if known && tries < RETRIES {
            // Retired listeners do not respond.
            self.plan(RETRY_NS << tries, SimEvent::Attempt { link, address, tries: tries + 1 });
        } else {
            let fault = if known { OpError::Unreachable } else { OpError::Refused };
            found.ends[SERVER].owner = Owner::Gone;
            self.plan(after_ns, SimEvent::Answer { link, outcome: Err(fault) });
            self.forget_link(link);
        }
    }

    fn answer(&mut self, link: Token, outcome: Result<(), OpError>) {
        let Some(found) = self.links.get_mut(link) else { return };
        let end = &mut found.ends[CLIENT];
        end.refused = outcome.is_err();
        if let Owner::Source(station, token) = end.owner
            && let Some(place) = self.stations[station].places.get_mut(token)
            && place.has(CONNECTING)
        {
            place.flags &= !CONNECTING;
            let event = match outcome {
                Ok(()) => Event::Connected { token },
                Err(fault) => {
                    place.flags |= ENDED;
                    failed(token, OpKind::Connect, fault)
                }
            };
            self.stations[station].done.push_back(event);
            self.stations[station].enqueue(token);
        }
    }

    /// Bytes that `from` may send now.
    fn room(&self, link: Token, from: usize) -> usize {
        let Some(link) = self.links.get(link) else { return 0 };
        let (own, other) = (&link.ends[from], &link.ends[1 - from]);
        if own.reset || own.closing || own.refused || other.choked_until_ns > self.now_ns {
            return 0;
        }
        (other.window + SEND_BUFFER).saturating_sub(other.inbox.len() + other.transit)
    }

    /// Sends bytes in pieces.
    fn put(&mut self, link: Token, from: usize, bytes: &[u8]) {
        let to = 1 - from;
        let mut rest = bytes;
        while !rest.is_empty() {
            let most = self.random.within_usize(self.conditions.piece_bytes.clone()).clamp(1, rest.len());
            let (piece, later) = rest.split_at(most);
            rest = later;
            let earliest_ns = self.now_ns + self.latency();
            let travel_ns = piece.len() as u64 * self.conditions.byte_ns;
            let Some(link_state) = self.links.get_mut(link) else { return };
            let end = &mut link_state.ends[to];
            end.transit += piece.len();
            end.last_ns = end.last_ns.max(earliest_ns) + travel_ns;
            let at_ns = end.last_ns;
            self.plan_at(at_ns, SimEvent::Piece { link, to, bytes: piece.to_vec() });
        }
    }

    fn arrive(&mut self, link: Token, to: usize, bytes: &[u8]) {
        let Some(found) = self.links.get_mut(link) else { return };
        let end = &mut found.ends[to];
        end.transit -= bytes.len();
        if end.reset {
            return;
        }
        if end.owner == Owner::Gone {
            // Bytes for a closed end: the sender receives a reset (RFC 9293 §3.10.7.1).
            self.send_reset(link, 1 - to);
            return;
        }
        end.inbox.extend(bytes);
        let client = end.owner == Owner::Client;
        if self.strikes(|conditions| conditions.resets) {
            self.faults.resets += 1;
            self.break_end(link, CLIENT);
            self.break_end(link, SERVER);
            return;
        }
        if client && self.strikes(|conditions| conditions.slow_readers) {
            self.faults.slow_readers += 1;
            let until_ns = self.now_ns + self.random.below(1_000_000_000);
            self.links.get_mut(link).expect("looked up above").ends[to].choked_until_ns = until_ns;
            self.plan_at(until_ns, SimEvent::Room { link, to: 1 - to });
        }
        self.queue_owner(link, to);
    }

    /// Reads bytes that have arrived at a link's end.
    fn read(&mut self, link: Token, at: usize, limit: usize, into: &mut Vec<u8>) {
        let Some(found) = self.links.get_mut(link) else { return };
        let inbox = &mut found.ends[at].inbox;
        let len = inbox.len().min(limit);
        into.extend(inbox.drain(..len));
        if len > 0 {
            self.promise_room(link, 1 - at);
        }
    }

    /// Sends a notification of room to the end `to`, unless one is in transit.
    fn promise_room(&mut self, link: Token, to: usize) {
        let after_ns = self.latency();
        let Some(found) = self.links.get_mut(link) else { return };
        if !std::mem::replace(&mut found.ends[to].room_promised, true) {
            self.plan(after_ns, SimEvent::Room { link, to });
        }
    }

    /// Ends a side's stream: the other side sees the end after all bytes sent.
    fn finish(&mut self, link: Token, from: usize) {
        let to = 1 - from;
        let earliest_ns = self.now_ns + self.latency();
        let Some(found) = self.links.get_mut(link) else { return };
        if std::mem::replace(&mut found.ends[from].closing, true) {
            return;
        }
        let end = &mut found.ends[to];
        end.last_ns = end.last_ns.max(earliest_ns);
        let at_ns = end.last_ns;
        self.plan_at(at_ns, SimEvent::Finish { link, to });
    }

    /// Closes an end. Bytes sent before are delivered. But if received bytes are unread, the other side is reset, as systems do
    /// (RFC 2525 §2.17).
    fn close(&mut self, link: Token, at: usize) {
        let Some(found) = self.links.get_mut(link) else { return };
        let end = &mut found.ends[at];
        if std::mem::replace(&mut end.owner, Owner::Gone) == Owner::Gone {
            return;
        }
        let unread = !end.inbox.is_empty();
        end.inbox.clear();
        if unread {
            self.send_reset(link, 1 - at);
        } else {
            self.finish(link, at);
        }
        self.forget_link(link);
    }

    /// Closes an end and resets the other.
    fn abort(&mut self, link: Token, at: usize) {
        if let Some(found) = self.links.get_mut(link) {
            found.ends[at].owner = Owner::Gone;
            self.send_reset(link, 1 - at);
            self.forget_link(link);
        }
    }

    fn send_reset(&mut self, link: Token, to: usize) {
        let after_ns = self.latency();
        self.plan(after_ns, SimEvent::Reset { link, to });
    }

    /// Handles the arrival of a reset. Unread bytes are lost, which a lingering close prevents.
    fn break_end(&mut self, link: Token, to: usize) {
        let Some(found) = self.links.get_mut(link) else { return };
        let end = &mut found.ends[to];
        if std::mem::replace(&mut end.reset, true) {
            return;
        }
        end.inbox.clear();
        self.unblock(link, to);
    }

    /// Removes a link once both of its ends are closed.
    fn forget_link(&mut self, link: Token) {
        let over = |end: &LinkEnd| end.owner == Owner::Gone;
        if self.links.get(link).is_some_and(|link| link.ends.iter().all(over)) {
            self.links.outdate(link.index);
            self.links.remove(link.index);
            self.links.release(link.index);
        }
    }

    /// Queues the owner of an end to be served.
    fn queue_owner(&mut self, link: Token, at: usize) {
        if let Some(found) = self.links.get(link)
            && let Owner::Source(station, token) = found.ends[at].owner
        {
            self.stations[station].enqueue(token);
        }
    }

    /// Queues the owner of an end to be served, and resumes its send.
    fn unblock(&mut self, link: Token, at: usize) {
        if let Some(found) = self.links.get(link)
            && let Owner::Source(station, token) = found.ends[at].owner
            && let Some(place) = self.stations[station].places.get_mut(token)
        {
            place.flags &= !BLOCKED;
            self.stations[station].enqueue(token);
        }
    }

    fn next(&mut self, number: usize, lease: &mut Vec<u8>) -> Option<PendingEvent> {
        loop {
            let station = &mut self.stations[number];
            if let Some(event) = station.done.pop_front() {
                if let Event::Closed { token, .. } = event {
                    station.places.release(token.index);
                }
                return Some(PendingEvent::Event(event));
            }
            let token = station.queue.pop_front()?;
            let Some(place) = station.places.get_mut(token) else { continue };
            place.flags &= !QUEUED;
            let told = match place.kind {
                SimSourceKind::Watched => None,
                SimSourceKind::Listener => self.accept(number, token),
                SimSourceKind::Stream => self.serve(number, token, lease),
            };
            if told.is_some() {
                return told;
            }
        }
    }

    fn accept(&mut self, number: usize, listener: Token) -> Option<PendingEvent> {
        loop {
            let place = self.stations[number].places.get_mut(listener)?;
            if !place.has(ARMED) || place.backlog.is_empty() {
                return None;
            }
            if self.strikes(|conditions| conditions.accept_failures) {
                self.faults.accept_failures += 1;
                self.stations[number].places.get_mut(listener)?.flags &= !ARMED;
                return Some(PendingEvent::Event(failed(listener, OpKind::Accept, OpError::Descriptors)));
            }
            let link = self.stations[number].places.get_mut(listener)?.backlog.pop_front()?;
            let Some(found) = self.links.get(link) else { continue };
            if found.ends[SERVER].reset {
                // Reset before it was accepted.
                self.close(link, SERVER);
                continue;
            }
            let peer = Peer::Inet(found.origin);
            let token = self.stations[number]
                .places
                .insert(SimSource::new(SimSourceKind::Stream, Some((link, SERVER))));
            let found = self.links.get_mut(link).expect("looked up above");
            found.ends[SERVER].owner = Owner::Source(number, token);
            self.stations[number].enqueue(listener);
            return Some(PendingEvent::Event(Event::Accepted { listener, token, peer }));
        }
    }

    /// Serves a stream, with at most one event.
    fn serve(&mut self, number: usize, token: Token, lease: &mut Vec<u8>) -> Option<PendingEvent> {
        let place = self.stations[number].places.get_mut(token)?;
        let (link, at) = place.link?;
        let end = &self.links.get(link)?.ends[at];
        let news = end.reset || end.finished || !end.inbox.is_empty();
        let reading = if place.has(ARMED) {
            news && !place.has(ENDED)
        } else {
            (end.reset || end.finished) && !place.has(ENDED | HINTED)
        };
        let sending = place.sending.is_some() && !place.has(BLOCKED);
        if place.has(CONNECTING) || !(reading || sending) {
            return None;
        }
        if reading && sending {
            // The order of reading and sending is unspecified.
            self.stations[number].enqueue(token);
            if self.random.below(2) == 0 {
                self.continue_send(number, token);
                return None;
            }
        } else if sending {
            self.continue_send(number, token);
            return None;
        }
        self.tell_reading(number, token, lease)
    }

    fn tell_reading(&mut self, number: usize, token: Token, lease: &mut Vec<u8>) -> Option<PendingEvent> {
        let place = self.stations[number].places.get_mut(token)?;
        let (link, at) = place.link?;
        let end = &self.links.get(link)?.ends[at];
        if end.reset {
            place.flags = place.flags & !ARMED | ENDED;
            return Some(PendingEvent::Event(failed(token, OpKind::Recv, OpError::Reset)));
        }
        if !place.has(ARMED) {
            place.flags |= HINTED;
            return Some(PendingEvent::Event(Event::PeerClosed { token, behind_data: true }));
        }
        if end.inbox.is_empty() {
            place.flags = place.flags & !ARMED | ENDED;
            return Some(PendingEvent::Event(Event::PeerClosed { token, behind_data: false }));
        }
        let most = if place.has(NARROW) { NARROW_LEASE_BYTES } else { LEASE_BYTES_MAX };
        let limit = self.random.within_usize(1..=most);
        lease.clear();
        self.read(link, at, limit, lease);
        self.stations[number].enqueue(token);
        Some(PendingEvent::Received(token))
    }

    fn start_send(&mut self, number: usize, token: Token, send: Send) {
        let station = &mut self.stations[number];
        let place = station.places.get_mut(token).expect(KNOWN);
        assert!(
            place.kind == SimSourceKind::Stream && place.sending.is_none(),
            "one send at a time, on a stream"
        );
        place.sending = Some(Sending::new(send));
        station.sends += 1;
        self.continue_send(number, token);
    }

    fn continue_send(&mut self, number: usize, token: Token) {
        let place = self.stations[number].places.get_mut(token).expect(KNOWN);
        let Some((link, at)) = place.link else {
            self.end_send(number, token, Err(OpError::Reset));
            return;
        };
        loop {
            let broken = self.links.get(link).is_none_or(|link| link.ends[at].reset || link.ends[at].closing);
            let room = self.room(link, at);
            let short = self.strikes(|conditions| conditions.short_sends);
            let limit = if short { self.random.within_usize(0..=room) } else { room };
            let place = self.stations[number].places.get_mut(token).expect(KNOWN);
            let sending = place.sending.as_mut().expect("a send is in flight");
            let piece = match sending.head() {
                None => {
                    self.end_send(number, token, Ok(()));
                    return;
                }
                Some(_) if broken => {
                    self.end_send(number, token, Err(OpError::Reset));
                    return;
                }
                Some(_) if room == 0 => {
                    place.flags |= BLOCKED;
                    return;
                }
                Some(SegmentRest::Memory(bytes)) => bytes[..bytes.len().min(limit)].to_vec(),
                Some(SegmentRest::File { file, offset, left }) => {
                    let mut bytes = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(limit.max(1))];
                    match file.read_at(offset, &mut bytes) {
                        Ok(0) => {
                            self.end_send(number, token, Err(OpError::FileShrunk));
                            return;
                        }
                        Ok(read) => bytes.truncate(read.min(limit)),
                        Err(error) => {
                            self.end_send(number, token, Err(error.into()));
                            return;
                        }
                    }
                    bytes
                }
            };
            sending.skip(piece.len() as u64);
            self.put(link, at, &piece);
            if short {
                self.faults.short_sends += 1;
                self.stations[number].enqueue(token);
                return;
            }
        }
    }

    fn end_send(&mut self, number: usize, token: Token, result: Result<(), OpError>) {
        let station = &mut self.stations[number];
        let place = station.places.get_mut(token).expect(KNOWN);
        let sending = place.sending.take().expect("a send is in flight");
        let finishing = place.has(FINISHING);
        place.flags &= !(BLOCKED | FINISHING);
        station.sends -= 1;
        station.done.push_back(sending.ended(token, result));
        if finishing {
            self.shutdown_source(number, token);
        }
    }

    fn shutdown_source(&mut self, number: usize, token: Token) {
        let place = self.stations[number].places.get_mut(token).expect(KNOWN);
        if place.sending.is_some() {
            place.flags |= FINISHING;
        } else if let Some((link, at)) = place.link {
            if self.links.get(link).is_some_and(|link| link.ends[at].reset) {
                self.stations[number].done.push_back(failed(token, OpKind::Shutdown, OpError::Reset));
            } else {
                self.finish(link, at);
            }
        }
    }

    fn cancel(&mut self, number: usize, token: Token) {
        let place = self.stations[number].places.get_mut(token).expect(KNOWN);
        if place.has(CONNECTING) {
            place.flags = place.flags & !CONNECTING | ENDED;
            self.stations[number].done.push_back(failed(token, OpKind::Connect, OpError::Canceled));
        } else if place.sending.is_some() {
            self.end_send(number, token, Err(OpError::Canceled));
        }
    }

    fn close_source(&mut self, number: usize, token: Token, abort: bool) {
        let station = &mut self.stations[number];
        station.places.outdate(token.index);
        let place = station.places.remove(token.index);
        let segments = place.sending.map_or_else(Vec::new, |sending| {
            station.sends -= 1;
            sending.into_segments()
        });
        station.done.push_back(Event::Closed { token, segments });
        if let Some((link, at)) = place.link {
            if abort { self.abort(link, at) } else { self.close(link, at) }
        }
        if place.kind == SimSourceKind::Listener {
            self.listeners.retain(|door| door.station != number || door.token != token);
            // Connections not yet accepted are reset, as by close(2).
            for link in place.backlog {
                self.abort(link, SERVER);
            }
        }
    }
}

fn failed(token: Token, op: OpKind, fault: OpError) -> Event<'static> {
    Event::Failed { token, op, fault, sent: 0, segments: Vec::new() }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and any number is a valid seed.
struct SimRandom(u64);

impl SimRandom {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A random number below `limit`; 0 if `limit` is 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }

    fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below((range.end() - range.start()).saturating_add(1))
    }

    fn within_usize(&mut self, range: RangeInclusive<usize>) -> usize {
        self.within(*range.start() as u64..=*range.end() as u64) as usize
    }
}
