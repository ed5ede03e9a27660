//! The laboratory: experiments that repeat, on the machine at hand, what Encke was built upon. Each lays the old way,
//! the reported cure and Encke's own way side by side in one run.
//!
//! ```text
//!                    rows × loads                    a number a round                medians, intervals, verdicts
//!  [`Experiment`] ─── design ───► [`rounds::run`] ─── measure ───► [`Results`] ──┬──► table   JSON   CSV
//!     │                              │ all cells of a round in random order      ├──► claims: seen, not seen, unclear
//!     └─ claims, held against        │ by a printed seed, as many rounds         └──► a page with plots
//!        the results                 │ as the pace has
//! ```
//!
//! It is no benchmark of servers against each other: what it compares differs in one thing at a time. And it draws no
//! conclusion from noise: two rows *differ* if the 95 % interval of their ratio excludes 1, else *no difference* was
//! *seen*.

mod aside;
mod experiment;
mod experiments;
mod interval;
mod machine;
pub mod merged;
#[cfg(test)]
mod parsed;
mod plot;
pub mod report;
mod results;
pub mod rounds;
mod served;
#[allow(unsafe_code)]
mod specimens;
mod stopwatch;
pub mod table;
pub mod texts;

pub use experiment::{
    Absent, Axis, Cell, Claim, Counts, Design, Drawn, Experiment, Fact, Figure, Judged, Load, Row, Sample,
    Seen, Way,
};
pub use experiments::{NAMES, open};
pub use interval::Interval;
pub use machine::{Machine, rfc3339};
pub use results::{Outcome, Results, Verdict};
pub use rounds::{Pace, Stop};
pub use served::{UNDER_TEST, under_test};
