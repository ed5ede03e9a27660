//! The 26 defects that report 004 found in another small web server, each as a test of the correct behaviour. The numbers are
//! the report's.

use std::time::{Duration, SystemTime};

use encke_server::CloseReason;
use encke_site::{Site, SiteSettings};

use crate::rig::handlers::{Echo, hello, pattern};
use crate::rig::{Client, Cut, End, Folder, Sites, Stand, ms};

on_every_stand! {
    a_request_may_be_split_within_its_fields,
    pipelined_requests_are_all_answered_in_order,
    a_connection_has_no_last_request,
    connections_that_break_hurt_nobody_else,
    a_head_that_drips_has_its_time,
    a_burst_of_connections_is_accepted_to_the_last,
}

on_every_back_end! {
    a_slow_reader_gets_everything,
}

on_two_stands! {
    dots_do_not_lead_out_of_the_folder,
    a_long_target_is_not_answered_with_somebody_elses_file,
    a_request_may_have_no_fields,
    head_has_no_body,
    methods_that_mean_something_else_do_not_get_the_file,
    another_major_version_is_refused,
    http_1_1_stays_open_by_itself,
    connection_is_compared_without_regard_to_case,
    fields_are_known_by_their_whole_name,
    host_is_asked_for,
    large_heads_are_served_and_larger_ones_refused,
    escapes_are_decoded,
    a_folder_with_a_dot_in_its_name_is_a_folder,
    the_body_of_a_request_is_not_the_next_request,
    files_have_dates_tags_ranges_and_codings,
    a_file_is_unmodified_since_any_later_date,
    an_error_keeps_what_it_says_of_the_connection,
    the_folder_that_is_named_is_served,
    keep_alive_promises_no_wrong_time,
}

