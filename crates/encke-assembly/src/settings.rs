//! The settings file: its structure, its defaults, and the checks that make a [`Settings`] valid.
//!
//! [`encke_server::ConnLimits`] is derived from it for running workers. This module binds, opens and resolves nothing. The comment
//! of each key is its reference: the schema, the reference page and the hints in errors are generated from these structs.
//!
//! ```text
//! encke.toml ─► document ─► Settings ◄─ flags ─► Service::start
//!                  └─► Problems: line, column, caret, the word that was meant
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_io::Backend;
use encke_settings::{
    BYTES_MAX, Contradiction, Document, ForeignKey, Network, Parsed, Section as _, TextOrTable, document,
    quantity, reference, text_or_table,
};
use encke_wire::forwarded::ForwardingField;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};
use serde::{Deserialize, Serialize};

mod apps;
mod files;
mod foreign;
mod listen;
mod path_rules;
mod routes;
mod template;
mod warnings;

pub use encke_apps::AppSettings;
pub use encke_console::{CertFingerprint, ConsoleRole, ConsoleSettings, ConsoleUser};
pub use encke_gateway::{
    FieldRules, FilesOrder, RouteSettings, TargetUrl, UpstreamSettings, routes_in_order,
};
pub use encke_live::{LiveChannelSettings, LiveSettings, PullSettings};
pub use encke_push::{ChannelSettings, OverrunPolicy, PushSettings};
pub use encke_push::{ClusterSettings, StreamSettings, StreamStorage};
pub use encke_rights::{
    AccessSettings, Act, AskUrl, AuthSettings, CertificateRights, KeySettings, RateBy, RateSettings,
    RequestRate, StaticToken,
};
pub use encke_server::LimitSettings;
pub use encke_server::{LogFormat, LogSettings};
pub use encke_settings::{AcmeChallenge, AcmeSettings, CertSettings, ClientCert, TlsSettings, TlsVersion};
pub use encke_settings::{
    ByteRate, ByteSize, Level, LogTarget, OrAuto, OrOff, Period, Problem, Problems, Secret, SourceLine,
    SourceMap,
};
pub use files::SettingsFileError;
pub use listen::{
    ADMIN_DEFAULT, Admin, AdminHost, FileMode, HttpsPort, Listen, ListenAddress, MetricsAccess,
};
pub use warnings::SettingsWarning;

use encke_push::AckMode;
use encke_server::ConnLimits;
use encke_server::{DRAIN_RATE, HTTPS_PORT};

/// The settings of a site, with its routes.
pub type RoutedSite = encke_site::SiteTable<RouteSettings>;

