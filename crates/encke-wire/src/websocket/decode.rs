//! Frames in (RFC 6455 §5 to §8): bytes of a connection to events, where they lie.
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
//! Payloads are unmasked in the caller's buffer and lent out of it; of a message nothing is kept but its kind and
//! size and, of a text, where its check stands. Only a Ping, Pong or Close that a read has cut is gathered: at
//! most 125 bytes, in a box for as long as that takes.

use super::{
    COMPRESSED, CONTROL_BYTES_MAX, Failure, Kind, LAST, LENGTH_IN_2, MASKED, Opcode, RESERVED, is_close_code,
    mask,
};
use crate::utf8::Utf8;

/// Takes one direction of a connection apart.
///
/// It is needed only while a frame or a message is partial: when [`Decoder::is_at_rest`], drop it and begin with a
/// new one when there are bytes again. Nothing is lost by that.
#[derive(Debug, Default)]
pub struct Decoder {
    phase: Phase,
    /// The message that has begun and not ended.
    message: Option<Message>,
    /// The payload of a control frame that a read has cut.
    gathered: Option<Box<Gathered>>,
}

/// Who sends what a [`Decoder`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client: every frame must be masked.
    Client,
    /// A server: no frame may be.
    Server,
}

/// What was agreed with the peer, and what it may make us take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who the peer is.
    pub peer: Peer,
    /// Whether permessage-deflate was agreed, so that a message may be compressed.
    pub deflate: bool,
    /// Most bytes of a data frame.
    pub frame_bytes_max: u64,
    /// Most bytes of a message, as they travel: what a compressed one becomes is not counted here.
    pub message_bytes_max: u64,
}

/// One step over the input.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// What was found, if anything.
    pub event: Option<Event<'a>>,
    /// How much of the input is dealt with.
    pub used: usize,
}

