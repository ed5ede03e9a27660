//! Guards from outside: which requests reach a handler, and the end of each request that waits. The guard here is a toy,
//! controlled by the path of a request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use encke_io::Done;
use encke_server::{
    CloseReason, ConnLimits, Exchange, ExchangeKey, Guard, GuardCall, GuardMount, GuardOutcome, GuardPoint,
    GuardVerdict, HandlerContext, JobId, Options, Outcome, Passage, Prepared, Reply, Request, Server, Ticket,
    WorkerSetup,
};

use crate::residents;
use crate::rig::h2::{CANCEL, DATA, END_STREAM, GET, H2, POST, RST_STREAM, frame, request};
use crate::rig::handlers::{Echo, hello, lock};
use crate::rig::{Client, Cut, End, PATIENCE, Rig, Stand, wait_for};

on_every_stand! {
    a_request_passes_or_is_refused_within_the_check,
    a_verdict_may_come_from_another_thread,
    a_held_request_reaches_its_handler_as_it_arrived,
    requests_behind_a_held_one_wait_for_it,
    a_verdict_during_a_send_waits_for_its_end,
    the_body_is_invited_only_after_the_guard_passes,
    a_guard_learns_that_a_client_has_left,
    a_dropped_ticket_is_a_500_and_counted,
    a_guard_that_panics_is_a_500_and_the_worker_lives,
    a_drain_waits_for_a_held_request,
    streams_of_a_connection_wait_independently,
    a_reset_stream_is_reported_to_its_guard,
}

on_two_stands! {
    a_refused_body_is_not_read,
    a_held_request_without_its_whole_body_is_dropped_when_its_client_ends,
    guards_are_asked_in_order_and_know_what_was_found_out,
    a_response_with_a_cookie_of_a_guard_is_stored_by_no_cache,
    fields_of_a_guard_go_with_the_response_of_a_resident,
    a_ticket_never_decides_for_another_guard,
    a_guard_of_a_mount_point_sees_its_requests_only,
    guards_of_the_server_see_requests_without_a_handler,
    a_held_request_outlives_a_reload_with_its_guards_and_handler,
    a_reload_that_would_leave_a_guard_without_a_place_changes_nothing,
    a_guard_may_offload_its_work,
    fields_of_a_guard_go_with_every_response,
    a_takeover_may_follow_a_held_request,
    what_is_held_at_the_end_of_a_drain_is_gone,
    a_guard_needs_a_mount_point_to_be_attached_to,
}

/// A guard whose tickets are given by the case.
#[derive(Clone, Default)]
struct Toy(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    held: VecDeque<(ExchangeKey, Ticket<GuardVerdict>)>,
    gone: Vec<ExchangeKey>,
}

struct ToyGuard(Toy, HandlerContext, Vec<(JobId, Ticket<GuardVerdict>)>);

fn refusal() -> Reply {
    Reply::text(403, "not you\n")
}

fn passed() -> GuardVerdict {
    GuardVerdict::Pass(Passage::default())
}

impl Toy {
    /// Returns the ticket that has been held longest. Waits until there is one.
    fn take(&self) -> (ExchangeKey, Ticket<GuardVerdict>) {
        let mut taken = None;
        let look = || {
            taken = lock(&self.0).held.pop_front();
            taken.is_some()
        };
        wait_for(look, "a request is held", String::new);
        taken.expect("waited for")
    }

    fn pass(&self) {
        self.take().1.resolve(passed());
    }

    fn wait_gone(&self, key: ExchangeKey) {
        wait_for(
            || lock(&self.0).gone.contains(&key),
            "the guard knows that the client has left",
            String::new,
        );
        assert_eq!(lock(&self.0).gone.len(), 1);
    }
}

impl GuardMount for Toy {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(ToyGuard(self.clone(), context, Vec::new()))
    }
}

