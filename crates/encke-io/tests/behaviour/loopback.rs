//! Real back ends over real sockets: the scene, and the cases that need an operating system.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use encke_io::offload::{self, Pool};
use encke_io::socket::{ListenOptions, Stream, Watched, unconnected};
use encke_io::{
    Address, Job, JobLane, Listener, Op, OpError, OpKind, Peer as Origin, Reactor, ReactorSource, Token,
    Unavailable, UringReactor, UringSettings,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::stage::{End, Note, PATIENCE, Peer, Scene, Stage, pattern};
use crate::temporary::TemporaryFile;

/// Creates a reactor. A back end that this system lacks fails its cases; they are never skipped.
pub trait BackEnd {
    type Reactor: Reactor;
    const BURST: usize;
    /// Whether [`Reactor::gather`] has an effect, on a kernel that supports it.
    const GATHERS: bool;

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

back_ends! {
    Poll: encke_io::PollReactor = encke_io::PollReactor::new, burst 1, gathers false;
    EpollLevel: encke_io::EpollLevelReactor = encke_io::EpollLevelReactor::new, burst 1, gathers false;
    EpollEdge: encke_io::EpollEdgeReactor = encke_io::EpollEdgeReactor::new, burst 1, gathers false;
    // The kernel receives up to 32 times from one socket before the next (MULTISHOT_MAX_RETRY).
    Uring: UringReactor = UringReactor::new, burst 33, gathers true;
    // As on a kernel without multishot receive.
    UringSingle: UringReactor = |pool| UringReactor::with(pool, SINGLE), burst 2, gathers true;
    // With so few buffers that none is ever free.
    UringStarved: UringReactor = |pool| UringReactor::with(pool, STARVED), burst 33, gathers true;
    // Every wait batches events.
    UringGathering: UringReactor = gathering, burst 33, gathers true;
}

const SINGLE: UringSettings =
    UringSettings { buffers: 256, buffer_bytes: 16 * 1024, parked_bytes: 16 << 20, multishot: false };
const STARVED: UringSettings =
    UringSettings { buffers: 2, buffer_bytes: 512, parked_bytes: 600, multishot: true };

fn gathering(pool: Pool) -> Result<UringReactor, Unavailable> {
    let mut reactor = UringReactor::new(pool)?;
    reactor.gather(Duration::from_micros(300));
    Ok(reactor)
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
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        if let Some(window) = window {
            sockopt::set_socket_recv_buffer_size(&socket, window).expect("a buffer of that size");
        }
        sockopt::set_tcp_nodelay(&socket, true).expect("a TCP socket");
        // The kernel completes the connection even if it is never accepted.
        rustix::net::connect(&socket, &address).expect("a listener");
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true).expect("a socket");
        Client { stream, end: End::Open }
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
}

impl Client {
    /// Counts the bytes of a read or write, and records the end of the connection.
    fn count(&mut self, result: std::io::Result<usize>) -> usize {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, WouldBlock};
        match result {
            Ok(count) => count,
            Err(error) if error.kind() == WouldBlock => 0,
            Err(error) if matches!(error.kind(), ConnectionReset | BrokenPipe) => {
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
                self.end = End::Finished;
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
        // A connection that the other side has reset is already closed.
        let _down = self.stream.shutdown(std::net::Shutdown::Write);
    }

    fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).expect("a socket");
    }
}

pub fn a_unix_socket_serves_alike<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let folder = TemporaryFile::new("unix", b"");
    let path = folder.folder().join("socket");
    let address = Address::Unix(path.clone());
    let options = ListenOptions { backlog: 8, shared: false, mode: Some(0o600) };
    let listener = Listener::bind(&address, options).expect("a free name");
    let listener = stage.adopt(ReactorSource::Listener(listener));
    stage.submit(listener, Op::Accept);
    let mut client = UnixStream::connect(&path).expect("a listener");
    let (token, origin) = stage.accepted(listener);
    assert_eq!(origin, Origin::Local);
    stage.submit(token, Op::Recv);
    client.write_all(b"ping").expect("sent");
    assert_eq!(stage.received(token, 4), b"ping");
    stage.send(token, vec![encke_io::Segment::Bytes(b"pong".to_vec())]);
    stage.sent(token);
    let mut answer = [0; 4];
    client.read_exact(&mut answer).expect("received");
    assert_eq!(&answer, b"pong");
    drop(client);
    assert!(!stage.peer_closed(token));
}

