//! `tls` of a listener: its certificates, and those of its clients. A listener's section contains it, and encke-session reads
//! the files that it names.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `tls = { cert = "…", key = "…" }`, or `tls = { acme = { domains = ["…"], agree = true } }`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// The certificate and those that lead from it to an authority, as PEM. It is shown to whoever asks for a name that
    /// no other certificate has. Taken anew when the file changes, and at a reload; a pair that does not hold is refused and
    /// the old one stays.
    pub cert: Option<PathBuf>,
    /// Its private key, as PEM.
    pub key: Option<PathBuf>,
    /// An OCSP answer for it (DER), to be stapled.
    pub ocsp: Option<PathBuf>,
    /// Certificates for other names: each is shown to whoever asks for a name that it has (SNI).
    pub more: Vec<CertSettings>,
    /// Certificates that are fetched, and renewed, from an authority that gives them away by itself.
    pub acme: Option<AcmeSettings>,
    /// The lowest version that is spoken.
    pub min_version: TlsVersion,
    /// Authorities, as PEM, whose certificates clients may show.
    pub client_ca: Option<PathBuf>,
    /// Whether a client must show one.
    pub client: ClientCert,
}

/// One of `more`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertSettings {
    /// As above.
    pub cert: PathBuf,
    /// As above.
    pub key: PathBuf,
    /// As above.
    #[serde(default)]
    pub ocsp: Option<PathBuf>,
}

/// `acme` of a listener's `tls` (RFC 8555). The account and the certificate are kept in `server.state_dir`; the certificate is
/// renewed when two thirds of its life are over. Handshakes are refused until the first one has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeSettings {
    /// The names that the certificate is for. Each must lead to this server.
    pub domains: Vec<String>,
    /// You accept the terms of service of the directory.
    pub agree: bool,
    /// Whom the authority may write to. It is told when the account is made.
    pub email: Option<String>,
    /// The directory of the authority. The default is Let's Encrypt.
    pub directory: String,
    /// The authority, as PEM, that vouches for the directory itself, if it is a private one. Else those that the
    /// system trusts.
    pub ca: Option<PathBuf>,
    /// How it is proved that the names are yours.
    pub challenge: AcmeChallenge,
    /// Where account and certificates are kept: `acme` in `server.state_dir`.
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

/// How it is proved that a name is yours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// By a handshake on port 443, which must lead to this listener (RFC 8737).
    #[default]
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn,
    /// By a page on port 80, which must lead to any listener of this server (RFC 8555 §8.3).
    #[serde(rename = "http-01")]
    Http,
}

impl AcmeSettings {
    /// Where the certificate and its key are kept, in one file.
    pub fn file(&self) -> PathBuf {
        let name = self.domains.first().map_or("", String::as_str).to_ascii_lowercase();
        self.own_folder().join(name + ".pem")
    }

    /// Where it is remembered that orders for it failed.
    pub fn failures(&self) -> PathBuf {
        self.file().with_extension("failed")
    }

    /// Where the account is kept.
    pub fn account(&self) -> PathBuf {
        self.own_folder().join("account.json")
    }

    /// Each directory has its own: a certificate of one that is for trying out is none for the world.
    fn own_folder(&self) -> PathBuf {
        let url = self.directory.trim_start_matches("https://");
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
        let name: String = url.chars().map(|letter| if plain(letter) { letter } else { '-' }).collect();
        // A name of dots alone would lead elsewhere.
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
            return Some(format!("tls.acme.domains: {wrong:?}: {why}"));
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

/// Whether a certificate can be for that name: labels of letters, digits and hyphens.
pub fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // What ends in a number is an address (WHATWG URL, §3.5).
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246, with the cipher suites that are still good: forward secrecy and authenticated encryption.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientCert {
    /// Only one with a certificate of `client_ca` gets in.
    #[default]
    Required,
    /// One without a certificate gets in, too.
    Optional,
}

impl TlsSettings {
    /// What is missing or means nothing.
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

    /// The pairs that somebody else keeps, the default one first.
    pub fn pairs(&self) -> Vec<CertSettings> {
        let first = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(CertSettings { cert: cert.clone(), key: key.clone(), ocsp: self.ocsp.clone() })
            }
            _ => None,
        };
        first.into_iter().chain(self.more.iter().cloned()).collect()
    }

    /// Every file that handshakes depend on.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let pairs = self.pairs().into_iter().flat_map(|pair| [Some(pair.cert), Some(pair.key), pair.ocsp]);
        let others = [self.client_ca.clone(), self.acme.as_ref().map(AcmeSettings::file)];
        pairs.chain(others).flatten()
    }

    /// Every file that it names.
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
            acme.file().display().to_string()
        };
        assert_eq!(
            of("https://a.example:14000/dir?x=../..", "A.Example"),
            "state/acme/at-a.example-14000-dir-x-..-../a.example.pem"
        );
        assert_ne!(of("https://a.example/dir", "a.example"), of("https://b.example/dir", "a.example"));
        assert_eq!(of("https://..", "a.example"), "state/acme/at-../a.example.pem");
    }
}
