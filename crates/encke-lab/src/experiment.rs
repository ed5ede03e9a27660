//! What an experiment is: rows (what is varied) × loads, a way to measure one cell, and claims about the results.
//!
//! It says nothing of how often, in which order and with which statistics: that is the same for all (`rounds.rs`).

use crate::interval::Interval;
use crate::results::Results;
use crate::rounds::Pace;

/// An experiment, ready to be run on this machine.
pub trait Experiment {
    /// What is varied, and over which loads. It stays the same while the experiment lives.
    fn design(&self) -> &Design;

    /// Does `count` operations of one cell and tells what they took together. Called once for warmth, then once a
    /// round, in any order of cells.
    ///
    /// # Errors
    /// The machine lacks what the cell needs; the others go on without it.
    fn measure(&mut self, cell: Cell, count: u64) -> Result<Sample, Absent>;

    /// Operations of a cell in a round, at least: more than a batch needs where their cost comes in bursts, or where
    /// much is made ready for each round.
    fn count_min(&self, _cell: Cell) -> u64 {
        1
    }

    /// Operations of a cell in a round, at most: less where one begins with much that is not counted.
    fn count_max(&self) -> u64 {
        u64::MAX
    }

    /// What must be seen, held against what was seen, in the order of the texts ([`crate::texts::Text::claims`]).
    fn claims(&self, results: &Results) -> Vec<Claim>;
}

/// The plan of an experiment.
#[derive(Clone, Debug)]
pub struct Design {
    /// Its name on the command line.
    pub name: &'static str,
    /// What times are told for, as in "CPU time of a request".
    pub unit: &'static str,
    /// Which time the verdicts are about.
    pub judged: Judged,
    /// What is varied. The first one is what the others are compared with.
    pub rows: Vec<Row>,
    /// What it is varied over.
    pub loads: Vec<Load>,
    /// What the loads are a scale of.
    pub axis: Axis,
    /// What is plotted beside the times.
    pub drawn: Vec<Drawn>,
}

/// Facts that are plotted over the loads, which are amounts: a curve for each row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drawn {
    /// The name of the fact; it ends with its unit.
    pub fact: &'static str,
    /// What a report had of it, in the same unit, by amount: a curve beside the others.
    pub reported: &'static [(f64, f64)],
}

/// Which time of a sample is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// CPU time of the thread under test: others on the machine disturb it less.
    Cpu,
    /// Wall time, where waiting is the point.
    Wall,
    /// Nothing: what is seen are facts, not times.
    Facts,
}

/// One way to do the work.
#[derive(Clone, Debug)]
pub struct Row {
    /// As it is printed.
    pub name: String,
    /// Whose way it is.
    pub way: Way,
}

impl Row {
    /// A row.
    pub fn new(way: Way, name: impl Into<String>) -> Self {
        Self { name: name.into(), way }
    }
}

/// Whose way a row is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// As the report had it before.
    Old,
    /// What the report, or a reader of it, did about it.
    Cure,
    /// As others do it.
    Peer,
    /// As Encke does it.
    Encke,
}

/// How much, or of what, a row has to do.
#[derive(Clone, Debug)]
pub struct Load {
    /// As it is printed.
    pub name: String,
    /// Its place on the axis; 0 if the loads are kinds and no amounts.
    pub amount: f64,
    /// How many units an operation has: times are told for one, as [`Design::unit`] calls it.
    pub units: f64,
}

impl Load {
    /// A kind of load, whose operation is one unit.
    pub fn kind(name: impl Into<String>) -> Self {
        Self { name: name.into(), amount: 0.0, units: 1.0 }
    }

    /// An amount, whose operation is one unit.
    pub fn amount(name: impl Into<String>, amount: f64) -> Self {
        Self { name: name.into(), amount, units: 1.0 }
    }
}

/// What loads are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Axis {
    /// Different things: plotted as groups of bars.
    Kinds,
    /// Amounts of one thing, as named: plotted as lines over a logarithmic axis.
    Amounts(&'static str),
}

/// A row under a load, by their places in the design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Index of the row.
    pub row: usize,
    /// Index of the load.
    pub load: usize,
}

/// What some operations took.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Wall time of all of them; 0: nothing was timed, there are facts alone.
    pub wall_ns: u64,
    /// CPU time that the thread under test spent on all of them.
    pub cpu_ns: u64,
    /// What the processor counted, or why it cannot be told; `None`: nobody asked.
    pub counts: Option<Result<Counts, String>>,
    /// What else was found, by name. Tables tell those of the last round.
    pub facts: Vec<(&'static str, Fact)>,
}

/// What a processor counted while some work was done, in user space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Cycles of its clock.
    pub cycles: u64,
    /// Instructions carried out.
    pub instructions: u64,
    /// Branches that it had guessed wrong.
    pub branch_misses: u64,
}

/// Something found that is not a time.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// A number; its unit is in its name.
    Number(f64),
    /// A trace, a name.
    Text(String),
}

/// Why a cell has no numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent(pub String);

/// A statement about the results, and whether it was seen to hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// Whether it was seen.
    pub seen: Seen,
    /// The figures that say so.
    pub figure: Figure,
}

/// Figures that a claim was held against. Which words go with them depends on the language (`texts.rs`).
#[derive(Clone, PartialEq, Debug)]
pub enum Figure {
    /// A cell it needs is absent, or has too few rounds.
    NotMeasured,
    /// A cell's time as a share of another's.
    Ratio {
        /// What is a share.
        cell: Cell,
        /// Of what.
        other: Cell,
        /// How large it is.
        ratio: Interval,
    },
    /// What else was found in a cell.
    Found {
        /// Where.
        cell: Cell,
        /// The number, with its unit.
        told: String,
    },
    /// As the experiment says it, in English.
    Said(String),
    /// Those of each part.
    All(Vec<Self>),
}

impl From<String> for Figure {
    fn from(english: String) -> Self {
        Self::Said(english)
    }
}

/// Whether a claim was seen to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The whole interval says so.
    Yes,
    /// The whole interval says otherwise.
    No,
    /// The interval holds both, or a cell it needs is absent.
    Unclear,
}

/// How large an experiment may be, from the pace.
pub(crate) fn loads_within<T: Copy>(all: &[T], quick: &[T], pace: &Pace) -> Vec<T> {
    if pace.quick { quick.to_vec() } else { all.to_vec() }
}
