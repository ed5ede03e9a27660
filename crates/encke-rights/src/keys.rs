//! Keys that verify tokens: a shared secret, or the public half of a key pair.
//!
//! The kind of a key determines its one algorithm. The `alg` of a token only selects among the keys of that algorithm. So a
//! public key can never be used as a secret (RFC 8725 §3.1).

use std::io::Read as _;
use std::path::Path;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use ed25519_dalek::pkcs8::spki::DecodePublicKey as _;
use encke_settings::Secret;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::{Signer as _, Verifier as _};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::KeyError;
use crate::limits::{KEY_FILE_BYTES_MAX, SECRET_BYTES_MIN};
use crate::settings::KeySettings;

/// A signature algorithm of tokens (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// EdDSA on Ed25519.
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm with this name in a token's head. `none` is not supported.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "ES256" => Some(Self::Es256),
            // The name in RFC 9864, after the curve.
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A SHA-256 digest. Identifies a token, key or question without storing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(pub(super) [u8; 32]);

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Compares in constant time.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
    }

    /// Returns the first eight bytes, big-endian.
    pub(super) fn short(self) -> u64 {
        self.0.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

/// A key that verifies tokens.
pub(super) struct Key {
    pub(super) kid: Option<Box<str>>,
    material: Material,
    /// Identifies the key by its algorithm and public bytes or secret.
    pub(super) print: Digest,
}

enum Material {
    Hs256(Hmac<Sha256>),
    Es256(p256::ecdsa::VerifyingKey),
    EdDsa(ed25519_dalek::VerifyingKey),
}

impl Key {
    /// Loads the key that settings describe.
    ///
    /// # Errors
    /// The file or secret cannot be read, or is not a valid key.
    pub(super) fn of_settings(settings: &KeySettings) -> Result<Self, KeyError> {
        let key = match (&settings.secret, &settings.pem) {
            (Some(secret), None) => Self::of_secret(&revealed(secret)?)?,
            (None, Some(path)) => Self::of_pem(&read(path)?).map_err(|error| error.in_file(path))?,
            _ => return Err(KeyError::Kind),
        };
        Ok(key.named(settings.kid.as_deref()))
    }

    /// Builds an HS256 key from a secret.
    fn of_secret(secret: &str) -> Result<Self, KeyError> {
        if secret.contains("-----BEGIN ") {
            // Otherwise a client with the public key could sign tokens with it.
            return Err(KeyError::SecretIsPem);
        }
        Self::of_secret_bytes(secret.as_bytes())
    }

    fn of_secret_bytes(secret: &[u8]) -> Result<Self, KeyError> {
        Ok(Self::new(Material::Hs256(hmac(secret)?), Digest::of(&[b"HS256", secret].concat())))
    }

    /// Parses a public or private key in PEM.
    fn of_pem(text: &str) -> Result<Self, KeyError> {
        match Pem::read(text)? {
            Pem::Es256(key) => Ok(Self::of_p256(key)),
            Pem::EdDsa(key) => Self::of_ed25519(key),
            Pem::Private(signer) => Ok(match signer {
                Signing::Es256(key) => Self::of_p256(*key.verifying_key()),
                Signing::EdDsa(key) => Self::of_ed25519(key.verifying_key())?,
                Signing::Hs256(_) => return Err(KeyError::Algorithm),
            }),
        }
    }

    fn of_p256(key: p256::ecdsa::VerifyingKey) -> Self {
        let print = Digest::of(&[b"ES256", key.to_sec1_point(false).as_bytes()].concat());
        Self::new(Material::Es256(key), print)
    }

    fn of_ed25519(key: ed25519_dalek::VerifyingKey) -> Result<Self, KeyError> {
        if key.is_weak() {
            return Err(KeyError::LowOrder);
        }
        let print = Digest::of(&[b"EdDSA", &key.as_bytes()[..]].concat());
        Ok(Self::new(Material::EdDsa(key), print))
    }

    const fn new(material: Material, print: Digest) -> Self {
        Self { kid: None, material, print }
    }

    fn named(self, kid: Option<&str>) -> Self {
        Self { kid: kid.map(Into::into), ..self }
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Hs256(_) => Algorithm::Hs256,
            Material::Es256(_) => Algorithm::Es256,
            Material::EdDsa(_) => Algorithm::EdDsa,
        }
    }

    /// Returns whether this key, or its private half, made the signature. The time taken reveals no secret.
    pub(super) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Hs256(hmac) => hmac.clone().chain_update(signed).verify_slice(signature).is_ok(),
            Material::Es256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(signed, &signature).is_ok()),
            Material::EdDsa(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(signed, &signature).is_ok()),
        }
    }
}

