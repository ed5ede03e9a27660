//! A server made from settings: sites, admin listener, logs, reload.
//!
//! ```text
//! Settings ─► Service::start ─► bind, open, start ─► notes (warnings for the operator)
//!             Service::reload: prepares everything new first, and replaces the old only if all of it succeeded
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use encke_apps::{AppRouting, Apps, FoundApps};
use encke_console::{
    Console, ConsoleOptions, ConsoleSettings, ConsoleUsers, SessionLimits, history_folder, temporary_files,
};
use encke_io::drain_mark::DrainMark;
use encke_io::{Address, Backend, host};
use encke_server::{
    AccessLog, Bound, CHALLENGES, Drained, Exchange, GuardMount, GuardPoint, ListenConfig, LogOutput, Mount,
    OpenWork, Options, Request, Running, Server, TlsIdentity,
};

use crate::acme::Acme;
use crate::app_actions::with_app_actions;
use crate::descriptors;
use crate::error::ServiceError;
use crate::predecessor::held;
use crate::settings_access::{SettingsAccess, conceal_secrets};
use encke_settings::{Section, state};

use crate::settings::{
    AcmeSettings, LogTarget, MetricsAccess, OrAuto, OrOff, RoutedSite, Settings, TargetUrl, TlsSettings,
};

use encke_gateway::{
    AppCount, AppDirectory, AppPlaces, Gateway, GatewayError, ResponseCompression, ScriptRoot, SiteFields,
    SitePolicy, SiteRoutes, names_script,
};
use encke_live::{LiveFeeds, LivePoint, LiveState};
use encke_push::{PushPlan, PushPublisher};
use encke_rights::{AccessFigures, AccessRules, Openness, RateRules};
use encke_site::settings::Symlinks;
use encke_site::{PathFields, PathRules, Site};

/// Bytes of the token that is generated if none is set: 128 bits.
const TOKEN_BYTES: usize = 16;
/// Maximum wait for workers that have received new settings. A turn takes milliseconds.
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(5);

/// A running server, made from settings.
pub struct Service {
    running: Running,
    /// The pages and API of the admin listener.
    console: Option<Console>,
    /// Orders certificates.
    acme: Arc<Acme>,
    log: AccessLog,
    /// The channels, if push is enabled.
    push: Option<Arc<PushPlan>>,
    /// The live streams, which outlive reloads.
    live: Arc<LiveState>,
    /// The gateway, if a site has routes.
    gateway: Option<Arc<Gateway>>,
    /// The applications that this server supervises, and their addresses.
    apps: Apps,
    places: Arc<AppPlaces>,
    access: Arc<AccessFigures>,
    rates: RateRules,
    settings: Settings,
    settings_access: Arc<SettingsAccess>,
    connections: usize,
    token: Arc<str>,
    notes: Vec<String>,
}

impl Service {
    /// Binds every address, opens every root, and starts the workers.
    ///
    ///  # Errors
    /// The first step that failed, with its name.
    pub fn start(settings: &Settings) -> Result<Self, ServiceError> {
        Self::start_reloadable(settings, Arc::new(SettingsAccess::fixed(settings)))
    }

    /// Starts a server as [`Service::start`] does, whose console may request reloads through `access`.
    ///
    ///  # Errors
    /// The first step that failed, with its name.
    pub fn start_reloadable(settings: &Settings, access: Arc<SettingsAccess>) -> Result<Self, ServiceError> {
        Self::start_by(settings, access, |log, places, notes| {
            notes.extend(settings.warnings().iter().map(ToString::to_string));
            front(settings, log, places, None)
        })
    }

    /// Starts a server as [`Service::start`] does, with other pages in place of the sites. Such a server must not be reloaded,
    /// because a reload mounts the sites.
    ///
    ///  # Errors
    /// The first step that failed, with its name.
    pub fn start_with(settings: &Settings, pages: impl Mount + 'static) -> Result<Self, ServiceError> {
        let access = Arc::new(SettingsAccess::fixed(settings));
        Self::start_by(settings, access, |_, _, _| Ok(Front { mount: Arc::new(pages), gateway: None }))
    }

