//! Sections: each feature owns its part of the settings file.

use std::path::{Path, PathBuf};

/// A part of the settings file, owned by one feature. The assembly of all sections checks for contradictions *between* them.
pub trait Section {
    /// Returns contradictions within the section, and values without effect.
    fn check(&self) -> Vec<Contradiction> {
        Vec::new()
    }

    /// Returns values that are valid, but probably not meant. May read files that the section names.
    fn warnings(&self) -> Vec<Contradiction> {
        Vec::new()
    }

    /// Makes every relative path of the section start at `folder`, the directory of the settings file.
    fn anchor(&mut self, _folder: &Path) {}

    /// Files named by the section that are never served: keys, secrets, logs.
    fn private_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Keys whose values differ in `new` but take effect only at the next start, as paths from the section.
    fn start_only(&self, _new: &Self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// A value that contradicts another one, or has no effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contradiction {
    /// The keys that lead to the value from the section. A number is an index in a list.
    pub path: Vec<String>,
    /// The error message, with the value and the remedy.
    pub message: String,
}

impl Contradiction {
    /// Creates a contradiction at a path of keys.
    pub fn at(path: &[&str], message: impl Into<String>) -> Self {
        Self { path: path.iter().map(ToString::to_string).collect(), message: message.into() }
    }

    /// Prepends `section`, the section's name in the document, to the path.
    #[must_use]
    pub fn within(mut self, section: &str) -> Self {
        self.path.insert(0, section.to_owned());
        self
    }
}
