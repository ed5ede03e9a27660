//! What others do for us beside the workers: they keep the messages of channels, share them, and fetch certificates.
//!
//! ```text
//!  Sequencer ── Commit ──► Store::commit ──► one transaction, synced ──► Sequencer::committed
//!            ── Saved ───► Store::close      (the rings of all other channels, at a planned end)
//!            ◄─ Contents ─ Store::open
//!            ── Errand ──► nats::Engine ──► a stream that several nodes follow ── News ──► Sequencer::hear
//!  a name that needs a certificate ──────► acme::order ──► its chain
//! ```
//! What is here may wait for a disk or the network: it is called where that holds nobody up. It decides nothing; what is
//! kept, how long, and who is told of a loss is the sequencer's to say, and when to ask for a certificate the server's.
#![forbid(unsafe_code)]

#[cfg(feature = "acme")]
pub mod acme;
#[cfg(feature = "nats")]
pub mod nats;
mod record;
pub mod sim;
mod store;

pub use store::{Allocate, Contents, End, Opener, RESERVE_BYTES, Store, StoreError};
