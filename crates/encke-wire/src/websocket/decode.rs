//! Frame decoding (RFC 6455 §5 to §8): bytes of a connection to events, in place.
//!
//! ```text
//!             ┌─────────────────── the frame ends ──────────────────┐
//!             ▼                                                     │
//!   new ──► Head ── whole, and no rule broken ─┬─ data ────► Payload ── Data, in the pieces that arrive
//!             │                                └─ control ─► Control ── Ping, Pong, whole
//!             │                                                │
//!             └── Failure, at the first byte that breaks one   └─ Close ──► Closed: the rest is ignored
//! ```
//!
//! Payloads are unmasked in the caller's buffer and lent from it. The decoder keeps only the kind and size of a message, and
//! for a text the state of the UTF-8 check. Only a control frame split between reads is buffered: at most 125 bytes, in a box
//! that exists until the frame is complete.

use super::{
    COMPRESSED, CONTROL_BYTES_MAX, Failure, LAST, LENGTH_IN_2, MASKED, MessageKind, Opcode, RESERVED,
    is_close_code, mask,
};
use crate::utf8::Utf8;

/// Decodes one direction of a connection.
///
/// A decoder is needed only while a frame or message is incomplete. When [`Decoder::is_at_rest`] returns true, drop it and
/// create a new one for the next bytes. No state is lost.
#[derive(Debug, Default)]
pub struct Decoder {
    phase: FramePhase,
    /// The message that has begun and not ended.
    message: Option<MessageState>,
    /// The payload of a control frame that was split between reads.
    gathered: Option<Box<ControlPayload>>,
}

/// The sender of the frames that a [`Decoder`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSender {
    /// A client: every frame must be masked.
    Client,
    /// A server: no frame may be masked.
    Server,
}

/// The agreement with the peer, and the limits for its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRules {
    /// The sender of the frames.
    pub peer: FrameSender,
    /// Whether permessage-deflate was agreed, so that messages may be compressed.
    pub deflate: bool,
    /// Maximum payload of a data frame in bytes.
    pub frame_bytes_max: u64,
    /// Maximum size of a message in bytes as received, before decompression.
    pub message_bytes_max: u64,
}

/// The result of one call of [`Decoder::feed`].
#[derive(Debug, PartialEq, Eq)]
pub struct FrameStep<'a> {
    /// The decoded event, if any.
    pub event: Option<FrameEvent<'a>>,
    /// Number of input bytes consumed.
    pub used: usize,
}

