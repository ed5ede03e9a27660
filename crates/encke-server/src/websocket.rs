//! WebSockets: frames in, messages to whoever speaks on this connection, frames out.
//!
//! ```text
//! bytes ─► Decoder ─┬─ data ─► message, once whole (inflated) ─► the connection's speaker: a handler's Socket, push
//!                   ├─ ping ─► pong
//!                   └─ close ─► close, the end
//! ```
//! Input is read only while nothing is being sent: a client that does not read is not read from.
//!
//! **A socket at rest is 40 bytes beside its slot**: its speaker, and where a [`Traffic`] would be. That exists from
//! the first byte of a frame to the last of its message, and while something waits to be sent or answered.
//!
//! **A compressed message waits as it came**, and is inflated when it is whole, by the worker's one [`Inflation`]. So a
//! client holds no more memory than it has sent bytes, and what they become is refused where it passes the limit.
//!
//! [`WebSockets`] is the resident for sockets of any handler. Features with their own sockets use [`SocketState`] and
//! [`read_frames`] in their residents.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_wire::field::Known;
use encke_wire::websocket::{self, Decoder, Deflater, Event, Failure, Inflater, Kind, Opcode, Rules, Step};

use crate::close::CloseReason;
use crate::framing::{ContentLength, FramingKind};
use crate::record::Asked;
use crate::reply::{Fields, Reply};
use crate::request::Request;
use crate::resident::{By, Engine, Gone, Resident, Slot, Takeover};
use crate::spread::{Farewells, spread_retry_ms};

/// A connection that has become a WebSocket of a handler's own.
pub trait Socket: Send {
    /// A message is whole. What is to be said in return goes to `answers`.
    fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>);
}

/// A message of a WebSocket (RFC 6455 §5.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketMessage<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

/// Where a [`Socket`] writes.
pub struct Answers<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    /// If messages are compressed.
    pub(crate) deflater: Option<&'a mut Deflater>,
}

impl Answers<'_> {
    /// Sends a message.
    pub fn send(&mut self, message: SocketMessage<'_>) {
        let (opcode, payload) = match message {
            SocketMessage::Text(text) => (Opcode::Text, text.as_bytes()),
            SocketMessage::Binary(bytes) => (Opcode::Binary, bytes),
        };
        match &mut self.deflater {
            Some(deflater) => deflater.put_frame(self.out, opcode, payload),
            None => websocket::put_frame(self.out, opcode, payload),
        }
    }
}

/// A request that becomes a WebSocket (RFC 6455 §4.2.2).
pub struct Upgrade {
    /// The fields of the 101.
    fields: Fields,
    /// Messages may be compressed.
    deflate: bool,
    socket: Box<dyn Socket>,
    message_bytes_max: u64,
}

impl Upgrade {
    /// Upgrades a request to a WebSocket that `socket` speaks on, if it asks for one; messages have at most
    /// `message_bytes_max` bytes.
    ///
    /// # Errors
    /// The answer to a request that is no well-formed handshake: 400 or 426.
    pub fn accept(
        request: &Request<'_>,
        message_bytes_max: u64,
        socket: impl Socket + 'static,
    ) -> Result<Self, Reply> {
        let checked =
            websocket::Handshake::check(request.method(), request.version(), |name| request.all(name));
        let handshake = checked.map_err(|error| {
            Reply::text(error.status(), format!("{error}\n"))
                .with("Sec-WebSocket-Version", websocket::VERSION)
                .with("Upgrade", "websocket")
        })?;
        let mut fields = Fields::new();
        handshake.put_fields(fields.lines_mut(), None);
        Ok(Self { fields, deflate: false, socket: Box::new(socket), message_bytes_max })
    }

    /// Has messages compressed, either way (RFC 7692, permessage-deflate), if the request offers that. `message_bytes_max`
    /// holds for what they become, too.
    ///
    /// Each is compressed by itself. Where a message has a secret beside words of a stranger, its length may still tell
    /// something of the secret: such a socket had better do without.
    #[must_use]
    pub fn compressed(mut self, request: &Request<'_>) -> Self {
        self.deflate = self.deflate || accept_deflate(request, &mut self.fields);
        self
    }
}

