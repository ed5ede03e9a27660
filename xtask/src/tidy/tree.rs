//! The tracked files of the repository, read once.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

use super::source::RustSource;

/// Every tracked file by its path from the root, with `/` as the separator.
pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

/// A tracked file.
pub(super) struct File {
    pub(super) bytes: usize,
    /// The content, or `None` if it is not UTF-8.
    pub(super) text: Option<String>,
    /// The lines of a `.rs` file.
    pub(super) rust: Option<RustSource>,
}

impl Tree {
    /// Reads the files that git tracks, except deleted ones.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub(super) fn tracked(root: &Path) -> Result<Self, TreeError> {
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
        let listed = listed.map_err(TreeError::Start)?;
        if !listed.status.success() {
            let said = String::from_utf8_lossy(&listed.stderr);
            return Err(TreeError::Git(said.trim().to_owned()));
        }
        let mut contents = Vec::new();
        for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => contents.push((path.to_owned(), bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(TreeError::Read(path.to_owned(), error)),
            }
        }
        Ok(Self::of(contents))
    }

    /// Creates a tree of these files.
    pub(super) fn of(contents: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut files: BTreeMap<String, File> = contents
            .into_iter()
            .map(|(path, bytes)| {
                let size = bytes.len();
                let text = String::from_utf8(bytes).ok();
                let rust = text.as_deref().filter(|_| path.ends_with(".rs")).map(RustSource::of);
                (path, File { bytes: size, text, rust })
            })
            .collect();

        // `#[cfg(test)] mod tests;` makes another file, and all files below it, tests.
        let modules: Vec<String> = files.iter().flat_map(|(path, file)| test_modules(path, file)).collect();
        for (path, file) in &mut files {
            let declared = modules.iter().any(|module| {
                path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            });
            let by_place = path.contains("/tests/") || path.starts_with("fuzz/");
            if let Some(source) = file.rust.as_mut().filter(|_| declared || by_place) {
                source.make_test();
            }
        }
        Self { files }
    }

    /// Returns every file, by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Returns every text file, by path.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter_map(|(path, file)| Some((path, file.text.as_deref()?)))
    }

    /// Returns every Rust file, by path.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &RustSource)> {
        self.files().filter_map(|(path, file)| Some((path, file.rust.as_ref()?)))
    }

    /// Returns the text of a file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Whether a file or directory with this path exists.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(other, _)| other.starts_with(&folder))
    }
}

/// Why the tree cannot be read.
#[derive(Debug)]
pub(super) enum TreeError {
    /// git could not be started.
    Start(io::Error),
    /// git failed, with this message.
    Git(String),
    /// A tracked file could not be read: its path.
    Read(String, io::Error),
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Git(said) => f.write_str(said),
            Self::Read(path, error) => write!(f, "{path}: {error}"),
        }
    }
}

impl std::error::Error for TreeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) | Self::Read(_, error) => Some(error),
            Self::Git(_) => None,
        }
    }
}

/// Returns the paths, without `.rs`, of the test modules that a file declares.
fn test_modules(path: &str, file: &File) -> Vec<String> {
    let Some(source) = &file.rust else { return Vec::new() };
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        other => format!("{folder}/{}", other.trim_end_matches(".rs")),
    };
    source.test_modules().iter().map(|module| format!("{folder}/{module}")).collect()
}
