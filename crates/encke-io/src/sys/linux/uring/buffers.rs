//! The buffers into which the kernel receives: a ring from which the kernel takes a buffer when bytes arrive.
//!
//! ```text
//!          give_back                   bytes arrive                  taken
//!  OURS ──────────────► IN THE RING ─────────────────► COMPLETION ──────────► OURS, as a Lease
//! ```
//!
//! So a waiting connection holds no buffer. The kernel takes buffers in the order in which they were returned, so the first
//! page of every buffer is soon in use, even with few connections. It is therefore touched at the start (256 × 4 KiB = 1 MiB):
//! no request causes a page fault, and the process shows its memory use from the start. The rest (256 × 12 KiB) becomes
//! resident with the first uploads.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The only buffer group of a ring.
pub(super) const GROUP: u16 = 0;

/// A buffer that the kernel has filled, and does not use until it is returned.
#[derive(Debug)]
pub(super) struct Lease {
    id: u16,
    len: u32,
}

impl Lease {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}

/// INVARIANT: a buffer's id is in the ring, or in a completion not handled yet, or in exactly one [`Lease`]; the kernel writes
/// only to buffers in the ring.
pub(super) struct BufferRing {
    entries: Mapping,
    memory: Mapping,
    count: u16,
    bytes: u32,
    tail: u16,
    leased: u16,
}

impl BufferRing {
    /// Creates `count` buffers, a power of two, of `bytes` bytes each, and gives them to the kernel.
    ///
    /// # Errors
    /// EINVAL before Linux 5.19; ENOMEM.
    pub(super) fn register(submitter: &Submitter<'_>, count: u16, bytes: u32) -> io::Result<Self> {
        assert!(count.is_power_of_two() && bytes > 0, "a power of two of buffers that hold something");
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(count) * bytes as usize)?;
        // SAFETY: the mapping begins on a page, holds `count` entries, and lives as long as `self`, which the
        // reactor keeps until the kernel has ended every operation that could use it.
        unsafe {
            submitter.register_buf_ring_with_flags(entries.start.as_ptr() as u64, count, GROUP, 0)?;
        }
        let mut buffers = Self { entries, memory, count, bytes, tail: 0, leased: count };
        for id in 0..count {
            let lease = Lease { id, len: 1 };
            buffers.bytes_mut(&lease).fill(0);
            buffers.give_back(lease);
        }
        Ok(buffers)
    }

    /// Whether the kernel has a free buffer, as of the completions taken so far.
    pub(super) fn has_free(&self) -> bool {
        self.leased < self.count
    }

    /// Number of buffers that the kernel does not hold.
    pub(super) fn leased(&self) -> usize {
        usize::from(self.leased)
    }

    /// Takes ownership of the buffer named by a completion, with `len` bytes received.
    pub(super) fn take(&mut self, id: u16, len: u32) -> Lease {
        assert!(id < self.count && len <= self.bytes, "the kernel fills the buffers it was given");
        Lease { id, len }
    }

    /// Records that a completion has taken a buffer from the ring.
    pub(super) fn left_ring(&mut self) {
        self.leased += 1;
    }

    /// Leaks the memory, which is never unmapped.
    pub(super) fn leak(&mut self) {
        self.entries.len = 0;
        self.memory.len = 0;
    }

    /// The received bytes.
    pub(super) fn bytes_mut(&mut self, lease: &Lease) -> &mut [u8] {
        let offset = usize::from(lease.id) * self.bytes as usize;
        // SAFETY: `take` has checked that the buffer lies within the mapping; by the invariant the kernel does
        // not write to it while the lease is there, and the borrow of `self` keeps the lease from being
        // given back and the slice from being made twice.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.as_ptr().add(offset), lease.len()) }
    }

    /// Returns a buffer to the end of the ring.
    pub(super) fn give_back(&mut self, lease: Lease) {
        let base = self.entries.start.as_ptr().cast::<BufRingEntry>();
        let slot = usize::from(self.tail & (self.count - 1));
        let offset = usize::from(lease.id) * self.bytes as usize;
        // SAFETY: `slot` is one of the `count` entries of the mapping, which no reference points into. The
        // kernel reads an entry only after the tail has passed it, and this one it has read before: there are
        // as many entries as buffers, and this buffer was not in the ring.
        unsafe {
            let entry = &mut *base.add(slot);
            entry.set_addr(self.memory.start.as_ptr().add(offset) as u64);
            entry.set_len(self.bytes);
            entry.set_bid(lease.id);
        }
        self.tail = self.tail.wrapping_add(1);
        self.leased -= 1;
        // SAFETY: the tail lies in the first entry's padding (io_uring_register_buf_ring(3)), is aligned, and
        // is only ever touched through this pointer on our side. Release: the entry is written before.
        unsafe {
            let tail = BufRingEntry::tail(base).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

/// A private anonymous mapping: zeroed, and resident page by page as it is touched.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new private mapping, at an address of the kernel's choice, disturbs nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let mapping = Self { start: NonNull::new(start.cast()).expect("a mapping is never at zero"), len };
        // Huge pages would make 2 MiB resident at the first touch. On kernels without huge pages the call fails.
        // SAFETY: the advice changes how the mapping is backed, not what is in it.
        let _no_huge_pages = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: the mapping is ours, and whoever drops it has let nothing point into it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}
