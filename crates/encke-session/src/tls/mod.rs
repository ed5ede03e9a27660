//! TLS: certificates and keys of a listener ([`TlsIdentity`]), and its connections ([`Tls`]).
//!
//! ```text
//!  settings ─► files ─► TlsIdentity (certificates by name, versions, client CAs) ─┐ replaced as a whole at a reload,
//!                └────► CertWatcher ─────────────────────────────────────────────►│ and when files have changed
//!                                                                                 ▼
//!  accepted ─► Tls::new ─► await_hello, open ─► handshake ─► open, seal
//! ```
//! The client's side is [`Trust`] and [`ClientSession`]. [`Session`] is the interface of both sides.

#[cfg(feature = "tls")]
mod authority;
#[cfg(feature = "tls")]
mod client;
#[cfg(feature = "tls")]
mod engine;
mod error;
#[cfg(feature = "tls")]
mod hello;
#[cfg(feature = "tls")]
mod identity;
#[cfg(all(test, feature = "tls"))]
mod identity_tests;
mod known;
#[cfg(feature = "tls")]
mod pem_file;
#[cfg(all(test, feature = "tls"))]
mod pem_file_tests;
#[cfg(feature = "tls")]
mod proofs;
mod queue;
#[cfg(feature = "tls")]
mod records;
mod session;
#[cfg(feature = "tls")]
mod watch;
#[cfg(not(feature = "tls"))]
#[expect(missing_docs, reason = "the types that these stand for have the documentation")]
mod without;

use std::fmt;

#[cfg(feature = "tls")]
pub use authority::LocalAuthority;
#[cfg(feature = "tls")]
pub use client::{ClientSession, Trust};
#[cfg(feature = "tls")]
pub use engine::{Scratch, Tls};
pub use error::{PemFault, TlsError, TlsFileError, date};
#[cfg(feature = "tls")]
pub use identity::{Life, TlsIdentity};
pub use known::{Certified, TlsKnown};
#[cfg(feature = "tls")]
pub use proofs::{Proofs, SigningRequest};
pub use queue::fill;
pub use session::{ClientSessions, Session, SessionError, Sessions};
#[cfg(feature = "tls")]
pub use watch::CertWatcher;
#[cfg(not(feature = "tls"))]
pub use without::{CertWatcher, ClientSession, LocalAuthority, Proofs, Scratch, Tls, TlsIdentity, Trust};

/// The outcome of received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handshake ended with these bytes.
    pub established: bool,
    /// The peer sent close_notify.
    pub ended: bool,
}

/// The state of a connection's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeState {
    /// The ClientHello is not complete.
    Awaited,
    /// The ClientHello is complete: the handshake counts against the limit.
    Open,
    /// The handshake or the connection has ended.
    Over,
}

/// An error of a server's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The client speaks plain HTTP, by its first byte.
    PlainHttp,
    /// No common version, cipher suite or application protocol.
    Incompatible,
    /// The client's certificate is missing or not trusted.
    ClientCertificate,
    /// No certificate is available: the first order has not succeeded, or no order for that name is open.
    NoCertificate,
    /// The peer sent an alert.
    Refused,
    /// The received bytes violate the protocol.
    Protocol,
}

impl TlsFault {
    /// The label in `/metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain_http",
            Self::Incompatible => "incompatible",
            Self::ClientCertificate => "client_certificate",
            Self::NoCertificate => "no_certificate",
            Self::Refused => "refused",
            Self::Protocol => "protocol",
        }
    }
}

/// An error of a client's session.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Distrust {
    /// The certificate is not signed by a trusted authority.
    Authority,
    /// The certificate is for other names.
    Name(Vec<String>),
    /// The certificate has expired, at this time if known.
    Expired(Option<String>),
    /// The certificate is not valid yet.
    TooEarly,
    /// The certificate or its signature is invalid for another reason.
    Certificate(String),
    /// The peer does not speak TLS.
    NotTls,
    /// The server sent this alert.
    Refused(String),
    /// The server violates the protocol, or has no parameters in common.
    Protocol(String),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority => f.write_str("its certificate is signed by no authority that is believed here"),
            Self::Name(names) if names.is_empty() => f.write_str("its certificate is for no name"),
            Self::Name(names) => write!(f, "its certificate is for others: {}", names.join(", ")),
            Self::Expired(None) => f.write_str("its certificate has expired"),
            Self::Expired(Some(at)) => write!(f, "its certificate has expired ({at})"),
            Self::TooEarly => f.write_str("its certificate is not valid yet; is the clock right?"),
            Self::Certificate(why) => write!(f, "its certificate does not hold: {why}"),
            Self::NotTls => f.write_str("what answers there does not speak TLS"),
            Self::Refused(alert) => write!(f, "it refuses us by the TLS alert {alert}"),
            Self::Protocol(why) => write!(f, "TLS with it does not go on: {why}"),
        }
    }
}

impl std::error::Error for Distrust {}
