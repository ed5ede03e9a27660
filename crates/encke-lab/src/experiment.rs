//! The definition of an experiment: rows (the variants) × loads, a way to measure one cell, and claims about the results.
//!
//! Repetition, order and statistics are the same for all experiments (`rounds.rs`).

use std::sync::Arc;

use encke_io::Backend;
use encke_io::clock::THREAD_CPU_STEP_NS;

use crate::error::LabError;
use crate::interval::Interval;
use crate::results::Results;
use crate::rounds::RoundPace;

/// An experiment, ready to run on this machine.
pub trait Experiment {
    /// The rows and loads. They stay the same while the experiment lives.
    fn design(&self) -> &Design;

    /// Runs `count` operations of one cell and returns their total cost. The warm-up calls this with growing counts, then each
    /// round calls it once, with the cells in any order.
    ///
    /// # Errors
    /// The machine lacks something that the cell needs; the other cells are measured without it.
    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent>;

    /// Minimum operations of a cell in a round. More than a batch needs if costs come in bursts, or if a round needs much
    /// preparation.
    fn count_min(&self, _cell: CellIndex) -> u64 {
        1
    }

    /// Maximum operations of a cell in a round. Few if each operation starts with much unmeasured work.
    fn count_max(&self) -> u64 {
        u64::MAX
    }

    /// The difference on this system, in English: missing rows, the reason, and their substitutes. `None` on the system that the
    /// texts describe, Linux.
    fn difference(&self) -> Option<&'static str> {
        None
    }

    /// Compares the expectations with the results, in the order of the texts ([`crate::texts::ExperimentText::claims`]).
    fn claims(&self, results: &Results) -> Vec<Claim>;
}

/// The plan of an experiment.
#[derive(Clone, Debug)]
pub struct Design {
    /// The name on the command line.
    pub name: &'static str,
    /// The unit that times refer to, as in "CPU time of a request".
    pub unit: &'static str,
    /// The time that the verdicts compare.
    pub judged: Judged,
    /// The variants. The others are compared with the first one.
    pub rows: Vec<DesignRow>,
    /// The loads that each row is measured under.
    pub loads: Vec<Load>,
    /// The scale of the loads.
    pub axis: LoadAxis,
    /// Facts that are plotted in addition to the times.
    pub drawn: Vec<Drawn>,
}

/// A fact to be plotted over loads that are amounts: a curve per row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drawn {
    /// The name of the fact; it ends with its unit.
    pub fact: &'static str,
    /// A report's values in the same unit, by amount: a curve of its own.
    pub reported: &'static [(f64, f64)],
}

/// The time of a sample that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// CPU time of the thread under test: other load on the machine disturbs it less.
    Cpu,
    /// Wall time, where waiting is measured.
    Wall,
    /// No time: the results are facts.
    Facts,
}

/// One variant of the work.
#[derive(Clone, Debug)]
pub struct DesignRow {
    /// The printed name.
    pub name: String,
    /// The origin of the variant.
    pub way: Way,
}

impl DesignRow {
    /// Creates a row.
    pub fn new(way: Way, name: impl Into<String>) -> Self {
        Self { name: name.into(), way }
    }
}

/// The origin of a variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The report's original program.
    Old,
    /// The fix of the report, or of one of its readers.
    Cure,
    /// The method of other programs.
    Peer,
    /// Encke's method.
    Encke,
}

/// The amount or kind of work for a row.
#[derive(Clone, Debug)]
pub struct Load {
    /// The printed name.
    pub name: String,
    /// The position on the axis; 0 if the loads are kinds and not amounts.
    pub amount: f64,
    /// Units per operation; times are reported per unit ([`Design::unit`]).
    pub units: f64,
}

impl Load {
    /// A kind of load with one unit per operation.
    pub fn kind(name: impl Into<String>) -> Self {
        Self { name: name.into(), amount: 0.0, units: 1.0 }
    }

    /// An amount with one unit per operation.
    pub fn amount(name: impl Into<String>, amount: f64) -> Self {
        Self { name: name.into(), amount, units: 1.0 }
    }
}

/// The scale of loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadAxis {
    /// Different kinds, plotted as groups of bars.
    Kinds,
    /// Amounts of the named quantity, plotted as lines over a logarithmic axis.
    Amounts(&'static str),
}