pub fn a_connect_under_way_can_be_given_up<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (listener, address) = stage.listen();
    // A retired listener does not respond, so the connection attempt stays in progress.
    stage.submit(listener, Op::Retire);
    let target = Stage::<Loopback<B>>::inet(&address);
    let client = stage.unconnected(&target);
    stage.submit(client, Op::Connect(target));
    stage.silent_about(client);
    stage.submit(client, Op::Cancel);
    assert_eq!(stage.failed(client, OpKind::Connect), (OpError::Canceled, 0));
    stage.silent_about(client);
    let other = stage.unconnected(&target);
    stage.submit(other, Op::Connect(target));
    stage.settle();
    stage.close(other, Op::Close);
}

/// Connects to a server of the case's own. Returns the connection and the server's side of it.
fn connected_to<B: BackEnd>(
    stage: &mut Stage<Loopback<B>>,
    server: &TcpListener,
    stream: Stream,
) -> (Token, TcpStream) {
    let target = server.local_addr().expect("bound");
    let token = stage.adopt(ReactorSource::Stream(stream));
    stage.submit(token, Op::Connect(target));
    stage.expect("the connection", |note| {
        matches!(note, Note::Connected(other) if *other == token).then_some(())
    });
    (token, server.accept().expect("it is there").0)
}

pub fn a_recycled_socket_connects_again<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = server.local_addr().expect("bound");
    let mut stream = unconnected(&target, None).expect("a socket");
    let mut ports = BTreeSet::new();
    for round in 0..20 {
        let (token, mut peer) = connected_to(stage, &server, stream);
        assert!(ports.insert(peer.peer_addr().expect("connected").port()), "a connection has its own port");
        stage.submit(token, Op::Recv);
        // The first send of a connection and later ones differ in the use of Nagle's algorithm.
        for len in [1, 2_000, 3] {
            let question = pattern(len + round);
            stage.send(token, vec![encke_io::Segment::Bytes(question.clone())]);
            stage.sent(token);
            let mut heard = vec![0; question.len()];
            peer.read_exact(&mut heard).expect("the question");
            assert!(heard == question);
        }
        let answer = pattern(100 + round);
        peer.write_all(&answer).expect("room for it");
        peer.shutdown(std::net::Shutdown::Write).expect("connected");
        assert_eq!(stage.received(token, answer.len()), answer);
        assert!(!stage.peer_closed(token));
        stage.close(token, Op::Recycle);
        assert_eq!(peer.read(&mut [0]).expect("an end in order"), 0);
        stream = stage.reactor().spare().expect("it is kept");
        assert!(stage.reactor().spare().is_none(), "and it is one");
        stage.silent_about(token);
    }
}

pub fn only_what_is_over_in_order_is_kept<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = server.local_addr().expect("bound");
    let another = || unconnected(&target, None).expect("a socket");
    // The peer has not ended its stream.
    let (token, mut peer) = connected_to(stage, &server, another());
    stage.submit(token, Op::Recv);
    stage.settle();
    stage.close(token, Op::Recycle);
    assert_eq!(peer.read(&mut [0]).expect("an end in order"), 0);
    assert!(stage.reactor().spare().is_none());
    // The peer has ended its stream, but unread bytes precede the end.
    let (token, mut peer) = connected_to(stage, &server, another());
    peer.write_all(b"unread").expect("room for it");
    peer.shutdown(std::net::Shutdown::Write).expect("connected");
    stage.settle();
    stage.close(token, Op::Recycle);
    let _end_or_reset = peer.read(&mut [0]);
    assert!(stage.reactor().spare().is_none());
    // The peer has reset the connection.
    let (token, peer) = connected_to(stage, &server, another());
    stage.submit(token, Op::Recv);
    sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("a socket");
    drop(peer);
    assert_eq!(stage.failed(token, OpKind::Recv).0, OpError::Reset);
    stage.close(token, Op::Recycle);
    assert!(stage.reactor().spare().is_none());
    // The stream has ended, but the connection is closed without a request to keep its socket.
    let (token, peer) = connected_to(stage, &server, another());
    stage.submit(token, Op::Recv);
    peer.shutdown(std::net::Shutdown::Write).expect("connected");
    assert!(!stage.peer_closed(token));
    stage.close(token, Op::Close);
    assert!(stage.reactor().spare().is_none());
    // Only a limited number of sockets is kept.
    for _ in 0..100 {
        let (token, peer) = connected_to(stage, &server, another());
        stage.submit(token, Op::Recv);
        peer.shutdown(std::net::Shutdown::Write).expect("connected");
        assert!(!stage.peer_closed(token));
        stage.close(token, Op::Recycle);
    }
    assert_eq!(std::iter::from_fn(|| stage.reactor().spare()).count(), 64);
}

