//! The results of an experiment: numbers by cell and round, and the verdicts.

use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Counts, Design, Experiment, Fact, Figure, Judged, Seen,
};
use crate::interval::Interval;

/// The numbers of an experiment.
#[derive(Clone, Debug)]
pub struct Results {
    design: Design,
    /// By row, then by load.
    numbers: Vec<Numbers>,
    took_ns: u64,
}

/// The difference on a system whose CPU times are too coarse.
const WALL_FOR_CPU: &str = "This system counts the CPU time of a thread by ticks of its clock, so wall time is compared in its place.";

/// An experiment's results, and its claims about them.
#[derive(Clone, Debug)]
pub struct ExperimentOutcome {
    /// The numbers.
    pub results: Results,
    /// In the order of the texts.
    pub claims: Vec<Claim>,
    /// The differences of this system, in English ([`Experiment::difference`]).
    pub differences: Vec<&'static str>,
}

impl ExperimentOutcome {
    /// Lets the experiment compare its claims with its results.
    pub fn new(experiment: &dyn Experiment, results: Results) -> Self {
        let clock = (results.design.judged != experiment.design().judged).then_some(WALL_FOR_CPU);
        let differences = experiment.difference().into_iter().chain(clock).collect();
        Self { claims: experiment.claims(&results), differences, results }
    }
}

/// The numbers of one cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// By round, in ns per unit. In an interrupted round the remaining cells have no value.
    wall_ns: Vec<f64>,
    cpu_ns: Vec<f64>,
    /// By round and per unit: cycles, instructions, branch misses.
    counts: [Vec<f64>; 3],
    /// The reason why there are no counts.
    uncounted: Option<String>,
    /// Facts by round.
    facts: Vec<Vec<(&'static str, Fact)>>,
    pub(crate) absent: Option<Absent>,
}

impl Numbers {
    /// Adds the sample of a round, which contains `units` units. Rounds must come in order.
    pub(crate) fn take(&mut self, round: usize, units: f64, sample: CellSample) {
        debug_assert_eq!(round, self.facts.len());
        let each = |total: u64| total as f64 / units;
        if sample.wall_ns > 0 {
            self.wall_ns.push(each(sample.wall_ns));
            self.cpu_ns.push(each(sample.cpu_ns));
        }
        match sample.counts {
            Some(Ok(Counts { cycles, instructions, branch_misses })) => {
                for (all, one) in self.counts.iter_mut().zip([cycles, instructions, branch_misses]) {
                    all.push(each(one));
                }
            }
            Some(Err(reason)) => self.uncounted = Some(reason.to_string()),
            None => {}
        }
        self.facts.push(sample.facts);
    }
}

/// The comparison of a cell with the first row.
#[derive(Clone, PartialEq, Debug)]
pub enum CellVerdict {
    /// The cell is in the first row.
    Baseline,
    /// The 95 % interval of the ratio excludes 1.
    Differs,
    /// The 95 % interval of the ratio includes 1, whatever the medians are.
    NoDifferenceSeen,
    /// The cell has facts and no times, so it is not compared.
    Facts,
    /// This number of rounds is too small for an interval.
    TooFew(usize),
    /// The cell was not measured, for this reason.
    Absent(String),
}

impl CellVerdict {
    /// The verdict in files, for programs. [`crate::texts`] translates it for people.
    pub fn text(&self) -> String {
        match self {
            Self::Baseline => "baseline".into(),
            Self::Differs => "differs".into(),
            Self::NoDifferenceSeen => "no difference seen".into(),
            Self::Facts => "facts".into(),
            Self::TooFew(rounds) => format!("no verdict: {rounds} rounds"),
            Self::Absent(reason) => format!("absent: {reason}"),
        }
    }
}

impl Results {
    pub(crate) const fn new(design: Design, numbers: Vec<Numbers>, took_ns: u64) -> Self {
        Self { design, numbers, took_ns }
    }

    /// The plan of the experiment.
    pub const fn design(&self) -> &Design {
        &self.design
    }

    /// Duration of the run, in ns.
    pub const fn took_ns(&self) -> u64 {
        self.took_ns
    }

    /// The most rounds that any cell has.
    pub fn rounds(&self) -> usize {
        self.numbers.iter().map(|numbers| numbers.facts.len()).max().unwrap_or(0)
    }

    /// Every cell, row by row.
    pub fn cells(&self) -> impl Iterator<Item = CellIndex> + use<> {
        let loads = self.design.loads.len();
        (0..self.numbers.len()).map(move |place| CellIndex { row: place / loads, load: place % loads })
    }

    /// Wall time of a unit, in ns.
    pub fn wall(&self, cell: CellIndex) -> Option<Interval> {
        Interval::of(&self.numbers(cell).wall_ns)
    }

    /// CPU time of a unit, in ns.
    pub fn cpu(&self, cell: CellIndex) -> Option<Interval> {
        Interval::of(&self.numbers(cell).cpu_ns)
    }

    /// Cycles, instructions and branch misses of a unit, if they were counted.
    pub fn counts(&self, cell: CellIndex) -> Option<[Interval; 3]> {
        let [cycles, instructions, misses] = &self.numbers(cell).counts;
        Some([Interval::of(cycles)?, Interval::of(instructions)?, Interval::of(misses)?])
    }

    /// The reason why the processor's counters are not available, if they were requested.
    pub fn uncounted(&self) -> Option<&str> {
        self.numbers.iter().find_map(|numbers| numbers.uncounted.as_deref())
    }

    /// The time that the verdicts compare, in ns per unit.
    pub fn judged(&self, cell: CellIndex) -> Option<Interval> {
        Interval::of(self.numbers(cell).judged(self.design.judged))
    }

