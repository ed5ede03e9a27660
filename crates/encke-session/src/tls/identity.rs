//! Who a listener says it is: certificates by name, read from files and replaced when those change.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use encke_io::clock::Clock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use super::known;
use super::proofs::{PROOF_PROTOCOL, Proofs};
use super::watch::Stamp;
use encke_io::lock;
use encke_settings::{CertSettings, ClientCert, TlsSettings, TlsVersion};
use encke_wire::civil::Civil;

/// Who a listener says it is, and what its handshakes obey. Shared by its workers; another one takes its place at a
/// reload, and when its files have changed.
pub struct Identity {
    shown: Mutex<Shown>,
    /// What its files were like when they were last read, well or badly.
    stamp: Mutex<Stamp>,
}

/// What was read.
#[derive(Clone)]
struct Shown {
    settings: TlsSettings,
    proofs: Arc<Proofs>,
    config: Arc<ServerConfig>,
    /// Each certificate's file, and when it ends, in seconds since 1970.
    ends: Vec<(PathBuf, u64)>,
}

impl Identity {
    /// Reads what the settings name. Returns what somebody should know, too.
    ///
    /// # Errors
    /// A file cannot be read, is no PEM, or the pair does not hold: the error names it and says what to do.
    pub fn read(settings: &TlsSettings, notes: &mut Vec<String>) -> io::Result<Self> {
        Self::proved_by(settings, &Arc::default(), notes)
    }

    /// As [`Identity::read`], with what is shown to who comes to see that a name is ours.
    pub fn proved_by(
        settings: &TlsSettings,
        proofs: &Arc<Proofs>,
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        // Before they are read: what changes meanwhile is another state of theirs, and will be seen.
        let stamp = Stamp::of(settings);
        let shown = Shown::read(settings, proofs, notes)?;
        Ok(Self { shown: Mutex::new(shown), stamp: Mutex::new(stamp) })
    }

    /// Reads its files again, and is what they say from now on; connections that are there stay.
    ///
    /// # Errors
    /// As [`Identity::read`]; then everything stays as it was.
    pub fn reread(&self, notes: &mut Vec<String>) -> io::Result<()> {
        let Shown { settings, proofs, .. } = lock(&self.shown).clone();
        *lock(&self.stamp) = Stamp::of(&settings);
        let new = Self::proved_by(&settings, &proofs, notes)?;
        // A fetched one that is gone, or broken, is no reason to show none.
        if new.ends().len() < self.ends().len() {
            return Err(io::Error::other("tls: a certificate that was fetched is there no more"));
        }
        self.renew(&new);
        Ok(())
    }

    /// Is as `other` from now on; connections that are there stay, and so do tickets that were given.
    pub fn renew(&self, other: &Self) {
        let mut new = lock(&other.shown).clone();
        let stamp = lock(&other.stamp).clone();
        let mut shown = lock(&self.shown);
        let mut config = ServerConfig::clone(&new.config);
        config.ticketer = Arc::clone(&shown.config.ticketer);
        new.config = Arc::new(config);
        *shown = new;
        *lock(&self.stamp) = stamp;
    }

    /// What a handshake that begins now obeys.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.shown).config)
    }

    /// What its files are like now, if that is not what they were like when they were last read.
    pub(super) fn changed(&self) -> Option<Stamp> {
        let now = Stamp::of(&lock(&self.shown).settings);
        (now != *lock(&self.stamp)).then_some(now)
    }

    /// Each certificate's file, and when it ends, in seconds since 1970.
    pub fn ends(&self) -> Vec<(PathBuf, u64)> {
        lock(&self.shown).ends.clone()
    }
}

impl Shown {
    fn read(settings: &TlsSettings, proofs: &Arc<Proofs>, notes: &mut Vec<String>) -> io::Result<Self> {
        let mut ends = Vec::new();
        let certificates = Certificates::read(settings, proofs, &mut ends, notes)?;
        let config = Arc::new(config(settings, certificates)?);
        Ok(Self { settings: settings.clone(), proofs: Arc::clone(proofs), config, ends })
    }
}

