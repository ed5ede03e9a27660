//! Whole push runs in the simulator: subscribers and publishers on their engines, a test server and a simulated world, with one
//! seed per run.
//!
//! The server loses, duplicates and reorders messages on request, and counts each case. The generator must report exactly these
//! counts: an instrument that is only tested without faults proves nothing.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use encke_io::sim::{SimConditions, World};
use encke_io::{Address, Event, Op, OpError, Reactor, ReactorSource, Segment, Send, SimReactor, Token};
use encke_wire::websocket::{self, Opcode};

use super::audience::{Audience, AudienceOutcome};
use super::dialect::{Dialect, PushRunRequests, Resume, Transport};
use super::paced::{self, Paced, PacedStep};
use super::plan::PushRunPlan;
use super::run::{PushRunOutcome, outcome_of};
use super::tally::{PushTally, PushTotals, RunShared};
use crate::crowd::{Crowd, Outbox, TurnTime};
use crate::dial::Dial;
use crate::engine::LoadEngine;
use crate::pace::Pace;
use crate::plan::{PlanShare, Stop};
use crate::simulation::{MS, address, calm};
use crate::tally::Cause;
use crate::{Arrivals, Rate};

const TRANSPORTS: [Transport; 4] = [Transport::Sse, Transport::Poll, Transport::Ws, Transport::Ndjson];
/// A run that has not ended after this number of steps is stuck.
const STEPS_MAX: usize = 20_000_000;

fn dialect(transport: Transport) -> Dialect {
    let resume = match transport {
        Transport::Sse => Resume::Field("Last-Event-ID".into()),
        Transport::Poll | Transport::Ndjson => Resume::Query("since".into()),
        Transport::Ws => Resume::Never,
    };
    Dialect {
        subscribe: format!("/{}/{{channel}}", transport.name()),
        publish: "/pub/{channel}".into(),
        form: None,
        resume,
        begin: (transport == Transport::Poll).then(|| "wait=0".into()),
        protocol: None,
        subscriber_fields: Vec::new(),
        publisher_fields: Vec::new(),
    }
}

fn plan(transport: Transport, subscribers: u32, messages: u64) -> PushRunPlan {
    PushRunPlan {
        subscribers,
        stop: Stop::Count(messages),
        pace: Pace::Open(Rate::constant(100.0).expect("a rate"), Arrivals::Even),
        ..PushRunPlan::new(address(), "sim".into(), dialect(transport), transport, 7)
    }
}

// ---- the server ----

/// Deviations of a server from plain delivery. Each `…_every` applies to every n-th delivery or publish; 0: never.
#[derive(Clone, Copy, Default)]
struct Manners {
    lose_every: u64,
    double_every: u64,
    /// Holds a delivery back until the next one to the same subscriber was sent.
    swap_every: u64,
    refuse_every: u64,
    /// Delay before the first send of a message, and for each further subscriber.
    first_ns: u64,
    each_ns: u64,
    /// Ends the connection after each n-th delivery.
    close_every: u64,
}

/// The server's own counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    accepted: u64,
    published: u64,
    refused: u64,
    deliveries: u64,
    lost: u64,
    doubled: u64,
    swapped: u64,
    closed: u64,
}

struct Server {
    reactor: SimReactor,
    listener: Token,
    manners: Manners,
    counts: Counts,
    conns: BTreeMap<u64, Conn>,
    /// Published messages by channel; the position is the id, from 1.
    history: BTreeMap<String, Vec<Vec<u8>>>,
    /// Pending sends and their times, in order of time.
    later: VecDeque<(u64, Token, Vec<u8>)>,
}

struct Conn {
    input: Vec<u8>,
    output: Vec<u8>,
    sending: bool,
    closing: bool,
    listens: Option<(Transport, String)>,
    /// A waiting poll, and its position.
    polls: Option<usize>,
    swapped: Option<Vec<u8>>,
}

impl Server {
    fn new(world: &World, manners: Manners) -> Self {
        let mut reactor = world.reactor();
        let listener = world.listener(address()).expect("a descriptor");
        let listener = reactor.adopt(ReactorSource::Listener(listener)).expect("a place");
        reactor.submit(listener, Op::Accept);
        Self {
            reactor,
            listener,
            manners,
            counts: Counts::default(),
            conns: BTreeMap::new(),
            history: BTreeMap::new(),
            later: VecDeque::new(),
        }
    }

