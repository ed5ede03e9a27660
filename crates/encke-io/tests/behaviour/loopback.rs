//! Real back ends over real sockets: the scene, and the cases that need an operating system, but no particular one.

use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use encke_io::offload::{self, Pool};
use encke_io::socket::{ListenOptions, Stream, unconnected};
use encke_io::{Address, Job, JobLane, Listener, Op, Reactor, ReactorSource, Token};

use crate::stage::{End, Note, PATIENCE, Peer, Scene, Stage, pattern};
use crate::system;
use crate::temporary::TemporaryFile;

/// Creates a reactor. A back end that this system lacks fails its cases; they are never skipped.
pub trait BackEnd {
    type Reactor: Reactor;
    const BURST: usize;
    /// Whether [`Reactor::gather`] has an effect, on a kernel that supports it.
    #[cfg_attr(windows, allow(dead_code, reason = "only io_uring can batch events"))]
    const GATHERS: bool;
    /// Whether the system sends files by itself.
    const TRANSMITS: bool = false;

    fn open(pool: Pool) -> Self::Reactor;
}

/// Defines back ends: a name, the reactor, its constructor, its [`Scene::BURST`], and whether it can batch events.
macro_rules! back_ends {
    ($($name:ident: $reactor:ty = $make:expr, burst $burst:expr, gathers $gathers:expr;)*) => {
        $(
            pub struct $name;

            impl BackEnd for $name {
                type Reactor = $reactor;
                const BURST: usize = $burst;
                const GATHERS: bool = $gathers;

                fn open(pool: Pool) -> Self::Reactor {
                    ($make)(pool).unwrap_or_else(|error| panic!("{error}"))
                }
            }
        )*
    };
}
#[cfg(target_os = "linux")]
pub(crate) use back_ends;

#[cfg(windows)]
back_ends! {
    Afd: encke_io::AfdReactor = |pool| encke_io::AfdReactor::transmitting(pool, false), burst 1, gathers false;
}

/// As on a server edition of Windows, which sends files by TransmitFile.
#[cfg(windows)]
pub struct AfdServer;

#[cfg(windows)]
impl BackEnd for AfdServer {
    type Reactor = encke_io::AfdReactor;
    const BURST: usize = 1;
    const GATHERS: bool = false;
    const TRANSMITS: bool = true;

    fn open(pool: Pool) -> Self::Reactor {
        encke_io::AfdReactor::transmitting(pool, true).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Maximum number of jobs queued for the one thread of a scene's pool.
const JOBS: usize = 2;

pub struct Loopback<B: BackEnd> {
    reactor: B::Reactor,
    pool: Pool,
    of: PhantomData<B>,
}

impl<B: BackEnd> Drop for Loopback<B> {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl<B: BackEnd> Scene for Loopback<B> {
    type Reactor = B::Reactor;
    type Peer = Client;
    const BURST: usize = B::BURST;
    const TELLS_END_BEHIND_DATA: bool = cfg!(not(windows));
    // Linux lets a send buffer grow to 4 MiB (net.ipv4.tcp_wmem).
    const TOO_MUCH: usize = 16 << 20;

    fn open() -> Self {
        let pool = Pool::start(1, JOBS).expect("room for a thread");
        Self { reactor: B::open(pool.clone()), pool, of: PhantomData }
    }

    fn reactor(&mut self) -> &mut Self::Reactor {
        &mut self.reactor
    }

    fn listener(&mut self) -> Listener {
        let any_port = Address::Inet(SocketAddr::from(([127, 0, 0, 1], 0)));
        Listener::bind(&any_port, ListenOptions { backlog: 128, shared: false, mode: None })
            .expect("a free port")
    }

    fn peer(&mut self, address: &Address, window: Option<usize>) -> Client {
        let address = Stage::<Self>::inet(address);
        // The kernel completes the connection even if it is never accepted.
        let stream = system::connect(&address, window);
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_nonblocking(true).expect("a socket");
        Client { stream, end: End::Open, is_shut: false }
    }

    fn unconnected(&mut self, address: &SocketAddr) -> Stream {
        unconnected(address, None).expect("a socket")
    }

    fn elapse(&mut self) -> bool {
        true
    }

    fn settle(stage: &mut Stage<Self>) {
        stage.echo();
    }
}

pub struct Client {
    stream: TcpStream,
    end: End,
    /// Whether this side has ended its stream.
    is_shut: bool,
}

impl Client {
    /// Counts the bytes of a read or write, and records the end of the connection.
    fn count(&mut self, result: std::io::Result<usize>) -> usize {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, WouldBlock};
        match result {
            Ok(count) => count,
            Err(error) if error.kind() == WouldBlock => 0,
            Err(error) if matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted) => {
                self.end = End::Reset;
                0
            }
            Err(error) => panic!("the peer's socket: {error}"),
        }
    }
}

impl Peer for Client {
    fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket")
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        let result = self.stream.write(bytes);
        self.count(result)
    }

