//! The gateway: forwards requests to applications.
//!
//! ```text
//!  Gateway (Mount, shared) ── opened by each worker ──► GatewayHandler (Handler)
//!    RouteTable  host and path ─► SiteRoute                   Proxy        connections of this worker, requests in progress
//!    NamedUpstream    settings, targets with load and health   below        the handler of the sites, for everything else
//!    figures     the counters of all workers            Tunnels (Resident): WebSockets
//! ```
//! Heads are written from the parsed view of a request, and responses are read as strictly as requests: what two servers could
//! read in two ways passes in neither direction.
//!
//! Known gaps: HTTP/2 to an application, trailers of requests, and `X-Accel-Redirect` to a channel for WebSockets.

mod app_file;
mod conn_reader;
mod fastcgi_head;
mod fastcgi_reader;
mod fault;
mod field_changes;
mod figures;
mod gateway_handler;
mod id_map;
mod log_notes;
mod overview;
mod proxied_request;
mod proxy;
mod proxy_header;
mod queue;
mod request_head;
mod response_coding;
mod response_head;
mod route;
mod script;
mod settings;
mod site_rules;
mod target;
mod tunnel;
mod upstream;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_server::{Handler, HandlerContext, Mount, SourceLine, WorkerSetup};
use encke_session::tls::{ClientSessions, Sessions, TlsError, Trust};
use encke_settings::{ByteSize, ValueError};
use encke_stats::Source;
use encke_wire::host_map::{HostMap, HostMapError};
use encke_wire::path_pattern::{PathPattern, PathPatternError};

pub use encke_settings::TargetUrl;
pub use overview::routes_in_order;
pub use response_coding::ResponseCompression;
pub use settings::{
    FieldRules, FilesOrder, ProxyProtocol, RouteSettings, TargetSettings, UpstreamSettings, UpstreamTls,
};
pub use site_rules::{SiteFields, SitePolicy};

use field_changes::FieldChanges;
use figures::{GatewayFigures, ProxyCounters};
use gateway_handler::GatewayHandler;
use proxy::Proxy;
use route::{PathChange, Rewrite, RouteTable, SiteRoute, body_limit, order};
use target::{NewTarget, TargetSet};
use tunnel::Tunnels;
use upstream::NamedUpstream;

/// The routes of a site, for [`Gateway::new`].
pub struct SiteRoutes<'a> {
    /// The host names of the site; empty for the site of all other names.
    pub hosts: &'a [String],
    /// The routes, in any order.
    pub routes: &'a [RouteSettings],
    /// The directory of the site's files; `None` if it has none. Needed for `php`.
    pub root: Option<&'a Path>,
    /// The paths of error pages, by status.
    pub errors: &'a BTreeMap<String, String>,
    /// The compression of responses; `None`: none is compressed.
    pub compression: Option<ResponseCompression>,
    /// The rules of the site that also apply to its routes; `None` if there are none.
    pub rules: Option<Arc<dyn SitePolicy>>,
}

/// A directory from which applications may send files (`sendfile`), and the host name under which the mount below serves it. The
/// name must be secret, and [`Gateway`] answers no client that uses it.
#[derive(Clone, Debug)]
pub struct AppDirectory {
    /// The absolute path.
    pub directory: PathBuf,
    /// The host name.
    pub host: String,
}

/// Sends requests to applications, or to the mount below it: the files of the sites.
pub struct Gateway {
    below: Arc<dyn Mount>,
    routes: Arc<RouteTable>,
    upstreams: Vec<Arc<NamedUpstream>>,
    /// The counters of each worker.
    workers: Workers,
}

/// The counters of all workers, by number.
type Workers = Arc<Mutex<Vec<Arc<ProxyCounters>>>>;

