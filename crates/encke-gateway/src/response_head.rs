//! The head of an application's response, as the client gets it.

use encke_server::{Body, Fields};
use encke_wire::field::{self, Known};
use encke_wire::http1::{ResponseFraming, ResponseHead};
use encke_wire::method::Method;

use crate::field_changes::FieldChanges;
use crate::response_reader::HeadView;

/// The content of the response for the client.
pub(crate) fn content(method: Method, head: &ResponseHead) -> Body {
    // The length in a response to HEAD is that of the content which GET would get. The worker sends none.
    let method = if method == Method::Head { Method::Get } else { method };
    match head.framing(method) {
        ResponseFraming::None | ResponseFraming::Chunked | ResponseFraming::Close => Body::Open(None),
        ResponseFraming::Length(length) => Body::Open(Some(length)),
    }
}

/// Returns the fields of a response for the client, without fields of the connection and fields for this server.
pub(crate) fn response_fields(view: &HeadView<'_>, changes: &FieldChanges) -> Fields {
    let mut fields = Fields::with_capacity(view.bytes.len());
    let has_named = view.head.known(view.bytes, Known::Connection).is_some();
    let named = || view.head.all(view.bytes, Known::Connection).flat_map(field::list);
    for (name, value) in view.head.fields(view.bytes) {
        let is_dropped = match Known::of(name) {
            Some(known) => matches!(
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
            ),
            None => is_order(name),
        };
        if is_dropped
            || changes.drops(name)
            || has_named && named().any(|option| option.eq_ignore_ascii_case(name))
        {
            continue;
        }
        // The reader has checked both: a field that is not well formed never gets here.
        if let Ok(name) = std::str::from_utf8(name) {
            let _ = fields.push(name, value);
        }
    }
    changes.extend(&mut fields);
    fields
}

/// Whether a field of a response is for this server only.
fn is_order(name: &[u8]) -> bool {
    name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
        || name.eq_ignore_ascii_case(b"x-sendfile")
        || name.eq_ignore_ascii_case(b"x-lighttpd-send-file")
}

/// This server in the path of a message.
pub(crate) const VIA: &[u8] = b"Via: 1.1 encke\r\n";
