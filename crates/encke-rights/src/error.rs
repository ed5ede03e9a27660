//! The errors of this crate: of rights that are built from settings, and of keys that sign tokens.
//!
//! ```text
//! Rights::new ─► RightsError ─┬─► StaticTokenError ─┬─► ChannelPatternError
//!                             ├─────────────────────┘
//!                             └─┬─► KeyError
//! Signer ─────► SigningError ───┴─► ChannelPatternError
//! ```
//! All of them are permanent until the settings, a file or the arguments change.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use encke_hub::PatternError;
use encke_session::tls::TlsError;
use encke_settings::SecretError;

use crate::limits::{
    KEY_FILE_BYTES_MAX, KEYS_MAX, SECRET_BYTES_MIN, STATIC_TOKEN_BYTES_MIN, SUBJECT_BYTES_MAX,
    TOKEN_BYTES_MAX, TOKENS_MAX,
};
use encke_wire::punycode;

/// The origin of an error, which has to change before the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RightsErrorOrigin {
    /// The settings.
    Settings,
    /// A file with a key, or the place of a secret.
    Key,
    /// The contents of the token to sign.
    Contents,
}

/// Why settings grant no rights.
#[derive(Debug)]
#[non_exhaustive]
pub enum RightsError {
    /// A key of `auth.keys` cannot be used: its number, from 1, and the cause.
    Key(usize, KeyError),
    /// The file `auth.jwks` cannot be used.
    KeySet(KeyError),
    /// There are too many keys: their number.
    Keys(usize),
    /// There are too many tokens in `auth.tokens`: their number.
    Tokens(usize),
    /// A token of `auth.tokens` cannot be used: its number, from 1, and the cause.
    Token(usize, StaticTokenError),
    /// A pattern of `auth.certificates` is invalid: the subject, and the cause.
    Certificate(String, ChannelPatternError),
    /// The authorities for the `https` URL `auth.ask` cannot be read.
    AskTls(TlsError),
    /// A text in `push.origins` is not an origin.
    Origin(String),
    /// `push.origins` allows every page, although credentials are sent by browsers themselves.
    AllOrigins,
}

/// Why a static token cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum StaticTokenError {
    /// The token cannot be read.
    Secret(SecretError),
    /// The token is too short: its length, in bytes.
    Short(usize),
    /// The token contains characters that no header field and no query can hold.
    Characters,
    /// A pattern is invalid.
    Pattern(ChannelPatternError),
}

/// Why a text is not a pattern of channels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelPatternError {
    text: String,
    cause: PatternError,
}

/// Why a key cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// The settings name neither a secret nor a file, or both.
    Kind,
    /// The secret cannot be read.
    Secret(SecretError),
    /// The secret is a PEM text.
    SecretIsPem,
    /// The secret is too short: its length, in bytes.
    Short(usize),
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is too large to hold keys.
    Large,
    /// The text is not PEM.
    NotPem,
    /// The PEM text holds something else: its label.
    Label(String),
    /// The key has an unsupported algorithm.
    Algorithm,
    /// The Ed25519 key has low order: it verifies forged signatures.
    LowOrder,
    /// The key is public, so it cannot sign.
    Public,
    /// The text is not a JWK Set.
    NotKeySet(serde_json::Error),
    /// A key of a JWK Set is invalid: its index, and the cause.
    Jwk(usize, Box<Self>),
    /// The JWK Set has no usable key.
    NoKey,
    /// The key is not a JWK.
    NotJwk(serde_json::Error),
    /// A member of a JWK is missing.
    Missing(&'static str),
    /// A member of a JWK is not base64url.
    Base64(&'static str),
    /// A member of a JWK does not have 32 bytes.
    Size(&'static str),
    /// `x` and `y` of a JWK are not a point of P-256.
    P256Point,
    /// `x` of a JWK is not a point of Ed25519.
    Ed25519Point,
    /// The key in a file cannot be used: the file, and the cause.
    File(PathBuf, Box<Self>),
}

/// Why a token was not signed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SigningError {
    /// A key cannot be used.
    Key(KeyError),
    /// The settings have no key that can sign, or none with this name.
    NoKey(Option<String>),
    /// The user's name is invalid.
    Subject(SubjectError),
    /// A pattern is invalid.
    Pattern(ChannelPatternError),
    /// The token is longer than a server accepts: its length, in bytes.
    Long(usize),
}

/// The error of a user's name that is empty, too long, or has control characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubjectError;

impl RightsError {
    /// The origin of the error.
    pub const fn origin(&self) -> RightsErrorOrigin {
        match self {
            Self::Key(_, error) | Self::KeySet(error) => error.origin(),
            Self::Token(_, StaticTokenError::Secret(_)) => RightsErrorOrigin::Key,
            Self::Keys(_)
            | Self::Tokens(_)
            | Self::Token(..)
            | Self::Certificate(..)
            | Self::AskTls(_)
            | Self::Origin(_)
            | Self::AllOrigins => RightsErrorOrigin::Settings,
        }
    }
}

impl KeyError {
    /// The origin of the error.
    pub const fn origin(&self) -> RightsErrorOrigin {
        if matches!(self, Self::Kind) { RightsErrorOrigin::Settings } else { RightsErrorOrigin::Key }
    }

    /// Names the file that holds the key.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::File(path.to_owned(), Box::new(self))
    }
}