/// What the peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of a message, as long as it happened to be. It is empty only if it is the last.
    Data {
        /// Unmasked. A piece of a text may begin or end within a character; all of them together are UTF-8.
        payload: &'a [u8],
        /// What the message is.
        kind: Kind,
        /// Whether it is compressed. Then its text is still to be checked.
        compressed: bool,
        /// Whether the message begins here.
        first: bool,
        /// Whether the message ends here.
        last: bool,
    },
    /// To be answered by a Pong with this payload.
    Ping(&'a [u8]),
    /// The answer to a Ping, or nothing but a sign of life.
    Pong(&'a [u8]),
    /// The peer sends nothing after this. To be answered by a Close with the same code, if we have sent none.
    Close {
        /// Why; `None` if the peer does not say.
        code: Option<u16>,
        /// Why, for people.
        reason: &'a str,
    },
}

impl Rules {
    /// No extension; messages and frames of at most `message_bytes_max`.
    #[must_use]
    pub const fn new(peer: Peer, message_bytes_max: u64) -> Self {
        Self { peer, deflate: false, frame_bytes_max: message_bytes_max, message_bytes_max }
    }
}

impl Decoder {
    /// At the first byte after the handshake.
    #[must_use]
    pub const fn new() -> Self {
        Self { phase: Phase::HEAD, message: None, gathered: None }
    }

    /// Whether nothing is partial: the last frame has ended, and so has its message.
    #[must_use]
    pub const fn is_at_rest(&self) -> bool {
        matches!(self.phase, Phase::Head { count: 0, .. }) && self.message.is_none()
    }

    /// Looks at `input` up to the end of the first frame or piece in it, and unmasks what it looks at. The caller
    /// moves on by `used` and calls again until its input is used up; each call uses some of it.
    ///
    /// # Errors
    /// A [`Failure`] at the first byte that breaks a rule: answer with a Close of its code, then close. The
    /// decoder is of no use afterwards.
    pub fn feed<'a>(&'a mut self, input: &'a mut [u8], rules: &Rules) -> Result<Step<'a>, Failure> {
        let mut used = 0;
        if let Phase::Head { bytes, count } = self.phase {
            // What was gathered was lent until now.
            self.gathered = None;
            used = self.head(bytes, count, input, rules)?;
        }
        let input = &mut input[used..];
        let (event, taken) = match self.phase {
            Phase::Head { .. } => (None, 0),
            Phase::Payload { left, last, key } => self.payload(left, last, key, input)?,
            Phase::Control { opcode, left, key } => self.control(opcode, left, key, input)?,
            Phase::Closed => (None, input.len()),
        };
        Ok(Step { event, used: used + taken })
    }

    /// Takes what there is of a head, and begins its frame if it is whole.
    fn head(
        &mut self,
        mut bytes: [u8; HEAD_BYTES_MAX],
        count: u8,
        input: &[u8],
        rules: &Rules,
    ) -> Result<usize, Failure> {
        let before = usize::from(count);
        let more = input.len().min(bytes.len() - before);
        bytes[before..before + more].copy_from_slice(&input[..more]);
        let seen = &bytes[..before + more];
        let open_bytes = self.message.as_ref().map(|message| message.bytes);
        match Head::read(seen, rules, open_bytes)? {
            Some(head) => {
                self.begin(&head);
                Ok(head.bytes - before)
            }
            None => {
                // Fewer than HEAD_BYTES_MAX, so the cast holds.
                self.phase = Phase::Head { bytes, count: seen.len() as u8 };
                Ok(more)
            }
        }
    }

    /// Begins the frame of `head`.
    fn begin(&mut self, head: &Head) {
        let Head { opcode, last, compressed, payload_bytes, key, .. } = *head;
        match opcode {
            Opcode::Text => self.message = Some(Message::new(Kind::Text, compressed)),
            Opcode::Binary => self.message = Some(Message::new(Kind::Binary, compressed)),
            Opcode::Continuation => {}
            Opcode::Close | Opcode::Ping | Opcode::Pong => {
                // At most CONTROL_BYTES_MAX, so the cast holds.
                self.phase = Phase::Control { opcode, left: payload_bytes as u8, key };
                return;
            }
        }
        if let Some(message) = &mut self.message {
            message.bytes += payload_bytes;
        }
        self.phase = Phase::Payload { left: payload_bytes, last, key };
    }

    /// Takes what there is of a data frame's payload.
    fn payload<'a>(
        &mut self,
        left: u64,
        last: bool,
        key: [u8; 4],
        input: &'a mut [u8],
    ) -> Result<(Option<Event<'a>>, usize), Failure> {
        // At most the input's length, so the cast holds.
        let taken = left.min(input.len() as u64) as usize;
        let payload = &mut input[..taken];
        let key = mask::apply(payload, key);
        let left = left - taken as u64;
        self.phase = if left > 0 { Phase::Payload { left, last, key } } else { Phase::HEAD };

        let message = self.message.as_mut().expect("a data frame begins or continues a message");
        let &mut Message { kind, compressed, begun, .. } = message;
        let last = last && left == 0;
        if kind == Kind::Text && !compressed {
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
        Ok((Some(Event::Data { payload, kind, compressed, first: !begun, last }), taken))
    }

    /// Takes what there is of a control frame's payload, and lends it when it is whole.
    fn control<'a>(
        &'a mut self,
        opcode: Opcode,
        left: u8,
        key: [u8; 4],
        input: &'a mut [u8],
    ) -> Result<(Option<Event<'a>>, usize), Failure> {
        let taken = usize::from(left).min(input.len());
        let piece = &mut input[..taken];
        let key = mask::apply(piece, key);
        // Not more than `left`, so the cast holds.
        let left = left - taken as u8;
        // A frame that lies here whole needs no box, nor does one of which only the head has come.
        let payload: &[u8] = if taken == 0 || left == 0 && self.gathered.is_none() {
            piece
        } else {
            self.gathered.get_or_insert_default().put(piece)
        };
        if left > 0 {
            self.phase = Phase::Control { opcode, left, key };
            return Ok((None, taken));
        }
        self.phase = if opcode == Opcode::Close { Phase::Closed } else { Phase::HEAD };
        let event = match opcode {
            Opcode::Close => closing(payload)?,
            Opcode::Ping => Event::Ping(payload),
            _ => Event::Pong(payload),
        };
        Ok((Some(event), taken))
    }
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// To a frame's head, of which `count` bytes have come.
    Head { bytes: [u8; HEAD_BYTES_MAX], count: u8 },
    /// To the payload of a data frame, of which `left` are to come. The key is turned to the next byte.
    Payload { left: u64, last: bool, key: [u8; 4] },
    /// The same of a Close, Ping or Pong.
    Control { opcode: Opcode, left: u8, key: [u8; 4] },
    /// To nothing: the peer has sent its Close.
    Closed,
}