/// A decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A piece of a message, of arbitrary length. Empty only if it is the last piece.
    Data {
        /// The unmasked bytes. A piece of a text may begin or end within a character; all pieces together are UTF-8.
        payload: &'a [u8],
        /// The kind of the message.
        kind: MessageKind,
        /// Whether the message is compressed. Its text then remains to be checked.
        compressed: bool,
        /// Whether this is the first piece of the message.
        first: bool,
        /// Whether this is the last piece of the message.
        last: bool,
    },
    /// A Ping. The response is a Pong with the same payload.
    Ping(&'a [u8]),
    /// The response to a Ping, or an unsolicited heartbeat.
    Pong(&'a [u8]),
    /// The peer's last frame. Respond with a Close of the same code, unless one was already sent.
    Close {
        /// The close code; `None` if the peer sent none.
        code: Option<u16>,
        /// The reason as text for people.
        reason: &'a str,
    },
}

impl FrameRules {
    /// Rules without extensions, with `message_bytes_max` as the limit of messages and frames.
    #[must_use]
    pub const fn new(peer: FrameSender, message_bytes_max: u64) -> Self {
        Self { peer, deflate: false, frame_bytes_max: message_bytes_max, message_bytes_max }
    }
}

impl Decoder {
    /// Creates a decoder at the first byte after the handshake.
    #[must_use]
    pub const fn new() -> Self {
        Self { phase: FramePhase::HEAD, message: None, gathered: None }
    }

    /// Whether no frame and no message is incomplete.
    #[must_use]
    pub const fn is_at_rest(&self) -> bool {
        matches!(self.phase, FramePhase::Head { count: 0, .. }) && self.message.is_none()
    }

    /// Decodes `input` up to the end of the first frame or piece, and unmasks the decoded part in place. The caller advances by
    /// `used` and calls again until its input is used up. Each call consumes at least one byte.
    ///
    /// # Errors
    /// A [`Failure`] at the first byte that breaks a rule. Respond with a Close with its code, then close the connection. The
    /// decoder must not be used afterwards.
    pub fn feed<'a>(&'a mut self, input: &'a mut [u8], rules: &FrameRules) -> Result<FrameStep<'a>, Failure> {
        let mut used = 0;
        if let FramePhase::Head { bytes, count } = self.phase {
            // The buffered payload was lent until now.
            self.gathered = None;
            used = self.head(bytes, count, input, rules)?;
        }
        let input = &mut input[used..];
        let (event, taken) = match self.phase {
            FramePhase::Head { .. } => (None, 0),
            FramePhase::Payload { left, last, key } => self.payload(left, last, key, input)?,
            FramePhase::Control { opcode, left, key } => self.control(opcode, left, key, input)?,
            FramePhase::Closed => (None, input.len()),
        };
        Ok(FrameStep { event, used: used + taken })
    }

    /// Consumes the available bytes of a head. Begins its frame if the head is complete.
    fn head(
        &mut self,
        mut bytes: [u8; HEAD_BYTES_MAX],
        count: u8,
        input: &[u8],
        rules: &FrameRules,
    ) -> Result<usize, Failure> {
        let before = usize::from(count);
        let more = input.len().min(bytes.len() - before);
        bytes[before..before + more].copy_from_slice(&input[..more]);
        let seen = &bytes[..before + more];
        let open_bytes = self.message.as_ref().map(|message| message.bytes);
        match DecodedHead::read(seen, rules, open_bytes)? {
            Some(head) => {
                self.begin(&head);
                Ok(head.bytes - before)
            }
            None => {
                // Fewer than HEAD_BYTES_MAX, so the cast holds.
                self.phase = FramePhase::Head { bytes, count: seen.len() as u8 };
                Ok(more)
            }
        }
    }

    /// Begins the frame of `head`.
    fn begin(&mut self, head: &DecodedHead) {
        let DecodedHead { opcode, last, compressed, payload_bytes, key, .. } = *head;
        match opcode {
            Opcode::Text => self.message = Some(MessageState::new(MessageKind::Text, compressed)),
            Opcode::Binary => self.message = Some(MessageState::new(MessageKind::Binary, compressed)),
            Opcode::Continuation => {}
            Opcode::Close | Opcode::Ping | Opcode::Pong => {
                // At most CONTROL_BYTES_MAX, so the cast holds.
                self.phase = FramePhase::Control { opcode, left: payload_bytes as u8, key };
                return;
            }
        }
        if let Some(message) = &mut self.message {
            message.bytes += payload_bytes;
        }
        self.phase = FramePhase::Payload { left: payload_bytes, last, key };
    }

    /// Consumes the available bytes of a data frame's payload.
    fn payload<'a>(
        &mut self,
        left: u64,
        last: bool,
        key: [u8; 4],
        input: &'a mut [u8],
    ) -> Result<(Option<FrameEvent<'a>>, usize), Failure> {
        // At most the input's length, so the cast holds.
        let taken = left.min(input.len() as u64) as usize;
        let payload = &mut input[..taken];
        let key = mask::apply(payload, key);
        let left = left - taken as u64;
        self.phase = if left > 0 { FramePhase::Payload { left, last, key } } else { FramePhase::HEAD };

        let message = self.message.as_mut().expect("a data frame begins or continues a message");
        let &mut MessageState { kind, compressed, begun, .. } = message;
        let last = last && left == 0;
        if kind == MessageKind::Text && !compressed {
            message.text.feed(payload).map_err(|_| Failure::TextNotUtf8)?;
            if last && !message.text.is_whole() {
                return Err(Failure::TextNotUtf8);
            }
        }
        if payload.is_empty() && !last {
            return Ok((None, 0));
        }
        message.begun = true;
        if last {
            self.message = None;
        }
        Ok((Some(FrameEvent::Data { payload, kind, compressed, first: !begun, last }), taken))
    }

    /// Consumes the available bytes of a control frame's payload, and lends the payload once it is complete.
    fn control<'a>(
        &'a mut self,
        opcode: Opcode,
        left: u8,
        key: [u8; 4],
        input: &'a mut [u8],
    ) -> Result<(Option<FrameEvent<'a>>, usize), Failure> {
        let taken = usize::from(left).min(input.len());
        let piece = &mut input[..taken];
        let key = mask::apply(piece, key);
        // Not more than `left`, so the cast holds.
        let left = left - taken as u8;
        // A frame whose payload is in this input needs no box, nor does a frame of which only the head has arrived.
        let payload: &[u8] = if taken == 0 || left == 0 && self.gathered.is_none() {
            piece
        } else {
            self.gathered.get_or_insert_default().put(piece)
        };
        if left > 0 {
            self.phase = FramePhase::Control { opcode, left, key };
            return Ok((None, taken));
        }
        self.phase = if opcode == Opcode::Close { FramePhase::Closed } else { FramePhase::HEAD };
        let event = match opcode {
            Opcode::Close => closing(payload)?,
            Opcode::Ping => FrameEvent::Ping(payload),
            _ => FrameEvent::Pong(payload),
        };
        Ok((Some(event), taken))
    }
}

