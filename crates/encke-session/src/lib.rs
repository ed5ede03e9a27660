//! TLS and HTTP/2, server and client: bytes in, bytes out.
//!
//! ```text
//!            tls::Session                          http2
//!  socket ─► open ─► plaintext ─► server:  AbuseGuard ─► ServerConnection ─► requests, bodies
//!                                 client:  Multiplex ─► heads and bodies of responses
//!  socket ◄─ seal ◄─ plaintext ◄─ Pipe ◄── heads, data
//!
//!  settings ─► tls::TlsIdentity: a server's certificates      tls::Trust: a client's authorities ─► ClientSession
//! ```
//! Invariants:
//! - No type here owns a socket, a timer or a connection slot. The caller provides bytes and the time.
//! - Both sides of TLS use the same `Records`, both sides of HTTP/2 the same `Pipe`.
//! - Records of TLS itself are sent before any others (`Session::output`).
//! - An idle connection holds no buffer of this crate, only keys and the state of the `h2` crate.
//! - Memory that a peer can cause is bounded: by the limits of a ClientHello (`tls/hello.rs`), of output (`http2/pipe.rs`), of
//!   all connections together (`http2/budget.rs`) and of frames that cost work (`http2/abuse_guard.rs`).
//! - A panic in the TLS library ends one connection.
//!
//! In scope: TLS, certificates and their files, the local authority of a development machine; HTTP/2 without the connection
//! slots of its streams. Out of scope: the limit on open handshakes, ACME orders and HTTP semantics, which are in encke-server.
//! Certificate files are read here, and watched on a separate thread.

pub mod http2;
pub mod tls;
