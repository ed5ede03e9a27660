//! Earlier versions of the settings file, each in a private file of its own.
//!
//! ```text
//!  settings-history/000007.version   {"time_ms":…,"user":"ann","address":"127.0.0.1","summary":"1 line changed"}
//!                                    the text of the file, from the second line on
//! ```
//! A version is stored before the file is replaced by it, so that every text that was ever in force since the first edit is
//! here. A text that another program wrote is stored before the next edit replaces it.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use encke_io::files;
use encke_settings::BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::difference::{difference, summary};
use super::file::{self, FileError, FileStep};

/// The directory's name in the state directory.
const FOLDER: &str = "settings-history";
/// The end of a version's file name.
const EXTENSION: &str = "version";
/// Maximum length of the first line: a user's name of 256 bytes, an address, numbers.
const HEAD_BYTES_MAX: u64 = 4 * 1024;

/// The stored versions of a settings file.
#[derive(Debug)]
pub(crate) struct VersionStore {
    folder: PathBuf,
}

/// A version, without its text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct VersionInfo {
    #[serde(skip)]
    pub(crate) number: u64,
    #[serde(skip)]
    pub(crate) bytes: u64,
    pub(crate) time_ms: u64,
    /// The user that wrote it; empty for another program.
    pub(crate) user: String,
    pub(crate) address: String,
    pub(crate) summary: String,
}

/// All versions, oldest first, and the errors of those that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct VersionList {
    pub(crate) versions: Vec<VersionInfo>,
    pub(crate) damaged: Vec<FileError>,
}

/// The directory of the versions of a settings file: in the state directory, or without one next to the file. Never serve it:
/// versions have secrets.
pub fn history_folder(file: &Path, state_dir: Option<&Path>) -> PathBuf {
    match state_dir {
        Some(state_dir) => state_dir.join(FOLDER),
        None => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            file.with_file_name(format!(".{name}.history"))
        }
    }
}

impl VersionStore {
    pub(crate) fn of(file: &Path, state_dir: Option<&Path>) -> Self {
        Self { folder: history_folder(file, state_dir) }
    }

    /// Returns all versions, oldest first, without reading their texts. Files that are no versions are ignored.
    pub(crate) fn versions(&self) -> Result<VersionList, FileError> {
        if !self.folder.is_dir() {
            return Ok(VersionList::default());
        }
        let mut found = VersionList::default();
        for number in self.numbers()? {
            match self.open(number) {
                Ok(Some((info, _))) => found.versions.push(info),
                Ok(None) => {}
                Err(error) => found.damaged.push(error),
            }
        }
        Ok(found)
    }

    /// Returns the newest version that is readable.
    pub(crate) fn newest(&self) -> Result<Option<(VersionInfo, String)>, FileError> {
        if !self.folder.is_dir() {
            return Ok(None);
        }
        let numbers = self.numbers()?;
        Ok(numbers.iter().rev().find_map(|number| self.read(*number).ok().flatten()))
    }

