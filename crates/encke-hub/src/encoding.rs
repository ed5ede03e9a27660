//! Runs of messages encoded in a protocol: encoded once, shared by all subscribers at the same position.
//!
//! The hub knows no protocol. A [`Run`] is the content of a delivery and a [`Form`] names its format; an [`Encoder`] turns both
//! into bytes. The bytes are charged to the hub while anything holds them.

use std::sync::Arc;

use crate::message::Message;
use crate::position::{Beside, Id, Position, Positions};

/// The protocol and format of a subscriber's messages. The hub only compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(pub u8);

/// The content of one delivery.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Messages in offset order. A streaming subscriber receives a gap alone; then this is empty.
    pub messages: &'a [Arc<Message>],
    /// The subscriber's position after the run, in all its channels of this stream.
    pub position: Position,
    /// The subscriber's positions in other streams, if it has channels there.
    pub beside: Beside<'a>,
    /// The gap before the messages, if any.
    pub gap: Option<&'a Gap>,
    /// Number of kept messages that follow these.
    pub more: usize,
}

impl Run<'_> {
    /// Returns the id of a message of the run.
    pub fn id(&self, message: &Message) -> Id<'_> {
        let position = Position { offset: message.offset, ..self.position };
        Id { position, beside: self.beside }
    }

    /// Returns the id after the run.
    pub fn end(&self) -> Id<'_> {
        Id { position: self.position, beside: self.beside }
    }
}

/// A range of messages that a subscriber cannot receive, because they are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The subscriber's position before the gap.
    pub from: Positions,
    /// The end of the gap: messages of the subscriber's channels up to here are lost.
    pub to: Positions,
    /// The cause of the gap.
    pub reason: GapReason,
}

/// The cause of a [`Gap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// The subscriber was away for longer than its messages were kept.
    Away,
    /// The subscriber was connected, but its messages were dropped before it received them.
    Late,
    /// The subscriber's position is of another epoch.
    Epoch,
}

/// Encodes runs for a protocol.
pub trait Encoder {
    /// Appends the encoding of a run to `out`. Subscribers share the bytes, so equal runs in equal forms must encode equally.
    fn encode(&mut self, form: Form, run: &Run<'_>, out: &mut Vec<u8>);
}

/// An encoded run, and the positions that it is valid for.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) form: Form,
    /// Whether the run has only the oldest message, for [`Once::Oldest`](crate::Once::Oldest).
    pub(crate) oldest: bool,
    /// The run fits every position from this offset …
    pub(crate) after: u64,
    /// … up to, but not including, the offset of the first message.
    pub(crate) first: u64,
    /// The offset of the last message.
    pub(crate) to: u64,
    /// The channel's edge at the time of encoding: the offset of its latest change.
    pub(crate) edge: u64,
    /// Whether a limit ended the run. A full run stays valid when the channel receives messages.
    pub(crate) full: bool,
    /// Whether a message after the first one begins something that the messages before it do not lead to.
    pub(crate) breaks: bool,
    pub(crate) bytes: Arc<[u8]>,
}

impl Encoded {
    /// Returns whether a subscriber at `position` can receive this run.
    pub(crate) fn fits(&self, form: Form, oldest: bool, position: u64, edge: u64) -> bool {
        // An `oldest` run reports the number of messages after it, which changes with every new message.
        let current = self.edge == edge || (self.full && !oldest);
        current
            && self.form == form
            && self.oldest == oldest
            && self.after <= position
            && position < self.first
    }
}

/// All encoded bytes that may still be in use: by a sending connection, or by a channel for its next subscriber.
#[derive(Debug, Default)]
pub(crate) struct Encodings {
    held: Vec<Arc<[u8]>>,
    bytes: usize,
    /// Index at which the next check begins.
    at: usize,
}

/// The two counts that an [`Arc`] stores before its bytes, and the entry in the list.
const OVERHEAD: usize = 2 * size_of::<usize>() + size_of::<Arc<[u8]>>();

impl Encodings {
    /// Charges bytes until nothing else holds them.
    pub(crate) fn hold(&mut self, bytes: &Arc<[u8]>) {
        self.bytes += bytes.len() + OVERHEAD;
        self.held.push(Arc::clone(bytes));
        // Two checks per insertion: the check walks the list faster than the list grows.
        self.sweep(2);
    }

    /// Checks the next `some` entries in turn, and drops unused ones.
    pub(crate) fn sweep(&mut self, some: usize) {
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

    /// Returns the bytes in use, and possibly some that were released recently.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes in use, after a check of all entries.
    pub(crate) fn charge(&mut self) -> usize {
        self.at = 0;
        self.sweep(self.held.len());
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
        encodings.sweep(1);
        assert_eq!((encodings.bytes, encodings.held.len()), (0, 0));
    }
}
