//! Where the messages of channels are kept beyond the process.
//!
//! ```text
//!  Sequencer ── Commit ──► Store::commit ──► one transaction, synced ──► Sequencer::committed
//!            ── Saved ───► Store::close      (the rings of all other channels, at a planned end)
//!            ◄─ Contents ─ Store::open
//! ```
//! What is here may wait for a disk: it is called where that holds nobody up. It decides nothing; what is kept, how
//! long, and who is told of a loss is the sequencer's to say.
#![forbid(unsafe_code)]

mod record;
pub mod sim;
mod store;

pub use store::{Contents, End, Opener, Store, StoreError};
