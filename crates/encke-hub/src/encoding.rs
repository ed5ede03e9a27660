//! Runs of messages as the bytes of somebody's protocol: made once, shared by all who stand at the same place.
//!
//! The hub knows no protocol. It says what is to be told (a [`Run`]) and in which [`Form`]; an [`Encoder`] makes
//! bytes of it. They are charged to the hub for as long as anybody holds them.

use std::sync::Arc;

use crate::message::Message;
use crate::position::{Beside, Id, Position, Positions};

/// How a subscriber wants its messages: which protocol, which format. The hub only compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(pub u8);

/// What a subscriber is told at once.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Messages in the order of their offsets. A stream is told a gap alone, and then there are none.
    pub messages: &'a [Arc<Message>],
    /// Where the subscriber stands behind it, in all its channels of this stream.
    pub position: Position,
    /// Where it stands in other streams, if it has channels there.
    pub beside: Beside<'a>,
    /// What it has missed before the messages.
    pub gap: Option<&'a Gap>,
    /// Messages that are kept for it behind these.
    pub more: usize,
}

impl Run<'_> {
    /// The id behind a message of it.
    pub fn id(&self, message: &Message) -> Id<'_> {
        let position = Position { offset: message.offset, ..self.position };
        Id { position, beside: self.beside }
    }

    /// The id behind all of it.
    pub fn end(&self) -> Id<'_> {
        Id { position: self.position, beside: self.beside }
    }
}

/// Messages that a subscriber does not get, because they are no longer kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where it stood.
    pub from: Positions,
    /// Up to where messages of its channels are gone.
    pub to: Positions,
    /// Why.
    pub reason: GapReason,
}

/// Why there is a [`Gap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// It was away for longer than its channels remember.
    Away,
    /// It was there, but its messages went before it could take them.
    Late,
    /// Its position is of another life of the stream.
    Epoch,
}

/// Makes the bytes of a protocol.
pub trait Encoder {
    /// Appends a run in a form. The same form and run must give the same bytes, whoever they are for.
    fn encode(&mut self, form: Form, run: &Run<'_>, out: &mut Vec<u8>);
}

/// A run that was encoded, and for whom it fits.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) form: Form,
    /// Whether only the oldest message was asked for.
    pub(crate) oldest: bool,
    /// It fits whoever has seen the stream up to an offset from `after` on …
    pub(crate) after: u64,
    /// … and before that of its first message.
    pub(crate) first: u64,
    /// The offset of its last message.
    pub(crate) to: u64,
    /// How far the channel was when it was made.
    pub(crate) edge: u64,
    /// Whether its limits ended it: then it fits also when the channel has gone on.
    pub(crate) full: bool,
    pub(crate) bytes: Arc<[u8]>,
}

impl Encoded {
    /// Whether it is what a subscriber at `position` wants.
    pub(crate) fn fits(&self, form: Form, oldest: bool, position: u64, edge: u64) -> bool {
        // Who takes only the oldest is told how many more there are: that changes as the channel goes on.
        let current = self.edge == edge || (self.full && !oldest);
        current
            && self.form == form
            && self.oldest == oldest
            && self.after <= position
            && position < self.first
    }
}

/// All encoded bytes that somebody may still hold: a subscriber whose connection takes them, a channel that keeps
/// them for the next one.
#[derive(Debug, Default)]
pub(crate) struct Encodings {
    held: Vec<Arc<[u8]>>,
    bytes: usize,
    /// Where the next look begins.
    at: usize,
}

/// Two counts in front of the bytes, and their place in the list.
const OVERHEAD: usize = 2 * size_of::<usize>() + size_of::<Arc<[u8]>>();

impl Encodings {
    /// Takes bytes into account until nobody else holds them.
    pub(crate) fn hold(&mut self, bytes: &Arc<[u8]>) {
        self.bytes += bytes.len() + OVERHEAD;
        self.held.push(Arc::clone(bytes));
        // Two for one: the list is walked through faster than it grows.
        self.look(2);
    }

    /// Looks at some of them, in turn, and lets go of those that nobody else holds.
    pub(crate) fn look(&mut self, some: usize) {
        for _ in 0..some {
            if self.at >= self.held.len() {
                self.at = 0;
            }
            let Some(bytes) = self.held.get(self.at) else { return };
            if Arc::strong_count(bytes) == 1 {
                self.bytes -= bytes.len() + OVERHEAD;
                self.held.swap_remove(self.at);
            } else {
                self.at += 1;
            }
        }
    }

    /// Bytes that are held, and some that were held a moment ago.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are held, by whomever.
    pub(crate) fn charge(&mut self) -> usize {
        self.at = 0;
        self.look(self.held.len());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_charged_while_somebody_holds_them() {
        let mut encodings = Encodings::default();
        let all: Vec<Arc<[u8]>> = (1..=5_usize).map(|bytes| vec![0; bytes * 10].into()).collect();
        for bytes in &all {
            encodings.hold(bytes);
        }
        assert_eq!(encodings.charge(), 150 + 5 * OVERHEAD);
        let kept = all[2].clone();
        drop(all);
        assert_eq!(encodings.charge(), 30 + OVERHEAD);
        drop(kept);
        encodings.look(1);
        assert_eq!((encodings.bytes, encodings.held.len()), (0, 0));
    }
}
