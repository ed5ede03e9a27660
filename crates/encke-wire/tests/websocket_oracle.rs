//! Streams of frames, valid and broken, are decoded as by `tungstenite`.
//!
//! The two may differ in three ways. `tungstenite` checks a frame when it is complete, so that this decoder fails earlier.
//! `tungstenite` accepts lengths that are longer than necessary. And it responds to an invalid close code instead of failing.
//! In these cases the events before must be equal.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use encke_wire::websocket::{
    Decoder, Failure, FrameEvent, FrameRules, FrameSender, MessageKind, Opcode, put_frame, put_masked,
};
use tungstenite::error::ProtocolError;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

#[test]
fn streams_of_a_client_are_heard_as_tungstenite_hears_them() {
    compare(FrameSender::Client, Role::Server, 0x636c_6965_6e74);
}

#[test]
fn streams_of_a_server_are_heard_as_tungstenite_hears_them() {
    compare(FrameSender::Server, Role::Client, 0x7365_7276_6572);
}

fn compare(peer: FrameSender, role: Role, seed: u64) {
    // Frames above 125 bytes, so that the limit does not affect control frames, to which `tungstenite` applies it as well.
    let rules = FrameRules { frame_bytes_max: 200, ..FrameRules::new(peer, 210) };
    let mut random = Random(seed);
    let (mut whole, mut failures) = (0, BTreeMap::new());
    for round in 0..4_000 {
        let stream = random.stream(peer);
        let place = format!("seed {seed:#x}, round {round}: {}", stream.escape_ascii());
        let (said, failure) = ours(&[&stream], &rules);
        let cut = random.below(stream.len() + 1);
        let pieces = [&stream[..cut], &stream[cut..]];
        assert_eq!(ours(&pieces, &rules), (said.clone(), failure), "cut at {cut}, {place}");
        assert_eq!(ours(&stream.chunks(1).collect::<Vec<_>>(), &rules), (said.clone(), failure), "{place}");

        let (heard, error) = theirs(&stream, role, &rules);
        match (failure, error) {
            (None, None) => {
                assert_eq!(said, heard, "{place}");
                whole += 1;
            }
            (None, Some(error)) => panic!("tungstenite alone fails: {error}, {place}"),
            (Some(Failure::LengthNotMinimal | Failure::InvalidCloseCode), _) => {
                assert!(heard.starts_with(&said), "{said:?} and {heard:?}, {place}");
            }
            (Some(failure), error) => {
                assert_eq!(said, heard, "{place}");
                // Without an error `tungstenite` still waits for the end of the frame.
                *failures.entry(failure.reason()).or_insert(0) += u32::from(error.is_some());
            }
        }
    }
    println!("seed {seed:#x}: {whole} without a fault; failures of both: {failures:?}");
    assert!(whole > 1_000, "{whole}");
    let unmasked = if peer == FrameSender::Client { Failure::Unmasked } else { Failure::Masked };
    for failure in [
        Failure::ReservedBits,
        Failure::ReservedOpcode,
        Failure::ControlInPieces,
        Failure::ControlTooLong,
        Failure::NothingToContinue,
        Failure::MessageWithinMessage,
        Failure::CloseTooShort,
        Failure::ReasonNotUtf8,
        Failure::TextNotUtf8,
        Failure::FrameTooLarge,
        Failure::MessageTooLarge,
        unmasked,
    ] {
        assert!(failures.get(failure.reason()).is_some_and(|&times| times > 0), "{failure:?} never came");
    }
}

/// The contents of a stream, with whole messages.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

fn ours(pieces: &[&[u8]], rules: &FrameRules) -> (Vec<Said>, Option<Failure>) {
    let (mut decoder, mut said, mut message) = (Decoder::new(), Vec::new(), Vec::new());
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut at = 0;
        while at < piece.len() {
            let step = match decoder.feed(&mut piece[at..], rules) {
                Ok(step) => step,
                Err(failure) => return (said, Some(failure)),
            };
            at += step.used;
            match step.event {
                None | Some(FrameEvent::Data { last: false, payload: &[], .. }) => {}
                Some(FrameEvent::Data { payload, kind, last, .. }) => {
                    message.extend_from_slice(payload);
                    if last {
                        let message = std::mem::take(&mut message);
                        said.push(if kind == MessageKind::Text {
                            Said::Text(message)
                        } else {
                            Said::Binary(message)
                        });
                    }
                }
                Some(FrameEvent::Ping(payload)) => said.push(Said::Ping(payload.to_vec())),
                Some(FrameEvent::Pong(payload)) => said.push(Said::Pong(payload.to_vec())),
                Some(FrameEvent::Close { code, reason }) => {
                    said.push(Said::Close(code.map(|code| (code, reason.to_owned()))));
                }
            }
        }
    }
    (said, None)
}

