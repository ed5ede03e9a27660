//! Files and directories that are never served.
//!
//! ```text
//!  identity (device, inode)        all hard links of the file; not a new file that a rename puts in its place
//!  name (directory's identity)     each file that ever has the name, from the rename on
//! ```
//! Both are needed: editors and the console replace a settings file by a rename, and only a reload learns its new identity.

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
        self.names.iter().any(|(other, known)| *other == folder && known == name)
    }
}

/// The names of a path: its own, and that of the file that a symbolic link leads to.
fn names(path: &Path) -> Vec<(FileId, OsString)> {
    let absolute = std::path::absolute(path).ok();
    let real = path.canonicalize().ok().filter(|real| Some(real) != absolute.as_ref());
    let name = |path: PathBuf| Some((files::id_of(path.parent()?)?, path.file_name()?.to_owned()));
    absolute.into_iter().chain(real).filter_map(name).collect()
}