    fn start_by(
        settings: &Settings,
        settings_access: Arc<SettingsAccess>,
        front: impl FnOnce(&AccessLog, &AppPlaces, &mut Vec<String>) -> Result<Front, ServiceError>,
    ) -> Result<Self, ServiceError> {
        let mut notes = Vec::new();
        let acme = Arc::<Acme>::default();
        let listen_configs = listen_configs(settings, &acme, &mut notes)?;
        let inherited = host::inherited_listeners().map_err(ServiceError::Inherited)?;
        let connections =
            descriptors::connections(settings, listen_configs.len() + inherited.len(), &mut notes);
        descriptors::reserve(connections);
        // Opened before the sites, which must recognize the log file in order not to serve it. A file that does not exist yet
        // could not be recognized.
        let log = AccessLog::start(&settings.log, &site_logs(settings))?;
        if let Some(folder) = &settings.server.state_dir {
            state::prepare(folder)?;
        }
        let places = Arc::<AppPlaces>::default();
        let found = FoundApps::find(&settings.app).map_err(ServiceError::App)?;
        let apps = Apps::new(GatewayRouting(Arc::clone(&places)));
        let front = front(&log, &places, &mut notes)?;
        notes.extend(front.notes());
        let Front { mount, gateway } = front;
        let mount = with_app_actions(mount, apps.restarter(), &settings.app);
        let access = Arc::<AccessFigures>::default();
        let rules = access_rules(settings, &access)?;
        let rates = rate_rules(settings, None)?;
        note_backlog(settings, &mut notes);

        let mut server = Server::new(Options {
            workers: match settings.server.workers {
                OrAuto::Auto => None,
                OrAuto::Set(count) => Some(count.get().into()),
            },
            backend: match settings.server.backend {
                OrAuto::Auto => None,
                OrAuto::Set(backend) => Some(backend),
            },
            backlog: settings.server.backlog,
            offload_threads: settings.server.offload_threads.get().into(),
            certificates_every: Options::default().certificates_every,
            policy: settings.policy(connections),
        })
        .log(log.clone())
        .mount_all([("/".to_owned(), mount)]);
        for guard in guards(rules, &rates) {
            server = server.guard_point(guard);
        }
        server = server.source(Arc::<AccessFigures>::clone(&access)).source(rates.figures());
        if let Some((prefix, proofs)) = challenge_mount(settings, &acme) {
            server = server.mount(&prefix, proofs);
        }
        let live = LiveState::new(&settings.live);
        let mut push = None;
        if settings.push.enabled {
            let openness = openness(settings, &listen_configs);
            note_enclosure(openness, &mut notes);
            let mut plan = PushPlan::new(&settings.push, &settings.auth, openness)?;
            if settings.cluster.is_on() {
                plan = plan.joined(&settings.cluster)?;
                if let (true, Ok(channels)) = (settings.live.enabled, settings.live.channels()) {
                    plan = plan.with_local_channels(channels)?;
                }
                join_live(&plan, settings, &live, &mut notes);
            } else if let Some(folder) = &settings.server.state_dir {
                plan = plan.kept_in(folder)?;
            }
            let plan = Arc::new(with_live(plan, settings, &live));
            server = server.mount_all(plan.mounts());
            push = Some(plan);
        } else {
            server = encke_push::sources_without_push().into_iter().fold(server, Server::source);
        }
        server = server.source(Arc::<Acme>::clone(&acme)).source(apps.source());
        server = server.source(settings_access.figures());
        if inherited.is_empty() {
            for config in listen_configs {
                server = server.listener(config);
            }
        }
        for listener in inherited {
            server = server.inherit(listener);
        }

        let mut token: Arc<str> = "".into();
        let mut metrics_open = false;
        let mut admin_hosts = Vec::new();
        let mut admin_tls = None;
        if let OrOff::On(admin) = &settings.server.admin {
            token = match &admin.token {
                Some(secret) => secret.reveal()?.into(),
                None => new_token()?.into(),
            };
            metrics_open = admin.metrics == MetricsAccess::Open;
            admin_hosts = admin.hosts.iter().map(|host| host.0.clone()).collect();
            if let Some(tls) = &admin.tls {
                admin_tls = Some(Arc::new(TlsIdentity::proved_by(tls, acme.proofs(), &mut notes)?));
            }
            let wanted = admin.address();
            for address in wanted.addresses().map_err(|error| ServiceError::Name(wanted.clone(), error))? {
                match Server::bind_admin(&address, settings.server.backlog) {
                    Ok(listener) => server = server.admin_with(listener, admin_tls.clone()),
                    Err(error) if admin.address.is_none() && error.is_address_in_use() => {
                        notes.push(format!(
                            "no admin listener: {address} is in use; choose another address with --admin ADDRESS, or \
                             use --admin off"
                        ));
                    }
                    Err(error) => return Err(ServiceError::Admin(error)),
                }
            }
        }
        apps.prepare(&found).map_err(ServiceError::Thread)?;
        let options = ConsoleOptions {
            token: Arc::clone(&token),
            metrics_open,
            hosts: admin_hosts,
            users: ConsoleUsers::read(&settings.console)?,
            limits: session_limits(&settings.console),
            settings: Some(Arc::<SettingsAccess>::clone(&settings_access)),
        };
        let mut console = None;
        let running = server.start_with(|board| {
            let started = console.insert(Console::start(Arc::clone(board), options)?);
            Ok(vec![("/".to_owned(), Arc::new(started.clone()) as Arc<dyn Mount>)])
        })?;
        if let Err(error) = acme.care(acme_settings(settings)) {
            running.stop();
            return Err(error);
        }
        apps.run(found);
        let settings = settings.clone();
        Ok(Self {
            running,
            console,
            acme,
            log,
            push,
            live,
            gateway,
            apps,
            places,
            access,
            rates,
            settings,
            settings_access,
            connections,
            token,
            notes,
        })
    }

