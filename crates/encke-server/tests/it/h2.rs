//! HTTP/2 from outside, frame by frame: responses, back-pressure, floods, delays and silence.

use encke_settings::{ByteRate, ByteSize, OrOff};
use std::num::NonZeroU32;
use std::time::Duration;

use encke_server::{Body, CloseReason, Fields, Pulled, Reply};

use crate::rig::h2::*;
use crate::rig::handlers::{self, Echo, Held, Valve, hello};
use crate::rig::{Cut, End, Folder, Stand, ms};

on_every_back_end! {
    a_request_may_come_in_any_pieces,
    many_streams_are_answered_in_any_order,
    a_body_comes_back_as_it_was,
    a_body_is_read_as_fast_as_its_handler_reads,
    a_file_of_many_windows_arrives_whole,
    a_file_that_is_not_in_memory_arrives_whole,
    resets_without_end_are_ended,
    cancelled_requests_cut_no_download,
    frames_without_a_purpose_are_ended,
    data_without_content_is_ended,
    streams_beyond_the_limit_are_refused,
    a_head_without_end_is_ended,
    a_head_that_is_not_finished_in_time_is_ended,
    a_client_that_asks_for_nothing_is_ended,
    a_body_that_stops_or_drips_costs_its_stream,
    a_window_that_stays_shut_costs_its_stream,
    a_client_that_takes_nothing_is_closed,
    a_closed_window_has_no_file_read,
    clients_that_read_nothing_leave_memory_for_others,
    clients_that_hold_streams_leave_some_for_others,
    an_idle_connection_is_told_goodbye,
    a_drain_lets_open_streams_end,
}

on_two_stands! {
    a_request_is_answered_on_its_stream,
    what_is_no_preface_is_http1,
    what_begins_as_no_http_at_all_is_closed_without_an_answer,
    what_begins_as_the_preface_and_goes_on_otherwise_is_told,
    a_head_for_a_stream_that_was_reset_ends_the_connection,
    an_early_answer_lets_the_body_come_to_its_end,
    a_body_behind_its_answer_has_a_moment,
    trailers_of_a_request_are_dropped,
    trailers_with_a_pseudo_field_reset_their_stream,
    a_foreign_scheme_resets_its_stream,
    an_answer_may_have_trailers,
    early_hints_come_before_the_answer,
    a_body_is_invited_once_it_is_wanted,
    so_many_requests_are_answered_on_a_connection,
    a_stream_of_unknown_length_ends_with_its_stream,
    a_stream_that_fails_is_reset,
    a_request_too_large_is_refused_and_the_others_go_on,
    a_head_that_is_larger_than_it_looks_is_refused,
    windows_of_a_kilobyte_are_no_flood,
}

fn a_request_is_answered_on_its_stream(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    let mut client = H2::connect(&rig);
    assert_eq!(client.get("/"), OK.with(b"Hello\n"));
    client.send(&request(3, HEAD, "/", END_STREAM));
    assert_eq!(client.answer(3), OK.with(b""));
    assert_eq!(rig.count("encke_h2_streams_total"), 2);
}

fn a_request_may_come_in_any_pieces(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let bytes = [begin(), request(1, POST, "/", 0), frame(DATA, END_STREAM, 1, b"body")].concat();
    for cut in Cut::all(&bytes) {
        let mut client = H2::speak(rig.client());
        client.client.send_cut(&rig, &bytes, cut);
        assert_eq!(client.answer(1), OK.with(b"body"), "{cut:?}");
    }
}

fn what_is_no_preface_is_http1(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    let mut client = rig.client();
    assert_eq!(client.ask("PRI * HTTP/1.1\r\nHost: h\r\n\r\n").status, 400);
    let mut client = rig.client();
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
    client.send_cut(&rig, request.as_bytes(), Cut::At(1));
    assert_eq!(client.answer().status, 200);
}

fn what_begins_as_no_http_at_all_is_closed_without_an_answer(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    // As many bytes as show that this is not HTTP.
    let other = b"INVALID CONNECTION P";
    let mut closed = 0;
    for cut in Cut::all(other) {
        let mut client = rig.client();
        client.send_cut(&rig, other, cut);
        client.end();
        closed += 1;
        rig.wait_for_closes(CloseReason::Refused, closed);
    }
    assert_eq!(rig.count_of("encke_http_refusals_total", "not_http"), closed);
    // A client that has sent HTTP receives an HTTP response.
    let mut client = rig.client();
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").status, 200);
    assert_eq!(client.ask(std::str::from_utf8(other).expect("is ASCII")).status, 400);
}