fn theirs(stream: &[u8], role: Role, rules: &FrameRules) -> (Vec<Said>, Option<Error>) {
    let config = WebSocketConfig::default()
        .read_buffer_size(512)
        .max_frame_size(Some(rules.frame_bytes_max as usize))
        .max_message_size(Some(rules.message_bytes_max as usize));
    let mut socket = WebSocket::from_raw_socket(Line(stream), role, Some(config));
    let mut said = Vec::new();
    loop {
        said.push(match socket.read() {
            Ok(Message::Text(text)) => Said::Text(text.as_bytes().to_vec()),
            Ok(Message::Binary(bytes)) => Said::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Said::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Said::Pong(bytes.to_vec()),
            Ok(Message::Close(close)) => {
                Said::Close(close.map(|close| (close.code.into(), close.reason.as_str().to_owned())))
            }
            Ok(Message::Frame(frame)) => unreachable!("reading yields messages: {frame}"),
            Err(Error::ConnectionClosed) => return (said, None),
            // The stream ends here, or the peer sends more after its Close, which is ignored.
            Err(Error::Protocol(
                ProtocolError::ResetWithoutClosingHandshake | ProtocolError::ReceivedAfterClosing,
            )) => return (said, None),
            Err(error) => return (said, Some(error)),
        });
    }
}

/// A peer that has sent only these bytes, and accepts all responses.
struct Line<'a>(&'a [u8]);

impl Read for Line<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Seeded random numbers (xorshift64*), and the streams made from them.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Up to eight messages and control frames. Half of the streams then get one fault.
    fn stream(&mut self, peer: FrameSender) -> Vec<u8> {
        let mut frames = Vec::new();
        for _ in 0..=self.below(7) {
            match self.below(8) {
                0 => frames.push((0x89, self.bytes(126))),
                1 => frames.push((0x8a, self.bytes(126))),
                2 if self.one_in(3) => frames.push((0x88, self.close())),
                _ => self.message(&mut frames),
            }
        }
        if self.one_in(2) {
            self.break_a_rule(&mut frames);
        }
        let mut stream = Vec::new();
        for (first, payload) in &frames {
            let start = stream.len();
            let masks = (peer == FrameSender::Client) != self.one_in(400);
            if masks {
                let key = [self.below(256) as u8, self.below(256) as u8, 3, self.below(256) as u8];
                put_masked(&mut stream, Opcode::Binary, payload, key);
            } else {
                put_frame(&mut stream, Opcode::Binary, payload);
            }
            stream[start] = *first;
        }
        if self.one_in(8) && !stream.is_empty() {
            // Any bit of any byte.
            let at = self.below(stream.len());
            stream[at] ^= 1 << self.below(8);
        }
        stream
    }

    /// One message in up to four frames, with pings in between.
    fn message(&mut self, frames: &mut Vec<(u8, Vec<u8>)>) {
        let is_text = self.one_in(2);
        let payload = if is_text { self.text().into_bytes() } else { self.bytes(200) };
        let (mut rest, mut opcode) = (&payload[..], if is_text { 0x1 } else { 0x2 });
        for _ in 0..self.below(4) {
            let (piece, after) = rest.split_at(self.below(rest.len() + 1));
            frames.push((opcode, piece.to_vec()));
            if self.one_in(3) {
                frames.push((0x89, self.bytes(8)));
            }
            (rest, opcode) = (after, 0x0);
        }
        frames.push((0x80 | opcode, rest.to_vec()));
    }

    fn break_a_rule(&mut self, frames: &mut [(u8, Vec<u8>)]) {
        let at = self.below(frames.len());
        let (first, payload) = &mut frames[at];
        match self.below(6) {
            0 => *first ^= 1 << self.below(8),
            1 => *first = self.below(256) as u8,
            2 if !payload.is_empty() => {
                let at = self.below(payload.len());
                payload[at] = self.below(256) as u8;
            }
            3 => payload.truncate(1),
            4 => payload.resize(self.below(300), b'x'),
            _ => payload.extend_from_slice(&[b'y'; 150]),
        }
    }

    fn close(&mut self) -> Vec<u8> {
        let code = [1000, 1001, 1011, 3000, 4999, 1005, 999, 5000][self.below(8)];
        match self.below(4) {
            0 => Vec::new(),
            1 => u16::to_be_bytes(code).to_vec(),
            _ => {
                let mut payload = u16::to_be_bytes(code).to_vec();
                payload.extend(self.text().into_bytes());
                // May cut a character.
                payload.truncate(20);
                payload
            }
        }
    }

    fn bytes(&mut self, bound: usize) -> Vec<u8> {
        (0..self.below(bound)).map(|_| self.below(256) as u8).collect()
    }

    fn text(&mut self) -> String {
        const CHARACTERS: [char; 8] = ['a', 'z', '\0', 'ä', '\u{7ff}', '日', '\u{ffff}', '🦀'];
        (0..self.below(50)).map(|_| CHARACTERS[self.below(8)]).collect()
    }
}