    /// Warnings for the operator about the start, with remedies.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Addresses of the listeners.
    pub fn addresses(&self) -> Vec<Address> {
        self.running.addresses()
    }

    /// Whether the listener at an address uses TLS.
    pub fn is_secure(&self, address: &Address) -> bool {
        self.running.is_secure(address)
    }

    /// Whether the listener at an address redirects all requests to https.
    pub fn is_redirect(&self, address: &Address) -> bool {
        self.running.is_redirect(address)
    }

    /// Names in the certificates of the listener at an address. Empty without TLS.
    pub fn certificate_names(&self, address: &Address) -> Vec<String> {
        self.running.certificate_names(address)
    }

    /// Addresses of the admin listener; empty if it is off.
    pub fn admin_addresses(&self) -> Vec<Address> {
        self.running.admin_addresses()
    }

    /// The access token of the admin listener.
    pub fn admin_token(&self) -> &str {
        &self.token
    }

    /// Creates a one-time token for the console, which is valid for ten minutes. `None` if the admin listener is off, or the
    /// system gives no random bytes.
    pub fn console_token(&self) -> Option<String> {
        self.console.as_ref().filter(|_| !self.admin_addresses().is_empty())?.login_token().ok()
    }

    /// The reactor's back end, and the reason for the choice.
    pub fn backend(&self) -> (Backend, &'static str) {
        self.running.backend()
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.running.workers()
    }

    /// Maximum number of connections.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Creates a publisher for messages of this program; `None` if channels are off.
    pub fn publisher(&self) -> Option<PushPublisher> {
        self.push.as_ref().map(|push| push.publisher())
    }