    fn turn(&mut self) {
        let until = self.later.front().map(|(due_ns, ..)| *due_ns);
        let now_ns = self.reactor.wait(until).expect("worlds wait").mono_ns;
        while let Some(event) = self.reactor.next() {
            match event {
                Event::Accepted { token, .. } => {
                    self.counts.accepted += 1;
                    let conn = Conn {
                        input: Vec::new(),
                        output: Vec::new(),
                        sending: false,
                        closing: false,
                        listens: None,
                        polls: None,
                        swapped: None,
                    };
                    self.conns.insert(token.word(), conn);
                    self.reactor.submit(token, Op::Recv);
                }
                Event::Received { token, lease } => {
                    if let Some(conn) = self.conns.get_mut(&token.word()) {
                        conn.input.extend_from_slice(lease);
                    }
                    while self.request(token, now_ns) {}
                }
                Event::Sent { token, .. } => {
                    if let Some(conn) = self.conns.get_mut(&token.word()) {
                        conn.sending = false;
                    }
                    self.flush(token);
                }
                Event::PeerClosed { token, .. } | Event::Failed { token, .. } if token != self.listener => {
                    self.conns.remove(&token.word());
                    self.reactor.submit(token, Op::Close);
                }
                Event::Failed { .. } => self.reactor.submit(self.listener, Op::Accept),
                _ => {}
            }
        }
        while self.later.front().is_some_and(|(due_ns, ..)| *due_ns <= now_ns) {
            if let Some((_, token, bytes)) = self.later.pop_front() {
                self.send(token, &bytes);
            }
        }
    }

    /// Serves a request, if it is complete.
    fn request(&mut self, token: Token, now_ns: u64) -> bool {
        let Some(conn) = self.conns.get_mut(&token.word()) else { return false };
        let Some(end) = conn.input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
        let head = String::from_utf8(conn.input[..end].to_vec()).expect("requests are text");
        let field = |name: &str| {
            head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
        };
        let length: usize = field("Content-Length").map_or(0, |length| length.parse().expect("a number"));
        if conn.input.len() < end + 4 + length {
            return false;
        }
        let body: Vec<u8> = conn.input.drain(..end + 4 + length).skip(end + 4).collect();
        let target = head.split(' ').nth(1).expect("a target");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (kind, channel) = path[1..].split_once('/').expect("two segments");
        let (channel, since) = (channel.to_owned(), query.strip_prefix("since="));
        let since = since.and_then(|rest| rest.split('&').next()).map(str::to_owned);
        let since = since.or_else(|| field("Last-Event-ID")).map(|id| id.parse().expect("our id"));
        if kind == "pub" {
            self.publish(token, &channel, body, now_ns);
            return true;
        }
        let transport =
            TRANSPORTS.into_iter().find(|transport| transport.name() == kind).expect("a transport");
        conn.listens = Some((transport, channel.clone()));
        let newest = self.history.get(&channel).map_or(0, Vec::len);
        match transport {
            Transport::Sse => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n";
                self.send(token, format!("{head}id: {newest}\n\n").as_bytes());
            }
            Transport::Ndjson => self.send(token, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Transport::Ws => self.send(
                token,
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            ),
            Transport::Poll => {
                let since: usize = since.unwrap_or(newest);
                let conn = self.conns.get_mut(&token.word()).expect("it has asked");
                conn.polls = Some(since);
                self.answer_poll(token, query.contains("wait=0"));
                return true;
            }
        }
        if let Some(since) = since {
            let history = self.history.get(&channel).cloned().unwrap_or_default();
            for (place, payload) in history.iter().enumerate().skip(since) {
                let bytes = framed(transport, place + 1, payload);
                self.send(token, &bytes);
            }
        }
        true
    }