fn what_begins_as_the_preface_and_goes_on_otherwise_is_told(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    let mut client = H2::speak(rig.client());
    client.send(b"PRI * HTTP/2.0\r\n\r\nSO\r\n\r\n");
    assert_eq!(client.until_goaway(), PROTOCOL_ERROR);
    assert_eq!(client.client.end(), End::Finished);
    drop(client);
    rig.wait_for_closes(CloseReason::Refused, 1);
}

fn a_head_for_a_stream_that_was_reset_ends_the_connection(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Held::default()));
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    client.ping();
    client.send(&request(1, GET, "/", END_STREAM));
    assert_eq!(client.until_goaway(), STREAM_CLOSED);
    drop(client);
    rig.wait_for_closes(CloseReason::Refused, 1);
    assert_eq!(rig.count_of("encke_http_refusals_total", "h2_stream_closed"), 1);
}

fn many_streams_are_answered_in_any_order(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = H2::connect(&rig);
    let ids: Vec<u32> = (0..100).map(|number| 2 * number + 1).collect();
    for id in &ids {
        client.send(&request(*id, GET, "/", END_STREAM));
    }
    let mut exchanges: Vec<_> = ids.iter().map(|_| held.take(&rig)).collect();
    exchanges.reverse();
    for exchange in exchanges {
        let id = exchange.key().stream;
        exchange.answer(Reply::text(200, id.to_string()));
    }
    for id in ids {
        assert_eq!(client.answer(id), OK.with(id.to_string().as_bytes()));
    }
}

fn a_body_comes_back_as_it_was(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let mut client = H2::connect(&rig);
    let body = handlers::pattern(1_000_000);
    client.send(&request(1, POST, "/", 0));
    client.send_body(1, body);
    assert!(client.answer(1) == OK.with(body), "another body came back");
}

fn a_body_is_read_as_fast_as_its_handler_reads(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()));
    let mut client = H2::connect(&rig);
    client.send(&request(1, POST, "/", 0));
    // As much as the first window allows; no handler reads it.
    let window = handlers::pattern(65_535);
    for piece in window.chunks(FRAME_BYTES) {
        client.send(&frame(DATA, 0, 1, piece));
    }
    valve.wait(&rig);
    client.ping();
    let opened = client.got(1).window;
    assert!(opened < 2 * FRAME_BYTES as u64, "a window of {opened} bytes for what nobody reads");
    while valve.flow().bytes < 65_535 {
        valve.pass(&rig);
    }
    client.send(&frame(DATA, END_STREAM, 1, b""));
    valve.answer(Reply::text(200, "enough"));
    assert_eq!(client.answer(1), OK.with(b"enough"));
}

/// A client that has its response may still be sending. A reset would then end its view of the exchange.
fn an_early_answer_lets_the_body_come_to_its_end(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    let mut client = H2::connect(&rig);
    client.send(&request(1, POST, "/", 0));
    assert_eq!(client.answer(1), OK.with(b"Hello\n"));
    client.send_body(1, handlers::pattern(60_000));
    client.ping();
    assert_eq!(client.got(1).reset, None);
    rig.wait(|| rig.count("encke_h2_streams") == 0, "the stream's end");

    // The server drops at most 1 MiB of an unread body.
    let mut client = H2::connect(&rig);
    client.send(&request(1, POST, "/", 0));
    assert_eq!(client.answer(1), OK.with(b"Hello\n"));
    client.send_body(1, handlers::pattern(2_000_000));
    assert_eq!(client.got(1).reset, Some(NO_ERROR));
    client.ping();
}

fn a_body_behind_its_answer_has_a_moment(stand: Stand) {
    let limit = |policy: &mut encke_server::ConnLimits| policy.limits.linger_time = ms(100);
    let rig = stand.serve_by(limit, |server| server.mount("/", handlers::hello));
    let mut client = H2::connect(&rig);
    client.send(&request(1, POST, "/", 0));
    assert_eq!(client.answer(1), OK.with(b"Hello\n"));
    while client.got(1).reset.is_none() {
        client.read_one();
    }
    assert_eq!(client.got(1).reset, Some(NO_ERROR));
}