    fn receive(&mut self, limit: usize, into: &mut Vec<u8>) {
        let mut piece = vec![0; 256 * 1024];
        let mut left = limit;
        while left > 0 && self.end == End::Open {
            let wanted = left.min(piece.len());
            let result = self.stream.read(&mut piece[..wanted]);
            if matches!(result, Ok(0)) {
                let was_reset = !self.is_shut && system::was_reset(&self.stream);
                self.end = if was_reset { End::Reset } else { End::Finished };
            }
            let count = self.count(result);
            if count == 0 {
                return;
            }
            into.extend(&piece[..count]);
            left -= count;
        }
    }

    fn end(&self) -> End {
        self.end
    }

    fn shutdown(&mut self) {
        self.is_shut = true;
        // A connection that the other side has reset is already closed.
        let _down = self.stream.shutdown(std::net::Shutdown::Write);
    }

    fn reset(self) {
        system::reset_on_close(&self.stream);
    }
}

pub fn many_wakes_are_one_event<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    for _ in 0..3 {
        let waker = stage.reactor().waker();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| waker.wake()));
            }
        });
        // All wakes happen before the wait.
        stage.expect("the wake", |note| matches!(note, Note::Woken).then_some(()));
        stage.settle();
        assert!(stage.notes.is_empty(), "one event for all: {:?}", stage.notes);
    }
}

pub fn a_wake_ends_the_wait<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    woken_by_another(stage, 1_000);
}

/// Waits for a wake from another thread, `times` times.
pub fn woken_by_another<B: BackEnd>(stage: &mut Stage<Loopback<B>>, times: u32) {
    let waker = stage.reactor().waker();
    let (begin, begun) = mpsc::channel();
    let thread = thread::spawn(move || {
        for () in begun {
            waker.wake();
        }
    });
    for _ in 0..times {
        begin.send(()).expect("the thread waits");
        stage.expect("the wake", |note| matches!(note, Note::Woken).then_some(()));
    }
    drop(begin);
    thread.join().expect("no panic");
}

pub fn wakes_of_many_threads_are_never_lost<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    const WAKES: usize = 20_000;
    let count = AtomicUsize::new(0);
    let wakers = [stage.reactor().waker(), stage.reactor().waker()];
    let count = &count;
    thread::scope(|scope| {
        for waker in wakers {
            scope.spawn(move || {
                for _ in 0..WAKES {
                    count.fetch_add(1, Ordering::Release);
                    waker.wake();
                }
            });
        }
        while count.load(Ordering::Acquire) < 2 * WAKES {
            stage.expect("a wake", |note| matches!(note, Note::Woken).then_some(()));
            stage.notes.clear();
        }
    });
}

pub fn a_job_comes_back_as_an_event<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    for key in 0..20_u64 {
        stage.submit(
            Token::NONE,
            Op::Offload(Job { key, lane: JobLane::Local, run: Box::new(move || Box::new(key * 2)) }),
        );
        let done = offloaded(stage, key).expect("it ran");
        assert_eq!(*done.downcast::<u64>().expect("what the job returned"), key * 2);
    }
    stage.submit(
        Token::NONE,
        Op::Offload(Job { key: 99, lane: JobLane::Local, run: Box::new(|| panic!("as the case wants")) }),
    );
    assert!(offloaded(stage, 99).is_none(), "a job that panics has no result");
}

