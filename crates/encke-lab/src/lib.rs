//! The lab: experiments that reproduce, on the local machine, the measurements that Encke's design is based on. Each compares
//! the old way, the reported cure and Encke's own way in one run.
//!
//! ```text
//!                    rows × loads                    a number per round              medians, intervals, verdicts
//!  [`Experiment`] ─── design ───► [`rounds::run`] ─── measure ───► [`Results`] ──┬──► table   JSON   CSV
//!     │                              │ all cells of a round in random order      ├──► claims: seen, not seen, unclear
//!     └─ claims, compared with       │ by a printed seed, as many rounds         └──► a page with plots
//!        the results                 │ as the pace has
//! ```
//!
//! The lab is not a benchmark of servers against each other: the variants that it compares differ in one property at a time.
//! And it draws no conclusion from noise: two rows *differ* if the 95 % interval of their ratio excludes 1, else *no
//! difference* was *seen*.

mod error;
mod experiment;
mod experiments;
mod helper;
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

pub use error::LabError;
pub use experiment::{
    Absent, CellIndex, CellSample, Claim, Counts, Design, DesignRow, Drawn, Experiment, Fact, Figure, Judged,
    Load, LoadAxis, Seen, Way,
};
pub use experiments::{NAMES, open};
pub use interval::Interval;
pub use machine::{Machine, rfc3339};
pub use results::{CellVerdict, ExperimentOutcome, Results};
pub use rounds::{RoundPace, StopHandle};
pub use served::{UNDER_TEST, under_test};
