//! Protocols as bytes in, actions out.
//!
//! `encke-wire` recognises what peers send and writes what they are answered. It never reads, writes, waits,
//! logs or asks for the time: every function takes bytes (and, where it matters, a clock value) and returns
//! what they mean. That is why the same code serves the event loop, the load generator, the simulator and the
//! fuzzer.
//!
//! ```text
//!  bytes ─► http1::Head ───────► method · target · fields (offsets into the bytes, nothing is copied)
//!                │                   │
//!                │                   ├─► target       path decoded once, dots resolved, never above the root
//!                │                   ├─► conditional  304 or 412?
//!                │                   ├─► range        which bytes?
//!                │                   ├─► coding       br, zstd, gzip or as it is?      accept: which type?
//!                │                   └─► forwarded    who asks, behind trusted proxies
//!                ▼
//!         http1::ChunkedDecoder ─► body pieces        http1::write ─► heads and chunks out
//!  bytes ─► proxy               ─► who connects, before the first request (PROXY protocol)
//!  bytes ─► websocket::Decoder  ─► messages, pings, closes       websocket::put_frame ─► frames out
//!  bytes ─► sse::Parser         ─► events                        sse::put_event       ─► events out
//! ```
//!
//! **One recogniser per grammar, and ambiguous input is refused.** Whatever two servers could read in two ways
//! (bare CR or LF, repeated lengths, a length beside a transfer coding, obsolete line folding, escapes that
//! hide a slash) is an error here, and the connection closes: a request smuggler finds nothing to disagree
//! about.
//!
//! `unsafe` lives in `scan` alone, the vector code that finds the end of a token. All of it has a scalar twin
//! that must agree.

pub mod accept;
pub mod base64;
pub mod civil;
pub mod coding;
pub mod conditional;
pub mod date;
pub mod field;
pub mod forwarded;
pub mod http1;
pub mod limits;
pub mod method;
pub mod proxy;
pub mod range;
mod scan;
pub mod sse;
pub mod status;
pub mod target;
pub mod utf8;
pub mod websocket;
