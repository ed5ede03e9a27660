//! From a decoded path to what lies there: the only part of a site that opens files.
//!
//! ```text
//!   path ─► redirect? refused? hidden? ─► place ─► ends in /: index files ─► Page
//!                                          │            none: Listing | Absent
//!                                          └► else: file ─► Page, with siblings .br .zst .gz
//!                                                   folder ─► Slash
//! ```
//! The same procedure runs on a worker, where it may not wait ([`Patience::Cached`]: it gives up with
//! [`OpenError::NotCached`]), and on the pool, where it may.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_io::changes;
use encke_io::files::{self, FileId, Kind, Links, Metadata, OpenError, OpenFile, Patience, Root, Step};
use encke_wire::coding::Coding;

use super::media::MediaType;
use super::pattern::PATH_BYTES_MAX;
use super::rules::{Place, Policy, Rules};
use encke_server::BLOCK_CONTENT_MAX;

/// Where the files of a site are, as far as one look-up needs to know.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) rules: Arc<Rules>,
    /// The root of each of [`Rules::places`].
    bases: Arc<[Arc<Base>]>,
    /// Files and folders that are never served.
    forbidden: Arc<[FileId]>,
}

/// A folder from which files are served.
struct Base {
    root: Root,
    id: FileId,
    /// Its file system is this kernel's own: a look needs no network, and changes are told.
    near: bool,
}

/// What lies at a path.
pub(super) struct Found {
    pub(super) thing: Thing,
    pub(super) policy: Policy,
    /// What to watch: the thing is another once one of these entries changes. `None`: that cannot be told.
    pub(super) steps: Option<Vec<Step>>,
}

pub(super) enum Thing {
    /// A file.
    Page(Box<Leaf>),
    /// A folder whose path lacks the slash at its end.
    Slash,
    /// A folder to be listed.
    Listing,
    /// It has moved: status, target, and whether the query goes along.
    Moved(u16, String, bool),
    /// Nothing that is to be seen, and the status that says so.
    Absent(u16),
}

/// A file and its compressed siblings.
pub(super) struct Leaf {
    pub(super) media_type: MediaType,
    pub(super) plain: Part,
    /// In the order of [`SIBLINGS`].
    pub(super) coded: [Option<Part>; 3],
}

/// One file as it will be sent.
pub(super) struct Part {
    pub(super) metadata: Metadata,
    pub(super) content: Content,
}

pub(super) enum Content {
    /// Small: its bytes.
    Memory(Vec<u8>),
    /// To be sent from the open file.
    File(Arc<OpenFile>),
}

/// Codings of which a file may have a sibling.
pub(super) const SIBLINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

impl Base {
    fn open(path: &Path) -> io::Result<Self> {
        let root = Root::new(path)?;
        let id = root.id()?;
        let folder = root.open(b"", Links::Deny, Patience::Patient).map_err(io::Error::other)?;
        Ok(Self { root, id, near: changes::reliable(&folder) })
    }
}

