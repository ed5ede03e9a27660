//! Compressed WebSockets from outside (RFC 7692): negotiation, payloads, rejections. The client side compresses and
//! decompresses with flate2 alone.

use encke_assembly::settings::PushSettings;
use encke_server::{Answers, Outcome, Request, Socket as Speaks, SocketMessage, Upgrade};
use encke_wire::websocket::{self, Opcode};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::push_clients::{Socket, handshake, publish, stand, wait_for_subscribers, with};
use crate::rig::{Client, End, Rig, Stand};

on_two_stands! {
    messages_are_compressed_for_those_who_have_offered_it,
    what_is_small_or_dense_travels_as_it_is,
    a_compressed_message_is_published,
    a_compressed_socket_of_a_handler_answers,
    a_bomb_ends_its_connection_alone,
    many_large_messages_in_few_bytes_are_all_heard,
    what_cannot_be_inflated_ends_the_connection,
    nobody_is_made_to_compress,
}

const OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
const ANSWER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// The empty block at the end of each message, which is not sent.
const TAIL: &[u8] = b"\x00\x00\xff\xff";

/// Opens a WebSocket that offers compression.
fn offering(rig: &Rig, path: &str, fields: &str) -> Socket {
    let mut client = rig.client();
    client.send(handshake(path, &format!("{OFFER}{fields}")));
    let head = client.head();
    assert_eq!((head.status, head.field("Sec-WebSocket-Extensions")), (101, Some(ANSWER)), "{head:?}");
    Socket(client)
}

fn inflated(payload: &[u8]) -> Vec<u8> {
    let input = [payload, TAIL].concat();
    let mut out = Vec::with_capacity(1 << 20);
    Decompress::new(false)
        .decompress_vec(&input, &mut out, FlushDecompress::Sync)
        .expect("what flate2 knows");
    out
}

fn deflated(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 1_000);
    let mut stream = Compress::new(Compression::best(), false);
    stream.compress_vec(message, &mut out, FlushCompress::Sync).expect("there is room");
    assert_eq!(stream.total_in(), message.len() as u64);
    out.strip_suffix(TAIL).expect("a flush ends so").to_vec()
}

/// Encodes a complete compressed message of a client.
fn packed(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    websocket::put_masked(&mut frame, opcode, payload, [1, 2, 3, 4]);
    frame[0] |= 0x40;
    frame
}

fn messages_are_compressed_for_those_who_have_offered_it(on: Stand) {
    let rig = stand(on);
    let mut payloads = offering(&rig, "/push/a", "");
    let mut envelopes = offering(&rig, "/push/a", "Sec-WebSocket-Protocol: encke.v1\r\n");
    let mut plain = Socket::open(&rig, "/push/a", "");
    envelopes.text();
    wait_for_subscribers(&rig, 3);
    for round in 0..3 {
        let text = format!("{round}: {}", "a message, a message, and no end of a message. ".repeat(100));
        publish(&rig, "a", &text);
        assert_eq!(plain.text(), text);
        let (first, payload) = payloads.frame();
        assert_eq!(first, 0xc1, "text, whole, compressed");
        assert!(payload.len() < text.len() / 10, "{} of {}", payload.len(), text.len());
        assert_eq!(inflated(&payload), text.as_bytes(), "by itself, whatever came before");
        let (first, payload) = envelopes.frame();
        assert_eq!(first, 0xc1);
        let envelope = String::from_utf8(inflated(&payload)).expect("JSON");
        assert!(envelope.contains(&text), "{envelope}");
    }
}

