//! Temporary files that are removed at the end of a case.

use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use encke_io::files::{Links, OpenFile, Patience, Root};

pub struct TemporaryFile {
    folder: PathBuf,
}

const NAME: &str = "file";

impl TemporaryFile {
    pub fn new(name: &str, content: &[u8]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("encke-behaviour-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable temporary folder");
        std::fs::write(folder.join(NAME), content).expect("room for a file");
        Self { folder }
    }

    /// Creates a file of zeros, except for the bytes at some offsets.
    pub fn sparse(name: &str, len: u64, marks: &[(u64, [u8; 8])]) -> Self {
        let new = Self::new(name, b"");
        let mut file =
            std::fs::OpenOptions::new().write(true).open(new.folder.join(NAME)).expect("made above");
        file.set_len(len).expect("the file system supports it");
        for (offset, bytes) in marks {
            file.seek(SeekFrom::Start(*offset)).expect("an offset");
            file.write_all(bytes).expect("room for a few bytes");
        }
        new
    }

    pub fn open(&self) -> Arc<OpenFile> {
        let root = Root::new(&self.folder).expect("made above");
        Arc::new(root.open(NAME.as_bytes(), Links::Deny, Patience::Patient).expect("made above"))
    }

    pub fn shrink(&self, len: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(self.folder.join(NAME)).expect("made above");
        file.set_len(len).expect("shorter");
    }

    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}
