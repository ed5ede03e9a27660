//! WebSockets: frames in, messages to the connection's speaker, frames out.
//!
//! ```text
//! bytes ─► Decoder ─┬─ data ─► message, once whole (inflated) ─► the connection's speaker: a handler's Socket, push
//!                   ├─ ping ─► pong
//!                   └─ close ─► close, the end
//! ```
//! Input is read only while nothing is being sent, so a client that does not read its responses is not read from.
//!
//! **An idle socket takes 40 bytes besides its slot**: its key, its speaker, and a pointer to its [`Traffic`]. A `Traffic`
//! exists from the first byte of a frame to the last byte of its message, and while output waits or a response is due.
//!
//! **A compressed message waits in compressed form.** The worker's one [`Inflation`] inflates it once it is complete. So a
//! client holds no more memory than the bytes it has sent, and the inflated message is rejected when it exceeds the limit.
//!
//! [`WebSockets`] is the resident for the sockets of any handler. Features with their own sockets use [`SocketState`] and
//! [`read_frames`] in their residents.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_wire::field::Known;
use encke_wire::websocket::{
    self, Decoder, Deflater, Failure, FrameEvent, FrameRules, FrameStep, Inflater, MessageKind, Opcode,
};

use crate::close::CloseReason;
use crate::framing::{ContentLength, FramingKind};
use crate::inspect::ConnDescription;
use crate::record::Asked;
use crate::reply::{Fields, Reply};
use crate::request::Request;
use crate::resident::{Engine, Gone, Resident, Slot};
use crate::spread::{Farewells, spread_retry_ms};
use crate::takeover::{By, Takeover};

/// The application's end of a WebSocket that a handler accepted.
pub trait Socket: Send {
    /// Handles a complete message. Messages sent in return go to `answers`.
    fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>);
}

/// A message of a WebSocket (RFC 6455 §5.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketMessage<'a> {
    /// A text message, valid UTF-8.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
}

/// The output of a [`Socket`].
pub struct Answers<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    /// Present if messages are compressed.
    pub(crate) deflater: Option<&'a mut Deflater>,
}

impl Answers<'_> {
    /// Sends a message to the client.
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

/// A request that is upgraded to a WebSocket (RFC 6455 §4.2.2).
pub struct Upgrade {
    /// The fields of the 101 response.
    fields: Fields,
    /// Whether messages may be compressed.
    deflate: bool,
    socket: Box<dyn Socket>,
    message_bytes_max: u64,
}

impl Upgrade {
    /// Upgrades a request that is a WebSocket handshake. `socket` receives its messages, of at most `message_bytes_max` bytes
    /// each.
    ///
    /// ```
    /// use encke_server::{Answers, Fields, Kept, Socket, SocketMessage, Upgrade};
    ///
    /// struct Echo;
    ///
    /// impl Socket for Echo {
    ///     fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
    ///         answers.send(message);
    ///     }
    /// }
    ///
    /// let kept = Kept::sample("GET", "/echo", "example.org", &Fields::new()).expect("a valid request");
    /// let reply = Upgrade::accept(&kept.view(), 1024, Echo).err().expect("the request offers no WebSocket");
    /// assert_eq!(reply.status, 400);
    /// ```
    ///
    /// # Errors
    /// The response to a request that is no well-formed handshake: 400 or 426.
    pub fn accept(
        request: &Request<'_>,
        message_bytes_max: u64,
        socket: impl Socket + 'static,
    ) -> Result<Self, Reply> {
        let checked = websocket::WebSocketHandshake::check(request.method(), request.version(), |name| {
            request.all(name)
        });
        let handshake = checked.map_err(|error| {
            Reply::text(error.status(), format!("{error}\n"))
                .with("Sec-WebSocket-Version", websocket::VERSION)
                .with("Upgrade", "websocket")
        })?;
        let mut fields = Fields::new();
        handshake.put_fields(fields.lines_mut(), None);
        Ok(Self { fields, deflate: false, socket: Box::new(socket), message_bytes_max })
    }

    /// Allows compressed messages in both directions (RFC 7692, permessage-deflate) if the request offers them.
    /// `message_bytes_max` also limits the inflated message.
    ///
    /// Each message is compressed independently. If a message contains both a secret and text that an attacker controls, its
    /// length may reveal parts of the secret. Do not compress such messages.
    #[must_use]
    pub fn compressed(mut self, request: &Request<'_>) -> Self {
        self.deflate = self.deflate || accept_deflate(request, &mut self.fields);
        self
    }
}

impl From<Upgrade> for Takeover {
    fn from(upgrade: Upgrade) -> Self {
        Self { by: By::WebSockets, ..Self::new(upgrade) }
    }
}

