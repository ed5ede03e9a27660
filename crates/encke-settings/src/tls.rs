//! `tls` of a listener: the certificates of the server and of its clients. encke-session reads the files.

use std::path::PathBuf;

use encke_wire::punycode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `tls = { cert = "…", key = "…" }`, or `tls = { acme = { domains = ["…"], agree = true } }`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// The server's certificate, followed by the intermediate certificates, as PEM. Clients get it if no other certificate has
    /// the requested name. Encke reloads it when the file changes, and on SIGHUP; it rejects an invalid pair and keeps the old
    /// one.
    pub cert: Option<PathBuf>,
    /// The private key of `cert`, as PEM.
    pub key: Option<PathBuf>,
    /// An OCSP response for `cert` (DER), to be stapled. Another program must keep it fresh.
    pub ocsp: Option<PathBuf>,
    /// Certificates for other names. A client gets the certificate that has the requested name (SNI).
    pub more: Vec<CertSettings>,
    /// Certificates that Encke fetches and renews by ACME.
    pub acme: Option<AcmeSettings>,
    /// Lowest accepted version of TLS.
    pub min_version: TlsVersion,
    /// Certificate authorities, as PEM, for client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether a client must have a certificate of `client_ca`.
    pub client: ClientCert,
}

/// An entry of `more`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertSettings {
    /// A certificate chain, as `cert` above.
    pub cert: PathBuf,
    /// The private key of that certificate, as PEM.
    pub key: PathBuf,
    /// An OCSP response for that certificate (DER), to be stapled.
    #[serde(default)]
    pub ocsp: Option<PathBuf>,
}

/// `acme` of a listener's `tls` (RFC 8555). Encke keeps the account and the certificate in `server.state_dir`, and renews the
/// certificate after two thirds of its lifetime. Until the first one has arrived, handshakes are rejected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeSettings {
    /// The names for the certificate. Each must lead to this server.
    pub domains: Vec<String>,
    /// `true` accepts the terms of service of the directory. Required.
    pub agree: bool,
    /// Contact address for the authority, sent when the account is created.
    pub email: Option<String>,
    /// URL of the authority's directory. The default is Let's Encrypt.
    pub directory: String,
    /// Certificate authority of the directory itself, as PEM, if it is private. The default is the system's authorities.
    pub ca: Option<PathBuf>,
    /// Proof that the names are yours.
    pub challenge: AcmeChallenge,
    /// Directory of accounts and certificates: `acme` in `server.state_dir`.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl Default for AcmeSettings {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            agree: false,
            email: None,
            directory: "https://acme-v02.api.letsencrypt.org/directory".into(),
            ca: None,
            challenge: AcmeChallenge::default(),
            folder: PathBuf::new(),
        }
    }
}

/// Proof that a name is yours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// A handshake on port 443, which must lead to this listener (RFC 8737).
    #[default]
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn,
    /// A page on port 80, which must lead to any listener of this server (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http,
}

impl AcmeSettings {
    /// Returns the file that holds the certificate and its key.
    pub fn file(&self) -> PathBuf {
        let name = self.domains.first().map_or("", String::as_str).to_ascii_lowercase();
        self.own_folder().join(name + ".pem")
    }

    /// Returns the file that records failed orders of the certificate.
    pub fn failures(&self) -> PathBuf {
        self.file().with_extension("failed")
    }

    /// Returns the file that holds the account.
    pub fn account(&self) -> PathBuf {
        self.own_folder().join("account.json")
    }

    /// Each ACME directory has its own subdirectory, so that a certificate of a staging authority is never used as a real one.
    fn own_folder(&self) -> PathBuf {
        let url = self.directory.trim_start_matches("https://");
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
        let name: String = url.chars().map(|letter| if plain(letter) { letter } else { '-' }).collect();
        // The prefix keeps a name of dots alone inside the directory.
        self.folder.join(format!("at-{name}"))
    }