impl SigningError {
    /// The origin of the error.
    pub const fn origin(&self) -> RightsErrorOrigin {
        match self {
            Self::Key(error) => error.origin(),
            Self::NoKey(_) => RightsErrorOrigin::Settings,
            Self::Subject(_) | Self::Pattern(_) | Self::Long(_) => RightsErrorOrigin::Contents,
        }
    }
}

impl ChannelPatternError {
    pub(crate) fn new(text: &str, cause: PatternError) -> Self {
        Self { text: text.to_owned(), cause }
    }
}

impl fmt::Display for RightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(number, error) => write!(f, "auth.keys, number {number}: {error}"),
            Self::KeySet(error) => write!(f, "auth.jwks: {error}"),
            Self::Keys(count) => {
                write!(f, "auth.keys and auth.jwks have {count} keys: at most {KEYS_MAX} are allowed")
            }
            Self::Tokens(count) => write!(
                f,
                "auth.tokens has {count} tokens: at most {TOKENS_MAX} are allowed; signed ones (auth.keys) have no limit"
            ),
            Self::Token(number, error) => write!(f, "auth.tokens, number {number}: {error}"),
            Self::Certificate(subject, error) => write!(f, "auth.certificates, {subject:?}: {error}"),
            Self::AskTls(error) => write!(f, "auth.ask: {error}"),
            Self::Origin(text) => {
                let remark = punycode::remark(text);
                write!(f, "push.origins: invalid origin `{text}`: expected a form such as https://example.org, without a path{remark}")
            }
            Self::AllOrigins => f.write_str(
                "push.origins = [\"*\"] would let every page on the Internet use the cookies and certificates of its \
                 visitors (auth.cookie, auth.ask, auth.certificates): name the origins",
            ),
        }
    }
}

