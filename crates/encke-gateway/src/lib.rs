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

mod affinity;
mod app_file;
mod app_place;
mod balance;
mod balance_settings;
mod client_pace;
mod conditions;
mod conn_reader;
mod describe;
mod drain;
mod explain;
mod failure;
mod fastcgi_head;
mod fastcgi_reader;
mod fault;
mod field_changes;
mod figures;
mod gateway_handler;
mod health_check;
mod id_map;
mod log_notes;
mod overdue;
mod overview;
mod proxied_request;
mod proxy;
mod proxy_header;
mod queue;
mod release;
#[cfg(test)]
mod reload_tests;
mod request_head;
mod response_coding;
mod response_head;
mod route;
mod script;
mod settings;
mod site_rules;
mod target;
mod target_addresses;
mod target_state;
mod tunnel;
mod upstream;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_server::{Handler, HandlerContext, Mount, SourceLine, WorkerSetup};
use encke_session::tls::{ClientSessions, Sessions, TlsError, Trust};
use encke_settings::{ByteSize, SourceMap, ValueError};
use encke_stats::Source;
use encke_wire::host_map::{HostMap, HostMapError};
use encke_wire::path_pattern::{PathPattern, PathPatternError};

pub use app_place::AppPlaces;
pub use balance_settings::{Balance, BalanceKey, CheckSettings};
pub use encke_settings::{TargetUrl, UpstreamTls};
pub use overview::routes_in_order;
pub use response_coding::ResponseCompression;
pub use script::names_script;
pub use settings::{
    FieldRules, FilesOrder, ProxyProtocol, RouteSettings, TARGETS_MAX, TargetSettings, UpstreamSettings,
};
pub use site_rules::{SiteFields, SitePolicy};

use drain::UpstreamActions;
use explain::ExplainedRoutes;
use field_changes::FieldChanges;
use figures::{GatewayFigures, ProxyCounters};
use gateway_handler::GatewayHandler;
use health_check::HealthChecks;
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
    pub root: Option<ScriptRoot<'a>>,
    /// The paths of error pages, by status.
    pub errors: &'a BTreeMap<String, String>,
    /// The compression of responses; `None`: none is compressed.
    pub compression: Option<ResponseCompression>,
    /// The rules of the site that also apply to its routes; `None` if there are none.
    pub rules: Option<Arc<dyn SitePolicy>>,
}

/// The directory of a site in which routes with `php` find their scripts.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRoot<'a> {
    /// The directory of the site's files.
    pub directory: &'a Path,
    /// Whether a link below it may lead to a script of the site.
    pub follows_links: bool,
}

/// No error pages.
static NO_ERRORS: BTreeMap<String, String> = BTreeMap::new();

impl Default for SiteRoutes<'_> {
    /// The site of all names, without routes.
    fn default() -> Self {
        Self { hosts: &[], routes: &[], root: None, errors: &NO_ERRORS, compression: None, rules: None }
    }
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

/// A supervised application, for [`Gateway::with_apps`].
#[derive(Clone, Copy, Debug)]
pub struct AppCount<'a> {
    /// The name.
    pub name: &'a str,
    /// Number of processes.
    pub count: usize,
}

/// Sends requests to applications, or to the mount below it: the files of the sites.
pub struct Gateway {
    below: Arc<dyn Mount>,
    routes: Arc<RouteTable>,
    upstreams: Vec<Arc<NamedUpstream>>,
    /// The counters of each worker.
    workers: Workers,
    /// The term of the checks of targets, which each reload begins.
    check_terms: Arc<AtomicU32>,
    /// Positions in the section `site` of the settings, for explanations.
    source: SourceMap,
}

/// The counters of all workers, by number.
type Workers = Arc<Mutex<Vec<Arc<ProxyCounters>>>>;