    /// Creates sources of live streams within this program; `None` if live streams are off.
    pub fn live_feeds(&self) -> Option<LiveFeeds> {
        let publisher = self.publisher().filter(|_| self.settings.live.enabled)?;
        Some(LiveFeeds::new(&self.settings.live, &self.live, publisher))
    }

    /// Applies new settings. Unchanged listeners stay open, and an open request keeps its settings. Returns warnings for the
    /// operator, once every worker serves by the new settings: a worker that is busy for [`RELOAD_WAIT_MAX`] is one of them.
    ///
    ///  # Errors
    /// The first step that failed. The old settings then stay in force completely.
    pub fn reload(&mut self, settings: &Settings) -> Result<Vec<String>, ServiceError> {
        conceal_secrets(settings);
        let mut notes: Vec<String> = self
            .settings
            .waiting_for_start(settings)
            .into_iter()
            .map(|key| format!("{key} has changed; it takes effect at the next start"))
            .collect();
        notes.extend(settings.warnings().iter().map(ToString::to_string));
        if self.settings.server.admin != settings.server.admin {
            notes.push("server.admin has changed; it takes effect at the next start".into());
        }
        let stores = self.push.as_ref().is_none_or(|push| push.keeps());
        if !stores && settings.push.channel.iter().any(|channel| channel.durable) {
            notes.push(
                "durable channels take effect at the next start, because this server was started without \
                 server.state_dir; until then their messages are only in memory"
                    .into(),
            );
        }
        let listen_configs = listen_configs(settings, &self.acme, &mut notes)?;
        let connections = descriptors::connections(settings, listen_configs.len(), &mut notes);
        let log = self.log.prepare(&settings.log, &site_logs(settings))?;
        let found = FoundApps::find(&settings.app).map_err(ServiceError::App)?;
        self.apps.prepare(&found).map_err(ServiceError::Thread)?;
        let front = front(settings, &self.log, &self.places, self.gateway.as_deref())?;
        notes.extend(front.notes());
        let Front { mount, gateway } = front;
        let mount = with_app_actions(mount, self.apps.restarter(), &settings.app);
        let rules = access_rules(settings, &self.access)?;
        let rates = rate_rules(settings, Some(&self.rates))?;
        let users = ConsoleUsers::read(&settings.console)?;
        let push = self
            .push
            .as_ref()
            .map(|old| {
                let new = PushPlan::new(&settings.push, &settings.auth, openness(settings, &listen_configs))?;
                let plan = with_live(new.with_epoch_of(old), settings, &self.live);
                Ok::<_, ServiceError>(Arc::new(plan))
            })
            .transpose()?;
        // If `listen` is unchanged, the sockets stay as they are: neither a port that the system chose nor a socket from the
        // service manager could be bound again.
        let moved = settings.server.listen != self.settings.server.listen;
        let bound = if moved { self.running.bind_new(&listen_configs)? } else { Bound::default() };
        self.acme.care(acme_settings(settings))?;
        // From here on nothing can fail.
        self.live.reload(&settings.live);
        self.log.turn(log);
        if moved {
            self.running.listen_only(&listen_configs, bound);
        }
        for address in self.running.renew_identities(&listen_configs) {
            notes.push(format!("tls at {address} was added or removed; this takes effect at the next start"));
        }
        for key in self.settings.listeners_waiting_for_start(settings) {
            notes.push(format!("{key} has changed; it takes effect at the next start"));
        }
        let mounts = mounts(mount, settings, &self.acme, push.as_ref());
        let guards = guards(rules, &rates);
        let reloaded = self.running.reload_guarded(settings.policy(connections), Some(mounts), guards);
        reloaded.expect("three guards at most, of the whole server");
        self.apps.run(found);
        if let Some(console) = &self.console {
            console.set_users(users, session_limits(&settings.console));
        }
        self.rates = rates;
        self.push = push;
        self.gateway = gateway;
        self.connections = connections;
        self.settings = settings.clone();
        self.settings_access.set_running(settings);
        if !self.running.has_reloaded(RELOAD_WAIT_MAX) {
            notes.push("a worker is busy and still serves by the old settings".into());
        }
        Ok(notes)
    }

