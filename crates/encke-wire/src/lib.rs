//! Protocols as bytes in, actions out.
//!
//! `encke-wire` parses the input of peers and writes the responses. It never reads, writes, waits, logs or queries the time:
//! every function takes bytes, and a time where needed, and returns their meaning. So the same code serves the event loop, the
//! load generator, the simulator and the fuzzer.
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
//!                                                     content_encoder ─► gzip and zstd
//!  bytes ─► proxy               ─► who connects, before the first request (PROXY protocol)
//!  bytes ─► websocket::Decoder  ─► messages, pings, closes       websocket::put_frame ─► frames out
//!  bytes ─► sse::Parser         ─► events                        sse::put_event       ─► events out
//! ```
//!
//! **One parser per grammar, and ambiguous input is rejected.** Input that two servers could read in two ways is an error here
//! and closes the connection. This includes bare CR or LF, repeated lengths, a length together with a transfer coding, obsolete
//! line folding, and escapes that hide a slash. So request smuggling finds no two readings to exploit.
//!
//! `unsafe` is used only in `scan`, the vector code that finds the end of a token. Each vector implementation is tested against
//! a scalar one.

pub mod accept;
pub mod base64;
pub mod cgi;
pub mod civil;
pub mod coding;
pub mod conditional;
pub mod content_encoder;
pub mod date;
pub mod fastcgi;
pub mod field;
pub mod forwarded;
pub mod gunzip;
pub mod host;
pub mod host_map;
pub mod http1;
pub mod limits;
pub mod media;
pub mod method;
pub mod path_pattern;
pub mod proxy;
pub mod punycode;
pub mod range;
mod scan;
pub mod sse;
pub mod status;
pub mod target;
pub mod type_pattern;
pub mod utf8;
pub mod websocket;
