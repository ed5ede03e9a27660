//! Change notifications for files (inotify(7)), so that a cache can respond without disk access.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_a_watched_folder_is_told() {
        let path = std::env::temp_dir().join(format!("encke-changes-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a writable temporary folder");
        let root = crate::files::Root::new(&path).expect("opened");
        let folder =
            root.open(b"", crate::files::Links::Deny, crate::files::Patience::Patient).expect("opened");
        let mut changes = Changes::new().expect("made");
        let id = changes.watch(&folder).expect("watched");
        std::fs::write(path.join("new"), "x").expect("written");
        std::fs::remove_file(path.join("new")).expect("removed");
        std::fs::remove_dir(&path).expect("removed");
        drop(folder);
        let mut told = Vec::new();
        changes.read(|change| told.push(change)).expect("read");
        assert_eq!(told.first(), Some(&Change::Entry(id, b"new".to_vec())));
        assert!(reliable(std::fs::File::open(std::env::temp_dir()).expect("opened")));
    }

    #[test]
    fn what_was_cleared_tells_of_nothing_and_can_watch_again() {
        let path = std::env::temp_dir().join(format!("encke-changes-again-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a writable temporary folder");
        let mut changes = Changes::new().expect("made");
        let before = changes.watch_path(&path).expect("watched");
        std::fs::write(path.join("one"), "x").expect("written");
        changes.clear();
        assert!(changes.is_empty());
        std::fs::write(path.join("two"), "x").expect("written");
        changes.read(|change| panic!("it told of {change:?}")).expect("read");
        let after = changes.watch_path(&path).expect("watched");
        assert_ne!(before, after, "a notice of then is none of now");
        std::fs::write(path.join("three"), "x").expect("written");
        let mut told = Vec::new();
        changes.read(|change| told.push(change)).expect("read");
        assert_eq!(told.first(), Some(&Change::Entry(after, b"three".to_vec())));
        std::fs::remove_dir_all(&path).expect("removed");
    }
}