    fn publish(&mut self, token: Token, channel: &str, body: Vec<u8>, now_ns: u64) {
        self.counts.published += 1;
        if every(self.manners.refuse_every, self.counts.published) {
            self.counts.refused += 1;
            return self.send(token, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
        }
        self.send(token, b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok");
        let history = self.history.entry(channel.to_owned()).or_default();
        history.push(body.clone());
        let id = history.len();
        let listeners: Vec<Token> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.listens.as_ref().is_some_and(|(_, listens)| listens == channel))
            .map(|(word, _)| Token::from_word(*word))
            .collect();
        let mut due_ns = now_ns + self.manners.first_ns;
        for listener in listeners {
            self.deliver(listener, id, &body, due_ns);
            due_ns += self.manners.each_ns;
        }
    }

    fn deliver(&mut self, token: Token, id: usize, body: &[u8], due_ns: u64) {
        let conn = self.conns.get_mut(&token.word()).expect("it was found");
        let Some((transport, _)) = conn.listens else { return };
        if transport == Transport::Poll {
            return self.answer_poll(token, false);
        }
        self.counts.deliveries += 1;
        let number = self.counts.deliveries;
        let bytes = framed(transport, id, body);
        let mut pieces = Vec::new();
        if every(self.manners.lose_every, number) {
            self.counts.lost += 1;
        } else if every(self.manners.double_every, number) {
            self.counts.doubled += 1;
            pieces.extend([bytes.clone(), bytes]);
        } else if every(self.manners.swap_every, number) && conn.swapped.is_none() {
            self.counts.swapped += 1;
            conn.swapped = Some(bytes);
        } else {
            pieces.push(bytes);
            pieces.extend(conn.swapped.take());
        }
        for piece in pieces {
            let place = self.later.partition_point(|(other_ns, ..)| *other_ns <= due_ns);
            self.later.insert(place, (due_ns, token, piece));
        }
        if every(self.manners.close_every, number) {
            self.counts.closed += 1;
            if let Some(conn) = self.conns.get_mut(&token.word()) {
                conn.closing = true;
                conn.listens = None;
            }
            self.flush(token);
        }
    }

    /// Sends the oldest message after the poll's position. Without one the poll waits, unless `at_once`.
    fn answer_poll(&mut self, token: Token, at_once: bool) {
        let Some(conn) = self.conns.get_mut(&token.word()) else { return };
        let (Some(since), Some((_, channel))) = (conn.polls, &conn.listens) else { return };
        let message = self.history.get(channel).and_then(|history| history.get(since));
        let answer = match message {
            Some(payload) => {
                let length = payload.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nEncke-Id: {}\r\n\r\n", since + 1);
                [head.into_bytes(), payload.clone()].concat()
            }
            None if at_once => format!("HTTP/1.1 204 No Content\r\nEncke-Id: {since}\r\n\r\n").into_bytes(),
            None => return,
        };
        conn.polls = None;
        self.counts.deliveries += u64::from(message.is_some());
        self.send(token, &answer);
    }

    fn send(&mut self, token: Token, bytes: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&token.word()) {
            conn.output.extend_from_slice(bytes);
        }
        self.flush(token);
    }

    fn flush(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(&token.word()) else { return };
        if conn.sending {
            return;
        }
        if !conn.output.is_empty() {
            conn.sending = true;
            let segments = vec![Segment::Bytes(std::mem::take(&mut conn.output))];
            self.reactor.submit(token, Op::Send(Send { segments, more: false }));
        } else if conn.closing {
            self.reactor.submit(token, Op::Shutdown);
        }
    }
}

fn every(count: u64, number: u64) -> bool {
    count > 0 && number.is_multiple_of(count)
}

fn framed(transport: Transport, id: usize, payload: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(payload).expect("marks are ASCII");
    match transport {
        Transport::Sse => format!("id: {id}\ndata: {text}\n\n").into_bytes(),
        Transport::Ndjson => {
            let line = format!("{{\"id\":\"{id}\",\"data\":\"{text}\"}}\n");
            format!("{:x}\r\n{line}\r\n", line.len()).into_bytes()
        }
        Transport::Ws => {
            let mut out = Vec::new();
            websocket::put_frame(&mut out, Opcode::Text, payload);
            out
        }
        Transport::Poll => unreachable!("polls are answered"),
    }
}

// ---- a run ----

struct Ended {
    outcome: PushRunOutcome,
    server: Counts,
    trace: u64,
    took: Duration,
    /// Reports of paced rounds.
    steps: Vec<PacedStep>,
}

