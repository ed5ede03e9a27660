//! Sections: each feature owns its part of the settings file.

use std::path::{Path, PathBuf};

/// A part of the settings file, owned by one feature. The assembly of all sections checks what contradicts *between* them.
pub trait Section {
    /// Values that contradict each other within the section, or that mean nothing.
    fn check(&self) -> Vec<Contradiction> {
        Vec::new()
    }

    /// Makes every relative path of the section start at `folder`, the settings file's directory.
    fn anchor(&mut self, _folder: &Path) {}

    /// Files named by the section that are never served: keys, secrets, logs.
    fn private_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Keys whose values differ in `new` but hold only from the next start, as paths from the section.
    fn start_only(&self, _new: &Self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// A value that contradicts another one, or that means nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contradiction {
    /// The keys that lead to the value, from the section; a number is a place in a list.
    pub path: Vec<String>,
    /// The error, which names the value and the remedy.
    pub message: String,
}

impl Contradiction {
    /// A contradiction at a path of keys.
    pub fn at(path: &[&str], message: impl Into<String>) -> Self {
        Self { path: path.iter().map(ToString::to_string).collect(), message: message.into() }
    }

    /// The same, seen from the document in which the section has the name `section`.
    #[must_use]
    pub fn within(mut self, section: &str) -> Self {
        self.path.insert(0, section.to_owned());
        self
    }
}
