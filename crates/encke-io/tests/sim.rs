//! The simulator itself: one seed gives one run, every fault occurs, and time and links behave as documented.

#![allow(unreachable_pub, reason = "a test: nobody uses it as a library")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use encke_io::sim::{FaultCounts, SimClient, SimConditions, SimReadState, World};
use encke_io::testing::Seeds;
use encke_io::{
    Event, Job, JobLane, Now, Occupancy, Op, OpError, OpKind, Reactor, ReactorSource, Segment, Send,
    SimReactor, Token,
};

/// The worlds of a complete run.
const SEEDS: u64 = 200;
const WORKERS: usize = 3;
const CLIENTS: usize = 12;
/// Bytes that the server keeps for a connection before it pauses receiving.
const KEPT_MAX: usize = 8 * 1024;

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

/// A server that echoes the bytes it receives, and ends when the peer has ended and all bytes are echoed.
struct Echo {
    reactor: SimReactor,
    listener: Token,
    talks: BTreeMap<u32, Talk>,
    /// The time to retry an accept.
    retry_ns: Option<u64>,
    accepted: u64,
    heard: u64,
}

#[derive(Default)]
struct Talk {
    token: Option<Token>,
    kept: VecDeque<u8>,
    sending: bool,
    paused: bool,
    ended: bool,
}

impl Echo {
    fn new(world: &World) -> Self {
        let mut reactor = world.reactor();
        let listener = world.listener(address()).expect("a descriptor");
        let listener = reactor.adopt(ReactorSource::Listener(listener)).expect("room");
        reactor.submit(listener, Op::Accept);
        Self { reactor, listener, talks: BTreeMap::new(), retry_ns: None, accepted: 0, heard: 0 }
    }

