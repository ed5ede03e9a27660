//! Sites: directories of files, served by host name.
//!
//! ```text
//!   Site (Mount, shared) ── opened by each worker ──► FileHandler (Handler)
//!     rules    settings, checked once                   FileCache   the file cache, by path: Rc<Resource>
//!     hosts    name ─► site                             DirWatcher  directories of cached files
//!     compression_cache  compressed bytes, for all      PoolJob     jobs on the thread pool
//!
//!   GET, warm    authority ─► site;  (site, raw path) ─► cache ─► prepared response      no system call
//!   GET, cold    decode ─► rules ─► look up on the worker, without blocking on a disk ──┐
//!                └─► else on the pool, once for all requests; answered Later ───────────┴─► cache ─► response
//! ```
//!
//! **Staleness.** Every request sent after a change sees it: the directories of cached files are watched, and a worker reads
//! notifications before requests. Some writes cause no notification: through a shared mapping (mmap(2)), through a hard link in
//! an unwatched directory, and through another mount of the file. Files are therefore checked once in `open_files.revalidate`
//! (1 s), and open files before each response (`file_check`). Mounts over a directory and changed missing files are noticed
//! after a minute. Without notifications (network file systems, FUSE, systems other than Linux and Windows, paths with links on
//! Windows, the user's limit of watches) every file is looked up again after `open_files.revalidate`. A replaced root is noticed
//! within a second if it was itself renamed or removed, or if a link to it now has another target. If a directory above the root
//! is renamed, the next cold request notices that. A response continues from the file with which it began; if that is truncated
//! meanwhile, the connection is reset.
//!
//! **Never served:**
//! - anything outside the root, by dots, escapes or links that the policy does not allow
//! - names that begin with a dot, except `/.well-known/`
//! - devices, pipes and sockets
//! - the files and directories given as forbidden (settings, state, logs), under any name, and what replaces them by a rename
//! - names on disk that are not UTF-8
//!
//! Known gaps: sendfile(2) of a file that is not in the page cache blocks the worker on the disk. Listings and error pages are
//! not compressed. Brotli is sent only where a sibling `FILE.br` was made in advance.
//!
//! Out of scope: uploads, protection by password, server-side includes.

mod compression_cache;
mod error;
mod explain;
mod file_cache;
mod file_check;
mod file_handler;
mod find;
mod listing;
mod media;
mod never_served;
mod page;
mod path_rules;
mod rules;
pub mod settings;
mod status_error;
mod tastes;
mod warnings;
mod watch;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use encke_io::files::FileId;
use encke_settings::{Contradiction, LogTarget, Section, SourceLine, SourceMap};

use encke_wire::host_map::HostMap;

use encke_server::{Handler, HandlerContext, LogOutput, Mount, WorkerSetup};

pub use encke_wire::path_pattern::PathPatternError;
pub use error::{RuleError, SiteError};
pub use path_rules::{PathFields, PathRules};
pub use settings::{NoRoute, SiteSettings, SiteTable, TagSource};

use compression_cache::CompressionCache;
use error::SiteKeyError;
use explain::SiteRules;
use file_cache::{CacheCost, HashKey};
use file_handler::FileHandler;
use find::SiteRoot;
use never_served::NeverServed;
use rules::RuleSet;
use settings::OPEN_FILES_MAX;

/// All sites of a server.
pub struct Site {
    shared: Arc<Shared>,
    /// The roots as they were at start.
    grounds: Vec<SiteRoot>,
    /// The positions of the sites' rules in the settings.
    source: SourceMap,
}

/// The state that the file handlers of all workers share.
struct Shared {
    hosts: HostMap,
    /// The name of each site in the access log: its first host name, or `default`.
    names: Vec<Box<str>>,
    /// Outputs of the access log, by site.
    outputs: Vec<LogOutput>,
    press: CompressionCache,
    /// The limit of all file caches together.
    limit: CacheCost,
    clerks: AtomicUsize,
    hash_key: HashKey,
}

