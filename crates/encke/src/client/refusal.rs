//! Texts for error responses: the reason and the remedy.

use super::connection::{ClientResponse, ClientResponseHead};
use super::location::ServerLocation;
use crate::error::CommandError;

/// Maximum number of characters shown of a server's own text: one or two lines of a terminal.
const WORDS_MAX: usize = 200;

/// The attempted operation, for the texts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Publish,
    Subscribe,
}

impl Attempt {
    const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish to",
            Self::Subscribe => "subscribe to",
        }
    }
}

/// Describes an error response.
pub(crate) fn of(
    server: &ServerLocation,
    path: &str,
    attempt: Attempt,
    has_token: bool,
    answer: &ClientResponse,
) -> CommandError {
    let ClientResponse { head, body } = answer;
    let words = words(head, body);
    let said = if words.is_empty() { String::new() } else { format!(" ({words})") };
    let what = attempt.name();
    let text = match head.status() {
        400 => format!("invalid request for {path}{said}"),
        401 if has_token => {
            format!("invalid token{said}: is it for this server, and has it expired?")
        }
        401 => format!("a token is required{said}: set --token or $ENCKE_TOKEN; `encke token` signs one"),
        403 if has_token => format!("the token has no right to {what} {path}{said}"),
        403 => format!("a token is required to {what} {path}{said}: set --token or $ENCKE_TOKEN"),
        404 | 405 => {
            format!("no channel at {path}{said}: is push enabled, and is this its prefix?")
        }
        413 => format!("the message is too large{said}"),
        422 => format!("another message was published with this --key{said}"),
        429 => format!("too many requests{said}: --rate slows down"),
        507 => format!("no space to store the message{said}"),
        502..=504 => format!("temporarily unavailable{said}; try again later"),
        status @ 300..=399 => match head.field("Location") {
            Some(place) => format!("{path} has moved to {}", plain(place)),
            None => unexpected(status, &said),
        },
        status => unexpected(status, &said),
    };
    CommandError::server(text).context(server)
}

/// The text for a status that Encke does not send for channels.
fn unexpected(status: u16, said: &str) -> String {
    format!("unexpected status {status}{said}; is this an Encke server?")
}

/// Returns the first line of a `text/plain` response. HTML pages are not shown on a terminal.
fn words(head: &ClientResponseHead, body: &[u8]) -> String {
    if !head.is_type("text/plain") {
        return String::new();
    }
    let text = String::from_utf8_lossy(body);
    plain(text.trim().lines().next().unwrap_or_default())
}

/// Removes control characters, which could control the terminal, and truncates the text.
fn plain(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(WORDS_MAX).collect()
}