/// Adds the field that accepts compressed messages (RFC 7692 §5) to the fields of a 101, if the request offers them.
pub fn accept_deflate(request: &Request<'_>, fields: &mut Fields) -> bool {
    let accepted = websocket::Deflate::accepted(request.all(Known::SecWebSocketExtensions));
    if let Some(deflate) = &accepted {
        deflate.put_field(fields.lines_mut());
    }
    accepted.is_some()
}

/// State of a WebSocket connection besides its slot. A test pins its size.
pub struct SocketState<S> {
    /// The receiver of this socket's messages: a handler's [`Socket`], or the publisher of push.
    pub speaker: S,
    /// The state of incomplete messages and waiting output; `None` while the socket is idle.
    pub traffic: Option<Box<Traffic>>,
}

impl<S> SocketState<S> {
    /// Creates the state of an idle socket.
    pub const fn new(speaker: S) -> Self {
        Self { speaker, traffic: None }
    }

    /// Returns the output that waits for a send to end. It must be sent before any other output.
    pub fn waiting(&mut self) -> &mut Vec<u8> {
        &mut self.traffic.get_or_insert_default().waiting
    }

    /// Appends a Close to the output that waits for a send to end. Nothing may follow it.
    pub fn wait_to_close(&mut self, close: &[u8]) {
        let traffic = self.traffic.get_or_insert_default();
        if !traffic.closes {
            traffic.waiting.extend_from_slice(close);
            traffic.closes = true;
        }
    }

    /// Returns whether the waiting output ends in a Close, after which the connection ends.
    pub fn closes(&self) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| traffic.closes)
    }

    /// Keeps the fields of the 101 for [`SocketState::put_handshake`].
    pub fn keep_handshake(&mut self, framing: FramingKind, fields: Fields) {
        self.traffic.get_or_insert_default().handshake = Some((framing, fields));
    }

    /// Writes the 101 unless it was written before. Returns whether it was written now.
    pub fn put_handshake(&mut self, slot: &mut Slot<'_>) -> bool {
        let handshake = self.traffic.as_mut().and_then(|traffic| traffic.handshake.take());
        let Some((framing, fields)) = handshake else { return false };
        slot.put_head(framing, 101, &fields, ContentLength::Upgrade);
        self.rest();
        true
    }

    /// Takes the output that waits to be sent.
    pub fn take_waiting(&mut self) -> Vec<u8> {
        let Some(traffic) = &mut self.traffic else { return Vec::new() };
        let waiting = std::mem::take(&mut traffic.waiting);
        traffic.closes = false;
        self.rest();
        waiting
    }

    /// Says what the socket waits for, for the operator's list of connections.
    pub fn waits(&self) -> &'static str {
        match &self.traffic {
            Some(traffic) if traffic.closes => "waits until the last bytes and a Close are sent",
            Some(traffic) if !traffic.waiting.is_empty() => "waits until responses are sent",
            Some(traffic) if traffic.unanswered > 0 => "waits for the response to a message",
            Some(traffic) if !traffic.decoder.is_at_rest() || !traffic.message.is_empty() => {
                "waits for the rest of a message"
            }
            _ => "waits for the next message",
        }
    }

    /// Bytes of output that wait for a send to end.
    pub fn waiting_bytes(&self) -> u64 {
        self.traffic.as_ref().map_or(0, |traffic| traffic.waiting.len() as u64)
    }

    /// Records that a message was responded to.
    pub fn answered(&mut self) {
        if let Some(traffic) = &mut self.traffic {
            traffic.unanswered = traffic.unanswered.saturating_sub(1);
            self.rest();
        }
    }

    /// Releases the memory of completed messages and, if the socket is idle, its [`Traffic`].
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

/// State of a WebSocket with an incomplete message, waiting output or an outstanding response.
#[derive(Default)]
pub struct Traffic {
    decoder: Decoder,
    /// The message so far, as received.
    message: Vec<u8>,
    /// The fields of the 101 and its framing, until it is sent.
    handshake: Option<(FramingKind, Fields)>,
    /// Responses that wait for a send to end. Reading stops meanwhile, so one read bounds them.
    waiting: Vec<u8>,
    /// Whether `waiting` ends in a Close.
    closes: bool,
    /// Messages whose response is still due.
    pub unanswered: u32,
}