/// 1: `GET /../secret.txt` returned the secret.
fn dots_do_not_lead_out_of_the_folder(stand: Stand) {
    let outside = Folder::new().with("secret.txt", "SECRET").with("site/index.html", "<p>here");
    let settings = SiteSettings { root: outside.path().join("site"), ..SiteSettings::default() };
    let site = Site::new(&[settings], Vec::new()).expect("a folder that can be read");
    let rig = stand.serve(|server| server.mount("/", site));
    for path in [
        "/../secret.txt",
        "/a/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%5csecret.txt",
        "/%252e%252e/secret.txt",
        "//../secret.txt",
        "/./../secret.txt",
        "/..;/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/../secret.txt%00.html",
        "http://localhost/../secret.txt",
    ] {
        let answer = rig.client().get(path);
        assert!((400..=404).contains(&answer.status), "{path}: {answer:?}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("SECRET"), "{path}");
    }
}

/// 2: a target of more than 256 bytes returned the file of the previous client.
fn a_long_target_is_not_answered_with_somebody_elses_file(stand: Stand) {
    let folder = Folder::new().with("private", "for another");
    let rig = stand.serve_site(&folder);
    for (len, status) in
        [(255, 404), (256, 404), (257, 404), (300, 404), (4_000, 404), (15_000, 414), (17_000, 414)]
    {
        assert_eq!(rig.client().get("/private").text(), "for another");
        let answer = rig.client().get(&format!("/{}", "x".repeat(len)));
        assert_eq!(answer.status, status, "{len} bytes");
    }
}

/// 3: a request split across packets within its fields got no response.
fn a_request_may_be_split_within_its_fields(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a b\r\nAccept: */*\r\n\r\n";
    let mut client = rig.client();
    for cut in Cut::all(request) {
        client.send_cut(&rig, request, cut);
        assert_eq!(client.answer().text(), "Hello\n", "{cut:?}");
    }
}

/// 4: only one of three requests in one write got a response.
fn pipelined_requests_are_all_answered_in_order(stand: Stand) {
    let folder = Folder::new().with("a", "first").with("b", "second").with("c", vec![b'c'; 100_000]);
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    let get = |name: &str| format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.send(["a", "c", "b"].map(get).concat());
    assert_eq!(client.answer().text(), "first");
    assert_eq!(client.answer().body.len(), 100_000);
    assert_eq!(client.answer().text(), "second");
}

/// 5: `GET / HTTP/1.0` without any field hung.
fn a_request_may_have_no_fields(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    assert_eq!(client.ask("GET / HTTP/1.0\r\n\r\n").text(), "Hello\n");
    assert_eq!(client.end(), End::Finished);
}

/// 6: HEAD sent the body.
fn head_has_no_body(stand: Stand) {
    let folder = Folder::new().with("file", "0123456789");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    client.send("HEAD /file HTTP/1.1\r\nHost: a\r\n\r\nHEAD /file HTTP/1.0\r\n\r\n");
    for _ in 0..2 {
        let answer = client.answer_to_head();
        assert_eq!((answer.status, answer.field("Content-Length")), (200, Some("10")));
    }
    assert_eq!(client.end(), End::Finished);
}

/// 7: POST, PUT and ABC returned the file.
fn methods_that_mean_something_else_do_not_get_the_file(stand: Stand) {
    let folder = Folder::new().with("file", "0123456789");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for (method, status) in [("POST", 405), ("PUT", 405), ("DELETE", 405), ("ABC", 501)] {
        let answer = client.ask(format!("{method} /file HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.status, status, "{method}");
        assert!(!answer.text().contains("0123456789"), "{method}");
    }
}

/// 8: HTTP/9.9 got a 200.
fn another_major_version_is_refused(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    for version in ["HTTP/9.9", "HTTP/2.0", "HTTP/3.1"] {
        let answer = rig.client().ask(format!("GET / {version}\r\nHost: a\r\n\r\n"));
        assert!(answer.status == 505 && answer.closes(), "{version}: {answer:?}");
    }
}

/// 9: an HTTP/1.1 connection without `Connection` was closed without notice.
fn http_1_1_stays_open_by_itself(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    for _ in 0..3 {
        assert!(!client.get("/").closes());
    }
}

/// 10: `connection: keep-alive` in lower case was ignored.
fn connection_is_compared_without_regard_to_case(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    for field in ["connection: keep-alive", "CONNECTION: KEEP-ALIVE", "Connection: Keep-Alive"] {
        assert!(!client.ask(format!("GET / HTTP/1.0\r\n{field}\r\n\r\n")).closes(), "{field}");
    }
    assert!(client.ask("GET / HTTP/1.1\r\nhOST: a\r\ncONNECTION: cLOSE\r\n\r\n").closes());
}

/// 11: `Conn:` was treated as Connection and `H:` as Host.
fn fields_are_known_by_their_whole_name(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    for name in ["Conn", "Connectio", "Connections", "C"] {
        let answer = client.ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: close\r\n\r\n"));
        assert!(answer.status == 200 && !answer.closes(), "{name}");
    }
    for name in ["H", "Hos", "Hosts"] {
        let answer = rig.client().ask(format!("GET / HTTP/1.1\r\n{name}: a\r\n\r\n"));
        assert_eq!(answer.status, 400, "{name} is no Host");
    }
}

/// 12: an HTTP/1.1 request without Host was served.
fn host_is_asked_for(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    assert_eq!(rig.client().ask("GET / HTTP/1.1\r\nAccept: */*\r\n\r\n").status, 400);
    assert_eq!(rig.client().ask("GET / HTTP/1.1\r\nHost:\r\n\r\n").status, 200, "an empty one is one");
}

/// 13: a slow reader of 60 MB received 2.81 MB: EAGAIN was treated as an error.
fn a_slow_reader_gets_everything(stand: Stand) {
    const LEN: usize = 60_000_000;
    let folder = Folder::new().with("large", pattern(LEN));
    let rig = stand.serve_site(&folder);
    let mut client = rig.narrow_client();
    let answer = client.get("/large");
    assert!(answer.body == pattern(LEN));
}

/// 14: the connection of a head above 8 KiB was closed without a response.
fn large_heads_are_served_and_larger_ones_refused(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    for (len, status) in [(8_000, 200), (8_192, 200), (9_000, 200), (30_000, 200), (33_000, 431)] {
        let answer = rig.client().ask(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(len)));
        assert_eq!(answer.status, status, "{len} bytes");
    }
}

/// 15: after 318 requests, when a head crossed the end of a ring, the connection was closed.
fn a_connection_has_no_last_request(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = rig.client();
    for number in 0..2_000 {
        let fill = "x".repeat(number % 97);
        let answer = client.ask(format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {fill}\r\n\r\n"));
        assert_eq!(answer.status, 200, "request {number}");
    }
    // Pipelined, so that heads begin at every position of a read.
    for number in 0..40 {
        let get = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(number * 7));
        client.send(get.repeat(50));
        assert!(client.answers(50).iter().all(|answer| answer.status == 200), "pipeline {number}");
    }
    assert_eq!(rig.count("encke_accepts_total"), 1);
}

/// 16: `%20` and `%2e` were not decoded.
fn escapes_are_decoded(stand: Stand) {
    let folder = Folder::new().with("a file.txt", "spaced").with("übung", "two bytes");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for (path, said) in [
        ("/a%20file.txt", "spaced"),
        ("/a%20file%2etxt", "spaced"),
        ("/%61%20file.t%78t", "spaced"),
        ("/%C3%BCbung", "two bytes"),
        ("/%c3%bcbung", "two bytes"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.text()), (200, said), "{path}");
    }
    assert_eq!(client.get("/a+file.txt").status, 404, "a plus is a plus in a path");
}

