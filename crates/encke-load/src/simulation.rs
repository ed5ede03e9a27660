//! Whole runs in the simulator: a crowd on its engine, a test server and a simulated world, with one seed per run.
//!
//! The world has its own clock, so the true latencies follow from arithmetic. If a server freezes for 200 ms of every second, a
//! request at a random moment waits at least 100 ms in one case of ten. The results must show that. The worlds of the last test
//! inject every fault they can. Every request must still end in exactly one way, and the counts must match the server's.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use encke_io::sim::{SimConditions, World};
use encke_io::testing::Seeds;
use encke_io::{Address, Event, Op, Reactor, ReactorSource, Segment, Send, SimReactor, Token};
use encke_session::tls::{Distrust, Session, SessionError, Sessions};

use crate::crowd::Crowd;
use crate::dial::Dial;
use crate::engine::LoadEngine;
use crate::message::{Mix, PreparedRequest, Style};
use crate::pace::{Arrivals, Pace, Rate};
use crate::plan::{Plan, PlanShare, Stop, WarmUp};
use crate::requests::Requests;
use crate::sealed::Sealed;
use crate::tally::{Cause, Errors, RequestPhase, Tally, Totals};

/// The worlds of a complete run.
const SEEDS: u64 = 60;
pub(crate) const MS: u64 = 1_000_000;
/// Environment variable: requests of the longest of these runs. `make soak` sets a million.
const REQUESTS: &str = "ENCKE_LOAD_REQUESTS";
/// A run that has not ended after this number of steps is stuck.
const STEPS_MAX: usize = 100_000_000;

pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

/// A world with constant delays and without faults.
pub(crate) fn calm() -> SimConditions {
    SimConditions {
        latency_ns: 20_000..=20_000,
        piece_bytes: 64 * 1024..=64 * 1024,
        window_bytes: 64 * 1024..=64 * 1024,
        byte_ns: 0,
        turn_ns: 1_000..=1_000,
        short_sends: 0,
        delayed_wakes: 0,
        ..SimConditions::default()
    }
}

fn plan(stop: Stop, pace: Pace) -> Plan {
    let message =
        PreparedRequest::new("GET", "sim", "/{seq}", &[], None, Style::default()).expect("a request");
    Plan { stop, pace, ..Plan::new(address(), Mix::new(vec![(message, 1)]).expect("one message")) }
}

fn toys(veiled: bool) -> Option<Arc<dyn Sessions>> {
    veiled.then(|| Arc::new(Toys) as Arc<dyn Sessions>)
}

fn open(rate: f64) -> Pace {
    Pace::Open(Rate::constant(rate).expect("a rate"), Arrivals::Even)
}

// ---- the server ----

/// Deviations of a server from plain responses.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// Does nothing in the first `frozen_ns` of each second.
    frozen_ns: u64,
    /// Resets each n-th connection when a request arrives on it.
    reset_every: u64,
    /// Sends `Connection: close` with each n-th response, and closes.
    close_every: u64,
    /// Never responds to each n-th request.
    silent_every: u64,
    /// Varies the framing of the body from response to response.
    motley: bool,
    /// Speaks the protocol of [`Toy`].
    veiled: bool,
    /// Ends connections without the toy's close_notify.
    curt: bool,
}

// ---- a toy for TLS ----

/// A client session of a toy protocol in place of TLS. The client sends `hello`, receives `olleh`, sends `ready`, and is then
/// established. After that, one bit of each byte is flipped. The byte `\0`, which encodes no other byte, is the close_notify.
#[derive(Debug)]
struct Toys;

#[derive(Default)]
struct Toy {
    heard: Vec<u8>,
    output: Vec<u8>,
    ended: bool,
}

const HELLO: &[u8] = b"hello";
const ANSWER: &[u8] = b"olleh";
const READY: &[u8] = b"ready";
const FAREWELL: u8 = 0;
const VEIL: u8 = 0x80;

