//! The response to a HEAD of a stream or a poll.

use encke_server::{Asked, CloseReason, ContentLength, Fields, FramingKind, Slot};

use super::form;
use super::push_worker::Subscription;

/// Responds to a HEAD with the fields that a GET would get (RFC 9110 §9.3.2). The content of a stream or a poll has no length yet.
pub(crate) fn describe_stream(slot: &mut Slot<'_>, asked: Asked, subscription: &Subscription) {
    let mut fields = match (&subscription.head, form::is_poll(subscription.kind)) {
        (Some(head), _) => Fields::clone(head),
        (None, false) => form::stream_fields(
            form::form(subscription.kind, form::framing_bits(asked.framing)),
            &subscription.share,
        ),
        (None, true) => {
            let mut fields = Fields::new();
            fields.push("Cache-Control", b"no-store").expect("a field of this program's own is well formed");
            fields
        }
    };
    if subscription.head.is_some() || form::is_poll(subscription.kind) {
        fields.extend(&subscription.share.fields());
    }
    if !asked.keep || asked.framing == FramingKind::Close {
        slot.end_after(CloseReason::Answered);
    }
    slot.put_head(asked.framing, 200, &fields, ContentLength::Open);
    slot.responded(200, 0);
}
