//! Tickets across changes of the settings and files, and certificates that are not valid now.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue};
use rustls::client::{Tls13ClientSessionValue, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, HandshakeKind, NamedGroup,
    RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion, version,
};

use super::{Session, SessionError, Tls, TlsFault, TlsIdentity};
use encke_settings::{ClientCert, TlsSettings};

const DAY_S: i64 = 24 * 60 * 60;
const BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// A directory of certificates, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("encke-identity-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a directory");
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        fs::write(&file, text).expect("written");
        file
    }

    /// The settings of a listener with a certificate of `authority` for two names.
    fn settings(&self, authority: &Authority) -> TlsSettings {
        let (certificate, key) = authority.sign(-DAY_S, DAY_S * 30);
        TlsSettings {
            cert: Some(self.write("cert.pem", &certificate.pem())),
            key: Some(self.write("key.pem", &key.serialize_pem())),
            ..TlsSettings::default()
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Signs a certificate that is valid between these offsets from now, in seconds.
    fn sign(&self, from_s: i64, to_s: i64) -> (rcgen::Certificate, KeyPair) {
        let moment = |offset_s: i64| {
            let offset = Duration::from_secs(offset_s.unsigned_abs());
            let now = SystemTime::now();
            (if offset_s < 0 { now - offset } else { now + offset }).into()
        };
        let names = vec!["localhost".into(), "other.example".into()];
        let mut params = CertificateParams::new(names).expect("names");
        (params.not_before, params.not_after) = (moment(from_s), moment(to_s));
        let key = KeyPair::generate().expect("randomness");
        (params.signed_by(&key, &self.0).expect("a certificate"), key)
    }

    /// A client with a certificate of `own`, if any, that stores its sessions under one name.
    fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        own: Option<&Certificate>,
    ) -> Arc<ClientConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_webpki_verifier(verifier.build().expect("a verifier"));
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivatePkcs8KeyDer::from(key.serialize_der());
                builder.with_client_auth_cert(vec![certificate.der().clone()], key.into()).expect("a pair")
            }
        };
        config.resumption = Resumption::store(Arc::new(OneName(ClientSessionMemoryCache::new(8))));
        Arc::new(config)
    }
}

type Certificate = (rcgen::Certificate, KeyPair);

/// Stores the sessions of all names under one, as an attacker does.
#[derive(Debug)]
struct OneName(ClientSessionMemoryCache);

fn one_name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

impl ClientSessionStore for OneName {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(one_name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&one_name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&one_name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(one_name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&one_name())
    }
}

/// Connects a client. Returns whether its session was resumed.
fn connect(
    config: Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &'static str,
) -> Result<bool, SessionError> {
    let name = ServerName::try_from(name).expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut server = Tls::new(config, 0).expect("a server");
    let mut plain = Vec::new();
    loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).expect("memory");
        }
        let mut response = Vec::new();
        if !sent.is_empty() {
            Session::open(&mut *server, &mut sent, &mut plain)?;
        }
        server.output(&mut response);
        if response.is_empty() && sent.is_empty() {
            assert!(Session::is_established(&*server));
            return Ok(client.handshake_kind() == Some(HandshakeKind::Resumed));
        }
        let mut response = &response[..];
        while !response.is_empty() {
            client.read_tls(&mut response).expect("memory");
            client.process_new_packets().expect("a server to trust");
        }
    }
}

const NO_CERTIFICATE: Result<bool, SessionError> = Err(SessionError::Server(TlsFault::ClientCertificate));

fn identity(settings: &TlsSettings) -> TlsIdentity {
    TlsIdentity::read(settings, &mut Vec::new()).expect("valid files")
}

/// The state of a listener's client authorities.
#[derive(Clone, Copy)]
enum Clients<'a> {
    Unknown,
    Of(&'a Authority, ClientCert),
}

#[test]
fn a_ticket_resumes_only_while_the_rules_for_clients_are_the_same() {
    use ClientCert::{Optional, Required};
    use Clients::{Of, Unknown};
    let (first, second) = (Authority::new(), Authority::new());
    for (before, after, has_certificate, expected) in [
        (Unknown, Unknown, false, Ok(true)),
        (Of(&first, Required), Of(&first, Required), true, Ok(true)),
        (Of(&first, Optional), Of(&first, Optional), true, Ok(true)),
        (Of(&first, Optional), Of(&first, Optional), false, Ok(true)),
        (Unknown, Of(&first, Required), false, NO_CERTIFICATE),
        (Of(&first, Optional), Of(&first, Required), false, NO_CERTIFICATE),
        (Of(&first, Required), Of(&second, Required), true, NO_CERTIFICATE),
        (Of(&first, Optional), Of(&second, Optional), true, NO_CERTIFICATE),
        (Of(&first, Required), Unknown, true, Ok(false)),
        (Of(&first, Required), Of(&first, Optional), true, Ok(false)),
    ] {
        for version in BOTH {
            let folder = Folder::new();
            let certificate = first.sign(-DAY_S, DAY_S);
            let client = first.client(version, has_certificate.then_some(&certificate));
            let server = folder.settings(&first);
            // The authority is replaced in the same file, as a watcher or a reload finds it.
            let with = |clients| match clients {
                Unknown => TlsSettings { client_ca: None, ..server.clone() },
                Of(authority, client) => {
                    let file = folder.write("ca.pem", &authority.0.pem());
                    TlsSettings { client_ca: Some(file), client, ..server.clone() }
                }
            };
            let presented = identity(&with(before));
            assert_eq!(connect(presented.config(), &client, "localhost"), Ok(false));
            presented.renew(&identity(&with(after)));
            assert_eq!(connect(presented.config(), &client, "localhost"), expected);
        }
    }
}

