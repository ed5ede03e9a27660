//! HTTP/2 (RFC 9113) without a runtime and without a socket.
//!
//! ```text
//!  server:  bytes ─► AbuseGuard ─► ServerConnection ─► requests, bodies    Budgets: limits shared by all connections
//!  client:  bytes ──────────────► Multiplex ─────────► responses           WokenStreams: queue of streams to poll
//!  both:    bytes ◄─ Pipe ◄────── (the h2 crate) ◄──── heads, data
//! ```

mod abuse_guard;
mod budget;
mod client;
mod pipe;
mod server;
mod trailers;
mod waker;

pub use abuse_guard::{AbuseGuard, Breach};
pub use budget::{Account, BYTES_LEAST, Budget, BudgetTotals, Budgets, Charge};
pub use client::{Code, H2Request, Multiplex, StreamEvent, StreamFailure};
pub use server::{Http2ConnEnd, Limits, Polled, ServerConnection};
pub use waker::WokenStreams;