fn what_is_small_or_dense_travels_as_it_is(on: Stand) {
    let rig = stand(on);
    let mut socket = offering(&rig, "/push/a", "");
    wait_for_subscribers(&rig, 1);
    publish(&rig, "a", "short");
    assert_eq!(socket.frame(), (0x81, b"short".to_vec()));
    // Numbers of a linear congruential generator (Knuth's MMIX): their high bytes do not compress.
    let next = |number: &u64| {
        Some(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    let numbers = std::iter::successors(Some(1_u64), next);
    let dense: Vec<u8> = numbers.take(5_000).map(|number| (number >> 56) as u8).collect();
    let mut request =
        format!("POST /push/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", dense.len())
            .into_bytes();
    request.extend_from_slice(&dense);
    assert_eq!(rig.client().ask(request).status, 201);
    let (first, payload) = socket.frame();
    assert_eq!(first, 0x82);
    assert!(payload == dense, "{} bytes of {}", payload.len(), dense.len());
}

fn a_compressed_message_is_published(on: Stand) {
    let rig = stand(on);
    let mut plain = Socket::open(&rig, "/push/a", "");
    let mut socket = offering(&rig, "/push/a", "");
    wait_for_subscribers(&rig, 2);
    let text = "said in few bytes ".repeat(50);
    let whole = packed(Opcode::Text, &deflated(text.as_bytes()));
    socket.0.send(&whole);
    assert_eq!(plain.text(), text);
    assert_eq!(inflated(&socket.frame().1), text.as_bytes());
    // Fragmented with a ping in between, and uncompressed.
    let payload = deflated(text.as_bytes());
    let (head, tail) = payload.split_at(payload.len() / 2);
    let mut first = packed(Opcode::Text, head);
    first[0] &= 0x7f;
    socket.0.send(first);
    socket.say(Opcode::Ping, b"there?");
    assert_eq!(socket.frame(), (0x8a, b"there?".to_vec()));
    socket.say(Opcode::Continuation, tail);
    assert_eq!(plain.text(), text);
    assert_eq!(inflated(&socket.frame().1), text.as_bytes());
    socket.say(Opcode::Text, b"as it is");
    assert_eq!(plain.text(), "as it is");
}

/// Sends every message back twice.
struct Echo;

impl Speaks for Echo {
    fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
        answers.send(message);
        answers.send(message);
    }
}

fn echo(request: &Request<'_>, _: encke_server::Exchange) -> Outcome {
    match Upgrade::accept(request, 100_000, Echo) {
        Ok(upgrade) => Outcome::Takeover(upgrade.compressed(request).into()),
        Err(reply) => Outcome::Now(reply),
    }
}

fn a_compressed_socket_of_a_handler_answers(on: Stand) {
    let rig = on.serve(|server| server.mount("/echo", echo));
    let mut socket = offering(&rig, "/echo", "");
    for message in ["x", &"long ".repeat(2_000)] {
        socket.0.send(packed(Opcode::Text, &deflated(message.as_bytes())));
        for _ in 0..2 {
            let (first, payload) = socket.frame();
            let payload = if first & 0x40 == 0 { payload } else { inflated(&payload) };
            assert_eq!((first & 0x8f, payload), (0x81, message.as_bytes().to_vec()));
        }
    }
    let mut plain = Socket::open(&rig, "/echo", "");
    plain.say(Opcode::Text, "long ".repeat(2_000).as_bytes());
    assert_eq!(plain.text(), "long ".repeat(2_000));
}

fn a_bomb_ends_its_connection_alone(on: Stand) {
    let rig = stand(on);
    let mut other = offering(&rig, "/push/a", "");
    wait_for_subscribers(&rig, 1);
    let bomb = deflated(&vec![0; 16_000_000]);
    assert!(bomb.len() < 20_000, "{} bytes", bomb.len());
    for cut in [1, bomb.len() / 2, bomb.len()] {
        let mut socket = offering(&rig, "/push/a", "");
        let mut first = packed(Opcode::Binary, &bomb[..cut]);
        first[0] &= 0x7f;
        socket.0.send(first);
        socket.say(Opcode::Continuation, &bomb[cut..]);
        assert_eq!(socket.close_code(), 1009, "cut at {cut}");
        assert_eq!(socket.0.end(), End::Finished);
    }
    publish(&rig, "a", "still there");
    assert_eq!(other.text(), "still there");
}

/// Messages are decompressed a few at a time, even while nothing else arrives and, if the handler is silent, nothing is sent.
fn many_large_messages_in_few_bytes_are_all_heard(on: Stand) {
    /// Responds only to short messages, with the number of bytes received before.
    struct Counter(usize);
    impl Speaks for Counter {
        fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
            match message {
                SocketMessage::Binary(bytes) => self.0 += bytes.len(),
                SocketMessage::Text(_) => answers.send(SocketMessage::Text(&self.0.to_string())),
            }
        }
    }
    let rig = on.serve(|server| {
        server.mount("/count", |request: &Request<'_>, _| {
            match Upgrade::accept(request, 1_000_000, Counter(0)) {
                Ok(upgrade) => Outcome::Takeover(upgrade.compressed(request).into()),
                Err(reply) => Outcome::Now(reply),
            }
        })
    });
    let mut socket = offering(&rig, "/count", "");
    let large = packed(Opcode::Binary, &deflated(&vec![0; 900_000]));
    let mut input = large.repeat(20);
    websocket::put_masked(&mut input, Opcode::Text, b"how many?", [0; 4]);
    assert!(input.len() < 64 * 1024, "one read may bring it all: {} bytes", input.len());
    for round in 1..=3 {
        socket.0.send(&input);
        assert_eq!(socket.text(), (round * 20 * 900_000).to_string());
    }
}