fn run(seed: u64, conditions: SimConditions, manners: Manners, plan: PushRunPlan) -> Ended {
    run_paced(seed, conditions, manners, plan, 0)
}

/// Runs a plan with this number of permitted steps of paced rounds, or none.
fn run_paced(
    seed: u64,
    conditions: SimConditions,
    manners: Manners,
    plan: PushRunPlan,
    paces: usize,
) -> Ended {
    let (pacer, pacing) = paced::pair();
    (0..paces).for_each(|_| pacing.allow());
    let mut pacer = (paces > 0).then_some(pacer);
    let mut told = Vec::new();
    let world = World::with(seed, conditions);
    let mut server = Server::new(&world, manners);
    let threads = usize::from(plan.threads);
    let shared = Arc::new(RunShared::new(plan.lanes()));
    let requests =
        PushRunRequests::new(&plan.dialect, plan.transport, "sim", &plan.channels).expect("fields");
    let (plan, requests) = (Arc::new(plan), Arc::new(requests));
    let tallies: Vec<Arc<PushTally>> = (0..threads).map(|_| Arc::new(PushTally::default())).collect();
    let mut engines: Vec<LoadEngine<SimReactor, Audience>> = (0..threads)
        .map(|number| {
            let share = PlanShare { number, threads };
            let (times, factory) = (world.clone(), world.clone());
            let clock = Box::new(move || times.now().mono_ns);
            let crowd =
                Audience::new(&plan, &requests, share, &shared, &tallies[number], pacer.take(), clock);
            let Address::Inet(peer) = plan.server else { unreachable!("a world has no files") };
            let sockets =
                Box::new(move |_user, _spare| Ok(Dial { stream: factory.stream()?, peer: Some(peer) }));
            LoadEngine::new(world.reactor(), crowd, sockets, Arc::new(AtomicBool::new(false)))
        })
        .collect();
    engines.iter_mut().for_each(LoadEngine::prepare);
    let start_ns = world.now().mono_ns;
    let (mut begun, mut steps) = (false, 0);
    while !engines.iter().all(|engine| engine.crowd().is_over()) && (paces == 0 || told.len() < paces) {
        told.extend(pacing.wait(Duration::ZERO));
        if !begun && engines.iter().all(|engine| engine.crowd().is_open()) {
            begun = true;
            engines.iter_mut().for_each(LoadEngine::begin);
        }
        match world.step() {
            Some(0) => server.turn(),
            Some(number) => engines[number - 1].turn().expect("worlds wait"),
            None => panic!("seed {seed}: nothing will ever happen again"),
        }
        steps += 1;
        assert!(steps < STEPS_MAX, "seed {seed}: it does not end");
    }
    let parts: Vec<AudienceOutcome> =
        engines.into_iter().map(|engine| engine.into_crowd().into_part()).collect();
    let totals = PushTotals::of(tallies.iter().map(|tally| &**tally));
    let outcome = outcome_of(&plan, &shared, totals, parts);
    let took = Duration::from_nanos(world.now().mono_ns - start_ns);
    Ended { outcome, server: server.counts, trace: world.trace(), took, steps: told }
}

#[track_caller]
fn assert_near(ns: Option<u64>, expected_ms: f64, tolerance: f64) {
    let ms = ns.expect("there are some") as f64 / 1e6;
    assert!((ms - expected_ms).abs() <= expected_ms * tolerance, "{ms} ms instead of {expected_ms}");
}

// ---- receipts ----

#[test]
fn by_every_transport_each_message_reaches_each_subscriber_once() {
    for transport in TRANSPORTS {
        for threads in [1, 2] {
            let plan = PushRunPlan { threads, ..plan(transport, 30, 20) };
            let Ended { outcome, server, .. } = run(1, calm(), Manners::default(), plan);
            let totals = &outcome.totals;
            let case = format!("{}, {threads} threads", transport.name());
            assert!(outcome.errors.is_empty(), "{case}: {:?}", outcome.errors);
            assert_eq!((totals.published, server.published), (20, 20), "{case}");
            assert_eq!((totals.received, server.deliveries), (600, 600), "{case}");
            assert_eq!((outcome.reach.expected, outcome.reach.lost), (600, 0), "{case}");
            assert_eq!(totals.repeated + totals.late + totals.early + totals.gaps, 0, "{case}: {totals:?}");
            assert_eq!((totals.latency.count(), outcome.messages.last.count()), (600, 20), "{case}");
            assert_eq!((outcome.held, totals.answer.count()), (30, 30), "{case}");
        }
    }
}