/// The settings of a server. The default applies to a server without a settings file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Further files of settings: a name, or a pattern such as `"sites/*.toml"`, or a list of them, relative to the directory of
    /// the settings file. The key belongs above all sections. Encke merges the sections of all files and appends lists of tables, such
    /// as `[[site]]`, in the order of the file names; a key that two files set is an error. In a pattern `*` is any text and `?`
    /// one character of a file's name. At most 1,000 files, 1 MiB with the settings file. An included file includes no others,
    /// and its relative paths start at the directory of the settings file, too.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema")]
    pub include: Vec<String>,
    /// The process: listeners, workers, state, drain.
    pub server: ServerSettings,
    /// Resources that clients may use. Each limit ends a connection, or rejects a request, with its own counted reason.
    pub limits: LimitSettings,
    /// The access log, and the messages on standard error.
    pub log: LogSettings,
    /// Sites of files, by host name. Without any, Encke serves only the directory of the command line, and no files if there is
    /// none: a settings file without sites does not publish the directory that Encke happens to start in.
    pub site: Vec<RoutedSite>,
    /// Applications to which Encke forwards requests. Routes of sites refer to them by name.
    pub upstream: Vec<UpstreamSettings>,
    /// Applications that Encke starts, supervises and ends. Routes of sites refer to them by `app:NAME`.
    pub app: Vec<AppSettings>,
    /// Rules for addresses and passwords, by host and path, for files, channels and routes alike. All rules that match a request
    /// must pass. They never apply to ACME challenges, nor to the admin listener.
    pub access: Vec<AccessSettings>,
    /// Limits of requests, by host and path, for files, channels and routes alike. They never apply to ACME challenges, nor to the
    /// admin listener.
    pub rate: Vec<RateSettings>,
    /// Channels: Encke delivers every message published to a channel to all of its subscribers.
    pub push: PushSettings,
    /// Live streams: a source sends video or sound by PUT, and Encke relays it to the clients that GET it.
    pub live: LiveSettings,
    /// Rights to publish and subscribe. A client sends its token as `Authorization: Bearer …`, as `?access_token=…` or in a
    /// cookie. The token is one of `tokens`, or a JWT signed by one of `keys`, as `encke token` makes them: `{"sub": "ann",
    /// "exp": 1795300000, "encke": {"subscribe": ["news/*"]}}`, with patterns of channels for `publish`, `subscribe`,
    /// `presence` and `manage`: `*` is one segment, `**` the rest, at least one segment.
    pub auth: AuthSettings,
    /// Several servers that share their channels through NATS JetStream: a message published on one node reaches the
    /// subscribers of all nodes, and an id of one node is valid on all.
    pub cluster: ClusterSettings,
    /// The console of the admin listener: its users, and whether it may edit this file.
    pub console: ConsoleSettings,
    /// Opens the channels to every client without a token: a flag for demonstrations, not a key of the file.
    #[serde(skip)]
    pub open: bool,
    /// The settings file, which Encke never serves.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The text of the settings file.
    #[serde(skip)]
    pub text: Option<Arc<str>>,
    /// The files that it includes, which Encke never serves either.
    #[serde(skip)]
    pub included: Vec<PathBuf>,
    /// Warnings about the settings file for the operator.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Directories of keys and tokens that no key of the file names. Encke never serves them either.
    #[serde(skip)]
    pub keys: Vec<PathBuf>,
    /// The line of each value in the file.
    #[serde(skip)]
    #[schemars(skip)]
    pub source: SourceMap,
}

/// `[server]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Listening addresses: one or a list, each as text or as a table with further keys. `8080` means both loopback addresses,
    /// `:8080` all addresses of this machine.
    #[serde(deserialize_with = "text_or_table::list", serialize_with = "listen::serialize_listens")]
    #[schemars(schema_with = "listen::listens_schema")]
    pub listen: Vec<Listen>,
    /// Worker threads, one per core. `auto` is the number of cores that this process may use, by its affinity and by the CPU
    /// quota of its cgroup. *start*
    pub workers: OrAuto<NonZeroU16>,
    /// Event back end: `uring`, `epoll-edge`, `epoll-level` or `poll`; on Windows `afd`. `auto` is `epoll-edge` on Linux, `afd` on
    /// Windows, otherwise `poll`. A back end that the system lacks is an error. *start*
    pub backend: OrAuto<Backend>,
    /// Connections that the kernel completes before Encke accepts them (listen(2)), per listener; further ones are dropped. The
    /// kernel caps the number at net.core.somaxconn; Encke reports that at the start. 4096 covers a burst of as many clients in
    /// the millisecond that a busy worker needs for a turn. *start*
    #[serde(deserialize_with = "backlog")]
    pub backlog: u32,
    /// Admin listener for operators: metrics, status, health. An address, a table, or `off` (no listener). *start*
    #[serde(deserialize_with = "admin")]
    #[schemars(with = "OrOff<TextOrTable<Admin>>")]
    pub admin: OrOff<Admin>,
    /// Directory of the data that outlives the process. Encke never serves it. Without it, the histories of channels are lost
    /// when the process stops. *start*
    pub state_dir: Option<PathBuf>,
    /// Proxies that may state the client's address: addresses and ranges. Encke ignores that field of all other clients.
    pub trusted_proxies: Vec<Network>,
    /// Header field in which those proxies state it. Encke ignores the other field, because a client could have sent it.
    pub forwarded_field: ForwardedField,
    /// Time after SIGTERM during which Encke keeps serving while `/readyz` already returns 503, so that load balancers stop
    /// sending traffic.
    pub drain_delay: Period,
    /// Time after `drain_delay` for open requests to finish. Then Encke closes the remaining connections.
    pub drain_time: Period,
    /// Event streams, WebSockets and polls that a drain ends per second, so that clients do not all reconnect at once. Encke ends
    /// them faster if three quarters of `drain_time` would not suffice.
    pub drain_rate: NonZeroU32,
    /// File that holds the process id while the server runs. *start*
    pub pid_file: Option<PathBuf>,
    /// Threads for work that may block on a disk or takes long: opening uncached files, listing directories, compressing.
    /// *start*
    pub offload_threads: NonZeroU16,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: vec![Listen::at(ListenAddress::Loopback(8080))],
            workers: OrAuto::Auto,
            backend: OrAuto::Auto,
            backlog: 4096,
            admin: OrOff::On(Admin::new()),
            state_dir: None,
            trusted_proxies: Vec::new(),
            forwarded_field: ForwardedField::XForwardedFor,
            drain_delay: Period::seconds(0),
            drain_time: Period::seconds(8),
            drain_rate: DRAIN_RATE,
            pid_file: None,
            // Two threads, so that one long compression does not block the reading of an uncached file.
            offload_threads: NonZeroU16::new(2).expect("2 is not 0"),
        }
    }
}

