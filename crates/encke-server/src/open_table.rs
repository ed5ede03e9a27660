//! Bytes of open responses that have not left: written by handlers in their callbacks, taken by the worker afterwards.

use crate::reply::Fields;

/// With so many bytes waiting a handler is to write no more before [`Handler::writable`](crate::Handler::writable).
pub(crate) const WAITING_MAX: usize = 64 * 1024;

/// The open responses of a worker, by the place of their exchange. An entry appears with the first write, and ends with the
/// exchange.
#[derive(Default)]
pub(crate) struct OpenTable {
    entries: Vec<Entry>,
    /// Places at which something is to be done.
    touched: Vec<u32>,
}

#[derive(Default)]
struct Entry {
    /// The exchange has one, and this is its generation.
    used: bool,
    generation: u32,
    touched: bool,
    /// The handler was told to wait.
    crowded: bool,
    /// What the handler writes is dropped: a response to HEAD, 204, 304.
    mute: bool,
    end: Option<OpenEnd>,
    /// Bytes that wait, in the buffer that the next send will own.
    buffer: Vec<u8>,
    /// Bytes of the send in flight.
    in_flight: usize,
}

/// How a handler ends a response.
pub(crate) enum OpenEnd {
    /// Everything was written.
    Finish(Fields),
    /// It cannot be continued.
    Reset,
}

/// What is due of a response.
pub(crate) struct OpenDue {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: Option<OpenEnd>,
}

impl OpenTable {
    /// Appends bytes of an exchange. Returns how many wait.
    pub(crate) fn write(
        &mut self,
        (slot, generation): (u32, u32),
        bytes: &[u8],
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> usize {
        let Some(entry) = self.touch(slot, generation) else { return 0 };
        if entry.end.is_some() || entry.mute {
            return 0;
        }
        if entry.buffer.capacity() == 0 {
            entry.buffer = buffer();
        }
        entry.buffer.extend_from_slice(bytes);
        let waiting = entry.buffer.len() + entry.in_flight;
        entry.crowded |= waiting >= WAITING_MAX;
        waiting
    }

    /// Notes the end of an exchange's response. A later one is ignored, but a reset replaces an end that has not come.
    pub(crate) fn end(&mut self, (slot, generation): (u32, u32), end: OpenEnd) {
        if let Some(entry) = self.touch(slot, generation)
            && (entry.end.is_none() || matches!(end, OpenEnd::Reset))
        {
            entry.end = Some(end);
        }
    }

    /// The entry of an exchange, which is noted as touched. `None`: the place is that of a later one.
    fn touch(&mut self, slot: u32, generation: u32) -> Option<&mut Entry> {
        let place = slot as usize;
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, Entry::default);
        }
        let entry = &mut self.entries[place];
        // Exchanges are numbered in their order, and a place is used again only when its exchange is over.
        let is_later = (generation.wrapping_sub(entry.generation) as i32) > 0;
        if !entry.used || is_later {
            let touched = entry.touched;
            *entry = Entry { used: true, generation, touched, ..Entry::default() };
        } else if entry.generation != generation {
            return None;
        }
        if !entry.touched {
            entry.touched = true;
            self.touched.push(slot);
        }
        Some(entry)
    }

    /// The next touched place, and the generation of its exchange.
    pub(crate) fn next_touched(&mut self) -> Option<(u32, u32)> {
        let slot = self.touched.pop()?;
        let entry = &mut self.entries[slot as usize];
        entry.touched = false;
        Some((slot, entry.generation))
    }

    /// A response has begun. `mute`: it has no content.
    pub(crate) fn begin(&mut self, (slot, generation): (u32, u32), mute: bool) {
        if let Some(entry) = self.touch(slot, generation) {
            entry.mute = mute;
        }
    }

    /// Whether the handler has reset the response.
    pub(crate) fn is_reset(&self, slot: u32) -> bool {
        matches!(self.entries.get(slot as usize), Some(Entry { end: Some(OpenEnd::Reset), .. }))
    }

    /// Takes what is to be sent; those bytes are in flight until [`OpenTable::sent`].
    pub(crate) fn take(&mut self, slot: u32) -> OpenDue {
        let Some(entry) = self.entries.get_mut(slot as usize) else {
            return OpenDue { bytes: Vec::new(), end: None };
        };
        entry.in_flight = entry.buffer.len();
        OpenDue { bytes: std::mem::take(&mut entry.buffer), end: entry.end.take() }
    }

    /// What was taken has been sent.
    pub(crate) fn sent(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            entry.in_flight = 0;
        }
    }

    /// Whether the handler waits for room, and there is some now. It is told once.
    pub(crate) fn has_room_again(&mut self, slot: u32) -> bool {
        self.entries.get_mut(slot as usize).is_some_and(|entry| {
            let room = entry.crowded && entry.buffer.len() + entry.in_flight < WAITING_MAX;
            entry.crowded &= !room;
            room
        })
    }

    /// The exchange at a place is over. Returns its buffer.
    pub(crate) fn close(&mut self, slot: u32) -> Vec<u8> {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return Vec::new() };
        let touched = entry.touched;
        std::mem::replace(entry, Entry { touched, ..Entry::default() }).buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_until_their_send_has_ended() {
        let mut table = OpenTable::default();
        let key = (3, 7);
        assert_eq!(table.write(key, b"one", Vec::new), 3);
        assert_eq!(table.write(key, b"two", Vec::new), 6);
        assert_eq!((table.next_touched(), table.next_touched()), (Some(key), None));
        assert_eq!(table.take(3).bytes, b"onetwo");
        assert_eq!(table.write(key, b"three", Vec::new), 11, "six are in flight");
        table.sent(3);
        assert_eq!(table.write(key, b"", Vec::new), 5);
        assert!(!table.has_room_again(3), "there was room all the time");
        assert_eq!(table.write(key, &[0; WAITING_MAX], Vec::new), WAITING_MAX + 5);
        table.take(3);
        assert!(!table.has_room_again(3));
        table.sent(3);
        assert!(table.has_room_again(3));
        assert!(!table.has_room_again(3), "it is told once");
    }

    #[test]
    fn a_place_is_of_one_exchange_at_a_time() {
        let mut table = OpenTable::default();
        table.write((0, 1), b"first", Vec::new);
        table.end((0, 1), OpenEnd::Finish(Fields::new()));
        assert_eq!(table.write((0, 1), b"behind its end", Vec::new), 0);
        // The first exchange is over, whether or not its handler knows.
        assert_eq!(table.write((0, 2), b"other", Vec::new), 5);
        assert_eq!(table.write((0, 1), b"late", Vec::new), 0);
        table.end((0, 1), OpenEnd::Reset);
        assert!(!table.is_reset(0));
        assert_eq!(table.take(0).bytes, b"other");
        // Numbers begin anew after the last one.
        table.write((0, u32::MAX), b"", Vec::new);
        assert_eq!(table.close(0), b"");
        table.write((0, u32::MAX), b"last", Vec::new);
        assert_eq!(table.write((0, 0), b"first", Vec::new), 5);
    }
}
