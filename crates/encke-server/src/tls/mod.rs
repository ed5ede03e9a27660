//! TLS of connections on a worker, and the certificates that are ordered for them. Sessions, certificates and their files are
//! encke-session's.
//!
//! ```text
//!  accepted ─► Transport::Tls ─► records: await_hello, Handshakes, open ─► plaintext
//!  Acme ─► an order ─► a file ─► Watch ─► Identity
//! ```

#[cfg(feature = "tls")]
mod acme;
mod conn;
mod figures;
mod handshakes;
#[cfg(not(feature = "tls"))]
mod without;

#[cfg(feature = "tls")]
pub use acme::Acme;
pub(crate) use figures::{TlsCounters, TlsFigures};
pub(crate) use handshakes::Handshakes;
#[cfg(not(feature = "tls"))]
pub use without::Acme;