    /// One turn of at most four events, so that some are left for the next turn.
    fn turn(&mut self) {
        let now = self.reactor.wait(self.retry_ns).expect("a simulated wait never fails");
        if self.retry_ns.is_some_and(|retry| retry <= now.mono_ns) {
            self.retry_ns = None;
            self.reactor.submit(self.listener, Op::Accept);
        }
        for _ in 0..4 {
            let Some(event) = self.reactor.next() else { return };
            match event {
                Event::Accepted { token, .. } => {
                    self.accepted += 1;
                    self.talks.insert(token.index, Talk { token: Some(token), ..Talk::default() });
                    self.reactor.submit(token, Op::Recv);
                }
                Event::Received { token, lease } => {
                    self.heard += lease.len() as u64;
                    let talk = self.talks.get_mut(&token.index).expect("it was accepted");
                    talk.kept.extend(&*lease);
                    lease.fill(0xA5);
                    self.go_on(token);
                }
                Event::PeerClosed { token, behind_data } => {
                    let talk = self.talks.get_mut(&token.index).expect("it was accepted");
                    talk.ended |= !behind_data;
                    self.go_on(token);
                }
                Event::Sent { token, .. } => {
                    self.talks.get_mut(&token.index).expect("it was accepted").sending = false;
                    self.go_on(token);
                }
                Event::Failed { op: OpKind::Accept, fault, .. } => {
                    assert_eq!(fault, OpError::Descriptors);
                    self.retry_ns = Some(now.plus(Duration::from_millis(100)));
                }
                Event::Failed { token, fault, .. } => {
                    assert_eq!(fault, OpError::Reset);
                    self.reactor.submit(token, Op::Close);
                }
                Event::Closed { token, .. } => drop(self.talks.remove(&token.index)),
                Event::Woken => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    fn go_on(&mut self, token: Token) {
        let talk = self.talks.get_mut(&token.index).expect("it was accepted");
        assert_eq!(talk.token, Some(token), "an event of another generation");
        if !talk.sending && !talk.kept.is_empty() {
            talk.sending = true;
            let segments = vec![Segment::Bytes(talk.kept.drain(..).collect())];
            self.reactor.submit(token, Op::Send(Send { segments, more: false }));
        } else if !talk.sending && talk.ended {
            self.reactor.submit(token, Op::Close);
            return;
        }
        let full = talk.kept.len() > KEPT_MAX;
        if full != talk.paused {
            talk.paused = full;
            self.reactor.submit(token, if full { Op::Pause } else { Op::Recv });
        }
    }
}

/// A client of the run, with the bytes it has sent and received.
struct Speaker {
    client: SimClient,
    left: usize,
    said: Vec<u8>,
    heard: Vec<u8>,
}

struct Run {
    trace: u64,
    faults: FaultCounts,
    /// Connections that ended gracefully, with every byte echoed.
    whole: usize,
    accepted: Vec<u64>,
    ended: Now,
}

/// Runs clients against a server of three workers until all of them are done.
fn run(seed: u64, conditions: SimConditions) -> Run {
    let world = World::with(seed, conditions);
    let mut workers: Vec<_> = (0..WORKERS).map(|_| Echo::new(&world)).collect();
    let mut speakers: Vec<_> = (0..CLIENTS)
        .map(|_| Speaker {
            client: world.connect(address()),
            left: world.chance(60_000) as usize,
            said: Vec::new(),
            heard: Vec::new(),
        })
        .collect();
    let mut whole = 0;
    let mut byte = 0_u8;
    for step in 0.. {
        assert!(step < 200_000, "seed {seed}: the run does not come to its end");
        if !speakers.is_empty() {
            let number = world.chance(speakers.len() as u64) as usize;
            if speak(&world, &mut speakers[number], &mut byte) {
                let speaker = speakers.swap_remove(number);
                whole += usize::from(judge(seed, &speaker));
            }
        }
        if world.chance(50) == 0 {
            let number = world.chance(WORKERS as u64) as usize;
            workers[number].reactor.waker().wake();
        }
        match world.step() {
            Some(number) => workers[number].turn(),
            None if speakers.is_empty() => break,
            // Only the clients can continue.
            None => {}
        }
    }
    for worker in &mut workers {
        assert!(worker.talks.is_empty(), "seed {seed}: connections are left");
        worker.reactor.submit(worker.listener, Op::Close);
        assert!(matches!(worker.reactor.next(), Some(Event::Closed { .. })));
        assert_eq!(worker.reactor.occupancy(), Occupancy::default(), "seed {seed}: something is left");
    }
    while world.step().is_some_and(|number| workers[number].reactor.wait(None).is_ok()) {
        workers.iter_mut().for_each(|worker| while worker.reactor.next().is_some() {});
    }
    assert!(world.is_quiet(), "seed {seed}");
    let accepted = workers.iter().map(|worker| worker.accepted).collect();
    Run { trace: world.trace(), faults: world.faults(), whole, accepted, ended: world.now() }
}

/// Lets a client take one action. Returns true when it is done.
fn speak(world: &World, speaker: &mut Speaker, byte: &mut u8) -> bool {
    let Speaker { client, left, said, heard } = speaker;
    match world.chance(10) {
        0..=3 if *left > 0 && !client.is_shut() => {
            let message: Vec<u8> = (0..1 + world.chance((*left).min(4_000) as u64) as usize)
                .map(|_| {
                    *byte = byte.wrapping_mul(31).wrapping_add(7);
                    *byte
                })
                .collect();
            let sent = client.send(&message);
            said.extend(&message[..sent]);
            *left -= sent;
        }
        4 if *left == 0 => client.shutdown(),
        5..=8 => heard.extend(client.take_at_most(1 + world.chance(5_000) as usize)),
        _ => {}
    }
    client.is_closed()
}

/// Returns whether a connection ended gracefully. Every byte of it must have been echoed.
fn judge(seed: u64, speaker: &Speaker) -> bool {
    let Speaker { client, said, heard, .. } = speaker;
    assert!(said.starts_with(heard), "seed {seed}: what came back was not said");
    match client.end() {
        SimReadState::Finished => {
            assert!(client.is_shut(), "seed {seed}: the server ended first");
            assert_eq!(said.len(), heard.len(), "seed {seed}: not everything came back");
            true
        }
        SimReadState::Reset => false,
        end => panic!("seed {seed}: {end:?}"),
    }
}

#[test]
fn without_malice_every_byte_comes_back() {
    for seed in Seeds::of(SEEDS).range() {
        let run = run(seed, SimConditions::default());
        assert_eq!(run.whole, CLIENTS, "seed {seed}");
        assert_eq!(run.accepted.iter().sum::<u64>(), CLIENTS as u64, "seed {seed}");
    }
}

#[test]
fn in_a_harsh_world_every_fault_happens_and_nothing_is_left() {
    let mut faults = FaultCounts::default();
    let mut whole = 0;
    let mut accepted = vec![0; WORKERS];
    for seed in Seeds::of(SEEDS).range() {
        let run = run(seed, SimConditions::harsh());
        faults.resets += run.faults.resets;
        faults.half_closes += run.faults.half_closes;
        faults.short_sends += run.faults.short_sends;
        faults.accept_failures += run.faults.accept_failures;
        faults.delayed_wakes += run.faults.delayed_wakes;
        faults.slow_readers += run.faults.slow_readers;
        whole += run.whole;
        for (sum, worker) in accepted.iter_mut().zip(run.accepted) {
            *sum += worker;
        }
    }
    println!("{faults:?}, {whole} whole, accepted {accepted:?}");
    let FaultCounts { resets, half_closes, short_sends, accept_failures, delayed_wakes, slow_readers } =
        faults;
    for (count, kind) in [
        (resets, "a reset"),
        (half_closes, "a half-close"),
        (short_sends, "a short send"),
        (accept_failures, "a failed accept"),
        (delayed_wakes, "a late wake"),
        (slow_readers, "a slow reader"),
    ] {
        assert!(count > 0, "{kind} never happened");
    }
    assert!(whole > 0, "nobody came through");
    assert!(accepted.iter().all(|count| *count > 0), "each worker has its share: {accepted:?}");
}

#[test]
fn one_seed_is_one_run() {
    let mut traces = Vec::new();
    for seed in [1, 2, 3, 4, u64::MAX] {
        let (first, second) = (run(seed, SimConditions::harsh()), run(seed, SimConditions::harsh()));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.faults, second.faults, "seed {seed}");
        assert_eq!(first.ended, second.ended, "seed {seed}");
        traces.push(first.trace);
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 5, "another seed is another run");
}

#[test]
fn the_clock_jumps_to_the_next_timer() {
    let world = World::new(1);
    let (mut early, mut late) = (world.reactor(), world.reactor());
    let begun = world.now();
    let hour = Duration::from_secs(3_600);
    early.wait(Some(begun.plus(hour))).expect("never fails");
    late.wait(Some(begun.plus(2 * hour))).expect("never fails");
    assert_eq!(world.step(), Some(early.number()));
    assert!(world.now().mono_ns >= begun.plus(hour));
    early.wait(None).expect("never fails");
    assert_eq!(world.step(), Some(late.number()));
    let now = late.wait(None).expect("never fails");
    assert!(now.mono_ns >= begun.plus(2 * hour) && now.mono_ns < begun.plus(3 * hour));
    assert_eq!(now.unix_ns - begun.unix_ns, now.mono_ns - begun.mono_ns, "both clocks go alike");
    assert_eq!(world.step(), None, "nothing will ever happen");
}

#[test]
fn a_worker_that_has_been_told_something_may_set_a_timer() {
    let world = World::new(1);
    let mut reactor = world.reactor();
    reactor.wait(None).expect("never fails");
    reactor.waker().wake();
    assert_eq!(world.step(), Some(0));
    reactor.wait(None).expect("never fails");
    assert!(matches!(reactor.next(), Some(Event::Woken)));
    // The event may change how long the reactor waits, which only its next wait shows. So it must get one.
    assert_eq!(world.step(), Some(0));
    let deadline = reactor.now().plus(Duration::from_secs(5));
    reactor.wait(Some(deadline)).expect("never fails");
    assert_eq!(world.step(), Some(0));
    assert!(world.now().mono_ns >= deadline);
}

#[test]
fn reactors_wake_each_other_late_at_times_and_never_in_vain() {
    let world = World::new(9);
    let (mut first, mut second) = (world.reactor(), world.reactor());
    first.wait(None).expect("never fails");
    second.wait(None).expect("never fails");
    for _ in 0..200 {
        for reactor in [&mut first, &mut second] {
            reactor.waker().wake();
            reactor.waker().wake();
            let mut wakes = 0;
            while let Some(number) = world.step() {
                assert_eq!(number, reactor.number(), "nobody else is woken");
                reactor.wait(None).expect("never fails");
                while let Some(event) = reactor.next() {
                    assert!(matches!(event, Event::Woken), "{event:?}");
                    wakes += 1;
                }
            }
            assert_eq!(wakes, 1, "two wakes are one event");
        }
    }
    assert!(world.faults().delayed_wakes > 0);
}

#[test]
fn a_job_runs_at_once_and_completes_later() {
    let world = World::new(1);
    let mut reactor = world.reactor();
    reactor.submit(
        Token::NONE,
        Op::Offload(Job { key: 7, lane: JobLane::Local, run: Box::new(|| Box::new(42_u32)) }),
    );
    reactor.submit(
        Token::NONE,
        Op::Offload(Job { key: 8, lane: JobLane::Local, run: Box::new(|| panic!("as the case wants")) }),
    );
    assert_eq!(reactor.occupancy().jobs, 2);
    assert!(reactor.next().is_none(), "not before its time");
    let mut results = BTreeMap::new();
    while results.len() < 2 {
        assert_eq!(world.step(), Some(0));
        reactor.wait(None).expect("never fails");
        while let Some(event) = reactor.next() {
            let Event::Offloaded { key, done } = event else { panic!("unexpected: {event:?}") };
            results.insert(key, done.map(|done| *done.downcast::<u32>().expect("what it returned")));
        }
    }
    assert_eq!(results, BTreeMap::from([(7, Some(42)), (8, None)]));
    assert_eq!(reactor.occupancy(), Occupancy::default());
}

#[test]
fn nobody_listens_is_a_refusal() {
    let world = World::new(1);
    let client = world.connect(address());
    assert_eq!(client.end(), SimReadState::Open);
    assert_eq!(world.step(), None, "there is no reactor to take a turn");
    assert_eq!(client.end(), SimReadState::Refused);
}

#[test]
fn an_attempt_that_meets_silence_is_repeated_and_finds_the_next_listener() {
    let world = World::new(1);
    let (mut old, mut new) = (world.reactor(), world.reactor());
    let adopt = |reactor: &mut SimReactor| {
        let listener = world.listener(address()).expect("a descriptor");
        reactor.adopt(ReactorSource::Listener(listener)).expect("room")
    };
    let retiring = adopt(&mut old);
    old.submit(retiring, Op::Retire);
    let _client = world.connect(address());
    let begun = world.now();
    new.wait(Some(begun.plus(Duration::from_millis(500)))).expect("never fails");
    old.wait(None).expect("never fails");
    assert_eq!(world.step(), Some(new.number()), "no answer in half a second");
    let next = adopt(&mut new);
    new.submit(next, Op::Accept);
    loop {
        assert_eq!(world.step(), Some(new.number()));
        new.wait(None).expect("never fails");
        if let Some(event) = new.next() {
            assert!(matches!(event, Event::Accepted { .. }), "{event:?}");
            break;
        }
    }
    assert!(world.now().mono_ns >= begun.plus(Duration::from_secs(1)), "the attempt was repeated");
}

/// A connection to a new reactor, accepted and not armed.
fn connected(world: &World) -> (SimReactor, Token, SimClient) {
    let mut reactor = world.reactor();
    let listener = world.listener(address()).expect("a descriptor");
    let listener = reactor.adopt(ReactorSource::Listener(listener)).expect("room");
    reactor.submit(listener, Op::Accept);
    let client = world.connect(address());
    loop {
        world.step().expect("an attempt is on its way");
        reactor.wait(None).expect("never fails");
        if let Some(Event::Accepted { token, .. }) = reactor.next() {
            return (reactor, token, client);
        }
    }
}

fn settle(world: &World, reactor: &mut SimReactor) {
    while !world.is_quiet() {
        world.step();
        reactor.wait(None).expect("never fails");
        while reactor.next().is_some() {}
    }
}

#[test]
fn closing_with_unread_bytes_destroys_an_answer_that_was_not_read() {
    let world = World::new(3);
    let (mut reactor, token, mut client) = connected(&world);
    assert_eq!(client.send(b"POST"), 4);
    settle(&world, &mut reactor);
    reactor.submit(token, Op::Send(Send { segments: vec![Segment::Bytes(b"413".to_vec())], more: false }));
    settle(&world, &mut reactor);
    reactor.submit(token, Op::Close);
    settle(&world, &mut reactor);
    assert_eq!((client.end(), client.take()), (SimReadState::Reset, Vec::new()));
}

#[test]
fn closing_with_nothing_unread_delivers_the_answer() {
    let world = World::new(3);
    let (mut reactor, token, mut client) = connected(&world);
    reactor.submit(token, Op::Recv);
    assert_eq!(client.send(b"POST"), 4);
    settle(&world, &mut reactor);
    reactor.submit(token, Op::Send(Send { segments: vec![Segment::Bytes(b"413".to_vec())], more: false }));
    reactor.submit(token, Op::Close);
    settle(&world, &mut reactor);
    assert_eq!((client.take(), client.end()), (b"413".to_vec(), SimReadState::Finished));
    // Data sent to a closed end is answered by a reset.
    assert_eq!(client.send(b"more"), 4);
    settle(&world, &mut reactor);
    assert_eq!(client.end(), SimReadState::Reset);
}

#[test]
fn a_client_without_a_window_stops_the_sender() {
    let world = World::new(3);
    let (mut reactor, token, mut client) = connected(&world);
    client.set_window(0);
    let message: Vec<u8> = (0..50_000_u32).map(|number| number as u8).collect();
    let segments = vec![Segment::Bytes(message.clone())];
    reactor.submit(token, Op::Send(Send { segments, more: false }));
    settle(&world, &mut reactor);
    let unsent = reactor.unsent(token);
    assert!(unsent > 40_000 && unsent < 50_000, "{unsent}");
    client.set_window(10_000);
    let mut taken = Vec::new();
    while taken.len() < message.len() {
        settle(&world, &mut reactor);
        let piece = client.take();
        assert!(!piece.is_empty(), "the window opens as the client reads");
        taken.extend(piece);
    }
    assert_eq!(taken, message);
    assert_eq!(reactor.unsent(token), 0);
}

#[test]
fn a_reactor_that_is_dropped_closes_its_connections() {
    let world = World::new(3);
    let (reactor, _, client) = connected(&world);
    drop(reactor);
    while world.step().is_some() {}
    assert_eq!(client.end(), SimReadState::Finished);
}
