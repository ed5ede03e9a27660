//! The facts of a TLS handshake and the identity of its client, for handlers, authorization and the log.

#[cfg(feature = "tls")]
use std::cell::Cell;
use std::sync::Arc;

/// The facts of a connection's TLS handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsKnown {
    /// The TLS version: `1.3` or `1.2`.
    pub version: &'static str,
    /// The IANA name of the cipher suite: `TLS_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// The server name that the client requested (SNI).
    pub server_name: Option<Box<str>>,
    /// The identity in the client's certificate, if the client presented a certificate that names one.
    pub client: Option<Certified>,
}

impl TlsKnown {
    /// Creates the facts of a handshake.
    pub const fn new(
        version: &'static str,
        cipher: &'static str,
        server_name: Option<Box<str>>,
        client: Option<Certified>,
    ) -> Self {
        Self { version, cipher, server_name, client }
    }
}

/// A client with a certificate that a trusted authority signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    /// The single common name of the subject; without any, the first name of its subjectAltName: an e-mail address, a host, or
    /// a URI.
    pub name: Arc<str>,
    /// Expiry of the certificate, in seconds since 1970.
    pub expires_unix_s: u64,
    /// SHA-256 digest of the certificate (DER). On the heap, since few connections have one.
    pub fingerprint: Box<[u8; 32]>,
}

#[cfg(feature = "tls")]
thread_local! {
    /// The server name of the ClientHello that this thread processes. For an unbuffered session, rustls passes it only to the
    /// certificate resolver, which runs within the same call of [`super::Tls::open`].
    static SERVER_NAME: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// Stores the server name of a ClientHello.
#[cfg(feature = "tls")]
pub(super) fn note_server_name(name: Option<&str>) {
    SERVER_NAME.set(name.map(Into::into));
}

/// Takes the stored name, if a ClientHello was processed since the last call.
#[cfg(feature = "tls")]
pub(super) fn take_server_name() -> Option<Box<str>> {
    SERVER_NAME.take()
}

/// Maximum length of a name, in bytes. X.520 allows 64 characters for a common name.
#[cfg(feature = "tls")]
const NAME_BYTES_MAX: usize = 256;

#[cfg(feature = "tls")]
impl Certified {
    /// The identity in a certificate (DER). Returns `None` if it has no name, several common names, or a name that is not
    /// printable.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        use sha2::Digest as _;
        use x509_parser::prelude::{FromDer as _, X509Certificate};
        let fingerprint = Box::new(<[u8; 32]>::from(sha2::Sha256::digest(certificate)));
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let mut common = certificate.subject().iter_common_name();
        let name = match (common.next(), common.next()) {
            (Some(name), None) => name.as_str().ok()?,
            (Some(_), Some(_)) => return None,
            (None, _) => first_alternative(&certificate)?,
        };
        let printable = !name.is_empty() && !name.chars().any(char::is_control);
        let expires_unix_s = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
        let is_valid = printable && name.len() <= NAME_BYTES_MAX;
        is_valid.then(|| Self { name: name.into(), expires_unix_s, fingerprint })
    }
}

#[cfg(feature = "tls")]
fn first_alternative<'a>(certificate: &'a x509_parser::certificate::X509Certificate<'_>) -> Option<&'a str> {
    use x509_parser::extensions::GeneralName;
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::RFC822Name(name) | GeneralName::DNSName(name) | GeneralName::URI(name) => Some(*name),
        _ => None,
    })
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    /// The digest by another implementation.
    fn rustls_digest(der: &[u8]) -> Vec<u8> {
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        suite.tls13().expect("a suite of TLS 1.3").common.hash_provider.hash(der).as_ref().to_vec()
    }

    fn certified(common: &[&str], alternatives: Vec<SanType>) -> Option<String> {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in common {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.subject_alt_names = alternatives;
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.self_signed(&key).expect("a certificate");
        Certified::of(certificate.der()).map(|certified| {
            assert_eq!(certified.expires_unix_s, 4_102_444_800);
            assert_eq!(certified.fingerprint[..], *rustls_digest(certificate.der()));
            certified.name.to_string()
        })
    }

    #[test]
    fn a_client_is_its_common_name_or_else_its_first_alternative() {
        let mail = || SanType::Rfc822Name("ann@example.org".try_into().expect("ASCII"));
        let host = || SanType::DnsName("host.example.org".try_into().expect("ASCII"));
        for (common, alternatives, name) in [
            (&["ann"][..], vec![mail()], Some("ann")),
            (&["Ann Müller"], vec![], Some("Ann Müller")),
            (&[], vec![mail(), host()], Some("ann@example.org")),
            (&[], vec![host()], Some("host.example.org")),
            (&[], vec![], None),
            (&[""], vec![host()], None),
            (&["a\nb"], vec![], None),
            (&["x".repeat(257).as_str()], vec![], None),
        ] {
            assert_eq!(certified(common, alternatives).as_deref(), name, "{common:?}");
        }
        assert_eq!(Certified::of(b"no certificate"), None);
    }
}