impl From<Upgrade> for Takeover {
    fn from(upgrade: Upgrade) -> Self {
        Self { by: By::WebSockets, start: Box::new(upgrade) }
    }
}

/// Adds the field that accepts compressed messages (RFC 7692 §5) to those of a 101, if the request offers them.
pub fn accept_deflate(request: &Request<'_>, fields: &mut Fields) -> bool {
    let accepted = websocket::Deflate::accepted(request.all(Known::SecWebSocketExtensions));
    if let Some(deflate) = &accepted {
        deflate.put_field(fields.lines_mut());
    }
    accepted.is_some()
}

/// What a connection that is a WebSocket keeps beside its slot. Its size is pinned by a test.
pub struct SocketState<S> {
    /// Who speaks on it.
    pub speaker: S,
    /// What is under way; none at rest.
    pub traffic: Option<Box<Traffic>>,
}

impl<S> SocketState<S> {
    /// A socket at rest.
    pub const fn new(speaker: S) -> Self {
        Self { speaker, traffic: None }
    }

    /// What waits to be sent: nothing else may be sent before.
    pub fn waiting(&mut self) -> &mut Vec<u8> {
        &mut self.traffic.get_or_insert_default().waiting
    }

    /// Keeps the fields of the 101 for [`SocketState::put_handshake`].
    pub fn keep_handshake(&mut self, framing: FramingKind, fields: Fields) {
        self.traffic.get_or_insert_default().handshake = Some((framing, fields));
    }

    /// Writes the 101 if it is still to be sent. Returns whether it was.
    pub fn put_handshake(&mut self, slot: &mut Slot<'_>) -> bool {
        let handshake = self.traffic.as_mut().and_then(|traffic| traffic.handshake.take());
        let Some((framing, fields)) = handshake else { return false };
        slot.put_head(framing, 101, &fields, ContentLength::Upgrade);
        self.rest();
        true
    }

    /// Takes what waits to be sent.
    pub fn take_waiting(&mut self) -> Vec<u8> {
        let Some(traffic) = &mut self.traffic else { return Vec::new() };
        let waiting = std::mem::take(&mut traffic.waiting);
        self.rest();
        waiting
    }

    /// A message has its answer.
    pub fn answered(&mut self) {
        if let Some(traffic) = &mut self.traffic {
            traffic.unanswered = traffic.unanswered.saturating_sub(1);
            self.rest();
        }
    }

    /// Keeps nothing of what is over.
    pub fn rest(&mut self) {
        let Some(traffic) = &mut self.traffic else { return };
        if !traffic.decoder.is_at_rest() {
            return;
        }
        traffic.message = Vec::new();
        if traffic.handshake.is_none() && traffic.waiting.is_empty() && traffic.unanswered == 0 {
            self.traffic = None;
        }
    }
}

/// What is under way on a WebSocket.
#[derive(Default)]
pub struct Traffic {
    decoder: Decoder,
    /// The message so far, as it travels.
    message: Vec<u8>,
    /// The fields of the 101 and its framing, until it is sent.
    handshake: Option<(FramingKind, Fields)>,
    /// Answers that wait for a send to end. No more is read meanwhile, so they are bounded by one read.
    waiting: Vec<u8>,
    /// Messages whose answer comes later.
    pub unanswered: u32,
}

