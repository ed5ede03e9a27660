//! Change notifications for files (inotify(7), ReadDirectoryChangesW), so that a cache can respond without disk access.
//!
//! Directories are watched, not single files. Notifications may be lost ([`Change::Overflow`]). File systems written by other
//! machines send none (see [`reliable`]). A cache must handle both.

pub use crate::sys::changes::{Changes, reliable};

/// Identifies a watched directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FolderId(pub(crate) i32);

/// A change notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A file or directory of that name was created, changed or removed.
    Entry(FolderId, Vec<u8>),
    /// The watched directory itself was moved or removed, and is no longer watched.
    Gone(FolderId),
    /// Notifications were lost: anything may have changed.
    Overflow,
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::files::{Links, OpenFile, Patience, Root};
    use crate::testing::wait_until;

    /// A temporary directory, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("encke-changes-{name}-{}", std::process::id()));
            let _left = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).expect("a writable temporary folder");
            Self(path)
        }

        fn open(&self) -> OpenFile {
            let root = Root::new(&self.0).expect("made above");
            root.open(b"", Links::Deny, Patience::Patient).expect("made above")
        }

        fn write(&self, name: &str) {
            std::fs::write(self.0.join(name), "x").expect("written");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Reads until `done` is true of all changes. Linux has them at once, Windows a moment later.
    fn told(changes: &mut Changes, done: impl Fn(&[Change]) -> bool) -> Vec<Change> {
        let mut told = Vec::new();
        wait_until("all changes are reported", || {
            changes.read(|change| told.push(change)).expect("read");
            done(&told)
        });
        told
    }

    #[test]
    fn a_change_in_a_watched_folder_is_told() {
        let folder = Folder::new("one");
        let mut changes = Changes::new().expect("made");
        let id = changes.watch(&folder.open()).expect("watched");
        assert_eq!(changes.len(), 1);
        folder.write("new");
        let told = told(&mut changes, |told| !told.is_empty());
        assert_eq!(told.first(), Some(&Change::Entry(id, b"new".to_vec())));
        assert!(reliable(folder.open()));
    }

    #[test]
    fn every_kind_of_change_is_told_by_name() {
        let folder = Folder::new("kinds");
        let path = |name: &str| folder.0.join(name);
        folder.write("written");
        folder.write("old");
        folder.write("removed");
        let mut changes = Changes::new().expect("made");
        let id = changes.watch(&folder.open()).expect("watched");
        let name = |name: &str| Change::Entry(id, name.as_bytes().to_vec());
        let mut check = |what: &str, wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|wanted| name(wanted)).collect();
            let found = told(&mut changes, |told| wanted.iter().all(|wanted| told.contains(wanted)));
            assert!(found.iter().all(|found| wanted.contains(found)), "{what}: {found:?}");
        };
        folder.write("written");
        check("written", &["written"]);
        std::fs::rename(path("old"), path("Größe")).expect("renamed");
        check("renamed", &["old", "Größe"]);
        std::fs::remove_file(path("removed")).expect("removed");
        check("removed", &["removed"]);
        std::fs::create_dir(path("folder")).expect("made");
        check("made", &["folder"]);
    }

    #[test]
    fn a_folder_is_watched_until_each_watch_is_forgotten() {
        let folder = Folder::new("twice");
        let other = Folder::new("other");
        let mut changes = Changes::new().expect("made");
        let id = changes.watch(&folder.open()).expect("watched");
        assert_eq!(changes.watch(&folder.open()).expect("watched"), id);
        let second = changes.watch(&other.open()).expect("watched");
        assert_eq!((second == id, changes.len()), (false, 2));
        changes.forget(id);
        folder.write("one");
        assert_eq!(told(&mut changes, |told| !told.is_empty())[0], Change::Entry(id, b"one".to_vec()));
        changes.forget(id);
        assert_eq!(changes.len(), 1);
        folder.write("two");
        other.write("three");
        let told = told(&mut changes, |told| told.contains(&Change::Entry(second, b"three".to_vec())));
        let of_the_first = |change: &Change| *change == Change::Entry(id, b"two".to_vec());
        assert!(!told.iter().any(of_the_first), "it was forgotten");
    }

    #[test]
    fn more_changes_than_the_system_keeps_are_told_as_an_overflow() {
        let folder = Folder::new("many");
        let mut changes = Changes::new().expect("made");
        let id = changes.watch(&folder.open()).expect("watched");
        let names: Vec<String> = (0..500).map(|number| format!("a file with a long name {number}")).collect();
        for name in &names {
            folder.write(name);
        }
        told(&mut changes, |told| {
            let is_told = |name: &String| told.contains(&Change::Entry(id, name.clone().into_bytes()));
            told.contains(&Change::Overflow) || names.iter().all(is_told)
        });
        // The directory is still watched.
        folder.write("later");
        told(&mut changes, |told| told.contains(&Change::Entry(id, b"later".to_vec())));
    }

    #[test]
    fn what_was_cleared_tells_of_nothing_and_can_watch_again() {
        let folder = Folder::new("again");
        let mut changes = Changes::new().expect("made");
        let before = changes.watch_path(&folder.0).expect("watched");
        folder.write("one");
        changes.clear();
        assert!(changes.is_empty());
        folder.write("two");
        changes.read(|change| panic!("it told of {change:?}")).expect("read");
        let after = changes.watch_path(&folder.0).expect("watched");
        assert_ne!(before, after, "a notice of then is none of now");
        folder.write("three");
        let told = told(&mut changes, |told| !told.is_empty());
        assert_eq!(told.first(), Some(&Change::Entry(after, b"three".to_vec())));
    }
}