/// A message or control frame from a peer.
#[derive(PartialEq, Eq, Debug)]
enum SocketEvent<'a> {
    Message(SocketMessage<'a>),
    /// A ping, to be answered by a pong with this payload.
    Ping(&'a [u8]),
    /// A close frame, to be answered with the same code.
    Close(Option<u16>),
}

impl Traffic {
    /// Decodes `input` up to the end of its first frame or fragment. Returns the message or control frame that is complete now,
    /// if any, and the number of bytes used.
    ///
    /// # Errors
    /// A protocol violation of the client, or a limit exceeded: the connection is to be closed with this failure's code.
    fn read<'a>(
        &'a mut self,
        input: &'a mut [u8],
        rules: &FrameRules,
        inflation: &'a mut Inflation,
    ) -> Result<(Option<SocketEvent<'a>>, usize), Failure> {
        let FrameStep { event, used } = self.decoder.feed(input, rules)?;
        let heard = match event {
            None | Some(FrameEvent::Pong(_)) => None,
            Some(FrameEvent::Ping(payload)) => Some(SocketEvent::Ping(payload)),
            Some(FrameEvent::Close { code, .. }) => Some(SocketEvent::Close(code)),
            Some(FrameEvent::Data { payload, kind, compressed, first, last }) => {
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
                Some(SocketEvent::Message(match kind {
                    MessageKind::Binary => SocketMessage::Binary(whole),
                    // UTF-8 was checked piece by piece, or during inflation.
                    MessageKind::Text => match std::str::from_utf8(whole) {
                        Ok(text) => SocketMessage::Text(text),
                        Err(_) => return Err(Failure::TextNotUtf8),
                    },
                }))
            }
        };
        Ok((heard, used))
    }
}

/// Inflates compressed messages.
#[derive(Default)]
pub struct Inflation {
    inflater: Option<Box<Inflater>>,
    /// The latest message.
    message: Vec<u8>,
    /// Inflated bytes since this was set to 0.
    made_bytes: u64,
}

impl Inflation {
    /// Inflates a complete message of at most `bytes_max` bytes after inflation.
    fn inflate(&mut self, payload: &[u8], kind: MessageKind, bytes_max: u64) -> Result<&[u8], Failure> {
        self.message.clear();
        self.message.shrink_to(KEPT_BYTES_MAX);
        // An inflater that failed is not reused.
        let mut inflater = self.inflater.take().unwrap_or_default();
        inflater.feed(payload, kind, true, bytes_max, &mut self.message)?;
        self.inflater = Some(inflater);
        self.made_bytes += self.message.len() as u64;
        Ok(&self.message)
    }
}

/// Bytes that messages of one WebSocket may inflate to before other connections continue: 64 KiB of input could inflate to 64
/// MiB, which takes 240 ms. A message that is begun is finished, which adds at most one message: some 10 ms.
const INFLATED_BYTES_MAX: u64 = 1024 * 1024;

/// Reads frames, writes pongs and close frames to `out`, and calls `message` with each complete message. `message` returns the
/// number of responses that follow later ([`Traffic::unanswered`]). Returns the number of bytes used. This is less than all
/// after `INFLATED_BYTES_MAX` inflated bytes; the rest is due at once.
pub fn read_frames(
    slot: &mut Slot<'_>,
    traffic: &mut Traffic,
    bytes: &mut [u8],
    (rules, inflation): (&FrameRules, &mut Inflation),
    out: &mut Vec<u8>,
    mut message: impl FnMut(&mut Slot<'_>, SocketMessage<'_>, &mut Vec<u8>) -> u32,
) -> usize {
    let mut used = 0;
    inflation.made_bytes = 0;
    while used < bytes.len() && !slot.is_ending() {
        if inflation.made_bytes >= INFLATED_BYTES_MAX {
            // The rest waits for the next timer tick, or for the end of the send that begins now.
            slot.set_deadline(0);
            return used;
        }
        let (heard, taken) = match traffic.read(&mut bytes[used..], rules, inflation) {
            Ok(read) => read,
            Err(failure) => {
                slot.count_refusal(failure.reason());
                websocket::put_close(out, failure.code(), &failure.to_string());
                slot.part(CloseReason::Refused);
                break;
            }
        };
        used += taken;
        match heard {
            None => {}
            Some(SocketEvent::Ping(payload)) => websocket::put_frame(out, Opcode::Pong, payload),
            Some(SocketEvent::Close(code)) => {
                match code {
                    Some(code) => websocket::put_close(out, code, ""),
                    None => websocket::put_frame(out, Opcode::Close, b""),
                }
                slot.end_after(CloseReason::PeerDone);
            }
            Some(SocketEvent::Message(whole)) => {
                let owed = message(slot, whole, out);
                traffic.unanswered += owed;
            }
        }
    }
    // Input after the last message is ignored.
    bytes.len()
}

/// A handler's socket and its message limit, in bytes.
struct HandlerSocket {
    socket: Box<dyn Socket>,
    message_bytes_max: u64,
}

/// The [`Resident`] for WebSockets: keeps the connections that any handler has upgraded.
pub(crate) struct WebSockets {
    /// By index of the connection.
    sockets: HashMap<u32, SocketState<HandlerSocket>>,
    inflation: Inflation,
    deflater: Deflater,
    /// Present during a drain.
    farewells: Option<Farewells>,
}

