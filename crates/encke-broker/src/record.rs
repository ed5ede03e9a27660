//! The binary encoding of a message.
//!
//! ```text
//!  unix_ms 8 │ flags 1 │ publisher 8 │ key 2+n │ type 2+n │ event 2+n │ payload: the rest      little endian
//! ```
//! A label is its length in two bytes, and its text. A length of 0xFFFF marks an absent label. Channel and offset are not part
//! of a record: they are its key in the table.

use std::sync::Arc;

use encke_hub::{Flags, IdempotencyKey, Message, Name, Stored};

/// Length of an absent label. Labels have at most 255 bytes.
const NONE: u16 = u16::MAX;

/// Appends the record of a message.
pub(crate) fn put(into: &mut Vec<u8>, stored: &Stored) {
    let Stored { message, key } = stored;
    into.extend(message.unix_ms.to_le_bytes());
    into.push(message.flags.bits());
    into.extend(key.as_ref().map_or(0, |key| key.publisher).to_le_bytes());
    let labels =
        [key.as_ref().map(|key| &*key.key), message.content_type.as_deref(), message.event.as_deref()];
    for label in labels {
        // The sequencer rejects labels that are longer.
        let length = label.map_or(NONE, |label| u16::try_from(label.len()).unwrap_or(NONE - 1));
        into.extend(length.to_le_bytes());
        into.extend(&label.unwrap_or_default().as_bytes()[..label.map_or(0, |_| length.into())]);
    }
    into.extend(&message.data);
}

/// Parses a record; `None` if it is truncated or a label is not UTF-8.
pub(crate) fn read(channel: &Name, offset: u64, mut bytes: &[u8]) -> Option<Stored> {
    let unix_ms = u64::from_le_bytes(*take(&mut bytes)?);
    let [flags] = *take(&mut bytes)?;
    let publisher = u64::from_le_bytes(*take(&mut bytes)?);
    let key = label(&mut bytes)?;
    let content_type = label(&mut bytes)?;
    let event = label(&mut bytes)?;
    let message = Message {
        offset,
        channel: channel.clone(),
        data: bytes.into(),
        text: std::str::from_utf8(bytes).is_ok(),
        content_type,
        event,
        unix_ms,
        flags: Flags::from_bits(flags),
    };
    Some(Stored { message: Arc::new(message), key: key.map(|key| IdempotencyKey { publisher, key }) })
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn label(bytes: &mut &[u8]) -> Option<Option<Box<str>>> {
    let length = u16::from_le_bytes(*take(bytes)?);
    if length == NONE {
        return Some(None);
    }
    let (text, rest) = bytes.split_at_checked(length.into())?;
    *bytes = rest;
    Some(Some(std::str::from_utf8(text).ok()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::parse(b"news").expect("a name")
    }

    fn stored(data: &[u8], key: Option<&str>, content_type: Option<&str>, event: Option<&str>) -> Stored {
        let message = Message {
            offset: 7,
            channel: name(),
            data: data.into(),
            text: std::str::from_utf8(data).is_ok(),
            content_type: content_type.map(Into::into),
            event: event.map(Into::into),
            unix_ms: 1_700_000_000_000,
            flags: Flags::KEY_FRAME,
        };
        let key = key.map(|key| IdempotencyKey { publisher: u64::MAX, key: key.into() });
        Stored { message: Arc::new(message), key }
    }

    #[test]
    fn what_is_written_reads_back() {
        for data in [&b""[..], b"hello", b"\xff\0", &[7; 70_000]] {
            for label in [None, Some(""), Some("x"), Some(&*"y".repeat(255))] {
                let one = stored(data, label, label, None);
                let two = stored(data, None, None, label);
                for stored in [one, two] {
                    let mut bytes = Vec::new();
                    put(&mut bytes, &stored);
                    let back = read(&name(), 7, &bytes).expect("a record");
                    let parts = |one: &Stored| {
                        let Message { offset, data, text, content_type, event, unix_ms, flags, .. } =
                            &*one.message;
                        let part = (*offset, data.clone(), *text, content_type.clone(), event.clone());
                        (part, *unix_ms, *flags, one.key.clone())
                    };
                    assert_eq!(parts(&back), parts(&stored));
                }
            }
        }
    }

    #[test]
    fn what_is_cut_short_in_its_labels_is_no_record() {
        let mut bytes = Vec::new();
        put(&mut bytes, &stored(b"", Some("key"), Some("text/plain"), Some("event")));
        for cut in 0..bytes.len() {
            assert!(read(&name(), 7, &bytes[..cut]).is_none(), "{cut}");
        }
        assert!(read(&name(), 7, &bytes).is_some());
        bytes[19] = 0xff;
        assert!(read(&name(), 7, &bytes).is_none(), "a label that is no text");
    }
}
