//! Buffers of a worker: lent to what goes on, taken back when it is over. An idle connection has none.

use encke_io::Segment;

/// A buffer's room when it is made: an answer with a small body, or what one read leaves over.
pub(crate) const BUFFER_BYTES: usize = 4 * 1024;
/// A buffer that has grown past this is not kept: one large answer shall not stay in memory. It has room for a lease and its
/// framing.
const KEPT_BYTES_MAX: usize = 65 * 1024;
/// Buffers kept for use again. 64 connections at work at a time need no more; 64 × 65 KiB is the bound.
const KEPT_MAX: usize = 64;

/// Spare buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
}

impl Buffers {
    /// An empty buffer.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// An empty buffer that was used before, if there is one.
    pub(crate) fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.spare.pop()
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() >= BUFFER_BYTES
            && buffer.capacity() <= KEPT_BYTES_MAX
            && self.spare.len() < KEPT_MAX
        {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Gives memory back to the system.
    pub(crate) fn shrink(&mut self) {
        self.spare = Vec::new();
    }
}

/// The memory part of an output that is being put together; what is finished goes to a list of segments.
#[derive(Default)]
pub(crate) struct Out {
    tail: Vec<u8>,
}

impl Out {
    /// Where further bytes are appended.
    pub(crate) fn tail(&mut self, buffers: &mut Buffers) -> &mut Vec<u8> {
        if self.tail.capacity() == 0 {
            self.tail = buffers.take();
        }
        &mut self.tail
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> usize {
        self.tail.len()
    }

    /// Moves what is in it to the end of `segments`.
    pub(crate) fn seal(&mut self, segments: &mut Vec<Segment>) {
        if !self.tail.is_empty() {
            segments.push(Segment::Bytes(std::mem::take(&mut self.tail)));
        }
    }

    /// Drops what is in it.
    pub(crate) fn clear(&mut self) {
        self.tail.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_a_giant_does_not_come_back() {
        let mut buffers = Buffers::default();
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"old");
        let place = buffer.as_ptr();
        buffers.give(buffer);
        let again = buffers.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), place);
        buffers.give(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert!(buffers.spare.is_empty());
    }
}