/// Header field in which proxies state the client's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum ForwardedField {
    /// The field of nearly every proxy.
    #[default]
    #[serde(rename = "X-Forwarded-For")]
    XForwardedFor,
    /// The standard field, RFC 7239.
    Forwarded,
}

/// Returns the JSON Schema of a settings file.
pub fn schema() -> serde_json::Value {
    reference::schema::<Settings>()
}

/// Returns the reference of all settings as Markdown.
pub fn markdown() -> String {
    reference::markdown::<Settings>()
}

/// Returns the settings file of the packages: every key with its meaning, commented out with its default.
pub fn template() -> String {
    encke_settings::template::toml::<Settings>(&template::TEMPLATE)
}

impl Settings {
    /// Reads a settings file. Relative paths in it are relative to its directory.
    ///
    ///  # Errors
    /// The file cannot be read, or its content is invalid.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let unreadable = |error| SettingsError::Unreadable { path: path.to_owned(), error };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(unreadable)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(SettingsError::TooLarge { path: path.to_owned() });
        }
        let absolute = std::path::absolute(path).map_err(unreadable)?;
        Self::parse_file(path, &absolute, &text).map_err(SettingsError::Wrong)
    }

    /// Parses the text of the settings file at an absolute path, which need not be on the disk yet. `shown` is its name in error
    /// messages.
    ///
    ///  # Errors
    /// All problems of the text.
    pub fn parse_file(shown: &Path, absolute: &Path, text: &str) -> Result<Self, Problems> {
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        let parsed = document::parse(&shown.display().to_string(), text, folder)?;
        Ok(Self { file: Some(absolute.to_owned()), text: Some(text.into()), ..Self::of(parsed) })
    }

    /// The names of the included files in the positions of values. `shown` is the name of the settings file there.
    pub(crate) fn included_names(&self, shown: &Path) -> Vec<String> {
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
        let shown_folder = shown.parent().unwrap_or(Path::new(""));
        let name = |path: &PathBuf| match path.strip_prefix(folder) {
            Ok(inner) => shown_folder.join(inner).display().to_string(),
            Err(_) => path.display().to_string(),
        };
        self.included.iter().map(name).collect()
    }

    /// Parses settings from text; `file` is its name in error messages. Relative paths stay as they are; paths of included files
    /// start at the working directory.
    ///
    ///  # Errors
    /// All problems of the text.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        document::parse(file, text, Path::new("")).map(Self::of)
    }

    fn of(parsed: Parsed<Self>) -> Self {
        let Parsed { settings, source, included, notes } = parsed;
        Self { source, included, notes, ..settings }
    }

    /// Returns the keys that take effect only at the next start and differ in `whole`, the newly read settings.
    pub fn waiting_for_start(&self, whole: &Self) -> Vec<String> {
        let within = |section: &'static str, keys: Vec<&'static str>| {
            keys.into_iter().map(move |key| format!("{section}.{key}"))
        };
        let (old, new) = (&self.server, &whole.server);
        [
            ("server.workers", old.workers != new.workers),
            ("server.backend", old.backend != new.backend),
            ("server.backlog", old.backlog != new.backlog),
            ("server.state_dir", old.state_dir != new.state_dir),
            ("server.pid_file", old.pid_file != new.pid_file),
            ("server.offload_threads", old.offload_threads != new.offload_threads),
        ]
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| key.to_owned())
        .chain(within("push", self.push.start_only(&whole.push)))
        .chain(within("live", self.live.start_only(&whole.live)))
        .chain((self.cluster != whole.cluster).then(|| "cluster".to_owned()))
        .collect()
    }

    /// Returns the differences of listeners at unchanged addresses that take effect only at the next start. `whole` are the
    /// newly read settings.
    pub(crate) fn listeners_waiting_for_start(&self, whole: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for new in &whole.server.listen {
            let Some(old) = self.server.listen.iter().find(|old| old.address == new.address) else {
                continue;
            };
            if old.redirect.is_some() != new.redirect.is_some() {
                found.push(format!("redirect at {}", new.address));
            }
        }
        found
    }

    /// Returns the port to which listeners redirect: that of the setting; else 443, unless listeners with TLS have only others.
    pub fn https_port(&self) -> u16 {
        let listen = &self.server.listen;
        let named = listen.iter().find_map(|listen| listen.redirect?.0);
        let secure = || listen.iter().filter(|listen| listen.tls.is_some());
        let mut ports = secure().filter_map(|listen| listen.address.port()).map(NonZeroU16::get);
        let first = ports.clone().next().filter(|_| !ports.any(|port| port == HTTPS_PORT));
        named.map(NonZeroU16::get).or(first).unwrap_or(HTTPS_PORT)
    }

    /// Returns the limits of the workers; `connections` is the maximum that the process can hold.
    pub fn policy(&self, connections: usize) -> ConnLimits {
        ConnLimits {
            limits: self.limits.clone(),
            rate_window_ns: ConnLimits::default().rate_window_ns,
            connections,
            drain_rate: self.server.drain_rate,
            https_port: self.https_port(),
            trusted_proxies: self.server.trusted_proxies.clone(),
            request_id_header: self.log.request_id_header,
            dialect: match self.server.forwarded_field {
                ForwardedField::XForwardedFor => ForwardingField::XForwardedFor,
                ForwardedField::Forwarded => ForwardingField::Forwarded,
            },
        }
    }
}