/// A key that signs tokens.
pub(super) enum Signing {
    Hs256(Hmac<Sha256>),
    Es256(p256::ecdsa::SigningKey),
    EdDsa(ed25519_dalek::SigningKey),
}

impl Signing {
    /// Loads the signing half of a key in the settings, or `None` for a public key.
    ///
    /// # Errors
    /// See [`Key::of_settings`].
    pub(super) fn of_settings(settings: &KeySettings) -> Result<Option<Self>, KeyError> {
        // A key that a server would reject must not sign tokens either.
        Key::of_settings(settings)?;
        match (&settings.secret, &settings.pem) {
            (Some(secret), _) => Ok(Some(Self::Hs256(hmac(revealed(secret)?.as_bytes())?))),
            (None, Some(path)) => Ok(match Pem::read(&read(path)?)? {
                Pem::Private(signing) => Some(signing),
                Pem::Es256(_) | Pem::EdDsa(_) => None,
            }),
            (None, None) => Ok(None),
        }
    }

    /// Loads a key from a file: a private key as PEM, or a secret in the first line.
    ///
    /// # Errors
    /// The file cannot be read, or contains neither.
    pub(super) fn of_file(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        let signing = if text.contains("-----BEGIN ") {
            match Pem::read(&text) {
                Ok(Pem::Private(signing)) => Ok(signing),
                Ok(_) => Err(KeyError::Public),
                Err(error) => Err(error),
            }
        } else {
            hmac(text.lines().next().unwrap_or_default().trim().as_bytes()).map(Self::Hs256)
        };
        signing.map_err(|error| error.in_file(path))
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Hs256(_) => Algorithm::Hs256,
            Self::Es256(_) => Algorithm::Es256,
            Self::EdDsa(_) => Algorithm::EdDsa,
        }
    }

    /// Signs `bytes`. ES256 and EdDSA need no entropy to sign (RFC 6979, RFC 8032).
    pub(super) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Hs256(hmac) => hmac.clone().chain_update(bytes).finalize().into_bytes().to_vec(),
            Self::Es256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(bytes);
                signature.to_bytes().to_vec()
            }
            Self::EdDsa(key) => key.sign(bytes).to_bytes().to_vec(),
        }
    }
}

fn hmac(secret: &[u8]) -> Result<Hmac<Sha256>, KeyError> {
    if secret.len() < SECRET_BYTES_MIN {
        return Err(KeyError::Short(secret.len()));
    }
    Ok(Hmac::new_from_slice(secret).expect("HMAC takes secrets of any length (RFC 2104)"))
}

/// The content of a PEM file.
enum Pem {
    Es256(p256::ecdsa::VerifyingKey),
    EdDsa(ed25519_dalek::VerifyingKey),
    Private(Signing),
}