    fn contradiction(&self) -> Option<String> {
        if self.domains.is_empty() {
            return Some("tls.acme needs domains = [\"NAME\", …]: whom the certificate is for".into());
        }
        if let Some(wrong) = self.domains.iter().find(|name| !is_dns_name(name)) {
            let why = if wrong.starts_with("*.") {
                "a wildcard is proved in the DNS, which Encke cannot do: name each host"
            } else {
                "it is no name in the DNS, such as www.example.org"
            };
            let remark = punycode::remark(wrong);
            return Some(format!("tls.acme.domains: {wrong:?}: {why}{remark}"));
        }
        if !self.directory.starts_with("https://") {
            return Some(format!("tls.acme.directory {:?} must begin with https://", self.directory));
        }
        if !self.agree {
            let text = "tls.acme needs agree = true: with it you accept the terms of service of";
            return Some(format!("{text} {}", self.directory));
        }
        None
    }
}

/// Whether a certificate can have that name: labels of letters, digits and hyphens.
///
/// ```
/// use encke_settings::is_dns_name;
///
/// assert!(is_dns_name("example.org"));
/// assert!(!is_dns_name("-example.org") && !is_dns_name("192.0.2.1"));
/// ```
pub fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A host whose last label is a number is an address (WHATWG URL, §3.5).
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246, limited to cipher suites with forward secrecy and authenticated encryption.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Whether a client must have a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientCert {
    /// Only clients with a certificate of `client_ca` are admitted.
    #[default]
    Required,
    /// Clients without a certificate are admitted, too.
    Optional,
}

impl TlsSettings {
    /// Returns the first missing or meaningless setting.
    pub fn contradiction(&self) -> Option<String> {
        match (&self.cert, &self.key, &self.acme) {
            (Some(_), Some(_), _) | (None, None, Some(_)) => {}
            (Some(_), None, _) => {
                return Some("tls needs key = \"FILE\": the certificate's private key as PEM".into());
            }
            (None, _, _) => {
                return Some("tls needs cert = \"FILE\": a certificate chain as PEM, or acme".into());
            }
        }
        if self.client != ClientCert::default() && self.client_ca.is_none() {
            return Some("tls.client is about certificates of client_ca, and there is none".into());
        }
        self.acme.as_ref().and_then(AcmeSettings::contradiction)
    }

    /// Returns the pairs from files, without ACME; the default pair is the first.
    pub fn pairs(&self) -> Vec<CertSettings> {
        let first = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(CertSettings { cert: cert.clone(), key: key.clone(), ocsp: self.ocsp.clone() })
            }
            _ => None,
        };
        first.into_iter().chain(self.more.iter().cloned()).collect()
    }

    /// Returns every file that handshakes depend on.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let pairs = self.pairs().into_iter().flat_map(|pair| [Some(pair.cert), Some(pair.key), pair.ocsp]);
        let others = [self.client_ca.clone(), self.acme.as_ref().map(AcmeSettings::file)];
        pairs.chain(others).flatten()
    }

    /// Returns the path of every file that the settings name, for modification.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let Self { cert, key, ocsp, more, client_ca, acme, .. } = self;
        let ca = acme.as_mut().and_then(|acme| acme.ca.as_mut());
        let others = more.iter_mut().flat_map(|pair| {
            [Some(&mut pair.cert), Some(&mut pair.key), pair.ocsp.as_mut()].into_iter().flatten()
        });
        [cert, key, ocsp, client_ca].into_iter().flatten().chain(ca).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn names_of_hosts_are_told_from_what_is_none() {
        for name in ["localhost", "a.example", "xn--bcher-kva.example", "a-b", "1.a"] {
            assert!(is_dns_name(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in ["", ".", "a..b", "-a", "a-", "a_b", "*.a", "127.0.0.1", "::1", "a.1", "ä", long.as_str()]
        {
            assert!(!is_dns_name(name), "{name}");
        }
    }

    #[test]
    fn each_directory_and_each_first_name_has_its_own_file() {
        let of = |directory: &str, name: &str| {
            let acme = AcmeSettings {
                domains: vec![name.into(), "other.example".into()],
                directory: directory.into(),
                folder: "state/acme".into(),
                ..AcmeSettings::default()
            };
            assert_eq!(acme.account().parent(), acme.file().parent());
            acme.file()
        };
        assert_eq!(
            of("https://a.example:14000/dir?x=../..", "A.Example"),
            Path::new("state/acme/at-a.example-14000-dir-x-..-../a.example.pem")
        );
        assert_ne!(of("https://a.example/dir", "a.example"), of("https://b.example/dir", "a.example"));
        assert_eq!(of("https://..", "a.example"), Path::new("state/acme/at-../a.example.pem"));
    }
}
