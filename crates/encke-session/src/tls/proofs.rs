//! The cryptography of an ACME order: a key with its signing request, and certificates that prove the control of names in a
//! handshake (RFC 8737).
//!
//! ```text
//!  show(name, digest) ─► Proofs ─► a handshake for `name` that offers only PROOF_PROTOCOL
//!  SigningRequest::new(names) ─► csr ─► the authority ─► a chain, for the key
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use encke_io::lock;
use rcgen::{CertificateParams, CertificateSigningRequest, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use super::error::TlsError;

/// The application protocol of a handshake that only checks a proof (RFC 8737 §6.2).
pub(super) const PROOF_PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificates that prove names during an order.
#[derive(Debug, Default)]
pub struct Proofs(Mutex<HashMap<String, Arc<CertifiedKey>>>);

impl Proofs {
    /// Creates the certificate that proves a name, and presents it until [`Proofs::clear`].
    ///
    /// # Errors
    /// The name is not valid in a certificate, or there is no randomness for its key.
    pub fn show(&self, name: &str, digest: &[u8; 32]) -> Result<(), TlsError> {
        let key = proof_of(name, digest)?;
        lock(&self.0).insert(name.to_ascii_lowercase(), Arc::new(key));
        Ok(())
    }

    /// Removes all certificates.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    /// The certificate that proves a name.
    pub(super) fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        lock(&self.0).get(&name.to_ascii_lowercase()).cloned()
    }
}

/// The certificate that proves a name (RFC 8737 §3).
fn proof_of(name: &str, digest: &[u8; 32]) -> Result<CertifiedKey, TlsError> {
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(TlsError::library)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(TlsError::library)?;
    let signed = params.self_signed(&key).map_err(TlsError::library)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(TlsError::library)?;
    let private = aws_lc_rs::sign::any_supported_type(&private).map_err(TlsError::library)?;
    Ok(CertifiedKey::new(vec![signed.der().clone()], private))
}

/// A new key, and the request to an authority to sign a certificate for it (RFC 2986).
pub struct SigningRequest {
    key: KeyPair,
    csr: CertificateSigningRequest,
}

impl SigningRequest {
    /// Creates a request for these names.
    ///
    /// ```
    /// use encke_session::tls::SigningRequest;
    ///
    /// let request = SigningRequest::new(&["example.org".to_owned()])?;
    /// assert!(request.key_pem().starts_with("-----BEGIN PRIVATE KEY-----"));
    /// # Ok::<(), encke_session::tls::TlsError>(())
    /// ```
    ///
    /// # Errors
    /// A name is not valid in a certificate, or there is no randomness for the key.
    pub fn new(names: &[String]) -> Result<Self, TlsError> {
        let key = KeyPair::generate().map_err(TlsError::library)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(TlsError::library)?;
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(&key).map_err(TlsError::library)?;
        Ok(Self { key, csr })
    }

    /// The request, as DER.
    pub fn csr(&self) -> &[u8] {
        self.csr.der()
    }

    /// The private key, as PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_has_its_name_and_is_forgotten_with_its_order() {
        let proofs = Proofs::default();
        proofs.show("A.example", &[7; 32]).expect("a name");
        let shown = proofs.certificate("a.EXAMPLE").expect("it is shown");
        let (_, proof) = x509_parser::parse_x509_certificate(&shown.cert[0]).expect("a certificate");
        // id-pe-acmeIdentifier, critical, an OCTET STRING of the digest (RFC 8737 §3).
        let extension = proof.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let extension = extension.expect("the digest");
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &[7; 32]].concat());
        assert!(proofs.certificate("b.example").is_none());
        proofs.clear();
        assert!(proofs.certificate("a.example").is_none());
    }
}