impl Sessions for Toys {
    fn begin(&self) -> Result<Box<dyn Session>, SessionError> {
        Ok(Box::new(Toy { output: HELLO.to_vec(), ..Toy::default() }))
    }
}

impl Session for Toy {
    fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        for byte in arrived {
            match *byte {
                byte if self.heard.len() < ANSWER.len() => {
                    self.heard.push(byte);
                    if !ANSWER.starts_with(&self.heard) {
                        return Err(Distrust::NotTls.into());
                    }
                    if self.heard == ANSWER {
                        self.output.extend_from_slice(READY);
                    }
                }
                FAREWELL => self.ended = true,
                byte => plain.push(byte ^ VEIL),
            }
        }
        Ok(())
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionError> {
        assert!(self.is_established(), "nothing is sealed before");
        self.output(out);
        out.extend(plain.iter().map(|byte| byte ^ VEIL));
        Ok(())
    }

    fn output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.output);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.output(out);
        out.push(FAREWELL);
    }

    fn is_established(&self) -> bool {
        self.heard == ANSWER
    }

    fn is_ended(&self) -> bool {
        self.ended
    }

    fn speaks_http2(&self) -> bool {
        true
    }

    fn is_resumed(&self) -> bool {
        false
    }
}

/// The server's side of the toy: input of the client that is not decoded yet.
#[derive(Default)]
struct Unveiled {
    said: Vec<u8>,
}

impl Unveiled {
    /// Appends plaintext to `input`, and bytes to send at once to `output`.
    fn open(&mut self, arrived: &[u8], input: &mut Vec<u8>, output: &mut Vec<u8>) {
        let before = self.said.len();
        self.said.extend_from_slice(arrived);
        let handshake = [HELLO, READY].concat();
        let shaken = self.said.len().min(handshake.len());
        assert_eq!(self.said[..shaken], handshake[..shaken], "a client does as the toy says");
        if before < HELLO.len() && self.said.len() >= HELLO.len() {
            output.extend_from_slice(ANSWER);
        }
        let from = before.max(handshake.len()).min(self.said.len());
        input.extend(self.said[from..].iter().filter(|byte| **byte != FAREWELL).map(|byte| byte ^ VEIL));
    }
}

struct Server {
    reactor: SimReactor,
    listener: Token,
    manners: Manners,
    accepted: u64,
    resets: u64,
    requests: u64,
    answered: u64,
    body_bytes: u64,
    silent: u64,
    conns: BTreeMap<u64, Conn>,
    held: VecDeque<(Token, u64)>,
}