impl Site {
    /// Opens the roots of all sites. `forbidden` are files and directories that are never served: the settings file, the state
    /// directory, logs. Without sites every request gets 404.
    ///
    /// ```
    /// use encke_site::{Site, SiteSettings};
    ///
    /// let missing = SiteSettings { root: "/no/such/directory".into(), ..SiteSettings::default() };
    /// let error = Site::new(&[missing], Vec::new()).err().expect("the root is missing");
    /// assert_eq!((error.site.as_str(), error.key), ("1", "root"));
    /// ```
    ///
    /// # Errors
    /// A setting is invalid, or a root cannot be read.
    pub fn new<R>(sites: &[SiteTable<R>], forbidden: Vec<FileId>) -> Result<Self, SiteError> {
        let mut hosts = HostMap::default();
        let mut limit = CacheCost::default();
        let mut grounds = Vec::new();
        let forbidden = Arc::new(NeverServed::new(forbidden, Vec::new()));
        for (number, settings) in sites.iter().enumerate() {
            let named = settings.host.first().cloned().unwrap_or_else(|| (number + 1).to_string());
            let wrong = |(key, error): SiteKeyError| SiteError { site: named.clone(), number, key, error };
            let site = u16::try_from(number).map_err(|_| wrong(("host", RuleError::TooManySites)))?;
            let rules = Arc::new(RuleSet::of(settings).map_err(wrong)?);
            grounds.push(SiteRoot::open(rules, Arc::clone(&forbidden)).map_err(wrong)?);
            let names = settings.host.iter().map(|name| Some(name.as_str()));
            let default = settings.host.is_empty().then_some(None);
            for name in names.chain(default) {
                hosts.add(name, site).map_err(|error| wrong(("host", RuleError::host(name, error))))?;
            }
            let sizes = &settings.open_files;
            limit = limit.plus(CacheCost {
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
        let shared = Shared {
            hosts,
            outputs: vec![LogOutput::default(); sites.len()],
            names: sites
                .iter()
                .map(|site| site.host.first().map_or(UNNAMED, String::as_str).into())
                .collect(),
            press: CompressionCache::default(),
            limit,
            clerks: AtomicUsize::new(0),
            hash_key,
        };
        Ok(Self { shared: Arc::new(shared), grounds, source: SourceMap::default() })
    }

    /// Sets the outputs of the access log, one per site.
    #[must_use]
    pub fn with_outputs(mut self, outputs: Vec<LogOutput>) -> Self {
        // No worker has opened the site so far.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.outputs = outputs;
        }
        self
    }

    /// Never serves these files and directories, and whatever replaces them at the same path. They need not exist.
    #[must_use]
    pub fn never_serving(mut self, paths: Vec<PathBuf>) -> Self {
        let ids = paths.iter().filter_map(|path| encke_io::files::id_of(path)).collect();
        let forbidden = Arc::new(NeverServed::new(ids, paths));
        self.grounds.iter_mut().for_each(|ground| ground.forbid(Arc::clone(&forbidden)));
        self
    }

    /// Never serves files whose real name `hides`, whatever link or alias leads to them, in the sites for which `sites` is true, in
    /// their order.
    #[must_use]
    pub fn hiding(mut self, sites: &[bool], hides: fn(&str) -> bool) -> Self {
        let hiding = self.grounds.iter_mut().zip(sites).filter(|(_, hidden)| **hidden);
        hiding.for_each(|(ground, _)| ground.hide(hides));
        self
    }

    /// Sets the positions that explanations name. `source` is the map of the section `site`.
    #[must_use]
    pub fn with_source(mut self, source: SourceMap) -> Self {
        self.source = source;
        self
    }
}

impl<R: Section> Section for SiteTable<R> {
    fn check(&self) -> Vec<Contradiction> {
        let wrong = RuleSet::of(self).map(drop).err();
        let wrong = wrong.map(|(key, error)| Contradiction::at(&[key], format!("site.{key}: {error}")));
        let routes = self.route.iter().enumerate().flat_map(|(place, route)| {
            let place = place.to_string();
            route.check().into_iter().map(move |one| one.within(&place).within("route"))
        });
        wrong.into_iter().chain(routes).collect()
    }

    fn warnings(&self) -> Vec<Contradiction> {
        warnings::warnings(self)
    }

    fn anchor(&mut self, folder: &Path) {
        let log = match &mut self.access_log {
            Some(LogTarget::File(path)) => Some(path),
            _ => None,
        };
        let places = iter::once(&mut self.root).chain(self.aliases.iter_mut().map(|alias| &mut alias.to));
        for path in places.chain(log) {
            *path = folder.join(&*path);
        }
        self.route.iter_mut().for_each(|route| route.anchor(folder));
    }

    fn private_files(&self) -> Vec<PathBuf> {
        match &self.access_log {
            Some(LogTarget::File(path)) => vec![path.clone()],
            _ => Vec::new(),
        }
    }
}

/// The name in the access log of a site without host names.
const UNNAMED: &str = "default";

impl Shared {
    /// The number of the site for a request's authority.
    #[inline]
    fn site(&self, authority: &[u8]) -> Option<u16> {
        self.hosts.only().or_else(|| self.hosts.site(authority))
    }

    /// The present limit of one worker's file cache.
    fn share(&self) -> CacheCost {
        self.limit.shared_by(self.clerks.load(Ordering::Relaxed))
    }
}

impl Mount for Site {
    fn source(&self) -> Option<SourceLine> {
        self.source.line(&["0"])
    }

    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let rules = self.grounds.iter().map(SiteRoot::rules).collect();
        let shared = Arc::clone(&self.shared);
        worker.explain(SiteRules { shared, rules, source: self.source.clone() });
        let changes = watch::spare_changes();
        Box::new(FileHandler::new(Arc::clone(&self.shared), self.grounds.clone(), context, changes))
    }
}