/// What a peer says on a WebSocket.
#[derive(PartialEq, Eq, Debug)]
enum Heard<'a> {
    Message(SocketMessage<'a>),
    /// To be answered by a pong with the same.
    Ping(&'a [u8]),
    /// To be answered by the same code.
    Close(Option<u16>),
}

impl Traffic {
    /// Looks at `input` up to the end of the first frame or piece in it. Returns what was said, if that is whole now,
    /// and how much of the input is dealt with.
    ///
    /// # Errors
    /// The client has broken a rule: it is told, and that is the end.
    fn read<'a>(
        &'a mut self,
        input: &'a mut [u8],
        rules: &Rules,
        inflation: &'a mut Inflation,
    ) -> Result<(Option<Heard<'a>>, usize), Failure> {
        let Step { event, used } = self.decoder.feed(input, rules)?;
        let heard = match event {
            None | Some(Event::Pong(_)) => None,
            Some(Event::Ping(payload)) => Some(Heard::Ping(payload)),
            Some(Event::Close { code, .. }) => Some(Heard::Close(code)),
            Some(Event::Data { payload, kind, compressed, first, last }) => {
                if first {
                    self.message.clear();
                }
                let whole = if first && last {
                    payload
                } else {
                    self.message.extend_from_slice(payload);
                    if !last {
                        return Ok((None, used));
                    }
                    &self.message
                };
                let whole =
                    if compressed { inflation.inflate(whole, kind, rules.message_bytes_max)? } else { whole };
                Some(Heard::Message(match kind {
                    Kind::Binary => SocketMessage::Binary(whole),
                    // It was checked, piece by piece or as it was inflated.
                    Kind::Text => match std::str::from_utf8(whole) {
                        Ok(text) => SocketMessage::Text(text),
                        Err(_) => return Err(Failure::TextNotUtf8),
                    },
                }))
            }
        };
        Ok((heard, used))
    }
}

/// Makes compressed messages what they were.
#[derive(Default)]
pub struct Inflation {
    inflater: Option<Box<Inflater>>,
    /// The latest message.
    message: Vec<u8>,
    /// What messages have become since this was set to 0.
    made_bytes: u64,
}

impl Inflation {
    /// What a whole message becomes, if that is at most `bytes_max`.
    fn inflate(&mut self, payload: &[u8], kind: Kind, bytes_max: u64) -> Result<&[u8], Failure> {
        self.message.clear();
        self.message.shrink_to(KEPT_BYTES_MAX);
        // One that has failed is of no use any more.
        let mut inflater = self.inflater.take().unwrap_or_default();
        inflater.feed(payload, kind, true, bytes_max, &mut self.message)?;
        self.inflater = Some(inflater);
        self.made_bytes += self.message.len() as u64;
        Ok(&self.message)
    }
}

/// What a WebSocket's messages may become at a time before others have their turn: 64 KiB that were read could become
/// 64 MiB, which takes 240 ms. A message that is begun is finished, so that this is one more at most: some 10 ms.
const INFLATED_BYTES_MAX: u64 = 1024 * 1024;

/// Reads frames, answers pings and closes in `out`, and calls `message` with each whole message. It returns how many answers
/// come later ([`Traffic::unanswered`]). Returns how many bytes were used: not all, if messages became too much at a time;
/// the others are due at once.
pub fn read_frames(
    slot: &mut Slot<'_>,
    traffic: &mut Traffic,
    bytes: &mut [u8],
    (rules, inflation): (&Rules, &mut Inflation),
    out: &mut Vec<u8>,
    mut message: impl FnMut(&mut Slot<'_>, SocketMessage<'_>, &mut Vec<u8>) -> u32,
) -> usize {
    let mut used = 0;
    inflation.made_bytes = 0;
    while used < bytes.len() && !slot.is_ending() {
        if inflation.made_bytes >= INFLATED_BYTES_MAX {
            // The rest waits for the next tick of the timers, or for the end of the send that begins now.
            slot.set_deadline(0);
            return used;
        }
        let (heard, taken) = match traffic.read(&mut bytes[used..], rules, inflation) {
            Ok(read) => read,
            Err(failure) => {
                slot.count_refusal(failure.reason());
                websocket::put_close(out, failure.code(), &failure.to_string());
                slot.end_after(CloseReason::Refused);
                slot.linger();
                break;
            }
        };
        used += taken;
        match heard {
            None => {}
            Some(Heard::Ping(payload)) => websocket::put_frame(out, Opcode::Pong, payload),
            Some(Heard::Close(code)) => {
                match code {
                    Some(code) => websocket::put_close(out, code, ""),
                    None => websocket::put_frame(out, Opcode::Close, b""),
                }
                slot.end_after(CloseReason::PeerDone);
            }
            Some(Heard::Message(whole)) => {
                let owed = message(slot, whole, out);
                traffic.unanswered += owed;
            }
        }
    }
    // After the last message nothing is read.
    bytes.len()
}