    /// Reopens the log files after a rotation.
    ///
    ///  # Errors
    /// The file cannot be opened. Lines continue to go to the old one.
    pub fn reopen_logs(&mut self) -> Result<(), ServiceError> {
        self.log.reopen()?;
        let is_file = |target: &LogTarget| matches!(target, LogTarget::File(_));
        if is_file(&self.settings.log.access) || site_logs(&self.settings).iter().any(is_file) {
            // The new log files must not be served either, so the sites are mounted again.
            let front = front(&self.settings, &self.log, &self.places, self.gateway.as_deref())?;
            let policy = self.settings.policy(self.connections);
            self.running
                .reload(policy, Some(mounts(front.mount, &self.settings, &self.acme, self.push.as_ref())));
            self.gateway = front.gateway;
        }
        Ok(())
    }

    /// Starts to drain, according to `server.drain_delay` and `server.drain_time`.
    pub fn drain(&self) {
        self.settings_access.close();
        self.acme.end();
        let (delay, time) = self.drain_periods();
        self.running.drain(delay, time);
    }

    /// The longest time of a drain: `server.drain_delay`, and `server.drain_time` after it.
    pub fn drain_periods(&self) -> (Duration, Duration) {
        let server = &self.settings.server;
        (server.drain_delay.duration(), server.drain_time.duration())
    }

    /// Returns the work that was open when the drain began; `None` if a worker has not counted its work after `patience`.
    pub fn open_work(&self, patience: Duration) -> Option<OpenWork> {
        self.running.open_work(patience)
    }

    /// Marks the addresses and the state directory as held by a draining process, until the value is dropped: a successor then
    /// waits for them.
    pub fn mark(&self) -> DrainMark {
        let addresses = self.addresses().into_iter().chain(self.admin_addresses());
        DrainMark::set(&held(addresses, self.settings.server.state_dir.as_deref()))
    }

    /// Waits for the end of the drain that [`Service::drain`] started. Returns its result.
    pub fn join(self) -> Drained {
        let drained = self.running.join();
        // All requests have ended.
        drop(self.apps);
        self.log.finish();
        drained
    }
}

/// Creates the listeners of the settings. If an address covers both families, one of them may be missing on this machine.
fn listen_configs(
    settings: &Settings,
    acme: &Arc<Acme>,
    notes: &mut Vec<String>,
) -> Result<Vec<ListenConfig>, ServiceError> {
    let mut listen_configs = Vec::new();
    for listen in &settings.server.listen {
        let addresses =
            listen.address.addresses().map_err(|error| ServiceError::Name(listen.address.clone(), error))?;
        let tls = match &listen.tls {
            Some(settings) => Some(Arc::new(TlsIdentity::proved_by(settings, acme.proofs(), notes)?)),
            None => None,
        };
        for address in addresses {
            listen_configs.push(ListenConfig {
                address,
                proxy_protocol: listen.proxy_protocol,
                mode: listen.mode.map(|mode| mode.0),
                optional: listen.address.is_pair(),
                tls: tls.clone(),
                to_https: listen.redirect.is_some(),
            });
        }
    }
    Ok(listen_configs)
}

/// Returns the settings of all certificates that are ordered by ACME.
fn acme_settings(settings: &Settings) -> Vec<AcmeSettings> {
    settings.server.listen.iter().filter_map(|listen| listen.tls.as_ref()?.acme.clone()).collect()
}

/// Returns the mount for ACME challenges, if certificates are ordered. Its prefix has priority over every site.
fn challenge_mount(settings: &Settings, acme: &Arc<Acme>) -> Option<(String, impl Mount + use<>)> {
    let acme = Arc::clone(acme);
    let answer = move |request: &Request<'_>, exchange: Exchange| acme.answer(request, exchange);
    (!acme_settings(settings).is_empty()).then(|| (CHALLENGES.to_owned(), answer))
}

