//! Parsing of requests to channels, once at the boundary, so that all other code handles valid values.
//!
//! ```text
//! GET /push/CH     Upgrade: websocket ─► Socket · Accept or ?as= ─► stream or poll · browser ─► the built-in page
//! POST, PUT        publish          DELETE ─► delete, ?user= ─► log out          ?info ─► counts
//! GET /push/       the list of channels
//! ```

use std::fmt;

use encke_hub::{Epoch, Name, Position, Positions, Since};
use encke_wire::accept;
use encke_wire::conditional::{self, EntityTag};
use encke_wire::field::Known;
use encke_wire::method::Method;
use encke_wire::target::{decode_escapes, query_pairs};

use super::form::{self, MessageForm};
use encke_server::{Reply, Request};

/// Default wait of a poll, in seconds.
pub(crate) const WAIT_S: u64 = 25;
/// Limit of that wait: proxies time out after 60 s.
pub(crate) const WAIT_S_MAX: u64 = 55;

/// The read mode that a GET or HEAD selects.
#[derive(Debug)]
pub(crate) enum ReadMode {
    /// Messages of this kind, by stream or poll.
    Messages(MessageForm),
    /// A WebSocket, with or without `encke.v1`.
    Socket,
    /// The built-in page.
    Page,
    /// Counts of messages and subscribers.
    Info,
}

impl ReadMode {
    /// Returns whether the mode is a stream, which a client selects explicitly.
    pub(crate) const fn is_stream(&self) -> bool {
        match self {
            Self::Messages(kind) => !form::is_poll(*kind),
            Self::Socket => true,
            Self::Page | Self::Info => false,
        }
    }
}

/// The parsed query of a request.
#[derive(Default, Debug)]
pub(crate) struct ReadQuery {
    pub(crate) since: Option<Since>,
    pub(crate) wait_s: Option<u64>,
    pub(crate) shape: Option<Shape>,
    pub(crate) name: Option<String>,
    pub(crate) envelope: bool,
    pub(crate) info: bool,
    pub(crate) trace: bool,
}

/// The value of `?as=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Sse,
    Ws,
    Poll,
    Json,
    Ndjson,
}

/// Limit of a member's self-chosen name, in bytes.
const MEMBER_NAME_BYTES_MAX: usize = 64;

