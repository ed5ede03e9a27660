//! Limits: clients that are deliberately slow or take too much are disconnected, with the reason counted. A good client is
//! served meanwhile. Times are short here, in the proportions of the defaults.

use encke_settings::{ByteRate, OrOff};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use encke_server::{CloseReason, ConnLimits, Mount, Reply, Server, ServerStatus};

use crate::rig::client::Answer;
use crate::rig::handlers::{Echo, Feed, Held, Step, Valve, hello};
use crate::rig::{Client, End, Folder, PATIENCE, Rig, Stand, any_port, files, ms};

on_every_stand! {
    silent_clients_are_ended,
    clients_whose_heads_drip_are_ended,
    clients_whose_bodies_drip_are_ended,
    clients_whose_bodies_stop_are_ended,
    clients_that_do_not_read_a_file_are_ended,
    clients_that_do_not_read_a_stream_are_ended,
    clients_that_end_their_side_and_do_not_read_are_ended,
    clients_that_end_their_side_within_a_request_are_ended,
    clients_that_stay_after_the_last_answer_are_ended,
    a_slow_reader_of_the_last_response_receives_it_all,
    clients_that_are_done_and_stay_are_ended,
    an_idle_client_that_has_not_received_its_response_is_reset,
    a_short_idle_time_holds_beside_long_other_times,
    a_head_that_begins_behind_another_request_has_its_time,
    a_body_has_time_while_nobody_reads_it,
    a_stream_that_has_nothing_to_say_is_not_the_clients_fault,
    a_connection_has_so_many_requests,
    an_address_has_so_many_connections,
    whoever_waits_for_a_place_is_served_when_one_is_free,
    idle_connections_make_room,
    idle_connections_of_the_admin_listener_make_no_room,
}

on_every_back_end! {
    a_slow_but_steady_body_arrives,
    a_slow_but_steady_reader_gets_everything,
}

/// Number of slow clients of each kind.
const SLOW: usize = 20;

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Serves a greeting, an echo and a large file, with short times.
fn serve(stand: Stand, folder: &Folder, limit: impl FnOnce(&mut ConnLimits)) -> Rig {
    let files = files(folder);
    let limit = |policy: &mut ConnLimits| {
        policy.limits.head_time = ms(300);
        policy.limits.linger_time = ms(100);
        policy.rate_window_ns = ms(100).nanoseconds();
        policy.limits.body_rate = ByteRate::of(10_000);
        policy.limits.write_rate = ByteRate::of(10_000);
        limit(policy);
    };
    stand.serve_by(limit, |server| server.mount("/", hello).mount("/echo", Echo).mount("/large", files))
}

/// A client of a busy machine may pause between its connection and its request.
fn with_time_for_heads(policy: &mut ConnLimits) {
    policy.limits.head_time = ms(60_000);
}

fn large() -> Folder {
    Folder::new().with("large", vec![b'x'; 32 << 20])
}

/// Serves a good client until `count` connections have ended for `reason`. On a busy machine it may pause between two requests for
/// longer than a limit allows. Then it connects again, and that end counts in addition.
fn serve_on_until_closed(rig: &Rig, reason: CloseReason, count: usize) {
    let begun = Instant::now();
    let (mut good, mut due, mut served) = (rig.client(), count as u64, 0);
    while rig.closes(reason) < due || served == 0 {
        assert!(begun.elapsed() < PATIENCE, "{due} {} did not come{}", reason.name(), rig.told());
        if let Some(answer) = good.try_get("/") {
            assert_eq!(answer.text(), "Hello\n");
            served += 1;
        } else {
            (good, due) = (rig.client(), due + 1);
        }
    }
    // The good client may have ended, too, since its last response.
    assert!((due..=due + 1).contains(&rig.closes(reason)), "{}", rig.told());
}

fn slow(rig: &Rig, request: &str) -> Vec<Client> {
    let clients = (0..SLOW).map(|_| {
        let mut client = rig.narrow_client();
        client.send(request);
        client
    });
    clients.collect()
}

fn silent_clients_are_ended(stand: Stand) {
    let rig = serve(stand, &Folder::new(), |_| {});
    let clients = slow(&rig, "");
    serve_on_until_closed(&rig, CloseReason::HeadTime, SLOW);
    for mut client in clients {
        assert_eq!(client.end(), End::Finished);
    }
}