#[test]
fn what_a_server_loses_doubles_and_swaps_is_told_exactly() {
    for transport in [Transport::Sse, Transport::Ws, Transport::Ndjson] {
        for manners in [
            Manners { lose_every: 31, ..Manners::default() },
            Manners { double_every: 17, ..Manners::default() },
            Manners { swap_every: 13, ..Manners::default() },
            Manners { refuse_every: 4, ..Manners::default() },
            Manners {
                lose_every: 29,
                double_every: 19,
                swap_every: 23,
                refuse_every: 7,
                ..Manners::default()
            },
        ] {
            let drain = Duration::from_millis(500);
            let plan = PushRunPlan { drain, ..plan(transport, 40, 100) };
            let Ended { outcome, server, .. } = run(2, calm(), manners, plan);
            let totals = &outcome.totals;
            let case = transport.name();
            let taken = server.published - server.refused;
            assert_eq!((totals.published, totals.refused), (server.published, server.refused), "{case}");
            // 100 messages a second; the first rejected one is the seventh at most.
            let first_ns = outcome.errors.iter().map(|error| error.first_ns).min();
            assert!(first_ns.is_none_or(|ns| ns < 500 * MS), "since the beginning: {:?}", outcome.errors);
            assert_eq!(outcome.reach.expected, taken * 40, "{case}");
            // A delivery is also lost if it was held back and no next one came.
            let kept_back = outcome.reach.lost - server.lost;
            assert_eq!(totals.late + kept_back, server.swapped, "{case}");
            assert!(kept_back == 0 || server.swapped > 0 && kept_back <= 40, "{case}: {kept_back}");
            assert_eq!(totals.repeated, server.doubled, "{case}");
            assert_eq!(totals.received, outcome.reach.expected - outcome.reach.lost, "{case}");
        }
    }
}

#[test]
fn channels_and_publishers_have_lanes_of_their_own() {
    for (channels, publishers) in [(1, 5), (7, 3), (3, 7), (4, 4)] {
        let names = (0..channels).map(|number| format!("c{number}")).collect();
        let plan = PushRunPlan { channels: names, publishers, threads: 2, ..plan(Transport::Sse, 60, 200) };
        let plan = PushRunPlan { pace: Pace::Closed, ..plan };
        let Ended { outcome, server, .. } = run(3, calm(), Manners::default(), plan);
        let case = format!("{channels} channels, {publishers} publishers");
        assert_eq!(outcome.totals.published, 200, "{case}");
        assert_eq!(outcome.totals.received, server.deliveries, "{case}");
        assert_eq!((outcome.reach.expected, outcome.reach.lost), (server.deliveries, 0), "{case}");
        assert_eq!(outcome.totals.late + outcome.totals.repeated, 0, "{case}");
    }
}

// ---- times ----

#[test]
fn the_first_the_last_and_what_lies_between_are_told_apart() {
    // One server sends to one subscriber after the other, a millisecond each. The other prepares everything for 99 ms and then
    // sends to all at once. By the time between first and last receipt alone, the second one would be perfect.
    let one_by_one = Manners { each_ns: MS, ..Manners::default() };
    let all_at_once = Manners { first_ns: 99 * MS, ..Manners::default() };
    for (manners, first_ms, spread_ms, p50_ms) in
        [(one_by_one, 0.04, 99.0, 49.5), (all_at_once, 99.0, 0.0, 99.0)]
    {
        let plan = PushRunPlan {
            pace: Pace::Open(Rate::constant(5.0).expect("a rate"), Arrivals::Even),
            ..plan(Transport::Sse, 100, 20)
        };
        let Ended { outcome, .. } = run(4, calm(), manners, plan);
        let messages = &outcome.messages;
        if first_ms > 1.0 {
            assert_near(messages.first.quantile_ns(0.5), first_ms, 0.03);
            assert!(messages.spread.max_ns() < MS, "{}", messages.spread.max_ns());
        } else {
            assert!(messages.first.max_ns() < MS, "{}", messages.first.max_ns());
            assert_near(messages.spread.quantile_ns(0.5), spread_ms, 0.03);
        }
        assert_near(messages.last.quantile_ns(0.5), 99.0, 0.03);
        assert_near(outcome.totals.latency.quantile_ns(0.5), p50_ms, 0.03);
    }
}