impl Gateway {
    /// Creates the gateway. Blocks while the system resolves the names of targets. A name that cannot be resolved now is tried
    /// again with the requests.
    ///
    /// # Errors
    /// A setting is invalid, or a route names an upstream that does not exist.
    pub fn new(
        below: Arc<dyn Mount>,
        sites: &[SiteRoutes<'_>],
        upstreams: &[UpstreamSettings],
        directories: &[AppDirectory],
    ) -> Result<Self, GatewayError> {
        let mut known: Vec<UpstreamSettings> = upstreams.to_vec();
        let mut hosts = HostMap::default();
        let mut tables = Vec::new();
        for (number, site) in sites.iter().enumerate() {
            let number = number as u16;
            for host in site.hosts {
                hosts.add(Some(host), number).map_err(|error| GatewayError::Host(host.clone(), error))?;
            }
            if site.hosts.is_empty() {
                hosts.add(None, number).map_err(|error| GatewayError::Host(String::new(), error))?;
            }
            let errors =
                site.errors.iter().filter_map(|(status, path)| Some((status.parse().ok()?, path.clone())));
            let errors: Arc<[(u16, String)]> = errors.collect();
            let compression = site.compression.clone().map(Arc::new);
            let root: Option<Arc<Path>> = site.root.map(Arc::from);
            let mut routes = Vec::new();
            for settings in site.routes {
                let route = compile(settings, &mut known, directories, &errors);
                let mut route = route.map_err(|(key, error)| GatewayError::Route {
                    pattern: settings.pattern.clone(),
                    key,
                    error,
                })?;
                if route.php.is_some() && root.is_none() {
                    let error =
                        RouteError::Invalid("the site has no directory with scripts: set root".into());
                    return Err(GatewayError::Route { pattern: settings.pattern.clone(), key: "php", error });
                }
                route.root.clone_from(&root);
                route.rules.clone_from(&site.rules);
                route.compression = compression.clone().filter(|_| settings.compress);
                routes.push(Arc::new(route));
            }
            // The sort is stable, so the first of two equal ones applies.
            routes.sort_by_key(|route| order(&route.pattern.to_string(), route.internal));
            tables.push(routes);
        }
        let closed_from = tables.len() as u16;
        for (number, directory) in directories.iter().enumerate() {
            let site = closed_from.saturating_add(number as u16);
            hosts
                .add(Some(&directory.host), site)
                .map_err(|error| GatewayError::Host(directory.host.clone(), error))?;
        }
        let upstreams = known.into_iter().map(open_upstream).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            below,
            upstreams,
            routes: Arc::new(RouteTable { hosts, sites: tables, closed_from }),
            workers: Arc::default(),
        })
    }

    /// Continues the metrics of the gateway that this one replaces, and the health of upstreams that have not changed.
    #[must_use]
    pub fn with_figures_of(mut self, old: &Self) -> Self {
        self.workers = Arc::clone(&old.workers);
        for upstream in &mut self.upstreams {
            // The authorities of others may have changed on disk.
            let same = |other: &&Arc<NamedUpstream>| {
                other.settings == upstream.settings && !other.settings.uses_tls()
            };
            if let Some(same) = old.upstreams.iter().find(same) {
                *upstream = Arc::clone(same);
            }
        }
        self
    }

    /// The counters of a worker.
    fn counters(&self, worker: usize) -> Arc<ProxyCounters> {
        let mut workers = lock(&self.workers);
        while workers.len() <= worker {
            workers.push(Arc::default());
        }
        Arc::clone(&workers[worker])
    }

    /// The targets whose names have no address at present.
    pub fn unresolved(&self) -> Vec<TargetUrl> {
        let targets = self
            .upstreams
            .iter()
            .flat_map(|upstream| (0..upstream.targets.len()).filter_map(|index| upstream.targets.get(index)));
        targets.filter(|target| target.address(0).is_none()).map(|target| target.url().clone()).collect()
    }
}

/// Reads the authorities that an upstream trusts, if it uses TLS.
///
/// # Errors
/// The authorities cannot be read.
pub fn try_trust(settings: &UpstreamSettings) -> Result<(), TlsError> {
    trust(settings).map(drop)
}

fn trust(settings: &UpstreamSettings) -> Result<Option<Trust>, TlsError> {
    if !settings.uses_tls() {
        return Ok(None);
    }
    let UpstreamTls { ca, insecure, .. } = &settings.tls;
    let trust = match ca {
        _ if *insecure => Trust::of_anybody(),
        Some(file) => Trust::of_file(file),
        None => Trust::of_system(),
    };
    trust.map(Some)
}

/// Opens an upstream: resolves the names of its targets, and reads its authorities.
fn open_upstream(settings: UpstreamSettings) -> Result<Arc<NamedUpstream>, GatewayError> {
    let trust = trust(&settings).map_err(|error| GatewayError::Tls(settings.name.clone(), error))?;
    let targets = settings.to.iter().map(|TargetSettings { url, weight, backup }| NewTarget {
        addresses: url.addresses().unwrap_or_default(),
        weight: weight.get().into(),
        is_backup: *backup,
        sessions: url.secure_name().zip(trust.clone()).map(|(host, trust)| {
            let name = settings.tls.name.clone().unwrap_or_else(|| host.to_owned());
            Arc::new(ClientSessions::new(trust, name)) as Arc<dyn Sessions>
        }),
        url: url.clone(),
    });
    let targets = TargetSet::new(targets.collect());
    Ok(NamedUpstream::new(settings, targets))
}