impl Phase {
    const HEAD: Self = Self::Head { bytes: [0; HEAD_BYTES_MAX], count: 0 };
}

impl Default for Phase {
    fn default() -> Self {
        Self::HEAD
    }
}

/// What is known of a message until it ends.
#[derive(Debug)]
struct Message {
    /// What its frames have announced so far.
    bytes: u64,
    kind: Kind,
    compressed: bool,
    /// Whether a piece of it was handed out.
    begun: bool,
    /// The check of a text that is not compressed.
    text: Utf8,
}

impl Message {
    const fn new(kind: Kind, compressed: bool) -> Self {
        Self { bytes: 0, kind, compressed, begun: false, text: Utf8::new() }
    }
}

/// The payload of a control frame, as far as it has come.
#[derive(Debug)]
struct Gathered {
    bytes: [u8; CONTROL_BYTES_MAX],
    count: u8,
}

impl Default for Gathered {
    fn default() -> Self {
        Self { bytes: [0; CONTROL_BYTES_MAX], count: 0 }
    }
}

impl Gathered {
    /// Adds a piece, and yields all there is. The frame's length was checked: it fits.
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
struct Head {
    opcode: Opcode,
    last: bool,
    compressed: bool,
    payload_bytes: u64,
    /// All zero if the frame is not masked, which changes nothing.
    key: [u8; 4],
    /// How many bytes the head itself has.
    bytes: usize,
}

impl Head {
    /// Reads a head of which `seen` has come, while a message of `open_bytes` so far is open or none is. `None`: no
    /// fault so far, but more is needed.
    fn read(seen: &[u8], rules: &Rules, open_bytes: Option<u64>) -> Result<Option<Self>, Failure> {
        let [first, rest @ ..] = seen else { return Ok(None) };
        let (last, compressed) = (first & LAST != 0, first & COMPRESSED != 0);
        let opcode = Opcode::of(first & 0x0f).ok_or(Failure::ReservedOpcode)?;
        let begins = matches!(opcode, Opcode::Text | Opcode::Binary);
        // Only the first frame of a message says that it is compressed (RFC 7692 §6.1).
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
            Peer::Client if !masked => return Err(Failure::Unmasked),
            Peer::Server if masked => return Err(Failure::Masked),
            Peer::Client | Peer::Server => {}
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

/// How long a payload is whose seven bits say `length`, and what follows; `None`: not all of it has come.
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

/// What the payload of a Close says (RFC 6455 §5.5.1).
fn closing(payload: &[u8]) -> Result<Event<'_>, Failure> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        let nothing = Event::Close { code: None, reason: "" };
        return if payload.is_empty() { Ok(nothing) } else { Err(Failure::CloseTooShort) };
    };
    let code = u16::from_be_bytes(*code);
    if !is_close_code(code) {
        return Err(Failure::InvalidCloseCode);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Failure::ReasonNotUtf8)?;
    Ok(Event::Close { code: Some(code), reason })
}

/// Two bytes, a length in eight, a key.
const HEAD_BYTES_MAX: usize = 2 + 8 + 4;

// The phase 16 (a head and its count; or a length, a key, flags), the message 16, the box 8.
const _: () = assert!(size_of::<Decoder>() == 40, "a connection with a partial message holds one");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::testing::{Random, splits};
    use crate::websocket::{frame_head, put_close, put_frame, put_masked};

