//! One worker a core: listeners, transports, connections, exchanges; and the handlers they serve.
//!
//! The entry is [`Server`]: give it addresses and handlers, start it, and it serves until it is told to stop.
//!
//! ```text
//!                    ┌──────────────────────────── worker (a thread) ─────────────────────────────┐
//!  socket ─► reactor │ Transport ─► Conn, http1 ─► Request ─► Handler ─► Reply ─► http1 ─► Transport│ ─► socket
//!                    └──────────────────────────────┬───────────────────────────────────────────────┘
//!                                                   └─ Later: Exchange, answered from any thread
//! ```
//! Three things never merge: a **transport** (how bytes travel), a **connection** (a slot of 72 bytes), an
//! **exchange** (one request, while it is open).

#[doc(hidden)]
pub mod admin;
mod buffers;
mod census;
mod close;
mod closing;
mod command;
mod conn;
mod conns;
mod core;
mod date;
#[doc(hidden)]
pub mod exchange;
mod framing;
mod guard;
mod h2;
#[doc(hidden)]
pub mod handler;
mod http1;
#[doc(hidden)]
pub mod https;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod link;
#[doc(hidden)]
pub mod listener;
#[doc(hidden)]
pub mod log;
mod metrics;
mod outgoing;
#[cfg(any(test, feature = "testing"))]
mod parked;
mod peer;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod policy;
mod record;
mod reply;
#[doc(hidden)]
pub mod request;
mod resident;
#[doc(hidden)]
pub mod server;
#[cfg(test)]
mod simulation;
mod spread;
#[doc(hidden)]
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[doc(hidden)]
pub mod tls;
mod transport;
mod upstream;
mod websocket;
mod worker;

pub use census::household;
pub use close::{CloseReason, Guilty};
pub use conns::earlier;
pub use encke_session::tls::{Certified, ClientSession, Distrust, Identity, LocalAuthority, TlsKnown, Trust};
pub use encke_settings::Network;
pub use encke_stats::{Gathered, Ticket};
pub use exchange::{Exchange, ExchangeKey, WakeStream};
pub use framing::{ContentLength, FramingKind};
pub use guard::{Guard, GuardCall, GuardHold, GuardMount, GuardOutcome, GuardPoint, GuardVerdict, Passage};
pub use handler::{Desk, Handler, JobId, Mount, Outcome, Piece};
pub use listener::Door;
pub use outgoing::{UpstreamEvent, UpstreamFault, UpstreamId};
pub use policy::Policy;
pub use record::Asked;
pub use reply::{BLOCK_CONTENT_MAX, Body, ContentView, Fields, Prepared, Pull, Pulled, Reply};
pub use request::{Kept, Origin, Request};
pub use resident::{
    CONNECTION_BYTES, Engine, Gone, Kernel, Resident, ResidentMailbox, Slot, Takeover, WorkerSetup,
};
pub use server::{Options, Running, Server};
pub use spread::{Farewells, spread_retry_ms};
pub use websocket::{
    Answers, DEFLATE_LEVEL, Inflation, Socket, SocketMessage, SocketState, Traffic, Upgrade, accept_deflate,
    read_frames,
};
