//! A load generator that tells the truth: plans, pacing, clients, and what they saw.
//!
//! ```text
//!   Plan: mix of messages · stop · pace · connections
//!     │
//!   Threads: each has an Engine ─► Crowd (Requests) ─► Tally
//!                          wait,      users, tickets,     counters that add up,
//!                          events,    flights             histograms
//!                          time
//! ```
//! What it promises: each request ends in exactly one counter; in an open loop a request that finds no free
//! connection stays due, and its time runs; time is taken where things happen, not where it is convenient
//! (`Moment` in `crowd.rs`).
//!
//! In scope: making load and counting what comes of it. Out of scope: arguments of a command line, and screens.
//! It has no thread but those of a run, no async runtime, and asks no clock but the reactor's.

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
pub mod list;
pub mod message;
pub mod pace;
pub mod plan;
pub mod push;
mod random;
pub mod report;
mod requests;
pub mod run;
mod sealed;
pub mod series;
mod several;
#[cfg(test)]
mod simulation;
pub mod slo;
pub mod tally;
mod template;
mod threads;
mod tickets;
pub mod url;
pub mod verdict;
pub mod watch;
pub mod words;

pub use check::Expected;
pub use compare::Comparison;
pub use dial::Sources;
pub use environment::Environment;
pub use message::{Message, Mix, Style};
pub use pace::{Arrivals, Pace, Rate};
pub use plan::{Plan, Protocol, Stop, Target, WarmUp};
pub use report::{Report, Saved, SavedRun};
pub use run::{Outcome, Run, Trouble};
pub use series::Series;
pub use slo::Slo;
pub use tally::{Errors, Tally, Totals};
pub use url::Url;
pub use verdict::Verdict;
