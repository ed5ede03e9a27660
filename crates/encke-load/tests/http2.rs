//! HTTP/2 requests on real sockets, over every back end. The test server is written frame by frame, and can leave, refuse, fall
//! silent or speak another protocol.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use encke_io::Backend;
use encke_io::testing::PATIENCE;
use encke_load::tally::RequestPhase;
use encke_load::{
    Arrivals, Expected, Mix, Pace, Plan, PreparedRequest, Protocol, Rate, RunHandle, RunOutcome, Stop, Style,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
/// `:status: 200` in HPACK's static table (RFC 7541, appendix A).
const STATUS_200: &[u8] = &[0x88];
const BODY: &[u8] = b"abcdefg";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Deviations of the server from plain responses.
#[derive(Clone, Copy)]
struct Manners {
    /// Maximum concurrent streams.
    streams: u32,
    /// Refuses each n-th request, over all connections.
    refuse_every: u64,
    /// Never responds to each n-th request.
    silent_every: u64,
    /// Sends GOAWAY after this number of requests on a connection, without processing the last of them.
    leave_after: u64,
    /// Closes a connection after this number of requests, without GOAWAY.
    close_after: u64,
}

const PLAIN: Manners =
    Manners { streams: 100, refuse_every: 0, silent_every: 0, leave_after: 0, close_after: 0 };

/// The server's own counts.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    silent: AtomicU64,
    /// Bytes of request bodies.
    uploaded: AtomicU64,
    /// Maximum concurrent streams on one connection.
    most: AtomicU64,
}

fn serve(manners: Manners) -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let counts = Arc::new(Counts::default());
    let own = Arc::clone(&counts);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            own.connections.fetch_add(1, Ordering::Relaxed);
            let counts = Arc::clone(&own);
            thread::spawn(move || {
                let _gone = attend(stream, manners, &counts);
            });
        }
    });
    (address, counts)
}

fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

fn attend(mut stream: TcpStream, manners: Manners, counts: &Counts) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface)?;
    assert_eq!(preface, PREFACE);
    let mut out = Vec::new();
    put(&mut out, SETTINGS, 0, 0, &[&[0, 3][..], &manners.streams.to_be_bytes()].concat());
    stream.write_all(&out)?;
    let (mut input, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    let (mut came, mut open, mut whole, mut leaves) = (0, BTreeSet::new(), Vec::new(), false);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            len => input.extend_from_slice(&buffer[..len]),
        }
        out.clear();
        while input.len() >= 9 {
            let length = u32::from_be_bytes([0, input[0], input[1], input[2]]) as usize;
            if input.len() < 9 + length {
                break;
            }
            let (kind, flags) = (input[3], input[4]);
            let id = u32::from_be_bytes([input[5], input[6], input[7], input[8]]);
            input.drain(..9 + length);
            match kind {
                SETTINGS if flags & ACK == 0 => put(&mut out, SETTINGS, ACK, 0, &[]),
                // Requests after a GOAWAY are not processed.
                HEADERS if !leaves => {
                    came += 1;
                    if came == manners.leave_after {
                        let last = id.saturating_sub(2);
                        put(&mut out, GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
                        leaves = true;
                        continue;
                    }
                    counts.requests.fetch_add(1, Ordering::Relaxed);
                    open.insert(id);
                    counts.most.fetch_max(open.len() as u64, Ordering::Relaxed);
                }
                DATA if !leaves || open.contains(&id) => {
                    counts.uploaded.fetch_add(length as u64, Ordering::Relaxed);
                    if length > 0 {
                        put(&mut out, WINDOW_UPDATE, 0, 0, &(length as u32).to_be_bytes());
                    }
                }
                _ => {}
            }
            if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 && open.contains(&id) {
                whole.push(id);
            }
        }
        if manners.close_after > 0 && came >= manners.close_after {
            return Ok(());
        }
        for id in whole.drain(..) {
            let number = counts.answered.load(Ordering::Relaxed)
                + counts.refused.load(Ordering::Relaxed)
                + counts.silent.load(Ordering::Relaxed)
                + 1;
            let every = |count: u64| count > 0 && number.is_multiple_of(count);
            if every(manners.silent_every) {
                counts.silent.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            open.remove(&id);
            if every(manners.refuse_every) {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                put(&mut out, RST_STREAM, 0, id, &REFUSED_STREAM.to_be_bytes());
                continue;
            }
            counts.answered.fetch_add(1, Ordering::Relaxed);
            put(&mut out, HEADERS, END_HEADERS, id, STATUS_200);
            put(&mut out, DATA, END_STREAM, id, BODY);
        }
        stream.write_all(&out)?;
        if leaves && open.is_empty() {
            return Ok(());
        }
    }
}

