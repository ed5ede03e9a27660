//! Parked subscribers: the record of a subscriber at rest, with its position, its form and the names of its channels.
//!
//! Not supported yet: WebSockets, and subscribers with a token, whose rights would have to be checked again.

use encke_hub::{Epoch, Form, Member, Name, Once, Position, Since, Subscribe, SubscriberId};

use super::form::{self, MessageForm};
use super::push_worker::{PushWorker, hub_now};
use encke_server::Slot;

/// Bytes of a subscriber's record before the names.
///
/// ```text
///  0  version    1  form    2  zeros    4  epoch, little-endian    12  offset    20  names: `a,b` or `a,b\nann`
/// ```
/// The names are the channels, and after a line end the member.
const HEAD_BYTES: usize = 20;
/// The current version of the record.
const VERSION: u8 = 1;

impl PushWorker {
    /// Returns the record of a subscribed connection, which stays subscribed. `None` for a WebSocket, for a subscriber with a
    /// row in the side table, or if deliveries are in progress.
    pub(crate) fn park_subscriber(&mut self, slot: &mut Slot<'_>) -> Option<Vec<u8>> {
        let form = slot.form();
        if form::is_socket(form::kind(Form(form)))
            || form::has(Form(form), form::RESUMED)
            || self.sides.has_row(slot.place())
        {
            return None;
        }
        let parked = self.hub.parked(SubscriberId(slot.word()))?;
        let Subscribe { channels, since: Since::After(positions), member, .. } = parked else { return None };
        let [position] = positions.as_slice() else { return None };
        let mut record = vec![VERSION, form, 0, 0];
        record.extend_from_slice(&position.epoch.0.to_le_bytes());
        record.extend_from_slice(&position.offset.to_le_bytes());
        for (nth, channel) in channels.iter().enumerate() {
            if nth > 0 {
                record.push(b',');
            }
            record.extend_from_slice(channel.as_str().as_bytes());
        }
        if let Some(member) = &member {
            record.push(b'\n');
            record.extend_from_slice(member.name.as_bytes());
        }
        Some(record)
    }

    /// Resumes the subscriber of a record on a fresh connection. Returns false if the record is damaged or has an unknown
    /// version, or if the hub rejects its channels.
    pub(crate) fn unpark_subscriber(&mut self, slot: &mut Slot<'_>, record: &[u8]) -> bool {
        let Some((head, names)) = record.split_first_chunk::<HEAD_BYTES>() else { return false };
        let [VERSION, form, _, _, numbers @ ..] = head else { return false };
        let Some((epoch, offset)) = numbers.split_first_chunk::<8>() else { return false };
        let Ok(offset) = <[u8; 8]>::try_from(offset) else { return false };
        let Ok(names) = std::str::from_utf8(names) else { return false };
        let (names, member) = match names.split_once('\n') {
            // A member that was announced before joins without delay: no rate by address applies.
            Some((names, name)) => (names, Some(Member { name: name.into(), client: None })),
            None => (names, None),
        };
        let names = names.split(',').filter(|name| !name.is_empty());
        let Ok(channels) = names.map(|name| Name::parse(name.as_bytes())).collect::<Result<_, _>>() else {
            return false;
        };
        let form = Form(*form);
        let kind = form::kind(form);
        let once = match kind {
            MessageForm::Raw => Once::Oldest,
            MessageForm::Json => Once::All,
            _ => Once::Never,
        };
        let position =
            Position { epoch: Epoch(u64::from_le_bytes(*epoch)), offset: u64::from_le_bytes(offset) };
        let since = Since::After(position.into());
        let subscribe =
            Subscribe { channels, since, form: form::of_hub(form), once, key: slot.token().word(), member };
        let Ok(id) = self.hub.subscribe(hub_now(slot.now()), subscribe) else { return false };
        let mut bits = 0;
        if form::is_poll(kind) {
            slot.outlast();
        } else {
            bits = form::RESUMED;
        }
        self.pending = true;
        slot.set_word(id.0);
        slot.set_form(form.0 | bits);
        true
    }
}