/// The socket of a handler.
struct Spoken {
    socket: Box<dyn Socket>,
    message_bytes_max: u64,
}

/// The resident for WebSockets of any handler.
pub(crate) struct WebSockets {
    /// By place of the connection.
    sockets: HashMap<u32, SocketState<Spoken>>,
    inflation: Inflation,
    deflater: Deflater,
    /// The server stops.
    farewells: Option<Farewells>,
}

/// A socket that was silent for so long is sent a ping: a peer that is gone without a word is noticed.
const HEARTBEAT_NS: u64 = 25_000_000_000;
/// When clients return after a drain, half of it more or less, in ms.
const RETRY_MS: u64 = 2_000;
/// The service restarts (IANA's registry of close codes).
const CLOSE_RESTART: u16 = 1012;
/// The bit of [`Slot::form`] for compressed messages.
const DEFLATED: u8 = 1;

impl Default for WebSockets {
    fn default() -> Self {
        Self {
            sockets: HashMap::new(),
            inflation: Inflation::default(),
            deflater: Deflater::new(DEFLATE_LEVEL),
            farewells: None,
        }
    }
}

impl WebSockets {
    /// When a socket at rest needs attention: at its turn in a drain, else for a ping.
    fn due_ns(&self, slot: &Slot<'_>) -> u64 {
        match self.farewells {
            Some(farewells) => farewells.at_ns(slot.token()),
            None => slot.now().mono_ns.saturating_add(HEARTBEAT_NS),
        }
    }

    fn await_due(&self, slot: &mut Slot<'_>) {
        let due_ns = self.due_ns(slot);
        slot.set_deadline(due_ns.saturating_sub(slot.now().mono_ns));
    }

    fn frames(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        let Some(mut state) = self.sockets.remove(&slot.place()) else { return bytes.len() };
        let SocketState { speaker: Spoken { socket, message_bytes_max }, traffic } = &mut state;
        let deflate = slot.form() & DEFLATED != 0;
        let rules = Rules { deflate, ..Rules::new(websocket::Peer::Client, *message_bytes_max) };
        let mut out = slot.take_buffer();
        let traffic = traffic.get_or_insert_default();
        let Self { inflation, deflater, .. } = self;
        let message = |slot: &mut Slot<'_>, message: SocketMessage<'_>, out: &mut Vec<u8>| {
            let mut answers = Answers { out, deflater: deflate.then_some(&mut *deflater) };
            let called = catch_unwind(AssertUnwindSafe(|| socket.message(message, &mut answers)));
            if called.is_err() {
                slot.count_panic();
                websocket::put_close(out, 1011, "the server has made a mistake");
                slot.end_after(CloseReason::HandlerPanic);
            }
            0
        };
        let used = read_frames(slot, traffic, bytes, (&rules, inflation), &mut out, message);
        state.rest();
        self.sockets.insert(slot.place(), state);
        slot.push_buffer(out);
        used
    }

    /// Goes on with what a socket had sent when others had their turn.
    fn resume(&mut self, slot: &mut Slot<'_>) {
        if let Some(mut input) = slot.take_input() {
            let used = self.frames(slot, &mut input);
            slot.give_input(input, used);
        }
    }
}

