//! Resolves a decoded path to a file, a listing or a redirect. Only this part of a site opens files.
//!
//! ```text
//!   path ─► redirect? refused? hidden? ─► place ─► ends in /: index files ─► Page
//!                                          │            none: Listing | Absent
//!                                          └► else: file ─► Page, with siblings .br .zst .gz
//!                                                   directory ─► Slash
//! ```
//! The same procedure runs on a worker, which must not block ([`Patience::Cached`]: the look-up fails with
//! [`OpenError::NotCached`]), and on the thread pool, which may.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_io::changes;
use encke_io::files::{
    self, FileId, FileKind, Links, Metadata, OpenError, OpenFile, PathStep, Patience, Root,
};
use encke_wire::coding::Coding;

use super::error::{RuleError, SiteKeyError};
use super::file_check::PageFiles;
use super::media::MediaType;
use super::never_served::NeverServed;
use super::rules::{PathMapping, PathPolicy, RuleSet};
use encke_server::BLOCK_CONTENT_MAX;
use encke_wire::path_pattern::PATH_BYTES_MAX;

/// The roots and rules of a site, as a look-up needs them.
#[derive(Clone)]
pub(super) struct SiteRoot {
    pub(super) rules: Arc<RuleSet>,
    /// The root of each of [`RuleSet::places`].
    bases: Arc<[Arc<Base>]>,
    /// Files and directories that are never served.
    forbidden: Arc<NeverServed>,
    /// Whether a file with this real name is never served.
    hides: Option<fn(&str) -> bool>,
}

/// A directory from which files are served.
struct Base {
    root: Root,
    id: FileId,
    /// Whether the file system is local: a look-up needs no network, and inotify(7) reports changes.
    near: bool,
}

/// The result of a look-up.
pub(super) struct LookupResult {
    pub(super) thing: LookupTarget,
    pub(super) policy: PathPolicy,
    /// The directory entries on which the result depends, for the watch. `None` if these cannot be determined.
    pub(super) steps: Option<Vec<PathStep>>,
}

pub(super) enum LookupTarget {
    /// A file.
    Page(Box<Leaf>),
    /// A directory whose path lacks the trailing slash.
    Slash,
    /// A directory to be listed.
    Listing,
    /// A redirect: status, target, and whether the request's query is appended.
    Moved(u16, String, bool),
    /// Nothing to serve.
    Absent(Absence),
}

/// The status of the error for a path at which nothing is served, and the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    pub(super) status: u16,
    /// The reason in the log.
    pub(super) rule: &'static &'static str,
}

impl Absence {
    /// The rule `status` of `paths`.
    pub(super) const fn by_rule(status: u16) -> Self {
        Self { status, rule: &"path_rule" }
    }

    const HIDDEN: Self = Self { status: 404, rule: &"hidden_name" };
    const TOO_LONG: Self = Self { status: 404, rule: &"path_too_long" };
    const MISSING: Self = Self { status: 404, rule: &"not_found" };
    const NO_INDEX: Self = Self { status: 404, rule: &"no_index_and_no_listing" };
    const NEVER_SERVED: Self = Self { status: 404, rule: &"never_served" };
    const NO_FILE: Self = Self { status: 404, rule: &"no_regular_file" };
    const NOT_PERMITTED: Self = Self { status: 403, rule: &"permissions_or_symlinks" };
}

/// A file and its compressed siblings.
pub(super) struct Leaf {
    pub(super) media_type: MediaType,
    pub(super) plain: FileVariant,
    /// In the order of [`SIBLINGS`].
    pub(super) coded: [Option<FileVariant>; 3],
    /// The files above.
    pub(super) files: PageFiles,
}

/// The metadata and content of one file.
pub(super) struct FileVariant {
    pub(super) metadata: Metadata,
    pub(super) content: Content,
}

pub(super) enum Content {
    /// The bytes of a small file.
    Memory(Vec<u8>),
    /// The open file, to send from.
    File(Arc<OpenFile>),
}

/// The codings for which a file may have a compressed sibling.
pub(super) const SIBLINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

impl Base {
    fn open(path: &Path) -> Result<Self, RuleError> {
        let system = |error| RuleError::Root(path.to_owned(), error);
        let root = Root::new(path).map_err(system)?;
        let id = root.id().map_err(system)?;
        let folder = root
            .open(b"", Links::Deny, Patience::Patient)
            .map_err(|error| RuleError::RootFolder(path.to_owned(), error))?;
        Ok(Self { root, id, near: changes::reliable(&folder) })
    }
}