/// The part of the stream to which the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum FramePhase {
    /// A frame's head, of which `count` bytes have arrived.
    Head { bytes: [u8; HEAD_BYTES_MAX], count: u8 },
    /// The payload of a data frame with `left` bytes missing. The key is rotated to the next byte.
    Payload { left: u64, last: bool, key: [u8; 4] },
    /// The payload of a control frame with `left` bytes missing.
    Control { opcode: Opcode, left: u8, key: [u8; 4] },
    /// None: the peer has sent its Close.
    Closed,
}

impl FramePhase {
    const HEAD: Self = Self::Head { bytes: [0; HEAD_BYTES_MAX], count: 0 };
}

impl Default for FramePhase {
    fn default() -> Self {
        Self::HEAD
    }
}

/// The state of an incomplete message.
#[derive(Debug)]
struct MessageState {
    /// Payload bytes announced by its frames so far.
    bytes: u64,
    kind: MessageKind,
    compressed: bool,
    /// Whether a piece was already delivered.
    begun: bool,
    /// The UTF-8 check of an uncompressed text.
    text: Utf8,
}

impl MessageState {
    const fn new(kind: MessageKind, compressed: bool) -> Self {
        Self { bytes: 0, kind, compressed, begun: false, text: Utf8::new() }
    }
}

/// The payload of a control frame, as far as received.
#[derive(Debug)]
struct ControlPayload {
    bytes: [u8; CONTROL_BYTES_MAX],
    count: u8,
}

impl Default for ControlPayload {
    fn default() -> Self {
        Self { bytes: [0; CONTROL_BYTES_MAX], count: 0 }
    }
}

impl ControlPayload {
    /// Appends a piece and returns the whole payload so far. The frame's length was checked, so the piece fits.
    fn put(&mut self, piece: &[u8]) -> &[u8] {
        let start = usize::from(self.count);
        let end = start + piece.len();
        self.bytes[start..end].copy_from_slice(piece);
        // At most CONTROL_BYTES_MAX, so the cast holds.
        self.count = end as u8;
        &self.bytes[..end]
    }
}

/// The head of a frame.
struct DecodedHead {
    opcode: Opcode,
    last: bool,
    compressed: bool,
    payload_bytes: u64,
    /// Zero if the frame is not masked. Masking with zero changes nothing.
    key: [u8; 4],
    /// Length of the head itself in bytes.
    bytes: usize,
}

