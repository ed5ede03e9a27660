//! Refusals of event streams that a later request may not get.
//!
//! A browser's `EventSource` opens its stream again after its end, but never after a response with another status than 200 (HTML
//! §9.2.3): after a 429 or 503 the page would get no message until its next load. So the response is an empty stream with the time to wait.

use encke_wire::field::{self, Known};
use encke_wire::method::Method;
use encke_wire::sse::put_retry;

use crate::reply::{Body, Reply};
use crate::request::Request;

/// Whether a request is that of an `EventSource`: a GET that accepts event streams only.
pub fn is_event_source(request: &Request<'_>) -> bool {
    request.method() == Method::Get && accepts_events_only(request.all(Known::Accept))
}

/// Whether the values of `Accept` name event streams and nothing else.
pub fn accepts_events_only<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut ranges = lines.flat_map(field::list).peekable();
    let is_events = |range: &[u8]| {
        let name = field::parameters(range).next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"text/event-stream")
    };
    ranges.peek().is_some() && ranges.all(is_events)
}

impl Reply {
    /// The same refusal for an `EventSource`, which then tries again after `retry_ms`. Fields and reason stay.
    #[must_use]
    pub fn for_event_source(self, retry_ms: u64) -> Self {
        let mut body = Vec::new();
        put_retry(&mut body, retry_ms);
        let (reason, closes) = (self.reason, self.close);
        let mut reply = Self::new(200)
            .with("Content-Type", "text/event-stream")
            .with("Cache-Control", "no-store, no-transform")
            .with("X-Accel-Buffering", "no")
            .body(Body::Bytes(body));
        for (name, value) in self.fields.iter() {
            let is_of_refusal =
                [&b"content-type"[..], b"cache-control", b"retry-after", b"x-content-type-options"]
                    .iter()
                    .any(|other| name.eq_ignore_ascii_case(other));
            if let (false, Ok(name)) = (is_of_refusal, std::str::from_utf8(name)) {
                // The name and the value were a field before.
                let _ = reply.fields.push(name, value);
            }
        }
        (reply.reason, reply.close) = (reason, closes);
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_source_accepts_nothing_else() {
        for (lines, is_one) in [
            (&["text/event-stream"][..], true),
            (&["Text/Event-Stream; charset=utf-8"], true),
            (&["text/event-stream, */*"], false),
            (&["text/event-stream", "application/json"], false),
            (&["*/*"], false),
            (&[], false),
            (&["x-text/event-stream"], false),
        ] {
            assert_eq!(accepts_events_only(lines.iter().map(|line| line.as_bytes())), is_one, "{lines:?}");
        }
    }

    #[test]
    fn a_refusal_becomes_an_empty_stream() {
        let refusal = Reply::error(503)
            .with("Retry-After", "2")
            .with("Access-Control-Allow-Origin", "*")
            .because(&"ask_failed")
            .and_close();
        let reply = refusal.for_event_source(1_500);
        assert_eq!((reply.status, reply.reason(), reply.close), (200, Some("ask_failed"), true));
        assert!(matches!(&reply.body, Body::Bytes(bytes) if bytes == b"retry: 1500\n\n"));
        let names: Vec<&[u8]> = reply.fields.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [&b"Content-Type"[..], b"Cache-Control", b"X-Accel-Buffering", b"Access-Control-Allow-Origin"]
        );
    }
}
