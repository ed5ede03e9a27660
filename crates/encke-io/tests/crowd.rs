//! Many clients that send at once: more than the queues, buffers and events of one turn can hold.
//!
//! A separate test program, because it needs most of the descriptors that a process may have.

#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::socket::ListenOptions;
use encke_io::{Address, Event, Listener, Occupancy, Op, Reactor, ReactorSource};

/// More than io_uring's completion queue (4,096), its buffers (256), and the events of a turn (256).
const CROWD: u64 = 5_000;

#[test]
fn everybody_in_a_crowd_is_heard_whole() {
    // Each connection needs a descriptor at both ends.
    let limit = encke_io::host::raise_descriptor_limit();
    let crowd = CROWD.min((limit - 100) / 2) as usize;
    println!("{crowd} clients");
    let pool = Pool::start(1, 1).expect("room for a thread");
    hears_everybody(crowd, encke_io::PollReactor::new(pool.clone()).expect("poll"));
    hears_everybody(crowd, encke_io::EpollLevelReactor::new(pool.clone()).expect("epoll"));
    hears_everybody(crowd, encke_io::EpollEdgeReactor::new(pool.clone()).expect("epoll"));
    hears_everybody(crowd, encke_io::UringReactor::new(pool.clone()).expect("io_uring"));
    pool.close();
}

fn hears_everybody(crowd: usize, mut reactor: impl Reactor) {
    let name = reactor.backend();
    let any_port = Address::Inet(SocketAddr::from(([127, 0, 0, 1], 0)));
    let options = ListenOptions { backlog: 4_096, shared: false, mode: None };
    let listener = Listener::bind(&any_port, options).expect("a free port");
    let Address::Inet(address) = *listener.address() else { panic!("an Internet address was asked for") };
    let listener = reactor.adopt(ReactorSource::Listener(listener)).expect("room for a source");
    reactor.submit(listener, Op::Accept);
    let until = reactor.now().plus(Duration::from_secs(60));
    let mut clients: Vec<TcpStream> = Vec::new();
    let mut heard: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut ops = Vec::new();
    let mut whole = 0;
    let mut closed = 0;
    while closed < crowd {
        if clients.len() < crowd {
            let next = 50.min(crowd - clients.len());
            clients.extend((0..next).map(|_| TcpStream::connect(address).expect("a listener")));
        } else if heard.len() == crowd && whole == 0 && heard.values().all(Vec::is_empty) {
            for (number, client) in clients.iter_mut().enumerate() {
                client.write_all(&message(number)).expect("room for a few bytes");
            }
        }
        let now = reactor.wait(Some(until)).expect("the system waits");
        assert!(now.mono_ns < until, "{name}: {whole} of {crowd} were heard, {closed} have ended");
        for _ in 0..256 {
            let Some(event) = reactor.next() else { break };
            match event {
                Event::Accepted { token, .. } => {
                    heard.insert(token.index, Vec::new());
                    ops.push((token, Op::Recv));
                }
                Event::Received { token, lease } => {
                    let bytes = heard.get_mut(&token.index).expect("it was accepted");
                    bytes.extend_from_slice(lease);
                    if bytes.len() == MESSAGE_BYTES {
                        let number = bytes[0] as usize | (bytes[1] as usize) << 8;
                        assert_eq!(*bytes, message(number), "{name}");
                        whole += 1;
                        ops.push((token, Op::Close));
                    }
                }
                Event::Closed { .. } => closed += 1,
                other => panic!("{name}: {other:?}"),
            }
        }
        for (token, op) in ops.drain(..) {
            reactor.submit(token, op);
        }
    }
    assert_eq!(whole, crowd, "{name}");
    reactor.submit(listener, Op::Close);
    while reactor.occupancy() != Occupancy::default() {
        let now = reactor.wait(Some(until)).expect("the system waits");
        assert!(now.mono_ns < until, "{name}: {:?} is left", reactor.occupancy());
        while reactor.next().is_some() {}
    }
}

const MESSAGE_BYTES: usize = 100;

/// The number of a client, followed by bytes that no other client sends.
fn message(number: usize) -> Vec<u8> {
    let mut message = vec![number as u8, (number >> 8) as u8];
    message.extend((2..MESSAGE_BYTES).map(|place| (number * 31 + place * 7) as u8));
    message
}
