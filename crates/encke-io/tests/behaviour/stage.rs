//! The test bench of a case: one reactor, its peers, and all events so far.
//!
//! A [`Scene`] selects the environment: real sockets on the loopback interface, or the simulator. A [`Stage`] drives the
//! reactor in it, keeps its events as owned [`Note`]s, and lets a case wait for the event it expects. Nothing here sleeps. A
//! case that waits in vain ends after [`PATIENCE`] and prints all events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use encke_io::op::Done;
use encke_io::socket::Stream;
use encke_io::{
    Address, Event, LEASE_BYTES_MAX, Listener, Occupancy, Op, OpError, OpKind, Peer as Origin, Reactor,
    ReactorSource, Segment, Send, Token,
};

/// Maximum time that a case waits for an event. Only a failing case waits that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The environment of a case.
pub trait Scene: Sized {
    type Reactor: Reactor;
    type Peer: Peer;
    /// Maximum number of events of one busy connection before the next connection is served.
    const BURST: usize;
    /// Whether the end of a paused stream is reported although unread bytes precede it. Wine reports it once they are read.
    const TELLS_END_BEHIND_DATA: bool = true;
    /// More bytes than a connection's buffers hold, so that a send that is never read must block.
    const TOO_MUCH: usize;

    fn open() -> Self;
    fn reactor(&mut self) -> &mut Self::Reactor;
    fn listener(&mut self) -> Listener;
    /// A peer that connects to `address`, with a receive window of about `window` bytes.
    fn peer(&mut self, address: &Address, window: Option<usize>) -> Self::Peer;
    /// A stream that the reactor can connect to `address`.
    fn unconnected(&mut self, address: &SocketAddr) -> Stream;
    /// Processes everything due before the reactor waits. Returns false if nothing will ever happen again.
    fn elapse(&mut self) -> bool;
    /// Processes everything in progress, so that an event not reported by then will never be.
    fn settle(stage: &mut Stage<Self>);
}

/// The other end of a connection. Its methods never block.
pub trait Peer {
    /// The address that the reactor should report.
    fn address(&self) -> SocketAddr;
    /// Sends as many bytes as possible now, and returns their number.
    fn send(&mut self, bytes: &[u8]) -> usize;
    /// Appends the data that has arrived, at most `limit` bytes.
    fn receive(&mut self, limit: usize, into: &mut Vec<u8>);
    /// The state of the read side.
    fn end(&self) -> End;
    fn shutdown(&mut self);
    fn reset(self);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Open,
    /// The reactor's side has ended its stream.
    Finished,
    Reset,
}

/// An event that outlives its lease.
pub enum Note {
    Accepted { listener: Token, token: Token, origin: Origin },
    Connected(Token),
    Received(Token, Vec<u8>),
    PeerClosed { token: Token, behind_data: bool },
    Sent { token: Token, bytes: u64, segments: Vec<Segment> },
    Watched(Token),
    Offloaded { key: u64, done: Option<Done> },
    Woken,
    Closed { token: Token, segments: Vec<Segment> },
    Failed { token: Token, op: OpKind, fault: OpError, sent: u64, segments: Vec<Segment> },
}

impl Note {
    /// The source of the event.
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Accepted { token, .. }
            | Self::Connected(token)
            | Self::Received(token, _)
            | Self::PeerClosed { token, .. }
            | Self::Sent { token, .. }
            | Self::Watched(token)
            | Self::Closed { token, .. }
            | Self::Failed { token, .. } => Some(*token),
            Self::Offloaded { .. } | Self::Woken => None,
        }
    }
}

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted { token, .. } => write!(f, "Accepted({token:?})"),
            Self::Connected(token) => write!(f, "Connected({token:?})"),
            Self::Received(token, bytes) => write!(f, "Received({token:?}, {} bytes)", bytes.len()),
            Self::PeerClosed { token, behind_data } => {
                write!(f, "PeerClosed({token:?}, behind_data: {behind_data})")
            }
            Self::Sent { token, bytes, .. } => write!(f, "Sent({token:?}, {bytes} bytes)"),
            Self::Watched(token) => write!(f, "Watched({token:?})"),
            Self::Offloaded { key, done } => write!(f, "Offloaded({key}, {})", done.is_some()),
            Self::Woken => write!(f, "Woken"),
            Self::Closed { token, .. } => write!(f, "Closed({token:?})"),
            Self::Failed { token, op, fault, sent, .. } => {
                write!(f, "Failed({token:?}, {op:?} after {sent} bytes: {fault})")
            }
        }
    }
}