    /// What a stream says: messages whole, at the place where they end.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Said {
        Message(Kind, Vec<u8>),
        Ping(Vec<u8>),
        Pong(Vec<u8>),
        Close(Option<u16>, String),
    }

    /// What was said, and whether the stream ends at rest; or the failure after what was said.
    type Heard = (Vec<Said>, Result<bool, Failure>);

    fn hear_pieces(pieces: &[&[u8]], rules: &Rules) -> Heard {
        let (mut decoder, mut said, mut message) = (Decoder::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut piece = piece.to_vec();
            let mut at = 0;
            while at < piece.len() {
                if decoder.is_at_rest() {
                    assert!(message.is_empty(), "what is at rest has handed out all of its message");
                    decoder = Decoder::new();
                }
                let Step { event, used } = match decoder.feed(&mut piece[at..], rules) {
                    Ok(step) => step,
                    Err(failure) => return (said, Err(failure)),
                };
                assert!(used > 0, "each call uses some of its input");
                at += used;
                match event {
                    None => {}
                    Some(Event::Data { payload, kind, compressed, first, last }) => {
                        assert!(last || !payload.is_empty(), "a piece is empty only if it is the last");
                        assert_eq!(first, message.is_empty());
                        assert!(!compressed || rules.deflate);
                        message.extend_from_slice(payload);
                        if last {
                            said.push(Said::Message(kind, std::mem::take(&mut message)));
                        }
                    }
                    Some(Event::Ping(payload)) => said.push(Said::Ping(payload.to_vec())),
                    Some(Event::Pong(payload)) => said.push(Said::Pong(payload.to_vec())),
                    Some(Event::Close { code, reason }) => said.push(Said::Close(code, reason.to_owned())),
                }
            }
        }
        (said, Ok(decoder.is_at_rest()))
    }

    /// The same in every way to cut the stream.
    fn hear(stream: &[u8], rules: &Rules) -> Heard {
        let whole = hear_pieces(&[stream], rules);
        for pieces in splits(stream) {
            assert_eq!(hear_pieces(&pieces, rules), whole, "{} in {pieces:?}", stream.escape_ascii());
        }
        whole
    }

    const CLIENT: Rules = Rules::new(Peer::Client, 1_000_000);
    const SERVER: Rules = Rules::new(Peer::Server, 1_000_000);

    /// A stream of a client's frames: first byte and payload of each.
    fn client(frames: &[(u8, &[u8])]) -> Vec<u8> {
        let mut stream = Vec::new();
        for (index, &(first, payload)) in frames.iter().enumerate() {
            let start = stream.len();
            put_masked(&mut stream, Opcode::Binary, payload, [1, 2, 3, index as u8]);
            stream[start] = first;
        }
        stream
    }

    /// What of a client's frames is said, without a failure and to the end of a frame.
    fn said(frames: &[(u8, &[u8])]) -> Vec<Said> {
        let (said, end) = hear(&client(frames), &CLIENT);
        assert!(end.is_ok(), "{end:?}");
        said
    }

    fn failure(frames: &[(u8, &[u8])]) -> Failure {
        hear(&client(frames), &CLIENT).1.expect_err("a rule is broken")
    }

    fn text(text: &str) -> Said {
        Said::Message(Kind::Text, text.into())
    }

    #[test]
    fn messages_come_whole_in_pieces_and_empty() {
        assert_eq!(said(&[(0x81, b"Hello")]), [text("Hello")]);
        assert_eq!(said(&[(0x01, b"Hel"), (0x80, b"lo")]), [text("Hello")]);
        assert_eq!(said(&[(0x82, b"\xff\x00")]), [Said::Message(Kind::Binary, vec![0xff, 0])]);
        assert_eq!(said(&[(0x81, b""), (0x82, b"")]), [text(""), Said::Message(Kind::Binary, vec![])]);
        assert_eq!(said(&[(0x01, b""), (0x00, b""), (0x00, b"a"), (0x80, b"")]), [text("a")]);
        assert_eq!(said(&[(0x01, b""), (0x80, b"")]), [text("")]);
        let long = [b'x'; 300];
        assert_eq!(said(&[(0x82, &long)]), [Said::Message(Kind::Binary, long.to_vec())]);
    }

    #[test]
    fn lengths_in_three_forms_are_read() {
        for bytes in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            let payload = vec![b'a'; bytes];
            let mut stream = client(&[(0x82, &payload)]);
            let whole = vec![Said::Message(Kind::Binary, payload)];
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

    /// Asserts that `stream` fails at its last byte, however it is cut, and not before.
    fn assert_fails_at_its_end(stream: &[u8], rules: &Rules, failure: Failure) {
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
            // 1,000 bytes are announced; what is wrong comes early.
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
        assert_eq!(next, [Said::Message(Kind::Binary, vec![0xe6, 0x97]), text("a")], "bytes may be anything");
    }

    #[test]
    fn a_message_is_too_large_as_soon_as_its_frames_have_announced_it() {
        let rules = Rules { frame_bytes_max: 6, message_bytes_max: 10, ..CLIENT };
        assert_fails_at_its_end(b"\x82\x87", &rules, Failure::FrameTooLarge);
        let mut stream = client(&[(0x02, b"123456"), (0x00, b""), (0x89, b"control frames do not count")]);
        stream.extend_from_slice(b"\x80\x85");
        assert_fails_at_its_end(&stream, &rules, Failure::MessageTooLarge);
        let stream = client(&[(0x02, b"123456"), (0x80, b"7890"), (0x82, b"again")]);
        assert_eq!(hear(&stream, &rules).0.len(), 2, "a limit is what may be, and each message has it anew");
    }

    #[test]
    fn a_giant_within_the_limits_is_handed_out_as_it_comes() {
        let rules = Rules::new(Peer::Client, u64::MAX);
        let mut decoder = Decoder::new();
        let step = decoder
            .feed(&mut b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_owned(), &rules)
            .map(|step| step.used);
        assert_eq!(step, Ok(14));
        for round in 0..3 {
            let mut piece = [b'x'; 4096];
            let step = decoder.feed(&mut piece, &rules).expect("valid");
            let Some(Event::Data { payload, first, last: false, .. }) = step.event else {
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
        let message = Said::Message(Kind::Binary, vec![1, 2]);
        let expected =
            [text("häßlich"), Said::Ping(b"?".to_vec()), message, Said::Close(Some(1001), "gone".into())];
        assert_eq!((&said[..], end), (&expected[..], Ok(false)));
        assert_fails_at_its_end(b"\x81\x80", &SERVER, Failure::Masked);
    }

    #[test]
    fn compressed_messages_are_handed_out_unchecked_if_that_was_agreed() {
        let rules = Rules { deflate: true, ..CLIENT };
        let stream = client(&[(0x41, b"\xff"), (0x80, b"\xfe"), (0xc2, b"\x00"), (0x81, b"a")]);
        let bytes = |kind, bytes: &[u8]| Said::Message(kind, bytes.to_vec());
        let expected = vec![bytes(Kind::Text, b"\xff\xfe"), bytes(Kind::Binary, b"\x00"), text("a")];
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
        assert_eq!(decoder.feed(whole, &CLIENT).expect("valid").event, Some(Event::Ping(b"whole")));
        assert!(decoder.gathered.is_none());
        let (head, begun) = begun.split_at_mut(6);
        assert_eq!(decoder.feed(head, &CLIENT).expect("valid"), Step { event: None, used: 6 });
        assert!(decoder.gathered.is_none(), "a head alone is kept in place");
        assert_eq!(decoder.feed(begun, &CLIENT).expect("valid"), Step { event: None, used: 2 });
        assert!(decoder.gathered.is_some());
        assert_eq!(decoder.feed(two, &CLIENT).expect("valid").event, Some(Event::Ping(b"cut")));
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
                expected.push(Said::Message(Kind::Binary, payload));
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
