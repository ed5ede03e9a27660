//! Messages to publish, built from envelopes and validated.

use encke_hub::{Draft, Flags, IdempotencyKey, Name};

use crate::command::{ClientCommand, CommandPayload, EVENT_BYTES_MAX, EnvelopeError, KEY_BYTES_MAX};

/// Builds the message that an envelope publishes. `publisher` scopes its idempotency key.
///
/// # Errors
/// A member is missing or invalid.
pub(crate) fn draft(mut command: ClientCommand, publisher: u64) -> Result<Draft, EnvelopeError> {
    let channel = command.channel.take().ok_or(EnvelopeError::NoChannel)?;
    let channel = Name::parse(channel.as_bytes()).map_err(|error| EnvelopeError::Channel(channel, error))?;
    let CommandPayload { bytes, default_type } = command.payload()?;
    let key = command.key.take().map(|key| IdempotencyKey { publisher, key: key.into() });
    if let Some(key) = key.as_ref().filter(|key| key.key.len() > KEY_BYTES_MAX) {
        return Err(EnvelopeError::Key(key.key.len()));
    }
    let event: Option<Box<str>> = command.event.map(Into::into);
    if event
        .as_deref()
        .is_some_and(|event| event.len() > EVENT_BYTES_MAX || event.chars().any(char::is_control))
    {
        return Err(EnvelopeError::Event);
    }
    let content_type: Option<Box<str>> = command.content_type.map(Into::into);
    if content_type.as_deref().is_some_and(|given| !is_type(given)) {
        return Err(EnvelopeError::Type);
    }
    let content_type = content_type.or_else(|| default_type.map(Into::into));
    let data = bytes.into_boxed_slice();
    Ok(Draft { channel, data, content_type, event, flags: Flags::default(), key })
}

/// Returns whether a text is valid in a `Content-Type` field: visible ASCII and spaces, `x/y`, at most 255 bytes.
pub(crate) fn is_type(given: &str) -> bool {
    given.len() <= 255
        && given.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && media(given).split_once('/').is_some_and(|(main, sub)| !main.is_empty() && !sub.is_empty())
}

/// Returns a media type without its parameters.
pub(crate) fn media(given: &str) -> &str {
    given.split(';').next().unwrap_or_default().trim()
}
