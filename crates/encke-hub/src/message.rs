//! A message, before and after it has its place in the stream.

use std::sync::Arc;

use crate::name::Name;

/// What somebody publishes.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Where to.
    pub channel: Name,
    /// The payload, as it came.
    pub data: Box<[u8]>,
    /// Its media type; `None`: the default for text or for bytes.
    pub content_type: Option<Box<str>>,
    /// The name of its event; `None`: a plain message.
    pub event: Option<Box<str>>,
    /// Properties that the publisher gives. [`Flags::CONTROL`] is not its to give and is taken away.
    pub flags: Flags,
    /// Makes a repetition of the same publish harmless.
    pub key: Option<IdempotencyKey>,
}

/// Names one publish, so that it happens once however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Whose key it is: keys of different publishers are different, whatever they say. The server's to number.
    pub publisher: u64,
    /// What the publisher calls it.
    pub key: Box<str>,
}

/// A message of the stream. It never changes: rings, replicas and encoders share it.
#[derive(Debug)]
pub struct Message {
    /// Its place in the stream of all channels, from 1.
    pub offset: u64,
    /// Where it was published.
    pub channel: Name,
    /// The payload.
    pub data: Box<[u8]>,
    /// Whether the payload is UTF-8.
    pub text: bool,
    /// Its media type; `None`: the default for text or for bytes.
    pub content_type: Option<Box<str>>,
    /// The name of its event; `None`: a plain message.
    pub event: Option<Box<str>>,
    /// When it was published, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Its properties.
    pub flags: Flags,
}

/// Two counts in front of every shared value.
const SHARED: usize = 2 * size_of::<usize>();

impl Message {
    /// Bytes of memory that it takes in the history of its channel: itself, what it owns, and its place in the ring.
    /// The name is the channel's.
    pub fn charge(&self) -> u64 {
        let labels = [&self.content_type, &self.event];
        let owned = self.data.len() + labels.into_iter().flatten().map(|label| label.len()).sum::<usize>();
        (SHARED + size_of::<Self>() + owned + size_of::<Arc<Self>>()) as u64
    }
}

/// Properties of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Whoever begins with this message misses nothing of what came before.
    pub const KEY_FRAME: Self = Self(1);
    /// The server itself says something, such as who has joined.
    pub const CONTROL: Self = Self(2);

    /// As a number, for keeping.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From what [`Flags::bits`] said. Bits without a meaning are kept.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but for `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_charged_with_every_byte_it_owns() {
        let message = Message {
            offset: 1,
            channel: Name::parse(b"news").expect("a name"),
            data: vec![0; 100].into(),
            text: true,
            content_type: Some("text/plain".into()),
            event: Some("news".into()),
            unix_ms: 0,
            flags: Flags::default(),
        };
        // Two counts, five fields of 16 bytes and less, 100 + 10 + 4 bytes, a pointer.
        assert_eq!(size_of::<Message>(), 8 + 16 + 16 + 16 + 16 + 8 + 8);
        assert_eq!(message.charge(), 16 + 88 + 114 + 8);
    }

    #[test]
    fn flags_are_a_set() {
        let both = Flags::KEY_FRAME.with(Flags::CONTROL);
        assert!(both.contains(Flags::CONTROL) && both.contains(Flags::KEY_FRAME));
        assert_eq!(both.without(Flags::CONTROL), Flags::KEY_FRAME);
        assert!(!Flags::default().contains(Flags::CONTROL));
    }
}