impl fmt::Display for StaticTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(error) => error.fmt(f),
            Self::Short(bytes) => write!(
                f,
                "a token of {bytes} characters can be guessed: use at least {STATIC_TOKEN_BYTES_MIN}, from `openssl rand -hex \
                 16`"
            ),
            Self::Characters => {
                f.write_str("the token has invalid characters: expected letters, digits and `-._~+/`")
            }
            Self::Pattern(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ChannelPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, cause } = self;
        write!(f, "invalid channel pattern `{text}`: {cause}")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("a key has either `secret` or `pem`: set one of them"),
            Self::Secret(error) => error.fmt(f),
            Self::SecretIsPem => f.write_str("the secret is a PEM text: set `pem` to its file instead"),
            Self::Short(bytes) => write!(
                f,
                "a secret of {bytes} bytes can be guessed: use at least {SECRET_BYTES_MIN} for HS256, from `openssl rand -hex \
                 32`"
            ),
            Self::Unreadable(error) => error.fmt(f),
            Self::Large => {
                write!(f, "larger than {} KiB: expected a file with keys", KEY_FILE_BYTES_MAX / 1024)
            }
            Self::NotPem => f.write_str("not a PEM file: expected a line `-----BEGIN PUBLIC KEY-----`"),
            Self::Label(label) => write!(
                f,
                "the PEM label is `{label}`: convert it to `PUBLIC KEY` with `openssl pkey -pubout`, or to `PRIVATE KEY` \
                 with `openssl pkcs8 -topk8 -nocrypt`"
            ),
            Self::Algorithm => f.write_str("the key has an unsupported algorithm: expected P-256 or Ed25519"),
            Self::LowOrder => f.write_str(
                "this Ed25519 key has low order and verifies signatures of other keys: generate another one",
            ),
            Self::Public => f.write_str("the key is public: only the private one signs"),
            Self::NotKeySet(error) => write!(
                f,
                "not a JWK Set, at line {}, column {}: expected {{\"keys\":[…]}} (RFC 7517)",
                error.line(),
                error.column()
            ),
            Self::Jwk(index, error) => write!(f, "key {index}: {error}"),
            Self::NoKey => f.write_str("no usable key: expected P-256, Ed25519, or `oct` with `alg` HS256"),
            Self::NotJwk(_) => {
                f.write_str("not a JWK: expected an object with `kty`, whose members are strings (RFC 7517)")
            }
            Self::Missing(member) => write!(f, "`{member}` is missing"),
            Self::Base64(member) => write!(f, "`{member}` is not base64url"),
            Self::Size(member) => write!(f, "`{member}` does not have 32 bytes"),
            Self::P256Point => f.write_str("`x` and `y` are not a point of P-256"),
            Self::Ed25519Point => f.write_str("`x` is not a point of Ed25519"),
            Self::File(path, error) => write!(f, "key file {}: {error}", path.display()),
        }
    }
}

impl fmt::Display for SigningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(error) => error.fmt(f),
            Self::NoKey(kid) => {
                let named = kid.as_ref().map_or_else(String::new, |kid| format!(" named `{kid}`"));
                write!(
                    f,
                    "no key{named} in [[auth.keys]] can sign: add one with a `secret`, or with a private key as `pem`"
                )
            }
            Self::Subject(error) => error.fmt(f),
            Self::Pattern(error) => error.fmt(f),
            Self::Long(bytes) => write!(
                f,
                "the token would have {bytes} bytes: a server accepts {TOKEN_BYTES_MAX}; replace channels by patterns"
            ),
        }
    }
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid user name (`sub`): expected 1 to {SUBJECT_BYTES_MAX} bytes without control characters"
        )
    }
}

impl Error for RightsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(_, error) | Self::KeySet(error) => Some(error),
            Self::Token(_, error) => Some(error),
            Self::Certificate(_, error) => Some(error),
            Self::AskTls(error) => Some(error),
            Self::Keys(_) | Self::Tokens(_) | Self::Origin(_) | Self::AllOrigins => None,
        }
    }
}

impl Error for StaticTokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Secret(error) => Some(error),
            Self::Pattern(error) => Some(error),
            Self::Short(_) | Self::Characters => None,
        }
    }
}

impl Error for ChannelPatternError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl Error for KeyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Secret(error) => Some(error),
            Self::Unreadable(error) => Some(error),
            Self::NotKeySet(error) | Self::NotJwk(error) => Some(error),
            Self::Jwk(_, error) | Self::File(_, error) => Some(&**error),
            _ => None,
        }
    }
}

impl Error for SigningError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            Self::Subject(error) => Some(error),
            Self::Pattern(error) => Some(error),
            Self::NoKey(_) | Self::Long(_) => None,
        }
    }
}

impl Error for SubjectError {}

impl From<ChannelPatternError> for StaticTokenError {
    fn from(error: ChannelPatternError) -> Self {
        Self::Pattern(error)
    }
}

impl From<ChannelPatternError> for SigningError {
    fn from(error: ChannelPatternError) -> Self {
        Self::Pattern(error)
    }
}

