//! The server engine: one worker per core, with listeners, transports, connections, exchanges, and the handlers that respond.
//!
//! The entry point is [`Server`]: add addresses and handlers, and start it. It serves until it is stopped.
//!
//! ```text
//!                    ┌──────────────────────────── worker (a thread) ─────────────────────────────┐
//!  socket ─► reactor │ Transport ─► Conn, http1 ─► Request ─► Handler ─► Reply ─► http1 ─► Transport│ ─► socket
//!                    └──────────────────────────────┬───────────────────────────────────────────────┘
//!                                                   └─ Later: Exchange, response from any thread
//! ```
//! Three concepts stay separate: a **transport** (how bytes travel), a **connection** (a slot of 72 bytes), and an **exchange**
//! (a request while its response is open).

mod buffers;
mod call_mark;
mod census;
mod close;
mod closing;
mod coded_text;
mod command;
mod conn;
mod conns;
mod core;
mod date;
mod drain_census;
mod draining;
mod duty;
mod end_token;
mod end_tokens;
mod error;
mod event_source;
mod exchange;
mod framing;
mod guard;
mod h2;
mod handler;
mod handshake_figures;
mod heads;
mod held;
mod http1;
mod https;
mod inbox;
mod inspect;
mod limits;
mod lingering;
mod listener;
mod log;
mod log_entries;
mod metrics;
mod mounting;
mod open;
mod open_table;
mod operate;
mod operators;
mod outgoing;
#[cfg(any(test, feature = "testing"))]
mod parked;
mod passed_fields;
mod peer;
mod plan;
mod plan_progress;
mod policy;
mod record;
mod redial;
mod refusals;
mod reply;
mod request;
mod request_id;
mod resident;
mod residents;
mod server;
#[cfg(test)]
mod simulation;
mod spread;
mod status;
mod sync;
mod takeover;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
mod transport;
mod upstream;
mod upstream_records;
mod upstream_session;
mod verdict;
mod websocket;
mod worker;

pub use census::household;
pub use close::{CloseOrigin, CloseReason};
pub use coded_text::CodedText;
pub use conns::earlier;
pub use drain_census::{Drained, OpenWork};
pub use encke_session::tls::{Certified, TlsIdentity, TlsKnown};
pub use encke_settings::{Network, SourceLine, SourceMap};
pub use encke_stats::{Gathered, Ticket};
pub use end_token::EndToken;
pub use error::ServerError;
pub use event_source::{accepts_events_only, is_event_source};
pub use exchange::{Exchange, ExchangeKey, WakeStream};
pub use framing::{ContentLength, FramingKind};
pub use guard::{Guard, GuardCall, GuardHold, GuardMount, GuardOutcome, GuardPoint};
pub use handler::{Handler, HandlerContext, HandlerWaker, JobId, Mount, Outcome, Piece};
pub use https::{CHALLENGES, PORT as HTTPS_PORT};
pub use inspect::ConnDescription;
pub use limits::LimitSettings;
pub use listener::{Bound, ListenConfig};
pub use log::{
    AccessLog, LogFormat, LogLabel, LogNotes, LogOutput, LogSettings, LogTail, TailEntry, TailFilter,
};
pub use open_table::{PROVEN_BYTES, Queued, UNPROVEN_WAITING_MAX};
pub use operate::{
    ActionError, ActionReport, ActionResult, ActionValue, Actions, Explain, FeatureVerbs, FieldShape,
    FieldValue, RuleStep, Verb, VerbField,
};
pub use outgoing::{UpstreamEvent, UpstreamFault, UpstreamId};
pub use passed_fields::{PassedFields, are_alike};
pub use policy::{ConnLimits, DRAIN_RATE};
pub use record::Asked;
pub use reply::{BLOCK_CONTENT_MAX, Body, ContentView, Fields, Prepared, Pull, Pulled, Reply};
pub use request::{GuardResults, Kept, Origin, Request};
pub use resident::{CONNECTION_BYTES, Engine, Gone, Kernel, Resident, ResidentMailbox, Slot, WorkerSetup};
pub use server::{Options, Running, Server};
pub use spread::{Farewells, spread_retry_ms};
pub use status::ServerStatus;
pub use takeover::Takeover;
pub use verdict::{GuardVerdict, Passage};
pub use websocket::{
    Answers, DEFLATE_LEVEL, Inflation, Socket, SocketMessage, SocketState, Traffic, Upgrade, accept_deflate,
    read_frames,
};
