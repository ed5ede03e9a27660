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
    /// The file has no usable PEM section of this kind.
    Pem(&'static str, PemFault),
    /// The certificate has this version of X.509. Clients find the names of a server in extensions, which only version 3 has.
    Version(u32),
    /// A later certificate of the file is that of the key: the number of this certificate, from 1.
    Order(usize),
    /// A later certificate of the file is malformed: its number, from 1.
    Malformed(usize),
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

/// Why a file has no PEM section of the expected kind.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PemFault {
    /// The file is empty.
    Empty,
    /// The file is UTF-16.
    Utf16,
    /// The file is DER or PKCS#12 in place of PEM. The expected kind.
    Binary(&'static str),
    /// The private key is encrypted with a passphrase.
    Encrypted,
    /// A section has no end: its kind.
    Cut(String),
    /// The sections are indented.
    Indented,
    /// A section is malformed: the cause.
    Malformed(String),
    /// The file has no section: the expected kind.
    Absent(&'static str),
    /// The file has only sections of other kinds: the expected kind, and the kinds.
    Others(&'static str, Vec<String>),
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
            Self::Pem(what, fault) => write!(f, "there is no {what} in it: {fault}"),
            Self::Version(version) => write!(
                f,
                "the certificate has version {version} of X.509, without the names that browsers require: make one of \
                 version 3, for example by openssl req -x509 -addext subjectAltName=DNS:NAME"
            ),
            Self::Order(number) => write!(
                f,
                "certificate {number} of the file belongs to the key: place it first, followed by the certificate of its \
                 issuer"
            ),
            Self::Malformed(number) => write!(f, "certificate {number} of the file is malformed"),
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
            Self::Pem(_, fault) => Some(fault),
            Self::NotCertificate(error)
            | Self::NotAuthority(error)
            | Self::Unusable(error)
            | Self::Key(error) => Some(&**error),
            Self::Version(_)
            | Self::Order(_)
            | Self::Malformed(_)
            | Self::OtherKey(_)
            | Self::Expired(_)
            | Self::TooEarly(_) => None,
        }
    }
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty"),
            Self::Utf16 => f.write_str("the file is UTF-16: save it as UTF-8"),
            Self::Binary(what) => {
                let command = if *what == "certificate" { "x509" } else { "pkey" };
                write!(
                    f,
                    "the file is binary, not PEM (-----BEGIN …): convert DER by openssl {command} -inform der -in FILE, \
                     PKCS#12 (.pfx, .p12) by openssl pkcs12 -nodes -in FILE"
                )
            }
            Self::Encrypted => f.write_str(
                "the key is encrypted, and a server that starts by itself has no passphrase: decrypt it by openssl pkey -in \
                 FILE -out NEW, and let only the server's user read it",
            ),
            Self::Cut(end) => write!(f, "the file is cut off, -----END {end}----- is missing"),
            Self::Indented => f.write_str("its lines are indented: -----BEGIN … must begin a line"),
            Self::Malformed(cause) => f.write_str(cause),
            Self::Absent(_) => f.write_str("the file has no PEM section (-----BEGIN …)"),
            Self::Others(_, kinds) => write!(f, "the file has only {}", kinds.join(", ")),
        }
    }
}

impl Error for PemFault {}

/// Formats a moment, in seconds since 1970, as RFC 3339 in UTC.
pub fn date(at_s: u64) -> String {
    String::from_utf8_lossy(&Civil::of(at_s).rfc3339()).into_owned() + "Z"
}
