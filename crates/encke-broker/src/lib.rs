//! Persistence, clustering and certificates: blocking work that runs outside the workers.
//!
//! ```text
//!  Sequencer ── Commit ──► Store::commit ──► one transaction, synced ──► Sequencer::committed
//!            ── Saved ───► Store::close      (the rings of all other channels, at a planned end)
//!            ◄─ Contents ─ Store::open
//!            ── ClusterCommand ──► NatsEngine ──► a stream that several nodes follow ── ClusterEvent ──► Sequencer::on_event
//!  a source of a live stream ────────────► SourceBoard ◄─► the heartbeats of all nodes
//!  a name that needs a certificate ──────► acme::order ──► its chain
//! ```
//! Functions of this crate may block on a disk or the network, so callers run them on threads of their own. The crate makes no
//! decisions. The sequencer decides which messages are kept, for how long, and which subscribers receive a gap. The server
//! decides when to order a certificate.
#![forbid(unsafe_code)]

#[cfg(feature = "acme")]
pub mod acme;
mod error;
#[cfg(feature = "nats")]
pub mod nats;
mod record;
pub mod sim;
mod source_board;
mod store;

pub use error::ErrorOrigin;
pub use source_board::{CLAIMS_MAX, ClaimError, SourceAnnouncement, SourceBoard, SourceHolder};
pub use store::{Allocate, Contents, End, Opener, RESERVE_BYTES, Store, StoreError};
