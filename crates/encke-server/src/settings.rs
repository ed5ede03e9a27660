//! Settings of TLS.

pub mod tls;