fn trailers_of_a_request_are_dropped(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let mut client = H2::connect(&rig);
    let mut trailers = Vec::new();
    put_literal(&mut trailers, b"checksum", b"abc");
    for (id, length) in [(1, None), (3, Some(b"4"))] {
        let mut block = [POST, &[0x86], &target("/")].concat();
        if let Some(length) = length {
            put_literal(&mut block, b"content-length", length);
        }
        client.send(&frame(HEADERS, END_HEADERS, id, &block));
        client.send(&frame(DATA, 0, id, b"body"));
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &trailers));
        assert_eq!(client.answer(id), OK.with(b"body"));
    }
}

fn trailers_with_a_pseudo_field_reset_their_stream(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Echo));
    let mut client = H2::connect(&rig);
    let mut literal = Vec::new();
    put_literal(&mut literal, b":path", b"/other");
    let mut regular = Vec::new();
    put_literal(&mut regular, b"checksum", b"abc");
    let last = END_HEADERS | END_STREAM;
    let mut id = 1;
    for (name, trailers) in [
        ("indexed", vec![(HEADERS, last, vec![0x84])]),
        ("a static name", vec![(HEADERS, last, b"\x04\x06/other".to_vec())]),
        ("a literal name", vec![(HEADERS, last, literal.clone())]),
        ("before a regular field", vec![(HEADERS, last, [&[0x84], &regular[..]].concat())]),
        ("behind a regular field", vec![(HEADERS, last, [&regular[..], &[0x84]].concat())]),
        (
            "in a continuation",
            vec![(HEADERS, END_STREAM, vec![]), (CONTINUATION, END_HEADERS, literal.clone())],
        ),
        ("padded", vec![(HEADERS, last | PADDED, [&[3], &literal[..], &[0; 3]].concat())]),
    ] {
        client.send(&request(id, POST, "/", 0));
        client.send(&frame(DATA, 0, id, b"body"));
        for (kind, flags, payload) in trailers {
            client.send(&frame(kind, flags, id, &payload));
        }
        let got = client.answer(id);
        assert_eq!((got.reset, got.ended), (Some(PROTOCOL_ERROR), false), "{name}");
        id += 2;
    }
    // A padded field block may end before its padding, which is no field.
    client.send(&request(id, POST, "/", 0));
    client.send(&frame(DATA, 0, id, b"body"));
    client.send(&frame(HEADERS, last | PADDED, id, &[&[2], &regular[..], &[0; 2]].concat()));
    assert_eq!(client.answer(id), OK.with(b"body"), "the connection goes on");
}

fn a_foreign_scheme_resets_its_stream(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", hello));
    let mut client = H2::connect(&rig);
    for (id, scheme, expected) in
        [(1, "ftp", false), (3, "https", true), (5, "httpx", false), (7, "http", true)]
    {
        let name = [0x06, scheme.len() as u8];
        let block = [GET, &name, scheme.as_bytes(), &target("/")].concat();
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &block));
        let got = client.answer(id);
        let (status, reset) = if expected { (Some(OK_STATUS), None) } else { (None, Some(PROTOCOL_ERROR)) };
        assert_eq!((got.status, got.reset), (status, reset), "{scheme}");
    }
}

fn an_answer_may_have_trailers(stand: Stand) {
    struct Counted;
    impl encke_server::Pull for Counted {
        fn pull(&mut self, _: usize, out: &mut Vec<u8>) -> Pulled {
            out.extend_from_slice(b"content");
            Pulled::End
        }

        fn trailers(&mut self) -> Fields {
            let mut fields = Fields::new();
            fields.push("x", b"1").expect("a field");
            fields
        }
    }
    let rig = stand.serve(|server| {
        server.mount("/", |_: &encke_server::Request<'_>, _| {
            encke_server::Outcome::Now(Reply::new(200).body(Body::Stream(Box::new(Counted))))
        })
    });
    let mut client = H2::connect(&rig);
    // A name and a value that enter the server's table, each one letter in the Huffman code (RFC 7541, appendix B).
    let trailers = vec![0x40, 0x81, 0xf3, 0x81, 0x0f];
    assert_eq!(client.get("/"), Got { trailers, ..OK.with(b"content") });
    client.send(&request(3, HEAD, "/", END_STREAM));
    assert_eq!(client.answer(3), OK.with(b""));

    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let (chunks, _) = client.rest();
    let end = b"\r\n\r\n0007\r\ncontent\r\n0\r\nx: 1\r\n\r\n";
    assert!(chunks.ends_with(end), "{}", String::from_utf8_lossy(&chunks));
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let (whole, _) = client.rest();
    assert!(whole.ends_with(b"\r\n\r\ncontent"), "{}", String::from_utf8_lossy(&whole));
}