fn clients_whose_heads_drip_are_ended(stand: Stand) {
    let rig = serve(stand, &Folder::new(), |_| {});
    let begun = Instant::now();
    let mut clients = slow(&rig, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    let (mut good, _) = rig.begun(GET);
    assert_eq!(good.answer().text(), "Hello\n");
    while rig.closes(CloseReason::HeadTime) < SLOW as u64 {
        assert!(begun.elapsed() < PATIENCE, "{}", rig.told());
        assert_eq!(good.get("/").text(), "Hello\n");
        for client in &mut clients {
            let _may_be_over = client.try_send("x");
        }
    }
    for mut client in clients {
        // Bytes that arrived after the end may have reset the connection. Otherwise the client has its response.
        let (rest, _) = client.rest();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "), "{rest:?}");
    }
    // A client that paused before its first byte gets no response.
    assert!(rig.count_of("encke_http_requests_total", "4xx") >= SLOW as u64 / 2);
}

/// A byte per second must not hold a connection forever, however often the handler reads.
fn clients_whose_bodies_drip_are_ended(stand: Stand) {
    let rig = serve(stand, &Folder::new(), with_time_for_heads);
    let mut clients = slow(&rig, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    let mut good = rig.client();
    let mut drops = 0;
    while rig.closes(CloseReason::BodyRate) < SLOW as u64 {
        // A byte every few milliseconds is a hundredth of the required rate: after two windows, 200 ms, the connection ends.
        drops += 1;
        assert!(drops < 400, "each dripped {drops} bytes and is still served{}", rig.told());
        assert!(!good.idle(Duration::from_millis(3)));
        assert_eq!(good.get("/").text(), "Hello\n");
        for client in &mut clients {
            let _may_be_over = client.try_send("x");
        }
    }
    for mut client in clients {
        let (rest, _) = client.rest();
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "), "{rest:?}");
    }
}

fn clients_whose_bodies_stop_are_ended(stand: Stand) {
    let rig = serve(stand, &Folder::new(), with_time_for_heads);
    for (request, status) in [
        ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf", 408),
        ("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhal", 408),
        // No handler reads this body. The response is sent, and the rest of the body never arrives.
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf", 200),
    ] {
        let before = rig.closes(CloseReason::BodyRate) as usize;
        let clients = slow(&rig, request);
        serve_on_until_closed(&rig, CloseReason::BodyRate, before + SLOW);
        for mut client in clients {
            assert_eq!(client.answer().status, status, "{request:?}");
        }
    }
}

fn clients_that_do_not_read_a_file_are_ended(stand: Stand) {
    let folder = large();
    let rig = serve(stand, &folder, with_time_for_heads);
    let clients = slow(&rig, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    serve_on_until_closed(&rig, CloseReason::WriteRate, SLOW);
    for mut client in clients {
        let (rest, end) = client.rest();
        assert!(rest.len() < 32 << 20 && end == End::Reset, "{} bytes, {end:?}", rest.len());
    }
}

fn clients_that_do_not_read_a_stream_are_ended(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve_by(
        |policy| {
            policy.rate_window_ns = ms(100).nanoseconds();
            policy.limits.write_rate = ByteRate::of(10_000);
        },
        |server| server.mount("/", hello).mount("/feed", feed.clone()),
    );
    let mut client = rig.narrow_client();
    client.send("GET /feed HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    feed.wait_until_starved(&rig, 1);
    for _ in 0..2_000 {
        feed.push(Step::Bytes(vec![b'x'; 16 * 1024]));
    }
    serve_on_until_closed(&rig, CloseReason::WriteRate, 1);
    let (_, end) = client.rest();
    assert_eq!(end, End::Reset);
    assert!(feed.dropped());
}

fn clients_that_end_their_side_and_do_not_read_are_ended(stand: Stand) {
    let folder = large();
    let rig = serve(stand, &folder, with_time_for_heads);
    let mut clients = slow(&rig, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    clients.iter_mut().for_each(Client::finish);
    serve_on_until_closed(&rig, CloseReason::WriteRate, SLOW);
}

fn clients_that_end_their_side_within_a_request_are_ended(stand: Stand) {
    // Nor does a slow body end a connection before its client ends it.
    let rig = stand.serve(|server| server.mount("/", hello).mount("/echo", Echo));
    let mut clients = slow(&rig, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
    clients.extend(slow(&rig, "GET / HTTP/1.1\r\nHo"));
    clients.iter_mut().for_each(Client::finish);
    serve_on_until_closed(&rig, CloseReason::PeerAborted, 2 * SLOW);
    for mut client in clients {
        assert_eq!(client.end(), End::Finished);
    }
}

fn clients_that_stay_after_the_last_answer_are_ended(stand: Stand) {
    let rig = serve(stand, &Folder::new(), with_time_for_heads);
    // Input follows the last request, so the server lingers.
    let last = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let clients = slow(&rig, &format!("{last}{GET}"));
    serve_on_until_closed(&rig, CloseReason::LingerTime, SLOW);
    for mut client in clients {
        assert!(client.answer().closes());
        client.rest();
    }
}

fn a_slow_reader_of_the_last_response_receives_it_all(stand: Stand) {
    const BYTES: usize = 60_000;
    let folder = Folder::new().with("file", vec![b'x'; BYTES]);
    let files = files(&folder);
    let limit = |policy: &mut ConnLimits| policy.limits.linger_time = ms(50);
    let rig = stand.serve_by(limit, |server| server.mount("/", files));
    let (mut client, mut pace) = (rig.narrow_client(), rig.client());
    // Input follows the last request, so the server lingers.
    let last = "GET /file HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.send(format!("{last}{GET}"));
    assert_eq!(client.head().status, 200);
    // Several times the time of lingering.
    let mut received = 0;
    while received < BYTES {
        let bytes = client.read_some(2_000).len();
        assert!(bytes > 0, "the end after {received} bytes");
        received += bytes;
        pace.idle(Duration::from_millis(10));
    }
    assert_eq!((received, client.end()), (BYTES, End::Finished));
}

fn clients_that_are_done_and_stay_are_ended(stand: Stand) {
    let limit = |policy: &mut ConnLimits| {
        with_time_for_heads(policy);
        policy.limits.idle_time = ms(500);
    };
    let rig = serve(stand, &Folder::new(), limit);
    let mut clients = slow(&rig, GET);
    for client in &mut clients {
        assert_eq!(client.answer().text(), "Hello\n");
    }
    serve_on_until_closed(&rig, CloseReason::IdleTime, SLOW);
    for mut client in clients {
        assert_eq!(client.end(), End::Finished);
    }
}

fn an_idle_client_that_has_not_received_its_response_is_reset(stand: Stand) {
    // The kernel takes all of it, and the client's window has no room for it.
    const BYTES: usize = 30_000;
    let folder = Folder::new().with("file", vec![b'x'; BYTES]);
    let files = files(&folder);
    let limit = |policy: &mut ConnLimits| policy.limits.idle_time = ms(100);
    let rig = stand.serve_by(limit, |server| server.mount("/", files));
    let mut client = rig.narrow_client();
    client.send("GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n");
    rig.wait_for_closes(CloseReason::IdleTime, 1);
    let (rest, end) = client.rest();
    assert!(rest.len() < BYTES && end == End::Reset, "{} bytes, {end:?}", rest.len());
}

fn a_short_idle_time_holds_beside_long_other_times(stand: Stand) {
    // The other times are longer than any case waits.
    let limit = |policy: &mut ConnLimits| {
        policy.limits.idle_time = ms(100);
        policy.limits.head_time = ms(3_600_000);
        policy.limits.linger_time = ms(3_600_000);
        policy.rate_window_ns = ms(3_600_000).nanoseconds();
    };
    let rig = stand.serve_by(limit, |server| server.mount("/", hello));
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "Hello\n");
    // On a busy machine the time may end between two requests.
    while client.try_get("/").is_some_and(|answer| answer.text() == "Hello\n") {
        if rig.count("encke_http_requests_total") >= 3 {
            assert_eq!(client.end(), End::Finished);
            break;
        }
    }
    rig.wait_for_closes(CloseReason::IdleTime, 1);
}

fn a_head_that_begins_behind_another_request_has_its_time(stand: Stand) {
    // The idle time is long, but must not apply to a head that has begun.
    let rig = stand.serve_by(|policy| policy.limits.head_time = ms(200), |server| server.mount("/", hello));
    let mut due = 2;
    for beginning in ["G", "GET / HTTP/1.1\r\nHost"] {
        let (mut client, ends) = rig.begun(format!("{GET}{beginning}"));
        due += ends;
        assert_eq!(client.answer().text(), "Hello\n");
        let answer = client.answer();
        assert!(answer.status == 408 && answer.closes(), "{beginning:?}: {answer:?}");
        client.finish();
        assert_eq!(client.end(), End::Finished);
    }
    rig.wait_for_closes(CloseReason::HeadTime, due);
}

fn a_body_has_time_while_nobody_reads_it(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve_by(
        |policy| {
            policy.rate_window_ns = ms(50).nanoseconds();
            policy.limits.body_rate = ByteRate::of(1_000);
        },
        |server| server.mount("/", valve.clone()).mount("/hello", hello),
    );
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    valve.wait(&rig);
    valve.pass(&rig);
    // The handler does not read for many windows: the client must not be blamed.
    let mut other = rig.client();
    assert!(!other.idle(Duration::from_millis(400)), "nothing was asked");
    assert_eq!(other.get("/hello").status, 200);
    assert!(!client.has_news(), "the client has done nothing wrong");
    client.send("half");
    valve.pass(&rig);
    if !valve.flow().whole {
        valve.open_once();
    }
    assert_eq!(client.answer().text(), "8 bytes");
}

fn a_slow_but_steady_body_arrives(stand: Stand) {
    // Forty times the required rate, in small pieces, through several windows. A client that pauses for a whole window would fail.
    let rig = stand.serve_by(
        |policy| {
            policy.rate_window_ns = ms(2_000).nanoseconds();
            policy.limits.body_rate = ByteRate::of(100);
        },
        |server| server.mount("/", Echo),
    );
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n");
    for _ in 0..200 {
        client.send([b'x'; 100]);
        if client.idle(Duration::from_millis(25)) {
            break;
        }
    }
    assert_eq!(client.answer().body.len(), 20_000, "{}", rig.told());
}

/// Bytes in the kernel's buffers have not reached the client. The buffers are larger than the bytes that a slow client receives
/// in a window, and must not make the client look stuck.
fn a_slow_but_steady_reader_gets_everything(stand: Stand) {
    const LEN: usize = 4 << 20;
    let folder = Folder::new().with("large", vec![b'x'; LEN]);
    let rig = serve(stand, &folder, |policy| {
        with_time_for_heads(policy);
        policy.rate_window_ns = ms(1_500).nanoseconds();
        policy.limits.write_rate = ByteRate::of(20_000);
    });
    let mut client = rig.narrow_client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let begun = Instant::now();
    let mut read = 0;
    while read < LEN {
        read += client.read_exact((LEN - read).min(16 * 1024)).len();
        // A megabyte per second: fifty times the required rate.
        let due = Duration::from_micros(read as u64).saturating_sub(begun.elapsed());
        std::thread::park_timeout(due);
    }
    assert_eq!(client.get("/").text(), "Hello\n");
}

fn a_stream_that_has_nothing_to_say_is_not_the_clients_fault(stand: Stand) {
    let feed = Feed::default();
    let rig = stand.serve_by(
        |policy| {
            policy.rate_window_ns = ms(50).nanoseconds();
            policy.limits.idle_time = ms(50);
            policy.limits.head_time = ms(50);
        },
        |server| server.mount("/", feed.clone()),
    );
    let (mut client, _) = rig.begun(GET);
    assert_eq!(client.head().status, 200);
    feed.wait_until_starved(&rig, 1);
    assert!(!client.idle(Duration::from_millis(400)), "many times every limit");
    feed.push(Step::Bytes(b"late".to_vec()));
    feed.push(Step::End);
    assert_eq!(client.read_exact(15), b"0004\r\nlate\r\n0\r\n");
}

fn a_connection_has_so_many_requests(stand: Stand) {
    let rig = stand.serve_by(
        |policy| policy.limits.requests_per_connection = OrOff::On(NonZeroU32::new(3).expect("above 0")),
        |server| server.mount("/", hello),
    );
    let mut client = rig.client();
    client.send(GET.repeat(5));
    let closes: Vec<bool> = client.answers(3).iter().map(Answer::closes).collect();
    assert_eq!(closes, [false, false, true]);
    client.finish();
    assert_eq!(client.end(), End::Finished);
}

fn an_address_has_so_many_connections(stand: Stand) {
    let rig = stand.serve_by(
        |policy| policy.limits.connections_per_address = OrOff::On(NonZeroU32::new(3).expect("above 0")),
        |server| server.mount("/", hello),
    );
    for _ in 0..3 {
        let mut clients: Vec<Client> = (0..3).map(|_| rig.client()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/").status, 200);
        }
        let before = rig.closes(CloseReason::AddressLimit);
        // The reset may arrive before connect(2) has returned.
        let fourth = match Client::try_connect(rig.address()) {
            Ok(mut client) => client.end(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
            Err(error) => panic!("connecting: {error}"),
        };
        assert_eq!(fourth, End::Reset);
        rig.wait_for_closes(CloseReason::AddressLimit, before + 1);
        let mut other = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), rig.address());
        assert_eq!(other.get("/").status, 200, "another address has its own");
        drop((clients, other));
        rig.wait(|| rig.connections() == 0, "all have gone");
    }
}

fn whoever_waits_for_a_place_is_served_when_one_is_free(stand: Stand) {
    const MOST: usize = 8;
    let held = Held::default();
    let rig = stand.serve_by(
        |policy| policy.connections = MOST,
        |server| server.mount("/", hello).mount("/held", held.clone()),
    );
    // All slots are taken, and none of the connections is idle.
    let mut inside: Vec<Client> = Vec::new();
    let mut exchanges = Vec::new();
    for _ in 0..MOST {
        let mut client = rig.client();
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        exchanges.push(held.take(&rig));
        inside.push(client);
    }
    let mut waiting: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = rig.client();
            client.send(GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
            client
        })
        .collect();
    rig.wait(|| rig.count("encke_accept_pauses_total") >= 1, "accepting pauses");
    for exchange in exchanges {
        exchange.answer(Reply::text(200, "done").and_close());
    }
    for client in &mut inside {
        assert_eq!(client.answer().text(), "done");
    }
    drop(inside);
    for client in &mut waiting {
        assert_eq!(client.answer().text(), "Hello\n");
    }
    drop(waiting);
    assert_eq!(rig.client().get("/").text(), "Hello\n");
}

fn idle_connections_make_room(stand: Stand) {
    const MOST: usize = 100;
    let rig = stand.serve_by(|policy| policy.connections = MOST, |server| server.mount("/", hello));
    let mut clients = Vec::new();
    // Twice as many clients as the limit: new ones are served, and idle ones may be closed.
    for number in 0..2 * MOST {
        let mut client = rig.client();
        assert_eq!(client.get("/").text(), "Hello\n", "client {number}");
        clients.push(client);
        // Another worker may still close a connection.
        rig.wait(|| rig.connections() <= MOST as u64 + 1, "idle connections make room");
    }
    rig.wait(|| rig.closes(CloseReason::Shed) >= MOST as u64, "those who were idle have gone");
    let ended = || clients.iter().filter(|client| client.has_news()).count();
    rig.wait(|| ended() >= MOST, "they see an end, in order");
}

fn idle_connections_of_the_admin_listener_make_no_room(stand: Stand) {
    const MOST: usize = 100;
    let admin = Server::bind_admin(&any_port().into(), 64).expect("a free port");
    let address = admin.address().clone();
    let options = stand.options(|policy| policy.connections = MOST);
    let server = Server::new(options).listen(any_port()).mount("/", hello).admin(admin);
    let mounts = |_: &Arc<ServerStatus>| Ok(vec![("/".to_owned(), Arc::new(hello) as Arc<dyn Mount>)]);
    let rig = Rig::of(server.start_with(mounts).expect("free ports"));
    // The operators' connections would time out first.
    let mut operators: Vec<Client> = (0..8).map(|_| Client::connect(&address)).collect();
    for operator in &mut operators {
        assert_eq!(operator.get("/").status, 200);
    }
    let mut clients = Vec::new();
    for number in 0..2 * MOST {
        let mut client = rig.client();
        assert_eq!(client.get("/").text(), "Hello\n", "client {number}");
        clients.push(client);
        rig.wait(|| rig.connections() <= MOST as u64 + 1, "idle connections make room");
    }
    rig.wait(|| rig.closes(CloseReason::Shed) >= MOST as u64, "idle clients have gone");
    for operator in &mut operators {
        assert!(!operator.has_news(), "an operator was shed");
        assert_eq!(operator.get("/").status, 200);
    }
}