impl Guard for ToyGuard {
    fn check(&mut self, request: &Request<'_>, call: GuardCall<'_>) -> GuardOutcome {
        let path = request.path();
        match path {
            b"/refuse" => return GuardOutcome::Refuse(refusal()),
            b"/panic" => panic!("a guard that fails"),
            _ if !path.starts_with(b"/hold") => return GuardOutcome::pass(),
            _ => {}
        }
        let (hold, ticket) = call.hold();
        match path {
            b"/hold/thread-pass" => drop(std::thread::spawn(move || ticket.resolve(passed()))),
            b"/hold/thread-refuse" => {
                drop(std::thread::spawn(move || ticket.resolve(GuardVerdict::Refuse(refusal()))));
            }
            b"/hold/within" => ticket.resolve(passed()),
            b"/hold/drop" => drop(ticket),
            b"/hold/thread-drop" => drop(std::thread::spawn(move || drop(ticket))),
            b"/hold/offload" => {
                let query = request.query().unwrap_or_default().to_vec();
                self.2.push((self.1.offload(move || query == b"secret"), ticket));
            }
            _ => lock(&self.0.0).held.push_back((hold.key(), ticket)),
        }
        GuardOutcome::Later(hold)
    }

    fn gone(&mut self, key: ExchangeKey) {
        lock(&self.0.0).gone.push(key);
    }

    fn offloaded(&mut self, job: JobId, done: Option<Done>) {
        let at = self.2.iter().position(|(id, _)| *id == job).expect("a job of this guard");
        let (_, ticket) = self.2.swap_remove(at);
        match done.and_then(|done| done.downcast::<bool>().ok()) {
            Some(right) if *right => ticket.resolve(passed()),
            _ => ticket.resolve(GuardVerdict::Refuse(refusal())),
        }
    }
}

/// Responds with the request as its handler sees it.
fn tell(request: &Request<'_>, _: Exchange) -> Outcome {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut told = format!("{} {}", text(request.method_text()), text(request.target()));
    for (name, value) in request.fields() {
        told.push_str(&format!("|{}={}", text(name), text(value)));
    }
    told.push_str(&format!("|user={}", request.user().unwrap_or("-")));
    Outcome::Now(Reply::text(200, told))
}

fn rig(on: Stand) -> (Rig, Toy) {
    let toy = Toy::default();
    let rig = on.serve(|server| server.mount("/", hello).mount("/hold/echo", Echo).guard(toy.clone()));
    (rig, toy)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn failures(rig: &Rig, reason: &str) -> u64 {
    rig.count_of("encke_guard_failures_total", reason)
}

/// Waits until no request and no connection is open.
fn wait_until_empty(rig: &Rig) {
    let empty = || rig.connections() == 0 && rig.count("encke_exchanges_open") == 0;
    rig.wait(empty, "nothing is open");
}

fn a_request_passes_or_is_refused_within_the_check(on: Stand) {
    let (rig, _) = rig(on);
    let mut client = rig.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "Hello\n");
        let answer = client.get("/refuse");
        assert_eq!((answer.status, answer.text()), (403, "not you\n"));
    }
    assert_eq!(client.ask("POST /hold/within HTTP/1.1\r\nHost: a\r\n\r\n").text(), "Hello\n");
    rig.end();
}

fn a_verdict_may_come_from_another_thread(on: Stand) {
    let (rig, _) = rig(on);
    let mut client = rig.client();
    for _ in 0..20 {
        assert_eq!(client.get("/hold/thread-pass").text(), "Hello\n");
        assert_eq!(client.get("/hold/thread-refuse").status, 403);
    }
    client.send([get("/hold/thread-pass"), get("/hold/thread-refuse")].concat().repeat(4));
    let statuses: Vec<u16> = client.answers(8).iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 403].repeat(4));
    rig.end();
}