/// 17: `/a.b` was treated as a file because of its dot, and returned 403.
fn a_folder_with_a_dot_in_its_name_is_a_folder(stand: Stand) {
    let folder = Folder::new().with("a.b/index.html", "<p>inside");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    let answer = client.get("/a.b");
    assert_eq!((answer.status, answer.field("Location")), (301, Some("/a.b/")));
    assert_eq!(client.get("/a.b/").text(), "<p>inside");
}

/// 18: the body of a POST stayed in the buffer and was parsed as the next request.
fn the_body_of_a_request_is_not_the_next_request(stand: Stand) {
    let folder = Folder::new().with("file", "content").with("smuggled", "!");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..3 {
        let post =
            format!("POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{inner}", inner.len());
        client.send(format!("{post}GET /file HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.answer().status, 405);
        assert_eq!(client.answer().text(), "content");
    }
}

/// 19: ranges, entity tags, dates and content codings were missing.
fn files_have_dates_tags_ranges_and_codings(stand: Stand) {
    let text = "0123456789\n".repeat(1_000);
    let folder =
        Folder::new().with("file.txt", &text).with("ready.txt", &text).with("ready.txt.gz", "packed");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    // The file was modified too recently for a strong tag. The tag becomes strong when the file has settled.
    let mut is_strong = || client.get("/file.txt").field("ETag").is_some_and(|tag| tag.starts_with('"'));
    rig.wait(&mut is_strong, "a strong tag");
    let answer = client.get("/file.txt");
    assert_eq!(answer.text(), text);
    let tag = answer.field("ETag").expect("a tag").to_owned();
    assert!(answer.field("Last-Modified").is_some() && answer.field("Accept-Ranges") == Some("bytes"));

    let ask = |client: &mut Client, path: &str, fields: &str| {
        client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"))
    };
    let part = ask(&mut client, "/file.txt", "Range: bytes=3-6");
    assert_eq!(
        (part.status, part.text(), part.field("Content-Range")),
        (206, "3456", Some("bytes 3-6/11000"))
    );
    assert_eq!(ask(&mut client, "/file.txt", "Range: bytes=11000-").status, 416);
    assert_eq!(ask(&mut client, "/file.txt", &format!("If-None-Match: {tag}")).status, 304);
    assert_eq!(ask(&mut client, "/file.txt", "If-None-Match: \"other\"").status, 200);
    let packed = ask(&mut client, "/ready.txt", "Accept-Encoding: gzip");
    assert_eq!((packed.text(), packed.field("Content-Encoding")), ("packed", Some("gzip")));
    assert_eq!(ask(&mut client, "/ready.txt", "Accept-Encoding: identity").text(), text);
}

/// 20: If-Modified-Since was compared for equality, and dates had local time with the label GMT.
fn a_file_is_unmodified_since_any_later_date(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    let modified = client.get("/file").field("Last-Modified").expect("a date").to_owned();
    // `with` has set the modification time back by 1,000 seconds. The date must show that, in GMT.
    let age = SystemTime::now().duration_since(httpdate_of(&modified)).expect("it lies in the past");
    assert!(age > Duration::from_secs(990) && age < Duration::from_secs(1_100), "{modified}: {age:?}");
    let ask = |client: &mut Client, since: &str| {
        client.ask(format!("GET /file HTTP/1.1\r\nHost: a\r\nIf-Modified-Since: {since}\r\n\r\n")).status
    };
    let now = client.get("/file").field("Date").expect("a date").to_owned();
    assert_eq!(ask(&mut client, &modified), 304);
    assert_eq!(ask(&mut client, &now), 304, "later than the change");
    assert_eq!(ask(&mut client, "Sun, 06 Nov 1994 08:49:37 GMT"), 200);
    assert_eq!(ask(&mut client, "no date"), 200);
}

/// Parses a date in the format of RFC 9110 §5.6.7.
fn httpdate_of(text: &str) -> SystemTime {
    let unix = encke_wire::date::parse_date(text.as_bytes()).unwrap_or_else(|| panic!("{text} is no date"));
    SystemTime::UNIX_EPOCH + Duration::from_secs(unix)
}

/// 21: an error response contained `Connection: close`, but the connection stayed open until its timer expired.
fn an_error_keeps_what_it_says_of_the_connection(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let rig = stand.serve_site(&folder);
    let mut client = rig.client();
    for _ in 0..100 {
        assert!(!client.get("/absent").closes());
    }
    assert!(client.ask("GET /absent HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").closes());
    assert_eq!(client.end(), End::Finished);
    rig.wait_for_closes(CloseReason::Answered, 1);
    // The end of a turn sets the gauge.
    rig.wait(|| rig.count("encke_exchanges_open") == 0, "no exchange is open");
}

/// 22: the documented option for the directory did not exist.
fn the_folder_that_is_named_is_served(stand: Stand) {
    for content in ["one", "other"] {
        let folder = Folder::new().with("file", content);
        assert_eq!(stand.serve_site(&folder).client().get("/file").text(), content);
    }
}

/// 23: a broken connection left its timer behind, which later closed the next connection in its slot. A timer that ran before
/// the events of its turn was used after it was freed.
fn connections_that_break_hurt_nobody_else(stand: Stand) {
    // Short, so that timers expire at every stage; long enough for a correct client on a busy machine, which may rest between its
    // two requests.
    let rig = stand.serve_by(
        |policy| {
            policy.limits.head_time = ms(400);
            policy.limits.idle_time = ms(2_000);
            policy.rate_window_ns = ms(400).nanoseconds();
            policy.limits.linger_time = ms(400);
        },
        |server| server.mount("/", hello).mount("/echo", Echo),
    );
    let request = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    // xorshift64 mixes well enough. The seed is constant, so that every run is equal.
    let mut seed = 0x5EED_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let mut waiting: Vec<Client> = Vec::new();
    // A client of a busy machine may be ended before its first byte, but not one in ten.
    let (mut round, mut ends) = (0, 0);
    while round < 200 || rig.closes(CloseReason::HeadTime) < 20 {
        round += 1;
        let mut broken = rig.client();
        broken.send(&request[..random(request.len() + 1)]);
        match random(4) {
            0 => broken.reset(),
            1 => drop(broken),
            2 => {
                broken.finish();
                waiting.push(broken);
            }
            _ => waiting.push(broken),
        }
        // The first thirty stay for a thousand rounds, in which their time expires however fast the rounds are.
        if round % 1_000 == 0 {
            waiting.drain(..waiting.len().min(30));
        }
        if waiting.len() > 60 {
            waiting.swap_remove(30 + random(30));
        }
        let (mut good, more) = rig.begun("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        ends += more;
        assert!(ends <= 10 + round / 10, "{ends} good clients got no response{}", rig.told());
        assert_eq!(good.answer().text(), "Hello\n");
        assert_eq!(good.ask(request).text(), "hello");
    }
    drop(waiting);
    rig.wait(|| rig.connections() == 0, "everybody has gone");
    let open = || rig.count("encke_exchanges_open") + rig.count("encke_sends_in_flight");
    rig.wait(|| open() == 0, "nothing is open");
}

/// 24: one byte every 0.3 s kept a connection open indefinitely, because each read restarted the timer.
fn a_head_that_drips_has_its_time(stand: Stand) {
    let rig = stand.serve_by(|policy| policy.limits.head_time = ms(200), |server| server.mount("/", hello));
    let mut ends = 0;
    let mut client = loop {
        let mut client = rig.client();
        let mut drops = "GET / HTTP/1.1\r\nHost: ".bytes().chain(std::iter::repeat(b'a'));
        // Five bytes within each interval of the limit.
        while client.try_send([drops.next().expect("endless")]).is_ok() {
            if client.idle(Duration::from_millis(40)) {
                break;
            }
        }
        ends += 1;
        // A client of a busy machine may pause before its first byte. Then it is ended without a response.
        if client.is_answered() {
            break client;
        }
        assert!(ends < 100, "no client gets a response");
    };
    let answer = client.answer();
    assert!(answer.status == 408 && answer.closes(), "{answer:?}");
    // The server lingers until the client disconnects, so that its response is not lost.
    drop(client);
    rig.wait_for_closes(CloseReason::HeadTime, ends);
}

/// 25: `Keep-Alive: timeout=500` meant milliseconds, but the field's unit is seconds.
fn keep_alive_promises_no_wrong_time(stand: Stand) {
    let rig = stand.serve_by(|policy| policy.limits.idle_time = ms(7_000), |server| server.mount("/", hello));
    let mut client = rig.client();
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let answer = client.ask(request);
        let promised = answer.field("Keep-Alive");
        assert!(promised.is_none_or(|value| value == "timeout=7"), "{promised:?}");
    }
}

/// 26: accepting stalled after one connection of a burst, and stopped permanently once descriptors ran out (the latter is
/// tested in tests/descriptors.rs).
fn a_burst_of_connections_is_accepted_to_the_last(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    for _ in 0..3 {
        let mut clients: Vec<Client> = (0..200).map(|_| rig.client()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.answer().text(), "Hello\n");
        }
    }
}

#[test]
fn every_defect_has_its_case() {
    let source = include_str!("defects.rs");
    for number in 1..=26 {
        assert!(source.contains(&format!("\n/// {number}: ")), "defect {number} has no case");
    }
}
