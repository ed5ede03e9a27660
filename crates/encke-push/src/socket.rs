//! WebSocket commands of channels, and their responses.
//!
//! ```text
//! message ─┬─ encke.v1: an envelope, executed as a command (publish, subscribe …)
//!          └─ payload: published to the channel of the address
//! ```

use encke_hub::Name;
use encke_wire::http1::put_number;
use encke_wire::websocket::{self, Opcode};

use super::command::{ClientCommand, ClientOp, EnvelopeError};
use super::draft::draft;
use super::form::CLOSE_BYTE;
use super::reject::CLOSE_TRY_AGAIN;
use encke_rights::{Act, Principal};
use encke_server::SocketMessage;

/// A WebSocket subscriber, which may also publish.
pub(crate) struct SocketPublisher {
    pub(crate) identity: Principal,
    pub(crate) publisher: u64,
    /// The channel for payloads; `None`: the client speaks `encke.v1`, and envelopes name their channels.
    pub(crate) channel: Option<Name>,
}

/// Returns the limit of a WebSocket message in bytes: twice a message's, because an envelope is longer than its payload.
pub(crate) fn bytes_max(rules: &encke_hub::Rules) -> u64 {
    rules.message_bytes as u64 * 2
}

/// The command in a WebSocket message.
pub(crate) enum SocketAction {
    /// Publish the message, and acknowledge it under this `ref`.
    Publish(Option<u64>, encke_hub::Draft),
    /// Change the subscribed channels.
    Change { add: Vec<Name>, remove: Vec<Name>, reference: Option<u64> },
    /// None: a response is already written.
    Nothing,
    /// Close: the Close frame is already written.
    Close,
}

impl SocketPublisher {
    /// Parses and authorizes a WebSocket message. Appends the response to a rejected one to `out`.
    pub(crate) fn on_message(&self, message: SocketMessage<'_>, out: &mut Vec<u8>) -> SocketAction {
        if let Some(channel) = &self.channel {
            return self.on_payload(channel, message, out);
        }
        let SocketMessage::Text(text) = message else {
            put_error(out, None, 400, "invalid binary frame: encke.v1 has text frames only");
            return SocketAction::Nothing;
        };
        let said = match ClientCommand::read(text.as_bytes()) {
            Ok(said) => said,
            Err(error) => {
                put_error(out, reference_of(text), 400, &error.to_string());
                return SocketAction::Nothing;
            }
        };
        let reference = said.reference;
        let refused = match said.op {
            ClientOp::Ping => {
                put_ok(out, reference, "");
                return SocketAction::Nothing;
            }
            ClientOp::Publish => match draft(said, self.publisher) {
                Ok(draft) if self.identity.may(Act::Publish, &draft.channel) => {
                    return SocketAction::Publish(reference, draft);
                }
                Ok(draft) => (403, format!("you may not publish to {}", draft.channel)),
                Err(error) => (400, error.to_string()),
            },
            ClientOp::Subscribe | ClientOp::Unsubscribe => match names(&said.channels) {
                Err(error) => (400, error.to_string()),
                Ok(remove) if said.op == ClientOp::Unsubscribe => {
                    return SocketAction::Change { add: Vec::new(), remove, reference };
                }
                Ok(add) => match add.iter().find(|name| !self.identity.may(Act::Subscribe, name)) {
                    None => return SocketAction::Change { add, remove: Vec::new(), reference },
                    Some(name) => (403, format!("you may not subscribe to {name}")),
                },
            },
        };
        put_error(out, reference, refused.0, &refused.1);
        SocketAction::Nothing
    }