impl DecodedHead {
    /// Parses a head from the bytes `seen` so far. `open_bytes` is the size so far of the open message, if any. `None` if no
    /// rule is broken yet but more bytes are needed.
    fn read(seen: &[u8], rules: &FrameRules, open_bytes: Option<u64>) -> Result<Option<Self>, Failure> {
        let [first, rest @ ..] = seen else { return Ok(None) };
        let (last, compressed) = (first & LAST != 0, first & COMPRESSED != 0);
        let opcode = Opcode::of(first & 0x0f).ok_or(Failure::ReservedOpcode)?;
        let begins = matches!(opcode, Opcode::Text | Opcode::Binary);
        // Only the first frame of a message marks it as compressed (RFC 7692 §6.1).
        if first & RESERVED != 0 || compressed && !(rules.deflate && begins) {
            return Err(Failure::ReservedBits);
        }
        if opcode.is_control() && !last {
            return Err(Failure::ControlInPieces);
        }
        if opcode == Opcode::Continuation && open_bytes.is_none() {
            return Err(Failure::NothingToContinue);
        }
        if begins && open_bytes.is_some() {
            return Err(Failure::MessageWithinMessage);
        }

        let [second, rest @ ..] = rest else { return Ok(None) };
        let masked = second & MASKED != 0;
        match rules.peer {
            FrameSender::Client if !masked => return Err(Failure::Unmasked),
            FrameSender::Server if masked => return Err(Failure::Masked),
            FrameSender::Client | FrameSender::Server => {}
        }
        let length = second & !MASKED;
        if opcode.is_control() && usize::from(length) > CONTROL_BYTES_MAX {
            return Err(Failure::ControlTooLong);
        }
        let Some((payload_bytes, rest)) = payload_bytes(length, rest)? else { return Ok(None) };
        if !opcode.is_control() {
            if payload_bytes > rules.frame_bytes_max {
                return Err(Failure::FrameTooLarge);
            }
            if payload_bytes > rules.message_bytes_max.saturating_sub(open_bytes.unwrap_or(0)) {
                return Err(Failure::MessageTooLarge);
            }
        }

        let (key, rest) = if masked {
            let Some((key, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (*key, rest)
        } else {
            ([0; 4], rest)
        };
        let bytes = seen.len() - rest.len();
        Ok(Some(Self { opcode, last, compressed, payload_bytes, key, bytes }))
    }
}

/// Reads the payload length whose seven-bit field is `length`. Returns it with the remaining input, or `None` if bytes are
/// missing.
fn payload_bytes(length: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Failure> {
    if length < LENGTH_IN_2 {
        return Ok(Some((u64::from(length), rest)));
    }
    let (bytes, shortest, rest) = if length == LENGTH_IN_2 {
        let Some((bytes, rest)) = rest.split_first_chunk() else { return Ok(None) };
        (u64::from(u16::from_be_bytes(*bytes)), u64::from(LENGTH_IN_2), rest)
    } else {
        let Some((bytes, rest)) = rest.split_first_chunk() else { return Ok(None) };
        (u64::from_be_bytes(*bytes), u64::from(u16::MAX) + 1, rest)
    };
    if bytes < shortest {
        return Err(Failure::LengthNotMinimal);
    }
    if bytes > i64::MAX as u64 {
        return Err(Failure::LengthOverflow);
    }
    Ok(Some((bytes, rest)))
}

/// Parses the payload of a Close (RFC 6455 §5.5.1).
fn closing(payload: &[u8]) -> Result<FrameEvent<'_>, Failure> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        let nothing = FrameEvent::Close { code: None, reason: "" };
        return if payload.is_empty() { Ok(nothing) } else { Err(Failure::CloseTooShort) };
    };
    let code = u16::from_be_bytes(*code);
    if !is_close_code(code) {
        return Err(Failure::InvalidCloseCode);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Failure::ReasonNotUtf8)?;
    Ok(FrameEvent::Close { code: Some(code), reason })
}

/// Two bytes, an eight-byte length, a key.
const HEAD_BYTES_MAX: usize = 2 + 8 + 4;

// 16 bytes for the phase (a head and its count, or a length, a key and flags), 16 for the message, 8 for the box.
const _: () = assert!(size_of::<Decoder>() == 40, "a connection with a partial message holds one");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::{Random, splits};
    use crate::websocket::{frame_head, put_close, put_frame, put_masked};