    /// Returns a version and its text; `None` if there is none with this number.
    pub(crate) fn read(&self, number: u64) -> Result<Option<(VersionInfo, String)>, FileError> {
        let Some((info, reader)) = self.open(number)? else { return Ok(None) };
        let mut text = String::new();
        reader
            .take(BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(FileError::at(&self.path(number), FileStep::Read))?;
        Ok(Some((VersionInfo { bytes: text.len() as u64, ..info }, text)))
    }

    /// Reads the first line of a version. The reader returns its text.
    fn open(&self, number: u64) -> Result<Option<(VersionInfo, BufReader<fs::File>)>, FileError> {
        let path = self.path(number);
        let wrong = || FileError::at(&path, FileStep::Read);
        let file = match files::open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong()(error)),
        };
        let len = file.metadata().map_err(wrong())?.len();
        let mut head = String::new();
        let mut reader = BufReader::new(file);
        reader.by_ref().take(HEAD_BYTES_MAX).read_line(&mut head).map_err(wrong())?;
        let bytes = len.saturating_sub(head.len() as u64);
        let info = serde_json::from_str(&head).map(|info| VersionInfo { number, bytes, ..info });
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        Ok(Some((info.map_err(|error| wrong()(invalid(error)))?, reader)))
    }

    /// Whether a version has this text.
    pub(crate) fn has(&self, text: &str) -> Result<bool, FileError> {
        let listed = self.versions()?;
        let mut candidates = listed.versions.iter().filter(|version| version.bytes == text.len() as u64);
        Ok(candidates
            .any(|version| matches!(self.read(version.number), Ok(Some((_, other))) if other == text)))
    }

    /// Stores a text as the newest version, unless the newest one has the same text. Returns its number if it is new.
    pub(crate) fn add(
        &self,
        text: &str,
        (user, address, time_ms): (&str, &str, u64),
        before: &mut dyn FnMut(FileStep),
    ) -> Result<Option<u64>, FileError> {
        file::make_private_folder(&self.folder)?;
        let newest = self.numbers()?.last().copied();
        let last = self.newest()?;
        let is_newest = |info: &VersionInfo| Some(info.number) == newest;
        let summary = match &last {
            // A damaged one in between may have had another text.
            Some((info, last)) if last == text && !is_newest(info) => {
                "no changes, after a damaged version".into()
            }
            Some((_, last)) if last == text => return Ok(None),
            Some((_, last)) => summary(&difference(last, text)),
            None => "first version".into(),
        };
        let number = newest.map_or(1, |newest| newest.saturating_add(1));
        let (user, address) = (user.to_owned(), address.to_owned());
        let info = VersionInfo { number, bytes: 0, time_ms, user, address, summary };
        // A struct of texts and numbers is always JSON.
        let mut content = serde_json::to_string(&info).unwrap_or_default();
        content.push('\n');
        content.push_str(text);
        file::write_private(&self.path(number), content.as_bytes(), before)?;
        Ok(Some(number))
    }

    /// Removes a version that was not applied.
    pub(crate) fn remove(&self, number: u64) -> Result<(), FileError> {
        let path = self.path(number);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileError::at(&path, FileStep::Remove)(error))
            }
            _ => Ok(()),
        }
    }

    /// Keeps the newest `count` versions.
    pub(crate) fn prune(&self, count: usize) -> Result<(), FileError> {
        let numbers = self.numbers()?;
        let surplus = numbers.len().saturating_sub(count);
        numbers.iter().take(surplus).try_for_each(|number| self.remove(*number))
    }

    /// The numbers of all versions, sorted.
    fn numbers(&self) -> Result<Vec<u64>, FileError> {
        let wrong = || FileError::at(&self.folder, FileStep::List);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(wrong())? {
            numbers.extend(number_of(&entry.map_err(wrong())?.path()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:06}.{EXTENSION}"))
    }
}

fn number_of(path: &Path) -> Option<u64> {
    let is_version = path.extension().is_some_and(|end| end == EXTENSION);
    path.file_stem().filter(|_| is_version)?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::ScratchDir;
    use super::*;

    const ANN: (&str, &str, u64) = ("ann", "127.0.0.1", 7);

    fn add(store: &VersionStore, text: &str) -> Option<u64> {
        store.add(text, ANN, &mut |_| {}).expect("stored")
    }

    #[test]
    fn versions_are_numbered_kept_and_pruned() {
        let scratch = ScratchDir::new("history");
        let store = VersionStore::of(&scratch.0.join("encke.toml"), None);
        assert_eq!(store.versions().expect("none").versions, []);
        assert_eq!(add(&store, "a = 1\n"), Some(1));
        assert_eq!(add(&store, "a = 1\n"), None, "the same text is one version");
        assert_eq!(add(&store, "a = 2\n"), Some(2));
        assert_eq!(add(&store, "a = 1\n"), Some(3));
        let (info, text) = store.read(2).expect("readable").expect("there");
        assert_eq!(
            (text.as_str(), info.summary.as_str(), info.user.as_str()),
            ("a = 2\n", "1 line changed", "ann")
        );
        assert_eq!(info.bytes, 6);
        store.prune(2).expect("removed");
        let numbers: Vec<u64> =
            store.versions().expect("listed").versions.iter().map(|one| one.number).collect();
        assert_eq!(numbers, [2, 3]);
        assert_eq!(add(&store, "b\n"), Some(4), "numbers are never reused");
        assert!(store.read(1).expect("readable").is_none());
    }

    #[test]
    fn versions_are_private_and_in_the_state_directory() {
        let scratch = ScratchDir::new("history-state");
        let store = VersionStore::of(Path::new("/etc/encke.toml"), Some(&scratch.0));
        add(&store, "x");
        for name in [FOLDER.into(), Path::new(FOLDER).join("000001.version")] {
            assert!(files::is_private(&scratch.0.join(&name)).expect("there"), "{}", name.display());
        }
    }

    #[test]
    fn a_damaged_version_is_skipped_and_named() {
        let scratch = ScratchDir::new("history-damaged");
        let store = VersionStore::of(Path::new("/a.toml"), Some(&scratch.0));
        assert_eq!((add(&store, "x"), add(&store, "y"), add(&store, "z")), (Some(1), Some(2), Some(3)));
        for damaged in ["000002.version", "000003.version"] {
            fs::write(scratch.0.join(FOLDER).join(damaged), "no JSON\nx").expect("written");
        }
        let list = store.versions().expect("listed");
        assert_eq!(list.versions.iter().map(|one| one.number).collect::<Vec<_>>(), [1]);
        let named: Vec<String> = list.damaged.iter().map(ToString::to_string).collect();
        assert!(named[0].contains("000002.version") && named[1].contains("000003.version"), "{named:?}");
        assert_eq!(add(&store, "x"), Some(4), "the damaged ones keep their numbers");
        assert_eq!(store.newest().expect("listed").expect("there").0.number, 4);
        assert_eq!(add(&store, "x"), None);
        assert!(store.has("x").expect("listed") && !store.has("w").expect("listed"));
    }

    #[test]
    fn a_list_reads_no_texts() {
        let scratch = ScratchDir::new("history-heads");
        let store = VersionStore::of(Path::new("/a.toml"), Some(&scratch.0));
        add(&store, "abc\n");
        let path = scratch.0.join(FOLDER).join("000001.version");
        let mut content = fs::read(&path).expect("there");
        let end = content.len() - 4;
        // A text that cannot be read is noticed only by whoever reads it.
        content[end..].fill(0xff);
        fs::write(&path, content).expect("written");
        let list = store.versions().expect("listed");
        assert_eq!(list.versions.iter().map(|one| (one.number, one.bytes)).collect::<Vec<_>>(), [(1, 4)]);
        store.read(1).expect_err("not UTF-8");
    }
}