fn early_hints_come_before_the_answer(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    let exchange = held.take(&rig);
    let mut hints = Fields::new();
    hints.push("Link", b"</style.css>; rel=preload").expect("a field");
    exchange.interim(103, hints);
    while client.got(1).interim.is_empty() {
        client.read_one();
    }
    exchange.answer(Reply::text(200, "done"));
    assert_eq!(client.answer(1), Got { interim: vec![103], ..OK.with(b"done") });
}

fn a_body_is_invited_once_it_is_wanted(stand: Stand) {
    let valve = Valve::default();
    let rig = stand.serve(|server| server.mount("/", valve.clone()));
    let mut client = H2::connect(&rig);
    let mut block = [POST, &[0x86], &target("/")].concat();
    put_literal(&mut block, b"expect", b"100-continue");
    client.send(&frame(HEADERS, END_HEADERS, 1, &block));
    valve.wait(&rig);
    client.ping();
    assert_eq!(*client.got(1), Got::default(), "nobody wants it yet");
    valve.open_once();
    while client.got(1).interim.is_empty() {
        client.read_one();
    }
    client.send(&frame(DATA, END_STREAM, 1, b"body"));
    rig.wait(|| valve.flow().bytes == 4, "the body");
    valve.open_once();
    assert_eq!(client.answer(1), Got { interim: vec![100], ..OK.with(b"4 bytes") });
}

fn so_many_requests_are_answered_on_a_connection(stand: Stand) {
    let limit = |policy: &mut encke_server::ConnLimits| {
        policy.limits.requests_per_connection = OrOff::On(NonZeroU32::new(2).expect("above 0"));
    };
    let rig = stand.serve_by(limit, |server| server.mount("/", handlers::hello));
    let mut client = H2::connect(&rig);
    client.send(&[request(1, GET, "/", END_STREAM), request(3, GET, "/", END_STREAM)].concat());
    for id in [1, 3] {
        assert_eq!(client.answer(id), OK.with(b"Hello\n"));
    }
    assert_eq!(client.until_goaway(), NO_ERROR);
    // A PING checks that the GOAWAY has arrived. After its acknowledgement the server accepts no more streams.
    while !client.pinged {
        client.read_one();
    }
    let (words, _) = client.client.rest();
    let last_stream = 3_u32.to_be_bytes();
    assert!(words.ends_with(&[last_stream, NO_ERROR.to_be_bytes()].concat()), "{words:?}");
    drop(client);
    rig.wait_for_closes(CloseReason::Answered, 1);
}

/// The kernel is advised to drop the file from its cache, so that the pool reads its pieces. Where it does not, as on an
/// in-memory file system, this repeats the case above.
fn a_file_that_is_not_in_memory_arrives_whole(stand: Stand) {
    let content = handlers::pattern(1_000_003);
    let folder = Folder::new().with("big.bin", content);
    let file = std::fs::File::open(folder.path().join("big.bin")).expect("it was written");
    file.sync_all().expect("a disk that works");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
    let rig = stand.serve_files(&folder);
    let mut client = H2::connect(&rig);
    assert!(client.get("/big.bin") == OK.with(content), "another content");
}

fn a_file_of_many_windows_arrives_whole(stand: Stand) {
    let content = handlers::pattern(1_000_003);
    let folder = Folder::new().with("big.bin", content).with("small.txt", "small");
    let rig = stand.serve_files(&folder);
    let mut client = H2::connect(&rig);
    client
        .send(&[request(1, GET, "/big.bin", END_STREAM), request(3, GET, "/small.txt", END_STREAM)].concat());
    assert_eq!(client.answer(3), OK.with(b"small"));
    assert!(client.answer(1) == OK.with(content), "another content");
}

