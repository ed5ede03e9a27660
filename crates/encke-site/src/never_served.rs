//! Files and directories that are never served.
//!
//! ```text
//!  identity (device, inode)        all hard links of the file; not a new file that a rename puts in its place
//!  name (directory's identity)     each file that ever has the name, from the rename on; and copies beside it: `NAME.1`, `NAME~`
//! ```
//! Both are needed: editors and the console replace a settings file by a rename, and only a reload learns its new identity. A
//! rotated log and the backup of a key keep their identity, but this server may start after the rename.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use encke_io::files::{self, FileId};

/// Files and directories that are never served, by identity and by name.
#[derive(Debug, Default)]
pub(super) struct NeverServed {
    ids: Vec<FileId>,
    paths: Vec<PathBuf>,
    names: Vec<(FileId, OsString)>,
}

impl NeverServed {
    /// `paths` need not exist.
    pub(super) fn new(ids: Vec<FileId>, paths: Vec<PathBuf>) -> Self {
        let names = paths.iter().flat_map(|path| names(path)).collect();
        Self { ids, paths, names }
    }

    /// Looks the directories of the names up again: a directory above them may have been replaced.
    pub(super) fn renewed(&self) -> Self {
        Self::new(self.ids.clone(), self.paths.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.names.is_empty()
    }

    pub(super) fn has(&self, id: FileId) -> bool {
        self.ids.contains(&id)
    }

    /// Whether a name in a directory is never served.
    pub(super) fn has_name(&self, folder: FileId, name: &OsStr) -> bool {
        self.names.iter().any(|(other, known)| *other == folder && (known == name || is_copy(known, name)))
    }
}

/// Whether a name is that of a copy beside the file `known`: what rotations of logs, renewals of certificates and editors write.
fn is_copy(known: &OsStr, name: &OsStr) -> bool {
    let (known, name) = (known.as_encoded_bytes(), name.as_encoded_bytes());
    // Emacs: `#NAME#`. Vim: `.NAME.swp`.
    let name = match name {
        [b'#', inner @ .., b'#'] if inner == known => return true,
        [b'.', inner @ ..] if !known.starts_with(b".") => inner,
        _ => name,
    };
    let Some(dot) = known.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0) else {
        // `keys` has no extension, and `keys.html` is no copy of it.
        return name.strip_prefix(known).is_some_and(is_copy_suffix);
    };
    let (stem, extension) = known.split_at(dot);
    let is_longer = name.strip_prefix(known).is_some_and(|rest| rest.first().is_some_and(is_separator));
    let between = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(extension));
    is_longer || between.is_some_and(is_copy_suffix)
}

const fn is_separator(byte: &u8) -> bool {
    matches!(byte, b'.' | b'-' | b'_' | b'~' | b' ' | b',')
}

/// Whether a suffix consists of numbers, dates and words of copies: `.1.gz`, `-20260131`, `.old`, `~`, `2`.
fn is_copy_suffix(suffix: &[u8]) -> bool {
    let is_word = |word: &[u8]| {
        word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'T')
            || COPY_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
    };
    let begins = suffix.first().is_some_and(|byte| is_separator(byte) || byte.is_ascii_digit());
    begins && suffix.split(is_separator).all(is_word)
}

const COPY_WORDS: [&str; 22] = [
    "bak", "backup", "old", "orig", "save", "sav", "copy", "prev", "previous", "tmp", "temp", "new", "swp",
    "swo", "rej", "gz", "bz2", "xz", "zst", "lz4", "zip", "dpkg",
];

/// The names of a path: its own, and that of the file that a symbolic link leads to.
fn names(path: &Path) -> Vec<(FileId, OsString)> {
    let absolute = std::path::absolute(path).ok();
    let real = path.canonicalize().ok().filter(|real| Some(real) != absolute.as_ref());
    let name = |path: PathBuf| Some((files::id_of(path.parent()?)?, path.file_name()?.to_owned()));
    absolute.into_iter().chain(real).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_beside_a_file_are_recognised_by_their_name() {
        let is_copy = |known: &str, name: &str| is_copy(OsStr::new(known), OsStr::new(name));
        for (known, names) in [
            (
                "access.log",
                "access.log.1 access.log.2.gz access.log-20260131 access.log-20260131.gz access.1.log \
                 access-20260131.log access_2026-01-31T00.log access.log~ access.log.old .access.log.swp #access.log#",
            ),
            (
                "key.pem",
                "key.pem.bak key.pem.2025 key.old.pem key-old.pem key1.pem key.pem.dpkg-old key.pem~ key.pem.txt",
            ),
            ("keys", "keys.1 keys~ keys.bak keys-2026-01-31 keys.old.gz"),
            (".htpasswd", ".htpasswd.old .htpasswd~ .htpasswd-1"),
            ("state", "state.old state-backup state.1"),
        ] {
            for name in names.split_ascii_whitespace() {
                assert!(is_copy(known, name), "{name} of {known}");
            }
        }
        for (known, names) in [
            ("access.log", "access.html access-control.log accessed.log error.log access.logs access.log5"),
            ("key.pem", "key.txt keyboard.pem monkey.pem key-public.pem"),
            ("keys", "keys.html keys-and-locks keystone.1 keysmith"),
            (".htpasswd", "htpasswd .htpasswords"),
            ("state", "state.html stately state-of-the-art.html states"),
        ] {
            for name in names.split_ascii_whitespace() {
                assert!(!is_copy(known, name), "{name} of {known}");
            }
        }
    }
}
