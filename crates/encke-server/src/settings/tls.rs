//! `tls` of a listener: certificates, and whom they are shown to.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `tls = { cert = "…", key = "…" }`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// The certificate and those that lead from it to an authority, as PEM. It is shown to whoever asks for a name that
    /// no other certificate has. Read again at a reload; a pair that does not hold is refused and
    /// the old one stays.
    pub cert: Option<PathBuf>,
    /// Its private key, as PEM.
    pub key: Option<PathBuf>,
    /// An OCSP answer for it (DER), to be stapled.
    pub ocsp: Option<PathBuf>,
    /// Certificates for other names: each is shown to whoever asks for a name that it has (SNI).
    pub more: Vec<CertSettings>,
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
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        match (&self.cert, &self.key) {
            (Some(_), Some(_)) => {}
            (None, _) => return Some("tls needs cert = \"FILE\": a certificate chain as PEM"),
            (Some(_), None) => return Some("tls needs key = \"FILE\": the certificate's private key as PEM"),
        }
        if self.client != ClientCert::default() && self.client_ca.is_none() {
            return Some("tls.client is about certificates of client_ca, and there is none");
        }
        None
    }

    /// The pairs, the default one first.
    pub(crate) fn pairs(&self) -> Vec<CertSettings> {
        let first = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(CertSettings { cert: cert.clone(), key: key.clone(), ocsp: self.ocsp.clone() })
            }
            _ => None,
        };
        first.into_iter().chain(self.more.iter().cloned()).collect()
    }

    /// Every file that it names.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let Self { cert, key, ocsp, more, client_ca, .. } = self;
        let others = more.iter_mut().flat_map(|pair| {
            [Some(&mut pair.cert), Some(&mut pair.key), pair.ocsp.as_mut()].into_iter().flatten()
        });
        [cert, key, ocsp, client_ca].into_iter().flatten().chain(others)
    }
}