// ---- disturbances ----

#[test]
fn who_leaves_and_comes_back_misses_nothing_where_that_can_be_had() {
    for transport in TRANSPORTS {
        let plan = PushRunPlan {
            churn: 0.5,
            stop: Stop::After(Duration::from_secs(2)),
            threads: 2,
            ..plan(transport, 40, 0)
        };
        let Ended { outcome, .. } = run(5, calm(), Manners::default(), plan);
        let totals = &outcome.totals;
        let case = transport.name();
        assert_eq!(totals.published, 200, "{case}");
        assert!((30..=42).contains(&totals.left), "{case}: {} of 40 left", totals.left);
        assert_eq!((outcome.reach.lost, totals.repeated), (0, 0), "{case}");
        assert_eq!(totals.back.count(), totals.left, "{case}");
        // A subscriber that leaves without a position starts as a new one. NDJSON has none before the first message.
        match transport {
            Transport::Sse | Transport::Poll => assert_eq!(outcome.reach.expected, 200 * 40, "{case}"),
            Transport::Ndjson => assert!(outcome.reach.expected > 200 * 39, "{case}: {:?}", outcome.reach),
            Transport::Ws => {}
        }
    }
}

#[test]
fn a_storm_is_over_when_all_have_caught_up() {
    for transport in TRANSPORTS {
        let plan =
            PushRunPlan { storm: true, stop: Stop::After(Duration::from_secs(1)), ..plan(transport, 40, 0) };
        let Ended { outcome, .. } = run(6, calm(), Manners::default(), plan);
        let case = transport.name();
        assert_eq!((outcome.totals.left, outcome.held), (40, 40), "{case}");
        assert_eq!(outcome.reach.lost, 0, "{case}");
        let storm = outcome.storm.expect("there was one");
        let (back, caught_up) = storm.back.zip(storm.caught_up).expect("all came back");
        assert!(back > Duration::ZERO && caught_up >= back, "{case}: {storm:?}");
        assert!(caught_up < Duration::from_millis(100), "{case}: {storm:?}");
    }
}

#[test]
fn who_is_cut_by_the_server_comes_back_and_goes_on() {
    let manners = Manners { close_every: 97, ..Manners::default() };
    let plan = PushRunPlan { stop: Stop::After(Duration::from_secs(2)), ..plan(Transport::Sse, 30, 0) };
    let Ended { outcome, server, .. } = run(7, calm(), manners, plan);
    assert!(server.closed > 40, "{server:?}");
    assert_eq!(outcome.totals.closed, server.closed);
    assert_eq!((outcome.reach.expected, outcome.reach.lost, outcome.totals.repeated), (200 * 30, 0, 0));
}

#[test]
fn a_run_without_a_server_or_a_stream_comes_to_its_end() {
    let nobody = SocketAddr::from(([10, 0, 0, 9], 1));
    for threads in [1, 2] {
        let plan = PushRunPlan { server: nobody.into(), threads, ..plan(Transport::Sse, 20, 5) };
        let timeout = plan.timeout;
        let Ended { outcome, took, .. } = run(10, calm(), Manners::default(), plan);
        assert_eq!((outcome.totals.answered, outcome.totals.published, outcome.held), (0, 0, 0));
        assert!(outcome.errors.iter().any(|error| error.cause == Cause::Fault(OpError::Refused)));
        assert!(took < timeout, "a closed port ends the run at once: {took:?}");
    }

    // The subscriber requests an event stream and gets NDJSON.
    let dialect = Dialect { subscribe: "/ndjson/{channel}".into(), ..dialect(Transport::Sse) };
    let other = PushRunPlan { dialect, ..plan(Transport::Sse, 20, 5) };
    let Ended { outcome, .. } = run(11, calm(), Manners::default(), other);
    let said: Vec<_> = outcome.errors.iter().map(|error| (error.cause.to_string(), error.count)).collect();
    assert_eq!(said, [("a response, but not the requested stream".into(), 20)]);
    assert_eq!((outcome.totals.published, outcome.held), (5, 0));
}