impl Settings {
    /// Rules of access and rates for some channels, which clients could evade: one request may subscribe to several channels, and
    /// a WebSocket to others than those of its address.
    fn evadable_rules(&self) -> Vec<Contradiction> {
        let prefix = &self.push.prefix;
        let mut found = Vec::new();
        for rule in self.path_rules().filter(|_| self.push.enabled) {
            let Some(channels) = rule.pattern.strip_prefix(prefix.as_str()) else { continue };
            let mut wrong = |key: &str, message: String| found.push(rule.at(key, message));
            if channels != "**" {
                let text = format!(
                    "a rule for some channels can be evaded by the path of another channel: write pattern = \"{prefix}**\", \
                     or grant rights to channels in [auth]"
                );
                wrong("pattern", text);
            }
            if !rule.host.is_empty() {
                wrong("host", "all hosts have the same channels: omit host in a rule for channels".into());
            }
        }
        found
    }
}

impl Document for Settings {
    const TITLE: &'static str = "Settings of Encke";
    const LISTS: &'static [&'static str] = &["site", "upstream", "app", "access", "rate"];
    const FOREIGN: &'static [ForeignKey] = foreign::FOREIGN;

    fn anchor(&mut self, folder: &Path) {
        let server = &mut self.server;
        let admin = match &mut server.admin {
            OrOff::On(admin) => Some(admin),
            OrOff::Off => None,
        };
        let (admin_address, admin_token, admin_tls) = admin.map_or((None, None, None), |admin| {
            (admin.address.as_mut(), admin.token.as_mut(), admin.tls.as_mut())
        });
        for tls in server.listen.iter_mut().filter_map(|listen| listen.tls.as_mut()).chain(admin_tls) {
            tls.files_mut().for_each(|path| *path = folder.join(&*path));
        }
        let sockets = server.listen.iter_mut().map(|listen| &mut listen.address).chain(admin_address);
        let sockets = sockets.filter_map(|address| match address {
            ListenAddress::Unix(path) => Some(path),
            _ => None,
        });
        let secret = match admin_token {
            Some(Secret::File(path)) => Some(path),
            _ => None,
        };
        let files = secret.into_iter().chain(&mut server.state_dir).chain(&mut server.pid_file);
        for path in sockets.chain(files) {
            // Joining an absolute path leaves it unchanged.
            *path = folder.join(&*path);
        }
        self.site.iter_mut().for_each(|site| site.anchor(folder));
        self.upstream.iter_mut().for_each(|upstream| upstream.anchor(folder));
        self.app.iter_mut().for_each(|app| app.anchor(folder));
        self.access.iter_mut().for_each(|rule| rule.anchor(folder));
        self.log.anchor(folder);
        self.auth.anchor(folder);
        self.cluster.anchor(folder);
        self.live.anchor(folder);
        self.console.anchor(folder);
        let state_dir = self.server.state_dir.clone().unwrap_or_default();
        let listeners = self.server.listen.iter_mut();
        for acme in listeners.filter_map(|listen| listen.tls.as_mut()?.acme.as_mut()) {
            acme.folder = state_dir.join("acme");
        }
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found: Vec<_> = self.limits.check().into_iter().map(|one| one.within("limits")).collect();
        let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
        let listen = &self.server.listen;
        if listen.is_empty() {
            wrong(&["server", "listen"], "server.listen must not be empty".into());
        }
        let admin_tls = match &self.server.admin {
            OrOff::On(admin) => admin.tls.as_ref(),
            OrOff::Off => None,
        };
        if let Some(error) = admin_tls.and_then(TlsSettings::contradiction) {
            wrong(&["server", "admin", "tls"], error);
        }
        if admin_tls.is_some_and(|tls| tls.acme.is_some()) {
            let text = "the admin listener has no acme: name the certificate that a listener has fetched in cert and key";
            wrong(&["server", "admin", "tls", "acme"], text.into());
        }
        for (place, one) in listen.iter().enumerate() {
            let (path, address) = (["server", "listen", &place.to_string()], &one.address);
            if listen[..place].iter().any(|earlier| earlier.address == *address) {
                wrong(&path, format!("server.listen contains {address} twice"));
            }
            if let Some(error) = one.tls.as_ref().and_then(TlsSettings::contradiction) {
                wrong(&path, error);
            }
            let acme = |listen: &Listen| listen.tls.as_ref().and_then(|tls| tls.acme.clone());
            if let Some(acme_here) = acme(one) {
                if self.server.state_dir.is_none() {
                    let text =
                        "tls.acme stores its account and certificates in server.state_dir, which is not set";
                    wrong(&path, text.into());
                }
                // Both would write the same certificate file.
                let same = |other: &AcmeSettings| other.file() == acme_here.file() && *other != acme_here;
                if listen[..place].iter().filter_map(acme).any(|other| same(&other)) {
                    let text = "two listeners have the same first domain in acme, but differ in the rest";
                    wrong(&path, text.into());
                }
            }
            if one.redirect.is_some() && one.tls.is_some() {
                wrong(&path, format!("{address} uses https: it cannot redirect"));
            }
            let other = |earlier: &&Listen| earlier.redirect.is_some() && earlier.redirect != one.redirect;
            if one.redirect.is_some() && listen[..place].iter().any(|earlier| other(&earlier)) {
                wrong(&path, "all listeners must redirect to the same port".into());
            }
            if one.mode.is_some() && !matches!(address, ListenAddress::Unix(_)) {
                wrong(&path, format!("mode requires a Unix socket, but {address} is none"));
            }
        }
        for (place, site) in self.site.iter().enumerate() {
            let place = place.to_string();
            found.extend(site.check().into_iter().map(|one| one.within(&place).within("site")));
        }
        for (place, upstream) in self.upstream.iter().enumerate() {
            let place_text = place.to_string();
            found.extend(upstream.check().into_iter().map(|one| one.within(&place_text).within("upstream")));
            if self.upstream[..place].iter().any(|earlier| earlier.name == upstream.name) {
                let text = format!("two upstreams have the name {:?}", upstream.name);
                found.push(Contradiction::at(&["upstream", &place_text, "name"], text));
            }
        }
        found.extend(self.app_errors());
        found.extend(self.unknown_upstreams());
        found.extend(self.repeated_patterns());
        found.extend(self.foreign_subscriptions());
        found.extend(self.script_sources());
        for (place, rule) in self.access.iter().enumerate() {
            let place = place.to_string();
            found.extend(rule.check().into_iter().map(|one| one.within(&place).within("access")));
        }
        for (place, rule) in self.rate.iter().enumerate() {
            let place = place.to_string();
            found.extend(rule.check().into_iter().map(|one| one.within(&place).within("rate")));
        }
        found.extend(self.evadable_rules());
        found.extend(self.auth.check().into_iter().map(|one| one.within("auth")));
        let mut pushes: Vec<_> = self.push.check().into_iter().map(|one| one.within("push")).collect();
        let mut wrong = |path: &[&str], message: String| pushes.push(Contradiction::at(path, message));
        for (place, channel) in self.push.channel.iter().enumerate() {
            let mut wrong = |key: &str, message: &str| {
                wrong(&["push", "channel", &place.to_string(), key], message.to_owned());
            };
            let (clustered, alone) = (self.cluster.is_on(), !self.cluster.is_on());
            let local = channel.ack == AckMode::Local;
            if clustered && channel.ack == AckMode::Memory {
                let text = "in a cluster a message has no id until the stream stores it: omit ack, or set ack = \"local\"";
                wrong("ack", text);
            }
            if local && !clustered {
                wrong("ack", "ack = \"local\" requires a cluster: set ack = \"memory\", or omit it");
            } else if local && self.cluster.queue.on().is_none() {
                wrong("ack", "ack = \"local\" requires a queue: set cluster.queue = \"16MiB\"");
            }
            if alone && channel.durable && self.push.enabled && self.server.state_dir.is_none() {
                wrong("durable", "durable channels are stored in server.state_dir, which is not set");
            }
        }
        found.extend(pushes);
        found.extend(self.live.check().into_iter().map(|one| one.within("live")));
        if self.live.enabled && (self.live.prefix == self.push.prefix) {
            let text =
                "live.prefix and push.prefix are the same: give live streams another one, such as /live/";
            found.push(Contradiction::at(&["live", "prefix"], text));
        }
        found.extend(self.cluster.check().into_iter().map(|one| one.within("cluster")));
        found.extend(self.console.check().into_iter().map(|one| one.within("console")));
        found
    }
}

