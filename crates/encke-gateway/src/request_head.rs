//! Writes the head of a request for an application, from the parsed view of the client's request.
//!
//! ```text
//!  client ─► Request ─┬─ method, path, query ───────────────────────► request line
//!                     ├─ authority ─────────────────────────────────► Host
//!                     ├─ fields, except those of the connection ────► fields
//!                     ├─ framing (ours: a length, or chunks) ───────► Content-Length, Transfer-Encoding
//!                     └─ origin (address, scheme) ──────────────────► X-Forwarded-For, -Proto, -Host
//! ```
//! Nothing is copied as a whole: a client cannot pass a second Host or another framing to the application (RFC 9112 §11.2).

use std::io::Write as _;
use std::net::IpAddr;

use encke_io::Peer;
use encke_server::{Origin, PassedFields, Request, are_alike};
use encke_wire::field::{self, Known};
use encke_wire::http1::{Framing, put_number};
use encke_wire::target::put_resolved_path;

use crate::conditions::put_restored;
use crate::field_changes::{FieldChanges, FieldValues};
use crate::response_head::{VIA, names_a_field};

/// The protocol that a client asks to change to (RFC 9110 §7.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upgrading {
    No,
    WebSocket,
}

/// What [`put_request_head`] needs besides the request.
pub(crate) struct RequestHeadPlan<'a> {
    /// The escaped path in place of the request's.
    pub(crate) path: Option<&'a str>,
    /// Changes to the fields.
    pub(crate) changes: &'a FieldChanges,
    pub(crate) upgrading: Upgrading,
    /// Whether the application may keep the connection.
    pub(crate) keep: bool,
    pub(crate) origin: &'a Origin,
    /// Whether the head has Forwarded, and Via.
    pub(crate) forwarded: bool,
    pub(crate) via: bool,
    /// Whether the client may wait for the application's consent to its body.
    pub(crate) expect: bool,
    /// Whether responses are compressed, so that the client's entity tags may be weak ones of Encke.
    pub(crate) restores: bool,
}