fn a_stream_of_unknown_length_ends_with_its_stream(stand: Stand) {
    let content = handlers::pattern(300_000);
    let rig = stand.serve(|server| {
        server.mount("/", move |_: &encke_server::Request<'_>, _| {
            let pull = handlers::Pattern { bytes: content, pulled: std::sync::Arc::default() };
            encke_server::Outcome::Now(handlers::streamed(pull))
        })
    });
    let mut client = H2::connect(&rig);
    assert!(client.get("/") == OK.with(content), "another content");
}

fn a_stream_that_fails_is_reset(stand: Stand) {
    struct Failing;
    impl encke_server::Pull for Failing {
        fn pull(&mut self, _: usize, out: &mut Vec<u8>) -> Pulled {
            out.extend_from_slice(b"half");
            Pulled::Failed
        }
    }
    let rig = stand.serve(|server| {
        server.mount("/", |_: &encke_server::Request<'_>, _| {
            encke_server::Outcome::Now(Reply::new(200).body(Body::Stream(Box::new(Failing))))
        })
    });
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    assert_eq!(client.answer(1).reset, Some(INTERNAL_ERROR));
    assert_eq!(rig.count_of("encke_h2_resets_total", "us"), 1);
    client.send(&request(3, GET, "/", END_STREAM));
    assert_eq!(client.answer(3).reset, Some(INTERNAL_ERROR), "the connection goes on");
}

fn a_request_too_large_is_refused_and_the_others_go_on(stand: Stand) {
    let rig = stand.serve_by(
        |policy| policy.limits.body_bytes = OrOff::On(ByteSize::of(100)),
        |server| server.mount("/", Echo),
    );
    let mut client = H2::connect(&rig);
    client.send(&request(1, POST, "/", 0));
    client.send(&frame(DATA, END_STREAM, 1, &[0; 101]));
    assert_ne!(client.answer(1).status, Some(OK_STATUS));
    client.send(&request(3, POST, "/", 0));
    client.send(&frame(DATA, END_STREAM, 3, &[7; 100]));
    assert_eq!(client.answer(3), OK.with(&[7; 100]));
}

fn resets_without_end_are_ended(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", Held::default()));
    let mut good = H2::connect(&rig);
    let mut client = H2::connect(&rig);
    let mut id = 1;
    while id < 20_000 {
        let pair = [request(id, GET, "/", END_STREAM), frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes())];
        if client.client.try_send(pair.concat()).is_err() {
            break;
        }
        id += 2;
    }
    client.client.rest();
    drop(client);
    rig.wait_for_closes(CloseReason::Flood, 1);
    good.ping();
}

fn cancelled_requests_cut_no_download(stand: Stand) {
    let content = handlers::pattern(1_000_003);
    let folder = Folder::new().with("big.bin", content).with("small.txt", "small");
    let rig = stand.serve_files(&folder);
    for (count, is_too_many) in [(300, false), (700, true)] {
        let mut client = H2::connect(&rig);
        client.send(&request(1, GET, "/big.bin", END_STREAM));
        // Many are cancelled before the server has accepted them.
        let cancelled = |number: u32| {
            let id = 2 * number + 1;
            [request(id, GET, "/small.txt", END_STREAM), frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes())]
                .concat()
        };
        client.send(&(1..=count).map(cancelled).collect::<Vec<_>>().concat());
        assert!(client.answer(1) == OK.with(content), "another content after {count} resets");
        if is_too_many {
            client.client.rest();
            rig.wait_for_closes(CloseReason::Flood, 1);
            assert_eq!(rig.count_of("encke_http_refusals_total", "h2_resets"), 1);
        } else {
            client.ping();
        }
    }
}

fn frames_without_a_purpose_are_ended(stand: Stand) {
    const PRIORITY: u8 = 2;
    const UNKNOWN: u8 = 0xfa;
    for frame in [
        frame(PING, 0, 0, &[0; 8]),
        frame(SETTINGS, 0, 0, &[]),
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame(UNKNOWN, 0, 1, b"?"),
    ] {
        flood(stand, &[], &frame);
    }
}

fn data_without_content_is_ended(stand: Stand) {
    flood(stand, &request(1, POST, "/", 0), &frame(DATA, 0, 1, b""));
}

