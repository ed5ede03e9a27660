//! TLS and HTTP/2, of servers and of clients: bytes in, bytes out.

pub mod http2;
pub mod tls;