/// The reason why a settings file was rejected.
#[derive(Debug)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is larger than 1 MiB, so it is probably not a settings file.
    TooLarge {
        /// The path of the file.
        path: PathBuf,
    },
    /// The content is invalid.
    Wrong(Problems),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                writeln!(f, "error: cannot read settings file {}: {error}", path.display())
            }
            Self::TooLarge { path } => {
                writeln!(f, "error: cannot read settings file {}: larger than 1 MiB", path.display())
            }
            Self::Wrong(problems) => problems.fmt(f),
        }
    }
}

impl std::error::Error for SettingsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { error, .. } => Some(error),
            Self::TooLarge { .. } => None,
            Self::Wrong(problems) => Some(problems),
        }
    }
}

/// Parses `include`: a text or a list of texts.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct OneOrMany;

    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a file in quotes, or a list of names: [ … ]")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(value::SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(OneOrMany)
}

fn one_or_many_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "array"], "items": { "type": "string" }, "examples": ["sites/*.toml"] })
}

/// Parses `admin`: an address, a table, or `off`.
fn admin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OrOff<Admin>, D::Error> {
    Ok(match OrOff::<TextOrTable<Admin>>::deserialize(deserializer)? {
        OrOff::On(TextOrTable(admin)) => OrOff::On(admin),
        OrOff::Off => OrOff::Off,
    })
}

fn backlog<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    // listen(2) takes an int.
    quantity::within(deserializer, 1, i32::MAX as u32)
}

#[cfg(test)]
mod including_tests;
#[cfg(test)]
mod tests;
