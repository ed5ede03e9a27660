//! Sites: folders of files, served by host name.
//!
//! ```text
//!   Site (Mount, shared) ── opened by each worker ──► Clerk (Handler)
//!     rules   settings, checked once                    shelf   what was found, by name: Rc<Resource>
//!     hosts   name ─► site                              watch   folders on the way to it, by inotify(7)
//!     press   compressed bytes, shared by all           errands what the pool is doing for it
//!
//!   GET, warm    authority ─► site;  (site, raw path) ─► shelf ─► ready-made answer      no system call
//!   GET, cold    decode ─► rules ─► find on the worker, without waiting for a disk ──┐
//!                └─► else on the pool, once for all who ask; answered Later ─────────┴─► shelf ─► answer
//! ```
//!
//! **Staleness.** A change is seen by every request sent after it: the folders on the way are watched, and a worker
//! reads notices before requests. What the kernel does not tell of is looked at again after a minute: writes
//! through a shared mapping (mmap(2)) or through a hard link in a folder that is not watched, and mounts over a
//! folder. Where notices are not to be had (network file systems, FUSE, other systems than Linux, the user's
//! limit of watches), every file is looked at again after `open_files.revalidate`, 1 s. A root that is replaced is
//! noticed within a second if it is itself renamed or removed, or if a link leads to it that now leads elsewhere;
//! if a folder above it is renamed, with the next cold request. An answer that has begun is finished from the file
//! that it began with; if that is cut meanwhile, the connection is reset.
//!
//! **What is never served:** anything outside of the root (by dots, escapes or links that the policy does not
//! allow), names that begin with a dot but for `/.well-known/`, devices, pipes and sockets, and the files and
//! folders given as forbidden (settings, state, logs), whatever name they are reached by. Names on disk that are
//! not UTF-8 cannot be asked for.
//!
//! Known gaps: sendfile(2) of a file that is not in the page cache waits for the disk, on the worker; listings and
//! error pages are not compressed; brotli is sent only where a sibling `FILE.br` was made in advance.
//!
//! Out of scope: uploads, protection by password, server-side includes.

mod clerk;
mod explain;
mod fault;
mod find;
mod hosts;
mod listing;
mod media;
mod page;
mod pattern;
mod press;
mod rules;
pub mod settings;
mod shelf;
mod watch;

#[cfg(all(test, unix))]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use encke_io::files::FileId;
use encke_settings::{Contradiction, Section, SourceLine, SourceMap};

use encke_server::{Handler, HandlerContext, Mount, WorkerSetup};

pub use rules::SiteError;
pub use settings::SiteSettings;

use clerk::Clerk;
use explain::SiteRules;
use find::Ground;
use hosts::Hosts;
use press::Press;
use rules::Rules;
use settings::OPEN_FILES_MAX;
use shelf::{HashKey, Load};

/// All sites of a server.
pub struct Site {
    shared: Arc<Shared>,
    /// Roots as they were at start.
    grounds: Vec<Ground>,
    /// Where the settings have the sites' rules.
    source: SourceMap,
}

/// What the workers' clerks have in common.
struct Shared {
    hosts: Hosts,
    press: Press,
    /// What all clerks together may keep.
    limit: Load,
    clerks: AtomicUsize,
    hash_key: HashKey,
}

impl Site {
    /// Opens the roots of all sites. `forbidden` are files and folders that are never served: the settings file,
    /// the folder of state, logs.
    ///
    /// # Errors
    /// A setting that cannot be used, or a root that cannot be read; the text says which and what to do.
    pub fn new(sites: &[SiteSettings], forbidden: Vec<FileId>) -> Result<Self, SiteError> {
        let mut hosts = Hosts::default();
        let mut limit = Load::default();
        let mut grounds = Vec::new();
        let forbidden: Arc<[FileId]> = forbidden.into();
        for (number, settings) in sites.iter().enumerate() {
            let named = settings.host.first().cloned().unwrap_or_else(|| (number + 1).to_string());
            let wrong = |(key, text): (&'static str, String)| SiteError { site: named.clone(), key, text };
            let site =
                u16::try_from(number).map_err(|_| wrong(("host", "there are too many sites".into())))?;
            let rules = Arc::new(Rules::of(settings).map_err(wrong)?);
            grounds.push(Ground::open(rules, Arc::clone(&forbidden)).map_err(wrong)?);
            let names = settings.host.iter().map(|name| Some(name.as_str()));
            let default = settings.host.is_empty().then_some(None);
            for name in names.chain(default) {
                hosts.add(name, site).map_err(|text| wrong(("host", text)))?;
            }
            let sizes = &settings.open_files;
            limit = limit.plus(Load {
                names: sizes.names as usize,
                descriptors: sizes.count as usize,
                memory: usize::try_from(sizes.memory.bytes()).unwrap_or(usize::MAX),
                made: usize::try_from(settings.compression.memory.bytes()).unwrap_or(usize::MAX),
            });
        }
        limit.descriptors = limit.descriptors.min(OPEN_FILES_MAX as usize);
        let secret = std::hash::RandomState::new();
        let word = |number: u64| {
            let mut hasher = secret.build_hasher();
            hasher.write_u64(number);
            hasher.finish()
        };
        let hash_key = HashKey::new(word(0), word(1));
        let shared = Shared { hosts, press: Press::default(), limit, clerks: AtomicUsize::new(0), hash_key };
        Ok(Self { shared: Arc::new(shared), grounds, source: SourceMap::default() })
    }

    /// Sets the positions that explanations name. `source` is the map of the section `site`.
    #[must_use]
    pub fn with_source(mut self, source: SourceMap) -> Self {
        self.source = source;
        self
    }
}

impl Section for SiteSettings {
    fn check(&self) -> Vec<Contradiction> {
        let wrong = Rules::of(self).map(drop).err();
        let wrong = wrong.map(|(key, message)| Contradiction::at(&[key], format!("site.{key}: {message}")));
        wrong.into_iter().collect()
    }

    fn anchor(&mut self, folder: &Path) {
        for path in iter::once(&mut self.root).chain(self.aliases.iter_mut().map(|alias| &mut alias.to)) {
            *path = folder.join(&*path);
        }
    }
}

impl Shared {
    /// What one clerk may keep now.
    fn share(&self) -> Load {
        self.limit.shared_by(self.clerks.load(Ordering::Relaxed))
    }
}

impl Mount for Site {
    fn source(&self) -> Option<SourceLine> {
        self.source.line(&["0"])
    }

    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let rules = self.grounds.iter().map(Ground::rules).collect();
        let shared = Arc::clone(&self.shared);
        worker.explain(SiteRules { shared, rules, source: self.source.clone() });
        let changes = watch::spare_changes();
        Box::new(Clerk::new(Arc::clone(&self.shared), self.grounds.clone(), context, changes))
    }
}