fn plan(server: SocketAddr, body: Option<&[u8]>) -> Plan {
    let method = if body.is_some() { "POST" } else { "GET" };
    let message =
        PreparedRequest::new(method, "localhost", "/{seq}", &[], body, Style::default()).expect("a request");
    let mix = Mix::new(vec![(message, 1)]).expect("one message");
    Plan {
        protocol: Protocol::Http2,
        pipeline: 10,
        connections: 4,
        stop: Stop::Count(1_000),
        ..Plan::new(server, mix)
    }
}

fn run(plan: Plan) -> RunOutcome {
    let mut run = RunHandle::start(plan).unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(run.wait(PATIENCE), "it does not end");
    run.outcome().unwrap_or_else(|trouble| panic!("{trouble}"))
}

fn failures(outcome: &RunOutcome) -> Vec<(RequestPhase, String, u64)> {
    outcome.errors.iter().map(|error| (error.phase, error.cause.to_string(), error.count)).collect()
}

#[test]
fn a_fixed_number_agrees_with_the_server_however_many_streams_it_allows() {
    for backend in Backend::NAMED.into_iter().filter(|backend| backend.compiled()) {
        for (pipeline, streams, threads) in [(1, 100, 1), (7, 100, 2), (100, 16, 1)] {
            let (server, counts) = serve(Manners { streams, ..PLAIN });
            let body = Some(Expected::Text(BODY.to_vec()));
            let plan = Plan { pipeline, threads, backend, body, ..plan(server, None) };
            let outcome = run(plan);
            let (totals, case) = (&outcome.totals, format!("{backend}, {pipeline} of {streams} streams"));
            assert_eq!(failures(&outcome), [], "{case}");
            let told =
                (totals.begun, totals.finished, totals.wrong, totals.statuses.class(2), totals.connected);
            assert_eq!(told, (1_000, 1_000, 0, 1_000, 4), "{case}");
            assert_eq!(totals.body_bytes, 1_000 * BODY.len() as u64, "{case}");
            assert_eq!((totals.service.count(), totals.first_byte.count()), (1_000, 1_000), "{case}");
            let [requests, answered, most] =
                [&counts.requests, &counts.answered, &counts.most].map(|count| count.load(Ordering::Relaxed));
            assert_eq!((requests, answered), (1_000, 1_000), "{case}");
            assert_eq!(most, u64::from(pipeline).min(streams.into()), "{case}");
        }
    }
}

#[test]
fn bodies_go_up_whole() {
    let (server, counts) = serve(PLAIN);
    let body = vec![b'x'; 3_000];
    let outcome = run(Plan { stop: Stop::Count(200), ..plan(server, Some(&body)) });
    assert_eq!((outcome.totals.finished, counts.uploaded.load(Ordering::Relaxed)), (200, 600_000));
}

#[test]
fn a_stream_that_is_refused_takes_no_other_along() {
    let (server, counts) = serve(Manners { refuse_every: 10, ..PLAIN });
    // With one connection, each tenth request is refused.
    let outcome = run(Plan { connections: 1, ..plan(server, None) });
    assert_eq!((outcome.totals.finished, outcome.totals.failed, outcome.totals.connected), (900, 100, 1));
    let refused = (RequestPhase::FirstByte, "the server reset the stream: REFUSED_STREAM".to_owned(), 100);
    assert_eq!(failures(&outcome), [refused]);
    assert_eq!(counts.refused.load(Ordering::Relaxed), 100);
}

#[test]
fn a_stream_that_is_not_answered_times_out_alone() {
    let (server, counts) = serve(Manners { silent_every: 100, ..PLAIN });
    // Long enough for a busy machine to answer all other requests.
    let timeout = Duration::from_secs(10);
    let pace = Pace::Open(Rate::constant(300.0).expect("a rate"), Arrivals::Even);
    let outcome = run(Plan { connections: 1, timeout, pace, ..plan(server, None) });
    assert_eq!(outcome.totals.begun, 1_000);
    assert_eq!(outcome.totals.finished, counts.answered.load(Ordering::Relaxed));
    assert_eq!(outcome.totals.failed, counts.silent.load(Ordering::Relaxed));
    assert_eq!(outcome.totals.failed, 10);
    assert_eq!(outcome.totals.connected, 1);
    assert_eq!(failures(&outcome), [(RequestPhase::FirstByte, "timed out".to_owned(), 10)]);
}