impl Pem {
    fn read(text: &str) -> Result<Self, KeyError> {
        // Text before the first encapsulation boundary is a comment (RFC 7468 §2).
        let text = text.find("-----BEGIN ").map_or(text, |at| &text[at..]).trim_end();
        let label = text.strip_prefix("-----BEGIN ").and_then(|rest| rest.split_once("-----"));
        let key = match label.map(|(label, _)| label) {
            Some("PUBLIC KEY") => p256::ecdsa::VerifyingKey::from_public_key_pem(text)
                .map(Self::Es256)
                .or_else(|_| ed25519_dalek::VerifyingKey::from_public_key_pem(text).map(Self::EdDsa))
                .ok(),
            Some("PRIVATE KEY") => p256::ecdsa::SigningKey::from_pkcs8_pem(text)
                .map(Signing::Es256)
                .or_else(|_| ed25519_dalek::SigningKey::from_pkcs8_pem(text).map(Signing::EdDsa))
                .map(Self::Private)
                .ok(),
            Some(label) => return Err(KeyError::Label(label.to_owned())),
            None => return Err(KeyError::NotPem),
        };
        key.ok_or(KeyError::Algorithm)
    }
}

/// Returns the keys of a JWK Set (RFC 7517 §5) that can verify tokens. Keys of other types and for other uses are ignored, as
/// the RFC recommends.
///
/// # Errors
/// The file is not a JWK Set, one of its keys is invalid, or none is usable.
pub(super) fn of_jwks(path: &Path) -> Result<Vec<Key>, KeyError> {
    of_jwks_text(&read(path)?).map_err(|error| error.in_file(path))
}

pub(super) fn of_jwks_text(text: &str) -> Result<Vec<Key>, KeyError> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_str(text).map_err(KeyError::NotKeySet)?;
    let mut keys = Vec::new();
    for (place, value) in set.keys.into_iter().enumerate() {
        let key = serde_json::from_value::<Jwk>(value).map_err(KeyError::NotJwk).and_then(Jwk::key);
        keys.extend(key.map_err(|error| KeyError::Jwk(place, Box::new(error)))?);
    }
    if keys.is_empty() {
        return Err(KeyError::NoKey);
    }
    Ok(keys)
}

/// A JSON Web Key (RFC 7517 §4, RFC 7518 §6, RFC 8037 §2).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    key_ops: Option<Vec<String>>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
    #[serde(default)]
    k: Option<String>,
}

impl Jwk {
    fn key(self) -> Result<Option<Key>, KeyError> {
        let verifies = self.usage.as_ref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let algorithm = match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-256")) => Algorithm::Es256,
            ("OKP", Some("Ed25519")) => Algorithm::EdDsa,
            // A secret must name its algorithm; otherwise it could be meant for any.
            ("oct", _) if self.alg.is_some() => Algorithm::Hs256,
            _ => return Ok(None),
        };
        let meant = self.alg.as_deref().is_none_or(|name| Algorithm::of(name) == Some(algorithm));
        if !verifies || !meant {
            return Ok(None);
        }
        let key = match algorithm {
            Algorithm::Hs256 => Key::of_secret_bytes(&decoded("k", self.k.as_deref())?)?,
            Algorithm::Es256 => {
                let [x, y] = [number("x", self.x.as_deref())?, number("y", self.y.as_deref())?];
                // An uncompressed point (SEC 1 §2.3.3).
                let point = [&[4][..], &x, &y].concat();
                let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(&point);
                Key::of_p256(key.map_err(|_| KeyError::P256Point)?)
            }
            Algorithm::EdDsa => {
                let key = ed25519_dalek::VerifyingKey::from_bytes(&number("x", self.x.as_deref())?);
                Key::of_ed25519(key.map_err(|_| KeyError::Ed25519Point)?)?
            }
        };
        Ok(Some(key.named(self.kid.as_deref())))
    }
}

fn decoded(name: &'static str, text: Option<&str>) -> Result<Vec<u8>, KeyError> {
    let text = text.ok_or(KeyError::Missing(name))?;
    Base64UrlUnpadded::decode_vec(text).map_err(|_| KeyError::Base64(name))
}

fn number(name: &'static str, text: Option<&str>) -> Result<[u8; 32], KeyError> {
    decoded(name, text)?.try_into().map_err(|_| KeyError::Size(name))
}