fn a_held_request_reaches_its_handler_as_it_arrived(on: Stand) {
    let toy = Toy::default();
    let rig = on.serve(|server| server.mount("/", tell).mount("/hold/echo", Echo).guard(toy.clone()));
    let head = "DELETE /hold/x?y=1 HTTP/1.1\r\nHost: a\r\nCookie: b\r\nX-Field:  c d \r\n\r\n";
    let post = "POST /hold/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        4\r\nwhat\r\n5\r\n came\r\n0\r\n\r\n";
    for cut in Cut::all(head.as_bytes()) {
        let mut client = rig.client();
        client.send_cut(&rig, head.as_bytes(), cut);
        toy.pass();
        assert_eq!(
            client.answer().text(),
            "DELETE /hold/x?y=1|Host=a|Cookie=b|X-Field=c d|user=-",
            "{cut:?}"
        );
    }
    // The body arrives with the head, after it, and after the verdict.
    for at in [post.len(), post.find("what").expect("there"), post.find("4\r").expect("there")] {
        let mut client = rig.client();
        client.send(&post[..at]);
        let (_, ticket) = toy.take();
        assert!(!client.has_news());
        client.send(&post[at..]);
        ticket.resolve(passed());
        assert_eq!(client.answer().text(), "what came", "cut at {at}");
    }
    let body: Vec<u8> = (0..1_000_000_usize).map(|at| at as u8).collect();
    let mut client = rig.client();
    client.send(format!("POST /hold/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    let (_, ticket) = toy.take();
    // Without a reader the buffers take only a part.
    let sent = client.send_what_fits(&body);
    ticket.resolve(passed());
    client.send(&body[sent..]);
    assert!(client.answer().body == body);
    rig.end();
}

fn requests_behind_a_held_one_wait_for_it(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send([get("/"), get("/hold"), get("/refuse"), get("/hold"), get("/")].concat());
    assert_eq!(client.answer().text(), "Hello\n");
    let (_, ticket) = toy.take();
    assert!(!client.has_news(), "the request behind it was answered");
    assert!(lock(&toy.0).held.is_empty(), "the request behind it was checked");
    ticket.resolve(GuardVerdict::Refuse(refusal()));
    let statuses: Vec<u16> = client.answers(2).iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [403, 403]);
    toy.pass();
    assert_eq!(client.answers(2).iter().filter(|answer| answer.text() == "Hello\n").count(), 2);
    rig.end();
}

fn a_verdict_during_a_send_waits_for_its_end(on: Stand) {
    let toy = Toy::default();
    let large: Arc<[u8]> = vec![b'x'; 8 << 20].into();
    let shared = Arc::clone(&large);
    let long = move |_: &Request<'_>, _: Exchange| {
        Outcome::Now(Reply::new(200).body(encke_server::Body::Shared(Arc::clone(&shared))))
    };
    let rig = on.serve(|server| server.mount("/", hello).mount("/long", long).guard(toy.clone()));
    for verdict in [passed(), GuardVerdict::Refuse(refusal())] {
        let wanted = if matches!(verdict, GuardVerdict::Pass(_)) { 200 } else { 403 };
        let mut client = rig.narrow_client();
        client.send([get("/long"), get("/hold"), get("/")].concat());
        // The guard holds the second request while the first response is still being sent.
        let (_, ticket) = toy.take();
        rig.wait(|| rig.count("encke_sends_in_flight") == 1, "an answer is being sent");
        ticket.resolve(verdict);
        assert_eq!(client.answer().body.len(), large.len());
        assert_eq!(client.answer().status, wanted);
        assert_eq!(client.answer().text(), "Hello\n");
    }
    rig.end();
}

const EXPECTS: &str =
    "POST /hold/echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

fn the_body_is_invited_only_after_the_guard_passes(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send(EXPECTS);
    let (_, ticket) = toy.take();
    assert!(!client.has_news(), "100 before the verdict");
    ticket.resolve(passed());
    assert_eq!(client.answer().status, 100);
    client.send("body");
    assert_eq!(client.answer().text(), "body");

    client.send(EXPECTS);
    toy.take().1.resolve(GuardVerdict::Refuse(refusal()));
    let answer = client.answer();
    assert!(answer.status == 403 && answer.closes(), "{answer:?}");
    rig.end();
}

fn a_guard_learns_that_a_client_has_left(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send(get("/hold"));
    let (key, ticket) = toy.take();
    client.reset();
    toy.wait_gone(key);
    ticket.resolve(passed());
    wait_until_empty(&rig);
    assert_eq!(failures(&rig, "dropped"), 0);
    assert_eq!(rig.client().get("/").text(), "Hello\n");
    rig.end();
}

