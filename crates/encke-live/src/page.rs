//! The pages of live streams for browsers, and their JSON.

use encke_push::page;
use encke_server::{Body, Reply, Request};
use encke_wire::accept;
use encke_wire::field::Known;
use serde_json::{Value, json};

/// Returns whether a request asks for a page: it names `text/html`, as browsers do when they open an address. `<video>` and
/// players do not.
pub(crate) fn is_wanted(request: &Request<'_>) -> bool {
    let lines = request.all(Known::Accept);
    accept::names(lines.clone(), "text/html")
        && accept::preferred(lines, &["text/html", "application/json"]) == Some(0)
}

/// Returns the page that plays a stream.
pub(crate) fn player() -> Reply {
    page(include_str!("player.html"), "media-src 'self' blob:; frame-ancestors 'self'")
}

/// Returns the page with all streams. It reads the list as JSON from its own address.
pub(crate) fn list() -> Reply {
    page(include_str!("list.html"), "frame-ancestors 'self'")
}

/// Returns the list of streams as JSON.
pub(crate) fn json_list(streams: &[Value]) -> Reply {
    json(&json!({ "schema": 1, "streams": streams }))
}

/// Returns a value as JSON.
pub(crate) fn json(value: &Value) -> Reply {
    Reply::new(200)
        .with("Content-Type", "application/json")
        .with("Cache-Control", "no-store")
        .with("Vary", "Accept")
        .with("X-Content-Type-Options", "nosniff")
        .body(Body::Bytes(value.to_string().into_bytes()))
}
