//! The preamble of a channel, such as the head of a container: a subscriber that starts at a key frame receives it first.
//!
//! ```text
//!  ring          P ▒ ▒ K ▒ ▒ K ▒ │ B ▒ K ▒ ▒          P: preamble, K: key frame, B: preamble with a break
//!  joins here ───────────────▲   │      ▲             receives P, then from K on; after the break B, then from K on
//!  flows here ───────────────────┘                    ends: what follows B cannot follow what it received
//! ```
//! **The newest preamble stays** when the ring has dropped it, as long as the ring has any message. It is charged once: as a
//! message of the ring, and after that as the preamble.

use std::sync::Arc;

use crate::encoding::Form;
use crate::limits::ENCODINGS_MAX;
use crate::message::{Flags, Message};

/// The newest preamble of a channel, and its newest break.
#[derive(Clone, Debug, Default)]
pub struct ChannelPreamble {
    /// The newest message with [`Flags::PREAMBLE`]; `None` if the channel has lost it.
    pub message: Option<Arc<Message>>,
    /// The offset of the newest message with [`Flags::BREAK`], even of a lost one; 0 for none.
    pub broken_at: u64,
}

impl ChannelPreamble {
    /// Applies the flags of a message. Returns the preamble that it replaces.
    pub(crate) fn take(&mut self, message: &Arc<Message>) -> Option<Arc<Message>> {
        if message.flags.contains(Flags::BREAK) {
            self.broken_at = self.broken_at.max(message.offset);
        }
        // A worker may know a preamble before its ring has the messages that precede it.
        let newer = self.message.as_ref().is_none_or(|known| known.offset < message.offset);
        if newer && message.flags.contains(Flags::PREAMBLE) {
            return self.message.replace(Arc::clone(message));
        }
        None
    }

    /// Returns whether this message is the preamble.
    pub(crate) fn is(&self, message: &Message) -> bool {
        self.message.as_ref().is_some_and(|known| known.offset == message.offset)
    }
}

/// The preamble of a channel on a worker, with its encodings.
#[derive(Debug, Default)]
pub(crate) struct ReplicaPreamble {
    known: ChannelPreamble,
    /// The encodings of the preamble, by form.
    encoded: Vec<(Form, Arc<[u8]>)>,
}

impl ReplicaPreamble {
    pub(crate) fn new(known: ChannelPreamble) -> Self {
        Self { known, encoded: Vec::new() }
    }

    /// Applies the flags of a message.
    pub(crate) fn take(&mut self, message: &Arc<Message>) {
        self.known.take(message);
        if self.known.is(message) {
            self.encoded.clear();
        }
    }

    /// Replaces the preamble by the one that the sequencer has.
    pub(crate) fn set(&mut self, known: ChannelPreamble) {
        if !known.message.as_ref().is_some_and(|message| self.known.is(message)) {
            self.encoded.clear();
        }
        self.known = known;
    }

    pub(crate) fn message(&self) -> Option<&Arc<Message>> {
        self.known.message.as_ref()
    }

    pub(crate) fn broken_at(&self) -> u64 {
        self.known.broken_at
    }

    pub(crate) fn encoded(&self, form: Form) -> Option<&Arc<[u8]>> {
        self.encoded.iter().find(|(of, _)| *of == form).map(|(_, bytes)| bytes)
    }

    /// Caches an encoding of the preamble.
    pub(crate) fn keep(&mut self, form: Form, bytes: &Arc<[u8]>) {
        if self.encoded.len() == ENCODINGS_MAX {
            self.encoded.remove(0);
        }
        self.encoded.push((form, Arc::clone(bytes)));
    }
}

/// Finds the points in a sequence of messages at which a subscriber that started at a key frame cannot continue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BreakFinder {
    inside: bool,
}

impl BreakFinder {
    /// Begins after a message of a unit that `continues`, or after a whole one.
    pub(crate) fn new(inside: bool) -> Self {
        Self { inside }
    }

    /// Returns whether the subscriber cannot continue with this message: it breaks with the earlier ones, or a preamble is in
    /// the middle of a unit, which its source never completed.
    pub(crate) fn breaks_before(&mut self, message: &Message) -> bool {
        if message.is_event() {
            return false;
        }
        let breaks =
            message.flags.contains(Flags::BREAK) || self.inside && message.flags.contains(Flags::PREAMBLE);
        self.inside = message.flags.contains(Flags::CONTINUES);
        breaks
    }
}

/// Returns whether a run of messages has such a point after its first message.
pub(crate) fn breaks_within(messages: &[Arc<Message>]) -> bool {
    let mut finder = BreakFinder::default();
    let mut breaks = messages.iter().map(|message| finder.breaks_before(message));
    breaks.next();
    breaks.any(|breaks| breaks)
}
