//! The certificates of a listener, selected by server name, read from files and replaced when those change.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use encke_io::clock::Clock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use super::error::{TlsError, TlsFileError, date};
use super::known;
use super::pem_file::{self, named};
use super::proofs::{PROOF_PROTOCOL, Proofs};
use super::watch::Stamp;
use encke_io::files::open_regular;
use encke_io::lock;
use encke_settings::{CertSettings, ClientCert, TlsSettings, TlsVersion};

/// The certificates of a listener and the configuration of its handshakes. All workers share one. A reload or a change of the
/// files replaces its contents.
pub struct TlsIdentity {
    loaded: Mutex<LoadedIdentity>,
    /// The state of the files when they were last read, with or without success.
    stamp: Mutex<Stamp>,
}

/// The contents, replaced as a whole.
#[derive(Clone)]
struct LoadedIdentity {
    settings: TlsSettings,
    proofs: Arc<Proofs>,
    config: Arc<ServerConfig>,
    clients: Option<ClientTrust>,
    /// The file of each certificate, and its expiry in seconds since 1970.
    ends: Vec<(PathBuf, u64)>,
    names: Vec<String>,
}

/// How clients are authenticated. A ticket is valid only while this is the same: a resumed session presents no certificate.
#[derive(Clone, PartialEq, Eq)]
struct ClientTrust {
    authorities: Vec<CertificateDer<'static>>,
    client: ClientCert,
}

impl TlsIdentity {
    /// Reads the files that the settings name. Appends warnings for the operator to `notes`.
    ///
    /// # Errors
    /// A file cannot be read or is not PEM, a key does not match, or a certificate is not valid now. The error names the file
    /// and the remedy.
    pub fn read(settings: &TlsSettings, notes: &mut Vec<String>) -> Result<Self, TlsError> {
        Self::proved_by(settings, &Arc::default(), notes)
    }

    /// Like [`TlsIdentity::read`], with the certificates that prove the control of names during an ACME order.
    pub fn proved_by(
        settings: &TlsSettings,
        proofs: &Arc<Proofs>,
        notes: &mut Vec<String>,
    ) -> Result<Self, TlsError> {
        // Taken before the files are read: a change during the read gives another stamp and is noticed later.
        let stamp = Stamp::of(settings);
        let shown = LoadedIdentity::read(settings, proofs, notes)?;
        Ok(Self { loaded: Mutex::new(shown), stamp: Mutex::new(stamp) })
    }

    /// Reads the files again. New handshakes use the new contents; open connections continue.
    ///
    /// # Errors
    /// As for [`TlsIdentity::read`]; the contents then stay as they are.
    pub fn reread(&self, notes: &mut Vec<String>) -> Result<(), TlsError> {
        let LoadedIdentity { settings, proofs, .. } = lock(&self.loaded).clone();
        *lock(&self.stamp) = Stamp::of(&settings);
        let new = Self::proved_by(&settings, &proofs, notes)?;
        // If the fetched certificate is missing or broken, keep the present one.
        if new.ends().len() < self.ends().len() {
            return Err(TlsError::CertificateRemoved);
        }
        self.refresh(&new);
        Ok(())
    }

    /// Takes over the contents of `new`, unless a reload has changed the settings since its files were read. The reload has read
    /// the files itself.
    pub(super) fn refresh(&self, new: &Self) {
        let mut shown = lock(&self.loaded);
        if shown.settings == lock(&new.loaded).settings {
            self.replace(&mut shown, new);
        }
    }

    /// Takes over the contents of `other`. Open connections continue. Tickets issued before stay valid while clients are
    /// authenticated in the same way, by the same authorities.
    pub fn renew(&self, other: &Self) {
        self.replace(&mut lock(&self.loaded), other);
    }

    fn replace(&self, shown: &mut LoadedIdentity, other: &Self) {
        let mut new = lock(&other.loaded).clone();
        let stamp = lock(&other.stamp).clone();
        if new.clients == shown.clients {
            let mut config = ServerConfig::clone(&new.config);
            config.ticketer = Arc::clone(&shown.config.ticketer);
            new.config = Arc::new(config);
        }
        *shown = new;
        *lock(&self.stamp) = stamp;
    }

    /// The configuration for a new handshake.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.loaded).config)
    }

    /// The present state of the files, if it differs from the state when they were last read.
    pub(super) fn changed(&self) -> Option<Stamp> {
        let now = Stamp::of(&lock(&self.loaded).settings);
        (now != *lock(&self.stamp)).then_some(now)
    }

    /// The file of each certificate, and its expiry in seconds since 1970.
    pub fn ends(&self) -> Vec<(PathBuf, u64)> {
        lock(&self.loaded).ends.clone()
    }

    /// The names in the certificates, the default certificate first: host names in lower case, `*.` and a name, and addresses.
    /// Until a certificate was fetched by ACME, the names that it is ordered for.
    pub fn names(&self) -> Vec<String> {
        lock(&self.loaded).names.clone()
    }
}