impl Gateway {
    /// Creates the gateway, without supervised applications. Blocks while the system resolves the names of targets. A name that cannot be resolved now is tried
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
        Self::with_apps(below, sites, upstreams, directories, &[], &AppPlaces::default())
    }

    /// Creates the gateway as [`Gateway::new`] does, with these supervised applications.
    ///
    /// # Errors
    /// As for [`Gateway::new`]; or a target names no application.
    pub fn with_apps(
        below: Arc<dyn Mount>,
        sites: &[SiteRoutes<'_>],
        upstreams: &[UpstreamSettings],
        directories: &[AppDirectory],
        apps: &[AppCount<'_>],
        places: &AppPlaces,
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
            let hides_scripts = site.routes.iter().any(|route| route.php.is_some());
            let root: Option<Arc<Path>> = site.root.map(|root| Arc::from(root.directory));
            let mut routes = Vec::new();
            for (place, settings) in site.routes.iter().enumerate() {
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
                route.number = place;
                route.root.clone_from(&root);
                route.follows_links = site.root.is_none_or(|root| root.follows_links);
                route.hides_scripts = hides_scripts;
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
        let open = |settings| open_upstream(settings, apps, places);
        let upstreams = known.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            below,
            upstreams,
            routes: Arc::new(RouteTable { hosts, sites: tables, closed_from }),
            workers: Arc::default(),
            check_terms: Arc::default(),
            source: SourceMap::default(),
        })
    }

    /// Names the lines of the section `site` in explanations.
    #[must_use]
    pub fn with_source(mut self, source: SourceMap) -> Self {
        self.source = source;
        self
    }

    /// Continues the metrics of the gateway that this one replaces, and the health of upstreams that have not changed.
    #[must_use]
    pub fn with_figures_of(mut self, old: &Self) -> Self {
        self.workers = Arc::clone(&old.workers);
        self.check_terms = Arc::clone(&old.check_terms);
        for upstream in &mut self.upstreams {
            let same = old.upstreams.iter().find(|other| other.is_same(upstream));
            if let Some(same) = same.filter(|same| !same.settings.uses_tls()) {
                *upstream = Arc::clone(same);
                continue;
            }
            // The authorities may have changed on disk.
            if let (Some(same), Some(upstream)) = (same, Arc::get_mut(upstream)) {
                upstream.share_states(same);
                continue;
            }
            let old = old.upstreams.iter().filter(|other| other.settings.name == upstream.settings.name);
            old.for_each(|old| upstream.continue_drains(old));
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
        targets
            .filter(|target| target.place().is_none() && target.address(0).is_none())
            .map(|target| target.url().clone())
            .collect()
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
    Trust::of(&settings.tls).map(Some)
}

/// Opens an upstream: resolves the names of its targets, and reads its authorities. Each process of an application is a target.
fn open_upstream(
    settings: UpstreamSettings,
    apps: &[AppCount<'_>],
    places: &AppPlaces,
) -> Result<Arc<NamedUpstream>, GatewayError> {
    let trust = trust(&settings).map_err(|error| GatewayError::Tls(settings.name.clone(), error))?;
    let mut targets = Vec::new();
    for TargetSettings { url, weight, backup } in &settings.to {
        let target = |url: TargetUrl, place| NewTarget {
            addresses: url.addresses().unwrap_or_default(),
            weight: weight.get().into(),
            is_backup: *backup,
            sessions: url.secure_name().zip(trust.clone()).map(|(host, trust)| {
                let name = settings.tls.name.clone().unwrap_or_else(|| host.to_owned());
                Arc::new(ClientSessions::new(trust, name)) as Arc<dyn Sessions>
            }),
            place,
            url,
        };
        let Some(name) = url.app() else {
            targets.push(target(url.clone(), None));
            continue;
        };
        let app = apps.iter().find(|app| app.name == name);
        let app = app.ok_or_else(|| GatewayError::App(settings.name.clone(), name.to_owned()))?;
        let places = places.of(name, app.count).into_iter().enumerate();
        targets.extend(places.map(|(number, place)| target(url.of_process(number, app.count), Some(place))));
    }
    if targets.len() > TARGETS_MAX {
        return Err(GatewayError::Targets(settings.name.clone(), targets.len()));
    }
    let slow_start_ns = settings.slow_start.nanoseconds();
    let targets = TargetSet::new(targets, settings.balance.clone(), slow_start_ns);
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
            let key = if settings.php.is_some() { "php" } else { "upstream" };
            let found = upstreams.iter().position(|upstream| upstream.name == *name);
            let found = found.ok_or_else(|| (key, RouteError::NoUpstream(name.clone())))?;
            if settings.php.is_some() && !upstreams.get(found).is_some_and(UpstreamSettings::is_fastcgi) {
                return Err((key, RouteError::NoFastCgi(name.clone())));
            }
            Some(found)
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
        number: 0,
        php: settings.php.as_ref().map(|_| settings.front.as_str().into()),
        root: None,
        follows_links: true,
        hides_scripts: false,
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
        // One worker checks the targets, and all read the results.
        let is_first = worker.number() == 0;
        let checks = || HealthChecks::new(context.clone(), &self.upstreams, &self.check_terms);
        let checks = is_first.then(checks).flatten();
        let tunnels = worker.resident(|_| Tunnels::new());
        tunnels.add_timer(proxy.waits.timer());
        checks.iter().for_each(|checks| tunnels.add_timer(checks.timer()));
        if !self.upstreams.is_empty() {
            let actions = UpstreamActions::new(context.clone(), self.upstreams.clone());
            worker.actions("upstreams", actions.verbs(), actions);
        }
        let below_explains = worker.take_explain();
        worker.explain(ExplainedRoutes {
            routes: Arc::clone(&self.routes),
            upstreams: self.upstreams.clone(),
            source: self.source.clone(),
            below: below_explains,
        });
        let parts = (Arc::clone(&self.routes), self.upstreams.clone());
        Box::new(GatewayHandler::new(context, parts, proxy, checks.map(Box::new), below))
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
    /// The upstream of this name has a target that names no application.
    App(String, String),
    /// The upstream of this name has too many targets.
    Targets(String, usize),
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
    /// The applications of the upstream do not speak FastCGI.
    NoFastCgi(String),
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
            Self::App(upstream, app) => {
                write!(f, "upstream {upstream}: there is no application {app:?}: add [[app]] with this name")
            }
            Self::Targets(upstream, count) => {
                write!(f, "upstream {upstream} has {count} targets: at most {TARGETS_MAX} are possible")
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
            Self::NoFastCgi(name) => write!(
                f,
                "the upstream {name:?} does not speak FastCGI: to = \"fcgi://unix:/run/php/fpm.sock\", or route by upstream = {name:?}"
            ),
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
            Self::App(..) | Self::Targets(..) | Self::Directory(..) => None,
        }
    }
}

impl std::error::Error for RouteError {}
