//! Drain: open exchanges finish, new requests are served meanwhile, then listeners and idle connections close, and no connection
//! is reset.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use encke_io::Address;
use encke_server::{CloseReason, OpenWork, Reply};
use encke_wire::websocket::{self, Opcode};

use crate::rig::handlers::{Echo, Feed, Held, Step, Valve, hello};
use crate::rig::{Client, End, Folder, PATIENCE, Rig, Stand, files, wait_for};

on_every_stand! {
    requests_under_way_are_answered_and_say_that_they_are_the_last,
    idle_connections_are_closed_in_order,
    a_download_under_way_finishes_and_its_connection_ends,
    an_upload_under_way_finishes,
    a_stream_under_way_finishes,
    files_are_served_until_the_open_requests_have_ended,
    the_listeners_close_although_a_request_stays_open,
    what_is_not_done_in_time_is_closed,
}

on_every_back_end! {
    the_close_of_a_websocket_is_not_followed_by_a_reset,
    nobody_under_load_is_reset_at_the_end,
}

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Far longer than [`PATIENCE`].
const LONG: Duration = Duration::from_secs(3_600);

/// Begins a drain that gives open exchanges more time than any case takes. Returns when all workers drain.
fn drain(rig: &Rig) -> OpenWork {
    rig.running().drain(Duration::ZERO, LONG);
    rig.running().open_work(PATIENCE).expect("every worker counts its open work")
}

/// Waits until connecting fails, because the listeners are closed.
fn wait_until_closed(address: &Address) {
    let Address::Inet(address) = *address else { panic!("an Internet address was asked for") };
    // Attempts while the listeners are closing may receive no response, so each has a short timeout.
    let refused = || {
        TcpStream::connect_timeout(&address, Duration::from_millis(50))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    wait_for(refused, "connecting is refused", String::new);
}

fn requests_under_way_are_answered_and_say_that_they_are_the_last(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    client.send(GET);
    let exchange = held.take(&rig);
    drain(&rig);
    exchange.answer(Reply::text(200, "at last"));
    let answer = client.answer();
    assert!(answer.text() == "at last" && answer.closes(), "{answer:?}");
    assert_eq!(client.end(), End::Finished);
    ends_soon(rig);
}

/// Ends a server that has no open exchanges. If it waited for the end of its drain, this would take [`LONG`].
fn ends_soon(rig: Rig) {
    let (ended, wait) = std::sync::mpsc::channel();
    thread::spawn(move || {
        rig.end();
        let _too_late = ended.send(());
    });
    wait.recv_timeout(PATIENCE).expect("it does not wait for the end of its drain");
}

fn idle_connections_are_closed_in_order(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut idle: Vec<Client> = (0..10).map(|_| rig.client()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").text(), "Hello\n");
    }
    let mut silent: Vec<Client> = (0..10).map(|_| rig.client()).collect();
    rig.wait(|| rig.connections() == 20, "all are accepted");
    drain(&rig);
    for client in idle.iter_mut().chain(&mut silent) {
        assert_eq!(client.end(), End::Finished);
    }
    rig.wait_for_closes(CloseReason::Drain, 20);
    ends_soon(rig);
}

fn the_close_of_a_websocket_is_not_followed_by_a_reset(on: Stand) {
    let rig = on.serve(crate::examples::echoing);
    let mut client = rig.client();
    client.send(crate::examples::UPGRADE);
    assert_eq!(client.head().status, 101);
    drain(&rig);
    wait_for(|| client.has_news(), "the Close arrives", String::new);
    // The client has not read it yet, and a reset may destroy it. After a reset the second message cannot be sent.
    let mut message = Vec::new();
    websocket::put_masked(&mut message, Opcode::Text, b"hello", [1, 2, 3, 4]);
    for _ in 0..2 {
        client.try_send(&message).expect("no reset");
    }
    let (close, end) = client.rest();
    assert_eq!((&close[..1], &close[2..4], end), (&b"\x88"[..], &1012_u16.to_be_bytes()[..], End::Finished));
    drop(client);
    ends_soon(rig);
}

fn a_download_under_way_finishes_and_its_connection_ends(stand: Stand) {
    const LEN: usize = 16 << 20;
    let folder = Folder::new().with("large", vec![b'x'; LEN]);
    let rig = stand.serve_files(&folder);
    let mut client = rig.narrow_client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    drain(&rig);
    client.read_exact(LEN);
    assert_eq!(client.end(), End::Finished);
    ends_soon(rig);
}

fn an_upload_under_way_finishes(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()));
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    valve.wait(&rig);
    valve.pass(&rig);
    drain(&rig);
    valve.open_once();
    client.send("half");
    rig.wait(|| valve.flow().bytes == 8, "the second half");
    if !valve.flow().whole {
        valve.open_once();
    }
    let answer = client.answer();
    assert!(answer.text() == "8 bytes" && answer.closes(), "{answer:?}");
    assert_eq!(client.end(), End::Finished);
    ends_soon(rig);
}

fn a_stream_under_way_finishes(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve(|server| server.mount("/", feed.clone()));
    let mut client = rig.client();
    client.send(GET);
    assert_eq!(client.head().status, 200);
    feed.wait_until_starved(&rig, 1);
    drain(&rig);
    feed.push(Step::Bytes(b"end".to_vec()));
    feed.push(Step::End);
    let (rest, end) = client.rest();
    assert_eq!((rest.as_slice(), end), (&b"0003\r\nend\r\n0\r\n\r\n"[..], End::Finished));
    ends_soon(rig);
}