fn a_held_request_without_its_whole_body_is_dropped_when_its_client_ends(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send("POST /hold/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    let (key, ticket) = toy.take();
    client.finish();
    toy.wait_gone(key);
    drop(ticket);
    drop(client);
    wait_until_empty(&rig);
    assert_eq!(failures(&rig, "dropped"), 0, "a ticket of a client that has left is no failure");

    // A complete request still gets its response.
    let mut client = rig.client();
    client.send(get("/hold"));
    client.finish();
    toy.pass();
    assert_eq!(client.answer().text(), "Hello\n");
    rig.end();
}

fn a_dropped_ticket_is_a_500_and_counted(on: Stand) {
    let (rig, _) = rig(on);
    let mut client = rig.client();
    for (nth, path) in ["/hold/drop", "/hold/thread-drop"].into_iter().enumerate() {
        assert_eq!(client.get(path).status, 500);
        assert_eq!(failures(&rig, "dropped"), nth as u64 + 1);
    }
    assert_eq!(client.get("/").text(), "Hello\n");
    assert_eq!(failures(&rig, "panic"), 0);
    rig.end();
}

fn a_guard_that_panics_is_a_500_and_the_worker_lives(on: Stand) {
    let (rig, _) = rig(on);
    for panics in 1..=3 {
        let mut client = rig.client();
        let answer = client.get("/panic");
        assert!(answer.status == 500 && answer.closes(), "{answer:?}");
        assert_eq!(failures(&rig, "panic"), panics);
        rig.wait_for_closes(CloseReason::HandlerPanic, panics);
    }
    assert_eq!(rig.client().get("/").text(), "Hello\n");
    rig.end();
}

fn a_drain_waits_for_a_held_request(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send(get("/hold"));
    let (_, ticket) = toy.take();
    let mut idle = rig.client();
    assert_eq!(idle.get("/").text(), "Hello\n");
    rig.running().drain(Duration::ZERO, Duration::from_secs(3_600));
    let open = rig.running().open_work(PATIENCE).expect("the drain has begun");
    assert_eq!((open.streams, open.requests), (0, 1));
    ticket.resolve(passed());
    let answer = client.answer();
    assert!(answer.text() == "Hello\n" && answer.closes(), "{answer:?}");
    assert_eq!(client.end(), End::Finished);
    assert_eq!(idle.end(), End::Finished);
    let (ended, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        rig.end();
        let _too_late = ended.send(());
    });
    wait.recv_timeout(PATIENCE).expect("nothing is left to wait for");
}

fn what_is_held_at_the_end_of_a_drain_is_gone(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send(get("/hold"));
    let (key, ticket) = toy.take();
    rig.end();
    assert_eq!(lock(&toy.0).gone, [key]);
    ticket.resolve(passed());
    assert_ne!(client.rest().0, b"Hello\n");
}

fn streams_of_a_connection_wait_independently(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/hold", END_STREAM));
    let (first, one) = toy.take();
    client.send(&request(3, POST, "/hold/echo", 0));
    let (third, other) = toy.take();
    assert_eq!((first.stream, third.stream), (1, 3));
    client.send(&frame(DATA, END_STREAM, 3, b"body"));
    // Another stream gets its response meanwhile.
    client.send(&request(5, GET, "/", END_STREAM));
    assert_eq!(client.answer(5).body, b"Hello\n");
    other.resolve(passed());
    assert_eq!(client.answer(3).body, b"body");
    one.resolve(GuardVerdict::Refuse(refusal()));
    assert_eq!(client.answer(1).body, b"not you\n");
    for (stream, path, body) in [
        (7, "/hold/thread-pass", &b"Hello\n"[..]),
        (9, "/refuse", b"not you\n"),
        (11, "/hold/drop", b"500 Internal Server Error\n"),
    ] {
        client.send(&request(stream, GET, path, END_STREAM));
        assert_eq!(client.answer(stream).body, body, "{path}");
    }
    rig.end();
}

fn a_reset_stream_is_reported_to_its_guard(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = H2::connect(&rig);
    client.send(&[request(1, GET, "/hold", END_STREAM), request(3, GET, "/hold", END_STREAM)].concat());
    let (key, ticket) = toy.take();
    let (_, other) = toy.take();
    client.send(&frame(RST_STREAM, 0, key.stream, &CANCEL.to_be_bytes()));
    toy.wait_gone(key);
    ticket.resolve(passed());
    other.resolve(passed());
    assert_eq!(client.answer(4 - key.stream).body, b"Hello\n");
    rig.wait(|| rig.count("encke_exchanges_open") == 0, "nothing is open");
    rig.end();
}

fn a_refused_body_is_not_read(on: Stand) {
    let (rig, _) = rig(on);
    let mut client = rig.client();
    client.send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nbegin");
    let answer = client.answer();
    assert!(answer.status == 403 && answer.closes(), "{answer:?}");
    // A short body is read and dropped, and the connection stays open.
    let mut client = rig.client();
    client.send(["POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbegin", &get("/")].concat());
    assert_eq!(client.answer().status, 403);
    assert_eq!(client.answer().text(), "Hello\n");
    rig.end();
}