pub fn a_job_too_many_is_refused<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel::<()>();
    let blocker = move || -> encke_io::op::Done {
        begin.send(()).expect("the case waits");
        Box::new(released.recv().is_ok())
    };
    stage.submit(Token::NONE, Op::Offload(Job { key: 0, lane: JobLane::Local, run: Box::new(blocker) }));
    begun.recv().expect("the job runs");
    for key in 1..=JOBS as u64 + 1 {
        stage.submit(
            Token::NONE,
            Op::Offload(Job { key, lane: JobLane::Local, run: Box::new(move || Box::new(key)) }),
        );
    }
    assert_eq!(stage.reactor().occupancy().jobs, JOBS + 2);
    assert!(offloaded(stage, JOBS as u64 + 1).is_none());
    release.send(()).expect("the job waits");
    for key in 0..=JOBS as u64 {
        assert!(offloaded(stage, key).is_some(), "job {key} was in the queue");
    }
}

pub fn hanging_remote_jobs_delay_no_local_job<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let hanging = (offload::REMOTE_THREADS_MAX + offload::REMOTE_QUEUE_MAX) as u64;
    let (begin, begun) = mpsc::channel::<()>();
    for key in 1..=hanging {
        let (released, begin) = (Arc::clone(&released), begin.clone());
        let hang = move || -> encke_io::op::Done {
            begin.send(()).expect("the case waits");
            Box::new(released.lock().expect("no panic").recv().is_ok())
        };
        stage.submit(Token::NONE, Op::Offload(Job { key, lane: JobLane::Remote, run: Box::new(hang) }));
        if key <= offload::REMOTE_THREADS_MAX as u64 {
            begun.recv().expect("each of the first has a thread of its own");
        }
    }
    let run = || -> encke_io::op::Done { Box::new(()) };
    stage.submit(
        Token::NONE,
        Op::Offload(Job { key: hanging + 1, lane: JobLane::Remote, run: Box::new(run) }),
    );
    assert!(offloaded(stage, hanging + 1).is_none(), "the queue of remote jobs is full");
    stage.submit(Token::NONE, Op::Offload(Job { key: 0, lane: JobLane::Local, run: Box::new(run) }));
    assert!(offloaded(stage, 0).is_some(), "a local job");
    drop(release);
    for key in 1..=hanging {
        assert!(offloaded(stage, key).is_some(), "remote job {key}");
    }
}

pub fn hashes_take_no_thread_of_local_jobs<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel::<()>();
    let hash = move || -> encke_io::op::Done {
        begin.send(()).expect("the case waits");
        Box::new(released.recv().is_ok())
    };
    stage.submit(Token::NONE, Op::Offload(Job { key: 1, lane: JobLane::Hash, run: Box::new(hash) }));
    begun.recv().expect("the hash runs");
    let run = || -> encke_io::op::Done { Box::new(()) };
    stage.submit(Token::NONE, Op::Offload(Job { key: 0, lane: JobLane::Local, run: Box::new(run) }));
    assert!(offloaded(stage, 0).is_some(), "a local job");
    drop(release);
    assert!(offloaded(stage, 1).is_some(), "the hash");
}

fn offloaded<B: BackEnd>(stage: &mut Stage<Loopback<B>>, wanted: u64) -> Option<encke_io::op::Done> {
    let begun = Instant::now();
    loop {
        let found =
            stage.notes.iter().position(|note| matches!(note, Note::Offloaded { key, .. } if *key == wanted));
        if let Some(Note::Offloaded { done, .. }) = found.and_then(|position| stage.notes.remove(position)) {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "job {wanted} did not come back");
        stage.turn(PATIENCE);
    }
}