impl Resident for WebSockets {
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>) {
        let Ok(upgrade) = start.downcast::<Upgrade>() else { return slot.close(CloseReason::HandlerPanic) };
        let Upgrade { fields, deflate, socket, message_bytes_max } = *upgrade;
        slot.set_form(if deflate { DEFLATED } else { 0 });
        self.sockets.insert(slot.place(), SocketState::new(Spoken { socket, message_bytes_max }));
        slot.count_response(101);
        slot.log(101, 0);
        slot.put_head(asked.framing, 101, &fields, ContentLength::Upgrade);
        self.await_due(slot);
    }

    fn received(&mut self, slot: &mut Slot<'_>, bytes: &mut [u8]) -> usize {
        self.frames(slot, bytes)
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        let due_ns = self.due_ns(slot);
        slot.rest_until(due_ns);
        if slot.is_ending() {
            return slot.end();
        }
        self.resume(slot);
        slot.settle();
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        if slot.has_input() {
            self.await_due(slot);
            self.resume(slot);
        } else if slot.draining() {
            let retry_ms = spread_retry_ms(RETRY_MS, slot.token(), slot.now());
            websocket::put_close(slot.out(), CLOSE_RESTART, &retry_ms.to_string());
            slot.end_after(CloseReason::Drain);
        } else {
            websocket::put_frame(slot.out(), Opcode::Ping, b"");
        }
        slot.settle();
    }

    fn closed(&mut self, gone: Gone) {
        self.sockets.remove(&gone.token.index);
    }

    fn drain(&mut self, engine: &mut Engine<'_>, time_ns: u64) {
        self.farewells = Some(Farewells::new(engine.now(), time_ns));
        for place in 0..engine.places() {
            // One with a send in flight gets its deadline when that has left.
            if let Some(mut slot) = engine.slot_at(place).filter(|slot| !slot.is_sending()) {
                self.await_due(&mut slot);
            }
        }
    }
}

