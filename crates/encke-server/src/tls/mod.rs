//! TLS: certificates and keys of a listener ([`Identity`]), and what it does to a connection ([`Tls`]).
//!
//! ```text
//!  settings ─► files ─► Identity (certificates by name, versions, whom to trust) ──┐ replaced whole at a reload
//!                                                                                 ▼
//!  accepted ─► Tls::new ─► handshake ─► Transport::Tls: receive, seal
//! ```

mod conn;
#[cfg(feature = "tls")]
mod engine;
#[cfg(feature = "tls")]
mod identity;
#[cfg(not(feature = "tls"))]
mod without;

#[cfg(feature = "tls")]
pub use identity::Identity;
#[cfg(not(feature = "tls"))]
pub use without::Identity;

#[cfg(feature = "tls")]
pub(crate) use engine::{Scratch, Tls};
#[cfg(not(feature = "tls"))]
pub(crate) use without::{Scratch, Tls};

/// What came of bytes that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The handshake has ended just now.
    pub(crate) established: bool,
    /// The peer sends nothing more.
    pub(crate) ended: bool,
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing arrives where there is no TLS"))]
pub(crate) enum TlsFault {
    /// It does not speak TLS but, as it seems, HTTP.
    PlainHttp,
    /// The peer has offered nothing that we take: versions, ciphers, application protocols.
    Incompatible,
    /// The peer's certificate is missing or not to be trusted.
    ClientCertificate,
    /// The peer has refused us by an alert.
    Refused,
    /// What arrived is no TLS, or not what had to come.
    Protocol,
}

impl TlsFault {
    /// Its name in `/metrics`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain_http",
            Self::Incompatible => "incompatible",
            Self::ClientCertificate => "client_certificate",
            Self::Refused => "refused",
            Self::Protocol => "protocol",
        }
    }
}