    /// The contents of a stream: each message whole, at the position of its end.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Said {
        Message(MessageKind, Vec<u8>),
        Ping(Vec<u8>),
        Pong(Vec<u8>),
        Close(Option<u16>, String),
    }

    /// The decoded contents, and whether the stream ends at rest; or the failure after them.
    type Heard = (Vec<Said>, Result<bool, Failure>);

    fn hear_pieces(pieces: &[&[u8]], rules: &FrameRules) -> Heard {
        let (mut decoder, mut said, mut message) = (Decoder::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut piece = piece.to_vec();
            let mut at = 0;
            while at < piece.len() {
                if decoder.is_at_rest() {
                    assert!(message.is_empty(), "what is at rest has handed out all of its message");
                    decoder = Decoder::new();
                }
                let FrameStep { event, used } = match decoder.feed(&mut piece[at..], rules) {
                    Ok(step) => step,
                    Err(failure) => return (said, Err(failure)),
                };
                assert!(used > 0, "each call uses some of its input");
                at += used;
                match event {
                    None => {}
                    Some(FrameEvent::Data { payload, kind, compressed, first, last }) => {
                        assert!(last || !payload.is_empty(), "a piece is empty only if it is the last");
                        assert_eq!(first, message.is_empty());
                        assert!(!compressed || rules.deflate);
                        message.extend_from_slice(payload);
                        if last {
                            said.push(Said::Message(kind, std::mem::take(&mut message)));
                        }
                    }
                    Some(FrameEvent::Ping(payload)) => said.push(Said::Ping(payload.to_vec())),
                    Some(FrameEvent::Pong(payload)) => said.push(Said::Pong(payload.to_vec())),
                    Some(FrameEvent::Close { code, reason }) => {
                        said.push(Said::Close(code, reason.to_owned()));
                    }
                }
            }
        }
        (said, Ok(decoder.is_at_rest()))
    }

    /// Decodes the stream in every possible split, with equal results.
    fn hear(stream: &[u8], rules: &FrameRules) -> Heard {
        let whole = hear_pieces(&[stream], rules);
        for pieces in splits(stream) {
            assert_eq!(hear_pieces(&pieces, rules), whole, "{} in {pieces:?}", stream.escape_ascii());
        }
        whole
    }

    const CLIENT: FrameRules = FrameRules::new(FrameSender::Client, 1_000_000);
    const SERVER: FrameRules = FrameRules::new(FrameSender::Server, 1_000_000);

    /// A stream of a client's frames, each given by its first byte and its payload.
    fn client(frames: &[(u8, &[u8])]) -> Vec<u8> {
        let mut stream = Vec::new();
        for (index, &(first, payload)) in frames.iter().enumerate() {
            let start = stream.len();
            put_masked(&mut stream, Opcode::Binary, payload, [1, 2, 3, index as u8]);
            stream[start] = first;
        }
        stream
    }

    /// The decoded contents of a client's frames, which must not fail and must end with a frame.
    fn said(frames: &[(u8, &[u8])]) -> Vec<Said> {
        let (said, end) = hear(&client(frames), &CLIENT);
        assert!(end.is_ok(), "{end:?}");
        said
    }

    fn failure(frames: &[(u8, &[u8])]) -> Failure {
        hear(&client(frames), &CLIENT).1.expect_err("a rule is broken")
    }

    fn text(text: &str) -> Said {
        Said::Message(MessageKind::Text, text.into())
    }

    #[test]
    fn messages_come_whole_in_pieces_and_empty() {
        assert_eq!(said(&[(0x81, b"Hello")]), [text("Hello")]);
        assert_eq!(said(&[(0x01, b"Hel"), (0x80, b"lo")]), [text("Hello")]);
        assert_eq!(said(&[(0x82, b"\xff\x00")]), [Said::Message(MessageKind::Binary, vec![0xff, 0])]);
        assert_eq!(said(&[(0x81, b""), (0x82, b"")]), [text(""), Said::Message(MessageKind::Binary, vec![])]);
        assert_eq!(said(&[(0x01, b""), (0x00, b""), (0x00, b"a"), (0x80, b"")]), [text("a")]);
        assert_eq!(said(&[(0x01, b""), (0x80, b"")]), [text("")]);
        let long = [b'x'; 300];
        assert_eq!(said(&[(0x82, &long)]), [Said::Message(MessageKind::Binary, long.to_vec())]);
    }

    #[test]
    fn lengths_in_three_forms_are_read() {
        for bytes in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            let payload = vec![b'a'; bytes];
            let mut stream = client(&[(0x82, &payload)]);
            let whole = vec![Said::Message(MessageKind::Binary, payload)];
            for cut in [0, 1, 2, 3, 5, 9, 10, 11, 13, 14, 15, stream.len() / 2, stream.len()] {
                let (one, two) = stream.split_at(cut.min(stream.len()));
                assert_eq!(hear_pieces(&[one, two], &CLIENT), (whole.clone(), Ok(true)), "{bytes} at {cut}");
            }
            stream.pop();
            assert_eq!(hear_pieces(&[&stream], &CLIENT), (vec![], Ok(false)), "{bytes}");
        }
    }

    #[test]
    fn control_frames_stand_between_the_frames_of_a_message() {
        let ping = [b'p'; 125];
        let frames: &[(u8, &[u8])] = &[(0x01, b"a"), (0x89, &ping), (0x00, b"b"), (0x8a, b""), (0x80, b"c")];
        let expected = [Said::Ping(ping.to_vec()), Said::Pong(vec![]), text("abc")];
        assert_eq!(said(frames), expected);
    }

    #[test]
    fn a_close_says_why_and_ends_everything() {
        let close = |payload: &[u8]| said(&[(0x88, payload), (0x81, b"not heard"), (0xff, b"nor this")]);
        assert_eq!(close(b""), [Said::Close(None, "".into())]);
        assert_eq!(close(b"\x03\xe8"), [Said::Close(Some(1000), "".into())]);
        assert_eq!(close(b"\x0f\xa0\xc3\xa4"), [Said::Close(Some(4000), "ä".into())]);
    }

    #[test]
    fn what_is_closed_is_not_at_rest() {
        let (_, end) = hear(&client(&[(0x88, b"\x03\xe8bye")]), &CLIENT);
        assert_eq!(end, Ok(false), "or what follows would be read by a new decoder");
    }

    /// Asserts that `stream` fails at its last byte, in every split, and not before.
    fn assert_fails_at_its_end(stream: &[u8], rules: &FrameRules, failure: Failure) {
        let (_, end) = hear(stream, rules);
        assert_eq!(end, Err(failure), "{}", stream.escape_ascii());
        let (_, end) = hear(&stream[..stream.len() - 1], rules);
        assert_eq!(end, Ok(stream.len() == 1), "one byte less: {}", stream.escape_ascii());
    }

    #[test]
    fn a_broken_rule_fails_at_the_byte_that_breaks_it() {
        use Failure as F;
        let mut cases: Vec<(Vec<u8>, Failure)> = vec![];
        for first in 0..=0xff {
            let opcode = first & 0x0f;
            if matches!(opcode, 0x3..=0x7 | 0xb..=0xf) {
                cases.push((vec![first], F::ReservedOpcode));
            } else if first & 0x70 != 0 {
                cases.push((vec![first], F::ReservedBits));
            } else if opcode >= 0x8 && first < 0x80 {
                cases.push((vec![first], F::ControlInPieces));
            } else if opcode == 0 {
                cases.push((vec![first], F::NothingToContinue));
            }
        }
        for begins in [0x01, 0x02, 0x81, 0x82] {
            let mut stream = client(&[(0x01, b"open"), (0x89, b"")]);
            stream.push(begins);
            cases.push((stream, F::MessageWithinMessage));
        }
        for (head, failure) in [
            (&b"\x81\x00"[..], F::Unmasked),
            (b"\x82\x7e", F::Unmasked),
            (b"\x89\x05", F::Unmasked),
            (b"\x88\xfe", F::ControlTooLong),
            (b"\x89\xfe", F::ControlTooLong),
            (b"\x8a\xff", F::ControlTooLong),
            (b"\x81\xfe\x00\x00", F::LengthNotMinimal),
            (b"\x82\xfe\x00\x7d", F::LengthNotMinimal),
            (b"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x00", F::LengthNotMinimal),
            (b"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x7d", F::LengthNotMinimal),
            (b"\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff", F::LengthNotMinimal),
            (b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00", F::LengthOverflow),
            (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff", F::LengthOverflow),
            (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", F::FrameTooLarge),
            (b"\x81\xff\x00\x00\x00\x00\x00\x0f\x42\x41", F::FrameTooLarge),
        ] {
            cases.push((head.to_vec(), failure));
        }
        for (code, failure) in [
            (&[0x03][..], F::CloseTooShort),
            (&[0x00, 0x00], F::InvalidCloseCode),
            (&[0x03, 0xe7], F::InvalidCloseCode),
            (&[0x03, 0xed], F::InvalidCloseCode),
            (&[0xff, 0xff], F::InvalidCloseCode),
            (b"\x03\xe8\xff", F::ReasonNotUtf8),
            (b"\x03\xe8\xe6\x97", F::ReasonNotUtf8),
        ] {
            cases.push((client(&[(0x88, code)]), failure));
        }
        for (stream, failure) in cases {
            assert_fails_at_its_end(&stream, &CLIENT, failure);
        }
    }

    #[test]
    fn text_fails_at_the_first_byte_that_cannot_be_within_frames_and_across_them() {
        for (frames, at) in [
            // 1,000 bytes are announced, and the error is near the start.
            (&[(0x81, &[&b"ab\xff"[..], &[b'c'; 997]].concat()[..])][..], 3),
            (&[(0x01, &[&b"\xe6\x97a"[..], &[b'c'; 300]].concat()[..])], 3),
            (&[(0x01, b"\xf4"), (0x00, &[&b"\x90"[..], &[b'c'; 300]].concat())], 1),
            (&[(0x01, b"\xe6\x97"), (0x89, b"\xff"), (0x80, b"\xa5\xc0")], 2),
        ] {
            let mut stream = client(frames);
            let (_, last) = frames.last().expect("there is one");
            stream.truncate(stream.len() - last.len() + at);
            assert_fails_at_its_end(&stream, &CLIENT, Failure::TextNotUtf8);
        }
    }

    #[test]
    fn a_text_ends_with_a_whole_character_but_its_frames_need_not() {
        assert_eq!(said(&[(0x01, b"\xe6"), (0x00, b"\x97"), (0x80, b"\xa5")]), [text("日")]);
        assert_eq!(failure(&[(0x81, b"\xe6\x97")]), Failure::TextNotUtf8);
        assert_eq!(failure(&[(0x01, b"\xe6\x97"), (0x80, b"")]), Failure::TextNotUtf8);
        let next = said(&[(0x82, b"\xe6\x97"), (0x81, b"a")]);
        assert_eq!(
            next,
            [Said::Message(MessageKind::Binary, vec![0xe6, 0x97]), text("a")],
            "bytes may be anything"
        );
    }

    #[test]
    fn a_message_is_too_large_as_soon_as_its_frames_have_announced_it() {
        let rules = FrameRules { frame_bytes_max: 6, message_bytes_max: 10, ..CLIENT };
        assert_fails_at_its_end(b"\x82\x87", &rules, Failure::FrameTooLarge);
        let mut stream = client(&[(0x02, b"123456"), (0x00, b""), (0x89, b"control frames do not count")]);
        stream.extend_from_slice(b"\x80\x85");
        assert_fails_at_its_end(&stream, &rules, Failure::MessageTooLarge);
        let stream = client(&[(0x02, b"123456"), (0x80, b"7890"), (0x82, b"again")]);
        assert_eq!(hear(&stream, &rules).0.len(), 2, "a limit is what may be, and each message has it anew");
    }

    #[test]
    fn a_giant_within_the_limits_is_handed_out_as_it_comes() {
        let rules = FrameRules::new(FrameSender::Client, u64::MAX);
        let mut decoder = Decoder::new();
        let step = decoder
            .feed(&mut b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_owned(), &rules)
            .map(|step| step.used);
        assert_eq!(step, Ok(14));
        for round in 0..3 {
            let mut piece = [b'x'; 4096];
            let step = decoder.feed(&mut piece, &rules).expect("valid");
            let Some(FrameEvent::Data { payload, first, last: false, .. }) = step.event else {
                panic!("{step:?}")
            };
            assert_eq!((payload.len(), first, step.used), (4096, round == 0, 4096));
        }
    }

    #[test]
    fn a_server_must_not_mask() {
        let mut stream = Vec::new();
        put_frame(&mut stream, Opcode::Text, "häßlich".as_bytes());
        put_frame(&mut stream, Opcode::Ping, b"?");
        stream.extend_from_slice(frame_head(Opcode::Binary, 1).unfinished().as_bytes());
        stream.push(1);
        put_frame(&mut stream, Opcode::Continuation, &[2]);
        put_close(&mut stream, 1001, "gone");
        let (said, end) = hear(&stream, &SERVER);
        let message = Said::Message(MessageKind::Binary, vec![1, 2]);
        let expected =
            [text("häßlich"), Said::Ping(b"?".to_vec()), message, Said::Close(Some(1001), "gone".into())];
        assert_eq!((&said[..], end), (&expected[..], Ok(false)));
        assert_fails_at_its_end(b"\x81\x80", &SERVER, Failure::Masked);
    }

    #[test]
    fn compressed_messages_are_handed_out_unchecked_if_that_was_agreed() {
        let rules = FrameRules { deflate: true, ..CLIENT };
        let stream = client(&[(0x41, b"\xff"), (0x80, b"\xfe"), (0xc2, b"\x00"), (0x81, b"a")]);
        let bytes = |kind, bytes: &[u8]| Said::Message(kind, bytes.to_vec());
        let expected =
            vec![bytes(MessageKind::Text, b"\xff\xfe"), bytes(MessageKind::Binary, b"\x00"), text("a")];
        assert_eq!(hear(&stream, &rules), (expected, Ok(true)));
        for first in [0xc8, 0xc9, 0xca, 0x40, 0xc0, 0xe1, 0xd1] {
            assert_fails_at_its_end(&[first], &rules, Failure::ReservedBits);
        }
        let mut stream = client(&[(0x41, b"a")]);
        stream.push(0xc0);
        assert_fails_at_its_end(&stream, &rules, Failure::ReservedBits);
    }

    #[test]
    fn only_a_control_frame_that_is_cut_is_gathered() {
        let mut stream = client(&[(0x89, b"whole"), (0x89, b"cut")]);
        let cut = stream.len() - 1;
        let (one, two) = stream.split_at_mut(cut);
        let (whole, begun) = one.split_at_mut(11);
        let mut decoder = Decoder::new();
        assert_eq!(decoder.feed(whole, &CLIENT).expect("valid").event, Some(FrameEvent::Ping(b"whole")));
        assert!(decoder.gathered.is_none());
        let (head, begun) = begun.split_at_mut(6);
        assert_eq!(decoder.feed(head, &CLIENT).expect("valid"), FrameStep { event: None, used: 6 });
        assert!(decoder.gathered.is_none(), "a head alone is kept in place");
        assert_eq!(decoder.feed(begun, &CLIENT).expect("valid"), FrameStep { event: None, used: 2 });
        assert!(decoder.gathered.is_some());
        assert_eq!(decoder.feed(two, &CLIENT).expect("valid").event, Some(FrameEvent::Ping(b"cut")));
        assert!(decoder.is_at_rest(), "what was lent may go with the decoder");
        decoder.feed(&mut [], &CLIENT).expect("nothing is no fault");
        assert!(decoder.gathered.is_none());
    }

    #[test]
    fn random_streams_are_heard_as_they_were_said_in_any_pieces() {
        const SEED: u64 = 0x6465_636f_6465;
        let mut random = Random::new(SEED);
        for round in 0..300 {
            let (mut stream, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..random.below(6) {
                let payload: Vec<u8> = (0..random.below(400)).map(|_| random.byte()).collect();
                let mut left = &payload[..];
                let mut opcode = Opcode::Binary;
                loop {
                    let (now, rest) = left.split_at(random.below(left.len() + 1));
                    let (now, rest, last) =
                        if random.below(3) == 0 { (left, &[][..], true) } else { (now, rest, false) };
                    let start = stream.len();
                    put_masked(&mut stream, opcode, now, (random.next() as u32).to_ne_bytes());
                    stream[start] = if last { 0x80 } else { 0 } | opcode as u8;
                    if last {
                        break;
                    }
                    (left, opcode) = (rest, Opcode::Continuation);
                    if random.below(3) == 0 {
                        put_masked(&mut stream, Opcode::Ping, b"ping", [9; 4]);
                        expected.push(Said::Ping(b"ping".to_vec()));
                    }
                }
                expected.push(Said::Message(MessageKind::Binary, payload));
            }
            let (mut pieces, mut rest) = (Vec::new(), &stream[..]);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + random.below(rest.len().min(50)));
                pieces.push(piece);
                rest = after;
            }
            assert_eq!(hear_pieces(&pieces, &CLIENT), (expected, Ok(true)), "seed {SEED:#x}, round {round}");
        }
    }
}