impl Ground {
    /// Opens the roots.
    ///
    /// # Errors
    /// The key that names a folder which cannot be read, and why.
    pub(super) fn open(rules: Arc<Rules>, forbidden: Arc<[FileId]>) -> Result<Self, (&'static str, String)> {
        let open = |place: &Place| {
            let key = if place.prefix == "/" { "root" } else { "aliases" };
            let wrong = |error| (key, format!("{} cannot be served: {error}", place.folder.display()));
            Base::open(&place.folder).map(Arc::new).map_err(wrong)
        };
        let bases = rules.places.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { rules, bases, forbidden })
    }

    /// The same with the roots as they are now; `None` if none is another. A root that is not there at the
    /// moment, because somebody is replacing it, stays as it was.
    pub(super) fn renewed(&self) -> Option<Self> {
        let mut is_new = false;
        let renew = |(place, base): (&Place, &Arc<Base>)| match Base::open(&place.folder) {
            Ok(fresh) if fresh.id != base.id || fresh.root.path() != base.root.path() => {
                is_new = true;
                Arc::new(fresh)
            }
            _ => Arc::clone(base),
        };
        let bases = self.rules.places.iter().zip(&*self.bases).map(renew).collect();
        is_new.then(|| Self { bases, ..self.clone() })
    }

    /// Whether a link leads to one of the roots.
    pub(super) fn is_linked(&self) -> bool {
        let is_straight = |(place, base): (&Place, &Arc<Base>)| {
            std::path::absolute(&place.folder).is_ok_and(|path| path == base.root.path())
        };
        !self.rules.places.iter().zip(&*self.bases).all(is_straight)
    }

    /// The rules of the site.
    pub(super) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules)
    }

    /// Whether a worker may look for this path itself.
    pub(super) fn is_near(&self, path: &str) -> bool {
        self.rules.place(path).is_none_or(|(number, _)| self.bases[number].near)
    }

    /// The roots' folders.
    pub(super) fn tops(&self) -> Vec<PathBuf> {
        self.bases.iter().map(|base| base.root.path().to_path_buf()).collect()
    }

    /// Looks up a decoded path on the pool.
    ///
    /// # Errors
    /// As [`Ground::find`], after some tries.
    pub(super) fn find_patiently(&self, path: &str) -> Result<Found, OpenError> {
        let mut result = self.find(path, Patience::Patient);
        for _ in 1..FINDS_MAX {
            // A folder on the way was renamed while the kernel walked through it (openat2(2), EAGAIN).
            if !matches!(result, Err(OpenError::NotCached)) {
                break;
            }
            result = self.find(path, Patience::Patient);
        }
        result
    }

    /// Opens the folder that a decoded path names, to be listed; with its root and its name in there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) fn folder<'a>(&'a self, path: &'a str) -> Result<(OpenFile, &'a Root, &'a str), OpenError> {
        let (number, name) = self.rules.place(path).ok_or(OpenError::NotFound)?;
        let root = &self.bases[number].root;
        let folder = root.open(name.as_bytes(), self.rules.links, Patience::Patient)?;
        if folder.metadata.kind != Kind::Folder || self.forbids(&folder, root, name.as_bytes()) {
            return Err(OpenError::NotFound);
        }
        Ok((folder, root, name))
    }

    /// Looks up a decoded path.
    ///
    /// # Errors
    /// What says nothing about the path: that the disk is needed, or that something else is short. What cannot
    /// be served is an `Ok` that says so.
    pub(super) fn find(&self, path: &str, patience: Patience) -> Result<Found, OpenError> {
        let policy = self.rules.policy(path);
        let settled = |thing, policy| Ok(Found { thing, policy, steps: Some(Vec::new()) });
        if let Some((status, target, keeps_query)) = self.rules.moved(path) {
            return settled(Thing::Moved(status, target, keeps_query), policy);
        }
        if let Some(status) = policy.special.status {
            return settled(Thing::Absent(status), policy);
        }
        if self.rules.is_hidden(path) || path.len() > PATH_BYTES_MAX {
            return settled(Thing::Absent(404), policy);
        }
        let Some((number, name)) = self.rules.place(path) else { return settled(Thing::Slash, policy) };
        let root = &self.bases[number].root;
        Search { ground: self, root, patience, steps: Some(Vec::new()) }.run(name, policy)
    }

    /// Whether this very file or folder may be served to nobody.
    pub(super) fn has_forbidden(&self, metadata: &Metadata) -> bool {
        self.forbidden.contains(&(metadata.device, metadata.inode))
    }

    /// Whether this file may be served to nobody, or lies in a folder of which that is true.
    pub(super) fn forbids(&self, file: &OpenFile, root: &Root, name: &[u8]) -> bool {
        if self.forbidden.is_empty() {
            return false;
        }
        let has = |id: FileId| self.forbidden.contains(&id);
        if has(file.id()) {
            return true;
        }
        // The folders above it: by its real path, or, where the system does not tell that, by its name.
        let mut path =
            file.path().unwrap_or_else(|| root.path().join(String::from_utf8_lossy(name).as_ref()));
        while path != root.path() && path.pop() {
            if files::id_of(&path).is_some_and(has) {
                return true;
            }
        }
        false
    }
}

/// One look-up under way.
struct Search<'a> {
    ground: &'a Ground,
    root: &'a Root,
    patience: Patience,
    steps: Option<Vec<Step>>,
}