/// A row under a load, as indices into the design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellIndex {
    /// Index of the row.
    pub row: usize,
    /// Index of the load.
    pub load: usize,
}

/// The cost of some operations.
#[derive(Clone, Debug, Default)]
pub struct CellSample {
    /// Total wall time in ns; 0 if nothing was timed and there are only facts.
    pub wall_ns: u64,
    /// Total CPU time of the thread under test, in ns.
    pub cpu_ns: u64,
    /// The processor's counts, or the reason why they are not available; `None` if the experiment does not count.
    pub counts: Option<Result<Counts, Arc<LabError>>>,
    /// Other findings, by name. Tables show the facts of the last round.
    pub facts: Vec<(&'static str, Fact)>,
}

/// Processor events in user space during some work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Clock cycles.
    pub cycles: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Branches that were predicted wrongly.
    pub branch_misses: u64,
}

/// A finding that is not a time.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// A number; the name contains its unit.
    Number(f64),
    /// A text, such as a trace.
    Text(String),
}

/// The reason why a cell has no numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent(pub String);

/// An expectation, and whether the results confirm it.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// Whether the results confirm the claim.
    pub seen: Seen,
    /// The figures that support the answer.
    pub figure: Figure,
}

/// The figures that decide a claim. The words around them depend on the language (`texts.rs`).
#[derive(Clone, PartialEq, Debug)]
pub enum Figure {
    /// A required cell is absent, or has too few rounds.
    NotMeasured,
    /// A cell's time as a fraction of another's.
    Ratio {
        /// The cell of the numerator.
        cell: CellIndex,
        /// The cell of the denominator.
        other: CellIndex,
        /// The ratio of their times.
        ratio: Interval,
    },
    /// A fact of a cell.
    Found {
        /// The cell.
        cell: CellIndex,
        /// The number, with its unit.
        told: String,
    },
    /// A text of the experiment, in English.
    Said(String),
    /// The figures of each part.
    All(Vec<Self>),
}

impl From<String> for Figure {
    fn from(english: String) -> Self {
        Self::Said(english)
    }
}

/// Whether the results confirm a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The whole interval confirms it.
    Yes,
    /// The whole interval contradicts it.
    No,
    /// The interval allows both, or a required cell is absent.
    Unclear,
}

/// Chooses the loads of an experiment by the pace.
pub(crate) fn loads_within<T: Copy>(all: &[T], quick: &[T], pace: &RoundPace) -> Vec<T> {
    if pace.quick { quick.to_vec() } else { all.to_vec() }
}

/// A variant, its origin and its name: a line of an experiment's table of rows.
pub(crate) type RowPlan<T> = (T, Way, &'static str);

/// Keeps the variants that exist on this system.
pub(crate) fn rows_here<T: Copy>(all: &[RowPlan<T>], is_here: impl Fn(T) -> bool) -> Vec<RowPlan<T>> {
    all.iter().copied().filter(|(variant, ..)| is_here(*variant)).collect()
}

/// The rows of a design.
pub(crate) fn design_rows<T>(rows: &[RowPlan<T>]) -> Vec<DesignRow> {
    rows.iter().map(|&(_, way, name)| DesignRow::new(way, name)).collect()
}

/// The row of a variant, if this system has it.
pub(crate) fn row_of<T: PartialEq>(rows: &[RowPlan<T>], wanted: &T) -> Option<usize> {
    rows.iter().position(|(variant, ..)| variant == wanted)
}

/// The time that is compared on this system, for an experiment that compares `judged`. A thread's CPU time is no measure of a
/// batch of milliseconds if the system counts it in larger steps.
pub(crate) fn judged_here(judged: Judged) -> Judged {
    if judged == Judged::Cpu && THREAD_CPU_STEP_NS > CPU_STEP_NS_MAX { Judged::Wall } else { judged }
}

/// The largest steps of a CPU clock that a batch of 1 ms can be measured with.
const CPU_STEP_NS_MAX: u64 = 10_000;

/// Whether this is Windows, where some experiments have other rows.
pub(crate) fn is_windows() -> bool {
    Backend::Afd.compiled()
}
