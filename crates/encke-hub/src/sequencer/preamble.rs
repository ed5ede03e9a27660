//! The preambles of channels in the sequencer, and their share of the memory.

use std::sync::Arc;

use super::{SequencedChannel, Stored};
use crate::message::{Flags, Message};
use crate::preamble::ChannelPreamble;

impl SequencedChannel {
    /// Applies the flags of a new message. Returns the bytes that are no longer charged: the previous preamble, if the ring has
    /// dropped that preamble.
    pub(super) fn take_preamble(&mut self, message: &Arc<Message>) -> u64 {
        let replaced = self.preamble.get_or_insert_default().take(message);
        let dropped = replaced.filter(|before| before.offset <= self.lost_to);
        dropped.map_or(0, |before| before.charge())
    }

    /// Returns whether a message of the channel is its preamble, which stays when the ring drops it.
    pub(super) fn is_preamble(&self, message: &Message) -> bool {
        message.flags.contains(Flags::PREAMBLE)
            && self.preamble.as_ref().is_some_and(|preamble| preamble.is(message))
    }

    /// Drops the preamble of a channel whose ring is empty. Returns the bytes that are no longer charged.
    pub(super) fn lose_preamble(&mut self) -> u64 {
        let lost = self.preamble.as_mut().and_then(|preamble| preamble.message.take());
        let Some(lost) = lost else { return 0 };
        // Counts one more message that no worker was fed: so every worker receives the loss before any later message.
        self.gone += 1;
        lost.charge()
    }

    /// Returns the preamble if the ring has dropped it.
    pub(super) fn dropped_preamble(&self) -> Option<&Arc<Message>> {
        let preamble = self.preamble.as_ref()?.message.as_ref();
        preamble.filter(|message| message.offset <= self.lost_to)
    }

    /// Finds the preamble in saved messages, and removes a preamble that the ring had dropped. Returns the bytes charged for it.
    pub(super) fn restore_preamble(&mut self, messages: &mut Vec<Stored>) -> u64 {
        let mut known = ChannelPreamble::default();
        for Stored { message, .. } in messages.iter() {
            known.take(message);
        }
        let lost_to = self.lost_to;
        messages.retain(|Stored { message, .. }| message.offset > lost_to || !known.is(message));
        if messages.is_empty() {
            known.message = None;
        }
        if known.message.is_some() || known.broken_at > 0 {
            self.preamble = Some(Box::new(known));
        }
        self.dropped_preamble().map_or(0, |preamble| preamble.charge())
    }
}