/// Adds live streams to the channels.
fn with_live(plan: PushPlan, settings: &Settings, state: &Arc<LiveState>) -> PushPlan {
    if !settings.live.enabled {
        return plan;
    }
    let point = LivePoint::new(&settings.live, state, plan.publisher());
    plan.with_point(Arc::new(point))
}

/// Connects live streams to the other nodes of a cluster.
fn join_live(plan: &PushPlan, settings: &Settings, state: &Arc<LiveState>, notes: &mut Vec<String>) {
    if !settings.live.enabled {
        return;
    }
    let Some(sources) = plan.cluster_sources() else { return };
    let address = settings.cluster.address.as_ref();
    state.join(sources, address);
    if address.is_none() {
        notes.push(
            "other nodes cannot fetch live streams from this node: set cluster.address to the URL under which they reach it, as \
             http://node-a:8080"
                .into(),
        );
    }
}

/// Returns all mounts except that of the admin listener.
fn mounts(
    site: Arc<dyn Mount>,
    settings: &Settings,
    acme: &Arc<Acme>,
    push: Option<&Arc<PushPlan>>,
) -> Vec<(String, Arc<dyn Mount>)> {
    let proofs =
        challenge_mount(settings, acme).map(|(prefix, proofs)| (prefix, Arc::new(proofs) as Arc<dyn Mount>));
    let push = push.into_iter().flat_map(PushPlan::mounts);
    std::iter::once(("/".to_owned(), site)).chain(proofs).chain(push).collect()
}

/// The limits of console sessions.
fn session_limits(settings: &ConsoleSettings) -> SessionLimits {
    SessionLimits { time: settings.session_time.duration(), attempts: settings.attempts.get() }
}

/// Builds the access rules and reads their password files; `None` if there are no rules.
fn access_rules(
    settings: &Settings,
    figures: &Arc<AccessFigures>,
) -> Result<Option<AccessRules>, ServiceError> {
    let rules = AccessRules::new(&settings.access)?.with_figures(figures);
    let rules = rules.with_source(settings.source.section("access"));
    Ok(Some(rules).filter(|rules| !rules.is_empty()))
}

/// Builds the rates. Unchanged ones continue with the state of `old`.
fn rate_rules(settings: &Settings, old: Option<&RateRules>) -> Result<RateRules, ServiceError> {
    Ok(RateRules::new(&settings.rate, old)?.with_source(settings.source.section("rate")))
}

/// Returns the guards in their order: rates by address come before passwords, so that guesses cost no hash.
fn guards(rules: Option<AccessRules>, rates: &RateRules) -> Vec<GuardPoint> {
    let early = rates.early().map(|rates| Arc::new(rates) as Arc<dyn GuardMount>);
    let late = rates.late().map(|rates| Arc::new(rates) as Arc<dyn GuardMount>);
    let access = rules.map(|rules| Arc::new(rules) as Arc<dyn GuardMount>);
    [early, access, late].into_iter().flatten().map(|guard| GuardPoint { at: None, guard }).collect()
}

/// Returns the targets of the access logs of sites.
fn site_logs(settings: &Settings) -> Vec<LogTarget> {
    settings.site.iter().filter_map(|site| site.access_log.clone()).collect()
}

fn site(settings: &Settings, log: &AccessLog, directories: &[AppDirectory]) -> Result<Site, ServiceError> {
    let mut sites = settings.site.clone();
    sites.extend(directories.iter().map(|AppDirectory { directory, host }| RoutedSite {
        host: vec![host.clone()],
        root: directory.clone(),
        index: Vec::new(),
        hidden: true,
        ..RoutedSite::default()
    }));
    let has_php: Vec<bool> =
        sites.iter().map(|site| site.route.iter().any(|route| route.php.is_some())).collect();
    let site =
        Site::new(&sites, Vec::new())?.never_serving(never_served(settings)).hiding(&has_php, names_script);
    let output = |site: &RoutedSite| {
        site.access_log.as_ref().map_or(LogOutput::default(), |target| log.output(target))
    };
    let outputs = sites.iter().map(output).collect();
    Ok(site.with_outputs(outputs).with_source(settings.source.section("site")))
}

