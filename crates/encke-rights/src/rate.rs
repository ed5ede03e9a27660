//! Rates: how many requests a client may send in a time, by host and path, for files, channels and routes alike.
//!
//! ```text
//!  [[rate]] ─► RateRules ─┬─ early: by address, field, all ─► RateGuard ─► guard of [[access]]
//!                         └─ late: by user ─────────────────────────────────► RateGuard ─► handler
//!
//!  request ─► rules whose host, pattern and methods match, each of which must pass
//!               │ key ─► RateTable, shared by all workers: one time per key (GCRA)
//!               ├─ `at_once` requests are open ───► 429 (`open.rs`)
//!               ├─ within the burst ──────────────► passes
//!               ├─ its turn comes within `delay` ─► held by RateTimer until then
//!               └─ otherwise ─────────────────────► 429 with Retry-After
//! ```
//! - **Order.** Rates by address come before passwords, so that guesses cost no hash. Rates by user come after them, because
//!   only then the user is known.
//! - **Cost.** Without rules no guard is mounted. A request that passes at once opens no record (`Guard::passes`),
//!   unless a rule counts open requests.
//! - **Memory** is fixed: `keys` of each rule. If a set of the table is full, the key that has used its limit least makes room.
//! - A reload keeps the tables of unchanged rules.

mod error;
mod figures;
mod guard;
mod open;
mod rule;
mod settings;
mod table;
#[cfg(test)]
mod tests;
mod timer;

pub use error::RateError;
pub use figures::RateFigures;
pub use rule::{RateRules, RateStage};
pub use settings::{RateBy, RateSettings, RequestRate};
