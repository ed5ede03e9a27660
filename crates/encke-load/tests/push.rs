//! Subscribers on real sockets, over every back end, of a server with known delays. The results must match the measurements of
//! the server.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use encke_io::Backend;
use encke_io::clock::Clock;
use encke_io::testing::PATIENCE;
use encke_load::push::{Dialect, Preset, PushRun, PushRunOutcome, PushRunPlan, Transport};
use encke_load::{Arrivals, Pace, Rate, Stop};

const SUBSCRIBERS: u32 = 40;
/// Delay of a message from one subscriber to the next.
const STEP: Duration = Duration::from_millis(5);
/// Tolerance from a write to its receive on a busy machine.
const SLACK: Duration = Duration::from_millis(100);

/// A test server in the dialect of nchan, with a thread per connection.
struct Server {
    address: SocketAddr,
    subscribers: Arc<Subscribers>,
    /// Per delivery: the message, and the time from its send to the write, in ns.
    written: Arc<Mutex<Vec<(String, u64)>>>,
}

/// A message, and when it is to be sent.
type Delivery = (Instant, Vec<u8>);
/// A queue of deliveries per subscriber.
type Subscribers = Mutex<Vec<Sender<Delivery>>>;

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let subscribers = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (all, log) = (Arc::clone(&subscribers), Arc::clone(&written));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (all, log) = (Arc::clone(&all), Arc::clone(&log));
                thread::spawn(move || {
                    let _gone = attend(stream, &all, &log);
                });
            }
        });
        Self { address, subscribers, written }
    }

    /// The server's medians: of all deliveries, and of each message's first and last.
    fn medians(&self) -> [Duration; 3] {
        let written = self.written.lock().expect("nobody panics");
        let mut messages: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (message, ns) in &*written {
            messages.entry(message).or_default().push(*ns);
        }
        let median = |mut all: Vec<u64>| {
            all.sort_unstable();
            Duration::from_nanos(all[(all.len() - 1) / 2])
        };
        let of =
            |one: fn(&Vec<u64>) -> Option<&u64>| median(messages.values().filter_map(one).copied().collect());
        [
            median(written.iter().map(|(_, ns)| *ns).collect()),
            of(|message| message.iter().min()),
            of(|message| message.iter().max()),
        ]
    }
}

fn attend(stream: TcpStream, all: &Subscribers, log: &Mutex<Vec<(String, u64)>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(digits) = line.strip_prefix("Content-Length: ") {
                length = digits.trim().parse().expect("a number");
            }
            if line == "\r\n" {
                break;
            }
            if first.is_empty() {
                first = line;
            }
        }
        if first.starts_with("GET") {
            let (sender, messages) = channel();
            // Registered before the response, so that a subscriber gets every message published after it.
            all.lock().expect("nobody panics").push(sender);
            output.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hi\n\n")?;
            return deliver(&mut output, &messages, log);
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let now = Instant::now();
        for (place, subscriber) in all.lock().expect("nobody panics").iter().enumerate() {
            let _gone = subscriber.send((now + STEP * place as u32, body.clone()));
        }
        output.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")?;
    }
}

fn deliver(
    output: &mut TcpStream,
    messages: &Receiver<Delivery>,
    log: &Mutex<Vec<(String, u64)>>,
) -> std::io::Result<()> {
    let mut clock = Clock::new();
    for (due, body) in messages {
        pause_until(due);
        // The run and the lane are followed by the number and the send time, all hexadecimal.
        let text = std::str::from_utf8(&body).expect("ASCII");
        let (message, sent_ns) = (text[13..21].to_owned(), u64::from_str_radix(&text[21..37], 16));
        let took_ns = clock.now().mono_ns - sent_ns.expect("a time");
        log.lock().expect("nobody panics").push((message, took_ns));
        output.write_all(&[b"data: ", &body[..], b"\n\n"].concat())?;
    }
    Ok(())
}

fn pause_until(due: Instant) {
    let (never, mutex) = (Condvar::new(), Mutex::new(()));
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let guard = mutex.lock().expect("nobody else has it");
        let _timed_out = never.wait_timeout(guard, left).expect("nobody else has it");
    }
}

fn run(plan: PushRunPlan) -> PushRunOutcome {
    let mut run = PushRun::start(plan).unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(run.wait(PATIENCE), "it does not end");
    run.outcome().unwrap_or_else(|trouble| panic!("{trouble}"))
}

#[test]
fn what_the_server_is_slow_by_is_told_of_the_first_each_and_the_last() {
    for backend in Backend::NAMED.into_iter().filter(|backend| backend.compiled()) {
        // A busy machine delays receipts, but not ten times in a row by as much.
        let mut delayed = Vec::new();
        let is_near = |_| {
            let late = deliver_late(backend);
            delayed.extend(late.clone());
            late.is_none()
        };
        assert!((0..10).any(is_near), "{backend}: {delayed:#?}");
    }
}

/// Compares the times of a run with those of the server. Returns a time that is too long.
fn deliver_late(backend: Backend) -> Option<String> {
    let server = Server::start();
    let dialect = Dialect::of(Preset::Nchan, Transport::Sse, false).expect("it has event streams");
    let pace = Pace::Open(Rate::constant(4.0).expect("a rate"), Arrivals::Even);
    let plan = PushRunPlan {
        subscribers: SUBSCRIBERS,
        threads: 2,
        pace,
        stop: Stop::Count(6),
        backend,
        ..PushRunPlan::new(server.address, "localhost".into(), dialect, Transport::Sse, 5)
    };
    let outcome = run(plan);
    assert!(outcome.errors.is_empty(), "{backend}: {:?}", outcome.errors);
    assert_eq!((outcome.totals.published, outcome.totals.received), (6, 240), "{backend}");
    assert_eq!((outcome.reach.expected, outcome.reach.lost), (240, 0), "{backend}");
    assert_eq!(server.subscribers.lock().expect("nobody panics").len(), 40, "{backend}");
    let [each, first, last] = server.medians();
    assert!(last >= STEP * (SUBSCRIBERS - 1), "{backend}: the server was quicker than it may be: {last:?}");
    let messages = &outcome.messages;
    let compared = [
        ("each", &outcome.totals.latency, each),
        ("the first", &messages.first, first),
        ("the last", &messages.last, last),
        ("first to last", &messages.spread, last.saturating_sub(first)),
    ];
    compared.into_iter().find_map(|(what, distribution, truth)| {
        let found = Duration::from_nanos(distribution.quantile_ns(0.5).expect("there are some"));
        let told = format!("{what}: {found:?} instead of {truth:?}");
        // A receipt cannot precede its write. The delays of the first receipts may shorten the time to the last ones.
        if what == "first to last" && found + SLACK < truth {
            return Some(told);
        }
        assert!(what == "first to last" || found >= truth, "{backend}, {told}");
        (found >= truth + SLACK).then_some(told)
    })
}
