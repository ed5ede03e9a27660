//! The client's side of TLS: the authorities that a client trusts ([`Trust`]), and its sessions ([`ClientSession`]).
//!
//! Sessions have no socket; the caller reads and writes their bytes.
//!
//! ```text
//!  Trust ─ session("example.com") ─► ClientSession   output: a ClientHello
//!                                     open ◄── received bytes; output: records of TLS itself
//!                                       … until is_established: then seal and open carry plaintext
//!                                     finish ─► close_notify
//! ```

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, HandshakeKind, RootCertStore,
    SignatureScheme, version,
};
use x509_parser::time::ASN1Time;

use super::error::{TlsError, TlsFileError};
use super::records::Records;
use super::{Distrust, pem_file};

/// The servers that a client trusts, and the configuration of its sessions. Cheap to clone; sessions of one `Trust` and its
/// clones resume each other.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
}

/// The client's side of TLS on one connection. It offers HTTP/1.1, or HTTP/2 after [`Trust::for_http2`].
pub struct ClientSession {
    records: Records<UnbufferedClientConnection>,
}

impl Trust {
    /// Trusts the authorities of the system, or those in `$SSL_CERT_FILE` and `$SSL_CERT_DIR`.
    ///
    /// # Errors
    /// The system has no usable authority.
    pub fn of_system() -> Result<Self, TlsError> {
        let known = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // Systems carry a few certificates that are too old or malformed; these are skipped.
        let (taken, _odd) = roots.add_parsable_certificates(known.certs);
        if taken == 0 {
            return Err(TlsError::NoAuthority(known.errors.into_iter().next().map(Into::into)));
        }
        Self::of_roots(roots)
    }

    /// Trusts only the authorities in a PEM file.
    ///
    /// # Errors
    /// The file cannot be read, or holds no authority.
    pub fn of_file(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in pem_file::certificates(path)? {
            let added = roots.add(authority);
            added.map_err(|error| pem_file::named(path, TlsFileError::NotAuthority(error.into())))?;
        }
        Self::of_roots(roots)
    }

    /// Trusts every certificate, so that the server is not authenticated: for experiments only.
    ///
    /// # Errors
    /// TLS cannot be initialised.
    pub fn of_anybody() -> Result<Self, TlsError> {
        Self::by(Arc::new(AcceptAnyCert(provider())))
    }

    fn of_roots(roots: RootCertStore) -> Result<Self, TlsError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        Self::by(verifier.build().map_err(TlsError::library)?)
    }

    fn by(verifier: Arc<dyn ServerCertVerifier>) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(TlsError::library)?;
        // "Dangerous" refers to custom verifiers: only `of_anybody` passes a verifier that accepts every certificate.
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config) })
    }

    /// Disables resumption: each session begins with a full handshake.
    #[must_use]
    pub fn forgetting(self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config) }
    }

    /// Offers HTTP/2 only (ALPN, RFC 7301).
    #[must_use]
    pub fn for_http2(self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { config: Arc::new(config) }
    }

    /// Creates a session with the server of a name or address (IPv6 without brackets). Its first output is the ClientHello.
    ///
    /// ```
    /// use encke_session::tls::Trust;
    ///
    /// let mut session = Trust::of_anybody()?.session("localhost").expect("a valid name");
    /// let mut hello = Vec::new();
    /// session.output(&mut hello);
    /// assert_eq!(hello[0], 22, "a handshake record");
    /// assert!(!session.is_established());
    /// # Ok::<(), encke_session::tls::TlsError>(())
    /// ```
    ///
    /// # Errors
    /// No certificate can match such a name.
    pub fn session(&self, host: &str) -> Result<ClientSession, Distrust> {
        let wrong = |error: &dyn fmt::Display| Distrust::Protocol(format!("`{host}`: {error}"));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(&error))?;
        let session =
            UnbufferedClientConnection::new(Arc::clone(&self.config), name).map_err(|error| wrong(&error))?;
        let mut new = ClientSession { records: Records::new(session) };
        new.open(&mut [], &mut Vec::new())?;
        Ok(new)
    }
}

