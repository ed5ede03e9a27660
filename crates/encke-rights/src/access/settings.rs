//! `[[access]]`: rules for addresses and passwords, as written in the settings file.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use encke_settings::{Contradiction, Network, Period, Section};
use encke_wire::field;
use encke_wire::host::HostPattern;
use encke_wire::path_pattern::PathPattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::AskUrl;

/// A rule for requests by host and path. All rules that match a request must pass.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSettings {
    /// Host names of the requests: `"example.org"`, or `"*.example.org"` for every name below it. Without any, the rule applies
    /// to every host.
    pub host: Vec<String>,
    /// Paths of the requests, as in `cache`: `/admin/**` is everything below `/admin/`. Encke compares the decoded path.
    pub pattern: String,
    /// Addresses that may send these requests: addresses and ranges. Encke denies all others, with 403.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<Network>>,
    /// Addresses that may not, even if `allow` contains them.
    pub deny: Vec<Network>,
    /// File of users and their password hashes, one `USER:HASH` per line, as `htpasswd -B` writes it: bcrypt, or SHA-crypt (`$5$`,
    /// `$6$`). Requests without a password of the file get 401. Encke never serves the file, and reads it again on SIGHUP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passwords: Option<PathBuf>,
    /// Name of the protected area, which browsers may show when they ask for the password.
    pub realm: String,
    /// Whether an allowed address needs no password, or no answer of an application (`ask`). Otherwise a request needs both.
    pub any: bool,
    /// URL of an application that decides about each request: `http://`, `https://`, or `http://unix:PATH:/check` for a Unix socket.
    /// Encke sends a GET with the client's Cookie and Authorization, and with `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and
    /// `-For`. With 2xx the request passes. 401, 403 and redirects (302, 303, 307) go to the client. Any other status, and no
    /// response within `ask_time`, is a 503. Encke caches a 2xx for the `max-age` of its `Cache-Control`, at most an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskUrl>,
    /// PEM file of the authorities that sign the certificate of an `https` application (`ask`). The default is the authorities
    /// of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_ca: Option<PathBuf>,
    /// Time limit of a question to the application (`ask`), including its time in the queue, but not the time in which the system
    /// resolves the application's name.
    pub ask_time: Period,
    /// Maximum number of concurrent questions of each worker (`ask`).
    pub ask_connections: NonZeroU16,
    /// Maximum number of queued questions of each worker (`ask`). Above it a request gets a 503.
    pub ask_queue: NonZeroU16,
    /// Fields of the answer (`ask`) that the application of the route gets. No client can send fields of these names, whatever the
    /// path of its request.
    pub copy: Vec<String>,
    /// Field of the answer (`ask`) with the name of the user, for the log, for `{user}` in routes, and for `by = "user"` of rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            host: Vec::new(),
            pattern: "/**".into(),
            allow: None,
            deny: Vec::new(),
            passwords: None,
            realm: "Restricted".into(),
            any: false,
            ask: None,
            ask_ca: None,
            ask_time: Period::seconds(5),
            ask_connections: NonZeroU16::MIN.saturating_add(15),
            ask_queue: NonZeroU16::MIN.saturating_add(63),
            copy: Vec::new(),
            user: None,
        }
    }
}

impl AccessSettings {
    /// Whether the rule checks addresses.
    pub(crate) fn has_addresses(&self) -> bool {
        self.allow.is_some() || !self.deny.is_empty()
    }
}

/// Errors in the keys `host` and `pattern`, which select the requests of a rule.
pub(crate) fn scope_errors(hosts: &[String], pattern: &str) -> Vec<Contradiction> {
    let host_error = |(place, host): (usize, &String)| {
        let error = host.parse::<HostPattern>().err()?;
        Some(Contradiction::at(&["host", &place.to_string()], format!("invalid host {host:?}: {error}")))
    };
    let mut found: Vec<_> = hosts.iter().enumerate().filter_map(host_error).collect();
    if let Err(error) = PathPattern::parse(pattern) {
        found.push(Contradiction::at(&["pattern"], format!("invalid pattern {pattern:?}: {error}")));
    }
    found
}

impl Section for AccessSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = scope_errors(&self.host, &self.pattern);
        let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
        if self.realm.is_empty() || self.realm.chars().any(char::is_control) {
            wrong(&["realm"], "a realm is a text without control characters: realm = \"admin\"".into());
        }
        if self.any && !self.has_addresses() {
            wrong(&["any"], "any has no effect without addresses: set allow or deny".into());
        }
        if self.any && self.passwords.is_none() && self.ask.is_none() {
            wrong(&["any"], "any has no effect without passwords or ask: set passwords = \"FILE\"".into());
        }
        if self.ask.is_some() && self.passwords.is_some() {
            let text = "ask and passwords of one rule would read the same credentials: use one of them, or write two rules";
            wrong(&["ask"], text.into());
        }
        for (place, name) in self.copy.iter().enumerate() {
            if let Some(reason) = unusable(name) {
                wrong(&["copy", &place.to_string()], format!("{name:?} cannot be copied: {reason}"));
            }
        }
        if let Some(name) = self.user.as_ref().filter(|name| !field::is_token(name.as_bytes())) {
            wrong(&["user"], format!("{name:?} is not the name of a field: user = \"X-User\""));
        }
        let without =
            |key: &str| format!("{key} has no effect without ask: set ask = \"http://127.0.0.1:4000/check\"");
        for (key, is_set) in [
            ("copy", !self.copy.is_empty()),
            ("user", self.user.is_some()),
            ("ask_ca", self.ask_ca.is_some()),
        ] {
            if is_set && self.ask.is_none() {
                wrong(&[key], without(key));
            }
        }
        found
    }

    fn warnings(&self) -> Vec<Contradiction> {
        let restricts = self.has_addresses() || self.passwords.is_some() || self.ask.is_some();
        if restricts || *self == Self::default() {
            return Vec::new();
        }
        let text = "this rule restricts nothing: set allow, deny, passwords or ask";
        vec![Contradiction::at(&["pattern"], text)]
    }

    fn anchor(&mut self, folder: &Path) {
        if let Some(url) = &mut self.ask {
            url.anchor(folder);
        }
        for path in self.passwords.iter_mut().chain(&mut self.ask_ca) {
            *path = folder.join(&*path);
        }
    }

    fn private_files(&self) -> Vec<PathBuf> {
        self.passwords.iter().chain(&self.ask_ca).cloned().collect()
    }
}

/// Why a field of an answer cannot be passed to an application.
fn unusable(name: &str) -> Option<&'static str> {
    const OWN: [&str; 12] = [
        "connection",
        "content-length",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "proxy",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    ];
    let lower = name.to_ascii_lowercase();
    if !field::is_token(name.as_bytes()) {
        Some("it is not the name of a field")
    } else if name.contains('_') {
        Some("many applications take an underscore for a hyphen: write a hyphen")
    } else if OWN.contains(&lower.as_str())
        || lower.starts_with("x-forwarded-")
        || lower.starts_with("x-accel-")
    {
        Some("Encke writes this field itself")
    } else {
        None
    }
}
