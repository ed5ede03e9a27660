//! The response to a HEAD of a stream or a poll.

use encke_rights::Share;
use encke_server::{Asked, CloseReason, ContentLength, Fields, FramingKind, Slot};

use super::form::{self, MessageForm};

/// Responds to a HEAD with the fields that a GET would get (RFC 9110 §9.3.2). The content of a stream or a poll has no length yet.
/// `head`: the fields of a media stream.
pub(crate) fn describe_stream(
    slot: &mut Slot<'_>,
    asked: Asked,
    kind: MessageForm,
    (head, share): (Option<&Fields>, &Share),
) {
    let fields = match head {
        None if !form::is_poll(kind) => {
            form::stream_fields(form::form(kind, form::framing_bits(asked.framing)), share)
        }
        head => {
            let mut fields = head.cloned().unwrap_or_default();
            if head.is_none() {
                fields
                    .push("Cache-Control", b"no-store")
                    .expect("a field of this program's own is well formed");
            }
            fields.extend(&share.fields());
            fields
        }
    };
    if !asked.keep || asked.framing == FramingKind::Close {
        slot.end_after(CloseReason::Answered);
    }
    slot.put_head(asked.framing, 200, &fields, ContentLength::Open);
    slot.responded(200, 0);
}