struct Conn {
    number: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    sending: bool,
    closing: bool,
    unveiled: Unveiled,
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
            accepted: 0,
            resets: 0,
            requests: 0,
            answered: 0,
            body_bytes: 0,
            silent: 0,
            conns: BTreeMap::new(),
            held: VecDeque::new(),
        }
    }

    fn turn(&mut self) {
        let frozen_ns = self.manners.frozen_ns;
        let thaw_ns = |now_ns: u64| now_ns / (1_000 * MS) * (1_000 * MS) + frozen_ns;
        let before_ns = self.reactor.now().mono_ns;
        let until = (!self.held.is_empty()).then(|| thaw_ns(before_ns));
        let now_ns = self.reactor.wait(until).expect("worlds wait").mono_ns;
        while let Some(event) = self.reactor.next() {
            match event {
                Event::Accepted { token, .. } => {
                    self.accepted += 1;
                    let conn = Conn {
                        number: self.accepted,
                        input: Vec::new(),
                        output: Vec::new(),
                        sending: false,
                        closing: false,
                        unveiled: Unveiled::default(),
                    };
                    self.conns.insert(token.word(), conn);
                    self.reactor.submit(token, Op::Recv);
                }
                Event::Received { token, lease } => {
                    let Some(conn) = self.conns.get_mut(&token.word()) else { continue };
                    if self.manners.veiled {
                        conn.unveiled.open(lease, &mut conn.input, &mut conn.output);
                    } else {
                        conn.input.extend_from_slice(lease);
                    }
                    while let Some(end) = conn.input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                        conn.input.drain(..end + 4);
                        self.requests += 1;
                        self.held.push_back((token, self.requests));
                    }
                    self.flush(token);
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
        if now_ns >= thaw_ns(now_ns) {
            while let Some((token, number)) = self.held.pop_front() {
                self.answer(token, number);
            }
        }
    }

    fn answer(&mut self, token: Token, number: u64) {
        let every = |count: u64, number: u64| count > 0 && number.is_multiple_of(count);
        let Some(conn) = self.conns.get_mut(&token.word()) else { return };
        if conn.closing {
            return;
        }
        if every(self.manners.reset_every, conn.number) {
            self.resets += 1;
            self.conns.remove(&token.word());
            return self.reactor.submit(token, Op::Abort);
        }
        if every(self.manners.silent_every, number) {
            self.silent += 1;
            return;
        }
        let close = every(self.manners.close_every, number);
        let body = (number % 50) as usize;
        let field = if close { "Connection: close\r\n" } else { "" };
        let text = "x".repeat(body);
        let answer = match (self.manners.motley, number % 4, close) {
            (true, 0, _) => format!("HTTP/1.1 204 No Content\r\n{field}\r\n"),
            (true, 1, _) if body > 1 => format!(
                "HTTP/1.1 200 OK\r\n{field}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                body - 1,
                &text[1..]
            ),
            (true, 2, true) => format!("HTTP/1.1 200 OK\r\n\r\n{text}"),
            _ => format!("HTTP/1.1 200 OK\r\n{field}Content-Length: {body}\r\n\r\n{text}"),
        };
        self.answered += 1;
        self.body_bytes += if answer.contains(" 204 ") { 0 } else { body as u64 };
        let veil = if self.manners.veiled { VEIL } else { 0 };
        conn.output.extend(answer.bytes().map(|byte| byte ^ veil));
        conn.closing = close;
        if close && self.manners.veiled && !self.manners.curt {
            conn.output.push(FAREWELL);
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

// ---- a run ----

struct Ended {
    totals: Totals,
    errors: Errors,
    server: Server,
    trace: u64,
    left: usize,
    /// The longest time for which responses were to gather.
    gather_ns: u64,
}

fn run(seed: u64, conditions: SimConditions, manners: Manners, plan: Plan) -> Ended {
    let world = World::with(seed, conditions);
    let mut server = Server::new(&world, manners);
    let tally = Arc::new(Tally::new());
    let share = PlanShare { number: 0, threads: 1 };
    let Address::Inet(target) = plan.server else { unreachable!("a world has no files") };
    let sessions = plan.tls.clone();
    let crowd = Sealed::new(Requests::new(Arc::new(plan), share, Arc::clone(&tally)), sessions);
    let factory = world.clone();
    let sockets = Box::new(move |_user, _spare| Ok(Dial { stream: factory.stream()?, peer: Some(target) }));
    let reactor = world.reactor();
    let mut engine = LoadEngine::new(reactor, crowd, sockets, Arc::new(AtomicBool::new(false)));
    engine.prepare();
    let (mut begun, mut steps, mut gather_ns) = (false, 0, 0);
    while !engine.crowd().is_over() {
        if !begun && engine.crowd().is_open() {
            begun = true;
            engine.begin();
        }
        match world.step() {
            Some(0) => server.turn(),
            Some(_) => engine.turn().expect("worlds wait"),
            None => panic!("seed {seed}: nothing will ever happen again"),
        }
        gather_ns = engine.crowd().gather_ns().max(gather_ns);
        steps += 1;
        assert!(steps < STEPS_MAX, "seed {seed}: it does not end");
    }
    let left = engine.close();
    let errors = engine.into_crowd().into_inner().into_errors();
    Ended { totals: Totals::of([&*tally]), errors, server, trace: world.trace(), left, gather_ns }
}

fn check_sum(totals: &Totals, seed: u64) {
    let ended = totals.finished + totals.failed + totals.aborted + totals.warm_up;
    assert_eq!(totals.begun, ended, "seed {seed}: {totals:?}");
}

#[track_caller]
fn assert_near(ns: Option<u64>, expected_ms: f64, tolerance: f64) {
    let ms = ns.expect("there are some") as f64 / 1e6;
    assert!((ms - expected_ms).abs() <= expected_ms * tolerance, "{ms} ms instead of {expected_ms}");
}

// ---- latencies ----

const FREEZING: Manners = Manners {
    frozen_ns: 200 * MS,
    reset_every: 0,
    close_every: 0,
    silent_every: 0,
    motley: false,
    veiled: false,
    curt: false,
};

#[test]
fn an_open_loop_shows_a_freeze_as_those_met_it_who_came_by_the_clock() {
    for arrivals in [Arrivals::Even, Arrivals::Poisson] {
        let pace = Pace::Open(Rate::constant(2_000.0).expect("a rate"), arrivals);
        let ended = run(1, calm(), FREEZING, plan(Stop::After(Duration::from_secs(10)), pace));
        let totals = ended.totals;
        check_sum(&totals, 1);
        if arrivals == Arrivals::Even {
            assert_eq!((totals.begun, totals.finished), (20_000, 20_000));
        }
        assert_near(totals.response.quantile_ns(0.9), 100.0, 0.05);
        assert_near(totals.response.quantile_ns(0.99), 190.0, 0.05);
        assert_near(Some(totals.response.max_ns()), 200.0, 0.05);
        let p50_ns = totals.response.quantile_ns(0.5).expect("there are some");
        assert!((40_000..90_000).contains(&p50_ns), "{p50_ns} ns; an exchange takes 43 µs");
        assert_eq!(totals.response.count(), totals.lag.count());
    }
}

#[test]
fn a_closed_loop_does_not_show_it_and_its_estimate_does() {
    // The run ends before the freeze of the next second, which would be one too many.
    let plan = Plan { connections: 4, ..plan(Stop::After(Duration::from_millis(3_900)), Pace::Closed) };
    let slower = SimConditions { latency_ns: 100_000..=100_000, ..calm() };
    let totals = run(1, slower, FREEZING, plan).totals;
    check_sum(&totals, 1);
    assert!(
        totals.service.quantile_ns(0.99).is_some_and(|ns| ns < MS),
        "4 in each of 4 seconds met the freeze"
    );
    let estimate = crate::estimate::Estimate::of(&totals.service);
    assert_near(estimate.quantile_ns(0.9), 100.0, 0.05);
    assert_near(estimate.quantile_ns(0.99), 190.0, 0.05);
}

#[test]
fn requests_that_find_no_free_connection_stay_due_and_their_time_runs() {
    // With 10 connections at 100 ms per response, 100 requests per second are possible. 200 are due, so after 10 s the last are
    // 10 s late. None are dropped.
    let conditions = SimConditions { latency_ns: 50 * MS..=50 * MS, ..calm() };
    let plan = Plan {
        connections: 10,
        timeout: Duration::from_secs(60),
        drain: Duration::from_secs(60),
        ..plan(Stop::After(Duration::from_secs(10)), open(200.0))
    };
    let totals = run(1, conditions, Manners::default(), plan).totals;
    assert_eq!((totals.begun, totals.finished, totals.aborted), (2_000, 2_000, 0));
    assert!(totals.queued > 1_900, "{}", totals.queued);
    assert_near(totals.service.quantile_ns(0.5), 100.0, 0.03);
    assert_near(totals.response.quantile_ns(0.5), 5_100.0, 0.03);
    assert_near(Some(totals.response.max_ns()), 10_100.0, 0.03);
    assert_near(Some(totals.lag.max_ns()), 10_000.0, 0.03);
}

#[test]
fn pipelined_answers_gather_for_a_128th_of_their_median_and_no_others_do() {
    let run = |pipeline: u16, latency_ns: u64| {
        let conditions = SimConditions { latency_ns: latency_ns..=latency_ns, ..calm() };
        let plan = Plan { pipeline, connections: 4, ..plan(Stop::Count(10_000), Pace::Closed) };
        let Ended { totals, gather_ns, .. } = run(1, conditions, Manners::default(), plan);
        check_sum(&totals, 1);
        (totals.service.quantile_ns(0.5).expect("there are some"), gather_ns)
    };
    for latency_ns in [MS, 10 * MS, 1_000 * MS] {
        let (p50_ns, gather_ns) = run(16, latency_ns);
        let due_ns = (p50_ns / 128).min(MS);
        assert!((due_ns * 95 / 100..=due_ns * 105 / 100).contains(&gather_ns), "{gather_ns} of {p50_ns}");
    }
    assert_eq!(run(16, MS / 10).1, 0, "what takes little is read as it comes");
    assert_eq!(run(1, 10 * MS).1, 0, "and so is an answer that is waited for by itself");
}

// ---- counts ----

#[test]
fn a_fixed_number_of_requests_agrees_with_the_server_to_the_last_one() {
    for (pipeline, requests_per_connection, close_every) in [
        (1, None, 0),
        (1, Some(1), 0),
        (1, Some(7), 0),
        (16, None, 0),
        (16, Some(100), 0),
        (1, None, 9),
        (8, None, 31),
    ] {
        for (veiled, count) in [(false, 10_000), (true, 2_000)] {
            let plan = Plan {
                pipeline,
                requests_per_connection,
                tls: toys(veiled),
                ..plan(Stop::Count(count), Pace::Closed)
            };
            let manners = Manners { close_every, motley: true, veiled, ..Manners::default() };
            let Ended { totals, server, errors, .. } = run(7, calm(), manners, plan);
            let case = format!(
                "pipeline {pipeline}, {requests_per_connection:?} a connection, closes {close_every}, TLS {veiled}"
            );
            assert!(errors.is_empty(), "{case}: {errors:?}");
            assert_eq!((totals.begun, totals.finished), (count, count), "{case}");
            assert_eq!((totals.finished, totals.body_bytes), (server.answered, server.body_bytes), "{case}");
            assert_eq!(totals.connected, server.accepted, "{case}");
            assert_eq!(totals.handshakes, if veiled { totals.connected } else { 0 }, "{case}");
            assert_eq!(totals.service.count(), count, "{case}");
            if let Some(limit) = requests_per_connection {
                assert!(server.accepted >= count / limit, "{case}: {}", server.accepted);
            }
        }
    }
}

#[test]
fn a_server_that_resets_every_hundredth_connection_loses_no_request_from_the_account() {
    let count = std::env::var(REQUESTS).ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let plan = Plan { requests_per_connection: Some(1), ..plan(Stop::Count(count), Pace::Closed) };
    let manners = Manners { reset_every: 100, ..Manners::default() };
    let Ended { totals, server, errors, .. } = run(3, calm(), manners, plan);
    check_sum(&totals, 3);
    assert_eq!(totals.begun, count);
    assert_eq!((totals.failed, server.resets), (count / 100, count / 100));
    assert_eq!(totals.finished, server.answered);
    assert_eq!(errors.iter().map(|error| error.count).sum::<u64>(), count / 100, "{errors:?}");
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole_only_if_tls_says_so() {
    for curt in [false, true] {
        let plan = Plan { connections: 4, tls: toys(true), ..plan(Stop::Count(1_000), Pace::Closed) };
        let manners = Manners { close_every: 2, motley: true, veiled: true, curt, ..Manners::default() };
        let Ended { totals, errors, .. } = run(1, calm(), manners, plan);
        check_sum(&totals, 1);
        // The second of each four responses ends with its connection; the fourth has a length or chunks.
        let failed = if curt { 250 } else { 0 };
        assert_eq!((totals.finished, totals.failed), (1_000 - failed, failed), "{errors:?}");
        assert!(
            errors.iter().all(|error| (error.phase, &error.cause) == (RequestPhase::Body, &Cause::Cut)),
            "{errors:?}"
        );
    }
}

#[test]
fn what_answers_the_hello_with_something_else_is_never_asked() {
    let plan = Plan { connections: 4, tls: toys(true), ..plan(Stop::Count(40), Pace::Closed) };
    // The server takes the hello for an incomplete request and never responds; or it resets, or ends the connection.
    let plan = Plan { timeout: Duration::from_millis(100), ..plan };
    let Ended { totals, server, errors, .. } = run(1, calm(), Manners::default(), plan);
    check_sum(&totals, 1);
    assert_eq!((totals.failed, totals.handshakes, server.requests), (40, 0, 0));
    let phases: Vec<_> = errors.iter().map(|error| (error.phase, error.cause.clone())).collect();
    assert_eq!(phases, [(RequestPhase::Tls, Cause::Timeout)]);
}

#[test]
fn warm_up_is_a_counter_of_its_own() {
    let warm_up = WarmUp::Count(1_000);
    let totals =
        run(5, calm(), Manners::default(), Plan { warm_up, ..plan(Stop::Count(500), Pace::Closed) }).totals;
    assert_eq!((totals.begun, totals.warm_up, totals.finished), (1_500, 1_000, 500));
    assert_eq!(totals.service.count(), 500);
    let without = run(
        5,
        calm(),
        Manners::default(),
        Plan { warm_up: WarmUp::Count(1_499), ..plan(Stop::Count(1), Pace::Closed) },
    );
    assert!(without.totals.body_bytes < totals.body_bytes / 100, "the bodies of the warm-up are not counted");
}

#[test]
fn what_is_under_way_at_the_end_is_waited_for_and_then_given_up() {
    let manners = Manners { silent_every: 10, ..Manners::default() };
    let plan = Plan {
        connections: 8,
        timeout: Duration::from_secs(60),
        drain: Duration::from_secs(2),
        ..plan(Stop::After(Duration::from_secs(1)), Pace::Closed)
    };
    let Ended { totals, server, left, .. } = run(2, calm(), manners, plan);
    check_sum(&totals, 2);
    // Each connection meets a request without a response, and waits for the rest of the run.
    assert_eq!((totals.aborted, server.silent, left), (8, 8, 0));
    assert_eq!(totals.finished, server.answered);
}

#[test]
fn requests_have_their_connections_dialed_one_at_a_time() {
    let world = World::with(1, calm());
    let plan = Plan { connections: 30, ..plan(Stop::Count(100), Pace::Closed) };
    let crowd = Requests::new(Arc::new(plan), PlanShare { number: 0, threads: 1 }, Arc::new(Tally::new()));
    let factory = world.clone();
    let sockets =
        Box::new(move |_user, _spare| Ok(Dial { stream: factory.stream()?, peer: Some(address()) }));
    let mut engine = LoadEngine::new(world.reactor(), crowd, sockets, Arc::new(AtomicBool::new(false)));
    engine.prepare();
    assert_eq!(engine.connections(), 1);
    engine.turn().expect("worlds wait");
    assert_eq!(engine.connections(), 3, "one more since nothing has happened, and one as the turn ends");
}

#[test]
fn a_request_that_takes_too_long_fails_and_its_user_goes_on() {
    let manners = Manners { silent_every: 10, ..Manners::default() };
    let plan = Plan {
        connections: 4,
        timeout: Duration::from_millis(500),
        ..plan(Stop::Count(1_000), Pace::Closed)
    };
    let Ended { totals, server, .. } = run(2, calm(), manners, plan);
    check_sum(&totals, 2);
    assert_eq!((totals.begun, totals.failed, server.silent), (1_000, 100, 100));
}

#[test]
fn nobody_there_ends_a_counted_run_and_a_timed_one() {
    for stop in [Stop::Count(40), Stop::After(Duration::from_secs(5))] {
        for requests_per_connection in [None, Some(1)] {
            let plan = Plan { connections: 4, requests_per_connection, ..plan(stop, Pace::Closed) };
            let plan = Plan { server: SocketAddr::from(([10, 0, 0, 9], 80)).into(), ..plan };
            let Ended { totals, errors, .. } = run(1, calm(), Manners::default(), plan);
            check_sum(&totals, 1);
            assert_eq!((totals.finished, totals.connected), (0, 0));
            let first_ns = errors.iter().map(|error| error.first_ns).min();
            assert!(first_ns.is_some_and(|ns| ns < 1_000 * MS), "since the beginning of the run: {errors:?}");
            assert!(totals.failed >= 20, "{totals:?}");
            if let Stop::Count(count) = stop {
                assert_eq!(totals.failed, count);
            }
        }
    }
}

// ---- everything at once ----

#[test]
fn every_request_ends_in_one_counter_whatever_the_world_does() {
    for seed in Seeds::of(SEEDS).range() {
        let (plan, manners) = by_seed(seed);
        let counted = match plan.stop {
            Stop::Count(count) => Some(count),
            _ => None,
        };
        let warm = if let WarmUp::Count(count) = plan.warm_up { count } else { 0 };
        let first = run(seed, SimConditions::harsh(), manners, plan.clone());
        check_sum(&first.totals, seed);
        if let Some(count) = counted {
            assert_eq!(first.totals.begun, count + warm, "seed {seed}");
            assert_eq!(first.totals.aborted, 0, "seed {seed}");
        }
        let finished = first.totals.finished + first.totals.warm_up;
        assert!(first.totals.finished <= first.server.answered, "seed {seed}");
        assert!(finished > 0, "seed {seed}: {:?}", first.totals);
        assert_eq!(first.left, 0, "seed {seed}: connections are left");
        assert_eq!(first.totals.service.count(), first.totals.finished, "seed {seed}");

        let again = run(seed, SimConditions::harsh(), manners, plan);
        assert_eq!(
            (first.trace, first.totals),
            (again.trace, again.totals),
            "seed {seed} does not repeat itself"
        );
    }
}

/// A plan and a server from a seed.
fn by_seed(seed: u64) -> (Plan, Manners) {
    let mut random = crate::random::Random::new(seed, 99);
    let mut below = |limit: u64| random.below(limit);
    let pace = match below(3) {
        0 => open(500.0 + below(3_000) as f64),
        _ => Pace::Closed,
    };
    let closed = pace == Pace::Closed;
    let stop =
        if below(2) == 0 { Stop::Count(200 + below(400)) } else { Stop::After(Duration::from_millis(600)) };
    let plan = Plan {
        connections: 1 + below(12) as u32,
        pipeline: if closed { 1 + below(6) as u16 } else { 1 },
        requests_per_connection: [None, Some(1), Some(1 + below(20))][below(3) as usize],
        warm_up: [WarmUp::None, WarmUp::Count(below(50))][below(2) as usize],
        timeout: Duration::from_secs(2),
        drain: Duration::from_secs(1),
        seed,
        ..plan(stop, pace)
    };
    let manners = Manners {
        frozen_ns: [0, 100 * MS][below(2) as usize],
        reset_every: [0, 7][below(2) as usize],
        close_every: [0, 5][below(2) as usize],
        silent_every: [0, 60][below(2) as usize],
        motley: below(2) == 0,
        veiled: below(2) == 0,
        curt: below(4) == 0,
    };
    (Plan { tls: toys(manners.veiled), ..plan }, manners)
}
