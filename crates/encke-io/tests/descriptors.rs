//! Out of descriptors: the behaviour of every back end when the process can open no more.
//!
//! A separate test program, because the limit applies to the process. A single test, because tests share the limit.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::op::OpKind;
use encke_io::socket::ListenOptions;
use encke_io::{Address, Event, Listener, Op, OpError, Reactor, ReactorSource, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Small, so that it is soon reached, but enough for the test's own descriptors.
const LIMIT: u64 = 64;
const CLIENTS: usize = 5;

#[test]
fn a_full_table_of_descriptors_pauses_accepting_and_loses_nobody() {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: hard }).expect("a lower limit");
    let pool = Pool::start(1, 1).expect("room for a thread");
    loses_nobody(encke_io::PollReactor::new(pool.clone()).expect("poll"));
    loses_nobody(encke_io::EpollLevelReactor::new(pool.clone()).expect("epoll"));
    loses_nobody(encke_io::EpollEdgeReactor::new(pool.clone()).expect("epoll"));
    loses_nobody(encke_io::UringReactor::new(pool.clone()).expect("io_uring"));
    pool.close();
}

fn loses_nobody(mut reactor: impl Reactor) {
    let name = reactor.backend();
    let held = open_descriptors();
    let any_port = Address::Inet(SocketAddr::from(([127, 0, 0, 1], 0)));
    let options = ListenOptions { backlog: 16, shared: false, mode: None };
    let listener = Listener::bind(&any_port, options).expect("a free port");
    let Address::Inet(address) = *listener.address() else { panic!("an Internet address was asked for") };
    let listener = reactor.adopt(ReactorSource::Listener(listener)).expect("room for a source");
    let clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).expect("a listener")).collect();

    let hoard: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    reactor.submit(listener, Op::Accept);
    assert_eq!(next(&mut reactor), Said::Failed(listener, OpKind::Accept, OpError::Descriptors), "{name}");
    // Until it is armed again, the listener reports nothing and does not spin.
    let until = reactor.now().plus(Duration::from_millis(10));
    let mut waits = 0;
    while reactor.wait(Some(until)).expect("the system waits").mono_ns < until {
        waits += 1;
        assert!(waits < 3 && reactor.next().is_none(), "{name}: woken for nothing");
    }
    reactor.submit(listener, Op::Accept);
    assert_eq!(next(&mut reactor), Said::Failed(listener, OpKind::Accept, OpError::Descriptors), "{name}");

    drop(hoard);
    reactor.submit(listener, Op::Accept);
    let mut accepted = Vec::new();
    while accepted.len() < clients.len() {
        match next(&mut reactor) {
            Said::Accepted(token) => accepted.push(token),
            other => panic!("{name}: {other:?}"),
        }
    }
    for token in accepted.into_iter().chain([listener]) {
        reactor.submit(token, Op::Close);
        assert_eq!(next(&mut reactor), Said::Closed(token), "{name}");
    }
    drop(clients);
    assert_eq!(open_descriptors(), held, "{name} has left descriptors behind");
}

#[derive(PartialEq, Eq, Debug)]
enum Said {
    Accepted(Token),
    Failed(Token, OpKind, OpError),
    Closed(Token),
    Other(String),
}

/// The next event. A back end without an event for 20 seconds has failed.
fn next(reactor: &mut impl Reactor) -> Said {
    let until = reactor.now().plus(Duration::from_secs(20));
    loop {
        match reactor.next() {
            Some(Event::Accepted { token, .. }) => return Said::Accepted(token),
            Some(Event::Failed { token, op, fault, .. }) => return Said::Failed(token, op, fault),
            Some(Event::Closed { token, .. }) => return Said::Closed(token),
            Some(event) => return Said::Other(format!("{event:?}")),
            None => {
                let now = reactor.wait(Some(until)).expect("the system waits");
                assert!(now.mono_ns < until, "{}: nothing was said", reactor.backend());
            }
        }
    }
}

/// The number of open descriptors, as the kernel counts them.
fn open_descriptors() -> usize {
    encke_io::host::open_descriptors().expect("/proc is there")
}