/// A field of 3,000 bytes enters the table. Then one byte refers to it, as often as there is room.
fn a_head_that_is_larger_than_it_looks_is_refused(stand: Stand) {
    let limit = |policy: &mut encke_server::ConnLimits| policy.limits.head_bytes = ByteSize::of(16 * 1024);
    let rig = stand.serve_by(limit, |server| server.mount("/", handlers::hello));
    let mut client = H2::connect(&rig);
    let mut block = [GET, &[0x86], &target("/")].concat();
    block.extend_from_slice(b"\x40\x01x\x7f");
    // The rest of the length, 3,000 − 127, in groups of seven bits (RFC 7541 §5.1).
    block.extend([(2_873_u32 % 128) as u8 | 0x80, (2_873_u32 / 128) as u8]);
    block.extend([b'y'; 3_000]);
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    assert_eq!(client.answer(1), OK.with(b"Hello\n"));
    let bomb = |id, count| {
        let block = [GET, &[0x86], &target("/"), &vec![0xbe; count]].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, id, &block)
    };
    client.send(&bomb(3, 10));
    let refused = client.answer(3);
    assert!(refused.status != Some(OK_STATUS) && refused.body.is_empty(), "{refused:?}");
    client.send(&request(5, GET, "/", END_STREAM));
    assert_eq!(client.answer(5), OK.with(b"Hello\n"), "the connection goes on");
    client.send(&bomb(7, 16_000));
    assert_eq!(client.until_goaway(), ENHANCE_YOUR_CALM);
    drop(client);
    rig.wait_for_closes(CloseReason::Flood, 1);
}

fn streams_beyond_the_limit_are_refused(stand: Stand) {
    const STREAMS: u32 = 10;
    let held = Held::default();
    let limit = |policy: &mut encke_server::ConnLimits| {
        policy.limits.streams = NonZeroU32::new(STREAMS).expect("above 0");
    };
    let rig = stand.serve_by(limit, |server| server.mount("/", held.clone()));
    let mut client = H2::connect(&rig);
    let ids = (0..2 * STREAMS).map(|number| 2 * number + 1);
    client.send(&ids.clone().map(|id| request(id, GET, "/", END_STREAM)).collect::<Vec<_>>().concat());
    client.ping();
    let refused = ids.clone().filter(|id| client.got(*id).reset == Some(REFUSED_STREAM)).count();
    assert_eq!(refused, STREAMS as usize);
    for _ in 0..STREAMS {
        held.take(&rig).answer(Reply::text(200, "done"));
    }
    for id in ids.take(STREAMS as usize) {
        assert_eq!(client.answer(id), OK.with(b"done"));
    }
}

fn a_head_without_end_is_ended(stand: Stand) {
    let rig = stand.serve(|server| server.mount("/", handlers::hello));
    let mut good = H2::connect(&rig);
    let mut client = H2::connect(&rig);
    let mut filler = Vec::new();
    put_literal(&mut filler, b"x", &[b'y'; 100]);
    client.send(&frame(HEADERS, END_STREAM, 1, &[0x82, 0x86]));
    for _ in 0..20_000 {
        if client.client.try_send(frame(CONTINUATION, 0, 1, &filler)).is_err() {
            break;
        }
    }
    client.client.rest();
    drop(client);
    rig.wait_for_closes(CloseReason::Flood, 1);
    assert_eq!(good.get("/"), OK.with(b"Hello\n"));
}

fn a_head_that_is_not_finished_in_time_is_ended(stand: Stand) {
    let held = Held::default();
    // Long enough for a client of a busy machine, which pauses between its connection and its first request.
    let limit = |policy: &mut encke_server::ConnLimits| policy.limits.head_time = ms(2_000);
    let rig = stand.serve_by(limit, |server| server.mount("/", held.clone()));
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    client.ping();
    // An open stream does not keep an incomplete head alive.
    let _exchange = held.take(&rig);
    client.send(&frame(HEADERS, END_STREAM, 3, &[0x82, 0x86]));
    assert_eq!(client.until_goaway(), ENHANCE_YOUR_CALM);
    drop(client);
    rig.wait_for_closes(CloseReason::HeadTime, 1);
}

fn a_client_that_asks_for_nothing_is_ended(stand: Stand) {
    let rig = stand
        .serve_by(|policy| policy.limits.head_time = ms(100), |server| server.mount("/", handlers::hello));
    // A client that pauses before its first byte is ended without a response.
    let (client, ends) = rig.begun(begin());
    let mut client = H2::speak(client);
    assert_eq!(client.until_goaway(), NO_ERROR);
    drop(client);
    rig.wait_for_closes(CloseReason::HeadTime, ends + 1);
}