/// The mount at `/`: the sites, or the gateway in front of them.
struct Front {
    mount: Arc<dyn Mount>,
    gateway: Option<Arc<Gateway>>,
}

impl Front {
    /// Warnings for the operator about applications.
    fn notes(&self) -> Vec<String> {
        self.gateway.iter().flat_map(|gateway| gateway_notes(gateway)).collect()
    }
}

/// Opens the sites, and the gateway if one of them has routes. `old` is the gateway that it replaces.
fn front(
    settings: &Settings,
    log: &AccessLog,
    places: &AppPlaces,
    old: Option<&Gateway>,
) -> Result<Front, ServiceError> {
    let directories = app_directories(settings)?;
    let site = Arc::new(site(settings, log, &directories)?);
    if settings.site.iter().all(|site| site.route.is_empty()) {
        return Ok(Front { mount: site, gateway: None });
    }
    let mut gateway = gateway(&site, settings, &directories, places)?;
    if let Some(old) = old {
        gateway = gateway.with_figures_of(old);
    }
    let gateway = Arc::new(gateway);
    Ok(Front { mount: Arc::clone(&gateway) as Arc<dyn Mount>, gateway: Some(gateway) })
}

/// Opens the gateway in front of a mount.
fn gateway(
    below: &Arc<Site>,
    settings: &Settings,
    directories: &[AppDirectory],
    places: &AppPlaces,
) -> Result<Gateway, ServiceError> {
    let routes = settings.site.iter().enumerate().map(|(number, site)| SiteRoutes {
        hosts: &site.host,
        routes: &site.route,
        root: (!site.root.as_os_str().is_empty())
            .then(|| ScriptRoot { directory: &site.root, follows_links: site.symlinks != Symlinks::Deny }),
        errors: &site.errors,
        compression: site.compression.on_the_fly.then(|| ResponseCompression {
            types: site.compression.types.clone(),
            bytes: site.compression.min.bytes()..=site.compression.max.bytes(),
            at_once: site.compression.at_once,
        }),
        rules: below.path_rules(number).map(|rules| Arc::new(RouteRules(rules)) as Arc<dyn SitePolicy>),
    });
    let below = Arc::<Site>::clone(below);
    let apps: Vec<AppCount<'_>> =
        settings.app.iter().map(|app| AppCount { name: &app.name, count: app.count.get().into() }).collect();
    let routes: Vec<_> = routes.collect();
    let gateway = Gateway::with_apps(below, &routes, &settings.upstream, directories, &apps, places)?;
    Ok(gateway.with_source(settings.source.section("site")))
}

/// Tells the gateway the addresses of supervised applications.
struct GatewayRouting(Arc<AppPlaces>);

impl AppRouting for GatewayRouting {
    fn direct(&mut self, app: &str, number: usize, address: Option<SocketAddr>) {
        self.0.direct(app, number, address);
    }

    fn is_used(&mut self, address: SocketAddr) -> bool {
        self.0.is_used(address)
    }
}

/// The rules of a site, for its routes.
struct RouteRules(PathRules);

impl SitePolicy for RouteRules {
    fn decides(&self, path: &str, weight: usize) -> bool {
        self.0.rejects(path) || self.0.redirect_weight(path).is_some_and(|redirect| redirect >= weight)
    }

    fn fields(&self, path: &str, secure: bool) -> SiteFields {
        let PathFields { set, removed } = self.0.fields(path, secure);
        SiteFields { set, removed }
    }
}

/// Warnings for the operator about applications that cannot be found.
fn gateway_notes(gateway: &Gateway) -> Vec<String> {
    gateway.unresolved().iter().map(TargetUrl::unresolved_note).collect()
}

