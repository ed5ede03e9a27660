//! `[[access]]`: rules for addresses and passwords, as written in the settings file.

use std::path::{Path, PathBuf};

use encke_settings::{Contradiction, Network, Section};
use encke_wire::host::HostPattern;
use encke_wire::path_pattern::PathPattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Whether an allowed address needs no password. Otherwise a request needs both.
    pub any: bool,
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
        }
    }
}

impl AccessSettings {
    /// Whether the rule checks addresses.
    pub(crate) fn has_addresses(&self) -> bool {
        self.allow.is_some() || !self.deny.is_empty()
    }
}

impl Section for AccessSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |path: &[&str], message: String| found.push(Contradiction::at(path, message));
        for (place, host) in self.host.iter().enumerate() {
            if let Err(error) = host.parse::<HostPattern>() {
                wrong(&["host", &place.to_string()], format!("invalid host {host:?}: {error}"));
            }
        }
        if let Err(error) = PathPattern::parse(&self.pattern) {
            wrong(&["pattern"], format!("invalid pattern {:?}: {error}", self.pattern));
        }
        if self.realm.is_empty() || self.realm.chars().any(char::is_control) {
            wrong(&["realm"], "a realm is a text without control characters: realm = \"admin\"".into());
        }
        if self.any && !self.has_addresses() {
            wrong(&["any"], "any has no effect without addresses: set allow or deny".into());
        }
        if self.any && self.passwords.is_none() {
            wrong(&["any"], "any has no effect without passwords: set passwords = \"FILE\"".into());
        }
        found
    }

    fn warnings(&self) -> Vec<Contradiction> {
        let restricts = self.has_addresses() || self.passwords.is_some();
        if restricts || *self == Self::default() {
            return Vec::new();
        }
        let text = "this rule restricts nothing: set allow, deny or passwords";
        vec![Contradiction::at(&["pattern"], text)]
    }

    fn anchor(&mut self, folder: &Path) {
        if let Some(path) = &mut self.passwords {
            *path = folder.join(&*path);
        }
    }

    fn private_files(&self) -> Vec<PathBuf> {
        self.passwords.iter().cloned().collect()
    }
}