pub fn a_retired_listener_serves_those_under_way_and_no_others<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (listener, address) = stage.listen();
    let _early: Vec<_> = (0..5).map(|_| stage.scene.peer(&address, None)).collect();
    stage.submit(listener, Op::Accept);
    stage.submit(listener, Op::Retire);
    for _ in 0..5 {
        stage.accepted(listener);
    }
    let target = Stage::<Loopback<B>>::inet(&address);
    let late = unconnected(&target, None).expect("a socket");
    let late = stage.adopt(ReactorSource::Stream(late));
    stage.submit(late, Op::Connect(target));
    stage.silent_about(late);
    stage.silent_about(listener);
}

pub fn a_watched_descriptor_tells_when_it_is_readable<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("a descriptor");
    let ring = || rustix::io::write(&bell, &1_u64.to_ne_bytes()).expect("room for one");
    let hush = || rustix::io::read(&bell, &mut [0_u8; 8]).expect("it was rung");
    let watched = Watched::new(bell.as_fd().try_clone_to_owned().expect("a descriptor"));
    let token = stage.adopt(ReactorSource::Watched(watched));
    ring();
    stage.silent_about(token);
    stage.submit(token, Op::Watch);
    for _ in 0..5 {
        watched_once(stage, token);
        hush();
        stage.settle();
        stage.notes.clear();
        ring();
    }
    watched_once(stage, token);
    hush();
    stage.settle();
    stage.notes.clear();
    stage.submit(token, Op::Pause);
    stage.settle();
    ring();
    stage.silent_about(token);
    stage.submit(token, Op::Watch);
    watched_once(stage, token);
    // Closed while it is readable, and while another descriptor of the same file stays open: no event may follow.
    stage.close(token, Op::Close);
    stage.silent_about(token);
    let until = stage.reactor().now().plus(Duration::from_millis(5));
    let now = stage.reactor().wait(Some(until)).expect("the system waits");
    assert!(now.mono_ns >= until, "what is closed wakes nobody");
}

pub fn a_notice_comes_before_what_was_sent_after_it<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("a descriptor");
    let (token, mut peer) = stage.connection();
    let watched = Watched::new(bell.as_fd().try_clone_to_owned().expect("a descriptor"));
    let notices = stage.adopt(ReactorSource::Watched(watched));
    stage.submit(token, Op::Recv);
    stage.submit(notices, Op::Watch);
    stage.settle();
    for _ in 0..20 {
        rustix::io::write(&bell, &1_u64.to_ne_bytes()).expect("room for one");
        assert_eq!(peer.send(b"request"), 7);
        stage.turn(PATIENCE);
        let first = stage.notes.pop_front();
        assert!(matches!(first, Some(Note::Watched(of)) if of == notices), "first was {first:?}");
        rustix::io::read(&bell, &mut [0_u8; 8]).expect("it was rung");
        stage.received(token, 7);
        stage.settle();
        stage.notes.clear();
    }
}

