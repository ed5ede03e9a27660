//! WebSockets: frames in, messages to whoever speaks on this connection, frames out.
//!
//! ```text
//! bytes ─► Decoder ─┬─ data ─► message, once whole ─┬─ Socket of a handler: answers at once
//!                   ├─ ping ─► pong                 ├─ encke.v1: an envelope, acted upon (publish, subscribe …)
//!                   └─ close ─► close, the end      └─ payload: published to the channel of the address
//! ```
//! What comes is looked at only while nothing is being sent: a client that does not read is not read from.

use encke_hub::Name;
use encke_wire::websocket::{self, Decoder, Opcode};

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
}

impl Answers<'_> {
    /// Sends a message.
    pub fn send(&mut self, message: SocketMessage<'_>) {
        match message {
            SocketMessage::Text(text) => websocket::put_frame(self.out, Opcode::Text, text.as_bytes()),
            SocketMessage::Binary(bytes) => websocket::put_frame(self.out, Opcode::Binary, bytes),
        }
    }
}

/// What a connection that is a WebSocket keeps beside its slot.
pub(crate) struct SocketState {
    pub(crate) decoder: Decoder,
    /// The message so far.
    pub(crate) message: Vec<u8>,
    pub(crate) message_bytes_max: u64,
    pub(crate) role: Role,
    /// The answer to the handshake, until its channels are here; later answers that wait for a send to end. No more
    /// is read meanwhile, so they are bounded by one read.
    pub(crate) waiting: Vec<u8>,
    /// Publishes without an answer.
    pub(crate) unanswered: u32,
}

impl SocketState {
    pub(crate) fn new(message_bytes_max: u64, role: Role) -> Self {
        Self {
            decoder: Decoder::new(),
            message: Vec::new(),
            message_bytes_max,
            role,
            waiting: Vec::new(),
            unanswered: 0,
        }
    }
}

/// Who speaks on it.
pub(crate) enum Role {
    Handler(Box<dyn Socket>),
    Push(Box<Speaker>),
}

/// A subscriber that may publish, too.
pub(crate) struct Speaker {
    pub(crate) identity: Identity,
    pub(crate) publisher: u64,
    /// Where its payloads go; `None`: it speaks `encke.v1`, where envelopes say that.
    pub(crate) channel: Option<Name>,
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
