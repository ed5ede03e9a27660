//! A directory that is removed at the end of the case.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("encke-server-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable temporary folder");
        Self(path.canonicalize().expect("it was just made"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file with a modification time in the past. Its ETag is weak nevertheless, because its ctime is recent.
    #[must_use]
    pub fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.write(name, content);
        self
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("room for a folder");
        std::fs::write(&path, content).expect("room for a file");
        let file = std::fs::File::options().write(true).open(path).expect("just written");
        file.set_modified(SystemTime::now() - Duration::from_secs(1_000)).expect("our own file");
    }

    /// Replaces a file atomically.
    pub fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        let next = format!("{name}.next");
        self.write(&next, content);
        std::fs::rename(self.0.join(next), self.0.join(name)).expect("the same folder");
    }

    pub fn shrink(&self, name: &str, len: u64) {
        let file = std::fs::File::options().write(true).open(self.0.join(name)).expect("it is there");
        file.set_len(len).expect("shorter");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}
