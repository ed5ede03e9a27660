//! Who a listener says it is: certificates by name, read from files and replaced when those change.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use encke_io::clock::Clock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::server::lock;
use crate::settings::{CertSettings, ClientCert, TlsSettings, TlsVersion};

/// Who a listener says it is, and what its handshakes obey. Shared by its workers; another one takes its place at a
/// reload.
pub struct Identity {
    config: Mutex<Arc<ServerConfig>>,
}

impl Identity {
    /// Reads what the settings name. Returns what somebody should know, too.
    ///
    /// # Errors
    /// A file cannot be read, is no PEM, or the pair does not hold: the error names it and says what to do.
    pub fn read(settings: &TlsSettings, notes: &mut Vec<String>) -> io::Result<Self> {
        Ok(Self { config: Mutex::new(Arc::new(config(settings, notes)?)) })
    }

    /// Reads what the settings name again, and is that from now on; connections that are there stay.
    ///
    /// # Errors
    /// As [`Identity::read`]; then everything stays as it was.
    pub fn reread(&self, settings: &TlsSettings, notes: &mut Vec<String>) -> io::Result<()> {
        self.renew(&Self::read(settings, notes)?);
        Ok(())
    }

    /// What a handshake that begins now obeys.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.config))
    }

    /// Is as `other` from now on; connections that are there stay, and so do tickets that were given.
    pub(crate) fn renew(&self, other: &Self) {
        let mut new = ServerConfig::clone(&other.config());
        let mut config = lock(&self.config);
        new.ticketer = Arc::clone(&config.ticketer);
        *config = Arc::new(new);
    }
}

fn config(settings: &TlsSettings, notes: &mut Vec<String>) -> io::Result<ServerConfig> {
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
    let mut config = builder.with_cert_resolver(Arc::new(Certificates::read(&settings.pairs(), notes)?));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
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
    default: Arc<CertifiedKey>,
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// `*.example.com` under `example.com`.
    wild: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    fn read(pairs: &[CertSettings], notes: &mut Vec<String>) -> io::Result<Self> {
        let (mut exact, mut wild) = (HashMap::new(), HashMap::new());
        let mut default = None;
        for pair in pairs {
            let (key, names) = certified(pair, notes)?;
            let key = Arc::new(key);
            default.get_or_insert_with(|| Arc::clone(&key));
            for name in names {
                // The first certificate that has a name keeps it.
                match name.strip_prefix("*.") {
                    Some(rest) => wild.entry(rest.to_owned()).or_insert_with(|| Arc::clone(&key)),
                    None => exact.entry(name).or_insert_with(|| Arc::clone(&key)),
                };
            }
        }
        let default = default.ok_or_else(|| io::Error::other("tls names no certificate"))?;
        Ok(Self { default, exact, wild })
    }

    fn of(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wild = || name.split_once('.').and_then(|(_, rest)| self.wild.get(rest));
        self.exact.get(&name).or_else(wild).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(hello.server_name().map_or(&self.default, |name| self.of(name))))
    }
}

/// A pair of files, and the names that its certificate is for.
fn certified(pair: &CertSettings, notes: &mut Vec<String>) -> io::Result<(CertifiedKey, Vec<String>)> {
    let certificates = chain(&pair.cert)?;
    let first = certificates.first().ok_or_else(|| named(&pair.cert, "there is no certificate in it"))?;
    let (_, known) = X509Certificate::from_der(first)
        .map_err(|error| named(&pair.cert, &format!("no certificate: {error}")))?;
    let now_s = i64::try_from(Clock::new().now().unix_s()).unwrap_or(i64::MAX);
    let validity = known.validity();
    let ends = validity.not_after;
    if ends.timestamp() < now_s {
        let text = format!("its certificate has expired ({ends}): renew it, or take another");
        return Err(named(&pair.cert, &text));
    }
    if validity.not_before.timestamp() > now_s {
        let text = format!("its certificate begins at {} only: is the clock right?", validity.not_before);
        return Err(named(&pair.cert, &text));
    }
    if ends.timestamp() < now_s + EXPIRES_SOON_S {
        notes.push(format!("the certificate in {} expires at {ends}", pair.cert.display()));
    }
    let names = known.subject_alternative_name().ok().flatten().map(|names| {
        let names = names.value.general_names.iter();
        names
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            })
            .collect()
    });
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
    Ok((certified, names.unwrap_or_default()))
}

/// A certificate that ends sooner is told of: 14 days.
const EXPIRES_SOON_S: i64 = 14 * 24 * 60 * 60;

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

pub(super) fn named(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("tls: {}: {what}", path.display()))
}