fn read(path: &Path) -> Result<String, KeyError> {
    let mut text = String::new();
    let file =
        encke_io::files::open_regular(path).map_err(|error| KeyError::Unreadable(error).in_file(path))?;
    file.take(KEY_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| KeyError::Unreadable(error).in_file(path))?;
    if text.len() as u64 > KEY_FILE_BYTES_MAX { Err(KeyError::Large.in_file(path)) } else { Ok(text) }
}

fn revealed(secret: &Secret) -> Result<String, KeyError> {
    secret.reveal().map_err(KeyError::Secret)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a key that verifies the signatures of `signing`.
    pub(crate) fn verifying(signing: &Signing, kid: Option<&str>) -> Key {
        let key = match signing {
            Signing::Hs256(_) => Key::of_secret(SECRET),
            Signing::Es256(key) => Ok(Key::of_p256(*key.verifying_key())),
            Signing::EdDsa(key) => Key::of_ed25519(key.verifying_key()),
        };
        key.expect("a good key").named(kid)
    }

    pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

    /// One signing key of each algorithm, made for these tests.
    pub(crate) fn signings() -> [Signing; 3] {
        let p256 =
            p256::ecdsa::SigningKey::from_slice(&[7; 32]).expect("7 repeated is below the order of P-256");
        [
            Signing::Hs256(hmac(SECRET.as_bytes()).expect("long enough")),
            Signing::Es256(p256),
            Signing::EdDsa(ed25519_dalek::SigningKey::from_bytes(&[9; 32])),
        ]
    }

    // Made with `openssl genpkey` for this test.
    const P256_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgmOH7RkmJEHcc5ZZD\n\
        ywwsTgFliWOG7UZXgnVwnUYQXHChRANCAARts8qiQO14x0pFA4YcWiI3DzgsEzz6\n\
        EYxkhcNlGErJn94Pxu5VTAiFWIa1MowMMGXewqOifjur9pULr0bPh73h\n\
        -----END PRIVATE KEY-----\n";
    const P256_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbbPKokDteMdKRQOGHFoiNw84LBM8\n\
        +hGMZIXDZRhKyZ/eD8buVUwIhViGtTKMDDBl3sKjon47q/aVC69Gz4e94Q==\n\
        -----END PUBLIC KEY-----\n";
    const ED25519_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIIC0h7iwWTgUmjLqbQ2C/j2JK8m9gbsv0np0QbvURoVb\n\
        -----END PRIVATE KEY-----\n";
    const ED25519_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAiYW91Y4pKuXYI6Uneutst+OhJuYAWOiiq6ugBTIuenI=\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn what_a_key_signs_its_own_kind_verifies_and_nothing_else() {
        let signings = signings();
        for (signing, place) in signings.iter().zip(0..) {
            let signature = signing.sign(b"message");
            for (other, other_place) in signings.iter().zip(0..) {
                let key = verifying(other, None);
                assert_eq!(key.algorithm(), other.algorithm());
                assert_eq!(key.verifies(b"message", &signature), place == other_place);
                assert!(!key.verifies(b"massage", &signature));
                for cut in 0..signature.len() {
                    assert!(!key.verifies(b"message", &signature[..cut]));
                }
            }
        }
    }

    #[test]
    fn every_changed_bit_of_a_signature_is_noticed() {
        for signing in signings() {
            let (key, signature) = (verifying(&signing, None), signing.sign(b"message"));
            for bit in 0..signature.len() * 8 {
                let mut changed = signature.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!key.verifies(b"message", &changed), "{:?}: bit {bit}", key.algorithm());
            }
        }
    }

    #[test]
    fn a_private_key_and_its_public_one_are_the_same_key() {
        for (private, public, algorithm) in [
            (P256_PRIVATE, P256_PUBLIC, Algorithm::Es256),
            (ED25519_PRIVATE, ED25519_PUBLIC, Algorithm::EdDsa),
        ] {
            let (private, public) = (Key::of_pem(private), Key::of_pem(&format!("A comment\n{public}\n\n")));
            let (private, public) = (private.expect("a key"), public.expect("a key"));
            assert_eq!((private.print, private.algorithm()), (public.print, algorithm));
        }
    }

    #[test]
    fn what_is_no_key_says_why() {
        for (pem, reason) in [
            ("", "not a PEM file"),
            ("-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----\n", "openssl pkcs8"),
            ("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "label is `CERTIFICATE`"),
            ("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n", "expected P-256 or Ed25519"),
            ("-----BEGIN PUBLIC KEY-----\n", "expected P-256 or Ed25519"),
        ] {
            let error = Key::of_pem(pem).err().expect(pem);
            assert!(error.to_string().contains(reason), "{pem}: {error}");
        }
        for (secret, reason) in [("short", "5 bytes can be guessed"), (P256_PUBLIC, "set `pem` to its file")]
        {
            let error = Key::of_secret(secret).err().expect(secret);
            assert!(error.to_string().contains(reason), "{secret}: {error}");
        }
    }

    #[test]
    fn a_low_order_point_is_no_key() {
        let mut identity = [0; 32];
        identity[0] = 1;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&identity).expect("it is on the curve");
        assert!(Key::of_ed25519(key).is_err());
    }

    #[test]
    fn a_jwk_set_is_read_key_by_key() {
        // The EC key of RFC 7517 A.1 and the Ed25519 key of RFC 8037 A.2, among keys that are ignored.
        let keys = of_jwks_text(
            r#"{"keys": [
                {"kty": "EC", "crv": "P-256", "use": "enc", "x": "", "y": ""},
                {"kty": "EC", "crv": "P-256", "kid": "1", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
                 "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
                {"kty": "RSA", "n": "AQAB", "e": "AQAB", "alg": "RS256"},
                {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
                {"kty": "OKP", "crv": "X25519", "x": ""},
                {"kty": "oct", "k": "AAAA"},
                {"kty": "oct", "alg": "HS512", "k": "AAAA"},
                {"kty": "oct", "alg": "HS256", "key_ops": ["sign"], "k": "AAAA"},
                {"kty": "oct", "alg": "HS256", "key_ops": ["sign", "verify"],
                 "k": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}
            ]}"#,
        );
        let keys: Vec<_> =
            keys.expect("three keys").into_iter().map(|key| (key.algorithm(), key.kid)).collect();
        assert_eq!(
            keys,
            [(Algorithm::Es256, Some("1".into())), (Algorithm::EdDsa, None), (Algorithm::Hs256, None)]
        );
    }

    #[test]
    fn a_broken_jwk_set_is_refused_whole() {
        for (text, reason) in [
            ("", "not a JWK Set"),
            (r#"{"keys": 5}"#, "not a JWK Set"),
            (r#"{"keys": []}"#, "no usable key"),
            (r#"{"keys": [{"kty": "RSA"}]}"#, "no usable key"),
            (r#"{"keys": [{"kid": "a"}]}"#, "key 0: not a JWK: expected an object with `kty`"),
            (r#"{"keys": [{"kty": "EC", "crv": "P-256"}]}"#, "key 0: `x` is missing"),
            (
                r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}"#,
                "`x` does not have 32 bytes",
            ),
            (r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "A+"}]}"#, "`x` is not base64url"),
            (r#"{"keys": [{"kty": "oct", "alg": "HS256", "k": "AAAA"}]}"#, "3 bytes can be guessed"),
        ] {
            let error = of_jwks_text(text).err().expect(text);
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
        let zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let off = format!(r#"{{"keys": [{{"kty": "EC", "crv": "P-256", "x": "{zero}", "y": "{zero}"}}]}}"#);
        assert!(
            of_jwks_text(&off).err().expect("not on the curve").to_string().contains("not a point of P-256")
        );
    }
}