impl SiteRoot {
    /// Opens the roots.
    ///
    /// # Errors
    /// The setting that names an unreadable directory, and the reason.
    pub(super) fn open(rules: Arc<RuleSet>, forbidden: Arc<NeverServed>) -> Result<Self, SiteKeyError> {
        let open = |place: &PathMapping| {
            let key = if place.prefix == "/" { "root" } else { "aliases" };
            Base::open(&place.folder).map(Arc::new).map_err(|error| (key, error))
        };
        let bases = rules.places.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { rules, bases, forbidden, hides: None })
    }

    /// Opens the roots again. Returns `None` if none was replaced. A root that cannot be opened, perhaps because it is being
    /// replaced, stays as it was.
    pub(super) fn renewed(&self) -> Option<Self> {
        let mut is_new = false;
        let renew = |(place, base): (&PathMapping, &Arc<Base>)| match Base::open(&place.folder) {
            Ok(fresh) if fresh.id != base.id || fresh.root.path() != base.root.path() => {
                is_new = true;
                Arc::new(fresh)
            }
            _ => Arc::clone(base),
        };
        let bases = self.rules.places.iter().zip(&*self.bases).map(renew).collect();
        is_new.then(|| Self { bases, forbidden: Arc::new(self.forbidden.renewed()), ..self.clone() })
    }

    /// Whether a symbolic link leads to one of the roots.
    pub(super) fn is_linked(&self) -> bool {
        let is_straight = |(place, base): (&PathMapping, &Arc<Base>)| {
            std::path::absolute(&place.folder).is_ok_and(|path| path == files::plain_path(base.root.path()))
        };
        !self.rules.places.iter().zip(&*self.bases).all(is_straight)
    }

    /// The rules of the site.
    pub(super) fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.rules)
    }

    /// Whether a worker may look up this path itself: its file system is local.
    pub(super) fn is_near(&self, path: &str) -> bool {
        self.rules.place(path).is_none_or(|(number, _)| self.bases[number].near)
    }

    /// The root of one of [`RuleSet::places`], and the rules.
    pub(super) fn place(&self, number: usize) -> (&Root, &RuleSet) {
        (&self.bases[number].root, &self.rules)
    }

    /// The directories of the roots.
    pub(super) fn tops(&self) -> Vec<PathBuf> {
        self.bases.iter().map(|base| base.root.path().to_path_buf()).collect()
    }

    /// Looks up a decoded path on the thread pool.
    ///
    /// # Errors
    /// As for [`SiteRoot::find`], after [`FINDS_MAX`] attempts.
    pub(super) fn find_patiently(&self, path: &str) -> Result<LookupResult, OpenError> {
        let mut result = self.find(path, Patience::Patient);
        for _ in 1..FINDS_MAX {
            // A directory was renamed while the kernel resolved the path (openat2(2), EAGAIN).
            if !matches!(result, Err(OpenError::NotCached)) {
                break;
            }
            result = self.find(path, Patience::Patient);
        }
        result
    }

    /// Opens the directory at a decoded path, for a listing. Returns it with its root and its name below the root.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) fn folder<'a>(&'a self, path: &'a str) -> Result<(OpenFile, &'a Root, &'a str), OpenError> {
        let (number, name) = self.rules.place(path).ok_or(OpenError::NotFound)?;
        let root = &self.bases[number].root;
        let folder = root.open(name.as_bytes(), self.rules.links, Patience::Patient)?;
        if folder.metadata.kind != FileKind::Folder || self.forbids(&folder, root, name.as_bytes()) {
            return Err(OpenError::NotFound);
        }
        Ok((folder, root, name))
    }

    /// Looks up a decoded path. A path that cannot be served is an `Ok` with [`LookupTarget::Absent`].
    ///
    /// # Errors
    /// Conditions that say nothing about the path: the disk is needed, or a resource of the system is exhausted.
    pub(super) fn find(&self, path: &str, patience: Patience) -> Result<LookupResult, OpenError> {
        let policy = self.rules.policy(path);
        let settled = |thing, policy| Ok(LookupResult { thing, policy, steps: Some(Vec::new()) });
        if let Some((status, target, keeps_query)) = self.rules.moved(path) {
            return settled(LookupTarget::Moved(status, target, keeps_query), policy);
        }
        if let Some(status) = policy.special.status {
            return settled(LookupTarget::Absent(Absence::by_rule(status)), policy);
        }
        if path.len() > PATH_BYTES_MAX {
            return settled(LookupTarget::Absent(Absence::TOO_LONG), policy);
        }
        if self.rules.is_hidden(path) {
            return settled(LookupTarget::Absent(Absence::HIDDEN), policy);
        }
        let Some((number, name)) = self.rules.place(path) else {
            return settled(LookupTarget::Slash, policy);
        };
        let root = &self.bases[number].root;
        Lookup { ground: self, place: number, root, patience, steps: Some(Vec::new()) }.run(name, policy)
    }

    /// Never serves these files and directories from now on.
    pub(super) fn forbid(&mut self, forbidden: Arc<NeverServed>) {
        self.forbidden = forbidden;
    }

    /// Never serves files whose real name `hides` from now on.
    pub(super) fn hide(&mut self, hides: fn(&str) -> bool) {
        self.hides = Some(hides);
    }

    /// Whether this entry of a directory must never be served.
    pub(super) fn forbids_entry(&self, folder: &OpenFile, name: &str, metadata: &Metadata) -> bool {
        self.forbidden.has((metadata.device, metadata.inode))
            || self.forbidden.has_name(folder.id(), OsStr::new(name))
    }

    /// Whether this file or a directory above it must never be served.
    pub(super) fn forbids(&self, file: &OpenFile, root: &Root, name: &[u8]) -> bool {
        if self.forbidden.is_empty() && self.hides.is_none() {
            return false;
        }
        if self.forbidden.has(file.id()) {
            return true;
        }
        // The directories above the file: by its real path, or by its name where the system does not report that, and for a
        // file that was just replaced.
        let mut path = file.path().unwrap_or_else(|| {
            let named = root.path().join(String::from_utf8_lossy(name).as_ref());
            named.canonicalize().unwrap_or(named)
        });
        if let Some(hides) = self.hides
            && path.file_name().is_some_and(|name| hides(&name.to_string_lossy()))
        {
            return true;
        }
        while path != root.path() {
            let name = path.file_name().map(OsStr::to_owned);
            if !path.pop() {
                break;
            }
            let is_forbidden = |folder: FileId| {
                self.forbidden.has(folder) || name.is_some_and(|name| self.forbidden.has_name(folder, &name))
            };
            if files::id_of(&path).is_some_and(is_forbidden) {
                return true;
            }
        }
        false
    }
}

