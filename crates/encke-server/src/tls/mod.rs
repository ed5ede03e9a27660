//! TLS on the connections of a worker. `encke-session` implements sessions and loads certificates.
//!
//! ```text
//!  accepted ─► Transport::Tls ─► records: await_hello, Handshakes, open ─► plaintext
//! ```

mod conn;
mod handshakes;

pub(crate) use handshakes::Handshakes;