impl ClientSession {
    /// Decrypts received records in place, and appends their plaintext to `plain`. Output may follow, also after an error: an
    /// alert.
    ///
    /// # Errors
    /// The session has failed.
    pub fn open(&mut self, arrived: &mut [u8], plain: &mut Vec<u8>) -> Result<(), Distrust> {
        self.records.open(arrived, plain).map(drop).map_err(Distrust::of)
    }

    /// Moves records of TLS itself to the end of `out`. They precede records sealed later.
    pub fn output(&mut self, out: &mut Vec<u8>) {
        self.records.output(out);
    }

    /// Appends plaintext as records.
    ///
    /// # Errors
    /// The handshake has not ended, or the session has failed.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Distrust> {
        self.output(out);
        if !self.records.can_seal() {
            return Err(Distrust::of(Error::HandshakeNotComplete));
        }
        self.records.seal(plain, out).map_err(Distrust::of)
    }

    /// Appends pending records of TLS itself, then close_notify (RFC 8446 §6.1).
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.records.finish(out);
    }

    /// Whether the handshake has ended and plaintext may be sealed.
    pub const fn is_established(&self) -> bool {
        self.records.is_established()
    }

    /// Whether the server has sent close_notify. A connection that ends without it may have been truncated by a third party.
    pub const fn is_ended(&self) -> bool {
        self.records.is_ended()
    }

    /// Whether both sides agreed on HTTP/2 (ALPN, RFC 7301).
    pub fn speaks_http2(&self) -> bool {
        self.records.session.alpn_protocol() == Some(b"h2")
    }

    /// Whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.records.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl Distrust {
    fn of(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(certificate) => match certificate {
                // A replaced authority often keeps its name: then the signature does not match.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Authority,
                CertificateError::NotValidForName => Self::Name(Vec::new()),
                CertificateError::NotValidForNameContext { presented, .. } => Self::Name(presented),
                CertificateError::Expired => Self::Expired(None),
                CertificateError::ExpiredContext { not_after, .. } => Self::Expired(moment(not_after)),
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::TooEarly,
                other => Self::Certificate(other.to_string()),
            },
            Error::InvalidMessage(_) => Self::NotTls,
            Error::AlertReceived(alert) => Self::Refused(format!("{alert:?}")),
            other => Self::Protocol(other.to_string()),
        }
    }
}