    fn on_payload(&self, channel: &Name, message: SocketMessage<'_>, out: &mut Vec<u8>) -> SocketAction {
        if !self.identity.may(Act::Publish, channel) {
            // Without envelopes, only a Close can report the rejection.
            websocket::put_close(out, 4403, "you may not publish here");
            return SocketAction::Close;
        }
        let (data, content_type) = match message {
            SocketMessage::Text(text) => (text.as_bytes(), None),
            SocketMessage::Binary(bytes) => (bytes, Some("application/octet-stream".into())),
        };
        SocketAction::Publish(
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

fn names(texts: &[String]) -> Result<Vec<Name>, EnvelopeError> {
    if texts.is_empty() {
        return Err(EnvelopeError::NoChannels);
    }
    texts
        .iter()
        .map(|text| Name::parse(text.as_bytes()).map_err(|error| EnvelopeError::Channel(text.clone(), error)))
        .collect()
}

/// Returns the `ref` of an invalid envelope, so that the client can match the error.
fn reference_of(text: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.get("ref")?.as_u64()
}

/// Appends a positive response. `fields` begins with a comma, or is empty.
pub(crate) fn put_ok(out: &mut Vec<u8>, reference: Option<u64>, fields: &str) {
    let mut json = Vec::with_capacity(32 + fields.len());
    json.extend_from_slice(b"{\"op\":\"ok\"");
    put_reference(&mut json, reference);
    json.extend_from_slice(fields.as_bytes());
    json.push(b'}');
    websocket::put_frame(out, Opcode::Text, &json);
}

/// Appends an error response with its reason.
pub(crate) fn put_error(out: &mut Vec<u8>, reference: Option<u64>, status: u16, text: &str) {
    let mut json = b"{\"op\":\"error\"".to_vec();
    put_reference(&mut json, reference);
    json.extend_from_slice(format!(",\"status\":{status},\"text\":").as_bytes());
    super::envelope::put_text(&mut json, text);
    json.push(b'}');
    websocket::put_frame(out, Opcode::Text, &json);
}

/// Appends the number of the command that a response belongs to, if it has one.
fn put_reference(json: &mut Vec<u8>, reference: Option<u64>) {
    if let Some(number) = reference {
        json.extend_from_slice(b",\"ref\":");
        put_number(json, number);
    }
}

/// Appends the Close of a WebSocket without envelopes whose message is rejected. `status` is the status of the same rejection by
/// HTTP.
///
/// - 413: 1009, the code of RFC 6455 for a message that is too big.
/// - 503: 1013 with the time to wait in ms, as for rejected subscribers, because the same message may succeed later.
/// - Others: 4000 and the status, as 4403 and 4429.
pub(crate) fn put_rejection(out: &mut Vec<u8>, status: u16, text: &str, retry_ms: u64) {
    match status {
        413 => websocket::put_close(out, CLOSE_TOO_BIG, &format!("{text} (push.message_bytes)")),
        503 => websocket::put_close(out, CLOSE_TRY_AGAIN, &retry_ms.to_string()),
        status => websocket::put_close(out, CLOSE_STATUS + status, text),
    }
}

/// Returns whether output begins with a Close.
pub(crate) fn is_close(out: &[u8]) -> bool {
    out.first() == Some(&CLOSE_BYTE)
}

/// Close code: a message is too big (RFC 6455 §7.4.1).
const CLOSE_TOO_BIG: u16 = 1009;

/// Close codes of rejections without a code of their own: this number and the status.
const CLOSE_STATUS: u16 = 4000;

#[cfg(test)]
mod tests {
    use super::*;
    use encke_server::SocketState;

    #[test]
    fn a_rejection_has_the_close_code_of_its_status() {
        for (status, code, reason) in
            [(413, 1009, "too long (push.message_bytes)"), (503, 1013, "1500"), (507, 4507, "too long")]
        {
            let mut out = Vec::new();
            put_rejection(&mut out, status, "too long", 1_500);
            assert!(is_close(&out), "{status}");
            assert_eq!(out[2..4], u16::to_be_bytes(code), "{status}");
            assert_eq!(String::from_utf8_lossy(&out[4..]), reason, "{status}");
        }
    }

    #[test]
    fn a_socket_at_rest_is_40_bytes() {
        // 32: a `SocketPublisher` (identity 8, publisher 8, channel 16); 8: no traffic.
        assert_eq!(size_of::<SocketState<SocketPublisher>>(), 40);
    }
}
