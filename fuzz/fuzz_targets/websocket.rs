//! WebSocket frames: the events do not depend on how the stream is cut, and equal the events of a slow decoder with the whole
//! stream. Decompression does not depend on it either, and reverses compression.
//!
//! The first byte of the input selects the peer, compression and narrow limits; the rest is the stream.
#![no_main]

use encke_wire::websocket::{
    Decoder, Deflater, Failure, FrameEvent, FrameRules, FrameSender, Inflater, MessageKind, Opcode,
    is_close_code,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [choice, stream @ ..] = input else { return };
    let peer = if choice & 1 == 0 { FrameSender::Client } else { FrameSender::Server };
    let (frame_bytes_max, message_bytes_max) = if choice & 4 == 0 { (1 << 20, 1 << 20) } else { (20, 30) };
    let rules = FrameRules { peer, deflate: choice & 2 != 0, frame_bytes_max, message_bytes_max };

    let whole = hear([stream].into_iter(), &rules);
    assert_eq!(whole, reference(stream, &rules), "the plain rules say the same");
    let cut = stream.iter().fold(7_usize, |hash, &byte| hash.wrapping_mul(31) ^ usize::from(byte));
    let (one, two) = stream.split_at(cut % (stream.len() + 1));
    assert_eq!(hear([one, two].into_iter(), &rules), whole, "the pieces do not matter");
    assert_eq!(hear(stream.chunks(1), &rules), whole, "nor do single bytes");

    for kind in [MessageKind::Text, MessageKind::Binary] {
        let whole = inflate([stream].into_iter(), kind);
        assert_eq!(inflate([one, two].into_iter(), kind), whole, "the pieces of a payload do not matter");
        assert_eq!(inflate(stream.chunks(1), kind), whole, "nor do its bytes");
    }
    let mut payload = Vec::new();
    Deflater::new(6).put(stream, &mut payload);
    if stream.len() <= INFLATED_BYTES_MAX {
        assert_eq!(inflate([&payload[..]].into_iter(), MessageKind::Binary), Ok(stream.to_vec()));
    }
});

/// Decompresses a message.
fn inflate<'a>(pieces: impl Iterator<Item = &'a [u8]>, kind: MessageKind) -> Result<Vec<u8>, Failure> {
    let (mut inflater, mut out) = (Inflater::new(), Vec::new());
    let mut feed = |piece, last| {
        let end = inflater.feed(piece, kind, last, INFLATED_BYTES_MAX as u64, &mut out);
        assert!(out.len() <= INFLATED_BYTES_MAX);
        end
    };
    for piece in pieces {
        feed(piece, false)?;
    }
    feed(&[], true)?;
    Ok(out)
}

const INFLATED_BYTES_MAX: usize = 10_000;

/// An event of a stream, with complete messages.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Message { kind: MessageKind, compressed: bool, bytes: Vec<u8> },
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

type Heard = (Vec<Said>, Result<(), Failure>);

fn hear<'a>(pieces: impl Iterator<Item = &'a [u8]>, rules: &FrameRules) -> Heard {
    let (mut decoder, mut said, mut message) = (Decoder::new(), Vec::new(), Vec::new());
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut at = 0;
        while at < piece.len() {
            if decoder.is_at_rest() {
                decoder = Decoder::new();
            }
            let step = match decoder.feed(&mut piece[at..], rules) {
                Ok(step) => step,
                Err(failure) => return (said, Err(failure)),
            };
            assert!(step.used > 0, "every call uses something");
            at += step.used;
            match step.event {
                None => {}
                Some(FrameEvent::Data { payload, kind, compressed, first, last }) => {
                    assert_eq!(first, message.is_empty());
                    message.extend_from_slice(payload);
                    assert!(message.len() as u64 <= rules.message_bytes_max);
                    if last {
                        said.push(Said::Message { kind, compressed, bytes: std::mem::take(&mut message) });
                    }
                }
                Some(FrameEvent::Ping(payload)) => said.push(Said::Ping(payload.to_vec())),
                Some(FrameEvent::Pong(payload)) => said.push(Said::Pong(payload.to_vec())),
                Some(FrameEvent::Close { code, reason }) => said.push(Said::Close(code, reason.to_owned())),
            }
        }
    }
    (said, Ok(()))
}

