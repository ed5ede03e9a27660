//! Responses of a WebSocket server that only follows this crate to abuse: a request, frames, and the verdict in words. Each
//! input is fed whole, byte by byte, and split in two at every position.

use encke_wire::field::Known;
use encke_wire::http1::{Head, HeadLimits, Progress};
use encke_wire::websocket::{
    Decoder, Deflate, Deflater, Failure, FrameEvent, FrameRules, FrameSender, Inflater, MessageKind, Opcode,
    WebSocketHandshake, put_masked,
};

/// An echo server: the status of the handshake, then its messages, then its close code.
fn serve(request: &[u8], pieces: &[&[u8]]) -> String {
    let mut head = Head::new();
    let progress = head.feed(request, &HeadLimits::default());
    let Progress::Done { head_bytes } = progress else { return format!("{progress:?}") };
    let all = |known: Known| head.all(request, known);
    if let Err(error) = WebSocketHandshake::check(head.method(), head.version(), all) {
        return error.status().to_string();
    }
    assert_eq!(head_bytes, request.len(), "frames come separately here");

    let mut verdict = "101".to_owned();
    let mut say = |what: &str, bytes: &[u8]| verdict += &format!(" {what}({})", bytes.escape_ascii());
    let deflate = Deflate::accepted(all(Known::SecWebSocketExtensions)).is_some();
    let rules = FrameRules {
        deflate,
        frame_bytes_max: 1_000,
        ..FrameRules::new(FrameSender::Client, MESSAGE_BYTES_MAX)
    };
    let (mut decoder, mut inflater, mut message) = (Decoder::new(), Inflater::new(), Vec::new());
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut at = 0;
        while at < piece.len() {
            let refused = |failure: Failure| failure.code().to_string();
            let step = match decoder.feed(&mut piece[at..], &rules) {
                Ok(step) => step,
                Err(failure) => {
                    say("close", refused(failure).as_bytes());
                    return verdict;
                }
            };
            at += step.used;
            match step.event {
                None => {}
                Some(FrameEvent::Data { payload, kind, compressed, last, .. }) => {
                    if !compressed {
                        message.extend_from_slice(payload);
                    } else if let Err(failure) =
                        inflater.feed(payload, kind, last, MESSAGE_BYTES_MAX, &mut message)
                    {
                        say("close", refused(failure).as_bytes());
                        return verdict;
                    }
                    assert!(message.len() as u64 <= MESSAGE_BYTES_MAX, "nobody keeps more than the limit");
                    if last {
                        say(if kind == MessageKind::Text { "text" } else { "bytes" }, &message);
                        message.clear();
                    }
                }
                Some(FrameEvent::Ping(payload)) => say("pong", payload),
                Some(FrameEvent::Pong(_)) => {}
                Some(FrameEvent::Close { code, .. }) => {
                    say("close", code.unwrap_or(1000).to_string().as_bytes());
                }
            }
        }
    }
    verdict
}

/// The verdict on `frames` after a valid handshake, in every split.
fn frames(frames: &[u8]) -> String {
    after(OPEN, frames)
}

/// As [`frames`], after a handshake that agrees on compression.
fn compressed_frames(frames: &[u8]) -> String {
    after(&OPEN.replace("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"), frames)
}

fn after(request: &str, frames: &[u8]) -> String {
    let whole = serve(request.as_bytes(), &[frames]);
    let bytes: Vec<&[u8]> = frames.chunks(1).collect();
    assert_eq!(serve(request.as_bytes(), &bytes), whole, "byte by byte: {}", frames.escape_ascii());
    for at in 0..=frames.len() {
        let (one, two) = frames.split_at(at);
        assert_eq!(serve(request.as_bytes(), &[one, two]), whole, "cut at {at}: {}", frames.escape_ascii());
    }
    whole
}

/// The verdict on the valid request with `from` replaced by `to`.
fn request(from: &str, to: &str) -> String {
    assert!(OPEN.contains(from), "{from}");
    serve(OPEN.replace(from, to).as_bytes(), &[])
}

/// A client's frame, given by its first byte and its unmasked payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    put_masked(&mut frame, Opcode::Binary, payload, [0x37, 0xfa, 0x21, 0x3d]);
    frame[0] = first;
    frame
}

/// Several frames of a client.
fn stream(frames: &[(u8, &[u8])]) -> Vec<u8> {
    frames.iter().flat_map(|&(first, payload)| frame(first, payload)).collect()
}

const MESSAGE_BYTES_MAX: u64 = 2_000;

const OPEN: &str = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn what_is_valid_is_served() {
    assert_eq!(frames(b""), "101");
    assert_eq!(frames(&frame(0x81, b"Hello")), "101 text(Hello)");
    assert_eq!(frames(&stream(&[(0x01, b"Hel"), (0x89, b"?"), (0x80, b"lo")])), "101 pong(?) text(Hello)");
    assert_eq!(frames(&stream(&[(0x88, b"\x03\xe8"), (0x81, b"late")])), "101 close(1000)");
    assert_eq!(frames(&frame(0x8a, b"unasked")), "101");
    assert_eq!(request("websocket", "WebSocket"), "101");
    assert_eq!(request("keep-alive, Upgrade", "UPGRADE"), "101");
    assert_eq!(request("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n"), "101");
}