fn moment(at: UnixTime) -> Option<String> {
    let at = ASN1Time::from_timestamp(i64::try_from(at.as_secs()).ok()?).ok()?;
    Some(at.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Accepts every certificate. Signatures are still verified, so the server holds the certificate's key.
#[derive(Debug)]
struct AcceptAnyCert(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCert {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};

    use super::super::{ClientSessions, Session, SessionError, Sessions as _, Tls, TlsFault};
    use super::*;

    /// A new authority for a test.
    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("randomness");
            Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
        }

        fn trust(&self) -> Trust {
            let mut roots = RootCertStore::empty();
            roots.add(self.0.der().clone()).expect("an authority");
            Trust::of_roots(roots).expect("a verifier")
        }

        /// A server's configuration with a certificate for `localhost`, valid between these offsets from now, in seconds.
        fn config(&self, from_s: i64, to_s: i64) -> ServerConfig {
            let moment = |offset_s: i64| {
                let now = SystemTime::now();
                let offset = Duration::from_secs(offset_s.unsigned_abs());
                (if offset_s < 0 { now - offset } else { now + offset }).into()
            };
            let mut params = CertificateParams::new(vec!["localhost".into()]).expect("names");
            params.not_before = moment(from_s);
            params.not_after = moment(to_s);
            let key = KeyPair::generate().expect("randomness");
            let certificate = params.signed_by(&key, &self.0).expect("a certificate");
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&version::TLS13, &version::TLS12])
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)
                .expect("a pair")
        }

        fn server(&self, from_s: i64, to_s: i64) -> ServerConnection {
            ServerConnection::new(Arc::new(self.config(from_s, to_s))).expect("a connection")
        }
    }

    /// The server's pending output.
    fn said(server: &mut ServerConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("memory");
        }
        bytes
    }

    /// Carries bytes between the two until neither has output. The server's bytes arrive in pieces of at most `piece`.
    fn talk(
        client: &mut ClientSession,
        server: &mut ServerConnection,
        piece: usize,
        plain: &mut Vec<u8>,
    ) -> Result<(), Distrust> {
        loop {
            let mut out = Vec::new();
            client.output(&mut out);
            let mut arriving = &out[..];
            while !arriving.is_empty() {
                server.read_tls(&mut arriving).expect("memory");
                // The server's reaction to an alert does not matter here.
                let _ended = server.process_new_packets();
            }
            let answer = said(server);
            if answer.is_empty() {
                return Ok(());
            }
            for piece in answer.chunks(piece) {
                client.open(&mut piece.to_vec(), plain)?;
            }
        }
    }

    const DAY_S: i64 = 24 * 60 * 60;

    #[test]
    fn plaintext_goes_both_ways_however_it_is_cut() {
        let authority = Authority::new();
        for piece in [usize::MAX, 1, 7, 1_000] {
            let mut server = authority.server(-DAY_S, DAY_S);
            let mut client = authority.trust().session("localhost").expect("a name");
            let mut plain = Vec::new();
            talk(&mut client, &mut server, piece, &mut plain).expect("they agree");
            assert!(client.is_established() && !client.is_resumed(), "in pieces of {piece}");
            let mut sealed = Vec::new();
            client.seal(&[7; 40_000], &mut sealed).expect("established");
            let mut received = Vec::new();
            let mut arriving = &sealed[..];
            while !arriving.is_empty() {
                server.read_tls(&mut arriving).expect("memory");
                server.process_new_packets().expect("records");
                let mut some = [0; 20_000];
                while let Ok(read @ 1..) = server.reader().read(&mut some) {
                    received.extend_from_slice(&some[..read]);
                }
            }
            assert_eq!(received, [7; 40_000], "in pieces of {piece}");
            server.writer().write_all(b"hello").expect("memory");
            server.send_close_notify();
            talk(&mut client, &mut server, piece, &mut plain).expect("they agree");
            assert_eq!((&plain[..], client.is_ended()), (&b"hello"[..], true), "in pieces of {piece}");
        }
    }

    /// Carries output between the sides until neither has any.
    fn converse(sides: &mut [Box<dyn Session>; 2], plain: &mut [Vec<u8>; 2]) -> Result<(), SessionError> {
        loop {
            let mut silent = true;
            for from in [0, 1] {
                let mut out = Vec::new();
                sides[from].output(&mut out);
                silent &= out.is_empty();
                sides[1 - from].open(&mut out, &mut plain[1 - from])?;
            }
            if silent {
                return Ok(());
            }
        }
    }

    #[test]
    fn a_client_and_a_server_are_driven_by_one_interface() {
        let authority = Authority::new();
        let mut config = authority.config(-DAY_S, DAY_S);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        let sessions = ClientSessions::new(authority.trust().for_http2(), "localhost".into());
        for resumed in [false, true] {
            let server = Tls::new(Arc::clone(&config), 0).expect("a connection");
            let mut sides: [Box<dyn Session>; 2] = [sessions.begin().expect("a name"), server];
            let mut plain = Default::default();
            assert!(sides[1].seal(b"early", &mut Vec::new()).is_err() && !sides[0].is_established());
            converse(&mut sides, &mut plain).expect("they agree");
            for side in [0, 1] {
                let (mut out, text) = (Vec::new(), vec![side as u8; 40_000]);
                sides[side].seal(&text, &mut out).expect("established");
                sides[side].finish(&mut out);
                sides[1 - side].open(&mut out, &mut plain[1 - side]).expect("records");
                assert_eq!(plain[1 - side], text);
                let one = &sides[side];
                assert!(one.is_established() && one.speaks_http2() && one.is_resumed() == resumed);
                assert!(sides[1 - side].is_ended());
            }
        }
        let distrustful = ClientSessions::new(Authority::new().trust().for_http2(), "localhost".into());
        let server = Tls::new(config, 0).expect("a connection");
        let mut sides: [Box<dyn Session>; 2] = [distrustful.begin().expect("a name"), server];
        let outcome = converse(&mut sides, &mut Default::default());
        assert_eq!(outcome, Err(SessionError::Client(Distrust::Authority)));
        assert_eq!(
            converse(&mut sides, &mut Default::default()),
            Err(SessionError::Server(TlsFault::Refused))
        );
    }

    #[test]
    fn a_session_is_resumed_by_those_who_share_a_trust() {
        let authority = Authority::new();
        let config = Arc::new(authority.config(-DAY_S, DAY_S));
        let trust = authority.trust();
        let forgetful = trust.clone().forgetting();
        for (trust, resumed) in [
            (trust.clone(), false),
            (trust, true),
            (authority.trust(), false),
            (forgetful.clone(), false),
            (forgetful, false),
        ] {
            let mut server = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut client = trust.session("localhost").expect("a name");
            talk(&mut client, &mut server, usize::MAX, &mut Vec::new()).expect("they agree");
            assert_eq!(client.is_resumed(), resumed);
        }
    }

    #[test]
    fn who_is_not_believed_is_told_apart() {
        let authority = Authority::new();
        let (own, other) = (authority.trust(), Authority::new().trust());
        for (trust, host, valid, expected) in [
            (&own, "localhost", (-DAY_S, DAY_S), Ok(())),
            (&other, "localhost", (-DAY_S, DAY_S), Err("signed by no authority")),
            (&own, "127.0.0.1", (-DAY_S, DAY_S), Err("for others: ")),
            (&own, "example.com", (-DAY_S, DAY_S), Err("for others: ")),
            (&own, "localhost", (-2 * DAY_S, -DAY_S), Err("has expired (")),
            (&own, "localhost", (DAY_S, 2 * DAY_S), Err("not valid yet")),
            (&Trust::of_anybody().expect("set up"), "example.com", (-2 * DAY_S, -DAY_S), Ok(())),
        ] {
            let mut client = trust.session(host).expect("a name");
            let mut server = authority.server(valid.0, valid.1);
            let outcome = talk(&mut client, &mut server, usize::MAX, &mut Vec::new());
            match (outcome, expected) {
                (Ok(()), Ok(())) => assert!(client.is_established(), "{host}"),
                (Err(distrust), Err(said)) => {
                    let text = distrust.to_string();
                    assert!(text.contains(said), "{host}: {text}");
                    let mut alert = Vec::new();
                    client.output(&mut alert);
                    assert!(!alert.is_empty(), "{host}: the server is told");
                    // After a fault the session neither seals nor returns output.
                    let mut later = Vec::new();
                    assert!(client.seal(b"x", &mut later).is_err(), "{host}");
                    client.finish(&mut later);
                    assert!(later.is_empty(), "{host}");
                }
                (outcome, _) => panic!("{host}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_tls_is_told_as_that() {
        let trust = Authority::new().trust();
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n"] {
            let mut client = trust.session("localhost").expect("a name");
            let outcome = client.open(&mut answer.to_vec(), &mut Vec::new());
            assert_eq!(outcome, Err(Distrust::NotTls), "{}", String::from_utf8_lossy(answer));
        }
        for host in ["", "a b", "..", "[::1]"] {
            assert!(matches!(trust.session(host), Err(Distrust::Protocol(_))), "{host}");
        }
    }
}
