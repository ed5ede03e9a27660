//! Watches the directories of cached files.
//!
//! ```text
//!   /srv/site ──┬─ a ── b      a node for each watched directory, below that of its parent
//!               └─ c
//!   node: entry name ─► keys of the values that depend on it     b: "x.css", "x.css.gz" ─► [slot 7]
//! ```
//! A notification about an entry of a directory evicts the cached values that depend on it. If the entry is itself a watched
//! directory, everything below it is evicted as well. A cached value depends on one or a few entries: the file, its siblings,
//! the index files tried, each link, the first missing directory. The other directories of the path are covered as ancestors.
//!
//! A directory is watched as long as a cached value depends on it. Files are not watched: `file_check` describes the writes that
//! cause no notification about a directory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use encke_io::changes::{self, Change, Changes, FolderId};
use encke_io::files::{OpenFile, PathStep};

use super::file_cache::SlotKey;

/// The watched directories of a worker.
pub(super) struct DirWatcher {
    /// `None` if the system has no notifications, or its limit is reached.
    changes: Option<Changes>,
    nodes: Vec<Option<FolderNode>>,
    free: Vec<usize>,
    by_path: HashMap<PathBuf, usize>,
    by_id: HashMap<FolderId, usize>,
    /// The entries on which each key depends.
    entries: HashMap<SlotKey, Vec<WatchEntry>>,
    epoch: u64,
}

/// A node, and the name of an entry in its directory.
type WatchEntry = (usize, Box<[u8]>);

/// The node of a watched directory.
struct FolderNode {
    id: FolderId,
    path: PathBuf,
    parent: Option<usize>,
    /// Watched directories in this one.
    children: HashMap<Box<[u8]>, usize>,
    dependents: HashMap<Box<[u8]>, Vec<SlotKey>>,
}

/// The outcome of a request to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchOutcome {
    /// The directories were already watched.
    Before,
    /// Watching began now: the look-up must be repeated.
    Now,
    /// The directories cannot be watched.
    Never,
}

/// The effect of the notifications read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StaleReport {
    /// Keys of values that have changed.
    pub(super) stale: Vec<SlotKey>,
    /// Notifications were lost: every value may be stale.
    pub(super) all: bool,
    /// A topmost directory, most likely a root, was moved or removed.
    pub(super) top_gone: bool,
}

impl DirWatcher {
    /// Creates a watcher that watches no directory yet. `None` for `changes` disables it.
    pub(super) fn new(changes: Option<Changes>) -> Self {
        Self {
            changes,
            nodes: Vec::new(),
            free: Vec::new(),
            by_path: HashMap::new(),
            by_id: HashMap::new(),
            entries: HashMap::new(),
            epoch: 0,
        }
    }

    /// Disables the watch and returns its source of notifications, for another handler.
    pub(super) const fn end(&mut self) -> Option<Changes> {
        self.changes.take()
    }

    /// A number that changes with every notification read and every new watched directory. A look-up through watched
    /// directories is still valid while it is unchanged.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Watches the directories of `steps`, and their ancestors up to the one in `tops`. All were just looked up, so this does
    /// not block on the disk.
    pub(super) fn watch(&mut self, steps: &[PathStep], tops: &[&Path]) -> WatchOutcome {
        let mut outcome = WatchOutcome::Before;
        for step in steps {
            let top = tops.iter().find(|top| step.folder.starts_with(top));
            match self.folder(&step.folder, top.copied()) {
                Some((_, false)) => {}
                Some((_, true)) => outcome = WatchOutcome::Now,
                None => {
                    self.sweep();
                    return WatchOutcome::Never;
                }
            }
        }
        outcome
    }

    /// Records that the value of `key` depends on the entries of `steps`, whose directories are watched.
    pub(super) fn depend(&mut self, key: SlotKey, steps: Vec<PathStep>) {
        for PathStep { folder, name } in steps {
            let Some(&node) = self.by_path.get(&folder) else { continue };
            let name: Box<[u8]> = name.into();
            let filled = self.nodes[node].as_mut().expect("a path leads to a node that is there");
            filled.dependents.entry(name.clone()).or_default().push(key);
            self.entries.entry(key).or_default().push((node, name));
        }
    }

    /// Forgets evicted values, and stops watching directories on which no other value depends.
    pub(super) fn release(&mut self, keys: &[SlotKey]) {
        for key in keys {
            for (node, name) in self.entries.remove(key).unwrap_or_default() {
                let Some(filled) = &mut self.nodes[node] else { continue };
                if let Some(dependents) = filled.dependents.get_mut(&name) {
                    dependents.retain(|other| other != key);
                    if dependents.is_empty() {
                        filled.dependents.remove(&name);
                    }
                }
                self.prune(node);
            }
        }
    }

