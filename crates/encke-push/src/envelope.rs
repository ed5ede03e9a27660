//! Envelopes: a message and its metadata as one JSON object.
//!
//! ```json
//! {"id":"EPOCH-OFFSET","channel":"news","event":"price","type":"text/plain","time":"2026-11-21T12:00:00.000Z","data":"…"}
//! ```
//! `data64` replaces `data` if the payload is not UTF-8; `event` is optional. Commands from clients have a similar shape, and
//! an unknown member is an error that names it.

use std::fmt;

use encke_hub::{Gap, GapReason, Id, Message, NameError, Run};
use encke_wire::base64;
use serde::Deserialize;

use encke_wire::civil::Civil;

/// Returns a message's media type, or the default for its payload.
pub(crate) fn content_type(message: &Message) -> &str {
    match &message.content_type {
        Some(given) => given,
        None if message.text => "text/plain; charset=utf-8",
        None => "application/octet-stream",
    }
}

/// Appends a message's envelope.
pub(crate) fn put(out: &mut Vec<u8>, id: Id<'_>, message: &Message) {
    out.extend_from_slice(format!("{{\"id\":\"{id}\",\"channel\":\"{}\"", message.channel).as_bytes());
    if let Some(event) = &message.event {
        out.extend_from_slice(b",\"event\":");
        put_text(out, event);
    }
    out.extend_from_slice(b",\"type\":");
    put_text(out, content_type(message));
    out.extend_from_slice(b",\"time\":\"");
    put_time(out, message.unix_ms);
    match std::str::from_utf8(&message.data) {
        Ok(text) => {
            out.extend_from_slice(b"\",\"data\":");
            put_text(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"\",\"data64\":\"");
            base64::put(out, &message.data);
            out.push(b'"');
        }
    }
    out.push(b'}');
}

/// Appends the report of a gap.
pub(crate) fn put_gap(out: &mut Vec<u8>, gap: &Gap) {
    let text = format!(
        "{{\"op\":\"gap\",\"from\":\"{}\",\"to\":\"{}\",\"reason\":\"{}\"}}",
        gap.from,
        gap.to,
        reason(gap)
    );
    out.extend_from_slice(text.as_bytes());
}

/// Returns the reason of a gap, in one word.
pub(crate) fn reason(gap: &Gap) -> &'static str {
    match gap.reason {
        GapReason::Away => "away",
        GapReason::Late => "late",
        GapReason::Epoch => "epoch",
    }
}

/// Appends the response to a poll for all messages.
pub(crate) fn put_batch(out: &mut Vec<u8>, run: &Run<'_>) {
    out.extend_from_slice(b"{\"messages\":[");
    for (place, message) in run.messages.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put(out, run.id(message), message);
    }
    out.extend_from_slice(format!("],\"next\":\"{}\"", run.end()).as_bytes());
    if run.more > 0 {
        out.extend_from_slice(format!(",\"more\":{}", run.more).as_bytes());
    }
    if let Some(gap) = run.gap {
        out.extend_from_slice(b",\"gap\":");
        put_gap(out, gap);
    }
    out.push(b'}');
}

/// Appends a text as a JSON string.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text is JSON, and memory takes it");
}

/// Appends a time in RFC 3339.
fn put_time(out: &mut Vec<u8>, unix_ms: u64) {
    out.extend_from_slice(&Civil::of(unix_ms / 1_000).rfc3339());
    out.extend_from_slice(format!(".{:03}Z", unix_ms % 1_000).as_bytes());
}

/// A command from a client: a line of NDJSON to publish, or a frame of `encke.v1`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientCommand {
    /// The operation; the default is to publish.
    #[serde(default)]
    pub(crate) op: ClientOp,
    /// A number of the client's choice, repeated in the response.
    #[serde(rename = "ref")]
    pub(crate) reference: Option<u64>,
    /// The channel to publish to.
    pub(crate) channel: Option<String>,
    /// The channels to subscribe to or unsubscribe from.
    #[serde(default)]
    pub(crate) channels: Vec<String>,
    pub(crate) event: Option<String>,
    #[serde(rename = "type")]
    pub(crate) content_type: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) data64: Option<String>,
    /// The idempotency key: a second message with this key is not published again.
    pub(crate) key: Option<String>,
}

/// The operation of a command.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientOp {
    #[default]
    Publish,
    Subscribe,
    Unsubscribe,
    /// A request for a response, which shows that the connection is alive.
    Ping,
}

/// Limit of an event's name, in bytes.
pub(crate) const EVENT_BYTES_MAX: usize = 128;
/// Limit of an idempotency key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 255;

/// Why a command is invalid. The origin is always the client, which receives the text; a retry does not help.
#[derive(Debug)]
pub(crate) enum EnvelopeError {
    /// The command is not JSON, or has an unknown member.
    Json(serde_json::Error),
    NoChannel,
    NoChannels,
    /// The name of a channel is invalid: the name, and the cause.
    Channel(String, NameError),
    /// The idempotency key is too long.
    Key,
    /// The event's name is too long, or has control characters.
    Event,
    /// The type is not a media type.
    Type,
    NoData,
    /// The payload is given twice.
    TwoData,
    /// `data64` is not base64.
    Base64,
}

impl ClientCommand {
    /// Parses a command.
    ///
    /// # Errors
    /// The syntax error, or the unknown member.
    pub(crate) fn read(text: &[u8]) -> Result<Self, EnvelopeError> {
        serde_json::from_slice(text).map_err(EnvelopeError::Json)
    }

    /// Returns the payload and removes it from the command.
    ///
    /// # Errors
    /// There is no payload, there are two, or `data64` is invalid.
    pub(crate) fn payload(&mut self) -> Result<Vec<u8>, EnvelopeError> {
        match (self.data.take(), self.data64.take()) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(text)) => base64::decode(text.as_bytes()).ok_or(EnvelopeError::Base64),
            (None, None) => Err(EnvelopeError::NoData),
            (Some(_), Some(_)) => Err(EnvelopeError::TwoData),
        }
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json(error) => return error.fmt(f),
            Self::NoChannel => "there is no channel",
            Self::NoChannels => "there are no channels",
            Self::Channel(name, error) => return write!(f, "channel {name:?}: {error}"),
            Self::Key => return write!(f, "key has more than {KEY_BYTES_MAX} bytes"),
            Self::Event => {
                return write!(f, "event: at most {EVENT_BYTES_MAX} bytes without control characters");
            }
            Self::Type => "type is no media type",
            Self::NoData => "there is neither data nor data64",
            Self::TwoData => "there are both data and data64",
            Self::Base64 => "data64 is not base64 (RFC 4648 §4)",
        })
    }
}