pub fn what_the_peer_has_not_got_is_unacknowledged<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let (token, mut peer) = stage.connection_with(Some(4 * 1024));
    let message = pattern(64 * 1024);
    stage.send(token, vec![encke_io::Segment::Bytes(message.clone())]);
    assert_eq!(stage.sent(token), message.len() as u64);
    stage.settle();
    let before = stage.reactor().unacknowledged(token);
    assert!(before > 0 && before <= message.len() as u64, "{before} bytes for one who reads nothing");
    assert!(stage.peer_receives(&mut peer, message.len()) == message);
    stage.until("the last acknowledgement", |stage| stage.reactor().unacknowledged(token) == 0);
}

fn watched_once<B: BackEnd>(stage: &mut Stage<Loopback<B>>, of: Token) {
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
    let mut changes = Changes::new().expect("an inotify instance");
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
fn woken_by_another<B: BackEnd>(stage: &mut Stage<Loopback<B>>, times: u32) {
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

/// Whether a wait of io_uring can batch completions (Linux 6.12).
fn kernel_gathers() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_str().expect("a version");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().expect("a number"));
    let version: (u32, u32) = (numbers.next().expect("a major"), numbers.next().expect("a minor"));
    version >= (6, 12)
}

pub fn what_comes_while_it_gathers_is_told_by_one_wait<B: BackEnd>(stage: &mut Stage<Loopback<B>>) {
    let mut connections: Vec<_> = (0..10).map(|_| stage.connection()).collect();
    for (token, _) in &connections {
        stage.submit(*token, Op::Recv);
    }
    let waker = stage.reactor().waker();
    for micros in [0, 1, 500, 30_000] {
        stage.settle();
        stage.notes.clear();
        let time = Duration::from_micros(micros);
        let gathers = stage.reactor().gather(time);
        assert_eq!(gathers, B::GATHERS && kernel_gathers() && micros > 0, "{micros} us");
        waker.wake();
        for (_, peer) in &mut connections {
            assert_eq!(peer.send(b"early"), 5);
        }
        let begun = stage.reactor().now();
        stage.turn(PATIENCE);
        let took = Duration::from_nanos(stage.reactor().now().mono_ns - begun.mono_ns);
        assert!(took < time + Duration::from_secs(5), "it took {took:?}");
        if gathers {
            assert!(took >= time, "neither bytes nor a wake end it, and it took {took:?}");
            assert_eq!(stage.notes.len(), 11, "all are told by one wait: {:?}", stage.notes);
        }
        for (token, _) in &connections {
            assert_eq!(stage.received(*token, 5), b"early");
        }
        stage.expect("the wake", |note| matches!(note, Note::Woken).then_some(()));
    }
    // No event arrives during the minimum wait: the next event is reported at once, and a deadline ends the wait.
    stage.reactor().gather(Duration::from_micros(200));
    woken_by_another(stage, 100);
    for millis in [0, 1, 30] {
        stage.reactor().gather(PATIENCE);
        let until = stage.reactor().now().plus(Duration::from_millis(millis));
        let now = stage.reactor().wait(Some(until)).expect("the system waits");
        assert!(now.mono_ns < until + 5_000_000_000, "{} ns late", now.mono_ns - until);
        stage.reactor().gather(Duration::ZERO);
    }
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

/// Only for a reactor that can run out of buffers.
pub fn nobody_waits_for_a_buffer(stage: &mut Stage<Loopback<UringStarved>>) {
    let mut connections: Vec<_> = (0..20).map(|_| stage.connection()).collect();
    for (token, _) in &connections {
        stage.submit(*token, Op::Recv);
    }
    let message = pattern(20_000);
    for (_, peer) in &mut connections {
        assert_eq!(peer.send(&message), message.len());
    }
    let mut received: Vec<_> = connections.iter().map(|(token, _)| (*token, Vec::new())).collect();
    while received.iter().any(|(_, bytes)| bytes.len() < message.len()) {
        let (from, bytes) = stage.expect("bytes", |note| match note {
            Note::Received(token, bytes) => Some((*token, bytes.clone())),
            _ => None,
        });
        let entry = received.iter_mut().find(|(token, _)| *token == from).expect("one of them");
        entry.1.extend(bytes);
    }
    assert!(received.iter().all(|(_, bytes)| *bytes == message));
    assert!(stage.reactor().starved() > 0, "two buffers are not enough for twenty");
}
