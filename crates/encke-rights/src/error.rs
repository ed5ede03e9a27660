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
use encke_settings::SecretError;

use crate::limits::{
    KEY_FILE_BYTES_MAX, KEYS_MAX, SECRET_BYTES_MIN, STATIC_TOKEN_BYTES_MIN, SUBJECT_BYTES_MAX,
    TOKEN_BYTES_MAX, TOKENS_MAX,
};

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
            Self::Keys(count) => write!(f, "auth: there are {count} keys; {KEYS_MAX} is the most"),
            Self::Tokens(count) => write!(f, "auth.tokens: there are {count}; {TOKENS_MAX} is the most"),
            Self::Token(number, error) => write!(f, "auth.tokens, number {number}: {error}"),
            Self::Certificate(subject, error) => write!(f, "auth.certificates, {subject:?}: {error}"),
            Self::Origin(text) => write!(
                f,
                "push.origins: `{text}` is no origin; one is written like https://example.org, without a path"
            ),
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
                "a token of {bytes} characters can be guessed, it needs {STATIC_TOKEN_BYTES_MIN}; make one with `openssl \
                 rand -hex 16`"
            ),
            Self::Characters => f.write_str(
                "a token is made of letters, digits and `-._~+/`: no field and no query holds others",
            ),
            Self::Pattern(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ChannelPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, cause } = self;
        write!(f, "`{text}` is no pattern of channels ({cause}); one is written like `news/*` or `**`")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("a key is either `secret` or `pem`"),
            Self::Secret(error) => error.fmt(f),
            Self::SecretIsPem => f.write_str("this secret is a PEM text: name its file as `pem`"),
            Self::Short(bytes) => write!(
                f,
                "a secret of {bytes} bytes can be guessed, HS256 needs {SECRET_BYTES_MIN}; make one with `openssl rand \
                 -hex 32`"
            ),
            Self::Unreadable(error) => error.fmt(f),
            Self::Large => {
                write!(f, "it is larger than {} KiB: no file with keys", KEY_FILE_BYTES_MAX / 1024)
            }
            Self::NotPem => f.write_str("it is no PEM file: there is no line `-----BEGIN PUBLIC KEY-----`"),
            Self::Label(label) => write!(
                f,
                "its label is `{label}`; needed is `PUBLIC KEY` or `PRIVATE KEY`: convert it with `openssl pkey \
                 -pubout`, or `openssl pkcs8 -topk8 -nocrypt`"
            ),
            Self::Algorithm => f.write_str("it holds neither a P-256 key nor an Ed25519 key"),
            Self::LowOrder => {
                f.write_str("this Ed25519 key has low order: it verifies signatures of other keys")
            }
            Self::Public => f.write_str("it is a public key: only the private one signs"),
            Self::NotKeySet(error) => write!(f, "it is no JWK Set: {error}"),
            Self::Jwk(index, error) => write!(f, "its key {index}: {error}"),
            Self::NoKey => {
                f.write_str("it holds no key that can be used here: P-256, Ed25519 or `oct` for HS256")
            }
            Self::NotJwk(error) => error.fmt(f),
            Self::Missing(member) => write!(f, "`{member}` is missing"),
            Self::Base64(member) => write!(f, "`{member}` is no base64url"),
            Self::Size(member) => write!(f, "`{member}` has not 32 bytes"),
            Self::P256Point => f.write_str("`x` and `y` are no point of P-256"),
            Self::Ed25519Point => f.write_str("`x` is no point of Ed25519"),
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
                    "there is no key{named} in [[auth.keys]] that can sign: one with a `secret`, or whose `pem` is a \
                     private key"
                )
            }
            Self::Subject(error) => error.fmt(f),
            Self::Pattern(error) => error.fmt(f),
            Self::Long(bytes) => write!(
                f,
                "the token would have {bytes} bytes, and a server takes {TOKEN_BYTES_MAX}: use patterns"
            ),
        }
    }
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`sub`, a user's name, has 1 to {SUBJECT_BYTES_MAX} bytes and no control characters")
    }
}

impl Error for RightsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Key(_, error) | Self::KeySet(error) => Some(error),
            Self::Token(_, error) => Some(error),
            Self::Certificate(_, error) => Some(error),
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