impl From<Event<'_>> for Note {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Accepted { listener, token, peer } => Self::Accepted { listener, token, origin: peer },
            Event::Connected { token } => Self::Connected(token),
            Event::Received { token, lease } => {
                assert!(
                    !lease.is_empty() && lease.len() <= LEASE_BYTES_MAX,
                    "a lease of {} bytes",
                    lease.len()
                );
                let bytes = lease.to_vec();
                // A lease may be changed in place, and nothing may depend on its contents afterwards.
                lease.fill(0xA5);
                Self::Received(token, bytes)
            }
            Event::PeerClosed { token, behind_data } => Self::PeerClosed { token, behind_data },
            Event::Sent { token, bytes, segments } => Self::Sent { token, bytes, segments },
            Event::Watched { token } => Self::Watched(token),
            Event::Offloaded { key, done } => Self::Offloaded { key, done },
            Event::Woken => Self::Woken,
            Event::Closed { token, segments } => Self::Closed { token, segments },
            Event::Failed { token, op, fault, sent, segments } => {
                Self::Failed { token, op, fault, sent, segments }
            }
        }
    }
}

pub struct Stage<S: Scene> {
    pub scene: S,
    /// Events that no case has expected yet, oldest first.
    pub notes: VecDeque<Note>,
    /// A connection of the stage itself, see [`Stage::echo`].
    control: Option<(Token, S::Peer)>,
    open: Vec<Token>,
    at_start: Occupancy,
}

impl<S: Scene> Stage<S> {
    pub fn open() -> Self {
        let mut scene = S::open();
        let at_start = scene.reactor().occupancy();
        Self { scene, notes: VecDeque::new(), control: None, open: Vec::new(), at_start }
    }

    pub fn reactor(&mut self) -> &mut S::Reactor {
        self.scene.reactor()
    }

    pub fn submit(&mut self, token: Token, op: Op) {
        if matches!(op, Op::Close | Op::Recycle | Op::Abort) {
            self.open.retain(|open| *open != token);
        }
        self.reactor().submit(token, op);
    }

    pub fn adopt(&mut self, source: ReactorSource) -> Token {
        let token = self.reactor().adopt(source).expect("room for a source");
        self.open.push(token);
        token
    }

    /// Adds a listener without arming it. Returns its token and address.
    pub fn listen(&mut self) -> (Token, Address) {
        let listener = self.scene.listener();
        let address = listener.address().clone();
        (self.adopt(ReactorSource::Listener(listener)), address)
    }

    /// Adds a stream that is not connected yet.
    pub fn unconnected(&mut self, address: &SocketAddr) -> Token {
        let stream = self.scene.unconnected(address);
        self.adopt(ReactorSource::Stream(stream))
    }

    pub fn inet(address: &Address) -> SocketAddr {
        match address {
            Address::Inet(address) => *address,
            Address::Unix(_) => panic!("listeners of the stage have Internet addresses"),
        }
    }

    /// A connection without any armed operation, and its peer.
    pub fn connection(&mut self) -> (Token, S::Peer) {
        self.connection_with(None)
    }

    pub fn connection_with(&mut self, window: Option<usize>) -> (Token, S::Peer) {
        let (listener, address) = self.listen();
        self.submit(listener, Op::Accept);
        let peer = self.scene.peer(&address, window);
        let token = self.accepted(listener).0;
        self.submit(listener, Op::Close);
        self.expect("the listener's end", |note| match note {
            Note::Closed { token, .. } if *token == listener => Some(()),
            _ => None,
        });
        (token, peer)
    }

    /// Waits for the next connection of a listener.
    pub fn accepted(&mut self, of: Token) -> (Token, Origin) {
        let accepted = self.expect("a connection", |note| match note {
            Note::Accepted { listener, token, origin } if *listener == of => Some((*token, *origin)),
            _ => None,
        });
        self.open.push(accepted.0);
        accepted
    }

    /// Takes one turn: waits for events, at most `patience`, and records all of them.
    pub fn turn(&mut self, patience: Duration) {
        let until = self.reactor().now().plus(patience);
        self.scene.elapse();
        let reactor = self.scene.reactor();
        reactor.wait(Some(until)).expect("the system waits");
        while let Some(event) = reactor.next() {
            self.notes.push_back(Note::from(event));
        }
    }

    /// Takes the first half of a turn: waits, but fetches no events.
    pub fn wait_only(&mut self) {
        let until = self.reactor().now().mono_ns;
        self.scene.elapse();
        self.reactor().wait(Some(until)).expect("the system waits");
    }

    /// Waits for the first event, old or new, for which `wanted` returns a value, and removes it from the notes.
    pub fn expect<T>(&mut self, what: &str, mut wanted: impl FnMut(&Note) -> Option<T>) -> T {
        let begun = Instant::now();
        let mut seen = 0;
        loop {
            for position in seen..self.notes.len() {
                if let Some(found) = wanted(&self.notes[position]) {
                    self.notes.remove(position);
                    return found;
                }
            }
            seen = self.notes.len();
            assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain; said was {:?}", self.notes);
            self.turn(PATIENCE);
        }
    }