#[test]
fn handshakes_that_break_a_rule_are_refused() {
    for (from, to, verdict) in [
        ("GET", "POST", "400"),
        ("GET", "HEAD", "400"),
        ("GET", "get", "400"),
        ("HTTP/1.1", "HTTP/1.0", "400"),
        ("Connection: keep-alive, Upgrade\r\n", "", "400"),
        ("keep-alive, Upgrade", "close", "400"),
        ("keep-alive, Upgrade", "xupgrade", "400"),
        ("Upgrade: websocket\r\n", "", "400"),
        ("Upgrade: websocket", "Upgrade: h2c", "400"),
        ("Upgrade: websocket", "Upgrade: websocket2", "400"),
        ("Sec-WebSocket-Version: 13\r\n", "", "400"),
        (
            "Sec-WebSocket-Version: 13\r\n",
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 13\r\n",
            "400",
        ),
        ("Version: 13", "Version: 8", "426"),
        ("Version: 13", "Version: 0", "426"),
        ("Version: 13", "Version: 14", "426"),
        ("Version: 13", "Version: +13", "426"),
        ("Version: 13", "Version: 13.0", "426"),
        ("Version: 13", "Version: 13, 13", "426"),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZR==", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZWU=", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "!!!!!!!!!!!!!!!!!!!!!!==", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ==, x", "400"),
        ("\r\n\r\n", "\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", "400"),
        ("\r\n\r\n", "\r\nSec-WebSocket-Protocol: a, (b)\r\n\r\n", "400"),
        ("\r\n\r\n", "\r\nContent-Length: 4\r\n\r\n", "400"),
        ("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
    ] {
        assert_eq!(request(from, to), verdict, "{to:?} for {from:?}");
    }
}

#[test]
fn frames_that_break_a_rule_close_with_1002() {
    for (what, bytes) in [
        ("no mask", b"\x81\x05Hello".to_vec()),
        ("no mask on a ping", b"\x89\x00".to_vec()),
        ("no mask on a close", b"\x88\x02\x03\xe8".to_vec()),
        ("RSV1 without compression", frame(0xc1, b"x")),
        ("RSV2", frame(0xa1, b"x")),
        ("RSV3", frame(0x91, b"x")),
        ("all of them", frame(0xf2, b"x")),
        ("RSV1 on a ping", frame(0xc9, b"x")),
        ("a reserved data opcode", frame(0x83, b"x")),
        ("the last reserved data opcode", frame(0x87, b"x")),
        ("a reserved control opcode", frame(0x8b, b"x")),
        ("the last reserved control opcode", frame(0x8f, b"")),
        ("a ping in pieces", frame(0x09, b"x")),
        ("a pong in pieces", frame(0x0a, b"x")),
        ("a close in pieces", frame(0x08, b"\x03\xe8")),
        ("a ping of 126 bytes", frame(0x89, &[b'x'; 126])),
        ("a close of 126 bytes", frame(0x88, &[b'x'; 126])),
        ("a pong of 65,536 bytes, announced", b"\x8a\xff\x00\x00\x00\x00\x00\x01\x00\x00".to_vec()),
        ("a continuation of nothing", frame(0x80, b"x")),
        ("a continuation of nothing that goes on", frame(0x00, b"x")),
        ("0 in two bytes", b"\x82\xfe\x00\x00".to_vec()),
        ("125 in two bytes", b"\x82\xfe\x00\x7d".to_vec()),
        ("5 in eight bytes", b"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x05".to_vec()),
        ("65,535 in eight bytes", b"\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff".to_vec()),
        ("the highest bit of a length", b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x01".to_vec()),
        ("half a close code", frame(0x88, b"\x03")),
        ("close code 0", frame(0x88, b"\x00\x00")),
        ("close code 999", frame(0x88, &999u16.to_be_bytes())),
        ("close code 1004", frame(0x88, &1004u16.to_be_bytes())),
        ("close code 1005", frame(0x88, &1005u16.to_be_bytes())),
        ("close code 1006", frame(0x88, &1006u16.to_be_bytes())),
        ("close code 1015", frame(0x88, &1015u16.to_be_bytes())),
        ("close code 1016", frame(0x88, &1016u16.to_be_bytes())),
        ("close code 2999", frame(0x88, &2999u16.to_be_bytes())),
        ("close code 5000", frame(0x88, &5000u16.to_be_bytes())),
        ("close code 65,535", frame(0x88, &[0xff, 0xff])),
        ("an HTTP request instead of frames", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
    ] {
        assert_eq!(frames(&bytes), "101 close(1002)", "{what}");
    }
    let within = stream(&[(0x01, b"a"), (0x81, b"b")]);
    assert_eq!(frames(&within), "101 close(1002)", "a message within a message");
    let after = stream(&[(0x81, b"a"), (0x80, b"b")]);
    assert_eq!(frames(&after), "101 text(a) close(1002)", "a continuation after the end");
}

#[test]
fn text_that_is_not_utf8_closes_with_1007_before_it_ends() {
    let endless = |start: &[u8]| {
        let mut bytes = frame(0x01, &[start, &[b'.'; 900]].concat());
        // Only the first bytes matter, so the rest is cut off.
        bytes.truncate(8 + start.len());
        bytes
    };
    for (what, bytes) in [
        ("a byte that never is", endless(b"ab\xff")),
        ("a continuation byte alone", endless(b"\x80")),
        ("an overlong slash", endless(b"\xc0\xaf")),
        ("an overlong slash in three bytes", endless(b"\xe0\x80\xaf")),
        ("a surrogate", endless(b"\xed\xa0\x80")),
        ("above U+10FFFF", endless(b"\xf4\x90")),
        ("five bytes", endless(b"\xf8\x88\x80\x80\x80")),
        ("a character cut by a letter", endless(b"\xe6\x97x")),
        ("a character cut by the end", frame(0x81, b"\xe6\x97")),
        ("cut by the end of the last fragment", stream(&[(0x01, b"ok\xe6"), (0x80, b"\x97")])),
        ("wrong in the second fragment", stream(&[(0x01, b"\xf4"), (0x00, b"\x90")])),
        ("wrong behind a ping", stream(&[(0x01, b"\xce\xba\xe1"), (0x00, b"\xff")])),
        ("the reason of a close", frame(0x88, b"\x03\xe8\xff")),
        ("the reason of a close, cut", frame(0x88, b"\x03\xe8\xf0\x9f\xa6")),
    ] {
        assert_eq!(frames(&bytes), "101 close(1007)", "{what}");
    }
    let bytes = stream(&[(0x01, b"\xe6"), (0x00, b"\x97"), (0x80, b"\xa5")]);
    assert_eq!(frames(&bytes), "101 text(\\xe6\\x97\\xa5)", "a character may be cut by frames");
    assert_eq!(frames(&frame(0x82, b"\xff")), "101 bytes(\\xff)", "bytes may be anything");
}

#[test]
fn giants_close_with_1009_when_they_are_announced() {
    for (what, bytes) in [
        ("a frame of 1,001 bytes", b"\x82\xfe\x03\xe9".to_vec()),
        ("a frame of 4 GiB", b"\x82\xff\x00\x00\x00\x01\x00\x00\x00\x00".to_vec()),
        ("a frame of 2^63 - 1 bytes", b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff".to_vec()),
        ("the third frame of a message", {
            let mut bytes = stream(&[(0x02, &[0; 1_000]), (0x00, &[0; 1_000])]);
            bytes.extend_from_slice(b"\x00\x81");
            bytes
        }),
    ] {
        assert_eq!(frames(&bytes), "101 close(1009)", "{what}");
    }
}

#[test]
fn compressed_messages_are_what_they_say_within_the_limit() {
    let deflated = |message: &[u8]| {
        let mut payload = Vec::new();
        Deflater::new(6).put(message, &mut payload);
        payload
    };
    let hello = deflated(b"Hello");
    let (one, two) = hello.split_at(3);
    let [plain, bomb] = [deflated(&[b'x'; 2_000]), deflated(&[b'x'; 200_000])];
    for (what, bytes, verdict) in [
        ("a text", frame(0xc1, &hello), "101 text(Hello)"),
        ("a text in fragments", stream(&[(0x41, one), (0x89, b"?"), (0x80, two)]), "101 pong(?) text(Hello)"),
        ("one not compressed", frame(0x81, b"Hello"), "101 text(Hello)"),
        ("a bomb", frame(0xc2, &bomb), "101 close(1009)"),
        ("a bomb in fragments", stream(&[(0x42, &bomb[..20]), (0x80, &bomb[20..])]), "101 close(1009)"),
        ("the mark on a continuation", stream(&[(0x41, one), (0xc0, two)]), "101 close(1002)"),
        ("the mark on a ping", frame(0xc9, b""), "101 close(1002)"),
        ("nothing compressed", frame(0xc1, b"Hello"), "101 close(1007)"),
        ("half a message", frame(0xc1, one), "101 close(1007)"),
        ("no text", frame(0xc1, &deflated(b"a\xff")), "101 close(1007)"),
    ] {
        assert_eq!(compressed_frames(&bytes), verdict, "{what}");
    }
    assert!(plain.len() < 100 && bomb.len() < 1_000, "they are small enough to be let in");
    let verdict = compressed_frames(&frame(0xc2, &plain));
    assert_eq!(verdict, format!("101 bytes({})", "x".repeat(2_000)));
    assert_eq!(frames(&frame(0xc1, &hello)), "101 close(1002)", "without an agreement");
}
