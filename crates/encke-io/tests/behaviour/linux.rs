//! The back ends of Linux, and the cases that need what only Linux has.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::socket::{ListenOptions, Stream, Watched, unconnected};
use encke_io::{
    Address, Listener, Op, OpError, OpKind, Peer as Origin, Reactor, ReactorSource, Token, Unavailable,
    UringReactor, UringSettings,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::loopback::{BackEnd, Loopback, back_ends, watched_once, woken_by_another};
use crate::stage::{Note, PATIENCE, Peer, Scene, Stage, pattern};
use crate::temporary::TemporaryFile;

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
    crate::system::reset_on_close(&peer);
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
