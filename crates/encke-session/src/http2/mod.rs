//! HTTP/2 (RFC 9113) without a runtime and without a socket.
//!
//! ```text
//!  server:  bytes ─► Watch ─► ServerConnection ─► requests, bodies      Budgets: limits shared by all connections
//!  client:  bytes ─────────► Multiplex ─────────► responses             Rung: queue of streams to poll
//!  both:    bytes ◄─ Pipe ◄─ (the h2 crate) ◄─── heads, data
//! ```

mod bell;
mod budget;
mod client;
mod pipe;
mod server;
mod trailers;
mod watch;

pub use bell::Rung;
pub use budget::{Account, BYTES_LEAST, Budget, Budgets, Charge, Totals};
pub use client::{Cause, Code, Letter, Multiplex, Told};
pub use server::{End, Limits, Polled, ServerConnection};
pub use watch::{Breach, Watch};