    /// Takes turns without waiting until `done` returns true, for conditions that only the peer can show.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain; said was {:?}", self.notes);
            self.turn(Duration::ZERO);
        }
    }

    /// Waits for `len` more bytes from a connection, and removes them from the notes.
    pub fn received(&mut self, of: Token, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend(self.lease(of));
        }
        assert_eq!(bytes.len(), len, "not a byte more than was sent");
        bytes
    }

    /// Waits for the next lease of a connection.
    pub fn lease(&mut self, of: Token) -> Vec<u8> {
        self.expect("bytes", |note| match note {
            Note::Received(token, bytes) if *token == of => Some(bytes.clone()),
            _ => None,
        })
    }

    pub fn peer_closed(&mut self, of: Token) -> bool {
        self.expect("the peer's end", |note| match note {
            Note::PeerClosed { token, behind_data } if *token == of => Some(*behind_data),
            _ => None,
        })
    }

    pub fn send(&mut self, token: Token, segments: Vec<Segment>) {
        self.submit(token, Op::Send(Send { segments, more: false }));
    }

    /// Waits until a send succeeds, and returns the number of bytes.
    pub fn sent(&mut self, of: Token) -> u64 {
        self.expect("a send's completion", |note| match note {
            Note::Sent { token, bytes, .. } if *token == of => Some(*bytes),
            _ => None,
        })
    }

    /// Waits until an operation fails. Returns the fault and the number of bytes sent before.
    pub fn failed(&mut self, of: Token, kind: OpKind) -> (OpError, u64) {
        self.expect("a failure", |note| match note {
            Note::Failed { token, op, fault, sent, .. } if *token == of && *op == kind => {
                Some((*fault, *sent))
            }
            _ => None,
        })
    }

    /// Closes a source and waits for its end. Returns the segments of an unfinished send.
    pub fn close(&mut self, token: Token, op: Op) -> Vec<Segment> {
        self.submit(token, op);
        self.closed(token)
    }

    pub fn closed(&mut self, of: Token) -> Vec<Segment> {
        let begun = Instant::now();
        loop {
            let found =
                self.notes.iter().position(|note| matches!(note, Note::Closed { token, .. } if *token == of));
            if let Some(position) = found {
                let follows = self.notes.iter().skip(position + 1).any(|note| note.token() == Some(of));
                assert!(!follows, "something follows Closed: {:?}", self.notes);
                match self.notes.remove(position) {
                    Some(Note::Closed { segments, .. }) => return segments,
                    _ => unreachable!("found above"),
                }
            }
            assert!(begun.elapsed() < PATIENCE, "waited for Closed in vain; said was {:?}", self.notes);
            self.turn(PATIENCE);
        }
    }

    /// Makes a peer send everything, with turns in between when the connection is full.
    pub fn peer_sends(&mut self, peer: &mut S::Peer, bytes: &[u8]) {
        let mut sent = 0;
        self.until("room for the peer to send", |_| {
            sent += peer.send(&bytes[sent..]);
            sent == bytes.len()
        });
    }

    /// Waits until a peer has received `len` more bytes.
    pub fn peer_receives(&mut self, peer: &mut S::Peer, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.until("bytes at the peer", |_| {
            peer.receive(len - bytes.len(), &mut bytes);
            assert!(
                bytes.len() == len || peer.end() == End::Open,
                "{:?} after {} bytes",
                peer.end(),
                bytes.len()
            );
            bytes.len() == len
        });
        bytes
    }

    /// Waits until a peer has reached the end of stream. Returns the bytes before it.
    pub fn peer_ends(&mut self, peer: &mut S::Peer) -> (Vec<u8>, End) {
        let mut bytes = Vec::new();
        self.until("the end at the peer", |_| {
            peer.receive(usize::MAX, &mut bytes);
            peer.end() != End::Open
        });
        (bytes, peer.end())
    }

    /// Processes everything in progress.
    pub fn settle(&mut self) {
        S::settle(self);
    }

    /// Sends a byte over a separate connection and waits for it, so that everything the kernel had to report before has been
    /// reported too.
    pub fn echo(&mut self) {
        if self.control.is_none() {
            let (token, peer) = self.connection();
            self.submit(token, Op::Recv);
            self.control = Some((token, peer));
        }
        let (token, mut peer) = self.control.take().expect("made above");
        for _ in 0..3 {
            assert_eq!(peer.send(b"!"), 1);
            self.received(token, 1);
        }
        self.control = Some((token, peer));
    }

    /// Fails if `token` has an event that no case expected.
    pub fn silent_about(&mut self, token: Token) {
        self.settle();
        let said: Vec<_> = self.notes.iter().filter(|note| note.token() == Some(token)).collect();
        assert!(said.is_empty(), "unexpected: {said:?}");
    }

    /// Closes all sources, and checks that the reactor is empty again.
    pub fn finish(mut self) {
        self.control = None;
        while let Some(token) = self.open.pop() {
            self.close(token, Op::Abort);
        }
        let late: Vec<_> = self.notes.iter().filter(|note| matches!(note, Note::Accepted { .. })).collect();
        assert!(late.is_empty(), "connections that no case asked for: {late:?}");
        assert_eq!(self.reactor().occupancy(), self.at_start, "something was left behind");
    }
}

/// Bytes without repetition, so that lost, duplicated or moved pieces show.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut random = Random::new(len as u64);
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        let word = random.next().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and any number is a valid seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