/// A guard that passes requests of one user, and sets another user name.
#[derive(Clone)]
struct Named {
    wants: Option<&'static str>,
    names: &'static str,
    late: bool,
}

impl GuardMount for Named {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(self.clone())
    }
}

impl Guard for Named {
    fn check(&mut self, request: &Request<'_>, call: GuardCall<'_>) -> GuardOutcome {
        if request.user() != self.wants {
            return GuardOutcome::Refuse(Reply::text(500, format!("user {:?}", request.user())));
        }
        let mut passage = Passage { user: Some(self.names.into()), ..Passage::default() };
        passage.fields.push("X-Guard", self.names.as_bytes()).expect("well formed");
        if !self.late {
            return GuardOutcome::Pass(passage);
        }
        let (hold, ticket) = call.hold();
        std::thread::spawn(move || ticket.resolve(GuardVerdict::Pass(passage)));
        GuardOutcome::Later(hold)
    }
}

fn guard_fields(answer: &crate::rig::Answer) -> Vec<&str> {
    answer
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x-guard"))
        .map(|(_, value)| &**value)
        .collect()
}

fn guards_are_asked_in_order_and_know_what_was_found_out(on: Stand) {
    for late in [[false; 3], [true; 3], [true, false, true], [false, true, false]] {
        let named = |wants, names, late| Named { wants, names, late };
        let rig = on.serve(|server| {
            // The guard of the mount point runs after the guards of the server, although it was attached first.
            server
                .mount("/", tell)
                .guard_at("/", named(Some("two"), "three", late[2]))
                .guard(named(None, "one", late[0]))
                .guard(named(Some("one"), "two", late[1]))
        });
        let answer = rig.client().get("/");
        assert_eq!(answer.text(), "GET /|Host=localhost|user=three", "{late:?}");
        assert_eq!(guard_fields(&answer), ["one", "two", "three"], "{late:?}");
        rig.end();
    }
}

/// Sets a cookie, and another field.
fn set_cookie(request: &Request<'_>) -> GuardVerdict {
    let mut passage = Passage::default();
    passage.fields.push("X-Guard", b"a").expect("well formed");
    if request.query() == Some(b"cookie") {
        passage.fields.push("Set-Cookie", b"session=1").expect("well formed");
    }
    GuardVerdict::Pass(passage)
}

fn storable() -> Reply {
    let reply = Reply::text(200, "a page\n").with("Cache-Control", "public, max-age=600").with("X-Own", "1");
    reply.with("Expires", "Thu, 01 Jan 2099 00:00:00 GMT").with("CDN-Cache-Control", "max-age=60")
}

fn fields_of_a_guard_go_with_the_response_of_a_resident(on: Stand) {
    let rig = on.serve(|server| {
        let late = |request: &Request<'_>, exchange: Exchange| {
            match crate::examples::echo(request) {
                Ok(takeover) => drop(std::thread::spawn(move || exchange.take_over(takeover))),
                Err(reply) => exchange.answer(reply),
            }
            Outcome::Later
        };
        let now = |request: &Request<'_>, _: Exchange| match crate::examples::echo(request) {
            Ok(takeover) => Outcome::Takeover(takeover),
            Err(reply) => Outcome::Now(reply),
        };
        let server = server.mount("/now", now).mount("/late", late).mount("/respond", residents::Echo);
        server.guard(set_cookie)
    });
    for path in ["/now", "/late", "/respond"] {
        let mut client = rig.client();
        client.send(format!(
            "GET {path}?cookie HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ));
        let head = client.head();
        assert_eq!(head.status, if path == "/respond" { 200 } else { 101 }, "{path}: {head:?}");
        for (name, value) in [("Set-Cookie", "session=1"), ("X-Guard", "a")] {
            assert_eq!(head.field(name), Some(value), "{path}: {head:?}");
            let count = head.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).count();
            assert_eq!(count, 1, "{path}: {head:?}");
        }
    }
    // The next request of a connection gets no field of an earlier one.
    let mut client = rig.client();
    assert_eq!(client.get("/respond?cookie").field("Set-Cookie"), Some("session=1"));
    assert_eq!(client.get("/respond").field("Set-Cookie"), None);
    rig.end();
}

