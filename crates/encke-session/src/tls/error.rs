//! The errors of certificates, keys and trusted authorities. Errors of a session are [`super::SessionError`].

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use encke_settings::state::StateError;
use encke_wire::civil::Civil;

/// The error of a library for cryptography or certificates.
type TlsCause = Box<dyn Error + Send + Sync>;

/// Why an identity, a local authority or a trust cannot be used. The origin is always this machine: the settings, the files
/// that they name, or the system.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file named by the settings, or in the state directory, cannot be used.
    File(PathBuf, TlsFileError),
    /// The stored local authority cannot be used.
    Authority {
        /// The directory of the authority. A new one is created if it is removed.
        folder: PathBuf,
        /// The cause.
        error: Box<Self>,
    },
    /// The state directory cannot be used.
    State(StateError),
    /// The system provides no random bytes.
    Random(io::Error),
    /// The settings name no certificate.
    NoCertificate,
    /// A certificate that was ordered by ACME has been removed.
    CertificateRemoved,
    /// The system has no usable authority. The cause, if known.
    NoAuthority(Option<TlsCause>),
    /// A library failed: a name that no certificate can have, no randomness, or a missing algorithm.
    Library(TlsCause),
    /// This build is without TLS.
    Missing,
}

/// Why a file cannot be used for TLS.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsFileError {
    /// The file cannot be read.
    Read(io::Error),
    /// The file has no PEM section of this kind.
    Absent(&'static str),
    /// The PEM section of this kind is malformed.
    Pem(&'static str, TlsCause),
    /// The content is not a certificate.
    NotCertificate(TlsCause),
    /// The certificate is not that of an authority.
    NotAuthority(TlsCause),
    /// The authorities, or the authority's key, cannot be used.
    Unusable(TlsCause),
    /// The private key has an unsupported type, or is malformed.
    Key(TlsCause),
    /// The private key does not belong to the certificate in this file.
    OtherKey(PathBuf),
    /// The certificate expired at this time, in seconds since 1970.
    Expired(u64),
    /// The certificate becomes valid at this time, in seconds since 1970.
    TooEarly(u64),
}

#[cfg(feature = "tls")]
impl TlsError {
    pub(super) fn library(error: impl Into<TlsCause>) -> Self {
        Self::Library(error.into())
    }
}

impl From<StateError> for TlsError {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "tls: {}: {error}", path.display()),
            Self::Authority { folder, error } => {
                write!(
                    f,
                    "{error}; remove the directory {} to have a new authority created",
                    folder.display()
                )
            }
            Self::State(error) => error.fmt(f),
            Self::Random(error) => write!(f, "tls: no random bytes: {error}"),
            Self::NoCertificate => f.write_str("tls names no certificate"),
            Self::CertificateRemoved => f.write_str("tls: the certificate ordered by ACME has been removed"),
            Self::NoAuthority(None) => f.write_str("the system knows no authority"),
            Self::NoAuthority(Some(error)) => write!(f, "the system knows no authority ({error})"),
            Self::Library(error) => error.fmt(f),
            Self::Missing => f.write_str("tls: this build is without it (cargo feature `tls`)"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            Self::Authority { error, .. } => Some(&**error),
            Self::State(error) => Some(error),
            Self::Random(error) => Some(error),
            Self::NoAuthority(Some(error)) | Self::Library(error) => Some(&**error),
            Self::NoCertificate | Self::CertificateRemoved | Self::NoAuthority(None) | Self::Missing => None,
        }
    }
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Absent(what) => write!(f, "there is no {what} in it (PEM, -----BEGIN …)"),
            Self::Pem(what, error) => write!(f, "no {what} as PEM: {error}"),
            Self::NotCertificate(error) => write!(f, "no certificate: {error}"),
            Self::NotAuthority(error) => write!(f, "no authority: {error}"),
            Self::Unusable(error) => error.fmt(f),
            Self::Key(error) => write!(f, "its key cannot be used: {error}"),
            Self::OtherKey(certificate) => {
                write!(f, "it is not the key of the certificate in {}", certificate.display())
            }
            Self::Expired(at_s) => {
                write!(f, "its certificate has expired ({}): renew it, or take another", date(*at_s))
            }
            Self::TooEarly(at_s) => {
                write!(f, "its certificate begins at {} only: is the clock right?", date(*at_s))
            }
        }
    }
}

impl Error for TlsFileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            Self::Pem(_, error)
            | Self::NotCertificate(error)
            | Self::NotAuthority(error)
            | Self::Unusable(error)
            | Self::Key(error) => Some(&**error),
            Self::Absent(_) | Self::OtherKey(_) | Self::Expired(_) | Self::TooEarly(_) => None,
        }
    }
}

/// Formats a moment, in seconds since 1970, as RFC 3339 in UTC.
pub fn date(at_s: u64) -> String {
    String::from_utf8_lossy(&Civil::of(at_s).rfc3339()).into_owned() + "Z"
}
