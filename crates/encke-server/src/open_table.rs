//! Unsent bytes of open responses. Handlers write them in callbacks; the worker takes them afterwards.

use crate::reply::Fields;

/// The number of waiting bytes at which a handler must pause until [`Handler::writable`](crate::Handler::writable).
pub(crate) const WAITING_MAX: usize = 64 * 1024;
/// The same for a client that has received less than [`PROVEN_BYTES`] of the response.
pub const UNPROVEN_WAITING_MAX: usize = 8 * 1024;

/// Content of a response after which its client is known to receive, in bytes. The buffers of a kernel hold less. Until then, the
/// source of the response may keep only little for it: a client that sends a request and never reads costs that much memory.
pub const PROVEN_BYTES: u64 = 128 * 1024;

/// The bytes of an open response that wait to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The number of bytes.
    pub bytes: usize,
    /// Whether the handler must not write more until [`Handler::writable`](crate::Handler::writable).
    pub is_full: bool,
}

/// The open responses of a worker, by index of their exchange. An entry is created by the first write, and ends with the
/// exchange.
#[derive(Default)]
pub(crate) struct OpenTable {
    entries: Vec<OpenEntry>,
    /// Indices of entries with changes to process.
    touched: Vec<u32>,
}

#[derive(Default)]
struct OpenEntry {
    /// Whether an exchange uses this entry; `generation` is the exchange's.
    used: bool,
    generation: u32,
    touched: bool,
    /// Whether the handler waits for [`Handler::writable`](crate::Handler::writable).
    crowded: bool,
    /// Whether written bytes are dropped: the response has no content (HEAD, 204, 304).
    mute: bool,
    end: Option<OpenEnd>,
    /// Waiting bytes, in the buffer that the next send will own.
    buffer: Vec<u8>,
    /// Bytes of the send in flight.
    in_flight: usize,
    /// Bytes of completed sends, up to [`PROVEN_BYTES`].
    sent: u32,
}

impl OpenEntry {
    /// Bytes that wait to be sent.
    const fn waiting(&self) -> usize {
        self.buffer.len() + self.in_flight
    }

    /// The number of waiting bytes at which the handler must pause.
    const fn most(&self) -> usize {
        if self.sent as u64 >= PROVEN_BYTES { WAITING_MAX } else { UNPROVEN_WAITING_MAX }
    }
}

/// The end of a response by its handler.
pub(crate) enum OpenEnd {
    /// The content is complete; these are the trailers.
    Finish(Fields),
    /// The content cannot be completed.
    Reset,
}

/// The next part of a response to send.
pub(crate) struct OpenDue {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: Option<OpenEnd>,
}