    /// Reads the pending notifications. The caller must [`DirWatcher::release`] the stale keys.
    pub(super) fn read(&mut self) -> StaleReport {
        let mut report = StaleReport::default();
        let Some(changes) = &mut self.changes else { return report };
        let mut notices = Vec::new();
        if changes.read(|change| notices.push(change)).is_err() {
            report.all = true;
        }
        self.epoch += u64::from(!notices.is_empty());
        for notice in notices {
            match notice {
                Change::Overflow => report.all = true,
                Change::Gone(folder) => {
                    if let Some(&node) = self.by_id.get(&folder) {
                        report.top_gone |=
                            self.nodes[node].as_ref().is_some_and(|gone| gone.parent.is_none());
                        self.collect(node, &mut report.stale);
                    }
                }
                Change::Entry(folder, name) => {
                    let Some(&node) = self.by_id.get(&folder) else { continue };
                    let filled = self.nodes[node].as_ref().expect("an id leads to a node that is there");
                    if let Some(dependents) = filled.dependents.get(&*name) {
                        report.stale.extend_from_slice(dependents);
                    }
                    if let Some(&child) = filled.children.get(&*name) {
                        self.collect(child, &mut report.stale);
                    }
                }
            }
        }
        report
    }

    /// Returns the node of a directory, and whether it is new.
    fn folder(&mut self, path: &Path, top: Option<&Path>) -> Option<(usize, bool)> {
        if let Some(&node) = self.by_path.get(path) {
            return Some((node, false));
        }
        let parent = match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) if top.is_some_and(|top| top != path) => {
                Some((self.folder(above, top)?.0, Box::from(name.as_encoded_bytes())))
            }
            _ => None,
        };
        if self.by_path.len() >= FOLDERS_MAX {
            return None;
        }
        let changes = self.changes.as_mut()?;
        let folder = OpenFile::folder(path).ok()?;
        if !changes::reliable(&folder) {
            return None;
        }
        let id = changes.watch(&folder).ok()?;
        if self.by_id.contains_key(&id) {
            // The directory was moved here from a watched path, and that notification is still pending.
            changes.forget(id);
            return None;
        }
        let node = self.free.pop().unwrap_or(self.nodes.len());
        let filled = FolderNode {
            id,
            path: path.to_path_buf(),
            parent: parent.as_ref().map(|(above, _)| *above),
            children: HashMap::new(),
            dependents: HashMap::new(),
        };
        if node == self.nodes.len() {
            self.nodes.push(Some(filled));
        } else {
            self.nodes[node] = Some(filled);
        }
        if let Some((above, name)) = parent {
            let above = self.nodes[above].as_mut().expect("a parent is there before its child");
            above.children.insert(name, node);
        }
        self.by_path.insert(path.to_path_buf(), node);
        self.by_id.insert(id, node);
        self.epoch += 1;
        Some((node, true))
    }

    /// Collects the keys that depend on a directory or anything below it.
    fn collect(&self, node: usize, stale: &mut Vec<SlotKey>) {
        let filled = self.nodes[node].as_ref().expect("only nodes that are there are asked for");
        stale.extend(filled.dependents.values().flatten());
        for &child in filled.children.values() {
            self.collect(child, stale);
        }
    }

    /// Stops watching a directory on which no value depends, and then each ancestor of which that is now true.
    fn prune(&mut self, node: usize) {
        let mut next = Some(node);
        while let Some(node) = next {
            let Some(filled) = &self.nodes[node] else { return };
            if !filled.dependents.is_empty() || !filled.children.is_empty() {
                return;
            }
            let filled = self.nodes[node].take().expect("looked at above");
            if let Some(changes) = &mut self.changes {
                changes.forget(filled.id);
            }
            self.by_path.remove(&filled.path);
            self.by_id.remove(&filled.id);
            self.free.push(node);
            if let (Some(above), Some(name)) = (filled.parent, filled.path.file_name())
                && let Some(above) = &mut self.nodes[above]
            {
                above.children.remove(name.as_encoded_bytes());
            }
            next = filled.parent;
        }
    }

    /// Stops watching every directory on which no value depends. Such directories remain after a path that could not be watched
    /// completely, or that differed in the second look-up.
    pub(super) fn sweep(&mut self) {
        for node in 0..self.nodes.len() {
            self.prune(node);
        }
    }
}

/// Maximum number of directories that one worker watches. The system grants a user at least 8,192
/// (fs.inotify.max_user_watches).
const FOLDERS_MAX: usize = 1_024;

