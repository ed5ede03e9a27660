//! WebSockets of channels: what is said on them, and what is answered.
//!
//! ```text
//! message ─┬─ encke.v1: an envelope, acted upon (publish, subscribe …)
//!          └─ payload: published to the channel of the address
//! ```

use encke_hub::Name;
use encke_wire::websocket::{self, Opcode};

use super::draft::draft;
use super::envelope::{Op, Said};
use encke_rights::{Act, Identity};
use encke_server::SocketMessage;

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
            Op::Publish => match draft(said, self.publisher) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use encke_server::SocketState;

    #[test]
    fn a_socket_at_rest_is_40_bytes() {
        // 32: a speaker (identity 8, publisher 8, channel 16); 8: no traffic.
        assert_eq!(size_of::<SocketState<Speaker>>(), 40);
    }
}
