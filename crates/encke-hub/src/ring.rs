//! The history ring of a channel: messages, joins and leaves, in offset order.
//!
//! ```text
//!  ring     m  e  m  m  e  e  m  e        m: message, e: join or leave
//!              └────────┴──┴─────┴─ events: their offsets
//! ```
//! **Joins and leaves evict no message.** The limits of a channel apply to its messages. Joins and leaves have a limit of their
//! own, [`ChannelRules::events_max`](crate::ChannelRules::events_max). Above it the oldest one is removed from between the
//! messages. So a client that joins under many names shortens no history.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use crate::message::{Flags, Message};

/// Messages, joins and leaves, oldest first. Dereferences to the queue for reading.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    all: VecDeque<Arc<Message>>,
    /// The offsets of joins and leaves.
    events: VecDeque<u64>,
    /// Bytes of joins and leaves, as [`Message::charge`] counts them.
    event_bytes: u64,
}

impl Ring {
    /// Returns the number of messages, without joins and leaves.
    pub(crate) fn messages(&self) -> usize {
        self.all.len() - self.events.len()
    }

    /// Returns the number of joins and leaves.
    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }

    /// Returns the bytes of joins and leaves.
    pub(crate) fn event_bytes(&self) -> u64 {
        self.event_bytes
    }

    /// Returns the newest message that is not a join or a leave.
    pub(crate) fn newest_message(&self) -> Option<&Arc<Message>> {
        self.all.iter().rev().find(|message| !message.is_event())
    }

    pub(crate) fn push_back(&mut self, message: Arc<Message>) {
        if message.is_event() {
            self.events.push_back(message.offset);
            self.event_bytes += message.charge();
        }
        self.all.push_back(message);
    }

    pub(crate) fn push_front(&mut self, message: Arc<Message>) {
        if message.is_event() {
            self.events.push_front(message.offset);
            self.event_bytes += message.charge();
        }
        self.all.push_front(message);
    }

    pub(crate) fn pop_front(&mut self) -> Option<Arc<Message>> {
        let message = self.all.pop_front()?;
        if message.is_event() {
            self.events.pop_front();
            self.event_bytes -= message.charge();
        }
        Some(message)
    }

    /// Removes the oldest join or leave. Returns it with its index in the ring.
    pub(crate) fn remove_oldest_event(&mut self) -> Option<(usize, Arc<Message>)> {
        let offset = self.events.pop_front()?;
        let at = self.all.partition_point(|message| message.offset < offset);
        let event = self.all.remove(at)?;
        self.event_bytes -= event.charge();
        Some((at, event))
    }
}

impl Deref for Ring {
    type Target = VecDeque<Arc<Message>>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl FromIterator<Arc<Message>> for Ring {
    fn from_iter<T: IntoIterator<Item = Arc<Message>>>(messages: T) -> Self {
        let mut ring = Self::default();
        messages.into_iter().for_each(|message| ring.push_back(message));
        ring
    }
}

impl Message {
    /// Returns whether this is a join, a leave, or another message from the server itself.
    pub(crate) fn is_event(&self) -> bool {
        self.flags.contains(Flags::CONTROL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn message(offset: u64, flags: Flags) -> Arc<Message> {
        Arc::new(Message {
            offset,
            channel: Name::parse(b"a").expect("a name"),
            data: vec![0; offset as usize].into(),
            text: true,
            content_type: None,
            event: None,
            unix_ms: 0,
            flags,
        })
    }

    #[test]
    fn events_are_counted_apart_and_leave_from_between_messages() {
        let kinds = [false, true, false, false, true, true, false, true];
        let flags = |event| if event { Flags::CONTROL } else { Flags::default() };
        let mut ring: Ring = (4..8).map(|at| message(at as u64, flags(kinds[at]))).collect();
        (0..4).rev().for_each(|at| ring.push_front(message(at as u64, flags(kinds[at]))));
        let offsets = |ring: &Ring| ring.iter().map(|message| message.offset).collect::<Vec<_>>();
        let bytes = |ring: &Ring| {
            ring.iter().filter(|message| message.is_event()).map(|message| message.charge()).sum::<u64>()
        };
        assert_eq!((ring.messages(), ring.events(), ring.event_bytes()), (4, 4, bytes(&ring)));
        assert_eq!(ring.remove_oldest_event().map(|(at, event)| (at, event.offset)), Some((1, 1)));
        assert_eq!(ring.remove_oldest_event().map(|(at, event)| (at, event.offset)), Some((3, 4)));
        assert_eq!(offsets(&ring), [0, 2, 3, 5, 6, 7]);
        assert_eq!(ring.newest_message().map(|message| message.offset), Some(6));
        for _ in 0..4 {
            ring.pop_front();
        }
        assert_eq!((ring.messages(), ring.events(), ring.event_bytes()), (1, 1, bytes(&ring)));
        assert_eq!(ring.remove_oldest_event().map(|(at, event)| (at, event.offset)), Some((1, 7)));
        assert!(ring.remove_oldest_event().is_none());
    }
}