impl OpenTable {
    /// Appends bytes of an exchange.
    pub(crate) fn write(
        &mut self,
        (slot, generation): (u32, u32),
        bytes: &[u8],
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> Queued {
        const NOTHING: Queued = Queued { bytes: 0, is_full: false };
        let Some(entry) = self.touch(slot, generation) else { return NOTHING };
        if entry.end.is_some() || entry.mute {
            return NOTHING;
        }
        if entry.buffer.capacity() == 0 {
            entry.buffer = buffer();
        }
        entry.buffer.extend_from_slice(bytes);
        let bytes = entry.waiting();
        let is_full = bytes >= entry.most();
        entry.crowded |= is_full;
        Queued { bytes, is_full }
    }

    /// Records the end of an exchange's response. A second end is ignored, except that a reset replaces an end not yet
    /// processed.
    pub(crate) fn end(&mut self, (slot, generation): (u32, u32), end: OpenEnd) {
        if let Some(entry) = self.touch(slot, generation)
            && (entry.end.is_none() || matches!(end, OpenEnd::Reset))
        {
            entry.end = Some(end);
        }
    }

    /// Returns the entry of an exchange and marks it as touched. Returns `None` if a later exchange has the index.
    fn touch(&mut self, slot: u32, generation: u32) -> Option<&mut OpenEntry> {
        let place = slot as usize;
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, OpenEntry::default);
        }
        let entry = &mut self.entries[place];
        // Generations increase with each exchange, and an index is reused only after its exchange is over.
        let is_later = (generation.wrapping_sub(entry.generation) as i32) > 0;
        if !entry.used || is_later {
            let touched = entry.touched;
            *entry = OpenEntry { used: true, generation, touched, ..OpenEntry::default() };
        } else if entry.generation != generation {
            return None;
        }
        if !entry.touched {
            entry.touched = true;
            self.touched.push(slot);
        }
        Some(entry)
    }

    /// Returns the next touched index, and the generation of its exchange.
    pub(crate) fn next_touched(&mut self) -> Option<(u32, u32)> {
        let slot = self.touched.pop()?;
        let entry = &mut self.entries[slot as usize];
        entry.touched = false;
        Some((slot, entry.generation))
    }

    /// Begins a response. `mute`: it has no content.
    pub(crate) fn begin(&mut self, (slot, generation): (u32, u32), mute: bool) {
        if let Some(entry) = self.touch(slot, generation) {
            entry.mute = mute;
        }
    }

    /// Whether the handler has reset the response.
    pub(crate) fn is_reset(&self, slot: u32) -> bool {
        matches!(self.entries.get(slot as usize), Some(OpenEntry { end: Some(OpenEnd::Reset), .. }))
    }

    /// Takes the next part of a response. Its bytes are in flight until [`OpenTable::sent`].
    pub(crate) fn take(&mut self, slot: u32) -> OpenDue {
        let Some(entry) = self.entries.get_mut(slot as usize) else {
            return OpenDue { bytes: Vec::new(), end: None };
        };
        entry.in_flight = entry.buffer.len();
        OpenDue { bytes: std::mem::take(&mut entry.buffer), end: entry.end.take() }
    }

    /// Records that the bytes in flight are sent.
    pub(crate) fn sent(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            let sent = entry.sent as usize + std::mem::take(&mut entry.in_flight);
            entry.sent = sent.min(PROVEN_BYTES as usize) as u32;
        }
    }

    /// Whether a handler that waits for room has room now. Returns true once.
    pub(crate) fn has_room_again(&mut self, slot: u32) -> bool {
        self.entries.get_mut(slot as usize).is_some_and(|entry| {
            let room = entry.crowded && entry.waiting() < entry.most();
            entry.crowded &= !room;
            room
        })
    }

    /// Whether the handler waits for room.
    pub(crate) fn is_crowded(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| entry.crowded)
    }

    /// Memory of the bytes that wait for the end of the send in flight.
    pub(crate) fn waiting_memory(&self, slot: u32) -> usize {
        self.entries.get(slot as usize).map_or(0, |entry| entry.buffer.capacity())
    }

    /// Ends the entry of an exchange that is over. Returns its buffer.
    pub(crate) fn close(&mut self, slot: u32) -> Vec<u8> {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return Vec::new() };
        let touched = entry.touched;
        std::mem::replace(entry, OpenEntry { touched, ..OpenEntry::default() }).buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_until_their_send_has_ended() {
        let mut table = OpenTable::default();
        let key = (3, 7);
        assert_eq!(table.write(key, b"one", Vec::new).bytes, 3);
        assert_eq!(table.write(key, b"two", Vec::new).bytes, 6);
        assert_eq!((table.next_touched(), table.next_touched()), (Some(key), None));
        assert_eq!(table.take(3).bytes, b"onetwo");
        assert_eq!(table.write(key, b"three", Vec::new).bytes, 11, "six are in flight");
        table.sent(3);
        assert_eq!(table.write(key, b"", Vec::new).bytes, 5);
        assert!(!table.has_room_again(3), "there was room all the time");
        assert_eq!(table.write(key, &[0; WAITING_MAX], Vec::new).bytes, WAITING_MAX + 5);
        table.take(3);
        assert!(!table.has_room_again(3));
        table.sent(3);
        assert!(table.has_room_again(3));
        assert!(!table.has_room_again(3), "it is told once");
    }

    #[test]
    fn little_waits_for_a_client_that_has_not_proven_to_receive() {
        let mut table = OpenTable::default();
        let key = (0, 1);
        assert!(!table.write(key, &[0; UNPROVEN_WAITING_MAX - 1], Vec::new).is_full);
        assert!(table.write(key, b"x", Vec::new).is_full);
        let mut passed = UNPROVEN_WAITING_MAX as u64;
        while passed < PROVEN_BYTES {
            table.take(0);
            table.sent(0);
            assert!(table.has_room_again(0));
            assert!(table.write(key, &[0; UNPROVEN_WAITING_MAX], Vec::new).is_full, "after {passed} bytes");
            passed += UNPROVEN_WAITING_MAX as u64;
        }
        table.take(0);
        table.sent(0);
        assert!(!table.write(key, &[0; WAITING_MAX - 1], Vec::new).is_full);
        assert!(table.write(key, b"x", Vec::new).is_full);
        // The next exchange has another client.
        assert!(table.write((0, 2), &[0; UNPROVEN_WAITING_MAX], Vec::new).is_full);
    }

    #[test]
    fn a_place_is_of_one_exchange_at_a_time() {
        let mut table = OpenTable::default();
        table.write((0, 1), b"first", Vec::new);
        table.end((0, 1), OpenEnd::Finish(Fields::new()));
        assert_eq!(table.write((0, 1), b"behind its end", Vec::new).bytes, 0);
        // The first exchange is over, whether or not its handler knows.
        assert_eq!(table.write((0, 2), b"other", Vec::new).bytes, 5);
        assert_eq!(table.write((0, 1), b"late", Vec::new).bytes, 0);
        table.end((0, 1), OpenEnd::Reset);
        assert!(!table.is_reset(0));
        assert_eq!(table.take(0).bytes, b"other");
        // Generations wrap around after the last number.
        table.write((0, u32::MAX), b"", Vec::new);
        assert_eq!(table.close(0), b"");
        table.write((0, u32::MAX), b"last", Vec::new);
        assert_eq!(table.write((0, 0), b"first", Vec::new).bytes, 5);
    }
}