/// The directories from which applications send files. Each is a separate site with a random host name.
fn app_directories(settings: &Settings) -> Result<Vec<AppDirectory>, ServiceError> {
    let mut found: Vec<AppDirectory> = Vec::new();
    let routes = settings.site.iter().flat_map(|site| &site.route);
    for directory in routes.flat_map(|route| &route.sendfile) {
        if let Err(error) = std::fs::read_dir(directory) {
            return Err(GatewayError::Directory(directory.clone(), error.kind()).into());
        }
        if !found.iter().any(|other| other.directory == *directory) {
            let host = format!("files-{}.invalid", new_token()?);
            found.push(AppDirectory { directory: directory.clone(), host });
        }
    }
    Ok(found)
}

/// Returns the files that are never served, wherever they are: settings, state, logs, keys. They need not exist.
pub(crate) fn never_served(settings: &Settings) -> Vec<PathBuf> {
    let log = match &settings.log.access {
        LogTarget::File(path) => Some(path),
        LogTarget::Stdout | LogTarget::Off => None,
    };
    let admin_tls = match &settings.server.admin {
        OrOff::On(admin) => admin.tls.as_ref(),
        OrOff::Off => None,
    };
    let tls = settings.server.listen.iter().filter_map(|listen| listen.tls.as_ref()).chain(admin_tls);
    let keys: Vec<PathBuf> = tls.flat_map(TlsSettings::pairs).map(|pair| pair.key).collect();
    let mut private = settings.auth.private_files();
    private.extend(settings.site.iter().flat_map(Section::private_files));
    private.extend(settings.access.iter().flat_map(Section::private_files));
    private.extend(settings.console.private_files());
    private.extend(settings.live.private_files());
    // Versions of the settings file have its secrets.
    let file = settings.file.as_ref().and_then(|file| file.canonicalize().ok());
    if let Some(file) = file {
        private.push(history_folder(&file, settings.server.state_dir.as_deref()));
        private.extend(temporary_files(&file));
    }
    // The log file is opened, and so created, before the sites.
    [&settings.file, &settings.server.state_dir, &settings.server.pid_file]
        .into_iter()
        .flatten()
        .chain(&settings.keys)
        .chain(log)
        .chain(&private)
        .chain(&keys)
        .chain(&settings.included)
        .cloned()
        .collect()
}

/// Determines which clients may use channels without a token.
fn openness(settings: &Settings, listen_configs: &[ListenConfig]) -> Openness {
    Openness::of(settings.open, settings.file.is_some(), listen_configs.iter().map(|config| &config.address))
}

/// Warns if channels are open to this machine and a container or similar may make every request look local.
fn note_enclosure(openness: Openness, notes: &mut Vec<String>) {
    if openness == Openness::Loopback
        && let Some(enclosure) = host::enclosure()
    {
        notes.push(format!(
            "channels are open to requests from this machine, and this server runs in {enclosure}: a reverse proxy \
             that sends `Host: localhost` without the fields Via, Forwarded, X-Forwarded-* and X-Real-IP opens \
             them to all of its clients; restrict access with [auth] in a settings file"
        ));
    }
}

fn note_backlog(settings: &Settings, notes: &mut Vec<String>) {
    let backlog = settings.server.backlog;
    if let Some(limit) = host::backlog_limit()
        && limit < backlog
    {
        notes.push(format!(
            "the kernel limits the backlog of {backlog} to {limit}: larger bursts of connections are dropped and \
             take a second longer; run sysctl -w net.core.somaxconn={backlog}"
        ));
    }
}

fn new_token() -> Result<String, ServiceError> {
    let mut bytes = [0; TOKEN_BYTES];
    host::random(&mut bytes).map_err(ServiceError::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

// The only test there needs an upstream with TLS.
#[cfg(all(test, feature = "tls"))]
mod tests;
