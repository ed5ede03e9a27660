//! Pooled buffers of a worker. Active connections borrow them; an idle connection has none. Each second the pool frees the buffers
//! that were not used in the second before: of a burst of connections nothing stays.

use encke_io::Segment;

/// Initial capacity of a buffer in bytes: a response with a small body, or the rest of one read.
pub(crate) const BUFFER_BYTES: usize = 4 * 1024;
/// Maximum capacity of a pooled buffer in bytes, so that one large response does not stay in memory. It has room for the
/// waiting bytes of a relayed response: 64 KiB before its source is paused, and one more lease. Larger blocks cost system
/// calls and page faults each time that they are allocated.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of pooled buffers. 64 active connections need no more.
const KEPT_MAX: usize = 64;
/// Maximum capacity of all pooled buffers in bytes.
const KEPT_TOTAL_MAX: usize = 4 * 1024 * 1024;

/// Number of pooled buffers that stay without use, so that single requests after a pause allocate nothing.
const KEPT_MIN: usize = 4;

/// A pool of buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    /// Capacity of all of them in bytes.
    spare_bytes: usize,
    /// The least number of buffers in the pool since [`Buffers::trim`]. That number of buffers, the first of `spare`, was not used.
    unused: usize,
}

impl Buffers {
    /// Returns an empty buffer.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.take_spare().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Returns an empty buffer from the pool, if there is one.
    pub(crate) fn take_spare(&mut self) -> Option<Vec<u8>> {
        let buffer = self.spare.pop()?;
        self.spare_bytes -= buffer.capacity();
        self.unused = self.unused.min(self.spare.len());
        Some(buffer)
    }

    /// Returns a buffer to the pool.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() >= BUFFER_BYTES
            && buffer.capacity() <= KEPT_BYTES_MAX
            && self.spare.len() < KEPT_MAX
            && self.spare_bytes + buffer.capacity() <= KEPT_TOTAL_MAX
        {
            buffer.clear();
            self.spare_bytes += buffer.capacity();
            self.spare.push(buffer);
        }
    }

    /// Frees the pooled buffers that were not used since the last call, except [`KEPT_MIN`].
    pub(crate) fn trim(&mut self) {
        // The last buffer that was returned is the first to be taken, so the unused ones are at the begin.
        let count = self.unused.min(self.spare.len().saturating_sub(KEPT_MIN));
        let freed: usize = self.spare.drain(..count).map(|buffer| buffer.capacity()).sum();
        self.spare_bytes -= freed;
        self.unused = self.spare.len();
    }

    /// Frees all pooled buffers.
    pub(crate) fn shrink(&mut self) {
        *self = Self::default();
    }
}

/// The in-memory end of the output. Complete parts are moved to a list of segments.
#[derive(Default)]
pub(crate) struct Out {
    tail: Vec<u8>,
}

impl Out {
    /// Returns the buffer to which further bytes are appended.
    pub(crate) fn tail(&mut self, buffers: &mut Buffers) -> &mut Vec<u8> {
        if self.tail.capacity() == 0 {
            self.tail = buffers.take();
        }
        &mut self.tail
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.tail.len()
    }

    /// Moves the bytes to the end of `segments`.
    pub(crate) fn seal(&mut self, segments: &mut Vec<Segment>) {
        if !self.tail.is_empty() {
            segments.push(Segment::Bytes(std::mem::take(&mut self.tail)));
        }
    }

    /// Drops the bytes.
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

    #[test]
    fn unused_buffers_are_freed_and_used_ones_stay() {
        let mut buffers = Buffers::default();
        let burst: Vec<_> = (0..40).map(|_| buffers.take()).collect();
        burst.into_iter().for_each(|buffer| buffers.give(buffer));
        buffers.trim();
        assert_eq!(buffers.spare.len(), 40, "all were used in the first second");
        let used: Vec<_> = (0..10).map(|_| buffers.take()).collect();
        let places: Vec<_> = used.iter().map(Vec::as_ptr).collect();
        used.into_iter().for_each(|buffer| buffers.give(buffer));
        buffers.trim();
        assert_eq!(
            buffers.spare.iter().map(Vec::as_ptr).collect::<Vec<_>>(),
            places,
            "the ten that were used"
        );
        assert_eq!(buffers.spare_bytes, 10 * BUFFER_BYTES);
        buffers.trim();
        assert_eq!((buffers.spare.len(), buffers.spare_bytes), (KEPT_MIN, KEPT_MIN * BUFFER_BYTES), "no use");
    }

    #[test]
    fn the_pool_has_a_limit_in_bytes() {
        let mut buffers = Buffers::default();
        for _ in 0..KEPT_MAX {
            buffers.give(Vec::with_capacity(KEPT_BYTES_MAX));
        }
        assert_eq!(buffers.spare.len(), KEPT_TOTAL_MAX / KEPT_BYTES_MAX);
        while buffers.take_spare().is_some() {}
        assert_eq!(buffers.spare_bytes, 0);
        buffers.give(Vec::with_capacity(BUFFER_BYTES));
        buffers.shrink();
        assert_eq!((buffers.spare.len(), buffers.spare_bytes), (0, 0));
    }
}