/// Appends the head of the request for the application to `out`. Returns false if the path cannot be forwarded: the client
/// gets a 400.
pub(crate) fn put_request_head(out: &mut Vec<u8>, request: &Request<'_>, plan: &RequestHeadPlan<'_>) -> bool {
    out.extend_from_slice(request.method_text());
    out.push(b' ');
    match plan.path {
        Some(path) => out.extend_from_slice(path.as_bytes()),
        None if !put_resolved_path(out, request.path()) => return false,
        None => {}
    }
    if let Some(query) = request.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if !plan.changes.drops(b"host") {
        out.extend_from_slice(b"Host: ");
        out.extend_from_slice(request.authority());
        out.extend_from_slice(b"\r\n");
    }
    put_fields(out, request, plan, plan.origin.forwards);
    put_forwarded(out, request, plan);
    if plan.via {
        out.extend_from_slice(VIA);
    }
    if !plan.changes.is_empty() {
        let client = plan.origin.client.map(|client| client.to_canonical().to_string());
        let values = FieldValues {
            client: client.as_deref().unwrap_or_default(),
            host: request.authority(),
            scheme: scheme(plan.origin),
            user: request.user().unwrap_or_default(),
        };
        plan.changes.put(out, &values);
    }
    match request.framing() {
        Framing::None => {}
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            put_number(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(CHUNKED),
    }
    match plan.upgrading {
        Upgrading::WebSocket => out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        Upgrading::No if accepts_trailers(request) => {
            let keep: &[u8] = if plan.keep { b"" } else { b"close, " };
            out.extend_from_slice(b"TE: trailers\r\nConnection: ");
            out.extend_from_slice(keep);
            out.extend_from_slice(b"TE\r\n");
        }
        Upgrading::No if !plan.keep => out.extend_from_slice(b"Connection: close\r\n"),
        Upgrading::No => {}
    }
    out.extend_from_slice(b"\r\n");
    true
}

/// Replaces the chunks in a head of [`put_request_head`] by a length.
pub(crate) fn set_length(head: &mut Vec<u8>, length: u64) {
    // A field of the client may end with the same bytes: only a whole line is ours, and no line of the client is the same.
    let is_line = |at: &usize| {
        let (before, rest) = head.split_at(*at);
        before.ends_with(b"\r\n") && rest.starts_with(CHUNKED)
    };
    if let Some(start) = (0..head.len()).rev().find(is_line) {
        let mut line = b"Content-Length: ".to_vec();
        put_number(&mut line, length);
        line.extend_from_slice(b"\r\n");
        head.splice(start..start + CHUNKED.len(), line);
    }
}

/// The only line of this name: the client's own is dropped.
const CHUNKED: &[u8] = b"Transfer-Encoding: chunked\r\n";

/// Whether the client accepts trailers (RFC 9110 §10.1.4).
pub(crate) fn accepts_trailers(request: &Request<'_>) -> bool {
    request.known(Known::Te).is_some()
        && request.all(Known::Te).flat_map(field::list).any(|name| name.eq_ignore_ascii_case(b"trailers"))
}

/// Appends the client's fields for the application: all but those of the connection, of the framing, and those that would let
/// a client speak for this server.
fn put_fields(out: &mut Vec<u8>, request: &Request<'_>, plan: &RequestHeadPlan<'_>, by_proxy: bool) {
    let has_named = request.all(Known::Connection).flat_map(field::list).any(names_a_field);
    let passed = request.passed_fields();
    let has_removed = has_named || passed.is_some();
    for field in request.head_fields() {
        let name = field.name;
        let is_dropped = match field.known {
            Some(Known::XForwardedHost) => !by_proxy,
            Some(Known::Expect) => !plan.expect,
            Some(known) => is_replaced(known),
            None => is_forged(name, by_proxy),
        };
        let is_removed = || {
            has_named && is_named_by_connection(request, name)
                || passed.is_some_and(|passed| passed.removes(name))
        };
        if is_dropped || plan.changes.drops(name) || has_removed && is_removed() {
            continue;
        }
        if plan.restores
            && let Some(known @ (Known::IfMatch | Known::IfNoneMatch)) = field.known
            && put_restored(out, known, field.value)
        {
            continue;
        }
        field.put(out);
    }
    if let Some(passed) = passed {
        put_passed(out, passed, plan.changes);
    }
}

/// Appends the fields of guards, such as the name of a user. The route may replace them.
#[cold]
fn put_passed(out: &mut Vec<u8>, passed: &PassedFields, changes: &FieldChanges) {
    for (name, value) in passed.fields.iter().filter(|(name, _)| !changes.drops(name)) {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Fields of the client's connection (RFC 9110 §7.6.1), and fields that the gateway writes itself.
const fn is_replaced(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::ContentLength
            | Known::Forwarded
            | Known::Host
            | Known::Http2Settings
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Te
            | Known::Trailer
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::XForwardedFor
            | Known::XForwardedProto
    )
}

/// Fields that only this server may send to an application. `Proxy` becomes the variable `HTTP_PROXY` of CGI programs
/// (httpoxy); `X-Accel-` and `X-Sendfile-` name directories from which applications let the server send files (CVE-2025-61780).
/// Many applications take a name with an underscore for the same with a hyphen, so none passes; some do so with every other
/// character. Only a trusted proxy may send `X-Forwarded-…`.
fn is_forged(name: &[u8], by_proxy: bool) -> bool {
    let begins = |prefix: &[u8]| name.get(..prefix.len()).is_some_and(|start| are_alike(start, prefix));
    name.contains(&b'_')
        || name.eq_ignore_ascii_case(b"proxy")
        // Whatever a proxy sends: `X.Forwarded-For` is the variable of `X-Forwarded-For` to some applications.
        || name.get(..X_FORWARDED.len()).is_some_and(|start| !is_plain(start) && are_alike(start, X_FORWARDED))
        || begins(b"x-accel-")
        || begins(b"x-sendfile-")
        || !by_proxy && begins(X_FORWARDED)
}

const X_FORWARDED: &[u8] = b"x-forwarded-";

/// Whether a name has only letters, digits and hyphens.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_named_by_connection(request: &Request<'_>, name: &[u8]) -> bool {
    request.all(Known::Connection).flat_map(field::list).any(|option| option.eq_ignore_ascii_case(name))
}

/// Appends the client's address, scheme and host. The client's own fields count only if a trusted proxy sent them: then the
/// address of that proxy is appended to its list.
fn put_forwarded(out: &mut Vec<u8>, request: &Request<'_>, plan: &RequestHeadPlan<'_>) {
    let origin = plan.origin;
    if plan.forwarded {
        put_standard(out, request, origin);
    }
    let peer = peer_address(origin);
    let client = origin.client.map(|address| address.to_canonical());
    if !plan.changes.drops(b"x-forwarded-for") {
        out.extend_from_slice(b"X-Forwarded-For: ");
        if origin.forwards {
            for line in request.all(Known::XForwardedFor) {
                out.extend_from_slice(line);
                out.extend_from_slice(b", ");
            }
        } else if origin.is_by_proxy() {
            // The proxy has named the client in Forwarded, and the list is text of the client.
            match client {
                Some(client) => put_address(out, client),
                None => out.extend_from_slice(b"unknown"),
            }
            out.extend_from_slice(b", ");
        }
        match peer {
            Some(peer) => put_address(out, peer),
            None => out.extend_from_slice(b"unix:"),
        }
        out.extend_from_slice(b"\r\n");
    }
    put_own(out, plan.changes, "X-Forwarded-Proto", scheme(origin).as_bytes());
    if !origin.forwards || request.known(Known::XForwardedHost).is_none() {
        put_own(out, plan.changes, "X-Forwarded-Host", request.authority());
    }
}

/// Appends a field, unless the route drops it.
fn put_own(out: &mut Vec<u8>, changes: &FieldChanges, name: &str, value: &[u8]) {
    if !changes.drops(name.as_bytes()) {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn peer_address(origin: &Origin) -> Option<IpAddr> {
    match origin.peer {
        Peer::Inet(address) => Some(address.ip().to_canonical()),
        Peer::Local => None,
    }
}

/// Appends the same as one element of Forwarded (RFC 7239 §4). An IPv6 address is quoted, because it has colons.
fn put_standard(out: &mut Vec<u8>, request: &Request<'_>, origin: &Origin) {
    out.extend_from_slice(b"Forwarded: for=");
    let address = match origin.client.map(|client| client.to_canonical()) {
        Some(IpAddr::V4(client)) => client.to_string(),
        Some(IpAddr::V6(client)) => format!("\"[{client}]\""),
        None => "unknown".into(),
    };
    out.extend_from_slice(address.as_bytes());
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme(origin).as_bytes());
    out.extend_from_slice(b";host=\"");
    out.extend_from_slice(request.authority());
    out.extend_from_slice(b"\"\r\n");
}

const fn scheme(origin: &Origin) -> &'static str {
    if origin.secure { "https" } else { "http" }
}

/// Appends an address as text.
pub(crate) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        // Nearly every request has one, and formatting takes longer.
        IpAddr::V4(address) => {
            for (place, octet) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                put_number(out, u64::from(octet));
            }
        }
        IpAddr::V6(address) => {
            // Writing to a vector cannot fail.
            let _ = write!(out, "{address}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_applications_take_for_those_of_this_server_are_forged() {
        for (name, from_client, from_proxy) in [
            ("X_User", true, true),
            ("X.Accel-Redirect", true, true),
            ("x~sendfile-type", true, true),
            ("X.Forwarded-For", true, true),
            ("X-Forwarded.Host", true, true),
            ("X-Forwarded-Host", true, false),
            ("X-Forwarded-Ssl", true, false),
            ("X.Own", false, false),
            ("X-Forwarder", false, false),
        ] {
            let found = [false, true].map(|by_proxy| is_forged(name.as_bytes(), by_proxy));
            assert_eq!(found, [from_client, from_proxy], "{name}");
        }
    }

    #[test]
    fn a_length_replaces_the_chunks_and_no_text_of_the_client() {
        for own in [
            "X-Transfer-Encoding: chunked",
            "A: b Transfer-Encoding: chunked",
            "Transfer-Encoding-X: chunked",
        ] {
            let chunked = format!("POST / HTTP/1.1\r\n{own}\r\nTransfer-Encoding: chunked\r\nTE: x\r\n\r\n");
            let mut head = chunked.into_bytes();
            set_length(&mut head, 40);
            let expected = format!("POST / HTTP/1.1\r\n{own}\r\nContent-Length: 40\r\nTE: x\r\n\r\n");
            assert_eq!(String::from_utf8_lossy(&head), expected);
        }
    }
}