fn a_body_that_stops_or_drips_costs_its_stream(stand: Stand) {
    let limit = |policy: &mut encke_server::ConnLimits| {
        policy.rate_window_ns = ms(100).nanoseconds();
        policy.limits.body_rate = ByteRate::of(10_000);
    };
    let rig = stand.serve_by(limit, |server| server.mount("/", Echo));
    let mut client = H2::connect(&rig);
    client.send(&[request(1, POST, "/", 0), frame(DATA, 0, 1, b"half")].concat());
    assert_ne!(client.answer(1).status, Some(OK_STATUS));
    client.send(&request(3, POST, "/", 0));
    let mut drops = 0;
    while !client.client.idle(Duration::from_millis(3)) {
        // A byte every few milliseconds is a hundredth of the required rate.
        drops += 1;
        assert!(drops < 1_000, "it dripped {drops} bytes and is still served{}", rig.told());
        client.send(&frame(DATA, 0, 3, b"x"));
    }
    assert_ne!(client.answer(3).status, Some(OK_STATUS));
    assert_eq!(rig.count_of("encke_http_requests_total", "4xx"), 2, "both were told: 408");
    client.ping();
}

fn a_window_that_stays_shut_costs_its_stream(stand: Stand) {
    let rig = stand.serve_by(
        |policy| policy.rate_window_ns = ms(100).nanoseconds(),
        |server| server.mount("/", handlers::hello),
    );
    let mut client = H2::connect(&rig);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    client.send(&request(1, GET, "/", END_STREAM));
    assert_eq!(client.answer(1).reset, Some(ENHANCE_YOUR_CALM));
    client.ping();
}

fn a_client_that_takes_nothing_is_closed(stand: Stand) {
    let folder = Folder::new().with("big.bin", handlers::pattern(8 << 20));
    let files = crate::rig::files(&folder);
    let rig = stand
        .serve_by(|policy| policy.rate_window_ns = ms(200).nanoseconds(), |server| server.mount("/", files));
    let mut client = rig.narrow_client();
    let window = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0, 0]);
    client.send([PREFACE.to_vec(), settings, window, request(1, GET, "/big.bin", END_STREAM)].concat());
    rig.wait_for_closes(CloseReason::WriteRate, 1);
}

/// Each of 2,000 frames of 512 bytes is followed by two window updates.
fn windows_of_a_kilobyte_are_no_flood(stand: Stand) {
    let content = handlers::pattern(1_000_000);
    let folder = Folder::new().with("big.bin", content);
    let rig = stand.serve_files(&folder);
    let mut client = H2::speak(rig.client());
    client.send(&[PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 2, 0])].concat());
    assert!(client.get("/big.bin") == OK.with(content), "another content");
}

fn a_closed_window_has_no_file_read(stand: Stand) {
    let folder = Folder::new().with("big.bin", handlers::pattern(1 << 20));
    let rig = stand.serve_files(&folder);
    let mut client = H2::connect(&rig);
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for number in 0..100 {
        client.send(&request(2 * number + 1, GET, "/big.bin", END_STREAM));
    }
    client.ping();
    for number in 0..100 {
        while client.got(2 * number + 1).status.is_none() {
            client.read_one();
        }
    }
    rig.wait(
        || rig.count("encke_h2_streams") == 100 && rig.count("encke_h2_unsent_bytes") == 0,
        "a hundred open streams that hold nothing",
    );
}