#[test]
fn who_reads_nothing_is_no_receiver() {
    let plan = PushRunPlan { slow: 0.1, ..plan(Transport::Sse, 50, 100) };
    let Ended { outcome, .. } = run(8, calm(), Manners::default(), plan);
    assert_eq!((outcome.slow, outcome.held), (5, 50));
    assert_eq!((outcome.reach.expected, outcome.reach.lost), (45 * 100, 0));
}

#[test]
fn a_cycle_is_everybody_one_message_and_everybody_again() {
    for transport in TRANSPORTS {
        let manners = Manners { each_ns: 100_000, ..Manners::default() };
        let manners = if transport == Transport::Poll { Manners::default() } else { manners };
        let plan = PushRunPlan { cycles: Some(3), ..plan(transport, 30, 0) };
        let Ended { outcome, server, .. } = run(9, calm(), manners, plan);
        let case = transport.name();
        assert_eq!(outcome.rounds.len(), 3, "{case}");
        for round in &outcome.rounds {
            assert_eq!((round.held, round.received), (30, 30), "{case}: {round:?}");
            assert!(round.connect_ns > 0 && round.first_ns > 0, "{case}: {round:?}");
            if transport != Transport::Poll {
                assert_near(Some(round.spread_ns), 2.9, 0.03);
            }
        }
        assert_eq!((outcome.totals.published, server.deliveries), (3, 90), "{case}");
        assert_eq!((outcome.reach.expected, outcome.reach.lost), (90, 0), "{case}");
    }
}

#[test]
fn a_round_that_is_begun_from_outside_opens_no_connection_that_it_does_not_need() {
    for transport in TRANSPORTS {
        for (round, opened) in
            [(Paced::Connect, 3 * 30), (Paced::Cycle, 3 * 30), (Paced::Fan, 30), (Paced::Storm, 4 * 30)]
        {
            let plan = PushRunPlan { paced: Some(round), ..plan(transport, 30, 0) };
            let Ended { server, steps, .. } = run_paced(12, calm(), Manners::default(), plan, 6);
            let case = format!("{}, {}", round.name(), transport.name());
            let held = steps.iter().map(|step| match step {
                PacedStep::Ready => None,
                PacedStep::Done(figures) => Some((figures.held, figures.lost)),
            });
            assert_eq!(held.collect::<Vec<_>>(), [None, Some((30, 0))].repeat(3), "{case}");
            // And one connection of the publisher.
            assert_eq!(server.accepted, opened + 1, "{case}");
        }
    }
}

#[test]
fn subscribers_dial_so_many_in_a_row() {
    let world = World::with(1, calm());
    let plan = plan(Transport::Sse, 100, 0);
    let requests =
        PushRunRequests::new(&plan.dialect, plan.transport, "sim", &plan.channels).expect("fields");
    let (shared, tally) = (Arc::new(RunShared::new(plan.lanes())), Arc::new(PushTally::default()));
    let (plan, requests, alone) = (Arc::new(plan), Arc::new(requests), PlanShare { number: 0, threads: 1 });
    let crowd = Audience::new(&plan, &requests, alone, &shared, &tally, None, Box::new(|| 0));
    let factory = world.clone();
    let sockets =
        Box::new(move |_user, _spare| Ok(Dial { stream: factory.stream()?, peer: Some(address()) }));
    let mut engine = LoadEngine::new(world.reactor(), crowd, sockets, Arc::new(AtomicBool::new(false)));
    engine.prepare();
    assert_eq!(engine.connections(), 64);
    engine.turn().expect("worlds wait");
    assert_eq!(engine.connections(), 101, "a hundred subscribers and the publisher");
}