/// zlib's level for what is sent. Of an envelope of 4 KiB 1 leaves 51 % in 21 µs, 3 leaves 34 % in 49 µs, 6 no less; of
/// 64 KiB 3 leaves 28 % in 0.8 ms, 6 leaves 25 % in 2.9 ms.
pub const DEFLATE_LEVEL: u32 = 3;
/// Of a message that was inflated, so much room is kept for the next one.
const KEPT_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { deflate: true, ..Rules::new(websocket::Peer::Client, BYTES_MAX) };
    const BYTES_MAX: u64 = 10_000;

    struct Echo;

    impl Socket for Echo {
        fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
            answers.send(message);
        }
    }

    fn echo() -> Spoken {
        Spoken { socket: Box::new(Echo), message_bytes_max: BYTES_MAX }
    }

    /// A frame of a client. `first_byte` has its flags and opcode.
    fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        websocket::put_masked(&mut out, Opcode::Binary, payload, [0; 4]);
        out[0] = first_byte;
        out
    }

    fn deflated(message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Deflater::new(9).put(message, &mut out);
        out
    }

    /// What is heard when the pieces come one after the other; nothing may be kept of a socket at rest.
    fn heard(pieces: &[&[u8]]) -> Result<Vec<String>, Failure> {
        let mut state = SocketState::new(echo());
        let mut inflation = Inflation::default();
        let mut told = Vec::new();
        for piece in pieces {
            let mut piece = piece.to_vec();
            let mut used = 0;
            while used < piece.len() {
                let traffic = state.traffic.get_or_insert_default();
                let (heard, taken) = traffic.read(&mut piece[used..], &RULES, &mut inflation)?;
                used += taken;
                told.extend(heard.map(|heard| format!("{heard:?}")));
            }
            state.rest();
        }
        let at_rest = told.last().is_some_and(|last| last.starts_with("Message") || last.starts_with("Ping"));
        assert_eq!(state.traffic.is_none(), at_rest, "after {told:?}");
        Ok(told)
    }

    #[test]
    fn a_socket_at_rest_is_32_bytes() {
        // 16: a handler's socket; 8: its limit; 8: no traffic.
        assert_eq!(size_of::<SocketState<Spoken>>(), 32);
    }

    #[test]
    fn messages_are_heard_once_they_are_whole_however_they_are_cut() {
        let text = "a text, a text and no end of a text";
        let packed = deflated(text.as_bytes());
        let (head, tail) = packed.split_at(packed.len() / 2);
        let input = [
            frame(0x81, "größer".as_bytes()),
            frame(0x02, b"in "),
            frame(0x89, b"there?"),
            frame(0x80, b"two"),
            frame(0xc1, &packed),
            frame(0x41, head),
            frame(0x8a, b"a pong that nobody has asked for"),
            frame(0x80, tail),
            frame(0xc2, &deflated(b"")),
            frame(0x82, b"\xff"),
        ]
        .concat();
        let said = [
            "Message(Text(\"größer\"))",
            "Ping([116, 104, 101, 114, 101, 63])",
            "Message(Binary([105, 110, 32, 116, 119, 111]))",
            &format!("Message(Text({text:?}))"),
            &format!("Message(Text({text:?}))"),
            "Message(Binary([]))",
            "Message(Binary([255]))",
        ];
        assert_eq!(heard(&[&input]).as_deref(), Ok(&said.map(str::to_owned)[..]));
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(heard(&bytes).as_deref(), Ok(&said.map(str::to_owned)[..]));
        for cut in 1..input.len() {
            let halves = [&input[..cut], &input[cut..]];
            assert_eq!(heard(&halves).as_deref(), Ok(&said.map(str::to_owned)[..]), "cut at {cut}");
        }
    }

    #[test]
    fn a_compressed_message_is_refused_where_it_passes_the_limit() {
        let most = vec![b'x'; BYTES_MAX as usize];
        let told = heard(&[&frame(0xc2, &deflated(&most))]).expect("it is within the limit");
        assert_eq!(told.len(), 1);
        let bomb = deflated(&vec![0; 8_000_000]);
        assert!(bomb.len() < BYTES_MAX as usize, "what travels is within the limit: {}", bomb.len());
        assert_eq!(heard(&[&frame(0xc2, &bomb)]), Err(Failure::MessageTooLarge));
        let mut inflation = Inflation::default();
        assert!(inflation.inflate(&bomb, Kind::Binary, BYTES_MAX).is_err());
        assert!(inflation.message.capacity() <= 2 * BYTES_MAX as usize, "{}", inflation.message.capacity());
        // The next message of another client is none the worse for it.
        assert_eq!(inflation.inflate(&deflated(b"well"), Kind::Text, 4), Ok(&b"well"[..]));
    }

    #[test]
    fn what_is_no_compressed_text_is_refused() {
        assert_eq!(heard(&[&frame(0xc1, b"\xff\xff\xff")]), Err(Failure::InvalidDeflate));
        assert_eq!(heard(&[&frame(0xc1, &deflated(b"\xe6\x97"))]), Err(Failure::TextNotUtf8));
    }

    #[test]
    fn what_waits_is_kept_until_it_is_taken() {
        let mut state = SocketState::new(echo());
        assert_eq!(state.take_waiting(), b"");
        state.waiting().extend_from_slice(b"later");
        state.traffic.as_mut().expect("something waits").unanswered = 1;
        state.rest();
        assert_eq!(state.take_waiting(), b"later");
        assert!(state.traffic.is_some(), "a publish is not answered");
        state.answered();
        assert!(state.traffic.is_none());
    }

    #[test]
    fn an_answer_is_compressed_if_that_was_agreed_and_is_worth_it() {
        for (message, deflate, first_byte) in
            [("a".repeat(500), true, 0xc1), ("a".repeat(500), false, 0x81), ("short".into(), true, 0x81)]
        {
            let mut out = Vec::new();
            let mut deflater = Deflater::new(DEFLATE_LEVEL);
            let mut answers = Answers { out: &mut out, deflater: deflate.then_some(&mut deflater) };
            Echo.message(SocketMessage::Text(&message), &mut answers);
            assert_eq!(out[0], first_byte, "{message}");
        }
    }
}