    /// Facts of the last round, by name.
    pub fn facts(&self, cell: CellIndex) -> &[(&'static str, Fact)] {
        self.numbers(cell).facts.last().map_or(&[], Vec::as_slice)
    }

    /// A number that was found in each round, by name.
    pub fn found(&self, cell: CellIndex, name: &str) -> Option<Interval> {
        let numbers: Vec<f64> =
            self.numbers(cell).facts.iter().filter_map(|facts| number_of(facts, name)).collect();
        Interval::of(&numbers)
    }

    /// A number found in the last round, by name.
    pub fn number(&self, cell: CellIndex, name: &str) -> Option<f64> {
        number_of(self.facts(cell), name)
    }

    /// A row's time as a fraction of another row's under one load: the median of the ratios of all rounds.
    pub fn ratio(&self, row: usize, other: usize, load: usize) -> Option<Interval> {
        self.ratio_of_cells(CellIndex { row, load }, CellIndex { row: other, load })
    }

    /// A cell's time as a fraction of another's: the median of the ratios of all rounds.
    pub fn ratio_of_cells(&self, cell: CellIndex, other: CellIndex) -> Option<Interval> {
        let judged = |cell| self.numbers(cell).judged(self.design.judged);
        let ratios: Vec<f64> = judged(cell)
            .iter()
            .zip(judged(other))
            .filter(|(_, other)| **other > 0.0)
            .map(|(own, other)| own / other)
            .collect();
        Interval::of(&ratios)
    }

    /// Compares a cell with the first row.
    pub fn verdict(&self, cell: CellIndex) -> CellVerdict {
        let numbers = self.numbers(cell);
        if let Some(Absent(reason)) = &numbers.absent {
            return CellVerdict::Absent(reason.clone());
        }
        let is_timed = !numbers.wall_ns.is_empty() || numbers.facts.is_empty();
        if self.design.judged == Judged::Facts || !is_timed {
            return CellVerdict::Facts;
        }
        let Some(ratio) = self.ratio(cell.row, 0, cell.load) else {
            return CellVerdict::TooFew(numbers.wall_ns.len());
        };
        match ratio {
            _ if cell.row == 0 => CellVerdict::Baseline,
            Interval { low, high, .. } if low > 1.0 || high < 1.0 => CellVerdict::Differs,
            _ => CellVerdict::NoDifferenceSeen,
        }
    }

    /// Claims that `row` takes at most `bound` times as long as `other` under `load`. Unclear if this system lacks one of them.
    pub fn at_most(
        &self,
        bound: f64,
        row: impl Into<Option<usize>>,
        other: impl Into<Option<usize>>,
        load: usize,
    ) -> Claim {
        match (row.into(), other.into()) {
            (Some(row), Some(other)) => {
                self.cell_at_most(bound, CellIndex { row, load }, CellIndex { row: other, load })
            }
            _ => Claim::unclear(),
        }
    }

    /// Claims that `cell` takes at most `bound` times as long as `other`.
    pub fn cell_at_most(&self, bound: f64, cell: CellIndex, other: CellIndex) -> Claim {
        let Some(ratio) = self.ratio_of_cells(cell, other) else { return Claim::unclear() };
        let seen = match ratio {
            Interval { high, .. } if high <= bound => Seen::Yes,
            Interval { low, .. } if low > bound => Seen::No,
            _ => Seen::Unclear,
        };
        Claim { seen, figure: Figure::Ratio { cell, other, ratio } }
    }

    /// Claims that a number found in a cell is at most `bound`. `told` formats the number.
    pub fn found_at_most(&self, bound: f64, cell: CellIndex, name: &str, told: fn(f64) -> String) -> Claim {
        let Some(found) = self.found(cell, name) else { return Claim::unclear() };
        let seen = match found {
            Interval { high, .. } if high <= bound => Seen::Yes,
            Interval { low, .. } if low > bound => Seen::No,
            _ => Seen::Unclear,
        };
        Claim { seen, figure: Figure::Found { cell, told: told(found.median) } }
    }

    fn numbers(&self, cell: CellIndex) -> &Numbers {
        &self.numbers[cell.row * self.design.loads.len() + cell.load]
    }
}

fn number_of(facts: &[(&'static str, Fact)], name: &str) -> Option<f64> {
    facts.iter().find_map(|(known, fact)| match fact {
        Fact::Number(number) if *known == name => Some(*number),
        _ => None,
    })
}

impl Numbers {
    fn judged(&self, judged: Judged) -> &[f64] {
        match judged {
            Judged::Cpu => &self.cpu_ns,
            Judged::Wall => &self.wall_ns,
            Judged::Facts => &[],
        }
    }
}

impl Claim {
    /// An unclear claim: a required cell is absent, or has too few rounds.
    pub(crate) fn unclear() -> Self {
        Self { seen: Seen::Unclear, figure: Figure::NotMeasured }
    }

    /// Combines claims: seen if all are, not seen if one is not, otherwise unclear.
    pub(crate) fn all(claims: impl IntoIterator<Item = Self>) -> Self {
        let claims: Vec<Self> = claims.into_iter().collect();
        let seen = if claims.iter().any(|claim| claim.seen == Seen::No) {
            Seen::No
        } else if claims.is_empty() || claims.iter().any(|claim| claim.seen == Seen::Unclear) {
            Seen::Unclear
        } else {
            Seen::Yes
        };
        Self { seen, figure: Figure::All(claims.into_iter().map(|claim| claim.figure).collect()) }
    }
}