#[test]
fn who_stands_in_the_line_of_dials_takes_no_time_and_may_be_given_up_there() {
    let plan = PushRunPlan {
        paced: Some(Paced::Connect),
        timeout: Duration::from_secs(1),
        ..plan(Transport::Sse, 30, 0)
    };
    let requests =
        PushRunRequests::new(&plan.dialect, plan.transport, "sim", &plan.channels).expect("fields");
    let (shared, tally) = (Arc::new(RunShared::new(plan.lanes())), Arc::new(PushTally::default()));
    let (pacer, pacing) = paced::pair();
    let (plan, requests, alone) = (Arc::new(plan), Arc::new(requests), PlanShare { number: 0, threads: 1 });
    let mut crowd = Audience::new(&plan, &requests, alone, &shared, &tally, Some(pacer), Box::new(|| 0));
    let mut out = Outbox::default();
    let at = |ms: u64| TurnTime { woken_ns: ms * MS, now_ns: ms * MS, gathered: false };
    let wanted = |crowd: &Audience, out: &Outbox| -> Vec<u32> {
        out.dials.iter().copied().filter(|user| crowd.is_queued(*user)).collect()
    };
    crowd.open(at(0), &mut out);
    crowd.begin(at(0), &mut out);
    pacing.allow();
    crowd.on_time(at(1), &mut out);
    assert_eq!(out.dials, [30], "the publisher");
    // The dial stays queued: its timeout has not started, but that of the round has.
    crowd.on_time(at(3_000), &mut out);
    assert_eq!(wanted(&crowd, &out), [30]);
    assert_eq!(pacing.wait(Duration::ZERO), Ok(PacedStep::Ready));
    pacing.allow();
    crowd.on_time(at(3_000), &mut out);
    assert_eq!(wanted(&crowd, &out), [30].into_iter().chain(0..30).collect::<Vec<_>>());
    crowd.on_time(at(6_000), &mut out);
    assert_eq!(wanted(&crowd, &out).len(), 31);
    assert!(matches!(pacing.wait(Duration::ZERO), Ok(PacedStep::Done(figures)) if figures.held == 0));
    // The next round cancels the dials and queues them again.
    pacing.allow();
    crowd.on_time(at(6_000), &mut out);
    assert_eq!(wanted(&crowd, &out), [30]);
    crowd.on_time(at(9_000), &mut out);
    pacing.allow();
    crowd.on_time(at(9_000), &mut out);
    assert_eq!(out.dials.len(), 61);
    let mut dialed = Vec::new();
    while let Some(user) = out.dials.pop_front() {
        if crowd.is_queued(user) {
            let token = Token { index: user, ..Token::from_word(0) };
            crowd.dialed(user, Ok(token), at(9_000), &mut out);
            dialed.push(user);
        }
    }
    assert_eq!(dialed, [30].into_iter().chain(0..30).collect::<Vec<_>>());
    // A dialed user has the timeout to connect.
    crowd.on_time(at(10_500), &mut out);
    assert_eq!(tally.unconnected.value(), 31);
    assert!(wanted(&crowd, &out).is_empty());
    crowd.close(&mut out);
    assert!((0..31).all(|user| !crowd.is_queued(user)), "the run is over");
}

#[test]
fn harsh_worlds_are_accounted_for_and_repeat_themselves() {
    for seed in 1..=16 {
        let transport = TRANSPORTS[seed as usize % 4];
        let churn = if seed % 3 == 0 { 0.5 } else { 0.0 };
        let plan = PushRunPlan {
            churn,
            storm: seed % 5 == 0,
            seed,
            publishers: 1 + (seed % 2) as u16,
            threads: 1 + (seed % 2) as u16,
            timeout: Duration::from_secs(2),
            drain: Duration::from_secs(4),
            stop: Stop::After(Duration::from_secs(1)),
            ..plan(transport, 12, 0)
        };
        let first = run(seed, SimConditions::harsh(), Manners::default(), plan.clone());
        let PushRunOutcome { reach, totals, .. } = &first.outcome;
        let case = format!("seed {seed}, {}", transport.name());
        assert!(totals.received > 0, "{case}");
        assert!(totals.received >= reach.expected - reach.lost, "{case}: {reach:?}, {totals:?}");
        assert_eq!(totals.latency.count(), totals.received, "{case}");
        let again = run(seed, SimConditions::harsh(), Manners::default(), plan);
        assert_eq!(
            (first.trace, totals),
            (again.trace, &again.outcome.totals),
            "{case} does not repeat itself"
        );
    }
}
