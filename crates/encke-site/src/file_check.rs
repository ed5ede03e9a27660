//! Checks that the files of a cached page are unchanged.
//!
//! ```text
//!   a write by name       ─► notification (`watch`)         ─► evicted before the next request
//!   a write without one   ─► check of each file, once in `open_files.revalidate`: open, fstat(2), compare
//!                            fstat(2) of an open file before each response that sends from it
//! ```
//! A write through a hard link in an unwatched directory, through another mount of the file (a container's single-file mount) or
//! through a shared mapping causes no notification. A small file is sent from memory: its tag always matches the bytes, and a
//! check once a second bounds its age. A large file is sent from its descriptor, so that new bytes would have the old tag: it is
//! checked for each response. On Linux fstat(2) of an open file takes 0.3 µs and never blocks, a check by name 1.5 µs.
//!
//! The system updates the time of a file that is written through a mapping once in each write-back (30 s), so a check cannot
//! notice each of these writes.

use encke_io::files::{Metadata, OpenError, Patience, Root};
use encke_server::{ContentView, Prepared};

use super::find::SiteRoot;
use super::rules::RuleSet;

/// The files from which a page was made.
pub(super) struct PageFiles {
    /// The index of their directory in [`RuleSet::places`].
    pub(super) place: usize,
    /// Names below that directory, and metadata.
    pub(super) files: Vec<(String, Metadata)>,
}

impl PageFiles {
    /// Whether a look-up would find the same files again. Never blocks: the answer is no if only the disk has it.
    pub(super) fn are_unchanged(&self, ground: &SiteRoot) -> bool {
        let (root, rules) = ground.place(self.place);
        self.files.iter().all(|(name, metadata)| is_unchanged(root, rules, name, metadata))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let each = |(name, _): &(String, Metadata)| size_of::<(String, Metadata)>() + name.capacity();
        size_of::<Self>() + self.files.iter().map(each).sum::<usize>()
    }
}

fn is_unchanged(root: &Root, rules: &RuleSet, name: &str, metadata: &Metadata) -> bool {
    match root.open(name.as_bytes(), rules.links, Patience::Cached) {
        Ok(file) => file.metadata == *metadata,
        // A server without free descriptors serves small files from memory. Notifications still report most changes.
        Err(OpenError::Descriptors) => true,
        Err(_) => false,
    }
}

/// Whether the content of a response still matches its tag: it is in memory, or the open file is unchanged.
#[inline]
pub(super) fn is_current(prepared: &Prepared) -> bool {
    match prepared.content() {
        ContentView::Memory(_) => true,
        ContentView::File(file, _) => file.stat().is_ok_and(|metadata| metadata == file.metadata),
    }
}