impl Search<'_> {
    fn run(mut self, name: &str, policy: Policy) -> Result<Found, OpenError> {
        let rules = Arc::clone(&self.ground.rules);
        let thing = if name.is_empty() || name.ends_with('/') {
            self.folder(name, policy.special.list.unwrap_or(rules.list))?
        } else {
            match self.open(name)? {
                Opened::File(file) => self.page(name, file)?,
                Opened::Folder => Thing::Slash,
                Opened::Absent(status) => Thing::Absent(status),
            }
        };
        Ok(Found { thing, policy, steps: self.steps })
    }

    /// What stands for the folder `name`, which ends in a slash or is empty.
    fn folder(&mut self, name: &str, list: bool) -> Result<Thing, OpenError> {
        let rules = Arc::clone(&self.ground.rules);
        for index in &rules.index {
            let name = format!("{name}{index}");
            match self.open(&name)? {
                Opened::File(file) => return self.page(&name, file),
                Opened::Absent(status) if status != 404 => return Ok(Thing::Absent(status)),
                Opened::Folder | Opened::Absent(_) => {}
            }
        }
        Ok(match self.open(name)? {
            Opened::Folder if list => Thing::Listing,
            Opened::Folder | Opened::File(_) => Thing::Absent(404),
            Opened::Absent(status) => Thing::Absent(status),
        })
    }

    fn page(&mut self, name: &str, file: OpenFile) -> Result<Thing, OpenError> {
        let media_type = MediaType::of(name);
        let plain = self.part(file)?;
        let mut coded = [None, None, None];
        if self.ground.rules.siblings && !media_type.is_dense() {
            for (slot, coding) in coded.iter_mut().zip(SIBLINGS) {
                if let Opened::File(file) = self.open(&format!("{name}{}", coding.extension()))?
                    && file.metadata.modified_ns >= plain.metadata.modified_ns
                {
                    *slot = Some(self.part(file)?);
                }
            }
        }
        Ok(Thing::Page(Box::new(Leaf { media_type, plain, coded })))
    }

    /// Opens a name, notes what to watch, and looks at what it is.
    fn open(&mut self, name: &str) -> Result<Opened, OpenError> {
        let opened = match self.root.open(name.as_bytes(), self.ground.rules.links, self.patience) {
            Ok(file) => file,
            Err(error @ (OpenError::NotFound | OpenError::Forbidden)) => {
                self.watch(self.root.steps(name.as_bytes()));
                return Ok(Opened::Absent(if error == OpenError::NotFound { 404 } else { 403 }));
            }
            Err(error) => return Err(error),
        };
        let straight = self.root.path().join(name.trim_end_matches('/'));
        if name.is_empty() {
            // The root itself has its own watch.
        } else if opened.path().is_some_and(|path| path == straight) {
            // No link on the way: its folder, and that folder's ancestors, are all there is to watch.
            let step = straight.parent().zip(straight.file_name());
            self.watch(step.map(|(folder, name)| {
                vec![Step { folder: folder.to_path_buf(), name: name.as_encoded_bytes().to_vec() }]
            }));
        } else {
            self.watch(self.root.steps(name.as_bytes()));
        }
        if self.ground.forbids(&opened, self.root, name.as_bytes()) {
            return Ok(Opened::Absent(404));
        }
        Ok(match opened.metadata.kind {
            Kind::File => Opened::File(opened),
            Kind::Folder => Opened::Folder,
            Kind::Other => Opened::Absent(404),
        })
    }

    fn watch(&mut self, steps: Option<Vec<Step>>) {
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

    /// Reads what is small; keeps open what is not.
    fn part(&self, mut file: OpenFile) -> Result<Part, OpenError> {
        if file.metadata.len > BLOCK_CONTENT_MAX as u64 {
            return Ok(Part { metadata: file.metadata, content: Content::File(Arc::new(file)) });
        }
        // A writer may be at work: what is read must be what the metadata speak of.
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
                return Ok(Part { metadata: before, content: Content::Memory(content) });
            }
            if file.metadata.len > BLOCK_CONTENT_MAX as u64 {
                break;
            }
        }
        Ok(Part { metadata: file.metadata, content: Content::File(Arc::new(file)) })
    }
}

enum Opened {
    File(OpenFile),
    Folder,
    Absent(u16),
}

fn system(error: io::Error) -> OpenError {
    OpenError::System(error.raw_os_error().unwrap_or(0))
}

/// Times that a small file is read again because it changed meanwhile; after that it is sent as it comes.
const READS_MAX: usize = 3;

/// Times that the pool tries to walk a way that is being changed.
const FINDS_MAX: usize = 5;
