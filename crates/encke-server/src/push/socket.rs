//! WebSockets: frames in, messages to whoever speaks on this connection, frames out.
//!
//! ```text
//! bytes ─► Decoder ─┬─ data ─► message, once whole ─┬─ Socket of a handler: answers at once
//!                   ├─ ping ─► pong      inflated   ├─ encke.v1: an envelope, acted upon (publish, subscribe …)
//!                   └─ close ─► close, the end      └─ payload: published to the channel of the address
//! ```
//! What comes is looked at only while nothing is being sent: a client that does not read is not read from.
//!
//! **A socket at rest is 40 bytes beside its slot**: who speaks, and where a [`Traffic`] would be. That exists from
//! the first byte of a frame to the last of its message, and while something waits to be sent or answered.
//!
//! **A compressed message waits as it came**, and is inflated when it is whole, by the worker's one [`Codec`]. So a
//! client holds no more memory than it has sent bytes, and what they become is refused where it passes the limit.

use encke_hub::Name;
use encke_wire::websocket::{self, Decoder, Deflater, Event, Failure, Inflater, Kind, Opcode, Rules, Step};

use super::envelope::{Op, Said};
use super::rights::{Act, Identity};

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

/// What a connection that is a WebSocket keeps beside its slot. Its size is pinned by a test.
pub(crate) struct SocketState {
    pub(crate) role: Role,
    /// What is under way; none at rest.
    pub(crate) traffic: Option<Box<Traffic>>,
}

impl SocketState {
    pub(crate) const fn new(role: Role) -> Self {
        Self { role, traffic: None }
    }

    /// What waits to be sent: nothing else may be sent before.
    pub(crate) fn waiting(&mut self) -> &mut Vec<u8> {
        &mut self.traffic.get_or_insert_default().waiting
    }

    /// Takes what waits to be sent.
    pub(crate) fn take_waiting(&mut self) -> Vec<u8> {
        let Some(traffic) = &mut self.traffic else { return Vec::new() };
        let waiting = std::mem::take(&mut traffic.waiting);
        self.rest();
        waiting
    }

    /// A publish has its answer.
    pub(crate) fn answered(&mut self) {
        if let Some(traffic) = &mut self.traffic {
            traffic.unanswered = traffic.unanswered.saturating_sub(1);
            self.rest();
        }
    }

    /// Keeps nothing of what is over.
    pub(crate) fn rest(&mut self) {
        let Some(traffic) = &mut self.traffic else { return };
        if !traffic.decoder.is_at_rest() {
            return;
        }
        traffic.message = Vec::new();
        if traffic.waiting.is_empty() && traffic.unanswered == 0 {
            self.traffic = None;
        }
    }
}

/// What is under way on a WebSocket.
#[derive(Default)]
pub(crate) struct Traffic {
    decoder: Decoder,
    /// The message so far, as it travels.
    message: Vec<u8>,
    /// The answer to the handshake, until its channels are here; later answers that wait for a send to end. No more
    /// is read meanwhile, so they are bounded by one read.
    waiting: Vec<u8>,
    /// Publishes without an answer.
    pub(crate) unanswered: u32,
}

/// What somebody says on a WebSocket.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Heard<'a> {
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
    pub(crate) fn read<'a>(
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

/// What a worker needs for compressed messages (RFC 7692), made when the first one comes or goes.
pub(crate) struct Codec {
    pub(crate) inflation: Inflation,
    /// For what handlers say. What channels say is compressed by their `Press`.
    pub(crate) deflater: Deflater,
}

impl Default for Codec {
    fn default() -> Self {
        Self { inflation: Inflation::default(), deflater: Deflater::new(DEFLATE_LEVEL) }
    }
}