#[test]
fn a_ticket_does_not_resume_after_a_watched_authority_has_changed() {
    let (first, second) = (Authority::new(), Authority::new());
    let folder = Folder::new();
    let client_ca = Some(folder.write("ca.pem", &first.0.pem()));
    let presented = identity(&TlsSettings { client_ca, ..folder.settings(&first) });
    let certificate = first.sign(-DAY_S, DAY_S);
    let client = first.client(&version::TLS13, Some(&certificate));
    assert_eq!(connect(presented.config(), &client, "localhost"), Ok(false));
    // Another certificate of the server ends no session.
    folder.settings(&first);
    presented.reread(&mut Vec::new()).expect("valid files");
    assert_eq!(connect(presented.config(), &client, "localhost"), Ok(true));
    folder.write("ca.pem", &second.0.pem());
    presented.reread(&mut Vec::new()).expect("valid files");
    assert_eq!(connect(presented.config(), &client, "localhost"), NO_CERTIFICATE);
}

#[test]
fn a_ticket_does_not_resume_at_another_listener_or_name() {
    let authority = Authority::new();
    let folder = Folder::new();
    let settings = folder.settings(&authority);
    let (one, other) = (identity(&settings), identity(&settings));
    for version in BOTH {
        let connected = |identity: &TlsIdentity, client, name| connect(identity.config(), client, name);
        let client = authority.client(version, None);
        assert_eq!(connected(&one, &client, "localhost"), Ok(false));
        assert_eq!(connected(&one, &client, "localhost"), Ok(true));
        assert_eq!(connected(&one, &client, "other.example"), Ok(false), "another name");
        let client = authority.client(version, None);
        assert_eq!(connected(&one, &client, "localhost"), Ok(false));
        assert_eq!(connected(&other, &client, "localhost"), Ok(false), "another listener");
    }
}

/// Accepts every client certificate, as at a time before its end.
#[derive(Debug)]
struct AnyCertificate(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[test]
fn a_ticket_does_not_outlive_the_client_certificate() {
    let authority = Authority::new();
    let folder = Folder::new();
    let client_ca = Some(folder.write("ca.pem", &authority.0.pem()));
    let settings = TlsSettings { client_ca, ..folder.settings(&authority) };
    let present = identity(&settings).config();
    // The configuration at the time when the certificate was valid, with the same key of tickets.
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).expect("an authority");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = Arc::new(AnyCertificate(verifier.build().expect("a verifier")));
    let mut earlier = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&BOTH)
        .expect("versions")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(&present.cert_resolver));
    earlier.ticketer = Arc::clone(&present.ticketer);
    earlier.session_storage = Arc::clone(&present.session_storage);
    let earlier = Arc::new(earlier);
    for (ends_s, expected) in [(-60, NO_CERTIFICATE), (DAY_S, Ok(true))] {
        for version in BOTH {
            let certificate = authority.sign(-DAY_S, ends_s);
            let client = authority.client(version, Some(&certificate));
            assert_eq!(connect(Arc::clone(&earlier), &client, "localhost"), Ok(false));
            assert_eq!(connect(Arc::clone(&present), &client, "localhost"), expected, "{ends_s} {version:?}");
        }
    }
}

#[test]
fn a_certificate_that_is_not_valid_now_is_rejected_with_its_time() {
    let authority = Authority::new();
    for (from_s, to_s, expected) in [
        (-DAY_S, 30 * DAY_S, None),
        (60, 30 * DAY_S, Some("certificate begins at")),
        (-DAY_S, -60, Some("certificate has expired")),
    ] {
        let folder = Folder::new();
        let (certificate, key) = authority.sign(from_s, to_s);
        let settings = TlsSettings {
            cert: Some(folder.write("cert.pem", &certificate.pem())),
            key: Some(folder.write("key.pem", &key.serialize_pem())),
            ..TlsSettings::default()
        };
        let error = TlsIdentity::read(&settings, &mut Vec::new()).err().map(|error| error.to_string());
        match (&error, expected) {
            (None, None) => {}
            (Some(error), Some(text)) => {
                assert!(error.contains(text) && error.contains("cert.pem"), "{error}");
            }
            _ => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_watcher_never_restores_rules_that_a_reload_has_replaced() {
    let authority = Authority::new();
    let folder = Folder::new();
    let open = folder.settings(&authority);
    let client_ca = Some(folder.write("ca.pem", &authority.0.pem()));
    let presented = identity(&open);
    // The watcher reads the files, a reload requires certificates, then the watcher presents its result.
    let read_before = identity(&open);
    presented.renew(&identity(&TlsSettings { client_ca, ..open }));
    presented.refresh(&read_before);
    let client = authority.client(&version::TLS13, None);
    assert_eq!(connect(presented.config(), &client, "localhost"), NO_CERTIFICATE);
}