pub fn a_wait_ends_at_its_moment<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, _peer) = stage.connection();
    stage.submit(token, Op::Recv);
    for millis in [0, 1, 30] {
        let until = stage.reactor().now().plus(Duration::from_millis(millis));
        let mut now = stage.reactor().wait(Some(until)).expect("the system waits");
        while now.mono_ns < until {
            // A spurious event may arrive in between.
            assert!(stage.reactor().next().is_some(), "woken early for nothing");
            now = stage.reactor().wait(Some(until)).expect("the system waits");
        }
        assert!(now.mono_ns < until + 5_000_000_000, "{} ns late", now.mono_ns - until);
        assert!(stage.reactor().next().is_none());
    }
    let begun = stage.reactor().now();
    let now = stage.reactor().wait(Some(begun.mono_ns / 2)).expect("the system waits");
    assert!(now.mono_ns < begun.plus(PATIENCE), "a moment that is past is not waited for");
}

pub fn what_was_not_fetched_comes_first<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let mut connections: Vec<_> = (0..10).map(|_| stage.connection()).collect();
    for (token, peer) in &mut connections {
        stage.submit(*token, Op::Recv);
        assert_eq!(peer.send(b"x"), 1);
    }
    let mut told = Vec::new();
    let begun = Instant::now();
    while told.len() < connections.len() {
        assert!(begun.elapsed() < PATIENCE, "only {told:?} were told");
        let far = stage.reactor().now().plus(PATIENCE);
        // One event per turn: no wait may block while events are left.
        stage.reactor().wait(Some(far)).expect("the system waits");
        if let Some(encke_io::Event::Received { token, .. }) = stage.reactor().next() {
            told.push(token.index);
        }
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), connections.len());
}

pub fn a_flooded_connection_can_be_paused_at_every_event<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, peer) = stage.connection();
    let message = pattern(8 << 20);
    let flood = thread::spawn({
        let message = message.clone();
        move || {
            peer.stream.set_nonblocking(false).expect("a socket");
            (&peer.stream).write_all(&message).expect("somebody reads");
        }
    });
    let mut received = Vec::new();
    let mut ended = false;
    stage.submit(token, Op::Recv);
    while !ended {
        let note = stage.expect("bytes or the end", |note| match note {
            Note::Received(_, bytes) => Some(Some(bytes.clone())),
            Note::PeerClosed { behind_data, .. } => Some((*behind_data).then(Vec::new)),
            _ => None,
        });
        match note {
            Some(bytes) => received.extend(bytes),
            None => ended = true,
        }
        stage.submit(token, Op::Pause);
        for _ in 0..3 {
            let before = stage.notes.len();
            stage.turn(Duration::ZERO);
            let bytes = stage.notes.iter().skip(before).filter(|note| matches!(note, Note::Received(..)));
            assert_eq!(bytes.count(), 0, "nothing is received while it is paused");
        }
        stage.submit(token, Op::Recv);
    }
    flood.join().expect("no panic");
    assert!(received == message, "{} of {} bytes", received.len(), message.len());
}

pub fn a_flooded_connection_can_be_closed<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    for op in [Op::Close, Op::Abort] {
        let (token, peer) = stage.connection();
        stage.submit(token, Op::Recv);
        let flood = thread::spawn(move || {
            peer.stream.set_nonblocking(false).expect("a socket");
            let chunk = [0; 100_000];
            while (&peer.stream).write_all(&chunk).is_ok() {}
        });
        for _ in 0..20 {
            stage.expect("bytes", |note| matches!(note, Note::Received(..)).then_some(()));
        }
        stage.close(token, op);
        stage.notes.clear();
        flood.join().expect("no panic");
    }
}

pub fn a_paused_connection_holds_no_more_than_its_socket<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    // The number of bytes that the kernel accepts for a peer that never reads.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Inet(listener.local_addr().expect("bound"));
    let mut ignored = stage.scene.peer(&address, None);
    let ignorant = listener.accept().expect("a connection");
    let taken = fill(stage, &mut ignored);
    drop(ignorant);

    let (token, mut peer) = stage.connection();
    stage.submit(token, Op::Recv);
    stage.settle();
    stage.submit(token, Op::Pause);
    stage.settle();
    let sent = fill(stage, &mut peer);
    assert!(sent <= 2 * taken, "{sent} bytes were taken, where a socket takes {taken}");
    stage.silent_about(token);
    stage.submit(token, Op::Recv);
    assert_eq!(stage.received(token, sent).len(), sent);
}