/// Compiles a route. Adds the upstream of a URL to `upstreams`.
fn compile(
    settings: &RouteSettings,
    upstreams: &mut Vec<UpstreamSettings>,
    directories: &[AppDirectory],
    errors: &Arc<[(u16, String)]>,
) -> Result<SiteRoute, (&'static str, RouteError)> {
    let pattern =
        PathPattern::parse(&settings.pattern).map_err(|error| ("pattern", RouteError::Pattern(error)))?;
    let url = settings.url().map_err(|error| ("upstream", RouteError::Url(error)))?;
    let php = settings.php_url().map_err(|error| ("php", RouteError::Url(error)))?;
    let upstream = match (settings.upstream.as_ref().or(settings.php.as_ref()), url.or(php)) {
        (None, _) => None,
        (Some(name), None) => {
            let found = upstreams.iter().position(|upstream| upstream.name == *name);
            Some(found.ok_or_else(|| ("upstream", RouteError::NoUpstream(name.clone())))?)
        }
        (Some(name), Some(url)) => {
            let found = upstreams.iter().position(|upstream| upstream.name == *name);
            Some(found.unwrap_or_else(|| {
                upstreams.push(UpstreamSettings {
                    name: name.clone(),
                    to: vec![url.into()],
                    ..UpstreamSettings::default()
                });
                upstreams.len() - 1
            }))
        }
    };
    let path = match (&settings.strip, &settings.rewrite) {
        (_, Some(text)) => {
            let rewrite = Rewrite::parse(text, &pattern);
            PathChange::Rewrite(rewrite.map_err(|error| ("rewrite", RouteError::Invalid(error.to_string())))?)
        }
        (Some(prefix), None) => PathChange::Strip(prefix.clone()),
        (None, None) => PathChange::None,
    };
    let changes = |rules, key| {
        FieldChanges::of(rules, key == "request")
            .map_err(|(_, error)| (key, RouteError::Invalid(error.to_string())))
    };
    let sendfile = settings.sendfile.iter().filter_map(|directory| {
        let found = directories.iter().find(|other| other.directory == *directory)?;
        let host: Arc<str> = Arc::from(found.host.as_str());
        // An application may name the directory as the settings do, or by its true path.
        let real = std::fs::canonicalize(directory).ok().filter(|real| real != directory);
        Some([(directory.clone(), Arc::clone(&host))].into_iter().chain(real.map(|real| (real, host))))
    });
    let sendfile = sendfile.flatten();
    let subscribe = settings
        .subscribe
        .iter()
        .map(|text| PathPattern::parse(text).map_err(|error| ("subscribe", RouteError::Pattern(error))));
    Ok(SiteRoute {
        sendfile: sendfile.collect(),
        subscribe: subscribe.collect::<Result<_, _>>()?,
        request: changes(&settings.request, "request")?,
        response: changes(&settings.response, "response")?,
        pattern,
        upstream,
        php: settings.php.as_ref().map(|_| settings.front.as_str().into()),
        root: None,
        files: settings.files,
        path,
        internal: settings.internal,
        body_bytes: body_limit(settings.body_bytes),
        buffer: settings.buffer.map_or(0, ByteSize::bytes),
        intercept_errors: settings.intercept_errors,
        errors: Arc::clone(errors),
        compression: None,
        rules: None,
    })
}

impl Mount for Gateway {
    fn source(&self) -> Option<SourceLine> {
        self.below.source()
    }

    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let counters = self.counters(worker.number());
        let below = self.below.open(context.clone(), worker);
        let proxy = Proxy::new(self.upstreams.clone(), counters, context.clone());
        worker.resident(|_| Tunnels::new()).add_timer(proxy.waits.timer());
        Box::new(GatewayHandler::new(context, Arc::clone(&self.routes), self.upstreams.clone(), proxy, below))
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        let (workers, upstreams) = (Arc::clone(&self.workers), self.upstreams.clone());
        let own: Arc<dyn Source> = Arc::new(GatewayFigures { workers, upstreams });
        self.below.sources().into_iter().chain([own]).collect()
    }
}

/// Why a gateway cannot be created. The origin is the settings.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// The authorities of an upstream of this name.
    Tls(String, TlsError),
    /// A host name of a site is invalid, or used twice.
    Host(String, HostMapError),
    /// System: a directory of `sendfile` cannot be read.
    Directory(PathBuf, std::io::ErrorKind),
    /// A setting of a route is invalid.
    Route {
        /// The pattern of the route.
        pattern: String,
        /// The key below `[[site.route]]`.
        key: &'static str,
        /// The error in its value.
        error: RouteError,
    },
}

/// Why a setting of a route is rejected. The origin is the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RouteError {
    /// The text is no pattern of paths.
    Pattern(PathPatternError),
    /// The text is no URL of an application.
    Url(ValueError),
    /// There is no upstream of this name.
    NoUpstream(String),
    /// The value is invalid, for this reason.
    Invalid(String),
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host, error) => write!(f, "site {host}: {error}"),
            Self::Tls(name, error) => write!(f, "upstream {name}: {error}"),
            Self::Directory(directory, error) => {
                write!(f, "cannot read the directory {} of sendfile: {error}", directory.display())
            }
            Self::Route { pattern, key, error } => write!(f, "route {pattern}: {key}: {error}"),
        }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(error) => error.fmt(f),
            Self::Url(error) => error.fmt(f),
            Self::NoUpstream(name) => {
                write!(f, "there is no upstream {name:?}: add [[upstream]] with this name, or write a URL")
            }
            Self::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for GatewayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tls(_, error) => Some(error),
            Self::Host(_, error) => Some(error),
            Self::Route { error, .. } => Some(error),
            Self::Directory(..) => None,
        }
    }
}

impl std::error::Error for RouteError {}
