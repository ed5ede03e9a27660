//! Load generator: plans, pacing, simulated clients, and results that do not hide delays.
//!
//! ```text
//!   Plan: mix of messages · stop · pace · connections
//!     │
//!   Threads: each has an Engine ─► Crowd (Requests) ─► Tally
//!                          wait,      users, tickets,     counters that add up,
//!                          events,    flights             histograms
//!                          time
//! ```
//! Guarantees: each request ends in exactly one counter. In an open loop, a request without a free connection stays due and its
//! latency is running. Times are taken where events happen (`TurnTime` in `crowd.rs`).
//!
//! In scope: generating load and counting the results. Out of scope: command-line arguments and terminal output. The crate
//! starts only the threads of a run, uses no async runtime, and reads time only from the reactor.

mod answer;
mod check;
pub mod compare;
mod crowd;
mod dial;
mod engine;
mod environment;
pub mod estimate;
pub mod explain;
pub mod find;
mod gathering;
mod input;
pub mod list;
pub mod message;
pub mod pace;
pub mod plan;
pub mod probe;
pub mod push;
mod random;
mod ranks;
pub mod report;
mod requests;
mod responses;
pub mod run;
mod sealed;
pub mod series;
mod several;
#[cfg(test)]
mod simulation;
pub mod slo;
pub mod statuses;
pub mod tally;
mod template;
mod threads;
mod tickets;
pub mod url;
pub mod verdict;
pub mod words;

pub use check::Expected;
pub use compare::Comparison;
pub use dial::Sources;
pub use environment::Environment;
pub use input::InputError;
pub use message::{Mix, PreparedRequest, Style};
pub use pace::{Arrivals, Pace, Rate};
pub use plan::{Plan, Protocol, Stop, Target, WarmUp};
pub use report::{Report, Saved, SavedRun};
pub use run::{RunError, RunHandle, RunOutcome};
pub use series::Series;
pub use slo::Slo;
pub use tally::{Errors, Tally, Totals};
pub use url::Url;
pub use verdict::Verdict;
