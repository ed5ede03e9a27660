//! A message, before and after it gets an offset.

use std::sync::Arc;

use crate::name::Name;

/// A message to be published.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The target channel.
    pub channel: Name,
    /// The payload, unchanged.
    pub data: Box<[u8]>,
    /// The media type; `None` for the default for text or for bytes.
    pub content_type: Option<Box<str>>,
    /// The event name; `None` for a plain message.
    pub event: Option<Box<str>>,
    /// Properties set by the publisher. [`Flags::CONTROL`] is reserved to the server and is cleared. [`Flags::PREAMBLE`],
    /// [`Flags::BREAK`] and [`Flags::CONTINUES`] are for the program that runs the server, and are cleared in a shared stream.
    /// A draft made for a client must have none of them.
    pub flags: Flags,
    /// Makes a retry of the same publish harmless.
    pub key: Option<IdempotencyKey>,
}

impl Draft {
    /// A plain message: no media type, event name, flags or key.
    ///
    /// ```
    /// use encke_hub::{Draft, Name};
    ///
    /// let draft = Draft { event: Some("score".into()), ..Draft::new(Name::parse(b"games/7")?, *b"2:1") };
    /// assert_eq!(&*draft.data, b"2:1");
    /// # Ok::<(), encke_hub::NameError>(())
    /// ```
    pub fn new(channel: Name, data: impl Into<Box<[u8]>>) -> Self {
        let data = data.into();
        Self { channel, data, content_type: None, event: None, flags: Flags::default(), key: None }
    }
}

/// Identifies one publish, so that retries do not publish again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The publisher, numbered by the server. Keys of different publishers are distinct, even with equal text.
    pub publisher: u64,
    /// The key, chosen by the publisher.
    pub key: Box<str>,
}

/// A message of the stream. Messages are immutable: rings, replicas and encoders share them.
#[derive(Debug)]
pub struct Message {
    /// The number of the message in the stream of all channels, from 1.
    pub offset: u64,
    /// The channel of the message.
    pub channel: Name,
    /// The payload.
    pub data: Box<[u8]>,
    /// Whether the payload is UTF-8.
    pub text: bool,
    /// The media type; `None` for the default for text or for bytes.
    pub content_type: Option<Box<str>>,
    /// The event name; `None` for a plain message.
    pub event: Option<Box<str>>,
    /// The time of publishing, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The properties.
    pub flags: Flags,
}

/// The two counts that an [`Arc`] stores before each value.
const SHARED: usize = 2 * size_of::<usize>();

impl Message {
    /// Returns the bytes of memory that the message takes in the history of its channel: its own, those it owns, and its ring
    /// slot. The name belongs to the channel and is not counted.
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
    /// A subscriber that starts with this message needs none of the earlier ones.
    pub const KEY_FRAME: Self = Self(1);
    /// A message from the server itself, such as a join.
    pub const CONTROL: Self = Self(2);
    /// The new preamble of the channel: a subscriber that starts at a key frame receives it first. Empty data: from here on
    /// the channel has no preamble.
    pub const PREAMBLE: Self = Self(4);
    /// A subscriber that started at a key frame and has received earlier messages cannot continue with this one. Its stream
    /// ends before it.
    pub const BREAK: Self = Self(8);
    /// The next message belongs to the same unit. A subscriber that has received this one and loses the next cannot continue.
    pub const CONTINUES: Self = Self(16);
    /// The data is no text, even if it is valid UTF-8.
    pub const BINARY: Self = Self(32);
    /// With an empty preamble: the stream ends here. A subscriber that started at a key frame ends even if it has received
    /// nothing, unless it came later.
    pub const END: Self = Self(64);

    /// The flags that no publisher outside of the server may set.
    pub(crate) const RESERVED: Self =
        Self::CONTROL.with(Self::PREAMBLE).with(Self::BREAK).with(Self::CONTINUES).with(Self::END);

    /// Returns the flags as a number, for storage.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Creates flags from [`Flags::bits`]. Unknown bits are kept.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any flag of `other` is set.
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns these flags together with `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags without `other`.
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
        // An `Arc` with two counts, a message of 88 bytes, 100 + 10 + 4 bytes that it owns, and a pointer in the ring.
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