fn what_cannot_be_inflated_ends_the_connection(on: Stand) {
    let rig = stand(on);
    for (what, payload, code) in [
        ("nothing compressed", b"\xff\xff\xff\xff".to_vec(), 1007),
        ("a part of a message", deflated(&[b'x'; 300])[..3].to_vec(), 1007),
        ("no UTF-8", deflated(b"caf\xc3"), 1007),
    ] {
        let mut socket = offering(&rig, "/push/a", "");
        socket.0.send(packed(Opcode::Text, &payload));
        assert_eq!(socket.close_code(), code, "{what}");
        assert_eq!(socket.0.end(), End::Finished, "{what}");
    }
    let mut socket = offering(&rig, "/push/a", "");
    socket.0.send(packed(Opcode::Ping, b"x"));
    assert_eq!(socket.close_code(), 1002, "a control frame is never compressed");
}

fn nobody_is_made_to_compress(on: Stand) {
    let agreed = |rig: &Rig, path: &str, offer: &str| -> (Option<String>, Client) {
        let mut client = rig.client();
        client.send(handshake(path, offer));
        let head = client.head();
        assert_eq!(head.status, 101, "{head:?}");
        (head.field("Sec-WebSocket-Extensions").map(str::to_owned), client)
    };
    let rig = with(on, PushSettings { compress: false, ..PushSettings::default() });
    let (field, client) = agreed(&rig, "/push/a", OFFER);
    assert_eq!(field, None, "the settings say no");
    let mut socket = Socket(client);
    socket.0.send(packed(Opcode::Text, &deflated(b"x")));
    assert_eq!(socket.close_code(), 1002);

    let rig = stand(on);
    for offer in ["", "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n"] {
        let (field, client) = agreed(&rig, "/push/a", offer);
        assert_eq!(field, None, "{offer}");
        let mut socket = Socket(client);
        wait_for_subscribers(&rig, 1);
        let text = "said in many bytes ".repeat(50);
        publish(&rig, "a", &text);
        assert_eq!(socket.text(), text);
        drop(socket);
        wait_for_subscribers(&rig, 0);
    }
    // Only handlers that enable compression get it.
    let rig = on.serve(|server| {
        server.mount("/plain", |request: &Request<'_>, _| match Upgrade::accept(request, 1_000, Echo) {
            Ok(upgrade) => Outcome::Takeover(upgrade.into()),
            Err(reply) => Outcome::Now(reply),
        })
    });
    assert_eq!(agreed(&rig, "/plain", OFFER).0, None);
}