fn config(settings: &TlsSettings, certificates: Certificates) -> io::Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions: &[_] = match settings.min_version {
        TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
        TlsVersion::Tls13 => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(io::Error::other)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in chain(path)? {
                roots.add(authority).map_err(|error| named(path, &format!("no authority: {error}")))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match settings.client {
                ClientCert::Required => verifier,
                ClientCert::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|error| named(path, &error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if settings.acme.is_some() {
        config.alpn_protocols.push(PROOF_PROTOCOL.to_vec());
    }
    // Whoever comes back brings its session along, sealed: nothing is kept here.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
    config.send_tls13_tickets = 1;
    // AES with 256 bits first, whatever a client would rather have.
    config.ignore_client_order = true;
    Ok(config)
}

/// Certificates by name.
#[derive(Debug)]
struct Certificates {
    /// None until the first one has been fetched.
    default: Option<Arc<CertifiedKey>>,
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// `*.example.com` under `example.com`.
    wild: HashMap<String, Arc<CertifiedKey>>,
    proofs: Arc<Proofs>,
}

impl Certificates {
    /// Reads them; `ends` gets each one's file, and when it ends, in seconds since 1970.
    fn read(
        settings: &TlsSettings,
        proofs: &Arc<Proofs>,
        ends: &mut Vec<(PathBuf, u64)>,
        notes: &mut Vec<String>,
    ) -> io::Result<Self> {
        let proofs = Arc::clone(proofs);
        let mut all = Self { default: None, exact: HashMap::new(), wild: HashMap::new(), proofs };
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
                // An expired one is shown all the same: it tells a visitor more than no handshake at all.
                Ok((key, life)) => {
                    ends.push((pair.cert, life.ends_s));
                    all.add(key, life.names);
                }
                Err(_) if !pair.cert.exists() => {}
                Err(error) => notes.push(format!("{error}; another certificate is ordered")),
            }
        }
        if all.default.is_none() && settings.acme.is_none() {
            return Err(io::Error::other("tls names no certificate"));
        }
        Ok(all)
    }

    /// Has a certificate shown to who asks for one of its names. The first that has a name keeps it.
    fn add(&mut self, key: CertifiedKey, names: Vec<String>) {
        let key = Arc::new(key);
        self.default.get_or_insert_with(|| Arc::clone(&key));
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
        // Who comes to see a proof speaks of nothing else (RFC 8737 §3).
        let mut protocols = hello.alpn().into_iter().flatten();
        if protocols.next() == Some(PROOF_PROTOCOL) && protocols.next().is_none() {
            return self.proofs.certificate(name?);
        }
        name.map_or(self.default.as_ref(), |name| self.of(name)).cloned()
    }
}

/// A pair of files, and what its certificate says of itself.
fn certified(pair: &CertSettings) -> io::Result<(CertifiedKey, Life)> {
    let certificates = chain(&pair.cert)?;
    let first = certificates.first().ok_or_else(|| named(&pair.cert, "there is no certificate in it"))?;
    let life = Life::of(first).map_err(|error| named(&pair.cert, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&pair.key).map_err(|error| pem(&pair.key, "private key", &error))?;
    let key = aws_lc_rs::sign::any_supported_type(&key)
        .map_err(|error| named(&pair.key, &format!("its key cannot be used: {error}")))?;
    let mut certified = CertifiedKey::new(certificates, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(_) => {
            let text = format!("it is not the key of the certificate in {}", pair.cert.display());
            return Err(named(&pair.key, &text));
        }
    }
    if let Some(path) = &pair.ocsp {
        certified.ocsp = Some(fs::read(path).map_err(|error| named(path, &error.to_string()))?);
    }
    Ok((certified, life))
}

/// What a certificate says of itself.
pub struct Life {
    /// From when it holds, in seconds since 1970.
    pub begins_s: u64,
    /// Until when, in seconds since 1970.
    pub ends_s: u64,
    /// Whom it is for: names in lower case, and addresses.
    pub names: Vec<String>,
    /// The names that an authority may sign for, if only some.
    pub permitted: Vec<String>,
}

impl Life {
    /// Of the first certificate in a file.
    ///
    /// # Errors
    /// It cannot be read, or is none; the error names it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let certificates = chain(path)?;
        let first = certificates.first().ok_or_else(|| named(path, "there is no certificate in it"))?;
        Self::of(first).map_err(|error| named(path, &error))
    }

    /// Sees that the certificate in a file holds now, and notes if it will not for long.
    fn check(&self, file: &Path, notes: &mut Vec<String>) -> io::Result<()> {
        let now_s = Clock::new().now().unix_s();
        if self.ends_s < now_s {
            let text =
                format!("its certificate has expired ({}): renew it, or take another", date(self.ends_s));
            return Err(named(file, &text));
        }
        if self.begins_s > now_s {
            let text = format!("its certificate begins at {} only: is the clock right?", date(self.begins_s));
            return Err(named(file, &text));
        }
        if self.ends_s < now_s + EXPIRES_SOON_S {
            notes.push(format!("the certificate in {} expires at {}", file.display(), date(self.ends_s)));
        }
        Ok(())
    }

    fn of(certificate: &[u8]) -> Result<Self, String> {
        let (_, known) =
            X509Certificate::from_der(certificate).map_err(|error| format!("no certificate: {error}"))?;
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

/// A moment as people read it.
pub fn date(at_s: u64) -> String {
    String::from_utf8_lossy(&Civil::of(at_s).rfc3339()).into_owned() + "Z"
}

/// A certificate that ends sooner is told of: 14 days.
const EXPIRES_SOON_S: u64 = 14 * 24 * 60 * 60;

pub(super) fn chain(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    certificates.map_err(|error| pem(path, "certificate", &error))
}

fn pem(path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> io::Error {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => named(path, &error.to_string()),
        Error::NoItemsFound => named(path, &format!("there is no {what} in it (PEM, -----BEGIN …)")),
        other => named(path, &format!("no {what} as PEM: {other}")),
    }
}

/// An error about a file.
pub(super) fn named(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("tls: {}: {what}", path.display()))
}