#[cfg(all(test, unix))]
mod tests {
    use super::super::file_cache::{CacheCost, Cacheable, FileCache, HashKey};
    use super::*;
    use std::rc::Rc;

    struct Toy;

    impl Cacheable for Toy {
        fn load(&self) -> CacheCost {
            CacheCost::default()
        }
    }

    /// Keys as the file cache issues them.
    fn keys<const N: usize>() -> [SlotKey; N] {
        let limit = CacheCost { names: 100, descriptors: 100, memory: 1 << 20, made: 0 };
        let mut cache = FileCache::new(HashKey::new(1, 2), limit);
        std::array::from_fn(|number| {
            let path = [number as u8];
            let name = cache.name(0, &path);
            cache.put(&name, Rc::new(Toy), 1, &mut Vec::new())
        })
    }

    fn step(folder: &Path, name: &str) -> PathStep {
        PathStep { folder: folder.to_path_buf(), name: name.into() }
    }

    #[test]
    fn of_the_sources_of_many_reloads_a_worker_keeps_a_few() {
        let sources: Vec<Changes> = (0..5).map(|_| Changes::new().expect("a source")).collect();
        sources.into_iter().for_each(give_back);
        assert_eq!(SPARE_CHANGES.with_borrow(Vec::len), SPARES_MAX);
        assert!(spare_changes().is_some());
        assert_eq!(SPARE_CHANGES.with_borrow(Vec::len), SPARES_MAX - 1);
    }

    #[test]
    fn a_folder_is_watched_as_long_as_something_depends_on_it() {
        let top = std::env::temp_dir().join(format!("encke-watch-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&top);
        std::fs::create_dir_all(top.join("a/b")).expect("made");
        std::fs::create_dir_all(top.join("c")).expect("made");
        let top = top.canonicalize().expect("there");
        let mut watch = DirWatcher::new(Changes::new().ok());
        let [one, two, three] = keys();

        let deep = vec![step(&top.join("a/b"), "x")];
        assert_eq!(watch.watch(&deep, &[&top]), WatchOutcome::Now);
        assert_eq!(watch.watch(&deep, &[&top]), WatchOutcome::Before);
        watch.depend(one, deep);
        let both = vec![step(&top.join("a/b"), "y"), step(&top.join("c"), "x")];
        assert_eq!(watch.watch(&both, &[&top]), WatchOutcome::Now);
        watch.depend(two, both);
        assert_eq!(watch.by_path.len(), 4, "the top, a, b and c");

        std::fs::write(top.join("a/b/other"), "").expect("written");
        assert_eq!(watch.read(), StaleReport::default(), "nothing depends on that");
        std::fs::write(top.join("c/x"), "").expect("written");
        assert!(watch.read().stale.iter().all(|&key| key == two));
        watch.release(&[two]);
        assert_eq!(watch.by_path.len(), 3, "c is not watched any more");
        std::fs::rename(top.join("a"), top.join("d")).expect("renamed");
        let report = watch.read();
        assert!(!report.stale.is_empty() && report.stale.iter().all(|&key| key == one));
        watch.release(&[one, one, three]);
        assert_eq!((watch.by_path.len(), watch.by_id.len(), watch.entries.len()), (0, 0, 0));
        assert!(watch.nodes.iter().all(Option::is_none));

        let gone = vec![step(&top.join("a/b"), "x")];
        assert_eq!(watch.watch(&gone, &[&top]), WatchOutcome::Never, "the folder is not there");
        assert_eq!(watch.by_path.len(), 0, "nor are those above it watched");
        let _gone = std::fs::remove_dir_all(&top);
    }
}
thread_local! {
    /// Sources of notifications that handlers of earlier settings have returned. Closing one would block the worker.
    static SPARE_CHANGES: RefCell<Vec<Changes>> = const { RefCell::new(Vec::new()) };
}

/// Returns a source of notifications for a handler of this worker; `None` if the system's limit is reached.
pub(super) fn spare_changes() -> Option<Changes> {
    SPARE_CHANGES.with_borrow_mut(Vec::pop).or_else(|| Changes::new().ok())
}

/// Maximum number of spare sources of a worker. A reload needs one; several reloads at once return more.
const SPARES_MAX: usize = 2;

/// Keeps a source that a handler no longer needs for the next handler of this worker, or closes it.
pub(super) fn give_back(mut changes: Changes) {
    changes.clear();
    let surplus = SPARE_CHANGES.with_borrow_mut(|spares| {
        if spares.len() >= SPARES_MAX {
            return Some(changes);
        }
        spares.push(changes);
        None
    });
    if let Some(surplus) = surplus {
        surplus.close_aside();
    }
}