#[test]
fn a_server_that_leaves_loses_no_request() {
    for pipeline in [1, 10] {
        let (server, counts) = serve(Manners { leave_after: 50, ..PLAIN });
        let outcome = run(Plan { pipeline, ..plan(server, None) });
        assert_eq!(failures(&outcome), [], "{pipeline} streams");
        assert_eq!((outcome.totals.begun, outcome.totals.finished), (1_000, 1_000), "{pipeline} streams");
        assert_eq!(counts.answered.load(Ordering::Relaxed), 1_000, "{pipeline} streams");
        // 49 requests per connection are answered.
        assert!(outcome.totals.connected >= 1_000 / 49, "{}", outcome.totals.connected);
    }
}

#[test]
fn who_takes_connections_only_to_leave_is_not_asked_for_ever() {
    let (server, counts) = serve(Manners { leave_after: 1, ..PLAIN });
    let outcome = run(Plan { stop: Stop::Count(3), connections: 1, pipeline: 1, ..plan(server, None) });
    let leave = "the server ended the connection by GOAWAY: NO_ERROR".to_owned();
    assert_eq!(failures(&outcome), [(RequestPhase::Greeting, leave, 3)]);
    assert_eq!((outcome.totals.begun, outcome.totals.failed), (3, 3));
    assert_eq!(counts.requests.load(Ordering::Relaxed), 0);
}

#[test]
fn a_server_that_closes_without_a_word_has_failed_what_was_on_its_way() {
    let (server, counts) = serve(Manners { close_after: 101, ..PLAIN });
    let outcome = run(plan(server, None));
    let totals = &outcome.totals;
    assert_eq!(totals.begun, totals.finished + totals.failed, "{:?}", failures(&outcome));
    assert_eq!((totals.begun, totals.finished), (1_000, counts.answered.load(Ordering::Relaxed)));
    assert!(totals.failed > 0);
}

#[test]
fn each_request_may_have_a_connection_of_its_own_or_so_many_one() {
    for (limit, connections) in [(1, 1_000), (25, 40)] {
        let (server, counts) = serve(PLAIN);
        let outcome = run(Plan { requests_per_connection: Some(limit), ..plan(server, None) });
        assert_eq!((outcome.totals.finished, outcome.totals.failed), (1_000, 0), "{:?}", failures(&outcome));
        // The last connection of each user may have had fewer requests.
        let made = counts.connections.load(Ordering::Relaxed);
        assert!((connections..connections + 4).contains(&made), "{made} of {limit} each");
    }
}

#[test]
fn a_rate_is_kept_on_streams_and_who_finds_one_has_not_waited() {
    let (server, _) = serve(PLAIN);
    let pace = Pace::Open(Rate::constant(500.0).expect("a rate"), Arrivals::Even);
    let stop = Stop::After(Duration::from_secs(2));
    let outcome = run(Plan { pace, stop, connections: 2, ..plan(server, None) });
    assert_eq!((outcome.totals.begun, outcome.totals.finished), (1_000, 1_000), "{:?}", failures(&outcome));
    assert_eq!(outcome.totals.response.count(), 1_000);
}

#[test]
fn a_server_without_http2_ends_the_run_with_that_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("bound");
    let streams = Arc::new(Mutex::new(Vec::new()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            // Kept open, so that the response is the only thing the client sees.
            streams.lock().expect("nobody panics with it").push(stream);
        }
    });
    let outcome = run(Plan { stop: Stop::Count(3), connections: 1, ..plan(server, None) });
    // No further request begins: each would fail after a pause that doubles.
    assert_eq!((outcome.totals.begun, outcome.totals.failed), (1, 1));
    let strange = "the server does not support HTTP/2".to_owned();
    let told = failures(&outcome);
    assert!(
        told.iter().all(|(phase, cause, _)| (*phase, cause) == (RequestPhase::Greeting, &strange)),
        "{told:?}"
    );
}
