//! The head of an application's response, as the client gets it.

use encke_server::{Body, Fields};
use encke_wire::field::{self, Known};
use encke_wire::http1::{AppResponseReader, HeadView, ResponseFraming, ResponseHead};
use encke_wire::method::Method;

use crate::field_changes::FieldChanges;
use crate::response_coding::is_digest;

/// Time for which a connection rests if its last response may have content behind its head, in ns. Content that arrives meanwhile
/// closes it.
pub(crate) const TRAIL_NS: u64 = 1_000_000_000;

/// The content of the response for the client.
pub(crate) fn content(method: Method, head: &ResponseHead) -> Body {
    // The length in a response to HEAD is that of the content which GET would get. The worker sends none.
    let method = if method == Method::Head { Method::Get } else { method };
    match head.framing(method) {
        ResponseFraming::None | ResponseFraming::Chunked | ResponseFraming::Close => Body::Open(None),
        ResponseFraming::Length(length) => Body::Open(Some(length)),
    }
}

/// Whether an application may send content that this response must not have: to HEAD, and with 204 or 304 if its head announces
/// content. An application that does so by mistake would respond to the next request of the connection with it.
pub(crate) fn may_trail(method: Method, head: &ResponseHead) -> bool {
    head.framing(method) == ResponseFraming::None && (method == Method::Head || head.announces_content())
}

/// Returns the fields of a response for the client, without fields of the connection and fields for this server.
pub(crate) fn response_fields(view: &HeadView<'_>, changes: &FieldChanges) -> Fields {
    let mut fields = Fields::with_capacity(view.bytes.len());
    let named = || view.head.all(view.bytes, Known::Connection).flat_map(field::list);
    let has_named = named().any(names_a_field);
    for field in view.head.head_fields(view.bytes) {
        let name = field.name;
        let is_dropped = match field.known {
            Some(known) => is_hop_by_hop(known),
            None => is_order(name),
        };
        if is_dropped
            || changes.drops(name)
            || has_named && named().any(|option| option.eq_ignore_ascii_case(name))
        {
            continue;
        }
        fields.push_parsed(&field);
    }
    changes.extend(&mut fields);
    fields
}

/// Whether an option of Connection may be the name of a field (RFC 9110 §7.6.1): most messages have only these others.
pub(crate) fn names_a_field(option: &[u8]) -> bool {
    !option.eq_ignore_ascii_case(b"keep-alive") && !option.eq_ignore_ascii_case(b"close")
}

/// The trailers of a response for the client, without those of the connection and those that the route removes.
/// `is_coded`: the content is compressed, so no digest of it is right.
pub(crate) fn trailer_fields(reader: &AppResponseReader, changes: &FieldChanges, is_coded: bool) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in reader.trailers() {
        let is_dropped = match Known::of(name) {
            Some(known) => {
                is_hop_by_hop(known)
                    || matches!(known, Known::ContentEncoding | Known::ContentRange | Known::Host)
            }
            None => is_order(name) || name.eq_ignore_ascii_case(b"set-cookie") || is_coded && is_digest(name),
        };
        if !is_dropped
            && !changes.drops(name)
            && let Ok(name) = std::str::from_utf8(name)
        {
            // The decoder has checked both.
            let _ = fields.push(name, value);
        }
    }
    fields
}

/// Fields of the application's connection, and fields that this server writes itself.
const fn is_hop_by_hop(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::ContentLength
            | Known::Date
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Te
            | Known::Trailer
            | Known::TransferEncoding
            | Known::Upgrade
    )
}

/// Whether a field of a response is for this server only. `X-Accel-Buffering` also is for a server before this one, which would
/// otherwise keep back events: this server never does.
fn is_order(name: &[u8]) -> bool {
    name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
        && !name.eq_ignore_ascii_case(b"x-accel-buffering")
        || name.eq_ignore_ascii_case(b"x-sendfile")
        || name.eq_ignore_ascii_case(b"x-lighttpd-send-file")
}

/// This server in the path of a message.
pub(crate) const VIA: &[u8] = b"Via: 1.1 encke\r\n";