impl From<KeyError> for SigningError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<SubjectError> for SigningError {
    fn from(error: SubjectError) -> Self {
        Self::Subject(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_error(text: &str) -> serde_json::Error {
        serde_json::from_str::<std::collections::BTreeMap<String, String>>(text).expect_err("invalid")
    }

    /// Every text, once: the place, the cause, the remedy. A change of a text is a change of this list.
    #[test]
    fn every_text_names_place_cause_and_remedy_once() {
        let pattern =
            || ChannelPatternError::new("a//b", "a//b".parse::<encke_hub::Pattern>().expect_err("invalid"));
        let texts: Vec<String> = [
            RightsError::Keys(65).to_string(),
            RightsError::Tokens(1_025).to_string(),
            RightsError::Certificate("CN=ann".into(), pattern()).to_string(),
            RightsError::Origin("example.org".into()).to_string(),
            RightsError::AllOrigins.to_string(),
            RightsError::Token(2, StaticTokenError::Short(5)).to_string(),
            RightsError::Token(2, StaticTokenError::Characters).to_string(),
            RightsError::Token(2, pattern().into()).to_string(),
            RightsError::Key(1, KeyError::Kind).to_string(),
            RightsError::Key(1, KeyError::SecretIsPem).to_string(),
            RightsError::Key(1, KeyError::Short(5)).to_string(),
            RightsError::KeySet(KeyError::Large.in_file(Path::new("k"))).to_string(),
            KeyError::NotPem.to_string(),
            KeyError::Label("CERTIFICATE".into()).to_string(),
            KeyError::Algorithm.to_string(),
            KeyError::LowOrder.to_string(),
            KeyError::Public.to_string(),
            KeyError::NotKeySet(json_error("{\n5}")).to_string(),
            KeyError::Jwk(0, Box::new(KeyError::NotJwk(json_error("5")))).to_string(),
            KeyError::NoKey.to_string(),
            KeyError::Missing("x").to_string(),
            KeyError::Base64("x").to_string(),
            KeyError::Size("x").to_string(),
            KeyError::P256Point.to_string(),
            KeyError::Ed25519Point.to_string(),
            SigningError::NoKey(None).to_string(),
            SigningError::NoKey(Some("k".into())).to_string(),
            SigningError::Long(9_000).to_string(),
            SubjectError.to_string(),
        ]
        .into();
        let expected = include_str!("error_texts.txt");
        assert_eq!(texts.join("\n"), expected.trim_end(), "the list of texts is in error_texts.txt");
        for text in &texts {
            let rules = text.matches("expected").count()
                + text.matches("at most").count()
                + text.matches("at least").count();
            assert!(rules <= 1, "{text}: one rule");
            for term in ["invalid type", "unknown field", "missing field", "is no ", "EOF"] {
                assert!(!text.contains(term), "{text}: {term}");
            }
        }
    }

    #[test]
    fn errors_name_their_origin() {
        let absent = || KeyError::Unreadable(io::ErrorKind::NotFound.into()).in_file(Path::new("k.pem"));
        for (error, origin) in [
            (RightsError::Key(1, KeyError::Kind), RightsErrorOrigin::Settings),
            (RightsError::Key(1, absent()), RightsErrorOrigin::Key),
            (RightsError::KeySet(absent()), RightsErrorOrigin::Key),
            (RightsError::Token(2, StaticTokenError::Short(3)), RightsErrorOrigin::Settings),
            (
                RightsError::Token(2, StaticTokenError::Secret(SecretError::Variable("ABSENT".into()))),
                RightsErrorOrigin::Key,
            ),
        ] {
            assert_eq!(error.origin(), origin, "{error}");
        }
        assert_eq!(SigningError::Long(9_000).origin(), RightsErrorOrigin::Contents);
        assert_eq!(SigningError::Key(absent()).origin(), RightsErrorOrigin::Key);
    }

    #[test]
    fn sources_lead_to_the_error_of_the_system() {
        let error = RightsError::KeySet(
            KeyError::Unreadable(io::ErrorKind::NotFound.into()).in_file(Path::new("k.json")),
        );
        let mut cause: &dyn Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        assert!(cause.is::<io::Error>(), "{cause}");
        assert!(error.to_string().starts_with("auth.jwks: key file k.json: "), "{error}");
    }
}
