//! TLS of connections on a worker. Sessions, certificates and their files are encke-session's.
//!
//! ```text
//!  accepted ─► Transport::Tls ─► records: await_hello, Handshakes, open ─► plaintext
//! ```

mod conn;
mod handshakes;

pub(crate) use handshakes::Handshakes;