impl LoadedIdentity {
    fn read(settings: &TlsSettings, proofs: &Arc<Proofs>, notes: &mut Vec<String>) -> Result<Self, TlsError> {
        let mut ends = Vec::new();
        let certificates = Certificates::read(settings, proofs, &mut ends, notes)?;
        let names = certificates.names.clone();
        let authorities = settings.client_ca.as_deref().map(pem_file::certificates).transpose()?;
        let clients = authorities.map(|authorities| ClientTrust { authorities, client: settings.client });
        let config = Arc::new(config(settings, certificates, clients.as_ref())?);
        Ok(Self { settings: settings.clone(), proofs: Arc::clone(proofs), config, clients, ends, names })
    }
}

fn config(
    settings: &TlsSettings,
    certificates: Certificates,
    clients: Option<&ClientTrust>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions: &[_] = match settings.min_version {
        TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
        TlsVersion::Tls13 => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(TlsError::library)?;
    let builder = match settings.client_ca.as_deref().zip(clients) {
        None => builder.with_no_client_auth(),
        Some((path, clients)) => {
            let mut roots = RootCertStore::empty();
            for authority in &clients.authorities {
                roots
                    .add(authority.clone())
                    .map_err(|error| named(path, TlsFileError::NotAuthority(error.into())))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients.client {
                ClientCert::Required => verifier,
                ClientCert::Optional => verifier.allow_unauthenticated(),
            };
            let verifier =
                verifier.build().map_err(|error| named(path, TlsFileError::Unusable(error.into())))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if settings.acme.is_some() {
        config.alpn_protocols.push(PROOF_PROTOCOL.to_vec());
    }
    // Sessions are stateless: the client returns its session in an encrypted ticket, and the server stores nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::library)?;
    config.send_tls13_tickets = 1;
    // The server's order applies, which begins with AES-256.
    config.ignore_client_order = true;
    Ok(config)
}

/// Certificates by name.
#[derive(Debug)]
struct Certificates {
    /// `None` until the first certificate was fetched.
    default: Option<Arc<CertifiedKey>>,
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// `*.example.com` under `example.com`.
    wild: HashMap<String, Arc<CertifiedKey>>,
    /// All names, in the order of the certificates.
    names: Vec<String>,
    proofs: Arc<Proofs>,
}

impl Certificates {
    /// Reads the certificates. Appends the file of each and its expiry, in seconds since 1970, to `ends`.
    fn read(
        settings: &TlsSettings,
        proofs: &Arc<Proofs>,
        ends: &mut Vec<(PathBuf, u64)>,
        notes: &mut Vec<String>,
    ) -> Result<Self, TlsError> {
        let proofs = Arc::clone(proofs);
        let mut all =
            Self { default: None, exact: HashMap::new(), wild: HashMap::new(), names: Vec::new(), proofs };
        for pair in settings.pairs() {
            let (key, life) = certified(&pair)?;
            life.check(&pair.cert, notes)?;
            ends.push((pair.cert, life.ends_s));
            all.add(key, life.names);
        }
        if let Some(acme) = &settings.acme {
            let file = acme.file();
            let pair = CertSettings { cert: file.clone(), key: file, ocsp: None };
            match certified(&pair) {
                // An expired certificate is presented anyway: it tells a user more than a failed handshake.
                Ok((key, life)) => {
                    ends.push((pair.cert, life.ends_s));
                    all.add(key, life.names);
                }
                Err(_) if !pair.cert.exists() => all.names.extend(acme.domains.iter().cloned()),
                Err(error) => notes.push(format!("{error}; ordering another certificate")),
            }
        }
        if all.default.is_none() && settings.acme.is_none() {
            return Err(TlsError::NoCertificate);
        }
        Ok(all)
    }

    /// Adds a certificate for these names. The first certificate with a name keeps it.
    fn add(&mut self, key: CertifiedKey, names: Vec<String>) {
        let key = Arc::new(key);
        self.default.get_or_insert_with(|| Arc::clone(&key));
        self.names.extend(names.iter().cloned());
        for name in names {
            let (table, name) = match name.strip_prefix("*.") {
                Some(rest) => (&mut self.wild, rest.to_owned()),
                None => (&mut self.exact, name),
            };
            table.entry(name).or_insert_with(|| Arc::clone(&key));
        }
    }

    fn of(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let wild = || name.split_once('.').and_then(|(_, rest)| self.wild.get(rest));
        self.exact.get(&name).or_else(wild).or(self.default.as_ref())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        known::note_server_name(name);
        // A client that validates a name offers no other protocol (RFC 8737 §3).
        let mut protocols = hello.alpn().into_iter().flatten();
        if protocols.next() == Some(PROOF_PROTOCOL) && protocols.next().is_none() {
            return self.proofs.certificate(name?);
        }
        name.map_or(self.default.as_ref(), |name| self.of(name)).cloned()
    }
}

/// Reads a certificate chain and its key from a pair of files.
fn certified(pair: &CertSettings) -> Result<(CertifiedKey, Life), TlsError> {
    let certificates = pem_file::certificates(&pair.cert)?;
    let life = life_of_first(&certificates, &pair.cert)?;
    let key = pem_file::private_key(&pair.key)?;
    let key = aws_lc_rs::sign::any_supported_type(&key)
        .map_err(|error| named(&pair.key, TlsFileError::Key(error.into())))?;
    let mut certified = CertifiedKey::new(certificates, key);
    check_chain(&certified, pair)?;
    if let Some(path) = &pair.ocsp {
        let mut response = Vec::new();
        open_regular(path)
            .and_then(|mut file| file.read_to_end(&mut response))
            .map_err(|error| named(path, TlsFileError::Read(error)))?;
        certified.ocsp = Some(response);
    }
    Ok((certified, life))
}

/// Checks that the first certificate is of version 3 and that of the key, and that the others are certificates.
fn check_chain(certified: &CertifiedKey, pair: &CertSettings) -> Result<(), TlsError> {
    let key = certified.key.public_key();
    let mut owner = None;
    for (certificate, number) in certified.cert.iter().zip(1..) {
        let (_, known) = X509Certificate::from_der(certificate)
            .map_err(|_malformed| named(&pair.cert, TlsFileError::Malformed(number)))?;
        if key.as_ref().is_some_and(|key| key.as_ref() == known.public_key().raw) {
            owner = owner.or(Some((number, known.version().0.saturating_add(1))));
        }
    }
    match (owner, certified.keys_match()) {
        (Some((number, _)), _) if number > 1 => Err(named(&pair.cert, TlsFileError::Order(number))),
        (Some((_, version)), _) if version < 3 => Err(named(&pair.cert, TlsFileError::Version(version))),
        (_, Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown))) => Ok(()),
        (Some(_), Err(error)) => Err(named(&pair.cert, TlsFileError::NotCertificate(error.into()))),
        (None, Err(_)) => Err(named(&pair.key, TlsFileError::OtherKey(pair.cert.clone()))),
    }
}

/// The validity and the names of a certificate.
pub struct Life {
    /// Start of validity, in seconds since 1970.
    pub begins_s: u64,
    /// End of validity, in seconds since 1970.
    pub ends_s: u64,
    /// The subject's alternative names: host names in lower case, and addresses.
    pub names: Vec<String>,
    /// The names that an authority may sign for; empty if it has no such constraint (RFC 5280 §4.2.1.10).
    pub permitted: Vec<String>,
}

impl Life {
    /// Reads the first certificate in a PEM file.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        life_of_first(&pem_file::certificates(path)?, path)
    }

    /// Checks that a certificate is valid now. Adds a note if it expires soon.
    fn check(&self, file: &Path, notes: &mut Vec<String>) -> Result<(), TlsError> {
        let now_s = Clock::new().now().unix_s();
        if self.ends_s < now_s {
            return Err(named(file, TlsFileError::Expired(self.ends_s)));
        }
        if self.begins_s > now_s {
            return Err(named(file, TlsFileError::TooEarly(self.begins_s)));
        }
        if self.ends_s < now_s + EXPIRES_SOON_S {
            notes.push(format!("the certificate in {} expires at {}", file.display(), date(self.ends_s)));
        }
        Ok(())
    }

    fn of(certificate: &[u8]) -> Result<Self, TlsFileError> {
        let (_, known) = X509Certificate::from_der(certificate)
            .map_err(|error| TlsFileError::NotCertificate(error.into()))?;
        let since_1970 = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let names = known.subject_alternative_name().ok().flatten();
        let names = names.into_iter().flat_map(|names| names.value.general_names.iter()).filter_map(name_of);
        let constraints = known.name_constraints().ok().flatten();
        let permitted = constraints.and_then(|found| found.value.permitted_subtrees.as_ref());
        let permitted = permitted.into_iter().flatten().filter_map(|tree| name_of(&tree.base));
        Ok(Self {
            begins_s: since_1970(known.validity().not_before),
            ends_s: since_1970(known.validity().not_after),
            names: names.collect(),
            permitted: permitted.collect(),
        })
    }
}

fn life_of_first(certificates: &[CertificateDer<'_>], path: &Path) -> Result<Life, TlsError> {
    let first = certificates.first().map_or(&[][..], |first| first.as_ref());
    Life::of(first).map_err(|error| named(path, error))
}

/// The end of a certificate's validity in seconds since 1970; `None` if it cannot be read.
pub(super) fn ends_s(certificate: &[u8]) -> Option<u64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    u64::try_from(certificate.validity().not_after.timestamp()).ok()
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Certificates that expire within 14 days cause a warning.
const EXPIRES_SOON_S: u64 = 14 * 24 * 60 * 60;