impl ReadQuery {
    /// Parses a query. Unknown keys are ignored, as on any page.
    ///
    /// # Errors
    /// A 400 that names the invalid value.
    pub(crate) fn read(query: Option<&[u8]>) -> Result<Self, Reply> {
        let mut found = Self::default();
        for (key, value) in query_pairs(query.unwrap_or_default()) {
            match &*key {
                "since" => {
                    found.since = Some(
                        Since::parse(&value)
                            .map_err(|error| bad(format!("invalid since={}: {error}", shown(&value))))?,
                    );
                }
                "wait" => {
                    let seconds: u64 = value.parse().map_err(|_| {
                        bad(format!(
                            "invalid wait={}: expected seconds from 0 to {WAIT_S_MAX}",
                            shown(&value)
                        ))
                    })?;
                    found.wait_s = Some(seconds.min(WAIT_S_MAX));
                }
                "as" => {
                    found.shape = Some(match &*value {
                        "sse" => Shape::Sse,
                        "ws" => Shape::Ws,
                        "poll" => Shape::Poll,
                        "json" => Shape::Json,
                        "ndjson" => Shape::Ndjson,
                        _ => {
                            return Err(bad(format!(
                                "invalid as={}: expected sse, ws, poll, json or ndjson",
                                shown(&value)
                            )));
                        }
                    });
                }
                "name" => {
                    if value.len() > MEMBER_NAME_BYTES_MAX || value.chars().any(char::is_control) {
                        return Err(bad(format!(
                            "invalid name: expected at most {MEMBER_NAME_BYTES_MAX} bytes without control characters"
                        )));
                    }
                    found.name = Some(value.into_owned()).filter(|name| !name.is_empty());
                }
                "envelope" => found.envelope = true,
                "info" => found.info = true,
                "trace" => found.trace = true,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// Parses the channels in a path after the prefix: `A` or `A,B,C`. The characters of a name may be escaped (RFC 3986 §2.1), but
/// not its slashes, nor the commas between names.
///
/// # Errors
/// A 400: a name is invalid, or there are more than `most` names.
pub(crate) fn channels(path: &[u8], most: usize) -> Result<Vec<Name>, Reply> {
    let mut names: Vec<Name> = Vec::new();
    for part in path.split(|byte| *byte == b',') {
        let wrong = |error: &dyn fmt::Display| {
            bad(format!("channel {:?}: {error}", shown(&String::from_utf8_lossy(part))))
        };
        let decoded = decode_escapes(part).map_err(|error| wrong(&error))?;
        let name = Name::parse(&decoded).map_err(|error| wrong(&error))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > most {
        return Err(bad(format!("{} channels in one stream: at most {most} are allowed", names.len())));
    }
    Ok(names)
}

/// Returns the read mode that a GET or HEAD selects.
pub(crate) fn wish(request: &Request<'_>, query: &ReadQuery, channels: usize) -> ReadMode {
    let upgrade = request.all(Known::Upgrade).any(|value| value.eq_ignore_ascii_case(b"websocket"));
    if query.info {
        return ReadMode::Info;
    }
    if upgrade || query.shape == Some(Shape::Ws) {
        return ReadMode::Socket;
    }
    let sse = if channels > 1 || query.envelope { MessageForm::SseEnvelope } else { MessageForm::Sse };
    match query.shape {
        Some(Shape::Sse) => return ReadMode::Messages(sse),
        Some(Shape::Ndjson) => return ReadMode::Messages(MessageForm::Ndjson),
        Some(Shape::Json) => return ReadMode::Messages(MessageForm::Json),
        Some(Shape::Poll) => return ReadMode::Messages(MessageForm::Raw),
        Some(Shape::Ws) | None => {}
    }
    // A client that accepts anything, or no type of ours, receives the plain message.
    const OFFERED: [&str; 4] = ["text/event-stream", "application/x-ndjson", "application/json", "text/html"];
    let lines = request.all(Known::Accept);
    let named = |offer: &str| {
        lines.clone().any(|line| {
            line.split(|byte| *byte == b',').any(|range| {
                let range = range.split(|byte| *byte == b';').next().unwrap_or_default();
                range.trim_ascii().eq_ignore_ascii_case(offer.as_bytes())
            })
        })
    };
    let offered: Vec<&str> = OFFERED.iter().copied().filter(|offer| named(offer)).collect();
    match accept::preferred(lines.clone(), &offered).and_then(|place| offered.get(place)) {
        Some(&"text/event-stream") => ReadMode::Messages(sse),
        Some(&"application/x-ndjson") => ReadMode::Messages(MessageForm::Ndjson),
        Some(&"application/json") => ReadMode::Messages(MessageForm::Json),
        Some(&"text/html") if request.method() == Method::Get && channels == 1 => ReadMode::Page,
        _ => ReadMode::Messages(MessageForm::Raw),
    }
}

/// A position in none of our streams: a client that resumes from it receives a gap.
const FOREIGN: Position = Position { epoch: Epoch(0), offset: 0 };

/// Returns the start position of a subscriber: `Last-Event-ID`, then `If-None-Match` of a poll, then `?since=`, else now.
pub(crate) fn since(request: &Request<'_>, query: &ReadQuery, poll: bool) -> Since {
    let text = |known| request.known(known).and_then(|value| std::str::from_utf8(value.trim_ascii()).ok());
    if let Some(id) = text(Known::LastEventId).filter(|id| !id.is_empty()) {
        // A foreign id counts as one of another epoch, because its sender has missed messages.
        return Since::After(id.parse().unwrap_or(FOREIGN.into()));
    }
    if poll && let Some(positions) = if_none_match_position(request) {
        return Since::After(positions);
    }
    query.since.clone().unwrap_or(Since::Now)
}

/// Returns the position in `If-None-Match`, by weak comparison (RFC 9110 §13.1.2); `*` has none. The earliest position of
/// several tags counts, so that no message is lost. A foreign tag, or tags of different epochs, are a position in no stream.
/// The suffix of a compressing proxy is not part of a tag.
fn if_none_match_position(request: &Request<'_>) -> Option<Positions> {
    let tags = request.all(Known::IfNoneMatch).flat_map(conditional::tags).filter(|tag| *tag != b"*");
    let position = |tag| {
        let EntityTag { opaque, .. } = EntityTag::parse(tag)?;
        let text = std::str::from_utf8(opaque).ok()?;
        let own = SUFFIXES.iter().find_map(|suffix| text.strip_suffix(suffix)).unwrap_or(text);
        own.parse().ok()
    };
    let earliest = |one: Option<Positions>, other: Option<Positions>| one?.earlier(&other?);
    tags.map(position).reduce(earliest).map(|found| found.unwrap_or(FOREIGN.into()))
}

/// Suffixes that Apache httpd (`-gzip`, `-br`) and Jetty (`--gzip`) append to tags when they compress a response.
const SUFFIXES: [&str; 5] = ["--gzip", "-gzip", "-br", "-zstd", ";gzip"];

/// How much of a client's own text an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// Returns the beginning of a client's own text, for an error.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a 400 with this text.
pub(crate) fn bad(text: String) -> Reply {
    refusal(400, text)
}

/// Returns an error of push with this text.
pub(crate) fn refusal(status: u16, text: String) -> Reply {
    Reply::text(status, text + "\n")
        .with("X-Content-Type-Options", "nosniff")
        .with("Cache-Control", "no-store")
        .because(reason(status))
}

/// The reason in the access log for an error with this status. The text of the response has the details.
const fn reason(status: u16) -> &'static &'static str {
    match status {
        401 => &"token_required",
        403 => &"no_right",
        404 => &"no_channel",
        405 => &"method_of_channel",
        413 => &"publish_too_large",
        429 => &"too_fast",
        503 => &"push_unavailable",
        507 => &"store_full",
        _ => &"push_request",
    }
}