fn a_response_with_a_cookie_of_a_guard_is_stored_by_no_cache(on: Stand) {
    let prepared = Arc::new(Prepared::memory(200, storable().fields, b"a page\n"));
    let rig = on.serve(|server| {
        let now = |_: &Request<'_>, _: Exchange| Outcome::Now(storable());
        let later = |_: &Request<'_>, exchange: Exchange| {
            std::thread::spawn(move || exchange.answer(storable()));
            Outcome::Later
        };
        let file = move |_: &Request<'_>, _: Exchange| Outcome::Now(Reply::prepared(Arc::clone(&prepared)));
        server.mount("/", now).mount("/later", later).mount("/file", file).guard(set_cookie)
    });
    for path in ["/", "/later", "/file"] {
        for (query, expected) in [("", "public, max-age=600"), ("?cookie", "private, no-store")] {
            let answer = rig.client().get(&format!("{path}{query}"));
            let value = |name: &str| -> Vec<&str> {
                let of = answer.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
                of.map(|(_, value)| &**value).collect()
            };
            assert_eq!((answer.status, answer.text()), (200, "a page\n"), "{path}{query}");
            assert_eq!(value("cache-control"), [expected], "{path}{query}");
            let (kept, cookies) = if query.is_empty() { (1, 0) } else { (0, 1) };
            assert_eq!(value("expires").len(), kept, "{path}{query}");
            assert_eq!(value("cdn-cache-control").len(), kept, "{path}{query}");
            assert_eq!(value("set-cookie").len(), cookies, "{path}{query}");
            assert_eq!((value("x-own").len(), value("x-guard").len()), (1, 1), "{path}{query}");
        }
    }
    rig.end();
}

/// Passes at once, and keeps the ticket.
#[derive(Clone, Default)]
struct Hoarder(Arc<Mutex<Vec<Ticket<GuardVerdict>>>>);

impl GuardMount for Hoarder {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        Box::new(self.clone())
    }
}

impl Guard for Hoarder {
    fn check(&mut self, _: &Request<'_>, call: GuardCall<'_>) -> GuardOutcome {
        let (_unused, ticket) = call.hold();
        lock(&self.0).push(ticket);
        GuardOutcome::pass()
    }
}

fn a_ticket_never_decides_for_another_guard(on: Stand) {
    let (hoarder, toy) = (Hoarder::default(), Toy::default());
    let rig = on.serve(|server| server.mount("/", hello).guard(hoarder.clone()).guard(toy.clone()));
    let mut client = rig.client();
    client.send(get("/hold"));
    let (_, ticket) = toy.take();
    for old in lock(&hoarder.0).drain(..) {
        old.resolve(passed());
    }
    // A worker processes the tickets' messages before the response to a later request.
    for _ in 0..20 {
        assert_eq!(rig.client().get("/").text(), "Hello\n");
    }
    assert!(!client.has_news(), "the ticket of another guard has decided");
    ticket.resolve(GuardVerdict::Refuse(refusal()));
    assert_eq!(client.answer().status, 403);
    rig.end();
}

fn a_guard_of_a_mount_point_sees_its_requests_only(on: Stand) {
    let rig = on.serve(|server| {
        server
            .mount("/", hello)
            .mount("/private/", hello)
            .guard_at("/private/", Toy::default())
            .guard_at("/private/", |_: &Request<'_>| GuardVerdict::Refuse(refusal()))
    });
    let mut client = rig.client();
    assert_eq!(client.get("/private/x").status, 403);
    assert_eq!(client.get("/public").status, 200);
    assert_eq!(client.get("/refuse").status, 200, "the toy guards another mount point");
    rig.end();
}

fn guards_of_the_server_see_requests_without_a_handler(on: Stand) {
    let rig = on.serve(|server| server.mount("/here/", hello).guard(Toy::default()));
    let mut client = rig.client();
    assert_eq!(client.get("/refuse").status, 403);
    assert_eq!(client.get("/hold/thread-pass").status, 404);
    assert_eq!(client.get("/absent").status, 404);
    assert_eq!(client.get("/here/").status, 200);
    rig.end();
}

fn other(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::text(200, "other"))
}