/// Makes compressed messages what they were.
#[derive(Default)]
pub(crate) struct Inflation {
    inflater: Option<Box<Inflater>>,
    /// The latest message.
    message: Vec<u8>,
    /// What messages have become since somebody has set this to nought.
    pub(crate) made_bytes: u64,
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

/// Who speaks on it.
pub(crate) enum Role {
    Handler { socket: Box<dyn Socket>, message_bytes_max: u64 },
    Push(Speaker),
}

/// A subscriber that may publish, too.
pub(crate) struct Speaker {
    pub(crate) identity: Identity,
    pub(crate) publisher: u64,
    /// Where its payloads go; `None`: it speaks `encke.v1`, where envelopes say that.
    pub(crate) channel: Option<Name>,
}

/// Most bytes of a message of a speaker: as an envelope it may be longer than what it publishes.
pub(crate) fn bytes_max(rules: &encke_hub::Rules) -> u64 {
    rules.message_bytes as u64 * 2
}

/// What a message of a speaker came to.
pub(crate) enum Deed {
    /// Publish, and tell.
    Publish(Option<u64>, encke_hub::Draft),
    /// Other channels from now on.
    Change { add: Vec<Name>, remove: Vec<Name>, reference: Option<u64> },
    /// Said already.
    Nothing,
    /// Said already, and it ends here.
    Close,
}

impl Speaker {
    /// Hears a message; refusals are put down as answers.
    pub(crate) fn hear(&self, message: SocketMessage<'_>, out: &mut Vec<u8>) -> Deed {
        if let Some(channel) = &self.channel {
            return self.hear_payload(channel, message, out);
        }
        let SocketMessage::Text(text) = message else {
            put_error(out, None, 400, "encke.v1 speaks in text frames");
            return Deed::Nothing;
        };
        let said = match Said::read(text.as_bytes()) {
            Ok(said) => said,
            Err(error) => {
                put_error(out, reference_of(text), 400, &error);
                return Deed::Nothing;
            }
        };
        let reference = said.reference;
        let refused = match said.op {
            Op::Ping => {
                put_ok(out, reference, "");
                return Deed::Nothing;
            }
            Op::Publish => match super::draft(said, self.publisher) {
                Ok(draft) if self.identity.may(Act::Publish, &draft.channel) => {
                    return Deed::Publish(reference, draft);
                }
                Ok(draft) => (403, format!("you may not publish to {}", draft.channel)),
                Err(error) => (400, error),
            },
            Op::Subscribe | Op::Unsubscribe => match names(&said.channels) {
                Err(error) => (400, error),
                Ok(remove) if said.op == Op::Unsubscribe => {
                    return Deed::Change { add: Vec::new(), remove, reference };
                }
                Ok(add) => match add.iter().find(|name| !self.identity.may(Act::Subscribe, name)) {
                    None => return Deed::Change { add, remove: Vec::new(), reference },
                    Some(name) => (403, format!("you may not subscribe to {name}")),
                },
            },
        };
        put_error(out, reference, refused.0, &refused.1);
        Deed::Nothing
    }

    fn hear_payload(&self, channel: &Name, message: SocketMessage<'_>, out: &mut Vec<u8>) -> Deed {
        if !self.identity.may(Act::Publish, channel) {
            // Without envelopes there is no way to say it but the end.
            websocket::put_close(out, 4403, "you may not publish here");
            return Deed::Close;
        }
        let (data, content_type) = match message {
            SocketMessage::Text(text) => (text.as_bytes(), None),
            SocketMessage::Binary(bytes) => (bytes, Some("application/octet-stream".into())),
        };
        Deed::Publish(
            None,
            encke_hub::Draft {
                channel: channel.clone(),
                data: data.into(),
                content_type,
                event: None,
                flags: encke_hub::Flags::default(),
                key: None,
            },
        )
    }
}

fn names(texts: &[String]) -> Result<Vec<Name>, String> {
    if texts.is_empty() {
        return Err("there are no channels".into());
    }
    texts
        .iter()
        .map(|text| Name::parse(text.as_bytes()).map_err(|error| format!("channel {text:?}: {error}")))
        .collect()
}

/// The `ref` of something that could not be understood, so that its sender knows which it was.
fn reference_of(text: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.get("ref")?.as_u64()
}

/// Says yes. `fields` begins with a comma, or is empty.
pub(crate) fn put_ok(out: &mut Vec<u8>, reference: Option<u64>, fields: &str) {
    let reference = reference.map_or_else(String::new, |number| format!(",\"ref\":{number}"));
    let text = format!("{{\"op\":\"ok\"{reference}{fields}}}");
    websocket::put_frame(out, Opcode::Text, text.as_bytes());
}

/// Says no, and why.
pub(crate) fn put_error(out: &mut Vec<u8>, reference: Option<u64>, status: u16, text: &str) {
    let reference = reference.map_or_else(String::new, |number| format!(",\"ref\":{number}"));
    let mut json = format!("{{\"op\":\"error\"{reference},\"status\":{status},\"text\":").into_bytes();
    super::envelope::put_text(&mut json, text);
    json.push(b'}');
    websocket::put_frame(out, Opcode::Text, &json);
}

/// zlib's level for what is sent. Of an envelope of 4 KiB 1 leaves 51 % in 21 µs, 3 leaves 34 % in 49 µs, 6 no less; of
/// 64 KiB 3 leaves 28 % in 0.8 ms, 6 leaves 25 % in 2.9 ms.
pub(crate) const DEFLATE_LEVEL: u32 = 3;
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

    fn echo() -> Role {
        Role::Handler { socket: Box::new(Echo), message_bytes_max: BYTES_MAX }
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
    fn a_socket_at_rest_is_40_bytes() {
        // 32: a speaker (identity 8, publisher 8, channel 16), or a handler's socket and its limit; 8: no traffic.
        assert_eq!(size_of::<SocketState>(), 40);
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