fn files_are_served_until_the_open_requests_have_ended(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()).mount("/hello", hello));
    let mut client = rig.client();
    client.send(GET);
    let exchange = held.take(&rig);
    let open = drain(&rig);
    assert_eq!((open.streams, open.requests), (0, 1));
    for _ in 0..10 {
        let mut other = rig.client();
        let answer = other.get("/hello");
        assert!(answer.text() == "Hello\n" && answer.closes(), "{answer:?}");
        assert_eq!(other.end(), End::Finished);
    }
    exchange.answer(Reply::text(200, "at last"));
    assert_eq!(client.answer().text(), "at last");
    assert_eq!(client.end(), End::Finished);
    wait_until_closed(rig.address());
    ends_soon(rig);
}

/// A request that does not end must not delay the successor beyond the time of the drain, so the listeners close before.
fn the_listeners_close_although_a_request_stays_open(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = rig.client();
    client.send(GET);
    let exchange = held.take(&rig);
    rig.running().drain(Duration::ZERO, Duration::from_secs(2));
    wait_until_closed(rig.address());
    exchange.answer(Reply::text(200, "at last"));
    // Within the last quarter of the time, unless this machine is too busy.
    let (rest, end) = client.rest();
    assert!(end == End::Reset || rest.ends_with(b"at last"), "{:?}", String::from_utf8_lossy(&rest));
}

fn what_is_not_done_in_time_is_closed(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()).mount("/echo", Echo));
    let mut client = rig.client();
    client.send(GET);
    let exchange = held.take(&rig);
    let mut upload = rig.client();
    upload.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    rig.wait(|| rig.count("encke_exchanges_open") == 2, "both are under way");
    rig.running().drain(Duration::ZERO, Duration::from_millis(300));
    assert_eq!(client.end(), End::Reset);
    assert_eq!(upload.end(), End::Reset);
    rig.wait_for_closes(CloseReason::Drain, 2);
    exchange.answer(Reply::text(200, "too late"));
    ends_soon(rig);
}

/// Results of a client under load.
#[derive(Default)]
struct Tally {
    answers: AtomicU64,
    over: AtomicBool,
}

fn nobody_under_load_is_reset_at_the_end(stand: Stand) {
    let folder = Folder::new().with("file", vec![b'x'; 20_000]);
    for round in 0..20 {
        let stand = Stand { workers: if round % 2 == 0 { 1 } else { 4 }, ..stand };
        let files = files(&folder);
        let rig = stand.serve(|server| server.mount("/", files).mount("/hello", hello));
        let address = rig.address().clone();
        let tally = Arc::new(Tally::default());
        let clients: Vec<_> = (0..6)
            .map(|number| {
                let (address, tally) = (address.clone(), Arc::clone(&tally));
                thread::spawn(move || load(number, &address, &tally))
            })
            .collect();
        rig.wait(|| tally.answers.load(Ordering::Relaxed) > 300, "the load is there");
        drain(&rig);
        for client in clients {
            client.join().expect("no client was let down");
        }
        ends_soon(rig);
        assert!(tally.over.load(Ordering::Relaxed), "round {round}");
    }
}

/// Sends requests until connecting fails. Every accepted client must receive its responses, complete and in order. Between two
/// requests, and before the first, the connection may end: a thread may be stopped for longer than a connection at rest stays open in
/// a drain, and a client repeats such a request (RFC 9112, section 9.3.1). simulation.rs has the test of that time.
fn load(number: usize, address: &Address, tally: &Tally) {
    let Address::Inet(inet) = *address else { panic!("an Internet address was asked for") };
    loop {
        // A listener that is about to close leaves attempts without a response; the load ends then, too.
        if TcpStream::connect_timeout(&inet, Duration::from_millis(100)).map(drop).is_err() {
            tally.over.store(true, Ordering::Relaxed);
            return;
        }
        let Ok(mut client) = Client::try_connect(address) else { continue };
        match number % 3 {
            // A connection per request.
            0 => {
                client.send(
                    GET.replace("GET /", "GET /hello").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"),
                );
                if client.is_answered() {
                    assert_eq!(client.answer().text(), "Hello\n");
                    assert_eq!(client.end(), End::Finished);
                    tally.answers.fetch_add(1, Ordering::Relaxed);
                }
            }
            // One request after the other, until a response announces the end of the connection.
            1 => loop {
                client.send(GET.replace("GET /", "GET /file"));
                if !client.is_answered() {
                    break;
                }
                let answer = client.answer();
                assert_eq!(answer.body.len(), 20_000);
                tally.answers.fetch_add(1, Ordering::Relaxed);
                if answer.closes() {
                    break;
                }
            },
            // Pipelined: requests after the last response are not processed, and are sent again on another connection.
            _ => loop {
                client.send(GET.replace("GET /", "GET /hello").repeat(4));
                if !client.is_answered() {
                    break;
                }
                let last = (0..4).any(|_| {
                    let answer = client.answer();
                    assert_eq!(answer.text(), "Hello\n");
                    tally.answers.fetch_add(1, Ordering::Relaxed);
                    answer.closes()
                });
                if last {
                    client.finish();
                    assert_eq!(client.end(), End::Finished);
                    break;
                }
            },
        }
    }
}