/// Makes a peer send until no more bytes are accepted.
fn fill<B: BackEnd>(stage: &mut Stage<Loopback<B>>, peer: &mut Client) -> usize {
    let chunk = pattern(100_000);
    let (mut sent, mut refused) = (0, 0);
    while refused < 3 {
        let count = peer.send(&chunk);
        sent += count;
        refused = if count == 0 { refused + 1 } else { 0 };
        stage.settle();
    }
    sent
}

pub fn a_port_is_free_as_soon_as_its_listener_is_gone<B: BackEnd>(_: &mut Stage<Loopback<B>>) {
    // An address used only by this case, so that no other case gets the port meanwhile.
    let mut address = Address::Inet(SocketAddr::from(([127, 0, 0, 9], 0)));
    let options = ListenOptions { backlog: 8, shared: false, mode: None };
    for round in 0..10 {
        let listener = Listener::bind(&address, options)
            .unwrap_or_else(|error| panic!("the port is still taken in round {round}: {error}"));
        address = listener.address().clone();
        let mut stage = Stage::<Loopback<B>>::open();
        let token = stage.adopt(ReactorSource::Listener(listener));
        stage.submit(token, Op::Accept);
        let _peer = stage.scene.peer(&address, None);
        stage.accepted(token);
        if round % 2 == 0 {
            stage.close(token, Op::Close);
            drop(Listener::bind(&address, options).expect("it was closed"));
        }
        drop(stage);
    }
}

pub fn a_reactor_that_is_dropped_lets_go_of_everything<B: BackEnd>(_: &mut Stage<Loopback<B>>) {
    let mut stage = Stage::<Loopback<B>>::open();
    let (receiving, mut first) = stage.connection();
    let (sending, mut second) = stage.connection_with(Some(4 * 1024));
    let (paused, mut third) = stage.connection();
    stage.submit(receiving, Op::Recv);
    stage.submit(paused, Op::Recv);
    stage.send(sending, vec![encke_io::Segment::Bytes(pattern(32 << 20))]);
    stage.settle();
    stage.submit(paused, Op::Pause);
    stage.settle();
    stage.settle();
    let (retired, address) = stage.listen();
    stage.submit(retired, Op::Retire);
    let target = Stage::<Loopback<B>>::inet(&address);
    let connecting = stage.unconnected(&target);
    stage.submit(connecting, Op::Connect(target));
    let (listener, _) = stage.listen();
    stage.submit(listener, Op::Accept);
    stage.settle();
    drop(stage);
    for peer in [&mut first, &mut second, &mut third] {
        let begun = Instant::now();
        while peer.end() == End::Open {
            assert!(begun.elapsed() < PATIENCE, "a connection is still open");
            peer.receive(usize::MAX, &mut Vec::new());
        }
    }
}

pub fn watched_once<B: BackEnd>(stage: &mut Stage<Loopback<B>>, of: Token) {
    stage.expect("news of the descriptor", |note| {
        matches!(note, Note::Watched(token) if *token == of).then_some(())
    });
}

pub fn a_changed_folder_is_news<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    use encke_io::changes::Changes;
    use encke_io::files::{Links, Patience, Root};
    let file = TemporaryFile::new("watched", b"before");
    let root = Root::new(file.folder()).expect("made above");
    let folder = root.open(b"", Links::Deny, Patience::Patient).expect("made above");
    let mut changes = Changes::new().expect("a source of notifications");
    changes.watch(&folder).expect("room for a watch");
    let token = stage.adopt(ReactorSource::Watched(changes.watched().expect("a descriptor")));
    stage.submit(token, Op::Watch);
    stage.silent_about(token);
    file.shrink(2);
    watched_once(stage, token);
    let mut seen = 0;
    changes.read(|_| seen += 1).expect("news to read");
    assert!(seen > 0);
}
