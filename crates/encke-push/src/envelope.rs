//! Envelopes: a message and its metadata as one JSON object.
//!
//! ```json
//! {"id":"EPOCH-OFFSET","channel":"news","event":"price","type":"text/plain","time":"2026-11-21T12:00:00.000Z","data":"…"}
//! ```
//! `data` is always a string: a message of the type `application/json` is a string with JSON in it, so that `data` reads the same
//! whatever the publisher sent. `data64` replaces `data` if the payload is not UTF-8; `event` is optional. [`command`](super::command)
//! parses what clients send.

use std::io::Write as _;

use encke_hub::{Gap, GapReason, Id, Message, Run};
use encke_wire::base64;

use encke_wire::civil::Civil;

/// Returns a message's media type, or the default for its payload.
pub(crate) fn content_type(message: &Message) -> &str {
    match &message.content_type {
        Some(given) => given,
        None if message.text => "text/plain; charset=utf-8",
        None => "application/octet-stream",
    }
}

/// Returns the media type of a response that has a message as its content.
///
/// Scripts and style sheets are served as text. With `nosniff` no page loads them, also not one whose policy allows `'self'`:
/// otherwise every publisher could add scripts to the pages of its origin. `Content-Security-Policy: sandbox` covers documents alone.
pub(crate) fn response_type(message: &Message) -> &str {
    let given = content_type(message);
    if is_code(given) { "text/plain; charset=utf-8" } else { given }
}

/// Whether browsers load a media type as a script (WHATWG MIME Sniffing §4.6, under all its names) or a style sheet.
fn is_code(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().as_bytes();
    let has = |word: &str| essence.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    ["javascript", "ecmascript", "jscript", "livescript"].into_iter().any(has)
        || essence.eq_ignore_ascii_case(b"text/css")
}

/// Appends a message's envelope.
pub(crate) fn put(out: &mut Vec<u8>, id: Id<'_>, message: &Message) {
    write!(out, "{{\"id\":\"{id}\",\"channel\":\"").expect("memory takes it");
    out.extend_from_slice(message.channel.as_str().as_bytes());
    out.push(b'"');
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
    let digit = |unit: u64| b'0' + (unix_ms / unit % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
}