/// One look-up in progress.
struct Lookup<'a> {
    ground: &'a SiteRoot,
    /// The index of the root in [`RuleSet::places`].
    place: usize,
    root: &'a Root,
    patience: Patience,
    steps: Option<Vec<PathStep>>,
}

impl Lookup<'_> {
    fn run(mut self, name: &str, policy: PathPolicy) -> Result<LookupResult, OpenError> {
        let rules = Arc::clone(&self.ground.rules);
        let thing = if name.is_empty() || name.ends_with('/') {
            self.folder(name, policy.special.list.unwrap_or(rules.list))?
        } else {
            match self.open(name)? {
                OpenedPath::File(file) => self.page(name, file)?,
                OpenedPath::Folder => LookupTarget::Slash,
                OpenedPath::Absent(absence) => LookupTarget::Absent(absence),
            }
        };
        Ok(LookupResult { thing, policy, steps: self.steps })
    }

    /// Looks up the directory `name`, which ends in a slash or is empty: its index file, or its listing if `list`.
    fn folder(&mut self, name: &str, list: bool) -> Result<LookupTarget, OpenError> {
        let rules = Arc::clone(&self.ground.rules);
        for index in &rules.index {
            let name = format!("{name}{index}");
            match self.open(&name)? {
                OpenedPath::File(file) => return self.page(&name, file),
                OpenedPath::Absent(absence) if absence.status != 404 => {
                    return Ok(LookupTarget::Absent(absence));
                }
                OpenedPath::Folder | OpenedPath::Absent(_) => {}
            }
        }
        Ok(match self.open(name)? {
            OpenedPath::Folder if list => LookupTarget::Listing,
            OpenedPath::Folder => LookupTarget::Absent(Absence::NO_INDEX),
            OpenedPath::File(_) => LookupTarget::Absent(Absence::MISSING),
            OpenedPath::Absent(absence) => LookupTarget::Absent(absence),
        })
    }

    fn page(&mut self, name: &str, file: OpenFile) -> Result<LookupTarget, OpenError> {
        let media_type = MediaType::of(name);
        let plain = self.part(file)?;
        let mut coded = [None, None, None];
        let mut files = vec![(name.to_owned(), plain.metadata)];
        if self.ground.rules.siblings && !media_type.is_dense() {
            for (slot, coding) in coded.iter_mut().zip(SIBLINGS) {
                let sibling = format!("{name}{}", coding.extension());
                if let OpenedPath::File(file) = self.open(&sibling)? {
                    // An older one may be touched later.
                    files.push((sibling, file.metadata));
                    if !is_older(&file.metadata, &plain.metadata) {
                        *slot = Some(self.part(file)?);
                    }
                }
            }
        }
        Ok(LookupTarget::Page(Box::new(Leaf {
            media_type,
            plain,
            coded,
            files: PageFiles { place: self.place, files },
        })))
    }

    /// Opens a name, records the entries to watch, and returns its kind.
    fn open(&mut self, name: &str) -> Result<OpenedPath, OpenError> {
        let opened = match self.root.open(name.as_bytes(), self.ground.rules.links, self.patience) {
            Ok(file) => file,
            Err(error @ (OpenError::NotFound | OpenError::Forbidden)) => {
                self.watch(self.root.steps(name.as_bytes()));
                let missing = error == OpenError::NotFound;
                return Ok(OpenedPath::Absent(if missing {
                    Absence::MISSING
                } else {
                    Absence::NOT_PERMITTED
                }));
            }
            Err(error) => return Err(error),
        };
        let straight = self.root.path().join(name.trim_end_matches('/'));
        if name.is_empty() {
            // The root itself has its own watch.
        } else if opened.path().is_some_and(|path| path == straight) {
            // The path contains no link: the watch needs only the file's directory and the ancestors of that.
            let step = straight.parent().zip(straight.file_name());
            self.watch(step.map(|(folder, name)| {
                vec![PathStep { folder: folder.to_path_buf(), name: name.as_encoded_bytes().to_vec() }]
            }));
        } else {
            self.watch(self.root.steps(name.as_bytes()));
        }
        if self.ground.forbids(&opened, self.root, name.as_bytes()) {
            return Ok(OpenedPath::Absent(Absence::NEVER_SERVED));
        }
        Ok(match opened.metadata.kind {
            FileKind::File => OpenedPath::File(opened),
            FileKind::Folder => OpenedPath::Folder,
            FileKind::Other => OpenedPath::Absent(Absence::NO_FILE),
        })
    }

    fn watch(&mut self, steps: Option<Vec<PathStep>>) {
        match (&mut self.steps, steps) {
            (Some(all), Some(steps)) => {
                for step in steps {
                    if !all.contains(&step) {
                        all.push(step);
                    }
                }
            }
            (all, _) => *all = None,
        }
    }

    /// Reads a small file into memory; keeps a larger one open.
    fn part(&self, mut file: OpenFile) -> Result<FileVariant, OpenError> {
        if file.metadata.len > BLOCK_CONTENT_MAX as u64 {
            return Ok(FileVariant { metadata: file.metadata, content: Content::File(Arc::new(file)) });
        }
        // Another program may write meanwhile: the content must match its metadata.
        for _ in 0..READS_MAX {
            let before = file.metadata;
            let mut content = vec![0; before.len as usize + 1];
            let read = match self.patience {
                Patience::Cached => file.read_cached_at(0, &mut content).ok_or(OpenError::NotCached)?,
                Patience::Patient => file.read_at(0, &mut content).map_err(system)?,
            };
            file.metadata = file.stat().map_err(system)?;
            if file.metadata == before && read as u64 == before.len {
                content.truncate(read);
                return Ok(FileVariant { metadata: before, content: Content::Memory(content) });
            }
            if file.metadata.len > BLOCK_CONTENT_MAX as u64 {
                break;
            }
        }
        Ok(FileVariant { metadata: file.metadata, content: Content::File(Arc::new(file)) })
    }
}

enum OpenedPath {
    File(OpenFile),
    Folder,
    Absent(Absence),
}

/// Whether a sibling is older than its plain file, in whole seconds: `brotli`, tar, rsync and image layers of containers cut the
/// time that they copy to seconds, and other tools to milliseconds or microseconds.
const fn is_older(sibling: &Metadata, plain: &Metadata) -> bool {
    sibling.modified_ns / NS < plain.modified_ns / NS
}

fn system(error: io::Error) -> OpenError {
    OpenError::System(error.raw_os_error().unwrap_or(0))
}

/// Attempts to read a small file that changes meanwhile. After that it is sent from the open file.
const READS_MAX: usize = 3;

/// Attempts of the thread pool to resolve a path whose directories are being renamed.
const FINDS_MAX: usize = 5;

const NS: u64 = 1_000_000_000;