fn clients_that_read_nothing_leave_memory_for_others(stand: Stand) {
    const UNSENT_BYTES: usize = 4 << 20;
    let content = handlers::pattern(8 << 20);
    let folder = Folder::new().with("big.bin", content).with("small.txt", "small");
    let files = crate::rig::files(&folder);
    let rig = stand.serve_by(
        |policy| policy.limits.unsent = ByteSize::of(UNSENT_BYTES as u64),
        |server| server.mount("/", files),
    );
    let window = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0, 0]);
    let requests = (0..32).flat_map(|number| request(2 * number + 1, GET, "/big.bin", END_STREAM));
    let greedy = [PREFACE.to_vec(), settings, window, requests.collect()].concat();
    let mut crowd = Vec::new();
    for number in 1..=40 {
        let mut client = rig.narrow_client();
        client.send(&greedy);
        crowd.push(client);
        rig.wait(|| rig.count("encke_h2_connections_total") == number, "the next connection");
    }
    // Each connection takes its share and then waits.
    rig.wait(|| rig.count("encke_h2_unsent_bytes") > UNSENT_BYTES as u64 / 2, "bytes that nobody takes");
    let mut client = H2::connect(&rig);
    assert_eq!(client.get("/small.txt"), OK.with(b"small"));
    client.send(&request(3, GET, "/big.bin", END_STREAM));
    assert!(client.answer(3) == OK.with(content), "another content");
    // A connection may exceed its share by one frame, whose size is known only once it is written.
    let held = rig.count("encke_h2_unsent_bytes");
    assert!(held <= UNSENT_BYTES as u64 + 40 * FRAME_BYTES as u64, "{held} bytes are held");
}

fn clients_that_hold_streams_leave_some_for_others(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve_by(
        |policy| policy.limits.open_streams = NonZeroU32::new(160).expect("above 0"),
        |server| server.mount("/", held.clone()),
    );
    let mut greedy = H2::connect(&rig);
    for number in 0..40 {
        greedy.send(&request(2 * number + 1, GET, "/", END_STREAM));
    }
    let refused = || rig.count_of("encke_http_refusals_total", "h2_crowded");
    rig.wait(|| rig.count("encke_h2_streams") + refused() == 40, "a response or a reset for each");
    assert_eq!(rig.count("encke_h2_streams"), 160 / 9);
    let resets = |greedy: &mut H2| {
        (0..40).filter(|number| greedy.got(2 * number + 1).reset == Some(REFUSED_STREAM)).count() as u64
    };
    while resets(&mut greedy) < refused() {
        greedy.read_one();
    }
    let mut other = H2::connect(&rig);
    other.send(&request(1, GET, "/", END_STREAM));
    other.ping();
    assert_eq!(other.got(1).reset, None);
    // A stream that ends makes room for another one.
    held.take(&rig).answer(Reply::text(200, "done"));
    assert_eq!(greedy.answer(1), OK.with(b"done"));
    greedy.send(&request(101, GET, "/", END_STREAM));
    loop {
        let exchange = held.take(&rig);
        let stream = exchange.key().stream;
        exchange.answer(Reply::text(200, "done"));
        if stream == 101 {
            break;
        }
    }
    assert_eq!(greedy.answer(101), OK.with(b"done"));
}

fn an_idle_connection_is_told_goodbye(stand: Stand) {
    let rig = stand
        .serve_by(|policy| policy.limits.idle_time = ms(100), |server| server.mount("/", handlers::hello));
    let mut client = H2::connect(&rig);
    assert_eq!(client.get("/"), OK.with(b"Hello\n"));
    assert_eq!(client.until_goaway(), NO_ERROR);
    drop(client);
    rig.wait_for_closes(CloseReason::IdleTime, 1);
}

fn a_drain_lets_open_streams_end(stand: Stand) {
    let held = Held::default();
    let rig = stand.serve(|server| server.mount("/", held.clone()));
    let mut client = H2::connect(&rig);
    client.send(&request(1, GET, "/", END_STREAM));
    let exchange = held.take(&rig);
    rig.running().drain(Duration::ZERO, Duration::from_secs(60));
    assert_eq!(client.until_goaway(), NO_ERROR);
    exchange.answer(Reply::text(200, "to the end"));
    assert_eq!(client.answer(1), OK.with(b"to the end"));
    drop(client);
    rig.wait(|| rig.connections() == 0, "its end");
}

/// A client repeats one frame: its connection ends for that reason, and another client is served.
fn flood(stand: Stand, first: &[u8], frame: &[u8]) {
    let rig = stand.serve(|server| server.mount("/", Valve::default()));
    let mut good = H2::connect(&rig);
    let mut client = H2::connect(&rig);
    client.send(first);
    let batch = frame.repeat(100);
    for _ in 0..200 {
        if client.client.try_send(&batch).is_err() {
            break;
        }
    }
    client.client.rest();
    drop(client);
    rig.wait_for_closes(CloseReason::Flood, 1);
    good.ping();
}