fn a_held_request_outlives_a_reload_with_its_guards_and_handler(on: Stand) {
    let (rig, toy) = rig(on);
    let mut client = rig.client();
    client.send(get("/hold"));
    let (_, ticket) = toy.take();
    let refuse = |_: &Request<'_>| GuardVerdict::Refuse(Reply::text(401, "new"));
    let reload = |guards: Vec<GuardPoint>| {
        let mounts: Vec<(String, Arc<dyn encke_server::Mount>)> = vec![("/".into(), Arc::new(other))];
        rig.running().reload_guarded(ConnLimits::default(), Some(mounts), guards).expect("good guards");
    };
    reload(vec![GuardPoint { at: None, guard: Arc::new(refuse) }]);
    rig.wait(|| rig.client().get("/").text() == "new", "the new guard is there");
    ticket.resolve(passed());
    assert_eq!(client.answer().text(), "Hello\n", "the handler at its arrival");
    // Repeated reloads reuse the numbers of guards and leave none open.
    for _ in 0..20 {
        reload(vec![GuardPoint { at: Some("/".into()), guard: Arc::new(toy.clone()) }]);
        rig.wait(|| rig.client().get("/hold/within").text() == "other", "the toy is there");
        reload(Vec::new());
        rig.wait(|| rig.client().get("/refuse").text() == "other", "no guard is there");
    }
    // Two references remain: the one of the case, and the one of the server's first plan.
    rig.wait(|| Arc::strong_count(&toy.0) == 2, "guards of earlier plans are dropped");
    rig.end();
}

fn a_reload_that_would_leave_a_guard_without_a_place_changes_nothing(on: Stand) {
    let (rig, _) = rig(on);
    let guard: Arc<dyn GuardMount> = Arc::new(|_: &Request<'_>| passed());
    let point = GuardPoint { at: Some("/absent/".into()), guard };
    let error =
        rig.running().reload_guarded(ConnLimits::default(), None, vec![point]).expect_err("no such mount");
    assert!(error.to_string().contains("/absent/"), "{error}");
    assert_eq!(rig.client().get("/refuse").status, 403);
    rig.end();
}

fn a_guard_may_offload_its_work(on: Stand) {
    let (rig, _) = rig(on);
    let mut client = rig.client();
    for _ in 0..5 {
        assert_eq!(client.get("/hold/offload?secret").status, 200);
        assert_eq!(client.get("/hold/offload?wrong").status, 403);
    }
    rig.end();
}

fn fields_of_a_guard_go_with_every_response(on: Stand) {
    let late = |_: &Request<'_>, exchange: Exchange| {
        std::thread::spawn(move || exchange.answer(Reply::text(200, "late")));
        Outcome::Later
    };
    let fails = |_: &Request<'_>, _: Exchange| -> Outcome { panic!("a handler that fails") };
    let rig = on.serve(|server| {
        server
            .mount("/now", hello)
            .mount("/late", late)
            .mount("/fails", fails)
            .guard(Named { wants: None, names: "one", late: false })
            .guard(Toy::default())
    });
    for (path, status) in [("/now", 200), ("/late", 200), ("/absent", 404), ("/refuse", 403), ("/fails", 500)]
    {
        let answer = rig.client().get(path);
        assert_eq!((answer.status, guard_fields(&answer)), (status, vec!["one"]), "{path}");
    }
    rig.end();
}

fn a_takeover_may_follow_a_held_request(on: Stand) {
    let toy = Toy::default();
    let rig = on.serve(|server| server.mount("/", residents::Echo).guard(toy.clone()));
    for path in ["/", "/hold", "/hold/thread-pass"] {
        let mut client: Client = rig.client();
        client.send(get(path));
        if path == "/hold" {
            toy.pass();
        }
        assert_eq!(client.read_exact(residents::HEAD.len()), residents::HEAD);
        client.send("bytes");
        assert_eq!(client.read_exact(5), b"bytes");
    }
    assert_eq!(rig.client().get("/refuse").status, 403);
    rig.end();
}

fn a_guard_needs_a_mount_point_to_be_attached_to(on: Stand) {
    let options = Options { workers: Some(1), backend: Some(on.backend), ..Options::default() };
    let server = Server::new(options).mount("/here/", hello).guard_at("/here", Toy::default());
    let error = server.start().map(drop).expect_err("nothing is mounted at /here");
    assert!(error.to_string().contains("/here"), "{error}");
}