/// Silence after which a socket is sent a ping, so that a peer that vanished is detected.
const HEARTBEAT_NS: u64 = 25_000_000_000;
/// Reconnect delay for clients after a drain, plus or minus a half, in ms.
const RETRY_MS: u64 = 2_000;
/// "Service restart" in the IANA registry of WebSocket close codes.
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
    /// Returns the deadline of an idle socket: its time to close in a drain, otherwise the next ping.
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
        let SocketState { speaker: HandlerSocket { socket, message_bytes_max }, traffic } = &mut state;
        let deflate = slot.form() & DEFLATED != 0;
        let rules =
            FrameRules { deflate, ..FrameRules::new(websocket::FrameSender::Client, *message_bytes_max) };
        let mut out = slot.take_buffer();
        let traffic = traffic.get_or_insert_default();
        let Self { inflation, deflater, .. } = self;
        let message = |slot: &mut Slot<'_>, message: SocketMessage<'_>, out: &mut Vec<u8>| {
            let mut answers = Answers { out, deflater: deflate.then_some(&mut *deflater) };
            let called = catch_unwind(AssertUnwindSafe(|| socket.message(message, &mut answers)));
            if called.is_err() {
                slot.count_panic();
                websocket::put_close(out, 1011, "internal server error");
                slot.part(CloseReason::HandlerPanic);
            }
            0
        };
        let used = read_frames(slot, traffic, bytes, (&rules, inflation), &mut out, message);
        state.rest();
        self.sockets.insert(slot.place(), state);
        slot.push_buffer(out);
        used
    }

    /// Continues with input that was kept while other connections were served.
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
        self.sockets.insert(slot.place(), SocketState::new(HandlerSocket { socket, message_bytes_max }));
        slot.count_response(101);
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
            slot.part(CloseReason::Drain);
        } else {
            websocket::put_frame(slot.out(), Opcode::Ping, b"");
        }
        slot.settle();
    }

    fn closed(&mut self, gone: Gone) {
        self.sockets.remove(&gone.token.index);
    }

    fn describe(&mut self, slot: &mut Slot<'_>) -> ConnDescription {
        let Some(state) = self.sockets.get(&slot.place()) else { return ConnDescription::default() };
        ConnDescription {
            waits: Some(state.waits().to_owned()),
            unsent_bytes: state.waiting_bytes(),
            ..ConnDescription::default()
        }
    }

    fn drain(&mut self, engine: &mut Engine<'_>, time_ns: u64) {
        self.farewells = Some(engine.farewells(time_ns));
        for place in 0..engine.places() {
            // A socket with a send in flight gets its deadline when the send completes.
            if let Some(mut slot) = engine.slot_at(place).filter(|slot| !slot.is_sending()) {
                self.await_due(&mut slot);
            }
        }
    }
}

/// zlib level for sent messages. An envelope of 4 KiB: level 1 leaves 51 % in 21 µs, level 3 leaves 34 % in 49 µs, level 6
/// leaves no less. One of 64 KiB: level 3 leaves 28 % in 0.8 ms, level 6 leaves 25 % in 2.9 ms.
pub const DEFLATE_LEVEL: u32 = 3;
/// Capacity of the inflated-message buffer that is kept for the next message, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: FrameRules =
        FrameRules { deflate: true, ..FrameRules::new(websocket::FrameSender::Client, BYTES_MAX) };
    const BYTES_MAX: u64 = 10_000;

    struct Echo;

    impl Socket for Echo {
        fn message(&mut self, message: SocketMessage<'_>, answers: &mut Answers<'_>) {
            answers.send(message);
        }
    }

    fn echo() -> HandlerSocket {
        HandlerSocket { socket: Box::new(Echo), message_bytes_max: BYTES_MAX }
    }

    /// A client's frame. `first_byte` has its flags and opcode.
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

    /// Reads the pieces in order and returns the events. An idle socket must keep no state.
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
        assert_eq!(size_of::<SocketState<HandlerSocket>>(), 32);
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
        assert!(inflation.inflate(&bomb, MessageKind::Binary, BYTES_MAX).is_err());
        assert!(inflation.message.capacity() <= 2 * BYTES_MAX as usize, "{}", inflation.message.capacity());
        // The failure does not affect the next message of another client.
        assert_eq!(inflation.inflate(&deflated(b"well"), MessageKind::Text, 4), Ok(&b"well"[..]));
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
    fn a_waiting_close_is_the_last_output() {
        let mut state = SocketState::new(echo());
        state.waiting().extend_from_slice(b"later");
        assert!(!state.closes());
        state.wait_to_close(b" close");
        state.wait_to_close(b" another");
        assert!(state.closes());
        assert_eq!(state.take_waiting(), b"later close");
        assert!(!state.closes() && state.traffic.is_none());
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