fn reference(stream: &[u8], rules: &FrameRules) -> Heard {
    let mut said = Vec::new();
    let end = listen(stream, rules, &mut said);
    (said, end.map(|_| ()))
}

/// Decodes frame by frame (RFC 6455 §5). Returns `Ok(None)` if the stream ends within a frame.
fn listen(mut rest: &[u8], rules: &FrameRules, said: &mut Vec<Said>) -> Result<Option<()>, Failure> {
    let mut open: Option<(MessageKind, bool, Vec<u8>)> = None;
    macro_rules! take {
        ($count:expr) => {{
            let Some((taken, after)) = rest.split_at_checked($count) else { return Ok(None) };
            rest = after;
            taken
        }};
    }
    loop {
        let first = take!(1)[0];
        let (last, compressed) = (first & 0x80 != 0, first & 0x40 != 0);
        let Some(opcode) = Opcode::of(first & 0x0f) else { return Err(Failure::ReservedOpcode) };
        let starts = matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & 0x30 != 0 || compressed && (!rules.deflate || !starts) {
            return Err(Failure::ReservedBits);
        }
        match opcode {
            _ if opcode.is_control() && !last => return Err(Failure::ControlInPieces),
            Opcode::Continuation if open.is_none() => return Err(Failure::NothingToContinue),
            _ if starts && open.is_some() => return Err(Failure::MessageWithinMessage),
            _ => {}
        }
        let second = take!(1)[0];
        match (rules.peer, second >= 0x80) {
            (FrameSender::Client, false) => return Err(Failure::Unmasked),
            (FrameSender::Server, true) => return Err(Failure::Masked),
            _ => {}
        }
        let short = u64::from(second & 0x7f);
        if opcode.is_control() && short > 125 {
            return Err(Failure::ControlTooLong);
        }
        let bytes_of_length = [0, 2, 8][(short.max(125) - 125) as usize];
        let length = take!(bytes_of_length).iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
        let length = if bytes_of_length == 0 { short } else { length };
        let shortest = if bytes_of_length == 8 { 65_536 } else { 126 };
        if bytes_of_length > 0 && length < shortest {
            return Err(Failure::LengthNotMinimal);
        }
        if length >> 63 != 0 {
            return Err(Failure::LengthOverflow);
        }
        let before = open.as_ref().map_or(0, |(_, _, bytes)| bytes.len() as u64);
        if !opcode.is_control() && length > rules.frame_bytes_max {
            return Err(Failure::FrameTooLarge);
        }
        if !opcode.is_control() && before + length > rules.message_bytes_max {
            return Err(Failure::MessageTooLarge);
        }
        let key = if rules.peer == FrameSender::Client { take!(4) } else { &[0; 4] };
        let available = rest.len().min(length as usize);
        let payload: Vec<u8> =
            take!(available).iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]).collect();
        let is_whole = payload.len() as u64 == length;

        match opcode {
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                let kind = if opcode == Opcode::Text { MessageKind::Text } else { MessageKind::Binary };
                let mut message = open.take().unwrap_or((kind, compressed, Vec::new()));
                message.2.extend_from_slice(&payload);
                if let (MessageKind::Text, false, bytes) = &message
                    && let Err(error) = std::str::from_utf8(bytes)
                    && (error.error_len().is_some() || is_whole && last)
                {
                    return Err(Failure::TextNotUtf8);
                }
                if is_whole && last {
                    let (kind, compressed, bytes) = message;
                    said.push(Said::Message { kind, compressed, bytes });
                } else {
                    open = Some(message);
                }
            }
            _ if !is_whole => {}
            Opcode::Ping => said.push(Said::Ping(payload)),
            Opcode::Pong => said.push(Said::Pong(payload)),
            Opcode::Close => {
                match &payload[..] {
                    [] => said.push(Said::Close(None, String::new())),
                    [_] => return Err(Failure::CloseTooShort),
                    [high, low, reason @ ..] => {
                        let code = u16::from_be_bytes([*high, *low]);
                        if !is_close_code(code) {
                            return Err(Failure::InvalidCloseCode);
                        }
                        let Ok(reason) = std::str::from_utf8(reason) else {
                            return Err(Failure::ReasonNotUtf8);
                        };
                        said.push(Said::Close(Some(code), reason.to_owned()));
                    }
                }
                return Ok(Some(()));
            }
        }
        if !is_whole {
            return Ok(None);
        }
    }
}
